"""Adapts an answer to what DeepCitation records can express."""

from __future__ import annotations

from msgspec.structs import replace

from citewire.adapt import Adaptation
from citewire.answer_edits import remove_markers
from citewire.dialects.base import Json
from citewire.dialects.deepcitation.block import find_blocks
from citewire.dialects.deepcitation.entry import (
    BLOCK_START,
    MAX_NUMBER,
    MEDIA_TYPES,
    extras_of,
    is_page,
    metadata_of,
)
from citewire.model import Citation, Lines, Locator, Pages, Source, SourceKind, Span, SpanOrigin, Times


def kind_of(source: Source) -> SourceKind:
    return "web" if source.url is not None and source.metadata.get("type") not in MEDIA_TYPES else "document"


def origin_of(citation: Citation) -> SpanOrigin:
    return "exact" if citation.marker else "unknown"


def fit_citation(fitting: Adaptation, citation: Citation) -> Citation | None:
    if not citation.refs and citation.verification is None:
        fitting.record_loss("citation", "points to no source", citation=citation.id)
        return None
    changes: Json = {}
    if not fitting.answer.parts:
        places = [field for field in ("claim", "marker", "insert_at") if getattr(citation, field) is not None]
        for field in places:
            fitting.record_loss(field, "the text of the answer is not known", citation=citation.id)
        changes = dict.fromkeys(places)
    if citation.ordinal is not None and not (citation.refs and 0 <= citation.ordinal <= MAX_NUMBER):
        fitting.record_loss("ordinal", "no number that an entry could have", citation=citation.id)
        changes["ordinal"] = None
    for ref in citation.refs:
        locator = _fit_locator(ref.locator)
        if locator != ref.locator:
            fitting.record_loss(
                "refs.locator", "a place is one page, or lines by number", citation=citation.id
            )
            changes["refs"] = (replace(ref, locator=locator),)
    verdict = citation.verification
    if verdict and verdict.page is not None and not is_page(verdict.page):
        fitting.record_loss("verification", "pages count from 1", citation=citation.id)
        changes["verification"] = replace(verdict, page=None)
    return replace(citation, **changes) if changes else citation


def _fit_locator(locator: Locator | None) -> Locator | None:
    match locator:
        case Pages(first=page):
            return Pages(page, page) if is_page(page) else None
        case Lines(ids=ids, page=page):
            if ids and all(0 <= number <= MAX_NUMBER for number in ids):
                return locator if page is None or is_page(page) else Lines(ids)
            return None if page is None or not is_page(page) else Pages(page, page)
        case _:
            return locator


def fit_sources(fitting: Adaptation, attachment: str | None) -> None:
    refs = [ref for citation in fitting.answer.citations for ref in citation.refs]
    timed = {ref.source_id for ref in refs if isinstance(ref.locator, Times)}
    for source in fitting.cited_sources():
        fit = source
        if source.file_id is None and attachment is not None:
            fitting.record_loss("source.file_id", "the payload names one for all", source=source.id)
            fit = replace(fit, file_id=attachment)
        if source.metadata or source.id in timed:
            media = source.metadata.get("type")
            if source.id in timed and source.url is None and media not in MEDIA_TYPES:
                media = "audio"
            fit = replace(fit, metadata=metadata_of(media, extras_of(source.metadata)))
            if fit.metadata != source.metadata:
                fitting.record_loss(
                    "source.metadata", "entries have fields of their own and a type", source=source.id
                )
        fitting.sources[source.id] = fit


def remove_blocks(fitting: Adaptation, strip: bool) -> None:
    """Remove text that looks like a data block: a reader takes it for one, with the whitespace before it."""
    for last in (False, False, True):
        text = fitting.answer.parts[0].text
        spans = find_block_spans(text)
        if not spans:
            break
        # Removing a block can join the halves of another one.
        cut = {Span(0, text.find(BLOCK_START), len(text))} if last else spans
        _cut(fitting, cut, "what looks like a data block is taken out")
    text = fitting.answer.parts[0].text
    if strip and text[-1:].isspace():
        _cut(fitting, {Span(0, len(text.rstrip()), len(text))}, "the space in front of the data block goes")


def _cut(fitting: Adaptation, spans: set[Span], reason: str) -> None:
    fitting.record_loss("text", reason)
    fitting.answer = remove_markers(fitting.answer, {*spans})


def find_block_spans(text: str) -> set[Span]:
    spans: set[Span] = set()
    at = 0
    for start, _, _, behind in find_blocks(text):
        spans.add(Span(0, at + len(text[at:start].rstrip()), behind))
        at = behind
    return spans
