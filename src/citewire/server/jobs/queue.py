"""The job queue between nodes and workers: procrastinate jobs, with their questions in our own table.

A job contains nothing but its number. Its questions are in `citewire.verdict`, where the verdicts are written
too. So procrastinate never logs a quote, and each question belongs to one job at a time, even if several
nodes ask it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Collection, Generator, Iterable, Mapping
from contextlib import asynccontextmanager, contextmanager
from importlib.resources import files
from typing import Any, LiteralString

import psycopg
from procrastinate import App, PsycopgConnector
from procrastinate.exceptions import ConnectorException
from procrastinate.jobs import Job, Status
from procrastinate.schema import SchemaManager

from citewire.channels.postgres_database import connect, translate_errors
from citewire.channels.store import StoreError
from citewire.server.jobs.question import LARGEST

__all__ = ["JobQueue", "QUEUE", "TASK"]

QUEUE, TASK = "citewire", "citewire.verify"
BEAT, GONE = 1.0, 5.0
"""Seconds between a worker's heartbeats, and seconds without one after which it counts as dead."""
_NEWS = "citewire_verdict"
# Seconds: to connect; to wait for a connection from the pool; and for which the pool retries connecting by
# itself, with growing delays. After that, the next request makes it retry.
_CONNECT, _PATIENCE, _RECONNECT = 5, 2.0, 1.0
# Hours for which a verdict can be reused, and after which a run's attachments are deleted if no node has
# touched them, as their node has died; seconds after which a dead worker is deleted, whose jobs others took
# long before.
_KEPT, _GIVEN, _FORGOTTEN = 1, 1, 60
# The advisory lock for creating procrastinate's tables: any number that nothing else locks.
_MAKING = 0x6369_7465_6A6F_6273
# A connection that fails silently must be noticed within seconds.
_SESSION: dict[str, Any] = {
    "application_name": "citewire jobs",
    "connect_timeout": _CONNECT,
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 10_000,
}

_LOOK: LiteralString = (
    "SELECT v.key, v.data FROM citewire.verdict AS v WHERE v.key = ANY (%s) AND (v.data IS NOT NULL"
    " OR EXISTS (SELECT FROM procrastinate_jobs AS j WHERE j.id = v.job AND j.status IN ('todo', 'doing')))"
)
# Ordered by key, or two nodes with the same questions could deadlock.
_ASK: LiteralString = (
    "INSERT INTO citewire.verdict AS v (key, question, job)"
    " SELECT key, question, %s FROM unnest(%s::text[], %s::bytea[]) AS a (key, question) ORDER BY key"
    " ON CONFLICT (key) DO UPDATE SET question = excluded.question, job = excluded.job, at = now()"
    " WHERE v.data IS NULL AND NOT"
    " EXISTS (SELECT FROM procrastinate_jobs AS j WHERE j.id = v.job AND j.status IN ('todo', 'doing'))"
)
# Limited in size, as rows are not trusted: one byte more than allowed shows that it is too long.
_QUESTIONS: LiteralString = (
    "SELECT key, substring(question FOR %s) FROM citewire.verdict WHERE job = %s AND data IS NULL LIMIT 1000"
)
_ANSWER: LiteralString = (
    "WITH written AS (UPDATE citewire.verdict AS v SET data = a.data, question = '', at = now()"
    " FROM unnest(%s::text[], %s::bytea[]) AS a (key, data)"
    " WHERE v.key = a.key AND v.data IS NULL AND v.job = coalesce(%s, v.job) RETURNING v.key)"
    " SELECT pg_notify(%s, string_agg(key, ',')) FROM written HAVING count(*) > 0"
)
_MOVE: LiteralString = "UPDATE citewire.verdict SET job = %s WHERE key = %s AND data IS NULL"
_TOUCH: LiteralString = "UPDATE citewire.given SET at = now() WHERE scope = ANY (%s)"
_HAND: LiteralString = (
    "INSERT INTO citewire.given (scope, sha256, data) VALUES (%s, %s, %s)"
    " ON CONFLICT (sha256, scope) DO UPDATE SET at = now()"
)
_HANDED: LiteralString = (
    "SELECT DISTINCT ON (sha256) sha256, data FROM citewire.given WHERE sha256 = ANY (%s)"
)
_FORGET_GIVEN: LiteralString = "DELETE FROM citewire.given WHERE scope = %s"
_FORGET_VERDICTS: LiteralString = "DELETE FROM citewire.verdict WHERE key = ANY (%s)"
_TIDY_VERDICTS: LiteralString = "DELETE FROM citewire.verdict WHERE at < now() - make_interval(hours => %s)"
_TIDY_GIVEN: LiteralString = "DELETE FROM citewire.given WHERE at < now() - make_interval(hours => %s)"
_BACKLOG: LiteralString = (
    "SELECT (SELECT count(*) FROM procrastinate_jobs WHERE status = 'todo' AND queue_name = %s),"
    " (SELECT count(*) FROM procrastinate_workers WHERE last_heartbeat > now() - make_interval(secs => %s))"
)


