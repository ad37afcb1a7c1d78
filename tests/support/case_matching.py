"""How the shared cases say what they expect: part of an object, a list item by item, or an operator."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

_TYPES: dict[str, type | tuple[type, ...]] = {
    "number": (int, float),
    "string": str,
    "object": dict,
    "array": list,
    "boolean": bool,
}
MISSING: Any = object()


def matches(actual: Any, expected: Any) -> bool:
    """Whether `actual` is what `expected` says."""
    if isinstance(expected, dict):
        said = cast("dict[str, Any]", expected)
        operators = [name for name in said if name.startswith("$")]
        if operators:
            return all(_OPERATORS[name](actual, said[name]) for name in operators)
        return isinstance(actual, Mapping) and all(
            matches(cast("Mapping[str, Any]", actual).get(key, MISSING), value) for key, value in said.items()
        )
    if isinstance(expected, list):
        items = cast("list[Any]", expected)
        if not isinstance(actual, Sequence) or isinstance(actual, str):
            return False
        listed = cast("Sequence[Any]", actual)
        return len(listed) == len(items) and all(map(matches, listed, items))
    return (
        actual is not MISSING
        and actual == expected
        and isinstance(actual, bool) == isinstance(expected, bool)
    )


def _contains(actual: Any, part: Any) -> bool:
    return actual is not MISSING and part in actual


def _contains_item(actual: Any, item: Any) -> bool:
    return any(matches(each, item) for each in actual)


_OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "$exact": lambda actual, value: actual is not MISSING and actual == value,
    "$absent": lambda actual, _: actual is MISSING or actual is None,
    "$present": lambda actual, _: actual is not MISSING and actual is not None,
    "$contains": _contains,
    "$not": lambda actual, value: not matches(actual, value),
    "$type": lambda actual, name: isinstance(actual, _TYPES[name]),
    "$min": lambda actual, least: actual >= least,
    "$containsItem": _contains_item,
    "$containsAll": lambda actual, items: all(_contains_item(actual, item) for item in items),
}
