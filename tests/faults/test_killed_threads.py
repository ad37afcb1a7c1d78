"""Servers that are killed while clients ask, review, add sources and post forged state."""

from __future__ import annotations

import asyncio
import random
import subprocess
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest

from support.ably_load import Server, seed
from support.postgres import Postgres, need_postgres
from support.server_process import SCRIPT, environment
from support.soak import scaled
from support.thread_load import Asker

POLICY = "Refunds are available within 30 days of purchase. They are not available for gift cards.\n"
# Steps of clients between a start and a kill, at most.
STEPS = 60


@pytest.mark.slow
@pytest.mark.soak
@pytest.mark.timeout(1200)
def test_a_server_on_sqlite(tmp_path: Path) -> None:
    """At random points, see `seed`."""
    data = tmp_path / "data"
    with Server(tmp_path / "log", *serving(tmp_path), "--data", data) as server:
        asyncio.run(shake([server], seed(), scaled(6, 52)))
    check_audit(tmp_path, "--data", data)


@pytest.mark.slow
@pytest.mark.soak
@pytest.mark.timeout(1200)
def test_two_nodes_on_postgres(tmp_path: Path) -> None:
    """At random points, see `seed`; clients go on at whichever node is up."""
    need_postgres()
    with ExitStack() as stack:
        postgres = stack.enter_context(Postgres())
        shared = (*serving(tmp_path), "--store", postgres.dsn)
        nodes = [
            stack.enter_context(Server(tmp_path / f"log{at}", *shared, "--data", tmp_path / f"data{at}"))
            for at in range(2)
        ]
        asyncio.run(shake(nodes, seed(), scaled(4, 32)))
        check_audit(tmp_path, "--store", postgres.dsn)


def serving(folder: Path) -> tuple[str | Path, ...]:
    """How a server over one document is started."""
    sources = folder / "sources"
    sources.mkdir(exist_ok=True)
    (sources / "policy.txt").write_text(POLICY)
    return "--sources", sources


async def shake(servers: Sequence[Server], number: int, kills: int) -> None:
    """Kill the servers in turn while clients are at work, then check what they were told."""
    chance = random.Random(number)
    askers = [Asker(servers, name, number) for name in "abc"]
    for server in servers:
        server.key = server.key or servers[0].key
        await asyncio.to_thread(server.start)
    async with asyncio.TaskGroup() as group:
        asking = [group.create_task(each.run()) for each in askers]
        for at in range(kills):
            server = servers[at % len(servers)]
            server.kill_after(1 + chance.randrange(STEPS))
            await server.down.wait()
            await asyncio.to_thread(server.start)
        for each in askers:
            each.ends = True
        await asyncio.gather(*asking)
    for each in askers:
        await each.check(servers[0])
    assert sum(each.count for each in askers) > kills
    assert any(each.answers for each in askers)


def check_audit(folder: Path, *where: str | Path) -> None:
    """The record of it all can be exported and verified."""
    file, keys = folder / "record.jsonl", folder / "audit.pub"
    keys.write_text(audit("key", "show", *where))
    audit("export", "-o", file, *where)
    assert audit("verify", file, "--public-key", keys, *where).startswith("whole")


def audit(*arguments: str | Path) -> str:
    """What `citewire audit` says."""
    line = [SCRIPT, "audit", *map(str, arguments)]
    run = subprocess.run(line, capture_output=True, text=True, env=environment(), check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    return run.stdout
