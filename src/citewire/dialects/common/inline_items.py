"""Shared code for formats whose citations are items between pieces of text: their position is a point."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any, NamedTuple

from msgspec.structs import replace

from citewire.adapt import Adaptation
from citewire.answer_edits import find_marker_point
from citewire.dialects.base import interleave
from citewire.model import Answer, Citation, Point
from citewire.text import common_prefix_length

__all__ = ["InlineItem", "fit_points", "group_by_point", "offset_of", "write_items"]


class InlineItem(NamedTuple):
    """An original item and its text, None for an item without text; `is_cited` marks a citation."""

    raw: Any
    text: str | None
    is_cited: bool = False


def fit_points(fitting: Adaptation) -> None:
    """Give every citation a point: where its marker was, else after its claim, else at the end."""
    fitting.remove_markers()
    parts = fitting.answer.parts
    end = Point(len(parts) - 1, len(parts[-1].text)) if parts else Point(0, 0)

    def fitted(citation: Citation) -> Citation:
        if citation.insert_at is not None:
            return citation
        fitting.record_loss("insert_at", "required: set to the end of what is cited", citation=citation.id)
        return replace(citation, insert_at=find_marker_point(citation) or end)

    fitting.map_citations(fitted)


def group_by_point(answer: Answer) -> list[list[Citation]]:
    """Return the citations of each part, ordered by point."""
    found: list[list[Citation]] = [[] for _ in answer.parts]
    for citation in answer.citations:
        if citation.insert_at:
            found[citation.insert_at.part].append(citation)
    for group in found:
        group.sort(key=offset_of)
    return found


def offset_of(citation: Citation) -> int:
    """Return the offset of a citation's point in its part."""
    return citation.insert_at.at if citation.insert_at else 0


def write_items(
    text: str,
    old: list[InlineItem],
    cited: list[tuple[int, int | None, Any]],
    show: Callable[[Any, str], Any],
) -> list[Any]:
    """Write a text as items, with the `cited` items among them, given as offset, old position and item.

    Items without text keep their position, and items whose text is unchanged stay as they are. For new text,
    and for an item that must be split, `show` makes an item like the one it is passed.
    """
    pieces, still = _unchanged_items(text, old)
    between: dict[int, tuple[list[Any], list[Any]]] = defaultdict(lambda: ([], []))
    for offset, at, raw in still:
        between[offset][0].append((at, raw))
    for offset, at, item in cited:
        between[offset][1].append((at, item))
    edges = {0, len(text), *between, *(edge for start, end, _ in pieces for edge in (start, end))}
    out: list[Any] = []
    waiting = iter([*pieces, (len(text), len(text), None)])
    start, end, raw = next(waiting)
    for low, high in pairwise([*sorted(edges), len(text) + 1]):
        if low in between:
            out += interleave(*between[low])
        while end <= low < len(text):
            start, end, raw = next(waiting)
        if low < len(text):
            out.append(show(raw if start <= low else None, text[low:high]))
    return out


def _unchanged_items(
    text: str, old: list[InlineItem]
) -> tuple[list[tuple[int, int, Any]], list[tuple[int, int, Any]]]:
    """Return the items whose text is unchanged, by start and end, and the items without text, by offset."""
    before = "".join(item.text or "" for item in old)
    same = common_prefix_length(before, text)
    tail = common_prefix_length(before[same:][::-1], text[same:][::-1])
    pieces: list[tuple[int, int, Any]] = []
    still: list[tuple[int, int, Any]] = []
    for number, (start, end, item) in enumerate(_edges(old)):
        moved = start if start <= same else start + len(text) - len(before)
        is_before, is_behind = end <= same, start >= len(before) - tail
        if not item.text and not item.is_cited:
            still.append((moved if is_before or is_behind else same, number, item.raw))
        elif item.text and (is_before or is_behind):
            first = start if is_before else start + len(text) - len(before)
            pieces.append((first, first + end - start, item.raw))
    return pieces, still


def _edges(items: list[InlineItem]) -> Iterator[tuple[int, int, InlineItem]]:
    at = 0
    for item in items:
        start, at = at, at + len(item.text or "")
        yield start, at, item
