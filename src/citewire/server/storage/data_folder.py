"""The data folder belongs to the user who runs the server: nobody else may read or write what is in it.

The server makes its files with a umask of 077. What an earlier version, a copy or a backup has left open to
others is closed at the start. Only names that the server itself makes are touched, and no link is followed.
Where the folder has other files too, others may go on reading it and can no longer write to it.
"""

from __future__ import annotations

import logging
import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from citewire.channels.store import StoreError

__all__ = ["keep_private", "restrict_new_files"]

_log = logging.getLogger("citewire.server")
_OTHERS, _OTHERS_WRITE = 0o077, 0o022
_DATABASES = ("log.sqlite", "search.sqlite")
# Files and folders that the server makes.
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
# Files that the server makes and does not close: it refuses a secret that others could read, see `vault`.
_SECRETS = frozenset({"audit.key", "secret"})
# Files that the vault writes before they get their names: those of a server that was killed are left.
_UNFINISHED = (".audit.key-", ".keys.json-", ".secret-")
# Names of files that a line of the log shows.
_SHOWN = 3


def restrict_new_files() -> None:
    """Let nobody but the owner read or write the files that this process and its children make."""
    os.umask(_OTHERS)


def keep_private(folder: Path) -> None:
    """Close to others what the server has in its data folder, and say so. Raises `StoreError`."""
    if not folder.is_dir():
        return
    closed = [path for path, rights in _own(folder) if _close(path, rights)]
    # A new folder that somebody has made for the server is nothing to tell of.
    if closed and any(folder.iterdir()):
        names = ", ".join(str(path.relative_to(folder.parent)) for path in closed[:_SHOWN])
        more = ", …" if len(closed) > _SHOWN else ""
        _log.warning(
            "others could read or write %d files of the data folder, and now cannot: %s%s",
            len(closed), names, more,
        )  # fmt: skip


def _own(folder: Path) -> Iterator[tuple[Path, int]]:
    """The data folder and what the server has made there, each with the rights that others may not have.

    Raises `StoreError` for a folder that all users share, as `/tmp`: it is not ours to close.
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
            # Bottom up, so that a folder that cannot be entered is told of.
            for home, folders, files in os.walk(path, followlinks=False):
                yield from ((Path(home, each), _OTHERS) for each in (*folders, *files))


def _close(path: Path, rights: int) -> bool:
    """Take these rights on a file or folder from others; whether they had any. Links are left alone."""
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
