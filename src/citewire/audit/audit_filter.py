"""What of the record is asked for."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import get_args

from msgspec import Struct

from citewire.audit.record_types import RecordedCitation
from citewire.errors import InputError
from citewire.model import Status

__all__ = ["AuditFilter"]


class AuditFilter(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """The citations that are asked for: all that fit everything that is given.

    A `source` goes by any of its names, or by its sha256. A `client` cited, asked, or looked at it. They are
    of `since` or later, and from before `until`.
    """

    thread: str | None = None
    source: str | None = None
    status: str | None = None
    client: str | None = None
    since: str | None = None
    until: str | None = None

    @classmethod
    def parse(cls, **given: str | None) -> AuditFilter:
        """What these words ask for. An `InputError` where they are no status or no date."""
        for name in ("since", "until"):
            given[name] = _date(name, given.get(name))
        if given.get("status") not in (None, *get_args(Status)):
            raise InputError(f"a status is one of {', '.join(get_args(Status))}", "status")
        return cls(**given)

    @property
    def filters_citations(self) -> bool:
        """Whether a thread may be left out because nothing in it fits."""
        return self != AuditFilter(thread=self.thread)

    def matches(self, citation: RecordedCitation) -> bool:
        """Whether a citation is asked for."""
        return (
            self.thread in (None, citation.thread)
            and (self.source is None or self.source in citation.source_names)
            and self.status in (None, citation.status)
            and (self.client is None or self.client in citation.people)
            and (self.since is None or self.since <= citation.at)
            and (self.until is None or citation.at < self.until)
        )


def _date(name: str, text: str | None) -> str | None:
    """A time as the record writes it; one without a zone is in UTC."""
    if text is None:
        return None
    try:
        time = datetime.fromisoformat(text)
        zoned = time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC)
        return zoned.isoformat(timespec="milliseconds")
    except (ValueError, OverflowError):
        raise InputError("a time is written as 2026-11-16 or 2026-11-16T09:30", name) from None
