"""HTML: what a reader sees is the text, and every piece of it knows its element."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from citewire.documents.document import Document
from citewire.documents.html import read_html
from support.cases import need_cases

# (page, its text): spaces and lines as a browser shows them.
SHOWN = [
    ("", ""),
    ("plain", "plain"),
    ("<p>a\n  b\t c</p>\n\n<p>d</p>", "a b c\nd"),
    ("<p>a <b> b</b>c <i>d</i> .</p>", "a bc d ."),
    ("a<b> </b>b", "a b"),
    ("a<div>b</div>c", "a\nb\nc"),
    ("a<br>b<br><br>c", "a\nb\n\nc"),
    ("<p>a&nbsp;&nbsp;b &amp; &lt;c&gt;</p>", "a\xa0\xa0b & <c>"),
    ("<pre>\n  a\n\n   b </pre>c", "  a\n\n   b \nc"),
    ("<textarea> a\n b</textarea>", " a\n b"),
    ("<table><tr><th>a<th>b<tr><td><p>1</p><td><p>2</p></table>x", "a\tb\n1\t2\nx"),
    ("<table><caption>C</caption><tr><td><td>1</table>", "C\n1"),
    ("<ul><li>a<li>b<ul><li>c</ul></ul>", "a\nb\nc"),
    ("<dl><dt>a<dd>b</dl><select><option>x<option>y</select>", "a\nb\nx\ny"),
    ("<figure><img alt='no'><figcaption>c</figcaption></figure>", "c"),
    ("<details><summary>s</summary>closed</details>", "s\nclosed"),
    ("a<script>x()</script><style>y{}</style><template>z</template><noscript>n</noscript>b", "ab"),
    ("a<!-- c -->b<wbr>c", "abc"),
    ("<title>t</title><body>b", "b"),
    ("<svg><title>s</title><text>t</text></svg>", "st"),
    ("<p>10<sup>2</sup> H<sub>2</sub>O</p>", "10² H₂O"),
    ("<p>unclosed <b>bold<p>next", "unclosed bold\nnext"),
]


def read(html: str) -> Document:
    return read_html(html.encode(), sha256="")


def check(document: Document) -> None:
    """What every document promises of its ranges."""
    end = 0
    for element in document.elements:
        assert end <= element.start < element.end <= len(document.text)
        end = element.end
    outside = len(document.text) - sum(element.end - element.start for element in document.elements)
    between = "".join(
        document.text[before:after]
        for before, after in zip(
            [0, *(element.end for element in document.elements)],
            [*(element.start for element in document.elements), len(document.text)],
            strict=True,
        )
    )
    assert len(between) == outside
    assert set(between) <= set(" \n\t")
    assert list(document.asides) == sorted(document.asides, key=lambda aside: aside.start)


def by_path(document: Document) -> list[tuple[str, str]]:
    return [(document.text[element.start : element.end], element.path) for element in document.elements]


@pytest.mark.parametrize(("html", "text"), SHOWN)
def test_text_is_what_a_browser_shows(html: str, text: str) -> None:
    document = read(html)
    assert document.text == text
    check(document)


def test_each_text_node_has_the_path_of_its_parent() -> None:
    document = read("<main><p>one</p><p>two <b>bold</b> two</p><div>x</div><p>three</p></main><p>last</p>")
    assert by_path(document) == [
        ("one", "/html/body/main/p[1]"),
        ("two", "/html/body/main/p[2]"),
        ("bold", "/html/body/main/p[2]/b"),
        ("two", "/html/body/main/p[2]"),
        ("x", "/html/body/main/div"),
        ("three", "/html/body/main/p[3]"),
        ("last", "/html/body/p"),
    ]


@pytest.mark.parametrize(
    ("html", "hidden"),
    [
        ("<p hidden>a<b>b</b></p>c", ["ab"]),
        ("<p aria-hidden=true>seen, but not read out</p>", []),
        ("<p hidden=until-found>a</p><p hidden=''>b</p>", ["b"]),
        ("<p style='color:red; DISPLAY : none'>a</p>b", ["a"]),
        ("<p style='visibility:hidden'>a</p><p style='content-visibility:hidden'>b", ["a"]),
        ("<p style='display:none-such'>a<p style='--display:none'>b", []),
        ("<div hidden><p>a</p><p hidden>b</p></div><i hidden>c</i>", ["a\nb", "c"]),
        ("<details>closed</details>", []),
        ("<style>.a{color:red;display:none}</style><p class='x a'>1<p class=b>2", ["1"]),
        ("<style>#a, em { visibility : HIDDEN }</style><p id=a>1</p><p>2<em>3</em>", ["1", "3"]),
        ("<style>.t{display:none} .t.on{display:block}</style><p class=t>1<p class='on t'>2", ["1"]),
        ("<style>p{display:none} .a{display:block}</style><p>1<p class=a>2", ["1"]),
        ("<style>.a{display:block} p{display:none}</style><p>1<p class=a>2", ["1"]),
        ("<style>div.a{display:none}</style><p class=a>1</p><div class=a>2</div>", ["2"]),
        ("<style>.a{display:none}</style><p class=a style='display:block'>1", []),
        ("<style>@media print{.a{display:none}} .b{display:none}</style><p class=a>1<p class=b>2", ["2"]),
        ("<style media=print>.a{display:none}</style><p class=a>1", []),
        ("<style>/* } .a{display:none} */ .b /* { */ {display:none}</style><p class=a>1<p class=b>2", ["2"]),
        ("<style>.a{display:none} .open .a{display:block}</style><p class=a>may be shown", []),
        ("<style>.a:hover{display:none} nav .b{display:none}</style><p class=a>1<p class=b>2", []),
        ("<style>.a{display:none</style><p class=a>1", []),
    ],
)
def test_hidden_text_is_kept_and_marked(html: str, hidden: list[str]) -> None:
    document = read(html)
    assert [document.text[aside.start : aside.end] for aside in document.asides] == hidden
    assert all(aside.kind == "hidden" for aside in document.asides)
    check(document)


@pytest.mark.parametrize(
    ("data", "charset"),
    [
        ("Zażółć".encode(), None),
        ("Zażółć".encode("utf-8-sig"), "windows-1252"),
        ("Zażółć".encode("utf-16"), None),
        ("Zażółć".encode("cp1250"), "windows-1250"),
        ("Zażółć".encode("utf-16-be"), "utf-16be"),
        ("<meta charset=windows-1250>Zażółć".encode("cp1250"), None),
        ("<meta charset=windows-1250>Zażółć".encode("cp1250"), "no-such-thing"),
        ("<META http-equiv=x content='text/html; charset=iso-8859-2'>Zażółć".encode("iso-8859-2"), None),
        ("<meta charset=utf-16>Zażółć".encode(), None),
        ("<meta charset=rot13>Zażółć".encode(), None),
    ],
)
def test_encoding_is_found(data: bytes, charset: str | None) -> None:
    assert read_html(data, sha256="", charset=charset).text == "Zażółć"


@pytest.mark.parametrize("claim", ["", "<meta charset=iso-8859-1>", "<meta charset=utf-8>"])
def test_what_is_not_utf_8_is_cp1252(claim: str) -> None:
    assert read_html(f"{claim}5 € – naïve".encode("cp1252"), sha256="").text == "5 € – naïve"


def test_title_name_and_url() -> None:
    document = read_html(b"<title> A\n b </title>x", sha256="0", name="n", url="https://example.org/")
    assert (document.title, document.name, document.url) == ("A b", "n", "https://example.org/")
    assert (document.kind, document.sha256, len(document.pages)) == ("html", "0", 1)
    assert read("x").title is None


@pytest.mark.slow
@pytest.mark.parametrize("tag", ["div", "ul><li", "b", "span", "table><tr><td", "svg", "blockquote hidden"])
def test_deep_nesting_is_read(tag: str) -> None:
    """Deeper than any stack, and than the parser manages in the time of a test."""
    levels = 100_000
    name = tag.partition(">")[0].partition(" ")[0]
    document = read(f"<{tag}>x " * levels + f"</{name}>" * levels + "<p>end")

    assert document.text.split() == [*["x"] * levels, "end"]
    assert len(document.elements[-1].path) < 1000
    check(document)


@pytest.mark.parametrize(("name", "depth"), [("x" * 62, 60), ("x" * 62, 7), ("b", 500), ("i" * 400, 3)])
def test_paths_do_not_outgrow_the_page(name: str, depth: int) -> None:
    """Each of many short texts stands deep in elements with long names."""
    page = "<html><body>" + "".join(f"<{name}-{n}>" for n in range(depth)) + "<u>x</u>" * 20_000
    document = read(page)
    paths = [element.path for element in document.elements]
    assert (document.text, len(paths)) == ("x" * 20_000, 20_000)
    assert max(map(len, paths)) <= 512
    assert sum(map(len, paths)) <= 16 * len(page)
    outer = "/".join(("/html/body", *(f"{name}-{n}"[:64] for n in range(depth)), ""))
    for path in paths:
        assert path.startswith(f"{outer}u[") or outer.startswith(f"{path}/"), "it is that of an ancestor"


def test_long_flat_pages_keep_every_path() -> None:
    """Tags that are never closed, or closed by others, are not nesting."""
    document = read("<div><p>a<li>b<br><img><span></div>" * 2000 + "<section><p>end")
    assert document.elements[-1].path.endswith("/section/p")
    assert document.elements[0].path == "/html/body/div[1]/p"


def test_one_line_of_many_megabytes() -> None:
    document = read("<p>" + "word <i>and</i> &amp; more " * 100_000)
    assert document.text == ("word and & more " * 100_000).strip()


@given(
    st.lists(st.sampled_from([*"ab \n\t<>/&", "<p>", "</p>", "<b hidden>", "</b>", "<td>", "<br>", "<pre>"]))
)
def test_any_page_is_read(pieces: list[str]) -> None:
    check(read("".join(pieces)))


@given(st.binary(max_size=200), st.none() | st.sampled_from(["utf-16", "idna", "utf-7", "big5", "\0"]))
def test_any_bytes_are_read(data: bytes, charset: str | None) -> None:
    check(read_html(data, sha256="", charset=charset))


def test_corpus() -> None:
    folder = need_cases() / "corpus/html"
    for path in sorted(folder.glob("*.html")):
        document = read_html(path.read_bytes(), sha256="", name=path.name)
        check(document)
        assert len(document.text) > 1000

    page = read_html((folder / "markitdown__test_wikipedia.html").read_bytes(), sha256="")
    assert page.title == "Microsoft - Wikipedia"
    at = page.text.index("founded by Bill Gates and Paul Allen on April 4, 1975, to develop and sell BASIC")
    element = page.element_at(at)
    assert element is not None
    assert element.path.endswith("/p[3]")
    # In a table, in a list of references, and in a caption.
    for phrase in ("Number of employees", "Retrieved", "Bill Gates"):
        assert phrase in page.text
