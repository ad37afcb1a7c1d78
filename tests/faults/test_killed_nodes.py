"""Nodes that are killed and a Postgres that crashes, while clients publish, annotate and listen."""

from __future__ import annotations

import asyncio
import random
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from citewire.channels.postgres import PostgresStore
from support.ably_load import MOST_STEPS, Kept, Listener, Server, Writer, say_the_end, seed
from support.postgres import Postgres, need_postgres
from support.soak import scaled

NODES = 2
KILLS = scaled(10, 50)
CRASHES = scaled(2, 10)
# Some node is up while others start, which takes a while: so few frames at once are enough.
AHEAD = 3


@pytest.mark.slow
@pytest.mark.soak
@pytest.mark.timeout(600)  # a fifth of it, where nothing else goes on
def test_nodes_are_killed_and_the_database_crashes(tmp_path: Path) -> None:
    """At random points, see `seed`; whoever is cut goes on at any node."""
    need_postgres()
    with Postgres() as postgres:
        asyncio.run(_shaken(postgres, tmp_path, seed()))


async def _shaken(postgres: Postgres, folder: Path, number: int) -> None:
    chance = random.Random(number)
    async with AsyncExitStack() as stack:
        store = await PostgresStore.open(postgres.dsn)
        stack.push_async_callback(store.close)
        nodes = [
            stack.enter_context(
                Server(folder / f"log{at}", "--store", postgres.dsn, "--data", folder / f"data{at}")
            )
            for at in range(NODES)
        ]
        await _start(nodes[0])
        for node in nodes[1:]:
            node.key = nodes[0].key
            await _start(node)
        writers = [
            Writer(nodes, name, number, ahead=AHEAD, is_packed=name < "c", resumes=name < "d")
            for name in "abcd"
        ]
        listeners = [Listener(nodes, name, number, is_packed=name == "y") for name in "xyz"]
        async with asyncio.TaskGroup() as group:
            listening = [group.create_task(each.run()) for each in listeners]
            for each in listeners:
                await each.attached.wait()
            writing = [group.create_task(each.run()) for each in writers]
            crashing = group.create_task(_crash(postgres, chance.random(), writers))
            await asyncio.gather(*(_kill(node, chance.randrange(1 << 32)) for node in nodes))
            await crashing
            for each in writers:
                each.ends = True
            await asyncio.gather(*writing)
            await say_the_end(nodes[0])
            await asyncio.gather(*listening)
        kept = await Kept().read(store)
        kept.check(writers)
        kept.check_all(writers, listeners)
        assert sum(len(each.kept) for each in writers) > 20 * KILLS


async def _start(node: Server, steps: int = -1) -> None:
    await asyncio.to_thread(node.start)
    node.kill_after(steps)


async def _kill(node: Server, number: int) -> None:
    """Kill a node its share of times, and start it again; the last time for good."""
    chance = random.Random(number)
    for _ in range(KILLS // NODES):
        node.kill_after(chance.randrange(MOST_STEPS))
        await node.down.wait()
        await _start(node)


async def _crash(postgres: Postgres, share: float, writers: list[Writer]) -> None:
    """Crash the database again and again, after something was acknowledged."""
    chance = random.Random(share)
    for _ in range(CRASHES):
        await writers[0].acknowledged(chance.randrange(50))
        await asyncio.to_thread(postgres.crash)
        await asyncio.to_thread(postgres.start)
