"""RFC 6902 as a table; no patch, good or bad, changes the document it is given."""

from __future__ import annotations

import copy
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from citewire.errors import InputError
from citewire.patch import PatchError, apply, escape, parse_pointer
from strategies import any_text


def op(name: str, path: str, *value: Any, source: str | None = None) -> dict[str, Any]:
    operation: dict[str, Any] = {"op": name, "path": path}
    if value:
        operation["value"] = value[0]
    return operation if source is None else operation | {"from": source}


DOCUMENT: dict[str, Any] = {"a": 1, "list": [1, 2, 3], "deep": {"er": [{"x": 1}]}, "": 0, "m~n": 8, "a/b": 9}


@pytest.mark.parametrize(
    ("document", "operations", "result"),
    [
        pytest.param({}, [], {}, id="nothing to do"),
        pytest.param({"a": 1}, [op("add", "/b", 2)], {"a": 1, "b": 2}, id="add a member"),
        pytest.param({"a": 1}, [op("add", "/a", 2)], {"a": 2}, id="add over a member"),
        pytest.param({"a": 1}, [op("add", "/b", None)], {"a": 1, "b": None}, id="add null"),
        pytest.param([1, 3], [op("add", "/1", 2)], [1, 2, 3], id="add within a list"),
        pytest.param([1], [op("add", "/1", 2)], [1, 2], id="add at the end by index"),
        pytest.param([1], [op("add", "/-", 2)], [1, 2], id="add at the end"),
        pytest.param([], [op("add", "/-", [1])], [[1]], id="a list is added whole"),
        pytest.param({"a": []}, [op("add", "/a/0", 1)], {"a": [1]}, id="add deeper"),
        pytest.param({"a": 1}, [op("add", "", [])], [], id="add the root"),
        pytest.param({"": 0}, [op("add", "/", 1)], {"": 1}, id="empty key"),
        pytest.param({}, [op("add", "/-", 1)], {"-": 1}, id="dash is a key of an object"),
        pytest.param({}, [op("add", "/0", 1)], {"0": 1}, id="number is a key of an object"),
        pytest.param({}, [op("add", "/~1a~0b", 1)], {"/a~b": 1}, id="escapes"),
        pytest.param({}, [op("add", "/~01", 1)], {"~1": 1}, id="escaped tilde before a one"),
        pytest.param({}, [op("add", "/ü 中😀", 1)], {"ü 中😀": 1}, id="any character"),
        pytest.param({"a": 1}, [op("replace", "/a", 2)], {"a": 2}, id="replace a member"),
        pytest.param([1, 2], [op("replace", "/0", 9)], [9, 2], id="replace in a list"),
        pytest.param({"a": 1}, [op("replace", "", 5)], 5, id="replace the root"),
        pytest.param({"a": 1, "b": 2}, [op("remove", "/a")], {"b": 2}, id="remove a member"),
        pytest.param([1, 2, 3], [op("remove", "/1")], [1, 3], id="remove from a list"),
        pytest.param({"a": 1}, [op("remove", "")], None, id="remove the root"),
        pytest.param({"a": [1]}, [op("copy", "/b", source="/a")], {"a": [1], "b": [1]}, id="copy"),
        pytest.param([1, 2], [op("copy", "/-", source="/0")], [1, 2, 1], id="copy within a list"),
        pytest.param({"a": 1}, [op("copy", "/b", source="")], {"a": 1, "b": {"a": 1}}, id="copy the root"),
        pytest.param({"a": 1}, [op("move", "/b", source="/a")], {"b": 1}, id="move"),
        pytest.param([1, 2, 3], [op("move", "/2", source="/0")], [2, 3, 1], id="move within a list"),
        pytest.param([1, 2, 3], [op("move", "/0", source="/2")], [3, 1, 2], id="move to the front"),
        pytest.param({"a": {"b": 1}}, [op("move", "/a", source="/a/b")], {"a": 1}, id="move over its parent"),
        pytest.param({"a": 1}, [op("move", "/a", source="/a")], {"a": 1}, id="move to where it is"),
        pytest.param(
            {"ab": 1, "a": {}}, [op("move", "/a/b", source="/ab")], {"a": {"b": 1}}, id="alike names"
        ),
        pytest.param({"a": 1}, [op("test", "/a", 1)], {"a": 1}, id="test"),
        pytest.param({"a": 1}, [op("test", "/a", 1.0)], {"a": 1}, id="numbers by value"),
        pytest.param(
            [1, {"a": None}], [op("test", "", [1, {"a": None}])], [1, {"a": None}], id="test the root"
        ),
        pytest.param({"a": 1, "b": 2}, [op("test", "", {"b": 2, "a": 1})], {"a": 1, "b": 2}, id="any order"),
        pytest.param({"a": True}, [op("test", "/a", True)], {"a": True}, id="test a boolean"),
        pytest.param(
            {}, [op("add", "/a", {}), op("add", "/a/b", 1)], {"a": {"b": 1}}, id="one after another"
        ),
        pytest.param({}, [op("add", "/a", 1) | {"more": "x"}], {"a": 1}, id="members that mean nothing"),
        pytest.param(
            {"a": 1}, [op("add", "/b", {"__proto__": 1})], {"a": 1, "b": {"__proto__": 1}}, id="value"
        ),
    ],
)
def test_apply(document: Any, operations: list[Any], result: Any) -> None:
    before = copy.deepcopy(document)
    assert apply(document, operations) == result
    assert document == before


