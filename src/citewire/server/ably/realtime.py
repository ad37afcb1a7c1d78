"""Ably's WebSocket endpoint at `/`: accepts connections, sends heartbeats and ends dead connections."""

from __future__ import annotations

import asyncio
import math
import secrets
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any
from urllib.parse import parse_qs

from msgspec import Struct
from starlette.types import Receive, Scope, Send

from citewire.channels.channels import Channels
from citewire.errors import CitewireError
from citewire.server.ably.auth import AblyAuthenticator
from citewire.server.ably.codec import AblyFrame, Flag, FrameAction, Wire, write_frame
from citewire.server.ably.connection import (
    IDLE_MS,
    REFUSED,
    Connection,
    ConnectionEnded,
    resumed_id,
    token_ended,
)
from citewire.server.ably.delivery import DeliveryCache
from citewire.server.ably.errors import AblyError, ErrorInfo, info_of

__all__ = ["Occupancy", "Realtime"]

# In seconds.
_LOOK = 5
"""Interval between checks of a connection, in seconds."""
_RENEW = 30
"""How long before its token expires a client is asked for a new one, in seconds."""
_CLOSE_TIMEOUT = 1

_GOING = ErrorInfo(80003, 503, "the server is going down; connect again")
# WebSocket close code for a client that may reconnect (service restart).
_SERVICE_RESTART = 1012


class ConnectParams(Struct, frozen=True):
    """Query parameters of a WebSocket connection."""

    credential: str | None = None
    client_id: str | None = None
    packed: bool = False
    echoes: bool = True
    heartbeats: bool = True
    resume: str | None = None

    @classmethod
    def of(cls, query: bytes) -> ConnectParams:
        """Parse the URL's query. Unknown parameters are ignored."""
        found = parse_qs(query.decode("latin-1"), keep_blank_values=True)
        given = {name: values[0] for name, values in found.items()}
        return cls(
            credential=given.get("key") or given.get("access_token") or given.get("accessToken"),
            client_id=given.get("clientId"),
            packed=given.get("format") == "msgpack",
            echoes=given.get("echo") != "false",
            heartbeats=given.get("heartbeats") != "false",
            resume=given.get("resume") or given.get("recover"),
        )


class Occupancy(Struct, frozen=True, rename="camel"):
    """How many connections are attached to a channel, by mode."""

    connections: int
    publishers: int
    subscribers: int
    presence_connections: int = 0
    presence_members: int = 0
    presence_subscribers: int = 0


class _Socket:
    """The sending side of a WebSocket, which measures how long it has been idle or blocked."""

    def __init__(self, send: Send) -> None:
        self._send, self._writing = send, 0
        self._time = asyncio.get_running_loop().time
        self.wrote = self._time()

    async def write(self, wire: Wire) -> None:
        """Send a frame. Does nothing if the client is gone: the reading side notices that."""
        self.wrote = self.wrote if self._writing else self._time()
        self._writing += 1
        try:
            kind = "text" if isinstance(wire, str) else "bytes"
            await self._send({"type": "websocket.send", kind: wire})
        except (OSError, RuntimeError):
            pass
        finally:
            self._writing -= 1
            self.wrote = self._time()

    @property
    def idle(self) -> float:
        """Seconds since the last frame was sent."""
        return 0 if self._writing else self._time() - self.wrote

    @property
    def stuck(self) -> float:
        """Seconds for which the current frame has been blocked."""
        return self._time() - self.wrote if self._writing else 0

    async def finish(self, end: ConnectionEnded, *, packed: bool) -> None:
        """Send the last frame, if the client still listens, and close the socket."""
        try:
            async with asyncio.timeout(_CLOSE_TIMEOUT):
                if end.frame:
                    await self.write(write_frame(end.frame, packed=packed))
                await self._send({"type": "websocket.close", "code": end.code})
        except (OSError, RuntimeError):
            pass


class _Session(Struct, frozen=True):
    """A connection on its socket. `over` is set to end it from outside."""

    connection: Connection
    socket: _Socket
    over: asyncio.Future[ConnectionEnded]
    sending: set[asyncio.Task[None]]

    def spawn(self, sending: Coroutine[Any, Any, None]) -> None:
        """Send in the background, as the client may be blocked."""
        task = asyncio.create_task(sending)
        self.sending.add(task)
        task.add_done_callback(self.sending.discard)

    def end(self, end: ConnectionEnded) -> None:
        """End the session, unless it has already ended."""
        if not self.over.done():
            self.over.set_result(end)


