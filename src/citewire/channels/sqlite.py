"""The embedded store: one SQLite file in a data folder.

All writes go through one thread with one connection, which also does the checkpoints: SQLite before 3.51.3
can damage a WAL file when two connections do that at once. All waiting jobs go into one transaction and are
acknowledged after its commit, so that they share one sync to disk.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from itertools import starmap
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple, TypeAlias, TypeVar

from citewire.channels import sqlite_slots
from citewire.channels.sqlite_inserts import Inserts
from citewire.channels.sqlite_log import (
    SqliteLog,
    connect_readonly,
    head_of,
    load_sqlite_migrations,
    locate_cursor,
    schema_version_of,
)
from citewire.channels.store import (
    CommittedChange,
    Cursor,
    CursorLost,
    Decide,
    Entry,
    Head,
    Row,
    SlotValues,
    StoreError,
    StoreInUse,
    content_hash,
    first_hash,
    row_hash,
)
from citewire.channels.store_rules import (
    check_change,
    check_entries,
    check_keys,
    check_name,
    check_span,
    new_head,
    next_position,
    next_row,
    now_ms,
    take_page,
)
from citewire.channels.write_quota import WriteQuota
from citewire.errors import CitewireError, InputError

_T = TypeVar("_T")
_Needs: TypeAlias = tuple[str, Sequence[str]]
"""A channel, and keys of slots in it."""

# Enough jobs to share one sync among many, few enough that the first does not wait long.
_GROUP = 512
_HEADS_KEPT = 2000
# The size assumed for a waiting change: its real size is known only once it is decided.
_CHANGE_BYTES = 64 * 1024
# Milliseconds that the writer waits for a lock on the file, the default of sqlite3.
_BUSY_MS = 5000
# Milliseconds that the writer waits for readers before it truncates the write-ahead log: longer than a page
# of rows takes to read, shorter than writers would notice.
_TRUNCATE_MS = 50
# Seconds between two attempts to truncate it while nothing is written.
_TRUNCATE_AGAIN = 0.25

_BEGIN = "INSERT INTO channel (name, epoch, floor_hash) VALUES (?, ?, ?) RETURNING no"
_ADD_ROW = "INSERT INTO log VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (channel, id) DO NOTHING"
_ADD_ROWS = Inserts("log", 7)
_ROW = "SELECT n, tick, id, kind, data, before FROM log WHERE channel = ? AND id = ?"
_BETWEEN = """
SELECT epoch, n, tick, id, kind, data, before FROM channel JOIN log ON log.channel = channel.no
WHERE name = ? AND id > ? AND id < ? AND n > floor ORDER BY id
"""
_ERASE = """
INSERT INTO erased (at, name, epoch, floor, floor_tick, floor_hash, n, tick, hash)
SELECT ?, name, epoch, floor, floor_tick, floor_hash, ?, ?, ? FROM channel WHERE no = ? RETURNING no
"""
_KEEP_LINKS = """
INSERT INTO link SELECT ?, n, tick, kind, content_hash(id, data), before FROM log WHERE channel = ?
"""
_TRIM = """
UPDATE channel SET floor = n, floor_tick = tick, floor_hash = row_hash(n, tick, id, kind, data, before)
FROM log WHERE log.channel = channel.no AND no = ? AND n = ?
"""


class _Writer:
    """The work between BEGIN and COMMIT. It caches the heads, as nobody else writes."""

    def __init__(self, db: sqlite3.Connection, now: Callable[[], int]) -> None:
        self.db = db
        self._cursor = db.cursor()
        self._now = now
        self._heads: dict[str, tuple[int, Head]] = {}
        self._slots = sqlite_slots.WriterSlots(db)
        self._rows: list[tuple[Any, ...]] = []
        self.is_erasing = False

    def append(self, channel: str, entries: Sequence[Entry]) -> tuple[Row, ...]:
        if self._rows:
            self._flush()  # the INSERT below must see which ids exist
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

    def change(
        self, channel: str, keys: Sequence[str], decide: Decide[_T]
    ) -> CommittedChange[_T] | CitewireError:
        no, head = self._head(channel) or (0, new_head(channel))
        now = self._now()
        try:
            change = decide(self._slots.values(no, keys), next_position(head, now))
            check_change(change)
        except CitewireError as error:
            return error  # nothing is written yet, so the rest of the transaction can go on
        if not change.entries:
            return CommittedChange((), change.result)
        no, head = (no, head) if no else self._begin(head)
        rows: list[Row] = []
        for entry in change.entries:
            row, head = next_row(head, entry, now)
            rows.append(row)
        self._rows += (_values(no, row) for row in rows)
        self._slots.put(no, change.puts)
        self._heads[channel] = no, head
        return CommittedChange(tuple(rows), change.result)

    def drop(self, channel: str) -> None:
        self._settle_slots()  # the next channel may reuse the number of this one
        if found := self._heads.pop(channel, None) or head_of(self.db, channel):
            no, head = found
            at = self._now()
            [erased] = self.db.execute(_ERASE, (at, head.n, head.tick, head.hash, no)).fetchone()
            self.db.execute(_KEEP_LINKS, (erased, no))
            self.db.execute("DELETE FROM slot WHERE channel = ?", (no,))
            self.db.execute("DELETE FROM log WHERE channel = ?", (no,))
            self.db.execute("DELETE FROM channel WHERE no = ?", (no,))
            self.is_erasing = True

    def trim(self, channel: str, upto: Cursor, ranges: Sequence[tuple[str, str]]) -> CitewireError | None:
        self._settle_slots()
        try:
            no, _, n = locate_cursor(self.db, channel, upto)
        except CursorLost as error:
            return error
        self.db.execute(_TRIM, (no, n))
        self.db.execute("DELETE FROM log WHERE channel = ? AND n <= ?", (no, n))
        spans = [(no, *each) for each in ranges]
        self.db.executemany("DELETE FROM slot WHERE channel = ? AND key > ? AND key < ?", spans)
        self.is_erasing = True
        return None

    def _settle_slots(self) -> None:
        """Write all pending changes and clear the cache, so that the tables are the only state."""
        self._flush()
        self._slots.forget()

    def _flush(self) -> None:
        """Write the pending rows and slots."""
        rows, self._rows = self._rows, []
        try:
            _ADD_ROWS.run(self.db, rows)
        except sqlite3.IntegrityError as error:
            raise InputError("an id that the log has already") from error
        self._slots.flush()

    def _look_up(self, needs: Iterable[_Needs]) -> None:
        """Load at once the slots that all jobs will need, for channels with a cached head."""
        wanted: dict[int, list[str]] = {}
        for channel, keys in needs:
            if known := self._heads.get(channel):
                wanted.setdefault(known[0], []).extend(keys)
        for no, keys in wanted.items():
            self._slots.look_up(no, keys)

    def run(self, work: Sequence[Callable[[_Writer], Any]], needs: Iterable[_Needs] = ()) -> list[Any]:
        """Run all work in one transaction and return the results, or undo it. `needs`: slots to preload."""
        if len(self._heads) > _HEADS_KEPT:
            self._heads.clear()
        try:
            self.db.execute("BEGIN IMMEDIATE")
            self._look_up(needs)
            results = [each(self) for each in work]
            self._flush()
            self.db.execute("COMMIT")
        except BaseException:
            self._heads.clear()
            self._rows.clear()
            self._slots.forget()
            if self.db.in_transaction:
                self.db.execute("ROLLBACK")
            raise
        if self.is_erasing:
            self.truncate_wal()
        return results

    def truncate_wal(self) -> None:
        """Remove erased content from the write-ahead log.

        If a reader still uses the log after a short wait, `is_erasing` stays true, to retry later.
        """
        self.db.execute(f"PRAGMA busy_timeout = {_TRUNCATE_MS}")
        with suppress(sqlite3.Error):  # the commit itself has succeeded
            self.is_erasing = bool(self.db.execute("PRAGMA wal_checkpoint (TRUNCATE)").fetchone()[0])
        self.db.execute(f"PRAGMA busy_timeout = {_BUSY_MS}")

    def _head(self, channel: str) -> tuple[int, Head] | None:
        return self._heads.get(channel) or head_of(self.db, channel)

    def _begin(self, head: Head) -> tuple[int, Head]:
        return self.db.execute(_BEGIN, (head.channel, head.epoch, head.hash)).fetchone()[0], head

    def _add(self, no: int, row: Row) -> bool:
        """Add the row and return True; False if its id already exists."""
        return self._cursor.execute(_ADD_ROW, _values(no, row)).rowcount > 0


def _values(no: int, row: Row) -> tuple[Any, ...]:
    return no, row.n, row.tick, row.id, row.kind, row.data, row.before


class _Job(NamedTuple):
    """A call queued for the writer, its caller's future, and the quota and slots that it needs."""

    work: Callable[[_Writer], Any]
    future: asyncio.Future[Any]
    entries: int
    size: int
    needs: _Needs | None


