"""Azure's chat stream. The first chunk contains the context."""

from __future__ import annotations

from typing import Any

from citewire.dialects.azure import on_your_data
from citewire.dialects.base import Json, is_list
from citewire.dialects.common.completion_stream import MarkerStream
from citewire.dialects.common.completions import find_completion_dialect
from citewire.model import Answer

__all__ = ["AzureStream", "NAME", "STREAM", "detect"]

NAME = on_your_data.NAME


def detect(payload: Any) -> bool:
    return is_list(payload) and find_completion_dialect(payload) == NAME


class AzureStream(MarkerStream):
    """Reads the chunks of azure.oyd."""

    def _read(self, completion: Json) -> tuple[Answer, ...]:
        return on_your_data.read_all(completion, self._options)


STREAM = AzureStream
