"""A run in progress: its watchers, its timers and its frames."""

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
from citewire.channels.store import Cursor, Row, RowReader
from citewire.errors import CitewireError
from citewire.threadlog.journal import RunJournal, encode_frame, encode_frames
from citewire.threadlog.rows import EndedRun, EventRow, Outcome, RowKind, StartedRun, decode_row
from citewire.threadlog.unfinished_runs import read_rows_after

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

# Seconds in which other nodes may report a watcher, before the run is ended.
_GRACE = 1.0
# Seconds that a client has to close a run's stream after requesting the next run.
_LEAVING = 1.0
# Rows read from the log at once.
_PAGE = 1000
# Seconds of silence after which a proxy may close the connection.
_QUIET = 15.0

END_MESSAGES: dict[Outcome, str] = {
    "stopped": "the run was stopped",
    "abandoned": "nobody was there to see it",
    "superseded": "another run was started",
    "interrupted": "the server was restarted",
    "timed_out": "the run took longer than the server allows",
}
"""Error messages for runs that were ended from outside."""


class RunEnded(CitewireError):
    """Raised when a run was ended from outside."""

    code = "ended"

    def __init__(self, outcome: Outcome) -> None:
        super().__init__(END_MESSAGES[outcome])
        self.outcome: Outcome = outcome


class LiveRun:
    """A run in progress: on this node if it has a `task`, otherwise on another node.

    Its rows follow the cursor `after`. `lost` resolves with the end that could not be written to the log, or
    None if another node took over. `news` are events to send to its client first. `posted` holds the ids of
    messages that only clients posted.
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
        """Drive the run on this node. Calls `left` when it had no watcher for `linger` seconds."""
        self.task, self._linger, self._left = task, linger, left
        self.restart_linger()

    def end(self, outcome: Outcome) -> None:
        """End the run at once: abort the agent, and do not wait for verdicts."""
        if self.ending is None:
            self.ending = outcome
            self.abort()
            if self.stream:
                self.stream.stop_waiting()

    def end_soon(self, outcome: Outcome) -> None:
        """End the run in a second, unless a watcher is reported or the run ends before."""
        if self._linger is not None:
            self._set_timer(_GRACE, lambda: self.end(outcome))

    async def wait_unwatched(self) -> None:
        """Wait until the run has no watcher on this node, for at most a second.

        A client that stops a run and starts another closes one connection and opens a new one; the server may
        see the new one first.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(_LEAVING):
                await self._unwatched.wait()

    def restart_linger(self) -> None:
        """Restart the linger timer, if there is no watcher on this node: another node may have one."""
        if self._linger is not None and not self.watchers:
            self._set_timer(self._linger, self._left)

    def hand_over(self) -> None:
        """Stop writing, since another node owns the run now. Watchers have to reconnect."""
        self.stop_linger()
        if self.journal:
            self.journal.close()
        if self.task:
            self.task.cancel()
        if not self.lost.done():
            self.lost.set_result(None)

    @contextmanager
    def count_watcher(self) -> Generator[LiveRun]:
        """Count one watcher for the duration of the block."""
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
    """Stream the frames after the cursor, up to the end of the run."""
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


async def read_logged_frames(store: RowReader, channel: str, after: Cursor | None) -> AsyncGenerator[bytes]:
    """Stream the frames of all logged events after the cursor."""
    while rows := await store.read(channel, after, _PAGE):
        yield encode_frames(rows)
        after = rows[-1].cursor


async def read_ended_run(store: RowReader, channel: str, after: Cursor) -> AsyncGenerator[bytes]:
    """Stream the frames of the ended run that starts after the cursor."""
    async with aclosing(read_rows_after(store, channel, after)) as rows:
        async for row in rows:
            if row.kind == RowKind.EVENT:
                yield encode_frame(row)
            if row.kind == RowKind.END:
                return


async def insert_after_first(frames: AsyncGenerator[bytes], given: RunInput) -> AsyncGenerator[bytes]:
    """Insert the run's input, as snapshots, after the first frame, which starts the run."""
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
    """Stream the frames after the cursor across runs, including deferred verdicts.

    The subscriber counts as a watcher of each run. `live` returns the current run, given the newest rows.
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
    """The input posted by another client, held back until it is sent to the watchers."""

    def __init__(self) -> None:
        self._input: RunInput | None = None

    def frame(self, row: Row) -> bytes:
        match decode_row(row):
            case StartedRun(given):
                self._input = given
                return b""
            case EventRow(event):
                given, self._input = self._input, None
                # A run that was cut short before it began has only its end, and nothing may follow that.
                is_sent = given is not None and event.type != "RUN_ERROR"
                return self._with_input(row, given) if given and is_sent else encode_frame(row)
            case _:
                return b""

    def _with_input(self, row: Row, given: RunInput) -> bytes:
        # Only the last frame has an id: a client cut off in between receives all of them again.
        first = (
            b"data: %b\n\n" * 2 % (row.data, ev.encode(ev.MessagesSnapshot(filter_sendable(given.messages))))
        )
        return first + encode_frame(replace(row, data=ev.encode(ev.StateSnapshot(given.state))))


async def _with_pings(
    followed: AsyncIterator[Sequence[Row]], lost: asyncio.Future[Any], *, first: bool = False
) -> AsyncGenerator[Sequence[Row]]:
    """Yield the rows, and an empty batch after each quiet interval (or `first` of all), until `lost`."""
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
    """Return the number of rows up to the end of the run, or None if it is not among them."""
    for count, row in enumerate(rows, 1):
        end = decode_row(row) if row.kind == RowKind.END else None
        if isinstance(end, EndedRun) and end.run_id == live.run_id:
            return count
    return None
