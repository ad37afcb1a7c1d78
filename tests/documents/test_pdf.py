"""PDFs made here, and the real ones of the shared corpus: text, lines, boxes, headers and what is wrong."""

import ctypes
import random
import re
import unicodedata
from functools import cache
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from citewire.documents.document import Box, Document
from citewire.documents.errors import DocumentError, EncryptedDocument
from citewire.documents.pdf import read_pdf
from support.cases import CASES, need_cases
from support.pdfs import HEIGHT, WIDTH, Line, Sheet, make_pdf

pytestmark = pytest.mark.slow

CORPUS = sorted((CASES / "corpus/pdf").glob("*.pdf"))
SAMPLED = 60
TEXT = (Line("The first line,"), Line("and the second.", y=680))


def read(*sheets: Sheet, to_unicode: tuple[str, ...] = (), title: str | None = None) -> Document:
    document = read_pdf(make_pdf(*sheets, to_unicode=to_unicode, title=title), sha256="0" * 64, name="a.pdf")
    check(document)
    return document


def check(document: Document) -> None:
    """What holds for every document."""
    text, pages, boxes, lines = document.text, document.pages, document.boxes, document.lines
    assert boxes is not None
    assert boxes.shape == (len(text), 4)
    assert [page.start for page in pages] == [0, *(page.end for page in pages[:-1])]
    assert pages[-1].end == len(text)
    assert all(text[page.end - 1] == "\n" for page in pages)
    assert [page.number for page in pages] == list(range(1, len(pages) + 1))
    assert set(lines.tolist()) == {0} | {found.end() for found in re.finditer("[\n\x02\ufffe](?=.|\n)", text)}
    assert not re.search("[\r\0\ud800-\udfff]", text)
    inked = ~np.isnan(boxes[:, 0])
    assert not any(char.isspace() for char, ink in zip(text, inked, strict=True) if ink)
    assert (boxes[inked, 0] <= boxes[inked, 2]).all()
    assert (boxes[inked, 1] <= boxes[inked, 3]).all()
    assert all(0 <= aside.start < aside.end <= len(text) for aside in document.asides)


def box_of(document: Document, words: str) -> Box:
    start = document.text.index(words)
    [place] = document.places(start, start + len(words))
    [box] = place.boxes
    return box


def codes(document: Document) -> list[tuple[str, str]]:
    return [(problem.code, problem.path) for problem in document.problems]


def test_lines_pages_and_title() -> None:
    document = read(Sheet(TEXT), Sheet((Line("Another page"),)), title="Über „uns“")
    assert document.text == "The first line,\nand the second.\nAnother page\n"
    assert document.lines.tolist() == [0, 16, 32]
    assert [(page.start, page.end, page.width, page.height) for page in document.pages] == [
        (0, 32, WIDTH, HEIGHT),
        (32, 45, WIDTH, HEIGHT),
    ]
    assert (document.title, document.name, document.kind) == ("Über „uns“", "a.pdf", "pdf")
    assert document.problems == document.asides == ()


def test_hyphen_at_a_line_end_is_one_character_and_ends_the_line() -> None:
    document = read(Sheet((Line("a word that is hyphen-"), Line("ated here", y=686))))
    assert document.text == "a word that is hyphen\x02ated here\n"
    assert document.lines.tolist() == [0, 22]
    [place] = document.places(15, 26)
    first, second = place.boxes
    assert first.bottom < second.bottom
    assert first.left > second.left


@pytest.mark.parametrize(
    ("rotate", "left", "top", "growing"),
    [(0, 72, 842 - 700, "right"), (90, 700, 72, "bottom"), (180, 595 - 72, 700, "left"),
     (270, 842 - 700, 595 - 72, "top")],
)  # fmt: skip
def test_a_turned_page_is_as_it_is_shown(rotate: int, left: float, top: float, growing: str) -> None:
    """The text starts at its baseline's left end, wherever the turn puts that, and runs with the turn."""
    document = read(Sheet((Line("Horizon"),), rotate=rotate))
    [page] = document.pages
    assert (page.width, page.height) == ((HEIGHT, WIDTH) if rotate % 180 else (WIDTH, HEIGHT))
    first, whole = box_of(document, "H"), box_of(document, "Horizon")
    assert first.left - 0.01 <= left <= first.right + 0.01
    assert first.top - 0.01 <= top <= first.bottom + 0.01
    grown = {
        side for side in ("left", "top", "right", "bottom") if getattr(first, side) != getattr(whole, side)
    }
    assert grown == {growing}


