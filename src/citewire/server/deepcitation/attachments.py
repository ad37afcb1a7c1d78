"""Attachments: files sent to have citations checked against them, stored for a limited time.

They are not sources of the server: only the key that sent an attachment can find it. The list of attachments
is folded from the channel `attachments`; their bytes are stored as blobs. Both survive a crash and are
visible to every server that shares the store.

| kind | data |
|---|---|
| `kept` | an `Attachment`, a new one |
| `changed` | the new state of an `Attachment`, ignored if it was removed; never expires earlier |
| `gone` | `{key, id}` |
"""

from __future__ import annotations

import asyncio
import logging
import re
import secrets
import time
from collections.abc import Callable, Collection
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime
from functools import partial
from pathlib import PurePath
from typing import TYPE_CHECKING, TypeAlias
from urllib.parse import unquote, urlsplit

from msgspec import Struct, json
from msgspec.structs import replace

from citewire.channels.hub import Hub
from citewire.channels.lease import Leases, SingleProcessLeases
from citewire.channels.store import Row
from citewire.documents.document import Document, DocumentKind
from citewire.documents.errors import DocumentError
from citewire.error_reports import report_error
from citewire.errors import NotFound, ShapeError
from citewire.server.ops.periodic import repeat
from citewire.server.sources.stored_sources import clean_name, safe_name
from citewire.server.storage.blobs import BlobDraft, Blobs
from citewire.server.storage.follower import ChannelFollower
from citewire.verification.document_set import NO_TEXT_LAYER
from citewire.verification.engine import Engine
from citewire.verification.reader_pool import run_in_thread
from citewire.verification.sources import SourceContent

if TYPE_CHECKING:
    from citewire.documents.fetch import FetchResult

__all__ = ["Attachment", "Attachments", "DAY", "Fetch", "UNSAFE", "day_end", "iso"]

CHANNEL = "attachments"
UNSAFE = frozenset({"__proto__", "constructor", "prototype"})
"""Names that are dangerous as keys of a JavaScript object."""

DAY = 86400.0
LIFETIME = 30 * DAY
# Seconds between two sweeps for expired attachments.
_EVERY = 60.0
_SWEEP = "sweep:attachments"
_LONGEST_TYPE = 200
_ID = re.compile(r"[A-Za-z0-9_-]{1,128}")

_log = logging.getLogger("citewire.server")

Fetch: TypeAlias = "Callable[[str], FetchResult]"
_Name: TypeAlias = tuple[str, str]


class Attachment(Struct, frozen=True, omit_defaults=True):
    """An attachment, named `id` by the key `key`. Times are seconds since 1970. It lasts until `expires`.

    Once it was `read`, it has a `kind`, or a `reason` why it cannot be used. An attachment without a `sha256`
    could not be fetched from its `url`.
    """

    key: str
    id: str
    name: str
    added: float
    expires: float
    sha256: str | None = None
    size: int = 0
    content_type: str = ""
    url: str | None = None
    read: float | None = None
    seconds: float = 0.0
    kind: DocumentKind | None = None
    pages: int = 0
    text_bytes: int = 0
    reason: str | None = None


class RemovedAttachment(Struct, frozen=True):
    """An attachment that was deleted or has expired."""

    key: str
    id: str


