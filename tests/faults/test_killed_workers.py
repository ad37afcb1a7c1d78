"""Workers that are killed in their jobs, again and again, and a Postgres that crashes meanwhile."""

from __future__ import annotations

import asyncio
import random
import signal
from pathlib import Path

import pytest

from citewire.verification.expected_place import ExpectedPlace
from citewire.verification.verifier import QuoteCheck
from support.ably_load import seed
from support.postgres import Postgres, need_postgres
from support.soak import scaled
from support.worker_process import ANSWERED, ASKED, FEES, JOBS, Node, Working, on_node

KILLS = scaled(4, 16)
CRASHES = scaled(1, 4)
ASKERS = 4


@pytest.mark.slow
@pytest.mark.soak
@pytest.mark.timeout(300)  # a fifth of it, where nothing else goes on
def test_workers_are_killed_in_their_jobs(tmp_path: Path) -> None:
    """Every quote gets its verdict, the right one, and once; no job is left."""
    need_postgres()
    chance = random.Random(seed())

    async def main(one: Node) -> None:
        await one.upload(FEES, "fees.pdf")
        over, asked = asyncio.Event(), 0

        async def ask(asker: int) -> None:
            nonlocal asked
            turn = 0
            while not over.is_set():
                turn += 1
                # Another page to look near is another question.
                near = ExpectedPlace(pages=(1 + turn * ASKERS + asker,))
                wrong = turn % 2
                quotes = [
                    QuoteCheck(f"{n}", f"The fee of member {n} is {n + 40 + wrong} dollars", near=near)
                    for n in range(turn % 20 + 1)
                ]
                checked = await one.check(*quotes)
                assert [each.id for each in checked] == [each.id for each in quotes]
                assert {each.status for each in checked} == {"altered" if wrong else "verified"}
                asked += len(quotes)

        workers = [await Working(server.dsn, tmp_path).__aenter__() for _ in range(2)]
        try:
            async with asyncio.TaskGroup() as group:
                for asker in range(ASKERS):
                    group.create_task(ask(asker))
                crashes = set(chance.sample(range(KILLS), CRASHES))
                for kill in range(KILLS):
                    until = asked + chance.randrange(40)
                    while asked < until:
                        await one.one("SELECT pg_sleep(0.02)")
                    at = chance.randrange(len(workers))
                    await workers[at].end(signal.SIGKILL)
                    workers[at] = await Working(server.dsn, tmp_path).__aenter__()
                    if kill in crashes:
                        await asyncio.to_thread(server.crash)
                        await asyncio.to_thread(server.start)
                over.set()
            # A job that was killed twice waits twice until its worker counts as dead.
            await one.until(JOBS, 0, seconds=150)
            assert (await one.one(ANSWERED), await one.one(ASKED)) == (asked, 0)
        finally:
            for worker in workers:
                await worker.__aexit__()

    with Postgres() as server:
        on_node(server.dsn, tmp_path, main)
