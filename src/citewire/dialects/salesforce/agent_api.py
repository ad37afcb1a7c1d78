"""Salesforce Agent API: `citedReferences` of an `Inform` message.

A claim is given by its words, not by offsets. `location` is unreliable (in the vendor's own example it is
past the end of the claim), so it only decides between several occurrences.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from msgspec.structs import replace

from citewire.adapt import Adaptation
from citewire.dialects.base import (
    DialectOptions,
    Json,
    SourceRegistry,
    get_at,
    is_list,
    is_object,
    native_for,
    optional,
    overlay,
    path_text,
    put_at,
    require,
)
from citewire.dialects.salesforce.entries import (
    EntryReader,
    SourceUse,
    finish_entries,
    fit_to_entries,
    write_entries,
)
from citewire.errors import ShapeError
from citewire.model import Answer, Citation, Native, Part, Point, Source, Span, Written
from citewire.text import Offsets, Unit

NAME = "salesforce.agent-api"
UPSTREAM = "Agent API v1, Handle Citations, 2026-11"
SUPPORTED_FIELDS = frozenset(
    {"answer.id", "claim", "insert_at", "source.record_id", "source.title", "source.url"}
)

_UNIT: Unit = "utf16"
_Path = tuple[str | int, ...]


def detect(payload: Any) -> bool:
    return next(_messages(payload), None) is not None


def _messages(payload: Any) -> Iterator[_Path]:
    """Yield the paths of messages with cited references: alone, in an event, or in a session's response."""
    if not is_object(payload):
        return
    if _is_inform(payload):
        yield ()
    elif _is_inform(payload.get("message")):
        yield ("message",)
    elif is_list(messages := payload.get("messages")):
        yield from (("messages", at) for at, message in enumerate(messages) if _is_inform(message))


def _is_inform(message: Any) -> bool:
    return is_object(message) and "citedReferences" in message and "message" in message


def read_all(payload: Any, options: DialectOptions) -> tuple[Answer, ...]:
    paths = list(_messages(payload))
    if not paths:
        raise ShapeError("no message with citedReferences in it")
    return tuple(_read(payload, path, options.unit or _UNIT) for path in paths)


def _read(payload: Any, path: _Path, unit: Unit) -> Answer:
    message: Json = get_at(payload, path)
    where = path_text(path)
    text = require(message, "message", str, where)
    offsets = Offsets(text)
    reader = EntryReader(
        NAME, _read_source, _uses, ".inlineMetadata", lambda use: _read_use(use, offsets, unit)
    )
    for number, entry in enumerate(optional(message, "citedReferences", list, where) or []):
        reader.read(number, entry, f"{where}.citedReferences[{number}]")
    return Answer(
        parts=(Part(text),),
        citations=tuple(reader.citations),
        sources=tuple(reader.sources),
        id=optional(message, "id", str, where),
        problems=tuple(reader.problems),
        native=Native(NAME, payload, path, tuple(reader.kept), unit),
    )


def _read_source(entry: Any, sources: SourceRegistry) -> str:
    if not is_object(entry):
        raise ShapeError("a cited reference is not an object", "")
    record = optional(entry, "recordId", str)
    kind = "web" if record is None else "record"
    return sources.add(kind, require(entry, "value", str), optional(entry, "label", str), record_id=record)


def _uses(entry: Json) -> list[Any] | None:
    return optional(entry, "inlineMetadata", list)


def _read_use(use: Any, offsets: Offsets, unit: Unit) -> SourceUse:
    """Read the position of a use: the claim where its words occur, and a point at the claim's end."""
    if not is_object(use):
        raise ShapeError("an inlineMetadata entry is not an object", "")
    words = optional(use, "claim", str)
    location = optional(use, "location", int)
    if words:
        return _use_of_words(words, location, offsets, unit)
    point = None if location is None else offsets.point(location, unit)
    if point is None:
        raise ShapeError(f"location {location} is outside the text", ".location")
    return SourceUse(None, Point(0, point.start), "repaired" if point.repaired else "exact")


