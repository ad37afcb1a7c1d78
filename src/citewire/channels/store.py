"""The ports: `Store`, channels of numbered rows; `Log`, what of it one reads; `Slots`, what rows add up to.

What a row holds besides the caller's bytes, what is refused and how much one read gives is decided here, so
that no store can differ in it.

    CitewireError
    ├── StoreError       the store could not do it
    │   ├── StoreInUse   somebody else has the data folder
    │   └── StoreBusy    more is waiting to be written than it takes
    └── CursorLost       the log does not go on from there
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
    """The store could not do it. The same call may be tried again: ids are kept once."""

    code = "store_failed"


class StoreInUse(StoreError):
    """Another process, or another store of this one, writes to the data folder."""

    code = "store_in_use"


class StoreBusy(StoreError):
    """So much is waiting to be written that there was no room for more in time. Nothing was kept."""

    code = "store_busy"


class CursorLost(CitewireError):
    """The log no longer goes on from this cursor: the reader has to begin anew."""

    code = "cursor_lost"


class Cursor(msgspec.Struct, frozen=True, gc=False):
    """A place in a channel: after row `n` of the channel's life called `epoch`. As text, `epoch:n`."""

    epoch: str
    n: int

    def __str__(self) -> str:
        return f"{self.epoch}:{self.n}"

    @classmethod
    def parse(cls, text: str) -> Cursor:
        """The cursor that was written as `text`."""
        epoch, colon, n = text.partition(":")
        # SQLite has 64-bit integers; 18 digits stay inside them.
        if not (epoch and colon and n.isascii() and n.isdigit() and len(n) <= 18):
            raise InputError("a cursor is written epoch:n")
        return cls(epoch, int(n))


class Entry(msgspec.Struct, frozen=True, gc=False):
    """What a caller appends. Within a channel `id` names it for good; `kind` says what `data` is."""

    id: str
    kind: str
    data: bytes


class ChainLink(msgspec.Struct, frozen=True, gc=False):
    """A row as its chain knows it: of its id and its data, the sha256 in `content`."""

    n: int
    tick: int
    kind: str
    content: bytes
    before: bytes

    @property
    def hash(self) -> bytes:
        """The sha256 of it all."""
        return _link_hash(self.n, self.tick, self.kind, self.content, self.before)


class Row(msgspec.Struct, frozen=True, gc=False):
    """An entry in its place. `before` is the hash of the row before it: no row changes unseen."""

    epoch: str
    n: int
    tick: int
    id: str
    kind: str
    data: bytes
    before: bytes

    @property
    def serial(self) -> str:
        """The name of the row for Ably clients."""
        return serial_of(self.tick, self.epoch)

    @property
    def cursor(self) -> Cursor:
        """Where reading goes on after this row."""
        return Cursor(self.epoch, self.n)

    @property
    def link(self) -> ChainLink:
        """What stays of the row in the chain when its content is erased."""
        return ChainLink(self.n, self.tick, self.kind, content_hash(self.id, self.data), self.before)

    @property
    def hash(self) -> bytes:
        """The hash of its link."""
        return row_hash(self.n, self.tick, self.id, self.kind, self.data, self.before)


def content_hash(id: str, data: bytes) -> bytes:  # noqa: A002
    """The sha256 of what a row says, with the length of the id, so that no two read alike."""
    name = id.encode()
    return sha256(b"%d %b%b" % (len(name), name, data)).digest()


def row_hash(n: int, tick: int, id: str, kind: str, data: bytes, before: bytes) -> bytes:  # noqa: A002
    """The hash of a row with these values."""
    return _link_hash(n, tick, kind, content_hash(id, data), before)


def _link_hash(n: int, tick: int, kind: str, content: bytes, before: bytes) -> bytes:
    # Two numbers, and 32 bytes on either side of what has no length: it has only one reading.
    return sha256(b"%b%d %d %b%b" % (before, n, tick, kind.encode(), content)).digest()


