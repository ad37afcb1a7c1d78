"""Where a quote is said to stand, and how far a place is from there.

It chooses between places that are equally good, by page, then by what stands around, then by line, and it is
compared with the place that was found. What becomes of the quote never depends on it.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator

import numpy as np
from msgspec import Struct

from citewire.documents.document import Document
from citewire.model import LINE_STEP, Lines, Pages, Source, SourceRef
from citewire.text import common_prefix_length

__all__ = ["ANYWHERE", "ExpectedPlace", "replace_surrogates"]

# Pages of one reference that are looked at.
_MOST_PAGES = 1000
# Characters around a quote that tell its place: two or three lines.
_AROUND = 200
# Letters that agree by chance: "of the", "in the".
_CHANCE = 8
# Numbers that a remark repeats.
_MOST_SAID = 5
# What travels between processes.
_LARGEST = 1 << 63


class ExpectedPlace(Struct, frozen=True, gc=False):
    """Pages, lines on them, and the text right before and right after; each may be unknown."""

    pages: tuple[int, ...] = ()
    lines: tuple[int, ...] = ()
    before: str = ""
    after: str = ""

    @classmethod
    def from_reference(cls, ref: SourceRef, source: Source | None = None) -> ExpectedPlace:
        """What a reference says, and the snippet of its source where that has more than the quote."""
        pages, lines = (), ()
        match ref.locator:
            case Pages(first, last) if 0 <= last - first < _MOST_PAGES:
                pages = tuple(range(first, last + 1))
            case Lines(ids, page):
                pages, lines = () if page is None else (page,), ids
            case _:
                pass
        snippet = (source and source.snippet) or ""
        before, _, after = snippet.partition(ref.quote) if ref.quote and ref.quote in snippet else ("",) * 3
        return cls(pages, lines, before[-_AROUND:], after[:_AROUND])

    @property
    def wire_safe(self) -> ExpectedPlace:
        """As it travels: without lone surrogates, and numbers that have no end."""
        pages, lines = (tuple(n for n in some if abs(n) < _LARGEST) for some in (self.pages, self.lines))
        return ExpectedPlace(
            pages, lines, replace_surrogates(self.before[-_AROUND:]), replace_surrogates(self.after[:_AROUND])
        )

    def distance(self, document: Document, start: int, end: int) -> tuple[bool, int, int]:
        """How far a range of `document` is from here; smaller is nearer."""
        elsewhere = self.is_on_other_page(document, start, end)
        return elsewhere, -self._agreed(document.text, start, end), self._lines_off(document, start, end)

    def describe_mismatch(self, document: Document, start: int, end: int) -> Iterator[str]:
        """What is to be said where a range is somewhere else."""
        if self.is_on_other_page(document, start, end):
            yield f"on page {document.page_at(start).number}, not {_listed(self.pages)}"
        # A step is as near as a prompt lets a model say it: it knows the numbers of so few lines.
        elif self._lines_off(document, start, end) >= LINE_STEP:
            line, _ = next(self._lines(document, start, end))
            yield f"on line {line}, not {_listed(self.lines)}"

    def is_on_other_page(self, document: Document, start: int, end: int) -> bool:
        """Whether a range is on none of the pages."""
        if not self.pages:
            return False
        first, last = (document.page_at(at).number for at in (start, max(start, end - 1)))
        return not any(first <= page <= last for page in self.pages)

    def _agreed(self, text: str, start: int, end: int) -> int:
        """Letters around a range that are as they are said to be."""
        if not self.before and not self.after:
            return 0
        before, after = text[max(0, start - 2 * _AROUND) : start], text[end : end + 2 * _AROUND]
        return _agreed(_letters(self.before)[::-1], _letters(before)[::-1]) + _agreed(
            _letters(self.after), _letters(after)
        )

    def _lines_off(self, document: Document, start: int, end: int) -> int:
        """How many lines away from the nearest that is named; none where there is nothing to compare."""
        # A text in one piece has no lines to go by, and what is on another page none of those that are meant.
        spans = [*self._lines(document, start, end)] if self.lines and len(document.lines) > 1 else []
        return min(
            (max(first - line, line - last, 0) for first, last in spans for line in self.lines), default=0
        )

    def _lines(self, document: Document, start: int, end: int) -> Iterator[tuple[int, int]]:
        """From which line to which a range goes, on each page of it that may be meant.

        Lines count from 1 on their page, in the prompt and in citations of DeepCitation. Who names no page
        may as well have counted from the start of the document.
        """
        for place in document.places(start, end):
            if not self.pages or place.page in self.pages:
                yield document.line_at(place.start), document.line_at(place.end - 1)
        if not self.pages:
            first, last = np.searchsorted(document.lines, (start, end - 1), side="right").tolist()
            yield first, last


ANYWHERE = ExpectedPlace()


def replace_surrogates(text: str) -> str:
    """Text without lone surrogates, which do not travel, and which no source has."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _letters(text: str) -> str:
    """Letters and digits only: how a text is set and spaced says nothing of its place."""
    return "".join(filter(str.isalnum, unicodedata.normalize("NFKC", text).casefold()))


def _agreed(said: str, there: str) -> int:
    same = common_prefix_length(said, there)
    return same if same == len(said) or same > _CHANCE else 0


def _listed(numbers: tuple[int, ...]) -> str:
    said = [*map(str, sorted(set(numbers)))]
    return ", ".join([*said[:_MOST_SAID], "…"] if len(said) > _MOST_SAID else said)
