"""Several nodes on one Postgres: annotations at the store and through the wire, from node to node, and jobs.

At the store we are compared with two bare loops, each with one asyncpg connection and one function per batch,
on the same server, in turn. Both notify once per batch, and check nothing. `counted` adds rows with a unique
id, numbers them per channel and bumps a count. `summed` leaves the same behind as we do: it keeps each
message's summary as JSON, and writes rows with the annotation, that summary, and the hash of the row before.
For the rest see `bench.nodes`.
"""

from __future__ import annotations

import asyncio
import sys
from collections import defaultdict
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, ExitStack, asynccontextmanager
from hashlib import sha256
from itertools import count
from statistics import median
from typing import Any, NamedTuple

import asyncpg
import msgspec
import uvloop

from bench.annotating import DATA, NAMES, TYPE, Timed, annotator, answers, timed
from bench.nodes import checked_by_workers, through_the_wire
from bench.table import show
from bench.verify import ROOT
from citewire.channels.channels import Channels
from citewire.channels.hub import Hub
from citewire.channels.postgres import PostgresStore

sys.path.append(str(ROOT / "tests"))
from support.postgres import Postgres  # a real one, for the time of a block

PUBLISHERS, ROUNDS, SECONDS, GOAL = (1, 10, 100), 5, 0.7, 0.8
CHANNELS = 20

Measure = Callable[[int], Awaitable[Timed]]
"""With so many publishers."""
Side = Callable[[str], AbstractAsyncContextManager[Measure]]
"""At this address."""


@asynccontextmanager
async def _ours(dsn: str) -> AsyncGenerator[Measure]:
    store = await PostgresStore.open(dsn)
    channels, turns = Channels(store, Hub(store)), count()

    async def measure(publishers: int) -> Timed:
        turn = next(turns)
        names = [f"ai:{turn}:{at}" for at in range(CHANNELS)]
        return await timed(annotator(channels, names, await answers(channels, names)), publishers, SECONDS)

    try:
        yield measure
    finally:
        await store.close()


class _Job(NamedTuple):
    channel: str
    publisher: int
    at: int
    future: asyncio.Future[None]


class _Bare:
    """One connection; what is queued goes in one statement, and is acknowledged after it."""

    def __init__(self, db: asyncpg.Connection[Any], put: Callable[[Sequence[_Job]], Sequence[Any]]) -> None:
        self._db, self._put, self._turns = db, put, count()
        self._jobs, self._more = list[_Job](), asyncio.Event()

    async def measure(self, publishers: int) -> Timed:
        turn = next(self._turns)
        running = asyncio.create_task(self._run())

        async def write(publisher: int, at: int) -> None:
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._jobs.append(_Job(f"ai:{turn}:{(publisher + at) % CHANNELS}", publisher, at, future))
            self._more.set()
            await future

        try:
            return await timed(write, publishers, SECONDS)
        finally:
            running.cancel()

    async def _run(self) -> None:
        while True:
            await self._more.wait()
            self._more.clear()
            jobs, self._jobs = self._jobs, []
            values = self._put(jobs)
            await self._db.fetchval(
                f"SELECT put({', '.join(f'${n + 1}' for n in range(len(values)))})", *values
            )
            for job in jobs:
                job.future.set_result(None)


def _bare(tables: str, put: Callable[[], Callable[[Sequence[_Job]], Sequence[Any]]]) -> Side:
    @asynccontextmanager
    async def side(dsn: str) -> AsyncGenerator[Measure]:
        db = await asyncpg.connect(dsn)
        try:
            await db.execute(tables)
            yield _Bare(db, put()).measure
        finally:
            await db.close()

    return side


