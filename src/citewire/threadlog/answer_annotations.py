"""Write the citations and verdicts of a thread as annotations of its answers."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from citewire import codec
from citewire.agui.events import Json
from citewire.channels.annotation import AnnotationAction, AnnotationDraft
from citewire.channels.fold import VERDICT_TYPE
from citewire.channels.message import NAME_BYTES

__all__ = [
    "CITATIONS",
    "CITEWIRE",
    "make_citation_delete",
    "make_citation_note",
    "make_remaining_verdicts",
    "make_verdict_note",
    "name_of",
]

CITATIONS = "citations:multiple.v1"
CITEWIRE = "citewire"
"""The client id of verdicts."""
# Most characters of one field: several fields must fit into one publish.
_LONGEST = 4000


def name_of(citation: Json, key: str) -> str:
    """Return the name to count a citation under: the host of its source, else its title, else its file."""
    url = citation.get("url")
    names = (_host(url) if isinstance(url, str) else "", citation.get("title"), citation.get("attachmentId"))
    named = next((name for name in names if isinstance(name, str) and name.strip()), key)
    return named.encode("utf-8", "replace")[:NAME_BYTES].decode("utf-8", "ignore")


def _host(url: str) -> str:
    try:
        host = urlsplit(url).hostname
    except ValueError:
        return ""
    return (host or "").removeprefix("www.")


def make_citation_note(
    citation: Json, key: str, claim: tuple[int, int] | None, client_id: str
) -> AnnotationDraft:
    """Make the annotation for a citation. `claim` is what it supports, in UTF-16 units of the answer."""
    start, end = claim or (None, None)
    data = {
        "url": _cut(citation.get("url")),
        "title": _cut(citation.get("title") or citation.get("attachmentId")),
        "startOffset": start,
        "endOffset": end,
        "snippet": _cut(citation.get("fullPhrase")),
        "key": key,
        "page": citation.get("pageNumber"),
    }
    return _note(CITATIONS, name_of(citation, key), client_id, data)


def make_citation_delete(name: str, client_id: str) -> AnnotationDraft:
    """Make the annotation that deletes all citations under a name."""
    return _note(CITATIONS, name, client_id, action=AnnotationAction.DELETE)


def make_verdict_note(verification: Json, key: str, annotation: str | None) -> AnnotationDraft:
    """Make the annotation for a verdict. `annotation` is the serial of another client's citation."""
    said: Json = verification["citewire"]
    proof = said.get("proof")
    data = {
        "key": key,
        "annotation": annotation,
        "status": said["status"],
        "reason": _cut(said.get("reason")),
        "source": _cut(said.get("source")),
        "page": said.get("page"),
        "origin": said.get("origin"),
        # A signed link would expire.
        "proof": proof.partition("?")[0] if isinstance(proof, str) else None,
    }
    return _note(VERDICT_TYPE, said["status"], CITEWIRE, data)


def make_remaining_verdicts(status: str, count: int) -> list[AnnotationDraft]:
    """Make the annotations that set the count of a status: delete all its verdicts, then add `count`."""
    gone = _note(VERDICT_TYPE, status, CITEWIRE, action=AnnotationAction.DELETE)
    return [gone, _note(VERDICT_TYPE, status, CITEWIRE, count=count)] if count else [gone]


def _note(kind: str, name: str, client_id: str, data: Json | None = None, **more: Any) -> AnnotationDraft:
    known = data and {field: value for field, value in data.items() if value is not None}
    sent = {"data": codec.encode(known).decode(), "encoding": "json"} if known else {}
    return AnnotationDraft(message_serial="", type=kind, name=name, client_id=client_id, **sent, **more)


def _cut(text: Any) -> str | None:
    if not isinstance(text, str) or not text:
        return None
    return text[:_LONGEST].encode("utf-8", "replace").decode()
