"""Views of a text: as it is, canonical, and letters and digits only, each with a map to the source.

Quotes are compared in the canonical view: case, typography, spacing, ligatures and hyphens at line ends do
not count there. Letters and digits only is for finding, never for judging: it has no minus sign, no decimal
point and no percent sign.

Every character of a view maps to a range of the source. Each distinct character is classified once, and a
text is processed as a whole, in numpy; only characters that depend on their neighbours are handled one by
one.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["TextView", "canonical_view"]

_Ints = NDArray[np.int32]

# Character classes. A character of class _MANY becomes several characters, or none.
_PLAIN, _SPACE, _BREAK, _GONE, _HYPHEN, _MARK, _MANY = range(7)
_UNKNOWN = 255

_SOFT_HYPHEN = "\u00ad"
# pdfium returns these for a hyphen at the end of a line, without a line break after it.
_BREAKING_HYPHENS = "\ufffe\x02"
_HYPHENS = "-\u2010\u2011" + _SOFT_HYPHEN + _BREAKING_HYPHENS
_BREAKS = "\n\r\v\f\x85\u2028\u2029"
# Zero-width characters, stretching ones (Arabic letter mark, tatweel), and copyright and trademark signs.
_GONE_CHARACTERS = (
    "\u200b\u200c\u200d\u200e\u200f\u2060\ufeff\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
    "\u061c\u0640©®™℠"
)
# Points that Hebrew and Arabic usually omit; some letters have them built in.
_POINTS = dict.fromkeys(
    (*range(0x591, 0x5BE), 0x5BF, 0x5C1, 0x5C2, 0x5C4, 0x5C5, 0x5C7, *range(0x64B, 0x653), 0x670)
)
# Vowels and finals of Hangul, and the sound marks of narrow Kana: they combine with the character before.
_COMPOSED = (("\u1160", "\u11ff"), ("\uff9e", "\uff9f"))
_ALIKE = str.maketrans(
    {
        **dict.fromkeys("\u2018\u2019\u201a\u201b\u2032\u02bc\uff07`\u00b4", "'"),
        **dict.fromkeys("\u201c\u201d\u201e\u201f\u2033\u00ab\u00bb", '"'),
        **dict.fromkeys("\u05be\u2010\u2011\u2012\u2013\u2014\u2015\u2212\ufe58\ufe63\uff0d", "-"),
        # Letters for which Persian has separate code points.
        "\u064a": "\u06cc",
        "\u0643": "\u06a9",
    }
)
# Scripts without spaces between words, and their punctuation: not Hangul, nor wide letters and digits.
_CJK = (
    (0x2E80, 0x312F),
    (0x3190, 0x9FFF),
    (0xF900, 0xFAFF),
    (0xFE30, 0xFE4F),
    (0xFF01, 0xFF0F),
    (0xFF1A, 0xFF20),
    (0xFF5F, 0xFF9F),
    (0x20000, 0x3FFFF),
)

_class = np.full(0x110000, _UNKNOWN, np.uint8)
_word = np.full(0x110000, _UNKNOWN, np.uint8)
_single = np.zeros(0x110000, np.uint32)
_many: dict[int, str] = {}


class TextView(NamedTuple):
    """A text, and for each of its characters the range of the source it stands for.

    `joints` are the offsets where a hyphen at a line end was removed between two letters; the source may have
    meant a real one.
    """

    text: str
    starts: _Ints
    ends: _Ints
    joints: frozenset[int] = frozenset()

    def to_source(self, start: int, end: int) -> tuple[int, int]:
        """Return the range of the source that a range of the view stands for."""
        if start >= end:
            at = (
                int(self.starts[start])
                if start < len(self.starts)
                else int(self.ends[-1])
                if len(self.ends)
                else 0
            )
            return at, at
        return int(self.starts[start]), int(self.ends[end - 1])

    def from_source(self, start: int, end: int) -> tuple[int, int]:
        """Return the range of the view that stands for a range of the source."""
        return int(np.searchsorted(self.ends, start, "right")), int(np.searchsorted(self.starts, end, "left"))

    def source_spelling(self, source: str, start: int, end: int) -> str:
        """Return a range of the view as the source spells it, on one line and without line-end hyphens."""
        pieces: list[str] = []
        last = -1
        for at in range(start, end):
            first = int(self.starts[at])
            if first != last:  # one character of the source may become several here
                pieces.append(" " if self.text[at] == " " else source[first : int(self.ends[at])])
            last = first
        return "".join(pieces)

    def letters_only(self) -> TextView:
        """Return the letters, marks and digits only. The ranges are those of this view's source."""
        codes = _codes(self.text)
        kept = _is_word(codes)
        return TextView(_text(codes[kept]), self.starts[kept], self.ends[kept])


