"""In-memory store for tests and experiments; its data is lost when the process ends."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from itertools import islice
from typing import TypeVar

from citewire.channels.store import (
    Chain,
    ChainLink,
    CommittedChange,
    Cursor,
    Decide,
    Entry,
    ErasedChannel,
    Extent,
    Head,
    Row,
    Slot,
    SlotValues,
    StoreError,
)
from citewire.channels.store_rules import (
    check_change,
    check_cursor,
    check_entries,
    check_name,
    check_prefix,
    clamp_limit,
    cursor_at,
    head_at,
    new_head,
    next_position,
    next_row,
    now_ms,
    take_page,
    take_slot_page,
)
from citewire.errors import InputError

_T = TypeVar("_T")


class MemoryStore:
    """`Store` and `Slots`, implemented with dicts."""

    def __init__(self, now: Callable[[], int] = now_ms) -> None:
        self._now = now
        self._floors: dict[str, Head] = {}
        self._heads: dict[str, Head] = {}
        self._rows: dict[str, list[Row]] = {}
        self._ids: dict[str, dict[str, Row]] = {}
        self._slots: dict[str, dict[str, bytes]] = {}
        self._erased: list[ErasedChannel] = []
        self._links: dict[str, tuple[ChainLink, ...]] = {}
        self._closed = False

    async def append(self, channel: str, entries: Sequence[Entry]) -> tuple[Row, ...]:
        """See `Store`."""
        self._ask()
        check_name(channel)
        check_entries(entries)
        if not entries:
            return ()
        return self._add(self._heads.get(channel) or new_head(channel), entries, self._now())

    def _add(self, head: Head, entries: Sequence[Entry], now: int) -> tuple[Row, ...]:
        self._floors.setdefault(head.channel, head)
        rows, ids = self._rows.setdefault(head.channel, []), self._ids.setdefault(head.channel, {})
        for entry in entries:
            if entry.id not in ids:
                ids[entry.id], head = next_row(head, entry, now)
                rows.append(ids[entry.id])
        self._heads[head.channel] = head
        return tuple(ids[entry.id] for entry in entries)

    async def read(self, channel: str, after: Cursor | None = None, limit: int = 1000) -> tuple[Row, ...]:
        """See `Store`."""
        self._ask()
        check_name(channel)
        skipped = self._rows_before(channel, after) if after else 0
        return take_page(self._rows.get(channel, [])[skipped:], limit)

    async def get(self, channel: str, id: str) -> Row | None:  # noqa: A002
        """See `Store`."""
        self._ask()
        check_name(channel)
        check_name(id)
        return self._ids.get(channel, {}).get(id)

    async def head(self, channel: str) -> Head | None:
        """See `Store`."""
        self._ask()
        check_name(channel)
        return self._heads.get(channel)

    async def heads(self, prefix: str, after: str = "", limit: int = 1000) -> tuple[Head, ...]:
        """See `Store`."""
        self._ask()
        check_prefix(prefix)
        check_prefix(after)
        names = sorted(name for name in self._heads if name.startswith(prefix) and name > after)
        return tuple(self._heads[name] for name in names[: clamp_limit(limit)])

    async def floor(self, channel: str) -> Head | None:
        """See `Log`."""
        self._ask()
        check_name(channel)
        return self._floors.get(channel)

    async def extents(self, after: str = "", limit: int = 1000) -> tuple[Extent, ...]:
        """See `Log`."""
        heads = await self.heads("", after, limit)
        return tuple(Extent(each.channel, each.epoch, self._floors[each.channel].n, each.n) for each in heads)

    async def chains(self, channels: Sequence[str]) -> tuple[Chain, ...]:
        """See `Log`."""
        self._ask()
        return tuple(Chain(self._floors[name], self._heads[name]) for name in channels if name in self._heads)

    @asynccontextmanager
    async def snapshot(self) -> AsyncGenerator[MemoryStore]:
        """See `Log`: returns a copy."""
        self._ask()
        copy = MemoryStore(self._now)
        copy._floors, copy._heads, copy._links = {**self._floors}, {**self._heads}, {**self._links}
        copy._rows = {name: [*rows] for name, rows in self._rows.items()}
        copy._ids = {name: {**ids} for name, ids in self._ids.items()}
        copy._slots = {name: {**slots} for name, slots in self._slots.items()}
        copy._erased = [*self._erased]
        yield copy

    async def erased(self, prefix: str, after: int = 0, limit: int = 1000) -> tuple[ErasedChannel, ...]:
        """See `Log`."""
        self._ask()
        check_prefix(prefix)
        found = (each for each in self._erased if each.no > after and each.head.channel.startswith(prefix))
        return tuple(islice(found, clamp_limit(limit)))

    async def links(self, epoch: str, after: int = 0, limit: int = 1000) -> tuple[ChainLink, ...]:
        """See `Log`."""
        self._ask()
        check_name(epoch)
        links = self._links.get(epoch, ())
        skipped = max(0, after + 1 - links[0].n) if links else 0
        return links[skipped : skipped + clamp_limit(limit)]

    async def drop(self, channel: str) -> None:
        """See `Store`."""
        self._ask()
        check_name(channel)
        if channel in self._heads:
            floor, head = self._floors[channel], self._heads[channel]
            self._erased.append(ErasedChannel(len(self._erased) + 1, self._now(), floor, head))
            self._links[head.epoch] = tuple(row.link for row in self._rows[channel])
        for table in (self._floors, self._heads, self._rows, self._ids, self._slots):
            table.pop(channel, None)

    async def change(self, channel: str, keys: Sequence[str], decide: Decide[_T]) -> CommittedChange[_T]:
        """See `Slots`."""
        values = self._values(channel, keys)
        head, now = self._heads.get(channel) or new_head(channel), self._now()
        change = decide(values, next_position(head, now))
        check_change(change)
        ids = [entry.id for entry in change.entries]
        if len({*ids}) < len(ids) or not self._ids.get(channel, {}).keys().isdisjoint(ids):
            raise InputError("an id that the log has already")
        if not ids:
            return CommittedChange((), change.result)
        slots = self._slots.setdefault(channel, {})
        for key, value in change.puts.items():
            if value is None:
                slots.pop(key, None)
            else:
                slots[key] = value
        return CommittedChange(self._add(head, change.entries, now), change.result)

    async def values(self, channel: str, keys: Sequence[str]) -> SlotValues:
        """See `Slots`."""
        return self._values(channel, keys)

    async def slots(
        self, channel: str, after: str, before: str, limit: int = 1000, *, reverse: bool = False
    ) -> tuple[Slot, ...]:
        """See `Slots`."""
        slots = self._slots.get(channel, {})
        keys = sorted(self._between(slots, channel, after, before), reverse=reverse)
        return take_slot_page((Slot(key, slots[key]) for key in keys), limit)

    async def rows_by_id(self, channel: str, after: str, before: str, limit: int = 1000) -> tuple[Row, ...]:
        """See `Slots`."""
        ids = self._ids.get(channel, {})
        return take_page((ids[name] for name in sorted(self._between(ids, channel, after, before))), limit)

    async def seek(self, channel: str, serial: str) -> Cursor:
        """See `Slots`."""
        self._ask()
        check_name(channel)
        rows, floor = self._rows.get(channel, []), self._floors.get(channel)
        first = floor.n + 1 if floor else 1
        return cursor_at(serial, self._heads.get(channel), floor, lambda n: rows[n - first].tick)

    async def trim(self, channel: str, upto: Cursor, ranges: Sequence[tuple[str, str]] = ()) -> None:
        """See `Slots`."""
        self._ask()
        check_name(channel)
        slots = self._slots.get(channel, {})
        keys = [key for span in ranges for key in self._between(slots, channel, *span)]
        if count := self._rows_before(channel, upto):
            rows = self._rows[channel]
            self._floors[channel] = head_at(channel, rows[count - 1])
            for row in rows[:count]:
                del self._ids[channel][row.id]
            del rows[:count]
        for key in keys:
            slots.pop(key, None)

    def _rows_before(self, channel: str, cursor: Cursor) -> int:
        """Return how many of the present rows come before this cursor."""
        head, floor = self._heads.get(channel), self._floors.get(channel)
        first = floor.n if floor else 0
        check_cursor(cursor, head and head.cursor, first)
        return cursor.n - first

    def _values(self, channel: str, keys: Sequence[str]) -> SlotValues:
        self._ask()
        for name in (channel, *keys):
            check_name(name)
        slots = self._slots.get(channel, {})
        return {key: slots.get(key) for key in keys}

    def _between(self, names: Iterable[str], channel: str, after: str, before: str) -> list[str]:
        self._ask()
        check_name(channel)
        check_prefix(after)
        check_prefix(before)
        return [name for name in names if after < name < before]

    async def close(self) -> None:
        """See `Store`."""
        self._closed = True

    def _ask(self) -> None:
        if self._closed:
            raise StoreError("the store is closed")
