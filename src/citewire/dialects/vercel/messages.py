"""Vercel's AI SDK: source parts of a UI message, or of a model's content.

A source part names a source, but not what it supports. Our other fields (the claim above all) travel in the
`citewire` object of `providerMetadata`, which the SDK passes on unchanged; claims count code points of the
texts joined by blank lines.
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate
from math import inf
from typing import Any, NamedTuple

from msgspec.structs import replace

from citewire.adapt import Adaptation
from citewire.dialects.base import (
    DialectOptions,
    Json,
    ProblemList,
    SourceRegistry,
    interleave,
    is_list,
    is_object,
    native_for,
    optional,
    overlay,
    require,
)
from citewire.dialects.common.claims import fit_to_claims
from citewire.dialects.common.extension_fields import (
    EXTENSIBLE_FIELDS,
    EXTENSION_KEY,
    ExtensionFields,
    drop_reserved_key,
    pack,
    unpack,
)
from citewire.dialects.common.marker_records import UniqueIds
from citewire.errors import InputError, ShapeError
from citewire.model import Answer, Citation, Native, Part, Source, SourceKind, SourceRef, Span, Written

NAME = "vercel"
UPSTREAM = "ai 7, UI message parts and LanguageModelV3 content"
SUPPORTED_FIELDS = EXTENSIBLE_FIELDS

# The default media type of a document.
_MEDIA_TYPE = "application/octet-stream"
# The number of characters that `Answer.text` puts between two parts.
_BREAK = 2


class _MessageShape(NamedTuple):
    """One of two message shapes: the field with the parts, the source id field, and the source types."""

    parts: str
    id: str
    types: tuple[Json, Json]


_UI = _MessageShape("parts", "sourceId", ({"type": "source-url"}, {"type": "source-document"}))
_MODEL = _MessageShape(
    "content", "id", ({"type": "source", "sourceType": "url"}, {"type": "source", "sourceType": "document"})
)


def detect(payload: Any) -> bool:
    wire = _find_shape(payload) if is_object(payload) else None
    if wire is None:
        return False
    parts: list[Any] = payload[wire.parts]
    if wire is _MODEL:
        return any(_source_type(part, wire) is not None for part in parts)
    is_typed = all(is_object(part) and isinstance(part.get("type"), str) for part in parts)
    return is_typed and payload.get("role") == "assistant"


def _find_shape(payload: Json) -> _MessageShape | None:
    return next((wire for wire in (_UI, _MODEL) if is_list(payload.get(wire.parts))), None)


def _source_type(part: Any, wire: _MessageShape) -> int | None:
    """Return which of the two source types a part has, None for any other part."""
    if not is_object(part):
        return None
    fits = (number for number, said in enumerate(wire.types) if said.items() <= part.items())
    return next(fits, None)


def _is_text(part: Any) -> bool:
    return is_object(part) and part.get("type") == "text" and isinstance(part.get("text"), str)


def read_all(payload: Any, options: DialectOptions) -> tuple[Answer, ...]:
    if not is_object(payload):
        raise ShapeError("a message is not an object")
    return (read_message(payload),)


def read_message(message: Json) -> Answer:
    """Read the answer in a message, or in a model's content."""
    wire = _find_shape(message)
    if wire is None:
        raise ShapeError("there are neither parts nor content")
    raws: list[Any] = message[wire.parts]
    parts = tuple(Part(raw["text"], Native(NAME, raw, at)) for at, raw in enumerate(raws) if _is_text(raw))
    reader = _Reader(wire, parts)
    for at, raw in enumerate(raws):
        if (number := _source_type(raw, wire)) is not None:
            reader.read(at, raw, is_document=number == 1)
    return Answer(
        parts=parts,
        citations=tuple(reader.citations),
        sources=tuple(reader.sources),
        id=optional(message, "id", str, "$") if wire is _UI else None,
        problems=tuple(reader.problems),
        native=Native(NAME, message, kept=tuple(reader.kept)),
    )


