"""Durable appends per second with 1, 10 and 100 writers, as a ratio to a bare SQLite group-commit loop.

The bare loop does the least that could be called durable: one thread, what is queued in one transaction, a
number from a dict, one INSERT with a unique id, WAL and synchronous=FULL. No hash, no serial, no head, no
lock, no limit, no value made. Rounds alternate between the two, so that a slow moment of the disk hits both,
and the ratio is taken round by round.
"""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from queue import Empty, SimpleQueue
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter

from bench.table import show
from citewire.channels.sqlite import SqliteStore
from citewire.channels.store import Entry

_CHANNELS = 20
_DATA = b"x" * 280
_ROUNDS = 7
_SECONDS = 0.7
_GOAL = 0.8

Append = Callable[[str, str], Awaitable[object]]
_Job = tuple[str, str, asyncio.Future[int]]


class _Bare:
    """The loop we are compared with."""

    def __init__(self, folder: Path) -> None:
        self._loop = asyncio.get_running_loop()
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._db = sqlite3.connect(folder / "bare.sqlite", isolation_level=None, check_same_thread=False)
        self._db.executescript(
            "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;"
            "CREATE TABLE log (channel TEXT, n INTEGER, id TEXT, data BLOB,"
            " PRIMARY KEY (channel, n)) WITHOUT ROWID;"
            "CREATE UNIQUE INDEX log_id ON log (channel, id);"
        )
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    async def append(self, channel: str, name: str) -> int:
        future: asyncio.Future[int] = self._loop.create_future()
        self._jobs.put((channel, name, future))
        return await future

    def close(self) -> None:
        self._jobs.put(None)
        self._thread.join()
        self._db.close()

    def _run(self) -> None:
        heads: Counter[str] = Counter()
        while job := self._jobs.get():
            group, done = [job], list[tuple[asyncio.Future[int], int]]()
            try:
                while more := self._jobs.get_nowait():
                    group.append(more)
            except Empty:
                pass
            self._db.execute("BEGIN IMMEDIATE")
            for channel, name, future in group:
                heads[channel] += 1
                self._db.execute(
                    "INSERT INTO log VALUES (?, ?, ?, ?)", (channel, heads[channel], name, _DATA)
                )
                done.append((future, heads[channel]))
            self._db.execute("COMMIT")
            self._loop.call_soon_threadsafe(_settle, done)


def _settle(done: list[tuple[asyncio.Future[int], int]]) -> None:
    for future, n in done:
        future.set_result(n)


async def _rate(append: Append, writers: int) -> float:
    """Acknowledged appends per second, each writer waiting for one before it sends the next."""
    start = perf_counter()

    async def write(writer: int) -> int:
        count = 0
        while perf_counter() - start < _SECONDS:
            await append(f"ai:{(writer + count) % _CHANNELS}", f"{writer}:{count}")
            count += 1
        return count

    done = sum(await asyncio.gather(*map(write, range(writers))))
    return done / (perf_counter() - start)


async def _ours(folder: Path, writers: int) -> float:
    store = SqliteStore(folder)
    try:
        return await _rate(
            lambda channel, name: store.append(channel, [Entry(name, "event", _DATA)]), writers
        )
    finally:
        await store.close()


async def _bare(folder: Path, writers: int) -> float:
    bare = _Bare(folder)
    try:
        return await _rate(bare.append, writers)
    finally:
        bare.close()


def _run(measure: Callable[[Path, int], Awaitable[float]], writers: int) -> float:
    async def run(folder: str) -> float:
        return await measure(Path(folder), writers)

    with TemporaryDirectory() as folder:
        return asyncio.run(run(folder))


def main() -> None:
    rows: list[tuple[str, ...]] = []
    for writers in (1, 10, 100):
        pairs = [(_run(_ours, writers), _run(_bare, writers)) for _ in range(_ROUNDS)]
        ours, bare = (median(rates) for rates in zip(*pairs, strict=True))
        share = median(ours / bare for ours, bare in pairs)
        rows.append((str(writers), f"{ours:,.0f}", f"{bare:,.0f}", f"{share:.2f}", f"≥ {_GOAL}"))
    show("Durable appends per second", ("writers", "citewire", "bare SQLite", "ratio", "goal"), rows)


if __name__ == "__main__":
    main()