def _use_of_words(words: str, location: int | None, offsets: Offsets, unit: Unit) -> SourceUse:
    """Find the words of a claim: just before the location, else nearest to it, else the only match."""
    end = location or 0
    found = offsets.find_covered(end - Offsets(words).length(unit), end, unit, words)
    start = found.start if found else offsets.find_unique(words)
    if start is None:
        raise ShapeError("the claim is not in the text, or too short to tell where", ".claim")
    claim = Span(0, start, start + len(words))
    repaired = found is None or found.repaired or location is None
    return SourceUse(claim, Point(0, claim.end), "repaired" if repaired else "exact")


def write(answer: Answer, options: DialectOptions) -> Written:
    budget = _Budget(len(answer.text))
    fitting = fit_to_entries(
        answer, NAME, lambda citation, fitting: _fit_place(budget.spent_on(citation, fitting), fitting)
    )
    native = native_for(answer.native, NAME)
    same_text = native is not None and get_at(native.raw, native.at)["message"] == fitting.answer.text
    fit = finish_entries(fitting, SUPPORTED_FIELDS, same_text=same_text)
    unit: Unit = options.unit or (native.was if native else _UNIT)
    offsets = Offsets(fit.text)
    entries = write_entries(
        fitting.groups(),
        fit,
        NAME,
        same_text=same_text,
        entry=_entry,
        use=lambda citation, raw: _use(citation, raw, offsets, unit),
    )
    return Written(_envelope(native, fit, entries), tuple(fitting.losses))


# Limit for the words of claims: this many times the length of the answer, plus a fixed allowance.
_TIMES_OVER = 16
_ALWAYS = 1_000_000


class _Budget:
    """Limits the words written for claims, because nested claims could repeat them without bound."""

    def __init__(self, length: int) -> None:
        self._left = _TIMES_OVER * length + _ALWAYS

    def spent_on(self, citation: Citation, fitting: Adaptation) -> Citation:
        claim = citation.claim
        if claim is None or native_for(citation.native, NAME) is not None:
            return citation
        self._left -= claim.end - claim.start
        if self._left >= 0:
            return citation
        fitting.record_loss(
            "claim", "the claims are too many words to write them all out", citation=citation.id
        )
        if citation.insert_at is not None:
            return replace(citation, claim=None)
        fitting.record_loss("insert_at", "stands in for the claim", citation=citation.id)
        return replace(citation, claim=None, insert_at=Point(0, claim.end))


def _fit_place(citation: Citation, fitting: Adaptation) -> Citation:
    """Drop an empty claim, and move the point to the end of the claim."""
    claim, point = citation.claim, citation.insert_at
    if claim and claim.start == claim.end:
        fitting.record_loss("claim", "has no words", citation=citation.id)
        citation, claim = replace(citation, claim=None), None
    if claim is None or point == Point(0, claim.end):
        return citation
    fitting.record_loss("insert_at", "the location is the end of the claim", citation=citation.id)
    return replace(citation, insert_at=Point(0, claim.end))


def _envelope(native: Native | None, answer: Answer, entries: list[Any]) -> Any:
    fields: Json = {"id": answer.id, "message": answer.text, "citedReferences": entries}
    if native is None:
        return overlay({"type": "Inform"}, fields)
    message: Json = get_at(native.raw, native.at)
    if not entries and not is_list(message["citedReferences"]):
        del fields["citedReferences"]
    return put_at(native.raw, native.at, overlay(message, fields))


def _entry(raw: Json, source: Source, uses: list[Any] | None) -> Json:
    fields: Json = {"value": source.url, "label": source.title, "recordId": source.record_id}
    if uses is not None or is_list(raw.get("inlineMetadata")) or not raw:
        fields["inlineMetadata"] = uses or []
    return overlay(raw or {"type": "link"}, fields)


def _use(citation: Citation, raw: Json, offsets: Offsets, unit: Unit) -> Json:
    claim, point = citation.claim, citation.insert_at
    words = offsets.text[claim.start : claim.end] if claim else None
    return overlay(raw, {"claim": words, "location": point and offsets.to_unit(point.at, unit)})
