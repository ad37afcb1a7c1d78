"""What the protocol says of the JSON inside events: messages, content parts, outcomes, patches, run inputs.

A client removes what it does not know and refuses what it knows to be wrong. `clean` does both: material
that no shape describes is left out and named, a member of a union that has an unknown tag goes with whatever
cannot be without it, and a described field of the wrong kind is a fault.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias, cast

__all__ = ["Cleaned", "clean", "sendable"]

_DROP: Any = object()
_POINTER = re.compile(r"(/([^/~]|~[01])*)*")
_MOST = 2**53 - 1


@dataclass(frozen=True)
class Leaf:
    """A value that is what `test` says, described by `word`."""

    word: str
    test: Callable[[Any], bool]


@dataclass(frozen=True)
class ListOf:
    item: Shape
    least: int = 0


@dataclass(frozen=True)
class TextOr:
    """A string, or a list."""

    items: ListOf


@dataclass(frozen=True)
class Record:
    """An object. One that is `loose` keeps members that no field describes."""

    required: Mapping[str, Shape]
    optional: Mapping[str, Shape] = field(default_factory=dict[str, "Shape"])
    loose: bool = False


@dataclass(frozen=True)
class Tagged:
    """One of several records, told apart by the member `tag`."""

    tag: str
    choices: Mapping[str, Record]


Shape: TypeAlias = Leaf | ListOf | TextOr | Record | Tagged


@dataclass(frozen=True)
class Cleaned:
    """A value without what no shape describes, the paths of that, and the paths of what is wrong."""

    value: Any
    removed: list[str]
    faults: list[str]


def clean(value: Any, shape: Shape, path: str) -> Cleaned:
    """`value` as `shape` has it. A value that is not recognisable at all is None, and its path removed."""
    notes = Cleaned(None, [], [])
    cleaned = _clean(value, shape, path, notes)
    if cleaned is _DROP:
        return Cleaned(None, [path], [])
    return Cleaned(cleaned, notes.removed, notes.faults)


def _clean(value: Any, shape: Shape, path: str, notes: Cleaned) -> Any:
    match shape:
        case Leaf(word, test):
            if not test(value):
                notes.faults.append(f"{path} is not {word}")
            return value
        case TextOr(items):
            return value if isinstance(value, str) else _clean(value, items, path, notes)
        case ListOf():
            return _clean_list(value, shape, path, notes)
        case Record():
            return _clean_record(value, shape, path, notes)
        case Tagged(tag, choices):
            if not isinstance(value, dict):
                notes.faults.append(f"{path} is not an object")
                return value
            name = cast("dict[str, Any]", value).get(tag)
            choice = choices.get(name) if isinstance(name, str) else None
            return _DROP if choice is None else _clean_record(value, choice, path, notes)


def _clean_list(value: Any, shape: ListOf, path: str, notes: Cleaned) -> Any:
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


def _clean_record(value: Any, shape: Record, path: str, notes: Cleaned) -> Any:
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


def _child(value: Any, shape: Shape, path: str, notes: Cleaned) -> Any:
    """As `_clean`; what was said of the inside of something that goes whole is unsaid."""
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


def _one_of(*words: str) -> Leaf:
    return Leaf(f"one of {', '.join(words)}", lambda value: isinstance(value, str) and value in words)


_ANY = Leaf("anything", lambda _: True)
_SOMETHING = Leaf("anything but null", lambda value: value is not None)
_TEXT = Leaf("a string", lambda value: isinstance(value, str))
_OBJECT = Leaf("an object", lambda value: isinstance(value, dict))
_COUNT = Leaf("a whole number", _is_count)
_POINTS = Leaf("a JSON pointer", _is_pointer)


def _operation(name: str, *needs: str) -> Record:
    shapes = {"path": _POINTS, "from": _POINTS, "value": _ANY}
    return Record({"op": _one_of(name), **{need: shapes[need] for need in needs}}, loose=True)


PATCH = ListOf(
    Tagged(
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
    """Whether `operations` are surely what PATCH says: nearly all are, and `clean` takes its time."""
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


_SOURCE = Tagged(
    "type",
    {
        "data": Record({"type": _TEXT, "value": _TEXT, "mimeType": _TEXT}),
        "url": Record({"type": _TEXT, "value": _TEXT}, {"mimeType": _TEXT}),
        "file": Record({"type": _TEXT, "value": _TEXT}, {"provider": _TEXT, "mimeType": _TEXT}),
    },
)
_MEDIA = Record({"type": _TEXT, "source": _SOURCE}, {"id": _TEXT, "metadata": _SOMETHING})
CONTENT = TextOr(
    ListOf(
        Tagged(
            "type",
            {
                "text": Record({"type": _TEXT, "text": _TEXT}, {"id": _TEXT, "metadata": _SOMETHING}),
                **dict.fromkeys(("image", "audio", "video", "document"), _MEDIA),
            },
        )
    )
)
_TOOL_CALL = Record(
    {
        "id": _TEXT,
        "type": _one_of("function"),
        "function": Record({"name": _TEXT, "arguments": _TEXT}),
    },
    {"encryptedValue": _TEXT, "metadata": _OBJECT},
)


def _message(content: Mapping[str, Shape], *optional: str, **more: Shape) -> Record:
    texts = dict.fromkeys(("subagentRunId", *optional), _TEXT)
    return Record({"id": _TEXT, "role": _TEXT, **content}, {"metadata": _OBJECT, **texts, **more})


MESSAGE = Tagged(
    "role",
    {
        "developer": _message({"content": _TEXT}, "name", "encryptedValue"),
        "system": _message({"content": _TEXT}, "name", "encryptedValue"),
        "assistant": _message({}, "name", "encryptedValue", "content", toolCalls=ListOf(_TOOL_CALL)),
        "user": _message({"content": CONTENT}, "name", "encryptedValue"),
        "tool": _message({"content": CONTENT, "toolCallId": _TEXT}, "error", "encryptedValue"),
        "activity": _message({"content": _OBJECT, "activityType": _TEXT}),
        "reasoning": _message({"content": _TEXT}, "encryptedValue"),
    },
)
MESSAGES = ListOf(MESSAGE)


def sendable(messages: Iterable[Any]) -> list[Any]:
    """The messages that a client takes in a snapshot. One that is none would fail the whole stream."""
    return [each for each in messages if not (found := clean([each], MESSAGES, "")).faults and found.value]


TOOL = Record({"name": _TEXT, "description": _TEXT}, {"parameters": _SOMETHING, "metadata": _OBJECT})
CONTEXT = Record({"description": _TEXT, "value": _TEXT})
RESUME = Record(
    {"interruptId": _TEXT, "status": _one_of("resolved", "cancelled")},
    {"payload": _SOMETHING, "metadata": _OBJECT},
)
RUN_INPUT = Record(
    {"threadId": _TEXT, "runId": _TEXT, "messages": MESSAGES},
    {
        "protocolVersion": _TEXT,
        "parentRunId": _TEXT,
        "state": _ANY,
        "tools": ListOf(TOOL),
        "context": ListOf(CONTEXT),
        "forwardedProps": _SOMETHING,
        "resume": ListOf(RESUME),
    },
)
_INTERRUPT = Record(
    {"id": _TEXT, "reason": _TEXT},
    {
        **dict.fromkeys(("message", "toolCallId", "expiresAt", "subagentRunId"), _TEXT),
        "responseSchema": _OBJECT,
        "metadata": _OBJECT,
    },
)
RUN_OUTCOME = Tagged(
    "type",
    {
        "success": Record({"type": _TEXT}, {"pendingToolCallIds": ListOf(_TEXT)}),
        "interrupt": Record({"type": _TEXT, "interrupts": ListOf(_INTERRUPT, least=1)}),
        "cancelled": Record({"type": _TEXT}),
    },
)
SUBAGENT_OUTCOME = Tagged(
    "type",
    {
        "success": Record({"type": _TEXT}),
        "suspended": Record({"type": _TEXT}, {"interruptIds": ListOf(_TEXT)}),
    },
)
_COUNTS = ("input", "output", "total", "reasoning", "cachedInput", "cacheWriteInput")
USAGE = ListOf(
    Record(
        {},
        {"provider": _TEXT, "model": _TEXT, **{f"{name}Tokens": _COUNT for name in _COUNTS}},
    )
)
