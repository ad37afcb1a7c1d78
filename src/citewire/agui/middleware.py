"""Agent middleware that checks every citation of an answer while it is streamed.

`Citing` wraps the runs of an agent, `CitationMiddleware` an ASGI app that streams AG-UI. The agent needs no
changes. Text passes through at once and verdicts follow as they are reached. The run's terminal event waits
for them, because clients accept nothing after it.
"""

from __future__ import annotations

import asyncio
import logging
from base64 import b64encode
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import AsyncExitStack, aclosing, suppress
from datetime import UTC, datetime
from functools import partial
from typing import Any, Protocol, Self, TypeAlias
from uuid import uuid4

from msgspec.structs import replace

from citewire.agui.agents import Next
from citewire.agui.citations.annotator import (
    AuditRecord,
    CitationAnnotator,
    Clock,
    CropRequest,
    LogKnowledge,
    Options,
    ThreadVerdicts,
)
from citewire.agui.citations.records import MessageCitation
from citewire.agui.citations.retrieval import RetrievedText
from citewire.agui.citations.shared_state import remove_own_state
from citewire.agui.citations.written_verdicts import WrittenVerdicts
from citewire.agui.events import AnyEvent, RunInput, coerce
from citewire.error_reports import report_error
from citewire.verification.engine import Engine
from citewire.verification.sources import SourceContent, SourceInput, SourceUrl
from citewire.verification.verifier import QuoteCheck, Verifier

__all__ = ["Citing", "OutgoingEvent", "RunSink"]

_log = logging.getLogger("citewire.verification")

# Batches of events that are buffered ahead of the consumer.
_QUEUE_SIZE = 64
# Larger pictures, in bytes, are not put into the state.
_LARGEST_PICTURE = 64 * 1024

OutgoingEvent: TypeAlias = tuple[AnyEvent | None, bytes]
"""An event and its original bytes, if they can be sent unchanged. Without an event, only the bytes."""
PutEvent: TypeAlias = Callable[[OutgoingEvent], Awaitable[None]]
SendEvents: TypeAlias = Callable[[list[OutgoingEvent]], Awaitable[None]]
ProduceEvents: TypeAlias = Callable[[PutEvent], Awaitable[None]]


class RunSink(Protocol):
    """**Protocol:** stores the events and audit records of runs."""

    async def put(self, thread_id: str, run_id: str, items: Sequence[AnyEvent | AuditRecord]) -> None:
        """Store the next items of a stream. They are sent once this returns; an error ends the stream."""
        ...


