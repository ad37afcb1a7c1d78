"""Disk cache of documents and their search indexes, keyed by the sha256 of the bytes, so each is read once.

An entry is a folder with its metadata as msgpack and its arrays as `.npy` files, which are memory-mapped. It
is written to a temporary folder and renamed, so readers see all of it or nothing, and of several writers of
the same entry the first wins. A corrupt entry counts as missing, and so does every entry if the folder is not
writable: a cache makes things faster, and never makes them fail.

Data derived from a document, such as its search index, is an entry within the document's entry. It is deleted
with the document, and cannot be written once the document is dropped.
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

# Increase this when a reader returns something else for the same bytes: older entries are then ignored.
READER_VERSION = 4

DEFAULT_LIMIT, NO_LIMIT = 4 << 30, 1 << 62
# The share of the limit that one process writes before it measures again what others have written.
_LOOK_AFTER = 1 / 16
# Seconds after which a temporary folder counts as left by a killed writer, and for which a used entry may
# still be in use: other processes open it by its key.
_STALE = 3600

_KEY = re.compile(r"[0-9a-f]{64}(?:-[a-z0-9_.-]{1,64})?(?:/[a-z0-9-]{1,32})?")
_SHA256 = len("0" * 64)
_META, _ASIDE = "meta.msgpack", ".aside-"

prepare_types(Document)


class PackedArrays(NamedTuple):
    """Metadata as msgpack, and the arrays that it refers to by number."""

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
        """Return the document. Raises `ValueError` if it is not one."""

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
    """Return the user's cache folder, see the XDG base directory specification."""
    base = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
    return (base if base.is_absolute() else Path.home() / ".cache") / "citewire"


class Cache:
    """A cache in `folder` of about `limit` bytes; the least recently used entries are dropped first.

    A key is a sha256 in hex and, after a hyphen, the options the entry depends on. A derived entry has the
    document's key, a slash and a name. Many threads and processes may share one folder. With `make=False` the
    folder is managed elsewhere, and never created here.
    """

    def __init__(self, folder: Path | None = None, *, limit: int = DEFAULT_LIMIT, make: bool = True) -> None:
        self.folder = folder or default_folder()
        self.limit, self._make = limit, make
        self._unlooked = 0.0

    @property
    def version_folder(self) -> Path:
        """The folder with the entries of this version."""
        return self.folder / f"v{READER_VERSION}"

    def is_usable(self) -> bool:
        """Return whether the folder is writable."""
        try:
            with self._aside():
                return True
        except OSError:
            return False

    def get(self, key: str) -> Document | None:
        """Return a cached document, its arrays memory-mapped, or None."""
        packed = self.read(key)
        try:
            return None if packed is None else packed.to_document()
        except ValueError:
            self._drop(self._entry(key))
            return None

    def has(self, key: str) -> bool:
        """Return whether there is an entry with this key."""
        return (self._entry(key) / _META).exists()

    def discard(self, sha256: str) -> None:
        """Delete all entries of these bytes."""
        for entry in self.version_folder.glob(f"{sha256}*"):
            self._drop(entry)

    def prune(self, is_needed: Callable[[str], bool]) -> None:
        """Delete entries of bytes that are not needed, by their sha256, and those of older versions."""
        for entry in self.folder.glob("v*/*"):
            is_current = entry.parent == self.version_folder
            if not entry.name.startswith(_ASIDE) and not (is_current and is_needed(entry.name[:_SHA256])):
                self._drop(entry)

    def remove_unfinished(self) -> None:
        """Delete what a killed writer has left. Only for the sole user of the folder, at the start."""
        for entry in self.folder.glob(f"v*/{_ASIDE}*"):
            shutil.rmtree(entry, ignore_errors=True)

    def drop(self, key: str) -> None:
        """Delete an entry."""
        self._drop(self._entry(key))

    def put(self, key: str, document: Document) -> None:
        self.write(key, PackedArrays.from_document(document))

    def read(self, key: str) -> PackedArrays | None:
        """Like `get`, for other data that consists of arrays, such as an index."""
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
        # The folder is missing, not writable or full, or another writer was faster.
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
            # Accessible to this user only: sources may be confidential.
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
        """Drop the least recently used entries, those of older versions among them."""
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
            # Other processes may drop it meanwhile.
            with suppress(OSError):
                size = sum(file.stat().st_size for file in entry.rglob("*"))
                yield entry.stat().st_mtime, size, entry
