"""uvicorn's HTTP and WebSocket protocols, with timeouts and limits on buffered data.

uvicorn itself waits forever: for a request to begin, for headers that trickle in, and for a client that does
not read its response.
"""

from __future__ import annotations

import asyncio
import os
import socket
import struct
from typing import Any, ClassVar

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from citewire.server.ops.limits import BUSY, LARGE_HEAD, Refusal
from citewire.server.ops.settings import Settings

__all__ = ["make_http_protocol", "make_websocket_protocol"]

# Limit on pipelined requests per connection. Clients hardly ever send a second one.
_MOST_WAITING = 8
_BAD_REQUEST = Refusal(400, "bad_request", "this is not HTTP", closes=True)


def make_http_protocol(settings: Settings) -> type[asyncio.Protocol]:
    """Return the protocol class for `uvicorn.Config(http=…)`."""
    return type("Guarded", (_GuardedHttp,), {"settings": settings})


def make_websocket_protocol(settings: Settings) -> type[asyncio.Protocol]:
    """Return the protocol class for `uvicorn.Config(ws=…)`."""
    return type("GuardedWebSocket", (_GuardedWebSocket,), {"settings": settings})


class _GuardedWebSocket(WebSocketsSansIOProtocol):
    """A WebSocket that is aborted when its client reads nothing for `write_timeout` seconds.

    Closing is not enough: a closing transport waits until the client has read everything.
    """

    settings: ClassVar[Settings]

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start watching writes when the HTTP connection is upgraded."""
        super().connection_made(transport)
        self._watched = _WatchedTransport(self.transport, self.loop, self.settings.write_timeout)
        self.transport = self._watched

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop watching writes."""
        self._watched.stop()
        super().connection_lost(exc)


class _WatchedTransport(asyncio.Transport):
    """A transport that aborts when no written data is sent for `seconds`."""

    def __init__(self, inner: asyncio.Transport, loop: asyncio.AbstractEventLoop, seconds: float) -> None:
        super().__init__()
        self._inner, self._loop, self._seconds = inner, loop, seconds
        self._written = 0
        self._timer: asyncio.TimerHandle | None = None

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """See `asyncio.Transport`."""
        self._written += len(data)
        self._inner.write(data)
        if self._timer is None:
            self._watch()

    def stop(self) -> None:
        """Stop the write timer."""
        self._timer = _cancelled(self._timer)

    def _watch(self) -> None:
        left = self._inner.get_write_buffer_size()
        if left:
            self._timer = self._loop.call_later(self._seconds, self._check, self._written - left)

    def _check(self, gone_out: int) -> None:
        self._timer = None
        left = self._inner.get_write_buffer_size()
        if left and self._written - left <= gone_out:
            _reset(self._inner)
        else:
            self._watch()

    def close(self) -> None:
        """See `asyncio.Transport`."""
        self._inner.close()

    def abort(self) -> None:
        """See `asyncio.Transport`."""
        self._inner.abort()

    def is_closing(self) -> bool:
        """See `asyncio.Transport`."""
        return self._inner.is_closing()

    def pause_reading(self) -> None:
        """See `asyncio.Transport`."""
        self._inner.pause_reading()

    def resume_reading(self) -> None:
        """See `asyncio.Transport`."""
        self._inner.resume_reading()

    def get_write_buffer_size(self) -> int:
        """See `asyncio.Transport`."""
        return self._inner.get_write_buffer_size()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """See `asyncio.Transport`."""
        return self._inner.get_extra_info(name, default)


