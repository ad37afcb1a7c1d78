"""Streams as they come: cut off, out of order, with events that nobody knows."""

from __future__ import annotations

import copy
from typing import Any

import pytest

import citewire
from citewire.errors import ShapeError

URL = "https://example.com/refunds"
LINK = f"([example.com]({URL}))"
TEXT = f"Refunds take 30 days. {LINK}"


def open_ai(kind: str, **fields: Any) -> dict[str, Any]:
    return {"type": f"response.{kind}", "output_index": 0, "content_index": 0, **fields}


def cite(start: int, end: int, place: int = 0, content: int = 0) -> dict[str, Any]:
    annotation = {
        "type": "url_citation",
        "start_index": start,
        "end_index": end,
        "title": "Refund policy",
        "url": URL,
    }
    return open_ai(
        "output_text.annotation.added", annotation_index=place, annotation=annotation, content_index=content
    )


CITED = cite(22, len(TEXT))


def feed(dialect: str, events: list[Any]) -> tuple[list[citewire.Citation], citewire.Answer]:
    stream = citewire.open_stream(dialect)
    given = [citation for event in events for citation in stream.feed(event)]
    return given, stream.answer()


@pytest.mark.parametrize(
    "events",
    [
        pytest.param([open_ai("output_text.delta", delta=TEXT), CITED], id="text, then annotation"),
        pytest.param([CITED, open_ai("output_text.delta", delta=TEXT)], id="annotation first"),
        pytest.param(
            [*(open_ai("output_text.delta", delta=char) for char in TEXT), CITED, CITED], id="told twice"
        ),
        pytest.param(
            [{"type": "keepalive"}, open_ai("output_text.delta", delta=TEXT), {"type": "error"}, CITED],
            id="events between",
        ),
        pytest.param(
            [open_ai("output_text.done", text=TEXT), CITED], id="a resumed stream, without the deltas"
        ),
        pytest.param(
            [
                open_ai("output_text.delta", delta=TEXT[:9]),
                open_ai(
                    "content_part.done",
                    part={"type": "output_text", "text": TEXT, "annotations": [CITED["annotation"]]},
                ),
            ],
            id="the end says it all",
        ),
    ],
)
def test_openai_events_in_any_order_give_the_same_answer(events: list[Any]) -> None:
    given, answer = feed("openai.responses", events)

    assert answer.text == TEXT
    assert [answer.covered(c.marker) for c in answer.citations if c.marker] == [LINK]
    assert [(c.id, c.marker) for c in given] == [(c.id, c.marker) for c in answer.citations]
    assert citewire.read(events).bare() == answer.bare()


def test_openai_citations_keep_the_ids_they_were_given() -> None:
    """Two parts whose annotations come in turns: in the answer they stand part by part."""
    events = [
        open_ai("output_text.delta", delta=TEXT),
        open_ai("output_text.delta", delta=TEXT, content_index=1),
        cite(22, len(TEXT), content=1),
        cite(22, len(TEXT)),
    ]
    given, answer = feed("openai.responses", events)
    assert {c.id: c.marker for c in given} == {c.id: c.marker for c in answer.citations}
    assert [c.id for c in answer.citations] == ["c2", "c1"]


def test_an_annotation_far_back_waits_for_the_end_of_its_text() -> None:
    """Only the last of a long text is at hand while it grows."""
    long = TEXT + " And so on." * 10_000
    stream = citewire.open_stream("openai.responses")
    for at in range(0, len(long), 1000):
        stream.feed(open_ai("output_text.delta", delta=long[at : at + 1000]))

    assert stream.feed(CITED) == ()
    (citation,) = stream.feed(open_ai("output_text.done", text=long))
    assert citation.marker is not None
    assert stream.answer().covered(citation.marker) == LINK


def block(kind: str, index: int = 0, **fields: Any) -> dict[str, Any]:
    return {"type": f"content_block_{kind}", "index": index, **fields}


def text_delta(text: str, index: int = 0) -> dict[str, Any]:
    return block("delta", index, delta={"type": "text_delta", "text": text})


def citation_delta(quote: str, index: int = 0) -> dict[str, Any]:
    found = {"type": "web_search_result_location", "url": URL, "title": None, "cited_text": quote}
    return block(
        "delta", index, delta={"type": "citations_delta", "citation": found | {"encrypted_index": "x"}}
    )


START = {"type": "text", "text": ""}
ANTHROPIC = [
    {"type": "message_start", "message": {"type": "message", "id": "m", "role": "assistant"}},
    block("start", content_block=START),
    text_delta("In short: "),
    block("stop"),
    {"type": "ping"},
    block("start", 1, content_block=START),
    citation_delta("within 30 days", 1),
    text_delta("refunds take ", 1),
    text_delta("30 days", 1),
    {"type": "from_the_future"},
    block("stop", 1),
    {"type": "message_stop"},
]


def test_anthropic_gives_a_citation_early_and_again_when_it_is_complete() -> None:
    given, answer = feed("anthropic", ANTHROPIC)
    early, complete = given

    assert (early.id, early.claim) == ("c1", None)
    assert early.refs[0].quote == "within 30 days"
    assert complete.claim is not None
    assert answer.covered(complete.claim) == "refunds take 30 days"
    assert [c.claim for c in answer.citations] == [complete.claim]


@pytest.mark.parametrize("cut", range(1, len(ANTHROPIC)))
def test_an_anthropic_stream_may_end_anywhere(cut: int) -> None:
    _, answer = feed("anthropic", ANTHROPIC[:cut])
    assert "In short: refunds take 30 days".startswith(answer.text)
    assert answer.problems == ()


def test_looking_at_the_answer_does_not_change_it() -> None:
    looked, plain = citewire.open_stream("anthropic"), citewire.open_stream("anthropic")
    tool = [
        block("start", content_block={"type": "tool_use", "id": "t", "input": {}}),
        block("delta", delta={"type": "input_json_delta", "partial_json": '{"a": 1, '}),
        block("delta", delta={"type": "input_json_delta", "partial_json": '"b": 2}'}),
        block("stop"),
    ]
    for event in tool:
        plain.feed(event)
        before = looked.answer()
        kept = copy.deepcopy(before)
        looked.feed(event)
        assert before == kept
    assert looked.answer() == plain.answer()
    native = looked.answer().native
    assert native is not None
    assert native.raw["content"][0]["input"] == {"a": 1, "b": 2}


def test_a_block_that_stops_twice_moves_nothing() -> None:
    events = [*ANTHROPIC[:4], block("stop"), *ANTHROPIC[4:]]
    assert [c.claim for c in feed("anthropic", events)[0]] == [
        c.claim for c in feed("anthropic", ANTHROPIC)[0]
    ]


@pytest.mark.parametrize(
    ("dialect", "event", "path"),
    [
        ("anthropic", 5, r"\$\[1\]"),
        ("anthropic", text_delta("x", 9), r"\$\[1\]\.index"),
        ("anthropic", block("start", content_block=7), r"\$\[1\]\.content_block"),
        ("openai.responses", open_ai("output_text.delta", delta=7), r"\$\[1\]\.delta"),
        ("openai.responses", {"type": "response.output_text.delta", "delta": "x"}, r"\$\[1\]\.output_index"),
    ],
)
def test_a_bad_event_is_named_by_its_place(dialect: str, event: Any, path: str) -> None:
    first = {"anthropic": ANTHROPIC[0], "openai.responses": open_ai("created", response={})}[dialect]
    with pytest.raises(ShapeError, match=path):
        citewire.read([first, event], dialect)
