"""`citewire worker`: takes jobs, checks quotes against the sources, and writes the verdicts.

The jobs of a worker that dies are taken by another one. A verdict is written once, however often it is
reached.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Collection, Mapping
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import procrastinate.worker
from procrastinate import JobContext
from procrastinate.jobs import Job

from citewire.channels.hub import Hub
from citewire.channels.store import Cursor, StoreError
from citewire.documents.cache import Cache
from citewire.errors import InputError
from citewire.server.jobs.cancellation import cancel_until_done
from citewire.server.jobs.question import JobQuestion, Manifest, read, write
from citewire.server.jobs.queue import BEAT, GONE, QUEUE, TASK, JobQueue
from citewire.server.jobs.worker_sources import WorkerSources
from citewire.server.ops.settings import Settings
from citewire.server.sources.cache_sweep import CacheSweep
from citewire.server.storage import backend
from citewire.server.storage.blobs_postgres import PostgresBlobs
from citewire.server.storage.data_folder import keep_private, restrict_new_files
from citewire.verification.document_set import CheckResult
from citewire.verification.engine import Engine, EngineLimits
from citewire.verification.verifier import QuoteCheck

__all__ = ["JobWorker", "run_worker"]

_log = logging.getLogger("citewire.jobs")

# Attempts at a question that crashes its worker.
_TRIES = 3
# Seconds: for jobs to finish at shutdown; before a restart after a failure; between two checks for stalled
# jobs; and between two clean-ups.
_GRACE, _AGAIN, _SWEEP, _TIDY = 10.0, 1.0, 1.0, 60.0
# Seconds without a new verdict after which the collected ones are written.
_GATHER = 0.02


class JobWorker:
    """Answers the questions of a queue with an engine that has the sources of `shelf`."""

    def __init__(self, queue: JobQueue, engine: Engine, shelf: WorkerSources) -> None:
        self._queue, self._engine, self._shelf = queue, engine, shelf
        self._caches = CacheSweep(engine, None, [shelf.has_bytes])
        queue.app.task(name=TASK, queue=QUEUE, pass_context=True, retry=_TRIES - 1)(self._verify)

    async def run(self, stop: asyncio.Event, concurrency: int) -> None:
        """Take up to `concurrency` jobs at a time until `stop`. Running jobs are finished or returned."""
        sides: list[asyncio.Task[Any]] = [asyncio.create_task(work) for work in (self._sweep(), self._tidy())]
        stopping: asyncio.Task[Any] = asyncio.create_task(stop.wait())
        try:
            while not stop.is_set():
                worker = self._procrastinate_worker(concurrency)
                working = asyncio.create_task(_run(worker))
                await asyncio.wait([working, stopping], return_when=asyncio.FIRST_COMPLETED)
                worker.stop()
                await asyncio.wait([working], timeout=2 * _GRACE)
                await cancel_until_done([working])
                if not stop.is_set():
                    await asyncio.sleep(_AGAIN)
        finally:
            await cancel_until_done([*sides, stopping])

    def _procrastinate_worker(self, concurrency: int) -> procrastinate.worker.Worker:
        """Make a procrastinate worker, which registers under a new number each time it runs."""
        return procrastinate.worker.Worker(
            self._queue.app,
            queues=[QUEUE], concurrency=concurrency, delete_jobs="successful",
            install_signal_handlers=False, shutdown_graceful_timeout=_GRACE,
            fetch_job_polling_interval=_SWEEP, update_heartbeat_interval=BEAT,
            stalled_worker_timeout=GONE,
        )  # fmt: skip

    async def _verify(self, context: JobContext, **_: Any) -> None:
        """Handle a job. Called by procrastinate."""
        questions = await self._queue.questions(context.job.id or 0)
        try:
            await self._answer(questions, context.job.id or 0)
        except Exception as exc:
            _log.warning("a job failed: %s", exc, exc_info=not isinstance(exc, StoreError))
            if not await self._is_over(context.job):
                raise

    async def _answer(self, questions: Mapping[str, bytes], job: int) -> None:
        async with AsyncExitStack() as stack:
            asked: list[QuoteCheck] = []
            skipped: dict[str, bytes] = {}
            scopes: dict[str, str] = {}
            for key, data in questions.items():
                try:
                    posed = read(data, JobQuestion)
                    if posed.given and posed.given not in scopes:
                        scopes[posed.given] = await stack.enter_async_context(self._scope(posed.given))
                    if posed.at:
                        await self._shelf.catch_up_to(Cursor.parse(posed.at))
                    asked.append(posed.asked(key, scopes.get(posed.given or "")))
                except InputError as exc:
                    skipped[key] = _skipped(f"the question cannot be answered: {exc.message}")
            if skipped:
                await self._queue.write_verdicts(skipped, job)
            results = await stack.enter_async_context(aclosing(self._engine.check(asked)))
            async with aclosing(_gathered(results)) as some:
                async for found in some:
                    await self._queue.write_verdicts({checked.id or "": write(checked) for checked in found})

    @asynccontextmanager
    async def _scope(self, given: str) -> AsyncGenerator[str]:
        """Load a run's attachments into a scope of the engine. Raises `InputError` if they are gone."""
        manifest = read((await self._handed([given]))[given], Manifest)
        contents = await self._handed({each.sha256 for each in manifest.handed if each.sha256})
        sources = [each.source(contents) for each in manifest.handed]
        scope = uuid4().hex
        try:
            await self._engine.add(*sources, scope=scope)
            yield scope
        finally:
            await self._engine.forget(scope)

    async def _handed(self, sha256s: Collection[str]) -> dict[str, bytes]:
        contents = await self._queue.load_contents(sha256s)
        if len(contents) < len(sha256s):
            raise InputError("what came with the run is not kept any more")
        return contents

    async def _is_over(self, job: Job) -> bool:
        """Return whether a failed job is over: its questions were split into single jobs, or given up."""
        questions = await self._queue.questions(job.id or 0)
        if len(questions) > 1:
            await self._queue.split(questions)
        elif questions and job.attempts + 1 < _TRIES:
            return False
        else:
            await self._queue.write_verdicts(
                dict.fromkeys(questions, _skipped(f"the check failed {_TRIES} times"))
            )
        return True

    async def _sweep(self) -> None:
        """Retry the jobs of dead workers."""
        while True:
            try:
                for job in await self._queue.stalled():
                    _log.warning("a worker died in job %s", job.id)
                    await (self._queue.finish(job) if await self._is_over(job) else self._queue.retry(job))
            except StoreError as exc:
                _log.debug("jobs that were left cannot be looked for: %s", exc)
            await asyncio.sleep(_SWEEP)

    async def _tidy(self) -> None:
        while True:
            try:
                await self._queue.tidy()
                await self._shelf.tidy()
                await self._caches.sweep()
            except StoreError as exc:
                _log.debug("what nobody needs cannot be forgotten now: %s", exc)
            await asyncio.sleep(_TIDY)


