"""Storage for the bytes of sources, each stored once under its SHA-256.

Bytes are written to a temporary file and then renamed, so a file under its final name is complete, also after
a crash. Temporary files found at startup are unfinished and are deleted. If several servers share a database,
see `PostgresBlobs`, the folder holds copies.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import re
import tempfile
from collections.abc import AsyncGenerator, Callable, Collection, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import IO, TypeVar

from citewire.channels.store import StoreError
from citewire.documents.errors import DocumentError
from citewire.server.storage.data_folder import sync_folder

__all__ = ["BlobDraft", "Blobs", "NOT_KEPT"]

_log = logging.getLogger("citewire.sources")

_T = TypeVar("_T")

_ASIDE = ".aside-"
_SHA256 = re.compile(r"[0-9a-f]{64}")
NOT_KEPT = "the source is not kept any more"
# Seconds to wait before retrying a store that failed.
_AGAIN = 1.0
# Small pieces are collected until they are worth a switch to a thread.
_PIECE = 1 << 20


class BlobDraft:
    """Incoming bytes, written to a temporary file, and hashed and counted on the way."""

    def __init__(self, file: IO[bytes], path: Path) -> None:
        self._file, self.path = file, path
        self.size = 0
        self._hash = hashlib.sha256()
        self._piece = bytearray()

    @property
    def sha256(self) -> str:
        """The hash of everything written. Valid after `finish`."""
        return self._hash.hexdigest()

    async def write(self, data: bytes) -> None:
        """Append bytes. Raises `StoreError`."""
        self._piece += data
        if len(self._piece) >= _PIECE:
            await self._flush()

    async def finish(self) -> None:
        """Flush everything to disk. Raises `StoreError`."""
        await self._flush()
        await _in_thread(lambda: os.fsync(self._file.fileno()))

    async def _flush(self) -> None:
        piece, self._piece = bytes(self._piece), bytearray()
        self.size += len(piece)

        def write() -> None:
            self._hash.update(piece)
            self._file.write(piece)
            self._file.flush()

        await _in_thread(write)


class Blobs:
    """Bytes in `folder`, readable only by its owner: sources may be confidential."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    async def open(self) -> None:
        """Create the folder and delete unfinished files. Raises `StoreError`."""
        await _in_thread(self._open)

    def path(self, sha256: str) -> Path:
        """Return the local path of these bytes, whether or not they are there."""
        if not _SHA256.fullmatch(sha256):
            raise ValueError(f"not a sha256: {sha256!r}")
        return self._folder / sha256[:2] / sha256

    @asynccontextmanager
    async def draft(self) -> AsyncGenerator[BlobDraft]:
        """Open a draft for incoming bytes. It is deleted unless `keep` is called. Raises `StoreError`."""
        made = partial(tempfile.NamedTemporaryFile, prefix=_ASIDE, dir=self._folder, delete=False)
        file = await _in_thread(made)
        try:
            with file:
                yield BlobDraft(file, Path(file.name))
        finally:
            # After `keep` the file has another name.
            await _in_thread(lambda: Path(file.name).unlink(missing_ok=True))

    async def share(self, draft: BlobDraft) -> None:
        """Upload finished bytes for other servers, which may take a while. Raises `StoreError`."""

    async def keep(self, draft: BlobDraft) -> None:
        """Store finished and shared bytes permanently under their hash. Raises `StoreError`."""
        path = self.path(draft.sha256)

        def put() -> None:
            path.parent.mkdir(mode=0o700, exist_ok=True)
            draft.path.replace(path)
            for folder in (path.parent, self._folder):
                sync_folder(folder)

        await _in_thread(put)

    async def fetch(self, sha256: str) -> Path | None:
        """Return the path of these bytes, downloaded if needed. None if not stored. Raises `StoreError`."""
        path = self.path(sha256)
        return path if await asyncio.to_thread(path.is_file) else None

    async def is_intact(self, sha256: str) -> bool:
        """Whether the local bytes still have this SHA-256. Raises `StoreError`."""
        return await _in_thread(partial(_has_hash, self.path(sha256), sha256))

    async def ensure_local(self, sha256: str) -> None:
        """Download these bytes if needed. Retries while the store is unavailable. Raises `DocumentError`."""
        while True:
            try:
                if await self.fetch(sha256):
                    return
            except StoreError as exc:
                _log.warning("the bytes of a source cannot be had now: %s", exc)
                await asyncio.sleep(_AGAIN)
            else:
                raise DocumentError(NOT_KEPT)

    async def touch(self, sha256s: Collection[str]) -> set[str]:
        """Return those of these bytes that are stored, and protect them from deletion for a while.

        Call this before referring to them. Raises `StoreError`.
        """
        paths = {sha256: self.path(sha256) for sha256 in sha256s}
        return await asyncio.to_thread(lambda: {sha256 for sha256, path in paths.items() if path.is_file()})

    async def delete(self, sha256s: Collection[str]) -> set[str]:
        """Delete these bytes, except recently touched ones, which are returned. Raises `StoreError`."""
        paths = [self.path(each) for each in sha256s]
        await _in_thread(lambda: [path.unlink(missing_ok=True) for path in paths])
        return set()

    async def drop_copies(self, is_needed: Callable[[str], bool]) -> None:
        """Delete local bytes that are not needed here. Other servers keep theirs. Raises `StoreError`."""
        await _in_thread(
            lambda: [self.path(each).unlink(missing_ok=True) for each in self._names() if not is_needed(each)]
        )

    async def list_hashes(self) -> set[str]:
        """Return the hashes of all stored bytes, local or shared. Raises `StoreError`."""
        return await asyncio.to_thread(lambda: set(self._names()))

    def _open(self) -> None:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for each in self._folder.glob(f"{_ASIDE}*"):
            each.unlink(missing_ok=True)

    def _names(self) -> Iterator[str]:
        for path in self._folder.glob("??/*"):
            if _SHA256.fullmatch(path.name):
                yield path.name


def _has_hash(path: Path, sha256: str) -> bool:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest() == sha256
    except FileNotFoundError:
        return False


async def _in_thread(work: Callable[[], _T]) -> _T:
    try:
        return await asyncio.to_thread(work)
    except OSError as exc:
        raise StoreError("the bytes of sources cannot be kept", detail=exc) from exc
