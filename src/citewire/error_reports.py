"""Report errors to clients without revealing details that belong in the log.

Text from other programs (a response body, a stack trace, a file path) is logged under an error id. The client
gets a code, our own message and that id.
"""

from __future__ import annotations

import logging
from secrets import token_hex

from msgspec import Struct

from citewire.errors import CitewireError
from citewire.redaction import redact
from citewire.text import one_line

__all__ = ["ErrorReport", "report_detail", "report_error", "report_unexpected"]

# Limits in characters: the message for the client, and the detail in the log.
_MESSAGE, _DETAIL = 500, 2000
_FAILED = "the server failed"


class ErrorReport(Struct, frozen=True):
    """An error as sent to a client. `error_id` finds the log line; it is empty if nothing was logged."""

    code: str
    message: str
    error_id: str = ""

    @property
    def metadata(self) -> dict[str, dict[str, str]]:
        """The error id as the `metadata` of an AG-UI event."""
        return {"citewire": {"errorId": self.error_id}} if self.error_id else {}


def report_error(
    error: BaseException,
    logger: logging.Logger,
    *,
    code: str = "internal",
    message: str = "the server failed",
) -> ErrorReport:
    """Log the parts of an error that a client must not see, and return what to send to the client.

    A `CitewireError` is sent with its own code and message, and logged only if it has a detail. Any other
    exception is logged with its traceback and sent as `code` and `message`.
    """
    if isinstance(error, CitewireError):
        return report_detail(error.detail, logger, code=error.code, message=error.message)
    return report_unexpected(error, logger, code=code, message=message)


def report_unexpected(
    error: BaseException,
    logger: logging.Logger,
    *,
    code: str = "internal",
    message: str = "the server failed",
) -> ErrorReport:
    """Like `report_error`, but reveals nothing about the error, even if it is a `CitewireError`."""
    error_id = token_hex(8)
    fields = {"error_id": error_id, "code": code}
    logger.error("%s (error id %s)", message, error_id, exc_info=error, extra={"fields": fields})
    return ErrorReport(code, _with_id(message, error_id), error_id)


def report_detail(detail: str, logger: logging.Logger, *, code: str, message: str) -> ErrorReport:
    """Like `report_error`, for a detail without an exception. Without a detail, nothing is logged."""
    if not detail:
        return ErrorReport(code, one_line(message, _MESSAGE))
    error_id = token_hex(8)
    said, shown = one_line(message, _MESSAGE), redact(one_line(detail, _DETAIL))
    fields = {"error_id": error_id, "code": code}
    logger.warning("%s (error id %s): %s", said, error_id, shown, extra={"fields": fields})
    return ErrorReport(code, _with_id(said, error_id), error_id)


def _with_id(message: str, error_id: str) -> str:
    return f"{message} (error id {error_id})"
