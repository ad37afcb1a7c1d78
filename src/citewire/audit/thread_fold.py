"""Fold the log of one thread into its runs, retrievals, citations, verdicts and reviews."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from hashlib import sha256
from itertools import chain
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar, cast

import msgspec

from citewire import codec
from citewire.agui import events as ev
from citewire.agui.citations.message_state import CitationSeen, ReviewGiven, VerdictReached
from citewire.agui.citations.retrieval import RetrievedText, find_input_texts, find_result_texts
from citewire.agui.events import Json
from citewire.audit.record_types import (
    RecordedCitation,
    RecordedRetrieval,
    RecordedReview,
    RecordedRun,
    RecordedVerdict,
)
from citewire.audit.row_fields import LibrarianPassages, PublishedVerification, ReviewFields
from citewire.channels.actor import Actor
from citewire.channels.store import Row
from citewire.errors import CitewireError, InputError
from citewire.threadlog.rows import (
    EndedRun,
    EventRow,
    PostedReviewRow,
    RowKind,
    StartedRun,
    convert,
    decode_row,
)

__all__ = [
    "AGENT",
    "RecordedCitation",
    "RecordedRetrieval",
    "RecordedReview",
    "RecordedRun",
    "ThreadFold",
    "date_of",
]

_T = TypeVar("_T")

AGENT: Final = "agent"
"""Who cited where nobody else is said to have."""
_PROOF = re.compile(r"/proofs/[\w-]+\.([0-9a-f]{32})")

SourcesAt: TypeAlias = Callable[[int], int]
"""The row of the sources' log after which they were as they were at a tick; 0 for none."""


