"""OpenAI Chat Completions: `message.annotations`, each spanning the link that the model wrote.

ChatGPT's own messages are read too, and are written as such; all other answers are written as completions.
"""

from __future__ import annotations

from typing import Any

from citewire.dialects.base import DialectOptions, is_object
from citewire.dialects.common.chat_annotations import MessageReader, read_messages, write_message
from citewire.dialects.common.completions import find_completion_dialect
from citewire.dialects.openai import chatgpt
from citewire.model import Answer, Written

NAME = "openai.chat"
UPSTREAM = "openai 3.49.0, Chat Completions API; messages of ChatGPT as exported in April 2026"
READS_TOO = ("openrouter",)
SUPPORTED_FIELDS = frozenset({"answer.id", "marker", "source.title", "source.url"})


def detect(payload: Any) -> bool:
    return is_object(payload) and (find_completion_dialect(payload) == NAME or chatgpt.detect(payload))


def read_all(payload: Any, options: DialectOptions) -> tuple[Answer, ...]:
    if chatgpt.detect(payload):
        return chatgpt.read_all(payload, options)
    return read_messages(payload, options, _Reader)


class _Reader(MessageReader):
    dialect = NAME


def write(answer: Answer, options: DialectOptions) -> Written:
    if (native := chatgpt.find_native(answer)) is not None:
        return chatgpt.write(answer, native, options)
    return write_message(answer, options, NAME, SUPPORTED_FIELDS, {})
