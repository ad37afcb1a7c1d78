"""A run that is going on: who watches it, how it is ended, and its frames as they come."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Sequence
from contextlib import ExitStack, aclosing, contextmanager, suppress
from typing import Any

from msgspec.structs import replace

from citewire.agui import events as ev
from citewire.agui.agents import AbortSignal
from citewire.agui.events import AnyEvent, RunInput
from citewire.agui.middleware import CitationStream
from citewire.agui.shapes import filter_sendable
from citewire.agui.sse import PING
from citewire.channels.hub import Hub
from citewire.channels.store import Cursor, Row, Store
from citewire.codec import decode_as
from citewire.errors import CitewireError
from citewire.server.runs.journal import (
    EndedRun,
    Outcome,
    RunJournal,
    StartedRun,
    encode_frame,
    encode_frames,
)
from citewire.server.runs.unfinished_runs import read_rows_after

__all__ = [
    "END_MESSAGES",
    "LiveRun",
    "RunEnded",
    "follow_run",
    "insert_after_first",
    "read_ended_run",
    "read_logged_frames",
    "watch_thread",
]

# Seconds in which other nodes may say that somebody watches a run, before it is ended.
_GRACE = 1.0
# Seconds that a client has to close the stream of a run after it asked for the next one.
_LEAVING = 1.0
# Rows that are read from the log at once.
_PAGE = 1000
# Seconds of silence after which a proxy on the way may think that nobody is there.
_QUIET = 15.0

END_MESSAGES: dict[Outcome, str] = {
    "stopped": "the run was stopped",
    "abandoned": "nobody was there to see it",
    "superseded": "another run was started",
    "interrupted": "the server was restarted",
    "timed_out": "the run took longer than the server allows",
}
"""Why a run ended that was ended from outside."""


class RunEnded(CitewireError):
    """A run that was ended from outside."""

    code = "ended"

    def __init__(self, outcome: Outcome) -> None:
        super().__init__(END_MESSAGES[outcome])
        self.outcome: Outcome = outcome


class LiveRun:
    """A run that is going on: here, since a `task` drives it, or on another node.

    `after` is where its rows begin, `lost` an end that the log could not keep, or none that we know of.
    `news` are events that its client is told first. `posted` are ids of messages that only clients posted.
    """

    def __init__(
        self, started: StartedRun, channel: str, after: Cursor, news: tuple[AnyEvent, ...] = ()
    ) -> None:
        self.started, self.channel, self.after, self.news = started, channel, after, news
        self.posted: set[str] = set()
        self.run_id = started.input.run_id
        self.abort = AbortSignal()
        self.stream: CitationStream | None = None
        self.journal: RunJournal | None = None
        self.ending: Outcome | None = None
        self.task: asyncio.Task[None] | None = None
        self.lost: asyncio.Future[ev.RunError | None] = asyncio.get_running_loop().create_future()
        self.watchers = 0
        self._unwatched = asyncio.Event()
        self._unwatched.set()
        self._linger: float | None = None
        self._left: Callable[[], None] = lambda: None
        self._timer: asyncio.TimerHandle | None = None

    def drive(self, task: asyncio.Task[None], linger: float, left: Callable[[], None]) -> None:
        """It goes on here. `left` is told when nobody has watched it for `linger` seconds."""
        self.task, self._linger, self._left = task, linger, left
        self.restart_linger()

    def end(self, outcome: Outcome) -> None:
        """End it at once: the agent is left, and verdicts are not waited for."""
        if self.ending is None:
            self.ending = outcome
            self.abort()
            if self.stream:
                self.stream.stop_waiting()

    def end_soon(self, outcome: Outcome) -> None:
        """End it, unless somebody is seen to watch it in the next second or it ends by itself."""
        if self._linger is not None:
            self._set_timer(_GRACE, lambda: self.end(outcome))

    async def wait_unwatched(self) -> None:
        """Wait until nobody watches it here, but at most a second.

        A client that stops a run and asks again closes one connection and opens another, and the server may
        see the new one first.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(_LEAVING):
                await self._unwatched.wait()

    def restart_linger(self) -> None:
        """Somebody may watch it, though nobody does here: give them their time again."""
        if self._linger is not None and not self.watchers:
            self._set_timer(self._linger, self._left)

    def hand_over(self) -> None:
        """Another node has it now: nothing more is written here, and whoever watches has to come back."""
        self.stop_linger()
        if self.journal:
            self.journal.close()
        if self.task:
            self.task.cancel()
        if not self.lost.done():
            self.lost.set_result(None)

    @contextmanager
    def count_watcher(self) -> Generator[LiveRun]:
        """Somebody is there while this lasts."""
        self.watchers += 1
        self._unwatched.clear()
        self._forget_timer()
        try:
            yield self
        finally:
            self.watchers -= 1
            if not self.watchers:
                self._unwatched.set()
            self.restart_linger()

    def stop_linger(self) -> None:
        self._forget_timer()
        self._linger = None

    def _set_timer(self, seconds: float, then: Callable[[], None]) -> None:
        self._forget_timer()
        self._timer = asyncio.get_running_loop().call_later(seconds, then)

    def _forget_timer(self) -> None:
        if self._timer:
            self._timer.cancel()
            self._timer = None


