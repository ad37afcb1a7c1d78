"""The content of a thread's rows, as far as the record needs it; `server.runs.journal` writes them."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from citewire import codec
from citewire.agui.events import Json
from citewire.errors import ShapeError

__all__ = [
    "CitationRow", "Input", "LibrarianPassage", "LibrarianPassages", "PostedReviewRow",
    "PublishedVerification", "ReviewFields", "RunEndRow", "RunStartedRow", "StateReviewRow", "VerdictNote",
    "VerdictRow", "convert", "read",
]  # fmt: skip

_T = TypeVar("_T")


class Input(Struct, frozen=True, rename="camel"):
    """The input of a run."""

    run_id: str
    messages: list[Any] = []
    context: list[Any] = []


class RunStartedRow(Struct, frozen=True, rename="camel"):
    """The start of a run, and who asked for it."""

    input: Input
    key: str | None = None
    client_id: str | None = None


class CitationRow(Struct, frozen=True):
    """A citation that was found. One that is not from the agent has an `annotation`."""

    message_id: str
    key: str
    citation: Json
    by: str | None = None
    annotation: str | None = None


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


class VerdictRow(Struct, frozen=True):
    """A verdict that was reached."""

    message_id: str
    key: str
    quote: str
    verification: PublishedVerification


class ReviewFields(Struct, frozen=True, rename="camel"):
    """A person's action on a citation."""

    event: str = ""
    at: str = ""
    dwell_ms: int | None = None
    claimed_at: str | None = None


class StateReviewRow(Struct, frozen=True):
    """A review that a client put into the initial state of a run."""

    message_id: str
    key: str
    review: ReviewFields


class PostedReviewRow(Struct, frozen=True, rename="camel"):
    """A review that was posted to the server."""

    message_id: str
    key: str
    review: ReviewFields
    client_id: str | None = None
    account: str | None = None
    person: str | None = None


class RunEndRow(Struct, frozen=True, rename="camel"):
    """The end of a run."""

    outcome: str


class LibrarianPassage(Struct, frozen=True):
    """A passage found in a source."""

    file: str
    says: str = ""
    page: int | None = None


class LibrarianPassages(Struct, frozen=True):
    """The passages found by our own agent, in its own field names."""

    found: list[LibrarianPassage]


def read(data: bytes, kind: type[_T]) -> _T:
    """Decode JSON as a value of that type. Raises `CitewireError`."""
    return convert(codec.decode_with_surrogates(data), kind)


def convert(value: Any, kind: type[_T]) -> _T:
    """Convert a decoded value to that type. Raises `ShapeError`."""
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as exc:
        raise ShapeError(str(exc)) from exc
