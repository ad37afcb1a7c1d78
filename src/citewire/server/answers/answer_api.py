"""HTTP operations over all answers: a list with live updates, and counts of verdicts by time.

One request reads a limited number of threads. If there are more, it returns a cursor for the next request.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct
from starlette.types import ASGIApp

from citewire import codec
from citewire.agui.sse import PING
from citewire.audit.audit_filter import AuditFilter
from citewire.audit.thread_fold import date_of
from citewire.channels.store import Head
from citewire.server.access.keys import Caller
from citewire.server.answers.answer_index import (
    PREFIX,
    SPACE,
    AnswerFilter,
    AnswerIndex,
    AnswerSummary,
    IndexPosition,
)
from citewire.server.http.event_stream import EventStreamResponse
from citewire.server.http.feed import Feed
from citewire.server.http.operations import ApiCall, EventStream, Operation
from citewire.threadlog.names import thread_of_ai_channel

__all__ = ["AnswerApi"]

# Threads read by one request, and answers shown per thread.
_LOOKED, _SHOWN = 500, 50
# Seconds over which changes of a thread are merged: a streaming answer changes all the time.
_TOGETHER = 0.25
_HOUR, _DAY = len("2026-11-16T09"), len("2026-11-16")
_Word = Annotated[str, Meta(max_length=2048)]


class AnswersQuery(Struct, frozen=True):
    """A filter for answers, a cursor, and the number of threads with such answers to return."""

    status: _Word | None = None
    source: _Word | None = None
    agent: _Word | None = None
    since: _Word | None = None
    until: _Word | None = None
    cursor: _Word | None = None
    limit: Annotated[int, Meta(ge=1, le=100)] = 25


class VerdictsQuery(Struct, frozen=True):
    """A filter for answers, and the size of the time buckets to count their verdicts by."""

    bucket: Literal["hour", "day"] = "day"
    status: _Word | None = None
    source: _Word | None = None
    agent: _Word | None = None
    since: _Word | None = None
    until: _Word | None = None
    cursor: _Word | None = None


class ThreadAnswers(Struct, frozen=True, rename="camel"):
    """The matching answers of a thread, latest first; `more` counts those not shown."""

    thread_id: str
    updated_at: str | None
    answers: list[AnswerSummary]
    more: int


class AnswerPage(Struct, frozen=True):
    """Threads with matching answers, most recently changed first; `next` is the cursor of the next page."""

    threads: list[ThreadAnswers]
    next: str | None


class Bucket(Struct, frozen=True):
    """A time interval that starts `at`, its answers, and the verdicts on their citations."""

    at: str
    answers: int
    verdicts: dict[str, int]


class VerdictCounts(Struct, frozen=True):
    """Verdicts by the time of their answers, in order. Add the counts of the page at `next` to these."""

    buckets: list[Bucket]
    next: str | None


class _ThreadScan:
    """The threads that one request reads: those the caller may read, up to a limit."""

    def __init__(self, told: AnswerIndex, caller: Caller, query: AnswersQuery | VerdictsQuery) -> None:
        self._told, self._caller, self._filter = told, caller, _filter(query)
        self._after = IndexPosition.parse(query.cursor) if query.cursor else None
        self.next: str | None = None

    async def threads(self) -> AsyncIterator[tuple[str, Head, list[AnswerSummary]]]:
        """Yield the threads with matching answers. The next request continues from `next`."""
        looked = 0
        async for thread_id, head in self._told.heads(self._after, self._filter.which.since):
            if looked == _LOOKED:
                return
            if not self._caller.may("read", f"thread:{thread_id}"):
                continue
            looked += 1
            self.next = str(IndexPosition(head.tick, head.channel))
            if wanted := [each for each in await self._told.answers(head) if self._filter.matches(each)]:
                yield thread_id, head, wanted
        self.next = None


class AnswerApi:
    """The operations over all answers."""

    def __init__(self, told: AnswerIndex) -> None:
        self._index, self._feed = told, Feed[str]()

    def notify_channel_changed(self, channel: str) -> None:
        """Notify the followers of a change in a channel."""
        if channel.startswith(PREFIX):
            self._feed.publish(channel)

    def end_events(self) -> None:
        """End all event streams."""
        self._feed.close()

    def operations(self) -> list[Operation]:
        """Return the operations on answers."""
        return [
            Operation(
                method="GET", path="/answers", summary="Answers and their verdicts, by thread, latest first",
                handle=self.list, needs=("list", "answer:*"), query=AnswersQuery, gives=AnswerPage,
            ),
            Operation(
                method="GET", path="/answers/events", summary="The same for each thread that changes",
                handle=self.events, needs=("list", "answer:*"), query=AnswersQuery, gives=EventStream,
            ),
            Operation(
                method="GET", path="/verdicts", summary="How many verdicts of each kind there are, by time",
                handle=self.verdicts, needs=("count", "answer:*"), query=VerdictsQuery, gives=VerdictCounts,
            ),
        ]  # fmt: skip

    async def list(self, call: ApiCall) -> AnswerPage:
        """Return a page of the threads that the caller may read."""
        look, found = _ThreadScan(self._index, call.caller, call.query), list[ThreadAnswers]()
        async for thread_id, head, answers in look.threads():
            found.append(_shown(thread_id, head, answers))
            if len(found) == call.query.limit:
                break
        return AnswerPage(found, look.next)

    async def verdicts(self, call: ApiCall) -> VerdictCounts:
        """Return the counts for a plot."""
        look, size = (
            _ThreadScan(self._index, call.caller, call.query),
            _HOUR if call.query.bucket == "hour" else _DAY,
        )
        answers, verdicts = Counter[str](), dict[str, Counter[str]]()
        async for _, _, found in look.threads():
            for each in found:
                at = each.at[:size]
                answers[at] += 1
                verdicts.setdefault(at, Counter()).update(each.verdicts)
        return VerdictCounts(
            [Bucket(_begin(at), answers[at], dict(verdicts[at])) for at in sorted(answers)], look.next
        )

    async def events(self, call: ApiCall) -> ASGIApp:
        """Stream the threads that change from now on and match the query."""
        return EventStreamResponse(self._frames(call.caller, _filter(call.query)))

    async def _frames(self, caller: Caller, wanted: AnswerFilter) -> AsyncGenerator[bytes]:
        async for channels in self._feed.follow():
            if channels is None:
                yield _frame("reset", {})
            elif not channels:
                yield PING
            for channel in dict.fromkeys(channels or ()):
                thread_id = thread_of_ai_channel(channel.removeprefix(SPACE))
                if thread_id is not None and caller.may("read", f"thread:{thread_id}"):
                    yield _frame("thread", await self._thread(thread_id, channel, wanted))
            await asyncio.sleep(_TOGETHER)

    async def _thread(self, thread_id: str, channel: str, wanted: AnswerFilter) -> ThreadAnswers:
        if (head := await self._index.head(channel)) is None:
            return ThreadAnswers(thread_id, None, [], 0)
        answers = await self._index.answers(head)
        return _shown(thread_id, head, [each for each in answers if wanted.matches(each)])


def _filter(query: AnswersQuery | VerdictsQuery) -> AnswerFilter:
    which = AuditFilter.parse(status=query.status, source=query.source, since=query.since, until=query.until)
    return AnswerFilter(which, query.agent)


def _shown(thread_id: str, head: Head, answers: list[AnswerSummary]) -> ThreadAnswers:
    return ThreadAnswers(thread_id, date_of(head.tick), answers[:_SHOWN], max(0, len(answers) - _SHOWN))


def _begin(at: str) -> str:
    """Return the start of a bucket, from the common prefix of its timestamps."""
    return f"{at}:00:00.000+00:00" if len(at) == _HOUR else f"{at}T00:00:00.000+00:00"


def _frame(event: str, data: Any) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (event.encode(), codec.encode(data))
