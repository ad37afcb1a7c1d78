"""Logging: one line per record, without control characters and without secrets.

All records of the standard `logging`, ours and those of libraries, go through one formatter. A record may
carry `extra={"fields": {…}}`. All lines of one request share its id.
"""

from __future__ import annotations

import logging
import re
import traceback
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any, Literal, TextIO

from msgspec import Struct

from citewire import codec
from citewire.redaction import HIDDEN, is_secret_name, redact
from citewire.text import one_line

__all__ = ["AccessRecord", "Formatter", "configure", "request_id"]

# The id of the request that the current task handles.
request_id: ContextVar[str | None] = ContextVar("request_id", default=None)

# Limits: characters of a message, characters of a field, lines of a traceback.
_MESSAGE, _FIELD, _LINES = 4000, 1000, 60


def configure(level: str, form: Literal["text", "json"], stream: TextIO | None = None) -> None:
    """Send all logging to `stream` (standard error by default) and remove other handlers.

    Libraries log only warnings: at `info` some of them log every URL they call.
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
    """Formats a record as one line: JSON, or readable text with a traceback on indented lines after it."""

    def __init__(self, form: Literal["text", "json"]) -> None:
        super().__init__()
        self._write = _as_json if form == "json" else _as_text

    def format(self, record: logging.LogRecord) -> str:
        """Return the line. Never fails, whatever was logged."""
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": _clean(_message(record), _MESSAGE),
        }
        if (current := request_id.get()) is not None:
            line["request_id"] = current
        for name, value in getattr(record, "fields", {}).items():
            line[name] = _field(name, value)
        if record.exc_info and record.exc_info[0]:
            told = "".join(traceback.format_exception(*record.exc_info)).splitlines()
            line["exception"] = "\n".join(_clean(each, _FIELD) for each in told[-_LINES:])
        return self._write(line)


def _clean(value: object, limit: int) -> str:
    # Removing escape sequences may reveal a hidden name, so secrets are redacted after that.
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
    """A finished request. `route` is its path template, or None if no route matches."""

    method: str
    path: str
    route: str | None
    status: int
    seconds: float
    bytes: int
    caller: str | None
    client_id: str | None
