"""What servers share that have the same Postgres database, and what each of them has for itself."""

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
from citewire.channels.store import ChannelStore, Log, StoreError, StoreInUse, load_migrations
from citewire.server.ops.settings import SettingError, Settings
from citewire.server.storage.blobs import Blobs
from citewire.server.storage.vault import FileVault, Vault

if TYPE_CHECKING:
    from citewire.channels.postgres import PostgresStore

_T = TypeVar("_T")

__all__ = ["StorageBackend", "lock_folder", "open_configured_vault", "open_log", "open_store"]

# Seconds for which a server that starts waits for its database, and from one try to the next.
_PATIENCE, _AGAIN = 10.0, 0.5


class StorageBackend(NamedTuple):
    """Where a server keeps what it has: the log, the bytes by their room; and who else does so."""

    store: ChannelStore
    leases: Leases
    blobs: Callable[[str], Blobs]


@contextmanager
def lock_folder(folder: Path) -> Generator[None]:
    """Have a data folder for this process alone. Raises `StoreInUse`, and `StoreError` where it cannot be."""
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
    """The store at this address, which may still be starting. Raises `SettingError` and `StoreError`."""
    _need_extra()
    from citewire.channels.postgres import PostgresStore  # noqa: PLC0415  # needs the extra `postgres`

    return await _patiently(lambda: PostgresStore.open(dsn))


async def open_log(dsn: str) -> Log:
    """What can be read of the store at this address, and nothing is made there. Raises as `open_store`."""
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
    """Where the keys and the secret are. Raises as `open_store`, and `KeyringError`."""
    if settings.dsn is None:
        return FileVault(Path(settings.data))
    dsn = settings.dsn
    await _reach(dsn)
    from citewire.server.storage.vault_postgres import PostgresVault  # noqa: PLC0415

    return await _patiently(lambda: asyncio.to_thread(PostgresVault, dsn))


async def _reach(dsn: str) -> None:
    """Have the tables there."""
    _need_extra()
    from citewire.channels.postgres_database import prepare_schema  # noqa: PLC0415

    await _patiently(lambda: prepare_schema(dsn))


async def _patiently(work: Callable[[], Coroutine[Any, Any, _T]]) -> _T:
    """What the work gives, tried again for a while as long as the database is away."""
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
