"""Wake any number of waiting tasks."""

from __future__ import annotations

import asyncio


class Wakeup:
    """Wakes all tasks that are waiting. A notification is not remembered for later waiters."""

    def __init__(self) -> None:
        self._event = asyncio.Event()
        self._awaited = False

    def notify(self) -> None:
        """Wake all tasks that are waiting now."""
        if self._awaited:
            self._event.set()
            self._event, self._awaited = asyncio.Event(), False

    async def wait(self) -> None:
        """Wait for the next notification. Earlier ones do not count."""
        self._awaited = True
        await self._event.wait()
