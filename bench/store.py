"""Durable appends per second with 1, 10 and 100 writers, as a ratio to a bare SQLite group-commit loop.

The bare loop gives each row a number from a dict, and one INSERT with a unique id. No hash, no serial, no
head, no lock, no limit, no value made.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from pathlib import Path

from bench.commits import Put, bare, compare, rate
from citewire.channels.sqlite import SqliteStore
from citewire.channels.store import Entry

_CHANNELS = 20
_DATA = b"x" * 280
_TABLES = """
CREATE TABLE log (channel TEXT, n INTEGER, id TEXT, data BLOB, PRIMARY KEY (channel, n)) WITHOUT ROWID;
CREATE UNIQUE INDEX log_id ON log (channel, id);
"""


def _channel(writer: int, at: int) -> str:
    return f"ai:{(writer + at) % _CHANNELS}"


async def _ours(folder: Path, writers: int) -> float:
    store = SqliteStore(folder)
    try:
        return await rate(
            lambda writer, at: store.append(_channel(writer, at), [Entry(f"{writer}:{at}", "event", _DATA)]),
            writers,
        )
    finally:
        await store.close()


def _row() -> Put:
    heads: Counter[str] = Counter()

    def put(db: sqlite3.Connection, writer: int, at: int) -> None:
        channel = _channel(writer, at)
        heads[channel] += 1
        db.execute("INSERT INTO log VALUES (?, ?, ?, ?)", (channel, heads[channel], f"{writer}:{at}", _DATA))

    return put


def main() -> None:
    compare("Durable appends per second", _ours, {"bare": bare(_TABLES, _row)})


if __name__ == "__main__":
    main()
