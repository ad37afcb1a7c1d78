"""Finds the new citations in an answer that is still streaming."""

from __future__ import annotations

from collections.abc import Callable

from citewire.model import Answer, Citation, Source

__all__ = ["IncrementalReader", "readable_annotations"]

# Each reading takes time in proportion to the answer, and the total for a stream must stay linear in its
# length. So this many characters may be read again, more than any real answer needs (a citation counts as
# some, readable or not). Beyond that an answer is read only when it has grown by a quarter, which costs at
# most five readings of the whole, and at the end.
_READ_AGAIN = 10_000_000
_PER_CITATION = 200
_GROWTH = 1.25


class IncrementalReader:
    """Reads the answer so far and returns the citations that are new or have changed.

    If any event can add citations, `certain` selects those that the rest of the stream cannot change. The
    others are returned at the end; until then, the answer is read only as it grows.
    """

    def __init__(
        self,
        read: Callable[[], Answer],
        certain: Callable[[Answer], tuple[Citation, ...]] | None = None,
    ) -> None:
        self._read = read
        self._certain = certain
        self._given: dict[str, tuple[Citation, list[Source]]] = {}
        self._left = 0 if certain else _READ_AGAIN
        self._size = 0
        self._next = 1.0
        self._is_done = False

    def read_new(self, size: int = 1, *, news: bool, done: bool = False) -> tuple[Citation, ...]:
        """Return the new citations after an event of this `size`, if it has `news` or is the last (`done`).
        Citations that are not returned now follow later, at the latest with the last event."""
        self._size += size
        is_last = done and not self._is_done
        if is_last:
            self._is_done, self._left = True, _READ_AGAIN
        if not is_last and not (news and (self._left > 0 or self._size >= self._next)):
            return ()
        answer = self._read()
        entries = len(answer.citations) + len(answer.problems)
        self._left -= self._size + sum(len(part.text) for part in answer.parts) + _PER_CITATION * entries
        self._next = self._size * _GROWTH
        found = answer.citations if self._certain is None or self._is_done else self._certain(answer)
        bare = answer.bare()
        sources = {source.id: source for source in bare.sources}
        said = {one.id: (one, [sources[ref.source_id] for ref in one.refs]) for one in bare.citations}
        new = tuple(one for one in found if self._given.get(one.id) != said[one.id])
        self._given |= {one.id: said[one.id] for one in new}
        return new


def readable_annotations(answer: Answer) -> tuple[Citation, ...]:
    """Return the citations before the first unreadable annotation, which may refer to text still to come."""
    natives = [part.native for part in answer.parts if part.native and part.native.kept]
    waiting = min(((*native.at, native.kept[0][0]) for native in natives), default=None)
    return tuple(c for c in answer.citations if waiting is None or (c.native and c.native.at < waiting))
