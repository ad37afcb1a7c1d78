"""The JSON border: whatever comes in or goes out, only our errors come of it."""

from __future__ import annotations

from contextlib import suppress
from math import isfinite
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from citewire.codec import decode, encode, pretty
from citewire.errors import DecodeError, OutputError
from support.strategies import json_values


@pytest.mark.parametrize(
    "data",
    [
        pytest.param("", id="nothing"),
        pytest.param(" \n", id="white space"),
        pytest.param("nonsense", id="no JSON"),
        pytest.param(r'"\ud800"', id="escaped lone surrogate"),
        pytest.param(r'"\ud800\u0041"', id="escaped high surrogate before a letter"),
        pytest.param(r'"\udc00x"', id="escaped low surrogate"),
        pytest.param(r'{"\ud800": 1}', id="escaped lone surrogate in a key"),
        pytest.param('"\ud800"', id="lone surrogate"),
        pytest.param('["\ud83d\udc4d"]', id="halves of a pair that were never joined"),
        pytest.param(b'"\xed\xa0\x80"', id="lone surrogate as bytes"),
        pytest.param(b'"\xff"', id="no UTF-8"),
        pytest.param(b'"\xc3"', id="cut UTF-8"),
        pytest.param(b'"\xc0\xaf"', id="overlong UTF-8"),
        pytest.param(b'{"\xff": 1}', id="no UTF-8 in a key"),
        pytest.param("[1]".encode("utf-16"), id="UTF-16"),
        pytest.param("\ufeff[1]", id="byte order mark"),
        pytest.param("[" * 100_000, id="deep and truncated"),
        pytest.param("[" * 100_000 + "]" * 100_000, id="deep lists"),
        pytest.param('{"a":' * 100_000 + "1" + "}" * 100_000, id="deep objects"),
        pytest.param("NaN", id="NaN"),
        pytest.param("[Infinity]", id="infinity"),
        pytest.param("[-Infinity]", id="minus infinity"),
        pytest.param("[1", id="truncated list"),
        pytest.param('{"a": 1', id="truncated object"),
        pytest.param('{"a', id="truncated string"),
        pytest.param('"\\', id="truncated escape"),
        pytest.param("tru", id="truncated word"),
        pytest.param("[1] x", id="trailing data"),
        pytest.param("[1] [2]", id="two values"),
        pytest.param("[1,]", id="trailing comma"),
        pytest.param('{"a": 1,}', id="trailing comma in an object"),
        pytest.param("{'a': 1}", id="single quotes"),
        pytest.param("{1: 2}", id="numeric key"),
        pytest.param('"a\nb"', id="raw newline"),
        pytest.param("\x00", id="NUL"),
        pytest.param("01", id="leading zero"),
        pytest.param("1.", id="no digits after the point"),
        pytest.param("-", id="only a sign"),
        pytest.param("1e400", id="too large for a float"),
        pytest.param("-1e999999999999", id="huge exponent"),
        pytest.param("9" * 5_000, id="integer that Python refuses to print"),
        pytest.param("9" * 1_000_000, id="a megabyte of digits"),
    ],
)
def test_broken_json(data: bytes | str) -> None:
    with pytest.raises(DecodeError) as caught:
        decode(data)
    assert caught.value.code == "bad_json"
    assert caught.value.path == "$"
    assert str(caught.value) == f"$: {caught.value.message} [bad_json]"


@pytest.mark.parametrize(
    ("data", "value"),
    [
        ("null", None),
        (b" [true, false] ", [True, False]),
        (r'"\ud83d\udc4d"', "👍"),
        (r'"\u0000"', "\x00"),
        ('"\u2028"', "\u2028"),
        ("1" + "0" * 30, 10**30),
        ("1.5e3", 1500.0),
        ("-0.0", -0.0),
        ('{"a": {"a": []}}', {"a": {"a": []}}),
        ('{"a": 1, "a": 2}', {"a": 2}),
    ],
)
def test_decode(data: bytes | str, value: Any) -> None:
    assert decode(data) == value


def nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


def endless() -> list[Any]:
    value: list[Any] = []
    value.append(value)
    return value


@pytest.mark.parametrize(
    "value",
    [
        pytest.param("\ud800", id="lone surrogate"),
        pytest.param(["\ud83d\udc4d"], id="halves of a pair"),
        pytest.param({"\udfff": 1}, id="lone surrogate in a key"),
        pytest.param(object(), id="foreign object"),
        pytest.param({"a": [object]}, id="class"),
        pytest.param(len, id="function"),
        pytest.param(1j, id="complex number"),
        pytest.param({(1, 2): 3}, id="key that is no string"),
        pytest.param({None: 3}, id="key that is None"),
        pytest.param(nested(100_000), id="deep nesting"),
        pytest.param(endless(), id="endless nesting"),
        pytest.param(10**5_000, id="integer that nobody reads back"),
    ],
)
def test_unwritable(value: Any) -> None:
    for write in (encode, pretty):
        with pytest.raises(OutputError) as caught:
            write(value)
        assert caught.value.code == "unwritable"


def is_finite(value: Any) -> bool:
    match value:
        case float():
            return isfinite(value)
        case list():
            return all(map(is_finite, cast("list[Any]", value)))
        case dict():
            return all(map(is_finite, cast("dict[str, Any]", value).values()))
        case _:
            return True


finite_values = json_values.filter(is_finite)


@given(finite_values)
def test_values_come_back(value: Any) -> None:
    assert decode(encode(value)) == value
    assert decode(pretty(value)) == value


@given(st.binary() | st.text(st.characters(exclude_categories=())).map(lambda text: f'["{text}"]'))
def test_any_bytes_are_a_value_or_our_error(data: bytes | str) -> None:
    try:
        value = decode(data)
    except DecodeError:
        return
    assert decode(encode(value)) == value


@given(finite_values.map(encode), st.integers(0, 200), st.binary(max_size=3))
def test_damaged_json_is_a_value_or_our_error(data: bytes, at: int, damage: bytes) -> None:
    for damaged in (data[:at], data[:at] + damage + data[at:], data[:at] + damage + data[at + len(damage) :]):
        with suppress(DecodeError):
            decode(damaged)


def test_pretty() -> None:
    assert pretty({"a": [1, "é"]}) == '{\n  "a": [\n    1,\n    "é"\n  ]\n}'


@pytest.mark.parametrize("depth", range(100, 1_100, 100))
def test_what_is_read_can_be_shown(depth: int) -> None:
    """However deep: decoding gives up before writing does."""
    try:
        value = decode("[" * depth + "]" * depth)
    except DecodeError:
        return
    assert decode(pretty(value)) == value


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")])
def test_what_json_has_no_number_for_is_null(number: float) -> None:
    assert encode([number]) == b"[null]"
