"""Ably serials: `<14-digit ms>-<3-digit counter>@<series>:<3-digit index>`, which sort as text.

A serial is stored as one integer, the tick: milliseconds × 1000 + counter. The next tick is one more than the
last, or the current millisecond if that is later. So the counter restarts with each millisecond and overflows
into the next one, and setting the clock back never makes serials decrease.
"""

from __future__ import annotations

import re

from citewire.errors import InputError

_SERIAL = re.compile(r"([0-9]{14})-([0-9]{3})@([0-9a-f]+)(?::000)?")


def tick_after(last: int, now_ms: int) -> int:
    """Return the tick of a row written at `now_ms` after a row with the tick `last`."""
    return max(now_ms * 1000, last + 1)


def series_of(epoch: str) -> str:
    """Return the part of an epoch `series~k` that stays when a channel resumes from an older copy."""
    return epoch.partition("~")[0]


def serial_of(tick: int, epoch: str) -> str:
    """Return the serial of a row; a row is one message, so its index is always 000."""
    return f"{tick // 1000:014d}-{tick % 1000:03d}@{series_of(epoch)}:000"


def tick_of(serial: str) -> tuple[int, str]:
    """Return the tick and the series of a serial, with or without its index."""
    found = _SERIAL.fullmatch(serial)
    if not found:
        raise InputError("not a serial of this server")
    return int(found[1]) * 1000 + int(found[2]), found[3]
