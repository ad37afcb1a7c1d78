# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false
"""What a provider sends, in the events of an agent: it is read as `read` and `open_stream` read it."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

import citewire
from citewire import codec
from citewire.agui.citations.provider_citations import ProviderCitations
from citewire.dialects import dialects, read_all, stream_dialects
from citewire.errors import AmbiguousDialect, UndetectedDialect
from citewire.model import Answer, Source, SourceRef
from support import samples, samples_google, samples_others
from support.annotated_stream import FINISHED, STARTED, end, say, start
from support.cases import payload_paths
from support.chunk_streams import CHATS, RUN, streamed
from support.middleware_runs import through
from support.provider_events import ANTHROPIC, OPENAI


def fact(ref: SourceRef, source: Source) -> str:
    """A source without the number that it has in its answer, and what is said of it."""
    return repr((replace(source, id=""), replace(ref, source_id="")))


def facts(answers: Iterable[Answer]) -> set[str]:
    return {
        fact(ref, source)
        for answer in answers
        for citation in answer.citations
        for ref in citation.refs
        for source in answer.sources
        if source.id == ref.source_id
    }


def taken(*events: Any) -> set[str]:
    provider = ProviderCitations()
    return {fact(cited.ref, cited.source) for event in events for cited in provider.read_event(event)}


def followed(dialect: str, events: list[Any]) -> set[str]:
    stream = citewire.open_stream(dialect)
    for event in events:
        stream.feed(event)
    return facts([stream.answer()])


# Text is not a payload: an agent that passes on words says nothing of whose they are.
WHOLE = {name: payload for name, (_, payload) in samples.PAYLOADS.items() if not isinstance(payload, str)}
CONVERSATION: list[Any] = [
    {"type": "conversation.response.started", "conversation_id": "c"},
    {"type": "message.output.delta", "content": "Refunds take 30 days"},
    {
        "type": "message.output.delta",
        "content": {"type": "tool_reference", "tool": "web_search", "title": "Guide", "url": "https://e.org"},
    },
    {"type": "conversation.response.done", "usage": {}},
]
STREAMS: dict[str, tuple[str, list[Any]]] = {
    "mistral conversation": ("mistral", CONVERSATION),
    "anthropic": ("anthropic", ANTHROPIC),
    "openai.responses": ("openai.responses", OPENAI),
    "openai.assistants": ("openai.assistants", RUN),
    "teams": ("teams", samples_others.TEAMS_STREAM),
    "langchain": ("langchain", samples_others.LANGCHAIN_STREAM),
    **{name: (name, events) for name, (_, events) in samples_google.STREAMS.items()},
    **{name: (name, streamed(whole, [5] * 20)) for name, whole in CHATS.items()},
    **{f"{name} late": (name, streamed(whole, [5] * 20, late=True)) for name, whole in CHATS.items()},
}
# Without its start a stream of xAI's is like OpenAI's, until something says who writes it.
GROK: list[Any] = [
    *OPENAI[1:],
    {"type": "response.in_progress", "response": {"object": "response", "model": "grok-4", "output": []}},
]


def test_every_dialect_is_here() -> None:
    named = {dialect for dialect, payload in samples.PAYLOADS.values() if not isinstance(payload, str)}
    assert named | {"markdown"} == dialects().keys() | {"markdown"}
    assert {dialect for dialect, _ in STREAMS.values()} | {"xai"} == stream_dialects().keys()


@pytest.mark.parametrize("name", WHOLE)
def test_whole(name: str) -> None:
    expected = facts(read_all(WHOLE[name]))
    assert expected
    assert taken(WHOLE[name]) == expected


@pytest.mark.parametrize("name", STREAMS)
def test_streams(name: str) -> None:
    dialect, events = STREAMS[name]
    expected = followed(dialect, events)
    assert expected
    assert taken(*events) == expected
    assert taken(events) == expected


@pytest.mark.parametrize("name", STREAMS)
def test_one_answer_after_another(name: str) -> None:
    """An agent that calls tools asks its model several times."""
    _, events = STREAMS[name]
    assert taken(*events, *events) == taken(*events)


@pytest.mark.parametrize("name", [*CHATS, *samples_google.STREAMS])
def test_a_stream_and_the_whole_of_it(name: str) -> None:
    """What both have is the same, so that it counts once."""
    whole = CHATS[name] if name in CHATS else samples_google.STREAMS[name][0]
    _, events = STREAMS[name]
    assert taken(*events, whole) == taken(*events)


def test_another_answer_begins_a_new_stream() -> None:
    """Its places are counted from its own start."""
    for name, id_key in (("openrouter", "id"), ("gemini", "responseId")):
        _, events = STREAMS[name]
        provider = ProviderCitations()
        found = [
            len([cited for event in events for cited in provider.read_event({**event, id_key: answer})])
            for answer in ("one", "two", "three")
        ]
        assert found[0] > 0
        assert found == found[:1] * 3


def told(provider: ProviderCitations, events: list[Any]) -> int:
    return len([cited for event in events for cited in provider.read_event(event)])


def test_another_answer_begins_without_an_id() -> None:
    """Gemini's ends with what grounds it; each citation of Bedrock's brings all that it cites."""
    gemini = [
        {key: value for key, value in event.items() if key != "responseId"} for event in STREAMS["gemini"][1]
    ]
    for events in (gemini, STREAMS["bedrock.rag"][1]):
        provider = ProviderCitations()
        first = told(provider, events)
        assert first > 0
        assert [told(provider, events), told(provider, events)] == [first, first]


def test_a_model_that_finishes_in_every_response_is_followed_to_the_end() -> None:
    chunks: list[Any] = [
        {"candidates": [{"content": {"parts": [{"text": text}]}, "finishReason": "STOP"}]}
        for text in ("Le café ", "ouvre ", "à 8 h.")
    ]
    support = {"segment": {"startIndex": 6, "endIndex": 16}, "groundingChunkIndices": [0]}
    grounding = {"groundingChunks": [{"web": {"uri": "https://a.example"}}], "groundingSupports": [support]}
    chunks[-1]["candidates"][0]["groundingMetadata"] = grounding
    assert taken(*chunks) == followed("gemini", chunks)
    assert told(ProviderCitations(), chunks) == 1


NOISE: list[Any] = [
    {"event": "on_chain_start", "data": {"input": {"messages": []}}, "name": "graph"},
    {"type": "x"},
    {"type": ["message_start"]},
    {"type": "finish"},
    {"output": {"text": "words"}},
    {"message": {"role": "user", "content": "words"}, "data": [], "text": "words", "event": 3},
    {"choices": []},
    {"citations": []},
    {"type": "content_block_delta"},
    "words",
    None,
    3,
    [],
    {},
]


@pytest.mark.parametrize("name", STREAMS)
def test_other_events_between(name: str) -> None:
    dialect, events = STREAMS[name]
    # Text of Bedrock's is what nothing tells from noise.
    noise = [event for event in NOISE if dialect != "bedrock.rag" or not event or "output" not in str(event)]
    assert taken(*(one for event in events for one in (*noise, event))) == taken(*events)
    assert taken(*NOISE) == set()


def test_streams_of_two_providers_in_turns() -> None:
    one, two = STREAMS["gemini"][1], STREAMS["bedrock.converse"][1]
    turns = [*(event for pair in zip(one, two, strict=False) for event in pair), *one[len(two) :]]
    assert taken(*turns, *two[len(one) :]) == taken(*one) | taken(*two)


def test_whose_a_stream_is_may_be_known_late() -> None:
    """Chunks are anybody's until a reference comes, and events of a response until it is named."""
    _, events = STREAMS["mistral late"]
    assert citewire.detect(events[:2]) == "openai.chat"
    assert taken(*events) == followed("mistral", events)
    _, (*texts, annotated, finish) = STREAMS["openrouter late"]
    plain = [{key: value for key, value in event.items() if key != "provider"} for event in texts]
    assert citewire.detect(plain) == "openai.chat"
    assert taken(*plain, annotated, finish) == followed("openrouter", [*texts, annotated, finish])
    assert citewire.detect(GROK) == "xai"
    assert taken(*GROK) == taken(*GROK[:-1]) == followed("xai", GROK[:-1])