def date_of(tick: int) -> str:
    """Format the time of a tick. These texts sort by time."""
    try:
        return datetime.fromtimestamp(tick // 1000 / 1000, UTC).isoformat(timespec="milliseconds")
    except (ValueError, OverflowError, OSError):
        raise InputError(f"{tick} is no time") from None


class _RowPosition(NamedTuple):
    """The position of a row, instead of the row: the input of a run repeats the whole conversation."""

    n: int
    tick: int


class _RunFold:
    """A run that is being folded."""

    def __init__(self, at: _RowPosition, started: StartedRun) -> None:
        self.at, self.name = at, started.input.run_id
        self.who = _who(started.client_id, started.key)
        self.outcome: str | None = None
        self.tools: dict[str, str] = {}
        self.retrieved: dict[RecordedRetrieval, None] = {}


class ThreadFold:
    """The state after folding a thread's log. Pass the rows in order to `take`."""

    def __init__(self, thread: str) -> None:
        self.thread = thread
        self._runs: list[_RunFold] = []
        self._cited: dict[tuple[str, str, str, str | None], tuple[_RowPosition, _RunFold | None, Json]] = {}
        self._quotes: dict[tuple[str, str], str] = {}
        self._verdicts: dict[tuple[str, str], list[RecordedVerdict]] = {}
        self._reviews: dict[tuple[str, str], dict[ReviewFields, dict[RecordedReview, None]]] = {}

    def take(self, row: Row) -> None:
        """Fold a row. Raises `CitewireError` if it is invalid."""
        if row.kind == RowKind.EVENT and b"TOOL_CALL_" not in row.data:
            return
        match decode_row(row):
            case StartedRun() as started:
                self._begin(row, started)
            case EventRow(event, is_deferred=False):
                self._on_event(event)
            case CitationSeen() as cited:
                at = cited.message_id, cited.key, cited.by or "", cited.annotation
                run = self._runs[-1] if self._runs else None
                self._cited.setdefault(at, (_RowPosition(row.n, row.tick), run, cited.citation))
            case VerdictReached() as judged:
                at = judged.message_id, judged.key
                self._quotes[at] = judged.quote
                self._verdicts.setdefault(at, []).append(_verdict(row, judged))
            case ReviewGiven() as given:
                self._review(row, given, self._runs[-1].who if self._runs else "")
            case PostedReviewRow() as given:
                by = Actor(given.account, given.client_id, given.person)
                self._review(row, given, by.name, by)
            case EndedRun(outcome=outcome) if self._runs:
                self._runs[-1].outcome = outcome
            case _:
                pass

    def _begin(self, row: Row, started: StartedRun) -> None:
        self._runs.append(_RunFold(_RowPosition(row.n, row.tick), started))
        self._retrieve(find_input_texts(started.input.messages, started.input.context))

    def _on_event(self, event: ev.AnyEvent) -> None:
        if not self._runs:
            return
        run = self._runs[-1]
        if isinstance(event, ev.ToolCallStart):
            run.tools[event.tool_call_id] = event.tool_call_name
        elif isinstance(event, ev.ToolCallResult):
            self._retrieve(
                _by_librarian(event.content)
                or find_result_texts(event.content, run.tools.get(event.tool_call_id))
            )

    def _retrieve(self, texts: Iterable[RetrievedText]) -> None:
        self._runs[-1].retrieved |= dict.fromkeys(map(_found, texts))

    def _review(
        self, row: Row, given: ReviewGiven | PostedReviewRow, who: str, by: Actor | None = None
    ) -> None:
        """Record a review at the time of its row; the client's own time is recorded as `claimed_at`."""
        look = convert(given.review, ReviewFields)
        claimed = look.claimed_at if isinstance(given, PostedReviewRow) else look.at or None
        looks = self._reviews.setdefault((given.message_id, given.key), {})
        # Every run repeats the reviews in the state.
        if look not in looks or isinstance(given, PostedReviewRow):
            at = date_of(row.tick)
            looks.setdefault(look, {})[RecordedReview(who, look.event, at, look.dwell_ms, claimed, by)] = None

    def runs(self, sources_at: SourcesAt) -> Iterator[RecordedRun]:
        """Yield the runs, in order."""
        for run in self._runs:
            n, tick = run.at
            yield RecordedRun(
                self.thread, run.name, n, date_of(tick), run.who, sources_at(tick), run.outcome,
                [*run.retrieved],
            )  # fmt: skip

    def citations(self) -> Iterator[RecordedCitation]:
        """Yield the citations, in order."""
        for (message, key, by, annotation), (at, run, cites) in self._cited.items():
            looks = self._reviews.get((message, key), {})
            *earlier, last = self._verdicts.get((message, key)) or [None]
            said = self._quotes.get((message, key)) or str(cites.get("fullPhrase") or "")
            yield RecordedCitation(
                self.thread, run.name if run else "", message, key, at.n, date_of(at.tick),
                by or (AGENT if annotation is None else ""), run.who if run else "", said, cites, last,
                cast("list[RecordedVerdict]", earlier), [*chain.from_iterable(looks.values())], annotation,
            )  # fmt: skip


def _who(client_id: str | None, key: str | None) -> str:
    """Return the client id, or the key if the client id is the wildcard."""
    return client_id if client_id and client_id != "*" else key or ""


def _verdict(row: Row, judged: VerdictReached) -> RecordedVerdict:
    given = convert(judged.verification, PublishedVerification)
    note, proof = given.citewire, _PROOF.search(given.citewire.proof or "")
    return RecordedVerdict(
        note.status, given.verified_at or date_of(row.tick), row.n, row.hash.hex(), note.reason, note.source,
        note.sha256, note.page, proof and proof[1], note.origin,
    )  # fmt: skip


def _found(text: RetrievedText) -> RecordedRetrieval:
    data = text.text.encode("utf-8", "surrogatepass") if text.data is None else text.data
    name = text.title or text.id or text.url or "a text without a name"
    return RecordedRetrieval(name, sha256(data).hexdigest(), len(data), text.url, text.page)


def _by_librarian(content: Any) -> list[RetrievedText]:
    """Decode the passages found by our own agent, which has its own field names."""
    if not isinstance(content, str) or not content.startswith('{"found":'):
        return []
    try:
        found = msgspec.convert(codec.decode(content), LibrarianPassages).found
    except (CitewireError, msgspec.ValidationError):
        return []
    return [RetrievedText(each.says, title=each.file, page=each.page) for each in found]
