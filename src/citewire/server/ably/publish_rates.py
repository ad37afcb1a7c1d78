"""Rate limits for publishing, per connection and per key."""

from __future__ import annotations

import time
from collections.abc import Callable

from citewire.server.ably.errors import AblyError
from citewire.server.ops.limits import TokenBuckets

__all__ = ["PublishRates"]

# A burst may use the allowance of this many seconds.
_BURST = 2


class PublishRates:
    """Limits messages and annotations per second. Excess is refused; the connection stays open."""

    def __init__(self, connection: int, key: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._connections = TokenBuckets(connection, _BURST * connection, clock)
        self._keys = TokenBuckets(key, _BURST * key, clock)

    def spend(self, key: str, count: int, connection_id: str | None) -> None:
        """Count `count` items against both limits. Raises `AblyError` when one is exceeded."""
        if connection_id and self._connections.take(connection_id, count):
            raise AblyError(42911, "more than may be published on one connection; slow down", 429)
        if self._keys.take(key, count):
            raise AblyError(42910, "more than may be published with one key; slow down", 429)
