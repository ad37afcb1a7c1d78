"""The filter of a query for the audit record."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import get_args

from msgspec import Struct

from citewire.audit.record_types import RecordedCitation
from citewire.errors import InputError
from citewire.model import Status

__all__ = ["AuditFilter"]


class AuditFilter(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """A query for citations that match all given fields.

    `source` is any name of a source, or its SHA-256. `client` cited, asked for, or reviewed the citation.
    Times range from `since` (inclusive) to `until` (exclusive).
    """

    thread: str | None = None
    source: str | None = None
    status: str | None = None
    client: str | None = None
    since: str | None = None
    until: str | None = None

    @classmethod
    def parse(cls, **given: str | None) -> AuditFilter:
        """Parse the filter's texts. Raises `InputError` for an invalid status or date."""
        for name in ("since", "until"):
            given[name] = _date(name, given.get(name))
        if given.get("status") not in (None, *get_args(Status)):
            raise InputError(f"a status is one of {', '.join(get_args(Status))}", "status")
        return cls(**given)

    @property
    def filters_citations(self) -> bool:
        """Whether threads without a matching citation are left out."""
        return self != AuditFilter(thread=self.thread)

    def matches(self, citation: RecordedCitation) -> bool:
        """Tell whether a citation matches."""
        return (
            self.thread in (None, citation.thread)
            and (self.source is None or self.source in citation.source_names)
            and self.status in (None, citation.status)
            and (self.client is None or self.client in citation.people)
            and (self.since is None or self.since <= citation.at)
            and (self.until is None or citation.at < self.until)
        )


def _date(name: str, text: str | None) -> str | None:
    """Convert a time to the form used in the record; without a zone it is in UTC."""
    if text is None:
        return None
    try:
        time = datetime.fromisoformat(text)
        zoned = time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC)
        return zoned.isoformat(timespec="milliseconds")
    except (ValueError, OverflowError):
        raise InputError("a time is written as 2026-11-16 or 2026-11-16T09:30", name) from None
