"""Ably: a message, and annotations of type `citations:multiple.v1` on it.

`data` of an annotation is free, so almost nothing is lost; offsets are UTF-16 units of the message's
text, under either of the two spellings. Annotations alone do not carry that text: without it the offsets
are kept as they are. A summary counts annotations by name and is read into one source per name.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeGuard
from urllib.parse import urlsplit

from msgspec.structs import replace

from citewire.codec import decode, encode
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
from citewire.dialects.beyond import KEY, Beyond, pack, unpack
from citewire.errors import InputError, ShapeError
from citewire.model import (
    Answer,
    Citation,
    Locator,
    Native,
    Pages,
    Part,
    Source,
    SourceKind,
    SourceRef,
    Span,
    SpanOrigin,
    Written,
)
from citewire.shape import Fitting
from citewire.text import Offsets, Unit

NAME = "ably"
UPSTREAM = "ably-js 2.28, annotations wire v6"
ROOM = frozenset(
    {
        "answer.id",
        "claim",
        "refs.anchor",
        "refs.locator.blocks",
        "refs.locator.chars",
        "refs.locator.chunk",
        "refs.locator.lines",
        "refs.locator.opaque",
        "refs.locator.pages",
        "refs.locator.times",
        "refs.quote",
        "refs.score",
        "source.domain",
        "source.file_id",
        "source.filename",
        "source.index",
        "source.metadata",
        "source.record_id",
        "source.snippet",
        "source.title",
        "source.url",
        "verification",
    }
)
TYPE = "citations:multiple.v1"

_UNIT: Unit = "utf16"
_CREATE = (None, 0, "annotation.create")
_DELETE = (1, "annotation.delete")
_OFFSETS = ("startOffset", "endOffset")
_INDEXES = ("startIndex", "endIndex")


def detect(payload: Any) -> bool:
    if is_list(payload):
        return bool(payload) and all(map(_is_annotation, payload))
    if not is_object(payload):
        return False
    listed = payload.get("annotations")
    if is_list(listed):
        return all(map(_is_annotation, listed)) and (bool(listed) or is_object(payload.get("message")))
    return _is_annotation(payload) or _summary(payload) is not None


def _is_annotation(value: Any) -> bool:
    """An annotation says of what type it is, in a way nothing else does."""
    return is_object(value) and isinstance(kind := value.get("type"), str) and ":" in kind


def _summary(message: Any) -> Json | None:
    annotations = message.get("annotations") if is_object(message) else None
    summary = annotations.get("summary") if is_object(annotations) else None
    counted = summary.get(TYPE) if is_object(summary) else None
    return counted if is_object(counted) else None


class _Form(NamedTuple):
    """The parts of a payload: its message and its annotations, and where they stand."""

    message: Json
    annotations: list[Any]
    kind: str


def _form(payload: Any) -> _Form:
    if is_list(payload) and (not payload or any(map(is_object, payload))):
        return _Form({}, payload, "list")
    if is_object(payload):
        listed = payload.get("annotations")
        if is_list(listed):
            return _Form(optional(payload, "message", dict, "$") or {}, listed, "both")
        if _is_annotation(payload):
            return _Form({}, [payload], "one")
        if _summary(payload) is not None:
            return _Form(payload, [], "summary")
    raise ShapeError("neither annotations, nor a message with annotations or their summary")


def read_all(payload: Any, options: Options) -> tuple[Answer, ...]:
    form = _form(payload)
    text = form.message.get("data")
    text = text if isinstance(text, str) else options.text
    unit: Unit = options.unit or _UNIT
    if form.kind == "summary":
        return (_read_summary(payload, text),)
    serials = dict.fromkeys(map(_serial, form.annotations)) or {_serial(form.message): None}
    return tuple(_read(payload, form, serial, text, unit) for serial in serials)


def _serial(value: Any) -> str | None:
    serial = (value.get("messageSerial") or value.get("serial")) if is_object(value) else None
    return serial if isinstance(serial, str) else None


def _read(payload: Any, form: _Form, serial: str | None, text: str | None, unit: Unit) -> Answer:
    reader = _Reader(text, unit, f"$.{'annotations' if form.kind == 'both' else ''}".rstrip("."))
    gone = _deleted(form.annotations)
    for at, annotation in enumerate(form.annotations):
        reader.read(at, annotation, ours=_serial(annotation) == serial and at not in gone)
    return Answer(
        parts=() if text is None else (Part(text),),
        citations=tuple(reader.citations),
        sources=tuple(reader.sources),
        id=serial or _serial(form.message),
        problems=tuple(reader.problems),
        native=Native(NAME, payload, form.kind, tuple(reader.kept), unit),
    )


def _deleted(annotations: list[Any]) -> set[int]:
    """Creates that a later delete of the same client, name and message takes back."""
    gone: set[int] = set()
    live: dict[Any, list[int]] = {}
    for at, annotation in enumerate(annotations):
        if not is_object(annotation) or annotation.get("type") != TYPE:
            continue
        author = tuple(map(repr, (annotation.get("clientId"), annotation.get("name"), _serial(annotation))))
        if annotation.get("action") in _DELETE:
            gone.update(live.pop(author, ()))
        else:
            live.setdefault(author, []).append(at)
    return gone


class _Reader:
    def __init__(self, text: str | None, unit: Unit, where: str) -> None:
        self.offsets = None if text is None else Offsets(text)
        self.unit: Unit = unit
        self.where = where
        self.sources = Sources()
        self.problems = Problems()
        self.citations: list[Citation] = []
        self.kept: list[tuple[int, Any]] = []

    def read(self, at: int, annotation: Any, *, ours: bool) -> None:
        """The citation of an annotation; what is not one, or of another message, is kept as it is."""
        foreign = is_object(annotation) and annotation.get("type", TYPE) != TYPE
        if foreign or not ours or (is_object(annotation) and annotation.get("action") not in _CREATE):
            self.kept.append((at, annotation))
            return
        try:
            self.citations.append(self._citation(annotation, at))
        except InputError as exc:
            self.problems.add(f"{self.where}[{at}]", exc)
            self.kept.append((at, annotation))

    def _citation(self, annotation: Any, at: int) -> Citation:
        if not is_object(annotation):
            raise ShapeError("an annotation is not an object", "")
        data = _data(annotation)
        beyond = unpack(data.get(KEY), f".data.{KEY}")
        url, title = optional(data, "url", str, ".data"), optional(data, "title", str, ".data")
        named = title if title is not None or url is not None else optional(annotation, "name", str)
        locator, (claim, origin) = _locator(data, beyond), self._claim(data)
        quote = optional(data, "snippet", str, ".data")
        source_id = self.sources.add(
            beyond.kind or _kind(url),
            url,
            named,
            filename=beyond.filename,
            file_id=beyond.file_id,
            record_id=beyond.record_id,
            index=beyond.index,
            domain=beyond.domain,
            snippet=beyond.snippet,
            metadata=optional(data, "metadata", dict, ".data"),
        )
        ref = SourceRef(source_id, locator, quote, beyond.anchor, beyond.score)
        was = (url, named, claim if origin == "repaired" else None)
        native = Native(NAME, annotation, at, was=was)
        name = f"c{len(self.citations) + 1}"
        verdict = beyond.verification
        return Citation(name, (ref,), claim=claim, span_origin=origin, verification=verdict, native=native)

    def _claim(self, data: Json) -> tuple[Span | None, SpanOrigin]:
        keys = _spelling(data)
        if data.get(keys[0]) is None and data.get(keys[1]) is None:
            return None, "unknown"
        start, end = require(data, keys[0], int, ".data"), require(data, keys[1], int, ".data")
        if self.offsets is None and 0 <= start <= end:
            return Span(0, start, end), "unknown"
        found = self.offsets.span(start, end, self.unit) if self.offsets else None
        if found is None:
            raise ShapeError(f"span {start} to {end} is reversed or outside the text", f".data.{keys[1]}")
        return Span(0, found.start, found.end), "repaired" if found.repaired else "exact"


def _spelling(data: Json) -> tuple[str, str]:
    return _INDEXES if _INDEXES[0] in data or _INDEXES[1] in data else _OFFSETS


def _data(annotation: Json) -> Json:
    data = annotation.get("data")
    if isinstance(data, str) and annotation.get("encoding") == "json":
        data = decode(data)
    if data is None:
        return {}
    if not is_object(data):
        raise ShapeError("data is not an object", ".data")
    return data


def _kind(url: str | None) -> SourceKind:
    return "document" if url is None else "web"


def _locator(data: Json, beyond: Beyond) -> Locator | None:
    page = optional(data, "page", int, ".data")
    if beyond.locator is not None or page is None:
        return beyond.locator
    if page < 1:
        raise ShapeError(f"page {page} is not a page", ".data.page")
    return Pages(page, page)


def _read_summary(message: Json, text: str | None) -> Answer:
    """A source for each name that was counted, with its counts, and a citation without a place."""
    sources, citations = Sources(), list[Citation]()
    problems, kept = Problems(), list[tuple[str, Any]]()
    for name, counts in (_summary(message) or {}).items():
        if not is_object(counts):
            problems.add(f"$.annotations.summary.{TYPE}.{name}", ShapeError("a count is not an object", ""))
            kept.append((name, counts))
            continue
        source_id = sources.add("unknown", title=name, metadata=counts)
        native = Native(NAME, counts, name)
        citations.append(Citation(f"c{len(citations) + 1}", (SourceRef(source_id),), native=native))
    return Answer(
        parts=() if text is None else (Part(text),),
        citations=tuple(citations),
        sources=tuple(sources),
        id=_serial(message),
        problems=tuple(problems),
        native=Native(NAME, message, "summary", tuple(kept), _UNIT),
    )


def write(answer: Answer, options: Options) -> Written:
    fitting = Fitting(answer, NAME)
    if len(answer.parts) > 1:
        fitting.join_parts()
    fitting.need_refs()
    fitting.split_refs()
    if answer.parts:
        fitting.markers_become_claims()
    _name_sources(fitting)
    known = bool(answer.parts)
    fit = fitting.finish(
        ROOM, kind=lambda source: source.kind, origin=lambda citation: _origin(citation, known)
    )
    native = kept_native(fit.native, NAME)
    sources = {source.id: source for source in fit.sources}
    if native is not None and native.at == "summary" and all(_is_count(c) for c in fit.citations):
        return Written(_with_summary(native, fit, sources), tuple(fitting.losses))
    unit: Unit = options.unit or (native.was if native else _UNIT)
    writer = _Writer(fit, sources, unit)
    written = [writer.annotation(citation) for citation in fit.citations]
    annotations = weave(native.kept if native and native.at != "summary" else None, written)
    return Written(_envelope(native, fit, annotations, fitting), tuple(fitting.losses))


def _name_sources(fitting: Fitting) -> None:
    """An annotation has a name, and where it says nothing else of its source, that is read as the title."""
    for source in fitting.cited_sources():
        if source.url is None and source.title is None:
            fitting.lose("source.title", "the name of the annotation stands in for it", source=source.id)
            fitting.sources[source.id] = replace(source, title=name_of(source))


def _origin(citation: Citation, known: bool) -> SpanOrigin:
    if not known or citation.claim is None:
        return "unknown"
    native = kept_native(citation.native, NAME)
    repaired = native is not None and not _is_count(citation) and native.was[2] == citation.claim
    return "repaired" if repaired else "exact"


def _is_count(citation: Citation) -> bool:
    native = kept_native(citation.native, NAME)
    return native is not None and isinstance(native.at, str)


def _with_summary(native: Native, answer: Answer, sources: dict[str, Source]) -> Json:
    """The message with the counts that its sources have now."""
    message: Json = native.raw
    counted = dict(native.kept)
    for citation in answer.citations:
        source = sources[citation.refs[0].source_id]
        counted[source.title or source.label] = source.metadata
    annotations: Json = message["annotations"]
    summary = {**annotations["summary"], TYPE: counted}
    return overlay(
        message, {"data": answer.text or None} | {"annotations": {**annotations, "summary": summary}}
    )


class _Writer:
    def __init__(self, answer: Answer, sources: dict[str, Source], unit: Unit) -> None:
        self.serial = answer.id
        self.sources = sources
        self.unit: Unit = unit
        self.offsets = Offsets(answer.text) if answer.parts else None
        native = kept_native(answer.native, NAME)
        self.same_text = native is not None and bool(answer.parts) and _text_of(native) == answer.text

    def annotation(self, citation: Citation) -> tuple[int | None, Json]:
        native = kept_native(citation.native, NAME)
        source = self.sources[citation.refs[0].source_id]
        if native is None or isinstance(native.at, str):
            fields = {"action": "annotation.create", "type": TYPE, "name": name_of(source)}
            return None, overlay(
                fields, {"messageSerial": self.serial, "data": self._data(citation, source, {})}
            )
        raw: Json = native.raw
        fields: Json = {}
        if native.was[:2] != (source.url, source.title):
            fields["name"] = name_of(source)
        if self.serial != _serial(raw) and "messageSerial" in raw:
            fields["messageSerial"] = self.serial
        old = _data(raw)
        data = self._data(citation, source, old)
        if data != old:
            fields["data"] = encode(data).decode() if isinstance(raw.get("data"), str) else data
        return native.at, overlay(raw, fields)

    def _data(self, citation: Citation, source: Source, raw: Json) -> Json:
        ref = citation.refs[0]
        page = ref.locator.first if _is_one_page(ref.locator) else None
        rest = replace(citation, claim=None, refs=(ref if page is None else replace(ref, locator=None),))
        fields: Json = {
            "url": source.url,
            "title": source.title,
            "snippet": ref.quote,
            "page": page,
            "metadata": source.metadata or None,
            KEY: pack(rest, source, _kind(source.url), raw.get(KEY)),
        }
        native = kept_native(citation.native, NAME)
        if native is not None and not isinstance(native.at, str) and native.was[1] == source.title:
            # Where the title was only the annotation's name, it stays only that.
            fields["title"] = raw.get("title")
        if raw.get("metadata") == {} and not source.metadata:
            fields["metadata"] = {}
        return overlay(raw, fields | self._offsets(citation, raw))

    def _offsets(self, citation: Citation, raw: Json) -> Json:
        keys, claim = _spelling(raw), citation.claim
        native = kept_native(citation.native, NAME)
        if claim is None:
            return dict.fromkeys(keys)
        if self.same_text and native is not None and native.was[2] == claim:
            return {key: raw[key] for key in keys}
        if self.offsets is None:
            return {keys[0]: claim.start, keys[1]: claim.end}
        return {
            keys[0]: self.offsets.to_unit(claim.start, self.unit),
            keys[1]: self.offsets.to_unit(claim.end, self.unit),
        }


def _is_one_page(locator: Locator | None) -> TypeGuard[Pages]:
    return isinstance(locator, Pages) and locator.first == locator.last


def _text_of(native: Native) -> Any:
    message = native.raw.get("message") if is_object(native.raw) else None
    return message.get("data") if is_object(message) else None


def name_of(source: Source) -> str:
    """What annotations of a source are grouped by: its host, else its title, else its file name."""
    try:
        host = urlsplit(source.url or "").hostname
    except ValueError:
        host = None
    return (host or "").removeprefix("www.") or source.title or source.filename or source.label


def _envelope(native: Native | None, answer: Answer, annotations: list[Any], fitting: Fitting) -> Any:
    text = answer.text if answer.parts else None
    if native is None or native.at == "summary":
        message = overlay(native.raw if native else {"name": "response"}, {"serial": answer.id, "data": text})
        return {"message": message, "annotations": annotations}
    if native.at == "both":
        kept = native.raw.get("message")
        if not is_object(kept) and text is None:
            return {**native.raw, "annotations": annotations}
        message = overlay(kept if is_object(kept) else {"name": "response"}, {"data": text})
        return {**native.raw, "message": message, "annotations": annotations}
    if text is not None:
        fitting.lose("parts", "annotations alone have no place for the text")
    return annotations[0] if native.at == "one" and len(annotations) == 1 else annotations
