"""Where the keys and the secret of a server are kept: the port, and files in the data folder.

What is kept under a name is written whole or not at all, and read by nobody but the server's owner.
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

__all__ = ["FileVault", "KeyringError", "Vault", "VaultVersion"]

VaultVersion: TypeAlias = tuple[object, ...] | None


class KeyringError(CitewireError):
    """The keys cannot be read, written, or used as they are: something for whoever runs the server."""

    code = "bad_keyring"


class Vault(Protocol):
    """**Protocol:** a few small things by name. Any number of threads and processes use it together.

    Everything raises `KeyringError` where it cannot be done.
    """

    def read(self, name: str, *, secret: bool = False) -> bytes | None:
        """What is kept, None where there is nothing. A `secret` that others could read is refused."""
        ...

    def version(self, name: str) -> VaultVersion:
        """What changes whenever something else is written; None where there is nothing. It is cheap."""
        ...

    def write(self, name: str, data: bytes) -> None:
        """Keep `data`, for one who is `alone`; it is there once that ends."""
        ...

    def lock(self) -> AbstractContextManager[None]:
        """While this is held nobody else holds it, and what is read is what was written last."""
        ...

    def location(self, name: str = "") -> str:
        """For people: where it is, or everything."""
        ...


class FileVault:
    """A `Vault` in a folder, which is made when something is to be written."""

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
        """See `Vault`: with mode 0600; whoever reads meanwhile sees all of it or nothing of it."""
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
            _sync(self._folder)
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


def _sync(folder: Path) -> None:
    """Make the new name last, not only what it names."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
