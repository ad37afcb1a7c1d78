"""Limits on requests: rate, concurrency, size and time. Bytes are counted as they pass, never buffered.

Limits on connections are in `connections`.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import OrderedDict
from collections.abc import Callable, Collection
from ipaddress import IPv6Address, ip_address

from msgspec import Struct
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from citewire import codec
from citewire.server.ops.settings import Settings
from citewire.verification.lanes import CURRENT_ACCOUNT

__all__ = ["BUSY", "LARGE_HEAD", "Refusal", "RequestLimits", "TokenBuckets", "client_address"]

# Bytes per second. A slower body misses its deadline.
_SLOWEST = 16 << 10
# How many clients' rates are remembered. The least recently seen client starts over.
_BUCKETS = 10_000


class Refusal(Struct, frozen=True):
    """An error response sent without further handling. `closes` also ends the connection."""

    status: int
    code: str
    message: str
    retry_after: int | None = None
    closes: bool = False

    @property
    def body(self) -> bytes:
        return codec.encode({"error": {"code": self.code, "message": self.message}})

    @property
    def headers(self) -> list[tuple[bytes, bytes]]:
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", b"%d" % len(self.body)),
        ]
        if self.retry_after is not None:
            headers.append((b"retry-after", b"%d" % self.retry_after))
        if self.closes:
            headers.append((b"connection", b"close"))
        return headers

    async def send(self, scope: Scope, send: Send) -> None:
        """Send it as the response to an HTTP request or a WebSocket handshake."""
        kind = "http.response" if scope["type"] == "http" else "websocket.http.response"
        await send({"type": f"{kind}.start", "status": self.status, "headers": self.headers})
        await send({"type": f"{kind}.body", "body": self.body})


BUSY = Refusal(503, "busy", "the server has no room for more requests now", retry_after=1, closes=True)
_BUSY_CLIENT = Refusal(
    429, "too_many_requests", "too many requests at a time; wait for some of them to end", retry_after=1
)
_TOO_SLOW = Refusal(408, "too_slow", "the body of the request came too slowly", closes=True)
_LONG_URL = Refusal(414, "url_too_long", "the path and the query of the request are too long")
LARGE_HEAD = Refusal(431, "headers_too_large", "the headers of the request are too many or too large")
_BAD_LENGTH = Refusal(400, "bad_request", "the content-length is no number", closes=True)


def _too_large(limit: int) -> Refusal:
    return Refusal(413, "too_large", f"the body of the request is larger than {limit} bytes")


def client_address(scope: Scope) -> str:
    """Return the client's IP address. For IPv6, return its /64 network, which one customer is assigned."""
    host = (scope.get("client") or ("",))[0]
    try:
        found = ip_address(host)
    except ValueError:
        return host
    if isinstance(found, IPv6Address) and found.ipv4_mapped is None:
        return str(IPv6Address(int(found) >> 64 << 64))
    return host


