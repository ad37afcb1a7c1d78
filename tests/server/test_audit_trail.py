"""Who did what, and the keys that sign it: recorded by a server that runs, verified by the command line."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

import jwt
import msgspec
import pytest
from msgspec.structs import replace
from typer.testing import CliRunner

from citewire import cli
from citewire.audit.audit_filter import AuditFilter
from citewire.audit.export_check import check_export
from citewire.audit.findings import Findings
from citewire.audit.heads import HeadSuperseded, HeadWriter
from citewire.audit.jsonl_export import export_jsonl
from citewire.audit.signing import AuditKey, KeyProblem, TrustedKeys, check_public_key, key_id
from citewire.audit.statements import (
    ApiKey,
    Position,
    Removal,
    SignedHead,
    Statement,
    read_head,
    read_statement,
)
from citewire.audit.store_check import check_store
from citewire.channels.actor import SERVER, Actor
from citewire.channels.hub import Hub
from citewire.channels.lease import SingleProcessLeases
from citewire.channels.memory import MemoryStore
from citewire.channels.postgres import PostgresStore
from citewire.channels.sqlite import SqliteStore
from citewire.channels.sqlite_log import SqliteLog
from citewire.channels.store import Change, Entry, Log, SlotValues
from citewire.channels.store_rules import now_ms
from citewire.errors import InputError, ShapeError
from citewire.server.access.capability import Capability
from citewire.server.access.sessions import PAGE_CAPABILITIES, PageName
from citewire.server.records.audit_trail import AuditTrail
from citewire.server.storage.vault import FileVault
from support.app import App, opened_app
from support.audit_cli import audit
from support.clock import clock, on_clock

Json = dict[str, Any]


async def _statements(app: App) -> list[Statement]:
    rows = await app.server.hub.store.read("audit:")
    return [each for row in rows if (each := read_statement(row)) is not None]


def _token(app: App, client: str, person: str | None = None, granted: Json | None = None) -> str:
    """A token as somebody's own server signs it."""
    name, secret = app.key.split(":")
    now = int(time.time())
    claims: Json = {"iat": now, "exp": now + 60, "sub": client, "capability": granted or {"[*]*": ["*"]}}
    if person:
        claims["person"] = person
    return jwt.encode(claims, secret, algorithm="HS256", headers={"kid": name})


def test_rows_say_who(tmp_path: Path) -> None:
    """Key, client and person: for a deletion, sources, a rule, keys and a review."""

    async def main() -> None:
        async with opened_app(tmp_path, agent="support.audit_cli:agent") as app:
            name, store = app.key.partition(":")[0], app.server.hub.store
            ada = _token(app, "ada", "Ada Lovelace")
            who = Actor(name, "ada", "Ada Lovelace")
            source = (await app.ask("POST", "/sources?name=a.txt", b"One.", key=ada)).json["sources"][0]
            await app.ask("POST", "/sources?name=a.txt", b"Two.", key=ada)
            await app.ask("DELETE", f"/sources/{source['id']}", key=ada)
            found = (await app.ask("GET", f"/sources/{source['id']}/versions")).json["versions"]
            assert [(each["number"], each["removed"], each["size"]) for each in found] == [
                (1, False, 4), (2, False, 4), (3, True, 0),
            ]  # fmt: skip
            assert all(each["by"] == msgspec.to_builtins(who) and each["at"] for each in found)
            assert found[0]["sha256"] == source["sha256"] != found[1]["sha256"]
            await app.ask("PUT", "/rules/support:*", {"retention": "30d"}, key=ada)
            [rule] = await store.read("rules:")
            said = json.loads(rule.data)
            assert (said["key"], said["clientId"], said["person"]) == (name, "ada", "Ada Lovelace")
            asked: Json = {"threadId": "quiet", "runId": "r", "messages": []}
            assert (await app.ask("POST", "/agui", asked, key=ada)).status == 200
            review = {
                "messageId": "m",
                "key": "k",
                "event": "citation_reviewed",
                "at": "2001-01-01T00:00:00Z",
            }
            assert (await app.ask("POST", "/threads/quiet/reviews", review, key=ada)).status == 204
            row = (await store.read("run:quiet"))[-1]
            kept = json.loads(row.data)
            assert (kept["account"], kept["clientId"], kept["person"]) == (name, "ada", "Ada Lovelace")
            assert kept["review"]["claimedAt"].startswith("2001-01-01")
            assert kept["review"]["at"] > "2026"
            assert (await app.ask("DELETE", "/threads/quiet", key=ada)).status == 204
            await app.server.trail.record_keys()
            statements = await _statements(app)
            removals = {each.channel: each.by for each in statements if isinstance(each, Removal)}
            assert removals["run:quiet"] == who
            assert removals.get("channel:ai:quiet", SERVER) == SERVER
            [key] = [each for each in statements if isinstance(each, ApiKey)]
            assert (key.name, key.created_by) == (name, SERVER)

    asyncio.run(main())


