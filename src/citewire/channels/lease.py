"""Leases: which of several processes works on something."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

__all__ = ["Leases", "SingleProcessLeases"]


class Leases(Protocol):
    """**Protocol:** named leases, each held by at most one process.

    A process that dies loses its leases. A process that loses its connection to the store keeps the leases
    that nobody took meanwhile, and is notified of the others before it can write again.
    """

    async def take(self, name: str, /) -> bool:
        """Take the lease and return True, also if we hold it already; False while another process does."""
        ...

    async def release(self, name: str, /) -> None:
        """Release the lease, if we hold it."""
        ...

    def on_lost(self, told: Callable[[str], None], /) -> None:
        """Call `told` with the name of every lease that another process took."""
        ...


class SingleProcessLeases:
    """The leases of a process that does not share its store: it gets every lease."""

    async def take(self, _: str) -> bool:
        """See `Leases`."""
        return True

    async def release(self, _: str) -> None:
        """See `Leases`."""

    def on_lost(self, _: Callable[[str], None]) -> None:
        """See `Leases`: it never happens."""
