"""Removes what was made of sources that nobody needs any more from the cache and from the search index."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

from citewire.librarian import PassageIndex
from citewire.server.ops.periodic import repeat
from citewire.verification.engine import Engine

__all__ = ["CacheSweep"]

_log = logging.getLogger("citewire.sources")
# Seconds from one sweep to the next.
_EVERY = 60.0


class CacheSweep:
    """Sweeps the cache of `engine` and the `index`. Each of `needs` says of a sha256 whether it is needed."""

    def __init__(
        self, engine: Engine, index: PassageIndex | None, needs: Sequence[Callable[[str], bool]]
    ) -> None:
        self._engine, self._index, self._needs = engine, index, needs

    async def run(self) -> None:
        """Sweep at the start and every minute."""
        await repeat(self.sweep, _EVERY, _log, "the cache could not be swept")

    async def sweep(self) -> None:
        """Remove what nobody needs now."""
        await self._engine.prune(self._is_needed)
        if self._index:
            await asyncio.to_thread(self._index.purge)

    def _is_needed(self, sha256: str) -> bool:
        return any(needs(sha256) for needs in self._needs)
