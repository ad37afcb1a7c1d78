"""Render the page of a proof: the verdict on record, and the version of the source that was checked."""

from __future__ import annotations

from html import escape
from importlib.resources import files
from string import Template

from msgspec import Struct

from citewire import __version__
from citewire.documents.document import Box, Document
from citewire.evidence.proof import make_links, make_snippet
from citewire.rendering.safety import clean_text
from citewire.server.sources.versions import CheckedVersion, VersionState

__all__ = ["ProofVerdict", "VerdictPlace", "VerdictRecord", "has_picture", "render_proof"]

_PAGE = Template((files("citewire.server") / "pages" / "proof.html").read_text("utf-8"))
_WORDS = {
    "verified": ("✓", "Verified"),
    "partial": ("~", "Partly there"),
    "altered": ("≠", "Altered"),
    "missed": ("✗", "Not found"),
}
_UNPROVED: tuple[VersionState, ...] = ("damaged", "reads_differently")
_THIS = "This is the version that was checked."
_ON_RECORD = "What the source says here is from the record of the check, and was not compared again."
_NOTHING = "So nothing is shown here as proved."
_STATES: dict[VersionState, str] = {
    "unchanged": "The source is the same today.",
    "changed": f"The source has changed since it was checked on $checked. {_THIS}",
    "removed": f"The source was removed since it was checked on $checked. {_THIS}",
    "unavailable": f"The source can no longer be had from where it was on $checked. {_THIS}",
    "not_kept": "The server did not keep the source, which came with a request or from an agent. "
    + _ON_RECORD,
    "gone": f"The version that was checked on $checked is gone. {_ON_RECORD}",
    "damaged": "The bytes that the server has of the source are not those that were checked: their SHA-256 "
    f"differs from the one on record. {_NOTHING}",
    "reads_differently": "The server has the bytes that were checked, but the text that it reads from them "
    f"is not the one that was checked: its SHA-256 differs from the one on record. {_NOTHING}",
}


class VerdictPlace(Struct, frozen=True):
    """The part of a verdict that says where the quote was found, and its status."""

    status: str
    reason: str | None = None
    source: str | None = None
    page: int | None = None
    start: int | None = None
    end: int | None = None
    boxes: tuple[Box, ...] = ()
    warnings: tuple[str, ...] = ()
    sha256: str | None = None
    text_sha256: str | None = None


class ProofVerdict(Struct, frozen=True, rename="camel"):
    """The part of a verdict in the state that a proof needs."""

    citewire: VerdictPlace
    verified_at: str = ""
    verified_match_snippet: str | None = None


class VerdictRecord(Struct, frozen=True):
    """A verdict as recorded in the log."""

    message_id: str
    key: str
    quote: str
    verification: ProofVerdict


def has_picture(place: VerdictPlace, version: CheckedVersion) -> bool:
    """Return whether a picture of the place can be rendered."""
    document = version.document
    return bool(place.boxes) and document is not None and document.kind in {"pdf", "image"}


def render_proof(record: VerdictRecord, version: CheckedVersion, picture: str) -> str:
    """Render the page, with the picture at the URL `picture` unless it is empty.

    This may be slow: finding a unique link to words that occur often in a page takes long.
    """
    place, checked = record.verification.citewire, record.verification.verified_at
    sign, word = _WORDS.get(place.status, ("?", place.status))
    is_proved = version.state not in _UNPROVED
    shown = {
        "status": place.status if is_proved else "unproved",
        "sign": sign if is_proved else "!",
        "word": word if is_proved else "Cannot be proved",
        "verdict": "" if is_proved else f"{word}, on {checked}",
        "source": place.source or "a source",
        "quote": record.quote,
        "reason": place.reason or "",
        "page": "" if place.page is None else str(place.page),
        "warnings": "; ".join(place.warnings),
        "state": Template(_STATES[version.state]).substitute(checked=checked),
        "picture": picture,
        "sha256": place.sha256 or "",
        "text_sha256": place.text_sha256 or "",
        "checked": checked,
        "version": __version__,
    }
    filled = {name: _text(text) for name, text in shown.items()}
    return _PAGE.substitute(filled | {"found": _found(record, version) if is_proved else ""})


def _found(record: VerdictRecord, version: CheckedVersion) -> str:
    marked = _marked(version.document, record.verification.citewire) if version.document else None
    return marked or _text(record.verification.verified_match_snippet or "")


def _marked(document: Document, place: VerdictPlace) -> str | None:
    """Return the quote in its context with a link to it, as HTML. None if the verdict has no offsets."""
    if place.start is None or place.end is None or place.end > len(document.text):
        return None
    marked = make_snippet(document, place.start, place.end)
    to = next(iter(make_links(document, place.start, place.end)), None)
    return f'{marked} <a href="{escape(to)}" rel="noreferrer">in the source</a>' if to else marked


def _text(text: str) -> str:
    """Clean and escape untrusted text for HTML."""
    return escape(clean_text(text))
