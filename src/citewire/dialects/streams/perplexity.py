"""Perplexity's stream: chunks, each with the whole list of what is cited."""

from __future__ import annotations

from typing import Any

from citewire.dialects import perplexity
from citewire.dialects.base import Json, is_list
from citewire.dialects.by_completion import find_completion_dialect
from citewire.dialects.streams.chunks import MarkerStream
from citewire.model import Answer

__all__ = ["NAME", "PerplexityStream", "detect"]

NAME = perplexity.NAME


def detect(payload: Any) -> bool:
    return is_list(payload) and find_completion_dialect(payload) == NAME


class PerplexityStream(MarkerStream):
    """Reads the chunks of perplexity."""

    def _read(self, completion: Json) -> tuple[Answer, ...]:
        return perplexity.read_all(completion, self._options)
