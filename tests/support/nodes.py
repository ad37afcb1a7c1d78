"""Nodes that share a store, in one process: in memory, where they can be cut off, or on a real Postgres."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Protocol

from msgspec.structs import replace

from citewire.channels.hub import Hub
from citewire.channels.lease import Leases
from citewire.channels.memory import MemoryStore
from citewire.channels.postgres import PostgresStore
from citewire.channels.store import ChannelStore, Cursor, CursorLost, Entry, Row, StoreError
from support.bridge_runs import Tied


class Node(Tied):
    """A server's runs and their channels, at one of the nodes of a `world`."""

    def __init__(self, world: World, agent: Any, store: ChannelStore, leases: Leases, **options: Any) -> None:
        super().__init__(agent, store, leases=leases, **options)
        self.world, self.leases = world, leases
        self.hub.on_channel_changed = self.runs.note_activity

    async def die(self) -> None:
        """As a process that is killed: nothing more is written, and its leases are free."""
        await self.world.end(self.store)

    async def aclose(self) -> None:
        await self.bridge.aclose()
        await self.runs.aclose()
        self.hub.close()


class World(Protocol):
    """What nodes have in common."""

    async def open(self) -> tuple[ChannelStore, Leases]: ...
    async def end(self, store: Any) -> None: ...


@asynccontextmanager
async def nodes(world: World, *agents: Any, **options: Any) -> AsyncGenerator[list[Node]]:
    """A node for each of the agents."""
    async with AsyncExitStack() as stack:
        made: list[Node] = []
        for agent in agents:
            store, leases = await world.open()
            stack.push_async_callback(world.end, store)
            made.append(Node(world, agent, store, leases, **options))
            stack.push_async_callback(made[-1].aclose)
        yield made


class Postgres:
    """Nodes on one database."""

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn

    async def open(self) -> tuple[ChannelStore, Leases]:
        store = await PostgresStore.open(self._dsn)
        return store, store

    async def end(self, store: PostgresStore) -> None:
        await store.close()


class Memory:
    """Nodes on one memory store."""

    def __init__(self) -> None:
        self.store, self.owners = MemoryStore(), dict[str, MemoryNode]()
        self.members: list[MemoryNode] = []

    def renew(self, channel: str) -> None:
        """Have a channel go on under another epoch, as when the database has become an older copy."""
        tables = vars(self.store)
        rows: list[Row] = tables["_rows"][channel]
        rows[:] = [replace(row, epoch=f"{row.epoch}~1") for row in rows]
        tables["_ids"][channel] = {row.id: row for row in rows}
        for heads in (tables["_heads"], tables["_floors"]):
            heads[channel] = replace(heads[channel], epoch=f"{heads[channel].epoch}~1")

    async def open(self) -> tuple[ChannelStore, Leases]:
        node = MemoryNode(self)
        self.members.append(node)
        return node, node

    async def end(self, store: MemoryNode) -> None:
        store.is_cut = True
        for name, owner in list(self.owners.items()):
            if owner is store:
                del self.owners[name]


class MemoryNode(MemoryStore):
    """The way of one node to what all of them have, and its leases.

    While it `is_cut` it has none. It is cut by itself after so many `writes`, the last of them `in_vain`:
    kept, but nobody here hears of it.
    """

    def __init__(self, world: Memory) -> None:
        super().__init__()
        vars(self).update(vars(world.store))
        self._world = world
        self._lost: list[Callable[[str], None]] = []
        self.follower: Hub | None = None
        self.is_cut = self.in_vain = False
        self.writes = 1 << 30

    def _ask(self) -> None:
        super()._ask()
        if self.is_cut:
            raise StoreError("the database is away")

    def _wrote(self, channel: str) -> None:
        for node in self._world.members:
            if node is not self and node.follower and not node.is_cut:
                node.follower.on_remote_writes([channel])
        self.writes -= 1
        if self.writes <= 0:
            self.is_cut = True
            if self.in_vain:
                self._ask()

    async def append(self, channel: str, entries: Sequence[Entry]) -> tuple[Row, ...]:
        rows = await super().append(channel, entries)
        self._wrote(channel)
        return rows

    async def change(self, channel: str, keys: Sequence[str], decide: Any) -> Any:
        changed = await super().change(channel, keys, decide)
        if changed.rows:
            self._wrote(channel)
        return changed

    async def drop(self, channel: str) -> None:
        await super().drop(channel)
        self._wrote(channel)

    async def after(self, cursors: Mapping[str, Cursor], limit: int) -> dict[str, Sequence[Row] | None]:
        """See `hub.Shared`."""
        found: dict[str, Sequence[Row] | None] = {}
        for channel, cursor in cursors.items():
            try:
                found[channel] = await self.read(channel, cursor, limit)
            except CursorLost:
                found[channel] = None
        return found

    async def take(self, name: str) -> bool:
        """See `Leases`."""
        self._ask()
        return self._world.owners.setdefault(name, self) is self

    async def release(self, name: str) -> None:
        """See `Leases`."""
        if self._world.owners.get(name) is self:
            del self._world.owners[name]

    def on_lost(self, told: Callable[[str], None]) -> None:
        """See `Leases`."""
        self._lost.append(told)

    def lose(self, name: str) -> None:
        """As when the database was away for a while, and another node has taken the lease."""
        del self._world.owners[name]
        for told in self._lost:
            told(name)
