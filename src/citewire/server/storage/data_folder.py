"""Make the data folder private to the user who runs the server.

The server creates files with a umask of 077. At startup it removes other users' access that an earlier
version, a copy or a backup left behind. It touches only names that the server itself creates and follows no
links. If the folder also has other files, other users can still read the folder but no longer write to it.
"""

from __future__ import annotations

import logging
import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from citewire.channels.store import StoreError

__all__ = ["keep_private", "restrict_new_files", "sync_folder"]

_log = logging.getLogger("citewire.server")
_OTHERS, _OTHERS_WRITE = 0o077, 0o022
_DATABASES = ("log.sqlite", "search.sqlite")
# Files and folders that the server creates.
_OURS = frozenset(
    {
        "address",
        "attachments",
        "cache",
        "keys.json",
        "keys.lock",
        "lock",
        "sandbox",
        "sign-in.html",
        "sources",
    }
    | {name + end for name in _DATABASES for end in ("", "-journal", "-shm", "-wal")}
)
# Secrets that the server creates. Their mode is not corrected: a readable secret is refused, see `vault`.
_SECRETS = frozenset({"audit.key", "secret"})
# Prefixes of the vault's temporary files, left behind by a server that was killed.
_UNFINISHED = (".audit.key-", ".keys.json-", ".secret-")
# How many file names a log line shows.
_SHOWN = 3


def restrict_new_files() -> None:
    """Set the umask, so that only the owner can access files created by this process and its children."""
    os.umask(_OTHERS)


def keep_private(folder: Path) -> None:
    """Remove other users' access to the server's files and log a warning. Raises `StoreError`."""
    if not folder.is_dir():
        return
    closed = [path for path, rights in _own(folder) if _close(path, rights)]
    # A new, empty folder made for the server needs no warning.
    if closed and any(folder.iterdir()):
        names = ", ".join(str(path.relative_to(folder.parent)) for path in closed[:_SHOWN])
        more = ", …" if len(closed) > _SHOWN else ""
        _log.warning(
            "others could read or write %d files of the data folder, and now cannot: %s%s",
            len(closed), names, more,
        )  # fmt: skip


def _own(folder: Path) -> Iterator[tuple[Path, int]]:
    """Yield the data folder and the server's files in it, each with the permissions to remove.

    Raises `StoreError` for a folder shared by all users, such as `/tmp`, which is not ours to restrict.
    """
    mode, names = folder.stat().st_mode, {entry.name for entry in os.scandir(folder)}
    ours = {name for name in names if name in _OURS or name.startswith(_UNFINISHED)}
    if names <= ours | _SECRETS:
        yield folder, _OTHERS
    elif mode & stat.S_ISVTX and mode & _OTHERS_WRITE:
        raise StoreError(f"all users can write to {folder}: the server needs a data folder of its own")
    else:
        yield folder, _OTHERS_WRITE
    for name in sorted(ours):
        path = folder / name
        yield path, _OTHERS
        if not path.is_symlink():
            # Each folder is yielded before `os.walk` enters it, so that one that cannot be opened is
            # reported.
            for home, folders, files in os.walk(path, followlinks=False):
                yield from ((Path(home, each), _OTHERS) for each in (*folders, *files))


def _close(path: Path, rights: int) -> bool:
    """Remove permissions from a file or folder and return whether it had any. Links are left alone."""
    with suppress(FileNotFoundError):
        found = path.lstat()
        if not found.st_mode & rights or not (stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode)):
            return False
        try:
            handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            try:
                os.fchmod(handle, stat.S_IMODE(os.fstat(handle).st_mode) & ~rights)
            finally:
                os.close(handle)
        except FileNotFoundError:
            raise
        except OSError as exc:
            raise StoreError(
                f"others can read or write {path}, and that cannot be changed: {exc.strerror}"
            ) from exc
        return True
    return False


def sync_folder(folder: Path) -> None:
    """Sync the folder, so that the new name is durable and not only the content."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
