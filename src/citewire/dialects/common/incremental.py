"""Looks at an answer that is still growing, to find the citations that are new in it."""

from __future__ import annotations

from collections.abc import Callable

from citewire.model import Answer, Citation, Source

__all__ = ["IncrementalReader", "readable_annotations"]

# Reading costs as much as the answer is long, and a stream must not cost more than its length. So many
# characters (a citation counts as some, readable or not) may be read over again, more than any real answer
# needs; then an answer is read only when it has grown by a quarter, which is no more than five readings of
# the whole, and at the end.
_READ_AGAIN = 10_000_000
_PER_CITATION = 200
_GROWTH = 1.25


class IncrementalReader:
    """Reads the answer so far, and tells which of its citations are new or have changed.

    Where any event may bring a citation, `certain` tells those that the rest of the stream will not change.
    The others are told at the end, and before that the answer is read only as it grows.
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
        """The citations to give after an event that brought so much, if there is `news` in it or all is
        `done`; what is not given now is given later, or when all is done."""
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
    """The citations up to the first annotation that cannot be read: it may be ahead of its text."""
    natives = [part.native for part in answer.parts if part.native and part.native.kept]
    waiting = min(((*native.at, native.kept[0][0]) for native in natives), default=None)
    return tuple(c for c in answer.citations if waiting is None or (c.native and c.native.at < waiting))
