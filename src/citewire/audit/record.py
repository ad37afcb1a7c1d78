"""The threads in a store, those that were deleted too, and what was in them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import NamedTuple, TypeAlias

from msgspec import Struct

from citewire.audit.catalog import CHANNEL, SourcesFold
from citewire.audit.citation import Citation
from citewire.audit.thread import PREFIX, ThreadFold, channel_of, date_of, thread_of
from citewire.audit.which import Which
from citewire.channels.store import Chain, Erased, Log, Row, StoreError
from citewire.errors import CitewireError

__all__ = [
    "Deleted", "Keep", "Told", "chain_of", "deleted", "erased", "rows_of", "sources", "threads",
    "told",
]  # fmt: skip

_PAGE = 1000

Keep: TypeAlias = Callable[[Row], object]


class Told(NamedTuple):
    """A thread, and its citations that are asked for."""

    chain: Chain
    fold: ThreadFold
    citations: list[Citation]

    @property
    def name(self) -> str:
        """The thread's id."""
        return thread_of(self.chain.head.channel)


class Deleted(Struct, frozen=True, tag="deleted"):
    """A thread that was deleted: when, and how many rows it had, up to the one with this hash."""

    thread: str
    at: str
    rows: int
    hash: str


def deleted(erased: Erased) -> Deleted:
    """What there is to say of it."""
    head, rows = erased.head, erased.head.n - erased.floor.n
    return Deleted(thread_of(head.channel), date_of(erased.at * 1000), rows, head.hash.hex())


async def chain_of(log: Log, channel: str) -> Chain | None:
    """The rows of a channel as it is now."""
    floor, head = await log.floor(channel), await log.head(channel)
    return Chain(floor, head) if floor and head and floor.epoch == head.epoch else None


async def rows_of(log: Log, chain: Chain) -> AsyncIterator[Row]:
    """The rows of a chain. CursorLost where they go while one reads."""
    after, end = chain.floor.cursor, chain.head.n
    while after.n < end:
        rows = await log.read(chain.head.channel, after, min(_PAGE, end - after.n))
        if not rows:  # the end of the channel is not what it says
            return
        for row in rows:
            yield row
        after = rows[-1].cursor


async def threads(log: Log, which: Which) -> AsyncIterator[Chain]:
    """The threads that may be asked for, by their names."""
    if which.thread is not None:
        found = await chain_of(log, channel_of(which.thread))
        if found:
            yield found
        return
    after = ""
    while heads := await log.heads(PREFIX, after):
        for head in heads:
            if found := await chain_of(log, head.channel):
                yield found
        after = heads[-1].channel


async def told(log: Log, which: Which, begin: Callable[[], Keep] = lambda: bool) -> AsyncIterator[Told]:
    """The threads in which something is asked for, and all of them when nothing narrow is.

    The log is a snapshot. `begin` is called with each thread that is looked into, and says where to put
    its rows.
    """
    async for chain in threads(log, which):
        keep, fold = begin(), ThreadFold(thread_of(chain.head.channel))
        async for row in rows_of(log, chain):
            _take(fold, row)
            keep(row)
        citations = [each for each in fold.citations() if which.wants(each)]
        if citations or not which.is_narrow:
            yield Told(chain, fold, citations)


def _take(fold: ThreadFold, row: Row) -> None:
    try:
        fold.take(row)
    except CitewireError as exc:
        raise StoreError(f"row {row.n} of thread {fold.thread} cannot be read: {exc.message}") from exc


async def erased(log: Log, which: Which) -> AsyncIterator[Erased]:
    """The threads that were deleted, in that order. Nothing narrower can be asked about them."""
    if which.is_narrow:
        return
    after, channel = 0, None if which.thread is None else channel_of(which.thread)
    while found := await log.erased(channel or PREFIX, after):
        for each in found:
            if channel in (None, each.head.channel):
                yield each
        after = found[-1].no


async def sources(log: Log) -> SourcesFold:
    """The sources of all times."""
    fold, chain = SourcesFold(), await chain_of(log, CHANNEL)
    if chain:
        async for row in rows_of(log, chain):
            fold.take(row)
    return fold
