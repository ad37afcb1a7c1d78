"""Client API for one conversation with an agent: submit, stop, retry, regenerate, reconnect.

`Agent` runs an `AgentPort` and records its events in a `Thread`. A run that fails raises nothing: its error
is in the contract. Only misuse raises:

    AgentError
    ├── OpenInterrupts     a pending interrupt has no response, or has expired
    ├── CannotRegenerate   a run is active, or the message is not an answer
    └── CannotConnect      the source cannot join a run, or no event id is known to resume from
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Self, TypeAlias, cast
from uuid import uuid4

from msgspec import UNSET, UnsetType

from citewire.agui.agents import (
    AgentPort,
    BaseAgent,
    Connectable,
    RunRequest,
    close_if_supported,
    iterate_events,
    set_agent_messages,
    start_run,
)
from citewire.agui.events import AnyEvent, Json, coerce
from citewire.agui.protocol import ProtocolEnforcer
from citewire.agui.runs import LogEventReader, LogRange, Run
from citewire.agui.thread.contract_view import Contract
from citewire.agui.thread.thread import Thread
from citewire.agui.transport import StreamEnded
from citewire.error_reports import report_error
from citewire.errors import CitewireError
from citewire.text import one_line
from citewire.wakeup import Wakeup

__all__ = ["Agent", "AgentError", "CannotConnect", "CannotRegenerate", "OpenInterrupts"]

_log = logging.getLogger("citewire.agents")

Content: TypeAlias = str | Sequence[Json]
Resume: TypeAlias = Iterable[Json] | Mapping[str, Any]
_Begin: TypeAlias = Callable[[], AsyncIterator[Any]]

# Seconds that a cancelled run may take to release its resources. Sources take a few milliseconds; one that
# ignores cancellation is abandoned, and its later events are dropped.
_CANCEL_TIMEOUT = 5.0
# Events after which a run yields to the event loop, in case its source never awaits anything.
_TURN = 64

_STATUSES = frozenset({"resolved", "cancelled"})
_RESPONSE = frozenset({"status", "payload", "metadata"})


class AgentError(CitewireError):
    """The request is not possible in the agent's current state."""

    code = "bad_agent_call"


class OpenInterrupts(AgentError):
    """A pending interrupt was not answered, or an expired one was not cancelled; `ids` lists them."""

    code = "open_interrupts"

    def __init__(self, message: str, ids: tuple[str, ...]) -> None:
        super().__init__(message)
        self.ids = ids


class CannotRegenerate(AgentError):
    """The message cannot be regenerated."""

    code = "cannot_regenerate"


class CannotConnect(AgentError):
    """The source has no `connect`, or no event of the run had an id to resume from."""

    code = "cannot_connect"


