"""ChatGPT's own messages, as in its web application and exports: `metadata.content_references`.

A reference repeats its marker, which is in private-use characters, as the `matched_text` to be replaced; this
confirms its offsets. It cites a web page, several pages, or a file. Other references (entities, follow-up
questions, the list of all sources at the end) cite nothing and stay unchanged.
"""

from __future__ import annotations

from typing import Any

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
from citewire.dialects.common.annotations import (
    drop_claim_and_point,
    fit_links,
    is_marker,
    origin_of,
    unit_of,
)
from citewire.dialects.common.claims import read_claim
from citewire.errors import InputError, ShapeError
from citewire.model import Answer, Citation, Native, Part, Source, SourceKind, SourceRef, Written
from citewire.text import Offsets, Unit

SUPPORTED_FIELDS = frozenset(
    {
        "answer.id",
        "marker",
        "source.file_id",
        "source.filename",
        "source.snippet",
        "source.title",
        "source.url",
    }
)
UNIT: Unit = "codepoints"

# Distinguishes the original of a message from the original of a completion.
_KEPT = "chatgpt"
_LIST = ("metadata", "content_references")
_GROUP, _FILE = "grouped_webpages", "file"
_CITING = ("webpage", _GROUP, _FILE)
# References do not name their text: at most this many are searched, which keeps work linear. None has more.
_MOST_TEXTS = 32


def detect(payload: Any) -> bool:
    """Whether a payload is a message, or contains one as conversation exports do."""
    return _message_at(payload) is not None


def _message_at(payload: Any) -> tuple[str, ...] | None:
    for path in ((), ("message",)):
        message = payload.get(path[0]) if path and is_object(payload) else payload
        if is_object(message) and is_object(message.get("author")) and _has_parts(message.get("content")):
            return path
    return None


def _has_parts(content: Any) -> bool:
    return is_object(content) and "content_type" in content and is_list(content.get("parts"))


def find_native(answer: Answer) -> Native | None:
    """Return the original of the message that an answer was read from."""
    return native_for(answer.native, _KEPT)


def read_all(payload: Any, options: DialectOptions) -> tuple[Answer, ...]:
    """Read the answer in a message; a user's message has none."""
    path = _message_at(payload) or ()
    message: Json = get_at(payload, path)
    is_asked = message["author"].get("role") == "user"
    return () if is_asked else (_read(payload, path, message, options.unit or UNIT),)


def _read(payload: Any, path: tuple[str, ...], message: Json, unit: Unit) -> Answer:
    where = path_text(path)
    found = [(at, text) for at, text in enumerate(message["content"]["parts"]) if isinstance(text, str)]
    texts = [Offsets(text) for _, text in found]
    metadata = optional(message, "metadata", dict, where) or {}
    entries = optional(metadata, _LIST[1], list, f"{where}.metadata") or []
    sources, problems = SourceRegistry(), ProblemList()
    if metadata.get("citations"):
        problems.add(where, ShapeError("the citations of older messages are not read", ".metadata.citations"))
    citations: list[Citation] = []
    others: list[tuple[int, Any]] = []
    for at, entry in enumerate(entries):
        size = len(sources)
        name = f"c{len(citations) + 1}"
        try:
            citation = _read_entry(entry, at, name, texts, unit, sources)
        except InputError as exc:
            sources.truncate(size)
            problems.add(f"{path_text((*path, *_LIST))}[{at}]", exc)
            citation = None
        if citation is not None:
            citations.append(citation)
        else:
            others.append((at, entry))
    return Answer(
        parts=tuple(Part(text, Native(_KEPT, at=at, was=text)) for at, text in found),
        citations=tuple(citations),
        sources=tuple(sources),
        id=optional(message, "id", str, where),
        problems=tuple(problems),
        native=Native(_KEPT, payload, path, tuple(others), unit),
    )


