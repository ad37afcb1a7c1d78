"""The record of real runs: what is listed and exported, and that whatever is done to an export shows."""

from __future__ import annotations

import asyncio
import csv
import json
import re
import shutil
from collections.abc import Callable
from datetime import UTC, datetime
from hashlib import sha256
from io import StringIO
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st
from selectolax.lexbor import LexborHTMLParser

from citewire.agui.events import write_json
from citewire.audit.audit_filter import AuditFilter
from citewire.audit.csv_export import csv_line
from citewire.audit.export_check import ExportReport, check_export, compare_with_store
from citewire.audit.jsonl_export import Digest, export_jsonl
from citewire.audit.record import RecordedThread, read_threads
from citewire.audit.signing import AuditKey
from citewire.audit.thread_fold import date_of
from citewire.channels.memory import MemoryStore
from citewire.channels.sqlite_log import SqliteLog
from citewire.channels.store import Entry, StoreError
from citewire.errors import CitewireError, InputError
from citewire.threadlog.names import channel_of, run_channel, thread_of
from support.app import App, opened_app
from support.audit_cli import HOSTILE, SAYS, Json, audit
from support.chromium import chromium

POLICY = "You may return any lamp within 30 days. Shipping is not refunded. Gift cards are final."


async def _fill(app: App) -> None:
    for name in ("policy.txt", "never-cited.txt"):
        await app.ask("POST", f"/sources?name={name}", f"{POLICY if name[0] == 'p' else 'Nothing.'}".encode())
    await app.server.catalog.wait_until_read()
    everything = app.server.keyring.caller(None, app.key).capability
    name = app.key.partition(":")[0]
    ada, bob = (app.server.keyring.issue_token(name, everything, 60, client) for client in ("ada", "bob"))
    for thread in SAYS:
        asked = {"threadId": thread, "runId": "r", "messages": [{"id": "u", "role": "user", "content": "?"}]}
        assert (await app.ask("POST", "/agui", asked, key=ada)).status == 200
    [seen, *_] = _citations(await _log_rows(app, "shop"))
    review = {"messageId": "m", "key": seen["key"], "event": "citation_reviewed", "dwellMs": 1200}
    assert (await app.ask("POST", "/threads/shop/reviews", review, key=bob)).status == 204
    assert (await app.ask("DELETE", "/threads/gone", key=ada)).status == 204


async def _log_rows(app: App, thread: str) -> list[Json]:
    rows = await app.server.hub.store.read(channel_of(thread))
    return [json.loads(row.data) for row in rows if row.kind == "record"]


def _citations(records: list[Json]) -> list[Json]:
    return [each for each in records if each["type"] == "citation"]


@pytest.fixture(scope="module")
def crashed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[bytes]]:
    """A data folder in which all this has happened, as a crash left it; and the lines of an export of it.

    No head covers the threads, so that what the chains show by themselves can be seen.
    """
    running = tmp_path_factory.mktemp("running") / "data"
    folder = tmp_path_factory.mktemp("audit") / "data"

    async def main() -> list[bytes]:
        async with opened_app(running, agent="support.audit_cli:agent") as app:
            await app.server.trail.sign()
            await _fill(app)
            shutil.copytree(running, folder)
            key, made = app.server.trail.key, datetime.now(UTC).isoformat(timespec="milliseconds")
            async with app.server.hub.store.snapshot() as snapshot:
                return [line async for line in export_jsonl(snapshot, AuditFilter(), made, "test", key)]

    return folder, asyncio.run(main())


@pytest.fixture(scope="module")
def data(crashed: tuple[Path, list[bytes]]) -> Path:
    """The folder that was left."""
    return crashed[0]


@pytest.fixture(scope="module")
def exported(crashed: tuple[Path, list[bytes]]) -> list[bytes]:
    """The lines of an export of everything."""
    return crashed[1]


def listed(data: Path, *filters: str) -> list[Json]:
    done = audit("list", "--format", "json", "--data", data, *filters)
    assert (done.exit_code, done.stderr) == (0, "")
    return json.loads(done.stdout)


# --- what is on record ------------------------------------------------------------------------------------


