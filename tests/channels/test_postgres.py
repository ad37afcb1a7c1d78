"""The store of several nodes: the contracts, and what only happens where there are others."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Generator, Iterable, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest

from citewire.channels import postgres_batch
from citewire.channels.hub import Hub
from citewire.channels.postgres import PostgresStore
from citewire.channels.postgres_database import Database, StoreTooNew
from citewire.channels.store import (
    Change,
    ChannelPosition,
    ChannelStore,
    CursorLost,
    Decide,
    Row,
    SlotValues,
    StoreError,
)
from citewire.testing import SlotsContract, StoreContract, check_log, entries, everything
from citewire.testing.store import Suite
from support.postgres import Postgres

_TABLES = ("link", "erased", "slot", "log", "channel")


class OnPostgres(Suite[Any]):
    examples = 20
    dsn: str

    @pytest.fixture(autouse=True)
    def database(self, dsn: str) -> None:
        self.dsn = dsn

    @contextmanager
    def folder(self) -> Generator[Path]:
        """One database for all examples of a test, emptied."""
        with psycopg.connect(self.dsn, autocommit=True) as db:
            if db.execute("SELECT to_regclass('citewire.version')").fetchone() != (None,):
                for table in _TABLES:
                    db.execute(f"DELETE FROM citewire.{table}".encode())
        yield Path()

    async def open(self, folder: Path, now: Callable[[], int]) -> ChannelStore:
        return await PostgresStore.open(self.dsn, now)


class TestStore(OnPostgres, StoreContract):
    pass


class TestSlots(OnPostgres, SlotsContract):
    pass


@asynccontextmanager
async def nodes(dsn: str, count: int = 2) -> AsyncGenerator[list[PostgresStore]]:
    """So many stores on one database, as if each were another process."""
    async with AsyncExitStack() as stack:
        stores = [await PostgresStore.open(dsn) for _ in range(count)]
        for store in stores:
            stack.push_async_callback(store.close)
        yield stores


def counted(name: str) -> Decide[int]:
    """One more in the slot `n`, with a row that says so."""

    def decide(values: SlotValues, place: ChannelPosition) -> Change[int]:
        n = int(values["n"] or b"0") + 1
        return Change(n, entries(f"{name} {place.serial()}", data=b"%d" % n), {"n": b"%d" % n})

    return decide


def test_two_nodes_write_to_the_same_channels(dsn: str) -> None:
    """Rows have no gap, slots count every change once, and no two calls were told the same."""

    async def write(node: int, store: PostgresStore, told: dict[str, list[int]]) -> None:
        for turn in range(40):
            channel = f"c{(turn + node) % 3}"
            changed, _ = await asyncio.gather(
                store.change(channel, ["n"], counted(f"{node}")),
                store.append(f"c{turn % 3}", entries(f"{node} {turn}", f"both {turn}")),
            )
            told[channel].append(changed.result)

    async def run() -> None:
        async with nodes(dsn) as stores:
            told: dict[str, list[int]] = {f"c{each}": [] for each in range(3)}
            await asyncio.gather(*(write(node, store, told) for node, store in enumerate(stores * 2)))
            for channel, counts in told.items():
                rows = await everything(stores[0], channel, 100)
                check_log(rows)
                assert rows == await everything(stores[1], channel, 100)
                assert sorted(counts) == list(range(1, len(counts) + 1))
                assert await stores[0].values(channel, ["n"]) == {"n": b"%d" % len(counts)}

    asyncio.run(run())


def test_an_id_is_kept_once_for_all_nodes(dsn: str) -> None:
    async def run() -> None:
        async with nodes(dsn, 3) as stores:
            for turn in range(10):
                calls = [
                    store.append("c", entries(f"a{turn}", data=b"%d" % n)) for n, store in enumerate(stores)
                ]
                assert len(set(await asyncio.gather(*calls))) == 1
            assert len(await everything(stores[0], "c")) == 10

    asyncio.run(run())


def _no_news(_: Iterable[str]) -> list[str]:
    return []


async def take(follow: AsyncGenerator[Sequence[Row]], count: int) -> list[Row]:
    """So many rows of those that come."""
    rows: list[Row] = []
    async with asyncio.timeout(30):
        while len(rows) < count:
            rows += await anext(follow)
    return rows


@pytest.mark.parametrize("is_told", [True, False])
def test_what_one_node_writes_is_followed_on_another(
    dsn: str, is_told: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also when no notification ever comes; and the end of a channel too."""
    if not is_told:
        monkeypatch.setattr(postgres_batch, "encode_notifications", _no_news)

    async def run() -> None:
        async with nodes(dsn) as (here, there):
            hub, others = Hub(here), Hub(there)
            follows = [others.follow("c") for _ in range(3)]
            seen = [asyncio.create_task(take(each, 6)) for each in follows]
            for turn in range(3):
                await hub.append("c", entries(f"{turn}", f"{turn} more"))
            rows = await everything(there, "c")
            assert len(rows) == 6
            assert [await each for each in seen] == [rows] * 3
            await hub.drop("c")
            with pytest.raises(CursorLost):
                await take(follows[0], 1)

    asyncio.run(run())


