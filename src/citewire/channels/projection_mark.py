"""How far another log is told in a channel: kept in one step with what is told, so that it is told once."""

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
    """All is told up to row `n` of the log's life `epoch`, and of that row the first `steps`."""

    epoch: str
    n: int = 0
    steps: int = 0

    @property
    def slot(self) -> bytes:
        """As it is kept."""
        return msgpack.encode(self)

    @classmethod
    def from_slot(cls, slot: bytes | None) -> ProjectionMark | None:
        """The mark in a slot."""
        return msgpack.decode(slot, type=cls) if slot else None

    def covers(self, other: ProjectionMark) -> bool:
        """Whether what the other one stands for was told."""
        return self.epoch == other.epoch and self >= other


def decide_with_mark(decide: Decide[_T], mark: ProjectionMark, before: _T) -> Decide[_T]:
    """The decision with its mark. Where that was reached already nothing happens, and `before` is given."""

    def decided(values: SlotValues, place: ChannelPosition) -> Change[_T]:
        known = ProjectionMark.from_slot(values[MARK_SLOT])
        if known and known.covers(mark):
            return Change(before)
        change = decide(values, place)
        return replace(change, puts={**change.puts, MARK_SLOT: mark.slot}) if change.entries else change

    return decided
