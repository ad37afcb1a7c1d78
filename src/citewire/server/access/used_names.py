"""One-time names: nonces of token requests, and sign-in links.

They are recorded in the store, so a name stays used after a restart and for other servers on the same store.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable
from contextlib import suppress
from hashlib import sha256

from citewire.channels.store import ChannelStore, CursorLost, Entry, Row, StoreError

__all__ = ["UsedNames"]

_log = logging.getLogger("citewire.server")
# Seconds to keep a name after it has expired, in case other servers' clocks are behind.
_MARGIN = 600
# Seconds between two cleanups of expired names, and how many are read at once.
_EVERY, _BATCH = 60, 1000


class UsedNames:
    """The used names of one `purpose`. Expired names are deleted, which bounds their number."""

    def __init__(self, store: ChannelStore, purpose: str, clock: Callable[[], float] = time.time) -> None:
        self._store, self._channel, self._clock = store, f"used:{purpose}", clock
        self._looked = 0.0

    async def use(self, name: str, expires: float) -> bool:
        """Use up a name that expires at `expires`, in seconds since 1970. False if it was used before.

        If several callers use a name at the same time, one of them gets True. Raises `StoreError`.
        """
        # The store keeps only the first entry under an id: the caller that reads back its own data was first.
        data = b"%d %b" % (expires, secrets.token_hex(16).encode())
        entry = Entry(sha256(name.encode("utf-8", "surrogatepass")).hexdigest(), "use", data)
        [row] = await self._store.append(self._channel, [entry])
        await self._tidy()
        return row.data == data

    async def _tidy(self) -> None:
        """Delete expired names, at most once a minute."""
        now = self._clock()
        if now - self._looked < _EVERY:
            return
        self._looked = now
        try:
            while await self._delete_expired(now):
                pass
        except StoreError:
            _log.warning("expired names in %s could not be deleted; they will be later", self._channel)

    async def _delete_expired(self, now: float) -> bool:
        """Delete one batch and return whether there may be more. Another server may delete it first."""
        rows = await self._store.read(self._channel, limit=_BATCH)
        count = next((at for at, row in enumerate(rows) if _expires(row) + _MARGIN > now), len(rows))
        if count:
            with suppress(CursorLost):
                await self._store.trim(self._channel, rows[count - 1].cursor)
        return 0 < count == len(rows)


def _expires(row: Row) -> int:
    return int(row.data.partition(b" ")[0])
