"""The local verifier: child processes read the sources, workers search them, and this process awaits both.

A quote that names a source waits until it is read. Any other waits for all sources of its caller and of the
server, and briefly for those of other callers. A failing source, quote or process costs no other quote its
verdict, and nothing is left running after close.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
import shutil
import tempfile
from collections import OrderedDict
from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable, Coroutine, Iterable, Sequence
from contextlib import aclosing, suppress
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from citewire.documents.cache import NO_LIMIT, Cache
from citewire.documents.document import Box, Document
from citewire.documents.draw import QUOTE_MARGIN, Crop, ImageFormat
from citewire.documents.errors import DocumentError
from citewire.documents.scratch import ScratchCaches
from citewire.error_reports import report_detail, report_error
from citewire.model import Problem
from citewire.text import one_line
from citewire.verification.document_search import DocumentRef, SearchAnswer, SearchRequest
from citewire.verification.document_set import NO_SOURCE, NO_TEXT_LAYER, NOTHING_QUOTED, CheckResult
from citewire.verification.expected_place import replace_surrogates
from citewire.verification.lanes import CURRENT_ACCOUNT, SERVER_ACCOUNT, ReadJob
from citewire.verification.named_sources import ORIGIN_WARNINGS, display_name, find_named, lookup_order
from citewire.verification.reader_pool import Lanes, ReaderPool, default_reader_memory, run_in_thread
from citewire.verification.search_worker import WorkerSetup
from citewire.verification.source_reading import SourceReading
from citewire.verification.sources import SourceContent, SourceInput, SourceItem, iter_sources, source_names
from citewire.verification.verifier import QuoteCheck, check_concurrently
from citewire.verification.worker_pool import WorkerPool

__all__ = ["Engine", "EngineLimits"]

_log = logging.getLogger("citewire.verification")

# Extra seconds per character when a document is opened: ten times what it takes.
_OPENING = 5e-6
_MOST_WORKERS = 8
# Seconds a quote that names no source waits for unread sources of other callers; and for its own and the
# server's, before it is searched in the sources that are already read.
_PATIENCE, _OWN_PATIENCE = 2.0, 10.0
# Results of longer quotes are not cached.
_LONGEST = 2000
_CLOSED, _REMOVED = "the engine was closed", "the source was removed"


class EngineLimits(Struct, frozen=True):
    """Limits: seconds per quote, bytes per worker, files read at once, bytes for all readers together,
    unread sources per caller, quotes in progress per call, and cached results."""

    seconds: float = 20.0
    memory: int = 4 << 30
    readers: int = os.cpu_count() or 1
    reader_memory: int = default_reader_memory()
    unread: int = 1000
    waiting: int = 256
    results: int = 4096


class Engine:
    """A `Verifier`: `async with Engine(sources) as engine: async for checked in engine.check(quotes)`.

    A quote whose named source cannot be read is `skipped`; one without a verdict after `deadline` seconds is
    `pending`. Without a `cache`, every source is read again. The sources of a scope are cached in a folder of
    their own, which is deleted with the scope, or at the next start after a crash.
    """

    def __init__(
        self,
        sources: SourceInput | Iterable[SourceInput] = (),
        *,
        cache: Cache | None = None,
        deadline: float | None = 30.0,
        workers: int | None = None,
        limits: EngineLimits | None = None,
    ) -> None:
        self._given, self._cache, self._deadline, self._limits = (
            sources,
            cache,
            deadline,
            limits or EngineLimits(),
        )
        self._count = workers or min(os.cpu_count() or 1, _MOST_WORKERS)
        self._readings: dict[str | None, list[SourceReading]] = {None: []}
        self._numbers = count()
        self._removals = 0
        self._leaving: set[asyncio.Task[None]] = set()
        self._tasks: dict[SourceReading, asyncio.Task[None]] = {}
        self._restoring: dict[SourceReading, asyncio.Task[None]] = {}
        self._results: OrderedDict[tuple[Any, ...], CheckResult] = OrderedDict()
        self._folder: Path | None = None
        self._scopes: dict[str, Cache] = {}
        self._running = False

    async def __aenter__(self) -> Engine:
        cache = self._cache
        if cache is None or not cache.is_usable():
            self._folder = Path(tempfile.mkdtemp(prefix="citewire-"))
            cache = Cache(self._folder, limit=NO_LIMIT)
        self._shared, self._scratch = (
            cache,
            await run_in_thread(lambda: ScratchCaches(cache.folder / "scratch")),
        )
        lanes = Lanes.within(self._limits.readers, self._limits.reader_memory)
        self._readers = ReaderPool(cache.folder, lanes, self._limits.unread)
        setup = WorkerSetup(str(cache.folder), cache.limit, self._limits.memory)
        self._pool = WorkerPool(self._count, setup)
        self._running = True
        try:
            await self._add(self._given)
        except BaseException:
            await self.aclose()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Stop all processes and tasks. Checks in progress end as `skipped`."""
        if not self._running:
            return
        self._running = False
        self._readers.close()
        self._pool.close()
        self._scratch.close()
        if self._folder:
            shutil.rmtree(self._folder, ignore_errors=True)
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), *self._leaving, return_exceptions=True)

    @property
    def pids(self) -> list[int]:
        """The ids of the engine's child processes."""
        return [*self._readers.pids, *self._pool.pids]

    async def add(self, *sources: SourceInput, scope: str | None = None, is_kept: bool = False) -> None:
        """See `Verifier`. With `is_kept`, cached data of the sources outlives the scope."""
        await self._add(sources, scope, is_kept)

    async def _add(
        self, sources: SourceInput | Iterable[SourceInput], scope: str | None = None, is_kept: bool = False
    ) -> None:
        found = await run_in_thread(lambda: list(iter_sources(sources)))
        if found and scope is not None and not is_kept and scope not in self._scopes:
            self._scopes[scope] = self._scratch.make()
        cache = self._shared if scope is None or is_kept else self._scopes.get(scope, self._shared)
        for listed in found:
            self._start(listed, cache, scope, CURRENT_ACCOUNT.get())

    def add_source(
        self,
        given: SourceContent,
        changed: Callable[[SourceReading], object],
        bring: Callable[[], Awaitable[object]] | None = None,
        account: str = SERVER_ACCOUNT,
    ) -> SourceReading:
        """Add one removable source without a scope, like `add`; it is read after `bring` finishes.

        The read is charged to `account`, not to the caller.
        """
        [listed] = iter_sources(given)
        return self._start(listed, self._shared, None, account, changed, bring)

    def _start(
        self,
        listed: SourceItem,
        cache: Cache,
        scope: str | None,
        account: str,
        changed: Callable[[SourceReading], object] = lambda _: None,
        bring: Callable[[], Awaitable[object]] | None = None,
    ) -> SourceReading:
        job = ReadJob(account)
        reading = SourceReading(
            next(self._numbers), listed, listed.names, cache, scope, changed=changed, job=job
        )
        self._tasks[reading] = asyncio.create_task(self._read(reading, bring))
        self._readings.setdefault(scope, []).append(reading)
        return reading

    def remove(self, reading: SourceReading) -> None:
        """Stop searching a source, read or not; its `changed` callback is not called again."""
        reading.changed = lambda _: None
        self._readings[None].remove(reading)
        self._removals += 1
        self._results.clear()
        self._tasks.pop(reading).cancel()
        if restoring := self._restoring.get(reading):
            restoring.cancel()
        # Even if no worker has opened it yet: a worker finishes its current request, then forgets the source.
        self._run_until_close(self._pool.forget(reading.number, self._limits.seconds))

    def _run_until_close(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run `work` as a task that `aclose` waits for."""
        self._leaving.add(task := asyncio.create_task(work))
        task.add_done_callback(self._leaving.discard)
        return task

    async def discard(self, sha256: str) -> None:
        """Delete cached data for bytes that no source has any more, even while they are being read."""
        await self.retry(sha256)
        await run_in_thread(lambda: self._readers.discard(sha256, self._shared))

    async def retry(self, sha256: str) -> None:
        """Read these bytes again when they are next needed, even if reading them failed before."""
        await run_in_thread(lambda: self._readers.failures.forget(sha256))

    def check_read_quota(self) -> None:
        """Raise `TooManyReads` if the caller has reached its limit of unread sources."""
        self._readers.check_quota(CURRENT_ACCOUNT.get())

    async def prune(self, is_needed: Callable[[str], bool]) -> None:
        """Delete cached data and recorded failures of bytes that are not needed; see `Cache.prune`."""
        await run_in_thread(lambda: self._shared.prune(is_needed))
        await run_in_thread(lambda: self._readers.failures.prune(is_needed))

    async def load(self, given: SourceContent, *, anew: bool = False) -> Document:
        """Read a source that is not one of the engine's; `anew` bypasses the cache and replaces its entry.

        Raises `DocumentError`.
        """
        [listed] = iter_sources(given)
        job = ReadJob(CURRENT_ACCOUNT.get(), is_urgent=True)
        if not anew:
            return (await self._readers.read(listed, self._shared, job))[1]
        # A separate cache: it holds nothing old, and pages that tesseract reads can be stored in it.
        try:
            cache = self._scratch.make()
        except OSError as exc:
            raise DocumentError("it cannot be read again now", detail=exc) from exc
        try:
            return (await self._readers.read(listed, cache, job, target=self._shared))[1]
        finally:
            await asyncio.shield(self._run_until_close(run_in_thread(partial(self._scratch.remove, cache))))

    async def load_cached(self, reading: SourceReading) -> Document | None:
        """Like `get_document`, but in a thread and without boxes."""
        return await run_in_thread(partial(self.get_document, reading, boxes=False))

    async def draw(self, given: SourceContent, crop: Crop, sha256: str) -> bytes | None:
        """Draw a picture of a source; None if it has no visual form. Raises `DocumentError`."""
        [listed] = iter_sources(given)
        return (
            await self._readers.draw(listed, [crop], sha256, ReadJob(CURRENT_ACCOUNT.get(), is_urgent=True))
        )[0]

    async def forget(self, scope: str) -> None:
        """See `Verifier`."""
        gone, cache = self._readings.pop(scope, []), self._scopes.pop(scope, None)
        tasks = [self._tasks.pop(reading) for reading in gone]
        tasks += [self._restoring[reading] for reading in gone if reading in self._restoring]
        for known in [each for each in self._results if each[0] == scope]:
            del self._results[known]
        # Run to the end, even if the caller is cancelled.
        await asyncio.shield(self._run_until_close(self._forget(tasks, cache)))

    async def _forget(self, tasks: list[asyncio.Task[None]], cache: Cache | None) -> None:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if cache is not None:
            await run_in_thread(partial(self._scratch.remove, cache))
            if self._running:
                self._run_until_close(self._pool.close_folder(str(cache.folder), self._limits.seconds))

    async def prewarm(self) -> None:
        """See `Verifier`."""
        await self._wait(self.shared_sources)

    @property
    def shared_sources(self) -> tuple[SourceReading, ...]:
        """The sources without a scope, read or not, in the order they were added."""
        return tuple(self._readings[None])

    def scope_sources(self, scope: str) -> tuple[SourceReading, ...]:
        """Return the sources of a scope, read or not, in the order they were added."""
        return tuple(self._readings.get(scope, ()))

    async def pictures(self, found: Sequence[CheckResult], form: ImageFormat) -> list[bytes | None]:
        """See `Verifier`. Only PDFs and images can be drawn."""
        readings = {reading.sha256: reading for each in self._readings.values() for reading in each}
        wanted: dict[str, list[int]] = {}
        for at, checked in enumerate(found):
            if checked.sha256 in readings and checked.boxes:
                wanted.setdefault(checked.sha256 or "", []).append(at)
        drawn: list[bytes | None] = [None] * len(found)

        async def draw(sha256: str, places: list[int]) -> None:
            crops = [_crop(found[at].boxes, form) for at in places]
            job = ReadJob(CURRENT_ACCOUNT.get(), is_urgent=True)
            made = await self._readers.draw(readings[sha256].listed, crops, sha256, job)
            for at, picture in zip(places, made, strict=True):
                drawn[at] = picture

        await asyncio.gather(*(draw(sha256, places) for sha256, places in wanted.items()))
        return drawn

    def get_document(self, reading: SourceReading, *, boxes: bool = True) -> Document | None:
        """Return the document of a source, or None if it has no text; with `boxes`, a file stays open."""
        document = reading.cache.get(reading.key) if reading.key else None
        if document is None:
            return None
        named = replace(document, name=reading.name, url=reading.url, lines=np.array(document.lines))
        return named if boxes else replace(named, boxes=None, confidence=None)

    async def iter_readings(self) -> AsyncGenerator[SourceReading]:
        """Yield each source as soon as it is read."""
        tasks = {task: reading for reading, task in self._tasks.items()}
        while tasks:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                yield tasks.pop(task)

    async def _read_all(self, readings: Iterable[SourceReading]) -> None:
        """Like `_wait`, but read these sources before any that no caller waits for."""
        waited = [each for each in readings if not each.is_read]
        for each in waited:
            each.job.make_urgent()
        await self._wait(waited)

    async def _read_own(self, readings: Iterable[SourceReading], until: float) -> None:
        """Like `_read_all`, but wait for other callers' sources only `until` a time of the event loop."""
        own, others = _by_owner(readings)
        for each in others:
            each.job.make_urgent()
        await self._read_all(own)
        await self._wait(others, max(0.0, until - asyncio.get_running_loop().time()))

    async def _wait(self, readings: Iterable[SourceReading], seconds: float | None = None) -> None:
        """Wait until the sources are read, ignoring removed ones. Cancelling does not stop the reading."""
        if tasks := [task for each in readings if (task := self._tasks.get(each)) and not task.done()]:
            await asyncio.wait(tasks, timeout=seconds)

    async def _read(self, reading: SourceReading, bring: Callable[[], Awaitable[object]] | None) -> None:
        try:
            if bring is not None:
                await bring()
            key, document = await self._readers.read(reading.listed, reading.cache, reading.job, reading)
            reading.begin()
            reading.notes, reading.sha256, reading.url = document.problems, document.sha256, document.url
            reading.title, reading.kind, reading.pages = document.title, document.kind, len(document.pages)
            reading.names |= source_names(document.name, document.url, document.title, document.sha256)
            if document.text.strip() and reading.scope is not None:
                reading.key = key
            elif document.text.strip():
                await self._open(reading, key, len(document.text))
                reading.key = key
        except asyncio.CancelledError:
            why = _REMOVED if self._running else _CLOSED
            reading.problem = Problem(DocumentError.code, reading.name, why)
        except Exception as exc:  # noqa: BLE001  # the root of a task: a bug is told of the source that shows it
            report = report_error(exc, _log, code=DocumentError.code, message="it cannot be read")
            reading.problem = Problem(report.code, reading.name, report.message)
        finally:
            reading.end()

    async def _open(self, reading: SourceReading, key: str, length: int) -> None:
        """Let a worker search the source from now on. Raises `DocumentError`."""
        named, seconds = DocumentRef(reading.number, key), self._limits.seconds + length * _OPENING
        opened = await self._pool.open(named, seconds)
        if opened.is_missing:
            # It was dropped just now, with another source that had the same bytes.
            await self._readers.read(reading.listed, reading.cache, reading.job)
            opened = await self._pool.open(named, seconds)
        if opened.error:
            raise DocumentError(f"it cannot be searched: {opened.error}", detail=opened.detail)

    async def check(
        self, quotes: Iterable[QuoteCheck] | AsyncIterable[QuoteCheck]
    ) -> AsyncGenerator[CheckResult]:
        """See `Verifier`. Raises `RuntimeError` if the engine is not running."""
        if not self._running:
            raise RuntimeError("an engine checks between entering and leaving it")
        async with aclosing(check_concurrently(quotes, self._check_in_time, self._limits.waiting)) as results:
            async for checked in results:
                yield checked

    async def _check_in_time(self, asked: QuoteCheck) -> CheckResult:
        try:
            async with asyncio.timeout(self._deadline):
                checked = await self._check_quote(asked)
        except TimeoutError:
            checked = CheckResult(None, "pending", "deadline")
        except asyncio.CancelledError:
            if self._running:
                raise
            checked = CheckResult(None, "skipped", _CLOSED)
        except Exception as exc:  # noqa: BLE001  # the root of a task: a bug is told of the quote that shows it
            report = report_error(exc, _log, code="check_failed", message="the check failed")
            checked = CheckResult(None, "skipped", report.message)
        return replace(checked, id=asked.id, quote=asked.quote)

    async def _check_quote(self, asked: QuoteCheck) -> CheckResult:
        until = asyncio.get_running_loop().time() + _PATIENCE
        if asked.source is None and (early := await self._check_without_slow_sources(asked, until)):
            return early
        readings, pinned = await self._select_sources(asked, until)
        if not asked.quote.strip():
            return await self._find_closest_passage(asked, readings, pinned)
        return await self._check_in(asked, readings, pinned)

    async def _check_without_slow_sources(self, asked: QuoteCheck, until: float) -> CheckResult | None:
        """Return a verdict on a quote that names no source, if it does not depend on unread sources.

        It waits a while for the caller's and the server's sources, and `until` a time of the event loop for
        those of other callers; sources known to be slow are not waited for. Only `verified` is returned,
        since no unread source can change it.
        """
        every = self._candidate_sources(asked)
        for each in every:
            each.job.make_urgent()
        own, others = _by_owner(every)
        await _settle(own, until - _PATIENCE + min(_OWN_PATIENCE, (self._deadline or math.inf) / 3))
        if early := await self._verify_in_read_sources(asked, every):
            return early
        if all(each.settled.is_set() for each in others):
            return None
        await _settle(others, until)
        return await self._verify_in_read_sources(asked, every)

    async def _verify_in_read_sources(
        self, asked: QuoteCheck, every: list[SourceReading]
    ) -> CheckResult | None:
        """Return the verdict on a quote that the sources read so far verify, while others are unread."""
        read = [each for each in every if each.is_read]
        likely = {name.casefold() for name in asked.likely}
        unread = [each for each in every if not each.is_read]
        if not unread or not read or not asked.quote.strip() or any(likely & each.names for each in unread):
            return None
        named = [each for each in read if likely & each.names]
        ours = [each for each in named if each.origin is None]
        if named and not ours:
            return None  # a source that is not read yet may have that name too
        checked = await self._check_in(asked, ours or read, bool(ours))
        return checked if checked.status == "verified" else None

    async def _check_in(self, asked: QuoteCheck, readings: list[SourceReading], pinned: bool) -> CheckResult:
        """Check a quote in sources that are read; `pinned` if the quote names them."""
        if not readings:
            called = f"no source is called {one_line(asked.source, 80)}"
            late = [reading.name for reading in self._candidate_sources(asked) if not reading.is_read]
            reason = NO_SOURCE if asked.source is None else called
            return _with_unread(CheckResult(None, "skipped", reason), late)
        readable = {reading.number: reading for reading in readings if reading.key}
        if not readable:
            first = next((reading for reading in readings if reading.is_read), readings[0])
            return CheckResult(
                None, "skipped", first.problem.message if first.problem else NO_TEXT_LAYER, first.name
            )
        late = [reading.name for reading in readings if not reading.is_read]
        named, shared = self._document_refs(readable, pinned)
        scope = asked.scope if any(readable[each.number].scope for each in named) else None
        asked = replace(asked, near=asked.near.wire_safe)
        meant = tuple((each.key, readable[each.number].name) for each in named)
        known = (scope, asked.quote, asked.near, meant, 0 if pinned else shared, self._removals)
        checked = self._results.pop(known, None)
        if checked is None:
            checked = await self._search_quote(
                asked, named, everywhere=not pinned and shared > 0, names=readable
            )
        if checked.status != "skipped" and len(asked.quote) <= _LONGEST:
            self._results[known] = checked
            if len(self._results) > self._limits.results:
                self._results.popitem(last=False)
        failed = [reading.name for reading in readings if reading.problem]
        unread = {"verified": [], "missed": failed + late}.get(checked.status, late)
        return _with_unread(checked, unread)

    async def _find_closest_passage(
        self, asked: QuoteCheck, readings: list[SourceReading], pinned: bool
    ) -> CheckResult:
        """Find the passage closest to a claim that quotes nothing: a place to look, never a verdict."""
        readable = {reading.number: reading for reading in readings if reading.key}
        named, shared = self._document_refs(readable, pinned)
        search = SearchRequest(asked.claim[:_LONGEST], self._limits.seconds, closest=True)
        answers = await self._search(replace(search, documents=named)) if named and asked.claim else []
        if not pinned and shared and asked.claim:
            answers += await self._search(search)
        best = min(answers, key=lambda answer: answer.rank, default=SearchAnswer())
        if best.checked is None or best.checked.context is None:
            return CheckResult(None, "skipped", NOTHING_QUOTED)
        passage = replace(best.checked.context, source=self._name(best.number, readable, asked))
        return replace(best.checked, context=passage)

    async def _select_sources(self, asked: QuoteCheck, until: float) -> tuple[list[SourceReading], bool]:
        """Return the sources to search, and whether the quote names them.

        All of them are read, except other callers' sources that the quote does not name: those are waited for
        `until` a time of the event loop, or until they are read if no source is.
        """
        wanted = [name.casefold() for name in (asked.likely if asked.source is None else (asked.source,))]
        every = self._candidate_sources(asked)
        for readings, called in lookup_order(every, wanted):
            for _ in ("by what they are called", "by what they say they are"):
                if named := find_named(readings, called):
                    await self._read_all(named)
                    return named, True
                await self._read_own(readings, until)
        if every and not any(each.is_read for each in every):
            await self._read_all(every)
            return await self._select_sources(asked, until)
        return ([], True) if asked.source is not None else (every, False)

    def _candidate_sources(self, asked: QuoteCheck) -> list[SourceReading]:
        """Return all sources that may be searched for a quote, those of its scope first."""
        given = self.scope_sources(asked.scope) if asked.scope else ()
        return [*given, *(() if asked.alone else self.shared_sources)]

    async def _search_quote(
        self,
        asked: QuoteCheck,
        named: tuple[DocumentRef, ...],
        everywhere: bool,
        names: dict[int, SourceReading],
    ) -> CheckResult:
        search = SearchRequest(replace_surrogates(asked.quote), self._limits.seconds, asked.near)
        answers = await self._search(replace(search, documents=named)) if named else []
        if everywhere and not any(answer.is_perfect for answer in answers):
            answers += await self._search_in_two_passes(search)
        brought = {number: reading.origin for number, reading in names.items() if reading.origin}
        best = min(answers, key=lambda answer: (answer.rank, answer.number in brought, answer.number))
        failed = next((answer for answer in answers if answer.error), None)
        if failed and (best.checked is None or best.checked.status == "missed"):
            report = report_detail(failed.detail, _log, code="search_failed", message=failed.error or "")
            return CheckResult(None, "skipped", report.message)
        if best.checked is None:
            return CheckResult(None, "skipped", _REMOVED)
        if best.checked.source is None:
            return best.checked
        name = self._name(best.number, names, asked)
        if name is None:
            return CheckResult(None, "skipped", _REMOVED)
        origin = brought.get(best.number)
        warnings = (*best.checked.warnings, *([ORIGIN_WARNINGS[origin]] if origin else []))
        return replace(best.checked, source=name, warnings=warnings, origin=origin)

    def _name(self, number: int, meant: dict[int, SourceReading], asked: QuoteCheck) -> str | None:
        """Return the display name of a source, which may have been added since `meant` was computed."""
        came = {reading.number: reading for reading in self.shared_sources} if number not in meant else meant
        return display_name(came[number], self._candidate_sources(asked)) if number in came else None

    async def _search(self, search: SearchRequest) -> list[SearchAnswer]:
        """Search on the workers. Documents dropped from the cache meanwhile are read again, once."""
        answers = await self._pool.search(search)
        if any(answer.is_missing for answer in answers):
            numbers = {document.number for document in search.documents}
            every = [reading for each in self._readings.values() for reading in each]
            searched = [each for each in every if each.number in numbers] if numbers else self.shared_sources
            await asyncio.gather(*map(self._ensure_cached, searched))
            answers = await self._pool.search(search)
        return answers

    async def _ensure_cached(self, reading: SourceReading) -> None:
        """Read a source again if it is no longer cached. Concurrent callers share one read."""
        if reading.key and not reading.cache.has(reading.key):
            if reading not in self._restoring:
                # The task survives the cancellation of its first caller: others may wait for it too.
                self._restoring[reading] = self._run_until_close(self._restore(reading))
            await asyncio.wait([self._restoring[reading]])

    async def _restore(self, reading: SourceReading) -> None:
        # The account that added a shared source may be at its quota, and other callers need the source.
        account = SERVER_ACCOUNT if reading.scope is None else reading.job.account
        try:
            with suppress(DocumentError):
                await self._readers.read(reading.listed, reading.cache, ReadJob(account, is_urgent=True))
        finally:
            self._restoring.pop(reading, None)

    def _document_refs(
        self, readable: dict[int, SourceReading], pinned: bool
    ) -> tuple[tuple[DocumentRef, ...], int]:
        """Return the documents that a search must name, and the number of those that it need not.

        Workers already know the documents without a scope, and which of them may contain a quote.
        """
        named = tuple(
            DocumentRef(
                number, reading.key or "", "" if reading.cache is self._shared else str(reading.cache.folder)
            )
            for number, reading in readable.items()
            if pinned or reading.scope is not None
        )
        return named, sum(reading.scope is None for reading in readable.values())

    async def _search_in_two_passes(self, search: SearchRequest) -> list[SearchAnswer]:
        """Search all workers for the verbatim quote first, and exhaustively only if it is not found."""
        quick = await self._search(replace(search, thorough=False))
        if any(answer.is_perfect for answer in quick):
            return quick
        return [*quick, *await self._search(search)]


def _by_owner(readings: Iterable[SourceReading]) -> tuple[list[SourceReading], list[SourceReading]]:
    """Split sources into those of the caller, the quote's scope or the server, and those of others."""
    own: list[SourceReading] = []
    others: list[SourceReading] = []
    for each in readings:
        is_own = each.scope is not None or each.job.account in {SERVER_ACCOUNT, CURRENT_ACCOUNT.get()}
        (own if is_own else others).append(each)
    return own, others


def _with_unread(checked: CheckResult, unread: list[str]) -> CheckResult:
    """Add a warning that names the unread sources to a verdict."""
    if not unread:
        return checked
    elsewhere = f"not looked for in {one_line(', '.join(unread), 200)}"
    return replace(checked, warnings=(*checked.warnings, elsewhere))


async def _settle(readings: Iterable[SourceReading], until: float) -> None:
    """Wait until each source is read or known to be slow, at most `until` a time of the event loop."""
    with suppress(TimeoutError):
        async with asyncio.timeout_at(until):
            for each in readings:
                await each.settled.wait()


def _crop(boxes: Sequence[Box], form: ImageFormat) -> Crop:
    """Return the crop around a quote's boxes on its first page."""
    page = boxes[0].page
    here = tuple((box.left, box.top, box.right, box.bottom) for box in boxes if box.page == page)
    return Crop(page, here, format=form, margin=QUOTE_MARGIN)
