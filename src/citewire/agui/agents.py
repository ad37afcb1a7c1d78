"""What an `Agent` drives: anything that takes messages and gives the events of a run.

`LocalAgent` runs a function, `Replay` gives a log again, `client.HttpAgent` reaches an agent elsewhere. Each
is a `BaseAgent`, which leads the events through middleware.
"""

from __future__ import annotations

import asyncio
import inspect
from abc import ABC, abstractmethod
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Sequence,
)  # fmt: skip
from contextlib import aclosing
from typing import Any, Protocol, Self, TypeAlias, TypeVar, cast
from uuid import uuid4

from msgspec import UNSET, Struct, UnsetType

from citewire.agui.events import AnyEvent, Json, RunInput, coerce

__all__ = [
    "AbortSignal",
    "AgentPort",
    "BaseAgent",
    "Connectable",
    "LocalAgent",
    "Middleware",
    "Next",
    "Replay",
    "Rewindable",
    "RunRequest",
]

Next: TypeAlias = Callable[[RunInput], AsyncIterator[AnyEvent]]
"""What is further in: the next middleware, at last the agent. May be called any number of times."""

Middleware: TypeAlias = Callable[[RunInput, Next], AsyncIterator[AnyEvent]]
"""Stands around a run: may change its input and its events, hold them, add to them.

All that it opened with `next` is closed with the run. One that reads it in a task of its own must end that
task itself when it is closed: what another task is reading cannot be closed from here.
"""

# Events after which an agent that never waits lets others have a turn, and a cancellation arrive.
_TURN = 16

_T = TypeVar("_T")
_OpenIterators: TypeAlias = list[AsyncIterator[AnyEvent]]
_Events: TypeAlias = AsyncIterable[Any] | Iterable[Any]
_EventSource: TypeAlias = _Events | Awaitable[_Events]


class RunRequest(Struct, frozen=True, kw_only=True):
    """What of a run's input only its driver knows. Without messages the source sends those it was given."""

    run_id: str = ""
    messages: Sequence[Any] | UnsetType = UNSET
    state: Any = UNSET
    resume: Sequence[Json] | UnsetType = UNSET


class AgentPort(Protocol):
    """The port to whatever runs: one conversation, used from one event loop. These three are all it needs."""

    def add_message(self, message: Json) -> None:
        """The user said this. Comes before the run that answers it, and starts none."""
        ...

    @property
    def run_agent(self) -> Callable[[RunRequest], _EventSource] | Callable[[], _EventSource]:
        """The events of one run, in order, in any form that `events.coerce` takes.

        A method; it is called with a `RunRequest` where it takes one. Nothing starts before the first event
        is asked for. RUN_ERROR is an event like any other; what fails on the way is raised, with a code where
        it is a `CitewireError`. Cancelling the task that iterates ends the run and gives back what it holds.
        """
        ...

    def abort_run(self) -> None:
        """End what is running: its iterator stops without an error. Does nothing where nothing runs."""
        ...


class Rewindable(Protocol):
    """A source that keeps the messages, and can be told others. To one that cannot the request says them."""

    def set_messages(self, messages: Sequence[Json]) -> None:
        """The conversation was cut: these are its messages from now on. Starts no run."""
        ...


class Connectable(Protocol):
    """A source that can also join a run which somebody else started."""

    last_event_id: str | None
    """The id of the last event of this run that was given, where the peer sends ids."""

    def connect(self, last_event_id: str | None = None) -> AsyncIterator[Any]:
        """The events after that one, or those that the peer gives a newcomer. Raises as `run_agent` does."""
        ...


def start_run(source: AgentPort, request: RunRequest) -> AsyncGenerator[Any]:
    """The events of a run that `source` starts for `request`."""
    run_agent: Callable[..., _EventSource] = source.run_agent
    try:
        inspect.signature(run_agent).bind(request)
    except TypeError:
        return iterate_events(run_agent())
    except ValueError:  # one that has no signature to be read
        pass
    return iterate_events(run_agent(request))


def set_agent_messages(source: AgentPort, messages: Sequence[Json]) -> None:
    """Tell `source` its messages, if it can be told."""
    if hasattr(source, "set_messages"):
        cast("Rewindable", source).set_messages(messages)


async def close_if_supported(iterator: object) -> None:
    """Give back what an iterator holds, if it is one that can."""
    if aclose := getattr(iterator, "aclose", None):
        await cast("Callable[[], Awaitable[None]]", aclose)()


class AbortSignal:
    """Ends the wait for the next event from outside."""

    def __init__(self) -> None:
        self._wait: asyncio.Timeout | None = None
        self._called = False

    def __call__(self) -> None:
        if self._wait and not self._called:
            self._wait.reschedule(0)
        self._called = True

    async def next(self, incoming: AsyncIterator[_T]) -> _T | None:
        """The next event; None at the end, or once called."""
        if self._called:
            return None
        try:
            async with asyncio.timeout(None) as self._wait:
                return await anext(incoming, None)
        except TimeoutError:
            if not self._called:
                raise
            return None
        finally:
            self._wait = None


