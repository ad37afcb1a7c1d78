"""What is decided in a thread after its run: by one node at a time, beside the runs that come after."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from citewire.channels.lease import Leases
from citewire.server.runs.driver import RunDriver
from citewire.server.runs.foreign_citations import ForeignCitation
from citewire.server.runs.node_requests import NodeRequests

__all__ = ["DeferredVerdicts", "deferred_lease"]

# Seconds for which another node may go on deciding, and between two tries.
_PATIENCE, _SHORTLY = 5.0, 0.05
# Seconds between two tries where nobody waits.
_AGAIN = 2.0


class DeferredVerdicts:
    """Has `driver` decide what is left. `done` is told of threads in which nothing is decided any more."""

    def __init__(
        self, driver: RunDriver, leases: Leases, asks: NodeRequests, done: Callable[[str], None]
    ) -> None:
        self._driver, self._leases, self._asks, self._done = driver, leases, asks, done
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def is_deciding(self, channel: str) -> bool:
        """Whether something is decided in this thread."""
        return channel in self._tasks

    def start(self, channel: str) -> asyncio.Task[None]:
        """What was not decided in time is there for whoever comes back."""
        task = self._tasks[channel] = asyncio.create_task(self._decide(channel))
        return task

    async def add_citations(self, channel: str, citations: Sequence[ForeignCitation]) -> None:
        """What others cite is there for whoever comes back, to be decided. The thread was obtained."""
        await self.stop(channel)
        await self._driver.add_foreign_citations(channel, citations)

    async def stop(self, channel: str) -> None:
        """Whatever is being decided is left; who asks again asks for all of it."""
        if task := self.cancel(channel):
            await asyncio.wait([task])

    def cancel(self, channel: str) -> asyncio.Task[None] | None:
        """Have it left; the task that ends."""
        if task := self._tasks.pop(channel, None):
            task.cancel()
        return task

    async def acquire_lease(self, channel: str) -> bool:
        """Have it left to us; False where another node does not."""
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


def deferred_lease(channel: str) -> str:
    """The name of the lease for what is decided late in a thread."""
    return f"late:{channel.removeprefix('run:')}"