class _Reader:
    def __init__(self, wire: _MessageShape, parts: tuple[Part, ...]) -> None:
        self.citations: list[Citation] = []
        self.sources = SourceRegistry()
        self.problems = ProblemList()
        self.kept: list[int] = []
        self._wire = wire
        self._names = UniqueIds()
        self._parts = parts
        self._starts = _starts(parts)

    def read(self, at: int, raw: Json, *, is_document: bool) -> None:
        try:
            self.citations.append(self._citation(at, raw, is_document))
        except InputError as exc:
            self.problems.add(f"$.{self._wire.parts}[{at}]", exc)
            self.kept.append(at)

    def _citation(self, at: int, raw: Json, is_document: bool) -> Citation:
        said = require(raw, self._wire.id, str)
        metadata = optional(raw, "providerMetadata", dict) or {}
        where = f".providerMetadata.{EXTENSION_KEY}"
        own = optional(metadata, EXTENSION_KEY, dict, ".providerMetadata") or {}
        beyond = unpack(own, where)
        claim = self._claim(beyond, where)
        url = None if is_document else require(raw, "url", str)
        quote, held = optional(own, "quote", str, where), optional(own, "metadata", dict, where) or {}
        title = optional(raw, "title", str)
        filename = optional(raw, "filename", str) if is_document else beyond.filename
        source_id = self.sources.add(
            beyond.kind or _kind_of(url),
            url,
            title,
            filename=filename,
            file_id=beyond.file_id,
            record_id=beyond.record_id,
            index=beyond.index,
            domain=beyond.domain,
            snippet=beyond.snippet,
            metadata={key: value for key, value in metadata.items() if key != EXTENSION_KEY} | held,
        )
        name = self._names.assign(said)
        return Citation(
            name,
            (SourceRef(source_id, beyond.locator, quote, beyond.anchor, beyond.score),),
            claim=claim,
            span_origin="exact" if claim else "unknown",
            verification=beyond.verification,
            native=Native(NAME, raw, at),
        )

    def _claim(self, beyond: ExtensionFields, where: str) -> Span | None:
        """Return the claim, relative to its part."""
        joined = beyond.span(None)
        if joined is None:
            return None
        number = bisect_right(self._starts, joined.start) - 1
        start = self._starts[number] if number >= 0 else 0
        span = Span(number, joined.start - start, joined.end - start)
        if number < 0 or span.end > len(self._parts[number].text):
            raise ShapeError("the claim is not within one text", f"{where}.claim")
        return span


def _starts(parts: tuple[Part, ...]) -> list[int]:
    """Return the offset of each part in the joined text."""
    return list(accumulate((len(part.text) + _BREAK for part in parts[:-1]), initial=0)) if parts else []


def _kind_of(url: str | None) -> SourceKind:
    return "document" if url is None else "web"


def write(answer: Answer, options: DialectOptions) -> Written:
    native = native_for(answer.native, NAME)
    wire = _UI if native is None else _find_shape(native.raw) or _UI
    fitting = fit_to_claims(answer, NAME)
    fitting.split_refs()
    drop_reserved_key(fitting)
    _name_documents(fitting)
    fit = fitting.finish(
        SUPPORTED_FIELDS if wire is _UI else SUPPORTED_FIELDS - {"answer.id"},
        kind=lambda source: source.kind,
        origin=lambda citation: "exact" if citation.claim else "unknown",
        keep_ids=True,
    )
    writer = _Writer(fit, wire)
    old: list[Any] = native.raw[wire.parts] if native else []
    kept: set[int] = set(native.kept) if native else set()
    others = [
        (at, part)
        for at, part in enumerate(old)
        if at in kept or not (_is_text(part) or _source_type(part, wire) is not None)
    ]
    texts = [_text(part) for part in fit.parts]
    parts = interleave(
        others, _merge_by_position(texts, [writer.source(citation) for citation in fit.citations])
    )
    fields: Json = {wire.parts: parts}
    if wire is _UI:
        fields["id"] = fit.id
    return Written(overlay(native.raw if native else {"role": "assistant"}, fields), tuple(fitting.losses))


