"""Frozen JSON reads, compares, prints and encodes as the plain kind does, and nothing changes it."""

from __future__ import annotations

import copy
import json
import operator
import pickle
from collections.abc import Callable
from typing import Any, cast

import msgspec
import pytest
from hypothesis import given

from citewire.frozen import FrozenDict, FrozenList, freeze
from support.strategies import json_values

PLAIN: dict[str, Any] = {"a": 1, "list": [1, {"x": None}, [True]], "deep": {"er": {"": "é😀"}}, "empty": {}}


def kinds(value: Any) -> set[type]:
    """The types of all containers in `value`."""
    if not isinstance(value, dict | list):
        return set()
    inner: list[Any] = list(cast("Any", value.values() if isinstance(value, dict) else value))
    return {type(cast("object", value))}.union(*map(kinds, inner))


@given(json_values)
def test_freezing_changes_nothing_but_the_kinds(value: Any) -> None:
    before = repr(value)
    frozen = freeze(value)
    assert frozen == value
    assert repr(frozen) == repr(value) == before
    assert kinds(frozen) <= {FrozenDict, FrozenList}
    assert freeze(frozen) is frozen


def test_what_is_frozen_shares_nothing_that_can_change() -> None:
    plain = copy.deepcopy(PLAIN)
    frozen = freeze(plain)
    plain["list"][1]["x"] = "changed"
    plain["deep"].clear()
    plain["new"] = 1
    assert frozen == PLAIN


def test_a_frozen_part_of_something_plain_is_kept_as_it_is() -> None:
    part = freeze({"a": [1]})
    frozen = freeze({"part": part, "list": [part]})
    assert frozen["part"] is part
    assert frozen["list"][0] is part


Change = Callable[[Any], Any]
OF_A_DICT: dict[str, Change] = {
    "set": lambda d: operator.setitem(d, "a", 2),
    "set new": lambda d: operator.setitem(d, "b", 2),
    "del": lambda d: operator.delitem(d, "a"),
    "|=": lambda d: d.__ior__({"b": 2}),
    "clear": lambda d: d.clear(),
    "pop": lambda d: d.pop("a"),
    "pop with default": lambda d: d.pop("b", None),
    "popitem": lambda d: d.popitem(),
    "setdefault": lambda d: d.setdefault("b", 2),
    "setdefault of what is there": lambda d: d.setdefault("a", 2),
    "update": lambda d: d.update({"b": 2}),
    "update by name": lambda d: d.update(b=2),
    "attribute": lambda d: setattr(d, "b", 2),
}
OF_A_LIST: dict[str, Change] = {
    "set": lambda x: operator.setitem(x, 0, 3),
    "set slice": lambda x: operator.setitem(x, slice(0, 1), []),
    "del": lambda x: operator.delitem(x, 0),
    "del slice": lambda x: operator.delitem(x, slice(None)),
    "+=": lambda x: x.__iadd__([3]),
    "*=": lambda x: x.__imul__(2),
    "append": lambda x: x.append(3),
    "extend": lambda x: x.extend([3]),
    "insert": lambda x: x.insert(0, 3),
    "pop": lambda x: x.pop(),
    "remove": lambda x: x.remove(1),
    "reverse": lambda x: x.reverse(),
    "sort": lambda x: x.sort(),
    "clear": lambda x: x.clear(),
    "attribute": lambda x: setattr(x, "b", 2),
}


@pytest.mark.parametrize(
    ("value", "change"),
    [
        *(pytest.param(FrozenDict(a=1), change, id=f"dict {name}") for name, change in OF_A_DICT.items()),
        *(pytest.param(FrozenList([2, 1]), change, id=f"list {name}") for name, change in OF_A_LIST.items()),
    ],
)
def test_every_change_is_refused(value: Any, change: Change) -> None:
    before = repr(value)
    with pytest.raises((TypeError, AttributeError)):
        change(value)
    assert repr(value) == before


def test_no_method_that_changes_is_forgotten() -> None:
    """A newer Python may add some: what the kinds inherit is what only reads."""
    reads_dict = {"copy", "fromkeys", "get", "items", "keys", "values"}
    reads_list = {"copy", "count", "index"}
    for kind, base, reads in ((FrozenDict, dict, reads_dict), (FrozenList, list, reads_list)):
        inherited = {name for name in vars(base) if name not in vars(kind)}
        assert {name for name in inherited if not name.startswith("_")} == reads
        assert inherited.isdisjoint({"__setitem__", "__delitem__", "__ior__", "__iadd__", "__imul__"})


class Held(msgspec.Struct):
    value: Any


FROZEN_COPIES: dict[str, Change] = {
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "pickle": lambda value: pickle.loads(pickle.dumps(value)),
    "pickle, the oldest": lambda value: pickle.loads(pickle.dumps(value, 0)),
    "in a struct": lambda value: copy.deepcopy(Held(value)).value,
}
PLAIN_COPIES: dict[str, Change] = {
    "its own copy": lambda value: value.copy(),
    "made anew": lambda value: type(value).mro()[1](value),
}


@pytest.mark.parametrize("value", [freeze(PLAIN), freeze([PLAIN, [PLAIN]])], ids=["dict", "list"])
@pytest.mark.parametrize("copied", FROZEN_COPIES.values(), ids=FROZEN_COPIES)
def test_copies_are_frozen(value: Any, copied: Change) -> None:
    twin = copied(value)
    assert twin == value
    assert type(twin) is type(value)
    assert kinds(twin) == {FrozenDict, FrozenList}


@pytest.mark.parametrize("value", [freeze(PLAIN), freeze([PLAIN, [PLAIN]])], ids=["dict", "list"])
@pytest.mark.parametrize("copied", PLAIN_COPIES.values(), ids=PLAIN_COPIES)
def test_copies_to_change(value: Any, copied: Change) -> None:
    """Those of the dict and the list itself are plain, one level deep."""
    twin = copied(value)
    assert twin == value
    assert type(twin) is type(value).__base__
    assert kinds(twin) == {FrozenDict, FrozenList, type(twin)}


@given(json_values)
def test_encoders_take_them_for_what_they_are(value: Any) -> None:
    frozen = freeze(value)
    assert json.dumps(frozen) == json.dumps(value)
    assert msgspec.json.encode(frozen) == msgspec.json.encode(value)
    assert msgspec.to_builtins(frozen) == value


def test_equality() -> None:
    assert FrozenDict(a=1, b=2) == {"b": 2, "a": 1} == FrozenDict(b=2, a=1)
    assert FrozenDict(a=1) != {"a": 2}
    assert type(FrozenDict(a=1) | {"b": 2}) is dict
    assert type(FrozenList([1]) + [2]) is list  # noqa: RUF005  # the operator is what is tried
    assert FrozenList([1]) == [1] == FrozenList([1])
    assert FrozenList([1]) != [2]
    assert FrozenList() != FrozenDict()
    assert isinstance(freeze({}), dict)
    assert isinstance(freeze([]), list)
    with pytest.raises(TypeError):
        hash(FrozenDict())
    with pytest.raises(TypeError):
        hash(FrozenList())


@pytest.mark.parametrize("value", [None, True, 0, 1.5, "", "text", b"x"])
def test_what_is_no_container_stays(value: Any) -> None:
    assert freeze(value) is value
