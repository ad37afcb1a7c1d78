"""Adapt an answer to a dialect that supports fewer fields.

A writer runs the steps it needs (`join_parts`, `remove_markers`, …), then `finish` drops what its dialect
does not support. Every step records what will not read back unchanged, so `losses` is complete by
construction: the result of `finish` is what a reader will see.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from copy import copy
from itertools import accumulate
from operator import attrgetter, is_not
from typing import Any

from msgspec.structs import astuple, replace

from citewire.answer_edits import (
    derive_claims,
    find_marker_point,
    insert_markers,
    join_parts,
    remove_markers,
    split_refs,
)
from citewire.errors import ShapeError
from citewire.model import (
    Answer,
    Citation,
    Locator,
    Loss,
    Part,
    Source,
    SourceKind,
    SourceRef,
    SpanOrigin,
)

__all__ = ["Adaptation", "SupportedFields", "to_hashable"]

SupportedFields = frozenset[str]
"""The fields a dialect supports: `claim`, `marker`, `insert_at`, `ordinal`, `verification`, `answer.id`, …

`refs.quote`, `refs.locator.pages`, `source.title` and so on name fields of references and sources.
"""

_CITATION_FIELDS = ("ordinal", "claim", "marker", "insert_at", "verification")
_REF_FIELDS = ("quote", "anchor", "score")
_SOURCE_FIELDS = ("url", "title", "filename", "file_id", "record_id", "index", "domain", "snippet")
_PLACES = ("claim", "marker", "insert_at")


class Adaptation:
    """An answer being adapted to a dialect, with its losses so far."""

    def __init__(self, answer: Answer, dialect: str) -> None:
        self.answer = answer
        self.dialect = dialect
        # By id. A step that changes a source replaces it here.
        self.sources = {source.id: source for source in answer.sources}
        self.losses: list[Loss] = []
        self._named: set[tuple[str, str | None, str | None]] = set()
        # Current id to original id: losses name citations by their original ids.
        self._first_ids: dict[str | None, str] = {}
        self._split: set[str] = set()
        self._sizes: list[int] = []
        # Citations whose point only marks where their marker was. Losing that point is no further loss.
        self._points_of_markers: set[str | None] = set()

    def fork(self) -> Adaptation:
        """Return an independent copy, to try something with."""
        other = Adaptation(self.answer, self.dialect)
        vars(other).update({name: copy(value) for name, value in vars(self).items()})
        return other

    def adopt(self, other: Adaptation) -> None:
        """Take over the state of a fork, which must not be used afterwards."""
        vars(self).update(vars(other))

    def record_loss(
        self, field: str, reason: str, *, citation: str | None = None, source: str | None = None
    ) -> None:
        """Record something that will not read back unchanged. Only the first reason per field counts."""
        citation = self._first_ids.get(citation, citation)
        name = (field, citation, source)
        if name not in self._named and not (field == "insert_at" and citation in self._points_of_markers):
            self._named.add(name)
            self.losses.append(Loss(field, reason, citation, source))

    def map_citations(self, change: Callable[[Citation], Citation | None]) -> None:
        """Replace every citation by `change(citation)`. Citations for which it returns None are dropped."""
        changed = tuple(new for old in self.answer.citations if (new := change(old)) is not None)
        self.answer = replace(self.answer, citations=changed)

    def cited_sources(self) -> list[Source]:
        """Return the sources that citations point to."""
        used = {ref.source_id for citation in self.answer.citations for ref in citation.refs}
        return [source for source in self.sources.values() if source.id in used]

    def require_text(self) -> None:
        """If the text is not known, use an empty one. All places in the text are lost."""
        if not self.answer.parts:
            self.map_citations(self._without_places)
            self.record_loss("parts", "the text is not known: an empty one stands in")
            self.answer = replace(self.answer, parts=(Part(""),))

    def _without_places(self, citation: Citation) -> Citation:
        for field in _PLACES:
            if getattr(citation, field) is not None:
                self.record_loss(field, "the text of the answer is not known", citation=citation.id)
        return replace(citation, claim=None, marker=None, insert_at=None)

    def join_parts(self) -> None:
        """Join several parts into one text."""
        if len(self.answer.parts) != 1:
            if len(self.answer.parts) > 1:
                self.record_loss("parts", f"{len(self.answer.parts)} parts become one text")
            self.answer = join_parts(self.answer)

    def require_refs(self) -> None:
        """Drop citations that point to no source."""
        self.map_citations(self._drop_without_refs)

    def _drop_without_refs(self, citation: Citation) -> Citation | None:
        if citation.refs:
            return citation
        self.record_loss("citation", "points to no source", citation=citation.id)
        return None

    def drop_sources(self, why: Callable[[Citation, Source], str | None]) -> None:
        """Remove the sources for which `why` returns a reason. Citations left without sources are dropped."""

        def fitted(citation: Citation) -> Citation | None:
            kept: list[SourceRef] = []
            for ref in citation.refs:
                reason = why(citation, self.sources[ref.source_id])
                if reason is None:
                    kept.append(ref)
                else:
                    self.record_loss("citation", reason, citation=citation.id, source=ref.source_id)
            if len(kept) == len(citation.refs):
                return citation
            return replace(citation, refs=tuple(kept)) if kept else None

        self.map_citations(fitted)

    def split_refs(self) -> None:
        """Split citations into one per source."""
        split = [citation for citation in self.answer.citations if len(citation.refs) > 1]
        for citation in split:
            self.record_loss(
                "refs", f"{len(citation.refs)} sources become a citation each", citation=citation.id
            )
        if split:
            before = {citation.id for citation in self.answer.citations}
            self.answer = split_refs(self.answer)
            owner = ""
            for citation in self.answer.citations:
                if citation.id in before:
                    owner = citation.id
                else:
                    self._first_ids[citation.id] = owner
            self._split |= {citation.id for citation in split}

    def remove_markers(self, stays: Callable[[Citation, str], bool] | None = None) -> None:
        """Remove markers from the text and keep a point where each was. `stays` returns which may remain."""
        parts = self.answer.parts
        leaving = [
            citation
            for citation in self.answer.citations
            if citation.marker and not (stays and stays(citation, self.answer.covered(citation.marker)))
        ]
        if not leaving or not parts:
            return
        spans = {citation.marker for citation in leaving}
        for citation in self.answer.citations:
            if citation.marker in spans:
                self.record_loss("marker", "taken out of the text", citation=citation.id)
                if citation.insert_at is None:
                    self._points_of_markers.add(self._first_ids.get(citation.id, citation.id))
        self.answer = remove_markers(self.answer, spans)

    def derive_claims(self, which: Callable[[Citation], bool]) -> None:
        """Give every citation in `which` that has only a point a claim: the sentence before the point."""
        if all(citation.claim or not citation.insert_at for citation in self.answer.citations):
            return

        def derived(old: Citation, new: Citation) -> Citation:
            if new is old:
                return old
            self.record_loss("claim", "derived: the sentence before the marker", citation=old.id)
            # The dialect cannot mark a claim as derived, but the loss does.
            return replace(new, span_origin=old.span_origin)

        claimed = derive_claims(self.answer, which).citations
        self.answer = replace(self.answer, citations=tuple(map(derived, self.answer.citations, claimed)))

    def turn_markers_into_claims(self) -> None:
        """For dialects without markers: remove them, and make the sentence before each its claim."""
        marked = {citation.id for citation in self.answer.citations if citation.marker}
        self.remove_markers()
        self.derive_claims(lambda citation: citation.id in marked)

    def insert_markers(self, label: Callable[[Citation], str | None], *, padded: bool = False) -> None:
        """Write a marker for every citation that has a place but no marker, unless `label` gives None."""
        wanted: dict[int, list[tuple[int, int, str]]] = defaultdict(list)
        for number, citation in enumerate(self.answer.citations):
            point = find_marker_point(citation)
            text = label(citation) if point and citation.marker is None else None
            if point and text is not None:
                wanted[point.part].append((point.at, number, text))
                self.record_loss("marker", "written into the text", citation=citation.id)
        if wanted:
            self.answer = insert_markers(self.answer, wanted, padded)

    def finish(
        self,
        room: SupportedFields,
        *,
        kind: Callable[[Source], SourceKind],
        origin: Callable[[Citation], SpanOrigin],
        keep_ids: bool = False,
        group: Callable[[Answer], list[list[Citation]]] | None = None,
        why: str = "",
    ) -> Answer:
        """Return the answer as a reader of the dialect will see it.

        `kind` and `origin` return what that reader will infer about a source or a place. `group` returns the
        citations in the order it will find them, and `why` is the reason for that order.
        """
        self._drop_from_citations(room, origin)
        self._drop_from_sources(room, kind)
        if group is not None:
            self._regroup(group(self.answer), why)
        self._merge_sources()
        if not keep_ids:
            self.rename_citations([f"c{number}" for number in range(1, len(self.answer.citations) + 1)])
        if "answer.id" not in room and self.answer.id is not None:
            self.record_loss("answer.id", self._no_place_reason)
            self.answer = replace(self.answer, id=None)
        return self.answer

    def _regroup(self, groups: list[list[Citation]], why: str) -> None:
        order = tuple(citation for group in groups for citation in group)
        if any(map(is_not, order, self.answer.citations)):
            self.record_loss("order", why)
        self.answer = replace(self.answer, citations=order)
        self._sizes = [len(group) for group in groups]

    def groups(self) -> list[tuple[Citation, ...]]:
        """Return the finished citations in the groups that `finish` was given."""
        ends = list(accumulate(self._sizes))
        return [self.answer.citations[end - size : end] for end, size in zip(ends, self._sizes, strict=True)]

    @property
    def _no_place_reason(self) -> str:
        return f"{self.dialect} has no place for it"

    def _drop_from_citations(self, room: SupportedFields, origin: Callable[[Citation], SpanOrigin]) -> None:
        foreign = _UnsupportedFields(field for field in _CITATION_FIELDS if field not in room)
        of_refs = _UnsupportedFields(field for field in _REF_FIELDS if f"refs.{field}" not in room)

        def fitted(citation: Citation) -> Citation:
            changes: dict[str, Any] = {}
            for field in foreign.set_fields(citation):
                self.record_loss(field, self._no_place_reason, citation=citation.id)
                changes[field] = None
            refs = [self._fit_ref(ref, of_refs, room, citation.id) for ref in citation.refs]
            if any(map(is_not, refs, citation.refs)):
                changes["refs"] = tuple(refs)
            fit = replace(citation, **changes) if changes else citation
            seen_as = origin(fit)
            if seen_as == fit.span_origin:
                return fit
            self.record_loss("span_origin", f"{fit.span_origin} will read as {seen_as}", citation=citation.id)
            return replace(fit, span_origin=seen_as)

        self.map_citations(fitted)

    def _fit_ref(
        self, ref: SourceRef, foreign: _UnsupportedFields, room: SupportedFields, citation: str
    ) -> SourceRef:
        changes: dict[str, Any] = {}
        for field in foreign.set_fields(ref):
            self.record_loss(f"refs.{field}", self._no_place_reason, citation=citation)
            changes[field] = None
        if ref.locator is not None and f"refs.locator.{locator_kind(ref.locator)}" not in room:
            reason = f"{self.dialect} has no place for {locator_kind(ref.locator)}"
            self.record_loss("refs.locator", reason, citation=citation)
            changes["locator"] = None
        return replace(ref, **changes) if changes else ref

    def _drop_from_sources(self, room: SupportedFields, kind: Callable[[Source], SourceKind]) -> None:
        foreign = _UnsupportedFields(field for field in _SOURCE_FIELDS if f"source.{field}" not in room)
        used = {ref.source_id for citation in self.answer.citations for ref in citation.refs}
        sources: list[Source] = []
        for source in self.sources.values():
            if source.id in used:
                sources.append(self._fit_source(source, foreign, room, kind))
            else:
                self.record_loss("source", "no citation points to it", source=source.id)
        self.answer = replace(self.answer, sources=tuple(sources))

    def _fit_source(
        self,
        source: Source,
        foreign: _UnsupportedFields,
        room: SupportedFields,
        kind: Callable[[Source], SourceKind],
    ) -> Source:
        changes: dict[str, Any] = {}
        for field in foreign.set_fields(source):
            self.record_loss(f"source.{field}", self._no_place_reason, source=source.id)
            changes[field] = None
        if source.metadata and "source.metadata" not in room:
            self.record_loss("source.metadata", self._no_place_reason, source=source.id)
            changes["metadata"] = {}
        fit = replace(source, **changes) if changes else source
        seen_as = kind(fit)
        if seen_as == fit.kind:
            return fit
        self.record_loss("source.kind", f"{fit.kind} will read as {seen_as}", source=source.id)
        return replace(fit, kind=seen_as)

    def _merge_sources(self) -> None:
        by_id = {source.id: source for source in self.answer.sources}
        names: dict[str, str] = {}
        merged: list[Source] = []
        seen: dict[Any, str] = {}
        for citation in self.answer.citations:
            for ref in citation.refs:
                if ref.source_id in names:
                    continue
                source = by_id[ref.source_id]
                identity = source_identity(source)
                name = seen.get(identity)
                if name is None:
                    name = seen[identity] = f"s{len(merged) + 1}"
                    merged.append(source if source.id == name else replace(source, id=name))
                    if name != source.id:
                        self.record_loss("source.id", f"will read as {name}", source=source.id)
                else:
                    self.record_loss("source", f"cannot be told from {name}", source=source.id)
                names[source.id] = name
        if any(old != new for old, new in names.items()):
            self.map_citations(lambda citation: _renamed_refs(citation, names))
        self.answer = replace(self.answer, sources=tuple(merged))

    def rename_citations(self, names: list[str]) -> None:
        """Rename the citations, in order. Losses still use the original ids."""
        self.losses = [loss for loss in self.losses if loss.field != "id"]
        first_ids: dict[str | None, str] = {}
        renamed: list[Citation] = []
        for citation, name in zip(self.answer.citations, names, strict=True):
            first = self._first_ids.get(citation.id, citation.id)
            if name != first and first not in self._split:
                self.losses.append(Loss("id", f"will read as {name}", first))
            first_ids[name] = first
            renamed.append(citation if citation.id == name else replace(citation, id=name))
        self._first_ids = first_ids
        self.answer = replace(self.answer, citations=tuple(renamed))


class _UnsupportedFields:
    """Fields that a dialect does not support. Finds fast that a value sets none of them, the usual case."""

    def __init__(self, fields: Iterable[str]) -> None:
        self._fields = tuple(fields)
        # With one field, attrgetter returns no tuple.
        self._values = attrgetter(*self._fields) if len(self._fields) > 1 else None
        self._nothing = (None,) * len(self._fields)

    def set_fields(self, value: Citation | SourceRef | Source) -> tuple[str, ...]:
        if self._values is not None and self._values(value) == self._nothing:
            return ()
        return tuple(field for field in self._fields if getattr(value, field) is not None)


def locator_kind(locator: Locator) -> str:
    """Return `chars`, `pages`, … as used in `SupportedFields`."""
    return type(locator).__name__.lower()


def source_identity(source: Source) -> tuple[Any, ...]:
    """Return what identifies a source: all fields except its id and native data."""
    values = astuple(source)[1:-1]
    return (*values[:-1], to_hashable(values[-1]))


def to_hashable(metadata: dict[str, Any] | None) -> str | None:
    """Return metadata in a hashable form. Raises `ShapeError` if it is nested too deeply."""
    try:
        return repr(metadata) if metadata else None
    except RecursionError as exc:
        raise ShapeError("nested too deeply", ".metadata") from exc


def _renamed_refs(citation: Citation, names: dict[str, str]) -> Citation:
    refs = tuple(
        ref if names[ref.source_id] == ref.source_id else replace(ref, source_id=names[ref.source_id])
        for ref in citation.refs
    )
    return replace(citation, refs=refs) if any(map(is_not, refs, citation.refs)) else citation
