"""OpenAI Responses: `output_text.annotations`.

A `url_citation` spans the link that the model wrote, not the claim it supports; a `file_citation` is a point;
a `container_file_citation` spans a sandbox path, or is `0, 0` for a file that the text never names. Offsets
count within one content part; the end is exclusive, despite the documentation. Whether they are code points
or UTF-16 units is unknown: code points are assumed, and the link itself confirms them.
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from citewire.adapt import Adaptation
from citewire.dialects.base import DialectOptions, Json, is_object, native_for, optional, require
from citewire.dialects.common.annotations import (
    AnnotationPath,
    AnnotationReader,
    drop_claim,
    drop_claim_and_point,
    find_link,
    fit_links,
    format_link,
    is_marker,
    make_link_citation,
    origin_of,
    overlay_nonempty,
    span_fields,
    unit_of,
)
from citewire.dialects.common.responses import (
    find_response_dialect,
    group_by_part,
    read_response,
    write_response,
)
from citewire.errors import ShapeError
from citewire.model import (
    Answer,
    Citation,
    Native,
    Point,
    Source,
    SourceKind,
    SourceRef,
    Span,
    SpanOrigin,
    Written,
)
from citewire.text import Offsets, Unit

NAME = "openai.responses"
UPSTREAM = "openai 3.49.0, Responses API"
SUPPORTED_FIELDS = frozenset(
    {
        "answer.id",
        "insert_at",
        "marker",
        "source.file_id",
        "source.filename",
        "source.metadata",
        "source.title",
        "source.url",
    }
)

UNIT: Unit = "codepoints"
_CONTAINER = "container_id"


def detect(payload: Any) -> bool:
    return find_response_dialect(payload) == NAME


def read_all(payload: Any, options: DialectOptions) -> tuple[Answer, ...]:
    if not is_object(payload):
        raise ShapeError("a response is not an object")
    return (read_response(payload, ResponsesReader(options.unit or UNIT)),)


class ResponsesReader(AnnotationReader):
    """Reads the annotations of the Responses API."""

    dialect = NAME

    def annotation(self, entry: Json, at: AnnotationPath, offsets: Offsets, part: int) -> Citation:
        name = self.next_id
        match require(entry, "type", str):
            case "url_citation":
                url, title = require(entry, "url", str), optional(entry, "title", str) or None
                found = find_link(entry, offsets, self.unit, url)
                ref = SourceRef(self.sources.add("web", url, title))
                native = Native(NAME, entry, at)
                return make_link_citation(name, ref, found, part, offsets.text, native)
            case "container_file_citation":
                found = find_link(entry, offsets, self.unit, None)
                ref = SourceRef(self._file(entry, require(entry, _CONTAINER, str)))
            case "file_citation":
                return self._at_point(name, entry, at, offsets, part)
            case kind:
                raise ShapeError(f"unknown annotation type {kind!r}", ".type")
        if found is None:
            return Citation(name, (ref,), native=Native(NAME, entry, at))
        span = Span(part, found.start, found.end)
        native = Native(NAME, entry, at, was=span if found.repaired else None)
        origin: SpanOrigin = "repaired" if found.repaired else "exact"
        return Citation(name, (ref,), marker=span, span_origin=origin, native=native)

    def _file(self, entry: Json, container: str | None) -> str:
        return self.sources.add(
            "file",
            filename=optional(entry, "filename", str) or None,
            file_id=require(entry, "file_id", str),
            metadata={_CONTAINER: container} if container is not None else None,
        )

    def _at_point(self, name: str, entry: Json, at: AnnotationPath, offsets: Offsets, part: int) -> Citation:
        index = require(entry, "index", int)
        found = offsets.point(index, self.unit)
        if found is None:
            raise ShapeError(f"index {index} is outside the text", ".index")
        point = Point(part, found.start)
        native = Native(NAME, entry, at, was=point if found.repaired else None)
        origin: SpanOrigin = "repaired" if found.repaired else "exact"
        ref = SourceRef(self._file(entry, None))
        return Citation(name, (ref,), insert_at=point, span_origin=origin, native=native)


def write(answer: Answer, options: DialectOptions) -> Written:
    fitting = Adaptation(answer, NAME)
    if answer.citations or native_for(answer.native, NAME) is None:
        fitting.require_text()
    fitting.require_refs()
    fitting.drop_sources(_why_not)
    fitting.split_refs()
    _fit_sources(fitting)
    _fit_places(fitting)
    fit = fitting.finish(
        SUPPORTED_FIELDS | {"claim"},  # the remaining ones were read from annotations
        kind=_kind,
        origin=origin_of(fitting.answer, NAME),
        group=lambda answer: group_by_part(answer, NAME),
        why="annotations belong to their part of the text",
    )
    unit = unit_of(fit, NAME, options.unit, UNIT)
    sources = {source.id: source for source in fit.sources}

    def entry(citation: Citation, offsets: Offsets, raw: Json, same_place: bool) -> Json:
        return _entry(citation, sources[citation.refs[0].source_id], offsets, unit, raw, same_place)

    return Written(
        write_response(fit, fitting, {"object": "response"}, entry),
        tuple(fitting.losses),
    )


def _kind(source: Source) -> SourceKind:
    return "web" if source.url is not None else "file"


def _why_not(citation: Citation, source: Source) -> str | None:
    if source.url is not None or source.file_id is not None:
        return None
    return f"OpenAI cites URLs and file ids, and {source.label} has neither"


def _fit_sources(fitting: Adaptation) -> None:
    """Drop the file of a URL citation, and title and metadata (except the container) of a file citation."""
    for source in fitting.cited_sources():
        fitting.sources[source.id] = _fit_source(source, fitting)


def _fit_source(source: Source, fitting: Adaptation) -> Source:
    changes: dict[str, Any] = {}
    is_web = source.url is not None
    for field in ("filename", "file_id") if is_web else ("title",):
        if getattr(source, field) is not None:
            fitting.record_loss(f"source.{field}", f"{NAME} has no place for it here", source=source.id)
            changes[field] = None
    for field in ("title", "filename"):
        if getattr(source, field) == "":
            fitting.record_loss(f"source.{field}", "an empty one reads as none", source=source.id)
            changes[field] = None
    container = None if is_web else source.metadata.get(_CONTAINER)
    kept = {_CONTAINER: container} if isinstance(container, str) else {}
    if source.metadata != kept:
        fitting.record_loss("source.metadata", f"{NAME} has no place for it", source=source.id)
        changes["metadata"] = kept
    return replace(source, **changes) if changes else source


def _fit_places(fitting: Adaptation) -> None:
    """Give web sources links, files points, and container files sandbox paths."""

    def source(citation: Citation) -> Source:
        return fitting.sources[citation.refs[0].source_id]

    def stays(citation: Citation, text: str) -> bool:
        if source(citation).url is None:
            return text != "" and _CONTAINER in source(citation).metadata
        return is_marker(text)

    fit_links(
        fitting,
        stays,
        lambda citation: format_link(source(citation)),
        lambda citation: _fit_place(citation, source(citation), fitting),
    )


def _fit_place(citation: Citation, source: Source, fitting: Adaptation) -> Citation:
    """Fit a position: a web source or container file has only a marker, any other file only a point."""
    if source.url is None and _CONTAINER not in source.metadata:
        return _with_point(citation, fitting)
    return drop_claim_and_point(citation, fitting)


def _with_point(citation: Citation, fitting: Adaptation) -> Citation:
    if citation.insert_at is not None:
        return drop_claim(citation, fitting)
    claim = citation.claim
    parts = fitting.answer.parts
    point = Point(claim.part, claim.end) if claim else Point(len(parts) - 1, len(parts[-1].text))
    fitting.record_loss("insert_at", "required: set to the end of what is cited", citation=citation.id)
    return drop_claim(replace(citation, insert_at=point), fitting)


def _entry(
    citation: Citation, source: Source, offsets: Offsets, unit: Unit, raw: Json, same_place: bool
) -> Json:
    fields = _fields(citation, source, offsets, unit)
    if not raw or raw["type"] != fields["type"]:
        return fields
    if same_place:
        for key in ("start_index", "end_index", "index"):
            fields.pop(key, None)
    return overlay_nonempty(raw, fields)


def _fields(citation: Citation, source: Source, offsets: Offsets, unit: Unit) -> Json:
    span, point = span_fields(citation, offsets, unit), citation.insert_at
    if source.url is not None:
        return {"type": "url_citation", **span, "title": source.title or "", "url": source.url}
    file: Json = {"file_id": source.file_id, "filename": source.filename or ""}
    if _CONTAINER in source.metadata:
        container = source.metadata[_CONTAINER]
        return {"type": "container_file_citation", _CONTAINER: container, **file, **span}
    index = offsets.to_unit(point.at, unit) if point else 0
    return {"type": "file_citation", "index": index, **file}
