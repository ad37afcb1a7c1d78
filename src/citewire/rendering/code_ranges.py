"""Find the parts of Markdown that are certainly code.

Outside code, tags and links are defused; inside it nothing may change, or readers would see our escapes. Text
that we take for code but the renderer does not would let a tag through, so this is not `markers.code_ranges`,
which may guess: anything that depends on context we do not track counts as prose. By CommonMark 0.31 and GFM.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterator
from enum import Enum
from typing import NamedTuple

__all__ = ["VerbatimRange", "find_verbatim"]

# An opening fence; one of backticks has no backtick after it. With a pipe it may be the head of a table.
_FENCE = re.compile(r"(`{3,})(?=[^`]*\Z)|(~{3,})")
_CLOSING = re.compile(r"(`{3,}|~{3,})[ \t]*\Z")
# A fence inside list items or quotes that open on the same line.
_NESTED_FENCE = re.compile(r"[ \t>*+\-\d.)]*(?:`{3,}[^`]*\Z|~{3,})")
_ITEM = re.compile(r"(?:[-*+]|(?P<number>\d{1,9})[.)]) {1,4}(?=[^ \t])")
_LIKE_ITEM = re.compile(r"(?:[-*+]|\d{1,9}[.)])(?:[ \t]|\Z)")
_RULE = re.compile(r"([-*_])(?:[ \t]*\1){2,}[ \t]*\Z")

# The content of a list item is indented by at least this much: less closes every list.
_LEAST_ITEM = 2
# With more indentation, a fence is indented code instead.
_MOST_INDENT = 3


class VerbatimRange(NamedTuple):
    """Write `text` unchanged for the characters from `start` to `end`."""

    start: int
    end: int
    text: str


def find_verbatim(text: str) -> Iterator[VerbatimRange]:
    """Yield fenced blocks line by line, and code spans within a line, in order.

    If a fence might be at top level or in a list, a backslash is put before it: it must be certain whether
    the text after it is code or prose. An unclosed block is closed at the end.
    """
    if "`" not in text and "~~~" not in text:
        return
    blocks = _Blocks()
    # A backtick that may pair with a later one makes every later span doubtful, up to a blank line.
    doubtful = False
    at = 0
    for line in text.split("\n"):
        kind = blocks.next(line)
        if kind is _Line.PROSE:
            doubtful = (doubtful and bool(line.strip(" \t"))) or (yield from _spans(line, at))
        elif kind is _Line.CODE:
            yield VerbatimRange(at, at + len(line), line)
            doubtful = False
        else:
            fence = at + len(line) - len(line.lstrip(" \t"))
            yield VerbatimRange(fence, fence, "\\")
            doubtful = True
        at += len(line) + 1
    if blocks.fence and blocks.fence.indent is None:
        yield VerbatimRange(len(text), len(text), f"\n{blocks.fence.run}")


class _Fence(NamedTuple):
    """An open fence. `indent` is its indentation in a list item, None at top level."""

    run: str
    indent: int | None

    def is_closed_by(self, rest: str) -> bool:
        closing = _CLOSING.match(rest)
        return bool(closing and closing[1].startswith(self.run))


_Line = Enum("_Line", ["PROSE", "CODE", "DOUBTFUL"])


class _Blocks:
    """Tracks the block structure, line by line, as far as fences need it.

    `item` is the content indentation of the open list item at top level: 0 without one, None if unknown.
    `unsure` is set if a fence may be open inside a list or quote; whether one is open at top level is always
    known.
    """

    def __init__(self) -> None:
        self.item: int | None = 0
        self.fence: _Fence | None = None
        self.unsure = False
        self.after_blank = True

    def next(self, line: str) -> _Line:
        """Classify the next line; a fence belongs to its block."""
        rest = line.lstrip(" \t")
        if not rest:
            self.after_blank = True
            return _Line.CODE if self.fence else _Line.PROSE
        indent = len(line[: len(line) - len(rest)].expandtabs(4))
        if self.fence and self._goes_on(self.fence, rest, indent):
            kind = _Line.CODE
        else:
            kind = self._outside(rest, indent)
        self.after_blank = False
        return kind

    def _goes_on(self, fence: _Fence, rest: str, indent: int) -> bool:
        """Return whether the line is still in `fence`, which it may close."""
        if fence.indent is None:
            if indent <= _MOST_INDENT and fence.is_closed_by(rest):
                self.fence = None
            return True
        if indent < fence.indent:
            # Inside or outside the item: only the item's own indentation could tell.
            self.fence, self.unsure = None, True
            return False
        if fence.is_closed_by(rest):
            self.fence, self.unsure = None, indent > fence.indent
        return True

    def _outside(self, rest: str, indent: int) -> _Line:
        """Classify a line outside any known fence."""
        fence = _FENCE.match(rest)
        if self.unsure and indent >= _LEAST_ITEM:
            return _Line.DOUBTFUL if fence and indent <= _MOST_INDENT else _Line.PROSE
        if self.unsure:
            self.unsure, self.item = False, None
        if fence and (kind := self._open(fence[0], indent, "|" in rest)) is not _Line.DOUBTFUL:
            return kind
        self.item = self._item_after(rest, indent)
        if fence:
            return _Line.DOUBTFUL
        if self._opens_item_with_fence(rest, indent):
            return _Line.CODE
        self.unsure = _NESTED_FENCE.match(rest) is not None
        return _Line.PROSE

    def _opens_item_with_fence(self, rest: str, indent: int) -> bool:
        item = _ITEM.match(rest)
        if not item or self.item != indent + item.end() or "|" in rest:
            return False
        if fence := _FENCE.match(rest, item.end()):
            self.fence = _Fence(fence[0], self.item)
        return fence is not None

    def _open(self, run: str, indent: int, piped: bool) -> _Line:
        """Open a fence if the list around it is known well enough."""
        if piped:
            return _Line.DOUBTFUL
        if indent <= _MOST_INDENT and (self.item == 0 or self._leaves_lists(indent)):
            self.fence, self.item = _Fence(run, None), 0
            return _Line.CODE
        if self.item and self.item <= indent <= self.item + _MOST_INDENT:
            self.fence = _Fence(run, indent)
            return _Line.CODE
        if indent <= _MOST_INDENT:
            return _Line.DOUBTFUL
        # Four spaces outside every list make it indented code or a line of a paragraph.
        self.unsure = self.item != 0
        return _Line.PROSE

    def _leaves_lists(self, indent: int) -> bool:
        """Return whether a block that starts at `indent` is in no list item."""
        return indent < (self.item or _LEAST_ITEM)

    def _item_after(self, rest: str, indent: int) -> int | None:
        """Return `item` after a line that is not a fence: it opens, continues or leaves a list item."""
        if self.item and indent >= self.item:
            return self.item
        if indent > _MOST_INDENT:
            return None if self.item else self.item
        at_top = self.item == 0 or self._leaves_lists(indent)
        if rest[0] == ">" or _RULE.match(rest):
            return 0 if at_top else None
        if item := _ITEM.match(rest):
            # Within a paragraph only an item numbered 1 starts a list; any other is its next line.
            starts = item["number"] is None or int(item["number"]) == 1 or self.after_blank or self.item
            return indent + item.end() if at_top and starts else None
        if _LIKE_ITEM.match(rest):
            return None
        # A paragraph in a list continues in an unindented line, unless a blank line ended it.
        return 0 if self.item == 0 or (self.after_blank and at_top) else None


# May contain a backtick that opens no code, besides a code span itself: the tail of a link, a bare URL.
_TOKEN = re.compile(r"(?P<ticks>`+)|(?P<tail>\](?=[(\[]))|www\.|://", re.IGNORECASE)
_TICKS = re.compile("`+")
_WORD = re.compile(r"\S*")
_PLAIN_TAIL = re.compile(
    r"""\](?:\([^\s`()'"<>\\]*(?:[ ](?:"[^"`\\]*"|'[^'`\\]*'))?\)|\[[^`\[\]\\]*(?=\]))"""
)


def _spans(line: str, offset: int) -> Generator[VerbatimRange, None, bool]:
    """Yield the code spans of a line; return whether the text after it is doubtful."""
    at = url_end = 0
    while token := _TOKEN.search(line, at):
        start, end = token.span()
        if token["ticks"]:
            close = _span_end(line, token) if start >= url_end else None
            if close is None:
                return True
            yield VerbatimRange(offset + start, offset + close, line[start:close])
            end = close
        elif token["tail"]:
            tail = _PLAIN_TAIL.match(line, start)
            if tail is None:
                return True
            end = tail.end()
        elif start >= url_end and (word := _WORD.match(line, end)):
            url_end = word.end()
        at = end
    return False


def _span_end(line: str, opening: re.Match[str]) -> int | None:
    """Return the end of the span that `opening` opens; None if it may not open or end one."""
    start = opening.start()
    if line[start - 1 : start] == "\\":
        return None
    for closing in _TICKS.finditer(line, opening.end()):
        if len(closing[0]) == len(opening[0]):
            # A pipe may end a table cell, and the span with it.
            return None if "|" in line[start : closing.end()] else closing.end()
    return None
