"""Split a document into passages: a few adjacent sentences under one heading.

Running headers and footers, navigation and hidden or deleted text are left out, and a sentence continues
across them.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from itertools import pairwise
from pathlib import PurePath

from msgspec import Struct
from msgspec.structs import replace

from citewire.documents.document import Document

__all__ = ["Passage", "Sentence", "split_passages"]

# Most characters of a passage, of a sentence, of a heading, and of a list that is quoted whole.
_PASSAGE, _SENTENCE, _HEADING, _LIST = 700, 600, 90, 400
_LEFT_OUT = frozenset({"header", "footer", "hidden", "deleted", "comment"})
_NAVIGATION = re.compile(r"/(?:nav|footer)(?:\[\d+\])?(?:/|$)")
_HTML_HEADING = re.compile(r"/h([1-6])(?:\[\d+\])?(?:/|$)")
_MARKDOWN_HEADING = re.compile(r"(#{1,6})\s+(.*?)[\s#]*$")
_HTML_ITEM = re.compile(r"/li(?:\[\d+\])?(?:/|$)")
# Including the page break, if it is the last line of its page.
_LINE = re.compile(r"[^\n\f]*(?:\n\f?|\f)?")
_ITEM = re.compile(r"\s*(?:[-*•‣◦·–+]|\(?(?:\d{1,3}|[A-Za-z]|[ivx]{1,4})[.)])\s+")
_MARK = re.compile(r"\s*(?:[-*•‣◦·–+>]+\s+)*")
# Brackets contain note numbers and the like; dot leaders belong to a table of contents.
_BRACKETS = re.compile(r"\[[^\]]*\]")
_LEADERS = re.compile(r"(?:[.·…]\s?){4}")
# Fewest letters of a sentence.
_FEWEST = 3
# Decoration only: rules and fences of Markdown, lines under headings.
_DRAWN = re.compile(r"[\s\W_]*$")
_CLOSED = re.compile(r"[.!?…。！？।؟:;,]\W*$")
_END = re.compile(
    r"(?:[.!?…؟]+[\"'”’»)\]*_]*(?:\[\w{1,4}\])*(?=\s+[\"'“‘«(\[¿¡*_]*[^\sa-z])|[।。！？]+[」』”’）]*)\s*"
)
# After these a full stop does not end a sentence; nor after a single letter, as in U.S. and J. Smith.
_SHORT = re.compile(
    r"(?:^|[\s(\"'“])(?:[A-Za-z]|(?:[A-Za-z]\.)+[A-Za-z]|mr|mrs|ms|dr|prof|st|no|nr|vs|etc|approx|inc|ltd|co|corp|sec|art|fig"
    r"|e\.g|i\.e|bzw|ca|z\.b|p|pp|vol|ch|al|jan|feb|mar|apr|jun|jul|aug|sept?|oct|nov|dec)\.$",
    re.IGNORECASE,
)
_BROKEN_WORD = re.compile("[\x02\ufffe]\\s*|\xad\\s*|(?<=[a-z])-\n(?=[a-z])")
# A line longer than this share of the usual length was probably wrapped.
_FULL_LINE = 0.8


class Sentence(Struct, frozen=True, gc=False, array_like=True):
    """A sentence as it is quoted, and its place: offsets, and the page and line it starts on."""

    text: str
    start: int
    end: int
    page: int
    line: int


class Passage(Struct, frozen=True):
    """Adjacent sentences. `source` is the document's name in citations."""

    source_id: str
    source: str
    title: str
    url: str | None
    heading: str
    sentences: tuple[Sentence, ...]

    @property
    def text(self) -> str:
        return " ".join(sentence.text for sentence in self.sentences)

    @property
    def page(self) -> int:
        return self.sentences[0].page

    @property
    def start(self) -> int:
        return self.sentences[0].start

    @property
    def end(self) -> int:
        return self.sentences[-1].end


