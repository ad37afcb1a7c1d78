"""Ably: a message, and annotations of type `citations:multiple.v1` on it.

An annotation's `data` is free-form, so almost nothing is lost. Offsets are UTF-16 units of the message's
text, in either of two spellings. Annotations alone do not carry that text; without it, the offsets stay
unchanged. A summary counts annotations by name and is read as one source per name.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeGuard
from urllib.parse import urlsplit

from msgspec.structs import replace

from citewire.adapt import Adaptation
from citewire.codec import decode, encode
from citewire.dialects.base import (
    DialectOptions,
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
from citewire.dialects.common.extension_fields import (
    EXTENSIBLE_FIELDS,
    EXTENSION_KEY,
    ExtensionFields,
    pack,
    unpack,
)
from citewire.errors import DecodeError, InputError, ShapeError
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
from citewire.text import Offsets, Unit

NAME = "ably"
UPSTREAM = "ably-js 2.28, annotations wire v6"
SUPPORTED_FIELDS = EXTENSIBLE_FIELDS
ANNOTATION_TYPE = "citations:multiple.v1"

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
        return any(map(_is_annotation, listed)) or (not listed and is_object(payload.get("message")))
    return _is_annotation(payload) or _summary(payload) is not None


def _is_annotation(value: Any) -> bool:
    """Whether a value is an annotation. Only annotations have a type with a colon."""
    return is_object(value) and isinstance(kind := value.get("type"), str) and ":" in kind


def _summary(message: Any) -> Json | None:
    annotations = message.get("annotations") if is_object(message) else None
    summary = annotations.get("summary") if is_object(annotations) else None
    counted = summary.get(ANNOTATION_TYPE) if is_object(summary) else None
    return counted if is_object(counted) else None


class _Form(NamedTuple):
    """A payload's message and annotations, and the form of its envelope."""

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


def read_all(payload: Any, options: DialectOptions) -> tuple[Answer, ...]:
    form = _form(payload)
    text = form.message.get("data")
    text = text if isinstance(text, str) else options.text
    unit: Unit = options.unit or _UNIT
    if form.kind == "summary":
        return (_read_summary(payload, text),)
    gone = _deleted(form.annotations)
    groups = _by_message(form)
    return tuple(_read(payload, form, serial, at, gone, text, unit) for serial, at in groups.items())


def _by_message(form: _Form) -> dict[str | None, list[int]]:
    """Group annotation indexes by message: the payload's own message, else the one each annotation names.

    Entries that are not objects go to the first group.
    """
    whole = _serial(form.message)
    groups: dict[str | None, list[int]] = {}
    for at, annotation in enumerate(form.annotations):
        serial = whole if whole is not None else _serial(annotation)
        if whole is None and not is_object(annotation):
            serial = next(iter(groups), None)
        groups.setdefault(serial, []).append(at)
    return groups or {whole: []}


def _serial(value: Any) -> str | None:
    serial = (value.get("messageSerial") or value.get("serial")) if is_object(value) else None
    return serial if isinstance(serial, str) else None


def _read(
    payload: Any,
    form: _Form,
    serial: str | None,
    places: list[int],
    gone: set[int],
    text: str | None,
    unit: Unit,
) -> Answer:
    reader = _Reader(text, unit, "$.annotations" if form.kind == "both" else "$")
    for at in places:
        if at in gone:
            reader.kept.append((at, form.annotations[at]))
        else:
            reader.read(at, form.annotations[at], serial)
    others = frozenset(places) if len(places) < len(form.annotations) else None
    return Answer(
        parts=() if text is None else (Part(text),),
        citations=tuple(reader.citations),
        sources=tuple(reader.sources),
        id=serial or _serial(form.message),
        problems=tuple(reader.problems),
        native=Native(NAME, payload, form.kind, (tuple(reader.kept), others), (unit, serial, text)),
    )


