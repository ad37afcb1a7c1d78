"""The files that a folder has, and whether one is still what it was."""

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
"""When a file was changed last, its size and its inode: what differs when the file does."""


class FoundFile(Struct, frozen=True):
    """A file, what it is called, and its stamp; or what is wrong with it. `root` is where one looked."""

    path: Path
    root: Path
    name: str
    stamp: FileStamp | None = None
    problem: str | None = None


class FolderScan(Struct, frozen=True):
    """What was found, each file once. Of the `unseen` roots, what was not found may be there all the same."""

    found: tuple[FoundFile, ...]
    unseen: frozenset[Path]


def scan_folders(given: Iterable[Path]) -> FolderScan:
    """All files at these paths, and in these folders those that are not hidden and not somewhere else."""
    found: dict[Path, FoundFile] = {}
    unseen: set[Path] = set()
    for root in (path.absolute() for path in given):
        for each in _files(root, lambda _, root=root: unseen.add(root)):
            found.setdefault(each.path, each)
    return FolderScan(tuple(found.values()), frozenset(unseen))


def open_file(path: Path) -> IO[bytes]:
    """A file that was found. Raises `OSError`."""
    # What took its place meanwhile may be a pipe that nobody writes to. All else the stamp tells.
    return os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb")


def stamp_of(file: IO[bytes]) -> FileStamp:
    """The stamp of an open file."""
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
    # With texts for paths, which is several times as fast.
    home, start = Path(os.path.realpath(root)), len(os.path.join(root, ""))  # noqa: PTH118
    for folder, folders, files in os.walk(root, onerror=failed):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for path in (f"{folder}{os.sep}{name}" for name in sorted(files) if not name.startswith(".")):
            # It may be gone by now.
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
