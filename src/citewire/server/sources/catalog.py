"""The sources of a server: uploaded, fetched or found in a folder, then read and indexed.

The channel `sources` lists the sources; their bytes are stored separately. A source that was acknowledged
survives a crash. Reading progress is not stored: sources are read again at the start, which is cheap if they
are cached. Servers that share a store have the same sources, and each reads them for itself.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Collection, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import unquote, urlsplit

from msgspec.structs import replace

from citewire.channels.actor import Actor
from citewire.channels.hub import Hub
from citewire.channels.lease import Leases, SingleProcessLeases
from citewire.channels.store import Cursor, Row
from citewire.documents.document import Document
from citewire.documents.draw import Crop
from citewire.documents.errors import DocumentError
from citewire.error_reports import report_error
from citewire.errors import CitewireError, Conflict, NotFound
from citewire.librarian import PassageIndex
from citewire.server.access.keys import Caller
from citewire.server.http.feed import Feed
from citewire.server.ops.settings import Settings
from citewire.server.ops.timestamps import now_iso
from citewire.server.sources.index_queue import IndexQueue
from citewire.server.sources.source import LiveSource, SourceChange, SourceRecord
from citewire.server.sources.source_watcher import SourceWatcher
from citewire.server.sources.stored_sources import (
    CHANNEL,
    LONGEST_NAME,
    CitedBytes,
    ForgottenThread,
    RemovedSource,
    SourceVersion,
    StoredSource,
    StoredSources,
    clean_name,
    safe_name,
    source_id_of,
)
from citewire.server.storage.blobs import NOT_KEPT, BlobDraft, Blobs
from citewire.server.storage.follower import ChannelFollower
from citewire.threadlog.names import run_channel
from citewire.verification.engine import Engine
from citewire.verification.lanes import CURRENT_ACCOUNT, SERVER_ACCOUNT
from citewire.verification.reader_pool import run_in_thread
from citewire.verification.source_reading import SourceReading
from citewire.verification.sources import SourceContent

if TYPE_CHECKING:
    from citewire.documents.fetch import FetchResult

__all__ = ["Catalog"]

_log = logging.getLogger("citewire.sources")
_T = TypeVar("_T")

# Seconds before unreferenced bytes are deleted, as a pending verdict may still refer to them; and seconds
# between two sweeps.
_GRACE, _EVERY = 600.0, 60.0
_SWEEP = "sweep:sources"
# Seconds to wait for sources to be read, before answering without them.
_WORTH_WAITING = 20.0
_LONGEST_TYPE = 200


class Catalog:
    """The sources: `async with Catalog(…) as catalog`. Tests may replace `fetch`."""

    def __init__(
        self,
        hub: Hub,
        blobs: Blobs,
        engine: Engine,
        index: PassageIndex,
        settings: Settings,
        *,
        leases: Leases | None = None,
        fetch: Callable[[str], FetchResult] | None = None,
    ) -> None:
        self._hub, self._engine, self._fetch = hub, engine, fetch
        self._blobs, self._leases, self._holdings = blobs, leases or SingleProcessLeases(), StoredSources()
        self._channel = ChannelFollower(hub, CHANNEL, self._apply, self._begin, self._settle)
        self._indexing = IndexQueue(index, engine)
        self.watch = SourceWatcher(self, settings, self._leases)
        self._live: dict[str, LiveSource] = {}
        # The source added last, and the account that added it.
        self._adding = "", SERVER_ACCOUNT
        # Sources with new rows in the log that are not applied to `_live` yet.
        self._news: dict[str, None] = {}
        self._feed: Feed[SourceChange] = Feed()
        # One change of this server at a time. The log decides the order relative to other servers' changes.
        self._changing = asyncio.Lock()
        self._citing: set[CitedBytes] = set()
        self._next_cite: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[Any]] = set()
        # Unreferenced bytes, and since when; and those that are already deleted.
        self._loose: dict[str, float] = {}
        self._gone: set[str] = set()
        self.deleted: Callable[[str], object] = lambda _: None
        """Called with the sha256 of deleted bytes."""
        self.position: Cursor | None = None
        """The cursor of the last row that added or removed a source."""

    async def __aenter__(self) -> Catalog:
        await self._blobs.open()
        await self._channel.catch_up()
        await self.watch.start()
        self._background = [
            asyncio.create_task(work)
            for work in (
                self._indexing.run(self._live.keys()), self._tidy(), self.watch.run(), self._channel.run(),
            )
        ]  # fmt: skip
        return self

    async def __aexit__(self, *_: object) -> None:
        self.end_events()
        indexing, *others = self._background
        for task in others:
            task.cancel()
        self._indexing.stop()
        await asyncio.gather(indexing, *others, *self._tasks, return_exceptions=True)

    # Listing and reading.

    def status(self) -> tuple[int, int]:
        """Return how many sources are still being read, and how many there are."""
        reading = sum(live.state in {"waiting", "reading"} for live in self._live.values())
        coming = len(self.watch.coming - self._live.keys())
        return reading + coming, len(self._live) + coming

    def records(self) -> list[SourceRecord]:
        """Return all sources, ordered by name."""
        return sorted((live.record() for live in self._live.values()), key=lambda record: record.name)

    def record(self, source_id: str) -> SourceRecord:
        """Return one source. Raises `NotFound`."""
        return self._known(source_id).record()

    async def find(self, source_id: str) -> SourceRecord:
        """Like `record`, but also finds a source that another server has just added."""
        return (await self._found(source_id)).record()

    def holdings(self) -> list[StoredSource]:
        """Return all sources as they are stored."""
        return list(self._holdings.sources.values())

    async def wait_until_read(self) -> None:
        """Wait until all sources are read, for at most 20 seconds."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_WORTH_WAITING), aclosing(self.changes()) as changes:
                async for _ in changes:
                    if not self.status()[0]:
                        return

    def changes(self) -> AsyncGenerator[Sequence[SourceChange] | None]:
        """Follow the changes from now on, see `Feed.follow`."""
        return self._feed.follow()

    def end_events(self) -> None:
        """End all streams of changes."""
        self._feed.close()

    async def text(self, source_id: str) -> Document:
        """Return a source's text. Raises `NotFound`, `DocumentError`, or `Conflict` while it is read."""
        live = await self._found(source_id)
        reading = live.read
        if live.reason is not None:
            raise DocumentError(live.reason)
        document = await run_in_thread(lambda: self._engine.get_document(reading, boxes=False))
        return document or await self._engine.load(await self._fetch_content(live.holding))

    async def picture(self, source_id: str, crop: Crop) -> bytes:
        """Render a page of a source. Raises the same errors as `text`."""
        live = await self._found(source_id)
        reading = live.read
        if reading.kind not in {"pdf", "image"}:
            raise NotFound("only PDFs and images have pages that can be looked at")
        if not 1 <= crop.page <= (reading.pages or 0):
            raise NotFound(f"there is no page {crop.page}")
        return await self.draw(live.holding.sha256 or "", crop)

    async def path(self, source_id: str) -> Path:
        """Return the path of the file with a source's bytes. Raises `NotFound`."""
        held = (await self._found(source_id)).holding
        path = await self._blobs.fetch(held.sha256) if held.sha256 else None
        if path is None:
            raise NotFound("there are no bytes of this source")
        return path

    # Versions that verdicts refer to.

    async def version_of(
        self, sha256: str, name: str | None
    ) -> tuple[StoredSource, StoredSource | None] | None:
        """See `StoredSources.version_of`. Also finds a source that another server has just added."""
        if sha256 not in self._holdings.known:
            await self._channel.catch_up()
        return self._holdings.version_of(sha256, name)

    def reading_of(self, held: StoredSource) -> SourceReading | None:
        """Return the reading of this version of a source, if it is the current one."""
        live = self._live.get(held.id)
        return live.reading if live and live.holding.sha256 == held.sha256 else None

    async def draw(self, sha256: str, crop: Crop) -> bytes:
        """Render a picture of these bytes. Raises `NotFound`, or `DocumentError` if they have no pages."""
        known = await self.version_of(sha256, None)
        if known is None:
            raise NotFound(NOT_KEPT)
        drawn = await self._engine.draw(await self._fetch_content(known[0]), crop, sha256)
        if drawn is None:
            raise DocumentError("it cannot be drawn, or its bytes are not those that were checked")
        return drawn

    async def mark_cited(self, sha256s: Collection[str], thread_id: str) -> None:
        """Retain these bytes as long as the thread exists: one of its verdicts refers to them."""
        if new := ({*sha256s} & self._holdings.known.keys()) - self._holdings.bytes_cited_by(thread_id):
            self._citing.update(CitedBytes(sha256, thread_id) for sha256 in new)
            self._next_cite = self._next_cite or self._started(self._cite())
            await asyncio.shield(self._next_cite)

    def needs(self, sha256: str) -> bool:
        """Return whether a source has these bytes, or a thread refers to them."""
        return self._holdings.needs(sha256)

    def threads_citing(self, source_id: str) -> dict[str, frozenset[str]]:
        """Return the threads that refer to a source, see `StoredSources`. Raises `NotFound`."""
        self._known(source_id)
        return self._holdings.threads_citing(source_id)

    async def forget_thread(self, thread_id: str) -> None:
        """Drop all references of a deleted thread."""
        await self._run_shielded(self._uncited(thread_id))

    async def sweep(self, grace: float = _GRACE) -> None:
        """Delete bytes that have been unreferenced for `grace` seconds."""
        async with self._changing:
            now, loose = asyncio.get_running_loop().time(), await self._unneeded()
            self._gone &= loose
            self._loose = {sha256: self._loose.get(sha256, now) for sha256 in loose - self._gone}
            await self._delete([sha256 for sha256, since in self._loose.items() if now - since >= grace])

    async def recover(self) -> None:
        """Delete leftovers of a crash: bytes without a source, and those that only deleted threads cite."""
        if await self._leases.take(_SWEEP):
            for thread_id in self._holdings.threads:
                if await self._hub.store.head(run_channel(thread_id)) is None:
                    await self.forget_thread(thread_id)
        async with self._changing:
            await self._delete(await self._unneeded())

    # Adding and removing.

    def check_room(self) -> None:
        """Raise `TooManyReads` if the caller has too many sources waiting to be read."""
        self._engine.check_read_quota()

    def draft(self) -> AbstractAsyncContextManager[BlobDraft]:
        """Open a draft for the bytes of a new source, see `Blobs.draft`."""
        return self._blobs.draft()

    async def upload(
        self, draft: BlobDraft, name: str, content_type: str, caller: Caller | None = None
    ) -> tuple[SourceRecord, bool]:
        """Like `keep`, for an upload. It replaces an earlier upload with the same name."""
        name = safe_name(name)
        kind = clean_name(content_type)[:_LONGEST_TYPE]
        return await self.keep(
            StoredSource(source_id_of("upload", name), name, "upload", now_iso(), content_type=kind),
            draft,
            caller,
        )

    async def fetch(
        self, url: str, *, given: bool = False, caller: Caller | None = None
    ) -> tuple[SourceRecord, bool]:
        """Like `keep`, for a URL. Raises `FetchError`, unless the URL comes from the settings."""
        held = StoredSource(source_id_of("url", url), _name_of(url), "url", now_iso(), url=url, given=given)
        try:
            came = await self._fetched(url)
        except DocumentError as exc:
            if not given:
                raise
            return await self.keep(replace(held, reason=report_error(exc, _log).message))
        also = (url,) if came.url != url else ()
        kind = clean_name(came.content_type or "")[:_LONGEST_TYPE]
        async with self._blobs.draft() as draft:
            await draft.write(came.data)
            return await self.keep(replace(held, url=came.url, also=also, content_type=kind), draft, caller)

    async def keep(
        self, held: StoredSource, draft: BlobDraft | None = None, caller: Caller | None = None
    ) -> tuple[SourceRecord, bool]:
        """Store a source with its bytes, if any, under a unique name. Returns whether its bytes are new.

        It is on disk when this returns, and is read afterwards. Without a caller, the server itself adds it.
        Raises `Forbidden` if it would replace a source and the caller may only add.
        """
        if draft:
            await draft.finish()
            held = replace(held, sha256=draft.sha256, size=draft.size)
            await self._blobs.share(draft)
            if held.origin == "upload":
                await self._engine.retry(draft.sha256)
        held = replace(held, by=caller.actor) if caller else held
        return await self._run_shielded(self._keep(held, draft, caller))

    async def remove(self, source_id: str, by: Actor | None = None) -> None:
        """Remove a source. Raises `NotFound`, or `Conflict` if the settings would add it again."""
        held = (await self._found(source_id)).holding
        if held.given and await self.watch.is_configured(held):
            raise Conflict("the settings of a server name it, or its folder: it can only go from there")
        await self.drop(source_id, by)

    async def drop(self, source_id: str, by: Actor | None = None) -> None:
        """Remove a source if it exists, whatever its origin."""
        await self._run_shielded(self._drop(source_id, by))

    async def versions(self, source_id: str) -> list[SourceVersion]:
        """Return all versions of a source, oldest first. Raises `NotFound`."""
        await self._channel.catch_up()
        if found := self._holdings.versions.get(source_id):
            return [*found]
        raise NotFound("there is no such source")

    # Internals.

    def _known(self, source_id: str) -> LiveSource:
        if live := self._live.get(source_id):
            return live
        raise NotFound("there is no such source")

    async def _found(self, source_id: str) -> LiveSource:
        if source_id not in self._live:
            await self._channel.catch_up()
        return self._known(source_id)

    def _given(self, held: StoredSource) -> SourceContent:
        return held.at_path(self._blobs.path(held.sha256 or ""))

    async def _fetch_content(self, held: StoredSource) -> SourceContent:
        """Like `_given`, but downloads the bytes first. Raises `NotFound`."""
        if await self._blobs.fetch(held.sha256 or "") is None:
            raise NotFound(NOT_KEPT)
        return self._given(held)

    async def _fetched(self, url: str) -> FetchResult:
        fetch = self._fetch
        if fetch is None:
            from citewire.documents.fetch import fetch  # noqa: PLC0415  # a sixth of a second, see HttpAgent
        return await run_in_thread(partial(fetch, url))

    async def _run_shielded(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Complete `work` even if the caller is cancelled, so that log and memory agree."""
        return await asyncio.shield(self._started(work))

    def _started(self, work: Coroutine[Any, Any, _T]) -> asyncio.Task[_T]:
        self._tasks.add(task := asyncio.create_task(work))
        task.add_done_callback(self._tasks.discard)
        return task

    async def _keep(
        self, held: StoredSource, draft: BlobDraft | None, caller: Caller | None
    ) -> tuple[SourceRecord, bool]:
        async with self._changing:
            await self._channel.catch_up()
            before = self._holdings.sources.get(held.id)
            # Any task may see the row first and start reading, so remember the caller's account.
            self._adding = held.id, CURRENT_ACCOUNT.get()
            held = replace(held, name=self._holdings.free_name(held.id, before.name if before else held.name))
            if caller and before and not held.is_same_source(before):
                caller.require("replace", f"source:{held.id}")
            if draft:
                await self._blobs.keep(draft)
            if before is None or not held.is_same_source(before):
                await self._replacing(before)
                await self._channel.write([("added", held)])
            elif held.origin == "upload":
                self._retry(held.id)
            # Another server may have removed it meanwhile.
            live = self._live.get(held.id) or LiveSource(held)
            return live.record(), before is None or before.sha256 != held.sha256

    async def _drop(self, source_id: str, by: Actor | None) -> None:
        async with self._changing:
            await self._channel.catch_up()
            if held := self._holdings.sources.get(source_id):
                await self._replacing(held)
                await self._channel.write([("removed", RemovedSource(source_id, now_iso(), by))])

    async def _replacing(self, before: StoredSource | None) -> None:
        """Retain the bytes that a source had so far for a while: a pending verdict may refer to them."""
        if before and before.sha256:
            await self._blobs.touch([before.sha256])

    async def _cite(self) -> None:
        """Write all queued citations in one append: many threads may start to cite at once."""
        async with self._changing:
            taken, self._citing, self._next_cite = self._citing, set(), None
            kept = await self._blobs.touch({each.sha256 for each in taken})
            await self._channel.write([("cited", each) for each in taken if each.sha256 in kept])

    async def _uncited(self, thread_id: str) -> None:
        async with self._changing:
            await self._channel.catch_up()
            if self._holdings.bytes_cited_by(thread_id):
                await self._channel.write([("uncited", ForgottenThread(thread_id))])

    # Applying the log.

    def _begin(self) -> None:
        self._holdings, self.position = StoredSources(), None
        self._news.update(dict.fromkeys(self._live))

    def _apply(self, row: Row) -> None:
        if source_id := self._holdings.apply(row):
            self.position = row.cursor
            self._news.pop(source_id, None)
            self._news[source_id] = None

    def _settle(self) -> None:
        news, self._news = self._news, {}
        for source_id in news:
            if held := self._holdings.sources.get(source_id):
                self._set(held)
            elif live := self._live.pop(source_id, None):
                self._stop_reading(live)
                self._feed.publish(SourceChange(source_id, None))

    def _set(self, held: StoredSource) -> None:
        """Start reading a source as it is stored now, unless it was read like this already."""
        before = self._live.get(held.id)
        if before and before.is_read_as(held):
            before.holding = held
            return
        live = self._live[held.id] = LiveSource(held)
        if held.sha256:
            given, bring = self._given(held), None
            if not self._blobs.path(held.sha256).is_file():
                bring = partial(self._blobs.ensure_local, held.sha256)
            account = self._adding[1] if self._adding[0] == held.id else SERVER_ACCOUNT
            live.reading = self._engine.add_source(given, partial(self._heard, live), bring, account)
        self._tell(live)
        if before:
            self._stop_reading(before)

    def _retry(self, source_id: str) -> None:
        """Read a source again that failed, since it was uploaded again."""
        live = self._live.get(source_id)
        if live and live.reading and live.reading.problem:
            del self._live[source_id]
            self._set(live.holding)
            self._stop_reading(live)

    def _stop_reading(self, live: LiveSource) -> None:
        self._indexing.remove(live.holding.id)
        if live.reading:
            self._engine.remove(live.reading)

    def _heard(self, live: LiveSource, reading: SourceReading) -> None:
        if reading.is_read and reading.key:
            self._indexing.add(live.holding.id, reading, partial(self._indexed, live))
        else:
            self._tell(live)

    def _indexed(self, live: LiveSource, problem: str | None) -> None:
        live.is_indexed, live.problem = True, problem
        if self._live.get(live.holding.id) is live:
            self._tell(live)

    def _tell(self, live: LiveSource) -> None:
        self._feed.publish(SourceChange(live.holding.id, live.record()))

    async def _tidy(self) -> None:
        """Delete what is unreferenced: first the leftovers of a crash, then at regular intervals."""
        step = self.recover
        while True:
            try:
                await step()
                step = self.sweep
            except CitewireError:
                _log.exception("bytes that nobody needs cannot be deleted now")
            await asyncio.sleep(_EVERY)

    async def _unneeded(self) -> set[str]:
        """Return the hashes of stored or formerly stored bytes without references."""
        kept = await self._blobs.list_hashes()
        # List first, then catch up: the log then has every reference to what was listed.
        await self._channel.catch_up()
        return {sha256 for sha256 in kept | self._holdings.known.keys() if not self._holdings.needs(sha256)}

    async def _delete(self, sha256s: Collection[str]) -> None:
        self._gone |= {*sha256s} - await self._blobs.delete(sha256s)
        for sha256 in sha256s:
            self.deleted(sha256)
            await self._engine.discard(sha256)


def _name_of(url: str) -> str:
    try:
        where = urlsplit(url)
    except ValueError:
        return "page"
    return (
        clean_name(unquote(where.path.rpartition("/")[2]))[:LONGEST_NAME]
        or clean_name(where.netloc)
        or "page"
    )
