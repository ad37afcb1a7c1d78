"""What an agent was given, however its tools spell it."""

from __future__ import annotations

import json
from base64 import b64encode
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from citewire.agui.citations.retrieval import RetrievedText, find_input_texts, find_result_texts

URL = "https://e.org/a"
PDF = b"%PDF-1.7 not really"
MCP = [{"type": "text", "text": json.dumps([{"url": URL, "title": "T", "content": "words"}])}]


@pytest.mark.parametrize(
    ("content", "found"),
    [
        ("plain words", [RetrievedText("plain words", title="tool")]),
        ("  \n", []),
        ("", []),
        ("[not JSON", [RetrievedText("[not JSON", title="tool")]),
        ('"a JSON string"', [RetrievedText("a JSON string", title="tool")]),
        ([], []),
        ({}, []),
        (["one", "two"], [RetrievedText("one", title="tool"), RetrievedText("two", title="tool")]),
        ({"text": "words"}, [RetrievedText("text: words", title="tool")]),
        # Escapes of JSON are not what a reader quotes.
        (
            {"result": 'He said "yes".\nThen left.', "n": 3},
            [RetrievedText('result: He said "yes".\nThen left.\nn: 3', title="tool")],
        ),
        # Tavily, Brave, Serper
        (
            {"query": "q", "results": [{"title": "T", "url": URL, "content": "words"}]},
            [RetrievedText("words", None, "T", URL)],
        ),
        (
            {"web": {"results": [{"title": "T", "url": URL, "description": "words"}]}},
            [RetrievedText("words", None, "T", URL)],
        ),
        (
            {"organic": [{"title": "T", "link": URL, "snippet": "words"}]},
            [RetrievedText("words", None, "T", URL)],
        ),
        # Exa gives the passages alone.
        (
            {"results": [{"id": URL, "url": URL, "title": "T", "highlights": ["a", "b"]}]},
            [RetrievedText("a\nb", URL, "T", URL)],
        ),
        # LangChain, LlamaIndex
        (
            [{"page_content": "words", "metadata": {"source": "a.pdf", "page": 3}}],
            [RetrievedText("words", None, None, "a.pdf", 3)],
        ),
        (
            [
                {
                    "node": {
                        "id_": "n1",
                        "text": "words",
                        "metadata": {"file_name": "f.pdf", "page_label": 2},
                    },
                    "score": 0.5,
                }
            ],
            [RetrievedText("words", "n1", "f.pdf", None, 2)],
        ),
        # Pinecone, Qdrant
        (
            {"matches": [{"id": "v", "score": 0.9, "metadata": {"text": "words", "title": "T"}}]},
            [RetrievedText("words", "v", "T")],
        ),
        # haiku.rag, OpenAI file search
        (
            [{"chunk_id": "c", "document_uri": URL, "document_title": "T", "content": "words"}],
            [RetrievedText("words", "c", "T", URL)],
        ),
        (
            {"data": [{"file_id": "f", "filename": "a.pdf", "content": [{"type": "text", "text": "words"}]}]},
            [RetrievedText("words", "f", "a.pdf")],
        ),
        # Anthropic, MCP
        (
            [
                {
                    "type": "search_result",
                    "source": URL,
                    "title": "T",
                    "content": [{"type": "text", "text": "words"}],
                }
            ],
            [RetrievedText("words", None, "T", URL)],
        ),
        (
            {"content": [{"type": "resource", "resource": {"uri": "file:///a", "text": "words"}}]},
            [RetrievedText("words", url="file:///a")],
        ),
        ([{"type": "text", "text": "words"}], [RetrievedText("words", title="tool")]),
        (MCP, [RetrievedText("words", None, "T", URL)]),
        ({"content": MCP, "isError": False}, [RetrievedText("words", None, "T", URL)]),
        ([{"type": "text", "text": '{"answer": 42}'}], [RetrievedText("answer: 42", title="tool")]),
        # Parts of AG-UI 1.0
        (
            [
                {
                    "type": "document",
                    "id": "d",
                    "source": {"type": "data", "value": b64encode(PDF).decode()},
                    "metadata": {"filename": "a.pdf"},
                }
            ],
            [RetrievedText("", "d", "a.pdf", data=PDF)],
        ),
        ([{"type": "document", "source": {"type": "url", "value": URL}}], [RetrievedText("", url=URL)]),
    ],
)
@pytest.mark.parametrize("as_text", [True, False])
def test_spellings(content: Any, found: list[RetrievedText], as_text: bool) -> None:
    """As a list or object, and as the JSON of it, which is what most agents send."""
    if as_text and not isinstance(content, str):
        content = json.dumps(content)
    elif isinstance(content, dict):
        content = [content]
        if found and found[0].title == "tool":
            return  # as an item of a list it is a text of its own
    assert find_result_texts(content, "tool") == found


def test_the_input_of_a_run() -> None:
    part = {"type": "document", "id": "d", "source": {"type": "data", "value": b64encode(PDF).decode()}}
    messages = [
        {"id": "u", "role": "user", "content": [{"type": "text", "text": "read this"}, part, 3]},
        {"id": "v", "role": "user", "content": "no source"},
        {
            "id": "w",
            "role": "user",
            "content": [{**part, "source": {"type": "data", "value": "not base64!"}}],
        },
        {"id": "a", "role": "assistant", "content": "neither"},
        {"id": "t", "role": "tool", "toolCallId": "c", "content": '[{"title": "T", "text": "words"}]'},
        7,
    ]
    context = [{"description": "policy", "value": "All sales are final."}, {"value": 3}, "x", {"value": " "}]
    assert list(find_input_texts(messages, context)) == [
        RetrievedText("All sales are final.", title="policy", origin="posted"),
        RetrievedText("", "d", data=PDF, origin="posted"),
        RetrievedText("words", title="T", origin="posted"),
    ]


def test_a_walk_ends() -> None:
    """However deep and large a result is."""
    deep: Any = "x"
    for _ in range(300):
        deep = {"a": [deep]}
    assert find_result_texts(deep) == []
    assert find_result_texts(json.dumps(deep), "tool") == []
    large = [{"title": str(n), "text": "words"} for n in range(50_000)]
    assert 0 < len(find_result_texts(large)) < 50_000


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["text", "content", "title", "url", "metadata", "source", "type", "id", "x"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=20,
)


@given(JSON)
def test_nothing_raises(value: Any) -> None:
    for content in (value, json.dumps(value)):
        assert all(
            each.text.strip() or each.data is not None or each.url
            for each in find_result_texts(content, "tool")
        )
    list(
        find_input_texts(
            [value, {"role": "user", "content": value}, {"role": "tool", "content": value}], [value]
        )
    )
