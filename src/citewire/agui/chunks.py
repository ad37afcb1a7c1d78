"""Expands chunk events into start, content and end events. A chunk starts or continues a stream, or both.

No chunk marks the end. Each lane (the agent itself, or one subagent) has one open stream. It ends when the
next stream starts in its lane, or when an event arrives that ends all chunk streams.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from msgspec import UNSET
from msgspec.structs import replace

from citewire.agui import events as ev
from citewire.agui.events import Event
from citewire.errors import InputError
from citewire.text import one_line

__all__ = ["ChunkExpander", "ProtocolError", "subagent_of"]


class ProtocolError(InputError):
    """The AG-UI client rejects this event and the rest of the stream."""

    code = "out_of_order"


class _ChunkKind(NamedTuple):
    """How one kind of chunk is expanded into events."""

    noun: str
    id: str
    needed: tuple[str, ...]
    agreed: tuple[str, ...]
    start: Callable[[Any], Event]
    go_on: Callable[[str, str], Event]
    end: Callable[[str], Event]


class _OpenStream(NamedTuple):
    kind: _ChunkKind
    id: str
    owner: str | None
    said: dict[str, Any]


def _text_start(chunk: ev.TextMessageChunk) -> Event:
    return ev.TextMessageStart(chunk.message_id or "", chunk.role or "assistant", chunk.name)


def _tool_start(chunk: ev.ToolCallChunk) -> Event:
    return ev.ToolCallStart(chunk.tool_call_id or "", chunk.tool_call_name or "", chunk.parent_message_id)


def _reasoning_start(chunk: ev.ReasoningMessageChunk) -> Event:
    return ev.ReasoningMessageStart(chunk.message_id or "", "reasoning")


_KINDS: dict[type[Event], _ChunkKind] = {
    ev.TextMessageChunk: _ChunkKind(
        "text message",
        "message_id",
        ("message_id",),
        ("role", "name"),
        _text_start,
        ev.TextMessageContent,
        ev.TextMessageEnd,
    ),
    ev.ToolCallChunk: _ChunkKind(
        "tool call",
        "tool_call_id",
        ("tool_call_id", "tool_call_name"),
        ("tool_call_name", "parent_message_id"),
        _tool_start,
        ev.ToolCallArgs,
        ev.ToolCallEnd,
    ),
    ev.ReasoningMessageChunk: _ChunkKind(
        "reasoning message",
        "message_id",
        ("message_id",),
        (),
        _reasoning_start,
        ev.ReasoningMessageContent,
        ev.ReasoningMessageEnd,
    ),
}
_END_ALL = frozenset({ev.RunStarted, ev.RunFinished, ev.RunError, ev.MessagesSnapshot})
_END_NONE = frozenset(
    {ev.RawEvent, ev.ActivitySnapshot, ev.ActivityDelta, ev.ReasoningEncryptedValue, ev.SubagentStarted}
)


class ChunkExpander:
    """Expands the chunk events of one response."""

    def __init__(self) -> None:
        self._lanes: dict[str | None, _OpenStream] = {}
        # The lane of each stream, by its kind and id.
        self._holders: dict[tuple[_ChunkKind, str], str | None] = {}

    def copy(self) -> ChunkExpander:
        twin = ChunkExpander()
        twin._lanes, twin._holders = self._lanes.copy(), self._holders.copy()
        return twin

    @property
    def has_open_main_stream(self) -> bool:
        """Whether the agent's own lane has an open stream: an event there orphans later chunks without id."""
        return None in self._lanes

    def affects(self, event: Event) -> bool:
        """Whether `event` is a chunk, or may end a chunk stream."""
        return bool(self._lanes) or type(event) in _KINDS

    def expand(self, event: Event) -> list[Event]:
        """Return the expansion of `event`, in order. Raises `ProtocolError` if a chunk fits no stream."""
        kind = _KINDS.get(type(event))
        if kind is not None:
            return self._expand_chunk(event, kind)
        if type(event) in _END_ALL:
            return [*(self._end(lane) for lane in list(self._lanes)), event]
        lane = subagent_of(event)
        if type(event) in _END_NONE or lane not in self._lanes:
            return [event]
        return [self._end(lane), event]

    def forget_stream(self, event: Event) -> None:
        """Forget the stream that `event` opened, because the event was rejected."""
        for kind in _KINDS.values():
            stream = (kind, getattr(event, kind.id, ""))
            if stream in self._holders:
                del self._lanes[self._holders.pop(stream)]

    def _end(self, lane: str | None) -> Event:
        stream = self._lanes.pop(lane)
        self._holders.pop((stream.kind, stream.id), None)
        return _attributed(stream.kind.end(stream.id), stream.owner)

    def _expand_chunk(self, chunk: Any, kind: _ChunkKind) -> list[Event]:
        name = getattr(chunk, kind.id)
        lane = self._lane(chunk, kind, name)
        stream = self._lanes.get(lane)
        made: list[Event] = []
        if stream is None or stream.kind is not kind or name not in (UNSET, stream.id):
            _check_can_open(chunk, kind)
            if stream is not None:
                made.append(self._end(lane))
            stream = self._open(chunk, kind, lane)
            start = _attributed(kind.start(chunk), stream.owner)
            made.append(replace(start, metadata=chunk.metadata))
        else:
            _check_agrees(chunk, stream)
        alone = not made and chunk.metadata is not UNSET
        if chunk.delta is not UNSET or chunk.raw_event is not UNSET or alone:
            going_on = _attributed(kind.go_on(stream.id, chunk.delta or ""), stream.owner)
            made.append(replace(going_on, metadata=chunk.metadata, raw_event=chunk.raw_event))
        return made

    def _open(self, chunk: Any, kind: _ChunkKind, lane: str | None) -> _OpenStream:
        said = {name: getattr(chunk, name) for name in kind.agreed}
        if said.get("role") is UNSET:
            said["role"] = "assistant"
        stream = _OpenStream(kind, getattr(chunk, kind.id), subagent_of(chunk), said)
        self._lanes[lane] = stream
        self._holders[kind, stream.id] = lane
        return stream

    def _lane(self, chunk: Event, kind: _ChunkKind, name: Any) -> str | None:
        """Find the lane of a chunk, which may lack both a subagent and a stream id."""
        tag = subagent_of(chunk)
        if name is not UNSET:
            if (kind, name) not in self._holders:
                return tag
            lane = self._holders[kind, name]
            if tag is not None and tag != lane:
                named, whose = one_line(name, 80), one_line(tag, 80)
                raise ProtocolError(f"the {kind.noun} {named!r} is not that of subagent {whose!r}")
            return lane
        if tag is not None:
            return tag
        lanes = [lane for lane, stream in self._lanes.items() if stream.kind is kind]
        if None in lanes or not lanes:
            return None
        if len(lanes) > 1:
            raise ProtocolError(f"a chunk says neither which {kind.noun} it goes on with nor whose it is")
        return lanes[0]


def _check_can_open(chunk: Event, kind: _ChunkKind) -> None:
    for needed in kind.needed:
        if getattr(chunk, needed) is UNSET:
            raise ProtocolError(f"the first chunk of a {kind.noun} needs a {needed.replace('_', ' ')}")


def _check_agrees(chunk: Event, stream: _OpenStream) -> None:
    for name, said in stream.said.items():
        if getattr(chunk, name) not in (UNSET, said):
            named = one_line(stream.id, 80)
            raise ProtocolError(f"a chunk of the {stream.kind.noun} {named!r} gives it another {name}")


def subagent_of(event: Event) -> str | None:
    """Return the subagent that sent an event; None for the agent itself."""
    tag = getattr(event, "subagent_run_id", UNSET)
    return None if tag is UNSET else tag


def _attributed(event: Event, owner: str | None) -> Event:
    return event if owner is None else replace(event, subagent_run_id=owner)
