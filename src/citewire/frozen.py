"""Immutable JSON objects and arrays.

A `FrozenDict` is a dict and a `FrozenList` a list: they compare, print and encode as usual, but refuse to be
changed. Code that created one and has not shared it yet can change it through the functions below.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn, cast

__all__ = ["FrozenDict", "FrozenList", "freeze"]


def _refuse(self: object, *_: object, **__: object) -> NoReturn:
    raise TypeError(f"a {type(self).__name__} cannot be changed; copy it first")


class FrozenDict(dict[str, Any]):
    """An immutable JSON object."""

    __slots__ = ()
    __setitem__ = __delitem__ = __ior__ = _refuse
    clear = pop = popitem = setdefault = update = _refuse

    def __reduce__(self) -> tuple[Any, ...]:
        return FrozenDict, (dict(self),)


class FrozenList(list[Any]):
    """An immutable JSON array."""

    __slots__ = ()
    __setitem__ = __delitem__ = __iadd__ = __imul__ = _refuse
    append = clear = extend = insert = pop = remove = reverse = sort = _refuse

    def __reduce__(self) -> tuple[Any, ...]:
        return FrozenList, (list(self),)


def freeze(value: Any) -> Any:
    """Return `value` with every object and array in it frozen. Frozen values are returned as they are."""
    if type(value) is dict:
        members = cast("dict[str, Any]", value)
        return FrozenDict({key: freeze(child) for key, child in members.items()})
    if type(value) is list:
        return FrozenList([freeze(child) for child in cast("list[Any]", value)])
    if isinstance(value, FrozenDict | FrozenList):
        return cast("Any", value)
    if isinstance(value, dict):
        return freeze(dict(cast("dict[str, Any]", value)))
    if isinstance(value, list | tuple):
        return freeze(list(cast("list[Any]", value)))
    return value


set_member = dict[str, Any].__setitem__
drop_member = dict[str, Any].__delitem__
drop_item: Callable[[list[Any], int], None] = list[Any].__delitem__
insert_item: Callable[[list[Any], int, Any], None] = list[Any].insert
set_item: Callable[[list[Any], int, Any], None] = list[Any].__setitem__
