"""The contract tests for every `Store`."""

# ruff: noqa: S101 - a suite of tests is made of it

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar, Generic, TypeVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from citewire.channels.store import (
    BATCH_ENTRIES,
    ENTRY_BYTES,
    PAGE_BYTES,
    ChainLink,
    Cursor,
    CursorLost,
    Entry,
    ErasedChannel,
    Head,
    Row,
    Store,
    StoreError,
    first_hash,
)
from citewire.channels.store_rules import find_broken_link, head_at, is_last_page
from citewire.errors import InputError

__all__ = ["StoreContract", "Suite", "check_log", "entries", "everything"]

_S_co = TypeVar("_S_co", bound=Store, covariant=True)


def entries(*ids: str, data: bytes = b"{}") -> list[Entry]:
    """Make entries with these ids."""
    return [Entry(each, "event", data) for each in ids]


async def everything(store: Store, channel: str, page: int = 3) -> list[Row]:
    """Read all rows of a channel page by page, as a reader would."""
    rows = list(await store.read(channel, limit=page))
    while rows and (more := await store.read(channel, rows[-1].cursor, limit=page)):
        rows.extend(more)
    return rows


def check_log(rows: list[Row], floor: Head | None = None) -> None:
    """Assert no gap, serials that rise as text, one epoch, unique ids, and an unbroken hash chain."""
    first = floor.n + 1 if floor else 1
    assert [row.n for row in rows] == list(range(first, first + len(rows)))
    serials = [row.serial for row in rows]
    assert serials == sorted(set(serials))
    assert len({row.epoch for row in rows}) <= 1
    assert len({row.id for row in rows}) == len(rows)
    assert not rows or find_broken_link(floor.hash if floor else rows[0].before, rows) is None


async def check_erased(store: Store, erased: ErasedChannel, page: int = 3) -> list[ChainLink]:
    """Read all links of a dropped channel page by page, and assert that they chain its floor to its head."""
    links = list(await store.links(erased.head.epoch, limit=page))
    while links and (more := await store.links(erased.head.epoch, links[-1].n, page)):
        links.extend(more)
    assert [link.n for link in links] == list(range(erased.floor.n + 1, erased.head.n + 1))
    assert find_broken_link(erased.floor.hash, links) is None
    assert (links[-1].hash if links else erased.floor.hash) == erased.head.hash
    if erased.floor.n == 0:
        assert erased.floor.hash == first_hash(erased.floor.channel, erased.floor.epoch)
    return links


class Suite(Generic[_S_co]):
    """Base of the contract tests; subclasses implement `open`."""

    durable: ClassVar[bool] = True
    examples: ClassVar[int] = 60
    """How many sequences of calls are tried."""

    @contextmanager
    def folder(self) -> Generator[Path]:
        """Provide a folder for one store."""
        with TemporaryDirectory() as folder:
            yield Path(folder)

    async def open(self, folder: Path, now: Callable[[], int]) -> _S_co:
        """Open the store in this folder, with this clock."""
        raise NotImplementedError

    @asynccontextmanager
    async def opened(self, now: Callable[[], int] = lambda: 1_794_768_614_785) -> AsyncGenerator[_S_co]:
        """Open a new store, and close it at the end of the block."""
        with self.folder() as folder:
            store = await self.open(folder, now)
            try:
                yield store
            finally:
                await store.close()


