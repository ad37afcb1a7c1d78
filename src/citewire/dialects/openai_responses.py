"""OpenAI Responses: `output_text.annotations`.

A `url_citation` spans the link that the model wrote, not what the link supports; a `file_citation` is a
point; a `container_file_citation` spans a sandbox path, or is `0, 0` for a file the text never names.
Offsets count within one content part, end exclusive whatever the documentation says. Whether they are
code points or UTF-16 units nobody has shown: code points are assumed, and the link itself is the check.
"""

from __future__ import annotations

from collections.abc import Container
from typing import Any

from msgspec.structs import replace

from citewire.dialects.base import (
    Json,
    Options,
    Problems,
    Sources,
    is_list,
    is_object,
    kept_native,
    optional,
    overlay,
    require,
    weave,
)
from citewire.errors import InputError, ShapeError
from citewire.markers import find_markers
from citewire.model import (
    Answer,
    Citation,
    Native,
    Part,
    Point,
    Source,
    SourceKind,
    SourceRef,
    Span,
    SpanOrigin,
    Written,
)
from citewire.shape import Fitting
from citewire.text import UNITS, Found, Offsets, Unit

NAME = "openai.responses"
UPSTREAM = "openai 3.49.0, Responses API"
ROOM = frozenset(
    {
        "answer.id",
        "insert_at",
        "marker",
        "source.file_id",
        "source.filename",
        "source.metadata",
        "source.title",
        "source.url",
    }
)

UNIT: Unit = "codepoints"
_CONTAINER = "container_id"
At = tuple[int, int, int]
"""The place of an annotation: output item, content part, annotation."""


def detect(payload: Any) -> bool:
    return is_object(payload) and payload.get("object") == "response" and is_list(payload.get("output"))


def read_all(payload: Any, options: Options) -> tuple[Answer, ...]:
    if not is_object(payload):
        raise ShapeError("a response is not an object")
    return (read_response(payload, options.unit or UNIT),)


def read_response(response: Json, unit: Unit) -> Answer:
    """The answer in a response."""
    reader = AnnotationReader(unit)
    for number, item in enumerate(require(response, "output", list, "$")):
        if is_object(item) and item.get("type") == "message":
            reader.read_message(number, item)
    return Answer(
        parts=tuple(reader.parts),
        citations=tuple(reader.citations),
        sources=tuple(reader.sources),
        id=optional(response, "id", str, "$"),
        problems=tuple(reader.problems),
        native=Native(NAME, response, was=unit),
    )


