"""Verdicts reached after a run has ended. One node at a time decides them, parallel to later runs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from citewire.channels.lease import Leases
from citewire.server.runs.driver import RunDriver
from citewire.server.runs.node_requests import NodeRequests
from citewire.threadlog.foreign_citations import ForeignCitation
from citewire.threadlog.names import deferred_lease

__all__ = ["DeferredVerdicts"]

# Seconds to wait for another node to give up the lease, and between two attempts.
_PATIENCE, _SHORTLY = 5.0, 0.05
# Seconds between two attempts when no request is waiting.
_AGAIN = 2.0


class DeferredVerdicts:
    """Runs `driver` on pending verdicts. Calls `done` with the channel when a thread's task has ended."""

    def __init__(
        self, driver: RunDriver, leases: Leases, asks: NodeRequests, done: Callable[[str], None]
    ) -> None:
        self._driver, self._leases, self._asks, self._done = driver, leases, asks, done
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def is_deciding(self, channel: str) -> bool:
        """Return whether verdicts are being decided in this thread."""
        return channel in self._tasks

    def start(self, channel: str) -> asyncio.Task[None]:
        """Start deciding the pending verdicts in the background. Clients see them when they reconnect."""
        task = self._tasks[channel] = asyncio.create_task(self._decide(channel))
        return task

    async def add_citations(self, channel: str, citations: Sequence[ForeignCitation]) -> None:
        """Add citations by other clients, to be decided later. The caller must have locked the thread."""
        await self.stop(channel)
        await self._driver.add_foreign_citations(channel, citations)

    async def stop(self, channel: str) -> None:
        """Cancel the deciding task and wait for it. The next start takes up all pending verdicts again."""
        if task := self.cancel(channel):
            await asyncio.wait([task])

    def cancel(self, channel: str) -> asyncio.Task[None] | None:
        """Cancel the deciding task without waiting, and return it."""
        if task := self._tasks.pop(channel, None):
            task.cancel()
        return task

    async def acquire_lease(self, channel: str) -> bool:
        """Take the lease, asking its owner to release it. Returns False if that takes over 5 seconds."""
        if await self._leases.take(deferred_lease(channel)):
            return True
        await self._asks.send(channel, "left")
        until = asyncio.get_running_loop().time() + _PATIENCE
        while asyncio.get_running_loop().time() < until:
            await asyncio.sleep(_SHORTLY)
            if await self._leases.take(deferred_lease(channel)):
                return True
        return False

    async def _decide(self, channel: str) -> None:
        try:
            while not await self._leases.take(deferred_lease(channel)):  # noqa: ASYNC110  # of another process
                await asyncio.sleep(_AGAIN)
            await self._asks.listen_from_now(channel)
            await self._driver.decide_deferred(channel)
        finally:
            if self._tasks.get(channel) is asyncio.current_task():
                del self._tasks[channel]
            self._done(channel)