class CitationStream:
    """Annotates one event stream with citations and verdicts, from the agent to the client.

    Each agent event is annotated and sent in one step under a lock. The checking task sends its verdicts.
    """

    def __init__(
        self,
        run_input: RunInput,
        options: Options,
        verifier: Verifier,
        sink: RunSink | None = None,
        known: LogKnowledge | None = None,
        trust: ThreadVerdicts | None = None,
    ) -> None:
        self._input, self._options, self._verifier, self._sink = run_input, options, verifier, sink
        time = Clock(asyncio.get_running_loop().time, _date)
        self._annotator = CitationAnnotator(run_input, options, time, known, trust)
        self._send: SendEvents = _discard
        # Held while events are annotated and sent, so that they are sent in the order of annotation.
        self._turn = asyncio.Lock()
        self._news = asyncio.Event()
        self._has_left = self._is_hurried = False
        self._scope = uuid4().hex
        self._jobs: asyncio.Queue[RetrievedText | QuoteCheck] = asyncio.Queue()
        self._pictures: asyncio.Queue[CropRequest] = asyncio.Queue()
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._undecided: set[str | None] = set()

    @property
    def has_undecided_checks(self) -> bool:
        """Whether a requested check has no verdict yet."""
        return bool(self._undecided)

    def take_echoed_ids(self) -> set[str]:
        """Return and clear the ids under which the agent repeated posted messages."""
        echoed, self._annotator.echoed = self._annotator.echoed, set()
        return echoed

    async def run(self, produce: ProduceEvents, send: SendEvents) -> None:
        """Run `produce`, annotate the events it puts, and pass them to `send`. Its errors are raised last."""
        self._send = send
        try:
            self._dispatch_jobs()
            try:
                await produce(self._put)
            except Exception:
                await self._finish()
                raise
            await self._finish()
        finally:
            for task in self._tasks.values():
                task.cancel()
            await asyncio.gather(*self._tasks.values(), return_exceptions=True)
            with suppress(Exception):  # the stream is complete: a verifier error here must not fail it
                await self._verifier.forget(self._scope)

    async def add_foreign_citation(
        self, message_id: str, cited: MessageCitation, by: str | None, annotation: str
    ) -> bool:
        """Add a citation of a message by another client; False if no run is open to take it.

        `annotation` is its id: adding it again changes nothing.
        """
        async with self._turn:
            if not self._annotator.is_run_open or self._has_left:
                return False
            events = self._annotator.add_foreign_citation(message_id, cited, by, annotation)
            await self._deliver([(event, b"") for event in events])
        self._news.set()
        return True

    def disconnect(self) -> None:
        """The client has disconnected: stop sending and waiting for verdicts."""
        self._has_left = True
        self._news.set()

    def stop_waiting(self) -> None:
        """Stop waiting for verdicts: undecided citations stay pending."""
        self._is_hurried = True
        self._news.set()

    async def _put(self, sent: OutgoingEvent) -> None:
        event, raw = sent
        if self._has_left:
            return
        async with self._turn:
            if event is None:
                await self._send([sent])
                return
            await self._deliver(_with_raw(self._annotator.process_event(event), event, raw))
        if self._annotator.held is not None:
            await self._wait_for_verdicts()
            async with self._turn:
                await self._deliver(_with_raw(self._annotator.release_terminal_event(), event, raw))

    async def _finish(self) -> None:
        """Finish the stream after the agent's last event."""
        await self._send_own(self._annotator.finish)
        await self._wait_for_verdicts()
        await self._send_own(self._annotator.release_terminal_event)

    async def _send_own(self, weave: Callable[[], list[AnyEvent]]) -> None:
        if not self._has_left:
            async with self._turn:
                await self._deliver([(event, b"") for event in weave()])
        self._news.set()

    async def _deliver(self, sent: list[OutgoingEvent]) -> None:
        weaver = self._annotator
        if weaver.records or self._sink is not None:
            await self._record(sent)
        if weaver.sources or weaver.asked or weaver.wanted:
            self._dispatch_jobs()
        if sent:
            await self._send(sent)

    async def _wait_for_verdicts(self) -> None:
        """Wait for verdicts until the deadline, `disconnect` or `stop_waiting`."""
        seconds = self._options.deadline
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self._annotator.is_waiting and not (self._has_left or self._is_hurried):
                    self._news.clear()
                    await self._news.wait()

    async def _record(self, sent: list[OutgoingEvent]) -> None:
        records, self._annotator.records = self._annotator.records, []
        items: list[AnyEvent | AuditRecord] = [event for event, _ in sent if event is not None]
        if self._sink is not None and (items or records):
            await self._sink.put(self._input.thread_id, self._input.run_id, [*items, *records])

    def _dispatch_jobs(self) -> None:
        """Queue the annotator's sources, checks and pictures, and start the tasks for them if needed."""
        weaver = self._annotator
        for job in (*weaver.sources, *weaver.asked):
            self._jobs.put_nowait(job)
        self._undecided.update(asked.id for asked in weaver.asked)
        for wanted in weaver.wanted:
            self._pictures.put_nowait(wanted)
        checker = self._tasks.get("checker")
        if (weaver.sources or weaver.asked) and (checker is None or checker.done()):
            self._tasks["checker"] = asyncio.create_task(self._check())
        if weaver.wanted and "painter" not in self._tasks:
            self._tasks["painter"] = asyncio.create_task(self._draw_pictures())
        weaver.sources, weaver.asked, weaver.wanted = [], [], []

    async def _check(self) -> None:
        try:
            async with aclosing(self._verifier.check(self._requested_checks())) as verdicts:
                async for checked in verdicts:
                    if checked.status != "pending":
                        self._undecided.discard(checked.id)
                    await self._send_own(partial(self._annotator.apply_verdict, checked))
            reason = "the verifier stopped"
        except Exception as exc:  # noqa: BLE001  # the root of a task: the reader is told
            reason = report_error(exc, _log, code="verifier_failed", message="the verifier failed").message
        await self._send_own(partial(self._annotator.fail_pending, reason))

    async def _requested_checks(self) -> AsyncIterator[QuoteCheck]:
        while True:
            job = await self._jobs.get()
            if isinstance(job, QuoteCheck):
                yield replace(job, scope=self._scope)
            else:
                await self._verifier.add(*_to_sources(job), scope=self._scope)

    async def _draw_pictures(self) -> None:
        """Draw all queued pictures in one call, so that those of one source are drawn together."""
        while True:
            wanted = [await self._pictures.get()]
            while not self._pictures.empty():
                wanted.append(self._pictures.get_nowait())
            form = self._options.image_format or "png"
            drawn: list[bytes | None] = [None] * len(wanted)
            with suppress(Exception):  # pictures are optional: the verdict has the place of the quote
                drawn = await self._verifier.pictures([each.checked for each in wanted], form)
            for each, picture in zip(wanted, drawn, strict=True):
                await self._send_own(partial(self._annotator.add_picture, each.id, _data_url(picture, form)))


