"""What a notebook shows for an answer and for a report."""

from __future__ import annotations

import base64
import re
from pathlib import Path

import pytest
from hypothesis import given
from msgspec.structs import replace
from selectolax.lexbor import LexborHTMLParser

import citewire
from citewire.evidence.citation_html import VERDICT_LABELS
from citewire.model import Answer, Citation, Part, Problem, Source, SourceRef, Span, Verification
from citewire.verification.report import Report
from citewire.verification.sources import SourceContent
from support.chromium import chromium
from support.hostile_report import HOSTILE, hostile_report
from support.strategies import answers

TEXT = "Sales rose by 15 percent. The costs fell. Zebras graze at night. Nobody said this at all."
QUOTES = ("Sales rose by 15 percent", "The costs fell by a third", "Zebras graze at night")
SOURCE = SourceContent("Sales rose by 12 percent in 2023. The costs fell by a third.", name="report.txt")


def cited() -> Answer:
    """An altered, a verified and a missed quote, and a sentence without any."""
    ends = [TEXT.index(".", at) + 1 for at in (0, 26, 42)]
    citations = tuple(
        Citation(f"c{end}", (SourceRef("s1", quote=quote),), claim=Span(0, start, end), span_origin="exact")
        for start, end, quote in zip((0, 26, 42), ends, QUOTES, strict=True)
    )
    source = Source("s1", "file", "https://example.com/report", "The report", filename="report.txt")
    return Answer((Part(TEXT),), citations, (source,))


@pytest.fixture(scope="module")
def report() -> Report:
    return citewire.verify(cited(), SOURCE)


def parsed(shown: Report | Answer) -> LexborHTMLParser:
    return LexborHTMLParser(shown._repr_html_())  # pyright: ignore[reportPrivateUsage]


def test_a_report_shows_every_verdict(report: Report) -> None:
    tree = parsed(report)
    altered, missed, verified, uncited = tree.css("details")

    assert [node.text() for node in tree.css("summary")] == [
        "≠ Altered: 1 quote",
        "✗ Not found: 1 quote",
        "✓ Verified: 1 quote",
        "1 sentence without a citation",
    ]
    assert "open" in altered.attributes
    assert "open" in missed.attributes
    assert "open" not in verified.attributes
    assert [node.text() for node in altered.css("del, ins")] == ["15 percent", "12 percent"]
    assert "report.txt, page 1" in altered.text()
    assert QUOTES[2] in missed.text()
    assert "Nobody said this at all." in uncited.text()
    assert [node.attributes["href"] for node in tree.css("li a")] == ["https://example.com/report"]


def test_an_answer_shows_the_verdicts_it_carries(report: Report) -> None:
    assert [node.text() for node in parsed(report.answer).css("del, ins")] == ["15 percent", "12 percent"]
    assert "1 sentence" not in parsed(report.answer).text()


def test_an_answer_without_verdicts_shows_its_sources() -> None:
    tree = parsed(replace(cited(), problems=(Problem("bad_shape", "$.x", "no"),)))

    assert not tree.css("details")
    assert tree.css("p")[0].text() == "3 citations"
    assert [node.text() for node in tree.css("bdi.cite-title")] == ["The report"]
    assert "1 piece of it could not be read" in tree.text()


def test_every_status_has_its_sign() -> None:
    citations = tuple(
        Citation(status, (SourceRef("s", quote="q"),), verification=Verification(status))
        for status in VERDICT_LABELS
    )
    shown = parsed(Answer((Part("x"),), citations, (Source("s"),))).text()

    assert [words for words in VERDICT_LABELS.values() if f"{words}: 1 quote" not in shown] == []


def test_nothing_foreign_becomes_markup() -> None:
    """What a notebook runs, it runs with the rights of its reader."""
    hostile = hostile_report()[0]
    for shown in (hostile, hostile.answer):
        html = shown._repr_html_()  # pyright: ignore[reportPrivateUsage]
        tree = LexborHTMLParser(html)
        assert not tree.css("script, img, iframe, object, form, [onerror], [style], [src]")
        assert len(tree.css("style")) == 1
        assert all(str(node.attributes["href"]).startswith("#") for node in tree.css("[href]"))
        assert not re.search("[\0-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]", html)
        assert html.count("&lt;script&gt;") > 3


@given(answer=answers())
def test_any_answer_can_be_shown(answer: Answer) -> None:
    assert len(parsed(answer).css("div.citewire")) == 1


@pytest.mark.parametrize("times", [1, 5_000])
def test_it_stays_small(times: int, report: Report) -> None:
    """A report of thousands of quotes and a book for an answer must not fill a notebook."""
    citations = tuple(replace(report.answer.citations[0], id=f"c{at}") for at in range(times))
    answer = replace(report.answer, parts=(Part(TEXT * times),), citations=citations)
    many = Report(answer, report.checks * times, report.uncited * times)
    assert len(many._repr_html_()) < 5_000 + 60_000 * (times > 1)  # pyright: ignore[reportPrivateUsage]


CONTRAST = """
(() => {
  const canvas = document.createElement("canvas").getContext("2d", {willReadFrequently: true});
  const luminance = (colour, under) => {
    canvas.fillStyle = under; canvas.fillRect(0, 0, 1, 1);
    canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1);
    const [r, g, b] = [...canvas.getImageData(0, 0, 1, 1).data].slice(0, 3).map(c => c / 255)
      .map(c => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const page = getComputedStyle(document.body).backgroundColor;
  return [...document.querySelectorAll("summary, sup a, mark, del, ins, a")].map(node => {
    const style = getComputedStyle(node);
    const pair = [luminance(style.color, page), luminance(style.backgroundColor, page)].sort((a, b) => a - b);
    return (pair[1] + 0.05) / (pair[0] + 0.05);
  });
})()
"""


@pytest.mark.slow
@pytest.mark.parametrize("colours", ["#fff;color:#1c1e21", "#111;color:#e8e9ea"], ids=["light", "dark"])
def test_it_can_be_read_on_light_and_dark(report: Report, colours: str, tmp_path: Path) -> None:
    hostile = hostile_report()[0]
    cells = "".join(one._repr_html_() for one in (report, report.answer, hostile))  # pyright: ignore[reportPrivateUsage]
    page = f'<!doctype html><meta charset="utf-8"><body style="background:{colours}">{cells}'
    data = base64.b64encode(page.encode()).decode()
    with chromium(tmp_path) as tab:
        tab.open(f"data:text/html;base64,{data}")
        contrasts = tab.evaluate(CONTRAST)
        asked = [sent["request"]["url"] for sent in tab.told("Network.requestWillBeSent")]

    assert len(contrasts) > 15
    assert min(contrasts) >= 4.5
    assert [url for url in asked if not url.startswith("data:text/html")] == []
    assert not tab.told("Page.javascriptDialogOpening"), HOSTILE
