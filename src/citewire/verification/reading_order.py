"""Find quotes that were read in another order than the document's text has.

Every extractor orders text in its own way. So a page is split into segments, which are lines without wide
gaps, and a quote may continue from the end of one to the start of another, if a reader's eye may go there
too: to the next segment of the text, to the one directly below with nothing in between, or from the foot of a
column to the head of the next. No part of a paragraph can be skipped on such a path. No path continues to the
right: that would join the cells of a table, but also unrelated lines of two columns.

Segments are compared by letters and digits here, which only finds candidates; the resulting text is judged
like any other.
"""

from __future__ import annotations

import unicodedata
from bisect import bisect_right
from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from citewire.documents.document import Aside, Boxes, Document
from citewire.verification.bidi import reverse_rtl_lines
from citewire.verification.match import SearchableText
from citewire.verification.policy import Finding, find_and_judge
from citewire.verification.quotes import parse_quote
from citewire.verification.text_views import canonical_view

__all__ = ["ReadingOrderSearch"]

# A gap between two characters wider than this, in line heights, separates columns or cells.
_WIDE = 1.5
# Characters whose centres are further apart than this are on different lines.
_OFF_LINE = 0.6
# Type smaller than this relative to a segment's is a note at the foot of a column.
_SMALL = 0.92
# The head of a column starts at most this far from its left edge: an indent.
_INDENT = 3.0
# Pages to search: those with this share of the quote's grams, and at most this many.
_SHARE, _PAGES = 0.3, 3
# Quotes shorter or longer, and pages with more segments, are not searched this way.
_FEWEST_LETTERS, _MOST_LETTERS = 12, 2_000
_MOST_SEGMENTS = _MOST_STEPS = 5_000
# Asides that may interrupt the text.
_APART = frozenset({"header", "footer", "deleted", "comment"})

_Ints = NDArray[np.int64]
_Bools = NDArray[np.bool_]
# A segment, and how many letters of the quote are matched at its end.
_QuoteProgress = tuple[int, int]


class ReadingOrderSearch:
    """Searches a document in any order that a reader may take."""

    def __init__(self, document: Document, source: SearchableText) -> None:
        self._document = document
        self._source = source

    def find_quote(self, quote: str) -> list[Finding]:
        """Find `quote` read in another order, word for word."""
        return list(self._by_columns(quote)) or list(self._by_mirror(quote))

    def _by_columns(self, quote: str) -> Iterator[Finding]:
        pieces = parse_quote(quote).pieces
        if len(pieces) != 1 or self._segments is None:
            return
        words = canonical_view(pieces[0].text)
        letters = words.letters_only().text
        if not _FEWEST_LETTERS <= len(letters) <= _MOST_LETTERS:
            return
        for page in self._likely(words.text):
            way = _PageSegments(self._segments, self._source.letters.text, page).find_path(letters)
            if way:
                yield from _placed(quote, *self._text(self._segments, way))

    def _by_mirror(self, quote: str) -> Iterator[Finding]:
        if reverse_rtl_lines(quote) and self._mirrored:
            yield from _placed(quote, *self._mirrored)

    @cached_property
    def _segments(self) -> _Segments | None:
        boxes = self._document.boxes
        if boxes is None or np.isnan(boxes[:, 0]).all():
            return None
        return _segments(self._document, boxes, self._source)

    @cached_property
    def _mirrored(self) -> tuple[SearchableText, _Ints] | None:
        found = reverse_rtl_lines(self._document.text)
        return found and (SearchableText(found[0]), found[1])

    def _likely(self, words: str) -> list[int]:
        """Return the pages that contain most of the quote's grams."""
        pages = self._document.pages
        edges = np.searchsorted(self._source.view.starts, [page.start for page in pages])
        shares = self._source.index.gram_shares(words, edges).tolist()
        likely = [page for page, share in enumerate(shares) if share >= _SHARE]
        return sorted(likely, key=lambda page: -shares[page])[:_PAGES]

    def _text(self, segments: _Segments, way: list[int]) -> tuple[SearchableText, _Ints]:
        """Return the text of segments, and the document offset of each of its characters."""
        text, places = "", list[int]()
        for segment, after in zip(way, [*way[1:], -1], strict=True):
            start, end = int(segments.starts[segment]), int(segments.ends[segment])
            if after == segment + 1:
                end = int(segments.starts[after])
            # A line end gets the offset of the line's last character.
            text += self._document.text[start:end] + "\n"
            places += [*range(start, end), end - 1]
        return SearchableText(text), np.array(places)