def test_what_is_kept_of_a_stream_has_a_bound() -> None:
    """Of a text that is longer, what comes at its end is still read."""
    _, events = STREAMS["mistral late"]
    filler = {**events[1], "choices": [{"index": 0, "delta": {"content": "word " * 1000}}]}
    provider = ProviderCitations()
    for _ in range(1000):
        assert provider.read_event(filler) == []
    kept = provider._followed["openai.chat"]._kept  # pyright: ignore[reportPrivateUsage]
    assert sum(len(codec.encode(event)) for event in kept) <= 1 << 20
    assert any(provider.read_event(event) for event in events)


def test_text_that_comes_before_what_tells_whose_it_is() -> None:
    _, events = STREAMS["bedrock.rag"]
    assert "citation" not in events[0]
    assert taken(*events) == followed("bedrock.rag", events) > taken(*events[1:])


def test_the_end_of_a_stream_alone() -> None:
    whole = WHOLE["openai.responses"]
    assert taken({"type": "response.completed", "response": whole}) == facts(read_all(whole))


@pytest.mark.parametrize("ends", [False, True])
def test_events_of_langchain(ends: bool) -> None:
    """A graph tells what its model says in events of its own."""
    events: list[Any] = [{"event": "on_chat_model_start", "data": {"input": {}}}]
    if ends:
        events.append({"event": "on_chat_model_end", "data": {"output": samples_others.LANGCHAIN}})
        expected = facts(read_all(samples_others.LANGCHAIN))
    else:
        chunks = samples_others.LANGCHAIN_STREAM
        events += [{"event": "on_chat_model_stream", "data": {"chunk": chunk}} for chunk in chunks]
        expected = followed("langchain", chunks)
    assert taken(*events) == expected


