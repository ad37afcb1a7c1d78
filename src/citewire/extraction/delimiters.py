"""The delimiters of a data block in model text, in any spelling, and a buffer for text in pieces."""

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


# A line break before a delimiter belongs to it, as does a fence or emphasis opened for it.
_BREAK = r"(?:\r?\n\s{0,15}|(?<![\s\S])\s{0,15})"
_FENCE = r"```[\w-]{0,12}[ \t]{0,3}"
_LEAD = re.compile(rf"{_BREAK}(?P<wrap>{_FENCE}\r?\n\s{{0,15}}|[*_]{{1,3}})?\Z|\Z")
_LEAD_BEGINS = re.compile(rf"{_BREAK}(?:`{{1,3}}|{_FENCE}(?:\r?\n\s{{0,15}}|\r)?|[*_]{{1,3}})?\Z|\r\Z|\Z")
# Their greatest lengths, without a fence and with one.
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
    """Return where a delimiter starts that is cut off at the end of the text; `<<<CI` is the shortest."""
    found = _CUT.search(text, max(low, len(text) - LONGEST_DELIMITER))
    return found.start() if found else None


def is_cut_end(text: str, at: int) -> bool:
    """Return whether the text from `at` on is the start of an end delimiter."""
    return _CUT_END.match(text, at) is not None or _CUT.match(text, at) is not None


def find_lead(text: str, low: int, at: int) -> tuple[int, bool]:
    """Return where the lead of the delimiter at `at` starts, and whether it opens a fence or emphasis."""
    # Most delimiters follow a character that ends no lead: those need no search.
    if at > low and not (text[at - 1].isspace() or text[at - 1] in "*_"):
        return at, False
    found = _before(_LEAD, text, low, at)
    return found.start(), bool(found["wrap"])


def find_held_back(text: str, low: int) -> int:
    """Return where the end of a text starts that may be the start of a delimiter or a tag."""
    begins = cast("re.Match[str]", _BEGINS.search(text, max(low, len(text) - LONGEST_DELIMITER)))
    return _before(_LEAD_BEGINS, text, low, begins.start()).start()


def _before(pattern: re.Pattern[str], text: str, low: int, at: int) -> re.Match[str]:
    """Return the match, perhaps empty, that ends at `at`; the search goes back a bounded distance."""
    reach = _BLANKS if text.find("`", max(low, at - _FENCED), at) < 0 else _FENCED
    return cast("re.Match[str]", pattern.search(text, max(low, at - reach), at))


class ScanBuffer:
    """Text that arrives in pieces; the text before `at` has been read.

    One character before `at` is retained, for patterns that look back.
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
        """Append text that needs no reading, when nothing else is left to read."""
        self.start += len(self.text)
        self.text = delta
        self.at = len(delta)

    def offset_of(self, at: int | None = None) -> int:
        """Return the offset of `at`, or of the next character, in the whole text."""
        return self.start + (self.at if at is None else at)

    def look_ahead(self, at: int, size: int) -> tuple[str, bool]:
        """Return up to `size` characters from `at` on, and whether that is final."""
        seen = self.text[at : at + size]
        return seen, self.ended or len(seen) == size
