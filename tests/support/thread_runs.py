"""A server's runs over a memory store with a scripted agent, and what its clients get."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Callable, Iterable, Sequence
from contextlib import aclosing
from typing import Any

from citewire import codec
from citewire.agui import Thread, check
from citewire.agui.citations.annotator import VerdictReached
from citewire.agui.citations.records import ProofUrls
from citewire.agui.events import RunInput
from citewire.agui.middleware import Citing
from citewire.agui.sse import SseParser
from citewire.channels.hub import Hub
from citewire.channels.memory import MemoryStore
from citewire.channels.store import ChannelStore, Entry, Row
from citewire.server.access.capability import FULL
from citewire.server.access.keys import Caller
from citewire.server.runs.agents import wrap_agent
from citewire.server.runs.driver import RunDriver
from citewire.server.runs.run_manager import RunManager
from citewire.threadlog.history import ThreadHistory
from citewire.threadlog.names import channel_of
from citewire.verification.document_set import CheckResult
from citewire.verification.verifier import QuoteCheck, iter_quotes
from support.annotated_stream import FINISHED, STARTED, answer, block, judged, say, start

ME = Caller("app.key", FULL, "ann")


KEY = "deepcitation"


CHANNEL = channel_of("t")


TEXT = f"Paris [1].{block('Paris is the capital of France.')}"


Events = list[dict[str, Any]]


class Words:
    """A verifier that looks words up, once it may."""

    def __init__(self) -> None:
        self.may, self.asked = asyncio.Event(), asyncio.Event()
        self.may.set()

    async def check(
        self, quotes: Iterable[QuoteCheck] | AsyncIterable[QuoteCheck]
    ) -> AsyncGenerator[CheckResult]:
        async for asked in iter_quotes(quotes):
            self.asked.set()
            await self.may.wait()
            yield judged(asked)

    async def add(self, *_: Any, scope: str | None = None) -> None: ...
    async def forget(self, scope: str) -> None: ...
    async def prewarm(self) -> None: ...
    async def pictures(self, found: Sequence[CheckResult], form: Any) -> list[bytes | None]:
        del form
        return [None] * len(found)


HOLD: dict[str, Any] = {}


class Scripted:
    """An agent that says what it is told to; at `HOLD` it waits until the test lets it go on."""

    def __init__(self, *events: dict[str, Any]) -> None:
        self.events, self.inputs = events, list[RunInput]()
        self.go_on, self.held, self.left = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def __call__(self, run_input: RunInput) -> AsyncIterator[dict[str, Any]]:
        self.inputs.append(run_input)
        try:
            for event in self.events:
                if event is HOLD:
                    self.held.set()
                    await self.go_on.wait()
                else:
                    yield event
        finally:
            self.left.set()


HALF = [STARTED, start(), say("Paris "), HOLD]


WHOLE = [STARTED, *answer(TEXT), FINISHED]


class House:
    """A server's runs over a memory store, and what its clients get."""

    def __init__(
        self, agent: Callable[[RunInput], Any], store: ChannelStore | None = None, **options: Any
    ) -> None:
        self.store: ChannelStore = store or MemoryStore()
        self.hub = Hub(self.store)
        self.words = Words()
        self.history = ThreadHistory(self.store, KEY)
        citing = Citing(verifier=self.words, deadline=options.pop("deadline", 30.0))
        told: dict[str, Any] = {
            name: options.pop(name) for name in ("patience", "timeout") if name in options
        }
        kept: dict[str, Any] = {"linger": 60.0, "most": 10, "resumes": False, **options}
        self.outcomes: list[str] = []
        self.ignored_parts: list[str] = []
        self.verdicts: list[tuple[str, str]] = []
        driver = RunDriver(self.hub, self.history, wrap_agent(agent), citing, links, self, **told)
        self.runs = RunManager(self.hub, driver, self, **kept)

    async def post(self, run_id: str = "r", **fields: Any) -> Events:
        return await read(await self.runs.start(posted(run_id, **fields), ME))

    async def on_verdicts(self, thread_id: str, verdicts: Sequence[VerdictReached]) -> None:
        self.verdicts += [(thread_id, each.verification["citewire"]["status"]) for each in verdicts]

    def on_log_written(self, channel: str) -> None: ...
    def on_input_ignored(self, what: Sequence[str]) -> None:
        self.ignored_parts += what

    def on_run_ended(self, outcome: str) -> None:
        self.outcomes.append(outcome)

    async def on_thread_deleted(self, thread_id: str) -> None:
        self.verdicts = [each for each in self.verdicts if each[0] != thread_id]

    async def rows(self) -> tuple[Row, ...]:
        return await self.store.read(CHANNEL)


def links(thread_id: str, message_id: str, key: str, checked: CheckResult) -> ProofUrls:
    del checked
    return ProofUrls(f"/proofs/{thread_id}/{message_id}/{key}", None)


def posted(run_id: str = "r", thread_id: str = "t", **fields: Any) -> RunInput:
    messages = [{"id": "u", "role": "user", "content": "What?"}]
    known: dict[str, Any] = {"messages": messages, **fields}
    return RunInput(thread_id=thread_id, run_id=run_id, **known)


def decoded(frames: bytes) -> Events:
    return [codec.decode(frame.data) for frame in SseParser().feed(frames) if frame.data]


async def read(frames: AsyncGenerator[bytes], most: int | None = None) -> Events:
    events: Events = []
    async with aclosing(frames):
        async for each_frame in frames:
            events += decoded(each_frame)
            if most is not None and len(events) >= most:
                break
    return events


def types(events: Events) -> list[str]:
    return [event["type"] for event in events]


def text_of(events: Events) -> str:
    thread = Thread()
    thread.extend(events)
    return "".join(message["content"] for message in thread.agui.messages if message["role"] == "assistant")


def takes(events: Events) -> None:
    """The real client's order rules take it."""
    assert not check(events)


def cut(store: ChannelStore, n: int) -> MemoryStore:
    """The store as a crash would have left it after row `n`."""
    left = MemoryStore()

    async def copy() -> None:
        for row in (await store.read(CHANNEL))[:n]:
            await left.append(CHANNEL, [Entry(row.id, row.kind, row.data)])

    asyncio.run(copy())
    return left
