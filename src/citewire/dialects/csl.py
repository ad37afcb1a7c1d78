"""CSL-JSON: bibliographic items, and clusters that cite them, as citation processors accept them.

The payload is a list of items or an object with `items` and `citationClusters`; an item that no cluster cites
is a citation itself. The format has no place for the answer's text: of a citation's position only the note
number remains.
"""

from __future__ import annotations

import re
from collections import Counter
from math import inf
from typing import Any, NamedTuple

from msgspec.structs import replace

from citewire.adapt import Adaptation
from citewire.dialects.base import (
    DialectOptions,
    Json,
    ProblemList,
    SourceRegistry,
    interleave,
    is_list,
    is_object,
    native_for,
    optional,
    overlay,
    require,
)
from citewire.errors import InputError, ShapeError
from citewire.model import Answer, Citation, Native, Pages, Part, Source, SourceKind, SourceRef, Written

NAME = "csl"
UPSTREAM = "CSL-JSON schema 1.0.2"
SUPPORTED_FIELDS = frozenset(
    {
        "ordinal",
        "refs.locator.pages",
        "source.metadata",
        "source.snippet",
        "source.title",
        "source.url",
    }
)

_CLUSTERS = "citationClusters"
_OF_THE_WEB = ("webpage", "post", "post-weblog")
_TYPE = re.compile(
    r"article(-journal|-magazine|-newspaper)?|bill|book|broadcast|chapter|classic|collection|dataset|document"
    r"|entry(-dictionary|-encyclopedia)?|event|figure|graphic|hearing|interview|legal_case|legislation"
    r"|manuscript|map|motion_picture|musical_score|pamphlet|paper-conference|patent|performance|periodical"
    r"|personal_communication|post(-weblog)?|regulation|report|review(-book)?|software|song|speech|standard"
    r"|thesis|treaty|webpage"
)
# Larger numbers are neither ids nor pages.
_LARGEST = 10**18
_PAGES = re.compile(r"(\d{1,9})(?:[-–](\d{1,9}))?")


def detect(payload: Any) -> bool:
    if is_list(payload):
        return bool(payload) and all(map(_is_item, payload))
    return is_object(payload) and is_list(payload.get(_CLUSTERS)) and "items" in payload


def _is_item(value: Any) -> bool:
    kind = value.get("type") if is_object(value) and "id" in value else None
    return isinstance(kind, str) and _TYPE.fullmatch(kind) is not None


def _items(payload: Any) -> list[Any]:
    """Return the items of a payload, which can be a list or an object keyed by id."""
    if is_list(payload) and (not payload or any(map(is_object, payload))):
        return payload
    items = payload.get("items") if is_object(payload) else None
    if is_object(items):
        return list(items.values())
    if not is_list(items):
        raise ShapeError("neither a list of items nor an object with items")
    return items


def read_all(payload: Any, options: DialectOptions) -> tuple[Answer, ...]:
    items = _items(payload)
    reader = _Reader(items, "$" if is_list(payload) else "$.items")
    clusters = optional(payload, _CLUSTERS, list, "$") if is_object(payload) else None
    for at, cluster in enumerate(clusters or ()):
        try:
            reader.citations.append(reader.cluster(cluster, at))
        except InputError as exc:
            reader.problems.add(f"$.{_CLUSTERS}[{at}]", exc)
            reader.kept.append((at, cluster))
    reader.cite_the_rest()
    text = options.text
    native = Native(NAME, payload, kept=(reader.kept_items, reader.kept))
    return (
        Answer(
            parts=() if text is None else (Part(text),),
            citations=tuple(reader.citations),
            sources=tuple(reader.sources),
            problems=tuple(reader.problems),
            native=native,
        ),
    )


class _OriginalItem(NamedTuple):
    """The original of a reference: its item, the item's index, and the citation item."""

    item: Json
    at: int
    cite: Json


