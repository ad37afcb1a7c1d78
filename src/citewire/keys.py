"""Citation keys: sixteen hex characters that name a citation by what it says.

`key` is the one DeepCitation's clients compute (its v1): the first half of a SHA-1 over the quote, the
anchor, the page and the lines, joined by `|`. It forgets the attachment, and `a|b` + `c` collides with
`a` + `b|c`. `key_v2` does neither. `assign` gives a thread its keys: the first citation keeps its v1
key, a different one that would collide gets its v2 key, and nothing is ever renamed.
"""

from __future__ import annotations

import hashlib
from typing import Any

from citewire.model import Lines, Pages, Source, SourceRef, Times

__all__ = ["Keys", "key", "key_v2"]

_LENGTH = 16


def key(ref: SourceRef, source: Source) -> str:
    """The v1 key of one source of a citation."""
    return _digest("|".join(_fields(ref, source)).encode("utf-8", "surrogatepass"))


def key_v2(ref: SourceRef, source: Source) -> str:
    """The v2 key: the same fields and the attachment, encoded so that no two lists look alike."""
    fields = [source.file_id or source.id, *_fields(ref, source)]
    return _digest(b"v2" + b"".join(b"%d:%s" % (len(data), data) for data in map(_utf8, fields)))


class Keys:
    """The keys of one thread, handed out in the order in which citations appear."""

    def __init__(self) -> None:
        self._owners: dict[str, tuple[str, ...]] = {}

    def assign(self, ref: SourceRef, source: Source) -> str:
        """The key of this citation: always the same for the same one, never shared by two."""
        owner = (source.file_id or source.id, *_fields(ref, source))
        for make in (key, key_v2):
            name = make(ref, source)
            if self._owners.setdefault(name, owner) == owner:
                return name
        return _digest("\0".join(owner).encode("utf-8", "surrogatepass"))


def _fields(ref: SourceRef, source: Source) -> list[str]:
    locator = ref.locator
    phrase = [ref.quote or "", ref.anchor or ""]
    if isinstance(locator, Times):
        return [*phrase, "", "", source.file_id or "", locator.start or "", locator.end or ""]
    place = [str(_page(locator) or ""), _lines(locator)]
    if source.kind == "web" and source.url is not None:
        return [*phrase, *place, source.url, source.title or "", source.domain or ""]
    return [*phrase, *place]


def _page(locator: Any) -> int | None:
    match locator:
        case Pages(first=page) | Lines(page=page):
            return page
        case _:
            return None


def _lines(locator: Any) -> str:
    return ",".join(map(str, locator.ids)) if isinstance(locator, Lines) else ""


def _utf8(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _digest(data: bytes) -> str:
    return hashlib.sha1(data, usedforsecurity=False).hexdigest()[:_LENGTH]
