"""The values everything else is about: an answer, its citations, the sources they point to.

A citation is an edge from a place in the answer to one or more sources. Its place can be three
different things, which providers mix up and we never do:

* `claim`: the words that the sources support;
* `marker`: a link or bracket that the model already wrote into the text;
* `insert_at`: a point where a marker belongs.

All offsets are code points, half-open, within one part of the answer.

The values are trees that are never changed, so they cannot form cycles, and the garbage collector need not
look at them (`gc=False`): an answer with many citations is made and dropped far faster that way.
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
"""How we know a citation's place. Only `exact` is what the provider said, to the character;
`block` is a whole block, `derived` our reading, `repaired` a corrected offset."""

SourceKind = Literal["web", "document", "file", "record", "tool", "place", "message", "image", "unknown"]

Status = Literal["verified", "partial", "altered", "missed", "pending", "skipped"]


class Native(Struct, frozen=True, gc=False):
    """What the payload said, kept so that the same dialect gets back what the model has no words for.

    `raw` is the JSON the value was read from, `at` its place there, `kept` what stood beside it and
    could not be read, `was` the place it was read as. It never outranks the model.
    """

    dialect: str
    raw: Any = None
    at: Any = None
    kept: Any = None
    was: Any = None


class Span(Struct, frozen=True, gc=False):
    """Characters `start` to `end` of part `part`."""

    part: int
    start: int
    end: int


class Point(Struct, frozen=True, gc=False):
    """The gap before character `at` of part `part`."""

    part: int
    at: int


class Chars(Struct, frozen=True, gc=False, tag="chars"):
    """Characters of the source text, half-open, in whatever unit the provider counts."""

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


# A model is told the number of one line in so many: enough to find a place by, at little cost in tokens.
# So it cannot say more exactly on which line something stands.
LINE_STEP = 5


class Lines(Struct, frozen=True, gc=False, tag="lines"):
    """Line ids, as the reader of the source handed them out, on a page where that is known."""

    ids: tuple[int, ...]
    page: int | None = None


class Times(Struct, frozen=True, gc=False, tag="times"):
    """A stretch of audio or video, each end written `HH:MM:SS.mmm`."""

    start: str | None = None
    end: str | None = None


class Chunk(Struct, frozen=True, gc=False, tag="chunk"):
    """A chunk of the source under the provider's own id."""

    id: str


class Opaque(Struct, frozen=True, gc=False, tag="opaque"):
    """A place only the provider can read, to be handed back unchanged."""

    value: str


Locator = Chars | Pages | Blocks | Lines | Times | Chunk | Opaque


class SourceRef(Struct, frozen=True, gc=False):
    """One source of a citation: where in it, and what it says there.

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
        """What to call it in front of people; never empty."""
        return self.title or self.filename or self.url or self.file_id or self.record_id or self.id


class Verification(Struct, frozen=True, gc=False):
    """The verdict on a citation. `reason` says why, `quote` what the source really says."""

    status: Status
    reason: str | None = None
    quote: str | None = None
    page: int | None = None
    native: Native | None = None


class Citation(Struct, frozen=True, gc=False):
    """An edge from a place in the answer to its sources. `ordinal` is the number printed for it."""

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
    """A stretch of the text that a person reads."""

    text: str
    native: Native | None = None


class Problem(Struct, frozen=True, gc=False):
    """A piece of a payload that was left out, and why. `path` is where it stood."""

    code: str
    path: str
    message: str


class Answer(Struct, frozen=True, gc=False):
    """The text a person reads, what it cites, and what is cited.

    Without parts the text is not known (some payloads carry citations alone); spans are then as the
    payload gave them, and their origin is `unknown`.
    """

    parts: tuple[Part, ...] = ()
    citations: tuple[Citation, ...] = ()
    sources: tuple[Source, ...] = ()
    id: str | None = None
    problems: tuple[Problem, ...] = ()
    native: Native | None = None

    @property
    def text(self) -> str:
        """The parts as one text, a blank line between them."""
        return "\n\n".join(part.text for part in self.parts)

    def covered(self, span: Span) -> str:
        """The characters of `span`."""
        return self.parts[span.part].text[span.start : span.end]

    def source(self, ref: SourceRef) -> Source:
        """The source that `ref` names. Raises `KeyError` when the answer has none of that id."""
        for source in self.sources:
            if source.id == ref.source_id:
                return source
        raise KeyError(ref.source_id)

    def _repr_html_(self) -> str:
        """What a notebook shows for it."""
        return notebook_html("answer", self)

    def bare(self) -> Answer:
        """The same answer with nothing kept of the payload it was read from, nor of its problems."""
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
    """Something that will not read back as it was: dropped, or made up because the dialect demands it.

    `field` is the dotted name of what is concerned (`refs.quote`, `source.title`, `claim`), `citation`
    or `source` the id of what it concerns; neither means the whole answer.
    """

    field: str
    reason: str
    citation: str | None = None
    source: str | None = None

    def __str__(self) -> str:
        of = self.citation or self.source
        return f"{self.field}{f' of {of}' if of else ''}: {self.reason}"


class Written(Struct, frozen=True, gc=False):
    """An answer in a dialect, and what that dialect could not say."""

    payload: Any
    losses: tuple[Loss, ...] = ()


class CitationStatus(NamedTuple):
    """The four published flags. `skipped` sets none; `partial` is not also `verified`."""

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
    """The flags of a verdict; no verdict yet is pending, and an altered quote is a miss."""
    return CitationStatus(is_pending=True) if verification is None else _STATUS[verification.status]
