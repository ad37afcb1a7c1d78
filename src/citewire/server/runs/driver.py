"""Drive one run: call the agent, add citations to its events, write them to the log, and write the end."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol, TypeAlias

from msgspec import UnsetType
from msgspec.structs import replace

from citewire.agui import events as ev
from citewire.agui.agents import close_if_supported
from citewire.agui.citations import records
from citewire.agui.citations.annotator import LogKnowledge, Options, VerdictReached
from citewire.agui.citations.echoes import fingerprints
from citewire.agui.citations.posted_messages import find_open_calls, id_of, role_of, started_message_id
from citewire.agui.citations.shared_state import CITATIONS, safe_path
from citewire.agui.citations.unfinished_messages import unfinished_message_patches
from citewire.agui.events import AnyEvent, RunInput
from citewire.agui.middleware import CitationStream, Citing, OutgoingEvent, PutEvent
from citewire.agui.protocol import ProtocolEnforcer, version_problem
from citewire.agui.shapes import filter_sendable
from citewire.agui.transport import StreamEnded
from citewire.channels.hub import Hub
from citewire.channels.store import Entry
from citewire.dialects.base import is_object
from citewire.error_reports import report_error
from citewire.errors import CitewireError
from citewire.server.access.keys import Caller
from citewire.server.jobs.after_commit_verifier import AfterCommitVerifier
from citewire.server.ops.timestamps import now_iso
from citewire.server.runs.live_run import END_MESSAGES, LiveRun, RunEnded
from citewire.threadlog.authority import OwnRecord, accept_input, input_for_agent
from citewire.threadlog.foreign_citations import ForeignCitation
from citewire.threadlog.history import ThreadHistory
from citewire.threadlog.journal import RunJournal
from citewire.threadlog.names import thread_of
from citewire.threadlog.reviews import find_new_reviews, make_review_entry
from citewire.threadlog.rows import TERMINAL, IgnoredPart, Outcome, StartedRun
from citewire.threadlog.unfinished_runs import UnfinishedRun
from citewire.verification.document_set import CheckResult

__all__ = ["Agent", "PreparedRun", "RunDriver", "RunObserver"]

_log = logging.getLogger("citewire.runs")

Agent: TypeAlias = Callable[[RunInput, StartedRun], AsyncIterator[Any]]
"""Returns the events of a run, in any form that `events.coerce` accepts."""

Links: TypeAlias = Callable[[str, str, str, CheckResult], records.ProofUrls]
"""Returns the links to the proof of a verdict, given the thread, the message and the citation's key."""

# Seconds allowed for verdicts that were not reached during the run.
_LATE = 600.0


class PreparedRun(NamedTuple):
    """A run about to start: its first row, the first events for its client, and the review rows."""

    started: StartedRun
    news: tuple[AnyEvent, ...]
    reviews: list[Entry]


class RunObserver(Protocol):
    """**Protocol:** receives notifications about runs."""

    async def on_verdicts(self, thread_id: str, verdicts: Sequence[VerdictReached]) -> None:
        """Called with new verdicts of a thread. They are stored and sent once this returns."""
        ...

    def on_log_written(self, channel: str) -> None:
        """Called when a thread's log has new rows, or its run has ended."""
        ...

    def on_input_ignored(self, what: Sequence[IgnoredPart]) -> None:
        """Called when a client contradicts the log about the server's own answers."""
        ...

    def on_run_ended(self, outcome: Outcome) -> None:
        """Called when a run has ended."""
        ...

    async def on_thread_deleted(self, thread_id: str) -> None:
        """Called when a thread was deleted."""
        ...


