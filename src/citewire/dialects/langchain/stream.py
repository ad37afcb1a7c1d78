"""LangChain's message chunks. Pieces of a block share an index; any piece can have annotations."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from citewire.dialects.base import DialectOptions, Json, is_list, is_object
from citewire.dialects.langchain.messages import NAME, LangChainReader, read_message
from citewire.errors import InputError, ShapeError
from citewire.model import Answer, Citation
from citewire.text import Unit

__all__ = ["LangChainStream", "NAME", "STREAM", "detect"]

_CHUNK = "AIMessageChunk"


def detect(payload: Any) -> bool:
    return is_list(payload) and bool(payload) and all(map(_is_chunk, payload))


def _is_chunk(event: Any) -> bool:
    return is_object(event) and event.get("type") == _CHUNK and isinstance(event.get("content"), (str, list))


class LangChainStream:
    """Reads message chunks. A citation is returned when it arrives, without a position, and again with its
    position after the last chunk."""

    def __init__(self, options: DialectOptions) -> None:
        self._unit: Unit = options.unit or "codepoints"
        self._fields: Json = {}
        self._blocks: list[_OpenBlock] = []
        self._by_index: dict[Any, _OpenBlock] = {}
        self._reader = LangChainReader(self._unit, "$")
        self._names: dict[tuple[int, int], str] = {}
        self._is_done = False

    def feed(self, event: Any) -> tuple[Citation, ...]:
        if not _is_chunk(event):
            raise ShapeError("a stream event is not a message chunk")
        self._fields |= {key: value for key, value in event.items() if key != "content" and value is not None}
        content = event["content"]
        given: list[Citation] = []
        for block in content if is_list(content) else [content]:
            given += self._add(block)
        if self._is_done or event.get("chunk_position") != "last":
            return tuple(given)
        self._is_done = True
        return self.answer().citations

    def _add(self, block: Any) -> list[Citation]:
        fields: Json = {"type": "text", "text": block} if isinstance(block, str) else block
        if not is_object(fields):
            raise ShapeError("a content block is neither an object nor a text", "$.content")
        opened = self._opened(fields, plain=isinstance(block, str))
        return [
            citation
            for place, entry in opened.add(fields)
            if (citation := self._early(entry, (opened.number, place))) is not None
        ]

    def _opened(self, fields: Json, *, plain: bool) -> _OpenBlock:
        """Return a piece's block: the one with the same index, or the plain text before plain text."""
        index = fields.get("index")
        key = repr(index) if index is not None else None
        opened = self._by_index.get(key) if key else None
        if opened is None and plain and self._blocks and self._blocks[-1].is_plain:
            opened = self._blocks[-1]
        if opened is None:
            opened = _OpenBlock(len(self._blocks), is_plain=plain)
            self._blocks.append(opened)
            if key:
                self._by_index[key] = opened
        return opened

    def _early(self, entry: Any, at: tuple[int, int]) -> Citation | None:
        """Read a citation whose position is not known yet; unreadable ones are left for the end."""
        if not is_object(entry) or entry.get("type") != "citation":
            return None
        try:
            citation = self._reader.annotation(entry, at, None)
        except InputError:
            return None
        self._reader.citations.append(citation)
        self._names[at] = citation.id
        return citation

    def answer(self) -> Answer:
        content = [opened.block() for opened in self._blocks]
        answer = read_message({**self._fields, "content": content}, (), self._unit)
        return replace(answer, citations=tuple(map(self._named, answer.citations)))

    def _named(self, citation: Citation) -> Citation:
        """Return the citation with the id it first had, in whatever order the blocks arrived."""
        name = self._names.get(citation.native.at) if citation.native else None
        return citation if name in (None, citation.id) else replace(citation, id=name)


# Strings that every piece repeats instead of continuing.
_SAID_AGAIN = frozenset({"type", "id"})


class _OpenBlock:
    """A block that has started; its strings arrive in pieces."""

    def __init__(self, number: int, *, is_plain: bool) -> None:
        self.number = number
        self.is_plain = is_plain
        self._fields: Json = {}
        self._strings: dict[str, list[str]] = {}
        self._annotations: list[Any] = []

    def add(self, piece: Json) -> list[tuple[int, Any]]:
        """Add a piece and return its annotations, each with its index in the block."""
        self._fields |= piece
        for key, value in piece.items():
            if isinstance(value, str) and key not in _SAID_AGAIN:
                self._strings.setdefault(key, []).append(value)
        annotations = piece.get("annotations")
        first = len(self._annotations)
        self._annotations += annotations if is_list(annotations) else []
        return list(enumerate(self._annotations[first:], first))

    def block(self) -> Any:
        strings = {key: "".join(pieces) for key, pieces in self._strings.items()}
        if self.is_plain:
            return strings["text"]
        return (
            self._fields | strings | ({"annotations": list(self._annotations)} if self._annotations else {})
        )


STREAM = LangChainStream
