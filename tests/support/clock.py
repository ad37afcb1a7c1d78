"""An event loop whose time leaps when a test says so, so that no timeout depends on how fast a machine is.

Time goes on by itself as well, but what is a timeout here is too long for that to matter.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

_T = TypeVar("_T")

LONG = 100
"""Seconds that pass in no test, unless it leaps: those for a whole test are fewer."""


class Clock(asyncio.SelectorEventLoop):
    _ahead = 0.0

    def time(self) -> float:
        return super().time() + self._ahead

    def leap(self, seconds: float) -> None:
        self._ahead += seconds


def on_clock(main: Coroutine[Any, Any, _T]) -> _T:
    """As `asyncio.run`, in a loop in which one can leap."""
    with asyncio.Runner(loop_factory=Clock) as runner:
        return runner.run(main)


def clock() -> Clock:
    """The loop of the caller, who was started with `on_clock`."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, Clock)
    return loop


async def hurried(task: asyncio.Task[_T]) -> _T:
    """What a task gives for which time flies."""
    while not task.done():
        clock().leap(1)
        await asyncio.sleep(0)
    return await task
