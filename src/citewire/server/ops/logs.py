"""The log: one record one line, without control characters and without secrets.

Records of the standard `logging`, ours and those of others, go through one formatter. A record may carry
`extra={"fields": {…}}`. The lines of one request share its id.
"""

from __future__ import annotations

import logging
import re
import time
import traceback
from collections.abc import Callable
from contextvars import ContextVar
from datetime import UTC, datetime
from secrets import token_hex
from typing import Any, Literal, TextIO
from urllib.parse import parse_qsl, urlencode

from msgspec import Struct
from starlette.routing import Route, WebSocketRoute
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from citewire import codec
from citewire.redaction import HIDDEN, is_secret_name, redact
from citewire.server.access.keys import Caller
from citewire.text import one_line

__all__ = ["AccessLog", "AccessRecord", "Formatter", "configure"]

_access = logging.getLogger("citewire.access")
_request_id: ContextVar[str | None] = ContextVar("request_id", default=None)

# Characters of a message and of a field, and lines of a traceback.
_MESSAGE, _FIELD, _LINES = 4000, 1000, 60


def configure(level: str, form: Literal["text", "json"], stream: TextIO | None = None) -> None:
    """Have everything logged to `stream`, by default standard error, and by nobody else.

    Of the libraries below us only warnings are: at `info` some of them log every URL they call.
    """
    handler = logging.StreamHandler(stream)
    handler.setFormatter(Formatter(form))
    least = logging.getLevelNamesMapping()[level.upper()]
    for name in ("citewire", "uvicorn", "uvicorn.error", "uvicorn.access"):
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [], True
        logger.setLevel(least)
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(max(least, logging.WARNING))


class Formatter(logging.Formatter):
    """A record as one line: JSON, or text for people, where a traceback follows on indented lines."""

    def __init__(self, form: Literal["text", "json"]) -> None:
        super().__init__()
        self._write = _as_json if form == "json" else _as_text

    def format(self, record: logging.LogRecord) -> str:
        """The line. Never fails for what was logged."""
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": _clean(_message(record), _MESSAGE),
        }
        if (current := _request_id.get()) is not None:
            line["request_id"] = current
        for name, value in getattr(record, "fields", {}).items():
            line[name] = _field(name, value)
        if record.exc_info and record.exc_info[0]:
            told = "".join(traceback.format_exception(*record.exc_info)).splitlines()
            line["exception"] = "\n".join(_clean(each, _FIELD) for each in told[-_LINES:])
        return self._write(line)


def _clean(value: object, limit: int) -> str:
    # Without its escape sequences a text may show a name that it hid, so secrets are looked for after that.
    return redact(one_line(value, limit))


def _message(record: logging.LogRecord) -> str:
    try:
        return record.getMessage()
    except Exception:  # noqa: BLE001  what others pass may fail in any way, and the record is not lost for it
        return f"{one_line(record.msg)} {one_line(record.args)}"


def _field(name: str, value: object) -> Any:
    if is_secret_name(name):
        return HIDDEN
    return value if value is None or isinstance(value, bool | int | float) else _clean(value, _FIELD)


def _as_json(line: dict[str, Any]) -> str:
    return codec.encode(line).decode()


_PLAIN = re.compile(r"[^\s=\"]+")


def _as_text(line: dict[str, Any]) -> str:
    exception = f"\n{line.pop('exception')}" if "exception" in line else ""
    when, level, logger, message = (line.pop(name) for name in ("time", "level", "logger", "message"))
    fields = "".join(f" {name}={_quoted(value)}" for name, value in line.items() if value is not None)
    return f"{when} {level} {logger}: {message}{fields}" + exception.replace("\n", "\n    ")


def _quoted(value: object) -> str:
    text = str(value)
    return text if _PLAIN.fullmatch(text) else codec.encode(text).decode()


class AccessRecord(Struct, frozen=True):
    """A request that is over. `route` is its template, None where none fits."""

    method: str
    path: str
    route: str | None
    status: int
    seconds: float
    bytes: int
    caller: str | None
    client_id: str | None


# Asked for every few seconds by machines.
_QUIET = frozenset({"/healthz", "/readyz", "/metrics"})
# What a proxy writes where the client left before there was an answer.
_GONE = 499


class AccessLog:
    """Middleware, the outermost: gives each request an id, and logs it and tells `done` when it is over."""

    def __init__(self, app: ASGIApp, done: Callable[[AccessRecord], None]) -> None:
        self.app = app
        self._done = done

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] not in ("http", "websocket"):
            await self.app(scope, receive, send)
            return
        token = _request_id.set(_given_id(scope) or token_hex(8))
        answer = _ResponseWatch(send, _request_id.get() or "")
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
            _request_id.reset(token)

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
    """What goes out for one request."""

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
    """The id that a proxy gave the request."""
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
    """The path, with what of the query is no secret."""
    query = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
    shown = urlencode([(name, value) for name, value in query if not is_secret_name(name)])
    return scope["path"] + (f"?{shown}" if shown else "")
