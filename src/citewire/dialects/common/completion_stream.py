"""Assembles chat completion chunks into the completion that a request without streaming would return."""

from __future__ import annotations

from itertools import groupby
from typing import Any

from citewire.dialects.base import DialectOptions, Json, is_list, is_object, optional
from citewire.dialects.common.incremental import IncrementalReader, readable_annotations
from citewire.errors import ShapeError
from citewire.model import Answer, Citation

__all__ = ["ChunkStream", "MarkerStream", "join_text_chunks"]

# Text fields that arrive in pieces. Of the other fields, lists grow, and of other values the last one counts.
_PIECES = frozenset({"content", "reasoning", "reasoning_content", "refusal"})


class ChunkStream:
    """Reads chunks. A citation is returned once its position in the text is final, the rest at the end."""

    def __init__(self, options: DialectOptions) -> None:
        self._options = options
        self._looks = IncrementalReader(self.answer, self._certain)
        self._whole: Json = {}
        self._choices: dict[int, _Choice] = {}

    def feed(self, event: Any) -> tuple[Citation, ...]:
        if not is_object(event):
            raise ShapeError("a chunk is not an object")
        size, is_end = 0, False
        for place, choice in enumerate(optional(event, "choices", list, "$") or ()):
            if is_object(choice) and is_object(delta := choice.get("delta")):
                index = choice.get("index")
                number = index if type(index) is int else place
                size += self._choices.setdefault(number, _Choice()).add(choice, delta)
                is_end = is_end or isinstance(choice.get("finish_reason"), str)
        self._whole |= {key: value for key, value in event.items() if key != "choices" and value is not None}
        return self._looks.read_new(size, news=size > 0, done=is_end)

    def answer(self) -> Answer:
        choices = [self._choices[number].whole(number) for number in sorted(self._choices)]
        completion = {**self._whole, "object": "chat.completion", "choices": choices}
        answers = self._read(completion)
        return answers[0] if answers else Answer()

    def _certain(self, answer: Answer) -> tuple[Citation, ...]:
        return readable_annotations(answer)

    def _read(self, completion: Json) -> tuple[Answer, ...]:
        """Read the answers of the completion assembled from the chunks."""
        raise NotImplementedError


class MarkerStream(ChunkStream):
    """Reads chunks whose citations are markers in the text."""

    def _certain(self, answer: Answer) -> tuple[Citation, ...]:
        """Return the citations whose marker is complete: the next characters could turn it into a link."""
        length = len(answer.text)
        return tuple(c for c in answer.citations if c.marker and c.marker.end < length)


class _Choice:
    def __init__(self) -> None:
        self._choice: Json = {}
        self._message: Json = {}
        self._pieces: dict[str, list[str]] = {}
        self._lists: dict[str, list[Any]] = {}

    def add(self, choice: Json, delta: Json) -> int:
        """Apply a delta and return the size of its content."""
        size = 0
        for key, value in delta.items():
            if key == "content" and (is_list(value) or key in self._lists):
                size += self._add_chunks(value)
            elif key in _PIECES and isinstance(value, str):
                self._pieces.setdefault(key, []).append(value)
                size += len(value)
            elif is_list(value):
                self._lists.setdefault(key, []).extend(value)
                size += len(value)
            elif value is not None:
                size += self._message.get(key) != value
                self._message[key] = value
        self._choice |= {key: value for key, value in choice.items() if key != "delta" and value is not None}
        return size

    def _add_chunks(self, value: Any) -> int:
        """Append to content that is or was a list; text before and after the list becomes list items too."""
        before = self._pieces.pop("content", [])
        chunks = self._lists.setdefault("content", [_text(piece) for piece in before])
        if is_list(value):
            chunks += value
            return len(value)
        chunks += [_text(value)] if isinstance(value, str) else []
        return len(value) if isinstance(value, str) else 0

    def whole(self, number: int) -> Json:
        pieces = {key: "".join(pieces) for key, pieces in self._pieces.items()}
        lists = {key: list(values) for key, values in self._lists.items()}
        if "content" in lists:
            lists["content"] = join_text_chunks(lists["content"])
        message = {"role": "assistant", "content": None, **self._message, **pieces, **lists}
        return {"index": number, **self._choice, "message": message}


def _text(text: str) -> Json:
    return {"type": "text", "text": text}


def join_text_chunks(chunks: list[Any]) -> list[Any]:
    """Merge adjacent text chunks into one."""
    out: list[Any] = []
    for is_text, run in groupby(chunks, _is_text):
        same = list(run)
        out += [_text("".join(chunk["text"] for chunk in same))] if is_text else same
    return out


def _is_text(chunk: Any) -> bool:
    return is_object(chunk) and chunk.get("type") == "text" and isinstance(chunk.get("text"), str)
