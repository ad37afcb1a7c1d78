"""Shared code for formats with annotations on the text, each covering a link or marker that the model wrote.

The span is the link itself, not the claim it supports. Most formats use `0, 0` if the text names no source.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from typing import Any

from msgspec.structs import replace

from citewire.adapt import Adaptation
from citewire.dialects.base import (
    Json,
    ProblemList,
    SourceRegistry,
    interleave,
    is_list,
    is_object,
    native_for,
    optional,
    require,
)
from citewire.errors import InputError, ShapeError
from citewire.markers import find_markers
from citewire.model import Answer, Citation, Native, Part, Source, SourceRef, Span, SpanOrigin
from citewire.text import UNITS, Offsets, ResolvedSpan, Unit

__all__ = [
    "AnnotationPath",
    "AnnotationReader",
    "AnnotationWriter",
    "drop_claim",
    "drop_claim_and_point",
    "encode_link_url",
    "find_link",
    "fit_links",
    "format_link",
    "is_marker",
    "make_link_citation",
    "origin_of",
    "overlay_nonempty",
    "require_web_sources",
    "span_fields",
    "unit_of",
    "write_annotations",
]

AnnotationPath = tuple[Any, ...]
"""The place of an annotation: of its text first, then its own in the list."""


class AnnotationReader:
    """Reads texts and their annotations one by one. Each dialect implements `annotation` for one entry."""

    dialect: str

    def __init__(self, unit: Unit) -> None:
        self.unit: Unit = unit
        self.parts: list[Part] = []
        self.citations: list[Citation] = []
        self.sources = SourceRegistry()
        self.problems = ProblemList()

    def annotation(self, entry: Json, at: AnnotationPath, offsets: Offsets, part: int) -> Citation:
        """Return the citation of one annotation. Raises `ShapeError`, also for an unknown type."""
        raise NotImplementedError

    def read_text(self, text: str, raw: Json, at: AnnotationPath, where: str) -> None:
        """Read a text and the annotations in `raw`, found at path `at`. Unreadable entries are preserved."""
        entries = self.problems.try_read(lambda: where, optional, raw, "annotations", list) or []
        offsets = Offsets(text)
        kept: list[tuple[int, Any]] = []
        for place, entry in enumerate(entries):
            try:
                self.citations.append(self.read(entry, (*at, place), offsets, len(self.parts)))
            except InputError as exc:
                self.problems.add(f"{where}.annotations[{place}]", exc)
                kept.append((place, entry))
        self.parts.append(Part(text, Native(self.dialect, raw, at, tuple(kept), text)))

    def read(self, entry: Any, at: AnnotationPath, offsets: Offsets, part: int) -> Citation:
        """Read one annotation, which may be any JSON value. Raises `ShapeError` if it is not an object."""
        if not is_object(entry):
            raise ShapeError("an annotation is not an object", "")
        return self.annotation(entry, at, offsets, part)

    @property
    def next_id(self) -> str:
        return f"c{len(self.citations) + 1}"

    def answer(self, name: str | None, native: Native) -> Answer:
        """Return everything read so far as an answer."""
        return Answer(
            parts=tuple(self.parts),
            citations=tuple(self.citations),
            sources=tuple(self.sources),
            id=name,
            problems=tuple(self.problems),
            native=replace(native, was=self.unit),
        )


def find_link(entry: Json, offsets: Offsets, unit: Unit, url: str | None) -> ResolvedSpan | None:
    """Return the marker's span, or None for `0, 0`, which means that the text does not name the source."""
    start, end = require(entry, "start_index", int), require(entry, "end_index", int)
    if start == end == 0:
        return None
    found = offsets.span(start, end, unit)
    if url is not None and not (found and is_marker(offsets.text[found.start : found.end])):
        found = _repaired(offsets, start, end, unit, url) or found
    if found is None:
        raise ShapeError(f"span {start} to {end} is reversed or outside the text", ".end_index")
    return found


