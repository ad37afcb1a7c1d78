"""HTTP operations on threads: run the agent, rejoin a run, read the thread as of any row, stop a run."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from datetime import datetime
from typing import Annotated, Any, Literal

from msgspec import Meta, Raw, Struct
from starlette.responses import Response
from starlette.types import ASGIApp

from citewire.agui import events as ev
from citewire.agui.events import RunInput
from citewire.agui.inputs import check_input
from citewire.agui.shapes import filter_sendable
from citewire.audit.thread_fold import date_of
from citewire.channels.hub import Hub
from citewire.channels.store import Cursor, Head
from citewire.channels.store_rules import is_last_page
from citewire.errors import NotFound
from citewire.server.http.event_stream import EventStreamResponse
from citewire.server.http.operations import ApiCall, EventStream, Operation
from citewire.server.http.pagination import SealedCursors, list_visible
from citewire.server.ops.timestamps import now_iso
from citewire.server.runs.answer_dialects import write_answer
from citewire.server.runs.run_manager import RunManager
from citewire.threadlog.history import ThreadAtCursor, ThreadHistory
from citewire.threadlog.names import channel_of, thread_of
from citewire.threadlog.reviews import PostedReview, ReviewEvent, make_review_entry
from citewire.threadlog.rows import RowKind

__all__ = ["ThreadApi"]

_JSON = "application/json"


class ThreadEntry(Struct, frozen=True, rename="camel"):
    """A thread in a list."""

    thread_id: str
    cursor: str
    updated_at: str


class ThreadList(Struct, frozen=True, rename="camel"):
    """Threads ordered by id; `next` is the cursor of the next page."""

    threads: list[ThreadEntry]
    next: str | None


class ThreadView(Struct, frozen=True, rename="camel"):
    """The state of a thread, for a client that reconnects."""

    thread_id: str
    cursor: str
    status: Literal["running", "idle", "error"]
    run_id: str | None
    error: str | None
    messages: list[Any]
    state: Any


class LoggedEvent(Struct, frozen=True):
    """An event, and the cursor for resuming after it."""

    id: str
    event: Raw


class EventPage(Struct, frozen=True):
    """Events in order; `next` is the cursor of the next page."""

    events: list[LoggedEvent]
    next: str | None


class DialectAnswer(Struct, frozen=True):
    """A message with its citations in a dialect, and what that dialect cannot express."""

    dialect: str
    payload: Any
    losses: list[str]


class ReviewRequest(Struct, frozen=True, rename="camel"):
    """What a user did with a citation. `at` is the client's time."""

    message_id: Annotated[str, Meta(min_length=1, max_length=512)]
    key: Annotated[str, Meta(min_length=1, max_length=512)]
    event: Literal["popover_opened", "popover_closed", "citation_reviewed"]
    at: datetime | None = None
    dwell_ms: Annotated[int, Meta(ge=0)] | None = None


class ThreadListQuery(Struct, frozen=True):
    """The cursor after which the list starts, and the page size."""

    after: str = ""
    limit: Annotated[int, Meta(ge=1, le=1000)] = 100


class AtQuery(Struct, frozen=True):
    """The number of the row up to which to read the thread, as in event ids."""

    at: Annotated[int, Meta(ge=0, le=10**15)] | None = None


class EventsQuery(Struct, frozen=True):
    """The event after which to start, and the page size.

    With `follow`, the stream continues from run to run and includes deferred verdicts.
    """

    after: str | None = None
    limit: Annotated[int, Meta(ge=1, le=1000)] = 1000
    follow: bool = False


class DialectQuery(Struct, frozen=True):
    """The dialect to write."""

    dialect: str


