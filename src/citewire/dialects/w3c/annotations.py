"""W3C Web Annotation: an annotation links words of the answer (its target) to sources (its bodies).

Offsets are code points. The W3C model has no field for an answer's text, nor for some facts about a source.
JSON-LD ignores unknown terms, so these are in objects named `citewire`: `text` on the page; `ordinal`,
`marker`, `insert_at` and `origin` on an annotation; the fields of `extension_fields.pack` and `metadata` on a
body. A payload is a page, a collection with its first page, a list or a single annotation; annotations of
different targets are different answers.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple
from urllib.parse import quote as percent_encoded
from urllib.parse import unquote

import msgspec
from msgspec.structs import replace

from citewire.adapt import Adaptation
from citewire.codec import prepare_types
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
from citewire.dialects.common.claims import ClaimTextBudget, read_claim
from citewire.dialects.common.extension_fields import (
    EXTENSIBLE_FIELDS,
    EXTENSION_KEY,
    ExtensionFields,
    pack,
    unpack,
)
from citewire.dialects.w3c.bodies import has_type, kind_of, resource_of, title_key, update_body
from citewire.dialects.w3c.selectors import (
    POSITION,
    QUOTE,
    as_list,
    is_one_page,
    locator_selectors,
    read_locator,
    selectors_of,
    update_selectors,
)
from citewire.errors import InputError, ShapeError
from citewire.model import (
    Answer,
    Chars,
    Citation,
    Native,
    Part,
    Point,
    Source,
    SourceRef,
    Span,
    SpanOrigin,
    Written,
)
from citewire.text import Offsets, Unit

NAME = "w3c"
UPSTREAM = "Web Annotation Data Model, Recommendation of 2017-02-23"
SUPPORTED_FIELDS = EXTENSIBLE_FIELDS | {"insert_at", "marker", "ordinal"}

_UNIT: Unit = "codepoints"
_CONTEXT = "http://www.w3.org/ns/anno.jsonld"
_PDFFRAGMENT = "http://tools.ietf.org/rfc/rfc3778"
# Number of characters before and after a quote, to find it again in a changed text.
_AROUND = 32

_Path = tuple[str | int, ...]


def detect(payload: Any) -> bool:
    if is_list(payload):
        return bool(payload) and all(map(_is_annotation, payload))
    return _items_at(payload) is not None


def _items_at(payload: Any) -> _Path | None:
    """Return the path of the annotations; for a single annotation, the payload itself."""
    if is_list(payload):
        return () if not payload or any(map(_is_annotation, payload)) else None
    if not is_object(payload):
        return None
    if has_type(payload, "AnnotationPage") and is_list(payload.get("items")):
        return ("items",)
    page = payload.get("first") if has_type(payload, "AnnotationCollection") else None
    if is_object(page) and is_list(page.get("items")):
        return ("first", "items")
    return () if _is_annotation(payload) else None


def _is_annotation(value: Any) -> bool:
    return is_object(value) and has_type(value, "Annotation") and "target" in value


class _Form(NamedTuple):
    """A payload, the path of its annotations, and the annotations."""

    payload: Any
    at: _Path
    annotations: list[Any]

    @property
    def page(self) -> Json:
        return get_at(self.payload, self.at[:-1]) if self.at else {}


def _form(payload: Any) -> _Form:
    at = _items_at(payload)
    if at is None:
        raise ShapeError("neither an annotation nor a list, a page or a collection of them")
    annotations = [payload] if is_object(payload) and not at else get_at(payload, at)
    return _Form(payload, at, annotations)


def read_all(payload: Any, options: DialectOptions) -> tuple[Answer, ...]:
    form = _form(payload)
    groups: dict[str | None, list[int]] = {}
    for number, annotation in enumerate(form.annotations):
        iri = _iri(annotation.get("target")) if is_object(annotation) else next(iter(groups), None)
        groups.setdefault(iri, []).append(number)
    own = _extension_of(form.page).get("text")
    text = own if isinstance(own, str) and len(groups) < 2 else options.text
    unit: Unit = options.unit or _UNIT
    return tuple(_read(form, iri, places, text, unit) for iri, places in (groups or {None: []}).items())


def _extension_of(value: Json) -> Json:
    own = value.get(EXTENSION_KEY)
    return own if is_object(own) else {}


def _iri(target: Any) -> str | None:
    """Return the IRI of a target, or of the resource that it is a part of."""
    if is_list(target) and len(target) == 1:
        return _iri(target[0])
    if is_object(target):
        return _iri(target.get("source") if "source" in target else target.get("id"))
    return target if isinstance(target, str) else None


_ANSWER = "urn:citewire:answer"
_ABSOLUTE = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:\S*")


def _id_of(iri: str | None) -> str | None:
    if iri is None or not iri.startswith(f"{_ANSWER}:"):
        return None if iri == _ANSWER else iri
    try:
        return unquote(iri.removeprefix(f"{_ANSWER}:"), errors="surrogatepass")
    except UnicodeDecodeError:
        return iri


def _iri_of(name: str | None) -> str:
    if name is None:
        return _ANSWER
    if _ABSOLUTE.fullmatch(name) and not name.startswith(_ANSWER):
        return name
    return f"{_ANSWER}:{percent_encoded(name, safe='', errors='surrogatepass')}"


def _read(form: _Form, iri: str | None, places: list[int], text: str | None, unit: Unit) -> Answer:
    reader = _Reader(text, unit)
    where = path_text(form.at)
    for at in places:
        try:
            reader.citations.append(reader.citation(form.annotations[at], at))
        except InputError as exc:
            reader.problems.add(where if is_object(form.payload) and not form.at else f"{where}[{at}]", exc)
            reader.kept.append((at, form.annotations[at]))
    ours = set(places)
    others = [(at, raw) for at, raw in enumerate(form.annotations) if at not in ours]
    return Answer(
        parts=() if text is None else (Part(text),),
        citations=tuple(reader.citations),
        sources=tuple(reader.sources),
        id=_id_of(iri),
        problems=tuple(reader.problems),
        native=Native(NAME, form, iri, (reader.kept, others), (unit, text)),
    )


class _AnnotationFields(msgspec.Struct, frozen=True):
    """The `citewire` object of an annotation."""

    ordinal: int | None = None
    marker: tuple[int, int] | None = None
    insert_at: int | None = None
    origin: SpanOrigin | None = None


prepare_types(_AnnotationFields)


class _Reader:
    def __init__(self, text: str | None, unit: Unit) -> None:
        self.sources = SourceRegistry()
        self.problems = ProblemList()
        self.citations: list[Citation] = []
        self.kept: list[tuple[int, Any]] = []
        self._offsets = None if text is None else Offsets(text)
        self._unit: Unit = unit

    def citation(self, raw: Any, at: int) -> Citation:
        """Read the citation of an annotation. Raises `ShapeError`, also if no body is a source."""
        if not is_object(raw):
            raise ShapeError("an annotation is not an object", "")
        beside = _read_annotation_fields(raw)
        claim, origin = self._claim(raw.get("target"))
        marker = self._inside(*beside.marker, "marker") if beside.marker else None
        at_point = beside.insert_at
        point = None if at_point is None else self._inside(at_point, at_point, "insert_at")
        if claim is None and (marker or point) and self._offsets:
            origin = "exact"
        refs, kept, verdict = self._bodies(raw)
        return Citation(
            f"c{len(self.citations) + 1}",
            tuple(refs),
            beside.ordinal,
            claim,
            marker,
            point and Point(0, point.start),
            beside.origin or origin,
            verdict.verification,
            Native(NAME, raw, at, tuple(kept), (claim, origin)),
        )

    def _inside(self, start: int, end: int, field: str) -> Span:
        length = len(self._offsets.text) if self._offsets else end
        if not 0 <= start <= end <= length:
            raise ShapeError(f"{start} to {end} is reversed or outside the text", f".{EXTENSION_KEY}.{field}")
        return Span(0, start, end)

    def _claim(self, target: Any) -> tuple[Span | None, SpanOrigin]:
        """Return the claim that a target selects by offsets, by its words, or by both."""
        selectors = selectors_of(_single_target(target))
        position, words = selectors.get(POSITION), selectors.get(QUOTE)
        exact = optional(words, "exact", str, ".target.selector") if words else None
        if position is not None:
            start, end = (require(position, key, int, ".target.selector") for key in ("start", "end"))
            if self._offsets is None and 0 <= start <= end:
                return Span(0, start, end), "unknown"
            offsets = self._offsets or Offsets("")
            try:
                return read_claim(offsets, start, end, self._unit, exact)
            except ShapeError as exc:
                raise ShapeError(exc.message, ".target.selector") from exc
        if not exact or self._offsets is None:
            return None, "unknown"
        before = (optional(words, "prefix", str, ".target.selector") or "") if words else ""
        after = (optional(words, "suffix", str, ".target.selector") or "") if words else ""
        found = self._offsets.find_unique(f"{before}{exact}{after}")
        if found is None:
            raise ShapeError("the words are not in the text, or more than once", ".target.selector")
        start = found + len(before)
        return Span(0, start, start + len(exact)), "exact"

    def _bodies(self, raw: Json) -> tuple[list[SourceRef], list[tuple[int, Any]], ExtensionFields]:
        """Return the sources, the other bodies, and the extension fields of the first source."""
        refs: list[SourceRef] = []
        kept: list[tuple[int, Any]] = []
        first = ExtensionFields()
        for at, body in enumerate(_body_list(raw)):
            where = f".body[{at}]" if is_list(raw.get("body")) else ".body"
            resource = resource_of(body)
            if resource is None:
                kept.append((at, body))
                continue
            beyond = unpack(_own_of(body), f"{where}.{EXTENSION_KEY}")
            first = first if refs else beyond
            refs.append(self._ref(body, resource, beyond, at, where))
        if not refs:
            raise ShapeError("no body is a source", ".body")
        return refs, kept, first

    def _ref(self, body: Any, resource: Json, beyond: ExtensionFields, at: int, where: str) -> SourceRef:
        url = optional(resource, "id", str, where)
        title = optional(resource, title_key(resource), str, where)
        selectors = selectors_of(body) if is_object(body) else {}
        words = selectors.get(QUOTE)
        quote = optional(words, "exact", str, f"{where}.selector") if words else None
        locator = beyond.locator or read_locator(selectors, f"{where}.selector")
        metadata = _extension_of(body).get("metadata") if is_object(body) else None
        source_id = self.sources.add(
            beyond.kind or kind_of(url),
            url,
            title,
            filename=beyond.filename,
            file_id=beyond.file_id,
            record_id=beyond.record_id,
            index=beyond.index,
            domain=beyond.domain,
            snippet=beyond.snippet,
            metadata=metadata if is_object(metadata) else None,
        )
        return SourceRef(source_id, locator, quote, beyond.anchor, beyond.score, Native(NAME, body, at))


def _read_annotation_fields(raw: Json) -> _AnnotationFields:
    try:
        return msgspec.convert(_extension_of(raw), _AnnotationFields)
    except (msgspec.ValidationError, RecursionError, UnicodeError) as exc:
        raise ShapeError(f"not what citewire writes: {exc}", f".{EXTENSION_KEY}") from exc


def _single_target(target: Any) -> Json:
    """Return the only target of an annotation, empty if it is just an IRI."""
    if is_list(target):
        if len(target) != 1 or is_list(target[0]):
            raise ShapeError("several targets, or none", ".target")
        target = target[0]
    return target if is_object(target) else {}


def _body_list(raw: Json) -> list[Any]:
    return as_list(raw.get("body"))


def _own_of(body: Any) -> Any:
    own = body.get(EXTENSION_KEY) if is_object(body) else None
    return {key: value for key, value in own.items() if key != "metadata"} if is_object(own) else own


def write(answer: Answer, options: DialectOptions) -> Written:
    fitting = Adaptation(answer, NAME)
    if len(answer.parts) > 1:
        fitting.join_parts()
    fitting.require_refs()
    fit = fitting.finish(
        SUPPORTED_FIELDS, kind=lambda source: source.kind, origin=lambda citation: citation.span_origin
    )
    native = native_for(answer.native, NAME)
    unit: Unit = options.unit or (native.was[0] if native else _UNIT)
    writer = _Writer(fit, native, unit)
    written = [writer.annotation(citation) for citation in fit.citations]
    items = interleave(writer.kept(native) if native else None, written)
    if fit.id is not None and not any(map(is_object, items)):
        fitting.record_loss("answer.id", "there is no annotation to name it")
    return Written(_envelope(native, fit, items, fitting), tuple(fitting.losses))


class _Writer:
    def __init__(self, answer: Answer, native: Native | None, unit: Unit) -> None:
        self._sources = {source.id: source for source in answer.sources}
        self._offsets = Offsets(answer.text) if answer.parts else None
        self._words = ClaimTextBudget(answer)
        self._unit: Unit = unit
        self._same_text = native is not None and native.was[1] == (answer.text if answer.parts else None)
        is_same = native is not None and _id_of(native.at) == answer.id
        self._iri = native.at if native and is_same else _iri_of(answer.id)
        self._same_iri = is_same

    def kept(self, native: Native) -> list[tuple[int, Any]]:
        """Return the preserved annotations: unreadable ones, with the new IRI, and those of other targets."""
        kept, others = native.kept
        return [*((at, self._of_this(raw)) for at, raw in kept), *others]

    def _of_this(self, raw: Any) -> Any:
        if self._same_iri or not is_object(raw) or is_list(raw.get("target")):
            return raw
        return {**raw, "target": _with_iri(raw.get("target"), self._iri)}

    def annotation(self, citation: Citation) -> tuple[int | None, Json]:
        native = native_for(citation.native, NAME)
        raw: Json = native.raw if native else {"type": "Annotation", "motivation": "linking"}
        written = [self._body(citation, at) for at in range(len(citation.refs))]
        bodies = interleave(native.kept if native else None, written)
        old = raw.get("body")
        fields: Json = {
            "target": self._target(citation, raw.get("target"), native),
            "body": bodies if is_list(old) or len(bodies) > 1 else bodies[0],
        }
        own = self._beside(citation, _extension_of(raw), native)
        if own != _extension_of(raw):
            fields[EXTENSION_KEY] = own or None
        return native and native.at, overlay(raw, fields)

    def _beside(self, citation: Citation, kept: Json, native: Native | None) -> Json:
        marker, point = citation.marker, citation.insert_at
        fields: Json = {
            "ordinal": citation.ordinal,
            "marker": marker and [marker.start, marker.end],
            "insert_at": point and point.at,
            "origin": citation.span_origin,
        }
        if self._concluded(citation, native) == citation.span_origin and "origin" not in kept:
            del fields["origin"]
        return overlay(kept, fields)

    def _concluded(self, citation: Citation, native: Native | None) -> SpanOrigin:
        """Return the span origin that a reader infers if the annotation does not state it."""
        if native is not None and self._is_as_read(citation, native):
            return native.was[1]
        placed = citation.claim or citation.marker or citation.insert_at
        return "exact" if placed and self._offsets else "unknown"

    def _is_as_read(self, citation: Citation, native: Native) -> bool:
        return self._same_text and native.was[0] == citation.claim and citation.claim is not None

    def _target(self, citation: Citation, raw: Any, native: Native | None) -> Any:
        if is_list(raw):
            return [self._target(citation, raw[0], native)]
        if native is None:
            raw = self._iri
        elif not self._same_iri:
            raw = _with_iri(raw, self._iri)
        claim = citation.claim
        if native is not None and (self._is_as_read(citation, native) or claim is native.was[0] is None):
            return raw
        if claim is None:
            wanted: Json = {POSITION: None, QUOTE: None}
        else:
            wanted = {POSITION: self._position(claim), QUOTE: self._quote(claim)}
        specific: Json = raw if is_object(raw) and "source" in raw else {"source": raw}
        selector = update_selectors(specific.get("selector"), wanted)
        return overlay(specific, {"selector": selector}) if selector or specific is raw else raw

    def _position(self, claim: Span) -> Json:
        edges = (claim.start, claim.end)
        start, end = (self._offsets.to_unit(at, self._unit) if self._offsets else at for at in edges)
        return {"start": start, "end": end}

    def _quote(self, claim: Span) -> Json | None:
        words = self._words.text_of(claim) if self._offsets else None
        if self._offsets is None or not words:
            return None
        text = self._offsets.text
        around = {
            "prefix": text[max(0, claim.start - _AROUND) : claim.start],
            "suffix": text[claim.end : claim.end + _AROUND],
        }
        return {"exact": words, **around}

    def _body(self, citation: Citation, at: int) -> tuple[int | None, Any]:
        ref = citation.refs[at]
        source = self._sources[ref.source_id]
        native = native_for(ref.native, NAME)
        kept: Any = native.raw if native else {"type": "SpecificResource", "source": {}}
        place = native and native.at
        old = _extension_of(kept) if is_object(kept) else {}
        by_selector = "locator" not in old and (isinstance(ref.locator, Chars) or is_one_page(ref.locator))
        packed = self._packed(citation, at, source, old, without_locator=by_selector)
        wanted: Json = {QUOTE: None if ref.quote is None else {"exact": ref.quote}}
        if "locator" not in old:
            wanted |= locator_selectors(ref.locator)
        return place, update_body(kept, source, wanted, packed)

    def _packed(
        self, citation: Citation, at: int, source: Source, old: Json, *, without_locator: bool
    ) -> Json:
        ref = citation.refs[at]
        said = replace(
            citation,
            refs=(replace(ref, locator=None) if without_locator else ref,),
            claim=None,
            verification=None if at else citation.verification,
        )
        kept = {key: value for key, value in old.items() if key != "metadata"} if old else None
        packed = pack(said, source, kind_of(source.url), kept) or {}
        empty = {"metadata": old["metadata"]} if not source.metadata and not old.get("metadata", 1) else {}
        return packed | ({"metadata": source.metadata} if source.metadata else empty)


def _with_iri(target: Any, iri: str) -> Any:
    if not is_object(target):
        return iri
    if "source" in target:
        return {**target, "source": _with_iri(target["source"], iri)}
    return {**target, "id": iri}


def _envelope(native: Native | None, answer: Answer, items: list[Any], fitting: Adaptation) -> Any:
    text = answer.text if answer.parts else None
    if native is None:
        own = {} if text is None else {EXTENSION_KEY: {"text": text}}
        return {"@context": _CONTEXT, "type": "AnnotationPage", **own, "items": items}
    form: _Form = native.raw
    if not form.at:
        if text is not None:
            fitting.record_loss("parts", "annotations alone have no place for the text")
        return items[0] if is_object(form.payload) and len(items) == 1 else items
    own = _extension_of(form.page)
    was_given = "text" not in own and text == native.was[1]
    if was_given and text is not None:
        fitting.record_loss("parts", "the text was given beside the payload, and is not in it")
    elif own.get("text") != text:
        own = overlay(own, {"text": text})
    page = form.page if own == _extension_of(form.page) else overlay(form.page, {EXTENSION_KEY: own or None})
    return put_at(form.payload, form.at[:-1], {**page, "items": items})
