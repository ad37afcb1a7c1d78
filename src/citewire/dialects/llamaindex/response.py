"""The response of a LlamaIndex citation query engine; `[1]` in the text means its first source node.

A node is a piece of a document. Its text is the quote, and its metadata describes the document, with names
that differ by reader. The engine puts `Source 1:` before the text of each node; that is not part of the
quote.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from msgspec.structs import replace

from citewire.adapt import Adaptation
from citewire.dialects.base import (
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
from citewire.dialects.common.reference_lists import (
    ListedReference,
    cite_list,
    fit_to_list,
    origin_of,
    snapshot_list,
)
from citewire.errors import InputError, ShapeError
from citewire.model import (
    Answer,
    Chars,
    Citation,
    Locator,
    Native,
    Pages,
    Part,
    Source,
    SourceKind,
    SourceRef,
    Written,
)

NAME = "llamaindex"
SUPPORTED_FIELDS = frozenset(
    {
        "marker",
        "ordinal",
        "refs.locator.chars",
        "refs.locator.pages",
        "refs.quote",
        "refs.score",
        "source.filename",
        "source.metadata",
        "source.title",
        "source.url",
    }
)

_URL = ("url", "URL", "source_url", "source")
_TITLE = ("title", "document_title")
_FILENAME = ("file_name",)
_PAGE = "page_label"
_OURS = frozenset({*_URL, *_TITLE, *_FILENAME, _PAGE})
_PREFIX = re.compile(r"Source \d{1,6}:\n")
_CHARS = ("start_char_idx", "end_char_idx")


def detect(payload: Any) -> bool:
    """Whether a payload is the response of a query engine."""
    return is_object(payload) and is_list(payload.get("source_nodes")) and "response" in payload


def read(payload: Any) -> Answer:
    """Read the answer in a response."""
    if not is_object(payload):
        raise ShapeError("a response is not an object")
    text = optional(payload, "response", str, "$")
    sources, problems = SourceRegistry(), ProblemList()
    listed: list[ListedReference] = []
    kept: list[tuple[int, Any]] = []
    for at, entry in enumerate(require(payload, "source_nodes", list, "$")):
        try:
            listed.append(_read_node(entry, at, sources))
        except InputError as exc:
            problems.add(f"$.source_nodes[{at}]", exc)
            kept.append((at, entry))
    citations, cited = cite_list(text or "", listed, sources)
    return Answer(
        parts=() if text is None else (Part(text),),
        citations=citations,
        sources=cited,
        problems=tuple(problems),
        native=Native(NAME, payload, kept=tuple(kept), was=snapshot_list(text or "", citations)),
    )


def _read_node(entry: Any, at: int, sources: SourceRegistry) -> ListedReference:
    if not is_object(entry):
        raise ShapeError("a source node is not an object", "")
    node = require(entry, "node", dict)
    metadata = optional(node, "metadata", dict, ".node") or {}
    url, title, filename = (_named(metadata, keys) for keys in (_URL, _TITLE, _FILENAME))
    rest = _free(metadata)
    locator, score, quote = _locator(node, metadata), _score(entry), _quote(node)
    source_id = sources.add(_kind_of(url, filename), url, title, filename=filename, metadata=rest)
    was = (url, title, filename, rest, locator, quote, score)
    return ListedReference(
        at, SourceRef(source_id, locator, quote, score=score), Native(NAME, entry, at, was=was)
    )


def _free(metadata: Json) -> Json:
    """Return the metadata that has no field of its own in `Source`."""
    return {key: value for key, value in metadata.items() if key not in _OURS or not _is_said(key, value)}


def _is_said(key: str, value: Any) -> bool:
    """Whether a metadata field is one that we read; the name alone does not decide."""
    if key == _PAGE:
        return _page(value) is not None
    return isinstance(value, str) and (key != "source" or "://" in value)


def _named(metadata: Json, keys: tuple[str, ...]) -> str | None:
    return next((metadata[key] for key in keys if key in metadata and _is_said(key, metadata[key])), None)


def _kind_of(url: str | None, filename: str | None) -> SourceKind:
    return "web" if url is not None else "document" if filename is None else "file"


def _page(label: Any) -> int | None:
    is_number = isinstance(label, str) and label.isascii() and label.isdecimal() and len(label) < 10
    return int(label) if is_number and int(label) > 0 and not label.startswith("0") else None


def _locator(node: Json, metadata: Json) -> Locator | None:
    page = _page(metadata.get(_PAGE))
    if page is not None:
        return Pages(page, page)
    start, end = (optional(node, key, int, ".node") for key in _CHARS)
    if start is None or end is None:
        return None
    if not 0 <= start <= end:
        raise ShapeError(f"{start} to {end} is negative or reversed", f".node.{_CHARS[1]}")
    return Chars(start, end)


def _score(entry: Json) -> float | None:
    score = entry.get("score")
    if score is not None and type(score) not in (int, float):
        raise ShapeError("score is not a number", ".score")
    return score


def _text_of(node: Json) -> str | None:
    """Return the text of a node; newer nodes have it in a resource."""
    resource = node.get("text_resource")
    return optional(resource if is_object(resource) else node, "text", str, ".node")


def _quote(node: Json) -> str | None:
    return _bare_quote(_text_of(node) or "") or None


def _bare_quote(text: str) -> str:
    """Return the quote without the engine's heading and without line breaks around it."""
    heading = _PREFIX.match(text)
    return (text[heading.end() :] if heading else text).strip("\n")


