"""Read sources in killable child processes, with limits on time and memory.

A source passes through lanes, see `Lanes`. Cached sources need no child, and most files take a moment; the
few that take long, need much memory or need tesseract wait for slots of their own. No file holds up files of
another kind, and all children together stay within one memory limit.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from threading import Condition, Thread
from typing import Any, NamedTuple, Protocol, TypeAlias, TypeVar

from citewire.documents.cache import Cache
from citewire.documents.document import Document
from citewire.documents.draw import DRAW_TIMEOUT as DRAWING
from citewire.documents.draw import Crop, draw_all_in_child, is_drawable
from citewire.documents.errors import DocumentError
from citewire.documents.ocr import OCR_SECONDS, OcrUnfinished
from citewire.documents.reader import READ_MEMORY, READ_TIMEOUT, ReaderFailed, ReaderTimeout, read_in_child
from citewire.verification.lanes import SERVER_ACCOUNT, Lane, ReadJob
from citewire.verification.read_failures import ReadFailures
from citewire.verification.sources import SourceItem, download_source, load_source, read_original

__all__ = ["Lanes", "ReaderPool", "TooManyReads", "default_reader_memory", "run_in_thread"]

_T = TypeVar("_T")
_Load: TypeAlias = Callable[[Lane, "_Attempt"], tuple[str, Document]]
# Seconds to wait for threads whose children were killed; they take milliseconds.
_GRACE = 10.0
# Seconds for a file in the quick lane, and for one turn of OCR before the next file's turn.
_QUICK, _OCR_TURN = 10.0, 30.0
# Concurrent sources that are cached or plain text, and concurrent downloads.
_LOCAL, _DOWNLOADS = 4, 8
# Bytes of address space; a reader uses 140 MB before it reads anything.
_LEAST_QUICK, _MOST_QUICK, _LEAST_OCR, _LEAST_HEAVY = 384 << 20, 1 << 30, 512 << 20, 3 << 29
_LEAST_TOTAL, _MOST_TOTAL = 2 << 30, 16 << 30


class TooManyReads(DocumentError):
    """A caller has too many sources waiting to be read."""

    code = "too_many_reads"


class _MoveToLane(Exception):  # not an error: the job continues in another lane
    def __init__(self, lane: Lane) -> None:
        self.lane = lane


def default_reader_memory() -> int:
    """Return half the memory of this machine, or of its container, between 2 and 16 GiB."""
    found = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        with suppress(OSError, ValueError):
            found.append(int(Path(path).read_text()))
    return max(_LEAST_TOTAL, min(_MOST_TOTAL, min(found) // 2))


class ReadProgress(Protocol):
    """**Protocol:** receives progress updates while a source is read."""

    def begin(self) -> None:
        """A reader has started on the source."""
        ...

    def mark_slow(self) -> None:
        """The source takes longer than most files, or needs tesseract."""
        ...


class Lanes(NamedTuple):
    """The queues for jobs: `local` for jobs without a child, `quick` for at most ten seconds, `heavy` for
    files that need more time or memory, `ocr` for tesseract."""

    local: Lane
    quick: Lane
    heavy: Lane
    ocr: Lane
    downloads: Lane

    @classmethod
    def within(cls, readers: int, memory: int) -> Lanes:
        """Create lanes whose children use at most `memory` bytes; one caller gets `readers` quick slots."""
        half, quarter = memory // 2, memory // 4
        # One more than a single caller may use, to leave one for other callers.
        quick_slots = max(1, min(readers + 1, half // _LEAST_QUICK))
        quick = min(_MOST_QUICK, half // quick_slots)
        # Two processes per slot: the reader and tesseract.
        ocr_slots = max(1, min(readers, quarter // (2 * _LEAST_OCR)))
        ocr = min(_MOST_QUICK, quarter // (2 * ocr_slots))
        rest = memory - quick * quick_slots - 2 * ocr * ocr_slots
        heavy_slots = 2 if rest >= 2 * _LEAST_HEAVY else 1
        return cls(
            Lane(_LOCAL),
            Lane(quick_slots, quick, _QUICK),
            Lane(heavy_slots, min(READ_MEMORY, rest // heavy_slots), READ_TIMEOUT),
            Lane(ocr_slots, ocr, READ_TIMEOUT + _OCR_TURN + OCR_SECONDS),
            Lane(_DOWNLOADS),
        )

    @property
    def memory(self) -> int:
        """Most bytes that all children together may use."""
        return sum(lane.slots * lane.memory for lane in (self.quick, self.heavy, self.ocr, self.ocr))


async def run_in_thread(function: Callable[[], _T]) -> _T:
    """Run a function in a daemon thread and return its result; a running download does not delay shutdown."""
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[_T] = loop.create_future()

    def run() -> None:
        try:
            tell = partial(answer.set_result, function())
        except BaseException as exc:  # noqa: BLE001  # the root of a thread
            tell = partial(answer.set_exception, exc)
        # The event loop may be closed by now.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(lambda: answer.done() or tell())

    Thread(target=run, name="citewire-read", daemon=True).start()
    return await answer


class ReaderPool:
    """Reads sources in lanes, and records in `folder` which files could not be read into a cache there.

    A caller may have `most` unread sources; the server itself any number.
    """

    def __init__(self, folder: Path, lanes: Lanes, most: int) -> None:
        self._folder, self._most = folder, most
        self.lanes = lanes
        self.failures = ReadFailures(folder)
        self._unread: Counter[str] = Counter()
        # For each source being read, the sha256 of bytes that were discarded meanwhile.
        self._discarded: dict[_Attempt, set[str]] = {}
        self._closed = False
        # Attempts with a running thread. Closing waits for them, since none of them takes long.
        self._attempts: set[_Attempt] = set()
        self._changed = Condition()

    @property
    def pids(self) -> list[int]:
        """The ids of the running child processes."""
        children = [attempt.child for attempt in list(self._attempts)]
        return [child.pid for child in children if child and child.returncode is None]

    def check_quota(self, account: str) -> None:
        """Raise `TooManyReads` if a caller has reached its limit of unread sources."""
        if account != SERVER_ACCOUNT and self._unread[account] >= self._most:
            raise TooManyReads(f"{self._most} sources of this caller are not read yet; wait for some of them")

    def discard(self, sha256: str, cache: Cache) -> None:
        """Delete cached data of these bytes, even if they are being read now."""
        for discarded in list(self._discarded.values()):
            discarded.add(sha256)
        cache.discard(sha256)

    async def read(
        self,
        listed: SourceItem,
        cache: Cache,
        job: ReadJob,
        progress: ReadProgress | None = None,
        *,
        target: Cache | None = None,
    ) -> tuple[str, Document]:
        """Return the document, and its key in the cache. Raises `DocumentError`.

        To force a fresh read, pass an empty `cache`, and as `target` the cache whose entry is replaced. Then
        recorded failures are ignored, and none is recorded.
        """
        with self._count_unread(job.account):
            load = partial(self._load, cache, target)
            if not isinstance(listed.source, str):
                return await self._read_through_lanes(partial(load, listed), job, progress)
            async with self.lanes.downloads.acquire_slot(job):
                downloaded = await run_in_thread(partial(download_source, listed))
                return await self._read_through_lanes(partial(load, downloaded), job, progress)

    async def _read_through_lanes(
        self, load: _Load, job: ReadJob, progress: ReadProgress | None
    ) -> tuple[str, Document]:
        lane = self.lanes.local
        while True:
            async with lane.acquire_slot(job):
                if progress and lane is not self.lanes.local:
                    progress.begin()
                try:
                    return await self._attempt(partial(load, lane))
                except _MoveToLane as exc:
                    lane = exc.lane
            if progress and lane is not self.lanes.quick:
                progress.mark_slow()

    def _load(
        self, cache: Cache, target: Cache | None, listed: SourceItem, lane: Lane, attempt: _Attempt
    ) -> tuple[str, Document]:
        """Load a source, in a thread that continues even if its caller is cancelled."""
        discarded = self._discarded[attempt] = set()
        try:
            is_kept = cache.folder == self._folder
            memory = _FailureMemory(self.failures, is_kept) if target is None else None
            key, document = load_source(
                listed, cache=cache, read_in=partial(self._read_in, lane, attempt, memory)
            )
            if target is not None:
                target.drop(key)
                target.put(key, document)
            return key, document
        finally:
            del self._discarded[attempt]
            for sha256 in discarded:
                (target or cache).discard(sha256)

    async def draw(
        self, listed: SourceItem, crops: Sequence[Crop], sha256: str, job: ReadJob
    ) -> list[bytes | None]:
        """Draw pictures of a source; None for each if it has changed or has no visual form."""

        def drawn(lane: Lane, attempt: _Attempt) -> list[bytes | None]:
            data = read_original(listed)
            if data is None or hashlib.sha256(data).hexdigest() != sha256 or not is_drawable(data):
                return [None] * len(crops)
            seconds = min(DRAWING, lane.seconds)
            made = draw_all_in_child(
                data, crops, timeout=seconds, memory=lane.memory, started=attempt.started
            )
            return [None if isinstance(picture, DocumentError) else picture for picture in made]

        with suppress(ReaderTimeout, ReaderFailed):
            async with self.lanes.quick.acquire_slot(job):
                return await self._attempt(partial(drawn, self.lanes.quick))
        async with self.lanes.heavy.acquire_slot(job):
            return await self._attempt(partial(drawn, self.lanes.heavy))

    async def _attempt(self, work: Callable[[_Attempt], _T]) -> _T:
        """Run `work` in a thread and return its result.

        On cancellation it kills the child and waits for its end, so a slot is free only when nothing runs in
        it.
        """
        attempt = _Attempt()
        if self._closed:
            raise DocumentError("the engine was closed")
        self._attempts.add(attempt)
        running = asyncio.ensure_future(run_in_thread(partial(self._run, attempt, work)))
        try:
            return await asyncio.shield(running)
        except asyncio.CancelledError:
            attempt.give_up()
            # The result or error is no longer needed.
            running.add_done_callback(lambda done: done.cancelled() or done.exception())
            with suppress(asyncio.CancelledError):
                await asyncio.wait([running], timeout=_GRACE)
            raise

    def _run(self, attempt: _Attempt, work: Callable[[_Attempt], _T]) -> _T:
        try:
            return work(attempt)
        finally:
            with self._changed:
                self._attempts.discard(attempt)
                self._changed.notify_all()

    def _read_in(
        self, lane: Lane, attempt: _Attempt, failures: _FailureMemory | None, data: bytes, reader: str,
        **options: Any,
    ) -> Document:  # fmt: skip
        """Like `read_in_child`, in a lane. Raises `_MoveToLane` if the job belongs in another lane."""
        lanes, is_ocr = self.lanes, bool(options.get("ocr"))
        last = lanes.ocr if is_ocr else lanes.heavy
        if failures:
            failures.check(last, options)
        if lane is lanes.local or (is_ocr and lane is not lanes.ocr):
            raise _MoveToLane(lanes.ocr if is_ocr else lanes.quick)
        try:
            return self._in_child(lane, attempt, data, reader, **options)
        except OcrUnfinished:
            raise _MoveToLane(lanes.ocr) from None
        except (ReaderTimeout, ReaderFailed) as exc:
            if attempt.is_given_up:
                raise
            if lane is lanes.quick and (isinstance(exc, ReaderTimeout) or last.memory > lane.memory):
                raise _MoveToLane(lanes.heavy) from exc
            if failures:
                failures.add(last, options, exc)
            raise

    def _in_child(self, lane: Lane, attempt: _Attempt, data: bytes, reader: str, **options: Any) -> Document:
        seconds = min(lane.seconds, options.pop("timeout", lane.seconds))
        if options.get("ocr"):
            options["ocr_seconds"] = _OCR_TURN
        return read_in_child(
            data, reader, timeout=seconds, memory=lane.memory, started=attempt.started, **options
        )

    @contextmanager
    def _count_unread(self, account: str) -> Generator[None]:
        self.check_quota(account)
        self._unread[account] += 1
        try:
            yield
        finally:
            self._unread[account] -= 1
            if not self._unread[account]:
                del self._unread[account]

    def close(self) -> None:
        """Stop all reads, and wait until they have ended."""
        self._closed = True
        for attempt in list(self._attempts):
            attempt.give_up()
        with self._changed:
            self._changed.wait_for(lambda: not self._attempts, _GRACE)


class _FailureMemory(NamedTuple):
    """Checks and records the failures of one source, see `ReadFailures.add`."""

    failures: ReadFailures
    is_kept: bool

    def check(self, last: Lane, options: dict[str, Any]) -> None:
        """Raise the recorded failure of the file in the last lane available to it, if any."""
        self.failures.check(options["sha256"], _variant(options), seconds=last.seconds, memory=last.memory)

    def add(self, last: Lane, options: dict[str, Any], error: DocumentError) -> None:
        """Record that the file could not be read in the last lane available to it."""
        self.failures.add(
            options["sha256"], _variant(options), error,
            seconds=last.seconds, memory=last.memory, is_kept=self.is_kept,
        )  # fmt: skip


def _variant(options: dict[str, Any]) -> str:
    """Return the options that a failure depends on, in addition to the bytes and the limits."""
    return "|".join(str(options.get(name)) for name in ("hint", "charset", "ocr"))


class _Attempt:
    """One attempt to read or draw a source, with its child process, if any."""

    def __init__(self) -> None:
        self.child: subprocess.Popen[bytes] | None = None
        self.is_given_up = False

    def started(self, child: subprocess.Popen[bytes]) -> None:
        """Register the child; called in the thread that started it."""
        self.child = child
        # Either `give_up` sees the child, or this sees that it was called.
        if self.is_given_up:
            _kill(child)

    def give_up(self) -> None:
        """Stop the attempt, from any thread."""
        self.is_given_up = True
        if self.child:
            _kill(self.child)


def _kill(child: subprocess.Popen[bytes]) -> None:
    if sys.platform == "win32":
        child.kill()
    elif child.poll() is None:
        # Kill its descendants too: a reader leads its own process group.
        with suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
