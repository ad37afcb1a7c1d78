"""Citations that an agent hands over itself."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from citewire.agui.citations.agent_citations import (
    find_custom_citations,
    find_entry_citations,
    find_metadata_citations,
)

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
    (cited,) = find_entry_citations([entry])
    assert (cited.number, cited.source.title, cited.source.url, cited.ref.quote) == expected


def test_entries_count_by_their_places() -> None:
    """What says nothing takes a place all the same, as it does in the list."""
    found = find_entry_citations([{"snippet": "a"}, 7, {}, {"snippet": "b", "id": "x"}], listed=True)
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
    message, cited = find_custom_citations(name, value)
    assert (message, len(cited)) == expected


def test_metadata() -> None:
    assert [
        each.source.url
        for each in find_metadata_citations({"citations": [{"url": URL}], "sources": 3, "x": [URL]})
    ] == [URL]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.sampled_from(["message", "x", URL]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["id", "index", "url", "title", "content", "citations", "messageId"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=15,
)


@given(JSON)
def test_nothing_raises(value: Any) -> None:
    find_custom_citations("sources", value)
    find_entry_citations([value], listed=True)