def first_hash(channel: str, epoch: str) -> bytes:
    """With what the chain of a channel begins."""
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
        """Where reading goes on after the last row."""
        return Cursor(self.epoch, self.n)

    @property
    def serial(self) -> str:
        """The serial of the last row."""
        return serial_of(self.tick, self.epoch)


class Chain(NamedTuple):
    """Where the rows of a channel begin (after the floor) and end (with the head)."""

    floor: Head
    head: Head


class Extent(NamedTuple):
    """Which rows a channel has: those after number `floor`, up to number `n`."""

    channel: str
    epoch: str
    floor: int
    n: int


class ErasedChannel(msgspec.Struct, frozen=True, gc=False):
    """A channel that was dropped, as the `no`th: its chain runs from the floor to the head. `at` is in ms."""

    no: int
    at: int
    floor: Head
    head: Head


class ChannelPosition(msgspec.Struct, frozen=True, gc=False):
    """Where the next row of a channel will be."""

    epoch: str
    n: int
    tick: int

    def serial(self, later: int = 0) -> str:
        """The serial of that row, or of one that comes so many rows later in the same change."""
        return serial_of(self.tick + later, self.epoch)


class Slot(NamedTuple):
    """A value under its key."""

    key: str
    value: bytes


SlotValues: TypeAlias = Mapping[str, bytes | None]
"""Slots by key; None where there is no such slot."""


class Change(msgspec.Struct, Generic[_T], frozen=True):
    """What is to happen to a channel: rows, slots that are put (or taken, with None), and what to answer."""

    result: _T
    entries: Sequence[Entry] = ()
    puts: SlotValues = {}


class CommittedChange(msgspec.Struct, Generic[_T], frozen=True):
    """A change that was made: its rows, and the answer."""

    rows: tuple[Row, ...]
    result: _T


Decide: TypeAlias = Callable[[SlotValues, ChannelPosition], Change[_T]]
"""From the slots asked for as they are, and the place of the next row, to what is to happen."""


class Log(Protocol):
    """What can be read of a store, by one who does not write to it too. See `Store` for what it promises."""

    async def read(self, channel: str, after: Cursor | None = None, limit: int = 1000) -> tuple[Row, ...]:
        """Up to `limit` rows after the cursor, or from the floor; none only when there are no more.

        Fewer where they are large or very many: see `PAGE_BYTES`. CursorLost where the channel has no such
        row: it was dropped or trimmed, or the data folder is an older copy.
        """
        ...

    async def get(self, channel: str, id: str) -> Row | None:  # noqa: A002  # as it is called in an entry
        """The row of the entry that was appended under this id; None where there is none."""
        ...

    async def head(self, channel: str) -> Head | None:
        """The end of the channel; None when there is no such channel."""
        ...

    async def heads(self, prefix: str, after: str = "", limit: int = 1000) -> tuple[Head, ...]:
        """The channels whose names begin so and come after `after`, by name (in code point order)."""
        ...

    async def floor(self, channel: str) -> Head | None:
        """What was the end of the channel when its first row came that is still there.

        That is where its chain begins: number 0, until it is trimmed. None when there is no such channel.
        """
        ...

    async def extents(self, after: str = "", limit: int = 1000) -> tuple[Extent, ...]:
        """Which rows there are of the channels whose names come after `after`, by name. It reads no row."""
        ...

    async def chains(self, channels: Sequence[str]) -> tuple[Chain, ...]:
        """The floors and heads of those of these channels that are there, in this order."""
        ...

    async def slots(
        self, channel: str, after: str, before: str, limit: int = 1000, *, reverse: bool = False
    ) -> tuple[Slot, ...]:
        """Up to `limit` slots whose keys lie between the two, by key (in code point order) or backwards.

        Fewer where they are large or very many, as with `read`; none only when there are none.
        """
        ...

    def snapshot(self) -> AbstractAsyncContextManager[Log]:
        """The log as it is at one moment: nothing that is written meanwhile shows in it.

        A StoreError ends the block after `snapshot.SNAPSHOT_SECONDS`.
        """
        ...

    async def erased(self, prefix: str, after: int = 0, limit: int = 1000) -> tuple[ErasedChannel, ...]:
        """The dropped channels whose names began so, after the one with this `no`, as they were dropped."""
        ...

    async def links(self, epoch: str, after: int = 0, limit: int = 1000) -> tuple[ChainLink, ...]:
        """Up to `limit` links of the channel that was dropped in this epoch, after number `after`."""
        ...

    async def close(self) -> None:
        """Finish what was asked for, then let go of everything. Any later call is a StoreError."""
        ...


