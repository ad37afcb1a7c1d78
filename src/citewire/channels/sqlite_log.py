"""The read operations on the SQLite file of a data folder, for its one writer and for other processes.

A read-only connection never does a checkpoint: that is left to the writer, see `sqlite`.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import AsyncGenerator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import partial
from itertools import islice, starmap, takewhile
from pathlib import Path
from typing import TypeVar

from citewire.channels import sqlite_slots
from citewire.channels.snapshot_deadline import deadline
from citewire.channels.store import (
    Chain,
    ChainLink,
    Cursor,
    ErasedChannel,
    Extent,
    Head,
    Row,
    Slot,
    StoreError,
)
from citewire.channels.store_rules import (
    check_cursor,
    check_name,
    check_prefix,
    check_span,
    clamp_limit,
    cursor_at,
    head_at,
    load_migrations,
    take_page,
)

_T = TypeVar("_T")

# The head of a channel is its last row, or its floor when it has none.
_HEAD = """
SELECT no, epoch, floor, floor_tick, floor_hash, n, tick, id, kind, data, before
FROM channel LEFT JOIN log ON log.channel = channel.no WHERE name = ? ORDER BY n DESC LIMIT 1
"""
_END = """
SELECT no, epoch, floor, coalesce((SELECT max(n) FROM log WHERE log.channel = channel.no), floor)
FROM channel WHERE name = ?
"""
_EXTENTS = """
SELECT name, epoch, floor, coalesce((SELECT max(n) FROM log WHERE log.channel = channel.no), floor)
FROM channel WHERE name > ? ORDER BY name LIMIT ?
"""
_FLOOR = "SELECT name, epoch, floor, floor_tick, floor_hash FROM channel WHERE name = ?"
_NAMES = "SELECT name FROM channel WHERE name > ? AND name >= ? ORDER BY name"
_NAMED = """
SELECT epoch, n, tick, id, kind, data, before FROM channel JOIN log ON log.channel = channel.no
WHERE name = ? AND id = ? AND n > floor
"""
_ROWS = "SELECT n, tick, id, kind, data, before FROM log WHERE channel = ? AND n > ? ORDER BY n"
_TICK = "SELECT tick FROM log WHERE channel = ? AND n = ?"
_ERASED = "SELECT * FROM erased WHERE no > ? AND substr(name, 1, ?) = ? ORDER BY no LIMIT ?"
_LINKS = """
SELECT link.n, link.tick, kind, content, before FROM erased JOIN link ON link.erased = erased.no
WHERE epoch = ? AND link.n > ? ORDER BY link.n LIMIT ?
"""


class SqliteLog:
    """`Log` over a read-only connection. Create, use and close it in one event loop.

    `connect` opens such a connection; a snapshot opens its own.
    """

    def __init__(self, connect: Callable[[], sqlite3.Connection]) -> None:
        self._loop = asyncio.get_running_loop()
        self._connect, self._readable = connect, connect()
        self._reader = ThreadPoolExecutor(1, thread_name_prefix="citewire-reader")
        self._closed = False

    @staticmethod
    def open(folder: Path) -> SqliteLog:
        """Open the log in a data folder, whether or not another process is writing to it."""
        path = folder / "log.sqlite"
        if not path.exists():
            raise StoreError(f"there is no log in the data folder {folder}")
        # In a read-only folder without a writer, nobody has made the -wal and -shm files and we cannot make
        # them either: SQLite must not look for them.
        as_we_are = os.access in os.supports_effective_ids
        writable = os.access(folder, os.W_OK, effective_ids=as_we_are)
        alone = not writable and not path.with_name("log.sqlite-wal").exists()
        try:
            return SqliteLog(partial(_connect_current_version, path, alone))
        except sqlite3.Error as error:
            raise StoreError("cannot open the log", detail=f"{path}: {error}") from error

    async def read(self, channel: str, after: Cursor | None = None, limit: int = 1000) -> tuple[Row, ...]:
        """See `Log`."""
        check_name(channel)
        return await self._read(partial(_rows, channel=channel, after=after, limit=limit))

    async def get(self, channel: str, id: str) -> Row | None:  # noqa: A002
        """See `Log`."""
        check_name(channel)
        check_name(id)
        return await self._read(partial(_row, channel=channel, name=id))

    async def head(self, channel: str) -> Head | None:
        """See `Log`."""
        check_name(channel)
        found = await self._read(partial(head_of, channel=channel))
        return found and found[1]

    async def heads(self, prefix: str, after: str = "", limit: int = 1000) -> tuple[Head, ...]:
        """See `Log`."""
        check_prefix(prefix)
        check_prefix(after)
        return await self._read(partial(_heads, prefix=prefix, after=after, limit=limit))

    async def floor(self, channel: str) -> Head | None:
        """See `Log`."""
        check_name(channel)
        return await self._read(partial(_floor, channel=channel))

    async def extents(self, after: str = "", limit: int = 1000) -> tuple[Extent, ...]:
        """See `Log`."""
        check_prefix(after)
        asked = after, clamp_limit(limit)
        return await self._read(lambda db: tuple(starmap(Extent, db.execute(_EXTENTS, asked))))

    async def chains(self, channels: Sequence[str]) -> tuple[Chain, ...]:
        """See `Log`."""
        names = tuple(channels)
        found = await self._read(lambda db: [_chain(db, name) for name in names])
        return tuple(chain for chain in found if chain)

    async def slots(
        self, channel: str, after: str, before: str, limit: int = 1000, *, reverse: bool = False
    ) -> tuple[Slot, ...]:
        """See `Log`."""
        span = check_span(channel, after, before)
        return await self._read(lambda db: sqlite_slots.slots_between(db, span, limit, reverse))

    @asynccontextmanager
    async def snapshot(self) -> AsyncGenerator[SqliteLog]:
        """See `Log`: a read transaction. The write-ahead log cannot shrink while it is open."""
        self._ask()
        try:
            snapshot = _Snapshot(self._connect)
        except sqlite3.Error as error:
            raise StoreError("cannot read the store", detail=error) from error
        try:
            async with deadline():
                yield snapshot
        finally:
            await snapshot.close()

    async def erased(self, prefix: str, after: int = 0, limit: int = 1000) -> tuple[ErasedChannel, ...]:
        """See `Log`."""
        check_prefix(prefix)
        asked = after, len(prefix), prefix, clamp_limit(limit)
        return await self._read(lambda db: tuple(_erased(*row) for row in db.execute(_ERASED, asked)))

    async def links(self, epoch: str, after: int = 0, limit: int = 1000) -> tuple[ChainLink, ...]:
        """See `Log`."""
        check_name(epoch)
        asked = epoch, after, clamp_limit(limit)
        return await self._read(lambda db: tuple(ChainLink(*row) for row in db.execute(_LINKS, asked)))

    async def seek(self, channel: str, serial: str) -> Cursor:
        """See `Slots`."""
        check_name(channel)
        return await self._read(partial(_seek, channel=channel, serial=serial))

    async def close(self) -> None:
        """See `Log`."""
        self._closed = True
        await asyncio.to_thread(self._reader.shutdown)
        self._readable.close()

    async def _read(self, work: Callable[[sqlite3.Connection], _T]) -> _T:
        self._ask()
        try:
            return await self._loop.run_in_executor(self._reader, _in_transaction, work, self._readable)
        except sqlite3.Error as error:
            raise StoreError("cannot read the store", detail=error) from error

    def _ask(self) -> None:
        if self._closed:
            raise StoreError("the store is closed")


class _Snapshot(SqliteLog):
    """Reads everything in one transaction."""

    def __init__(self, connect: Callable[[], sqlite3.Connection]) -> None:
        super().__init__(connect)
        try:
            self._readable.execute("BEGIN")
            # The snapshot is taken at the first read.
            self._readable.execute("SELECT count(*) FROM (SELECT no FROM channel LIMIT 1)").fetchone()
        except BaseException:
            self._readable.close()
            raise

    async def _read(self, work: Callable[[sqlite3.Connection], _T]) -> _T:
        self._ask()
        try:
            return await self._loop.run_in_executor(self._reader, work, self._readable)
        except sqlite3.Error as error:
            raise StoreError("cannot read the store", detail=error) from error


def _in_transaction(work: Callable[[sqlite3.Connection], _T], db: sqlite3.Connection) -> _T:
    """Run the work in one transaction, so that nothing can change between its queries."""
    db.execute("BEGIN")
    try:
        return work(db)
    finally:
        db.execute("COMMIT")


def connect_readonly(path: Path, *, alone: bool = False) -> sqlite3.Connection:
    """Open a read-only connection; `alone` means that no other process writes to the file."""
    uri = f"{path.absolute().as_uri()}?mode=ro{'&immutable=1' if alone else ''}"
    return sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False)


def _connect_current_version(path: Path, alone: bool) -> sqlite3.Connection:
    """Open a read-only connection to a file of the schema version that this citewire reads."""
    db = connect_readonly(path, alone=alone)
    try:
        _check_version(db)
    except BaseException:
        db.close()
        raise
    return db


def _check_version(db: sqlite3.Connection) -> None:
    had, known = schema_version_of(db), len(load_sqlite_migrations())
    if had != known:
        raise StoreError(
            f"the data is of version {had}, this citewire reads version {known}: "
            "`citewire serve` brings older data up to date"
        )


def schema_version_of(db: sqlite3.Connection) -> int:
    """Return the number of migrations that were applied."""
    return db.execute("PRAGMA user_version").fetchone()[0]


def load_sqlite_migrations() -> list[str]:
    """Return the SQL migrations, in order."""
    return load_migrations("sqlite")


def head_of(db: sqlite3.Connection, channel: str) -> tuple[int, Head] | None:
    """Return the number of the channel and its head; None if there is no such channel."""
    found = db.execute(_HEAD, (channel,)).fetchone()
    if not found:
        return None
    no, epoch, floor, floor_tick, floor_hash, *row = found
    if row[0] is None:
        return no, Head(channel, epoch, floor, floor_tick, floor_hash)
    return no, head_at(channel, Row(epoch, *row))


def locate_cursor(db: sqlite3.Connection, channel: str, cursor: Cursor | None) -> tuple[int, str, int]:
    """Return the number (0 for none) and the epoch of a channel, and the row number of the cursor."""
    no, epoch, floor, n = db.execute(_END, (channel,)).fetchone() or (0, "", 0, 0)
    if cursor:
        check_cursor(cursor, Cursor(epoch, n) if no else None, floor)
    return no, epoch, cursor.n if cursor else floor


def _floor(db: sqlite3.Connection, channel: str) -> Head | None:
    found = db.execute(_FLOOR, (channel,)).fetchone()
    return found and Head(*found)


def _row(db: sqlite3.Connection, channel: str, name: str) -> Row | None:
    found = db.execute(_NAMED, (channel, name)).fetchone()
    return found and Row(*found)


def _heads(db: sqlite3.Connection, prefix: str, after: str, limit: int) -> tuple[Head, ...]:
    names = (name for (name,) in db.execute(_NAMES, (after, prefix)))
    names = takewhile(lambda name: name.startswith(prefix), names)
    heads = (found[1] for name in names if (found := head_of(db, name)))
    return tuple(islice(heads, clamp_limit(limit)))


def _chain(db: sqlite3.Connection, channel: str) -> Chain | None:
    floor, found = _floor(db, channel), head_of(db, channel)
    return Chain(floor, found[1]) if floor and found else None


def _rows(db: sqlite3.Connection, channel: str, after: Cursor | None, limit: int) -> tuple[Row, ...]:
    no, epoch, n = locate_cursor(db, channel, after)
    return take_page((Row(epoch, *values) for values in db.execute(_ROWS, (no, n))), limit)


def _erased(no: int, at: int, name: str, epoch: str, *ends: int | bytes) -> ErasedChannel:
    floor, head = (name, epoch, *ends[:3]), (name, epoch, *ends[3:])
    return ErasedChannel(no, at, Head(*floor), Head(*head))  # pyright: ignore[reportArgumentType]


def _seek(db: sqlite3.Connection, channel: str, serial: str) -> Cursor:
    no, head = head_of(db, channel) or (0, None)
    floor = _floor(db, channel)
    return cursor_at(serial, head, floor, lambda n: db.execute(_TICK, (no, n)).fetchone()[0])