class SqliteStore(SqliteLog):
    """`Store` and `Slots` in a data folder that it locks. Create, use and close it in one event loop."""

    def __init__(self, folder: Path, now: Callable[[], int] = now_ms) -> None:
        self._lock, path = _lock(folder), folder / "log.sqlite"
        try:
            db = _open(path)
        except BaseException:
            os.close(self._lock)
            raise
        super().__init__(partial(connect_readonly, path))
        self.write_failure: StoreError | None = None
        """Why the last write failed; None where it did not."""
        self._writer = _Writer(db, now)
        self._room = WriteQuota()
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._write_all, name="citewire-writer", daemon=True)
        self._thread.start()

    async def append(self, channel: str, entries: Sequence[Entry]) -> tuple[Row, ...]:
        """See `Store`."""
        check_name(channel)
        # Copied: the writer uses it later, and the caller may change the list meanwhile.
        kept = tuple(entries)
        size = check_entries(kept)
        if not kept:
            return ()
        return await self._write(lambda writer: writer.append(channel, kept), len(kept), size)

    async def drop(self, channel: str) -> None:
        """See `Store`."""
        check_name(channel)
        await self._write(lambda writer: writer.drop(channel))

    async def change(self, channel: str, keys: Sequence[str], decide: Decide[_T]) -> CommittedChange[_T]:
        """See `Slots`."""
        asked = check_keys(channel, keys)
        return await self._write(
            lambda writer: writer.change(channel, asked, decide), size=_CHANGE_BYTES, needs=(channel, asked)
        )

    async def values(self, channel: str, keys: Sequence[str]) -> SlotValues:
        """See `Slots`."""
        asked = check_keys(channel, keys)
        return await self._read(lambda db: sqlite_slots.values(db, channel, asked))

    async def rows_by_id(self, channel: str, after: str, before: str, limit: int = 1000) -> tuple[Row, ...]:
        """See `Slots`."""
        span = check_span(channel, after, before)
        return await self._read(lambda db: take_page(starmap(Row, db.execute(_BETWEEN, span)), limit))

    async def trim(self, channel: str, upto: Cursor, ranges: Sequence[tuple[str, str]] = ()) -> None:
        """See `Slots`."""
        check_name(channel)
        spans = [check_span(channel, *each)[1:] for each in ranges]  # copied, as in `append`
        await self._write(lambda writer: writer.trim(channel, upto, spans))

    async def close(self) -> None:
        """See `Store`."""
        if self._closed:
            return
        self._closed = True
        async with self._room.line:  # after all callers that wait in line
            self._jobs.put(None)
        await asyncio.to_thread(self._thread.join)
        await super().close()
        # Closing the last connection merges the WAL into the file.
        self._writer.db.close()
        os.close(self._lock)

    async def _write(
        self,
        work: Callable[[_Writer], _T | CitewireError],
        entries: int = 1,
        size: int = 0,
        needs: _Needs | None = None,
    ) -> _T:
        """Queue the work and return its result; raise an error that it returns or raises."""
        self._ask()
        await self._room.take(entries, size)
        future: asyncio.Future[_T] = self._loop.create_future()
        self._jobs.put(_Job(work, future, entries, size, needs))
        return await future

    def _write_all(self) -> None:
        """Main loop of the writer thread: write waiting jobs until None arrives."""
        while job := self._next_job():
            group = [job, *self._waiting()]
            self._loop.call_soon_threadsafe(self._settle, group, self._commit(group))

    def _next_job(self) -> _Job | None:
        """Wait for a job. Meanwhile remove erased content from the write-ahead log once nobody reads it."""
        while self._writer.is_erasing:
            with suppress(Empty):
                return self._jobs.get(timeout=_TRUNCATE_AGAIN)
            self._writer.truncate_wal()
        return self._jobs.get()

    def _waiting(self) -> list[_Job]:
        group: list[_Job] = []
        try:
            while len(group) < _GROUP - 1:
                if (job := self._jobs.get_nowait()) is None:
                    self._jobs.put(None)  # nothing comes after it, so it may move to the end
                    break
                group.append(job)
        except Empty:
            pass
        return group

    def _commit(self, group: list[_Job]) -> list[Any]:
        """Run the jobs in one transaction; if it fails, each alone, so that none fails for another."""
        try:
            return self._writer.run([job.work for job in group], [job.needs for job in group if job.needs])
        except Exception as error:  # noqa: BLE001 - its caller gets it, and the thread lives on
            if len(group) > 1:
                return [result for job in group for result in self._commit([job])]
            if isinstance(error, sqlite3.Error):
                return [StoreError("cannot write to the store", detail=error)]
            return [error]

    def _settle(self, group: list[_Job], results: list[Any]) -> None:
        self.write_failure = results[-1] if isinstance(results[-1], StoreError) else None
        for job, result in zip(group, results, strict=True):
            self._room.free(job.entries, job.size)
            if job.future.done():  # cancelled by the caller
                continue
            if isinstance(result, Exception):
                job.future.set_exception(result)
            else:
                job.future.set_result(result)


