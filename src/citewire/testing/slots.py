"""The contract tests for every `Slots`."""

# ruff: noqa: S101 - a suite of tests is made of it

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule, run_state_machine_as_test

from citewire.channels.store import (
    ENTRY_BYTES,
    PAGE_BYTES,
    Change,
    ChannelPosition,
    ChannelStore,
    Cursor,
    CursorLost,
    Decide,
    Entry,
    Slot,
    SlotValues,
    StoreError,
)
from citewire.channels.store_rules import head_at
from citewire.errors import InputError
from citewire.testing.store import (
    ENTRY,
    NAMES,
    StoreMachine,
    Suite,
    check_erased,
    check_log,
    entries,
    everything,
)

__all__ = ["SlotsContract"]


def _no_change(values: SlotValues, place: ChannelPosition) -> Change[tuple[SlotValues, ChannelPosition]]:
    return Change((values, place))


def _always(change: Change[None]) -> Decide[None]:
    return lambda values, place: change


def _count(values: SlotValues, place: ChannelPosition) -> Change[int]:
    """Increment the slot `n` and add a row; every tenth change is refused."""
    n = int(values["n"] or b"0") + 1
    if place.n % 10 == 0 and values["refused"] is None:
        raise InputError("not now")
    puts = {"n": b"%d" % n, "refused": b"" if place.n % 10 == 9 else None}
    return Change(n, entries(f"count {n}", data=b"%d" % n), puts)


def _break(values: SlotValues, place: ChannelPosition) -> Change[Any]:
    raise ZeroDivisionError


