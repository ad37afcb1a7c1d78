"""The sample documents: they read as they were written, and what the three questions ask stands in them."""

from __future__ import annotations

import re
import unicodedata
from pathlib import Path

import pytest
from selectolax.lexbor import LexborHTMLParser

from citewire.documents import Document, load
from citewire.verification.document_set import DocumentSet
from support.cases import ROOT

SAMPLES = ROOT / "src/citewire/samples"
PAGES = {"handbook.md": 1, "refund-policy.html": 1, "report.pdf": 6, "warranty.docx": 1}
# The answers to the three questions, each with the exception beside the rule, then what is hard to read.
SAID = {
    ("refund-policy.html", 1): (
        "Under our refund policy you may return any lamp within 30 days of delivery",
        "Made-to-order lamps, such as lamps with an engraving or with a shade in your own fabric, are not "
        "refundable unless they arrive faulty.",
    ),
    ("handbook.md", 1): (
        "Each parent has 80 days of parental leave at full pay. In the first six months of employment it is "
        "40 days.",
    ),
    ("report.pdf", 2): (
        "We saw revenue grow by 14.2% in 2025, from £5.92 million to £6.76 million.",
        "We now expect the wall lamp in the spring of 2027, and will not take orders before it has been "
        "through a winter of testing in the homes of our own people.",
    ),
    ("report.pdf", 3): (
        "Spare parts and repairs 645 820 +27.1%",
        "The figures for 2024 have been restated: £58 thousand moved from one line to the other.",
    ),
    ("report.pdf", 4): ("Other operating costs (786) (843)", "Profit for the year 405 577"),
    ("report.pdf", 5): ("Since October the desk has had a sixth person, who does nothing but joints.",),
    ("report.pdf", 6): (
        "We do not expect to raise prices before 2027, unless aluminium becomes more than a fifth dearer",
    ),
    ("warranty.docx", 1): ("For LED modules the warranty is three years.", "LED module 3 years 15 years"),
}
ALTERED = (
    ("report.pdf", "We saw revenue grow by 12.4% in 2025, from £5.92 million to £6.76 million."),
    ("refund-policy.html", "lamps with a shade in your own fabric, are refundable unless they arrive faulty"),
    ("handbook.md", "Each parent has 60 days of parental leave at full pay."),
)


@pytest.fixture(scope="module")
def documents() -> dict[str, Document]:
    return {path.name: load(path) for path in sorted(SAMPLES.iterdir())}


@pytest.fixture(scope="module")
def library(documents: dict[str, Document]) -> DocumentSet:
    return DocumentSet(documents.values())


def test_they_read_without_problems_and_are_small(documents: dict[str, Document]) -> None:
    assert {name: len(document.pages) for name, document in documents.items()} == PAGES
    assert [problem for document in documents.values() for problem in document.problems] == []
    assert sum(path.stat().st_size for path in SAMPLES.iterdir()) < 200_000


@pytest.mark.parametrize(
    ("place", "words"), [(place, words) for place, each in SAID.items() for words in each]
)
def test_what_they_say_is_verified(library: DocumentSet, place: tuple[str, int], words: str) -> None:
    """Without the source being named: no other sample says the same."""
    checked = library.check(words)
    assert (checked.status, checked.source, checked.page) == ("verified", *place), checked


@pytest.mark.parametrize(("name", "words"), ALTERED)
def test_what_they_do_not_say_is_altered(library: DocumentSet, name: str, words: str) -> None:
    checked = library.check(words)
    assert (checked.status, checked.source) == ("altered", name), checked


def test_the_report_reads_in_the_order_it_was_written(documents: dict[str, Document]) -> None:
    """Each paragraph and row of it, letter by letter, one after the other: columns, tables, notes."""
    report = documents["report.pdf"]
    kept = [True] * len(report.text)
    for aside in report.asides:
        kept[aside.start : aside.end] = [False] * (aside.end - aside.start)
    text = _letters("".join(char for char, keep in zip(report.text, kept, strict=True) if keep))
    at = 0
    for words in _written(ROOT / "samples/report.html"):
        at = text.find(words, at)
        assert at >= 0, words
        at += len(words)


def _written(page: Path) -> list[str]:
    """The letters of its headings, paragraphs and table rows."""
    tree = LexborHTMLParser(page.read_text("utf-8"))
    found = [_letters(node.text()) for node in tree.css("h1, h2, h3, p, caption, tr")]
    assert len(found) > 60
    return found


def _letters(text: str) -> str:
    """Without spaces and line breaks; a raised figure is the figure."""
    return re.sub(r"\s", "", unicodedata.normalize("NFKC", text))
