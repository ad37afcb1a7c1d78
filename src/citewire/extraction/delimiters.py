"""The delimiters of a data block in model text, however they are spelt, and text that comes in pieces."""

from __future__ import annotations

import re
from typing import cast

__all__ = [
    "DELIMITER",
    "LONGEST_DELIMITER",
    "ScanBuffer",
    "find_cut_delimiter",
    "find_held_back",
    "find_lead",
    "is_cut_end",
]

_LT, _GT = r"(?:\\?<|&lt;)", r"(?:\\?>|&gt;)"
_GAP = r"(?:\\?_|[ -])"
_NAME = (*"CITATION", _GAP, *"DATA", "[ ]?", _GT, _GT, _GT)

DELIMITER = re.compile(rf"{_LT}{{3}}[ ]?(?P<end>END{_GAP}|/)?CITATION{_GAP}DATA[ ]?{_GT}{{3}}", re.IGNORECASE)
"""A delimiter; the group `end` tells which. Models write them in lower case, escaped and as entities, too."""


LONGEST_DELIMITER = 48
"""No delimiter is longer."""


def _prefixes(parts: tuple[str, ...]) -> str:
    pattern = ""
    for part in reversed(parts):
        pattern = f"(?:{part}{pattern})?"
    return pattern


# A line break in front of a delimiter goes with it, and so does the fence or emphasis that was opened for it.
_BREAK = r"(?:\r?\n\s{0,15}|(?<![\s\S])\s{0,15})"
_FENCE = r"```[\w-]{0,12}[ \t]{0,3}"
_LEAD = re.compile(rf"{_BREAK}(?P<wrap>{_FENCE}\r?\n\s{{0,15}}|[*_]{{1,3}})?\Z|\Z")
_LEAD_BEGINS = re.compile(rf"{_BREAK}(?:`{{1,3}}|{_FENCE}(?:\r?\n\s{{0,15}}|\r)?|[*_]{{1,3}})?\Z|\r\Z|\Z")
# How long those get, without a fence and with one.
_BLANKS, _FENCED = 20, 52

_DELIMITER_BEGINS = (
    rf"(?:{_LT}(?:{_prefixes((_LT, _LT, '[ ]?', *_NAME))}|{_LT}{_LT}[ ]?{_prefixes((*'END', _GAP, *_NAME))}"
    rf"|{_LT}{_LT}[ ]?{_prefixes(('/', *_NAME))}))?"
    r"(?:\\|&(?:[lg]t?)?)?"
)
_TAG_BEGINS = r"<(?:c(?:i(?:te?)?)?|/(?:c(?:i(?:t(?:e\s{0,9})?)?)?)?)?"
_BARE_TAG_BEGINS = r"(?<![A-Za-z<])c(?:i(?:t(?:e(?:\s{1,9}[\w\\]{0,13}\s?)?)?)?)?"
_BEGINS = re.compile(
    rf"(?=[<&\\c]|\Z)(?:{_DELIMITER_BEGINS}|{_TAG_BEGINS}|{_BARE_TAG_BEGINS})\Z", re.IGNORECASE
)


_REST = _prefixes((*"TATION", _GAP, *"DATA", "[ ]?", _GT, _GT, _GT))
_CUT = re.compile(
    rf"{_LT}{{3}}[ ]?(?:(?P<open>CI{_REST})|(?:END{_GAP}|/)CI{_REST})(?:\\|&(?:gt?)?)?\Z", re.IGNORECASE
)
_CUT_END = re.compile(rf"{_LT}{{3}}[ ]?(?:E(?:ND?)?|{_prefixes((*'END', _GAP, *_NAME))})?\Z", re.IGNORECASE)


def find_cut_delimiter(text: str, low: int) -> int | None:
    """Where a delimiter starts that the end of the text cut off; `<<<CI` is the least that is one."""
    found = _CUT.search(text, max(low, len(text) - LONGEST_DELIMITER))
    return found.start() if found else None


def is_cut_end(text: str, at: int) -> bool:
    """Whether the text from `at` on is the start of a delimiter that would end a block."""
    return _CUT_END.match(text, at) is not None or _CUT.match(text, at) is not None


def find_lead(text: str, low: int, at: int) -> tuple[int, bool]:
    """Where what belongs to the delimiter at `at` starts, and whether it opens a fence or emphasis."""
    # Most delimiters stand behind something that ends no lead: those need no search.
    if at > low and not (text[at - 1].isspace() or text[at - 1] in "*_"):
        return at, False
    found = _before(_LEAD, text, low, at)
    return found.start(), bool(found["wrap"])


def find_held_back(text: str, low: int) -> int:
    """Where the end of a text starts that may be the start of a delimiter or of a tag."""
    begins = cast("re.Match[str]", _BEGINS.search(text, max(low, len(text) - LONGEST_DELIMITER)))
    return _before(_LEAD_BEGINS, text, low, begins.start()).start()


def _before(pattern: re.Pattern[str], text: str, low: int, at: int) -> re.Match[str]:
    """What ends at `at`, if only in nothing; looked for just before it, so that work is bounded."""
    reach = _BLANKS if text.find("`", max(low, at - _FENCED), at) < 0 else _FENCED
    return cast("re.Match[str]", pattern.search(text, max(low, at - reach), at))


class ScanBuffer:
    """Text that comes in pieces, of which what stands before `at` has been read.

    One character of that is kept, for those who must know what stands before.
    """

    __slots__ = ("at", "ended", "start", "text")

    def __init__(self) -> None:
        self.text = ""
        self.at = 0
        self.start = 0
        self.ended = False

    def grow(self, delta: str) -> None:
        cut = max(self.at - 1, 0)
        self.text = self.text[cut:] + delta if cut < len(self.text) else delta
        self.start += cut
        self.at -= cut

    def skip(self, delta: str) -> None:
        """Grow by what needs no reading, when nothing else is left to read."""
        self.start += len(self.text)
        self.text = delta
        self.at = len(delta)

    def offset_of(self, at: int | None = None) -> int:
        """The offset of `at`, or of what comes next, in the whole text."""
        return self.start + (self.at if at is None else at)

    def look_ahead(self, at: int, size: int) -> tuple[str, bool]:
        """Up to `size` characters from `at` on, and whether it will stay at that."""
        seen = self.text[at : at + size]
        return seen, self.ended or len(seen) == size
