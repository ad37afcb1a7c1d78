"""Quotes against documents: the right one, the right page, and what is to be said of the place."""

from __future__ import annotations

import numpy as np
import pytest

from citewire.documents.document import Aside
from citewire.verification.document_set import DocumentSet
from citewire.verification.expected_place import ExpectedPlace
from support.library_documents import OTHER, PAGES, REPORT, document

LIBRARY = DocumentSet([REPORT, OTHER])


def test_a_quote_is_found_in_the_source_that_has_it() -> None:
    checked = LIBRARY.check("Guests pay 60 dollars", name="q")
    assert (checked.id, checked.status, checked.source, checked.page) == (
        "q",
        "verified",
        "docs/guests.txt",
        1,
    )
    assert checked.found == "Guests pay 60 dollars"


@pytest.mark.parametrize(
    "name", ["guests.txt", "GUESTS", "docs/guests.txt", "https://example.com/guests", OTHER.sha256]
)
def test_a_source_has_many_names(name: str) -> None:
    assert LIBRARY.check("Guests pay 60 dollars", source=name).status == "verified"
    assert LIBRARY.check("The deposit is 15 dollars", source=name).status == "missed"


def test_a_quote_goes_on_over_a_page() -> None:
    checked = LIBRARY.check("it covers all members of the club for a year")
    assert (checked.status, checked.page) == ("verified", 1)
    assert checked.warnings == ("crosses pages 1 to 2",)
    assert REPORT.text[checked.start : checked.end].endswith("club for a year")


@pytest.mark.parametrize(
    ("pages", "page", "warnings"),
    [
        pytest.param((), 1, ("in 2 places",), id="no page"),
        pytest.param((3,), 3, ("in 2 places",), id="the page that it names"),
        pytest.param((2,), 1, ("on page 1, not 2", "in 2 places"), id="another page"),
    ],
)
def test_a_page_only_breaks_a_tie(pages: tuple[int, ...], page: int, warnings: tuple[str, ...]) -> None:
    checked = LIBRARY.check("The fee is 40 dollars", near=ExpectedPlace(pages))
    assert (checked.status, checked.page, checked.warnings) == ("verified", page, warnings)


def test_what_differs_is_said() -> None:
    checked = LIBRARY.check("The deposit is 51 dollars")
    assert (checked.status, checked.page) == ("altered", 2)
    assert [(each.quote, each.source, each.kind) for each in checked.diff] == [
        ("51 dollars", "15 dollars", "number")
    ]


@pytest.mark.parametrize(
    ("library", "source", "reason"),
    [
        pytest.param(DocumentSet(), None, "there is no source", id="no sources"),
        pytest.param(LIBRARY, "nobody.pdf", "no source is called nobody.pdf", id="unknown source"),
        pytest.param(DocumentSet([document([" \n"])]), None, "no text layer", id="no text"),
    ],
)
def test_what_cannot_be_checked_is_skipped(library: DocumentSet, source: str | None, reason: str) -> None:
    checked = library.check("The fee is 40 dollars", source=source)
    assert (checked.status, checked.reason) == ("skipped", reason)


def test_hidden_text_is_said_to_be() -> None:
    hidden = document(["Shown. The fee is waived for staff.\n"], asides=(Aside(7, 35, "hidden"),))
    assert DocumentSet([hidden]).check("The fee is waived for staff").warnings == ("the text is hidden",)


def test_boxes_cover_the_lines_of_a_quote() -> None:
    text = PAGES[0]
    boxes = np.array(
        [[at, 0, at + 1, 1] if char != "\n" else [np.nan] * 4 for at, char in enumerate(text)], np.float32
    )
    held = document([text], boxes=boxes)
    checked = DocumentSet([held]).check("Annual report The fee is 40 dollars")
    assert [(box.left, box.right) for box in checked.boxes] == [(0, 13), (14, 35)]


def test_of_many_documents_the_right_ones_are_searched() -> None:
    """Whatever differs: only where a quote may be it is looked for in full."""
    many = [
        document([f"Member {n} of the {n * 7} clubs in town pays {n + 40} dollars a year.\n"], f"{n}.txt")
        for n in range(40)
    ]
    library = DocumentSet([*many, document([" \n"], "empty.txt")])
    for quote, status, source in (
        ("Member 31 of the 217 clubs in town pays 71 dollars", "verified", "31.txt"),
        ("Member 31 of the 217 clubs in town pays 72 dollars", "altered", "31.txt"),
        ("member 31 of the 217 clubs in twon pays 71 dollars", "altered", "31.txt"),
        ("clubs in town pays", "verified", "0.txt"),
        ("town", "verified", "0.txt"),
        ("nobody has ever written down such words", "missed", None),
        ("...", "skipped", None),
    ):
        checked = library.check(quote)
        assert (quote, checked.status, checked.source) == (quote, status, source)
