"""What every `Blobs` promises, for a folder and for a shared Postgres database."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from hashlib import sha256
from pathlib import Path
from typing import TypeAlias

import pytest

from citewire.documents.errors import DocumentError
from citewire.server.storage.backend import open_store
from citewire.server.storage.blobs import Blobs
from citewire.server.storage.blobs_postgres import PART, PostgresBlobs

DATA = b"The fee is 40 dollars.\n" * 1000
NAME = sha256(DATA).hexdigest()
NOWHERE = "0" * 64

Opener: TypeAlias = Callable[[], AbstractAsyncContextManager[Blobs]]


async def keep(blobs: Blobs, data: bytes) -> str:
    """Store bytes as an upload does, and return their name."""
    async with blobs.draft() as draft:
        for start in range(0, len(data), 4096):
            await draft.write(data[start : start + 4096])
        await draft.finish()
        await blobs.share(draft)
        await blobs.keep(draft)
    return draft.sha256


class BlobsContract:
    """Subclass it with a fixture `opened` that opens the same blobs again at each call."""

    def run(self, opened: Opener, test: Callable[[Blobs], Awaitable[None]]) -> None:
        async def main() -> None:
            async with opened() as blobs:
                await test(blobs)

        asyncio.run(main())

    def test_bytes_are_kept_under_their_hash(self, opened: Opener) -> None:
        async def test(blobs: Blobs) -> None:
            assert await keep(blobs, DATA) == await keep(blobs, DATA) == NAME
            path = await blobs.fetch(NAME)
            assert path is not None
            assert path == blobs.path(NAME)
            assert path.read_bytes() == DATA
            assert await blobs.list_hashes() == {NAME}
            assert await blobs.is_intact(NAME)
            await blobs.ensure_local(NAME)

        self.run(opened, test)

    def test_they_are_there_when_it_is_opened_again(self, opened: Opener) -> None:
        async def first(blobs: Blobs) -> None:
            await keep(blobs, DATA)

        async def then(blobs: Blobs) -> None:
            assert await blobs.touch([NAME, NOWHERE]) == {NAME}
            assert await blobs.fetch(NAME)

        self.run(opened, first)
        self.run(opened, then)

    def test_a_draft_that_is_not_kept_leaves_nothing(self, opened: Opener) -> None:
        async def test(blobs: Blobs) -> None:
            async with blobs.draft() as draft:
                await draft.write(DATA)
                await draft.finish()
            assert await blobs.list_hashes() == set()
            assert not draft.path.exists()

        self.run(opened, test)

    @pytest.mark.parametrize("size", [0, 1, PART - 1, PART, PART + 1], ids=str)
    def test_any_size(self, opened: Opener, size: int) -> None:
        async def test(blobs: Blobs) -> None:
            data = b"x" * size
            name = await keep(blobs, data)
            path = await blobs.fetch(name)
            assert path is not None
            assert path.read_bytes() == data

        self.run(opened, test)

    def test_bytes_that_are_not_there(self, opened: Opener) -> None:
        async def test(blobs: Blobs) -> None:
            assert await blobs.fetch(NOWHERE) is None
            assert not await blobs.is_intact(NOWHERE)
            assert await blobs.touch([NOWHERE]) == set()
            assert await blobs.delete([NOWHERE]) == set()
            with pytest.raises(DocumentError):
                await blobs.ensure_local(NOWHERE)

        self.run(opened, test)

    @pytest.mark.parametrize("name", ["", "../x", "A" * 64, "0" * 63, f"{'0' * 64}\n"])
    def test_a_name_that_is_no_hash_is_no_path(self, opened: Opener, name: str) -> None:
        async def test(blobs: Blobs) -> None:
            with pytest.raises(ValueError, match="not a sha256"):
                blobs.path(name)

        self.run(opened, test)

    def test_copies_that_nobody_needs_go(self, opened: Opener) -> None:
        async def test(blobs: Blobs) -> None:
            await keep(blobs, DATA)
            await keep(blobs, b"other")
            await blobs.drop_copies(lambda name: name == NAME)
            assert blobs.path(NAME).is_file()
            assert not blobs.path(sha256(b"other").hexdigest()).exists()

        self.run(opened, test)


class TestFolder(BlobsContract):
    @pytest.fixture
    def opened(self, tmp_path: Path) -> Opener:
        @asynccontextmanager
        async def opened() -> AsyncGenerator[Blobs]:
            blobs = Blobs(tmp_path / "sources")
            await blobs.open()
            yield blobs

        return opened

    def test_deleted_bytes_are_gone(self, opened: Opener) -> None:
        async def test(blobs: Blobs) -> None:
            await keep(blobs, DATA)
            assert await blobs.delete([NAME]) == set()
            assert await blobs.fetch(NAME) is None

        self.run(opened, test)

    def test_damaged_bytes_are_found(self, opened: Opener) -> None:
        async def test(blobs: Blobs) -> None:
            await keep(blobs, DATA)
            blobs.path(NAME).write_bytes(b"other")
            assert not await blobs.is_intact(NAME)

        self.run(opened, test)


class TestPostgres(BlobsContract):
    @pytest.fixture
    def opened(self, dsn: str, tmp_path: Path) -> Opener:
        @asynccontextmanager
        async def opened() -> AsyncGenerator[Blobs]:
            store = await open_store(dsn)
            try:
                blobs = PostgresBlobs(tmp_path / "sources", store.db, "sources")
                await blobs.open()
                yield blobs
            finally:
                await store.close()

        return opened

    def test_damaged_copies_are_fetched_again(self, opened: Opener) -> None:
        async def test(blobs: Blobs) -> None:
            await keep(blobs, DATA)
            blobs.path(NAME).write_bytes(b"other")
            assert await blobs.is_intact(NAME)
            assert blobs.path(NAME).read_bytes() == DATA

        self.run(opened, test)
