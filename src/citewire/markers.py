"""Find citation markers in text. This is the only grammar of markers.

| written | kind | labels |
|---|---|---|
| `[1]`, `[1, 5]`, and `[1-3]` where all are known | number | `1`; `1`, `5`; `1`, `2`, `3` |
| `[^id]` | footnote | `id` |
| `【4:0†source】` | lenticular | `4:0` |
| U+E200 `cite` U+E202 `turn0search0` U+E201 | private | `turn0search0` |
| `[cite: 1, 2]` | cite | `1`, `2` |
| `[text](cite:N)` | link | `N` |

A bracket is not a marker inside code, after a backslash, as an array index (`row[0]`, `x[1].name`), as an
array literal (`= [1, 2]`), as an ordinary Markdown link (`[1](https://…)`, `[1]: https://…`) or around a year
(`[2024]`). Every scan is linear in the length of the text.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Container, Iterable, Iterator
from heapq import merge
from itertools import chain
from typing import Literal, NamedTuple

__all__ = ["Marker", "MarkerKind", "code_ranges", "find_markers"]

MarkerKind = Literal["number", "footnote", "lenticular", "private", "cite", "link"]


class Marker(NamedTuple):
    """A marker from `start` to `end` of the text, and the labels it refers to."""

    start: int
    end: int
    kind: MarkerKind
    labels: tuple[str, ...]


# Each class excludes its own opening character, so that a failed match ends where the next one starts.
_MARKER = re.compile(
    r"""
      \[(?P<number>\d{1,6}(?:[ ]?[,–-][ ]?\d{1,6})*)\](?!\()
    | \[\^(?P<footnote>[^\[\]\s]{1,200})\]
    | \[cite:[ ]?(?P<cite>\d{1,6}(?:[ ]?,[ ]?\d{1,6})*)\]
    | \[(?:[^\[\]\n]|\\[\[\]])*\]\(cite:(?P<link>\d{1,6})(?:[ ](?:'[^\n]{0,300}?'|"[^\n]{0,300}?"))?\)
    | 【(?P<lenticular>\d{1,6}(?::\d{1,6})?)†[^【】\n]*】
    | \ue200(?:file)?cite(?P<private>(?:\ue202[^\ue200-\ue206\n]+)+)\ue201
    """,
    re.VERBOSE,
)
# Most markers look like this: a word, a space or full stop, a number, and nothing after it that would suggest
# code or a link.
_PLAIN = re.compile(r"(?:[^\s=,\\][ ]|[^\\][.!?])\[(?!(?:1[5-9]|2[01])\d\d\])([1-9]\d{0,5})\](?![](:])")
_OTHER_OPENING = re.compile("[【\ue200]")
_SEPARATOR = re.compile(r"[ ]?,[ ]?")
_RANGE = re.compile(r"(\d+)[ ]?[–-][ ]?(\d+)")
# Longer lists are not searched for ranges, and longer ranges are ignored, so that work stays linear.
_LONG = 50
_FENCE = re.compile(r"^ {0,3}(`{3,}(?=[^`\n]*$)|~{3,})", re.MULTILINE)
_TICKS = re.compile("`+")

_ODD = re.compile(r"(?<!\d)(?:(?:1[5-9]|20|21)\d\d|0+)(?!\d)")
# The word before a bracket, and text before or after it that occurs only in code.
_WORD = re.compile(r"(?<![\w$])[\w$]+\Z")
_CODE_WORD = re.compile(r"_|\$(?=[A-Za-z])|^[a-z]$|^[a-z]{2,}[A-Z]|^(?:arr|array|args|argv|buf|lst|tmp|vec)$")
_CHAIN = re.compile(r"(?:\[\d+\])*")
_CALL = re.compile(r"\w\($")
_CODE_AFTER = re.compile(r"\.[a-z_]|[ ]?(?:[-+*/|&^%]?=|==)|\(|[ ]?[-+]{2}")
_BEFORE = 48


def find_markers(text: str, known: Container[str] = ()) -> Iterator[Marker]:
    """Yield the markers of `text` in order.

    A number in `known` counts even if it looks like a year. A range counts only if all its numbers are known.
    Array indexes and code never count.
    """
    done, no_marker = 0, -1
    for start, end in _prose(text):
        for at in _openings(text, start, end):
            if at > 1 and (plain := _PLAIN.match(text, at - 2, end)):
                yield Marker(at, plain.end(), "number", (plain[1],))
                continue
            if at < done or _is_escaped(text, at):
                continue
            match = _MARKER.match(text, at)
            if match is None or _is_definition(text, match):
                continue
            kind, labels = _read(match)
            if kind == "number" and (at == no_marker or not _is_number_marker(text, match, labels, known)):
                # The second index of a chain, `x[1][2]`, is not a marker either.
                no_marker = match.end()
                continue
            done = match.end()
            yield Marker(at, done, kind, labels)


def _is_escaped(text: str, at: int) -> bool:
    """Whether an odd number of backslashes precedes `at`. Looks back only as far as real text needs."""
    if text[at - 1 : at] != "\\":
        return False
    before = text[max(0, at - _BEFORE) : at]
    return (len(before) - len(before.rstrip("\\"))) % 2 == 1


def _is_definition(text: str, match: re.Match[str]) -> bool:
    """Whether this is a definition rather than a marker: at the start of a line and followed by a colon."""
    if not text.startswith(":", match.end()):
        return False
    before = text[max(0, match.start() - 4) : match.start()].rstrip(" ")
    return before == "" or before.endswith("\n")


def _openings(text: str, start: int, end: int) -> Iterator[int]:
    """Yield where a marker might start. Searching for single characters is much faster than a pattern."""
    brackets = _find_all(text, "[", start, end)
    if text.find("【", start, end) < 0 and text.find("\ue200", start, end) < 0:
        return brackets
    return merge(brackets, (match.start() for match in _OTHER_OPENING.finditer(text, start, end)))


def _find_all(text: str, needle: str, start: int, end: int) -> Iterator[int]:
    at = text.find(needle, start, end)
    while at >= 0:
        yield at
        at = text.find(needle, at + 1, end)


def _read(match: re.Match[str]) -> tuple[MarkerKind, tuple[str, ...]]:
    kind: MarkerKind = match.lastgroup  # type: ignore[assignment]
    body: str = match[kind]
    match kind:
        case "number" | "cite":
            parts = _SEPARATOR.split(body)
            return kind, tuple(chain.from_iterable(map(_counted, parts)) if len(parts) < _LONG else parts)
        case "private":
            return kind, tuple(body[1:].split("\ue202"))
        case _:
            return kind, (body,)


def _counted(part: str) -> Iterable[str]:
    """Return the numbers of a range such as `1-3`, or none if it is reversed or implausibly long."""
    ends = _RANGE.fullmatch(part)
    if ends is None:
        return (part,)
    first, last = int(ends[1]), int(ends[2])
    return map(str, range(first, last + 1)) if last - first < _LONG else ()


def _is_number_marker(
    text: str, match: re.Match[str], labels: tuple[str, ...], known: Container[str]
) -> bool:
    # A range may also be an interval or a character class, so all its numbers must be known.
    is_list = _RANGE.search(match[0]) is None
    if not labels or any(label not in known for label in labels if not is_list or _ODD.fullmatch(label)):
        return False
    before = text[max(0, match.start() - _BEFORE) : match.start()]
    if before.rstrip(" ").endswith("=") or before.endswith("["):
        return False
    if (text.startswith("]", match.end()) and before.endswith(", ")) or _CALL.search(before):
        return False
    word = _WORD.search(before)
    if word is None:
        return True
    indexes = _CHAIN.match(text, match.end())
    after = indexes.end() if indexes else match.end()
    return not (_CODE_WORD.search(word[0]) or _CODE_AFTER.match(text, after))


def _prose(text: str) -> Iterator[tuple[int, int]]:
    """Yield the ranges of `text` that are not code."""
    at = 0
    for start, end in code_ranges(text):
        if at < start:
            yield at, start
        at = end
    yield at, len(text)


def code_ranges(text: str) -> Iterator[tuple[int, int]]:
    """Yield fenced blocks and code spans, in order."""
    at = 0
    for start, end in _fences(text):
        yield from _code_spans(text, at, start)
        yield start, end
        at = end
    yield from _code_spans(text, at, len(text))


def _fences(text: str) -> Iterator[tuple[int, int]]:
    """Yield fenced blocks. An unclosed one runs to the end, as in Markdown."""
    if "`" not in text and "~" not in text:
        return
    opened: re.Match[str] | None = None
    for fence in _FENCE.finditer(text):
        if opened is None:
            opened = fence
        elif (
            fence[1][0] == opened[1][0]
            and len(fence[1]) >= len(opened[1])
            and _rest_of_line_is_blank(text, fence.end())
        ):
            yield opened.start(), fence.end()
            opened = None
    if opened is not None:
        yield opened.start(), len(text)


def _rest_of_line_is_blank(text: str, at: int) -> bool:
    end = text.find("\n", at)
    return not text[at : end if end >= 0 else len(text)].strip(" \t\r`~")


_BLANK_LINE = re.compile(r"\n[ \t\r]*\n")


def _code_spans(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield runs of backticks closed by a run of the same length within the same paragraph."""
    if text.find("`", start, end) < 0:
        return
    at = start
    for blank in _BLANK_LINE.finditer(text, start, end):
        yield from _spans_of_paragraph(text, at, blank.start())
        at = blank.end()
    yield from _spans_of_paragraph(text, at, end)


def _spans_of_paragraph(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    runs = [match.span() for match in _TICKS.finditer(text, start, end)]
    later: dict[int, list[int]] = defaultdict(list)
    for place in range(len(runs) - 1, -1, -1):
        later[runs[place][1] - runs[place][0]].append(place)
    at = 0
    while at < len(runs):
        first, last = runs[at]
        # A backslash escapes the first backtick of an opening run. Inside code it has no effect.
        first += _is_escaped(text, first)
        same = later[last - first]
        while same and same[-1] <= at:
            same.pop()
        if same and first < last:
            at = same[-1]
            yield first, runs[at][1]
        at += 1
