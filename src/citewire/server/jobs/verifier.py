"""The verifier of a node whose quotes are checked by workers: it enqueues questions and awaits verdicts."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Collection, Iterable, Iterator, Sequence
from contextlib import aclosing, suppress
from typing import Self

from msgspec.structs import replace

from citewire.channels.store import Cursor, StoreError
from citewire.documents.document import Document
from citewire.documents.draw import ImageFormat
from citewire.errors import InputError
from citewire.server.jobs.cancellation import cancel_until_done
from citewire.server.jobs.question import (
    AttachedSource,
    JobQuestion,
    Manifest,
    key_of,
    read,
    sha256_of,
    write,
)
from citewire.server.jobs.queue import JobQueue
from citewire.verification.document_set import CheckResult
from citewire.verification.engine import Engine
from citewire.verification.reader_pool import run_in_thread
from citewire.verification.sources import (
    SourceContent,
    SourceInput,
    SourceItem,
    SourceUrl,
    iter_sources,
    read_original,
)
from citewire.verification.verifier import QuoteCheck, check_concurrently

__all__ = ["JobVerifier"]

_log = logging.getLogger("citewire.jobs")

# Quotes that one call has in progress; quotes in one job, and their bytes together.
_WAITING, _BATCH, _BATCH_BYTES = 1024, 32, 1 << 20
# Seconds: between two polls of pending questions, as a notification may be lost; between two checks for
# workers while idle; before a retry after a failure; between two warnings; and between two touches of the
# attachments of this node's runs.
_POLL, _IDLE, _AGAIN, _WARN, _TOUCH = 1.0, 10.0, 1.0, 60.0, 60.0
# Seconds that the database may take to delete a run's data.
_FORGETTING = 5.0
_CLOSED = "the verifier was closed"


class _PendingQuestion:
    """A question with at least one waiting asker."""

    def __init__(self, question: bytes) -> None:
        self.question, self.askers = question, 0
        self.verdict: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()


class _RunSources:
    """The attachments of a run as sent to workers, and those not stored in the database yet."""

    def __init__(self) -> None:
        self.handed: tuple[AttachedSource, ...] = ()
        self.unsent: dict[str, bytes] = {}
        # By whether only the attachments are searched. Cleared when more are added.
        self.manifests: dict[bool, str] = {}
        # The keys of questions about these attachments.
        self.keys: set[str] = set()


class JobVerifier:
    """A `Verifier`: `async with JobVerifier(queue, engine, position) as verifier`.

    `position` returns the cursor up to which this node has read the log of sources; workers use that state or
    a later one. Quotes have no deadline: the caller has one, and asks again later. Pictures are rendered by
    the node's `engine`. `backlog` is called at intervals with the number of waiting jobs and of workers.
    """

    def __init__(
        self,
        queue: JobQueue,
        engine: Engine,
        position: Callable[[], Cursor | None],
        backlog: Callable[[int, int], object] = lambda _, __: None,
    ) -> None:
        self._queue, self._engine, self._position, self._backlog = queue, engine, position, backlog
        self._scopes: dict[str | None, _RunSources] = {None: _RunSources()}
        self._waiting: dict[str, _PendingQuestion] = {}
        # Questions to look up at once.
        self._news: set[str] = set()
        self._wakeup = asyncio.Event()
        self._warned = -_WARN
        self._touched = 0.0

    async def __aenter__(self) -> Self:
        self._tasks = [asyncio.create_task(work) for work in (self._ask(), self._listen())]
        return self

    async def __aexit__(self, *_: object) -> None:
        await cancel_until_done(self._tasks)
        for waiting in self._waiting.values():
            if not waiting.verdict.done():
                waiting.verdict.set_result(write(CheckResult(None, "skipped", _CLOSED)))

    async def check(
        self, quotes: Iterable[QuoteCheck] | AsyncIterable[QuoteCheck]
    ) -> AsyncGenerator[CheckResult]:
        """See `Verifier`."""
        async with aclosing(check_concurrently(quotes, self._checked, _WAITING)) as results:
            async for checked in results:
                yield checked

    async def add(self, *sources: SourceInput, scope: str | None = None) -> None:
        """See `Verifier`. URLs are fetched by a worker."""
        contents = await run_in_thread(
            lambda: [(listed, _content(listed)) for listed in iter_sources(sources)]
        )
        along = self._scopes.setdefault(scope, _RunSources())
        for listed, content in contents:
            handed = _handed(listed, content)
            if handed.sha256 and content is not None:
                along.unsent[handed.sha256] = content
            along.handed += (handed,)
        for each in self._scopes.values():
            each.manifests.clear()
        # Text has no pictures, so the engine needs the other sources only.
        await self._engine.add(*(each for each in sources if _may_have_pictures(each)), scope=scope)

    async def forget(self, scope: str) -> None:
        """See `Verifier`. Also deletes from the database; if that is unreachable, a later tidy does."""
        along = self._scopes.pop(scope, None)
        await self._engine.forget(scope)
        if along and (along.handed or along.keys):
            try:
                async with asyncio.timeout(_FORGETTING):
                    await self._queue.forget(scope, along.keys)
            except (StoreError, TimeoutError) as exc:
                _log.warning("what came with a run is not deleted yet: %s", exc or "the database is slow")

    async def pictures(self, found: Sequence[CheckResult], form: ImageFormat) -> list[bytes | None]:
        """See `Verifier`."""
        return await self._engine.pictures(found, form)

    async def prewarm(self) -> None:
        """See `Verifier`. Does nothing: workers always read the sources in advance."""

    async def _checked(self, asked: QuoteCheck) -> CheckResult:
        given = self._given(asked)
        data = write(JobQuestion.of(asked, given, self._position()))
        key = key_of(data)
        if given and asked.scope in self._scopes:
            self._scopes[asked.scope].keys.add(key)
        waiting = self._waiting.get(key)
        if waiting is None:
            waiting = self._waiting[key] = _PendingQuestion(data)
            self._tell([key])
        waiting.askers += 1
        try:
            checked = read(await asyncio.shield(waiting.verdict), CheckResult)
        except InputError as exc:
            checked = CheckResult(None, "skipped", f"the verdict cannot be read: {exc.message}")
        finally:
            waiting.askers -= 1
            if not waiting.askers:
                self._waiting.pop(key, None)
        return replace(checked, id=asked.id, quote=asked.quote)

    def _given(self, asked: QuoteCheck) -> str | None:
        """Return the sha256 of the manifest of attachments to search, or None."""
        own = self._scopes.get(asked.scope) if asked.scope else None
        along = own or self._scopes[None]
        if asked.alone not in along.manifests:
            ours = () if asked.alone else self._scopes[None].handed
            handed = ours if own is None else (*ours, *own.handed)
            if not handed:
                return None
            is_fixed = all(each.sha256 for each in handed)
            manifest = write(Manifest(handed, None if is_fixed else asked.scope))
            along.manifests[asked.alone] = sha256_of(manifest)
            along.unsent[along.manifests[asked.alone]] = manifest
        return along.manifests[asked.alone]

    def _tell(self, keys: Collection[str]) -> None:
        self._news.update(keys)
        self._wakeup.set()

    async def _ask(self) -> None:
        """Enqueue new questions and collect verdicts."""
        loop, polled = asyncio.get_running_loop(), 0.0
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(_POLL if self._waiting else _IDLE):
                    await self._wakeup.wait()
            self._wakeup.clear()
            keys, self._news = self._news, set()
            try:
                if loop.time() - polled >= _POLL:
                    polled, keys = loop.time(), {*self._waiting}
                    await self._watch()
                await self._step([key for key in keys if key in self._waiting])
            except Exception as exc:  # noqa: BLE001  # the root of a task: who waits is not left waiting for ever
                _log.warning("quotes wait: %s", exc, exc_info=not isinstance(exc, StoreError))
                polled = 0.0
                await asyncio.sleep(_AGAIN)
                self._wakeup.set()

    async def _step(self, keys: Sequence[str]) -> None:
        if not keys:
            return
        for scope, along in [each for each in self._scopes.items() if each[1].unsent]:
            sending = dict(along.unsent)
            await self._queue.store_contents(scope or "", sending)
            along.unsent = {name: data for name, data in along.unsent.items() if name not in sending}
            if scope and scope not in self._scopes:
                # The run was forgotten meanwhile.
                await self._queue.forget(scope, along.keys)
        known = await self._queue.find_verdicts(keys)
        for key, data in known.items():
            waiting = self._waiting.get(key)
            if data is not None and waiting and not waiting.verdict.done():
                waiting.verdict.set_result(data)
        new = {key: self._waiting[key].question for key in keys if key not in known and key in self._waiting}
        for batch in _batches(new):
            await self._queue.enqueue({key: new[key] for key in batch})

    async def _watch(self) -> None:
        """Report the backlog, touch this node's attachments, and warn if no worker is alive."""
        jobs, workers = await self._queue.backlog()
        self._backlog(jobs, workers)
        if (beat := asyncio.get_running_loop().time()) - self._touched >= _TOUCH:
            self._touched = beat
            await self._queue.touch([scope or "" for scope in self._scopes])
            await self._queue.tidy()
        waiting, now = len(self._waiting), asyncio.get_running_loop().time()
        if waiting and jobs and not workers and now - self._warned >= _WARN:
            self._warned = now
            _log.warning("%d quotes wait, and no worker is alive: start `citewire worker`", waiting)

    async def _listen(self) -> None:
        while True:
            with suppress(StoreError):
                async with aclosing(self._queue.follow_verdicts()) as told:
                    async for keys in told:
                        if mine := [key for key in keys or self._waiting if key in self._waiting]:
                            self._tell(mine)
            await asyncio.sleep(_AGAIN)


