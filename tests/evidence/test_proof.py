"""Proofs: selectors, text fragments that lead where they should, snippets, the record."""

import re
from html import unescape
from urllib.parse import unquote

import msgspec
import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import citewire
from citewire.documents.document import Aside, Box, Document, DocumentKind, Page
from citewire.documents.html import read_html
from citewire.documents.text import line_starts
from citewire.evidence.proof import (
    Proof,
    find_fragment,
    is_certain_edge,
    is_possible_edge,
    make_links,
    make_selectors,
    make_snippet,
    page_url,
    prove,
    prove_all,
    text_fragment,
    text_fragment_url,
)
from citewire.verification.document_set import CheckResult
from support.cases import need_cases

PAGE = (
    "The Fee\nThe annual fee is 40 dollars. Members who can't pay in May may pay in June.\n"
    "The annual fee is 40 dollars for guests too, of whom there are 3,141 in well-known places.\n"
    "Résumé & naïve café, snake_case — “curly”. The end of the annual report."
)


def page(
    text: str, kind: DocumentKind = "html", url: str | None = "https://a.example/p", hidden: str = ""
) -> Document:
    at = text.index(hidden)
    asides = (Aside(at, at + len(hidden), "hidden"),) if hidden else ()
    return Document(
        "0" * 64, kind, text, (Page(1, 0, len(text)),), line_starts(text), asides=asides, url=url
    )  # fmt: skip


def span(text: str, words: str, nth: int = 0) -> tuple[int, int]:
    start = [found.start() for found in re.finditer(re.escape(words), text)][nth]
    return start, start + len(words)


@pytest.mark.parametrize(
    ("fragment", "words", "nth"),
    [
        pytest.param("#:~:text=annual", "annual", 0, id="a word"),
        pytest.param("#:~:text=ANNUAL%20FEE", "annual fee", 0, id="case"),
        pytest.param("#:~:text=annual%20%20%0Afee", "annual fee", 0, id="blanks"),
        pytest.param("#:~:text=resume", "Résumé", 0, id="marks left out"),
        pytest.param("#:~:text=cafe%CC%81", "café", 0, id="marks apart"),
        pytest.param("#:~:text=nnual", None, 0, id="not at the start of a word"),
        pytest.param("#:~:text=annua", None, 0, id="not at the end of a word"),
        pytest.param("#:~:text=can", None, 0, id="an apostrophe is inside a word"),
        pytest.param("#:~:text=can't", "can't", 0, id="with the apostrophe"),
        pytest.param("#:~:text=3", None, 0, id="a comma is inside a number"),
        pytest.param("#:~:text=141", None, 0, id="and so is what follows it"),
        pytest.param("#:~:text=3%2C141", "3,141", 0, id="the whole number"),
        pytest.param("#:~:text=snake", None, 0, id="an underscore is inside a word"),
        pytest.param("#:~:text=well", "well", 0, id="a hyphen ends a word"),
        pytest.param("#:~:text=well%2Dknown", "well-known", 0, id="an encoded hyphen"),
        pytest.param("#:~:text=dollars", "dollars", 0, id="a full stop ends a word"),
        pytest.param("#:~:text=curly", "curly", 0, id="quotation marks end a word"),
        pytest.param(
            "#:~:text=guests,places",
            "guests too, of whom there are 3,141 in well-known places",
            0,
            id="range",
        ),
        pytest.param(
            "#:~:text=fee,dollars", "Fee\nThe annual fee is 40 dollars", 0, id="a range over blocks"
        ),
        pytest.param("#:~:text=places,guests", None, 0, id="the end is before the start"),
        pytest.param("#:~:text=annua,dollars", None, 0, id="a start before an end is a whole word"),
        pytest.param("#:~:text=annual,ollars", None, 0, id="an end starts a word"),
        pytest.param("#:~:text=June.-,The", "The", 2, id="prefix, in the block before"),
        pytest.param("#:~:text=annual-,fee", "fee", 0, id="prefix in the block"),
        pytest.param("#:~:text=nnual-,fee", None, 0, id="a prefix starts at a word"),
        pytest.param("#:~:text=annu-,al", "al", 0, id="a start behind a prefix need not"),
        pytest.param("#:~:text=annual-,is", None, 0, id="a prefix stands right before"),
        pytest.param("#:~:text=dollars,-for", "dollars", 1, id="suffix"),
        pytest.param("#:~:text=dollars,-fo", None, 0, id="a suffix ends at a word"),
        pytest.param("#:~:text=doll,-ars%20for", "doll", 1, id="a start before a suffix need not"),
        pytest.param("#:~:text=dollars.,-Members", "dollars.", 0, id="suffix behind a mark"),
        pytest.param(
            "#:~:text=is-,40,dollars,-for",
            PAGE[PAGE.index("40") : PAGE.index(" for guests")],
            0,
            id="all four: the first start that fits",
        ),
        pytest.param("#:~:text=pay%20in-,May", "May", 0, id="a homonym"),
        pytest.param("#:~:text=nobody", None, 0, id="absent"),
        pytest.param("#:~:text=", None, 0, id="empty"),
        pytest.param("#:~:text=annual-", None, 0, id="a prefix alone is a start with a hyphen"),
        pytest.param("#:~:text=a,b,c,d,e", None, 0, id="too many parts"),
        pytest.param("#:~:text=annual,,fee", None, 0, id="an empty part"),
        pytest.param("#:~:text=-,fee", None, 0, id="an empty prefix"),
        pytest.param("#:~:text=%CC%81", None, 0, id="nothing but a mark"),
        pytest.param("#section:~:text=annual", "annual", 0, id="behind another fragment"),
        pytest.param("#:~:other=1&text=annual&text=fee", "annual", 0, id="among other directives"),
        pytest.param("#:~:text=r%C3%A9sum%C3%A9%20%26%20naive", "Résumé & naïve", 0, id="ampersand"),
        pytest.param("#section", None, 0, id="no directive"),
    ],
)
def test_finding_as_the_draft_says(fragment: str, words: str | None, nth: int) -> None:
    assert find_fragment(PAGE, fragment) == (None if words is None else span(PAGE, words, nth))


