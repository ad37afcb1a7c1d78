"""Errors as Ably clients expect them: a numeric code and a readable message."""

from __future__ import annotations

import logging

from msgspec import Struct

from citewire.channels.errors import ChannelError
from citewire.channels.store import CursorLost, StoreError
from citewire.error_reports import report_error, report_unexpected
from citewire.errors import CitewireError, InputError
from citewire.server.access.errors import BadCredentials, BadToken, Forbidden, NoCredentials, TokenExpired

__all__ = ["AblyError", "ErrorInfo", "info_of"]

_log = logging.getLogger("citewire.server")


class ErrorInfo(Struct, frozen=True, rename="camel"):
    """An error on the wire (Ably's spec TI1)."""

    code: int
    status_code: int
    message: str


class AblyError(CitewireError):
    """A request refused by the Ably protocol layer rather than by a channel."""

    code = "ably_refused"

    def __init__(self, ably: int, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.ably, self.status = ably, status


# The first matching type wins.
_CODES: tuple[tuple[type[CitewireError], int, int], ...] = (
    (NoCredentials, 40101, 401),
    (BadCredentials, 40101, 401),
    (TokenExpired, 40142, 401),
    (BadToken, 40144, 401),
    (Forbidden, 40160, 401),
    (CursorLost, 90003, 404),
    (InputError, 40000, 400),
    (StoreError, 50003, 503),
)


def info_of(error: BaseException) -> ErrorInfo:
    """Convert an exception to an Ably error. Unexpected ones are logged and reported without details."""
    if isinstance(error, ChannelError | AblyError):
        return _info(error.ably, error.status, error)
    for kind, code, status in _CODES:
        if isinstance(error, kind):
            return _info(code, status, error)
    return ErrorInfo(50000, 500, report_unexpected(error, _log).message)


def _info(code: int, status: int, error: CitewireError) -> ErrorInfo:
    return ErrorInfo(code, status, report_error(error, _log).message)
