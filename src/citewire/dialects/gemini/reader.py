"""Reads candidates of `generateContent` responses."""

from __future__ import annotations

from collections.abc import Callable
from itertools import accumulate
from typing import Any, NamedTuple

from citewire.dialects.base import (
    DialectOptions,
    Json,
    ProblemList,
    SourceRegistry,
    is_list,
    is_object,
    optional,
    require,
)
from citewire.dialects.common.claims import read_claim
from citewire.dialects.gemini.grounding_chunks import ChunkContent, read_chunk
from citewire.errors import InputError, ShapeError
from citewire.model import Answer, Citation, Native, Part, SourceRef, Span, SpanOrigin
from citewire.text import Offsets, Unit

__all__ = [
    "NAME",
    "UNIT",
    "UnreadGrounding",
    "detect",
    "is_text",
    "notices_of",
    "parts_of",
    "read_all",
    "read_candidate",
    "scores_of",
]


NAME = "gemini"
UNIT: Unit = "utf8"
_CHUNKS, _SUPPORTS = "groundingMetadata.groundingChunks", "groundingMetadata.groundingSupports"


def detect(payload: Any) -> bool:
    candidates = payload.get("candidates") if is_object(payload) else None
    return is_list(candidates) and bool(candidates) and all(map(_is_candidate, candidates))


def _is_candidate(candidate: Any) -> bool:
    content = candidate.get("content") if is_object(candidate) else None
    return is_object(candidate) and (is_object(content) or "finishReason" in candidate)


def read_all(payload: Any, options: DialectOptions) -> tuple[Answer, ...]:
    if not is_object(payload):
        raise ShapeError("a response is not an object")
    candidates = require(payload, "candidates", list, "$")
    return tuple(read_candidate(payload, number, options.unit or UNIT) for number in range(len(candidates)))


def read_candidate(response: Json, number: int, unit: Unit) -> Answer:
    """Read the answer in one candidate of a response."""
    where = f"$.candidates[{number}]"
    candidate = response["candidates"][number]
    if not is_object(candidate):
        raise ShapeError("a candidate is not an object", where)
    reader = _Reader(candidate, where, unit)
    reader.read()
    return Answer(
        parts=tuple(reader.parts),
        citations=tuple(reader.citations),
        sources=tuple(reader.sources),
        id=optional(response, "responseId", str, "$"),
        problems=tuple(reader.problems),
        native=Native(NAME, response, number, reader.kept, unit),
    )


class UnreadGrounding(NamedTuple):
    """What could not be read: supports and notices with their indexes, and the indexes of unreadable chunks
    and of all chunks that unreadable supports refer to."""

    chunks: set[int]
    supports: list[tuple[int, Any]]
    notices: list[tuple[int, Any]]


