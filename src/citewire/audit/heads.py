"""Write signed heads: note how far every channel has come, then sign the hash of all that was noted.

What was noted last of a channel is a slot of the channel `audit:`, under the name of the channel. So one pass
over the channels, in the order of their names, finds those that have changed, whatever the clocks say, and
holds no more than a page of them.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from uuid import uuid4

import msgspec
from msgspec import Struct

from citewire.audit.signing import AuditKey
from citewire.audit.statements import CHANNEL, Position, SignedHead, Statement, Tombstone
from citewire.audit.thread import date_of
from citewire.channels.store import (
    PAGE_ROWS,
    Change,
    ChannelStore,
    Entry,
    Extent,
    Log,
    Place,
    StoreError,
    Values,
    now_ms,
)

__all__ = ["HeadWriter", "Superseded"]

# Positions that are written in one change, and rows that are read at once.
_PAGE = 1000
# The slot that says what the last head was. It comes before all names of channels, which begin with letters.
_LAST, _PAST_ALL = "!head", "\U0010ffff"


class _Last(Struct, frozen=True):
    """The last head, the row in which it is, and the last tombstone that was noted."""

    head: SignedHead | None = None
    row: int = 0
    tombstone: int = 0


class Superseded(StoreError):
    """Another server has written a head meanwhile."""


class HeadWriter:
    """Writes heads into a store, signed with a key. Of several servers one at a time is to do so."""

    def __init__(self, store: ChannelStore, key: AuditKey, now: Callable[[], int] = now_ms) -> None:
        self._store, self._key, self._now = store, key, now

    async def write(self) -> SignedHead:
        """Sign what the store holds now. Where nothing has changed, the last head is given again."""
        at = date_of(self._now() * 1000)
        last = await self._last()
        await self._introduce()
        async with self._store.snapshot() as snapshot:
            await self._note_positions(snapshot)
            tombstone = await self._note_tombstones(snapshot, last.tombstone)
        end = await self._store.head(CHANNEL)
        if end is None:
            await self._put([Entry("begin", "begin", b"")], {})
            end = await self._store.head(CHANNEL)
        if end is None:
            raise Superseded("the audit log is gone")
        if last.head and end.n == last.row and last.head.key == self._key.public:
            return last.head
        number, previous = (last.head.number + 1, last.head.digest) if last.head else (1, "")
        head = self._key.sign(
            SignedHead(number=number, at=at, epoch=end.epoch, n=end.n, hash=end.hash.hex(), previous=previous)
        )
        await self._put_head(head, tombstone, last)
        return head

    async def last_head(self) -> SignedHead | None:
        """The head that was written last; None where there is none."""
        return (await self._last()).head

    async def _last(self) -> _Last:
        value = (await self._store.values(CHANNEL, [_LAST]))[_LAST]
        return msgspec.json.decode(value, type=_Last) if value else _Last()

    async def _introduce(self) -> None:
        """Have the log say which keys there were before this one."""
        introduced = self._key.introductions
        entries = [_entry(f"key:{each.public}", "key", each) for each in introduced]
        await self._store.append(CHANNEL, entries)

    async def _note_positions(self, snapshot: Log) -> None:
        async for changed, gone in _changes(snapshot, self._store):
            found = [Position.of(chain) for chain in await snapshot.chains(changed)]
            puts: dict[str, bytes | None] = dict.fromkeys(gone)
            puts |= {each.channel: _slot(each.extent) for each in found}
            await self._put([_entry(f"position:{uuid4().hex}", "position", each) for each in found], puts)

    async def _note_tombstones(self, snapshot: Log, after: int) -> int:
        while found := await snapshot.erased("", after, _PAGE):
            noted = [Tombstone.of(each) for each in found]
            entries = [_entry(f"tombstone:{each.no}", "tombstone", each) for each in noted]
            await self._store.append(CHANNEL, entries)
            after = found[-1].no
        return after

    async def _put_head(self, head: SignedHead, tombstone: int, last: _Last) -> None:
        def decide(values: Values, place: Place) -> Change[None]:
            value = values[_LAST]
            if (msgspec.json.decode(value, type=_Last) if value else _Last()) != last:
                raise Superseded("another server has written a head meanwhile")
            entry = _entry(f"head:{head.number}", "head", head)
            now = _Last(head, place.n, tombstone)
            return Change(None, [entry], {_LAST: msgspec.json.encode(now)})

        await self._store.change(CHANNEL, [_LAST], decide)

    async def _put(self, entries: Sequence[Entry], puts: Values) -> None:
        await self._store.change(CHANNEL, [], lambda _values, _place: Change(None, entries, puts))


def _entry(name: str, kind: str, statement: Statement) -> Entry:
    return Entry(name, kind, msgspec.json.encode(statement))


async def _changes(snapshot: Log, store: Log) -> AsyncIterator[tuple[list[str], list[str]]]:
    """The channels whose extent is not what was noted last, page by page; and those that are gone."""
    noted, after = _Noted(store), ""
    while extents := await snapshot.extents(after, PAGE_ROWS):
        after = extents[-1].channel
        await noted.read_to(after)
        changed = [each.channel for each in extents if noted.take(each.channel) != _slot(each)]
        gone = noted.take_left(after)
        others = [name for name in changed if name != CHANNEL]
        for at in range(0, len(others), _PAGE):
            yield others[at : at + _PAGE], gone
            gone = []


def _slot(extent: Extent) -> bytes:
    """What is noted of a channel."""
    return f"{extent.epoch}:{extent.floor}:{extent.n}".encode()


class _Noted:
    """What was noted last of the channels, read along with their names."""

    def __init__(self, store: Log) -> None:
        self._store = store
        self._slots: dict[str, bytes] = {}
        self._after, self._is_over = _LAST, False

    async def read_to(self, name: str) -> None:
        """Have what was noted of all channels up to this name."""
        while not self._is_over and self._after < name:
            found = await self._store.slots(CHANNEL, self._after, _PAST_ALL, PAGE_ROWS)
            self._slots.update(found)
            self._is_over = not found
            self._after = found[-1].key if found else self._after

    def take(self, channel: str) -> bytes | None:
        """What was noted last of a channel."""
        return self._slots.pop(channel, None)

    def take_left(self, name: str) -> list[str]:
        """The channels up to this name that nobody has taken: they are gone."""
        left = [key for key in self._slots if key <= name]
        for key in left:
            del self._slots[key]
        return left