class _Reader:
    def __init__(self, items: list[Any], where: str) -> None:
        self.sources = SourceRegistry()
        self.problems = ProblemList()
        self.citations: list[Citation] = []
        self.kept: list[tuple[int, Any]] = []
        self.kept_items: list[tuple[int, Any]] = []
        self._items = items
        self._places: dict[str, int] = {}
        self._unnamed: dict[int, None] = {}
        self._about: dict[int, _ItemFields] = {}
        self._source_ids: dict[int, str] = {}
        for at, item in enumerate(items):
            try:
                name, self._about[at] = _checked_item(item)
                self._places.setdefault(name, at)
                self._unnamed[at] = None
            except InputError as exc:
                self.problems.add(f"{where}[{at}]", exc)
                self.kept_items.append((at, item))

    def cluster(self, raw: Any, at: int) -> Citation:
        """Read the citation of a cluster. Raises `ShapeError` if it cites no existing item."""
        if not is_object(raw):
            raise ShapeError("a cluster is not an object", "")
        refs: list[SourceRef] = []
        kept: list[tuple[int, Any]] = []
        for place, cite in enumerate(require(raw, "citationItems", list)):
            try:
                refs.append(self._ref(cite, place))
            except InputError as exc:
                self.problems.add(f"$.{_CLUSTERS}[{at}].citationItems[{place}]", exc)
                kept.append((place, cite))
        if not refs:
            raise ShapeError("cites no item that is there", ".citationItems")
        native = Native(NAME, raw, at, tuple(kept))
        return Citation(self._next_id, tuple(refs), _note(raw), native=native)

    def _ref(self, cite: Any, place: int) -> SourceRef:
        if not is_object(cite):
            raise ShapeError("a citation item is not an object", "")
        at = self._places.get(_id_text(cite.get("id")))
        if at is None:
            raise ShapeError("there is no item of that id", ".id")
        self._unnamed.pop(at, None)
        kept = _OriginalItem(self._items[at], at, cite)
        return SourceRef(self._source(at), _pages(cite), native=Native(NAME, kept, place))

    def _source(self, at: int) -> str:
        if at not in self._source_ids:
            title, url, snippet, metadata = self._about[at]
            kind = _kind_of(self._items[at])
            added = self.sources.add(kind, url, title, snippet=snippet, metadata=metadata)
            self._source_ids[at] = added
        return self._source_ids[at]

    def cite_the_rest(self) -> None:
        """Add a citation for every item that no cluster cites."""
        for at in self._unnamed:
            kept = _OriginalItem(self._items[at], at, {})
            ref = SourceRef(self._source(at), native=Native(NAME, kept))
            self.citations.append(Citation(self._next_id, (ref,), native=Native(NAME)))

    @property
    def _next_id(self) -> str:
        return f"c{len(self.citations) + 1}"


_ItemFields = tuple[str | None, str | None, str | None, Json | None]
"""Title, URL, snippet and metadata."""


def _checked_item(item: Any) -> tuple[str, _ItemFields]:
    """Check an item and return its id and its fields."""
    if not is_object(item):
        raise ShapeError("an item is not an object", "")
    title, url = optional(item, "title", str), optional(item, "URL", str)
    about = title, url, optional(item, "abstract", str), optional(item, "custom", dict)
    name = _id_text(item.get("id"))
    if not name:
        raise ShapeError("id is missing, or neither a string nor a number", ".id")
    return name, about


def _id_text(name: Any) -> str:
    """Return an id for comparison: a number equals its digits."""
    if type(name) is int:
        return str(name) if abs(name) < _LARGEST else ""
    return name if isinstance(name, str) else ""


def _kind_of(item: Json) -> SourceKind:
    return "web" if item.get("type") in _OF_THE_WEB else "document"


def _note(cluster: Json) -> int | None:
    properties = cluster.get("properties")
    number = properties.get("noteIndex") if is_object(properties) else None
    return number if type(number) is int and number > 0 else None


def _pages(cite: Json) -> Pages | None:
    locator = cite.get("locator")
    if locator is None or cite.get("label") not in (None, "page"):
        return None
    found = _PAGES.fullmatch(_id_text(locator))
    first, last = (int(found[1]), int(found[2] or found[1])) if found else (0, 0)
    return Pages(first, last) if 0 < first <= last else None


