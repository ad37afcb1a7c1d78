"""A thread: one numbered log of events, with two views.

`thread.agui` is the state of the AG-UI client, `thread.contract` the view of a citation front end. Reading a
view folds the entries added since its last read; returned values never change. Past states are available by
entry number, and a thread can be forked there.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, cast

from msgspec import UNSET, Struct

from citewire.agui import events as ev
from citewire.agui.events import Json
from citewire.agui.thread import log_entries as en
from citewire.agui.thread.client_view import ClientView, ClientViewFold
from citewire.agui.thread.contract_view import Contract, ContractFold
from citewire.agui.thread.log_entries import LogEntry
from citewire.agui.thread.persistent_list import ListSnapshot
from citewire.errors import CitewireError
from citewire.frozen import freeze
from citewire.text import one_line

__all__ = ["NotInLog", "Thread", "ThreadSnapshot"]

# Bytes of JSON between two checkpoints; the log holds about twice as many.
_CHECKPOINT_BYTES = 32 * 1024 * 1024
# Frequent events, whose size is estimated by their text.
_DELTA_EVENTS = frozenset({ev.TextMessageContent, ev.ReasoningMessageContent, ev.ToolCallArgs})
# Characters of an exception's text that are stored.
_LONGEST_ERROR = 2000
_TIMED = frozenset(
    {ev.ReasoningMessageStart, ev.ReasoningMessageEnd, ev.ReasoningMessageChunk, ev.MalformedEvent}
)


class NotInLog(CitewireError):
    """The entry number or message is not in the log, or no longer."""

    code = "not_in_log"


class ThreadSnapshot(Struct, frozen=True):
    """A thread as it was after `number` entries."""

    number: int
    agui: ClientView
    contract: Contract


class _Checkpoint(Struct, frozen=True):
    """Both folds as they were after `number` entries."""

    number: int
    mirror: ClientViewFold
    contract: ContractFold


class Thread:
    """The event log of a conversation, with its two views.

    `messages` and `state` are the initial content. With `seed_args` each fragment of tool arguments is parsed
    as the whole value; with `clear_removed` a patch that removes `/citations/<id>` clears that message's
    citations. The log holds at least the last `history` entries and at most twice as many, or fewer if they
    are large; the views reflect all entries.
    """

    def __init__(
        self,
        *,
        messages: Sequence[Json] = (),
        state: Any = None,
        seed_args: bool = False,
        clear_removed: bool = False,
        clock: Callable[[], float] = time.monotonic,
        history: int = 1 << 17,
    ) -> None:
        self._clock = clock
        self._history = history
        self._log: list[LogEntry] = []
        self._times: dict[int, float] = {}
        # Frozen once for both views.
        known, held = [freeze(message) for message in messages], freeze(state)
        self._client_fold = ClientViewFold(known, held)
        self._contract = ContractFold(known, held, seed_args, clear_removed)
        self._views: tuple[ClientView | None, Contract | None] = (None, None)
        # The number of dropped entries, the capacity of the log, and checkpoints at the start of the log and
        # at the last trim.
        self._floor = 0
        self._room, self._weight = history, 0
        self._checkpoints: list[_Checkpoint] = [
            _Checkpoint(0, self._client_fold.copy(), self._contract.copy())
        ]

    @property
    def number(self) -> int:
        """The number of the last entry, which is the count of all entries so far."""
        return self._floor + len(self._log)

    def entries(self, after: int = 0) -> Sequence[LogEntry]:
        """Return the entries after that number. Raises `NotInLog` if the log no longer has them."""
        if after < self._floor:
            raise NotInLog(f"the log starts after {self._floor}")
        return self._log[after - self._floor :]

    def apply(self, event: object) -> int:
        """Append an event, in any form that `events.coerce` accepts, and return its number.

        Bad input raises nothing: a value that is not an event becomes a problem of the thread. An event
        object is stored without a copy: the caller must not change its content.
        """
        return self._append(_entry(event))

    def extend(self, events: Iterable[object]) -> int:
        """Append many events, as `apply` does, and return the last number."""
        # `apply` is inlined, because logs are long.
        log, timed, weight = self._log, _TIMED, self._weight
        append = log.append
        entry: LogEntry
        for event in events:
            if type(event) is bytes:
                weight += len(event)
                try:
                    entry = ev.decode_plain(event)
                except ev.PLAIN_ERRORS:
                    entry = _entry(event)
                else:
                    entry = entry if entry.extra is UNSET else _entry(event)
            else:
                entry = _entry(event)
                weight += _weight(entry)
            append(entry)
            if type(entry) in timed:
                self._times[self.number] = self._clock()
            if weight >= _CHECKPOINT_BYTES or len(log) >= self._room:
                self._trim()
                weight = 0
        self._weight = weight
        return self.number

    def add_message(self, message: Json) -> int:
        """Append a message that was written locally."""
        return self._append(en.MessageAdded(freeze(message)))

    def set_messages(self, messages: Iterable[Json]) -> int:
        """Replace all messages."""
        return self._append(en.MessagesSet(tuple(map(freeze, messages))))

    def cut(self, message_id: str) -> int:
        """Remove the messages after this one, in both views."""
        return self._append(en.MessagesCut(message_id))

    def set_state(self, state: Any) -> int:
        """Replace the state."""
        return self._append(en.StateSet(freeze(state)))

    def open_stream(self, goes_on: bool = False) -> int:
        """Begin a new response. The order rules are reset, unless it resumes an interrupted one."""
        return self._append(en.StreamOpened(goes_on))

    def note(self, code: str, message: str) -> int:
        """Record a problem with received data that could still be read."""
        return self._append(en.ProblemNoted(code, message))

    def fail(self, error: str | BaseException, code: str = "run_failed") -> int:
        """Record that the run failed in transport, with this code or that of the error itself."""
        code = error.code if isinstance(error, CitewireError) else code
        return self._append(en.RunFailed(code, one_line(str(error) or type(error).__name__, _LONGEST_ERROR)))

    def stop(self) -> int:
        """Record that the run was stopped locally."""
        return self._append(en.RunStopped())

    @property
    def agui(self) -> ClientView:
        """The messages, state and interrupts that the AG-UI client holds."""
        self._fold_mirror()
        mirror, contract = self._views
        if mirror is None:
            mirror = self._client_fold.value
            self._views = (mirror, contract)
        return mirror

    @property
    def contract(self) -> Contract:
        """The view for a citation front end."""
        self._fold_contract()
        mirror, contract = self._views
        if contract is None:
            contract = self._contract.value
            self._views = (mirror, contract)
        return contract

    @property
    def state(self) -> Any:
        """The shared state."""
        return self.contract.state

    @property
    def problems(self) -> ListSnapshot:
        """Problems with received data. Those that only affect the AG-UI client are in `agui.problems`."""
        return self.contract.problems

    def at(self, number: int) -> ThreadSnapshot:
        """Return the thread as it was after `number` entries. Raises `NotInLog` if that is out of range."""
        mirror, contract = self._folds_at(number)
        return ThreadSnapshot(number, mirror.value, contract.value)

    def before(self, message_id: str) -> ThreadSnapshot:
        """Return the thread as it was before that message was added. Raises `NotInLog`."""
        self._fold_mirror()
        self._fold_contract()
        number = self._client_fold.born.get(message_id, self._contract.born.get(message_id))
        if number is None:
            raise NotInLog(f"no message is called {one_line(message_id, 80)}")
        return self.at(max(number - 1, 0))

    def fork(self, number: int) -> Thread:
        """Return an independent thread with the same first `number` entries. Raises `NotInLog`."""
        twin = Thread(clock=self._clock, history=self._history)
        twin._client_fold, twin._contract = self._folds_at(number)
        twin._floor, twin._log = self._floor, self._log[: number - self._floor]
        twin._times = {at: when for at, when in self._times.items() if at <= number}
        twin._checkpoints = [mark for mark in self._checkpoints if mark.number <= number]
        return twin

    def _append(self, entry: LogEntry) -> int:
        self._log.append(entry)
        self._weight += _weight(entry)
        if type(entry) in _TIMED:
            self._times[self.number] = self._clock()
        if len(self._log) >= self._room or self._weight >= _CHECKPOINT_BYTES:
            self._trim()
        return self.number

    def _trim(self) -> None:
        """Make a checkpoint, and drop the entries before the previous checkpoint."""
        self._fold_mirror()
        self._fold_contract()
        mark = self._checkpoints[-1]
        del self._log[: mark.number - self._floor]
        self._floor = mark.number
        self._times = {at: when for at, when in self._times.items() if at > self._floor}
        self._checkpoints = [mark, _Checkpoint(self.number, self._client_fold.copy(), self._contract.copy())]
        self._room, self._weight = len(self._log) + self._history, 0

    def _fold_mirror(self) -> None:
        if self._client_fold.number < self.number:
            self._client_fold.fold(self._log[self._client_fold.number - self._floor :], self._times)
            self._views = (None, self._views[1])

    def _fold_contract(self) -> None:
        if self._contract.number < self.number:
            self._contract.fold(self._log[self._contract.number - self._floor :], self._times)
            self._views = (self._views[0], None)

    def _folds_at(self, number: int) -> tuple[ClientViewFold, ContractFold]:
        if not self._floor <= number <= self.number:
            raise NotInLog(f"the log has {self._floor} to {self.number}, and not {number}")
        mark = next(mark for mark in reversed(self._checkpoints) if mark.number <= number)
        mirror, contract = mark.mirror.copy(), mark.contract.copy()
        log = self._log[mark.number - self._floor : number - self._floor]
        mirror.fold(log, self._times)
        contract.fold(log, self._times)
        return mirror, contract


def _weight(entry: Any) -> int:
    """Estimate the size of an entry in bytes; local entries are not counted."""
    kind = cast("type[Any]", type(entry))
    if kind in _DELTA_EVENTS and entry.raw_event is entry.metadata is entry.extra is UNSET:
        return len(entry.delta)
    if kind is ev.UnknownEvent or kind is ev.MalformedEvent:
        return len(entry.raw)
    try:
        return len(ev.encode(entry)) if isinstance(entry, ev.Event) else 0
    except CitewireError:
        return 0  # it cannot be encoded, so it was not received from a peer


def _entry(value: object) -> LogEntry:
    try:
        return ev.coerce(value)
    except CitewireError as exc:
        return en.InvalidEventReceived(exc.code, exc.message)
