"""LangChain v1: `citation` annotations on the text blocks of a message.

Offsets are code points of the block. For most providers they cover a claim; LangChain copies OpenAI's
unchanged, so those cover the link. Adjacent text blocks are one text, as in LangChain's own `text`; an
annotation without offsets on one of several blocks supports that block. Messages can be dumped in any of the
three ways, alone or in a list of `messages`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from itertools import pairwise
from typing import Any, NamedTuple

from msgspec.structs import replace

from citewire.adapt import Adaptation
from citewire.dialects.base import (
    DialectOptions,
    Json,
    ProblemList,
    SourceRegistry,
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
from citewire.dialects.common.annotations import is_marker
from citewire.dialects.common.extension_fields import (
    EXTENSIBLE_FIELDS,
    EXTENSION_KEY,
    drop_reserved_key,
    pack,
    unpack,
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

NAME = "langchain"
UPSTREAM = "langchain-core 1.7.7, standard content blocks"
SUPPORTED_FIELDS = EXTENSIBLE_FIELDS | {"marker"}

_UNIT: Unit = "codepoints"
_TYPES = frozenset({"ai", "AIMessage", "AIMessageChunk"})
_OFFSETS = ("start_index", "end_index")

_Path = tuple[str | int, ...]


def detect(payload: Any) -> bool:
    return next(_messages(payload), None) is not None


def _messages(payload: Any) -> Iterator[_Path]:
    """Yield the paths of the fields of the assistant's messages."""
    if (path := _fields_at(payload)) is not None:
        yield path
    elif is_object(payload) and is_list(messages := payload.get("messages")):
        for at, message in enumerate(messages):
            if (path := _fields_at(message)) is not None:
                yield ("messages", at, *path)


def _fields_at(message: Any) -> _Path | None:
    """Return the path of a message's fields: the message itself, `data`, or `kwargs` of its constructor."""
    if not is_object(message):
        return None
    kind, path = message.get("type"), ()
    if kind == "constructor" and is_list(name := message.get("id")) and name:
        kind, path = name[-1], ("kwargs",)
    elif "content" not in message:
        path = ("data",)
    fields = message.get(path[0]) if path else message
    if not isinstance(kind, str) or kind not in _TYPES or not is_object(fields):
        return None
    return path if isinstance(fields.get("content"), (str, list)) else None


def read_all(payload: Any, options: DialectOptions) -> tuple[Answer, ...]:
    paths = list(_messages(payload))
    if not paths:
        raise ShapeError("no message of type ai with content in it")
    return tuple(read_message(payload, path, options.unit or _UNIT) for path in paths)


def read_message(payload: Any, path: _Path = (), unit: Unit = _UNIT) -> Answer:
    """Read the answer in the message whose fields are at `path`."""
    fields: Json = get_at(payload, path)
    where = path_text(path)
    content = fields["content"]
    reader = LangChainReader(unit, f"{where}.content")
    for number, block in enumerate(content if is_list(content) else [content]):
        reader.read_block(number, block)
    reader.close_part()
    return Answer(
        parts=tuple(reader.parts),
        citations=tuple(reader.citations),
        sources=tuple(reader.sources),
        id=optional(fields, "id", str, where),
        problems=tuple(reader.problems),
        native=Native(NAME, payload, path, was=unit),
    )


class _Block(NamedTuple):
    """A text block: its span in the part, its number in the content, its original and unreadable entries."""

    start: int
    end: int
    number: int = 0
    raw: Any = None
    kept: tuple[tuple[Any, Any], ...] = ()


