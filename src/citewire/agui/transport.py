"""Transport errors and timeouts of requests to an agent.

TransportError
├── ConnectFailed        no connection to the address
├── NoAnswer             connected, but no response in time, or none at all
├── BadStatus            a status outside 2xx; has the status and an excerpt
├── UnsupportedEncoding  events as protobuf, or in an unreadable compression
├── NotAnEventStream     a page, a JSON document or something else
├── StreamStalled        no data for too long
├── DeadlinePassed       the run as a whole took too long
└── StreamEnded          closed before the run ended
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable
from typing import TypeVar

from msgspec import Struct

from citewire.errors import CitewireError

__all__ = [
    "BadStatus",
    "ConnectFailed",
    "DeadlinePassed",
    "NoAnswer",
    "NotAnEventStream",
    "RunTimer",
    "StreamEnded",
    "StreamStalled",
    "Timeouts",
    "TransportError",
    "UnsupportedEncoding",
]

_T = TypeVar("_T")


class TransportError(CitewireError):
    """The transport between us and the agent failed. Events received before stay valid."""

    code = "transport"


class ConnectFailed(TransportError):
    """The agent could not be reached, after all retries."""

    code = "connect_failed"


class NoAnswer(TransportError):
    """Connected, but the response did not begin in time, or the connection was closed before it did."""

    code = "no_answer"


class BadStatus(TransportError):
    """The status is outside 2xx. That includes redirects, which are not followed. `excerpt` is for logs."""

    code = "bad_status"

    def __init__(self, status: int, excerpt: str) -> None:
        super().__init__(f"the agent answered HTTP {status}", detail=excerpt)
        self.status = status
        self.excerpt = excerpt


class UnsupportedEncoding(TransportError):
    """The events are unreadable: protobuf, an unknown or damaged compression, or a decompression bomb."""

    code = "unsupported_encoding"


class NotAnEventStream(TransportError):
    """The response contains no events: it is a page, a JSON document, or empty."""

    code = "not_an_event_stream"


class StreamStalled(TransportError):
    """The response began, and then no data arrived for too long."""

    code = "stalled"


class DeadlinePassed(TransportError):
    """The run exceeded its total timeout."""

    code = "deadline_passed"


class StreamEnded(TransportError):
    """The events ended, or their connection broke, before RUN_FINISHED or RUN_ERROR."""

    code = "stream_ended"


class Timeouts(Struct, frozen=True, kw_only=True):
    """Timeouts in seconds; None means no limit. A comment line from the peer resets the idle timeout."""

    connect: float | None = 10
    first_byte: float | None = 120
    idle: float | None = 120
    total: float | None = 3600
    grace: float = 1.0
    """How long to wait after the end of a run for more, such as another run, if the connection stays open."""


class RunTimer:
    """Applies the timeouts of one run: one per wait, and one for the run as a whole."""

    def __init__(self, total: float | None) -> None:
        self._total = total
        self._end = math.inf if total is None else _now() + total

    async def wait_within(self, seconds: float | None, coming: Awaitable[_T], late: TransportError) -> _T:
        """Return the result of `coming`. Raises `late` after `seconds`, `DeadlinePassed` after the total."""
        until = min(self._end, math.inf if seconds is None else _now() + seconds)
        wait = asyncio.timeout_at(None if until == math.inf else until)
        try:
            async with wait:
                return await coming
        except TimeoutError:
            if not wait.expired():
                raise
            if until == self._end:
                late = DeadlinePassed(f"the run took more than {self._total} s")
            raise late from None


def _now() -> float:
    return asyncio.get_running_loop().time()
