"""Access log middleware: assigns each request an id and logs it when it ends."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable
from secrets import token_hex
from urllib.parse import parse_qsl, urlencode

from starlette.routing import Route, WebSocketRoute
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from citewire.redaction import is_secret_name
from citewire.server.access.keys import Caller
from citewire.server.ops.logs import AccessRecord, request_id

__all__ = ["AccessLog"]

_access = logging.getLogger("citewire.access")
# Polled every few seconds by monitoring, so logged at debug level only.
_QUIET = frozenset({"/healthz", "/readyz", "/metrics"})
# The status that proxies log when the client disconnected before the response.
_GONE = 499


class AccessLog:
    """Outermost middleware: assigns each request an id, and at its end logs it and calls `done`."""

    def __init__(self, app: ASGIApp, done: Callable[[AccessRecord], None]) -> None:
        self.app = app
        self._done = done

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] not in ("http", "websocket"):
            await self.app(scope, receive, send)
            return
        token = request_id.set(_given_id(scope) or token_hex(8))
        answer = _ResponseWatch(send, request_id.get() or "")
        began = time.monotonic()
        try:
            await self.app(scope, receive, answer.send)
        except BaseException:
            answer.status = answer.status or 500
            raise
        finally:
            access = _access_of(scope, answer, time.monotonic() - began)
            self._log(access)
            self._done(access)
            request_id.reset(token)

    def _log(self, access: AccessRecord) -> None:
        fields = {
            "status": access.status,
            "ms": round(access.seconds * 1000, 1),
            "bytes": access.bytes,
            "caller": access.caller,
            "client_id": access.client_id,
        }
        level = logging.DEBUG if access.route in _QUIET else logging.INFO
        _access.log(level, "%s %s", access.method, access.path, extra={"fields": fields})


class _ResponseWatch:
    """Records the status and size of one response."""

    def __init__(self, send: Send, name: str) -> None:
        self._send, self._name = send, name.encode()
        self.status, self.bytes = 0, 0

    async def send(self, message: Message) -> None:
        match message["type"]:
            case "http.response.start" | "websocket.http.response.start":
                self.status = message["status"]
                message["headers"] = [*message.get("headers", ()), (b"x-request-id", self._name)]
            case "websocket.accept":
                self.status = 101
            case "websocket.close":
                self.status = self.status or 403
            case _:
                self.bytes += len(message.get("body") or message.get("bytes") or message.get("text") or b"")
        await self._send(message)


_ID = re.compile(rb"[\w.-]{1,64}")


def _given_id(scope: Scope) -> str | None:
    """Return the request id set by a proxy, if it is valid."""
    given = next((value for name, value in scope["headers"] if name == b"x-request-id"), b"")
    return given.decode() if _ID.fullmatch(given) else None


def _access_of(scope: Scope, answer: _ResponseWatch, seconds: float) -> AccessRecord:
    route, caller = scope.get("route"), scope.get("citewire.caller")
    return AccessRecord(
        scope.get("method", "WEBSOCKET"),
        _shown_path(scope),
        route.path if isinstance(route, Route | WebSocketRoute) else None,
        answer.status or _GONE,
        seconds,
        answer.bytes,
        caller.key if isinstance(caller, Caller) else None,
        caller.client_id if isinstance(caller, Caller) else None,
    )


def _shown_path(scope: Scope) -> str:
    """Return the path and query, without secret parameters."""
    query = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
    shown = urlencode([(name, value) for name, value in query if not is_secret_name(name)])
    return scope["path"] + (f"?{shown}" if shown else "")