@pytest.mark.parametrize(
    "operation",
    [
        pytest.param(op("add", "/nowhere/x", 1), id="parent is missing"),
        pytest.param(op("add", "/a/x", 1), id="parent is a number"),
        pytest.param(op("add", "/list/4", 1), id="index past the end"),
        pytest.param(op("add", "/list/-1", 1), id="negative index"),
        pytest.param(op("add", "/list/01", 1), id="leading zero"),
        pytest.param(op("add", "/list/1e0", 1), id="number that is no index"),
        pytest.param(op("add", "/list/x", 1), id="word as index"),
        pytest.param(op("add", "/list/", 1), id="empty index"),
        pytest.param(op("add", "/list/１", 1), id="foreign digit"),
        pytest.param(op("add", "/list/" + "9" * 5_000, 1), id="huge index"),
        pytest.param(op("add", "a", 1), id="no slash"),
        pytest.param(op("add", "#/a", 1), id="fragment"),
        pytest.param(op("add", "/a~2b", 1), id="unknown escape"),
        pytest.param(op("add", "/a~", 1), id="open escape"),
        pytest.param(op("add", "/b"), id="add without value"),
        pytest.param(op("replace", "/nothing", 1), id="nothing to replace"),
        pytest.param(op("replace", "/list/3", 1), id="nothing to replace in a list"),
        pytest.param(op("replace", "/list/-", 1), id="replace behind the end"),
        pytest.param(op("replace", "/a"), id="replace without value"),
        pytest.param(op("remove", "/nothing"), id="nothing to remove"),
        pytest.param(op("remove", "/list/3"), id="nothing to remove in a list"),
        pytest.param(op("remove", "/list/-"), id="remove behind the end"),
        pytest.param(op("remove", "/a/x"), id="remove within a number"),
        pytest.param(op("copy", "/b"), id="copy from nothing"),
        pytest.param(op("copy", "/b", source="/nothing"), id="copy what is missing"),
        pytest.param(op("copy", "/b", source="b"), id="copy without slash"),
        pytest.param(op("move", "/b", source="/nothing"), id="move what is missing"),
        pytest.param(op("move", "/deep/er/0", source="/deep"), id="move into itself"),
        pytest.param(op("move", "/a", source=""), id="move the root into itself"),
        pytest.param(op("move", "/list/3", source="/list/0"), id="move past the end"),
        pytest.param(op("test", "/a", 2), id="another number"),
        pytest.param(op("test", "/a", True), id="a boolean is no number"),
        pytest.param(op("test", "/a", "1"), id="a string is no number"),
        pytest.param(op("test", "/list", [True, 2, 3]), id="a boolean within a list"),
        pytest.param(op("test", "/list", [1, 2]), id="a shorter list"),
        pytest.param(op("test", "/deep", {}), id="fewer members"),
        pytest.param(op("test", "/deep", {"er": [{"x": 1}], "y": 1}), id="more members"),
        pytest.param(op("test", "/", False), id="zero is not false"),
        pytest.param(op("test", "/nothing", None), id="missing is not null"),
        pytest.param(op("test", "/a"), id="test without value"),
        pytest.param(op("spin", "/a"), id="unknown operation"),
        pytest.param({"path": "/a", "value": 1}, id="no operation"),
        pytest.param({"op": ["add"], "path": "/a", "value": 1}, id="operation is a list"),
        pytest.param({"op": "add", "value": 1}, id="no path"),
        pytest.param({"op": "add", "path": 1, "value": 1}, id="path is a number"),
        pytest.param({"op": "copy", "path": "/b", "from": None}, id="from is null"),
        pytest.param("add", id="a string"),
        pytest.param(None, id="null"),
        pytest.param([], id="a list"),
        pytest.param(op("add", "/__proto__", 1), id="unsafe key"),
        pytest.param(op("add", "/__proto__/x", 1), id="under an unsafe key"),
        pytest.param(op("replace", "/constructor", 1), id="constructor"),
        pytest.param(op("remove", "/deep/prototype"), id="prototype"),
        pytest.param(op("copy", "/b", source="/__proto__"), id="from an unsafe key"),
        pytest.param(op("test", "/constructor/prototype", 1), id="test of an unsafe key"),
    ],
)
def test_a_bad_operation_raises_and_changes_nothing(operation: Any) -> None:
    """Not even what the operations before it did is seen."""
    document = copy.deepcopy(DOCUMENT)
    with pytest.raises(PatchError) as caught:
        apply(document, [op("add", "/first", 1), op("remove", "/list/0"), op("add", "/list/0", 1), operation])
    assert document == DOCUMENT
    assert caught.value.code == "bad_patch"
    assert isinstance(caught.value, InputError)


