"""Write a run into the log of its thread, and logged events as frames of a stream."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Self, TypeAlias
from uuid import uuid4

from citewire.agui import events as ev
from citewire.agui.citations.message_state import AuditRecord, VerdictReached
from citewire.agui.events import AnyEvent, Event, MalformedEvent, UnknownEvent
from citewire.channels.hub import Hub
from citewire.channels.store import Entry, Row, StoreError
from citewire.errors import CitewireError
from citewire.threadlog.rows import TERMINAL, EndedRun, EventRow, Outcome, RowKind, ThreadRow, encode_row

__all__ = ["RunJournal", "encode_frame", "encode_frames"]

# Entries that may be queued while earlier ones are being written.
_AHEAD = 256
# Seconds before a failed write is retried: the first and the longest delay.
_SOON, _LATER = 0.1, 1.0
_EVENTS = Event | UnknownEvent | MalformedEvent

OnVerdicts: TypeAlias = Callable[[Sequence[VerdictReached]], Awaitable[None]]


class RunJournal:
    """A `RunSink` that writes one run into the log of its thread.

    Entries that arrive during a write are queued and written together afterwards. A run therefore waits for
    the log only when the queue is full, and at the end of the block. `is_over` says whether a terminal event
    arrived, `is_ended` whether the end is being written. With `goes_on`, the run has started before and its
    start event is skipped. With `is_deferred`, only state events are written. `reached` is called with
    verdicts before they are stored, `kept` after each write. Store errors are retried for `patience` seconds.
    """

    def __init__(
        self,
        hub: Hub,
        channel: str,
        reached: OnVerdicts,
        kept: Callable[[], None] = lambda: None,
        *,
        goes_on: bool = False,
        is_deferred: bool = False,
        patience: float = 0.0,
    ) -> None:
        self._hub, self._channel, self._reached, self._kept = hub, channel, reached, kept
        self._skips_start, self._is_deferred, self._patience = goes_on, is_deferred, patience
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
        entries.append(self._encode(EndedRun(run_id, outcome)))
        await self._append(entries)
        self._kept()

    def _entry(self, item: AnyEvent | AuditRecord) -> Entry | None:
        if not isinstance(item, _EVENTS):
            return self._encode(item)
        if isinstance(item, ev.RunStarted):
            self.is_over = self.failed = False
            if self._skips_start:
                self._skips_start = False
                return None
        elif item.type in TERMINAL:
            self.is_over, self.failed = True, item.type == "RUN_ERROR"
        if self._is_deferred and not isinstance(item, ev.StateDelta | ev.StateSnapshot):
            return None
        return self._encode(EventRow(item, self._is_deferred))

    def _encode(self, row: ThreadRow) -> Entry:
        self._count += 1
        return encode_row(row, f"{self._attempt}.{self._count}")


def encode_frame(row: Row) -> bytes:
    """Encode a logged event as an SSE frame. Its id is the cursor for resuming after it."""
    return b"id: %b\ndata: %b\n\n" % (str(row.cursor).encode(), row.data)


def encode_frames(rows: Sequence[Row]) -> bytes:
    """Encode the events among the rows as SSE frames."""
    return b"".join(encode_frame(row) for row in rows if row.kind == RowKind.EVENT)
