"""Lanes: who reads next. A model of slots, with no processes and no time."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from random import Random

import pytest

from citewire.documents.reader import ReaderTimeout
from citewire.verification.lanes import SERVER_ACCOUNT, Lane, ReadJob
from citewire.verification.read_failures import ReadFailures
from citewire.verification.reader_pool import Lanes


class Desk:
    """A lane whose jobs run until they are told to end; `order` is the order in which they began."""

    def __init__(self, slots: int) -> None:
        self.lane = Lane(slots)
        self.order: list[str] = []
        self.ends: dict[str, asyncio.Event] = {}
        self.tasks: dict[str, asyncio.Task[None]] = {}
        self.jobs: dict[str, ReadJob] = {}

    async def add(self, name: str, account: str, *, urgent: bool = False, job: ReadJob | None = None) -> None:
        self.ends[name], self.jobs[name] = asyncio.Event(), job or ReadJob(account, is_urgent=urgent)
        self.tasks[name] = asyncio.create_task(self._run(name))
        await asyncio.sleep(0)

    async def _run(self, name: str) -> None:
        async with self.lane.acquire_slot(self.jobs[name]):
            self.order.append(name)
            await self.ends[name].wait()

    async def end(self, name: str) -> None:
        self.ends[name].set()
        await self.tasks[name]
        await asyncio.sleep(0)

    async def close(self) -> None:
        for task in self.tasks.values():
            task.cancel()
        await asyncio.gather(*self.tasks.values(), return_exceptions=True)
        assert (self.lane.status.running, self.lane.status.waiting) == (0, 0)


def test_one_caller_never_holds_the_last_slot() -> None:
    async def main() -> None:
        desk = Desk(3)
        for n in range(6):
            await desk.add(f"slow{n}", "ann")
        assert desk.order == ["slow0", "slow1"]
        await desk.add("small", "bob")
        assert desk.order[-1] == "small"
        await desk.close()

    asyncio.run(main())


def test_callers_take_turns_and_urgent_jobs_go_first() -> None:
    async def main() -> None:
        desk = Desk(1)
        await desk.add("first", "ann")
        for name, account in (
            ("a1", "ann"),
            ("a2", "ann"),
            ("a3", "ann"),
            ("b1", "bob"),
            ("c1", SERVER_ACCOUNT),
        ):
            await desk.add(name, account)
        await desk.add("urgent", "bob", urgent=True)
        desk.jobs["a3"].make_urgent()
        for name in ("first", "urgent", "a3", "a1", "b1", "c1"):
            await desk.end(name)
        assert desk.order == ["first", "urgent", "a3", "a1", "b1", "c1", "a2"]
        await desk.close()

    asyncio.run(main())


def test_what_is_cancelled_gives_its_slot_back_and_is_not_run() -> None:
    async def main() -> None:
        desk = Desk(1)
        await desk.add("first", "ann")
        await desk.add("second", "bob")
        await desk.add("third", "ann")
        desk.tasks["second"].cancel()
        desk.tasks["first"].cancel()
        await asyncio.gather(desk.tasks["first"], desk.tasks["second"], return_exceptions=True)
        await asyncio.sleep(0)
        assert desk.order == ["first", "third"]
        await desk.close()

    asyncio.run(main())


def test_a_job_may_wait_more_than_once() -> None:
    """Each turn has a slot of its own, and all of them become urgent together."""

    async def main() -> None:
        desk = Desk(1)
        await desk.add("first", "ann")
        await desk.add("other", "bob")
        await desk.add("a", "bob")
        await desk.add("b", "bob", job=desk.jobs["a"])
        await desk.add("c", "bob", job=desk.jobs["a"])
        assert desk.lane.status.waiting == 4
        desk.tasks["b"].cancel()
        await asyncio.gather(desk.tasks["b"], return_exceptions=True)
        desk.jobs["a"].make_urgent()
        for name in ("first", "a", "c", "other"):
            assert desk.order[-1] == name
            await desk.end(name)
        await desk.close()

    asyncio.run(main())


@pytest.mark.parametrize("seed", range(20))
def test_slots_are_never_exceeded_nor_lost(seed: int) -> None:
    """Random jobs, cancelled, hurried and ended at random: all that are left run in the end."""

    async def main() -> None:
        random, desk = Random(seed), Desk(1 + seed % 4)
        for n in range(60):
            await desk.add(str(n), random.choice("abc"), urgent=random.random() < 0.2)
            for name in random.sample([*desk.tasks], min(2, len(desk.tasks))):
                action = random.choice(["cancel", "hurry", "end", "none"])
                if action == "cancel":
                    desk.tasks[name].cancel()
                elif action == "hurry":
                    desk.jobs[name].make_urgent()
                elif action == "end":
                    desk.ends[name].set()
            assert desk.lane.status.running <= desk.lane.slots
        for event in desk.ends.values():
            event.set()
        await asyncio.gather(*desk.tasks.values(), return_exceptions=True)
        assert (desk.lane.status.running, desk.lane.status.waiting) == (0, 0)
        run = Counter(desk.order)
        assert max(run.values()) == 1
        assert {name for name, task in desk.tasks.items() if not task.cancelled()} <= run.keys()

    asyncio.run(main())


@pytest.mark.parametrize("readers", [1, 2, 4, 16, 64])
@pytest.mark.parametrize("gib", [2, 3, 4, 8, 16])
def test_all_lanes_together_stay_within_the_memory(readers: int, gib: int) -> None:
    lanes = Lanes.within(readers, gib << 30)
    assert lanes.memory <= gib << 30
    assert min(lane.slots for lane in lanes) >= 1
    # A reader has 140 MB before it reads anything.
    assert min(lane.memory for lane in (lanes.quick, lanes.heavy, lanes.ocr)) >= 256 << 20
    assert lanes.quick.slots >= 2


def test_failures_outlive_the_process_and_end_with_larger_limits(tmp_path: Path) -> None:
    folder = tmp_path
    ReadFailures(folder).add("a" * 64, "x", ReaderTimeout("too slow"), seconds=60, memory=100)
    later = ReadFailures(folder)
    for seconds, memory in ((60, 100), (30, 50)):
        with pytest.raises(ReaderTimeout, match="too slow"):
            later.check("a" * 64, "x", seconds=seconds, memory=memory)
    later.check("a" * 64, "x", seconds=61, memory=100)
    later.check("a" * 64, "x", seconds=60, memory=101)
    later.check("a" * 64, "other", seconds=60, memory=100)
    later.check("b" * 64, "x", seconds=60, memory=100)
    later.forget("a" * 64)
    ReadFailures(folder).check("a" * 64, "x", seconds=60, memory=100)


def test_failures_are_bounded(tmp_path: Path) -> None:
    folder = tmp_path
    failures = ReadFailures(folder, most=5)
    for n in range(12):
        failures.add(f"{n:064x}", "x", ReaderTimeout("slow"), seconds=1, memory=1)
    assert len([each for each in folder.rglob("*") if each.is_file()]) == 5
    next(each for each in folder.rglob("*") if each.is_file()).write_text("{")

    def fails(n: int) -> bool:
        try:
            ReadFailures(folder).check(f"{n:064x}", "x", seconds=1, memory=1)
        except ReaderTimeout:
            return True
        return False

    assert sum(map(fails, range(12))) == 4, "what cannot be read counts as no failure"
