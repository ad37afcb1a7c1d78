"""The time limit of a snapshot, which every store enforces."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from citewire.channels.store import StoreError

__all__ = ["SNAPSHOT_SECONDS", "deadline"]

SNAPSHOT_SECONDS = 3600.0
"""How long a snapshot may be held: until it ends, a database cannot reuse the space of deleted rows."""


@asynccontextmanager
async def deadline(seconds: float = SNAPSHOT_SECONDS) -> AsyncGenerator[None]:
    """Cancel the block with a `StoreError` after this many seconds."""
    limit = asyncio.timeout(seconds)
    try:
        async with limit:
            yield
    except TimeoutError:
        if not limit.expired():
            raise
        raise StoreError(f"reading took longer than {seconds:.0f} seconds") from None