def test_keys_of_the_command_line(tmp_path: Path) -> None:
    """A key that somebody makes and revokes there is recorded with the user of the system."""

    def keys(*arguments: str) -> None:
        done = CliRunner().invoke(cli.app, ["keys", *arguments, "--data", str(tmp_path)])
        assert done.exit_code == 0, done.output

    async def main() -> list[ApiKey]:
        async with opened_app(tmp_path, agent="support.audit_cli:agent") as app:
            await asyncio.to_thread(keys, "create", "--name", "shop.reader")
            await app.server.trail.record_keys()
            await asyncio.to_thread(keys, "revoke", "shop.reader")
            await app.server.trail.sign()
            return [each for each in await _statements(app) if isinstance(each, ApiKey)]

    made, revoked = [each for each in asyncio.run(main()) if each.name == "shop.reader"]
    assert (made.created_by.via, made.revoked) == ("command", None)
    assert made.created_by.person
    assert revoked.revoked_by == made.created_by
    assert revoked.revoked is not None


@pytest.mark.parametrize("session", sorted(PAGE_CAPABILITIES))
def test_pages_may_add_and_not_replace(session: PageName, tmp_path: Path) -> None:
    """The same bytes again change nothing and are allowed; other bytes need a right of their own."""

    async def main() -> None:
        async with opened_app(tmp_path, agent="support.audit_cli:agent") as app:
            granted = PAGE_CAPABILITIES[session].plain()
            page = _token(app, "browser", granted=granted)
            added = await app.ask("POST", "/sources?name=a.txt", b"One.", key=page)
            assert added.status == 201
            assert (await app.ask("POST", "/sources?name=a.txt", b"One.", key=page)).status == 200
            refused = await app.ask("POST", "/sources?name=a.txt", b"Two.", key=page)
            assert (refused.status, refused.code) == (403, "forbidden")
            source_id = added.json["sources"][0]["id"]
            assert (await app.ask("GET", f"/sources/{source_id}/content")).body == b"One."
            one = Capability.of(granted | {f"source:{source_id}": ["add", "read", "replace"]}).plain()
            editor = _token(app, "editor", granted=one)
            assert (await app.ask("POST", "/sources?name=a.txt", b"Two.", key=editor)).status == 201
            assert (await app.ask("POST", "/sources?name=b.txt", b"One.", key=editor)).status == 201
            assert (await app.ask("POST", "/sources?name=b.txt", b"Two.", key=editor)).status == 403

    asyncio.run(main())


