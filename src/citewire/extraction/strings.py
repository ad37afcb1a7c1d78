"""Read a string as models write it: in any quotation marks, with raw line breaks and quotation marks within.

A quotation mark ends the string if the text after it says so. In plain JSON that is every unescaped one, so
plain JSON is read correctly. The content of a string is not changed, except that the backslash of an unknown
escape is removed. Every look-ahead is bounded: the work is linear, however the text is split.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable

from citewire.dialects.deepcitation import ALIASES
from citewire.extraction.delimiters import DELIMITER, LONGEST_DELIMITER, ScanBuffer

__all__ = ["FIELD_NAMES", "QUOTE_MARKS", "QUOTE_PAIRS", "StringReader"]

FIELD_NAMES = frozenset(ALIASES) | {spelling for spellings in ALIASES.values() for spelling in spellings}
"""Every spelling of every field."""
QUOTE_PAIRS = {'"': '"', "'": "'", "“": '”“"', "”": '”"', "„": '“”"', "‘": "’‘'", "’": "’'"}
"""What opens a string, and what may close it."""
QUOTE_MARKS = "".join(QUOTE_PAIRS)

# How far to look after a quotation mark, and after a line break or delimiter.
_BEHIND_QUOTE, _BEHIND_BREAK = 80, 200
_PLAIN = {opener: re.compile(f'[^{re.escape(closers)}"\\\\<\n]+') for opener, closers in QUOTE_PAIRS.items()}
_NAME = f"(?:{'|'.join(sorted(FIELD_NAMES, key=len, reverse=True))})"
_END = r"(?:\Z|```|(?:\\?<|&lt;){3})"
# After a quotation mark: a bracket, or a comma and a key. Quoted words have neither after them.
_ENDS_VALUE = re.compile(
    rf'\s*(?:\}}\s*[,}}\]]|,\s*"[^"\\\n]{{0,60}}"\s*:|,\s*[{QUOTE_MARKS}]?{_NAME}[{QUOTE_MARKS}]?\s*:|[{QUOTE_MARKS}]{_NAME}[{QUOTE_MARKS}]\s*:)'
)
_MAY_END_VALUE = re.compile(
    rf"\s*(?:{_END}|[\]}}]\s*(?:[,}}\]]|{_END})"
    rf'|,\s*(?:{_END}|[}}\]]|\{{\s*(?:[{QUOTE_MARKS}]|\Z)|//|/\*|\#|"(?![^"\\]*"\s*(?!```|<<<)[^\s:])))'
)
# Enough for a string without quotation marks in it so far.
_CLOSED = re.compile(r"\s*\}")
_ENDS_ITEM = re.compile(rf"\s*(?:[,\]}}]|{_END})")
_NEVER_ENDS = re.compile(rf"\s*[^\s,}}\]`<\\&{QUOTE_MARKS}]")
_ENDS_AT_BREAK = re.compile(
    rf"\s*(?:[}}\]]\s*,?\s*(?:[{{}}\]]|{_END})|,?\s*[{QUOTE_MARKS}]{_NAME}[{QUOTE_MARKS}]\s*:)"
)
_ENDS_LATER = re.compile(rf"[^\n]*[{QUOTE_MARKS}]\s*(?:[,}}\]]|\Z)")
_SPACE = re.compile(r"\s+")
_ESCAPE = re.compile(r'\\(?:(["\\/bfnrt]|u[0-9a-fA-F]{4})|[\s\S]?)')
_decode = json.JSONDecoder(strict=False).decode


class StringReader:
    """Reads one string after another from a buffer, and reports repairs."""

    def __init__(self, buffer: ScanBuffer, repaired: Callable[[str], None]) -> None:
        self._buffer = buffer
        self._repaired = repaired
        self._opener = ""
        self._role = "value"
        self._pieces: list[str] = []
        self._has_quotes = False
        self.is_cut = False

    def open(self, opener: str, role: str) -> None:
        """Start a string: a `key`, the `value` of one, or an `item` of a list."""
        self._buffer.at += 1
        self._opener, self._role, self._pieces, self._has_quotes = opener, role, [], False
        if opener != '"':
            self._repaired("quote marks")

    def read(self) -> str | None:
        """Return the string, once it has ended; `is_cut` if a delimiter comes first."""
        goes_on: bool | None = True
        while goes_on:
            goes_on = self._read()
        return _unescaped("".join(self._pieces), self._repaired) if goes_on is False else None

    def _read(self) -> bool | None:
        """Read a piece; False at the end of the string, None if it is too early to tell."""
        buffer, text = self._buffer, self._buffer.text
        if plain := _PLAIN[self._opener].match(text, buffer.at):
            self._take(plain.end())
        if buffer.at == len(text):
            return None
        match text[buffer.at]:
            case "\\":
                return self._take(buffer.at + 2) if buffer.at + 1 < len(text) else None
            case "<":
                return self._at_bracket()
            case "\n":
                return self._at_break()
            case char if char in QUOTE_PAIRS[self._opener]:
                return self._at_quote(char)
            case _:
                return self._take(buffer.at + 1)

    def _take(self, end: int) -> bool:
        buffer = self._buffer
        taken = buffer.text[buffer.at : end]
        self._pieces.append('\\"' if taken == '"' else taken)
        buffer.at = end
        return True

    def _at_quote(self, char: str) -> bool | None:
        closes = self._role == "key" or self._closes()
        if closes:
            self._buffer.at += 1
            return False
        if closes is None:
            return None
        self._has_quotes = True
        self._repaired("quote marks within a string")
        return self._take(self._buffer.at + 1)

    def _closes(self) -> bool | None:
        seen, settled = self._buffer.look_ahead(self._buffer.at + 1, _BEHIND_QUOTE)
        in_list = self._role == "item"
        if not in_list and (_ENDS_VALUE.match(seen) or (not self._has_quotes and _CLOSED.match(seen))):
            return True
        if _NEVER_ENDS.match(seen):
            return False
        return bool((_ENDS_ITEM if in_list else _MAY_END_VALUE).match(seen)) if settled else None

    def _at_bracket(self) -> bool | None:
        """Handle `<`: a delimiter ends the block, unless the string continues after it on the same line."""
        buffer, text = self._buffer, self._buffer.text
        if not "<<<".startswith(text[buffer.at : buffer.at + 3]):
            return self._take(buffer.at + 1)
        found = DELIMITER.match(text, buffer.at)
        if found is None:
            return self._take(buffer.at + 1) if buffer.look_ahead(buffer.at, LONGEST_DELIMITER)[1] else None
        seen, settled = buffer.look_ahead(found.end(), _BEHIND_BREAK)
        later = _ENDS_LATER.match(seen)
        if not settled and ("\n" not in seen or (later and later.end() == len(seen))):
            return None
        if later:
            return self._take(found.end())
        self.is_cut = True
        return None

    def _at_break(self) -> bool | None:
        """Handle a line break, at which the string may have been left open."""
        seen, settled = self._buffer.look_ahead(self._buffer.at, _BEHIND_BREAK)
        if not settled:
            return None
        if self._role != "key" and _ENDS_AT_BREAK.match(seen):
            self._repaired("unclosed string")
            if self._pieces:
                self._pieces[-1] = self._pieces[-1].rstrip().removesuffix(",")
            return False
        self._repaired("line breaks within a string")
        space = _SPACE.match(seen)
        return self._take(self._buffer.at + (space.end() if space else 1))


def _unescaped(text: str, repaired: Callable[[str], None]) -> str:
    if "\\" not in text:
        return text

    def known(escape: re.Match[str]) -> str:
        if escape[1]:
            return escape[0]
        repaired("unknown escapes")
        return escape[0][1:]

    return _decode(f'"{_ESCAPE.sub(known, text)}"')
