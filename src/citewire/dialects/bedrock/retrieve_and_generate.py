"""Bedrock RetrieveAndGenerate: a list `citations`, separate from `output.text`.

A citation is a claim with the passages retrieved for it, or none if the model used its own knowledge. The
unit of `span` and whether its end is inclusive are undocumented: code points and an exclusive end are
assumed, and the cited words confirm them. Title, page and chunk are entries of a passage's metadata.
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
    Chunk,
    Citation,
    Locator,
    Native,
    Pages,
    Part,
    Source,
    SourceKind,
    SourceRef,
    Span,
    SpanOrigin,
    Written,
)
from citewire.text import Offsets, Unit

NAME = "bedrock.rag"
UPSTREAM = "botocore 1.44.0, bedrock-agent-runtime RetrieveAndGenerate"
SUPPORTED_FIELDS = frozenset(
    {
        "answer.id",
        "claim",
        "refs.locator.chunk",
        "refs.locator.pages",
        "refs.quote",
        "source.file_id",
        "source.metadata",
        "source.title",
        "source.url",
    }
)

UNIT: Unit = "codepoints"
_PAGE = "x-amz-bedrock-kb-document-page-number"
_CHUNK = "x-amz-bedrock-kb-chunk-id"
# Metadata entries that the model has its own fields for.
_NAMED = frozenset({"title", _PAGE, _CHUNK})
# More pages than any document has, and still exact as a float.
_MANY = 2**53
_PART, _REFERENCES = "generatedResponsePart", "retrievedReferences"


def detect(payload: Any) -> bool:
    output = payload.get("output") if is_object(payload) else None
    if not is_object(output) or not isinstance(output.get("text"), str):
        return False
    citations = payload.get("citations")
    return is_list(citations) and all(map(is_citation, citations))


def is_citation(entry: Any) -> bool:
    return is_object(entry) and (_PART in entry or _REFERENCES in entry)


def read_all(payload: Any, options: DialectOptions) -> tuple[Answer, ...]:
    if not is_object(payload):
        raise ShapeError("a response is not an object")
    return (read_response(payload, options.unit or UNIT),)


def read_response(response: Json, unit: Unit) -> Answer:
    """Read the answer in a response."""
    text = require(require(response, "output", dict, "$"), "text", str, "$.output")
    reader = _Reader(text, unit)
    for at, entry in enumerate(optional(response, "citations", list, "$") or ()):
        reader.read(at, entry)
    return Answer(
        parts=(Part(text),),
        citations=tuple(reader.citations),
        sources=tuple(reader.sources),
        id=optional(response, "sessionId", str, "$"),
        problems=tuple(reader.problems),
        native=Native(NAME, response, kept=tuple(reader.kept), was=unit),
    )


class _Reader:
    def __init__(self, text: str, unit: Unit) -> None:
        self.unit: Unit = unit
        self.citations: list[Citation] = []
        self.sources = SourceRegistry()
        self.problems = ProblemList()
        self.kept: list[tuple[int, Any]] = []
        self._offsets = Offsets(text)

    def read(self, at: int, entry: Any) -> None:
        if is_object(entry) and entry.get(_REFERENCES) == []:
            self.kept.append((at, entry))  # states that these words have no citation
            return
        try:
            self.citations.append(self._citation(at, entry))
        except InputError as exc:
            self.problems.add(f"$.citations[{at}]", exc)
            self.kept.append((at, entry))

    def _citation(self, at: int, entry: Any) -> Citation:
        if not is_object(entry):
            raise ShapeError("a citation is not an object", "")
        claim, origin = self._claim(entry)
        raws = require(entry, _REFERENCES, list)
        contents = list(map(_read_reference, raws))
        refs = tuple(map(self._ref, contents, raws))
        native = Native(NAME, entry, at, was=(claim, origin))
        return Citation(f"c{len(self.citations) + 1}", refs, claim=claim, span_origin=origin, native=native)

    def _claim(self, entry: Json) -> tuple[Span | None, SpanOrigin]:
        where = f".{_PART}.textResponsePart"
        part = optional(optional(entry, _PART, dict) or {}, "textResponsePart", dict, f".{_PART}") or {}
        span = optional(part, "span", dict, where) or {}
        words = optional(part, "text", str, where)
        start, end = (
            optional(span, "start", int, f"{where}.span"),
            optional(span, "end", int, f"{where}.span"),
        )
        if end is None and not words:
            return None, "unknown"
        return read_claim(self._offsets, start or 0, end or 0, self.unit, words)

    def _ref(self, content: _Content, raw: Json) -> SourceRef:
        source_id = self.sources.add(
            content.kind, content.url, content.title, file_id=content.file_id, metadata=content.metadata
        )
        native = Native(NAME, raw, was=content)
        return SourceRef(source_id, content.locator, content.quote, native=native)


class _Content(NamedTuple):
    """The fields of a retrieved reference."""

    kind: SourceKind
    metadata: Json
    url: str | None
    title: str | None
    file_id: str | None
    locator: Locator | None
    quote: str | None


def _read_reference(reference: Any) -> _Content:
    if not is_object(reference):
        raise ShapeError("a reference is not an object", f".{_REFERENCES}")
    where = f".{_REFERENCES}"
    content = optional(reference, "content", dict, where) or {}
    location = optional(reference, "location", dict, where) or {}
    metadata = optional(reference, "metadata", dict, where) or {}
    places = [value for value in location.values() if is_object(value)]
    return _Content(
        "web" if is_object(location.get("webLocation")) else "document",
        {key: value for key, value in metadata.items() if key not in _NAMED},
        next((url for place in places if (url := _words(place, "uri") or _words(place, "url"))), None),
        _words(metadata, "title"),
        next((name for place in places if (name := _words(place, "id"))), None),
        _locator(metadata),
        optional(content, "text", str, f"{where}.content"),
    )


def _words(raw: Json, key: str) -> str | None:
    return value if isinstance(value := raw.get(key), str) else None


def _locator(metadata: Json) -> Locator | None:
    """Return the page, which can be any kind of number, else the chunk."""
    page = metadata.get(_PAGE)
    if isinstance(page, (int, float)) and 1 <= page < _MANY and page == int(page):
        return Pages(int(page), int(page))
    chunk = _words(metadata, _CHUNK)
    return None if chunk is None else Chunk(chunk)


def write(answer: Answer, options: DialectOptions) -> Written:
    fitting = fit_to_claims(answer, NAME)
    fitting.join_parts()
    native = native_for(answer.native, NAME)
    unit: Unit = options.unit or (native.was if native else UNIT)
    raw: Json = native.raw if native else {"output": {}}
    is_same = native and native.was == unit and raw["output"]["text"] == fitting.answer.text
    same = {0} if is_same else set[int]()
    moved = _moved_sources(fitting)
    for source in fitting.cited_sources():
        fitting.sources[source.id] = _fit_source(source, fitting, has_moved=source.id in moved)
    fitting.map_citations(lambda citation: _fit_refs(citation, fitting))
    fit = fitting.finish(SUPPORTED_FIELDS, kind=lambda source: source.kind, origin=origin_of(NAME, same))
    writer = _Writer(fit, unit, same)
    citations = interleave(native.kept if native else None, list(map(writer.citation, fit.citations)))
    fields: Json = {"sessionId": fit.id, "output": overlay(raw["output"], {"text": fit.text})}
    if citations or native is None or raw.get("citations"):
        fields["citations"] = citations
    return Written(overlay(raw, fields), tuple(fitting.losses))


def _moved_sources(fitting: Adaptation) -> set[str]:
    """Return the sources that need a new location: those with a reference whose location has changed."""
    moved: set[str] = set()
    for citation in fitting.answer.citations:
        for ref in citation.refs:
            source, native = fitting.sources[ref.source_id], native_for(ref.native, NAME)
            if native is None or _place_of(native.was) != (source.kind, source.url, source.file_id):
                moved.add(source.id)
    return moved


def _fit_source(source: Source, fitting: Adaptation, *, has_moved: bool) -> Source:
    """Give the source one location: a URL, else the id of a custom document."""
    changes: dict[str, Any] = {}

    def change(field: str, value: Any, reason: str) -> None:
        changes[field] = value
        fitting.record_loss(f"source.{field}", reason, source=source.id)

    metadata = {key: value for key, value in source.metadata.items() if key not in _NAMED}
    if metadata != source.metadata:
        change("metadata", metadata, "title, page and chunk have places of their own")
    if not has_moved:
        return replace(source, **changes) if changes else source
    if source.url == "":
        change("url", None, "an empty one reads as none")
    if source.file_id is not None and (source.url or source.file_id == ""):
        change("file_id", None, "a reference has one location, and an address comes first")
    if (kind := _kind(source)) != source.kind:
        change("kind", kind, f"{source.kind} will read as {kind}")
    return replace(source, **changes) if changes else source


def _kind(source: Source) -> SourceKind:
    """Return the kind that a reader infers: a URL that is not `s3://` is a web page."""
    return "web" if source.url and not source.url.startswith("s3://") else "document"


def _fit_refs(citation: Citation, fitting: Adaptation) -> Citation:
    """Reduce page ranges to the first page: a reference holds only one."""
    refs: list[SourceRef] = []
    for ref in citation.refs:
        locator = ref.locator
        if isinstance(locator, Pages) and locator.first != locator.last:
            fitting.record_loss("refs.locator", "a reference has one page", citation=citation.id)
            locator = Pages(locator.first, locator.first)
        refs.append(ref if locator is ref.locator else replace(ref, locator=locator))
    return replace(citation, refs=tuple(refs))


class _Writer:
    def __init__(self, answer: Answer, unit: Unit, same: set[int]) -> None:
        self._unit: Unit = unit
        self._same = same
        self._offsets = Offsets(answer.text)
        self._words = ClaimTextBudget(answer)
        self._sources = {source.id: source for source in answer.sources}

    def citation(self, citation: Citation) -> tuple[int | None, Json]:
        native = native_for(citation.native, NAME)
        raw: Json = native.raw if native else {}
        fields: Json = {}
        if find_unchanged_native(citation, NAME, self._same) is None:
            fields[_PART] = citation.claim and self._part(citation.claim, raw.get(_PART))
        fields[_REFERENCES] = [_reference(ref, self._sources[ref.source_id]) for ref in citation.refs]
        return (native.at if native else None), overlay(raw, fields)

    def _part(self, claim: Span, raw: Json | None) -> Json:
        old: Json = (raw or {}).get("textResponsePart") or {}
        span = {
            "start": self._offsets.to_unit(claim.start, self._unit),
            "end": self._offsets.to_unit(claim.end, self._unit),
        }
        part = overlay(old, {"text": self._words.text_of(claim), "span": overlay(old.get("span"), span)})
        return overlay(raw, {"textResponsePart": part})


def _reference(ref: SourceRef, source: Source) -> Json:
    """Write a reference; one whose content is unchanged stays as it was read."""
    content = _Content(
        source.kind, source.metadata, source.url, source.title, source.file_id, ref.locator, ref.quote
    )
    native = native_for(ref.native, NAME)
    if native is not None and native.was == content:
        return native.raw
    raw: Json = native.raw if native else {}
    fields: Json = {}
    old_content: Json = raw.get("content") or {}
    if content.quote is not None or old_content:
        said = {"type": "TEXT", "text": content.quote} if content.quote is not None else {"text": None}
        fields["content"] = overlay(old_content, said)
    if native is None or _place_of(native.was) != _place_of(content):
        fields["location"] = _location(content)
    held: Json = raw.get("metadata") or {}
    old = {key: value for key, value in held.items() if key in _NAMED}
    page = content.locator.first if isinstance(content.locator, Pages) else None
    chunk = content.locator.id if isinstance(content.locator, Chunk) else None
    named: Json = {"title": content.title, _PAGE: page}
    if page is None:
        named[_CHUNK] = chunk
    metadata = overlay(old, named) | content.metadata
    fields["metadata"] = metadata if metadata or raw.get("metadata") == {} else None
    return overlay(raw, fields)


def _place_of(content: _Content) -> tuple[Any, ...]:
    return content.kind, content.url, content.file_id


def _location(content: _Content) -> Json | None:
    if content.url is None:
        own = {"type": "CUSTOM", "customDocumentLocation": {"id": content.file_id}}
        return None if content.file_id is None else own
    if content.kind == "web":
        return {"type": "WEB", "webLocation": {"url": content.url}}
    return {"type": "S3", "s3Location": {"uri": content.url}}
