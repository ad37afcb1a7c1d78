"""The slots of a channel, in every store."""

from collections.abc import Callable
from pathlib import Path

import pytest

from citewire.channels.memory import MemoryStore
from citewire.channels.sqlite import SqliteStore
from citewire.channels.store import ChannelStore
from citewire.testing import SlotsContract


class TestMemory(SlotsContract):
    durable = False

    async def open(self, folder: Path, now: Callable[[], int]) -> ChannelStore:
        return MemoryStore(now)


@pytest.mark.slow
class TestSqlite(SlotsContract):
    async def open(self, folder: Path, now: Callable[[], int]) -> ChannelStore:
        return SqliteStore(folder, now)
