"""The grammar of markers: every form, everything that only looks like one, and no text that takes long."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from citewire.markers import Marker, MarkerKind, code_ranges, find_markers
from support.strategies import any_text


def private(*labels: str, verb: str = "cite") -> str:
    return f"\ue200{verb}" + "".join(f"\ue202{label}" for label in labels) + "\ue201"


FORMS: list[tuple[str, MarkerKind, tuple[str, ...]]] = [
    ("[1]", "number", ("1",)),
    ("[1, 5]", "number", ("1", "5")),
    ("[1,5]", "number", ("1", "5")),
    ("[1 , 5]", "number", ("1", "5")),
    ("[12, 3, 456789]", "number", ("12", "3", "456789")),
    ("[^1]", "footnote", ("1",)),
    ("[^my-note.2]", "footnote", ("my-note.2",)),
    ("[^注]", "footnote", ("注",)),
    ("【4:0†source】", "lenticular", ("4:0",)),
    ("【4†source】", "lenticular", ("4",)),
    ("【1†L7-L9】", "lenticular", ("1",)),
    ("【13:2†annual report (2024).pdf】", "lenticular", ("13:2",)),
    (private("turn0search0"), "private", ("turn0search0",)),
    (private("turn0search0", "turn0search3"), "private", ("turn0search0", "turn0search3")),
    (private("turn1file2", verb="filecite"), "private", ("turn1file2",)),
    ("[cite: 1]", "cite", ("1",)),
    ("[cite:1]", "cite", ("1",)),
    ("[cite: 1, 2]", "cite", ("1", "2")),
    ("[grew 45%](cite:1)", "link", ("1",)),
    ("[](cite:1)", "link", ("1",)),
    ("[1](cite:2)", "link", ("2",)),
    ("[grew](cite:3 'grew 45%')", "link", ("3",)),
    ('[grew](cite:3 "it\'s 45%")', "link", ("3",)),
    (r"[a \[b\] c](cite:4)", "link", ("4",)),
]


@pytest.mark.parametrize(("form", "kind", "labels"), FORMS)
@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", ""),
        ("Revenue grew ", "."),
        ("Revenue grew. ", " Costs"),
        ("收入", "。"),
        ("(", ")"),
        ("a\n", "\nb"),
    ],
)
def test_forms(form: str, kind: MarkerKind, labels: tuple[str, ...], before: str, after: str) -> None:
    found = list(find_markers(before + form + after))
    assert found == [Marker(len(before), len(before + form), kind, labels)]


def shown(text: str, known: frozenset[str] = frozenset()) -> list[str]:
    return [text[marker.start : marker.end] for marker in find_markers(text, known)]


@pytest.mark.parametrize(
    ("text", "markers"),
    [
        pytest.param("growth[1] and", ["[1]"], id="no space in front"),
        pytest.param("Growth[1]. Then", ["[1]"], id="before a full stop"),
        pytest.param("grew.[1] Then", ["[1]"], id="after a full stop"),
        pytest.param("grew [9][10][11].", ["[9]", "[10]", "[11]"], id="adjacent"),
        pytest.param("one [1], two [^2] and 【3†x】", ["[1]", "[^2]", "【3†x】"], id="mixed"),
        pytest.param("margin = 5% [1]", ["[1]"], id="not right after the equals sign"),
        pytest.param("[1] = the first source", ["[1]"], id="no word in front"),
        pytest.param("As shown in [1]: it grew", ["[1]"], id="colon within a sentence"),
        pytest.param("As shown in [^1]: it grew", ["[^1]"], id="colon after a footnote within a sentence"),
        pytest.param("`a[0]` and [1] and `b[2]`", ["[1]"], id="between code spans"),
        pytest.param("a ` b [1]", ["[1]"], id="a single backtick"),
        pytest.param("``a` [1]", ["[1]"], id="runs of two lengths"),
        pytest.param("Qur`an [1]\n\nKa`ba [2]", ["[1]", "[2]"], id="backticks in two paragraphs"),
        pytest.param(r"\` [1] \`", ["[1]"], id="escaped backticks"),
        pytest.param("```\na[1]\n```\nb [2]", ["[2]"], id="after a fence"),
        pytest.param("```\r\na[1]\r\n```\r\nb [2]", ["[2]"], id="after a fence with CRLF"),
        pytest.param("~~~ py\n[1]\n```\n[2]\n~~~  \n[3]", ["[3]"], id="after a tilde fence"),
        pytest.param("````\n```\n[1]\n````\n[2]", ["[2]"], id="after a longer fence"),
        pytest.param("```\n[1]\n`````\n[2]", ["[2]"], id="closed by a longer fence"),
        pytest.param("[1] ``` [2] ``` [3]", ["[1]", "[3]"], id="three backticks in a line are a span"),
        pytest.param("[2024] and [3]", ["[3]"], id="beside a year"),
        pytest.param("[text] [1]", ["[1]"], id="beside a bracket of words"),
        pytest.param("- [x] done [1]", ["[1]"], id="beside a check box"),
        pytest.param("[`pip install`](cite:5)", ["[`pip install`](cite:5)"], id="code within a link"),
        pytest.param("[see [1](cite:2)", ["[1](cite:2)"], id="inner bracket"),
    ],
)
def test_markers_in_text(text: str, markers: list[str]) -> None:
    assert shown(text) == markers


@pytest.mark.parametrize(
    "text",
    [
        "",
        "no markers",
        "`[1]`",
        "`` a ` [1] ``",
        "`a\n[1]`",
        "```\n[1]\n```",
        "```python\nrow[1]\n```",
        "text\n```\n[1] never closed",
        "~~~\n[1]\n~~~",
        "~~~\n[1]\n```\n[2] never closed",
        "   ```\n[1]\n  ```",
        "```\n[1]\n``` not a close\n[2]",
        "arr[0]",
        "row[0]",
        "[0]",
        "x[1]",
        "x[1].name",
        "x[1][2]",
        "args[1]",
        "my_list[1]",
        "rowData[1]",
        "$rows[1]",
        "row[1].name",
        "row[1] = 2",
        "row[1] += 2",
        "row[1]++",
        "handlers[1](event)",
        "x = [1, 2]",
        "x = [1]",
        "x == [1]",
        "x = [[1], [2]]",
        "[[1]]",
        "[2024]",
        "[1999]",
        "[1, 2024]",
        r"\[1]",
        r"\[^1]",
        r"\[x](cite:1)",
        "[1](https://example.com)",
        "![1](https://example.com/a.png)",
        "[1]: https://example.com",
        "[1]:https://example.com",
        "text\n[1]: https://example.com",
        "[^1]: The source",
        "text\n[^note]: The source",
        "[1",
        "1]",
        "[ 1 ]",
        "[1234567]",
        "[1,]",
        "[,1]",
        "[1-3]",
        "[1;2]",
        "[a]",
        "[^]",
        "[^a b]",
        "[^a\nb]",
        "[cite: a]",
        "[cite]",
        "[cite_start]",
        "[x](cite:)",
        "[x](cite:a)",
        "[x] (cite:1)",
        "[x\ny](cite:1)",
        "【source】",
        "【4:0】",
        "【4†a\nb】",
        "【4†never closed",
        private(),
        private(""),
        private("turn0search0", verb="navlist"),
        "\ue200cite\ue202turn0search0",
        "citeturn0search0",
    ],
)
def test_left_alone(text: str) -> None:
    assert shown(text) == []


@pytest.mark.parametrize(
    ("text", "known", "markers"),
    [
        ("[2024]", {"2024"}, ["[2024]"]),
        ("[1999] and [2024]", {"2024"}, ["[2024]"]),
        ("[1, 2024]", {"2024"}, ["[1, 2024]"]),
        ("[0]", {"0"}, ["[0]"]),
        ("see [0] and arr[0]", {"0"}, ["[0]"]),
        ("x[1] = [1]", {"1"}, []),
        ("`[1]`", {"1"}, []),
        (r"\[1]", {"1"}, []),
        ("[1](https://example.com)", {"1"}, []),
        ("[7]", set[str](), ["[7]"]),
    ],
)
def test_known_numbers(text: str, known: set[str], markers: list[str]) -> None:
    """A number that is known may look like a year, but is still nothing in code."""
    assert shown(text, frozenset(known)) == markers


PIECES = r"""[ ] ^ 【 】 † 1 , 2024 \ ` ``` ~~~ ( ) : cite: (cite:1) x row = ' " """
bits = st.sampled_from(
    [*(form for form, _, _ in FORMS), *PIECES.split(), *"\ue200\ue201\ue202 ", "\n", "\n\n"]
)
texts = st.lists(bits, max_size=14).map("".join) | any_text