def _lock(folder: Path) -> int:
    """Lock the folder and return the open lock file; the system releases the lock when the process ends."""
    try:
        import fcntl  # noqa: PLC0415 - so that the rest of the module is there without it
    except ImportError:
        raise StoreError("this system has no flock, without which a data folder cannot be guarded") from None
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
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
        raise StoreError("cannot write to the data folder", detail=f"{folder}: {error.strerror}") from error
    return lock


def _open(path: Path) -> sqlite3.Connection:
    """Open the one writing connection and migrate the tables to this version."""
    try:
        db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        try:
            _prepare(db)
            return db
        except BaseException:
            db.close()
            raise
    except sqlite3.Error as error:
        raise StoreError("cannot open the store", detail=f"{path}: {error}") from error


def _prepare(db: sqlite3.Connection) -> None:
    # Detect a read-only file now, and overwrite deleted content.
    db.executescript("PRAGMA synchronous = FULL; PRAGMA secure_delete = ON; BEGIN IMMEDIATE; COMMIT;")
    if db.execute("PRAGMA journal_mode = WAL").fetchone() != ("wal",):
        raise StoreError("the file system of the data folder does not allow a write-ahead log")
    # A crash may have left erased content in the write-ahead log.
    db.execute("PRAGMA wal_checkpoint (TRUNCATE)").fetchone()
    for hashed in (content_hash, first_hash, row_hash):
        db.create_function(hashed.__name__, -1, hashed, deterministic=True)
    migrate(db, load_sqlite_migrations())


def migrate(db: sqlite3.Connection, steps: Sequence[str]) -> None:
    """Apply the migrations that the database lacks, each in its own transaction."""
    had = schema_version_of(db)
    if had > len(steps):
        raise StoreError(f"the data is of a later version ({had}) than this citewire knows ({len(steps)})")
    for number, step in enumerate(steps[had:], had + 1):
        db.executescript(f"BEGIN IMMEDIATE; {step} PRAGMA user_version = {number}; COMMIT;")
