"""An independent judge of `losses`.

Both answers are taken apart into edges (one per citation and source), and what the losses name is
blanked in both. What is left must be equal; and a loss is only justified if without it something differs.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from msgspec.structs import replace

from citewire.answer_edits import join_parts, remove_markers
from citewire.model import Answer, Citation, Loss, Source, SourceRef, Span

SOURCE_FIELDS = (
    "kind",
    "url",
    "title",
    "filename",
    "file_id",
    "record_id",
    "index",
    "domain",
    "snippet",
    "metadata",
)
CITATION_FIELDS = ("ordinal", "claim", "marker", "insert_at", "span_origin", "verification")
REF_FIELDS = ("locator", "quote", "anchor", "score")

Losses = tuple[Loss, ...]


def unnamed(before: Answer, after: Answer, losses: Losses) -> tuple[Any, Any] | None:
    """What differs although no loss names it: what is left of both answers; None where nothing does."""
    fields = {loss.field for loss in losses}
    before, after = before.bare(), after.bare()
    left = _without_refused(_without_markers(before, _own(before), losses), losses)
    right = _without_markers(after, _owners(_without_refused(before, losses), after, losses), losses)
    aside = _aside(left, before, fields, losses), _aside(right, after, fields, ())
    if aside[0] != aside[1]:
        return aside
    if "overlap" in fields:
        return _unlike(_coverage(left), _coverage(right)) if "claim" not in fields else None
    pointless = {citation.id for citation in before.citations if citation.insert_at is None}
    return _edges_differ(_edges(left), _edges(right), losses, pointless)


def unjustified(before: Answer, after: Answer, losses: Losses) -> list[Loss]:
    """Losses that name something that does read back as it was.

    `place` and `events` are remarks (a citation has no place in the text; events become a thread). Where
    claims overlap only coverage can be compared, and where citations were both split and reordered nobody
    can say which half is which.
    """
    fields = {loss.field for loss in losses}
    if "overlap" in fields or {"order", "refs"} <= fields:
        return []
    markers = {citation.id: citation.marker for citation in before.citations}
    named = {(loss.field, loss.citation) for loss in losses}

    def without(loss: Loss) -> Losses:
        """All but this one; markers that overlap are lost all at once."""
        if loss.field != "marker" or loss.citation is None or (span := markers[loss.citation]) is None:
            return tuple(other for other in losses if other is not loss)
        shared = {name for name, marker in markers.items() if marker and _overlap(marker, span)}
        return tuple(other for other in losses if other.field != "marker" or other.citation not in shared)

    def is_idle(loss: Loss) -> bool:
        if loss.field in ("id", "source.id"):
            return loss.reason.endswith(f" {loss.citation or loss.source}")
        if loss.field == "source":
            return len(before.sources) <= len(after.sources)
        if loss.field == "marker" and "text" in fields:
            # Where the text is not compared, another marker may stand in the very place of the old one.
            return False
        if loss.field == "order":
            # Citations that are alike in all else have still changed places if their ids have.
            return (
                not any(other.field == "id" for other in losses)
                and unnamed(before, after, without(loss)) is None
            )
        if loss.field == "insert_at" and {("refs", loss.citation), ("marker", loss.citation)} <= named:
            # Of a citation that was split, one half may have got a marker and the other a point.
            return False
        return loss.field not in ("place", "events") and unnamed(before, after, without(loss)) is None

    return [loss for loss in losses if is_idle(loss)]


def _overlap(one: Span, other: Span) -> bool:
    return one.part == other.part and one.start < other.end and other.start < one.end


def _unlike(left: Any, right: Any) -> tuple[Any, Any] | None:
    return None if left == right else (left, right)


def _aside(answer: Answer, whole: Answer, fields: set[str], losses: Losses) -> tuple[Any, ...]:
    """What is compared besides citations: the text, the id, and sources that nothing points to."""
    named = {loss.source for loss in losses if loss.field == "source"}
    used = {ref.source_id for citation in answer.citations for ref in citation.refs}
    unused = [source.id for source in whole.sources if source.id not in used | named]
    texts: Any = [None if "text" in fields else part.text for part in answer.parts]
    if "parts" in fields:
        texts = None if "text" in fields else answer.text
    return texts, None if "answer.id" in fields else answer.id, unused


def _own(answer: Answer) -> list[str | None]:
    return [citation.id for citation in answer.citations]


def _without_refused(answer: Answer, losses: Losses) -> Answer:
    """The answer without the citations that were left out, whole or for one of their sources."""
    gone = {(loss.citation, loss.source) for loss in losses if loss.field == "citation"}

    def kept(citation: Citation) -> Citation | None:
        refs = tuple(ref for ref in citation.refs if (citation.id, ref.source_id) not in gone)
        left_out = (citation.id, None) in gone or (citation.refs and not refs)
        return None if left_out else replace(citation, refs=refs)

    return replace(answer, citations=tuple(c for citation in answer.citations if (c := kept(citation))))


def _owners(before: Answer, after: Answer, losses: Losses) -> list[str | None]:
    """For each citation read back, the id of the one it was: by id where ids survive, else in order."""
    split = {loss.citation for loss in losses if loss.field == "refs"}
    slots: list[str | None] = []
    for citation in before.citations:
        slots += [citation.id] * (len(citation.refs) if citation.id in split else 1)
    if not any(loss.field == "order" for loss in losses):
        return (slots + [None] * len(after.citations))[: len(after.citations)]
    moved = {loss.citation: loss.reason.rpartition(" ")[2] for loss in losses if loss.field == "id"}
    by_new = {moved.get(owner, owner): owner for owner in slots if owner not in split}
    marked = {loss.citation for loss in losses if loss.field == "marker"}
    left = [owner for owner in slots if owner in split]

    def owner(citation: Citation) -> str | None:
        """Halves of split citations are known only by whether they can have had a marker."""
        if citation.id in by_new:
            return by_new[citation.id]
        fitting = [name for name in left if (name in marked) == (citation.marker is not None)] or left
        if fitting:
            left.remove(fitting[0])
        return fitting[0] if fitting else None

    return list(map(owner, after.citations))


def _without_markers(answer: Answer, owners: list[str | None], losses: Losses) -> Answer:
    if any(loss.field == "parts" for loss in losses):
        answer = join_parts(answer)
    marked = {loss.citation for loss in losses if loss.field == "marker"}
    cited = list(zip(answer.citations, owners, strict=False))
    spans = {citation.marker for citation, owner in cited if citation.marker and owner in marked}
    if not spans or not answer.parts:
        return answer
    without = remove_markers(answer, set(spans))
    # A citation that shares the span of a named marker has still lost its own.
    kept = [
        new if owner in marked or new.marker is not None else replace(new, marker=old.marker)
        for new, (old, owner) in zip(without.citations, cited, strict=False)
    ]
    return replace(without, citations=(*kept, *without.citations[len(kept) :]))


def _coverage(answer: Answer) -> set[Any]:
    """Which quotes support which characters, all else aside."""
    return {
        (claim.part, at, ref.quote)
        for citation in answer.citations
        if (claim := citation.claim)
        for ref in citation.refs
        for at in range(claim.start, claim.end)
    }


class Edge(NamedTuple):
    owner: str
    source: str | None
    values: dict[str, Any]

    def blanked(self, named: set[tuple[str, str | None]], owner: str, source: str | None) -> dict[str, Any]:
        """The values but for what is named of `owner` or `source`."""
        values = dict(self.values)
        for field in self.values:
            if (field, source if field.startswith("source.") else owner) in named:
                values[field] = None
        if ("point of marker", owner) in named:
            values["insert_at"] = None
        if ("refs", owner) in named:
            values["id"] = None
        return values


def _edges(answer: Answer) -> list[Edge]:
    sources = {source.id: source for source in answer.sources}
    numbers: dict[str, int] = {}
    edges: list[Edge] = []
    for group, citation in enumerate(answer.citations):
        for ref in citation.refs or (None,):
            values = _values(citation, ref, sources)
            values["#group"] = group
            values["#source"] = numbers.setdefault(ref.source_id, len(numbers)) if ref else None
            edges.append(Edge(citation.id, ref and ref.source_id, values))
    return edges


def _values(citation: Citation, ref: SourceRef | None, sources: dict[str, Source]) -> dict[str, Any]:
    source = sources[ref.source_id] if ref else None
    values: dict[str, Any] = {"id": citation.id, "source.id": source and source.id}
    values |= {field: getattr(citation, field) for field in CITATION_FIELDS}
    values |= {f"refs.{field}": getattr(ref, field) if ref else None for field in REF_FIELDS}
    return values | {f"source.{field}": getattr(source, field) if source else None for field in SOURCE_FIELDS}


def _edges_differ(
    left: list[Edge], right: list[Edge], losses: Losses, pointless: set[str]
) -> tuple[Any, Any] | None:
    """The edges that have no counterpart. Without `order` among the losses, counterparts are in order.

    Taking a marker out leaves a point; where there was none before, it is part of that loss.
    """
    named = {(loss.field, loss.citation or loss.source) for loss in losses}
    named |= {("source.id", name) for field, name in named if field == "source"}
    named |= {("point of marker", name) for field, name in named if field == "marker" and name in pointless}
    fields = {loss.field for loss in losses}
    dropped = {"#group"} if fields & {"refs", "order"} else set[str]()
    dropped |= {"#source"} if fields & {"source", "order"} else set()
    for edge in [*left, *right]:
        for pattern in dropped:
            edge.values[pattern] = None

    def same(ours: Edge, theirs: Edge) -> bool:
        about = (named, ours.owner, ours.source)
        return ours.blanked(*about) == theirs.blanked(*about)

    if len(left) == len(right) and _matches(left, right, same, any_order="order" in fields):
        return None
    return [edge.values for edge in left], [edge.values for edge in right]


def _matches(left: list[Edge], right: list[Edge], same: Any, *, any_order: bool) -> bool:
    if not left:
        return True
    for number, candidate in enumerate(right if any_order else right[:1]):
        rest = right[:number] + right[number + 1 :]
        if same(left[0], candidate) and _matches(left[1:], rest, same, any_order=any_order):
            return True
    return False
