"""Files in the data folder that only their owner reads, written whole or not at all."""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeAlias

from citewire.errors import CitewireError

__all__ = ["KeyringError", "Mark", "alone", "mark", "read", "write"]

Mark: TypeAlias = tuple[int, int, int] | None


class KeyringError(CitewireError):
    """The keys cannot be read, written, or used as they are: something for whoever runs the server."""

    code = "bad_keyring"


def read(path: Path) -> bytes | None:
    """What is in the file, None where there is none."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as exc:
        raise KeyringError(f"cannot read {path}: {exc.strerror}") from exc


def mark(path: Path) -> Mark:
    """What changes whenever `write` puts another file there; None where there is none."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    except OSError as exc:
        raise KeyringError(f"cannot read {path}: {exc.strerror}") from exc
    return found.st_ino, found.st_mtime_ns, found.st_size


def write(path: Path, data: bytes) -> None:
    """Put `data` there with mode 0600; whoever reads meanwhile sees all of it or nothing of it."""
    try:
        handle, aside = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            Path(aside).replace(path)
        except BaseException:
            Path(aside).unlink(missing_ok=True)
            raise
        _sync(path.parent)
    except OSError as exc:
        raise KeyringError(f"cannot write {path}: {exc.strerror}") from exc


def _sync(folder: Path) -> None:
    """Make the new name last, not only what it names."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def alone(folder: Path) -> Generator[None]:
    """While this is held, no other thread or process holds it for this folder; made if need be."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle = os.open(folder / "keys.lock", os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as exc:
        raise KeyringError(f"cannot write to the data folder {folder}: {exc.strerror}") from exc
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
