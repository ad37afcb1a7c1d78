"""Translates shapes that protocol 1.0 retired to their modern equivalents, without losing data.

THINKING_* events become REASONING_* ones, `binary` content parts become media parts, and a null that older
peers write for an absent member is removed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

from msgspec import UNSET
from msgspec.structs import replace

from citewire.agui.events import (
    AttributedEvent,
    Event,
    Json,
    MessagesSnapshot,
    ReasoningEnd,
    ReasoningMessageContent,
    ReasoningMessageEnd,
    ReasoningMessageStart,
    ReasoningStart,
    RunFinished,
    RunStarted,
    SubagentFinished,
    ThinkingEnd,
    ThinkingStart,
    ThinkingTextMessageContent,
    ThinkingTextMessageEnd,
    ThinkingTextMessageStart,
    ToolCallChunk,
    ToolCallStart,
)

__all__ = ["RetiredEventTranslator", "modernise_messages", "without_null"]

_MEDIA = ("image", "audio", "video", "document")
_INPUT_NULLS = (("tools", "parameters"), ("resume", "payload"))


class RetiredEventTranslator:
    """Translates the events of one stream. THINKING_* events have no ids, so ids are generated here."""

    def __init__(self) -> None:
        self._made = 0
        self._span = self._message = ""

    def translate(self, event: Event) -> Event:
        """Translate `event` to protocol 1.0; a modern event is returned unchanged."""
        if event.raw_event is None:
            event = replace(event, raw_event=UNSET)
        match event:
            case ThinkingStart():
                self._span = self._new_id("span")
                return self._copy_base_fields(ReasoningStart(self._span), event)
            case ThinkingTextMessageStart():
                self._message = self._new_id("message")
                return self._copy_base_fields(ReasoningMessageStart(self._message, "reasoning"), event)
            case ThinkingTextMessageContent():
                return self._copy_base_fields(
                    ReasoningMessageContent(self._open_message(), event.delta), event
                )
            case ThinkingTextMessageEnd():
                ended, self._message = self._open_message(), ""
                return self._copy_base_fields(ReasoningMessageEnd(ended), event)
            case ThinkingEnd():
                ended, self._span = self._span or self._new_id("span"), ""
                return self._copy_base_fields(ReasoningEnd(ended), event)
            case ToolCallStart(parent_message_id=None) | ToolCallChunk(parent_message_id=None):
                return replace(event, parent_message_id=UNSET)
            case RunFinished():
                return _without_nulls(event, "result", "outcome")
            case SubagentFinished():
                return _without_nulls(event, "result")
            case MessagesSnapshot(messages):
                return replace(event, messages=modernise_messages(messages))
            case RunStarted(input=dict()):
                return replace(event, input=_modern_input(cast("Json", event.input)))
            case _:
                return event

    def _open_message(self) -> str:
        """Return the id of the open message; if none was started, a new id, which the order rules reject."""
        return self._message or self._new_id("message")

    def _new_id(self, what: str) -> str:
        self._made += 1
        return f"thinking-{what}-{self._made}"

    @staticmethod
    def _copy_base_fields(modern: AttributedEvent, event: AttributedEvent) -> Event:
        return replace(
            modern,
            subagent_run_id=event.subagent_run_id,
            timestamp=event.timestamp,
            raw_event=event.raw_event,
            metadata=event.metadata,
            extra=event.extra,
        )


def modernise_messages(messages: Sequence[Any]) -> list[Any]:
    """Return `messages` with their retired content parts upgraded."""
    return [_modern_message(message) for message in messages]


def _without_nulls(event: Event, *names: str) -> Event:
    nulls = {name: UNSET for name in names if getattr(event, name) is None}
    return replace(event, **nulls) if nulls else event


def _modern_input(run_input: Json) -> Json:
    modern = {
        name: value for name, value in run_input.items() if value is not None or name != "forwardedProps"
    }
    for name, key in _INPUT_NULLS:
        _change_each(modern, name, lambda entry, key=key: without_null(entry, key))
    _change_each(modern, "messages", _modern_message)
    return modern


def _change_each(fields: Json, name: str, change: Callable[[Any], Any]) -> None:
    if isinstance(entries := fields.get(name), list):
        fields[name] = [change(entry) for entry in cast("list[Any]", entries)]


def without_null(entry: Any, key: str) -> Any:
    """Return `entry` without `key` if its value is null."""
    if isinstance(entry, dict) and (fields := cast("Json", entry)).get(key, "") is None:
        return {name: value for name, value in fields.items() if name != key}
    return cast("Any", entry)


def _modern_message(message: Any) -> Any:
    if not isinstance(message, dict):
        return message
    fields = cast("Json", message)
    content = fields.get("content")
    if not isinstance(content, list):
        return fields
    parts = cast("list[Any]", content)
    return {**fields, "content": [modern for part in parts for modern in _modern_part(part, parts)]}


def _modern_part(part: Any, beside: list[Any]) -> list[Any]:
    """Upgrade a content part. Returns nothing if the message already has an equal modern part."""
    if not isinstance(part, dict):
        return [part]
    fields = cast("Json", part)
    kind = fields.get("type")
    if kind in _MEDIA:
        return [without_null(fields, "metadata")]
    if kind != "binary" or not isinstance(mime := fields.get("mimeType"), str):
        return [fields]
    modern = _media(fields, mime)
    if modern is None:
        return [fields]
    return [] if any(_says_the_same(other, modern) for other in beside) else [modern]


def _media(binary: Json, mime: str) -> Json | None:
    """Convert a binary part with data or a URL to a media part. One with only an id has no equivalent."""
    family = mime.partition("/")[0]
    kind = family if family in _MEDIA and "/" in mime else "document"
    for key, source in (("data", "data"), ("url", "url")):
        if value := binary.get(key):
            part: Json = {"type": kind, "source": {"type": source, "value": value, "mimeType": mime}}
            if name := binary.get("filename"):
                part["metadata"] = {"filename": name}
            return part
    return None


def _says_the_same(part: Any, modern: Json) -> bool:
    if not isinstance(part, dict):
        return False
    fields = cast("Json", part)
    if fields.get("type") != modern["type"] or not isinstance(fields.get("source"), dict):
        return False
    source = cast("Json", fields["source"])
    if any(source.get(key) != value for key, value in modern["source"].items()):
        return False
    metadata = fields.get("metadata")
    named = cast("Json", metadata).get("filename") if isinstance(metadata, dict) else None
    return "metadata" not in modern or named == modern["metadata"]["filename"]
