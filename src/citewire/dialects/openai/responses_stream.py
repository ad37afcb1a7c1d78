"""OpenAI's Responses stream. Annotations are interleaved with the text they refer to."""

from __future__ import annotations

from collections import deque
from itertools import count
from typing import Any

from msgspec.structs import replace

from citewire.dialects.base import DialectOptions, Json, is_list, is_object, require
from citewire.dialects.common.annotations import AnnotationReader
from citewire.dialects.common.responses import find_response_dialect, read_response
from citewire.dialects.openai.responses import NAME, UNIT, ResponsesReader
from citewire.errors import ShapeError
from citewire.model import Answer, Citation, Point, Span
from citewire.text import Offsets, Unit

__all__ = ["NAME", "ResponsesStream", "STREAM", "detect", "is_stream_of"]

_TERMINAL = frozenset({"response.completed", "response.incomplete", "response.failed"})


def detect(payload: Any) -> bool:
    return is_stream_of(payload, NAME)


def is_stream_of(payload: Any, dialect: str) -> bool:
    """Whether these are events of a `dialect` stream. Errors and keep-alives may be among them.

    A stream that does not identify its response is taken as OpenAI's.
    """
    if not is_list(payload) or not all(map(is_object, payload)) or not any(map(_is_ours, payload)):
        return False
    said = (find_response_dialect(event.get("response")) for event in payload)
    return (next((name for name in said if name), NAME)) == dialect


def _is_ours(event: Any) -> bool:
    return isinstance(kind := event.get("type"), str) and kind.startswith("response.")


class ResponsesStream:
    """Reads Responses stream events. Annotations are interleaved with the text and refer to text already
    sent, so each is returned when it arrives; one that is ahead of its text waits for it."""

    _reads: type[AnnotationReader] = ResponsesReader

    def __init__(self, options: DialectOptions) -> None:
        self._unit: Unit = options.unit or UNIT
        self._response: Json = {"object": "response"}
        self._items: dict[int, Json] = {}
        self._texts: dict[tuple[int, int], _OpenText] = {}
        self._reader = self._reads(self._unit)
        self._whole: Answer | None = None
        self._names: dict[Any, str] = {}

    def feed(self, event: Any) -> tuple[Citation, ...]:
        if not is_object(event):
            raise ShapeError("a stream event is not an object")
        match kind := event.get("type"):
            case "response.created" | "response.in_progress" | "response.queued":
                self._response = require(event, "response", dict, "$")
            case "response.output_item.added" | "response.output_item.done":
                self._items[require(event, "output_index", int, "$")] = require(event, "item", dict, "$")
            case "response.output_text.delta":
                return self._add(event, require(event, "delta", str, "$"))
            case "response.output_text.annotation.added":
                return self._annotate(event)
            case "response.output_text.done" | "response.content_part.added" | "response.content_part.done":
                return self._settle(event)
            case _ if kind in _TERMINAL:
                # The final event repeats everything, so it defines the answer.
                self._whole = self._read_whole(require(event, "response", dict, "$"))
            case _:
                pass
        return ()

    def _text(self, event: Json) -> _OpenText:
        at = require(event, "output_index", int, "$"), require(event, "content_index", int, "$")
        if at not in self._texts:
            self._texts[at] = _OpenText(at, len(self._texts))
        return self._texts[at]

    def _add(self, event: Json, delta: str) -> tuple[Citation, ...]:
        text = self._text(event)
        text.add(delta, self._unit)
        return self._ready(text) if text.waiting else ()

    def _annotate(self, event: Json) -> tuple[Citation, ...]:
        text = self._text(event)
        place = event.get("annotation_index")
        text.annotate(place if type(place) is int else len(text.annotations), event.get("annotation"))
        return self._ready(text)

    def _settle(self, event: Json) -> tuple[Citation, ...]:
        if is_object(part := event.get("part")) and part.get("type") != "output_text":
            return ()
        text = self._text(event)
        if event["type"] == "response.content_part.added":
            text.part = part if is_object(part) else text.part
            return ()
        text.settle(part if is_object(part) else event, self._unit)
        return self._ready(text, done=True)

    def _ready(self, text: _OpenText, *, done: bool = False) -> tuple[Citation, ...]:
        """Return the waiting annotations whose text has arrived, in order."""
        given: list[Citation] = []
        while text.waiting and (done or text.shows(text.waiting[0][1])):
            place, entry = text.waiting.popleft()
            citation = self._reader.problems.try_read(str, self._read, text, entry, place, done)
            if citation is not None:
                self._names[*text.at, place] = citation.id
                self._reader.citations.append(citation)
                given.append(citation)
        return tuple(given)

    def _read(self, text: _OpenText, entry: Any, place: int, done: bool) -> Citation:
        at = (*text.at, place)
        if done:
            return self._reader.read(entry, at, text.whole(), text.number)
        near = self._reader.read(_moved_entry(entry, -text.base_units), at, text.window(), text.number)
        return _moved_citation(near, entry, text.base)

    def _read_whole(self, response: Json) -> Answer:
        return read_response(response, self._reads(self._unit))

    def answer(self) -> Answer:
        whole = self._whole
        if whole is None:
            whole = self._read_whole({**self._response, "output": self._output()})
        return self._under_given_names(whole)

    def _under_given_names(self, answer: Answer) -> Answer:
        """Give citations the ids they were first returned with, in whatever order the parts came."""
        taken = set(self._names.values())
        free = (name for number in count(1) if (name := f"c{number}") not in taken)
        named = [
            self._names.get(citation.native.at if citation.native else None) or next(free)
            for citation in answer.citations
        ]
        return replace(answer, citations=tuple(map(_renamed, answer.citations, named)))

    def _output(self) -> list[Any]:
        """Return the output so far, in the form it has in the response."""
        contents: dict[int, list[Any]] = {}
        for at in sorted(self._texts):
            contents.setdefault(at[0], []).append(self._texts[at].content())
        items = self._items | {
            number: {
                "type": "message",
                "role": "assistant",
                **self._items.get(number, {}),
                "content": content,
            }
            for number, content in contents.items()
        }
        return [items[number] for number in sorted(items)]


