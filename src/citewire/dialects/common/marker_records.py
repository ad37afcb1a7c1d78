"""Shared code for formats whose citations are records that markers in the text point to."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from operator import is_not
from typing import Any, NamedTuple, TypeVar

from msgspec.structs import replace

from citewire.adapt import Adaptation
from citewire.markers import Marker, find_markers
from citewire.model import Answer, Citation, Span

__all__ = [
    "MarkedRecord",
    "MarkerLabels",
    "MarkerTargets",
    "UniqueIds",
    "assign_records",
    "find_marker_targets",
    "find_record_markers",
    "find_unowned_markers",
    "order_by_record",
    "place_markers",
    "rename_records",
    "report_misread_markers",
    "retry_until_readable",
    "write_markers",
]


T = TypeVar("T")


class MarkerLabels(NamedTuple):
    """The record that each marker label means: footnotes by label, all other markers by number."""

    footnotes: Mapping[str, int]
    numbers: Mapping[str, int]


_KINDS = frozenset({"footnote", "number", "cite", "link"})


def find_marker_targets(text: str, labels: MarkerLabels) -> MarkerTargets:
    """Find the markers of `text` that point to records; returns those records by marker position."""
    found: dict[tuple[int, int], set[int]] = {}
    for start, end, kind, names in find_markers(text, labels.numbers):
        if kind in _KINDS:
            table = labels.footnotes if kind == "footnote" else labels.numbers
            records = {table[name] for name in names if name in table}
            if records:
                found[start, end] = records
    return found


def find_unowned_markers(answer: Answer) -> Iterator[Marker]:
    """Find the text that looks like a marker but belongs to no citation. No record may have such a label, or
    readers would find a citation that does not exist."""
    text = answer.text
    own = {(c.marker.start, c.marker.end) for c in answer.citations if c.marker}
    return (marker for marker in find_markers(text) if marker[:2] not in own) if "[" in text else iter(())


def find_record_markers(text: str, labels: MarkerLabels) -> dict[int, list[Span]]:
    """Return the markers of each record, in text order."""
    return _by_record(find_marker_targets(text, labels))


def _by_record(found: MarkerTargets) -> dict[int, list[Span]]:
    by_record: dict[int, list[Span]] = defaultdict(list)
    for (start, end), records in found.items():
        span = Span(0, start, end)
        for record in records:
            by_record[record].append(span)
    return by_record


class UniqueIds:
    """Unique citation ids: the record's own id first, then `id.2`, `id.3` for each repetition."""

    def __init__(self) -> None:
        self._next: dict[str, int] = {}

    def assign(self, name: str) -> str:
        given = name
        while given in self._next:
            self._next[name] += 1
            given = f"{name}.{self._next[name]}"
        self._next[given] = 1
        return given

    def preview(self, name: str) -> str:
        """Return the id that `assign` would return, without assigning it."""
        given, number = name, self._next.get(name, 0)
        while given in self._next:
            number += 1
            given = f"{name}.{number}"
        return given


class MarkedRecord(NamedTuple):
    """A record to be written, and the citations that share it."""

    id: str
    ordinal: int | None
    citations: list[Citation]


def assign_records(citations: Iterable[Citation], content: Callable[[Citation], Any]) -> list[MarkedRecord]:
    """Group citations into records; citations that differ only in their markers share one."""
    records: list[MarkedRecord] = []
    shared: dict[Any, MarkedRecord] = {}
    for citation in citations:
        identity = (citation.ordinal, content(citation)) if citation.marker else None
        record = shared.get(identity) if identity else None
        if record is None:
            record = MarkedRecord(citation.id, citation.ordinal, [])
            records.append(record)
            if identity:
                shared[identity] = record
        record.citations.append(citation)
    return records


def rename_records(
    records: list[MarkedRecord], names: Mapping[str, str], fitting: Adaptation
) -> list[MarkedRecord]:
    """Rename the citations of all records; each record takes the id of its first citation."""
    if all(old == new for old, new in names.items()):
        return records
    fitting.rename_citations([names[citation.id] for citation in fitting.answer.citations])
    renamed = [
        [replace(citation, id=names[citation.id]) for citation in record.citations] for record in records
    ]
    return [
        MarkedRecord(citations[0].id, record.ordinal, citations)
        for record, citations in zip(records, renamed, strict=True)
    ]


