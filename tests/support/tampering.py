"""Ways to tamper with the SQLite file of a data folder, as somebody would who can write to it."""

from __future__ import annotations

import asyncio
import json
import shutil
import sqlite3
import time
from collections.abc import Callable, Generator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from citewire.audit.heads import HeadWriter
from citewire.audit.signing import AuditKey
from citewire.audit.statements import AUDIT_CHANNEL, SignedHead
from citewire.channels.sqlite import SqliteStore
from citewire.channels.store import Row, first_hash, row_hash

LAMB = "data = CAST(replace(CAST(data AS TEXT), 'lamp', 'lamb') AS BLOB)"
SHOP, GONE, AI = "run:shop", "run:gone", "channel:ai:shop"
# In milliseconds, as deletions are dated.
_DAY = 86_400_000


@contextmanager
def database(folder: Path) -> Generator[sqlite3.Connection]:
    """The file, open to be written to."""
    with closing(sqlite3.connect(folder / "log.sqlite")) as db:
        yield db
        db.commit()


def channel_no(db: sqlite3.Connection, name: str) -> int:
    return db.execute("SELECT no FROM channel WHERE name = ?", (name,)).fetchone()[0]


def rows(db: sqlite3.Connection, name: str) -> list[Row]:
    found = db.execute(
        "SELECT epoch, n, tick, id, kind, data, before FROM channel JOIN log ON log.channel = no "
        "WHERE name = ? ORDER BY n",
        (name,),
    )
    return [Row(*row) for row in found]


def rechain(db: sqlite3.Connection, name: str) -> None:
    """Make all hashes of a channel anew, so that its chain holds."""
    no, epoch, floor, before = db.execute(
        "SELECT no, epoch, floor, floor_hash FROM channel WHERE name = ?", (name,)
    ).fetchone()
    if not floor:
        before = first_hash(name, epoch)
        db.execute("UPDATE channel SET floor_hash = ? WHERE no = ?", (before, no))
    for row in rows(db, name):
        db.execute("UPDATE log SET before = ? WHERE channel = ? AND n = ?", (before, no, row.n))
        before = row_hash(row.n, row.tick, row.id, row.kind, row.data, before)


def update(name: str, change: str, where: str = "1", *, rehash: bool = False) -> Callable[[Path], None]:
    """Change rows of a channel, and make its hashes anew if that is wanted."""

    def tamper(folder: Path) -> None:
        with database(folder) as db:
            no = channel_no(db, name)
            done = db.execute(f"UPDATE log SET {change} WHERE channel = {no} AND {where}")
            assert done.rowcount > 0
            if rehash:
                rechain(db, name)

    return tamper


def run(*statements: str) -> Callable[[Path], None]:
    """Run statements, the last of which has to change something."""

    def tamper(folder: Path) -> None:
        with database(folder) as db:
            counts = [db.execute(statement).rowcount for statement in statements]
            assert counts[-1] > 0

    return tamper


def renumbered(name: str, first: int, by: int, *, rehash: bool) -> Callable[[Path], None]:
    """Leave out a row, and number those after it anew."""

    def tamper(folder: Path) -> None:
        with database(folder) as db:
            no = channel_no(db, name)
            db.execute("DELETE FROM log WHERE channel = ? AND n = ?", (no, first))
            for row in rows(db, name):
                if row.n > first:
                    db.execute("UPDATE log SET n = ? WHERE channel = ? AND n = ?", (row.n - by, no, row.n))
            if rehash:
                rechain(db, name)

    return tamper


def appended(name: str, kind: str, data: bytes, tick: int | None = None) -> Callable[[Path], None]:
    """Append a row that fits, with the time of the one before it or another."""

    def tamper(folder: Path) -> None:
        with database(folder) as db:
            last = rows(db, name)[-1]
            values = (
                channel_no(db, name),
                last.n + 1,
                tick or last.tick + 1,
                f"forged:{last.n + 1}",
                kind,
                data,
                last.hash,
            )
            db.execute("INSERT INTO log VALUES (?, ?, ?, ?, ?, ?, ?)", values)

    return tamper


def statements(folder: Path, kind: str) -> list[Any]:
    """What the audit log says in rows of one kind."""
    with database(folder) as db:
        return [json.loads(row.data) for row in rows(db, AUDIT_CHANNEL) if row.kind == kind]


