"""HTTP operations on the record: of a thread, of a source, and all of it as a file."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Annotated, Literal, TypeAlias

from msgspec import Meta, Struct
from starlette.responses import Response, StreamingResponse

from citewire import __version__, codec
from citewire.agui import events as ev
from citewire.audit import record
from citewire.audit.audit_filter import AuditFilter
from citewire.audit.csv_export import export_csv
from citewire.audit.html_export import export_html
from citewire.audit.jsonl_export import export_jsonl
from citewire.audit.record_types import RecordedCitation
from citewire.audit.signing import AuditKey
from citewire.audit.spool import Pieces, pieces_of, spool
from citewire.audit.thread_fold import AGENT, ThreadFold, date_of
from citewire.channels.store import CursorLost, Log, Row
from citewire.documents.document import Box
from citewire.documents.errors import DocumentError
from citewire.errors import Conflict, NotFound
from citewire.server.answers.proof_page import VerdictRecord
from citewire.server.http.operations import ApiCall, HtmlPage, Operation
from citewire.server.ops.timestamps import now_iso
from citewire.server.records.audit_trail import AuditTrail
from citewire.server.sources.catalog import Catalog
from citewire.threadlog.names import channel_of
from citewire.threadlog.rows import RowKind, convert, is_verdict

__all__ = ["RecordApi"]

# Threads read per request about a source: each is read from its first row to its last.
_THREADS = 20
# The length of a timestamp to a tenth of a second: events of one kind within it are one step.
_TENTH = len("2026-11-16T09:30:00.0")
_HARMLESS = {
    "content-security-policy": "default-src 'none'; style-src 'unsafe-inline'; sandbox",
    "x-content-type-options": "nosniff",
    "cache-control": "no-store",
}
_Word = Annotated[str, Meta(max_length=2048)]


class RecordStep(Struct, frozen=True):
    """An event of a thread. `n` is the row after which the thread has this state."""

    n: int
    at: str
    what: str


class ThreadRecord(Struct, frozen=True, rename="camel"):
    """The steps of a thread, and its citations with all verdicts and reviews."""

    thread_id: str
    steps: list[RecordStep]
    citations: list[RecordedCitation]


class Mention(Struct, frozen=True, rename="camel"):
    """A citation of a source: its answer and its place. `boxes` is empty for an earlier version."""

    thread_id: str
    message_id: str
    key: str
    status: str
    quote: str
    at: str
    page: int | None
    boxes: tuple[Box, ...]
    is_current: bool


class PageSize(Struct, frozen=True):
    """A page number with the page's size in points."""

    number: int
    width: float
    height: float


class Mentions(Struct, frozen=True):
    """The citations of a source by thread, the pages they are on, and the cursor of the next page."""

    citations: list[Mention]
    pages: list[PageSize]
    next: str | None


class MentionsQuery(Struct, frozen=True):
    """The thread after which to start."""

    after: _Word = ""


class AuditQuery(Struct, frozen=True):
    """A filter for the record, and the format of the export."""

    format: Literal["jsonl", "csv", "html"] = "jsonl"
    thread: _Word | None = None
    source: _Word | None = None
    status: _Word | None = None
    client: _Word | None = None
    since: _Word | None = None
    until: _Word | None = None


