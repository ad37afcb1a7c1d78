"""The embedded store: one SQLite file in a data folder.

All writes go through one thread with one connection, which also does the checkpoints: SQLite before 3.51.3
can damage a WAL file when two connections do that at once. Whatever is waiting when the thread comes round
goes into one transaction, and is acknowledged after its commit, so that the one sync to disk is shared.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib.resources import files
from itertools import islice, starmap, takewhile
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple, TypeVar

from citewire.bell import Bell
from citewire.channels import sqlite_slots
from citewire.channels.store import (
    BATCH_BYTES,
    BATCH_ENTRIES,
    Changed,
    Cursor,
    Decide,
    Entry,
    Head,
    Row,
    Slot,
    StoreBusy,
    StoreError,
    StoreInUse,
    Values,
    at_most,
    check_change,
    check_cursor,
    check_entries,
    check_name,
    check_prefix,
    cursor_at,
    head_at,
    new_head,
    next_place,
    next_row,
    now_ms,
    page,
)
from citewire.errors import CitewireError, InputError

_T = TypeVar("_T")

# Enough to share the sync among many, few enough that the first of them does not wait long.
_GROUP = 512
_HEADS_KEPT = 10_000
# Seconds that a call waits for room among those on their way to the writer.
_PATIENCE = 10
# What a change is taken for while it waits: what it will write is known only once it is decided.
_CHANGE_BYTES = 64 * 1024

# The head of a channel is its last row.
_HEAD = """
SELECT channel.no, epoch, n, tick, id, kind, data, before FROM channel JOIN log ON log.channel = channel.no
WHERE name = ? ORDER BY n DESC LIMIT 1
"""
_END = "SELECT no, epoch, (SELECT max(n) FROM log WHERE log.channel = channel.no) FROM channel WHERE name = ?"
_NAMES = "SELECT name FROM channel WHERE name > ? AND name >= ? ORDER BY name"
_BEGIN = "INSERT INTO channel (name, epoch) VALUES (?, ?) RETURNING no"
_ADD_ROW = "INSERT INTO log VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (channel, id) DO NOTHING"
_ROW = "SELECT n, tick, id, kind, data, before FROM log WHERE channel = ? AND id = ?"
_NAMED = """
SELECT epoch, n, tick, id, kind, data, before FROM channel JOIN log ON log.channel = channel.no
WHERE name = ? AND id = ?
"""
_ROWS = "SELECT n, tick, id, kind, data, before FROM log WHERE channel = ? AND n > ? ORDER BY n"
_BETWEEN = """
SELECT epoch, n, tick, id, kind, data, before FROM channel JOIN log ON log.channel = channel.no
WHERE name = ? AND id > ? AND id < ? ORDER BY id
"""
_TICK = "SELECT tick FROM log WHERE channel = ? AND n = ?"


class _Writer:
    """What is done between BEGIN and COMMIT. As nobody else writes, it can keep the heads in mind."""

    def __init__(self, db: sqlite3.Connection, now: Callable[[], int]) -> None:
        self.db = db
        self._cursor = db.cursor()
        self._now = now
        self._heads: dict[str, tuple[int, Head]] = {}
        self._slots = sqlite_slots.WriterSlots(db)

    def append(self, channel: str, entries: Sequence[Entry]) -> tuple[Row, ...]:
        no, head = self._head(channel) or self._begin(new_head(channel))
        rows: list[Row] = []
        now = self._now()
        for entry in entries:
            row, after = next_row(head, entry, now)
            if self._add(no, row):
                head = after
            else:
                row = Row(head.epoch, *self.db.execute(_ROW, (no, entry.id)).fetchone())
            rows.append(row)
        self._heads[channel] = no, head
        return tuple(rows)

    def change(self, channel: str, keys: Sequence[str], decide: Decide[_T]) -> Changed[_T] | CitewireError:
        no, head = self._head(channel) or (0, new_head(channel))
        now = self._now()
        try:
            change = decide(self._slots.values(no, keys), next_place(head, now))
            check_change(change)
        except CitewireError as error:
            return error  # nothing is written yet, so that the others in the transaction need not suffer
        if not change.entries:
            return Changed((), change.result)
        no, head = (no, head) if no else self._begin(head)
        rows: list[Row] = []
        for entry in change.entries:
            row, head = next_row(head, entry, now)
            if not self._add(no, row):
                raise InputError("an id that the log has already")
            rows.append(row)
        self._slots.put(no, change.puts)
        self._heads[channel] = no, head
        return Changed(tuple(rows), change.result)

    def drop(self, channel: str) -> None:
        self._slots.flush()
        self._slots.forget()  # the next channel may get the number of this one
        if found := self._heads.pop(channel, None) or _head(self.db, channel):
            self.db.execute("DELETE FROM slot WHERE channel = ?", (found[0],))
            self.db.execute("DELETE FROM log WHERE channel = ?", (found[0],))
            self.db.execute("DELETE FROM channel WHERE no = ?", (found[0],))

    def run(self, work: list[Callable[[_Writer], Any]]) -> list[Any]:
        """The results of all, in one transaction; or none of it is done."""
        if len(self._heads) > _HEADS_KEPT:
            self._heads.clear()
        try:
            self.db.execute("BEGIN IMMEDIATE")
            results = [each(self) for each in work]
            self._slots.flush()
            self.db.execute("COMMIT")
        except BaseException:
            self._heads.clear()
            self._slots.forget()
            if self.db.in_transaction:
                self.db.execute("ROLLBACK")
            raise
        return results

    def _head(self, channel: str) -> tuple[int, Head] | None:
        return self._heads.get(channel) or _head(self.db, channel)

    def _begin(self, head: Head) -> tuple[int, Head]:
        return self.db.execute(_BEGIN, (head.channel, head.epoch)).fetchone()[0], head

    def _add(self, no: int, row: Row) -> bool:
        """Whether the row was added; not where its id is there already."""
        values = (no, row.n, row.tick, row.id, row.kind, row.data, row.before)
        return self._cursor.execute(_ADD_ROW, values).rowcount > 0


class _Room:
    """How much may be on its way to the writer: twice the largest batch. Who finds none waits in line."""

    def __init__(self) -> None:
        self.line = asyncio.Lock()
        self._entries, self._bytes = 2 * BATCH_ENTRIES, 2 * BATCH_BYTES
        self._freed = Bell()

    async def take(self, entries: int, size: int) -> None:
        if self.line.locked() or not self._try_take(entries, size):
            try:
                async with asyncio.timeout(_PATIENCE), self.line:
                    while not self._try_take(entries, size):
                        await self._freed.wait()
            except TimeoutError:
                raise StoreBusy("too much is waiting to be written; try again later") from None

    def free(self, entries: int, size: int) -> None:
        self._entries += entries
        self._bytes += size
        self._freed.ring()

    def _try_take(self, entries: int, size: int) -> bool:
        if entries > self._entries or size > self._bytes:
            return False
        self._entries -= entries
        self._bytes -= size
        return True


class _Job(NamedTuple):
    """One call on its way to the writer, the future its caller waits for, and the room it takes."""

    work: Callable[[_Writer], Any]
    future: asyncio.Future[Any]
    entries: int
    size: int


class SqliteStore:
    """`Store` and `Slots` in a data folder, which no other has. Made, used and closed in one event loop."""

    def __init__(self, folder: Path, now: Callable[[], int] = now_ms) -> None:
        self._loop = asyncio.get_running_loop()
        self._lock = _lock(folder)
        try:
            db, self._readable = _open(folder / "log.sqlite")
        except BaseException:
            os.close(self._lock)
            raise
        self._writer = _Writer(db, now)
        self._closed = False
        self._room = _Room()
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._write_all, name="citewire-writer", daemon=True)
        self._thread.start()
        self._reader = ThreadPoolExecutor(1, thread_name_prefix="citewire-reader")

    async def append(self, channel: str, entries: Sequence[Entry]) -> tuple[Row, ...]:
        """See `Store`."""
        check_name(channel)
        # Copied: the writer comes to it later, and the caller may go on with the list.
        kept = tuple(entries)
        size = check_entries(kept)
        if not kept:
            return ()
        return await self._write(lambda writer: writer.append(channel, kept), len(kept), size)

    async def read(self, channel: str, after: Cursor | None = None, limit: int = 1000) -> tuple[Row, ...]:
        """See `Store`."""
        check_name(channel)
        return await self._read(partial(_rows, channel=channel, after=after, limit=limit))

    async def get(self, channel: str, id: str) -> Row | None:  # noqa: A002
        """See `Store`."""
        check_name(channel)
        check_name(id)
        return await self._read(partial(_row, channel=channel, name=id))

    async def head(self, channel: str) -> Head | None:
        """See `Store`."""
        check_name(channel)
        found = await self._read(partial(_head, channel=channel))
        return found and found[1]

    async def heads(self, prefix: str, after: str = "", limit: int = 1000) -> tuple[Head, ...]:
        """See `Store`."""
        check_prefix(prefix)
        check_prefix(after)
        return await self._read(partial(_heads, prefix=prefix, after=after, limit=limit))

    async def drop(self, channel: str) -> None:
        """See `Store`."""
        check_name(channel)
        await self._write(lambda writer: writer.drop(channel))

    async def change(self, channel: str, keys: Sequence[str], decide: Decide[_T]) -> Changed[_T]:
        """See `Slots`."""
        asked = _checked(channel, keys)
        return await self._write(lambda writer: writer.change(channel, asked, decide), size=_CHANGE_BYTES)

    async def values(self, channel: str, keys: Sequence[str]) -> Values:
        """See `Slots`."""
        asked = _checked(channel, keys)
        return await self._read(lambda db: sqlite_slots.values(db, channel, asked))

    async def slots(
        self, channel: str, after: str, before: str, limit: int = 1000, *, reverse: bool = False
    ) -> tuple[Slot, ...]:
        """See `Slots`."""
        span = _span(channel, after, before)
        return await self._read(lambda db: sqlite_slots.between(db, span, limit, reverse))

    async def named(self, channel: str, after: str, before: str, limit: int = 1000) -> tuple[Row, ...]:
        """See `Slots`."""
        span = _span(channel, after, before)
        return await self._read(lambda db: page(starmap(Row, db.execute(_BETWEEN, span)), limit))

    async def seek(self, channel: str, serial: str) -> Cursor:
        """See `Slots`."""
        check_name(channel)
        return await self._read(partial(_seek, channel=channel, serial=serial))

    async def close(self) -> None:
        """See `Store`."""
        if self._closed:
            return
        self._closed = True
        async with self._room.line:  # behind all who wait in it
            self._jobs.put(None)
        await asyncio.to_thread(self._thread.join)
        await asyncio.to_thread(self._reader.shutdown)
        self._readable.close()
        # The last connection to go folds the WAL into the file.
        self._writer.db.close()
        os.close(self._lock)

    async def _write(
        self, work: Callable[[_Writer], _T | CitewireError], entries: int = 1, size: int = 0
    ) -> _T:
        """What the work gives; an error that it gives, or that ends it, is raised."""
        self._ask()
        await self._room.take(entries, size)
        future: asyncio.Future[_T] = self._loop.create_future()
        self._jobs.put(_Job(work, future, entries, size))
        return await future

    async def _read(self, work: Callable[[sqlite3.Connection], _T]) -> _T:
        self._ask()
        try:
            return await self._loop.run_in_executor(self._reader, work, self._readable)
        except sqlite3.Error as error:
            raise StoreError(f"cannot read the store: {error}") from error

    def _ask(self) -> None:
        if self._closed:
            raise StoreError("the store is closed")

    def _write_all(self) -> None:
        """The writer's life: until None comes, write what is waiting."""
        while job := self._jobs.get():
            group = [job, *self._waiting()]
            self._loop.call_soon_threadsafe(self._settle, group, self._commit(group))

    def _waiting(self) -> list[_Job]:
        group: list[_Job] = []
        try:
            while len(group) < _GROUP - 1:
                if (job := self._jobs.get_nowait()) is None:
                    self._jobs.put(None)  # nothing comes after it, so it may go to the end
                    break
                group.append(job)
        except Empty:
            pass
        return group

    def _commit(self, group: list[_Job]) -> list[Any]:
        """The results of the jobs in one transaction; if that fails, each alone: none fails for another."""
        try:
            return self._writer.run([job.work for job in group])
        except Exception as error:  # noqa: BLE001 - its caller gets it, and the thread lives on
            if len(group) > 1:
                return [result for job in group for result in self._commit([job])]
            if isinstance(error, sqlite3.Error):
                return [StoreError(f"cannot write to the store: {error}")]
            return [error]

    def _settle(self, group: list[_Job], results: list[Any]) -> None:
        for job, result in zip(group, results, strict=True):
            self._room.free(job.entries, job.size)
            if job.future.done():  # cancelled: the caller has left
                continue
            if isinstance(result, Exception):
                job.future.set_exception(result)
            else:
                job.future.set_result(result)


