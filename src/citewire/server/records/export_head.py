"""Write a signed head for an export made outside the server process."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from citewire.audit.heads import HeadWriter
from citewire.audit.signing import AuditKey, key_id
from citewire.audit.statements import SignedHead
from citewire.channels.lease import SingleProcessLeases
from citewire.channels.sqlite import SqliteStore
from citewire.channels.store import ChannelStore, StoreError
from citewire.server.ops.settings import Settings
from citewire.server.records.audit_trail import AuditTrail
from citewire.server.storage.backend import open_configured_vault, open_store

__all__ = ["write_export_head"]


async def write_export_head(settings: Settings, key: AuditKey) -> SignedHead:
    """Sign the current state of the store, as a server does for `GET /audit`.

    The store must exist and have the current version. Raises `StoreInUse` while a server uses the data
    folder, and `StoreError` if the store is not writable or its heads are signed with an unrelated key.
    """
    heads = Path(settings.audit_heads) if settings.audit_heads else None
    async with _opened(settings) as store:
        _check_key(key, await HeadWriter(store, key).last_head())
        return await AuditTrail(
            store, key, await open_configured_vault(settings), SingleProcessLeases(), heads=heads
        ).sign()


def _check_key(key: AuditKey, last: SignedHead | None) -> None:
    """Raise `StoreError` unless the last head was signed with this key or one that introduced it."""
    if last and last.key not in {key.public, *(each.key for each in key.introductions)}:
        theirs, ours = key_id(last.key), key_id(key.public)
        raise StoreError(f"the heads in the store are signed with the key {theirs}, not with {ours}")


@asynccontextmanager
async def _opened(settings: Settings) -> AsyncGenerator[ChannelStore]:
    """Context manager: the store, opened for writing."""
    dsn = settings.dsn
    store = SqliteStore(settings.store_folder) if dsn is None else await open_store(dsn)
    try:
        yield store
    finally:
        await store.close()