@pytest.mark.parametrize(
    ("words", "nth", "fragment"),
    [
        pytest.param(
            "Members who can't pay in May", 0, "Members%20who%20can%27t%20pay%20in%20May", id="alone"
        ),
        pytest.param(
            "The annual fee is 40 dollars",
            0,
            "The%20Fee-,The%20annual%20fee%20is%2040%20dollars,-.%20Members%20who",
            id="the first of two",
        ),
        pytest.param(
            "The annual fee is 40 dollars",
            1,
            "pay%20in%20June.-,The%20annual%20fee%20is%2040%20dollars,-for%20guests%20too%2C",
            id="the second of two",
        ),
        pytest.param("may pay", 0, "pay%20in%20May-,may%20pay,-in%20June.", id="short ones have context"),
        pytest.param(
            "3,141", 0, "whom%20there%20are-,3%2C141,-in%20well%2Dknown%20places.", id="comma and hyphen"
        ),
        pytest.param(
            "Résumé & naïve café",
            0,
            "in%20well%2Dknown%20places.-,"
            "R%C3%A9sum%C3%A9%20%26%20na%C3%AFve%20caf%C3%A9,-%2C%20snake_case%20%E2%80%94",
            id="ampersand",
        ),
        pytest.param("in June.\nThe annual fee", 0, "in%20June.,The%20annual%20fee", id="over blocks"),
        pytest.param("eport", 0, "the%20annual%20r-,eport,-.", id="inside a word"),
        pytest.param(PAGE, 0, "The%20Fee,the%20annual%20report.", id="the whole page"),
    ],
)
def test_fragments_are_as_short_as_may_be(words: str, nth: int, fragment: str) -> None:
    start, end = span(PAGE, words, nth)
    made = text_fragment(page(PAGE), start, end)
    assert made == f"#:~:text={fragment}"
    assert find_fragment(PAGE, f"#:~:text={fragment}") == (start, end)


