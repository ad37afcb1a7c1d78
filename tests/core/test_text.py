"""Offsets against a naive count of every prefix, and log lines against everything that is not one."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from citewire.text import Offsets, ResolvedSpan, Unit, one_line
from support.strategies import ALPHABET, json_values

UNITS: tuple[Unit, ...] = ("codepoints", "utf16", "utf8")

# The bits most likely to break a count, halves of a surrogate pair among them, and any text at all.
hard_texts = st.text(ALPHABET + "\r\u200d\ufe0f\u20e3👍🇺\ud83d\udc4d\U0010ffff\uffff", max_size=40)
every_character = st.characters(exclude_categories=())
# Long enough to cross several checkpoints of the byte table.
long_texts = st.tuples(hard_texts, st.integers(1, 40), hard_texts).map(lambda t: t[0] * t[1] + t[2])
all_texts = hard_texts | st.text(every_character, max_size=40) | long_texts


def counted(text: str, unit: Unit) -> int:
    match unit:
        case "codepoints":
            return len(text)
        case "utf16":
            return len(text.encode("utf-16-le", "surrogatepass")) // 2
        case "utf8":
            return len(text.encode("utf-8", "surrogatepass"))


@pytest.mark.parametrize(
    ("text", "codepoints", "utf16", "utf8"),
    [
        ("", 0, 0, 0),
        ("plain", 5, 5, 5),
        ("\u00e9", 1, 1, 2),
        ("e\u0301", 2, 2, 3),
        ("👍", 1, 2, 4),
        ("👩‍👩‍👧‍👦", 7, 11, 25),
        ("🇺🇸", 2, 4, 8),
        ("5️⃣", 3, 3, 7),
        ("𝒳", 1, 2, 4),
        ("—", 1, 1, 3),
        ("\ud800", 1, 1, 3),
        ("\ud83d\udc4d", 2, 2, 6),
        ("Profit rose 12% 📈 ", 18, 19, 21),
        ("Le caf\u00e9 ☕ ", 10, 10, 13),
        ("Le cafe\u0301 ☕ ", 11, 11, 14),
        ("A\r\nB ", 5, 5, 5),
        ("A\nB ", 4, 4, 4),
    ],
)
def test_length(text: str, codepoints: int, utf16: int, utf8: int) -> None:
    offsets = Offsets(text)
    assert [offsets.length(unit) for unit in UNITS] == [codepoints, utf16, utf8]


@pytest.mark.parametrize(
    ("text", "words", "starts"),
    [
        ("Profit rose 12% 📈 in Q3", "in Q3", (18, 19, 21)),
        ("Le caf\u00e9 ☕ ouvre à 8h", "ouvre", (10, 10, 13)),
        ("Le cafe\u0301 ☕ ouvre à 8h", "ouvre", (11, 11, 14)),
        ("A\r\nB cited", "cited", (5, 5, 5)),
        ("A\nB cited", "cited", (4, 4, 4)),
    ],
)
def test_where_words_start(text: str, words: str, starts: tuple[int, int, int]) -> None:
    """Nothing is normalised on the way: composed and decomposed text, CRLF and LF count as they are."""
    at = text.index(words)
    assert tuple(Offsets(text).to_unit(at, unit) for unit in UNITS) == starts
    assert [Offsets(text).from_unit(start, unit) for start, unit in zip(starts, UNITS, strict=True)] == [
        (at, True)
    ] * 3


@pytest.mark.parametrize("unit", UNITS)
@given(text=all_texts)
def test_every_edge_goes_there_and_back(unit: Unit, text: str) -> None:
    offsets = Offsets(text)
    for at in range(len(text) + 1):
        offset = offsets.to_unit(at, unit)
        assert offset == counted(text[:at], unit)
        assert offsets.from_unit(offset, unit) == (at, True)
    assert offsets.length(unit) == counted(text, unit)


@pytest.mark.parametrize("unit", UNITS)
@given(text=all_texts)
def test_an_offset_within_a_character_is_moved_to_its_start(unit: Unit, text: str) -> None:
    offsets = Offsets(text)
    for at, character in enumerate(text):
        start = counted(text[:at], unit)
        for inside in range(1, counted(character, unit)):
            assert offsets.from_unit(start + inside, unit) == (at, False)
            assert offsets.point(start + inside, unit) == ResolvedSpan(at, at, True)
            assert offsets.span(start, start + inside, unit) == ResolvedSpan(at, at + 1, True)
            assert offsets.span(start + inside, offsets.length(unit), unit) == ResolvedSpan(
                at, len(text), True
            )


@pytest.mark.parametrize(
    ("text", "start", "end", "unit", "found"),
    [
        ("abc", 0, 3, "utf16", ResolvedSpan(0, 3, False)),
        ("abc", 2, 2, "utf8", ResolvedSpan(2, 2, False)),
        ("", 0, 0, "utf8", ResolvedSpan(0, 0, False)),
        ("a👍b", 0, 3, "utf16", ResolvedSpan(0, 2, False)),
        ("a👍b", 1, 5, "utf8", ResolvedSpan(1, 2, False)),
        ("a👍b", 0, 2, "utf16", ResolvedSpan(0, 2, True)),
        ("a👍b", 2, 4, "utf16", ResolvedSpan(1, 3, True)),
        ("a👍b", 2, 2, "utf16", ResolvedSpan(1, 2, True)),
        ("a👍b", 2, 4, "utf8", ResolvedSpan(1, 2, True)),
        ("a中b", 0, 3, "utf8", ResolvedSpan(0, 2, True)),
        ("abc", 0, 4, "codepoints", None),
        ("a👍b", 0, 5, "utf16", None),
        ("a👍b", 0, 7, "utf8", None),
        ("abc", -1, 2, "codepoints", None),
        ("abc", -2, -1, "utf16", None),
        ("abc", 2, 1, "codepoints", None),
        ("中中", 5, 1, "utf8", None),
        ("abc", 0, 2**70, "utf8", None),
        ("", 0, 1, "utf16", None),
    ],
)
def test_span(text: str, start: int, end: int, unit: Unit, found: ResolvedSpan | None) -> None:
    assert Offsets(text).span(start, end, unit) == found


@pytest.mark.parametrize(
    ("text", "offset", "unit", "found"),
    [
        ("abc", 3, "utf8", ResolvedSpan(3, 3, False)),
        ("a👍b", 3, "utf16", ResolvedSpan(2, 2, False)),
        ("a👍b", 2, "utf16", ResolvedSpan(1, 1, True)),
        ("a👍b", 3, "utf8", ResolvedSpan(1, 1, True)),
        ("abc", 4, "utf8", None),
        ("abc", -1, "codepoints", None),
        ("a👍b", 5, "utf16", None),
    ],
)
def test_point(text: str, offset: int, unit: Unit, found: ResolvedSpan | None) -> None:
    assert Offsets(text).point(offset, unit) == found


RISE = "Profit rose 12% 📈 in Q3"


@pytest.mark.parametrize(
    ("text", "start", "end", "unit", "covered", "found"),
    [
        pytest.param(RISE, 18, 23, "codepoints", "in Q3", ResolvedSpan(18, 23, False), id="as said"),
        pytest.param(RISE, 19, 24, "codepoints", "in Q3", ResolvedSpan(18, 23, True), id="was UTF-16"),
        pytest.param(RISE, 21, 26, "codepoints", "in Q3", ResolvedSpan(18, 23, True), id="was UTF-8"),
        pytest.param(RISE, 18, 23, "utf8", "in Q3", ResolvedSpan(18, 23, True), id="was code points"),
        pytest.param(RISE, 3, 8, "utf16", "in Q3", ResolvedSpan(18, 23, True), id="was anywhere"),
        pytest.param(RISE, 90, 95, "utf16", "in Q3", ResolvedSpan(18, 23, True), id="was out of range"),
        pytest.param(RISE, -9, -4, "utf8", "in Q3", ResolvedSpan(18, 23, True), id="was negative"),
        pytest.param(RISE, 23, 18, "codepoints", "in Q3", ResolvedSpan(18, 23, True), id="was reversed"),
        pytest.param(RISE, 16, 18, "utf16", "📈", ResolvedSpan(16, 17, False), id="astral"),
        pytest.param(RISE, 16, 17, "utf16", "📈", ResolvedSpan(16, 17, True), id="half of a pair"),
        pytest.param("one two one two", 9, 12, "utf8", "two ", ResolvedSpan(4, 8, True), id="the only one"),
        pytest.param("word word word", 6, 10, "utf8", "word", ResolvedSpan(5, 9, True), id="the nearest"),
        pytest.param(
            "word word word", 9, 13, "utf8", "word", ResolvedSpan(10, 14, True), id="the nearest after"
        ),
        pytest.param(RISE, 0, 6, "utf16", "Losses", None, id="nowhere"),
        pytest.param("a **b** c", 0, 2, "utf16", "**", None, id="punctuation"),
        pytest.param("a **** b ****", 4, 8, "utf16", "****", None, id="longer punctuation"),
        pytest.param("the fox and the hen", 1, 4, "utf16", "the", None, id="short"),
        pytest.param(
            "the fox and the hen", 0, 3, "utf16", "the", ResolvedSpan(0, 3, False), id="short, in place"
        ),
        pytest.param("a **b** c", 2, 4, "utf16", "**", ResolvedSpan(2, 4, False), id="punctuation, in place"),
        pytest.param(
            "a 👍 **b** c", 5, 7, "codepoints", "**", ResolvedSpan(4, 6, True), id="another unit, no search"
        ),
        pytest.param("abc", 1, 1, "utf16", "", ResolvedSpan(1, 1, False), id="empty"),
        pytest.param("abc", 1, 2, "utf16", "", None, id="empty, but not there"),
    ],
)
def test_covering(
    text: str, start: int, end: int, unit: Unit, covered: str, found: ResolvedSpan | None
) -> None:
    assert Offsets(text).find_covered(start, end, unit, covered) == found


@pytest.mark.parametrize("unit", UNITS)
def test_the_nearest_is_near_in_the_unit_of_the_payload(unit: Unit) -> None:
    """One off in bytes is one off, however many bytes the text in front of it has."""
    text = "📈" * 100 + "same words" + "📈" * 50 + "same words"
    start = Offsets(text).to_unit(100, unit) + 1
    assert Offsets(text).find_covered(start, start + 10, unit, "same words") == ResolvedSpan(100, 110, True)


@pytest.mark.parametrize("unit", UNITS)
@given(text=all_texts, data=st.data())
def test_what_is_where_it_should_be_is_not_repaired(unit: Unit, text: str, data: st.DataObject) -> None:
    first, last = sorted(data.draw(st.lists(st.integers(0, len(text)), min_size=2, max_size=2)))
    offsets = Offsets(text)
    start, end = offsets.to_unit(first, unit), offsets.to_unit(last, unit)
    assert offsets.span(start, end, unit) == ResolvedSpan(first, last, False)
    assert offsets.find_covered(start, end, unit, text[first:last]) == ResolvedSpan(first, last, False)


@given(
    text=all_texts,
    start=st.integers(-9, 99),
    end=st.integers(-9, 99),
    unit=st.sampled_from(UNITS),
    covered=hard_texts,
)
def test_covering_gives_the_covered_text_or_nothing(
    text: str, start: int, end: int, unit: Unit, covered: str
) -> None:
    found = Offsets(text).find_covered(start, end, unit, covered)
    assert found is None or text[found.start : found.end] == covered


@pytest.mark.parametrize(
    ("text", "needle", "near", "at"),
    [
        ("word word word", "word", 0, 0),
        ("word word word", "word", 7, 5),
        ("word word word", "word", 99, 10),
        ("word word word", "word", -99, 0),
        ("word word word", "work", 0, None),
        ("word word word", "wor", 0, None),
        ("---- ----", "----", 0, None),
        ("中文字典", "中文字典", 2, 0),
        ("中文字", "中文字", 0, None),
        ("short", "longer than short", 0, None),
    ],
)
def test_nearest(text: str, needle: str, near: int, at: int | None) -> None:
    assert Offsets(text).find_nearest(needle, near) == at


@given(st.text("ab ", max_size=30), st.text("ab ", min_size=4, max_size=5), st.integers(-5, 35))
def test_nearest_is_the_nearest(text: str, needle: str, near: int) -> None:
    found = Offsets(text).find_nearest(needle, near)
    places = [at for at in range(len(text)) if text.startswith(needle, at)] if needle.strip() else []
    inside = min(max(near, 0), len(text))
    assert (found is None) == (not places)
    assert found is None or abs(found - inside) == min(abs(at - inside) for at in places)


def test_many_misses_finish() -> None:
    """After some searches of the whole text the rest look only nearby; a hit there is still one."""
    text = "lorem ipsum dolor " * 60_000 + "here it is"
    offsets = Offsets(text)
    for number in range(20_000):
        assert offsets.find_nearest(f"nowhere {number}", number * 50) is None
    assert offsets.find_nearest("here it is", len(text) - 500) == len(text) - 10


@pytest.mark.parametrize(
    "needle", ["ab" + "a" * 5_000, "a" * 5_000 + "ba", "a" * 2_500 + "b" + "a" * 2_500], ids=len
)
def test_misses_that_nearly_match_finish(needle: str) -> None:
    offsets = Offsets("a" * 1_000_000)
    for _ in range(200):
        assert offsets.find_nearest(needle, 1_000_000) is None


def test_many_conversions_finish() -> None:
    offsets = Offsets("中📈é" * 330_000)
    for unit in UNITS:
        length = offsets.length(unit)
        for offset in range(0, length, length // 20_000):
            offsets.span(offset, min(offset + 7, length), unit)


@pytest.mark.parametrize(
    ("value", "line"),
    [
        ("plain text, 中文 😀", "plain text, 中文 😀"),
        ("", ""),
        (None, "None"),
        (7, "7"),
        ({"a": "\n"}, "{'a': '\\n'}"),
        ("a\nb\r\nc\td", "a\\nb\\r\\nc\\td"),
        ("a\x00b\x08c\x7fd", "a\\u0000b\\u0008c\\u007fd"),
        ("a\x85b\u2028c\u2029d", "a\\u0085b\\u2028c\\u2029d"),
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b[1;31;40mbold\x1b[K", "bold"),
        ("\x9b31mred", "red"),
        ("\x1b]0;title\x07after", "after"),
        ("\x1b]8;;https://evil.example\x1b\\click\x1b]8;;\x1b\\", "click"),
        ("\x1bcreset", "reset"),
        ("\x1b\x1b[2Jcleared", "cleared"),
        ("end\x1b", "end"),
        ("a\u202egnp.exe", "a\\u202egnp.exe"),
        ("\u2066x\u2069", "\\u2066x\\u2069"),
        ("a\u200eb\u200fc\u061cd", "a\\u200eb\\u200fc\\u061cd"),
        ("\ud800x", "\\ud800x"),
    ],
)
def test_for_log(value: object, line: str) -> None:
    assert one_line(value) == line


@pytest.mark.parametrize(
    ("value", "limit", "line"),
    [
        ("abcdef", 6, "abcdef"),
        ("abcdef", 5, "abcd…"),
        ("\n\n\n", 6, "\\n\\n\\n"),
        ("\n\n\n", 5, "\\n\\n…"),
        ("abc", 1, "…"),
        ("abc", 0, ""),
        ("", 0, ""),
    ],
)
def test_for_log_is_cut_to_its_limit(value: str, limit: int, line: str) -> None:
    assert one_line(value, limit) == line


BIDI = "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"


def is_unsafe(character: str) -> bool:
    return unicodedata.category(character) in {"Cc", "Zl", "Zp", "Cs"} or character in BIDI


hostile = st.text("ab\x1b[]m0;\x07\\\r\n\x00\x9b\x9d\x9c\x85\u2028" + BIDI + "\ud800", max_size=40)
values: st.SearchStrategy[Any] = hostile | st.text(every_character) | st.binary(max_size=20) | json_values


@given(values, st.integers(0, 30) | st.just(1000))
def test_nothing_unsafe_comes_out_of_for_log(value: Any, limit: int) -> None:
    line = one_line(value, limit)
    assert len(line) <= limit
    assert [character for character in line if is_unsafe(character)] == []


@pytest.mark.parametrize(
    "hostile",
    [
        lambda: "\x1b]" * 500_000,
        lambda: "\x9d" * 1_000_000,
        lambda: "\x1b[" + "0" * 1_000_000,
        lambda: "\n" * 1_000_000,
        lambda: ["\x1b"] * 200_000,
    ],
)
def test_for_log_of_a_megabyte(hostile: Callable[[], object]) -> None:
    assert len(one_line(hostile())) <= 1000


def test_for_log_of_a_number_too_long_to_print() -> None:
    """`repr` refuses such numbers, and a log line must not be what fails."""
    assert len(one_line(10**5000)) <= 1000
