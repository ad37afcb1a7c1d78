"""Caches that are removed after use, such as those of what came with one request.

They are in a folder that is locked by the process that made it. After a crash it is locked no longer, and the
next process that starts removes it.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

from citewire.documents.cache import NO_LIMIT, Cache

try:
    import fcntl
except ImportError:  # not POSIX: what is left by who was killed stays there
    fcntl = None

__all__ = ["ScratchCaches", "remove_abandoned"]

_GONE, _LOCK = ".gone-", "lock"


class ScratchCaches:
    """Caches in a folder of their own within `home`; see `close`. Raises `OSError` where none can be made."""

    def __init__(self, home: Path) -> None:
        # For the user only: sources may be confidential.
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _locked(home):
            for left in home.iterdir():
                if left.is_dir():
                    remove_abandoned(left)
            self.folder = Path(tempfile.mkdtemp(dir=home))
            self._lock = _take_lock(self.folder)

    def make(self) -> Cache:
        """A new cache."""
        cache = Cache(Path(tempfile.mkdtemp(dir=self.folder)), limit=NO_LIMIT, make=False)
        cache.version_folder.mkdir(mode=0o700)
        return cache

    def remove(self, cache: Cache) -> None:
        """Remove a cache and all in it. Whoever still writes to it finds no folder there."""
        gone = cache.folder.with_name(_GONE + cache.folder.name)
        with suppress(OSError):
            cache.folder.rename(gone)
        shutil.rmtree(gone, ignore_errors=True)

    def close(self) -> None:
        """Remove all of it."""
        gone = self.folder.with_name(_GONE + self.folder.name)
        with suppress(OSError):
            self.folder.rename(gone)
        shutil.rmtree(gone, ignore_errors=True)
        if self._lock is not None:
            os.close(self._lock)


def remove_abandoned(folder: Path) -> None:
    """Remove a folder unless a process has locked the file `lock` in it."""
    if fcntl is None:
        return
    try:
        lock = _take_lock(folder)
    except OSError:
        return  # somebody has it
    shutil.rmtree(folder, ignore_errors=True)
    if lock is not None:
        os.close(lock)


def _take_lock(folder: Path) -> int | None:
    """The open lock file of a folder, which the system frees when the process ends in any way."""
    if fcntl is None:
        return None
    lock = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        raise
    return lock


@contextmanager
def _locked(home: Path) -> Generator[None]:
    """One process at a time makes and removes folders here."""
    if fcntl is None:
        yield
        return
    lock = os.open(home / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)
