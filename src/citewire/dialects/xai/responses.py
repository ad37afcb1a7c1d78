"""xAI Responses: `url_citation` in two forms, with the same field names as OpenAI's.

`{type, url}` lists a page that was visited and has no position. With offsets it spans a marker `[[1]](url)`,
and `title` is the number of that marker, not the title of a page. Offsets have been seen on ASCII text only:
code points are assumed, and the marker itself confirms them.
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from citewire.adapt import Adaptation
from citewire.dialects.base import DialectOptions, Json, is_object, optional, overlay, require
from citewire.dialects.common.annotations import (
    AnnotationPath,
    AnnotationReader,
    drop_claim_and_point,
    encode_link_url,
    find_link,
    fit_links,
    is_marker,
    make_link_citation,
    origin_of,
    require_web_sources,
    span_fields,
    unit_of,
)
from citewire.dialects.common.responses import (
    find_response_dialect,
    group_by_part,
    read_response,
    write_response,
)
from citewire.errors import ShapeError
from citewire.model import Answer, Citation, Native, Source, SourceRef, Written
from citewire.text import Offsets, ResolvedSpan, Unit

NAME = "xai"
UPSTREAM = "xAI REST Responses API, as captured in November 2025"
SUPPORTED_FIELDS = frozenset({"answer.id", "marker", "ordinal", "source.title", "source.url"})

UNIT: Unit = "codepoints"


def detect(payload: Any) -> bool:
    return find_response_dialect(payload) == NAME


def read_all(payload: Any, options: DialectOptions) -> tuple[Answer, ...]:
    if not is_object(payload):
        raise ShapeError("a response is not an object")
    return (read_response(payload, XaiReader(options.unit or UNIT)),)


class XaiReader(AnnotationReader):
    """Reads xAI's annotations."""

    dialect = NAME

    def annotation(self, entry: Json, at: AnnotationPath, offsets: Offsets, part: int) -> Citation:
        if (kind := require(entry, "type", str)) != "url_citation":
            raise ShapeError(f"unknown annotation type {kind!r}", ".type")
        url, title = require(entry, "url", str), optional(entry, "title", str) or None
        found = self._found(entry, offsets, url)
        ordinal = _number(title)
        ref = SourceRef(self.sources.add("web", url, title if ordinal is None else None))
        native = Native(NAME, entry, at)
        cited = make_link_citation(self.next_id, ref, found, part, offsets.text, native)
        return replace(cited, ordinal=ordinal)

    def _found(self, entry: Json, offsets: Offsets, url: str) -> ResolvedSpan | None:
        """Return the marker's span, None without offsets (a visited page); one offset alone is an error."""
        if entry.get("start_index") is None and entry.get("end_index") is None:
            return None
        return find_link(entry, offsets, self.unit, url)


def _number(title: str | None) -> int | None:
    """Return the number in a title, None unless it is written in canonical form."""
    if title is None or not (title.isascii() and title.isdecimal() and len(title) < 10):
        return None
    return int(title) if str(int(title)) == title else None


def write(answer: Answer, options: DialectOptions) -> Written:
    fitting = require_web_sources(answer, NAME)
    _fit_numbers(fitting)
    fit_links(
        fitting,
        lambda citation, text: is_marker(text),
        lambda citation: _marker(citation, fitting.sources[citation.refs[0].source_id]),
        lambda citation: drop_claim_and_point(citation, fitting),
    )
    fit = fitting.finish(
        SUPPORTED_FIELDS | {"claim"},  # the remaining ones were read from annotations
        kind=lambda source: "web",
        origin=origin_of(fitting.answer, NAME),
        group=lambda answer: group_by_part(answer, NAME),
        why="annotations belong to their part of the text",
    )
    unit = unit_of(fit, NAME, options.unit, UNIT)
    sources = {source.id: source for source in fit.sources}

    def entry(citation: Citation, offsets: Offsets, raw: Json, same_place: bool) -> Json:
        return _entry(citation, sources[citation.refs[0].source_id], offsets, unit, raw, same_place)

    # The model name distinguishes these responses from OpenAI's.
    envelope = {"object": "response", "model": "grok"}
    return Written(write_response(fit, fitting, envelope, entry), tuple(fitting.losses))


def _fit_numbers(fitting: Adaptation) -> None:
    """Drop titles of numbered citations, which hold the number, and titles that would be read as a number."""
    fitting.map_citations(lambda citation: _with_readable_number(citation, fitting))
    numbered = {
        citation.refs[0].source_id for citation in fitting.answer.citations if citation.ordinal is not None
    }
    for source in fitting.cited_sources():
        title = source.title
        if title is None or (source.id not in numbered and title and _number(title) is None):
            continue
        reason = "its number stands there" if source.id in numbered else "an empty one reads as none"
        if _number(title) is not None:
            reason = "a number would read as that of the marker"
        fitting.record_loss("source.title", reason, source=source.id)
        fitting.sources[source.id] = replace(source, title=None)


def _with_readable_number(citation: Citation, fitting: Adaptation) -> Citation:
    if citation.ordinal is None or _number(str(citation.ordinal)) is not None:
        return citation
    fitting.record_loss("ordinal", "cannot be the number of a marker", citation=citation.id)
    return replace(citation, ordinal=None)


def _marker(citation: Citation, source: Source) -> str | None:
    """Return a marker in xAI's format."""
    if source.url is None:
        return None
    return f"[[{citation.ordinal or citation.id.removeprefix('c')}]]({encode_link_url(source.url)})"


def _entry(
    citation: Citation, source: Source, offsets: Offsets, unit: Unit, raw: Json, same_place: bool
) -> Json:
    title = source.title if citation.ordinal is None else str(citation.ordinal)
    # An empty title stays as it was in the payload.
    fields: Json = {
        "type": "url_citation",
        "url": source.url,
        "title": title or (None if raw.get("title") else raw.get("title")),
    }
    if citation.marker or citation.claim:
        fields |= {} if same_place else span_fields(citation, offsets, unit)
    elif raw.get("start_index") != 0 or raw.get("end_index") != 0:
        fields |= {"start_index": None, "end_index": None}
    return overlay(raw, fields)
