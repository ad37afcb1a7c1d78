"""Align two lists of words: which agree, and which were inserted, left out or replaced.

The alignment has the fewest differences. For long or repetitive lists, difflib takes minutes, this
milliseconds.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, cast

import edlib  # pyright: ignore[reportMissingTypeStubs]  # cast below

__all__ = ["AlignmentStep", "align_words"]

_align: Callable[..., dict[str, Any]] = cast("Any", edlib).align
# Symbols that the aligner distinguishes; words that share a byte are compared again here.
_BYTES = 256


class AlignmentStep(NamedTuple):
    """A range of each list, `a` to `b` and `c` to `d`, and whether they are the same."""

    same: bool
    a: int
    b: int
    c: int
    d: int


def align_words(ours: Sequence[str], theirs: Sequence[str]) -> list[AlignmentStep]:
    """Return the ranges of two non-empty lists, alternately the same and different."""
    if ours == theirs:
        return [AlignmentStep(True, 0, len(ours), 0, len(theirs))]
    codes = {word: at % _BYTES for at, word in enumerate(dict.fromkeys((*ours, *theirs)))}
    coded = [bytes(map(codes.__getitem__, words)) for words in (ours, theirs)]
    path: str = _align(*coded, mode="NW", task="path")["cigar"]
    steps: list[AlignmentStep] = []
    a = c = 0
    for count, kind in re.findall(r"(\d+)(\D)", path):
        for _ in range(int(count)):
            b, d = a + (kind != "D"), c + (kind != "I")
            same = kind == "=" and ours[a] == theirs[c]
            if steps and steps[-1].same == same:
                steps[-1] = steps[-1]._replace(b=b, d=d)
            else:
                steps.append(AlignmentStep(same, a, b, c, d))
            a, c = b, d
    return _move_insertion_first(steps, theirs)


def _move_insertion_first(steps: list[AlignmentStep], theirs: Sequence[str]) -> list[AlignmentStep]:
    """Move words that only the other list has to the front, if possible: `a b` is the end of `a a b`."""
    if len(steps) > 1 and steps[0].same and steps[1].a == steps[1].b:
        start, length = steps[1].d - steps[0].d, steps[0].b
        if theirs[:length] == theirs[start : start + length]:
            end = steps[2].b if len(steps) > 2 else length
            return [
                AlignmentStep(False, 0, 0, 0, start),
                AlignmentStep(True, 0, end, start, start + end),
                *steps[3:],
            ]
    return steps
