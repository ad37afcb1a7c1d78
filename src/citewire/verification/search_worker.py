"""A long-lived, killable child process that searches documents and holds recently used ones open.

`SearchWorker` is the parent's end, for one thread; `serve` is the child. Messages are msgpack on stdin and
stdout, one response per request, and documents are entries of a cache that both sides know. A request that
exceeds its time or memory ends the process; the next request starts another.
"""

from __future__ import annotations

import faulthandler
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import IO, TypeAlias, TypeVar

from msgspec import Struct, msgpack
from msgspec.structs import replace

from citewire.documents.cache import Cache
from citewire.errors import CitewireError
from citewire.verification.document_search import (
    DocumentNotCached,
    DocumentRef,
    DocumentSearcher,
    SearchAnswer,
    SearchRequest,
)

__all__ = ["CloseRequest", "ForgetRequest", "OpenRequest", "SearchWorker", "WorkerSetup"]

_COMMAND = ("-P", "-c", "from citewire.verification.search_worker import serve; serve()")
# One thread per core, which nothing here uses, would take hundreds of megabytes of address space.
_ENVIRONMENT = {"OPENBLAS_NUM_THREADS": "1"}
# Exit statuses of a process that was too slow (set by the watchdog) or ran out of memory.
_TOO_SLOW, _OUT_OF_MEMORY = 1, 86
# Seconds for a process to start, on a busy machine.
_STARTING = 60.0
_CLOSED = "the engine was closed"

_T = TypeVar("_T")


class WorkerSetup(Struct, frozen=True):
    """The cache folder of the documents, its size limit, and the memory limit for searching."""

    folder: str
    limit: int
    memory: int
    opened: tuple[DocumentRef, ...] = ()


class OpenRequest(Struct, frozen=True, tag=True):
    """Add a document to those searched when a request names none."""

    document: DocumentRef
    seconds: float


class ForgetRequest(Struct, frozen=True, tag=True):
    """Stop searching the document with this number."""

    number: int
    seconds: float


class CloseRequest(Struct, frozen=True, tag=True):
    """Close all documents of a folder that was deleted."""

    folder: str
    seconds: float


WorkerRequest: TypeAlias = OpenRequest | ForgetRequest | CloseRequest | SearchRequest

_SETUP, _ANSWER = msgpack.Decoder(WorkerSetup), msgpack.Decoder(SearchAnswer)
_REQUEST: msgpack.Decoder[WorkerRequest] = msgpack.Decoder(WorkerRequest)


class SearchWorker:
    """A search process, started when it is needed and restarted after it dies."""

    def __init__(self, setup: WorkerSetup) -> None:
        self._setup = setup
        self._child: subprocess.Popen[bytes] | None = None
        self._killed = False

    @property
    def pid(self) -> int | None:
        """The process id, if a process is running."""
        return self._child.pid if self._child else None

    def ask(self, request: WorkerRequest, *, again: bool = False) -> SearchAnswer:
        """Send a request to the process and return its response; failures are returned as errors in it."""
        if isinstance(request, ForgetRequest):
            # First: a restarted process does not open the document.
            left = tuple(each for each in self._setup.opened if each.number != request.number)
            self._setup = replace(self._setup, opened=left)
        try:
            answer = _exchange(self._child or self._start_process(), request)
        except (EOFError, OSError) as exc:
            status = self.end()
            # It may have died for another reason: retry once.
            if not (again or self._killed or status == _TOO_SLOW):
                return self.ask(request, again=True)
            if self._killed:
                return SearchAnswer(error=_CLOSED)
            if status is None:
                return SearchAnswer(error="there is no process to search in", detail=str(exc))
            return SearchAnswer(error=_reason(status, request))
        if isinstance(request, OpenRequest) and not answer.error:
            self._setup = replace(self._setup, opened=(*self._setup.opened, request.document))
        return answer

    def start(self) -> None:
        """Start the process before the first request."""
        with suppress(EOFError, OSError):
            self._start_process()

    def _start_process(self) -> subprocess.Popen[bytes]:
        child = self._child = subprocess.Popen(  # noqa: S603  # our own interpreter and code
            (sys.executable, *_COMMAND), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, env=os.environ | _ENVIRONMENT, start_new_session=True,
        )  # fmt: skip
        # Either `kill` sees the child, or this sees that it was called.
        if self._killed:
            child.kill()
        _exchange(child, self._setup)
        return child

    def kill(self) -> None:
        """Stop the process for good, from any thread; a waiting caller gets an error response."""
        self._killed = True
        if self._child:
            self._child.kill()

    def end(self) -> int | None:
        """Kill the process and return its exit status."""
        child, self._child = self._child, None
        if child is None:
            return None
        child.kill()
        for pipe in (child.stdin, child.stdout):
            # The child may not have read everything sent to it.
            with suppress(BrokenPipeError):
                if pipe:
                    pipe.close()
        return child.wait()


