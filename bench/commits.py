"""Writers at a store of ours, and at a bare SQLite loop that does the least that could be called durable.

The loop is one thread with one connection: what is queued goes into one transaction (WAL, synchronous=FULL)
and is acknowledged after it. Rounds alternate between all that is compared, so that a slow moment of the disk
hits all alike, and ratios are taken round by round.
"""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from queue import Empty, SimpleQueue
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter

from bench.table import show

WRITERS, ROUNDS, SECONDS = (1, 10, 100), 7, 0.7
GOAL = 0.8

Write = Callable[[int, int], Awaitable[object]]
"""What a writer does, by its number and how often it did."""
Put = Callable[[sqlite3.Connection, int, int], object]
"""The same for the bare loop, within a transaction."""
Measure = Callable[[Path, int], Awaitable[float]]
"""Per second, in an empty folder, with so many writers."""
_Job = tuple[int, int, asyncio.Future[None]]


class _Bare:
    def __init__(self, folder: Path, tables: str, put: Put) -> None:
        self._loop, self._put = asyncio.get_running_loop(), put
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._db = sqlite3.connect(folder / "bare.sqlite", isolation_level=None, check_same_thread=False)
        self._db.executescript(f"PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; {tables}")
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    async def write(self, writer: int, at: int) -> None:
        future: asyncio.Future[None] = self._loop.create_future()
        self._jobs.put((writer, at, future))
        await future

    def close(self) -> None:
        self._jobs.put(None)
        self._thread.join()
        self._db.close()

    def _run(self) -> None:
        while job := self._jobs.get():
            group = [job]
            try:
                while more := self._jobs.get_nowait():
                    group.append(more)
            except Empty:
                pass
            self._db.execute("BEGIN IMMEDIATE")
            for writer, at, _ in group:
                self._put(self._db, writer, at)
            self._db.execute("COMMIT")
            self._loop.call_soon_threadsafe(_settle, [future for *_, future in group])


def _settle(futures: list[asyncio.Future[None]]) -> None:
    for future in futures:
        future.set_result(None)


async def rate(write: Write, writers: int) -> float:
    """What is acknowledged per second, each writer waiting for one before it sends the next."""
    start = perf_counter()

    async def work(writer: int) -> int:
        at = 0
        while perf_counter() - start < SECONDS:
            await write(writer, at)
            at += 1
        return at

    done = sum(await asyncio.gather(*map(work, range(writers))))
    return done / (perf_counter() - start)


def bare(tables: str, put: Callable[[], Put]) -> Measure:
    """The bare loop over these tables; `put` is made anew for each run."""

    async def measure(folder: Path, writers: int) -> float:
        loop = _Bare(folder, tables, put())
        try:
            return await rate(loop.write, writers)
        finally:
            loop.close()

    return measure


def run(measure: Measure, writers: int) -> float:
    """One measurement, in a folder and a loop of its own."""

    async def main(folder: str) -> float:
        return await measure(Path(folder), writers)

    with TemporaryDirectory() as folder:
        return asyncio.run(main(folder))


def compare(title: str, ours: Measure, others: dict[str, Measure]) -> None:
    """A table of what they do per second, and our share of what each of the others does."""
    rows: list[tuple[str, ...]] = []
    for writers in WRITERS:
        rounds = [[run(each, writers) for each in (ours, *others.values())] for _ in range(ROUNDS)]
        rates = [f"{median(each):,.0f}" for each in zip(*rounds, strict=True)]
        shares = [median(each[0] / each[at] for each in rounds) for at in range(1, len(others) + 1)]
        rows.append((str(writers), *rates, *(f"{share:.2f}" for share in shares), f"≥ {GOAL}"))
    show(title, ("writers", "citewire", *others, *(f"to {name}" for name in others), "goal"), rows)
