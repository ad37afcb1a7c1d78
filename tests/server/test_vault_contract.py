"""What every `Vault` promises, for files and for Postgres."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from citewire.channels.postgres_database import prepare_schema
from citewire.errors import CitewireError
from citewire.server.storage.vault import FileVault, Vault
from citewire.server.storage.vault_postgres import PostgresVault


class VaultContract:
    """Subclass it with a fixture `opened` that opens the same vault again at each call."""

    def test_a_name_without_a_value(self, opened: Callable[[], Vault]) -> None:
        vault = opened()
        assert (vault.read("a"), vault.read("a", secret=True), vault.version("a")) == (None, None, None)

    def test_a_value_is_visible_once_the_lock_is_released(self, opened: Callable[[], Vault]) -> None:
        vault = opened()
        with vault.lock():
            vault.write("a", b"one")
        assert vault.read("a") == vault.read("a", secret=True) == opened().read("a") == b"one"

    def test_within_the_lock_the_last_write_counts(self, opened: Callable[[], Vault]) -> None:
        vault, other = opened(), opened()
        with other.lock():
            other.write("a", b"one")
        with vault.lock():
            assert vault.read("a") == b"one"
            vault.write("a", b"two")
            vault.write("b", b"")
        assert [opened().read(name) for name in ("a", "b", "c")] == [b"two", b"", None]

    def test_the_version_changes_with_every_write(self, opened: Callable[[], Vault]) -> None:
        vault, seen = opened(), set[object]()
        for _ in range(5):
            with vault.lock():
                vault.write("a", b"the same")
            assert vault.version("a") == vault.version("a")
            seen.add(vault.version("a"))
        assert len(seen) == 5

    def test_a_write_that_fails_leaves_the_lock(self, opened: Callable[[], Vault]) -> None:
        vault = opened()
        with pytest.raises(ZeroDivisionError), vault.lock():
            raise ZeroDivisionError
        with opened().lock():
            pass

    def test_one_at_a_time(self, opened: Callable[[], Vault]) -> None:
        """Every increment counts, although each reads, waits for the others and writes."""
        first = opened()
        with first.lock():
            first.write("n", b"0")

        def count() -> None:
            vault = opened()
            for _ in range(5):
                with vault.lock():
                    vault.write("n", b"%d" % (int(vault.read("n") or b"0") + 1))

        threads = [threading.Thread(target=count) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        assert opened().read("n") == b"20"

    def test_it_says_where_it_is(self, opened: Callable[[], Vault]) -> None:
        vault = opened()
        assert vault.location()
        assert "keys.json" in vault.location("keys.json")


class TestFileVault(VaultContract):
    @pytest.fixture
    def opened(self, tmp_path: Path) -> Callable[[], Vault]:
        return lambda: FileVault(tmp_path / "vault")

    def test_a_secret_that_others_can_read_is_refused(
        self, opened: Callable[[], Vault], tmp_path: Path
    ) -> None:
        vault = opened()
        with vault.lock():
            vault.write("secret", b"x")
        (tmp_path / "vault/secret").chmod(0o644)
        with pytest.raises(CitewireError) as caught:
            vault.read("secret", secret=True)
        assert caught.value.code == "bad_keyring"


class TestPostgresVault(VaultContract):
    @pytest.fixture
    def opened(self, dsn: str) -> Callable[[], Vault]:
        asyncio.run(prepare_schema(dsn))
        return lambda: PostgresVault(dsn)

    def test_a_write_outside_the_lock_is_a_mistake(self, opened: Callable[[], Vault]) -> None:
        with pytest.raises(RuntimeError):
            opened().write("a", b"x")