class LangChainReader:
    """Reads blocks in order and joins adjacent text blocks into one part."""

    def __init__(self, unit: Unit, where: str) -> None:
        self.parts: list[Part] = []
        self.citations: list[Citation] = []
        self.sources = SourceRegistry()
        self.problems = ProblemList()
        self._unit: Unit = unit
        self._where = where
        self._blocks: list[_Block] = []

    def read_block(self, number: int, block: Any) -> None:
        """Read the next block of the content."""
        text = self._text(number, block)
        if text is None:
            self.close_part()
        else:
            start = self._blocks[-1].end if self._blocks else 0
            self._blocks.append(_Block(start, start + len(text), number, block))

    def _text(self, number: int, block: Any) -> str | None:
        if not is_object(block) or block.get("type") != "text":
            return block if isinstance(block, str) else None
        return self.problems.try_read(lambda: f"{self._where}[{number}]", require, block, "text", str)

    def close_part(self) -> None:
        """Make a part of the blocks so far."""
        if self._blocks:
            blocks = [self._cited(block) for block in self._blocks]
            text = "".join(map(_text_of, blocks))
            self.parts.append(Part(text, Native(NAME, tuple(blocks), was=text)))
            self._blocks = []

    def _cited(self, block: _Block) -> _Block:
        """Read the citations of a block; unreadable ones are preserved."""
        if isinstance(block.raw, str):
            return block
        where = f"{self._where}[{block.number}]"
        entries = self.problems.try_read(lambda: where, optional, block.raw, "annotations", list) or []
        if block.raw.get("citations"):
            self.problems.add(where, ShapeError("a provider's own citations, not LangChain's", ".citations"))
        offsets = Offsets(block.raw["text"]) if entries else None
        kept: list[tuple[Any, Any]] = []
        for place, entry in enumerate(entries):
            at = (block.number, place)
            if is_object(entry) and entry.get("type") == "non_standard_annotation":
                kept.append((at, entry))
                continue
            try:
                found = self._place(entry, block, offsets) if offsets else None
                self.citations.append(self.annotation(entry, at, found))
            except InputError as exc:
                self.problems.add(f"{where}.annotations[{place}]", exc)
                kept.append((at, entry))
        return block._replace(kept=tuple(kept))

    def annotation(self, entry: Any, at: tuple[int, int], place: Citation | None) -> Citation:
        """Read the citation of an annotation; its position is copied from `place`."""
        beyond = unpack(_extras(entry).get(EXTENSION_KEY), f".extras.{EXTENSION_KEY}")
        quote, url = optional(entry, "cited_text", str), optional(entry, "url", str)
        source_id = self.sources.add(
            beyond.kind or _kind_of(url),
            url,
            optional(entry, "title", str),
            filename=beyond.filename,
            file_id=beyond.file_id,
            record_id=beyond.record_id,
            index=beyond.index,
            domain=beyond.domain,
            snippet=beyond.snippet,
            metadata={key: value for key, value in _extras(entry).items() if key != EXTENSION_KEY},
        )
        ref = SourceRef(source_id, beyond.locator, quote, beyond.anchor, beyond.score)
        name = f"c{len(self.citations) + 1}"
        citation = replace(place or Citation(""), id=name, refs=(ref,), verification=beyond.verification)
        return replace(citation, native=Native(NAME, entry, at, was=_place_of(citation)))

    def _place(self, entry: Any, block: _Block, offsets: Offsets) -> Citation:
        """Return what an annotation covers: a link, words, its block, or nothing."""
        if not is_object(entry) or entry.get("type") != "citation":
            raise ShapeError("not an annotation of type citation", ".type" if is_object(entry) else "")
        part = len(self.parts)
        if all(entry.get(key) is None for key in _OFFSETS):
            if len(self._blocks) == 1:
                return Citation("")
            return Citation("", claim=Span(part, block.start, block.end), span_origin="block")
        start, end = require(entry, _OFFSETS[0], int), require(entry, _OFFSETS[1], int)
        found = offsets.span(start, end, self._unit)
        if found is None:
            raise ShapeError(f"span {start} to {end} is reversed or outside the text", f".{_OFFSETS[1]}")
        span = Span(part, block.start + found.start, block.start + found.end)
        origin: SpanOrigin = "repaired" if found.repaired else "exact"
        if is_marker(offsets.text[found.start : found.end]):
            return Citation("", marker=span, span_origin=origin)
        return Citation("", claim=span, span_origin=origin)


def _text_of(block: _Block) -> str:
    return block.raw if isinstance(block.raw, str) else block.raw["text"]


def _extras(entry: Json) -> Json:
    extras = entry.get("extras")
    return extras if is_object(extras) else {}


def _kind_of(url: str | None) -> SourceKind:
    return "document" if url is None else "web"


def _place_of(citation: Citation) -> tuple[Span | None, SpanOrigin]:
    return citation.claim or citation.marker, citation.span_origin


