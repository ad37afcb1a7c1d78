"""The changes of something that many look at, each told once and in order."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Sequence
from itertools import islice
from typing import Generic, TypeVar

from citewire.wakeup import Wakeup

__all__ = ["Feed"]

_T = TypeVar("_T")

# Changes that are kept for those who are slow; who is further behind begins anew.
_KEPT = 4096
# Seconds of silence after which a proxy on the way may think that nobody is there.
_QUIET = 15.0


class Feed(Generic[_T]):
    """Nothing is kept for one who follows but a number, so a slow one costs nothing."""

    def __init__(self) -> None:
        self._last: deque[_T] = deque(maxlen=_KEPT)
        self._count = 0
        self._bell = Wakeup()
        self._closed = False

    def publish(self, change: _T) -> None:
        """Something has changed."""
        self._last.append(change)
        self._count += 1
        self._bell.notify()

    def close(self) -> None:
        """End all who follow."""
        self._closed = True
        self._bell.notify()

    async def follow(self) -> AsyncGenerator[Sequence[_T] | None]:
        """The changes from now on; an empty list where there were none for a while.

        None comes first, and whenever some were missed: then everything has to be looked at.
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
                await self._bell.wait()
        except TimeoutError:
            return False
        return True
