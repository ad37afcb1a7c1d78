"""Fold the log of the server's sources: which sources existed at which time."""

from __future__ import annotations

from bisect import bisect_right

import msgspec
from msgspec import Struct

from citewire import codec
from citewire.channels.actor import Actor
from citewire.channels.store import Row
from citewire.errors import ShapeError

__all__ = ["RecordedSource", "RecordedSources", "SOURCES_CHANNEL", "SourcesFold"]

SOURCES_CHANNEL = "sources"
_KINDS = ("added", "removed")


class RecordedSource(Struct, frozen=True, omit_defaults=True):
    """A source. Without a SHA-256, its bytes could not be obtained."""

    id: str
    name: str = ""
    origin: str = ""
    sha256: str | None = None
    url: str | None = None
    added_at: str | None = None
    by: Actor | None = None


class RecordedSources(Struct, frozen=True, tag="sources"):
    """The sources that existed after row `n` of their log."""

    n: int
    sources: list[RecordedSource]


class SourcesFold:
    """The state after folding the log of the sources. Pass the rows in order to `take`."""

    def __init__(self) -> None:
        self._changes: list[tuple[int, int, str, RecordedSource]] = []

    @staticmethod
    def is_source_kind(kind: str) -> bool:
        """Tell whether rows of a kind add or remove sources; other rows are references to them."""
        return kind in _KINDS

    def take(self, row: Row) -> None:
        """Fold a row. Raises `CitewireError` if it is invalid."""
        if self.is_source_kind(row.kind):
            try:
                held = msgspec.convert(codec.decode(row.data), RecordedSource)
            except msgspec.ValidationError as exc:
                raise ShapeError(str(exc)) from exc
            self._changes.append((row.n, row.tick, row.kind, held))

    def row_at(self, tick: int) -> int:
        """Return the last row that changed the sources up to this tick; 0 for none."""
        past = bisect_right(self._changes, tick, key=lambda change: change[1])
        return self._changes[past - 1][0] if past else 0

    def sources_after(self, n: int) -> RecordedSources:
        """Return the sources after this row."""
        held: dict[str, RecordedSource] = {}
        for number, _, kind, source in self._changes:
            if number > n:
                break
            held.pop(source.id, None)
            if kind == "added":
                held[source.id] = source
        return RecordedSources(n, list(held.values()))