def test_heads_over_http_and_in_a_file(tmp_path: Path) -> None:
    """Each export over HTTP has a head of its own moment; the file of heads has them all, for its owner."""
    heads = tmp_path / "heads.jsonl"

    async def main() -> tuple[list[bytes], str, SignedHead]:
        async with opened_app(
            tmp_path / "data", agent="support.audit_cli:agent", audit_heads=str(heads)
        ) as app:
            asked: Json = {"threadId": "quiet", "runId": "r", "messages": []}
            assert (await app.ask("POST", "/agui", asked)).status == 200
            lines = (await app.ask("GET", "/audit")).body.splitlines(keepends=True)
            return lines, app.server.trail.key.public, read_head(heads.read_bytes())

    lines, public, head = asyncio.run(main())
    report = check_export(lines, TrustedKeys([public]), [head])
    assert (report.breaks, report.is_signed, report.trust.known) == ([], True, {public})
    assert report.audit.heads[-1] == head
    assert any(each.channel == "run:quiet" for each in report.audit.positions.values())
    assert heads.stat().st_mode & 0o077 == 0
    # Whoever makes the export anew and cannot sign it is found out, with the key or with the head.
    start = next(at for at, line in enumerate(lines) if b'"thread":"quiet"' in line and b'"chain"' in line)
    forged = [*lines[:start], *lines[-1:]]
    says = [each.what for each in check_export(forged, TrustedKeys([public]), [head]).breaks]
    assert "a signed head has it, the export has not" in says
    folder = tmp_path / "head.json"
    folder.write_bytes(json.dumps(json.loads(msgspec.json.encode(head)), indent=2).encode())
    arguments = ("verify", "--data", tmp_path / "data", "--head", folder, "--public-key", public)
    done = audit(*arguments)
    assert done.exit_code == 0, done.output
    folder.write_bytes(msgspec.json.encode(head).replace(b'"number":', b'"number":1'))
    done = audit(*arguments)
    assert done.exit_code == 1
    assert "kept elsewhere: its signature is wrong" in done.stdout


async def _heads(log: Log) -> list[SignedHead]:
    rows = await log.read("audit:")
    return [each for row in rows if isinstance(each := read_statement(row), SignedHead)]


def _kept_heads(folder: Path) -> list[SignedHead]:
    """The heads in the store of a folder."""

    async def main() -> list[SignedHead]:
        log = SqliteLog.open(folder)
        try:
            return await _heads(log)
        finally:
            await log.close()

    return asyncio.run(main())


@pytest.fixture
def stopped(tmp_path: Path) -> tuple[Path, str]:
    """The data folder of a server that crashed after its last head, and its public key."""
    folder = tmp_path / "data"

    async def main() -> str:
        async with opened_app(folder, agent="support.audit_cli:agent") as app:
            await app.server.trail.sign()
            public = app.server.trail.key.public
        store = SqliteStore(folder)
        await store.append("run:later", [Entry("a", "event", b"{}")])
        await store.close()
        return public

    return folder, asyncio.run(main())


@pytest.mark.parametrize("form", ["jsonl", "csv", "html"])
def test_an_export_of_the_command_line_writes_a_head(form: str, stopped: tuple[Path, str]) -> None:
    """It covers what is newer than the last head. Where nothing is, no further head is written."""
    folder, public = stopped
    file, heads = folder / f"out.{form}", folder.parent / "heads.jsonl"
    before = _kept_heads(folder)
    arguments = ("export", "--data", folder, "--format", form, "-o", file, "--audit-heads", heads)
    done = audit(*arguments)
    assert (done.exit_code, done.output) == (0, "")
    *earlier, last = after = _kept_heads(folder)
    assert (earlier, last.key) == (before, public)
    assert read_head(heads.read_bytes()) == last
    done = audit("verify", "--data", folder, "--head", heads, "--public-key", public)
    assert done.exit_code == 0, done.output
    assert audit(*arguments).exit_code == 0
    assert _kept_heads(folder) == after
    if form == "jsonl":
        report = check_export(file.read_bytes().splitlines(keepends=True), TrustedKeys([public]))
        assert (report.breaks, report.audit.heads) == ([], after)
        assert any(each.channel == "run:later" for each in report.audit.positions.values())


def test_an_export_beside_a_server_leaves_heads_to_it(tmp_path: Path) -> None:
    """The data folder is in use: the export is signed, and a note says who writes heads."""

    async def main() -> None:
        async with opened_app(tmp_path, agent="support.audit_cli:agent") as app:
            head = await app.server.trail.sign()
            await app.server.hub.append("run:later", [Entry("a", "event", b"{}")])
            done = await asyncio.to_thread(audit, "export", "--data", tmp_path, "-o", tmp_path / "out.jsonl")
            assert (done.exit_code, done.stdout) == (0, "")
            assert "note: no signed head was kept for this export: the data folder" in done.stderr
            assert "writes heads on its schedule" in done.stderr
            assert (await _heads(app.server.hub.store))[-1] == head
            lines = (tmp_path / "out.jsonl").read_bytes().splitlines(keepends=True)
            report = check_export(lines, TrustedKeys([app.server.trail.key.public]))
            assert (report.breaks, report.is_signed) == ([], True)

    asyncio.run(main())


