"""List a channel's current citations by source, with their offsets checked against the current messages."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from msgspec import Struct, msgpack

from citewire.channels.annotation import Annotation, AnnotationAction
from citewire.channels.fold import deleted_key, message_key, message_of, verdict_key
from citewire.channels.message import Action
from citewire.channels.offsets import (
    OffsetCheck,
    check_offsets,
    decode_json_object,
    is_citation,
    read_claimed_offsets,
)
from citewire.channels.store import SlotValues

__all__ = [
    "ChannelCitation",
    "SourceCitations",
    "citation_slot_keys",
    "creates_citation",
    "find_current_citations",
    "group_by_source",
]


_annotation = msgpack.Decoder(Annotation)


class ChannelCitation(Struct, frozen=True):
    """A citation that has not been deleted; `placed` checks its offsets against the message's current text.

    `verdict` is the data of the server's verdict annotation, if the server has checked the citation.
    """

    annotation: Annotation
    placed: OffsetCheck | None
    verdict: dict[str, Any] | None = None


class SourceCitations(Struct, frozen=True):
    """The citations of one source. `source` is its URL, or else the name of the annotations."""

    source: str
    title: str | None
    citations: tuple[ChannelCitation, ...]


def creates_citation(annotation: Annotation) -> bool:
    """Tell whether the annotation creates a citation."""
    return annotation.action is AnnotationAction.CREATE and is_citation(annotation.type)


def citation_slot_keys(citing: Sequence[Annotation]) -> list[str]:
    """Return the keys of the slots with the messages, deletions and verdicts of these citations."""
    messages = dict.fromkeys(message_key(each.message_serial) for each in citing)
    verdicts = (key for each in citing if (key := verdict_key(each)))
    return [*messages, *dict.fromkeys(map(deleted_key, citing)), *dict.fromkeys(verdicts)]


def find_current_citations(citing: Sequence[Annotation], values: SlotValues) -> Iterable[ChannelCitation]:
    """Yield the citations that were not deleted and whose message was not deleted."""
    messages = {key: message_of(values[key]) for key in {message_key(each.message_serial) for each in citing}}
    for each in citing:
        message, deleted = messages[message_key(each.message_serial)], values[deleted_key(each)] or b""
        if message and message.action is not Action.DELETE and each.serial > deleted.decode():
            claim = read_claimed_offsets(each.type, each.data, each.encoding)
            verdict = values.get(verdict_key(each) or "")
            yield ChannelCitation(
                each, claim and check_offsets(claim, message), _verdict(verdict) if verdict else None
            )


def _verdict(slot: bytes) -> dict[str, Any]:
    annotation = _annotation.decode(slot)
    return decode_json_object(annotation.data, annotation.encoding)


def group_by_source(citations: Iterable[ChannelCitation]) -> tuple[SourceCitations, ...]:
    """Group the citations by source, in order of each source's first appearance."""
    groups: dict[str, list[ChannelCitation]] = {}
    titles: dict[str, str] = {}
    for citation in citations:
        annotation = citation.annotation
        about = decode_json_object(annotation.data, annotation.encoding)
        url, title = about.get("url"), about.get("title")
        source = url if isinstance(url, str) else annotation.name or ""
        groups.setdefault(source, []).append(citation)
        if isinstance(title, str):
            titles.setdefault(source, title)
    return tuple(
        SourceCitations(source, titles.get(source), tuple(group)) for source, group in groups.items()
    )