class RunDriver:
    """Runs the agent. Store errors are retried for `patience` seconds.

    A run that exceeds `timeout` seconds is ended; what was said until then stays.

    With `has_jobs`, quotes are sent to workers, and only after their citations are stored.
    """

    def __init__(
        self,
        hub: Hub,
        history: ThreadHistory,
        agent: Agent,
        citing: Citing,
        links: Links,
        observer: RunObserver,
        *,
        patience: float = 0.0,
        timeout: float = 3600.0,
        has_jobs: bool = False,
    ) -> None:
        self._hub, self._history, self._agent, self._citing = hub, history, agent, citing
        self._links, self._observer, self._patience, self._has_jobs = links, observer, patience, has_jobs
        self._timeout = timeout

    @property
    def state_key(self) -> str:
        """The key in the state that holds the citation record."""
        return self._citing.options.state_key

    async def prepare_run(self, channel: str, posted: RunInput, caller: Caller) -> PreparedRun:
        """Check the posted input against the thread's log, and collect the new reviews in it."""
        key = self.state_key
        own, reviews = await self._history.own_record(channel)
        accepted = accept_input(posted, own, key)
        if accepted.ignored:
            self._observer.on_input_ignored(accepted.ignored)
            _log.warning("a client posted other %s than the log has", " and ".join(accepted.ignored))
        started = StartedRun(accepted.input, caller.key, caller.client_id, accepted.ignored)
        new = find_new_reviews(posted.state, key, reviews)
        return PreparedRun(
            started, accepted.news, [make_review_entry(each, caller.actor, now_iso()) for each in new]
        )

    async def end_unfinished_run(self, channel: str, left: UnfinishedRun) -> None:
        """Write the end of a run whose node died, after the patches that close its open messages."""
        journal, run_id = self.journal(channel), left.started.input.run_id
        if left.has_ended:
            await journal.end(run_id, "failed" if left.sent[-1].type == "RUN_ERROR" else "finished")
            return
        outcome: Outcome = "stopped" if left.was_stopped else "interrupted"
        past = await self._history.snapshot_at(channel) if left.sent else None
        patches = unfinished_message_patches(past.state, self.state_key) if past else []
        events = [ev.StateDelta(patches)] if patches else []
        await journal.end(run_id, outcome, *events, ev.RunError(END_MESSAGES[outcome], outcome))

    async def drive(self, live: LiveRun, goes_on: list[AnyEvent] | None) -> None:
        """Run the agent from start to end. After a restart, `goes_on` holds the events to send first."""
        journal = self.journal(live.channel, goes_on=goes_on is not None, patience=self._patience)
        live.journal = journal
        run_input, outcome, error = live.started.input, "finished", None
        limit = asyncio.get_running_loop().call_later(self._timeout, live.end, "timed_out")
        _warn_of_version(run_input.protocol_version, "client")
        try:
            async with journal:
                await journal.put("", "", goes_on or ())
                own, _ = await self._history.own_record(live.channel)
                known, live.posted = _known(own, live.news), {*own.posted}
                live.stream = await self._stream(run_input, journal, self._citing.options, known)
                await live.stream.run(lambda put: self._produce(live, put), _nowhere)
            outcome = "failed" if journal.failed else "finished"
        except RunEnded as exc:
            outcome, error = exc.outcome, ev.RunError(exc.message, exc.outcome)
        except Exception as exc:  # noqa: BLE001  # the root of a task: the run ends with an error
            outcome, error = "failed", _run_error(exc)
        finally:
            limit.cancel()
            live.stop_linger()
        try:
            await journal.end(live.run_id, outcome, *([error] if error else []))
        except CitewireError as exc:
            _log.error("the end of a run could not be kept: %s", exc.explanation)
            live.lost.set_result(_run_error(exc))
        self._observer.on_run_ended(outcome)

    def journal(self, channel: str, **options: Any) -> RunJournal:
        """Create the journal that writes a run to the thread's log."""
        reached = partial(self._observer.on_verdicts, thread_of(channel))
        return RunJournal(
            self._hub, channel, reached, partial(self._observer.on_log_written, channel), **options
        )

    async def _produce(self, live: LiveRun, put: PutEvent) -> None:
        """Pass on the agent's events, as long as they follow the protocol."""
        given = self._citing.input_for_agent(input_for_agent(live.started.input))
        gate, events = ProtocolEnforcer(), self._agent(given, live.started)
        is_over = False
        try:
            while (said := await live.abort.next(events)) is not None:
                event = ev.coerce(said)
                if isinstance(event, ev.RunStarted):
                    _warn_of_version(event.protocol_version, "agent")
                if not live.posted.isdisjoint(_may_start(event)):
                    for each in await self._withdraw(live, event):
                        deque(gate.admit(each), maxlen=0)
                        await put((each, b""))
                deque(gate.admit(event), maxlen=0)
                is_over = event.type in TERMINAL
                await put((event, b""))
                live.posted |= live.stream.take_echoed_ids() if live.stream else set()
        finally:
            await close_if_supported(events)
        if live.ending and not is_over:
            raise RunEnded(live.ending)
        if not is_over:
            raise StreamEnded("the agent's events ended before the run did")

    async def _withdraw(self, live: LiveRun, event: AnyEvent) -> list[AnyEvent]:
        """Remove a posted message whose id the agent now uses, lest clients append the answer to its text."""
        if live.journal:
            await live.journal.wait_written()
        past = await self._history.snapshot_at(live.channel)
        roles = {id_of(each): role_of(each) for each in past.messages} if past else {}
        name = started_message_id(event, roles.get)
        if past is None or name not in live.posted:
            return []
        live.posted.discard(name)
        left = filter_sendable(each for each in past.messages if id_of(each) != name)
        events: list[AnyEvent] = [ev.MessagesSnapshot(left)]
        lists = past.state.get(CITATIONS) if is_object(past.state) else None
        if is_object(lists) and name in lists:
            events.append(ev.StateDelta([{"op": "remove", "path": safe_path(CITATIONS, name)}]))
        return events

    async def decide_deferred(self, channel: str) -> None:
        """Decide the pending verdicts of a thread. Clients see them when they reconnect."""
        await self._after_the_run(channel, (), _LATE)

    async def add_foreign_citations(self, channel: str, citations: Sequence[ForeignCitation]) -> None:
        """Add citations by other clients to a thread, with their verdicts pending."""
        await self._after_the_run(channel, citations, 0)

    async def _after_the_run(
        self, channel: str, citations: Sequence[ForeignCitation], deadline: float
    ) -> None:
        """Update a thread's citation record when no run is streaming."""
        past = await self._history.snapshot_at(channel)
        if past is None:
            return
        run_input = RunInput(
            thread_id=thread_of(channel),
            run_id=past.run_id or "",
            messages=past.messages,
            state=past.state,
            context=past.context,
        )
        journal = self.journal(channel, is_deferred=True, patience=self._patience)
        options = replace(self._citing.options, deadline=deadline)
        own, _ = await self._history.own_record(channel)
        stream = await self._stream(run_input, journal, options, _known(own))

        async def produce(put: PutEvent) -> None:
            await put((ev.RunStarted("", ""), b""))
            for each in citations:
                await stream.add_foreign_citation(each.message_id, each.cited, each.by, each.annotation)
            await put((ev.RunFinished("", ""), b""))

        async with journal:
            await stream.run(produce, _nowhere)

    async def _stream(
        self, run_input: RunInput, journal: RunJournal, options: Options, known: LogKnowledge
    ) -> CitationStream:
        proofs = partial(self._links, run_input.thread_id)
        verifier = await self._citing.verifier()
        if self._has_jobs:
            verifier = AfterCommitVerifier(verifier, journal.wait_written)
        return CitationStream(run_input, replace(options, proofs=proofs), verifier, journal, known)


def _may_start(event: AnyEvent) -> set[str]:
    """Return the ids that the message started by this event may have, whatever messages exist."""
    return {started_message_id(event), started_message_id(event, lambda _: "user")}


def _known(own: OwnRecord, news: tuple[AnyEvent, ...] = ()) -> LogKnowledge:
    said = own.messages.values()
    echoes = own.fingerprints - fingerprints(said) if own.fingerprints else frozenset[bytes]()
    return LogKnowledge(own.posted, news, find_open_calls(said), echoes)


def _warn_of_version(declared: str | UnsetType, whose: str) -> None:
    if problem := version_problem(declared):
        code, message = problem
        _log.warning("protocolVersion of the %s: %s", whose, message, extra={"fields": {"code": code}})


def _run_error(error: Exception) -> ev.RunError:
    """Return the error to send to the client. Details go to the server's log only."""
    return ev.to_run_error(report_error(error, _log, code="agent_failed", message="the agent failed"))


async def _nowhere(_: list[OutgoingEvent]) -> None:
    """Discard the events: clients read them from the log."""
