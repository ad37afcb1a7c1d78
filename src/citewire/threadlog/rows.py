"""The rows of a thread's log: one type per row, encoded and decoded only here.

| kind in the store | type | meaning |
|---|---|---|
| `input` | `StartedRun` | the accepted input of a run, and the client that posted it |
| `event` | `EventRow` | an AG-UI event, as it was sent |
| `late` | `EventRow`, `is_deferred` | an event of ours after the run: part of the state, but of no stream |
| `record` | `RecordRow` | what happened to a citation: seen, judged, reviewed, withdrawn |
| `review` | `PostedReviewRow` | what a user did with a citation, posted to the server |
| `over` | `EndedRun` | the end of a run, after its last event |
| `ask` | `NodeRequest` | a request from one node to another |

`decode_row` gives `UnknownRow` for rows of a later version.
"""

from __future__ import annotations

import re
from typing import Any, Final, Literal, TypeAlias, TypeVar

import msgspec
from msgspec import Struct, to_builtins

from citewire import codec
from citewire.agui import events as ev
from citewire.agui.citations.message_state import AuditRecord, CitationSeen, ReviewGiven, VerdictReached
from citewire.agui.events import AnyEvent, Json, RunInput
from citewire.channels.store import Entry, Row
from citewire.errors import ShapeError
from citewire.threadlog.names import annotation_id, input_id, proof_id

__all__ = [
    "EndedRun", "EventRow", "IgnoredPart", "NodeRequest", "Outcome", "PostedReviewRow", "RequestKind",
    "RowKind", "StartedRun", "TERMINAL", "ThreadRow", "UnknownRow", "WithdrawnCitations", "convert",
    "decode_event", "decode_row", "encode_row", "is_verdict",
]  # fmt: skip

_T = TypeVar("_T")

TERMINAL = ("RUN_FINISHED", "RUN_ERROR")
"""The types of the last event of a run."""
Outcome = Literal["finished", "failed", "stopped", "abandoned", "superseded", "interrupted", "timed_out"]
RequestKind: TypeAlias = Literal["stopped", "superseded", "abandoned", "watched", "cited", "left"]
IgnoredPart: TypeAlias = Literal["messages", "state"]
"""The part of an input in which a client contradicted the log."""

# The URL of a proof, inside the verdict that it proves.
_PROOF = re.compile(rb'"proof":"[^"]*/proofs/[\w-]+\.([0-9a-f]{32})')
_VERDICT = b'{"type":"verdict"'


class RowKind:
    """The kinds of rows, as the store has them."""

    INPUT: Final = "input"
    EVENT: Final = "event"
    DEFERRED_EVENT: Final = "late"
    RECORD: Final = "record"
    REVIEW: Final = "review"
    END: Final = "over"
    REQUEST: Final = "ask"


class StartedRun(Struct, frozen=True, rename="camel"):
    """A requested run and its caller.

    `input` is the accepted input. `ignored` lists the parts where the client contradicted the log about the
    server's own answers.
    """

    input: RunInput
    key: str | None = None
    client_id: str | None = None
    ignored: tuple[IgnoredPart, ...] = ()


class EventRow(Struct, frozen=True):
    """An AG-UI event. One that `is_deferred` was written after the run and sent to no stream."""

    event: AnyEvent
    is_deferred: bool = False


class WithdrawnCitations(Struct, frozen=True):
    """A client's deletion of citations that it had attached to a message as annotations."""

    message_id: str
    annotations: list[str]
    by: str | None = None


class PostedReviewRow(Struct, frozen=True, rename="camel"):
    """A review that was posted to the server, and the person who posted it."""

    message_id: str
    key: str
    review: Json
    client_id: str | None = None
    account: str | None = None
    person: str | None = None


class EndedRun(Struct, frozen=True, rename="camel"):
    """The end of a run, with its outcome."""

    run_id: str
    outcome: Outcome