def write(answer: Answer, options: DialectOptions) -> Written:
    del options  # this dialect has no offsets
    fitting = Adaptation(answer, NAME)
    fitting.require_refs()
    _drop_text(fitting)
    fitting.map_citations(lambda citation: _fit(citation, fitting))
    fit = fitting.finish(
        SUPPORTED_FIELDS,
        kind=lambda source: "web" if source.kind == "web" else "document",
        origin=lambda citation: "unknown",
        group=_in_clusters,
        why="what no cluster cites comes last, in the order of the items",
    )
    native = native_for(answer.native, NAME)
    return Written(_Writer(fit, native).payload(*fitting.groups()), tuple(fitting.losses))


def _drop_text(fitting: Adaptation) -> None:
    """Drop the text and all positions. A text that consists of markers only loses nothing else."""
    if not fitting.answer.parts:
        return
    fitting.record_loss("parts", "CSL has no place for the text of an answer")
    fitting.join_parts()
    fitting.remove_markers()
    if fitting.answer.text:
        fitting.record_loss("text", "CSL has no place for the text of an answer")


def _fit(citation: Citation, fitting: Adaptation) -> Citation:
    """Drop note numbers below one and pages that cannot be written."""
    if citation.ordinal is not None and citation.ordinal < 1:
        fitting.record_loss("ordinal", "notes are counted from one", citation=citation.id)
        citation = replace(citation, ordinal=None)
    refs = tuple(_fit_ref(ref, citation, fitting) for ref in citation.refs)
    return citation if refs == citation.refs else replace(citation, refs=refs)


def _fit_ref(ref: SourceRef, citation: Citation, fitting: Adaptation) -> SourceRef:
    pages = ref.locator
    if not isinstance(pages, Pages) or _pages(_locator_fields(pages)) == pages:
        return ref
    fitting.record_loss("refs.locator", "not pages that can be written", citation=citation.id)
    return replace(ref, locator=None)


def _in_clusters(answer: Answer) -> list[list[Citation]]:
    """Split the citations into those that need a cluster and those that an item alone expresses."""
    found: tuple[list[Citation], list[Citation]] = ([], [])
    alone = {citation.id for citation in answer.citations if _is_alone(citation, answer)}
    homes = _original_items(answer) if alone else {}
    refs = [ref for citation in answer.citations for ref in citation.refs] if alone else []
    uses = Counter(_item_at(ref, homes) for ref in refs)
    for citation in answer.citations:
        is_alone = citation.id in alone and uses[_item_at(citation.refs[0], homes)] == 1
        found[is_alone].append(citation)
    found[1].sort(key=_item_place)
    return list(found)


def _original_items(answer: Answer) -> dict[str, _OriginalItem]:
    """Return the first original item of each source that has one."""
    homes: dict[str, _OriginalItem] = {}
    for citation in answer.citations:
        for ref in citation.refs:
            if native := native_for(ref.native, NAME):
                homes.setdefault(ref.source_id, native.raw)
    return homes


def _original_item(ref: SourceRef, homes: dict[str, _OriginalItem]) -> _OriginalItem | None:
    """Return the original item of a reference."""
    native = native_for(ref.native, NAME)
    return native.raw if native else homes.get(ref.source_id)


def _item_at(ref: SourceRef, homes: dict[str, _OriginalItem]) -> tuple[str, int | None]:
    """Return the key of a reference's item: its source, and its old index if it has one."""
    home = _original_item(ref, homes)
    return ref.source_id, home.at if home else None


def _item_place(citation: Citation) -> float:
    """Return the old index of a citation's item; new items come last."""
    native = native_for(citation.refs[0].native, NAME)
    return native.raw.at if native else inf


def _is_alone(citation: Citation, answer: Answer) -> bool:
    """Whether an item alone expresses a citation: it was read that way, or is new in a list of items."""
    payload, native = native_for(answer.native, NAME), native_for(citation.native, NAME)
    has_place = citation.ordinal is not None or citation.refs[0].locator is not None
    if payload is None or has_place or len(citation.refs) > 1:
        return False
    return is_list(payload.raw) if native is None else native.raw is None


