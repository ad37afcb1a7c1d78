"""A source of the engine, and the state of its reading."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from msgspec import Struct, field

from citewire.documents.cache import Cache
from citewire.documents.document import DocumentKind
from citewire.model import Problem
from citewire.verification.lanes import ReadJob
from citewire.verification.sources import SourceItem, SourceOrigin

__all__ = ["SourceReading"]


class SourceReading(Struct, eq=False):
    """A source. Once it is read, `key` is its cache key, or `problem` says why there is none.

    A source without text has neither. `notes` are problems with parts of it. `changed` is called when reading
    has `begun`, and when it `is_read`. It `is_slow` if it takes longer than most files or needs tesseract.
    """

    number: int
    listed: SourceItem
    names: frozenset[str]
    cache: Cache
    scope: str | None = None
    key: str | None = None
    problem: Problem | None = None
    notes: tuple[Problem, ...] = ()
    sha256: str | None = None
    url: str | None = None
    title: str | None = None
    kind: DocumentKind | None = None
    pages: int | None = None
    begun: bool = False
    is_slow: bool = False
    is_read: bool = False
    settled: asyncio.Event = field(default_factory=asyncio.Event)
    """Set once it is read, or known to be slow."""
    changed: Callable[[SourceReading], object] = lambda _: None
    job: ReadJob = field(default_factory=ReadJob)

    @property
    def name(self) -> str:
        """The source's name in a report."""
        return self.listed.name

    @property
    def origin(self) -> SourceOrigin | None:
        """How a client supplied the source, if one did."""
        return self.listed.origin

    def begin(self) -> None:
        """Mark the reading as begun."""
        if not self.begun:
            self.begun = True
            self.changed(self)

    def mark_slow(self) -> None:
        """Mark the source as slow: it takes longer than most files, or needs tesseract."""
        self.is_slow = True
        self.settled.set()

    def end(self) -> None:
        """Mark the reading as finished, successfully or not."""
        self.is_read = True
        self.settled.set()
        self.changed(self)
