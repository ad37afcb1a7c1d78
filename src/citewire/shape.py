"""An answer made to fit a dialect with less room.

A writer takes an answer through the steps it needs (`join_parts`, `take_markers_out`, …), then `finish`
drops what its dialect has no place for. Every step names what will not read back as it was, so that
`losses` is complete by construction: what comes out of `finish` is what a reader will see.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable
from itertools import accumulate, count
from operator import is_not
from typing import Any, NamedTuple

from msgspec.structs import astuple, replace

from citewire.errors import ShapeError
from citewire.model import (
    Answer,
    Citation,
    Locator,
    Loss,
    Part,
    Point,
    Source,
    SourceKind,
    SourceRef,
    Span,
    SpanOrigin,
)

__all__ = ["Fitting", "Room", "join_parts", "split_refs", "take_markers_out", "with_claims"]

Room = frozenset[str]
"""What a dialect has a place for: `claim`, `marker`, `insert_at`, `ordinal`, `verification`, `answer.id`,
`refs.quote`, `refs.locator.pages`, `source.title`, …"""

_CITATION_FIELDS = ("ordinal", "claim", "marker", "insert_at", "verification")
_REF_FIELDS = ("quote", "anchor", "score")
_SOURCE_FIELDS = ("url", "title", "filename", "file_id", "record_id", "index", "domain", "snippet")
_PLACES = ("claim", "marker", "insert_at")

PART_BREAK = "\n\n"


class Fitting:
    """An answer on its way into a dialect, and what it has lost so far."""

    def __init__(self, answer: Answer, dialect: str) -> None:
        self.answer = answer
        self.dialect = dialect
        # By id; a step that changes a source puts the new one here.
        self.sources = {source.id: source for source in answer.sources}
        self.losses: list[Loss] = []
        self._named: set[tuple[str, str | None, str | None]] = set()
        # What citations were called at first: losses are about those.
        self._first_ids: dict[str | None, str] = {}
        self._split: set[str] = set()
        self._sizes: list[int] = []
        # Citations whose point is only where their marker was: losing it loses nothing more.
        self._points_of_markers: set[str | None] = set()

    def lose(
        self, field: str, reason: str, *, citation: str | None = None, source: str | None = None
    ) -> None:
        """Name something that will not read back as it was; the first reason is the one that counts."""
        citation = self._first_ids.get(citation, citation)
        name = (field, citation, source)
        if name not in self._named and not (field == "insert_at" and citation in self._points_of_markers):
            self._named.add(name)
            self.losses.append(Loss(field, reason, citation, source))

    def map_citations(self, change: Callable[[Citation], Citation | None]) -> None:
        """Every citation changed, or left out where `change` gives None."""
        changed = tuple(new for old in self.answer.citations if (new := change(old)) is not None)
        self.answer = replace(self.answer, citations=changed)

    def cited_sources(self) -> list[Source]:
        """The sources that citations point to."""
        used = {ref.source_id for citation in self.answer.citations for ref in citation.refs}
        return [source for source in self.sources.values() if source.id in used]

    def need_text(self) -> None:
        """Where the text is not known an empty one stands in, and places in it are lost."""
        if not self.answer.parts:
            self.map_citations(self._without_places)
            self.lose("parts", "the text is not known: an empty one stands in")
            self.answer = replace(self.answer, parts=(Part(""),))

    def _without_places(self, citation: Citation) -> Citation:
        for field in _PLACES:
            if getattr(citation, field) is not None:
                self.lose(field, "the text of the answer is not known", citation=citation.id)
        return replace(citation, claim=None, marker=None, insert_at=None)

    def join_parts(self) -> None:
        """One text instead of several parts."""
        if len(self.answer.parts) != 1:
            if len(self.answer.parts) > 1:
                self.lose("parts", f"{len(self.answer.parts)} parts become one text")
            self.answer = join_parts(self.answer)

    def need_refs(self) -> None:
        """A citation that points nowhere is left out."""
        self.map_citations(self._if_it_points)

    def _if_it_points(self, citation: Citation) -> Citation | None:
        if citation.refs:
            return citation
        self.lose("citation", "points to no source", citation=citation.id)
        return None

    def refuse_sources(self, why: Callable[[Citation, Source], str | None]) -> None:
        """Citations lose the sources that `why` has a reason against, and go when none is left."""

        def fitted(citation: Citation) -> Citation | None:
            kept: list[SourceRef] = []
            for ref in citation.refs:
                reason = why(citation, self.sources[ref.source_id])
                if reason is None:
                    kept.append(ref)
                else:
                    self.lose("citation", reason, citation=citation.id, source=ref.source_id)
            if len(kept) == len(citation.refs):
                return citation
            return replace(citation, refs=tuple(kept)) if kept else None

        self.map_citations(fitted)

    def split_refs(self) -> None:
        """One citation per source."""
        split = [citation for citation in self.answer.citations if len(citation.refs) > 1]
        for citation in split:
            self.lose("refs", f"{len(citation.refs)} sources become a citation each", citation=citation.id)
        if split:
            before = {citation.id for citation in self.answer.citations}
            self.answer = split_refs(self.answer)
            owner = ""
            for citation in self.answer.citations:
                if citation.id in before:
                    owner = citation.id
                else:
                    self._first_ids[citation.id] = owner
            self._split |= {citation.id for citation in split}

    def take_markers_out(self, stays: Callable[[Citation, str], bool] | None = None) -> None:
        """Markers leave the text; a point stays where each was. `stays` says which may remain."""
        parts = self.answer.parts
        leaving = [
            citation
            for citation in self.answer.citations
            if citation.marker and not (stays and stays(citation, self.answer.covered(citation.marker)))
        ]
        if not leaving or not parts:
            return
        spans = {citation.marker for citation in leaving}
        for citation in self.answer.citations:
            if citation.marker in spans:
                self.lose("marker", "taken out of the text", citation=citation.id)
                if citation.insert_at is None:
                    self._points_of_markers.add(self._first_ids.get(citation.id, citation.id))
        self.answer = take_markers_out(self.answer, spans)

    def derive_claims(self, which: Callable[[Citation], bool]) -> None:
        """A claim for every citation in `which` that has only a point: the sentence before it."""
        if all(citation.claim or not citation.insert_at for citation in self.answer.citations):
            return

        def derived(old: Citation, new: Citation) -> Citation:
            if new is old:
                return old
            self.lose("claim", "derived: the sentence before the marker", citation=old.id)
            # The dialect cannot say that it is derived; the loss does.
            return replace(new, span_origin=old.span_origin)

        claimed = with_claims(self.answer, which).citations
        self.answer = replace(self.answer, citations=tuple(map(derived, self.answer.citations, claimed)))

    def markers_become_claims(self) -> None:
        """For dialects without markers: they leave the text, and the sentence before becomes the claim."""
        marked = {citation.id for citation in self.answer.citations if citation.marker}
        self.take_markers_out()
        self.derive_claims(lambda citation: citation.id in marked)

    def insert_markers(self, label: Callable[[Citation], str | None], *, padded: bool = False) -> None:
        """A marker in the text for every citation that has a place but none; `label` may refuse."""
        wanted: dict[int, list[tuple[int, int, str]]] = defaultdict(list)
        for number, citation in enumerate(self.answer.citations):
            point = place_for_marker(citation)
            text = label(citation) if point and citation.marker is None else None
            if point and text is not None:
                wanted[point.part].append((point.at, number, text))
                self.lose("marker", "written into the text", citation=citation.id)
        if wanted:
            self.answer = _insert_markers(self.answer, wanted, padded)

    def finish(
        self,
        room: Room,
        *,
        kind: Callable[[Source], SourceKind],
        origin: Callable[[Citation], SpanOrigin],
        keep_ids: bool = False,
        group: Callable[[Answer], list[list[Citation]]] | None = None,
        why: str = "",
    ) -> Answer:
        """The answer as a reader of the dialect will see it.

        `kind` and `origin` are what that reader will conclude about a source or a place; `group` gives
        the citations in the order in which it will find them, and `why` they are in that order.
        """
        self._drop_from_citations(room, origin)
        self._drop_from_sources(room, kind)
        if group is not None:
            self._regroup(group(self.answer), why)
        self._merge_sources()
        if not keep_ids:
            self.rename([f"c{number}" for number in range(1, len(self.answer.citations) + 1)])
        if "answer.id" not in room and self.answer.id is not None:
            self.lose("answer.id", self._no_place)
            self.answer = replace(self.answer, id=None)
        return self.answer

    def _regroup(self, groups: list[list[Citation]], why: str) -> None:
        order = tuple(citation for group in groups for citation in group)
        if any(map(is_not, order, self.answer.citations)):
            self.lose("order", why)
        self.answer = replace(self.answer, citations=order)
        self._sizes = [len(group) for group in groups]

    def groups(self) -> list[tuple[Citation, ...]]:
        """The finished citations in the groups that `finish` was given."""
        ends = list(accumulate(self._sizes))
        return [self.answer.citations[end - size : end] for end, size in zip(ends, self._sizes, strict=True)]

    @property
    def _no_place(self) -> str:
        return f"{self.dialect} has no place for it"

    def _drop_from_citations(self, room: Room, origin: Callable[[Citation], SpanOrigin]) -> None:
        fields = [field for field in _CITATION_FIELDS if field not in room]
        ref_fields = [field for field in _REF_FIELDS if f"refs.{field}" not in room]

        def fitted(citation: Citation) -> Citation:
            changes: dict[str, Any] = {}
            for field in fields:
                if getattr(citation, field) is not None:
                    self.lose(field, self._no_place, citation=citation.id)
                    changes[field] = None
            refs = tuple(self._fit_ref(ref, ref_fields, room, citation.id) for ref in citation.refs)
            if any(map(is_not, refs, citation.refs)):
                changes["refs"] = refs
            fit = replace(citation, **changes) if changes else citation
            seen_as = origin(fit)
            if seen_as == fit.span_origin:
                return fit
            self.lose("span_origin", f"{fit.span_origin} will read as {seen_as}", citation=citation.id)
            return replace(fit, span_origin=seen_as)

        self.map_citations(fitted)

    def _fit_ref(self, ref: SourceRef, fields: list[str], room: Room, citation: str) -> SourceRef:
        changes: dict[str, Any] = {}
        for field in fields:
            if getattr(ref, field) is not None:
                self.lose(f"refs.{field}", self._no_place, citation=citation)
                changes[field] = None
        if ref.locator is not None and f"refs.locator.{locator_kind(ref.locator)}" not in room:
            reason = f"{self.dialect} has no place for {locator_kind(ref.locator)}"
            self.lose("refs.locator", reason, citation=citation)
            changes["locator"] = None
        return replace(ref, **changes) if changes else ref

    def _drop_from_sources(self, room: Room, kind: Callable[[Source], SourceKind]) -> None:
        fields = [field for field in _SOURCE_FIELDS if f"source.{field}" not in room]
        used = {ref.source_id for citation in self.answer.citations for ref in citation.refs}
        sources: list[Source] = []
        for source in self.sources.values():
            if source.id in used:
                sources.append(self._fit_source(source, fields, room, kind))
            else:
                self.lose("source", "no citation points to it", source=source.id)
        self.answer = replace(self.answer, sources=tuple(sources))

    def _fit_source(
        self, source: Source, fields: list[str], room: Room, kind: Callable[[Source], SourceKind]
    ) -> Source:
        changes: dict[str, Any] = {}
        for field in fields:
            if getattr(source, field) is not None:
                self.lose(f"source.{field}", self._no_place, source=source.id)
                changes[field] = None
        if source.metadata and "source.metadata" not in room:
            self.lose("source.metadata", self._no_place, source=source.id)
            changes["metadata"] = {}
        fit = replace(source, **changes) if changes else source
        seen_as = kind(fit)
        if seen_as == fit.kind:
            return fit
        self.lose("source.kind", f"{fit.kind} will read as {seen_as}", source=source.id)
        return replace(fit, kind=seen_as)

    def _merge_sources(self) -> None:
        by_id = {source.id: source for source in self.answer.sources}
        names: dict[str, str] = {}
        merged: list[Source] = []
        seen: dict[Any, str] = {}
        for citation in self.answer.citations:
            for ref in citation.refs:
                if ref.source_id in names:
                    continue
                source = by_id[ref.source_id]
                identity = source_identity(source)
                name = seen.get(identity)
                if name is None:
                    name = seen[identity] = f"s{len(merged) + 1}"
                    merged.append(source if source.id == name else replace(source, id=name))
                    if name != source.id:
                        self.lose("source.id", f"will read as {name}", source=source.id)
                else:
                    self.lose("source", f"cannot be told from {name}", source=source.id)
                names[source.id] = name
        if any(old != new for old, new in names.items()):
            self.map_citations(lambda citation: _renamed_refs(citation, names))
        self.answer = replace(self.answer, sources=tuple(merged))

    def rename(self, names: list[str]) -> None:
        """The citations under new ids, in order; losses keep speaking of the old ones."""
        first_ids: dict[str | None, str] = {}
        renamed: list[Citation] = []
        for citation, name in zip(self.answer.citations, names, strict=True):
            first = self._first_ids.get(citation.id, citation.id)
            if name != first and first not in self._split:
                self.losses.append(Loss("id", f"will read as {name}", first))
            first_ids[name] = first
            renamed.append(citation if citation.id == name else replace(citation, id=name))
        self._first_ids = first_ids
        self.answer = replace(self.answer, citations=tuple(renamed))


def locator_kind(locator: Locator) -> str:
    """`chars`, `pages`, … as in `Room`."""
    return type(locator).__name__.lower()


def source_identity(source: Source) -> tuple[Any, ...]:
    """What makes a source the same as another: everything but its id and what was kept of it."""
    values = astuple(source)[1:-1]
    return (*values[:-1], hashable(values[-1]))


def hashable(metadata: dict[str, Any] | None) -> str | None:
    """Metadata as something to compare by. Raises `ShapeError` for what has no end."""
    try:
        return repr(metadata) if metadata else None
    except RecursionError as exc:
        raise ShapeError("nested too deeply", ".metadata") from exc


def _renamed_refs(citation: Citation, names: dict[str, str]) -> Citation:
    refs = tuple(
        ref if names[ref.source_id] == ref.source_id else replace(ref, source_id=names[ref.source_id])
        for ref in citation.refs
    )
    return replace(citation, refs=refs) if any(map(is_not, refs, citation.refs)) else citation


def split_refs(answer: Answer) -> Answer:
    """The answer with one citation per source; the first keeps the id and what was kept of it."""
    citations: list[Citation] = []
    taken = {citation.id for citation in answer.citations}
    for citation in answer.citations:
        citations.append(replace(citation, refs=citation.refs[:1]) if len(citation.refs) > 1 else citation)
        numbers = count(2)
        for ref in citation.refs[1:]:
            name = next(name for number in numbers if (name := f"{citation.id}.{number}") not in taken)
            taken.add(name)
            citations.append(replace(citation, id=name, refs=(ref,), native=None))
    return replace(answer, citations=tuple(citations))


def join_parts(answer: Answer) -> Answer:
    """The answer as one part, a blank line where parts met."""
    if len(answer.parts) < 2:
        return answer
    starts: list[int] = []
    at = 0
    for part in answer.parts:
        starts.append(at)
        at += len(part.text) + len(PART_BREAK)
    moved = tuple(_joined(citation, starts) for citation in answer.citations)
    return replace(answer, parts=(Part(answer.text),), citations=moved)


def _joined(citation: Citation, starts: list[int]) -> Citation:
    def span(old: Span | None) -> Span | None:
        return old and Span(0, old.start + starts[old.part], old.end + starts[old.part])

    point = citation.insert_at
    return replace(
        citation,
        claim=span(citation.claim),
        marker=span(citation.marker),
        insert_at=point and Point(0, point.at + starts[point.part]),
    )


class _Edit(NamedTuple):
    start: int
    end: int
    text: str


class _Edited:
    """A text after a list of edits in order, and where its old offsets went."""

    def __init__(self, text: str, edits: list[_Edit]) -> None:
        self._edits = edits
        self._starts = [edit.start for edit in edits]
        self._shifts = [0]
        pieces: list[str] = []
        at = 0
        for edit in edits:
            pieces += (text[at : edit.start], edit.text)
            at = edit.end
            self._shifts.append(self._shifts[-1] + len(edit.text) - (edit.end - edit.start))
        pieces.append(text[at:])
        self.text = "".join(pieces)

    def start(self, at: int) -> int:
        """Where a span that started at `at` starts: behind what was put in there."""
        return self._move(at, bisect_right(self._starts, at))

    def end(self, at: int) -> int:
        """Where a span that ended at `at` ends: before what was put in there."""
        return self._move(at, bisect_left(self._starts, at))

    def _move(self, at: int, edits_before: int) -> int:
        if edits_before and at < (edit := self._edits[edits_before - 1]).end:
            return edit.start + self._shifts[edits_before - 1]
        return at + self._shifts[edits_before]

    def span(self, old: Span | None) -> Span | None:
        if old is None:
            return None
        end = self.end(old.end)
        # What is put in at an empty span stands behind it.
        return Span(old.part, min(self.start(old.start), end), end)


# After these a marker needs no room, so the space in front of it belongs to it.
_EDGE = frozenset(" \t\n\r.,;:!?)]}\"'»”’…。，、")


def take_markers_out(answer: Answer, spans: set[Span | None] | None = None) -> Answer:
    """The answer without the text of its markers (of `spans` only, when given).

    One space before a marker goes with it where that leaves the sentence whole. Each citation keeps
    the point where its marker was, unless it has one.
    """
    leaving = {citation.marker for citation in answer.citations} if spans is None else spans
    by_part: dict[int, list[Span]] = defaultdict(list)
    for span in leaving:
        if span is not None:
            by_part[span.part].append(span)
    edited = {
        part: _Edited(answer.parts[part].text, _removals(answer.parts[part].text, out))
        for part, out in by_part.items()
    }
    parts = tuple(
        replace(part, text=edited[number].text) if number in edited else part
        for number, part in enumerate(answer.parts)
    )
    moved = tuple(_without_marker(citation, leaving, edited) for citation in answer.citations)
    return replace(answer, parts=parts, citations=moved)


def _removals(text: str, spans: list[Span]) -> list[_Edit]:
    merged = _merge((span.start, span.end) for span in spans)
    edits: list[_Edit] = []
    at_edge, next_start = False, -1
    for number in range(len(merged) - 1, -1, -1):
        start, end = merged[number]
        floor = merged[number - 1][1] if number else 0
        at_edge = at_edge if end == next_start else is_edge(text, end)
        next_start = start
        if at_edge and start > floor and text[start - 1] == " ":
            start -= 1
        edits.append(_Edit(start, end, ""))
    return edits[::-1]


def _merge(ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Overlapping ranges as one, in order; ranges that only touch stay apart."""
    merged: list[tuple[int, int]] = []
    for start, end in sorted(ranges):
        if merged and start < merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