def _placed(quote: str, source: SearchableText, places: _Ints) -> Iterator[Finding]:
    """Judge `quote` in a text, and translate its ranges to document offsets."""
    for found in find_and_judge(quote, source):
        if found.status not in ("verified", "partial"):
            continue
        there = np.unique(np.concatenate([places[start:end] for start, end in found.ranges]))
        runs = np.split(there, np.flatnonzero(np.diff(there) > 1) + 1)
        yield replace(
            found,
            start=int(there[0]),
            end=int(there[-1]) + 1,
            edits=(*found.edits, "reading order"),
            ranges=tuple((int(run[0]), int(run[-1]) + 1) for run in runs),
        )


class _Segments(NamedTuple):
    """Lines without wide gaps: ranges of the text, of its letters, and boxes (left, top, right, bottom)."""

    starts: _Ints
    ends: _Ints
    boxes: Boxes
    pages: _Ints
    apart: _Bools
    upright: _Bools
    first_letters: _Ints
    last_letters: _Ints


def _segments(document: Document, all_boxes: Boxes, source: SearchableText) -> _Segments:
    inked = np.flatnonzero(~np.isnan(all_boxes[:, 0]))
    boxes = all_boxes[inked]
    left, top, right, bottom = boxes.T
    height = np.maximum((bottom - top)[1:], (bottom - top)[:-1])
    middle = (top + bottom) / 2
    gap = np.maximum(left[1:] - right[:-1], left[:-1] - right[1:])
    line = np.searchsorted(document.lines, inked, "right")
    parts = (gap > _WIDE * height) | (np.abs(np.diff(middle)) > _OFF_LINE * height) | (np.diff(line) > 0)
    firsts = np.concatenate(([0], np.flatnonzero(parts) + 1))
    starts, ends = inked[firsts], inked[np.append(firsts[1:], len(inked)) - 1] + 1
    corners = np.minimum.reduceat(boxes[:, :2], firsts), np.maximum.reduceat(boxes[:, 2:], firsts)
    letters = source.view.starts[source.letters.starts]
    asides = [aside for aside in document.asides if aside.kind in _APART]
    return _Segments(
        starts,
        ends,
        np.concatenate(corners, axis=1),
        np.searchsorted([page.start for page in document.pages], starts, "right") - 1,
        np.array([_is_in(asides, start) for start in starts.tolist()], np.bool_),
        _upright(document.text, inked, left, middle, line)[firsts],
        np.searchsorted(letters, starts),
        np.searchsorted(letters, ends),
    )


def _upright(text: str, inked: _Ints, left: Boxes, middle: Boxes, line: _Ints) -> _Bools:
    """Return, for each character, whether its line is horizontal and not upside down."""
    firsts = np.flatnonzero(np.diff(line, prepend=-1))
    lasts = np.append(firsts[1:], len(line)) - 1
    leftwards = [unicodedata.bidirectional(text[at]) in ("R", "AL") for at in inked[firsts].tolist()]
    across = np.where(leftwards, left[firsts] - left[lasts], left[lasts] - left[firsts])
    level = (across > np.abs(middle[lasts] - middle[firsts])) | (firsts == lasts)
    return np.repeat(level, lasts - firsts + 1)


def _is_in(asides: list[Aside], offset: int) -> bool:
    at = bisect_right(asides, offset, key=lambda aside: aside.start) - 1
    return at >= 0 and offset < asides[at].end