class ThreadApi:
    """The operations on threads. `renew` signs the proof links in responses again."""

    def __init__(
        self,
        hub: Hub,
        runs: RunManager,
        history: ThreadHistory,
        renew: Callable[[str, bytes], bytes],
        cursors: SealedCursors,
    ) -> None:
        self._hub, self._runs, self._history, self._renew = hub, runs, history, renew
        self._cursors = cursors

    def operations(self) -> list[Operation]:
        """Return the operations on threads."""
        of = "thread:{thread}"
        return [
            Operation(
                method="POST", path="/agui", summary="Run the agent, or join the run of this id",
                handle=self.run, needs=("run", "thread:{thread_id}"), body=RunInput, gives=EventStream,
                errors=(409,),
            ),
            Operation(
                method="GET", path="/threads", summary="The threads, by their ids",
                handle=self.list, needs=("list", "thread:*"), query=ThreadListQuery, gives=ThreadList,
            ),
            Operation(
                method="GET", path="/threads/{thread}", summary="A thread as it is, or as it was",
                handle=self.show, needs=("read", of), query=AtQuery, gives=ThreadView, also=(EventStream,),
            ),
            Operation(
                method="GET", path="/threads/{thread}/events",
                summary="The events of a thread: a page of them, or a stream that goes on with the run",
                handle=self.events, needs=("read", of), query=EventsQuery, gives=EventPage,
                also=(EventStream,), errors=(410,),
            ),
            Operation(
                method="POST", path="/threads/{thread}/runs/{run}/stop", summary="End a run at once",
                handle=self.stop, needs=("stop", of),
            ),
            Operation(
                method="GET", path="/threads/{thread}/messages/{message}/citations",
                summary="A message with its citations, in any dialect",
                handle=self.citations, needs=("read", of), query=DialectQuery, gives=DialectAnswer,
            ),
            Operation(
                method="POST", path="/threads/{thread}/reviews", summary="Somebody looked at a citation",
                handle=self.review, needs=("review", of), body=ReviewRequest,
            ),
            Operation(
                method="DELETE", path="/threads/{thread}", summary="Forget a thread",
                handle=self.delete, needs=("delete", of), errors=(409,),
            ),
        ]  # fmt: skip

    async def run(self, call: ApiCall) -> ASGIApp:
        """Start or join a run. Proof links are renewed only if the caller may read the thread."""
        check_input(call.body)
        thread_id = call.body.thread_id
        frames = await self._runs.start(call.body, call.caller)
        may_read = call.caller.may("read", f"thread:{thread_id}")
        return EventStreamResponse(self._fresh(thread_id, frames) if may_read else frames, of_run=True)

    async def stop(self, call: ApiCall) -> None:
        """End a run."""
        await self._runs.stop_run(call.path["thread"], call.path["run"])

    async def list(self, call: ApiCall) -> ThreadList:
        """Return a page of the threads that the caller may read."""
        query: ThreadListQuery = call.query

        def is_visible(head: Head) -> bool:
            return call.caller.may("read", f"thread:{thread_of(head.channel)}")

        page = await list_visible(self._heads, is_visible, self._cursors.read(query.after), query.limit)
        found = [
            ThreadEntry(thread_of(head.channel), str(head.cursor), date_of(head.tick)) for head in page.items
        ]
        return ThreadList(found, self._cursors.write(page.after))

    async def _heads(self, after: str, limit: int) -> Sequence[tuple[str, Head]]:
        return [(head.channel, head) for head in await self._hub.store.heads("run:", after, limit)]

    async def show(self, call: ApiCall) -> ASGIApp:
        """Return a thread as JSON, or as a short event stream that brings a client up to date."""
        name, at = call.path["thread"], call.query.at
        channel = await self._known(name)
        if _wants_events(call):
            if at is None and (joined := await self._runs.join_current_run(name)) is not None:
                return EventStreamResponse(self._fresh(name, joined), of_run=True)
            return EventStreamResponse(self._fresh(name, _loaded(name, await self._past(channel, at))))
        past = await self._past(channel, at)
        view = ThreadView(
            name, str(past.cursor), past.status, past.run_id, past.error, past.messages, past.state
        )
        return self._json(name, view)

    async def events(self, call: ApiCall) -> ASGIApp:
        """Return the thread's events, as a page or as a stream."""
        query: EventsQuery = call.query
        name = call.path["thread"]
        channel = await self._known(name)
        given = call.request.headers.get("last-event-id") or query.after
        after = Cursor.parse(given) if given else None
        if _wants_events(call):
            await self._hub.store.read(channel, after, 1)  # may raise, before the response starts
            joined = (
                self._runs.watch_thread(name, after) if query.follow else await self._runs.join(name, after)
            )
            return EventStreamResponse(self._fresh(name, joined), of_run=not query.follow)
        rows = await self._hub.store.read(channel, after, query.limit)
        listed = [LoggedEvent(str(row.cursor), Raw(row.data)) for row in rows if row.kind == RowKind.EVENT]
        page = EventPage(listed, None if is_last_page(rows, query.limit) else str(rows[-1].cursor))
        return self._json(name, page)

    async def citations(self, call: ApiCall) -> Response:
        """Return one message in another dialect."""
        past = await self._past(await self._known(call.path["thread"]), None)
        result = write_answer(past, call.path["message"], call.query.dialect)
        value = DialectAnswer(call.query.dialect, result.payload, [str(loss) for loss in result.losses])
        return self._json(call.path["thread"], value)

    async def review(self, call: ApiCall) -> None:
        """Record a review."""
        review: ReviewRequest = call.body
        channel = await self._known(call.path["thread"])
        look = ReviewEvent(review.event, review.at, dwell_ms=review.dwell_ms)
        posted = PostedReview(review.message_id, review.key, look)
        await self._hub.append(channel, [make_review_entry(posted, call.caller.actor, now_iso())])

    async def delete(self, call: ApiCall) -> None:
        """Delete a thread."""
        await self._runs.delete_thread(call.path["thread"], call.caller.actor)

    def _json(self, name: str, value: Struct) -> Response:
        return Response(self._renew(name, ev.write_json(value)), media_type=_JSON)

    async def _known(self, name: str) -> str:
        channel = channel_of(name)
        if await self._hub.store.head(channel) is None:
            raise NotFound("there is no such thread")
        await self._runs.settle_run(channel)
        return channel

    async def _past(self, channel: str, at: int | None) -> ThreadAtCursor:
        past = await self._history.snapshot_at(channel, at)
        if past is None:
            raise NotFound("there is no such thread")
        return past

    async def _fresh(self, name: str, frames: AsyncGenerator[bytes]) -> AsyncGenerator[bytes]:
        async for each in frames:
            yield self._renew(name, each)


async def _loaded(name: str, past: ThreadAtCursor) -> AsyncGenerator[bytes]:
    """Yield a run that only brings a client up to date."""
    run_id = past.run_id or "none"
    for event in (
        ev.RunStarted(name, run_id),
        ev.MessagesSnapshot(filter_sendable(past.messages)),
        ev.StateSnapshot(past.state),
        ev.RunFinished(name, run_id),
    ):
        yield b"data: %b\n\n" % ev.encode(event)


def _wants_events(call: ApiCall) -> bool:
    return EventStream.media in call.request.headers.get("accept", "")
