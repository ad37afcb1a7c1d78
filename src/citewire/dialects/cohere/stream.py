"""Cohere's v2 stream. Citations come between or after the pieces of text, in every mode."""

from __future__ import annotations

from typing import Any

from citewire.dialects.base import DialectOptions, Json, is_list, is_object, optional, require
from citewire.dialects.cohere.chat import NAME, UNIT, read_response
from citewire.dialects.common.incremental import IncrementalReader
from citewire.errors import ShapeError
from citewire.model import Answer, Citation
from citewire.text import Unit

__all__ = ["CohereStream", "NAME", "STREAM", "detect"]

_ENVELOPE = frozenset({"message-start", "content-delta", "citation-start", "message-end"})
_NEWS = frozenset({"citation-start", "content-end"})
_PIECES = ("text", "thinking")


def detect(payload: Any) -> bool:
    """Whether these are events, some of them unique to this stream."""
    if not is_list(payload) or not all(map(is_object, payload)):
        return False
    return any(
        _is_one_of(_ENVELOPE, event.get("type")) and is_object(event.get("delta")) for event in payload
    )


def _is_one_of(names: frozenset[str], kind: Any) -> bool:
    return isinstance(kind, str) and kind in names


class CohereStream:
    """Reads chat stream events. A citation is returned when it arrives, or when the content with its text
    ends."""

    def __init__(self, options: DialectOptions) -> None:
        self._unit: Unit = options.unit or UNIT
        self._response: Json = {}
        self._message: Json = {"role": "assistant"}
        self._plan: list[str] = []
        self._contents: dict[int, Json] = {}
        self._pieces: dict[int, dict[str, list[str]]] = {}
        self._citations: dict[int, Any] = {}
        self._looks = IncrementalReader(self.answer)

    def feed(self, event: Any) -> tuple[Citation, ...]:
        if not is_object(event):
            raise ShapeError("a stream event is not an object")
        match kind := event.get("type"):
            case "message-start":
                self._response |= {key: event[key] for key in ("id",) if key in event}
                self._message |= self._said(event)
            case "content-start" | "content-delta":
                content = require(self._said(event), "content", dict, "$.delta.message")
                self._add(require(event, "index", int, "$"), content)
            case "tool-plan-delta":
                self._plan.append(require(self._said(event), "tool_plan", str, "$.delta.message"))
            case "citation-start":
                self._cite(require(event, "index", int, "$"), self._said(event).get("citations"))
            case "message-end":
                self._response |= optional(event, "delta", dict, "$") or {}
            case _:
                pass
        return self._looks.read_new(news=_is_one_of(_NEWS, kind), done=kind == "message-end")

    def _said(self, event: Json) -> Json:
        return require(require(event, "delta", dict, "$"), "message", dict, "$.delta")

    def _add(self, index: int, content: Json) -> None:
        pieces = self._pieces.setdefault(index, {})
        for key in _PIECES:
            if (piece := optional(content, key, str, "$.delta.message.content")) is not None:
                pieces.setdefault(key, []).append(piece)
        self._contents[index] = self._contents.get(index, {}) | content

    def _cite(self, index: int, citation: Any) -> None:
        """Add a citation. It is one object, despite the field's name; some gateways send a list of one."""
        entry = citation[0] if is_list(citation) and len(citation) == 1 else citation
        self._citations[index] = entry

    def answer(self) -> Answer:
        contents = [self._content(index) for index in sorted(self._contents)]
        citations = [self._citations[index] for index in sorted(self._citations)]
        message = {**self._message, "content": contents}
        if self._plan:
            message["tool_plan"] = "".join(self._plan)
        if citations:
            message["citations"] = citations
        return read_response({**self._response, "message": message}, self._unit)

    def _content(self, index: int) -> Json:
        joined = {key: "".join(pieces) for key, pieces in self._pieces[index].items()}
        content = self._contents[index] | joined
        return content if "type" in content else {"type": "text", **content}


STREAM = CohereStream
