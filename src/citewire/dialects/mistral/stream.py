"""Mistral's streams: chat chunks, and the events of a conversation."""

from __future__ import annotations

from typing import Any

from citewire.dialects.base import DialectOptions, Json, is_list, is_object
from citewire.dialects.common.completion_stream import ChunkStream, join_text_chunks
from citewire.dialects.common.completions import find_completion_dialect
from citewire.dialects.mistral import messages
from citewire.model import Answer, Citation

__all__ = ["MistralStream", "NAME", "STREAM", "detect"]

NAME = messages.NAME

_STARTED, _DONE = "conversation.response.started", "conversation.response.done"
_DELTA = "message.output.delta"


def detect(payload: Any) -> bool:
    if not is_list(payload):
        return False
    is_conversation = all(map(is_object, payload)) and any(
        event.get("type") in (_STARTED, _DELTA) for event in payload
    )
    return is_conversation or find_completion_dialect(payload) == NAME


class MistralStream(ChunkStream):
    """Reads chat chunks or the events of a conversation."""

    def __init__(self, options: DialectOptions) -> None:
        super().__init__(options)
        self._conversation: Json = {}
        self._outputs: dict[int, list[Any]] = {}

    def feed(self, event: Any) -> tuple[Citation, ...]:
        match event.get("type") if is_object(event) else None:
            case "conversation.response.started":
                self._conversation |= {"conversation_id": event.get("conversation_id")}
            case "message.output.delta":
                return self._looks.read_new(self._add(event), news=True)
            case "conversation.response.done":
                self._conversation |= {"usage": event.get("usage")}
                return self._looks.read_new(0, news=False, done=True)
            case _:
                return super().feed(event)
        return ()

    def _add(self, event: Json) -> int:
        """Add a piece: text is appended, anything else becomes a chunk."""
        content, index = event.get("content"), event.get("output_index")
        chunks = self._outputs.setdefault(index if type(index) is int else 0, [])
        if isinstance(content, str):
            chunks.append({"type": "text", "text": content})
            return len(content)
        chunks.append(content)
        return 1

    def _certain(self, answer: Answer) -> tuple[Citation, ...]:
        """Return all citations: a reference always follows its text."""
        return answer.citations

    def _read(self, completion: Json) -> tuple[Answer, ...]:
        return messages.read_all(completion, self._options)

    def answer(self) -> Answer:
        if not self._outputs:
            return super().answer()
        outputs = [
            {"type": "message.output", "content": join_text_chunks(self._outputs[at])}
            for at in sorted(self._outputs)
        ]
        conversation = {"object": "conversation.response", **self._conversation, "outputs": outputs}
        return messages.read_all(conversation, self._options)[0]


STREAM = MistralStream
