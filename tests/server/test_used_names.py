"""What is good once stays so: after a restart, on a second server, and for as long as it matters."""

from __future__ import annotations

import asyncio
import hmac
import json
import time
from base64 import b64encode
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from citewire.channels.memory import MemoryStore
from citewire.channels.postgres import PostgresStore
from citewire.channels.sqlite import SqliteStore
from citewire.channels.store import ChannelStore, StoreError
from citewire.server.access.used_names import UsedNames
from support.app import App, opened_app


class Clock:
    now = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now


@asynccontextmanager
async def store_of(kind: str, folder: Path, dsn: str) -> AsyncGenerator[ChannelStore]:
    match kind:
        case "sqlite":
            store: ChannelStore = SqliteStore(folder)
        case "postgres":
            store = await PostgresStore.open(dsn)
        case _:
            store = MemoryStore()
    try:
        yield store
    finally:
        await store.close()


KINDS = ["memory", "sqlite", "postgres"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_name_is_used_once(kind: str, tmp_path: Path, dsn: str) -> None:
    """For each purpose, whatever it is called, and of many at once by one."""

    async def main() -> None:
        async with store_of(kind, tmp_path, dsn) as store:
            used, end = UsedNames(store, "a"), time.time() + 60
            for name in ("n", "", "x" * 5000, "é\ud800\0\n"):
                assert await used.use(name, end)
                assert not await used.use(name, end)
            assert await UsedNames(store, "b").use("n", end)
            got = await asyncio.gather(*(UsedNames(store, "a").use("crowd", end) for _ in range(20)))
            assert sorted(got) == [False] * 19 + [True]

    asyncio.run(main())


@pytest.mark.parametrize("kind", KINDS)
def test_expired_names_are_deleted(kind: str, tmp_path: Path, dsn: str) -> None:
    """A while after they have expired: the clock of another server may be behind."""

    async def main() -> None:
        async with store_of(kind, tmp_path, dsn) as store:
            clock = Clock()
            used = UsedNames(store, "a", clock)
            for at in range(30):
                assert await used.use(str(at), clock.now + 60)
                clock.now += 61
            left = await store.read("used:a")
            # Those of the last eleven minutes: one each minute.
            assert 10 <= len(left) <= 13
            assert not await used.use("29", clock.now)
            clock.now += 3600
            assert await used.use("last", clock.now + 60)
            assert len(await store.read("used:a")) == 1
            assert await used.use("0", clock.now + 60)

    asyncio.run(main())


def test_where_nothing_can_be_kept_nothing_is_used() -> None:
    async def main() -> None:
        store = MemoryStore()
        await store.close()
        with pytest.raises(StoreError):
            await UsedNames(store, "a").use("n", time.time() + 60)

    asyncio.run(main())


# --- requests for a token, and links ------------------------------------------------------------------------


def signed(key: str) -> bytes:
    """A request for a token as Ably's clients sign it."""
    name, _, secret = key.partition(":")
    asked: dict[str, Any] = {"keyName": name, "timestamp": int(time.time() * 1000), "nonce": "n" * 16}
    text = f"{name}\n\n\n\n{asked['timestamp']}\n{asked['nonce']}\n".encode()
    mac = b64encode(hmac.digest(secret.encode(), text, "sha256")).decode()
    return json.dumps(asked | {"mac": mac}).encode()


async def post(app: App, request: bytes) -> int:
    name = app.key.partition(":")[0]
    target = f"/keys/{name}/requestToken"
    return (await app.ask("POST", target, request, key=None, content_type="application/json")).status


async def get(app: App, link: str) -> int:
    return (await app.ask("GET", link, key=None)).status


def test_no_request_and_no_link_works_again_after_a_restart(tmp_path: Path) -> None:
    async def main() -> None:
        async with opened_app(tmp_path) as app:
            request, link = signed(app.key), app.server.sign_in_link().removeprefix(app.server.address)
            assert (await post(app, request), await get(app, link)) == (201, 303)
        async with opened_app(tmp_path, key=app.key) as app:
            assert (await post(app, request), await get(app, link)) == (401, 401)

    asyncio.run(main())


def test_no_request_and_no_link_works_again_on_another_server(tmp_path: Path, dsn: str) -> None:
    """Of all who send one at once to any of them, one is served."""

    async def main() -> None:
        async with AsyncExitStack() as stack:
            first = await stack.enter_async_context(opened_app(tmp_path / "one", store=dsn))
            other = await stack.enter_async_context(opened_app(tmp_path / "two", store=dsn, key=first.key))
            both = [first, other] * 5
            request, link = signed(first.key), first.server.sign_in_link().removeprefix(first.server.address)
            for sent, done in ((post, 201), (get, 303)):
                what: Any = request if sent is post else link
                got = await asyncio.gather(*(sent(app, what) for app in both))
                assert sorted(got) == sorted([done] + [401] * 9)

    asyncio.run(main())
