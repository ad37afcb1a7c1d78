"""Prove that a quote is in its source: selectors, links that lead to it, a snippet, a record.

A link into a page is a text fragment, `#:~:text=[prefix-,]start[,end][,-suffix]`, as drafted by the WICG
(wicg.github.io/scroll-to-text-fragment). A browser goes to the first match, so a fragment is returned only if
`find_fragment`, which searches as the draft says, finds exactly the intended range. Where browsers differ
(word boundaries in Thai or Chinese, hidden text) it must hold either way.
"""

from __future__ import annotations

import re
import unicodedata
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from html import escape
from typing import Any, NamedTuple
from urllib.parse import quote, unquote

from msgspec import Struct
from msgspec.structs import replace

import citewire
from citewire.documents.document import Box, Document
from citewire.rendering.safety import clean_text, safe_link
from citewire.verification.document_set import CheckResult

__all__ = [
    "Proof", "find_fragment", "make_links", "make_selectors", "make_snippet", "page_url", "prove",
    "prove_all", "text_fragment", "text_fragment_url",
]  # fmt: skip

# Characters on either side of a quote, as Hypothesis writes them.
_AROUND = 32
# As in Chrome's generator: a longer quote is given by its first and last words, a shorter one never without
# its neighbours, since the page may change. Context grows from the first number of words to the second.
_LONGEST_EXACT, _SHORTEST_ALONE = 300, 20
_FIRST_WORDS, _MOST_WORDS = 3, 24
# Most matches tried for one fragment, and characters of a page: no ordinary page exceeds either.
_TRIES, _LARGEST_PAGE = 20_000, 10_000_000
# Words and characters of a snippet; a longer quote is cut in the middle.
_SNIPPET_WORDS, _SNIPPET_QUOTE = 12, 2_000

_DIRECTIVE = re.compile(r":~:(?:.*?&)??text=([^&]*)")
# A run of blanks, of plain characters, or of characters that are folded one by one.
_RUNS = re.compile(r"(\s+)|([!-~]+)|[^\s!-~]+")
# Block and cell boundaries, which no part of a fragment may cross.
_WALL = re.compile(r"[\n\t\f\v\r\u2028\u2029]")
# Starts and ends of words, or of clauses in scripts without spaces: all browsers see an edge at these marks.
_STARTS = re.compile(r"(?<![^\s、。！？「」『』（）【】])[^\s、。！？「」『』（）【】]")
_ENDS = re.compile(r"[^\s、。！？「」『』（）【】](?![^\s、。！？「」『』（）【】])")
# Characters in which the words of a context are searched.
_WINDOW = 1_000
# Scripts without spaces between words. Each browser uses its own dictionary.
_UNSPACED = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u1950-\u19df\u1a20-\u1aaf\u2e80-\u312f\u3190-\ua4cf\ua9e0-\ua9ff"
    "\uaa60-\uaadf\uf900-\ufaff\uff66-\uff9f\U0001b000-\U0001b16f\U00020000-\U0003ffff]"
)
# Part of a word or number if between two letters or digits (UAX 29, MidLetter and similar).
_INSIDE = frozenset(".,:;'\"·’‘․‧︓﹐﹒﹔﹕＇，．：；՟״׳·׀٫٬")
_HYPHEN = re.compile("[\x02\ufffe]")
_UNSEEN = re.compile("[\xad\u180e\u200b\u2060-\u2064\u206a-\u206f\ufeff\ufff9-\ufffb\U000e0000-\U000e0fff]")


class Proof(Struct, frozen=True, gc=False):
    """The record of a range of a source: enough to find it again and to draw it.

    `boxes` has one rectangle per line; `links` has the most exact first; `engine` is the version that found
    it.
    """

    sha256: str
    page: int
    start: int
    end: int
    boxes: tuple[Box, ...]
    engine: str
    selectors: tuple[dict[str, Any], ...]
    links: tuple[str, ...]


def prove(document: Document, start: int, end: int) -> Proof:
    """Return the record of a range of the text."""
    places = document.places(start, end)
    return Proof(
        document.sha256, document.page_at(start).number, start, end,
        tuple(box for place in places for box in place.boxes),
        citewire.__version__, make_selectors(document, start, end), make_links(document, start, end),
    )  # fmt: skip


def prove_all(checks: Iterable[CheckResult], documents: Iterable[Document]) -> list[Proof | None]:
    """Return the record of each check; None if nothing was found, or not in these documents."""
    known = {document.sha256: document for document in documents}
    return [_proof(check, known.get(check.sha256 or "")) for check in checks]


