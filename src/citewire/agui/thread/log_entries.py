"""Log entries of a thread other than events: local actions, and received data that is not an event."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from operator import attrgetter
from typing import Any, TypeAlias, cast

from msgspec import UNSET, Struct

from citewire.agui.events import (
    AnyEvent,
    Json,
    ReasoningMessageContent,
    TextMessageContent,
    ToolCallArgs,
)

__all__ = [
    "InvalidEventReceived",
    "LogEntry",
    "MessageAdded",
    "MessagesCut",
    "MessagesSet",
    "ProblemNoted",
    "RunFailed",
    "RunStopped",
    "StateSet",
    "StreamOpened",
    "group_deltas",
]


class MessageAdded(Struct, frozen=True, gc=False):
    """A message was added locally."""

    message: Json


class MessagesSet(Struct, frozen=True, gc=False):
    """All messages were replaced locally."""

    messages: tuple[Json, ...]


class StateSet(Struct, frozen=True, gc=False):
    """The state was replaced locally."""

    state: Any


class MessagesCut(Struct, frozen=True, gc=False):
    """The messages after this one were removed, for example to regenerate an answer."""

    message_id: str


class StreamOpened(Struct, frozen=True, gc=False):
    """A new response begins. The order rules are reset, unless it resumes an interrupted run."""

    goes_on: bool


class RunFailed(Struct, frozen=True, gc=False):
    """The run failed in transport; `error` is the text of the exception."""

    code: str
    error: str


class RunStopped(Struct, frozen=True, gc=False):
    """The run was stopped locally."""


class ProblemNoted(Struct, frozen=True, gc=False):
    """Received data had a problem, but could be read."""

    code: str
    message: str


class InvalidEventReceived(Struct, frozen=True, gc=False):
    """Received data is not an event."""

    code: str
    message: str


LogEntry: TypeAlias = (
    AnyEvent
    | MessageAdded
    | MessagesSet
    | MessagesCut
    | StateSet
    | StreamOpened
    | RunFailed
    | RunStopped
    | ProblemNoted
    | InvalidEventReceived
)


# Frequent delta events, and how to get the id of the stream they continue.
_STREAMED: dict[type[Any], Callable[[Any], str]] = {
    TextMessageContent: attrgetter("message_id"),
    ReasoningMessageContent: attrgetter("message_id"),
    ToolCallArgs: attrgetter("tool_call_id"),
}


def group_deltas(entries: Sequence[LogEntry]) -> Iterator[tuple[LogEntry, Sequence[Any]]]:
    """Yield each entry with the entries right after it that only continue the same text.

    Checks of the first entry hold for all of them, so a fold needs to check only once.
    """
    listed, at, end = cast("Sequence[Any]", entries), 0, len(entries)
    while at < end:
        entry = listed[at]
        at = start = at + 1
        kind = cast("type[Any]", type(entry))
        name_of = _STREAMED.get(kind)
        if name_of is not None and entry.subagent_run_id is UNSET:
            name = name_of(entry)
            while at < end:
                next_one = listed[at]
                if (
                    type(next_one) is not kind
                    or name_of(next_one) != name
                    or next_one.metadata is not UNSET
                    or next_one.subagent_run_id is not UNSET
                    or next_one.extra is not UNSET
                ):
                    break
                at += 1
        yield entry, listed[start:at]
