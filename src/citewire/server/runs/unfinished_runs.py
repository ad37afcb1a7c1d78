"""How a thread was left: the run in its log that has no end."""

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
from citewire.channels.store import Cursor, Row, Store
from citewire.codec import decode_as
from citewire.dialects.base import is_object
from citewire.server.runs.journal import TERMINAL, StartedRun
from citewire.server.runs.node_requests import read_request

__all__ = ["UnfinishedRun", "cursor_before", "find_unfinished_run", "has_unfinished_run", "read_rows_after"]

_PAGE = 1000
# Rows that are looked at from the end to know how a thread was left.
_BACK = 64


class UnfinishedRun(Struct, frozen=True):
    """A run that has no end. It lies between `after` and `end`; it `was_stopped` if that was asked for."""

    started: StartedRun
    after: Cursor
    end: Cursor
    sent: list[AnyEvent]
    was_stopped: bool

    @property
    def has_ended(self) -> bool:
        """Whether its last event told of its end, which only was not written down."""
        return bool(self.sent) and self.sent[-1].type in TERMINAL

    def restarted(self) -> StartedRun:
        """What the run starts with when the agent is asked again.

        The input without posted messages whose ids the agent has taken for its own: they were withdrawn, and
        must not be put back in front of the answer.
        """
        return replace(self.started, input=_without_taken(self.started.input, self.sent))

    def restart_events(self, state_key: str) -> list[AnyEvent] | None:
        """What a client that was sent this has to be told before it can take the run from its start again."""
        return _anew(self.restarted().input, self.sent, state_key) if self.sent else None


async def find_unfinished_run(store: Store, channel: str) -> UnfinishedRun | None:
    """The run of a thread that has no end; None where all have."""
    rows = await _since(store, channel, {"input", "over"})
    if not rows or rows[0].kind == "over":
        return None
    started: StartedRun = decode_as(rows[0].data, StartedRun)
    asks = [read_request(row) for row in rows if row.kind == "ask"]
    return UnfinishedRun(
        started,
        cursor_before(rows[0]),
        rows[-1].cursor,
        [ev.decode(row.data) for row in rows if row.kind == "event"],
        any(ask.what == "stopped" and ask.run_id == started.input.run_id for ask in asks),
    )


async def has_unfinished_run(store: Store, channel: str) -> bool:
    """Whether a run of a thread has no end, without all that was said in it."""
    rows = await _since(store, channel, {"input", "event", "over"})
    return bool(rows) and rows[0].kind != "over"


async def read_rows_after(store: Store, channel: str, after: Cursor) -> AsyncGenerator[Row]:
    """All rows that are there by now."""
    while rows := await store.read(channel, after, _PAGE):
        for row in rows:
            yield row
        after = rows[-1].cursor


def cursor_before(row: Row) -> Cursor:
    """The cursor after which this row comes."""
    return Cursor(row.epoch, row.n - 1)


async def _since(store: Store, channel: str, kinds: set[str]) -> list[Row]:
    """The last row of these kinds, and those after it."""
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
    """The input without messages that a client posted under the ids of messages that were started since."""
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


def _anew(run_input: RunInput, sent: list[AnyEvent], state_key: str) -> list[AnyEvent]:
    gate = ProtocolEnforcer()
    with suppress(ProtocolError):
        for event in sent:
            deque(gate.admit(event), maxlen=0)
    state = run_input.state
    if is_object(state):  # what the first attempt put on record does not count any more
        state = {state_key: INITIAL_DEEPCITATION_STATE, **state}
    return [
        *gate.closing_events(),
        ev.MessagesSnapshot(filter_sendable(run_input.messages)),
        ev.StateSnapshot(state),
    ]
