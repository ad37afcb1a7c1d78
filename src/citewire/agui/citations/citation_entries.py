"""Entries of `state.citations[messageId]`: which of them are ours, and our notes in their `extra`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

from citewire.agui.events import Json

__all__ = [
    "CITEWIRE_KEY",
    "entry_id",
    "is_own_list",
    "key_of",
    "read_note",
    "read_note_without_owner",
    "remove_notes",
]

CITEWIRE_KEY = "citewire"
"""Our own member in a record, or in `extra`."""


def is_own_list(entries: Any) -> bool:
    """Whether all entries of a citation list are ours."""
    listed = cast("list[Any]", entries) if isinstance(entries, list) else []
    return bool(listed) and all(map(_is_own_entry, listed))


def _is_own_entry(entry: Any) -> bool:
    ours = read_note(entry)
    named = ours is not None and ours.get("own") is True and isinstance(ours.get("key"), str)
    return named and isinstance(entry.get("id"), str)


def read_note(entry: Any) -> Json | None:
    """Return our note in an entry; None if there is none."""
    extra = cast("Json", entry).get("extra") if isinstance(entry, dict) else None
    ours = cast("Json", extra).get(CITEWIRE_KEY) if isinstance(extra, dict) else None
    return cast("Json", ours) if isinstance(ours, dict) else None


def key_of(entry: Any) -> str | None:
    """Return the citation key in our note in an entry; None if there is none."""
    key = (read_note(entry) or {}).get("key")
    return key if isinstance(key, str) else None


def remove_notes(entries: Iterable[Any]) -> list[Any]:
    """Return the entries of a citation list without our notes."""
    return [_without_note(entry) if _has_note(entry) else entry for entry in entries]


def _has_note(entry: Any) -> bool:
    """Whether an entry has our member in its `extra`, with any value."""
    extra = cast("Json", entry).get("extra") if isinstance(entry, dict) else None
    return isinstance(extra, dict) and CITEWIRE_KEY in extra


def _without_note(entry: Json) -> Json:
    extra = {key: value for key, value in entry["extra"].items() if key != CITEWIRE_KEY}
    rest = {key: value for key, value in entry.items() if key != "extra"}
    return {**rest, "extra": extra} if extra else rest


def entry_id(entry: Any, at: int) -> str:
    """Return the id of an entry, otherwise `#` and its position."""
    fields = cast("Json", entry) if isinstance(entry, dict) else {}
    named = next((fields[name] for name in ("id", "refId") if isinstance(fields.get(name), str)), None)
    return f"#{at}" if named is None else cast("str", named)


def read_note_without_owner(entry: Json) -> Json:
    """Return our note in an entry without its `own` flag; empty if there is none."""
    return {key: value for key, value in (read_note(entry) or {}).items() if key != "own"}
