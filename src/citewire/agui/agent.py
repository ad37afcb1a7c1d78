"""An agent as a program holds it: say something, watch the answer come, stop, try again.

`Agent` drives a source and keeps a thread. Nothing that goes wrong in a run is raised: it is in the contract.
What is raised is misuse:

    AgentError
    ├── OpenInterrupts     the agent waits for answers that were not given
    ├── CannotRegenerate   while loading, or not an answer
    └── CannotConnect      the source cannot join a run, or nothing says where to go on
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

# Seconds that a cancelled run may take to give back what it holds. Sources take a few milliseconds; one that
# does not let itself be cancelled is left behind, and what it still says is not heard.
_PATIENCE = 5.0
# Events after which a run lets others have a turn, should its source never wait for anything.
_TURN = 64

_STATUSES = frozenset({"resolved", "cancelled"})
_RESPONSE = frozenset({"status", "payload", "metadata"})


class AgentError(CitewireError):
    """Something that cannot be asked of an agent as it is now."""

    code = "bad_request"


class OpenInterrupts(AgentError):
    """A run that does not answer every pending interrupt, or answers one that has expired."""

    code = "open_interrupts"

    def __init__(self, message: str, ids: tuple[str, ...]) -> None:
        super().__init__(message)
        self.ids = ids


class CannotRegenerate(AgentError):
    """An answer that cannot be asked for anew."""

    code = "cannot_regenerate"


class CannotConnect(AgentError):
    """A source without `connect`, or a run of which no event had an id."""

    code = "cannot_connect"


class Agent:
    """Drives `source` and keeps what comes in `thread`, by default a new one with these options.

    One run at a time: the next one stops it. With `strict`, an event that the AG-UI client would reject fails
    the run. `async for event in agent` gives the events of all runs from then on, until it is closed.
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
        # The last one, and those before it that take their time to end.
        self._tasks: set[asyncio.Task[None]] = set()
        self._answered: list[Json] | UnsetType | None = None
        if (messages := list(thread.agui.messages)) != list(held):
            set_agent_messages(source, messages)
        if thread.contract.is_loading:
            thread.stop()  # a fork in the middle of a run: nobody drives it here

    @property
    def contract(self) -> Contract:
        """What a front end shows now."""
        return self.thread.contract

    @property
    def is_loading(self) -> bool:
        """Whether a run is under way, even one that has not said so yet."""
        return self._span.last is None or self.contract.is_loading

    def submit(
        self, message: Content | None = None, state: Json | None = None, resume: Resume | None = None
    ) -> Run:
        """Say something and start the run that answers; without a message it only runs.

        `state` is merged into the shared state, key by key. `resume` answers the pending interrupts: entries
        as the protocol has them, or for each id the payload or `{"status": …, "payload": …}`. Raises
        `OpenInterrupts`, before anything is changed, unless all of them are answered.
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
        """Run again as the last time, without saying anything again. None where it runs, or never did."""
        if self._answered is None or self.is_loading:
            return None
        return self._ask(self._check_answers(self._answered))

    def regenerate(self, index: int) -> Run:
        """Ask anew for the answer at `index` of the contract's messages: what follows its question is cut.

        An agent that keeps the thread itself may bring the old answer back, as LangGraph's does (ag-ui#2109),
        unless its source is given a new `thread_id` before.
        """
        question, answers = self._find_question(index), self._check_answers(UNSET)
        self.thread.cut(question)
        set_agent_messages(self.source, list(self.thread.agui.messages))
        return self._ask(answers)

    def attach(self, events: AsyncIterable[Any] | Iterable[Any] | None = None) -> Run:
        """Take the events of a run that somebody else started: these, or those that the source can join.

        They are taken as they come. A peer that gives a run from its start doubles one that was seen before,
        so attach to a run once, and `reconnect` when it breaks off.
        """
        connect = self._connectable().connect if events is None else lambda: iterate_events(events)
        return self._start(connect)

    def reconnect(self) -> Run:
        """Join again after the last event that came, in the middle of a run if need be.

        Raises `CannotConnect` where no event of the run had an id: the run would come again from its start.
        """
        source = self._connectable()
        if (last := source.last_event_id) is None:
            raise CannotConnect("no event of the run had an id, so nothing says where to go on")
        return self._start(lambda: source.connect(last), goes_on=True)

    async def stop(self) -> None:
        """End the run. The contract is idle then, without an error of its own; what came stays.

        The source is told to abort also when nothing runs here: it may have started something by itself.
        """
        if not self._end_run():
            self.source.abort_run()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=_PATIENCE)

    async def aclose(self) -> None:
        """Stop, end all iterations, and close the source where it can be closed."""
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
        """`answers`, where a run can start with them. Nothing has been changed when this raises."""
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
        """The id of the question that the message at `index` answers."""
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
            cast("Connectable", self.source).last_event_id = None  # that of another run
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
        """End the run as far as anybody can see, though its task takes a moment longer; False for no run."""
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
                await asyncio.wait({before}, timeout=_PATIENCE)
            self.thread.open_stream(goes_on)
            self._gate = self._gate if goes_on else self._gate and ProtocolEnforcer()
            await self._take(begin(), span)
        except BaseException as exc:  # the root of a task: whatever a source raises, the run failed
            # That goes for a cancellation too, unless it is ours: then the run was ended before.
            if span.last is None:
                self._fail(exc)
            if not isinstance(exc, Exception):
                raise
        finally:
            self._end(span)

    def _fail(self, error: BaseException) -> None:
        """Show the error. What another program said of it, such as the body of a response, is only logged."""
        if isinstance(error, CitewireError) and error.detail:
            report = report_error(error, _log)
            self.thread.fail(report.message, report.code)
        else:
            self.thread.fail(error)

    async def _take(self, events: AsyncIterator[Any], span: LogRange) -> None:
        try:
            async for event in events:
                if span.last is not None:
                    return  # the source does not let itself be cancelled
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
    """A date that cannot be read, or compared, does not pass."""
    try:
        return datetime.fromisoformat(interrupt["expiresAt"]).astimezone(UTC) <= datetime.now(UTC)
    except (KeyError, OverflowError, TypeError, ValueError):
        return False