def _without_marker(citation: Citation, leaving: set[Span | None], edited: dict[int, _Edited]) -> Citation:
    changes: dict[str, Any] = {}
    marker, point, claim = citation.marker, citation.insert_at, citation.claim
    if marker is not None and marker in leaving:
        changes["marker"] = None
        if point is None:
            changes["insert_at"] = Point(marker.part, edited[marker.part].end(marker.end))
    elif marker is not None and marker.part in edited:
        changes["marker"] = edited[marker.part].span(marker)
    if claim is not None and claim.part in edited:
        changes["claim"] = edited[claim.part].span(claim)
    if point is not None and point.part in edited:
        changes["insert_at"] = Point(point.part, edited[point.part].end(point.at))
    return replace(citation, **changes) if changes else citation


def place_for_marker(citation: Citation) -> Point | None:
    """Where a citation's marker belongs: at its point, else behind its claim."""
    if citation.insert_at is not None:
        return citation.insert_at
    return citation.claim and Point(citation.claim.part, citation.claim.end)


def _insert_markers(answer: Answer, wanted: dict[int, list[tuple[int, int, str]]], padded: bool) -> Answer:
    edited: dict[int, _Edited] = {}
    markers: dict[int, Span] = {}
    for number, places in wanted.items():
        text = answer.parts[number].text
        edits: list[_Edit] = []
        shift = 0
        for at, citation, marker in sorted(places):
            pad = " " if _needs_pad(text, at, padded) else ""
            edits.append(_Edit(at, at, pad + marker))
            start = at + shift + len(pad)
            markers[citation] = Span(number, start, start + len(marker))
            shift += len(pad) + len(marker)
        edited[number] = _Edited(text, edits)
    parts = tuple(
        replace(part, text=edited[number].text) if number in edited else part
        for number, part in enumerate(answer.parts)
    )
    citations = tuple(
        _with_marker(citation, markers.get(number), edited)
        for number, citation in enumerate(answer.citations)
    )
    return replace(answer, parts=parts, citations=citations)


