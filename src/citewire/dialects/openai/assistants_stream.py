"""The stream of an OpenAI Assistants run: messages in pieces, and each one again when it is complete."""

from __future__ import annotations

from typing import Any

from citewire.dialects.base import DialectOptions, Json, is_list, is_object, require
from citewire.dialects.common.incremental import IncrementalReader, readable_annotations
from citewire.dialects.openai import assistants
from citewire.errors import ShapeError
from citewire.model import Answer, Citation

__all__ = ["AssistantsStream", "NAME", "STREAM", "detect"]

NAME = assistants.NAME


def detect(payload: Any) -> bool:
    """Whether these are thread events, bare or with their names, some of them about a message."""
    if not is_list(payload) or not all(map(is_object, payload)):
        return False
    return any(_data(event).get("object") == "thread.message.delta" for event in payload)


def _data(event: Json) -> Json:
    data = event.get("data")
    return data if isinstance(event.get("event"), str) and is_object(data) else event


class AssistantsStream:
    """Reads the events of a run. All its messages form one answer, with their parts in order."""

    def __init__(self, options: DialectOptions) -> None:
        self._options = options
        self._looks = IncrementalReader(self.answer, readable_annotations)
        self._messages: dict[str, _Message] = {}

    def feed(self, event: Any) -> tuple[Citation, ...]:
        if not is_object(event):
            raise ShapeError("a stream event is not an object")
        data = _data(event)
        match data.get("object"):
            case "thread.message":
                message = self._message(data)
                size = message.replace(data)
                is_done = isinstance(data.get("completed_at"), int | float)
                return self._looks.read_new(size, news=size > 0, done=is_done)
            case "thread.message.delta":
                delta = require(data, "delta", dict, "$")
                size = self._message(data).add(delta)
                return self._looks.read_new(size, news=size > 0)
            case _:
                return ()

    def _message(self, data: Json) -> _Message:
        return self._messages.setdefault(require(data, "id", str, "$"), _Message())

    def answer(self) -> Answer:
        messages = [message.whole() for message in self._messages.values()]
        if not messages:
            return Answer()
        content = [content for message in messages for content in message["content"]]
        answers = assistants.read_all({**messages[0], "content": content}, self._options)
        return answers[0] if answers else Answer()


class _Message:
    """A message so far."""

    def __init__(self) -> None:
        self._raw: Json = {"object": "thread.message", "role": "assistant"}
        self._contents: dict[int, _Content] = {}

    def replace(self, message: Json) -> int:
        """Replace the message and return the number of its contents; a message that just started has none."""
        self._raw = {**self._raw, **message}
        contents = require(message, "content", list, "$")
        for at, content in enumerate(contents):
            self._contents[at] = _Content()
            if is_object(content):
                self._contents[at].add(content)
        return len(contents)

    def add(self, delta: Json) -> int:
        """Add a delta and return the size of its content."""
        size = 0
        pieces = delta.get("content")
        for place, piece in enumerate(pieces if is_list(pieces) else ()):
            if is_object(piece):
                index = piece.get("index")
                at = index if type(index) is int else place
                size += self._contents.setdefault(at, _Content()).add(piece)
        return size

    def whole(self) -> Json:
        return {**self._raw, "content": [self._contents[at].whole() for at in sorted(self._contents)]}


class _Content:
    """A text in pieces with its annotations by index, or any other content unchanged."""

    def __init__(self) -> None:
        self._raw: Json = {}
        self._pieces: list[str] = []
        self._annotations: dict[int, Any] = {}

    def add(self, piece: Json) -> int:
        self._raw |= {key: value for key, value in piece.items() if key != "index"}
        text = piece.get("text")
        if not is_object(text):
            return 1
        value, found = text.get("value"), text.get("annotations")
        if isinstance(value, str):
            self._pieces.append(value)
        for annotation in found if is_list(found) else ():
            self._annotate(annotation)
        return len(self._pieces[-1] if self._pieces else "") + len(found if is_list(found) else ())

    def _annotate(self, annotation: Any) -> None:
        """Add an annotation at its index, or at the end without one; fields that arrive later are merged."""
        index = annotation.get("index") if is_object(annotation) else None
        at = index if type(index) is int else len(self._annotations)
        if is_object(annotation):
            said = {key: value for key, value in annotation.items() if key != "index"}
            before = self._annotations.get(at)
            annotation = {**before, **said} if is_object(before) else said
        self._annotations[at] = annotation

    def whole(self) -> Json:
        if not self._pieces and not self._annotations:
            return dict(self._raw)
        annotations = [self._annotations[at] for at in sorted(self._annotations)]
        return {**self._raw, "text": {"value": "".join(self._pieces), "annotations": annotations}}


STREAM = AssistantsStream
