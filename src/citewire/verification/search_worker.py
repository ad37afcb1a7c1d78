"""A process that searches documents: long-lived, with the documents it was asked about open, and killable.

The parent's end is `Worker`, for one thread; `serve` is the child. Messages are msgpack on stdin and stdout,
one answer for each request, and documents are entries of a cache that both sides know. A request that takes
too long, or too much memory, ends the process; the next one starts another.
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
# A thread for each core, which nothing here uses, would take hundreds of megabytes of address space.
_ENVIRONMENT = {"OPENBLAS_NUM_THREADS": "1"}
# What a process ends with that was too slow, which is up to the watchdog, or had not enough memory.
_TOO_SLOW, _OUT_OF_MEMORY = 1, 86
# Seconds for a process to be there, on a machine that has much else to do.
_STARTING = 60.0
_CLOSED = "the engine was closed"

_T = TypeVar("_T")


class WorkerSetup(Struct, frozen=True):
    """Where documents are, how large that cache may become, and the memory there is to search them."""

    folder: str
    limit: int
    memory: int
    opened: tuple[DocumentRef, ...] = ()


class OpenRequest(Struct, frozen=True, tag=True):
    """A document to search from now on, when a request names none."""

    document: DocumentRef
    seconds: float


class ForgetRequest(Struct, frozen=True, tag=True):
    """The number of a document to search no longer."""

    number: int
    seconds: float


class CloseRequest(Struct, frozen=True, tag=True):
    """The folder of documents that are gone, of which none is to stay open."""

    folder: str
    seconds: float


WorkerRequest: TypeAlias = OpenRequest | ForgetRequest | CloseRequest | SearchRequest

_SETUP, _ANSWER = msgpack.Decoder(WorkerSetup), msgpack.Decoder(SearchAnswer)
_REQUEST: msgpack.Decoder[WorkerRequest] = msgpack.Decoder(WorkerRequest)


class SearchWorker:
    """A process that is started when it is needed, and again when it has died."""

    def __init__(self, setup: WorkerSetup) -> None:
        self._setup = setup
        self._child: subprocess.Popen[bytes] | None = None
        self._killed = False

    @property
    def pid(self) -> int | None:
        """The process, if there is one."""
        return self._child.pid if self._child else None

    def ask(self, request: WorkerRequest, *, again: bool = False) -> SearchAnswer:
        """The answer of the process; an error in it where there can be none."""
        if isinstance(request, ForgetRequest):
            # First: a process that starts anew does not open it.
            left = tuple(each for each in self._setup.opened if each.number != request.number)
            self._setup = replace(self._setup, opened=left)
        try:
            answer = _exchange(self._child or self._start_process(), request)
        except (EOFError, OSError) as exc:
            status = self.end()
            # It may have died of something else.
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
        """Have a process, before it is asked anything."""
        with suppress(EOFError, OSError):
            self._start_process()

    def _start_process(self) -> subprocess.Popen[bytes]:
        child = self._child = subprocess.Popen(  # noqa: S603  # our own interpreter and code
            (sys.executable, *_COMMAND), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, env=os.environ | _ENVIRONMENT, start_new_session=True,
        )  # fmt: skip
        # Seen by `kill`, or sees that it was there.
        if self._killed:
            child.kill()
        _exchange(child, self._setup)
        return child

    def kill(self) -> None:
        """End it for good, from any thread: who waits for an answer gets one."""
        self._killed = True
        if self._child:
            self._child.kill()

    def end(self) -> int | None:
        """The status with which the process has ended, whatever it was doing."""
        child, self._child = self._child, None
        if child is None:
            return None
        child.kill()
        for pipe in (child.stdin, child.stdout):
            # It may not have read all that it was sent.
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
    """The child: requests until there are no more."""
    out = os.fdopen(os.dup(1), "wb")
    # What a library prints must not end up among the answers.
    os.dup2(2, 1)
    # The parent may be gone at any time.
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
    # Ends the process by itself, whatever that is doing.
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
    # Whoever streams an answer meanwhile goes first.
    os.nice(10)
    import resource  # noqa: PLC0415  # POSIX only

    # No core file either: it would be as large as the memory.
    for limit, most in ((resource.RLIMIT_AS, memory), (resource.RLIMIT_CORE, 0)):
        # Not everywhere is there such a limit, and a lower one may be set already.
        with suppress(ValueError, OSError):
            resource.setrlimit(limit, (most, resource.getrlimit(limit)[1]))
