"""Writes candidates of `generateContent` responses."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from citewire.adapt import Adaptation
from citewire.dialects.base import (
    DialectOptions,
    Json,
    interleave,
    is_list,
    is_object,
    native_for,
    overlay,
    put_at,
)
from citewire.dialects.common.claims import ClaimTextBudget, find_unchanged_native, fit_to_claims, origin_of
from citewire.dialects.gemini.grounding_chunks import CHUNK_SHAPES, content_of, write_chunk
from citewire.dialects.gemini.reader import (
    NAME,
    UNIT,
    UnreadGrounding,
    is_text,
    notices_of,
    parts_of,
    scores_of,
)
from citewire.model import Answer, Chunk, Citation, Native, Pages, Source, SourceRef, Span, Written
from citewire.text import Offsets, Unit

__all__ = ["SUPPORTED_FIELDS", "write"]


SUPPORTED_FIELDS = frozenset(
    {
        "answer.id",
        "claim",
        "refs.locator.chunk",
        "refs.locator.pages",
        "refs.quote",
        "refs.score",
        "source.domain",
        "source.file_id",
        "source.metadata",
        "source.record_id",
        "source.title",
        "source.url",
    }
)


def write(answer: Answer, options: DialectOptions) -> Written:
    fitting = fit_to_claims(answer, NAME)
    if len(fitting.answer.parts) > 1:
        fitting.join_parts()
    native = native_for(answer.native, NAME)
    unit: Unit = options.unit or (native.was if native else UNIT)
    same = {0} if native and native.was == unit and _old_text(native) == fitting.answer.text else set[int]()
    for source in fitting.cited_sources():
        fitting.sources[source.id] = _fit_source(source, fitting)
    fitting.map_citations(lambda citation: _fit_refs(citation, fitting))
    fit = fitting.finish(
        SUPPORTED_FIELDS,
        kind=lambda source: source.kind,
        origin=origin_of(NAME, same),
        group=_by_home,
        why="supports come before chunks that none names, and those before notices",
    )
    writer = _Writer(fit, native, unit, same)
    return Written(writer.response(native, fitting.groups()), tuple(fitting.losses))


def _candidate(native: Native) -> Json:
    return native.raw["candidates"][native.at]


def _old_text(native: Native) -> str:
    return "".join(part["text"] for part in parts_of(_candidate(native), "$") if is_text(part))


def _fit_source(source: Source, fitting: Adaptation) -> Source:
    """Make the source one of the kinds of chunk, and drop fields that kind does not support."""
    is_nothing = source == Source(source.id, "unknown", native=source.native)
    kind = (
        source.kind
        if source.kind in CHUNK_SHAPES and (is_nothing or source.kind != "unknown")
        else "document"
    )
    shape = CHUNK_SHAPES[kind]
    changes: dict[str, Any] = {}
    room = {*shape.fields, *(("file_id",) if shape.has_rag else ())}
    for field in ("domain", "file_id", "record_id"):
        if field not in room and getattr(source, field) is not None:
            changes[field] = None
    metadata = {
        key: value for key, value in source.metadata.items() if key in shape.metadata and value is not None
    }
    if metadata != source.metadata:
        changes["metadata"] = metadata
    for field in changes:
        fitting.record_loss(f"source.{field}", f"a {kind} chunk has no place for it", source=source.id)
    if kind != source.kind:
        fitting.record_loss("source.kind", f"{source.kind} will read as {kind}", source=source.id)
        changes["kind"] = kind
    return replace(source, **changes) if changes else source


def _fit_refs(citation: Citation, fitting: Adaptation) -> Citation:
    """Drop quotes and locators that a chunk cannot hold; missing scores become 0 if others have one."""
    refs: list[SourceRef] = []
    scored = any(ref.score is not None for ref in citation.refs)
    for ref in citation.refs:
        shape = CHUNK_SHAPES[fitting.sources[ref.source_id].kind]
        changes: dict[str, Any] = {}
        if ref.quote is not None and not shape.has_text:
            changes["quote"] = None
        if ref.locator is not None and not (shape.has_rag and isinstance(ref.locator, (Pages, Chunk))):
            changes["locator"] = None
        if scored and ref.score is None:
            changes["score"] = 0.0
        for field in changes:
            reason = "all have one or none: 0 stands in" if field == "score" else "the chunk cannot hold it"
            fitting.record_loss(f"refs.{field}", reason, citation=citation.id)
        refs.append(replace(ref, **changes) if changes else ref)
    return replace(citation, refs=tuple(refs))


def _by_home(answer: Answer) -> list[list[Citation]]:
    """Group citations by location: supports, chunks without a support, notices."""
    kinds = {source.id: source for source in answer.sources}
    homes: dict[str, list[Citation]] = {"support": [], "chunk": [], "notice": []}
    for citation in answer.citations:
        homes[_home(citation, kinds[citation.refs[0].source_id])].append(citation)
    homes["chunk"].sort(key=lambda citation: citation.native.at[1] if citation.native else 0)
    return list(homes.values())


def _home(citation: Citation, source: Source) -> str:
    """Return where a citation was read from, unless it now needs a support."""
    native, ref = native_for(citation.native, NAME), citation.refs[0]
    if native is None or len(citation.refs) > 1 or ref.score is not None:
        return "support"
    home: str = native.at[0]
    if home == "chunk":
        return home if citation.claim is None and native_for(ref.native, NAME) else "support"
    is_plain = source.kind == "web" and source.domain is None
    return home if home == "notice" and citation.claim and is_plain else "support"


class _Writer:
    def __init__(self, answer: Answer, native: Native | None, unit: Unit, same: set[int]) -> None:
        self.answer = answer
        self.candidate: Json = _candidate(native) if native else {}
        self.kept: UnreadGrounding = native.kept if native else UnreadGrounding(set(), [], [])
        self.grounding: Json = self.candidate.get("groundingMetadata") or {}
        self.same = same
        self.unit: Unit = unit
        self.offsets = Offsets(answer.text)
        self.words = ClaimTextBudget(answer)
        self.sources = {source.id: source for source in answer.sources}
        # Chunks by identity: their old index, or their content.
        self.chunks: dict[Any, Any] = {}
        self.known: dict[Any, Any] = {}
        self.places: dict[Any, int] = {}
        self.grown = 0

    def response(self, native: Native | None, groups: list[tuple[Citation, ...]]) -> Json:
        supports, alone, notices = groups
        named = [[self._chunk(ref) for ref in citation.refs] for citation in supports]
        for citation in alone:
            self._chunk(citation.refs[0], citation.id)
        chunks = self._ordered_chunks()
        written = [self._support(*pair) for pair in zip(supports, named, strict=True)]
        kept = [(at, self._kept_support(support)) for at, support in self.kept.supports]
        grounding = {"groundingChunks": chunks, "groundingSupports": interleave(kept, written)}
        fields = {
            "content": self._content(),
            "groundingMetadata": _with_lists(self.candidate.get("groundingMetadata"), grounding),
        }
        key, _ = notices_of(self.candidate, "$")
        found = {
            key: interleave(
                self.kept.notices, [self._notice(one, one.native) for one in notices if one.native]
            )
        }
        fields["citationMetadata"] = _with_lists(self.candidate.get("citationMetadata"), found)
        candidate = overlay(
            self.candidate, {name: value for name, value in fields.items() if value is not None}
        )
        if native is None:
            return overlay({"candidates": [candidate]}, {"responseId": self.answer.id})
        response = put_at(native.raw, ("candidates", native.at), candidate)
        return overlay(response, {"responseId": self.answer.id})

    def _chunk(self, ref: SourceRef, owner: str | None = None) -> Any:
        """Return the identity of a reference's chunk; equal references to one source share a chunk."""
        native = native_for(ref.native, NAME)
        identity = (ref.source_id, ref.locator, ref.quote, native and native.at[0], owner)
        if identity not in self.known:
            place = native.at[0] if native else None
            key = identity if place is None or place in self.chunks else place
            self.known[identity] = key
            self.chunks[key] = write_chunk(content_of(ref, self.sources[ref.source_id]), native)
        return self.known[identity]

    def _ordered_chunks(self) -> list[Any]:
        """Return the chunks: old ones in their order, then new ones."""
        old: list[Any] = self.grounding.get("groundingChunks") or []
        pinned = [(at, at) for at in self.kept.chunks if 0 <= at < len(old) and at not in self.chunks]
        had = sorted(key for key in self.chunks if isinstance(key, int))
        new = [key for key in self.chunks if not isinstance(key, int)]
        keys = interleave(pinned, [*((key, key) for key in had), *((None, key) for key in new)])
        self.places = {key: place for place, key in enumerate(keys)}
        self.grown = max(0, len(keys) - len(old))
        return [self.chunks[key] if key in self.chunks else old[key] for key in keys]

    def _renumbered(self, index: Any) -> Any:
        """Map an index of an unreadable support: to its chunk's new index, or equally far past the end."""
        if type(index) is not int or index < 0:
            return index
        return self.places.get(index, index + self.grown)

    def _kept_support(self, support: Any) -> Any:
        if not is_object(support) or not is_list(indices := support.get("groundingChunkIndices")):
            return support
        return {**support, "groundingChunkIndices": [self._renumbered(index) for index in indices]}

    def _support(self, citation: Citation, chunks: list[Any]) -> tuple[int | None, Json]:
        native = native_for(citation.native, NAME)
        if native is not None and native.at[0] != "support":
            native = None
        raw: Json = native.raw if native else {}
        fields: Json = {"groundingChunkIndices": [self.places[key] for key in chunks]}
        scores = [ref.score for ref in citation.refs]
        if scores[0] is not None or scores_of(raw):
            fields["confidenceScores"] = None if scores[0] is None else scores
        if find_unchanged_native(citation, NAME, self.same) is None or native is None:
            fields["segment"] = citation.claim and self._segment(raw.get("segment"), citation.claim)
        return (native.at[1] if native else None), overlay(raw, fields)

    def _segment(self, raw: Json | None, claim: Span) -> Json:
        return overlay(raw, {"partIndex": None, **self._span(raw, claim), "text": self.words.text_of(claim)})

    def _span(self, raw: Json | None, claim: Span) -> Json:
        """Return the offsets of a claim; a start of zero is omitted unless it was there."""
        start = self.offsets.to_unit(claim.start, self.unit)
        said = start != 0 or (raw is not None and raw.get("startIndex") == 0)
        end = self.offsets.to_unit(claim.end, self.unit)
        return {"startIndex": start if said else None, "endIndex": end}

    def _notice(self, citation: Citation, native: Native) -> tuple[int, Json]:
        source = self.sources[citation.refs[0].source_id]
        fields: Json = {"uri": source.url, "title": source.title}
        if citation.claim and find_unchanged_native(citation, NAME, self.same) is None:
            fields |= self._span(native.raw, citation.claim)
        return native.at[1], overlay(native.raw, fields)

    def _content(self) -> Json | None:
        """Return the content, with the text in its original parts as far as it is unchanged."""
        raw: Json | None = self.candidate.get("content")
        if not self.answer.parts:
            return raw
        text, at = self.answer.text, 0
        old = parts_of(self.candidate, "$")
        last = max((number for number, part in enumerate(old) if is_text(part)), default=None)
        if last is None:
            return overlay(raw or {"role": "model"}, {"parts": [*old, {"text": text}]})
        parts: list[Any] = []
        is_theirs = True
        for number, part in enumerate(old):
            if not is_text(part):
                parts.append(part)
            elif is_theirs:
                is_theirs = number != last and text.startswith(part["text"], at)
                rest = part["text"] if is_theirs else text[at:]
                at += len(rest)
                parts.append({**part, "text": rest})
        return overlay(raw, {"parts": parts})


def _with_lists(raw: Json | None, lists: dict[str, list[Any]]) -> Json | None:
    """Update `raw` with `lists`; an empty list removes an existing one and adds none."""
    found: Json = raw or {}
    fields = {key: items or None for key, items in lists.items() if items or found.get(key)}
    return overlay(raw, fields) if fields else raw
