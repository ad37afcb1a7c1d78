"""Leases: who of several processes works on something."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

__all__ = ["Leases", "SingleProcessLeases"]


class Leases(Protocol):
    """**Protocol:** names, each of which at most one process has.

    A process that dies has none any more. One that loses its way to the store keeps what it had if nobody
    took it meanwhile, and is told of the rest before it can write again.
    """

    async def take(self, name: str, /) -> bool:
        """Whether the name is ours from now on, or was already; False while another has it."""
        ...

    async def release(self, name: str, /) -> None:
        """Let go of the name, if it is ours."""
        ...

    def on_lost(self, told: Callable[[str], None], /) -> None:
        """Have `told` called with every name that went to another."""
        ...


class SingleProcessLeases:
    """The leases of a process that has the store for itself: all are its own."""

    async def take(self, _: str) -> bool:
        """See `Leases`."""
        return True

    async def release(self, _: str) -> None:
        """See `Leases`."""

    def on_lost(self, _: Callable[[str], None]) -> None:
        """See `Leases`: it never happens."""
