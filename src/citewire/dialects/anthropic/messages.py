"""Anthropic Messages: citations on text blocks.

A citation supports its whole block, and the format has no offsets into the answer. The reader computes them
by joining adjacent text blocks into one part; the writer cuts a part at its claims. Page ends are exclusive
in the payload.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from operator import is_not
from typing import Any

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
    Opaque,
    Pages,
    Part,
    Source,
    SourceKind,
    SourceRef,
    SpanOrigin,
    Written,
)

NAME = "anthropic"
UPSTREAM = "anthropic 2.8.0, Messages API 2023-06-01"
SUPPORTED_FIELDS = frozenset(
    {
        "answer.id",
        "claim",
        "refs.quote",
        "refs.locator.blocks",
        "refs.locator.chars",
        "refs.locator.opaque",
        "refs.locator.pages",
        "source.file_id",
        "source.index",
        "source.title",
        "source.url",
    }
)

_LOCATIONS = frozenset(
    {
        "char_location",
        "page_location",
        "content_block_location",
        "search_result_location",
        "web_search_result_location",
    }
)


def detect(payload: Any) -> bool:
    return is_object(payload) and payload.get("type") == "message" and is_list(payload.get("content"))


def read_all(payload: Any, options: DialectOptions) -> tuple[Answer, ...]:
    if not is_object(payload):
        raise ShapeError("a message is not an object")
    return (read_message(payload),)


def read_message(message: Json) -> Answer:
    """Read the answer in a message."""
    reader = _Reader(NAME, read_ref)
    for number, block in enumerate(require(message, "content", list, "$")):
        reader.read_block(number, block)
    reader.close_part()
    return Answer(
        parts=tuple(reader.parts),
        citations=tuple(reader.citations),
        sources=tuple(reader.sources),
        id=optional(message, "id", str, "$"),
        problems=tuple(reader.problems),
        native=Native(NAME, message),
    )


class _Reader(BlockReader):
    """Reads text blocks and their citations."""

    def read_block(self, number: int, block: Any) -> None:
        where = f"$.content[{number}]"
        text: str | None = None
        if is_object(block) and block.get("type") == "text":
            text = self.problems.try_read(lambda: where, require, block, "text", str)
        if text is None:
            self.close_part()
            return
        claim = self._add(number, block, text)
        if refs := self._refs(block, where):
            name = f"c{len(self.citations) + 1}"
            self.citations.append(Citation(name, refs, claim=claim, span_origin="block"))


def read_ref(entry: Any, at: int, sources: SourceRegistry) -> SourceRef:
    """Read one citation of a block. Raises `ShapeError`, also for an unknown type."""
    if not is_object(entry):
        raise ShapeError("a citation is not an object", "")
    kind = require(entry, "type", str)
    if kind not in _LOCATIONS:
        raise ShapeError(f"unknown citation type {kind!r}", ".type")
    quote = optional(entry, "cited_text", str) or None
    if kind == "web_search_result_location":
        token = optional(entry, "encrypted_index", str)
        source_id = sources.add("web", require(entry, "url", str), optional(entry, "title", str))
        return SourceRef(source_id, Opaque(token) if token else None, quote, native=Native(NAME, entry, at))
    locator = _locator(kind, entry)
    if kind == "search_result_location":
        source_id = sources.add(
            "tool",
            require(entry, "source", str),
            optional(entry, "title", str),
            index=optional(entry, "search_result_index", int),
        )
    else:
        source_id = sources.add(
            "document",
            title=optional(entry, "document_title", str),
            file_id=optional(entry, "file_id", str),
            index=require(entry, "document_index", int),
        )
    return SourceRef(source_id, locator, quote, native=Native(NAME, entry, at))


def _locator(kind: str, entry: Json) -> Locator | None:
    if kind == "char_location":
        start, end = _range(entry, "start_char_index", "end_char_index")
        # A document cited without a location is written as an empty range at its start.
        return Chars(start, end) if end else None
    if kind == "page_location":
        first, end = _range(entry, "start_page_number", "end_page_number")
        if first < 1 or end == first:
            raise ShapeError(f"pages {first} to {end} hold no page", ".end_page_number")
        return Pages(first, end - 1)
    start, end = _range(entry, "start_block_index", "end_block_index")
    return Blocks(start, end)


def _range(entry: Json, start_key: str, end_key: str) -> tuple[int, int]:
    start, end = require(entry, start_key, int), require(entry, end_key, int)
    if not 0 <= start <= end:
        raise ShapeError(f"{start} to {end} is negative or reversed", f".{end_key}")
    return start, end


def write(answer: Answer, options: DialectOptions) -> Written:
    fitting = Adaptation(answer, NAME)
    if answer.citations or native_for(answer.native, NAME) is None:
        fitting.require_text()
    fitting.require_refs()
    fitting.remove_markers()
    fitting.derive_claims(lambda citation: True)
    join_adjacent_parts(fitting)
    fitting.map_citations(lambda citation: _with_claim(citation, fitting))
    _fit_sources(fitting)
    _fit_refs(fitting)
    flatten_claims(fitting)
    fit = fitting.finish(SUPPORTED_FIELDS, kind=_kind, origin=_origin)
    return Written(_Writer(fit).message(), tuple(fitting.losses))


def _with_claim(citation: Citation, fitting: Adaptation) -> Citation | None:
    """Drop a citation without a claim, or with an empty one: only a block can be cited."""
    if citation.claim and citation.claim.start < citation.claim.end:
        return citation
    fitting.record_loss("citation", "supports no text, and Anthropic cites text blocks", citation=citation.id)
    return None


def _kind(source: Source) -> SourceKind:
    """Return the kind that a source is written as, and therefore read as: search result or document."""
    if source.url is None or source.kind in ("document", "file"):
        return "document"
    return "tool" if source.kind == "tool" else "web"


def _origin(citation: Citation) -> SpanOrigin:
    return "block"


def _fit_sources(fitting: Adaptation) -> None:
    """Fit the sources to the fields that each location type supports and requires."""
    taken = {source.index for source in fitting.sources.values()}
    free = (number for number in count() if number not in taken)
    for source in fitting.cited_sources():
        fitting.sources[source.id] = _fit_source(source, free, fitting)


def _fit_source(source: Source, free: Iterator[int], fitting: Adaptation) -> Source:
    kind = _kind(source)
    changes: dict[str, Any] = {}

    def change(field: str, value: Any, reason: str) -> None:
        changes[field] = value
        fitting.record_loss(f"source.{field}", reason, source=source.id)

    if kind == "web" and source.index is not None:
        change("index", None, "a web search result has none")
    elif kind == "document" and source.index is None:
        change("index", next(free), "required: numbered in order")
    if kind != "document" and source.file_id is not None:
        change("file_id", None, "only documents have one")
    if kind == "document" and source.url is not None:
        change("url", None, "documents have none")
    if kind == "document" and source.title is None and source.filename is not None:
        change("title", source.filename, "the file name stands in for it")
    return replace(source, **changes) if changes else source


def _fit_refs(fitting: Adaptation) -> None:
    """Fit the locators to what each location type supports and requires."""

    def fitted(citation: Citation) -> Citation:
        refs = tuple(_fit_ref(ref, fitting, citation.id) for ref in citation.refs)
        return replace(citation, refs=refs) if any(map(is_not, refs, citation.refs)) else citation

    fitting.map_citations(fitted)


def _fit_ref(ref: SourceRef, fitting: Adaptation, citation: str) -> SourceRef:
    kind = _kind(fitting.sources[ref.source_id])
    locator, wanted = ref.locator, _wanted_locator(ref.locator, kind)
    if locator != wanted:
        fitting.record_loss("refs.locator", f"a {kind} source cannot hold it", citation=citation)
        ref = replace(ref, locator=wanted)
    if ref.quote == "":
        fitting.record_loss("refs.quote", "an empty quote reads as none", citation=citation)
        ref = replace(ref, quote=None)
    return ref


def _wanted_locator(locator: Locator | None, kind: SourceKind) -> Locator | None:
    match kind, locator:
        case "web", Opaque(value) if value:
            return locator
        case "tool", Blocks():
            return locator
        case "tool", _:
            return Blocks(0, 0)
        case "document", Chars(end=end) if end:
            return locator
        case "document", Pages() | Blocks():
            return locator
        case _:
            return None


class _Writer:
    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.native = native_for(answer.native, NAME)
        self.sources = {source.id: source for source in answer.sources}
        self.citations: dict[int, list[Citation]] = {}
        for citation in answer.citations:
            if citation.claim:
                self.citations.setdefault(citation.claim.part, []).append(citation)

    def message(self) -> Json:
        if self.native is None:
            message: Json = {"type": "message", "role": "assistant", "content": self._content([])}
            return message if self.answer.id is None else {"id": self.answer.id, **message}
        raw: Json = self.native.raw
        return overlay(raw, {"id": self.answer.id, "content": self._content(raw["content"])})

    def _content(self, kept: list[Any]) -> list[Any]:
        """Return the blocks of every part, with the other original blocks at their old positions."""
        content: list[Any] = []
        at = 0
        for number, part in enumerate(self.answer.parts):
            native = native_for(part.native, NAME) if self.native else None
            if native and native.at >= at:
                content += _not_text(kept[at : native.at])
                at = native.at + len(native.raw)
            content += self._part(part, native, self.citations.get(number, []))
        return content + _not_text(kept[at:])

    def _part(self, part: Part, native: Native | None, citations: list[Citation]) -> list[Json]:
        claims = {(claim_start(citation), claim_end(citation)): citation for citation in citations}
        old = find_unchanged_blocks(part, native, lambda block: block["text"])
        if not cover_whole_text(old, len(part.text)) or not claims.keys() <= {
            (block.start, block.end) for block in old
        }:
            old = cut_at_claims(len(part.text), claims.keys(), old)
        return [
            self._block(part.text[block.start : block.end], claims.get((block.start, block.end)), block)
            for block in old
        ]

    def _block(self, text: str, citation: Citation | None, old: Block) -> Json:
        # Empty text is not a claim: two blocks can have the same empty span.
        refs = citation.refs if citation and text else ()
        entries = interleave(old.kept, [self._entry(ref) for ref in refs])
        fields: Json = {"type": "text", "text": text}
        # An originally empty list stays; null and absent stay as they were.
        kept = old.raw.get("citations")
        if entries or (is_list(kept) and kept):
            fields["citations"] = entries or None
        return overlay(old.raw, fields)

    def _entry(self, ref: SourceRef) -> tuple[int | None, Json]:
        native = native_for(ref.native, NAME)
        fields = _location(ref, self.sources[ref.source_id])
        if native is None:
            return None, fields
        if native.raw["type"] != fields["type"]:
            return native.at, fields
        return native.at, _update_location(native.raw, fields)


def _not_text(blocks: list[Any]) -> list[Any]:
    """Return the blocks that do not belong to any part."""
    return [block for block in blocks if not _is_text(block)]


def _is_text(block: Any) -> bool:
    return is_object(block) and block.get("type") == "text" and isinstance(block.get("text"), str)


def _location(ref: SourceRef, source: Source) -> Json:
    locator, quote = ref.locator, ref.quote or ""
    if source.kind == "web":
        token = locator.value if isinstance(locator, Opaque) else ""
        kind = "web_search_result_location"
        return {
            "type": kind,
            "cited_text": quote,
            "url": source.url,
            "title": source.title,
            "encrypted_index": token,
        }
    if source.kind == "tool":
        found: Json = {"type": "search_result_location", "cited_text": quote, "source": source.url}
        return {**found, "title": source.title, "search_result_index": source.index, **_place(locator)}
    kind = "char_location"
    if isinstance(locator, (Pages, Blocks)):
        kind = "page_location" if isinstance(locator, Pages) else "content_block_location"
    fields: Json = {"type": kind, "cited_text": quote, "document_index": source.index}
    fields["document_title"] = source.title
    if source.file_id is not None:
        fields["file_id"] = source.file_id
    return fields | _place(locator)


def _place(locator: Locator | None) -> Json:
    match locator:
        case Pages(first, last):
            return {"start_page_number": first, "end_page_number": last + 1}
        case Blocks(start, end):
            return {"start_block_index": start, "end_block_index": end}
        case Chars(start, end):
            return {"start_char_index": start, "end_char_index": end}
        case _:
            return {"start_char_index": 0, "end_char_index": 0}


def _update_location(raw: Json, fields: Json) -> Json:
    """Update an original citation with `fields`; empty, null and absent values stay as in the payload."""
    out = dict(raw)
    if "file_id" not in fields and out.get("file_id") is not None:
        del out["file_id"]
    for key, value in fields.items():
        if value or out.get(key) or (value == 0 and not isinstance(value, str)):
            out[key] = value
    return out
