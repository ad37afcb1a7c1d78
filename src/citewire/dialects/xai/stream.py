"""xAI's Responses stream: OpenAI's events, with xAI's annotations at the end of the text."""

from __future__ import annotations

from typing import Any

from citewire.dialects.openai import responses_stream
from citewire.dialects.xai.responses import NAME, XaiReader

__all__ = ["NAME", "READS_TOO", "STREAM", "XaiStream", "detect"]

# Without its first event, which names the model, a stream looks like OpenAI's.
READS_TOO = (responses_stream.NAME,)


def detect(payload: Any) -> bool:
    return responses_stream.is_stream_of(payload, NAME)


class XaiStream(responses_stream.ResponsesStream):
    """Reads Responses stream events of xAI."""

    _reads = XaiReader


STREAM = XaiStream
