"""Numbered records: `[1]` in the text means the record with number 1."""

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

# The largest number that a marker can have.
_LARGEST = 999_999


class NumberedEntry(NamedTuple):
    """A record that was read."""

    number: int
    ref: SourceRef
    native: Native


def cite_numbers(text: str, records: list[NumberedEntry]) -> Iterator[Citation]:
    """Yield a citation for each marker of each record, and one for each record without a marker."""
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
    """Return the span origin that a reader will report."""
    return "exact" if citation.marker else "unknown"


def _labels(numbers: Iterable[int]) -> MarkerLabels:
    """Map numbers to records; the first record with a number counts."""
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
    """Number the citations' records and write their markers into the text. Returns the numbers in order, each
    with how many citations of `fitting` share it.

    Citations with equal `content` share a record. `number` returns a record's original number, which it keeps
    if the citation still has it. Others get the citation's number unless it is `taken`, else a free one.
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
    """Return the result of `number_records` if all numbers and markers can stay, else None."""
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
    """Return the numbers in the text that look like markers but belong to no citation."""
    loose = (marker for marker in find_unowned_markers(fitting.answer) if marker.kind != "footnote")
    return {int(label) for marker in loose for label in marker.labels if label.isdecimal()}


def _mark(
    fitting: Adaptation,
    content: Callable[[Citation], Any],
    keeps: Callable[[Citation], bool],
    taken: set[int],
    barred: set[str],
) -> list[tuple[int, list[str]]]:
    """Assign numbers and markers; `barred` citations get their own number and no marker. Returns the number
    of each record, and the old ids of its citations."""

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
    """Return the citations of records whose markers a reader would not find."""
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
    """Map citation ids to those that a reader will assign."""
    names = UniqueIds()
    given: dict[str, str] = {}
    for record in records:
        first = names.assign(f"c{record.ordinal}")
        for again, citation in enumerate(record.citations):
            given[citation.id] = names.assign(first) if again else first
    return given
