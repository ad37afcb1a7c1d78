"""What the rows of a thread hold, as far as the record needs it; the server's `journal` writes them."""

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
    """What a run was asked with."""

    run_id: str
    messages: list[Any] = []
    context: list[Any] = []


class RunStartedRow(Struct, frozen=True, rename="camel"):
    """A run that was asked for, and by whom."""

    input: Input
    key: str | None = None
    client_id: str | None = None


class CitationRow(Struct, frozen=True):
    """A citation that was seen. What the agent did not say itself has an `annotation`."""

    message_id: str
    key: str
    citation: Json
    by: str | None = None
    annotation: str | None = None


class VerdictNote(Struct, frozen=True):
    """Our part of a verdict."""

    status: str
    reason: str | None = None
    source: str | None = None
    sha256: str | None = None
    page: int | None = None
    proof: str | None = None
    origin: str | None = None


class PublishedVerification(Struct, frozen=True, rename="camel"):
    """A verdict, in published fields."""

    citewire: VerdictNote
    verified_at: str = ""


class VerdictRow(Struct, frozen=True):
    """A verdict that was reached."""

    message_id: str
    key: str
    quote: str
    verification: PublishedVerification


class ReviewFields(Struct, frozen=True, rename="camel"):
    """What somebody did who looked at a citation."""

    event: str = ""
    at: str = ""
    dwell_ms: int | None = None
    claimed_at: str | None = None


class StateReviewRow(Struct, frozen=True):
    """A review as a client put it into the state that it started a run with."""

    message_id: str
    key: str
    review: ReviewFields


class PostedReviewRow(Struct, frozen=True, rename="camel"):
    """A review as it was posted."""

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
    """A place in a source that was found."""

    file: str
    says: str = ""
    page: int | None = None


class LibrarianPassages(Struct, frozen=True):
    """What our own agent found, under names of its own."""

    found: list[LibrarianPassage]


def read(data: bytes, kind: type[_T]) -> _T:
    """The JSON in `data` as a value of that kind. A `CitewireError` where it is none."""
    return convert(codec.decode_with_surrogates(data), kind)


def convert(value: Any, kind: type[_T]) -> _T:
    """A decoded value as one of that kind. A `ShapeError` where it is none."""
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as exc:
        raise ShapeError(str(exc)) from exc