def _batches(questions: dict[str, bytes]) -> Iterator[list[str]]:
    """Split questions into batches of limited number and size, one per job."""
    batch: list[str] = []
    size = 0
    for key, question in questions.items():
        if batch and (len(batch) >= _BATCH or size + len(question) > _BATCH_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(key)
        size += len(question)
    if batch:
        yield batch


def _content(listed: SourceItem) -> bytes | None:
    """Return the bytes of a source, or None if they have to be fetched."""
    if isinstance(listed.source, str):
        return None
    text = _text(listed.source)
    return read_original(listed) or b"" if text is None else text.encode("utf-8", "replace")


def _text(source: object) -> str | None:
    if isinstance(source, Document):
        return source.text
    return source.content if isinstance(source, SourceContent) and isinstance(source.content, str) else None


def _handed(listed: SourceItem, content: bytes | None) -> AttachedSource:
    source, sha256 = listed.source, None if content is None else sha256_of(content)
    match source:
        case SourceContent():
            is_text, also, kind = isinstance(source.content, str), source.also, source.content_type
            return AttachedSource(
                listed.name, sha256, is_text, source.url, source.title, also, kind, source.origin
            )
        case Document():
            return AttachedSource(listed.name, sha256, True, source.url, source.title)
        case str():
            return AttachedSource(listed.name, url=source, origin=listed.origin)
        case _:
            return AttachedSource(listed.name, sha256, also=(str(source),))


def _may_have_pictures(source: SourceInput) -> bool:
    return not (isinstance(source, Document | SourceUrl | str) or _text(source) is not None)
