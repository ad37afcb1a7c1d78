"""What a quote says of itself before it is looked for: pieces, insertions, markup.

An ellipsis leaves something out, brackets put something in, and Markdown is not part of the words. What is
left is the text of the pieces, in order, with the gaps between them.
"""

from __future__ import annotations

import html
import re
from typing import Literal

from msgspec import Struct

__all__ = ["Piece", "Quote", "read_quote"]

Edit = Literal["ellipsis", "brackets", "markup"]

_ELLIPSIS = re.compile(r"\s*[\[(<]?\s*(?:\.\s?\.\s?\.(?:\s?\.)?|…)\s*[\])>]?\s*")
# The dots between a heading and its page number.
_LEADERS = re.compile(r"(?:\.\s?){5,}")
_BRACKETS = re.compile(r"\[([^\[\]]{0,200})\]")
_MARKUP = re.compile(r"(?<!\w)(\*{1,3}|_{1,3}|~~|`+)(?=\S)(.+?)(?<=\S)\1(?!\w)", re.DOTALL)
_LINK = re.compile(r"!?\[([^\[\]]*)\]\((?:[^()\s]|\([^()]*\))*\)")
_LINE_MARKS = re.compile(r"^[ \t]*(?:#{1,6}[ \t]+|>[ \t]?|[-*+][ \t]+)", re.MULTILINE)
_FOOTNOTE = re.compile(r"\[\^?[\w-]{0,12}\d[\w-]*\]|\[\^[^\]\s]+\]")
_TAG = re.compile(r"</?[a-zA-Z][^<>]*>")


class Piece(Struct, frozen=True, gc=False):
    """Words that must stand together. `gap` is what may stand before them: nothing, a few words, or more.

    `inserted` is what the quote put in brackets there.
    """

    text: str
    gap: Literal["none", "words", "text"] = "none"
    inserted: str = ""


class Quote(Struct, frozen=True, gc=False):
    """A quote as pieces, and what was done to it to get them."""

    pieces: tuple[Piece, ...]
    edits: tuple[Edit, ...] = ()


def read_quote(text: str) -> Quote:
    """The pieces of a quote."""
    plain = _LEADERS.sub(" ", _without_markup(text))
    edits: list[Edit] = ["markup"] if plain != text else []
    pieces: list[Piece] = []
    for number, part in enumerate(_ELLIPSIS.split(plain)):
        pieces += _bracketed(part, first="text" if number else "none")
    if _ELLIPSIS.search(plain):
        edits.append("ellipsis")
    if _BRACKETS.search(plain):
        edits.append("brackets")
    return Quote(tuple(piece for piece in pieces if piece.text.strip()), tuple(edits))


def _without_markup(text: str) -> str:
    plain = html.unescape(_TAG.sub("", text)) if "<" in text or "&" in text else text
    plain = _LINK.sub(r"\1", plain)
    plain = _FOOTNOTE.sub("", plain)
    plain = _LINE_MARKS.sub("", plain)
    for _ in range(3):
        plain, changed = _MARKUP.subn(r"\2", plain)
        if not changed:
            break
    return plain


def _bracketed(part: str, first: Literal["none", "text"]) -> list[Piece]:
    """The pieces around words in brackets. A letter in brackets is one of the word: `[T]he`."""
    joined = re.sub(r"\[(\w{1,3})\](?=\w)|(?<=\w)\[(\w{1,3})\]", lambda found: found[1] or found[2], part)
    pieces: list[Piece] = []
    at, gap, inserted = 0, first, ""
    for found in _BRACKETS.finditer(joined):
        pieces.append(Piece(joined[at : found.start()], gap, inserted))
        at, gap, inserted = found.end(), "words", "" if found[1].lower() == "sic" else found[1]
        if pieces[-1].text.strip() == "" and len(pieces) == 1 and first == "none":
            gap = "none"
    pieces.append(Piece(joined[at:], gap, inserted))
    return pieces
