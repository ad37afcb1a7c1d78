"""Read a block that is plain JSON of a published shape, at once, with the C decoder.

Any other block is left to `lenient_json`, which reads all that this does with the same result.
"""

from __future__ import annotations

from typing import Any

import msgspec

from citewire.codec import prepare_types
from citewire.dialects.base import Json
from citewire.dialects.deepcitation.entry import EntryFields, PromptedEntry, read_fields
from citewire.errors import ShapeError
from citewire.extraction.strings import FIELD_NAMES
from citewire.model import Times

__all__ = ["CITATION_KEYS", "PlainEntry", "UNSAFE_KEYS", "WRAPPER_KEYS", "is_blank", "read_plain_json"]

CITATION_KEYS = frozenset({"citations", "citation"})
"""What says by its name that citations are in it."""
WRAPPER_KEYS = CITATION_KEYS | {"data", "entries", "items", "results", ""}
"""What is at least no attachment."""
UNSAFE_KEYS = frozenset({"__proto__", "constructor", "prototype"})

PlainEntry = tuple[Json, EntryFields]
"""An entry as it stands there, and as it reads."""
_Groups = list[tuple[str | None, list[Any]]]
prepare_types(list[PromptedEntry])
_decode = msgspec.json.Decoder().decode


def read_plain_json(body: str) -> list[PlainEntry] | None:
    """Return the entries of a block; None if one of them is not valid."""
    try:
        value: Any = _decode(body)
    except (ValueError, RecursionError):
        return None
    groups: _Groups = [*value.items()] if body[0] == "{" else [(None, value)]
    if any(type(raws) is not list or key in FIELD_NAMES or key in UNSAFE_KEYS for key, raws in groups):
        return None
    groups = [(None if key in WRAPPER_KEYS else key, raws) for key, raws in groups]
    try:
        entries = _prompted(groups)
    except msgspec.ValidationError:
        entries = _others(groups, body)
    return None if any(is_blank(fields.quote) for _, fields in entries or ()) else entries


def _prompted(groups: _Groups) -> list[PlainEntry]:
    """Read entries in the form that the prompt requests. Raises `ValidationError` if they are not."""
    return [
        (raw, entry.fields(group))
        for group, raws in groups
        for raw, entry in zip(raws, msgspec.convert(raws, list[PromptedEntry]), strict=True)
    ]


def _others(groups: _Groups, body: str) -> list[PlainEntry] | None:
    raws = [raw for _, raws in groups for raw in raws]
    if any(type(raw) is not dict or FIELD_NAMES.isdisjoint(raw) for raw in raws):
        return None
    # An entry may contain nothing nested except one list.
    braces, brackets = len(raws) + (body[0] == "{"), len(raws) + len(groups)
    if body.count("{") != braces or body.count("[") > brackets:
        return None
    try:
        entries = [(raw, read_fields(raw, group)) for group, raws in groups for raw in raws]
    except ShapeError:
        return None
    return None if any(isinstance(fields.locator, Times) for _, fields in entries) else entries


def is_blank(quote: str | None) -> bool:
    return not quote or quote.isspace()
