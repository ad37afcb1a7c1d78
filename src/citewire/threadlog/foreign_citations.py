"""Read citations that clients other than the agent attach to its answers as annotations."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from citewire.agui.citations.records import MessageCitation
from citewire.channels.annotation import Annotation
from citewire.channels.message import Message
from citewire.channels.offsets import decode_json_object, read_claimed_offsets
from citewire.dialects.deepcitation.entry import is_page
from citewire.model import Pages, Source, SourceRef
from citewire.text import Offsets

__all__ = ["ForeignCitation", "read_foreign_citation"]

# Characters read from a title or a URL.
_LONGEST = 2000


class ForeignCitation(Struct, frozen=True):
    """A citation that the client `by` attached to a message; `annotation` is the annotation's serial."""

    message_id: str
    cited: MessageCitation
    by: str | None
    annotation: str


def read_foreign_citation(annotation: Annotation, message: Message, message_id: str) -> ForeignCitation:
    """Read the citation that an annotation attaches to an answer with the id `message_id` in its thread.

    Accepts any data. A citation without anything to search for is checked as such.
    """
    data = decode_json_object(annotation.data, annotation.encoding)
    url, title = _text(data, "url"), _text(data, "title")
    page = data.get("page")
    source = Source(
        url or title or annotation.name or "",
        "web" if url else "unknown",
        url,
        title or (None if url else annotation.name),
    )
    locator = Pages(page, page) if type(page) is int and is_page(page) else None
    quote = next((text for name in ("snippet", "quote") if (text := _text(data, name, None))), None)
    ref = SourceRef(source.id, locator, quote)
    cited = MessageCitation(ref, source, claim=_claim(annotation, message))
    return ForeignCitation(message_id, cited, annotation.client_id, annotation.serial)


def _text(data: dict[str, Any], name: str, most: int | None = _LONGEST) -> str | None:
    value = data.get(name)
    return value[:most] if isinstance(value, str) and value.strip() else None


def _claim(annotation: Annotation, message: Message) -> str:
    """Return the text that the citation is about, or "" if its offsets lie outside the message."""
    claim, text = read_claimed_offsets(annotation.type, annotation.data, annotation.encoding), message.text
    if text is None or claim is None or claim.start is None or claim.end is None or claim.unit is None:
        return ""
    span = Offsets(text).span(claim.start, claim.end, claim.unit)
    return text[span.start : span.end] if span else ""