# How much recent text is available to annotations, which refer to what was just written.
_WINDOW = 1 << 14


class _OpenText:
    """A content part whose stream has started. While it grows, only its end is read, so an annotation costs
    the same at the end of a long answer as at its start."""

    def __init__(self, at: tuple[int, int], number: int) -> None:
        self.at = at
        self.number = number
        self.part: Json = {"type": "output_text"}
        self.annotations: dict[int, Any] = {}
        self.waiting: deque[tuple[int, Any]] = deque()
        self.base = 0
        self.base_units = 0
        self._pieces: list[str] = []
        self._tail = ""
        self._window = Offsets("")
        self._unit: Unit = UNIT

    def add(self, delta: str, unit: Unit) -> None:
        self._unit = unit
        self._pieces.append(delta)
        self._tail += delta
        if len(self._tail) > 2 * _WINDOW:
            gone = Offsets(self._tail[:-_WINDOW])
            self.base += len(gone.text)
            self.base_units += gone.length(unit)
            self._tail = self._tail[-_WINDOW:]

    def annotate(self, place: int, entry: Any) -> None:
        """Add an annotation; a repeated one is ignored."""
        if place not in self.annotations:
            self.annotations[place] = entry
            self.waiting.append((place, entry))

    def settle(self, said: Json, unit: Unit) -> None:
        """Apply the provider's final version of the part, in case some pieces did not arrive."""
        text = said.get("text")
        if isinstance(text, str) and text != self.whole().text:
            self._pieces, self._tail, self.base, self.base_units = [], "", 0, 0
            self.add(text, unit)
        annotations = said.get("annotations")
        for place, entry in enumerate(annotations if is_list(annotations) else ()):
            self.annotate(place, entry)

    def window(self) -> Offsets:
        if self._window.text != self._tail:
            self._window = Offsets(self._tail)
        return self._window

    def whole(self) -> Offsets:
        self._pieces = ["".join(self._pieces)]
        if self._window.text != self._pieces[0]:
            self._window = Offsets(self._pieces[0])
        return self._window

    def shows(self, entry: Any) -> bool:
        """Whether the text that an annotation refers to has arrived and is still in the window."""
        if not is_object(entry):
            return True
        spoken = [entry.get(key) for key in _INDEXES]
        offsets = [offset for offset in spoken if isinstance(offset, int) and offset != 0]
        if not offsets:
            return True
        return self.base_units <= min(offsets) and max(offsets) <= self.base_units + self.window().length(
            self._unit
        )

    def content(self) -> Json:
        annotations = [self.annotations[place] for place in sorted(self.annotations)]
        return {**self.part, "text": self.whole().text, "annotations": annotations}


_INDEXES = ("start_index", "end_index", "index")


def _renamed(citation: Citation, name: str) -> Citation:
    return citation if citation.id == name else replace(citation, id=name)


def _moved_entry(entry: Any, by: int) -> Any:
    if not by or not is_object(entry) or not any(entry.get(key) for key in _INDEXES):
        return entry
    return entry | {key: entry[key] + by for key in _INDEXES if type(entry.get(key)) is int}


def _moved_citation(citation: Citation, entry: Any, by: int) -> Citation:
    if not by or citation.native is None:
        return citation
    marker, point = citation.marker, citation.insert_at
    if marker is not None:
        marker = Span(marker.part, marker.start + by, marker.end + by)
    if point is not None:
        point = Point(point.part, point.at + by)
    was = (marker or point) if citation.native.was is not None else None
    native = replace(citation.native, raw=entry, was=was)
    return replace(citation, marker=marker, insert_at=point, native=native)


STREAM = ResponsesStream
