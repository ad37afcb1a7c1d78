"""The chat completion envelope: choices with one message each. Six dialects use it.

They share most field names, so this module alone decides which dialect a completion belongs to, by fields
that only that dialect has. No two dialects claim the same payload.
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

# Azure On Your Data used to be an extension.
_OBJECTS = ("chat.completion", "extensions.chat.completion")
_CHUNKS = ("chat.completion.chunk", "chat.completion.done", "extensions.chat.completion.chunk")
# The dialect of completions without any distinctive field.
_PLAIN = "openai.chat"
_REFERENCES = ("reference", "tool_reference")


def find_completion_dialect(payload: Any) -> str | None:
    """Return the dialect of a completion or of a list of chunks, None for anything else."""
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
    """Find the dialect by its fields, most specific first: of the message, the choice, the payload."""
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
    """Whether a chunk of a message's content is a Mistral reference."""
    return is_object(chunk) and chunk.get("type") in _REFERENCES


def list_messages(payload: Any) -> list[CompletionMessage]:
    """Return the messages of a completion. Raises `ShapeError` if the payload is not a completion."""
    if not is_object(payload):
        raise ShapeError("a completion is not an object")
    found: list[CompletionMessage] = []
    for number, choice in enumerate(require(payload, "choices", list, "$")):
        if is_object(choice) and is_object(message := choice.get("message")):
            found.append((("choices", number, "message"), message))
    return found


def read_id(payload: Json) -> str | None:
    """Return the id of a completion, which all its answers share."""
    return optional(payload, "id", str, "$")


def put_message(native: Native | None, name: str | None, message: Json, envelope: Json) -> Json:
    """Put `message` into its original completion, else into a new one; `envelope` overrides its fields."""
    if native is None:
        choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": "stop"}
        payload: Json = {"object": "chat.completion", "choices": [choice]}
    else:
        payload = put_at(native.raw, native.at, message)
    return overlay(payload, {"id": name, **envelope})
