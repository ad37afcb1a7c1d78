"""Bedrock's RetrieveAndGenerateStream: pieces of text, and citations of the text so far."""

from __future__ import annotations

from typing import Any

from citewire.dialects.base import DialectOptions, Json, is_list, is_object, optional, require
from citewire.dialects.bedrock.retrieve_and_generate import NAME, UNIT, is_citation, read_response
from citewire.dialects.common.incremental import IncrementalReader
from citewire.errors import ShapeError
from citewire.model import Answer, Citation
from citewire.text import Unit

__all__ = ["NAME", "RetrieveAndGenerateStream", "STREAM", "detect"]

_EVENTS = frozenset({"citation", "guardrail", "output", "sessionId"})


def detect(payload: Any) -> bool:
    """Whether these are events of this stream, with one member each. Text alone could be any stream's."""
    if not is_list(payload) or not all(is_object(event) and event.keys() <= _EVENTS for event in payload):
        return False
    return any(is_citation(_citation_of(event)) for event in payload)


def _citation_of(event: Json) -> Any:
    """Return the citation of an event. It may be in a wrapper of the same name, which is deprecated."""
    citation = event.get("citation")
    if is_object(citation) and not is_citation(citation) and "citation" in citation:
        return citation["citation"]
    return citation


class RetrieveAndGenerateStream:
    """Reads the events. A citation is returned as soon as it and its text have arrived."""

    def __init__(self, options: DialectOptions) -> None:
        self._unit: Unit = options.unit or UNIT
        self._response: Json = {}
        self._pieces: list[str] = []
        self._citations: list[Any] = []
        self._looks = IncrementalReader(self.answer)

    def feed(self, event: Any) -> tuple[Citation, ...]:
        if not is_object(event):
            raise ShapeError("a stream event is not an object")
        self._response |= {key: value for key, value in event.items() if key == "sessionId"}
        output = optional(event, "output", dict, "$")
        if output is not None:
            self._pieces.append(require(output, "text", str, "$.output"))
        if "citation" in event:
            self._citations.append(_citation_of(event))
        return self._looks.read_new(news=bool(self._citations))

    def answer(self) -> Answer:
        output = {"text": "".join(self._pieces)}
        response = {**self._response, "output": output, "citations": list(self._citations)}
        return read_response(response, self._unit)


STREAM = RetrieveAndGenerateStream
