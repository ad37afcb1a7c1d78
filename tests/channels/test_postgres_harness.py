"""What tests on Postgres rely on: a server that crashes, comes back, and leaves nothing behind."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import psycopg
import pytest

from support.cases import ROOT
from support.postgres import Postgres, need_postgres

_SERVE = """
from support.postgres import Postgres
server = Postgres()
print(server.dsn, flush=True)
with server:
    print("up", flush=True)
    input()
"""


def _numbers(dsn: str) -> list[int]:
    with psycopg.connect(dsn) as connection:
        return [n for (n,) in connection.execute("SELECT n FROM number ORDER BY n")]


def _folder(dsn: str) -> Path:
    return Path(parse_qs(urlsplit(dsn).query)["host"][0])


@pytest.mark.parametrize("end", [Postgres.crash, Postgres.stop])
def test_what_was_committed_is_there_after_the_end(end: Callable[[Postgres], None]) -> None:
    with Postgres() as server:
        with psycopg.connect(server.dsn, autocommit=True) as connection:
            connection.execute("CREATE TABLE number (n int)")
            connection.execute("INSERT INTO number VALUES (1)")
        open_one = psycopg.connect(server.dsn)
        open_one.execute("INSERT INTO number VALUES (2)")

        end(server)

        with pytest.raises(psycopg.OperationalError):
            open_one.commit()
        with pytest.raises(psycopg.OperationalError):
            psycopg.connect(server.dsn)
        server.start()
        assert _numbers(server.dsn) == [1]
    assert not _folder(server.dsn).exists()


def test_cut_connections_can_be_made_again(shared_postgres: Postgres) -> None:
    with psycopg.connect(shared_postgres.dsn) as connection:
        shared_postgres.kill_backends()
        with pytest.raises(psycopg.OperationalError):
            connection.execute("SELECT 1")
    with psycopg.connect(shared_postgres.dsn) as connection:
        assert connection.execute("SHOW fsync").fetchone() == ("on",)


@pytest.mark.parametrize("_again", [1, 2])
def test_every_test_has_an_empty_database(dsn: str, _again: int) -> None:
    with psycopg.connect(dsn) as connection:
        connection.execute("CREATE TABLE number (n int)")
    assert _numbers(dsn) == []


def test_a_database_is_dropped_whoever_is_connected(shared_postgres: Postgres) -> None:
    with shared_postgres.database() as dsn:
        connection = psycopg.connect(dsn)
    with connection, pytest.raises(psycopg.OperationalError):
        connection.execute("SELECT 1")
    with pytest.raises(psycopg.OperationalError, match="does not exist"):
        psycopg.connect(dsn)


def test_a_command_that_fails_says_why(shared_postgres: Postgres) -> None:
    with pytest.raises(RuntimeError, match="another server might be running"):
        shared_postgres.start()


@pytest.mark.parametrize("up", [False, True])
def test_nothing_is_left_of_a_run_that_was_killed(up: bool) -> None:
    need_postgres()
    command, pipe = [sys.executable, "-c", _SERVE], subprocess.PIPE
    with subprocess.Popen(
        command, cwd=ROOT / "tests", text=True, stdin=pipe, stdout=pipe, stderr=pipe
    ) as run:
        assert run.stdout
        folder = _folder(run.stdout.readline().strip())
        if up:
            assert run.stdout.readline() == "up\n"
        assert folder.exists()
        run.kill()
        # Comes back when nobody is left who could complain.
        assert run.communicate(timeout=30) == ("", "")
    assert not folder.exists()
