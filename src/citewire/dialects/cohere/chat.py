"""Cohere Chat v2: `message.citations`.

A citation is a claim in one of the text contents, with the free-form documents or tool outputs that support
it. Whether offsets are code points or UTF-16 units is unknown: code points are assumed, and the cited words
confirm them. Citations of a plan or of thinking have no position in the answer.
"""

from __future__ import annotations

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
from citewire.dialects.common.claims import (
    ClaimTextBudget,
    find_unchanged_native,
    fit_to_claims,
    origin_of,
    read_claim,
)
from citewire.errors import InputError, ShapeError
from citewire.model import (
    Answer,
    Citation,
    Native,
    Part,
    Source,
    SourceKind,
    SourceRef,
    Span,
    SpanOrigin,
    Written,
)
from citewire.text import Offsets, Unit

NAME = "cohere"
UPSTREAM = "cohere 7.3.1, Chat API v2"
SUPPORTED_FIELDS = frozenset(
    {
        "answer.id",
        "claim",
        "refs.quote",
        "source.file_id",
        "source.metadata",
        "source.title",
        "source.url",
    }
)

UNIT: Unit = "codepoints"
# The field with a source's content, by source type.
_BODIES: dict[SourceKind, str] = {"document": "document", "tool": "tool_output"}
_NAMED = frozenset({"snippet", "text", "title", "url"})
_IN_TEXT = frozenset({None, "TEXT_CONTENT"})
# Words without a content index are searched in at most this many texts, more than any answer has.
_MOST_TEXTS = 32


def detect(payload: Any) -> bool:
    message = payload.get("message") if is_object(payload) else None
    if not is_object(message) or message.get("role") != "assistant" or "choices" in payload:
        return False
    is_cited = is_list(message.get("citations"))
    return is_list(message.get("content")) and (is_cited or "finish_reason" in payload)


def read_all(payload: Any, options: DialectOptions) -> tuple[Answer, ...]:
    if not is_object(payload):
        raise ShapeError("a response is not an object")
    return (read_response(payload, options.unit or UNIT),)


def read_response(response: Json, unit: Unit) -> Answer:
    """Read the answer in a response."""
    message = require(response, "message", dict, "$")
    contents = optional(message, "content", list, "$.message") or []
    reader = _Reader([(at, content) for at, content in enumerate(contents) if _is_text(content)], unit)
    for at, entry in enumerate(optional(message, "citations", list, "$.message") or ()):
        reader.read(at, entry)
    return Answer(
        parts=tuple(reader.parts),
        citations=tuple(reader.citations),
        sources=tuple(reader.sources),
        id=optional(response, "id", str, "$"),
        problems=tuple(reader.problems),
        native=Native(NAME, response, kept=tuple(reader.kept), was=unit),
    )


def _is_text(content: Any) -> bool:
    return is_object(content) and content.get("type") == "text" and isinstance(content.get("text"), str)