def _deleted(annotations: list[Any]) -> set[int]:
    """Return the creates that a later delete of the same client, name and message revokes: all of them, or,
    without a client id, as many as the delete's `count`."""
    gone: set[int] = set()
    live: dict[Any, list[int]] = {}
    for at, annotation in enumerate(annotations):
        if not is_object(annotation) or annotation.get("type") != ANNOTATION_TYPE:
            continue
        client, name = annotation.get("clientId"), annotation.get("name")
        made = live.setdefault((_text(client), _text(name), _serial(annotation)), [])
        if not _is_delete(annotation):
            made.append(at)
            continue
        count = annotation.get("count")
        taken = (count if type(count) is int and count > 0 else 1) if client is None else len(made)
        gone.update(made[len(made) - min(taken, len(made)) :])
        del made[len(made) - min(taken, len(made)) :]
    return gone


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _is_delete(annotation: Json) -> bool:
    action = annotation.get("action")
    return type(action) is not bool and action in _DELETE


class _Reader:
    def __init__(self, text: str | None, unit: Unit, where: str) -> None:
        self.offsets = None if text is None else Offsets(text)
        self.unit: Unit = unit
        self.where = where
        self.sources = SourceRegistry()
        self.problems = ProblemList()
        self.citations: list[Citation] = []
        self.kept: list[tuple[int, Any]] = []

    def read(self, at: int, annotation: Any, serial: str | None) -> None:
        """Read the citation of an annotation; other annotations are preserved."""
        if is_object(annotation) and (
            annotation.get("type", ANNOTATION_TYPE) != ANNOTATION_TYPE or _is_delete(annotation)
        ):
            self.kept.append((at, annotation))
            return
        try:
            self.citations.append(self._citation(_checked(annotation, serial), at))
        except InputError as exc:
            self.problems.add(f"{self.where}[{at}]", exc)
            self.kept.append((at, annotation))

    def _citation(self, annotation: Json, at: int) -> Citation:
        data = _data(annotation)
        optional(data, "key", str, ".data")
        beyond = unpack(data.get(EXTENSION_KEY), f".data.{EXTENSION_KEY}")
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
            wrong = keys[0] if not 0 <= start <= end else keys[1]
            raise ShapeError(f"span {start} to {end} is reversed or outside the text", f".data.{wrong}")
        return Span(0, found.start, found.end), "repaired" if found.repaired else "exact"


def _checked(annotation: Any, serial: str | None) -> Json:
    """Check the fields around `data` of an annotation that creates a citation on this message."""
    if not is_object(annotation):
        raise ShapeError("an annotation is not an object", "")
    action = annotation.get("action")
    if type(action) is bool or action not in _CREATE:
        raise ShapeError("action is neither a create nor a delete", ".action")
    optional(annotation, "clientId", str)
    named = optional(annotation, "messageSerial", str)
    if named is not None and named != serial:
        raise ShapeError("messageSerial names another message", ".messageSerial")
    if annotation.get("encoding") not in (None, "json"):
        raise ShapeError("encoding is not one that we read", ".encoding")
    return annotation


def _spelling(data: Json) -> tuple[str, str]:
    return _INDEXES if _INDEXES[0] in data or _INDEXES[1] in data else _OFFSETS


def _data(annotation: Json) -> Json:
    data = annotation.get("data")
    if isinstance(data, str) and annotation.get("encoding") == "json":
        try:
            data = decode(data)
        except DecodeError as exc:
            raise ShapeError(f"data is not JSON: {exc.message}", ".data") from exc
    if data is None:
        return {}
    if not is_object(data):
        raise ShapeError("data is not an object", ".data")
    return data


def _kind(url: str | None) -> SourceKind:
    return "document" if url is None else "web"


def _locator(data: Json, beyond: ExtensionFields) -> Locator | None:
    page = optional(data, "page", int, ".data")
    if beyond.locator is not None or page is None:
        return beyond.locator
    if page < 1:
        raise ShapeError(f"page {page} is not a page", ".data.page")
    return Pages(page, page)