class _Reader:
    """Reads a candidate: its supports, then the chunks without a support, then its notices."""

    def __init__(self, candidate: Json, where: str, unit: Unit) -> None:
        self.problems = ProblemList()
        self.sources = SourceRegistry()
        self.citations: list[Citation] = []
        self.kept = UnreadGrounding(set(), [], [])
        self._where = where
        self._unit: Unit = unit
        raws = parts_of(candidate, where)
        texts = [raw["text"] if is_text(raw) else "" for raw in raws]
        self._answers = [at for at, raw in enumerate(raws) if is_text(raw)]
        self._is_answer = set(self._answers)
        self._starts = list(accumulate(map(len, texts), initial=0))
        self._offsets = Offsets("".join(texts))
        self.parts = [Part(self._offsets.text)] if self._answers else []
        grounding = optional(candidate, "groundingMetadata", dict, where) or {}
        self._chunks = optional(grounding, "groundingChunks", list, f"{where}.groundingMetadata") or []
        self._supports = optional(grounding, "groundingSupports", list, f"{where}.groundingMetadata") or []
        self._notices = notices_of(candidate, where)
        self._contents: dict[int, ChunkContent] = {}
        self._source_ids: dict[int, str] = {}

    def read(self) -> None:
        named: set[int] = set()
        for at, support in enumerate(self._supports):
            names = _named_by(support)
            named |= names
            if not self._read(_SUPPORTS, at, support, self._support):
                self.kept.supports.append((at, support))
                self.kept.chunks.update(names)
        self.kept.chunks.update(named - self._contents.keys())
        for at, chunk in enumerate(self._chunks):
            if at not in named and not self._read(_CHUNKS, at, chunk, self._alone):
                self.kept.chunks.add(at)
        for at, notice in enumerate(self._notices[1]):
            if not self._read(f"citationMetadata.{self._notices[0]}", at, notice, self._notice):
                self.kept.notices.append((at, notice))

    def _read(self, field: str, at: int, raw: Any, read: Callable[[Any, int], Citation]) -> bool:
        try:
            self.citations.append(read(raw, at))
        except InputError as exc:
            self.problems.add(f"{self._where}.{field}[{at}]", exc)
            return False
        return True

    @property
    def _name(self) -> str:
        return f"c{len(self.citations) + 1}"

    def _support(self, support: Any, at: int) -> Citation:
        if not is_object(support):
            raise ShapeError("a support is not an object", "")
        claim, origin = self._segment(optional(support, "segment", dict) or {})
        indices = require(support, "groundingChunkIndices", list)
        if not indices:
            raise ShapeError("points to no source", ".groundingChunkIndices")
        scores = scores_of(support) or [None] * len(indices)
        contents = [self._content(index) for index in indices]
        refs = [self._ref(*ref) for ref in zip(indices, contents, range(len(indices)), scores, strict=True)]
        native = Native(NAME, support, ("support", at), was=(claim, origin))
        return Citation(self._name, tuple(refs), claim=claim, span_origin=origin, native=native)

    def _segment(self, segment: Json) -> tuple[Span | None, SpanOrigin]:
        part, start = optional(segment, "partIndex", int) or 0, optional(segment, "startIndex", int) or 0
        end, words = optional(segment, "endIndex", int), optional(segment, "text", str)
        if end is None and not words:
            return None, "unknown"
        return self._claim(part, start, end or 0, words)

    def _claim(self, part: int, start: int, end: int, words: str | None) -> tuple[Span, SpanOrigin]:
        """Return the claim, with offsets from the start of the part; if the words are not there, try other
        plausible starts, and then any occurrence of the words."""
        base = 0
        if part:
            bases = self._bases(part)
            base = next((one for one in bases if self._says(words, start + one, end + one)), bases[0])
        return read_claim(self._offsets, start + base, end + base, self._unit, words)

    def _says(self, words: str | None, start: int, end: int) -> bool:
        found = self._offsets.span(start, end, self._unit)
        return found is not None and (not words or self._offsets.text.startswith(words, found.start))

    def _bases(self, part: int) -> list[int]:
        """Return the possible starts of a part in the payload's unit. Models disagree on whether thoughts and
        tools count as parts, and some always count from the start of the text."""
        parts = [part] if part in self._is_answer else []
        parts += self._answers[part : part + 1] if part > 0 else []
        return [*(self._offsets.to_unit(self._starts[at], self._unit) for at in parts), 0]

    def _content(self, index: Any) -> ChunkContent:
        if type(index) is not int or not 0 <= index < len(self._chunks):
            raise ShapeError(f"there is no chunk {index!r:.40}", "")
        if index not in self._contents:
            self._contents[index] = read_chunk(self._chunks[index])
        return self._contents[index]

    def _ref(
        self, index: int, content: ChunkContent, place: int = 0, score: float | None = None
    ) -> SourceRef:
        native = Native(NAME, self._chunks[index], (index, place), was=content)
        source_id = self._source(index, content)
        return SourceRef(source_id, content.locator, content.quote, score=score, native=native)

    def _source(self, index: int, content: ChunkContent) -> str:
        """Return the source id of a chunk, the same for every support."""
        if index not in self._source_ids:
            self._source_ids[index] = self.sources.add(
                content.kind,
                content.url,
                content.title,
                domain=content.domain,
                file_id=content.file_id,
                record_id=content.record_id,
                metadata=content.metadata,
            )
        return self._source_ids[index]

    def _alone(self, _: Any, at: int) -> Citation:
        native = Native(NAME, at=("chunk", at), was=(None, "unknown"))
        return Citation(self._name, (self._ref(at, self._content(at)),), native=native)

    def _notice(self, notice: Any, at: int) -> Citation:
        if not is_object(notice):
            raise ShapeError("a notice is not an object", "")
        start, end = optional(notice, "startIndex", int) or 0, require(notice, "endIndex", int)
        claim, origin = read_claim(self._offsets, start, end, self._unit)
        source_id = self.sources.add("web", optional(notice, "uri", str), optional(notice, "title", str))
        native = Native(NAME, notice, ("notice", at), was=(claim, origin))
        return Citation(self._name, (SourceRef(source_id),), claim=claim, span_origin=origin, native=native)


def parts_of(candidate: Json, where: str) -> list[Any]:
    content = optional(candidate, "content", dict, where) or {}
    return optional(content, "parts", list, f"{where}.content") or []


def is_text(part: Any) -> bool:
    return is_object(part) and isinstance(part.get("text"), str) and not part.get("thought")


def notices_of(candidate: Json, where: str) -> tuple[str, list[Any]]:
    """Return the notices and their field name, which differs between the two APIs."""
    metadata = optional(candidate, "citationMetadata", dict, where) or {}
    key = "citationSources" if "citationSources" in metadata else "citations"
    return key, optional(metadata, key, list, f"{where}.citationMetadata") or []


def _named_by(support: Any) -> set[int]:
    """Return the chunks that a support refers to, readable or not."""
    indices = support.get("groundingChunkIndices") if is_object(support) else None
    return {index for index in indices if type(index) is int} if is_list(indices) else set()


def scores_of(support: Json) -> list[float] | None:
    """Return the scores of a support's chunks, None unless every chunk has one."""
    scores, indices = support.get("confidenceScores"), support.get("groundingChunkIndices")
    if not is_list(scores) or not scores or len(scores) != len(indices or ()):
        return None
    return scores if all(type(score) in (int, float) for score in scores) else None
