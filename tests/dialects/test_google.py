"""What only the dialects of Google, Cohere, Bedrock and Vercel promise."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

import citewire
from citewire import codec
from citewire.model import Answer, Citation, Pages, Written
from support.bad_payloads import JUNK, nodes, put, use
from support.cases import payload_paths
from support.samples_google import (
    BEDROCK_RAG,
    COHERE,
    CONVERSE,
    GEMINI,
    INTERACTION,
    PAYLOADS,
    STREAMS,
    VERCEL,
)
from support.strategies import json_values


def load(path: Path) -> Any:
    return codec.decode(path.read_bytes())


def captures(*prefixes: str) -> list[Any]:
    return [pytest.param(path, id=path.stem) for path in payload_paths(*prefixes)]


def claims(answer: Answer) -> list[str]:
    return [answer.covered(citation.claim) for citation in answer.citations if citation.claim]


def candidates(payload: Any) -> list[Any]:
    events = cast("list[Any]", payload) if isinstance(payload, list) else [payload]
    return [candidate for event in events for candidate in event.get("candidates", ())]


@pytest.mark.parametrize("path", captures("gemini-0", "gemini-1", "gemini-stream"))
def test_every_segment_of_a_gemini_capture_is_a_claim(path: Path) -> None:
    """The words are the judge; and every chunk is cited, by a support or without a place."""
    payload = load(path)
    grounding = [found for each in candidates(payload) if (found := each.get("groundingMetadata"))]
    supports = [support for each in grounding for support in each.get("groundingSupports", ())]
    answer = citewire.read(payload)

    assert claims(answer) == [support["segment"]["text"] for support in supports]
    assert [len(citation.refs) for citation in answer.citations if citation.claim] == [
        len(support["groundingChunkIndices"]) for support in supports
    ]
    named = {index for support in supports for index in support["groundingChunkIndices"]}
    alone = sum(len(each.get("groundingChunks", ())) for each in grounding) - len(named)
    assert sum(citation.claim is None for citation in answer.citations) == alone
    origins = {citation.span_origin for citation in answer.citations if citation.claim}
    assert origins <= ({"exact", "repaired"} if path.stem in ("gemini-01", "gemini-11") else {"exact"})


@pytest.mark.parametrize(
    "path", captures("gemini-0", "gemini-1", "gemini-interactions-0", "cohere", "bedrock")
)
def test_a_capture_without_its_citations_has_none(path: Path) -> None:
    answer = citewire.read(load(path))
    dialect = citewire.detect(load(path))
    payload = citewire.write(replace(answer, citations=(), sources=()), dialect).payload
    back = citewire.read(payload, dialect)
    assert (back.citations, back.problems, back.text) == ((), (), answer.text)


def test_gemini_counts_bytes_within_the_answer() -> None:
    """Thoughts are not part of it; a part is meant where its index or the words say so."""
    answer = citewire.read(GEMINI)
    assert answer.text == "Le café ☕ ouvre à 8 h 😀. Refunds take 30 days."
    assert claims(answer) == ["Le café ☕ ouvre à 8 h 😀.", "Refunds take 30 days", " ca", "Le café ☕"]
    assert [c.span_origin for c in answer.citations] == [
        "exact",
        "exact",
        "exact",
        "unknown",
        "unknown",
        "repaired",
    ]
    assert answer.citations[1].refs[0].locator == Pages(3, 4)
    assert [ref.score for ref in answer.citations[0].refs] == [0.5, 1]
    assert len(answer.problems) == 5


@pytest.mark.parametrize(
    ("segment", "expected"),
    [
        ({"partIndex": 1, "endIndex": 3, "text": "two"}, "two"),
        ({"partIndex": 3, "endIndex": 3, "text": "two"}, "two"),
        ({"partIndex": 1, "startIndex": 4, "endIndex": 7, "text": "two"}, "two"),
        ({"startIndex": 4, "endIndex": 7, "text": "two"}, "two"),
        ({"partIndex": 3, "endIndex": 3}, "two"),
        ({"endIndex": 7}, "one two"),
    ],
)
def test_a_part_index_counts_all_parts_or_those_of_the_answer(segment: Any, expected: str) -> None:
    parts: list[Any] = [
        {"text": "hm", "thought": True},
        {"text": "one "},
        {"inlineData": {}},
        {"text": "two"},
    ]
    grounding = {
        "groundingChunks": [{"web": {"uri": "https://a.example"}}],
        "groundingSupports": [{"segment": segment, "groundingChunkIndices": [0]}],
    }
    answer = citewire.read({"candidates": [{"content": {"parts": parts}, "groundingMetadata": grounding}]})
    assert (claims(answer), answer.citations[0].span_origin) == ([expected], "exact")


def test_a_gemini_stream_that_grounds_again_replaces() -> None:
    def event(text: str, *uris: str) -> Any:
        grounding = {
            "groundingChunks": [{"web": {"uri": uri}} for uri in uris],
            "groundingSupports": [{"segment": {"endIndex": 3}, "groundingChunkIndices": [0]}],
        }
        said = {"groundingMetadata": grounding} if uris else {}
        return {"candidates": [{"index": 0, "content": {"parts": [{"text": text}]}, **said}]}

    stream = citewire.open_stream("gemini")
    assert stream.feed(event("One ")) == ()
    (first,) = stream.feed(event("two ", "https://a.example"))
    (again,) = stream.feed(event("three.", "https://b.example"))

    assert (first.id, again.id) == ("c1", "c1")
    answer = stream.answer()
    assert (answer.text, [source.url for source in answer.sources]) == (
        "One two three.",
        ["https://b.example"],
    )


@pytest.mark.parametrize("dialect", STREAMS)
def test_a_streamed_sample_is_the_whole_one(dialect: str) -> None:
    """The last word on each citation is what the answer has, and looking on the way changes nothing."""
    payload, events = STREAMS[dialect]
    looked, stream = citewire.open_stream(dialect), citewire.open_stream(dialect)
    known: dict[str, Citation] = {}
    for event in events:
        known |= {citation.id: citation for citation in stream.feed(event)}
        looked.answer()
        looked.feed(event)
    answer, whole = stream.answer(), citewire.read(payload, dialect)

    assert answer.bare() == whole.bare()
    assert [problem.message for problem in answer.problems] == [problem.message for problem in whole.problems]
    given = Answer(citations=tuple(known[citation.id] for citation in answer.citations))
    assert given.bare().citations == answer.bare().citations
    assert looked.answer() == answer
    assert citewire.read(events) == answer


@pytest.mark.parametrize("dialect", STREAMS)
def test_a_stream_may_end_anywhere(dialect: str) -> None:
    payload, events = STREAMS[dialect]
    text = citewire.read(payload, dialect).text
    for cut in range(1, len(events)):
        stream = citewire.open_stream(dialect)
        for event in events[:cut]:
            stream.feed(event)
        assert text.startswith(stream.answer().text.rstrip("\n"))


@pytest.mark.slow
@pytest.mark.parametrize("dialect", STREAMS)
@given(data=st.data())
def test_a_damaged_stream_is_read_or_refused(dialect: str, data: st.DataObject) -> None:
    events = STREAMS[dialect][1]
    for _ in range(data.draw(st.integers(1, 3))):
        path = data.draw(st.sampled_from(nodes(events)))
        events = put(events, path, data.draw(st.sampled_from(JUNK) | json_values))
    use(events, dialect)
    use(events, None)


@pytest.mark.parametrize("name", PAYLOADS)
@given(data=st.data())
def test_a_damaged_payload_is_given_back_as_it_is(name: str, data: st.DataObject) -> None:
    """Whatever could be read or not: what nobody changed does not change."""
    dialect, payload = PAYLOADS[name]
    path = data.draw(st.sampled_from(nodes(payload)[1:]))
    payload = put(payload, path, data.draw(st.sampled_from(JUNK) | json_values))
    with suppress(citewire.CitewireError):
        for answer in citewire.read_all(payload, dialect):
            assert citewire.write(answer, dialect) == Written(payload)


@pytest.mark.parametrize("dialect", STREAMS)
def test_a_stream_is_only_its_own(dialect: str) -> None:
    assert citewire.detect(STREAMS[dialect][1]) == dialect


def test_converse_gives_a_citation_before_its_place_is_known() -> None:
    """It comes before the text of its block: it must not end up at the end of the block before."""
    stream = citewire.open_stream("bedrock.converse")
    given = [citation for event in STREAMS["bedrock.converse"][1] for citation in stream.feed(event)]
    firsts = {citation.id: citation for citation in reversed(given)}
    assert all(citation.claim is None and citation.insert_at is None for citation in firsts.values())
    answer = stream.answer()
    assert claims(answer) == ["refunds take 30 days", "Bye."]
    points = [citation.insert_at.at for citation in answer.citations if citation.insert_at]
    assert {answer.parts[0].text[:at] for at in points} == {
        "In short: refunds take 30 days and the café 😀 opens at 8.\u200b"
    }


def test_pages_of_converse_end_before_their_end() -> None:
    ref = citewire.read(CONVERSE).citations[0].refs[0]
    assert (ref.locator, ref.quote) == (Pages(3, 4), "within 30 days")


@pytest.mark.parametrize("path", captures("cohere"))
def test_every_citation_of_a_cohere_capture_covers_its_words(path: Path) -> None:
    payload = load(path)
    answer = citewire.read(payload)
    assert claims(answer) == [citation["text"] for citation in payload["message"]["citations"]]
    assert {citation.span_origin for citation in answer.citations} == {"exact"}


@pytest.mark.parametrize("path", captures("bedrock-converse"))
def test_every_cited_block_of_a_converse_capture_is_a_claim(path: Path) -> None:
    payload = load(path)
    cited = [one["citationsContent"] for one in payload["output"]["message"]["content"] if "text" not in one]
    answer = citewire.read(payload)
    assert claims(answer) == ["".join(part["text"] for part in one["content"]) for one in cited]
    quotes = [[entry["sourceContent"][0]["text"] for entry in one["citations"]] for one in cited]
    assert [[ref.quote for ref in citation.refs] for citation in answer.citations] == quotes


@pytest.mark.parametrize("path", captures("gemini-interactions"))
def test_every_annotation_of_an_interaction_covers_its_bytes(path: Path) -> None:
    answer = citewire.read(load(path))
    assert answer.citations
    for citation in answer.citations:
        assert citation.claim is not None
        assert citation.native is not None
        entry = citation.native.raw
        said = answer.parts[citation.claim.part].text.encode()[entry["start_index"] : entry["end_index"]]
        assert answer.covered(citation.claim).encode() == said


def test_a_plan_is_not_the_answer() -> None:
    answer = citewire.read(COHERE)
    assert claims(answer) == ["Le café 😀", "30 days", "ouvre"]
    assert [c.span_origin for c in answer.citations] == ["exact", "exact", "unknown", "repaired"]


def test_a_reference_without_passages_is_no_citation() -> None:
    answer = citewire.read(BEDROCK_RAG)
    assert claims(answer) == ["Refunds take 30 days.", "Le café 😀 ouvre à 8 h."]
    assert [problem.path for problem in answer.problems] == [
        "$.citations[3]",
        "$.citations[5].retrievedReferences",
    ]


def test_vercel_carries_the_claim_that_the_sdk_has_no_place_for() -> None:
    """And through it a claim in bytes, with its quote and its page, comes back as it was."""
    assert claims(citewire.read(VERCEL)) == ["Refunds take 30 days"]
    answer = citewire.read(GEMINI)
    written = citewire.write(answer, "vercel")
    back = citewire.read(written.payload)
    assert claims(back)[:2] == claims(answer)[:1] * 2
    assert Pages(3, 4) in [ref.locator for citation in back.citations for ref in citation.refs]
    assert {loss.field for loss in written.losses} <= {"id", "refs", "source.title", "span_origin"}


WRONG: list[tuple[str, Any]] = [
    ("gemini", INTERACTION),
    ("gemini.interactions", {"object": "response", "output": [], "steps": None}),
    ("cohere", {"choices": [{"message": {"role": "assistant", "content": "x"}}]}),
    ("bedrock.converse", BEDROCK_RAG),
    ("bedrock.rag", CONVERSE),
    ("vercel", GEMINI),
]


@pytest.mark.parametrize(("dialect", "payload"), WRONG)
def test_the_wrong_family_is_refused(dialect: str, payload: Any) -> None:
    with pytest.raises(citewire.CitewireError):
        citewire.read(payload, dialect)
