"""Frames as a response that lasts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing

from starlette.types import Receive, Scope, Send

__all__ = ["Streamed", "until_gone"]

_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache, no-transform"),
    # A proxy that buffers would hold the answer back.
    (b"x-accel-buffering", b"no"),
]


class Streamed:
    """An ASGI app that sends frames until they end, or the client is gone."""

    def __init__(self, frames: AsyncGenerator[bytes]) -> None:
        self._frames = frames

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One response."""
        del scope
        async with aclosing(self._frames):
            sending = asyncio.create_task(_send_all(self._frames, send))
            leaving = asyncio.create_task(until_gone(receive))
            try:
                await asyncio.wait([sending, leaving], return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in (sending, leaving):
                    task.cancel()
                await asyncio.gather(sending, leaving, return_exceptions=True)


async def _send_all(frames: AsyncIterator[bytes], send: Send) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
    async for frame in frames:
        await send({"type": "http.response.body", "body": frame, "more_body": True})
    await send({"type": "http.response.body", "body": b"", "more_body": False})


async def until_gone(receive: Receive) -> None:
    """Wait until the client leaves; what it still sends is not looked at."""
    while (await receive())["type"] != "http.disconnect":
        pass
