"""The place where a citation says its quote is, and the distance of other places from it.

It selects among equally good places, by page, then by surrounding text, then by line, and is compared with
the place that was found. The verdict never depends on it.
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

# Most pages that one reference may span.
_MOST_PAGES = 1000
# Characters around a quote that identify its place: two or three lines.
_AROUND = 200
# Letters that may agree by chance: "of the", "in the".
_CHANCE = 8
# Most numbers that a warning lists.
_MOST_SAID = 5
# Larger numbers cannot be sent between processes.
_LARGEST = 1 << 63


class ExpectedPlace(Struct, frozen=True, gc=False):
    """Pages, lines on them, and the text just before and after the quote; each may be unknown."""

    pages: tuple[int, ...] = ()
    lines: tuple[int, ...] = ()
    before: str = ""
    after: str = ""

    @classmethod
    def from_reference(cls, ref: SourceRef, source: Source | None = None) -> ExpectedPlace:
        """Return the place a reference gives, with the text around its quote in the source's snippet."""
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
        """The place in a form that can be encoded: without lone surrogates and over-large numbers."""
        pages, lines = (tuple(n for n in some if abs(n) < _LARGEST) for some in (self.pages, self.lines))
        return ExpectedPlace(
            pages, lines, replace_surrogates(self.before[-_AROUND:]), replace_surrogates(self.after[:_AROUND])
        )

    def distance(self, document: Document, start: int, end: int) -> tuple[bool, int, int]:
        """Return the distance of a range of `document` from this place; smaller is nearer."""
        elsewhere = self.is_on_other_page(document, start, end)
        return elsewhere, -self._agreed(document.text, start, end), self._lines_off(document, start, end)

    def describe_mismatch(self, document: Document, start: int, end: int) -> Iterator[str]:
        """Yield warnings if a range is on another page or line."""
        if self.is_on_other_page(document, start, end):
            yield f"on page {document.page_at(start).number}, not {_listed(self.pages)}"
        # Closer than one step is no mismatch: the prompt numbers only every so many lines.
        elif self._lines_off(document, start, end) >= LINE_STEP:
            line, _ = next(self._lines(document, start, end))
            yield f"on line {line}, not {_listed(self.lines)}"

    def is_on_other_page(self, document: Document, start: int, end: int) -> bool:
        """Return whether a range is on none of the pages."""
        if not self.pages:
            return False
        first, last = (document.page_at(at).number for at in (start, max(start, end - 1)))
        return not any(first <= page <= last for page in self.pages)

    def _agreed(self, text: str, start: int, end: int) -> int:
        """Count the letters around a range that agree with the expected ones."""
        if not self.before and not self.after:
            return 0
        before, after = text[max(0, start - 2 * _AROUND) : start], text[end : end + 2 * _AROUND]
        return _agreed(_letters(self.before)[::-1], _letters(before)[::-1]) + _agreed(
            _letters(self.after), _letters(after)
        )

    def _lines_off(self, document: Document, start: int, end: int) -> int:
        """Return the distance in lines to the nearest expected line; 0 if there is nothing to compare."""
        # A text without line breaks has no line numbers; a range on another page has no expected ones.
        spans = [*self._lines(document, start, end)] if self.lines and len(document.lines) > 1 else []
        return min(
            (max(first - line, line - last, 0) for first, last in spans for line in self.lines), default=0
        )

    def _lines(self, document: Document, start: int, end: int) -> Iterator[tuple[int, int]]:
        """Yield the first and last line of a range on each of its pages that may be meant.

        Lines count from 1 on each page, in the prompt and in DeepCitation's citations. A reference without a
        page may also count from the start of the document.
        """
        for place in document.places(start, end):
            if not self.pages or place.page in self.pages:
                yield document.line_at(place.start), document.line_at(place.end - 1)
        if not self.pages:
            first, last = np.searchsorted(document.lines, (start, end - 1), side="right").tolist()
            yield first, last


ANYWHERE = ExpectedPlace()


def replace_surrogates(text: str) -> str:
    """Replace lone surrogates, which cannot be encoded and which no source contains."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _letters(text: str) -> str:
    """Return only the letters and digits: typography and spacing say nothing about the place."""
    return "".join(filter(str.isalnum, unicodedata.normalize("NFKC", text).casefold()))


def _agreed(said: str, there: str) -> int:
    same = common_prefix_length(said, there)
    return same if same == len(said) or same > _CHANCE else 0


def _listed(numbers: tuple[int, ...]) -> str:
    said = [*map(str, sorted(set(numbers)))]
    return ", ".join([*said[:_MOST_SAID], "…"] if len(said) > _MOST_SAID else said)