class _Writer:
    def __init__(self, answer: Answer, native: Native | None) -> None:
        self._native = native
        self._sources = {source.id: source for source in answer.sources}
        self._items: dict[tuple[str, int | None], tuple[int | None, Json]] = {}
        old = _items(native.raw) if native else []
        self._taken = {_id_text(item.get("id")) for item in old if is_object(item)}
        self._homes = _original_items(answer)

    def payload(self, clustered: tuple[Citation, ...], alone: tuple[Citation, ...]) -> Any:
        kept_items, kept = self._native.kept if self._native else (None, None)
        clusters = interleave(kept, [self._cluster(citation) for citation in clustered])
        for citation in alone:
            self._item(citation.refs[0])
        placed = sorted(self._items.values(), key=lambda one: (one[0] is None, one[0] or 0))
        items = interleave(
            ((at, (at, item)) for at, item in kept_items or ()), [(one[0], one) for one in placed]
        )
        raw: Any = self._native.raw if self._native else {}
        listed = [item for _, item in items]
        if is_list(raw):
            return {"items": listed, _CLUSTERS: clusters} if clusters else listed
        keys = list(raw["items"]) if is_object(raw.get("items")) else None
        if clusters or _CLUSTERS not in raw or raw[_CLUSTERS]:
            raw = {**raw, _CLUSTERS: clusters}
        if keys is None:
            return {**raw, "items": listed}
        return {**raw, "items": {item["id"] if at is None else keys[at]: item for at, item in items}}

    def _cluster(self, citation: Citation) -> tuple[int | None, Json]:
        native = native_for(citation.native, NAME)
        raw: Json = native.raw if native and native.raw else {"citationID": citation.id}
        cites = interleave(native.kept if native else None, [self._cite(ref) for ref in citation.refs])
        fields: Json = {"citationItems": cites}
        if citation.ordinal != _note(raw) or "citationItems" not in raw:
            properties = raw.get("properties")
            note = {"noteIndex": citation.ordinal or 0}
            fields["properties"] = {**properties, **note} if is_object(properties) else note
        return native and native.at, overlay(raw, fields)

    def _cite(self, ref: SourceRef) -> tuple[int | None, Json]:
        native = native_for(ref.native, NAME)
        cite: Json = native.raw.cite if native else {}
        name = self._item(ref)["id"]
        fields: Json = {} if _id_text(cite.get("id")) == _id_text(name) else {"id": name}
        if _pages(cite) != ref.locator:
            fields |= _locator_fields(ref.locator if isinstance(ref.locator, Pages) else None)
        return native and native.at, overlay(cite, fields)

    def _item(self, ref: SourceRef) -> Json:
        """Return the item of a reference; it is created or updated on first use."""
        home = _original_item(ref, self._homes)
        key = ref.source_id, home.at if home else None
        made = self._items.get(key)
        if made is None:
            item = self._over(home.item if home else {}, self._sources[ref.source_id])
            made = self._items[key] = key[1], item
        return made[1]

    def _over(self, raw: Json, source: Source) -> Json:
        fields: Json = {"title": source.title, "URL": source.url, "abstract": source.snippet}
        if source.metadata or raw.get("custom"):
            fields["custom"] = source.metadata or None
        if not raw:
            fields = {"id": self._free_id(source.id), **fields}
        if not raw or _kind_of(raw) != source.kind:
            fields["type"] = "webpage" if source.kind == "web" else "document"
        return overlay(raw, fields)

    def _free_id(self, wanted: str) -> str:
        name, again = wanted, 1
        while name in self._taken:
            again += 1
            name = f"{wanted}.{again}"
        self._taken.add(name)
        return name


def _locator_fields(pages: Pages | None) -> Json:
    if pages is None:
        return {"locator": None, "label": None}
    first, last = pages.first, pages.last
    return {"locator": str(first) if first == last else f"{first}-{last}", "label": "page"}
