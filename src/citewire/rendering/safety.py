"""Clean untrusted text for every format: no hidden characters, no link that runs code."""

from __future__ import annotations

import re

__all__ = ["clean_line", "clean_text", "safe_link"]

# Control characters except newline and tab, characters that reorder text (bidirectional embeddings, overrides
# and isolates), and lone surrogates, which cannot be encoded.
_HIDDEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_DELETE = "\x7f"
_REORDERS = re.compile("[\u202a-\u202e\u2066-\u2069]")

# Characters that a browser drops from a URL before it reads the scheme: controls and blanks at the ends, tab
# and newline anywhere.
_EDGES = "".join(map(chr, range(0x21)))
_DROPPED = str.maketrans("", "", "\t\n\r")

# Characters that end or break a link in some format, or that are invisible.
_UNSAFE = (
    r"\x00-\x20\x7f-\xa0\"'<>\\^`{|}\xad\u061c\u1680\u2000-\u200f\u2028-\u202f\u205f-\u206f"
    r"\u3000\ufeff\ud800-\udfff"
)
_ENCODED = re.compile(f"[{_UNSAFE}]")
# An unsafe character in the host is never encoded but refused: encoding could make it another host.
_LINKABLE = re.compile(rf"(?:https?://[^/?#{_UNSAFE}]+(?=[/?#]|\Z)|mailto:[^{_UNSAFE}])", re.IGNORECASE)


def clean_text(text: str) -> str:
    """Return `text` with newline and tab as its only control characters.

    Other controls become visible signs (`␛`), to expose an attempt; characters that reorder text are removed.
    """
    return _HIDDEN.sub(_visible, text.replace("\r\n", "\n").replace("\r", "\n"))


def _visible(match: re.Match[str]) -> str:
    char = match[0]
    if char < " ":
        return chr(0x2400 + ord(char))
    if char == _DELETE:
        return "␡"
    return "" if _REORDERS.match(char) else "\ufffd"


def clean_line(text: str) -> str:
    """Return cleaned `text`, with each run of white space as a single space."""
    return " ".join(clean_text(text).split())


def safe_link(url: str) -> str | None:
    """Return `url` in a form that is safe to link, or None if it must only be shown.

    Only absolute http, https and mailto URLs are linked. White space, quotes, angle brackets, backslashes,
    backticks and pipes are percent-encoded.
    """
    bare = url.strip(_EDGES).translate(_DROPPED)
    return _ENCODED.sub(_percent, bare) if _LINKABLE.match(bare) else None


def _percent(match: re.Match[str]) -> str:
    return "".join(f"%{byte:02X}" for byte in match[0].encode("utf-8", "replace"))
