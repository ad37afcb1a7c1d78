"""The storage ports: `Store`, channels of numbered rows; `Log`, its read side; `Slots`, derived state.

Row metadata, input limits and page sizes are defined here, so that all stores behave alike.

    CitewireError
    ├── StoreError       the store failed
    │   ├── StoreInUse   another process has locked the data folder
    │   └── StoreBusy    the write queue is full
    └── CursorLost       the log cannot continue from this cursor
"""

from __future__ import annotations

import secrets
import time
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from hashlib import sha256
from importlib.resources import files
from itertools import islice
from typing import Any, Generic, NamedTuple, Protocol, TypeAlias, TypeVar

import msgspec

from citewire.channels.serial import serial_of, series_of, tick_after, tick_of
from citewire.errors import CitewireError, InputError

_T = TypeVar("_T")
_Linked = TypeVar("_Linked", "Row", "ChainLink")

MIB = 1024 * 1024
ENTRY_BYTES = 16 * MIB
"""The most that the data of one entry may hold."""
BATCH_BYTES = 32 * MIB
"""The most that the entries of one append may hold together."""
BATCH_ENTRIES = 10_000
PAGE_ROWS = 10_000
"""The most that one read gives, whatever its limit."""
PAGE_BYTES = 8 * MIB
"""Where one read stops: what a reader holds at once is this and a row more."""


class StoreError(CitewireError):
    """The store failed. The same call may be retried: each id is stored only once."""

    code = "store_failed"


class StoreInUse(StoreError):
    """Another process, or another store in this process, writes to the data folder."""

    code = "store_in_use"


class StoreBusy(StoreError):
    """The write queue stayed full until the timeout. Nothing was stored."""

    code = "store_busy"


class CursorLost(CitewireError):
    """The log cannot continue from this cursor: the reader has to start over."""

    code = "cursor_lost"


class Cursor(msgspec.Struct, frozen=True, gc=False):
    """A place in a channel: after row `n` of the channel's lifetime `epoch`. As text, `epoch:n`."""

    epoch: str
    n: int

    def __str__(self) -> str:
        return f"{self.epoch}:{self.n}"

    @classmethod
    def parse(cls, text: str) -> Cursor:
        """Parse the text form of a cursor. Raises `InputError`."""
        epoch, colon, n = text.partition(":")
        # SQLite has 64-bit integers; 18 digits fit.
        if not (epoch and colon and n.isascii() and n.isdigit() and len(n) <= 18):
            raise InputError("a cursor is written epoch:n")
        return cls(epoch, int(n))


class Entry(msgspec.Struct, frozen=True, gc=False):
    """Data to append. `id` identifies it permanently within a channel; `kind` says what `data` is."""

    id: str
    kind: str
    data: bytes


class ChainLink(msgspec.Struct, frozen=True, gc=False):
    """A row as its hash chain needs it: `content` is the SHA-256 of its id and data."""

    n: int
    tick: int
    kind: str
    content: bytes
    before: bytes

    @property
    def hash(self) -> bytes:
        """The SHA-256 of all fields."""
        return _link_hash(self.n, self.tick, self.kind, self.content, self.before)


class Row(msgspec.Struct, frozen=True, gc=False):
    """A stored entry. `before` is the hash of the previous row, so that no row can change unnoticed."""

    epoch: str
    n: int
    tick: int
    id: str
    kind: str
    data: bytes
    before: bytes

    @property
    def serial(self) -> str:
        """The row's serial for Ably clients."""
        return serial_of(self.tick, self.epoch)

    @property
    def cursor(self) -> Cursor:
        """The cursor after this row."""
        return Cursor(self.epoch, self.n)

    @property
    def link(self) -> ChainLink:
        """The part of the row that stays in the chain when its content is erased."""
        return ChainLink(self.n, self.tick, self.kind, content_hash(self.id, self.data), self.before)

    @property
    def hash(self) -> bytes:
        """The hash of the row's link."""
        return row_hash(self.n, self.tick, self.id, self.kind, self.data, self.before)


def content_hash(id: str, data: bytes) -> bytes:  # noqa: A002
    """Return the SHA-256 of a row's id and data; including the id's length makes it unambiguous."""
    name = id.encode()
    return sha256(b"%d %b%b" % (len(name), name, data)).digest()


def row_hash(n: int, tick: int, id: str, kind: str, data: bytes, before: bytes) -> bytes:  # noqa: A002
    """Return the hash of a row with these values."""
    return _link_hash(n, tick, kind, content_hash(id, data), before)


