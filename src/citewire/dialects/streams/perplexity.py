"""Perplexity's stream: chunks, each with the whole list of what is cited."""

from __future__ import annotations

from typing import Any

from citewire.dialects import perplexity
from citewire.dialects.base import Json, is_list
from citewire.dialects.by_completion import family
from citewire.dialects.streams.chunks import MarkerStream
from citewire.model import Answer

__all__ = ["NAME", "Stream", "detect"]

NAME = perplexity.NAME


def detect(payload: Any) -> bool:
    return is_list(payload) and family(payload) == NAME


class Stream(MarkerStream):
    """Reads the chunks of perplexity."""

    def _read(self, completion: Json) -> tuple[Answer, ...]:
        return perplexity.read_all(completion, self._options)