def _read_summary(message: Json, text: str | None) -> Answer:
    """Read a summary: one source per counted name, with its counts, and one citation without a position."""
    sources, citations = SourceRegistry(), list[Citation]()
    problems, kept = ProblemList(), list[tuple[str, Any]]()
    for name, counts in (_summary(message) or {}).items():
        if not is_object(counts):
            problems.add(
                f"$.annotations.summary.{ANNOTATION_TYPE}.{name}", ShapeError("a count is not an object", "")
            )
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
        native=Native(NAME, message, "summary", (tuple(kept), None), (_UNIT, _serial(message), text)),
    )


def write(answer: Answer, options: DialectOptions) -> Written:
    fitting = Adaptation(answer, NAME)
    if len(answer.parts) > 1:
        fitting.join_parts()
    fitting.require_refs()
    fitting.split_refs()
    if answer.parts:
        fitting.turn_markers_into_claims()
    _name_sources(fitting)
    known = bool(answer.parts)
    native = native_for(answer.native, NAME)
    same_text = native is not None and known and native.was[2] == fitting.answer.text
    fit = fitting.finish(
        SUPPORTED_FIELDS,
        kind=lambda source: source.kind,
        origin=lambda citation: _origin(citation, known, same_text),
    )
    sources = {source.id: source for source in fit.sources}
    if native is not None and native.at == "summary" and _are_only_counts(fit, sources):
        return Written(_with_summary(native, fit, sources), tuple(fitting.losses))
    unit: Unit = options.unit or (native.was[0] if native else _UNIT)
    writer = _Writer(fit, sources, unit)
    written = [writer.annotation(citation) for citation in fit.citations]
    annotations = interleave(_kept_annotations(native), written)
    return Written(_envelope(native, fit, annotations, fitting), tuple(fitting.losses))


def _kept_annotations(native: Native | None) -> list[tuple[int, Any]]:
    """Return the annotations to preserve: unreadable ones and those of other messages."""
    if native is None or native.at == "summary":
        return []
    kept, ours = native.kept
    if ours is None:
        return list(kept)
    return [*kept, *((at, raw) for at, raw in enumerate(_form(native.raw).annotations) if at not in ours)]


def _name_sources(fitting: Adaptation) -> None:
    """Set missing titles: an annotation always has a name, which is read as the title if nothing else is."""
    named = {c.refs[0].source_id for c in fitting.answer.citations if not _is_nameless(c)}
    for source in fitting.cited_sources():
        if source.id in named and source.url is None and source.title is None:
            fitting.record_loss(
                "source.title", "the name of the annotation stands in for it", source=source.id
            )
            fitting.sources[source.id] = replace(source, title=name_of(source))


def _is_nameless(citation: Citation) -> bool:
    """Whether a citation was read from an annotation that says nothing about its source, not even a name."""
    native = native_for(citation.native, NAME)
    if native is None or _is_count(citation):
        return False
    return native.raw.get("name") is None and native.was[:2] == (None, None)


def _origin(citation: Citation, known: bool, same_text: bool) -> SpanOrigin:
    if not known or citation.claim is None:
        return "unknown"
    native = native_for(citation.native, NAME)
    repaired = (
        same_text and native is not None and not _is_count(citation) and native.was[2] == citation.claim
    )
    return "repaired" if repaired else "exact"


def _is_count(citation: Citation) -> bool:
    native = native_for(citation.native, NAME)
    return native is not None and isinstance(native.at, str)


def _are_only_counts(answer: Answer, sources: dict[str, Source]) -> bool:
    """Whether a summary can express the whole answer: unique names and their counts."""
    names: set[str | None] = set()
    for citation in answer.citations:
        ref = citation.refs[0]
        source = sources[ref.source_id]
        count = Citation(citation.id, (SourceRef(source.id, native=ref.native),), native=citation.native)
        named = Source(
            source.id, "unknown", title=source.title, metadata=source.metadata, native=source.native
        )
        if source.title is None or citation != count or source != named or source.title in names:
            return False
        names.add(source.title)
    return all(map(_is_count, answer.citations))


