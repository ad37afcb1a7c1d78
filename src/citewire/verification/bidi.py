"""Right-to-left text in visual order (left to right), as some files store it and some extractors return it.

To convert between visual and logical order, reverse each line, then reverse each left-to-right run in it
again: numbers and words of other scripts.
"""

from __future__ import annotations

import re

import numpy as np
from numpy.typing import NDArray

__all__ = ["reverse_rtl_lines"]

_RIGHT_TO_LEFT = re.compile("[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc]")
_LINE = re.compile(r"[^\n\r\x02\ufffe]+")
_DIGITS = "0-9\u0660-\u0669\u06f0-\u06f9"
_LEFT_TO_RIGHT = re.compile(
    f"[A-Za-z\u00c0-\u058f{_DIGITS}](?:[-.,:/ A-Za-z\u00c0-\u058f{_DIGITS}]*[A-Za-z\u00c0-\u058f{_DIGITS}])?"
)


def reverse_rtl_lines(text: str) -> tuple[str, NDArray[np.int64]] | None:
    """Reverse the right-to-left lines of `text`; return it and each character's old offset, or None."""
    if not _RIGHT_TO_LEFT.search(text):
        return None
    places = np.arange(len(text))
    for line in _LINE.finditer(text):
        if not _RIGHT_TO_LEFT.search(line[0]):
            continue
        start, end = line.span()
        places[start:end] = places[start:end][::-1]
        for run in _LEFT_TO_RIGHT.finditer(line[0][::-1]):
            first, last = start + run.start(), start + run.end()
            places[first:last] = places[first:last][::-1]
    return "".join(map(text.__getitem__, places.tolist())), places