class _PageSegments:
    """The segments of a page and the next one, and the paths between them."""

    def __init__(self, segments: _Segments, letters: str, page: int) -> None:
        first, last = np.searchsorted(segments.pages, (page, page + 2)).tolist()
        last = min(last, first + _MOST_SEGMENTS)
        self._offset = first
        self._apart = segments.apart[first:last]
        self._upright = segments.upright[first:last]
        self._pages = segments.pages[first:last]
        self._left, self._top, self._right, self._bottom = segments.boxes[first:last].T
        self._middle = (self._top + self._bottom) / 2
        self._height = self._bottom - self._top
        edges = segments.first_letters[first:last].tolist(), segments.last_letters[first:last].tolist()
        self._letters = [letters[start:end] for start, end in zip(*edges, strict=True)]

    def find_path(self, words: str) -> list[int]:
        """Return segments that contain `words`, the first and last in part; empty if there is no path."""
        open_ends = [(at, said) for at, text in enumerate(self._letters) for said in _endings(text, words)]
        came: dict[_QuoteProgress, _QuoteProgress | None] = dict.fromkeys(open_ends)
        while open_ends and len(came) < _MOST_STEPS:
            here = open_ends.pop()
            for there in self._after(here, words):
                if there not in came:
                    came[there] = here
                    if there[1] == len(words):
                        return self._way(there, came)
                    open_ends.append(there)
        return []

    def _way(self, last: _QuoteProgress, came: dict[_QuoteProgress, _QuoteProgress | None]) -> list[int]:
        way: list[int] = []
        here: _QuoteProgress | None = last
        while here is not None:
            way.append(here[0] + self._offset)
            here = came[here]
        return way[::-1]

    def _after(self, here: _QuoteProgress, words: str) -> Iterator[_QuoteProgress]:
        """Yield the segments that continue the quote, the likeliest last."""
        at, said = here
        for there in reversed(self._next(at)):
            text = self._letters[there]
            if words.startswith(text, said):
                yield there, said + len(text)
            elif text.startswith(words[said:]):
                yield there, len(words)

    def _next(self, at: int) -> list[int]:
        found = [at + 1] if at + 1 < len(self._letters) and not self._goes_by_row(at) else []
        if self._upright[at]:
            found += [there for there in (*self._below(at), *self._next_head(at)) if self._upright[there]]
        return found

    def _goes_by_row(self, at: int) -> bool:
        """Return whether the text continues to the right, or back to the left and down, as in a table.

        A quote that read a table both by row and by column could leave out anything.
        """
        return bool(
            self._pages[at] == self._pages[at + 1]
            and self._bottom[at + 1] > self._middle[at]
            and not self._overlapping(at, at)[at + 1]
        )

    def _below(self, at: int) -> Iterator[int]:
        """Yield the segment directly below, if nothing is next to either; then again ignoring headers etc."""
        others = (self._pages == self._pages[at]) & (np.arange(len(self._pages)) != at)
        for seen in (others, others & ~self._apart):
            below = seen & self._overlapping(at, at) & (self._middle > self._bottom[at])
            if not below.any():
                continue
            there = int(np.where(below, self._middle, np.inf).argmin())
            between = (self._middle > self._top[at]) & (self._middle < self._bottom[there])
            alone = np.count_nonzero(seen & between & self._overlapping(at, there)) == 1
            # If the text has it just before, the lines go upwards.
            if alone and there + 1 != at:
                yield there

    def _overlapping(self, one: int, other: int) -> _Bools:
        """Return which segments overlap horizontally with two segments."""
        left, right = min(self._left[one], self._left[other]), max(self._right[one], self._right[other])
        return (self._left < right - 1) & (self._right > left + 1)

    def _next_head(self, at: int) -> Iterator[int]:
        """Yield the head of the next column, or of the next page, from the foot of a column."""
        like = ~self._apart & (self._height >= _SMALL * self._height[at])
        here = like & (self._pages == self._pages[at])
        column = here & self._overlapping(at, at)
        if self._apart[at] or (column & (self._middle > self._bottom[at])).any():
            return
        beyond = here & (self._left > np.median(self._right[column]) - 1)
        if not beyond.any():
            beyond = like & (self._pages == self._pages[at] + 1)
        if beyond.any():
            edge = np.where(beyond, self._left, np.inf).min() + _INDENT * self._height[at]
            yield int(np.where(beyond & (self._left <= edge), self._top, np.inf).argmin())


def _endings(text: str, words: str) -> Iterator[int]:
    """Yield how many letters of `words` a text ends with."""
    at = text.find(words[0], max(0, len(text) - len(words)))
    while at >= 0:
        if words.startswith(text[at:]):
            yield len(text) - at
        at = text.find(words[0], at + 1)
