"""Assigns numbers and markers, so that a reader finds every citation that has a position."""

from __future__ import annotations

from collections import Counter, defaultdict
from itertools import count
from typing import Any, NamedTuple, cast

from msgspec.structs import replace

from citewire.adapt import Adaptation
from citewire.dialects.base import native_for
from citewire.dialects.deepcitation.adaptation import find_block_spans, remove_blocks
from citewire.dialects.deepcitation.entry import NAME, EntryFields, extras_of
from citewire.dialects.deepcitation.reader import MAX_SHARED_ENTRIES, PrintedNumbers, find_printed_numbers
from citewire.model import Citation, Native, Point, Source, Span

_LARGEST_MARKER = 999_999
# Attempts to write markers that a reader will find, before markers are omitted.
_ROUNDS = 3


class NumberedRecord(NamedTuple):
    """The citations, by index in the answer, that share one entry. `fields` is None for a verdict alone.

    `within` means that the entry is nested in its verdict, as in a response.
    """

    places: list[int]
    fields: EntryFields | None
    native: Native | None
    within: bool = False

    @property
    def at(self) -> Any:
        return self.native.at if self.native else None


class _Use(NamedTuple):
    """The number a citation wants and the position of its marker; `fits` if that marker is already there."""

    want: int | None
    spot: Span | Point | None
    fits: bool


_UNUSED = _Use(None, None, fits=False)


class _Plan(NamedTuple):
    numbers: list[int | None]
    groups: list[list[int]]
    leaving: set[Span]
    changes: bool


class MarkerNumbering:
    """Gives every citation with a position a number and a marker, so that a reader finds exactly these.

    A number stays if the text prints it for the same entries and for nothing else. Otherwise the citation
    gets the next free number, in reading order.
    """

    def __init__(self, fitting: Adaptation, strip: bool) -> None:
        self.fitting = fitting
        self.strip = strip
        self.before = fitting.answer
        self.natives = [native_for(citation.native, NAME) for citation in self.before.citations]
        self.fields = [_fields_of(citation, fitting.sources) for citation in self.before.citations]

    def records(self) -> list[NumberedRecord]:
        if self.before.parts:
            plan = self._settle()
            return [self._record(group, plan.numbers[group[0]]) for group in plan.groups]
        return [self._record([n], fields and fields.number) for n, fields in enumerate(self.fields)]

    def _record(self, group: list[int], number: int | None) -> NumberedRecord:
        fields = self.fields[group[0]]
        if fields is not None and fields.number != number:
            fields = fields._replace(number=number)
        if len(group) > 1:
            citations = self.fitting.answer.citations
            group.sort(key=lambda place: cast("Span", citations[place].marker).start)
        return NumberedRecord(group, fields, self.natives[group[0]])

    def _settle(self) -> _Plan:
        """Apply and return the first plan that reads back correctly, else one without numbers and markers."""
        barred: set[int] = set()
        for _ in range(_ROUNDS):
            plan = self._plan(barred)
            if not plan.changes:
                return plan
            misread = self._apply(plan, Adaptation(self.before, NAME))
            if not misread:
                break
            barred |= misread
        else:
            plan = self._plan(set(range(len(self.fields))))
        self._apply(plan, self.fitting)
        remove_blocks(self.fitting, self.strip)
        return plan

    def _plan(self, barred: set[int]) -> _Plan:
        citations = self.before.citations
        known = (fields.number for fields in self.fields if fields and fields.number is not None)
        printed = find_printed_numbers(self.before.parts[0].text, known)
        uses = [_UNUSED if n in barred else self._use(n, printed) for n in range(len(citations))]
        groups = self._groups(uses)
        numbers = _numbers(groups, uses, printed)
        leaving = {
            citation.marker
            for citation, use, number in zip(citations, uses, numbers, strict=True)
            if citation.marker and not (use.fits and use.want == number)
        }
        return _Plan(numbers, groups, leaving, bool(leaving) or any(map(_is_new, citations, numbers)))

    def _use(self, place: int, printed: PrintedNumbers) -> _Use:
        citation, fields = self.before.citations[place], self.fields[place]
        if fields is None:
            return _UNUSED
        marker = citation.marker
        if marker is None:
            return _Use(fields.number, citation.insert_at or citation.claim, fits=False)
        labels = printed.get((marker.start, marker.end), ())
        want = labels[0] if fields.number is None and len(labels) == 1 else fields.number
        return _Use(want, marker, want in labels)

    def _groups(self, uses: list[_Use]) -> list[list[int]]:
        """Group citations that can share an entry: equal fields and number, at different positions."""
        groups: dict[Any, list[int]] = {}
        times: Counter[Any] = Counter()
        for place, use in enumerate(uses):
            if use.spot is None:
                groups[place] = [place]
                continue
            native = self.natives[place]
            same = (self.fields[place], native and native.at, use.want)
            groups.setdefault((same, times[same, use.spot]), []).append(place)
            times[same, use.spot] += 1
        return list(groups.values())

    def _apply(self, plan: _Plan, fitting: Adaptation) -> set[int]:
        """Apply a plan and return the citations that a reader would not find at their position."""
        numbers = iter(plan.numbers)
        fitting.map_citations(lambda citation: _with_number(citation, next(numbers), fitting))
        fitting.remove_markers(lambda citation, _: citation.marker not in plan.leaving)
        fitting.insert_markers(_marker, padded=True)
        text = fitting.answer.parts[0].text
        if self.strip:
            text = text.rstrip()
        if find_block_spans(text):
            return set(range(len(self.fields)))
        return _misread(plan, fitting.answer.citations, text)


