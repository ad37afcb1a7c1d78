"""Shared code of the two Salesforce formats: one entry per source, which lists the uses of the source."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from citewire.adapt import Adaptation, SupportedFields
from citewire.dialects.base import Json, ProblemList, SourceRegistry, interleave, native_for
from citewire.errors import InputError
from citewire.model import Answer, Citation, Native, Point, Source, SourceKind, SourceRef, Span, SpanOrigin

__all__ = [
    "EntryReader",
    "OriginalEntry",
    "SourceUse",
    "finish_entries",
    "fit_to_entries",
    "original_entry",
    "write_entries",
]


class SourceUse(NamedTuple):
    """A position at which a source is used."""

    claim: Span | None
    point: Point
    origin: SpanOrigin


class OriginalEntry(NamedTuple):
    """An original entry, and the use in it that a citation was read from."""

    entry: Json
    use: Json | None = None


class EntryReader:
    """Reads entries one by one. `source` registers an entry's source, `uses` lists its uses (None if it has
    none that we understand), and `place` reads one use. All three may raise `ShapeError`."""

    def __init__(
        self,
        dialect: str,
        source: Callable[[Any, SourceRegistry], str],
        uses: Callable[[Json], list[Any] | None],
        uses_at: str,
        place: Callable[[Any], SourceUse],
    ) -> None:
        self.sources = SourceRegistry()
        self.problems = ProblemList()
        self.citations: list[Citation] = []
        self.kept: list[tuple[int, Any]] = []
        self._dialect = dialect
        self._source = source
        self._uses = uses
        self._uses_at = uses_at
        self._place = place

    def read(self, number: int, entry: Any, where: str) -> None:
        """Read the uses of entry `number` as citations; unreadable ones are preserved."""
        known = len(self.sources)
        try:
            source_id = self._source(entry, self.sources)
        except InputError as exc:
            self.problems.add(where, exc)
            self.kept.append((number, entry))
            return
        ref = (SourceRef(source_id),)
        uses = self.problems.try_read(lambda: where, self._uses, entry)
        if not uses:
            name = f"c{len(self.citations) + 1}"
            self.citations.append(
                Citation(name, ref, native=Native(self._dialect, OriginalEntry(entry), (number, 0)))
            )
            return
        found: list[SourceUse | None] = []
        for at, use in enumerate(uses):
            try:
                found.append(self._place(use))
            except InputError as exc:
                found.append(None)
                self.problems.add(f"{where}{self._uses_at}[{at}]", exc)
        kept = tuple((at, uses[at]) for at, use in enumerate(found) if use is None)
        if len(kept) == len(uses):
            self.kept.append((number, entry))
            if len(self.sources) > known:
                self.sources.truncate(known)
        for at, use in enumerate(found):
            if use is not None:
                was = (use.claim, use.point) if use.origin == "repaired" else None
                native = Native(self._dialect, OriginalEntry(entry, uses[at]), (number, at), kept, was)
                self.citations.append(
                    Citation(
                        f"c{len(self.citations) + 1}",
                        ref,
                        claim=use.claim,
                        insert_at=use.point,
                        span_origin=use.origin,
                        native=native,
                    )
                )


def _kind_of(source: Source) -> SourceKind:
    """Return the kind that a reader infers: a record if the source has a record id."""
    return "web" if source.record_id is None else "record"


def _origin_of(dialect: str, *, same_text: bool) -> Callable[[Citation], SpanOrigin]:
    """Return a function for the new span origin: a repaired span that has not moved is repaired again."""

    def origin(citation: Citation) -> SpanOrigin:
        native = native_for(citation.native, dialect) if same_text else None
        place = (citation.claim, citation.insert_at)
        if native is not None and citation.span_origin == "repaired" and native.was == place:
            return "repaired"
        return "exact" if citation.insert_at else "unknown"

    return origin


def _need_url(fitting: Adaptation, may_do_without: Callable[[Citation], bool]) -> None:
    """Drop sources without a URL."""

    def why(citation: Citation, source: Source) -> str | None:
        if source.url is not None or may_do_without(citation):
            return None
        return f"Salesforce needs a URL, and {source.label} has none"

    fitting.drop_sources(why)


def fit_to_entries(
    answer: Answer,
    dialect: str,
    fit_place: Callable[[Citation, Adaptation], Citation],
    may_do_without_url: Callable[[Citation], bool] = lambda citation: False,
) -> Adaptation:
    """Adapt an answer to one text without markers, in which every citation has one source, with a URL."""
    fitting = Adaptation(answer, dialect)
    fitting.require_text()
    fitting.join_parts()
    fitting.require_refs()
    _need_url(fitting, may_do_without_url)
    fitting.split_refs()
    fitting.turn_markers_into_claims()
    fitting.map_citations(lambda citation: fit_place(citation, fitting))
    return fitting


def finish_entries(fitting: Adaptation, room: SupportedFields, *, same_text: bool) -> Answer:
    """Finish the answer as a reader of the entries will see it."""
    return fitting.finish(
        room,
        kind=_kind_of,
        origin=_origin_of(fitting.dialect, same_text=same_text),
        group=lambda answer: _by_entry(answer, fitting.dialect),
        why="citations are grouped by source",
    )


def write_entries(
    groups: list[tuple[Citation, ...]],
    answer: Answer,
    dialect: str,
    *,
    same_text: bool,
    entry: Callable[[Json, Source, list[Any] | None], Json],
    use: Callable[[Citation, Json], Json],
) -> list[Any]:
    """Write an entry for each group of citations. `entry` updates an original entry, given its uses (None for
    a citation without a position); `use` writes one use. A repaired position that has not moved in the
    `same_text` is written unchanged."""
    sources = {source.id: source for source in answer.sources}
    written: list[tuple[int | None, Any]] = []
    for group in groups:
        native = native_for(group[0].native, dialect)
        uses = None
        if group[0].insert_at:
            uses = interleave(
                native.kept if native else None,
                [_written_use(citation, dialect, use, same_text) for citation in group],
            )
        source = sources[group[0].refs[0].source_id]
        raw = original_entry(group[0], dialect) or {}
        written.append((native.at[0] if native else None, entry(raw, source, uses)))
    whole = native_for(answer.native, dialect)
    return interleave(whole.kept if whole else None, written)


def original_entry(citation: Citation, dialect: str) -> Json | None:
    """Return the entry that a citation was read from."""
    native = native_for(citation.native, dialect)
    if native is None:
        return None
    kept: OriginalEntry = native.raw
    return kept.entry


def _written_use(
    citation: Citation, dialect: str, use: Callable[[Citation, Json], Json], same_text: bool
) -> tuple[int | None, Json]:
    native = native_for(citation.native, dialect)
    if native is None:
        return None, use(citation, {})
    kept: OriginalEntry = native.raw
    raw = kept.use or {}
    same = (
        same_text
        and citation.span_origin == "repaired"
        and native.was == (citation.claim, citation.insert_at)
    )
    return native.at[1], raw if same else use(citation, raw)


def _by_entry(answer: Answer, dialect: str) -> list[list[Citation]]:
    """Group citations that share an entry: same source, and with a position in the text."""
    homes: dict[str, int] = {}
    for citation in answer.citations:
        if native := native_for(citation.native, dialect):
            homes.setdefault(citation.refs[0].source_id, native.at[0])
    groups: dict[Any, list[Citation]] = {}
    for number, citation in enumerate(answer.citations):
        source_id = citation.refs[0].source_id
        native = native_for(citation.native, dialect)
        home = native.at[0] if native else homes.get(source_id)
        alone = None if citation.insert_at else number
        groups.setdefault((source_id, home, alone), []).append(citation)
    return list(groups.values())
