"""In-memory feed of changes for many followers, each change delivered once and in order."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Sequence
from itertools import islice
from typing import Generic, TypeVar

from citewire.wakeup import Wakeup

__all__ = ["Feed"]

_T = TypeVar("_T")

# How many changes are buffered for slow followers. A follower further behind starts over.
_KEPT = 4096
# Seconds of silence after which a proxy may close the connection.
_QUIET = 15.0


class Feed(Generic[_T]):
    """A shared feed of changes. A follower is only a position in the buffer, so a slow one costs nothing."""

    def __init__(self) -> None:
        self._last: deque[_T] = deque(maxlen=_KEPT)
        self._count = 0
        self._wakeup = Wakeup()
        self._closed = False

    def publish(self, change: _T) -> None:
        """Deliver a change to all followers."""
        self._last.append(change)
        self._count += 1
        self._wakeup.notify()

    def close(self) -> None:
        """End all followers."""
        self._closed = True
        self._wakeup.notify()

    async def follow(self) -> AsyncGenerator[Sequence[_T] | None]:
        """Yield the changes from now on, or an empty list after a period without changes.

        Yields None first, and again whenever changes were missed: the follower must then reload everything.
        """
        seen = -1
        while not self._closed:
            behind, seen = self._count - seen, self._count
            if behind > len(self._last):
                yield None
            elif behind or not await self._news():
                yield list(islice(self._last, len(self._last) - behind, None))

    async def _news(self) -> bool:
        try:
            async with asyncio.timeout(_QUIET):
                await self._wakeup.wait()
        except TimeoutError:
            return False
        return True
