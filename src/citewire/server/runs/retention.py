"""Delete expired data: old rows of channels, by their rules, and idle threads."""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Callable

from citewire.channels.channels import PAGE_ITEMS, Channels
from citewire.channels.lease import Leases, SingleProcessLeases
from citewire.channels.store import RowReader
from citewire.errors import CitewireError
from citewire.server.ops.periodic import repeat
from citewire.server.runs.run_manager import RunManager

__all__ = ["Retention"]

_log = logging.getLogger("citewire.server")
# Seconds between two sweeps.
_EVERY = 60
_SWEEP = "sweep:retention"


class Retention:
    """Deletes expired data, one channel at a time. Threads expire after `threads` seconds, or never."""

    def __init__(
        self,
        store: RowReader,
        channels: Channels,
        runs: RunManager,
        threads: int | None = None,
        clock: Callable[[], float] = time.time,
        leases: Leases | None = None,
    ) -> None:
        self._store, self._channels, self._runs = store, channels, runs
        self._threads, self._clock, self._leases = threads, clock, leases or SingleProcessLeases()

    async def run(self) -> None:
        """Sweep at the start and at regular intervals."""
        await repeat(self.sweep, _EVERY, _log, "expired channels and threads could not be looked for")

    async def sweep(self) -> None:
        """Sweep once, unless another server holds the lease. Failures are retried in the next sweep."""
        if not await self._leases.take(_SWEEP):
            return
        if self._channels.rules.has_retention:
            async for channel in self._names():
                if (seconds := self._channels.rules.retention_seconds(channel)) is not None:
                    await _tried(channel, self._channels.trim(channel, self._before(seconds)))
        if self._threads is not None:
            async for thread in self._idle(self._before(self._threads)):
                await _tried(thread, self._runs.expire_thread(thread, self._before(self._threads)))

    def _before(self, seconds: int) -> int:
        return max(0, int((self._clock() - seconds) * 1000))

    async def _names(self) -> AsyncGenerator[str]:
        after = None
        while True:
            page = await self._channels.names(limit=PAGE_ITEMS, after=after)
            for name in page.items:
                yield name
            if (after := page.next) is None:
                return

    async def _idle(self, before: int) -> AsyncGenerator[str]:
        """Yield the log channels of threads whose last row is older than `before`."""
        after = ""
        while heads := await self._store.heads("run:", after):
            for head in heads:
                if head.tick < before * 1000:
                    yield head.channel
            after = heads[-1].channel


async def _tried(name: str, work: Awaitable[object]) -> None:
    try:
        await work
    except CitewireError as exc:
        _log.warning("what is too old in %r could not be forgotten: %s", name, exc)
