"""client.js in Node, as a page would use it, and a line to the server that breaks when it is told to."""

from __future__ import annotations

import asyncio
import json
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from typing import Any

from support.web_node import NODE, need_node

Json = dict[str, Any]


class Talk:
    """What is said about one command."""

    def __init__(self, page: Page, number: int) -> None:
        self.number = number
        self._page = page
        self.lines = asyncio.Queue[Json]()
        self.said: list[Json] = []

    async def until(self, wanted: Callable[[Json], bool]) -> Json:
        """The first line from here on that is wanted. One that ends the talk is an error before it."""
        while True:
            line = await self.lines.get()
            self.said.append(line)
            if wanted(line):
                return line
            assert "over" not in line, line

    async def over(self) -> Json:
        """The last line."""
        return await self.until(lambda line: "over" in line)

    async def status(self, name: str) -> Json:
        """The next time that the connection is called this."""
        return await self.until(lambda line: line.get("status") == name)

    @property
    def events(self) -> list[Json]:
        """The events so far."""
        return [line["event"] for line in self.said if "event" in line]

    @property
    def statuses(self) -> list[str]:
        """What the connection was called so far."""
        return [line["status"] for line in self.said if "status" in line]

    def leave(self) -> None:
        """Abort it."""
        self._page.send({"n": self.number, "do": "leave"})


class Page:
    """A Node process with a client in it."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._talks = list[Talk]()

    def begin(self, do: str, **given: Any) -> Talk:
        """Have the client do something."""
        talk = Talk(self, len(self._talks))
        self._talks.append(talk)
        self.send({"n": talk.number, "do": do, **given})
        return talk

    async def done(self, do: str, **given: Any) -> Json:
        """What came of it."""
        return await self.begin(do, **given).over()

    def send(self, command: Json) -> None:
        """A line."""
        assert self._process.stdin
        self._process.stdin.write(json.dumps(command).encode() + b"\n")

    async def listen(self) -> None:
        """Hear what is said, until the process ends."""
        assert self._process.stdout
        async for line in self._process.stdout:
            said: Json = json.loads(line)
            self._talks[int(said["n"])].lines.put_nowait(said)


@asynccontextmanager
async def opened_page(url: str, key: str, retries: int = 10, quiet: int = 45_000) -> AsyncGenerator[Page]:
    """A client of this server. When the block ends, nothing may keep its process from ending."""
    need_node()
    process = await asyncio.create_subprocess_exec(
        "node",
        NODE / "web_client.mjs",
        url,
        key,
        str(retries),
        str(quiet),
        stdin=PIPE,
        stdout=PIPE,
        limit=1 << 24,
    )
    page = Page(process)
    listening = asyncio.create_task(page.listen())
    try:
        yield page
        assert process.stdin
        process.stdin.close()
        async with asyncio.timeout(10):
            assert await process.wait() == 0
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()
        await listening


class Line:
    """A line to the server. With `limits`, each connection over it ends after so many bytes of the server."""

    def __init__(self, address: tuple[str, int], limits: Iterator[int] | None = None) -> None:
        self._address, self._limits = address, limits
        self._writers: set[asyncio.StreamWriter] = set()
        self.connections = 0

    def cut(self) -> None:
        """Break all connections."""
        for writer in self._writers:
            writer.transport.abort()

    async def connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection."""
        self.connections += 1
        limit = next(self._limits, None) if self._limits else None
        there, back = await asyncio.open_connection(*self._address)
        self._writers |= {writer, back}
        both = [
            asyncio.create_task(_pass(reader, back, None)),
            asyncio.create_task(_pass(there, writer, limit)),
        ]
        try:
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in both:
                task.cancel()
            await asyncio.gather(*both, return_exceptions=True)
            for each in (writer, back):
                self._writers.discard(each)
                each.transport.abort()


@asynccontextmanager
async def opened_line(
    address: tuple[str, int], limits: Iterator[int] | None = None
) -> AsyncGenerator[tuple[str, Line]]:
    """Where a line to `address` begins, and the line."""
    line = Line(address, limits)
    server = await asyncio.start_server(line.connect, "127.0.0.1")
    async with server:
        host, port = server.sockets[0].getsockname()
        yield f"http://{host}:{port}", line
        server.close()
        line.cut()


async def _pass(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, left: int | None) -> None:
    with suppress(ConnectionError):
        while left != 0 and (data := await reader.read(left or 1 << 16)):
            writer.write(data)
            await writer.drain()
            left = None if left is None else left - len(data)
