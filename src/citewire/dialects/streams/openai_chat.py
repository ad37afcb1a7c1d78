"""OpenAI's chat stream: chunks, in some of whose deltas are annotations."""

from __future__ import annotations

from typing import Any

from citewire.dialects import openai_chat
from citewire.dialects.base import Json, is_list
from citewire.dialects.by_completion import find_completion_dialect
from citewire.dialects.streams.chunks import ChunkStream
from citewire.model import Answer

__all__ = ["NAME", "OpenAIChatStream", "detect"]

NAME = openai_chat.NAME


def detect(payload: Any) -> bool:
    return is_list(payload) and find_completion_dialect(payload) == NAME


class OpenAIChatStream(ChunkStream):
    """Reads the chunks of openai.chat."""

    def _read(self, completion: Json) -> tuple[Answer, ...]:
        return openai_chat.read_all(completion, self._options)
