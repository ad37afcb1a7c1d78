"""The page of a report: what is on it, that nothing on it runs, and that it stays in bounds."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import re
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from PIL import Image
from selectolax.lexbor import LexborHTMLParser, LexborNode

import citewire
from citewire.documents import Document, DocumentError, load
from citewire.documents.draw import Crop
from citewire.documents.html import read_html
from citewire.documents.pdf import read_pdf
from citewire.documents.text import read_markdown
from citewire.evidence import pictures
from citewire.evidence import report_page as page_module
from citewire.evidence.citation_html import CitationLink, compare_wordings, mark_citations, web_href
from citewire.evidence.pictures import ReadBytes
from citewire.evidence.report_page import write_page
from citewire.model import Answer, Citation, Part, Point, Source, SourceRef, Span
from citewire.verification.document_set import DocumentSet
from citewire.verification.report import Report, verify_answer
from support.cases import need_cases
from support.chromium import chromium
from support.cli_runner import run
from support.hostile_report import HOSTILE, hostile_report
from support.pdfs import Line, Sheet, make_pdf

LINES = (
    Line("The club has 214 members. The fee of 40 dollars was not raised", y=700),
    Line("and the greenhouse was repaired in March.", y=680),
)
PDF = make_pdf(Sheet(LINES), Sheet((Line("Guests pay 60 dollars for a day in the garden."),)))
WEB = b"<!doctype html><title>Hours</title><p>Open from nine to five on all days.<p>Dogs stay on a lead."
RULES = b"# Rules\n\nPlots must be weeded once a month.\n"
DATA = {hashlib.sha256(data).hexdigest(): data for data in (PDF, WEB, RULES)}
PDF_HASH, WEB_HASH, RULES_HASH = DATA
REPORT = read_pdf(PDF, sha256=PDF_HASH, name="report.pdf")
HOURS = replace(read_html(WEB, sha256=WEB_HASH, name="hours.html"), url="https://garden.example/?a=1&b=2")
DOCUMENTS = (REPORT, HOURS, read_markdown(RULES, sha256=RULES_HASH, name="rules.md"))
TEXT = "It has 214 members.[1] The fee was raised.[2] All is well in the garden. Come early."
QUOTES: tuple[tuple[str, str | None], ...] = (
    ("report.pdf", "The club has 214 members."),
    ("report.pdf", "The fee of 40 dollars was raised and the greenhouse was repaired"),
    ("report.pdf", "Guests pay 16 dollars for a day"),
    ("hours.html", "open from nine to five on all days"),
    ("hours.html", "cats are free to roam wherever they please"),
    ("rules.md", "Plots must be weeded once month"),
    ("rules.md", None),
)


def read(document: Document) -> bytes:
    return DATA[document.sha256]


def reported(quotes: Iterable[tuple[str, str | None]] = QUOTES, text: str = TEXT) -> Report:
    """The first two citations have markers in the text, the others no place in it."""
    citations = [
        Citation(f"c{number}", (SourceRef(name, quote=quote),)) for number, (name, quote) in enumerate(quotes)
    ]
    for number, marker in enumerate(re.finditer(r"\[\d\]", text)):
        claim = Span(0, text.rfind("]", 0, marker.start()) + 1, marker.start())
        citations[number] = replace(citations[number], claim=claim, marker=Span(0, *marker.span()))
    sources = tuple(Source(name, filename=name) for name in ("report.pdf", "hours.html", "rules.md"))
    return verify_answer(Answer((Part(text),), tuple(citations), sources), DocumentSet(DOCUMENTS))


def parsed(
    *reports: Report, documents: Iterable[Document] = DOCUMENTS, reader: ReadBytes = read
) -> LexborHTMLParser:
    return LexborHTMLParser(
        write_page([(f"{n}.json", one) for n, one in enumerate(reports)], documents, reader)
    )


def said(node: LexborNode | LexborHTMLParser, selector: str) -> list[str]:
    return [" ".join(found.text().split()) for found in node.css(selector)]


def row(card: LexborNode, name: str) -> str | None:
    """What the card says under a heading, inner HTML."""
    for term in card.css("dt"):
        if term.text() == name:
            return term.next and term.next.inner_html
    return None


@pytest.fixture(scope="module")
def tree() -> LexborHTMLParser:
    return parsed(reported())


def test_counts_and_limits_head_the_page(tree: LexborHTMLParser) -> None:
    counts = ["≠ Altered 2", "✗ Not found 1", "≈ Partial 1", "– Not checked 1", "✓ Verified 2"]
    assert said(tree, ".counts label") == ["all 7", *counts]
    assert "never whether they support" in said(tree, "header .limits")[0]
    assert said(tree, "title") == ["Citations: 2 altered, 1 not found, 1 partial, 1 not checked, 2 verified"]
    assert said(tree, "footer") == [f"Checked by citewire {citewire.__version__}."]


def test_the_answer_has_its_citations_as_links(tree: LexborHTMLParser) -> None:
    [text] = tree.css(".text")
    assert said(text, ".claim.verified") == ["It has 214 members."]
    assert said(text, ".claim.altered") == ["The fee was raised."]
    assert said(text, "a.cite") == ["1 ✓ Verified", "2 ≠ Altered"]
    assert said(text, ".uncited") == ["All is well in the garden."]
    assert said(text, ".none") == ["no citation"]
    assert "[1]" not in text.text()
    anchors = {node.attributes["id"] for node in tree.css("[id]")}
    assert len(anchors) == len(tree.css("[id]"))
    assert {str(node.attributes["href"])[1:] for node in tree.css('a[href^="#"]')} <= anchors


def test_each_citation_has_a_card(tree: LexborHTMLParser) -> None:
    cards = tree.css("article.card")
    assert said(tree, ".card .verdict") == [
        "✓ Verified", "≠ Altered", "≠ Altered", "✓ Verified", "✗ Not found", "≈ Partial", "– Not checked",
    ]  # fmt: skip
    assert said(cards[0], "h4 .soft") == ["report.pdf, page 1, line 1"]
    assert row(cards[0], "Cited for") == "It has 214 members."
    assert row(cards[1], "Source") == (
        '<span class="words" dir="auto" lang="">The fee of 40 dollars was <ins>not</ins> raised and the '
        "greenhouse was repaired</span>"
    )
    assert "<strong>negation</strong>: the quote leaves out <ins>not</ins>" in str(
        row(cards[1], "Differences")
    )
    assert "<del>16 dollars</del>, the source says <ins>60 dollars</ins>" in str(row(cards[2], "Differences"))
    assert row(cards[3], "Harmless edits") == "<ul><li>case</li></ul>"
    assert row(cards[4], "Why") == "these words are not in the source"
    assert row(cards[6], "Quote") is None
    assert row(cards[6], "Why") == "nothing quoted"


def test_found_words_are_shown_in_their_place(tree: LexborHTMLParser) -> None:
    cards = tree.css("article.card")
    pictured = [len(card.css("article > figure img")) for card in cards]
    assert pictured == [1, 1, 1, 0, 0, 0, 0]
    assert [len(card.css("details img")) for card in cards] == pictured
    assert said(cards[3], ".snippet mark") == ["Open from nine to five on all days"]
    links = [node.attributes["href"] for node in cards[3].css("article > p a")]
    fragment = "#:~:text=Open%20from%20nine%20to%20five%20on%20all%20days"
    assert links == [f"https://garden.example/?a=1&b=2{fragment}", "https://garden.example/?a=1&b=2"]
    record = json.loads(said(cards[3], "pre")[0])
    assert record["sha256"] == WEB_HASH
    assert record["engine"] == citewire.__version__
    assert [each["type"] for each in record["selectors"]] == ["TextQuoteSelector", "TextPositionSelector"]
    assert said(tree, "tbody code") == sorted(DATA, key=said(tree, "tbody code").index)


def image_of(node: LexborNode) -> Image.Image:
    kind, _, data = str(node.attributes["src"]).partition(";base64,")
    assert kind == "data:image/webp"
    return Image.open(io.BytesIO(base64.b64decode(data)))


def test_crops_are_as_large_as_they_say(tree: LexborHTMLParser) -> None:
    """At 144 dots per inch, on a screen of 96."""
    for node in tree.css("article > figure img"):
        width, height = image_of(node).size
        assert width == pytest.approx(int(node.attributes["width"] or 0) * 1.5, abs=3)
        assert height == pytest.approx(int(node.attributes["height"] or 0) * 1.5, abs=3)
        assert "highlighted" in str(node.attributes["alt"])


def test_nothing_foreign_becomes_markup() -> None:
    report, document = hostile_report()
    made = write_page([(HOSTILE, report), (HOSTILE, report)], [document], read)
    tree = LexborHTMLParser(made)
    assert not tree.css("script, body img, body style, iframe, object, base, form, [onerror], [style]")
    assert len(tree.css("title, style")) == 2
    allowed = {
        "class", "id", "href", "lang", "dir", "aria-label", "aria-labelledby", "type", "name", "checked",
        "data-of",
    }  # fmt: skip
    for node in tree.css("body *"):
        assert set(node.attributes) <= allowed
        assert str(node.attributes.get("href", "#")).startswith("#")
    assert not re.search("[\0-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]", made)
    assert len(said(tree, ".card")) == 4
    assert made.count("&lt;script&gt;") > 20


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        pytest.param("https://a.example/?a=1&b=2#c", "https://a.example/?a=1&b=2#c", id="https"),
        pytest.param("HTTP://a.example/", "HTTP://a.example/", id="http"),
        pytest.param('https://a.example/"><script>', "https://a.example/%22%3E%3Cscript%3E", id="quotes"),
        pytest.param("javascript:alert(1)", None, id="javascript"),
        pytest.param("java\nscript:alert(1)", None, id="javascript in pieces"),
        pytest.param("\x01javascript:alert(1)", None, id="behind a control"),
        pytest.param("data:text/html,x", None, id="data"),
        pytest.param("mailto:a@a.example", None, id="mail"),
        pytest.param("//a.example/x", None, id="relative"),
        pytest.param("https://a.example/" + "x" * 5000, None, id="endless"),
    ],
)
def test_only_web_addresses_are_links(url: str, expected: str | None) -> None:
    assert web_href(url) == expected


def test_the_policy_of_the_page_allows_its_style_only() -> None:
    made = write_page([], [], read)
    style = made.partition("<style>")[2].partition("</style>")[0]
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    policy = LexborHTMLParser(made).css("meta[http-equiv]")[0].attributes["content"]
    assert policy == (
        f"default-src 'none'; img-src data:; base-uri 'none'; form-action 'none'; style-src 'sha256-{digest}'"
    )
    assert not re.search(r"url\(|@import|https?:", style)


def gone(_: Document) -> bytes:
    raise DocumentError("there is no such file")


def giving(data: bytes) -> ReadBytes:
    return lambda _: data


@pytest.mark.parametrize(
    ("reader", "why"),
    [
        pytest.param(gone, "there is no such file.", id="gone"),
        pytest.param(giving(PDF + b"\n"), "the source has changed since it was read.", id="changed"),
    ],
)
def test_a_picture_that_cannot_be_drawn_is_told_of(reader: ReadBytes, why: str) -> None:
    tree = parsed(reported(), reader=reader)
    assert not tree.css("img")
    assert said(tree, "#a1-c1 > p.soft") == [f"No picture of page 1: {why}"]
    assert said(tree, "#a1-c1 .snippet mark") == ["The club has 214 members"]
    assert len(tree.css(".card")) == len(QUOTES)


def test_a_damaged_page_costs_its_own_picture_only() -> None:
    broken = make_pdf(Sheet(LINES), Sheet(broken=True))
    sha256 = hashlib.sha256(broken).hexdigest()
    document = replace(REPORT, sha256=sha256)
    tree = parsed(replace_hashes(reported(), sha256), documents=[document], reader=giving(broken))
    assert len(tree.css("#a1-c1 > figure img")) == len(tree.css("#a1-c2 > figure img")) == 1
    assert said(tree, "#a1-c3 > p.soft")[0].startswith("No picture of page 2: ")


def replace_hashes(report: Report, sha256: str) -> Report:
    checks = (replace(check, sha256=sha256) if check.sha256 == PDF_HASH else check for check in report.checks)
    return replace(report, checks=tuple(checks))


def test_a_picture_that_kills_its_process_costs_no_other() -> None:
    """A format that the process does not know ends it before anything is drawn."""
    fine = Crop(1, ((70.0, 130.0, 250.0, 145.0),), 1.0, format="webp")
    deadly = replace(fine, format="nothing")  # type: ignore[arg-type]
    wanted = [
        pictures.PictureRequest(PDF_HASH, crop, number, 1, 1)
        for number, crop in enumerate([fine, fine, deadly, fine])
    ]
    made = pictures.draw_pictures(wanted, DOCUMENTS, read)
    assert [isinstance(made[one], bytes) for one in wanted] == [True, True, False, True]
    assert "the drawing ended with" in str(made[wanted[2]])


def test_equal_pictures_are_on_the_page_once() -> None:
    tree = parsed(reported([QUOTES[0]] * 5))
    assert len(tree.css("article > figure img")) == 1
    assert said(tree, "#a1-c4 > p.soft") == ["Pictured at 1."]


def test_the_page_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_module, "_MOST_CARDS", 4)
    monkeypatch.setattr(page_module, "_CROP_PIXELS", 300_000)
    monkeypatch.setattr(page_module, "_PAGE_PIXELS", 0)
    tree = parsed(reported())
    assert said(tree, ".card .verdict") == ["≠ Altered", "≠ Altered", "✗ Not found", "≈ Partial"]
    assert said(tree, ".left-out")[0].startswith("3 of the quotes are counted here but not shown")
    assert len(tree.css("img")) == 1
    assert "there are enough on this page already" in said(tree, "#a1-c3 > p.soft")[0]
    assert said(tree, ".counts label")[0] == "all 7"
    assert said(tree, ".text span.cite") == ["1 ✓ Verified"]


def test_long_texts_are_cut() -> None:
    quote = "word " * 20_000
    made = write_page([("a", reported([("rules.md", quote)], "text"))], DOCUMENTS, read)
    assert len(made) < 30_000
    assert "more characters)" in made


def test_thousands_of_citations_make_no_huge_page(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_module, "_CROP_PIXELS", 0)
    monkeypatch.setattr(page_module, "_PAGE_PIXELS", 0)
    one = reported([QUOTES[0]], "Text.")
    answer = replace(one.answer, citations=one.answer.citations * 3000)
    report = Report(answer, one.checks * 3000, ())
    made = write_page([("a", report)], DOCUMENTS, read)
    assert made.count('<article class="card') == 2000
    assert len(made) < 8_000_000


def test_several_answers_on_one_page() -> None:
    tree = parsed(reported(QUOTES[:2]), reported(QUOTES[3:5]))
    assert said(tree, "nav a") == said(tree, "main h2")[:2] == ["0.json", "1.json"]
    assert said(tree, ".counts label")[0] == "all 4"
    assert not parsed(reported(QUOTES[:2])).css("nav")


def test_each_quote_of_a_citation_has_its_card() -> None:
    refs = tuple(SourceRef(name, quote=quote) for name, quote in (QUOTES[0], QUOTES[2]))
    citation = Citation("c", refs, insert_at=Point(0, 4))
    sources = (Source("report.pdf", filename="report.pdf"),)
    report = verify_answer(
        Answer((Part("Text here."),), (citation, citation), sources), DocumentSet(DOCUMENTS)
    )
    tree = parsed(report)
    assert [node.attributes["id"] for node in tree.css(".card")] == [
        "a1-c1.1", "a1-c1.2", "a1-c2.1", "a1-c2.2",
    ]  # fmt: skip
    assert {node.attributes["data-of"] for node in tree.css(".card")} == {"altered"}
    assert [node.attributes["href"] for node in tree.css("a.cite")] == ["#a1-c1.2", "#a1-c2.2"]


def test_an_answer_without_its_text() -> None:
    answer = Answer(
        (), (Citation("c", (SourceRef("s", quote="Guests pay 60 dollars"),), claim=Span(3, 1, 9)),)
    )
    tree = parsed(verify_answer(answer, DocumentSet(DOCUMENTS)))
    assert "does not have the text" in said(tree, "section > p:not(.soft)")[0]
    assert said(tree, ".verdict") == ["✓ Verified"]
    assert not tree.css(".cite")


@given(st.text(max_size=60), st.lists(st.tuples(*[st.integers(-3, 70)] * 4), max_size=6))
def test_any_spans_leave_the_text_as_it_is(text: str, spans: list[tuple[int, int, int, int]]) -> None:
    """Out of range, turned round, nested, crossing: the words are all there, but for the markers."""
    citations = [
        Citation(f"c{n}", claim=Span(n % 2, a, b), insert_at=Point(0, c))
        for n, (a, b, c, _) in enumerate(spans)
    ]
    answer = Answer((Part(text),), tuple(citations))
    [made] = mark_citations(answer, [(one, CitationLink("i", "", "verified", None)) for one in citations], ())
    plain = re.sub(r'<span id="i".*?</span></span>|</?span[^>]*>', "", made)
    assert plain == passage_of(text)


def passage_of(text: str) -> str:
    [made] = mark_citations(Answer((Part(text),)), [], ())
    return made


@pytest.mark.parametrize(
    ("quote", "source", "expected"),
    [
        pytest.param("up 12 percent", "up 21 percent", ("12 percent", "21 percent"), id="a number"),
        pytest.param("it was raised", "it was not raised", ("", "not"), id="left out"),
        pytest.param("it was “raised”", 'It was "raised".', ("", ""), id="typography"),
        pytest.param("<b>40</b> dollars & more", "40 euros & more", None, id="escaped"),
    ],
)  # fmt: skip
def test_what_differs_is_marked(quote: str, source: str, expected: tuple[str, str] | None) -> None:
    ours, theirs = compare_wordings(quote, source, marked=True)
    if expected is not None:
        assert (re.findall("<del>(.*?)</del>", ours), re.findall("<ins>(.*?)</ins>", theirs)) == tuple(
            [words] if words else [] for words in expected
        )
    assert LexborHTMLParser(f"<p>{ours}</p>").text() == quote
    assert set(re.findall(r"<[^>]*>", ours + theirs)) <= {"<del>", "</del>", "<ins>", "</ins>"}


@pytest.mark.slow
def test_a_browser_shows_it_without_asking_for_anything(tmp_path: Path) -> None:
    made = tmp_path / "report.html"
    hostile, document = hostile_report()
    reports = [("answer", reported()), ("hostile", hostile)]
    made.write_text(write_page(reports, (*DOCUMENTS, document), read), "utf-8")
    with chromium(tmp_path / "profile") as tab:
        tab.open(made.as_uri())
        sizes = tab.evaluate(
            "Promise.all([...document.images].map(i => i.decode().then(() => [i.naturalWidth, i.width])))"
        )
        hidden = tab.evaluate(
            "document.querySelector('#show-missed').click(), "
            "[...document.querySelectorAll('.card')].filter(c => c.offsetHeight).map(c => c.id)"
        )
        wide = tab.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert len(sizes) == 6
    assert all(natural > 0 for natural, _ in sizes)
    assert hidden == ["a1-c5"]
    assert wide
    for quiet in (
        "Runtime.consoleAPICalled",
        "Runtime.exceptionThrown",
        "Log.entryAdded",
        "Page.javascriptDialogOpening",
    ):
        assert tab.told(quiet) == []
    asked = {each["request"]["url"][:5] for each in tab.told("Network.requestWillBeSent")}
    assert asked <= {"file:", "data:"}
    assert "file:" in asked


def test_a_real_paper() -> None:
    path = need_cases() / "corpus/pdf/pdf.js__tracemonkey.pdf"
    document = load(path)
    words = "Dynamic languages such as JavaScript are more difficult to compile"
    answer = Answer((Part("So it is."),), (Citation("c", (SourceRef(path.name, quote=words),)),))
    tree = parsed(
        verify_answer(answer, DocumentSet([document])), documents=[document], reader=giving(path.read_bytes())
    )
    [image] = tree.css("article > figure img")
    pixels = np.asarray(image_of(image).convert("RGB"), np.int16)
    yellow = (pixels[..., 0] > 200) & (pixels[..., 0] - pixels[..., 2] > 80)
    assert 0.02 < yellow.mean() < 0.5


@pytest.fixture
def on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = tmp_path / "sources"
    (folder / "deep").mkdir(parents=True)
    (folder / "deep/report.pdf").write_bytes(PDF)
    # Another file of that name must not be taken for it.
    (folder / "report.pdf").write_bytes(RULES)
    return folder


def test_the_bytes_of_a_document_are_found_again(on_disk: Path) -> None:
    reader = pictures.make_original_reader([on_disk])
    assert reader(REPORT) == PDF
    (on_disk / "deep/report.pdf").write_bytes(PDF + b"\n")
    for document in (REPORT, replace(REPORT, name="elsewhere.pdf"), replace(REPORT, name=None)):
        with pytest.raises(DocumentError, match="gone, or has changed"):
            reader(document)


def test_the_command_line_writes_the_page_and_the_records(on_disk: Path) -> None:
    entries = [{"id": "a", "title": "report.pdf", "snippet": QUOTES[2][1]}]
    payload = json.dumps({"citations": {"m1": entries}})
    arguments = ("verify", "-", "--sources", str(on_disk / "deep"), "--fail-on", "altered", "--format")
    result = run(*arguments, "html", stdin=payload)
    assert result.exit_code == 1
    tree = LexborHTMLParser(result.stdout)
    assert said(tree, ".verdict") == ["≠ Altered"]
    assert len(tree.css("article > figure img")) == 1
    [check] = json.loads(run(*arguments, "json", stdin=payload).stdout)["checks"]
    proof = check["proof"]
    assert proof["sha256"] == check["sha256"] == PDF_HASH
    assert proof["engine"] == citewire.__version__
    assert (proof["page"], proof["start"], proof["end"]) == (2, check["start"], check["end"])
    assert proof["boxes"] == check["boxes"] != []
    assert [each["type"] for each in proof["selectors"]][-1] == "FragmentSelector"
