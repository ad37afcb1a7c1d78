"""Entries of `state.citations[messageId]`: which of them are ours, and what we say in their `extra`."""

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
"""The member of a record, or of `extra`, that is ours alone."""


def is_own_list(entries: Any) -> bool:
    """Whether a list of citations was made here."""
    listed = cast("list[Any]", entries) if isinstance(entries, list) else []
    return bool(listed) and all(map(_is_own_entry, listed))


def _is_own_entry(entry: Any) -> bool:
    ours = read_note(entry)
    named = ours is not None and ours.get("own") is True and isinstance(ours.get("key"), str)
    return named and isinstance(entry.get("id"), str)


def read_note(entry: Any) -> Json | None:
    """What we say in an entry; None where we say nothing."""
    extra = cast("Json", entry).get("extra") if isinstance(entry, dict) else None
    ours = cast("Json", extra).get(CITEWIRE_KEY) if isinstance(extra, dict) else None
    return cast("Json", ours) if isinstance(ours, dict) else None


def key_of(entry: Any) -> str | None:
    """The key of the citation that an entry of a list stands for, where it says so."""
    key = (read_note(entry) or {}).get("key")
    return key if isinstance(key, str) else None


def remove_notes(entries: Iterable[Any]) -> list[Any]:
    """The entries of a list of citations without what we say of them."""
    return [_without_note(entry) if _has_note(entry) else entry for entry in entries]


def _has_note(entry: Any) -> bool:
    """Whether an entry has our member in its `extra`, whatever is in that."""
    extra = cast("Json", entry).get("extra") if isinstance(entry, dict) else None
    return isinstance(extra, dict) and CITEWIRE_KEY in extra


def _without_note(entry: Json) -> Json:
    extra = {key: value for key, value in entry["extra"].items() if key != CITEWIRE_KEY}
    rest = {key: value for key, value in entry.items() if key != "extra"}
    return {**rest, "extra": extra} if extra else rest


def entry_id(entry: Any, at: int) -> str:
    """What an entry goes by here: its own id, else its place."""
    fields = cast("Json", entry) if isinstance(entry, dict) else {}
    named = next((fields[name] for name in ("id", "refId") if isinstance(fields.get(name), str)), None)
    return f"#{at}" if named is None else cast("str", named)


def read_note_without_owner(entry: Json) -> Json:
    """What we say of the citation of an entry, whoever listed it."""
    return {key: value for key, value in (read_note(entry) or {}).items() if key != "own"}
