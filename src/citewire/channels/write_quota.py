"""Limit how much may wait to be written: every queue is bounded."""

from __future__ import annotations

import asyncio

from citewire.channels.store import BATCH_BYTES, BATCH_ENTRIES, StoreBusy
from citewire.wakeup import Wakeup

__all__ = ["WriteQuota"]

# Seconds that a call waits for room in the write queue.
_PATIENCE = 10


class WriteQuota:
    """Limits the write queue to twice the largest batch. Callers that exceed it wait in line."""

    def __init__(self) -> None:
        self.line = asyncio.Lock()
        self._entries, self._bytes = 2 * BATCH_ENTRIES, 2 * BATCH_BYTES
        self._freed = Wakeup()

    async def take(self, entries: int, size: int) -> None:
        """Reserve room in the queue. Raises `StoreBusy` after a timeout."""
        if self.line.locked() or not self._try_take(entries, size):
            try:
                async with asyncio.timeout(_PATIENCE), self.line:
                    while not self._try_take(entries, size):
                        await self._freed.wait()
            except TimeoutError:
                raise StoreBusy("too much is waiting to be written; try again later") from None

    def free(self, entries: int, size: int) -> None:
        """Return reserved room."""
        self._entries += entries
        self._bytes += size
        self._freed.notify()

    def _try_take(self, entries: int, size: int) -> bool:
        if entries > self._entries or size > self._bytes:
            return False
        self._entries -= entries
        self._bytes -= size
        return True