class _GuardedHttp(HttpToolsProtocol):
    settings: ClassVar[Settings]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._open: list[RequestResponseCycle] = []
        self._in_head = False
        self._steps = self._kept = 0
        self._head_timer: asyncio.TimerHandle | None = None
        self._write_timer: asyncio.TimerHandle | None = None

    # Receiving

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the header timeout before the first byte, or refuse the connection at the limit."""
        super().connection_made(transport)
        if len(self.connections) > self.settings.max_connections:
            self._turn_away(BUSY)
        else:
            self._await_head()

    def data_received(self, data: bytes) -> None:
        """Count bytes that the parser buffers: those that neither end a head nor belong to a body."""
        steps = self._steps
        super().data_received(data)
        if self.transport.is_closing() or self not in self.connections:
            return
        self._kept = 0 if self._steps > steps else self._kept + len(data)
        if self._kept > self.settings.max_header_bytes + self.settings.max_url:
            self._turn_away(LARGE_HEAD)
        elif self.timeout_keep_alive_task is None and not self._is_answering():
            # Bytes that begin no request have cancelled the keep-alive timeout.
            self._await_head()

    def on_message_begin(self) -> None:
        """Start the header timeout at the first byte of a request."""
        super().on_message_begin()
        self._in_head = True
        self._await_head()

    def on_header(self, name: bytes, value: bytes) -> None:
        """Drop trailers after a body: uvicorn would add them to headers that were already checked."""
        if self._in_head:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Cancel the header timeout and limit pipelined requests."""
        self._steps += 1
        self._in_head = False
        self._head_timer = _cancelled(self._head_timer)
        if not self.flow.write_paused:
            self._write_timer = _cancelled(self._write_timer)
        before = self.cycle
        super().on_headers_complete()
        self._open = [cycle for cycle in self._open if not cycle.response_complete]
        if self.cycle is not before:
            self._open.append(self.cycle)
        if len(self._open) > _MOST_WAITING:
            raise ConnectionAbortedError("too many requests before the first is answered")

    def on_body(self, body: bytes) -> None:
        """Note progress, so that body bytes do not count as buffered."""
        self._steps += 1
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Note progress at the end of a request."""
        self._steps += 1
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        """Send a 400 in our error format, or abort in the middle of another response."""
        del msg
        if self._is_answering():
            self.transport.abort()
        else:
            self._turn_away(_BAD_REQUEST)

    def _await_head(self) -> None:
        if self._head_timer is None:
            self._head_timer = self.loop.call_later(self.settings.header_timeout, self._no_head)

    def _no_head(self) -> None:
        self._head_timer = None
        if self._is_answering():
            self._await_head()
        else:
            self.transport.close()

    def _is_answering(self) -> bool:
        return any(not cycle.response_complete for cycle in self._open)

    def _turn_away(self, refusal: Refusal) -> None:
        lines = b"".join(b"%b: %b\r\n" % header for header in refusal.headers)
        self.transport.write(b"HTTP/1.1 %d \r\n%b\r\n%b" % (refusal.status, lines, refusal.body))
        self.transport.close()

    # Sending

    def on_response_complete(self) -> None:
        """Start the write timeout: the client may not have read the whole response."""
        super().on_response_complete()
        self._await_reading()

    def pause_writing(self) -> None:
        """Start the write timeout. The buffer is full, so nothing is written until the client reads."""
        super().pause_writing()
        self._write_timer = _cancelled(self._write_timer)
        self._await_reading()

    def resume_writing(self) -> None:
        """Restart the write timeout: the client has read."""
        super().resume_writing()
        self._write_timer = _cancelled(self._write_timer)
        if not self._is_answering():
            self._await_reading()

    def _await_reading(self) -> None:
        left = self.transport.get_write_buffer_size()
        if left and self._write_timer is None:
            self._write_timer = self.loop.call_later(self.settings.write_timeout, self._has_read, left)

    def _has_read(self, before: int) -> None:
        self._write_timer = None
        if self.transport.get_write_buffer_size() < before:
            self._await_reading()
        else:
            _reset(self.transport)

    # Closing

    def connection_lost(self, exc: Exception | None) -> None:
        """Notify all open requests of the disconnect. uvicorn notifies only the latest."""
        super().connection_lost(exc)
        self._head_timer = _cancelled(self._head_timer)
        self._write_timer = _cancelled(self._write_timer)
        for cycle in self._open:
            cycle.disconnected = not cycle.response_complete
            cycle.message_event.set()


def _reset(transport: asyncio.Transport) -> None:
    """Drop a connection at once. Otherwise the system would keep retrying to send what was written."""
    handle = transport.get_extra_info("socket")
    if handle is not None and handle.fileno() >= 0:
        with socket.socket(fileno=os.dup(handle.fileno())) as own:
            own.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    transport.abort()


def _cancelled(timer: asyncio.TimerHandle | None) -> None:
    if timer:
        timer.cancel()
