"""What is too old is forgotten, all of it and nothing else; and a thread in which nobody says anything."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import aclosing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from citewire.channels.annotation import AnnotationDraft
from citewire.channels.channels import Channels, HistoryQuery
from citewire.channels.errors import ChannelError
from citewire.channels.fold import replay
from citewire.channels.hub import Hub
from citewire.channels.memory import MemoryStore
from citewire.channels.message import MessageDraft, Publisher
from citewire.channels.rules import Rule, Rules
from citewire.channels.sqlite import SqliteStore
from citewire.channels.store import ChannelStore, CursorLost, StoreError
from citewire.channels.store_rules import find_broken_link
from citewire.server.ably.codec import FrameAction
from citewire.server.runs.retention import Retention
from citewire.threadlog.names import channel_of
from support.ably_server import Parts
from support.ably_socket import Socket
from support.clock import LONG, clock, on_clock
from support.thread_runs import HALF, ME, WHOLE, House, Scripted, posted

CHANNEL, LOG = "ai:x", "channel:ai:x"
CITE, TAKEN = "citations:multiple.v1", "marks:unique.v1"
START = 1_794_768_614_785
DAY = 86_400_000


class Time:
    """A clock in milliseconds that a test moves."""

    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> int:
        return self.now

    @property
    def seconds(self) -> float:
        return self.now / 1000


def with_store(work: Callable[[ChannelStore, Time], Coroutine[Any, Any, None]], kind: str) -> None:
    async def main(folder: str) -> None:
        time = Time()
        store = MemoryStore(time) if kind == "memory" else SqliteStore(Path(folder), time)
        try:
            await work(store, time)
        finally:
            await store.close()

    with TemporaryDirectory() as folder:
        asyncio.run(main(folder))


stores = pytest.mark.parametrize("kind", ["memory", "sqlite"])


async def all_slots(store: ChannelStore) -> dict[str, bytes]:
    """But what became of ids and frames, which no row says."""
    found: dict[str, bytes] = {}
    after = ""
    while slots := await store.slots(LOG, after, "~"):
        found |= dict(slots)
        after = slots[-1].key
    return {key: value for key, value in found.items() if key[0] not in "if"}


async def all_events(channels: Channels) -> list[Any]:
    async with aclosing(channels.export(CHANNEL)) as events:
        return [event async for _, event in events]


class Writer:
    """Writes to a channel what is drawn, a millisecond later each time, and cuts off what came before."""

    def __init__(self, store: ChannelStore, time: Time) -> None:
        self.store, self.time = store, time
        self.channels = Channels(store, Hub(store), shown=1)
        self.made: list[str] = []
        self.at: list[int] = []
        self.cut = self.count = 0

    async def do(self, kind: str, which: int, client: str) -> None:
        self.time.now += 1
        self.count += 1
        who = Publisher(client_id=client, connection_id="c", msg_serial=self.count)
        if kind == "cut":
            self.cut = max(self.cut, self.time.now - which)
            await self.channels.trim(CHANNEL, self.cut)
            await self.check()
        elif kind == "create" or not self.made:
            self.made += await self.channels.publish(
                CHANNEL, who, [MessageDraft(data="a", id=f"m{self.count}")]
            )
            self.at.append(self.time.now)
        elif self.is_kept(serial := self.made[which % len(self.made)]):
            await self.about(kind, who, serial)
            self.at.append(self.time.now)
        else:
            with pytest.raises(ChannelError, match="no message has this serial"):
                await self.about(kind, who, serial)

    async def about(self, kind: str, who: Publisher, serial: str) -> None:
        if kind == "append":
            await self.channels.append(CHANNEL, who, serial, MessageDraft(data="+"))
        else:
            note = AnnotationDraft(
                message_serial=serial, type=kind, name=f"n{self.count % 2}", id=f"a{self.count}"
            )
            await self.channels.annotate(CHANNEL, who, [note])

    def is_kept(self, serial: str) -> bool:
        return int(serial[:14]) >= self.cut

    async def check(self) -> None:
        """Nothing older is there, all that is younger is, and log and slots agree."""
        rows, floor = await self.store.read(LOG), await self.store.floor(LOG)
        assert [row.tick // 1000 for row in rows] == [each for each in self.at if each >= self.cut]
        assert find_broken_link(floor.hash if floor else b"", rows) is None
        assert await all_slots(self.store) == replay(await all_events(self.channels), 1)
        listed = (await self.channels.history(CHANNEL, HistoryQuery(limit=1000))).items
        assert {each.serial for each in listed} == {*filter(self.is_kept, self.made)}


KINDS = st.sampled_from(["create", "create", "append", CITE, TAKEN, "cut"])
done = st.lists(
    st.tuples(KINDS, st.integers(0, 30), st.sampled_from(["ann", "bob"])), min_size=1, max_size=30
)


@settings(max_examples=60, deadline=None)
@given(done, st.sampled_from(["memory", "memory", "sqlite"]))
def test_what_is_left_follows_from_the_log(done: list[tuple[str, int, str]], kind: str) -> None:
    """Whatever happened, and whatever was cut off in between."""

    async def work(store: ChannelStore, time: Time) -> None:
        writer = Writer(store, time)
        for each in done:
            await writer.do(*each)
        await writer.check()

    with_store(work, kind)


@stores
def test_a_channel_of_which_all_is_too_old_goes_on(kind: str) -> None:
    """Without what became of its ids; its serials rise, and who followed it has missed nothing."""

    async def work(store: ChannelStore, time: Time) -> None:
        channels = Channels(store, Hub(store))
        who = Publisher(client_id="ann", connection_id="c", msg_serial=1)
        drafts = [MessageDraft(data="x", id=f"id:{at}") for at in range(600)]
        before = await channels.publish(CHANNEL, who, drafts)
        head = await channels.head(CHANNEL)
        time.now += DAY
        assert await channels.trim(CHANNEL, time.now) == 600
        assert await channels.head(CHANNEL) == head
        assert await store.slots(LOG, "", "~") == ()
        assert await channels.trim(CHANNEL, time.now) == 0
        after = await channels.publish(CHANNEL, who, drafts)
        assert after[0] > before[-1]
        assert head
        async with aclosing(channels.follow(CHANNEL, head.cursor)) as rows:
            assert (await anext(rows))[0].n == 601
        with pytest.raises(CursorLost):
            await channels.cursor_after(CHANNEL, before[0])

    with_store(work, kind)


@stores
def test_each_channel_by_its_rule(kind: str) -> None:
    async def work(store: ChannelStore, time: Time) -> None:
        rules = Rules(
            {"ai:*": Rule(retention="2d"), "ai:kept": Rule(retention="none"), "y": Rule(retention="1h")}
        )
        channels = Channels(store, Hub(store), rules)
        house = House(Scripted())
        retention = Retention(store, channels, house.runs, clock=lambda: time.seconds)
        names = ["ai:kept", "ai:x", "x", "y"]
        for day in range(4):
            for name in names:
                await channels.publish(name, Publisher(), [MessageDraft(data=str(day))])
            await retention.sweep()
            time.now += DAY
        await retention.sweep()
        kept = {name: (await channels.history(name, HistoryQuery(forwards=True))).items for name in names}
        assert {name: [each.data for each in found] for name, found in kept.items()} == {
            "ai:kept": ["0", "1", "2", "3"],
            "ai:x": ["2", "3"],
            "x": ["0", "1", "2", "3"],
            "y": [],
        }

    with_store(work, kind)


def test_a_channel_that_fails_keeps_no_other_from_its_turn(caplog: pytest.LogCaptureFixture) -> None:
    class Failing(MemoryStore):
        async def trim(self, channel: str, upto: Any, ranges: Any = ()) -> None:
            if channel.endswith("a"):
                raise StoreError("the disk is full")
            await super().trim(channel, upto, ranges)

    async def main() -> None:
        time = Time()
        store = Failing(time)
        channels = Channels(store, Hub(store), Rules({"*": Rule(retention="1d")}))
        for name in ("a", "b"):
            await channels.publish(name, Publisher(), [MessageDraft(data="x")])
        time.now += 2 * DAY
        await Retention(store, channels, House(Scripted()).runs, clock=lambda: time.seconds).sweep()
        assert [len(await store.read(f"channel:{name}")) for name in ("a", "b")] == [1, 0]

    asyncio.run(main())
    assert "the disk is full" in caplog.text


def test_one_who_was_away_too_long_is_told_so(tmp_path: Path) -> None:
    """And one who was not hears no more of a message that is gone, and all of the others."""

    async def main() -> None:
        parts = Parts(tmp_path)
        channels = parts.channels
        [old] = await channels.publish(CHANNEL, Publisher(), [MessageDraft(data="old")])
        first = await channels.head(CHANNEL)
        await channels.publish(CHANNEL, Publisher(), [MessageDraft(data="more")])
        last = await channels.head(CHANNEL)
        assert first
        assert last
        await channels.append(CHANNEL, Publisher(), old, MessageDraft(data="+"))
        await channels.publish(CHANNEL, Publisher(), [MessageDraft(data="new")])
        rows = await parts.store.read(LOG)
        # Two rows are too old, and so is the message of the third.
        await parts.store.trim(LOG, rows[1].cursor, [("m:", f"m:{rows[1].serial};")])
        async with Socket(parts.realtime, key=parts.key) as socket:
            attached = await socket.attach(CHANNEL, channelSerial=last.serial)
            assert "error" not in attached
            found = (await socket.next(FrameAction.MESSAGE))["messages"]
            assert [each["data"] for each in found] == ["new"]
            assert (await socket.attach("ai:other", channelSerial=first.serial))["error"]["code"] == 90003
        async with Socket(parts.realtime, key=parts.key) as socket:
            assert (await socket.attach(CHANNEL, channelSerial=first.serial))["error"]["code"] == 90003

    asyncio.run(asyncio.wait_for(main(), 30))


# Threads


def test_threads_that_are_left_alone() -> None:
    async def main() -> None:
        time = Time()
        house = House(Scripted(*WHOLE), MemoryStore(time))
        channels = Channels(house.store, house.hub)
        retention = Retention(house.store, channels, house.runs, 86400, lambda: time.seconds)
        for thread in ("old", "new"):
            await house.post(thread_id=thread)
            await house.runs.wait_idle()
            time.now += DAY // 2
        await retention.sweep()
        assert [head.channel for head in await house.store.heads("run:")] == [
            channel_of("new"),
            channel_of("old"),
        ]
        time.now += DAY // 4
        await retention.sweep()
        assert [head.channel for head in await house.store.heads("run:")] == [channel_of("new")]
        assert {thread for thread, _ in house.verdicts} == {"new"}

    on_clock(main())


def test_no_thread_in_which_a_run_goes_on() -> None:
    async def main() -> None:
        time = Time()
        agent = Scripted(*HALF)
        house = House(agent, MemoryStore(time), linger=LONG)
        channels = Channels(house.store, house.hub)
        retention = Retention(house.store, channels, house.runs, 60, lambda: time.seconds)
        async with aclosing(await house.runs.start(posted(), ME)) as frames:
            await anext(frames)
            await agent.held.wait()
            time.now += DAY
            await retention.sweep()
            assert house.runs.is_live(channel_of("t"))
            assert await house.store.head(channel_of("t"))
        await house.runs.stop_run("t", "r")
        time.now += DAY
        await retention.sweep()
        assert await house.store.head(channel_of("t")) is None

    on_clock(main())


def test_no_thread_in_which_somebody_spoke_meanwhile() -> None:
    """Between the look at it and its turn."""

    async def main() -> None:
        time = Time()
        house = House(Scripted(*WHOLE), MemoryStore(time))
        await house.post()
        await house.runs.wait_idle()
        await house.runs.expire_thread(channel_of("t"), START)
        assert await house.store.head(channel_of("t"))
        await house.runs.expire_thread(channel_of("t"), START + 1)
        assert await house.store.head(channel_of("t")) is None

    on_clock(main())


def test_the_server_looks_again_and_again() -> None:
    async def main() -> None:
        time = Time()
        store = MemoryStore(time)
        channels = Channels(store, Hub(store), Rules({"*": Rule(retention="1d")}))
        retention = Retention(store, channels, House(Scripted()).runs, clock=lambda: time.seconds)
        running = asyncio.create_task(retention.run())
        for _ in range(2):
            await channels.publish("x", Publisher(), [MessageDraft(data="x")])
            time.now += 2 * DAY
            while await store.read("channel:x"):
                clock().leap(60)
                await asyncio.sleep(0)
        running.cancel()

    on_clock(asyncio.wait_for(main(), LONG * LONG))
