"""Open a server's storage: its own data folder, or a Postgres database shared with other servers."""

from __future__ import annotations

import asyncio
import fcntl
import os
from collections.abc import Callable, Coroutine, Generator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from citewire.channels.lease import Leases
from citewire.channels.store import ChannelStore, Log, StoreError, StoreInUse
from citewire.channels.store_rules import load_migrations
from citewire.server.ops.settings import SettingError, Settings
from citewire.server.storage.blobs import Blobs
from citewire.server.storage.vault import FileVault, Vault

if TYPE_CHECKING:
    from citewire.channels.postgres import PostgresStore

_T = TypeVar("_T")

__all__ = ["StorageBackend", "lock_folder", "open_configured_vault", "open_log", "open_store"]

# Seconds to wait for the database at startup, and seconds between two attempts.
_PATIENCE, _AGAIN = 10.0, 0.5


class StorageBackend(NamedTuple):
    """A server's storage: the log, the leases it shares with other servers, and the blobs by room."""

    store: ChannelStore
    leases: Leases
    blobs: Callable[[str], Blobs]


@contextmanager
def lock_folder(folder: Path) -> Generator[None]:
    """Lock a data folder for this process. Raises `StoreInUse`, and `StoreError` if it is not writable."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as exc:
        raise StoreError("cannot write to the data folder", detail=exc) from exc
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StoreInUse(f"another server has {folder}; each needs a data folder of its own") from None
        yield
    finally:
        os.close(handle)


async def open_store(dsn: str) -> PostgresStore:
    """Open the store at this address, and wait if it is starting. Raises `SettingError` and `StoreError`."""
    _need_extra()
    from citewire.channels.postgres import PostgresStore  # noqa: PLC0415  # needs the extra `postgres`

    return await _patiently(lambda: PostgresStore.open(dsn))


async def open_log(dsn: str) -> Log:
    """Open the store at this address for reading only. Creates nothing. Raises as `open_store` does."""
    _need_extra()
    from citewire.channels.postgres_database import Database, connect, schema_version, translate_errors  # noqa: PLC0415
    from citewire.channels.postgres_log import PostgresLog  # noqa: PLC0415
    from citewire.channels.postgres_writer import SeenHeads  # noqa: PLC0415

    db = await connect(dsn)
    try:
        with translate_errors("read"):
            is_ours = await db.fetchval("SELECT to_regclass('citewire.version')") is not None
            if not is_ours or await schema_version(db) != len(load_migrations("postgres")):
                raise StoreError("the database has no log of this version of citewire")
    finally:
        db.terminate()
    return PostgresLog(await Database.open(dsn), SeenHeads())


async def open_configured_vault(settings: Settings) -> Vault:
    """Open the vault with the keys and the secret. Raises as `open_store` does, and `KeyringError`."""
    if settings.dsn is None:
        return FileVault(Path(settings.data))
    dsn = settings.dsn
    await _reach(dsn)
    from citewire.server.storage.vault_postgres import PostgresVault  # noqa: PLC0415

    return await _patiently(lambda: asyncio.to_thread(PostgresVault, dsn))


async def _reach(dsn: str) -> None:
    """Create the tables if they do not exist."""
    _need_extra()
    from citewire.channels.postgres_database import prepare_schema  # noqa: PLC0415

    await _patiently(lambda: prepare_schema(dsn))


async def _patiently(work: Callable[[], Coroutine[Any, Any, _T]]) -> _T:
    """Run `work` and return its result. Retries for a while if the database is unreachable."""
    until = asyncio.get_running_loop().time() + _PATIENCE
    while True:
        try:
            return await work()
        except StoreError:
            if asyncio.get_running_loop().time() > until:
                raise
        await asyncio.sleep(_AGAIN)


def _need_extra() -> None:
    if not all(map(find_spec, ("asyncpg", "psycopg"))):
        raise SettingError("--store: a Postgres database needs `pip install 'citewire[postgres]'`")
