"""Storage for the keys and the secret in a shared Postgres database."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, LiteralString

import psycopg

from citewire.channels.store import StoreError
from citewire.server.storage.vault import VaultVersion

if TYPE_CHECKING:
    from citewire.channels.postgres_database import Database

__all__ = ["PostgresVault"]

# Seconds to connect, and seconds between two polls: a revoked key still works for that long.
_PATIENCE, _EVERY = 5, 0.5
# Advisory lock number that nobody else uses: 'cwvault' in ASCII.
_LOCK = 0x6377_7661_756C_74
# Limit lock waits, and commit to disk whatever the settings of the database are.
_CAREFUL: LiteralString = (
    "SELECT set_config('lock_timeout', '20s', true),"
    " set_config('synchronous_commit', replace(current_setting('synchronous_commit'), 'off', 'on'), true)"
)
_ALL: LiteralString = "SELECT name, version, data FROM citewire.vault"
_PUT: LiteralString = (
    "INSERT INTO citewire.vault (name, data) VALUES (%s, %s)"
    " ON CONFLICT (name) DO UPDATE SET data = excluded.data, version = gen_random_uuid()"
)


class PostgresVault:
    """A `Vault` in the database at `dsn`, whose tables must exist.

    Outside `lock` it serves the values it read last and needs no connection. In a server, `follow` refreshes
    them.
    """

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        self._kept: Mapping[str, tuple[Any, bytes]] = {}
        self._turn = threading.RLock()
        self._connection: psycopg.Connection[Any] | None = None
        with self.lock():
            pass

    def read(self, name: str, *, secret: bool = False) -> bytes | None:
        """See `Vault`. `secret` is ignored: anybody who can read the database can read everything in it."""
        del secret
        found = self._kept.get(name)
        return found[1] if found else None

    def version(self, name: str) -> VaultVersion:
        """See `Vault`."""
        found = self._kept.get(name)
        return (found[0],) if found else None

    def write(self, name: str, data: bytes) -> None:
        """See `Vault`."""
        if self._connection is None:
            raise RuntimeError("who writes is alone")
        self._connection.execute(_PUT, (name, data))

    @contextmanager
    def lock(self) -> Generator[None]:
        """See `Vault`."""
        try:
            with self._turn, psycopg.connect(self._dsn, connect_timeout=_PATIENCE) as connection:
                connection.execute(_CAREFUL)
                connection.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
                self._kept, self._connection = _all(connection), connection
                try:
                    yield
                finally:
                    self._connection = None
                written = _all(connection)
                connection.commit()
                self._kept = written
        except psycopg.Error as exc:
            # The library's own message may quote the address, including its password.
            why = exc.diag.message_primary or type(exc).__name__
            raise StoreError("the keys in the database cannot be had", detail=why) from None

    def location(self, name: str = "") -> str:
        """See `Vault`."""
        return f"{name} of the database" if name else "the database"

    async def follow(self, db: Database) -> None:
        """Poll for values written by others. While the database is unreachable, the last values are used."""
        while True:
            await asyncio.sleep(_EVERY)
            with suppress(StoreError):
                before = self._kept
                versions = await db.fetch("SELECT name, version FROM citewire.vault")
                if {each["name"]: each["version"] for each in versions} == _versions(before):
                    continue
                rows = await db.fetch(_ALL)
                # Skip if something was written here meanwhile, which is newer.
                if self._kept is before:
                    self._kept = {each["name"]: (each["version"], each["data"]) for each in rows}


def _all(connection: psycopg.Connection[Any]) -> Mapping[str, tuple[Any, bytes]]:
    return {name: (version, bytes(data)) for name, version, data in connection.execute(_ALL)}


def _versions(kept: Mapping[str, tuple[Any, bytes]]) -> dict[str, Any]:
    return {name: version for name, (version, _) in kept.items()}
