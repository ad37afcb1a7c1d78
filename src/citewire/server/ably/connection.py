"""One realtime connection: handles its client's frames in order and sends the responses.

It does no I/O. The owner of the socket passes in each received frame and sends what comes out.

| frame | response |
|---|---|
| HEARTBEAT | HEARTBEAT |
| ATTACH | ATTACHED, then the channel's messages; or ERROR for that channel |
| DETACH | DETACHED |
| MESSAGE, ANNOTATION | one ACK (once stored) or NACK per frame, in the order of their numbers |
| PRESENCE | NACK |
| AUTH | CONNECTED; or ERROR, which ends the connection |
| CLOSE | CLOSED, which ends the connection |
"""

from __future__ import annotations

import asyncio
import secrets
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from typing import TypeAlias

from msgspec import Struct

from citewire.channels.channels import Channels
from citewire.channels.message import AGGREGATED_MESSAGE_BYTES, PUBLISH_BYTES
from citewire.channels.store import CursorLost, StoreError
from citewire.errors import CitewireError
from citewire.server.ably import codec
from citewire.server.ably.attach_request import AttachRequest, allowed_modes, read_attach_request
from citewire.server.ably.attachment import ChannelAttachment, FrameFormat
from citewire.server.ably.auth import MS, AblyAuthenticator, Client
from citewire.server.ably.codec import (
    AblyFrame,
    ConnectionDetails,
    Flag,
    FrameAction,
    InboundFrame,
    PublishResult,
    Wire,
    write_frame,
)
from citewire.server.ably.delivery import DeliveryCache
from citewire.server.ably.errors import AblyError, ErrorInfo, info_of

__all__ = ["Connection", "ConnectionEnded", "FRAME_BYTES", "IDLE_MS", "REFUSED", "resumed_id", "token_ended"]

IDLE_MS = 15_000
"""Idle time after which a client is sent a heartbeat, in milliseconds."""
FRAME_BYTES = AGGREGATED_MESSAGE_BYTES
REFUSED = 1008
"""WebSocket close code for a client that may not continue as it is (policy violation)."""
_EXPIRED = ErrorInfo(40142, 401, "the token has expired")
_STATE_TTL_MS = 120_000
_MOST_CHANNELS = 1000
# Limits on a client's unacknowledged frames. At the limit, reading pauses until some are acknowledged.
_MOST_WAITING = 1000
_MOST_WAITING_BYTES = 4 * 1024 * 1024

_Write: TypeAlias = Callable[[Wire], Awaitable[None]]


class ConnectionEnded(Exception):
    """Raised to end a connection, with its last frame and the WebSocket close code."""

    def __init__(self, frame: AblyFrame | None, code: int = 1000) -> None:
        super().__init__(code)
        self.frame, self.code = frame, code


class _PendingAck(Struct, frozen=True):
    """A received frame that still needs its ACK or NACK."""

    msg_serial: int
    size: int
    done: asyncio.Task[Sequence[str]]


class _ActiveAttachment(Struct, frozen=True):
    attachment: ChannelAttachment
    task: asyncio.Task[None]


