"""The nodes' sources in a worker: follows their log, and reads them in the worker's own engine."""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import Self

from citewire.channels.hub import Hub
from citewire.channels.store import Cursor, Row, StoreError
from citewire.server.sources.stored_sources import CHANNEL, StoredSource, StoredSources
from citewire.server.storage.blobs import Blobs
from citewire.server.storage.follower import ChannelFollower
from citewire.verification.engine import Engine
from citewire.verification.source_reading import SourceReading

__all__ = ["WorkerSources"]

_log = logging.getLogger("citewire.jobs")


class WorkerSources:
    """Adds all sources in the log to the `engine`: `async with WorkerSources(…) as sources`."""

    def __init__(self, hub: Hub, blobs: Blobs, engine: Engine) -> None:
        self._blobs, self._engine = blobs, engine
        self._log = ChannelFollower(hub, CHANNEL, self._apply, self._begin, self._settle)
        self._holdings = StoredSources()
        self._at: Cursor | None = None
        self._readings: dict[str, tuple[StoredSource, SourceReading]] = {}

    async def __aenter__(self) -> Self:
        await self._blobs.open()
        await self._log.catch_up()
        self._following = asyncio.create_task(self._log.run())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._following.cancel()
        await asyncio.gather(self._following, return_exceptions=True)

    def has_bytes(self, sha256: str) -> bool:
        """Return whether a source has these bytes."""
        return self._holdings.has_bytes(sha256)

    async def tidy(self) -> None:
        """Delete local copies of bytes that no source has any more. Raises `StoreError`."""
        await self._blobs.drop_copies(self.has_bytes)

    async def catch_up_to(self, wanted: Cursor) -> None:
        """Read the log of sources up to this cursor at least. Raises `StoreError`."""
        if not self._has(wanted):
            await self._log.catch_up()
        if not self._has(wanted):
            raise StoreError("the log of the sources here is another one than the node has")

    def _has(self, wanted: Cursor) -> bool:
        return self._at is not None and self._at.epoch == wanted.epoch and self._at.n >= wanted.n

    def _begin(self) -> None:
        self._holdings, self._at = StoredSources(), None

    def _apply(self, row: Row) -> None:
        if self._holdings.apply(row):
            self._at = row.cursor

    def _settle(self) -> None:
        """Make the engine's sources match the log."""
        sources = self._holdings.sources
        for source_id, (held, reading) in [*self._readings.items()]:
            if sources.get(source_id) != held:
                del self._readings[source_id]
                self._engine.remove(reading)
        for source_id in sources.keys() - self._readings.keys():
            held = sources[source_id]
            if held.sha256:
                self._readings[source_id] = held, self._take(held, held.sha256)

    def _take(self, held: StoredSource, sha256: str) -> SourceReading:
        given, bring = held.at_path(self._blobs.path(sha256)), partial(self._blobs.ensure_local, sha256)
        return self._engine.add_source(given, lambda _: None, bring)
