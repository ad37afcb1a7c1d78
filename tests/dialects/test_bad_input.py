"""Whatever comes in, only our own errors come out, and one bad citation costs only itself."""

from __future__ import annotations

from collections import Counter
from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import citewire
from citewire import codec
from support.bad_payloads import JUNK, NAMES, nodes, put, use
from support.samples import PAYLOADS
from support.soak import scaled
from support.strategies import any_text, json_values

MANY = 100_000
# One dialect for each way to write citations is always tried at full size; the others are in `make soak`.
MECHANISMS = frozenset(
    {"anthropic", "gemini", "mistral", "ngaf", "openai.responses", "perplexity", "salesforce", "teams"}
)


def size_for(dialect: str) -> int:
    """How many citations an answer in the dialect gets."""
    return MANY if dialect in MECHANISMS else scaled(2_000, MANY)


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


@pytest.mark.slow
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


@cache
def many(count: int) -> citewire.Answer:
    """An answer with `count` citations, each of its own source."""
    sentence = "Refunds are available within 30 days. "
    return citewire.Answer(
        parts=(citewire.Part(sentence * count),),
        citations=tuple(
            citewire.Citation(
                f"c{number + 1}",
                (citewire.SourceRef(f"s{number + 1}", quote="within 30 days"),),
                claim=citewire.Span(0, number * len(sentence), number * len(sentence) + len(sentence) - 1),
                span_origin="exact",
            )
            for number in range(count)
        ),
        sources=tuple(
            citewire.Source(f"s{number + 1}", "web", f"https://example.com/{number}", f"Page {number}")
            for number in range(count)
        ),
    )


@pytest.mark.slow
@pytest.mark.soak
@pytest.mark.timeout(300)
@pytest.mark.parametrize("dialect", NAMES)
def test_very_many_citations_are_read_and_written(dialect: str) -> None:
    """Several megabytes of text; the time limit of a test is what guards against a hang."""
    payload = citewire.write(many(size_for(dialect)), dialect).payload
    answer = citewire.read(payload, dialect)

    assert len(answer.citations) == size_for(dialect)
    assert citewire.write(answer, dialect).payload == payload


@pytest.mark.slow
@pytest.mark.soak
@pytest.mark.timeout(300)
@pytest.mark.parametrize("dialect", NAMES)
def test_megabytes_of_text_are_read_and_written(dialect: str) -> None:
    answer = citewire.Answer((citewire.Part("naïve words 😀 [ ` \\ " * (6 * size_for(dialect))),))
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


@pytest.mark.slow
@pytest.mark.parametrize("dialect", NAMES)
def test_claims_within_claims_do_not_multiply(dialect: str) -> None:
    """Where a dialect repeats what overlaps, the output stays in proportion, and what that costs is named."""
    small, large = (citewire.write(nested(count), dialect) for count in (400, 4000))
    assert len(codec.encode(large.payload)) <= 12 * max(len(codec.encode(small.payload)), 1_000_000)
    assert len(citewire.read(large.payload, dialect).citations) >= 4000
