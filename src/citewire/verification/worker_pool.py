"""Search workers, one thread for each, and the routing of requests to them.

Each document belongs to one worker. A quote that names its documents goes to the least busy worker; any other
to all of them, each of which searches its own documents.
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

# A document's own worker is preferred, since it has it open, unless it is busier by this many requests.
_PATIENCE = 4


class WorkerPool:
    """A pool of `count` search workers."""

    def __init__(self, count: int, setup: WorkerSetup) -> None:
        self._workers = [SearchWorker(setup) for _ in range(count)]
        self._threads = [ThreadPoolExecutor(1, "citewire-search") for _ in self._workers]
        self._busy = [0] * count
        for worker, thread in zip(self._workers, self._threads, strict=True):
            # Start early, while sources are still being read.
            thread.submit(worker.start)

    @property
    def pids(self) -> list[int]:
        """The ids of the running worker processes."""
        return [worker.pid for worker in self._workers if worker.pid]

    async def open(self, document: DocumentRef, seconds: float) -> SearchAnswer:
        """Open a document in its worker."""
        return await self._ask(self._worker_of(document.number), OpenRequest(document, seconds))

    async def forget(self, number: int, seconds: float) -> None:
        """Remove a document from its worker, if it is there."""
        await self._ask(self._worker_of(number), ForgetRequest(number, seconds))

    async def close_folder(self, folder: str, seconds: float) -> None:
        """Close all documents of a folder in every worker."""
        request = CloseRequest(folder, seconds)
        await asyncio.gather(*(self._ask(number, request) for number in range(len(self._workers))))

    async def search(self, search: SearchRequest) -> list[SearchAnswer]:
        """Return the responses of the workers. If cancelled, requests that have not started are dropped."""
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
        """Stop all processes and threads. Waiting callers are cancelled."""
        for thread in self._threads:
            thread.shutdown(wait=False, cancel_futures=True)
        for worker in self._workers:
            worker.kill()
        for worker, thread in zip(self._workers, self._threads, strict=True):
            # The thread ends as soon as its process does.
            thread.shutdown()
            worker.end()
