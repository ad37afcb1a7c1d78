"""The verifier whose quotes are checked by workers keeps the contract of `Verifier`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from citewire.verification.verifier import Verifier
from support.postgres import Postgres
from support.verifier_contract import Opener, VerifierContract
from support.worker_process import Working, node

# The worker is started like by people, which takes seconds on a busy machine.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]


@pytest.fixture(scope="module")
def busy_dsn(shared_postgres: Postgres, tmp_path_factory: pytest.TempPathFactory) -> Generator[str]:
    """The address of a database whose jobs a worker takes, for all tests of this module."""
    with shared_postgres.database() as dsn, asyncio.Runner() as runner:
        worker = Working(dsn, tmp_path_factory.mktemp("worker"))
        runner.run(worker.__aenter__())
        try:
            yield dsn
        finally:
            runner.run(worker.__aexit__())


class TestJobVerifier(VerifierContract):
    @pytest.fixture
    def opened(self, busy_dsn: str, tmp_path: Path) -> Opener:
        @asynccontextmanager
        async def opened() -> AsyncGenerator[Verifier]:
            async with node(busy_dsn, tmp_path / "node") as one:
                yield one.verifier

        return opened
