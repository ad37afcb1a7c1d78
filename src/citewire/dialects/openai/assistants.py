"""OpenAI Assistants: messages of a thread, whose texts have annotations on their markers.

An annotation repeats its marker (`【4:0†source】`, a sandbox path) as the `text` to replace; this checks its
offsets. It names a file by id only; `quote` has been seen in streams and older answers.
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from citewire.adapt import Adaptation
from citewire.dialects.base import (
    DialectOptions,
    Json,
    get_at,
    interleave,
    is_list,
    is_object,
    native_for,
    optional,
    overlay,
    path_text,
    put_at,
    require,
)
from citewire.dialects.common.annotations import (
    AnnotationPath,
    AnnotationReader,
    drop_claim_and_point,
    fit_links,
    is_marker,
    origin_of,
    span_fields,
    unit_of,
    write_annotations,
)
from citewire.dialects.common.claims import read_claim
from citewire.dialects.common.responses import group_by_part
from citewire.errors import ShapeError
from citewire.model import Answer, Citation, Native, Part, Source, SourceRef, Written
from citewire.text import Offsets, Unit

NAME = "openai.assistants"
UPSTREAM = "openai 3.49.0, Assistants API (beta threads)"
SUPPORTED_FIELDS = frozenset({"answer.id", "marker", "refs.quote", "source.file_id"})

UNIT: Unit = "codepoints"
_CITATION, _PATH = "file_citation", "file_path"
_SANDBOX = "sandbox:"


def detect(payload: Any) -> bool:
    if not is_object(payload):
        return False
    data = payload.get("data")
    if payload.get("object") == "list" and is_list(data):
        return bool(data) and all(map(_is_message, data))
    return _is_message(payload)


def _is_message(value: Any) -> bool:
    return is_object(value) and value.get("object") == "thread.message" and is_list(value.get("content"))


def read_all(payload: Any, options: DialectOptions) -> tuple[Answer, ...]:
    if not is_object(payload):
        raise ShapeError("a message is not an object")
    paths: list[tuple[str | int, ...]] = [()]
    if payload.get("object") == "list":
        data = require(payload, "data", list, "$")
        paths = [("data", at) for at, message in enumerate(data) if _is_message(message)]
    found = [(path, get_at(payload, path)) for path in paths]
    unit = options.unit or UNIT
    return tuple(_read(payload, path, said, unit) for path, said in found if said.get("role") != "user")


def _read(payload: Json, path: tuple[str | int, ...], message: Json, unit: Unit) -> Answer:
    reader, where = _Reader(unit), path_text(path)
    for at, content in enumerate(require(message, "content", list, where)):
        if _is_text(content):
            text: Json = content["text"]
            reader.read_text(text["value"], text, (at,), f"{where}.content[{at}].text")
    return reader.answer(optional(message, "id", str, where), Native(NAME, payload, path))


def _is_text(content: Any) -> bool:
    if not is_object(content) or content.get("type") != "text" or not is_object(text := content.get("text")):
        return False
    return isinstance(text.get("value"), str)


class _Reader(AnnotationReader):
    dialect = NAME

    def annotation(self, entry: Json, at: AnnotationPath, offsets: Offsets, part: int) -> Citation:
        kind = require(entry, "type", str)
        if kind not in (_CITATION, _PATH):
            raise ShapeError(f"unknown annotation type {kind!r}", ".type")
        file = require(entry, kind, dict)
        file_id, quote = require(file, "file_id", str, f".{kind}"), optional(file, "quote", str, f".{kind}")
        place = self._place(entry, offsets, part)
        ref = SourceRef(self.sources.add("file", file_id=file_id), quote=quote)
        native = Native(NAME, entry, at)
        if place is None:
            return Citation(self.next_id, (ref,), native=native)
        marker, origin = place
        native = replace(native, was=marker if origin == "repaired" else None)
        return Citation(self.next_id, (ref,), marker=marker, span_origin=origin, native=native)

    def _place(self, entry: Json, offsets: Offsets, part: int) -> Any:
        """Return the marker and its origin, None for `0, 0` and for a marker that is not in the text."""
        start, end = require(entry, "start_index", int), require(entry, "end_index", int)
        text = optional(entry, "text", str)
        if start == end == 0 and (not text or offsets.find_nearest(text, 0) is None):
            return None
        return read_claim(offsets, start, end, self.unit, text, part)


def write(answer: Answer, options: DialectOptions) -> Written:
    fitting = Adaptation(answer, NAME)
    if answer.citations or native_for(answer.native, NAME) is None:
        fitting.require_text()
    fitting.require_refs()
    fitting.drop_sources(_why_not)
    fitting.split_refs()
    _fit_sources(fitting)
    numbers = {citation.id: number for number, citation in enumerate(fitting.answer.citations)}
    fit_links(
        fitting,
        _stays,
        lambda citation: f"【{numbers[citation.id]}:0†source】",
        lambda citation: drop_claim_and_point(citation, fitting),
    )
    fitting.map_citations(lambda citation: _fit_quote(citation, fitting))
    fit = fitting.finish(
        SUPPORTED_FIELDS,
        kind=lambda source: "file",
        origin=origin_of(fitting.answer, NAME),
        group=lambda answer: group_by_part(answer, NAME),
        why="annotations belong to their part of the text",
    )
    unit = unit_of(fit, NAME, options.unit, UNIT)
    sources = {source.id: source for source in fit.sources}

    def entry(citation: Citation, offsets: Offsets, raw: Json, same_place: bool) -> Json:
        return _entry(citation, sources[citation.refs[0].source_id], offsets, unit, raw, same_place)

    contents = [
        _content(part, write_annotations(part, citations, NAME, entry))
        for part, citations in zip(fit.parts, fitting.groups(), strict=True)
    ]
    return Written(_envelope(fit, contents), tuple(fitting.losses))


def _stays(citation: Citation, text: str) -> bool:
    """Whether a marker stays: clients replace annotated text, so it must be, or have been, a marker."""
    if native_for(citation.native, NAME) is not None:
        return text != ""
    return is_marker(text) or text.startswith(_SANDBOX)


def _why_not(citation: Citation, source: Source) -> str | None:
    if source.file_id is not None or source.url is not None:
        return None
    return f"Assistants cite file ids, and {source.label} has none, nor a URL to stand in for it"


def _fit_sources(fitting: Adaptation) -> None:
    for source in fitting.cited_sources():
        if source.file_id is None:
            fitting.record_loss("source.file_id", "required: the URL stands in for it", source=source.id)
            fitting.sources[source.id] = replace(source, file_id=source.url)


def _kind(citation: Citation, text: str) -> str:
    """Return the annotation type: a sandbox path as marker means a file path."""
    native = native_for(citation.native, NAME)
    if native is not None:
        return native.raw["type"]
    return _PATH if text.startswith(_SANDBOX) else _CITATION


def _fit_quote(citation: Citation, fitting: Adaptation) -> Citation:
    """Drop the quote of a file path: only a file citation has one."""
    ref, marker = citation.refs[0], citation.marker
    text = fitting.answer.covered(marker) if marker else ""
    if ref.quote is None or _kind(citation, text) == _CITATION:
        return citation
    fitting.record_loss("refs.quote", "a file path has no quote", citation=citation.id)
    return replace(citation, refs=(replace(ref, quote=None),))


def _entry(
    citation: Citation, source: Source, offsets: Offsets, unit: Unit, raw: Json, same_place: bool
) -> Json:
    marker, ref = citation.marker, citation.refs[0]
    text = offsets.text[marker.start : marker.end] if marker else ""
    kind = _kind(citation, text)
    file = overlay(raw.get(kind), {"file_id": source.file_id, "quote": ref.quote})
    if raw and (same_place or (marker is None and raw["start_index"] == raw["end_index"] == 0)):
        return {**raw, kind: file}
    return {**raw, "type": kind, "text": text, **span_fields(citation, offsets, unit), kind: file}


def _content(part: Part, annotations: Json) -> tuple[int | None, Json]:
    native = native_for(part.native, NAME)
    text: Json = native.raw if native else {}
    return (native.at[0] if native else None), {**text, "value": part.text, **annotations}


def _envelope(answer: Answer, texts: list[tuple[int | None, Json]]) -> Json:
    native = native_for(answer.native, NAME)
    message: Json = {"object": "thread.message", "role": "assistant", "content": []}
    message = get_at(native.raw, native.at) if native else message
    old: list[Any] = message["content"]
    others = [(at, content) for at, content in enumerate(old) if not _is_text(content)]
    written = [
        (at, {**(old[at] if native and at is not None else {"type": "text"}), "text": text})
        for at, text in texts
    ]
    message = overlay(message, {"id": answer.id, "content": interleave(others, written)})
    return put_at(native.raw, native.at, message) if native else message