_COUNTED = """
CREATE TABLE head (ch text PRIMARY KEY, n bigint) WITH (fillfactor = 50);
CREATE TABLE log (ch text, n bigint, id text, data text, PRIMARY KEY (ch, n), UNIQUE (ch, id));
CREATE TABLE summary (ch text, name text, n bigint, PRIMARY KEY (ch, name)) WITH (fillfactor = 50);
CREATE FUNCTION put(chs text[], names text[], ids text[], datas text[]) RETURNS bigint[] LANGUAGE sql AS $$
WITH x AS (
    SELECT *, row_number() OVER (PARTITION BY ch ORDER BY at) AS nth
    FROM unnest(chs, names, ids, datas) WITH ORDINALITY AS t (ch, name, id, data, at)
), h AS (
    INSERT INTO head SELECT ch, count(*) FROM x GROUP BY ch ORDER BY ch
    ON CONFLICT (ch) DO UPDATE SET n = head.n + excluded.n RETURNING ch, n
), y AS (
    SELECT x.*, h.n - (count(*) OVER (PARTITION BY ch)) + nth AS n FROM x JOIN h USING (ch)
), l AS (
    INSERT INTO log SELECT ch, n, id, data FROM y
), s AS (
    INSERT INTO summary SELECT ch, name, count(*) FROM x GROUP BY ch, name ORDER BY ch, name
    ON CONFLICT (ch, name) DO UPDATE SET n = summary.n + excluded.n
), told AS (
    SELECT pg_notify('bare', string_agg(ch, ',')) FROM h
)
SELECT array_agg(y.n ORDER BY y.at) FROM y, told $$;
"""
_SUMMED = """
CREATE TABLE head (ch text PRIMARY KEY, n bigint, hash bytea) WITH (fillfactor = 50);
CREATE TABLE log (ch text, n bigint, id text, data bytea, before bytea, PRIMARY KEY (ch, n), UNIQUE (ch, id));
CREATE TABLE summary (ch text PRIMARY KEY, data bytea) WITH (fillfactor = 70);
CREATE FUNCTION put(
    chs text[], ns bigint[], ids text[], datas bytea[], befores bytea[],
    heads text[], head_ns bigint[], hashes bytea[], summaries bytea[]
) RETURNS void LANGUAGE sql AS $$
INSERT INTO head SELECT * FROM unnest(heads, head_ns, hashes)
ON CONFLICT (ch) DO UPDATE SET n = excluded.n, hash = excluded.hash;
INSERT INTO log SELECT * FROM unnest(chs, ns, ids, datas, befores);
INSERT INTO summary SELECT * FROM unnest(heads, summaries)
ON CONFLICT (ch) DO UPDATE SET data = excluded.data;
SELECT pg_notify('bare', string_agg(ch, ',')) FROM unnest(heads) AS t (ch) $$;
"""


def _counted() -> Callable[[Sequence[_Job]], Sequence[Any]]:
    return lambda jobs: (
        [job.channel for job in jobs],
        [NAMES[job.at % 5] for job in jobs],
        [f"{job.publisher}:{job.at}" for job in jobs],
        [DATA] * len(jobs),
    )


class _Channel:
    def __init__(self) -> None:
        self.n, self.hash, self.summary = 0, bytes(32), b"{}"

    def add(self, job: _Job) -> tuple[str, int, str, bytes, bytes]:
        name, client = NAMES[job.at % 5], f"client {job.publisher}"
        summary: dict[str, Any] = msgspec.json.decode(self.summary)
        group = summary.setdefault(name, {"total": 0, "clientIds": {}})
        group["total"] += 1
        group["clientIds"][client] = group["clientIds"].get(client, 0) + 1
        self.n, self.summary = self.n + 1, msgspec.json.encode(summary)
        note = {
            "serial": self.n, "type": TYPE, "name": name, "clientId": client, "data": DATA, "encoding": "json"
        }  # fmt: skip
        data = msgspec.json.encode({"annotation": note, "summary": msgspec.Raw(self.summary)})
        before, self.hash = self.hash, sha256(self.hash + data).digest()
        return job.channel, self.n, f"{job.publisher}:{job.at}", data, before


def _summed() -> Callable[[Sequence[_Job]], Sequence[Any]]:
    channels: defaultdict[str, _Channel] = defaultdict(_Channel)

    def put(jobs: Sequence[_Job]) -> Sequence[Any]:
        rows = [channels[job.channel].add(job) for job in jobs]
        heads = sorted({job.channel for job in jobs})
        ends = [channels[name] for name in heads]
        return (
            *zip(*rows, strict=True), heads,
            [end.n for end in ends], [end.hash for end in ends], [end.summary for end in ends],
        )  # fmt: skip

    return put


def at_the_store(server: Postgres) -> None:
    """The table of annotations per second, in comparison."""
    sides = {"citewire": _ours, "counted": _bare(_COUNTED, _counted), "summed": _bare(_SUMMED, _summed)}

    async def measure(dsns: Sequence[str]) -> list[tuple[str, ...]]:
        async with AsyncExitStack() as stack:
            opened = [
                await stack.enter_async_context(side(dsn))
                for side, dsn in zip(sides.values(), dsns, strict=True)
            ]
            rows: list[tuple[str, ...]] = []
            for publishers in PUBLISHERS:
                rounds = [[await each(publishers) for each in opened] for _ in range(ROUNDS)]
                rates = [f"{median(each.rate for each in side):,.0f}" for side in zip(*rounds, strict=True)]
                late = [f"{median(each.p99 for each in side):.1f}" for side in zip(*rounds, strict=True)]
                shares = [
                    f"{median(each[0].rate / each[at].rate for each in rounds):.2f}"
                    for at in range(1, len(sides))
                ]
                rows.append((str(publishers), *rates, *shares, f"≥ {GOAL}", *late))
            return rows

    with ExitStack() as stack:
        rows = uvloop.run(measure([stack.enter_context(server.database()) for _ in sides]))
    head = ("publishers", *sides, "to counted", "to summed", "goal", *(f"p99 ms {name}" for name in sides))
    show("Durable annotations per second on Postgres", head, rows)


def main() -> None:
    with Postgres() as server:
        at_the_store(server)
        through_the_wire(server)
        checked_by_workers(server)


if __name__ == "__main__":
    main()
