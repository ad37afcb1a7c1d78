"""Decide what a node writes in one batch, from its cached view of the channels, without any query.

The write checks whether the cached view is still valid: see `sql/postgres`. If not, nothing is written, and
the whole batch is decided again on current data.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from citewire import codec
from citewire.channels.store import CommittedChange, Decide, Entry, Head, Row, SlotValues
from citewire.channels.store_rules import check_change, new_head, next_position, next_row
from citewire.errors import InputError

__all__ = ["Batch", "CachedChannel", "ChannelCache", "encode_notifications"]

_T = TypeVar("_T")

_HEADS_KEPT = 10_000
_BYTES_KEPT = 16 * 1024 * 1024
# The memory of a slot in addition to the bytes of its key and value.
_OVERHEAD = 300
# Bytes in one Postgres notification, whose limit is just under 8,000.
_NOTIFICATION_BYTES = 7000


class CachedChannel(Struct, frozen=True, gc=False):
    """The last known state of a channel: its head, its floor, and the last tick ever given to a row."""

    head: Head
    floor: int = 0
    lost_to: int = 0


class ChannelCache:
    """Cache of channels and slots as of this node's last write. None means that the item does not exist.

    Slots change only with rows or with the floor, so cached slots are valid as long as the head is.
    """

    def __init__(self) -> None:
        self.channels: dict[str, CachedChannel | None] = {}
        self.slots: dict[str, dict[str, bytes | None]] = {}
        self._begun: set[str] = set()
        """Channels that we have begun, and all of whose slots we know."""
        self._size = 0

    def find_missing(self, needs: Iterable[tuple[str, Sequence[str]]]) -> list[tuple[str, str | None]]:
        """Return what has to be queried: pairs of a channel and a key, or None for the channel alone."""
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
        """Remember the head of a channel. Slots cached for a different head are dropped."""
        if channel not in self.channels or self.channels[channel] != known:
            self.slots.pop(channel, None)
            self._begun.discard(channel)
        self.channels[channel] = known
        if known:
            self._keep(channel, slots)

    def record_own_write(self, channel: str, known: CachedChannel, slots: Mapping[str, bytes | None]) -> None:
        """Update the cache after our own write to the channel."""
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
        """Drop these channels from the cache, or all of them."""
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
        """Clear the cache if it is over its limits."""
        if len(self.channels) > _HEADS_KEPT or self._size > _BYTES_KEPT:
            self.forget()


def _size_of(key: str, value: bytes | None) -> int:
    """Return the approximate memory of a slot, in bytes."""
    return len(key) + len(value or b"") + _OVERHEAD


class Batch:
    """Rows and slots of several calls. `first` holds rows that the log already has, by channel and id."""

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
        """See `Slots.change`. If it raises, the batch is unchanged."""
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
        """Update the cache after the batch was written."""
        for channel, known in self.heads.items():
            self._knowledge.record_own_write(channel, known, self.puts.get(channel, {}))

    def sql_arguments(self) -> list[Any]:
        """Return the arguments for `citewire.write`."""
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
    """Return the head with its tick raised past those of rows that were lost."""
    head = known.head
    return replace(head, tick=known.lost_to) if known.lost_to > head.tick else head


def encode_notifications(channels: Iterable[str]) -> list[str]:
    """Encode the names of channels as JSON lists that each fit into one notification."""
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