def _ignore_problem(code: str, message: str) -> None:
    del code, message


class BaseAgent(ABC):
    """A source with middleware. It keeps what the input of every run holds."""

    def __init__(
        self,
        *,
        thread_id: str | None = None,
        messages: Iterable[Json] = (),
        tools: Iterable[Any] = (),
        context: Iterable[Any] = (),
        forwarded_props: Any = None,
        protocol_version: str | None = RunInput.PROTOCOL,
    ) -> None:
        self.thread_id = thread_id or str(uuid4())
        self.messages = list(messages)
        self.tools = list(tools)
        self.context = list(context)
        self.forwarded_props: Any = {} if forwarded_props is None else forwarded_props
        self.protocol_version = protocol_version
        self.on_problem: Callable[[str, str], object] = _ignore_problem
        """Called with the code and the message of what was wrong, though it could be read."""
        self._middleware: tuple[Middleware, ...] = ()
        self._running: set[AbortSignal] = set()

    @abstractmethod
    def run(self, run_input: RunInput) -> AsyncIterator[AnyEvent]:
        """The agent itself, without middleware."""

    def use(self, *middleware: Middleware) -> Self:
        """Put `middleware` around every run from now on. The one that was added first is the outermost."""
        self._middleware += middleware
        return self

    def add_message(self, message: Json) -> None:
        self.messages.append(message)

    def set_messages(self, messages: Sequence[Json]) -> None:
        self.messages = list(messages)

    def run_agent(self, request: RunRequest | None = None) -> AsyncGenerator[AnyEvent]:
        run_input = self._input(request or RunRequest())
        return self._until_aborted(lambda opened: self._chain(self._middleware, opened)(run_input))

    def abort_run(self) -> None:
        for abort in self._running:
            abort()

    def _input(self, request: RunRequest) -> RunInput:
        return RunInput(
            thread_id=self.thread_id,
            run_id=request.run_id or str(uuid4()),
            messages=list(self.messages if request.messages is UNSET else request.messages),
            state={} if request.state is UNSET else request.state,
            tools=list(self.tools),
            context=list(self.context),
            forwarded_props=self.forwarded_props,
            resume=UNSET if request.resume is UNSET else list(request.resume),
            protocol_version=UNSET if self.protocol_version is None else self.protocol_version,
        )

    def _chain(self, middleware: Sequence[Middleware], opened: _OpenIterators) -> Next:
        def go_on(run_input: RunInput) -> AsyncIterator[AnyEvent]:
            if middleware:
                events = middleware[0](run_input, self._chain(middleware[1:], opened))
            else:
                events = self.run(run_input)
            opened.append(events)
            return events

        return go_on

    async def _until_aborted(
        self, start: Callable[[_OpenIterators], AsyncIterator[AnyEvent]]
    ) -> AsyncGenerator[AnyEvent]:
        """The events of what `start` gives, which is closed at the end like all that it noted as opened."""
        abort, opened = AbortSignal(), _OpenIterators()
        incoming = start(opened)
        self._running.add(abort)
        try:
            while (event := await abort.next(incoming)) is not None:
                yield event
        finally:
            self._running.discard(abort)
            # From the outside in: what is further out may still be reading what is further in.
            for events in (incoming, *opened):
                await close_if_supported(events)


class LocalAgent(BaseAgent):
    """Runs a function in this process, whose events may be in any form that `events.coerce` takes.

    What the function raises fails the run.
    """

    def __init__(self, function: Callable[[RunInput], _EventSource], **options: Any) -> None:
        super().__init__(**options)
        self._function = function

    async def run(self, run_input: RunInput) -> AsyncIterator[AnyEvent]:
        async with aclosing(iterate_events(self._function(run_input))) as values:
            async for value in values:
                yield coerce(value)


class Replay(LocalAgent):
    """Gives the same events on every run."""

    def __init__(self, events: Iterable[Any], **options: Any) -> None:
        log = tuple(map(coerce, events))
        super().__init__(lambda _: log, **options)


async def iterate_events(given: _EventSource) -> AsyncGenerator[Any]:
    if isinstance(given, Awaitable) and not isinstance(given, AsyncIterable):
        given = await given
    if isinstance(given, AsyncIterable):
        try:
            async for value in cast("AsyncIterable[Any]", given):
                yield value
        finally:
            await close_if_supported(given)
        return
    for count, value in enumerate(given, 1):
        yield value
        if count % _TURN == 0:
            await asyncio.sleep(0)