def test_a_crop_box_moves_the_origin() -> None:
    full, cropped = read(Sheet(TEXT)), read(Sheet(TEXT, crop=(50, 100, 350, 800)))
    assert (cropped.pages[0].width, cropped.pages[0].height) == (300, 700)
    before, after = box_of(full, "second"), box_of(cropped, "second")
    assert after.left == pytest.approx(before.left - 50)
    assert after.top == pytest.approx(before.top - (HEIGHT - 800))


def test_what_a_crop_box_leaves_out_is_hidden() -> None:
    document = read(
        Sheet((Line("cut off", x=10), Line("shown", x=100), Line("off too", x=510)), crop=(90, 0, 500, 800))
    )
    hidden = [document.text[aside.start : aside.end] for aside in document.asides if aside.kind == "hidden"]
    assert hidden == ["cut off", "off too"]


@pytest.mark.parametrize("turn", ["0 1 -1 0", "-1 0 0 -1", "0 -1 1 0", ".7 .7 -.7 .7"])
def test_turned_text_on_an_upright_page_has_boxes(turn: str) -> None:
    document = read(Sheet((Line("Slanted", x=300, turn=turn),)))
    assert document.text == "Slanted\n"
    assert document.boxes is not None
    sizes = document.boxes[:7, 2:] - document.boxes[:7, :2]
    assert (sizes > 1).all()
    assert (sizes < 20).all()


def test_surrogates_become_one_character_and_a_ligature_shares_its_box() -> None:
    document = read(Sheet((Line(b"\x01\x02"),)), to_unicode=("\U0001f600", "ffi"))
    assert document.text == "\U0001f600ffi\n"
    assert document.boxes is not None
    assert (document.boxes[1:4] == document.boxes[1]).all()


@pytest.mark.parametrize("to_unicode", [(), ("\0", "\x94"), ("\ue001", "\uf0ae")])
def test_glyphs_without_a_character_are_reported(to_unicode: tuple[str, ...]) -> None:
    """pdfium gives the glyph's number instead, or what the file says though it is no character."""
    document = read(Sheet((Line(b"\x01\x02\x01"),)), to_unicode=to_unicode)
    assert document.text in {"\ufffd\ufffd\ufffd\n", "\ue001\uf0ae\ue001\n"}
    assert codes(document) == [("no_unicode", "page 1")]


def row(*pieces: tuple[str, float, float]) -> list[Line]:
    """Pieces of one line, each with its size and how far it is raised, set close to each other."""
    lines: list[Line] = []
    x = 72.0
    for text, size, rise in pieces:
        lines.append(Line(text, x=x, y=700 + rise, size=size))
        # Widths of Helvetica, near enough: digits and most letters, narrow signs, blanks.
        x += size * sum(0.28 if char in " .,/'" else 0.33 if char in "()-" else 0.556 for char in text)
    return lines


@pytest.mark.parametrize(
    ("pieces", "text"),
    [
        ([("10", 12, 0), ("2", 7, 4), (" units", 12, 0)], "10² units"),
        ([("10", 12, 0), ("-3", 7, 4), (" units", 12, 0)], "10⁻³ units"),
        ([("up", 12, 0), ("1,2", 7, 4), (" and", 12, 0)], "up¹,² and"),
        ([("1", 7, 4), ("Our code", 12, 0)], "¹Our code"),
        ([("done", 12, 0), ("12", 8, 4)], "done¹²"),
        ([("101", 12, 0), ("2", 7, -2), (" bits", 12, 0)], "101₂ bits"),
        ([("CO", 12, 0), ("2", 7, -2), (" bond", 12, 0)], "CO2 bond"),
        ([("37", 12, 0), ("(0.4)", 7, -2), (" on", 12, 0)], "37(0.4) on"),
        ([("about ", 12, 0), ("12", 9, 0), (" cups", 12, 0)], "about 12 cups"),
        ([("on", 12, 0), ("e", 7, 4), (" hand", 12, 0)], "one hand"),
    ],
)  # fmt: skip
def test_raised_digits_do_not_join_a_number_or_a_word(pieces: list[Any], text: str) -> None:
    shown = read(Sheet(row(*pieces))).text
    assert re.sub(" +", " ", shown) == f"{text}\n"


def test_a_number_in_the_next_cell_is_not_raised() -> None:
    document = read(Sheet((Line("A label", size=12), Line("42", x=300, y=705, size=8))))
    assert "42" in document.text


@pytest.mark.parametrize(
    "lines",
    [
        pytest.param((Line(b"\1\2\2"),), id="as it is seen"),
        pytest.param(
            (Line(b"\2", x=86.4), Line(b"\2", x=79.2), Line(b"\1")), id="as it is read, from the right"
        ),
        pytest.param((Line(b"\1"), Line(b"\2", x=79.2), Line(b"\2", x=86.4)), id="letter by letter"),
    ],
)
def test_right_to_left_text_is_in_the_order_it_is_read(lines: tuple[Line, ...]) -> None:
    assert read(Sheet(lines), to_unicode=("\u05d0", "\u05d1")).text == "\u05d1\u05d1\u05d0\n"