class Connection:
    """A client's connection. `echoes` says whether the client also receives its own messages."""

    def __init__(
        self,
        id: str,  # noqa: A002  # as Ably calls it
        client: Client,
        gate: AblyAuthenticator,
        write: _Write,
        batches: DeliveryCache,
        *,
        packed: bool,
        echoes: bool,
    ) -> None:
        self.id, self.client = id, client
        self._gate, self._write, self._batches = gate, write, batches
        self._form = FrameFormat(packed, None if echoes else id)
        self._attached: dict[str, _ActiveAttachment] = {}
        self._waiting: deque[_PendingAck] = deque()
        self._waiting_bytes = 0
        self._moved = asyncio.Event()
        self._room = asyncio.Event()
        self._acks: asyncio.Task[None] | None = None
        self.authorised = asyncio.Event()
        """Set when the client has sent a new token, which may expire sooner."""

    def _key(self) -> str:
        """Make a unique key with which the client can resume the connection, also after a restart."""
        name = f"{self.id}!{secrets.token_urlsafe(6)}"
        return f"{name}!{self._gate.sign_connection(_bound(name, self.client))}"

    @property
    def expires(self) -> float | None:
        """When the token expires, in seconds since 1970."""
        return self.client.caller.expires

    def modes(self, channels: Channels, channel: str) -> Flag:
        """Return the modes in which the connection is attached to a channel, or none."""
        attached = self._attached.get(channel) if channels is self.client.channels else None
        return attached.attachment.modes if attached else Flag(0)

    async def open(self, error: ErrorInfo | None = None) -> None:
        """Send CONNECTED. An `error` tells the client that the connection to resume is gone."""
        self._acks = asyncio.create_task(self._acknowledge())
        await self.send(self._connected(error))

    async def close(self) -> None:
        """Cancel all attachments. Frames already received are still stored."""
        tasks = [each.task for each in self._attached.values()] + ([self._acks] if self._acks else [])
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, *(each.done for each in self._waiting), return_exceptions=True)
        self._attached.clear()

    async def send(self, frame: AblyFrame) -> None:
        """Send a frame to the client."""
        await self._write(write_frame(frame, packed=self._form.packed))

    async def receive(self, data: Wire) -> None:
        """Handle a frame. Raises `ConnectionEnded`, and `AblyError` for malformed frames."""
        if self.expires is not None and self._gate.now >= self.expires * MS:
            raise token_ended()
        if len(data) > FRAME_BYTES:
            raise AblyError(40009, f"a frame of more than {FRAME_BYTES} bytes", 413)
        if isinstance(data, bytes) is not self._form.packed:
            raise AblyError(40000, "a frame in another format than was asked for")
        frame = codec.read_frame(data)
        match frame.action:
            case FrameAction.HEARTBEAT:
                await self.send(AblyFrame(action=FrameAction.HEARTBEAT, id=frame.id))
            case FrameAction.ATTACH:
                await self._attach(frame, _channel(frame))
            case FrameAction.DETACH:
                await self._detach(_channel(frame))
            case FrameAction.MESSAGE | FrameAction.ANNOTATION | FrameAction.PRESENCE:
                await self._take(frame, len(data))
            case FrameAction.AUTH:
                await self._authorise(frame)
            case FrameAction.CLOSE:
                raise ConnectionEnded(AblyFrame(action=FrameAction.CLOSED))
            case FrameAction.DISCONNECT:
                raise ConnectionEnded(None)
            case _:
                pass  # Later protocol versions may add actions.

    # Channels

    async def _attach(self, frame: InboundFrame, channel: str) -> None:
        before = await self._leave(channel)
        try:
            if len(self._attached) >= _MOST_CHANNELS:
                raise AblyError(90010, f"more than {_MOST_CHANNELS} channels on one connection")
            # The client will have received everything already sent before it reads ATTACHED.
            after = before.serial if before and before.serial else frame.channel_serial
            self._begin(channel, read_attach_request(frame), after)
        except CitewireError as exc:
            await self._fail(channel, exc)

    def _begin(self, channel: str, wanted: AttachRequest, after: str | None) -> None:
        modes = allowed_modes(self.client, wanted.channel, wanted.modes)
        if not modes:
            raise AblyError(40160, f"this client may do nothing of what it asks for in {channel}", 401)
        attachment = ChannelAttachment(
            self.client.channels, channel, wanted, modes, self._form, self._batches
        )
        task = asyncio.create_task(self._follow(attachment, after))
        self._attached[channel] = _ActiveAttachment(attachment, task)

    async def _follow(self, attachment: ChannelAttachment, after: str | None) -> None:
        channel = attachment.channel
        try:
            async with aclosing(attachment.frames(after, self._gate.now)) as frames:
                async for wire in frames:
                    await self._write(wire)
        except (CursorLost, StoreError) as exc:
            # The client re-attaches on its own and then receives what it missed.
            self._attached.pop(channel, None)
            await self.send(AblyFrame(action=FrameAction.DETACHED, channel=channel, error=info_of(exc)))
        except Exception as exc:  # noqa: BLE001  # the root of a task: the client is told
            self._attached.pop(channel, None)
            await self._fail(channel, exc)

    async def _detach(self, channel: str) -> None:
        await self._leave(channel)
        await self.send(AblyFrame(action=FrameAction.DETACHED, channel=channel))

    async def _leave(self, channel: str) -> ChannelAttachment | None:
        if (attached := self._attached.pop(channel, None)) is None:
            return None
        attached.task.cancel()
        await asyncio.gather(attached.task, return_exceptions=True)
        return attached.attachment

    async def _fail(self, channel: str, error: Exception) -> None:
        await self.send(AblyFrame(action=FrameAction.ERROR, channel=channel, error=info_of(error)))

    # Publishing

    async def _take(self, frame: InboundFrame, size: int) -> None:
        """Start handling a frame. Its ACK or NACK follows those of all earlier frames."""
        if frame.msg_serial is None:
            raise AblyError(40000, "a frame without its number")
        done = asyncio.create_task(self._publish(frame))
        self._waiting.append(_PendingAck(frame.msg_serial, size, done))
        self._waiting_bytes += size
        self._moved.set()
        while len(self._waiting) >= _MOST_WAITING or self._waiting_bytes >= _MOST_WAITING_BYTES:
            self._room.clear()
            await self._room.wait()

    async def _publish(self, frame: InboundFrame) -> Sequence[str]:
        """Publish a frame's content and return its serials. Enters the store's queue at once, in order."""
        if frame.action == FrameAction.PRESENCE:
            raise AblyError(40000, "nobody can be present in a channel of this server")
        channel, packed, channels = _channel(frame), self._form.packed, self.client.channels
        named = {"connection_id": self.id, "msg_serial": frame.msg_serial}
        if frame.action == FrameAction.ANNOTATION:
            notes = codec.read_notes(frame.annotations, packed=packed)
            self._gate.spend(self.client, len(notes), self.id)
            who = self.client.authorize_annotate(channel, **named)
            self._need_mode(channel, Flag.ANNOTATION_PUBLISH)
            return await channels.annotate(channel, who, notes)
        drafts = codec.read_drafts(frame.messages, packed=packed)
        self._gate.spend(self.client, len(drafts), self.id)
        who = self.client.authorize_publish(channel, (draft.action for draft in drafts), **named)
        self._need_mode(channel, Flag.PUBLISH)
        return await channels.publish(channel, who, drafts)

    def _need_mode(self, channel: str, mode: Flag) -> None:
        """Raise `AblyError` if attached without this mode. Publishing without being attached is allowed."""
        attached = self._attached.get(channel)
        if attached and mode not in attached.attachment.modes:
            raise AblyError(40165, "attached without the mode for this", 401)

    async def _acknowledge(self) -> None:
        """Send ACK and NACK in frame order. Consecutive frames that are done share one ACK."""
        while True:
            while not self._waiting:
                self._moved.clear()
                await self._moved.wait()
            await asyncio.wait([self._waiting[0].done])
            first = self._next()
            if error := first.done.exception():
                frame = AblyFrame(
                    action=FrameAction.NACK, msg_serial=first.msg_serial, count=1, error=info_of(error)
                )
            else:
                results = [PublishResult(first.done.result())]
                while self._goes_on(first.msg_serial + len(results)):
                    results.append(PublishResult(self._next().done.result()))
                frame = AblyFrame(
                    action=FrameAction.ACK, msg_serial=first.msg_serial, count=len(results), res=results
                )
            self._room.set()
            await self.send(frame)

    def _goes_on(self, msg_serial: int) -> bool:
        """Whether the next frame has this number and was stored."""
        return bool(
            self._waiting
            and (first := self._waiting[0]).msg_serial == msg_serial
            and first.done.done()
            and first.done.exception() is None
        )

    def _next(self) -> _PendingAck:
        first = self._waiting.popleft()
        self._waiting_bytes -= first.size
        return first

    # Authentication

    async def _authorise(self, frame: InboundFrame) -> None:
        """Continue with a new token, which must be for the same client and the same channels."""
        token = frame.auth.access_token if frame.auth else None
        given = self.client.client_id if self.client.client_id != "*" else None
        client = self._gate.client_of_credential(token, given)
        if client.client_id != self.client.client_id or client.channels is not self.client.channels:
            raise AblyError(40102, "a token of another client", 401)
        self.client = client
        self.authorised.set()
        await self.send(self._connected(None))
        for channel in list(self._attached):
            await self._recheck_modes(channel)

    async def _recheck_modes(self, channel: str) -> None:
        """Apply the new token's capability. Lost modes fail the channel (40160); new modes re-attach it."""
        attachment = self._attached[channel].attachment
        modes = allowed_modes(self.client, attachment.asked.channel, attachment.asked.modes)
        if modes == attachment.modes:
            return
        await self._leave(channel)
        if attachment.modes & ~modes:
            lost = AblyError(40160, f"the new token is not for all that {channel} was attached for", 401)
            await self._fail(channel, lost)
        else:
            self._begin(channel, attachment.asked, attachment.serial)

    def _connected(self, error: ErrorInfo | None) -> AblyFrame:
        details = ConnectionDetails(
            connection_key=self._key(),
            max_message_size=PUBLISH_BYTES,
            max_frame_size=FRAME_BYTES,
            connection_state_ttl=_STATE_TTL_MS,
            max_idle_interval=IDLE_MS,
            client_id=self.client.client_id,
        )
        return AblyFrame(
            action=FrameAction.CONNECTED, connection_id=self.id, connection_details=details, error=error
        )


def token_ended() -> ConnectionEnded:
    """Return the exception that ends a connection whose token has expired."""
    return ConnectionEnded(AblyFrame(action=FrameAction.DISCONNECTED, error=_EXPIRED), REFUSED)


def resumed_id(key: str, client: Client, gate: AblyAuthenticator) -> str:
    """Return the id of the connection that this key resumes. Raises `CitewireError`."""
    name, _, signature = key.rpartition("!")
    gate.check_connection(_bound(name, client), signature)
    return name.partition("!")[0]


def _bound(name: str, client: Client) -> str:
    """Bind a connection's name to its key and client id, so that only its owner can resume it."""
    return f"{name} {client.caller.key} {client.client_id}"


def _channel(frame: InboundFrame) -> str:
    if frame.channel is None:
        raise AblyError(40000, "a frame without its channel")
    return frame.channel
