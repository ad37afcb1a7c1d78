"""The sources of the nodes, as a worker has them: what their log says there is, read in its own engine."""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import Self

from citewire.channels.hub import Hub
from citewire.channels.store import Cursor, Row, StoreError
from citewire.server.blobs import Blobs
from citewire.server.follower import Follower
from citewire.server.holdings import CHANNEL, Holding, Holdings
from citewire.verification.engine import Engine
from citewire.verification.reading import Reading

__all__ = ["Shelf"]

_log = logging.getLogger("citewire.jobs")


class Shelf:
    """Has the `engine` look in all sources of the log: `async with Shelf(…) as shelf`."""

    def __init__(self, hub: Hub, blobs: Blobs, engine: Engine) -> None:
        self._blobs, self._engine = blobs, engine
        self._log = Follower(hub, CHANNEL, self._apply, self._begin, self._settle)
        self._holdings = Holdings()
        self._at: Cursor | None = None
        self._readings: dict[str, tuple[Holding, Reading]] = {}

    async def __aenter__(self) -> Self:
        await self._blobs.open()
        await self._log.catch_up()
        self._following = asyncio.create_task(self._log.run())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._following.cancel()
        await asyncio.gather(self._following, return_exceptions=True)

    def holds(self, sha256: str) -> bool:
        """Whether a source has these bytes."""
        return self._holdings.holds(sha256)

    async def tidy(self) -> None:
        """Delete the copies of bytes that no source has any more. Raises `StoreError`."""
        await self._blobs.drop_copies(self.holds)

    async def reach(self, wanted: Cursor) -> None:
        """Have the sources as they were at a place of their log, or later. Raises `StoreError`."""
        if not self._has(wanted):
            await self._log.catch_up()
        if not self._has(wanted):
            raise StoreError("the log of the sources here is another one than the node has")

    def _has(self, wanted: Cursor) -> bool:
        return self._at is not None and self._at.epoch == wanted.epoch and self._at.n >= wanted.n

    def _begin(self) -> None:
        self._holdings, self._at = Holdings(), None

    def _apply(self, row: Row) -> None:
        if self._holdings.apply(row):
            self._at = row.cursor

    def _settle(self) -> None:
        """Have the engine look in what there is now, and in nothing else."""
        sources = self._holdings.sources
        for source_id, (held, reading) in [*self._readings.items()]:
            if sources.get(source_id) != held:
                del self._readings[source_id]
                self._engine.remove(reading)
        for source_id in sources.keys() - self._readings.keys():
            held = sources[source_id]
            if held.sha256:
                self._readings[source_id] = held, self._take(held, held.sha256)

    def _take(self, held: Holding, sha256: str) -> Reading:
        given, bring = held.at(self._blobs.path(sha256)), partial(self._blobs.brought, sha256)
        return self._engine.take(given, lambda _: None, bring)