def write(answer: Answer, options: DialectOptions) -> Written:
    fitting = Adaptation(answer, NAME)
    native = native_for(answer.native, NAME)
    if answer.citations or native is None:
        fitting.require_text()
    fitting.require_refs()
    fitting.split_refs()
    _fit_places(fitting)
    _separate_parts(fitting)
    drop_reserved_key(fitting)
    layout = _Layout(fitting.answer)
    fit = fitting.finish(
        SUPPORTED_FIELDS,
        kind=lambda source: source.kind,
        origin=layout.origin,
        group=layout.by_block,
        why="annotations belong to their block of the text",
    )
    unit: Unit = options.unit or (native.was if native else _UNIT)
    written = _blocks(fit, layout, fitting.groups(), unit)
    return Written(_envelope(native, fit, written), tuple(fitting.losses))


def _fit_places(fitting: Adaptation) -> None:
    """Fit the one pair of offsets: to the claim, or to a marker that can be recognised as one."""
    marked = {citation.id for citation in fitting.answer.citations if citation.marker}
    fitting.remove_markers(lambda citation, text: citation.claim is None and is_marker(text))
    fitting.derive_claims(lambda citation: citation.id in marked)
    fitting.map_citations(lambda citation: _with_plain_claim(citation, fitting))


def _with_plain_claim(citation: Citation, fitting: Adaptation) -> Citation:
    if citation.claim is None or not is_marker(fitting.answer.covered(citation.claim)):
        return citation
    fitting.record_loss("claim", "it looks like a marker, and would read as one", citation=citation.id)
    return replace(citation, claim=None)


def _separate_parts(fitting: Adaptation) -> None:
    """Join the parts unless other blocks separate all of them: adjacent text blocks are read as one part."""
    kept = [native_for(part.native, NAME) for part in fitting.answer.parts]
    apart = all(
        left and right and left.raw[-1].number + 1 < right.raw[0].number for left, right in pairwise(kept)
    )
    if not apart or native_for(fitting.answer.native, NAME) is None:
        fitting.join_parts()


class _Layout:
    """The blocks for the text of each part: the old ones if they are unchanged and fit all citations."""

    def __init__(self, answer: Answer) -> None:
        self.blocks: list[list[_Block]] = []
        self._homes: dict[str, tuple[int, int]] = {}
        self._kept: set[int] = set()
        cited: list[list[Citation]] = [[] for _ in answer.parts]
        old_parts = _old_parts(answer.parts)
        part = 0
        for citation in answer.citations:
            place, native = _place_of(citation)[0], native_for(citation.native, NAME)
            part = place.part if place else old_parts.get(native.at[0] if native else None, part)
            cited[part].append(citation)
        for number, part in enumerate(answer.parts):
            self.blocks.append(self._blocks(part, number, cited[number]))

    def _blocks(self, part: Part, number: int, citations: list[Citation]) -> list[_Block]:
        native = native_for(part.native, NAME)
        old: tuple[_Block, ...] = native.raw if native else ()
        homes = [_home(citation, old) for citation in citations]
        if native and native.was == part.text and None not in homes:
            for citation, home in zip(citations, homes, strict=True):
                self._homes[citation.id] = (number, home or 0)
            self._kept.add(number)
            return list(old)
        self._homes |= {citation.id: (number, 0) for citation in citations}
        raw: Json = {}
        for block in old:
            raw |= {"type": "text"} if isinstance(block.raw, str) else block.raw
        kept = tuple(entry for block in old for entry in block.kept)
        return [_Block(0, len(part.text), old[0].number if old else 0, raw, kept)]

    def origin(self, citation: Citation) -> SpanOrigin:
        """Return the span origin that a reader will report."""
        if self.is_kept(citation, self._homes[citation.id][0]):
            return citation.span_origin
        return "exact" if _place_of(citation)[0] else "unknown"

    def is_kept(self, citation: Citation, part: int) -> bool:
        """Whether a citation has not moved since reading and is written back unchanged."""
        return part in self._kept and _is_as_read(citation)

    def by_block(self, answer: Answer) -> list[list[Citation]]:
        """Return the citations of each block of each part, in order."""
        found: dict[tuple[int, int], list[Citation]] = {
            (part, at): [] for part, blocks in enumerate(self.blocks) for at in range(len(blocks))
        }
        for citation in answer.citations:
            found[self._homes[citation.id]].append(citation)
        return list(found.values())


def _is_as_read(citation: Citation) -> bool:
    native = native_for(citation.native, NAME)
    return native is not None and native.was == _place_of(citation)


def _old_parts(parts: tuple[Part, ...]) -> dict[int | None, int]:
    """Return the part that each block was read into."""
    kept = ((number, native_for(part.native, NAME)) for number, part in enumerate(parts))
    return {block.number: number for number, native in kept if native for block in native.raw}


