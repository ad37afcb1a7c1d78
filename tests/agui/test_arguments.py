"""Tool arguments in fragments: the object at the end, and on the way nothing but parts of it."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from citewire.agui.thread.arguments import Arguments
from citewire.frozen import FrozenDict, freeze
from support.call_counts import count_calls

Json = dict[str, Any]

words = st.text('ab {}[],:"\\/é中😀\n\x00\u2028', max_size=6)
numbers = st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False)
values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | numbers | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=8,
)
objects = st.dictionaries(words, values, max_size=4)


@st.composite
def spellings(draw: st.DrawFn, value: Any) -> str:
    """`value` as JSON, with or without spaces and escapes."""
    indent = draw(st.sampled_from([None, 0, 2]))
    separators = draw(st.sampled_from([None, (",", ":"), (" , ", " : ")]))
    text = json.dumps(value, indent=indent, separators=separators, ensure_ascii=draw(st.booleans()))
    return draw(st.sampled_from(["", " ", "\n\t"])) + text + draw(st.sampled_from(["", " ", "\n"]))


def feed(*fragments: str, seed: bool = False) -> Arguments:
    arguments = Arguments(seed)
    for fragment in fragments:
        arguments.feed(fragment)
    return arguments


def cut(text: str, edges: list[int]) -> list[str]:
    places = [0, *sorted(edge % (len(text) + 1) for edge in edges), len(text)]
    return [text[start:end] for start, end in pairwise(places)]


@given(objects, st.data(), st.lists(st.integers(0, 10**6), max_size=12))
def test_fragments_of_an_object_are_the_object(value: Json, data: st.DataObject, edges: list[int]) -> None:
    """Wherever the text is cut, whether or not it is looked at on the way."""
    fragments = cut(data.draw(spellings(value)), edges)
    assert feed(*fragments).value == value
    assert feed(*fragments).is_complete
    looked_at = Arguments()
    for fragment in fragments:
        looked_at.feed(fragment)
        assert type(looked_at.value) is FrozenDict
    assert looked_at.value == value


@given(objects, st.data())
def test_every_prefix_shows_a_part(value: Json, data: st.DataObject) -> None:
    """Letter by letter: what is shown grows, and is all of it in the object at the end."""
    arguments, before = Arguments(), FrozenDict()
    for letter in data.draw(spellings(value)):
        arguments.feed(letter)
        shown = arguments.value
        assert is_part(before, shown)
        assert is_part(shown, value)
        before = shown
    assert before == value


def is_part(part: Any, whole: Any) -> bool:
    """Whether `part` is `whole` as far as it goes: some keys, some items, the start of a text."""
    if isinstance(part, dict) and isinstance(whole, dict):
        ours, theirs = cast("Json", part), cast("Json", whole)
        return all(name in theirs and is_part(ours[name], theirs[name]) for name in ours)
    if isinstance(part, list) and isinstance(whole, list):
        items, others = cast("list[Any]", part), cast("list[Any]", whole)
        return len(items) <= len(others) and all(map(is_part, items, others))
    if isinstance(part, str) and isinstance(whole, str):
        return whole.startswith(part)
    return type(cast("object", part)) is type(cast("object", whole)) and part == whole


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        pytest.param("", {}, id="nothing"),
        pytest.param("{", {}, id="a bracket"),
        pytest.param('{"a', {}, id="half a key"),
        pytest.param('{"a"', {}, id="a key"),
        pytest.param('{"a":', {}, id="a colon"),
        pytest.param('{"a":1', {}, id="a number that may go on"),
        pytest.param('{"a":1,', {"a": 1}, id="a number that does not"),
        pytest.param('{"a":1 ', {}, id="a number and a space"),
        pytest.param('{"a":-', {}, id="a sign"),
        pytest.param('{"a":tru', {}, id="half a word"),
        pytest.param('{"a":true,"b":nul', {"a": True}, id="a word, and half of one"),
        pytest.param('{"a":"', {"a": ""}, id="the start of a text"),
        pytest.param('{"a":"x', {"a": "x"}, id="half a text"),
        pytest.param('{"a":"x"', {"a": "x"}, id="a text"),
        pytest.param('{"a":"x\\', {"a": "x"}, id="half an escape"),
        pytest.param('{"a":"x\\u00e', {"a": "x"}, id="most of an escape"),
        pytest.param('{"a":"x\\ud83d', {"a": "x"}, id="half a pair"),
        pytest.param('{"a":"x\\ud83d\\ude0', {"a": "x"}, id="most of a pair"),
        pytest.param('{"a":"x\\\\', {"a": "x\\"}, id="an escaped backslash"),
        pytest.param('{"a":"}]{[,:\\"', {"a": '}]{[,:"'}, id="brackets in a text"),
        pytest.param('{"a":[', {"a": []}, id="a list"),
        pytest.param('{"a":[1', {"a": []}, id="a number in a list"),
        pytest.param('{"a":[1,2', {"a": [1]}, id="two of them"),
        pytest.param('{"a":["x', {"a": ["x"]}, id="half a text in a list"),
        pytest.param('{"a":["x","y', {"a": ["x", "y"]}, id="the second half of one"),
        pytest.param('{"a":[{"b":[[1,', {"a": [{"b": [[1]]}]}, id="deeper"),
        pytest.param('{"a":[{"b":1},{"c', {"a": [{"b": 1}, {}]}, id="half a key in the second"),
        pytest.param('{"a":{"b":1}', {"a": {"b": 1}}, id="the inner one closed"),
        pytest.param('{"a":{},"b', {"a": {}}, id="half a key behind it"),
        pytest.param('{"a":{"b":"x"},"c":"y', {"a": {"b": "x"}, "c": "y"}, id="half a text behind it"),
    ],
)
def test_the_best_value_so_far(text: str, shown: Json) -> None:
    assert feed(text).value == shown
    assert feed(*text).value == shown
    assert not feed(*text).is_complete


@pytest.mark.parametrize(
    ("fragments", "value"),
    [
        pytest.param(['{"a":1}', '{"b":2}'], {"b": 2}, id="one by itself after a whole one"),
        pytest.param(['{"a":', "1}", '{"b":2}'], {"b": 2}, id="after one in fragments"),
        pytest.param(['{"a":1}', '{"b":2}', '{"c":3}'], {"c": 3}, id="one after another"),
        pytest.param(['{"a":1} ', ' \n{"b":2} '], {"b": 2}, id="with spaces"),
        pytest.param(['{"a":1}', "", "  "], {"a": 1}, id="nothing and spaces"),
        pytest.param(['{"a":1}', "{}"], {}, id="an empty one"),
        pytest.param(["{}", '{"a":1}'], {"a": 1}, id="after an empty one"),
        pytest.param(['{"a":', '{"b":2}', "}"], {"a": {"b": 2}}, id="within one that is not whole"),
        pytest.param(
            ['{"a":[', '{"b":1}', ",", '{"c":2}', "]}"], {"a": [{"b": 1}, {"c": 2}]}, id="in a list"
        ),
        pytest.param(['{"a":"', "{}", '"}'], {"a": "{}"}, id="within a text"),
        pytest.param(
            ['{"a":1}', '{"b":2}', '{"c":', "3}"], {"b": 2}, id="fragments of another do not replace"
        ),
    ],
)
def test_an_object_by_itself_replaces_a_whole_one(fragments: list[str], value: Json) -> None:
    assert feed(*fragments).value == value


@pytest.mark.parametrize("more", [" ", "x", "}", "]", ",", '"x"', "[1]", "5", '{"b":', '{"b":}', ',"b":2}'])
def test_what_follows_a_whole_object_does_not_take_it_away(more: str) -> None:
    assert feed('{"a":1}', more).value == {"a": 1}


@pytest.mark.parametrize(
    "text",
    [
        "null", "5", '"x"', "[1]", '[{"a":1}]', "true", "x", "}", "]", "{]", "[}", ":", ",", '"', "\\", "{x}",
        "{'a':1}", '{"a":NaN}', '{"a":Infinity}', '{"a":01}', '{"a":+1}', '{"a":"\\x"}', '{"a":"\n"}',
        "{a:1}", '{"a" 1}', '{"a":1 "b":2}', '{"a"}', "{,}", '{"a":}', 'x{"a":1}', '// no\n{"a":1}',
        "\ufeff{}", "\x00",
    ],
)  # fmt: skip
def test_what_is_no_object_is_empty(text: str) -> None:
    assert feed(text).value == {}
    assert feed(*text).value == {}


@given(st.lists(st.text('{}[]",:\\u0d8 1ex\ud83d\ude00', max_size=6), max_size=12))
def test_junk_is_never_an_error(fragments: list[str]) -> None:
    for seed in (False, True):
        arguments = Arguments(seed)
        for fragment in fragments:
            arguments.feed(fragment)
            assert type(arguments.value) is FrozenDict


@pytest.mark.parametrize(
    ("fragments", "value"),
    [
        pytest.param(['{"a":1}'], {"a": 1}, id="an object"),
        pytest.param(['{"a":1}', '{"b":2}'], {"b": 2}, id="another replaces it"),
        pytest.param(['{"a":1}', ""], {}, id="nothing wipes it"),
        pytest.param(['{"a":', "1}"], {}, id="fragments are none"),
        pytest.param(['{"a":1}', '{"b":'], {}, id="a fragment wipes it"),
        pytest.param(['{"a":', '{"b":2}', "}"], {}, id="the last one counts"),
        pytest.param(["[1]"], {}, id="an array"),
        pytest.param(["5"], {}, id="a scalar"),
        pytest.param(["null"], {}, id="null"),
        pytest.param([], {}, id="none at all"),
    ],
)
def test_with_seed_each_fragment_is_the_whole(fragments: list[str], value: Json) -> None:
    assert feed(*fragments, seed=True).value == value


@pytest.mark.parametrize(
    ("fragments", "value"),
    [
        pytest.param(['{"a":"\\ud83d', '\\ude00"}'], {"a": "😀"}, id="escapes"),
        pytest.param(['{"a":"\\ud83', 'd\\ude00"}'], {"a": "😀"}, id="within the first escape"),
        pytest.param(['{"a":"\\ud83d\\', 'ude00"}'], {"a": "😀"}, id="within the second escape"),
        pytest.param(['{"a":"\ud83d', '\ude00"}'], {"a": "😀"}, id="the text itself"),
        pytest.param(['{"\ud83d', '\ude00":"\ud83d', '\ude00"}'], {"😀": "😀"}, id="in a key, too"),
    ],
)
def test_halves_of_a_pair_in_two_fragments_are_joined(fragments: list[str], value: Json) -> None:
    assert feed(*fragments).value == value


@given(objects, objects, st.data())
def test_copies_go_their_own_ways(value: Json, other: Json, data: st.DataObject) -> None:
    """Whichever is fed first after the copy; what was handed out before stays."""
    text, another = json.dumps({"": 0, **value}), json.dumps({"": 0, **other})
    at = data.draw(st.integers(0, min(len(text), len(another))))
    at = next((place for place in range(at) if text[place] != another[place]), at)
    original = feed(text[:at])
    shown = original.value
    then = repr(shown)
    twin = original.copy()
    branches = [(twin, another), (original, text)]
    for branch, rest in branches if data.draw(st.booleans()) else branches[::-1]:
        branch.feed(rest[at:])
    assert original.value == {"": 0, **value}
    assert twin.value == {"": 0, **other}
    assert repr(shown) == then


def test_values_are_frozen() -> None:
    value = feed('{"a":{"b":[{}]}}').value
    assert repr(value) == repr(freeze({"a": {"b": [{}]}}))
    assert {type(value), type(value["a"]), type(value["a"]["b"][0])} == {FrozenDict}
    with pytest.raises(TypeError):
        value["a"]["b"].append(1)


@pytest.mark.parametrize("depth", [100, 300, 450, 600, 900, 2000, 100_000])
def test_any_depth_is_read_or_empty(depth: int) -> None:
    """Never an error, closed or not: what is too deep to read is shown as nothing."""
    for text in ('{"a":' * depth, '{"a":' * depth + "1" + "}" * depth, '{"a":' + "[" * depth):
        value: Any = feed(text).value
        if depth <= 300:
            assert value.keys() == {"a"}
        assert type(value) is FrozenDict


FRAGMENTS = {
    "deep objects": '{"a":',
    "deep lists": '{"a":[',
    "a long list": '{"a":1},',
    "a long text": "word \\n ",
    "escapes": "\\u00e9",
    "junk": "}]",
    "whole objects": '{"a":1}',
}


@pytest.mark.parametrize("fragment", FRAGMENTS.values(), ids=FRAGMENTS)
def test_fragments_are_looked_at_once(fragment: str) -> None:
    """Ten times as many cost ten times as much, however deep they nest; the value is made when it is read."""

    def cost(count: int) -> int:
        arguments = Arguments()
        arguments.feed('{"start":["')
        if fragment[0] in "{}":
            arguments.feed('",')
        calls = count_calls(lambda: [arguments.feed(fragment) for _ in range(count)])
        return calls + count_calls(lambda: arguments.value if len(fragment) > 6 else None)

    assert cost(4000) < 11 * cost(400) + 100


def test_reading_again_costs_nothing() -> None:
    arguments = feed('{"a":[1,2,3')
    assert arguments.value is arguments.value
    assert count_calls(lambda: arguments.value) <= 3
