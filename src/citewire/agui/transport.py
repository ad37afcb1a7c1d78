"""How the way to an agent may fail, and how long it may take.

TransportError
├── ConnectFailed        nobody answers at the address
├── NoAnswer             connected, but no response in time, or none at all
├── BadStatus            a response outside 2xx; has the status and an excerpt
├── UnsupportedEncoding  events as protobuf, or compressed in a way that cannot be read
├── NotAnEventStream     a page, a JSON document or something else
├── Stalled              not a byte for too long
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
    """A run that failed on the way between the agent and us. What came before stays."""

    code = "transport"


class ConnectFailed(TransportError):
    """No connection to the agent, after all attempts."""

    code = "connect_failed"


class NoAnswer(TransportError):
    """Connected, but the response did not begin in time, or the connection was closed before it did."""

    code = "no_answer"


class BadStatus(TransportError):
    """A response outside 2xx. Redirects are among them: they are not followed. `excerpt` is for logs."""

    code = "bad_status"

    def __init__(self, status: int, excerpt: str) -> None:
        super().__init__(f"the agent answered HTTP {status}", detail=excerpt)
        self.status = status
        self.excerpt = excerpt


class UnsupportedEncoding(TransportError):
    """Events in a form that cannot be read: protobuf, an unknown compression, a damaged one, or a bomb."""

    code = "unsupported_encoding"


class NotAnEventStream(TransportError):
    """A response that holds no events: a page, a JSON document, nothing at all."""

    code = "not_an_event_stream"


class StreamStalled(TransportError):
    """The response began, and then not a byte came for too long."""

    code = "stalled"


class DeadlinePassed(TransportError):
    """The run took longer than it may as a whole."""

    code = "deadline_passed"


class StreamEnded(TransportError):
    """The events ended, or their connection broke, before RUN_FINISHED or RUN_ERROR."""

    code = "stream_ended"


class Timeouts(Struct, frozen=True, kw_only=True):
    """Seconds; None is without end. A comment of the peer's is a sign of life like any other."""

    connect: float | None = 10
    first_byte: float | None = 120
    idle: float | None = 120
    total: float | None = 3600
    grace: float = 1.0
    """For what may follow the end of a run, such as another run, where the peer keeps the connection open."""


class RunTimer:
    """The waits of one run, each with an end of its own and that of the run."""

    def __init__(self, total: float | None) -> None:
        self._total = total
        self._end = math.inf if total is None else _now() + total

    async def wait_within(self, seconds: float | None, coming: Awaitable[_T], late: TransportError) -> _T:
        """What is coming, or `late` raised after so many seconds."""
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
