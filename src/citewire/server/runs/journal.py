"""The log of a thread: the kinds of its rows, and the journal that writes a run into it.

| kind | data |
|---|---|
| `input` | the accepted part of the input that a client posted to start a run, and the client |
| `event` | an AG-UI event, as it was sent |
| `late` | an event of ours after the run had ended: part of the state, but of no stream |
| `record` | a citation that was seen, or a verdict on one |
| `review` | what a user did with a citation |
| `over` | the end of a run, after its last event |
| `ask` | a request from one node to another: see `node_requests` |
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Sequence
from typing import Literal, Self, TypeAlias
from urllib.parse import quote, unquote
from uuid import uuid4

from msgspec import Struct, to_builtins

from citewire import codec
from citewire.agui import events as ev
from citewire.agui.citations.message_state import AuditRecord, CitationSeen, ReviewGiven, VerdictReached
from citewire.agui.events import AnyEvent, Event, MalformedEvent, RunInput, UnknownEvent
from citewire.channels.hub import Hub
from citewire.channels.store import Entry, Row, StoreError
from citewire.errors import CitewireError, InputError
from citewire.server.runs.authority import IgnoredPart

__all__ = [
    "EndedRun",
    "RunJournal",
    "StartedRun",
    "TERMINAL",
    "annotation_id",
    "channel_of",
    "encode_frame",
    "encode_frames",
    "input_id",
    "proof_id",
    "thread_of",
]

_PREFIX = "run:"
_LONGEST_NAME = 512
# Entries that may be queued while earlier ones are being written.
_AHEAD = 256
# Seconds before a failed write is retried: the first and the longest delay.
_SOON, _LATER = 0.1, 1.0
# The URL of a proof, inside the verdict that it proves.
_PROOF = re.compile(rb'"proof":"[^"]*/proofs/[\w-]+\.([0-9a-f]{32})')
_RECORDS: dict[type[AuditRecord], str] = {
    CitationSeen: "citation",
    ReviewGiven: "review",
    VerdictReached: "verdict",
}
TERMINAL = ("RUN_FINISHED", "RUN_ERROR")
_EVENTS = Event | UnknownEvent | MalformedEvent

OnVerdicts: TypeAlias = Callable[[Sequence[VerdictReached]], Awaitable[None]]
Outcome = Literal["finished", "failed", "stopped", "abandoned", "superseded", "interrupted", "timed_out"]


class StartedRun(Struct, frozen=True, rename="camel"):
    """A requested run and its caller.

    `input` is the accepted input. `ignored` lists the parts where the client contradicted the log about the
    server's own answers.
    """

    input: RunInput
    key: str | None = None
    client_id: str | None = None
    ignored: tuple[IgnoredPart, ...] = ()


class EndedRun(Struct, frozen=True, rename="camel"):
    """The end of a run, with its outcome."""

    run_id: str
    outcome: Outcome


def channel_of(thread_id: str) -> str:
    """Return the channel that holds the log of a thread. Raises `InputError` for an invalid id."""
    channel = _PREFIX + quote(thread_id, safe="", errors="strict") if _is_text(thread_id) else ""
    if not len(_PREFIX) < len(channel) <= _LONGEST_NAME:
        raise InputError("the id of a thread is text of 1 to about 500 bytes", "threadId")
    return channel


def _is_text(text: str) -> bool:
    return not any("\ud800" <= char <= "\udfff" for char in text)


def thread_of(channel: str) -> str:
    """Return the id of the thread whose log is in this channel."""
    return unquote(channel.removeprefix(_PREFIX))


def input_id(run_id: str) -> str:
    """Return the id of the row that starts a run. It makes starting a run idempotent."""
    name = f"input:{run_id}"
    if not run_id or not _is_text(run_id) or len(name.encode()) > _LONGEST_NAME or "\0" in run_id:
        raise InputError("the id of a run is text of 1 to about 500 bytes", "runId")
    return name


def proof_id(name: str) -> str:
    """Return the id of the row that holds the verdict with this proof."""
    return f"proof:{name}"


def annotation_id(serial: str) -> str:
    """Return the id of the row with the citation from this annotation, so that it is added only once."""
    return f"annotation:{serial}"


class RunJournal:
    """A `RunSink` that writes one run into the log of its thread.

    Entries that arrive during a write are queued and written together afterwards. A run therefore waits for
    the log only when the queue is full, and at the end of the block. `is_over` says whether a terminal event
    arrived, `is_ended` whether the end is being written. With `goes_on`, the run has started before and its
    start event is skipped. `reached` is called with verdicts before they are stored, `kept` after each write.
    Store errors are retried for `patience` seconds.
    """

    def __init__(
        self,
        hub: Hub,
        channel: str,
        reached: OnVerdicts,
        kept: Callable[[], None] = lambda: None,
        *,
        goes_on: bool = False,
        kind: str = "event",
        patience: float = 0.0,
    ) -> None:
        self._hub, self._channel, self._reached, self._kept, self._kind = hub, channel, reached, kept, kind
        self._skips_start, self._patience = goes_on, patience
        # Two attempts at a run must write different row ids.
        self._attempt, self._count = uuid4().hex, 0
        self._waiting: list[Entry] = []
        self._writing: asyncio.Task[None] | None = None
        self._is_closed = False
        self.is_over = self.is_ended = False
        self.failed = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._written()

    async def put(self, thread_id: str, run_id: str, items: Sequence[AnyEvent | AuditRecord]) -> None:
        """Queue items for writing (see `RunSink`). Raises the error of an earlier write that failed."""
        del thread_id, run_id
        if self._is_closed:
            return
        if verdicts := [item for item in items if isinstance(item, VerdictReached)]:
            await self._reached(verdicts)
        if len(self._waiting) >= _AHEAD or (self._writing and self._writing.done()):
            await self._written()
        self._waiting += [entry for item in items if (entry := self._entry(item)) is not None]
        if self._waiting and self._writing is None:
            self._writing = asyncio.create_task(self._write())

    async def _write(self) -> None:
        while self._waiting:
            entries, self._waiting = self._waiting, []
            try:
                await self._append(entries)
            except CitewireError:
                self.is_over = False  # the terminal event may not be stored
                raise
            self._kept()

    async def _append(self, entries: Sequence[Entry]) -> None:
        """Append the entries, retrying on store errors. Row ids make this idempotent."""
        loop, delay = asyncio.get_running_loop(), _SOON
        until = loop.time() + self._patience
        while True:
            try:
                await self._hub.append(self._channel, entries)
            except StoreError:
                if loop.time() + delay > until:
                    self._patience = 0.0  # clients have waited long enough; do not retry again
                    raise
            else:
                return
            await asyncio.sleep(delay)
            delay = min(2 * delay, _LATER)

    async def wait_written(self) -> None:
        """Wait until everything queued is stored, or has failed."""
        if self._writing:
            await asyncio.wait([self._writing])

    def close(self) -> None:
        """Discard what is queued and ignore further items: another node owns the run now."""
        self._is_closed = True
        self._waiting.clear()
        if self._writing:
            self._writing.cancel()

    async def _written(self) -> None:
        """Wait until everything queued is stored. Raises the write's error."""
        if self._writing:
            await asyncio.shield(self._writing)
            self._writing = None

    async def end(self, run_id: str, outcome: Outcome, *events: AnyEvent) -> None:
        """Write the end of the run after its block, and `events` before it unless a terminal event came."""
        self.is_ended = True
        told = () if self.is_over else [*map(self._entry, events)]
        entries = [entry for entry in told if entry is not None]
        entries.append(self._numbered("over", codec.encode(EndedRun(run_id, outcome))))
        await self._append(entries)
        self._kept()

    def _entry(self, item: AnyEvent | AuditRecord) -> Entry | None:
        if not isinstance(item, _EVENTS):
            return self._record(item)
        if isinstance(item, ev.RunStarted):
            self.is_over = self.failed = False
            if self._skips_start:
                self._skips_start = False
                return None
        elif item.type in TERMINAL:
            self.is_over, self.failed = True, item.type == "RUN_ERROR"
        if self._kind == "late" and not isinstance(item, ev.StateDelta | ev.StateSnapshot):
            return None
        return self._numbered(self._kind, ev.encode(item))

    def _record(self, record: AuditRecord) -> Entry:
        name = _RECORDS[type(record)]
        data = ev.write_json({"type": name, **to_builtins(record)})
        entry = self._numbered("record", data)
        if isinstance(record, CitationSeen) and record.annotation:
            return Entry(annotation_id(record.annotation), entry.kind, data)
        proof = _PROOF.search(data) if name == "verdict" else None
        return Entry(proof_id(proof[1].decode()), entry.kind, data) if proof else entry

    def _numbered(self, kind: str, data: bytes) -> Entry:
        self._count += 1
        return Entry(f"{self._attempt}.{self._count}", kind, data)


def encode_frame(row: Row) -> bytes:
    """Encode a logged event as an SSE frame. Its id is the cursor for resuming after it."""
    return b"id: %b\ndata: %b\n\n" % (str(row.cursor).encode(), row.data)


def encode_frames(rows: Sequence[Row]) -> bytes:
    """Encode the events among the rows as SSE frames."""
    return b"".join(encode_frame(row) for row in rows if row.kind == "event")
