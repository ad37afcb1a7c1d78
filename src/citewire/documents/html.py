"""HTML reader: the text of a page as a browser shows it, and the element of every piece.

Nothing is filtered: menus, captions and footers are text as well, and hidden text is only marked.
"""

from __future__ import annotations

import codecs
import re
from collections import Counter
from typing import NamedTuple

from msgspec import Struct
from selectolax.lexbor import LexborHTMLParser, LexborNode

from citewire.documents.document import Aside, Document, Element, Page
from citewire.documents.stylesheets import Stylesheets
from citewire.documents.text import (
    GAP_CELL,
    GAP_LINE,
    GAP_ROW,
    GAP_SPACE,
    SUBSCRIPTS,
    SUPERSCRIPTS,
    TextBuilder,
    decode,
    line_starts,
)

__all__ = ["read_html"]

# Not shown by a browser that runs scripts. The title is stored separately; nothing else in a head is text.
_LEFT_OUT = {"head", "script", "style", "template", "noscript", "iframe", "noembed", "noframes"}
_PRE = {"pre", "textarea", "listing", "xmp"}
_BLOCKS = (
    "address", "article", "aside", "blockquote", "body", "caption", "center", "dd", "details", "dialog",
    "dir", "div", "dl", "dt", "fieldset", "figcaption", "figure", "footer", "form", "h1", "h2", "h3", "h4",
    "h5", "h6", "header", "hgroup", "hr", "legend", "li", "listing", "main", "menu", "nav", "ol",
    "optgroup", "option", "p", "plaintext", "pre", "search", "section", "summary", "table", "tbody",
    "tfoot", "textarea", "thead", "ul", "xmp",
)  # fmt: skip
_GAPS = {**dict.fromkeys(_BLOCKS, GAP_LINE), "td": GAP_CELL, "th": GAP_CELL, "tr": GAP_ROW}
# They contain no other element, or end where the next one starts: a page may have any number unclosed.
_SHALLOW = {
    "area", "base", "body", "br", "caption", "col", "colgroup", "dd", "dt", "embed", "head", "hr", "html",
    "img", "input", "li", "link", "meta", "optgroup", "option", "p", "param", "rb", "rp", "rt", "rtc",
    "source", "tbody", "td", "tfoot", "th", "thead", "tr", "track", "wbr",
}  # fmt: skip
# The parser scans all open elements at each block: 100,000 of them take 15 s. Chrome has the same limit.
_DEEPEST = 512
# Most characters of an element's name in a path.
_LONGEST_NAME = 64
# Most characters of a path, and of all paths per character of a page that is not short. An element whose path
# would be longer gets that of an ancestor: shorter limits are tried until all paths together fit.
_LONGEST_PATHS = (512, 256, 128, 64)
_PATHS_PER_CHARACTER, _SHORT_PAGE = 16, 1 << 16

_SPACES = re.compile(r"[ \t\n\f\r]{2,}|[\t\n\f\r]")
# An attribute, as browsers parse it: possessive, so that no text has a second match.
_VALUE = r"""(?:\s*+=\s*+(?:"[^"]*+"?|'[^']*+'?|[^\s>"'][^\s>]*+)?+)?+"""
_ATTRIBUTE = rf"[\s/]*+[^\s/>][^\s/>=]*+{_VALUE}"
# The group matches an attribute that may hide the element; the others are ignored here.
_TELLING = re.compile(
    rf"[\s/]*+(?:((?:id|class|style|hidden)(?=[\s/>=]|\Z){_VALUE})|[^\s/>][^\s/>=]*+{_VALUE})", re.IGNORECASE
)
# A comment, an element whose text has no tags, or a tag with its attributes. An unclosed one extends to the
# end of the page, so that a page is scanned once.
_TAG = re.compile(
    rf"<!--.*?(?:-->|\Z)|<(?P<raw>script|style|textarea|title|xmp|iframe|noembed|noframes|noscript)\b"
    rf".*?(?:</(?P=raw)\b|\Z)|<(?P<slash>/?)(?P<name>[a-zA-Z][^\s/>]*+)(?P<attributes>(?:{_ATTRIBUTE})*+)",
    re.DOTALL | re.IGNORECASE,
)
# With more attributes on a page, only those that may hide something stay: the parser compares each with
# all others of its element, and its name with many of the page. 50,000 in one element take 14 s.
_MANY_ATTRIBUTES = 10_000
# If these are left open, the parser reopens all of them in each following paragraph.
_FORMATTING = {
    "a", "b", "big", "code", "em", "font", "i", "nobr", "s", "small", "strike", "strong", "tt", "u",
}  # fmt: skip
_MOST_FORMATTING = 16
_META = re.compile(rb"""<meta\b[^>]*?\bcharset\s*=\s*["']?\s*([\w.:-]+)""", re.IGNORECASE)
# As far as browsers look for it, and some space for a long comment before it.
_META_WITHIN = 4096