def _repaired(offsets: Offsets, start: int, end: int, unit: Unit, url: str) -> ResolvedSpan | None:
    """Find the link that the offsets meant: try the other units, then the nearest link to that URL."""
    for other in UNITS:
        found = offsets.span(start, end, other)
        if found and _looks_like_link(link := offsets.text[found.start : found.end]) and url in link:
            return ResolvedSpan(found.start, found.end, repaired=True)
    near = offsets.from_unit(min(max(start, 0), offsets.length(unit)), unit)[0]
    at = offsets.find_nearest(f"]({url}", near)
    return None if at is None else _link_around(offsets.text, at)


# The first character of every marker, to skip the search for most words.
_OPENINGS = ("[", "【", "\ue200")


def is_marker(text: str) -> bool:
    """Whether an annotation may cover this text: a link, a URL or any kind of marker."""
    if _looks_like_link(text) or text.startswith(("http://", "https://")):
        return True
    if not text.startswith(_OPENINGS):
        return False
    return any((marker.start, marker.end) == (0, len(text)) for marker in find_markers(text, _ANY_NUMBER))


class _AnyNumber(Container[str]):
    def __contains__(self, label: object) -> bool:
        return True


_ANY_NUMBER = _AnyNumber()


def _looks_like_link(text: str) -> bool:
    return text.startswith(("[", "([")) and text.endswith(")")


# How far from the middle of a link to search for its ends.
_LONGEST_LINK = 4096


def _link_around(text: str, middle: int) -> ResolvedSpan | None:
    start = text.rfind("[", max(0, middle - _LONGEST_LINK), middle)
    end = text.find(")", middle, middle + _LONGEST_LINK)
    if start < 0 or end < 0:
        return None
    end += 1
    if text.startswith("(", start - 1) and text.startswith(")", end):
        start, end = start - 1, end + 1
    elif text.startswith("[", start - 1) and text.startswith("]", middle - 1):
        start -= 1
    return ResolvedSpan(start, end, repaired=True)


def make_link_citation(
    name: str, ref: SourceRef, found: ResolvedSpan | None, part: int, text: str, native: Native
) -> Citation:
    """Make the citation of an annotation. Its span is a marker, or a claim if it covers no marker."""
    if found is None:
        return Citation(name, (ref,), native=native)
    span = Span(part, found.start, found.end)
    if not is_marker(text[found.start : found.end]):
        # These are words, not a link: treating them as a marker would remove them from the answer.
        return Citation(name, (ref,), claim=span, native=replace(native, was=span))
    origin: SpanOrigin = "repaired" if found.repaired else "exact"
    native = replace(native, was=span if found.repaired else None)
    return Citation(name, (ref,), marker=span, span_origin=origin, native=native)


def require_web_sources(answer: Answer, dialect: str) -> Adaptation:
    """Adapt an answer so that it has a text and every citation has one source, with a URL."""
    fitting = Adaptation(answer, dialect)
    if answer.citations or native_for(answer.native, dialect) is None:
        fitting.require_text()
    fitting.require_refs()
    fitting.drop_sources(_why_not_web)
    fitting.split_refs()
    return fitting


def _why_not_web(citation: Citation, source: Source) -> str | None:
    return None if source.url is not None else f"only URLs can be cited, and {source.label} has none"


def fit_links(
    fitting: Adaptation,
    stays: Callable[[Citation, str], bool],
    label: Callable[[Citation], str | None],
    fit_place: Callable[[Citation], Citation],
) -> None:
    """Give every citation with a position a marker: its own if it `stays`, else a new one from `label`.
    `fit_place` handles its other positions. Claims read from annotations that cover words stay unchanged."""
    kept = {citation.id for citation in fitting.answer.citations if _is_kept_claim(citation, fitting.dialect)}
    fitting.remove_markers(stays)
    fitting.insert_markers(lambda citation: None if citation.id in kept else label(citation), padded=True)
    fitting.map_citations(lambda citation: citation if citation.id in kept else fit_place(citation))


def _is_kept_claim(citation: Citation, dialect: str) -> bool:
    """Whether this claim was read from an annotation that covers words and is written back unchanged."""
    native = native_for(citation.native, dialect)
    return native is not None and citation.claim is not None and native.was == citation.claim