class NodeRequest(Struct, frozen=True, rename="camel"):
    """A request, the run it concerns (if any), and the node that sent it."""

    what: RequestKind
    run_id: str | None
    by: str


class UnknownRow(Struct, frozen=True):
    """A row of a kind that this version does not know."""

    kind: str


class _RecordType(Struct, frozen=True):
    """The field that all records have."""

    type: str


RecordRow: TypeAlias = AuditRecord | WithdrawnCitations
ThreadRow: TypeAlias = (
    StartedRun | EventRow | RecordRow | PostedReviewRow | EndedRun | NodeRequest | UnknownRow
)

_KINDS: dict[type[Any], str] = {
    StartedRun: RowKind.INPUT,
    PostedReviewRow: RowKind.REVIEW,
    EndedRun: RowKind.END,
    NodeRequest: RowKind.REQUEST,
}
_TYPES: dict[str, type[Any]] = {kind: of for of, kind in _KINDS.items()}
_RECORDS: dict[str, type[RecordRow]] = {
    "citation": CitationSeen,
    "verdict": VerdictReached,
    "review": ReviewGiven,
    "withdrawal": WithdrawnCitations,
}
_RECORD_NAMES: dict[type[Any], str] = {of: name for name, of in _RECORDS.items()}


def decode_row(row: Row) -> ThreadRow:
    """Decode a row. Raises `CitewireError` if it is invalid."""
    match row.kind:
        case RowKind.EVENT | RowKind.DEFERRED_EVENT:
            return EventRow(ev.decode(row.data), row.kind == RowKind.DEFERRED_EVENT)
        case RowKind.RECORD:
            return _decode_record(codec.decode_with_surrogates(row.data))
        case kind if kind in _TYPES:
            return convert(codec.decode_with_surrogates(row.data), _TYPES[kind])
        case _:
            return UnknownRow(row.kind)


def decode_event(row: Row) -> AnyEvent | None:
    """Return the event that was sent to the run's stream; None for any other row."""
    return ev.decode(row.data) if row.kind == RowKind.EVENT else None


def is_verdict(row: Row) -> bool:
    """Return whether the row holds a verdict, without decoding it."""
    return row.kind == RowKind.RECORD and row.data.startswith(_VERDICT)


def _decode_record(value: Any) -> RecordRow | UnknownRow:
    of = _RECORDS.get(convert(value, _RecordType).type)
    return convert(value, of) if of else UnknownRow(RowKind.RECORD)


def convert(value: Any, kind: type[_T]) -> _T:
    """Convert a decoded value to that type. Raises `ShapeError`."""
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as exc:
        raise ShapeError(str(exc)) from exc


def encode_row(row: ThreadRow, id: str) -> Entry:  # noqa: A002  # as it is called in an entry
    """Encode a row. A row that must be written only once has an id of its own instead of `id`."""
    match row:
        case EventRow(event, is_deferred):
            return Entry(id, RowKind.DEFERRED_EVENT if is_deferred else RowKind.EVENT, ev.encode(event))
        case StartedRun():
            return Entry(input_id(row.input.run_id), RowKind.INPUT, ev.write_json(row))
        case PostedReviewRow() | EndedRun() | NodeRequest():
            return Entry(id, _KINDS[type(row)], codec.encode(row))
        case UnknownRow():
            raise ShapeError("a row of an unknown kind cannot be written")
        case _:
            data = ev.write_json({"type": _RECORD_NAMES[type(row)], **to_builtins(row)})
            return Entry(_record_id(row, data) or id, RowKind.RECORD, data)


def _record_id(row: RecordRow, data: bytes) -> str | None:
    match row:
        case CitationSeen(annotation=str(serial)) if serial:
            return annotation_id(serial)
        case VerdictReached():
            proof = _PROOF.search(data)
            return proof_id(proof[1].decode()) if proof else None
        case _:
            return None
