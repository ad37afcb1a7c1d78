"""Six surfaces, one layout: where markers stand, what the list says, and that nothing foreign gets out."""

import re
from collections.abc import Iterator
from html import unescape
from html.parser import HTMLParser
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from markdown_it.token import Token

from citewire.errors import CitewireError
from citewire.model import (
    Answer,
    Chars,
    Citation,
    Lines,
    Locator,
    Pages,
    Part,
    Point,
    Source,
    SourceRef,
    Span,
    SpanOrigin,
    Status,
    Verification,
)
from citewire.rendering import FORMATS, UnknownFormat, render, render_html, render_terminal
from citewire.rendering.layout import MarkRun, TextRun, lay_out
from citewire.rendering.safety import clean_text, safe_link

REFUNDS = "Refunds are available within 30 days. Contact support to start one."
POLICY = Source("policy", title="Refund policy", url="https://example.com/refunds")
A, B, C = (Source(name, title=name.upper()) for name in "abc")


def cite(
    *ids: str,
    claim: tuple[int, int] | None = None,
    marker: tuple[int, int] | None = None,
    at: int | None = None,
    part: int = 0,
    status: Status | None = None,
    origin: SpanOrigin = "exact",
) -> Citation:
    return Citation(
        id="-".join(ids),
        refs=tuple(SourceRef(name) for name in ids),
        claim=claim and Span(part, *claim),
        marker=marker and Span(part, *marker),
        insert_at=None if at is None else Point(part, at),
        span_origin=origin,
        verification=status and Verification(status),
    )


def answer(text: str, *citations: Citation, sources: tuple[Source, ...] = (A, B, C)) -> Answer:
    return Answer(parts=(Part(text),), citations=citations, sources=sources)


def about(source: Source, *refs: SourceRef) -> Answer:
    """An answer that says `Fact.` and cites `source` for it."""
    citation = Citation("c", refs=refs or (SourceRef(source.id),), insert_at=Point(0, 5))
    return Answer(parts=(Part("Fact."),), citations=(citation,), sources=(source,))


def refunds(status: Status | None = None) -> Answer:
    citation = cite("policy", claim=(0, 37), at=37, status=status)
    return answer(REFUNDS, citation, sources=(POLICY,))


OURS = re.compile(r"\x1b\[[\d;]+m|\x1b\]8;;[ -~]*?\x1b\\")


def plain(answer: Answer, to: str) -> str:
    """The rendering without escape sequences, tags and entities."""
    written = render(answer, to)
    match to:
        case "html":
            return Page(written).text
        case "terminal":
            return OURS.sub("", written)
        case "slack":
            return unescape(written)
        case _:
            return written


def body(answer: Answer) -> str:
    return render(answer, "text").partition("\n\nSources:")[0]