def test_every_citation_is_listed(data: Path) -> None:
    """Who cited what, when, of what, with which verdict and proof, and who looked at it."""
    found = [each for each in listed(data) if each["type"] == "citation"]
    assert sorted((each["thread"], each["verdict"]["status"], each["quote"]) for each in found) == sorted(
        (thread, *said) for thread, all_said in SAYS.items() if thread != "gone" for said in all_said
    )
    assert {(each["by"], each["askedBy"], each["run"], each["message"]) for each in found} == {
        ("agent", "ada", "r", "m")
    }
    first = next(each for each in found if each["quote"] == SAYS["shop"][0][1])
    assert re.fullmatch(r"[0-9a-f]{32}", first["verdict"]["proof"])
    assert first["verdict"]["source"] == "policy.txt"
    assert re.fullmatch(r"[0-9a-f]{64}", first["verdict"]["sha256"])
    [review] = first["reviews"]
    assert (review["who"], review["event"], review["dwellMs"]) == ("bob", "citation_reviewed", 1200)
    assert all(not each["reviews"] for each in found if each is not first)


def test_a_list_for_people(data: Path) -> None:
    """On lines that fit, with no control character of what was cited."""
    done = audit("list", "--data", data)
    assert done.exit_code == 0
    assert "✓ verified" in done.stdout
    assert "≠ altered" in done.stdout
    assert "looked at: bob citation_reviewed" in done.stdout
    assert re.search(
        r"^gone  deleted \d{4}-\d\d-\d\d .*, \d+ rows without their content$", done.stdout, re.MULTILINE
    )
    assert done.stdout.endswith("5 citations in 3 threads: 2 verified, 2 missed, 1 altered; 1 deleted\n")
    assert "\x1b" not in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 100


@pytest.mark.parametrize(
    ("filters", "count"),
    [
        (["--thread", "shop"], 3),
        (["--thread", "thé/<b>"], 2),
        (["--thread", "nothing"], 0),
        (["--source", "policy.txt"], 5),
        (["--source", "policy"], 0),
        (["--status", "altered"], 1),
        (["--client", "ada"], 5),
        (["--client", "bob"], 1),
        (["--client", "agent"], 5),
        (["--since", "2026-01-01"], 5),
        (["--until", "2026-01-01"], 0),
        (["--since", "2026-01-01T00:00+02:00", "--status", "missed", "--thread", "shop"], 1),
    ],
)
def test_filters(data: Path, filters: list[str], count: int) -> None:
    found = listed(data, *filters)
    assert sum(each["type"] == "citation" for each in found) == count
    by_sha = {each["verdict"]["sha256"] for each in found if each.get("verdict", {}).get("sha256")}
    assert all(listed(data, "--source", sha256) for sha256 in by_sha)
    done = audit("export", "--data", data, *filters)
    report = check_export(done.stdout_bytes.splitlines(keepends=True))
    assert not report.breaks
    assert sum(b'"type":"citation"' in line[:20] for line in done.stdout_bytes.splitlines()) == count
    narrow = filters[0] != "--thread" or len(filters) > 2
    assert not (narrow and any(chain.deleted for chain in report.chains.values()))


def test_a_deleted_thread(data: Path, exported: list[bytes]) -> None:
    """It is listed with when and how many rows; nothing of what was in it is left anywhere."""
    [gone] = listed(data, "--thread", "gone")
    assert (gone["type"], gone["thread"]) == ("deleted", "gone")
    lines = [json.loads(line) for line in exported]
    at = next(at for at, line in enumerate(lines) if line.get("thread") == "gone")
    assert lines[at]["deleted"] == gone["at"]
    rows = [line for line in lines[at + 1 :] if line["type"] == "row"]
    assert len(rows) == gone["rows"] == lines[at]["head"]["n"]
    assert all(set(row) == {"type", "n", "tick", "kind", "before", "content"} for row in rows)
    secret = SAYS["gone"][0][1].encode()
    assert not any(secret in line for line in exported)
    assert not any(secret in file.read_bytes() for file in data.glob("log.sqlite*"))


def test_the_sources_of_a_run(exported: list[bytes]) -> None:
    """All that it had, cited or not, and what its tools brought."""
    lines = [json.loads(line) for line in exported]
    runs = {line["thread"]: line for line in lines if line["type"] == "run"}
    assert runs.keys() == SAYS.keys() - {"gone"}
    assert {run["outcome"] for run in runs.values()} == {"finished"}
    sets = {line["n"]: line["sources"] for line in lines if line["type"] == "sources"}
    for run in runs.values():
        assert {source["name"] for source in sets[run["sources"]]} == {"policy.txt", "never-cited.txt"}
        [found] = run["retrieved"]
        assert (found["name"], found["url"]) == ("Old catalogue", "https://shop.example/old")


