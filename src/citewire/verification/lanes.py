"""Queues of reading jobs: a few at a time, urgent ones first, and callers take turns.

A lane has a number of slots. When one is free it goes to a job that somebody waits for, if there is one, and
among those to the caller who was served longest ago. One caller never holds the last free slot of a lane
that has more than one: another caller's job begins at once, however much the first one has queued.
"""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from contextvars import ContextVar

from msgspec import Struct

__all__ = ["ACCOUNT", "SERVER", "Lane", "ReadJob"]

SERVER = ""
"""The account of what nobody asked for: the server's own sources, and everything in a library."""

ACCOUNT: ContextVar[str] = ContextVar("account", default=SERVER)
"""The account of the request that is being answered; the tasks that it starts inherit it."""


class ReadJob:
    """One source to read, on an account. `is_urgent` once somebody waits for it."""

    def __init__(self, account: str = SERVER, *, is_urgent: bool = False) -> None:
        self.account, self.is_urgent = account, is_urgent
        self._lane: Lane | None = None

    def hurry(self) -> None:
        """Somebody waits for it: it goes before those that nobody waits for."""
        if not self.is_urgent:
            lane = self._lane
            if lane:
                lane.move_up(self)
            self.is_urgent = True

    def queue_in(self, lane: Lane | None) -> None:
        """Note the lane in which it waits; None once it waits in none."""
        self._lane = lane


class LaneStatus(Struct, frozen=True):
    """How many jobs run and wait in a lane."""

    running: int
    waiting: int


class Lane:
    """`slots` jobs at once, each of which may take `memory` bytes and `seconds`."""

    def __init__(self, slots: int, memory: int = 0, seconds: float = 0.0) -> None:
        self.slots, self.memory, self.seconds = slots, memory, seconds
        self._running: Counter[str] = Counter()
        # By urgency, then by account: the account that was served longest ago comes first.
        self._waiting: dict[bool, OrderedDict[str, OrderedDict[ReadJob, asyncio.Future[None]]]] = {
            True: OrderedDict(),
            False: OrderedDict(),
        }

    @property
    def status(self) -> LaneStatus:
        """How busy it is."""
        waiting = (len(jobs) for accounts in self._waiting.values() for jobs in accounts.values())
        return LaneStatus(self._running.total(), sum(waiting))

    @asynccontextmanager
    async def turn(self, job: ReadJob) -> AsyncGenerator[None]:
        """Wait for a slot, and hold it for the block."""
        admitted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[job.is_urgent].setdefault(job.account, OrderedDict())[job] = admitted
        job.queue_in(self)
        self._admit()
        try:
            await admitted
        except asyncio.CancelledError:
            if admitted.done() and not admitted.cancelled():
                self._release(job.account)
            else:
                self._withdraw(job)
            raise
        finally:
            job.queue_in(None)
        try:
            yield
        finally:
            self._release(job.account)

    def move_up(self, job: ReadJob) -> None:
        """A job that waits here has become urgent."""
        if admitted := self._withdraw(job):
            self._waiting[True].setdefault(job.account, OrderedDict())[job] = admitted

    def _withdraw(self, job: ReadJob) -> asyncio.Future[None] | None:
        accounts = self._waiting[job.is_urgent]
        jobs = accounts.get(job.account, OrderedDict())
        admitted = jobs.pop(job, None)
        if not jobs:
            accounts.pop(job.account, None)
        return admitted

    def _release(self, account: str) -> None:
        self._running[account] -= 1
        if not self._running[account]:
            del self._running[account]
        self._admit()

    def _admit(self) -> None:
        while self._running.total() < self.slots and (account := self._next_account()) is not None:
            urgent, name = account
            jobs = self._waiting[urgent].pop(name)
            _, admitted = jobs.popitem(last=False)
            if jobs:
                self._waiting[urgent][name] = jobs  # at the end: the others come first now
            # Whoever was cancelled has not yet been able to withdraw.
            if not admitted.cancelled():
                self._running[name] += 1
                admitted.set_result(None)

    def _next_account(self) -> tuple[bool, str] | None:
        """The account whose turn it is, and whether it is for an urgent job."""
        most = max(1, self.slots - 1)
        for urgent, accounts in self._waiting.items():
            for account in accounts:
                if self._running[account] < most:
                    return urgent, account
        return None