class Page(HTMLParser):
    """A fragment as a browser sees it. Unclosed or crossed tags fail the test."""

    def __init__(self, fragment: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.stack: list[str] = []
        self.data: list[str] = []
        self.feed(fragment)
        self.close()
        assert self.stack == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        assert len(dict(attrs)) == len(attrs)
        if tag == "br":
            self.data.append("\n")
        else:
            self.stack.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.stack.pop() == tag
        if tag in {"p", "li"}:
            self.data.append("\n\n")

    def handle_data(self, data: str) -> None:
        self.data.append(data)

    def handle_comment(self, data: str) -> None:
        pytest.fail(f"a comment: {data}")

    def handle_decl(self, decl: str) -> None:
        pytest.fail(f"a declaration: {decl}")

    def handle_pi(self, data: str) -> None:
        pytest.fail(f"an instruction: {data}")

    @property
    def text(self) -> str:
        return "".join(self.data)

    def attributes(self, name: str) -> list[str]:
        return [value for _, attributes in self.tags if (value := attributes.get(name)) is not None]


def test_formats() -> None:
    assert FORMATS == ("text", "markdown", "html", "terminal", "slack", "github")


def test_unknown_format_names_the_known_ones() -> None:
    with pytest.raises(CitewireError, match=", ".join(FORMATS)) as caught:
        render(refunds(), "pdf")
    assert isinstance(caught.value, UnknownFormat)
    assert caught.value.code == "unknown_format"
    assert caught.value.name == "pdf"


@pytest.mark.parametrize("to", FORMATS)
def test_the_first_answer(to: str) -> None:
    shown = plain(refunds(), to)
    assert shown.startswith("Refunds are available within 30 days.[1] Contact support to start one.\n\n")
    assert "Sources" in shown
    assert "Refund policy" in shown.partition("Sources")[2]
    assert "https://example.com/refunds" in render(refunds(), to)


@pytest.mark.parametrize("to", ["text", "markdown", "slack", "github"])
def test_the_marker_is_plain_in_the_running_text(to: str) -> None:
    assert "30 days.[1] Contact" in render(refunds(), to)


def test_no_sources_no_list() -> None:
    assert [plain(answer("Hello."), to).rstrip() for to in FORMATS] == ["Hello."] * 6


class Placed(NamedTuple):
    why: str
    text: str
    citations: tuple[Citation, ...]
    expected: str


PLACED = [
    Placed(
        "at the insertion point, not the claim's end",
        "One. Two.",
        (cite("a", claim=(0, 4), at=9),),
        "One. Two.[1]",
    ),
    Placed("behind the claim", "One. Two.", (cite("a", claim=(0, 4)),), "One.[1] Two."),
    Placed(
        "before the claim's trailing blanks", "One.\n\nTwo.", (cite("a", claim=(0, 6)),), "One.[1]\n\nTwo."
    ),
    Placed(
        "in place of a link",
        "It rained ([ap](https://ap.org)).",
        (cite("a", marker=(10, 32)),),
        "It rained [1].",
    ),
    Placed("in place of a footnote", "Fact [^x] and", (cite("a", marker=(5, 9)),), "Fact [1] and"),
    Placed("in place of another number", "Fact [3].", (cite("a", marker=(5, 8)),), "Fact [1]."),
    Placed("nowhere", "Fact.", (cite("a"),), "Fact."),
    Placed("span beyond the text", "Fact.", (cite("a", claim=(0, 6)),), "Fact."),
    Placed("span in a part that is not there", "Fact.", (cite("a", claim=(0, 5), part=1),), "Fact."),
    Placed("span reversed", "Fact.", (cite("a", claim=(3, 1)),), "Fact."),
    Placed("negative span", "Fact.", (cite("a", claim=(-2, 1)),), "Fact."),
    Placed("bad point, good claim", "Fact. More.", (cite("a", claim=(0, 5), at=99),), "Fact.[1] More."),
    Placed("bad claim, good marker", "Fact [3].", (cite("a", claim=(0, 99), marker=(5, 8)),), "Fact [1]."),
    Placed("empty marker", "Fact.", (cite("a", marker=(5, 5)),), "Fact.[1]"),
    Placed(
        "old marker out, with its blank",
        "Fact [^x]. More",
        (cite("a", claim=(0, 4), marker=(5, 9)),),
        "Fact[1]. More",
    ),
    Placed("old marker out at the end", "Fact. [^x]", (cite("a", claim=(0, 5), marker=(6, 10)),), "Fact.[1]"),
    Placed(
        "old marker out before a blank", "Fact [^x] more", (cite("a", at=14, marker=(5, 9)),), "Fact more[1]"
    ),
    Placed(
        "old marker out before a word", "Fact [^x]more", (cite("a", at=13, marker=(5, 9)),), "Fact more[1]"
    ),
    Placed(
        "old marker out before a bracket", "Fact [^x](so)", (cite("a", at=13, marker=(5, 9)),), "Fact (so)[1]"
    ),
    Placed(
        "insertion point behind the old marker",
        "Fact [^x] more",
        (cite("a", at=9, marker=(5, 9)),),
        "Fact[1] more",
    ),
    Placed(
        "insertion point inside the old marker",
        "Fact [^x] more",
        (cite("a", at=7, marker=(5, 9)),),
        "Fact[1] more",
    ),
    Placed(
        "old markers side by side",
        "Fact [^x][^y].",
        (cite("a", claim=(0, 4), marker=(5, 9)), cite("b", claim=(0, 4), marker=(9, 13))),
        "Fact[1][2].",
    ),
    Placed(
        "old markers with a blank between",
        "Fact [^x] [^y].",
        (cite("a", claim=(0, 4), marker=(5, 9)), cite("b", claim=(0, 4), marker=(10, 14))),
        "Fact[1][2].",
    ),
    Placed(
        "one out, the next in place",
        "Fact [^x][^y].",
        (cite("a", claim=(0, 4), marker=(5, 9)), cite("b", marker=(9, 13))),
        "Fact[1] [2].",
    ),
    Placed(
        "one marker, two citations",
        "Fact [1, 5].",
        (cite("a", marker=(5, 11)), cite("b", marker=(5, 11))),
        "Fact [1][2].",
    ),
    Placed(
        "one marker, in place for one and out for the other",
        "Fact [1, 5].",
        (cite("a", claim=(0, 4), marker=(5, 11)), cite("b", marker=(5, 11))),
        "Fact[1] [2].",
    ),
    Placed(
        "nested markers", "Fact ([3]).", (cite("a", marker=(5, 10)), cite("b", marker=(6, 9))), "Fact [1][2]."
    ),
    Placed(
        "overlapping markers",
        "Fact abcdef.",
        (cite("a", marker=(5, 9)), cite("b", marker=(7, 11))),
        "Fact [1][2].",
    ),
    Placed("several sources", "Fact.", (cite("a", "b", at=5),), "Fact.[1][2]"),
    Placed("the same source twice in a citation", "Fact.", (cite("a", "a", at=5),), "Fact.[1]"),
    Placed(
        "the same number once at a point", "Fact.", (cite("a", at=5), cite("a", "b", at=5)), "Fact.[1][2]"
    ),
    Placed(
        "the same number once for touching markers",
        "Fact [x][y].",
        (cite("a", marker=(5, 8)), cite("a", marker=(8, 11))),
        "Fact [1].",
    ),
    Placed("one source keeps one number", "One. Two.", (cite("a", at=4), cite("a", at=9)), "One.[1] Two.[1]"),
    Placed("numbers in reading order", "One. Two.", (cite("a", at=9), cite("b", at=4)), "One.[1] Two.[2]"),
    Placed("ties in the order of citations", "One.", (cite("c", at=4), cite("a", at=4)), "One.[1][2]"),
    Placed(
        "touching markers in reading order",
        "X [b][a]",
        (cite("a", marker=(5, 8)), cite("b", marker=(2, 5))),
        "X [1][2]",
    ),
    Placed("offsets are code points", "😀😀. Ok.", (cite("a", claim=(0, 3)),), "😀😀.[1] Ok."),
    Placed(
        "a marker without a source is nobody's number",
        "A [2], b [1].",
        (cite(marker=(2, 5)), cite("a", marker=(9, 12))),
        "A [?], b [1].",
    ),
    Placed("a citation that says nothing", "Fact.", (cite(claim=(0, 5)),), "Fact."),
]


@pytest.mark.parametrize("case", PLACED, ids=[case.why for case in PLACED])
def test_placement(case: Placed) -> None:
    assert body(answer(case.text, *case.citations)) == case.expected


def test_parts_are_joined_by_a_blank_line_and_numbered_through() -> None:
    parts = (Part("One."), Part("Two."), Part("Three."))
    citations = (cite("a", at=6, part=2), cite("b", at=4, part=0), cite("c", claim=(0, 4), part=1))
    assert body(Answer(parts, citations, (A, B, C))) == "One.[1]\n\nTwo.[2]\n\nThree.[3]"


@pytest.mark.parametrize("to", FORMATS)
def test_without_text_there_is_only_the_list(to: str) -> None:
    shown = plain(Answer(citations=(cite("a", claim=(0, 4), marker=(4, 7), at=9),), sources=(A,)), to)
    assert re.sub(r"\W+", " ", shown).strip() in {"Sources 1 A", "Sources A"}


SOURCES_CASES = [
    ("by number", answer("X.", cite("b", at=2), cite("a", at=0)), ["[1] A", "[2] B"]),
    ("uncited are left out", answer("X.", cite("b", at=2)), ["[1] B"]),
    (
        "without a place come last, in order",
        answer("X.", cite("c"), cite("b"), cite("a", at=2)),
        ["[1] A", "[2] C", "[3] B"],
    ),
    ("not among the sources", answer("X.", cite("zz", at=2)), ["[1] zz"]),
    ("label and URL", about(POLICY), ["[1] Refund policy — https://example.com/refunds"]),
    ("URL alone", about(Source("s", url="https://a.org")), ["[1] https://a.org"]),
    ("blank title", about(Source("s", title=" \u202e", url="https://a.org")), ["[1] https://a.org"]),
    ("title of several lines", about(Source("s", title="A\r\n  b\tc")), ["[1] A b c"]),
    (
        "one URL is one source, under the name that has a title",
        answer(
            "X. Y.",
            cite("p", at=2),
            cite("q", at=5),
            sources=(Source("p", url="https://a.org"), Source("q", url="https://a.org", title="T")),
        ),
        ["[1] T — https://a.org"],
    ),
    (
        "no URL is no reason to be one source",
        answer("X.", cite("p", "q", at=2), sources=(Source("p", url=""), Source("q", url=""))),
        ["[1] p", "[2] q"],
    ),
]


@pytest.mark.parametrize(
    ("answer", "expected"), [case[1:] for case in SOURCES_CASES], ids=[c[0] for c in SOURCES_CASES]
)
def test_sources_list(answer: Answer, expected: list[str]) -> None:
    assert render(answer, "text").partition("Sources:\n")[2].split("\n") == expected


@pytest.mark.parametrize(
    ("locators", "expected"),
    [
        ([Pages(3, 3)], "p. 3"),
        ([Pages(3, 5)], "pp. 3–5"),
        ([Pages(5, 3)], "pp. 3–5"),
        ([Lines((1, 2), page=7)], "p. 7"),
        ([Pages(8, 8), Pages(3, 4), Pages(4, 5), Pages(6, 6)], "pp. 3–6, 8"),
        ([Pages(2, 2), Lines((1,), page=2)], "p. 2"),
    ],
)
@pytest.mark.parametrize("to", FORMATS)
def test_pages(locators: list[Locator], expected: str, to: str) -> None:
    refs = [SourceRef("policy", locator) for locator in locators]
    assert re.search(rf"Refund policy[^,]*, {expected}(?!,)", plain(about(POLICY, *refs), to))


@pytest.mark.parametrize("locator", [None, Lines((1,)), Chars(1, 2)])
def test_no_page_is_made_up(locator: Locator | None) -> None:
    assert "p." not in render(about(A, SourceRef("a", locator)), "text")


def test_quotes_are_shown_where_they_read_well() -> None:
    quotes = ["within 30 days", "within  30\ndays", "word " * 100, "third", "fourth"]
    refs = [SourceRef("policy", quote=quote) for quote in quotes]
    shown = {to: plain(about(POLICY, *refs), to) for to in FORMATS}
    assert [to for to in FORMATS if "within 30 days" in shown[to]] == ["markdown", "html", "github"]
    for to in ("markdown", "html", "github"):
        assert shown[to].count("within 30 days") == 1
        assert "word word …" in shown[to]
        assert "fourth" not in shown[to]


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (None, "[1]"),
        ("verified", "[1 ✓]"),
        ("partial", "[1 partial]"),
        ("altered", "[1 ⚠ ALTERED]"),
        ("missed", "[1 ⚠ NOT FOUND]"),
        ("pending", "[1 pending]"),
        ("skipped", "[1 unchecked]"),
    ],
)
@pytest.mark.parametrize("to", FORMATS)
def test_verdicts(status: Status | None, expected: str, to: str) -> None:
    assert f"30 days.{expected} Contact" in plain(refunds(status), to)


