"""Real provider traffic: nothing lost, given back as it came, and the stream ends like the whole."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import citewire
from citewire import codec
from citewire.model import Answer, Citation
from support.cases import payload_paths
from support.oracle import unjustified, unnamed

STREAMS = (
    "anthropic-stream",
    "azure-openai-responses-stream",
    "gemini-interactions-stream",
    "gemini-stream",
    "openai-responses-stream",
    "openrouter-stream",
    "perplexity-stream",
    "xai-responses-stream",
)
DIALECTS = {
    "ably": "ably",
    "anthropic": "anthropic",
    "azure-openai-responses": "openai.responses",
    "azure-oyd": "azure.oyd",
    "bedrock-converse": "bedrock.converse",
    "bedrock-rag": "bedrock.rag",
    "chatgpt-web": "openai.chat",
    "cohere": "cohere",
    "deepcitation": "deepcitation",
    "mistral": "mistral",
    "gemini-interactions": "gemini.interactions",
    "gemini-0": "gemini",
    "gemini-1": "gemini",
    "gemini-stream": "gemini",
    "ngaf": "ngaf",
    "openai-responses": "openai.responses",
    "openrouter": "openrouter",
    "perplexity": "perplexity",
    "salesforce-agent-api": "salesforce.agent-api",
    "salesforce-citationcontent": "salesforce",
    "teams": "teams",
    "xai": "xai",
}


def dialect_of(path: Path) -> str:
    return next(dialect for prefix, dialect in DIALECTS.items() if path.name.startswith(prefix))


def paths(*, streams: bool) -> list[Path]:
    return [path for path in payload_paths(*DIALECTS) if path.name.startswith(STREAMS) == streams]


WHOLE = [pytest.param(path, id=path.stem) for path in paths(streams=False)]
STREAMED = [pytest.param(path, id=path.stem) for path in paths(streams=True)]


def load(path: Path) -> Any:
    return codec.decode(path.read_bytes())


def test_no_payload_is_left_out() -> None:
    assert len(payload_paths()) == len(WHOLE) + len(STREAMED)


@pytest.mark.parametrize("path", WHOLE)
def test_a_capture_reads_without_loss_and_is_given_back(path: Path) -> None:
    payload, dialect = load(path), dialect_of(path)
    answer = citewire.read(payload, dialect)

    assert answer.problems == ()
    assert answer.citations
    assert citewire.detect(payload) == dialect
    assert citewire.write(answer, dialect).payload == payload


@pytest.mark.parametrize("path", [param for param in WHOLE if "anthropic" in str(param.id)])
def test_every_block_citation_of_a_capture_is_there(path: Path) -> None:
    payload = load(path)
    blocks = [block for block in payload["content"] if block.get("citations")]
    answer = citewire.read(payload)

    assert [answer.covered(claim) for c in answer.citations if (claim := c.claim)] == [
        b["text"] for b in blocks
    ]
    quotes = [[entry["cited_text"] for entry in block["citations"]] for block in blocks]
    assert [[ref.quote for ref in citation.refs] for citation in answer.citations] == quotes


@pytest.mark.parametrize("path", [param for param in WHOLE if "openai" in str(param.id)])
def test_every_annotation_of_a_capture_is_there(path: Path) -> None:
    """And every link's span covers exactly the link."""
    payload = load(path)
    parts = [
        part for item in payload["output"] for part in item.get("content") or () if part.get("annotations")
    ]
    answer = citewire.read(payload, "openai.responses")

    assert len(answer.citations) == sum(len(part["annotations"]) for part in parts)
    sources = {source.id: source for source in answer.sources}
    for citation in answer.citations:
        url = sources[citation.refs[0].source_id].url
        if url is not None and citation.marker is not None:
            marker = answer.covered(citation.marker)
            assert marker.strip("()").startswith("[")
            assert marker.endswith(")")
            assert url in marker


@pytest.mark.parametrize("path", WHOLE)
def test_a_bare_capture_loses_what_is_named(path: Path) -> None:
    dialect = dialect_of(path)
    answer = citewire.read(load(path), dialect)
    written = citewire.write(answer.bare(), dialect)
    back = citewire.read(written.payload, dialect)

    assert unnamed(answer, back, written.losses) is None
    assert unjustified(answer, back, written.losses) == []


@pytest.mark.parametrize("path", WHOLE)
def test_a_capture_goes_into_every_dialect(path: Path) -> None:
    answer = citewire.read(load(path), dialect_of(path)).bare()
    for target in citewire.dialects():
        written = citewire.write(answer, target)
        assert unnamed(answer, citewire.read(written.payload, target), written.losses) is None, target


@pytest.mark.parametrize("path", STREAMED)
def test_a_stream_ends_like_the_whole(path: Path) -> None:
    """Citations come one by one, the last word on each is what the answer has, and what OpenAI's last
    event repeats is what had been read before it."""
    dialect = dialect_of(path)
    stream = citewire.open_stream(dialect)
    known: dict[str, Citation] = {}
    before: Answer | None = None
    for event in load(path):
        if event.get("type") == "response.completed":
            before = stream.answer()
        known |= {citation.id: citation for citation in stream.feed(event)}
    answer = stream.answer()

    assert answer.problems == ()
    assert answer.citations
    assert _bare(known.values()) == answer.bare().citations
    assert before is None or before.bare() == answer.bare()
    assert citewire.read(load(path)).bare() == answer.bare()


def _bare(citations: Any) -> tuple[Citation, ...]:
    return Answer(citations=tuple(citations)).bare().citations


@pytest.mark.parametrize("path", [param for param in STREAMED if "anthropic" in str(param.id)])
def test_a_citation_is_known_before_its_text(path: Path) -> None:
    """The provider sends it first; it must not end up on the sentence before."""
    stream = citewire.open_stream("anthropic")
    texts: dict[int, str] = {}
    early = 0
    for event in load(path):
        given = stream.feed(event)
        if event["type"] == "content_block_delta" and event["delta"]["type"] == "text_delta":
            texts[event["index"]] = texts.get(event["index"], "") + event["delta"]["text"]
        if event["type"] == "content_block_delta" and given:
            early += all(citation.claim is None for citation in given)
        if event["type"] == "content_block_stop" and given:
            answer = stream.answer()
            assert [answer.covered(c.claim) for c in given if c.claim] == [texts[event["index"]]]
    assert early
