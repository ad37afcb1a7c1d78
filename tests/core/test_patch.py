"""RFC 6902 as a table; no patch, good or bad, changes the document it is given, or a value handed out."""

from __future__ import annotations

import copy
from collections.abc import Callable
from contextlib import suppress
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from citewire.errors import InputError
from citewire.frozen import FrozenDict, FrozenList, freeze
from citewire.patch import PatchError, PatchTarget, apply_patch, escape_token, parse_pointer
from support.strategies import any_text


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
    assert apply_patch(document, operations) == result
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
        apply_patch(
            document, [op("add", "/first", 1), op("remove", "/list/0"), op("add", "/list/0", 1), operation]
        )
    assert document == DOCUMENT
    assert caught.value.code == "bad_patch"
    assert isinstance(caught.value, InputError)


def test_the_error_names_the_path() -> None:
    with pytest.raises(PatchError) as caught:
        apply_patch({}, [op("remove", "/a~1b/c~0d")])
    assert caught.value.path == "/a~1b/c~0d"


def test_what_is_not_touched_is_shared() -> None:
    document: dict[str, Any] = {"a": {"b": [{"c": 1}, {"d": 2}]}, "e": {"f": 3}, "g": [4]}
    after = apply_patch(document, [op("replace", "/a/b/0/c", 9), op("add", "/h", 5)])
    assert after == {"a": {"b": [{"c": 9}, {"d": 2}]}, "e": {"f": 3}, "g": [4], "h": 5}
    assert after["e"] is document["e"]
    assert after["g"] is document["g"]
    assert after["a"]["b"][1] is document["a"]["b"][1]
    assert after["a"] is not document["a"]


def test_a_test_shares_everything() -> None:
    document = {"a": [1]}
    assert apply_patch(document, [op("test", "/a/0", 1)]) is document


@pytest.mark.parametrize("depth", [100, 400, 600, 900])
def test_a_deep_document(depth: int) -> None:
    """As deep as JSON may be read; a comparison that is too deep is our error, and a path is never."""
    document: Any = 1
    for _ in range(depth):
        document = [document]
    changed = apply_patch(document, [op("replace", "/0" * depth, 2)])
    for _ in range(depth):
        changed = changed[0]
    assert changed == 2
    try:
        apply_patch(document, [op("test", "", copy.copy(document))])
    except PatchError:
        assert depth > 400


tokens = st.sampled_from(["a", "b", "0", "1", "-", "", "~", "/", "nothing"]).map(escape_token)
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
        apply_patch(document, patch)
    assert repr(document) == repr(before)
    assert repr(patch) == repr(patch_before)


@given(documents, documents)
def test_replacing_the_root_makes_a_test_of_it_pass(document: Any, other: Any) -> None:
    assert apply_patch(document, [op("replace", "", other), op("test", "", copy.deepcopy(other))]) == other


@given(st.dictionaries(keys, documents, min_size=1), documents, st.data())
def test_adding_and_removing_undo_each_other(
    document: dict[str, Any], value: Any, data: st.DataObject
) -> None:
    path = f"/{escape_token('new' + data.draw(keys))}"
    assert (
        apply_patch(document, [op("add", path, value), op("test", path, value), op("remove", path)])
        == document
    )


@given(st.lists(any_text.filter(lambda step: step not in {"__proto__", "constructor", "prototype"})))
def test_pointers_are_parsed_as_they_were_written(steps: list[str]) -> None:
    assert parse_pointer("".join(f"/{escape_token(step)}" for step in steps)) == steps


FAILS = op("remove", "/nowhere/at all")


def owned(value: Any) -> PatchTarget:
    """A document that has copied every container of `value` for itself, and may change them in place."""
    document = PatchTarget(value)

    def own(inner: Any, path: str) -> None:
        if isinstance(inner, dict):
            document.apply([op("add", f"{path}/own", 1), op("remove", f"{path}/own")])
            for key, child in cast("dict[str, Any]", inner).items():
                own(child, f"{path}/{escape_token(key)}")
        elif isinstance(inner, list):
            document.apply(
                [op("add", f"{path}/-", 1), op("remove", f"{path}/{len(cast('list[Any]', inner))}")]
            )
            for at, child in enumerate(cast("list[Any]", inner)):
                own(child, f"{path}/{at}")

    own(value, "")
    return document


