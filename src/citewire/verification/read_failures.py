"""Remember files that crashed or exhausted a reader, to avoid repeated attempts.

A file that ran out of time or memory, or crashed its reader, costs its full limits at each attempt. Its
failure is stored on disk by the file's sha256 and the version of the readers, and applies while the limits
are no larger than they were. `forget` makes the next attempt a real one. Failures of files that must leave no
trace, such as those sent with a request, are in memory only, under a keyed hash of the sha256.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import tempfile
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from msgspec import DecodeError, Struct, json

from citewire.documents.cache import READER_VERSION
from citewire.documents.errors import DocumentError
from citewire.documents.reader import ReaderFailed, ReaderTimeout

__all__ = ["ReadFailures"]

# Most failures on disk and in memory; the oldest are dropped first. One takes a few hundred bytes.
_MOST = 10_000
_SHA256 = len("0" * 64)
_ASIDE = ".aside-"
_KINDS = {error.code: error for error in (ReaderFailed, ReaderTimeout)}


class _Failure(Struct, frozen=True):
    code: str
    message: str
    seconds: float
    memory: int


class ReadFailures:
    """Store of read failures in `folder`. Many threads and processes may share one folder."""

    def __init__(self, folder: Path, most: int = _MOST) -> None:
        self._home, self._folder, self._most = folder, folder / f"failed-v{READER_VERSION}", most
        self._known: OrderedDict[str, _Failure] = OrderedDict()
        self._secret = secrets.token_bytes(32)

    def check(self, sha256: str, variant: str, *, seconds: float, memory: int) -> None:
        """Raise the recorded failure of a file, unless it had less time or memory than it would get now."""
        failure = self._known.get(self._hidden(sha256, variant)) or self._read(_name(sha256, variant))
        if failure and failure.seconds >= seconds and failure.memory >= memory:
            raise _KINDS.get(failure.code, DocumentError)(failure.message)

    def add(
        self, sha256: str, variant: str, error: DocumentError, *, seconds: float, memory: int,
        is_kept: bool = True,
    ) -> None:  # fmt: skip
        """Record a failure; with `is_kept`, also on disk if it is writable."""
        failure = _Failure(error.code, error.message, seconds, memory)
        self._known[self._hidden(sha256, variant)] = failure
        while len(self._known) > self._most:
            self._known.popitem(last=False)
        # If the disk is not writable, the failure is only forgotten sooner.
        with suppress(OSError):
            if is_kept:
                self._write(_name(sha256, variant), failure)

    def forget(self, sha256: str) -> None:
        """Delete the failures of a file, so that it is tried again."""
        hidden = self._hidden(sha256)
        for name in [each for each in list(self._known) if each.startswith(hidden)]:
            self._known.pop(name, None)
        with suppress(OSError):
            for path in self._folder.glob(f"{sha256}-*"):
                path.unlink(missing_ok=True)

    def prune(self, is_needed: Callable[[str], bool]) -> None:
        """Delete failures of files that are not needed, by sha256, and those of older versions."""
        with suppress(OSError):
            for path in self._home.glob("failed-v*/*"):
                is_current, sha256 = path.parent == self._folder, path.name[:_SHA256]
                # A temporary file is being written.
                if not is_current or not (path.name.startswith(_ASIDE) or is_needed(sha256)):
                    path.unlink(missing_ok=True)

    def _hidden(self, sha256: str, variant: str | None = None) -> str:
        """Return the in-memory key of a failure, which hides the sha256; without a variant, its prefix."""
        keyed = hashlib.blake2b(sha256.encode(), key=self._secret, digest_size=32).hexdigest()
        return f"{keyed}-" if variant is None else _name(keyed, variant)

    def _read(self, name: str) -> _Failure | None:
        with suppress(OSError, DecodeError):
            return json.decode((self._folder / name).read_bytes(), type=_Failure)
        return None

    def _write(self, name: str, failure: _Failure) -> None:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle, aside = tempfile.mkstemp(dir=self._folder, prefix=_ASIDE)
        with os.fdopen(handle, "wb") as file:
            file.write(json.encode(failure))
        Path(aside).replace(self._folder / name)
        for path in self._surplus():
            path.unlink(missing_ok=True)

    def _surplus(self) -> Iterator[Path]:
        paths = list(self._folder.iterdir())
        if len(paths) > self._most:
            # Other processes may delete files meanwhile.
            ages = {path: path.stat().st_mtime for path in paths if path.exists()}
            yield from sorted(ages, key=ages.__getitem__)[: len(paths) - self._most]


def _name(sha256: str, variant: str) -> str:
    return f"{sha256}-{hashlib.sha256(variant.encode()).hexdigest()[:16]}"