# Encodings that browsers use for a label that Python takes literally (encoding.spec.whatwg.org).
_CODECS = {
    "ascii": "cp1252", "iso8859-1": "cp1252", "iso8859-9": "cp1254", "tis-620": "cp874", "gb2312": "gb18030",
    "gbk": "gb18030", "shift_jis": "cp932", "euc_kr": "cp949",
}  # fmt: skip
# UTF-8 is tried anyway, and many pages declare it wrongly; no page uses any of the others.
_NOT_BELIEVED = {"utf-8", "utf-7", "idna", "punycode", "raw-unicode-escape", "unicode-escape", "undefined"}


_DIGITS: dict[str, dict[int, int]] = {"sup": SUPERSCRIPTS, "sub": SUBSCRIPTS}


class _Node(Struct, frozen=True, gc=False):
    """An element, as its path needs it: the `nth` of its name in its parent."""

    parent: int
    tag: str
    nth: int


class _OpenElement(NamedTuple):
    """An open element: the node after it, and how to treat its text.

    `children` has, for each name, the number of children so far and the first of them.
    """

    id: int
    after: LexborNode | None
    gap: int
    pre: bool
    hidden: int | None
    digits: dict[int, int]
    children: dict[str, tuple[int, int]]


def read_html(
    data: bytes, *, sha256: str, name: str | None = None, url: str | None = None, charset: str | None = None
) -> Document:
    """Read the page in `data`; `charset` is what the server declared. Any bytes give a document."""
    html = _flattened(_decoded(data, charset))
    parser = LexborHTMLParser(html, scripting=True)
    sheets = (style.text() for style in parser.css("style") if not style.attributes.get("media"))
    walk = _Walk(parser.root, Stylesheets(sheets))
    text = "".join(walk.draft.parts)
    title = parser.css_first("head > title")
    return Document(
        sha256,
        "html",
        text,
        (Page(1, 0, len(text)),),
        line_starts(text),
        elements=walk.elements(_PATHS_PER_CHARACTER * max(len(html), _SHORT_PAGE)),
        asides=tuple(Aside(start, end, "hidden") for start, end in walk.hidden),
        title=(" ".join(title.text().split()) or None) if title else None,
        name=name,
        url=url,
    )


def _decoded(data: bytes, charset: str | None) -> str:
    codec = _codec(charset) if charset else None
    if codec is None and (meta := _META.search(data, 0, _META_WITHIN)):
        codec = _codec(meta[1].decode("ascii", "replace"))
        # If a <meta> can be read the page is not UTF-16, whatever it declares.
        codec = None if codec and codec.startswith(("utf-16", "utf-32")) else codec
    return decode(data, codec)


def _codec(label: str) -> str | None:
    try:
        found = codecs.lookup(label.strip()).name
    except (LookupError, ValueError):
        return None
    return None if found in _NOT_BELIEVED else _CODECS.get(found, found)


def _flattened(html: str) -> str:
    """Remove what makes the parser extremely slow: tags nested too deep, and too many attributes.

    Of a tag nested too deep only the name is replaced, by that of a line break, or of nothing if inline:
    `<br` and `<wbr` may have any attributes, and have no content.
    """
    many = html.count("=") > _MANY_ATTRIBUTES
    if html.count("<") <= _MOST_FORMATTING and not many:
        return html
    pieces: list[str] = []
    done, tags = 0, _OpenTags()
    for tag in _TAG.finditer(html):
        if not tag["name"]:
            continue
        name = tag["name"].lower()
        new_name, attributes = tags.take(name, bool(tag["slash"])), tag["attributes"]
        new_attributes = _hiding_attributes(attributes) if many and attributes else attributes
        if new_name != name or new_attributes != attributes:
            pieces += html[done : tag.start("name")], new_name, new_attributes
            done = tag.end()
    return "".join((*pieces, html[done:])) if pieces else html


def _hiding_attributes(attributes: str) -> str:
    """Return the attributes that may hide an element; of each name the first, as in browsers."""
    found: dict[str, str] = {}
    for attribute in filter(None, _TELLING.findall(attributes)):
        found.setdefault(attribute[:2].lower(), attribute)
    return "".join(f" {each}" for each in found.values())


