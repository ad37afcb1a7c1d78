"""Copy an embedded installation, with everything it stores, into an empty Postgres database.

The copy is one transaction: nothing is visible until it commits, and an interrupted copy leaves nothing. The
data is read back and compared before the commit.
"""

# ruff: noqa: S608 - statements are put together from our own parts only

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from msgspec import msgpack

from citewire.channels.postgres_database import connect, prepare_schema, translate_errors
from citewire.channels.sqlite import SqliteStore
from citewire.channels.sqlite_export import TableRow, has_same_ends, read_tables
from citewire.channels.sqlite_log import SqliteLog
from citewire.channels.store import StoreError, StoreInUse
from citewire.server.storage.blobs_postgres import PART
from citewire.server.storage.vault import FileVault

if TYPE_CHECKING:
    import asyncpg

__all__ = ["CopyResult", "copy_to_postgres"]

_Told: TypeAlias = Callable[[str, Mapping[str, int]], None]


class _Table(NamedTuple):
    """The columns of a table. The column `large` is compared by its SHA-256."""

    columns: tuple[str, ...]
    large: str = ""


def _table(columns: str, large: str = "") -> _Table:
    return _Table(tuple(columns.split()), large)


# In an order that satisfies the foreign keys.
_TABLES = {
    "channel": _table("no name epoch was n tick hash floor floor_tick floor_hash"),
    "log": _table("channel n tick id kind data before", "data"),
    "slot": _table("channel key value", "value"),
    "erased": _table("no at name epoch floor floor_tick floor_hash n tick hash"),
    "link": _table("erased n tick kind content before"),
    "blob": _table("room sha256 size"),
    "blob_part": _table("room sha256 part data", "data"),
    "vault": _table("name data", "data"),
}
_ROOMS = ("sources", "attachments")
_KEPT = ("audit.key", "keys.json", "secret")
_SHA256 = re.compile(r"[0-9a-f]{64}")
# Limits of one batch in memory, whichever is reached first. The last row may exceed them.
_ROWS, _BYTES = 10_000, 8 << 20
# How many rows, without their large column, are read back at once.
_BACK = 2_000
# Milliseconds to wait for other users of the database.
_PATIENCE = 5_000
# A node that starts meanwhile waits for this lock before it creates keys of its own.
_ALONE = f"""
SET statement_timeout = 0; SET idle_in_transaction_session_timeout = 0; SET lock_timeout = {_PATIENCE};
LOCK TABLE citewire.vault, citewire.blob, citewire.channel, citewire.erased IN ACCESS EXCLUSIVE MODE
"""
_IS_USED = " OR ".join(f"EXISTS (SELECT FROM citewire.{name})" for name in _TABLES)
_NUMBER_ON = """
SELECT setval(pg_get_serial_sequence('citewire.{0}', 'no'), coalesce(max(no), 1), count(*) > 0)
FROM citewire.{0}
"""


class _Tally:
    """Counts rows by table and sums their hashes, independent of order."""

    def __init__(self) -> None:
        self.rows = Counter[str]()
        self._sum = 0

    def add(self, table: str, values: tuple[Any, ...]) -> None:
        self.rows[table] += 1
        self._sum += int.from_bytes(sha256(msgpack.encode((table, *values))).digest())

    def equals(self, other: _Tally) -> bool:
        return (self.rows, self._sum) == (other.rows, other._sum)


class CopyResult(NamedTuple):
    """The rows in the database by table. `is_new` is False if they were all there before.

    If keys were copied without the secret they were made with, the environment must provide it.
    """

    rows: Mapping[str, int]
    is_new: bool
    needs_secret: bool


async def copy_to_postgres(log: Path, data: Path, dsn: str, told: _Told) -> CopyResult:
    """Copy the log in one folder, and the bytes and keys in another, which may be the same folder.

    `told` is called with the action and the row counts by table. Raises `StoreError`, `StoreInUse` while a
    server uses the folder or the database, and `KeyringError`. On an error nothing was copied.
    """
    await SqliteLog.open(log).close()  # raises if there is no log, instead of creating one
    store = SqliteStore(log)
    try:
        await prepare_schema(dsn)
        db = await connect(dsn)
        try:
            with translate_errors("copy to"):
                async with db.transaction():
                    return await _copied(db, log, data, told)
        finally:
            db.terminate()
    finally:
        await store.close()