def _read_entry(
    entry: Any, at: int, name: str, texts: list[Offsets], unit: Unit, sources: SourceRegistry
) -> Citation | None:
    """Read the citation of a reference, None if it cites nothing."""
    if not is_object(entry):
        raise ShapeError("a reference is not an object", "")
    if not isinstance(kind := entry.get("type"), str) or not kind.startswith(_CITING):
        return None
    refs = tuple(SourceRef(_add(raw, sources), native=Native(_KEPT, raw)) for raw in _cited(entry))
    place = _place(entry, texts, unit)
    if place is None:
        return Citation(name, refs, native=Native(_KEPT, entry, at))
    marker, origin = place
    native = Native(_KEPT, entry, at, was=marker if origin == "repaired" else None)
    return Citation(name, refs, marker=marker, span_origin=origin, native=native)


def _cited(entry: Json) -> list[Json]:
    """Return one object per source: a group's pages and their supporting pages, else the entry itself."""
    if not require(entry, "type", str).startswith(_GROUP):
        return [entry]
    found: list[Json] = []
    for at, item in enumerate(require(entry, "items", list)):
        supporting = item.get("supporting_websites") if is_object(item) else None
        for one in (item, *(supporting if is_list(supporting) else ())):
            if not is_object(one):
                raise ShapeError("what is cited is not an object", f".items[{at}]")
            found.append(one)
    if not found:
        raise ShapeError("no source is named", ".items")
    return found


def _add(raw: Json, sources: SourceRegistry) -> str:
    kind, *fields = _described(raw)
    url, title, filename, file_id, snippet = fields
    return sources.add(kind, url, title, filename=filename, file_id=file_id, snippet=snippet)


def _described(raw: Json) -> tuple[Any, ...]:
    """Return the kind of a source, then its URL, title, name, id and snippet; empty values become None."""
    snippet = optional(raw, "snippet", str) or None
    safe: list[Any] = optional(raw, "safe_urls", list) or []
    url = optional(raw, "url", str) or next((one for one in safe if isinstance(one, str) and one), None)
    if url is not None:
        return "web", url, optional(raw, "title", str) or None, None, None, snippet
    if raw.get("type") != _FILE:
        raise ShapeError("no address is given", ".url")
    return "file", None, None, optional(raw, "name", str) or None, require(raw, "id", str), snippet


def _place(entry: Json, texts: list[Offsets], unit: Unit) -> Any:
    """Return the marker and its origin, in the first text with an exact match, else with a near one."""
    words = optional(entry, "matched_text", str)
    start, end = (optional(entry, key, int) for key in ("start_idx", "end_idx"))
    if not words:
        return None
    found: list[Any] = []
    for part, offsets in enumerate(texts[:_MOST_TEXTS]):
        try:
            found.append(read_claim(offsets, start or 0, end or 0, unit, words, part))
        except ShapeError:
            continue
    if not found:
        raise ShapeError("the marker is not in the text", ".matched_text")
    return min(found, key=lambda place: place[1] != "exact")


def write(answer: Answer, native: Native, options: DialectOptions) -> Written:
    """Write an answer into the message it was read from, whose original is `native`."""
    fitting = Adaptation(answer, _KEPT)
    if answer.citations:
        fitting.require_text()
    fitting.require_refs()
    fitting.drop_sources(_why_not)
    for source in fitting.cited_sources():
        fitting.sources[source.id] = _fit_source(source, fitting)
    numbers = {citation.id: number for number, citation in enumerate(fitting.answer.citations, 1)}
    fit_links(
        fitting,
        lambda citation, text: text != "" and (_is_read(citation) or is_marker(text)),
        lambda citation: f"\ue200cite\ue202citewire{numbers[citation.id]}\ue201",
        lambda citation: drop_claim_and_point(citation, fitting),
    )
    fit = fitting.finish(SUPPORTED_FIELDS, kind=_kind, origin=origin_of(fitting.answer, _KEPT))
    unit = unit_of(fit, _KEPT, options.unit, UNIT)
    sources = {source.id: source for source in fit.sources}
    texts = [_Text(part) for part in fit.parts]
    written = [_entry(citation, sources, texts, unit) for citation in fit.citations]
    message: Json = get_at(native.raw, native.at)
    message = overlay(message, {"id": fit.id, "content": _content(message["content"], fit.parts)})
    references = interleave(native.kept, written)
    metadata: Json = message.get("metadata") or {}
    if references or metadata.get(_LIST[1]):
        message["metadata"] = {**metadata, _LIST[1]: references}
    return Written(put_at(native.raw, native.at, message), tuple(fitting.losses))