@pytest.mark.parametrize(
    ("text", "start", "end"),
    [
        pytest.param("same same same same same", 5, 9, id="no context tells them apart"),
        pytest.param("one\none\none\none", 8, 11, id="nor do the blocks around"),
        pytest.param("a \n b", 1, 3, id="blanks"),
        pytest.param("中文没有空格也没有标点" * 200, 1101, 1103, id="no edge far and wide"),
    ],
)
def test_what_cannot_be_told_apart_has_no_fragment(text: str, start: int, end: int) -> None:
    made = text_fragment(page(text), start, end)
    assert made is None or find_fragment(text, made) == (start, end)


def test_long_quotes_are_given_by_their_ends() -> None:
    text = " ".join(f"word{number}" for number in range(500))
    start, end = text.index("word100 "), text.index(" word300")
    assert text_fragment(page(text), start, end) == (
        "#:~:text=word100%20word101%20word102,word297%20word298%20word299"
    )


def test_chinese_has_context_up_to_marks() -> None:
    """Where words end is the browser's secret, but for the marks."""
    text = "前面的话。会费是四十元，客人也一样。会费是五十元，客人也一样。"
    start, end = span(text, "是五十元")
    made = text_fragment(page(text), start, end)
    assert made is not None
    assert [unquote(part) for part in made.partition("text=")[2].split(",")][1] == "是五十元"
    for edge in (is_certain_edge, is_possible_edge):
        assert find_fragment(text, made, edge) == (start, end)


def test_hidden_text_is_not_led_to_and_leads_nowhere() -> None:
    text = "Visible words of the page. Hidden words of the page. More visible words of the page."
    document = page(text, hidden="Hidden words of the page.")
    assert text_fragment(document, *span(text, "Hidden words of the page")) is None
    start, end = span(text, "More visible words of the page")
    made = text_fragment(document, start, end)
    assert made is not None
    seen = text.replace("Hidden words of the page.", "")
    assert find_fragment(text, made) == (start, end)
    assert find_fragment(seen, made) == (start - 25, end - 25)


# Few and small words, so that they repeat; punctuation, marks and blocks between them.
WORDS = st.sampled_from(
    ["a", "b", "an", "a-b", "don't", "3.1", "É", "ﬁn", "straße", "中文", "ก", "a,", "(b)", "x_y"]
)
TEXTS = st.lists(
    st.tuples(WORDS, st.sampled_from([" ", " ", " ", "\n", "  ", "", "\t", "\xa0", "。"])), max_size=30
).map(lambda pairs: "".join(word + gap for word, gap in pairs))


@given(TEXTS, st.data())
def test_a_fragment_leads_to_its_range_and_nowhere_before(text: str, data: st.DataObject) -> None:
    assume(text.strip())
    start = data.draw(st.integers(0, len(text) - 1))
    end = data.draw(st.integers(start + 1, len(text)))
    made = text_fragment(page(text), start, end)
    if made is not None:
        words = text[start:end]
        place = end - len(words.lstrip()), start + len(words.rstrip())
        assert find_fragment(text, made, is_certain_edge) == place
        assert find_fragment(text, made, is_possible_edge) == place
        assert find_fragment(text, made, is_certain_edge, after=place[0]) is None
        assert re.fullmatch(r"#:~:text=[\w.~%,-]+", made)
        # No part of it runs over the end of a block or cell.
        blocks = [" ".join(block.split()) for block in re.split(r"[\n\t]", text)]
        for term in made.removeprefix("#:~:text=").split(","):
            assert any(unquote(term.strip("-")) in block for block in blocks)