class SlotsContract(Suite[ChannelStore]):
    """The contract tests for `Slots`."""

    def test_the_place_is_where_the_rows_will_be(self) -> None:
        """Also in a new channel, after other rows, and when the clock is set back."""
        clock = iter([5, 5, 4])

        def mint(values: SlotValues, place: ChannelPosition) -> Change[list[str]]:
            serials = [place.serial(k) for k in range(3)]
            return Change(serials, entries(*serials))

        async def run() -> None:
            async with self.opened(lambda: next(clock)) as store:
                for n in (1, 4, 7):
                    changed = await store.change("c", [], mint)
                    assert [row.serial for row in changed.rows] == changed.result
                    assert [row.id for row in changed.rows] == changed.result
                    assert changed.rows[0].n == n
                check_log(await everything(store, "c"))

        asyncio.run(run())

    def test_many_at_once(self) -> None:
        """Each change is decided on the state after all earlier ones; a failing one affects no other."""

        async def run() -> None:
            async with self.opened() as store:
                for channel in ("c0", "c1"):
                    await store.change(channel, ["n", "refused"], _count)
                decides = [_break if i % 70 == 69 else _count for i in range(300)]
                calls = [
                    store.change(f"c{i % 2}", ["n", "refused"], decide) for i, decide in enumerate(decides)
                ]
                results = await asyncio.gather(*calls, return_exceptions=True)
                for channel in ("c0", "c1"):
                    rows = await everything(store, channel, page=100)
                    check_log(rows)
                    assert [int(row.data) for row in rows] == list(range(1, len(rows) + 1))
                    assert await store.values(channel, ["n"]) == {"n": rows[-1].data}
                kept = [each.result for each in results if not isinstance(each, BaseException)]
                refused = [each for each in results if isinstance(each, InputError)]
                broken = [each for each in results if isinstance(each, ZeroDivisionError)]
                assert len(kept) + len(refused) + len(broken) == 300
                assert len(broken) == 4
                heads = [await store.head(channel) for channel in ("c0", "c1")]
                assert len(kept) + 2 == sum(head.n for head in heads if head)

        asyncio.run(run())

    def test_nothing_happens(self) -> None:
        """A change that is refused, empty, invalid or failing stores nothing, and begins no channel."""

        def refuse(values: SlotValues, place: ChannelPosition) -> Change[None]:
            raise InputError("no")

        async def run() -> None:
            async with self.opened() as store:
                assert (await store.change("c", [], lambda values, place: Change(7))).rows == ()
                for decide, error in [
                    (refuse, InputError),
                    (_break, ZeroDivisionError),
                    (_always(Change(None, (), {"k": b"v"})), ValueError),
                    (_always(Change(None, entries("a", "a"), {"k": b"v"})), InputError),
                    (_always(Change(None, entries("a"), {"": b"v"})), InputError),
                    (_always(Change(None, entries("a"), {"k": bytes(ENTRY_BYTES + 1)})), InputError),
                    (_always(Change(None, entries(""), {"k": b"v"})), InputError),
                ]:
                    with pytest.raises(error):
                        await store.change("c", ["k"], decide)
                assert await store.head("c") is None
                assert await store.values("c", ["k"]) == {"k": None}

        asyncio.run(run())

    def test_slots_end_with_their_channel(self) -> None:
        """Also with concurrent calls, and when another channel begins in its place."""

        async def run() -> None:
            async with self.opened() as store:
                put = _always(Change(None, entries("a"), {"k": b"v"}))
                await store.change("c", ["k"], put)
                results = await asyncio.gather(
                    store.drop("c"),
                    store.change("d", ["k"], put),
                    store.drop("d"),
                    store.change("d", [], _always(Change(None, entries("a"), {"other": b""}))),
                    store.change("d", ["k"], _no_change),
                )
                assert results[-1].result[0] == {"k": None}
                assert await store.slots("c", "", "z") == ()
                assert await store.slots("d", "", "z") == (Slot("other", b""),)

        asyncio.run(run())

    @pytest.mark.parametrize("name", ["\0", "\ud800", "x" * 513])
    def test_names_no_store_could_keep(self, name: str) -> None:
        """Every call refuses them."""

        async def run() -> None:
            async with self.opened() as store:
                for call in (
                    store.change(name, [], _no_change),
                    store.change("c", [name], _no_change),
                    store.values(name, ["k"]),
                    store.values("c", ["k", name]),
                    store.slots(name, "", ""),
                    store.slots("c", name, ""),
                    store.slots("c", "", name),
                    store.rows_by_id("c", name, ""),
                    store.rows_by_id("c", "", name),
                    store.seek(name, "00000000000005-000@e:000"),
                    store.seek("c", name),
                    store.trim(name, Cursor("e", 0)),
                    store.trim("c", Cursor("e", 0), [(name, "")]),
                    store.trim("c", Cursor("e", 0), [("", name)]),
                ):
                    with pytest.raises(InputError):
                        await call

        asyncio.run(run())

    def test_large_slots_come_in_small_pages(self) -> None:
        """A page ends with the slot that fills it."""

        async def run() -> None:
            async with self.opened() as store:
                large = bytes(PAGE_BYTES // 2)
                for key in "abc":
                    put = Change(None, entries(key), {key: large})
                    await store.change("c", [], _always(put))
                assert [key for key, _ in await store.slots("c", "", "z")] == ["a", "b"]
                assert [key for key, _ in await store.slots("c", "", "z", reverse=True)] == ["c", "b"]
                assert [key for key, _ in await store.slots("c", "b", "z")] == ["c"]

        asyncio.run(run())

    def test_a_trimmed_channel(self) -> None:
        """Numbers, serials and the chain go on from its floor, also when no row is left."""

        async def run() -> None:
            async with self.opened(lambda: 5) as store:
                put = Change(None, entries("a", "b", "c"), dict.fromkeys(("k", "k:1", "k:2", "l"), b""))
                rows = (await store.change("c", [], _always(put))).rows
                await store.trim("c", rows[1].cursor, [("k:", "k;")])
                assert await store.read("c") == rows[2:]
                assert await store.get("c", "a") is None
                assert [slot.key for slot in await store.slots("c", "", "z")] == ["k", "l"]
                assert await store.seek("c", rows[1].serial) == rows[1].cursor
                for lost in (store.read("c", rows[0].cursor), store.seek("c", rows[0].serial)):
                    with pytest.raises(CursorLost):
                        await lost
                for wrong in (Cursor("0", 2), Cursor(rows[0].epoch, 1), Cursor(rows[0].epoch, 4)):
                    with pytest.raises(CursorLost):
                        await store.trim("c", wrong, [("", "z")])
                await store.trim("c", rows[2].cursor)
                assert await store.read("c") == ()
                assert await store.head("c") == await store.floor("c") == head_at("c", rows[2])
                assert [head.n for head in await store.heads("")] == [3]
                [again] = await store.append("c", entries("a"))
                assert (again.n, again.before) == (4, rows[2].hash)
                assert again.serial > rows[2].serial
                await store.drop("c")
                [erased] = await store.erased("")
                assert await check_erased(store, erased) == [again.link]
                with pytest.raises(CursorLost):
                    await store.trim("c", again.cursor)

        asyncio.run(run())

    def test_trimmed_in_the_middle_of_changes(self) -> None:
        """Slots that were put just before are deleted too, and later changes do not see them."""

        async def run() -> None:
            async with self.opened() as store:
                put = _always(Change(None, entries("a"), {"k": b"v"}))
                [row] = (await store.change("c", [], put)).rows
                results = await asyncio.gather(
                    store.change("c", [], _always(Change(None, entries("b"), {"k": b"w", "l": b""}))),
                    store.trim("c", row.cursor, [("", "l")]),
                    store.change("c", ["k", "l"], _no_change),
                )
                assert results[2].result[0] == {"k": None, "l": b""}

        asyncio.run(run())

    def test_a_closed_store(self) -> None:
        """Later calls are refused."""

        async def run() -> None:
            async with self.opened() as store:
                await store.close()
                for call in (
                    store.change("c", [], _no_change),
                    store.values("c", ["k"]),
                    store.slots("c", "", "z"),
                    store.rows_by_id("c", "", "z"),
                    store.seek("c", "00000000000005-000@e:000"),
                    store.trim("c", Cursor("e", 0)),
                ):
                    with pytest.raises(StoreError):
                        await call

        asyncio.run(run())

    def test_like_the_model(self) -> None:
        """Any sequence of calls gives the same results as a model of dicts and lists."""
        suite = self

        class Machine(_SlotsMachine):
            def __init__(self) -> None:
                super().__init__(suite)

        run_state_machine_as_test(
            Machine, settings=settings(max_examples=self.examples, stateful_step_count=25)
        )


_KEYS = st.sampled_from(["a", "a:", "a:b", "b", "\U0010ffff", "é"])
_BOUNDS = st.just("") | _KEYS | st.sampled_from("stuvwxyz")


class _SlotsMachine(StoreMachine):
    """`StoreMachine` for a store with slots."""

    store: ChannelStore

    @rule(
        channel=NAMES,
        keys=st.lists(_KEYS, max_size=4),
        batch=st.lists(ENTRY, min_size=1, max_size=3),
        puts=st.dictionaries(_KEYS, st.none() | st.binary(max_size=4), max_size=4),
        refused=st.booleans(),
    )
    def change(
        self, channel: str, keys: list[str], batch: list[Entry], puts: dict[str, bytes | None], refused: bool
    ) -> None:
        kept, slots = self.model.get(channel, {}), self.slots.get(channel, {})
        ids = [entry.id for entry in batch]

        def decide(values: SlotValues, place: ChannelPosition) -> Change[ChannelPosition]:
            assert values == {key: slots.get(key) for key in keys}
            if refused:
                raise InputError("no")
            return Change(place, batch, puts)

        if refused or len({*ids}) < len(ids) or not kept.keys().isdisjoint(ids):
            with pytest.raises(InputError):
                self.runner.run(self.store.change(channel, keys, decide))
            return
        changed = self.runner.run(self.store.change(channel, keys, decide))
        place = changed.result
        assert place.n == self.floors.get(channel, 0) + len(kept) + 1
        assert place.epoch == self.epochs.setdefault(channel, place.epoch)
        assert [row.serial for row in changed.rows] == [place.serial(k) for k in range(len(batch))]
        self.model[channel] = kept | {entry.id: entry for entry in batch}
        merged = slots | puts
        self.slots[channel] = {key: value for key, value in merged.items() if value is not None}

    @rule(channel=NAMES, after=_BOUNDS, before=_BOUNDS, limit=st.integers(0, 4), reverse=st.booleans())
    def between(self, channel: str, after: str, before: str, limit: int, reverse: bool) -> None:
        found = self.runner.run(self.store.slots(channel, after, before, limit, reverse=reverse))
        slots = self.slots.get(channel, {})
        keys = sorted((key for key in slots if after < key < before), reverse=reverse)[:limit]
        assert found == tuple(Slot(key, slots[key]) for key in keys)
        rows = self.runner.run(self.store.rows_by_id(channel, after, before, limit))
        ids = sorted(name for name in self.model.get(channel, {}) if after < name < before)
        assert [row.id for row in rows] == ids[:limit]

    @rule(channel=NAMES, n=st.integers(0, 10), ranges=st.lists(st.tuples(_BOUNDS, _BOUNDS), max_size=2))
    def trim(self, channel: str, n: int, ranges: list[tuple[str, str]]) -> None:
        kept, floor = self.model.get(channel), self.floors.get(channel, 0)
        call = self.store.trim(channel, Cursor(self.epochs.get(channel, "none"), n), ranges)
        if kept is None or not floor <= n <= floor + len(kept):
            with pytest.raises(CursorLost):
                self.runner.run(call)
            return
        self.runner.run(call)
        self.model[channel] = dict(list(kept.items())[n - floor :])
        self.floors[channel] = n
        self.slots[channel] = {
            key: value
            for key, value in self.slots.get(channel, {}).items()
            if not any(after < key < before for after, before in ranges)
        }

    @rule(channel=NAMES, past=st.integers(-2, 2))
    def seek(self, channel: str, past: int) -> None:
        rows = self.runner.run(everything(self.store, channel))
        for row in rows:
            tick = row.tick + past
            serial = f"{tick // 1000:014d}-{tick % 1000:03d}@{row.epoch}"
            floor = self.runner.run(self.store.floor(channel))
            assert floor
            if not floor.tick <= tick <= rows[-1].tick:
                with pytest.raises(CursorLost):
                    self.runner.run(self.store.seek(channel, serial))
            else:
                n = floor.n + sum(each.tick <= tick for each in rows)
                assert self.runner.run(self.store.seek(channel, serial)) == Cursor(row.epoch, n)
        with pytest.raises(CursorLost):
            self.runner.run(self.store.seek(channel, "00000000000000-000@0"))

    @invariant()
    def same_slots(self) -> None:
        for channel in self.model:
            slots, keys = self.slots.get(channel, {}), ["a", "a:", "none"]
            assert dict(self.runner.run(self.store.slots(channel, "", "\U0010ffff~"))) == slots
            values = self.runner.run(self.store.values(channel, keys))
            assert values == {key: slots.get(key) for key in keys}
