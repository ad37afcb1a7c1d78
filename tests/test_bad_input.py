"""Whatever comes in, only our own errors come out, and one bad citation costs only itself."""

from __future__ import annotations

import copy
from collections import Counter
from contextlib import suppress
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import citewire
from citewire import codec
from citewire.dialects import dialects
from citewire.errors import OutputError
from samples import PAYLOADS
from strategies import any_text, json_values

NAMES = list(dialects())
MANY = 100_000
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


# By all dialects at once: a payload takes longer to think of than to read.
@settings(max_examples=300)
@given(payload=json_values)
def test_any_json_is_read_or_refused(payload: Any) -> None:
    for dialect in [*NAMES, None]:
        use(payload, dialect)


@settings(max_examples=300)
@given(payload=st.binary(max_size=80) | any_text)
def test_any_bytes_are_read_or_refused(payload: Any) -> None:
    for dialect in [*NAMES, None]:
        use(payload, dialect)


@pytest.mark.parametrize("name", PAYLOADS)
@given(data=st.data())
def test_a_damaged_payload_is_read_or_refused(name: str, data: st.DataObject) -> None:
    dialect, payload = PAYLOADS[name]
    for _ in range(data.draw(st.integers(1, 3))):
        path = data.draw(st.sampled_from(nodes(payload)))
        payload = put(payload, path, data.draw(st.sampled_from(JUNK) | json_values))
    use(payload, dialect)


@pytest.mark.parametrize("name", [name for name in PAYLOADS if name != "markdown"])
def test_a_damaged_place_costs_one_citation(name: str) -> None:
    """Every number in the payload is put out of range, one at a time; a record that several markers point
    to is several citations."""
    dialect, payload = PAYLOADS[name]
    whole = citewire.read(payload, dialect)
    one = max(Counter(citation.refs for citation in whole.bare().citations).values())
    for path in nodes(payload):
        if type(value := _get(payload, path)) is int and value >= 0:
            damaged = citewire.read(put(payload, path, 10**9), dialect)
            assert len(damaged.citations) >= len(whole.citations) - one
            assert damaged.text == whole.text
            damaged = citewire.read(put(payload, path, -5), dialect)
            assert len(damaged.citations) >= len(whole.citations) - one


def _get(value: Any, path: tuple[Any, ...]) -> Any:
    for step in path:
        value = value[step]
    return value


@pytest.mark.parametrize("dialect", NAMES)
def test_deep_nesting_is_refused(dialect: str) -> None:
    deep: Any = []
    for _ in range(100_000):
        deep = [deep]
    use(
        {"staticContent": deep, "content": deep, "output": deep, "citations": deep, "messages": deep}, dialect
    )
    use(deep, dialect)
    use(b"[" * 100_000, dialect)


@pytest.fixture(scope="module")
def many() -> citewire.Answer:
    """A hundred thousand citations, each of its own source."""
    sentence = "Refunds are available within 30 days. "
    return citewire.Answer(
        parts=(citewire.Part(sentence * MANY),),
        citations=tuple(
            citewire.Citation(
                f"c{number + 1}",
                (citewire.SourceRef(f"s{number + 1}", quote="within 30 days"),),
                claim=citewire.Span(0, number * len(sentence), number * len(sentence) + len(sentence) - 1),
                span_origin="exact",
            )
            for number in range(MANY)
        ),
        sources=tuple(
            citewire.Source(f"s{number + 1}", "web", f"https://example.com/{number}", f"Page {number}")
            for number in range(MANY)
        ),
    )


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("dialect", NAMES)
def test_a_hundred_thousand_citations_are_read_and_written(many: citewire.Answer, dialect: str) -> None:
    """Several megabytes of text; the time limit of a test is what guards against a hang."""
    payload = citewire.write(many, dialect).payload
    answer = citewire.read(payload, dialect)

    assert len(answer.citations) == MANY
    assert citewire.write(answer, dialect).payload == payload


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("dialect", NAMES)
def test_ten_megabytes_of_text_are_read_and_written(dialect: str) -> None:
    answer = citewire.Answer((citewire.Part("naïve words 😀 [ ` \\ " * 600_000),))
    payload = citewire.write(answer, dialect).payload
    assert citewire.write(citewire.read(payload, dialect), dialect).payload == payload


def nested(count: int) -> citewire.Answer:
    """Claims within claims, all of the same source."""
    text = "Words. " * count
    citations = tuple(
        citewire.Citation(
            f"c{number + 1}",
            (citewire.SourceRef("s1"),),
            claim=citewire.Span(0, number, len(text) - number),
            span_origin="exact",
        )
        for number in range(count)
    )
    return citewire.Answer(
        (citewire.Part(text),), citations, (citewire.Source("s1", "web", "https://a.example"),)
    )


@pytest.mark.parametrize("dialect", NAMES)
def test_claims_within_claims_do_not_multiply(dialect: str) -> None:
    """Where a dialect repeats what overlaps, the output stays in proportion, and what that costs is named."""
    small, large = (citewire.write(nested(count), dialect) for count in (400, 4000))
    assert len(codec.encode(large.payload)) <= 12 * max(len(codec.encode(small.payload)), 1_000_000)
    assert len(citewire.read(large.payload, dialect).citations) >= 4000
