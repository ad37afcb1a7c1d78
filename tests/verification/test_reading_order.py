"""Quotes read in another order than the text has: by columns, around notes, from the left."""

from __future__ import annotations

import hashlib
from itertools import pairwise
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from citewire.documents.document import Document, Page
from citewire.documents.pdf import read_pdf
from citewire.verification.bidi import reverse_rtl_lines
from citewire.verification.document_set import DocumentSet
from support.page_layouts import LEFT, NOTE, RIGHT, columns, two_columns
from support.pdfs import Line, Sheet, make_pdf

PROSE = " ".join([*LEFT, *RIGHT]).replace("engi- neering", "engineering")


def library(*sheets: Sheet) -> tuple[DocumentSet, Document]:
    data = make_pdf(*sheets)
    document = read_pdf(data, sha256=hashlib.sha256(data).hexdigest(), name="report.pdf")
    return DocumentSet([document]), document


LIBRARY, DOCUMENT = library(two_columns())


@pytest.mark.parametrize(
    "quote",
    [
        pytest.param("approved a loan of 40 million for the new pier", id="two lines of a column"),
        pytest.param("a second opinion on the engineering report", id="hyphen"),
        pytest.param("three risks and one remedy. The remedy was found to cost more", id="next column"),
        pytest.param(PROSE, id="all of it"),
    ],
)
def test_columns_are_read_down(quote: str) -> None:
    checked = LIBRARY.check(quote)
    assert (checked.status, checked.page) == ("verified", 1)
    assert "reading order" in checked.edits
    assert len({(box.left, box.top) for box in checked.boxes}) == len(checked.boxes) >= 2


def test_boxes_are_those_of_the_pieces_only() -> None:
    checked = LIBRARY.check("members did not ask for a second opinion")
    assert all(box.right < 320 for box in checked.boxes)


def test_a_quote_goes_on_over_a_page() -> None:
    held, _ = library(two_columns(), Sheet([Line("Nobody was asked to explain that.", 72, 700, 11)]))
    checked = held.check("bids were lower than expected. Nobody was asked to explain")
    assert (checked.status, checked.warnings[:1]) == ("verified", ("crosses pages 1 to 2",))


@pytest.mark.parametrize(
    "quote",
    [
        pytest.param("approved a loan of 40 million for for a second opinion", id="a line left out"),
        pytest.param("the new pier. approved a loan of 40 million", id="lines swapped"),
        pytest.param("which had named three risks. The remedy was found", id="the end of a line left out"),
        pytest.param("three risks and one remedy. The the pier itself", id="the head of a column left out"),
        pytest.param("for a second opinion on the engineering remedy was found", id="the foot left out"),
        pytest.param("approved a loan of 45 million for the new pier", id="a number changed"),
        pytest.param("Members did ask for a second opinion on the", id="a negation dropped"),
        pytest.param("Members did not ask for a second opinion the report", id="words dropped"),
    ],
)
def test_what_leaves_something_out_is_not_another_order(quote: str) -> None:
    assert LIBRARY.check(quote).status in ("altered", "missed")


def test_columns_are_not_read_across() -> None:
    left, right = columns()
    held, _ = library(Sheet([*left, Line(NOTE, 72, 590, 7), *right]))
    quote = "The harbour board met in May and remedy was found to cost more than"
    assert held.check(quote).status in ("altered", "missed")
    assert held.check("three risks and one remedy. The remedy was found to cost").status == "verified"


@given(st.data())
def test_no_words_can_be_left_out_within(data: st.DataObject) -> None:
    words = PROSE.split()
    start = data.draw(st.integers(0, len(words) - 8))
    end = data.draw(st.integers(start + 8, min(len(words), start + 40)))
    first = data.draw(st.integers(start + 2, end - 4))
    last = data.draw(st.integers(first + 1, min(end - 2, first + 10)))
    quote = " ".join([*words[start:first], *words[last:end]])
    if quote not in PROSE:
        checked = LIBRARY.check(quote)
        # An article more or less is the one thing that may differ, in any order.
        assert checked.status in ("altered", "missed") or (checked.reason or "").startswith("article:")


def test_lines_that_go_up_are_not_read_down() -> None:
    """A page that is drawn as in a mirror has its lines from the bottom up, as its text says."""
    sheet = Sheet([Line(line, 72, 400 + 14 * row, 11) for row, line in enumerate(LEFT[:3])])
    held, _ = library(sheet)
    assert held.check("the new pier. Members did not ask approved a loan of 40 million for").status in (
        "altered",
        "missed",
    )


def test_a_page_of_a_thousand_cells_takes_few_steps() -> None:
    """Every cell says the same, so that every one may follow every other."""
    cells = [
        Line("same words", 40 + 100 * column, 800 - 7 * row, 6) for row in range(100) for column in range(5)
    ]
    held, _ = library(Sheet(cells))
    assert held.check("same words " * 12 + "and others").status in ("altered", "missed")


HEBREW = "כל בני האדם נולדו בני חורין\nושווים בערכם ובזכויותיהם 1948 לספירה"


def test_text_from_the_left_is_found() -> None:
    visual = "".join(line[::-1].replace("8491", "1948") + "\n" for line in HEBREW.splitlines())
    text = f"Rights\n{visual}"
    sha256 = hashlib.sha256(text.encode()).hexdigest()
    lines = np.array([0, 7], np.int32)
    held = DocumentSet([Document(sha256, "text", text, (Page(1, 0, len(text)),), lines)])
    checked = held.check("נולדו בני חורין ושווים בערכם ובזכויותיהם 1948")
    assert (checked.status, checked.edits[-1:]) == ("verified", ("reading order",))
    assert held.check("נולדו בני חורין ושווים בערכם ובזכויותיהם 1949").status in ("altered", "missed")


@given(st.text(st.sampled_from("אבגדش 12.a \n("), max_size=60))
def test_turning_around_moves_characters_within_their_lines(text: str) -> None:
    found = reverse_rtl_lines(text)
    if found is None:
        assert not set(text) & set("אבגדش")
        return
    turned, places = found
    assert "".join(text[place] for place in places) == turned
    assert sorted(places) == list(range(len(text)))
    breaks = [-1, *(at for at, char in enumerate(text) if char == "\n"), len(text)]
    assert all(set(places[a + 1 : b]) == set(range(a + 1, b)) for a, b in pairwise(breaks))


def test_any_part_of_a_column_is_found() -> None:
    random = Random(1)
    words = PROSE.split()
    for _ in range(40):
        start = random.randrange(len(words) - 6)
        quote = " ".join(words[start : start + random.randrange(6, 25)])
        if quote.startswith("million") or quote.endswith("40"):  # half of a number is another
            continue
        assert LIBRARY.check(quote).status == "verified", quote