def _link_hash(n: int, tick: int, kind: str, content: bytes, before: bytes) -> bytes:
    # Unambiguous: two numbers, and 32 bytes on either side of `kind`, which has no length.
    return sha256(b"%b%d %d %b%b" % (before, n, tick, kind.encode(), content)).digest()


def first_hash(channel: str, epoch: str) -> bytes:
    """Return the hash at the start of a channel's chain."""
    return sha256(f"{series_of(epoch)}:{channel}".encode()).digest()


class Head(msgspec.Struct, frozen=True, gc=False):
    """The end of a channel: number, tick and hash of its last row."""

    channel: str
    epoch: str
    n: int
    tick: int
    hash: bytes

    @property
    def cursor(self) -> Cursor:
        """The cursor after the last row."""
        return Cursor(self.epoch, self.n)

    @property
    def serial(self) -> str:
        """The serial of the last row."""
        return serial_of(self.tick, self.epoch)


class Chain(NamedTuple):
    """The start (floor) and end (head) of a channel's rows."""

    floor: Head
    head: Head


class Extent(NamedTuple):
    """The rows that a channel has: after number `floor`, up to number `n`."""

    channel: str
    epoch: str
    floor: int
    n: int


class ErasedChannel(msgspec.Struct, frozen=True, gc=False):
    """The `no`th channel that was dropped: its chain runs from the floor to the head. `at` is in ms."""

    no: int
    at: int
    floor: Head
    head: Head


class ChannelPosition(msgspec.Struct, frozen=True, gc=False):
    """The position of a channel's next row."""

    epoch: str
    n: int
    tick: int

    def serial(self, later: int = 0) -> str:
        """Return the serial of that row, or of the row `later` rows after it in the same change."""
        return serial_of(self.tick + later, self.epoch)


class Slot(NamedTuple):
    """A key and its value."""

    key: str
    value: bytes


SlotValues: TypeAlias = Mapping[str, bytes | None]
"""Slots by key; None where there is no such slot."""


class Change(msgspec.Struct, Generic[_T], frozen=True):
    """A change to a channel: rows to append, slots to put (None deletes one), and the result to return."""

    result: _T
    entries: Sequence[Entry] = ()
    puts: SlotValues = {}


class CommittedChange(msgspec.Struct, Generic[_T], frozen=True):
    """A change that was committed: its rows, and the result."""

    rows: tuple[Row, ...]
    result: _T


Decide: TypeAlias = Callable[[SlotValues, ChannelPosition], Change[_T]]
"""From the slots asked for as they are, and the place of the next row, to what is to happen."""


class Log(Protocol):
    """The read side of a store, for callers that do not write to it. `Store` states its guarantees."""

    async def read(self, channel: str, after: Cursor | None = None, limit: int = 1000) -> tuple[Row, ...]:
        """Return up to `limit` rows after the cursor, or from the floor; none only at the end of the log.

        Returns fewer if they are large or very many: see `PAGE_BYTES`. Raises `CursorLost` if the channel has
        no such row: it was dropped or trimmed, or the data folder is an older copy.
        """
        ...

    async def get(self, channel: str, id: str) -> Row | None:  # noqa: A002  # as it is called in an entry
        """Return the row of the entry with this id, or None."""
        ...

    async def head(self, channel: str) -> Head | None:
        """Return the end of the channel; None if there is no such channel."""
        ...

    async def heads(self, prefix: str, after: str = "", limit: int = 1000) -> tuple[Head, ...]:
        """Return the heads of channels with this prefix and after `after`, by name (in code point order)."""
        ...

    async def floor(self, channel: str) -> Head | None:
        """Return the head that preceded the channel's first remaining row.

        The channel's chain begins there: with number 0, until it is trimmed. None if there is no such
        channel.
        """
        ...

    async def extents(self, after: str = "", limit: int = 1000) -> tuple[Extent, ...]:
        """Return the extents of the channels after `after`, by name. It reads no rows."""
        ...

    async def chains(self, channels: Sequence[str]) -> tuple[Chain, ...]:
        """Return the floors and heads of these channels, in this order, without those that do not exist."""
        ...

    async def slots(
        self, channel: str, after: str, before: str, limit: int = 1000, *, reverse: bool = False
    ) -> tuple[Slot, ...]:
        """Return up to `limit` slots with keys between the two, in code point order or reversed.

        Returns fewer if they are large or very many, as with `read`; none only if there are none.
        """
        ...

    def snapshot(self) -> AbstractAsyncContextManager[Log]:
        """Return a view of the log at one moment: later writes are not visible in it.

        A `StoreError` ends the block after `snapshot_deadline.SNAPSHOT_SECONDS`.
        """
        ...

    async def erased(self, prefix: str, after: int = 0, limit: int = 1000) -> tuple[ErasedChannel, ...]:
        """Return the dropped channels with this prefix, after number `after`, in the order of dropping."""
        ...

    async def links(self, epoch: str, after: int = 0, limit: int = 1000) -> tuple[ChainLink, ...]:
        """Return up to `limit` links of the dropped channel with this epoch, after row number `after`."""
        ...

    async def close(self) -> None:
        """Finish pending calls, then release all resources. Later calls raise `StoreError`."""
        ...


