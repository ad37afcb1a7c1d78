"""Bedrock Converse: `citationsContent` blocks among the text blocks of a message.

A citation supports the content of its block. A block without content (Nova's web grounding) is a point at the
end of the text before it. Page ends are exclusive in the payload.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Set
from operator import is_not
from typing import Any, NamedTuple

from msgspec.structs import replace

from citewire.adapt import Adaptation
from citewire.dialects.base import (
    DialectOptions,
    Json,
    SourceRegistry,
    interleave,
    is_list,
    is_object,
    native_for,
    optional,
    overlay,
    put_at,
    require,
)
from citewire.dialects.common.blocks import (
    Block,
    BlockReader,
    claim_end,
    claim_start,
    cover_whole_text,
    cut_at_claims,
    find_unchanged_blocks,
    flatten_claims,
    join_adjacent_parts,
)
from citewire.errors import ShapeError
from citewire.model import (
    Answer,
    Blocks,
    Chars,
    Citation,
    Locator,
    Native,
    Pages,
    Part,
    Point,
    Source,
    SourceKind,
    SourceRef,
    Span,
    SpanOrigin,
    Written,
)

NAME = "bedrock.converse"
UPSTREAM = "botocore 1.44.0, bedrock-runtime Converse"
SUPPORTED_FIELDS = frozenset(
    {
        "claim",
        "insert_at",
        "refs.locator.blocks",
        "refs.locator.chars",
        "refs.locator.pages",
        "refs.quote",
        "source.domain",
        "source.index",
        "source.title",
        "source.url",
    }
)

_MESSAGE = ("output", "message")
_CITED = "citationsContent"
_DOCUMENT: dict[str, type[Chars | Pages | Blocks]] = {
    "documentChar": Chars,
    "documentPage": Pages,
    "documentChunk": Blocks,
}
_FOUND, _WEB = "searchResultLocation", "web"


def detect(payload: Any) -> bool:
    output = payload.get("output") if is_object(payload) else None
    message = output.get("message") if is_object(output) else None
    return is_object(message) and is_list(message.get("content"))


def read_all(payload: Any, options: DialectOptions) -> tuple[Answer, ...]:
    if not is_object(payload):
        raise ShapeError("a response is not an object")
    return (read_response(payload),)


def read_response(response: Json) -> Answer:
    """Read the answer in a response."""
    message = require(require(response, "output", dict, "$"), "message", dict, "$.output")
    reader = _Reader(NAME, read_ref)
    for number, block in enumerate(require(message, "content", list, "$.output.message")):
        reader.read_block(number, block)
    reader.close_part()
    return Answer(
        parts=tuple(reader.parts),
        citations=tuple(reader.citations),
        sources=tuple(reader.sources),
        problems=tuple(reader.problems),
        native=Native(NAME, response),
    )


def _is_text(block: Any) -> bool:
    """Whether a block has answer text: a text block or cited content."""
    return is_object(block) and (isinstance(block.get("text"), str) or is_object(block.get(_CITED)))


def text_of(block: Json) -> str:
    """Return the text of a text block or of cited content."""
    if isinstance(text := block.get("text"), str):
        return text
    contents = block[_CITED].get("content")
    texts = (one.get("text") for one in contents if is_object(one)) if is_list(contents) else ()
    return "".join(text for text in texts if isinstance(text, str))


class _Reader(BlockReader):
    """Reads text blocks, and cited content with its citations."""

    def read_block(self, number: int, block: Any) -> None:
        if not _is_text(block):
            self.close_part()
            return
        span = self._add(number, block, text_of(block))
        if not is_object(cited := block.get(_CITED)):
            return
        if refs := self._refs(cited, f"$.output.message.content[{number}].{_CITED}"):
            native = Native(NAME, cited, len(self._blocks) - 1)
            self.citations.append(make_block_citation(f"c{len(self.citations) + 1}", refs, span, native))


def make_block_citation(
    name: str, refs: tuple[SourceRef, ...], span: Span, native: Native | None = None
) -> Citation:
    """Make the citation of a block: it covers the block's text, or is a point if the block is empty."""
    if span.start < span.end:
        return Citation(name, refs, claim=span, span_origin="block", native=native)
    point = Point(span.part, span.start)
    return Citation(name, refs, insert_at=point, span_origin="exact", native=native)


