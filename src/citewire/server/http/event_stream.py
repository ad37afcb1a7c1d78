"""Long-lived event stream responses, which end when their caller loses access."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing, suppress

from starlette.types import Receive, Scope, Send

from citewire.server.access.errors import AccessRefused
from citewire.server.access.keys import Caller
from citewire.server.http.operations import CALLER, CHECK_KEY

__all__ = ["EventStreamResponse", "wait_for_disconnect"]

# Seconds between two checks of the caller's key, and the time limit for ending a stream.
_LOOK, _FAREWELL = 5.0, 1.0

_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache, no-transform"),
    # A buffering proxy would delay the events.
    (b"x-accel-buffering", b"no"),
]


class EventStreamResponse:
    """ASGI app that sends frames until they end, the client disconnects, or the caller loses access.

    A stream ends within seconds when the caller's key is revoked, and when its token or session expires. A
    run's stream, `of_run`, may outlast a token: it was allowed when it began, and a run is short.
    """

    def __init__(self, frames: AsyncGenerator[bytes], *, of_run: bool = False) -> None:
        self._frames, self._of_run = frames, of_run

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send one response."""
        async with aclosing(self._frames):
            sending = asyncio.create_task(_send_all(self._frames, send))
            leaving = asyncio.create_task(wait_for_disconnect(receive))
            refused = asyncio.create_task(self._until_refused(scope))
            tasks = [sending, leaving, refused]
            try:
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            finally:
                is_cut = refused.done() and not sending.done()
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
            if is_cut:
                await _finish(send)

    async def _until_refused(self, scope: Scope) -> None:
        """Wait until the caller's key is revoked or its token expires."""
        caller: Caller = scope[CALLER]
        check: Callable[[str], None] = scope.get(CHECK_KEY, _never_refuse)
        expires = None if self._of_run else caller.expires
        while True:
            left = _LOOK if expires is None else min(_LOOK, expires - time.time())
            if left <= 0:
                return
            await asyncio.sleep(left)
            try:
                check(caller.key)
            except AccessRefused:
                return


def _never_refuse(_: str) -> None:
    """Check nothing, for an app without keys."""


async def _finish(send: Send) -> None:
    """End a response between frames. A client that does not read runs into its timeout."""
    with suppress(OSError, TimeoutError):
        async with asyncio.timeout(_FAREWELL):
            await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _send_all(frames: AsyncIterator[bytes], send: Send) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
    async for frame in frames:
        await send({"type": "http.response.body", "body": frame, "more_body": True})
    await send({"type": "http.response.body", "body": b"", "more_body": False})


async def wait_for_disconnect(receive: Receive) -> None:
    """Wait until the client disconnects. Anything it still sends is ignored."""
    while (await receive())["type"] != "http.disconnect":
        pass