@pytest.mark.parametrize(
    "patch",
    [
        pytest.param([op("add", "/a", 9), op("add", "/new", 1)], id="members set and added"),
        pytest.param([op("remove", "/a")], id="the first member removed"),
        pytest.param([op("remove", "/list"), op("add", "/list", 1)], id="removed and added anew"),
        pytest.param(
            [op("add", "/list/0", 9), op("remove", "/list/2"), op("replace", "/list/1", 8)], id="list"
        ),
        pytest.param([op("add", "/list/-", 9), op("add", "/list/-", 9)], id="appended"),
        pytest.param([op("move", "/list/2", source="/list/0")], id="moved within a list"),
        pytest.param([op("move", "/deep/er/0/y", source="/list")], id="moved deeper"),
        pytest.param([op("move", "/deep", source="/deep/er")], id="moved over its parent"),
        pytest.param([op("copy", "/list/-", source="/deep"), op("add", "/list/3/x", 1)], id="copied"),
        pytest.param([op("copy", "/deep/er/0/all", source=""), op("add", "/deep/er/-", 2)], id="copied into"),
        pytest.param([op("add", "/o", {"p": {}}), op("add", "/o/p/q", 1), op("remove", "/o")], id="new"),
        pytest.param([op("replace", "", [1]), op("add", "/-", 2), op("remove", "")], id="the root"),
        pytest.param([op("remove", f"/deep{rest}") for rest in ("/er/0/x", "/er/0", "")], id="inside"),
    ],
)
@pytest.mark.parametrize("held", [PatchTarget, owned], ids=["fresh", "owned"])
def test_a_failure_undoes_what_was_done_before_it(
    held: Callable[[Any], PatchTarget], patch: list[Any]
) -> None:
    """Whether it changed copies or, of what nobody holds, the thing itself; the order of keys, too."""
    document = held(copy.deepcopy(DOCUMENT))
    with pytest.raises(PatchError):
        document.apply([*patch, FAILS])
    assert repr(document.value) == repr(DOCUMENT)
    document.apply(patch)
    assert document.value == apply_patch(DOCUMENT, patch)


def places(value: Any, path: str = "") -> list[str]:
    """The pointer to everything in `value`."""
    inner: list[tuple[str, Any]] = []
    if isinstance(value, dict):
        inner = [(escape_token(key), child) for key, child in cast("dict[str, Any]", value).items()]
    elif isinstance(value, list):
        inner = [(str(at), child) for at, child in enumerate(cast("list[Any]", value))]
    return [path, *(place for token, child in inner for place in places(child, f"{path}/{token}"))]


@st.composite
def fitting(draw: st.DrawFn, value: Any) -> list[dict[str, Any]]:
    """A patch that mostly names what is there, and so fails late, if it does."""
    there = st.sampled_from(places(value))
    beside = st.builds("{}/{}".format, there, tokens)
    operation = st.fixed_dictionaries(
        {
            "op": st.sampled_from(["add", "replace", "remove", "copy", "move"]),
            "path": there | beside,
            "from": there,
            "value": leaves | documents,
        }
    )
    return draw(st.lists(operation, max_size=4))


@given(st.dictionaries(keys, documents, min_size=2, max_size=4) | documents, st.booleans(), st.data())
def test_a_document_is_patched_like_copies_of_it(start: Any, frozen: bool, data: st.DataObject) -> None:
    """And what was handed out at any moment stays as it was, whatever came after, also what failed."""
    document = PatchTarget(freeze(start) if frozen else start)
    expected, handed_out = copy.deepcopy(start), list[tuple[Any, str]]()
    for _ in range(data.draw(st.integers(1, 6))):
        patch = data.draw(fitting(expected)) + data.draw(st.sampled_from([[], [FAILS]]))
        given_patch, before = freeze(patch) if frozen else patch, repr(patch)
        try:
            wanted = apply_patch(copy.deepcopy(expected), patch)
        except PatchError:
            with pytest.raises(PatchError):
                document.apply(given_patch)
        else:
            document.apply(given_patch)
            expected = wanted
        assert repr(document.peek()) == repr(expected)
        assert repr(patch) == before
        if data.draw(st.booleans()):
            handed_out.append((document.value, repr(expected)))
    for value, then in handed_out:
        assert repr(value) == then


