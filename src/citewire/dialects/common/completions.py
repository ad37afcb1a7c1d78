"""The chat completion envelope: choices, in each a message. Six dialects come in it.

They share the names of most fields, so one place decides whose a completion is, by what only one of them
has, and no two dialects claim the same payload.
"""

from __future__ import annotations

from typing import Any

from citewire.dialects.base import Json, is_list, is_object, optional, overlay, put_at, require
from citewire.errors import ShapeError
from citewire.model import Native

__all__ = [
    "CompletionMessage",
    "JsonPath",
    "find_completion_dialect",
    "is_reference",
    "list_messages",
    "put_message",
    "read_id",
]

JsonPath = tuple[str | int, ...]
CompletionMessage = tuple[JsonPath, Json]
"""A message, and where in the payload it is."""

# Azure's own data used to come as an extension.
_OBJECTS = ("chat.completion", "extensions.chat.completion")
_CHUNKS = ("chat.completion.chunk", "chat.completion.done", "extensions.chat.completion.chunk")
# What has nothing of its own.
_PLAIN = "openai.chat"
_REFERENCES = ("reference", "tool_reference")


def find_completion_dialect(payload: Any) -> str | None:
    """The dialect of a completion, or of a list of chunks; None for anything else."""
    if is_list(payload):
        return _family_of_chunks(payload)
    if not is_object(payload) or payload.get("object") not in _OBJECTS:
        return None
    choices = _choices(payload, "message")
    return _family([payload], choices, [choice["message"] for choice in choices]) if choices else None


def _family_of_chunks(events: list[Any]) -> str | None:
    chunks = [event for event in events if is_object(event) and event.get("object") in _CHUNKS]
    choices = [choice for chunk in chunks for choice in _choices(chunk, "delta")]
    if not choices or not all(map(is_object, events)):
        return None
    return _family(chunks, choices, [choice["delta"] for choice in choices])


def _choices(payload: Json, key: str) -> list[Json]:
    choices = payload.get("choices")
    found = choices if is_list(choices) else []
    return [choice for choice in found if is_object(choice) and is_object(choice.get(key))]


def _family(payloads: list[Json], choices: list[Json], said: list[Json]) -> str:
    """By the most telling first: what a message says, then its choice, then the whole."""
    if any("context" in message for message in said):
        return "azure.oyd"
    if any(is_reference(chunk) for message in said for chunk in _list(message.get("content"))):
        return "mistral"
    if any(is_list(payload.get(key)) for payload in payloads for key in ("citations", "search_results")):
        return "perplexity"
    if any("native_finish_reason" in choice for choice in choices) or any(
        isinstance(payload.get("provider"), str) for payload in payloads
    ):
        return "openrouter"
    return _PLAIN


def _list(value: Any) -> list[Any]:
    return value if is_list(value) else []


def is_reference(chunk: Any) -> bool:
    """Whether a piece of a message's content is one of Mistral's references."""
    return is_object(chunk) and chunk.get("type") in _REFERENCES


def list_messages(payload: Any) -> list[CompletionMessage]:
    """The messages of a completion. Raises `ShapeError` for what is none."""
    if not is_object(payload):
        raise ShapeError("a completion is not an object")
    found: list[CompletionMessage] = []
    for number, choice in enumerate(require(payload, "choices", list, "$")):
        if is_object(choice) and is_object(message := choice.get("message")):
            found.append((("choices", number, "message"), message))
    return found


def read_id(payload: Json) -> str | None:
    """The id of a completion, which all its answers have."""
    return optional(payload, "id", str, "$")


def put_message(native: Native | None, name: str | None, message: Json, envelope: Json) -> Json:
    """`message` in the completion it was read from, else in a new one; `envelope` is written over it."""
    if native is None:
        choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": "stop"}
        payload: Json = {"object": "chat.completion", "choices": [choice]}
    else:
        payload = put_at(native.raw, native.at, message)
    return overlay(payload, {"id": name, **envelope})
