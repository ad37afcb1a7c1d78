import asyncio
import threading
from collections.abc import Coroutine, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from citewire.channels import hub as module
from citewire.channels.hub import Hub
from citewire.channels.memory import MemoryStore
from citewire.channels.sqlite import SqliteStore
from citewire.channels.store import Cursor, CursorLost, Entry, Row, Store, StoreError
from citewire.testing import entries


class Slow(MemoryStore):
    """A store in which others come first: each call is done, and then heard of, some turns of the loop later.

    The turns are taken from a list, over and over.
    """

    def __init__(self, turns: Sequence[int]) -> None:
        super().__init__()
        self._turns = [*turns, 0]
        self._calls = 0
        self.reads = 0

    async def append(self, channel: str, entries: Sequence[Entry]) -> tuple[Row, ...]:
        await self._wait()
        rows = await super().append(channel, entries)
        await self._wait()
        return rows

    async def read(self, channel: str, after: Cursor | None = None, limit: int = 1000) -> tuple[Row, ...]:
        self.reads += 1
        await self._wait()
        try:
            return await super().read(channel, after, limit)
        finally:
            await self._wait()

    async def drop(self, channel: str) -> None:
        await self._wait()
        await super().drop(channel)
        await self._wait()

    async def _wait(self) -> None:
        self._calls += 1
        for _ in range(self._turns[self._calls % len(self._turns)]):
            await asyncio.sleep(0)


def run_in_turns(main: Coroutine[Any, Any, None]) -> None:
    """As `asyncio.run`, for what needs no time: after so many turns, somebody waits in vain."""

    async def run() -> None:
        task = asyncio.ensure_future(main)
        for _ in range(20_000):
            if task.done():
                return await task
            await asyncio.sleep(0)
        raise AssertionError("it hangs")

    asyncio.run(run())


async def seen_until(hub: Hub, last: int, after: Cursor | None = None, pause: int = 0) -> list[Row]:
    """What a follower sees up to row `last`, who does something else for some turns after each batch."""
    seen: list[Row] = []
    async with aclosing(hub.follow("c", after)) as batches:
        async for rows in batches:
            assert rows
            seen += rows
            if seen[-1].n >= last:
                break
            for _ in range(pause):
                await asyncio.sleep(0)
    return seen


async def append_all(hub: Hub, writer: int, sizes: list[int], again: bool) -> None:
    """Batches of so many entries, one after the other; with `again` each is also sent a second time, late."""
    batches = [entries(*(f"{writer}.{k}.{i}" for i in range(size))) for k, size in enumerate(sizes)]
    for k, batch in enumerate(batches):
        await hub.append("c", batch)
        if again and k:
            await hub.append("c", batches[k // 2])


async def all_see_all(
    store: Store, writers: list[list[int]], again: bool, followers: list[tuple[int, int, int]]
) -> None:
    """Each follower is how many quarters it skips of what is there, the turns before that, and its pause."""
    hub, total = Hub(store), 3 + sum(map(sum, writers))
    first = await hub.append("c", entries("x", "y", "z"))

    async def follow(quarters: int, late: int, pause: int) -> None:
        for _ in range(late):
            await asyncio.sleep(0)
        head = await store.head("c")
        assert head
        start = Cursor(head.epoch, head.n * quarters // 4)
        seen = await seen_until(hub, total, start if quarters else None, pause)
        assert [row.n for row in seen] == list(range(start.n + 1, total + 1))
        assert {row.epoch for row in seen} <= {first[0].epoch}

    tasks = [append_all(hub, writer, sizes, again) for writer, sizes in enumerate(writers)]
    await asyncio.gather(follow(0, 0, 0), *(follow(*each) for each in followers), *tasks)


_turns = st.lists(st.integers(0, 7), max_size=12)
_writers = st.lists(st.lists(st.integers(1, 4), min_size=1, max_size=8), min_size=1, max_size=5)
_followers = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 40), st.integers(0, 12)), max_size=5)


