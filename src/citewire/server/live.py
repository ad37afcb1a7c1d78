"""A run that is going on: who watches it, how it is ended, and its frames as they come."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Sequence
from contextlib import ExitStack, aclosing, contextmanager
from typing import Any

from msgspec.structs import replace

from citewire.agui import events as ev
from citewire.agui.events import RunInput
from citewire.agui.middleware import Stream
from citewire.agui.sources import Abort
from citewire.agui.sse import PING
from citewire.channels.hub import Hub
from citewire.channels.store import Cursor, Row
from citewire.errors import CitewireError
from citewire.server.http import read
from citewire.server.journal import Outcome, Over, Started, frame, framed

__all__ = ["ENDINGS", "Ended", "Live", "follow", "watch"]

# Seconds of silence after which a proxy on the way may think that nobody is there.
_QUIET = 15.0

ENDINGS: dict[Outcome, str] = {
    "stopped": "the run was stopped",
    "abandoned": "nobody was there to see it",
    "superseded": "another run was started",
    "interrupted": "the server was restarted",
}
"""Why a run ended that was ended from outside."""


class Ended(CitewireError):
    """A run that was ended from outside."""

    code = "ended"

    def __init__(self, outcome: Outcome) -> None:
        super().__init__(ENDINGS[outcome])
        self.outcome: Outcome = outcome


class Live:
    """A run that is going on. `after` is where its rows begin, `lost` an end that the log could not keep."""

    def __init__(self, started: Started, channel: str, after: Cursor, linger: float) -> None:
        self.started, self.channel, self.after = started, channel, after
        self.run_id = started.input.run_id
        self.abort = Abort()
        self.stream: Stream | None = None
        self.ending: Outcome | None = None
        self.task: asyncio.Task[None] | None = None
        self.lost: asyncio.Future[ev.RunError] = asyncio.get_running_loop().create_future()
        self.watchers = 0
        self._linger = linger
        self._timer: asyncio.TimerHandle | None = None
        self._unwatched()

    def end(self, outcome: Outcome) -> None:
        """End it at once: the agent is left, and verdicts are not waited for."""
        if self.ending is None:
            self.ending = outcome
            self.abort()
            if self.stream:
                self.stream.hurry()

    @contextmanager
    def watched(self) -> Generator[Live]:
        """Somebody is there while this lasts."""
        self.watchers += 1
        self._forget_timer()
        try:
            yield self
        finally:
            self.watchers -= 1
            if not self.watchers:
                self._unwatched()

    def over(self) -> None:
        self._forget_timer()
        self._linger = -1

    def _unwatched(self) -> None:
        if self._linger >= 0:
            self._timer = asyncio.get_running_loop().call_later(self._linger, self.end, "abandoned")

    def _forget_timer(self) -> None:
        if self._timer:
            self._timer.cancel()
            self._timer = None


async def follow(live: Live, hub: Hub, after: Cursor | None) -> AsyncGenerator[bytes]:
    """The frames of what is in the log after the cursor, up to the end of the run."""
    with live.watched():
        async with aclosing(hub.follow(live.channel, after)) as followed:
            async for rows in _with_pings(followed, live.lost):
                end = _end_of(live, rows)
                if frames := framed(rows[:end]) if rows else PING:
                    yield frames
                if end is not None:
                    return
        if live.lost.done():
            yield b"data: %b\n\n" % ev.encode(live.lost.result())


async def watch(
    channel: str, hub: Hub, after: Cursor | None, live: Callable[[], Live | None]
) -> AsyncGenerator[bytes]:
    """The frames of what is in the log after the cursor, run after run, and of verdicts that come late.

    Whoever watches a thread is there for each of its runs, which `live` gives.
    """
    run, posted = None, _Posted()
    with ExitStack() as there:
        async with aclosing(hub.follow(channel, after)) as followed:
            async for rows in _with_pings(followed, asyncio.get_running_loop().create_future(), first=True):
                if (now := live()) is not run:
                    there.close()
                    run = now and there.enter_context(now.watched())
                if frames := b"".join(map(posted.frame, rows)) if rows else PING:
                    yield frames


class _Posted:
    """What somebody else posted to start a run, until those who watch are told."""

    def __init__(self) -> None:
        self._input: RunInput | None = None

    def frame(self, row: Row) -> bytes:
        if row.kind == "input":
            self._input = read(row.data, Started).input
        if row.kind not in {"event", "late"}:
            return b""
        given, self._input = self._input, None
        if given is None:
            return frame(row)
        # Only the last one has an id: who is cut off in between gets all of it again.
        first = b"data: %b\n\n" * 2 % (row.data, ev.encode(ev.MessagesSnapshot(given.messages)))
        return first + frame(replace(row, data=ev.encode(ev.StateSnapshot(given.state))))


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


def _end_of(live: Live, rows: Sequence[Row]) -> int | None:
    """How many of the rows there are up to the end of the run; None where it goes on."""
    for count, row in enumerate(rows, 1):
        if row.kind == "over" and read(row.data, Over).run_id == live.run_id:
            return count
    return None
