"""Fold one of the server's own channels into memory, on every server that shares the store.

Rows written by one server reach all others in the same order. The state in memory is therefore always the
fold of the log, and never what one server remembers.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Sequence
from contextlib import aclosing, suppress
from uuid import uuid4

from msgspec import Struct

from citewire import codec
from citewire.channels.hub import Hub
from citewire.channels.store import Cursor, CursorLost, Entry, Row, StoreError

__all__ = ["ChannelFollower"]

_log = logging.getLogger("citewire.server")
_PAGE = 1000
# Seconds to wait before retrying a store that failed.
_AGAIN = 1.0


class ChannelFollower:
    """Calls `apply` for every row of a channel, once and in order, and `done` after each batch.

    If the log was replaced, for example by an older backup, it calls `begin` to reset the state and replays
    all rows.
    """

    def __init__(
        self,
        hub: Hub,
        channel: str,
        apply: Callable[[Row], object],
        begin: Callable[[], object],
        done: Callable[[], object] = lambda: None,
    ) -> None:
        self._hub, self._channel = hub, channel
        self._apply, self._begin, self._done = apply, begin, done
        self._read: Cursor | None = None
        self._turn = asyncio.Lock()

    async def catch_up(self) -> None:
        """Apply all rows written so far. Raises `StoreError`."""
        async with self._turn:
            await self._catch_up()

    async def write(self, rows: Collection[tuple[str, Struct]]) -> None:
        """Append rows, each a kind and its data, and apply them. Raises `StoreError`."""
        entries = [Entry(uuid4().hex, kind, codec.encode(data)) for kind, data in rows]
        if entries:
            await self._take(await self._hub.append(self._channel, entries))

    async def run(self) -> None:
        """Apply rows written by other servers as they arrive, until the hub is closed."""
        while True:
            try:
                async with aclosing(self._hub.follow(self._channel, self._read)) as batches:
                    async for rows in batches:
                        await self._take(rows)
                return
            except CursorLost:
                with suppress(StoreError):  # retried in the next round
                    await self.catch_up()
            except StoreError as exc:
                _log.warning("the log of %s cannot be read now: %s", self._channel, exc)
                await asyncio.sleep(_AGAIN)

    async def _take(self, rows: Sequence[Row]) -> None:
        """Apply these rows, after any rows that others wrote before them."""
        async with self._turn:
            first, read = rows[0], self._read or Cursor(rows[0].epoch, 0)
            if first.epoch != read.epoch or first.n > read.n + 1:
                await self._catch_up()
            else:
                self._each(rows[read.n + 1 - first.n :])
                self._done()

    async def _catch_up(self) -> None:
        while True:
            try:
                rows = await self._hub.store.read(self._channel, self._read, _PAGE)
            except CursorLost:
                self._begin()
                self._read = None
                continue
            if not rows:
                break
            self._each(rows)
        self._done()

    def _each(self, rows: Sequence[Row]) -> None:
        for row in rows:
            self._apply(row)
            self._read = row.cursor