@pytest.mark.parametrize(("tail", "page"), [(256, 256), (3, 2)])
@given(turns=_turns, writers=_writers, again=st.booleans(), followers=_followers)
def test_all_see_all_once(
    tail: int,
    page: int,
    turns: list[int],
    writers: list[list[int]],
    again: bool,
    followers: list[tuple[int, int, int]],
) -> None:
    """Whoever comes first, and however short the memory is."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_TAIL_ROWS", tail)
        patch.setattr(module, "_PAGE", page)
        run_in_turns(all_see_all(Slow(turns), writers, again, followers))


def test_all_see_all_once_in_sqlite(tmp_path: Path) -> None:
    async def run() -> None:
        store = SqliteStore(tmp_path)
        followers = [(share, late * 10, late) for share in range(4) for late in range(5)]
        await all_see_all(store, [[1, 2, 3] * 60] * 8, True, followers)
        await store.close()

    asyncio.run(run())


def test_who_keeps_up_does_not_ask_the_store() -> None:
    async def run() -> int:
        store = Slow([])
        hub = Hub(store)
        follower = asyncio.ensure_future(seen_until(hub, 500))
        for i in range(500):
            await hub.append("c", entries(str(i)))
            await asyncio.sleep(0)
        assert len(await follower) == 500
        return store.reads

    assert asyncio.run(run()) < 10


def test_who_waits_for_the_first_row_does_not_ask_for_it() -> None:
    async def run() -> None:
        store = Slow([])
        hub = Hub(store)
        follower = asyncio.ensure_future(seen_until(hub, 1))
        await asyncio.sleep(0)
        assert store.reads == 1
        await hub.append("c", entries("a"))
        assert [row.id for row in await follower] == ["a"]
        assert store.reads == 1

    run_in_turns(run())


def test_large_rows_are_not_kept() -> None:
    """They come from the store, and the small ones after them from memory again."""

    async def run() -> None:
        hub = Hub(MemoryStore())
        follower = asyncio.ensure_future(seen_until(hub, 4))
        await asyncio.sleep(0)
        for name, size in [("a", 1), ("b", 1_000_000), ("c", 1_000_000), ("d", 1)]:
            await hub.append("c", entries(name, data=bytes(size)))
        assert [len(row.data) for row in await follower] == [1, 1_000_000, 1_000_000, 1]

    asyncio.run(run())


@given(turns=_turns, beside=st.integers(0, 3), pause=st.integers(0, 5), n=st.integers(0, 1))
def test_drop(turns: list[int], beside: int, pause: int, n: int) -> None:
    """Who has a cursor gets CursorLost, though appends run beside it; who has none sees the new life."""

    async def run() -> None:
        hub = Hub(Slow(turns))
        [old] = await hub.append("c", entries("old"))
        follower = asyncio.ensure_future(seen_until(hub, 1_000, Cursor(old.epoch, n), pause))
        appends = [asyncio.ensure_future(hub.append("c", entries(str(i)))) for i in range(beside)]
        await hub.drop("c")
        with pytest.raises(CursorLost):
            await follower
        await asyncio.gather(*appends)
        await hub.drop("c")
        anew = asyncio.ensure_future(seen_until(hub, 1))
        [row] = await hub.append("c", entries("new"))
        assert await anew == [row]

    run_in_turns(run())


class Held(MemoryStore):
    """A store that does all at once, but says so only when the test lets it, for the calls it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.hold: list[asyncio.Event] = []

    async def append(self, channel: str, entries: Sequence[Entry]) -> tuple[Row, ...]:
        rows = await super().append(channel, entries)
        await self._wait()
        return rows

    async def read(self, channel: str, after: Cursor | None = None, limit: int = 1000) -> tuple[Row, ...]:
        rows = await super().read(channel, after, limit)
        await self._wait()
        return rows

    async def _wait(self) -> None:
        if self.hold:
            await self.hold.pop().wait()


async def some_turns() -> None:
    """Until all have done what they can."""
    for _ in range(20):
        await asyncio.sleep(0)


def test_a_drop_while_the_store_is_read() -> None:
    async def run() -> None:
        store, answer = Held(), asyncio.Event()
        hub = Hub(store)
        [row] = await hub.append("c", entries("a"))
        store.hold.append(answer)
        follower = asyncio.ensure_future(seen_until(hub, 9, row.cursor))
        await some_turns()
        await hub.drop("c")
        answer.set()
        with pytest.raises(CursorLost):
            await follower

    run_in_turns(run())


