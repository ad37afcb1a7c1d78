"""Shared code for chat formats whose messages have annotations with the fields in a nested object.

A `url_citation` spans the link that the model wrote, not the claim it supports. Offsets are as in the
Responses API: the end is exclusive, code points are assumed, and the link itself confirms them.
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from citewire.adapt import Adaptation, SupportedFields
from citewire.dialects.base import (
    DialectOptions,
    Json,
    get_at,
    native_for,
    optional,
    overlay,
    path_text,
    require,
)
from citewire.dialects.common.annotations import (
    AnnotationPath,
    AnnotationReader,
    AnnotationWriter,
    drop_claim_and_point,
    find_link,
    fit_links,
    format_link,
    is_marker,
    make_link_citation,
    origin_of,
    overlay_nonempty,
    require_web_sources,
    span_fields,
    unit_of,
    write_annotations,
)
from citewire.dialects.common.completions import list_messages, put_message, read_id
from citewire.errors import ShapeError
from citewire.model import Answer, Citation, Native, SourceRef, Written
from citewire.text import Offsets, Unit

__all__ = ["MessageReader", "read_messages", "write_message"]

UNIT: Unit = "codepoints"
_KIND = "url_citation"


def read_messages(payload: Any, options: DialectOptions, reads: type[MessageReader]) -> tuple[Answer, ...]:
    """Read one answer per choice."""
    answers: list[Answer] = []
    for path, message in list_messages(payload):
        reader = reads(options.unit or UNIT)
        where = path_text(path)
        text = optional(message, "content", str, where)
        if text is not None or message.get("annotations"):
            reader.read_text(text or "", message, (), where)
        answers.append(reader.answer(read_id(payload), Native(reads.dialect, payload, path)))
    return tuple(answers)


class MessageReader(AnnotationReader):
    """Reads the annotations of a message."""

    def annotation(self, entry: Json, at: AnnotationPath, offsets: Offsets, part: int) -> Citation:
        if (kind := require(entry, "type", str)) != _KIND:
            raise ShapeError(f"unknown annotation type {kind!r}", ".type")
        try:
            return self._cited(require(entry, _KIND, dict), Native(self.dialect, entry, at), offsets, part)
        except ShapeError as exc:
            raise exc if exc.path == f".{_KIND}" else ShapeError(exc.message, f".{_KIND}{exc.path}") from exc

    def _cited(self, cited: Json, native: Native, offsets: Offsets, part: int) -> Citation:
        url = require(cited, "url", str)
        found = find_link(cited, offsets, self.unit, url)
        ref = SourceRef(self.source(url, cited))
        return make_link_citation(self.next_id, ref, found, part, offsets.text, native)

    def source(self, url: str, cited: Json) -> str:
        """Register the source that an annotation names and return its id."""
        return self.sources.add("web", url, optional(cited, "title", str) or None)


def write_message(
    answer: Answer, options: DialectOptions, dialect: str, room: SupportedFields, envelope: Json
) -> Written:
    """Write `answer` as a message with annotations, in a completion with the fields of `envelope`."""
    fitting = require_web_sources(answer, dialect)
    fitting.join_parts()
    _drop_empty_titles(fitting)
    fit_links(
        fitting,
        lambda citation, text: is_marker(text),
        lambda citation: format_link(fitting.sources[citation.refs[0].source_id]),
        lambda citation: drop_claim_and_point(citation, fitting),
    )
    fit = fitting.finish(
        room | {"claim"},  # the remaining ones were read from annotations
        kind=lambda source: "web",
        origin=origin_of(fitting.answer, dialect),
    )
    unit = unit_of(fit, dialect, options.unit, UNIT)
    sources = {source.id: source for source in fit.sources}

    def entry(citation: Citation, offsets: Offsets, raw: Json, same_place: bool) -> Json:
        span = {} if same_place else span_fields(citation, offsets, unit)
        source = sources[citation.refs[0].source_id]
        fields = span | {"title": source.title or "", "url": source.url}
        cited = overlay_nonempty(raw.get(_KIND) or {}, fields)
        if "source.snippet" in room:
            cited = overlay(cited, {"content": source.snippet})
        return raw | {"type": _KIND, _KIND: cited}

    native = native_for(fit.native, dialect)
    raw: Json = get_at(native.raw, native.at) if native else {}
    message = overlay(raw, _message(fit, raw, dialect, entry))
    new = {} if native else envelope
    return Written(put_message(native, fit.id, message, new), tuple(fitting.losses))


def _drop_empty_titles(fitting: Adaptation) -> None:
    for source in fitting.cited_sources():
        if source.title == "":
            fitting.record_loss("source.title", "an empty one reads as none", source=source.id)
            fitting.sources[source.id] = replace(source, title=None)


def _message(answer: Answer, raw: Json, dialect: str, entry: AnnotationWriter) -> Json:
    """Return the text and its annotations; a message without text stays without while the text is empty."""
    if not answer.parts:
        return {}
    (part,) = answer.parts
    text = part.text if part.text or raw.get("content") is not None or not raw else None
    return {"content": text, **write_annotations(part, answer.citations, dialect, entry)}
