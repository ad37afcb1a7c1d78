"""Convert offsets between the three units that providers use, and make text safe for a log line.

Python counts code points, JavaScript and Salesforce UTF-16 units, Google UTF-8 bytes. An `Offsets` is built
once per text, in one pass, and then converts in O(log n). ASCII text needs no table at all.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from functools import cached_property
from typing import Literal, NamedTuple

__all__ = ["Offsets", "ResolvedSpan", "Unit", "common_prefix_length", "one_line"]

Unit = Literal["codepoints", "utf16", "utf8"]
UNITS: tuple[Unit, ...] = ("codepoints", "utf16", "utf8")

_ASTRAL = re.compile("[\U00010000-\U0010ffff]")

# Code points between two checkpoints of the byte table: large enough that the table is small,
# small enough that encoding one stretch costs well under a microsecond.
_STRIDE = 256

# How many whole-text searches one `Offsets` makes for texts that are not where they should be. After that it
# searches only near the offset, so that hostile payloads cost no more than honest ones.
_FULL_SEARCHES = 64
_NEAR = 2048

# Texts that are shorter or contain no word occur everywhere: finding one elsewhere proves nothing.
_SHORTEST_SEARCH = 4


class ResolvedSpan(NamedTuple):
    """A span in code points. `repaired` is True if it differs from what the payload said."""

    start: int
    end: int
    repaired: bool


class Offsets:
    """Converts offsets of one text to and from code points."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._ascii = text.isascii()
        self._searches_left = _FULL_SEARCHES

    @cached_property
    def _astral(self) -> list[int]:
        """The offsets of all characters that take two UTF-16 units."""
        if len(self.text.encode("utf-16-le", "surrogatepass")) == 2 * len(self.text):
            return []
        return [match.start() for match in _ASTRAL.finditer(self.text)]

    @cached_property
    def _astral_units(self) -> list[int]:
        return [at + before for before, at in enumerate(self._astral)]

    @cached_property
    def _bytes(self) -> list[int]:
        """The byte offset of every `_STRIDE`-th code point."""
        table, total = [0], 0
        for at in range(0, len(self.text), _STRIDE):
            total += _byte_length(self.text[at : at + _STRIDE])
            table.append(total)
        return table

    def length(self, unit: Unit) -> int:
        """Return the length of the text in `unit`."""
        if self._ascii or unit == "codepoints":
            return len(self.text)
        return len(self.text) + len(self._astral) if unit == "utf16" else self._bytes[-1]

    def to_unit(self, at: int, unit: Unit) -> int:
        """Convert a code point offset to `unit`. `at` must be within the text."""
        if self._ascii or unit == "codepoints":
            return at
        if unit == "utf16":
            return at + bisect_left(self._astral, at)
        stretch = at // _STRIDE
        return self._bytes[stretch] + _byte_length(self.text[stretch * _STRIDE : at])

    def from_unit(self, offset: int, unit: Unit) -> tuple[int, bool]:
        """Convert `offset` to code points, and return whether it was on a character boundary.

        An offset within a surrogate pair or byte sequence becomes the start of that character. `offset` must
        be within the text.
        """
        if self._ascii or unit == "codepoints":
            return offset, True
        if unit == "utf16":
            before = bisect_left(self._astral_units, offset)
            split = before > 0 and self._astral_units[before - 1] == offset - 1
            return offset - before, not split
        return self._from_bytes(offset)

    def _from_bytes(self, offset: int) -> tuple[int, bool]:
        if offset == self._bytes[-1]:
            return len(self.text), True
        stretch = bisect_right(self._bytes, offset) - 1
        first = stretch * _STRIDE
        edge = rest = offset - self._bytes[stretch]
        # This many bytes hold at most this many characters.
        data = self.text[first : first + rest + 1].encode("utf-8", "surrogatepass")
        while edge < len(data) and data[edge] & 0xC0 == 0x80:
            edge -= 1
        return first + len(data[:edge].decode("utf-8", "surrogatepass")), edge == rest

    def span(self, start: int, end: int, unit: Unit) -> ResolvedSpan | None:
        """Convert a span to code points, or return None if it is reversed or outside the text.

        A span that splits a character is widened to include it, and marked as repaired.
        """
        if not 0 <= start <= end or end > self.length(unit):
            return None
        first, first_whole = self.from_unit(start, unit)
        last, last_whole = self.from_unit(end, unit)
        return ResolvedSpan(first, last if last_whole else last + 1, not (first_whole and last_whole))

    def point(self, offset: int, unit: Unit) -> ResolvedSpan | None:
        """Convert a point to an empty span in code points, or return None if it is outside the text."""
        if not 0 <= offset <= self.length(unit):
            return None
        at, whole = self.from_unit(offset, unit)
        return ResolvedSpan(at, at, not whole)

    def find_covered(self, start: int, end: int, unit: Unit, covered: str) -> ResolvedSpan | None:
        """Find the span of `covered`: at the offsets, in another unit, or the nearest one. None if absent."""
        for candidate in sorted(UNITS, key=lambda other: other != unit):
            found = self.span(start, end, candidate)
            if found and self.text[found.start : found.end] == covered:
                return ResolvedSpan(found.start, found.end, found.repaired or candidate != unit)
        near = self.from_unit(min(max(start, 0), self.length(unit)), unit)[0]
        at = self.find_nearest(covered, near)
        return None if at is None else ResolvedSpan(at, at + len(covered), repaired=True)

    def find_unique(self, needle: str) -> int | None:
        """Return the offset of `needle` if it occurs exactly once and searches are left, else None."""
        if not self._searches_left or not needle:
            return None
        self._searches_left -= 1
        at = self.text.find(needle)
        return at if at >= 0 and self.text.find(needle, at + 1) < 0 else None

    def find_nearest(self, needle: str, near: int) -> int | None:
        """Return the occurrence of `needle` closest to `near`. None if it is too short to be distinctive."""
        if len(needle) < _SHORTEST_SEARCH or not any(char.isalnum() for char in needle):
            return None
        near = min(max(near, 0), len(self.text))
        low, high = 0, len(self.text)
        if self._searches_left:
            self._searches_left -= 1
        else:
            low, high = max(0, near - _NEAR), near + _NEAR + len(needle)
        after = self.text.find(needle, near, high)
        end = min(near + len(needle), len(self.text))
        # str.rfind takes quadratic time on near misses; str.find does not, and works backwards as well.
        back = self.text[low:end][::-1].find(needle[::-1])
        found = [at for at in (after, end - back - len(needle) if back >= 0 else -1) if at >= 0]
        return min(found, key=lambda at: abs(at - near), default=None)


def _byte_length(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))


def common_prefix_length(one: str, other: str) -> int:
    """Return the length of the common prefix of two texts."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


# ANSI sequences: CSI, OSC and the two-character escapes.
_ANSI = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"
    r"|(?:\x1b\]|\x9d)[^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c)?"
    r"|\x1b[ -/]*[0-~]?"
)
# Controls, line and paragraph separators, direction marks and overrides, lone surrogates.
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}

# How much of a long value is scanned, as a multiple of the limit.
_LOG_SCAN = 8


def _repr(value: object) -> str:
    try:
        return repr(value)
    except Exception:  # noqa: BLE001  a log line must not fail for what some object makes of itself
        return f"<{type(value).__name__}>"


def one_line(value: object, limit: int = 1000) -> str:
    """Return `value` on one line, safe for a log or terminal, with at most `limit` characters."""
    text = value if isinstance(value, str) else _repr(value)
    line = _ANSI.sub("", text[: limit * _LOG_SCAN])
    line = _CONTROL.sub(lambda match: _SHORT.get(match[0]) or f"\\u{ord(match[0]):04x}", line)
    if len(text) <= limit * _LOG_SCAN and len(line) <= limit:
        return line
    return line[: max(limit - 1, 0)] + "…"[:limit]
