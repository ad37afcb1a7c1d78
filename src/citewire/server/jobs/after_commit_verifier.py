"""Delay checks until their citations are committed, so that no job exists for an unrecorded citation."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable, Iterable, Sequence

from citewire.documents.draw import ImageFormat
from citewire.verification.document_set import CheckResult
from citewire.verification.sources import SourceInput
from citewire.verification.verifier import QuoteCheck, Verifier, iter_quotes

__all__ = ["AfterCommitVerifier"]


class AfterCommitVerifier:
    """Wraps a `verifier` for one run. Each quote first awaits `settled`: the run's writes are stored."""

    def __init__(self, verifier: Verifier, settled: Callable[[], Awaitable[None]]) -> None:
        self._verifier, self._settled = verifier, settled

    def check(self, quotes: Iterable[QuoteCheck] | AsyncIterable[QuoteCheck]) -> AsyncGenerator[CheckResult]:
        """See `Verifier`."""
        return self._verifier.check(self._kept(quotes))

    async def add(self, *sources: SourceInput, scope: str | None = None) -> None:
        """See `Verifier`."""
        await self._verifier.add(*sources, scope=scope)

    async def forget(self, scope: str) -> None:
        """See `Verifier`."""
        await self._verifier.forget(scope)

    async def pictures(self, found: Sequence[CheckResult], form: ImageFormat) -> list[bytes | None]:
        """See `Verifier`."""
        return await self._verifier.pictures(found, form)

    async def prewarm(self) -> None:
        """See `Verifier`."""
        await self._verifier.prewarm()

    async def _kept(
        self, quotes: Iterable[QuoteCheck] | AsyncIterable[QuoteCheck]
    ) -> AsyncGenerator[QuoteCheck]:
        async for asked in iter_quotes(quotes):
            await self._settled()
            yield asked
