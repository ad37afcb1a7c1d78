"""Handles for one run: await its result, or read its events from the thread's log."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Generator, Iterator
from typing import Any, Self

from citewire.agui.events import AnyEvent, Event, MalformedEvent, UnknownEvent
from citewire.agui.thread.contract_view import Contract
from citewire.agui.thread.log_entries import LogEntry
from citewire.agui.thread.thread import Thread
from citewire.wakeup import Wakeup

__all__ = ["LogEventReader", "LogRange", "Run"]


class LogRange:
    """The range of log entries that belongs to one run; `last` is set when the run ends."""

    def __init__(self, first: int) -> None:
        self.first = first
        self.last: int | None = None
        self.over = asyncio.Event()

    def end(self, number: int) -> None:
        if self.last is None:
            self.last = number
            self.over.set()


class LogEventReader:
    """Iterates over a thread's events to the end of `span`, from the log: a slow reader blocks nobody."""

    def __init__(self, thread: Thread, after: int, span: LogRange, bell: Wakeup) -> None:
        self._thread, self._after, self._span, self._bell = thread, after, span, bell
        self._read: Iterator[LogEntry] = iter(())

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> AnyEvent:
        while True:
            for entry in self._read:
                self._after += 1
                if isinstance(entry, Event | UnknownEvent | MalformedEvent):
                    return entry
            last = self._span.last
            if self._after < (self._thread.number if last is None else last):
                unread = self._thread.entries(self._after)
                self._read = iter(unread if last is None else unread[: last - self._after])
            elif last is None:
                await self._bell.wait()
            else:
                raise StopAsyncIteration


class Run:
    """One run: `await` it for the contract at its end, or iterate over its events as they arrive.

    Neither raises if the run fails or is stopped. A slow reader does not block the run; one that falls behind
    by more than the thread's log holds gets `NotInLog`.
    """

    def __init__(self, thread: Thread, span: LogRange, bell: Wakeup) -> None:
        self._thread, self._span, self._bell = thread, span, bell

    @property
    def is_active(self) -> bool:
        return self._span.last is None

    def __await__(self) -> Generator[Any, None, Contract]:
        return self._ended().__await__()

    def __aiter__(self) -> AsyncIterator[AnyEvent]:
        return LogEventReader(self._thread, self._span.first, self._span, self._bell)

    async def _ended(self) -> Contract:
        await self._span.over.wait()
        return self._thread.contract
