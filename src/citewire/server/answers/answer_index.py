"""Answers as published in the channels of their threads: agent, time, sources and verdicts.

There is no separate index that could contradict the channels. What was read from a thread is cached until its
channel changes.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import OrderedDict
from collections.abc import AsyncIterator
from typing import Any, NamedTuple

from msgspec import Struct

from citewire.audit.audit_filter import AuditFilter
from citewire.audit.thread_fold import date_of
from citewire.channels.channels import Channels, HistoryQuery
from citewire.channels.fold import SERVER_CONNECTION_ID, VERDICT_TYPE
from citewire.channels.message import Action, Message
from citewire.channels.store import PAGE_ROWS, Cursor, Head, RowReader
from citewire.errors import InputError
from citewire.threadlog.answer_annotations import CITATIONS
from citewire.threadlog.names import thread_of_ai_channel

__all__ = ["AnswerFilter", "AnswerIndex", "AnswerSummary", "IndexPosition", "PREFIX", "SPACE"]

SPACE = "channel:"
PREFIX = f"{SPACE}ai:"
"""The name prefix of channel logs (`SPACE`), and of threads' channels (`PREFIX`)."""
_RESPONSE, _PENDING = "response", "pending"
# Characters of an answer in a list, answers read per thread, answers cached in total: 20 MB.
_SHOWN, _MOST, _KEPT = 280, 1000, 20_000
_PAGE = 100


class AnswerSummary(Struct, frozen=True, rename="camel"):
    """An answer: its first characters, the names of the sources it cites, and the verdicts by status."""

    message_id: str
    run_id: str
    agent: str
    at: str
    text: str
    sources: list[str]
    verdicts: dict[str, int]


class AnswerFilter(NamedTuple):
    """A filter for answers: by verdict, source and time (see `AuditFilter`), and by agent."""

    which: AuditFilter
    agent: str | None = None

    def matches(self, answer: AnswerSummary) -> bool:
        """Return whether the answer matches."""
        which = self.which
        return (
            (which.status is None or which.status in answer.verdicts)
            and (which.source is None or which.source in answer.sources)
            and self.agent in (None, answer.agent)
            and (which.since is None or which.since <= answer.at)
            and (which.until is None or answer.at < which.until)
        )


class IndexPosition(NamedTuple):
    """A position among the threads, most recently changed first. As text, `tick:channel`."""

    tick: int
    channel: str

    def __str__(self) -> str:
        return f"{self.tick}:{self.channel.removeprefix(PREFIX)}"

    @classmethod
    def parse(cls, text: str) -> IndexPosition:
        """Parse a position. Raises `InputError`."""
        tick, colon, channel = text.partition(":")
        if not (colon and tick.isascii() and tick.isdigit() and len(tick) <= 18):
            raise InputError("not a cursor of this list", "?cursor")
        return cls(int(tick), PREFIX + channel)


class AnswerIndex:
    """The answers in `channels`, by thread."""

    def __init__(self, store: RowReader, channels: Channels) -> None:
        self._store, self._channels = store, channels
        self._kept: OrderedDict[str, tuple[Cursor, list[AnswerSummary]]] = OrderedDict()
        self._count = 0

    async def heads(
        self, after: IndexPosition | None, since: str | None = None
    ) -> AsyncIterator[tuple[str, Head]]:
        """Yield the threads and the heads of their channels, latest first, and only those changed `since`."""
        found, last = list[Head](), ""
        while heads := await self._store.heads(PREFIX, last, PAGE_ROWS):
            found += heads
            last = heads[-1].channel
        ordered = sorted((head.tick, head.channel, head) for head in found)
        end = len(ordered) if after is None else bisect_left(ordered, after)
        for _, channel, head in reversed(ordered[:end]):
            if since is not None and date_of(head.tick) < since:
                return
            thread_id = thread_of_ai_channel(channel.removeprefix(SPACE))
            if thread_id is not None:
                yield thread_id, head

    async def head(self, channel: str) -> Head | None:
        """Return the head of one of these channels."""
        return await self._store.head(channel)

    async def answers(self, head: Head) -> list[AnswerSummary]:
        """Return the answers in a channel, latest first. They are at least as recent as `head`."""
        channel = head.channel
        kept = self._kept.get(channel)
        if kept and kept[0] == head.cursor:
            self._kept.move_to_end(channel)
            return kept[1]
        answers = [each async for each in self._read(channel.removeprefix(SPACE))]
        self._forget(channel)  # another task may have cached it meanwhile
        self._kept[channel] = head.cursor, answers
        self._count += 1 + len(answers)
        while self._count > _KEPT and len(self._kept) > 1:
            self._forget(next(iter(self._kept)))
        return answers

    def _forget(self, channel: str) -> None:
        if known := self._kept.pop(channel, None):
            self._count -= 1 + len(known[1])

    async def _read(self, channel: str) -> AsyncIterator[AnswerSummary]:
        count, cursor = 0, None
        while count < _MOST:
            page = await self._channels.history(channel, HistoryQuery(limit=_PAGE, cursor=cursor))
            for message in page.items:
                if answer := _answer(message):
                    count += 1
                    yield answer
            if (cursor := page.next) is None:
                return


def _answer(message: Message) -> AnswerSummary | None:
    """Return the answer in a message. None if it is not the server's, or was deleted."""
    if (
        message.name != _RESPONSE
        or message.connection_id != SERVER_CONNECTION_ID
        or message.action is Action.DELETE
    ):
        return None
    headers: dict[str, Any] = (message.extras or {}).get("headers", {})
    summary: dict[str, Any] = message.annotations.summary if message.annotations else {}
    cited, judged = summary.get(CITATIONS, {}), summary.get(VERDICT_TYPE, {})
    verdicts = {status: each["total"] for status, each in judged.items()}
    if left := max(0, sum(each["total"] for each in cited.values()) - sum(verdicts.values())):
        verdicts[_PENDING] = verdicts.get(_PENDING, 0) + left
    return AnswerSummary(
        headers.get("messageId", message.id or ""), headers.get("runId", ""), message.client_id or "",
        date_of(message.timestamp * 1000), (message.text or "")[:_SHOWN], [*cited], verdicts,
    )  # fmt: skip