def test_the_letters_of_a_lam_alef_are_not_turned_round() -> None:
    assert read(Sheet((Line(b"\1\2"),)), to_unicode=("\u0644\u0627", "\u0643")).text == "\u0643\u0644\u0627\n"


GREY = "0.3 g 0 0 595 842 re f"


@pytest.mark.parametrize(
    ("sheet", "hidden"),
    [
        (Sheet((Line("unpainted", paint="3 Tr"), Line("seen", y=600))), ["unpainted"]),
        (Sheet((Line("white", paint="1 g"), Line("seen", y=600))), ["white"]),
        (Sheet((Line("white", paint="1 g"), Line("seen", y=600)), under="1 g 0 0 595 842 re f"), ["white"]),
        (Sheet((Line("white", paint="1 g"), Line("seen", y=600)), under="0 g 60 590 80 30 re f"), ["white"]),
        (Sheet((Line("white on grey", paint="1 g"),), under=GREY), []),
        (Sheet((Line("stroked", paint="1 g 1 Tr"),)), []),
        (Sheet((Line("black"),), under=GREY), []),
    ],
)
def test_text_that_nobody_sees_is_hidden(sheet: Sheet, hidden: list[str]) -> None:
    document = read(sheet)
    assert [document.text[aside.start : aside.end] for aside in document.asides] == hidden


def test_the_text_layer_of_a_scan_is_not_hidden() -> None:
    document = read(Sheet((Line("read by a scanner", paint="3 Tr"),) * 8, image=True), Sheet(TEXT))
    assert document.asides == ()
    assert [page.ocr for page in document.pages] == [True, False]


def test_a_field_of_a_form_is_text_where_it_stands() -> None:
    document = read(Sheet(TEXT, field="Jane Roe"))
    assert document.text.endswith("\nJane Roe\n")
    box = box_of(document, "Jane Roe")
    assert 100 <= box.left < box.right <= 300
    assert HEIGHT - 322 <= box.top < box.bottom <= HEIGHT - 298


def test_headers_and_footers_are_known_apart() -> None:
    def sheet(number: int) -> Sheet:
        return Sheet((
            Line(f"Annual report {2020 + number}", y=800),
            Line(f"Body of page {['one', 'two', 'three', 'four'][number]}.", y=400),
            Line(f"- {number} -", y=40),
        ))  # fmt: skip

    document = read(*map(sheet, range(4)))
    asides = [(aside.kind, document.text[aside.start : aside.end]) for aside in document.asides]
    assert asides == [
        aside
        for number in range(4)
        for aside in (("header", f"Annual report {2020 + number}\n"), ("footer", f"- {number} -\n"))
    ]


@pytest.mark.parametrize(
    "sheets",
    [
        pytest.param([Sheet((Line("Once only", y=800),))], id="one page"),
        pytest.param([Sheet((Line("Same words", y=800 - 20 * n),)) for n in range(4)], id="other heights"),
        pytest.param([Sheet((Line("Same words", y=400),)) for _ in range(4)], id="in the middle"),
        pytest.param([Sheet((Line(f"{n}.5 {n}%", y=800),)) for n in range(4)], id="a table's numbers"),
        pytest.param(
            [Sheet((Line("ab"[n % 2] * 9, y=820), Line("Closed", y=790))) for n in range(2)],
            id="body beyond it",
        ),
    ],
)
def test_what_is_no_header(sheets: list[Sheet]) -> None:
    assert read(*sheets).asides == ()


def test_pages_without_text() -> None:
    document = read(Sheet(image=True), Sheet(), Sheet(TEXT, image=True))
    assert document.text == "\n\nThe first line,\nand the second.\n"
    assert codes(document) == [("no_text_layer", "page 1")]


def test_a_broken_page_costs_that_page_only() -> None:
    document = read(Sheet(TEXT), Sheet(broken=True), Sheet(TEXT))
    assert codes(document) == [("bad_page", "page 2")]
    assert document.text.split("\n\n") == [
        "The first line,\nand the second.",
        "The first line,\nand the second.\n",
    ]


def test_too_many_characters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("citewire.documents.pdf.MOST_CHARACTERS", 40)
    document = read_pdf(make_pdf(*[Sheet(TEXT)] * 5), sha256="")
    assert len(document.pages) == 2
    assert codes(document) == [("too_many_pages", "page 3")]


def test_too_many_pages() -> None:
    document = read_pdf(make_pdf(*[Sheet(TEXT)] * 5), sha256="", most_pages=2)
    assert len(document.pages) == 2
    assert codes(document) == [("too_many_pages", "page 3")]


