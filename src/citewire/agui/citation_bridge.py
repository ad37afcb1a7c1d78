"""Copies `state.citations[messageId]`, normalised, onto the message with that id.

The shape is that of @ngaf/ag-ui. Nothing is fetched, no URL is validated and nothing is deduplicated across
messages. An entry without citation fields is dropped and reported. A generated id never equals a given one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeGuard, cast

from citewire.frozen import FrozenDict, FrozenList, freeze

__all__ = ["bridge_citations_state", "normalise_citations"]

_SPELLINGS = {
    "title": ("title", "name"),
    "url": ("url", "href", "source"),
    "snippet": ("snippet", "content", "excerpt"),
    "sourceType": ("sourceType",),
    "iconUrl": ("iconUrl",),
}
_IDS = ("id", "refId")
_ACCEPTED = frozenset(
    {"index", "extra", "publishedAt", *_IDS, *(key for keys in _SPELLINGS.values() for key in keys)}
)
OmissionReporter = Callable[[str], None]


def bridge_citations_state(thread: Any, messages: Sequence[Any]) -> Sequence[Any]:
    """Return `messages` with the citations of `thread.state`, matched by id.

    Messages without an entry are returned unchanged; without any citations, `messages` itself is returned.
    """
    state: Any = cast("Any", thread).get("state") if isinstance(thread, dict) else thread.state
    entries = citations_by_message(state)
    if entries is None:
        return messages
    return [_bridged(message, entries) for message in messages]


def _bridged(message: Any, entries: dict[str, Any]) -> Any:
    name = cast("dict[str, Any]", message).get("id") if isinstance(message, dict) else None
    entry = entries.get(name) if isinstance(name, str) else None
    if not is_citation_list(entry):
        return cast("Any", message)
    return {**cast("dict[str, Any]", message), "citations": normalise_citations(entry)}


def citations_by_message(state: Any) -> dict[str, Any] | None:
    """Return the citations of a state by message id, or None if it has none."""
    citations = cast("dict[str, Any]", state).get("citations") if isinstance(state, dict) else None
    return cast("dict[str, Any]", citations) if isinstance(citations, dict) else None


def is_citation_list(entry: Any) -> TypeGuard[list[Any]]:
    """Whether `entry` sets a message's citations. An empty list does not: the existing ones stay."""
    return isinstance(entry, list) and bool(cast("list[Any]", entry))


def normalise_citations(entries: Iterable[Any], report: OmissionReporter | None = None) -> FrozenList:
    """Normalise `entries`, in any accepted spelling, to citations. Calls `report` for each dropped entry."""
    listed = list(entries)
    taken = {name for entry in listed if (name := _own_id(entry)) is not None}
    return FrozenList(
        citation
        for place, entry in enumerate(listed, 1)
        if (citation := _citation(entry, place, taken, report)) is not None
    )


def renormalise_changed(entries: list[Any], before: FrozenList, changed: Iterable[int]) -> FrozenList | None:
    """Like `normalise_citations`, given its earlier result `before` and the indexes that `changed` since.

    None if the citations must be normalised in full: an entry was dropped, or an id changed.
    """
    if len(entries) != len(before):
        return None
    citations = list(before)
    for at in changed:
        if at >= len(entries) or _own_id(entries[at]) != before[at]["id"]:
            return None
        citations[at] = _citation(entries[at], at + 1, set(), None)
    return FrozenList(citations)


def _own_id(entry: Any) -> str | None:
    if not isinstance(entry, dict):
        return None
    return _first_text(cast("dict[str, Any]", entry), _IDS)


def _citation(entry: Any, place: int, taken: set[str], report: OmissionReporter | None) -> FrozenDict | None:
    if isinstance(entry, str):
        return FrozenDict(id=_free_id(place, taken), index=place, url=entry)
    if not isinstance(entry, dict) or _ACCEPTED.isdisjoint(fields := cast("dict[str, Any]", entry)):
        if report is not None:
            report(f"citation {place} is neither a string nor an object with a field of a citation")
        return None
    name, index = _own_id(fields), fields.get("index")
    made: dict[str, Any] = {
        "id": _free_id(place, taken) if name is None else name,
        "index": index if type(index) in (int, float) else place,
    }
    for wanted, spellings in _SPELLINGS.items():
        if (text := _first_text(fields, spellings)) is not None:
            made[wanted] = text
    if type(published := fields.get("publishedAt")) in (str, int, float):
        made["publishedAt"] = published
    if isinstance(extra := fields.get("extra"), dict | list):
        made["extra"] = freeze(extra)
    return FrozenDict(made)


def _first_text(fields: dict[str, Any], names: tuple[str, ...]) -> str | None:
    for name in names:
        if isinstance(text := fields.get(name), str):
            return text
    return None


def _free_id(number: int, taken: set[str]) -> str:
    while f"c{number}" in taken:
        number += 1
    taken.add(f"c{number}")
    return f"c{number}"