def test_a_node_hears_in_what_channels_others_write(dsn: str) -> None:
    async def run() -> None:
        async with nodes(dsn) as (here, there):
            hub, others = Hub(here), Hub(there)
            heard: asyncio.Queue[str] = asyncio.Queue()
            others.on_channel_changed = heard.put_nowait
            async with asyncio.timeout(30):
                async with aclosing(others.follow("ready")) as ready:  # who is told of this one listens
                    await hub.append("ready", entries("a"))
                    await anext(ready)
                await hub.append('x\n,"y', entries("a"))
                while await heard.get() != 'x\n,"y':
                    pass

    asyncio.run(run())


def test_leases(dsn: str) -> None:
    """One node has it; when its connection breaks another may take it, and it is told before it writes."""

    async def run() -> None:
        async with nodes(dsn) as (here, there), Database.opened(dsn) as db:
            lost: list[str] = []
            here.on_lost(lost.append)
            assert [await here.take("a"), await here.take("a"), await here.take("b")] == [True] * 3
            assert not await there.take("a")
            await here.release("a")
            assert await there.take("a")
            assert not await here.take("a")
            await db.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND pid = $1",
                here.pid,
            )
            async with asyncio.timeout(30):
                while not await there.take("b"):
                    pass
            for _ in range(3):  # one may find the connection cut, one the lease lost
                with suppress(StoreError):
                    await here.append("c", entries("a"))
            assert lost == ["b"]
            assert not await here.take("b")
            await here.append("c", entries("a"))

    asyncio.run(run())


def test_a_database_that_crashes() -> None:
    """What was acknowledged is there, calls go on or say so, and those who follow see it all."""

    async def run(server: Postgres) -> None:
        async with nodes(server.dsn) as (here, there):
            hub, others = Hub(here), Hub(there)
            kept: list[str] = []
            follow = others.follow("c")

            async def write() -> None:
                for turn in range(400):
                    for _ in range(100):
                        try:
                            await hub.append("c", entries(f"{turn}"))
                            break
                        except StoreError:
                            await asyncio.sleep(0.05)
                    kept.append(f"{turn}")

            writing = asyncio.create_task(write())
            seen = await take(follow, 20)
            await asyncio.to_thread(server.crash)
            await asyncio.to_thread(server.start)
            seen += await take(follow, 400 - len(seen))
            await writing
            rows = await everything(here, "c", 1000)
            check_log(rows)
            assert [row.id for row in rows] == kept
            assert seen == rows

    with Postgres() as server:
        asyncio.run(run(server))


