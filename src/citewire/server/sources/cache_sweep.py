"""Delete cached data and search entries of sources that are no longer needed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

from citewire.librarian import PassageIndex
from citewire.server.ops.periodic import repeat
from citewire.verification.engine import Engine

__all__ = ["CacheSweep"]

_log = logging.getLogger("citewire.sources")
# Seconds between two sweeps.
_EVERY = 60.0


class CacheSweep:
    """Sweeps the cache of `engine` and the `index`. A sha256 is needed if any of `needs` returns True."""

    def __init__(
        self, engine: Engine, index: PassageIndex | None, needs: Sequence[Callable[[str], bool]]
    ) -> None:
        self._engine, self._index, self._needs = engine, index, needs

    async def run(self) -> None:
        """Sweep at the start and every minute."""
        await repeat(self.sweep, _EVERY, _log, "the cache could not be swept")

    async def sweep(self) -> None:
        """Delete what is no longer needed."""
        await self._engine.prune(self._is_needed)
        if self._index:
            await asyncio.to_thread(self._index.purge)

    def _is_needed(self, sha256: str) -> bool:
        return any(needs(sha256) for needs in self._needs)