def test_the_error_names_the_path() -> None:
    with pytest.raises(PatchError) as caught:
        apply({}, [op("remove", "/a~1b/c~0d")])
    assert caught.value.path == "/a~1b/c~0d"


def test_what_is_not_touched_is_shared() -> None:
    document: dict[str, Any] = {"a": {"b": [{"c": 1}, {"d": 2}]}, "e": {"f": 3}, "g": [4]}
    after = apply(document, [op("replace", "/a/b/0/c", 9), op("add", "/h", 5)])
    assert after == {"a": {"b": [{"c": 9}, {"d": 2}]}, "e": {"f": 3}, "g": [4], "h": 5}
    assert after["e"] is document["e"]
    assert after["g"] is document["g"]
    assert after["a"]["b"][1] is document["a"]["b"][1]
    assert after["a"] is not document["a"]


def test_a_test_shares_everything() -> None:
    document = {"a": [1]}
    assert apply(document, [op("test", "/a/0", 1)]) is document


@pytest.mark.parametrize("depth", [100, 400, 600, 900])
def test_a_deep_document(depth: int) -> None:
    """As deep as JSON may be read; a comparison that is too deep is our error, and a path is never."""
    document: Any = 1
    for _ in range(depth):
        document = [document]
    changed = apply(document, [op("replace", "/0" * depth, 2)])
    for _ in range(depth):
        changed = changed[0]
    assert changed == 2
    try:
        apply(document, [op("test", "", copy.copy(document))])
    except PatchError:
        assert depth > 400


tokens = st.sampled_from(["a", "b", "0", "1", "-", "", "~", "/", "nothing"]).map(escape)
pointers = st.lists(tokens, max_size=3).map(lambda steps: "".join(f"/{step}" for step in steps))
leaves = st.none() | st.booleans() | st.integers(0, 2) | st.sampled_from(["", "x"])
keys = st.sampled_from(["a", "b", "0", "~", "/", ""])
documents: st.SearchStrategy[Any] = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3),
    max_leaves=10,
)
operations = st.fixed_dictionaries(
    {
        "op": st.sampled_from(["add", "replace", "remove", "copy", "move", "test"]),
        "path": pointers,
        "from": pointers,
        "value": documents,
    }
)


@given(documents, st.lists(operations, max_size=6))
def test_the_document_is_never_changed(document: Any, patch: list[dict[str, Any]]) -> None:
    before, patch_before = copy.deepcopy(document), copy.deepcopy(patch)
    with suppress(PatchError):
        apply(document, patch)
    assert repr(document) == repr(before)
    assert repr(patch) == repr(patch_before)


@given(documents, documents)
def test_replacing_the_root_makes_a_test_of_it_pass(document: Any, other: Any) -> None:
    assert apply(document, [op("replace", "", other), op("test", "", copy.deepcopy(other))]) == other


@given(st.dictionaries(keys, documents, min_size=1), documents, st.data())
def test_adding_and_removing_undo_each_other(
    document: dict[str, Any], value: Any, data: st.DataObject
) -> None:
    path = f"/{escape('new' + data.draw(keys))}"
    assert apply(document, [op("add", path, value), op("test", path, value), op("remove", path)]) == document


@given(st.lists(any_text.filter(lambda step: step not in {"__proto__", "constructor", "prototype"})))
def test_pointers_are_parsed_as_they_were_written(steps: list[str]) -> None:
    assert parse_pointer("".join(f"/{escape(step)}" for step in steps)) == steps
