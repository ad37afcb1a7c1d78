"""Payloads of the wrong family, texts that look like markers, and sizes that must not multiply."""

from __future__ import annotations

from typing import Any

import pytest

import citewire
from citewire.dialects import dialects
from citewire.errors import CitewireError, ShapeError, WrongDialect
from citewire.model import Answer, Citation, Part, Source, SourceRef, Span
from support.chunk_streams import streamed
from support.samples import PAYLOADS
from support.samples_google import STREAMS
from support.samples_openai import CHAT, PERPLEXITY

# What others share with it, they read as it does.
ALIKE = {("openai.chat", "openrouter"), ("openrouter", "openai.chat")}
NAMED = [(name, dialect, payload) for name, (dialect, payload) in PAYLOADS.items()]
LISTED = [(f"{name} stream", name, events) for name, (_, events) in STREAMS.items()]
FAMILIES = [
    pytest.param(whose, payload, id=name)
    for name, whose, payload in [*NAMED, *LISTED]
    if not isinstance(payload, str)
]


@pytest.mark.parametrize(("whose", "payload"), FAMILIES)
def test_no_other_dialect_reads_a_payload(whose: str, payload: Any) -> None:
    """Neither as a whole nor event by event, and who could is named."""
    for dialect in dialects():
        if dialect == whose or (whose, dialect) in ALIKE:
            continue
        with pytest.raises(CitewireError) as error:
            citewire.read_all(payload, dialect)
        if isinstance(error.value, WrongDialect):
            assert whose in error.value.candidates


@pytest.mark.parametrize("dialect", ["azure.oyd", "mistral", "perplexity"])
def test_a_plain_completion_is_read_where_nothing_is_lost(dialect: str) -> None:
    """They share the envelope with OpenAI, but not its annotations."""
    message = {"role": "assistant", "content": "Refunds take 30 days."}
    plain = {"object": "chat.completion", "choices": [{"index": 0, "message": message}]}
    assert citewire.read(plain, dialect).text == "Refunds take 30 days."
    for payload in (CHAT, streamed(CHAT, [5] * 20)):
        with pytest.raises(WrongDialect, match=r"fits openai\.chat"):
            citewire.read(payload, dialect)


@pytest.mark.parametrize("dialect", [name for name in dialects() if name != "csl"])
def test_brackets_of_the_text_cite_nothing(dialect: str) -> None:
    """Whatever a citation is called, nothing that stood in the text before becomes one."""
    text = "As [1] and [^c1] and [doc1] say, refunds take 30 days."
    source = Source("s1", "web", "https://a.example", "A", file_id="f1")
    claim = Span(0, text.index("refunds"), len(text) - 1)
    citation = Citation("c1", (SourceRef("s1"),), 1, claim, span_origin="exact")
    written = citewire.write(Answer((Part(text),), (citation,), (source,)), dialect)
    (back,) = citewire.read(written.payload, dialect).citations
    assert back.marker is None or back.marker.start >= claim.end


MANY = 10_000


def test_messages_of_one_id_share_one_list() -> None:
    """A list that were read with each of them would have no end."""
    message = {"id": "m", "role": "assistant", "content": "Refunds.[^a]"}
    entries = [{"id": f"a{number}", "url": "https://a.example"} for number in range(MANY)]
    thread = {"messages": [message] * MANY, "state": {"citations": {"m": entries}}}
    answers = citewire.read_all(thread, "ngaf")
    assert [len(answer.citations) for answer in answers] == [MANY]


def test_choices_that_each_cite_too_many_pages_are_refused() -> None:
    payload = {**PERPLEXITY, "choices": PERPLEXITY["choices"] * MANY}
    payload["citations"] = [f"https://a.example/{number}" for number in range(MANY)]
    with pytest.raises(ShapeError, match="too many choices"):
        citewire.read_all(payload, "perplexity")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["cohere", "chatgpt"])
def test_many_texts_with_many_citations(name: str) -> None:
    """Which text a citation is of is not looked for in all of them."""
    if name == "cohere":
        cited = {"start": 0, "end": 7, "text": "Refunds", "sources": [{"type": "document", "id": "d"}]}
        contents = [{"type": "text", "text": "Nothing here."}] * MANY
        message: Any = {"role": "assistant", "content": contents, "citations": [cited] * MANY}
        payload: Any = {"finish_reason": "COMPLETE", "message": message}
    else:
        reference = {"type": "webpage", "url": "https://a.example", "matched_text": "Refunds", "start_idx": 0}
        content = {"content_type": "text", "parts": ["Nothing here."] * MANY}
        metadata = {"content_references": [reference] * MANY}
        payload = {"author": {"role": "assistant"}, "content": content, "metadata": metadata}
    answer = citewire.read(payload)
    assert (len(answer.parts), len(answer.problems)) == (MANY, MANY)
    assert citewire.write(answer, citewire.detect(payload)).payload == payload


@pytest.mark.parametrize(
    ("dialect", "event"),
    [
        ("bedrock.rag", {"citation": {"retrievedReferences": "zz"}}),
        ("vercel", {"type": "source-url", "sourceId": "u"}),
    ],
)
def test_a_stream_of_what_cannot_be_read_costs_no_more_than_its_length(dialect: str, event: Any) -> None:
    """Every event may bring something, but the answer is not read over with each."""
    stream = citewire.open_stream(dialect)
    assert [stream.feed(event) for _ in range(2 * MANY)] == [()] * (2 * MANY)
    assert len(stream.answer().problems) == 2 * MANY
