"""The types of the record: runs and their retrievals, citations, verdicts, and reviews."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from msgspec import Struct

from citewire.agui.events import Json
from citewire.channels.actor import Actor

__all__ = ["RecordedCitation", "RecordedRetrieval", "RecordedReview", "RecordedRun", "RecordedVerdict"]


class RecordedReview(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """A person's action on a citation. `at` is the server's time, `claimed_at` the client's."""

    who: str
    event: str
    at: str
    dwell_ms: int | None = None
    claimed_at: str | None = None
    by: Actor | None = None


class RecordedRetrieval(Struct, frozen=True, omit_defaults=True):
    """A text that a run received or retrieved."""

    name: str
    sha256: str
    size: int
    url: str | None = None
    page: int | None = None


class RecordedRun(Struct, frozen=True, omit_defaults=True, tag="run"):
    """A run: who asked for it, its outcome, and its retrievals.

    Its sources are those after row `sources` of their log, 0 for none.
    """

    thread: str
    run: str
    n: int
    at: str
    who: str
    sources: int
    outcome: str | None
    retrieved: list[RecordedRetrieval]


class RecordedVerdict(Struct, frozen=True, omit_defaults=True):
    """The verdict on a citation's quote. `row` and `hash` identify the row that records it.

    `origin` is set if a client supplied the source.
    """

    status: str
    at: str
    row: int
    hash: str
    reason: str | None = None
    source: str | None = None
    sha256: str | None = None
    page: int | None = None
    proof: str | None = None
    origin: str | None = None


class RecordedCitation(Struct, frozen=True, omit_defaults=True, rename="camel", tag="citation"):
    """A citation: who cited what in which answer, its current and earlier verdicts, and its reviews.

    `cites` is the citation's own description of its source. Without a verdict it is pending. If someone other
    than the agent cited it, `annotation` is the serial of that annotation.
    """

    thread: str
    run: str
    message: str
    key: str
    n: int
    at: str
    by: str
    asked_by: str
    quote: str
    cites: Json
    verdict: RecordedVerdict | None
    earlier: list[RecordedVerdict]
    reviews: list[RecordedReview]
    annotation: str | None = None

    @property
    def status(self) -> str:
        """The status of the last verdict, or `pending`."""
        return self.verdict.status if self.verdict else "pending"

    @property
    def who(self) -> str:
        """The display name of who cited it; nobody can pose as the agent."""
        return self.by if self.annotation is None else f"{self.by or 'somebody'} (annotation)"

    @property
    def source(self) -> str:
        """The name of its source according to the verdict, or else to the citation."""
        said = (self.cites.get(name) for name in ("title", "attachmentId", "url"))
        return (self.verdict and self.verdict.source) or next((str(name) for name in said if name), "")

    @property
    def source_names(self) -> set[str]:
        """All names of its source."""
        names = {self.cites.get(name) for name in ("title", "attachmentId", "url", "siteName")}
        names.add(_host(self.cites.get("url")))
        if self.verdict:
            names |= {self.verdict.source, self.verdict.sha256}
        return {name for name in names if isinstance(name, str)}

    @property
    def people(self) -> set[str]:
        """Everyone who cited, asked for or reviewed it."""
        return {self.by, self.asked_by, *(review.who for review in self.reviews)}


def _host(url: Any) -> str | None:
    """Return the host of a URL, the name by which channels count citations."""
    try:
        host = urlsplit(url).hostname if isinstance(url, str) else None
    except ValueError:
        return None
    return host and host.removeprefix("www.")
