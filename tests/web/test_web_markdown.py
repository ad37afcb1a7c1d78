"""The Markdown of `<cite-answer>` in a real browser: against markdown-it, and the same however it is cut."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from playwright.sync_api import Browser, Page

from support.agents import serve
from support.browser import browser, site

__all__ = ["browser"]
pytestmark = pytest.mark.slow

# What differs on purpose is said at the top of markdown.js.
PEER = MarkdownIt("default", {"html": False, "linkify": False}).disable(
    ["lheading", "code", "reference", "image"]
)
DRAW = """
async ([text, sizes]) => {
    const { Markdown } = await import("/web/markdown.js");
    const drawn = (size) => {
        const [root, markers] = [document.createElement("div"), new Map()];
        const marker = (place) => {
            const name = `${place.start}/${place.label}`;
            const made = Object.assign(document.createElement("cite-marker"), { place, label: place.label });
            if (!markers.has(name)) markers.set(name, made);
            return markers.get(name);
        };
        const defined = [];
        const markdown = new Markdown(root, marker, (...definition) => defined.push(definition));
        for (let at = 0; at < text.length; at += size) {
            markdown.append(text.slice(at, at + size));
            markdown.draw();
        }
        markdown.end();
        const { pieces } = markdown.page.places;
        const isTrue = ({ start, node }) => text.startsWith(node.data, start) || text[start] === "&";
        const isOrdered = pieces.every(({ start }, at) => !at || pieces[at - 1].start < start);
        return { html: plain(root), defined, isTrue: isOrdered && pieces.every(isTrue) };
    };
    return sizes.map(drawn);
}
"""
CANONICAL = """
window.canonical = (root) => {
    const inner = (node) => [...node.childNodes].map(canonical).join("");
    if (root instanceof Text) return root.data.replace(/[ \\t\\r\\n]+/g, " ").replaceAll("<", "&lt;");
    const name = { s: "del" }[root.localName] ?? root.localName;
    if (name === "cite-marker") return `{${root.label}}`;
    if (name === "pre") return `<pre>${root.textContent.replace(/\\n$/, "")}</pre>`;
    const isBare = ["div", "body", "thead", "tbody"].includes(name) || (name === "p" && root.closest("li"));
    if (isBare) return `${inner(root).trim()} `;
    const href = root.localName === "a" ? ` ${root.href}` : "";
    const isInline = ["em", "strong", "del", "a", "code"].includes(name);
    return `<${name}${href}>${isInline ? inner(root) : inner(root).trim()}</${name}>`;
};
// White space around a block is nothing.
const BLOCK = /\\s*(<\\/?(?:ul|ol|li|blockquote|pre|h\\d|hr|table|t[rhd]|p)\\b[^>]*>)\\s*/g;
window.plain = (root) => canonical(root).trim().replace(/ +/g, " ").replace(BLOCK, "$1");
window.parsed = (html) => plain(new DOMParser().parseFromString(html, "text/html").body);
"""
WHOLE = 10**9


@pytest.fixture(scope="module")
def tab(browser: Browser) -> Generator[Page]:
    with serve(site()) as url:
        page = browser.new_page()
        page.goto(f"{url}/free")
        page.evaluate(CANONICAL)
        yield page
        page.close()


def drawn(tab: Page, text: str, *sizes: int) -> list[dict[str, Any]]:
    return tab.evaluate(DRAW, [text, list(sizes) or [WHOLE]])


def html(tab: Page, text: str) -> str:
    return drawn(tab, text)[0]["html"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Say [1] and [2, 3].", "<p>Say {1} and {2}{3}.</p>"),
        ("One[1][2]", "<p>One{1}{2}</p>"),
        ('Notes [^a"/<b>] too', '<p>Notes {a"/<b>} too</p>'),
        ("`[1]` row[4] x[1] = [1, 2] f([1]) \\[1] [2024]",
         "<p><code>[1]</code> row{4} x[1] = [1, 2] f([1]) [1] [2024]</p>"),
        ("[1](https://a.b/) and [1]: no", "<p><a https://a.b/>1</a> and {1}: no</p>"),
        ("[^a]: gone\n[1]: https://a.b", "<p>[1]: <a https://a.b/>https://a.b</a></p>"),
        ("a\n\n[^a]: Title <https://a.b> said\n\nb", "<p>a</p><p>b</p>"),
        ("See https://a.b/c_(d)?e=f. And (www.g.hi).",
         "<p>See <a https://a.b/c_(d)?e=f>https://a.b/c_(d)?e=f</a>. And (<a https://www.g.hi/>www.g.hi</a>).</p>"),
        ("<https://a.b> <b>raw</b> <script>x</script>",
         "<p><a https://a.b/>https://a.b</a> &lt;b>raw&lt;/b> &lt;script>x&lt;/script></p>"),
        ("[x](javascript:alert(1)) [y](data:text/html,1) [z](/rel)",
         "<p>[x](javascript:alert(1)) [y](data:text/html,1) [z](/rel)</p>"),
        ("![a [1] b](https://i.j/k.png)", "<p><a https://i.j/k.png>Image: a [1] b</a></p>"),
        ("![a](data:image/png;base64,AA)", "<p>![a](data:image/png;base64,AA)</p>"),
        ("text\n---\nmore", "<p>text</p><hr></hr><p>more</p>"),
        ("a  \nb\\\nc", "<p>a <br></br>b<br></br>c</p>"),
        ("| a |\n|---|\n| [1] |\n\nafter",
         "<table><tr><th>a</th></tr><tr><td>{1}</td></tr></table><p>after</p>"),
        ("| not a table", "<p>| not a table</p>"),
        ("&lt;b&gt; &#39; &nope; &#x1F600;", "<p>&lt;b> ' &nope; 😀</p>"),
        ("```js\n[1] <b>\n```", "<pre>[1] <b></pre>"),
        ("```\nnever closed [1]", "<pre>never closed [1]</pre>"),
        ("**never closed [1]", "<p>**never closed {1}</p>"),
        ("", ""),
        ("\r\n\r\na\r\nb\r\n", "<p>a b</p>"),
    ],
)  # fmt: skip
def test_what_it_shows(tab: Page, text: str, expected: str) -> None:
    for one in drawn(tab, text, WHOLE, 1, 2, 5):
        assert one["html"] == expected
        assert one["isTrue"]


def test_definitions_are_told(tab: Page) -> None:
    text = "a [^x]\n\n[^x]: Title <https://a.b>\n[^y]: Other"
    for one in drawn(tab, text, WHOLE, 1, 3):
        assert one["defined"] == [["x", "Title <https://a.b>"], ["y", "Other"]]


WORDS = st.sampled_from(["one", "two three", "Vier", "5", "snake_case", "a*b", "(six)", "“seven”", "é", "x."])
INLINE = st.recursive(
    WORDS
    | st.sampled_from(
        ["`code`", "``a`b``", "[l](https://a.b)", "\\*", "&amp;", "<b>", "*", "**", "_", "~~", "`", "!"]
    ),
    lambda inner: st.tuples(st.sampled_from(["*", "**", "_", "~~", "***"]), inner).map(
        lambda pair: f"{pair[0]}{pair[1]}{pair[0]}"
    ),
    max_leaves=3,
)
LINE = st.lists(INLINE, min_size=1, max_size=6).map(" ".join).map(lambda line: f"w {line}")
PARAGRAPH = st.lists(LINE, min_size=1, max_size=3).map("\n".join)
CODE = st.sampled_from(["```\na *b*\n\n  c\n```", "~~~py\n# x\n~~~"])
TABLE = st.lists(st.tuples(LINE, LINE), min_size=1, max_size=3).map(
    lambda rows: "\n".join(["| a | b |", "|---|:-:|", *(f"| {one} | {other} |" for one, other in rows)])
)
LEAF = (
    PARAGRAPH
    | st.builds("{} {}".format, st.sampled_from(["#", "##", "######"]), LINE)
    | CODE
    | st.just("***")
    | TABLE
)


def indented(text: str, by: str) -> str:
    return text.replace("\n", f"\n{by}")


def listed(items: list[str]) -> str:
    return "\n".join(f"- {indented(item, '  ')}" for item in items)


def counted(items: list[str]) -> str:
    return "\n".join(f"{n}. {indented(item, '   ')}" for n, item in enumerate(items, 1))


BLOCK = st.recursive(
    LEAF,
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=3).map(listed),
        st.lists(inner, min_size=1, max_size=3).map(counted),
        st.lists(inner, min_size=1, max_size=2)
        .map("\n\n".join)
        .map(lambda text: f"> {indented(text, '> ')}"),
    ),
    max_leaves=4,
)
# Of four tildes in a row the peer makes two strokes.
DOCUMENT = st.lists(BLOCK, min_size=1, max_size=4).map("\n\n".join).filter(lambda text: "~~~~" not in text)


@given(text=DOCUMENT)
def test_it_reads_as_others_do(tab: Page, text: str) -> None:
    expected = tab.evaluate("parsed", PEER.render(text))
    assert html(tab, text) == expected


@given(text=DOCUMENT | st.text("*_`~[]()#>-+|1. \n\\&;<a!:^é😀/", max_size=80), size=st.integers(1, 9))
def test_it_is_the_same_however_it_is_cut(tab: Page, text: str, size: int) -> None:
    whole, cut = drawn(tab, text, WHOLE, size)
    assert cut == whole
    assert whole["isTrue"]


HOSTILE = {
    "one paragraph": "word " * 20_000,
    "no space": "a" * 100_000,
    "open emphasis": "**a " * 25_000,
    "open brackets": "[" * 100_000,
    "open links": "[a](" * 25_000,
    "backticks": "`a``b" * 20_000,
    "stars": "*" * 100_000,
    "quotes": ">" * 5_000,
    "nested items": "- " * 3_000,
    "cells": "|a" * 50_000 + "\n" + "|-" * 50_000,
    "heading": "# " + "#" * 50_000 + "x",
    "spaces": "a" + " " * 50_000 + "b",
    "entities": "&amp;" * 20_000,
    "markers": "a [1]" * 20_000,
    "definitions": "[^a]: b\n" * 30_000,
    "fence": "```\n" + "x\n" * 50_000,
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_no_text_takes_long(tab: Page, text: str) -> None:
    """Each is done in well under a second; what reads its text again and again meets the timeout."""
    script = """async (text) => {
        const { Markdown } = await import("/web/markdown.js");
        const root = document.createElement("div");
        const markdown = new Markdown(root, () => document.createElement("i"));
        for (let at = 0; at < text.length; at += 64) {
            markdown.append(text.slice(at, at + 64));
            markdown.draw();
        }
        markdown.end();
        return root.textContent.length;
    }"""
    assert tab.evaluate(script, text) <= len(text)