async def _discard(_: list[OutgoingEvent]) -> None:
    """Discard events before the stream runs."""


def _data_url(picture: bytes | None, form: str) -> str | None:
    if picture is None or len(picture) > _LARGEST_PICTURE:
        return None
    return f"data:image/{form};base64,{b64encode(picture).decode()}"


def _with_raw(sent: list[AnyEvent], event: AnyEvent, raw: bytes) -> list[OutgoingEvent]:
    if len(sent) == 1 and sent[0] is event:
        return [(event, raw)]
    return [(each, raw if each is event else b"") for each in sent]


def _to_sources(text: RetrievedText) -> list[SourceInput]:
    """Convert a tool's text to a source. A URL without text is fetched."""
    name = text.id or text.title or text.url or "tool result"
    if text.data is not None:
        return [SourceContent(text.data, text.title or name, text.url, text.title, origin=text.origin)]
    if not text.text:
        return [SourceUrl(text.url or "", text.origin)]
    return [SourceContent(text.text, name, text.url, text.title, origin=text.origin)]


def _date() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


class Citing:
    """Middleware that checks the citations of every run: `HttpAgent(url).use(Citing("docs/"))`.

    Quotes are searched in `sources` and in texts retrieved during the run. The caller closes its own
    `verifier`. The processes of the default one start with the first run and end with `aclose`, or with this
    process.
    """

    def __init__(
        self,
        sources: SourceInput | Iterable[SourceInput] = (),
        *,
        verifier: Verifier | None = None,
        sink: RunSink | None = None,
        **options: Any,
    ) -> None:
        self.options = Options(**options)
        self._given, self._verifier, self._sink = sources, verifier, sink
        self._written = WrittenVerdicts()
        self._stack = AsyncExitStack()
        self._starting = asyncio.Lock()

    async def __aenter__(self) -> Self:
        await self.verifier()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def verifier(self) -> Verifier:
        """Return the verifier; the default local engine starts on first use."""
        async with self._starting:
            if self._verifier is None:
                engine = Engine(self._given, deadline=self.options.deadline)
                self._verifier = await self._stack.enter_async_context(engine)
        return self._verifier

    async def aclose(self) -> None:
        """End the processes of the local engine."""
        await self._stack.aclose()

    async def stream(self, run_input: RunInput) -> CitationStream:
        """Create a stream for a posted input. Verdicts in it that were not written here are checked again."""
        trust = ThreadVerdicts(self._written, run_input.thread_id)
        return CitationStream(run_input, self.options, await self.verifier(), self._sink, trust=trust)

    def input_for_agent(self, run_input: RunInput) -> RunInput:
        """Return the input without our own additions to the state."""
        return replace(run_input, state=remove_own_state(run_input.state, self.options.state_key))

    async def __call__(self, run_input: RunInput, go_on: Next) -> AsyncGenerator[AnyEvent]:
        """Run the agent and yield its events with checked citations."""

        async def produce(put: PutEvent) -> None:
            async for event in go_on(self.input_for_agent(run_input)):
                await put((coerce(event), b""))

        stream = await self.stream(run_input)
        queue: asyncio.Queue[list[OutgoingEvent] | None] = asyncio.Queue(_QUEUE_SIZE)
        running = asyncio.create_task(_run_to_end(stream.run(produce, queue.put), queue))
        try:
            while (sent := await queue.get()) is not None:
                for event, _ in sent:
                    if event is not None:
                        yield event
            await running
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)


async def _run_to_end(run: Awaitable[None], queue: asyncio.Queue[list[OutgoingEvent] | None]) -> None:
    try:
        await run
    except Exception:
        await queue.put(None)
        raise
    await queue.put(None)
