"""Where several nodes on one Postgres come to an end, and what a million annotations cost.

A node here is the real store and hub over a real Postgres, without sockets: what is found is the most that a
server could reach. `python -m bench.scale --seconds 10 --nodes 1 2 4 8 --channels 1000 100000` takes longer.

Costs: publishers annotate as fast as they are acknowledged. One of three numbers grows at a time; channels
are divided among the nodes, except where they are shared: there all nodes write to all of them.

Load: so many annotations a second are offered, whether or not the last ones were acknowledged, and twice as
many in each step, until less than nine tenths are done in time. What one node writes, another one follows.
`ms` count from when an annotation was due. Publishers, nodes and Postgres share the cores of this machine.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from collections.abc import AsyncGenerator, Awaitable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import asynccontextmanager
from itertools import count
from multiprocessing import get_context
from multiprocessing.synchronize import Barrier
from pathlib import Path
from statistics import median
from time import perf_counter, process_time
from typing import Any, NamedTuple

import asyncpg
import uvloop

from bench.annotating import Annotate, annotator, answers, p99
from bench.table import show
from bench.verify import ROOT
from citewire.channels.channels import Channels
from citewire.channels.hub import Hub
from citewire.channels.postgres import PostgresStore
from citewire.channels.store import Cursor

sys.path.append(str(ROOT / "tests"))
from support.postgres import Postgres  # a real one, for the time of a block
from support.server_process import descendants

# What does not grow while something else does.
CHANNELS, PUBLISHERS = 1000, 100
# Annotations a second in the first step, the share to be done in time, and the channels, which are followed.
FIRST, KEPT, FOLLOWED = 500, 0.9, 100
# Seconds for those who follow, before and after; and after which something has gone wrong.
SETTLE, PATIENCE = 0.5, 300


class Part(NamedTuple):
    """What one process does: the channels that it writes to, with a message in each, and those it follows.

    It has so many `nodes`, among whom the channels and publishers are divided. With `per_second` that is
    offered in place of what so many publishers do.
    """

    dsn: str
    seconds: float
    names: Sequence[str] = ()
    serials: Sequence[str] = ()
    followed: Sequence[str] = ()
    nodes: int = 1
    publishers: int = 0
    per_second: float = 0


class Found(NamedTuple):
    """By serial, when annotations were due, acknowledged and told, by one clock; and CPU seconds."""

    due: dict[str, float]
    acked: dict[str, float]
    told: dict[str, float]
    cpu: float


# --- a process with nodes ---------------------------------------------------------------------------------

_barriers: list[Barrier] = []
"""Where all processes meet."""


def _join(barrier: Barrier) -> None:
    _barriers.append(barrier)


async def _meet(barrier: Barrier) -> None:
    await asyncio.to_thread(barrier.wait, PATIENCE)


class _Node:
    def __init__(self, store: PostgresStore, found: Found) -> None:
        self.store, self._found = store, found
        self._hub = Hub(store)
        self.channels = Channels(store, self._hub)

    async def follow(self, name: str, after: Cursor | None) -> None:
        async for rows in self.channels.follow(name, after):
            now = perf_counter()
            self._found.told.update((row.serial, now) for row in rows)

    async def press(self, annotate: Annotate, publishers: int, seconds: float) -> None:
        """Have publishers annotate, each waiting for one to be acknowledged before it sends the next."""
        end = perf_counter() + seconds

        async def publish(publisher: int) -> None:
            at = 0
            while (due := perf_counter()) < end:
                await self._annotate(annotate(publisher, at), due)
                at += 1

        await asyncio.gather(*map(publish, range(publishers)))

    async def offer(self, annotate: Annotate, per_second: float, seconds: float) -> None:
        """Annotate at times that are set, and wait for all, but not for ever."""
        start, under_way = perf_counter(), list[asyncio.Task[None]]()
        for at in range(int(per_second * seconds)):
            due = start + at / per_second
            await asyncio.sleep(due - perf_counter())
            under_way.append(asyncio.create_task(self._annotate(annotate(at % PUBLISHERS, at), due)))
        _, late = await asyncio.wait(under_way, timeout=seconds)
        for task in late:
            task.cancel()

    async def _annotate(self, annotation: Awaitable[str], due: float) -> None:
        serial = await annotation
        self._found.due[serial], self._found.acked[serial] = due, perf_counter()


async def _act(part: Part) -> Found:
    found = Found({}, {}, {}, 0.0)
    nodes = [_Node(await PostgresStore.open(part.dsn), found) for _ in range(part.nodes)]
    heads = await asyncio.gather(*map(nodes[0].channels.head, part.followed))
    following = [
        asyncio.create_task(nodes[0].follow(name, head and head.cursor))
        for name, head in zip(part.followed, heads, strict=True)
    ]
    await asyncio.sleep(SETTLE)  # until they are at the end of what is there
    await _meet(_barriers[0])
    cpu, work = process_time(), list[Awaitable[None]]()
    for at, node in enumerate(nodes if part.names else ()):
        annotate = annotator(node.channels, part.names[at :: part.nodes], part.serials[at :: part.nodes])
        if part.per_second:
            work.append(node.offer(annotate, part.per_second / part.nodes, part.seconds))
        else:
            work.append(node.press(annotate, part.publishers // part.nodes, part.seconds))
    await asyncio.gather(*work)
    await _meet(_barriers[0])  # until all have written, so that what they wrote is followed
    await asyncio.sleep(SETTLE)
    spent = process_time() - cpu
    for task in following:
        task.cancel()
    await asyncio.gather(*following, return_exceptions=True)
    for node in nodes:
        await node.store.close()
    return found._replace(cpu=spent)


def act(part: Part) -> Found:
    """Do a part, at the same time as all others."""
    return uvloop.run(_act(part))


# --- all of them ------------------------------------------------------------------------------------------


class Total(NamedTuple):
    """All that was found, and what it cost: CPU seconds, bytes and notifications."""

    found: list[Found]
    postgres: float
    wal: int
    disk: int
    notified: int

    @property
    def rate(self) -> float:
        """Acknowledged per second."""
        due, acked = self._times("due"), self._times("acked")
        return len(acked) / (max(acked.values()) - min(due.values()))

    def lags(self, what: str) -> list[float]:
        """Seconds from when an annotation was due until it was acknowledged, or told."""
        due = self._times("due")
        return [at - due[serial] for serial, at in self._times(what).items() if serial in due]

    def _times(self, what: str) -> dict[str, float]:
        return {serial: at for each in self.found for serial, at in getattr(each, what).items()}


class Cluster:
    """A database, in which things are tried, and the server that it is on."""

    def __init__(self, dsn: str, db: asyncpg.Connection[Any], server: int) -> None:
        self.dsn, self._db, self._server = dsn, db, server
        self._turns, self._heard = count(), 0

    @classmethod
    @asynccontextmanager
    async def at(cls, dsn: str) -> AsyncGenerator[Cluster]:
        """The cluster at this address."""
        db = await asyncpg.connect(dsn)
        server = await db.fetchval("SELECT split_part(pg_read_file('postmaster.pid'), E'\\n', 1)::int")
        cluster = cls(dsn, db, server)
        try:
            await db.add_listener("citewire", cluster._hear)
            yield cluster
        finally:
            await db.close()

    def _hear(self, *_: object) -> None:
        self._heard += 1

    async def made(self, channels: int) -> tuple[list[str], list[str]]:
        """The names of so many new channels, and the serials of a message in each."""
        turn, store = next(self._turns), await PostgresStore.open(self.dsn)
        try:
            names = [f"ai:{turn}:{at}" for at in range(channels)]
            serials: list[str] = []
            for some in range(0, channels, 500):
                serials += await answers(Channels(store, Hub(store)), names[some : some + 500])
        finally:
            await store.close()
        return names, serials

    async def run(self, parts: Sequence[Part]) -> Total:
        """Have each part done by a process of its own, all at the same time."""
        context = get_context("spawn")
        barrier, loop = context.Barrier(len(parts) + 1), asyncio.get_running_loop()
        with ProcessPoolExecutor(len(parts), context, _join, (barrier,)) as pool:
            spending = asyncio.create_task(self._between(barrier))
            found = await asyncio.gather(*(loop.run_in_executor(pool, act, part) for part in parts))
            return Total(found, *await spending)

    async def _between(self, barrier: Barrier) -> tuple[float, int, int, int]:
        """What is spent from when all begin until all have written."""
        await _meet(barrier)
        cpu, wal, disk, heard = await self._spent()
        await _meet(barrier)
        after = await self._spent()
        return after[0] - cpu, after[1] - wal, after[2] - disk, after[3] - heard

    async def _spent(self) -> tuple[float, int, int, int]:
        wal: int = await self._db.fetchval("SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::bigint")
        disk: int = await self._db.fetchval("SELECT pg_database_size(current_database())")
        return _cpu(self._server), wal, disk, self._heard


def _cpu(pid: int) -> float:
    """The CPU seconds of a process, of all that it has started, and of those of them that have ended."""
    ticks = 0
    for each in (pid, *descendants(pid)):
        fields = Path(f"/proc/{each}/stat").read_text().rpartition(")")[2].split()
        ticks += sum(map(int, fields[11 : 15 if each == pid else 13]))
    return ticks / os.sysconf("SC_CLK_TCK")


# --- what is tried ----------------------------------------------------------------------------------------


async def _cost(
    cluster: Cluster, seconds: float, channels: int, publishers: int, processes: int, how: str = ""
) -> tuple[str, ...]:
    """A line of the table of costs."""
    names, serials = await cluster.made(channels)
    part = Part(cluster.dsn, seconds, names, serials, publishers=publishers // processes)
    if how == "in one process":
        parts = [part._replace(nodes=processes, publishers=publishers)]
    elif how == "shared":
        parts = [part] * processes
    else:
        parts = [
            part._replace(names=names[at::processes], serials=serials[at::processes])
            for at in range(processes)
        ]
    total = await cluster.run(parts)
    lags = total.lags("acked")
    per = 1e6 / len(lags)
    return (
        f"{channels:,}", f"{publishers:,}", f"{processes} {how}".strip(), f"{total.rate:,.0f}",
        f"{p99(lags):.0f}", f"{per * sum(each.cpu for each in total.found):,.0f}",
        f"{per * total.postgres:,.0f}", f"{per * total.wal / 1e9:.2f}", f"{per * total.disk / 1e9:.2f}",
        f"{per * total.notified:,.0f}",
    )  # fmt: skip


async def costs(cluster: Cluster, options: argparse.Namespace) -> None:
    """The table of what grows, and what it costs."""
    tried: dict[tuple[int, int, int, str], None] = {
        **dict.fromkeys((channels, PUBLISHERS, 1, "") for channels in options.channels),
        **dict.fromkeys((CHANNELS, publishers, 1, "") for publishers in options.publishers),
        **dict.fromkeys((CHANNELS, PUBLISHERS, nodes, "") for nodes in options.nodes),
        (CHANNELS, PUBLISHERS, 2, "in one process"): None,
        (CHANNELS, PUBLISHERS, 2, "shared"): None,
    }
    rows = [await _cost(cluster, options.seconds, *each) for each in tried]
    head = (
        "channels", "publishers", "nodes", "per second", "p99 ms", "node CPU s", "Postgres CPU s", "GB WAL",
        "GB disk", "NOTIFYs",
    )  # fmt: skip
    show("Annotations as fast as they are acknowledged, and the cost of a million", head, rows)


async def _offered(cluster: Cluster, seconds: float, nodes: int, per_second: float) -> tuple[float, Total]:
    """The share that was done in time, with what was found. Who writes alone has a node that only watches."""
    names, serials = await cluster.made(FOLLOWED)
    parts = [
        Part(cluster.dsn, seconds, names[at::nodes], serials[at::nodes], per_second=per_second / nodes)
        for at in range(nodes)
    ]
    if nodes == 1:
        parts.append(Part(cluster.dsn, seconds))
    parts = [part._replace(followed=parts[at - 1].names) for at, part in enumerate(parts)]
    total = await cluster.run(parts)
    lags = total.lags("acked")
    return sum(lag < 1 for lag in lags) / (per_second * seconds), total


async def loads(cluster: Cluster, options: argparse.Namespace) -> None:
    """The table of what is offered, with the knee of each number of nodes at its end."""
    rows: list[tuple[str, ...]] = []
    for nodes in options.nodes:
        for per_second in _doubled(options.most):
            share, total = await _offered(cluster, options.seconds, nodes, per_second)
            acked, told = total.lags("acked"), total.lags("told")
            cpus = max(each.cpu for each in total.found), total.postgres
            lags = (f"{each:.0f}" for some in (acked, told) for each in (median(some) * 1000, p99(some)))
            shares = (f"{cpu / options.seconds:.0%}" for cpu in cpus)
            rows.append((str(nodes), f"{per_second:,}", f"{share:.0%}", *lags, *shares))
            if share < KEPT:
                break
    head = (
        "nodes", "offered", "within 1 s", "p50 ms to ACK", "p99", "p50 ms to another node", "p99",
        "CPU of a node", "of Postgres",
    )  # fmt: skip
    show(f"Annotations per second offered over {FOLLOWED} channels, up to the knee", head, rows)


def _doubled(most: int) -> Iterator[int]:
    per_second = FIRST
    while per_second <= most:
        yield per_second
        per_second *= 2


async def _main(dsn: str, options: argparse.Namespace) -> None:
    async with Cluster.at(dsn) as cluster:
        await costs(cluster, options)
        await loads(cluster, options)


def main(arguments: Sequence[str] = ()) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=2.0, help="for each line")
    parser.add_argument("--channels", type=int, nargs="+", default=[20, 1000, 10_000])
    parser.add_argument("--publishers", type=int, nargs="+", default=[10, 1000])
    parser.add_argument("--nodes", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--most", type=int, default=16_000, help="annotations a second to offer")
    options = parser.parse_args(arguments)
    with Postgres() as server, server.database() as dsn:
        asyncio.run(_main(dsn, options))


if __name__ == "__main__":
    main(sys.argv[1:])