def _numbers(groups: list[list[int]], uses: list[_Use], printed: PrintedNumbers) -> list[int | None]:
    """Return the number of each citation: the wanted one if possible, else a free one or none."""
    shown: Counter[int | None] = Counter(label for labels in printed.values() for label in labels)
    numbers = [use.want for use in uses]
    fresh, held = _without_own(groups, uses, shown)
    for place, use in enumerate(uses):
        if use.spot is None and (use.want in held or shown[use.want]):
            numbers[place] = None
    taken = shown.keys() | set(numbers)
    free = (number for number in count(1) if number not in taken)
    for group in sorted(fresh, key=lambda group: _position(uses[group[0]].spot)):
        number = next(free)
        for place in group:
            numbers[place] = number
    return numbers


def _without_own(
    groups: list[list[int]], uses: list[_Use], shown: Counter[int | None]
) -> tuple[list[list[int]], dict[int, list[set[Any]]]]:
    """Return the groups that cannot have their wanted number, and the holders of each number."""
    owned: dict[int | None, set[Any]] = defaultdict(set)
    for use in uses:
        if use.fits:
            owned[use.want].add(use.spot)
    held: dict[int, list[set[Any]]] = {}
    fresh: list[list[int]] = []
    for group in groups:
        want, spot, _ = uses[group[0]]
        if spot is None:
            continue
        spots = {uses[place].spot for place in group if uses[place].fits}
        if want is None or want > _LARGEST_MARKER or shown[want] != len(owned[want]):
            fresh.append(group)
        elif want not in held:
            # A number can be shared only if the text prints it at every use.
            held[want] = [spots if len(spots) == len(group) else set()]
        elif len(spots) == len(group) and held[want][0] == spots and len(held[want]) < MAX_SHARED_ENTRIES:
            held[want].append(spots)
        else:
            fresh.append(group)
    return fresh, held


def _misread(plan: _Plan, citations: tuple[Citation, ...], text: str) -> set[int]:
    found: dict[int, set[tuple[int, int]]] = defaultdict(set)
    for span, labels in find_printed_numbers(
        text, (number for number in plan.numbers if number is not None)
    ).items():
        for label in labels:
            found[label].add(span)
    misread: set[int] = set()
    for group in plan.groups:
        number = plan.numbers[group[0]]
        markers = (citations[place].marker for place in group)
        spans = {(marker.start, marker.end) for marker in markers if marker}
        if number is not None and spans != found.get(number, set()):
            misread.update(group)
    return misread


def _is_new(citation: Citation, number: int | None) -> bool:
    if citation.ordinal != number:
        return True
    return citation.marker is None and number is not None and bool(citation.insert_at or citation.claim)


def _with_number(citation: Citation, number: int | None, fitting: Adaptation) -> Citation:
    if citation.ordinal == number:
        return citation
    reason = "stands for something else in the text" if number is None else f"made up: {number}"
    fitting.record_loss("ordinal", reason, citation=citation.id)
    return replace(citation, ordinal=number)


def _marker(citation: Citation) -> str | None:
    return None if citation.ordinal is None else f"[{citation.ordinal}]"


def _position(spot: Span | Point | None) -> int:
    return spot.end if isinstance(spot, Span) else spot.at if spot else 0


def _fields_of(citation: Citation, sources: dict[str, Source]) -> EntryFields | None:
    if not citation.refs:
        return None
    ref = citation.refs[0]
    source = sources[ref.source_id]
    media = source.metadata.get("type") if source.metadata else None
    return EntryFields(
        citation.ordinal,
        ref.quote,
        ref.anchor,
        ref.locator,
        media or ("document" if source.url is None else "url"),
        source.file_id,
        source.url,
        source.title,
        source.domain,
        extras_of(source.metadata) if source.metadata else (),
    )
