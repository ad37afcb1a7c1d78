"""Read one file in a child process: a file that crashes, hangs or overfills its reader affects nothing else.

The child gets a job on stdin and writes the result to stdout, as msgpack. It has its own session, so that
processes it starts, such as tesseract, end with it.
"""

from __future__ import annotations

import math
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from importlib import import_module
from typing import Any

import numpy as np
from msgspec import Struct, msgpack

from citewire.codec import prepare_types
from citewire.documents.cache import PackedArrays
from citewire.documents.document import Document
from citewire.documents.errors import DocumentError
from citewire.documents.ocr import die_with_parent
from citewire.errors import CitewireError

__all__ = [
    "MOST_RESULT", "ReaderFailed", "ReaderTimeout", "exchange", "limit_process", "read_in_child", "terminate",
]  # fmt: skip

READ_TIMEOUT = 60.0
# Address space. Fifty megabytes of HTML that are mostly tags take between two and four.
READ_MEMORY = 4 << 30
# Most bytes of a result: the parent, which has no memory limit, holds all of them.
MOST_RESULT = 256 << 20
# Seconds to wait for a killed child, and for which a child may outlive a killed parent.
_GRACE = 5

_COMMAND = ("-P", "-c", "from citewire.documents.reader import serve; serve()")
# Bytes sent or received at once, and bytes of encoding overhead of a result.
_PIECE, _OVERHEAD = 1 << 16, 1 << 16
# One thread per core, which nothing here uses, would take hundreds of megabytes of address space.
_ENVIRONMENT = {"OPENBLAS_NUM_THREADS": "1"}


class ReaderFailed(DocumentError):
    """The reader crashed, ran out of memory, or has a bug that this file triggers."""

    code = "reader_failed"


class ReaderTimeout(DocumentError):
    """The reader did not finish in time."""

    code = "reader_timeout"


class _Job(Struct, frozen=True):
    reader: str
    data: bytes
    options: dict[str, Any]
    seconds: int
    memory: int
    most_result: int


class _ReadResult(Struct, frozen=True):
    meta: bytes = b""
    arrays: list[tuple[str, tuple[int, ...], memoryview]] = []
    error: tuple[str, str, str] | None = None
    """The code, the message and the detail of what was raised."""


prepare_types(_ReadResult)


def read_in_child(
    data: bytes,
    reader: str,
    *,
    timeout: float = READ_TIMEOUT,
    memory: int = READ_MEMORY,
    most_result: int = MOST_RESULT,
    started: Callable[[subprocess.Popen[bytes]], object] = lambda _: None,
    **options: Any,
) -> Document:
    """Run `reader`, a `module:function`, on `data` in a child process. Raises `DocumentError`.

    It is killed after `timeout` seconds. To stop earlier, kill the process passed to `started`. A document of
    more than `most_result` bytes is refused.
    """
    job = msgpack.encode(_Job(reader, data, options, math.ceil(timeout), memory, most_result))
    command = (sys.executable, *_COMMAND)
    try:
        child = subprocess.Popen(  # noqa: S603  # our own interpreter and code
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            env=os.environ | _ENVIRONMENT, start_new_session=True,
        )  # fmt: skip
    except OSError as exc:
        raise ReaderFailed("no process to read it in", detail=exc) from exc
    try:
        started(child)
        made = exchange(child, job, timeout=timeout, most=most_result + _OVERHEAD)
    except subprocess.TimeoutExpired as exc:
        raise ReaderTimeout(f"not read within {timeout:g} s") from exc
    except OverflowError as exc:
        raise ReaderFailed(_too_large(most_result)) from exc
    finally:
        terminate(child)
    return _unpacked(made, child.returncode)


def exchange(child: subprocess.Popen[bytes], job: bytes, *, timeout: float, most: int) -> bytearray:
    """Send a child its job, and return its whole output.

    Like `Popen.communicate`, but raises `OverflowError` as soon as the child has written more than `most`
    bytes. Raises `subprocess.TimeoutExpired`.
    """
    if not child.stdin or not child.stdout:
        raise ValueError("a child without pipes")
    if sys.platform == "win32":
        # On Windows, a selector cannot wait for pipes; the child itself limits its output.
        return bytearray(child.communicate(job, timeout=timeout)[0])
    until = time.monotonic() + timeout
    unsent, received = memoryview(job), bytearray()
    os.set_blocking(child.stdin.fileno(), False)
    with selectors.DefaultSelector() as pipes:
        pipes.register(child.stdin, selectors.EVENT_WRITE)
        pipes.register(child.stdout, selectors.EVENT_READ)
        while pipes.get_map():
            left = until - time.monotonic()
            if left <= 0:
                raise subprocess.TimeoutExpired(child.args, timeout)
            for pipe, _ in pipes.select(left):
                if pipe.fileobj is child.stdin:
                    unsent = _send(pipe.fd, unsent)
                    if not unsent:
                        pipes.unregister(child.stdin)
                        child.stdin.close()
                    continue
                piece = os.read(pipe.fd, _PIECE)
                received += piece
                if len(received) > most:
                    raise OverflowError(f"more than {most} bytes")
                if not piece:
                    pipes.unregister(child.stdout)
    child.wait(max(0.0, until - time.monotonic()))
    return received


