"""Azure's stream: chunks, of which the first has the context."""

from __future__ import annotations

from typing import Any

from citewire.dialects import azure_oyd
from citewire.dialects.base import Json, is_list
from citewire.dialects.by_completion import find_completion_dialect
from citewire.dialects.streams.chunks import MarkerStream
from citewire.model import Answer

__all__ = ["NAME", "AzureStream", "detect"]

NAME = azure_oyd.NAME


def detect(payload: Any) -> bool:
    return is_list(payload) and find_completion_dialect(payload) == NAME


class AzureStream(MarkerStream):
    """Reads the chunks of azure.oyd."""

    def _read(self, completion: Json) -> tuple[Answer, ...]:
        return azure_oyd.read_all(completion, self._options)