@given(st.dictionaries(keys, documents, min_size=1) | documents, st.lists(operations, max_size=6))
def test_frozen_stays_frozen(start: Any, patch: list[Any]) -> None:
    """Whether it was frozen before, with whatever is put into it, or is told to freeze what comes."""
    given_frozen, freezing = PatchTarget(freeze(start)), PatchTarget(start, frozen=True)
    for operation in patch:
        with suppress(PatchError):
            given_frozen.apply(freeze([operation]))
        with suppress(PatchError):
            freezing.apply([operation])
    for document in (given_frozen, freezing):
        assert kinds(document.value) <= {FrozenDict, FrozenList}
    assert repr(given_frozen.value) == repr(freezing.value)
    freezing.replace(start)
    assert kinds(freezing.value) <= {FrozenDict, FrozenList}


@pytest.mark.parametrize("depth", [100, 600, 900])
def test_a_value_too_deep_to_freeze_undoes_the_rest_too(depth: int) -> None:
    deep: Any = 1
    for _ in range(depth):
        deep = [deep]
    document = PatchTarget({"a": 1}, frozen=True)
    document.apply([op("add", "/own", 1)])
    try:
        document.apply([op("add", "/b", 1), op("replace", "/a", 2), op("add", "/deep", deep)])
    except (PatchError, RecursionError):
        assert document.value == {"a": 1, "own": 1}
    else:
        assert document.value.keys() == {"a", "own", "b", "deep"}


def kinds(value: Any) -> set[type]:
    if not isinstance(value, dict | list):
        return set()
    inner: list[Any] = list(cast("Any", value.values() if isinstance(value, dict) else value))
    return {type(cast("object", value))}.union(*map(kinds, inner))


def test_changes_are_made_in_place_until_the_value_is_handed_out() -> None:
    document = PatchTarget({"a": {"b": 1}, "c": {}})
    document.apply([op("add", "/a/b", 2)])
    mine = document.peek()["a"]
    document.apply([op("add", "/a/b", 3)])
    assert document.peek()["a"] is mine
    given_away = document.value
    document.apply([op("add", "/a/b", 4)])
    assert given_away == {"a": {"b": 3}, "c": {}}
    assert document.value["a"] is not mine
    assert document.value["c"] is given_away["c"]


def test_what_was_copied_is_not_changed_with_its_original() -> None:
    document = PatchTarget({"a": {}})
    document.apply([op("add", "/a/x", 1), op("copy", "/b", source="/a"), op("add", "/a/x", 2)])
    document.apply([op("add", "/b/y", 3)])
    assert document.value == {"a": {"x": 2}, "b": {"x": 1, "y": 3}}


def test_a_value_that_stands_in_two_places_is_changed_in_one() -> None:
    shared: dict[str, Any] = {"x": 1}
    document = PatchTarget({})
    document.apply([op("add", "/a", shared), op("add", "/b", shared), op("add", "/a/x", 2)])
    assert document.value == {"a": {"x": 2}, "b": {"x": 1}}
    assert shared == {"x": 1}


def test_replacing_the_value() -> None:
    document = PatchTarget({"a": 1})
    before = document.value
    document.apply([op("add", "/a", 2)])
    given_in: dict[str, Any] = {"b": {}}
    document.replace(given_in)
    document.apply([op("add", "/b/c", 1)])
    assert document.value == {"b": {"c": 1}}
    assert (before, given_in) == ({"a": 1}, {"b": {}})


REFUSED = PatchError
LISTS: dict[str, Any] = {"list": [1, 2], "more": [3]}


