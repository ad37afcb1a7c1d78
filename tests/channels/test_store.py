import asyncio
import os
import random
import shutil
import sqlite3
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from citewire.channels.memory import MemoryStore
from citewire.channels.serial import serial_of, tick_after, tick_of
from citewire.channels.sqlite import SqliteStore, migrate
from citewire.channels.sqlite_log import SqliteLog, load_sqlite_migrations
from citewire.channels.store import (
    BATCH_BYTES,
    BATCH_ENTRIES,
    ENTRY_BYTES,
    Change,
    Cursor,
    CursorLost,
    Entry,
    Row,
    Store,
    StoreBusy,
    StoreError,
    StoreInUse,
)
from citewire.channels.store_rules import find_broken_link, new_head, next_row
from citewire.errors import InputError
from citewire.testing import StoreContract, check_erased, check_log, entries, everything
from support.clock import hurried, on_clock

pytestmark = pytest.mark.slow


class TestMemory(StoreContract):
    durable = False

    async def open(self, folder: Path, now: Callable[[], int]) -> Store:
        return MemoryStore(now)


class TestSqlite(StoreContract):
    async def open(self, folder: Path, now: Callable[[], int]) -> Store:
        return SqliteStore(folder, now)


@given(st.lists(st.integers(0, 10**13), min_size=1))
def test_serials_rise_whatever_the_clock_says(clock: list[int]) -> None:
    ticks = [0]
    for now in clock:
        ticks.append(tick_after(ticks[-1], now))
    serials = [serial_of(tick, "e0") for tick in ticks]
    assert serials == sorted(set(serials))
    assert [tick_of(serial)[0] for serial in serials] == ticks


@pytest.mark.parametrize(
    "serial", ["", "x", "01794768614785-000", "1794768614785-000@e0:000", "01794768614785-000@e0:001"]
)
def test_what_is_no_serial(serial: str) -> None:
    with pytest.raises(InputError):
        tick_of(serial)


def test_a_cursor_reads_back() -> None:
    assert Cursor.parse(str(Cursor("ab12", 7))) == Cursor("ab12", 7)


@pytest.mark.parametrize(
    "text", ["", ":", "7", "e:", ":7", "e:-1", "e:x", "e:٣", "e:1:2", "e:" + "9" * 19, "e: 1"]
)
def test_what_is_no_cursor(text: str) -> None:
    with pytest.raises(InputError):
        Cursor.parse(text)


@pytest.mark.parametrize("field", ["n", "tick", "id", "kind", "data", "before"])
def test_a_changed_row_breaks_the_chain(field: str) -> None:
    """Whatever is changed, and bytes moved from one field to the next too."""
    head, rows = new_head("c"), list[Row]()
    for name in "abc":
        row, head = next_row(head, Entry(name + "1", "1k", b"1d"), 1)
        rows.append(row)
    assert find_broken_link(rows[0].before, rows) is None
    values = {name: getattr(rows[1], name) for name in Row.__struct_fields__}
    values[field] = values[field] + (
        b"x" if isinstance(values[field], bytes) else 1 if field in {"n", "tick"} else "x"
    )
    assert find_broken_link(rows[0].before, [rows[0], Row(**values), rows[2]]) is not None


def test_the_second_writer_of_a_folder_is_told_so(tmp_path: Path) -> None:
    """In the same process and in another; and the folder is free again after a close."""

    async def run() -> None:
        store = SqliteStore(tmp_path)
        with pytest.raises(StoreInUse, match=f"used by process {os.getpid()} "):
            SqliteStore(tmp_path)
        told = await asyncio.to_thread(
            subprocess.run, [sys.executable, "-c", _WRITER, tmp_path], capture_output=True, check=False
        )
        assert b"store_in_use" in told.stderr
        await store.close()
        await SqliteStore(tmp_path).close()

    asyncio.run(run())


