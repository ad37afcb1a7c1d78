"""What every `Leases` promises, in memory and on Postgres, and what a process has that shares nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TypeAlias

import pytest

from citewire.channels.lease import Leases, SingleProcessLeases
from citewire.channels.postgres import PostgresStore
from support.nodes import Memory, MemoryNode

Pair: TypeAlias = Callable[[], AbstractAsyncContextManager[tuple[Leases, Leases]]]


class LeasesContract:
    """Subclass it with a fixture `pair` that gives the leases of two processes that share a store."""

    def run(self, pair: Pair, test: Callable[[Leases, Leases], Awaitable[None]]) -> None:
        async def main() -> None:
            async with pair() as (here, there):
                await test(here, there)

        asyncio.run(main())

    def test_one_process_has_it(self, pair: Pair) -> None:
        async def test(here: Leases, there: Leases) -> None:
            assert [await here.take("a"), await here.take("a"), await there.take("a")] == [True, True, False]

        self.run(pair, test)

    def test_names_are_apart(self, pair: Pair) -> None:
        async def test(here: Leases, there: Leases) -> None:
            assert await here.take("a")
            assert await there.take("b")
            assert not await here.take("b")

        self.run(pair, test)

    def test_who_releases_it_lets_others_have_it(self, pair: Pair) -> None:
        async def test(here: Leases, there: Leases) -> None:
            assert await here.take("a")
            await here.release("a")
            assert await there.take("a")
            assert not await here.take("a")

        self.run(pair, test)

    def test_nobody_releases_what_another_has(self, pair: Pair) -> None:
        async def test(here: Leases, there: Leases) -> None:
            assert await here.take("a")
            await there.release("a")
            await there.release("never taken")
            assert not await there.take("a")
            assert await here.take("a")

        self.run(pair, test)

    def test_what_was_released_is_not_lost(self, pair: Pair) -> None:
        async def test(here: Leases, there: Leases) -> None:
            lost: list[str] = []
            here.on_lost(lost.append)
            assert await here.take("a")
            await here.release("a")
            assert await there.take("a")
            assert lost == []

        self.run(pair, test)

    def test_of_many_at_once_one_gets_it(self, pair: Pair) -> None:
        async def test(here: Leases, there: Leases) -> None:
            got = await asyncio.gather(*(each.take("a") for each in (here, there) for _ in range(5)))
            assert {*got[:5]} != {*got[5:]}
            assert [len({*got[:5]}), len({*got[5:]})] == [1, 1]

        self.run(pair, test)


class TestMemoryLeases(LeasesContract):
    """The fake that tests of nodes use: it has to keep to the contract as well."""

    @pytest.fixture
    def pair(self) -> Pair:
        @asynccontextmanager
        async def pair() -> AsyncGenerator[tuple[Leases, Leases]]:
            world = Memory()
            yield MemoryNode(world), MemoryNode(world)

        return pair


class TestPostgresLeases(LeasesContract):
    @pytest.fixture
    def pair(self, dsn: str) -> Pair:
        @asynccontextmanager
        async def pair() -> AsyncGenerator[tuple[Leases, Leases]]:
            here = await PostgresStore.open(dsn)
            there = await PostgresStore.open(dsn)
            try:
                yield here, there
            finally:
                await here.close()
                await there.close()

        return pair


def test_a_process_that_shares_nothing_has_all_leases() -> None:
    async def main() -> None:
        leases: Leases = SingleProcessLeases()
        leases.on_lost(lambda _: pytest.fail("lost"))
        assert await leases.take("a")
        await leases.release("a")
        assert await leases.take("a")

    asyncio.run(main())