class _Block(Struct, frozen=True, gc=False):
    """A paragraph, item, row or heading: a range of the body. `level` is that of a heading, else 0.

    After `prose` come the items of a list that its last sentence introduces.
    """

    start: int
    prose: int
    end: int
    level: int = 0
    is_item: bool = False


class _Body:
    """The text of a document without the parts that are left out."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self._ours, self._theirs, pieces = [0], [0], list[str]()
        length = 0
        for start, end in _kept(document):
            self._ours.append(length)
            self._theirs.append(start)
            pieces.append(document.text[start:end])
            length += end - start
        self.text = "".join(pieces)

    def place(self, at: int) -> int:
        """Return the offset in the document."""
        piece = bisect_right(self._ours, at) - 1
        return at - self._ours[piece] + self._theirs[piece]

    def path(self, at: int) -> str:
        element = self.document.element_at(self.place(at))
        return "" if element is None else element.path

    def sentence(self, start: int, end: int) -> Sentence | None:
        """Return the sentence there, without an item's bullet; None if it says nothing."""
        raw = self.text[start:end]
        mark = _MARK.match(raw)
        start += mark.end() if mark else 0
        quote = " ".join(_BROKEN_WORD.sub("", self.text[start:end]).split())
        if sum(map(str.isalpha, _BRACKETS.sub("", quote))) < _FEWEST or _LEADERS.search(quote):
            return None
        first, last = self.place(start), self.place(start + len(self.text[start:end].rstrip()) - 1) + 1
        return Sentence(quote, first, last, self.document.page_at(first).number, self.document.line_at(first))


def _kept(document: Document) -> Iterator[tuple[int, int]]:
    at = 0
    for aside in document.asides:
        if aside.kind in _LEFT_OUT and aside.end > at:
            if aside.start > at:
                yield at, aside.start
            at = aside.end
    if at < len(document.text):
        yield at, len(document.text)


def split_passages(source_id: str, document: Document) -> Iterator[Passage]:
    """Yield the passages of a document, in order."""
    source = document.name or document.url or document.sha256[:12]
    title = document.title or PurePath(source).stem
    for heading, sentences in _groups(_Body(document)):
        yield Passage(source_id, source, title, document.url, heading, tuple(sentences))


def _groups(body: _Body) -> Iterator[tuple[str, list[Sentence]]]:
    """Yield groups of sentences of a passage's size under one heading, with the headings above it."""
    headings: dict[int, str] = {}
    gathered: list[Sentence] = []
    for block in _joined_lists(body, _with_headings(body, list(_blocks(body)))):
        heading = " › ".join(headings.values())
        for sentence in () if block.level else _sentences(body, block):
            if gathered and sum(len(each.text) for each in gathered) + len(sentence.text) > _PASSAGE:
                yield heading, gathered
                gathered = []
            gathered.append(sentence)
        if block.level:
            if gathered:
                yield heading, gathered
            gathered = []
            headings = {level: text for level, text in headings.items() if level < block.level}
            headings[block.level] = " ".join(body.text[block.start : block.end].strip("# \t\n\f").split())
    if gathered:
        yield " › ".join(headings.values()), gathered


def _blocks(body: _Body) -> Iterator[_Block]:
    """Yield paragraphs, items and rows, joining wrapped lines of a paragraph."""
    kind, text = body.document.kind, body.text
    lines = [(found.start(), found.end()) for found in _LINE.finditer(text) if found[0]]
    lengths = sorted(end - start for start, end in lines if text[start:end].strip())
    usual = lengths[int(len(lengths) * 0.9)] if lengths else 0
    wraps = kind in ("pdf", "image", "text", "markdown")
    opened: int | None = None
    for (start, end), (following, last) in pairwise([*lines, (len(text), len(text))]):
        line, after = text[start:end], text[following:last]
        opened = start if opened is None else opened
        if wraps and _goes_on(line, after, kind == "markdown", usual):
            continue
        if not _DRAWN.match(text, opened, end) and not (
            kind == "html" and _NAVIGATION.search(body.path(opened))
        ):
            yield _Block(opened, end, end, is_item=_ITEM.match(text, opened, end) is not None)
        opened = None