def order_by_record(records: list[MarkedRecord], fitting: Adaptation) -> None:
    """Order the citations by record, as a reader will find them."""
    grouped = [citation for record in records for citation in record.citations]
    if [citation.id for citation in fitting.answer.citations] != [citation.id for citation in grouped]:
        fitting.record_loss("order", "citations are grouped by what they cite")
    fitting.answer = replace(fitting.answer, citations=tuple(grouped))


def write_markers(
    fitting: Adaptation,
    records: list[MarkedRecord],
    labels: MarkerLabels,
    label: Callable[[int], str | None],
    *,
    padded: bool = False,
) -> None:
    """Give every citation with a position a marker that points to its record and to nothing else.

    `label` returns the marker of a record, or None if it must not get new ones; `padded` puts a space before
    each new marker.
    """
    homes = {citation.id: number for number, record in enumerate(records) for citation in record.citations}
    found = place_markers(
        fitting, homes, lambda text: find_marker_targets(text, labels), label, padded=padded
    )
    _follow_the_text(fitting, [len(record.citations) for record in records])
    report_misread_markers(fitting, homes, found)


MarkerTargets = dict[tuple[int, int], set[int]]
"""Markers by their place, and the records that each points to."""


def place_markers(
    fitting: Adaptation,
    homes: Mapping[str, int],
    find: Callable[[str], MarkerTargets],
    label: Callable[[int], str | None],
    *,
    padded: bool = False,
) -> MarkerTargets:
    """Like `write_markers`, by the record of each citation (`homes`); returns what a reader will find."""
    sharing: dict[Span, set[int]] = defaultdict(set)
    for citation in fitting.answer.citations:
        if citation.marker:
            sharing[citation.marker].add(homes[citation.id])
    text = fitting.answer.text
    found = find(text)

    def stays(citation: Citation, _: str) -> bool:
        marker = citation.marker
        return marker is not None and found.get((marker.start, marker.end)) == sharing[marker]

    fitting.remove_markers(stays)
    fitting.insert_markers(lambda citation: label(homes[citation.id]), padded=padded)
    return found if fitting.answer.text == text else find(fitting.answer.text)


# After this many attempts without the misread markers, no markers are written at all.
_TRIES = 3


def retry_until_readable(
    fitting: Adaptation, mark: Callable[[Adaptation, set[str]], tuple[T, set[str]]]
) -> T:
    """Call `mark` until a reader will find every marker it writes, and return its result.

    `mark` receives the citations that must have no marker and returns those whose marker would be misread.
    """
    barred: set[str] = set()
    everything = {citation.id for citation in fitting.answer.citations}
    tries = 0
    while True:
        trial = fitting.fork()
        result, misread = mark(trial, barred)
        if not misread or barred == everything:
            fitting.adopt(trial)
            return result
        tries += 1
        barred = barred | misread if tries < _TRIES else everything


def _follow_the_text(fitting: Adaptation, sizes: list[int]) -> None:
    """Order the citations of each record by marker, as a reader will find them."""
    ordered: list[Citation] = []
    at = 0
    for size in sizes:
        group = fitting.answer.citations[at : at + size]
        ordered += sorted(group, key=_marker_start) if size > 1 else group
        at += size
    if not any(map(is_not, ordered, fitting.answer.citations)):
        return
    fitting.record_loss("order", "the markers of one record follow the text")
    names = [citation.id for citation in fitting.answer.citations]
    fitting.answer = replace(fitting.answer, citations=tuple(ordered))
    fitting.rename_citations(names)


def _marker_start(citation: Citation) -> int:
    return citation.marker.start if citation.marker else -1


def report_misread_markers(fitting: Adaptation, homes: Mapping[str, int], found: MarkerTargets) -> None:
    """Report misread markers: brackets in the text can look like markers, and markers can be in code."""
    read = _by_record(found)
    wanted: dict[int, list[Span]] = defaultdict(list)
    firsts: dict[int, str] = {}
    for citation in fitting.answer.citations:
        firsts.setdefault(homes[citation.id], citation.id)
        if citation.marker:
            wanted[homes[citation.id]].append(citation.marker)
    for record, name in firsts.items():
        spans, seen = wanted.get(record, []), read.get(record, [])
        if spans != seen:
            fitting.record_loss("marker", "the text around it reads otherwise", citation=name)
            fitting.record_loss("text", "some of it reads as a marker, or a marker as text")
