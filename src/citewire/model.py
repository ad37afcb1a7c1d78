"""The data model: an answer, its citations, and the sources they point to.

A citation is an edge from a place in the answer to one or more sources. Its place can be three different
things, which providers mix up and we keep apart:

* `claim`: the words that the sources support;
* `marker`: a link or bracket that the model already wrote into the text;
* `insert_at`: a point where a marker belongs.

All offsets are code points, half-open, within one part of the answer.

The values are immutable trees. They cannot form cycles, so the garbage collector skips them (`gc=False`),
which makes creating and freeing an answer with many citations much faster.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from citewire.notebook_views import notebook_html

__all__ = [
    "Answer",
    "Blocks",
    "Chars",
    "Chunk",
    "Citation",
    "CitationStatus",
    "LINE_STEP",
    "Lines",
    "Locator",
    "Loss",
    "Native",
    "Opaque",
    "Pages",
    "Part",
    "Point",
    "Problem",
    "Source",
    "SourceKind",
    "SourceRef",
    "Span",
    "SpanOrigin",
    "Status",
    "Times",
    "Verification",
    "Written",
    "citation_status",
]

SpanOrigin = Literal["exact", "block", "derived", "repaired", "unknown"]
"""How a citation's place is known. Only `exact` is what the provider said, to the character.

`block` is a whole block, `derived` our own inference, `repaired` a corrected offset.
"""

SourceKind = Literal["web", "document", "file", "record", "tool", "place", "message", "image", "unknown"]

Status = Literal["verified", "partial", "altered", "missed", "pending", "skipped"]


class Native(Struct, frozen=True, gc=False):
    """Data of the original payload, stored so that writing the same dialect restores what the model lacks.

    `raw` is the JSON the value was read from, `at` its place there, `kept` unreadable data found next to it,
    and `was` the place it was read as. The model always takes precedence.
    """

    dialect: str
    raw: Any = None
    at: Any = None
    kept: Any = None
    was: Any = None


class Span(Struct, frozen=True, gc=False):
    """The characters from `start` to `end` of part `part`."""

    part: int
    start: int
    end: int


class Point(Struct, frozen=True, gc=False):
    """The gap before character `at` of part `part`."""

    part: int
    at: int


class Chars(Struct, frozen=True, gc=False, tag="chars"):
    """Characters of the source text, half-open, in the provider's own unit."""

    start: int
    end: int


class Pages(Struct, frozen=True, gc=False, tag="pages"):
    """Pages of the source, 1-based and inclusive."""

    first: int
    last: int


class Blocks(Struct, frozen=True, gc=False, tag="blocks"):
    """Content blocks of the source, 0-based, half-open."""

    start: int
    end: int


# Models are shown one line number in this many lines: enough to find a place, at little cost in tokens. A
# cited line number is therefore no more exact than that.
LINE_STEP = 5


class Lines(Struct, frozen=True, gc=False, tag="lines"):
    """Line ids, as assigned by the reader of the source, with the page if known."""

    ids: tuple[int, ...]
    page: int | None = None


class Times(Struct, frozen=True, gc=False, tag="times"):
    """A range of audio or video, each end written `HH:MM:SS.mmm`."""

    start: str | None = None
    end: str | None = None


class Chunk(Struct, frozen=True, gc=False, tag="chunk"):
    """A chunk of the source, by the provider's own id."""

    id: str


class Opaque(Struct, frozen=True, gc=False, tag="opaque"):
    """A place that only the provider can interpret, returned unchanged."""

    value: str


Locator = Chars | Pages | Blocks | Lines | Times | Chunk | Opaque


class SourceRef(Struct, frozen=True, gc=False):
    """One source of a citation: the place in the source and the quote found there.

    `anchor` is the few words within `quote` that matter most.
    """

    source_id: str
    locator: Locator | None = None
    quote: str | None = None
    anchor: str | None = None
    score: float | None = None
    native: Native | None = None


class Source(Struct, frozen=True, gc=False):
    """A page, file or record that answers point to. `index` is its place in the request."""

    id: str
    kind: SourceKind = "unknown"
    url: str | None = None
    title: str | None = None
    filename: str | None = None
    file_id: str | None = None
    record_id: str | None = None
    index: int | None = None
    domain: str | None = None
    snippet: str | None = None
    metadata: dict[str, Any] = {}
    native: Native | None = None

    @property
    def label(self) -> str:
        """A name to display. Never empty."""
        return self.title or self.filename or self.url or self.file_id or self.record_id or self.id


