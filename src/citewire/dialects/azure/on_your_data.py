"""Azure OpenAI On Your Data: `message.context.citations`; `[doc1]` in the text means the first one.

A message comes in a completion or alone. Its context is an object or a JSON string of one. Before February
2024, the citations were JSON in the content of a tool message inside the context.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from citewire.adapt import Adaptation
from citewire.codec import decode, encode
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
)
from citewire.dialects.common.completions import (
    CompletionMessage,
    JsonPath,
    find_completion_dialect,
    list_messages,
    put_message,
    read_id,
)
from citewire.dialects.common.marker_records import MarkerTargets
from citewire.dialects.common.reference_lists import (
    ListedReference,
    cite_list,
    fit_to_list,
    origin_of,
    snapshot_list,
)
from citewire.errors import DecodeError, InputError, ShapeError
from citewire.model import Answer, Chunk, Citation, Native, Part, Source, SourceKind, SourceRef, Written

NAME = "azure.oyd"
UPSTREAM = "Azure OpenAI data plane 2024-10-21, On Your Data"
READS_TOO = ("openai.chat",)
SUPPORTED_FIELDS = frozenset(
    {
        "answer.id",
        "marker",
        "ordinal",
        "refs.locator.chunk",
        "refs.quote",
        "refs.score",
        "source.filename",
        "source.title",
        "source.url",
    }
)

_MARKER = re.compile(r"\[doc([1-9]\d{0,5})\]")


def detect(payload: Any) -> bool:
    return is_object(payload) and (find_completion_dialect(payload) == NAME or _is_lone_message(payload))


def _is_lone_message(payload: Json) -> bool:
    if payload.get("role") != "assistant" or not isinstance(payload.get("content"), str):
        return False
    context = payload.get("context")
    return isinstance(context, str) or (
        is_object(context) and bool(context.keys() & {"citations", "messages"})
    )


def read_all(payload: Any, options: DialectOptions) -> tuple[Answer, ...]:
    del options  # this dialect has no offsets
    is_lone = is_object(payload) and "context" in payload and "choices" not in payload
    found: list[CompletionMessage] = [((), payload)] if is_lone else list_messages(payload)
    return tuple(_read(payload, path, message) for path, message in found)


def _read(payload: Json, path: JsonPath, message: Json) -> Answer:
    where = path_text(path)
    text = optional(message, "content", str, where)
    sources, problems = SourceRegistry(), ProblemList()
    entries = problems.try_read(lambda: where, _citations, message)
    listed: list[ListedReference] = []
    kept: list[tuple[int, Any]] = []
    for at, entry in enumerate(entries or ()):
        try:
            listed.append(ListedReference(at, _read_ref(entry, sources), Native(NAME, entry, at)))
        except InputError as exc:
            problems.add(f"{where}.context.citations[{at}]", exc)
            kept.append((at, entry))
    citations, used = cite_list(text or "", listed, sources, _docs_in)
    return Answer(
        parts=() if text is None else (Part(text),),
        citations=citations,
        sources=used,
        id=read_id(payload),
        problems=tuple(problems),
        native=Native(NAME, payload, path, tuple(kept), snapshot_list(text or "", citations)),
    )


def _docs_in(text: str, labels: Mapping[str, int]) -> MarkerTargets:
    return {match.span(): {labels[match[1]]} for match in _MARKER.finditer(text) if match[1] in labels}


def _path_to_citations(message: Json) -> JsonPath:
    """Return the path of a message's citations; steps may lead into JSON strings."""
    context = _inside(message.get("context"))
    if "citations" not in context and is_list(said := context.get("messages")):
        for at, tool in enumerate(said):
            if is_object(tool) and tool.get("role") == "tool" and isinstance(tool.get("content"), str):
                return ("context", "messages", at, "content", "citations")
    return ("context", "citations")


def _inside(value: Any) -> Json:
    """Return the object that `value` is or contains as a JSON string; an empty one for null."""
    if isinstance(value, str):
        try:
            value = decode(value)
        except DecodeError as exc:
            raise ShapeError("context is not JSON", ".context") from exc
    if value is None or is_object(value):
        return value or {}
    raise ShapeError("context is not an object", ".context")