class Store(Log, Protocol):
    """Durable storage of channels.

    - **Durable**: when `append` or `drop` returns, the change survives a crash of the process and of the
      machine (in the memory store only as long as the process lives).
    - **Atomic**: the entries of one `append` are stored all or none. If it raises or is cancelled, they may
      or may not be stored; repeating the call settles it.
    - **Idempotent**: an id is stored once per channel. Appending it again, with whatever data, returns the
      first row.
    - **Ordered**: rows of a channel are numbered 1, 2, 3 … in the order of their commits, with rising
      serials; a reader that has seen row n never finds a new row before it.
    - **Chained**: each row holds the hash of the previous row, the first row a hash of the channel's name
      and epoch. The hash covers the SHA-256 of the content, so that content can be erased and the chain stay.
    - A channel begins with its first row, under an epoch that no channel had before, and ends with `drop`.
    - **Restored**: if an older copy of the data is restored, epochs stay. A cursor past the end of the copy
      is lost; one within it reads on, and cannot know that other rows once came after it.

    All names (channel, id, kind) are text of 1 to 512 bytes in UTF-8 without NUL. Other names, and more than
    `ENTRY_BYTES`, `BATCH_BYTES` or `BATCH_ENTRIES`, raise `InputError`.
    """

    async def append(self, channel: str, entries: Sequence[Entry]) -> tuple[Row, ...]:
        """Store the entries and return their rows, in order. Raises `StoreBusy` if the queue stays full."""
        ...

    async def drop(self, channel: str) -> None:
        """Erase the ids and data of all rows of the channel, if it exists; their links remain."""
        ...


class Slots(Protocol):
    """Small values of a channel by key: the state derived from its rows, so that readers need not fold them.

    - **Atomic**: the rows and the puts of a change are stored all or none, with the guarantees of `Store`.
      Puts without a row raise `ValueError`, so that a channel's log always explains its slots.
    - **Serialized**: each change is decided on the slots and the position that all earlier changes left.
      `decide` runs in any thread, perhaps more than once; it must be pure. What it raises is raised to its
      caller, and nothing is stored.
    - Slots are deleted with their channel.
    - **Trimmed**: `trim` deletes for good, ids too; the chain goes on from the floor.

    Keys follow the rules for names. An id that the log already has raises `InputError`: a change makes new
    ids.
    """

    async def change(self, channel: str, keys: Sequence[str], decide: Decide[_T]) -> CommittedChange[_T]:
        """Call `decide` with the slots of these keys, and commit the change that it returns."""
        ...

    async def values(self, channel: str, keys: Sequence[str]) -> SlotValues:
        """Return the slots with these keys, all from one moment."""
        ...

    async def rows_by_id(self, channel: str, after: str, before: str, limit: int = 1000) -> tuple[Row, ...]:
        """Return up to `limit` rows with ids between the two, by id; page sizes are as with `slots`."""
        ...

    async def seek(self, channel: str, serial: str) -> Cursor:
        """Return the cursor after the last row whose serial is not past this one.

        Raises `CursorLost` for an unknown epoch or a future serial, and `InputError` for an invalid serial.
        """
        ...

    async def trim(self, channel: str, upto: Cursor, ranges: Sequence[tuple[str, str]] = ()) -> None:
        """Delete all rows up to this one, and the slots with keys inside the ranges.

        Raises `CursorLost` like `Store.read`.
        """
        ...


class ChannelStore(Store, Slots, Protocol):
    """A store that implements all ports."""


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
