"""Servers that share a Postgres database: what is done on one is so on the other, and nothing is lost."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from citewire import cli, codec
from citewire.channels.hub import Hub
from citewire.channels.memory import MemoryStore
from citewire.channels.store import Row, StoreError, StoreInUse
from citewire.server.ably.codec import FrameAction
from citewire.server.access.keys import Keyring
from citewire.server.ops.settings import SettingError, Settings
from citewire.server.sources.stored_sources import CHANNEL, RemovedSource, StoredSource, StoredSources
from citewire.server.storage.backend import open_configured_vault, open_store
from citewire.server.storage.blobs_postgres import PostgresBlobs
from citewire.server.storage.follower import ChannelFollower
from citewire.server.storage.vault_postgres import PostgresVault
from support.ably_socket import Closed, Socket
from support.app import App, opened_app
from support.cases import ROOT
from support.postgres import Postgres, need_postgres

REPORT = (ROOT / "src/citewire/samples/report.pdf").read_bytes()
QUOTE = "Other operating costs (786) (843)"
FEE = b"The fee is 40 dollars a month."
Main = Callable[[App, App], Awaitable[None]]


def nodes(dsn: str, folder: Path, main: Main, **settings: Any) -> None:
    """Two servers, each with a folder of its own, and a key that both know."""

    async def opened() -> None:
        async with AsyncExitStack() as stack:
            a = await stack.enter_async_context(opened_app(folder / "a", store=dsn, **settings))
            b = await stack.enter_async_context(opened_app(folder / "b", store=dsn, key=a.key, **settings))
            await main(a, b)

    asyncio.run(opened())


async def until(is_so: Callable[[], Awaitable[bool]]) -> None:
    """Wait for what comes from another server; the deadline is that of the test."""
    while not await is_so():  # noqa: ASYNC110  # what it waits for happens in a database
        await asyncio.sleep(0.01)


async def upload(app: App, name: str, data: bytes) -> dict[str, Any]:
    sent = await app.ask("POST", f"/sources?name={name}", data)
    assert sent.status in {200, 201}, sent
    return sent.json["sources"][0]


async def sources(app: App) -> dict[str, str]:
    return {each["name"]: each["state"] for each in (await app.ask("GET", "/sources")).json["sources"]}


async def verdict(app: App, quote: str) -> str:
    found = await app.ask("POST", "/verify", {"quotes": [{"quote": quote}]})
    return found.json["checks"][0]["status"]


async def said(app: App, thread: str, text: str) -> str:
    """All that comes of a run."""
    asked = {"threadId": thread, "runId": "r", "messages": [{"id": "u", "role": "user", "content": text}]}
    return (await app.ask("POST", "/agui", asked)).body.decode()


def command(*arguments: str | Path) -> Any:
    env = {"COLUMNS": "100", "NO_COLOR": "1", "TERM": "dumb"}
    return CliRunner(env=env).invoke(cli.app, [*map(str, arguments)], prog_name="citewire")


# --- done on one, seen on the other -------------------------------------------------------------------------


def test_sources(dsn: str, tmp_path: Path) -> None:
    """Listed, read, looked at, cited and proven on the other server; and gone there when they are removed."""

    async def main(a: App, b: App) -> None:
        report = await upload(a, "report.pdf", REPORT)
        # At once, before anybody could have told it.
        assert (await b.ask("GET", f"/sources/{report['id']}")).json["sha256"] == report["sha256"]
        content = await b.ask("GET", f"/sources/{report['id']}/content")
        assert content.body == REPORT
        await upload(b, "fee.txt", FEE)
        both = {"fee.txt": "ready", "report.pdf": "ready"}
        for app in (a, b):
            await until(lambda app=app: _is(sources(app), both))
            assert await verdict(app, QUOTE) == "verified"
        page = await b.ask("GET", f"/sources/{report['id']}/pages/4.png?scale=0.5")
        assert page.body.startswith(b"\x89PNG")
        assert "Other operating costs" in (await b.ask("GET", f"/sources/{report['id']}/text")).json["text"]

        stream = await said(b, "t", "What were other operating costs?")
        proofs = re.findall(r"/proofs/[\w.-]+\?sig=[\w.-]+", stream)
        assert proofs
        for app in (a, b):
            for link in proofs:
                assert (await app.ask("GET", link, key=None)).status == 200

        assert (await a.ask("DELETE", f"/sources/{report['id']}")).status == 204
        await until(lambda: _is(sources(b), {"fee.txt": "ready"}))
        assert await verdict(b, QUOTE) == "missed"
        # What a verdict refers to stays, wherever it was reached.
        await a.server.catalog.sweep(0)
        picture = next(link for link in proofs if ".avif" in link)
        assert (await a.ask("GET", picture, key=None)).status == 200

    nodes(dsn, tmp_path, main)


async def _is(found: Awaitable[Any], expected: Any) -> bool:
    return await found == expected


def test_rules(dsn: str, tmp_path: Path) -> None:
    async def main(a: App, b: App) -> None:
        assert (await a.ask("PUT", "/rules/x:*", {"mutable": True})).status == 200

        async def mutable(app: App) -> bool:
            return (await app.ask("GET", "/rules/x:*")).json["mutable"]

        await until(lambda: mutable(b))
        assert (await b.ask("DELETE", "/rules/x:*")).status == 204
        await until(lambda: _is(mutable(a), False))
        assert (await a.ask("DELETE", "/rules/x:*")).status == 404

    nodes(dsn, tmp_path, main)


def test_attachments(dsn: str, tmp_path: Path) -> None:
    """A client may ask another server with each request."""
    words = b"Words that stay."
    form = b'--x\r\ncontent-disposition: form-data; name="f"; filename="a.txt"\r\n\r\n%b\r\n--x--' % words

    async def main(a: App, b: App) -> None:
        sent = await a.ask(
            "POST", "/prepareAttachments", form, content_type="multipart/form-data; boundary=x"
        )
        name = sent.json["attachmentId"]
        data = {"attachmentId": name, "citations": {"k": {"fullPhrase": "Words that stay"}}}
        found = await b.ask("POST", "/verifyCitations", {"data": data})
        assert found.json["verifications"]["k"]["status"] == "found"
        extended = await b.ask("POST", f"/attachments/{name}/extend", {"duration": "year"})
        await until(lambda: _same_end(a, name, extended.json["expiresAt"]))
        assert (await b.ask("DELETE", f"/attachments/{name}")).status == 200

        async def is_gone() -> bool:
            return (await a.ask("POST", "/getAttachment", {"attachmentId": name})).status == 404

        await until(is_gone)
        # Nobody has it any more, and nothing of it is left once it was not touched for a while.
        await _age(a)
        for app in (a, b):
            await app.server.attachments.sweep()
        assert await _blobs(a) == set()
        assert not await asyncio.to_thread(lambda: [*tmp_path.rglob(f"*{sha256(words).hexdigest()}*")])

    nodes(dsn, tmp_path, main)


async def _same_end(app: App, name: str, expires: str) -> bool:
    shown = await app.ask("POST", "/getAttachment", {"attachmentId": name})
    return shown.json["expiresAt"] == expires


def _db(app: App) -> Any:
    store: Any = app.server.hub.store
    return store.db


async def _age(app: App) -> None:
    """Have all bytes been touched an hour ago."""
    await _db(app).execute("UPDATE citewire.blob SET touched = touched - interval '1 hour'")


async def _blobs(app: App) -> set[str]:
    return {row["sha256"] for row in await _db(app).fetch("SELECT sha256 FROM citewire.blob")}


def test_channels(dsn: str, tmp_path: Path) -> None:
    """What is published on one server is delivered by the other, and a connection goes on there."""

    async def main(a: App, b: App) -> None:
        async with (
            Socket(a.server.realtime, key=a.key) as here,
            Socket(b.server.realtime, key=b.key) as there,
        ):
            heard: list[str] = []
            b.server.hub.on_channel_changed = heard.append
            await here.attach("news")
            await there.attach("news")
            for number in range(20):
                await here.publish("news", number, {"name": "n", "data": str(number)})
            got: list[str] = []
            while len(got) < 20:
                frame = await there.next(FrameAction.MESSAGE)
                got += [each["data"] for each in frame["messages"]]
            assert got == [str(number) for number in range(20)]
            assert "channel:news" in heard
            key, serial = here.key, here.serials["news"]
        async with Socket(b.server.realtime, key=b.key, resume=key) as again:
            assert again.connected["connectionId"] == key.partition("!")[0]
            await there_publishes(b)
            attached = await again.attach("news", channelSerial=serial)
            assert "error" not in attached
            frame = await again.next(FrameAction.MESSAGE)
            assert [each["data"] for each in frame["messages"]] == ["later"]

    async def there_publishes(b: App) -> None:
        async with Socket(b.server.realtime, key=b.key) as other:
            await other.publish("news", 0, {"data": "later"})

    nodes(dsn, tmp_path, main)


def test_keys(dsn: str, tmp_path: Path) -> None:
    """Made and revoked while servers run, and refused on all of them, also where they are connected."""

    async def main(a: App, b: App) -> None:
        made = await asyncio.to_thread(command, "keys", "create", "--name", "shop.reader", "--store", dsn)
        assert made.exit_code == 0, made.stderr
        key = made.stdout.strip()

        async def status(app: App) -> int:
            return (await app.ask("GET", "/threads", key=key)).status

        for app in (a, b):
            await until(lambda app=app: _is(status(app), 200))
        token = a.server.keyring.issue_token("shop.reader", a.server.keyring.caller(None, key).capability, 60)
        assert (await b.ask("GET", "/threads", key=token)).status == 200
        async with Socket(b.server.realtime, key=key) as socket:
            listed = await asyncio.to_thread(command, "keys", "list", "--store", dsn)
            assert "shop.reader" in listed.stdout
            done = await asyncio.to_thread(command, "keys", "revoke", "shop.reader", "--store", dsn)
            assert done.exit_code == 0, done.stderr
            for app in (a, b):
                await until(lambda app=app: _is(status(app), 401))
            assert (await b.ask("GET", "/threads", key=token)).status == 401
            with pytest.raises(Closed):
                await socket.next()

    nodes(dsn, tmp_path, main)


def test_the_record(dsn: str, tmp_path: Path) -> None:
    """It is read from the database, by who has nothing else."""

    async def main(a: App, b: App) -> None:
        await upload(a, "fee.txt", FEE)
        await until(lambda: _is(sources(b), {"fee.txt": "ready"}))
        await said(b, "t", "What is the fee?")
        listed = await asyncio.to_thread(command, "audit", "list", "--format", "json", "--store", dsn)
        assert [each["thread"] for each in json.loads(listed.stdout)] == ["t"]
        file = tmp_path / "record.jsonl"
        assert (
            await asyncio.to_thread(command, "audit", "export", "-o", file, "--store", dsn)
        ).exit_code == 0
        verified = await asyncio.to_thread(command, "audit", "verify", file, "--store", dsn)
        assert verified.stdout.startswith("whole: 1 thread"), verified.stderr
        assert (await a.ask("GET", "/threads/t/record")).status == 200

    nodes(dsn, tmp_path, main)


def test_a_database_without_a_log_stays_as_it_is(dsn: str) -> None:
    listed = command("audit", "list", "--store", dsn)
    assert (listed.exit_code, listed.stdout) == (2, "")
    assert "no log of this version" in listed.stderr


# --- one after the other, and both at once ------------------------------------------------------------------


def test_a_server_that_comes_later_has_everything(dsn: str, tmp_path: Path) -> None:
    """Also the one that lost its folder."""

    async def main() -> None:
        async with opened_app(tmp_path / "a", store=dsn) as a:
            key = a.key
            await upload(a, "report.pdf", REPORT)
            await until(lambda: _is(sources(a), {"report.pdf": "ready"}))
            link = re.findall(
                r"/proofs/[\w-]+\.\w+\.avif\?sig=[\w.-]+", await said(a, "t", "Operating costs?")
            )[0]
        shutil.rmtree(tmp_path / "a")
        for name in ("a", "b"):
            async with opened_app(tmp_path / name, store=dsn, key=key) as app:
                assert (await app.ask("GET", link, key=None)).headers["content-type"] == "image/avif"
                await until(lambda app=app: _is(sources(app), {"report.pdf": "ready"}))
                assert (await app.ask("GET", "/threads/t")).status == 200

    asyncio.run(main())


def test_the_first_starts_at_once_make_one_secret_and_one_key(dsn: str) -> None:
    def start(_: int) -> tuple[Keyring, str | None]:
        keyring = Keyring(asyncio.run(open_configured_vault(Settings(store=dsn))))
        return keyring, keyring.create_development_key()

    with ThreadPoolExecutor(4) as threads:
        started = list(threads.map(start, range(4)))
    [key] = [key for _, key in started if key]
    assert {PostgresVault(dsn).read("secret")} == {keyring.vault.read("secret") for keyring, _ in started}
    assert Keyring(PostgresVault(dsn)).caller(None, key).key == key.partition(":")[0]


def test_the_same_at_once_on_both(dsn: str, tmp_path: Path) -> None:
    """Whatever comes first, both end with the same sources, each under a name of its own."""

    async def main(a: App, b: App) -> None:
        apps = (a, b)
        await asyncio.gather(*(upload(app, "same.txt", FEE) for app in apps for _ in range(5)))
        # Names that differ only in case are those of two sources.
        await asyncio.gather(upload(a, "Name.txt", b"One."), upload(b, "name.txt", b"Two."))
        large = os.urandom(3 << 20)
        await asyncio.gather(*(upload(app, f"{at}.bin", large) for at, app in enumerate(apps * 2)))
        listed = [each["id"] for each in (await a.ask("GET", "/sources")).json["sources"]]
        await asyncio.gather(*(app.ask("DELETE", f"/sources/{listed[0]}") for app in apps))
        for app in apps:
            assert (await app.ask("GET", "/sources/unknown")).status == 404  # it asks the log first
        held = [sorted(each.name for each in app.server.catalog.holdings()) for app in apps]
        assert held[0] == held[1]
        assert len({name.casefold() for name in held[0]}) == len(held[0]) == 6
        for app in apps:
            for each in app.server.catalog.holdings():
                content = await app.ask("GET", f"/sources/{each.id}/content")
                assert sha256(content.body).hexdigest() == each.sha256

    nodes(dsn, tmp_path, main)


def test_bytes_that_another_server_is_about_to_need_stay(dsn: str, tmp_path: Path) -> None:
    """Who deletes cannot know of them, and need not."""

    async def main() -> None:
        store = await open_store(dsn)
        try:
            one, other = (PostgresBlobs(tmp_path / name, store.db, "sources") for name in "ab")
            for blobs in (one, other):
                await blobs.open()
            name = sha256(FEE).hexdigest()
            for blobs in (one, other):
                async with blobs.draft() as draft:
                    await draft.write(FEE)
                    await draft.finish()
                    await blobs.share(draft)
                    await blobs.keep(draft)
            assert await one.delete([name]) == {name}
            assert await one.fetch(name) == one.path(name)
            assert await PostgresBlobs(tmp_path / "c", store.db, "attachments").touch([name]) == set()
            await store.db.execute("UPDATE citewire.blob SET touched = touched - interval '1 hour'")
            assert await other.touch([name, "0" * 64]) == {name}
            assert await one.delete([name]) == {name}
            await store.db.execute("UPDATE citewire.blob SET touched = touched - interval '1 hour'")
            assert await one.delete([name]) == set()
            assert (await one.fetch(name), await other.list_hashes()) == (None, {name})
            async with one.draft() as draft:
                await draft.write(FEE)
                await draft.finish()
                await one.share(draft)
            await other.delete([name])
            await store.db.execute("UPDATE citewire.blob_part SET data = 'x'")
            with pytest.raises(StoreError, match="damaged"):
                await other.fetch(name)
        finally:
            await store.close()

    asyncio.run(main())


def test_nothing_is_deleted_that_somebody_cites_on_the_other(dsn: str, tmp_path: Path) -> None:
    async def main(a: App, b: App) -> None:
        fee = await upload(a, "fee.txt", FEE)
        await until(lambda: _is(sources(b), {"fee.txt": "ready"}))
        await _age(a)
        await a.ask("DELETE", f"/sources/{fee['id']}")
        # A verdict that was on its way, just as the other server looks for bytes that nobody needs.
        await asyncio.gather(b.server.catalog.mark_cited([fee["sha256"]], "t"), a.server.catalog.sweep(0))
        await _age(a)
        for app in (a, b):
            await app.server.catalog.sweep(0)
        assert await _blobs(a) == {fee["sha256"]}
        await b.server.catalog.forget_thread("t")
        await _age(a)
        await a.server.catalog.sweep(0)
        assert await _blobs(a) == set()
        # And what is gone cannot be cited any more.
        await b.server.catalog.mark_cited([fee["sha256"]], "u")
        assert [row.kind for row in await b.server.hub.store.read(CHANNEL)][-1] == "uncited"

    nodes(dsn, tmp_path, main)


@given(st.lists(st.tuples(st.integers(0, 1), st.sampled_from([0, 1, 2, 3, None])), max_size=20))
def test_a_log_comes_to_the_same_wherever_it_is_read(steps: list[tuple[int, int | None]]) -> None:
    """Whoever of two writes how much, reads when, and also where the log begins anew."""

    async def main() -> None:
        store = MemoryStore()
        folds: list[list[Row]] = [[], []]
        followers = [ChannelFollower(Hub(store), "log", fold.append, fold.clear) for fold in folds]
        for who, count in steps:
            if count is None:
                await store.drop("log")
            elif count:
                await followers[who].write([("kind", RemovedSource("x"))] * count)
                assert folds[who] == list(await store.read("log"))
            else:
                await followers[who].catch_up()
        for follower in followers:
            await follower.catch_up()
        assert folds[0] == folds[1] == list(await store.read("log"))

    asyncio.run(main())


@given(
    st.lists(
        st.tuples(st.sampled_from("abc"), st.sampled_from(["x.txt", "X.txt", "x (2).txt", None])), max_size=12
    )
)
def test_no_two_sources_have_one_name(steps: list[tuple[str, str | None]]) -> None:
    """Whatever servers wrote that did not know of each other; and the others keep theirs."""
    holdings = StoredSources()
    for n, (source_id, name) in enumerate(steps, 1):
        before = {each.id: each.name for each in holdings.sources.values()}
        kind, data = (
            ("added", StoredSource(source_id, name, "upload", ""))
            if name
            else ("removed", RemovedSource(source_id))
        )
        holdings.apply(Row("e", n, n, str(n), kind, codec.encode(data), b""))
        after = {each.id: each.name for each in holdings.sources.values()}
        assert len({each.casefold() for each in after.values()}) == len(after)
        assert before | {source_id: ""} == {**before, **after, source_id: ""}
        assert (source_id in after) == (name is not None)


def test_an_older_copy_of_the_database_takes_over(dsn: str, tmp_path: Path) -> None:
    """What it does not know is gone on all servers, and all go on from there."""

    async def main(a: App, b: App) -> None:
        for name in ("one.txt", "two.txt"):
            await upload(a, name, name.encode())
        await until(lambda: _is(sources(b), {"one.txt": "ready", "two.txt": "ready"}))
        async with _db(a).connection() as db, db.transaction():
            [(no, n, tick, before)] = await db.fetch(
                "SELECT l.channel, l.n - 1, l.tick - 1, l.before FROM citewire.log AS l"
                " JOIN citewire.channel AS c ON c.no = l.channel AND c.n = l.n WHERE c.name = $1", CHANNEL,
            )  # fmt: skip
            await db.execute("DELETE FROM citewire.log WHERE channel = $1 AND n > $2", no, n)
            await db.execute(
                "UPDATE citewire.channel SET epoch = epoch || '~1', n = $2, tick = $3, hash = $4"
                " WHERE no = $1", no, n, tick, before,
            )  # fmt: skip
        for app in (a, b):
            await until(lambda app=app: _is(sources(app), {"one.txt": "ready"}))
        await upload(b, "three.txt", b"three")
        for app in (a, b):
            await until(lambda app=app: _is(sources(app), {"one.txt": "ready", "three.txt": "ready"}))

    nodes(dsn, tmp_path, main)


# --- folders ------------------------------------------------------------------------------------------------


def test_a_folder_that_both_name_is_taken_once(dsn: str, tmp_path: Path) -> None:
    """The one that has it in hand follows it; when that is gone, the other does."""
    docs = tmp_path / "docs"
    docs.mkdir()
    (docs / "fee.txt").write_bytes(FEE)
    options: dict[str, Any] = {"store": dsn, "sources": (str(docs),)}

    async def kinds(app: App) -> list[str]:
        return [row.kind for row in await app.server.hub.store.read(CHANNEL)]

    async def main() -> None:
        async with AsyncExitStack() as stack:
            first = AsyncExitStack()
            a = await first.enter_async_context(opened_app(tmp_path / "a", **options))
            await until(lambda: _is(sources(a), {"fee.txt": "ready"}))
            b = await stack.enter_async_context(opened_app(tmp_path / "b", key=a.key, **options))
            c = await stack.enter_async_context(opened_app(tmp_path / "c", key=a.key, store=dsn))
            for app in (b, c):
                await app.server.catalog.watch.poll()
                await until(lambda app=app: _is(sources(app), {"fee.txt": "ready"}))
                assert app.server.catalog.status() == (0, 1)
            assert await kinds(b) == ["added"]
            fee = b.server.catalog.records()[0].id
            for app in (a, b, c):
                assert (await app.ask("DELETE", f"/sources/{fee}")).status == 409
            await first.aclose()
            (docs / "new.txt").write_bytes(b"Something new.")

            async def is_taken() -> bool:
                # The database may free the lease of the first node a moment after it has left.
                await b.server.catalog.watch.poll()
                return await _is(sources(c), {"fee.txt": "ready", "new.txt": "ready"})

            await until(is_taken)
            await stack.aclose()
        # Nobody names the folder any more: what was in it stays until somebody removes it.
        async with opened_app(tmp_path / "c", store=dsn) as c:
            await c.server.catalog.watch.poll()
            await until(lambda: _is(sources(c), {"fee.txt": "ready", "new.txt": "ready"}))
            assert (await c.ask("DELETE", f"/sources/{fee}")).status == 204

    asyncio.run(main())


# --- what goes wrong ----------------------------------------------------------------------------------------


def test_a_database_that_is_away_and_comes_back(tmp_path: Path) -> None:
    """Requests are told to come again; keys and what is known hold; watchers stay, and miss nothing."""
    need_postgres()

    async def main(a: App, b: App) -> None:
        fee = await upload(a, "fee.txt", FEE)
        await until(lambda: _is(sources(b), {"fee.txt": "ready"}))
        async with Socket(b.server.realtime, key=b.key) as watcher:
            await watcher.attach("news")
            await asyncio.to_thread(server.crash)
            for method, path in (("GET", "/readyz"), ("PUT", "/rules/x"), ("POST", "/sources?name=x.txt")):
                body = {"mutable": True} if method == "PUT" else b"x"
                refused = await a.ask(method, path, body)
                assert (refused.status, refused.code) == (503, "store_failed"), path
                assert refused.headers["retry-after"] == "1"
            assert (await a.ask("GET", "/healthz")).status == 200
            assert await sources(b) == {"fee.txt": "ready"}
            assert await verdict(b, FEE.decode()) == "verified"
            assert (await b.ask("GET", f"/sources/{fee['id']}/content")).body == FEE
            await asyncio.to_thread(server.start)

            async def is_ready() -> bool:
                return (await a.ask("GET", "/readyz")).status == 200

            await until(is_ready)
            await upload(a, "later.txt", b"Something came later.")
            await until(lambda: _is(sources(b), {"fee.txt": "ready", "later.txt": "ready"}))
            async with Socket(a.server.realtime, key=a.key) as other:
                await other.publish("news", 0, {"data": "back"})
            assert [each["data"] for each in (await watcher.next(FrameAction.MESSAGE))["messages"]] == [
                "back"
            ]

    with Postgres() as server, server.database() as dsn:
        nodes(dsn, tmp_path, main)


def test_a_folder_is_of_one_server(dsn: str, tmp_path: Path) -> None:
    async def main() -> None:
        async with opened_app(tmp_path, store=dsn) as app:
            with pytest.raises(StoreInUse):
                async with opened_app(tmp_path, store=dsn, key=app.key):
                    pass
        with pytest.raises(SettingError, match="--sandbox"):
            async with opened_app(tmp_path, store=dsn, sandbox=True):
                pass

    asyncio.run(main())


SECRET = "hush-hush"
WITHOUT = "import sys; sys.modules['asyncpg'] = None; from citewire.cli import main; main()"


@pytest.mark.parametrize("arguments", [("serve",), ("keys", "list"), ("audit", "list")])
@pytest.mark.parametrize(
    ("address", "python", "told"),
    [
        ("127.0.0.1:1/db", "from citewire.cli import main; main()", "it cannot be reached"),
        ("127.0.0.1/a", WITHOUT, "pip install 'citewire[postgres]'"),
        ("[::1/db", "from citewire.cli import main; main()", "expected a path, sqlite:PATH or postgresql://"),
    ],
)
def test_why_a_database_cannot_be_used_is_said_without_its_password(
    arguments: tuple[str, ...], address: str, python: str, told: str, tmp_path: Path
) -> None:
    given = [*arguments, "--store", f"postgresql://u:{SECRET}@{address}", "--data", str(tmp_path)]
    done = subprocess.run([sys.executable, "-c", python, *given], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert told in done.stderr
    assert SECRET not in done.stderr