def test_an_export_with_another_key_writes_no_head(
    stopped: tuple[Path, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A wrong variable of the environment does not break the chain of heads. A rotated key continues it."""
    folder, public = stopped
    before, stranger = _kept_heads(folder), AuditKey.create()
    own = AuditKey.parse((folder / "audit.key").read_text())
    monkeypatch.setenv("CITEWIRE_AUDIT_KEY", stranger.write())
    done = audit("export", "--data", folder, "-o", folder / "out.jsonl")
    assert done.exit_code == 0
    assert f"signed with the key {key_id(public)}, not with {key_id(stranger.public)}" in done.stderr
    assert _kept_heads(folder) == before
    rotated = own.rotate("2026-11-18T00:00:00.000+00:00")
    monkeypatch.setenv("CITEWIRE_AUDIT_KEY", rotated.write())
    done = audit("export", "--data", folder, "-o", folder / "out.jsonl")
    assert (done.exit_code, done.output) == (0, "")
    assert _kept_heads(folder)[-1].key == rotated.public
    done = audit("verify", "--data", folder, "--public-key", public)
    assert done.exit_code == 0, done.output


def test_a_sheet_is_exported_where_the_key_cannot_be_read(stopped: tuple[Path, str]) -> None:
    folder, _ = stopped
    (folder / "audit.key").chmod(0o644)
    done = audit("export", "--data", folder, "--format", "csv")
    assert done.exit_code == 0
    assert done.stdout.startswith("thread,")
    assert "note: no signed head was kept for this export: others can read" in done.stderr


def test_an_export_writes_a_head_beside_servers_on_a_database(
    dsn: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Any process may write to a database: the next head of a server follows that of the export."""
    key, file = AuditKey.create(), tmp_path / "out.jsonl"
    monkeypatch.setenv("CITEWIRE_AUDIT_KEY", key.write())

    async def main() -> None:
        server = await PostgresStore.open(dsn)
        try:
            writer = HeadWriter(server, key)
            await server.append("run:t", [Entry("a", "event", b"{}")])
            first = await writer.write()
            await server.append("run:t", [Entry("b", "event", b"{}")])
            done = await asyncio.to_thread(audit, "export", "--store", dsn, "-o", file)
            assert (done.exit_code, done.output) == (0, "")
            own = (await _heads(server))[-1]
            assert (own.number, own.previous, own.key) == (first.number + 1, first.digest, key.public)
            await server.append("run:t", [Entry("c", "event", b"{}")])
            assert (await writer.write()).previous == own.digest
            findings = Findings(TrustedKeys([key.public]))
            await check_store(server, findings, [own])
            assert findings.breaks == []
        finally:
            await server.close()

    asyncio.run(main())
    report = check_export(file.read_bytes().splitlines(keepends=True), TrustedKeys([key.public]))
    assert (report.breaks, report.audit.heads[-1].number) == ([], 2)


def test_a_clean_stop_writes_a_head(tmp_path: Path) -> None:
    """What is newer than the last head is covered. Where nothing is, no further head is written."""
    folder, heads = tmp_path / "data", tmp_path / "heads.jsonl"

    async def serve(key: str | None, *entries: Entry) -> str:
        settings: Json = {"agent": "support.audit_cli:agent", "audit_heads": str(heads)}
        async with opened_app(folder, key=key, **settings) as app:
            await app.server.trail.sign()
            await app.server.hub.append("run:later", entries)
            return app.key

    key = asyncio.run(serve(None, Entry("a", "event", b"{}")))
    *_, before, last = after = _kept_heads(folder)
    assert (last.number, last.previous) == (before.number + 1, before.digest)
    assert read_head(heads.read_bytes()) == last
    done = audit("verify", "--data", folder, "--head", heads, "--public-key", last.key)
    assert done.exit_code == 0, done.output
    asyncio.run(serve(key))
    assert _kept_heads(folder) == after


class _Stuck(MemoryStore):
    """A store that stops to answer once `is_stuck`, and whose calls do not end when they are cancelled."""

    is_stuck = False

    async def values(self, channel: str, keys: Sequence[str]) -> SlotValues:
        while self.is_stuck:
            with suppress(asyncio.CancelledError):
                await asyncio.Event().wait()
        return await super().values(channel, keys)


def test_a_store_that_hangs_does_not_hold_up_the_stop(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        store = _Stuck()
        trail = AuditTrail(store, AuditKey.create(), FileVault(tmp_path), SingleProcessLeases())
        await trail.sign()
        store.is_stuck = True
        closing = asyncio.create_task(trail.close())
        while not closing.done():
            clock().leap(1)
            await asyncio.sleep(0)
        assert closing.exception() is None
        store.is_stuck = False

    on_clock(main())
    assert "no signed head was written when the server stopped: it took longer than 5 seconds" in caplog.text


def test_a_store_that_fails_does_not_fail_the_stop(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        store = MemoryStore()
        trail = AuditTrail(store, AuditKey.create(), FileVault(tmp_path), SingleProcessLeases())
        await store.close()
        await trail.close()

    asyncio.run(main())
    assert "no signed head was written when the server stopped" in caplog.text


def test_rotation() -> None:
    """Whoever trusts the first key trusts those that it introduced, and no other."""

    async def main() -> None:
        store, first = MemoryStore(), AuditKey.create()
        await store.append("run:t", [Entry("a", "event", b"{}")])
        await HeadWriter(store, first).write()
        second = first.rotate("2026-11-18T00:00:00.000+00:00").rotate("2026-11-19T00:00:00.000+00:00")
        assert AuditKey.parse(second.write()).public == second.public
        head = await HeadWriter(store, AuditKey.parse(second.write())).write()
        assert (head.number, head.key) == (2, second.public)
        stranger = AuditKey.create()
        for trusted, is_whole in ((first.public, True), (second.public, False), (stranger.public, False)):
            findings = Findings(TrustedKeys([trusted]))
            await check_store(store, findings)
            assert bool(findings.breaks) is not is_whole, findings.breaks
        findings = Findings(TrustedKeys([first.public, second.public]))
        await check_store(store, findings, [head])
        assert findings.breaks == []

    asyncio.run(main())


async def _drop(store: MemoryStore, key: AuditKey, channel: str) -> None:
    """Delete a channel as a server does that has this key."""
    hub = Hub(store)
    hub.record_removal = AuditTrail(store, key, FileVault(Path()), SingleProcessLeases()).record_removal
    await hub.drop(channel)


async def _exported(store: MemoryStore, key: AuditKey) -> list[bytes]:
    async with store.snapshot() as snapshot:
        return [line async for line in export_jsonl(snapshot, AuditFilter(), "2027-01-01", "test", key)]


async def _breaks(
    store: MemoryStore, signer: AuditKey, trusted: AuditKey, *kept: SignedHead
) -> tuple[list[str], list[str]]:
    """What is found in the store, and in an export of it that `signer` has signed."""
    trust = TrustedKeys([trusted.public])
    findings = Findings(trust)
    await check_store(store, findings, kept)
    report = check_export(await _exported(store, signer), TrustedKeys([trusted.public]), kept)
    if not findings.breaks:
        assert (trust.known, trust.unknown) == ({trusted.public}, set())
    stored, exported = ([f"{where}: {what}" for where, what in each.breaks] for each in (findings, report))
    return stored, exported


async def _stolen() -> tuple[MemoryStore, AuditKey, SignedHead]:
    """A store with a deleted thread, its key, and its last head from before the key was stolen."""
    store, key = MemoryStore(), AuditKey.create()
    for thread in ("run:t", "run:gone"):
        await store.append(thread, [Entry("a", "event", b"{}")])
    await HeadWriter(store, key).write()
    await _drop(store, key, "run:gone")
    return store, key, await HeadWriter(store, key).write()


def test_the_procedure_after_a_theft() -> None:
    """The new key and the last head from before the theft are enough. The old key is not to be trusted."""

    async def main() -> None:
        store, old, kept = await _stolen()
        new = old.rotate("2026-11-18T00:00:00.000+00:00")
        await store.append("run:t", [Entry("b", "event", b"{}")])
        await HeadWriter(store, new).write()
        assert await _breaks(store, new, new, kept) == ([], [])
        # Without the head that was kept, nothing vouches for what the old key has signed.
        stored, exported = await _breaks(store, new, new)
        unknown = f"head 1: it is signed by the unknown key {key_id(old.public)}"
        assert unknown in stored
        assert unknown in exported
        # It vouches for the rows up to its own, as they were.
        first = (await _heads(store))[0]
        for found in await _breaks(store, new, new, first):
            assert f"head 2: it is signed by the unknown key {key_id(old.public)}" in found
            assert not any(each.startswith("head 1") for each in found)
        other = replace(kept, hash="00" * 32)
        for found in await _breaks(store, new, new, old.sign(other)):
            assert any(each.startswith("the audit log: ") for each in found), found

    asyncio.run(main())


@pytest.mark.parametrize("what", ["head", "key", "removal"])
def test_what_a_thief_signs_later_is_refused(what: str) -> None:
    """With the stolen key, or with one that it introduces: also where a head was kept that it had signed."""

    async def main() -> None:
        store, old, kept = await _stolen()
        new, thief = old.rotate("2026-11-18T00:00:00.000+00:00"), old.rotate("2026-11-18T00:00:00.000+00:00")
        await HeadWriter(store, new).write()
        match what:
            case "head":
                await store.append("run:t", [Entry("b", "event", b"{}")])
                await HeadWriter(store, old).write()
                says, who = "head 4", old
            case "key":
                await HeadWriter(store, thief).write()
                says, who = "head 4", thief
            case _:
                await _drop(store, old, "run:t")
                says, who = "row ", old
        for found in await _breaks(store, new, new, kept):
            unknown = f"signed by the unknown key {key_id(who.public)}"
            assert any(each.startswith(says) and unknown in each for each in found), found

    asyncio.run(main())


def test_the_commands_after_a_theft(stopped: tuple[Path, str]) -> None:
    folder, old = stopped
    head, file = folder.parent / "head.json", folder / "out.jsonl"
    head.write_bytes(msgspec.json.encode(_kept_heads(folder)[-1]))
    new = audit("key", "rotate", "--data", folder).stdout.strip()
    trusted = ("--head", head, "--public-key", new)
    # Nothing is signed with the new key yet.
    done = audit("verify", "--data", folder, *trusted)
    assert (done.exit_code, "signed by the trusted key" in done.stdout) == (3, False)
    assert audit("export", "--data", folder, "-o", file).exit_code == 0
    for given in ([file], ["--data", folder], [file, "--data", folder]):
        done = audit("verify", *given, *trusted)
        assert done.exit_code == 0, done.output
        assert f"signed by the trusted key {key_id(new)}\n" in done.stdout
        assert f"signed by the key {key_id(old)}, up to the head given with --head\n" in done.stdout


def test_a_thread_that_no_head_has_seen_alive() -> None:
    """Made and deleted between two heads that are an hour apart: an honest export of it is whole."""

    async def main() -> None:
        store, key = MemoryStore(), AuditKey.create()
        await HeadWriter(store, key).write()
        await store.append("run:brief", [Entry("a", "event", b"{}")])
        await _drop(store, key, "run:brief")
        await HeadWriter(store, key, lambda: now_ms() + 3_600_000).write()
        assert await _breaks(store, key, key) == ([], [])

    asyncio.run(main())


def test_a_backdated_row_with_a_forged_position() -> None:
    """A position that nobody has signed does not hide that a row claims a time from before the last head."""

    async def main() -> None:
        now = now_ms()
        store, key = MemoryStore(lambda: now), AuditKey.create()
        await store.append("run:t", [Entry("a", "event", b"{}")])
        head = await HeadWriter(store, key, lambda: now + 3_600_000).write()
        await store.append("run:t", [Entry("b", "event", b"{}")])
        [chain] = await store.chains(["run:t"])
        await store.append("audit:", [Entry("f", "position", msgspec.json.encode(Position.of(chain)))])
        for found in await _breaks(store, key, key, head):
            assert found == ["thread t: row 2 is dated before the last head, after which it was written"]

    asyncio.run(main())


async def _put_slot(store: MemoryStore, slot: str, value: bytes) -> None:
    """Put a slot of the audit log, as somebody would who can write to the store."""
    entry = Entry(uuid4().hex, "begin", b"")
    await store.change("audit:", [], lambda _values, _place: Change(None, [entry], {slot: value}))


async def _slot(store: MemoryStore, name: str) -> bytes:
    value = (await store.values("audit:", [name]))[name]
    assert value is not None
    return value


async def _positions(store: MemoryStore, channel: str) -> list[int]:
    """The rows up to which a channel was noted, in the order of the notes."""
    statements = [read_statement(row) for row in await store.read("audit:")]
    return [each.head.n for each in statements if isinstance(each, Position) and each.channel == channel]


@pytest.mark.parametrize("form", ["older", "another key", "another channel", "another place", "no text"])
def test_forged_slots_do_not_keep_a_channel_out_of_a_head(form: str) -> None:
    """A slot that the key has not authenticated counts as absent, and the channel is noted."""

    async def main() -> None:
        store, key = MemoryStore(), AuditKey.create()
        for thread in ("run:s", "run:t"):
            await store.append(thread, [Entry("a", "event", b"{}")])
        await HeadWriter(store, key).write()
        own = await _slot(store, "run:t")
        [row] = await store.append("run:t", [Entry("b", "event", b"{}")])
        older = f"{row.epoch}:0:2".encode()
        match form:
            case "older":
                forged = older
            case "another key":
                forged = await _slot_of_stranger(store)
            case "another channel":
                forged = older + (await _slot(store, "run:s")).removeprefix(older[:-1] + b"1")
            case "another place":
                forged = own.replace(b":0:1", b":0:2", 1)
            case _:
                forged = b"\xff:\xff"
        await _put_slot(store, "run:t", forged)
        head = await HeadWriter(store, key).write()
        assert await _positions(store, "run:t") == [1, 2]
        assert await _breaks(store, key, key, head) == ([], [])

    asyncio.run(main())


async def _slot_of_stranger(store: MemoryStore) -> bytes:
    """The slot that a head with another key would leave."""
    async with store.snapshot() as copy:
        await HeadWriter(copy, AuditKey.create()).write()
        return await _slot(copy, "run:t")


def test_slots_of_the_same_key_are_believed() -> None:
    """What was noted is not noted again, also by another server with the same key."""

    async def main() -> None:
        store, key = MemoryStore(), AuditKey.create()
        await store.append("run:t", [Entry("a", "event", b"{}")])
        head = await HeadWriter(store, key).write()
        assert await HeadWriter(store, AuditKey.parse(key.write())).write() == head
        await store.append("run:u", [Entry("a", "event", b"{}")])
        await HeadWriter(store, key).write()
        assert await _positions(store, "run:t") == [1]
        # A new key authenticates anew, once.
        new = key.rotate("2026-11-18T00:00:00.000+00:00")
        heads = [await HeadWriter(store, new).write() for _ in range(2)]
        assert heads[0] == heads[1]
        assert (heads[0].number, await _positions(store, "run:t")) == (3, [1, 1])

    asyncio.run(main())


@pytest.mark.parametrize("forgery", ["gone", "older", "tombstone", "row", "head"])
def test_a_forged_slot_of_the_last_head(forgery: str) -> None:
    """It neither holds a head back nor hides a deletion. The log says which head was the last."""

    async def main() -> None:
        store, key = MemoryStore(), AuditKey.create()
        for thread in ("run:t", "run:u"):
            await store.append(thread, [Entry("a", "event", b"{}")])
        await HeadWriter(store, key).write()
        last = await HeadWriter(store, key).write()
        value = json.loads(await _slot(store, "!head"))
        await _drop(store, key, "run:u")
        value |= {
            "gone": {"head": None, "row": 0}, "older": {}, "tombstone": {"tombstone": 9},
            "row": {"row": value["row"] + 2}, "head": {"head": {**value["head"], "number": 7}},
        }[forgery]  # fmt: skip
        if forgery == "older":
            value.pop("mac", None)
        await _put_slot(store, "!head", json.dumps(value).encode())
        head = await HeadWriter(store, key).write()
        assert (head.number, head.previous) == (last.number + 1, last.digest)
        fold = await check_store(store, Findings(TrustedKeys([key.public])))
        assert [each.channel for each in fold.tombstones.values()] == ["run:u"]
        assert await _breaks(store, key, key, head) == ([], [])

    asyncio.run(main())


def test_the_command_of_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file for its owner only; the environment goes first; what is no key is refused without showing it."""
    file = tmp_path / "signing.key"
    made = audit("key", "create", "--audit-key-file", file)
    assert (made.exit_code, check_public_key(made.stdout)) == (0, made.stdout.strip())
    assert file.stat().st_mode & 0o777 == 0o600
    assert audit("key", "create", "--audit-key-file", file).exit_code == 2
    rotated = audit("key", "rotate", "--audit-key-file", file)
    assert rotated.stdout != made.stdout
    assert audit("key", "show", "--audit-key-file", file).stdout == rotated.stdout
    assert AuditKey.parse(file.read_text()).introductions[0].key == made.stdout.strip()
    file.chmod(0o644)
    assert "others can read" in audit("key", "show", "--audit-key-file", file).stderr
    key = AuditKey.create()
    monkeypatch.setenv("CITEWIRE_AUDIT_KEY", key.write())
    assert audit("key", "show").stdout.strip() == key.public
    new = AuditKey.parse(audit("key", "rotate").stdout)
    assert new.introductions[0].key == key.public
    monkeypatch.setenv("CITEWIRE_AUDIT_KEY", "hunter2")
    done = audit("key", "show")
    assert done.exit_code == 2
    assert "hunter2" not in done.output
    assert "hunter2" in os.environ["CITEWIRE_AUDIT_KEY"]


@pytest.mark.parametrize("text", ["", "ed25519:", "ed25519:AA", "AAAA", "ed25519:" + "A" * 42 + "B"])
def test_no_public_key(text: str) -> None:
    with pytest.raises(InputError):
        TrustedKeys([text])


@pytest.mark.parametrize("text", ["", "AA", "A" * 43 + "." + "e30", "é", "A" * 43 + ".."])
def test_no_private_key(text: str) -> None:
    with pytest.raises(KeyProblem):
        AuditKey.parse(text)


@pytest.mark.parametrize("text", [b"", b"\n", b"{}", b"\xff", b'{"type":"end"}', b"[" * 10**5])
def test_no_head(text: bytes) -> None:
    with pytest.raises(ShapeError):
        read_head(text)


def test_a_key_never_shows_itself() -> None:
    key = AuditKey.create()
    assert repr(key) == f"AuditKey({key_id(key.public)})"


def _head() -> SignedHead:
    return SignedHead(number=1, at="2026-11-18", epoch="e", n=1, hash="00", previous="")


@pytest.mark.parametrize("field", ["number", "at", "epoch", "n", "hash", "previous", "key", "signature"])
def test_every_field_of_a_head_is_signed(field: str) -> None:
    key = AuditKey.create()
    value = msgspec.to_builtins(key.sign(_head()))
    value[field] = 2 if isinstance(value[field], int) else AuditKey.create().public
    assert TrustedKeys([key.public]).find_problem(msgspec.convert(value, SignedHead))


def test_two_nodes_sign_one_log(dsn: str) -> None:
    """Heads of both, written at the same time as rows, are one chain that a verifier of the store accepts."""

    async def main() -> None:
        key = AuditKey.create()
        nodes = [await PostgresStore.open(dsn) for _ in range(2)]
        try:
            writers = [HeadWriter(node, key) for node in nodes]

            async def work(which: int) -> None:
                for turn in range(6):
                    entries = [Entry(f"{which}.{turn}", "event", b"{}")]
                    await nodes[which].append(f"run:{(which + turn) % 3}", entries)
                    with suppress(HeadSuperseded):
                        await writers[which].write()

            await asyncio.gather(work(0), work(1))
            head = await writers[0].write()
            findings = Findings(TrustedKeys([key.public]))
            async with nodes[1].snapshot() as snapshot:
                fold = await check_store(snapshot, findings, [head])
            assert findings.breaks == []
            assert len(fold.heads) == head.number > 1
            async with nodes[0].db.connection() as db:
                await db.execute("UPDATE citewire.log SET kind = 'x' WHERE n = 1 AND id = '0.0'")
            async with nodes[1].snapshot() as snapshot:
                await check_store(snapshot, findings, [head])
            assert [where for where, _ in findings.breaks] == ["thread 0"]
        finally:
            for node in nodes:
                await node.close()

    asyncio.run(main())