def _record(name: str, **fields: Any) -> Entry:
    value = {"type": name, "message_id": "m", "key": "k", **fields}
    return Entry(uuid4().hex, "record", json.dumps(value).encode())


def _verdict(status: str) -> Entry:
    return _record("verdict", quote="q", verification={"citewire": {"status": status}})


def test_what_one_thread_can_hold() -> None:
    """Others who cite, a verdict that changes, reviews told again, cut text, rows of later versions."""
    cites = {"fullPhrase": "q", "title": "T\ud800"}
    review = {"event": "popover_opened", "at": "2026-11-16"}
    posted = {"messageId": "m", "key": "k", "review": {**review, "dwellMs": 1}, "clientId": "bob"}
    started = {"input": {"runId": "r", "threadId": "t"}, "clientId": "*", "key": "app.key"}
    rows = [
        _record("citation", citation=cites),
        Entry("1", "input", json.dumps(started).encode()),
        _verdict("missed"),
        _record("citation", citation=cites, by="agent", annotation="s1"),
        _record("citation", citation=cites, annotation="s2"),
        _record("review", review=review),
        Entry("4", "review", json.dumps(posted).encode()),
        Entry("5", "input", json.dumps({**started, "clientId": "eve"}).encode()),
        _record("review", review=review),
        _record("review", review=posted["review"]),
        _verdict("verified"),
        _record("omen", citation=7),
        Entry("2", "star", b"\xff"),
        Entry("3", "event", b'{"type":"TOOL_CALL_RESULT"}'),
    ]

    async def run() -> RecordedThread:
        store = MemoryStore()
        await store.append(channel_of("t"), rows)
        [found] = [each async for each in read_threads(store, AuditFilter())]
        return found

    first, second, third = asyncio.run(run()).citations
    assert [each.who for each in (first, second, third)] == [
        "agent",
        "agent (annotation)",
        "somebody (annotation)",
    ]
    assert [first.asked_by, second.asked_by] == ["", "app.key"]
    for each in (first, second, third):
        assert (each.status, [before.status for before in each.earlier]) == ("verified", ["missed"])
        assert [(look.who, look.dwell_ms) for look in each.reviews] == [("app.key", None), ("bob", 1)]


@pytest.mark.parametrize(("kind", "data"), [("record", b"\xff"), ("record", b"[]"), ("input", b"{}")])
def test_a_row_that_cannot_be_read(kind: str, data: bytes) -> None:
    async def run() -> None:
        store = MemoryStore()
        await store.append(channel_of("t"), [Entry("a", kind, data)])
        with pytest.raises(StoreError, match="row 1 of thread t cannot be read"):
            [each async for each in read_threads(store, AuditFilter())]

    asyncio.run(run())


def test_the_names_of_channels_are_those_of_the_server() -> None:
    """And what it writes down is read: the rest of this file sees to that."""
    for thread in ("t", "thé/<b>", "a:b%20"):
        assert run_channel(thread) == channel_of(thread)
        assert thread_of(channel_of(thread)) == thread


def test_beside_a_server(tmp_path: Path) -> None:
    """It is read while the server writes to it, and nothing is left over."""

    async def main() -> None:
        async with opened_app(tmp_path, agent="support.audit_cli:agent") as app:
            await _fill(app)
            count = len(await asyncio.to_thread(listed, tmp_path))
            assert count == 6
            file = tmp_path / "out.jsonl"
            await asyncio.to_thread(audit, "export", "--data", tmp_path, "-o", file)
            trusted = ("--public-key", app.server.trail.key.public)
            done = await asyncio.to_thread(audit, "verify", file, "--data", tmp_path, *trusted)
            assert done.exit_code == 0, done.output
            assert (await app.ask("DELETE", "/threads/shop")).status == 204
            # What was exported before is still what was there.
            done = await asyncio.to_thread(audit, "verify", file, "--data", tmp_path, *trusted)
            assert done.exit_code == 0, done.stdout
            assert not file.with_name("out.jsonl.part").exists()

    asyncio.run(main())


