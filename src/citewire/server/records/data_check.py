"""Check that source bytes and API keys match what the log says about them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from hashlib import sha256
from pathlib import Path

from citewire.audit.findings import Findings
from citewire.audit.record import read_chain, read_rows
from citewire.audit.statements import ApiKey
from citewire.channels.store import Log
from citewire.server.access.keys import read_keys
from citewire.server.ops.settings import Settings
from citewire.server.records.audit_trail import api_key_of
from citewire.server.sources.stored_sources import CHANNEL, StoredSources
from citewire.server.storage.backend import open_configured_vault
from citewire.server.storage.blobs import Blobs

__all__ = ["check_api_keys", "check_source_bytes"]

_PIECE = 1 << 20


async def check_source_bytes(log: Log, settings: Settings, findings: Findings) -> None:
    """Hash the bytes of every source in use and compare the result with the log."""
    holdings, chain = StoredSources(), await read_chain(log, CHANNEL)
    if chain is None:
        return
    async for row in read_rows(log, chain):
        holdings.apply(row)
    for digest, sources in holdings.known.items():
        if holdings.needs(digest):
            name = next(iter(sources.values())).name
            found = await _digest(_pieces(settings, digest))
            if found is None:
                findings.add_break(f"source {name}", f"its bytes {digest[:16]}… are gone")
            elif found != digest:
                findings.add_break(f"source {name}", f"its bytes are not {digest[:16]}…, as were added")


async def _digest(pieces: AsyncIterator[bytes]) -> str | None:
    hashed, is_there = sha256(), False
    async for piece in pieces:
        hashed.update(piece)
        is_there = True
    return hashed.hexdigest() if is_there else None


async def _pieces(settings: Settings, digest: str) -> AsyncIterator[bytes]:
    """Yield the stored bytes in pieces, or nothing if they are missing. An empty file gives one piece."""
    if settings.dsn is not None:
        async for piece in _database_pieces(settings.dsn, digest):
            yield piece
        return
    path = Blobs(Path(settings.data) / "sources").path(digest)
    if not path.is_file():
        return
    yield b""
    with path.open("rb") as file:
        while piece := await asyncio.to_thread(file.read, _PIECE):
            yield piece


async def _database_pieces(dsn: str, digest: str) -> AsyncIterator[bytes]:
    from citewire.channels.postgres_database import connect, translate_errors  # noqa: PLC0415  # needs the extra `postgres`

    db = await connect(dsn)
    try:
        with translate_errors("read"):
            named = "FROM citewire.{} WHERE room = 'sources' AND sha256 = $1"
            if not await db.fetchval(f"SELECT count(*) {named.format('blob')}", digest):
                return
            count = await db.fetchval(f"SELECT count(*) {named.format('blob_part')}", digest)
        yield b""
        for part in range(count):
            with translate_errors("read"):
                sql = f"SELECT data {named.format('blob_part')} AND part = $2"
                yield await db.fetchval(sql, digest, part) or b""
    finally:
        db.terminate()


async def check_api_keys(settings: Settings, recorded: Mapping[str, ApiKey], findings: Findings) -> None:
    """Compare the API keys with their records in the audit log."""
    rows = await asyncio.to_thread(read_keys, await open_configured_vault(settings))
    kept = {row.name: api_key_of(row) for row in rows}
    for name, key in recorded.items():
        if name not in kept:
            findings.add_break(f"key {name}", "the audit log has it, and it is gone")
        elif not key.may_become(kept[name]):
            findings.add_break(f"key {name}", "it is not what the audit log says")
    for name in sorted(kept.keys() - recorded.keys()):
        findings.add_note(f"the key {name} is not in the audit log yet")
