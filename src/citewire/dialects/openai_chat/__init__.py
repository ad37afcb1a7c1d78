"""OpenAI Chat Completions: `message.annotations`, where the link that the model wrote is what is spanned."""

from __future__ import annotations

from typing import Any

from citewire.dialects.base import Options, is_object
from citewire.dialects.by_completion import family
from citewire.dialects.by_message import MessageReader, read_messages, write_message
from citewire.model import Answer, Written

NAME = "openai.chat"
UPSTREAM = "openai 3.49.0, Chat Completions API"
READS_TOO = ("openrouter",)
ROOM = frozenset({"answer.id", "marker", "source.title", "source.url"})


def detect(payload: Any) -> bool:
    return is_object(payload) and family(payload) == NAME


def read_all(payload: Any, options: Options) -> tuple[Answer, ...]:
    return read_messages(payload, options, _Reader)


class _Reader(MessageReader):
    dialect = NAME


def write(answer: Answer, options: Options) -> Written:
    return write_message(answer, options, NAME, ROOM, {})
