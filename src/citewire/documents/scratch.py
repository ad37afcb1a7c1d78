"""Temporary caches, such as those for sources sent with one request.

They are in a folder locked by the process that made it. A crash releases the lock, and the next process that
starts removes the folder.
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
except ImportError:  # not POSIX: files left by a killed process stay
    fcntl = None

__all__ = ["ScratchCaches", "remove_abandoned"]

_GONE, _LOCK = ".gone-", "lock"


class ScratchCaches:
    """Temporary caches in a new folder within `home`; see `close`. Raises `OSError` if it cannot be made."""

    def __init__(self, home: Path) -> None:
        # Accessible to this user only: sources may be confidential.
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _locked(home):
            for left in home.iterdir():
                if left.is_dir():
                    remove_abandoned(left)
            self.folder = Path(tempfile.mkdtemp(dir=home))
            self._lock = _take_lock(self.folder)

    def make(self) -> Cache:
        """Create a cache."""
        cache = Cache(Path(tempfile.mkdtemp(dir=self.folder)), limit=NO_LIMIT, make=False)
        cache.version_folder.mkdir(mode=0o700)
        return cache

    def remove(self, cache: Cache) -> None:
        """Delete a cache. A process that still writes to it finds no folder."""
        gone = cache.folder.with_name(_GONE + cache.folder.name)
        with suppress(OSError):
            cache.folder.rename(gone)
        shutil.rmtree(gone, ignore_errors=True)

    def close(self) -> None:
        """Delete all caches, and release the lock."""
        gone = self.folder.with_name(_GONE + self.folder.name)
        with suppress(OSError):
            self.folder.rename(gone)
        shutil.rmtree(gone, ignore_errors=True)
        if self._lock is not None:
            os.close(self._lock)


def remove_abandoned(folder: Path) -> None:
    """Delete a folder unless a process has locked the file `lock` in it."""
    if fcntl is None:
        return
    try:
        lock = _take_lock(folder)
    except OSError:
        return  # another process holds the lock
    shutil.rmtree(folder, ignore_errors=True)
    if lock is not None:
        os.close(lock)


def _take_lock(folder: Path) -> int | None:
    """Return the open lock file of a folder; the system releases the lock when the process ends."""
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
    """Hold a lock, so that one process at a time makes and removes folders here."""
    if fcntl is None:
        yield
        return
    lock = os.open(home / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)
