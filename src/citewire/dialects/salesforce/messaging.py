"""Salesforce Messaging: `staticContent.citationContent` of an outbound message.

Each source has one entry, with an `inlineMetadata` entry per use. Offsets are UTF-16 units, as in every
client that displays them; the text has no markers; a source needs a URL.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from msgspec.structs import replace

from citewire.adapt import Adaptation
from citewire.dialects.base import (
    DialectOptions,
    Json,
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
from citewire.dialects.salesforce.entries import (
    EntryReader,
    SourceUse,
    finish_entries,
    fit_to_entries,
    original_entry,
    write_entries,
)
from citewire.errors import ShapeError
from citewire.model import Answer, Citation, Native, Part, Point, Source, Span, Written
from citewire.text import Offsets, Unit

NAME = "salesforce"
UPSTREAM = "Messaging for In-App and Web, citations guide, 2026-11"
SUPPORTED_FIELDS = frozenset({"claim", "insert_at", "source.record_id", "source.title", "source.url"})

_UNIT: Unit = "utf16"
_LINK = "Link"
_INLINE = "InlineMetadata"
# Envelopes around staticContent differ by channel; none is nested deeper than this.
_DEPTH = 6

_Path = tuple[str | int, ...]


def detect(payload: Any) -> bool:
    return next(_contents(payload, ()), None) is not None


def _contents(value: Any, path: _Path) -> Iterator[_Path]:
    """Yield the paths of messages with text in the envelope."""
    if is_object(value) and is_object(content := value.get("staticContent")) and "text" in content:
        yield (*path, "staticContent")
    elif len(path) < _DEPTH:
        steps = value.items() if is_object(value) else enumerate(value) if is_list(value) else ()
        for step, inner in steps:
            if isinstance(inner, (dict, list)):
                yield from _contents(inner, (*path, step))


def read_all(payload: Any, options: DialectOptions) -> tuple[Answer, ...]:
    paths = list(_contents(payload, ()))
    if not paths:
        raise ShapeError("no staticContent with text in it")
    return tuple(_read(payload, path, options.unit or _UNIT) for path in paths)


def _read(payload: Any, path: _Path, unit: Unit) -> Answer:
    content: Json = get_at(payload, path)
    where = path_text(path)
    text = require(content, "text", str, where)
    offsets = Offsets(text)
    reader = EntryReader(
        NAME,
        _read_source,
        _inline_metadata,
        ".citedDetails.inlineMetadata",
        lambda use: _read_use(use, offsets, unit),
    )
    for number, entry in enumerate(_entries(content, where)):
        reader.read(number, entry, f"{where}.citationContent.citations[{number}]")
    return Answer(
        parts=(Part(text),),
        citations=tuple(reader.citations),
        sources=tuple(reader.sources),
        problems=tuple(reader.problems),
        native=Native(NAME, payload, path, tuple(reader.kept), unit),
    )


def _entries(content: Json, where: str) -> list[Any]:
    citation_content = optional(content, "citationContent", dict, where) or {}
    return optional(citation_content, "citations", list, f"{where}.citationContent") or []


def _read_source(entry: Any, sources: SourceRegistry) -> str:
    if not is_object(entry):
        raise ShapeError("a citation is not an object", "")
    reference = require(entry, "citedReference", dict)
    at = ".citedReference"
    require(reference, "citedReferenceType", str, at)
    if _is_link(reference):
        url = require(require(reference, "link", dict, at), "url", str, f"{at}.link")
    else:
        url = _any_url(reference)
    record = optional(reference, "recordId", str, at)
    kind = "web" if record is None else "record"
    return sources.add(kind, url, optional(reference, "label", str, at), record_id=record)


def _is_link(reference: Json) -> bool:
    return reference.get("citedReferenceType") == _LINK


def _any_url(reference: Json) -> str | None:
    """Return the link of an unknown reference type, if it has one in the usual field."""
    link = reference.get("link")
    url = link.get("url") if is_object(link) else None
    return url if isinstance(url, str) else None


def _inline_metadata(entry: Json) -> list[Any] | None:
    """Return the uses of a source, None if the entry lists none or in an unknown form."""
    details = optional(entry, "citedDetails", dict)
    if details is None or details.get("citedDetailsType") != _INLINE:
        return None
    uses = require(details, "inlineMetadata", list, ".citedDetails")
    if not uses:
        raise ShapeError("inlineMetadata is empty", ".citedDetails.inlineMetadata")
    return uses


def _read_use(use: Any, offsets: Offsets, unit: Unit) -> SourceUse:
    if not is_object(use):
        raise ShapeError("an inlineMetadata entry is not an object", "")
    at = require(use, "citedLocationOffset", int)
    point = offsets.point(at, unit)
    if point is None:
        raise ShapeError(f"offset {at} is outside the text", ".citedLocationOffset")
    claim = optional(use, "claim", dict)
    if claim is None:
        return SourceUse(None, Point(0, point.start), "repaired" if point.repaired else "exact")
    start = require(claim, "claimStartOffset", int, ".claim")
    end = require(claim, "claimEndOffset", int, ".claim")
    span = offsets.span(start, end, unit)
    if span is None:
        raise ShapeError(f"span {start} to {end} is reversed or outside the text", ".claim")
    repaired = point.repaired or span.repaired
    return SourceUse(
        Span(0, span.start, span.end), Point(0, point.start), "repaired" if repaired else "exact"
    )


def write(answer: Answer, options: DialectOptions) -> Written:
    fitting = fit_to_entries(answer, NAME, _with_point, _is_kept_without_url)
    native = native_for(answer.native, NAME)
    same_text = native is not None and get_at(native.raw, native.at)["text"] == fitting.answer.text
    fit = finish_entries(fitting, SUPPORTED_FIELDS, same_text=same_text)
    unit: Unit = options.unit or (native.was if native else _UNIT)
    offsets = Offsets(fit.text)
    entries = write_entries(
        fitting.groups(),
        fit,
        NAME,
        same_text=same_text,
        entry=_entry,
        use=lambda citation, raw: _use(citation, raw, offsets, unit),
    )
    return Written(_envelope(native, fit.text, entries), tuple(fitting.losses))


def _is_kept_without_url(citation: Citation) -> bool:
    """Whether a citation may lack a URL, because its reference is of an unknown type."""
    entry = original_entry(citation, NAME)
    return entry is not None and not _is_link(entry["citedReference"])


def _with_point(citation: Citation, fitting: Adaptation) -> Citation:
    if citation.insert_at:
        return citation
    if not citation.claim:
        if not _has_kept_details(citation):
            fitting.record_loss(
                "place", "has none in the text: citedDetails is left out", citation=citation.id
            )
        return citation
    fitting.record_loss("insert_at", "required: set to the end of the claim", citation=citation.id)
    return replace(citation, insert_at=Point(0, citation.claim.end))


def _has_kept_details(citation: Citation) -> bool:
    """Whether the original entry had no details, or details of an unknown type."""
    entry = original_entry(citation, NAME)
    if entry is None:
        return False
    details = entry.get("citedDetails")
    return details is None or (is_object(details) and details.get("citedDetailsType") != _INLINE)


def _envelope(native: Native | None, text: str, entries: list[Any]) -> Any:
    if native is None:
        content: Json = {"formatType": "Text", "text": text}
        if entries:
            content["citationContent"] = {"citations": entries}
        return {"staticContent": content}
    raw: Json = get_at(native.raw, native.at)
    kept = raw.get("citationContent")
    fields: Json = {"text": text}
    if entries or (is_object(kept) and kept.get("citations")):
        fields["citationContent"] = overlay(kept, {"citations": entries})
    return put_at(native.raw, native.at, overlay(raw, fields))


def _entry(raw: Json, source: Source, uses: list[Any] | None) -> Json:
    kept = raw.get("citedDetails")
    if uses is not None:
        details = overlay(kept, {"citedDetailsType": _INLINE, "inlineMetadata": uses})
    else:
        details = kept if is_object(kept) and kept.get("citedDetailsType") != _INLINE else None
    return overlay(
        raw, {"citedReference": _reference(raw.get("citedReference"), source), "citedDetails": details}
    )


def _reference(raw: Json | None, source: Source) -> Json:
    named = {"label": source.title, "recordId": source.record_id}
    if raw and not _is_link(raw) and source.url == _any_url(raw):
        return overlay(raw, named)
    link = overlay(raw.get("link") if raw else None, {"url": source.url})
    return overlay(raw, {"citedReferenceType": _LINK, "link": link, **named})


def _use(citation: Citation, raw: Json, offsets: Offsets, unit: Unit) -> Json:
    claim, point = citation.claim, citation.insert_at
    span = claim and {
        "claimStartOffset": offsets.to_unit(claim.start, unit),
        "claimEndOffset": offsets.to_unit(claim.end, unit),
    }
    return overlay(
        raw,
        {
            "citedLocationOffset": point and offsets.to_unit(point.at, unit),
            "claim": span and overlay(raw.get("claim"), span),
        },
    )
