"""Find words in a text: verbatim, by letters and digits alone, and approximately.

Hits are ranges of the canonical view, and all places as good as the best are returned. Nothing is decided
here: similarity says whether a place is worth a closer look, never whether a quote is right.
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

# Similarity that a place needs for a closer look, by length. Short texts are similar by chance; of unrelated
# texts of a hundred characters, none was seen above 0.58.
_SHORT, _LONG = 40, 100
_SHORT_GATE, _GATE, _LONG_GATE = 0.85, 0.7, 0.65
# Words of a short text that must agree, counted from both ends, if one between them does not.
_FEWEST_WORDS = 3
# Share of a short text that may differ if all words but one agree.
_BUDGET = 0.35
# Limit for very long texts: alignment time grows with the length and with the number of edits allowed.
_MOST_EDITS = 10_000
# After a first match, only candidates with at least this share of the best score can be as good.
_AS_LIKELY = 0.5
# Fewest letters for a search by letters alone.
_FEWEST_LETTERS = 12
# Scripts without spaces between words: Thai, Lao and Tibetan, Burmese, Khmer, and CJK except Korean.
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
# Most hits returned; more of them only show that the words are everywhere.
_MOST_HITS = 100
# Most occurrences checked for one that does not start or end inside a word.
_MOST_LOOKED = 100_000
# Longer texts have enough grams to be found by; an exhaustive scan would take seconds.
_MOST_EXHAUSTIVE = 1_000


class Hit(Struct, frozen=True, gc=False):
    """A matching range of the canonical view, and its edit distance."""

    start: int
    end: int
    distance: int
    method: Method


class Letters(NamedTuple):
    """The letters and digits of a text, and the position of each in the canonical view."""

    text: str
    starts: NDArray[np.int32]


class SearchableText:
    """A text prepared for repeated searches. The slow parts may be passed in if already computed."""

    def __init__(self, text: str, view: TextView | None = None, grams: SortedGrams | None = None) -> None:
        self.text = text
        self.view: TextView = view or canonical_view(text)
        self._grams = grams

    @cached_property
    def index(self) -> GramIndex:
        return GramIndex(self.view.text, self._grams)

    @cached_property
    def letters(self) -> Letters:
        """The letters and digits of the canonical view."""
        return _letters_of(self.view.text)

    def find(self, words: str, thorough: bool = True) -> list[Hit]:
        """Return where `words`, in canonical form, occur. Without `thorough`, only grams are used.

        A match must not start or end inside a word or a number: `5%` is not in `15%`.
        """
        if not words:
            return []
        return self.find_exactly(words) or self._fuzzy(words, thorough) or self._by_letters(words)

    def find_exactly(self, words: str) -> list[Hit]:
        """Return where `words`, in canonical form, occur verbatim."""
        occurrences = islice(self.index.find_occurrences(words), _MOST_LOOKED)
        places = ((at, at + len(words)) for at in occurrences)
        whole = (Hit(start, end, 0, "exact") for start, end in places if self._is_whole(start, end))
        return list(islice(whole, _MOST_HITS))

    def _by_letters(self, words: str) -> list[Hit]:
        """Match letters and digits alone: spacing, hyphens and punctuation may differ."""
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
        """Return whether a place has all the words but one in the middle: replaced, inserted or left out.

        The end of a sentence counts as a word, as do two characters of a script without spaces.
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
    """Split into words without surrounding punctuation; the end of a sentence counts as a word."""
    return _WORD.findall(text)


def _agreeing(some: list[str], others: list[str]) -> int:
    """Count the words that agree from the start."""
    pairs = enumerate(zip(some, others, strict=False))
    return next((at for at, (one, other) in pairs if one != other), min(len(some), len(others)))


def _letters_of(text: str) -> Letters:
    places = np.arange(len(text), dtype=np.int32)
    view = TextView(text, places, places).letters_only()
    return Letters(view.text, view.starts)


def _is_inside(text: str, at: int) -> bool:
    """Return whether an offset is inside a word or a number."""
    if not 0 < at < len(text):
        return False
    before, after = text[at - 1], text[at]
    if before.isalnum() and after.isalnum():
        return not (_is_wide(before) or _is_wide(after))
    # 5 in 1.5, 1,500 and -5: the number continues.
    return (before in ".,-" and after.isdecimal() and text[at - 2 : at - 1].isdecimal()) or (
        before.isdecimal() and after in ".," and text[at + 1 : at + 2].isdecimal()
    )


def _is_wide(char: str) -> bool:
    """Return whether a character belongs to a script without spaces between words."""
    return any(first <= char <= last for first, last in _UNSPACED)


def _clustered(found: list[AlignedRange]) -> list[Hit]:
    """Merge overlapping ranges: the aligner often ends the first too early."""
    hits: list[Hit] = []
    for each in sorted(set(found), key=lambda one: (one.start, one.end)):
        if hits and each.start < hits[-1].end:
            last = hits.pop()
            hits.append(Hit(last.start, max(last.end, each.end), each.distance, "fuzzy"))
        else:
            hits.append(Hit(each.start, each.end, each.distance, "fuzzy"))
    return hits[:_MOST_HITS]
