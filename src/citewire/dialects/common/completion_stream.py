"""Chat completion chunks put together again, as the completion would have been without streaming."""

from __future__ import annotations

from itertools import groupby
from typing import Any

from citewire.dialects.base import DialectOptions, Json, is_list, is_object, optional
from citewire.dialects.common.incremental import IncrementalReader, readable_annotations
from citewire.errors import ShapeError
from citewire.model import Answer, Citation

__all__ = ["ChunkStream", "MarkerStream", "join_text_chunks"]

# Pieces of text; all else in a delta is a list that grows, or a value that the last one to say it decides.
_PIECES = frozenset({"content", "reasoning", "reasoning_content", "refusal"})


class ChunkStream:
    """Reads chunks. A citation is given when its place in the text is certain, the others at the end."""

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
        """The answers of the completion that the chunks make."""
        raise NotImplementedError


class MarkerStream(ChunkStream):
    """Reads chunks whose citations are markers in the text."""

    def _certain(self, answer: Answer) -> tuple[Citation, ...]:
        """Those whose markers are complete: what follows one may make it a link."""
        length = len(answer.text)
        return tuple(c for c in answer.citations if c.marker and c.marker.end < length)


class _Choice:
    def __init__(self) -> None:
        self._choice: Json = {}
        self._message: Json = {}
        self._pieces: dict[str, list[str]] = {}
        self._lists: dict[str, list[Any]] = {}

    def add(self, choice: Json, delta: Json) -> int:
        """Take a delta in: how much it brought."""
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
        """Content that is a list, or has been: all text before it, and behind it, is of the list, too."""
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
    """Chunks with those that are pieces of one text made one."""
    out: list[Any] = []
    for is_text, run in groupby(chunks, _is_text):
        same = list(run)
        out += [_text("".join(chunk["text"] for chunk in same))] if is_text else same
    return out


def _is_text(chunk: Any) -> bool:
    return is_object(chunk) and chunk.get("type") == "text" and isinstance(chunk.get("text"), str)