class JobQueue:
    """The questions of all nodes, in the database at `dsn`. Raises `StoreError` when the database fails."""

    def __init__(self, dsn: str, connections: int) -> None:
        self._dsn = dsn
        self._connector = PsycopgConnector(
            conninfo=dsn, kwargs=_SESSION, configure=_set_up, min_size=1, max_size=connections,
            timeout=_PATIENCE, reconnect_timeout=_RECONNECT,
        )  # fmt: skip
        self.app = App(connector=self._connector)

    @classmethod
    @asynccontextmanager
    async def open(cls, dsn: str, connections: int = 2) -> AsyncGenerator[JobQueue]:
        """Open the queue. Creates or migrates procrastinate's tables first."""
        await prepare(dsn)
        for name in ("procrastinate", "psycopg.pool"):
            # They log every attempt with a traceback; failures are logged where they matter.
            logging.getLogger(name).setLevel(logging.CRITICAL)
        queue = cls(dsn, connections)
        with _failures():
            await queue.app.open_async()
        try:
            yield queue
        finally:
            await queue.app.close_async()

    # Used by nodes.

    async def find_verdicts(self, keys: Collection[str]) -> dict[str, bytes | None]:
        """Return the verdicts on these questions: None if a job is pending, no entry if there is none."""
        rows = await self._rows(_LOOK, ([*keys],))
        return {key: None if data is None else bytes(data) for key, data in rows}

    async def enqueue(self, questions: Mapping[str, bytes]) -> None:
        """Enqueue these questions as one job, except those that are pending in another job or answered."""
        async with self._connection() as db, db.transaction() as all_or_none:
            job = await self._deferred(db)
            asked = await db.execute(_ASK, (job, [*questions], [*questions.values()]))
            if not asked.rowcount:
                raise psycopg.Rollback(all_or_none)

    async def store_contents(self, scope: str, contents: Mapping[str, bytes]) -> None:
        """Store the attachments of a run by their sha256, until `forget`."""
        for sha256, data in contents.items():
            async with self._connection() as db:
                await db.execute(_HAND, (scope, sha256, data))

    async def touch(self, scopes: Collection[str]) -> None:
        """Extend the retention of these runs' attachments: their node is alive."""
        async with self._connection() as db:
            await db.execute(_TOUCH, ([*scopes],))

    async def forget(self, scope: str, keys: Collection[str]) -> None:
        """Delete the attachments of a run, and the questions about them with their verdicts.

        Other askers that wait for one of these questions ask it again.
        """
        async with self._connection() as db, db.transaction():
            await db.execute(_FORGET_VERDICTS, ([*keys],))
            await db.execute(_FORGET_GIVEN, (scope,))

    async def follow_verdicts(self) -> AsyncGenerator[list[str]]:
        """Yield the keys of answered questions. An empty list means that all must be looked up."""
        with _failures():
            async with await psycopg.AsyncConnection.connect(self._dsn, autocommit=True, **_SESSION) as db:
                await db.execute(f"LISTEN {_NEWS}")
                yield []
                async for news in db.notifies():
                    yield news.payload.split(",")

    async def backlog(self) -> tuple[int, int]:
        """Return the number of waiting jobs, and of live workers."""
        [(jobs, workers)] = await self._rows(_BACKLOG, (QUEUE, GONE))
        return jobs, workers

    # Used by workers.

    async def questions(self, job: int) -> dict[str, bytes]:
        """Return the unanswered questions of a job."""
        return {key: bytes(question) for key, question in await self._rows(_QUESTIONS, (LARGEST + 1, job))}

    async def load_contents(self, sha256s: Iterable[str]) -> dict[str, bytes]:
        """Return the attachments of a run that are still stored."""
        return {sha256: bytes(data) for sha256, data in await self._rows(_HANDED, ([*sha256s],))}

    async def write_verdicts(self, verdicts: Mapping[str, bytes], job: int | None = None) -> None:
        """Write verdicts where there are none yet, and notify all nodes.

        With a `job`, only for questions that still belong to that job: they may have been asked again since.
        """
        await self._rows(_ANSWER, ([*verdicts], [*verdicts.values()], job, _NEWS))

    async def split(self, questions: Collection[str]) -> None:
        """Move each of these questions to a job of its own."""
        async with self._connection() as db, db.transaction():
            for key in questions:
                await db.execute(_MOVE, (await self._deferred(db), key))

    async def stalled(self) -> list[Job]:
        """Return the jobs of dead workers."""
        with _failures():
            return [*await self.app.job_manager.get_stalled_jobs(queue=QUEUE, seconds_since_heartbeat=GONE)]

    async def retry(self, job: Job) -> None:
        """Put a job back into the queue for another worker."""
        with _failures():
            await self.app.job_manager.retry_job(job)

    async def finish(self, job: Job) -> None:
        """Mark a job as failed, and delete it."""
        with _failures():
            await self.app.job_manager.finish_job(job, Status.FAILED, delete_job=True)

    async def tidy(self) -> None:
        """Delete expired verdicts, attachments and jobs, and dead workers."""
        with _failures():
            jobs = self.app.job_manager
            await jobs.prune_stalled_workers(_FORGOTTEN)
            await jobs.delete_old_jobs(_KEPT, QUEUE, include_failed=True, include_aborted=True)
        async with self._connection() as db:
            await db.execute(_TIDY_VERDICTS, (_KEPT,))
            await db.execute(_TIDY_GIVEN, (_GIVEN,))

    async def _deferred(self, db: psycopg.AsyncConnection[Any]) -> int:
        return await self.app.configure_task(TASK, queue=QUEUE, connection=db).defer_async()

    async def _rows(self, sql: LiteralString, values: tuple[Any, ...]) -> list[Any]:
        async with self._connection() as db:
            found = await db.execute(sql, values)
            return await found.fetchall()

    @asynccontextmanager
    async def _connection(self) -> AsyncGenerator[psycopg.AsyncConnection[Any]]:
        with _failures():
            async with self._connector.pool.connection() as db:
                yield db


