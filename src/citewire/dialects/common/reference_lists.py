"""Shared code for formats with a list of references, where `[1]` in the text means the first of the list."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from itertools import count
from math import inf
from typing import Any, NamedTuple

from msgspec.structs import replace

from citewire.adapt import Adaptation
from citewire.answer_edits import find_marker_point
from citewire.dialects.base import interleave, native_for
from citewire.dialects.common.marker_records import (
    MarkerLabels,
    MarkerTargets,
    find_marker_targets,
    place_markers,
    report_misread_markers,
    retry_until_readable,
)
from citewire.model import Citation, Native, Source, SourceRef, Span, SpanOrigin

__all__ = [
    "ListedReference",
    "MarkerFinder",
    "cite_list",
    "find_number_markers",
    "fit_to_list",
    "origin_of",
    "snapshot_list",
]


class ListedReference(NamedTuple):
    """A reference that was read, with its index in the list."""

    at: int
    ref: SourceRef
    native: Native


MarkerFinder = Callable[[str, Mapping[str, int]], MarkerTargets]
"""The markers of a text, given what the numbers in them mean."""


def find_number_markers(text: str, labels: Mapping[str, int]) -> MarkerTargets:
    """Find markers that are plain numbers, `[1]`."""
    return find_marker_targets(text, MarkerLabels({}, labels))


def cite_list(
    text: str,
    listed: list[ListedReference],
    sources: Iterable[Source],
    find: MarkerFinder = find_number_markers,
) -> tuple[tuple[Citation, ...], tuple[Source, ...]]:
    """Return a citation for each marker in text order, then one for each entry without a marker; and the
    sources in the order of first use."""
    labels = {str(entry.at + 1): number for number, entry in enumerate(listed)}
    found = find(text, labels) if listed else {}
    places = [(Span(0, *place), number) for place in sorted(found) for number in sorted(found[place])]
    named = {number for _, number in places}
    unnamed = [(None, number) for number in range(len(listed)) if number not in named]
    citations: list[Citation] = []
    names: dict[str, str] = {}
    for marker, number in [*places, *unnamed]:
        at, ref, native = listed[number]
        source_id = names.setdefault(ref.source_id, f"s{len(names) + 1}")
        citations.append(
            Citation(
                f"c{len(citations) + 1}",
                (ref if ref.source_id == source_id else replace(ref, source_id=source_id),),
                at + 1,
                marker=marker,
                span_origin="exact" if marker else "unknown",
                native=native,
            )
        )
    by_id = {source.id: source for source in sources}
    return tuple(citations), tuple(replace(by_id[old], id=new) for old, new in names.items())


def origin_of(citation: Citation) -> SpanOrigin:
    """Return the span origin that a reader will report."""
    return "exact" if citation.marker else "unknown"


def fit_to_list(
    fitting: Adaptation,
    content: Callable[[Citation], Any],
    kept: Iterable[tuple[int, Any]] | None,
    label: str,
    find: MarkerFinder = find_number_markers,
) -> list[tuple[int | None, int]]:
    """Order the citations by marker and number their entries. Returns the entries to write, in order, each as
    its old index and the index of one of its citations.

    Citations share an entry if number and `content` are equal. `kept` holds the unreadable entries that stay
    in the list; `label` is the marker format. An entry keeps its index while all entries before it do.
    """
    if (entries := _as_read(fitting, content)) is not None:
        return entries
    stays = [at for at, _ in kept or ()]
    return retry_until_readable(
        fitting, lambda trial, barred: _mark(trial, content, stays, label, find, barred)
    )


def snapshot_list(text: str, citations: tuple[Citation, ...]) -> Any:
    """Return the snapshot for `Native.was`, which shows later whether the list has changed."""
    return text, [(c.native and c.native.at, c.ordinal, c.marker, c.insert_at, c.claim) for c in citations]


def _as_read(fitting: Adaptation, content: Callable[[Citation], Any]) -> list[tuple[int | None, int]] | None:
    """Return the entries if text, list and markers are all unchanged since reading, else None."""
    answer, dialect = fitting.answer, fitting.dialect
    native = native_for(answer.native, dialect)
    if native is None or any(native_for(citation.native, dialect) is None for citation in answer.citations):
        return None
    if native.was != snapshot_list(answer.text, answer.citations):
        return None
    contents: dict[int, Any] = {}
    entries: dict[int, int] = {}
    for number, citation in enumerate(answer.citations):
        place, said = _place(citation, dialect) or 0, content(citation)
        if contents.setdefault(place, said) != said:
            return None
        entries[place] = number
    return sorted(entries.items())


def _mark(
    fitting: Adaptation,
    content: Callable[[Citation], Any],
    stays: list[int],
    label: str,
    find: MarkerFinder,
    barred: set[str],
) -> tuple[list[tuple[int | None, int]], set[str]]:
    """Assign entries and markers; `barred` citations get an entry but no marker. Returns the entries, and the
    citations whose markers would be misread."""
    fitting.remove_markers(lambda citation, _: citation.id not in barred)
    homes, firsts = _entries(fitting, content, barred)
    places = [_place(first, fitting.dialect) for first in firsts]
    by_number = _in_order([_wanted_number(*pair) for pair in zip(firsts, places, strict=True)], stays)
    order = interleave([(at, None) for at in stays], [(places[entry], entry) for entry in by_number])
    numbers = {entry: number for number, entry in enumerate(order, 1) if entry is not None}
    fitting.map_citations(lambda citation: _numbered(citation, numbers[homes[citation.id]], fitting))
    labels = {str(number): entry for entry, number in numbers.items()}
    silent = {homes[name] for name in barred if name in homes}

    def seen(text: str) -> MarkerTargets:
        return find(text, labels) if labels else {}

    def write_label(entry: int) -> str | None:
        return None if entry in silent else label.format(numbers[entry])

    found = _unbracket_others(fitting, place_markers(fitting, homes, seen, write_label))
    _follow_the_text(fitting)
    report_misread_markers(fitting, homes, found)
    last = {homes[citation.id]: number for number, citation in enumerate(fitting.answer.citations)}
    misread = {
        c.id for c in fitting.answer.citations if c.marker and not _is_found(c.marker, homes[c.id], found)
    }
    return [(places[entry], last[entry]) for entry in by_number], misread


def _unbracket_others(fitting: Adaptation, found: MarkerTargets) -> MarkerTargets:
    """Replace brackets of the text that would read as markers, which would invent citations. Parentheses are
    not markers and keep all offsets."""
    own = {(c.marker.start, c.marker.end) for c in fitting.answer.citations if c.marker}
    others = [place for place in found if place not in own]
    if not others:
        return found
    fitting.record_loss("text", "brackets that would read as markers become parentheses")
    (part,) = fitting.answer.parts
    text = list(part.text)
    for start, end in others:
        # After a bracket, parentheses would turn both into a link.
        text[start], text[end - 1] = "{}" if text[start - 1 : start] == ["]"] else "()"
    fitting.answer = replace(fitting.answer, parts=(replace(part, text="".join(text)),))
    return {place: entries for place, entries in found.items() if place in own}


def _is_found(marker: Span, home: int, found: MarkerTargets) -> bool:
    return home in found.get((marker.start, marker.end), ())


def _place(citation: Citation, dialect: str) -> int | None:
    native = native_for(citation.native, dialect)
    return native.at if native else None


def _in_order(wanted: list[float], stays: list[int]) -> list[int]:
    """Order the entries by wanted number; entries without one fill the gaps."""
    waiting = sorted(range(len(wanted)), key=lambda entry: wanted[entry])
    free = deque(entry for entry in waiting if wanted[entry] == inf)
    numbered = deque(entry for entry in waiting if wanted[entry] != inf)
    taken = {at + 1 for at in stays}
    order: list[int] = []
    for number in count(1):
        if not numbered and not free:
            return order
        if number not in taken:
            is_due = not free or (numbered and wanted[numbered[0]] <= number)
            order.append(numbered.popleft() if is_due else free.popleft())
    return order


def _wanted_number(citation: Citation, place: int | None) -> float:
    """Return the number an entry should get: its old one, else the one printed for it."""
    if place is not None:
        return place + 1
    return inf if citation.ordinal is None else citation.ordinal


def _entries(
    fitting: Adaptation, content: Callable[[Citation], Any], barred: set[str]
) -> tuple[dict[str, int], list[Citation]]:
    """Return the entry of each citation, and the first citation of each entry.

    Citations that their markers distinguish share an entry; a citation without a marker gets its own.
    """
    homes: dict[str, int] = {}
    firsts: list[Citation] = []
    shared: dict[Any, int] = {}
    seen: set[tuple[int, Span]] = set()
    for citation in fitting.answer.citations:
        place = _place(citation, fitting.dialect)
        is_placed = citation.id not in barred and (citation.marker or find_marker_point(citation))
        identity = (content(citation), _wanted_number(citation, place)) if is_placed else None
        home = shared.get(identity) if identity else None
        if home is None or (citation.marker and (home, citation.marker) in seen):
            home = len(firsts)
            firsts.append(citation)
            if identity:
                shared[identity] = home
        if citation.marker:
            seen.add((home, citation.marker))
        homes[citation.id] = home
    return homes, firsts


def _numbered(citation: Citation, number: int, fitting: Adaptation) -> Citation:
    if citation.ordinal == number:
        return citation
    fitting.record_loss("ordinal", f"will read as {number}", citation=citation.id)
    return replace(citation, ordinal=number)


def _follow_the_text(fitting: Adaptation) -> None:
    """Order the citations as a reader will find them."""

    def place(citation: Citation) -> tuple[bool, int, int]:
        marker = citation.marker
        return marker is None, marker.start if marker else 0, citation.ordinal or 0

    ordered = tuple(sorted(fitting.answer.citations, key=place))
    if [citation.id for citation in ordered] != [citation.id for citation in fitting.answer.citations]:
        fitting.record_loss("order", "citations follow the text")
    fitting.answer = replace(fitting.answer, citations=ordered)
