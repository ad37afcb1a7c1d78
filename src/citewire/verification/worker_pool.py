"""Workers, a thread for each, and who is asked what.

Each document belongs to one worker. A quote that names its documents is looked for by the worker that has
least to do; any other by all of them, each among its own.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

from citewire.verification.document_search import DocumentRef, SearchAnswer, SearchRequest
from citewire.verification.search_worker import (
    CloseRequest,
    ForgetRequest,
    OpenRequest,
    SearchWorker,
    WorkerSetup,
)

__all__ = ["WorkerPool"]

# Requests by which the worker of a document may be busier than the rest and still be asked: it has it open.
_PATIENCE = 4


class WorkerPool:
    """So many workers."""

    def __init__(self, count: int, setup: WorkerSetup) -> None:
        self._workers = [SearchWorker(setup) for _ in range(count)]
        self._threads = [ThreadPoolExecutor(1, "citewire-search") for _ in self._workers]
        self._busy = [0] * count
        for worker, thread in zip(self._workers, self._threads, strict=True):
            # While sources are being read there is time for it.
            thread.submit(worker.start)

    @property
    def pids(self) -> list[int]:
        """The processes that there are."""
        return [worker.pid for worker in self._workers if worker.pid]

    async def open(self, document: DocumentRef, seconds: float) -> SearchAnswer:
        """Give a document to its worker."""
        return await self._ask(self._worker_of(document.number), OpenRequest(document, seconds))

    async def forget(self, number: int, seconds: float) -> None:
        """Take a document from its worker, if that has it."""
        await self._ask(self._worker_of(number), ForgetRequest(number, seconds))

    async def close_folder(self, folder: str, seconds: float) -> None:
        """Have no worker keep a document of this folder open."""
        request = CloseRequest(folder, seconds)
        await asyncio.gather(*(self._ask(number, request) for number in range(len(self._workers))))

    async def search(self, search: SearchRequest) -> list[SearchAnswer]:
        """The answers of those who were asked. Cancelled, what has not begun is not worked on."""
        if not search.documents:
            return await asyncio.gather(*(self._ask(number, search) for number in range(len(self._workers))))
        home = self._worker_of(search.documents[0].number)
        load = [busy - _PATIENCE * (number == home) for number, busy in enumerate(self._busy)]
        return [await self._ask(load.index(min(load)), search)]

    def _worker_of(self, number: int) -> int:
        return number % len(self._workers)

    async def _ask(
        self, number: int, request: OpenRequest | ForgetRequest | CloseRequest | SearchRequest
    ) -> SearchAnswer:
        self._busy[number] += 1
        try:
            asked = self._threads[number].submit(self._workers[number].ask, request)
            return await asyncio.wrap_future(asked)
        finally:
            self._busy[number] -= 1

    def close(self) -> None:
        """End all processes and threads. Who waits is cancelled."""
        for thread in self._threads:
            thread.shutdown(wait=False, cancel_futures=True)
        for worker in self._workers:
            worker.kill()
        for worker, thread in zip(self._workers, self._threads, strict=True):
            # It ends as soon as its process does.
            thread.shutdown()
            worker.end()