def test_rows_of_a_former_life_that_come_late() -> None:
    """Those who follow the new life never see them, and miss nothing because of them."""

    async def run() -> None:
        store, answers = Held(), [asyncio.Event(), asyncio.Event()]
        hub = Hub(store)
        await hub.append("c", entries("old"))
        late: list[asyncio.Task[object]] = []
        for answer in answers:
            store.hold.append(answer)
            late.append(asyncio.ensure_future(hub.append("c", entries(f"late {len(late)}"))))
            await some_turns()
        await hub.drop("c")
        [a] = await hub.append("c", entries("a"))
        follower = hub.follow("c", a.cursor)
        first = asyncio.ensure_future(anext(follower))
        await some_turns()
        for answer in answers:
            answer.set()
            await some_turns()
        assert [row.id for row in await hub.append("c", entries("b"))] == ["b"]
        assert [row.id for row in await first] == ["b"]
        await follower.aclose()

    run_in_turns(run())


def test_an_old_row_after_one_of_a_former_life() -> None:
    """It is not taken for the end by one who has not come to it yet."""

    async def run() -> None:
        store, answer = Held(), asyncio.Event()
        hub = Hub(store)
        await hub.append("c", entries("old"))
        store.hold.append(answer)
        late = asyncio.ensure_future(hub.append("c", entries("late")))
        await some_turns()
        await hub.drop("c")
        [a] = await hub.append("c", entries("a"))
        follower = hub.follow("c", a.cursor)
        first = asyncio.ensure_future(anext(follower))
        await some_turns()
        await hub.append("c", entries("b"))
        assert [row.id for row in await first] == ["b"]
        await hub.append("c", entries("c", "d"))
        answer.set()
        await late
        await hub.append("c", entries("c"))
        assert [row.id for row in await anext(follower)] == ["c", "d"]
        await follower.aclose()

    run_in_turns(run())


def test_a_caller_who_leaves(tmp_path: Path) -> None:
    """The followers get what it appended, though it was written after the caller had left."""
    go_on = threading.Event()

    def now() -> int:
        go_on.wait()
        return 1

    async def run() -> None:
        store = SqliteStore(tmp_path, now)
        hub = Hub(store)
        follower = asyncio.ensure_future(seen_until(hub, 1))
        caller = asyncio.ensure_future(hub.append("c", entries("a")))
        await some_turns()
        caller.cancel()
        # A read that was asked for after it left has been answered, too.
        await some_turns()
        await store.head("c")
        await some_turns()
        go_on.set()
        assert [row.id for row in await follower] == ["a"]
        await store.close()

    try:
        asyncio.run(run())
    finally:
        go_on.set()


class Unsure(MemoryStore):
    """A store that keeps what it then says it could not keep."""

    async def append(self, channel: str, entries: Sequence[Entry]) -> tuple[Row, ...]:
        await super().append(channel, entries)
        raise StoreError("who knows")


def test_an_append_that_failed_and_did_not() -> None:
    async def run() -> None:
        hub = Hub(Unsure())
        follower = asyncio.ensure_future(seen_until(hub, 2))
        for name in ("a", "b"):
            await asyncio.sleep(0)
            with pytest.raises(StoreError):
                await hub.append("c", entries(name))
        assert [row.id for row in await follower] == ["a", "b"]

    run_in_turns(run())


def test_close_ends_all_who_follow() -> None:
    """At once, those who wait and those who come later; the store can still be used."""

    async def run() -> None:
        hub = Hub(MemoryStore())
        [row] = await hub.append("c", entries("a"))
        waiting = [asyncio.ensure_future(seen_until(hub, 9, after)) for after in (None, row.cursor)]
        waiting.append(asyncio.ensure_future(anext(hub.follow("none"), None)))  # type: ignore[arg-type]
        await asyncio.sleep(0)
        hub.close()
        assert await asyncio.gather(*waiting) == [[row], [], None]
        assert await seen_until(hub, 9) == []
        assert len(await hub.append("c", entries("b"))) == 1

    run_in_turns(run())


def test_nothing_is_kept_for_those_who_left() -> None:
    async def run() -> None:
        hub = Hub(MemoryStore())
        await hub.append("c", entries("a"))
        await seen_until(hub, 1)
        assert not hub._tails  # pyright: ignore[reportPrivateUsage]

    run_in_turns(run())
