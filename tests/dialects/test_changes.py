"""A changed answer, written in the dialect it came from: the change is there, or it is named."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

import citewire
from citewire.model import Answer, Citation, Part, Source, SourceRef, Span
from support.oracle import unjustified, unnamed
from support.samples import PAYLOADS

Change = Callable[[Answer], Answer]


def citations(change: Callable[[tuple[Citation, ...]], tuple[Citation, ...]]) -> Change:
    """The citations changed, and the sources that nothing points to any more gone."""

    def changed(answer: Answer) -> Answer:
        new = change(answer.citations)
        used = {ref.source_id for citation in new for ref in citation.refs}
        return replace(
            answer, citations=new, sources=tuple(source for source in answer.sources if source.id in used)
        )

    return changed


def first_source(**fields: Any) -> Change:
    return lambda answer: replace(answer, sources=(replace(answer.sources[0], **fields), *answer.sources[1:]))


def first_citation(**fields: Any) -> Change:
    return lambda answer: replace(
        answer, citations=(replace(answer.citations[0], **fields), *answer.citations[1:])
    )


def first_ref(**fields: Any) -> Change:
    def changed(answer: Answer) -> Answer:
        first, *rest = answer.citations
        refs = (replace(first.refs[0], **fields), *first.refs[1:]) if first.refs else ()
        return replace(answer, citations=(replace(first, refs=refs), *rest))

    return changed


def with_new(answer: Answer, at: int) -> Answer:
    new = Citation("new", (SourceRef("new"),), span_origin="unknown")
    new_source = Source("new", "web", "https://new.example/page", "New")
    return replace(
        answer,
        citations=(*answer.citations[:at], new, *answer.citations[at:]),
        sources=(*answer.sources, new_source),
    )


def longer(answer: Answer) -> Answer:
    if not answer.parts:
        return answer
    *parts, last = answer.parts
    return replace(answer, parts=(*parts, replace(last, text=last.text + " The end.")))


def other_claim(answer: Answer) -> Answer:
    if not answer.parts:
        return answer
    return first_citation(claim=Span(0, 0, 3), span_origin="exact")(answer)


CHANGES: dict[str, Change] = {
    "nothing": lambda answer: answer,
    "first dropped": citations(lambda all_of: all_of[1:]),
    "last dropped": citations(lambda all_of: all_of[:-1]),
    "all dropped": citations(lambda all_of: ()),
    "reversed": citations(lambda all_of: all_of[::-1]),
    "one added": lambda answer: with_new(answer, len(answer.citations)),
    "one added in front": lambda answer: with_new(answer, 0),
    "another title": first_source(title="Another title"),
    "no title": first_source(title=None),
    "another url": first_source(url="https://another.example/page"),
    "another quote": first_ref(quote="quite another quote"),
    "no quote": first_ref(quote=None, anchor=None),
    "another locator": first_ref(locator=None),
    "another id": lambda answer: replace(answer, id="another-id"),
    "another number": first_citation(ordinal=77),
    "a verdict": first_citation(verification=citewire.Verification("missed", "not there")),
    "a longer text": longer,
    "another claim": other_claim,
    "no place": first_citation(claim=None, insert_at=None),
}


def cases() -> list[Any]:
    return [
        pytest.param(dialect, payload, change, id=f"{name}: {what}")
        for name, (dialect, payload) in PAYLOADS.items()
        for what, change in CHANGES.items()
    ]


@pytest.mark.parametrize(("dialect", "payload", "change"), cases())
def test_what_changed_is_written_or_named(dialect: str, payload: Any, change: Change) -> None:
    answer = citewire.read(payload, dialect)
    changed = change(answer)
    written = citewire.write(changed, dialect)
    answers = citewire.read_all(written.payload, dialect)
    back = next((found for found in answers if found.id == changed.id), answers[0])

    assert unnamed(changed, back, written.losses) is None
    assert unjustified(changed, back, written.losses) == []


@pytest.mark.parametrize(("dialect", "payload"), PAYLOADS.values(), ids=PAYLOADS)
def test_a_part_that_is_not_changed_keeps_what_nobody_understood(dialect: str, payload: Any) -> None:
    """Everything that was in the payload and is not text, a citation or its number is still there."""
    answer = citewire.read(payload, dialect)
    longer_answer = longer(answer)
    written = citewire.write(longer_answer, dialect).payload
    if dialect == "ngaf" and isinstance(payload, list):
        return  # events that have become a thread, which is a named loss
    for odd in (
        "cache_control",
        "future_location",
        "logprobs",
        "reactions:flag.v1",
        "threadId",
        "usage",
        "model",
    ):
        assert (odd in repr(written)) == (odd in repr(payload)), odd


def test_the_text_of_a_part_is_the_model_s() -> None:
    answer = citewire.read(PAYLOADS["openai.responses"][1])
    changed = replace(answer, parts=(Part("Only this."),), citations=(), sources=())
    payload = citewire.write(changed, "openai.responses").payload
    assert citewire.read(payload).text == "Only this."
