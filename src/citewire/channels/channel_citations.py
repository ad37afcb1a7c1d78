"""The citations of a channel that still count, by source, and how they fit their messages as these are."""

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
    """A citation that nobody took back; `placed` says where its offsets are in the message as it now is.

    `verdict` is what became of it, where the server checks it: the data of the annotation that says so.
    """

    annotation: Annotation
    placed: OffsetCheck | None
    verdict: dict[str, Any] | None = None


class SourceCitations(Struct, frozen=True):
    """The citations of one source: its address, or else the name of the annotations."""

    source: str
    title: str | None
    citations: tuple[ChannelCitation, ...]


def creates_citation(annotation: Annotation) -> bool:
    """Whether it makes a citation."""
    return annotation.action is AnnotationAction.CREATE and is_citation(annotation.type)


def citation_slot_keys(citing: Sequence[Annotation]) -> list[str]:
    """The slots that say what became of these."""
    messages = dict.fromkeys(message_key(each.message_serial) for each in citing)
    verdicts = (key for each in citing if (key := verdict_key(each)))
    return [*messages, *dict.fromkeys(map(deleted_key, citing)), *dict.fromkeys(verdicts)]


def find_current_citations(citing: Sequence[Annotation], values: SlotValues) -> Iterable[ChannelCitation]:
    """Those that were not taken back, of messages that are not deleted."""
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
    """The citations of each source, in the order in which the sources first come."""
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
