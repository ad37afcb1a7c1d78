"""What the streams share whose answer is read anew as it grows."""

from __future__ import annotations

from citewire.model import Answer, Citation

__all__ = ["GrowingStream"]

# The answer is read again when it has grown by this much, so that all readings together cost no more than
# five of the whole.
_GROWTH = 1.25
# How many of the events that bring something behind the end are read at once.
_LATE = 32


class GrowingStream:
    """Gives a citation when the rest of the stream will not change it, and all that is left at the end."""

    def __init__(self) -> None:
        self._known: dict[str, Citation] = {}
        self._size = 0
        self._next = 1.0
        self._late = _LATE

    def answer(self) -> Answer:
        raise NotImplementedError

    def _certain(self, answer: Answer) -> tuple[Citation, ...]:
        """The citations that the rest of the stream will not change: here annotations, up to the first that
        cannot be read, which may be ahead of its text."""
        natives = [part.native for part in answer.parts if part.native and part.native.kept]
        waiting = min(((*native.at, native.kept[0][0]) for native in natives), default=None)
        return tuple(c for c in answer.citations if waiting is None or (c.native and c.native.at < waiting))

    def _grown(self, size: int, *, is_end: bool) -> tuple[Citation, ...]:
        """What is to be given after an event that brought so much, or that says this is the end."""
        self._size += size
        was_end = self._late < _LATE
        if self._late and (size if was_end else is_end):
            self._late -= 1
            return self._given(is_end=True)
        return self._given(is_end=was_end) if self._size >= self._next else ()

    def _given(self, *, is_end: bool) -> tuple[Citation, ...]:
        """What is new or has changed among the citations, or among those that are certain."""
        self._next = self._size * _GROWTH
        answer = self.answer()
        found = answer.citations if is_end else self._certain(answer)
        bare = Answer(citations=found).bare().citations
        new = [number for number, citation in enumerate(bare) if self._known.get(citation.id) != citation]
        self._known |= {citation.id: citation for citation in bare}
        return tuple(found[number] for number in new)