class _Reader:
    def __init__(self, texts: list[tuple[int, Json]], unit: Unit) -> None:
        self.unit: Unit = unit
        self.parts = [
            Part(content["text"], Native(NAME, content, at, was=number))
            for number, (at, content) in enumerate(texts)
        ]
        self.citations: list[Citation] = []
        self.sources = SourceRegistry()
        self.problems = ProblemList()
        self.kept: list[tuple[int, Any]] = []
        self._offsets = [Offsets(part.text) for part in self.parts]
        self._numbers = {at: number for number, (at, _) in enumerate(texts)}

    def read(self, at: int, entry: Any) -> None:
        try:
            self.citations.append(self._citation(at, entry))
        except InputError as exc:
            self.problems.add(f"$.message.citations[{at}]", exc)
            self.kept.append((at, entry))

    def _citation(self, at: int, entry: Any) -> Citation:
        if not is_object(entry):
            raise ShapeError("a citation is not an object", "")
        claim, origin = self._claim(entry)
        contents = [_read_source(source) for source in require(entry, "sources", list)]
        if not contents:
            raise ShapeError("points to no source", ".sources")
        refs = tuple(
            self._ref(content, raw, place)
            for place, (content, raw) in enumerate(zip(contents, entry["sources"], strict=True))
        )
        native = Native(NAME, entry, at, was=(claim, origin))
        return Citation(f"c{len(self.citations) + 1}", refs, claim=claim, span_origin=origin, native=native)

    def _claim(self, entry: Json) -> tuple[Span | None, SpanOrigin]:
        start, end = optional(entry, "start", int), optional(entry, "end", int)
        words, index = optional(entry, "text", str), optional(entry, "content_index", int)
        says_nothing = end is None and not words
        if says_nothing or optional(entry, "type", str) not in _IN_TEXT:
            return None, "unknown"
        part = self._part(start or 0, end or 0, words, index)
        return read_claim(self._offsets[part], start or 0, end or 0, self.unit, words, part)

    def _part(self, start: int, end: int, words: str | None, index: int | None) -> int:
        """Return a citation's part: the one it names, else the first with its words at the offsets."""
        if not self.parts:
            raise ShapeError("there is no text to cite", "")
        if index is not None:
            if index not in self._numbers:
                raise ShapeError(f"content {index} is no text", ".content_index")
            return self._numbers[index]
        for number, offsets in enumerate(self._offsets[:_MOST_TEXTS]):
            found = offsets.span(start, end, self.unit)
            if found and words and offsets.text.startswith(words, found.start):
                return number
        return 0

    def _ref(self, content: _Content, raw: Json, place: int) -> SourceRef:
        source_id = self.sources.add(
            content.kind, content.url, content.title, file_id=content.file_id, metadata=content.metadata
        )
        return SourceRef(source_id, quote=content.quote, native=Native(NAME, raw, place, was=content))


class _Content(NamedTuple):
    """The fields of one entry of `sources`."""

    kind: SourceKind
    metadata: Json
    file_id: str | None
    url: str | None
    title: str | None
    quote: str | None


def _read_source(source: Any) -> _Content:
    if not is_object(source):
        raise ShapeError("a source is not an object", ".sources")
    kind: SourceKind = "tool" if require(source, "type", str, ".sources") == "tool" else "document"
    name = optional(source, "id", str, ".sources")
    body = optional(source, _BODIES[kind], dict, ".sources") or {}
    url, title = _words(body, "url"), _words(body, "title")
    quote = _words(body, _quote_key(body))
    metadata = {key: value for key, value in body.items() if not _is_own(key, body, name)}
    return _Content(kind, metadata, name, url, title, quote)


def _words(body: Json, key: str) -> str | None:
    return value if isinstance(value := body.get(key), str) else None


def _quote_key(body: Json) -> str:
    """Return the name of the document's text field, which is one of two."""
    return "snippet" if isinstance(body.get("snippet"), str) and "text" not in body else "text"


def _is_own(key: str, body: Json, name: str | None) -> bool:
    """Whether the model has its own field for a document's key."""
    return key in _NAMED or (key == "id" and name is not None and body["id"] == name)


def write(answer: Answer, options: DialectOptions) -> Written:
    fitting = fit_to_claims(answer, NAME)
    for source in fitting.cited_sources():
        fitting.sources[source.id] = _fit_source(source, fitting)
    native = native_for(answer.native, NAME)
    unit: Unit = options.unit or (native.was if native else UNIT)
    response: Json = native.raw if native else {"message": {"role": "assistant"}}
    writer = _Writer(fitting.answer, response, unit)
    same = writer.same_parts() if native and native.was == unit else set[int]()
    fit = fitting.finish(SUPPORTED_FIELDS, kind=lambda source: source.kind, origin=origin_of(NAME, same))
    citations = interleave(native.kept if native else None, writer.citations(fit, same))
    return Written(writer.response(fit, citations), tuple(fitting.losses))


