"""Put citewire on an agent: every citation of its answers checked while they are being written.

`Citing` stands around the runs of a source, `CitationMiddleware` around an ASGI app that streams AG-UI. The
agent need not know of either. Text goes through at once; verdicts follow as they are reached, and the run's
terminal event waits for them, for a client takes nothing after it.
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

from citewire.agui.events import AnyEvent, RunInput, coerce
from citewire.agui.records import Cited
from citewire.agui.retrieved import Retrieved
from citewire.agui.sources import Next
from citewire.agui.state import without_ours
from citewire.agui.weaving import LogKnowledge, Options, Record, Time, Trust, Wanted, Weaver
from citewire.agui.written import WrittenVerdicts
from citewire.error_reports import report_error
from citewire.verification.engine import Engine
from citewire.verification.sources import Address, Given, Source
from citewire.verification.verifier import Asked, Verifier

__all__ = ["Citing", "RunSink", "Sent"]

_log = logging.getLogger("citewire.verification")

# Events that are woven ahead of whoever takes them.
_AHEAD = 64
# Pictures that are larger stand in no state.
_LARGEST_PICTURE = 64 * 1024

Sent: TypeAlias = tuple[AnyEvent | None, bytes]
"""An event, and the bytes that it came in where they can go on as they are. Without an event, only those."""
Put: TypeAlias = Callable[[Sent], Awaitable[None]]
Send: TypeAlias = Callable[[list[Sent]], Awaitable[None]]
Produce: TypeAlias = Callable[[Put], Awaitable[None]]


class RunSink(Protocol):
    """**Protocol:** whoever keeps the record."""

    async def put(self, thread_id: str, run_id: str, items: Sequence[AnyEvent | Record]) -> None:
        """These come next in a stream. They are sent once this returns; what it raises ends the stream."""
        ...


class Stream:
    """One stream on its way from the agent to whoever reads it.

    What the agent says is woven and sent on in its own turn, with nothing in between; a verdict is by whoever
    reached it.
    """

    def __init__(
        self,
        run_input: RunInput,
        options: Options,
        verifier: Verifier,
        sink: RunSink | None = None,
        known: LogKnowledge | None = None,
        trust: Trust | None = None,
    ) -> None:
        self._input, self._options, self._verifier, self._sink = run_input, options, verifier, sink
        time = Time(asyncio.get_running_loop().time, _date)
        self._weaver = Weaver(run_input, options, time, known, trust)
        self._send: Send = _nowhere
        # Held while something is woven and sent: what is sent is in the order in which it was woven.
        self._turn = asyncio.Lock()
        self._news = asyncio.Event()
        self._has_left = self._is_hurried = False
        self._scope = uuid4().hex
        self._jobs: asyncio.Queue[Retrieved | Asked] = asyncio.Queue()
        self._pictures: asyncio.Queue[Wanted] = asyncio.Queue()
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._undecided: set[str | None] = set()

    @property
    def is_undecided(self) -> bool:
        """Whether something was asked that has no verdict."""
        return bool(self._undecided)

    def take_echoed(self) -> set[str]:
        """The ids under which the agent repeated posted messages since this was last asked."""
        echoed, self._weaver.echoed = self._weaver.echoed, set()
        return echoed

    async def run(self, produce: Produce, send: Send) -> None:
        """Have `produce` put what the agent says, and `send` what is to be sent. Its errors come last."""
        self._send = send
        try:
            self._hand_out()
            try:
                await produce(self._put)
            except Exception:
                await self._end()
                raise
            await self._end()
        finally:
            for task in self._tasks.values():
                task.cancel()
            await asyncio.gather(*self._tasks.values(), return_exceptions=True)
            with suppress(Exception):  # all has been said, and a verifier that fails here fails only itself
                await self._verifier.forget(self._scope)

    async def cite(self, message_id: str, cited: Cited, by: str | None, annotation: str) -> bool:
        """Take in what somebody else says that a message cites; False where no run is open for it.

        `annotation` names it: to take it in again changes nothing.
        """
        async with self._turn:
            if not self._weaver.is_open or self._has_left:
                return False
            events = self._weaver.cite(message_id, cited, by, annotation)
            await self._out([(event, b"") for event in events])
        self._news.set()
        return True

    def leave(self) -> None:
        """Whoever reads this is gone: what is not decided yet need not be."""
        self._has_left = True
        self._news.set()

    def hurry(self) -> None:
        """Wait for no more verdicts: what is not decided yet stays pending."""
        self._is_hurried = True
        self._news.set()

    async def _put(self, sent: Sent) -> None:
        event, raw = sent
        if self._has_left:
            return
        async with self._turn:
            if event is None:
                await self._send([sent])
                return
            await self._out(_with_raw(self._weaver.take(event), event, raw))
        if self._weaver.held is not None:
            await self._settled()
            async with self._turn:
                await self._out(_with_raw(self._weaver.release(), event, raw))

    async def _end(self) -> None:
        """All that the agent had to say was said."""
        await self._ours(self._weaver.finish)
        await self._settled()
        await self._ours(self._weaver.release)

    async def _ours(self, weave: Callable[[], list[AnyEvent]]) -> None:
        if not self._has_left:
            async with self._turn:
                await self._out([(event, b"") for event in weave()])
        self._news.set()

    async def _out(self, sent: list[Sent]) -> None:
        weaver = self._weaver
        if weaver.records or self._sink is not None:
            await self._record(sent)
        if weaver.sources or weaver.asked or weaver.wanted:
            self._hand_out()
        if sent:
            await self._send(sent)

    async def _settled(self) -> None:
        """Wait for the verdicts, as long as there is anybody to wait for them."""
        seconds = self._options.deadline
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self._weaver.has_to_wait and not (self._has_left or self._is_hurried):
                    self._news.clear()
                    await self._news.wait()

    async def _record(self, sent: list[Sent]) -> None:
        records, self._weaver.records = self._weaver.records, []
        items: list[AnyEvent | Record] = [event for event, _ in sent if event is not None]
        if self._sink is not None and (items or records):
            await self._sink.put(self._input.thread_id, self._input.run_id, [*items, *records])

    def _hand_out(self) -> None:
        """Give to others what the weaver wants done. They are started when there is something for them."""
        weaver = self._weaver
        for job in (*weaver.sources, *weaver.asked):
            self._jobs.put_nowait(job)
        self._undecided.update(asked.id for asked in weaver.asked)
        for wanted in weaver.wanted:
            self._pictures.put_nowait(wanted)
        checker = self._tasks.get("checker")
        if (weaver.sources or weaver.asked) and (checker is None or checker.done()):
            self._tasks["checker"] = asyncio.create_task(self._check())
        if weaver.wanted and "painter" not in self._tasks:
            self._tasks["painter"] = asyncio.create_task(self._paint())
        weaver.sources, weaver.asked, weaver.wanted = [], [], []

    async def _check(self) -> None:
        try:
            async with aclosing(self._verifier.check(self._asked())) as verdicts:
                async for checked in verdicts:
                    if checked.status != "pending":
                        self._undecided.discard(checked.id)
                    await self._ours(partial(self._weaver.judge, checked))
            reason = "the verifier stopped"
        except Exception as exc:  # noqa: BLE001  # the root of a task: the reader is told
            reason = report_error(exc, _log, code="verifier_failed", message="the verifier failed").message
        await self._ours(partial(self._weaver.fail, reason))

    async def _asked(self) -> AsyncIterator[Asked]:
        while True:
            job = await self._jobs.get()
            if isinstance(job, Asked):
                yield replace(job, scope=self._scope)
            else:
                await self._verifier.add(*_given(job), scope=self._scope)

    async def _paint(self) -> None:
        """As many at once as there are: what is of one source is drawn together."""
        while True:
            wanted = [await self._pictures.get()]
            while not self._pictures.empty():
                wanted.append(self._pictures.get_nowait())
            form = self._options.image_format or "png"
            drawn: list[bytes | None] = [None] * len(wanted)
            with suppress(Exception):  # a picture is nice to have, and the verdict says where to look
                drawn = await self._verifier.pictures([each.checked for each in wanted], form)
            for each, picture in zip(wanted, drawn, strict=True):
                await self._ours(partial(self._weaver.show, each.id, _address(picture, form)))


async def _nowhere(_: list[Sent]) -> None:
    """Before the stream runs nothing is sent."""


def _address(picture: bytes | None, form: str) -> str | None:
    if picture is None or len(picture) > _LARGEST_PICTURE:
        return None
    return f"data:image/{form};base64,{b64encode(picture).decode()}"


def _with_raw(sent: list[AnyEvent], event: AnyEvent, raw: bytes) -> list[Sent]:
    if len(sent) == 1 and sent[0] is event:
        return [(event, raw)]
    return [(each, raw if each is event else b"") for each in sent]


def _given(text: Retrieved) -> list[Source]:
    """A text that a tool returned, as a source; an address alone is fetched."""
    name = text.id or text.title or text.url or "tool result"
    if text.data is not None:
        return [Given(text.data, text.title or name, text.url, text.title, origin=text.origin)]
    if not text.text:
        return [Address(text.url or "", text.origin)]
    return [Given(text.text, name, text.url, text.title, origin=text.origin)]


def _date() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


class Citing:
    """Checks the citations of every run it stands around: `HttpAgent(url).use(Citing("docs/"))`.

    `sources` are what quotes are looked for in, beside what a run brings along. A `verifier` of your own is
    yours to close. The processes of the local one start with the first run and end with `aclose`, or with
    this process.
    """

    def __init__(
        self,
        sources: Source | Iterable[Source] = (),
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
        """Who checks; the local engine is started when it is needed first."""
        async with self._starting:
            if self._verifier is None:
                engine = Engine(self._given, deadline=self.options.deadline)
                self._verifier = await self._stack.enter_async_context(engine)
        return self._verifier

    async def aclose(self) -> None:
        """End the processes of the local engine."""
        await self._stack.aclose()

    async def stream(self, run_input: RunInput) -> Stream:
        """A stream with this input, as the client posted it. Verdicts not written here are reached anew."""
        trust = Trust(self._written, run_input.thread_id)
        return Stream(run_input, self.options, await self.verifier(), self._sink, trust=trust)

    def input_for_agent(self, run_input: RunInput) -> RunInput:
        """The input without what we put into the state."""
        return replace(run_input, state=without_ours(run_input.state, self.options.state_key))

    async def __call__(self, run_input: RunInput, go_on: Next) -> AsyncGenerator[AnyEvent]:
        """A run with its citations checked."""

        async def produce(put: Put) -> None:
            async for event in go_on(self.input_for_agent(run_input)):
                await put((coerce(event), b""))

        stream = await self.stream(run_input)
        queue: asyncio.Queue[list[Sent] | None] = asyncio.Queue(_AHEAD)
        running = asyncio.create_task(_to_the_end(stream.run(produce, queue.put), queue))
        try:
            while (sent := await queue.get()) is not None:
                for event, _ in sent:
                    if event is not None:
                        yield event
            await running
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)


async def _to_the_end(run: Awaitable[None], queue: asyncio.Queue[list[Sent] | None]) -> None:
    try:
        await run
    except Exception:
        await queue.put(None)
        raise
    await queue.put(None)
