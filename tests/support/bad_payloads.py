"""Payloads with one part replaced by junk, and what reading them may do."""

from __future__ import annotations

import copy
from contextlib import suppress
from typing import Any, cast

import citewire
from citewire import codec
from citewire.dialects import dialects
from citewire.errors import OutputError

NAMES = list(dialects())


JUNK: list[Any] = [
    None,
    True,
    -1,
    0,
    10**30,
    1.5,
    "",
    "x" * 300,
    "\ud800",
    [],
    {},
    [[]],
    {"": None},
    "__proto__",
    {"__proto__": 1},
]


def nodes(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The path of every value inside `value`."""
    steps: list[tuple[Any, Any]] = []
    if isinstance(value, dict):
        steps = list(cast("dict[Any, Any]", value).items())
    elif isinstance(value, list):
        steps = list(enumerate(cast("list[Any]", value)))
    return [path, *(found for step, inner in steps for found in nodes(inner, (*path, step)))]


def put(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    if not path:
        return new
    changed = copy.deepcopy(value)
    parent = changed
    for step in path[:-1]:
        parent = parent[step]
    parent[path[-1]] = new
    return changed


def use(payload: Any, dialect: str | None) -> None:
    """Everything a program does with a payload; a `CitewireError` is the only way it may fail."""
    try:
        answers = citewire.read_all(payload, dialect)
    except citewire.CitewireError:
        return
    for answer in answers:
        for target in NAMES:
            # Only what the payload itself brought along can make a payload unwritable.
            with suppress(OutputError):
                codec.encode(citewire.write(answer, target).payload)
        for surface in ("text", "html"):
            citewire.render(answer, surface)