def _home(citation: Citation, blocks: tuple[_Block, ...]) -> int | None:
    """Return the block that contains a citation's span; without a span, the only block."""
    native, (place, _) = native_for(citation.native, NAME), _place_of(citation)
    if native and blocks and _is_as_read(citation):
        at = native.at[0] - blocks[0].number
        return at if 0 <= at < len(blocks) else None
    if place is None:
        return 0 if len(blocks) == 1 else None
    at = bisect_right(blocks, place.start, key=lambda block: block.start) - 1
    return at if at >= 0 and place.end <= blocks[at].end else None


def _blocks(
    answer: Answer, layout: _Layout, groups: list[tuple[Citation, ...]], unit: Unit
) -> list[tuple[int, list[Any]]]:
    """Return the written blocks of each part, and the number of blocks they replace."""
    sources = {source.id: source for source in answer.sources}
    waiting = iter(groups)
    written: list[tuple[int, list[Any]]] = []
    for number, (part, blocks) in enumerate(zip(answer.parts, layout.blocks, strict=True)):
        native = native_for(part.native, NAME)
        out: list[Any] = []
        for block in blocks:
            offsets = Offsets(part.text[block.start : block.end])
            entries: list[tuple[Any, Any]] = []
            for citation in next(waiting):
                is_kept = layout.is_kept(citation, number)
                place = None if is_kept else _offsets(citation, block, offsets, unit)
                entries.append(_entry(citation, sources[citation.refs[0].source_id], place))
            out.append(_block(block, offsets.text, interleave(block.kept, entries)))
        written.append((len(native.raw) if native else 0, out))
    return written


def _offsets(citation: Citation, block: _Block, offsets: Offsets, unit: Unit) -> Json:
    place, _ = _place_of(citation)
    if place is None:
        return dict.fromkeys(_OFFSETS)
    edges = (offsets.to_unit(edge - block.start, unit) for edge in (place.start, place.end))
    return dict(zip(_OFFSETS, edges, strict=True))


def _entry(citation: Citation, source: Source, place: Json | None) -> tuple[Any, Json]:
    native = native_for(citation.native, NAME)
    raw: Json = native.raw if native else {"type": "citation"}
    fields: Json = {"url": source.url, "title": source.title, "cited_text": citation.refs[0].quote}
    old, extras = _extras(raw), dict(source.metadata)
    packed = pack(replace(citation, claim=None), source, _kind_of(source.url), old.get(EXTENSION_KEY))
    if packed is not None or EXTENSION_KEY in old:
        extras[EXTENSION_KEY] = packed
    if extras != old:
        fields["extras"] = extras or None
    return native and native.at, overlay(raw, fields | (place or {}))


def _block(block: _Block, text: str, entries: list[Any]) -> Any:
    if isinstance(block.raw, str) and not entries:
        return text
    raw: Json = {} if isinstance(block.raw, str) or not block.raw else block.raw
    fields: Json = {"type": "text", "text": text}
    if entries or raw.get("annotations"):
        fields["annotations"] = entries
    return overlay(raw, fields)


def _envelope(native: Native | None, answer: Answer, written: list[tuple[int, list[Any]]]) -> Any:
    if native is None:
        content = [block for _, blocks in written for block in blocks]
        return overlay({"type": "ai", "content": content}, {"id": answer.id})
    fields: Json = get_at(native.raw, native.at)
    old = fields["content"] if is_list(fields["content"]) else [fields["content"]]
    content: list[Any] = []
    at = 0
    for part, (size, blocks) in zip(answer.parts, written, strict=True):
        kept = native_for(part.native, NAME)
        first = kept.raw[0].number if kept else at
        content += (block for block in old[at:first] if not _is_text(block))
        content += blocks
        at = max(at, first + size)
    content += (block for block in old[at:] if not _is_text(block))
    is_plain = isinstance(fields["content"], str) and len(content) == 1 and isinstance(content[0], str)
    changed = overlay(fields, {"content": content[0] if is_plain else content, "id": answer.id})
    return put_at(native.raw, native.at, changed)


def _is_text(block: Any) -> bool:
    """Whether a block is read as text."""
    if not is_object(block):
        return isinstance(block, str)
    return block.get("type") == "text" and isinstance(block.get("text"), str)
