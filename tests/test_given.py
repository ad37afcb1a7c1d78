"""Citations that an agent hands over itself."""

from __future__ import annotations

from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cases import payload_paths
from citewire import codec
from citewire.agui.given import Provider, in_custom, in_entries, in_metadata
from test_weaving import ANTHROPIC, OPENAI

URL = "https://e.org"


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ({"id": "x", "index": 4, "title": "T", "url": URL, "snippet": "words"}, (4, "T", URL, "words")),
        ({"refId": "x", "name": "T", "href": URL, "content": "words"}, (1, "T", URL, "words")),
        ({"source": URL, "excerpt": "words"}, (1, None, URL, "words")),
        ({"title": "T", "index": -1}, (1, "T", None, None)),
        ({"title": "T", "index": True}, (1, "T", None, None)),
        (URL, (1, None, URL, None)),
    ],
)
def test_spellings(entry: Any, expected: tuple[Any, ...]) -> None:
    (cited,) = in_entries([entry])
    assert (cited.number, cited.source.title, cited.source.url, cited.ref.quote) == expected


def test_entries_count_by_their_places() -> None:
    """What says nothing takes a place all the same, as it does in the list."""
    found = in_entries([{"snippet": "a"}, 7, {}, {"snippet": "b", "id": "x"}], listed=True)
    assert [(each.number, each.entry_id) for each in found] == [(1, "#0"), (4, "x")]


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("agent.sources", [{"url": URL}], (None, 1)),
        ("Citations", [URL, URL], (None, 2)),
        ("progress", [{"url": URL}], (None, 0)),
        ("any", {"messageId": "m", "sources": [{"url": URL}]}, ("m", 1)),
        ("any", {"message_id": "m", "references": [{"url": URL}], "citations": [URL]}, ("m", 2)),
        ("any", {"messageId": 3, "sources": {"a": 1}}, (None, 0)),
        ("any", None, (None, 0)),
        ("citewire.citation_seen", {"messageId": "m", "key": "k", "ms": 1}, ("m", 0)),
    ],
)
def test_custom_events(name: str, value: Any, expected: tuple[str | None, int]) -> None:
    message, cited = in_custom(name, value)
    assert (message, len(cited)) == expected


def test_metadata() -> None:
    assert [
        each.source.url for each in in_metadata({"citations": [{"url": URL}], "sources": 3, "x": [URL]})
    ] == [URL]


FINISHED: list[Any] = [
    {"type": "response.completed", "response": {"id": "r", "object": "response", "output": []}}
]


def quotes(events: list[Any]) -> set[tuple[str | None, str | None]]:
    provider = Provider()
    return {(each.source.title, each.ref.quote) for event in events for each in provider.take(event)}


def test_streams_of_providers() -> None:
    assert quotes(ANTHROPIC) == {("Guide", "Paris is the capital of France.")}
    assert quotes(OPENAI) == {("Guide", None)}


def test_other_events_between() -> None:
    noise: list[Any] = [
        {"event": "on_chain_start"},
        {"type": "x"},
        None,
        3,
        [],
        {"type": "content_block_delta"},
    ]
    assert quotes([event for each in ANTHROPIC for event in (*noise, each)]) == quotes(ANTHROPIC)


def test_one_answer_after_another() -> None:
    """An agent that calls tools asks its model several times."""
    provider = Provider()
    found = [each.source.url for event in (*OPENAI, *FINISHED, *OPENAI) for each in provider.take(event)]
    assert found == [URL, URL]


def test_a_whole_answer() -> None:
    part = {"type": "text", "text": "Paris.", "citations": [ANTHROPIC[2]["delta"]["citation"]]}
    message = {"id": "x", "type": "message", "role": "assistant", "model": "c", "content": [part]}
    assert quotes([message]) == {("Guide", "Paris is the capital of France.")}


@pytest.mark.parametrize("path", payload_paths(), ids=lambda path: path.stem)
def test_no_captured_payload_raises(path: Any) -> None:
    payload: Any = codec.decode(path.read_bytes())
    provider = Provider()
    events = cast("list[Any]", payload if isinstance(payload, list) else [payload])
    for event in events:
        provider.take(event)


WORDS = st.sampled_from(
    ["message", "response", "content_block_delta", "message_start", "chat.completion", "x"]
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | WORDS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "type",
                    "object",
                    "delta",
                    "index",
                    "content",
                    "choices",
                    "message",
                    "output",
                    "citations",
                    "item",
                ]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=15,
)


@given(st.lists(JSON | st.sampled_from(ANTHROPIC) | st.sampled_from(OPENAI), max_size=8))
def test_nothing_raises(events: list[Any]) -> None:
    quotes(events)
    for event in events:
        in_custom("sources", event)
        in_entries([event], listed=True)