def _goes_on(line: str, after: str, is_markdown: bool, usual: int) -> bool:
    """Return whether the next line belongs to the same paragraph."""
    words = after.split(maxsplit=1)
    if not line.strip() or not words or _ITEM.match(after) or "\t" in line + after:
        return False
    if is_markdown:
        return not any(each.lstrip().startswith(("#", "|", "```")) for each in (line, after))
    if words[0][0].islower() and not _CLOSED.search(line):
        return True
    return len(line.rstrip()) + 1 + len(words[0]) > usual * _FULL_LINE and usual > 40


def _with_headings(body: _Body, blocks: list[_Block]) -> list[_Block]:
    """Return the blocks with heading levels: from the document's markup, or for short lines above text."""
    kind, text = body.document.kind, body.text
    if kind == "xlsx":
        return blocks
    if kind == "html":
        return [_in_html(block, body.path(block.start)) for block in blocks]
    if kind == "markdown":
        marks = [_MARKDOWN_HEADING.match(text[block.start : block.end].strip()) for block in blocks]
        return [
            replace(block, level=len(mark[1]) if mark else 0)
            for block, mark in zip(blocks, marks, strict=True)
        ]
    looks = [_looks_like_heading(text[block.start : block.end]) and not block.is_item for block in blocks]
    levels = [0] * len(blocks)
    for at in range(len(blocks) - 1):
        if looks[at] and not looks[at + 1]:
            # Two in a row are a heading and a subheading; more are a list or a table.
            has_two = at > 0 and looks[at - 1] and not (at > 1 and looks[at - 2])
            levels[at - has_two : at + 1] = [1, 2] if has_two else [2]
    return [replace(block, level=level) for block, level in zip(blocks, levels, strict=True)]


def _in_html(block: _Block, path: str) -> _Block:
    heading = _HTML_HEADING.search(path)
    return replace(
        block, level=int(heading[1]) if heading else 0, is_item=_HTML_ITEM.search(path) is not None
    )


def _looks_like_heading(block: str) -> bool:
    text = block.strip()
    return (
        len(text) <= _HEADING
        and "\n" not in text
        and "\t" not in text
        and not _CLOSED.search(text)
        # A row of figures is not a heading.
        and sum(map(str.isalpha, text)) > 1.5 * sum(map(str.isdecimal, text))
    )


def _joined_lists(body: _Body, blocks: list[_Block]) -> Iterator[_Block]:
    """Yield the blocks, with an introduction and its list items as one: they make sense only together."""
    at = 0
    while at < len(blocks):
        block, at = blocks[at], at + 1
        if not block.level and body.text[block.start : block.end].rstrip().endswith((":", "：")):
            end = block.end
            while at < len(blocks) and blocks[at].is_item and blocks[at].end - block.end <= _LIST:
                end, at = blocks[at].end, at + 1
            block = replace(block, end=end)
        yield block


def _sentences(body: _Body, block: _Block) -> Iterator[Sentence]:
    text, at = body.text, block.start
    for found in _END.finditer(text, block.start, block.prose):
        head = text[max(at, found.start() - 12) : found.start() + 1]
        if _SHORT.search(head) and text[found.start()] == ".":
            continue
        yield from _cut(body, at, found.end())
        at = found.end()
    yield from _cut(body, at, block.end)


def _cut(body: _Body, start: int, end: int) -> Iterator[Sentence]:
    """Split overlong text between words."""
    while start < end:
        stop = end
        if end - start > _SENTENCE:
            space = body.text.rfind(" ", start + _SENTENCE // 2, start + _SENTENCE)
            stop = space + 1 or start + _SENTENCE
        if (sentence := body.sentence(start, stop)) is not None:
            yield sentence
        start = stop
