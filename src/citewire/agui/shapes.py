"""Schemas of the JSON inside events: messages, content parts, outcomes, patches, run inputs.

A client removes unknown content and rejects invalid content. `clean` does both: content without a schema is
removed and reported, a union member with an unknown tag is removed together with any object that requires
it, and a known field of the wrong type is a fault.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias, cast

__all__ = ["CleanResult", "clean", "filter_sendable"]

_DROP: Any = object()
_POINTER = re.compile(r"(/([^/~]|~[01])*)*")
_MOST = 2**53 - 1


@dataclass(frozen=True)
class ValueShape:
    """A value that passes `test`; `word` describes it in messages."""

    word: str
    test: Callable[[Any], bool]


@dataclass(frozen=True)
class ListShape:
    item: Shape
    least: int = 0


@dataclass(frozen=True)
class TextOrListShape:
    """A string, or a list."""

    items: ListShape


@dataclass(frozen=True)
class ObjectShape:
    """An object. With `loose`, unknown members stay."""

    required: Mapping[str, Shape]
    optional: Mapping[str, Shape] = field(default_factory=dict[str, "Shape"])
    loose: bool = False


@dataclass(frozen=True)
class UnionShape:
    """One of several object shapes, distinguished by the member `tag`."""

    tag: str
    choices: Mapping[str, ObjectShape]


Shape: TypeAlias = ValueShape | ListShape | TextOrListShape | ObjectShape | UnionShape


@dataclass(frozen=True)
class CleanResult:
    """The cleaned value, the paths of removed content, and the faults found."""

    value: Any
    removed: list[str]
    faults: list[str]


def clean(value: Any, shape: Shape, path: str) -> CleanResult:
    """Clean `value` by `shape`. An unrecognisable value becomes None, with its path in `removed`."""
    notes = CleanResult(None, [], [])
    cleaned = _clean(value, shape, path, notes)
    if cleaned is _DROP:
        return CleanResult(None, [path], [])
    return CleanResult(cleaned, notes.removed, notes.faults)


def _clean(value: Any, shape: Shape, path: str, notes: CleanResult) -> Any:
    match shape:
        case ValueShape(word, test):
            if not test(value):
                notes.faults.append(f"{path} is not {word}")
            return value
        case TextOrListShape(items):
            return value if isinstance(value, str) else _clean(value, items, path, notes)
        case ListShape():
            return _clean_list(value, shape, path, notes)
        case ObjectShape():
            return _clean_record(value, shape, path, notes)
        case UnionShape(tag, choices):
            if not isinstance(value, dict):
                notes.faults.append(f"{path} is not an object")
                return value
            name = cast("dict[str, Any]", value).get(tag)
            choice = choices.get(name) if isinstance(name, str) else None
            return _DROP if choice is None else _clean_record(value, choice, path, notes)


def _clean_list(value: Any, shape: ListShape, path: str, notes: CleanResult) -> Any:
    if not isinstance(value, list):
        notes.faults.append(f"{path} is not a list")
        return value
    kept: list[Any] = []
    for at, item in enumerate(cast("list[Any]", value)):
        cleaned = _child(item, shape.item, f"{path}/{at}", notes)
        if cleaned is _DROP:
            notes.removed.append(f"{path}/{at}")
        else:
            kept.append(cleaned)
    if len(kept) < shape.least:
        notes.faults.append(f"{path} is too short")
    return kept


def _clean_record(value: Any, shape: ObjectShape, path: str, notes: CleanResult) -> Any:
    if not isinstance(value, dict):
        notes.faults.append(f"{path} is not an object")
        return value
    members = cast("dict[str, Any]", value)
    kept: dict[str, Any] = {}
    for name, member in members.items():
        described = shape.required.get(name) or shape.optional.get(name)
        if described is None:
            if shape.loose:
                kept[name] = member
            else:
                notes.removed.append(f"{path}/{name}")
            continue
        cleaned = _child(member, described, f"{path}/{name}", notes)
        if cleaned is not _DROP:
            kept[name] = cleaned
        elif name in shape.required:
            return _DROP
        else:
            notes.removed.append(f"{path}/{name}")
    notes.faults.extend(f"{path}/{name} is missing" for name in shape.required if name not in kept)
    return kept


def _child(value: Any, shape: Shape, path: str, notes: CleanResult) -> Any:
    """Call `_clean`; if the whole value is dropped, discard the notes about its content."""
    removed, faults = len(notes.removed), len(notes.faults)
    cleaned = _clean(value, shape, path, notes)
    if cleaned is _DROP:
        del notes.removed[removed:], notes.faults[faults:]
    return cleaned


def _is_count(value: Any) -> bool:
    whole = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
    return whole and not isinstance(value, bool) and 0 <= value <= _MOST


def _is_pointer(value: Any) -> bool:
    return isinstance(value, str) and _POINTER.fullmatch(value) is not None


def _one_of(*words: str) -> ValueShape:
    return ValueShape(f"one of {', '.join(words)}", lambda value: isinstance(value, str) and value in words)


_ANY = ValueShape("anything", lambda _: True)
_SOMETHING = ValueShape("anything but null", lambda value: value is not None)
_TEXT = ValueShape("a string", lambda value: isinstance(value, str))
_OBJECT = ValueShape("an object", lambda value: isinstance(value, dict))
_COUNT = ValueShape("a whole number", _is_count)
_POINTS = ValueShape("a JSON pointer", _is_pointer)


def _operation(name: str, *needs: str) -> ObjectShape:
    shapes = {"path": _POINTS, "from": _POINTS, "value": _ANY}
    return ObjectShape({"op": _one_of(name), **{need: shapes[need] for need in needs}}, loose=True)


PATCH = ListShape(
    UnionShape(
        "op",
        {
            "add": _operation("add", "path", "value"),
            "remove": _operation("remove", "path"),
            "replace": _operation("replace", "path", "value"),
            "move": _operation("move", "path", "from"),
            "copy": _operation("copy", "path", "from"),
            "test": _operation("test", "path", "value"),
        },
    )
)


def is_plain_patch(operations: list[Any]) -> bool:
    """Whether `operations` surely match PATCH. A fast path for nearly all patches, since `clean` is slow."""
    for operation in operations:
        if type(operation) is not dict:
            return False
        fields = cast("dict[str, Any]", operation)
        path = fields.get("path")
        if type(path) is not str or "~" in path or path[:1] not in ("", "/"):
            return False
        name = fields.get("op")
        if name != "remove" and (name not in ("add", "replace", "test") or "value" not in fields):
            return False
    return True


_SOURCE = UnionShape(
    "type",
    {
        "data": ObjectShape({"type": _TEXT, "value": _TEXT, "mimeType": _TEXT}),
        "url": ObjectShape({"type": _TEXT, "value": _TEXT}, {"mimeType": _TEXT}),
        "file": ObjectShape({"type": _TEXT, "value": _TEXT}, {"provider": _TEXT, "mimeType": _TEXT}),
    },
)
_MEDIA = ObjectShape({"type": _TEXT, "source": _SOURCE}, {"id": _TEXT, "metadata": _SOMETHING})
CONTENT = TextOrListShape(
    ListShape(
        UnionShape(
            "type",
            {
                "text": ObjectShape({"type": _TEXT, "text": _TEXT}, {"id": _TEXT, "metadata": _SOMETHING}),
                **dict.fromkeys(("image", "audio", "video", "document"), _MEDIA),
            },
        )
    )
)
_TOOL_CALL = ObjectShape(
    {
        "id": _TEXT,
        "type": _one_of("function"),
        "function": ObjectShape({"name": _TEXT, "arguments": _TEXT}),
    },
    {"encryptedValue": _TEXT, "metadata": _OBJECT},
)


def _message(content: Mapping[str, Shape], *optional: str, **more: Shape) -> ObjectShape:
    texts = dict.fromkeys(("subagentRunId", *optional), _TEXT)
    return ObjectShape({"id": _TEXT, "role": _TEXT, **content}, {"metadata": _OBJECT, **texts, **more})


MESSAGE = UnionShape(
    "role",
    {
        "developer": _message({"content": _TEXT}, "name", "encryptedValue"),
        "system": _message({"content": _TEXT}, "name", "encryptedValue"),
        "assistant": _message({}, "name", "encryptedValue", "content", toolCalls=ListShape(_TOOL_CALL)),
        "user": _message({"content": CONTENT}, "name", "encryptedValue"),
        "tool": _message({"content": CONTENT, "toolCallId": _TEXT}, "error", "encryptedValue"),
        "activity": _message({"content": _OBJECT, "activityType": _TEXT}),
        "reasoning": _message({"content": _TEXT}, "encryptedValue"),
    },
)
MESSAGES = ListShape(MESSAGE)


def filter_sendable(messages: Iterable[Any]) -> list[Any]:
    """Return the messages that a client accepts in a snapshot. An invalid one would fail the whole stream."""
    return [each for each in messages if not (found := clean([each], MESSAGES, "")).faults and found.value]


TOOL = ObjectShape({"name": _TEXT, "description": _TEXT}, {"parameters": _SOMETHING, "metadata": _OBJECT})
CONTEXT = ObjectShape({"description": _TEXT, "value": _TEXT})
RESUME = ObjectShape(
    {"interruptId": _TEXT, "status": _one_of("resolved", "cancelled")},
    {"payload": _SOMETHING, "metadata": _OBJECT},
)
RUN_INPUT = ObjectShape(
    {"threadId": _TEXT, "runId": _TEXT, "messages": MESSAGES},
    {
        "protocolVersion": _TEXT,
        "parentRunId": _TEXT,
        "state": _ANY,
        "tools": ListShape(TOOL),
        "context": ListShape(CONTEXT),
        "forwardedProps": _SOMETHING,
        "resume": ListShape(RESUME),
    },
)
_INTERRUPT = ObjectShape(
    {"id": _TEXT, "reason": _TEXT},
    {
        **dict.fromkeys(("message", "toolCallId", "expiresAt", "subagentRunId"), _TEXT),
        "responseSchema": _OBJECT,
        "metadata": _OBJECT,
    },
)
RUN_OUTCOME = UnionShape(
    "type",
    {
        "success": ObjectShape({"type": _TEXT}, {"pendingToolCallIds": ListShape(_TEXT)}),
        "interrupt": ObjectShape({"type": _TEXT, "interrupts": ListShape(_INTERRUPT, least=1)}),
        "cancelled": ObjectShape({"type": _TEXT}),
    },
)
SUBAGENT_OUTCOME = UnionShape(
    "type",
    {
        "success": ObjectShape({"type": _TEXT}),
        "suspended": ObjectShape({"type": _TEXT}, {"interruptIds": ListShape(_TEXT)}),
    },
)
_COUNTS = ("input", "output", "total", "reasoning", "cachedInput", "cacheWriteInput")
USAGE = ListShape(
    ObjectShape(
        {},
        {"provider": _TEXT, "model": _TEXT, **{f"{name}Tokens": _COUNT for name in _COUNTS}},
    )
)
