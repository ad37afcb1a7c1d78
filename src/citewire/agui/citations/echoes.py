"""Detects posted messages that an agent repeats when it lists all messages, maybe under new ids.

Repeating a message does not make it the agent's. Messages that the agent streams are always its own.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Set
from hashlib import blake2b
from typing import Any, cast

from citewire.agui.citations.answer_text import visible_text
from citewire.agui.citations.posted_messages import id_of
from citewire.agui.events import Json

__all__ = ["EchoDetector", "fingerprint", "fingerprints"]


def fingerprint(message: Any) -> bytes | None:
    """Return a digest that is equal for messages with equal content; None for user and empty messages.

    It covers the role and the content, or the ids of the tool calls if there is no content. A text counts
    without its data block and extra white space; if it has nothing but the block, with the block.
    """
    fields = cast("Json", message) if isinstance(message, dict) else {}
    role, said = fields.get("role"), _said(fields)
    if role == "user" or not said:
        return None
    text = json.dumps([role, said], sort_keys=True)
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def _said(message: Json) -> Any:
    content, calls = message.get("content"), message.get("toolCalls")
    if isinstance(content, str):
        content = " ".join((visible_text(content).strip() or content).split())
    if content or not isinstance(calls, list):
        return content
    return [id_of(each) for each in cast("list[Any]", calls)]


def fingerprints(messages: Iterable[Any]) -> frozenset[bytes]:
    """Return the fingerprints of the messages that have one."""
    return frozenset(found for each in messages if (found := fingerprint(each)) is not None)


class EchoDetector:
    """Finds the posted messages that an agent repeats in one stream; `posted` are their fingerprints."""

    def __init__(self, posted: Set[bytes]) -> None:
        self._posted = posted
        self._streamed: set[str | None] = set()

    def note_streamed(self, *names: str | None) -> None:
        """Record ids of messages that the agent streams, which are its own."""
        self._streamed.update(names)

    def find_echoes(self, messages: Iterable[Any]) -> set[str]:
        """Return the ids of messages that equal a posted message and were not streamed."""
        if not self._posted:
            return set()
        return {
            name
            for each in messages
            if (name := id_of(each)) and name not in self._streamed and fingerprint(each) in self._posted
        }