def _proof(check: CheckResult, document: Document | None) -> Proof | None:
    if document is None or check.start is None or check.end is None:
        return None
    # A quote with an ellipsis, or in another reading order, does not fill its range.
    pieces = (make_selectors(document, start, end) for start, end in check.ranges)
    return replace(
        prove(document, check.start, check.end),
        boxes=check.boxes,
        selectors=tuple(selector for piece in pieces for selector in piece),
    )


def make_selectors(document: Document, start: int, end: int) -> tuple[dict[str, Any], ...]:
    """Return the range as selectors of the Web Annotation model: quote, position, and the page of a PDF."""
    text = document.text
    if not 0 <= start < end <= len(text):
        raise ValueError(f"{start} to {end} is no range of a text of {len(text)} characters")
    around = {"prefix": text[max(0, start - _AROUND) : start], "suffix": text[end : end + _AROUND]}
    found: list[dict[str, Any]] = [
        {"type": "TextQuoteSelector", "exact": text[start:end], **around},
        {"type": "TextPositionSelector", "start": start, "end": end},
    ]
    if document.kind == "pdf":
        page = f"page={document.page_at(start).number}"
        conforms = "http://tools.ietf.org/rfc/rfc3778"
        found.append({"type": "FragmentSelector", "conformsTo": conforms, "value": page})
    return tuple(found)


def make_links(document: Document, start: int, end: int) -> tuple[str, ...]:
    """Return URLs that lead to the range, the most exact first. Empty without a web URL."""
    exact = (text_fragment_url(document, start, end), page_url(document, start))
    return tuple(url for url in (*exact, safe_link(document.url or "")) if url)


def page_url(document: Document, start: int) -> str | None:
    """Return the URL of the PDF page with a character."""
    url = safe_link(document.url or "") if document.kind == "pdf" else None
    return f"{url.partition('#')[0]}#page={document.page_at(start).number}" if url else None


def text_fragment_url(document: Document, start: int, end: int) -> str | None:
    """Return the URL of a web page with the range highlighted; other fragments are preserved."""
    url = safe_link(document.url or "") if document.kind == "html" else None
    fragment = text_fragment(document, start, end) if url else None
    if url is None or fragment is None:
        return None
    url = url.partition(":~:")[0]
    return url + (fragment[1:] if "#" in url else fragment)


def make_snippet(document: Document, start: int, end: int) -> str:
    """Return the range as HTML, marked, with some words around it. Nothing can run, nothing is hidden."""
    page, text = document.page_at(start), document.text
    before = re.split(r"(\s+)", text[max(page.start, start - 40 * _SNIPPET_WORDS) : start])
    after = re.split(r"(\s+)", text[end : min(max(page.end, end), end + 40 * _SNIPPET_WORDS)])
    words, left, right = text[start:end], before[-2 * _SNIPPET_WORDS :], after[: 2 * _SNIPPET_WORDS]
    if len(words) > _SNIPPET_QUOTE:
        half = _SNIPPET_QUOTE // 2
        words = f"{words[:half]} … {words[-half:]}"
    opening = "…" if start - len("".join(left)) > page.start else ""
    closing = "…" if end + len("".join(right)) < len(text[: page.end].rstrip()) else ""
    marked = f"{_shown(''.join(left)).lstrip()}<mark>{_shown(words)}</mark>{_shown(''.join(right)).rstrip()}"
    # Its own direction: right-to-left text must not reorder the text around it.
    return f'<bdi class="cite-snippet">{opening}{marked}{closing}</bdi>'


def _shown(text: str) -> str:
    """Escape text for a page, on one line. A hyphen at a line end is shown as printed."""
    printed = clean_text(_UNSEEN.sub("", _HYPHEN.sub("- ", text)))
    return escape(re.sub(r"\s+", " ", printed))


class _FoldedText(NamedTuple):
    """A text as browsers compare it, without case, marks and runs of blanks, with offsets in the source."""

    source: str
    text: str
    origin: array[int]

    def edges(self, start: int, end: int) -> tuple[int, int]:
        """Return the source range of a folded range, including marks on its last character."""
        first, last = self.origin[start], self.origin[end - 1] + 1
        while last < len(self.source) and unicodedata.category(self.source[last]) in {"Mn", "Me"}:
            last += 1
        return first, last


class _Terms(NamedTuple):
    prefix: str
    start: str
    end: str
    suffix: str


IsWordEdge = Callable[[str, int], bool]


