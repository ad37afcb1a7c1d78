"""The real npm `ably`, in Node, for tests against our own wire."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from itertools import count
from typing import Any

from support.agui_node import NODE
from support.cases import need

Json = dict[str, Any]


class AblyFailed(Exception):
    """The client refused, or was told of an error."""

    def __init__(self, error: Json) -> None:
        super().__init__(error)
        self.code: int = error["code"]


class NodeAbly:
    """A Node process with any number of clients in it. `told` is all that their channels were told so far."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process, self._ids = process, count()
        self._asked: dict[int, asyncio.Future[Any]] = {}
        self.told: list[Json] = []
        self._news = asyncio.Condition()

    async def ask(self, do: str, client: str, **given: Any) -> Any:
        """What the process says to one line."""
        number = next(self._ids)
        answer = self._asked[number] = asyncio.get_running_loop().create_future()
        assert self._process.stdin
        self._process.stdin.write(
            json.dumps({"id": number, "do": do, "client": client, **given}).encode() + b"\n"
        )
        return await answer

    async def call(self, client: str, channel: str | None, method: str, *args: Any) -> Any:
        """Calls a method of a channel of the client."""
        return await self.ask("call", client, channel=channel, method=method, args=args)

    async def until(self, enough: Callable[[list[Json]], bool]) -> list[Json]:
        """All that was told, once it is enough."""
        async with self._news:
            await self._news.wait_for(lambda: enough(self.told))
        return self.told

    async def read(self) -> None:
        """Hand on what the process says."""
        assert self._process.stdout
        async for line in self._process.stdout:
            said = json.loads(line)
            if (number := said.get("id")) is None or "client" in said:
                async with self._news:
                    self.told.append(said)
                    self._news.notify_all()
            elif "error" in said:
                self._asked.pop(number).set_exception(AblyFailed(said["error"]))
            else:
                self._asked.pop(number).set_result(said["result"])


@asynccontextmanager
async def node_ably() -> AsyncGenerator[NodeAbly]:
    """The process, until the end of the block."""
    need("node", shutil.which("node") is not None, "install Node.js 20+, then npm ci --prefix tests/node")
    need("npm's ably", (NODE / "node_modules/ably").is_dir(), "npm ci --prefix tests/node")
    process = await asyncio.create_subprocess_exec(
        "node", str(NODE / "ably.mjs"), stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
        limit=1 << 24,
    )  # fmt: skip
    node = NodeAbly(process)
    reading = asyncio.create_task(node.read())
    try:
        yield node
    finally:
        process.kill()
        await process.wait()
        await reading