class _Text(Offsets):
    """A text, and whether it is unchanged since reading."""

    def __init__(self, part: Part) -> None:
        super().__init__(part.text)
        native = native_for(part.native, _KEPT)
        self.is_same = native is not None and native.was == part.text


def _is_read(citation: Citation) -> bool:
    return native_for(citation.native, _KEPT) is not None


def _why_not(citation: Citation, source: Source) -> str | None:
    if source.url or source.file_id is not None:
        return None
    return f"ChatGPT cites URLs and file ids, and {source.label} has neither"


def _kind(source: Source) -> SourceKind:
    return "web" if source.url is not None else "file"


def _fit_source(source: Source, fitting: Adaptation) -> Source:
    """Drop a page's file fields, a file's URL and title, and empty values."""
    others = ("filename", "file_id") if source.url else ("url", "title")
    changes: Json = {field: None for field in others if getattr(source, field) is not None}
    changes |= {field: None for field in ("title", "filename", "snippet") if getattr(source, field) == ""}
    for field in changes:
        fitting.record_loss(f"source.{field}", "a reference has no place for it", source=source.id)
    return replace(source, **changes) if changes else source


def _entry(
    citation: Citation, sources: dict[str, Source], texts: list[_Text], unit: Unit
) -> tuple[int | None, Json]:
    """Write a reference, unchanged if it cites the same sources, and return it with its old index."""
    native = native_for(citation.native, _KEPT)
    cited = [(ref, sources[ref.source_id]) for ref in citation.refs]
    same = native is not None and [_fields(source) for _, source in cited] == [
        _described(raw) for raw in _cited(native.raw)
    ]
    entry: Json = native.raw if native and same else {"type": _GROUP, "items": [_item(*one) for one in cited]}
    return native and native.at, overlay(entry, _place_fields(citation, native, texts, unit))


def _fields(source: Source) -> tuple[Any, ...]:
    return source.kind, source.url, source.title, source.filename, source.file_id, source.snippet


def _item(ref: SourceRef, source: Source) -> Json:
    """Write one source of a group. Its supporting pages are separate sources now."""
    native = native_for(ref.native, _KEPT)
    raw: Json = native.raw if native and "matched_text" not in native.raw else {}
    fields: Json = {"supporting_websites": None, "snippet": source.snippet}
    if source.url is not None:
        return overlay(raw, fields | {"title": source.title, "url": source.url})
    return overlay(raw, fields | {"type": _FILE, "id": source.file_id, "name": source.filename})


def _place_fields(citation: Citation, native: Native | None, texts: list[_Text], unit: Unit) -> Json:
    """Return the marker and its offsets, or nothing if those in the payload are still right."""
    marker = citation.marker
    if marker is None:
        return dict.fromkeys(("matched_text", "start_idx", "end_idx")) if _had_marker(native) else {}
    offsets = texts[marker.part]
    if native and native.was == marker and offsets.is_same:
        return {}
    words = offsets.text[marker.start : marker.end]
    start, end = offsets.to_unit(marker.start, unit), offsets.to_unit(marker.end, unit)
    return {"matched_text": words, "start_idx": start, "end_idx": end}


def _had_marker(native: Native | None) -> bool:
    return native is not None and bool(native.raw.get("matched_text"))


def _content(content: Json, parts: tuple[Part, ...]) -> Json:
    old: list[Any] = content["parts"]
    others = [(at, part) for at, part in enumerate(old) if not isinstance(part, str)]
    natives = [native_for(part.native, _KEPT) for part in parts]
    texts = [(native and native.at, part.text) for native, part in zip(natives, parts, strict=True)]
    return {**content, "parts": interleave(others, texts)}
