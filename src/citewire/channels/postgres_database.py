"""A Postgres database that several nodes share: connections, tables, and what can go wrong, in our words."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Generator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import TYPE_CHECKING, Any

from citewire.channels.store import StoreError, load_migrations

if TYPE_CHECKING:
    import asyncpg
    from asyncpg.pool import PoolConnectionProxy

__all__ = [
    "Database",
    "StoreTooNew",
    "check_schema_version",
    "connect",
    "prepare_schema",
    "schema_version",
    "translate_errors",
]

_log = logging.getLogger("citewire.store")

# Seconds to get a connection, and for any one statement.
_CONNECT, _COMMAND = 5.0, 30.0
_READERS = 8
# For the lock under which tables are made. Any number does that no other program uses.
_MAKING = 0x63697465
# What every session is to have; a peer that is gone without a word must be noticed in seconds.
_SESSION = {
    "application_name": "citewire",
    "client_min_messages": "error",
    "idle_in_transaction_session_timeout": "60000",
    "lock_timeout": "20000",
    "statement_timeout": "30000",
    "tcp_keepalives_count": "3",
    "tcp_keepalives_idle": "5",
    "tcp_keepalives_interval": "2",
}
# What is acknowledged is on the disk, whatever the server is set to; more than that is left to its settings.
_DURABLE = """
SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'
"""


class StoreTooNew(StoreError):
    """A newer citewire has been here. Only that can go on."""

    code = "store_later_version"


@contextmanager
def translate_errors(doing: str) -> Generator[None]:
    """Turn what the driver raises into a StoreError that names no address and no password."""
    import asyncpg  # noqa: PLC0415  # needs the extra `postgres`

    try:
        yield
    except asyncpg.PostgresError as error:
        raise StoreError(
            f"cannot {doing} the database", detail=error.args[0] if error.args else error
        ) from error
    except asyncpg.InterfaceError as error:
        raise StoreError(f"cannot {doing} the database: the connection is closed") from error
    except TimeoutError as error:
        raise StoreError(f"cannot {doing} the database: it took too long") from error
    except (OSError, asyncpg.InternalClientError) as error:
        raise StoreError(f"cannot {doing} the database: it cannot be reached") from error
    except ValueError as error:
        raise StoreError("this is no address of a Postgres database") from error


async def connect(dsn: str) -> asyncpg.Connection[Any]:
    """A connection of one's own. Raises `StoreError`."""
    try:
        import asyncpg  # noqa: PLC0415
    except ImportError as error:
        raise StoreError("a Postgres store needs `pip install 'citewire[postgres]'`") from error
    with translate_errors("connect to"):
        db = await asyncpg.connect(dsn, timeout=_CONNECT, command_timeout=_COMMAND, server_settings=_SESSION)
    try:
        with translate_errors("read"):
            await db.execute(_DURABLE)
    except BaseException:
        db.terminate()
        raise
    return db


async def prepare_schema(dsn: str) -> None:
    """Have the tables as this version wants them, whoever else wants so at the same time."""
    db = await connect(dsn)
    try:
        with translate_errors("prepare"):
            if await db.fetchval("SHOW server_encoding") != "UTF8":
                raise StoreError("the database must have the encoding UTF8")
            await db.execute("SET statement_timeout = 0; SET lock_timeout = 0")
            async with asyncio.timeout(600), db.transaction():
                await db.execute("SELECT pg_advisory_xact_lock($1)", _MAKING)
                await _migrate(db, load_migrations("postgres"))
    finally:
        db.terminate()


async def _migrate(db: asyncpg.Connection[Any], steps: Sequence[str]) -> None:
    if await db.fetchval("SELECT to_regclass('citewire.version')") is None:
        await db.execute(
            "CREATE SCHEMA IF NOT EXISTS citewire; CREATE TABLE citewire.version (n int NOT NULL)"
        )
        await db.execute("INSERT INTO citewire.version VALUES (0)")
    had = check_schema_version(await schema_version(db), len(steps))
    for step in steps[had:]:
        await db.execute(step)
    if had < len(steps):
        await db.execute("UPDATE citewire.version SET n = $1", len(steps))


async def schema_version(db: asyncpg.Connection[Any] | PoolConnectionProxy[Any]) -> int:
    """How many steps the tables have had."""
    return await db.fetchval("SELECT n FROM citewire.version")


def check_schema_version(had: int, known: int) -> int:
    """The version of the tables. Raises `LaterVersion`."""
    if had > known:
        raise StoreTooNew(f"the data is of a later version ({had}) than this citewire knows ({known})")
    return had


class Database:
    """Connections for whoever reads, or writes what is not in the log: never more than a few."""

    def __init__(self, dsn: str, pool: asyncpg.Pool[Any]) -> None:
        self.dsn = dsn
        self._pool = pool

    @classmethod
    async def open(cls, dsn: str) -> Database:
        """The database at this address, with its tables. Raises `StoreError`."""
        await prepare_schema(dsn)
        import asyncpg  # noqa: PLC0415  # `prepare` has said so if it is not there

        with translate_errors("connect to"):
            pool = await asyncpg.create_pool(
                dsn, min_size=0, max_size=_READERS, timeout=_CONNECT, command_timeout=_COMMAND,
                server_settings=_SESSION, init=_durable,
            )  # fmt: skip
        return cls(dsn, pool)

    @classmethod
    @asynccontextmanager
    async def opened(cls, dsn: str) -> AsyncGenerator[Database]:
        """As `open`, until the end of the block."""
        db = await cls.open(dsn)
        try:
            yield db
        finally:
            await db.close()

    async def fetch(self, sql: str, *args: object) -> list[Any]:
        """The rows that a statement gives. Raises `StoreError`."""
        async with self.connection() as db:
            return await db.fetch(sql, *args)

    async def execute(self, sql: str, *args: object) -> str:
        """What became of a statement. Raises `StoreError`."""
        async with self.connection() as db:
            return await db.execute(sql, *args)

    @asynccontextmanager
    async def connection(self) -> AsyncGenerator[PoolConnectionProxy[Any]]:
        """One of the connections. Whatever the driver raises in the block becomes a `StoreError`."""
        with translate_errors("ask"):
            db = await self._pool.acquire(timeout=_CONNECT)
            try:
                yield db
            finally:
                with suppress(Exception):  # what was asked is answered; one that cannot be reset is closed
                    await self._pool.release(db, timeout=_COMMAND)

    async def close(self) -> None:
        """Let go of all connections."""
        try:
            async with asyncio.timeout(_CONNECT):
                await self._pool.close()
        except TimeoutError:
            self._pool.terminate()


async def _durable(db: asyncpg.Connection[Any]) -> None:
    await db.execute(_DURABLE)
