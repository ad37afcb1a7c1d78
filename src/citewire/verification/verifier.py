"""The port through which quotes are checked, whoever does it and wherever."""

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
    """A quote to check: in its `source`, or else in the first of `likely` that there is, or else in all.

    A `source` that is not there leaves nothing to check; of those in `likely` it is no matter. `near` only
    breaks ties, and is compared with the place that was found. With a `scope`, the sources of that scope
    count as well, or they `alone`. Where nothing is quoted, the passage closest to the `claim` is given as
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
    """A quote as people ask about it, in a line of `citewire check` and in `POST /verify`."""

    quote: str
    source: str | None = None
    page: Annotated[int, Meta(ge=1)] | None = None
    line: Annotated[int, Meta(ge=1)] | None = None
    prefix: str | None = None
    suffix: str | None = None

    def to_quote_check(self, name: str | None) -> QuoteCheck:
        """The same for a verifier, under the id `name`."""
        pages, lines = (() if number is None else (number,) for number in (self.page, self.line))
        return QuoteCheck(
            name, self.quote, self.source, ExpectedPlace(pages, lines, self.prefix or "", self.suffix or "")
        )


class Verifier(Protocol):
    """**Protocol:** checks quotes against the sources that it knows."""

    def check(self, quotes: Iterable[QuoteCheck] | AsyncIterable[QuoteCheck]) -> AsyncGenerator[CheckResult]:
        """What becomes of each quote, exactly once, as it is known: not in the order in which they come.

        Nothing that a quote or a source does is raised; what a producer of quotes raises is, after what it
        gave before. Quotes are taken only as fast as what became of them is. Whoever stops early closes the
        iterator.
        """
        ...

    async def add(self, *sources: SourceInput, scope: str | None = None) -> None:
        """Make sources known. A quote that is taken after this returns is looked for in them as well.

        It does not wait for them to be read: a quote that needs one does. Those of a scope are there for
        quotes of the same scope only, until `forget`.
        """
        ...

    async def forget(self, scope: str) -> None:
        """The sources of a scope are needed no longer."""
        ...

    async def pictures(self, found: Sequence[CheckResult], form: ImageFormat) -> list[bytes | None]:
        """How each looks in its source; None where that has no looks, or is gone."""
        ...

    async def prewarm(self) -> None:
        """Wait until all that is known was read, and the next quote need not wait for anything."""
        ...


async def iter_quotes(quotes: Iterable[QuoteCheck] | AsyncIterable[QuoteCheck]) -> AsyncGenerator[QuoteCheck]:
    """Quotes, from wherever they come."""
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
    """`Verifier.check` for who can `check` one quote and never raises; with `most` under way at a time."""
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
    """As `check`, but in the order in which the quotes come; their ids need not be unique."""
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
