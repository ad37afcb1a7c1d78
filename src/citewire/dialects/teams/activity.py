"""Microsoft Teams: claims in the message entity of a Bot Framework activity.

A claim has a position, which the text names as `[1]`. Teams displays at most 80 characters of a name and 160
of an abstract, and rejects longer ones. The name is required.
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
    interleave,
    is_list,
    is_object,
    native_for,
    optional,
    overlay,
    require,
)
from citewire.dialects.teams.numbering import NumberedEntry, cite_numbers, number_records, origin_of
from citewire.errors import InputError, ShapeError
from citewire.model import Answer, Citation, Native, Part, Source, SourceKind, SourceRef, Written

NAME = "teams"
UPSTREAM = "microsoft-teams-api 2.1.1, Bot Framework activity 3.1"
SUPPORTED_FIELDS = frozenset({"answer.id", "marker", "ordinal", "refs.quote", "source.title", "source.url"})

_ENTITY = "https://schema.org/Message"
_ENTITY_FIELDS: Json = {
    "type": _ENTITY,
    "@type": "Message",
    "@context": "https://schema.org",
    "@id": "",
    "additionalType": ["AIGeneratedContent"],
}
_LONGEST_NAME = 80
_LONGEST_ABSTRACT = 160


def detect(payload: Any) -> bool:
    return is_object(payload) and isinstance(payload.get("text"), str) and _entity_at(payload) is not None


def _entity_at(activity: Json) -> int | None:
    """Return the index of the only message entity."""
    entities = activity.get("entities")
    for at, entity in enumerate(entities if is_list(entities) else ()):
        if is_object(entity) and entity.get("type") == _ENTITY:
            return at
    return None


def read_all(payload: Any, options: DialectOptions) -> tuple[Answer, ...]:
    if not is_object(payload):
        raise ShapeError("an activity is not an object")
    if _entity_at(payload) is None:
        raise ShapeError(f"no entity of type {_ENTITY}", "$.entities")
    return (read_activity(payload),)


def read_activity(activity: Json) -> Answer:
    """Read the answer in an activity; while it streams, the entity may be missing."""
    text = require(activity, "text", str, "$")
    at = _entity_at(activity)
    where = f"$.entities[{at}]"
    entity: Json = {} if at is None else activity["entities"][at]
    sources, problems = SourceRegistry(), ProblemList()
    records: list[NumberedEntry] = []
    kept: list[tuple[int, Any]] = []
    for number, claim in enumerate(optional(entity, "citation", list, where) or []):
        try:
            records.append(_read_claim(claim, number, sources))
        except InputError as exc:
            problems.add(f"{where}.citation[{number}]", exc)
            kept.append((number, claim))
    return Answer(
        parts=(Part(text),),
        citations=tuple(cite_numbers(text, records)),
        sources=tuple(sources),
        id=optional(activity, "id", str, "$"),
        problems=tuple(problems),
        native=Native(NAME, activity, at, tuple(kept)),
    )


def _read_claim(claim: Any, at: int, sources: SourceRegistry) -> NumberedEntry:
    if not is_object(claim):
        raise ShapeError("a claim is not an object", "")
    position = require(claim, "position", int)
    if position < 1:
        raise ShapeError(f"position {position} is not from 1 on", ".position")
    document = require(claim, "appearance", dict)
    quote = optional(document, "abstract", str, ".appearance") or None
    title = optional(document, "name", str, ".appearance") or None
    url = optional(document, "url", str, ".appearance")
    ref = SourceRef(sources.add(_kind_of(url), url, title), quote=quote)
    return NumberedEntry(position, ref, Native(NAME, claim, at, was=(position, title, quote)))


def _kind_of(url: str | None) -> SourceKind:
    return "document" if url is None else "web"


def write(answer: Answer, options: DialectOptions) -> Written:
    fitting = Adaptation(answer, NAME)
    fitting.require_text()
    fitting.join_parts()
    fitting.require_refs()
    fitting.split_refs()
    _fit_names(fitting)
    fitting.map_citations(lambda citation: _fit_abstract(citation, fitting))
    native = native_for(answer.native, NAME)
    taken = [_position(claim) for _, claim in (native.kept if native else ())]
    numbers = number_records(
        fitting, _content, lambda citation: _original_fields(citation)[0], filter(None, taken)
    )
    fit = fitting.finish(
        SUPPORTED_FIELDS, kind=lambda source: _kind_of(source.url), origin=origin_of, keep_ids=True
    )
    sources = {source.id: source for source in fit.sources}
    claims: list[tuple[int | None, Any]] = []
    at = 0
    for position, size in numbers:
        citation = fit.citations[at]
        claims.append(_claim(position, citation, sources[citation.refs[0].source_id]))
        at += size
    return Written(_activity(native, fit, claims), tuple(fitting.losses))


def _position(claim: Any) -> int | None:
    position = claim.get("position") if is_object(claim) else None
    return position if type(position) is int else None


def _original_fields(citation: Citation) -> tuple[int | None, str | None, str | None]:
    """Return the original position, name and abstract of a citation."""
    native = native_for(citation.native, NAME)
    return native.was if native else (None, None, None)


def _content(citation: Citation) -> Any:
    ref, native = citation.refs[0], native_for(citation.native, NAME)
    return ref.source_id, ref.quote, native and native.at


def _fit_names(fitting: Adaptation) -> None:
    """Give every source a name within Teams' length limit; unchanged original names stay."""
    as_it_came = {
        (citation.refs[0].source_id, _original_fields(citation)[1])
        for citation in fitting.answer.citations
        if native_for(citation.native, NAME)
    }
    for source in fitting.cited_sources():
        if (source.id, source.title) in as_it_came:
            continue
        name = _cut(source.label, _LONGEST_NAME)
        if name != source.title:
            fitting.record_loss(
                "source.title",
                f"the name is required, and at most {_LONGEST_NAME} characters",
                source=source.id,
            )
            fitting.sources[source.id] = replace(source, title=name)


