"""Validation of the run input that a client posts."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, cast

from citewire.agui import shapes
from citewire.agui.events import RunInput
from citewire.errors import ShapeError

__all__ = ["check_input", "check_messages"]

_FAULT = re.compile(r"(?P<path>/\S*) (?P<what>is .*)")


def check_input(posted: RunInput) -> None:
    """Raise `ShapeError`, like `check_messages`, for the first invalid message, tool, context or resume."""
    check_messages(posted.messages)
    _check_entries(posted.tools, "tools", shapes.TOOL)
    _check_entries(posted.context, "context", shapes.CONTEXT)
    _check_entries(posted.resume or (), "resume", shapes.RESUME)


def check_messages(messages: Iterable[Any]) -> None:
    """Raise `ShapeError` for the first invalid message, with a path such as `$.messages[0].content`.

    Unknown members are allowed, and so is null for an optional member: older clients send both.
    """
    for at, message in enumerate(messages):
        where = f"$.messages[{at}]"
        if not isinstance(message, dict):
            raise ShapeError("a message is an object", where)
        cleaned = shapes.clean(_without_nulls(message), shapes.MESSAGE, "")
        if cleaned.faults:
            raise _error(cleaned.faults[0], where)
        if cleaned.value is None:
            raise ShapeError("a message has a role that the protocol knows", f"{where}.role")
        if not cleaned.value["id"]:
            raise ShapeError("the id of a message is not empty", f"{where}.id")


def _check_entries(entries: Iterable[Any], name: str, shape: shapes.ObjectShape) -> None:
    for at, entry in enumerate(entries):
        where = f"$.{name}[{at}]"
        if not isinstance(entry, dict):
            raise ShapeError("it is not an object", where)
        if faults := shapes.clean(_without_nulls(entry), shape, "").faults:
            raise _error(faults[0], where)


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        members = cast("dict[str, Any]", value)
        return {name: _without_nulls(each) for name, each in members.items() if each is not None}
    return [*map(_without_nulls, cast("list[Any]", value))] if isinstance(value, list) else value


def _error(fault: str, where: str) -> ShapeError:
    found = _FAULT.fullmatch(fault)
    if found is None:
        return ShapeError(fault, where)
    names = found["path"].split("/")[1:]
    path = "".join(f"[{name}]" if name.isdecimal() else f".{name}" for name in names)
    return ShapeError(f"it {found['what']}", where + path)
