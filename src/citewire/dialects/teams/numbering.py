"""What the shapes share whose records are numbered, `[1]` in the text being the first."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import count
from typing import Any, NamedTuple

from msgspec.structs import replace

from citewire.adapt import Adaptation
from citewire.dialects.common.marker_records import (
    MarkedRecord,
    MarkerLabels,
    UniqueIds,
    assign_records,
    find_record_markers,
    find_unowned_markers,
    order_by_record,
    rename_records,
    retry_until_readable,
    write_markers,
)
from citewire.model import Answer, Citation, Native, SourceRef, SpanOrigin

__all__ = ["NumberedEntry", "cite_numbers", "number_records", "origin_of"]

# A marker has room for no more.
_LARGEST = 999_999


class NumberedEntry(NamedTuple):
    """A record as it was read."""

    number: int
    ref: SourceRef
    native: Native


def cite_numbers(text: str, records: list[NumberedEntry]) -> Iterator[Citation]:
    """A citation for each marker of each record, and one for a record that no marker names."""
    names = UniqueIds()
    markers = find_record_markers(text, _labels(record.number for record in records)) if records else {}
    for at, (number, ref, native) in enumerate(records):
        first = names.assign(f"c{number}")
        for again, marker in enumerate(markers.get(at) or [None]):
            yield Citation(
                names.assign(first) if again else first,
                (ref,),
                number,
                marker=marker,
                span_origin="exact" if marker else "unknown",
                native=native,
            )


def origin_of(citation: Citation) -> SpanOrigin:
    """What a reader makes of a place."""
    return "exact" if citation.marker else "unknown"


def _labels(numbers: Iterable[int]) -> MarkerLabels:
    """The first record of a number is the one that a marker means."""
    table: dict[str, int] = {}
    for at, number in enumerate(numbers):
        table.setdefault(str(number), at)
    return MarkerLabels({}, table)


def number_records(
    fitting: Adaptation,
    content: Callable[[Citation], Any],
    number: Callable[[Citation], int | None],
    taken: Iterable[int] = (),
) -> list[tuple[int, int]]:
    """Records for the citations, numbered, and markers for them in the text: the numbers, in order, each
    with how many citations of `fitting` share it.

    `content` is what makes two citations the same record, `number` the number that a record came with,
    which it keeps while it is the citation's own. Others get theirs unless it is `taken`, else a free one.
    """
    if (as_it_is := _unchanged_numbers(fitting, content, number)) is not None:
        return as_it_is
    loose = _loose_numbers(fitting)
    used = {*taken, *loose}

    def keeps(citation: Citation) -> bool:
        wanted = citation.ordinal
        return wanted is not None and wanted not in loose and wanted == number(citation)

    def mark(trial: Adaptation, barred: set[str]) -> tuple[list[tuple[int, int]], set[str]]:
        marked = _mark(trial, content, keeps, used, barred)
        sizes = [(given, len(ids)) for given, ids in marked]
        return sizes, _misread(trial.answer, marked)

    return retry_until_readable(fitting, mark)


def _unchanged_numbers(
    fitting: Adaptation, content: Callable[[Citation], Any], number: Callable[[Citation], int | None]
) -> list[tuple[int, int]] | None:
    """As `number_records`, where all numbers and markers can stay: nothing is to be written into the text."""
    citations = fitting.answer.citations
    if any(not c.marker and (c.claim or c.insert_at) for c in citations):
        return None
    if any(c.ordinal is None or c.ordinal != number(c) for c in citations):
        return None
    records = assign_records(citations, content)
    found = (
        find_record_markers(fitting.answer.text, _labels(record.ordinal or 0 for record in records))
        if records
        else {}
    )
    for at, record in enumerate(records):
        if [citation.marker for citation in record.citations if citation.marker] != found.get(at, []):
            return None
    order_by_record(rename_records(records, _names(records), fitting), fitting)
    return [(record.ordinal or 0, len(record.citations)) for record in records]


def _loose_numbers(fitting: Adaptation) -> set[int]:
    """Numbers that stand in the text as if they were markers, and are none of a citation's."""
    loose = (marker for marker in find_unowned_markers(fitting.answer) if marker.kind != "footnote")
    return {int(label) for marker in loose for label in marker.labels if label.isdecimal()}


def _mark(
    fitting: Adaptation,
    content: Callable[[Citation], Any],
    keeps: Callable[[Citation], bool],
    taken: set[int],
    barred: set[str],
) -> list[tuple[int, list[str]]]:
    """Numbers and markers for all but the `barred` citations, which get a number of their own: the number
    of each record, and what its citations were called."""

    def same(citation: Citation) -> Any:
        return citation.id if citation.id in barred else content(citation)

    fitting.remove_markers(lambda citation, _: citation.id not in barred)
    records = assign_records(fitting.answer.citations, same)
    kept = [record.ordinal or 0 for record in records if keeps(record.citations[0])]
    given = taken.union(kept)
    free = (name for name in count(1) if name not in given)
    ids = [[citation.id for citation in record.citations] for record in records]
    records = [_numbered(record, keeps, given, free, fitting) for record in records]
    records = rename_records(records, _names(records), fitting)
    order_by_record(records, fitting)
    numbers = [record.ordinal or 0 for record in records]

    def label(at: int) -> str | None:
        return None if ids[at][0] in barred else f"[{numbers[at]}]"

    write_markers(fitting, records, _labels(numbers), label, padded=True)
    return list(zip(numbers, ids, strict=True))


def _misread(answer: Answer, marked: list[tuple[int, list[str]]]) -> set[str]:
    """Citations of records whose markers a reader would not find as they are."""
    found = find_record_markers(answer.text, _labels(number for number, _ in marked)) if marked else {}
    misread: set[str] = set()
    at = 0
    for place, (_, ids) in enumerate(marked):
        citations = answer.citations[at : at + len(ids)]
        at += len(ids)
        if [citation.marker for citation in citations if citation.marker] != found.get(place, []):
            misread.update(ids)
    return misread


def _numbered(
    record: MarkedRecord,
    keeps: Callable[[Citation], bool],
    given: set[int],
    free: Iterator[int],
    fitting: Adaptation,
) -> MarkedRecord:
    wanted = record.ordinal
    if keeps(record.citations[0]):
        return record
    if wanted is None or wanted in given or not 0 < wanted <= _LARGEST:
        wanted = next(free)
        for citation in record.citations:
            fitting.record_loss("ordinal", f"will read as {wanted}", citation=citation.id)
    given.add(wanted)
    return MarkedRecord(
        record.id, wanted, [replace(citation, ordinal=wanted) for citation in record.citations]
    )


def _names(records: list[MarkedRecord]) -> dict[str, str]:
    """What a reader will call the citations, by what they are called."""
    names = UniqueIds()
    given: dict[str, str] = {}
    for record in records:
        first = names.assign(f"c{record.ordinal}")
        for again, citation in enumerate(record.citations):
            given[citation.id] = names.assign(first) if again else first
    return given
