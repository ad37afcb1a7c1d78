"""Answers in another shape: what is covered stays covered, and markers go in and out without a trace."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from citewire.adapt import Adaptation
from citewire.answer_edits import Sentences, derive_claims, join_parts, remove_markers, split_refs
from citewire.model import Answer, Citation, Native, Part, Point, SourceRef, Span
from support.strategies import answers, texts


@given(answers())
def test_join_parts_keeps_what_is_covered(answer: Answer) -> None:
    joined = join_parts(answer)
    assert joined.text == answer.text
    assert len(joined.parts) == min(len(answer.parts), 1)
    for old, new in zip(answer.citations, joined.citations, strict=True):
        assert replace(new, claim=None, marker=None, insert_at=None) == replace(
            old, claim=None, marker=None, insert_at=None
        )
        for before, after in ((old.claim, new.claim), (old.marker, new.marker)):
            assert (before is None) == (after is None)
            assert not (before and after) or answer.covered(before) == joined.covered(after)
        if old.insert_at and new.insert_at:
            behind = answer.parts[old.insert_at.part].text[old.insert_at.at :]
            assert joined.parts[0].text[new.insert_at.at :].startswith(behind)


def test_join_parts() -> None:
    citation = Citation("c", claim=Span(1, 0, 3), marker=Span(1, 4, 7), insert_at=Point(0, 3))
    joined = join_parts(Answer((Part("One", Native("x")), Part("Two [1]")), (citation,)))
    assert joined.parts == (Part("One\n\nTwo [1]"),)
    assert joined.citations == (
        Citation("c", claim=Span(0, 5, 8), marker=Span(0, 9, 12), insert_at=Point(0, 3)),
    )


def marked(text: str, *markers: str, claim: str = "") -> Answer:
    """An answer of one part; each of `markers` stands in `text`, and all support `claim`."""
    spans = [Span(0, text.index(marker), text.index(marker) + len(marker)) for marker in markers]
    support = Span(0, text.index(claim), text.index(claim) + len(claim)) if claim else None
    cited = [Citation(f"c{number}", claim=support, marker=span) for number, span in enumerate(spans, 1)]
    return Answer((Part(text),), tuple(cited))


@pytest.mark.parametrize(
    ("text", "markers", "left", "points"),
    [
        ("It grew [1]. Costs fell.", ["[1]"], "It grew. Costs fell.", [7]),
        ("It grew. [1] Costs fell.", ["[1]"], "It grew. Costs fell.", [8]),
        ("It grew.[1] Costs fell.", ["[1]"], "It grew. Costs fell.", [8]),
        ("See [1] and [2] too.", ["[1]", "[2]"], "See and too.", [3, 7]),
        ("It grew [1][2].", ["[1]", "[2]"], "It grew.", [7, 7]),
        ("It grew [1] [2].", ["[1]", "[2]"], "It grew.", [7, 7]),
        ("It grew [1]", ["[1]"], "It grew", [7]),
        ("It grew [1]fast", ["[1]"], "It grew fast", [8]),
        ("It[1]grew", ["[1]"], "Itgrew", [2]),
        ("[1] It grew", ["[1]"], " It grew", [0]),
        ("增长【1†a】。", ["【1†a】"], "增长。", [2]),
        ("It grew ([x](u)).", ["([x](u))"], "It grew.", [7]),
        ("[1]", ["[1]"], "", [0]),
        ("No markers.", [], "No markers.", []),
    ],
)
def test_take_markers_out(text: str, markers: list[str], left: str, points: list[int]) -> None:
    bare = remove_markers(marked(text, *markers))
    assert bare.text == left
    assert [citation.marker for citation in bare.citations] == [None] * len(markers)
    assert [citation.insert_at for citation in bare.citations] == [Point(0, at) for at in points]


def test_a_claim_moves_with_its_text() -> None:
    before = marked("One [1]. Two [2]. Three.", "[1]", "[2]", claim="One [1]. Two")
    after = remove_markers(before)
    assert [after.covered(citation.claim) for citation in after.citations if citation.claim] == [
        "One. Two"
    ] * 2


def test_a_point_that_is_there_stays() -> None:
    answer = marked("One [1]. Two.", "[1]")
    answer = replace(answer, citations=(replace(answer.citations[0], insert_at=Point(0, 13)),))
    assert remove_markers(answer).citations[0].insert_at == Point(0, 9)


def test_only_the_named_markers_leave() -> None:
    answer = marked("One [1]. Two [2].", "[1]", "[2]")
    after = remove_markers(answer, {answer.citations[0].marker})
    assert after.text == "One. Two [2]."
    second = after.citations[1].marker
    assert second is not None
    assert after.covered(second) == "[2]"


def test_markers_that_overlap_leave_together() -> None:
    answer = Answer(
        (Part("One [1]. Two."),), (Citation("a", marker=Span(0, 4, 7)), Citation("b", marker=Span(0, 3, 6)))
    )
    assert remove_markers(answer).text == "One. Two."


def inserted(answer: Answer, *, padded: bool) -> Answer:
    fitting = Adaptation(answer, "test")
    fitting.insert_markers(lambda citation: f"[^{citation.id}]", padded=padded)
    return fitting.answer


@pytest.mark.parametrize(
    ("text", "at", "plain", "padded"),
    [
        ("It grew. Costs fell.", 8, "It grew.[^c] Costs fell.", "It grew. [^c] Costs fell."),
        ("It grew. Costs fell.", 7, "It grew[^c]. Costs fell.", "It grew [^c]. Costs fell."),
        ("It grew. Costs fell.", 20, "It grew. Costs fell.[^c]", "It grew. Costs fell. [^c]"),
        ("It grew. Costs fell.", 9, "It grew. [^c]Costs fell.", "It grew. [^c]Costs fell."),
        ("It grew. Costs fell.", 4, "It g[^c]rew. Costs fell.", "It g[^c]rew. Costs fell."),
        ("It grew ", 8, "It grew  [^c]", "It grew  [^c]"),
    ],
)
def test_insert_markers(text: str, at: int, plain: str, padded: str) -> None:
    answer = Answer((Part(text),), (Citation("c", insert_at=Point(0, at)),))
    assert inserted(answer, padded=False).text == plain
    assert inserted(answer, padded=True).text == padded


@pytest.mark.parametrize("padded", [False, True])
@given(answer=answers(), refused=st.sets(st.sampled_from(["c1", "c2", "k"])))
def test_inserting_and_taking_out_undo_each_other(padded: bool, answer: Answer, refused: set[str]) -> None:
    answer = answer if answer.parts else replace(answer, citations=())
    fitting = Adaptation(answer, "test")
    fitting.insert_markers(
        lambda citation: None if citation.id in refused else f"[^{citation.id}]", padded=padded
    )
    marked = fitting.answer
    new = {
        after.marker
        for before, after in zip(answer.citations, marked.citations, strict=True)
        if after.marker and before.marker is None
    }
    assert len(new) == len([loss for loss in fitting.losses if loss.field == "marker"])
    assert all(marked.covered(marker).startswith("[^") for marker in new)

    restored = remove_markers(marked, {*new})
    assert restored.parts == answer.parts
    for before, after in zip(answer.citations, restored.citations, strict=True):
        assert after.claim == before.claim
        assert after.marker == before.marker
        assert before.insert_at in {None, after.insert_at}


@given(answers())
def test_inserted_markers_read_as_they_were_written(answer: Answer) -> None:
    answer = answer if answer.parts else replace(answer, citations=())
    after = inserted(answer, padded=True)
    for before, citation in zip(answer.citations, after.citations, strict=True):
        if citation.marker and before.marker is None:
            assert after.covered(citation.marker) == f"[^{citation.id}]"
            assert citation.insert_at is None


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        pytest.param("One. Two grew.|", "Two grew.", id="after the full stop"),
        pytest.param("One. Two grew. |", "Two grew.", id="after the space behind it"),
        pytest.param("One. Two grew|. Three.", "Two grew", id="before the full stop"),
        pytest.param("One. Two grew| fast.", "Two grew", id="within a sentence"),
        pytest.param("Only one|", "Only one", id="the first sentence"),
        pytest.param("Really? Yes! It did.|", "It did.", id="question and exclamation marks"),
        pytest.param("Wait… It did.|", "It did.", id="ellipsis"),
        pytest.param('He said "no." Then it grew.|', "Then it grew.", id="closing quote"),
        pytest.param("(It fell.) It grew.|", "It grew.", id="closing bracket"),
        pytest.param("**It fell.** It grew.|", "It grew.", id="emphasis"),
        pytest.param("Intro:\n- It grew|\n- It fell", "It grew", id="list item"),
        pytest.param("* one\n* It grew.|", "It grew.", id="starred list item"),
        pytest.param("1. It fell\n2. It grew|", "It grew", id="numbered list item"),
        pytest.param("1) it grew|", "it grew", id="numbered with a bracket"),
        pytest.param("# Head\n> It grew|", "It grew", id="block quote"),
        pytest.param("Head\n\nIt grew|", "It grew", id="paragraph"),
        pytest.param("It fell\nIt grew|", "It grew", id="newline"),
        pytest.param("It fell\r\nIt grew|", "It grew", id="CRLF"),
        pytest.param("One. The U.S. economy grew.|", "The U.S. economy grew.", id="U.S."),
        pytest.param("One. The U.S. Senate agreed.|", "The U.S. Senate agreed.", id="U.S. before a capital"),
        pytest.param("It fell, e.g. in May.|", "It fell, e.g. in May.", id="e.g."),
        pytest.param("One. It grew 4.5 percent.|", "It grew 4.5 percent.", id="decimal"),
        pytest.param("See example.com now.|", "See example.com now.", id="domain"),
        pytest.param("收入增长。成本下降。|", "成本下降。", id="CJK"),
        pytest.param("收入增长。成本下降|。", "成本下降", id="CJK, before the full stop"),
        pytest.param("真的吗？是的！|", "是的！", id="CJK question mark"),
        pytest.param(" It grew.|", "It grew.", id="space in front"),
        pytest.param("  - It grew.|", "It grew.", id="indented list item"),
        pytest.param("增长。 it grew|", "it grew", id="CJK, then a space"),
        pytest.param("|It grew.", None, id="nothing in front"),
        pytest.param("  \n |It grew.", None, id="only space in front"),
        pytest.param("- |It grew.", None, id="only a list mark in front"),
    ],
)
def test_sentence_before(text: str, sentence: str | None) -> None:
    at = text.index("|")
    text = text.replace("|", "", 1)
    found = Sentences(text).sentence_before(Point(3, at))
    assert (found and text[found.start : found.end]) == sentence
    assert found is None or found.part == 3


@given(texts)
def test_a_sentence_ends_at_its_point(text: str) -> None:
    sentences = Sentences(text)
    for at in range(len(text) + 1):
        found = sentences.sentence_before(Point(0, at))
        if found:
            sentence = text[found.start : found.end]
            assert sentence.strip() == sentence != ""
            assert text[found.end : at].strip() == ""


def test_sentences_without_end_finish() -> None:
    text = "word " * 200_000
    sentences = Sentences(text)
    for at in range(0, len(text), 50):
        sentences.sentence_before(Point(0, at))


@given(answers())
def test_derived_claims_are_marked_as_such(answer: Answer) -> None:
    answer = answer if answer.parts else replace(answer, citations=())
    claimed = derive_claims(answer, lambda citation: citation.id != "k")
    for before, after in zip(answer.citations, claimed.citations, strict=True):
        if before.claim or before.insert_at is None or before.id == "k" or after.claim is None:
            assert after is before
        else:
            assert after == replace(before, claim=after.claim, span_origin="derived")


def test_split_refs() -> None:
    one, two, three = SourceRef("s1"), SourceRef("s2", quote="q"), SourceRef("s1", quote="r")
    native, claim = Native("x"), Span(0, 0, 3)
    answer = Answer(
        (Part("One"),),
        (Citation("a", (one, two, three), 1, claim, native=native), Citation("b", (two,)), Citation("c")),
    )
    assert split_refs(answer).citations == (
        Citation("a", (one,), 1, claim, native=native),
        Citation("a.2", (two,), 1, claim),
        Citation("a.3", (three,), 1, claim),
        Citation("b", (two,)),
        Citation("c"),
    )


@given(answers())
def test_split_refs_keeps_every_ref(answer: Answer) -> None:
    split = split_refs(answer)
    assert [ref for citation in split.citations for ref in citation.refs] == [
        ref for citation in answer.citations for ref in citation.refs
    ]
    assert all(len(citation.refs) <= 1 for citation in split.citations)
    assert len({citation.id for citation in split.citations}) == len(split.citations)


def test_split_refs_never_gives_an_id_twice() -> None:
    refs = (SourceRef("s1"), SourceRef("s2"))
    for citations in ((Citation("a", refs), Citation("a.2")), (Citation("a.2"), Citation("a", refs))):
        names = [citation.id for citation in split_refs(Answer(citations=citations)).citations]
        assert len(set(names)) == 3


def test_a_loss_is_named_once_with_its_first_reason() -> None:
    fitting = Adaptation(Answer(), "test")
    for reason in ("first", "second"):
        fitting.record_loss("claim", reason, citation="a")
        fitting.record_loss("claim", reason, citation="b")
    assert list(map(str, fitting.losses)) == ["claim of a: first", "claim of b: first"]


def test_losses_speak_of_citations_by_their_first_id() -> None:
    answer = Answer((Part("One"),), (Citation("a", (SourceRef("s1"), SourceRef("s2"))),))
    fitting = Adaptation(answer, "test")
    fitting.split_refs()
    fitting.record_loss("claim", "no place", citation="a.2")
    assert [(loss.field, loss.citation) for loss in fitting.losses] == [("refs", "a"), ("claim", "a")]
