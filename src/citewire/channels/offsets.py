"""Check whether a citation's offsets lie within its message's text: reported, never a reason to refuse it."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Literal, TypeAlias, TypeGuard, cast

from msgspec import Struct

from citewire import codec
from citewire.channels.message import Data, Message
from citewire.errors import DecodeError
from citewire.text import UNITS, Offsets, Unit

__all__ = [
    "ClaimedOffsets",
    "OffsetCheck",
    "check_offsets",
    "decode_json_object",
    "is_citation",
    "read_claimed_offsets",
]

_NAMESPACE = "citations"
_SPELLINGS = (("startOffset", "endOffset"), ("startIndex", "endIndex"))

_Status: TypeAlias = Literal["inside", "outside", "reversed", "split", "unchecked"]


class ClaimedOffsets(Struct, frozen=True):
    """The offsets that a citation claims; None for values that cannot be checked."""

    start: int | None
    end: int | None
    unit: Unit | None


_UNKNOWN = ClaimedOffsets(None, None, None)


class OffsetCheck(Struct, frozen=True, omit_defaults=True):
    """The result of a check; `version` is the serial of the message version that was checked against.

    `split`: an offset is in the middle of a character. `unchecked`: the text or the offsets cannot be read.
    """

    status: _Status
    version: str
    unit: Unit | None = None


def decode_json_object(data: Data, encoding: str | None) -> dict[str, Any]:
    """Decode an object sent as JSON; an empty dict for other or invalid data."""
    if data is None or encoding not in {"json", "json/utf-8"}:
        return {}
    try:
        value = codec.decode(data)
    except DecodeError:
        return {}
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def read_claimed_offsets(type: str, data: Data, encoding: str | None) -> ClaimedOffsets | None:  # noqa: A002 - as annotations call it
    """Read the offsets in an annotation's data; None if it is not a citation or has no offsets."""
    if not is_citation(type):
        return None
    if encoding and "cipher" in encoding:
        return _UNKNOWN
    value = decode_json_object(data, encoding)
    for names in _SPELLINGS:
        start, end = map(value.get, names)
        if start is not None or end is not None:
            unit = value.get("unit", "utf16")
            known = _is_offset(start) and _is_offset(end) and unit in UNITS
            return ClaimedOffsets(start, end, unit) if known else _UNKNOWN
    return None


def is_citation(type: str) -> bool:  # noqa: A002
    """Tell whether annotations of this type are citations."""
    return type.partition(":")[0] == _NAMESPACE


def _is_offset(value: object) -> TypeGuard[int]:
    return type(value) is int


def check_offsets(claim: ClaimedOffsets, message: Message) -> OffsetCheck:
    """Check the offsets against the current text of the message."""
    version = message.version.serial
    if message.text is None or claim.start is None or claim.end is None or claim.unit is None:
        return OffsetCheck("unchecked", version, claim.unit)
    status = _status(_offsets(message.text), claim.start, claim.end, claim.unit)
    return OffsetCheck(status, version, claim.unit)


# The same text is cited many times.
_offsets = lru_cache(maxsize=32)(Offsets)


def _status(text: Offsets, start: int, end: int, unit: Unit) -> _Status:
    if start > end:
        return "reversed"
    found = text.span(start, end, unit)
    if found is None:
        return "outside"
    return "split" if found.repaired else "inside"
