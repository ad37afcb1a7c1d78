"""A catalog of sources over a memory store."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
from starlette.applications import Starlette
from starlette.requests import Request

from citewire.channels.hub import Hub
from citewire.channels.memory import MemoryStore
from citewire.channels.store import Store
from citewire.documents.cache import Cache
from citewire.librarian import PassageIndex
from citewire.server.access.capability import Capability
from citewire.server.access.keys import Caller
from citewire.server.http.operations import routes
from citewire.server.ops.limits import RequestLimits
from citewire.server.ops.settings import Settings
from citewire.server.sources.catalog import Catalog
from citewire.server.sources.source_api import SourceApi
from citewire.server.sources.versions import CheckedVersions
from citewire.server.storage.blobs import Blobs
from citewire.verification.document_set import CheckResult
from citewire.verification.engine import Engine
from citewire.verification.engine import EngineLimits as ReadingLimits
from citewire.verification.verifier import QuoteCheck

EVERYTHING = {"source:*": ["*"]}


class Desk:
    """A catalog with its operations over HTTP, and all that is under it."""

    def __init__(
        self,
        catalog: Catalog,
        blobs: Blobs,
        engine: Engine,
        index: PassageIndex,
        hub: Hub,
        settings: Settings,
    ) -> None:
        self.catalog, self.engine, self.index, self.hub, self.settings = catalog, engine, index, hub, settings
        self.versions = CheckedVersions(catalog, blobs, engine)
        self.http = self.as_caller(EVERYTHING)

    def as_caller(self, granted: dict[str, list[str]]) -> httpx2.AsyncClient:
        caller = Caller("app.key", Capability.of(granted))

        def authenticate(request: Request) -> Caller:
            return caller

        app = Starlette(routes=routes(SourceApi(self.catalog).operations(), authenticate))
        self.app = RequestLimits(app, self.settings, uploads=["/sources"])
        return httpx2.AsyncClient(transport=httpx2.ASGITransport(self.app), base_url="http://desk")

    async def read(self) -> dict[str, str]:
        """The state of each source by its name, once all were read."""
        async with aclosing(self.catalog.changes()) as changes:
            async for _ in changes:
                if not self.catalog.status()[0]:
                    break
        return {record.name: record.state for record in self.catalog.records()}

    async def upload(self, name: str, data: bytes, kind: str = "") -> dict[str, Any]:
        sent = await self.http.post(
            "/sources", params={"name": name}, content=data, headers={"content-type": kind}
        )
        assert sent.status_code in {200, 201}, sent.text
        return sent.json()["sources"][0]

    async def check(self, quote: str, source: str | None = None) -> CheckResult:
        async with aclosing(self.engine.check([QuoteCheck("q", quote, source)])) as found:
            return await anext(found)


@asynccontextmanager
async def desk(
    home: Path, *sources: Any, store: Store | None = None, fetch: Any = None, max_upload: int = 100 << 20,
    reading: ReadingLimits | None = None,
) -> AsyncGenerator[Desk]:  # fmt: skip
    os.makedirs(home, exist_ok=True)  # noqa: PTH103  # not a Path in a coroutine
    settings = Settings(sources=tuple(map(str, sources)), watch=False, max_upload=max_upload)
    hub, index = Hub(store or MemoryStore()), PassageIndex(home / "search.sqlite")
    blobs = Blobs(home / "sources")
    try:
        async with (
            Engine(cache=Cache(home / "cache"), workers=1, limits=reading) as engine,
            Catalog(hub, blobs, engine, index, settings, fetch=fetch) as catalog,
        ):
            # The first look is the catalog's own: after it, nothing is looked at but by the test.
            await asyncio.sleep(0)
            await catalog.watch.poll()
            yield Desk(catalog, blobs, engine, index, hub, settings)
    finally:
        index.close()