def _fold(text: str) -> tuple[str, array[int]]:
    parts: list[str] = []
    origin = array("q")
    for run in _RUNS.finditer(text):
        if run[2]:
            parts.append(run[2].lower())
            origin.extend(range(run.start(), run.end()))
        elif run[1]:
            parts.append(" ")
            origin.append(run.start())
        else:
            for at, char in enumerate(run[0], run.start()):
                plain = "".join(map(_base, unicodedata.normalize("NFKD", char).casefold()))
                parts.append(plain)
                origin.extend([at] * len(plain))
    return "".join(parts), origin


def _base(char: str) -> str:
    return "" if unicodedata.category(char) in {"Mn", "Me", "Cf"} else char


# Two pages, each with and without its hidden text.
@lru_cache(maxsize=4)
def _folded(text: str) -> _FoldedText:
    return _FoldedText(text, *_fold(text))


def is_certain_edge(text: str, at: int) -> bool:
    """Return whether every browser sees a word boundary here."""
    if not 0 < at < len(text) or text[at - 1].isspace() or text[at].isspace():
        return True
    before, after = text[at - 1], text[at]
    if before in _INSIDE and after not in _INSIDE:
        return not (_joins(after) and at > 1 and _joins(text[at - 2]))
    if after in _INSIDE and before not in _INSIDE:
        return not (_joins(before) and at + 1 < len(text) and _joins(text[at + 1]))
    return not (_joins(before) or before in _INSIDE) or not (_joins(after) or after in _INSIDE)


def is_possible_edge(text: str, at: int) -> bool:
    """Return whether some browser may see a word boundary here."""
    if not 0 < at < len(text):
        return True
    pair = text[at - 1 : at + 1]
    return not (pair[0].isalnum() and pair[1].isalnum()) or _UNSPACED.search(pair) is not None


def _joins(char: str) -> bool:
    return char.isalnum() or unicodedata.category(char) in {"Mn", "Mc", "Me", "Cf", "Pc", "Sk", "So"}


def find_fragment(
    text: str, fragment: str, edge: IsWordEdge = is_certain_edge, after: int = -1
) -> tuple[int, int] | None:
    """Return the range that a browser goes to for `fragment`: the first match after the character `after`.

    `edge` decides where words end.
    """
    terms, page = _parsed(fragment), _folded(text)
    return _find(page, terms, edge, bisect_right(page.origin, after)) if terms else None


def _parsed(fragment: str) -> _Terms | None:
    found = _DIRECTIVE.search(fragment)
    tokens = found[1].split(",") if found else []
    prefix = tokens.pop(0)[:-1] if len(tokens) > 1 and tokens[0].endswith("-") else None
    suffix = tokens.pop()[1:] if len(tokens) > 1 and tokens[-1].startswith("-") else None
    if not 1 <= len(tokens) <= 2 or not all(tokens) or "" in (prefix, suffix):
        return None
    start, end = (*tokens, None)[:2]
    folded = [_fold(unquote(term or ""))[0].strip() for term in (prefix, start, end, suffix)]
    # A term that consists only of marks matches nothing.
    given = zip((prefix, start, end, suffix), folded, strict=True)
    return None if any(term and not plain for term, plain in given) else _Terms(*folded)


def _find(page: _FoldedText, terms: _Terms, edge: IsWordEdge, at: int) -> tuple[int, int] | None:
    prefix, start, end, suffix = terms
    text = page.text
    for _ in range(_TRIES):
        first = text.find(prefix or start, at)
        if first < 0:
            return None
        at = first + 1
        begin = _skip(text, first + len(prefix)) if prefix else first
        stop = begin + len(start)
        if (
            not edge(page.source, page.origin[first])
            or not text.startswith(start, begin)
            # The draft requires no boundary here if a suffix follows.
            or ((end or not suffix) and not edge(page.source, page.edges(begin, stop)[1]))
        ):
            continue
        if end:
            last = _find_end(page, terms, stop, edge)
            # No end after this start means none after a later one.
            return page.edges(begin, last) if last else None
        if not suffix or _followed(page, stop, suffix, edge):
            return page.edges(begin, stop)
    return None


def _find_end(page: _FoldedText, terms: _Terms, at: int, edge: IsWordEdge) -> int | None:
    for _ in range(_TRIES):
        first = page.text.find(terms.end, at)
        if first < 0:
            return None
        stop = first + len(terms.end)
        at = first + 1
        if not edge(page.source, page.origin[first]):
            continue
        if terms.suffix:
            if _followed(page, stop, terms.suffix, edge):
                return stop
            at = stop
        elif edge(page.source, page.edges(first, stop)[1]):
            return stop
    return None


