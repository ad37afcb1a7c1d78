"""The sources of a server: what was uploaded, fetched or found in a folder, read, and searched.

What there is follows from the channel `sources`, and the bytes are beside it: a source that was acknowledged
is there after a crash. How far each was read is not kept: it is read again at the start, which costs next to
nothing where the cache has it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Collection, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar
from urllib.parse import unquote, urlsplit
from uuid import uuid4

from msgspec import Struct, field
from msgspec.structs import replace

from citewire import codec
from citewire.channels.hub import Hub
from citewire.channels.store import Entry
from citewire.documents.document import Document, Kind
from citewire.documents.draw import Crop
from citewire.documents.errors import DocumentError
from citewire.errors import CitewireError
from citewire.librarian import Index
from citewire.server.blobs import Blobs, Draft
from citewire.server.feed import Feed
from citewire.server.holdings import (
    CHANNEL,
    LONGEST_NAME,
    Cited,
    Holding,
    Holdings,
    Origin,
    Removed,
    Uncited,
    clean,
    id_of,
    now,
    safe_name,
)
from citewire.server.http import Conflict, NotFound
from citewire.server.indexing import Indexing
from citewire.server.journal import channel_of
from citewire.server.settings import Settings
from citewire.server.watch import Watch
from citewire.verification.engine import Engine, Reading
from citewire.verification.library import NO_TEXT
from citewire.verification.readers import in_thread
from citewire.verification.sources import Given

if TYPE_CHECKING:
    from citewire.documents.fetch import Fetched

__all__ = ["Catalog", "Change", "SourceList", "SourceRecord", "State"]

_log = logging.getLogger("citewire.sources")
_T = TypeVar("_T")

# Seconds for which bytes stay that nobody refers to, as a verdict that is being reached may do so in the end;
# and from one look for such bytes to the next.
_GRACE, _EVERY = 600.0, 60.0
# Seconds after which somebody who asked should rather be told that not all was read.
_WORTH_WAITING = 20.0
_PAGE = 1000
_LONGEST_TYPE = 200

State = Literal["waiting", "reading", "ready", "failed"]


class SourceRecord(Struct, frozen=True, rename="camel"):
    """A source as others see it. `reason` says why it failed."""

    id: str
    name: str
    origin: Origin = field(name="from")
    state: State
    reason: str | None
    added_at: str
    size: int
    sha256: str | None
    kind: Kind | None
    pages: int | None
    title: str | None
    url: str | None


class SourceList(Struct, frozen=True):
    """Sources by their names; how many of how many are still being read; and where the list goes on."""

    sources: list[SourceRecord]
    reading: int
    total: int
    next: str | None = None


class Change(Struct, frozen=True):
    """A source that is new or has changed, by its id; without a record it is gone."""

    id: str
    record: SourceRecord | None


class _Live:
    """A source as it is now: held, read as far as `reading` says, and in the index or not."""

    def __init__(self, holding: Holding) -> None:
        self.holding = holding
        self.reading: Reading | None = None
        self.is_indexed = False
        self.problem = holding.reason

    @property
    def reason(self) -> str | None:
        """Why it is of no use."""
        reading = self.reading
        if self.problem or reading is None:
            return self.problem
        if reading.problem:
            return reading.problem.message
        if reading.is_read and not reading.key:
            return reading.notes[0].message if reading.notes else NO_TEXT
        return None

    @property
    def state(self) -> State:
        """How far it is."""
        if self.reason is not None:
            return "failed"
        if self.is_indexed:
            return "ready"
        return "reading" if self.reading and self.reading.begun else "waiting"

    def record(self) -> SourceRecord:
        """As others see it."""
        held, reading = self.holding, self.reading
        return SourceRecord(
            held.id, held.name, held.origin, self.state, self.reason, held.added_at, held.size, held.sha256,
            *((reading.kind, reading.pages, reading.title) if reading else (None, None, None)), held.url,
        )  # fmt: skip


class Catalog:
    """The sources: `async with Catalog(…) as catalog`. `fetch` takes the place of the usual one in tests."""

    def __init__(
        self,
        hub: Hub,
        folder: Path,
        engine: Engine,
        index: Index,
        settings: Settings,
        *,
        fetch: Callable[[str], Fetched] | None = None,
    ) -> None:
        self._hub, self._engine, self._fetch = hub, engine, fetch
        self._blobs, self._holdings = Blobs(folder), Holdings()
        self._indexing = Indexing(index, engine)
        self.watch = Watch(self, settings)
        self._live: dict[str, _Live] = {}
        self._feed: Feed[Change] = Feed()
        # One change at a time, from the log to the memory: what is looked up under it stays as it is.
        self._changing = asyncio.Lock()
        self._citing: set[Cited] = set()
        self._next_cite: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[Any]] = set()
        # Bytes that nobody refers to, and since when.
        self._loose: dict[str, float] = {}

    async def __aenter__(self) -> Catalog:
        await self._blobs.open()
        cursor = None
        while rows := await self._hub.store.read(CHANNEL, cursor, _PAGE):
            for row in rows:
                self._holdings.apply(row)
            cursor = rows[-1].cursor
        for held in self._holdings.sources.values():
            self._set(held)
        await self.watch.start()
        self._background = [
            asyncio.create_task(work)
            for work in (self._indexing.run(self._live.keys()), self._tidy(), self.watch.run())
        ]
        return self

    async def __aexit__(self, *_: object) -> None:
        self.end_events()
        indexing, *others = self._background
        for task in others:
            task.cancel()
        self._indexing.stop()
        await asyncio.gather(indexing, *others, *self._tasks, return_exceptions=True)

    # What there is.

    def status(self) -> tuple[int, int]:
        """How many of how many sources are still being read."""
        reading = sum(live.state in {"waiting", "reading"} for live in self._live.values())
        coming = len(self.watch.coming - self._live.keys())
        return reading + coming, len(self._live) + coming

    def records(self) -> list[SourceRecord]:
        """All sources, by their names."""
        return sorted((live.record() for live in self._live.values()), key=lambda record: record.name)

    def record(self, source_id: str) -> SourceRecord:
        """One source. Raises `NotFound`."""
        return self._found(source_id).record()

    def holdings(self) -> list[Holding]:
        """All sources as they are kept."""
        return list(self._holdings.sources.values())

    async def read(self) -> None:
        """Wait until all was read, as long as somebody may be asked to wait for an answer."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_WORTH_WAITING), aclosing(self.changes()) as changes:
                async for _ in changes:
                    if not self.status()[0]:
                        return

    def changes(self) -> AsyncGenerator[Sequence[Change] | None]:
        """What changes from now on, see `Feed.follow`."""
        return self._feed.follow()

    def end_events(self) -> None:
        """End all who follow the changes."""
        self._feed.close()

    async def text(self, source_id: str) -> Document:
        """A source as it was read. Raises `NotFound`, `DocumentError`, and `Conflict` while it is read."""
        live = self._found(source_id)
        reading = _read(live)
        if live.reason is not None:
            raise DocumentError(live.reason)
        document = await in_thread(lambda: self._engine.document(reading, boxes=False))
        return document or await self._engine.load(self._given(live.holding))

    async def picture(self, source_id: str, crop: Crop) -> bytes:
        """A page of a source. Raises as `text`."""
        live = self._found(source_id)
        reading = _read(live)
        if reading.kind not in {"pdf", "image"}:
            raise NotFound("only PDFs and images have pages that can be looked at")
        if not 1 <= crop.page <= (reading.pages or 0):
            raise NotFound(f"there is no page {crop.page}")
        return await self.draw(live.holding.sha256 or "", crop)

    def path(self, source_id: str) -> Path:
        """The file with the bytes of a source. Raises `NotFound`."""
        held = self._found(source_id).holding
        path = self._blobs.path(held.sha256) if held.sha256 else None
        if path is None or not path.is_file():
            raise NotFound("there are no bytes of this source")
        return path

    # What verdicts refer to.

    async def document(self, sha256: str) -> Document | None:
        """What these bytes say; None where they are not kept, or cannot be read."""
        held = self._holdings.known.get(sha256)
        if held is None:
            return None
        live = self._live.get(held.id)
        if live and (reading := live.reading) and live.holding.sha256 == sha256:
            document = await in_thread(lambda: self._engine.document(reading))
            if document:
                return document
        with suppress(DocumentError):
            return await self._engine.load(self._given(held))
        return None

    async def draw(self, sha256: str, crop: Crop) -> bytes:
        """A picture of what these bytes are. Raises `NotFound`; `DocumentError` where they have no looks."""
        held = self._holdings.known.get(sha256)
        if held is None:
            raise NotFound("the source is not kept any more")
        drawn = await self._engine.draw(self._given(held), crop, sha256)
        if drawn is None:
            raise DocumentError("it cannot be drawn")
        return drawn

    async def cited(self, sha256s: Collection[str], thread_id: str) -> None:
        """Keep these bytes as long as the thread is there: a verdict of it refers to them."""
        if new := ({*sha256s} & self._holdings.known.keys()) - self._holdings.cites(thread_id):
            self._citing.update(Cited(sha256, thread_id) for sha256 in new)
            self._next_cite = self._next_cite or self._started(self._cite())
            await asyncio.shield(self._next_cite)

    def citing(self, source_id: str) -> dict[str, frozenset[str]]:
        """The threads that refer to a source, see `Holdings`. Raises `NotFound`."""
        self._found(source_id)
        return self._holdings.citing(source_id)

    async def forget_thread(self, thread_id: str) -> None:
        """The thread is gone, and refers to nothing any more."""
        await self._whole(self._uncited(thread_id))

    async def sweep(self, grace: float = _GRACE) -> None:
        """Delete bytes that nobody has referred to for so many seconds."""
        async with self._changing:
            now, holdings = asyncio.get_running_loop().time(), self._holdings
            loose = [sha256 for sha256 in holdings.known if not holdings.needs(sha256)]
            self._loose = {sha256: self._loose.get(sha256, now) for sha256 in loose}
            await self._delete([sha256 for sha256, since in self._loose.items() if now - since >= grace])

    async def recover(self) -> None:
        """Delete what a crash has left: bytes of no source, and those that only threads of the past cite."""
        for thread_id in self._holdings.threads:
            if await self._hub.store.head(channel_of(thread_id)) is None:
                await self.forget_thread(thread_id)
        async with self._changing:
            kept = {*self._holdings.known, *await self._blobs.kept()}
            await self._delete([sha256 for sha256 in kept if not self._holdings.needs(sha256)])

    # What comes and goes.

    def draft(self) -> AbstractAsyncContextManager[Draft]:
        """Room for the bytes of a source that comes, see `Blobs.draft`."""
        return self._blobs.draft()

    async def upload(self, draft: Draft, name: str, content_type: str) -> tuple[SourceRecord, bool]:
        """As `keep`, of what somebody sent, in place of what was sent under the same name before."""
        name = safe_name(name)
        kind = clean(content_type)[:_LONGEST_TYPE]
        return await self.keep(
            Holding(id_of("upload", name), name, "upload", now(), content_type=kind), draft
        )

    async def fetch(self, url: str, *, given: bool = False) -> tuple[SourceRecord, bool]:
        """As `keep`, of what is at a URL. Raises `FetchError`, but for one that the settings have given."""
        held = Holding(id_of("url", url), _name_of(url), "url", now(), url=url, given=given)
        try:
            came = await self._fetched(url)
        except DocumentError as exc:
            if not given:
                raise
            return await self.keep(replace(held, reason=exc.message))
        also = (url,) if came.url != url else ()
        kind = clean(came.content_type or "")[:_LONGEST_TYPE]
        async with self._blobs.draft() as draft:
            await draft.write(came.data)
            return await self.keep(replace(held, url=came.url, also=also, content_type=kind), draft)

    async def keep(self, held: Holding, draft: Draft | None = None) -> tuple[SourceRecord, bool]:
        """Keep a source with these bytes, or none, under a name of its own; and whether they are new to it.

        When it returns it is on the disk. It is read afterwards.
        """
        if draft:
            await draft.done()
            held = replace(held, sha256=draft.sha256, size=draft.size)
        return await self._whole(self._keep(held, draft))

    async def remove(self, source_id: str) -> None:
        """Take a source out. Raises `NotFound`, and `Conflict` where it would come back by itself."""
        if self._found(source_id).holding.given:
            raise Conflict("the settings of the server name it, or its folder: it can only go from there")
        await self.drop(source_id)

    async def drop(self, source_id: str) -> None:
        """Take a source out, if it is there, whoever gave it."""
        await self._whole(self._drop(source_id))

    # How.

    def _found(self, source_id: str) -> _Live:
        if live := self._live.get(source_id):
            return live
        raise NotFound("there is no such source")

    def _given(self, held: Holding) -> Given:
        path = self._blobs.path(held.sha256 or "")
        return Given(path, held.name, held.url, None, (held.id, *held.also), held.content_type)

    async def _fetched(self, url: str) -> Fetched:
        fetch = self._fetch
        if fetch is None:
            from citewire.documents.fetch import fetch  # noqa: PLC0415  # a sixth of a second, see HttpAgent
        return await in_thread(partial(fetch, url))

    async def _whole(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Done to the end, also when the caller leaves: what is in the log is in the memory too."""
        return await asyncio.shield(self._started(work))

    def _started(self, work: Coroutine[Any, Any, _T]) -> asyncio.Task[_T]:
        self._tasks.add(task := asyncio.create_task(work))
        task.add_done_callback(self._tasks.discard)
        return task

    async def _keep(self, held: Holding, draft: Draft | None) -> tuple[SourceRecord, bool]:
        async with self._changing:
            before = self._holdings.sources.get(held.id)
            held = replace(held, name=self._holdings.free_name(held.id, before.name if before else held.name))
            if draft:
                await self._blobs.keep(draft)
            if before is None or replace(held, added_at=before.added_at) != before:
                await self._write([("added", held)])
                self._set(held)
            return self._live[held.id].record(), before is None or before.sha256 != held.sha256

    async def _drop(self, source_id: str) -> None:
        async with self._changing:
            if source_id not in self._live:
                return
            await self._write([("removed", Removed(source_id))])
            self._unread(self._live.pop(source_id))
            self._feed.tell(Change(source_id, None))

    async def _cite(self) -> None:
        """What came until its turn goes into one append: many threads may begin to cite at once."""
        async with self._changing:
            taken, self._citing, self._next_cite = self._citing, set(), None
            await self._write([("cited", each) for each in taken])

    async def _uncited(self, thread_id: str) -> None:
        async with self._changing:
            if self._holdings.cites(thread_id):
                await self._write([("uncited", Uncited(thread_id))])

    async def _write(self, rows: Collection[tuple[str, Struct]]) -> None:
        entries = [Entry(uuid4().hex, kind, codec.encode(data)) for kind, data in rows]
        if entries:
            for row in await self._hub.append(CHANNEL, entries):
                self._holdings.apply(row)

    def _set(self, held: Holding) -> None:
        """Have a source read as it is held now, unless it was."""
        before = self._live.get(held.id)
        if before and before.reading and _as_read(before.holding) == _as_read(held):
            before.holding = held
            return
        live = self._live[held.id] = _Live(held)
        if held.sha256:
            live.reading = self._engine.take(self._given(held), partial(self._heard, live))
        self._tell(live)
        if before:
            self._unread(before)

    def _unread(self, live: _Live) -> None:
        self._indexing.remove(live.holding.id)
        if live.reading:
            self._engine.remove(live.reading)

    def _heard(self, live: _Live, reading: Reading) -> None:
        if reading.is_read and reading.key:
            self._indexing.add(live.holding.id, reading, partial(self._indexed, live))
        else:
            self._tell(live)

    def _indexed(self, live: _Live, problem: str | None) -> None:
        live.is_indexed, live.problem = True, problem
        if self._live.get(live.holding.id) is live:
            self._tell(live)

    def _tell(self, live: _Live) -> None:
        self._feed.tell(Change(live.holding.id, live.record()))

    async def _tidy(self) -> None:
        """Forget what nobody refers to: first what a crash has left, then whatever comes to be so."""
        step = self.recover
        while True:
            try:
                await step()
                step = self.sweep
            except CitewireError:
                _log.exception("bytes that nobody needs cannot be deleted now")
            await asyncio.sleep(_EVERY)

    async def _delete(self, sha256s: Collection[str]) -> None:
        await self._blobs.delete(sha256s)
        for sha256 in sha256s:
            self._holdings.known.pop(sha256, None)
            self._loose.pop(sha256, None)
            await self._engine.discard(sha256)


def _name_of(url: str) -> str:
    try:
        where = urlsplit(url)
    except ValueError:
        return "page"
    return clean(unquote(where.path.rpartition("/")[2]))[:LONGEST_NAME] or clean(where.netloc) or "page"


def _as_read(held: Holding) -> tuple[Any, ...]:
    """All that reading it depends on."""
    return held.sha256, held.content_type, held.name, held.url, held.also


def _read(live: _Live) -> Reading:
    """How a source was read. Raises `DocumentError` where it was not, and `Conflict` where it is not yet."""
    reading = live.reading
    if reading is None or reading.problem:
        raise DocumentError(live.reason or "it cannot be read")
    if not reading.is_read:
        raise Conflict("it is still being read")
    return reading