async def _run(worker: procrastinate.worker.Worker) -> None:
    """Take jobs until the worker is stopped or the database fails."""
    try:
        await worker.run()
    except Exception as exc:  # noqa: BLE001  # whatever it was, the caller starts another one
        _log.warning("no jobs can be taken now: %s", type(exc).__name__)


async def _gathered(results: AsyncIterator[CheckResult]) -> AsyncGenerator[list[CheckResult]]:
    """Yield results in batches of those that arrive shortly after each other."""
    found: list[CheckResult] = []
    coming: asyncio.Future[CheckResult | None] | None = None
    try:
        while True:
            coming = coming or asyncio.ensure_future(anext(results, None))
            await asyncio.wait([coming], timeout=_GATHER if found else None)
            if coming.done():
                checked, coming = coming.result(), None
                if checked is None:
                    break
                found.append(checked)
            else:
                yield found
                found = []
        if found:
            yield found
    finally:
        if coming:
            coming.cancel()
            await asyncio.gather(coming, return_exceptions=True)


def _skipped(reason: str) -> bytes:
    return write(CheckResult(None, "skipped", reason))


async def run_worker(settings: Settings, dsn: str, data: Path, concurrency: int) -> None:
    """Run a worker with its files in `data` until the process is told to end. Raises `StoreError`."""
    restrict_new_files()
    keep_private(data)
    usual = EngineLimits()
    limits = EngineLimits(
        memory=settings.worker_memory,
        readers=settings.readers or usual.readers,
        reader_memory=settings.reader_memory or usual.reader_memory,
    )
    async with AsyncExitStack() as stack:
        stack.enter_context(backend.lock_folder(data))
        store = await backend.open_store(dsn)
        stack.push_async_callback(store.close)
        hub = Hub(store)
        stack.callback(hub.close)
        # No deadline: the node has one, and finds the verdict when it asks again.
        cache = Cache(data / "cache")
        await asyncio.to_thread(cache.remove_unfinished)
        engine = Engine(cache=cache, deadline=None, workers=settings.workers, limits=limits)
        await stack.enter_async_context(engine)
        blobs = PostgresBlobs(data / "sources", store.db, "sources")
        shelf = await stack.enter_async_context(WorkerSources(hub, blobs, engine))
        queue = await stack.enter_async_context(JobQueue.open(dsn, concurrency + 2))
        stop, loop = asyncio.Event(), asyncio.get_running_loop()
        for each in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(each, stop.set)
        sys.stdout.write("citewire worker takes jobs. Stop it with Ctrl-C.\n")
        sys.stdout.flush()
        await JobWorker(queue, engine, shelf).run(stop, concurrency)