class Verification(Struct, frozen=True, gc=False):
    """The verdict on a citation. `reason` says why, `quote` is what the source actually says."""

    status: Status
    reason: str | None = None
    quote: str | None = None
    page: int | None = None
    native: Native | None = None


class Citation(Struct, frozen=True, gc=False):
    """An edge from a place in the answer to its sources. `ordinal` is the number displayed for it."""

    id: str
    refs: tuple[SourceRef, ...] = ()
    ordinal: int | None = None
    claim: Span | None = None
    marker: Span | None = None
    insert_at: Point | None = None
    span_origin: SpanOrigin = "unknown"
    verification: Verification | None = None
    native: Native | None = None


class Part(Struct, frozen=True, gc=False):
    """A part of the text that a person reads."""

    text: str
    native: Native | None = None


class Problem(Struct, frozen=True, gc=False):
    """A piece of a payload that was left out, and why. `path` is its place in the payload."""

    code: str
    path: str
    message: str


class Answer(Struct, frozen=True, gc=False):
    """The text that a person reads, its citations, and the cited sources.

    Without parts the text is not known, because some payloads carry only citations. Spans are then as given
    in the payload, and their origin is `unknown`.
    """

    parts: tuple[Part, ...] = ()
    citations: tuple[Citation, ...] = ()
    sources: tuple[Source, ...] = ()
    id: str | None = None
    problems: tuple[Problem, ...] = ()
    native: Native | None = None

    @property
    def text(self) -> str:
        """The parts as one text, with a blank line between them."""
        return "\n\n".join(part.text for part in self.parts)

    def covered(self, span: Span) -> str:
        """Return the characters of `span`."""
        return self.parts[span.part].text[span.start : span.end]

    def source(self, ref: SourceRef) -> Source:
        """Return the source that `ref` names. Raises `KeyError` if the answer has no such source."""
        for source in self.sources:
            if source.id == ref.source_id:
                return source
        raise KeyError(ref.source_id)

    def _repr_html_(self) -> str:
        """Return the HTML that a notebook shows."""
        return notebook_html("answer", self)

    def bare(self) -> Answer:
        """Return the answer without its native payload data and without its problems."""
        return Answer(
            parts=tuple(Part(part.text) for part in self.parts),
            citations=tuple(_bare_citation(citation) for citation in self.citations),
            sources=tuple(replace(source, native=None) for source in self.sources),
            id=self.id,
        )


def _bare_citation(citation: Citation) -> Citation:
    verdict = citation.verification
    return replace(
        citation,
        refs=tuple(replace(ref, native=None) for ref in citation.refs),
        verification=None if verdict is None else replace(verdict, native=None),
        native=None,
    )


class Loss(Struct, frozen=True, gc=False):
    """Something that will not read back unchanged: dropped, or invented because the dialect requires it.

    `field` is a dotted field name (`refs.quote`, `source.title`, `claim`). `citation` or `source` is the id
    of the affected item; without either, the loss concerns the whole answer.
    """

    field: str
    reason: str
    citation: str | None = None
    source: str | None = None

    def __str__(self) -> str:
        of = self.citation or self.source
        return f"{self.field}{f' of {of}' if of else ''}: {self.reason}"


class Written(Struct, frozen=True, gc=False):
    """An answer written in a dialect, and what the dialect could not express."""

    payload: Any
    losses: tuple[Loss, ...] = ()


class CitationStatus(NamedTuple):
    """The four flags that DeepCitation publishes. `skipped` sets none; `partial` is not also `verified`."""

    is_verified: bool = False
    is_miss: bool = False
    is_partial_match: bool = False
    is_pending: bool = False


_STATUS: dict[Status, CitationStatus] = {
    "verified": CitationStatus(is_verified=True),
    "partial": CitationStatus(is_partial_match=True),
    "altered": CitationStatus(is_miss=True),
    "missed": CitationStatus(is_miss=True),
    "pending": CitationStatus(is_pending=True),
    "skipped": CitationStatus(),
}


def citation_status(verification: Verification | None) -> CitationStatus:
    """Return the flags of a verdict. No verdict yet is pending, and an altered quote is a miss."""
    return CitationStatus(is_pending=True) if verification is None else _STATUS[verification.status]