async def _copied(db: asyncpg.Connection[Any], log: Path, data: Path, told: _Told) -> CopyResult:
    await _have_alone(db)
    is_new = not await db.fetchval(f"SELECT {_IS_USED}")
    if not is_new and not await _is_the_same(db, log):
        raise StoreError("the database is in use: an installation is copied into an empty one")
    given = _Tally()
    for batch in _batches(_everything(log, data), given):
        if is_new:
            await _send(db, batch)
        told("copied", given.rows)
    if not given.equals(await _found(db, told)):
        raise StoreError(
            "the database does not give back what it was given: nothing was copied"
            if is_new
            else "the database is in use: it has other things, or has gone on since the copy"
        )
    if is_new:
        for name in ("channel", "erased"):
            await db.execute(_NUMBER_ON.format(name))
    vault = FileVault(data)
    return CopyResult(given.rows, is_new, bool(vault.version("keys.json") and not vault.version("secret")))


async def _have_alone(db: asyncpg.Connection[Any]) -> None:
    from asyncpg import LockNotAvailableError  # noqa: PLC0415  # needs the extra `postgres`

    try:
        await db.execute(_ALONE)
    except LockNotAvailableError:
        raise StoreInUse("the database is in use: end all servers and other copies first") from None


async def _is_the_same(db: asyncpg.Connection[Any], log: Path) -> bool:
    ends = await db.fetch("SELECT name, epoch, n FROM citewire.channel")
    return has_same_ends(log, map(tuple[str, str, int], ends))


def _everything(log: Path, data: Path) -> Iterator[TableRow]:
    yield from read_tables(log)
    try:
        for room in _ROOMS:
            for path in sorted((data / room).glob("??/*")):
                if _SHA256.fullmatch(path.name):
                    yield from _bytes(room, path)
    except OSError as error:
        raise StoreError(f"cannot read the bytes of sources: {error.strerror or error}") from error
    vault = FileVault(data)
    for name in _KEPT:
        if (kept := vault.read(name, secret=name != "keys.json")) is not None:
            yield "vault", (name, kept)


def _bytes(room: str, path: Path) -> Iterator[TableRow]:
    """Yield a file named after its SHA-256 as a blob row and its parts."""
    name, whole = path.name, sha256()
    yield "blob", (room, name, path.stat().st_size)
    with path.open("rb") as file:
        for part, piece in enumerate(iter(lambda: file.read(PART), b"")):
            whole.update(piece)
            yield "blob_part", (room, name, part, piece)
    if whole.hexdigest() != name:
        raise StoreError(f"{path} is damaged: its bytes are not those it is named after")


def _batches(items: Iterable[TableRow], tally: _Tally) -> Iterator[dict[str, list[tuple[Any, ...]]]]:
    """Yield rows by table, in batches that fit in memory."""
    batch = {name: list[tuple[Any, ...]]() for name in _TABLES}
    rows = size = 0
    for name, values in items:
        large = _TABLES[name].large
        tally.add(name, _compared(name, values))
        batch[name].append(values)
        rows += 1
        size += len(values[_TABLES[name].columns.index(large)]) if large else 0
        if rows >= _ROWS or size >= _BYTES:
            yield batch
            batch = {name: list[tuple[Any, ...]]() for name in _TABLES}
            rows = size = 0
    yield batch


def _compared(name: str, values: tuple[Any, ...]) -> tuple[Any, ...]:
    columns, large = _TABLES[name]
    return tuple(
        sha256(value).digest() if column == large else value
        for column, value in zip(columns, values, strict=True)
    )


async def _send(db: asyncpg.Connection[Any], batch: dict[str, list[tuple[Any, ...]]]) -> None:
    for name, rows in batch.items():
        if rows:
            await db.copy_records_to_table(
                name, schema_name="citewire", columns=_TABLES[name].columns, records=rows
            )


async def _found(db: asyncpg.Connection[Any], told: _Told) -> _Tally:
    """Read back all rows of the database."""
    found = _Tally()
    for name, (columns, large) in _TABLES.items():
        shown = ", ".join(f"sha256({each})" if each == large else each for each in columns)
        async for row in db.cursor(f"SELECT {shown} FROM citewire.{name}", prefetch=_BACK):
            found.add(name, tuple(row))
            if found.rows[name] % _BACK == 0:
                told("read back", found.rows)
    return found