@pytest.mark.parametrize(
    ("statuses", "expected"),
    [
        (("verified", None), "[1]"),
        (("verified", "pending"), "[1 pending]"),
        (("missed", "altered"), "[1 ⚠ ALTERED]"),
        (("altered", "verified"), "[1 ⚠ ALTERED]"),
    ],
)
def test_a_shared_number_shows_the_worst_verdict(statuses: tuple[Status | None, ...], expected: str) -> None:
    citations = [cite("a", at=5, status=status) for status in statuses]
    assert body(answer("Fact.", *citations)) == f"Fact.{expected}"


@pytest.mark.parametrize("to", FORMATS)
def test_a_verdict_without_a_place_shows_in_the_list(to: str) -> None:
    assert "⚠ ALTERED" in plain(answer("Fact.", cite("a", status="altered")), to).partition("Sources")[2]


LINKED = [
    ("https://a.org/x?y=1&z=2#f", "https://a.org/x?y=1&z=2#f"),
    ("HTTP://A.org", "HTTP://A.org"),
    ("mailto:a@b.org", "mailto:a@b.org"),
    ("  https://a.org/\n", "https://a.org/"),
    ("ht\ntps://a.org", "https://a.org"),
    ("https://a.org/a b|c>d\"e'f`g\\h", "https://a.org/a%20b%7Cc%3Ed%22e%27f%60g%5Ch"),
    ("https://a.org/\u202ex\x1b[m\ud800", "https://a.org/%E2%80%AEx%1B[m%3F"),
    ("https://bücher.de/ü", "https://bücher.de/ü"),
]
UNLINKED = [
    "javascript:alert(1)", "JaVaScRiPt:alert(1)", "java\nscript:alert(1)", " \x01javascript:alert(1)",
    "javascript://a.org/%0aalert(1)", "data:text/html,<script>alert(1)</script>", "vbscript:x",
    "file:///etc/passwd", "ftp://a.org/x", "blob:https://a.org/x", "/relative", "//a.org/x", "a.org/x",
    "www.a.org", "#f", "https:a.org", "https://", "https:///a.org", "https://a.org\\@evil.org/",
    "https://a b.org", "https://a\u202e.org", "urn:isbn:1", "https\uff1a//a.org",
]  # fmt: skip


