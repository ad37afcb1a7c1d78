"""What the record is made of: runs and what they retrieved, citations, verdicts, and who looked at them."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from msgspec import Struct

from citewire.agui.events import Json
from citewire.channels.actor import Actor

__all__ = ["RecordedCitation", "RecordedRetrieval", "RecordedReview", "RecordedRun", "RecordedVerdict"]


class RecordedReview(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """What somebody who looked at a citation did. `at` is the server's time, `claimed_at` the client's."""

    who: str
    event: str
    at: str
    dwell_ms: int | None = None
    claimed_at: str | None = None
    by: Actor | None = None


class RecordedRetrieval(Struct, frozen=True, omit_defaults=True):
    """A text that a run was given or retrieved."""

    name: str
    sha256: str
    size: int
    url: str | None = None
    page: int | None = None


class RecordedRun(Struct, frozen=True, omit_defaults=True, tag="run"):
    """A run: who asked for it, how it ended, what it retrieved.

    The sources it had are those after row `sources` of their log, 0 for none.
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
    """What became of what a citation quotes. `row` and `hash` are those of the row that says so.

    `origin` is set where a client brought the source.
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
    """A citation: by whom, in which answer, of what; the last verdict, those before it, and who looked at it.

    `cites` is what it says of its source. Without a verdict it is pending. Where it was not the agent who
    cited it, `annotation` is the serial of the annotation that did.
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
        """The last verdict, in a word."""
        return self.verdict.status if self.verdict else "pending"

    @property
    def who(self) -> str:
        """Who cited it, for people: nobody can take the name of the agent."""
        return self.by if self.annotation is None else f"{self.by or 'somebody'} (annotation)"

    @property
    def source(self) -> str:
        """What its source is called: by the verdict, else as it says itself."""
        said = (self.cites.get(name) for name in ("title", "attachmentId", "url"))
        return (self.verdict and self.verdict.source) or next((str(name) for name in said if name), "")

    @property
    def source_names(self) -> set[str]:
        """All that its source goes by."""
        names = {self.cites.get(name) for name in ("title", "attachmentId", "url", "siteName")}
        names.add(_host(self.cites.get("url")))
        if self.verdict:
            names |= {self.verdict.source, self.verdict.sha256}
        return {name for name in names if isinstance(name, str)}

    @property
    def people(self) -> set[str]:
        """All who had to do with it."""
        return {self.by, self.asked_by, *(review.who for review in self.reviews)}


def _host(url: Any) -> str | None:
    """The host of an address, by which channels count what is cited."""
    try:
        host = urlsplit(url).hostname if isinstance(url, str) else None
    except ValueError:
        return None
    return host and host.removeprefix("www.")