class Realtime:
    """All realtime connections of a server. A client blocked for `write_timeout` seconds is disconnected.

    The server stores nothing per client except its position in each log. A client that reconnects, also after
    a restart, receives what it missed.
    """

    def __init__(
        self, gate: AblyAuthenticator, *, write_timeout: float, clock: Callable[[], float] = time.time
    ) -> None:
        self._gate, self._write_timeout, self._clock = gate, write_timeout, clock
        self._batches = DeliveryCache()
        self._live: dict[str, _Session] = {}
        self._closed = False

    def __len__(self) -> int:
        return len(self._live)

    def occupancy(self, channels: Channels, channel: str) -> Occupancy:
        """Count the connections attached to a channel."""
        found = (session.connection.modes(channels, channel) for session in self._live.values())
        modes = [each for each in found if each]
        return Occupancy(
            connections=len(modes),
            publishers=sum(Flag.PUBLISH in each for each in modes),
            subscribers=sum(Flag.SUBSCRIBE in each for each in modes),
        )

    def close(self) -> None:
        """End all connections and accept no more. Clients may reconnect to another or the next server."""
        self._closed = True
        for session in self._live.values():
            session.end(_gone())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection from start to end."""
        await receive()
        await send({"type": "websocket.accept"})
        params, socket = ConnectParams.of(scope["query_string"]), _Socket(send)
        if self._closed:
            await socket.finish(_gone(), packed=params.packed)
            return
        try:
            connection, error = self._connect(params, socket)
        except CitewireError as exc:
            await socket.finish(_refused(exc), packed=params.packed)
            return
        session = _Session(connection, socket, asyncio.get_running_loop().create_future(), set())
        if before := self._live.get(connection.id):
            before.end(ConnectionEnded(None, _SERVICE_RESTART))
        self._live[connection.id] = session
        try:
            await connection.open(error)
            end = await self._until_over(session, receive, params)
        finally:
            if self._live.get(connection.id) is session:
                del self._live[connection.id]
            await connection.close()
        await socket.finish(end, packed=params.packed)

    def _connect(self, params: ConnectParams, socket: _Socket) -> tuple[Connection, ErrorInfo | None]:
        """Resume the client's connection or make a new one. The error says why it could not be resumed."""
        client = self._gate.client_of_credential(params.credential, params.client_id)
        connection_id, error = secrets.token_urlsafe(9), None
        if params.resume:
            try:
                connection_id = resumed_id(params.resume, client, self._gate)
            except CitewireError:
                error = info_of(AblyError(80018, "there is no such connection to take up again"))
        connection = Connection(
            connection_id,
            client,
            self._gate,
            socket.write,
            self._batches,
            packed=params.packed,
            echoes=params.echoes,
        )
        return connection, error

    async def _until_over(
        self, session: _Session, receive: Receive, params: ConnectParams
    ) -> ConnectionEnded:
        tasks = [
            asyncio.create_task(_read(session.connection, receive)),
            asyncio.create_task(self._supervise(session, params)),
        ]
        try:
            done, _ = await asyncio.wait([*tasks, session.over], return_when=asyncio.FIRST_COMPLETED)
            return done.pop().result()
        finally:
            running: list[asyncio.Task[Any]] = [*tasks, *session.sending]
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)

    async def _supervise(self, session: _Session, params: ConnectParams) -> ConnectionEnded:
        """Send heartbeats, ask for a new token, and end the connection on expiry, revocation or timeout."""
        connection, socket = session.connection, session.socket
        asked_until: float | None = None
        while True:
            await self._pause(connection)
            if socket.stuck > self._write_timeout:
                return ConnectionEnded(None, _SERVICE_RESTART)
            try:
                self._gate.check_key(connection.client)
            except CitewireError as exc:
                return _refused(exc)
            if params.heartbeats and socket.idle * 1000 > IDLE_MS - _LOOK * 1000:
                session.spawn(connection.send(AblyFrame(action=FrameAction.HEARTBEAT)))
            if (expires := connection.expires) is not None:
                if self._clock() >= expires:
                    return token_ended()
                if self._clock() >= expires - _RENEW and asked_until != expires:
                    asked_until = expires
                    session.spawn(connection.send(AblyFrame(action=FrameAction.AUTH)))

    async def _pause(self, connection: Connection) -> None:
        """Wait until the next check or until the token expires. A new token changes the deadline."""
        time_of = asyncio.get_running_loop().time
        until = time_of() + _LOOK
        while (seconds := min(until - time_of(), self._left(connection))) > 0:
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await connection.authorised.wait()
            connection.authorised.clear()

    def _left(self, connection: Connection) -> float:
        """Seconds until the connection's token expires."""
        return math.inf if connection.expires is None else connection.expires - self._clock()


async def _read(connection: Connection, receive: Receive) -> ConnectionEnded:
    """Pass received frames to the connection until it ends."""
    while True:
        message = await receive()
        if message["type"] == "websocket.disconnect":
            return ConnectionEnded(None)
        data: Wire | None = message.get("text")
        try:
            await connection.receive(message["bytes"] if data is None else data)
        except ConnectionEnded as end:
            return end
        except Exception as exc:  # noqa: BLE001  # the root of a task: the client is told
            return _refused(exc)


def _gone() -> ConnectionEnded:
    return ConnectionEnded(AblyFrame(action=FrameAction.DISCONNECTED, error=_GOING), _SERVICE_RESTART)


def _refused(error: Exception) -> ConnectionEnded:
    return ConnectionEnded(AblyFrame(action=FrameAction.ERROR, error=info_of(error)), REFUSED)
