"""OpenRouter's stream: chunks, in some of whose deltas are annotations."""

from __future__ import annotations

from typing import Any

from citewire.dialects import openrouter
from citewire.dialects.base import Json, is_list
from citewire.dialects.by_completion import find_completion_dialect
from citewire.dialects.streams.chunks import ChunkStream
from citewire.model import Answer

__all__ = ["NAME", "OpenRouterStream", "detect"]

NAME = openrouter.NAME


def detect(payload: Any) -> bool:
    return is_list(payload) and find_completion_dialect(payload) == NAME


class OpenRouterStream(ChunkStream):
    """Reads the chunks of openrouter."""

    def _read(self, completion: Json) -> tuple[Answer, ...]:
        return openrouter.read_all(completion, self._options)
