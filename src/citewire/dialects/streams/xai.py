"""xAI's Responses stream: OpenAI's events, with xAI's annotations at the end of the text."""

from __future__ import annotations

from typing import Any

from citewire.dialects.streams import openai_responses
from citewire.dialects.xai import NAME, XaiReader

__all__ = ["NAME", "READS_TOO", "XaiStream", "detect"]

# Without its start, in which the model is named, a stream is like OpenAI's.
READS_TOO = (openai_responses.NAME,)


def detect(payload: Any) -> bool:
    return openai_responses.is_stream_of(payload, NAME)


class XaiStream(openai_responses.ResponsesStream):
    """Reads Responses stream events of xAI."""

    _reads = XaiReader