def test_a_folder_that_cannot_be_used(tmp_path: Path) -> None:
    """A file in its place or above it, bytes that are no database, left as they are."""
    (tmp_path / "file").write_bytes(b"")
    (tmp_path / "junk").mkdir()
    (tmp_path / "junk/log.sqlite").write_bytes(b"not a database" * 100)

    async def run() -> None:
        for folder, says in [
            ("file", "data folder"),
            ("file/below", "Not a directory"),
            ("junk", "not a database"),
        ]:
            with pytest.raises(StoreError, match=says):
                SqliteStore(tmp_path / folder)

    asyncio.run(run())
    assert (tmp_path / "junk/log.sqlite").read_bytes() == b"not a database" * 100


def test_a_system_without_flock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fcntl", None)

    async def run() -> None:
        with pytest.raises(StoreError, match="no flock"):
            SqliteStore(tmp_path)

    asyncio.run(run())


def _run(code: str, *arguments: object) -> str:
    """What a process prints that does this with a store."""
    command = [sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_read_only_folder() -> None:
    """Empty, or with a log in which only the lock can still be written; by a user to whom it matters."""
    with TemporaryDirectory() as top:
        empty, used = Path(top, "empty"), Path(top, "used")
        empty.mkdir()

        async def write() -> None:
            store = SqliteStore(used)
            await store.append("c", entries("a"))
            await store.close()

        asyncio.run(write())
        for left in used.glob("log.sqlite-*"):
            left.unlink()
        (used / "lock").chmod(0o666)
        (used / "log.sqlite").chmod(0o444)
        for folder in (empty, used):
            folder.chmod(0o555)
        Path(top).chmod(0o755)
        code = """
            import asyncio, os, pathlib, sys
            from citewire.channels.sqlite import SqliteStore
            from citewire.channels.sqlite_log import SqliteLog, load_sqlite_migrations
            from citewire.channels.store import StoreError

            async def main():
                load_sqlite_migrations()
                if os.geteuid() == 0:
                    os.seteuid(65534)
                for folder in sys.argv[1:]:
                    try:
                        SqliteStore(pathlib.Path(folder))
                    except StoreError as error:
                        print(error.explanation)
                log = SqliteLog.open(pathlib.Path(folder))
                print([row.id for row in await log.read("c")])
                await log.close()

            asyncio.run(main())
        """
        first, second, read = _run(code, empty, used).splitlines()
        for folder in (empty, used):
            folder.chmod(0o755)
    assert "cannot write to the data folder" in first
    assert "cannot open" in second
    assert "readonly" in second
    assert read == "['a']"


def test_a_database_that_takes_no_more(tmp_path: Path) -> None:
    """A write that does not fit fails by itself, those beside it are kept, and what was there stays."""

    async def run() -> None:
        store = SqliteStore(tmp_path)
        await store.append("c", entries("a"))
        store._writer.db.execute("PRAGMA max_page_count = 40")  # pyright: ignore[reportPrivateUsage]
        calls = [store.append("c", entries(f"{i}")) for i in range(40)]
        calls.insert(20, store.append("c", entries("big", "more", data=bytes(1_000_000))))
        results = await asyncio.gather(*calls, return_exceptions=True)
        assert isinstance(results.pop(20), StoreError)
        assert not any(isinstance(each, BaseException) for each in results)
        rows = await everything(store, "c")
        check_log(rows)
        assert {row.id for row in rows} == {"a", *map(str, range(40))}
        await store.close()

    asyncio.run(run())


def test_a_full_disk(tmp_path: Path) -> None:
    """Files that may grow no more: a StoreError until there is room again; all acknowledged is there."""
    code = """
        import asyncio, pathlib, resource, sys
        from citewire.channels.sqlite import SqliteStore
        from citewire.channels.store import Entry, StoreError

        async def main():
            store = SqliteStore(pathlib.Path(sys.argv[1]))
            soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
            resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, hard))
            failed = 0
            for at in range(100):
                if failed == 3:
                    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
                try:
                    [row] = await store.append("c", [Entry(str(at), "event", bytes(20_000))])
                    print(row.id, row.n)
                except StoreError as error:
                    failed += 1
                    print(error.code, error.message, file=sys.stderr)
            assert failed == 3, failed
            await store.close()

        asyncio.run(main())
    """
    said = [line.split() for line in _run(code, tmp_path).splitlines()]
    kept = asyncio.run(_kept(tmp_path))
    assert len(said) == 97
    assert dict(said) == {name: cursor.partition(":")[2] for name, cursor in kept.items()}


def test_more_than_the_disk_takes(tmp_path: Path) -> None:
    """Who finds no room waits in line, and is told so in time; then there is room again for the others."""
    go_on, large = threading.Event(), bytes(ENTRY_BYTES)

    def now() -> int:
        go_on.wait()
        return 1

    async def run() -> None:
        store = SqliteStore(tmp_path, now)
        fits = 2 * BATCH_BYTES // ENTRY_BYTES
        calls = [asyncio.ensure_future(store.append("c", entries(str(i), data=large))) for i in range(fits)]
        busy = asyncio.ensure_future(store.append("c", entries("busy", data=large)))
        behind = asyncio.ensure_future(store.append("c", entries("behind")))
        with pytest.raises(StoreBusy):
            await hurried(busy)
        with pytest.raises(StoreBusy):
            await behind
        go_on.set()
        await asyncio.gather(*calls)
        await store.append("c", entries("busy", data=large))
        assert {row.id for row in await everything(store, "c")} == {*map(str, range(fits)), "busy"}
        await store.close()

    try:
        on_clock(run())
    finally:
        go_on.set()


def test_close_waits_for_those_in_line(tmp_path: Path) -> None:
    """They were asked for before."""

    async def run() -> None:
        store = SqliteStore(tmp_path)
        batch = entries(*map(str, range(BATCH_ENTRIES)))
        calls = [asyncio.ensure_future(store.append(f"c{i}", batch)) for i in range(5)]
        await asyncio.sleep(0)
        await store.close()
        assert [len(rows) for rows in await asyncio.gather(*calls)] == [BATCH_ENTRIES] * 5

    asyncio.run(run())


def test_an_older_copy_put_back(tmp_path: Path) -> None:
    """Cursors past its end are lost, those within it go on, and the chain goes on from its last row."""

    async def add(folder: Path, *names: str) -> list[Row]:
        store = SqliteStore(folder)
        await store.append("c", entries(*names))
        rows = await everything(store, "c")
        await store.close()
        return rows

    async def run() -> None:
        await add(tmp_path / "data", "a", "b")
        shutil.copytree(tmp_path / "data", tmp_path / "copy")
        lost = await add(tmp_path / "data", "c", "d")
        store = SqliteStore(tmp_path / "copy")
        for row in lost[2:]:
            with pytest.raises(CursorLost):
                await store.read("c", row.cursor)
        assert await store.read("c", lost[0].cursor) == (lost[1],)
        await store.close()
        check_log(await add(tmp_path / "copy", "e"))

    asyncio.run(run())


def test_migration(tmp_path: Path) -> None:
    """Steps not yet taken are taken once, one that fails leaves no trace, a later version is refused."""

    async def rows() -> list[Row]:
        store = SqliteStore(tmp_path)
        await store.append("c", entries("a", "b"))
        found = await everything(store, "c")
        await store.close()
        return found

    def after(*more: str) -> tuple[int, list[str]]:
        with closing(sqlite3.connect(tmp_path / "log.sqlite", isolation_level=None)) as db:
            migrate(db, [*load_sqlite_migrations(), *more])
        with closing(sqlite3.connect(tmp_path / "log.sqlite")) as db:
            columns = [name for _, name, *_ in db.execute("PRAGMA table_info (channel)")]
            return db.execute("PRAGMA user_version").fetchone()[0], columns

    before = asyncio.run(rows())
    known, step = len(load_sqlite_migrations()), "ALTER TABLE channel ADD COLUMN more INTEGER;"
    columns = after()[1]
    with pytest.raises(sqlite3.Error):
        after(step + "ALTER TABLE nothing ADD COLUMN x;")
    assert after() == (known, columns)
    assert asyncio.run(rows()) == before
    for _ in range(2):
        assert after(step) == (known + 1, [*columns, "more"])
    with pytest.raises(StoreError, match="later version"):
        asyncio.run(rows())


def test_data_of_the_first_versions(tmp_path: Path) -> None:
    """Their chain is made anew as they are opened, and goes on."""
    with closing(sqlite3.connect(tmp_path / "log.sqlite", isolation_level=None)) as db:
        migrate(db, load_sqlite_migrations()[:2])
        for no, name in enumerate(["c", "d"], 1):
            db.execute("INSERT INTO channel VALUES (?, ?, ?)", (no, name, f"e{no}"))
            for n in range(1, 200):
                db.execute("INSERT INTO log VALUES (?, ?, ?, ?, 'event', x'', x'00')", (no, n, n, f"i{n}"))

    async def run() -> None:
        with pytest.raises(StoreError, match="brings older data up to date"):
            SqliteLog.open(tmp_path)
        store = SqliteStore(tmp_path)
        for name in "cd":
            await store.append(name, entries("x"))
            rows = await everything(store, name, 100)
            check_log(rows, await store.floor(name))
            assert len(rows) == 200
        await store.close()

    asyncio.run(run())


def test_nothing_is_left_of_what_was_erased(tmp_path: Path) -> None:
    """In no file of the folder, as soon as the call returns: no id, no data, no slot as it is or was."""

    secret = b"the secret of the house"

    def found() -> bool:
        return any(secret in file.read_bytes() for file in tmp_path.iterdir())

    async def run() -> None:
        store = SqliteStore(tmp_path)
        for i in range(50):
            row = Entry(f"{secret.decode()} {i}", "event", secret * (i + 1))
            await store.change("c", [], lambda values, place, row=row: Change(None, [row], {"k": row.data}))
        assert found()
        if head := await store.head("c"):
            await store.trim("c", head.cursor, [("a", "z")])
        assert not found()
        await store.append("c", entries("again", data=secret))
        assert found()
        await store.drop("c")
        assert not found()
        await store.close()

    asyncio.run(run())


def test_read_beside_the_writer_and_without_one(tmp_path: Path) -> None:
    """Others see what is committed; with the writer gone, and in a folder where nobody can write, too."""

    async def run() -> None:
        with pytest.raises(StoreError, match="no log"):
            SqliteLog.open(tmp_path)
        store = SqliteStore(tmp_path)
        first = await store.append("c", entries("a"))
        beside = SqliteLog.open(tmp_path)
        assert await beside.read("c") == first
        more = await store.append("c", entries("b"))
        assert await beside.read("c") == first + more
        await store.drop("c")
        assert await beside.read("c") == ()
        await beside.close()
        with pytest.raises(StoreError, match="closed"):
            await beside.read("c")
        await store.append("c", entries("c"))
        await store.close()
        alone = SqliteLog.open(tmp_path)
        assert [row.id for row in await alone.read("c")] == ["c"]
        await SqliteStore(tmp_path).close()
        await alone.close()

    asyncio.run(run())


def test_durable_settings(tmp_path: Path) -> None:
    """What makes an acknowledged write outlive the machine."""

    async def run() -> list[object]:
        store = SqliteStore(tmp_path)
        names = ("journal_mode", "synchronous", "user_version")
        found = [store._writer.db.execute(f"PRAGMA {name}").fetchone()[0] for name in names]  # pyright: ignore[reportPrivateUsage]
        await store.close()
        return found

    assert asyncio.run(run()) == ["wal", 2, len(load_sqlite_migrations())]


# Four lanes append two entries at a time, each from where the last process was heard to be, and say what is
# acknowledged.
_LANES = 4
_WRITER = """
import asyncio, pathlib, sys
from citewire.channels.sqlite import SqliteStore
from citewire.channels.store import Entry

async def lane(store, lane, k):
    while True:
        ids = [f"{lane}.{k}", f"{lane}.{k + 1}"]
        rows = await store.append(f"c{lane % 2}", [Entry(each, "event", each.encode() * 50) for each in ids])
        for row in rows:
            print(lane, row.id, row.cursor, flush=True)
        k += 2

async def main():
    store = SqliteStore(pathlib.Path(sys.argv[1]))
    await asyncio.gather(*(lane(store, i, int(k)) for i, k in enumerate(sys.argv[2:])))

asyncio.run(main())
"""


def _kill_after(folder: Path, starts: list[int], lines: int) -> Iterator[tuple[int, str, str]]:
    """Kill a writer after so many acknowledgements; give all it made, those still in the pipe too."""
    command = [sys.executable, "-c", _WRITER, str(folder), *map(str, starts)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout
        heard = [writer.stdout.readline() for _ in range(lines)]
        writer.kill()
        heard += writer.stdout.readlines()
    for line in heard:
        if line.endswith("\n"):
            lane, name, cursor = line.split()
            yield int(lane), name, cursor


@pytest.mark.slow
def test_kill_nine(tmp_path: Path) -> None:
    """Killed at 32 random points: each acknowledged append is there once, where it was said to be, no gap."""
    chance = random.Random(6)
    acknowledged: dict[str, str] = {}
    starts = [0] * _LANES
    for _ in range(32):
        for lane, name, cursor in _kill_after(tmp_path, starts, chance.randrange(120)):
            assert acknowledged.setdefault(name, cursor) == cursor
            starts[lane] = int(name.partition(".")[2]) // 2 * 2
        kept = asyncio.run(_kept(tmp_path))
        assert acknowledged.items() <= kept.items()
    assert len(acknowledged) > 500


# Counts in a slot and a row at once, and forgets: three rows are kept, and of each ten lives the last.
_ERASER = """
import asyncio, pathlib, sys
from citewire.channels.sqlite import SqliteStore
from citewire.channels.store import Change, Cursor, Entry

def count(values, place):
    n = b"%d" % place.n
    return Change(None, [Entry(f"row {place.n}", "event", n)], {"n": n, f"row {place.n:09d}": n})

async def main():
    store = SqliteStore(pathlib.Path(sys.argv[1]))
    while True:
        row = (await store.change("c", [], count)).rows[0]
        if row.n > 3:
            await store.trim("c", Cursor(row.epoch, row.n - 3), [("row ", f"row {row.n - 2:09d}")])
        if row.n == 10:
            await store.drop("c")
        print(row.n, flush=True)

asyncio.run(main())
"""


def test_what_was_erased_leaves_the_write_ahead_log_when_its_reader_has_finished(tmp_path: Path) -> None:
    """Although nothing else is written afterwards."""

    async def main() -> None:
        store = SqliteStore(tmp_path)
        await store.append("c", [Entry("a", "event", b"quizzlewump")])
        reader = sqlite3.connect(tmp_path / "log.sqlite", isolation_level=None)
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM log").fetchone()
        await store.drop("c")
        assert b"quizzlewump" in (tmp_path / "log.sqlite-wal").read_bytes()
        reader.close()
        async with asyncio.timeout(30):
            while b"quizzlewump" in (tmp_path / "log.sqlite-wal").read_bytes():
                await store.head("c")
        assert b"quizzlewump" not in (tmp_path / "log.sqlite").read_bytes()
        await store.close()

    asyncio.run(main())


@pytest.mark.slow
def test_kill_nine_while_erasing(tmp_path: Path) -> None:
    """Killed at 32 random points: rows and slots are forgotten together, and every chain is whole."""
    chance = random.Random(7)

    async def check() -> int:
        store = SqliteStore(tmp_path)
        if head := await store.head("c"):
            rows, floor = await everything(store, "c"), await store.floor("c")
            check_log(rows, floor)
            slots = await store.slots("c", "", "z")
            assert slots[0].value == b"%d" % head.n
            assert [slot.value for slot in slots[1:]] == [row.data for row in rows]
            assert 1 <= len(rows) <= 4
        erased = await store.erased("c")
        for each in erased:
            await check_erased(store, each)
            assert (each.floor.n, each.head.n) == (7, 10)
        await store.close()
        return len(erased)

    counts = [0]
    for _ in range(32):
        command = [sys.executable, "-c", _ERASER, str(tmp_path)]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as eraser:
            assert eraser.stdout
            for _ in range(chance.randrange(40)):
                eraser.stdout.readline()
            eraser.kill()
        counts.append(asyncio.run(check()))
    assert counts == sorted(counts)
    assert counts[-1] > 20


async def _kept(folder: Path) -> dict[str, str]:
    store = SqliteStore(folder)
    kept: dict[str, str] = {}
    for head in await store.heads("c"):
        rows = await everything(store, head.channel, page=1000)
        check_log(rows)
        assert head.hash == rows[-1].hash
        kept |= {row.id: str(row.cursor) for row in rows}
    await store.close()
    return kept