class Store(Log, Protocol):
    """Where channels are kept.

    - **Durable**: when `append` or `drop` returns, the change outlives a crash of the process and of the
      machine (the memory store keeps this as long as the process lives).
    - **Whole**: the entries of one `append` are kept all or none. When it raises, or is cancelled, they may
      be kept or not; the same call again settles it.
    - **Once**: an id is kept once per channel. To append it again, whatever the data, gives the first row
      back.
    - **In order**: rows of a channel are numbered 1, 2, 3 … in the order of their commits, with rising
      serials; a reader who has seen row n will never find a row before it that it had not been shown.
    - **Chained**: each row holds the hash of the row before it, the first one that of the channel's name and
      epoch. The hash is over the sha256 of the content, so that content can go and the chain stay.
    - A channel begins with its first row, under an epoch that no channel had before, and ends with `drop`.
    - **Restored**: where an older copy of the data is put back, epochs stay. A cursor past the end of the
      copy is lost; one within it reads on, and cannot know that other rows once came after it.

    All names (channel, id, kind) are text of 1 to 512 bytes in UTF-8 without NUL; others, and more than
    `ENTRY_BYTES`, `BATCH_BYTES` or `BATCH_ENTRIES`, are an InputError.
    """

    async def append(self, channel: str, entries: Sequence[Entry]) -> tuple[Row, ...]:
        """Keep the entries; their rows, in the order of the entries. StoreBusy when there is no room."""
        ...

    async def drop(self, channel: str) -> None:
        """Erase the ids and the data of all rows of the channel, if it is there; their links are kept."""
        ...


class Slots(Protocol):
    """Small values beside the rows of a channel, by key: what the rows add up to, so that nobody has to add.

    - **With the rows**: the rows and the puts of a change are kept all or none, under the promises of
      `Store`; puts without a row are a ValueError, so that a channel's slots are always explained by its log.
    - **One by one**: each change is decided on the slots and at the place that all changes before it have
      left. `decide` runs in any thread, perhaps more than once; it must depend on nothing else and do
      nothing else. What it raises is raised to its caller, and nothing happens.
    - Slots end with their channel.
    - **Trimmed**: what `trim` forgets is gone for good, ids too; the chain goes on from the floor.

    Keys are names as all others. An id that the log has already is an InputError here: a change mints ids.
    """

    async def change(self, channel: str, keys: Sequence[str], decide: Decide[_T]) -> CommittedChange[_T]:
        """Let `decide` see the slots with these keys, and do what it says."""
        ...

    async def values(self, channel: str, keys: Sequence[str]) -> SlotValues:
        """The slots with these keys, all of one moment."""
        ...

    async def rows_by_id(self, channel: str, after: str, before: str, limit: int = 1000) -> tuple[Row, ...]:
        """Up to `limit` rows whose ids lie between the two, by id; fewer and none as with `slots`."""
        ...

    async def seek(self, channel: str, serial: str) -> Cursor:
        """The cursor after the last row whose serial is not past this one.

        CursorLost where the channel has no such life or has not come so far; InputError for no serial.
        """
        ...

    async def trim(self, channel: str, upto: Cursor, ranges: Sequence[tuple[str, str]] = ()) -> None:
        """Forget all rows up to this one, and the slots whose keys lie between the two of a range.

        CursorLost as with `Store.read`.
        """
        ...


class ChannelStore(Store, Slots, Protocol):
    """All ports in one."""


