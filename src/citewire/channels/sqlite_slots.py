"""The slots of all channels in SQLite: read by anyone, changed by the one writer.

As nobody else writes, the writer can go by what it has seen and written before. What one transaction puts is
written at its end, so that a summary that many annotations change is written once for all of them.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from itertools import starmap

from citewire.channels.sqlite_inserts import Inserts
from citewire.channels.store import Slot, SlotValues, take_slot_page

# Memory for slots that were seen: thousands of messages that are being annotated or appended to. The slots
# used longest ago go first.
BYTES_KEPT = 8 * 1024 * 1024
# What one takes beside the bytes of its key and value: a tuple, a number, headers, its place in a dict.
OVERHEAD = 300
# Keys in one query: SQLite takes some thousands.
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
    """The slots as they will be when the transaction is committed."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db
        self._seen: dict[tuple[int, str], bytes | None] = {}
        self._changed: set[tuple[int, str]] = set()
        self._size = 0

    def values(self, no: int, keys: Sequence[str]) -> SlotValues:
        """The slots of the channel with this number; 0 is none."""
        if not no:
            return dict.fromkeys(keys)
        self.look_up(no, keys)
        return {key: self._seen[no, key] for key in keys}

    def look_up(self, no: int, keys: Sequence[str]) -> None:
        """Have seen them."""
        unseen = [key for key in keys if (no, key) not in self._seen]
        for at in range(0, len(unseen), _AT_ONCE):
            for key, value in _values(self._db, no, unseen[at : at + _AT_ONCE]).items():
                self._keep(no, key, value)

    def put(self, no: int, puts: SlotValues) -> None:
        """Change them, once `flush` is called."""
        for key, value in puts.items():
            self._keep(no, key, value)
            self._changed.add((no, key))

    def flush(self) -> None:
        """Write what has changed."""
        slots = [(*at, self._seen[at]) for at in self._changed]
        _PUT.run(self._db, [slot for slot in slots if slot[2] is not None])
        self._db.executemany(_TAKE, (slot[:2] for slot in slots if slot[2] is None))
        self._changed.clear()
        while self._size > BYTES_KEPT:
            self._drop(next(iter(self._seen)))

    def forget(self) -> None:
        """Know nothing: what was not flushed never was."""
        self._seen.clear()
        self._changed.clear()
        self._size = 0

    @property
    def size(self) -> int:
        """Bytes of memory that are taken by what was seen, about."""
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
