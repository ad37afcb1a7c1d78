"""Add sources to the librarian's index and remove them, one after the other."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection
from functools import partial

from msgspec import Struct

from citewire.error_reports import report_error
from citewire.librarian import PassageIndex
from citewire.verification.engine import Engine
from citewire.verification.source_reading import SourceReading

__all__ = ["IndexQueue"]

_log = logging.getLogger("citewire.sources")


class _Job(Struct, frozen=True):
    """A source to add, and the callback for the result; without a reading, a source to remove."""

    source_id: str
    reading: SourceReading | None = None
    done: Callable[[str | None], object] = lambda _: None


class IndexQueue:
    """Processes jobs in order, so that a removed source stays out of the index."""

    def __init__(self, index: PassageIndex, engine: Engine) -> None:
        self._index, self._engine = index, engine
        self._jobs: asyncio.Queue[_Job | None] = asyncio.Queue()

    def add(self, source_id: str, reading: SourceReading, done: Callable[[str | None], object]) -> None:
        """Queue a source for indexing. `done` is called with a problem, or with None."""
        self._jobs.put_nowait(_Job(source_id, reading, done))

    def remove(self, source_id: str) -> None:
        """Queue the removal of a source."""
        self._jobs.put_nowait(_Job(source_id))

    def stop(self) -> None:
        """Stop after the current job, dropping all queued ones."""
        while not self._jobs.empty():
            self._jobs.get_nowait()
        self._jobs.put_nowait(None)

    async def run(self, known: Collection[str]) -> None:
        """Remove all but the `known` sources, then process jobs until stopped."""
        for source_id in await asyncio.to_thread(self._index.source_ids) - {*known}:
            self.remove(source_id)
        while job := await self._jobs.get():
            problem = None
            try:
                await asyncio.to_thread(partial(self._do, job))
            except Exception as exc:  # noqa: BLE001  # told of the source that shows it
                problem = report_error(exc, _log, message="it cannot be searched").message
            job.done(problem)

    def _do(self, job: _Job) -> None:
        if job.reading is None:
            self._index.remove(job.source_id)
        elif document := self._engine.get_document(job.reading, boxes=False):
            self._index.add(job.source_id, document)
        else:
            raise LookupError("what was read is not in the cache any more")
