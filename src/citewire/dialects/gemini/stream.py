"""Gemini's stream: pieces of one response. Grounding comes last and applies to the whole text."""

from __future__ import annotations

from typing import Any

from citewire.dialects.base import DialectOptions, Json, is_list, is_object, optional
from citewire.dialects.common.incremental import IncrementalReader
from citewire.dialects.gemini import NAME, UNIT, read_candidate
from citewire.dialects.gemini import detect as is_response
from citewire.errors import ShapeError
from citewire.model import Answer, Citation
from citewire.text import Unit

__all__ = ["GeminiStream", "NAME", "STREAM", "detect", "has_answer_text", "is_last_response"]

_METADATA = ("groundingMetadata", "citationMetadata")


def detect(payload: Any) -> bool:
    """Whether these are responses, some with a candidate. The last may contain only token counts."""
    return is_list(payload) and all(map(is_object, payload)) and any(map(is_response, payload))


def is_last_response(event: Json) -> bool:
    """Whether a response is the last of its stream. A finish reason is not enough: some models send one with
    every response."""
    return any("finishReason" in one and is_object(one.get(_METADATA[0])) for one in _candidates(event))


def has_answer_text(event: Json) -> bool:
    """Whether a response contains answer text."""
    contents = [content for one in _candidates(event) if is_object(content := one.get("content"))]
    parts = [part for content in contents if is_list(found := content.get("parts")) for part in found]
    return any(is_object(part) and bool(part.get("text")) for part in parts)


def _candidates(event: Json) -> list[Json]:
    candidates = event.get("candidates")
    return [one for one in candidates if is_object(one)] if is_list(candidates) else []


class GeminiStream:
    """Reads the pieces of the first candidate. Citations are returned when their grounding arrives, and again
    when it changes."""

    def __init__(self, options: DialectOptions) -> None:
        self._unit: Unit = options.unit or UNIT
        self._response: Json = {}
        self._candidate: Json = {}
        self._content: Json = {}
        self._said: dict[str, Json] = {}
        self._parts: list[Any] = []
        self._texts: list[list[str]] = []
        self._looks = IncrementalReader(self.answer)

    def feed(self, event: Any) -> tuple[Citation, ...]:
        if not is_object(event):
            raise ShapeError("a stream event is not an object")
        self._response |= event
        is_first = False
        for number, candidate in enumerate(optional(event, "candidates", list, "$") or ()):
            if not is_object(candidate):
                raise ShapeError("a candidate is not an object", f"$.candidates[{number}]")
            if not candidate.get("index"):
                self._add(candidate, f"$.candidates[{number}]")
                is_first = True
        is_news = is_first and bool(self._said)
        return self._looks.read_new(news=is_news, done=is_news and "finishReason" in self._candidate)

    def _add(self, candidate: Json, where: str) -> None:
        """Add a piece of the candidate."""
        content = optional(candidate, "content", dict, where) or {}
        parts = optional(content, "parts", list, f"{where}.content") or []
        said = {key: value for key in _METADATA if (value := optional(candidate, key, dict, where))}
        for part in parts:
            self._add_part(part)
        for key, value in said.items():
            self._said.setdefault(key, {}).update(value)
        self._candidate |= candidate
        self._content |= content

    def _add_part(self, part: Any) -> None:
        """Add a part; a piece of text is joined to the previous one if both are of the same kind."""
        is_text = is_object(part) and isinstance(part.get("text"), str)
        last = self._parts[-1] if self._parts else None
        if is_text and is_object(last) and self._texts[-1] and part.get("thought") == last.get("thought"):
            self._texts[-1].append(part["text"])
            self._parts[-1] = last | part
        else:
            self._parts.append(part)
            self._texts.append([part["text"]] if is_text else [])

    def answer(self) -> Answer:
        parts = [
            {**part, "text": "".join(texts)} if texts else part
            for part, texts in zip(self._parts, self._texts, strict=True)
        ]
        said = {key: dict(value) for key, value in self._said.items()}
        candidate = {**self._candidate, **said, "content": {**self._content, "parts": parts}}
        return read_candidate({**self._response, "candidates": [candidate]}, 0, self._unit)


STREAM = GeminiStream