def _name_documents(fitting: Adaptation) -> None:
    """Give new document parts a title, which the SDK requires."""
    new = {c.refs[0].source_id for c in fitting.answer.citations if not native_for(c.native, NAME)}
    for source in fitting.cited_sources():
        if source.id in new and source.url is None and source.title is None:
            fitting.record_loss("source.title", "required: another name stands in", source=source.id)
            fitting.sources[source.id] = replace(source, title=source.label)


def _text(part: Part) -> tuple[int | None, Json]:
    native = native_for(part.native, NAME)
    raw: Json = native.raw if native else {"type": "text"}
    return (native.at if native else None), overlay(raw, {"text": part.text})


def _merge_by_position(*lists: list[tuple[int | None, Any]]) -> list[tuple[int | None, Any]]:
    """Merge several lists by old position; each list keeps its own order."""
    placed: list[tuple[float, Any]] = []
    for items in lists:
        last = 0.0
        for at, value in items:
            last = max(last, inf if at is None else at)
            placed.append((last, value))
    placed.sort(key=lambda item: item[0])
    return [(None if at == inf else int(at), value) for at, value in placed]


class _Writer:
    def __init__(self, answer: Answer, wire: _MessageShape) -> None:
        self._wire = wire
        self._names = UniqueIds()
        self._starts = _starts(answer.parts)
        self._sources = {source.id: source for source in answer.sources}

    def source(self, citation: Citation) -> tuple[int | None, Json]:
        source, native = self._sources[citation.refs[0].source_id], native_for(citation.native, NAME)
        is_document = source.url is None
        said = self._wire.types[is_document]
        is_kept = native is not None and said.items() <= native.raw.items()
        raw: Json = native.raw if native and is_kept else said
        fields: Json = {self._wire.id: self._name(citation, raw), "title": source.title}
        if is_document:
            fields |= {"filename": source.filename} | ({} if is_kept else {"mediaType": _MEDIA_TYPE})
        else:
            fields["url"] = source.url
        metadata = self._metadata(citation, source, raw.get("providerMetadata"))
        fields["providerMetadata"] = metadata if metadata or raw.get("providerMetadata") == {} else None
        return (native.at if native else None), overlay(raw, fields)

    def _name(self, citation: Citation, raw: Json) -> str:
        """Return the original id if a reader derives the citation's id from it, else the citation's id."""
        said: str = raw.get(self._wire.id, citation.id)
        name = said if self._names.preview(said) == citation.id else citation.id
        self._names.assign(name)
        return name

    def _metadata(self, citation: Citation, source: Source, raw: Json | None) -> Json:
        """Merge the providers' metadata with our object, which also holds values that are no objects."""
        kept = raw or {}
        old: Json = kept.get(EXTENSION_KEY) or {}
        old_held: Json = old.get("metadata") or {}
        claim = citation.claim
        if claim is not None:
            start = self._starts[claim.part]
            citation = replace(citation, claim=Span(0, claim.start + start, claim.end + start))
        beside = replace(source, filename=None) if source.url is None else source
        held = {
            key: value
            for key, value in source.metadata.items()
            if key in old_held or not (is_object(value) or key in kept)
        }
        nothing: Json | None = {} if old.get("metadata") == {} else None
        own = {"quote": citation.refs[0].quote, "metadata": held or nothing}
        packed = overlay(pack(citation, beside, _kind_of(source.url), old), own)
        theirs = {key: value for key, value in source.metadata.items() if key not in held}
        if packed or kept.get(EXTENSION_KEY):
            return theirs | {EXTENSION_KEY: packed}
        return theirs | {key: kept[key] for key in (EXTENSION_KEY,) if key in kept}
