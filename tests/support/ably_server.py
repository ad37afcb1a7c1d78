"""Our wire for Ably's clients on real sockets, in the loop of the test."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from contextlib import asynccontextmanager, contextmanager
from copy import copy
from pathlib import Path
from typing import Any, Self

import msgspec
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.types import ASGIApp

from citewire.channels.channels import Channels
from citewire.channels.hub import Hub
from citewire.channels.memory import MemoryStore
from citewire.channels.message import Publisher
from citewire.channels.store import ChannelStore
from citewire.server.ably.auth import AblyAuthenticator, KeyRealm
from citewire.server.ably.publish_rates import PublishRates
from citewire.server.ably.realtime import Realtime
from citewire.server.ably.routes import routes
from citewire.server.ably.sandbox import Sandbox
from citewire.server.access.keys import Caller, Keyring
from citewire.server.access.used_names import UsedNames
from citewire.server.http.operations import keep_escaped_slashes

CHANNEL = "ai:rivers"
CITE = "citations:multiple.v1"
BOT = Publisher(client_id="bot")


def run(main: Coroutine[Any, Any, None]) -> None:
    """As `asyncio.run`; what takes so long hangs."""
    asyncio.run(asyncio.wait_for(main, 30))


def packed(value: Any, is_packed: bool) -> bytes:
    """In msgpack, or in JSON."""
    return msgspec.msgpack.encode(value) if is_packed else msgspec.json.encode(value)


class Parts:
    """The parts of a server, over a store in memory, or another."""

    def __init__(
        self,
        folder: Path,
        clock: Callable[[], float] = time.time,
        rates: PublishRates | None = None,
        store: ChannelStore | None = None,
    ) -> None:
        self.keyring = Keyring(folder / "keys", clock=clock)
        self.key = self.keyring.create(name="app.key")
        self.store: ChannelStore = store or MemoryStore()
        self._folder, self._clock, self._rates = folder, clock, rates
        self._open()

    def _open(self) -> None:
        self.hub = Hub(self.store)
        self.channels = Channels(self.store, self.hub)
        self.sandbox = Sandbox(self._folder / "sandbox", self.store, self.hub)
        doors = [KeyRealm(self.keyring, lambda _: self.channels), self.sandbox.realm]
        used = UsedNames(self.store, "token-request", self._clock)
        self.gate = AblyAuthenticator(doors, self._authenticate, used, self._clock, self._rates)
        self.realtime = Realtime(self.gate, write_timeout=30, clock=self._clock)
        self.app = keep_escaped_slashes(Starlette(routes=routes(self.gate, self.realtime, self.sandbox)))

    def another(self, store: ChannelStore) -> Parts:
        """A second node with the same keys, over its own way to the same database."""
        node = copy(self)
        node.store = store
        node.restart()
        return node

    def restart(self) -> None:
        """Go on as a new process does: with what was kept, and nothing else."""
        self._open()

    def _authenticate(self, request: Request) -> Caller:
        return self.keyring.caller(
            request.headers.get("authorization"), request.query_params.get("access_token")
        )


class _Server(uvicorn.Server):
    """Signals are pytest's."""

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        yield


@asynccontextmanager
async def listening(app: ASGIApp) -> AsyncGenerator[int]:
    """The port at which the app is, until the end of the block."""
    listener = socket.create_server(("127.0.0.1", 0))
    given = {"lifespan": "off", "log_config": None, "access_log": False, "timeout_graceful_shutdown": 1}
    config = uvicorn.Config(app, ws_ping_interval=10, **given)  # type: ignore[arg-type]
    server = _Server(config)
    serving = asyncio.create_task(server.serve([listener]))
    try:
        await _until(lambda: server.started)
        yield listener.getsockname()[1]
    finally:
        server.should_exit = True
        await serving
        listener.close()


async def _until(is_so: Callable[[], bool]) -> None:
    while not is_so():  # noqa: ASYNC110  # there is nothing else to wait for
        await asyncio.sleep(0)


class Line:
    """A line to a port that can be cut, and mended."""

    def __init__(self, target: int) -> None:
        self._target, self._cut = target, False
        self._open: set[asyncio.StreamWriter] = set()
        self.port = 0

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._carry, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        self.cut()

    def cut(self) -> None:
        """As if a cable were pulled: nothing more comes through, and nobody says goodbye."""
        self._cut = True
        for writer in self._open:
            writer.transport.abort()

    def mend(self) -> None:
        """From now on it carries again."""
        self._cut = False

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._cut:
            writer.transport.abort()
            return
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._target)
        self._open |= {writer, far_writer}
        await asyncio.gather(_pipe(reader, far_writer), _pipe(far_reader, writer))
        self._open -= {writer, far_writer}


async def _pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    except OSError:
        pass
    finally:
        writer.close()