def _fit_source(source: Source, fitting: Adaptation) -> Source:
    """Make the source a document or tool output; metadata must not use the keys of title, URL and text."""
    kind: SourceKind = source.kind if source.kind in _BODIES else "document"
    held = source.metadata
    metadata = {key: value for key, value in held.items() if not _is_own(key, held, source.file_id)}
    if metadata != source.metadata:
        fitting.record_loss("source.metadata", f"a {kind} has a place of its own for it", source=source.id)
    if kind != source.kind:
        fitting.record_loss("source.kind", f"{source.kind} will read as {kind}", source=source.id)
    return replace(source, kind=kind, metadata=metadata)


class _Writer:
    """Writes texts into their original contents, and citations with their sources."""

    def __init__(self, answer: Answer, response: Json, unit: Unit) -> None:
        self._unit: Unit = unit
        self._raw = response
        self._parts = answer.parts
        old: list[Any] = response["message"].get("content") or []
        others = [(at, (content, None)) for at, content in enumerate(old) if not _is_text(content)]
        texts = [self._text(number, part) for number, part in enumerate(answer.parts)]
        woven: list[tuple[Any, int | None]] = interleave(others, texts)
        self._contents = [content for content, _ in woven]
        self._places = {number: at for at, (_, number) in enumerate(woven) if number is not None}
        self._offsets = [Offsets(part.text) for part in answer.parts]

    def _text(self, number: int, part: Part) -> tuple[int | None, tuple[Json, int]]:
        native = native_for(part.native, NAME)
        content = overlay(native.raw if native else {"type": "text"}, {"text": part.text})
        return (native.at if native else None), (content, number)

    def same_parts(self) -> set[int]:
        """Return the parts whose text and position are unchanged since reading."""
        same: set[int] = set()
        for number, part in enumerate(self._parts):
            native = native_for(part.native, NAME)
            if native and (native.was, native.at) == (number, self._places[number]):
                same |= {number} if native.raw["text"] == part.text else set()
        return same

    def citations(self, answer: Answer, same: set[int]) -> list[tuple[int | None, Json]]:
        words = ClaimTextBudget(answer)
        sources = {source.id: source for source in answer.sources}
        return [self._citation(citation, same, words, sources) for citation in answer.citations]

    def _citation(
        self, citation: Citation, same: set[int], words: ClaimTextBudget, sources: dict[str, Source]
    ) -> tuple[int | None, Json]:
        native, claim = native_for(citation.native, NAME), citation.claim
        fields: Json = {"sources": [_written_source(ref, sources[ref.source_id]) for ref in citation.refs]}
        if find_unchanged_native(citation, NAME, same) is None:
            fields |= {"start": None, "end": None, "text": None, "content_index": None}
            if claim is not None:
                offsets = self._offsets[claim.part]
                fields |= {
                    "start": offsets.to_unit(claim.start, self._unit),
                    "end": offsets.to_unit(claim.end, self._unit),
                    "text": words.text_of(claim),
                    "content_index": self._places[claim.part],
                    "type": "TEXT_CONTENT",
                }
        return (native.at if native else None), overlay(native.raw if native else None, fields)

    def response(self, answer: Answer, citations: list[Any]) -> Json:
        message: Json = self._raw["message"]
        fields: Json = {}
        if self._contents or message.get("content"):
            fields["content"] = self._contents
        if citations or message.get("citations"):
            fields["citations"] = citations or None
        return overlay(self._raw, {"id": answer.id, "message": overlay(message, fields)})


def _written_source(ref: SourceRef, source: Source) -> Json:
    """Write an entry of `sources`; one whose content is unchanged stays as it was read."""
    content = _Content(source.kind, source.metadata, source.file_id, source.url, source.title, ref.quote)
    native = native_for(ref.native, NAME)
    if native is not None and native.was == content:
        return native.raw
    key = _BODIES[content.kind]
    raw: Json = native.raw if native and native.was.kind == content.kind else {"type": content.kind}
    old: Json = raw.get(key) or {}
    named: Json = {"title": content.title, "url": content.url, _quote_key(old): content.quote}
    if content.quote is None:
        named |= {"text": None, "snippet": None}
    if "id" in old:
        named["id"] = content.file_id
    own = {name: value for name, value in old.items() if _is_own(name, old, native and native.was.file_id)}
    return overlay(raw, {"id": content.file_id, key: overlay(own, named) | content.metadata})
