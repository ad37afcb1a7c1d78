"""Record how far another log was projected into a channel, in the same commit as the projected rows."""

from __future__ import annotations

from typing import TypeVar

from msgspec import Struct, msgpack
from msgspec.structs import replace

from citewire.channels.store import Change, ChannelPosition, Decide, SlotValues

__all__ = ["MARK_SLOT", "ProjectionMark", "decide_with_mark"]

_T = TypeVar("_T")

MARK_SLOT = "b:mark"
"""The slot of a channel's mark."""


class ProjectionMark(Struct, frozen=True, array_like=True, order=True):
    """Everything is projected up to row `n` of the log's `epoch`, including that row's first `steps`."""

    epoch: str
    n: int = 0
    steps: int = 0

    @property
    def slot(self) -> bytes:
        """The encoded mark."""
        return msgpack.encode(self)

    @classmethod
    def from_slot(cls, slot: bytes | None) -> ProjectionMark | None:
        """Decode the mark in a slot."""
        return msgpack.decode(slot, type=cls) if slot else None

    def covers(self, other: ProjectionMark) -> bool:
        """Tell whether the other mark was already reached."""
        return self.epoch == other.epoch and self >= other


def decide_with_mark(decide: Decide[_T], mark: ProjectionMark, before: _T) -> Decide[_T]:
    """Make the decision also store `mark`. If the mark was reached before, do nothing and return `before`."""

    def decided(values: SlotValues, place: ChannelPosition) -> Change[_T]:
        known = ProjectionMark.from_slot(values[MARK_SLOT])
        if known and known.covers(mark):
            return Change(before)
        change = decide(values, place)
        return replace(change, puts={**change.puts, MARK_SLOT: mark.slot}) if change.entries else change

    return decided
