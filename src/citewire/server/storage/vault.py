"""Storage for the server's keys and secret: the port, and an implementation with files in the data folder.

Each value is written completely or not at all, and only the server's owner can read it.
"""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Protocol, TypeAlias

from citewire.errors import CitewireError
from citewire.server.storage.data_folder import sync_folder

__all__ = ["FileVault", "KeyringError", "Vault", "VaultVersion"]

VaultVersion: TypeAlias = tuple[object, ...] | None


class KeyringError(CitewireError):
    """The keys cannot be read, written or used as they are. The operator of the server must act."""

    code = "bad_keyring"


class Vault(Protocol):
    """**Protocol:** stores a few small values by name. Safe for any number of threads and processes.

    All methods raise `KeyringError` on failure.
    """

    def read(self, name: str, *, secret: bool = False) -> bytes | None:
        """Return a value, or None if there is none. Refuses a `secret` that other users could read."""
        ...

    def version(self, name: str) -> VaultVersion:
        """Return a mark that changes with every write, or None without a value. Cheap to call."""
        ...

    def write(self, name: str, data: bytes) -> None:
        """Store a value. Call it while holding `lock`; the value is visible once the lock is released."""
        ...

    def lock(self) -> AbstractContextManager[None]:
        """Hold an exclusive lock. While it is held, `read` returns what was written last."""
        ...

    def location(self, name: str = "") -> str:
        """Return where a value, or the whole vault, is stored, for messages."""
        ...


class FileVault:
    """A `Vault` in a folder, which is created on the first write."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def read(self, name: str, *, secret: bool = False) -> bytes | None:
        """See `Vault`."""
        path = self._folder / name
        try:
            with path.open("rb") as file:
                if secret and os.fstat(file.fileno()).st_mode & 0o077:
                    raise KeyringError(
                        f"others can read {path}: make a new one, or if nobody has, `chmod 600` it"
                    )
                return file.read()
        except FileNotFoundError:
            return None
        except OSError as exc:
            raise KeyringError(f"cannot read {path}: {exc.strerror}") from exc

    def version(self, name: str) -> VaultVersion:
        """See `Vault`."""
        path = self._folder / name
        try:
            found = path.stat()
        except FileNotFoundError:
            return None
        except OSError as exc:
            raise KeyringError(f"cannot read {path}: {exc.strerror}") from exc
        return found.st_ino, found.st_mtime_ns, found.st_size

    def write(self, name: str, data: bytes) -> None:
        """See `Vault`. The file has mode 0600 and is replaced atomically."""
        path = self._folder / name
        try:
            handle, aside = tempfile.mkstemp(dir=self._folder, prefix=f".{name}-")
            try:
                with os.fdopen(handle, "wb") as file:
                    file.write(data)
                    file.flush()
                    os.fsync(file.fileno())
                Path(aside).replace(path)
            except BaseException:
                Path(aside).unlink(missing_ok=True)
                raise
            sync_folder(self._folder)
        except OSError as exc:
            raise KeyringError(f"cannot write {path}: {exc.strerror}") from exc

    @contextmanager
    def lock(self) -> Generator[None]:
        """See `Vault`."""
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            handle = os.open(self._folder / "keys.lock", os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as exc:
            raise KeyringError(f"cannot write to the data folder {self._folder}: {exc.strerror}") from exc
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield
        finally:
            os.close(handle)

    def location(self, name: str = "") -> str:
        """See `Vault`."""
        return str(self._folder / name)
