"""Raw WebSockets, as cheap as they can be, so that what is measured is the server; and servers for them."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from importlib import import_module
from struct import pack
from typing import Any

import uvicorn

_TEXT, _PING, _PONG = 0x1, 0x9, 0xA
_HANDSHAKE = (
    "GET {} HTTP/1.1\r\nHost: 127.0.0.1:{}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
)


class Socket(asyncio.Protocol):
    """One client. The text of each frame goes to `hear`: into the queue `heard`, unless it is replaced."""

    def __init__(self, path: str, port: int) -> None:
        self.heard: asyncio.Queue[bytes] = asyncio.Queue()
        self.hear: Callable[[bytes], object] = self.heard.put_nowait
        self._path, self._port = path, port
        self._rest, self._is_open = b"", False

    @classmethod
    async def to(cls, port: int, path: str) -> Socket:
        """A connection to a port of this machine, once the server has said the first word."""
        loop = asyncio.get_running_loop()
        _, made = await loop.create_connection(lambda: cls(path, port), "127.0.0.1", port)
        await made.heard.get()
        return made

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        transport.write(_HANDSHAKE.format(self._path, self._port).encode())

    def data_received(self, data: bytes) -> None:
        data, at = self._rest + data, 0
        if not self._is_open:
            at = data.find(b"\r\n\r\n") + 4
            self._is_open = at > 3
        while self._is_open and (found := _frame(data, at)):
            kind, payload, at = found
            if kind == _TEXT:
                self.hear(payload)
            elif kind == _PING:
                self._transport.write(_masked(_PONG, payload))
        self._rest = data[at:] if self._is_open else data

    def send(self, *texts: bytes) -> None:
        """Frames, in one write."""
        self._transport.write(b"".join(_masked(_TEXT, text) for text in texts))

    def close(self) -> None:
        """Leave without a word."""
        self._transport.abort()


def _frame(data: bytes, at: int) -> tuple[int, bytes, int] | None:
    """The kind and payload of the frame at `at`, and where the next is; None where it has not come whole."""
    if len(data) < at + 2:
        return None
    size, start = data[at + 1], at + 2
    if size >= 126:
        start = at + (4 if size == 126 else 10)
        size = int.from_bytes(data[at + 2 : start])
    if len(data) < start + size:
        return None
    return data[at] & 0xF, data[start : start + size], start + size


def _masked(kind: int, payload: bytes) -> bytes:
    """With a mask of zeros, which changes nothing."""
    size = len(payload)
    head = pack("!BB", 0x80 | kind, 0x80 | size) if size < 126 else pack("!BBH", 0x80 | kind, 0xFE, size)
    return head + bytes(4) + payload


@contextmanager
def socketio() -> Generator[int]:
    """The port of a python-socketio server in a process of its own, whose room `all` gets each `cite`."""
    import_module("socketio")  # where it is not installed, nobody would answer
    with socket.create_server(("127.0.0.1", 0), backlog=2048) as listener:
        os.set_inheritable(listener.fileno(), True)
        command = [sys.executable, "-m", "bench.sockets", str(listener.fileno())]
        process = subprocess.Popen(command, pass_fds=[listener.fileno()])
        try:
            yield listener.getsockname()[1]
        finally:
            process.kill()
            process.wait()


def _serve(descriptor: int) -> None:
    peer: Any = import_module("socketio")  # a peer without types
    server = peer.AsyncServer(async_mode="asgi")

    async def join(sid: str, data: object) -> None:
        await server.enter_room(sid, "all")
        await server.emit("joined", data, to=sid)

    async def cite(sid: str, data: object) -> None:
        await server.emit("cite", data, room="all")

    server.on("join", join)
    server.on("cite", cite)
    uvicorn.run(peer.ASGIApp(server), fd=descriptor, log_level="error")


if __name__ == "__main__":
    _serve(int(sys.argv[1]))
