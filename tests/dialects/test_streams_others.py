"""Streams of frameworks and chat surfaces: they end like the whole, in whatever pieces they come."""

from __future__ import annotations

import copy
from typing import Any

import pytest

import citewire
from citewire.errors import ShapeError
from citewire.model import Answer, Citation
from support.samples_others import LANGCHAIN_STREAM, TEAMS_STREAM


def feed(dialect: str, events: list[Any]) -> tuple[list[Citation], Answer]:
    stream = citewire.open_stream(dialect)
    given = [citation for event in events for citation in stream.feed(event)]
    return given, stream.answer()


def last_words(given: list[Citation]) -> list[Citation]:
    known = {citation.id: citation for citation in given}
    return list(Answer(citations=tuple(known.values())).bare().citations)


@pytest.mark.parametrize(("dialect", "events"), [("teams", TEAMS_STREAM), ("langchain", LANGCHAIN_STREAM)])
def test_a_stream_ends_like_the_whole(dialect: str, events: list[Any]) -> None:
    given, answer = feed(dialect, copy.deepcopy(events))
    assert answer.problems == ()
    assert last_words(given) == list(answer.bare().citations)
    assert citewire.detect(events) == dialect
    assert citewire.read(events).bare() == answer.bare()


@pytest.mark.parametrize(("dialect", "events"), [("teams", TEAMS_STREAM), ("langchain", LANGCHAIN_STREAM)])
def test_a_stream_may_end_anywhere(dialect: str, events: list[Any]) -> None:
    whole = citewire.read(events, dialect).text
    for cut in range(len(events) + 1):
        _, answer = feed(dialect, events[:cut])
        assert whole.startswith(answer.text)
        assert answer.problems == ()


def test_teams_says_all_so_far_each_time_and_progress_is_not_the_answer() -> None:
    given, answer = feed("teams", TEAMS_STREAM)
    assert [citation.id for citation in given] == ["c1", "c2"]
    assert answer.text == "Refunds take 30 days [1]. Ask us [2]."
    assert [answer.covered(c.marker) for c in answer.citations if c.marker] == ["[1]", "[2]"]
    assert citewire.write(answer, "teams").payload == TEAMS_STREAM[-1]


def test_teams_text_without_claims_can_still_be_cited() -> None:
    _, answer = feed("teams", TEAMS_STREAM[:2])
    source = citewire.Source("s1", "web", "https://a.example", "A")
    cited = citewire.Answer(
        answer.parts,
        (citewire.Citation("c1", (citewire.SourceRef("s1"),), claim=citewire.Span(0, 0, 7)),),
        (source,),
        native=answer.native,
    )
    payload = citewire.write(cited, "teams").payload
    assert payload["text"] == "Refunds [1] take"
    assert [entity["type"] for entity in payload["entities"]] == ["streaminfo", "https://schema.org/Message"]


def chunk(*blocks: Any, **fields: Any) -> Any:
    return {"type": "AIMessageChunk", "content": list(blocks), **fields}


def piece(index: int, text: str, *annotations: Any) -> Any:
    fields: dict[str, Any] = {"annotations": list(annotations)} if annotations else {}
    return {"type": "text", "text": text, "index": index, **fields}


def test_langchain_gives_a_citation_early_and_again_with_its_place() -> None:
    given, answer = feed("langchain", LANGCHAIN_STREAM)
    assert [citation.claim is None for citation in given] == [True, False]
    assert [answer.covered(c.claim) for c in answer.citations if c.claim] == ["Refunds take 30 days"]


def test_langchain_blocks_that_come_in_turns_keep_their_words_and_ids() -> None:
    first, second = ({"type": "citation", "url": f"https://a.example/{name}"} for name in "ab")
    events = [
        chunk(piece(0, "One ")),
        chunk(piece(1, "three ", second)),
        chunk(piece(0, "two. ", first)),
        chunk({"type": "tool_call_chunk", "index": 2, "id": "t", "args": '{"a"'}),
        chunk({"type": "tool_call_chunk", "index": 2, "id": "t", "args": ": 1}"}),
        chunk(piece(1, "four."), chunk_position="last"),
    ]
    given, answer = feed("langchain", events)
    assert answer.text == "One two. three four."
    assert {c.id: answer.covered(c.claim) for c in answer.citations if c.claim} == {
        "c1": "three four.",
        "c2": "One two. ",
    }
    assert {c.id: c.claim for c in given} == {c.id: c.claim for c in answer.citations}
    assert answer.native is not None
    assert answer.native.raw["content"][2]["args"] == '{"a": 1}'


def test_langchain_plain_chunks_are_one_text() -> None:
    events: list[Any] = [{"type": "AIMessageChunk", "content": word} for word in ("One ", "two", ".")]
    _, answer = feed("langchain", events)
    assert answer.text == "One two."


@pytest.mark.parametrize(
    ("dialect", "first", "event"),
    [
        ("teams", TEAMS_STREAM[1], 5),
        ("langchain", chunk(), {"type": "ai", "content": ""}),
        ("langchain", chunk(), chunk(7)),
    ],
)
def test_a_bad_event_is_named_by_its_place(dialect: str, first: Any, event: Any) -> None:
    with pytest.raises(ShapeError, match=r"^\$\[1\]"):
        citewire.read([first, event], dialect)
