"""What a quote says of itself: its pieces, what it leaves out and what it puts in."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from citewire.verification.quotes import ParsedQuote, Piece, parse_quote

CASES = {
    "plain": ("as it is", ParsedQuote((Piece("as it is"),))),
    "an ellipsis": ("one ... two", ParsedQuote((Piece("one "), Piece(" two", "text")), ("ellipsis",))),
    "brackets": (
        "one [x] two",
        ParsedQuote((Piece("one "), Piece(" two", "words", "x")), ("brackets",)),
    ),
    "brackets first": ("[x] two", ParsedQuote((Piece(" two", "words", "x"),), ("brackets",))),
    "brackets last": ("one [x]", ParsedQuote((Piece("one "),), ("brackets",), "x")),
    "both": (
        "one [...] [x] two",
        ParsedQuote((Piece("one "), Piece(" two", "text", "x")), ("brackets", "ellipsis")),
    ),
    "a letter": ("[T]he end", ParsedQuote((Piece("The end"),), ("brackets",))),
    "a remark": ("the end [sic] of it", ParsedQuote((Piece("the end  of it"),), ("brackets",))),
    "dots at the end": ("the end [...].", ParsedQuote((Piece("the end "),), ("ellipsis",))),
    "references": ("the end[1][2, 3][4–6][^a]", ParsedQuote((Piece("the end"),), ("markup",))),
    "a mark of a model": ("the end【4:0†source】", ParsedQuote((Piece("the end"),), ("markup",))),
    "raised": ("10<sup>6</sup> CO<sub>2</sub>", ParsedQuote((Piece("10⁶ CO₂"),), ("markup",))),
    "a tag": ("a<br>b <b class='x'>c</b>", ParsedQuote((Piece("a b c"),), ("markup",))),
    "no tag": ("a <file> b < c", ParsedQuote((Piece("a <file> b < c"),))),
    "a quoted quote": ("> 5 apples\n> 6 pears", ParsedQuote((Piece(" 5 apples\n 6 pears"),), ("markup",))),
    "greater than": ("> 5 apples", ParsedQuote((Piece("> 5 apples"),))),
    "a list": ("- > **a**", ParsedQuote((Piece("a"),), ("markup",))),
    "an escape": ("a\\_b \\$5", ParsedQuote((Piece("a_b $5"),), ("markup",))),
    "leaders": ("Chapter ........ 5", ParsedQuote((Piece("Chapter  5"),), ("markup",))),
    "nothing": ("[...] “”", ParsedQuote((), ("ellipsis",))),
}


@pytest.mark.parametrize(("text", "quote"), CASES.values(), ids=CASES)
def test_read_quote(text: str, quote: ParsedQuote) -> None:
    assert parse_quote(text) == quote


@pytest.mark.parametrize(
    "again", [" ", "<p>", "*a ", "[^", "[1-", "-1", "( ", ". ", "[a](", "<b a=b ", "【a", "\n>"]
)
def test_no_quote_takes_long(again: str) -> None:
    """Patterns that try everything run into the time limit of a test."""
    assert isinstance(parse_quote(f"[1{again * 8_000}"), ParsedQuote)


@given(st.text(max_size=200))
def test_any_text_is_a_quote(text: str) -> None:
    assert all(any(map(str.isalnum, piece.text)) for piece in parse_quote(text).pieces)
