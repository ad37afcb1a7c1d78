"""Run work periodically for as long as the server runs."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

__all__ = ["repeat"]


async def repeat(
    work: Callable[[], Awaitable[object]], seconds: float, logger: logging.Logger, failure: str
) -> None:
    """Run `work` now and every `seconds`. If it fails, log `failure` and try again at the next interval."""
    while True:
        try:
            await work()
        except Exception:  # the root of a task
            logger.exception(failure)
        await asyncio.sleep(seconds)
