"""What is done for one run: the agent is asked, what it says is woven and kept, and its end is written."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from typing import Any, Protocol, TypeAlias

from msgspec.structs import replace

from citewire.agui import events as ev
from citewire.agui import records
from citewire.agui.events import AnyEvent, RunInput
from citewire.agui.middleware import Citing, Put, Sent, Stream
from citewire.agui.protocol import Gate
from citewire.agui.sources import close
from citewire.agui.transport import StreamEnded
from citewire.agui.weaving import Options, VerdictReached
from citewire.channels.hub import Hub
from citewire.errors import CitewireError
from citewire.server.foreign import Foreign
from citewire.server.history import History
from citewire.server.jobs.committed import AfterCommit
from citewire.server.journal import TERMINAL, Journal, Outcome, Started, thread_of
from citewire.server.live import Ended, Live
from citewire.text import for_log
from citewire.verification.library import Checked

__all__ = ["Agent", "Driver", "Observer"]

_log = logging.getLogger("citewire.runs")

Agent: TypeAlias = Callable[[RunInput, Started], AsyncIterator[Any]]
"""Gives the events of a run, in any form that `events.coerce` takes."""

Links: TypeAlias = Callable[[str, str, str, Checked], records.Links]
"""Gives the links to the proof of a verdict, for a thread, a message and the key of a citation."""

# Seconds for what could not be decided while somebody waited.
_LATE = 600.0


class Observer(Protocol):
    """**Protocol:** whoever is told what becomes of runs."""

    async def reached(self, thread_id: str, verdicts: Sequence[VerdictReached]) -> None:
        """These are reached in a thread. They are kept and sent once this returns."""
        ...

    def written(self, channel: str) -> None:
        """There is more in the log of a thread, or its run has ended."""
        ...

    def ended(self, outcome: Outcome) -> None:
        """A run has ended."""
        ...

    async def forgotten(self, thread_id: str) -> None:
        """A thread is no more."""
        ...


class Driver:
    """Runs the agent for others. A store that fails is asked again for `patience` seconds.

    Where it `has_jobs`, quotes go to workers, and only once their citations are kept.
    """

    def __init__(
        self,
        hub: Hub,
        history: History,
        agent: Agent,
        citing: Citing,
        links: Links,
        observer: Observer,
        *,
        patience: float = 0.0,
        has_jobs: bool = False,
    ) -> None:
        self._hub, self._history, self._agent, self._citing = hub, history, agent, citing
        self._links, self._observer, self._patience, self._has_jobs = links, observer, patience, has_jobs

    async def drive(self, live: Live, goes_on: list[AnyEvent] | None) -> None:
        """A run from its start to its end, or anew where it `goes_on` after these events."""
        journal = self.journal(live.channel, goes_on=goes_on is not None, patience=self._patience)
        live.journal = journal
        run_input, outcome, error = live.started.input, "finished", None
        try:
            async with journal:
                await journal.put("", "", goes_on or ())
                live.stream = await self._stream(run_input, journal, self._citing.options)
                await live.stream.run(lambda put: self._produce(live, put), _nowhere)
            outcome = "failed" if journal.failed else "finished"
        except Ended as exc:
            outcome, error = exc.outcome, ev.RunError(exc.message, exc.outcome)
        except CitewireError as exc:
            outcome, error = "failed", ev.RunError(for_log(exc.message, 500), exc.code)
        except Exception as exc:  # noqa: BLE001  # the root of a task: whoever reads the thread is told
            _log.exception("a run failed")
            outcome, error = "failed", ev.RunError(f"the agent failed: {type(exc).__name__}", "agent_failed")
        finally:
            live.over()
        try:
            await journal.end(live.run_id, outcome, error)
        except CitewireError as exc:
            _log.error("the end of a run could not be kept: %s", exc)  # it says what it has to
            live.lost.set_result(ev.RunError(for_log(exc.message, 500), exc.code))
        self._observer.ended(outcome)

    def journal(self, channel: str, **options: Any) -> Journal:
        """Where a run is written down."""
        reached = partial(self._observer.reached, thread_of(channel))
        return Journal(self._hub, channel, reached, partial(self._observer.written, channel), **options)

    async def _produce(self, live: Live, put: Put) -> None:
        """What the agent says, as long as a client would take it."""
        gate, events = Gate(), self._agent(self._citing.input_for_agent(live.started.input), live.started)
        is_over = False
        try:
            while (given := await live.abort.next(events)) is not None:
                event = ev.coerce(given)
                deque(gate.admit(event), maxlen=0)
                is_over = event.type in TERMINAL
                await put((event, b""))
        finally:
            await close(events)
        if live.ending and not is_over:
            raise Ended(live.ending)
        if not is_over:
            raise StreamEnded("the agent's events ended before the run did")

    async def decide_late(self, channel: str) -> None:
        """What was not decided in time is there for whoever comes back."""
        await self._after_the_run(channel, (), _LATE)

    async def cite_late(self, channel: str, citations: Sequence[Foreign]) -> None:
        """What others cite is there for whoever comes back, to be decided."""
        await self._after_the_run(channel, citations, 0)

    async def _after_the_run(self, channel: str, citations: Sequence[Foreign], deadline: float) -> None:
        """Weave into the state of a thread what no stream tells of any more."""
        past = await self._history.at(channel)
        if past is None:
            return
        run_input = RunInput(
            thread_id=thread_of(channel),
            run_id=past.run_id or "",
            messages=past.messages,
            state=past.state,
            context=past.context,
        )
        journal = self.journal(channel, kind="late", patience=self._patience)
        options = replace(self._citing.options, deadline=deadline)
        stream = await self._stream(run_input, journal, options)

        async def produce(put: Put) -> None:
            await put((ev.RunStarted("", ""), b""))
            for each in citations:
                await stream.cite(each.message_id, each.cited, each.by, each.annotation)
            await put((ev.RunFinished("", ""), b""))

        async with journal:
            await stream.run(produce, _nowhere)

    async def _stream(self, run_input: RunInput, journal: Journal, options: Options) -> Stream:
        proofs = partial(self._links, run_input.thread_id)
        verifier = await self._citing.verifier()
        if self._has_jobs:
            verifier = AfterCommit(verifier, journal.settled)
        return Stream(run_input, replace(options, proofs=proofs), verifier, journal)


async def _nowhere(_: list[Sent]) -> None:
    """What is sent is read from the log."""