async def _set_up(db: psycopg.AsyncConnection[Any]) -> None:
    """Set autocommit (one round trip instead of three) and the schema of procrastinate's tables."""
    await db.set_autocommit(True)
    await db.execute("SET search_path TO citewire_jobs")


@contextmanager
def _failures() -> Generator[None]:
    """Convert driver errors to `StoreError`. Their text may contain the DSN with its password."""
    try:
        yield
    except (psycopg.Error, ConnectorException, OSError) as exc:
        cause = exc.__cause__ or exc
        raise StoreError(f"the queue of jobs cannot be had: {type(cause).__name__}") from exc


async def prepare(dsn: str) -> None:
    """Create or migrate procrastinate's tables. Safe to call from several processes at once."""
    folder = files("procrastinate.sql").joinpath("migrations")
    steps = {each.name: each for each in folder.iterdir() if each.name.endswith(".sql")}
    db = await connect(dsn)
    try:
        with translate_errors("prepare"):
            await db.execute("SET statement_timeout = 0; SET lock_timeout = 0")
            await db.execute("SET search_path TO citewire_jobs")
            async with asyncio.timeout(600), db.transaction():
                await db.execute("SELECT pg_advisory_xact_lock($1)", _MAKING)
                if await db.fetchval("SELECT to_regclass('citewire_jobs.applied')") is None:
                    await db.execute("CREATE SCHEMA citewire_jobs")
                    await db.execute("CREATE TABLE applied (name text PRIMARY KEY)")
                    await db.execute(SchemaManager.get_schema())
                    had = set(steps)
                else:
                    had = {row["name"] for row in await db.fetch("SELECT name FROM applied")}
                for name in sorted(steps.keys() - had):
                    await db.execute(steps[name].read_text("utf-8"))
                await db.executemany(
                    "INSERT INTO applied VALUES ($1) ON CONFLICT DO NOTHING", [(name,) for name in steps]
                )
    finally:
        db.terminate()