def test_a_database_that_is_an_older_copy() -> None:
    """Numbers that were given before are given again: under another epoch, with serials that nobody knew."""

    async def run(server: Postgres) -> None:
        async with nodes(server.dsn) as (here, there):
            hub, others = Hub(here), Hub(there)
            old = await here.append("c", entries("a", "b"))
            still = await here.append("still", entries("a"))
            await asyncio.to_thread(server.save)
            lost = await hub.append("c", entries("lost", "gone"))
            follow = others.follow("c")
            assert await take(follow, 4) == [*old, *lost]
            await asyncio.to_thread(server.restore)
            new = await hub.append("c", entries("new"))
            assert [new[0].n, new[0].epoch] == [3, f"{old[0].epoch}~1"]
            assert new[0].serial > lost[-1].serial
            rows = await everything(there, "c")
            check_log(rows)
            assert [row.serial for row in rows[:2]] == [row.serial for row in old]
            with pytest.raises(CursorLost):
                await take(follow, 1)
            for cursor in (old[1].cursor, lost[0].cursor):
                with pytest.raises(CursorLost):
                    await there.read("c", cursor)
            for row in (*old, *lost):
                with pytest.raises(CursorLost):
                    await there.seek("c", row.serial)
            assert await there.seek("c", new[0].serial) == new[0].cursor
            assert await there.read("still", still[0].cursor) == ()

    with Postgres() as server:
        asyncio.run(run(server))


def test_tables_are_made_once(dsn: str) -> None:
    async def run() -> None:
        stores = await asyncio.gather(*(PostgresStore.open(dsn) for _ in range(5)))
        await asyncio.gather(*(store.append("c", entries(f"{n}")) for n, store in enumerate(stores)))
        check_log(await everything(stores[0], "c"))
        for store in stores:
            await store.close()

    asyncio.run(run())


def test_tables_of_a_later_version(dsn: str) -> None:
    """A node that knows less is refused, at its start, and soon where it is at work."""

    async def refused(store: PostgresStore) -> None:
        while True:
            try:
                await store.append("c", entries("a"))
            except StoreTooNew:
                return
            except StoreError:
                continue  # its connection was cut

    async def run() -> None:
        async with nodes(dsn, 1) as (store,), Database.opened(dsn) as db:
            await db.execute("UPDATE citewire.version SET n = n + 1")
            with pytest.raises(StoreError, match="later version"):
                await PostgresStore.open(dsn)
            async with asyncio.timeout(30):
                await refused(store)

    asyncio.run(run())


@pytest.mark.parametrize(
    "address",
    ["postgresql://user:geheim@127.0.0.1:1/x", "postgresql://user:geheim@[/x", "postgresql:///x?port=geheim"],
)
def test_an_address_that_leads_nowhere(address: str) -> None:
    """It is said without the password."""

    async def run() -> None:
        with pytest.raises(StoreError) as told:
            await PostgresStore.open(address)
        assert "geheim" not in f"{told.value} {told.value.message}"

    asyncio.run(run())


def test_an_older_copy_that_others_have_gone_on_with() -> None:
    """Whoever remembers what was there finds out, though as many rows are there again."""

    async def run(server: Postgres) -> None:
        async with nodes(server.dsn, 1) as (here,):
            await here.append("c", entries("a"))
            await asyncio.to_thread(server.save)
            lost = await here.append("c", entries("b", "c"))
            await asyncio.to_thread(server.restore)
            others = [_INSERT.format(n=n) for n in (2, 3, 4)]
            await asyncio.to_thread(_sql, server.dsn, *others, "UPDATE citewire.channel SET was = n, n = 4")
            [new] = await here.append("c", entries("d"))
            assert [new.n, new.epoch] == [5, f"{lost[0].epoch}~1"]
            with pytest.raises(CursorLost):
                await here.read("c", lost[-1].cursor)

    with Postgres() as server:
        asyncio.run(run(server))


# As if another node had: what it writes is of no matter here.
_INSERT = """
INSERT INTO citewire.log SELECT no, {n}, tick + {n}, 'x{n}', 'event', 'x', 'x' FROM citewire.channel
"""


def _sql(dsn: str, *statements: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as db:
        for each in statements:
            db.execute(each.encode())
