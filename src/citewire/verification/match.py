"""Finding words in a text: exactly, by letters and digits alone, and where they differ a little.

What is found is a range of the canonical view, and every place that is as good as the best is given. Nothing
is decided here: how alike two texts are says whether it is worth looking closer, never whether a quote is
right.
"""

from __future__ import annotations

import re
from functools import cached_property
from itertools import islice
from typing import Literal, NamedTuple

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from citewire.verification.gram_index import GRAM_LENGTH, AlignedRange, GramIndex, SortedGrams
from citewire.verification.text_views import TextView, canonical_view

__all__ = ["Hit", "Letters", "SearchableText"]

Method = Literal["exact", "letters", "fuzzy"]

# How alike a place must be to look closer, by length. Short texts are like each other by chance; of those of
# a hundred characters that have nothing to do with each other, none was seen that is more than 0.58 alike.
_SHORT, _LONG = 40, 100
_SHORT_GATE, _GATE, _LONG_GATE = 0.85, 0.7, 0.65
# Words of a short text that must agree, at its start and its end, where one between them does not.
_FEWEST_WORDS = 3
# How much of a short text may differ where all words but one agree.
_BUDGET = 0.35
# Of a book, no more may differ: aligning takes time for each character and for what may differ.
_MOST_EDITS = 10_000
# Once a place was found, only those with at least this share of its grams can be as good.
_AS_LIKELY = 0.5
# Letters that are enough to find a place by letters alone.
_FEWEST_LETTERS = 12
# Scripts without spaces between words: Thai, Lao and Tibetan, Burmese, Khmer, and those of CJK but Korean.
_UNSPACED = (
    ("\u0e00", "\u0fff"),
    ("\u1000", "\u109f"),
    ("\u1780", "\u17ff"),
    ("\u2e80", "\u9fff"),
    ("\uf900", "\ufaff"),
    ("\U00020000", "\U0003ffff"),
)
_WIDE = "".join(f"{first}-{last}" for first, last in _UNSPACED)
_AROUND = r"\"'()\[\],;:.!?"
_WORD = re.compile(rf"[{_WIDE}]|[.!?](?!\S)|[^\s{_WIDE}{_AROUND}](?:[^\s{_WIDE}]*[^\s{_WIDE}{_AROUND}])?")
# Places that are given at most; more of them only say that the words are everywhere.
_MOST_HITS = 100
# Places that are looked at for one that is not within a word.
_MOST_LOOKED = 100_000
# Longer texts have grams enough to be found by; reading all of a text for them would take seconds.
_MOST_EXHAUSTIVE = 1_000


class Hit(Struct, frozen=True, gc=False):
    """A range of the canonical view that words were found in, and in how many characters they differ."""

    start: int
    end: int
    distance: int
    method: Method


class Letters(NamedTuple):
    """Letters and digits only, and where each stands in the canonical view."""

    text: str
    starts: NDArray[np.int32]


