"""What a node will write in one go, decided on what it knows of the channels: values only, nothing is asked.

Whether what it knows still holds is found out when it is written: see `sql/postgres`. If not, nothing is
written, and all is decided again on what is so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from citewire import codec
from citewire.channels.store import (
    CommittedChange,
    Decide,
    Entry,
    Head,
    Row,
    SlotValues,
    check_change,
    new_head,
    next_position,
    next_row,
)
from citewire.errors import InputError

__all__ = ["Batch", "CachedChannel", "ChannelCache", "encode_notifications"]

_T = TypeVar("_T")

_HEADS_KEPT = 10_000
_BYTES_KEPT = 16 * 1024 * 1024
# What a slot takes beside the bytes of its key and value.
_OVERHEAD = 300
# Bytes in one notification of Postgres, which takes less than 8,000.
_NOTIFICATION_BYTES = 7000


class CachedChannel(Struct, frozen=True, gc=False):
    """A channel as it was: its end, its floor, and the last tick that was ever given to a row of it."""

    head: Head
    floor: int = 0
    lost_to: int = 0


class ChannelCache:
    """What a node knows of channels and their slots, since it wrote to them last. None is: not there.

    Slots change only with rows or with the floor. So what is known of them holds as long as the head does.
    """

    def __init__(self) -> None:
        self.channels: dict[str, CachedChannel | None] = {}
        self.slots: dict[str, dict[str, bytes | None]] = {}
        self._begun: set[str] = set()
        """Channels that we have begun, and all of whose slots we know."""
        self._size = 0

    def find_missing(self, needs: Iterable[tuple[str, Sequence[str]]]) -> list[tuple[str, str | None]]:
        """What has to be asked: channels, each with a key or without one."""
        asked: dict[tuple[str, str | None], None] = {}
        for channel, keys in needs:
            slots = self.slots.get(channel, {})
            if channel not in self.channels:
                slots = {}
                asked[channel, None] = None
            elif self.channels[channel] is None or channel in self._begun:
                continue
            asked |= dict.fromkeys((channel, key) for key in keys if key not in slots)
        return list(asked)

    def remember_head(
        self, channel: str, known: CachedChannel | None, slots: Mapping[str, bytes | None]
    ) -> None:
        """A channel is so. What was known of slots at another head is forgotten."""
        if channel not in self.channels or self.channels[channel] != known:
            self.slots.pop(channel, None)
            self._begun.discard(channel)
        self.channels[channel] = known
        if known:
            self._keep(channel, slots)

    def record_own_write(self, channel: str, known: CachedChannel, slots: Mapping[str, bytes | None]) -> None:
        """We have written to the channel."""
        if self.channels.get(channel, known) is None:
            self._begun.add(channel)
        self.channels[channel] = known
        self._keep(channel, slots)

    def _keep(self, channel: str, slots: Mapping[str, bytes | None]) -> None:
        kept = self.slots.setdefault(channel, {})
        for key, value in slots.items():
            before = _size_of(key, kept[key]) if key in kept else 0
            self._size += _size_of(key, value) - before
            kept[key] = value

    def forget(self, channels: Iterable[str] | None = None) -> None:
        """Know nothing of these, or of any."""
        if channels is None:
            self.channels.clear()
            self.slots.clear()
            self._begun.clear()
            self._size = 0
            return
        for channel in channels:
            self.channels.pop(channel, None)
            self.slots.pop(channel, None)
            self._begun.discard(channel)

    def clear_if_full(self) -> None:
        """Let go of all when it is too much."""
        if len(self.channels) > _HEADS_KEPT or self._size > _BYTES_KEPT:
            self.forget()


def _size_of(key: str, value: bytes | None) -> int:
    """Bytes of memory that a slot takes, about."""
    return len(key) + len(value or b"") + _OVERHEAD


class Batch:
    """Rows and slots of several calls. `first` are rows that the log has, by channel and id."""

    def __init__(
        self,
        knowledge: ChannelCache,
        now: Callable[[], int],
        first: Mapping[tuple[str, str], Row] | None = None,
    ) -> None:
        self._knowledge, self._now = knowledge, now
        self._ids: dict[tuple[str, str], Row] = dict(first or {})
        self.was: dict[str, CachedChannel | None] = {}
        self.heads: dict[str, CachedChannel] = {}
        self.rows: dict[str, list[Row]] = {}
        self.puts: dict[str, dict[str, bytes | None]] = {}

    def append(self, channel: str, entries: Sequence[Entry]) -> tuple[Row, ...]:
        """See `Store.append`."""
        known, now = self._known(channel), self._now()
        rows: list[Row] = []
        for entry in entries:
            row = self._ids.get((channel, entry.id))
            if row is None:
                row, known = self._add(channel, known, entry, now)
            rows.append(row)
        return tuple(rows)

    def change(self, channel: str, keys: Sequence[str], decide: Decide[_T]) -> CommittedChange[_T]:
        """See `Slots.change`. Where it raises, nothing has happened."""
        known, now = self._known(channel), self._now()
        change = decide(self._values(channel, keys), next_position(_head_past_lost_ticks(known), now))
        check_change(change)
        ids = [(channel, entry.id) for entry in change.entries]
        if len({*ids}) < len(ids) or any(each in self._ids for each in ids):
            raise InputError("an id that the log has already")
        rows: list[Row] = []
        for entry in change.entries:
            row, known = self._add(channel, known, entry, now)
            rows.append(row)
        if change.puts:
            self.puts.setdefault(channel, {}).update(change.puts)
        return CommittedChange(tuple(rows), change.result)

    def update_cache(self) -> None:
        """It was written: know it."""
        for channel, known in self.heads.items():
            self._knowledge.record_own_write(channel, known, self.puts.get(channel, {}))

    def sql_arguments(self) -> list[Any]:
        """What `citewire.write` is called with."""
        names = sorted(self.heads, key=str.encode)
        heads = [self.heads[name] for name in names]
        was = [self.was[name] for name in names]
        rows = [(at, row) for at, name in enumerate(names, 1) for row in self.rows[name]]
        puts = [(at, *put) for at, name in enumerate(names, 1) for put in self.puts.get(name, {}).items()]
        firsts = [self.rows[name][0].before for name in names]
        return [
            names,
            [known.head.epoch for known in heads],
            [each.head.n if each else 0 for each in was],
            [known.head.n for known in heads],
            [known.head.tick for known in heads],
            [known.head.hash for known in heads],
            [known.floor for known in heads],
            firsts,
            [at for at, _ in rows],
            [row.n for _, row in rows],
            [row.tick for _, row in rows],
            [row.id for _, row in rows],
            [row.kind for _, row in rows],
            [row.data for _, row in rows],
            [row.before for _, row in rows],
            [put[0] for put in puts],
            [put[1] for put in puts],
            [put[2] for put in puts],
            encode_notifications(names),
        ]

    def _known(self, channel: str) -> CachedChannel:
        if known := self.heads.get(channel):
            return known
        return self._knowledge.channels[channel] or CachedChannel(new_head(channel))

    def _values(self, channel: str, keys: Sequence[str]) -> SlotValues:
        put, kept = self.puts.get(channel, {}), self._knowledge.slots.get(channel, {})
        return {key: put[key] if key in put else kept.get(key) for key in keys}

    def _add(self, channel: str, known: CachedChannel, entry: Entry, now: int) -> tuple[Row, CachedChannel]:
        row, head = next_row(_head_past_lost_ticks(known), entry, now)
        known = replace(known, head=head)
        if channel not in self.heads:
            self.was[channel] = self._knowledge.channels[channel]
            self.rows[channel] = []
        self.heads[channel] = known
        self.rows[channel].append(row)
        self._ids[channel, entry.id] = row
        return row, known


def _head_past_lost_ticks(known: CachedChannel) -> Head:
    """The head, with a tick that no row had that is no more."""
    head = known.head
    return replace(head, tick=known.lost_to) if known.lost_to > head.tick else head


def encode_notifications(channels: Iterable[str]) -> list[str]:
    """The names of channels, as lists in JSON that each fit into a notification."""
    lists: list[str] = []
    some: list[str] = []
    size = 0
    for channel in channels:
        length = len(codec.encode(channel)) + 1
        if some and size + length > _NOTIFICATION_BYTES:
            lists.append(codec.encode(some).decode())
            some, size = [], 0
        some.append(channel)
        size += length
    return [*lists, codec.encode(some).decode()] if some else lists
