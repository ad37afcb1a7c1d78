"""Where a quote is said to stand: what is said where it stands elsewhere, and which of equals is taken."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from citewire.documents.document import Document
from citewire.documents.html import read_html
from citewire.documents.pdf import read_pdf
from citewire.documents.text import read_text
from citewire.extraction import prompt
from citewire.model import LINE_STEP, Chars, Lines, Locator, Pages, Source, SourceRef
from citewire.verification.document_set import DocumentSet, SearchedDocument
from citewire.verification.expected_place import ANYWHERE, ExpectedPlace
from support.library_documents import REPORT, apart, document
from support.page_layouts import LEFT, RIGHT, two_columns
from support.pdfs import Line, Sheet, make_pdf

COUNT = 20
WORDS = ["north", "south", "river", "harbour", "winter", "summer", "silver", "copper", "garden", "market"]


def line(page: int, number: int) -> str:
    return f"The {WORDS[number % 10]} {WORDS[(number * 3 + page) % 10]} took {page * 100 + number} days."


PAGES = [[line(page, number) for number in range(1, COUNT + 1)] for page in (1, 2)]


def in_pdf() -> Document:
    sheets = [Sheet([Line(text, y=760 - 14 * row) for row, text in enumerate(page)]) for page in PAGES]
    return read_pdf(make_pdf(*sheets), sha256="0")


def in_text() -> Document:
    return read_text("\f".join("\n".join(page) for page in PAGES).encode(), sha256="0")


def in_html() -> Document:
    """It has one page, whatever it says."""
    return read_html("".join(f"<p>{text}</p>" for text in PAGES[0]).encode(), sha256="0")


@pytest.mark.parametrize("read", [in_pdf, in_text, in_html])
@pytest.mark.parametrize(
    ("near", "remarks"),
    [
        pytest.param(ANYWHERE, (), id="nothing"),
        pytest.param(ExpectedPlace((1,), (12,)), (), id="the line"),
        pytest.param(ExpectedPlace((1,), (11,)), (), id="the nearest of the prompt"),
        pytest.param(ExpectedPlace((1,), (12 - LINE_STEP + 1,)), (), id="as far before as it may be"),
        pytest.param(ExpectedPlace((1,), (12 + LINE_STEP - 1,)), (), id="as far behind as it may be"),
        pytest.param(ExpectedPlace((1,), (12 - LINE_STEP,)), ("on line 12, not 7",), id="too far before"),
        pytest.param(ExpectedPlace((1,), (12 + LINE_STEP,)), ("on line 12, not 17",), id="too far behind"),
        pytest.param(ExpectedPlace((1,), (999,)), ("on line 12, not 999",), id="no such line"),
        pytest.param(ExpectedPlace((), (2,)), ("on line 12, not 2",), id="no page"),
        pytest.param(ExpectedPlace((1,), (1, 11)), (), id="one of several"),
        pytest.param(
            ExpectedPlace((1,), tuple(range(20, 30))), ("on line 12, not 20, 21, 22, 23, 24, …",), id="many"
        ),
        pytest.param(ExpectedPlace((7,), (2,)), ("on page 1, not 7",), id="another page has other lines"),
        pytest.param(ExpectedPlace((7, 1), (2,)), ("on line 12, not 2",), id="one of several pages"),
    ],
)
def test_a_line_that_is_not_where_it_is_said_to_be(
    read: Callable[[], Document], near: ExpectedPlace, remarks: tuple[str, ...]
) -> None:
    checked = DocumentSet([read()]).check(line(1, 12), near=near)
    assert (checked.status, checked.warnings) == ("verified", remarks)


@pytest.mark.parametrize("read", [in_pdf, in_text])
@pytest.mark.parametrize(
    ("near", "remarks"),
    [
        pytest.param(ExpectedPlace((2,), (3,)), (), id="on its page"),
        pytest.param(ExpectedPlace((), (3,)), (), id="on a page"),
        pytest.param(ExpectedPlace((), (COUNT + 3,)), (), id="in the document"),
        pytest.param(
            ExpectedPlace((2,), (COUNT + 3,)), (f"on line 3, not {COUNT + 3}",), id="not on its page"
        ),
        pytest.param(ExpectedPlace((), (13,)), ("on line 3, not 13",), id="neither"),
    ],
)
def test_lines_count_on_their_page(
    read: Callable[[], Document], near: ExpectedPlace, remarks: tuple[str, ...]
) -> None:
    assert DocumentSet([read()]).check(line(2, 3), near=near).warnings == remarks


@pytest.mark.parametrize(
    ("near", "remarks"),
    [
        pytest.param(ExpectedPlace((1,), (COUNT,)), (), id="the first page"),
        pytest.param(ExpectedPlace((2,), (2,)), (), id="the second"),
        pytest.param(ExpectedPlace((2,), (COUNT,)), (f"on line 1, not {COUNT}",), id="not on the second"),
    ],
)
def test_a_quote_over_two_pages_has_lines_on_both(near: ExpectedPlace, remarks: tuple[str, ...]) -> None:
    checked = DocumentSet([in_text()]).check(f"{line(1, COUNT)} {line(2, 1)}", near=near)
    assert checked.warnings == (*remarks, "crosses pages 1 to 2")


@pytest.mark.parametrize("lines", [[], [0]], ids=["none", "one"])
def test_of_a_text_without_lines_none_is_spoken(lines: list[int]) -> None:
    held = replace(in_text(), lines=np.array(lines, np.int32))
    assert DocumentSet([held]).check(line(1, 12), near=ExpectedPlace((1,), (2,))).warnings == ()


@pytest.mark.parametrize("number", range(1, COUNT + 1))
def test_a_line_that_the_prompt_numbers_next_to_a_quote_is_right(number: int) -> None:
    shown = prompt([in_text()]).partition("<page_number_2_index_1>")[2].splitlines()[1:]
    told = {
        at: int(found[1])
        for at, text in enumerate(shown, 1)
        if (found := re.match(r'<line id="(\d+)"', text))
    }
    before = [name for at, name in told.items() if at <= number][-1:]
    behind = [name for at, name in told.items() if at >= number][:1]
    for name in (*before, *behind):
        assert (
            DocumentSet([in_text()]).check(line(2, number), near=ExpectedPlace((2,), (name,))).warnings == ()
        )


FEE = "The fee is 40 dollars."
TIED = document(
    [
        f"For members of the club:\n{FEE}\nIt is due in May.\n"
        f"For guests from abroad:\n{FEE}\nIt is due at once.\n"
        f"Nobody else may come.\nFor chil-\ndren of members:\n{FEE}\nIt is waived.\n",
        f"For guests from abroad:\n{FEE}\nIt is due at once.\n",
    ]
)
STARTS = [at.start() for at in re.finditer(re.escape(FEE), TIED.text)]


@pytest.mark.parametrize(
    ("near", "place"),
    [
        pytest.param(ANYWHERE, 0, id="the first"),
        pytest.param(ExpectedPlace(before="For guests from abroad: "), 1, id="before"),
        pytest.param(ExpectedPlace(after=" It is due at once."), 1, id="after"),
        pytest.param(ExpectedPlace(after="\n\nIt is WAIVED"), 2, id="however it is set"),
        pytest.param(ExpectedPlace(before="children of members"), 2, id="over the end of a line"),
        pytest.param(
            ExpectedPlace(before="guests from abroad", after="It is waived."), 1, id="what fits more"
        ),
        pytest.param(ExpectedPlace((2,), before="For members of the club:"), 3, id="the page counts more"),
        pytest.param(ExpectedPlace((1,), before="For guests from abroad:"), 1, id="page and context"),
        pytest.param(ExpectedPlace(lines=(10,)), 2, id="the line"),
        pytest.param(ExpectedPlace((1,), (10,), "For guests from abroad:"), 1, id="the line counts less"),
        pytest.param(ExpectedPlace((1,), (6,)), 1, id="the nearest line"),
        pytest.param(ExpectedPlace(before="Nothing of that kind"), 0, id="what fits nowhere"),
        pytest.param(ExpectedPlace((1,), (10,), "upon a road:"), 2, id="what fits by chance"),
        pytest.param(ExpectedPlace((1,), (10,), after="... "), 2, id="nothing but marks"),
    ],
)
def test_of_equally_good_places_the_nearest_is_taken(near: ExpectedPlace, place: int) -> None:
    """That there are others is said all the same."""
    checked = DocumentSet([TIED]).check(FEE, near=near)
    assert (checked.status, checked.start) == ("verified", STARTS[place])
    assert "in 4 places" in checked.warnings


def test_a_worse_place_is_not_taken_for_what_is_around_it() -> None:
    text = "It was said: the fee is 41 dollars, and paid.\nIn short: the fee is 40 dollars, and due.\n"
    near = ExpectedPlace((1,), (1,), "It was said:", ", and paid.")
    checked = DocumentSet([document([text])]).check("the fee is 40 dollars", near=near)
    assert (checked.status, checked.start) == ("verified", text.index("the fee is 40"))


def test_ties_around_running_headers_are_broken_too() -> None:
    pages = ["Head\nThe dues of all the\n1\n", "Head\nmembers are low.\n2\n"] * 2
    held = DocumentSet([document(pages, asides=apart(pages))])
    for near, page in ((ANYWHERE, 1), (ExpectedPlace((3,)), 3), (ExpectedPlace((4,)), 3)):
        checked = held.check("The dues of all the members are low", near=near)
        assert (checked.status, checked.page) == ("verified", page)
        assert "in 2 places" in checked.warnings


def test_ties_between_columns_are_broken_too() -> None:
    sheets = make_pdf(two_columns(), Sheet([Line("Nothing is said here.")]), two_columns())
    held = DocumentSet([read_pdf(sheets, sha256="0")])
    quote = " ".join([RIGHT[1], RIGHT[2]])
    for near, page in ((ANYWHERE, 1), (ExpectedPlace((3,)), 3)):
        checked = held.check(quote, near=near)
        assert (checked.status, checked.page, checked.edits) == ("verified", page, ("reading order",))


MANY = document([f"{FEE}\n" * 50, f"Nothing.\n{FEE}\n", f"{FEE.upper()}\n"])


@pytest.mark.parametrize(
    ("named", "page", "remarks"), [((2,), 2, ()), ((4, 2), 2, ()), ((4,), 1, ("on page 1, not 4",))]
)
def test_a_page_is_found_among_more_places_than_are_looked_at(
    named: tuple[int, ...], page: int, remarks: tuple[str, ...]
) -> None:
    checked = DocumentSet([MANY]).check(FEE, near=ExpectedPlace(named))
    assert (checked.status, checked.page, checked.found) == ("verified", page, FEE.rstrip("."))
    assert checked.warnings == (*remarks, "in 40 places")


COLUMNS = read_pdf(make_pdf(two_columns(), two_columns()), sha256="0")
SCANNED = replace(
    TIED,
    pages=(TIED.pages[0], replace(TIED.pages[1], ocr=True)),
    confidence=np.where(np.arange(len(TIED.text)) < TIED.pages[0].end, 100, 40).astype(np.uint8),
)
HELD = [SearchedDocument(each) for each in (REPORT, TIED, MANY, COLUMNS, SCANNED)]
QUOTES = [
    FEE,
    "The fee is 40 dollars",
    "The fee is 4O dollars. It is due",
    "The fes is 40 dollars.",
    "It covers all members of the club for a year",
    "The deposit is 16 dollars",
    f"{LEFT[2]} {LEFT[3]} neering report",
    f"{RIGHT[1]} {RIGHT[2]}",
    "nobody has ever written down such words",
    "...",
]
AROUND = st.one_of(
    st.text(max_size=20),
    st.sampled_from(["For guests from abroad:", "It is due at once", "Annual report", "\ud800"]),
)


@given(
    st.sampled_from(HELD),
    st.sampled_from(QUOTES),
    st.builds(
        ExpectedPlace,
        st.lists(st.integers(-1, 5), max_size=3).map(tuple),
        st.lists(st.integers(-1, 20), max_size=3).map(tuple),
        AROUND,
        AROUND,
    ),
    st.booleans(),
)
def test_what_becomes_of_a_quote_does_not_depend_on_it(
    held: SearchedDocument, quote: str, near: ExpectedPlace, thorough: bool
) -> None:
    plain, found = (
        held.judge_quote(quote, thorough=thorough),
        held.judge_quote(quote, near, thorough=thorough),
    )
    assert (found.status, found.rank, found.places) == (plain.status, plain.rank, plain.places)
    assert held.to_result(found, near).status == plain.status


@pytest.mark.parametrize(
    ("locator", "snippet", "near"),
    [
        pytest.param(None, None, ANYWHERE, id="nothing"),
        pytest.param(Pages(3, 5), None, ExpectedPlace((3, 4, 5)), id="pages"),
        pytest.param(Pages(5, 3), None, ANYWHERE, id="no pages"),
        pytest.param(Pages(1, 10**12), None, ANYWHERE, id="all pages"),
        pytest.param(Lines((4, 9), 2), None, ExpectedPlace((2,), (4, 9)), id="lines of a page"),
        pytest.param(Lines((4,)), None, ExpectedPlace((), (4,)), id="lines"),
        pytest.param(Chars(3, 9), None, ANYWHERE, id="characters"),
        pytest.param(
            None, f"Long ago. {FEE} Not now.", ExpectedPlace((), (), "Long ago. ", " Not now."), id="snippet"
        ),
        pytest.param(None, "Something else.", ANYWHERE, id="a snippet without it"),
        pytest.param(None, FEE, ANYWHERE, id="a snippet of it"),
    ],
)
def test_what_a_reference_says(locator: Locator | None, snippet: str | None, near: ExpectedPlace) -> None:
    assert ExpectedPlace.from_reference(SourceRef("s", locator, FEE), Source("s", snippet=snippet)) == near
    assert ExpectedPlace.from_reference(SourceRef("s", locator)) == ExpectedPlace.from_reference(
        SourceRef("s", locator), Source("s", snippet=snippet)
    )
