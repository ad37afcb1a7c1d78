"""Channels: durable annotations per second, at the store and through the wire; fan-out; large summaries.

At the store we are compared with two bare SQLite loops (see `bench.commits`), which check and hash nothing.
`summed` leaves the same behind: it reads a message's summary, counts, and writes the summary and one row with
the annotation and that summary. `row` keeps one row with a unique id: no annotation, only the floor. For the
rest see `bench.wire`.
"""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from bench.commits import Put, bare, compare, rate, run
from bench.table import show
from bench.wire import fan_out, through_the_wire
from citewire.channels.annotation import AnnotationDraft
from citewire.channels.channels import Channels
from citewire.channels.hub import Hub
from citewire.channels.message import MessageDraft, Publisher
from citewire.channels.sqlite import SqliteStore

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

_CHANNELS = 20
_CROWDS = (10, 1_000, 100_000)
_TYPE = "citations:multiple.v1"
_NAMES = [f"{name}.example" for name in "abcde"]
_TEXT = "The Danube rises in Germany and ends in the Black Sea. " * 20
_DATA = (
    '{"url":"https://rivers.example/danube","title":"Danube facts","startOffset":40,"endOffset":53,'
    '"snippet":"empties into the Black Sea"}'
)

_TABLES = """
CREATE TABLE log (channel INTEGER, n INTEGER, id TEXT, data BLOB, PRIMARY KEY (channel, n)) WITHOUT ROWID;
CREATE UNIQUE INDEX log_id ON log (channel, id);
CREATE TABLE summary (channel INTEGER PRIMARY KEY, data BLOB);
"""
_ROW = "INSERT INTO log VALUES (?, ?, ?, ?)"
_READ = "SELECT data FROM summary WHERE channel = ?"
_WRITE = "INSERT INTO summary VALUES (?, ?) ON CONFLICT DO UPDATE SET data = excluded.data"


def _row() -> Put:
    numbers = count()
    return lambda db, writer, at: db.execute(
        _ROW, ((writer + at) % _CHANNELS, next(numbers), f"{writer}:{at}", _DATA)
    )


def _summed() -> Put:
    numbers = count()

    def put(db: sqlite3.Connection, writer: int, at: int) -> None:
        channel, n, name, client = (
            (writer + at) % _CHANNELS,
            next(numbers),
            _NAMES[at % 5],
            f"client {writer}",
        )
        (before,) = db.execute(_READ, (channel,)).fetchone() or (b"{}",)
        summary: dict[str, Any] = msgspec.json.decode(before)
        group = summary.setdefault(name, {"total": 0, "clientIds": {}})
        group["total"] += 1
        group["clientIds"][client] = group["clientIds"].get(client, 0) + 1
        note = {
            "serial": n,
            "type": _TYPE,
            "name": name,
            "clientId": client,
            "data": _DATA,
            "encoding": "json",
        }
        data = msgspec.json.encode({"annotation": note, "summary": summary})
        db.execute(_WRITE, (channel, msgspec.json.encode(summary)))
        db.execute(_ROW, (channel, n, f"{writer}:{at}", data))

    return put


@asynccontextmanager
async def _answers(folder: Path) -> AsyncGenerator[tuple[Channels, list[str]]]:
    """Channels with a message in each."""
    store = SqliteStore(folder)
    channels, serials = Channels(store, Hub(store)), list[str]()
    for at in range(_CHANNELS):
        serials += await channels.publish(
            f"ai:{at}", Publisher(), [MessageDraft(name="response", data=_TEXT)]
        )
    try:
        yield channels, serials
    finally:
        await store.close()


async def _ours(folder: Path, writers: int) -> float:
    async with _answers(folder) as (channels, serials):

        async def annotate(writer: int, at: int) -> None:
            channel = (writer + at) % _CHANNELS
            name, serial = _NAMES[at % len(_NAMES)], serials[channel]
            note = AnnotationDraft(message_serial=serial, type=_TYPE, name=name, data=_DATA, encoding="json")
            await channels.annotate(f"ai:{channel}", Publisher(client_id=f"client {writer}"), [note])

        return await rate(annotate, writers)


async def _crowded(folder: Path, crowd: int) -> float:
    """Annotations per second on one message that as many clients have annotated already."""
    async with _answers(folder) as (channels, [serial, *_]):

        async def annotate(client: int, at: int) -> None:
            note = AnnotationDraft(
                message_serial=serial, type=_TYPE, name="a.example", data=_DATA, encoding="json"
            )
            await channels.annotate("ai:0", Publisher(client_id=f"client {client} {at}"), [note])

        for start in range(0, crowd, 500):
            await asyncio.gather(*(annotate(start + client, 0) for client in range(min(500, crowd - start))))
        return await rate(lambda writer, at: annotate(writer, at + 1), 100)


def main() -> None:
    compare(
        "Durable annotations per second",
        _ours,
        {"summed": bare(_TABLES, _summed), "row": bare(_TABLES, _row)},
    )
    crowds = [(f"{crowd:,}", f"{run(_crowded, crowd):,.0f}") for crowd in _CROWDS]
    show("Annotations per second on one message", ("clients before", "citewire"), crowds)
    through_the_wire()
    fan_out()


if __name__ == "__main__":
    main()