class RecordApi:
    """The operations on the record. `agent` is the client id of the agent's messages.

    `trail` signs a head for every export.
    """

    def __init__(self, log: Log, catalog: Catalog, agent: str, trail: AuditTrail) -> None:
        self._log, self._catalog, self._agent, self._trail = log, catalog, agent, trail

    def operations(self) -> list[Operation]:
        """Return the operations on the record."""
        return [
            Operation(
                method="GET", path="/threads/{thread}/record", gives=ThreadRecord,
                summary="What happened in a thread and when, its citations, and who looked at them",
                handle=self.thread, needs=("audit", "thread:{thread}"),
            ),
            Operation(
                method="GET", path="/sources/{source}/citations", query=MentionsQuery, gives=Mentions,
                summary="Who cites a source, and where on its pages",
                handle=self.source, needs=("trace", "source:{source}"),
            ),
            Operation(
                method="GET", path="/audit", query=AuditQuery, gives="application/jsonl",
                also=("text/csv", HtmlPage), summary="The record as a file, see `citewire audit export`",
                handle=self.audit, needs=("export", "audit"),
            ),
        ]  # fmt: skip

    async def thread(self, call: ApiCall) -> ThreadRecord:
        """Return the log of a thread for display."""
        name = call.path["thread"]
        fold, steps = ThreadFold(name), list[RecordStep]()
        async for row in self._rows(name):
            fold.take(row)
            if (step := _step(row)) is None:
                continue
            if steps and steps[-1].what == step.what and steps[-1].at[:_TENTH] == step.at[:_TENTH]:
                steps.pop()
            steps.append(step)
        if not steps:
            raise NotFound("there is no such thread")
        return ThreadRecord(name, steps, [*fold.citations()])

    async def source(self, call: ApiCall) -> Mentions:
        """Return the verdicts that refer to a source, from threads that the caller may read."""
        source_id, after = call.path["source"], call.query.after
        versions = self._catalog.threads_citing(source_id)
        current = self._catalog.record(source_id).sha256
        names = sorted({name for threads in versions.values() for name in threads if name > after})
        names = [name for name in names if call.caller.may("read", f"thread:{name}")]
        found: list[Mention] = []
        for name in names[:_THREADS]:
            found += [each async for each in self._mentions(name, {*versions}, current)]
        more = names[_THREADS - 1] if len(names) > _THREADS else None
        pages = {box.page for mention in found for box in mention.boxes}
        return Mentions(found, await self._sizes(source_id, pages) if pages else [], more)

    async def audit(self, call: ApiCall) -> Response:
        """Stream the record as a file."""
        query: AuditQuery = call.query
        client = AGENT if query.client == self._agent else query.client
        which = AuditFilter.parse(
            thread=query.thread, source=query.source, status=query.status, client=client, since=query.since,
            until=query.until,
        )  # fmt: skip
        made = now_iso()
        name = f"citewire-{made[:19].replace(':', '')}.{query.format}"
        media, pieces = _FORMS[query.format]
        headers = {**_HARMLESS, "content-disposition": f'attachment; filename="{name}"'}
        await self._trail.sign()
        by, key = f"citewire {__version__}", self._trail.key
        file = await spool(self._log, lambda log: pieces(log, which, made, by, key))
        return StreamingResponse(pieces_of(file), media_type=media, headers=headers)

    async def _rows(self, thread_id: str) -> AsyncIterator[Row]:
        """Yield the rows of a thread. Empty if it does not exist; stops if it is deleted meanwhile."""
        chain = await record.read_chain(self._log, channel_of(thread_id))
        try:
            if chain:
                async for row in record.read_rows(self._log, chain):
                    yield row
        except CursorLost:
            return

    async def _mentions(
        self, thread_id: str, versions: set[str], current: str | None
    ) -> AsyncIterator[Mention]:
        """Yield the latest verdicts of a thread that refer to one of these versions."""
        last: dict[tuple[str, str], VerdictRecord] = {}
        async for row in self._rows(thread_id):
            if is_verdict(row):
                judged = convert(codec.decode_with_surrogates(row.data), VerdictRecord)
                last[judged.message_id, judged.key] = judged
        for each in last.values():
            place = each.verification.citewire
            if place.sha256 in versions:
                is_current = place.sha256 == current
                yield Mention(
                    thread_id, each.message_id, each.key, place.status, each.quote,
                    each.verification.verified_at, place.page, place.boxes if is_current else (), is_current,
                )  # fmt: skip

    async def _sizes(self, source_id: str, pages: set[int]) -> list[PageSize]:
        try:
            document = await self._catalog.text(source_id)
        except (Conflict, DocumentError):
            return []
        return [
            PageSize(each.number, each.width, each.height) for each in document.pages if each.number in pages
        ]


def _step(row: Row) -> RecordStep | None:
    """Return the visible step that a row made, or None."""
    match row.kind:
        case RowKind.EVENT | RowKind.DEFERRED_EVENT:
            what = ev.decode(row.data).type
        case RowKind.INPUT | RowKind.REVIEW | RowKind.END:
            what = row.kind
        case _:
            return None
    return RecordStep(row.n, date_of(row.tick), what)


def _csv(log: Log, which: AuditFilter, _made: str, _by: str, _key: AuditKey) -> AsyncIterator[str]:
    return export_csv(log, which)


def _html(log: Log, which: AuditFilter, made: str, by: str, _key: AuditKey) -> AsyncIterator[str]:
    return export_html(log, which, made, by)


_Form: TypeAlias = Callable[[Log, AuditFilter, str, str, AuditKey], Pieces]
_FORMS: dict[str, tuple[str, _Form]] = {
    "jsonl": ("application/jsonl", export_jsonl),
    "csv": ("text/csv", _csv),
    "html": ("text/html", _html),
}
