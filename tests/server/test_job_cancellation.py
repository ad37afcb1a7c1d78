"""Tasks of workers and nodes end when they are cancelled, whatever they wait for."""

from __future__ import annotations

import asyncio

import pytest

from citewire.server.jobs.cancellation import cancel_until_done


async def _swallow_first(times: int) -> None:
    """Lose that many cancellations, as `asyncio.wait_for` does on Python 3.11."""
    for _ in range(times):
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            continue
    await asyncio.Event().wait()


async def _fail() -> None:
    raise ValueError


@pytest.mark.parametrize("times", [0, 1, 3])
def test_a_task_that_loses_cancellations_ends(times: int) -> None:
    async def main() -> None:
        tasks = [asyncio.create_task(_swallow_first(times)), asyncio.create_task(_fail())]
        await asyncio.sleep(0)
        async with asyncio.timeout(10):
            await cancel_until_done(tasks, again=0.01)
        assert tasks[0].cancelled()

    asyncio.run(main())


def test_nothing_to_cancel() -> None:
    asyncio.run(cancel_until_done([]))
