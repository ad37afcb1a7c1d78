"""Whoever can write to the store cannot change what a head that is kept elsewhere has signed."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from citewire.audit.export_check import check_export
from citewire.audit.findings import Findings
from citewire.audit.signing import AuditKey, TrustedKeys
from citewire.audit.statements import SignedHead
from citewire.audit.store_check import check_store
from citewire.channels.hub import Hub
from citewire.channels.lease import SingleProcessLeases
from citewire.channels.sqlite import SqliteStore
from citewire.channels.sqlite_log import SqliteLog
from citewire.channels.store import Entry
from citewire.server.access.used_names import UsedNames
from citewire.server.ops.settings import Settings
from citewire.server.records.audit_trail import AuditTrail
from citewire.server.records.data_check import check_api_keys, check_source_bytes
from citewire.server.storage.vault import FileVault
from support import tampering as t
from support.app import App, opened_app
from support.audit_cli import audit

Json = dict[str, Any]


class Kept(NamedTuple):
    """A data folder, and what is kept of it elsewhere."""

    data: Path
    public: str
    head: SignedHead
    older: Path


async def _fill(app: App) -> None:
    policy = b"You may return any lamp within 30 days. Shipping is not refunded. Gift cards are final."
    assert (await app.ask("POST", "/sources?name=policy.txt", policy)).status == 201
    await app.server.catalog.wait_until_read()
    for thread in ("shop", "gone", "quiet"):
        asked: Json = {"threadId": thread, "runId": "r", "messages": []}
        assert (await app.ask("POST", "/agui", asked)).status == 200
    await app.server.runs.wait_idle()
    records = await app.server.hub.store.read("run:shop")
    cited = next(row for row in records if b'"type":"citation"' in row.data)
    review = {"messageId": "m", "key": json.loads(cited.data)["key"], "event": "citation_reviewed"}
    assert (await app.ask("POST", "/threads/shop/reviews", review)).status == 204
    assert (await app.ask("PUT", "/rules/support:*", {"retention": "30d"})).status == 200
    assert (await app.ask("DELETE", "/threads/gone")).status == 204


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Kept:
    """A store with two heads, the second of which is kept elsewhere, and something after it."""
    folder = tmp_path_factory.mktemp("signed")
    data = folder / "data"

    async def main() -> tuple[str, SignedHead]:
        async with opened_app(data, agent="support.audit_cli:agent") as app:
            await app.server.trail.sign()
            await asyncio.to_thread(_backup, data, folder / "older")
            await _fill(app)
            await app.server.bridge.wait_idle()
            head = await app.server.trail.sign()
            asked: Json = {"threadId": "quiet", "runId": "later", "messages": []}
            assert (await app.ask("POST", "/agui", asked)).status == 200
            return app.server.trail.key.public, head

    public, head = asyncio.run(main())
    return Kept(data, public, head, folder / "older")


def _backup(data: Path, to: Path) -> None:
    to.mkdir()
    with sqlite3.connect(data / "log.sqlite") as db, sqlite3.connect(to / "log.sqlite") as copy:
        db.backup(copy)
    db.close()
    copy.close()


def found(folder: Path, trust: TrustedKeys, *heads: SignedHead) -> Findings:
    """What `citewire audit verify --data` finds."""

    async def main() -> Findings:
        findings, settings = Findings(trust), Settings(data=str(folder))
        log = SqliteLog.open(folder)
        try:
            async with log.snapshot() as snapshot:
                fold = await check_store(snapshot, findings, heads)
                await check_source_bytes(snapshot, settings, findings)
            await check_api_keys(settings, fold.api_keys, findings)
        finally:
            await log.close()
        return findings

    return asyncio.run(main())


def told(findings: Findings) -> list[str]:
    return [f"{where}: {what}" for where, what in findings.breaks]


def test_a_store_that_is_whole(kept: Kept, tmp_path: Path) -> None:
    """Also of what came after the head; and the notes say who deleted what."""
    findings = found(t.copy_of(kept.data, tmp_path / "copy"), TrustedKeys([kept.public]), kept.head)
    assert told(findings) == []
    assert findings.trust.known == {kept.public}
    assert any(note.startswith("thread gone was deleted at ") for note in findings.notes)


def test_nobody_is_trusted_by_default(kept: Kept, tmp_path: Path) -> None:
    folder = t.copy_of(kept.data, tmp_path / "copy")
    findings = found(folder, TrustedKeys())
    assert (told(findings), findings.trust.known, findings.trust.unknown) == ([], set(), {kept.public})
    stranger = AuditKey.create().public
    assert any(
        "signed by the unknown key" in each
        for each in told(found(folder, TrustedKeys([stranger]), kept.head))
    )


def _forge_bytes(folder: Path) -> None:
    t.blob_of(folder, b"You may").write_bytes(b"You may return no lamp.")


def _lose_bytes(folder: Path) -> None:
    t.blob_of(folder, b"You may").unlink()


def _change_key(folder: Path) -> None:
    t.change_api_key(folder, created=1)


def _change_and_revoke_key(folder: Path) -> None:
    t.change_api_key(folder, created=1, revoked=2)


def _lose_key(folder: Path) -> None:
    (folder / "keys.json").write_text("[]")


_LAMB = "data = CAST(replace(CAST(data AS TEXT), 'lamp', 'lamb') AS BLOB)"
_POLICE = "data = CAST(replace(CAST(data AS TEXT), 'policy', 'police') AS BLOB)"
_NUMBER = "data = CAST(replace(CAST(data AS TEXT), '\"number\":2', '\"number\":3') AS BLOB)"
_SHED = "data = CAST(replace(CAST(data AS TEXT), 'run:shop', 'run:shed') AS BLOB)"
_SOMEBODY = "data = CAST(replace(CAST(data AS TEXT), 'citewire.', 'somebody.') AS BLOB)"
_AI, _SOURCES = "channel channel:ai:shop: ", "channel sources: "
_SLOT = "SELECT no FROM channel WHERE name = 'channel:ai:shop'"

# What is done with rows of the audit log that nobody has signed, and what is said of it.
FORGED: dict[str, tuple[Callable[[Path], None], str]] = {
    "content, with a forged position": (t.content_with_forged_position, "thread shop: "),
    "content, noted again by the server": (t.content_with_slot_removed, "thread shop: "),
    "a thread renamed, with a forged position": (
        t.renamed_with_forged_position, "thread shed: a signed head has it as thread shop",
    ),
    "a deletion backdated, with a forged tombstone": (
        t.backdated_with_forged_tombstone, "thread gone: it was deleted at",
    ),
    "a deletion backdated, with a second tombstone": (
        t.backdated_with_second_tombstone, "thread gone: it was deleted at",
    ),
    "an API key, with a forged row": (t.api_key_with_forged_row, "key "),
}  # fmt: skip

# What is done, and what is said of it.
TAMPERED: dict[str, tuple[Callable[[Path], None], str]] = {
    "content": (t.update(t.SHOP, _LAMB, "kind = 'record'"), "thread shop: "),
    "content, rehashed": (t.update(t.SHOP, _LAMB, "kind = 'record'", rehash=True), "thread shop: "),
    "time": (t.update(t.SHOP, "tick = tick + 1", "n = 3"), "thread shop: row 3 was changed"),
    "time, rehashed": (t.update(t.SHOP, "tick = tick + 1", "n = 3", rehash=True), "thread shop: "),
    "all times, rehashed": (t.update(t.SHOP, "tick = tick + 9", rehash=True), "thread shop: "),
    "kind": (t.update(t.SHOP, "kind = 'late'", "n = 4"), "thread shop: row 4 was changed"),
    "kind, rehashed": (t.update(t.SHOP, "kind = 'late'", "n = 4", rehash=True), "thread shop: "),
    "id": (t.update(t.SHOP, "id = 'other'", "n = 4"), "thread shop: row 4 was changed"),
    "id, rehashed": (t.update(t.SHOP, "id = 'other'", "n = 4", rehash=True), "thread shop: "),
    "the last row": (t.update(t.SHOP, _LAMB.replace("lamp", "review"), "kind = 'review'"), "thread shop: "),
    "a row left out": (
        t.run(f"DELETE FROM log WHERE n = 3 AND channel IN ({_SLOT.replace('channel:ai', 'run')})"),
        "thread shop: row 3 is missing before row 4",
    ),
    "a row left out, renumbered": (t.renumbered(t.SHOP, 3, 1, rehash=True), "thread shop: "),
    "the last row cut off": (
        t.run(f"DELETE FROM log WHERE kind = 'review' AND channel IN ({_SLOT.replace('channel:ai', 'run')})"),
        "thread shop: ",
    ),
    "the first rows cut off": (t.first_rows_cut, "thread shop: its first rows were cut off"),
    "the first rows cut off, renumbered": (t.first_rows_cut_and_renumbered, "thread shop: "),
    "a thread gone": (t.thread_removed, "thread shop: a signed head has it, and it is gone"),
    "a thread erased by hand": (t.thread_erased, "thread shop: it was deleted, and no signed statement says"),
    "threads swapped": (t.threads_swapped, "thread "),
    "an epoch moved": (t.epoch_moved, "thread shop: "),
    "a thread renamed": (t.thread_renamed, "thread shed: a signed head has it as thread shop"),
    "a deletion backdated": (
        t.run("UPDATE erased SET at = at - 86400000"), "thread gone: it was deleted at",
    ),
    "a tombstone gone": (t.tombstone_removed, "thread gone: "),
    "a link of a deleted thread": (t.run("UPDATE link SET kind = 'late' WHERE n = 2"), "thread gone: "),
    "a link cut off": (t.run("DELETE FROM link WHERE n = (SELECT max(n) FROM link)"), "thread gone: "),
    "a summary": (
        t.run(f"UPDATE slot SET value = x'80' WHERE key LIKE 's:%' AND channel IN ({_SLOT})"),
        "channel channel:ai:shop: the summary of the message",
    ),
    "a summary gone": (
        t.run(f"DELETE FROM slot WHERE key LIKE 's:%' AND channel IN ({_SLOT})"),
        "channel channel:ai:shop: the summary of the message",
    ),
    "a message as it stands": (
        t.run(f"DELETE FROM slot WHERE key LIKE 'm:%' AND channel IN ({_SLOT})"),
        "channel channel:ai:shop: the message",
    ),
    "the log of a channel": (t.update(t.AI, "kind = 'x'", "n = 2"), _AI),
    "the log of a channel, rehashed": (
        t.update(t.AI, "id = 'x'", "n = 1", rehash=True), _AI,
    ),
    "a rule": (t.update("rules:", "kind = 'x'", rehash=True), "channel rules:: row 1 was changed"),
    "a source on record": (
        t.update("sources", _POLICE, "n = 1", rehash=True), _SOURCES,
    ),
    "the bytes of a source": (_forge_bytes, "source policy.txt: its bytes are not"),
    "the bytes of a source gone": (_lose_bytes, "source policy.txt: its bytes"),
    "an API key": (_change_key, "key "),
    "an API key gone": (_lose_key, "key "),
    "an API key changed and revoked": (_change_and_revoke_key, "key "),
    "a head edited": (
        t.update("audit:", _NUMBER, "kind = 'head'"), "head 3: ",
    ),
    "a head edited, rehashed": (
        t.update("audit:", _NUMBER, "kind = 'head'", rehash=True),
        "head 3: its signature is wrong",
    ),
    "heads removed": (t.heads_removed, "the audit log: "),
    "the audit log gone": (t.audit_log_dropped, "the audit log: there is none"),
    "a position": (
        t.update("audit:", _SHED, "kind = 'position'", rehash=True),
        "the audit log: ",
    ),
    "who deleted a thread": (
        t.update("audit:", _SOMEBODY, "kind = 'removal'", rehash=True),
        "row ",
    ),
    "signed anew with another key": (t.signed_anew, "the audit log: "),
    **FORGED,
}  # fmt: skip


@pytest.mark.parametrize("name", TAMPERED)
def test_what_was_tampered_with(kept: Kept, name: str, tmp_path: Path) -> None:
    """Every way is found with the one head that was kept elsewhere, and the place is named."""
    tamper, says = TAMPERED[name]
    folder = t.copy_of(kept.data, tmp_path / "copy")
    tamper(folder)
    breaks = told(found(folder, TrustedKeys([kept.public]), kept.head))
    assert any(each.startswith(says) for each in breaks), breaks


@pytest.mark.parametrize("filters", [(), ("--thread",)])
@pytest.mark.parametrize("name", FORGED)
def test_what_was_tampered_with_before_an_export(
    kept: Kept, name: str, filters: tuple[str, ...], tmp_path: Path
) -> None:
    """The server itself exports a store that was tampered with, and signs that. The kept head shows it."""
    if filters and "key" in name.lower():
        return  # such an export has nothing of keys
    folder, file = t.copy_of(kept.data, tmp_path / "copy"), tmp_path / "out.jsonl"
    FORGED[name][0](folder)
    thread = "gone" if "deletion" in name else "shed" if "renamed" in name else "shop"
    done = audit("export", "--data", folder, "-o", file, *filters, *([thread] if filters else []))
    assert (done.exit_code, done.output) == (0, "")
    report = check_export(
        file.read_bytes().splitlines(keepends=True), TrustedKeys([kept.public]), [kept.head]
    )
    says = "row " if "key" in name.lower() else f"thread {thread}: "
    assert any(each.startswith(says) for each in told(report)), told(report)


def test_an_export_of_what_was_not_tampered_with(kept: Kept, tmp_path: Path) -> None:
    folder, file = t.copy_of(kept.data, tmp_path / "copy"), tmp_path / "out.jsonl"
    for filters in ((), ("--thread", "shop"), ("--thread", "gone"), ("--status", "verified")):
        assert audit("export", "--data", folder, "-o", file, *filters).exit_code == 0
        report = check_export(
            file.read_bytes().splitlines(keepends=True), TrustedKeys([kept.public]), [kept.head]
        )
        assert told(report) == []


async def _drop_signed(folder: Path, channel: str, *more: Entry) -> None:
    """Delete a channel in the usual way, with a signed statement of who did it."""
    store = SqliteStore(folder)
    try:
        await store.append(channel, more)
        key = AuditKey.parse((folder / "audit.key").read_text())
        hub = Hub(store)
        hub.record_removal = AuditTrail(store, key, FileVault(folder), SingleProcessLeases()).record_removal
        await hub.drop(channel)
    finally:
        await store.close()


_CUT = """
UPDATE erased SET (n, tick, hash) = (
    SELECT l.n - 1, l.tick - 1, l.before FROM link AS l WHERE l.erased = erased.no ORDER BY l.n DESC LIMIT 1
) WHERE name = 'run:new'
"""
_CUT_LINK = """
DELETE FROM link WHERE erased = (SELECT no FROM erased WHERE name = 'run:new')
AND n = (SELECT max(n) FROM link WHERE erased = (SELECT no FROM erased WHERE name = 'run:new'))
"""


@pytest.mark.parametrize(
    ("tamper", "says"),
    [
        (
            t.run("UPDATE erased SET at = at + 86400000 WHERE name = 'run:new'"),
            "thread new: it was deleted at",
        ),
        (t.run(_CUT, _CUT_LINK), "thread new: row 3 is missing at its end"),
    ],
)
def test_a_deletion_that_no_head_knows_of(
    tamper: Callable[[Path], None], says: str, kept: Kept, tmp_path: Path
) -> None:
    """The signed statement of who deleted a thread has the time, and the last row."""
    folder, file = t.copy_of(kept.data, tmp_path / "copy"), tmp_path / "out.jsonl"
    rows = [Entry(name, "event", b"{}") for name in "abc"]
    asyncio.run(_drop_signed(folder, "run:new", *rows))
    assert told(found(folder, TrustedKeys([kept.public]), kept.head)) == []
    tamper(folder)
    breaks = told(found(folder, TrustedKeys([kept.public]), kept.head))
    assert any(each.startswith(says) for each in breaks), breaks
    assert audit("export", "--data", folder, "-o", file).exit_code == 0
    report = check_export(
        file.read_bytes().splitlines(keepends=True), TrustedKeys([kept.public]), [kept.head]
    )
    assert any(each.startswith(says) for each in told(report)), told(report)


def test_slots_put_back_with_an_audit_log_that_was_cut_off(kept: Kept, tmp_path: Path) -> None:
    """What a later head noted is noted again where that head, and the rows before it, were removed."""
    folder = t.copy_of(kept.data, tmp_path / "copy")
    with t.database(folder) as db:
        no = t.channel_no(db, "audit:")
        [(end,)] = db.execute("SELECT max(n) FROM log WHERE channel = ?", (no,))
        [(slot,)] = db.execute("SELECT value FROM slot WHERE channel = ? AND key = '!head'", (no,))
    asyncio.run(_append(folder, "run:shop", Entry("later", "event", b"{}")))
    first = t.write_head(folder)
    with t.database(folder) as db:
        db.execute("DELETE FROM log WHERE channel = ? AND n > ?", (no, end))
        db.execute("UPDATE slot SET value = ? WHERE channel = ? AND key = '!head'", (slot, no))
    again = t.write_head(folder)
    assert again.number == first.number
    assert told(found(folder, TrustedKeys([kept.public]), kept.head, again)) == []
    t.update(t.SHOP, "tick = tick + 1", "id = 'later'", rehash=True)(folder)
    breaks = told(found(folder, TrustedKeys([kept.public]), again))
    assert any(each.startswith("thread shop: ") for each in breaks), breaks


async def _append(folder: Path, channel: str, *entries: Entry) -> None:
    store = SqliteStore(folder)
    try:
        await store.append(channel, entries)
    finally:
        await store.close()


def test_names_that_expire_are_removed_without_a_statement(kept: Kept, tmp_path: Path) -> None:
    """The server removes used nonces and sign-in links by the minute, and signs nothing for that."""
    folder = t.copy_of(kept.data, tmp_path / "copy")

    async def use(name: str, now: float) -> int:
        store = SqliteStore(folder)
        try:
            assert await UsedNames(store, "sign-in", lambda: now).use(name, now + 100)
            return (await store.read("used:sign-in"))[0].n
        finally:
            await store.close()

    assert asyncio.run(use("one", 0)) == 1
    t.write_head(folder)
    assert asyncio.run(use("two", 10_000)) == 2
    for _ in range(2):
        assert told(found(folder, TrustedKeys([kept.public]), kept.head)) == []
        t.write_head(folder)


def test_an_older_copy_put_back(kept: Kept, tmp_path: Path) -> None:
    folder = t.copy_of(kept.data, tmp_path / "copy")
    (folder / "log.sqlite").write_bytes((kept.older / "log.sqlite").read_bytes())
    breaks = told(found(folder, TrustedKeys([kept.public]), kept.head))
    assert any(each.startswith("the audit log: ") and "missing at its end" in each for each in breaks), breaks


@pytest.mark.slow
@given(st.data())
def test_any_changed_value_is_found(
    kept: Kept, tmp_path_factory: pytest.TempPathFactory, drawn: st.DataObject
) -> None:
    """Any column of any row at or before the head, with the hashes made anew or not."""
    folder = t.copy_of(kept.data, tmp_path_factory.mktemp("random") / "copy")
    with t.database(folder) as db:
        names = [name for (name,) in db.execute("SELECT name FROM channel ORDER BY name")]
        name = drawn.draw(st.sampled_from([each for each in names if not each.endswith(":quiet")]))
        row = drawn.draw(st.sampled_from(t.rows(db, name)))
        column = drawn.draw(st.sampled_from(["tick", "id", "kind", "data", "before", "n"]))
        value = {
            "tick": row.tick + 1, "id": row.id + "x", "kind": row.kind + "x", "data": row.data + b" ",
            "before": bytes(32), "n": -row.n,
        }[column]  # fmt: skip
        rehash = drawn.draw(st.booleans()) and column != "n"
        statement = f"UPDATE log SET {column} = ? WHERE channel = ? AND n = ?"
        db.execute(statement, (value, t.channel_no(db, name), row.n))
        if rehash:
            t.rechain(db, name)
    is_signed = name != "audit:" or row.n <= kept.head.n
    if is_signed and not (rehash and column == "before"):
        assert told(found(folder, TrustedKeys([kept.public]), kept.head))