class _Content(NamedTuple):
    """The fields of one entry of `citations`."""

    kind: SourceKind
    url: str | None
    title: str | None
    number: int | None = None
    domain: str | None = None
    locator: Locator | None = None
    quote: str | None = None


def read_ref(entry: Any, at: int, sources: SourceRegistry) -> SourceRef:
    """Read one citation of a block. Raises `ShapeError`, also for an unknown location."""
    content = _read_entry(entry)
    source_id = sources.add(
        content.kind, content.url, content.title, index=content.number, domain=content.domain
    )
    native = Native(NAME, entry, at, was=content)
    return SourceRef(source_id, content.locator, content.quote, native=native)


def _read_entry(entry: Any) -> _Content:
    if not is_object(entry):
        raise ShapeError("a citation is not an object", "")
    title, url = optional(entry, "title", str), optional(entry, "source", str)
    location = optional(entry, "location", dict) or {}
    quote = _quote(entry)
    if not location:
        return _Content("document", url, title, quote=quote)
    key = next(iter(location))
    place = require(location, key, dict, ".location")
    where = f".location.{key}"
    if key == _WEB:
        page = optional(place, "url", str, where)
        return _Content("web", page, title, domain=optional(place, "domain", str, where), quote=quote)
    if key == _FOUND:
        index = optional(place, "searchResultIndex", int, where)
        return _Content("tool", url, title, index, locator=_range(Blocks, place, where), quote=quote)
    if key not in _DOCUMENT:
        raise ShapeError(f"unknown location {key!r:.60}", ".location")
    index = optional(place, "documentIndex", int, where)
    locator = _range(_DOCUMENT[key], place, where)
    return _Content("document", url, title, index, locator=locator, quote=quote)


def _quote(entry: Json) -> str | None:
    contents = optional(entry, "sourceContent", list) or []
    texts = [one.get("text") for one in contents if is_object(one)]
    words = [text for text in texts if isinstance(text, str)]
    return "".join(words) if words else None


def _range(kind: type[Chars | Pages | Blocks], place: Json, where: str) -> Locator | None:
    start, end = optional(place, "start", int, where), optional(place, "end", int, where)
    if start is None and end is None:
        return None
    first, last = start or 0, end or 0
    if not 0 <= first <= last or (kind is Pages and not 1 <= first < last):
        raise ShapeError(f"{first} to {last} is negative, reversed or empty", where)
    return kind(first, last - 1 if kind is Pages else last)


def write(answer: Answer, options: DialectOptions) -> Written:
    fitting = Adaptation(answer, NAME)
    if answer.citations or native_for(answer.native, NAME) is None:
        fitting.require_text()
    fitting.require_refs()
    fitting.remove_markers()
    join_adjacent_parts(fitting)
    fitting.map_citations(lambda citation: _fit_place(citation, fitting))
    for source in fitting.cited_sources():
        fitting.sources[source.id] = _fit_source(source, fitting)
    fitting.map_citations(lambda citation: _fit_refs(citation, fitting))
    flatten_claims(fitting)
    _move_points_out(fitting)
    fit = fitting.finish(
        SUPPORTED_FIELDS,
        kind=lambda source: source.kind,
        origin=_origin,
        group=lambda answer: [sorted(answer.citations, key=_place_of)],
        why="citations follow the text",
    )
    return Written(_Writer(fit).response(), tuple(fitting.losses))


def _origin(citation: Citation) -> SpanOrigin:
    return "block" if citation.claim else "exact"


def _place_of(citation: Citation) -> tuple[int, ...]:
    """Return a key for reading order: points come before claims that start there, old points first."""
    if citation.claim:
        return citation.claim.part, citation.claim.start, 1
    point, native = citation.insert_at or Point(0, 0), native_for(citation.native, NAME)
    return (point.part, point.at, 0, 0, native.at) if native else (point.part, point.at, 0, 1)