def _lock(folder: Path) -> int:
    """The open lock file of the folder; the system frees the lock when the process ends in any way."""
    try:
        import fcntl  # noqa: PLC0415 - so that the rest of the module is there without it
    except ImportError:
        raise StoreError("this system has no flock, without which a data folder cannot be guarded") from None
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.truncate(lock, 0)
            os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)
        except BlockingIOError:
            holder = os.read(lock, 20).decode("ascii", "replace").strip() or "unknown"
            os.close(lock)
            raise StoreInUse(f"the data folder {folder} is used by process {holder}") from None
        except OSError:
            os.close(lock)
            raise
    except OSError as error:
        raise StoreError(f"cannot write to the data folder {folder}: {error.strerror}") from error
    return lock


def _open(path: Path) -> tuple[sqlite3.Connection, sqlite3.Connection]:
    """The one connection that writes, with the tables as this version wants them, and one that reads."""
    try:
        db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        try:
            _prepare(db)
            uri = f"{path.absolute().as_uri()}?mode=ro"
            return db, sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False)
        except BaseException:
            db.close()
            raise
    except sqlite3.Error as error:
        raise StoreError(f"cannot open {path}: {error}") from error


def _prepare(db: sqlite3.Connection) -> None:
    # A file that cannot be written to is to be found out now.
    db.executescript("PRAGMA synchronous = FULL; BEGIN IMMEDIATE; COMMIT;")
    if db.execute("PRAGMA journal_mode = WAL").fetchone() != ("wal",):
        raise StoreError("the file system of the data folder does not allow a write-ahead log")
    migrate(db, steps())


