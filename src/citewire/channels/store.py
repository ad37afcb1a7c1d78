"""The storage ports: `Store`, channels of numbered rows; `Log`, its read side; `Slots`, derived state.

Row metadata and limits are defined here; `store_rules` applies them, so that all stores behave alike.

    CitewireError
    ├── StoreError       the store failed
    │   ├── StoreInUse   another process has locked the data folder
    │   └── StoreBusy    the write queue is full
    └── CursorLost       the log cannot continue from this cursor
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from hashlib import sha256
from typing import Generic, NamedTuple, Protocol, TypeAlias, TypeVar

import msgspec

from citewire.channels.serial import serial_of, series_of
from citewire.errors import CitewireError, InputError

_T = TypeVar("_T")

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


class RowReader(Protocol):
    """Reads the rows of channels. `Store` states its guarantees."""

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


class ChainReader(Protocol):
    """Reads the hash chains of channels, also of dropped ones."""

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

    async def erased(self, prefix: str, after: int = 0, limit: int = 1000) -> tuple[ErasedChannel, ...]:
        """Return the dropped channels with this prefix, after number `after`, in the order of dropping."""
        ...

    async def links(self, epoch: str, after: int = 0, limit: int = 1000) -> tuple[ChainLink, ...]:
        """Return up to `limit` links of the dropped channel with this epoch, after row number `after`."""
        ...


class Log(RowReader, ChainReader, Protocol):
    """The read side of a store, for callers that do not write to it. `Store` states its guarantees."""

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