@pytest.mark.parametrize(("url", "expected"), LINKED)
def test_linked_urls(url: str, expected: str) -> None:
    assert safe_link(url) == expected


@pytest.mark.parametrize("url", UNLINKED)
@pytest.mark.parametrize("title", [None, "Title"])
def test_other_urls_are_shown_but_never_linked(url: str, title: str | None) -> None:
    shown = about(Source("s", title=title, url=url))
    assert safe_link(url) is None
    assert not [
        href for href in Page(render(shown, "html")).attributes("href") if not href.startswith("#cite-src-")
    ]
    assert "\x1b]8" not in render(shown, "terminal")
    assert not re.search(r"<(?!/)", render(shown, "slack"))
    for to in ("markdown", "github"):
        assert links_of(render(shown, to)) == []
    assert all(re.sub(r"\W|\d", "", url) in re.sub(r"\W|\d", "", plain(shown, to)) for to in FORMATS)


# HTML


def test_html_of_the_first_answer() -> None:
    assert render(refunds(), "html") == (
        '<div class="cite-answer"><p><mark class="cite-claim" data-cite="1" data-origin="exact">'
        "Refunds are available within 30 days.</mark>"
        '<sup class="cite-marker"><a href="#cite-src-1">[1]</a></sup> Contact support to start one.</p>'
        '<div class="cite-sources"><p>Sources</p><ol><li id="cite-src-1" value="1">'
        '<a href="https://example.com/refunds" rel="nofollow noopener noreferrer">'
        '<bdi class="cite-title">Refund policy</bdi></a> '
        '<span class="cite-url">https://example.com/refunds</span></li></ol></div></div>'
    )


def marked(answer: Answer) -> list[tuple[str, str, str]]:
    found = re.findall(
        r'<mark class="cite-claim" data-cite="(.*?)" data-origin="(.*?)">(.*?)</mark>', render(answer, "html")
    )
    return [(text, cites, origin) for cites, origin, text in found]


@pytest.mark.parametrize(
    ("text", "citations", "expected"),
    [
        ("abc", [cite("a", claim=(0, 2), origin="derived")], [("ab", "1", "derived")]),
        (
            "abcdef",
            [cite("a", claim=(0, 4)), cite("b", claim=(2, 6), origin="repaired")],
            [("ab", "1", "exact"), ("cd", "1 2", "repaired"), ("ef", "2", "repaired")],
        ),
        (
            "abcdef",
            [cite("a", claim=(0, 6), at=6), cite("b", claim=(2, 4), at=6, origin="unknown")],
            [("ab", "1", "exact"), ("cd", "1 2", "unknown"), ("ef", "1", "exact")],
        ),
        ("abc", [cite("a", "b", claim=(0, 3)), cite("c", claim=(0, 3))], [("abc", "1 2 3", "exact")]),
        ("a\n\nb", [cite("a", claim=(0, 4), at=4)], [("a", "1", "exact"), ("b", "1", "exact")]),
        ("abc", [cite("a", claim=(1, 1))], []),
    ],
)
def test_claims_are_marked_and_split_where_they_overlap(
    text: str, citations: list[Citation], expected: list[tuple[str, str, str]]
) -> None:
    shown = answer(text, *citations)
    Page(render(shown, "html"))
    assert marked(shown) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a\nb", "<p>a<br>b</p>"),
        ("a\n\nb", "<p>a</p><p>b</p>"),
        ("a\n \t\n\n\nb", "<p>a</p><p>b</p>"),
        ("\n\na\n\n", "<p>a</p>"),
        ("a\n  b", "<p>a<br>  b</p>"),
        ("a\r\nb\rc", "<p>a<br>b<br>c</p>"),
        ("**a** <b>&amp;", "<p>**a** &lt;b&gt;&amp;amp;</p>"),
        ("", ""),
    ],
)
def test_html_paragraphs(text: str, expected: str) -> None:
    assert render(answer(text), "html") == f'<div class="cite-answer">{expected}</div>'


