"""OpenRouter: Chat Completions with annotations nested as OpenAI does, each with the page's `content`.

The web plugin uses `0, 0` for an unknown position.
"""

from __future__ import annotations

from typing import Any

from citewire.dialects.base import DialectOptions, Json, is_object, optional
from citewire.dialects.common.chat_annotations import MessageReader, read_messages, write_message
from citewire.dialects.common.completions import find_completion_dialect
from citewire.model import Answer, Written

NAME = "openrouter"
UPSTREAM = "OpenRouter Chat Completions API, as captured in August 2026"
READS_TOO = ("openai.chat",)
SUPPORTED_FIELDS = frozenset({"answer.id", "marker", "source.snippet", "source.title", "source.url"})


def detect(payload: Any) -> bool:
    return is_object(payload) and find_completion_dialect(payload) == NAME


def read_all(payload: Any, options: DialectOptions) -> tuple[Answer, ...]:
    return read_messages(payload, options, _Reader)


class _Reader(MessageReader):
    dialect = NAME

    def source(self, url: str, cited: Json) -> str:
        title = optional(cited, "title", str) or None
        return self.sources.add("web", url, title, snippet=optional(cited, "content", str))


def write(answer: Answer, options: DialectOptions) -> Written:
    # The provider field distinguishes these completions from OpenAI's.
    return write_message(answer, options, NAME, SUPPORTED_FIELDS, {"provider": "citewire"})
