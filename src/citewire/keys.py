"""Citation keys: 16 hex characters that identify a citation by its content.

`key` is the one that DeepCitation's clients compute (its v1): the first half of a SHA-1 over the quote, the
anchor, the page and the lines, joined by `|`. It ignores the attachment, and `a|b` + `c` collides with `a` +
`b|c`. `key_v2` fixes both. `CitationKeys.assign` gives a thread its keys: the first citation gets its v1 key,
a different one that would collide gets its v2 key, and no key ever changes.
"""

from __future__ import annotations

from hashlib import sha1

from citewire.model import Lines, Pages, Source, SourceRef, Times

__all__ = ["CitationKeys", "key", "key_v2"]

_LENGTH = 16


def key(ref: SourceRef, source: Source) -> str:
    """Return the v1 key of one source of a citation."""
    return _digest(_utf8("|".join(_fields(ref, source))))


def key_v2(ref: SourceRef, source: Source) -> str:
    """Return the v2 key: the same fields plus the attachment, encoded unambiguously."""
    return _digest_v2((source.file_id or source.id, *_fields(ref, source)))


class CitationKeys:
    """The keys of one thread, assigned in the order in which citations appear."""

    def __init__(self) -> None:
        self._owners: dict[str, tuple[str, tuple[str, ...]]] = {}

    def assign(self, ref: SourceRef, source: Source) -> str:
        """Return the key of a citation. Equal citations always share a key; different ones never do."""
        fields = _fields(ref, source)
        owner = (source.file_id or source.id, fields)
        name = _digest("|".join(fields).encode("utf-8", "surrogatepass"))
        if self._owners.setdefault(name, owner) == owner:
            return name
        name = _digest_v2((owner[0], *fields))
        if self._owners.setdefault(name, owner) == owner:
            return name
        return _digest(_utf8("\0".join((owner[0], *fields))))


def _fields(ref: SourceRef, source: Source) -> tuple[str, ...]:
    quote, anchor = ref.quote or "", ref.anchor or ""
    page, lines = "", ""
    match ref.locator:
        case Lines() as locator:
            page, lines = str(locator.page or ""), ",".join(map(str, locator.ids))
        case Pages() as locator:
            page = str(locator.first or "")
        case Times() as locator:
            return (quote, anchor, "", "", source.file_id or "", locator.start or "", locator.end or "")
        case _:
            pass
    if source.kind == "web" and source.url is not None:
        return (quote, anchor, page, lines, source.url, source.title or "", source.domain or "")
    return (quote, anchor, page, lines)


def _digest_v2(fields: tuple[str, ...]) -> str:
    return _digest(b"v2" + b"".join(b"%d:%s" % (len(data), data) for data in map(_utf8, fields)))


def _utf8(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _digest(data: bytes) -> str:
    return sha1(data, usedforsecurity=False).hexdigest()[:_LENGTH]
