"""Perplexity's stream: chunks, each with the whole list of cited URLs."""

from __future__ import annotations

from typing import Any

from citewire.dialects.base import Json, is_list
from citewire.dialects.common.completion_stream import MarkerStream
from citewire.dialects.common.completions import find_completion_dialect
from citewire.dialects.perplexity import sonar
from citewire.model import Answer

__all__ = ["NAME", "PerplexityStream", "STREAM", "detect"]

NAME = sonar.NAME


def detect(payload: Any) -> bool:
    return is_list(payload) and find_completion_dialect(payload) == NAME


class PerplexityStream(MarkerStream):
    """Reads the chunks of perplexity."""

    def _read(self, completion: Json) -> tuple[Answer, ...]:
        return sonar.read_all(completion, self._options)


STREAM = PerplexityStream
