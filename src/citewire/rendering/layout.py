"""Lay out an answer as runs of text and markers, which every format then writes in its own way.

A citation is shown at its insertion point, else after its claim, else in place of its marker in the text;
with none of these it is only listed. Numbers are in reading order. Each part is laid out in one forward pass
over sorted events.
"""

from __future__ import annotations

import unicodedata
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple

from msgspec import Struct

from citewire.model import Answer, Citation, SpanOrigin
from citewire.rendering.numbered_sources import (
    NO_SOURCE,
    CitationMark,
    NumberedSource,
    NumberedSources,
    make_mark,
    worst_mark,
)
from citewire.rendering.safety import clean_text

__all__ = ["Layout", "LayoutRun", "MarkRun", "TextRun", "join_runs", "lay_out"]

# From stated by the provider to unknown: text under several claims shows the least certain.
_CERTAINTY: dict[SpanOrigin, int] = {"exact": 0, "block": 1, "derived": 2, "repaired": 3, "unknown": 4}

# Claims may all overlap. At most this many, the innermost, are named at one place, so that the output grows
# linearly with the input and not with its square.
_MOST_NAMED = 16

# How far a marker is moved back over white space at the end of its claim; a longer run is not accidental, and
# scanning it once per claim could take long.
_MOST_BLANKS = 16


class TextRun(Struct, frozen=True, gc=False):
    """Clean text. Under claims, `cites` are their numbers and `origin` how their place is known."""

    text: str
    cites: tuple[int, ...] = ()
    origin: SpanOrigin | None = None


class MarkRun(Struct, frozen=True, gc=False):
    """Markers at one point, each number once."""

    marks: tuple[CitationMark, ...]


LayoutRun = TextRun | MarkRun


class Layout(Struct, frozen=True):
    """The parts of an answer as runs, and its numbered sources."""

    parts: tuple[tuple[LayoutRun, ...], ...]
    sources: tuple[NumberedSource, ...]


def join_runs(layout: Layout, show: Callable[[CitationMark], str] = str) -> str:
    """Return the running text with its markers, with a blank line between parts."""
    return "\n\n".join("".join(_strings(part, show)) for part in layout.parts)


def _strings(part: Iterable[LayoutRun], show: Callable[[CitationMark], str]) -> Iterator[str]:
    for run in part:
        match run:
            case TextRun(text):
                yield text
            case MarkRun(marks):
                yield from map(show, marks)


class _Cut(NamedTuple):
    """Text to remove. If it is only replaced by a number, the text around it stays unchanged."""

    start: int
    end: int
    replaced: bool


class _ShownCitation(NamedTuple):
    """A citation shown at `at`; `order` is its position in the answer."""

    at: int
    order: int
    citation: Citation


class _Claim(NamedTuple):
    start: int
    end: int
    order: int
    origin: SpanOrigin


@dataclass(slots=True)
class _Plan:
    """The changes to the text of one part."""

    text: str
    shown: list[_ShownCitation] = field(default_factory=list[_ShownCitation])
    cuts: list[_Cut] = field(default_factory=list[_Cut])
    claims: list[_Claim] = field(default_factory=list[_Claim])


def lay_out(answer: Answer) -> Layout:
    """Return the runs and numbered sources of `answer`."""
    plans = [_Plan(part.text) for part in answer.parts]
    cited = [numbered for numbered in enumerate(answer.citations) if _shows(numbered[1])]
    unplaced = [(order, citation) for order, citation in cited if not _place(order, citation, plans)]
    for plan in plans:
        _collapse(plan)
    shelf = NumberedSources(answer.sources)
    in_order = [(shown.order, shown.citation) for plan in plans for shown in plan.shown]
    numbers = {order: _numbers(citation, shelf) for order, citation in in_order + unplaced}
    for order, citation in unplaced:
        for number in numbers[order]:
            shelf.add_unplaced_mark(make_mark(number, citation.verification))
    parts = tuple(tuple(_RunBuilder(plan, numbers).runs()) for plan in plans)
    return Layout(parts, shelf.list_sources())


def _shows(citation: Citation) -> bool:
    """Return whether there is anything to show. A `[2]` without a source may be the number of another one."""
    return bool(citation.refs or citation.marker or citation.verification)


def _numbers(citation: Citation, shelf: NumberedSources) -> tuple[int, ...]:
    return tuple(dict.fromkeys(shelf.assign_number(ref) for ref in citation.refs))


def _place(order: int, citation: Citation, plans: Sequence[_Plan]) -> bool:
    """Add the citation to the plan of its part; False if it has no place in the text."""
    at: tuple[_Plan, int] | None = None
    claim, marker, point = citation.claim, citation.marker, citation.insert_at
    if claim and (plan := _plan(plans, claim.part, claim.start, claim.end)):
        end = _claim_end(plan.text, claim.start, claim.end)
        plan.claims.append(_Claim(claim.start, end, order, citation.span_origin))
        at = plan, end
    if point and (plan := _plan(plans, point.part, point.at, point.at)):
        at = plan, point.at
    if marker and (plan := _plan(plans, marker.part, marker.start, marker.end)):
        if marker.start < marker.end:
            plan.cuts.append(_Cut(marker.start, marker.end, replaced=at is None))
        at = at or (plan, marker.start)
    if at:
        at[0].shown.append(_ShownCitation(at[1], order, citation))
    return at is not None


