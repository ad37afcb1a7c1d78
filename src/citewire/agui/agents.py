"""Agents that an `Agent` can run: objects that take messages and produce the events of a run.

`LocalAgent` calls a function, `Replay` replays a log, `client.HttpAgent` calls a remote agent. Each is a
`BaseAgent`, which passes the events through middleware.
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
"""The next handler in the chain: a middleware, or finally the agent. May be called any number of times."""

Middleware: TypeAlias = Callable[[RunInput, Next], AsyncIterator[AnyEvent]]
"""Wraps a run: may change its input, and change, delay or add events.

Iterators that it opened with `next` are closed with the run. A middleware that reads one in its own task must
end that task when it is closed: an iterator that another task is reading cannot be closed from here.
"""

# Events after which an agent that never awaits yields to the event loop, so that a cancellation can arrive.
_TURN = 16

_T = TypeVar("_T")
_OpenIterators: TypeAlias = list[AsyncIterator[AnyEvent]]
_Events: TypeAlias = AsyncIterable[Any] | Iterable[Any]
_EventSource: TypeAlias = _Events | Awaitable[_Events]


class RunRequest(Struct, frozen=True, kw_only=True):
    """The per-run part of a run's input. Without `messages` the source sends the messages it already has."""

    run_id: str = ""
    messages: Sequence[Any] | UnsetType = UNSET
    state: Any = UNSET
    resume: Sequence[Json] | UnsetType = UNSET


class AgentPort(Protocol):
    """Interface of an agent: one conversation, used from one event loop. Only these three are required."""

    def add_message(self, message: Json) -> None:
        """Add a user message. Called before the run that answers it; starts no run."""
        ...

    @property
    def run_agent(self) -> Callable[[RunRequest], _EventSource] | Callable[[], _EventSource]:
        """Return the events of one run, in order, in any form that `events.coerce` accepts.

        A method; it is called with a `RunRequest` if it accepts one. The run starts when the first event is
        requested. RUN_ERROR is an ordinary event; transport failures are raised, with a code if they are a
        `CitewireError`. Cancelling the iterating task ends the run and releases its resources.
        """
        ...

    def abort_run(self) -> None:
        """End the active runs: their iterators stop without an error. Does nothing if no run is active."""
        ...


class Rewindable(Protocol):
    """A source whose stored messages can be replaced. Other sources take them from the `RunRequest`."""

    def set_messages(self, messages: Sequence[Json]) -> None:
        """Replace the conversation's messages, for example after it was truncated. Starts no run."""
        ...


class Connectable(Protocol):
    """A source that can also join a run started by another client."""

    last_event_id: str | None
    """The id of the last received event of this run, if the peer sends ids."""

    def connect(self, last_event_id: str | None = None) -> AsyncIterator[Any]:
        """Return the events after that id, or those for a new subscriber. Raises like `run_agent`."""
        ...


def start_run(source: AgentPort, request: RunRequest) -> AsyncGenerator[Any]:
    """Start a run of `source` for `request` and return its events."""
    run_agent: Callable[..., _EventSource] = source.run_agent
    try:
        inspect.signature(run_agent).bind(request)
    except TypeError:
        return iterate_events(run_agent())
    except ValueError:  # its signature cannot be inspected
        pass
    return iterate_events(run_agent(request))


def set_agent_messages(source: AgentPort, messages: Sequence[Json]) -> None:
    """Replace the messages of `source`, if it has `set_messages`."""
    if hasattr(source, "set_messages"):
        cast("Rewindable", source).set_messages(messages)


async def close_if_supported(iterator: object) -> None:
    """Close an iterator, if it has `aclose`."""
    if aclose := getattr(iterator, "aclose", None):
        await cast("Callable[[], Awaitable[None]]", aclose)()


class AbortSignal:
    """Interrupts the wait for the next event when called."""

    def __init__(self) -> None:
        self._wait: asyncio.Timeout | None = None
        self._called = False

    def __call__(self) -> None:
        if self._wait and not self._called:
            self._wait.reschedule(0)
        self._called = True

    async def next(self, incoming: AsyncIterator[_T]) -> _T | None:
        """Return the next event; None at the end, or once the signal has been called."""
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
    """Base class of agents with middleware. Its attributes go into the input of every run."""

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
        """Called with the code and message of each problem in data that could still be read."""
        self._middleware: tuple[Middleware, ...] = ()
        self._running: set[AbortSignal] = set()

    @abstractmethod
    def run(self, run_input: RunInput) -> AsyncIterator[AnyEvent]:
        """Run the agent itself, without middleware."""

    def use(self, *middleware: Middleware) -> Self:
        """Wrap every later run in `middleware`. The first one added is the outermost."""
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
        """Yield the events from `start` until aborted, then close its iterator and all that it opened."""
        abort, opened = AbortSignal(), _OpenIterators()
        incoming = start(opened)
        self._running.add(abort)
        try:
            while (event := await abort.next(incoming)) is not None:
                yield event
        finally:
            self._running.discard(abort)
            # From the outside in: an outer iterator may still be reading an inner one.
            for events in (incoming, *opened):
                await close_if_supported(events)


class LocalAgent(BaseAgent):
    """Runs a function in this process. Its events may be in any form that `events.coerce` accepts.

    An exception from the function fails the run.
    """

    def __init__(self, function: Callable[[RunInput], _EventSource], **options: Any) -> None:
        super().__init__(**options)
        self._function = function

    async def run(self, run_input: RunInput) -> AsyncIterator[AnyEvent]:
        async with aclosing(iterate_events(self._function(run_input))) as values:
            async for value in values:
                yield coerce(value)


class Replay(LocalAgent):
    """Replays the same events on every run."""

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
