# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false
"""Streams of chat chunks, thread events and conversations: however they are cut, they end like the whole."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import citewire
from citewire.errors import ShapeError, UndetectedDialect, WrongDialect
from support.chunk_streams import CHATS, CITED, RUN, chunk, piece, sizes, streamed, thread
from support.samples_openai import AZURE, CHAT, MISTRAL, MISTRAL_CONVERSATION, OPENROUTER, PERPLEXITY, XAI


def read(dialect: str, events: list[Any]) -> tuple[dict[str, citewire.Citation], citewire.Answer]:
    stream = citewire.open_stream(dialect)
    known: dict[str, citewire.Citation] = {}
    for event in events:
        known |= {citation.id: citation for citation in stream.feed(event)}
    return known, stream.answer()


def bare(citations: Any) -> tuple[citewire.Citation, ...]:
    return citewire.Answer(citations=tuple(citations)).bare().citations


@pytest.mark.parametrize("dialect", CHATS)
@given(sizes=sizes, late=st.booleans())
def test_chunks_end_like_the_whole(dialect: str, sizes: list[int], late: bool) -> None:
    """And each citation was given as the answer has it, in the same order."""
    whole = citewire.read(CHATS[dialect], dialect)
    events = streamed(CHATS[dialect], sizes, late=late)
    known, answer = read(dialect, events)

    assert answer.text == whole.text
    assert answer.bare().citations == whole.bare().citations
    assert answer.sources == whole.sources
    assert bare(known.values()) == answer.bare().citations
    assert citewire.detect(events) == dialect
    assert citewire.read(events).bare() == answer.bare()


@pytest.mark.parametrize("dialect", CHATS)
def test_chunks_may_end_anywhere(dialect: str) -> None:
    """What had been given by then is in the answer so far, and is what the end says of it."""
    events = streamed(CHATS[dialect], [3] * 40)
    end = {citation.id: citation for citation in citewire.read(CHATS[dialect], dialect).bare().citations}
    for cut in range(1, len(events)):
        known, answer = read(dialect, events[:cut])
        assert set(known) <= {citation.id for citation in answer.citations}
        for citation in bare(known.values()):
            assert end[citation.id].marker == citation.marker


def test_a_list_that_is_repeated_counts_once() -> None:
    """Perplexity has its list in every chunk, and the last is the one that counts."""
    events = streamed(PERPLEXITY, [5, 5])
    events[0]["citations"] = ["https://old.example/"] * 9
    assert read("perplexity", events)[1].bare() == citewire.read(PERPLEXITY).bare()


def test_citations_are_given_before_the_end() -> None:
    events = streamed(PERPLEXITY, [1] * 80)
    assert read("perplexity", events[:-1])[0]
    assert list(read("openrouter", streamed(OPENROUTER, [])[:1])[0]) == ["c1"]
    assert read("mistral", streamed(MISTRAL, [])[:-1])[0]


def test_late_annotations_are_given_after_the_end() -> None:
    events = streamed(OPENROUTER, [9], late=True)
    annotations = events.pop(-2)
    known, answer = read("openrouter", [*events, annotations])
    assert bare(known.values()) == answer.bare().citations != ()


def test_mistral_text_and_chunks_may_alternate() -> None:
    events = [
        chunk(MISTRAL, {"content": "Refunds "}),
        chunk(MISTRAL, {"content": [{"type": "text", "text": "take 30 days"}]}),
        chunk(MISTRAL, {"content": [{"type": "reference", "reference_ids": [1]}]}),
        chunk(MISTRAL, {"content": "."}),
    ]
    answer = citewire.read(events)
    assert answer.text == "Refunds take 30 days."
    assert [c.insert_at for c in answer.citations] == [citewire.Point(0, len("Refunds take 30 days"))]


def test_a_conversation_ends_like_the_whole() -> None:
    outputs = MISTRAL_CONVERSATION["outputs"]
    events: list[Any] = [{"type": "conversation.response.started", "conversation_id": "conv_1"}]
    for at in (1, 2):
        content = outputs[at]["content"]
        for part in content if isinstance(content, list) else [content]:
            said = part["text"] if isinstance(part, dict) and part["type"] == "text" else part
            events.append({"type": "message.output.delta", "output_index": at, "content": said})
    events.append({"type": "conversation.response.done", "usage": {}})

    known, answer = read("mistral", events)
    assert answer.bare() == citewire.read(MISTRAL_CONVERSATION).bare()
    assert bare(known.values()) == answer.bare().citations
    assert citewire.read(events).bare() == answer.bare()


@pytest.mark.parametrize("named", [False, True], ids=["data", "event and data"])
def test_a_run_gives_its_citations(named: bool) -> None:
    events = [{"event": event["object"], "data": event} for event in RUN] if named else RUN
    done = {
        "id": "m1",
        "object": "thread.message",
        "role": "assistant",
        "completed_at": 1,
        "content": [
            {
                "type": "text",
                "text": {
                    "value": "Refunds take 30 days【4:0†source】.",
                    "annotations": [{key: value for key, value in CITED.items() if key != "index"}],
                },
            },
            {"type": "image_file", "image_file": {"file_id": "i"}},
            {"type": "text", "text": {"value": "More.", "annotations": []}},
        ],
    }
    end = {"event": "thread.message.completed", "data": done} if named else done
    before = citewire.read(events)
    known, answer = read("openai.assistants", [*events, end])

    assert answer.text == "Refunds take 30 days【4:0†source】.\n\nMore."
    assert [answer.covered(c.marker) for c in answer.citations if c.marker] == ["【4:0†source】"]
    assert answer.citations[0].refs[0].quote == "30 days"
    assert before.bare() == answer.bare() == citewire.read(done).bare()
    assert bare(known.values()) == answer.bare().citations


def test_the_messages_of_a_run_are_one_answer() -> None:
    answer = citewire.read([*RUN, thread(piece("Another【4:0†source】", CITED), name="m2")])
    assert [part.text for part in answer.parts][2:] == ["Another【4:0†source】"]
    assert len(answer.citations) == 2


@pytest.mark.parametrize(
    ("dialect", "event", "path"),
    [
        ("openai.chat", 5, r"\$\[1\]"),
        ("perplexity", {"choices": 7}, r"\$\[1\]\.choices"),
        ("openai.assistants", {"object": "thread.message.delta"}, r"\$\[1\]\.delta"),
        ("openai.assistants", {"object": "thread.message.delta", "delta": {}}, r"\$\[1\]\.id"),
        ("xai", {"type": "response.output_text.delta", "delta": "x"}, r"\$\[1\]\.output_index"),
    ],
)
def test_a_bad_event_is_named_by_its_place(dialect: str, event: Any, path: str) -> None:
    with pytest.raises(ShapeError, match=path):
        citewire.read([{}, event], dialect)


JUNK = st.recursive(
    st.none() | st.integers() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(st.sampled_from(["text", "content", "type", "index", "delta"]), inner, max_size=3)
    ),
    max_leaves=6,
)


@pytest.mark.parametrize("dialect", [*CHATS, "openai.assistants", "xai"])
@given(data=st.data())
def test_any_event_is_read_or_refused(dialect: str, data: st.DataObject) -> None:
    events = copy.deepcopy(RUN if dialect == "openai.assistants" else streamed(CHATS.get(dialect, CHAT), [4]))
    event: Any = data.draw(st.sampled_from(events))
    while isinstance(event, dict | list) and event and data.draw(st.booleans()):
        key = data.draw(st.sampled_from(list(event) if isinstance(event, dict) else range(len(event))))
        if data.draw(st.booleans()):
            event[key] = data.draw(JUNK)
            break
        event = event[key]
    stream = citewire.open_stream(dialect)
    try:
        for one in events:
            stream.feed(one)
        stream.answer()
    except citewire.CitewireError:
        pass


def test_whose_response_it_is_is_told_by_the_response() -> None:
    """The same annotation, `{type, url}` without offsets, is xAI's; OpenAI's has them."""
    other = XAI | {"model": "gpt-5", "usage": {}}
    assert citewire.detect(other) == "openai.responses"
    events = [{"type": "response.created", "response": XAI | {"output": []}}, {"type": "keepalive"}]
    assert citewire.detect(events) == "xai"


def test_what_has_no_choices_is_no_completion() -> None:
    for payload in ({"object": "chat.completion"}, {"object": [], "choices": []}, [{"object": {}}]):
        with pytest.raises(UndetectedDialect):
            citewire.detect(payload)


@pytest.mark.parametrize(
    ("payload", "dialect", "whose"),
    [
        (PERPLEXITY, "openai.chat", "perplexity"),
        (AZURE, "perplexity", r"azure\.oyd"),
        (MISTRAL, "openai.chat", "mistral"),
        (OPENROUTER, "mistral", "openrouter"),
        (XAI, "openai.responses", "xai"),
    ],
)
def test_the_wrong_family_is_refused_and_the_right_one_named(payload: Any, dialect: str, whose: str) -> None:
    with pytest.raises(WrongDialect, match=f"not of {dialect}: it fits {whose}"):
        citewire.read(payload, dialect)
