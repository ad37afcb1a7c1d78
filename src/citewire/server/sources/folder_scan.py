"""List the files in folders, and detect whether a file has changed."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import IO, TypeAlias

from msgspec import Struct

from citewire.documents.load import FILE_LIMIT

__all__ = ["FileStamp", "FolderScan", "FoundFile", "MOST_FILES", "open_file", "scan_folders", "stamp_of"]

MOST_FILES = 10_000
"""The most files of one folder."""

FileStamp: TypeAlias = tuple[int, int, int]
"""A file's modification time, size and inode, which change when the file does."""


class FoundFile(Struct, frozen=True):
    """A file, its name and its stamp, or the problem with it. `root` is the configured path."""

    path: Path
    root: Path
    name: str
    stamp: FileStamp | None = None
    problem: str | None = None


class FolderScan(Struct, frozen=True):
    """The files found, each once. In `unseen` roots, files may exist that were not found."""

    found: tuple[FoundFile, ...]
    unseen: frozenset[Path]


def scan_folders(given: Iterable[Path]) -> FolderScan:
    """List the files at these paths and in these folders, without hidden files and links elsewhere."""
    found: dict[Path, FoundFile] = {}
    unseen: set[Path] = set()
    for root in (path.absolute() for path in given):
        for each in _files(root, lambda _, root=root: unseen.add(root)):
            found.setdefault(each.path, each)
    return FolderScan(tuple(found.values()), frozenset(unseen))


def open_file(path: Path) -> IO[bytes]:
    """Open a file that was found. Raises `OSError`."""
    # A pipe without a writer may have replaced it, so do not block. The stamp reveals any other change.
    return os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb")


def stamp_of(file: IO[bytes]) -> FileStamp:
    """Return the stamp of an open file."""
    return _stamp(os.fstat(file.fileno()))


def _files(root: Path, failed: Callable[[OSError], object]) -> Iterator[FoundFile]:
    try:
        info = root.stat()
    except OSError as exc:
        failed(exc)
        yield FoundFile(root, root, root.name, problem=f"it cannot be found: {exc.strerror}")
        return
    if not stat.S_ISDIR(info.st_mode):
        yield _file(str(root), root, root.name, info)
        return
    files = _walk(root, failed)
    yield from islice(files, MOST_FILES)
    if next(files, None):
        left_out = f"it has more than {MOST_FILES:,} files; the others are left out"
        yield FoundFile(root, root, root.name, problem=left_out)


def _walk(root: Path, failed: Callable[[OSError], object]) -> Iterator[FoundFile]:
    # Strings instead of `Path` objects are several times as fast.
    home, start = Path(os.path.realpath(root)), len(os.path.join(root, ""))  # noqa: PTH118
    for folder, folders, files in os.walk(root, onerror=failed):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for path in (f"{folder}{os.sep}{name}" for name in sorted(files) if not name.startswith(".")):
            # It may have been deleted meanwhile.
            with suppress(OSError):
                info = os.lstat(path)
                if stat.S_ISLNK(info.st_mode):
                    if not Path(os.path.realpath(path)).is_relative_to(home):
                        continue
                    info = os.stat(path)  # noqa: PTH116
                yield _file(path, root, path[start:], info)


def _file(given: str, root: Path, name: str, info: os.stat_result) -> FoundFile:
    path = Path(given)
    if not stat.S_ISREG(info.st_mode):
        return FoundFile(path, root, name, problem="it is not a regular file")
    if info.st_size > FILE_LIMIT:
        return FoundFile(path, root, name, problem=f"it has more than {FILE_LIMIT} bytes")
    return FoundFile(path, root, name, _stamp(info))


def _stamp(info: os.stat_result) -> FileStamp:
    return info.st_mtime_ns, info.st_size, info.st_ino
