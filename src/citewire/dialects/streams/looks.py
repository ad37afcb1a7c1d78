"""Looks at an answer that is still growing, for streams that say when there may be something new."""

from __future__ import annotations

from collections.abc import Callable

from citewire.model import Answer, Citation

__all__ = ["Looks"]

# Reading costs as much as the answer is long, and a stream must not cost more than its length. So many
# characters (a citation counts as some) may be read over again, more than any real answer needs; then an
# answer is read only when there have been a few more events, one for so many before, and at the end.
_READ_AGAIN = 10_000_000
_PER_CITATION = 200
_GROWTH = 8


class Looks:
    """Reads the answer so far, and tells which of its citations are new or have changed."""

    def __init__(self, read: Callable[[], Answer]) -> None:
        self._read = read
        self._given: dict[str, Citation] = {}
        self._left = _READ_AGAIN
        self._events = 0
        self._next = 0
        self._is_done = False

    def count(self) -> None:
        """Another event was fed."""
        self._events += 1

    def look(self, *, done: bool = False) -> tuple[Citation, ...]:
        """The citations to give now; a later look, or the one when all is `done`, gives what this may not."""
        is_last, self._is_done = done and not self._is_done, self._is_done or done
        if not is_last and self._left <= 0 and self._events < self._next:
            return ()
        answer = self._read()
        self._left -= sum(len(part.text) for part in answer.parts) + _PER_CITATION * len(answer.citations)
        self._next = self._events + self._events // _GROWTH + 1
        new = tuple(one for one in answer.citations if self._given.get(one.id) != one)
        self._given |= {citation.id: citation for citation in new}
        return new
