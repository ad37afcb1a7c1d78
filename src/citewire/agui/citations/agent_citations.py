"""Reads citations that an agent sends outside its text: in shared state, in metadata, in CUSTOM events."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Any, cast

from citewire.agui.citation_bridge import normalise_citations
from citewire.agui.citations.citation_entries import entry_id
from citewire.agui.citations.records import MessageCitation
from citewire.agui.events import Json
from citewire.model import Source, SourceRef

__all__ = ["find_custom_citations", "find_entry_citations", "find_metadata_citations"]

# Members where agents put citations.
_LISTS = ("citations", "sources", "references", "annotations", "source_documents", "sourceDocuments")
_MOST = 10_000


def find_entry_citations(entries: Iterable[Any], listed: bool = False) -> list[MessageCitation]:
    """Read citations from entries in any spelling; `listed` if the entries are in the state."""
    return [
        _cited(fields, _number(entry, at), entry_id(entry, at) if listed else None)
        for at, entry in enumerate(islice(entries, _MOST))
        for fields in normalise_citations([entry])
    ]


def _cited(fields: Json, number: int, name: str | None) -> MessageCitation:
    url, title = fields.get("url"), fields.get("title")
    source = Source(url or title or fields["id"], "web" if url else "unknown", url, title)
    return MessageCitation(SourceRef(source.id, quote=fields.get("snippet")), source, number, entry_id=name)


def _number(entry: Any, at: int) -> int:
    """Return the number of an entry: its index, otherwise its position."""
    index = cast("Json", entry).get("index") if isinstance(entry, dict) else None
    return index if type(index) is int and index >= 0 else at + 1


def find_metadata_citations(metadata: Json) -> list[MessageCitation]:
    """Return the citations in the metadata of a message."""
    lists = (metadata[name] for name in _LISTS if isinstance(metadata.get(name), list))
    return [cited for each in lists for cited in find_entry_citations(each)]


def find_custom_citations(name: str, value: Any) -> tuple[str | None, list[MessageCitation]]:
    """Return the message id in a CUSTOM event, if any, and the event's citations."""
    if isinstance(value, list):
        is_meant = any(word in name.lower() for word in ("source", "citation", "reference"))
        return None, find_entry_citations(cast("list[Any]", value)) if is_meant else []
    fields = cast("Json", value) if isinstance(value, dict) else {}
    named = (fields.get(key) for key in ("messageId", "message_id"))
    return next((each for each in named if isinstance(each, str)), None), find_metadata_citations(fields)