def _send(pipe: int, unsent: memoryview) -> memoryview:
    """Write as much as fits, and return the rest. Nothing is left if the child has closed the pipe."""
    try:
        return unsent[os.write(pipe, unsent[:_PIECE]) :]
    except BlockingIOError:
        return unsent
    except BrokenPipeError:
        return unsent[:0]


def _too_large(most: int) -> str:
    return f"what was read takes more than {most:,} bytes"


def terminate(child: subprocess.Popen[bytes]) -> None:
    """Kill a child and its descendants, and close its pipes."""
    if sys.platform == "win32":
        child.kill()
    else:
        # Even if it has ended: its descendants may still run, and they hold on to the process group id.
        with suppress(OSError):
            os.killpg(child.pid, signal.SIGKILL)
    with suppress(subprocess.TimeoutExpired):
        child.wait(_GRACE)
    for pipe in (child.stdin, child.stdout):
        # The child may not have read everything sent to it.
        with suppress(BrokenPipeError):
            if pipe:
                pipe.close()


def _unpacked(made: bytearray, status: int) -> Document:
    if sys.platform != "win32" and status == -signal.SIGXCPU:
        raise ReaderTimeout("not read within the processor time it may take")
    try:
        result = msgpack.decode(made if status == 0 else b"", type=_ReadResult)
        if not result.error:
            arrays = [np.frombuffer(raw, dtype).reshape(shape) for dtype, shape, raw in result.arrays]
            return PackedArrays(result.meta, arrays).to_document()
    except ValueError as exc:
        names = {-number: number.name for number in signal.Signals}
        raise ReaderFailed(f"the reader ended with {names.get(status, f'status {status}')}") from exc
    code, message, detail = result.error
    kind = {error.code: error for error in _kinds(DocumentError)}.get(code, DocumentError)
    raise kind(message, detail=detail)


def _kinds(error: type[DocumentError]) -> Iterator[type[DocumentError]]:
    yield error
    for kind in error.__subclasses__():
        yield from _kinds(kind)


def serve() -> None:
    """Run the child: do one job and exit."""
    die_with_parent()
    out = os.dup(1)
    # Output that a library prints must not mix with the result.
    os.dup2(2, 1)
    job = msgpack.decode(sys.stdin.buffer.read(), type=_Job)
    limit_process(job.seconds, job.memory)
    try:
        made = _read(job)
    except CitewireError as exc:
        made = _ReadResult(error=(exc.code, exc.message, exc.detail))
    except MemoryError:
        made = _ReadResult(error=(ReaderFailed.code, "reading it takes too much memory", ""))
    except Exception as exc:  # noqa: BLE001  # the root of a process: a bug that a file shows is told of that file
        made = _ReadResult(error=(ReaderFailed.code, "the reader failed", f"{type(exc).__name__}: {exc}"))
    with os.fdopen(out, "wb") as pipe:
        pipe.write(msgpack.encode(made))
    # Skip the exit handlers of libraries: the result is sent.
    os._exit(0)


def _read(job: _Job) -> _ReadResult:
    module, _, function = job.reader.partition(":")
    packed = PackedArrays.from_document(getattr(import_module(module), function)(job.data, **job.options))
    if len(packed.meta) + sum(array.nbytes for array in packed.arrays) > job.most_result:
        raise ReaderFailed(_too_large(job.most_result))
    arrays = [
        (array.dtype.str, array.shape, array.reshape(-1).view(np.uint8).data) for array in packed.arrays
    ]
    return _ReadResult(packed.meta, arrays)


def limit_process(seconds: int, memory: int) -> None:
    """In a child: limit processor seconds and memory, and lower the priority."""
    if sys.platform == "win32":
        return
    import resource  # noqa: PLC0415  # POSIX only

    # No core file either: it would be as large as the memory.
    for what, most in (("AS", memory), ("CPU", seconds), ("CORE", 0)):
        limit = getattr(resource, f"RLIMIT_{what}")
        # Some platforms lack this limit, and a lower one may already be set.
        with suppress(ValueError, OSError):
            resource.setrlimit(limit, (most, resource.getrlimit(limit)[1]))
    signal.alarm(seconds + _GRACE)
    os.nice(10)
