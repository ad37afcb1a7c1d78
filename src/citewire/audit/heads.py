"""Write signed heads: record how far every channel has come, then sign the hash of these records.

The last record of a channel is a slot of the channel `audit:`, under the channel's name. So one pass over the
channels in name order finds the changed ones, independent of clocks, with only a page of them in memory.

Anyone who can write to the store could put such slots, so each has an HMAC with the audit key. A slot with a
wrong HMAC counts as absent, as all do after a change of the key: then every channel is recorded again.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from hmac import compare_digest
from uuid import uuid4

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from citewire.audit.signing import AuditKey
from citewire.audit.statements import (
    AUDIT_CHANNEL,
    Position,
    SignedHead,
    Statement,
    Tombstone,
    read_statement,
)
from citewire.audit.thread_fold import date_of
from citewire.channels.store import (
    PAGE_ROWS,
    Change,
    ChannelPosition,
    ChannelStore,
    Entry,
    Extent,
    Log,
    SlotValues,
    StoreError,
)
from citewire.channels.store_rules import now_ms
from citewire.errors import ShapeError

__all__ = ["HeadSuperseded", "HeadWriter"]

# Positions written in one change, and rows read at once.
_PAGE = 1000
# The slot of the last head. It sorts before all names of channels, which begin with letters.
_LAST, _PAST_ALL = "!head", "\U0010ffff"
# The maximum number of digits in the number of a head.
_DIGITS = 18


class _LastHead(Struct, frozen=True):
    """The last head, its row, and the last recorded tombstone; with an HMAC over these."""

    head: SignedHead | None = None
    row: int = 0
    tombstone: int = 0
    mac: str = ""


class HeadSuperseded(StoreError):
    """Another server has written a head meanwhile."""


class HeadWriter:
    """Writes heads into a store, signed with a key. Only one server at a time should do this."""

    def __init__(self, store: ChannelStore, key: AuditKey, now: Callable[[], int] = now_ms) -> None:
        self._store, self._key, self._now = store, key, now

    async def write(self) -> SignedHead:
        """Sign the current content of the store. If nothing has changed, return the last head."""
        at = date_of(self._now() * 1000)
        slot = await self._last_slot()
        last = await self._last(slot)
        number, previous = (last.head.number + 1, last.head.digest) if last.head else (1, "")
        await self._introduce()
        async with self._store.snapshot() as snapshot:
            await self._note_positions(snapshot, number)
            tombstone = await self._note_tombstones(snapshot, last.tombstone)
        end = await self._store.head(AUDIT_CHANNEL)
        if end is None:
            await self._put([Entry("begin", "begin", b"")], {})
            end = await self._store.head(AUDIT_CHANNEL)
        if end is None:
            raise HeadSuperseded("the audit log is gone")
        if last.head and end.n == last.row and last.head.key == self._key.public:
            return last.head
        head = self._key.sign(
            SignedHead(number=number, at=at, epoch=end.epoch, n=end.n, hash=end.hash.hex(), previous=previous)
        )
        await self._put_head(head, tombstone, slot)
        return head

    async def last_head(self) -> SignedHead | None:
        """Return the last head, or None."""
        return (await self._last(await self._last_slot())).head

    async def _last_slot(self) -> bytes | None:
        return (await self._store.values(AUDIT_CHANNEL, [_LAST]))[_LAST]

    async def _last(self, slot: bytes | None) -> _LastHead:
        """Decode the slot of the last head. If its HMAC is wrong, use the last head in the log.

        The row and the last tombstone are then 0: a head is written, and all tombstones are recorded.
        """
        try:
            last = msgspec.json.decode(slot or b"{}", type=_LastHead)
        except (msgspec.DecodeError, UnicodeDecodeError):
            last = _LastHead()
        is_ours = compare_digest(last.mac.encode(), self._mac_of(last).encode())
        return last if is_ours else _LastHead(await self._last_in_log())

    async def _last_in_log(self) -> SignedHead | None:
        last, row_n, after = None, 0, "head:"
        while rows := await self._store.rows_by_id(AUDIT_CHANNEL, after, "head;"):
            for row in rows:
                try:
                    head = read_statement(row)
                except ShapeError:
                    continue
                if isinstance(head, SignedHead) and row.n > row_n:
                    last, row_n = head, row.n
            after = rows[-1].id
        return last

    def _mac_of(self, last: _LastHead) -> str:
        return self._mac(_LAST, msgspec.json.encode(replace(last, mac="")).decode())

    def _mac(self, slot: str, *values: str | int) -> str:
        return self._key.mac(msgspec.json.encode((slot, *values)))

    async def _introduce(self) -> None:
        """Record the key introductions, which name the earlier keys."""
        introduced = self._key.introductions
        entries = [_entry(f"key:{each.public}", "key", each) for each in introduced]
        await self._store.append(AUDIT_CHANNEL, entries)

    async def _note_positions(self, snapshot: Log, number: int) -> None:
        """Record the positions of the channels that changed since the last head, for head `number`."""
        async for changed, gone in self._changes(snapshot, number):
            found = [Position.of(chain) for chain in await snapshot.chains(changed)]
            puts: dict[str, bytes | None] = dict.fromkeys(gone)
            puts |= {each.channel: self._slot(each.extent, number) for each in found}
            await self._put([_entry(f"position:{uuid4().hex}", "position", each) for each in found], puts)

    async def _note_tombstones(self, snapshot: Log, after: int) -> int:
        while found := await snapshot.erased("", after, _PAGE):
            noted = [Tombstone.of(each) for each in found]
            entries = [_entry(f"tombstone:{each.no}", "tombstone", each) for each in noted]
            await self._store.append(AUDIT_CHANNEL, entries)
            after = found[-1].no
        return after

    async def _put_head(self, head: SignedHead, tombstone: int, slot: bytes | None) -> None:
        def decide(values: SlotValues, place: ChannelPosition) -> Change[None]:
            if values[_LAST] != slot:
                raise HeadSuperseded("another server has written a head meanwhile")
            entry = _entry(f"head:{head.number}", "head", head)
            now = _LastHead(head, place.n, tombstone)
            value = msgspec.json.encode(replace(now, mac=self._mac_of(now)))
            return Change(None, [entry], {_LAST: value})

        await self._store.change(AUDIT_CHANNEL, [_LAST], decide)

    async def _put(self, entries: Sequence[Entry], puts: SlotValues) -> None:
        await self._store.change(AUDIT_CHANNEL, [], lambda _values, _place: Change(None, entries, puts))

    async def _changes(self, snapshot: Log, number: int) -> AsyncIterator[tuple[list[str], list[str]]]:
        """Yield pages of channels whose extent differs from its last record, and of deleted channels."""
        noted, after = _NotedExtents(self._store), ""
        while extents := await snapshot.extents(after, PAGE_ROWS):
            after = extents[-1].channel
            await noted.read_to(after)
            changed = [
                each.channel for each in extents if not self._is_noted(each, noted.take(each.channel), number)
            ]
            gone = noted.take_remaining(after)
            others = [name for name in changed if name != AUDIT_CHANNEL]
            for at in range(0, len(others), _PAGE):
                yield others[at : at + _PAGE], gone
                gone = []

    def _is_noted(self, extent: Extent, slot: bytes | None, number: int) -> bool:
        """Tell whether the slot is authentic, and a head before `number` covers this extent.

        A slot for head `number` itself does not count: it is from an interrupted writer, or from rows that
        somebody removed from the audit log.
        """
        noted_for = (slot or b"").split(b":")[-2:-1]
        if not (noted_for and noted_for[0].isdigit() and len(noted_for[0]) <= _DIGITS):
            return False
        head = int(noted_for[0])
        return head < number and compare_digest(slot or b"", self._slot(extent, head))

    def _slot(self, extent: Extent, number: int) -> bytes:
        """Encode the record of a channel for head `number`."""
        channel, epoch, floor, n = extent
        return f"{epoch}:{floor}:{n}:{number}:{self._mac(channel, epoch, floor, n, number)}".encode()


def _entry(name: str, kind: str, statement: Statement) -> Entry:
    return Entry(name, kind, msgspec.json.encode(statement))


class _NotedExtents:
    """The last recorded extents of the channels, read in step with their names."""

    def __init__(self, store: Log) -> None:
        self._store = store
        self._slots: dict[str, bytes] = {}
        self._after, self._is_over = _LAST, False

    async def read_to(self, name: str) -> None:
        """Read the records of all channels up to this name."""
        while not self._is_over and self._after < name:
            found = await self._store.slots(AUDIT_CHANNEL, self._after, _PAST_ALL, PAGE_ROWS)
            self._slots.update(found)
            self._is_over = not found
            self._after = found[-1].key if found else self._after

    def take(self, channel: str) -> bytes | None:
        """Remove and return the last record of a channel."""
        return self._slots.pop(channel, None)

    def take_remaining(self, name: str) -> list[str]:
        """Remove and return the channels up to this name that were not taken: they no longer exist."""
        left = [key for key in self._slots if key <= name]
        for key in left:
            del self._slots[key]
        return left