class AnnotationReader:
    def __init__(self, unit: Unit) -> None:
        self.unit: Unit = unit
        self.parts: list[Part] = []
        self.citations: list[Citation] = []
        self.sources = Sources()
        self.problems = Problems()

    def read_message(self, number: int, item: Json) -> None:
        where = f"$.output[{number}]"
        contents = self.problems.guard(lambda: where, require, item, "content", list)
        for at, content in enumerate(contents or ()):
            if is_object(content) and content.get("type") == "output_text":
                self.problems.guard(
                    lambda at=at: f"{where}.content[{at}]", self._read_text, content, number, at
                )

    def _read_text(self, content: Json, number: int, at: int) -> None:
        text = require(content, "text", str)
        where = f"$.output[{number}].content[{at}]"
        entries = self.problems.guard(lambda: where, optional, content, "annotations", list) or []
        offsets = Offsets(text)
        kept: list[tuple[int, Any]] = []
        for place, entry in enumerate(entries):
            try:
                citation = self.annotation(entry, (number, at, place), offsets, len(self.parts))
                self.citations.append(citation)
            except InputError as exc:
                self.problems.add(f"{where}.annotations[{place}]", exc)
                kept.append((place, entry))
        self.parts.append(Part(text, Native(NAME, content, (number, at), tuple(kept))))

    def annotation(self, entry: Any, at: At, offsets: Offsets, part: int) -> Citation:
        """The citation of one annotation. Raises `ShapeError` for a type we do not know, too."""
        if not is_object(entry):
            raise ShapeError("an annotation is not an object", "")
        name = f"c{len(self.citations) + 1}"
        match require(entry, "type", str):
            case "url_citation":
                url, title = require(entry, "url", str), optional(entry, "title", str) or None
                found = self._span(entry, offsets, url)
                source_id = self.sources.add("web", url, title)
            case "container_file_citation":
                found = self._span(entry, offsets, None)
                source_id = self._file(entry, require(entry, _CONTAINER, str))
            case "file_citation":
                return self._at_point(name, entry, at, offsets, part)
            case kind:
                raise ShapeError(f"unknown annotation type {kind!r}", ".type")
        ref = SourceRef(source_id)
        if found is None:
            return Citation(name, (ref,), native=Native(NAME, entry, at))
        span = Span(part, found.start, found.end)
        if entry["type"] == "url_citation" and not _is_marker(offsets.text[found.start : found.end]):
            # Words, not a link: to treat them as a marker would take them out of the answer.
            return Citation(name, (ref,), claim=span, native=Native(NAME, entry, at, was=span))
        native = Native(NAME, entry, at, was=span if found.repaired else None)
        origin: SpanOrigin = "repaired" if found.repaired else "exact"
        return Citation(name, (ref,), marker=span, span_origin=origin, native=native)

    def _file(self, entry: Json, container: str | None) -> str:
        return self.sources.add(
            "file",
            filename=optional(entry, "filename", str) or None,
            file_id=require(entry, "file_id", str),
            metadata={_CONTAINER: container} if container is not None else None,
        )

    def _at_point(self, name: str, entry: Json, at: At, offsets: Offsets, part: int) -> Citation:
        index = require(entry, "index", int)
        found = offsets.point(index, self.unit)
        if found is None:
            raise ShapeError(f"index {index} is outside the text", ".index")
        point = Point(part, found.start)
        native = Native(NAME, entry, at, was=point if found.repaired else None)
        origin: SpanOrigin = "repaired" if found.repaired else "exact"
        ref = SourceRef(self._file(entry, None))
        return Citation(name, (ref,), insert_at=point, span_origin=origin, native=native)

    def _span(self, entry: Json, offsets: Offsets, url: str | None) -> Found | None:
        """The marker's span; None for `0, 0`, which says that the text does not name the source."""
        start, end = require(entry, "start_index", int), require(entry, "end_index", int)
        if start == end == 0:
            return None
        found = offsets.span(start, end, self.unit)
        if url is not None and not (found and _is_marker(offsets.text[found.start : found.end])):
            found = self._repaired(offsets, start, end, url) or found
        if found is None:
            raise ShapeError(f"span {start} to {end} is reversed or outside the text", ".end_index")
        return found

    def _repaired(self, offsets: Offsets, start: int, end: int, url: str) -> Found | None:
        """The link the offsets meant: in another unit, else the nearest one to that address."""
        for unit in UNITS:
            found = offsets.span(start, end, unit)
            if found and _looks_like_link(link := offsets.text[found.start : found.end]) and url in link:
                return Found(found.start, found.end, repaired=True)
        near = offsets.from_unit(min(max(start, 0), offsets.length(self.unit)), self.unit)[0]
        at = offsets.nearest(f"]({url}", near)
        return None if at is None else _link_around(offsets.text, at)


def _is_marker(text: str) -> bool:
    """Whether a span can be what these annotations cover: a link, an address, or a marker of any kind."""
    if _looks_like_link(text) or text.startswith(("http://", "https://")):
        return True
    return any((marker.start, marker.end) == (0, len(text)) for marker in find_markers(text, _ANY_NUMBER))


class _AnyNumber(Container[str]):
    def __contains__(self, label: object) -> bool:
        return True


_ANY_NUMBER = _AnyNumber()


def _looks_like_link(text: str) -> bool:
    return text.startswith(("[", "([")) and text.endswith(")")


# How far from the middle of a link its ends are looked for.
_LONGEST_LINK = 4096


def _link_around(text: str, middle: int) -> Found | None:
    start = text.rfind("[", max(0, middle - _LONGEST_LINK), middle)
    end = text.find(")", middle, middle + _LONGEST_LINK)
    if start < 0 or end < 0:
        return None
    end += 1
    if text.startswith("(", start - 1) and text.startswith(")", end):
        start, end = start - 1, end + 1
    return Found(start, end, repaired=True)


def write(answer: Answer, options: Options) -> Written:
    fitting = Fitting(answer, NAME)
    if answer.citations or kept_native(answer.native, NAME) is None:
        fitting.need_text()
    fitting.need_refs()
    fitting.refuse_sources(_why_not)
    fitting.split_refs()
    _fit_sources(fitting)
    _fit_places(fitting)
    same = {number for number, part in enumerate(fitting.answer.parts) if _is_same_text(part)}
    fit = fitting.finish(
        ROOM | {"claim"},  # the ones that are left were read from annotations
        kind=_kind,
        origin=lambda citation: _origin(citation, same),
        group=_by_part,
        why="annotations belong to their part of the text",
    )
    native = kept_native(fit.native, NAME)
    unit: Unit = options.unit or (native.was if native else UNIT)
    return Written(_Writer(fit, unit, fitting.groups()).response(), tuple(fitting.losses))


def _kind(source: Source) -> SourceKind:
    return "web" if source.url is not None else "file"


