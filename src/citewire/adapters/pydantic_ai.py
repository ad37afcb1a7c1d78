"""Adapter for pydantic-ai's `ModelResponse`, whose `TextPart`s have `Citation`s with an anchor and sources.

An anchor is either the supported words (`claim`) or a marker in the text, never both. Adjacent text parts are
one text, as in `ModelResponse.text`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace as changed
from functools import partial
from itertools import groupby

from msgspec.structs import replace

from citewire.adapt import Adaptation, SupportedFields
from citewire.dialects import check_answer
from citewire.dialects.base import ProblemList, SourceRegistry, native_for
from citewire.errors import ShapeError
from citewire.model import (
    Answer,
    Citation,
    Native,
    Part,
    Source,
    SourceKind,
    SourceRef,
    Span,
    SpanOrigin,
    Written,
)

try:
    from pydantic_ai import messages as ai
    from pydantic_ai.messages import CitationSource, ModelResponse, ModelResponsePart, TextPart
except ImportError as error:
    raise ImportError(
        f"citewire.adapters.pydantic_ai needs pydantic-ai 2.66: pip install 'citewire[llm]' ({error})"
    ) from error

__all__ = ["NAME", "SUPPORTED_FIELDS", "read", "write"]

NAME = "pydantic-ai"
SUPPORTED_FIELDS: SupportedFields = frozenset(
    {"claim", "marker", "refs.quote", "source.file_id", "source.title", "source.url"}
)

_Texts = tuple[TextPart, ...]


def read(response: ModelResponse) -> Answer:
    """Read the text of `response`, such as `result.response`, and its citations.

    A citation that points outside its text is left out, with a problem. Raises `ShapeError` if it is not a
    response.
    """
    if not isinstance(response, ModelResponse):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ShapeError(f"a {type(response).__name__} is no ModelResponse")
    sources, problems = SourceRegistry(), ProblemList()
    parts: list[Part] = []
    citations: list[Citation] = []
    places = (at for at, part in enumerate(response.parts) if isinstance(part, TextPart))
    for texts in _runs(response.parts):
        offset = 0
        for text, place in zip(texts, places, strict=False):
            for at, cited in enumerate(text.citations or ()):
                path = partial("$.parts[{}].citations[{}]".format, place, at)
                name = f"c{len(citations) + 1}"
                span = problems.try_read(path, _span, cited, text, len(parts), offset)
                if span or cited.anchor is None:
                    citations.append(_citation(name, cited, span, len(parts), sources))
            offset += len(text.content)
        parts.append(Part("".join(text.content for text in texts), Native(NAME, texts)))
    return Answer(
        tuple(parts),
        tuple(citations),
        tuple(sources),
        problems=tuple(problems),
        native=Native(NAME, response),
    )


def _runs(parts: Sequence[ModelResponsePart]) -> Iterator[_Texts]:
    """Yield the text parts, with adjacent ones together."""
    for _, run in groupby(parts, lambda part: isinstance(part, TextPart)):
        if texts := tuple(part for part in run if isinstance(part, TextPart)):
            yield texts


def _span(cited: ai.Citation, text: TextPart, part: int, offset: int) -> Span | None:
    anchor = cited.anchor
    if anchor is None:
        return None
    if anchor.end > len(text.content):
        raise ShapeError(f"{anchor.start} to {anchor.end} is outside the text", ".anchor")
    return Span(part, offset + anchor.start, offset + anchor.end)


def _citation(
    name: str, cited: ai.Citation, span: Span | None, part: int, sources: SourceRegistry
) -> Citation:
    is_marker = isinstance(cited.anchor, ai.MarkerCitationAnchor)
    return Citation(
        name,
        tuple(ref for source in cited.sources for ref in _refs(source, sources)),
        claim=None if is_marker else span,
        marker=span if is_marker else None,
        span_origin="exact" if span else "unknown",
        native=None if span else Native(NAME, at=part),
    )


def _refs(source: CitationSource, sources: SourceRegistry) -> Iterator[SourceRef]:
    """Yield one reference per excerpt, or one if there is none."""
    match source:
        case ai.WebCitationSource():
            name = sources.add("web", source.url, source.title)
        case ai.DocumentCitationSource():
            name = sources.add("document", title=source.title, file_id=source.document_id)
    return (SourceRef(name, quote=excerpt) for excerpt in source.excerpts or [None])


def write(answer: Answer) -> Written:
    """Write `answer` as a `ModelResponse`; unsupported fields are in `losses`.

    Parts that were read from a response and read the same stay unchanged, and all other parts stay in place.
    Raises `ShapeError` as `citewire.write` does.
    """
    check_answer(answer)
    kept = native_for(answer.native, NAME)
    response: ModelResponse = kept.raw if kept else ModelResponse(parts=[])
    fitting = Adaptation(answer, NAME)
    if answer.citations:
        fitting.require_text()
    if len(answer.parts) not in (0, 1, len(list(_runs(response.parts)))):
        fitting.join_parts()  # Adjacent texts are read as one.
    fitting.require_refs()
    fitting.remove_markers(stays=lambda citation, marker: bool(marker) and not citation.claim)
    fitting.derive_claims(lambda citation: not citation.marker)
    fitting.map_citations(lambda citation: _with_some_length(citation, fitting))
    _fit_sources(fitting)
    fitting.finish(
        SUPPORTED_FIELDS, kind=_kind, origin=_origin, group=_by_part, why="citations stand with their part"
    )
    texts = [
        _texts(part, cited, fitting)
        for part, cited in zip(fitting.answer.parts, fitting.groups(), strict=True)
    ]
    return Written(_with_texts(response, texts), tuple(fitting.losses))


def _with_some_length(citation: Citation, fitting: Adaptation) -> Citation:
    """Drop empty anchors. A marker becomes empty when another that it overlapped was removed."""
    empty: dict[str, None] = {}
    for field, span in (("claim", citation.claim), ("marker", citation.marker)):
        if span and span.start == span.end:
            fitting.record_loss(field, "it is empty, and an anchor is not", citation=citation.id)
            empty[field] = None
    return replace(citation, **empty) if empty else citation


def _fit_sources(fitting: Adaptation) -> None:
    """Make sources fit: a page has a URL, a document an id or a title; neither has both."""
    for source in fitting.cited_sources():
        if source.url is not None and source.file_id is not None:
            fitting.record_loss("source.file_id", "a web source has an address only", source=source.id)
            fitting.sources[source.id] = replace(source, file_id=None)
        if source.url is None and not source.file_id and not source.title:
            title = source.label or "untitled"
            fitting.record_loss("source.title", f"required: written as {title}", source=source.id)
            fitting.sources[source.id] = replace(source, title=title)


def _kind(source: Source) -> SourceKind:
    return "document" if source.url is None else "web"


def _origin(citation: Citation) -> SpanOrigin:
    return "exact" if citation.claim or citation.marker else "unknown"


def _by_part(answer: Answer) -> list[list[Citation]]:
    """Return the citations of each part; one without a place stays where it was, or goes to the last."""
    groups: list[list[Citation]] = [[] for _ in answer.parts]
    for citation in answer.citations:
        span, native = citation.claim or citation.marker, native_for(citation.native, NAME)
        part = span.part if span else min(native.at if native else len(groups), len(groups) - 1)
        groups[part].append(citation)
    return groups


def _texts(part: Part, citations: Sequence[Citation], fitting: Adaptation) -> _Texts:
    cited = [_cited(citation, fitting.answer) for citation in citations]
    new = TextPart(part.text, citations=cited or None)
    native = native_for(part.native, NAME)
    if native is None:
        return (new,)
    old: _Texts = native.raw
    if read(ModelResponse(parts=old)).bare() == read(ModelResponse(parts=[new])).bare():
        return old
    first, *others = old
    if others:
        fitting.record_loss("parts", f"{len(old)} text parts become one, without what else they said")
        return (new,)
    # The provider's details on its citations no longer apply.
    details = {key: value for key, value in (first.provider_details or {}).items() if key != "citations"}
    return (changed(first, content=new.content, citations=new.citations, provider_details=details or None),)


def _cited(citation: Citation, answer: Answer) -> ai.Citation:
    sources: list[CitationSource] = []
    for (name, is_quoted), refs in groupby(citation.refs, lambda ref: (ref.source_id, ref.quote is not None)):
        source = answer.source(SourceRef(name))
        if is_quoted:
            sources.append(_cited_source(source, [ref.quote for ref in refs if ref.quote is not None]))
        else:
            sources += (_cited_source(source, []) for _ in refs)
    return ai.Citation(sources, anchor=_anchor(citation))


def _cited_source(source: Source, excerpts: list[str]) -> CitationSource:
    if source.url is not None:
        return ai.WebCitationSource(source.url, title=source.title, excerpts=excerpts)
    return ai.DocumentCitationSource(document_id=source.file_id, title=source.title, excerpts=excerpts)


def _anchor(citation: Citation) -> ai.CitationAnchor | None:
    if citation.claim:
        return ai.ContentCitationAnchor(start=citation.claim.start, end=citation.claim.end)
    if citation.marker:
        return ai.MarkerCitationAnchor(start=citation.marker.start, end=citation.marker.end)
    return None


def _with_texts(response: ModelResponse, texts: list[_Texts]) -> ModelResponse:
    """Return the response with each run of its text parts replaced by the next of `texts`."""
    left = iter(texts)
    parts: list[ModelResponsePart] = []
    for is_text, run in groupby(response.parts, lambda part: isinstance(part, TextPart)):
        parts += next(left, ()) if is_text else run
    parts += (text for run in left for text in run)
    return changed(response, parts=parts)