def canonical_view(text: str) -> TextView:
    """Return the canonical view of `text`."""
    codes = _codes(text)
    _classify_new(codes)
    return _Canonicalizer(text, codes).view()


def _codes(text: str) -> NDArray[np.uint32]:
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)


def _text(codes: NDArray[np.uint32]) -> str:
    return codes.astype("<u4").tobytes().decode("utf-32-le", "surrogatepass")


def _classify_new(codes: NDArray[np.uint32]) -> None:
    """Classify characters that were not seen before."""
    for code in np.unique(codes[_class[codes] == _UNKNOWN]).tolist():
        kind, mapped = _classify_character(chr(code))
        _class[code] = kind
        if len(mapped) == 1:
            _single[code] = ord(mapped)
        elif kind == _MANY:
            _many[code] = mapped


def _classify_character(char: str) -> tuple[int, str]:
    if char in _HYPHENS:
        return _HYPHEN, "-"
    if char in _BREAKS:
        return _BREAK, " "
    if char.isspace():
        return _SPACE, " "
    if char in _GONE_CHARACTERS or ord(char) in _POINTS:
        return _GONE, ""
    category = unicodedata.category(char)
    if category.startswith("M") or any(first <= char <= last for first, last in _COMPOSED):
        return _MARK, char
    if category == "Cc":
        return _GONE, ""
    folded = _folded(char)
    return (_PLAIN if len(folded) == 1 else _MANY), folded


def _folded(cluster: str) -> str:
    """Fold a character and its marks to canonical form. Superscripts and fractions differ from digits."""
    category = unicodedata.category(cluster[0])
    if category == "No":
        return cluster
    if category == "Nd":
        return str(unicodedata.decimal(cluster[0])) + cluster[1:]
    composed = unicodedata.normalize("NFKC", cluster.translate(_ALIKE))
    if composed.startswith(" "):  # a lone accent, which would become a space with an accent
        composed = cluster
    return composed.translate(_ALIKE | _POINTS).casefold()


def _is_word(codes: NDArray[np.uint32]) -> NDArray[np.bool_]:
    for code in np.unique(codes[_word[codes] == _UNKNOWN]).tolist():
        _word[code] = unicodedata.category(chr(code))[0] in "LMN"
    return _word[codes] == 1


def _is_cjk(codes: NDArray[np.uint32]) -> NDArray[np.bool_]:
    found = np.zeros(len(codes), bool)
    for first, last in _CJK:
        found |= (codes >= first) & (codes <= last)
    return found


