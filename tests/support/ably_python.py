"""PyPI's `ably` client, typed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from importlib import import_module
from typing import Any


def pypis(module: str, name: str) -> Any:
    """Something of PyPI's `ably`, which has no types."""
    return getattr(import_module(module), name)


AblyRealtime, AblyRest = pypis("ably", "AblyRealtime"), pypis("ably", "AblyRest")


ChannelMode = pypis("ably.types.channelmode", "ChannelMode")


ChannelOptions = pypis("ably.types.channeloptions", "ChannelOptions")


class Told:
    """What a listener was told, and how to wait for it."""

    def __init__(self) -> None:
        self.items: list[Any] = []
        self._news = asyncio.Event()

    def add(self, item: Any) -> None:
        self.items.append(item)
        self._news.set()

    async def until(self, enough: Callable[[list[Any]], bool]) -> list[Any]:
        while not enough(self.items):
            self._news.clear()
            await self._news.wait()
        return self.items