@given(st.lists(st.integers(0, 10**6), min_size=30, max_size=60, unique=True), st.data())
def test_every_run_of_distinct_words_has_a_fragment(numbers: list[int], data: st.DataObject) -> None:
    words = [f"w{number}" for number in numbers]
    first = data.draw(st.integers(0, len(words) - 1))
    last = data.draw(st.integers(first, len(words) - 1))
    text = " ".join(words)
    start = len(" ".join(words[:first])) + (first > 0)
    end = start + len(" ".join(words[first : last + 1]))
    assert text_fragment(page(text), start, end) is not None


def test_a_real_page() -> None:
    """Sentences of an encyclopedia: nearly all have a fragment, and each leads to its sentence."""
    data = (need_cases() / "corpus/html/markitdown__test_wikipedia.html").read_bytes()
    document = read_html(data, sha256="0" * 64, url="https://a.example/wiki")
    sentences = list(re.finditer(r"(?<=[.] )[A-Z][^.\n\t]{30,400}[.](?= )", document.text))[:60]
    made = [text_fragment(document, *found.span()) for found in sentences]
    assert sum(one is not None for one in made) > 0.95 * len(sentences) > 20
    for one, found in zip(made, sentences, strict=True):
        assert one is None or find_fragment(document.text, one) == found.span()


def test_a_hostile_page_costs_little() -> None:
    """The limit on tries, not the size of the page, bounds the work."""
    text = "a " * 200_000 + "b"
    assert text_fragment(page(text), len(text) - 1, len(text)) == "#:~:text=b"
    assert text_fragment(page(text), 100_000, 100_001) is None


@pytest.mark.parametrize(
    ("kind", "url", "expected"),
    [
        pytest.param("html", "https://a.example/p", "https://a.example/p#:~:text={}", id="plain"),
        pytest.param(
            "html", "https://a.example/p#s", "https://a.example/p#s:~:text={}", id="a fragment is kept"
        ),
        pytest.param(
            "html",
            "https://a.example/p#:~:text=x",
            "https://a.example/p#:~:text={}",
            id="an old directive goes",
        ),
        pytest.param("html", None, None, id="no address"),
        pytest.param("html", "javascript:alert(1)", None, id="no web address"),
        pytest.param("html", "file:///etc/passwd", None, id="a file"),
        pytest.param("text", "https://a.example/p", None, id="not a web page"),
    ],
)
def test_fragment_urls(kind: DocumentKind, url: str | None, expected: str | None) -> None:
    words = "Members who can't pay in May"
    made = text_fragment_url(page(PAGE, kind, url), *span(PAGE, words))
    assert made == (expected and expected.format("Members%20who%20can%27t%20pay%20in%20May"))


def paged(url: str | None = "https://a.example/r.pdf#toc") -> Document:
    text = "First page here\nSecond <page> & here\n"
    pages = (Page(1, 0, 16, 100, 100), Page(2, 16, len(text), 100, 100))
    boxes = np.array([[at, 0, at + 1, 9] for at in range(len(text))], np.float32)
    boxes[[15, len(text) - 1]] = np.nan
    return Document("1" * 64, "pdf", text, pages, line_starts(text), boxes, url=url)


def test_selectors() -> None:
    document = paged()
    start, end = span(document.text, "<page>")
    assert make_selectors(document, start, end) == (
        {
            "type": "TextQuoteSelector",
            "exact": "<page>",
            "prefix": "First page here\nSecond ",
            "suffix": " & here\n",
        },
        {"type": "TextPositionSelector", "start": start, "end": end},
        {"type": "FragmentSelector", "conformsTo": "http://tools.ietf.org/rfc/rfc3778", "value": "page=2"},
    )
    position, *others = make_selectors(page("x" * 100 + "quote" + "y" * 100), 100, 105)
    assert (position["prefix"], position["suffix"]) == ("x" * 32, "y" * 32)
    assert [one["type"] for one in others] == ["TextPositionSelector"]


@pytest.mark.parametrize(("start", "end"), [(-1, 3), (3, 3), (4, 3), (0, 1000)])
def test_a_range_outside_the_text_is_a_mistake(start: int, end: int) -> None:
    with pytest.raises(ValueError, match="no range"):
        make_selectors(paged(), start, end)


