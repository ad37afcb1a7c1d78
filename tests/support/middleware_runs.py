"""A run through `CitationMiddleware`, posted as a client does."""

from __future__ import annotations

import asyncio
import json
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    Callable,
    Coroutine,
    Iterable,
    Sequence,
)
from typing import Any, TypeVar

from citewire.agui.asgi import CitationMiddleware
from citewire.agui.events import coerce
from citewire.agui.sse import SseParser
from citewire.documents.draw import ImageFormat
from citewire.verification.document_set import CheckResult
from citewire.verification.sources import SourceContent, SourceInput
from citewire.verification.verifier import QuoteCheck, iter_quotes
from support.agents import (
    scripted,
)
from support.annotated_stream import KNOWN, Client, judged

T = TypeVar("T")


# Seconds. What takes this long hangs.
DEADLINE = 20


POSTED: dict[str, Any] = {"threadId": "t", "runId": "r", "messages": [], "tools": [], "context": []}


class Words:
    """A verifier that looks words up in what it knows."""

    def __init__(
        self, known: str = KNOWN, *, fails: bool = False, hangs: bool = False, stops: bool = False
    ) -> None:
        self.known, self._fails, self._hangs, self._stops = known, fails, hangs, stops
        self.scopes: dict[str | None, list[SourceInput]] = {}
        self.open = 0

    async def check(
        self, quotes: Iterable[QuoteCheck] | AsyncIterable[QuoteCheck]
    ) -> AsyncGenerator[CheckResult]:
        self.open += 1
        try:
            async for asked in iter_quotes(quotes):
                if self._fails:
                    raise ValueError("boom\x1b[31m")
                if self._stops:
                    return
                if self._hangs:
                    await asyncio.Event().wait()
                held = [
                    given.content
                    for given in self.scopes.get(asked.scope, [])
                    if isinstance(given, SourceContent)
                ]
                yield judged(asked, " ".join([self.known, *map(str, held)]))
        finally:
            self.open -= 1

    async def add(self, *sources: SourceInput, scope: str | None = None) -> None:
        self.scopes.setdefault(scope, []).extend(sources)

    async def forget(self, scope: str) -> None:
        self.scopes.pop(scope, None)

    async def pictures(self, found: Sequence[CheckResult], form: ImageFormat) -> list[bytes | None]:
        del form
        return [None] * len(found)

    async def prewarm(self) -> None:
        pass


def going(main: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run `main`, which leaves no task behind."""

    async def alone() -> T:
        result = await asyncio.wait_for(main(), DEADLINE)
        assert asyncio.all_tasks() == {asyncio.current_task()}
        return result

    return asyncio.run(alone())


class Call:
    """A request to an ASGI app, and what it answers."""

    def __init__(self, body: bytes, method: str = "POST", read_at_most: int | None = None) -> None:
        self._sent = [body[: len(body) // 2], body[len(body) // 2 :]]
        self.scope = {
            "type": "http",
            "method": method,
            "path": "/",
            "headers": [(b"Content-Length", b"%d" % len(body))],
        }
        self.gone, self.has_text = asyncio.Event(), asyncio.Event()
        self._left = read_at_most
        self.start: Any = None
        self.bodies: list[bytes] = []
        self.has_ended = False

    async def receive(self) -> Any:
        if self._sent:
            piece = self._sent.pop(0)
            return {"type": "http.request", "body": piece, "more_body": bool(self._sent)}
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Any) -> None:
        if message["type"] == "http.response.start":
            self.start = message
            return
        if self._left is not None:
            self._left -= 1
            if self._left < 0:
                await asyncio.Event().wait()
        assert not self.has_ended
        self.bodies.append(message.get("body", b""))
        if b"TEXT_MESSAGE_END" in self.bodies[-1]:
            self.has_text.set()
        self.has_ended = not message.get("more_body", False)

    @property
    def body(self) -> bytes:
        return b"".join(self.bodies)

    @property
    def events(self) -> list[dict[str, Any]]:
        frames = SseParser()
        return [json.loads(found.data) for found in [*frames.feed(self.body), *frames.finish()]]

    @property
    def client(self) -> Client:
        return Client(map(coerce, self.events))


async def post(app: Any, posted: Any = POSTED, **more: Any) -> Call:
    body = posted if isinstance(posted, bytes) else json.dumps(posted).encode()
    call = Call(body, **more)
    await app(call.scope, call.receive, call.send)
    return call


def wrapped(app: Any, **more: Any) -> CitationMiddleware:
    return CitationMiddleware(app, verifier=more.pop("verifier", None) or Words(), **more)


def through(events: Iterable[Any], posted: Any = POSTED, **more: Any) -> Call:
    """What a client is sent of an agent that streams these events."""
    return going(lambda: post(wrapped(scripted(events), **more), posted))