class RequestLimits:
    """Middleware: refuses requests that are too many, too large or too slow, in our error format.

    `client` returns the account that a request counts against. It must not trust a key before checking it, or
    callers could evade the limit by inventing keys. `uploads` are the paths that accept bodies as large as an
    upload; `free` are those that are served under any load.
    """

    def __init__(
        self,
        app: ASGIApp,
        settings: Settings,
        *,
        client: Callable[[Scope], str] = client_address,
        uploads: Collection[str] = (),
        free: Collection[str] = ("/healthz", "/readyz"),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.app = app
        self._settings, self._client = settings, client
        self._uploads, self._free = frozenset(uploads), frozenset(free)
        self._buckets = TokenBuckets(settings.rate, settings.burst, clock)
        self._active: dict[str, int] = {}
        self._count = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] not in ("http", "websocket"):
            await self.app(scope, receive, send)
        elif refusal := self._check_head(scope):
            await refusal.send(scope, send)
        elif scope["path"] in self._free:
            await self._pass_on(scope, receive, send)
        else:
            await self._count_in(scope, receive, send)

    async def _count_in(self, scope: Scope, receive: Receive, send: Send) -> None:
        client = self._client(scope)
        if refusal := self._check_client(client):
            await refusal.send(scope, send)
            return
        self._count += 1
        self._active[client] = self._active.get(client, 0) + 1
        # Documents read for this request count against the same account.
        CURRENT_ACCOUNT.set(client)
        try:
            await self._pass_on(scope, receive, send)
        finally:
            self._count -= 1
            self._active[client] -= 1
            if not self._active[client]:
                del self._active[client]

    async def _pass_on(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            body = _Body(receive, send, self._largest(scope), self._settings.body_timeout)
            await body.run(self.app, scope)
        else:
            await self.app(scope, receive, send)

    def _check_head(self, scope: Scope) -> Refusal | None:
        settings, headers = self._settings, scope["headers"]
        if len(scope.get("raw_path") or scope["path"]) + len(scope["query_string"]) > settings.max_url:
            return _LONG_URL
        if len(headers) > settings.max_headers or _size(headers) > settings.max_header_bytes:
            return LARGE_HEAD
        lengths = [value for name, value in headers if name == b"content-length"]
        if not all(value.isdigit() and len(value) < 20 for value in lengths):
            return _BAD_LENGTH
        limit = self._largest(scope)
        return _too_large(limit) if any(int(value) > limit for value in lengths) else None

    def _check_client(self, client: str) -> Refusal | None:
        if wait := self._buckets.take(client):
            return Refusal(429, "too_many_requests", "too many requests; wait a little", math.ceil(wait))
        if self._active.get(client, 0) >= self._settings.max_client_requests:
            return _BUSY_CLIENT
        return BUSY if self._count >= self._settings.max_requests else None

    def _largest(self, scope: Scope) -> int:
        return self._settings.max_upload if scope["path"] in self._uploads else self._settings.max_body


def _size(headers: list[tuple[bytes, bytes]]) -> int:
    """Return their size on the wire, with a colon, a space and the line end."""
    return sum(len(name) + len(value) + 4 for name, value in headers)


class TokenBuckets:
    """A token bucket for each client, which fills at `rate` up to `burst`.

    A client with at least one token may take more than it has. The bucket then refills from below zero.
    """

    def __init__(self, rate: float, burst: int, clock: Callable[[], float]) -> None:
        self._rate, self._burst, self._clock = rate, burst, clock
        self._known: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._known)

    def take(self, client: str, count: int = 1) -> float:
        """Take `count` tokens and return 0, or return the seconds until a token is available."""
        now = self._clock()
        left, since = self._known.pop(client, (float(self._burst), now))
        left = min(left + (now - since) * self._rate, self._burst)
        self._known[client] = (left - count if left >= 1 else left, now)
        if len(self._known) > _BUCKETS:
            self._known.popitem(last=False)
        return 0.0 if left >= 1 else (1 - left) / self._rate


class _Body:
    """The body of one request, counted and timed as the app reads it.

    If it is refused, the app sees a disconnect and its response is dropped.
    """

    def __init__(self, receive: Receive, send: Send, limit: int, seconds: float) -> None:
        self._receive, self._send, self._limit, self._seconds = receive, send, limit, seconds
        self._began: float | None = None
        self._size = 0
        self._ended = self._answered = False
        self._refusal: Refusal | None = None

    async def run(self, app: ASGIApp, scope: Scope) -> None:
        try:
            await app(scope, self.receive, self.send)
        except Exception:
            # After a refusal, this is the app's reaction to the simulated disconnect.
            if self._refusal is None:
                raise
        if self._refusal and not self._answered:
            await self._refusal.send(scope, self._send)

    async def receive(self) -> Message:
        if self._refusal:
            return {"type": "http.disconnect"}
        if self._ended:
            return await self._receive()
        self._began = self._began or asyncio.get_running_loop().time()
        try:
            async with asyncio.timeout_at(self._began + self._seconds + self._size / _SLOWEST):
                message = await self._receive()
        except TimeoutError:
            return self._refuse(_TOO_SLOW)
        self._size += len(message.get("body", b""))
        self._ended = not message.get("more_body", False)
        return self._refuse(_too_large(self._limit)) if self._size > self._limit else message

    async def send(self, message: Message) -> None:
        if self._refusal is None or self._answered:
            self._answered = True
            await self._send(message)

    def _refuse(self, refusal: Refusal) -> Message:
        self._refusal = refusal
        return {"type": "http.disconnect"}
