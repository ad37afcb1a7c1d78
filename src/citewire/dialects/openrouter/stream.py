"""OpenRouter's stream: chunks, some with annotations in their deltas."""

from __future__ import annotations

from typing import Any

from citewire.dialects.base import Json, is_list
from citewire.dialects.common.completion_stream import ChunkStream
from citewire.dialects.common.completions import find_completion_dialect
from citewire.dialects.openrouter import chat
from citewire.model import Answer

__all__ = ["NAME", "OpenRouterStream", "STREAM", "detect"]

NAME = chat.NAME


def detect(payload: Any) -> bool:
    return is_list(payload) and find_completion_dialect(payload) == NAME


class OpenRouterStream(ChunkStream):
    """Reads the chunks of openrouter."""

    def _read(self, completion: Json) -> tuple[Answer, ...]:
        return chat.read_all(completion, self._options)


STREAM = OpenRouterStream