def _needs_pad(text: str, at: int, padded: bool) -> bool:
    """A space that `take_markers_out` will take away again, so that the two undo each other."""
    return is_edge(text, at) and (padded or text[at - 1 : at] == " ")


def is_edge(text: str, at: int) -> bool:
    """Whether what stands at `at` needs no room in front of it: the end, white space, punctuation."""
    return at == len(text) or text[at] in _EDGE


def _with_marker(citation: Citation, marker: Span | None, edited: dict[int, _Edited]) -> Citation:
    changes: dict[str, Any] = {}
    if marker is not None:
        # The point has become the marker.
        return replace(citation, marker=marker, insert_at=None, **_moved_claim(citation, edited))
    if citation.marker is not None and citation.marker.part in edited:
        changes["marker"] = edited[citation.marker.part].span(citation.marker)
    changes |= _moved_claim(citation, edited)
    point = citation.insert_at
    if point is not None and point.part in edited:
        changes["insert_at"] = Point(point.part, edited[point.part].end(point.at))
    return replace(citation, **changes) if changes else citation


def _moved_claim(citation: Citation, edited: dict[int, _Edited]) -> dict[str, Any]:
    claim = citation.claim
    return {} if claim is None or claim.part not in edited else {"claim": edited[claim.part].span(claim)}


