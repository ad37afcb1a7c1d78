"""How large a random run is: small in `make test`, full size in `make soak`."""

from __future__ import annotations

import os

__all__ = ["scaled"]


def scaled(small: int, full: int) -> int:
    """`full` when `CITEWIRE_SOAK` is set, which `make soak` does; otherwise `small`."""
    return full if os.environ.get("CITEWIRE_SOAK") else small
