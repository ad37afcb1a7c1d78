"""Read the threads in a store, including the deleted ones, and their content."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import NamedTuple, TypeAlias

from msgspec import Struct

from citewire.audit.audit_filter import AuditFilter
from citewire.audit.record_types import RecordedCitation
from citewire.audit.sources_fold import SOURCES_CHANNEL, SourcesFold
from citewire.audit.thread_fold import ThreadFold, date_of
from citewire.channels.store import Chain, ErasedChannel, Log, Row, StoreError
from citewire.errors import CitewireError
from citewire.threadlog.names import LOG_PREFIX, run_channel, thread_of

__all__ = [
    "DeletedThread", "RecordedThread", "RowSink", "describe_deleted", "find_erased_threads",
    "find_thread_chains", "read_chain", "read_rows", "read_sources", "read_threads",
]  # fmt: skip

_PAGE = 1000

RowSink: TypeAlias = Callable[[Row], object]


class RecordedThread(NamedTuple):
    """A thread and its citations that match the filter."""

    chain: Chain
    fold: ThreadFold
    citations: list[RecordedCitation]

    @property
    def name(self) -> str:
        """The thread's id."""
        return thread_of(self.chain.head.channel)


class DeletedThread(Struct, frozen=True, tag="deleted"):
    """A deleted thread: when it was deleted, its number of rows, and the hash of the last row."""

    thread: str
    at: str
    rows: int
    hash: str


def describe_deleted(erased: ErasedChannel) -> DeletedThread:
    """Describe an erased channel as a deleted thread."""
    head, rows = erased.head, erased.head.n - erased.floor.n
    return DeletedThread(thread_of(head.channel), date_of(erased.at * 1000), rows, head.hash.hex())


async def read_chain(log: Log, channel: str) -> Chain | None:
    """Return the current chain of a channel, or None."""
    floor, head = await log.floor(channel), await log.head(channel)
    return Chain(floor, head) if floor and head and floor.epoch == head.epoch else None


async def read_rows(log: Log, chain: Chain) -> AsyncIterator[Row]:
    """Yield the rows of a chain. Raises `CursorLost` if they are removed meanwhile."""
    after, end = chain.floor.cursor, chain.head.n
    while after.n < end:
        rows = await log.read(chain.head.channel, after, min(_PAGE, end - after.n))
        if not rows:  # the channel ends before its recorded head
            return
        for row in rows:
            yield row
        after = rows[-1].cursor


async def find_thread_chains(log: Log, which: AuditFilter) -> AsyncIterator[Chain]:
    """Yield the threads that may match, by name."""
    if which.thread is not None:
        found = await read_chain(log, run_channel(which.thread))
        if found:
            yield found
        return
    after = ""
    while heads := await log.heads(LOG_PREFIX, after):
        for head in heads:
            if found := await read_chain(log, head.channel):
                yield found
        after = heads[-1].channel


async def read_threads(
    log: Log, which: AuditFilter, begin: Callable[[], RowSink] = lambda: bool
) -> AsyncIterator[RecordedThread]:
    """Yield the threads with matching citations, or all threads if the filter does not filter citations.

    The log is a snapshot. `begin` is called for each thread that is read, and returns a sink for its rows.
    """
    async for chain in find_thread_chains(log, which):
        keep, fold = begin(), ThreadFold(thread_of(chain.head.channel))
        async for row in read_rows(log, chain):
            _take(fold, row)
            keep(row)
        citations = [each for each in fold.citations() if which.matches(each)]
        if citations or not which.filters_citations:
            yield RecordedThread(chain, fold, citations)


def _take(fold: ThreadFold, row: Row) -> None:
    try:
        fold.take(row)
    except CitewireError as exc:
        raise StoreError(f"row {row.n} of thread {fold.thread} cannot be read: {exc.message}") from exc


async def find_erased_threads(log: Log, which: AuditFilter) -> AsyncIterator[ErasedChannel]:
    """Yield the deleted threads, in order of deletion; none if the filter filters citations."""
    if which.filters_citations:
        return
    after, channel = 0, None if which.thread is None else run_channel(which.thread)
    while found := await log.erased(channel or LOG_PREFIX, after):
        for each in found:
            if channel in (None, each.head.channel):
                yield each
        after = found[-1].no


async def read_sources(log: Log) -> SourcesFold:
    """Fold the whole log of the sources."""
    fold, chain = SourcesFold(), await read_chain(log, SOURCES_CHANNEL)
    if chain:
        async for row in read_rows(log, chain):
            fold.take(row)
    return fold