def _reason(status: int, request: WorkerRequest) -> str:
    names = {-number: number.name for number in signal.Signals}
    return {
        _TOO_SLOW: f"not done within {request.seconds:g} s",
        _OUT_OF_MEMORY: "it takes too much memory",
    }.get(status, f"the search ended with {names.get(status, f'status {status}')}")


def _exchange(child: subprocess.Popen[bytes], message: WorkerSetup | WorkerRequest) -> SearchAnswer:
    if not child.stdin or not child.stdout:
        raise EOFError
    _send(child.stdin, message)
    return _receive(child.stdout, _ANSWER)


def _send(pipe: IO[bytes], message: Struct) -> None:
    data = msgpack.encode(message)
    pipe.write(len(data).to_bytes(8, "big") + data)
    pipe.flush()


def _receive(pipe: IO[bytes], decoder: msgpack.Decoder[_T]) -> _T:
    head = pipe.read(8)
    data = pipe.read(int.from_bytes(head, "big"))
    if not data:
        raise EOFError
    return decoder.decode(data)


def serve() -> None:
    """Run the child: handle requests until the pipe is closed."""
    out = os.fdopen(os.dup(1), "wb")
    # Output that a library prints must not mix with the responses.
    os.dup2(2, 1)
    # The parent may disappear at any time.
    with suppress(EOFError, BrokenPipeError):
        setup = _receive(sys.stdin.buffer, _SETUP)
        _limit(setup.memory)
        shelf = DocumentSearcher(Cache(Path(setup.folder), limit=setup.limit))
        for document in setup.opened:
            _answer(shelf, OpenRequest(document, _STARTING))
        _send(out, SearchAnswer())
        while True:
            _send(out, _answer(shelf, _receive(sys.stdin.buffer, _REQUEST)))


def _answer(shelf: DocumentSearcher, request: WorkerRequest) -> SearchAnswer:
    # Watchdog that ends the process, whatever it is doing.
    faulthandler.dump_traceback_later(request.seconds, exit=True)
    try:
        if isinstance(request, SearchRequest):
            return shelf.search(request)
        match request:
            case ForgetRequest():
                shelf.remove(request.number)
            case CloseRequest():
                shelf.close(request.folder)
            case OpenRequest():
                shelf.add(request.document)
    except MemoryError:
        os._exit(_OUT_OF_MEMORY)
    except DocumentNotCached as exc:
        return SearchAnswer(error=exc.message, detail=exc.detail, is_missing=True)
    except CitewireError as exc:
        return SearchAnswer(error=exc.message, detail=exc.detail)
    except Exception as exc:  # noqa: BLE001  # a bug that a quote shows is told of that quote
        return SearchAnswer(error="the search failed", detail=f"{type(exc).__name__}: {exc}")
    finally:
        faulthandler.cancel_dump_traceback_later()
    return SearchAnswer()


def _limit(memory: int) -> None:
    if sys.platform == "win32":
        return
    # Processes that stream answers have priority.
    os.nice(10)
    import resource  # noqa: PLC0415  # POSIX only

    # No core file either: it would be as large as the memory.
    for limit, most in ((resource.RLIMIT_AS, memory), (resource.RLIMIT_CORE, 0)):
        # Some platforms lack this limit, and a lower one may already be set.
        with suppress(ValueError, OSError):
            resource.setrlimit(limit, (most, resource.getrlimit(limit)[1]))
