"""Find the run of a thread that never finished, for example because its node died."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncGenerator
from contextlib import suppress

from msgspec import Struct
from msgspec.structs import replace

from citewire.agui import events as ev
from citewire.agui.citations.posted_messages import id_of, is_posted, role_of, started_message_id
from citewire.agui.citations.shared_state import CITATIONS, INITIAL_DEEPCITATION_STATE
from citewire.agui.events import AnyEvent, RunInput
from citewire.agui.protocol import ProtocolEnforcer, ProtocolError
from citewire.agui.shapes import filter_sendable
from citewire.channels.store import Cursor, Row, RowReader
from citewire.dialects.base import is_object
from citewire.threadlog.rows import (
    TERMINAL,
    NodeRequest,
    RowKind,
    StartedRun,
    ThreadRow,
    decode_event,
    decode_row,
)

__all__ = ["UnfinishedRun", "cursor_before", "find_unfinished_run", "has_unfinished_run", "read_rows_after"]

_PAGE = 1000
# Rows read from the end of the log in the first attempt.
_BACK = 64


class UnfinishedRun(Struct, frozen=True):
    """A run without an end, between the cursors `after` and `end`. `was_stopped`: its end was requested."""

    started: StartedRun
    after: Cursor
    end: Cursor
    sent: list[AnyEvent]
    was_stopped: bool

    @property
    def has_ended(self) -> bool:
        """Whether its last event was terminal, and only the row for the end is missing."""
        return bool(self.sent) and self.sent[-1].type in TERMINAL

    def restarted(self) -> StartedRun:
        """Return the start of the run for calling the agent again.

        Omits posted messages whose ids the agent has since used: they were withdrawn, and must not reappear
        before the answer.
        """
        return replace(self.started, input=_without_taken(self.started.input, self.sent))

    def restart_events(self, state_key: str) -> list[AnyEvent] | None:
        """Return the events that reset a client that received part of the run; None if nothing was sent."""
        return _reset_events(self.restarted().input, self.sent, state_key) if self.sent else None


async def find_unfinished_run(store: RowReader, channel: str) -> UnfinishedRun | None:
    """Return the thread's run without an end, or None if every run has ended."""
    rows = await _since(store, channel, {RowKind.INPUT, RowKind.END})
    started = decode_row(rows[0]) if rows else None
    if not isinstance(started, StartedRun):
        return None
    requests = [decode_row(row) for row in rows if row.kind == RowKind.REQUEST]
    return UnfinishedRun(
        started,
        cursor_before(rows[0]),
        rows[-1].cursor,
        [event for row in rows if (event := decode_event(row))],
        any(_is_stop(each, started.input.run_id) for each in requests),
    )


def _is_stop(request: ThreadRow, run_id: str) -> bool:
    return isinstance(request, NodeRequest) and request.what == "stopped" and request.run_id == run_id


async def has_unfinished_run(store: RowReader, channel: str) -> bool:
    """Return whether a run of the thread has no end, without reading all of its events."""
    rows = await _since(store, channel, {RowKind.INPUT, RowKind.EVENT, RowKind.END})
    return bool(rows) and rows[0].kind != RowKind.END


async def read_rows_after(store: RowReader, channel: str, after: Cursor) -> AsyncGenerator[Row]:
    """Yield all rows after the cursor that exist now."""
    while rows := await store.read(channel, after, _PAGE):
        for row in rows:
            yield row
        after = rows[-1].cursor


def cursor_before(row: Row) -> Cursor:
    """Return the cursor right before this row."""
    return Cursor(row.epoch, row.n - 1)


async def _since(store: RowReader, channel: str, kinds: set[str]) -> list[Row]:
    """Return the last row of these kinds and all rows after it."""
    head = await store.head(channel)
    if head is None:
        return []
    back = _BACK
    while True:
        start = max(0, head.n - back)
        rows = [row async for row in read_rows_after(store, channel, Cursor(head.epoch, start))]
        for at in range(len(rows) - 1, -1, -1):
            if rows[at].kind in kinds:
                return rows[at:]
        if start == 0:
            return []
        back *= 4


def _without_taken(run_input: RunInput, sent: list[AnyEvent]) -> RunInput:
    """Remove posted messages whose ids were used by messages started since."""
    roles = {id_of(each): role_of(each) for each in run_input.messages}
    started = {started_message_id(event, roles.get) for event in sent}
    taken = {
        id_of(each)
        for each in run_input.messages
        if id_of(each) in started and (is_posted(each) or role_of(each) == "user")
    } - {""}
    if not taken:
        return run_input
    messages = [each for each in run_input.messages if id_of(each) not in taken]
    state = run_input.state
    if is_object(state) and is_object(lists := state.get(CITATIONS)):
        state = {**state, CITATIONS: {name: each for name, each in lists.items() if name not in taken}}
    return replace(run_input, messages=messages, state=state)


def _reset_events(run_input: RunInput, sent: list[AnyEvent], state_key: str) -> list[AnyEvent]:
    gate = ProtocolEnforcer()
    with suppress(ProtocolError):
        for event in sent:
            deque(gate.admit(event), maxlen=0)
    state = run_input.state
    if is_object(state):  # discard the record of the first attempt
        state = {state_key: INITIAL_DEEPCITATION_STATE, **state}
    return [
        *gate.closing_events(),
        ev.MessagesSnapshot(filter_sendable(run_input.messages)),
        ev.StateSnapshot(state),
    ]
