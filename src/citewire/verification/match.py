"""Finding words in a text: exactly, by letters and digits alone, and where they differ a little.

What is found is a range of the canonical view, and every place that is as good as the best is given. Nothing
is decided here: how alike two texts are says whether it is worth looking closer, never whether a quote is
right.
"""

from __future__ import annotations

from functools import cached_property
from itertools import islice
from typing import Literal

import numpy as np
from msgspec import Struct

from citewire.verification.index import GRAM, Aligned, Index
from citewire.verification.views import View, canonical

__all__ = ["Hit", "Searchable"]

Method = Literal["exact", "letters", "fuzzy"]

# A gate for looking closer. Short texts are like each other by chance.
_SHORT = 40
_GATE, _SHORT_GATE = 0.75, 0.85
_BUDGET = 0.35
# Once a place was found, only those with at least this share of its grams can be as good.
_AS_LIKELY = 0.5
# Letters that are enough to find a place by letters alone.
_FEWEST_LETTERS = 12
# Places that are given at most; more of them only say that the words are everywhere.
_MOST_HITS = 100


class Hit(Struct, frozen=True, gc=False):
    """A range of the canonical view that words were found in, and in how many characters they differ."""

    start: int
    end: int
    distance: int
    method: Method


class Searchable:
    """A text that is searched again and again."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.view: View = canonical(text)

    @cached_property
    def index(self) -> Index:
        return Index(self.view.text)

    @cached_property
    def letters(self) -> View:
        """Letters and digits only; its ranges are those of the canonical view."""
        return _letters_of(self.view.text)

    def find(self, words: str, thorough: bool = True) -> list[Hit]:
        """Where `words`, which are canonical, stand. Without `thorough`, only where their grams say.

        Ends within a word or a number are not its ends: `5%` is not in `15%`.
        """
        if not words:
            return []
        return self._exact(words) or self._fuzzy(words, thorough) or self._by_letters(words)

    def _exact(self, words: str) -> list[Hit]:
        places = ((at, at + len(words)) for at in self.index.occurrences(words))
        whole = (Hit(start, end, 0, "exact") for start, end in places if self._is_whole(start, end))
        return list(islice(whole, _MOST_HITS))

    def _by_letters(self, words: str) -> list[Hit]:
        """By letters and digits alone: spacing, hyphens and punctuation may differ."""
        letters = _letters_of(words).text
        if len(letters) < _FEWEST_LETTERS:
            return []
        found: list[Hit] = []
        at = self.letters.text.find(letters)
        while at >= 0 and len(found) < _MOST_HITS:
            start, end = self.letters.to_source(at, at + len(letters))
            if self._is_whole(start, end):
                found.append(Hit(start, end, abs(end - start - len(words)), "letters"))
            at = self.letters.text.find(letters, at + 1)
        return found

    def _is_whole(self, start: int, end: int) -> bool:
        return not (_is_inside(self.view.text, start) or _is_inside(self.view.text, end))

    def _fuzzy(self, words: str, thorough: bool) -> list[Hit]:
        if len(words) < GRAM:
            return []
        budget = max(1, int(len(words) * _BUDGET))
        encoded = self.index.encode(words)
        best: list[Aligned] = []
        for start, end, share in self.index.candidates(words):
            if best and share < _AS_LIKELY:
                break
            most = best[0].distance if best else budget
            found = self.index.align(encoded, start, end, most)
            if found:
                best = found if not best or found[0].distance < most else [*best, *found]
        if thorough and (not best or best[0].distance > len(words) // 4):
            most = best[0].distance - 1 if best else budget
            best = (most >= 0 and self.index.align(encoded, 0, self.index.length, most)) or best
        gate = _SHORT_GATE if len(words) < _SHORT else _GATE
        if not best or 1 - best[0].distance / len(words) < gate:
            return []
        return _clustered(best)


def _letters_of(text: str) -> View:
    places = np.arange(len(text), dtype=np.int32)
    return View(text, places, places + 1).letters()


def _is_inside(text: str, at: int) -> bool:
    """Whether a place is within a word or a number."""
    if not 0 < at < len(text):
        return False
    before, after = text[at - 1], text[at]
    if before.isalnum() and after.isalnum():
        return not (_is_wide(before) or _is_wide(after))
    # 5 in 1.5, 1,500 and -5: the number goes on.
    return (before in ".,-" and after.isdecimal() and text[at - 2 : at - 1].isdecimal()) or (
        before.isdecimal() and after in ".," and text[at + 1 : at + 2].isdecimal()
    )


def _is_wide(char: str) -> bool:
    """Of a script that does not put spaces between words."""
    return "\u2e80" <= char <= "\u9fff" or "\u0e00" <= char <= "\u0eff" or char >= "\uf900"


def _clustered(found: list[Aligned]) -> list[Hit]:
    """Places that overlap are one: the aligner often cuts the first short."""
    hits: list[Hit] = []
    for each in sorted(set(found), key=lambda one: (one.start, one.end)):
        if hits and each.start < hits[-1].end:
            last = hits.pop()
            hits.append(Hit(last.start, max(last.end, each.end), each.distance, "fuzzy"))
        else:
            hits.append(Hit(each.start, each.end, each.distance, "fuzzy"))
    return hits[:_MOST_HITS]
