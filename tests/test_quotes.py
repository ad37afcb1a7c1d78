"""What a quote says of itself: its pieces, what it leaves out and what it puts in."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from citewire.verification.quotes import Piece, Quote, read_quote

CASES = {
    "plain": ("as it is", Quote((Piece("as it is"),))),
    "an ellipsis": ("one ... two", Quote((Piece("one "), Piece(" two", "text")), ("ellipsis",))),
    "brackets": (
        "one [x] two",
        Quote((Piece("one "), Piece(" two", "words", "x")), ("brackets",)),
    ),
    "brackets first": ("[x] two", Quote((Piece(" two", "words", "x"),), ("brackets",))),
    "brackets last": ("one [x]", Quote((Piece("one "),), ("brackets",), "x")),
    "both": (
        "one [...] [x] two",
        Quote((Piece("one "), Piece(" two", "text", "x")), ("brackets", "ellipsis")),
    ),
    "a letter": ("[T]he end", Quote((Piece("The end"),), ("brackets",))),
    "a remark": ("the end [sic] of it", Quote((Piece("the end  of it"),), ("brackets",))),
    "dots at the end": ("the end [...].", Quote((Piece("the end "),), ("ellipsis",))),
    "references": ("the end[1][2, 3][4–6][^a]", Quote((Piece("the end"),), ("markup",))),
    "a mark of a model": ("the end【4:0†source】", Quote((Piece("the end"),), ("markup",))),
    "raised": ("10<sup>6</sup> CO<sub>2</sub>", Quote((Piece("10⁶ CO₂"),), ("markup",))),
    "a tag": ("a<br>b <b class='x'>c</b>", Quote((Piece("a b c"),), ("markup",))),
    "no tag": ("a <file> b < c", Quote((Piece("a <file> b < c"),))),
    "a quoted quote": ("> 5 apples\n> 6 pears", Quote((Piece(" 5 apples\n 6 pears"),), ("markup",))),
    "greater than": ("> 5 apples", Quote((Piece("> 5 apples"),))),
    "a list": ("- > **a**", Quote((Piece("a"),), ("markup",))),
    "an escape": ("a\\_b \\$5", Quote((Piece("a_b $5"),), ("markup",))),
    "leaders": ("Chapter ........ 5", Quote((Piece("Chapter  5"),), ("markup",))),
    "nothing": ("[...] “”", Quote((), ("ellipsis",))),
}


@pytest.mark.parametrize(("text", "quote"), CASES.values(), ids=CASES)
def test_read_quote(text: str, quote: Quote) -> None:
    assert read_quote(text) == quote


@pytest.mark.parametrize(
    "again", [" ", "<p>", "*a ", "[^", "[1-", "-1", "( ", ". ", "[a](", "<b a=b ", "【a", "\n>"]
)
def test_no_quote_takes_long(again: str) -> None:
    """Patterns that try everything run into the time limit of a test."""
    assert isinstance(read_quote(f"[1{again * 8_000}"), Quote)


@given(st.text(max_size=200))
def test_any_text_is_a_quote(text: str) -> None:
    assert all(any(map(str.isalnum, piece.text)) for piece in read_quote(text).pieces)
