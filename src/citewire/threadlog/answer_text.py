"""The text of a growing answer, as far as a channel can hold it, and the claims that its markers support."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from citewire.answer_edits import Sentences
from citewire.channels.message import AGGREGATED_MESSAGE_BYTES
from citewire.markers import find_markers
from citewire.model import Point
from citewire.text import Offsets

__all__ = ["AnswerText"]

# Characters that fit into one publish, whatever they are.
_PIECE = 12_000
# Up to this many bytes, citations are searched for each time the text has grown. A longer text has to grow by
# a tenth first, so that all searches together cost no more than a few.
_SHORT, _TENTH = 32 * 1024, 10


class AnswerText:
    """A text, in pieces that fit into one publish each. It `is_cut` if it is too long for one message."""

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._size = 0
        self._looked = -1
        self._claims: dict[str, tuple[int, int]] = {}
        self.is_cut = False

    def add(self, more: str) -> list[str]:
        """Append `more`, and return the accepted part in pieces."""
        data = more.encode("utf-8", "replace")
        if not data or self.is_cut:
            return []
        room = AGGREGATED_MESSAGE_BYTES - self._size
        self.is_cut = len(data) > room
        kept = data[:room].decode("utf-8", "ignore")
        self._parts.append(kept)
        self._size += min(len(data), room)
        return [kept[at : at + _PIECE] for at in range(0, len(kept), _PIECE)]

    def replace(self, text: str) -> list[str]:
        """Replace the text, and return its pieces: at least one."""
        self.__init__()
        return self.add(text) or [""]

    def matches(self, content: str) -> bool:
        """Return whether the text equals `content`, as far as a channel can hold it."""
        other = AnswerText()
        other.add(content)
        return other.is_cut == self.is_cut and "".join(other._parts) == "".join(self._parts)

    def claim(self, number: int | None, *, is_whole: bool) -> tuple[int, int] | None:
        """Return the first claim cited by a number, in UTF-16 offsets. None if there is none, or not yet."""
        grown = self._size - self._looked
        if grown and (is_whole or self._size <= _SHORT or grown * _TENTH >= self._size):
            text = "".join(self._parts)
            self._parts, self._looked, self._claims = [text], self._size, dict(_claims(text))
        return self._claims.get(str(number))


def _claims(text: str) -> Iterator[tuple[str, tuple[int, int]]]:
    """Yield claims from last to first, so that the first one wins."""
    sentences, offsets = Sentences(text), Offsets(text)
    for start, _, kind, labels in reversed(list(islice(find_markers(text), 10_000))):
        if kind == "link":
            span = start + 1, text.index("](cite:", start)
        elif found := sentences.sentence_before(Point(0, start)):
            span = found.start, found.end
        else:
            continue
        for label in labels:
            yield label, (offsets.to_unit(span[0], "utf16"), offsets.to_unit(span[1], "utf16"))
