"""Copy-on-write lists, JSON objects and texts: they grow while their snapshots stay unchanged.

A write modifies unshared data in place, and copies data once that is part of a snapshot: one message and a
few dozen neighbouring pointers, however long the thread is. Taking a snapshot costs nothing. Text is stored
in pieces and joined when it is read.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Generic, TypeVar, cast, overload

from citewire.frozen import FrozenDict

__all__ = ["AppendOnlyText", "JsonDraft", "JsonDraftList", "ListSnapshot", "PersistentList"]

_T = TypeVar("_T")
_SHIFT = 6
_WIDTH = 1 << _SHIFT
_SURROGATE = re.compile("[\ud800-\udfff]")


class AppendOnlyText:
    """Text in pieces. Copies share the pieces: the first to append extends the list, others copy it."""

    __slots__ = ("_count", "_head", "_pieces", "_read")

    def __init__(self, start: str = "") -> None:
        self._pieces = [start]
        self._count = 1
        self._head, self._read = start, 1

    def extend(self, pieces: Sequence[str]) -> None:
        if len(self._pieces) != self._count:
            self._pieces = self._pieces[: self._count]
        self._pieces.extend(pieces)
        self._count += len(pieces)

    def copy(self) -> AppendOnlyText:
        twin = AppendOnlyText.__new__(AppendOnlyText)
        twin._pieces, twin._count = self._pieces, self._count
        twin._head, twin._read = self._head, self._read
        return twin

    def join(self) -> str:
        """Return the text as received, which may contain halves of surrogate pairs."""
        if self._read < self._count:
            self._head += "".join(self._pieces[self._read : self._count])
            self._read = self._count
        return self._head

    def __str__(self) -> str:
        return join_surrogates(self.join())


def join_surrogates(text: str) -> str:
    """Join the halves of surrogate pairs in `text`; a lone half becomes U+FFFD."""
    if not _SURROGATE.search(text):
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


class JsonDraft:
    """A JSON object whose `texts` still grow.

    Only the list with the same `edition` may modify it; `key` is its key in that list.
    """

    __slots__ = ("_made", "edition", "fields", "key", "texts")

    def __init__(self, fields: dict[str, Any], texts: dict[str, AppendOnlyText] | None = None) -> None:
        self.fields = fields
        self.texts: dict[str, AppendOnlyText] = {} if texts is None else texts
        self.edition: object = None
        self.key: Any = None
        self._made: FrozenDict | None = None

    def copy(self) -> JsonDraft:
        twin = type(self).__new__(type(self))
        twin.fields, twin.key = self.fields.copy(), self.key
        twin.texts = {name: text.copy() for name, text in self.texts.items()}
        twin._made = None
        return twin

    def extend(self, name: str, pieces: Sequence[str]) -> None:
        """Append to a text member, which starts with the member's current string, if any."""
        self._made = None
        text = self.texts.get(name)
        if text is None:
            start = self.fields.get(name)
            text = self.texts[name] = AppendOnlyText(start if isinstance(start, str) else "")
        text.extend(pieces)

    def put(self, name: str, value: Any) -> None:
        """Set a member to a frozen value."""
        self._made = None
        self.fields[name] = value
        self.texts.pop(name, None)

    def drop(self, name: str) -> None:
        self._made = None
        self.fields.pop(name, None)
        self.texts.pop(name, None)

    def get(self, name: str) -> Any:
        """Return a member; a growing text as its current string."""
        text = self.texts.get(name)
        return self.fields.get(name) if text is None else str(text)

    @property
    def value(self) -> FrozenDict:
        """The current object, frozen."""
        if self._made is None:
            self._made = self._make()
        return self._made

    def _make(self) -> FrozenDict:
        return FrozenDict(self.fields | {name: str(text) for name, text in self.texts.items()})


class ListSnapshot(Sequence[Any]):
    """An immutable snapshot of a list. It compares and prints like a list."""

    __slots__ = ("_chunks", "_length")

    def __init__(self, chunks: list[list[Any]], length: int) -> None:
        self._chunks, self._length = chunks, length

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, at: int) -> Any: ...
    @overload
    def __getitem__(self, at: slice) -> list[Any]: ...
    def __getitem__(self, at: int | slice) -> Any:
        if isinstance(at, slice):
            return [self[place] for place in range(*at.indices(self._length))]
        place = at + self._length if at < 0 else at
        if not 0 <= place < self._length:
            raise IndexError(f"there are {self._length}, and no {at}")
        return _value_of(self._chunks[place >> _SHIFT][place & (_WIDTH - 1)])

    def __iter__(self) -> Iterator[Any]:
        left = self._length
        for chunk in self._chunks:
            for row in chunk[:left]:
                yield _value_of(row)
            left -= _WIDTH
            if left <= 0:
                return

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, list | tuple | ListSnapshot):
            return NotImplemented
        return list(self) == list(cast("Sequence[Any]", other))

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return repr(list(self))


def _value_of(row: Any) -> Any:
    return row.value if isinstance(row, JsonDraft) else row


