"""The current time as rows and records have it."""

from __future__ import annotations

from datetime import UTC, datetime

__all__ = ["now_iso"]


def now_iso() -> str:
    """Return the current time in UTC, to the millisecond. These texts sort by time."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")