# A sentence is looked for this far back: longer ones are not what a marker supports.
_SENTENCE = 1000
# A full stop behind a single capital is one of an abbreviation: U.S., J. Smith.
_SENTENCE_END = re.compile(
    r"(?:(?<![^A-Za-z][A-Z])\.|[!?…。！？])[\"'”’)\]*_]*\s+(?![a-z\s])|\n\s*|[。！？]\s*"
)
_LIST_MARK = re.compile(r"\s*(?:(?:[-*•+>#]+|\d{1,3}[.)])(?:\s+|\Z))?")


def with_claims(answer: Answer, which: Callable[[Citation], bool]) -> Answer:
    """The answer with a claim, origin `derived`, for every citation in `which` that has only a point."""

    def derived(citation: Citation) -> Citation:
        point = citation.insert_at
        if point is None or citation.claim is not None or not which(citation):
            return citation
        claim = sentence_before(answer.parts[point.part].text, point)
        return replace(citation, claim=claim, span_origin="derived") if claim else citation

    return replace(answer, citations=tuple(map(derived, answer.citations)))


def sentence_before(text: str, point: Point) -> Span | None:
    """The sentence that ends at `point`, without the mark of a list item."""
    low = max(0, point.at - _SENTENCE)
    end = low + len(text[low : point.at].rstrip())
    start = low
    for boundary in _SENTENCE_END.finditer(text, low, end):
        if boundary.end() < end:
            start = boundary.end()
    mark = _LIST_MARK.match(text, start, end)
    start = mark.end() if mark else start
    return Span(point.part, start, end) if start < end else None