async def follow_run(live: LiveRun, hub: Hub, after: Cursor | None) -> AsyncGenerator[bytes]:
    """The frames of what is in the log after the cursor, up to the end of the run."""
    with live.count_watcher():
        async with aclosing(hub.follow(live.channel, after)) as followed:
            async for rows in _with_pings(followed, live.lost):
                end = _end_of(live, rows)
                if frames := encode_frames(rows[:end]) if rows else PING:
                    yield frames
                if end is not None:
                    return
        if live.lost.done() and (error := live.lost.result()):
            yield b"data: %b\n\n" % ev.encode(error)


async def read_logged_frames(store: Store, channel: str, after: Cursor | None) -> AsyncGenerator[bytes]:
    """The frames of all that is in the log after the cursor."""
    while rows := await store.read(channel, after, _PAGE):
        yield encode_frames(rows)
        after = rows[-1].cursor


async def read_ended_run(store: Store, channel: str, after: Cursor) -> AsyncGenerator[bytes]:
    """The frames of the run after the cursor, which has ended."""
    async with aclosing(read_rows_after(store, channel, after)) as rows:
        async for row in rows:
            if row.kind == "event":
                yield encode_frame(row)
            if row.kind == "over":
                return


async def insert_after_first(frames: AsyncGenerator[bytes], given: RunInput) -> AsyncGenerator[bytes]:
    """The frames, with what the run was given after the first one, which starts it."""
    events = ev.MessagesSnapshot(filter_sendable(given.messages)), ev.StateSnapshot(given.state)
    more = b"".join(b"data: %b\n\n" % ev.encode(event) for event in events)
    async with aclosing(frames):
        async for each in frames:
            first, end, rest = each.partition(b"\n\n")
            if more and b"data: " in first:
                each, more = first + end + more + rest, b""  # noqa: PLW2901  # with what it lacked
            yield each


async def watch_thread(
    channel: str, hub: Hub, after: Cursor | None, live: Callable[[Sequence[Row]], LiveRun | None]
) -> AsyncGenerator[bytes]:
    """The frames of what is in the log after the cursor, run after run, and of verdicts that come late.

    Whoever watches a thread is there for each of its runs, which `live` gives when there are more rows.
    """
    run, posted = None, _PostedInput()
    with ExitStack() as there:
        async with aclosing(hub.follow(channel, after)) as followed:
            async for rows in _with_pings(followed, asyncio.get_running_loop().create_future(), first=True):
                if (now := live(rows)) is not run:
                    there.close()
                    run = now and there.enter_context(now.count_watcher())
                if frames := b"".join(map(posted.frame, rows)) if rows else PING:
                    yield frames


class _PostedInput:
    """What somebody else posted to start a run, until those who watch are told."""

    def __init__(self) -> None:
        self._input: RunInput | None = None

    def frame(self, row: Row) -> bytes:
        if row.kind == "input":
            self._input = decode_as(row.data, StartedRun).input
        if row.kind not in {"event", "late"}:
            return b""
        given, self._input = self._input, None
        # A run that was cut short before it began has only its end, after which nothing can be said.
        if given is None or ev.decode(row.data).type == "RUN_ERROR":
            return encode_frame(row)
        # Only the last one has an id: who is cut off in between gets all of it again.
        first = (
            b"data: %b\n\n" * 2 % (row.data, ev.encode(ev.MessagesSnapshot(filter_sendable(given.messages))))
        )
        return first + encode_frame(replace(row, data=ev.encode(ev.StateSnapshot(given.state))))


async def _with_pings(
    followed: AsyncIterator[Sequence[Row]], lost: asyncio.Future[Any], *, first: bool = False
) -> AsyncGenerator[Sequence[Row]]:
    """What comes, and nothing at all after every while in which nothing came, or also `first`; until all is
    `lost`."""
    coming: asyncio.Task[Sequence[Row]] | None = None
    if first:
        yield ()
    try:
        while True:
            coming = coming or asyncio.ensure_future(anext(followed))
            await asyncio.wait([coming, lost], timeout=_QUIET, return_when=asyncio.FIRST_COMPLETED)
            if not coming.done():
                if lost.done():
                    return
                yield ()
                continue
            task, coming = coming, None
            try:
                yield task.result()
            except StopAsyncIteration:
                return
    finally:
        if coming:
            coming.cancel()
            await asyncio.gather(coming, return_exceptions=True)


def _end_of(live: LiveRun, rows: Sequence[Row]) -> int | None:
    """How many of the rows there are up to the end of the run; None where it goes on."""
    for count, row in enumerate(rows, 1):
        if row.kind == "over" and decode_as(row.data, EndedRun).run_id == live.run_id:
            return count
    return None
