"""The values: their flags, their names, and that nothing about them can be changed."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct
from msgspec.structs import replace

from citewire.model import (
    Answer,
    Blocks,
    Chars,
    Chunk,
    Citation,
    CitationStatus,
    Lines,
    Loss,
    Native,
    Opaque,
    Pages,
    Part,
    Point,
    Problem,
    Source,
    SourceRef,
    Span,
    Status,
    Times,
    Verification,
    Written,
    citation_status,
)
from support.strategies import answers, words


@pytest.mark.parametrize(
    ("status", "flags"),
    [
        ("verified", CitationStatus(is_verified=True)),
        ("partial", CitationStatus(is_partial_match=True)),
        ("altered", CitationStatus(is_miss=True)),
        ("missed", CitationStatus(is_miss=True)),
        ("pending", CitationStatus(is_pending=True)),
        ("skipped", CitationStatus()),
    ],
)
def test_citation_status(status: Status, flags: CitationStatus) -> None:
    assert citation_status(Verification(status)) == flags
    assert sum(flags) <= 1


def test_no_verdict_is_pending() -> None:
    assert citation_status(None) == CitationStatus(is_pending=True)


def test_citation_status_is_four_booleans() -> None:
    assert CitationStatus._fields == ("is_verified", "is_miss", "is_partial_match", "is_pending")


def full(native: Native | None) -> Answer:
    """An answer in which everything is set, and `native` is wherever one can be."""
    ref = SourceRef("s1", Pages(1, 2), "quote", "anchor", 0.5, native)
    verdict = Verification("partial", "reason", "words", 3, native)
    citation = Citation(
        "c1", (ref, ref), 1, Span(0, 0, 3), Span(0, 4, 7), Point(1, 2), "exact", verdict, native
    )
    source = Source(
        "s1", "web", "https://x.example", "T", "f", "id", "r", 0, "x.example", "S", {"a": [1]}, native
    )
    parts = (Part("One [1]", native), Part("Two", native))
    return Answer(parts, (citation,), (source,), "message", native=native)


def test_everything_is_set() -> None:
    """So that a new field cannot be forgotten below."""
    answer = full(Native("x"))
    citation = answer.citations[0]
    for value in (citation, citation.refs[0], citation.verification, answer.sources[0], answer.parts[0]):
        assert value is not None
        assert not [field for field in value.__struct_fields__ if getattr(value, field) is None]


def test_bare_drops_what_was_kept_and_nothing_else() -> None:
    native = Native("x", raw={"a": 1}, at=[1], kept=[2], was=3)
    assert full(native).bare() == full(None)


def with_natives(answer: Answer, native: Native) -> Answer:
    def kept(citation: Citation) -> Citation:
        verdict = citation.verification
        return replace(
            citation,
            refs=tuple(replace(ref, native=native) for ref in citation.refs),
            verification=verdict and replace(verdict, native=native),
            native=native,
        )

    return replace(
        answer,
        parts=tuple(replace(part, native=native) for part in answer.parts),
        citations=tuple(map(kept, answer.citations)),
        sources=tuple(replace(source, native=native) for source in answer.sources),
        native=native,
    )


@given(answers())
def test_bare_of_any_answer(answer: Answer) -> None:
    assert answer.bare() == answer
    assert with_natives(answer, Native("x", raw=1)).bare() == answer


FROZEN: list[Struct] = [
    full(Native("x")),
    full(None).citations[0],
    full(None).sources[0],
    Native("x"),
    Span(0, 0, 1),
    Point(0, 1),
    Chars(0, 1),
    Pages(1, 1),
    Blocks(0, 1),
    Lines((1,)),
    Times("00:00:01.000"),
    Chunk("c"),
    Opaque("o"),
    SourceRef("s1"),
    Verification("verified"),
    Part("text"),
    Problem("code", "$", "message"),
    Loss("claim", "reason"),
    Written({}),
]


@pytest.mark.parametrize("value", FROZEN, ids=lambda value: type(value).__name__)
def test_values_are_frozen(value: Struct) -> None:
    for field in value.__struct_fields__:
        with pytest.raises(AttributeError):
            setattr(value, field, None)


def test_metadata_is_not_shared() -> None:
    assert Source("a").metadata is not Source("b").metadata


@pytest.mark.parametrize(
    ("texts", "whole"),
    [
        ([], ""),
        (["a"], "a"),
        (["a", "b"], "a\n\nb"),
        (["", "b", ""], "\n\nb\n\n"),
        (["a\n", "b"], "a\n\n\nb"),
    ],
)
def test_text(texts: list[str], whole: str) -> None:
    assert Answer(tuple(map(Part, texts))).text == whole


@pytest.mark.parametrize(
    ("span", "covered"),
    [
        (Span(0, 0, 3), "One"),
        (Span(1, 0, 1), "📈"),
        (Span(1, 1, 3), "é\u0301"),
        (Span(1, 2, 2), ""),
        (Span(0, 0, 4), "One."),
    ],
)
def test_covered(span: Span, covered: str) -> None:
    """Code points of one part, whatever they look like."""
    assert Answer((Part("One."), Part("📈é\u0301"))).covered(span) == covered


@pytest.mark.parametrize(
    ("source", "label"),
    [
        (Source("s", title="T", filename="f", url="u"), "T"),
        (Source("s", filename="f.pdf", url="u"), "f.pdf"),
        (Source("s", url="https://x.example", file_id="id"), "https://x.example"),
        (Source("s", file_id="id", record_id="r"), "id"),
        (Source("s", record_id="r"), "r"),
        (Source("s"), "s"),
        (Source("s", title="", filename="", url=""), "s"),
    ],
)
def test_label(source: Source, label: str) -> None:
    assert source.label == label


texts = st.none() | st.just("") | words


@given(words, st.tuples(texts, texts, texts, texts, texts))
def test_a_label_is_never_empty(name: str, fields: tuple[Any, ...]) -> None:
    assert Source(name, "unknown", *fields).label


def test_source_of_a_ref() -> None:
    answer = full(None)
    assert answer.source(answer.citations[0].refs[0]) is answer.sources[0]
    with pytest.raises(KeyError):
        answer.source(SourceRef("other"))


@pytest.mark.parametrize(
    ("loss", "line"),
    [
        (Loss("claim", "no place", citation="c1"), "claim of c1: no place"),
        (Loss("source.title", "no place", source="s1"), "source.title of s1: no place"),
        (Loss("answer.id", "no place"), "answer.id: no place"),
    ],
)
def test_a_loss_reads_as_a_line(loss: Loss, line: str) -> None:
    assert str(loss) == line
