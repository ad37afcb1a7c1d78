"""A client of our WebSocket without a socket: frames go in and out through queues."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any, Self
from urllib.parse import urlencode

import msgspec

from citewire.server.ably.codec import FrameAction
from citewire.server.ably.realtime import Realtime

Json = dict[str, Any]


class Closed(Exception):
    """The server closed the connection."""


class Socket:
    """One connection. It keeps, by channel, the serial of the last frame that had one."""

    def __init__(self, realtime: Realtime, **params: str) -> None:
        self._in: asyncio.Queue[Json] = asyncio.Queue()
        self._out: asyncio.Queue[Json] = asyncio.Queue()
        self._passed: list[Json] = []
        self.packed = params.get("format") == "msgpack"
        self.serials: dict[str, str] = {}
        self.connected: Json = {}
        self.close_code: int | None = None
        self.takes = asyncio.Event()
        self.takes.set()
        scope = {"type": "websocket", "path": "/", "query_string": urlencode(params).encode()}
        self._in.put_nowait({"type": "websocket.connect"})
        self.task = asyncio.ensure_future(realtime(scope, self._in.get, self._take))

    async def _take(self, message: Any) -> None:
        await self.takes.wait()
        self._out.put_nowait(message)

    async def __aenter__(self) -> Self:
        assert (await self._out.get())["type"] == "websocket.accept"
        self.connected = await self.get()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.drop()

    async def drop(self) -> None:
        """End it as a broken line does."""
        self._in.put_nowait({"type": "websocket.disconnect", "code": 1006})
        await self.task

    @property
    def key(self) -> str:
        """That of the connection."""
        return self.connected["connectionDetails"]["connectionKey"]

    def send(self, action: FrameAction, **frame: Any) -> None:
        """A frame to the server."""
        value = {"action": int(action), **frame}
        self.send_raw(msgspec.msgpack.encode(value) if self.packed else msgspec.json.encode(value).decode())

    def send_raw(self, data: str | bytes) -> None:
        """Whatever it is."""
        kind = "text" if isinstance(data, str) else "bytes"
        self._in.put_nowait({"type": "websocket.receive", kind: data})

    async def get(self) -> Json:
        """The next frame. Raises `Closed`."""
        return self._passed.pop(0) if self._passed else await self._get()

    async def _get(self) -> Json:
        message = await self._out.get()
        if message["type"] == "websocket.close":
            self.close_code = message["code"]
            raise Closed(self.close_code)
        decode = msgspec.msgpack.decode if self.packed else msgspec.json.decode
        frame = decode(message["bytes" if self.packed else "text"])
        if serial := frame.get("channelSerial"):
            self.serials[frame["channel"]] = serial
        return frame

    async def next(self, *actions: FrameAction) -> Json:
        """The next frame with one of these actions; others are for later."""
        for at, frame in enumerate(self._passed):
            if frame["action"] in actions:
                return self._passed.pop(at)
        while (frame := await self._get())["action"] not in actions:
            self._passed.append(frame)
        return frame

    async def attach(self, channel: str, **given: Any) -> Json:
        """ATTACHED, or the error."""
        self.send(FrameAction.ATTACH, channel=channel, **given)
        return await self.next(FrameAction.ATTACHED, FrameAction.ERROR)

    async def done(self, number: int) -> Json:
        """The ACK or NACK of a frame that no other is waiting behind."""
        frame = await self.next(FrameAction.ACK, FrameAction.NACK)
        assert frame["msgSerial"] == number
        return frame

    async def publish(self, channel: str, number: int, *messages: Json) -> list[str]:
        """The serials of messages."""
        self.send(FrameAction.MESSAGE, channel=channel, msgSerial=number, messages=messages)
        return (await self.done(number))["res"][0]["serials"]

    async def rest(self) -> list[Json]:
        """All that comes until the server has answered a heartbeat."""
        found: list[Json] = []
        self.send(FrameAction.HEARTBEAT, id="rest")
        with suppress(Closed):
            while (frame := await self.get())["action"] != FrameAction.HEARTBEAT:
                found.append(frame)
        return found