def write(answer: Answer) -> Written:
    """Write an answer as a response."""
    fitting = Adaptation(answer, NAME)
    native = native_for(answer.native, NAME)
    if native is None or answer.citations:
        fitting.require_text()
    fitting.join_parts()
    fitting.require_refs()
    fitting.split_refs()
    for source in fitting.cited_sources():
        fitting.sources[source.id] = _fit_source(source, fitting)
    fitting.map_citations(lambda citation: _fit_ref(citation, fitting))
    kept: Iterable[tuple[int, Any]] = native.kept if native else ()
    entries = fit_to_list(fitting, _content, kept, "[{}]")
    fit = fitting.finish(
        SUPPORTED_FIELDS, kind=lambda source: _kind_of(source.url, source.filename), origin=origin_of
    )
    sources = {source.id: source for source in fit.sources}
    nodes = [(at, _entry(fit.citations[number], sources)) for at, number in entries]
    fields: Json = {"response": fit.text if fit.parts else None, "source_nodes": interleave(kept, nodes)}
    return Written(overlay(native.raw if native else None, fields), tuple(fitting.losses))


def _content(citation: Citation) -> Any:
    """Return the key by which citations share a node."""
    ref = citation.refs[0]
    return ref.source_id, ref.locator, ref.quote, ref.score


def _fit_source(source: Source, fitting: Adaptation) -> Source:
    free = _free(source.metadata)
    if free == source.metadata:
        return source
    fitting.record_loss("source.metadata", "names what a source has fields for", source=source.id)
    return replace(source, metadata=free)


def _fit_ref(citation: Citation, fitting: Adaptation) -> Citation:
    """Fit a reference: a node has at most one page, and its text is not empty or padded with newlines."""
    ref = citation.refs[0]
    quote = _bare_quote(ref.quote or "") or None
    if quote != ref.quote:
        fitting.record_loss("refs.quote", "cannot be the text of a node as it is", citation=citation.id)
        ref = replace(ref, quote=quote)
    pages = ref.locator
    if isinstance(pages, Pages) and (pages.first != pages.last or _page(str(pages.first)) is None):
        fitting.record_loss("refs.locator", "a node is of one page", citation=citation.id)
        ref = replace(ref, locator=None)
    return citation if ref is citation.refs[0] else replace(citation, refs=(ref,))


def _entry(citation: Citation, sources: dict[str, Source]) -> Json:
    ref, native = citation.refs[0], native_for(citation.native, NAME)
    source = sources[ref.source_id]
    said = (source.url, source.title, source.filename, source.metadata, ref.locator, ref.quote, ref.score)
    if native is not None and native.was == said:
        return native.raw
    raw: Json = native.raw if native else {"class_name": "NodeWithScore"}
    new: Json = {"id_": f"node-{citation.ordinal}", "class_name": "TextNode"}
    node: Json = raw["node"] if native else new
    old: Json = node.get("metadata") or {}
    metadata = _metadata(old, source)
    locator = _locator(node, old)
    if locator != ref.locator or not native:
        page = ref.locator.first if isinstance(ref.locator, Pages) else None
        edges = (ref.locator.start, ref.locator.end) if isinstance(ref.locator, Chars) else (None, None)
        if page is not None or _page(old.get(_PAGE)) is not None:
            metadata = overlay(metadata, {_PAGE: page and str(page)})
        node = overlay(node, dict(zip(_CHARS, edges, strict=True)))
    if metadata != old or not native:
        node = overlay(node, {"metadata": metadata})
    if _quote(node) != ref.quote or not native:
        node = _with_text(node, ref.quote or "")
    return overlay(raw, {"node": node, "score": ref.score})


def _with_text(node: Json, text: str) -> Json:
    resource = node.get("text_resource")
    if not is_object(resource):
        return {**node, "text": text}
    return {**node, "text_resource": {**resource, "text": text}}


def _metadata(old: Json, source: Source) -> Json:
    """Return the metadata of a source, with the names it was read with."""
    said = {key: value for key, value in old.items() if key in _OURS and _is_said(key, value)}
    for keys, value in ((_URL, source.url), (_TITLE, source.title), (_FILENAME, source.filename)):
        if _named(said, keys) != value:
            said = {key: kept for key, kept in said.items() if key not in keys}
            if value is not None:
                said[keys[0]] = value
    return said | source.metadata
