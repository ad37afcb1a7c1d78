"""Marks messages that a client posted and the server never sent, with `metadata.citewire.posted`.

User messages are not marked, because nobody takes them for the server's.
Clients of every AG-UI version either keep or drop `metadata`, so any snapshot may contain the mark.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, cast

from citewire.agui import events as ev
from citewire.agui.events import Json

__all__ = [
    "find_open_calls", "find_posted_ids", "id_of", "is_posted", "mark_posted", "role_of",
    "started_message_id", "without_mark",
]  # fmt: skip

_METADATA, _OURS, _POSTED = "metadata", "citewire", "posted"
_STARTS = (
    ev.TextMessageStart
    | ev.TextMessageChunk
    | ev.ReasoningMessageStart
    | ev.ReasoningMessageChunk
    | ev.ToolCallResult
    | ev.ActivitySnapshot
)
_CALLS = ev.ToolCallStart | ev.ToolCallChunk


def id_of(message: Any) -> str:
    """Return the id of a message; empty if it has none."""
    name = cast("Json", message).get("id") if isinstance(message, dict) else None
    return name if isinstance(name, str) else ""


def find_open_calls(messages: Iterable[Any]) -> frozenset[str]:
    """Return the ids of tool calls in these messages that have no result among them."""
    calls, answered = set[str](), set[str]()
    for message in messages:
        fields = cast("Json", message) if isinstance(message, dict) else {}
        if isinstance(answer := fields.get("toolCallId"), str):
            answered.add(answer)
        made = fields.get("toolCalls")
        calls |= {id_of(each) for each in cast("list[Any]", made)} if isinstance(made, list) else set()
    return frozenset(calls - answered - {""})


def is_posted(message: Any) -> bool:
    """Whether a message is marked as posted by a client."""
    return _ours_in(message).get(_POSTED) is True


def find_posted_ids(event: ev.AnyEvent) -> set[str]:
    """Return the ids of the marked messages that an event lists."""
    listed: list[Any] = []
    if isinstance(event, ev.MessagesSnapshot):
        listed = event.messages
    elif isinstance(event, ev.RunStarted):
        listed = (event.input or {}).get("messages") or []
    return {id_of(each) for each in listed if is_posted(each)} - {""}


def mark_posted(message: Any) -> Any:
    """Return the message with the mark, unless its role is `user`."""
    if not isinstance(message, dict):
        return message
    fields = cast("Json", message)
    if fields.get("role") == "user":
        return without_mark(fields)
    metadata = fields.get(_METADATA)
    kept = cast("Json", metadata) if isinstance(metadata, dict) else {}
    return {**fields, _METADATA: {**kept, _OURS: {_POSTED: True}}}


def without_mark(message: Any) -> Any:
    """Return the message without the mark, as the client wrote it."""
    if not is_posted(message):
        return message
    fields = {name: value for name, value in message.items() if name != _METADATA}
    metadata = {name: value for name, value in message[_METADATA].items() if name != _OURS}
    return {**fields, _METADATA: metadata} if metadata else fields


def started_message_id(event: ev.AnyEvent, role: Callable[[str], Any] = lambda _: None) -> str:
    """Return the id of the message that an event starts or adds; empty if it does neither.

    A tool call starts its parent message. Without a parent, or with one that is not an assistant's, it starts
    a message with the id of the call. `role` returns the role of a message by its id, None if there is none.
    """
    name: object = None
    if isinstance(event, _STARTS):
        name = event.message_id
    elif isinstance(event, _CALLS):
        parent = event.parent_message_id
        is_parent = isinstance(parent, str) and parent and role(parent) in (None, "assistant")
        name = parent if is_parent else event.tool_call_id
    return name if isinstance(name, str) else ""


def role_of(message: Any) -> Any:
    """Return the role of a message; None if it has none."""
    return cast("Json", message).get("role") if isinstance(message, dict) else None


def _ours_in(message: Any) -> Json:
    metadata = cast("Json", message).get(_METADATA) if isinstance(message, dict) else None
    ours = cast("Json", metadata).get(_OURS) if isinstance(metadata, dict) else None
    return cast("Json", ours) if isinstance(ours, dict) else {}
