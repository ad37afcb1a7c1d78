"""The sources of a server: what was uploaded, fetched or found in a folder, read, and searched.

What there is follows from the channel `sources`, and the bytes are beside it: a source that was acknowledged
is there after a crash. How far each was read is not kept: it is read again at the start, which costs next to
nothing where the cache has it. Servers that share a store have the same sources, and each reads for itself.
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

from citewire.audit.thread_fold import channel_of
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
    now_iso,
    safe_name,
    source_id_of,
)
from citewire.server.storage.blobs import NOT_KEPT, BlobDraft, Blobs
from citewire.server.storage.follower import ChannelFollower
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

# Seconds for which bytes stay that nobody refers to, as a verdict that is being reached may do so in the end;
# and from one look for such bytes to the next.
_GRACE, _EVERY = 600.0, 60.0
_SWEEP = "sweep:sources"
# Seconds after which somebody who asked should rather be told that not all was read.
_WORTH_WAITING = 20.0
_LONGEST_TYPE = 200


class Catalog:
    """The sources: `async with Catalog(…) as catalog`. `fetch` takes the place of the usual one in tests."""

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
        # The source that was added last, and the account of whoever did.
        self._adding = "", SERVER_ACCOUNT
        # Of which the log has told something that is not in `_live` yet.
        self._news: dict[str, None] = {}
        self._feed: Feed[SourceChange] = Feed()
        # One change of ours at a time: of what others change meanwhile, the log says whether it came first.
        self._changing = asyncio.Lock()
        self._citing: set[CitedBytes] = set()
        self._next_cite: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[Any]] = set()
        # Bytes that nobody refers to, and since when; and those of them that are gone.
        self._loose: dict[str, float] = {}
        self._gone: set[str] = set()
        self.deleted: Callable[[str], object] = lambda _: None
        """Told of bytes that were deleted, by their sha256."""
        self.position: Cursor | None = None
        """The last row of the log that says anything of which sources there are."""

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
        return self._known(source_id).record()

    async def find(self, source_id: str) -> SourceRecord:
        """As `record`, also of one that another server has just added."""
        return (await self._found(source_id)).record()

    def holdings(self) -> list[StoredSource]:
        """All sources as they are kept."""
        return list(self._holdings.sources.values())

    async def wait_until_read(self) -> None:
        """Wait until all was read, as long as somebody may be asked to wait for an answer."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_WORTH_WAITING), aclosing(self.changes()) as changes:
                async for _ in changes:
                    if not self.status()[0]:
                        return

    def changes(self) -> AsyncGenerator[Sequence[SourceChange] | None]:
        """What changes from now on, see `Feed.follow`."""
        return self._feed.follow()

    def end_events(self) -> None:
        """End all who follow the changes."""
        self._feed.close()

    async def text(self, source_id: str) -> Document:
        """A source as it was read. Raises `NotFound`, `DocumentError`, and `Conflict` while it is read."""
        live = await self._found(source_id)
        reading = live.read
        if live.reason is not None:
            raise DocumentError(live.reason)
        document = await run_in_thread(lambda: self._engine.get_document(reading, boxes=False))
        return document or await self._engine.load(await self._brought(live.holding))

    async def picture(self, source_id: str, crop: Crop) -> bytes:
        """A page of a source. Raises as `text`."""
        live = await self._found(source_id)
        reading = live.read
        if reading.kind not in {"pdf", "image"}:
            raise NotFound("only PDFs and images have pages that can be looked at")
        if not 1 <= crop.page <= (reading.pages or 0):
            raise NotFound(f"there is no page {crop.page}")
        return await self.draw(live.holding.sha256 or "", crop)

    async def path(self, source_id: str) -> Path:
        """The file with the bytes of a source. Raises `NotFound`."""
        held = (await self._found(source_id)).holding
        path = await self._blobs.fetch(held.sha256) if held.sha256 else None
        if path is None:
            raise NotFound("there are no bytes of this source")
        return path

    # What verdicts refer to.

    async def version_of(
        self, sha256: str, name: str | None
    ) -> tuple[StoredSource, StoredSource | None] | None:
        """See `Holdings.version_of`; also of a source that another server has just added."""
        if sha256 not in self._holdings.known:
            await self._channel.catch_up()
        return self._holdings.version_of(sha256, name)

    def reading_of(self, held: StoredSource) -> SourceReading | None:
        """How this version of a source was read, if it is the current one."""
        live = self._live.get(held.id)
        return live.reading if live and live.holding.sha256 == held.sha256 else None

    async def draw(self, sha256: str, crop: Crop) -> bytes:
        """A picture of what these bytes are. Raises `NotFound`; `DocumentError` where they have no looks."""
        known = await self.version_of(sha256, None)
        if known is None:
            raise NotFound(NOT_KEPT)
        drawn = await self._engine.draw(await self._brought(known[0]), crop, sha256)
        if drawn is None:
            raise DocumentError("it cannot be drawn, or its bytes are not those that were checked")
        return drawn

    async def mark_cited(self, sha256s: Collection[str], thread_id: str) -> None:
        """Keep these bytes as long as the thread is there: a verdict of it refers to them."""
        if new := ({*sha256s} & self._holdings.known.keys()) - self._holdings.bytes_cited_by(thread_id):
            self._citing.update(CitedBytes(sha256, thread_id) for sha256 in new)
            self._next_cite = self._next_cite or self._started(self._cite())
            await asyncio.shield(self._next_cite)

    def needs(self, sha256: str) -> bool:
        """Whether a source has these bytes, or a thread refers to them."""
        return self._holdings.needs(sha256)

    def threads_citing(self, source_id: str) -> dict[str, frozenset[str]]:
        """The threads that refer to a source, see `Holdings`. Raises `NotFound`."""
        self._known(source_id)
        return self._holdings.threads_citing(source_id)

    async def forget_thread(self, thread_id: str) -> None:
        """The thread is gone, and refers to nothing any more."""
        await self._whole(self._uncited(thread_id))

    async def sweep(self, grace: float = _GRACE) -> None:
        """Delete bytes that nobody has referred to for so many seconds."""
        async with self._changing:
            now, loose = asyncio.get_running_loop().time(), await self._unneeded()
            self._gone &= loose
            self._loose = {sha256: self._loose.get(sha256, now) for sha256 in loose - self._gone}
            await self._delete([sha256 for sha256, since in self._loose.items() if now - since >= grace])

    async def recover(self) -> None:
        """Delete what a crash has left: bytes of no source, and those that only threads of the past cite."""
        if await self._leases.take(_SWEEP):
            for thread_id in self._holdings.threads:
                if await self._hub.store.head(channel_of(thread_id)) is None:
                    await self.forget_thread(thread_id)
        async with self._changing:
            await self._delete(await self._unneeded())

    # What comes and goes.

    def check_room(self) -> None:
        """Raise `TooManyReads` where the caller has as many sources waiting to be read as it may have."""
        self._engine.check_read_quota()

    def draft(self) -> AbstractAsyncContextManager[BlobDraft]:
        """Room for the bytes of a source that comes, see `Blobs.draft`."""
        return self._blobs.draft()

    async def upload(
        self, draft: BlobDraft, name: str, content_type: str, caller: Caller | None = None
    ) -> tuple[SourceRecord, bool]:
        """As `keep`, of what somebody sent, in place of what was sent under the same name before."""
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
        """As `keep`, of what is at a URL. Raises `FetchError`, but for one that the settings have given."""
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
        """Keep a source with these bytes, or none, under a name of its own; and whether they are new to it.

        When it returns it is on the disk. It is read afterwards. Without a caller the server does it itself.
        Raises `Forbidden` where it would replace a source, and the caller may only add.
        """
        if draft:
            await draft.finish()
            held = replace(held, sha256=draft.sha256, size=draft.size)
            await self._blobs.share(draft)
            if held.origin == "upload":
                await self._engine.retry(draft.sha256)
        held = replace(held, by=caller.actor) if caller else held
        return await self._whole(self._keep(held, draft, caller))

    async def remove(self, source_id: str, by: Actor | None = None) -> None:
        """Take a source out. Raises `NotFound`, and `Conflict` where it would come back by itself."""
        held = (await self._found(source_id)).holding
        if held.given and await self.watch.is_configured(held):
            raise Conflict("the settings of a server name it, or its folder: it can only go from there")
        await self.drop(source_id, by)

    async def drop(self, source_id: str, by: Actor | None = None) -> None:
        """Take a source out, if it is there, whoever gave it."""
        await self._whole(self._drop(source_id, by))

    async def versions(self, source_id: str) -> list[SourceVersion]:
        """All that a source ever was, the oldest first. Raises `NotFound`."""
        await self._channel.catch_up()
        if found := self._holdings.versions.get(source_id):
            return [*found]
        raise NotFound("there is no such source")

    # How.

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

    async def _brought(self, held: StoredSource) -> SourceContent:
        """As `_given`, with the bytes here. Raises `NotFound`."""
        if await self._blobs.fetch(held.sha256 or "") is None:
            raise NotFound(NOT_KEPT)
        return self._given(held)

    async def _fetched(self, url: str) -> FetchResult:
        fetch = self._fetch
        if fetch is None:
            from citewire.documents.fetch import fetch  # noqa: PLC0415  # a sixth of a second, see HttpAgent
        return await run_in_thread(partial(fetch, url))

    async def _whole(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Done to the end, also when the caller leaves: what is in the log is in the memory too."""
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
            # Whoever hears of it first has it read, and not always on behalf of the caller.
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
            # Another server may have removed it by now.
            live = self._live.get(held.id) or LiveSource(held)
            return live.record(), before is None or before.sha256 != held.sha256

    async def _drop(self, source_id: str, by: Actor | None) -> None:
        async with self._changing:
            await self._channel.catch_up()
            if held := self._holdings.sources.get(source_id):
                await self._replacing(held)
                await self._channel.write([("removed", RemovedSource(source_id, now_iso(), by))])

    async def _replacing(self, before: StoredSource | None) -> None:
        """The bytes that a source had so far stay for a while: a verdict may be on its way."""
        if before and before.sha256:
            await self._blobs.touch([before.sha256])

    async def _cite(self) -> None:
        """What came until its turn goes into one append: many threads may begin to cite at once."""
        async with self._changing:
            taken, self._citing, self._next_cite = self._citing, set(), None
            kept = await self._blobs.touch({each.sha256 for each in taken})
            await self._channel.write([("cited", each) for each in taken if each.sha256 in kept])

    async def _uncited(self, thread_id: str) -> None:
        async with self._changing:
            await self._channel.catch_up()
            if self._holdings.bytes_cited_by(thread_id):
                await self._channel.write([("uncited", ForgottenThread(thread_id))])

    # What the log says.

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
                self._unread(live)
                self._feed.publish(SourceChange(source_id, None))

    def _set(self, held: StoredSource) -> None:
        """Have a source read as it is held now, unless it was."""
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
            self._unread(before)

    def _retry(self, source_id: str) -> None:
        """Read a source anew that could not be read: somebody has sent it again."""
        live = self._live.get(source_id)
        if live and live.reading and live.reading.problem:
            del self._live[source_id]
            self._set(live.holding)
            self._unread(live)

    def _unread(self, live: LiveSource) -> None:
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
        """Forget what nobody refers to: first what a crash has left, then whatever comes to be so."""
        step = self.recover
        while True:
            try:
                await step()
                step = self.sweep
            except CitewireError:
                _log.exception("bytes that nobody needs cannot be deleted now")
            await asyncio.sleep(_EVERY)

    async def _unneeded(self) -> set[str]:
        """Bytes that are or were kept, and that nobody refers to."""
        kept = await self._blobs.list_hashes()
        # What was kept by now, and is needed, the log says by now.
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