def _citations(message: Json) -> list[Any]:
    found: Any = message
    for step in _path_to_citations(message):
        found = _inside(found).get(step) if isinstance(step, str) else found[step]
    if found is None or is_list(found):
        return found or []
    raise ShapeError("citations is not a list", ".context.citations")


def _put(value: Any, path: JsonPath, new: Any) -> Any:
    """Return `value` with `new` at `path`; JSON strings along the path are encoded again."""
    if not path:
        return new
    step, rest = path[0], path[1:]
    if is_list(value):
        return [_put(one, rest, new) if at == step else one for at, one in enumerate(value)]
    inside = _inside(value)
    changed = {**inside, str(step): _put(inside.get(str(step)), rest, new)}
    return encode(changed).decode() if isinstance(value, str) else changed


def _read_ref(entry: Any, sources: SourceRegistry) -> SourceRef:
    if not is_object(entry):
        raise ShapeError("a citation is not an object", "")
    url, title, file = (optional(entry, key, str) for key in ("url", "title", "filepath"))
    chunk, quote = optional(entry, "chunk_id", str), optional(entry, "content", str) or None
    score = entry.get("rerank_score")
    if score is not None and type(score) not in (int, float):
        raise ShapeError("rerank_score is not a number", ".rerank_score")
    source_id = sources.add(_kind(url, file), url, title, filename=file)
    return SourceRef(source_id, None if chunk is None else Chunk(chunk), quote, score=score)


def _kind(url: str | None, file: str | None) -> SourceKind:
    if file is not None:
        return "file"
    return "document" if url is None else "web"


def write(answer: Answer, options: DialectOptions) -> Written:
    del options
    fitting = Adaptation(answer, NAME)
    native = native_for(answer.native, NAME)
    if answer.citations or native is None:
        fitting.require_text()
    fitting.join_parts()
    fitting.require_refs()
    fitting.split_refs()
    fitting.map_citations(lambda citation: _fit_quote(citation, fitting))
    kept = native.kept if native else ()
    entries = fit_to_list(fitting, _content, kept, "[doc{}]", _docs_in)
    fit = fitting.finish(
        SUPPORTED_FIELDS, kind=lambda source: _kind(source.url, source.filename), origin=origin_of
    )
    sources = {source.id: source for source in fit.sources}
    written = interleave(kept, [(at, _entry(fit.citations[number], sources)) for at, number in entries])
    raw: Json = get_at(native.raw, native.at) if native else {}
    return Written(put_message(native, fit.id, _message(raw, fit, written), {}), tuple(fitting.losses))


def _content(citation: Citation) -> Any:
    ref = citation.refs[0]
    return ref.source_id, ref.locator, ref.quote, ref.score


def _fit_quote(citation: Citation, fitting: Adaptation) -> Citation:
    """Drop an empty quote: the content is required, so an empty one means that there is no quote."""
    ref = citation.refs[0]
    if ref.quote != "":
        return citation
    fitting.record_loss("refs.quote", "an empty one reads as none", citation=citation.id)
    return replace(citation, refs=(replace(ref, quote=None),))


def _entry(citation: Citation, sources: dict[str, Source]) -> Json:
    ref, native = citation.refs[0], native_for(citation.native, NAME)
    source = sources[ref.source_id]
    raw: Json = native.raw if native else {"content": ""}
    fields: Json = {
        "title": source.title,
        "url": source.url,
        "filepath": source.filename,
        "chunk_id": ref.locator.id if isinstance(ref.locator, Chunk) else None,
        "rerank_score": ref.score,
    }
    if ref.quote or raw.get("content"):
        fields["content"] = ref.quote or ""
    return overlay(raw, fields)


def _message(raw: Json, answer: Answer, citations: list[Any]) -> Json:
    """Update a message; a missing text or list stays missing while it would be empty."""
    message = raw or {"content": "", "context": {"citations": []}}
    if answer.parts and (answer.parts[0].text or message.get("content") is not None):
        message = {**message, "content": answer.parts[0].text}
    try:
        same = _citations(message) == citations
    except ShapeError:
        # Leave an unreadable context unchanged until there are citations to write.
        return {**message, "context": {"citations": citations}} if citations else message
    return message if same else _put(message, _path_to_citations(message), citations)