class StoreContract(Suite[Store]):
    """The contract tests for `Store`."""

    def test_serials_count_within_a_millisecond_and_never_go_back(self) -> None:
        """The counter overflows into the next millisecond; setting the clock back changes nothing."""
        clock = iter([5, 5, 4, 9])

        async def run() -> list[str]:
            async with self.opened(lambda: next(clock)) as store:
                await store.append("c", entries("a"))
                await store.append("c", entries(*(f"b{i}" for i in range(999))))
                await store.append("c", entries("c"))
                await store.append("c", entries("d"))
                rows = await everything(store, "c", page=1000)
                check_log(rows)
                return [row.serial.replace(row.epoch, "E") for row in rows]

        serials = asyncio.run(run())
        assert [serials[0], *serials[999:]] == [
            "00000000000005-000@E:000",
            "00000000000005-999@E:000",
            "00000000000006-000@E:000",
            "00000000000009-000@E:000",
        ]

    def test_a_repeated_id_gives_the_first_row(self) -> None:
        """Alone, within one batch, and between new ids; it uses up no row number."""

        async def run() -> None:
            async with self.opened() as store:
                [a] = await store.append("c", entries("a", data=b"first"))
                again = await store.append("c", entries("x", "a", "x", data=b"second"))
                assert again[1] == a
                assert again[0] == again[2]
                assert [row.id for row in await everything(store, "c")] == ["a", "x"]
                assert await store.append("other", entries("a")) != (a,)

        asyncio.run(run())

    def test_many_at_once(self) -> None:
        """Concurrent appends are each atomic, each acknowledged with its own rows, in one order."""

        async def run() -> None:
            async with self.opened() as store:
                calls = [store.append(f"c{i % 3}", entries(f"{i}a", f"{i}b", "same")) for i in range(300)]
                for batch in await asyncio.gather(*calls):
                    assert batch[1].n == batch[0].n + 1
                for channel in ("c0", "c1", "c2"):
                    rows = await everything(store, channel, page=100)
                    check_log(rows)
                    assert len(rows) == 201

        asyncio.run(run())

    def test_a_caller_who_leaves(self) -> None:
        """A cancelled append is stored completely or not at all, and does not affect others."""

        async def run() -> None:
            async with self.opened() as store:
                tasks = [
                    asyncio.ensure_future(store.append("c", entries(f"{i}a", f"{i}b"))) for i in range(20)
                ]
                await asyncio.sleep(0)
                for task in tasks[::2]:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
                rows = await everything(store, "c")
                check_log(rows)
                ids = [row.id for row in rows]
                assert all((f"{i}a" in ids) == (f"{i}b" in ids) for i in range(20))
                assert all(f"{i}a" in ids for i in range(1, 20, 2))

        asyncio.run(run())

    def test_cursors_that_lead_nowhere(self) -> None:
        """Another epoch, a future row, an unknown or a dropped channel; but the start is valid."""

        async def run() -> None:
            async with self.opened() as store:
                [row] = await store.append("c", entries("a"))
                assert await store.read("c", Cursor(row.epoch, 0)) == (row,)
                for channel, cursor in [
                    ("c", Cursor("0", 0)),
                    ("c", Cursor(row.epoch, 10**30)),
                    ("none", Cursor("", 0)),
                    ("c", Cursor(row.epoch, 2)),
                    ("c", Cursor(row.epoch, -1)),
                    ("none", row.cursor),
                ]:
                    with pytest.raises(CursorLost):
                        await store.read(channel, cursor)
                await store.drop("c")
                with pytest.raises(CursorLost):
                    await store.read("c", row.cursor)
                [anew] = await store.append("c", entries("a"))
                assert anew.n == 1
                assert anew.epoch != row.epoch

        asyncio.run(run())

    def test_what_is_left_of_a_dropped_channel(self) -> None:
        """The time of each drop and the chain of each epoch remain, but none of the content."""

        async def run() -> None:
            async with self.opened(lambda: 5) as store:
                lives: list[list[Row]] = []
                for names in ("abcde", "a"):
                    lives.append(list(await store.append("c", entries(*names))))
                    await store.drop("c")
                await store.append("other", entries("a"))
                await store.drop("other")
                await store.drop("c")
                found = await store.erased("c")
                assert [each.no for each in await store.erased("", found[0].no)] == [
                    found[1].no,
                    found[1].no + 1,
                ]
                for erased, rows in zip(found, lives, strict=True):
                    assert (erased.at, erased.head.channel, erased.floor.n) == (5, "c", 0)
                    assert await check_erased(store, erased) == [row.link for row in rows]
                assert await store.links("none") == ()
                assert await store.floor("c") is None

        asyncio.run(run())

    def test_a_snapshot_is_of_one_moment(self) -> None:
        """Later appends, new channels and drops are not visible in it; the store itself goes on."""

        async def run() -> None:
            async with self.opened(lambda: 5) as store:
                for name in "abc":
                    await store.append(name, entries("1", "2"))
                extents, chains = await store.extents(), await store.chains(["a", "none", "b", "c"])
                assert [
                    (each.head.channel, each.head.epoch, each.floor.n, each.head.n) for each in chains
                ] == [*extents]
                async with store.snapshot() as snapshot:
                    await store.append("a", entries("3"))
                    await store.drop("b")
                    await store.append("d", entries("1"))
                    assert await snapshot.extents() == extents
                    assert await snapshot.chains(["a", "b", "c", "d"]) == chains
                    for chain in chains:
                        rows = await snapshot.read(chain.head.channel)
                        assert head_at(chain.head.channel, rows[-1]) == chain.head
                        assert await snapshot.floor(chain.head.channel) == chain.floor
                    assert await snapshot.head("d") is None
                    assert await snapshot.erased("") == ()
                    assert await snapshot.extents("a", 1) == extents[1:2]
                assert [extent.channel for extent in await store.extents()] == ["a", "c", "d"]
                assert len(await store.read("a")) == 3
                [erased] = await store.erased("")
                assert erased.head == chains[1].head

        asyncio.run(run())

    @pytest.mark.parametrize("name", ["", "\0", "a\0b", "\ud800", "x" * 513, "é" * 257])
    def test_names_no_store_could_keep(self, name: str) -> None:
        """Every call refuses them, and nothing is stored."""

        async def run() -> None:
            async with self.opened() as store:
                for channel, entry in [
                    (name, entries("a")),
                    ("c", entries("a", name)),
                    ("c", [Entry("a", name, b"")]),
                ]:
                    with pytest.raises(InputError):
                        await store.append(channel, entry)
                assert await store.append("c", []) == ()
                assert await store.head("c") is None

        asyncio.run(run())

    @pytest.mark.parametrize("prefix", ["\0", "\ud800", "x" * 513])
    def test_what_no_name_begins_with(self, prefix: str) -> None:
        """A listing refuses it, as prefix and as start."""

        async def run() -> None:
            async with self.opened() as store:
                with pytest.raises(InputError):
                    await store.heads(prefix)
                with pytest.raises(InputError):
                    await store.heads("", prefix)

        asyncio.run(run())

    def test_more_than_may_be_kept_at_once(self) -> None:
        """Too large an entry, batch or count is refused; the largest valid entry is stored unchanged."""

        async def run() -> None:
            async with self.opened() as store:
                largest = bytes(ENTRY_BYTES)
                for batch in [
                    entries("a", data=largest + b"x"),
                    entries("a", "b", "c", data=largest),
                    entries(*map(str, range(BATCH_ENTRIES + 1))),
                ]:
                    with pytest.raises(InputError):
                        await store.append("c", batch)
                assert await store.head("c") is None
                await store.append("c", entries("a", data=largest))
                assert [row.data for row in await store.read("c")] == [largest]

        asyncio.run(run())

    def test_large_rows_come_in_small_pages(self) -> None:
        """A page ends with the row that fills it, and the next read goes on from there."""

        async def run() -> None:
            async with self.opened() as store:
                await store.append("c", entries(*"abcde", data=bytes(PAGE_BYTES // 2)))
                first = await store.read("c")
                second = await store.read("c", first[-1].cursor)
                assert [row.id for row in first] == ["a", "b"]
                assert [row.id for row in second] == ["c", "d"]
                assert not is_last_page(second, 1000)
                assert is_last_page(await store.read("c", second[-1].cursor), 1000)

        asyncio.run(run())

    @pytest.mark.parametrize("limit", [-1, 0, 10**30])
    def test_any_limit(self, limit: int) -> None:
        """A negative limit returns nothing, and there is no upper bound for it."""

        async def run() -> None:
            async with self.opened() as store:
                await store.append("c", entries("a", "b"))
                assert len(await store.read("c", limit=limit)) == (2 if limit > 0 else 0)
                assert len(await store.heads("", limit=limit)) == (1 if limit > 0 else 0)

        asyncio.run(run())

    def test_a_closed_store(self) -> None:
        """Pending calls finish, later calls are refused, and closing twice is fine."""

        async def run() -> None:
            async with self.opened() as store:
                pending = [asyncio.ensure_future(store.append("c", entries(str(i)))) for i in range(50)]
                await asyncio.sleep(0)
                await store.close()
                assert sorted(row.n for [row] in await asyncio.gather(*pending)) == list(range(1, 51))
                for call in (
                    store.append("c", entries("z")),
                    store.read("c"),
                    store.head("c"),
                    store.heads(""),
                    store.get("c", "z"),
                    store.drop("c"),
                    store.floor("c"),
                    store.erased(""),
                    store.links("e"),
                ):
                    with pytest.raises(StoreError):
                        await call
                await store.close()

        asyncio.run(run())

    def test_like_the_model(self) -> None:
        """Any sequence of calls gives the same results as a model of dicts and lists."""
        suite = self

        class Machine(StoreMachine):
            def __init__(self) -> None:
                super().__init__(suite)

        run_state_machine_as_test(
            Machine, settings=settings(max_examples=self.examples, stateful_step_count=25)
        )


NAMES = st.sampled_from(["a", "ab", "b", "run:é", "run:\U0010ffff", "run:"])
ENTRY = st.builds(Entry, st.sampled_from("stuvwxyz"), st.sampled_from(["event", "é"]), st.binary(max_size=4))


class StoreMachine(RuleBasedStateMachine):
    """Compares a store with a model of each channel: entries in order, count of trimmed rows, slots."""

    def __init__(self, suite: Suite[Any]) -> None:
        super().__init__()
        self.suite = suite
        self.model: dict[str, dict[str, Entry]] = {}
        self.slots: dict[str, dict[str, bytes]] = {}
        self.floors: dict[str, int] = {}
        self.epochs: dict[str, str] = {}
        self.erased: dict[str, list[ChainLink]] = {}
        self.clock = 1000
        self.place = suite.folder()
        self.runner = asyncio.Runner()

    @initialize()
    def begin(self) -> None:
        self.folder = self.place.__enter__()
        self.open()

    def open(self) -> None:
        self.store = self.runner.run(self.suite.open(self.folder, lambda: self.clock))

    @rule(channel=NAMES, batch=st.lists(ENTRY, max_size=5), step=st.integers(-2, 2))
    def append(self, channel: str, batch: list[Entry], step: int) -> None:
        self.clock += step
        rows = self.runner.run(self.store.append(channel, batch))
        kept = self.model.setdefault(channel, {}) if batch else {}
        for entry in batch:
            kept.setdefault(entry.id, entry)
        order, first = list(kept), self.floors.get(channel, 0) + 1
        assert [(row.n, Entry(row.id, row.kind, row.data)) for row in rows] == [
            (order.index(entry.id) + first, kept[entry.id]) for entry in batch
        ]
        for row in rows:
            assert row.epoch == self.epochs.setdefault(channel, row.epoch)

    @rule(channel=NAMES)
    def drop(self, channel: str) -> None:
        if channel in self.model:
            rows = self.runner.run(everything(self.store, channel))
            self.erased[self.epochs[channel]] = [row.link for row in rows]
        self.runner.run(self.store.drop(channel))
        for table in (self.slots, self.model, self.floors, self.epochs):
            table.pop(channel, None)

    @rule()
    def reopen(self) -> None:
        if self.suite.durable:
            self.runner.run(self.store.close())
            self.open()

    @rule(channel=NAMES, n=st.integers(0, 10), limit=st.integers(0, 5))
    def read(self, channel: str, n: int, limit: int) -> None:
        kept, floor = list(self.model.get(channel, {})), self.floors.get(channel, 0)
        cursor = Cursor(self.epochs.get(channel, "none"), n)
        if channel in self.model and floor <= n <= floor + len(kept):
            rows = self.runner.run(self.store.read(channel, cursor, limit))
            assert [row.id for row in rows] == kept[n - floor :][:limit]
        else:
            with pytest.raises(CursorLost):
                self.runner.run(self.store.read(channel, cursor, limit))

    @rule(channel=NAMES, name=st.sampled_from("stuvwxyz"))
    def get(self, channel: str, name: str) -> None:
        row = self.runner.run(self.store.get(channel, name))
        kept = self.model.get(channel, {})
        if name in kept:
            assert row is not None
            place = self.floors.get(channel, 0) + list(kept).index(name) + 1
            assert row.cursor == Cursor(self.epochs[channel], place)
            assert Entry(row.id, row.kind, row.data) == kept[name]
        else:
            assert row is None

    @rule(
        prefix=st.sampled_from(["", "a", "run:", "zzz"]), after=st.just("") | NAMES, limit=st.integers(0, 3)
    )
    def names(self, prefix: str, after: str, limit: int) -> None:
        heads = self.runner.run(self.store.heads(prefix, after, limit))
        names = sorted(name for name in self.model if name.startswith(prefix) and name > after)
        assert [head.channel for head in heads] == names[:limit]

    @invariant()
    def same(self) -> None:
        for channel, kept in self.model.items():
            rows = self.runner.run(everything(self.store, channel))
            head = self.runner.run(self.store.head(channel))
            floor = self.runner.run(self.store.floor(channel))
            check_log(rows, floor)
            assert [Entry(row.id, row.kind, row.data) for row in rows] == list(kept.values())
            assert floor is not None
            assert floor.cursor == Cursor(self.epochs[channel], self.floors.get(channel, 0))
            assert head == (head_at(channel, rows[-1]) if rows else floor)

    @invariant()
    def same_erased(self) -> None:
        erased = self.runner.run(self.store.erased(""))
        links = {each.head.epoch: self.runner.run(check_erased(self.store, each)) for each in erased}
        assert links == self.erased

    def teardown(self) -> None:
        self.runner.run(self.store.close())
        self.runner.close()
        self.place.__exit__(None, None, None)