def load_migrations(database: str) -> list[str]:
    """What makes the tables of a database, step by step: the numbered files in its folder under `sql`."""
    found = files("citewire.channels").joinpath("sql", database).iterdir()
    return [step.read_text("utf-8") for step in sorted(found, key=lambda step: step.name)]


def now_ms() -> int:
    """The wall clock, in the milliseconds that serials count."""
    return time.time_ns() // 1_000_000


def check_entries(entries: Sequence[Entry]) -> int:
    """Refuse what some store could not keep as it is; else the bytes of all."""
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
    """Refuse what some store could not keep as it is."""
    if change.puts and not change.entries:
        raise ValueError("slots are put with the rows that explain them")
    check_entries(change.entries)
    for key, value in change.puts.items():
        check_name(key)
        if value is not None and len(value) > ENTRY_BYTES:
            raise InputError(f"a slot of more than {ENTRY_BYTES // MIB} MiB")


def check_name(name: str) -> None:
    """Refuse a name that some store could not keep as it is."""
    if not 1 <= _bytes_in(name) <= 512:
        raise InputError("a name has 1 to 512 bytes and no NUL")


def check_prefix(text: str) -> None:
    """Refuse what no name could begin with; any may begin with nothing."""
    if _bytes_in(text) > 512:
        raise InputError("a name has no more than 512 bytes and no NUL")


def check_keys(channel: str, keys: Sequence[str]) -> tuple[str, ...]:
    """The keys, copied for when the store comes to them."""
    for name in (channel, *keys):
        check_name(name)
    return tuple(keys)


def check_span(channel: str, after: str, before: str) -> tuple[str, str, str]:
    """A channel, and what is to lie between the two."""
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
    """The row that the entry becomes after `head`, and the head after it."""
    tick = tick_after(head.tick, now)
    row = Row(head.epoch, head.n + 1, tick, entry.id, entry.kind, entry.data, head.hash)
    return row, head_at(head.channel, row)


def next_position(head: Head, now: int) -> ChannelPosition:
    """Where the row after `head` will be."""
    return ChannelPosition(head.epoch, head.n + 1, tick_after(head.tick, now))


def head_at(channel: str, row: Row) -> Head:
    """The head of a channel whose last row this is."""
    return Head(channel, row.epoch, row.n, row.tick, row.hash)


def check_cursor(after: Cursor, end: Cursor | None, floor: int) -> None:
    """Refuse a cursor that is not in the log of a channel with this end and floor."""
    if end is None or after.epoch != end.epoch or not floor <= after.n <= end.n:
        raise CursorLost(f"the log does not go on from {after}")


def cursor_at(serial: str, end: Head | None, floor: Head | None, tick_at: Callable[[int], int]) -> Cursor:
    """See `Slots.seek`, for a channel with this end and floor, and the ticks of its rows by number."""
    tick, series = tick_of(serial)
    if not (end and floor) or series != series_of(end.epoch) or not floor.tick <= tick <= end.tick:
        raise CursorLost(f"the log does not go on from {serial}")
    numbers = range(floor.n + 1, end.n + 1)
    return Cursor(end.epoch, floor.n + bisect_right(numbers, tick, key=tick_at))


def clamp_limit(limit: int) -> int:
    """How many are given to one who asks for `limit`."""
    return max(0, min(limit, PAGE_ROWS))


def take_page(rows: Iterable[Row], limit: int) -> tuple[Row, ...]:
    """What one read gives of these rows."""
    return _take_page(rows, limit, lambda row: len(row.data))


def take_slot_page(slots: Iterable[Slot], limit: int) -> tuple[Slot, ...]:
    """What one read gives of these slots."""
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
    """Whether a read that gave these rows came to the end of the log as it then was."""
    return len(rows) < clamp_limit(limit) and sum(len(row.data) for row in rows) < PAGE_BYTES


def find_broken_link(before: bytes, rows: Iterable[_Linked]) -> _Linked | None:
    """The first row that does not hold the hash of the one before it, where `before` is that of the first."""
    for row in rows:
        if row.before != before:
            return row
        before = row.hash
    return None
