"""Readiness: whether there is free disk space and the store accepts writes.

The check writes nothing: it asks the file system for free space, and the store for the result of its last
write. Only after a failed write does it write a small file, at most once a second, to detect recovery: there
is no other way to see quotas and process limits.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from msgspec import Struct

from citewire.channels.store import StoreError
from citewire.errors import ServerBusy

__all__ = ["Disk", "DiskFull", "Readiness", "read_disk"]

_PROBE = bytes(4096)
# Seconds between two probes.
_EVERY = 1.0


class DiskFull(ServerBusy):
    """The disk of the data folder is full, or nearly full."""

    code = "disk_full"


class Disk(Struct, frozen=True):
    """A folder's file system: free bytes, and free inodes (None if unlimited)."""

    free: int
    names: int | None = None
    is_read_only: bool = False


def read_disk(folder: Path) -> Disk:
    """Return the state of a folder's file system. Raises `OSError`."""
    found = os.statvfs(folder)
    names = found.f_favail if found.f_files else None
    return Disk(found.f_bavail * found.f_frsize, names, bool(found.f_flag & os.ST_RDONLY))


class Readiness:
    """Checks that each of `folders` has `least` free bytes and that the store can write.

    `failure` returns the store's last failed write, or None if its last write succeeded.
    """

    def __init__(
        self,
        folders: Sequence[Path],
        least: int,
        failure: Callable[[], Exception | None] = lambda: None,
        look: Callable[[Path], Disk] = read_disk,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._folders, self._least, self._failure = folders, least, failure
        self._look, self._clock = look, clock
        # The failure after which a probe succeeded, and the time of the last probe.
        self._overcome: Exception | None = None
        self._probed = -_EVERY

    async def check(self) -> None:
        """Raise `DiskFull` or `StoreError` if data could not be stored now."""
        for folder in self._folders:
            self._judge(folder)
        failure = self._failure()
        if failure is None or failure is self._overcome:
            return
        if self._clock() - self._probed >= _EVERY:
            self._probed = self._clock()
            if await asyncio.to_thread(self._can_write):
                self._overcome = failure
                return
        raise StoreError("the store cannot write")

    def _judge(self, folder: Path) -> None:
        try:
            disk = self._look(folder)
        except OSError as exc:
            raise StoreError("the data folder cannot be reached", detail=exc) from exc
        if disk.is_read_only:
            raise StoreError("the disk of the data folder is read-only")
        if disk.free < self._least or disk.names == 0:
            raise DiskFull(f"the disk of the data folder is nearly full: {disk.free >> 20} MiB are free")

    def _can_write(self) -> bool:
        try:
            for folder in self._folders:
                with tempfile.TemporaryFile(dir=folder) as file:
                    file.write(_PROBE)
                    file.flush()
                    os.fsync(file.fileno())
        except OSError:
            return False
        return True