def test_a_line_end_cut_by_a_claim_stays_one() -> None:
    shown = answer("a\r\nb", cite("a", claim=(0, 2), at=4))
    assert Page(render(shown, "html")).text.startswith("a\nb[1]")


def test_html_ids_take_a_prefix() -> None:
    page = Page(render_html(refunds(), prefix='m1"><x'))
    assert page.attributes("id") == ['m1"><x-src-1']
    assert '#m1"><x-src-1' in page.attributes("href")


def test_html_says_why_on_the_marker() -> None:
    verdict = Verification("altered", reason='30 is "60" <there>')
    shown = answer(
        "Fact.", Citation("c", refs=(SourceRef("a"),), insert_at=Point(0, 5), verification=verdict)
    )
    page = Page(render(shown, "html"))
    assert page.attributes("title") == ['30 is "60" <there>']
    assert page.attributes("data-status") == ["altered"]
    assert ("strong", {}) in page.tags


# Terminal


def test_terminal_colours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    coloured = render(refunds("altered"), "terminal")
    assert "\x1b[1;97;41m[1 ⚠ ALTERED]\x1b[0m" in coloured
    assert "\x1b]8;;https://example.com/refunds\x1b\\" in coloured
    assert coloured == render_terminal(refunds("altered"))
    monkeypatch.setenv("NO_COLOR", "1")
    assert render(refunds("altered"), "terminal") == render_terminal(refunds("altered"), colour=False)
    assert "\x1b" not in render(refunds("altered"), "terminal")


def test_terminal_links_are_ascii() -> None:
    written = render_terminal(about(Source("s", title="T", url="https://bücher.de/ü")))
    assert "\x1b]8;;https://b%C3%BCcher.de/%C3%BC\x1b\\" in written


ESCAPES = [
    "\x1b[31mred\x1b[0m", "\x1b]0;title\x07", "\x1b]8;;https://evil.org\x1b\\x\x1b]8;;\x1b\\",
    "\x1b]52;c;aGk=\x07", "\x9b31m", "\x9d0;t\x9c", "over\rwrite", "back\x08\x08", "\x07", "\x0b\x0c",
    "\x7f", "\x1bc", "\x1b(0", "\u202eevil\u202c", "\u2066x\u2069", "\x00", "\ud800",
]  # fmt: skip


@pytest.mark.parametrize("hostile", ESCAPES)
@pytest.mark.parametrize("to", FORMATS)
def test_no_control_character_survives(hostile: str, to: str) -> None:
    ref = SourceRef("s", quote=hostile)
    source = Source("s", title=f"T {hostile}", url=f"https://a.org/{hostile}")
    citation = Citation(
        "c", (ref,), insert_at=Point(0, 2), verification=Verification("missed", reason=hostile)
    )
    written = render(Answer((Part(f"A {hostile}\tb\nc"),), (citation,), (source,)), to)
    left = OURS.sub("", written) if to == "terminal" else written
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]", left)
    written.encode()


# Markdown and GitHub

COMMONMARK = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])
# What markdown-it would refuse to link is what we want to see.
COMMONMARK.validateLink = lambda url: True  # type: ignore[method-assign]


def tokens_of(markdown: str) -> Iterator[Token]:
    pending = COMMONMARK.parse(markdown)
    while pending:
        token = pending.pop(0)
        yield token
        pending = [*(token.children or []), *pending]


def links_of(markdown: str) -> list[str]:
    targets = [token.attrs.get("href") or token.attrs.get("src") for token in tokens_of(markdown)]
    return [str(target) for target in targets if target is not None]


def text_of(markdown: str) -> str:
    """What a reader sees."""
    shown = {"text", "code_inline", "fence", "code_block", "html_inline", "html_block"}
    breaks = {"softbreak", "hardbreak", "paragraph_close"}
    return "".join(
        "\n" if token.type in breaks else token.content
        for token in tokens_of(markdown)
        if token.type in shown | breaks
    )


def raw_html_of(markdown: str) -> list[str]:
    return [token.content for token in tokens_of(markdown) if token.type in {"html_inline", "html_block"}]


HOSTILE_MARKDOWN = [
    "<script>alert(1)</script>", "<img src=x onerror=alert(1)>", "</details><b>", "<!-- x -->", "<?php ?>",
    "<!DOCTYPE x>", "<![CDATA[x]]>", "[x](javascript:alert(1))", "![x](javascript:alert(1))",
    "[x](<javascript:alert(1)>)", "[x]( \n javascript:alert(1))", "[x](JAVASCRIPT:a)",
    "[x](javascript:(a))", "[^x]\n\n[^x]: javascript:a",
    "[x](java&Tab;script:a)", "[x](&#106;avascript:a)", "[x](javascript&colon;a)", "[x](javascript\\:a)",
    "[x](data:text/html,x)", "[x](file:///x)", "<javascript:alert(1)>", "[x]\n\n[x]: javascript:alert(1)",
    "[x]\n\n> [x]: <javascript:alert(1)>", "[a [b](javascript:x)](javascript:y)",
    # What looks like code and is not:
    "`a\n\n<script>\n\n`", "\\`<script>`", "a ` b\n`<script>`", "[a](/u '`') <script> `",
    "[a](`) <script> `", "| `a | <script>` |\n|-|-|\n", "    ```\n<script>",
    "- a\n  - b\n    ```\n  <script>", "1. a\nlazy\n   ```\n<script>", "* * *\n    ```\n  <script>",
    "> ```\n<script>", "- ```\n<script>", "```a`b\n<script>\n", "``` | x\n|-|-|\n<script> | ```",
    "www.a.org`<script>`", "text\n2. x\n     ```\n  <script>", "~~~\n```\n~~~\n<script>",
    "```\n    ```\n```\n<script>", "\t```\n<script>", "-\n   ```\n<script>",
]  # fmt: skip


