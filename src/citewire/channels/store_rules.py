"""What all stores have in common: limits of the input, the next row, page sizes, migrations."""

from __future__ import annotations

import secrets
import time
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from importlib.resources import files
from itertools import islice
from typing import Any, TypeVar

from citewire.channels.serial import series_of, tick_after, tick_of
from citewire.channels.store import (
    BATCH_BYTES,
    BATCH_ENTRIES,
    ENTRY_BYTES,
    MIB,
    PAGE_BYTES,
    PAGE_ROWS,
    ChainLink,
    Change,
    ChannelPosition,
    Cursor,
    CursorLost,
    Entry,
    Head,
    Row,
    Slot,
    first_hash,
)
from citewire.errors import InputError

__all__ = [
    "check_change",
    "check_cursor",
    "check_entries",
    "check_keys",
    "check_name",
    "check_prefix",
    "check_span",
    "clamp_limit",
    "cursor_at",
    "find_broken_link",
    "head_at",
    "is_last_page",
    "load_migrations",
    "new_head",
    "next_position",
    "next_row",
    "now_ms",
    "take_page",
    "take_slot_page",
]

_T = TypeVar("_T")
_Linked = TypeVar("_Linked", Row, ChainLink)


def load_migrations(database: str) -> list[str]:
    """Return a database's SQL migrations, in order: the numbered files in its folder under `sql`."""
    found = files("citewire.channels").joinpath("sql", database).iterdir()
    return [step.read_text("utf-8") for step in sorted(found, key=lambda step: step.name)]


def now_ms() -> int:
    """Return the wall clock in milliseconds, the unit of serials."""
    return time.time_ns() // 1_000_000


def check_entries(entries: Sequence[Entry]) -> int:
    """Return the bytes of all entries. Raises `InputError` for what some store could not store unchanged."""
    if len(entries) > BATCH_ENTRIES:
        raise InputError(f"more than {BATCH_ENTRIES} entries at once")
    size = 0
    for entry in entries:
        check_name(entry.id)
        check_name(entry.kind)
        if len(entry.data) > ENTRY_BYTES:
            raise InputError(f"an entry of more than {ENTRY_BYTES // MIB} MiB")
        size += len(entry.data)
    if size > BATCH_BYTES:
        raise InputError(f"entries of more than {BATCH_BYTES // MIB} MiB at once")
    return size


def check_change(change: Change[Any]) -> None:
    """Raise `InputError` or `ValueError` for a change that some store could not store unchanged."""
    if change.puts and not change.entries:
        raise ValueError("slots are put with the rows that explain them")
    check_entries(change.entries)
    for key, value in change.puts.items():
        check_name(key)
        if value is not None and len(value) > ENTRY_BYTES:
            raise InputError(f"a slot of more than {ENTRY_BYTES // MIB} MiB")


def check_name(name: str) -> None:
    """Raise `InputError` for a name that some store could not store unchanged."""
    if not 1 <= _bytes_in(name) <= 512:
        raise InputError("a name has 1 to 512 bytes and no NUL")


def check_prefix(text: str) -> None:
    """Raise `InputError` for text that no name can start with; the empty text is valid."""
    if _bytes_in(text) > 512:
        raise InputError("a name has no more than 512 bytes and no NUL")


def check_keys(channel: str, keys: Sequence[str]) -> tuple[str, ...]:
    """Check the names, and return a copy of the keys for later use by the store."""
    for name in (channel, *keys):
        check_name(name)
    return tuple(keys)


def check_span(channel: str, after: str, before: str) -> tuple[str, str, str]:
    """Check a channel's name and the bounds of a range, and return them."""
    check_name(channel)
    check_prefix(after)
    check_prefix(before)
    return channel, after, before


def _bytes_in(name: str) -> int:
    if "\0" in name:
        raise InputError("a name with NUL in it")
    try:
        return len(name) if name.isascii() else len(name.encode())
    except UnicodeEncodeError:
        raise InputError("a name with half a character in it") from None


def new_head(channel: str) -> Head:
    """The head of a channel that has no row yet."""
    epoch = secrets.token_hex(8)
    return Head(channel, epoch, 0, 0, first_hash(channel, epoch))


def next_row(head: Head, entry: Entry, now: int) -> tuple[Row, Head]:
    """Return the row that the entry becomes after `head`, and the new head."""
    tick = tick_after(head.tick, now)
    row = Row(head.epoch, head.n + 1, tick, entry.id, entry.kind, entry.data, head.hash)
    return row, head_at(head.channel, row)


def next_position(head: Head, now: int) -> ChannelPosition:
    """Return the position of the row after `head`."""
    return ChannelPosition(head.epoch, head.n + 1, tick_after(head.tick, now))


def head_at(channel: str, row: Row) -> Head:
    """Return the head of a channel whose last row is `row`."""
    return Head(channel, row.epoch, row.n, row.tick, row.hash)


def check_cursor(after: Cursor, end: Cursor | None, floor: int) -> None:
    """Raise `CursorLost` if the cursor is not in the log of a channel with this end and floor."""
    if end is None or after.epoch != end.epoch or not floor <= after.n <= end.n:
        raise CursorLost(f"the log does not go on from {after}")


def cursor_at(serial: str, end: Head | None, floor: Head | None, tick_at: Callable[[int], int]) -> Cursor:
    """Implement `Slots.seek` for a channel with this end and floor, given its ticks by row number."""
    tick, series = tick_of(serial)
    if not (end and floor) or series != series_of(end.epoch) or not floor.tick <= tick <= end.tick:
        raise CursorLost(f"the log does not go on from {serial}")
    numbers = range(floor.n + 1, end.n + 1)
    return Cursor(end.epoch, floor.n + bisect_right(numbers, tick, key=tick_at))


def clamp_limit(limit: int) -> int:
    """Limit a requested page size to 0 … `PAGE_ROWS`."""
    return max(0, min(limit, PAGE_ROWS))


def take_page(rows: Iterable[Row], limit: int) -> tuple[Row, ...]:
    """Take one page of these rows."""
    return _take_page(rows, limit, lambda row: len(row.data))


def take_slot_page(slots: Iterable[Slot], limit: int) -> tuple[Slot, ...]:
    """Take one page of these slots."""
    return _take_page(slots, limit, lambda slot: len(slot.value))


def _take_page(items: Iterable[_T], limit: int, size_of: Callable[[_T], int]) -> tuple[_T, ...]:
    taken: list[_T] = []
    size = 0
    for item in islice(items, clamp_limit(limit)):
        taken.append(item)
        size += size_of(item)
        if size >= PAGE_BYTES:
            break
    return tuple(taken)


def is_last_page(rows: Sequence[Row], limit: int) -> bool:
    """Tell whether the read that returned these rows reached the end of the log at that time."""
    return len(rows) < clamp_limit(limit) and sum(len(row.data) for row in rows) < PAGE_BYTES


def find_broken_link(before: bytes, rows: Iterable[_Linked]) -> _Linked | None:
    """Return the first row that does not hold the previous row's hash; `before` precedes the first row."""
    for row in rows:
        if row.before != before:
            return row
        before = row.hash
    return None
