"""A node and workers that check its quotes, on a real Postgres."""

from __future__ import annotations

import asyncio
import os
import select
import signal
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Self

from msgspec import Struct

from citewire.channels.hub import Hub
from citewire.channels.postgres import PostgresStore
from citewire.documents.cache import Cache
from citewire.librarian import PassageIndex
from citewire.server.jobs.queue import JobQueue
from citewire.server.jobs.verifier import JobVerifier
from citewire.server.ops.settings import Settings
from citewire.server.sources.catalog import Catalog
from citewire.server.storage.blobs_postgres import PostgresBlobs
from citewire.verification.document_set import CheckResult
from citewire.verification.engine import Engine
from citewire.verification.verifier import QuoteCheck, check_in_order
from support.pdfs import Line, Sheet, make_pdf
from support.server_process import DEADLINE, SCRIPT, descendants, environment

FEES = make_pdf(
    *(
        Sheet([Line(f"The fee of member {n} is {n + 40} dollars, due on day {n + 3}.", y=700 - n % 10 * 30)
               for n in range(page * 10, page * 10 + 10)])
        for page in range(3)
    )
)  # fmt: skip


class Working:
    """`citewire worker` in a process of its own. No process that it starts may be left, however it ends."""

    def __init__(self, dsn: str, folder: Path, concurrency: int = 1, data: Path | None = None) -> None:
        self._dsn, self._folder, self._concurrency = dsn, folder, concurrency
        self._data = [] if data is None else ["--data", str(data)]
        self.log = folder / "worker.log"
        self._process: Process | None = None

    async def __aenter__(self) -> Self:
        with self.log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                str(SCRIPT), "worker", "--concurrency", str(self._concurrency), *self._data,
                cwd=self._folder, stdout=PIPE, stderr=log,
                env=environment(CITEWIRE_STORE=self._dsn, CITEWIRE_WORKERS="1", CITEWIRE_READERS="1"),
            )  # fmt: skip
        assert self._process.stdout
        assert b"takes jobs" in await self._process.stdout.readline(), self.log.read_text()
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._process:
            await self.end(signal.SIGKILL)

    def send(self, how: signal.Signals) -> None:
        assert self._process
        self._process.send_signal(how)

    async def end(self, how: signal.Signals = signal.SIGTERM) -> int:
        """End it, and see that all that it started ends."""
        process, self._process = self._process, None
        assert process
        children = [os.pidfd_open(child) for child in descendants(process.pid)]
        process.send_signal(how)
        async with asyncio.timeout(DEADLINE):
            code = await process.wait()
        for child in children:
            ready = await asyncio.to_thread(select.select, [child], [], [], DEADLINE)
            os.close(child)
            assert ready[0], "it left a process behind"
        return code


class Node(Struct, frozen=True):
    """What of a node has to do with jobs."""

    verifier: JobVerifier
    catalog: Catalog
    engine: Engine
    store: PostgresStore

    async def upload(self, data: bytes, name: str) -> None:
        async with self.catalog.draft() as draft:
            await draft.write(data)
            await self.catalog.upload(draft, name, "")

    async def check(self, *quotes: QuoteCheck) -> list[CheckResult]:
        return [checked async for checked in check_in_order(self.verifier, quotes)]

    async def one(self, sql: str, *values: object) -> Any:
        """The one value that a statement gives."""
        return (await self.store.db.fetch(sql, *values))[0][0]

    async def meddle(self, sql: str, *values: object) -> None:
        """Change the tables of procrastinate."""
        async with self.store.db.connection() as db, db.transaction():
            await db.execute("SET LOCAL search_path TO citewire_jobs")
            await db.execute(sql, *values)

    async def until(self, sql: str, wanted: object, seconds: float = DEADLINE) -> None:
        """Wait until a statement gives this."""
        async with asyncio.timeout(seconds):
            while await self.one(sql) != wanted:
                await self.one("SELECT pg_sleep(0.02)")

    @asynccontextmanager
    async def held(self) -> AsyncGenerator[None]:
        """While this lasts no verdict can be written: whoever has one waits, in the middle of its job."""
        async with self.store.db.connection() as db, db.transaction():
            await db.execute("LOCK TABLE citewire.verdict IN SHARE MODE")
            yield


@asynccontextmanager
async def node(dsn: str, folder: Path) -> AsyncGenerator[Node]:
    async with AsyncExitStack() as stack:
        store = await PostgresStore.open(dsn)
        stack.push_async_callback(store.close)
        hub = Hub(store)
        stack.callback(hub.close)
        engine = await stack.enter_async_context(Engine(cache=Cache(folder / "cache"), workers=1))
        index = PassageIndex(folder.with_suffix(".sqlite"))
        stack.callback(index.close)
        blobs = PostgresBlobs(folder / "sources", store.db, "sources")
        catalog = await stack.enter_async_context(Catalog(hub, blobs, engine, index, Settings()))
        queue = await stack.enter_async_context(JobQueue.open(dsn))
        verifier = JobVerifier(queue, engine, lambda: catalog.position)
        yield Node(await stack.enter_async_context(verifier), catalog, engine, store)


def on_node(dsn: str, folder: Path, work: Callable[[Node], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        async with node(dsn, folder / "node") as one:
            await work(one)

    asyncio.run(main())


ASKED = "SELECT count(*) FROM citewire.verdict WHERE data IS NULL"
ANSWERED = "SELECT count(*) FROM citewire.verdict WHERE data IS NOT NULL"
JOBS = "SELECT count(*) FROM citewire_jobs.procrastinate_jobs"
DOING = "SELECT count(DISTINCT worker_id) FROM citewire_jobs.procrastinate_jobs WHERE status = 'doing'"
MADE = "SELECT last_value FROM citewire_jobs.procrastinate_jobs_id_seq"
LEAVE = "UPDATE procrastinate_jobs SET status = 'doing'"
# Only a worker that writes a verdict counts: its clean-up waits for the same table.
_WRITES = "wait_event_type = 'Lock' AND query LIKE 'WITH written AS (UPDATE citewire.verdict%'"
STUCK = f"SELECT count(*) FROM pg_stat_activity WHERE {_WRITES}"
CUT = f"SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE {_WRITES}"
