"""Rebuild the lines of a PDF page from its characters and their boxes, which pdfium does not do.

pdfium breaks lines at superscripts and subscripts, does not mark them, and reverses the letters of an Arabic
ligature. Nor does it detect headers and footers that all pages share.

Boxes are rows of left, top, right and bottom. Until they are converted to the page as displayed, heights
count from below.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from statistics import median
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from citewire.documents.document import Aside, Boxes, Page
from citewire.documents.text import SUBSCRIPTS, SUPERSCRIPTS

__all__ = [
    "BLANK",
    "BREAK",
    "Codes",
    "GlyphMetrics",
    "LINE_ENDS",
    "convert_superscripts",
    "find_inked",
    "find_running_lines",
    "join_broken_lines",
    "reorder_ligatures",
]

Codes = NDArray[np.uint32]

BREAK = 0x0A
# U+0002, U+FFFE in older versions, is pdfium's hyphen at a line end, with no break after it.
LINE_ENDS = (BREAK, 0x02, 0xFFFE)
BLANK = [code for code in range(0x3001) if chr(code).isspace() or code == 0x200B]
_ALEFS, _LAM = (0x622, 0x623, 0x625, 0x627), 0x644

# Gap in heights between adjacent characters of a word; up to three times as much is a space.
_CLOSE = 0.2
# Characters that are raised or lowered together: digits, signs, and separators of note marks.
_MOVABLE = [*SUPERSCRIPTS, *map(ord, ",*†‡§")]
# Points by which boxes of one font differ; how many runs away to look for a larger font; and its ratio.
_SAME_LOOK, _NEAR, _SMALLER = 0.1, 5, 0.88
# Baseline shifts, raised and lowered, in sizes of the larger font. TeX lowers by 0.11, Word by 0.14.
_UP, _DOWN = (0.12, 1.0), (-0.6, -0.05)

# Running headers and footers are in this share of the page, at its top and bottom (the page numbers of LaTeX
# are at 0.852 of A4), with nothing else further out or next to them ...
_MARGIN = 0.15
# ... on this many pages, or half of them, at the same height within this many points: half a line.
_REPEATED, _SAME_HEIGHT = 3, 6.0


def find_inked(codes: Codes, boxes: Boxes) -> NDArray[np.intp]:
    """Return the indexes of the visible characters."""
    return np.flatnonzero((boxes[:, 0] < boxes[:, 2]) & ~np.isin(codes, BLANK))


def join_broken_lines(codes: Codes, boxes: Boxes) -> NDArray[np.bool_]:
    """Remove line breaks within a line, or turn them into spaces, in place; return which characters to keep.

    pdfium starts a new line at and after some superscripts and subscripts.
    """
    dark, breaks = find_inked(codes, boxes), np.flatnonzero(codes == BREAK)
    passed = np.searchsorted(breaks, dark)
    left, right = boxes[dark[:-1]], boxes[dark[1:]]
    heights = left[:, 1] - left[:, 3], right[:, 1] - right[:, 3]
    shared = np.minimum(left[:, 1], right[:, 1]) - np.maximum(left[:, 3], right[:, 3])
    gap = (right[:, 0] - left[:, 2]) / np.maximum(*heights)
    beside = (shared > 0.5 * np.minimum(*heights)) & (gap > -_CLOSE) & (gap < 3 * _CLOSE)
    wrong = np.flatnonzero(beside & (np.diff(passed) == 1))
    codes[breaks[passed[wrong]]] = 0x20
    kept = np.ones(len(codes), np.bool_)
    kept[breaks[passed[wrong[gap[wrong] < _CLOSE]]]] = False
    return kept


class GlyphMetrics(NamedTuple):
    """The displayed size of a character, and the height of its baseline."""

    size: float
    base: float


class _Run(NamedTuple):
    """The first and last of adjacent characters on one line with the same look, and the line number."""

    first: int
    last: int
    line: int


def convert_superscripts(
    codes: Codes, boxes: Boxes, level: NDArray[np.intp], look: Callable[[int], GlyphMetrics]
) -> None:
    """Turn superscript digits and signs into those of Unicode, in place: 10² is not 102.

    The same for subscripts that would join a number. Next to a letter they would not: the 2 of CO2 is a 2.
    """
    lines = np.cumsum(np.isin(codes, LINE_ENDS))[level]
    differs = (np.abs(np.diff(boxes[level, 1::2], axis=0)) > _SAME_LOOK).any(axis=1)
    starts = np.flatnonzero(np.append(True, differs | (np.diff(lines) > 0)))
    lasts = level[np.append(starts[1:], len(level)) - 1]
    runs = list(map(_Run, level[starts].tolist(), lasts.tolist(), lines[starts].tolist()))
    for at in np.flatnonzero(np.logical_and.reduceat(np.isin(codes[level], _MOVABLE), starts)).tolist():
        # The text it belongs to is mostly before it.
        near = (*runs[max(0, at - _NEAR) : at][::-1], *runs[at + 1 : at + _NEAR])
        beside = [run for run in near if run.line == runs[at].line]
        if beside:
            table = _moved(codes, boxes, runs[at], beside, look)
            for index in range(runs[at].first, runs[at].last + 1):
                codes[index] = table.get(int(codes[index]), int(codes[index]))


def _moved(
    codes: Codes, boxes: Boxes, run: _Run, beside: list[_Run], look: Callable[[int], GlyphMetrics]
) -> dict[int, int]:
    """Return the translation for the characters of a run, by its neighbours on the line."""
    own = look(run.first)
    larger = next((it for it in (look(one.first) for one in beside) if it.size * _SMALLER > own.size), None)
    if larger is None:
        return {}
    gap = min(
        max(boxes[run.first, 0] - boxes[one.last, 2], boxes[one.first, 0] - boxes[run.last, 2])
        for one in beside
    )
    before = chr(codes[run.first - 1]) if run.first else "\n"
    after = chr(codes[run.last + 1]) if run.last + 1 < len(codes) else "\n"
    rise = (own.base - larger.base) / larger.size
    if gap > larger.size / 2:
        return {}
    # Alone in brackets it joins nothing, and before a slash it is half of a fraction.
    if _UP[0] < rise < _UP[1] and before not in "([{" and (before.isdecimal() or after not in "/\u2044"):
        return SUPERSCRIPTS
    return SUBSCRIPTS if _DOWN[0] < rise < _DOWN[1] and before.isdecimal() else {}


def reorder_ligatures(codes: Codes, boxes: Boxes) -> None:
    """Swap the letters of lam-alef, one glyph, whose two letters pdfium reverses with the line."""
    same = (boxes[:-1] == boxes[1:]).all(axis=1)
    turned = np.flatnonzero(same & np.isin(codes[:-1], _ALEFS) & (codes[1:] == _LAM))
    codes[turned + 1], codes[turned] = codes[turned], _LAM


def find_running_lines(
    text: str, lines: NDArray[np.int32], boxes: Boxes, pages: tuple[Page, ...]
) -> Iterator[Aside]:
    """Yield the lines, each with its break, that repeat at the top or bottom of pages, ignoring numbers."""
    tops, bottoms = np.fmin.reduceat(boxes[:, 1], lines), np.fmax.reduceat(boxes[:, 3], lines)
    on = np.searchsorted([page.start for page in pages], lines, "right") - 1
    heights = np.array([page.height for page in pages])[on]
    at_top = (bottoms > 0) & (bottoms < heights * _MARGIN)
    margin = np.flatnonzero(at_top | ((tops > heights * (1 - _MARGIN)) & (tops < heights))).tolist()
    # For each line, the distance from the edge of the page to its start and to its end.
    outer, inner = np.where(at_top, (tops, bottoms), (heights - bottoms, heights - tops)).tolist()
    ends = np.append(lines[1:], len(text)).tolist()
    alike: defaultdict[tuple[bool, str], list[int]] = defaultdict(list)
    for line in margin:
        words = re.sub(r"\d+", "0", text[lines[line] : ends[line]].strip())
        # Numbers alone are page numbers, or belong to a table across pages.
        if any(char.isalpha() for char in words) or words.count("0") == 1:
            alike[bool(at_top[line]), words].append(line)
    needed = min(_REPEATED, max(2, (len(pages) + 1) // 2))
    repeated: set[int] = set()
    for group in alike.values():
        middle = median(outer[line] for line in group)
        near = [line for line in group if abs(outer[line] - middle) <= _SAME_HEIGHT]
        if len({int(on[line]) for line in near}) >= needed:
            repeated.update(near)
    # Cells of a table repeat as well, but with others next to them.
    body: defaultdict[tuple[int, bool], float] = defaultdict(lambda: math.inf)
    for line in set(margin) - repeated:
        side = int(on[line]), bool(at_top[line])
        body[side] = min(inner[line], body[side])
    for line in repeated:
        if inner[line] < body[int(on[line]), bool(at_top[line])]:
            yield Aside(int(lines[line]), ends[line], "header" if at_top[line] else "footer")
