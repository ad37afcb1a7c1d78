"""LlamaIndex: the response of a citation query engine, or a chat message with citation blocks.

Answers from other dialects are written as a response, which supports more fields; a message stays a message.
"""

from __future__ import annotations

from typing import Any

from citewire.dialects.base import DialectOptions
from citewire.dialects.llamaindex import chat, response
from citewire.dialects.llamaindex.response import NAME
from citewire.model import Answer, Written

__all__ = ["NAME", "SUPPORTED_FIELDS", "UPSTREAM", "detect", "read_all", "write"]

UPSTREAM = "llama-index-core 0.14.25"
SUPPORTED_FIELDS = response.SUPPORTED_FIELDS


def detect(payload: Any) -> bool:
    return response.detect(payload) or chat.detect(payload)


def read_all(payload: Any, options: DialectOptions) -> tuple[Answer, ...]:
    return (chat.read(payload) if chat.detect(payload) else response.read(payload),)


def write(answer: Answer, options: DialectOptions) -> Written:
    return chat.write(answer) if chat.is_from_chat(answer) else response.write(answer)
