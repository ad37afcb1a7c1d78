"""Answers as the channels of their threads tell of them: by whom, when, from which sources, which verdicts.

There is no index beside the channels that could say something else. What was read of a thread is kept as
long as nothing more happens in its channel.
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
from citewire.channels.store import PAGE_ROWS, Cursor, Head, Store
from citewire.errors import InputError
from citewire.server.bridge.answer_annotations import CITATIONS
from citewire.server.bridge.thread_channels import thread_of_ai_channel

__all__ = ["AnswerFilter", "AnswerIndex", "AnswerSummary", "IndexPosition", "PREFIX", "SPACE"]

SPACE = "channel:"
PREFIX = f"{SPACE}ai:"
"""How the logs of channels are called, and those of threads."""
_RESPONSE, _PENDING = "response", "pending"
# Characters of an answer that a list shows, answers of one thread that it knows, answers kept in all: 20 MB.
_SHOWN, _MOST, _KEPT = 280, 1000, 20_000
_PAGE = 100


class AnswerSummary(Struct, frozen=True, rename="camel"):
    """An answer: how it begins, what it cites by the names of the sources, and the verdicts on that."""

    message_id: str
    run_id: str
    agent: str
    at: str
    text: str
    sources: list[str]
    verdicts: dict[str, int]


class AnswerFilter(NamedTuple):
    """Which answers are asked for: with a verdict, of a source, by an agent, in a time as `Which` has it."""

    which: AuditFilter
    agent: str | None = None

    def matches(self, answer: AnswerSummary) -> bool:
        """Whether it is one of them."""
        which = self.which
        return (
            (which.status is None or which.status in answer.verdicts)
            and (which.source is None or which.source in answer.sources)
            and self.agent in (None, answer.agent)
            and (which.since is None or which.since <= answer.at)
            and (which.until is None or answer.at < which.until)
        )


class IndexPosition(NamedTuple):
    """A place among the threads, from the one with the latest news on. As text, `tick:channel`."""

    tick: int
    channel: str

    def __str__(self) -> str:
        return f"{self.tick}:{self.channel.removeprefix(PREFIX)}"

    @classmethod
    def parse(cls, text: str) -> IndexPosition:
        """The place that was written as `text`."""
        tick, colon, channel = text.partition(":")
        if not (colon and tick.isascii() and tick.isdigit() and len(tick) <= 18):
            raise InputError("not a cursor of this list", "?cursor")
        return cls(int(tick), PREFIX + channel)


class AnswerIndex:
    """The answers in `channels`, by thread."""

    def __init__(self, store: Store, channels: Channels) -> None:
        self._store, self._channels = store, channels
        self._kept: OrderedDict[str, tuple[Cursor, list[AnswerSummary]]] = OrderedDict()
        self._count = 0

    async def heads(
        self, after: IndexPosition | None, since: str | None = None
    ) -> AsyncIterator[tuple[str, Head]]:
        """The threads with the ends of their channels, the latest first; those with news since then."""
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
        """The end of one of these channels."""
        return await self._store.head(channel)

    async def answers(self, head: Head) -> list[AnswerSummary]:
        """The answers in a channel as it is, at least up to this end; the latest first."""
        channel = head.channel
        kept = self._kept.get(channel)
        if kept and kept[0] == head.cursor:
            self._kept.move_to_end(channel)
            return kept[1]
        answers = [each async for each in self._read(channel.removeprefix(SPACE))]
        self._forget(channel)  # somebody else may have read it meanwhile
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
    """The answer in a message; None where it is none of ours, or was taken back."""
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