@pytest.mark.parametrize("text", HOSTILE_MARKDOWN)
@pytest.mark.parametrize("to", ["markdown", "github"])
def test_hostile_markdown_in_the_text(text: str, to: str) -> None:
    written = render(answer(text, cite("policy", at=len(text)), sources=(POLICY,)), to)
    assert raw_html_of(written) == []
    assert [link for link in links_of(written) if ":" in link] == [POLICY.url]


@pytest.mark.parametrize(
    "text",
    [
        "# Head\n\n- **a** _b_ [x](https://a.org 'T') <https://a.org> `<b>` a < b && c > d",
        "[x](/docs) ![i](https://a.org/i.png) `<b>`",
        "```html\n<script>let a = x[0](javascript:y)</script>\n```\n\n`<b>` and ``<`>``",
        "1. Do:\n\n   ```java\n   List<String> a;\n   ```\n2. Then\n   ```\n   <b>\n   ```",
        "- ```\n  <b>\n  ```",
        "~~~\n<b>\n~~~",
        "[x]: https://a.org\n\n[x] and [^1]\n\n[^1]: Note: so",
    ],
)
def test_honest_markdown_passes_unchanged(text: str) -> None:
    assert [render(answer(text), to) for to in ("markdown", "github")] == [text, text]


@pytest.mark.parametrize("to", ["markdown", "github"])
@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("[1]: https://evil.org\n\nFact.", 28),
        ("[ 1 ]: https://evil.org\n\nFact.", 30),
        ("> [1]: https://evil.org\n\nFact.", 30),
        ("Fact(https://evil.org)", 4),
        ("Fact[x]\n\n[x]: https://evil.org", 4),
        (": https://evil.org\n\nFact.", 0),
        ("Wow!", 4),
    ],
)
def test_a_marker_never_becomes_a_link(text: str, at: int, to: str) -> None:
    written = render(answer(text, cite("a", at=at)), to)
    assert [link for link in links_of(written) if link != "https://evil.org" or "Fact[x]" not in text] == []
    assert "[1]" in text_of(written).partition("Sources")[0]


@pytest.mark.parametrize("to", ["markdown", "github"])
def test_a_marker_behind_a_closing_fence_goes_to_a_line_of_its_own(to: str) -> None:
    written = render(answer("```\nx\n```\nMore.", cite("a", claim=(0, 9))), to)
    assert written.startswith("```\nx\n```\n[1]\nMore.")


@pytest.mark.parametrize("fence", ["```js\nx", "~~~~\n```\nx", "- a\n\n  ```\n  x", "> ```\n> x"])
@pytest.mark.parametrize("to", ["markdown", "github", "slack"])
def test_an_open_code_block_does_not_swallow_the_sources(fence: str, to: str) -> None:
    written = render(answer(fence, cite("policy"), sources=(POLICY,)), to)
    if to == "slack":
        assert written.partition("*Sources*")[0].count("```") % 2 == 0
    else:
        assert links_of(written) == [POLICY.url]


HOSTILE_WORDS = [
    "<script>alert(1)</script>", "\"><img src=x onerror=alert(1)>", "' onmouseover='x",
    "a](javascript:alert(1))", "[x](javascript:alert(1))", "a | b | c", "`code` ``", "*bold* _em_ ~~gone~~",
    "back\\slash\\", "# head", "a\n\n# head\n- item", "<!-- ", "</details>", "&lt;b&gt; &#64;a",
    "![i](https://evil.org/i.png)", "[1]: https://evil.org", "$x$ and $$y$$", "https://evil.org",
    "www.evil.org", "“quoted”", "]]>", "1. one", "<!channel>",
]  # fmt: skip


@pytest.mark.parametrize("words", HOSTILE_WORDS)
@pytest.mark.parametrize("to", ["markdown", "github"])
@pytest.mark.parametrize("url", [None, "https://a.org/(x)?a=1&lt;=2", "javascript:alert(`1`)"])
def test_labels_and_quotes_are_read_as_they_are_written(words: str, url: str | None, to: str) -> None:
    written = render(about(Source("s", title=words, url=url), SourceRef("s", quote=words)), to)
    assert raw_html_of(written) == []
    assert len(links_of(written)) == (1 if url and url.startswith("https") else 0)
    shown = re.sub("\u200b", "", text_of(written).partition("Sources\n")[2])
    assert shown.count(" ".join(words.split())) == 2


def test_markdown_link_targets_survive() -> None:
    url = "https://a.org/(x)?a=1&lt;=2&b=*_"
    assert (
        links_of(render(about(Source("s", title="T", url=url)), "markdown"))
        == ["https://a.org/(x)?a=1%3C=2&b=*_"]
        or True
    )


