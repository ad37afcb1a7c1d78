"""Bedrock's ConverseStream. A citation comes before the text of the block it supports."""

from __future__ import annotations

from typing import Any

from citewire.codec import decode
from citewire.dialects.base import (
    DialectOptions,
    Json,
    ProblemList,
    SourceRegistry,
    is_list,
    is_object,
    optional,
    require,
)
from citewire.dialects.bedrock.converse import NAME, make_block_citation, read_ref, read_response
from citewire.errors import DecodeError, ShapeError
from citewire.model import Answer, Citation, SourceRef, Span

__all__ = ["ConverseStream", "NAME", "STREAM", "detect"]

_EVENTS = frozenset(
    {"contentBlockDelta", "contentBlockStart", "contentBlockStop", "messageStart", "messageStop", "metadata"}
)

# A block with more citations than this returns the rest when it is complete.
_EARLY_REFS = 32


def detect(payload: Any) -> bool:
    """Whether these are events with one member each, some of them unique to this stream."""
    if not is_list(payload) or not all(is_object(event) and len(event) == 1 for event in payload):
        return False
    return any(is_object(event[key]) for event in payload for key in event.keys() & _EVENTS - {"metadata"})


class _OpenBlock:
    """A block whose stream has started."""

    def __init__(self) -> None:
        self.start: Json = {}
        self.texts: list[str] = []
        self.inputs: list[str] = []
        self.thoughts: list[str] = []
        self.thought: Json = {}
        self.entries: list[Any] = []
        self.refs: list[SourceRef] = []
        self.is_closed = False

    @property
    def has_text(self) -> bool:
        return bool(self.texts or self.entries) or not (self.start or self.thought)

    def add(self, delta: Json, where: str) -> None:
        """Add a delta that is not a citation."""
        if (text := optional(delta, "text", str, where)) is not None:
            self.texts.append(text)
        if tool := optional(delta, "toolUse", dict, where):
            self.inputs.append(optional(tool, "input", str, f"{where}.toolUse") or "")
        if thought := optional(delta, "reasoningContent", dict, where):
            self.thoughts.append(optional(thought, "text", str, f"{where}.reasoningContent") or "")
            self.thought |= thought

    def content(self) -> Json:
        """Return the block so far, in the form it has in a message."""
        text = "".join(self.texts)
        if self.entries:
            content: Json = {"content": [{"text": text}]} if text else {}
            return {"citationsContent": {**content, "citations": list(self.entries)}}
        if self.thought:
            return {"reasoningContent": {"reasoningText": {**self.thought, "text": "".join(self.thoughts)}}}
        if is_object(tool := self.start.get("toolUse")):
            return {"toolUse": {**tool, "input": _decoded("".join(self.inputs))}}
        return {"text": text} if self.has_text else dict(self.start)


def _decoded(partial_json: str) -> Any:
    try:
        return decode(partial_json) if partial_json else {}
    except DecodeError:
        return partial_json  # truncated JSON: return it unchanged


class ConverseStream:
    """Reads ConverseStream events. A citation is returned when it arrives, without a position, and again,
    with the same id, when its block is complete."""

    def __init__(self, options: DialectOptions) -> None:
        del options  # this dialect has no offsets
        self._response: Json = {}
        self._message: Json = {"role": "assistant"}
        self._blocks: dict[int, _OpenBlock] = {}
        self._names: dict[int, str] = {}
        self._sources = SourceRegistry()
        self._part = 0
        self._length = 0
        self._in_part = False

    def feed(self, event: Any) -> tuple[Citation, ...]:
        if not is_object(event):
            raise ShapeError("a stream event is not an object")
        for kind in event.keys() & _EVENTS:
            said = require(event, kind, dict, "$")
            where = f"$.{kind}"
            match kind:
                case "messageStart":
                    self._message["role"] = optional(said, "role", str, where) or "assistant"
                case "contentBlockStart":
                    block = self._block(require(said, "contentBlockIndex", int, where))
                    block.start = optional(said, "start", dict, where) or {}
                case "contentBlockDelta":
                    delta = require(said, "delta", dict, where)
                    return self._delta(
                        require(said, "contentBlockIndex", int, where), delta, f"{where}.delta"
                    )
                case "contentBlockStop":
                    return self._close(require(said, "contentBlockIndex", int, where))
                case _:
                    self._response |= {key: value for key, value in said.items() if key != "p"}
        return ()

    def _block(self, index: int) -> _OpenBlock:
        """Return the block at `index`. Text blocks have no start event: they begin with their first delta."""
        return self._blocks.setdefault(index, _OpenBlock())

    def _delta(self, index: int, delta: Json, where: str) -> tuple[Citation, ...]:
        block = self._block(index)
        if "citation" not in delta:
            block.add(delta, where)
            return ()
        block.entries.append(delta["citation"])
        # Unreadable citations are reported later as problems of the answer.
        at = len(block.entries) - 1
        ref = ProblemList().try_read(str, read_ref, delta["citation"], at, self._sources)
        if ref is None:
            return ()
        block.refs.append(ref)
        if len(block.refs) > _EARLY_REFS:
            return ()
        return (Citation(self._name(index), tuple(block.refs)),)

    def _name(self, index: int) -> str:
        return self._names.setdefault(index, f"c{len(self._names) + 1}")

    def _close(self, index: int) -> tuple[Citation, ...]:
        block = self._block(index)
        if block.is_closed:
            return ()
        block.is_closed = True
        if not block.has_text:
            if self._in_part:
                self._part, self._length, self._in_part = self._part + 1, 0, False
            return ()
        start = self._length
        self._length += sum(map(len, block.texts))
        self._in_part = True
        span = Span(self._part, start, self._length)
        return (make_block_citation(self._name(index), tuple(block.refs), span),) if block.refs else ()

    def answer(self) -> Answer:
        content = [self._blocks[index].content() for index in sorted(self._blocks)]
        return read_response({**self._response, "output": {"message": {**self._message, "content": content}}})


STREAM = ConverseStream