class PersistentList(Generic[_T]):
    """A list in chunks of a fixed size, all full but the last. Chunks in a snapshot are copied on write."""

    def __init__(self, rows: Iterable[_T] = ()) -> None:
        every = list(rows)
        self._chunks: list[list[_T]] = [every[at : at + _WIDTH] for at in range(0, len(every), _WIDTH)]
        self._length = len(every)
        self._own: set[int] = set(range(len(self._chunks)))
        self._own_root = True

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, at: int) -> _T:
        return self._chunks[at >> _SHIFT][at & (_WIDTH - 1)]

    def __setitem__(self, at: int, row: _T) -> None:
        self._writable(at >> _SHIFT)[at & (_WIDTH - 1)] = row

    def __iter__(self) -> Iterator[_T]:
        return (row for chunk in self._chunks for row in chunk)

    def append(self, row: _T) -> None:
        if self._length & (_WIDTH - 1):
            self._writable(len(self._chunks) - 1).append(row)
        else:
            self._own_chunk_list()
            self._own.add(len(self._chunks))
            self._chunks.append([row])
        self._length += 1

    def insert(self, at: int, row: _T) -> None:
        """Insert `row` at index `at`. All later rows move, so the cost is linear in their number."""
        after = [self[place] for place in range(at, self._length)]
        self.truncate(at)
        for moved in (row, *after):
            self.append(moved)

    def truncate(self, length: int) -> None:
        """Keep the first `length` rows."""
        whole, rest = divmod(length, _WIDTH)
        last = self._chunks[whole][:rest] if rest else None
        self._chunks, self._own_root = self._chunks[:whole], True
        self._own = {at for at in self._own if at < whole}
        if last is not None:
            self._own.add(whole)
            self._chunks.append(last)
        self._length = length

    def snapshot(self) -> ListSnapshot:
        """Return the current list as an immutable snapshot."""
        self._own, self._own_root = set(), False
        return ListSnapshot(self._chunks, self._length)

    def copy(self) -> PersistentList[_T]:
        self.snapshot()
        twin = PersistentList[_T]()
        twin._chunks, twin._length = self._chunks, self._length
        twin._own_root = False
        return twin

    def _own_chunk_list(self) -> None:
        if not self._own_root:
            self._chunks = self._chunks.copy()
            self._own_root = True

    def _writable(self, at: int) -> list[_T]:
        if at not in self._own:
            self._own_chunk_list()
            self._chunks[at] = self._chunks[at].copy()
            self._own.add(at)
        return self._chunks[at]


class JsonDraftList:
    """Drafts in order, each with a key: its id, or a number if the id is taken or not a string."""

    def __init__(self, drafts: Iterable[JsonDraft] = ()) -> None:
        self._edition = object()
        self._unnamed = 0
        self.reset(drafts)

    def reset(self, drafts: Iterable[JsonDraft]) -> None:
        """Replace the content with `drafts`, which must not be shared."""
        self._rows = PersistentList[JsonDraft]()
        self._places: dict[Any, int] = {}
        for draft in drafts:
            self.add(draft)

    def _key(self, draft: JsonDraft) -> Any:
        name = draft.fields.get("id")
        if isinstance(name, str) and name not in self._places:
            return name
        self._unnamed += 1
        return self._unnamed

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[JsonDraft]:
        return iter(self._rows)

    def __contains__(self, key: Any) -> bool:
        return key in self._places

    def index_of(self, key: Any) -> int | None:
        """Return the index of the draft with this key."""
        return self._places.get(key)

    def at(self, place: int) -> JsonDraft:
        return self._rows[place]

    def find(self, key: Any) -> JsonDraft | None:
        """Return the draft with this key, for reading."""
        place = self._places.get(key)
        return None if place is None else self._rows[place]

    def edit(self, key: Any) -> JsonDraft | None:
        """Return the draft with this key, for writing."""
        place = self._places.get(key)
        if place is None:
            return None
        draft = self._rows[place]
        if draft.edition is not self._edition:
            draft = draft.copy()
            draft.edition = self._edition
            self._rows[place] = draft
        return draft

    def add(self, draft: JsonDraft) -> JsonDraft:
        draft.edition, draft.key = self._edition, self._key(draft)
        self._places[draft.key] = len(self._rows)
        self._rows.append(draft)
        return draft

    def insert(self, place: int, draft: JsonDraft) -> bool:
        """Insert a draft at index `place`.

        Returns True if a later draft has the same id: the new one is first now, so all keys are reassigned.
        """
        name = draft.fields.get("id")
        if isinstance(name, str) and self._places.get(name, -1) >= place:
            before = [row.copy() for row in self._rows]
            self.reset((*before[:place], draft, *before[place:]))
            return True
        draft.edition, draft.key = self._edition, self._key(draft)
        self._rows.insert(place, draft)
        for later in range(place, len(self._rows)):
            self._places[self._rows[later].key] = later
        return False

    def truncate(self, length: int) -> None:
        """Keep the first `length` drafts."""
        for place in range(length, len(self._rows)):
            del self._places[self._rows[place].key]
        self._rows.truncate(length)

    def replace(self, place: int, draft: JsonDraft) -> None:
        """Replace the draft at index `place` with one of the same id."""
        draft.edition, draft.key = self._edition, self._rows[place].key
        self._rows[place] = draft

    def snapshot(self) -> ListSnapshot:
        """Return an immutable snapshot: later changes are made to copies."""
        self._edition = object()
        return self._rows.snapshot()

    def copy(self) -> JsonDraftList:
        self._edition = object()
        twin = JsonDraftList()
        twin._rows, twin._places, twin._unnamed = self._rows.copy(), self._places.copy(), self._unnamed
        return twin
