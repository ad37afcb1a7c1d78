"""The fields of a thread's rows that the record needs, typed."""

from __future__ import annotations

from msgspec import Struct

__all__ = ["LibrarianPassage", "LibrarianPassages", "PublishedVerification", "ReviewFields", "VerdictNote"]


class VerdictNote(Struct, frozen=True):
    """The citewire-specific part of a verdict."""

    status: str
    reason: str | None = None
    source: str | None = None
    sha256: str | None = None
    page: int | None = None
    proof: str | None = None
    origin: str | None = None


class PublishedVerification(Struct, frozen=True, rename="camel"):
    """A verdict in its published form."""

    citewire: VerdictNote
    verified_at: str = ""


class ReviewFields(Struct, frozen=True, rename="camel"):
    """A person's action on a citation."""

    event: str = ""
    at: str = ""
    dwell_ms: int | None = None
    claimed_at: str | None = None


class LibrarianPassage(Struct, frozen=True):
    """A passage found in a source."""

    file: str
    says: str = ""
    page: int | None = None


class LibrarianPassages(Struct, frozen=True):
    """The passages found by our own agent, in its own field names."""

    found: list[LibrarianPassage]
