"""Runs that live on the server: they go on when a client leaves, others may join, and none is lost.

What a client is sent is read from the log, so that whoever comes later, or comes again, gets the same.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing, suppress
from weakref import WeakValueDictionary

from citewire.agui import events as ev
from citewire.agui.events import AnyEvent, RunInput
from citewire.agui.middleware import Stream
from citewire.agui.protocol import Gate, ProtocolError
from citewire.channels.hub import Hub
from citewire.channels.store import Cursor, Entry, Row
from citewire.errors import CitewireError
from citewire.server.driver import Driver, Observer
from citewire.server.foreign import Foreign
from citewire.server.http import Conflict, NotFound, Overloaded, read
from citewire.server.journal import TERMINAL, Started, channel_of, frame, framed, input_id, thread_of
from citewire.server.keys import Caller
from citewire.server.live import ENDINGS, Live, follow, watch

__all__ = ["Runs"]

_PAGE = 1000
# Rows that are looked at from the end to know how a thread was left.
_BACK = 64


class Runs:
    """The runs of a server. `resumes` says that the agent may be asked the same again after a restart."""

    def __init__(
        self, hub: Hub, driver: Driver, observer: Observer, *, linger: float, most: int, resumes: bool
    ) -> None:
        self._hub, self._driver, self._observer = hub, driver, observer
        self._linger, self._most, self._resumes = linger, most, resumes
        self._live: dict[str, Live] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._late: dict[str, asyncio.Task[None]] = {}
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._closing = False

    @property
    def active(self) -> int:
        """How many are going on."""
        return len(self._live)

    @property
    def watched(self) -> int:
        """How many streams of them are open."""
        return sum(live.watchers for live in self._live.values())

    def is_live(self, channel: str) -> bool:
        """Whether a run of this thread is going on."""
        return channel in self._live

    def stream(self, channel: str) -> Stream | None:
        """The stream of the run of this thread that is going on."""
        live = self._live.get(channel)
        return live and live.stream

    async def start(self, run_input: RunInput, caller: Caller) -> AsyncGenerator[bytes]:
        """Start a run, or join the one of this id; the frames of its events."""
        channel, name = channel_of(run_input.thread_id), input_id(run_input.run_id)
        async with self._turn(channel):
            await self._settle(channel)
            live = self._live.get(channel)
            if live is None or live.run_id != run_input.run_id:
                known = await self._hub.store.get(channel, name)
                if known is not None:
                    return self._ended_run(channel, _before(known))
                live = await self._begin(channel, name, Started(run_input, caller.key, caller.client_id))
            return self._frames(channel, live.after, live)

    async def _begin(self, channel: str, name: str, started: Started) -> Live:
        if other := self._live.get(channel):
            if other.watchers:
                raise Conflict("a run of this thread is going on, and somebody is watching it")
            other.end("superseded")
            await self._ended(other)
        if len(self._live) >= self._most or self._closing:
            raise Overloaded("the server has no room for another run")
        (row,) = await self._hub.append(channel, [Entry(name, "input", ev.write_json(started))])
        return self._run(started, channel, _before(row))

    def _run(
        self, started: Started, channel: str, after: Cursor, goes_on: list[AnyEvent] | None = None
    ) -> Live:
        live = self._live[channel] = Live(started, channel, after, self._linger)
        live.task = asyncio.create_task(self._drive(live, goes_on))
        self._own(live.task)
        return live

    async def _drive(self, live: Live, goes_on: list[AnyEvent] | None) -> None:
        try:
            await self._driver.drive(live, goes_on)
        finally:
            del self._live[live.channel]
            self._observer.written(live.channel)
        if live.stream and live.stream.is_undecided:
            self._decide_late(live.channel)

    def _decide_late(self, channel: str) -> None:
        self._late[channel] = task = asyncio.create_task(self._driver.decide_late(channel))
        task.add_done_callback(lambda _: self._late.pop(channel) if self._late.get(channel) is task else None)
        self._own(task)

    async def _leave_late(self, channel: str) -> None:
        """Whatever is being decided late is left; who asks again asks for all of it."""
        if task := self._late.pop(channel, None):
            task.cancel()
            await asyncio.wait([task])

    async def cite(self, channel: str, citations: Sequence[Foreign]) -> bool:
        """Have citations of others taken in: by the run that is open, or else for whoever comes back.

        False where that cannot be done now: a run has not begun or is about to end. Once each, however often.
        """
        async with self._turn(channel):
            if live := self._live.get(channel):
                stream = live.stream
                return stream is not None and all(
                    [
                        await stream.cite(each.message_id, each.cited, each.by, each.annotation)
                        for each in citations
                    ]
                )
            if self._closing:
                return False
            await self._leave_late(channel)
            await self._driver.cite_late(channel, citations)
            self._decide_late(channel)
            return True

    def _own(self, task: asyncio.Task[None]) -> None:
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # --- reading ------------------------------------------------------------------------------------------

    async def join(
        self, thread_id: str, after: Cursor | None, *, from_scratch: bool = False
    ) -> AsyncGenerator[bytes]:
        """The frames of a thread's events after the cursor, up to the end of the run that is going on.

        `from_scratch` is for a client that knows nothing: it gets only that run, and what came before it.
        """
        channel = channel_of(thread_id)
        live = self._live.get(channel)
        if live is None or not from_scratch:
            return self._frames(channel, after, live)
        posted = live.started.input
        before: list[AnyEvent] = [ev.MessagesSnapshot(posted.messages), ev.StateSnapshot(posted.state)]
        return _after_first(self._frames(channel, live.after, live), before)

    def watch(self, thread_id: str, after: Cursor | None) -> AsyncGenerator[bytes]:
        """The frames of all that happens in a thread after the cursor, whoever runs the agent."""
        channel = channel_of(thread_id)
        return watch(channel, self._hub, after, lambda: self._live.get(channel))

    async def _ended_run(self, channel: str, after: Cursor) -> AsyncGenerator[bytes]:
        async with aclosing(self._rows(channel, after)) as rows:
            async for row in rows:
                if row.kind == "event":
                    yield frame(row)
                if row.kind == "over":
                    return

    async def _frames(self, channel: str, after: Cursor | None, live: Live | None) -> AsyncGenerator[bytes]:
        if live is None:
            while rows := await self._hub.store.read(channel, after, _PAGE):
                yield framed(rows)
                after = rows[-1].cursor
            return
        async with aclosing(follow(live, self._hub, after)) as frames:
            async for each in frames:
                yield each

    # --- ending -------------------------------------------------------------------------------------------

    async def stop(self, thread_id: str, run_id: str) -> None:
        """End a run at once. One that has ended already stays as it is."""
        channel = channel_of(thread_id)
        live = self._live.get(channel)
        if live is None or live.run_id != run_id:
            if await self._hub.store.get(channel, input_id(run_id)) is None:
                raise NotFound("there is no such run")
            return
        live.end("stopped")
        await self._ended(live)

    async def drop(self, thread_id: str) -> None:
        """Forget a thread, with all that was said in it."""
        channel = channel_of(thread_id)
        async with self._turn(channel):
            if live := self._live.get(channel):
                live.end("stopped")
                await self._ended(live)
            if await self._hub.store.head(channel) is None:
                raise NotFound("there is no such thread")
            await self._forget(channel)

    async def expire(self, channel: str, before: int) -> None:
        """Forget a thread in which nothing happened since a time in milliseconds, unless a run goes on."""
        async with self._turn(channel):
            await self._settle(channel)
            head = await self._hub.store.head(channel)
            if channel not in self._live and head and head.tick < before * 1000:
                await self._forget(channel)

    async def _forget(self, channel: str) -> None:
        await self._leave_late(channel)
        await self._hub.drop(channel)
        await self._observer.forgotten(thread_of(channel))

    async def idle(self) -> None:
        """Wait until no run is going on, and nothing is being decided late."""
        while self._tasks:
            await asyncio.wait(list(self._tasks))

    async def _ended(self, live: Live) -> None:
        if live.task:
            await asyncio.wait([live.task])

    async def aclose(self) -> None:
        """End all. Runs that can be asked for again are left as they are, to go on after the restart."""
        self._closing = True
        for live in list(self._live.values()):
            if not self._resumes:
                live.end("interrupted")
            elif live.task:
                live.task.cancel()
        if tasks := list(self._tasks):
            _, left = await asyncio.wait(tasks, timeout=5)
            for task in left:
                task.cancel()
            await asyncio.gather(*left, return_exceptions=True)

    # --- after a restart ----------------------------------------------------------------------------------

    async def recover(self) -> None:
        """Go through all threads, and end or go on with the runs that a crash cut short."""
        after = ""
        while heads := await self._hub.store.heads("run:", after):
            for head in heads:
                with suppress(CitewireError):
                    await self.settle(head.channel)
            after = heads[-1].channel

    async def settle(self, channel: str) -> None:
        """Have a run that a crash cut short ended, or gone on with."""
        async with self._turn(channel):
            await self._settle(channel)

    async def _settle(self, channel: str) -> None:
        if channel in self._live or self._closing:
            return
        rows = await self._unfinished(channel)
        if not rows:
            return
        started: Started = read(rows[0].data, Started)
        sent = [ev.decode(row.data) for row in rows if row.kind == "event"]
        journal, run_id = self._driver.journal(channel), started.input.run_id
        if sent and sent[-1].type in TERMINAL:
            await journal.end(run_id, "failed" if sent[-1].type == "RUN_ERROR" else "finished")
        elif self._resumes:
            self._run(started, channel, _before(rows[0]), _anew(started.input, sent) if sent else None)
        else:
            await journal.end(run_id, "interrupted", ev.RunError(ENDINGS["interrupted"], "interrupted"))

    async def _unfinished(self, channel: str) -> list[Row]:
        """The rows of a run that has no end, from its input on."""
        head = await self._hub.store.head(channel)
        if head is None:
            return []
        back = _BACK
        while True:
            start = max(0, head.n - back)
            rows = [row async for row in self._rows(channel, Cursor(head.epoch, start))]
            for at in range(len(rows) - 1, -1, -1):
                if rows[at].kind == "over":
                    return []
                if rows[at].kind == "input":
                    return rows[at:]
            if start == 0:
                return []
            back *= 4

    async def _rows(self, channel: str, after: Cursor) -> AsyncGenerator[Row]:
        while rows := await self._hub.store.read(channel, after, _PAGE):
            for row in rows:
                yield row
            after = rows[-1].cursor

    def _turn(self, channel: str) -> asyncio.Lock:
        """The lock of a thread, which is there as long as somebody has it or waits for it."""
        return self._locks.setdefault(channel, asyncio.Lock())


def _anew(run_input: RunInput, sent: list[AnyEvent]) -> list[AnyEvent]:
    """What a client that was sent this has to be told before it can take the run from its start again."""
    gate = Gate()
    with suppress(ProtocolError):
        for event in sent:
            deque(gate.admit(event), maxlen=0)
    return [
        *gate.closings(),
        ev.MessagesSnapshot(run_input.messages),
        ev.StateSnapshot(run_input.state),
    ]


async def _after_first(frames: AsyncGenerator[bytes], events: list[AnyEvent]) -> AsyncGenerator[bytes]:
    """The frames, with these events after the first one, which starts the run."""
    more = b"".join(b"data: %b\n\n" % ev.encode(event) for event in events)
    async with aclosing(frames):
        async for each in frames:
            first, end, rest = each.partition(b"\n\n")
            if more and b"data: " in first:
                each, more = first + end + more + rest, b""  # noqa: PLW2901  # with what it lacked
            yield each


def _before(row: Row) -> Cursor:
    return Cursor(row.epoch, row.n - 1)
