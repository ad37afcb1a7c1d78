"""Anthropic's Messages stream. A citation comes before the text of the block it supports."""

from __future__ import annotations

from typing import Any

from citewire.codec import decode
from citewire.dialects.anthropic.messages import NAME, read_message, read_ref
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
from citewire.errors import DecodeError, ShapeError
from citewire.model import Answer, Citation, SourceRef, Span, SpanOrigin

__all__ = ["AnthropicStream", "NAME", "STREAM", "detect"]

_ENVELOPE = frozenset({"message_start", "content_block_start", "content_block_delta", "message_stop"})

# A block with more citations than this returns the rest when it is complete.
_EARLY_REFS = 32
# The field that each delta type appends to; `partial_json` is decoded into `input` when the block is read.
_PIECES = {"text_delta": "text", "thinking_delta": "thinking", "input_json_delta": "partial_json"}


def detect(payload: Any) -> bool:
    """Whether these are events, some of them unique to this stream. Other events vary between versions."""
    if not is_list(payload) or not all(map(is_object, payload)):
        return False
    return any(isinstance(kind := event.get("type"), str) and kind in _ENVELOPE for event in payload)


class _OpenBlock:
    """A block whose stream has started."""

    def __init__(self, raw: Json) -> None:
        self.raw = raw
        self.refs: list[SourceRef] = []
        self.entries: list[Any] = []
        self.pieces: dict[str, list[str]] = {}
        self.is_closed = False

    @property
    def is_text(self) -> bool:
        return self.raw.get("type") == "text"

    @property
    def text(self) -> str:
        return (self.raw.get("text") or "") + "".join(self.pieces.get("text", ()))

    def content(self) -> Json:
        """Return the block so far, in the form it has in a message."""
        content = dict(self.raw)
        for key, pieces in self.pieces.items():
            joined = "".join(pieces)
            if key == "partial_json":
                content["input"] = _decoded(joined)
            else:
                content[key] = (content.get(key) or "") + joined
        if self.entries:
            content["citations"] = list(self.entries)
        return content


def _decoded(partial_json: str) -> Any:
    try:
        return decode(partial_json) if partial_json else {}
    except DecodeError:
        return partial_json  # truncated JSON: return it unchanged


class AnthropicStream:
    """Reads Messages stream events. A citation is returned when it arrives, and again, with the same id, when
    the block it supports is complete."""

    def __init__(self, options: DialectOptions) -> None:
        del options  # this dialect has no offsets
        self._message: Json = {"type": "message", "role": "assistant"}
        self._blocks: dict[int, _OpenBlock] = {}
        self._names: dict[int, str] = {}
        self._sources = SourceRegistry()
        self._part = 0
        self._length = 0
        self._in_part = False

    def feed(self, event: Any) -> tuple[Citation, ...]:
        if not is_object(event):
            raise ShapeError("a stream event is not an object")
        match event.get("type"):
            case "message_start":
                self._message = dict(require(event, "message", dict, "$"))
            case "message_delta":
                self._message |= optional(event, "delta", dict, "$") or {}
            case "content_block_start":
                self._open(require(event, "index", int, "$"), require(event, "content_block", dict, "$"))
            case "content_block_delta":
                return self._delta(require(event, "index", int, "$"), require(event, "delta", dict, "$"))
            case "content_block_stop":
                return self._close(require(event, "index", int, "$"))
            case _:
                pass
        return ()

    def _open(self, index: int, raw: Json) -> None:
        block = _OpenBlock(dict(raw))
        if block.is_text:
            optional(raw, "text", str, "$.content_block")
            block.entries = list(optional(raw, "citations", list, "$.content_block") or ())
            self._read_refs(block, 0)
        elif self._in_part:
            self._part, self._length, self._in_part = self._part + 1, 0, False
        self._blocks[index] = block

    def _delta(self, index: int, delta: Json) -> tuple[Citation, ...]:
        block = self._started(index)
        kind = delta.get("type")
        if kind == "citations_delta":
            block.entries.append(delta.get("citation"))
            self._read_refs(block, len(block.entries) - 1)
            return self._given(index, block) if len(block.refs) <= _EARLY_REFS else ()
        if isinstance(kind, str) and kind in _PIECES:
            key = _PIECES[kind]
            block.pieces.setdefault(key, []).append(require(delta, key, str, "$.delta"))
        elif kind == "signature_delta":
            block.raw["signature"] = delta.get("signature")
        return ()

    def _started(self, index: int) -> _OpenBlock:
        if index not in self._blocks:
            raise ShapeError(f"block {index} was never started", "$.index")
        return self._blocks[index]

    def _close(self, index: int) -> tuple[Citation, ...]:
        block = self._started(index)
        if block.is_closed or not block.is_text:
            return ()
        block.is_closed = True
        start = self._length
        self._length += len(block.text)
        self._in_part = True
        return self._given(index, block, Span(self._part, start, self._length))

    def _read_refs(self, block: _OpenBlock, first: int) -> None:
        """Read the citations of a block. Unreadable ones are reported later as problems of the answer."""
        unread = ProblemList()
        for at in range(first, len(block.entries)):
            ref = unread.try_read(str, read_ref, block.entries[at], at, self._sources)
            if ref is not None:
                block.refs.append(ref)

    def _given(self, index: int, block: _OpenBlock, claim: Span | None = None) -> tuple[Citation, ...]:
        if not block.refs:
            return ()
        name = self._names.setdefault(index, f"c{len(self._names) + 1}")
        origin: SpanOrigin = "block" if claim else "unknown"
        return (Citation(name, tuple(block.refs), claim=claim, span_origin=origin),)

    def answer(self) -> Answer:
        content = [self._blocks[index].content() for index in sorted(self._blocks)]
        return read_message({**self._message, "content": content})


STREAM = AnthropicStream
