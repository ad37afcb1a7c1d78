"""What may be done to what: Ably's rules for patterns, and what two capabilities allow together."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from citewire.errors import ShapeError
from citewire.server.access.capability import FULL, Capability

_qualifiers = st.sampled_from(["", "", "[*]", "[meta]", "[queue]"])
_segments = st.lists(st.sampled_from(["a", "b", "*", ""]), min_size=1, max_size=4)
_names = st.tuples(_qualifiers, _segments.map(":".join)).map("".join)
_operations = st.sampled_from(["read", "run", "*"])
_capabilities = st.dictionaries(
    _names.filter(bool), st.lists(_operations, min_size=1, max_size=3), max_size=4
).map(Capability.of)


@pytest.mark.parametrize(
    ("pattern", "resource", "fits"),
    [
        ("verify", "verify", True),
        ("verify", "verify:x", False),
        ("thread:1", "thread:1", True),
        ("thread:1", "thread:12", False),
        ("thread:1", "Thread:1", False),
        ("*", "thread", True),
        ("*", "thread:1:2", True),
        ("*", "[meta]log", False),
        ("thread:*", "thread:1", True),
        ("thread:*", "thread:1:2:3", True),
        ("thread:*", "thread", False),
        ("thread:*", "threads:1", False),
        ("thread:*", "thread:", True),
        ("thread*", "thread:1", False),
        ("thread*", "thread1", False),
        ("thread*", "thread*", True),
        ("thread:a*", "thread:ab", False),
        ("a:*:c", "a:b:c", True),
        ("a:*:c", "a:b:b:c", False),
        ("a:*:c", "a:c", False),
        ("a:*:c:*", "a:b:c:d:e", True),
        ("*:1", "thread:1", True),
        ("*:1", "a:thread:1", False),
        ("[meta]*", "[meta]log:x", True),
        ("[meta]*", "log:x", False),
        ("[meta]*", "[queue]log", False),
        ("[*]*", "[queue]log", True),
        ("[*]*", "log", True),
        ("[*]a:*", "[meta]a:b", True),
        ("[*]a:*", "[meta]b:b", False),
        ("[meta", "[meta", True),
    ],
)
def test_patterns(pattern: str, resource: str, fits: bool) -> None:
    assert Capability.of({pattern: ["read"]}).allows("read", resource) is fits


@pytest.mark.parametrize(
    ("operations", "operation", "may"),
    [
        (["read"], "read", True),
        (["read"], "rea", False),
        (["read", "run"], "run", True),
        (["*"], "annotation-publish", True),
        (["read"], "*", False),
    ],
)
def test_operations(operations: list[str], operation: str, may: bool) -> None:
    assert Capability.of({"thread:*": operations}).allows(operation, "thread:1") is may


@given(_operations, _names)
def test_everything_and_nothing(operation: str, name: str) -> None:
    assert FULL.allows(operation, name)
    assert not Capability().allows(operation, name)


@given(_capabilities, _capabilities, _operations, _names)
def test_together_they_allow_what_each_allows(
    one: Capability, other: Capability, doing: str, name: str
) -> None:
    assert (one & other).allows(doing, name) is (one.allows(doing, name) and other.allows(doing, name))


@given(_capabilities, _capabilities)
def test_the_order_is_no_matter(one: Capability, other: Capability) -> None:
    assert one & other == other & one
    assert one & FULL == one
    assert one & Capability() == Capability()


@given(_capabilities)
def test_written_and_read_again(one: Capability) -> None:
    assert Capability.of(one.plain()) == one


@pytest.mark.parametrize(
    ("one", "other", "both"),
    [
        ({"*": ["*"]}, {"thread:*": ["run", "read"]}, {"thread:*": ["read", "run"]}),
        ({"thread:*": ["read"]}, {"*:1": ["read", "run"]}, {"thread:1": ["read"]}),
        ({"a:*:c": ["x"]}, {"a:b:*": ["x"]}, {"a:b:c": ["x"]}),
        ({"a": ["read"]}, {"a": ["run"]}, {}),
        ({"a": ["read"]}, {"b": ["read"]}, {}),
        ({"a": ["read"]}, {"a:b": ["read"]}, {}),
        ({"a": ["read"]}, {"a:*": ["read"]}, {}),
        ({"[*]*": ["*"]}, {"[meta]log": ["subscribe"]}, {"[meta]log": ["subscribe"]}),
        ({"*": ["read"], "a": ["run"]}, {"a": ["*"]}, {"a": ["read", "run"]}),
    ],
)
def test_both(one: dict[str, Any], other: dict[str, Any], both: dict[str, Any]) -> None:
    assert (Capability.of(one) & Capability.of(other)).plain() == both


@pytest.mark.parametrize(
    "value",
    [
        None, "*", [], 1, {"": ["read"]}, {"a": []}, {"a": "read"}, {"a": [1]}, {"a": [""]}, {"a": ["Read"]},
        {"a": ["read\n"]}, {"a": None}, {1: ["read"]}, {"x" * 2049: ["read"]},
        {str(n): ["read"] for n in range(201)},
    ],
)  # fmt: skip
def test_no_capability(value: Any) -> None:
    with pytest.raises(ShapeError):
        Capability.of(value)