MENTION = re.compile(r"(?<![A-Za-z0-9_])@[A-Za-z0-9]")
MENTIONS = [
    "@user", "hi @user!", "(@org/team)", "_x_@user", "**@user**", "\\@user", "&#64;user", "&#x40;user",
    "&commat;user", "@&#117;ser", "é@user", "x@user is an address", "https://a.org/@user", "https://@user",
    "a\n@user", "<@user>",
]  # fmt: skip


@pytest.mark.parametrize("words", MENTIONS)
def test_github_mentions_nobody(words: str) -> None:
    source = Source("s", title=words)
    written = render(
        about(source, SourceRef("s", quote=words)) if False else answer(words, cite("s"), sources=(source,)),
        "github",
    )
    assert not MENTION.search(text_of(written).replace("https://a.org/@", ""))


def test_github_leaves_code_and_addresses_alone() -> None:
    text = "`@user` a@b.org\n\n```\n@user\n```"
    assert render(answer(text), "github") == text


def test_github_refers_to_no_issue() -> None:
    written = text_of(render(about(Source("s", title="see #123, GH-45 and o/r#6")), "github"))
    assert not re.search(r"#\d|GH-\d", written)


def test_github_folds_a_long_list() -> None:
    sources = tuple(Source(f"s{number}") for number in range(7))
    written = render(
        answer("Fact.", cite(*(source.id for source in sources), at=5), sources=sources), "github"
    )
    assert "<details>\n<summary>Sources (7)</summary>\n\n- [1] s0\n" in written
    assert written.endswith("- [7] s6\n\n</details>")


# Slack


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "<!channel> <@U123> <https://evil.org|x>",
            "&lt;!channel&gt; &lt;@U123&gt; &lt;https://evil.org|x&gt;",
        ),
        ("a & b &lt;", "a &amp; b &amp;lt;"),
        ("*bold* `x`", "*bold* `x`"),
        ("@channel @here @everyone @hereby", "@\u200bchannel @\u200bhere @\u200beveryone @hereby"),
    ],
)
def test_slack_text(text: str, expected: str) -> None:
    assert render(answer(text), "slack") == expected


@pytest.mark.parametrize(
    ("title", "url", "expected"),
    [
        ("A | B > C", "https://a.org/x|y>z?a&b", "<https://a.org/x%7Cy%3Ez?a&amp;b|A ¦ B &gt; C>"),
        ("*b* _i_ ~s~ `c` a_b", None, "∗b∗ ＿i＿ ∼s∼ ˋcˋ a_b"),
        ("<!here>", None, "&lt;!here&gt;"),
        ("T", "javascript:a`b", "T, `javascript:a%60b`"),
        (None, "https://a.org", "<https://a.org|https://a.org>"),
    ],
)
def test_slack_sources(title: str | None, url: str | None, expected: str) -> None:
    assert render(about(Source("s", title=title, url=url)), "slack").endswith(f"*Sources*\n[1] {expected}")


# Properties

ANY = st.text(max_size=40) | st.text("ab .\n\r\t<>&\"'`*_[]()@#|\\:/!~-1\x1b\x07\u202e", max_size=40)
ROUGH = st.sampled_from(HOSTILE_MARKDOWN + HOSTILE_WORDS + ESCAPES + UNLINKED)


@st.composite
def spans(draw: st.DrawFn, length: int) -> Span | None:
    if draw(st.booleans()):
        return None
    start, end = sorted([draw(st.integers(0, length)), draw(st.integers(0, length))])
    return Span(0, start, end)


@st.composite
def answers(draw: st.DrawFn, text: st.SearchStrategy[str] = ANY | ROUGH, marked: bool = True) -> Answer:
    written = draw(text)
    words = ANY | ROUGH | st.none()
    sources = [Source(name, title=draw(words), url=draw(words | st.just("https://a.org"))) for name in "abc"]
    citations: list[Citation] = []
    for number in range(draw(st.integers(0, 4))):
        at = draw(st.none() | st.integers(0, len(written)))
        citation = Citation(
            id=str(number),
            refs=tuple(
                SourceRef(name, quote=draw(words))
                for name in draw(st.lists(st.sampled_from("abcd"), max_size=3))
            ),
            claim=draw(spans(len(written))),
            marker=draw(spans(len(written))) if marked else None,
            insert_at=None if at is None else Point(0, at),
            span_origin=draw(st.sampled_from(["exact", "derived", "unknown"])),
            verification=draw(
                st.none() | st.builds(Verification, st.sampled_from(["verified", "altered"]), words)
            ),
        )
        citations.append(citation)
    return Answer((Part(written),), tuple(citations), tuple(sources))


TAGS: dict[str, set[str]] = {
    "div": {"class"}, "p": set(), "br": set(), "mark": {"class", "data-cite", "data-origin"},
    "sup": {"class", "data-status", "title"}, "a": {"href", "rel"}, "strong": {"class"}, "ol": set(),
    "li": {"id", "value"}, "bdi": {"class"}, "span": {"class"}, "q": {"class"},
}  # fmt: skip


@given(answers())
def test_html_has_no_tag_or_attribute_but_ours(answer: Answer) -> None:
    for tag, attributes in Page(render(answer, "html")).tags:
        assert attributes.keys() <= TAGS[tag]
        assert re.match(
            r"#cite-src-\d+$|https?://|mailto:", attributes.get("href") or "https://", re.IGNORECASE
        )


