"""What the shapes share that list what they cite, and whose markers count that list from one."""

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
    """An entry of the list as it was read, and its place there."""

    at: int
    ref: SourceRef
    native: Native


MarkerFinder = Callable[[str, Mapping[str, int]], MarkerTargets]
"""The markers of a text, given what the numbers in them mean."""


def find_number_markers(text: str, labels: Mapping[str, int]) -> MarkerTargets:
    """Markers of plain numbers, `[1]`."""
    return find_marker_targets(text, MarkerLabels({}, labels))


def cite_list(
    text: str,
    listed: list[ListedReference],
    sources: Iterable[Source],
    find: MarkerFinder = find_number_markers,
) -> tuple[tuple[Citation, ...], tuple[Source, ...]]:
    """A citation for each marker, in the order of the text, then one for each entry that none names; and
    the sources in the order of their first use."""
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
    """What a reader makes of a place."""
    return "exact" if citation.marker else "unknown"


def fit_to_list(
    fitting: Adaptation,
    content: Callable[[Citation], Any],
    kept: Iterable[tuple[int, Any]] | None,
    label: str,
    find: MarkerFinder = find_number_markers,
) -> list[tuple[int | None, int]]:
    """The citations in the order of their markers, each with the number of its entry: the entries to be
    written, in order, as the place each came from and the place of a citation of it.

    `content` is what else than the same number makes two citations of the same entry, `kept` what stays
    in the list besides, and `label` how a marker is written. An entry keeps its place while those before
    it do.
    """
    if (entries := _as_read(fitting, content)) is not None:
        return entries
    stays = [at for at, _ in kept or ()]
    return retry_until_readable(
        fitting, lambda trial, barred: _mark(trial, content, stays, label, find, barred)
    )


def snapshot_list(text: str, citations: tuple[Citation, ...]) -> Any:
    """What an answer is to keep as `Native.was`: by this it is known whether its list has changed."""
    return text, [(c.native and c.native.at, c.ordinal, c.marker, c.insert_at, c.claim) for c in citations]


def _as_read(fitting: Adaptation, content: Callable[[Citation], Any]) -> list[tuple[int | None, int]] | None:
    """The entries of an answer whose text, list and markers are all as they were read, else None."""
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
    """Entries and markers for all but the `barred` citations, which get an entry and no marker: the entries,
    and which citations have markers that would be misread."""
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
    """Brackets of the text itself must not read as markers: no citation is made up. Parentheses do not,
    and move nothing."""
    own = {(c.marker.start, c.marker.end) for c in fitting.answer.citations if c.marker}
    others = [place for place in found if place not in own]
    if not others:
        return found
    fitting.record_loss("text", "brackets that would read as markers become parentheses")
    (part,) = fitting.answer.parts
    text = list(part.text)
    for start, end in others:
        # Behind a bracket, parentheses would make a link of both.
        text[start], text[end - 1] = "{}" if text[start - 1 : start] == ["]"] else "()"
    fitting.answer = replace(fitting.answer, parts=(replace(part, text="".join(text)),))
    return {place: entries for place, entries in found.items() if place in own}


def _is_found(marker: Span, home: int, found: MarkerTargets) -> bool:
    return home in found.get((marker.start, marker.end), ())


def _place(citation: Citation, dialect: str) -> int | None:
    native = native_for(citation.native, dialect)
    return native.at if native else None


def _in_order(wanted: list[float], stays: list[int]) -> list[int]:
    """The entries by the numbers they are to have; those that are to have none fill the gaps."""
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
    """The number that an entry is to have: that of its old place, else the one printed for it."""
    if place is not None:
        return place + 1
    return inf if citation.ordinal is None else citation.ordinal


def _entries(
    fitting: Adaptation, content: Callable[[Citation], Any], barred: set[str]
) -> tuple[dict[str, int], list[Citation]]:
    """Which entry each citation is of, and the first citation of each.

    Citations that a marker can tell apart share an entry; one that gets none is an entry of its own.
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
    """The citations in the order in which a reader will find them."""

    def place(citation: Citation) -> tuple[bool, int, int]:
        marker = citation.marker
        return marker is None, marker.start if marker else 0, citation.ordinal or 0

    ordered = tuple(sorted(fitting.answer.citations, key=place))
    if [citation.id for citation in ordered] != [citation.id for citation in fitting.answer.citations]:
        fitting.record_loss("order", "citations follow the text")
    fitting.answer = replace(fitting.answer, citations=ordered)
