"""Slack: `citation` elements among the elements of a rich text block.

A citation's position is its place in the list. It must have a URL, a text, a number and details; the details
of a web page have a snippet, those of a file its id. Each section of rich text is a part.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

from msgspec.structs import replace

from citewire.adapt import Adaptation
from citewire.dialects.base import (
    DialectOptions,
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
from citewire.errors import InputError, ShapeError
from citewire.model import (
    Answer,
    Citation,
    Native,
    Part,
    Point,
    Source,
    SourceKind,
    SourceRef,
    Written,
)

NAME = "slack"
UPSTREAM = "Block Kit reference, citation element, 2026-11"
NEEDS_URL = True
SUPPORTED_FIELDS = frozenset(
    {"insert_at", "ordinal", "refs.quote", "source.file_id", "source.title", "source.url"}
)

_SECTIONS = ("rich_text_section", "rich_text_quote", "rich_text_preformatted")
_KINDS: dict[str, SourceKind] = {
    "web": "web",
    "file": "file",
    "message": "message",
    "external": "document",
}
_TYPES = {kind: name for name, kind in _KINDS.items()}

_Path = tuple[str | int, ...]


def detect(payload: Any) -> bool:
    return _message_at(payload) is not None


def _message_at(payload: Any) -> _Path | None:
    """Return the path of the message: the payload itself, `message` of an API response, or `event`."""
    for path in ((), ("message",), ("event",)):
        message = payload.get(path[0]) if path and is_object(payload) else payload
        blocks = message.get("blocks") if is_object(message) else None
        if is_list(blocks) and any(map(_is_rich_text, blocks)):
            return path
    return None


def _is_rich_text(block: Any) -> bool:
    return is_object(block) and block.get("type") == "rich_text" and is_list(block.get("elements"))


def read_all(payload: Any, options: DialectOptions) -> tuple[Answer, ...]:
    path = _message_at(payload)
    if path is None:
        raise ShapeError("no message with a rich_text block in it")
    reader = _Reader()
    for at in _sections(get_at(payload, path)):
        reader.read_section(get_at(payload, (*path, *at)), (*path, *at))
    answer = Answer(
        parts=tuple(reader.parts),
        citations=tuple(reader.citations),
        sources=tuple(reader.sources),
        problems=tuple(reader.problems),
    )
    return (replace(answer, native=Native(NAME, payload, path, was=answer.text)),)


def _sections(message: Json) -> Iterator[_Path]:
    """Yield the paths of the element lists of all sections; each item of a list is a section."""
    for number, block in enumerate(message["blocks"]):
        if _is_rich_text(block):
            yield from _sections_in(block["elements"], ("blocks", number, "elements"))


def _sections_in(elements: list[Any], path: _Path) -> Iterator[_Path]:
    for number, element in enumerate(elements):
        if not is_object(element) or not is_list(inner := element.get("elements")):
            continue
        at = (*path, number, "elements")
        if element.get("type") in _SECTIONS:
            yield at
        elif element.get("type") == "rich_text_list" and len(path) == 3:
            yield from _sections_in(inner, at)


class _Reader:
    def __init__(self) -> None:
        self.parts: list[Part] = []
        self.citations: list[Citation] = []
        self.sources = SourceRegistry()
        self.problems = ProblemList()

    def read_section(self, elements: list[Any], path: _Path) -> None:
        """Read the text of a section as a part, with the citations in it."""
        items: list[InlineItem] = []
        length = 0
        for at, element in enumerate(elements):
            item = InlineItem(element, _visible_text(element))
            if is_object(element) and element.get("type") == "citation":
                try:
                    self.citations.append(self._citation(element, Point(len(self.parts), length), at))
                    item = InlineItem(element, None, is_cited=True)
                except InputError as exc:
                    self.problems.add(f"{path_text(path)}[{at}]", exc)
            items.append(item)
            length += len(item.text or "")
        text = "".join(item.text or "" for item in items)
        self.parts.append(Part(text, Native(NAME, items, path)))

    def _citation(self, element: Json, point: Point, at: int) -> Citation:
        url, index = require(element, "url", str), require(element, "index", int)
        title = optional(element, "text", str) or None
        details = require(element, "details", dict)
        kind = _KINDS.get(str(details.get("citation_type")), "unknown")
        file_id = optional(details, "file_id", str, ".details") if kind == "file" else None
        quote = optional(details, "snippet", str, ".details") if kind == "web" else None
        ref = SourceRef(self.sources.add(kind, url, title, file_id=file_id), quote=quote)
        native = Native(NAME, element, at, was=(kind, title))
        name = f"c{len(self.citations) + 1}"
        return Citation(name, (ref,), index, insert_at=point, span_origin="exact", native=native)


def _visible_text(element: Any) -> str | None:
    """Return the visible text of an element, None if it has none."""
    if not is_object(element):
        return None
    match element.get("type"):
        case "text":
            shown = element.get("text")
        case "link":
            shown = element.get("text") or element.get("url")
        case "emoji":
            shown = _emoji(element.get("unicode"))
        case _:
            shown = None
    return shown if isinstance(shown, str) else None


def _emoji(unicode: Any) -> str | None:
    """Return the characters of a code such as `1f1e9-1f1ea`."""
    if not isinstance(unicode, str):
        return None
    try:
        return "".join(chr(int(code, 16)) for code in unicode.split("-"))
    except (ValueError, OverflowError):
        return None


def write(answer: Answer, options: DialectOptions) -> Written:
    del options  # this dialect has no offsets
    fitting = Adaptation(answer, NAME)
    fitting.require_text()
    fitting.require_refs()
    fitting.drop_sources(_why_not)
    fitting.split_refs()
    kind = _kinds(fitting)
    _fit_sources(fitting, kind)
    fitting.map_citations(lambda citation: _fit_quote(citation, fitting, kind))
    fit_points(fitting)
    _number(fitting)
    fit = fitting.finish(
        SUPPORTED_FIELDS,
        kind=kind,
        origin=lambda citation: "exact",
        group=group_by_point,
        why="citations follow the text",
    )
    sources = {source.id: source for source in fit.sources}
    sections = [
        _section(part, [_element(citation, sources) for citation in citations])
        for part, citations in zip(fit.parts, fitting.groups(), strict=True)
    ]
    return Written(_envelope(native_for(answer.native, NAME), fit, sections), tuple(fitting.losses))


def _why_not(citation: Citation, source: Source) -> str | None:
    return None if source.url is not None else f"Slack needs a URL, and {source.label} has none"


def _kinds(fitting: Adaptation) -> Callable[[Source], SourceKind]:
    """Return a function for the kind that a source is written as, and therefore read as: a web page, unless
    Slack has a type for its kind, or it was read from an unknown type."""
    unknown = {
        citation.refs[0].source_id
        for citation in fitting.answer.citations
        if (native := native_for(citation.native, NAME)) and native.was[0] == "unknown"
    }

    def kind(source: Source) -> SourceKind:
        is_known = source.kind in _TYPES or (source.kind == "unknown" and source.id in unknown)
        return source.kind if is_known else "web"

    return kind


def _fit_sources(fitting: Adaptation, kind: Callable[[Source], SourceKind]) -> None:
    """Give every source a text, unless it was read without, and drop file ids of other kinds."""
    as_they_came = {
        (citation.refs[0].source_id, native.was[1])
        for citation in fitting.answer.citations
        if (native := native_for(citation.native, NAME))
    }
    for source in fitting.cited_sources():
        changes: Json = {}
        if not source.title and (source.id, source.title) not in as_they_came:
            fitting.record_loss("source.title", "required: what the source is called", source=source.id)
            changes["title"] = source.label
        if source.file_id is not None and kind(source) != "file":
            fitting.record_loss("source.file_id", "only files have one", source=source.id)
            changes["file_id"] = None
        if changes:
            fitting.sources[source.id] = replace(source, **changes)


def _fit_quote(citation: Citation, fitting: Adaptation, kind: Callable[[Source], SourceKind]) -> Citation:
    ref = citation.refs[0]
    if ref.quote is None or kind(fitting.sources[ref.source_id]) == "web":
        return citation
    fitting.record_loss("refs.quote", "only web pages have a snippet", citation=citation.id)
    return replace(citation, refs=(replace(ref, quote=None),))


def _number(fitting: Adaptation) -> None:
    """Give every citation a number; unnumbered citations of one source share one."""
    taken = {citation.ordinal for citation in fitting.answer.citations}
    free = (number for number in count(1) if number not in taken)
    given: dict[str, int] = {}

    def numbered(citation: Citation) -> Citation:
        if citation.ordinal is not None:
            return citation
        source = citation.refs[0].source_id
        number = given[source] = given.get(source) or next(free)
        fitting.record_loss("ordinal", f"will read as {number}", citation=citation.id)
        return replace(citation, ordinal=number)

    fitting.map_citations(numbered)


def _element(citation: Citation, sources: dict[str, Source]) -> tuple[int, int | None, Json]:
    native, source = native_for(citation.native, NAME), sources[citation.refs[0].source_id]
    raw: Json = native.raw if native else {"type": "citation"}
    fields: Json = {"url": source.url, "index": citation.ordinal}
    if native is None or native.was[1] != source.title:
        fields["text"] = source.title or ""
    fields["details"] = _details(raw.get("details"), citation, source)
    return offset_of(citation), native and native.at, overlay(raw, fields)


def _details(raw: Json | None, citation: Citation, source: Source) -> Json:
    kept = raw if raw and _KINDS.get(str(raw.get("citation_type")), "unknown") == source.kind else {}
    details = kept if kept or raw == {} else {"citation_type": _TYPES.get(source.kind, "web")}
    match source.kind:
        case "web":
            return overlay(details, {"snippet": citation.refs[0].quote})
        case "file":
            return overlay(details, {"file_id": source.file_id})
        case _:
            return details


def _section(part: Part, cited: list[tuple[int, int | None, Json]]) -> tuple[_Path | None, list[Any]]:
    native = native_for(part.native, NAME)
    return native and native.at, write_items(part.text, native.raw if native else [], cited, _text_element)


def _text_element(raw: Any, text: str) -> Json:
    """Return an element with `text`: the original if its text is the same, else a copy with the new text."""
    if raw is not None and _visible_text(raw) == text:
        return raw
    if raw is not None and raw.get("type") in ("text", "link"):
        return {**raw, "text": text}
    return {"type": "text", "text": text}


def _envelope(native: Native | None, answer: Answer, sections: list[tuple[_Path | None, list[Any]]]) -> Any:
    new = [{"type": "rich_text_section", "elements": elements} for _, elements in sections]
    if native is None:
        return {"text": answer.text, "blocks": [{"type": "rich_text", "elements": new}]}
    payload: Any = native.raw
    message: Json = get_at(payload, native.at)
    if [path for path, _ in sections] == [(*native.at, *path) for path in _sections(message)]:
        blocks = _in_place(message["blocks"], iter([elements for _, elements in sections]))
    else:
        blocks = _with_sections(message["blocks"], new)
    payload = put_at(payload, (*native.at, "blocks"), blocks)
    if message.get("text") == native.was != answer.text:
        payload = put_at(payload, (*native.at, "text"), answer.text)
    return payload


def _in_place(blocks: list[Any], sections: Iterator[list[Any]]) -> list[Any]:
    """Replace the elements of each section in the blocks, in the order of `_sections`."""

    def replaced(elements: list[Any], depth: int) -> list[Any]:
        return [rebuilt(element, depth) for element in elements]

    def rebuilt(element: Any, depth: int) -> Any:
        if not is_object(element) or not is_list(inner := element.get("elements")):
            return element
        if element.get("type") in _SECTIONS:
            return {**element, "elements": next(sections)}
        is_list_of_them = element.get("type") == "rich_text_list" and not depth
        return {**element, "elements": replaced(inner, depth + 1)} if is_list_of_them else element

    return [
        {**block, "elements": replaced(block["elements"], 0)} if _is_rich_text(block) else block
        for block in blocks
    ]


def _with_sections(blocks: list[Any], sections: list[Json]) -> list[Any]:
    """Put all sections into the first rich text block and drop the others."""
    first = next(at for at, block in enumerate(blocks) if _is_rich_text(block))
    others = [block for block in blocks[first + 1 :] if not _is_rich_text(block)]
    return [*blocks[:first], {**blocks[first], "elements": sections}, *others]
