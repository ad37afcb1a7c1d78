"""A source as text, and the place of each character.

Offsets are code points of `Document.text`, half-open, as everywhere. A page, a line, an element and an aside
are ranges of that text; boxes have one row per character. Readers make documents; nothing here reads.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from itertools import pairwise
from typing import Any, Literal

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from citewire.model import Problem

__all__ = ["Aside", "Box", "Document", "Element", "Page", "TextPlace"]

DocumentKind = Literal["pdf", "html", "markdown", "text", "docx", "pptx", "xlsx", "image"]
AsideKind = Literal["header", "footer", "hidden", "deleted", "note", "comment"]
Boxes = NDArray[np.float32]


class Page(Struct, frozen=True, gc=False):
    """A page, slide or sheet: a range of the text, and the size of its visible part, in points.

    `ocr` says that its text was read from a picture. `start` to `end` includes the final line break.
    """

    number: int
    start: int
    end: int
    width: float = 0.0
    height: float = 0.0
    ocr: bool = False
    label: str | None = None


class Element(Struct, frozen=True, gc=False):
    """A range of the text, and its path in the source: a path in HTML, `paragraph 12`, `Sheet1!B3`."""

    start: int
    end: int
    path: str


class Aside(Struct, frozen=True, gc=False):
    """A range that is not part of the text around it: a running header, hidden or deleted text."""

    start: int
    end: int
    kind: AsideKind


class Box(Struct, frozen=True, gc=False):
    """A rectangle on a page as displayed, in points from its top left corner."""

    page: int
    left: float
    top: float
    right: float
    bottom: float


class TextPlace(Struct, frozen=True, gc=False):
    """The part of a text range that is on one page."""

    page: int
    start: int
    end: int
    boxes: tuple[Box, ...] = ()
    element: str | None = None


class Document(Struct, frozen=True, eq=False):
    """A source as text.

    `pages` cover the text without gaps, in order; there is at least one. `lines` are the offsets at which
    lines start. `boxes` is (characters, 4): left, top, right and bottom on the page as displayed, NaN for
    blanks; None if the source has no boxes. `confidence` (0 to 100) is for text from pictures. `elements` and
    `asides` are sorted by start; elements do not overlap, asides may.
    """

    sha256: str
    kind: DocumentKind
    text: str
    pages: tuple[Page, ...]
    lines: NDArray[np.int32]
    boxes: Boxes | None = None
    confidence: NDArray[np.uint8] | None = None
    elements: tuple[Element, ...] = ()
    asides: tuple[Aside, ...] = ()
    title: str | None = None
    name: str | None = None
    url: str | None = None
    problems: tuple[Problem, ...] = ()

    def page_at(self, offset: int) -> Page:
        """Return the page of a character."""
        return self.pages[max(0, bisect_right(self.pages, offset, key=lambda page: page.start) - 1)]

    def line_at(self, offset: int) -> int:
        """Return the line number of a character on its page, from 1."""
        page = self.page_at(offset)
        first, here = np.searchsorted(self.lines, (page.start, offset), side="right")
        return int(here - first) + 1

    def element_at(self, offset: int) -> Element | None:
        """Return the element that contains a character."""
        at = bisect_right(self.elements, offset, key=lambda element: element.start) - 1
        return self.elements[at] if at >= 0 and offset < self.elements[at].end else None

    def places(self, start: int, end: int) -> tuple[TextPlace, ...]:
        """Return the places of a range, page by page, with one rectangle per line if boxes are known."""
        return tuple(self._places(start, end))

    def _places(self, start: int, end: int) -> Iterator[TextPlace]:
        while start < end:
            page = self.page_at(start)
            stop = min(end, page.end)
            element = self.element_at(start)
            yield TextPlace(
                page.number,
                start,
                stop,
                tuple(self._boxes(page.number, start, stop)),
                None if element is None else element.path,
            )
            start = max(stop, start + 1)

    def _boxes(self, page: int, start: int, end: int) -> Iterator[Box]:
        if self.boxes is None:
            return
        inner = self.lines[
            np.searchsorted(self.lines, start, "right") : np.searchsorted(self.lines, end, "left")
        ]
        edges: list[Any] = [start, *inner.tolist(), end]
        for first, last in pairwise(edges):
            rows = self.boxes[first:last]
            inked = rows[~np.isnan(rows[:, 0])]
            if len(inked):
                left, top = inked[:, :2].min(axis=0).tolist()
                right, bottom = inked[:, 2:].max(axis=0).tolist()
                yield Box(page, left, top, right, bottom)
