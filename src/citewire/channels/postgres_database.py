"""A Postgres database that several nodes share: connections, schema, and translation of driver errors."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Generator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import TYPE_CHECKING, Any

from citewire.channels.store import StoreError
from citewire.channels.store_rules import load_migrations

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

# Timeouts in seconds: to connect, and for any one statement.
_CONNECT, _COMMAND = 5.0, 30.0
_READERS = 8
# Advisory lock for schema changes: any number that no other program uses.
_MAKING = 0x63697465
# Settings of every session; a peer that vanishes silently must be detected within seconds.
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
# Acknowledged data is on disk, whatever the server's settings; stronger guarantees are left to them.
_DURABLE = """
SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'
"""


class StoreTooNew(StoreError):
    """The database was migrated by a newer citewire, and only that version can use it."""

    code = "store_later_version"


@contextmanager
def translate_errors(doing: str) -> Generator[None]:
    """Turn driver errors into a `StoreError` that reveals no address and no password."""
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
    """Open a dedicated connection. Raises `StoreError`."""
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
    """Create or migrate the tables for this version. Safe to run from several processes at once."""
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
    """Return the number of migrations that were applied."""
    return await db.fetchval("SELECT n FROM citewire.version")


def check_schema_version(had: int, known: int) -> int:
    """Return the version of the tables. Raises `StoreTooNew`."""
    if had > known:
        raise StoreTooNew(f"the data is of a later version ({had}) than this citewire knows ({known})")
    return had


class Database:
    """A small connection pool for reads, and for writes outside the log."""

    def __init__(self, dsn: str, pool: asyncpg.Pool[Any]) -> None:
        self.dsn = dsn
        self._pool = pool

    @classmethod
    async def open(cls, dsn: str) -> Database:
        """Connect to the database at this address and prepare its tables. Raises `StoreError`."""
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
        """Open the database for the duration of a `with` block."""
        db = await cls.open(dsn)
        try:
            yield db
        finally:
            await db.close()

    async def fetch(self, sql: str, *args: object) -> list[Any]:
        """Run a statement and return its rows. Raises `StoreError`."""
        async with self.connection() as db:
            return await db.fetch(sql, *args)

    async def execute(self, sql: str, *args: object) -> str:
        """Run a statement and return its status. Raises `StoreError`."""
        async with self.connection() as db:
            return await db.execute(sql, *args)

    @asynccontextmanager
    async def connection(self) -> AsyncGenerator[PoolConnectionProxy[Any]]:
        """Borrow a connection. Driver errors in the block become a `StoreError`."""
        with translate_errors("ask"):
            db = await self._pool.acquire(timeout=_CONNECT)
            try:
                yield db
            finally:
                with suppress(Exception):  # the query is done; a connection that cannot be reset is closed
                    await self._pool.release(db, timeout=_COMMAND)

    async def close(self) -> None:
        """Close all connections."""
        try:
            async with asyncio.timeout(_CONNECT):
                await self._pool.close()
        except TimeoutError:
            self._pool.terminate()


async def _durable(db: asyncpg.Connection[Any]) -> None:
    await db.execute(_DURABLE)