@pytest.mark.parametrize(
    ("operation", "strictly", "as_client"),
    [
        pytest.param(op("add", "/list/1", 9), [1, 9, 2], [1, 9, 2], id="an index"),
        pytest.param(op("add", "/list/01", 9), REFUSED, [1, 9, 2], id="add, leading zero"),
        pytest.param(op("add", "/list/000000000000000000002", 9), REFUSED, [1, 2, 9], id="add, many zeros"),
        pytest.param(op("add", "/list/00", 9), REFUSED, [9, 1, 2], id="add, zero twice"),
        pytest.param(op("add", "/list/", 9), REFUSED, [9, 1, 2], id="add, empty index"),
        pytest.param(op("add", "/list/3", 9), REFUSED, REFUSED, id="add, past the end"),
        pytest.param(op("add", "/list/03", 9), REFUSED, REFUSED, id="add, past the end with a zero"),
        pytest.param(op("add", "/list/-1", 9), REFUSED, REFUSED, id="add, negative"),
        pytest.param(op("add", "/list/1e0", 9), REFUSED, REFUSED, id="add, no integer"),
        pytest.param(op("add", "/list/１", 9), REFUSED, REFUSED, id="add, foreign digit"),
        pytest.param(op("add", "/list/x", 9), REFUSED, REFUSED, id="add, a word"),
        pytest.param(op("copy", "/list/7", source="/more/0"), REFUSED, [1, 2, 3], id="copy past the end"),
        pytest.param(op("move", "/list/7", source="/more/0"), REFUSED, [1, 2, 3], id="move past the end"),
        pytest.param(op("move", "/list/2", source="/list/0"), REFUSED, [2, 1], id="move behind itself"),
        pytest.param(op("copy", "/list/01", source="/more/0"), REFUSED, [1, 3, 2], id="copy, leading zero"),
        pytest.param(op("copy", "/list/", source="/more/0"), REFUSED, [3, 1, 2], id="copy, empty index"),
        pytest.param(op("copy", "/list/x", source="/more/0"), REFUSED, REFUSED, id="copy to a word"),
        pytest.param(op("replace", "/list/01", 9), REFUSED, REFUSED, id="replace, leading zero"),
        pytest.param(op("replace", "/list/2", 9), REFUSED, REFUSED, id="replace past the end"),
        pytest.param(op("remove", "/list/2"), REFUSED, REFUSED, id="remove past the end"),
        pytest.param(op("remove", "/list/-"), REFUSED, REFUSED, id="remove behind the end"),
    ],
)
def test_indexes_as_the_client_takes_them(operation: dict[str, Any], strictly: Any, as_client: Any) -> None:
    for kind, wanted in ((False, strictly), (True, as_client)):
        document = PatchTarget(freeze(LISTS), as_client=kind)
        if wanted is REFUSED:
            with pytest.raises(PatchError):
                document.apply([operation])
            assert document.value == LISTS
        else:
            document.apply([operation])
            assert document.value["list"] == wanted


@pytest.mark.parametrize(
    ("path", "refused"),
    [
        pytest.param("/__proto__", True, id="the prototype"),
        pytest.param("/__proto__/x", True, id="under the prototype"),
        pytest.param("/a/__proto__", True, id="a deeper one"),
        pytest.param("/constructor/prototype", True, id="by the constructor"),
        pytest.param("/a/constructor/prototype/x", True, id="by a deeper constructor"),
        pytest.param("/constructor", False, id="a key called constructor"),
        pytest.param("/prototype", False, id="a key called prototype"),
        pytest.param("/a/prototype", False, id="a deeper one called prototype"),
        pytest.param("/prototype~1constructor", False, id="one key with both"),
    ],
)
def test_unsafe_keys_as_the_client_sees_them(path: str, refused: bool) -> None:
    start: dict[str, Any] = {"a": {"constructor": {}}, "constructor": {}}
    document = PatchTarget(start, as_client=True)
    if refused:
        with pytest.raises(PatchError):
            document.apply([op("add", path, 1)])
        assert document.value == start
    else:
        document.apply([op("add", path, 1), op("test", path, 1)])


@given(documents, st.lists(operations, max_size=4))
def test_the_client_takes_all_that_the_rfc_does(start: Any, patch: list[Any]) -> None:
    document = PatchTarget(start, as_client=True)
    try:
        wanted = apply_patch(start, patch)
    except PatchError:
        with suppress(PatchError):
            document.apply(patch)
    else:
        document.apply(patch)
        assert repr(document.value) == repr(wanted)
