"""Channels as they grow: who appends goes through the hub, and who follows a channel is woken and reads on.

A follower is a cursor and nothing else: no queue is kept for it, so a slow one is just further behind. The
rows that came last are kept in memory as long as anybody follows, so that those who keep up need not ask the
store for them; whoever is behind that reads the store, page by page.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Coroutine, Mapping, Sequence
from typing import Any, Literal, Protocol, TypeAlias, TypeVar, runtime_checkable
from weakref import WeakValueDictionary

from citewire.channels.actor import SERVER, Actor
from citewire.channels.store import CommittedChange, Cursor, Entry, Head, Row, Store, StoreError, is_last_page
from citewire.errors import CitewireError
from citewire.wakeup import Wakeup

_T = TypeVar("_T")

# Per channel: some seconds of a fast answer. With a thousand channels full of it, a quarter of a gigabyte.
_TAIL_ROWS = 256
_TAIL_BYTES = 256 * 1024
_PAGE = 256
# Seconds for which those who follow wait for a database that is away, and between two tries.
_PATIENCE, _AGAIN = 120.0, 0.5


RecordRemoval: TypeAlias = Callable[[Literal["deleted", "trimmed"], Head, Actor], Awaitable[None]]
"""Records that rows of a channel, up to the one that the head is at, are about to be removed, and by whom."""


@runtime_checkable
class SharedStore(Protocol):
    """**Protocol:** a store to which others write as well, and which tells its follower so."""

    follower: Hub | None

    async def after(self, cursors: Mapping[str, Cursor], limit: int) -> dict[str, Sequence[Row] | None]:
        """Up to `limit` rows of each channel after its cursor; None where the cursor is lost."""
        ...


class _Tail:
    """The last rows of a channel, without a gap, up to the highest number heard of.

    What was before its first row, or happens past it, it cannot know. Whenever that may matter it counts a
    doubt, and only those who have since been at the end of the store's log may go by what it says.
    """

    def __init__(self) -> None:
        self.bell = Wakeup()
        self.rings = 0
        self.doubts = 0
        self._start("", 1)

    def add(self, rows: Sequence[Row]) -> None:
        """Rows that were appended; those of other tasks may have come first, and old ones come again."""
        for row in rows:
            if row.epoch != self._epoch:
                self.doubts += 1
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
        self.ring()

    @property
    def end(self) -> Cursor | None:
        """The highest number heard of."""
        return Cursor(self._epoch, self._end - 1) if self._epoch else None

    def settle(self, end: Cursor | None) -> None:
        """The log was read up to here, where it ended: what comes next can be told from what was."""
        if end and not self._epoch:
            self._start(end.epoch, end.n + 1)
            self.ring()  # whoever had read less has to ask again

    def doubt(self) -> None:
        """Something else has happened to the channel."""
        self.doubts += 1
        self._start("", 1)
        self.ring()

    def after(self, cursor: Cursor | None) -> Sequence[Row] | None:
        """The rows after the cursor, or from the start; None when one has to ask the store."""
        if cursor is None:
            return [*self._rows.values()] if 1 in self._rows else None
        if self._epoch not in {"", cursor.epoch} or cursor.n + 1 < self._first:
            return None
        return [self._rows[n] for n in range(cursor.n + 1, self._end)]

    def ring(self) -> None:
        """Wake those who follow."""
        self.rings += 1
        self.bell.notify()

    def _start(self, epoch: str, n: int) -> None:
        """Hold nothing; row `n` is the next."""
        self._epoch, self._first, self._end = epoch, n, n
        self._rows: dict[int, Row] = {}
        self._size = 0


class Hub:
    """A store whose channels can be followed. What is appended past the hub is seen with the next append.

    `measure` is told of every append: how many rows, and how many seconds it took. `heard` is told of every
    channel in which something happens. What others write to a store that is shared is told and heard as well.
    """

    def __init__(self, store: Store, measure: Callable[[int, float], None] | None = None) -> None:
        self.store, self._measure = store, measure
        # A tail lives as long as a follower holds it.
        self._tails: WeakValueDictionary[str, _Tail] = WeakValueDictionary()
        self._closed = False
        self.heard: Callable[[str], None] | None = None
        self.record_removal: RecordRemoval | None = None
        self._shared = store if isinstance(store, SharedStore) else None
        self._behind: dict[str, _Tail] = {}
        self._catching_up: asyncio.Task[None] | None = None
        if self._shared:
            self._shared.follower = self

    async def append(self, channel: str, entries: Sequence[Entry]) -> tuple[Row, ...]:
        """As `Store.append`; and those who follow the channel get the rows, even when the caller leaves."""
        return (await self.commit_and_notify(channel, self._append(channel, entries))).rows

    async def commit_and_notify(
        self, channel: str, work: Coroutine[Any, Any, CommittedChange[_T]]
    ) -> CommittedChange[_T]:
        """What a change of the store gives; and those who follow get its rows, as with `append`."""
        return await _finish_even_if_cancelled(self._commit_and_notify(channel, work))

    async def drop(self, channel: str, by: Actor = SERVER) -> None:
        """As `Store.drop`, once that is recorded. Followers that have read a row get CursorLost.

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
        """The rows after the cursor, or from the start, in batches as they come, until the hub is closed.

        Every row once, in order, without a gap. CursorLost as with `Store.read`, at any time.
        """
        tail = self._tails.setdefault(channel, _Tail())
        at_end = -1
        while not self._closed:
            rings, doubts = tail.rings, tail.doubts
            # Whoever waits for the first row of a channel need not ask for it once it was heard of.
            rows = tail.after(after) if after is None or at_end == doubts else None
            if rows is None:
                rows = await self._read(channel, after)
                # Not only when there are none: in a busy channel each read may find one more.
                if is_last_page(rows, _PAGE):
                    at_end = doubts
                    if self._shared and tail.doubts == doubts:
                        tail.settle(rows[-1].cursor if rows else after)
            if rows:
                after = rows[-1].cursor
                yield rows
            elif tail.rings == rings:
                await tail.bell.wait()

    def followed_ends(self) -> dict[str, Cursor | None]:
        """The channels that somebody follows, with how far they were heard of."""
        return {channel: tail.end for channel, tail in list(self._tails.items())}

    def on_remote_writes(self, channels: Collection[str] | None) -> None:
        """Others have written to these channels, or maybe to any."""
        for channel in list(self._tails) if channels is None else channels:
            if tail := self._tails.get(channel):
                self._behind[channel] = tail
            if channels is not None and self.heard:
                self.heard(channel)
        if self._behind and not self._catching_up and not self._closed:
            self._catching_up = asyncio.create_task(self._catch_up())

    async def _catch_up(self) -> None:
        """Read what others have written once for all who follow."""
        try:
            while self._behind and self._shared:
                tails, self._behind = self._behind, {}
                ends = {channel: end for channel, tail in tails.items() if (end := tail.end)}
                try:
                    found = await self._shared.after(ends, _PAGE) if ends else {}
                except StoreError:
                    found = {}  # those who follow ask for themselves
                for channel, tail in tails.items():
                    if (rows := found.get(channel)) is None:
                        tail.doubt()
                    elif rows:
                        tail.add(rows)
                        self._behind[channel] = tail  # there may be more
        finally:
            self._catching_up = None

    async def _read(self, channel: str, after: Cursor | None) -> Sequence[Row]:
        """A page; those who follow need not know that a database was away for a while."""
        until = time.monotonic() + (_PATIENCE if self._shared else 0)
        while True:
            try:
                return await self.store.read(channel, after, _PAGE)
            except StoreError:
                if self._closed or time.monotonic() >= until:
                    raise
            await asyncio.sleep(_AGAIN)

    def close(self) -> None:
        """End all who follow; the store stays open."""
        self._closed = True
        if self._catching_up:
            self._catching_up.cancel()
        for tail in self._tails.values():
            tail.ring()

    async def _append(self, channel: str, entries: Sequence[Entry]) -> CommittedChange[None]:
        return CommittedChange(await self.store.append(channel, entries), None)

    async def _commit_and_notify(
        self, channel: str, work: Coroutine[Any, Any, CommittedChange[_T]]
    ) -> CommittedChange[_T]:
        began = time.monotonic()
        try:
            changed = await work
        except BaseException as error:
            # What was refused was not kept; all else may be kept all the same.
            if isinstance(error, StoreError) or not isinstance(error, CitewireError):
                self._doubt(channel)
            raise
        if self._measure:
            self._measure(len(changed.rows), time.monotonic() - began)
        if tail := self._tails.get(channel):
            tail.add(changed.rows)
        if self.heard and changed.rows:
            self.heard(channel)
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
            tail.doubt()
        if self.heard:
            self.heard(channel)


async def _finish_even_if_cancelled(work: Coroutine[Any, Any, _T]) -> _T:
    """Cancelled, it goes on all the same, as what it asked of the store does: nobody waits for it then."""
    return await asyncio.shield(asyncio.ensure_future(work))
