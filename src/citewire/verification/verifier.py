"""The port for checking quotes, locally or remotely."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable, Iterable, Sequence
from contextlib import aclosing
from typing import Annotated, Protocol

from msgspec import Meta, Struct
from msgspec.structs import replace

from citewire.documents.draw import ImageFormat
from citewire.verification.document_set import CheckResult
from citewire.verification.expected_place import ANYWHERE, ExpectedPlace
from citewire.verification.sources import SourceInput

__all__ = ["QuoteCheck", "QuoteInput", "Verifier", "check_concurrently", "check_in_order", "iter_quotes"]


class QuoteCheck(Struct, frozen=True, gc=False):
    """A quote to check: in its `source`, else in the first of `likely` that exists, else in all sources.

    If `source` does not exist, the quote is not checked; missing names in `likely` do not matter. `near` only
    breaks ties, and is compared with the place that was found. With a `scope`, the sources of that scope are
    searched as well, or `alone`. If nothing is quoted, the passage closest to the `claim` is returned as
    context.
    """

    id: str | None
    quote: str
    source: str | None = None
    near: ExpectedPlace = ANYWHERE
    likely: tuple[str, ...] = ()
    scope: str | None = None
    claim: str = ""
    alone: bool = False


class QuoteInput(Struct, frozen=True):
    """A quote as a user submits it, in a line of `citewire check` and in `POST /verify`."""

    quote: str
    source: str | None = None
    page: Annotated[int, Meta(ge=1)] | None = None
    line: Annotated[int, Meta(ge=1)] | None = None
    prefix: str | None = None
    suffix: str | None = None

    def to_quote_check(self, name: str | None) -> QuoteCheck:
        """Convert to a `QuoteCheck` with the id `name`."""
        pages, lines = (() if number is None else (number,) for number in (self.page, self.line))
        return QuoteCheck(
            name, self.quote, self.source, ExpectedPlace(pages, lines, self.prefix or "", self.suffix or "")
        )


class Verifier(Protocol):
    """**Protocol:** checks quotes against the sources it knows."""

    def check(self, quotes: Iterable[QuoteCheck] | AsyncIterable[QuoteCheck]) -> AsyncGenerator[CheckResult]:
        """Yield the result of each quote exactly once, as soon as it is known, in any order.

        No quote or source makes this raise. An exception from the producer of quotes is raised after the
        results of the quotes before it. Quotes are consumed only as fast as results are. A caller that stops
        early must close the iterator.
        """
        ...

    async def add(self, *sources: SourceInput, scope: str | None = None) -> None:
        """Add sources. Quotes received after this returns are checked in them as well.

        This does not wait until they are read; a quote that needs one does. Sources of a scope are used only
        for quotes of the same scope, until `forget`.
        """
        ...

    async def forget(self, scope: str) -> None:
        """Remove the sources of a scope."""
        ...

    async def pictures(self, found: Sequence[CheckResult], form: ImageFormat) -> list[bytes | None]:
        """Draw each quote in its source; None if the source has no visual form, or is gone."""
        ...

    async def prewarm(self) -> None:
        """Wait until all sources are read, so that the next quote does not have to."""
        ...


async def iter_quotes(quotes: Iterable[QuoteCheck] | AsyncIterable[QuoteCheck]) -> AsyncGenerator[QuoteCheck]:
    """Yield quotes from an iterable or an async iterable."""
    if isinstance(quotes, AsyncIterable):
        async for asked in quotes:
            yield asked
    else:
        for asked in quotes:
            yield asked


async def check_concurrently(
    quotes: Iterable[QuoteCheck] | AsyncIterable[QuoteCheck],
    check: Callable[[QuoteCheck], Awaitable[CheckResult]],
    most: int,
) -> AsyncGenerator[CheckResult]:
    """Implement `Verifier.check` with a `check` of one quote that never raises, `most` at a time."""
    room = asyncio.Semaphore(most)
    done: asyncio.Queue[CheckResult | None] = asyncio.Queue()
    tasks: set[asyncio.Task[None]] = set()

    async def one(asked: QuoteCheck) -> None:
        done.put_nowait(await check(asked))

    async def feed() -> None:
        try:
            async for asked in iter_quotes(quotes):
                await room.acquire()
                tasks.add(task := asyncio.create_task(one(asked)))
                task.add_done_callback(tasks.discard)
        finally:
            if tasks:
                await asyncio.wait(tasks)
            done.put_nowait(None)

    feeder = asyncio.create_task(feed())
    try:
        while checked := await done.get():
            room.release()
            yield checked
        await feeder
    finally:
        for task in (feeder, *tasks):
            task.cancel()
        await asyncio.gather(feeder, *tasks, return_exceptions=True)


async def check_in_order(
    verifier: Verifier, quotes: Iterable[QuoteCheck] | AsyncIterable[QuoteCheck]
) -> AsyncGenerator[CheckResult]:
    """Like `Verifier.check`, but in the order of the quotes; their ids need not be unique."""
    ids: dict[str, str | None] = {}
    early: dict[str | None, CheckResult] = {}

    async def numbered() -> AsyncGenerator[QuoteCheck]:
        number = 0
        async for asked in iter_quotes(quotes):
            ids[str(number)] = asked.id
            yield replace(asked, id=str(number))
            number += 1

    async with aclosing(verifier.check(numbered())) as results:
        async for checked in results:
            early[checked.id] = checked
            while (first := next(iter(ids), None)) in early:
                yield replace(early.pop(first), id=ids.pop(first or ""))
