"""What a thread's log holds besides events: what its own side did, and what came that is no event."""

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
    """A message that this side wrote."""

    message: Json


class MessagesSet(Struct, frozen=True, gc=False):
    """The messages that this side goes on with."""

    messages: tuple[Json, ...]


class StateSet(Struct, frozen=True, gc=False):
    """The state that this side goes on with."""

    state: Any


class MessagesCut(Struct, frozen=True, gc=False):
    """The messages after this one are gone, as when an answer is asked for anew."""

    message_id: str


class StreamOpened(Struct, frozen=True, gc=False):
    """A new response begins; the order rules start afresh, unless it goes on with a run that broke off."""

    goes_on: bool


class RunFailed(Struct, frozen=True, gc=False):
    """A run that failed under way: `error` is what the transport threw, as text."""

    code: str
    error: str


class RunStopped(Struct, frozen=True, gc=False):
    """A run that this side ended."""


class ProblemNoted(Struct, frozen=True, gc=False):
    """Something that was wrong with what came, though it could be read."""

    code: str
    message: str


class InvalidEventReceived(Struct, frozen=True, gc=False):
    """Something that came and is no event."""

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


# The events that come by the thousand, and what they go on with.
_STREAMED: dict[type[Any], Callable[[Any], str]] = {
    TextMessageContent: attrgetter("message_id"),
    ReasoningMessageContent: attrgetter("message_id"),
    ToolCallArgs: attrgetter("tool_call_id"),
}


def group_deltas(entries: Sequence[LogEntry]) -> Iterator[tuple[LogEntry, Sequence[Any]]]:
    """Each entry, and those right behind it that do nothing but go on with the same text.

    What holds for the first holds for all of them, so a fold need look at them only once.
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
