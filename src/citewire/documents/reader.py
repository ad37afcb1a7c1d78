"""One file, read in a process of its own: a file that crashes, hangs or fills its reader costs only itself.

The child gets a job on stdin and writes what it made to stdout, as msgpack. It has its own session, so that
whatever it starts, such as tesseract, ends with it.
"""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from importlib import import_module
from typing import Any

import numpy as np
from msgspec import Struct, msgpack

from citewire.codec import prepare
from citewire.documents.cache import Packed
from citewire.documents.document import Document
from citewire.documents.errors import DocumentError
from citewire.documents.ocr import die_with_parent
from citewire.errors import CitewireError

__all__ = ["ReaderFailed", "ReaderTimeout", "end", "limit_process", "read_in_child"]

TIMEOUT = 60.0
# Of address space. Fifty megabytes of HTML that are mostly tags take between two and four.
MEMORY = 4 << 30
# Seconds to wait for a child that was killed, and for which one may live on after its parent was.
_GRACE = 5

_COMMAND = ("-P", "-c", "from citewire.documents.reader import serve; serve()")
# A thread for each core, which nothing here uses, would take hundreds of megabytes of address space.
_ENVIRONMENT = {"OPENBLAS_NUM_THREADS": "1"}


class ReaderFailed(DocumentError):
    """The reader crashed, ran out of memory, or has a bug that this file shows."""

    code = "reader_failed"


class ReaderTimeout(DocumentError):
    """The reader was not done in time."""

    code = "reader_timeout"


class _Job(Struct, frozen=True):
    reader: str
    data: bytes
    options: dict[str, Any]
    seconds: int
    memory: int


class _Made(Struct, frozen=True):
    meta: bytes = b""
    arrays: list[tuple[str, tuple[int, ...], memoryview]] = []
    error: tuple[str, str, str] | None = None
    """The code, the message and the detail of what was raised."""


prepare(_Made)


def read_in_child(
    data: bytes,
    reader: str,
    *,
    timeout: float = TIMEOUT,
    memory: int = MEMORY,
    started: Callable[[subprocess.Popen[bytes]], object] = lambda _: None,
    **options: Any,
) -> Document:
    """What `reader`, a `module:function`, makes of `data` and the options. Raises `DocumentError`.

    It is over after `timeout` seconds. Whoever wants to end it sooner kills the process given to `started`.
    """
    job = msgpack.encode(_Job(reader, data, options, math.ceil(timeout), memory))
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
        made, _ = child.communicate(job, timeout=timeout)
    except subprocess.TimeoutExpired as exc:
        raise ReaderTimeout(f"not read within {timeout:g} s") from exc
    finally:
        end(child)
    return _unpacked(made, child.returncode)


def end(child: subprocess.Popen[bytes]) -> None:
    """End a child and whatever it has started, and close its pipes."""
    if sys.platform == "win32":
        child.kill()
    else:
        # Also when it is over: what it has started may not be. Whoever is left keeps the number of the group.
        with suppress(OSError):
            os.killpg(child.pid, signal.SIGKILL)
    with suppress(subprocess.TimeoutExpired):
        child.wait(_GRACE)
    for pipe in (child.stdin, child.stdout):
        # It may not have read all that it was sent.
        with suppress(BrokenPipeError):
            if pipe:
                pipe.close()


def _unpacked(made: bytes, status: int) -> Document:
    if sys.platform != "win32" and status == -signal.SIGXCPU:
        raise ReaderTimeout("not read within the processor time it may take")
    try:
        result = msgpack.decode(made if status == 0 else b"", type=_Made)
        if not result.error:
            arrays = [np.frombuffer(raw, dtype).reshape(shape) for dtype, shape, raw in result.arrays]
            return Packed(result.meta, arrays).document()
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
    """The child: one job, and out."""
    die_with_parent()
    out = os.dup(1)
    # What a library prints must not end up in the result.
    os.dup2(2, 1)
    job = msgpack.decode(sys.stdin.buffer.read(), type=_Job)
    limit_process(job.seconds, job.memory)
    try:
        made = _read(job)
    except CitewireError as exc:
        made = _Made(error=(exc.code, exc.message, exc.detail))
    except MemoryError:
        made = _Made(error=(ReaderFailed.code, "reading it takes too much memory", ""))
    except Exception as exc:  # noqa: BLE001  # the root of a process: a bug that a file shows is told of that file
        made = _Made(error=(ReaderFailed.code, "the reader failed", f"{type(exc).__name__}: {exc}"))
    with os.fdopen(out, "wb") as pipe:
        pipe.write(msgpack.encode(made))
    # Past whatever libraries do at exit: the result is out.
    os._exit(0)


def _read(job: _Job) -> _Made:
    module, _, function = job.reader.partition(":")
    packed = Packed.of(getattr(import_module(module), function)(job.data, **job.options))
    arrays = [
        (array.dtype.str, array.shape, array.reshape(-1).view(np.uint8).data) for array in packed.arrays
    ]
    return _Made(packed.meta, arrays)


def limit_process(seconds: int, memory: int) -> None:
    """In a child: seconds of the processor, bytes of memory, and after everybody else."""
    if sys.platform == "win32":
        return
    import resource  # noqa: PLC0415  # POSIX only

    # No core file either: it would be as large as the memory.
    for what, most in (("AS", memory), ("CPU", seconds), ("CORE", 0)):
        limit = getattr(resource, f"RLIMIT_{what}")
        # Not everywhere is there such a limit, and a lower one may be set already.
        with suppress(ValueError, OSError):
            resource.setrlimit(limit, (most, resource.getrlimit(limit)[1]))
    signal.alarm(seconds + _GRACE)
    os.nice(10)
