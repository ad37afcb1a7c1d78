"""LlamaIndex chat messages: citation blocks among the text blocks, each after the text it supports.

The blocks form one text. `additional_location_info` is the location in the source in the provider's own form:
for Anthropic the end of a page range is exclusive.
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from citewire.adapt import Adaptation
from citewire.dialects.base import (
    Json,
    ProblemList,
    SourceRegistry,
    get_at,
    is_list,
    is_object,
    native_for,
    optional,
    overlay,
    path_text,
    put_at,
    require,
)
from citewire.dialects.common.inline_items import (
    InlineItem,
    fit_points,
    group_by_point,
    offset_of,
    write_items,
)
from citewire.dialects.llamaindex.response import NAME
from citewire.errors import InputError, ShapeError
from citewire.model import (
    Answer,
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
    Written,
)

SUPPORTED_FIELDS = frozenset(
    {
        "insert_at",
        "refs.locator.chars",
        "refs.locator.pages",
        "refs.quote",
        "source.filename",
        "source.index",
        "source.title",
        "source.url",
    }
)

# Distinguishes the original of a message from the original of a response.
_KEPT = f"{NAME}.chat"
_KIND = "block_type"
_CHARS = ("start_char_index", "end_char_index")
_PAGES = ("start_page_number", "end_page_number")
_INDEX = "document_index"


def detect(payload: Any) -> bool:
    """Whether a payload is a message with blocks, or a response with such a message."""
    return _blocks_at(payload) is not None


def _blocks_at(payload: Any) -> tuple[str, ...] | None:
    """Return the path of the blocks: in a message, or in the message of a response."""
    for path in ((), ("message",)):
        message = payload.get(path[0]) if path and is_object(payload) else payload
        blocks = message.get("blocks") if is_object(message) else None
        if is_list(blocks) and blocks and all(is_object(block) and _KIND in block for block in blocks):
            return (*path, "blocks")
    return None


def is_from_chat(answer: Answer) -> bool:
    """Whether an answer was read from a message."""
    return native_for(answer.native, _KEPT) is not None


def read(payload: Any) -> Answer:
    """Read the answer in a message."""
    path = _blocks_at(payload) or ()
    sources, problems = SourceRegistry(), ProblemList()
    citations: list[Citation] = []
    items: list[InlineItem] = []
    length = 0
    for at, block in enumerate(get_at(payload, path)):
        item = InlineItem(block, _text_of(block))
        if block.get(_KIND) == "citation":
            try:
                name = f"c{len(citations) + 1}"
                citations.append(_read_block(block, name, Point(0, length), at, sources))
                item = InlineItem(block, None, is_cited=True)
            except InputError as exc:
                problems.add(f"{path_text(path)}[{at}]", exc)
        items.append(item)
        length += len(item.text or "")
    text = "".join(item.text or "" for item in items)
    return Answer(
        parts=(Part(text, Native(_KEPT, items)),),
        citations=tuple(citations),
        sources=tuple(sources),
        problems=tuple(problems),
        native=Native(_KEPT, payload, path),
    )


def _text_of(block: Json) -> str | None:
    text = block.get("text") if block.get(_KIND) == "text" else None
    return text if isinstance(text, str) else None


def _read_block(block: Json, name: str, point: Point, at: int, sources: SourceRegistry) -> Citation:
    named, title = require(block, "source", str), optional(block, "title", str) or None
    info = optional(block, "additional_location_info", dict) or {}
    locator = _locator(info)
    url, filename = (named, None) if "://" in named else (None, named or None)
    index = optional(info, _INDEX, int, ".additional_location_info")
    source_id = sources.add(_kind_of(url, filename), url, title, filename=filename, index=index)
    ref = SourceRef(source_id, locator, _quote(block))
    return Citation(name, (ref,), insert_at=point, span_origin="exact", native=Native(_KEPT, block, at))


def _kind_of(url: str | None, filename: str | None) -> SourceKind:
    return "web" if url is not None else "document" if filename is None else "file"


def _quote(block: Json) -> str | None:
    content = block.get("cited_content")
    text = content.get("text") if is_object(content) else None
    return text if isinstance(text, str) and text else None


def _locator(info: Json) -> Locator | None:
    where = ".additional_location_info"
    for keys in (_CHARS, _PAGES):
        start, end = (optional(info, key, int, where) for key in keys)
        if start is None or end is None:
            continue
        if not 0 <= start <= end or (keys is _PAGES and not 0 < start < end):
            raise ShapeError(f"{start} to {end} is no range", f"{where}.{keys[1]}")
        return Chars(start, end) if keys is _CHARS else Pages(start, end - 1)
    return None


def write(answer: Answer) -> Written:
    """Write an answer that was read from a message as a message."""
    fitting = Adaptation(answer, NAME)
    fitting.require_text()
    fitting.join_parts()
    fitting.require_refs()
    fitting.split_refs()
    for source in fitting.cited_sources():
        fitting.sources[source.id] = _fit_source(source, fitting)
    fitting.map_citations(lambda citation: _fit_quote(citation, fitting))
    fit_points(fitting)
    fit = fitting.finish(
        SUPPORTED_FIELDS,
        kind=lambda source: _kind_of(source.url, source.filename),
        origin=lambda citation: "exact",
        group=group_by_point,
        why="citations follow the text",
    )
    sources = {source.id: source for source in fit.sources}
    part = native_for(fit.parts[0].native, _KEPT)
    blocks = write_items(
        fit.text,
        part.raw if part else [],
        [_block(citation, sources[citation.refs[0].source_id]) for citation in fit.citations],
        _text_block,
    )
    native = native_for(answer.native, _KEPT)
    payload = put_at(native.raw, native.at, blocks) if native else {"role": "assistant", "blocks": blocks}
    return Written(payload, tuple(fitting.losses))


def _fit_source(source: Source, fitting: Adaptation) -> Source:
    """Fit a source to one name, a URL or a file name, and to a title that is not empty."""
    changes: Json = {}
    if source.url is not None and "://" not in source.url:
        changes["url"] = None
    elif source.url is not None and source.filename is not None:
        changes["filename"] = None
    if source.filename is not None and (not source.filename or "://" in source.filename):
        changes["filename"] = None
    if source.title == "":
        changes["title"] = None
    for field in changes:
        fitting.record_loss(f"source.{field}", "a citation block has no place for it", source=source.id)
    return replace(source, **changes) if changes else source


def _fit_quote(citation: Citation, fitting: Adaptation) -> Citation:
    ref = citation.refs[0]
    if ref.quote != "":
        return citation
    fitting.record_loss("refs.quote", "an empty quote reads as none", citation=citation.id)
    return replace(citation, refs=(replace(ref, quote=None),))


def _block(citation: Citation, source: Source) -> tuple[int, int | None, Json]:
    ref, native = citation.refs[0], native_for(citation.native, _KEPT)
    raw: Json = native.raw if native else {_KIND: "citation"}
    fields: Json = {"source": source.url or source.filename or ""}
    if native is None or (raw.get("title") or None) != source.title:
        fields["title"] = source.title or ""
    if native is None or _quote(raw) != ref.quote:
        fields["cited_content"] = {_KIND: "text", "text": ref.quote or ""}
    old: Json = raw.get("additional_location_info") or {}
    info = _info(old, ref.locator, source.index)
    if native is None or info != old:
        fields["additional_location_info"] = info
    return offset_of(citation), native and native.at, overlay(raw, fields)


def _info(old: Json, locator: Locator | None, index: int | None) -> Json:
    if _locator(old) != locator:
        old = overlay(old, dict.fromkeys((*_CHARS, *_PAGES)) | _place(locator))
    return overlay(old, {_INDEX: index})


def _place(locator: Locator | None) -> Json:
    match locator:
        case Chars(start, end):
            return dict(zip(_CHARS, (start, end), strict=True))
        case Pages(first, last):
            return dict(zip(_PAGES, (first, last + 1), strict=True))
        case _:
            return {}


def _text_block(raw: Any, text: str) -> Json:
    """Return a block with `text`: the original if its text is the same, else a copy with the new text."""
    return raw if raw is not None and raw["text"] == text else {**(raw or {_KIND: "text"}), "text": text}
