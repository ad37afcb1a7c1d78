"""Gemini Interactions: `annotations` on the texts of model output steps.

The type names are those of OpenAI, but the meaning differs: a span is the claim that a source supports, not a
link, and it counts UTF-8 bytes in its text.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from msgspec.structs import replace

from citewire.adapt import Adaptation
from citewire.dialects.base import (
    DialectOptions,
    Json,
    interleave,
    is_list,
    is_object,
    native_for,
    optional,
    overlay,
    require,
)
from citewire.dialects.common.annotations import AnnotationPath, AnnotationReader, unit_of, write_annotations
from citewire.dialects.common.claims import find_unchanged_native, fit_to_claims, origin_of, read_claim
from citewire.dialects.common.responses import group_by_part
from citewire.errors import ShapeError
from citewire.model import (
    Answer,
    Citation,
    Native,
    Pages,
    Source,
    SourceKind,
    SourceRef,
    Span,
    SpanOrigin,
    Written,
)
from citewire.text import Offsets, Unit

NAME = "gemini.interactions"
UPSTREAM = "google-genai 3.1.0, Interactions API"
SUPPORTED_FIELDS = frozenset(
    {
        "answer.id",
        "claim",
        "refs.locator.pages",
        "source.filename",
        "source.metadata",
        "source.record_id",
        "source.title",
        "source.url",
    }
)

UNIT: Unit = "utf8"


class _Shape(NamedTuple):
    """A type of annotation: its field names, and the metadata it supports."""

    type: str
    fields: dict[str, str]
    metadata: tuple[str, ...] = ()


_SHAPES: dict[SourceKind, _Shape] = {
    "web": _Shape("url_citation", {"url": "url", "title": "title"}),
    "document": _Shape(
        "file_citation",
        {"url": "document_uri", "filename": "file_name"},
        ("custom_metadata", "media_id", "source"),
    ),
    "place": _Shape(
        "place_citation", {"url": "url", "title": "name", "record_id": "place_id"}, ("review_snippets",)
    ),
}
_KINDS: dict[str, SourceKind] = {shape.type: kind for kind, shape in _SHAPES.items()}
_FIELDS = ("title", "filename", "record_id")


def detect(payload: Any) -> bool:
    return is_object(payload) and payload.get("object") == "interaction" and is_list(payload.get("steps"))


def read_all(payload: Any, options: DialectOptions) -> tuple[Answer, ...]:
    if not is_object(payload):
        raise ShapeError("an interaction is not an object")
    return (read_interaction(payload, options.unit or UNIT),)


def read_interaction(interaction: Json, unit: Unit) -> Answer:
    """Read the answer in an interaction."""
    reader = _Reader(unit)
    for number, step in enumerate(require(interaction, "steps", list, "$")):
        if _is_output(step):
            for at, content in enumerate(step["content"]):
                if _is_text(content):
                    where = f"$.steps[{number}].content[{at}]"
                    reader.read_text(content["text"], content, (number, at), where)
    return reader.answer(optional(interaction, "id", str, "$"), Native(NAME, interaction))


def _is_output(step: Any) -> bool:
    return is_object(step) and step.get("type") == "model_output" and is_list(step.get("content"))


def _is_text(content: Any) -> bool:
    return is_object(content) and content.get("type") == "text" and isinstance(content.get("text"), str)


class _Reader(AnnotationReader):
    dialect = NAME

    def annotation(self, entry: Json, at: AnnotationPath, offsets: Offsets, part: int) -> Citation:
        kind = _KINDS.get(require(entry, "type", str))
        if kind is None:
            raise ShapeError(f"unknown annotation type {entry['type']!r:.60}", ".type")
        start, end = optional(entry, "start_index", int) or 0, optional(entry, "end_index", int)
        claim: Span | None = None
        origin: SpanOrigin = "unknown"
        if end is not None:
            claim, origin = read_claim(offsets, start, end, self.unit, part=part)
        shape = _SHAPES[kind]
        fields: Json = {name: optional(entry, key, str) for name, key in shape.fields.items()}
        if shape.metadata:
            fields["metadata"] = {key: entry[key] for key in shape.metadata if entry.get(key) is not None}
        ref = SourceRef(self.sources.add(kind, **fields), _page(entry))
        native = Native(NAME, entry, at, was=(claim, origin))
        return Citation(self.next_id, (ref,), claim=claim, span_origin=origin, native=native)


def _page(entry: Json) -> Pages | None:
    page = entry.get("page_number") if entry["type"] == "file_citation" else None
    return Pages(page, page) if type(page) is int and page >= 1 else None


def write(answer: Answer, options: DialectOptions) -> Written:
    fitting = fit_to_claims(answer, NAME)
    fitting.split_refs()
    for source in fitting.cited_sources():
        fitting.sources[source.id] = _fit_source(source, fitting)
    fitting.map_citations(lambda citation: _fit_page(citation, fitting))
    unit = unit_of(answer, NAME, options.unit, UNIT)
    same = _same_parts(fitting.answer, unit)
    fit = fitting.finish(
        SUPPORTED_FIELDS,
        kind=lambda source: source.kind,
        origin=origin_of(NAME, same),
        group=lambda answer: group_by_part(answer, NAME),
        why="annotations belong to their part of the text",
    )
    sources = {source.id: source for source in fit.sources}

    def entry(citation: Citation, offsets: Offsets, raw: Json, _: bool) -> Json:
        place = (
            {} if find_unchanged_native(citation, NAME, same) else _place(citation.claim, offsets, unit, raw)
        )
        return _annotation(citation, sources[citation.refs[0].source_id], raw, place)

    contents: list[tuple[Native | None, Json]] = []
    for part, citations in zip(fit.parts, fitting.groups(), strict=True):
        native = native_for(part.native, NAME)
        fields = {"text": part.text, **write_annotations(part, citations, NAME, entry)}
        contents.append((native, overlay(native.raw if native else {"type": "text"}, fields)))
    return Written(_interaction(fit, contents), tuple(fitting.losses))


def _same_parts(answer: Answer, unit: Unit) -> set[int]:
    """Return the parts that are unchanged since reading, if the unit is the same."""
    native = native_for(answer.native, NAME)
    if native is None or native.was != unit:
        return set()
    kept = (native_for(part.native, NAME) for part in answer.parts)
    return {
        number
        for number, (part, native) in enumerate(zip(answer.parts, kept, strict=True))
        if native and native.was == part.text
    }


def _fit_source(source: Source, fitting: Adaptation) -> Source:
    """Make the source one of the annotation types, and drop fields that type does not support."""
    kind = source.kind
    if kind not in _SHAPES:
        kind = "web" if source.url is not None and source.filename is None else "document"
    shape = _SHAPES[kind]
    changes: dict[str, Any] = {
        field: None for field in _FIELDS if field not in shape.fields and getattr(source, field) is not None
    }
    held = source.metadata
    metadata = {key: held[key] for key in shape.metadata if held.get(key) is not None}
    if metadata != held:
        changes["metadata"] = metadata
    for field in changes:
        fitting.record_loss(f"source.{field}", f"a {shape.type} has no place for it", source=source.id)
    if kind != source.kind:
        fitting.record_loss("source.kind", f"{source.kind} will read as {kind}", source=source.id)
        changes["kind"] = kind
    return replace(source, **changes) if changes else source


def _fit_page(citation: Citation, fitting: Adaptation) -> Citation:
    """Drop pages of sources that are not files, and reduce page ranges to one page."""
    ref = citation.refs[0]
    locator = ref.locator
    is_file = fitting.sources[ref.source_id].kind == "document"
    if not isinstance(locator, Pages) or (is_file and locator.first == locator.last):
        return citation
    fitting.record_loss("refs.locator", "only a file has a page, and one", citation=citation.id)
    wanted = Pages(locator.first, locator.first) if is_file else None
    return replace(citation, refs=(replace(ref, locator=wanted),))


def _place(claim: Span | None, offsets: Offsets, unit: Unit, raw: Json) -> Json:
    """Return the offsets of a claim; a start of zero stays omitted if it was."""
    if claim is None:
        return {"start_index": None, "end_index": None}
    start = offsets.to_unit(claim.start, unit)
    is_left_out = start == 0 and bool(raw) and "start_index" not in raw
    return {
        "start_index": None if is_left_out else start,
        "end_index": offsets.to_unit(claim.end, unit),
    }


def _annotation(citation: Citation, source: Source, raw: Json, place: Json) -> Json:
    locator, shape = citation.refs[0].locator, _SHAPES[source.kind]
    kept = raw
    if raw.get("type") != shape.type:
        kept = {key: raw[key] for key in ("start_index", "end_index") if key in raw}
    fields: Json = {"type": shape.type, **place}
    if source.kind == "document" and (kept is not raw or not raw or locator != _page(kept)):
        fields["page_number"] = locator.first if isinstance(locator, Pages) else None
    fields |= {key: getattr(source, name) for name, key in shape.fields.items()}
    fields |= {key: source.metadata.get(key) for key in shape.metadata}
    return overlay(kept, fields)


def _interaction(answer: Answer, contents: list[tuple[Native | None, Json]]) -> Json:
    native = native_for(answer.native, NAME)
    if native is None:
        steps = [{"type": "model_output", "content": [content for _, content in contents]}]
        return overlay({"object": "interaction", "steps": steps}, {"id": answer.id})
    return overlay(native.raw, {"id": answer.id, "steps": _steps(native.raw["steps"], contents)})


def _steps(old: list[Any], contents: list[tuple[Native | None, Json]]) -> list[Any]:
    """Replace the texts of each step; new texts are added to the last output step."""
    steps = list(old)
    by_step: dict[int, list[tuple[int | None, Any]]] = {
        number: [] for number, step in enumerate(old) if _is_output(step)
    }
    last = max(by_step, default=len(old))
    for native, content in contents:
        number, at = native.at if native else (last, None)
        by_step.setdefault(number, []).append((at, content))
    if len(old) in by_step:
        steps.append({"type": "model_output", "content": []})
    for number, texts in by_step.items():
        step: Json = steps[number]
        others = [(at, content) for at, content in enumerate(step["content"]) if not _is_text(content)]
        steps[number] = {**step, "content": interleave(others, texts)}
    return steps
