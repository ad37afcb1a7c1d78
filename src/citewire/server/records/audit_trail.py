"""The server's side of the audit log: scheduled signed heads, removals, and changes to API keys."""

from __future__ import annotations

import asyncio
import logging
import os
from pathlib import Path
from typing import Literal
from uuid import uuid4

import msgspec

from citewire.audit.heads import HeadSuperseded, HeadWriter
from citewire.audit.signing import AuditKey
from citewire.audit.statements import AUDIT_CHANNEL, ApiKey, Removal, SignedHead
from citewire.channels.actor import Actor
from citewire.channels.lease import Leases
from citewire.channels.store import ChannelStore, Entry, Head, StoreError
from citewire.server.access.keys import Key, read_keys
from citewire.server.ops.periodic import repeat
from citewire.server.ops.timestamps import now_iso
from citewire.server.storage.vault import Vault

__all__ = ["AuditTrail", "api_key_of"]

_log = logging.getLogger("citewire.audit")
# Seconds between two checks of the keys and of whether a head is due.
_EVERY = 30.0
_LEASE = "audit:heads"
# Seconds to write the last head when the server stops, and seconds for its cancellation to finish.
_CLOSING, _GIVING_UP = 5.0, 1.0
_NO_LAST_HEAD = "no signed head was written when the server stopped"


class AuditTrail:
    """Writes a server's audit log. If several servers share the store, one of them writes scheduled heads.

    The API keys in `vault` are recorded. Each head is also appended to the file `heads`.
    """

    def __init__(
        self,
        store: ChannelStore,
        key: AuditKey,
        vault: Vault,
        leases: Leases,
        *,
        interval: float = 3600.0,
        heads: Path | None = None,
    ) -> None:
        self.key = key
        self._store, self._vault, self._leases = store, vault, leases
        self._interval, self._heads = interval, heads
        self._writer = HeadWriter(store, key)
        self._signing = asyncio.Lock()
        self._recording = asyncio.Lock()
        # Event loop time at which the next head is due.
        self._due = 0.0
        self._last: SignedHead | None = None
        self._keys: dict[str, ApiKey] = {}

    async def record_removal(self, what: Literal["deleted", "trimmed"], upto: Head, by: Actor) -> None:
        """Record, signed, that rows are about to be removed. Raises `StoreError`."""
        channel, epoch, n, hashed = upto.channel, upto.epoch, upto.n, upto.hash.hex()
        removal = Removal(what=what, channel=channel, epoch=epoch, n=n, hash=hashed, at=now_iso(), by=by)
        await self._store.append(AUDIT_CHANNEL, [_entry("removal", self.key.sign(removal))])

    async def record_keys(self) -> None:
        """Record API keys created or revoked since the last check. Raises `CitewireError`."""
        async with self._recording:
            await self._record_keys()

    async def _record_keys(self) -> None:
        if not self._keys:
            self._keys = await self._recorded()
        rows = await asyncio.to_thread(read_keys, self._vault)
        changed = [each for each in map(api_key_of, rows) if self._keys.get(each.name) != each]
        if changed:
            await self._store.append(AUDIT_CHANNEL, [_entry("api-key", each) for each in changed])
            self._keys |= {each.name: each for each in changed}

    async def _recorded(self) -> dict[str, ApiKey]:
        """Return the keys as recorded in the log."""
        found, after = dict[str, tuple[int, ApiKey]](), "api-key:"
        while rows := await self._store.rows_by_id(AUDIT_CHANNEL, after, "api-key;"):
            for row in rows:
                key = msgspec.json.decode(row.data, type=ApiKey)
                found[key.name] = max(found.get(key.name, (0, key)), (row.n, key), key=lambda each: each[0])
            after = rows[-1].id
        return {name: key for name, (_, key) in found.items()}

    async def sign(self) -> SignedHead:
        """Sign the current state of the store and restart the schedule. Raises `CitewireError`."""
        async with self._signing:
            return await self._sign()

    async def _sign(self) -> SignedHead:
        await self.record_keys()
        started = asyncio.get_running_loop().time()
        try:
            head = await self._writer.write()
        except HeadSuperseded:
            head = await self._writer.write()
        if head != self._last:
            await asyncio.to_thread(self._keep, head)
            self._last = head
        self._due = started + self._interval
        return head

    async def run(self) -> None:
        """Write a head at startup, unless one was already written, and then whenever one is due."""
        seconds = min(_EVERY, self._interval)
        await repeat(self._sign_if_due, seconds, _log, "no signed head could be written")

    async def _sign_if_due(self) -> None:
        await self.record_keys()
        async with self._signing:
            now = asyncio.get_running_loop().time()
            if now >= self._due and await self._leases.take(_LEASE):
                await self._sign()

    async def close(self) -> None:
        """Write a last head if anything has changed. Takes a few seconds at most. A failure is logged."""
        task = asyncio.create_task(self.sign())
        task.add_done_callback(_log_failure)
        try:
            await asyncio.wait([task], timeout=_CLOSING)
            if not task.done():
                _log.warning("%s: it took longer than %d seconds", _NO_LAST_HEAD, _CLOSING)
        finally:
            task.cancel()
            await asyncio.wait([task], timeout=_GIVING_UP)

    def _keep(self, head: SignedHead) -> None:
        """Append a head to the file of heads, if one is configured."""
        if self._heads is None:
            return
        try:
            handle = os.open(self._heads, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            try:
                os.write(handle, msgspec.json.encode(head) + b"\n")
                os.fsync(handle)
            finally:
                os.close(handle)
        except OSError as exc:
            raise StoreError(
                "cannot write the head to its file", detail=f"{self._heads}: {exc.strerror}"
            ) from exc


def _log_failure(task: asyncio.Task[SignedHead]) -> None:
    if not task.cancelled() and (error := task.exception()):
        _log.error(_NO_LAST_HEAD, exc_info=error)


def api_key_of(key: Key) -> ApiKey:
    """Convert a key to its audit log record."""
    return ApiKey(key.name, key.capability, key.created, key.created_by, key.revoked, key.revoked_by)


def _entry(kind: str, statement: Removal | ApiKey) -> Entry:
    return Entry(f"{kind}:{uuid4().hex}", kind, msgspec.json.encode(statement))