def _cut(text: str, longest: int) -> str:
    return text if len(text) <= longest else text[: longest - 1] + "…"


def _fit_abstract(citation: Citation, fitting: Adaptation) -> Citation:
    ref = citation.refs[0]
    abstract = _cut(ref.quote or "", _LONGEST_ABSTRACT) or None
    if ref.quote in (abstract, _original_fields(citation)[2]):
        return citation
    fitting.record_loss(
        "refs.quote", f"an abstract has 1 to {_LONGEST_ABSTRACT} characters", citation=citation.id
    )
    return replace(citation, refs=(replace(ref, quote=abstract),))


def _claim(position: int, citation: Citation, source: Source) -> tuple[int | None, Json]:
    native = native_for(citation.native, NAME)
    raw: Json = native.raw if native else {"@type": "Claim"}
    document: Json = raw.get("appearance") or {"@type": "DigitalDocument"}
    quote = citation.refs[0].quote
    fields: Json = {"url": source.url}
    if not native or source.title != _original_fields(citation)[1]:
        fields["name"] = source.title
    if not native or quote != _original_fields(citation)[2]:
        # The field is required; an empty abstract means none.
        fields["abstract"] = quote or ""
    appearance = overlay(document, fields)
    return native and native.at, overlay(raw, {"position": position, "appearance": appearance})


def _activity(native: Native | None, answer: Answer, claims: list[tuple[int | None, Any]]) -> Json:
    raw: Json = native.raw if native else {"type": "message"}
    entities: list[Json] = list(raw.get("entities") or ())
    written = interleave(native.kept if native else None, claims)
    at: int | None = native.at if native else None
    if native is None or (at is None and written):
        entities.append(_ENTITY_FIELDS | {"citation": written})
    elif at is not None and (written or entities[at].get("citation")):
        entities[at] = entities[at] | {"citation": written}
    if entities:
        raw = overlay(raw, {"entities": entities})
    return overlay(raw, {"id": answer.id, "text": answer.text})
