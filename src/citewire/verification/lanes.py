"""Queues of reading jobs: a few run at a time, urgent ones first, and callers take turns.

A lane has a number of slots. A free slot goes to an urgent job (one that a caller waits for), if there is
one, and among those to the caller served longest ago. One caller never holds the last free slot of a lane
with several slots, so another caller's job starts at once, however many jobs the first one has queued.
"""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar

from msgspec import Struct

__all__ = ["CURRENT_ACCOUNT", "Lane", "ReadJob", "SERVER_ACCOUNT"]

SERVER_ACCOUNT = ""
"""The account of what nobody asked for: the server's own sources, and everything in a library."""

CURRENT_ACCOUNT: ContextVar[str] = ContextVar("account", default=SERVER_ACCOUNT)
"""The account of the request that is being answered; the tasks that it starts inherit it."""


class _Waiter:
    """One entry in the queue of a lane. A job may have several."""

    def __init__(self, lane: Lane, account: str, is_urgent: bool) -> None:
        self.lane, self.account, self.is_urgent = lane, account, is_urgent
        self.admitted: asyncio.Future[None] = asyncio.get_running_loop().create_future()


class ReadJob:
    """One source to read, charged to an account. `is_urgent` once a caller waits for it."""

    def __init__(self, account: str = SERVER_ACCOUNT, *, is_urgent: bool = False) -> None:
        self.account, self.is_urgent = account, is_urgent
        self._waiters: OrderedDict[_Waiter, None] = OrderedDict()

    def make_urgent(self) -> None:
        """Move the job ahead of all jobs that no caller waits for."""
        if not self.is_urgent:
            self.is_urgent = True
            for waiter in self._waiters:
                waiter.lane.promote(waiter)

    @contextmanager
    def set_lane(self, lane: Lane) -> Generator[_Waiter]:
        """Create a queue entry for `lane`, which `make_urgent` promotes during the block."""
        waiter = _Waiter(lane, self.account, self.is_urgent)
        self._waiters[waiter] = None
        try:
            yield waiter
        finally:
            del self._waiters[waiter]


class LaneStatus(Struct, frozen=True):
    """The number of running and waiting jobs of a lane."""

    running: int
    waiting: int


class Lane:
    """A queue that runs `slots` jobs at once, each limited to `memory` bytes and `seconds`."""

    def __init__(self, slots: int, memory: int = 0, seconds: float = 0.0) -> None:
        self.slots, self.memory, self.seconds = slots, memory, seconds
        self._running: Counter[str] = Counter()
        # By urgency, then by account; the account served longest ago comes first.
        self._waiting: dict[bool, OrderedDict[str, OrderedDict[_Waiter, None]]] = {
            True: OrderedDict(),
            False: OrderedDict(),
        }

    @property
    def status(self) -> LaneStatus:
        """The number of running and waiting jobs."""
        waiting = (len(waiters) for accounts in self._waiting.values() for waiters in accounts.values())
        return LaneStatus(self._running.total(), sum(waiting))

    @asynccontextmanager
    async def acquire_slot(self, job: ReadJob) -> AsyncGenerator[None]:
        """Wait for a slot, and hold it for the block."""
        with job.set_lane(self) as waiter:
            self._enqueue(waiter)
            self._admit()
            try:
                await waiter.admitted
            except asyncio.CancelledError:
                if waiter.admitted.done() and not waiter.admitted.cancelled():
                    self._release(waiter.account)
                else:
                    self._withdraw(waiter)
                raise
        try:
            yield
        finally:
            self._release(waiter.account)

    def promote(self, waiter: _Waiter) -> None:
        """Move a waiter to the urgent queue."""
        if self._withdraw(waiter):
            waiter.is_urgent = True
            self._enqueue(waiter)

    def _enqueue(self, waiter: _Waiter) -> None:
        self._waiting[waiter.is_urgent].setdefault(waiter.account, OrderedDict())[waiter] = None

    def _withdraw(self, waiter: _Waiter) -> bool:
        """Remove a waiter from the queue, and return whether it was there."""
        accounts = self._waiting[waiter.is_urgent]
        waiters = accounts.get(waiter.account, OrderedDict())
        was_there = waiter in waiters
        waiters.pop(waiter, None)
        if not waiters:
            accounts.pop(waiter.account, None)
        return was_there

    def _release(self, account: str) -> None:
        self._running[account] -= 1
        if not self._running[account]:
            del self._running[account]
        self._admit()

    def _admit(self) -> None:
        while self._running.total() < self.slots and (account := self._next_account()) is not None:
            urgent, name = account
            waiters = self._waiting[urgent].pop(name)
            waiter, _ = waiters.popitem(last=False)
            if waiters:
                self._waiting[urgent][name] = waiters  # at the end: the other accounts come first now
            # A cancelled waiter has not yet been able to withdraw.
            if not waiter.admitted.cancelled():
                self._running[name] += 1
                waiter.admitted.set_result(None)

    def _next_account(self) -> tuple[bool, str] | None:
        """Return the account that is served next, and whether its job is urgent."""
        most = max(1, self.slots - 1)
        for urgent, accounts in self._waiting.items():
            for account in accounts:
                if self._running[account] < most:
                    return urgent, account
        return None
