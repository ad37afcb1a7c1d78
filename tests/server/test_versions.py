"""The version of a source that was checked: what a proof shows of it is hashed again."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from selectolax.lexbor import LexborHTMLParser

from citewire.documents.cache import Cache
from citewire.server.access.keys import Keyring
from support.app import App, opened_app

FEE = "The monthly fee of the lamp club is forty dollars for everybody."
OTHER = "The monthly fee of the lamp club is fifty dollars for everybody."


class Proven:
    """A server with a verdict on the source `fee.txt`, and the link to its proof."""

    def __init__(self, app: App, folder: Path, link: str) -> None:
        self.app, self.folder, self.link = app, folder, link

    async def page(self) -> LexborHTMLParser:
        answer = await self.app.ask("GET", self.link, key=None)
        assert answer.status == 200, answer
        return LexborHTMLParser(answer.body.decode())

    async def said(self) -> tuple[str, list[str], dict[str, str]]:
        """The verdict, the words that are marked, and the other rows of the page."""
        page = await self.page()
        pairs = zip(page.css("dt"), page.css("dd"), strict=True)
        rows = {name.text(): value.text().strip() for name, value in pairs}
        return page.css(".chip")[0].text(), [node.text() for node in page.css("mark")], rows

    @property
    def blob(self) -> Path:
        [path] = (self.folder / "data/sources").glob("??/*")
        return path


async def ask(app: App, question: str = "What is the monthly fee of the lamp club?") -> str:
    """The link to the proof of what the librarian answers."""
    message = {"id": "u", "role": "user", "content": question}
    asked: dict[str, Any] = {
        "threadId": "t", "runId": "r", "messages": [message], "tools": [], "context": [], "state": {},
        "forwardedProps": {},
    }  # fmt: skip
    answer = await app.ask("POST", "/agui", asked)
    links = re.findall(r"http://[^\"]*/proofs/[^\".]*\.[0-9a-f]{32}\?sig=[\w.-]+", answer.body.decode())
    assert links, answer
    return links[0].removeprefix("http://127.0.0.1:8787")


@asynccontextmanager
async def proven(folder: Path, **settings: Any) -> AsyncGenerator[Proven]:
    async with opened_app(folder / "data", **settings) as app:
        if not settings.get("sources"):
            sent = await app.ask("POST", "/sources?name=fee.txt", FEE.encode())
            assert sent.status == 201, sent
        await app.server.catalog.wait_until_read()
        yield Proven(app, folder, await ask(app))


def scenario(test: Callable[[Proven], Any]) -> Callable[[Path], None]:
    def runs(tmp_path: Path) -> None:
        async def main() -> None:
            async with proven(tmp_path) as here:
                await test(here)

        asyncio.run(main())

    runs.__doc__ = test.__doc__
    return runs


def is_proof(said: tuple[str, list[str], dict[str, str]]) -> bool:
    return (said[0] == "✓ Verified" and said[1] == [FEE.rstrip(".")]) or said[1] == [FEE]


@scenario
async def test_a_source_that_is_the_same(here: Proven) -> None:
    said = await here.said()
    assert is_proof(said)
    assert said[2]["Version"] == "The source is the same today."


@scenario
async def test_an_upload_that_was_replaced_and_came_back(here: Proven) -> None:
    await here.app.ask("POST", "/sources?name=fee.txt", OTHER.encode())
    await here.app.server.catalog.wait_until_read()
    said = await here.said()
    assert is_proof(said)
    assert "has changed since it was checked on 20" in said[2]["Version"]
    assert "This is the version that was checked." in said[2]["Version"]
    await here.app.ask("POST", "/sources?name=fee.txt", FEE.encode())
    assert (await here.said())[2]["Version"] == "The source is the same today."


@scenario
async def test_another_source_with_the_same_bytes_is_another_source(here: Proven) -> None:
    """Of the one that was cited it is said that it has changed, whoever else has its bytes."""
    await here.app.ask("POST", "/sources?name=copy.txt", FEE.encode())
    await here.app.ask("POST", "/sources?name=fee.txt", OTHER.encode())
    await here.app.server.catalog.wait_until_read()
    said = await here.said()
    assert is_proof(said)
    assert "has changed" in said[2]["Version"]


@scenario
async def test_a_source_that_was_removed(here: Proven) -> None:
    [source] = (await here.app.ask("GET", "/sources")).json["sources"]
    assert (await here.app.ask("DELETE", f"/sources/{source['id']}")).status == 204
    await here.app.server.catalog.sweep(0)
    said = await here.said()
    assert is_proof(said)
    assert "was removed since it was checked on 20" in said[2]["Version"]


@scenario
async def test_bytes_that_are_gone(here: Proven) -> None:
    here.blob.unlink()
    chip, marked, rows = await here.said()
    assert (chip, marked) == ("✓ Verified", [])
    assert "is gone" in rows["Version"]
    assert "not compared again" in rows["Version"]


@scenario
async def test_bytes_that_somebody_changed(here: Proven) -> None:
    """The words on record stand in neither; none of them is shown as proved."""
    here.blob.write_bytes(OTHER.encode())
    chip, marked, rows = await here.said()
    assert (chip, marked, rows["The source says"]) == ("! Cannot be proved", [], "")
    assert "SHA-256 differs from the one on record" in rows["Version"]


def rewrite(cache: Cache, change: Callable[[str], str]) -> None:
    """Change the text of every document in the cache."""
    for entry in cache.folder.glob("v*/*"):
        if document := cache.get(entry.name):
            cache.drop(entry.name)
            cache.put(entry.name, replace(document, text=change(document.text)))


@scenario
async def test_a_text_that_somebody_changed_in_the_cache_is_read_again(here: Proven) -> None:
    cache = Cache(here.folder / "data/cache")
    rewrite(cache, lambda text: text.replace("everybody", "nobody at"))
    said = await here.said()
    assert is_proof(said)
    rewrite(cache, lambda text: text.replace("The monthly", "No monthly"))
    chip, marked, rows = await here.said()
    assert (chip, marked, rows["The source says"]) == ("! Cannot be proved", [], "")
    assert "the text that it reads from them is not the one that was checked" in rows["Version"]


def test_a_reader_who_leaves_while_it_is_read_again_costs_nobody_the_proof(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = tmp_path / "told"
    os.mkfifo(told)
    stuck = f"import time; open({str(told)!r}, 'w').close(); time.sleep(600)"

    async def main() -> None:
        async with proven(tmp_path) as here:
            rewrite(Cache(here.folder / "data/cache"), lambda text: text.replace("everybody", "nobody at"))
            with monkeypatch.context() as patch:
                patch.setattr("citewire.documents.reader._COMMAND", ("-c", stuck))
                leaving = asyncio.create_task(here.said())
                await asyncio.to_thread(told.read_bytes)
                leaving.cancel()
                await asyncio.gather(leaving, return_exceptions=True)
            assert is_proof(await here.said())

    asyncio.run(main())


def test_a_file_of_a_folder_that_changed_or_went(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    file = folder / "fee.txt"
    file.write_text(FEE)

    async def main() -> None:
        async with proven(tmp_path, sources=(str(folder),)) as here:
            watch = here.app.server.catalog.watch
            file.write_text(OTHER)
            for _ in range(2):
                await watch.poll()
            said = await here.said()
            assert is_proof(said)
            assert "has changed since" in said[2]["Version"]
            file.unlink()
            await watch.poll()
            said = await here.said()
            assert is_proof(said)
            assert "was removed since" in said[2]["Version"]

    asyncio.run(main())


def test_the_version_is_shown_after_a_restart(tmp_path: Path) -> None:
    key = Keyring(tmp_path / "data").create()

    async def first() -> str:
        async with proven(tmp_path, key=key) as here:
            await here.app.ask("POST", "/sources?name=fee.txt", OTHER.encode())
            return here.link

    async def second(link: str) -> None:
        async with opened_app(tmp_path / "data", key=key) as app:
            said = await Proven(app, tmp_path, link).said()
            assert is_proof(said)
            assert "has changed since" in said[2]["Version"]

    asyncio.run(second(asyncio.run(first())))


@pytest.mark.parametrize("status", ["unchanged", "changed"])
def test_a_verdict_without_a_hash_of_its_text_is_held_to_its_bytes(tmp_path: Path, status: str) -> None:
    """As verdicts of verifiers elsewhere are."""

    async def main() -> None:
        async with proven(tmp_path) as here:
            versions = here.app.server.versions
            [held] = here.app.server.catalog.holdings()
            if status == "changed":
                await here.app.ask("POST", "/sources?name=fee.txt", OTHER.encode())
            found = await versions.find(held.sha256 or "", "fee.txt", None)
            assert (found.state, found.document and found.document.text.strip()) == (status, FEE)
            wrong = await versions.find(held.sha256 or "", "fee.txt", "0" * 64)
            assert (wrong.state, wrong.document) == ("reads_differently", None)

    asyncio.run(main())
