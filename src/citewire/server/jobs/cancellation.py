"""Cancel tasks that use psycopg's connection pool.

The pool waits with `asyncio.wait_for`, which on Python 3.11 loses a cancellation that arrives together with
the result (python/cpython#86296): a task that is cancelled once may go on for ever.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

__all__ = ["cancel_until_done"]


async def cancel_until_done(tasks: Iterable[asyncio.Task[Any]], *, again: float = 0.5) -> None:
    """Cancel tasks and wait until all have ended.

    Those that still run after `again` seconds are cancelled again. Their exceptions are not raised.
    """
    pending = set(tasks)
    while pending:
        for task in pending:
            task.cancel()
        done, pending = await asyncio.wait(pending, timeout=again)
        await asyncio.gather(*done, return_exceptions=True)
