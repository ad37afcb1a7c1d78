"""Grounding chunks: each is one source, of one of several kinds."""

from __future__ import annotations

from typing import Any, NamedTuple

from citewire.dialects.base import Json, is_object, optional, overlay
from citewire.errors import ShapeError
from citewire.model import Chunk, Locator, Native, Pages, Source, SourceKind, SourceRef

__all__ = ["CHUNK_SHAPES", "ChunkContent", "content_of", "read_chunk", "write_chunk"]


class ChunkShape(NamedTuple):
    """A kind of chunk: its field names, and what else it supports."""

    key: str
    fields: dict[str, str]
    metadata: tuple[str, ...] = ()
    has_text: bool = False
    has_rag: bool = False


CHUNK_SHAPES: dict[SourceKind, ChunkShape] = {
    "web": ChunkShape("web", {"url": "uri", "title": "title", "domain": "domain"}),
    "document": ChunkShape(
        "retrievedContext",
        {"url": "uri", "title": "title"},
        ("customMetadata", "documentName", "fileSearchStore", "mediaId"),
        has_text=True,
        has_rag=True,
    ),
    "place": ChunkShape(
        "maps",
        {"url": "uri", "title": "title", "record_id": "placeId"},
        ("placeAnswerSources", "route"),
        has_text=True,
    ),
    "image": ChunkShape("image", {"url": "sourceUri", "title": "title", "domain": "domain"}, ("imageUri",)),
    # An unknown kind: its fields are not read, and it is written back unchanged.
    "unknown": ChunkShape("", {}),
}


class ChunkContent(NamedTuple):
    """The fields of a chunk."""

    kind: SourceKind
    metadata: Json
    url: str | None = None
    title: str | None = None
    domain: str | None = None
    file_id: str | None = None
    record_id: str | None = None
    locator: Locator | None = None
    quote: str | None = None


def read_chunk(chunk: Any) -> ChunkContent:
    if not is_object(chunk):
        raise ShapeError("a chunk is not an object", "")
    kinds: list[SourceKind] = [
        kind for kind, shape in CHUNK_SHAPES.items() if is_object(chunk.get(shape.key))
    ]
    kind = kinds[0] if kinds else "unknown"
    if kind == "unknown":
        return ChunkContent(kind, {})
    shape = CHUNK_SHAPES[kind]
    inner: Json = chunk[shape.key]
    fields: Json = {name: optional(inner, key, str) for name, key in shape.fields.items()}
    metadata = {key: inner[key] for key in shape.metadata if inner.get(key) is not None}
    quote = optional(inner, "text", str) if shape.has_text else None
    content = ChunkContent(kind, metadata, **fields, quote=quote)
    rag = optional(inner, "ragChunk", dict) or {} if shape.has_rag else None
    if rag is None:
        return content
    return content._replace(
        file_id=optional(rag, "fileId", str),
        locator=_locator(inner, rag),
        quote=quote if quote is not None else optional(rag, "text", str),
    )


def _locator(inner: Json, rag: Json) -> Locator | None:
    """Return the chunk's pages if they are valid, else its id."""
    span = rag.get("pageSpan")
    if is_object(span):
        first, last = span.get("firstPage"), span.get("lastPage")
    else:
        first = last = inner.get("pageNumber")
    if type(first) is int and type(last) is int and 1 <= first <= last:
        return Pages(first, last)
    chunk = optional(rag, "chunkId", str)
    return None if chunk is None else Chunk(chunk)


def content_of(ref: SourceRef, source: Source) -> ChunkContent:
    return ChunkContent(
        source.kind,
        source.metadata,
        source.url,
        source.title,
        source.domain,
        source.file_id,
        source.record_id,
        ref.locator,
        ref.quote,
    )


def write_chunk(content: ChunkContent, native: Native | None) -> Json:
    """Write a chunk; one whose content is unchanged stays as it was read."""
    if native is not None and native.was == content:
        return native.raw
    if content.kind == "unknown":
        return {}
    shape = CHUNK_SHAPES[content.kind]
    raw: Json = native.raw if native is not None and native.was.kind == content.kind else {}
    inner: Json = raw.get(shape.key, {})
    fields: Json = {key: getattr(content, name) for name, key in shape.fields.items()}
    fields |= {key: content.metadata.get(key) for key in shape.metadata}
    if shape.has_text:
        fields["text"] = content.quote
    if shape.has_rag:
        fields |= _rag_fields(content, inner.get("ragChunk"))
    return raw | {shape.key: overlay(inner, fields)}


def _rag_fields(content: ChunkContent, raw: Json | None) -> Json:
    locator = content.locator
    pages = isinstance(locator, Pages)
    fields: Json = {"text": None, "fileId": content.file_id}
    fields["pageSpan"] = {"firstPage": locator.first, "lastPage": locator.last} if pages else None
    if not pages:
        fields["chunkId"] = locator.id if isinstance(locator, Chunk) else None
    return {"pageNumber": None, "ragChunk": overlay(raw, fields) or raw}
