"""Quotes that are asked for once their citations are kept: a job must not be of what was never said."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable, Iterable, Sequence

from citewire.documents.draw import Format
from citewire.verification.library import Checked
from citewire.verification.sources import Source
from citewire.verification.verifier import Asked, Verifier, each

__all__ = ["AfterCommit"]


class AfterCommit:
    """A `verifier` for one run, whose quotes wait until what the run has written so far is `settled`."""

    def __init__(self, verifier: Verifier, settled: Callable[[], Awaitable[None]]) -> None:
        self._verifier, self._settled = verifier, settled

    def check(self, quotes: Iterable[Asked] | AsyncIterable[Asked]) -> AsyncGenerator[Checked]:
        """See `Verifier`."""
        return self._verifier.check(self._kept(quotes))

    async def add(self, *sources: Source, scope: str | None = None) -> None:
        """See `Verifier`."""
        await self._verifier.add(*sources, scope=scope)

    async def forget(self, scope: str) -> None:
        """See `Verifier`."""
        await self._verifier.forget(scope)

    async def pictures(self, found: Sequence[Checked], form: Format) -> list[bytes | None]:
        """See `Verifier`."""
        return await self._verifier.pictures(found, form)

    async def prewarm(self) -> None:
        """See `Verifier`."""
        await self._verifier.prewarm()

    async def _kept(self, quotes: Iterable[Asked] | AsyncIterable[Asked]) -> AsyncGenerator[Asked]:
        async for asked in each(quotes):
            await self._settled()
            yield asked