@pytest.mark.parametrize("data", [b"", b"%PDF-1.7", b"<html>", b"\0" * 999, make_pdf()], ids=repr)
def test_no_pdf(data: bytes) -> None:
    with pytest.raises(DocumentError) as raised:
        read_pdf(data, sha256="")
    assert raised.value.code == "bad_document"


def test_encrypted() -> None:
    with pytest.raises(EncryptedDocument) as raised:
        read_pdf(make_pdf(Sheet(TEXT), locked=True), sha256="")
    assert raised.value.code == "encrypted"


WHOLE = make_pdf(Sheet(TEXT), Sheet(TEXT, field="Jane", image=True), Sheet((Line(b"\1\2"),)), title="Title")


@given(st.data())
def test_damage_gives_a_document_or_a_document_error(data: st.DataObject) -> None:
    """Cut off anywhere, and with bytes changed anywhere."""
    damaged = bytearray(WHOLE[: data.draw(st.integers(0, len(WHOLE)))])
    for at in data.draw(st.lists(st.integers(0, max(0, len(damaged) - 1)), max_size=20)) if damaged else []:
        damaged[at] = data.draw(st.integers(0, 255))
    try:
        document = read_pdf(bytes(damaged), sha256="", most_pages=20)
    except DocumentError:
        return
    check(document)


@cache
def corpus(path: Path) -> Document:
    return read_pdf(path.read_bytes(), sha256="", name=path.name)


@pytest.mark.parametrize("path", CORPUS, ids=lambda path: cast("Path", path).stem)
def test_corpus_boxes_hold_the_words(path: Path) -> None:
    """What pdfium finds under a word's box, asked in its own coordinates, is that word and little else."""
    document = corpus(path)
    check(document)
    pdfium = pytest.importorskip("pypdfium2")
    words = [found for found in re.finditer(r"[^\W_]{4,}", document.text) if "\ufffd" not in found[0]]
    with pdfium.PdfDocument(path) as file:
        for page in file:
            pdfium.raw.FPDFPage_Flatten(page, 0)
            page.close()
        for found in random.Random(path.name).sample(words, min(SAMPLED, len(words))):
            [place] = document.places(*found.span())
            [box] = place.boxes
            # Lines may touch, so the middle of the box is looked at, be the text level or upright.
            beneath = [under(pdfium, file[place.page - 1], box, *inset) for inset in ((0, 0.25), (0.25, 0))]
            assert any(is_in(found[0], text) for text in beneath), (found[0], beneath)


def is_in(word: str, text: str) -> bool:
    if len(re.findall(r"\w", text)) > 2 * len(word) + 4:
        return False
    # Right to left text is in another order there, and joins that overlap are left out.
    turned = unicodedata.bidirectional(word[0]) in {"R", "AL"}
    return set(word) <= set(text) if turned else word in text


def under(pdfium: Any, page: Any, box: Box, across: float, down: float) -> str:
    """The text in a box without these shares of its sides, the corners taken to the page by pdfium."""
    inset_x, inset_y, scale = (box.right - box.left) * across, (box.bottom - box.top) * down, 100
    corners: list[tuple[float, float]] = []
    for x, y in ((box.left + inset_x, box.top + inset_y), (box.right - inset_x, box.bottom - inset_y)):
        to_x, to_y = ctypes.c_double(), ctypes.c_double()
        size = (round(page.get_width() * scale), round(page.get_height() * scale))
        place = (round(x * scale), round(y * scale))
        pdfium.raw.FPDF_DeviceToPage(page, 0, 0, *size, 0, *place, to_x, to_y)
        corners.append((to_x.value, to_y.value))
    (x, y), (right, top) = corners
    return page.get_textpage().get_text_bounded(min(x, right), min(y, top), max(x, right), max(y, top))


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    ["docling__multi_page", "pdf.js__canvas", "pdfplumber__cupertino_usd_4-6-16",
     "pdfplumber__federal-register-2020-17221", "sample-files__pdflatex-4-pages"],
)  # fmt: skip
def test_the_words_of_another_extractor_are_there(name: str) -> None:
    path = need_cases() / f"corpus/pdf/{name}.pdf"
    high_level = pytest.importorskip("pdfminer.high_level")
    ours, theirs = words_of(corpus(path).text), words_of(high_level.extract_text(path))
    assert theirs
    assert len(theirs & ours) >= 0.95 * len(theirs), sorted(theirs - ours)


def words_of(text: str) -> set[str]:
    return set(re.findall(r"[^\W\d_]{6,}", re.sub("-\n|[\x02\xad]\n?", "", text)))