def _followed(page: _FoldedText, at: int, suffix: str, edge: IsWordEdge) -> bool:
    begin = _skip(page.text, at)
    stop = begin + len(suffix)
    return page.text.startswith(suffix, begin) and edge(page.source, page.edges(begin, stop)[1])


def _skip(text: str, at: int) -> int:
    while text.startswith(" ", at):
        at += 1
    return at


def text_fragment(document: Document, start: int, end: int) -> str | None:
    """Return the fragment that leads a browser to this range of a web page; None if none is certain to.

    Blanks at the ends are left out. There is no fragment for hidden text.
    """
    text, words = document.text, document.text[start:end]
    hidden = [(aside.start, aside.end) for aside in document.asides if aside.kind == "hidden"]
    if document.kind != "html" or len(text) > _LARGEST_PAGE or not words.strip():
        return None
    start, end = end - len(words.lstrip()), start + len(words.rstrip())
    if any(first < end and start < last for first, last in hidden):
        return None
    views = [(text, (start, end))]
    if hidden:
        views.append(_without(text, hidden, start, end))
    for terms in _candidates(text, start, end):
        fragment = _written(terms)
        if all(_leads_to(view, fragment, place) for view, place in views):
            return fragment
    return None


def _leads_to(text: str, fragment: str, place: tuple[int, int]) -> bool:
    """Return whether every browser goes there, and none could match another place."""
    return (
        find_fragment(text, fragment, is_possible_edge) == place
        and find_fragment(text, fragment, is_certain_edge) == place
        and find_fragment(text, fragment, is_possible_edge, place[0]) is None
    )


def _without(text: str, hidden: list[tuple[int, int]], start: int, end: int) -> tuple[str, tuple[int, int]]:
    """Return the text without hidden ranges, and the range in it."""
    pieces: list[str] = []
    at = before = 0
    for first, last in (*hidden, (len(text), len(text))):
        pieces.append(text[at : max(at, first)])
        before += max(0, last - max(at, first)) if last <= start else 0
        at = max(at, last)
    return "".join(pieces), (start - before, end - before)


def _candidates(text: str, start: int, end: int) -> Iterator[_Terms]:
    """Yield fragments for a range, the shortest first, with more and more words of it and around it."""
    exact = end - start <= _LONGEST_EXACT and not _WALL.search(text, start, end)
    before, after = text[max(0, start - _WINDOW) : start], text[end : end + _WINDOW]
    high, low = start - len(before) + len(before.rstrip()), end + len(after) - len(after.lstrip())
    for count in (0, *range(_FIRST_WORDS, _MOST_WORDS + 1)):
        first, last = end, start
        if not exact:
            first = _words_after(text, start, end, max(count, _FIRST_WORDS))
            last = _words_before(text, start, end, max(count, _FIRST_WORDS))
            if not start < first <= last:
                return
        head, tail = text[start:first], "" if exact else text[last:end]
        if count:
            prefix = text[_words_before(text, 0, high, count) : high]
            suffix = text[low : _words_after(text, low, len(text), count)]
            yield _Terms(prefix, head, tail, suffix)
            yield _Terms(prefix, head, tail, "")
            yield _Terms("", head, tail, suffix)
        elif end - start >= _SHORTEST_ALONE:
            yield _Terms("", head, tail, "")


def _words_after(text: str, start: int, end: int, count: int) -> int:
    """Return where at most `count` words end, within one block."""
    wall = _WALL.search(text, start, min(end, start + _WINDOW))
    stop = wall.start() if wall else min(end, start + _WINDOW)
    ends = [found.end() for found in _ENDS.finditer(text, start, stop) if is_certain_edge(text, found.end())]
    return ends[min(count, len(ends)) - 1] if ends else start


def _words_before(text: str, start: int, end: int, count: int) -> int:
    """Return where at most the last `count` words start, within one block."""
    piece = _WALL.split(text[max(start, end - _WINDOW) : end])[-1]
    at = end - len(piece)
    starts = [at + found.start() for found in _STARTS.finditer(piece)]
    starts = [found for found in starts if is_certain_edge(text, found)]
    return starts[-min(count, len(starts))] if starts else end


def _written(terms: _Terms) -> str:
    prefix, start, end, suffix = (
        quote(" ".join(term.split()), safe="", errors="replace").replace("-", "%2D") for term in terms
    )
    parts = (f"{prefix}-" if prefix else "", start, end, f"-{suffix}" if suffix else "")
    return f"#:~:text={','.join(filter(None, parts))}"
