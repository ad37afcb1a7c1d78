"""Write a snapshot of the record to a temporary file, so that a slow reader does not hold it open."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from tempfile import SpooledTemporaryFile
from typing import IO, TypeAlias

from citewire.channels.store import Log, StoreError

__all__ = ["Pieces", "pieces_of", "spool"]

Pieces: TypeAlias = AsyncIterator[bytes] | AsyncIterator[str]

# Bytes held in memory before a file is created, and bytes written or read at once.
_HELD, _BATCH = 8 << 20, 1 << 18


async def spool(log: Log, write: Callable[[Log], Pieces]) -> IO[bytes]:
    """Write the pieces that `write` makes from one snapshot of the log to a private temporary file.

    The snapshot has ended when this returns. Raises `StoreError`.
    """
    file = SpooledTemporaryFile(_HELD)  # noqa: SIM115 - the reader closes it
    try:
        async with log.snapshot() as snapshot:
            async for batch in _batches(write(snapshot)):
                await _in_thread(file, batch)
        file.seek(0)
    except BaseException:
        file.close()
        raise
    return file


async def pieces_of(file: IO[bytes]) -> AsyncIterator[bytes]:
    """Yield the content of a file in pieces, then close it."""
    with file:
        while piece := await asyncio.to_thread(file.read, _BATCH):
            yield piece


async def _in_thread(file: IO[bytes], batch: bytes) -> None:
    try:
        await asyncio.to_thread(file.write, batch)
    except OSError as exc:
        raise StoreError("the record cannot be written to a temporary file", detail=exc) from exc


async def _batches(pieces: Pieces) -> AsyncIterator[bytes]:
    held = bytearray()
    async for piece in pieces:
        held += piece.encode("utf-8", "backslashreplace") if isinstance(piece, str) else piece
        if len(held) >= _BATCH:
            yield bytes(held)
            held.clear()
    yield bytes(held)
