"""What every dialect owes, on payloads of our own making."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

import citewire
from citewire import codec
from citewire.dialects import dialects, stream_dialects
from citewire.errors import AmbiguousDialect, InputError, ShapeError, UndetectedDialect, UnknownDialect
from citewire.model import Answer, Citation, Part, Source, SourceRef, Span
from support.oracle import unjustified, unnamed
from support.samples import OPENAI, PAYLOADS, SALESFORCE, TEXT

SAMPLES = [pytest.param(*sample, id=name) for name, sample in PAYLOADS.items()]


def test_every_dialect_has_a_sample() -> None:
    assert {dialect for dialect, _ in PAYLOADS.values()} == set(dialects())


@pytest.mark.parametrize(("dialect", "payload"), SAMPLES)
def test_an_unchanged_answer_gives_its_payload_back(dialect: str, payload: Any) -> None:
    for answer in citewire.read_all(payload, dialect):
        assert citewire.write(answer, dialect).payload == payload


@pytest.mark.parametrize(("dialect", "payload"), SAMPLES)
def test_a_bare_answer_loses_what_is_named(dialect: str, payload: Any) -> None:
    for answer in citewire.read_all(payload, dialect):
        written = citewire.write(answer.bare(), dialect)
        back = citewire.read(written.payload, dialect)

        assert unnamed(answer, back, written.losses) is None
        assert unjustified(answer, back, written.losses) == []


@pytest.mark.parametrize(("dialect", "payload"), SAMPLES)
@pytest.mark.parametrize("target", list(dialects()))
def test_any_answer_goes_into_any_dialect(dialect: str, payload: Any, target: str) -> None:
    for answer in citewire.read_all(payload, dialect):
        written = citewire.write(answer.bare() if target == dialect else answer, target)
        back = citewire.read(written.payload, target)

        assert unnamed(answer, back, written.losses) is None


@pytest.mark.parametrize(("dialect", "payload"), SAMPLES)
def test_dropping_the_citations_drops_just_those(dialect: str, payload: Any) -> None:
    """What could not be read stays: it was never ours to drop."""
    answer = citewire.read(payload, dialect)
    written = citewire.write(replace(answer, citations=(), sources=()), dialect)
    back = citewire.read(written.payload, dialect)

    assert (back.citations, back.text.rstrip("\n")) == ((), answer.text)
    assert [problem.message for problem in back.problems] == [problem.message for problem in answer.problems]


@pytest.mark.parametrize(("dialect", "payload"), SAMPLES)
def test_a_changed_title_changes_just_that(dialect: str, payload: Any) -> None:
    answer = citewire.read(payload, dialect)
    titled = next(source for source in answer.sources if dialect != "openai.responses" or source.url)
    changed = tuple(
        replace(source, title="Quite another") if source is titled else source for source in answer.sources
    )
    written = citewire.write(replace(answer, sources=changed), dialect)

    if "source.title" not in dialects()[dialect].SUPPORTED_FIELDS:
        assert "source.title" in {loss.field for loss in written.losses}
        return
    assert "Quite another" in repr(written.payload)
    back = citewire.read(written.payload, dialect)
    restored = tuple(
        replace(source, title=titled.title) if source.title == "Quite another" else source
        for source in back.sources
    )
    assert replace(back, sources=restored).bare().sources == answer.bare().sources
    assert back.bare().citations == answer.bare().citations


@pytest.mark.parametrize(("dialect", "payload"), SAMPLES)
def test_a_payload_is_detected(dialect: str, payload: Any) -> None:
    assert citewire.detect(payload) == dialect


@pytest.mark.parametrize("payload", [{}, [], 7, None, {"text": 1}, [{}], {"citations": 3}])
def test_what_no_dialect_knows_is_said_to_be_so(payload: Any) -> None:
    with pytest.raises(UndetectedDialect):
        citewire.detect(payload)


def test_two_that_fit_are_both_named() -> None:
    both = SALESFORCE | OPENAI
    with pytest.raises(AmbiguousDialect, match=r"openai\.responses and salesforce") as caught:
        citewire.read(both)
    assert caught.value.candidates == ("openai.responses", "salesforce")


def test_unknown_dialects_are_refused_by_name() -> None:
    with pytest.raises(UnknownDialect, match="salesforce"):
        citewire.read({}, "salesfarce")


def test_what_does_not_stream_says_so() -> None:
    with pytest.raises(citewire.CitewireError, match="anthropic"):
        citewire.open_stream("salesforce")
    assert set(stream_dialects()) <= set(dialects())


@pytest.mark.parametrize("encode", [bytes, bytearray, memoryview, str], ids=lambda encode: encode.__name__)
def test_json_is_read_in_any_wrapping(encode: Any) -> None:
    data = codec.encode(SALESFORCE)
    payload = data.decode() if encode is str else encode(data)
    assert citewire.read(payload) == citewire.read(SALESFORCE)


@pytest.mark.parametrize(
    ("citation", "where"),
    [
        (Citation("c1", claim=Span(0, 0, 999)), r"\$\.citations\[0\]"),
        (Citation("c1", claim=Span(0, 5, 2)), r"\$\.citations\[0\]"),
        (Citation("c1", marker=Span(1, 0, 1)), r"\$\.citations\[0\]"),
        (Citation("c1", (SourceRef("nowhere"),)), r"\$\.citations\[0\]\.refs"),
    ],
)
@pytest.mark.parametrize("dialect", list(dialects()))
def test_an_impossible_answer_is_refused(dialect: str, citation: Citation, where: str) -> None:
    answer = Answer((Part(TEXT),), (citation,), (Source("s1"),))
    with pytest.raises(ShapeError, match=where):
        citewire.write(answer, dialect)


@pytest.mark.parametrize("dialect", list(dialects()))
@pytest.mark.parametrize(
    "payload", [None, 3, [1], {}, {"content": 3}, {"output": {}}, {"messages": 1, "state": 2}]
)
def test_a_hopeless_payload_is_refused_with_a_path(dialect: str, payload: Any) -> None:
    with pytest.raises(InputError, match=r"^\$"):
        citewire.read(payload, dialect)


def test_links_become_claims_that_are_said_to_be_derived() -> None:
    """OpenAI marks links, Salesforce claims: the sentence before the link is our reading, and is named so."""
    answer = citewire.read(OPENAI)
    written = citewire.write(answer, "salesforce")
    content = written.payload["staticContent"]
    use = content["citationContent"]["citations"][0]["citedDetails"]["inlineMetadata"][0]

    assert content["text"].startswith("Refunds take 30 days. See the file.")
    assert content["text"][use["claim"]["claimStartOffset"] : use["claim"]["claimEndOffset"]] == (
        "Refunds take 30 days."
    )
    assert "claim of c1: derived: the sentence before the marker" in map(str, written.losses)
    assert "marker of c1: taken out of the text" in map(str, written.losses)


def test_words_that_are_no_link_stay_in_the_text() -> None:
    """An annotation whose offsets miss its link would otherwise take the sentence with it."""
    text = "Refunds take 30 days. See more."
    annotation = {
        "type": "url_citation",
        "start_index": 0,
        "end_index": 20,
        "title": "t",
        "url": "https://a.example",
    }
    part: Any = {"type": "output_text", "text": text, "annotations": [annotation]}
    payload: Any = {"object": "response", "output": [{"type": "message", "content": [part]}]}
    answer = citewire.read(payload)

    assert answer.citations[0].span_origin == "unknown"
    assert citewire.write(answer, "openai.responses").payload == payload
    assert citewire.write(answer, "salesforce").payload["staticContent"]["text"] == text
    assert citewire.render(answer, "text").startswith("Refunds take 30 days")


NOTHING: list[tuple[str, Any]] = [
    (
        "anthropic",
        {"type": "message", "content": [{"type": "tool_use", "id": "t", "name": "x", "input": {}}]},
    ),
    ("anthropic", {"type": "message", "content": []}),
    ("anthropic", {"type": "message", "content": [{"type": "text", "text": "x", "citations": "zz"}]}),
    ("openai.responses", {"object": "response", "output": [{"type": "function_call"}]}),
    ("openai.responses", {"object": "response", "output": []}),
    ("salesforce", {"staticContent": {"text": "x", "citationContent": {}}}),
    ("salesforce", {"staticContent": {"text": "x", "citationContent": {"citations": None}}}),
    ("ngaf", {"citations": {"m": [{"url": "https://a", "extra": {"citewire": None}}]}}),
]


@pytest.mark.parametrize(("dialect", "payload"), NOTHING)
def test_a_payload_with_nothing_in_it_is_given_back(dialect: str, payload: Any) -> None:
    assert citewire.write(citewire.read(payload, dialect), dialect).payload == payload
