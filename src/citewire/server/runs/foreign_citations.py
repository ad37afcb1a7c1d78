"""Citations that others than the agent put on its answers, out of the annotations that say so."""

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

# Characters of a title or an address that are looked at.
_LONGEST = 2000


class ForeignCitation(Struct, frozen=True):
    """What somebody says that a message of a thread cites: `by` is who, `annotation` the serial of where."""

    message_id: str
    cited: MessageCitation
    by: str | None
    annotation: str


def read_foreign_citation(annotation: Annotation, message: Message, message_id: str) -> ForeignCitation:
    """The citation that an annotation makes of an answer, which goes by `message_id` in its thread.

    Whatever its data is, it is one; what gives nothing to look for is checked as that.
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
    """The words that the citation is about, where its offsets are within the message."""
    claim, text = read_claimed_offsets(annotation.type, annotation.data, annotation.encoding), message.text
    if text is None or claim is None or claim.start is None or claim.end is None or claim.unit is None:
        return ""
    span = Offsets(text).span(claim.start, claim.end, claim.unit)
    return text[span.start : span.end] if span else ""