class Attachments:
    """The attachments of all keys. Tests pass `fetch` to replace HTTP."""

    def __init__(
        self,
        hub: Hub,
        blobs: Blobs,
        engine: Engine,
        fetch: Fetch | None = None,
        clock: Callable[[], float] = time.time,
        leases: Leases | None = None,
    ) -> None:
        self._engine, self._fetch, self._clock = engine, fetch, clock
        self._blobs, self._leases = blobs, leases or SingleProcessLeases()
        self._held: dict[_Name, Attachment] = {}
        self._channel = ChannelFollower(hub, CHANNEL, self._apply, self._held.clear)
        # Held during every change, because several attachments may share the same bytes.
        self._changing = asyncio.Lock()

    async def open(self) -> None:
        """Load the attachments and delete bytes orphaned by a crash."""
        await self._blobs.open()
        await self._channel.catch_up()
        await self._forget(await self._blobs.list_hashes())

    async def run(self) -> None:
        """Follow other servers' changes and delete expired attachments, until cancelled."""
        sweeping = repeat(self.sweep, _EVERY, _log, "expired attachments could not be deleted")
        await asyncio.gather(self._channel.run(), sweeping)

    async def sweep(self) -> None:
        """Delete expired attachments, and bytes that no attachment uses any more."""
        async with self._changing:
            await self._channel.catch_up()
            if await self._leases.take(_SWEEP):
                now = self._clock()
                await self._drop([held for held in self._held.values() if held.expires <= now])
            await self._forget(await self._blobs.list_hashes())

    # Reading

    def find(self, key: str, name: str) -> Attachment:
        """Return an attachment of this key. Raises `NotFound`, also if the id belongs to another key."""
        held = self._held.get((key, name))
        if held is None or held.expires <= self._clock():
            raise NotFound("there is no such attachment, or it has expired")
        return held

    async def find_synced(self, key: str, name: str) -> Attachment:
        """Like `find`, but also finds an attachment just sent to another server."""
        if (key, name) not in self._held:
            await self._channel.catch_up()
        return self.find(key, name)

    async def find_by_hash(self, key: str, sha256: str) -> Attachment:
        """Return an attachment of this key with these bytes. Raises `NotFound`."""
        for catch_up in (self._channel.catch_up, None):
            for held in self._held.values():
                if (held.key, held.sha256) == (key, sha256) and held.expires > self._clock():
                    return held
            if catch_up:
                await catch_up()
        raise NotFound("there is no attachment with these bytes, or it has expired")

    def needs(self, sha256: str) -> bool:
        """Whether any attachment has these bytes."""
        return any(held.sha256 == sha256 for held in self._held.values())

    async def as_source(self, held: Attachment) -> SourceContent:
        """Return an attachment as a source. Raises `DocumentError`."""
        path = await self._blobs.fetch(held.sha256) if held.sha256 else None
        if path is None:
            raise DocumentError(held.reason or "there are no bytes of it")
        return SourceContent(path, held.name, held.url, None, (held.id,), held.content_type)

    async def document(self, held: Attachment) -> Document:
        """Return an attachment as a document. Raises `DocumentError`."""
        return await self._engine.load(await self.as_source(held))

    async def read(self, held: Attachment) -> Attachment:
        """Read an attachment's document, unless that was done, and return its new state, failed or not.

        A failure is not written to the log. It is retried after a restart, unless the document exceeded the
        reader's limits: the engine remembers that until the bytes are sent again.
        """
        if held.read is not None:
            return held
        began = time.monotonic()
        try:
            document = await self.document(held)
        except DocumentError as exc:
            now = replace(held, reason=report_error(exc, _log).message)
        else:
            size = len(document.text.encode("utf-8", "replace"))
            now = replace(held, kind=document.kind, pages=len(document.pages), text_bytes=size)
            if not document.text.strip():
                now = replace(
                    now, reason=document.problems[0].message if document.problems else NO_TEXT_LAYER
                )
        now = replace(now, read=self._clock(), seconds=time.monotonic() - began)
        async with self._changing:
            if self._held.get((held.key, held.id)) == held:
                if now.reason is None:
                    await self._channel.write([("changed", now)])
                else:
                    self._held[held.key, held.id] = now
        return now

    # Changing

    async def upload(
        self, key: str, name: str | None, draft: BlobDraft, filename: str, content_type: str
    ) -> Attachment:
        """Store and read an uploaded file, under the id `name` or a new one."""
        held = replace(self._new(key, name, filename), content_type=_typed(content_type))
        return await self._keep(held, draft)

    async def fetch(
        self, key: str, name: str | None, url: str, filename: str | None, *, fresh: bool
    ) -> tuple[Attachment, bool]:
        """Fetch a URL, store and read it. Also returns whether it was already fetched on the same day (UTC).

        If the fetch fails, the reason is stored instead. Raises `BadUrl` and `AddressRefused`.
        """
        from citewire.documents import fetch as web  # noqa: PLC0415  # a sixth of a second, see HttpAgent

        if not fresh and (known := self._today(key, url)) and await self._blobs.touch([known.sha256 or ""]):
            if name in (None, known.id):
                return known, True
            new = self._new(key, name, filename or known.name)
            return await self._keep(replace(known, id=new.id, name=new.name, expires=new.expires), None), True
        held = replace(self._new(key, name, filename or _named(url)), url=url)
        try:
            came = await run_in_thread(partial(self._fetch or web.fetch, url))
        except (web.BadUrl, web.AddressRefused):
            raise
        except web.FetchError as exc:
            why = report_error(exc, _log).message
            return await self._keep(replace(held, reason=why, read=held.added), None), False
        async with self._blobs.draft() as draft:
            await draft.write(came.data)
            held = replace(held, content_type=_typed(came.content_type or ""))
            return await self._keep(held, draft), False

    def draft(self) -> AbstractAsyncContextManager[BlobDraft]:
        """Return a draft to write incoming bytes to, see `Blobs.draft`."""
        return self._blobs.draft()

    async def extend(self, key: str, name: str, seconds: float) -> Attachment:
        """Keep an attachment for at least `seconds` from now. Raises `NotFound`."""
        async with self._changing:
            await self._channel.catch_up()
            held = self.find(key, name)
            now = replace(held, expires=max(held.expires, self._clock() + seconds))
            await self._channel.write([("changed", now)])
            return now

    async def remove(self, key: str, name: str) -> None:
        """Delete an attachment and its bytes. Raises `NotFound`."""
        async with self._changing:
            await self._channel.catch_up()
            await self._drop([self.find(key, name)])

    # Internals

    def _new(self, key: str, name: str | None, filename: str) -> Attachment:
        if name is None:
            name = secrets.token_hex(10)
        elif not _ID.fullmatch(name) or name in UNSAFE:
            raise ShapeError("an id has up to 128 letters, digits, - and _", "$.attachmentId")
        now = self._clock()
        return Attachment(key, name, safe_name(filename), now, now + LIFETIME)

    def _today(self, key: str, url: str) -> Attachment | None:
        now = self._clock()
        for held in self._held.values():
            is_known = (held.key, held.url) == (key, url) and held.reason is None and held.expires > now
            if is_known and day_end(held.added) == day_end(now):
                return held
        return None

    async def _keep(self, held: Attachment, draft: BlobDraft | None) -> Attachment:
        if draft:
            await draft.finish()
            held = replace(held, sha256=draft.sha256, size=draft.size)
            await self._blobs.share(draft)
            # Sending the bytes again asks for another attempt.
            await self._engine.retry(draft.sha256)
        async with self._changing:
            before = self._held.get((held.key, held.id))
            if draft:
                await self._blobs.keep(draft)
            await self._channel.write([("kept", held)])
            await self._forget([before.sha256] if before and before.sha256 else [])
        return await self.read(held)

    async def _drop(self, gone: Collection[Attachment]) -> None:
        await self._channel.write([("gone", RemovedAttachment(held.key, held.id)) for held in gone])
        await self._forget({held.sha256 for held in gone if held.sha256})

    def _apply(self, row: Row) -> None:
        match row.kind:
            case "kept":
                held = json.decode(row.data, type=Attachment)
                self._held[held.key, held.id] = held
            case "changed":
                self._change(json.decode(row.data, type=Attachment))
            case "gone":
                gone = json.decode(row.data, type=RemovedAttachment)
                self._held.pop((gone.key, gone.id), None)
            case _:
                pass  # Later versions may add kinds, and may share the store.

    def _change(self, now: Attachment) -> None:
        """Apply a change unless another server removed or replaced the attachment. Keep the later expiry."""
        name = now.key, now.id
        before = self._held.get(name)
        if before and (before.added, before.sha256) == (now.added, now.sha256):
            self._held[name] = replace(now, expires=max(before.expires, now.expires))

    async def _forget(self, sha256s: Collection[str]) -> None:
        """Delete those of the given bytes that no attachment uses."""
        loose = {*sha256s} - {held.sha256 for held in self._held.values()}
        await self._blobs.delete(loose)
        # A source of the server may have the same bytes.
        for sha256 in loose - {reading.sha256 for reading in self._engine.shared_sources}:
            await self._engine.discard(sha256)


def day_end(seconds: float) -> float:
    """Return the end of the day (UTC) that contains a time."""
    return (seconds // DAY + 1) * DAY


def iso(seconds: float) -> str:
    """Format a time as in DeepCitation's records."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _typed(content_type: str) -> str:
    return clean_name(content_type)[:_LONGEST_TYPE]


def _named(url: str) -> str:
    try:
        where = urlsplit(url)
        return clean_name(PurePath(unquote(where.path)).name) or clean_name(where.hostname or "") or "page"
    except ValueError:
        return "page"