def _fit_place(citation: Citation, fitting: Adaptation) -> Citation:
    """Give a citation a claim or a point, never both; one without either gets a point at the end."""
    claim, point = citation.claim, citation.insert_at
    if claim and claim.start < claim.end:
        if point:
            fitting.record_loss("insert_at", "a block stands where its text is", citation=citation.id)
        return replace(citation, insert_at=None)
    if claim:
        fitting.record_loss("claim", "has no words", citation=citation.id)
    if point is None:
        fitting.record_loss("insert_at", "required: it stands somewhere", citation=citation.id)
        last = len(fitting.answer.parts) - 1
        point = Point(claim.part, claim.start) if claim else Point(last, len(fitting.answer.parts[last].text))
    return replace(citation, claim=None, insert_at=point)


def _move_points_out(fitting: Adaptation) -> None:
    """Move each point inside a claim to the end of that claim."""
    claims = sorted(
        (claim.part, claim.start, claim.end) for c in fitting.answer.citations if (claim := c.claim)
    )

    def moved(citation: Citation) -> Citation:
        point = citation.insert_at
        at = bisect_right(claims, (point.part, point.at)) - 1 if point else -1
        if point is None or at < 0:
            return citation
        part, start, end = claims[at]
        if part != point.part or not start < point.at < end:
            return citation
        fitting.record_loss("insert_at", "moved to the end of the claim around it", citation=citation.id)
        return replace(citation, insert_at=Point(part, end))

    fitting.map_citations(moved)


def _fit_source(source: Source, fitting: Adaptation) -> Source:
    """Make the source a document, search result or web page, and drop fields that type does not support."""
    kind = source.kind
    if kind not in ("document", "tool", "web"):
        kind = "web" if source.url is not None and kind != "file" else "document"
    lost = "index" if kind == "web" else "domain"
    changes: dict[str, Any] = {} if getattr(source, lost) is None else {lost: None}
    for field in changes:
        fitting.record_loss(
            f"source.{field}", f"the location of a {kind} has no place for it", source=source.id
        )
    if kind != source.kind:
        fitting.record_loss("source.kind", f"{source.kind} will read as {kind}", source=source.id)
        changes["kind"] = kind
    return replace(source, **changes) if changes else source


def _fit_refs(citation: Citation, fitting: Adaptation) -> Citation:
    """Drop locators of web pages, and all but block locators of search results."""

    def fitted(ref: SourceRef) -> SourceRef:
        kind = fitting.sources[ref.source_id].kind
        if ref.locator is None or kind == "document" or (kind == "tool" and isinstance(ref.locator, Blocks)):
            return ref
        fitting.record_loss("refs.locator", f"the location of a {kind} cannot hold it", citation=citation.id)
        return replace(ref, locator=None)

    refs = tuple(map(fitted, citation.refs))
    return replace(citation, refs=refs) if any(map(is_not, refs, citation.refs)) else citation