@given(texts)
def test_markers_are_in_order_apart_and_the_same_on_their_own(text: str) -> None:
    markers = list(find_markers(text))
    assert all(0 <= marker.start < marker.end <= len(text) for marker in markers)
    assert all(one.end <= other.start for one, other in pairwise(markers))
    for start, end, kind, labels in markers:
        assert list(find_markers(text[start:end], labels)) == [Marker(0, end - start, kind, labels)]


@given(texts)
def test_no_marker_touches_code(text: str) -> None:
    code = list(code_ranges(text))
    assert all(start < end for start, end in code)
    assert all(one[1] <= other[0] for one, other in pairwise(code))
    for marker in find_markers(text):
        for start, end in code:
            within = marker.kind == "link" and marker.start < start and end < marker.end
            assert within or end <= marker.start or marker.end <= start


@given(texts, st.frozensets(st.sampled_from(["0", "1", "2", "2024"])))
def test_knowing_numbers_only_adds_markers(text: str, known: frozenset[str]) -> None:
    assert set(find_markers(text)) <= set(find_markers(text, known))


MEGABYTE = 1_000_000


@pytest.mark.slow
@pytest.mark.parametrize(
    "hostile",
    [
        pytest.param(lambda: "[" * MEGABYTE, id="brackets"),
        pytest.param(lambda: "[^" * (MEGABYTE // 2), id="footnotes"),
        pytest.param(lambda: "[^" + "a" * MEGABYTE, id="a long footnote"),
        pytest.param(lambda: "[1" * (MEGABYTE // 2), id="numbers"),
        pytest.param(lambda: "[" + "1," * (MEGABYTE // 2), id="a long list"),
        pytest.param(lambda: "[" + "1 , " * (MEGABYTE // 4), id="a long list with spaces"),
        pytest.param(lambda: "[cite: " + "1," * (MEGABYTE // 2), id="a long cite"),
        pytest.param(lambda: "[a](cite:1 '" * (MEGABYTE // 12), id="links never closed"),
        pytest.param(lambda: "[a](cite:1 '" + "b" * MEGABYTE, id="a long title"),
        pytest.param(lambda: "[" + "a" * MEGABYTE + "](", id="a long link"),
        pytest.param(lambda: "[" + "\\[" * (MEGABYTE // 2), id="escaped brackets"),
        pytest.param(lambda: "[\\]" * (MEGABYTE // 3), id="escaped closing brackets"),
        pytest.param(lambda: "\\" * MEGABYTE + "[1]", id="backslashes"),
        pytest.param(lambda: "【1†" * (MEGABYTE // 3), id="lenticulars"),
        pytest.param(lambda: "【1†" + "a" * MEGABYTE, id="a long lenticular"),
        pytest.param(lambda: "\ue200cite\ue202" * (MEGABYTE // 6), id="private openings"),
        pytest.param(lambda: "\ue200cite" + "\ue202a" * (MEGABYTE // 2), id="a long private marker"),
        pytest.param(lambda: "\ue200" * MEGABYTE, id="private starts"),
        pytest.param(lambda: "`" * MEGABYTE, id="one run of backticks"),
        pytest.param(lambda: "` " * (MEGABYTE // 2), id="backticks"),
        pytest.param(lambda: " ".join("`" * length for length in range(1, 1_400)), id="growing runs"),
        pytest.param(lambda: " ".join("`" * length for length in range(1_400, 0, -1)), id="shrinking runs"),
        pytest.param(lambda: "x" + " ```" * (MEGABYTE // 4), id="runs of three"),
        pytest.param(lambda: "```\n" * (MEGABYTE // 4) + "```", id="fences"),
        pytest.param(lambda: "```\n~~~\n" * (MEGABYTE // 8), id="fences of both kinds"),
        pytest.param(lambda: "~~~ x\n" * (MEGABYTE // 6), id="fences that do not close"),
        pytest.param(lambda: "\n".join("`" * n for n in range(1_400, 2, -1)), id="shrinking fences"),
        pytest.param(lambda: "```" + "a" * MEGABYTE + "`", id="a long info string"),
        pytest.param(lambda: "~~~\n" + "~" * MEGABYTE, id="a long closing fence"),
        pytest.param(lambda: "x[1]" * (MEGABYTE // 4), id="indexes"),
        pytest.param(lambda: "w" * MEGABYTE + "[1]", id="a long word"),
        pytest.param(lambda: "[1]" + " " * MEGABYTE + "= 1", id="spaces"),
        pytest.param(lambda: "[1], " * (MEGABYTE // 5), id="real markers"),
    ],
)
def test_a_hostile_megabyte_finishes(hostile: Callable[[], str]) -> None:
    for _ in find_markers(hostile()):
        pass