def test_what_two_could_have_sent_is_nobodys() -> None:
    both = {**WHOLE["gemini"], **WHOLE["anthropic"]}
    with pytest.raises(AmbiguousDialect):
        citewire.detect(both)
    assert taken(both) == set()


@pytest.mark.parametrize("path", payload_paths(), ids=lambda path: path.stem)
def test_captures(path: Path) -> None:
    payload: Any = codec.decode(path.read_bytes())
    try:
        dialect = citewire.detect(payload)
    except UndetectedDialect:
        assert taken(payload) == set()
        return
    if isinstance(payload, list) and dialect in stream_dialects():
        assert taken(*payload) == followed(dialect, payload)
    else:
        assert taken(payload) == facts(read_all(payload))


SELECTED: Any = {
    "@context": "http://www.w3.org/ns/anno.jsonld",
    "type": "Annotation",
    "body": "https://e.org",
    "target": {"source": "https://a.example", "selector": {"type": "TextQuoteSelector", "exact": "Words"}},
}


def nested(depth: int) -> Any:
    value: Any = {}
    for _ in range(depth):
        value = {"content": [value], "metadata": value}
    return value


def test_an_answer_with_very_many_citations() -> None:
    """When it has become long it is not read again for each of them, but each is given."""
    blocks, events, ends = range(1500), [ANTHROPIC[0]], list[Any]()
    for at in blocks:
        cited = {**ANTHROPIC[2]["delta"]["citation"], "document_index": at, "document_title": f"Guide {at}"}
        events += [{**ANTHROPIC[1], "index": at}]
        events += [{**ANTHROPIC[2], "index": at, "delta": {"type": "citations_delta", "citation": cited}}]
        ends += [{"type": "content_block_stop", "index": at}]
    provider = ProviderCitations()
    early = [cited.source.title for event in events for cited in provider.read_event(event)]
    late = [cited.source.title for event in ends for cited in provider.read_event(event)]
    assert early == [f"Guide {at}" for at in range(len(early))]
    assert 100 < len(early) < len(blocks)
    assert {*early, *late} == {f"Guide {at}" for at in blocks}