def drop_claim(citation: Citation, fitting: Adaptation) -> Citation:
    """Return `citation` without its claim, which the dialect cannot express."""
    if citation.claim is not None:
        fitting.record_loss("claim", f"{fitting.dialect} has no place for it", citation=citation.id)
    return replace(citation, claim=None)


def drop_claim_and_point(citation: Citation, fitting: Adaptation) -> Citation:
    """Return `citation` without its claim and point; only the marker stays."""
    if citation.insert_at is not None:
        fitting.record_loss("insert_at", f"{fitting.dialect} has no place for it here", citation=citation.id)
    return drop_claim(replace(citation, insert_at=None), fitting)


def format_link(source: Source) -> str | None:
    """Format a link as OpenAI does; characters that would end it early are encoded."""
    if source.url is None:
        return None
    title = (source.title or source.domain or source.url).translate(_IN_TITLE)
    return f"([{title}]({encode_link_url(source.url)}))"


def encode_link_url(url: str) -> str:
    """Percent-encode the characters of `url` that would end a link early."""
    return url.translate(_IN_URL)


_IN_URL = {ord(char): f"%{ord(char):02X}" for char in " ()<>\\\n\r\t"}
_IN_TITLE = {ord(char): " " for char in "[]\n\r\t"}


def origin_of(answer: Answer, dialect: str) -> Callable[[Citation], SpanOrigin]:
    """Return a function for the new span origin: a repaired span in unchanged text is repaired again."""
    same = {number for number, part in enumerate(answer.parts) if _is_same_text(part, dialect)}

    def origin(citation: Citation) -> SpanOrigin:
        native, place = native_for(citation.native, dialect), citation.marker or citation.insert_at
        if place is None:
            return "unknown"
        return "repaired" if native and native.was == place and place.part in same else "exact"

    return origin


def _is_same_text(part: Part, dialect: str) -> bool:
    native = native_for(part.native, dialect)
    return native is not None and native.was == part.text


def unit_of(answer: Answer, dialect: str, wanted: Unit | None, usual: Unit) -> Unit:
    """Return the offset unit to write: `wanted`, else the one the answer was read in, else `usual`."""
    native = native_for(answer.native, dialect)
    return wanted or (native.was if native else usual)


AnnotationWriter = Callable[[Citation, Offsets, Json, bool], Json]
"""Writes an annotation over what was kept of it; the last says that its place is given as it was kept."""


def write_annotations(
    part: Part, citations: tuple[Citation, ...], dialect: str, entry: AnnotationWriter
) -> Json:
    """Return the `annotations` field of a text, or no field if the text had none and has none."""
    native = native_for(part.native, dialect)
    offsets = Offsets(part.text)
    same_text = _is_same_text(part, dialect)
    written: list[tuple[int | None, Any]] = []
    for citation in citations:
        kept = native_for(citation.native, dialect)
        places = (citation.marker, citation.insert_at, citation.claim)
        same = same_text and kept is not None and kept.was is not None and kept.was in places
        written.append(
            (kept.at[-1] if kept else None, entry(citation, offsets, kept.raw if kept else {}, same))
        )
    annotations = interleave(native.kept if native else None, written)
    had_some = native is not None and is_list(said := native.raw.get("annotations")) and bool(said)
    if annotations or native is None or had_some:
        return {"annotations": annotations}
    return {}


def overlay_nonempty(raw: Json, fields: Json) -> Json:
    """Update `raw` with `fields`; an empty title or file name stays as it was in the payload."""
    return raw | {key: value for key, value in fields.items() if value != "" or raw.get(key)}


def span_fields(citation: Citation, offsets: Offsets, unit: Unit) -> Json:
    """Return the offsets of an annotation, `0, 0` if the text does not name the source."""
    marker = citation.marker or citation.claim
    return {
        "start_index": offsets.to_unit(marker.start, unit) if marker else 0,
        "end_index": offsets.to_unit(marker.end, unit) if marker else 0,
    }