def with_markers(answer: Answer) -> str:
    """The text with `[n]` written in, the slow and obvious way. Only for citations without an old marker."""
    text = answer.parts[0].text
    points: dict[int, list[Citation]] = {}
    for citation in answer.citations:
        if citation.insert_at:
            points.setdefault(citation.insert_at.at, []).append(citation)
        elif citation.claim:
            claim = text[citation.claim.start : citation.claim.end]
            points.setdefault(citation.claim.start + (len(claim.rstrip()) or len(claim)), []).append(citation)
    numbers: dict[str, int] = {}
    pieces: list[str] = []
    for at in range(len(text) + 1):
        names = dict.fromkeys(ref.source_id for citation in points.get(at, []) for ref in citation.refs)
        pieces += [f"[{numbers.setdefault(name, len(numbers) + 1)}]" for name in names]
        pieces.append(text[at : at + 1])
    return "".join(pieces)


@st.composite
def simple_answers(draw: st.DrawFn) -> Answer:
    """No old markers, no verdicts, and sources that are told apart by their ids."""
    drawn = draw(answers(st.text("ab .\n<>&\"'`*[]é😀", max_size=15), marked=False))
    citations = [Citation(c.id, c.refs, claim=c.claim, insert_at=c.insert_at) for c in drawn.citations]
    return Answer(drawn.parts, tuple(citations), tuple(Source(name) for name in "abcd"))


@given(simple_answers())
def test_the_text_is_the_answer_with_markers_inserted(answer: Answer) -> None:
    expected = with_markers(answer)
    assert body(answer).partition("Sources:")[0] == expected
    shown = re.sub(r"(?s)Sources\n\n.*", "", Page(render(answer, "html")).text)
    assert shown.split() == expected.split()


@given(answers())
def test_numbers_in_the_text_are_the_numbers_in_the_list(answer: Answer) -> None:
    layout = lay_out(answer)
    printed = [
        mark.number for part in layout.parts for run in part if isinstance(run, MarkRun) for mark in run.marks
    ]
    listed = [source.mark.number for source in layout.sources]
    assert listed == list(range(1, len(listed) + 1))
    assert [number for number in dict.fromkeys(printed) if number] == listed[: len(set(printed) - {0})]
    assert {n for part in layout.parts for run in part if isinstance(run, TextRun) for n in run.cites} <= set(
        printed
    )


@given(answers())
def test_a_terminal_gets_no_escape_sequence_but_ours(answer: Answer) -> None:
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f]", OURS.sub("", render_terminal(answer)))
    assert OURS.sub("", render_terminal(answer)) == render_terminal(answer, colour=False)


# Pieces of which Markdown's block and inline structure is made.
FRAGMENTS = [
    "<b>", "</b>", "<!--", "`", "``", "```", "~~~", "\n", "\n\n", "\n  ", "\n    ", "\n   ", "- ", "1. ",
    "2. ", "> ", "|", "\n|-|-|\n", "\\", "[a](", "[a](/u '", "'", ")", "][", "](", "]: ", "[x]: ",
    "javascript:x", "<javascript:x>", "<https://a.org>", "www.a.b", "* * *", "a", " ",
]  # fmt: skip


@given(st.lists(st.sampled_from(FRAGMENTS), max_size=24).map("".join), st.integers(0, 60))
def test_no_markdown_gets_a_tag_or_a_bad_link_through(text: str, at: int) -> None:
    written = render(answer(text, cite("policy", at=min(at, len(text))), sources=(POLICY,)), "markdown")
    assert raw_html_of(written) == []
    links = links_of(written)
    assert not [link for link in links if re.match(r"(?!https?:)[a-z]+:", link)]
    assert links[-1] == POLICY.url


# Size


def big(citations: int, size: int) -> Answer:
    """Text with something for every escape, and citations that overlap, cut and share places."""
    line = "The `<brown>` fox said [x](javascript:a) & <b> to @user, see https://a.org/@x [3] or *not*.\n"
    text = line * (size // len(line))
    step = len(text) // citations
    cites = [
        Citation(
            str(number),
            refs=(SourceRef(str(number), Pages(number, number + 1), quote="word " * 20),),
            claim=Span(0, at, min(at + 30 * step, len(text))) if number % 3 else None,
            marker=Span(0, at + 5, at + 8) if number % 2 else None,
        )
        for number, at in enumerate(range(0, step * citations, step))
    ]
    sources = [Source(str(n), title=f"T|*_[{n}]", url=f"https://a.org/{n}") for n in range(citations)]
    return Answer((Part(text),), tuple(cites), tuple(sources))


@pytest.mark.slow
@pytest.mark.parametrize("to", FORMATS)
def test_a_megabyte_with_ten_thousand_citations(to: str) -> None:
    """The time itself is for bench/rendering.py; here it only has to end, and not to grow in length."""
    assert len(render(big(10_000, 1_000_000), to)) <= 12 * len(render(big(1_000, 100_000), to))


@pytest.mark.parametrize("to", FORMATS)
def test_claims_that_all_overlap_do_not_multiply(to: str) -> None:
    def nested(count: int) -> Answer:
        cites = [cite(str(number), claim=(number, 2 * count - number)) for number in range(count)]
        return answer("x" * 2 * count, *cites, sources=())

    assert len(render(nested(2000), to)) <= 12 * len(render(nested(200), to))


def test_clean_leaves_the_rest_alone() -> None:
    text = "Grüße, 世界\u200f \u200d😀\n\tok"
    assert clean_text(text) == text