class _Canonicalizer:
    """Builds the canonical view of one text: first the output of each character, then the whole."""

    def __init__(self, text: str, codes: NDArray[np.uint32]) -> None:
        self._source = text
        self._codes = codes
        self._kinds = _class[codes]
        self._chars = _single[codes]
        # The number of characters that each one becomes, and where in the source those end.
        self._counts = np.ones(len(codes), np.int32)
        self._ends = np.arange(1, len(codes) + 1, dtype=np.int32)
        self._longer: dict[int, str] = {}
        self._joined: list[int] = []

    def view(self) -> TextView:
        self._counts[self._kinds == _GONE] = 0
        self._hyphens()
        self._clusters()
        self._spaces()
        return self._assembled()

    def _hyphens(self) -> None:
        """Remove hyphens at line ends between two letters, together with the line break."""
        for at in np.flatnonzero(self._kinds == _HYPHEN).tolist():
            char = self._source[at]
            after = self._line_end(at + 1)
            if char in _BREAKING_HYPHENS:
                after = at + 1 if after is None else after
            if after is None:
                if char == _SOFT_HYPHEN:
                    self._counts[at] = 0
                continue
            self._counts[at:after] = 0
            self._kinds[at:after] = _GONE
            if self._joins(at, after):
                self._joined.append(at)
            elif char != _SOFT_HYPHEN:
                self._counts[at], self._ends[at], self._kinds[at] = 1, after, _HYPHEN

    def _joins(self, at: int, after: int) -> bool:
        before = self._before(at)
        follows = self._source[after : after + 1]
        return before.isalpha() and (follows.islower() or (before.isupper() and follows.isupper()))

    def _before(self, at: int) -> str:
        while at and self._kinds[at - 1] in (_GONE, _MARK):
            at -= 1
        return self._source[at - 1 : at]

    def _line_end(self, at: int) -> int | None:
        """Return the start of the next line, if only blanks precede the line break; else None."""
        broken = False
        while at < len(self._codes):
            kind = self._kinds[at]
            if kind == _BREAK:
                broken = True
            elif kind not in (_SPACE, _GONE):
                break
            at += 1
        return at if broken else None

    def _clusters(self) -> None:
        """Fold each character together with its marks; the result may be several characters."""
        for at in np.flatnonzero((self._kinds == _MANY) & (self._counts > 0)).tolist():
            self._give(at, _many[int(self._codes[at])])
        marks = np.flatnonzero(self._kinds == _MARK)
        for start, end in _runs(marks):
            base = start - 1
            if base < 0 or self._kinds[base] not in (_PLAIN, _MANY):
                continue
            self._give(base, _folded(self._source[base:end]))
            self._ends[base] = end
            self._counts[start:end] = 0

    def _give(self, at: int, chars: str) -> None:
        self._counts[at] = len(chars)
        if len(chars) == 1:
            self._chars[at] = ord(chars)
            self._longer.pop(at, None)
        else:
            self._longer[at] = chars

    def _spaces(self) -> None:
        """Collapse runs of blanks to one; drop line breaks between two CJK characters."""
        blank = (self._kinds == _SPACE) | (self._kinds == _BREAK)
        through = blank | ((self._kinds == _GONE) & (self._counts == 0))
        places = np.flatnonzero(blank)
        if not len(places):
            return
        # Any visible character ends a run.
        inked = np.cumsum(~through)
        firsts = np.flatnonzero(np.diff(inked[places], prepend=-1))
        starts = places[firsts]
        lasts = places[np.append(firsts[1:], len(places)) - 1]
        self._counts[blank] = 0
        self._counts[starts] = 1
        self._chars[starts] = 0x20
        self._ends[starts] = lasts + 1
        inner = (starts > 0) & (lasts < len(self._codes) - 1)
        starts, lasts = starts[inner], lasts[inner]
        between = _is_cjk(self._codes[starts - 1]) & _is_cjk(self._codes[lasts + 1])
        for start, last in zip(starts[between].tolist(), lasts[between].tolist(), strict=True):
            if (self._kinds[start : last + 1] == _BREAK).any():
                self._counts[start] = 0

    def _assembled(self) -> TextView:
        index = np.repeat(np.arange(len(self._codes), dtype=np.int32), self._counts)
        codes = self._chars[index]
        firsts = np.cumsum(self._counts) - self._counts
        for at, chars in self._longer.items():
            first = int(firsts[at])
            codes[first : first + len(chars)] = _codes(chars)
        starts, ends = index, self._ends[index]
        first = 1 if len(codes) and codes[0] == 0x20 else 0
        last = len(codes) - 1 if len(codes) > first and codes[-1] == 0x20 else len(codes)
        joints = frozenset(int(firsts[at]) - first for at in self._joined)
        return TextView(_text(codes[first:last]), starts[first:last], ends[first:last], joints)


def _runs(places: NDArray[np.intp]) -> Iterator[tuple[int, int]]:
    """Yield the ranges of consecutive numbers."""
    if not len(places):
        return
    breaks = np.flatnonzero(np.diff(places) != 1) + 1
    for run in np.split(places, breaks):
        yield int(run[0]), int(run[-1]) + 1
