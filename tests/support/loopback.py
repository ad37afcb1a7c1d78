"""An HTTP server that does exactly what it is told, byte by byte, on loopback and in the test's own loop.

A script is a list of answers, one for each request; the last one serves all that follow. An answer is a list
of steps: bytes are sent, HOLD waits until the test calls `go_on` or the client is gone, BREAK resets the
connection. After the last step the connection is closed. What hangs ends with the time of the test.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from typing import Any, Self, TypeAlias

from citewire import codec


class Step(Enum):
    HOLD = "hold"
    BREAK = "break"


HOLD, BREAK = Step.HOLD, Step.BREAK
Answer: TypeAlias = Sequence[bytes | Step]

EVENTS = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"
"""The head of a response whose end is that of the connection."""

CHUNKED = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n"
)
"""The head of a response whose end is a chunk, so that one without it is known to be cut."""


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def answer(
    body: bytes, kind: str | None = "text/event-stream", status: str = "200 OK", more: str = ""
) -> bytes:
    """A whole response. Without `kind` it does not say what it is."""
    said = "" if kind is None else f"content-type: {kind}\r\n"
    head = f"HTTP/1.1 {status}\r\n{said}{more}content-length: {len(body)}\r\nconnection: close\r\n\r\n"
    return head.encode() + body


@dataclass(frozen=True)
class Request:
    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> dict[str, Any]:
        return codec.decode(self.body)


class Loopback:
    """`async with Loopback(answer, …) as server:`, then `server.url`."""

    def __init__(self, *answers: Answer) -> None:
        self._answers = answers
        self._news = asyncio.Condition()
        self._go_on = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self.requests: list[Request] = []
        self.lost = 0
        """Connections that the client ended while they were held."""

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/agui"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        await self._server.wait_closed()

    def go_on(self) -> None:
        """Let whoever is held go on."""
        self._go_on.set()

    async def until(self, *, requests: int = 0, lost: int = 0) -> None:
        """Wait until there were so many."""
        async with self._news:
            await self._news.wait_for(lambda: len(self.requests) >= requests and self.lost >= lost)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task
        self._tasks.add(task)
        try:
            with suppress(ConnectionError, asyncio.IncompleteReadError):
                await self._converse(reader, writer)
        finally:
            self._tasks.discard(task)
            writer.close()

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = await _read(reader)
        async with self._news:
            steps = self._answers[min(len(self.requests), len(self._answers) - 1)]
            self.requests.append(request)
            self._news.notify_all()
        for step in steps:
            if isinstance(step, bytes):
                writer.write(step)
                await writer.drain()
            elif step is BREAK:
                writer.transport.abort()
                return
            elif not await self._held(reader):
                return

    async def _held(self, reader: asyncio.StreamReader) -> bool:
        """Whether the client is still there when the test says to go on."""
        waits: list[asyncio.Task[Any]] = [
            asyncio.create_task(self._go_on.wait()),
            asyncio.create_task(reader.read(1)),
        ]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            here = not waits[1].done()
        finally:
            for wait in waits:
                wait.cancel()
            await asyncio.gather(*waits, return_exceptions=True)
        async with self._news:
            self.lost += not here
            self._news.notify_all()
        return here


async def _read(reader: asyncio.StreamReader) -> Request:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    first, *lines = head.strip().split("\r\n")
    method, path, _ = first.split(" ")
    headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines)}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Request(method, path, headers, body)