def _is_same_text(part: Part) -> bool:
    native = kept_native(part.native, NAME)
    return native is not None and native.raw["text"] == part.text


def _origin(citation: Citation, same: set[int]) -> SpanOrigin:
    native, place = kept_native(citation.native, NAME), citation.marker or citation.insert_at
    if place is None:
        return "unknown"
    return "repaired" if native and native.was == place and place.part in same else "exact"


def _why_not(citation: Citation, source: Source) -> str | None:
    if source.url is not None or source.file_id is not None:
        return None
    return f"OpenAI cites URLs and file ids, and {source.label} has neither"


def _fit_sources(fitting: Fitting) -> None:
    """A URL citation has no file, a file citation no title and no metadata but its container."""
    for source in fitting.cited_sources():
        fitting.sources[source.id] = _fit_source(source, fitting)


def _fit_source(source: Source, fitting: Fitting) -> Source:
    changes: dict[str, Any] = {}
    is_web = source.url is not None
    for field in ("filename", "file_id") if is_web else ("title",):
        if getattr(source, field) is not None:
            fitting.lose(f"source.{field}", f"{NAME} has no place for it here", source=source.id)
            changes[field] = None
    for field in ("title", "filename"):
        if getattr(source, field) == "":
            fitting.lose(f"source.{field}", "an empty one reads as none", source=source.id)
            changes[field] = None
    container = None if is_web else source.metadata.get(_CONTAINER)
    kept = {_CONTAINER: container} if isinstance(container, str) else {}
    if source.metadata != kept:
        fitting.lose("source.metadata", f"{NAME} has no place for it", source=source.id)
        changes["metadata"] = kept
    return replace(source, **changes) if changes else source


def _fit_places(fitting: Fitting) -> None:
    """Links for web sources, points for files, sandbox paths for files of a container."""

    def source(citation: Citation) -> Source:
        return fitting.sources[citation.refs[0].source_id]

    def stays(citation: Citation, text: str) -> bool:
        if source(citation).url is None:
            return text != "" and _CONTAINER in source(citation).metadata
        return _is_marker(text)

    def label(citation: Citation) -> str | None:
        return None if citation.id in kept else _link(source(citation))

    kept = {citation.id for citation in fitting.answer.citations if _is_kept_claim(citation)}
    fitting.take_markers_out(stays)
    fitting.insert_markers(label, padded=True)
    fitting.map_citations(
        lambda citation: citation if citation.id in kept else _fit_place(citation, source(citation), fitting)
    )


def _is_kept_claim(citation: Citation) -> bool:
    """Words that an annotation was read to cover, and that are given back as they came."""
    native = kept_native(citation.native, NAME)
    return native is not None and citation.claim is not None and native.was == citation.claim


def _link(source: Source) -> str | None:
    """A link as OpenAI writes them; what would end it early is encoded."""
    if source.url is None:
        return None
    url = source.url.translate(_IN_URL)
    title = (source.title or source.domain or source.url).translate(_IN_TITLE)
    return f"([{title}]({url}))"


_IN_URL = {ord(char): f"%{ord(char):02X}" for char in " ()<>\\\n\r\t"}
_IN_TITLE = {ord(char): " " for char in "[]\n\r\t"}


def _fit_place(citation: Citation, source: Source, fitting: Fitting) -> Citation:
    """A web source or a container file has a marker, any other file a point; never both, nor a claim."""
    if source.url is None and _CONTAINER not in source.metadata:
        return _with_point(citation, fitting)
    if citation.insert_at is not None:
        fitting.lose("insert_at", f"{NAME} has no place for it here", citation=citation.id)
    return _without_claim(replace(citation, insert_at=None), fitting)


def _without_claim(citation: Citation, fitting: Fitting) -> Citation:
    if citation.claim is not None:
        fitting.lose("claim", f"{NAME} has no place for it", citation=citation.id)
    return replace(citation, claim=None)


def _with_point(citation: Citation, fitting: Fitting) -> Citation:
    if citation.insert_at is not None:
        return _without_claim(citation, fitting)
    claim = citation.claim
    parts = fitting.answer.parts
    point = Point(claim.part, claim.end) if claim else Point(len(parts) - 1, len(parts[-1].text))
    fitting.lose("insert_at", "required: set to the end of what is cited", citation=citation.id)
    return _without_claim(replace(citation, insert_at=point), fitting)


