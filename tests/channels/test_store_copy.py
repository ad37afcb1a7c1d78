"""`citewire store copy`: what an embedded server kept is in the database as it was, or nothing is."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import sqlite3
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import psycopg
import pytest
from typer.testing import CliRunner, Result

from citewire import cli
from citewire.channels.postgres import PostgresStore
from citewire.channels.sqlite import SqliteStore
from citewire.channels.store import ChannelStore, StoreError
from citewire.server.storage import postgres_copy
from citewire.testing import check_log, entries, everything
from support.app import App, opened_app
from support.pdfs import Line, Sheet, make_pdf
from support.postgres import Postgres
from support.server_process import asked

POLICY = "You may return any lamp within 30 days of delivery. Shipping is not refunded."
PDF = make_pdf(Sheet([Line("A lamp has a warranty of two years from the day of its delivery.", y=700)]))
LINK = re.compile(r'/proofs/[^"\\]*')
TABLES = ("channel", "log", "slot", "erased", "link", "blob", "blob_part", "vault")


class Kept(NamedTuple):
    """An installation; its key, a token, signed links, and what its server answered."""

    folder: Path
    key: str
    token: str
    links: list[str]
    answers: dict[str, Any]


ASKED = ("/threads", "/threads/lamps", "/sources", "/channels/notes/messages", "/rules")


async def answers(app: App, key: str) -> dict[str, Any]:
    """What can be asked, but for the signatures of links, which are made anew as time goes by."""
    found = {path: await app.ask("GET", path, key=key) for path in ASKED}
    assert {path: answer.status for path, answer in found.items()} == dict.fromkeys(ASKED, 200)
    return {path: re.sub(r"\?sig=[^\"\\]*", "", answer.body.decode()) for path, answer in found.items()}


async def _used(folder: Path) -> Kept:
    async with opened_app(folder) as app:
        for name, data in (("policy.txt", POLICY.encode()), ("warranty.pdf", PDF)):
            assert (await app.ask("POST", f"/sources?name={name}", data)).status == 201
        await app.server.catalog.wait_until_read()
        for thread, text in (("lamps", "May I return a lamp?"), ("gone", "What warranty has a lamp?")):
            assert (await app.ask("POST", "/agui", asked(thread, text=text))).status == 200
        assert (await app.ask("DELETE", "/threads/gone")).status == 204
        assert (await app.ask("PUT", "/rules/notes", {"mutable": True})).status == 200
        for n in range(9):
            said = await app.ask("POST", "/channels/notes/messages", {"data": f"note {n}"})
            about = f"/channels/notes/messages/{quote(said.json['serials'][0], safe='')}/annotations"
            for who in ("ada", "bob"):
                note = {"type": "like:flag.v1", "clientId": who}
                assert (await app.ask("POST", about, note)).status == 201
        store = app.server.hub.store
        assert isinstance(store, SqliteStore)
        rows = await store.append("trimmed", entries(*"abcdef", data=b"\0\xff"))
        await store.trim("trimmed", rows[3].cursor)
        rows = await store.append("hollow", entries("a"))
        await store.trim("hollow", rows[0].cursor)
        await app.server.trail.sign()
        token = app.token({"*": ["*"]}, 3600)
        found = await answers(app, app.key)
        links = LINK.findall((await app.ask("GET", "/threads/lamps")).body.decode())
        assert links
        return Kept(folder, app.key, token, links, found)


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Kept:
    """An installation in which much has happened."""
    return asyncio.run(_used(tmp_path_factory.mktemp("copy") / "data"))


@pytest.fixture
def folder(kept: Kept, tmp_path: Path) -> Path:
    """The installation, to be harmed."""
    return Path(shutil.copytree(kept.folder, tmp_path / "data"))


def run(*arguments: str | Path) -> Result:
    # Without settings of whoever runs the tests.
    env = dict.fromkeys((name for name in os.environ if name.startswith("CITEWIRE_")), None)
    return CliRunner(env={**env, "COLUMNS": "100", "NO_COLOR": "1", "TERM": "dumb"}).invoke(
        cli.app, [*map(str, arguments)], prog_name="citewire"
    )


def copied(folder: Path, dsn: str) -> str:
    done = run("store", "copy", folder, dsn)
    assert (done.exit_code, done.stderr) == (0, "")
    return done.stdout


def refused(folder: Path, dsn: str) -> str:
    done = run("store", "copy", folder, dsn)
    assert (done.exit_code, done.stdout) == (2, "")
    [line] = done.stderr.splitlines()
    return line


def count(dsn: str) -> dict[str, int]:
    """How many rows each table has, where there are tables."""
    with psycopg.connect(dsn) as db:
        found = db.execute("SELECT to_regclass('citewire.vault')").fetchone()
        if found == (None,):
            return dict.fromkeys(TABLES, 0)
        counts = (db.execute(f"SELECT count(*) FROM citewire.{name}".encode()).fetchone() for name in TABLES)
        return {name: row[0] for name, row in zip(TABLES, counts, strict=True) if row}


NOTHING = dict.fromkeys(TABLES, 0)


async def contents(store: ChannelStore) -> dict[str, Any]:
    """All that a store tells, its logs looked at."""
    found: dict[str, Any] = {}
    for head in await store.heads("", limit=10_000):
        rows, floor = await everything(store, head.channel, 100), await store.floor(head.channel)
        check_log(rows, floor)
        slots = await store.slots(head.channel, "", "\U0010ffff", 10_000)
        found[head.channel] = head, floor, rows, slots
    erased = await store.erased("", limit=10_000)
    return found | {"": [(each, await store.links(each.head.epoch, limit=10_000)) for each in erased]}


async def of_folder(folder: Path) -> dict[str, Any]:
    store = SqliteStore(folder)
    try:
        return await contents(store)
    finally:
        await store.close()


async def of_database(dsn: str) -> dict[str, Any]:
    store = await PostgresStore.open(dsn)
    try:
        return await contents(store)
    finally:
        await store.close()


# --- a whole copy -----------------------------------------------------------------------------------------


def test_every_row_is_as_it_was(folder: Path, dsn: str) -> None:
    """Numbers, ticks, ids, epochs, hashes, slots, floors, and what is left of dropped channels."""
    said = copied(folder, dsn)
    before, after = asyncio.run(of_folder(folder)), asyncio.run(of_database(dsn))
    assert after == before
    assert {"sources", "run:lamps", "channel:notes", "trimmed", "hollow"} <= {*before}
    assert before["trimmed"][1].n == 4
    assert before["hollow"][2] == []
    assert before["channel:notes"][3]
    assert before[""]
    rows = sum(len(each[2]) for name, each in before.items() if name)
    assert f"{len(before) - 1} channels, {rows:,} rows" in said
    assert "verified" in said


def test_a_node_goes_on_with_it(kept: Kept, folder: Path, dsn: str, tmp_path: Path) -> None:
    """The same answers, proofs, sources and keys; and the next row of everything comes after the last."""
    copied(folder, dsn)
    shutil.rmtree(folder)

    async def main() -> None:
        async with opened_app(tmp_path / "node", store=dsn, key=kept.key) as app:
            await app.server.catalog.wait_until_read()
            assert await answers(app, kept.key) == kept.answers
            assert await answers(app, kept.token) == kept.answers
            for link in kept.links:
                proof = await app.ask("GET", link, key=None)
                assert (proof.status, len(proof.body) > 500) == (200, True), link
            for thread in ("lamps", "new"):
                run_input = asked(thread, "r2", "What warranty has a lamp?")
                answer = await app.ask("POST", "/agui", run_input)
                assert b'"verified"' in answer.body
                assert (await app.ask("DELETE", f"/threads/{thread}")).status == 204

    asyncio.run(main())
    after = asyncio.run(of_database(dsn))
    assert [each.no for each, _ in after[""]] == sorted({each.no for each, _ in after[""]})
    assert {each.head.channel for each, _ in after[""]} >= {"run:gone", "run:lamps", "run:new"}


def test_an_export_from_before_holds_with_the_database(folder: Path, dsn: str, tmp_path: Path) -> None:
    file = tmp_path / "record.jsonl"
    assert run("audit", "export", "--data", folder, "-o", file).exit_code == 0
    copied(folder, dsn)
    public = run("audit", "key", "show", "--data", folder).stdout.strip()
    done = run("audit", "verify", file, "--store", dsn, "--public-key", public)
    assert done.exit_code == 0, done.output
    assert done.stdout.startswith("whole: ")
    again = tmp_path / "again.jsonl"
    assert run("audit", "export", "--store", dsn, "-o", again).exit_code == 0
    first, second = (each.read_bytes().splitlines()[1:-1] for each in (file, again))
    assert first == second


def test_a_copy_that_is_there_is_looked_at_again(folder: Path, dsn: str) -> None:
    """Where nobody learned that it was committed, the same command says so and changes nothing."""
    first = copied(folder, dsn)
    before = asyncio.run(of_database(dsn))
    assert copied(folder, dsn) == first.replace("copied:", "there already:")
    assert asyncio.run(of_database(dsn)) == before


def test_a_large_installation_goes_in_batches(
    folder: Path, dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_copy, "_ROWS", 7)
    copied(folder, dsn)
    assert asyncio.run(of_database(dsn)) == asyncio.run(of_folder(folder))


def test_a_log_apart_from_the_data(folder: Path, dsn: str, tmp_path: Path) -> None:
    (tmp_path / "log").mkdir()
    (folder / "log.sqlite").rename(tmp_path / "log" / "log.sqlite")
    assert run("store", "copy", tmp_path / "log", dsn, "--data", folder).exit_code == 0
    assert count(dsn)["vault"] == 3  # the keys, the secret and the audit key
    assert count(dsn)["blob"] == 2


def test_a_secret_of_the_environment_is_asked_for(folder: Path, dsn: str) -> None:
    (folder / "secret").unlink()
    done = run("store", "copy", folder, dsn)
    assert done.exit_code == 0
    assert "CITEWIRE_SECRET" in done.stderr


# --- nothing but a whole one ------------------------------------------------------------------------------


def _sql(statement: str) -> Callable[[Path], None]:
    def harm(folder: Path) -> None:
        with sqlite3.connect(folder / "log.sqlite") as db:
            assert db.execute(statement).rowcount
        db.close()

    return harm


def _other_bytes(folder: Path) -> None:
    next((folder / "sources").glob("??/*")).write_bytes(b"others")


OF_NOTES = "channel = (SELECT no FROM channel WHERE name = 'channel:notes')"
HARMS: Mapping[str, tuple[Callable[[Path], None], str]] = {
    "data": (_sql(f"UPDATE log SET data = x'00' WHERE {OF_NOTES} AND n = 2"), "channel:notes at row 3"),
    "a row less": (_sql(f"DELETE FROM log WHERE {OF_NOTES} AND n = 2"), "channel:notes at row 2"),
    "first hash": (
        _sql("UPDATE channel SET floor_hash = x'00' WHERE name = 'channel:notes'"),
        "channel:notes",
    ),
    "floor": (_sql("UPDATE channel SET floor_hash = x'00' WHERE name = 'trimmed'"), "trimmed at row 5"),
    "name": (_sql("UPDATE channel SET name = 'other' WHERE name = 'channel:notes'"), "other"),
    "link": (_sql("UPDATE link SET content = x'00' WHERE n = 1"), "at row"),
    "last link": (_sql("DELETE FROM link WHERE n = (SELECT max(n) FROM link)"), "at row"),
    "no channel": (_sql("DELETE FROM channel WHERE name = 'channel:notes'"), "the table"),
    "bytes": (_other_bytes, "its bytes are not those"),
}


@pytest.mark.parametrize("harm", HARMS)
def test_what_is_damaged_is_not_copied(harm: str, folder: Path, dsn: str) -> None:
    """It is said where, and the database stays empty."""
    do, where = HARMS[harm]
    do(folder)
    said = refused(folder, dsn)
    assert "damaged" in said
    assert where in said
    assert count(dsn) == NOTHING


def test_others_could_have_read_the_secret(folder: Path, dsn: str) -> None:
    (folder / "secret").chmod(0o644)
    assert "others can read" in refused(folder, dsn)
    assert count(dsn) == NOTHING


def test_while_a_server_has_the_folder(folder: Path, dsn: str) -> None:
    async def main() -> str:
        store = SqliteStore(folder)
        try:
            return await asyncio.to_thread(refused, folder, dsn)
        finally:
            await store.close()

    assert "is used by process" in asyncio.run(main())
    assert count(dsn) == NOTHING


def test_where_there_is_no_log(tmp_path: Path, dsn: str) -> None:
    assert "there is no log" in refused(tmp_path / "none", dsn)
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize("address", ["", "somewhere", "mysql://u:secret@h/d"])
def test_what_is_no_address(folder: Path, address: str) -> None:
    assert "secret" not in refused(folder, address)


def test_a_database_that_cannot_be_reached(folder: Path) -> None:
    said = refused(folder, "postgresql://u:hush@127.0.0.1:1/d")
    assert "cannot be reached" in said
    assert "hush" not in said


def test_a_database_with_other_channels(folder: Path, dsn: str) -> None:
    async def fill() -> None:
        store = await PostgresStore.open(dsn)
        await store.append("mine", entries("a"))
        await store.close()

    asyncio.run(fill())
    assert "an empty one" in refused(folder, dsn)
    assert count(dsn) == NOTHING | {"channel": 1, "log": 1}


def test_a_database_with_keys_of_its_own(folder: Path, dsn: str) -> None:
    """A node was started there before: its secret is not overwritten."""
    assert run("keys", "create", "--store", dsn).exit_code == 0
    before = count(dsn)
    assert "an empty one" in refused(folder, dsn)
    assert count(dsn) == before


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE citewire.slot SET value = 'x' WHERE key = (SELECT min(key) FROM citewire.slot)",
        "UPDATE citewire.channel SET hash = 'x' WHERE name = 'trimmed'",
        "UPDATE citewire.log SET data = 'x' WHERE n = 1",
        "DELETE FROM citewire.blob",
        "UPDATE citewire.vault SET data = 'x'",
    ],
)
def test_a_copy_that_was_changed_since(statement: str, folder: Path, dsn: str) -> None:
    copied(folder, dsn)
    with psycopg.connect(dsn) as db:
        assert db.execute(statement.encode()).rowcount
    assert "in use" in refused(folder, dsn)


def test_while_others_use_the_database(folder: Path, dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As another copy does, whose end is not waited for."""
    monkeypatch.setattr(postgres_copy, "_ALONE", postgres_copy.__dict__["_ALONE"].replace("5000", "50"))
    asyncio.run(_prepared(dsn))
    with psycopg.connect(dsn) as db:
        db.execute("SELECT FROM citewire.vault")
        assert "in use" in refused(folder, dsn)
    assert count(dsn) == NOTHING


async def _prepared(dsn: str) -> None:
    await (await PostgresStore.open(dsn)).close()


@pytest.mark.parametrize("how", ["cut", "crash", "interrupt"])
def test_an_interrupted_copy_never_was(how: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever was sent by then; and the next one is whole."""
    with Postgres() as server:
        monkeypatch.setattr(postgres_copy, "_ROWS", 20)
        told = list[Mapping[str, int]]()

        def tell(_: str, rows: Mapping[str, int]) -> None:
            told.append(rows)
            if len(told) == 3:
                match how:
                    case "cut":
                        server.kill_backends()
                    case "crash":
                        server.crash()
                        server.start()
                    case _:
                        raise KeyboardInterrupt

        with pytest.raises((StoreError, KeyboardInterrupt)):
            asyncio.run(postgres_copy.copy_to_postgres(folder, folder, server.dsn, tell))
        assert len(told) == 3
        assert count(server.dsn) == NOTHING
        assert copied(folder, server.dsn).startswith("copied: ")
        assert asyncio.run(of_database(server.dsn)) == asyncio.run(of_folder(folder))
