"""Read the whole SQLite file of a data folder as rows of the Postgres tables, and verify its hash chains."""

from __future__ import annotations

import sqlite3
from collections.abc import Generator, Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, TypeAlias

from citewire.channels.sqlite_log import connect_readonly
from citewire.channels.store import ChainLink, StoreError, first_hash, row_hash
from citewire.text import one_line

__all__ = ["TableRow", "has_same_ends", "read_tables"]

TableRow: TypeAlias = tuple[str, tuple[Any, ...]]
"""A table, and the values of a row in it."""

_CHANNELS = "SELECT no, name, epoch, floor, floor_tick, floor_hash FROM channel ORDER BY no"
_ROWS = "SELECT n, tick, id, kind, data, before FROM log WHERE channel = ? ORDER BY n"
_ERASED = "SELECT no, at, name, epoch, floor, floor_tick, floor_hash, n, tick, hash FROM erased ORDER BY no"
_LINKS = "SELECT n, tick, kind, content, before FROM link WHERE erased = ? ORDER BY n"
_SLOTS = "SELECT channel, key, value FROM slot ORDER BY channel, key"
_ENDS = """
SELECT name, epoch, coalesce((SELECT max(n) FROM log WHERE log.channel = channel.no), floor) FROM channel
"""


def read_tables(folder: Path) -> Iterator[TableRow]:
    """Yield all rows, each channel after its log rows. Raises `StoreError`, also for a broken hash chain."""
    with _opened(folder) as db:
        # A row without a channel would otherwise be skipped silently.
        for table, *_ in db.execute("PRAGMA foreign_key_check"):
            raise _damaged(f"the table {table}")
        yield from _channels(db)
        for slot in db.execute(_SLOTS):
            yield "slot", slot
        yield from _erased(db)


def has_same_ends(folder: Path, ends: Iterable[tuple[str, str, int]]) -> bool:
    """Tell whether these are the names, epochs and last row numbers of all channels. Reads no rows: fast."""
    with _opened(folder) as db:
        return set(ends) == set(db.execute(_ENDS))


@contextmanager
def _opened(folder: Path) -> Generator[sqlite3.Connection]:
    try:
        with closing(connect_readonly(folder / "log.sqlite")) as db:
            yield db
    except sqlite3.Error as error:
        raise StoreError("cannot read the store", detail=error) from error


def _channels(db: sqlite3.Connection) -> Iterator[TableRow]:
    for no, name, epoch, floor, floor_tick, floor_hash in db.execute(_CHANNELS):
        n, tick, end = floor, floor_tick, floor_hash
        if not floor and floor_hash != first_hash(name, epoch):
            raise _damaged(name)
        for row in db.execute(_ROWS, (no,)):
            if row[0] != n + 1 or row[5] != end:
                raise _damaged(name, n + 1)
            n, tick, end = row[0], row[1], row_hash(*row)
            yield "log", (no, *row)
        yield "channel", (no, name, epoch, n, n, tick, end, floor, floor_tick, floor_hash)


def _erased(db: sqlite3.Connection) -> Iterator[TableRow]:
    for erased in db.execute(_ERASED):
        no, _, name, _, n, _, end, last, _, last_hash = erased
        yield "erased", erased
        for values in db.execute(_LINKS, (no,)):
            link = ChainLink(*values)
            if link.n != n + 1 or link.before != end:
                raise _damaged(name, n + 1)
            n, end = link.n, link.hash
            yield "link", (no, *values)
        if (n, end) != (last, last_hash):
            raise _damaged(name, n)


def _damaged(name: str, n: int | None = None) -> StoreError:
    row = f" at row {n}" if n else ""
    return StoreError(f"the log is damaged: {one_line(name, 200)}{row} is not as it was written")
