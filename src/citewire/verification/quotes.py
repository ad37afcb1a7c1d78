"""Parse a quote before searching for it: pieces, insertions, markup.

An ellipsis leaves something out, brackets insert something, and Markdown and HTML are not part of the words.
The result is the text of the pieces, in order, with the gaps between them.
"""

from __future__ import annotations

import html
import re
import unicodedata
from typing import Literal

from msgspec import Struct

__all__ = ["Gap", "ParsedQuote", "Piece", "parse_quote"]

Edit = Literal["ellipsis", "brackets", "markup"]
Gap = Literal["none", "words", "text"]

# No pattern may match the same blanks or letters in two ways: a quote may consist of nothing else.
# The dots between a heading and its page number.
_LEADERS = re.compile(r"(?:\.\s?){5,}")
_ELLIPSIS = r"(?:[\[(<]\s*)?(?:\.\s?\.\s?\.(?:\s?\.)?|[…⋯‥]+|。{3,}|\*\s\*\s\*)(?:\s*[\])>])?"
_CUT = re.compile(rf"{_ELLIPSIS}|\[(?P<inserted>[^\[\]]{{0,200}})\]")
# A letter in brackets belongs to the word: `[T]he`.
_LETTERS = re.compile(r"\[(\w{1,3})\](?=\w)|(?<=\w)\[(\w{1,3})\]")
# Remarks of an editor about the quote, not part of it.
_REMARK = re.compile(
    r"[\[(]\s*(?:sic\b[.!]?|(?:my |our )?(?:emphasis|italics)\b[^\[\]()]{0,30}"
    r"|[^\[\]()]{0,40}\bomitted|citation needed)\s*[\])]",
    re.IGNORECASE,
)
_FOOTNOTE = re.compile(
    r"\[\^[^\]\s]{1,60}\]|\[[\w-]{0,12}[\d⁰¹²³⁴-⁹][\w-]*(?:(?:\s*[,;–]\s*|\s+-\s+)[\w-]{0,12}\d[\w-]*)*\]|【[^【】]{0,60}†[^【】]{0,60}】"
)
_MARKUP = re.compile(r"(?<!\w)(\*{1,3}|_{1,3}|~~|`+)(?=\S)(.{1,1000}?)(?<=\S)\1(?!\w)", re.DOTALL)
_LINK = re.compile(r"!?\[([^\[\]]*)\]\((?:[^()\s]|\([^()]*\))*\)")
# Not a `>` that may mean `greater than`, unless every line starts with one.
_LINE_MARKS = re.compile(r"^(?:[ \t]*(?:#{1,6}[ \t]+|>(?![ \t]*\d)[ \t]?|[-*+•][ \t]+))+", re.MULTILINE)
_QUOTED = re.compile(r"\s*>.*(?:\n[ \t]*>.*)+\s*")
_ESCAPE = re.compile(r"\\(?=[!-/:-@\[-`{-~])")
_ATTRIBUTES = r"(?:\s+[\w:-]+\s*=\s*(?:\"[^\"]*\"|'[^']*'|[^\s\"'<>]+))*\s*/?>"
_BLOCK = re.compile(
    rf"</?(?:p|br|div|li|ul|ol|h[1-6]|hr|tr|td|th|table|blockquote|pre|dd|dt){_ATTRIBUTES}", re.IGNORECASE
)
_INLINE = re.compile(
    r"</?(?:a|abbr|b|cite|code|del|em|font|i|ins|kbd|mark|q|s|small|span|strong|sub|sup|tt|u|var)"
    + _ATTRIBUTES,
    re.IGNORECASE,
)
_RAISED = re.compile(r"<(sup|sub)>\s*([-+]?\d+)\s*</\1>", re.IGNORECASE)
_RAISE = str.maketrans("0123456789+-", "⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻")
_LOWER = str.maketrans("0123456789+-", "₀₁₂₃₄₅₆₇₈₉₊₋")


class Piece(Struct, frozen=True, gc=False):
    """Words that must be adjacent. `gap` is what may precede them: nothing, a few words, or more.

    `inserted` is the quote's text in brackets there.
    """

    text: str
    gap: Gap = "none"
    inserted: str = ""


class ParsedQuote(Struct, frozen=True, gc=False):
    """A quote as pieces, the edits removed to get them, and the text in brackets after the last piece."""

    pieces: tuple[Piece, ...]
    edits: tuple[Edit, ...] = ()
    inserted: str = ""


def parse_quote(text: str) -> ParsedQuote:
    """Parse a quote into pieces."""
    text = unicodedata.normalize("NFC", text)
    unmarked = _LEADERS.sub(" ", _without_markup(text))
    plain = _LETTERS.sub(lambda found: found[1] or found[2], _REMARK.sub("", unmarked))
    edits: set[Edit] = {"markup"} if unmarked != text else set()
    if plain != unmarked:
        edits.add("brackets")
    pieces: list[Piece] = []
    gaps: list[str | None] = []  # since the last piece: text in brackets, or None for an ellipsis
    at = 0
    for cut in (*_CUT.finditer(plain), None):
        words = plain[at : cut.start() if cut else len(plain)]
        if any(map(str.isalnum, words)):
            pieces.append(Piece(words, _gap(gaps), _inserted(gaps)))
            gaps.clear()
        if cut is not None:
            at = cut.end()
            gaps.append(cut["inserted"])
            edits.add("ellipsis" if cut["inserted"] is None else "brackets")
    return ParsedQuote(tuple(pieces), tuple(sorted(edits)), _inserted(gaps))


def _gap(gaps: list[str | None]) -> Gap:
    return "none" if not gaps else "text" if None in gaps else "words"


def _inserted(gaps: list[str | None]) -> str:
    return " ".join(filter(None, gaps))


def _without_markup(text: str) -> str:
    plain = text
    if "<" in plain or "&" in plain:
        plain = _RAISED.sub(
            lambda tag: tag[2].translate(_LOWER if tag[1].lower() == "sub" else _RAISE), plain
        )
        plain = html.unescape(_INLINE.sub("", _BLOCK.sub(" ", plain)))
    plain = _LINK.sub(r"\1", plain)
    plain = _FOOTNOTE.sub("", plain)
    if _QUOTED.fullmatch(plain):
        plain = re.sub(r"^[ \t]*>", "", plain, flags=re.MULTILINE)
    plain = _LINE_MARKS.sub("", plain)
    for _ in range(3):
        plain, changed = _MARKUP.subn(r"\2", plain)
        if not changed:
            break
    return _ESCAPE.sub("", plain)
