"""Store for several nodes, which share one Postgres database and have no other connection.

A node writes through one connection (`postgres_writer`), reads through a few, and listens on one more. A
commit by another node sends only the names of its channels; the rows are then read. To find lost
notifications, the node polls the ends of all followed channels once a second.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Sequence
from typing import Any, TypeVar

from citewire import codec
from citewire.channels.hub import Hub
from citewire.channels.postgres_batch import encode_notifications
from citewire.channels.postgres_database import (
    Database,
    StoreTooNew,
    check_schema_version,
    connect,
    schema_version,
    translate_errors,
)
from citewire.channels.postgres_log import PostgresLog
from citewire.channels.postgres_writer import PostgresWriter, SeenHeads, WriteRequest
from citewire.channels.store import (
    CommittedChange,
    Cursor,
    CursorLost,
    Decide,
    Entry,
    Row,
    StoreError,
)
from citewire.channels.store_rules import (
    check_entries,
    check_keys,
    check_name,
    check_span,
    load_migrations,
    now_ms,
)

__all__ = ["PostgresStore"]

_log = logging.getLogger("citewire.store")
_T = TypeVar("_T")

# Seconds between two polls of the followed channels, and before a lost listener reconnects.
_EVERY = 1.0
# The size assumed for a waiting change: its real size is known only once it is decided.
_CHANGE_BYTES = 64 * 1024

_ENDS = "SELECT name, epoch, n FROM citewire.channel WHERE name = ANY ($1::text[])"


class PostgresStore(PostgresLog):
    """`Store`, `Slots` and `Leases` in a database. Open, use and close it in one event loop."""

    def __init__(self, db: Database, now: Callable[[], int]) -> None:
        super().__init__(db, SeenHeads())
        self._now = now
        self._writer = PostgresWriter(db.dsn, now, self._seen)
        self.take, self.release, self.on_lost = self._writer.take, self._writer.release, self._writer.on_lost
        self.follower: Hub | None = None
        self._listening = asyncio.create_task(self._listen())

    @classmethod
    async def open(cls, dsn: str, now: Callable[[], int] = now_ms) -> PostgresStore:
        """Open the store at this address. Raises `StoreError`."""
        return cls(await Database.open(dsn), now)

    @property
    def pid(self) -> int | None:
        """The Postgres backend process of our writing connection; None while there is none."""
        return self._writer.pid

    async def append(self, channel: str, entries: Sequence[Entry]) -> tuple[Row, ...]:
        """See `Store`."""
        check_name(channel)
        kept = tuple(entries)  # copied: the writer uses it later
        size = check_entries(kept)
        self._ask()
        if not kept:
            return ()
        return await self._writer.submit(
            WriteRequest(
                batch=lambda batch: batch.append(channel, kept), needs=(channel, ()),
                ids=[entry.id for entry in kept], entries=len(kept), size=size,
            )
        )  # fmt: skip

    async def change(self, channel: str, keys: Sequence[str], decide: Decide[_T]) -> CommittedChange[_T]:
        """See `Slots`."""
        asked = check_keys(channel, keys)
        self._ask()
        return await self._writer.submit(
            WriteRequest(
                batch=lambda batch: batch.change(channel, asked, decide), needs=(channel, asked),
                size=_CHANGE_BYTES,
            )
        )  # fmt: skip

    async def drop(self, channel: str) -> None:
        """See `Store`."""
        check_name(channel)
        self._ask()

        async def erase(db: Any) -> None:
            await db.execute(
                "SELECT citewire.erase($1, $2, $3)", channel, self._now(), encode_notifications([channel])
            )
            self._writer.forget(channel)
            self._seen.forget(channel)

        await self._writer.submit(WriteRequest(alone=erase))

    async def trim(self, channel: str, upto: Cursor, ranges: Sequence[tuple[str, str]] = ()) -> None:
        """See `Slots`."""
        check_name(channel)
        spans = [check_span(channel, *each)[1:] for each in ranges]
        self._ask()

        async def trim(db: Any) -> bool:
            self._writer.forget(channel)
            if not 0 <= upto.n < 2**62:
                return False
            afters, befores = [after for after, _ in spans], [before for _, before in spans]
            return await db.fetchval(
                "SELECT citewire.trim($1, $2, $3, $4, $5, $6)",
                channel, upto.epoch, upto.n, afters, befores, encode_notifications([channel]),
            )  # fmt: skip

        if not await self._writer.submit(WriteRequest(alone=trim)):
            raise CursorLost(f"the log does not go on from {upto}")

    async def close(self) -> None:
        """See `Store`."""
        if self._closed:
            return
        self._closed = True
        self._listening.cancel()
        await asyncio.gather(self._listening, return_exceptions=True)
        await self._writer.close()
        await super().close()

    # --- writes by other nodes ----------------------------------------------------------------------------

    async def _listen(self) -> None:
        """Notify the follower of writes by other nodes, until the store is closed."""
        while True:
            try:
                await self._listen_once()
            except StoreTooNew:
                self._writer.disconnect()  # and never reconnect
            except StoreError:
                pass  # the database is unreachable
            await asyncio.sleep(_EVERY)

    async def _listen_once(self) -> None:
        db = await connect(self.db.dsn)
        try:
            with translate_errors("listen to"):
                check_schema_version(await schema_version(db), len(load_migrations("postgres")))
                await db.add_listener("citewire", self._on_notification)
                await self._writer.ensure_connected()
                self._notify_follower(None)  # there may have been writes before we listened
                while not db.is_closed():
                    await asyncio.sleep(_EVERY)
                    check_schema_version(await schema_version(db), len(load_migrations("postgres")))
                    if self._writer.pid is None:
                        await self._writer.ensure_connected()
                    await self._poll_ends(db)
        finally:
            db.terminate()

    def _on_notification(self, _db: object, pid: int, _channel: str, payload: object) -> None:
        if pid != self._writer.pid:
            self._notify_follower(codec.decode(str(payload)))

    def _notify_follower(self, channels: Collection[str] | None) -> None:
        if self.follower:
            self.follower.on_remote_writes(channels)

    async def _poll_ends(self, db: Any) -> None:
        """Find writes whose notification was lost."""
        if not self.follower:
            return
        asked = list(self.follower.followed_ends())
        found = {name: Cursor(epoch, n) for name, epoch, n in await db.fetch(_ENDS, asked)}
        ends = self.follower.followed_ends()
        if news := [name for name in asked if name in ends and found.get(name) != ends[name]]:
            self._notify_follower(news)