def _with_summary(native: Native, answer: Answer, sources: dict[str, Source]) -> Json:
    """Return the message with the current counts of its sources."""
    message: Json = native.raw
    counted = dict(native.kept[0])
    for citation in answer.citations:
        source = sources[citation.refs[0].source_id]
        counted[source.title] = source.metadata
    annotations: Json = message["annotations"]
    summary = {**annotations["summary"], ANNOTATION_TYPE: counted}
    return overlay(
        message,
        _message_fields(message, native, answer) | {"annotations": {**annotations, "summary": summary}},
    )


class _Writer:
    def __init__(self, answer: Answer, sources: dict[str, Source], unit: Unit) -> None:
        self.serial = answer.id
        self.sources = sources
        self.unit: Unit = unit
        self.offsets = Offsets(answer.text) if answer.parts else None
        native = native_for(answer.native, NAME)
        self.same_serial = native is not None and native.was[1] == answer.id
        self.same_text = native is not None and bool(answer.parts) and native.was[2] == answer.text

    def annotation(self, citation: Citation) -> tuple[int | None, Json]:
        native = native_for(citation.native, NAME)
        source = self.sources[citation.refs[0].source_id]
        if native is None or isinstance(native.at, str):
            fields = {"action": "annotation.create", "type": ANNOTATION_TYPE, "name": name_of(source)}
            return None, overlay(
                fields, {"messageSerial": self.serial, "data": self._data(citation, source, {})}
            )
        raw: Json = native.raw
        fields: Json = {}
        if native.was[:2] != (source.url, source.title):
            fields["name"] = name_of(source)
        if not self.same_serial:
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
            EXTENSION_KEY: pack(rest, source, _kind(source.url), raw.get(EXTENSION_KEY)),
        }
        native = native_for(citation.native, NAME)
        if native is not None and not _is_count(citation) and native.was[:2] == (source.url, source.title):
            # If the title came only from the annotation's name, do not write it as a title.
            fields["title"] = raw.get("title")
        ours = raw.get(EXTENSION_KEY)
        if page is None and is_object(ours) and ours.get("locator") is not None:
            # Readers ignore `page` if our own locator is there, so leave it unchanged.
            fields["page"] = raw.get("page")
        if raw.get("metadata") == {} and not source.metadata:
            fields["metadata"] = {}
        return overlay(raw, fields | self._offsets(citation, raw))

    def _offsets(self, citation: Citation, raw: Json) -> Json:
        keys, claim = _spelling(raw), citation.claim
        native = native_for(citation.native, NAME)
        if claim is None:
            return dict.fromkeys((*_OFFSETS, *_INDEXES))
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


def name_of(source: Source) -> str:
    """Return the name that annotations of a source are grouped by: host, else title, else file name."""
    try:
        host = urlsplit(source.url or "").hostname
    except ValueError:
        host = None
    return (host or "").removeprefix("www.") or source.title or source.filename or source.label


def _message_fields(message: Json, native: Native, answer: Answer) -> Json:
    """Return the fields of the original message that the answer changes."""
    fields: Json = {}
    if isinstance(message.get("data"), str):
        fields["data"] = answer.text if answer.parts else None
    if native.was[1] != answer.id:
        fields["serial"] = answer.id
    return fields


def _envelope(native: Native | None, answer: Answer, annotations: list[Any], fitting: Adaptation) -> Any:
    text = answer.text if answer.parts else None
    if native is None or native.at == "summary":
        message = overlay(native.raw if native else {"name": "response"}, {"serial": answer.id, "data": text})
        return {"message": message, "annotations": annotations}
    kept = native.raw.get("message") if native.at == "both" else None
    if text is not None and not (is_object(kept) and isinstance(kept.get("data"), str)):
        fitting.record_loss("parts", "annotations alone have no place for the text")
    if native.was[1] != answer.id and not is_object(kept) and not any(map(is_object, annotations)):
        fitting.record_loss("answer.id", "there is no annotation to name it")
    if native.at == "both":
        message = {"message": overlay(kept, _message_fields(kept, native, answer))} if is_object(kept) else {}
        return {**native.raw, **message, "annotations": annotations}
    return annotations[0] if native.at == "one" and len(annotations) == 1 else annotations