def _append_statement(folder: Path, kind: str, statement: Any) -> None:
    """Append a row that is not signed to the audit log, as one of a server would stand there."""
    data = json.dumps(statement, separators=(",", ":")).encode()
    appended(AUDIT_CHANNEL, kind, data, time.time_ns() // 1000)(folder)


def _forge_positions(folder: Path, name: str) -> None:
    """Note again, under a name, how far the thread `shop` had come, with the hashes that it has now."""
    with database(folder) as db:
        marks = {row.n: {"n": row.n, "tick": row.tick, "hash": row.hash.hex()} for row in rows(db, name)}
        floor_hash = db.execute("SELECT floor_hash FROM channel WHERE name = ?", (name,)).fetchone()[0]
    for position in statements(folder, "position"):
        if position["channel"] == SHOP:
            floor = position["floor"] | {"hash": floor_hash.hex()}
            noted = {"channel": name, "floor": floor, "head": marks[position["head"]["n"]]}
            _append_statement(folder, "position", position | noted)


def content_with_forged_position(folder: Path) -> None:
    update(SHOP, LAMB, "kind = 'record'", rehash=True)(folder)
    _forge_positions(folder, SHOP)


def renamed_with_forged_position(folder: Path) -> None:
    thread_renamed(folder)
    _forge_positions(folder, "run:shed")


def content_with_slot_removed(folder: Path) -> None:
    """Have the server itself note the hashes of a changed thread, because it finds no slot of it."""
    update(SHOP, LAMB, "kind = 'record'", rehash=True)(folder)
    with database(folder) as db:
        gone = db.execute(
            "DELETE FROM slot WHERE key = ? AND channel = ?", (SHOP, channel_no(db, AUDIT_CHANNEL))
        )
        assert gone.rowcount
    write_head(folder)


def write_head(folder: Path) -> SignedHead:
    """Write a head, as the server does."""

    async def main() -> SignedHead:
        store = SqliteStore(folder)
        try:
            return await HeadWriter(store, AuditKey.parse((folder / "audit.key").read_text())).write()
        finally:
            await store.close()

    return asyncio.run(main())


def backdated_with_forged_tombstone(folder: Path) -> None:
    _backdate(folder)
    for stone in statements(folder, "tombstone"):
        if stone["channel"] == GONE:
            _append_statement(folder, "tombstone", stone | {"at": stone["at"] - _DAY})


def backdated_with_second_tombstone(folder: Path) -> None:
    """The forged tombstone has a number of its own, and so has a second entry of the deletion."""
    for stone in statements(folder, "tombstone"):
        if stone["channel"] == GONE:
            _append_statement(
                folder, "tombstone", stone | {"no": stone["no"] + 100, "at": stone["at"] - _DAY}
            )
    _backdate(folder)


def _backdate(folder: Path) -> None:
    run(f"UPDATE erased SET at = at - {_DAY} WHERE name = '{GONE}'")(folder)


def api_key_with_forged_row(folder: Path) -> None:
    change_api_key(folder, created=1)
    name = json.loads((folder / "keys.json").read_text())[0]["name"]
    for key in statements(folder, "api-key"):
        if key["name"] == name:
            _append_statement(folder, "api-key", key | {"created": 1})


def change_api_key(folder: Path, **fields: Any) -> None:
    """Change the first API key of the data folder."""
    keys = json.loads((folder / "keys.json").read_text())
    keys[0] |= fields
    (folder / "keys.json").write_text(json.dumps(keys))


def first_rows_cut(folder: Path) -> None:
    """Raise the floor, as retention does, without anybody having said so."""
    with database(folder) as db:
        no, row = channel_no(db, SHOP), rows(db, SHOP)[2]
        db.execute("DELETE FROM log WHERE channel = ? AND n <= ?", (no, row.n))
        db.execute(
            "UPDATE channel SET floor = ?, floor_tick = ?, floor_hash = ? WHERE no = ?",
            (row.n, row.tick, row.hash, no),
        )


def first_rows_cut_and_renumbered(folder: Path) -> None:
    with database(folder) as db:
        no = channel_no(db, SHOP)
        db.execute("DELETE FROM log WHERE channel = ? AND n <= 2", (no,))
        for row in rows(db, SHOP):
            db.execute("UPDATE log SET n = ? WHERE channel = ? AND n = ?", (row.n - 2, no, row.n))
        rechain(db, SHOP)


def thread_removed(folder: Path) -> None:
    """A whole thread, with its channel and without a trace."""
    with database(folder) as db:
        for name in (SHOP, AI, f"tie:{SHOP}"):
            found = db.execute("SELECT no FROM channel WHERE name = ?", (name,)).fetchone()
            for table, column in (("slot", "channel"), ("log", "channel"), ("channel", "no")):
                db.execute(f"DELETE FROM {table} WHERE {column} = ?", found or (0,))


def thread_erased(folder: Path) -> None:
    """A thread, as if it had been deleted in the usual way."""
    with database(folder) as db:
        no, all_rows = channel_no(db, SHOP), rows(db, SHOP)
        epoch, floor_hash = db.execute("SELECT epoch, floor_hash FROM channel WHERE no = ?", (no,)).fetchone()
        last = all_rows[-1]
        at = last.tick // 1000 + 3_600_000
        erased = db.execute(
            "INSERT INTO erased (at, name, epoch, floor, floor_tick, floor_hash, n, tick, hash) "
            "VALUES (?, ?, ?, 0, 0, ?, ?, ?, ?) RETURNING no",
            (at, SHOP, epoch, floor_hash, last.n, last.tick, last.hash),
        ).fetchone()[0]
        for row in all_rows:
            link = row.link
            values = (erased, link.n, link.tick, link.kind, link.content, link.before)
            db.execute("INSERT INTO link VALUES (?, ?, ?, ?, ?, ?)", values)
        db.execute("DELETE FROM slot WHERE channel = ?", (no,))
        db.execute("DELETE FROM log WHERE channel = ?", (no,))
        db.execute("DELETE FROM channel WHERE no = ?", (no,))


def threads_swapped(folder: Path) -> None:
    """The rows of two threads, each under the name of the other."""
    with database(folder) as db:
        one, other = channel_no(db, SHOP), channel_no(db, "run:quiet")
        db.execute("UPDATE log SET channel = -1 WHERE channel = ?", (one,))
        db.execute("UPDATE log SET channel = ? WHERE channel = ?", (one, other))
        db.execute("UPDATE log SET channel = ? WHERE channel = -1", (other,))
        rechain(db, SHOP)
        rechain(db, "run:quiet")


def epoch_moved(folder: Path) -> None:
    with database(folder) as db:
        db.execute("UPDATE channel SET epoch = '0123456789abcdef' WHERE name = ?", (SHOP,))
        rechain(db, SHOP)


def thread_renamed(folder: Path) -> None:
    with database(folder) as db:
        db.execute("UPDATE channel SET name = 'run:shed' WHERE name = ?", (SHOP,))
        rechain(db, "run:shed")


def tombstone_removed(folder: Path) -> None:
    with database(folder) as db:
        db.execute("DELETE FROM link WHERE erased IN (SELECT no FROM erased WHERE name = ?)", (GONE,))
        db.execute("DELETE FROM erased WHERE name = ?", (GONE,))


def heads_removed(folder: Path) -> None:
    """All heads, with the audit log made to fit."""
    with database(folder) as db:
        no = channel_no(db, AUDIT_CHANNEL)
        db.execute("DELETE FROM log WHERE channel = ? AND kind = 'head'", (no,))
        for n, row in enumerate(rows(db, AUDIT_CHANNEL), 1):
            db.execute("UPDATE log SET n = ? WHERE channel = ? AND n = ?", (n, no, row.n))
        rechain(db, AUDIT_CHANNEL)


def audit_log_dropped(folder: Path) -> None:
    with database(folder) as db:
        no = channel_no(db, AUDIT_CHANNEL)
        for table, column in (("slot", "channel"), ("log", "channel"), ("channel", "no")):
            db.execute(f"DELETE FROM {table} WHERE {column} = ?", (no,))


def signed_anew(folder: Path) -> None:
    """A row changed, all hashes made anew, and all heads signed with another key."""
    key = AuditKey.create()
    with database(folder) as db:
        change = update(SHOP, LAMB, "kind = 'record'")
        db.commit()
        change(folder)
        rechain(db, SHOP)
        _position_again(db)
        _sign_again(db, key)


def _position_again(db: sqlite3.Connection) -> None:
    hashes = {row.n: row.hash.hex() for row in rows(db, SHOP)}
    epoch = db.execute("SELECT epoch FROM channel WHERE name = ?", (SHOP,)).fetchone()[0]
    no = channel_no(db, AUDIT_CHANNEL)
    for row in rows(db, AUDIT_CHANNEL):
        value: Any = json.loads(row.data) if row.kind == "position" else {}
        if value.get("epoch") == epoch:
            value["head"]["hash"] = hashes[value["head"]["n"]]
            data = json.dumps(value, separators=(",", ":")).encode()
            db.execute("UPDATE log SET data = ? WHERE channel = ? AND n = ?", (data, no, row.n))
    rechain(db, AUDIT_CHANNEL)


def _sign_again(db: sqlite3.Connection, key: AuditKey) -> None:
    no, previous = channel_no(db, AUDIT_CHANNEL), ""
    for n in [row.n for row in rows(db, AUDIT_CHANNEL) if row.kind == "head"]:
        by_n = {row.n: row for row in rows(db, AUDIT_CHANNEL)}
        old = msgspec.json.decode(by_n[n].data, type=SignedHead)
        head = key.sign(replace(old, hash=by_n[old.n].hash.hex(), previous=previous))
        previous = head.digest
        db.execute("UPDATE log SET data = ? WHERE channel = ? AND n = ?", (msgspec.json.encode(head), no, n))
        rechain(db, AUDIT_CHANNEL)


def blob_of(folder: Path, starts: bytes) -> Path:
    """The file with the bytes of a source."""
    return next(path for path in (folder / "sources").glob("??/*") if path.read_bytes().startswith(starts))


def copy_of(data: Path, folder: Path) -> Path:
    """What of a data folder is verified."""
    folder.mkdir(parents=True)
    for name in ("log.sqlite", "keys.json", "secret", "audit.key"):
        shutil.copy(data / name, folder / name)
    shutil.copytree(data / "sources", folder / "sources")
    return folder