def _plan(plans: Sequence[_Plan], part: int, start: int, end: int) -> _Plan | None:
    """Return the plan of `part`, if it has such a span: an answer without text may still have spans."""
    if 0 <= part < len(plans) and 0 <= start <= end <= len(plans[part].text):
        return plans[part]
    return None


def _claim_end(text: str, start: int, end: int) -> int:
    """Return the end of the claim's words: a marker after its last newline would open the next paragraph."""
    for at in range(end, max(start, end - _MOST_BLANKS), -1):
        if not text[at - 1].isspace():
            return at
    return end


def _collapse(plan: _Plan) -> None:
    """Merge the cuts, move citations inside a cut to its start, and sort."""
    plan.cuts = list(_merged(plan.cuts, plan.text))
    starts = [cut.start for cut in plan.cuts]
    for place, shown in enumerate(plan.shown):
        cut = bisect_right(starts, shown.at) - 1
        if cut >= 0 and shown.at < plan.cuts[cut].end:
            plan.shown[place] = shown._replace(at=starts[cut])
    plan.shown.sort(key=lambda shown: (shown.at, shown.order))


def _merged(cuts: list[_Cut], text: str) -> Iterator[_Cut]:
    """Yield cuts in order, merging those that overlap, or that touch with no number between them."""
    done = 0
    current: _Cut | None = None
    for cut in sorted(cuts):
        touches = current and cut.start == current.end and not (cut.replaced or current.replaced)
        if current and (cut.start < current.end or touches):
            current = _Cut(current.start, max(current.end, cut.end), current.replaced or cut.replaced)
            continue
        if current:
            yield (current := _with_space(current, text, done))
            done = current.end
        current = cut
    if current:
        yield _with_space(current, text, done)


def _with_space(cut: _Cut, text: str, done: int) -> _Cut:
    """Return the cut, with the blank before it if that would dangle. All before `done` is final."""
    before = cut.start - 1
    if cut.replaced or before < done or text[before] != " " or not _closes(text[cut.end : cut.end + 1]):
        return cut
    return _Cut(before, cut.end, replaced=False)


def _closes(char: str) -> bool:
    """Return whether no blank belongs before `char`: the end, white space, or non-opening punctuation."""
    if not char or char.isspace():
        return True
    category = unicodedata.category(char)
    return category[0] == "P" and category not in {"Ps", "Pi"}


class _Event:
    """The order of events at one offset: claims end before the markers that follow them, and new claims
    and cuts start after the markers. Plain numbers sort fast."""

    CUT_END, CLAIM_END, MARK, CLAIM_START, CUT_START = range(5)


class _RunBuilder:
    """Turns a plan into runs, in one pass over its events."""

    def __init__(self, plan: _Plan, numbers: dict[int, tuple[int, ...]]) -> None:
        self._plan = plan
        self._numbers = numbers
        self._claims: dict[int, SpanOrigin] = {}
        self._marks: dict[int, CitationMark] = {}
        self._hidden = False

    def runs(self) -> Iterator[LayoutRun]:
        at = 0
        for offset, event, place in sorted(self._events()):
            if offset > at:
                yield from self._words(at, offset)
                at = offset
            self._apply(event, place)
        yield from self._words(at, len(self._plan.text))
        yield from self._pending()

    def _events(self) -> Iterator[tuple[int, int, int]]:
        """Yield each event with its offset and its index in the plan's list."""
        for place, shown in enumerate(self._plan.shown):
            yield shown.at, _Event.MARK, place
        for place, cut in enumerate(self._plan.cuts):
            yield cut.start, _Event.CUT_START, place
            yield cut.end, _Event.CUT_END, place
        for place, claim in enumerate(self._plan.claims):
            if claim.start < claim.end and self._numbers[claim.order]:
                yield claim.start, _Event.CLAIM_START, place
                yield claim.end, _Event.CLAIM_END, place

    def _apply(self, event: int, place: int) -> None:
        match event:
            case _Event.MARK:
                self._mark(self._plan.shown[place])
            case _Event.CLAIM_START:
                claim = self._plan.claims[place]
                self._claims[claim.order] = claim.origin
            case _Event.CLAIM_END:
                del self._claims[self._plan.claims[place].order]
            case _:
                self._hidden = event == _Event.CUT_START

    def _mark(self, shown: _ShownCitation) -> None:
        for number in self._numbers[shown.order] or (NO_SOURCE,):
            new = make_mark(number, shown.citation.verification)
            self._marks[number] = worst_mark([self._marks.get(number, new), new])

    def _words(self, start: int, end: int) -> Iterator[LayoutRun]:
        text = "" if self._hidden else _clean_slice(self._plan.text, start, end)
        if text:
            yield from self._pending()
            yield TextRun(text, *self._named())

    def _pending(self) -> Iterator[MarkRun]:
        if self._marks:
            yield MarkRun(tuple(self._marks.values()))
            self._marks = {}

    def _named(self) -> tuple[tuple[int, ...], SpanOrigin | None]:
        """Return the numbers of the innermost claims, and the least certain of their origins."""
        if not self._claims:
            return (), None
        inner = list(islice(reversed(self._claims.items()), _MOST_NAMED))
        cites = islice((number for order, _ in inner for number in self._numbers[order]), _MOST_NAMED)
        return tuple(sorted(set(cites))), max((origin for _, origin in inner), key=_CERTAINTY.__getitem__)


def _clean_slice(text: str, start: int, end: int) -> str:
    """Return characters `start` to `end`, cleaned; a line end that the slice cuts in two stays one."""
    split = text[end - 1 : end + 1] == "\r\n"
    return clean_text(text[start : end - 1 if split else end])