def test_the_record() -> None:
    document = paged()
    proof = prove(document, 16, 29)
    assert (proof.sha256, proof.page, proof.start, proof.end) == ("1" * 64, 2, 16, 29)
    assert proof.boxes == (Box(2, 16, 0, 29, 9),)
    assert proof.engine == citewire.__version__
    assert proof.links == ("https://a.example/r.pdf#page=2", "https://a.example/r.pdf#toc")
    assert msgspec.json.decode(msgspec.json.encode(proof), type=Proof) == proof
    assert prove(paged(None), 6, 24).links == ()
    assert page_url(page(PAGE), 3) is None
    assert make_links(page(PAGE), *span(PAGE, "Members who can't pay in May"))[1:] == ("https://a.example/p",)


def test_each_check_that_found_something_has_a_record() -> None:
    """Also where two sources have one name, and where the words do not fill their range."""
    first, second = paged(), page(PAGE, url=None)
    box = Box(2, 1, 2, 3, 4)
    checks = [
        CheckResult(
            "a",
            "verified",
            source="x",
            start=16,
            end=29,
            boxes=(box,),
            sha256="1" * 64,
            ranges=((16, 20), (25, 29)),
        ),
        CheckResult("b", "missed", "these words are not in the source"),
        CheckResult("c", "altered", source="x", start=0, end=7, sha256="0" * 64, ranges=((0, 7),)),
        CheckResult("d", "verified", source="x", start=0, end=7, sha256="2" * 64, ranges=((0, 7),)),
    ]
    made = prove_all(checks, [first, second])
    pieces = (*make_selectors(first, 16, 20), *make_selectors(first, 25, 29))
    assert made[0] == msgspec.structs.replace(prove(first, 16, 29), boxes=(box,), selectors=pieces)
    assert made[1:] == [None, prove(second, 0, 7), None]


@pytest.mark.parametrize(
    ("text", "words", "expected"),
    [
        pytest.param("a <b> & 'c'", "<b>", "a <mark>&lt;b&gt;</mark> &amp; &#x27;c&#x27;", id="escaped"),
        pytest.param("one\n two\tthree", "two", "one <mark>two</mark> three", id="one line"),
        pytest.param(
            "ab\u202ecd\x1b[31m\0", "cd", "ab<mark>cd</mark>␛[31m␀", id="controls show, overrides go"
        ),
        pytest.param(
            "pay\u200bload\U000e0041 x", "load\U000e0041", "pay<mark>load</mark> x", id="unseen characters go"
        ),
        pytest.param(
            "hyphen\x02ated words",
            "hyphen\x02ated",
            "<mark>hyphen- ated</mark> words",
            id="a hyphen at a line end",
        ),
        pytest.param("عربي نص", "نص", "عربي <mark>نص</mark>", id="right to left"),
    ],
)
def test_snippets(text: str, words: str, expected: str) -> None:
    assert make_snippet(page(text), *span(text, words)) == f'<bdi class="cite-snippet">{expected}</bdi>'


def test_snippets_are_cut_at_words() -> None:
    text = " ".join(f"w{number}" for number in range(200))
    made = make_snippet(page(text), *span(text, "w100 w101"))
    assert made.startswith('<bdi class="cite-snippet">…w89 w90 ')
    assert made.endswith(" w111 w112…</bdi>")
    long = make_snippet(page(text * 30), 0, len(text) * 30)
    assert " … " in long
    assert len(long) < 3000


@given(st.text(max_size=80), st.data())
def test_snippets_hold_no_markup_but_their_own(text: str, data: st.DataObject) -> None:
    assume(text)
    start = data.draw(st.integers(0, len(text) - 1))
    made = make_snippet(page(text), start, data.draw(st.integers(start + 1, len(text))))
    assert re.findall(r"<[^>]*>", made) == ['<bdi class="cite-snippet">', "<mark>", "</mark>", "</bdi>"]
    assert not re.search("[\0-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]", unescape(made))