class _OpenTags:
    """The open elements at a position of a page, by their tags."""

    def __init__(self) -> None:
        self._stack: list[str] = []
        self._counts: Counter[str] = Counter()
        self._formatting = 0

    def take(self, name: str, is_end: bool) -> str:
        """Return the name of the next tag, or of an element without content if it is nested too deep."""
        if name in _SHALLOW or (is_end and not self._counts[name]):
            return name
        depth, formatting = len(self._stack), self._formatting
        if is_end:
            depth, formatting = self._close(name)
        else:
            self._stack.append(name)
            self._counts[name] += 1
            self._formatting += name in _FORMATTING
        if depth < _DEEPEST and (name not in _FORMATTING or formatting < _MOST_FORMATTING):
            return name
        return "br" if name in _GAPS else "wbr"

    def _close(self, name: str) -> tuple[int, int]:
        """Close the innermost `name` and its content; return its depth, total and in formatting elements."""
        last = ""
        while last != name:
            last = self._stack.pop()
            self._counts[last] -= 1
            self._formatting -= last in _FORMATTING
        return len(self._stack), self._formatting


class _Walk:
    """One pass over the nodes of a page, in order and without recursion."""

    def __init__(self, root: LexborNode | None, styles: Stylesheets) -> None:
        self.draft = TextBuilder()
        self._styles = styles
        self.hidden: list[tuple[int, int]] = []
        self._hidden_by: int | None = None
        self._nodes: list[_Node] = []
        self._runs: list[tuple[int, int, int]] = []
        # The first child of a name is numbered only if there is a second.
        self._numbered: set[int] = set()
        self._walk(root)

    def elements(self, most: int) -> tuple[Element, ...]:
        """Return the elements that have text, with paths of at most about `most` characters in total."""
        paths: list[str] = []
        for longest in _LONGEST_PATHS:
            paths = self._paths(longest)
            if sum(len(paths[node]) for _, _, node in self._runs) <= most:
                break
        return tuple(Element(start, end, paths[node]) for start, end, node in self._runs)

    def _paths(self, longest: int) -> list[str]:
        """Return the path of each node, or of its closest ancestor whose path is not longer than this."""
        paths: list[str] = []
        cut: set[int] = set()
        for at, node in enumerate(self._nodes):
            outer = "" if node.parent < 0 else paths[node.parent]
            path = outer + (f"/{node.tag}[{node.nth}]" if at in self._numbered else f"/{node.tag}")
            if node.parent in cut or len(path) > longest:
                cut.add(at)
                path = outer
            paths.append(path)
        return paths

    def _walk(self, node: LexborNode | None) -> None:
        here = _OpenElement(-1, None, 0, False, None, {}, {})
        outer: list[_OpenElement] = []
        while node is not None or outer:
            if node is None:
                self.draft.separate(here.gap)
                node, here = here.after, outer.pop()
                continue
            tag = node.tag or "-"
            if tag == "-text":
                self._text(node.text_content or "", here)
            elif tag == "br":
                self.draft.break_line()
            elif tag[0] != "-" and tag not in _LEFT_OUT:
                outer.append(here)
                here = self._open(node, tag, here)
                node = node.first_child
                continue
            node = node.next

    def _open(self, node: LexborNode, tag: str, parent: _OpenElement) -> _OpenElement:
        at = len(self._nodes)
        count, first = parent.children.get(tag, (0, at))
        parent.children[tag] = count + 1, first
        if count:
            self._numbered |= {first, at}
        self._nodes.append(_Node(parent.id, tag[:_LONGEST_NAME], count + 1))
        gap = _GAPS.get(tag, 0)
        self.draft.separate(gap)
        hidden = parent.hidden
        if hidden is None:
            attributes = node.attributes
            # `until-found` content is shown when a search finds it. Closed details are not hidden either.
            away = attributes.get("hidden", "until-found") != "until-found"
            hidden = at if away or self._styles.hides_element(tag, attributes) else None
        digits = _DIGITS.get(tag, parent.digits)
        return _OpenElement(at, node.next, gap, parent.pre or tag in _PRE, hidden, digits, {})

    def _text(self, text: str, here: _OpenElement) -> None:
        spaced = False
        if not here.pre:
            text = _SPACES.sub(" ", text)
            if text.startswith(" "):
                self.draft.separate(GAP_SPACE)
            spaced = text.endswith(" ")
            text = text.strip(" ")
        if text:
            self.draft.write(text.translate(here.digits) if here.digits else text)
            start, end = self.draft.at - len(text), self.draft.at
            self._runs.append((start, end, here.id))
            if here.hidden is not None:
                self._hide(start, end, here.hidden)
        if spaced:
            self.draft.separate(GAP_SPACE)

    def _hide(self, start: int, end: int, by: int) -> None:
        """Mark text hidden by one element as one range, including the text between its parts."""
        if self._hidden_by == by:
            start = self.hidden.pop()[0]
        self._hidden_by = by
        self.hidden.append((start, end))
