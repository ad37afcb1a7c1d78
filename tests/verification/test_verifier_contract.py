"""The verifiers of this process and of another server keep the contract of `Verifier`."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from citewire.documents.cache import Cache
from citewire.server.access.capability import Capability
from citewire.verification.engine import Engine
from citewire.verification.remote import RemoteVerifier
from citewire.verification.verifier import Verifier
from support.app import listening, opened_app
from support.verifier_contract import Opener, VerifierContract

pytestmark = pytest.mark.slow


class TestEngine(VerifierContract):
    @pytest.fixture
    def opened(self, tmp_path: Path) -> Opener:
        @asynccontextmanager
        async def opened() -> AsyncGenerator[Verifier]:
            async with Engine(cache=Cache(tmp_path / "cache"), workers=1) as engine:
                yield engine

        return opened


class TestRemoteVerifier(VerifierContract):
    @pytest.fixture
    def opened(self, tmp_path: Path) -> Opener:
        @asynccontextmanager
        async def opened() -> AsyncGenerator[Verifier]:
            async with opened_app(tmp_path) as app, listening(app) as (host, port):
                key = app.server.keyring.create(Capability.of({"attachments": ["*"], "verify": ["*"]}))
                async with RemoteVerifier(
                    f"http://{host}:{port}", key, deadline=None, timeout=60
                ) as verifier:
                    yield verifier

        return opened