class _Writer:
    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.native = native_for(answer.native, NAME)
        self.sources = {source.id: source for source in answer.sources}
        self.citations: list[list[Citation]] = [[] for _ in answer.parts]
        for citation in answer.citations:
            place = citation.claim or citation.insert_at
            self.citations[place.part if place else 0].append(citation)

    def response(self) -> Json:
        if self.native is None:
            message = {"role": "assistant", "content": self._content([])}
            return {"output": {"message": message}}
        old: list[Any] = self.native.raw["output"]["message"]["content"]
        return put_at(self.native.raw, (*_MESSAGE, "content"), self._content(old))

    def _content(self, kept: list[Any]) -> list[Any]:
        """Return the blocks of every part, with the other original blocks at their old positions."""
        content: list[Any] = []
        at = 0
        for part, citations in zip(self.answer.parts, self.citations, strict=True):
            native = native_for(part.native, NAME) if self.native else None
            if native and native.at >= at:
                content += [block for block in kept[at : native.at] if not _is_text(block)]
                at = native.at + len(native.raw)
            content += self._part(part, native, citations)
        return content + [block for block in kept[at:] if not _is_text(block)]

    def _part(self, part: Part, native: Native | None, citations: list[Citation]) -> list[Json]:
        claims = {
            (claim_start(citation), claim_end(citation)): citation for citation in citations if citation.claim
        }
        points = [(point.at, citation) for citation in citations if (point := citation.insert_at)]
        blocks = _arranged(part, native, claims.keys(), {at for at, _ in points})
        empty = {(block.start, block.number) for block in blocks if block.start == block.end and block.raw}
        standing = {place: one for at, one in points if (place := (at, _number(one))) in empty}
        new = deque((at, one) for at, one in points if standing.get((at, _number(one))) is not one)
        written: list[Json] = []
        for block in blocks:
            while new and block.start < block.end and new[0][0] <= block.start:
                written += self._block("", new.popleft()[1], _NEW)
            text = part.text[block.start : block.end]
            cited = (
                claims.get((block.start, block.end)) if text else standing.get((block.start, block.number))
            )
            written += self._block(text, cited, block)
        for _, citation in new:
            written += self._block("", citation, _NEW)
        return written

    def _block(self, text: str, citation: Citation | None, old: Block) -> list[Json]:
        """Return the block as a list, which is empty if nothing remains of the block."""
        entries = interleave(old.kept, [self._entry(ref) for ref in citation.refs] if citation else [])
        held = old.raw.get(_CITED)
        cited = held if is_object(held) else None
        was_cited = cited is not None and is_list(cited.get("citations")) and bool(cited["citations"])
        if not entries and (cited is None or was_cited):
            raw = old.raw if cited is None else None
            return [overlay(raw, {"text": text})] if text or cited is None else []
        fields: Json = {"citations": entries} if entries else {}
        if cited is None or text_of(old.raw) != text:
            fields["content"] = [{"text": text}] if text else None
        return [{**(old.raw if cited is not None else {}), _CITED: overlay(cited, fields)}]

    def _entry(self, ref: SourceRef) -> tuple[int | None, Json]:
        """Write an entry; one whose content is unchanged stays as it was read."""
        source, native = self.sources[ref.source_id], native_for(ref.native, NAME)
        content = _Content(
            source.kind, source.url, source.title, source.index, source.domain, ref.locator, ref.quote
        )
        if native is not None and native.was == content:
            return native.at, native.raw
        raw: Json = native.raw if native else {}
        fields: Json = {"title": content.title, "location": _location(content, raw.get("location"))}
        if content.kind != "web":
            fields["source"] = content.url
        if native is None or native.was.quote != content.quote:
            fields["sourceContent"] = None if content.quote is None else [{"text": content.quote}]
        return (native.at if native else None), overlay(raw, fields)


_NEW = Block(0, 0, {})


def _number(citation: Citation) -> int | None:
    """Return the number of the block that a citation was read from."""
    native = native_for(citation.native, NAME)
    return native.at if native else None


def _arranged(
    part: Part, native: Native | None, claims: Set[tuple[int, int]], points: set[int]
) -> list[Block]:
    """Return the blocks of a part: the old ones if they still fit, else cut anew, also at every point."""
    old = find_unchanged_blocks(part, native, text_of)
    spans = {(block.start, block.end) for block in old}
    edges = {edge for span in spans for edge in span}
    if cover_whole_text(old, len(part.text)) and claims <= spans and points <= edges:
        return old
    empty = [block for block in old if block.start == block.end and _CITED in block.raw]
    marks = [(at, at) for at in {*points, *(block.start for block in empty)}]
    pieces = cut_at_claims(len(part.text), [*claims, *marks], old)
    return sorted([*empty, *pieces], key=lambda block: (block.start, block.end))


def _location(content: _Content, raw: Json | None) -> Json | None:
    place: Json
    match content:
        case _Content(kind="web"):
            key, place = _WEB, {"url": content.url, "domain": content.domain}
        case _Content(kind="tool"):
            key, place = _FOUND, {"searchResultIndex": content.number, **_edges(content.locator)}
        case _Content(number=None, locator=None):
            return None
        case _:
            key = next(
                (key for key, kind in _DOCUMENT.items() if type(content.locator) is kind), "documentChar"
            )
            place = {"documentIndex": content.number, **_edges(content.locator)}
    old: Json | None = raw.get(key) if raw else None
    return {key: overlay(old, place)}


def _edges(locator: Locator | None) -> Json:
    match locator:
        case Pages(first, last):
            return {"start": first, "end": last + 1}
        case Chars(start, end) | Blocks(start, end):
            return {"start": start, "end": end}
        case _:
            return {"start": None, "end": None}