class SearchableText:
    """A text that is searched again and again; what takes long to make of it may be known from before."""

    def __init__(self, text: str, view: TextView | None = None, grams: SortedGrams | None = None) -> None:
        self.text = text
        self.view: TextView = view or canonical_view(text)
        self._grams = grams

    @cached_property
    def index(self) -> GramIndex:
        return GramIndex(self.view.text, self._grams)

    @cached_property
    def letters(self) -> Letters:
        """Letters and digits only of the canonical view."""
        return _letters_of(self.view.text)

    def find(self, words: str, thorough: bool = True) -> list[Hit]:
        """Where `words`, which are canonical, stand. Without `thorough`, only where their grams say.

        Ends within a word or a number are not its ends: `5%` is not in `15%`.
        """
        if not words:
            return []
        return self.find_exactly(words) or self._fuzzy(words, thorough) or self._by_letters(words)

    def find_exactly(self, words: str) -> list[Hit]:
        """Where `words`, which are canonical, stand as they are."""
        occurrences = islice(self.index.find_occurrences(words), _MOST_LOOKED)
        places = ((at, at + len(words)) for at in occurrences)
        whole = (Hit(start, end, 0, "exact") for start, end in places if self._is_whole(start, end))
        return list(islice(whole, _MOST_HITS))

    def _by_letters(self, words: str) -> list[Hit]:
        """By letters and digits alone: spacing, hyphens and punctuation may differ."""
        letters = _letters_of(words).text
        if len(letters) < _FEWEST_LETTERS:
            return []
        found: list[Hit] = []
        text, places = self.letters
        at = text.find(letters)
        while at >= 0 and len(found) < _MOST_HITS:
            start, end = int(places[at]), int(places[at + len(letters) - 1]) + 1
            if self._is_whole(start, end):
                found.append(Hit(start, end, abs(end - start - len(words)), "letters"))
            at = text.find(letters, at + 1)
        return found

    def _is_whole(self, start: int, end: int) -> bool:
        return not (_is_inside(self.view.text, start) or _is_inside(self.view.text, end))

    def _fuzzy(self, words: str, thorough: bool) -> list[Hit]:
        if len(words) < GRAM_LENGTH:
            return []
        gate = _gate(len(words))
        budget = max(1, int(len(words) * (_BUDGET if len(words) < _SHORT else 1 - gate)))
        budget = min(budget, _MOST_EDITS)
        encoded = self.index.encode(words)
        best: list[AlignedRange] = []
        for start, end, share in self.index.find_candidates(words):
            if best and share < _AS_LIKELY:
                break
            most = best[0].distance if best else budget
            found = self.index.align(encoded, start, end, most)
            if found:
                best = found if not best or found[0].distance < most else [*best, *found]
        if thorough and not best and len(words) <= _MOST_EXHAUSTIVE:
            best = self.index.align(encoded, 0, self.index.length, budget)
        if not best:
            return []
        hits, alike = _clustered(best), 1 - best[0].distance / len(words)
        if alike >= gate:
            return hits
        return [hit for hit in hits if len(words) < _SHORT and self._has_all_but_one(words, hit)]

    def _has_all_but_one(self, words: str, hit: Hit) -> bool:
        """Whether a place has the words, all but one within: replaced, put in or left out.

        The end of a sentence counts as a word, and so do two characters of what has no blanks between words.
        """
        text, start, end = self.view.text, hit.start, hit.end
        while _is_inside(text, start):
            start -= 1
        while _is_inside(text, end):
            end += 1
        ours, theirs = _words(words), _words(text[start:end])
        first = _agreeing(ours, theirs)
        last = _agreeing(ours[first:][::-1], theirs[first:][::-1])
        agreed = "".join([*ours[:first], *ours[len(ours) - last :]])
        wide = sum(map(_is_wide, agreed))
        most = 2 if wide else 1
        return (
            min(first, last) > 0
            and first + last >= max(_FEWEST_WORDS, len(ours) - most, len(theirs) - most)
            and len(agreed) + wide >= _FEWEST_LETTERS
        )


def _gate(length: int) -> float:
    if length < _SHORT:
        return _SHORT_GATE
    return _GATE if length < _LONG else _LONG_GATE


def _words(text: str) -> list[str]:
    """Words without what stands around them, but for the end of a sentence."""
    return _WORD.findall(text)


def _agreeing(some: list[str], others: list[str]) -> int:
    """How many words agree from the start on."""
    pairs = enumerate(zip(some, others, strict=False))
    return next((at for at, (one, other) in pairs if one != other), min(len(some), len(others)))


def _letters_of(text: str) -> Letters:
    places = np.arange(len(text), dtype=np.int32)
    view = TextView(text, places, places).letters_only()
    return Letters(view.text, view.starts)


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
    return any(first <= char <= last for first, last in _UNSPACED)


def _clustered(found: list[AlignedRange]) -> list[Hit]:
    """Places that overlap are one: the aligner often cuts the first short."""
    hits: list[Hit] = []
    for each in sorted(set(found), key=lambda one: (one.start, one.end)):
        if hits and each.start < hits[-1].end:
            last = hits.pop()
            hits.append(Hit(last.start, max(last.end, each.end), each.distance, "fuzzy"))
        else:
            hits.append(Hit(each.start, each.end, each.distance, "fuzzy"))
    return hits[:_MOST_HITS]