def _by_part(answer: Answer) -> list[list[Citation]]:
    """A citation without a place goes where it came from, else with the one before it."""
    homes = {
        native.at: number
        for number, part in enumerate(answer.parts)
        if (native := kept_native(part.native, NAME))
    }
    by_part: list[list[Citation]] = [[] for _ in answer.parts]
    home = 0
    for citation in answer.citations:
        place = citation.marker or citation.insert_at or citation.claim
        native = kept_native(citation.native, NAME)
        if place is not None:
            home = place.part
        elif native is not None:
            home = homes.get(native.at[:2], home)
        by_part[home].append(citation)
    return by_part


class _Writer:
    def __init__(self, answer: Answer, unit: Unit, by_part: list[tuple[Citation, ...]]) -> None:
        self.answer = answer
        self.unit: Unit = unit
        self.by_part = by_part
        self.native = kept_native(answer.native, NAME)
        self.sources = {source.id: source for source in answer.sources}

    def response(self) -> Json:
        contents = [
            (kept_native(part.native, NAME) if self.native else None, self._content(part, citations))
            for part, citations in zip(self.answer.parts, self.by_part, strict=True)
        ]
        if self.native is None:
            message = {
                "type": "message",
                "role": "assistant",
                "content": [content for _, content in contents],
            }
            return overlay({"object": "response", "output": [message]}, {"id": self.answer.id})
        raw: Json = self.native.raw
        return overlay(raw, {"id": self.answer.id, "output": _output(raw["output"], contents)})

    def _content(self, part: Part, citations: tuple[Citation, ...]) -> Json:
        native = kept_native(part.native, NAME)
        offsets = Offsets(part.text)
        same_text = _is_same_text(part)
        written = [self._annotation(citation, offsets, same_text) for citation in citations]
        annotations = weave(native.kept if native else None, written)
        raw = native.raw if native else {"type": "output_text"}
        fields: Json = {"text": part.text}
        # Absent and null annotations stay so while there is nothing to say.
        if annotations or native is None or (is_list(raw.get("annotations")) and raw["annotations"]):
            fields["annotations"] = annotations
        return overlay(raw, fields)

    def _annotation(self, citation: Citation, offsets: Offsets, same_text: bool) -> tuple[int | None, Json]:
        native = kept_native(citation.native, NAME)
        fields = self._fields(citation, offsets)
        if native is None or native.raw["type"] != fields["type"]:
            return (native.at[2] if native else None), fields
        if same_text and native.was is not None and native.was in (citation.marker, citation.insert_at):
            for key in ("start_index", "end_index", "index"):
                fields.pop(key, None)
        return native.at[2], _over(native.raw, fields)

    def _fields(self, citation: Citation, offsets: Offsets) -> Json:
        source = self.sources[citation.refs[0].source_id]
        marker, point = citation.marker or citation.claim, citation.insert_at
        span = {
            "start_index": offsets.to_unit(marker.start, self.unit) if marker else 0,
            "end_index": offsets.to_unit(marker.end, self.unit) if marker else 0,
        }
        if source.url is not None:
            return {"type": "url_citation", **span, "title": source.title or "", "url": source.url}
        file: Json = {"file_id": source.file_id, "filename": source.filename or ""}
        if _CONTAINER in source.metadata:
            container = source.metadata[_CONTAINER]
            return {"type": "container_file_citation", _CONTAINER: container, **file, **span}
        index = offsets.to_unit(point.at, self.unit) if point else 0
        return {"type": "file_citation", "index": index, **file}


def _over(raw: Json, fields: Json) -> Json:
    """`fields` over a kept annotation; an empty title or file name stays as the payload had it."""
    return raw | {key: value for key, value in fields.items() if value != "" or raw.get(key)}


def _output(old: list[Any], contents: list[tuple[Native | None, Json]]) -> list[Any]:
    """The output with each message's text replaced; what is new joins the last message."""
    by_item: dict[int, list[tuple[int | None, Any]]] = {}
    last = next((number for number in reversed(range(len(old))) if _is_message(old[number])), None)
    for native, content in contents:
        item, at = native.at if native else (last, None)
        by_item.setdefault(len(old) if item is None else item, []).append((at, content))
    output: list[Any] = []
    for number, item in enumerate(old):
        if number in by_item:
            others = tuple(
                (at, content) for at, content in enumerate(item["content"]) if not _is_text(content)
            )
            output.append({**item, "content": weave(others, by_item[number])})
        elif not _is_message(item) or not any(map(_is_text, item["content"])):
            output.append(item)
    if len(old) in by_item:
        content = [content for _, content in by_item[len(old)]]
        output.append({"type": "message", "role": "assistant", "content": content})
    return output


def _is_message(item: Any) -> bool:
    return is_object(item) and item.get("type") == "message" and is_list(item.get("content"))


def _is_text(content: Any) -> bool:
    return (
        is_object(content) and content.get("type") == "output_text" and isinstance(content.get("text"), str)
    )
