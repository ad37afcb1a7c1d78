"""Durable annotations per second with 1, 10 and 100 publishers, and what one costs on a busy message.

Compared with two bare SQLite group-commit loops, both WAL and synchronous=FULL, which check and hash nothing.
`summed` leaves the same behind: it reads a message's summary, counts, and writes the summary and one row with
the annotation and that summary. `row` keeps one row with a unique id: no annotation, only the floor. Rounds
alternate, so that a slow moment of the disk hits all, and ratios are taken round by round.
"""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from queue import Empty, SimpleQueue
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import TYPE_CHECKING, Any

import msgspec

from bench.table import show
from citewire.channels.annotation import Note
from citewire.channels.channels import Channels
from citewire.channels.hub import Hub
from citewire.channels.message import Draft, Who
from citewire.channels.sqlite import SqliteStore

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

_CHANNELS = 20
_ROUNDS = 7
_SECONDS = 0.7
_GOAL = 0.8
_CROWDS = (10, 1_000, 100_000)
_TYPE = "citations:multiple.v1"
_NAMES = [f"{name}.example" for name in "abcde"]
_TEXT = "The Danube rises in Germany and ends in the Black Sea. " * 20
_DATA = (
    '{"url":"https://rivers.example/danube","title":"Danube facts","startOffset":40,"endOffset":53,'
    '"snippet":"empties into the Black Sea"}'
)

Annotate = Callable[[int, int], Awaitable[object]]
_Job = tuple[int, int, asyncio.Future[None]]

_TABLES = """
PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;
CREATE TABLE log (channel INTEGER, n INTEGER, id TEXT, data TEXT, PRIMARY KEY (channel, n)) WITHOUT ROWID;
CREATE UNIQUE INDEX log_id ON log (channel, id);
CREATE TABLE summary (channel INTEGER PRIMARY KEY, data TEXT);
"""
_ROW = "INSERT INTO log VALUES (?, ?, ?, ?)"
_READ = "SELECT data FROM summary WHERE channel = ?"
_WRITE = "INSERT INTO summary VALUES (?, ?) ON CONFLICT DO UPDATE SET data = excluded.data"


class _Bare:
    """The loops we are compared with."""

    def __init__(self, folder: Path, summed: bool) -> None:
        self._summed = summed
        self._loop = asyncio.get_running_loop()
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._db = sqlite3.connect(folder / "bare.sqlite", isolation_level=None, check_same_thread=False)
        self._db.executescript(_TABLES)
        self._numbers = count()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    async def annotate(self, writer: int, at: int) -> None:
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
                self._write(writer, at)
            self._db.execute("COMMIT")
            self._loop.call_soon_threadsafe(_settle, [future for *_, future in group])

    def _write(self, writer: int, at: int) -> None:
        channel, data = (writer + at) % _CHANNELS, _DATA
        if self._summed:
            (before,) = self._db.execute(_READ, (channel,)).fetchone() or ("{}",)
            summary = _counted(before, _NAMES[at % len(_NAMES)], f"client {writer}")
            data += summary
            self._db.execute(_WRITE, (channel, summary))
        self._db.execute(_ROW, (channel, next(self._numbers), f"{writer}:{at}", data))


def _counted(before: str, name: str, client: str) -> str:
    summary: dict[str, Any] = msgspec.json.decode(before)
    group = summary.setdefault(name, {"total": 0, "clientIds": {}})
    group["total"] += 1
    group["clientIds"][client] = group["clientIds"].get(client, 0) + 1
    return msgspec.json.encode(summary).decode()


def _settle(futures: list[asyncio.Future[None]]) -> None:
    for future in futures:
        future.set_result(None)


async def _rate(annotate: Annotate, writers: int) -> float:
    """Acknowledged annotations per second, each publisher waiting for one before it sends the next."""
    start = perf_counter()

    async def write(writer: int) -> int:
        at = 0
        while perf_counter() - start < _SECONDS:
            await annotate(writer, at)
            at += 1
        return at

    done = sum(await asyncio.gather(*map(write, range(writers))))
    return done / (perf_counter() - start)


@asynccontextmanager
async def _answers(folder: Path) -> AsyncGenerator[tuple[Channels, list[str]]]:
    """Channels with a message in each."""
    store = SqliteStore(folder)
    channels, serials = Channels(store, Hub(store)), list[str]()
    for at in range(_CHANNELS):
        serials += await channels.publish(f"ai:{at}", Who(), [Draft(name="response", data=_TEXT)])
    try:
        yield channels, serials
    finally:
        await store.close()


async def _ours(folder: Path, writers: int) -> float:
    async with _answers(folder) as (channels, serials):

        async def annotate(writer: int, at: int) -> None:
            where, name = (writer + at) % _CHANNELS, _NAMES[at % len(_NAMES)]
            note = Note(message_serial=serials[where], type=_TYPE, name=name, data=_DATA, encoding="json")
            await channels.annotate(f"ai:{where}", Who(client_id=f"client {writer}"), [note])

        return await _rate(annotate, writers)


async def _bare(folder: Path, writers: int, summed: bool) -> float:
    bare = _Bare(folder, summed)
    try:
        return await _rate(bare.annotate, writers)
    finally:
        bare.close()


def _run(measure: Callable[[Path], Awaitable[float]]) -> float:
    async def run(folder: str) -> float:
        return await measure(Path(folder))

    with TemporaryDirectory() as folder:
        return asyncio.run(run(folder))


def _round(writers: int) -> tuple[float, float, float]:
    return (
        _run(lambda folder: _ours(folder, writers)),
        _run(lambda folder: _bare(folder, writers, summed=True)),
        _run(lambda folder: _bare(folder, writers, summed=False)),
    )


async def _crowded(folder: Path, crowd: int) -> float:
    """Annotations per second on one message that as many clients have annotated already."""
    async with _answers(folder) as (channels, [serial, *_]):

        async def annotate(client: int, at: int) -> None:
            note = Note(message_serial=serial, type=_TYPE, name="a.example", data=_DATA, encoding="json")
            await channels.annotate("ai:0", Who(client_id=f"client {client} {at}"), [note])

        for start in range(0, crowd, 500):
            await asyncio.gather(*(annotate(start + client, 0) for client in range(min(500, crowd - start))))
        return await _rate(lambda writer, at: annotate(writer, at + 1), 100)


def main() -> None:
    rows: list[tuple[str, ...]] = []
    for writers in (1, 10, 100):
        rounds = [_round(writers) for _ in range(_ROUNDS)]
        ours, summed, row = (median(rates) for rates in zip(*rounds, strict=True))
        shares = [median(mine / theirs for mine, theirs in pairs) for pairs in _pairs(rounds)]
        rates = (f"{rate:,.0f}" for rate in (ours, summed, row))
        rows.append((str(writers), *rates, *(f"{share:.2f}" for share in shares), f"≥ {_GOAL}"))
    head = ("publishers", "citewire", "summed", "row", "to summed", "to row", "goal")
    show("Durable annotations per second", head, rows)
    crowds = [(f"{crowd:,}", f"{_run(lambda folder: _crowded(folder, crowd)):,.0f}") for crowd in _CROWDS]  # noqa: B023
    show("Annotations per second on one message", ("clients before", "citewire"), crowds)


def _pairs(rounds: list[tuple[float, float, float]]) -> list[list[tuple[float, float]]]:
    return [[(each[0], each[other]) for each in rounds] for other in (1, 2)]


if __name__ == "__main__":
    main()
