"""How much may wait to be written: every queue has an end."""

from __future__ import annotations

import asyncio

from citewire.channels.store import BATCH_BYTES, BATCH_ENTRIES, StoreBusy
from citewire.wakeup import Wakeup

__all__ = ["WriteQuota"]

# Seconds that a call waits for room among those on their way to the writer.
_PATIENCE = 10


class WriteQuota:
    """How much may be on its way to the writer: twice the largest batch. Who finds none waits in line."""

    def __init__(self) -> None:
        self.line = asyncio.Lock()
        self._entries, self._bytes = 2 * BATCH_ENTRIES, 2 * BATCH_BYTES
        self._freed = Wakeup()

    async def take(self, entries: int, size: int) -> None:
        """Take so much of it. StoreBusy when there is not so much in time."""
        if self.line.locked() or not self._try_take(entries, size):
            try:
                async with asyncio.timeout(_PATIENCE), self.line:
                    while not self._try_take(entries, size):
                        await self._freed.wait()
            except TimeoutError:
                raise StoreBusy("too much is waiting to be written; try again later") from None

    def free(self, entries: int, size: int) -> None:
        """Give so much of it back."""
        self._entries += entries
        self._bytes += size
        self._freed.notify()

    def _try_take(self, entries: int, size: int) -> bool:
        if entries > self._entries or size > self._bytes:
            return False
        self._entries -= entries
        self._bytes -= size
        return True
