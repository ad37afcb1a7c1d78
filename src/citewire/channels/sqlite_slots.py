"""The slots of all channels in SQLite: any connection reads them, only the one writer changes them.

As nobody else writes, the writer can cache what it has read and written. The puts of a transaction are
written at its end, so that a summary changed by many annotations is written only once.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from itertools import starmap

from citewire.channels.sqlite_inserts import Inserts
from citewire.channels.store import Slot, SlotValues
from citewire.channels.store_rules import take_slot_page

# Memory for cached slots: thousands of messages that are being annotated or appended to. The least recently
# used slots are dropped first.
BYTES_KEPT = 8 * 1024 * 1024
# The memory of a slot besides its key and value: a tuple, a number, headers, its place in a dict.
OVERHEAD = 300
# Keys in one query: SQLite allows some thousands.
_AT_ONCE = 1000

_NO = "SELECT no FROM channel WHERE name = ?"
_VALUES = "SELECT key, value FROM slot WHERE channel = ? AND key IN ({})"
_PUT = Inserts("slot", 3, "ON CONFLICT (channel, key) DO UPDATE SET value = excluded.value")
_TAKE = "DELETE FROM slot WHERE channel = ? AND key = ?"
_SLOTS = """
SELECT key, value FROM channel JOIN slot ON slot.channel = channel.no
WHERE name = ? AND key > ? AND key < ? ORDER BY key {}
"""


class WriterSlots:
    """The slots as they will be after the current transaction commits."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db
        self._seen: dict[tuple[int, str], bytes | None] = {}
        self._changed: set[tuple[int, str]] = set()
        self._size = 0

    def values(self, no: int, keys: Sequence[str]) -> SlotValues:
        """Return these slots of the channel with this number; 0 means that there is no such channel."""
        if not no:
            return dict.fromkeys(keys)
        self.look_up(no, keys)
        return {key: self._seen[no, key] for key in keys}

    def look_up(self, no: int, keys: Sequence[str]) -> None:
        """Load these slots into the cache."""
        unseen = [key for key in keys if (no, key) not in self._seen]
        for at in range(0, len(unseen), _AT_ONCE):
            for key, value in _values(self._db, no, unseen[at : at + _AT_ONCE]).items():
                self._keep(no, key, value)

    def put(self, no: int, puts: SlotValues) -> None:
        """Change these slots; `flush` writes them."""
        for key, value in puts.items():
            self._keep(no, key, value)
            self._changed.add((no, key))

    def flush(self) -> None:
        """Write the changed slots."""
        slots = [(*at, self._seen[at]) for at in self._changed]
        _PUT.run(self._db, [slot for slot in slots if slot[2] is not None])
        self._db.executemany(_TAKE, (slot[:2] for slot in slots if slot[2] is None))
        self._changed.clear()
        while self._size > BYTES_KEPT:
            self._drop(next(iter(self._seen)))

    def forget(self) -> None:
        """Clear the cache and discard changes that were not flushed."""
        self._seen.clear()
        self._changed.clear()
        self._size = 0

    @property
    def size(self) -> int:
        """The approximate memory of the cache, in bytes."""
        return self._size

    def _keep(self, no: int, key: str, value: bytes | None) -> None:
        self._drop((no, key))
        self._seen[no, key] = value
        self._size += len(key) + len(value or b"") + OVERHEAD

    def _drop(self, at: tuple[int, str]) -> None:
        if at in self._seen:
            self._size -= len(at[1]) + len(self._seen.pop(at) or b"") + OVERHEAD


def _values(db: sqlite3.Connection, no: int, keys: Sequence[str]) -> SlotValues:
    query = _VALUES.format(",".join("?" * len(keys)))
    return dict.fromkeys(keys) | dict(db.execute(query, (no, *keys)))


def values(db: sqlite3.Connection, channel: str, keys: Sequence[str]) -> SlotValues:
    """See `Slots.values`."""
    (no,) = db.execute(_NO, (channel,)).fetchone() or (0,)
    return _values(db, no, keys)


def slots_between(
    db: sqlite3.Connection, span: tuple[str, str, str], limit: int, reverse: bool
) -> tuple[Slot, ...]:
    """See `Slots.slots`; the span is a channel and two keys."""
    found = db.execute(_SLOTS.format("DESC" if reverse else "ASC"), span)
    return take_slot_page(starmap(Slot, found), limit)
