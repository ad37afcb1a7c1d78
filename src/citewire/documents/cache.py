"""What was made of a document, kept on disk by the sha256 of its bytes, so that it is read once.

An entry is a folder with its metadata as msgpack and its arrays as `.npy` files, which are mapped, not read.
It is made aside and renamed, so whoever looks sees all of it or nothing, and of several who make the same
one the first wins. An entry that does not hold what it should counts as missing, and so does everything
where nothing can be written: a cache makes things faster, and never makes them fail.

What is made of a document, such as its search index, is an entry within the entry of the document. It goes
with the document, and cannot be written any more once the document is dropped.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from msgspec import msgpack
from numpy.typing import NDArray

from citewire.codec import prepare_types
from citewire.documents.document import Document

__all__ = ["Cache", "NO_LIMIT", "PackedArrays", "READER_VERSION", "default_folder"]

# Goes up when a reader makes something else of the same bytes: what the old one made is no longer found.
READER_VERSION = 4

DEFAULT_LIMIT, NO_LIMIT = 4 << 30, 1 << 62
# The share of the limit that one process writes before it looks again what others have written.
_LOOK_AFTER = 1 / 16
# Seconds after which what is still aside was left there by a writer that was killed, and for which what was
# used may be in use: others open it by its key.
_STALE = 3600

_KEY = re.compile(r"[0-9a-f]{64}(?:-[a-z0-9_.-]{1,64})?(?:/[a-z0-9-]{1,32})?")
_SHA256 = len("0" * 64)
_META, _ASIDE = "meta.msgpack", ".aside-"

prepare_types(Document)


class PackedArrays(NamedTuple):
    """Metadata as msgpack, and the arrays that it numbers."""

    meta: bytes
    arrays: Sequence[NDArray[Any]]

    @classmethod
    def from_document(cls, document: Document) -> PackedArrays:
        arrays: list[NDArray[Any]] = []

        def number(value: Any) -> int:
            arrays.append(np.ascontiguousarray(value))
            return len(arrays) - 1

        return cls(msgpack.encode(document, enc_hook=number), arrays)

    def to_document(self) -> Document:
        """The document again. Raises `ValueError` where it is none."""

        def array(_: type, at: int) -> NDArray[Any]:
            return self.arrays[at]

        try:
            document = msgpack.decode(self.meta, type=Document, dec_hook=array)
        except (LookupError, TypeError) as exc:
            raise ValueError(f"not a document: {exc}") from exc
        for rows in (document.boxes, document.confidence):
            if rows is not None and len(rows) != len(document.text):
                raise ValueError("an array of another document")
        return document


def default_folder() -> Path:
    """Where the caches of this user are, see the XDG base directory specification."""
    base = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
    return (base if base.is_absolute() else Path.home() / ".cache") / "citewire"


class Cache:
    """Entries in `folder`, of about `limit` bytes in all: those not used for longest go first.

    A key is a sha256 in hex and, after a hyphen, what else the entry depends on; of what was made of a
    document, the key of the document, a slash and a name. Any number of threads and processes may use one
    folder. With `make=False` it is somebody else's to make and to remove, and never made again here.
    """

    def __init__(self, folder: Path | None = None, *, limit: int = DEFAULT_LIMIT, make: bool = True) -> None:
        self.folder = folder or default_folder()
        self.limit, self._make = limit, make
        self._unlooked = 0.0

    @property
    def version_folder(self) -> Path:
        """The folder in which the entries of this version are."""
        return self.folder / f"v{READER_VERSION}"

    def is_usable(self) -> bool:
        """Whether anything can be written there."""
        try:
            with self._aside():
                return True
        except OSError:
            return False

    def get(self, key: str) -> Document | None:
        """The document that was put there, its arrays mapped from disk."""
        packed = self.read(key)
        try:
            return None if packed is None else packed.to_document()
        except ValueError:
            self._drop(self._entry(key))
            return None

    def has(self, key: str) -> bool:
        """Whether there is an entry of this key."""
        return (self._entry(key) / _META).exists()

    def discard(self, sha256: str) -> None:
        """Forget all that was made of these bytes."""
        for entry in self.version_folder.glob(f"{sha256}*"):
            self._drop(entry)

    def prune(self, is_needed: Callable[[str], bool]) -> None:
        """Forget what was made of bytes that nobody needs, by their sha256, and what older versions made."""
        for entry in self.folder.glob("v*/*"):
            is_current = entry.parent == self.version_folder
            if not entry.name.startswith(_ASIDE) and not (is_current and is_needed(entry.name[:_SHA256])):
                self._drop(entry)

    def remove_unfinished(self) -> None:
        """Remove what a writer that was killed has left. Only for who has the folder alone, at the start."""
        for entry in self.folder.glob(f"v*/{_ASIDE}*"):
            shutil.rmtree(entry, ignore_errors=True)

    def drop(self, key: str) -> None:
        """Forget what is there."""
        self._drop(self._entry(key))

    def put(self, key: str, document: Document) -> None:
        self.write(key, PackedArrays.from_document(document))

    def read(self, key: str) -> PackedArrays | None:
        """As `get`, for whatever else consists of arrays, such as an index."""
        entry = self._entry(key)
        try:
            count, meta = msgpack.decode((entry / _META).read_bytes(), type=tuple[int, bytes])
            arrays = [np.load(entry / f"{n}.npy", mmap_mode="r", allow_pickle=False) for n in range(count)]
            os.utime(entry)
        except (FileNotFoundError, ValueError, EOFError):
            self._drop(entry)
            return None
        except OSError:
            return None
        return PackedArrays(meta, arrays)

    def write(self, key: str, packed: PackedArrays) -> None:
        entry = self._entry(key)
        size = len(packed.meta) + sum(array.nbytes for array in packed.arrays)
        if size > self.limit:
            return
        # Not there, not ours, full, or somebody was faster.
        with suppress(OSError), self._aside(entry.parent) as aside:
            (aside / _META).write_bytes(msgpack.encode((len(packed.arrays), packed.meta)))
            for n, array in enumerate(packed.arrays):
                np.save(aside / f"{n}.npy", array, allow_pickle=False)
            aside.rename(entry)
            self._unlooked -= size
            if self._unlooked < 0:
                self._unlooked = self.limit * _LOOK_AFTER
                self._make_room()

    def _entry(self, key: str) -> Path:
        if not _KEY.fullmatch(key):
            raise ValueError(f"not a key: {key!r}")
        return self.version_folder / key

    @contextmanager
    def _aside(self, home: Path | None = None) -> Generator[Path]:
        home = home or self.version_folder
        if self._make and home == self.version_folder:
            # For the user only: sources may be confidential.
            home.mkdir(mode=0o700, parents=True, exist_ok=True)
        aside = Path(tempfile.mkdtemp(prefix=_ASIDE, dir=home))
        try:
            yield aside
        finally:
            shutil.rmtree(aside, ignore_errors=True)

    def _drop(self, entry: Path) -> None:
        if not entry.exists():
            return
        with suppress(OSError), self._aside() as aside:
            entry.rename(aside / "dropped")

    def _make_room(self) -> None:
        """Entries of older versions are among those not used for longest."""
        entries = sorted(self._entries(), reverse=True)
        total, stale = 0, time.time() - _STALE
        for used, size, entry in entries:
            total += size
            if used >= stale:
                continue
            if entry.name.startswith(_ASIDE):
                shutil.rmtree(entry, ignore_errors=True)
            elif total > self.limit:
                self._drop(entry)

    def _entries(self) -> Iterator[tuple[float, int, Path]]:
        for entry in self.folder.glob("v*/*"):
            # Others may drop it meanwhile.
            with suppress(OSError):
                size = sum(file.stat().st_size for file in entry.rglob("*"))
                yield entry.stat().st_mtime, size, entry
