"""Edit the text of an answer and move all its places along.

Joining parts, removing markers and inserting them shift everything after. These functions return the answer
with its claims, markers and points still on the same words.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable
from functools import cached_property
from itertools import count
from typing import Any, NamedTuple

from msgspec.structs import replace

from citewire.model import Answer, Citation, Part, Point, Span

__all__ = [
    "Sentences",
    "derive_claims",
    "find_marker_point",
    "insert_markers",
    "join_parts",
    "needs_no_space",
    "remove_markers",
    "split_refs",
]

PART_BREAK = "\n\n"


def split_refs(answer: Answer) -> Answer:
    """Split citations into one per source. The first keeps the id and the native data."""
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
    """Join the parts into one, with a blank line between them."""
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


class _EditedText:
    """A text after a list of ordered edits, which maps old offsets to new ones."""

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
        """Return the new start of a span that started at `at`: after text inserted there."""
        return self._move(at, bisect_right(self._starts, at))

    def end(self, at: int) -> int:
        """Return the new end of a span that ended at `at`: before text inserted there."""
        return self._move(at, bisect_left(self._starts, at))

    def _move(self, at: int, edits_before: int) -> int:
        if edits_before and at < (edit := self._edits[edits_before - 1]).end:
            return edit.start + self._shifts[edits_before - 1]
        return at + self._shifts[edits_before]

    def span(self, old: Span | None) -> Span | None:
        if old is None:
            return None
        end = self.end(old.end)
        # Text inserted at an empty span goes after it.
        return Span(old.part, min(self.start(old.start), end), end)


# Before these characters a marker needs no space after it, so the space in front belongs to the marker.
_EDGE = frozenset(" \t\n\r.,;:!?)]}\"'»”’…。，、")


def remove_markers(answer: Answer, spans: set[Span | None] | None = None) -> Answer:
    """Return the answer without the text of its markers, or of those in `spans` if given.

    One space before a marker is removed with it if the sentence stays intact. Each citation keeps the point
    where its marker was, unless it already has a point.
    """
    leaving = {citation.marker for citation in answer.citations} if spans is None else spans
    by_part: dict[int, list[Span]] = defaultdict(list)
    for span in leaving:
        if span is not None:
            by_part[span.part].append(span)
    edited = {
        part: _EditedText(answer.parts[part].text, _removals(answer.parts[part].text, out))
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
        at_edge = at_edge if end == next_start else needs_no_space(text, end)
        next_start = start
        if at_edge and start > floor and text[start - 1] == " ":
            start -= 1
        edits.append(_Edit(start, end, ""))
    return edits[::-1]


def _merge(ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Merge overlapping ranges, in order. Ranges that only touch stay separate."""
    merged: list[tuple[int, int]] = []
    for start, end in sorted(ranges):
        if merged and start < merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


def _without_marker(
    citation: Citation, leaving: set[Span | None], edited: dict[int, _EditedText]
) -> Citation:
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


def find_marker_point(citation: Citation) -> Point | None:
    """Return where a citation's marker belongs: at its point, else after its claim."""
    if citation.insert_at is not None:
        return citation.insert_at
    return citation.claim and Point(citation.claim.part, citation.claim.end)


def insert_markers(answer: Answer, wanted: dict[int, list[tuple[int, int, str]]], padded: bool) -> Answer:
    """Insert markers into the answer. `wanted` lists, by part, offset, citation number and marker text."""
    edited: dict[int, _EditedText] = {}
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
        edited[number] = _EditedText(text, edits)
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
    """Whether to add a space, which `remove_markers` removes again, so that the two are inverse."""
    return needs_no_space(text, at) and (padded or text[at - 1 : at] == " ")


def needs_no_space(text: str, at: int) -> bool:
    """Whether the text at `at` needs no space before it: the end, white space or punctuation."""
    return at == len(text) or text[at] in _EDGE


def _with_marker(citation: Citation, marker: Span | None, edited: dict[int, _EditedText]) -> Citation:
    changes: dict[str, Any] = {}
    if marker is not None:
        # The marker replaces the point.
        return replace(citation, marker=marker, insert_at=None, **_moved_claim(citation, edited))
    if citation.marker is not None and citation.marker.part in edited:
        changes["marker"] = edited[citation.marker.part].span(citation.marker)
    changes |= _moved_claim(citation, edited)
    point = citation.insert_at
    if point is not None and point.part in edited:
        changes["insert_at"] = Point(point.part, edited[point.part].end(point.at))
    return replace(citation, **changes) if changes else citation


def _moved_claim(citation: Citation, edited: dict[int, _EditedText]) -> dict[str, Any]:
    claim = citation.claim
    return {} if claim is None or claim.part not in edited else {"claim": edited[claim.part].span(claim)}


# How far back to look for a sentence. A marker does not support longer ones.
_SENTENCE = 1000
# A full stop after a single capital belongs to an abbreviation: U.S., J. Smith.
_SENTENCE_END = re.compile(
    r"(?:(?<![^A-Za-z][A-Z])\.|[!?…。！？])[\"'”’)\]*_]*\s+(?![a-z\s])|\n\s*|[。！？]\s*"
)
_LIST_MARK = re.compile(r"\s*(?:(?:[-*•+>#]+|\d{1,3}[.)])(?:\s+|\Z))?")


def derive_claims(answer: Answer, which: Callable[[Citation], bool]) -> Answer:
    """Give every citation in `which` that has only a point a claim with the origin `derived`."""
    sentences = [Sentences(part.text) for part in answer.parts]

    def derived(citation: Citation) -> Citation:
        point = citation.insert_at
        if point is None or citation.claim is not None or not which(citation):
            return citation
        claim = sentences[point.part].sentence_before(point)
        return replace(citation, claim=claim, span_origin="derived") if claim else citation

    return replace(answer, citations=tuple(map(derived, answer.citations)))


class Sentences:
    """The sentences of a text, split once for any number of points."""

    def __init__(self, text: str) -> None:
        self._text = text

    @cached_property
    def _starts(self) -> list[int]:
        return [0, *(boundary.end() for boundary in _SENTENCE_END.finditer(self._text))]

    def sentence_before(self, point: Point) -> Span | None:
        """Return the sentence that ends at `point`, without a list item's bullet or number."""
        text, low = self._text, max(0, point.at - _SENTENCE)
        end = low + len(text[low : point.at].rstrip())
        if end == low:
            return None
        start = max(low, self._starts[bisect_left(self._starts, end) - 1])
        mark = _LIST_MARK.match(text, start, end)
        start = mark.end() if mark else start
        return Span(point.part, start, end) if start < end else None
