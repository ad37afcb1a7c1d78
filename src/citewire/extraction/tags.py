"""Read the attributes of `<cite …/>`, in any quoting and escaping that models use.

A value extends to the next known attribute, so quotation marks within it do no harm.
"""

from __future__ import annotations

import html
import re
from typing import Any, NamedTuple

from citewire.extraction.delimiters import ScanBuffer
from citewire.extraction.strings import FIELD_NAMES

__all__ = ["CLOSING", "OPENING", "Tag", "read_tag"]

OPENING = re.compile(
    r"<cite(?=[\s/>])|(?<![A-Za-z<])cite(?=\s{1,9}(?:attachment|file)\\?[_-]?id\s?=)", re.IGNORECASE
)
"""How a tag starts; models forget the bracket."""
CLOSING = re.compile(r"</cite\s{0,9}>", re.IGNORECASE)

# Longer than any intended tag, so that an unclosed one holds nothing back.
_LONGEST = 4000
_END = re.compile(r"""(?:["'”’]|=\s?[^\s"'=<>]+|cite)\s*(?P<empty>/)?>""")
_BREAK = re.compile(r"<cite\s|\n[ \t]*\n", re.IGNORECASE)
_NAMES = "|".join(
    name.replace("_", r"\\?_") for name in sorted(FIELD_NAMES, key=len, reverse=True) if len(name) > 1
)
_ATTRIBUTE = re.compile(rf"(?:^|(?<=[\s'\"”’]))({_NAMES})\s?=\s?(?=\\?[\"'“‘]|[\[\w])")
_ESCAPED = re.compile(r"\\+(['\"])|\\n|\\([\\_])|\s*\n\s*")


class Tag(NamedTuple):
    """A tag: its attributes, its end in the buffer, and whether it has content."""

    raw: dict[str, Any]
    end: int
    is_pair: bool
    is_closed: bool


def read_tag(buffer: ScanBuffer, start: int) -> Tag | None:
    """Read the tag at `start`; None if its end has not arrived. Without attributes it is not one of ours."""
    seen, settled = buffer.look_ahead(start, _LONGEST)
    opened = OPENING.match(buffer.text, start)
    name = opened.end() - start if opened else 0
    broken = _BREAK.search(seen, name)
    limit = broken.start() if broken else len(seen)
    end = _END.search(seen, name - 4, limit)
    if end is None and broken is None and not settled:
        return None
    if end is None:
        line = seen.find("\n", name, limit)
        stop = line if line >= 0 else limit
        return Tag(_attributes(seen[name:stop]), start + stop, is_pair=False, is_closed=False)
    body = seen[name : end.end() - 1].removesuffix("/")
    return Tag(_attributes(body), start + end.end(), is_pair=not end["empty"], is_closed=True)


def _attributes(body: str) -> dict[str, Any]:
    found = list(_ATTRIBUTE.finditer(body))
    ends = (*(match.start() for match in found[1:]), len(body))
    return {
        match[1].replace("\\", ""): _value(body[match.end() : end].strip())
        for match, end in zip(found, ends, strict=False)
    }


def _value(quoted: str) -> str:
    text = quoted.removeprefix("\\")
    if text[:1] in "\"'“‘" and text:
        text = text[1:]
        text = text[:-1] if text[-1:] in "\"'”’" else text
        text = text.removesuffix("\\")
    return _ESCAPED.sub(_plain, html.unescape(text) if "&" in text else text)


def _plain(escaped: re.Match[str]) -> str:
    return escaped[1] or escaped[2] or " "
