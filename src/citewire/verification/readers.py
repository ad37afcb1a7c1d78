"""Sources, read a few at a time: each in a thread, which waits for a child that can be killed."""

from __future__ import annotations

import asyncio
import hashlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from threading import Condition, Thread
from typing import Any, TypeVar

from citewire.documents.cache import Cache
from citewire.documents.document import Document
from citewire.documents.draw import Crop, draw_all_in_child, has_looks
from citewire.documents.errors import DocumentError
from citewire.documents.reader import read_in_child
from citewire.verification.sources import Listed, load_source, original

__all__ = ["Readers", "in_thread"]

_T = TypeVar("_T")
# Seconds for threads whose children were killed: they take milliseconds.
_GRACE = 10.0


async def in_thread(function: Callable[[], _T]) -> _T:
    """What a function gives, in a thread that nobody waits for: a download would hold up the end."""
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[_T] = loop.create_future()

    def run() -> None:
        try:
            tell = partial(answer.set_result, function())
        except BaseException as exc:  # noqa: BLE001  # the root of a thread
            tell = partial(answer.set_exception, exc)
        # Nobody may listen any more.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(lambda: answer.done() or tell())

    Thread(target=run, name="citewire-read", daemon=True).start()
    return await answer


class Readers:
    """What is read goes to `cache`; so many at once."""

    def __init__(self, cache: Cache, count: int) -> None:
        self._cache = cache
        self._room = asyncio.Semaphore(count)
        self._children: set[subprocess.Popen[bytes]] = set()
        self._closed = False
        # Threads that have a child, or are about to: the end waits for them, as none of them waits for long.
        self._parents = 0
        self._changed = Condition()

    @property
    def pids(self) -> list[int]:
        """The processes that there are."""
        return [child.pid for child in list(self._children) if child.returncode is None]

    async def read(self, listed: Listed, begun: Callable[[], object] = lambda: None) -> tuple[str, Document]:
        """The document, and its key in the cache. Tells that it has `begun`. Raises `DocumentError`."""
        async with self._room:
            begun()
            return await in_thread(partial(load_source, listed, cache=self._cache, read_in=self._read_in))

    async def draw(self, listed: Listed, crops: Sequence[Crop], sha256: str) -> list[bytes | None]:
        """Pictures of a source that is still what it was; None for each where it is not, or has no looks."""

        def drawn() -> list[bytes | None]:
            data = original(listed)
            if data is None or hashlib.sha256(data).hexdigest() != sha256 or not has_looks(data):
                return [None] * len(crops)
            with self._parenthood():
                made = draw_all_in_child(data, crops, started=self._started)
            return [None if isinstance(picture, DocumentError) else picture for picture in made]

        async with self._room:
            return await in_thread(drawn)

    def _read_in(self, *given: Any, **options: Any) -> Document:
        with self._parenthood():
            return read_in_child(*given, started=self._started, **options)

    @contextmanager
    def _parenthood(self) -> Generator[None]:
        with self._changed:
            if self._closed:
                raise DocumentError("the engine was closed")
            self._parents += 1
        try:
            yield
        finally:
            with self._changed:
                self._parents -= 1
                self._changed.notify_all()

    def _started(self, child: subprocess.Popen[bytes]) -> None:
        for other in list(self._children):
            if other.returncode is not None:
                self._children.discard(other)
        self._children.add(child)
        # Seen by `close`, or sees that it was there.
        if self._closed:
            _kill(child)

    def close(self) -> None:
        """End what is being read, and wait until it has ended."""
        with self._changed:
            self._closed = True
        for child in list(self._children):
            _kill(child)
        with self._changed:
            self._changed.wait_for(lambda: not self._parents, _GRACE)


def _kill(child: subprocess.Popen[bytes]) -> None:
    if sys.platform == "win32":
        child.kill()
    elif child.poll() is None:
        # What it started, too: a reader leads a group of its own.
        with suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
