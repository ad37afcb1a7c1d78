"""The whole server in the loop of a test, asked as uvicorn would ask it, or over a socket."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import AsyncGenerator, AsyncIterable, Generator, Iterable, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote

import uvicorn
from starlette.types import ASGIApp, Message

from citewire import codec
from citewire.server.access.capability import Capability
from citewire.server.access.keys import Keyring
from citewire.server.app import Server, open_server
from citewire.server.ops.settings import Settings
from citewire.server.serve import uvicorn_config
from citewire.server.storage.backend import open_configured_vault

HOST = "127.0.0.1:8787"
# No test is to meet a limit that it is not about; of readers, one is enough.
_QUICK: dict[str, Any] = {"workers": 1, "readers": 1, "rate": 1e6, "burst": 1_000_000, "watch": False}


class Answer(NamedTuple):
    """What came back."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return codec.decode(self.body)

    @property
    def code(self) -> str:
        """That of an error, which has our one shape."""
        assert self.headers["content-type"] == "application/json", self
        assert set(self.json) == {"error"}, self
        error = self.json["error"]
        assert {"code", "message"} <= set(error) <= {"code", "message", "id"}, self
        assert error["message"], self
        return error["code"]


class App:
    """A server, and whoever asks it: with the key that may do everything, unless it has another."""

    def __init__(self, server: Server, key: str) -> None:
        self.server, self.key, self.asgi = server, key, server.app

    def token(self, granted: Mapping[str, list[str]], seconds: int = 60) -> str:
        """A token for just this."""
        return self.server.keyring.issue_token(self.key.partition(":")[0], Capability.of(granted), seconds)

    async def ask(
        self,
        method: str,
        target: str,
        body: bytes | AsyncIterable[bytes] | dict[str, Any] = b"",
        *,
        key: str | None = "",
        leaves: bool = False,
        **headers: str,
    ) -> Answer:
        """One request. `key` is None for nobody's; whoever `leaves` does so once an answer begins to come."""
        sent = {"host": HOST, **{name.replace("_", "-"): value for name, value in headers.items()}}
        if key is not None:
            sent.setdefault("authorization", f"Bearer {key or self.key}")
        if isinstance(body, dict):
            body = codec.encode(body)
            sent.setdefault("content-type", "application/json")
        return await ask(self.asgi, method, target, body, sent.items(), leaves=leaves)


@asynccontextmanager
async def opened_app(
    folder: Path, *, port: int = 8787, key: str | None = None, **settings: Any
) -> AsyncGenerator[App]:
    """The server over a folder. Its links lead to this port, and it may have a key already."""
    given = Settings(data=str(folder), **{**_QUICK, **settings})
    keyring = Keyring(await open_configured_vault(given))
    key = key or keyring.create()
    async with open_server(given, keyring, port, ("What is it?",)) as server:
        yield App(server, key)


async def ask(
    app: ASGIApp,
    method: str,
    target: str,
    body: bytes | AsyncIterable[bytes] = b"",
    headers: Iterable[tuple[str, str]] = (),
    *,
    leaves: bool = False,
) -> Answer:
    """One request, as uvicorn hands it on; the client stays until it has all, unless it `leaves`."""
    raw, _, query = target.encode().partition(b"?")
    gone, pieces = asyncio.Event(), _pieces(body)
    got: list[Message] = []

    async def receive() -> Message:
        async for message in pieces:
            return message
        await gone.wait()
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        got.append(message)
        if message["type"] == "http.response.body" and (leaves or not message.get("more_body")):
            gone.set()

    scope = {
        "type": "http",
        "http_version": "1.1",
        "scheme": "http",
        "method": method,
        "path": unquote(raw.decode("latin-1")),
        "raw_path": raw,
        "query_string": query,
        "headers": [(name.lower().encode(), value.encode("latin-1")) for name, value in headers],
        "client": ("127.0.0.1", 5),
        "server": ("127.0.0.1", 8787),
    }
    await app(scope, receive, send)
    head, *rest = got
    found = {name.decode().lower(): value.decode("latin-1") for name, value in head["headers"]}
    return Answer(head["status"], found, b"".join(each.get("body", b"") for each in rest))


async def _pieces(body: bytes | AsyncIterable[bytes]) -> AsyncGenerator[Message]:
    if not isinstance(body, bytes):
        async for piece in body:
            yield {"type": "http.request", "body": piece, "more_body": True}
    yield {"type": "http.request", "body": body if isinstance(body, bytes) else b"", "more_body": False}


class _Uvicorn(uvicorn.Server):
    """Leaves the signals of the process to the tests."""

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        yield


@asynccontextmanager
async def listening(app: App, listener: socket.socket | None = None) -> AsyncGenerator[tuple[str, int]]:
    """Where the server can be reached, by a uvicorn with all that guards it."""
    started = asyncio.Event()

    async def notify() -> None:
        started.set()

    config = uvicorn_config(app.server, callback_notify=notify, timeout_graceful_shutdown=1)
    server = _Uvicorn(config)
    with listener or socket.create_server(("127.0.0.1", 0)) as own:
        task = asyncio.create_task(server.serve(sockets=[own]))
        await started.wait()
        try:
            yield own.getsockname()
        finally:
            await app.server.drain()
            server.should_exit = True
            await task


@contextmanager
def in_thread(folder: Path, **settings: Any) -> Generator[tuple[str, App]]:
    """The address of a server that has a thread of its own, for clients that block."""
    ready, done = threading.Event(), asyncio.Event()
    found: list[tuple[str, App, asyncio.AbstractEventLoop]] = []

    async def main() -> None:
        listener = socket.create_server(("127.0.0.1", 0))
        opening = opened_app(folder, port=listener.getsockname()[1], **settings)
        async with opening as app, listening(app, listener) as (host, port):
            found.append((f"http://{host}:{port}", app, asyncio.get_running_loop()))
            ready.set()
            await done.wait()

    thread = threading.Thread(target=lambda: asyncio.run(main()))
    thread.start()
    try:
        ready.wait()
        yield found[0][:2]
    finally:
        found[0][2].call_soon_threadsafe(done.set)
        thread.join()