def test_hostile_events() -> None:
    assert taken(dict.fromkeys(map(str, range(100_000)), 1)) == set()
    assert taken({"candidates": [nested(sys.getrecursionlimit() // 2)]}) == set()
    for depth in (sys.getrecursionlimit() // 2, sys.getrecursionlimit() * 2):
        assert taken({"type": "message", "content": [nested(depth)]}) == set()
        assert taken({"output": {"text": nested(depth)}}, *STREAMS["bedrock.rag"][1])
        delta = {"role": "assistant", "content": "", "tool_calls": [nested(depth)]}
        chunk = {"object": "chat.completion.chunk", "choices": [{"index": 0, "delta": delta}]}
        assert taken(chunk, *STREAMS["azure.oyd late"][1])


CITED = {
    "gemini stream": [{"type": "RAW", "event": event} for event in STREAMS["gemini"][1]],
    "gemini stream, and whole": [
        {"type": "RAW", "event": event} for event in [*STREAMS["gemini"][1], WHOLE["gemini"]]
    ],
    "gemini whole": [{"type": "CUSTOM", "name": "grounding", "value": WHOLE["gemini"]}],
    "vercel whole": [{"type": "CUSTOM", "name": "message", "value": WHOLE["vercel"]}],
    "vercel stream": [{"type": "CUSTOM", "name": "chunk", "value": event} for event in STREAMS["vercel"][1]],
    "w3c whole": [{"type": "CUSTOM", "name": "citations", "value": [SELECTED]}],
}


@pytest.mark.parametrize("before", [True, False])
@pytest.mark.parametrize("name", CITED)
def test_through_the_middleware(name: str, before: bool) -> None:
    """Each is cited once, whether its stream, the whole or both came."""
    text = [start(), say("Words.")]
    events = [*CITED[name], *text] if before else [*text, *CITED[name]]
    record = through([STARTED, *events, end(), FINISHED]).client.message()
    dialect, _, _ = name.partition(" ")
    whole = [SELECTED] if dialect == "w3c" else WHOLE[dialect]
    sources = {source.url or source.title for answer in read_all(whole) for source in answer.sources}
    shown = [cited.get("url") or cited.get("title") for cited in record["citations"].values()]
    assert (record["status"], {*shown}) == ("complete", sources)
    assert len(shown) == {"gemini": 7, "vercel": 3, "w3c": 1}[dialect]


EVENTS = [event for _, events in STREAMS.values() for event in events] + list(WHOLE.values())


def pieces(value: Any) -> Iterator[Any]:
    """A value and all that is in it."""
    yield value
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from pieces(inner)


PIECES = [piece for event in EVENTS for piece in pieces(event)]


@st.composite
def spoiled(draw: st.DrawFn) -> Any:
    """An event in which something else is where something was."""
    event = draw(st.sampled_from([event for event in EVENTS if isinstance(event, dict) and event]))
    key = draw(st.sampled_from(sorted(event)))
    value = event[key]
    if isinstance(value, dict) and value and draw(st.booleans()):
        inner = draw(st.sampled_from(sorted(value)))
        return {**event, key: {**value, inner: draw(st.sampled_from(PIECES))}}
    return {**event, key: draw(st.sampled_from(PIECES))}


@pytest.mark.slow
@given(st.lists(st.sampled_from(EVENTS) | st.sampled_from(PIECES) | spoiled(), max_size=12))
def test_nothing_raises(events: list[Any]) -> None:
    taken(*events)
