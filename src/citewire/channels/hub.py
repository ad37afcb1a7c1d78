"""Append to channels and follow them: writers append through the hub, which wakes the channel's followers.

A follower is only a cursor, without a queue, so a slow one is just further behind. While a channel has
followers its latest rows stay in memory, so that followers that keep up need not read the store. A follower
that is further behind reads the store page by page.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Coroutine, Mapping, Sequence
from typing import Any, Literal, Protocol, TypeAlias, TypeVar, runtime_checkable
from weakref import WeakValueDictionary

from citewire.channels.actor import SERVER, Actor
from citewire.channels.store import (
    CommittedChange,
    Cursor,
    Entry,
    Head,
    Row,
    Store,
    StoreError,
)
from citewire.channels.store_rules import is_last_page
from citewire.errors import CitewireError
from citewire.wakeup import Wakeup

_T = TypeVar("_T")

# Per channel: some seconds of a fast answer. A thousand full channels take a quarter of a gigabyte.
_TAIL_ROWS = 256
_TAIL_BYTES = 256 * 1024
_PAGE = 256
# Seconds for which followers wait for an unreachable database, and seconds between two retries.
_PATIENCE, _AGAIN = 120.0, 0.5


RecordRemoval: TypeAlias = Callable[[Literal["deleted", "trimmed"], Head, Actor], Awaitable[None]]
"""Records that rows of a channel, up to the one that the head is at, are about to be removed, and by whom."""


@runtime_checkable
class SharedStore(Protocol):
    """**Protocol:** a store that other processes also write to; it notifies its follower of their writes."""

    follower: Hub | None

    async def after(self, cursors: Mapping[str, Cursor], limit: int) -> dict[str, Sequence[Row] | None]:
        """Return up to `limit` rows of each channel after its cursor; None if the cursor is lost."""
        ...


class _Tail:
    """The last rows of a channel, without a gap, up to the highest known row number.

    It cannot know rows before its first one, or writes that bypass the hub. Each event that may have caused
    such a gap adds to `doubts`; a follower may use the tail only if it has since read to the end of the log.
    """

    def __init__(self) -> None:
        self.wakeup = Wakeup()
        self.wakeups = 0
        self.generation = 0
        self._start("", 1)

    def add(self, rows: Sequence[Row]) -> None:
        """Add appended rows, which may arrive out of order or more than once."""
        for row in rows:
            if row.epoch != self._epoch:
                self.generation += 1
                self._start(row.epoch, row.n)
            elif row.n > self._end:
                self._start(row.epoch, row.n)
            elif row.n < self._end:
                continue
            self._rows[row.n] = row
            self._end += 1
            self._size += len(row.data)
        while self._size > _TAIL_BYTES or len(self._rows) > _TAIL_ROWS:
            self._size -= len(self._rows.pop(self._first).data)
            self._first += 1
        self.wake()

    @property
    def end(self) -> Cursor | None:
        """The highest known row number."""
        return Cursor(self._epoch, self._end - 1) if self._epoch else None

    def settle(self, end: Cursor | None) -> None:
        """Record that the log was read to its end, so that later rows can be added without a gap."""
        if end and not self._epoch:
            self._start(end.epoch, end.n + 1)
            self.wake()  # followers that had read less have to read again

    def invalidate(self) -> None:
        """Drop all rows because something else has changed the channel."""
        self.generation += 1
        self._start("", 1)
        self.wake()

    def after(self, cursor: Cursor | None) -> Sequence[Row] | None:
        """Return the rows after the cursor, or from the start; None if the caller has to read the store."""
        if cursor is None:
            return [*self._rows.values()] if 1 in self._rows else None
        if self._epoch not in {"", cursor.epoch} or cursor.n + 1 < self._first:
            return None
        return [self._rows[n] for n in range(cursor.n + 1, self._end)]

    def wake(self) -> None:
        """Wake the followers."""
        self.wakeups += 1
        self.wakeup.notify()

    def _start(self, epoch: str, n: int) -> None:
        """Clear the tail; row `n` comes next."""
        self._epoch, self._first, self._end = epoch, n, n
        self._rows: dict[int, Row] = {}
        self._size = 0


class Hub:
    """A store whose channels can be followed. Rows appended without the hub are seen with the next append.

    `measure` is called after every append with the number of rows and the seconds it took. `heard` is called
    with the name of every changed channel. Writes by other processes to a shared store are included.
    """

    def __init__(self, store: Store, measure: Callable[[int, float], None] | None = None) -> None:
        self.store, self._measure = store, measure
        # A tail lives as long as a follower references it.
        self._tails: WeakValueDictionary[str, _Tail] = WeakValueDictionary()
        self._closed = False
        self.on_channel_changed: Callable[[str], None] | None = None
        self.record_removal: RecordRemoval | None = None
        self._shared = store if isinstance(store, SharedStore) else None
        self._behind: dict[str, _Tail] = {}
        self._catching_up: asyncio.Task[None] | None = None
        if self._shared:
            self._shared.follower = self

    async def append(self, channel: str, entries: Sequence[Entry]) -> tuple[Row, ...]:
        """Append like `Store.append`. The followers get the rows even if the caller is cancelled."""
        return (await self.commit_and_notify(channel, self._append(channel, entries))).rows

    async def commit_and_notify(
        self, channel: str, work: Coroutine[Any, Any, CommittedChange[_T]]
    ) -> CommittedChange[_T]:
        """Return the result of a change to the store. Followers get its rows, as with `append`."""
        return await _finish_even_if_cancelled(self._commit_and_notify(channel, work))

    async def drop(self, channel: str, by: Actor = SERVER) -> None:
        """Drop the channel like `Store.drop`, after recording it. Followers that read a row get CursorLost.

        A removal that cannot be recorded does not happen.
        """
        await _finish_even_if_cancelled(self._drop(channel, by))

    async def announce_removal(
        self, what: Literal["deleted", "trimmed"], upto: Head, by: Actor = SERVER
    ) -> None:
        """Record that rows are about to be removed. Raises `StoreError`."""
        if self.record_removal:
            await self.record_removal(what, upto, by)

    async def follow(self, channel: str, after: Cursor | None = None) -> AsyncGenerator[Sequence[Row]]:
        """Yield the rows after the cursor, or from the start, in batches as they arrive, until `close`.

        Each row comes once, in order and without a gap. Raises `CursorLost` like `Store.read`, at any time.
        """
        tail = self._tails.setdefault(channel, _Tail())
        at_end = -1
        while not self._closed:
            rings, doubts = tail.wakeups, tail.generation
            # A follower waiting for the first row of a channel need not read the store once the tail has it.
            rows = tail.after(after) if after is None or at_end == doubts else None
            if rows is None:
                rows = await self._read(channel, after)
                # Not only for an empty page: in a busy channel each read may find one more row.
                if is_last_page(rows, _PAGE):
                    at_end = doubts
                    if self._shared and tail.generation == doubts:
                        tail.settle(rows[-1].cursor if rows else after)
            if rows:
                after = rows[-1].cursor
                yield rows
            elif tail.wakeups == rings:
                await tail.wakeup.wait()

    def followed_ends(self) -> dict[str, Cursor | None]:
        """Return the channels that have followers, each with its highest known row."""
        return {channel: tail.end for channel, tail in list(self._tails.items())}

    def on_remote_writes(self, channels: Collection[str] | None) -> None:
        """Handle writes by other processes to these channels, or to unknown ones for None."""
        for channel in list(self._tails) if channels is None else channels:
            if tail := self._tails.get(channel):
                self._behind[channel] = tail
            if channels is not None and self.on_channel_changed:
                self.on_channel_changed(channel)
        if self._behind and not self._catching_up and not self._closed:
            self._catching_up = asyncio.create_task(self._catch_up())

    async def _catch_up(self) -> None:
        """Read the rows of other writers once for all followers."""
        try:
            while self._behind and self._shared:
                tails, self._behind = self._behind, {}
                ends = {channel: end for channel, tail in tails.items() if (end := tail.end)}
                try:
                    found = await self._shared.after(ends, _PAGE) if ends else {}
                except StoreError:
                    found = {}  # the followers read the store themselves
                for channel, tail in tails.items():
                    if (rows := found.get(channel)) is None:
                        tail.invalidate()
                    elif rows:
                        tail.add(rows)
                        self._behind[channel] = tail  # there may be more
        finally:
            self._catching_up = None

    async def _read(self, channel: str, after: Cursor | None) -> Sequence[Row]:
        """Read a page, and retry while a shared database is unreachable for a short time."""
        until = time.monotonic() + (_PATIENCE if self._shared else 0)
        while True:
            try:
                return await self.store.read(channel, after, _PAGE)
            except StoreError:
                if self._closed or time.monotonic() >= until:
                    raise
            await asyncio.sleep(_AGAIN)

    def close(self) -> None:
        """End all followers; the store stays open."""
        self._closed = True
        if self._catching_up:
            self._catching_up.cancel()
        for tail in self._tails.values():
            tail.wake()

    async def _append(self, channel: str, entries: Sequence[Entry]) -> CommittedChange[None]:
        return CommittedChange(await self.store.append(channel, entries), None)

    async def _commit_and_notify(
        self, channel: str, work: Coroutine[Any, Any, CommittedChange[_T]]
    ) -> CommittedChange[_T]:
        began = time.monotonic()
        try:
            changed = await work
        except BaseException as error:
            # A refused change was not stored; after any other error it may have been stored.
            if isinstance(error, StoreError) or not isinstance(error, CitewireError):
                self._doubt(channel)
            raise
        if self._measure:
            self._measure(len(changed.rows), time.monotonic() - began)
        if tail := self._tails.get(channel):
            tail.add(changed.rows)
        if self.on_channel_changed and changed.rows:
            self.on_channel_changed(channel)
        return changed

    async def _drop(self, channel: str, by: Actor) -> None:
        if head := await self.store.head(channel):
            await self.announce_removal("deleted", head, by)
        try:
            await self.store.drop(channel)
        finally:
            self._doubt(channel)

    def _doubt(self, channel: str) -> None:
        if tail := self._tails.get(channel):
            tail.invalidate()
        if self.on_channel_changed:
            self.on_channel_changed(channel)


async def _finish_even_if_cancelled(work: Coroutine[Any, Any, _T]) -> _T:
    """Await the work, which continues when the caller is cancelled, as its request to the store does."""
    return await asyncio.shield(asyncio.ensure_future(work))