def steps() -> list[str]:
    """The numbered files of `sql/`, in order."""
    found = files("citewire.channels").joinpath("sql").iterdir()
    return [step.read_text("utf-8") for step in sorted(found, key=lambda step: step.name)]


def migrate(db: sqlite3.Connection, steps: Sequence[str]) -> None:
    """Take the steps that the database has not had, each in a transaction of its own."""
    had: int = db.execute("PRAGMA user_version").fetchone()[0]
    if had > len(steps):
        raise StoreError(f"the data is of a later version ({had}) than this citewire knows ({len(steps)})")
    for number, step in enumerate(steps[had:], had + 1):
        db.executescript(f"BEGIN IMMEDIATE; {step} PRAGMA user_version = {number}; COMMIT;")


def _head(db: sqlite3.Connection, channel: str) -> tuple[int, Head] | None:
    found = db.execute(_HEAD, (channel,)).fetchone()
    return found and (found[0], head_at(channel, Row(*found[1:])))


def _row(db: sqlite3.Connection, channel: str, name: str) -> Row | None:
    found = db.execute(_NAMED, (channel, name)).fetchone()
    return found and Row(*found)


def _heads(db: sqlite3.Connection, prefix: str, after: str, limit: int) -> tuple[Head, ...]:
    names = (name for (name,) in db.execute(_NAMES, (after, prefix)))
    names = takewhile(lambda name: name.startswith(prefix), names)
    heads = (found[1] for name in names if (found := _head(db, name)))
    return tuple(islice(heads, at_most(limit)))


def _rows(db: sqlite3.Connection, channel: str, after: Cursor | None, limit: int) -> tuple[Row, ...]:
    # One transaction, so that a drop cannot come between the end and the rows.
    db.execute("BEGIN")
    try:
        no, epoch, n = db.execute(_END, (channel,)).fetchone() or (0, "", 0)
        if after:
            check_cursor(Cursor(epoch, n) if epoch else None, after)
        rows = db.execute(_ROWS, (no, after.n if after else 0))
        return page((Row(epoch, *values) for values in rows), limit)
    finally:
        db.execute("COMMIT")


def _checked(channel: str, keys: Sequence[str]) -> tuple[str, ...]:
    """The keys, copied for when the writer comes to them."""
    for name in (channel, *keys):
        check_name(name)
    return tuple(keys)


def _span(channel: str, after: str, before: str) -> tuple[str, str, str]:
    check_name(channel)
    check_prefix(after)
    check_prefix(before)
    return channel, after, before


def _seek(db: sqlite3.Connection, channel: str, serial: str) -> Cursor:
    no, head = _head(db, channel) or (0, None)
    return cursor_at(head, serial, lambda n: db.execute(_TICK, (no, n)).fetchone()[0])
