"""How one task tells any number of others that there is news, without knowing them."""

from __future__ import annotations

import asyncio


class Wakeup:
    """Wakes everybody who waits for news."""

    def __init__(self) -> None:
        self._rung = asyncio.Event()
        self._awaited = False

    def notify(self) -> None:
        """Wake those who wait now."""
        if self._awaited:
            self._rung.set()
            self._rung, self._awaited = asyncio.Event(), False

    async def wait(self) -> None:
        """Until it rings next; what was rung before does not count."""
        self._awaited = True
        await self._rung.wait()