class Agent:
    """Runs `source` and records its events in `thread`, by default a new `Thread` with these options.

    Only one run is active: starting another stops it. With `strict`, an event that the AG-UI client would
    reject fails the run. `async for event in agent` yields the events of all later runs, until `aclose`.
    """

    def __init__(
        self, source: AgentPort, thread: Thread | None = None, *, strict: bool = False, **options: Any
    ) -> None:
        held = getattr(source, "messages", ())
        if thread is None:
            options.setdefault("messages", held)
            thread = Thread(**options)
        elif options:
            raise TypeError(f"a thread has its own {', '.join(options)}")
        self.source, self.thread = source, thread
        if isinstance(source, BaseAgent):
            source.on_problem = thread.note
        self._gate = ProtocolEnforcer() if strict else None
        self._bell = Wakeup()
        self._life, self._span = LogRange(0), LogRange(0)
        self._span.end(0)
        self._task: asyncio.Task[None] | None = None
        # The latest task, and earlier ones that are still being cancelled.
        self._tasks: set[asyncio.Task[None]] = set()
        self._answered: list[Json] | UnsetType | None = None
        if (messages := list(thread.agui.messages)) != list(held):
            set_agent_messages(source, messages)
        if thread.contract.is_loading:
            thread.stop()  # the thread was forked during a run, and nothing continues that run here

    @property
    def contract(self) -> Contract:
        """The current view of the thread for a front end."""
        return self.thread.contract

    @property
    def is_loading(self) -> bool:
        """Whether a run is active, including one that has not sent RUN_STARTED yet."""
        return self._span.last is None or self.contract.is_loading

    def submit(
        self, message: Content | None = None, state: Json | None = None, resume: Resume | None = None
    ) -> Run:
        """Add a user message and start a run; without a message, only start a run.

        `state` is merged into the shared state, key by key. `resume` answers the pending interrupts: protocol
        entries, or a mapping from interrupt id to a payload or to `{"status": …, "payload": …}`.
        Raises `OpenInterrupts`, before anything changes, unless all interrupts are answered.
        """
        answers = self._check_answers(UNSET if resume is None else _entries(resume))
        self._end_run()
        if state is not None:
            held = self.contract.state
            self.thread.set_state({**cast("Json", held), **state} if isinstance(held, dict) else {**state})
        if message is not None:
            content = message if isinstance(message, str) else list(message)
            said: Json = {"id": str(uuid4()), "role": "user", "content": content}
            self.thread.add_message(said)
            self.source.add_message(said)
        return self._ask(answers)

    def retry(self) -> Run | None:
        """Repeat the last run without adding a message. None if a run is active or none was started."""
        if self._answered is None or self.is_loading:
            return None
        return self._ask(self._check_answers(self._answered))

    def regenerate(self, index: int) -> Run:
        """Drop the answer at `index` of the contract's messages, with all after its question, and run again.

        An agent that stores the thread itself may restore the old answer, as LangGraph's does (ag-ui#2109);
        setting a new `thread_id` on the source first avoids that.
        """
        question, answers = self._find_question(index), self._check_answers(UNSET)
        self.thread.cut(question)
        set_agent_messages(self.source, list(self.thread.agui.messages))
        return self._ask(answers)

    def attach(self, events: AsyncIterable[Any] | Iterable[Any] | None = None) -> Run:
        """Record a run that another client started, from `events` or from the source's `connect`.

        Events are not deduplicated: a peer that replays a run from its start duplicates events seen before.
        Attach to a run once, and `reconnect` when the connection breaks.
        """
        connect = self._connectable().connect if events is None else lambda: iterate_events(events)
        return self._start(connect)

    def reconnect(self) -> Run:
        """Resume after the last received event, also in the middle of a run.

        Raises `CannotConnect` if no event of the run had an id: the peer would replay the run from its start.
        """
        source = self._connectable()
        if (last := source.last_event_id) is None:
            raise CannotConnect("no event of the run had an id, so nothing says where to go on")
        return self._start(lambda: source.connect(last), goes_on=True)

    async def stop(self) -> None:
        """Stop the run. The contract becomes idle without an error, and received events stay.

        Calls `source.abort_run` even when no run is active here: the source may have started one on its own.
        """
        if not self._end_run():
            self.source.abort_run()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=_CANCEL_TIMEOUT)

    async def aclose(self) -> None:
        """Stop the run, end all iterations, and close the source if it has `aclose`."""
        await self.stop()
        self._life.end(self.thread.number)
        self._bell.notify()
        await close_if_supported(self.source)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def __aiter__(self) -> AsyncIterator[AnyEvent]:
        return LogEventReader(self.thread, self.thread.number, self._life, self._bell)

    def _connectable(self) -> Connectable:
        if not hasattr(self.source, "connect"):
            raise CannotConnect(f"a {type(self.source).__name__} cannot join a run")
        return cast("Connectable", self.source)

    def _check_answers(self, answers: list[Json] | UnsetType) -> list[Json] | UnsetType:
        """Return `answers` if a run can start with them. Raises before anything changes."""
        self._loop()
        given = {answer.get("interruptId"): answer.get("status") for answer in answers or ()}
        pending = self.thread.agui.pending_interrupts
        if missing := tuple(one["id"] for one in pending if one["id"] not in given):
            raise OpenInterrupts(f"not answered: {one_line(', '.join(missing), 200)}", missing)
        expired = (one["id"] for one in pending if _has_expired(one))
        if late := tuple(name for name in expired if given[name] != "cancelled"):
            raise OpenInterrupts(f"expired, only to be cancelled: {one_line(', '.join(late), 200)}", late)
        return answers

    def _find_question(self, index: int) -> str:
        """Return the id of the user message that the message at `index` answers."""
        if self.is_loading:
            raise CannotRegenerate("cannot regenerate while the agent is loading")
        shown = list(self.contract.messages)
        if index not in range(-len(shown), len(shown)) or shown[index].get("role") != "assistant":
            raise CannotRegenerate(f"message {index} is not an assistant message")
        asked = [message["id"] for message in shown[:index] if message.get("role") == "user"]
        if not asked:
            raise CannotRegenerate(f"no question comes before message {index}")
        return asked[-1]

    def _ask(self, answers: list[Json] | UnsetType) -> Run:
        self._answered, held = answers, self.thread.agui
        request = RunRequest(messages=list(held.messages), state=held.state, resume=answers)
        return self._start(lambda: start_run(self.source, request))

    def _start(self, begin: _Begin, goes_on: bool = False) -> Run:
        loop = self._loop()
        self._end_run()
        if not goes_on and hasattr(self.source, "last_event_id"):
            cast("Connectable", self.source).last_event_id = None  # it belongs to another run
        self._span = LogRange(self.thread.number)
        self._task = loop.create_task(self._drive(self._span, begin, goes_on, self._task))
        self._tasks.add(self._task)
        self._task.add_done_callback(self._tasks.discard)
        return Run(self.thread, self._span, self._bell)

    def _loop(self) -> asyncio.AbstractEventLoop:
        if self._life.last is not None:
            raise AgentError("the agent is closed")
        return asyncio.get_running_loop()

    def _end_run(self) -> bool:
        """Mark the active run as ended and cancel its task, which finishes later. False if there is none."""
        if self._task is None or self._span.last is not None:
            return False
        self.source.abort_run()
        self._task.cancel()
        if self.contract.is_loading:
            self.thread.stop()
        self._end(self._span)
        return True

    def _end(self, span: LogRange) -> None:
        span.end(self.thread.number)
        self._bell.notify()

    async def _drive(
        self, span: LogRange, begin: _Begin, goes_on: bool, before: asyncio.Task[None] | None
    ) -> None:
        try:
            if before:
                await asyncio.wait({before}, timeout=_CANCEL_TIMEOUT)
            self.thread.open_stream(goes_on)
            self._gate = self._gate if goes_on else self._gate and ProtocolEnforcer()
            await self._take(begin(), span)
        except BaseException as exc:  # the root of a task: any exception of the source fails the run
            # A cancellation fails it too, unless it is our own: then the run has already ended.
            if span.last is None:
                self._fail(exc)
            if not isinstance(exc, Exception):
                raise
        finally:
            self._end(span)

    def _fail(self, error: BaseException) -> None:
        """Record the error in the thread. Details from the peer, such as a response body, are only logged."""
        if isinstance(error, CitewireError) and error.detail:
            report = report_error(error, _log)
            self.thread.fail(report.message, report.code)
        else:
            self.thread.fail(error)

    async def _take(self, events: AsyncIterator[Any], span: LogRange) -> None:
        try:
            async for event in events:
                if span.last is not None:
                    return  # the source ignored the cancellation
                if self._gate:
                    event = coerce(event)  # noqa: PLW2901  # the same event
                    deque(self._gate.admit(event), maxlen=0)
                if self.thread.apply(event) % _TURN == 0:
                    await asyncio.sleep(0)
                self._bell.notify()
        finally:
            await close_if_supported(events)
        if span.last is None and self.contract.is_loading:
            raise StreamEnded("the events ended before the run did")


def _entries(resume: Resume) -> list[Json]:
    if not isinstance(resume, Mapping):
        return [dict(entry) for entry in resume]
    responses = cast("Mapping[str, Any]", resume)
    return [{"interruptId": name, **_response(said)} for name, said in responses.items()]


def _response(said: Any) -> Json:
    if isinstance(said, Mapping):
        fields = cast("Mapping[str, Any]", said)
        if fields.get("status") in _STATUSES and fields.keys() <= _RESPONSE:
            return {**fields}
    return {"status": "resolved", "payload": said}


def _has_expired(interrupt: Json) -> bool:
    """Whether `expiresAt` has passed. An unreadable date never expires."""
    try:
        return datetime.fromisoformat(interrupt["expiresAt"]).astimezone(UTC) <= datetime.now(UTC)
    except (KeyError, OverflowError, TypeError, ValueError):
        return False
