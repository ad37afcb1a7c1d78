"""Which sources there were at which time: the log of the server's sources, folded."""

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
    """A source. Without a sha256 its bytes could not be had."""

    id: str
    name: str = ""
    origin: str = ""
    sha256: str | None = None
    url: str | None = None
    added_at: str | None = None
    by: Actor | None = None


class RecordedSources(Struct, frozen=True, tag="sources"):
    """The sources there were after row `n` of their log."""

    n: int
    sources: list[RecordedSource]


class SourcesFold:
    """What the rows of the log of sources come to. `take` them in order."""

    def __init__(self) -> None:
        self._changes: list[tuple[int, int, str, RecordedSource]] = []

    @staticmethod
    def is_source_kind(kind: str) -> bool:
        """Whether rows of a kind say what sources there are; others say who refers to them."""
        return kind in _KINDS

    def take(self, row: Row) -> None:
        """Take in a row. A `CitewireError` where it is none of sources."""
        if self.is_source_kind(row.kind):
            try:
                held = msgspec.convert(codec.decode(row.data), RecordedSource)
            except msgspec.ValidationError as exc:
                raise ShapeError(str(exc)) from exc
            self._changes.append((row.n, row.tick, row.kind, held))

    def row_at(self, tick: int) -> int:
        """The row after which the sources were as they were at this tick; 0 for none."""
        past = bisect_right(self._changes, tick, key=lambda change: change[1])
        return self._changes[past - 1][0] if past else 0

    def sources_after(self, n: int) -> RecordedSources:
        """The sources after this row."""
        held: dict[str, RecordedSource] = {}
        for number, _, kind, source in self._changes:
            if number > n:
                break
            held.pop(source.id, None)
            if kind == "added":
                held[source.id] = source
        return RecordedSources(n, list(held.values()))