def test_an_export_is_of_one_moment(tmp_path: Path) -> None:
    """Threads that are deleted, written to or begun while it is made do not break it."""

    async def main() -> None:
        async with opened_app(tmp_path, agent="support.audit_cli:agent") as app:
            await _fill(app)
            store = app.server.hub.store
            lines: list[bytes] = []
            async with store.snapshot() as snapshot:
                async for line in export_jsonl(snapshot, AuditFilter(), "2027-01-01", "test"):
                    if not lines:
                        assert (await app.ask("DELETE", "/threads/shop")).status == 204
                        again: Json = {"threadId": "quiet", "runId": "again", "messages": []}
                        assert (await app.ask("POST", "/agui", again)).status == 200
                        assert (await app.ask("POST", "/agui", again | {"threadId": "gone"})).status == 200
                    lines.append(line)
            report = check_export(lines)
            await compare_with_store(report, store)
            assert [each for each in report.breaks if "export has not" not in each.what] == []
            assert {chain.thread for chain in report.chains.values() if not chain.deleted} >= {
                "shop",
                "quiet",
            }

    asyncio.run(main())


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["list", "--status", "fine"], "a status is one of"),
        (["list", "--since", "yesterday"], "a time is written as"),
        (["list", "--data", "nowhere"], "there is no log in the data folder nowhere"),
        (["export", "--data", "nowhere", "-o", "x"], "there is no log"),
        (["verify", "nowhere"], "No such file"),
    ],
)
def test_what_cannot_be_done(
    arguments: list[str], says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = audit(*arguments)
    assert done.exit_code == 2
    assert says in done.stderr
    assert not [*tmp_path.iterdir()]


# --- what was done to an export ---------------------------------------------------------------------------


def _remade(lines: list[bytes]) -> list[bytes]:
    """With the digest of what it is now, as somebody would make it who knows how."""
    digest = Digest()
    return [*map(digest.take, lines[:-1]), write_json(digest.end) + b"\n"]


def _at(lines: list[bytes], *words: bytes) -> int:
    """The first line with all these words, in the thread `shop`."""
    start = next(at for at, line in enumerate(lines) if b'"thread":"shop"' in line and b'"chain"' in line)
    return next(at for at, line in enumerate(lines[start:], start) if all(word in line for word in words))


def _n(line: bytes) -> int:
    return json.loads(line)["n"]


def _row(lines: list[bytes]) -> int:
    return _at(lines, b'"type":"row"', b'"kind":"record"', b'\\"verdict\\"')


def _change_content(lines: list[bytes]) -> str:
    at = _row(lines)
    lines[at] = lines[at].replace(b"lamp", b"lamb")
    return f"thread shop: row {_n(lines[at])} was changed"


def _change_kind(lines: list[bytes]) -> str:
    at = _row(lines)
    lines[at] = lines[at].replace(b'"kind":"record"', b'"kind":"event"')
    return f"thread shop: row {_n(lines[at])} was changed"


def _change_the_last(lines: list[bytes]) -> str:
    at = _at(lines, b'"kind":"review"')
    lines[at] = lines[at].replace(b"bob", b"eve")
    return f"thread shop: row {_n(lines[at])} was changed"


def _leave_out(lines: list[bytes]) -> str:
    n = _n(lines.pop(_row(lines)))
    return f"thread shop: row {n} is missing before row {n + 1}"


def _leave_out_the_last(lines: list[bytes]) -> str:
    n = _n(lines.pop(_at(lines, b'"kind":"review"')))
    return f"thread shop: it ends with row {n - 1}, not with row {n}"


def _swap(lines: list[bytes]) -> str:
    at = _row(lines)
    lines[at : at + 2] = lines[at + 1], lines[at]
    return f"thread shop: row {_n(lines[at + 1])} is out of order"


def _insert(lines: list[bytes]) -> str:
    at = _row(lines)
    lines.insert(at, lines[at])
    return f"thread shop: row {_n(lines[at])} is there twice or was inserted"


def _blacken(lines: list[bytes]) -> str:
    """As if the content had been deleted."""
    at = _row(lines)
    row = json.loads(lines[at])
    lines[at] = (
        json.dumps(
            {
                "type": "row",
                **{key: row[key] for key in ("n", "tick", "kind", "before")},
                "content": "00" * 32,
            },
            separators=(",", ":"),
        ).encode()
        + b"\n"
    )
    return f"thread shop: row {row['n']} is without its content"


def _edit_a_verdict(lines: list[bytes]) -> str:
    at = _at(lines, b'"type":"citation"', b'"status":"altered"')
    lines[at] = lines[at].replace(b'"status":"altered"', b'"status":"verified"')
    return f"line {at + 1}, of thread shop: it says what the rows do not say"


def _leave_out_a_citation(lines: list[bytes]) -> str:
    at = _at(lines, b'"type":"citation"', b'"status":"missed"')
    assert b'"chain"' in lines[at + 1]
    del lines[at]
    return "thread shop: a line is missing"


def _rename(lines: list[bytes]) -> str:
    at = _at(lines, b'"type":"chain"')
    lines[at] = lines[at].replace(b'"thread":"shop"', b'"thread":"shed"')
    return "thread shed: the thread is not that of the channel"


def _another_channel(lines: list[bytes]) -> str:
    at = _at(lines, b'"type":"chain"')
    lines[at] = lines[at].replace(b"shop", b"shed")
    return "thread shed: the chain does not begin as that of this channel does"


def _twice(lines: list[bytes]) -> str:
    lines[-1:-1] = lines[_span(lines, "shop")]
    return "thread shop: it is there twice"


_TAMPERED = [
    _change_content, _change_kind, _change_the_last, _leave_out, _leave_out_the_last, _swap, _insert,
    _blacken, _edit_a_verdict, _leave_out_a_citation, _rename, _another_channel, _twice,
]  # fmt: skip


@pytest.mark.parametrize("tamper", _TAMPERED)
def test_what_was_tampered_with(
    tamper: Callable[[list[bytes]], str], exported: list[bytes], tmp_path: Path
) -> None:
    """The place is named, and only that one; where the digest was not made anew, that shows too."""
    lines = [*exported]
    says = tamper(lines)
    for kept, breaks in ((_remade(lines), 1), (lines, 2)):
        file = tmp_path / "tampered.jsonl"
        file.write_bytes(b"".join(kept))
        done = audit("verify", file)
        assert done.exit_code == 1
        told = done.stdout.splitlines()
        assert told[0].startswith(f"broken: {says}"), told
        assert len(told) == breaks, told


def test_an_export_that_is_whole(exported: list[bytes], data: Path, tmp_path: Path) -> None:
    file = tmp_path / "all.jsonl"
    file.write_bytes(b"".join(exported))
    public = audit("key", "show", "--data", data).stdout.strip()
    trusted = tmp_path / "audit.pub"
    trusted.write_text(public + "\n")
    for arguments in (["--data", data], []):
        for key in (public, trusted):
            done = audit("verify", file, *arguments, "--public-key", key)
            assert done.exit_code == 0, done.output
            assert re.match(r"whole: 4 threads \(1 deleted\), \d+ rows, 5 citations, made 20", done.stdout)
            assert "signed by the trusted key " in done.stdout
        # Without a trusted key nothing is ever in order.
        done = audit("verify", file, *arguments)
        assert done.exit_code == 3
        assert "signed by the unknown key " in done.stdout
    done = audit("verify", file, "--public-key", AuditKey.create().public)
    assert done.exit_code == 1
    assert "broken: signature: it is signed by the unknown key " in done.stdout
    file.write_bytes(b"".join(_remade(exported)))
    done = audit("verify", file, "--public-key", public)
    assert (done.exit_code, done.stdout) == (1, "broken: signature: the export is not signed\n")


@pytest.mark.parametrize("keep", [1, 2, 30, -2, -1])
def test_cut_off(exported: list[bytes], keep: int) -> None:
    report = check_export(exported[:keep])
    assert report.breaks[-1] == ("end", "the last line is missing: the file was cut off")


def test_something_after_the_end(exported: list[bytes]) -> None:
    assert [each.what for each in check_export([*exported, b"\n"]).breaks] == [
        "something comes after the end"
    ]


@pytest.mark.parametrize(
    "given",
    [b"", b"\n", b"thread,run\n", b"<!doctype html>\n", b"\xff\xfe", b'{"type":"row"}\n', b"[" * 10**5],
)
def test_no_export_at_all(given: bytes, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(given)
    done = audit("verify", file)
    assert done.exit_code == 2
    assert "other formats have no chain to check" in done.stderr


def _span(lines: list[bytes], thread: str) -> slice:
    """The lines of a thread."""
    start = next(at for at, line in enumerate(lines) if f'"thread":"{thread}"}}'.encode() in line)
    return slice(start, next(at for at in range(start + 1, len(lines)) if lines[at][:14] in _NEXT))


_NEXT = (b'{"type":"chain', b'{"type":"end",')


def _forged(lines: list[bytes]) -> list[bytes]:
    """Without the last row of the thread `quiet`, and with all hashes and lines made to fit."""
    chain, *rest = lines[_span(lines, "quiet")]
    rows = [line for line in rest if line.startswith(b'{"type":"row"')]
    last, cut = json.loads(rows[-2]), json.loads(rows[-1])
    head = json.loads(chain) | {"head": {"n": last["n"], "tick": last["tick"], "hash": cut["before"]}}
    told = [line.replace(b'"outcome":"finished"', b'"outcome":null') for line in rest if line not in rows]
    forged = [*lines]
    made = json.dumps(head, separators=(",", ":")).encode() + b"\n"
    forged[_span(lines, "quiet")] = [made, *rows[:-1], *told]
    return _remade(forged)


def test_compared_with_the_store(exported: list[bytes], data: Path, tmp_path: Path) -> None:
    """What the file alone cannot tell: rows, or a whole thread, left out with all hashes made anew."""

    def compared(lines: list[bytes], folder: Path) -> list[str]:
        async def run() -> ExportReport:
            report, log = check_export(lines), SqliteLog.open(folder)
            assert not report.breaks
            await compare_with_store(report, log)
            await log.close()
            return report

        return [": ".join(each) for each in asyncio.run(run()).breaks]

    assert not compared(exported, data)
    # A shorter export is what an earlier one would have been.
    assert not compared(_forged(exported), data)
    without = [*exported]
    del without[_span(exported, "shop")]
    assert compared(_remade(without), data) == ["thread shop: the store has it, the export has not"]
    deleted = next(at for at, line in enumerate(exported) if b'"thread":"gone"' in line)
    assert compared(_remade([*exported[:deleted], b""]), data) == [
        "thread gone: the store has it, the export has not"
    ]
    # An older copy of the data knows less; another server knows nothing.
    older = tmp_path / "older"
    shutil.copytree(data, older)

    async def forget() -> None:
        async with opened_app(older, agent="support.audit_cli:agent") as app:
            await app.ask("DELETE", "/threads/quiet")
            await app.ask("POST", "/agui", {"threadId": "quiet", "runId": "r2"})

    asyncio.run(forget())
    assert not compared(exported, older)
    again = audit("export", "--data", older).stdout_bytes.splitlines(keepends=True)
    first, *others = compared(again, data)
    assert first.startswith("the audit log: the store has only ")
    assert others == ["thread quiet: the store does not know it", "thread quiet: it was not deleted"]


@given(st.data())
def test_any_changed_byte_is_found(exported: list[bytes], drawn: st.DataObject) -> None:
    """Wherever it is, the first and the last line too."""
    line = drawn.draw(st.integers(0, len(exported) - 1))
    at = drawn.draw(st.integers(0, len(exported[line]) - 1))
    byte = drawn.draw(st.integers(0, 255).filter(lambda byte: byte != exported[line][at]))
    changed = exported[line][:at] + bytes([byte]) + exported[line][at + 1 :]
    whole = b"".join([*exported[:line], changed, *exported[line + 1 :]])
    try:
        assert check_export(whole.splitlines(keepends=True)).breaks
    except InputError:
        assert line == 0


@given(st.data())
def test_nothing_in_a_row_breaks_the_check(exported: list[bytes], drawn: st.DataObject) -> None:
    """Whatever stands there, with the digest made anew: it is told, or it is what the rows say."""
    line = drawn.draw(st.integers(1, len(exported) - 2))
    value = json.loads(exported[line])
    field = drawn.draw(st.sampled_from(sorted(value)))
    value[field] = drawn.draw(
        st.none() | st.integers() | st.text(max_size=5) | st.just("\ud800") | st.just([]) | st.just("é" * 32)
    )
    made = json.dumps(value, separators=(",", ":")).encode() + b"\n"
    report = check_export(_remade([*exported[:line], made, *exported[line + 1 :]]))
    if json.loads(exported[line]) != value and field != "deleted":
        assert report.breaks


def test_dates_that_are_none() -> None:
    with pytest.raises(CitewireError):
        date_of(10**30)


# --- for people -------------------------------------------------------------------------------------------


def test_a_sheet(data: Path) -> None:
    """One line for each citation; no cell that a spreadsheet would take for a formula."""
    done = audit("export", "--format", "csv", "--data", data)
    rows = [*csv.DictReader(StringIO(done.stdout_bytes.decode(), newline=""))]
    assert [row["status"] for row in rows if row["thread"] == "shop"] == ["verified", "altered", "missed"]
    assert {row["source"] for row in rows} == {"policy.txt"}
    assert "\x1b" not in done.stdout


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@x", "\t=1", " =1", "\r=1", "＝1", "\x00=1"])
def test_no_formula(text: str) -> None:
    [cell, number] = next(csv.reader(StringIO(csv_line((text, 7)), newline="")))
    assert cell[0] in "'␀"
    assert number == "7"


def test_a_page(data: Path, tmp_path: Path) -> None:
    """It says all, stands alone and runs nothing, whatever was cited."""
    file = tmp_path / "record.html"
    done = audit("export", "--format", "html", "--data", data, "-o", file)
    assert (done.exit_code, done.stderr) == (0, "")
    text = file.read_text("utf-8")
    tree = LexborHTMLParser(text)
    assert not tree.css("script, link, img, iframe, object, [src], [onclick], [style]")
    figures = {div.css("dt")[0].text(): div.css("dd")[0].text() for div in tree.css("dl div")}
    assert figures == {
        "threads": "3", "citations": "5", "verified": "2", "missed": "2", "altered": "1", "reviews": "1",
        "deleted threads": "1",
    }  # fmt: skip
    quotes = {quote.text() for quote in tree.css("q")}
    assert {said for thread in ("shop", "thé/<b>") for _, said in SAYS[thread] if said != HOSTILE} < quotes
    assert "</q><script>document.title='run'</script>␛[31m =SUM(A1)" in quotes
    assert {link.attributes["href"] for link in tree.css("a")} == {f"#{tree.css('section[id]')[0].id}"}
    listed_sources = [item.text() for item in tree.css("section[id] li")]
    assert any("never-cited.txt not cited" in item for item in listed_sources)
    assert any("policy.txt cited" in item for item in listed_sources)
    with chromium(tmp_path / "profile") as tab:
        tab.open(file.as_uri())
        assert tab.evaluate("document.title").startswith("Citation record")
        assert not tab.told("Log.entryAdded")
        assert tab.evaluate("document.documentElement.scrollWidth <= innerWidth")


# --- the documentation ------------------------------------------------------------------------------------


def test_the_commands_of_the_page_run(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One after the other, over the folder that is taken where none is named."""
    page = (Path(__file__).parents[2] / "docs/audit.md").read_text("utf-8")
    commands = re.findall(r"^\$ citewire audit (.+)$", page, re.MULTILINE)
    assert len(commands) == 13
    shutil.copytree(data, tmp_path / ".citewire")
    monkeypatch.chdir(tmp_path)
    for command in commands:
        words, _, output = command.partition(" > ")
        done = audit(*words.split())
        assert done.exit_code == 0, done.output
        if output:
            (tmp_path / output).write_text(done.stdout)


def test_the_protocol_says_how_to_check_it(exported: list[bytes]) -> None:
    """Done by hand, as section 10 says."""
    chain: Json = {}
    before = b""
    for line in map(json.loads, exported):
        if line["type"] == "chain":
            chain, before = line, sha256(f"{line['epoch']}:{line['channel']}".encode()).digest()
            assert line["floor"] == {"n": 0, "tick": 0, "hash": before.hex()}
        elif line["type"] == "row":
            assert line["before"] == before.hex()
            if "content" in line:
                content = bytes.fromhex(line["content"])
            else:
                name = line["id"].encode()
                content = sha256(f"{len(name)} ".encode() + name + line["data"].encode()).digest()
            before = sha256(before + f"{line['n']} {line['tick']} {line['kind']}".encode() + content).digest()
            if line["n"] == chain["head"]["n"]:
                assert before.hex() == chain["head"]["hash"]
    assert json.loads(exported[-1])["sha256"] == sha256(b"".join(exported[:-1])).hexdigest()
