"""The local verifier: sources are read in children, searched by workers, and awaited here.

A quote that names a source waits for that one to be read; any other for all of them. What a source, a quote
or a process does costs no other quote its verdict, and nothing is left running in the end.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
from collections import OrderedDict
from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable, Iterable, Sequence
from contextlib import aclosing
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from citewire.documents.cache import Cache
from citewire.documents.document import Box, Document, Kind
from citewire.documents.draw import Crop, Format
from citewire.documents.errors import DocumentError
from citewire.errors import CitewireError
from citewire.model import Problem
from citewire.text import for_log
from citewire.verification.kept import Kept
from citewire.verification.library import NO_TEXT, NOTHING_QUOTED, Checked
from citewire.verification.near import plain
from citewire.verification.pictures import MARGIN
from citewire.verification.pool import Pool
from citewire.verification.readers import Readers, in_thread
from citewire.verification.shelf import Answer, Numbered, Search
from citewire.verification.sources import Given, Listed, Source, each_source, names
from citewire.verification.verifier import Asked, as_known
from citewire.verification.worker import Setup

__all__ = ["Engine", "Limits", "Reading"]

# Seconds more for each character of a document that is opened: ten times what it takes.
_OPENING = 5e-6
_MOST_WORKERS = 8
# A quote that is longer is not remembered.
_LONGEST = 2000
_CLOSED, _REMOVED = "the engine was closed", "the source was removed"
_NO_LIMIT = 1 << 62


class Limits(Struct, frozen=True):
    """Seconds for one quote, bytes for one worker, files that are read at once, quotes that one call has
    under way, and results that are remembered."""

    seconds: float = 20.0
    memory: int = 4 << 30
    readers: int = os.cpu_count() or 1
    waiting: int = 256
    results: int = 4096


class Reading(Struct, eq=False):
    """A source: once it was read, `key` is its place in the cache, or `problem` says why it has none.

    One without any text has neither. `notes` are what is wrong with parts of it. `changed` is called when it
    has `begun` to be read, and when it `is_read`.
    """

    number: int
    listed: Listed
    names: frozenset[str]
    scope: str | None = None
    key: str | None = None
    problem: Problem | None = None
    notes: tuple[Problem, ...] = ()
    sha256: str | None = None
    url: str | None = None
    title: str | None = None
    kind: Kind | None = None
    pages: int | None = None
    begun: bool = False
    is_read: bool = False
    changed: Callable[[Reading], object] = lambda _: None

    @property
    def name(self) -> str:
        """What it is called in a report."""
        return self.listed.name

    def begin(self) -> None:
        """Its turn has come."""
        self.begun = True
        self.changed(self)

    def end(self) -> None:
        """All is known of it that will be."""
        self.is_read = True
        self.changed(self)


class Engine:
    """A `Verifier`: `async with Engine(sources) as engine: async for checked in engine.check(quotes)`.

    A quote that names a source that cannot be read is `skipped`. One that has no verdict `deadline` seconds
    after it was taken is `pending`. Without a `cache` everything is read anew.
    """

    def __init__(
        self,
        sources: Source | Iterable[Source] = (),
        *,
        cache: Cache | None = None,
        deadline: float | None = 30.0,
        workers: int | None = None,
        limits: Limits | None = None,
    ) -> None:
        self._given, self._cache, self._deadline, self._limits = sources, cache, deadline, limits or Limits()
        self._count = workers or min(os.cpu_count() or 1, _MOST_WORKERS)
        self._readings: dict[str | None, list[Reading]] = {None: []}
        self._numbers = count()
        self._removals = 0
        self._leaving: set[asyncio.Task[None]] = set()
        self._tasks: dict[Reading, asyncio.Task[None]] = {}
        self._results: OrderedDict[tuple[Any, ...], Checked] = OrderedDict()
        self._folder: Path | None = None
        self._running = False

    async def __aenter__(self) -> Engine:
        if self._cache is None or not self._cache.is_usable():
            self._folder = Path(tempfile.mkdtemp(prefix="citewire-"))
            self._cache = Cache(self._folder, limit=_NO_LIMIT)
        self._readers = Readers(self._cache, self._limits.readers)
        setup = Setup(str(self._cache.folder), self._cache.limit, self._limits.memory)
        self._pool = Pool(self._count, setup)
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
        """End everything. What is being checked is `skipped`."""
        if not self._running:
            return
        self._running = False
        self._readers.close()
        self._pool.close()
        if self._folder:
            shutil.rmtree(self._folder, ignore_errors=True)
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), *self._leaving, return_exceptions=True)

    @property
    def pids(self) -> list[int]:
        """The processes that belong to it."""
        return [*self._readers.pids, *self._pool.pids]

    async def add(self, *sources: Source, scope: str | None = None) -> None:
        """See `Verifier`."""
        await self._add(sources, scope)

    async def _add(self, sources: Source | Iterable[Source], scope: str | None = None) -> None:
        for listed in await in_thread(lambda: list(each_source(sources))):
            self._start(listed, scope)

    def take(
        self,
        given: Given,
        changed: Callable[[Reading], object],
        bring: Callable[[], Awaitable[object]] | None = None,
    ) -> Reading:
        """As `add`, for one source of no scope that may be removed again, and is there after `bring`."""
        [listed] = each_source(given)
        return self._start(listed, None, changed, bring)

    def _start(
        self,
        listed: Listed,
        scope: str | None,
        changed: Callable[[Reading], object] = lambda _: None,
        bring: Callable[[], Awaitable[object]] | None = None,
    ) -> Reading:
        reading = Reading(next(self._numbers), listed, listed.names, scope, changed=changed)
        self._tasks[reading] = asyncio.create_task(self._read(reading, bring))
        self._readings.setdefault(scope, []).append(reading)
        return reading

    def remove(self, reading: Reading) -> None:
        """Look in a source that was taken no longer, read or not; `changed` is not called again."""
        reading.changed = lambda _: None
        self._readings[None].remove(reading)
        self._removals += 1
        self._tasks.pop(reading).cancel()
        # Whether or not it got there: a worker goes on with what it has begun, and does this afterwards.
        task = asyncio.create_task(self._pool.forget(reading.number, self._limits.seconds))
        self._leaving.add(task)
        task.add_done_callback(self._leaving.discard)

    async def discard(self, sha256: str) -> None:
        """Forget what was made of these bytes, which no source has any more."""
        if cache := self._cache:
            await in_thread(lambda: _discard(cache, cache.keys(sha256)))

    async def load(self, given: Given) -> Document:
        """What a source says that is none of the engine's. Raises `DocumentError`."""
        [listed] = each_source(given)
        return (await self._readers.read(listed))[1]

    async def draw(self, given: Given, crop: Crop, sha256: str) -> bytes | None:
        """A picture of a source; None where it has no looks. Raises `DocumentError`."""
        [listed] = each_source(given)
        return (await self._readers.draw(listed, [crop], sha256))[0]

    async def forget(self, scope: str) -> None:
        """See `Verifier`."""
        gone = self._readings.pop(scope, [])
        tasks = [self._tasks.pop(reading) for reading in gone]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        kept = {reading.key for readings in self._readings.values() for reading in readings}
        unused = {reading.key for reading in gone if reading.key} - kept
        if self._folder and self._cache and unused:
            await in_thread(partial(_discard, self._cache, unused))

    async def prewarm(self) -> None:
        """See `Verifier`."""
        await self._read_all(self.known)

    @property
    def known(self) -> tuple[Reading, ...]:
        """The sources of no scope, read or not, in their order."""
        return tuple(self._readings[None])

    def given(self, scope: str) -> tuple[Reading, ...]:
        """The sources of a scope, read or not, in their order."""
        return tuple(self._readings.get(scope, ()))

    async def pictures(self, found: Sequence[Checked], form: Format) -> list[bytes | None]:
        """See `Verifier`. Only PDFs and images have looks."""
        readings = {reading.sha256: reading for each in self._readings.values() for reading in each}
        wanted: dict[str, list[int]] = {}
        for at, checked in enumerate(found):
            if checked.sha256 in readings and checked.boxes:
                wanted.setdefault(checked.sha256 or "", []).append(at)
        drawn: list[bytes | None] = [None] * len(found)

        async def draw(sha256: str, places: list[int]) -> None:
            crops = [_crop(found[at].boxes, form) for at in places]
            made = await self._readers.draw(readings[sha256].listed, crops, sha256)
            for at, picture in zip(places, made, strict=True):
                drawn[at] = picture

        await asyncio.gather(*(draw(sha256, places) for sha256, places in wanted.items()))
        return drawn

    def document(self, reading: Reading, *, boxes: bool = True) -> Document | None:
        """What was read, if it has any text; `boxes` keep a file open."""
        document = self._cache.get(reading.key) if self._cache and reading.key else None
        if document is None:
            return None
        named = replace(document, name=reading.name, url=reading.url, lines=np.array(document.lines))
        return named if boxes else replace(named, boxes=None, confidence=None)

    async def readings(self) -> AsyncGenerator[Reading]:
        """The sources, each as it was read."""
        tasks = {task: reading for reading, task in self._tasks.items()}
        while tasks:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                yield tasks.pop(task)

    async def _read_all(self, readings: Iterable[Reading]) -> None:
        """Wait for them, but for those that are gone. They go on being read when this is cancelled."""
        if tasks := [task for each in readings if (task := self._tasks.get(each)) and not task.done()]:
            await asyncio.wait(tasks)

    async def _read(self, reading: Reading, bring: Callable[[], Awaitable[object]] | None) -> None:
        try:
            if bring is not None:
                await bring()
            key, document = await self._readers.read(reading.listed, reading.begin)
            reading.notes, reading.sha256, reading.url = document.problems, document.sha256, document.url
            reading.title, reading.kind, reading.pages = document.title, document.kind, len(document.pages)
            reading.names |= names(document.name, document.url, document.title, document.sha256)
            if document.text.strip() and reading.scope is not None:
                reading.key = key
            elif document.text.strip():
                seconds = self._limits.seconds + len(document.text) * _OPENING
                opened = await self._pool.open(Numbered(reading.number, key), seconds)
                if opened.error:
                    raise DocumentError(f"it cannot be searched: {opened.error}")  # noqa: TRY301
                reading.key = key
        except CitewireError as exc:
            reading.problem = Problem(exc.code, reading.name, exc.message)
        except asyncio.CancelledError:
            why = _REMOVED if self._running else _CLOSED
            reading.problem = Problem(DocumentError.code, reading.name, why)
        except Exception as exc:  # noqa: BLE001  # the root of a task: a bug is told of the source that shows it
            reading.problem = Problem(DocumentError.code, reading.name, repr(exc))
        finally:
            reading.end()

    async def check(self, quotes: Iterable[Asked] | AsyncIterable[Asked]) -> AsyncGenerator[Checked]:
        """See `Verifier`. Raises `RuntimeError` where the engine is not running."""
        if not self._running:
            raise RuntimeError("an engine checks between entering and leaving it")
        async with aclosing(as_known(quotes, self._in_time, self._limits.waiting)) as results:
            async for checked in results:
                yield checked

    async def _in_time(self, asked: Asked) -> Checked:
        try:
            async with asyncio.timeout(self._deadline):
                checked = await self._checked(asked)
        except TimeoutError:
            checked = Checked(None, "pending", "deadline")
        except asyncio.CancelledError:
            if self._running:
                raise
            checked = Checked(None, "skipped", _CLOSED)
        except Exception as exc:  # noqa: BLE001  # the root of a task: a bug is told of the quote that shows it
            checked = Checked(None, "skipped", f"the check failed: {exc!r}")
        return replace(checked, id=asked.id, quote=asked.quote)

    async def _checked(self, asked: Asked) -> Checked:
        readings, pinned = await self._meant(asked)
        if not asked.quote.strip():
            return await self._closest(asked, readings, pinned)
        if not readings:
            called = f"no source is called {for_log(asked.source, 80)}"
            return Checked(None, "skipped", "there is no source" if asked.source is None else called)
        readable = {reading.number: reading for reading in readings if reading.key}
        if not readable:
            problem = readings[0].problem
            return Checked(None, "skipped", problem.message if problem else NO_TEXT, readings[0].name)
        named, shared = _named(readable, pinned)
        asked = replace(asked, near=asked.near.plain)
        meant = tuple((each.key, readable[each.number].name) for each in named)
        known = (asked.quote, asked.near, meant, 0 if pinned else shared, self._removals)
        checked = self._results.pop(known, None)
        if checked is None:
            checked = await self._found(asked, named, everywhere=not pinned and shared > 0, names=readable)
        if checked.status != "skipped" and len(asked.quote) <= _LONGEST:
            self._results[known] = checked
            if len(self._results) > self._limits.results:
                self._results.popitem(last=False)
        unread = ", ".join(reading.name for reading in readings if reading.problem)
        if checked.status == "missed" and unread:
            elsewhere = f"not looked for in {for_log(unread, 200)}"
            return replace(checked, warnings=(*checked.warnings, elsewhere))
        return checked

    async def _closest(self, asked: Asked, readings: list[Reading], pinned: bool) -> Checked:
        """Of a citation that quotes nothing: never a verdict, but where one may look."""
        readable = {reading.number: reading for reading in readings if reading.key}
        named, shared = _named(readable, pinned)
        search = Search(asked.claim[:_LONGEST], self._limits.seconds, closest=True)
        answers = await self._pool.search(replace(search, documents=named)) if named and asked.claim else []
        if not pinned and shared and asked.claim:
            answers += await self._pool.search(search)
        best = min(answers, key=lambda answer: answer.rank, default=Answer())
        if best.checked is None or best.checked.context is None:
            return Checked(None, "skipped", NOTHING_QUOTED)
        passage = replace(best.checked.context, source=self._name(best.number, readable))
        return replace(best.checked, context=passage)

    async def _meant(self, asked: Asked) -> tuple[list[Reading], bool]:
        """The sources to look in, read, and whether the quote names them."""
        wanted = [name.casefold() for name in (asked.likely if asked.source is None else (asked.source,))]
        given = self.given(asked.scope) if asked.scope else ()
        every = [*given, *(() if asked.alone else self.known)]
        for _ in ("by what they are called", "by what they say they are"):
            for name in wanted:
                if named := [reading for reading in every if name in reading.names]:
                    await self._read_all(named)
                    return named, True
            await self._read_all(every)
        return ([], True) if asked.source is not None else (every, False)

    async def _found(
        self, asked: Asked, named: tuple[Numbered, ...], everywhere: bool, names: dict[int, Reading]
    ) -> Checked:
        search = Search(plain(asked.quote), self._limits.seconds, asked.near)
        answers = await self._pool.search(replace(search, documents=named)) if named else []
        if everywhere and not any(answer.is_perfect for answer in answers):
            answers += await self._answers(search)
        best = min(answers, key=lambda answer: (answer.rank, answer.number))
        error = next((answer.error for answer in answers if answer.error), None)
        if best.checked is None or (best.checked.status == "missed" and error):
            return Checked(None, "skipped", error or _REMOVED)
        if best.checked.source is None:
            return best.checked
        name = self._name(best.number, names)
        return replace(best.checked, source=name) if name else Checked(None, "skipped", _REMOVED)

    def _name(self, number: int, meant: dict[int, Reading]) -> str | None:
        """What a source is called, which may have come since it was said which are meant."""
        came = {reading.number: reading for reading in self.known} if number not in meant else meant
        return came[number].name if number in came else None

    async def _answers(self, search: Search) -> list[Answer]:
        """Of all who were asked: where it is as it is, and only then exhaustively where it may be."""
        quick = await self._pool.search(replace(search, thorough=False))
        if any(answer.is_perfect for answer in quick):
            return quick
        return [*quick, *await self._pool.search(search)]


def _named(readable: dict[int, Reading], pinned: bool) -> tuple[tuple[Numbered, ...], int]:
    """Those that have to be named, and how many need not: workers know the ones of no scope, and where among
    them a quote may be."""
    named = tuple(
        Numbered(number, reading.key or "")
        for number, reading in readable.items()
        if pinned or reading.scope is not None
    )
    return named, sum(reading.scope is None for reading in readable.values())


def _crop(boxes: Sequence[Box], form: Format) -> Crop:
    """The first page of a quote, as far as the quote is on it."""
    page = boxes[0].page
    here = tuple((box.left, box.top, box.right, box.bottom) for box in boxes if box.page == page)
    return Crop(page, here, format=form, margin=MARGIN)


def _discard(cache: Cache, keys: Iterable[str]) -> None:
    """Content that was given for a while takes no room on the disk any longer."""
    for key in keys:
        document = cache.get(key)
        if document is not None:
            cache.drop(Kept.key(document.text))
        cache.drop(key)
