"""A source of the server: how it is stored, and how far it was read."""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct, field

from citewire.documents.document import DocumentKind
from citewire.documents.errors import DocumentError
from citewire.errors import Conflict
from citewire.server.sources.stored_sources import Origin, StoredSource
from citewire.verification.document_set import NO_TEXT_LAYER
from citewire.verification.source_reading import SourceReading

__all__ = ["LiveSource", "SourceChange", "SourceList", "SourceRecord", "SourceState"]

SourceState = Literal["waiting", "reading", "ready", "failed"]


class SourceRecord(Struct, frozen=True, rename="camel"):
    """A source as the API shows it. `reason` says why it failed."""

    id: str
    name: str
    origin: Origin = field(name="from")
    state: SourceState
    reason: str | None
    added_at: str
    size: int
    sha256: str | None
    kind: DocumentKind | None
    pages: int | None
    title: str | None
    url: str | None


class SourceList(Struct, frozen=True):
    """Sources ordered by name; how many of the `total` are still being read; and the next page's cursor."""

    sources: list[SourceRecord]
    reading: int
    total: int
    next: str | None = None


class SourceChange(Struct, frozen=True):
    """The id of a source that is new or has changed; without a record, it was removed."""

    id: str
    record: SourceRecord | None


class LiveSource:
    """A source as stored, with its `reading` and whether it is indexed."""

    def __init__(self, holding: StoredSource) -> None:
        self.holding = holding
        self.reading: SourceReading | None = None
        self.is_indexed = False
        self.problem = holding.reason

    @property
    def reason(self) -> str | None:
        """Why the source cannot be used, or None."""
        reading = self.reading
        if self.problem or reading is None:
            return self.problem
        if reading.problem:
            return reading.problem.message
        if reading.is_read and not reading.key:
            return reading.notes[0].message if reading.notes else NO_TEXT_LAYER
        return None

    @property
    def state(self) -> SourceState:
        """The progress of reading the source."""
        if self.reason is not None:
            return "failed"
        if self.is_indexed:
            return "ready"
        return "reading" if self.reading and self.reading.begun else "waiting"

    @property
    def read(self) -> SourceReading:
        """The finished reading. Raises `DocumentError` if it failed, and `Conflict` if it is not finished."""
        reading = self.reading
        if reading is None or reading.problem:
            raise DocumentError(self.reason or "it cannot be read")
        if not reading.is_read:
            raise Conflict("it is still being read")
        return reading

    def is_read_as(self, held: StoredSource) -> bool:
        """Return whether it was, or is being, read exactly as `held` has to be."""
        return self.reading is not None and _as_read(self.holding) == _as_read(held)

    def record(self) -> SourceRecord:
        """Return the source as the API shows it."""
        held, reading = self.holding, self.reading
        return SourceRecord(
            held.id, held.name, held.origin, self.state, self.reason, held.added_at, held.size, held.sha256,
            *((reading.kind, reading.pages, reading.title) if reading else (None, None, None)), held.url,
        )  # fmt: skip


def _as_read(held: StoredSource) -> tuple[Any, ...]:
    """Return everything that reading depends on."""
    return held.sha256, held.content_type, held.name, held.url, held.also
