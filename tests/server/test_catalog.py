"""Sources of the server: nothing acknowledged is lost, nothing needed goes, and none harms another."""

from __future__ import annotations

import asyncio
import hashlib
import io
import os
import zipfile
from collections.abc import Callable, Coroutine, Iterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from starlette.types import Message

from citewire import codec
from citewire.channels.memory import MemoryStore
from citewire.channels.sqlite import SqliteStore
from citewire.channels.store import Entry
from citewire.documents.draw import Crop
from citewire.documents.errors import DocumentError
from citewire.documents.fetch import FetchResult
from citewire.errors import Conflict, InputError, NotFound
from citewire.server.http.operations import openapi
from citewire.server.sources.source_api import SourceApi
from citewire.server.sources.stored_sources import CHANNEL, safe_name
from citewire.threadlog.names import channel_of
from support.cases import ROOT
from support.catalog_desk import Desk, desk
from support.pdfs import Line, Sheet, make_pdf

SAMPLES = ROOT / "src/citewire/samples"
FEE = b"The fee is 40 dollars a month."
NEW_FEE = b"The fee is 50 dollars a month."


def run(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """A test that is a coroutine."""

    def runs(tmp_path: Path) -> None:
        asyncio.run(test(tmp_path))

    runs.__doc__ = test.__doc__
    return runs


def files(home: Path) -> Iterator[str]:
    """What is kept of bytes, whole or not."""
    for path in sorted((home / "sources").rglob("*")):
        if path.is_file():
            yield path.name


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


async def kinds(desk: Desk) -> list[str]:
    return [row.kind for row in await desk.hub.store.read(CHANNEL)]


@run
async def test_the_samples_from_upload_to_answer(tmp_path: Path) -> None:
    """Every kind is read, found by whatever a citation calls it, and shown."""
    async with desk(tmp_path) as here:
        form = [("files", (path.name, path.read_bytes())) for path in sorted(SAMPLES.iterdir())]
        sent = await here.http.post("/sources", files=form)
        assert sent.status_code == 201
        ids = {source["name"]: source["id"] for source in sent.json()["sources"]}
        assert await here.read() == dict.fromkeys(ids, "ready")
        assert here.index.source_ids() == {*ids.values()}
        report = (await here.http.get(f"/sources/{ids['report.pdf']}")).json()
        raw = (SAMPLES / "report.pdf").read_bytes()
        assert report | {"addedAt": ""} == {
            "id": ids["report.pdf"], "name": "report.pdf", "from": "upload", "state": "ready", "reason": None,
            "addedAt": "", "size": len(raw), "sha256": sha256(raw), "kind": "pdf", "pages": 6,
            "title": "Quillmere Lamps: Annual report 2025", "url": None,
        }  # fmt: skip
        quote = "Other operating costs (786) (843)"
        for name in ("report.pdf", report["title"], report["sha256"], report["id"], None):
            found = await here.check(quote, name)
            assert (found.status, found.source, found.page) == ("verified", "report.pdf", 4)
        text = (await here.http.get(f"/sources/{report['id']}/text")).json()
        page = text["pages"][3]
        assert "Other operating costs" in text["text"][page["start"] : page["end"]]
        assert text["lines"] == sorted(text["lines"])
        assert [page["start"] for page in text["pages"]][1:] == [page["end"] for page in text["pages"]][:-1]
        for form_, kind in (("png", "PNG"), ("jpg", "JPEG"), ("webp", "WEBP"), ("avif", "AVIF")):
            shown = await here.http.get(f"/sources/{report['id']}/pages/2.{form_}", params={"scale": 0.5})
            with Image.open(io.BytesIO(shown.content)) as image:
                assert image.format == kind
        content = await here.http.get(f"/sources/{report['id']}/content")
        assert content.content == raw
        assert content.headers["content-type"] == "application/pdf"
        assert content.headers["content-disposition"] == 'attachment; filename="report.pdf"'
        assert content.headers["x-content-type-options"] == "nosniff"


@run
async def test_a_restart_finds_everything_and_reads_nothing_again(tmp_path: Path) -> None:
    seen: list[Any] = []
    with pytest.MonkeyPatch.context() as patch:
        for start in range(2):
            if start:
                # Whoever is read now fails.
                patch.setattr("citewire.documents.reader._COMMAND", ("-c", "raise SystemExit(9)"))
            store = SqliteStore(tmp_path / "log")
            try:
                async with desk(tmp_path, SAMPLES / "handbook.md", store=store) as here:
                    if not start:
                        await here.upload("fee.txt", FEE)
                        gone = await here.upload("gone.txt", b"Nobody needs this.")
                        await here.catalog.remove(gone["id"])
                    assert await here.read() == {"fee.txt": "ready", "handbook.md": "ready"}
                    seen.append((here.catalog.records(), await kinds(here)))
            finally:
                await store.close()
    assert seen[0] == seen[1]


@run
async def test_the_same_again_is_nothing_new_and_another_file_takes_its_place(tmp_path: Path) -> None:
    async with desk(tmp_path) as here:
        first = await here.upload("fee.txt", FEE)
        assert (await here.http.post("/sources?name=fee.txt", content=FEE)).status_code == 200
        await here.read()
        assert (await here.check("The fee is 40 dollars a month")).status == "verified"
        second = await here.upload("FEE.txt".lower(), NEW_FEE)
        assert second["id"] == first["id"]
        assert await here.read() == {"fee.txt": "ready"}
        assert [passage.text for passage in here.index.search("What is the fee?")] == [NEW_FEE.decode()]
        old, new = await here.check("The fee is 40 dollars a month"), await here.check(NEW_FEE.decode())
        assert (old.status, new.status) == ("altered", "verified")
        # As long as a verdict may be on its way, what it was found in is there.
        assert sha256(FEE) in files(tmp_path)
        await here.catalog.sweep(0)
        assert list(files(tmp_path)) == [sha256(NEW_FEE)]
        # And back again: a row is not taken for one that was there before.
        await here.upload("fee.txt", FEE)
        await here.read()
        assert (await here.check("The fee is 40 dollars a month")).status == "verified"


@run
async def test_what_was_deleted_is_nowhere(tmp_path: Path) -> None:
    async with desk(tmp_path) as here:
        source = await here.upload("fee.txt", FEE)
        other = await here.upload("other.txt", b"Something else entirely.")
        await here.read()
        assert (await here.check(FEE.decode())).source == "fee.txt"
        assert (await here.http.delete(f"/sources/{source['id']}")).status_code == 204
        assert (await here.http.delete(f"/sources/{source['id']}")).status_code == 404
        assert (await here.check(FEE.decode())).status == "missed"
        assert (await here.check(FEE.decode(), "fee.txt")).reason == "no source is called fee.txt"
        await here.catalog.sweep(0)
        assert list(files(tmp_path)) == [sha256(b"Something else entirely.")]
        assert not any(sha256(FEE) in path.name for path in (tmp_path / "cache").rglob("*"))
        assert (await here.versions.find(sha256(FEE), "fee.txt", None)).state == "gone"
        await here.upload("last.txt", b"Words that come last.")
        await here.read()
        assert here.index.source_ids() == {other["id"], here.catalog.records()[0].id}


@run
async def test_bytes_stay_while_a_verdict_refers_to_them(tmp_path: Path) -> None:
    """Also when the source is gone, its successor too, and the server was restarted."""
    store, raw = MemoryStore(), (SAMPLES / "report.pdf").read_bytes()
    await store.append(channel_of("a/b"), [Entry("1", "input", b"{}")])
    await store.append(channel_of("c"), [Entry("1", "input", b"{}")])
    async with desk(tmp_path, store=store) as here:
        source = await here.upload("report.pdf", raw)
        for thread in ("a/b", "c", "a/b"):
            await here.catalog.mark_cited([sha256(raw), "0" * 64], thread)
        await here.catalog.remove(source["id"])
        assert await kinds(here) == ["added", "cited", "cited", "removed"]
        await here.catalog.forget_thread("c")
        await here.catalog.forget_thread("unknown")
        await here.catalog.sweep(0)
    async with desk(tmp_path, store=store) as here:
        await here.catalog.recover()
        assert here.catalog.records() == []
        assert sha256(raw) in files(tmp_path)
        document = (await here.versions.find(sha256(raw), "report.pdf", None)).document
        assert document
        assert (document.name, len(document.pages)) == ("report.pdf", 6)
        assert (await here.catalog.draw(sha256(raw), Crop(1, scale=0.2))).startswith(b"\x89PNG")
        # The thread was deleted, and the server stopped before anybody told the catalog.
        await store.drop(channel_of("a/b"))
        await here.catalog.recover()
        assert list(files(tmp_path)) == []
        with pytest.raises(NotFound):
            await here.catalog.draw(sha256(raw), Crop(1))


@run
async def test_a_thread_of_the_same_name_may_cite_again(tmp_path: Path) -> None:
    async with desk(tmp_path) as here:
        source = await here.upload("fee.txt", FEE)
        for _ in range(2):
            await here.catalog.mark_cited([sha256(FEE)], "t")
            await here.catalog.forget_thread("t")
        await here.catalog.mark_cited([sha256(FEE)], "t")
        await here.catalog.remove(source["id"])
        await here.catalog.sweep(0)
        assert list(files(tmp_path)) == [sha256(FEE)]


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ("../../x", "x"), ("C:\\x", "x"), ("/etc/passwd", "passwd"), ("a\0b\r\nc.txt", "a b c.txt"),
        ("..\\..\\a.txt", "a.txt"), ("x" * 300 + ".pdf", "x" * 196 + ".pdf"), ("n\u0303.md", "ñ.md"),
        ("a\u202egnp.exe", "a gnp.exe"), ("  spaced   out.txt ", "spaced out.txt"), (".hidden", ".hidden"),
        ("<b>&\"'.html", "<b>&\"'.html"), ("\ud800half", "half"), ("." + "y" * 300, "." + "y" * 199),
    ],
)  # fmt: skip
def test_names_lead_nowhere(given: str, name: str) -> None:
    assert safe_name(given) == name


@pytest.mark.parametrize("given", ["", " ", ".", "..", "a/", "a/..", "\\", "\0", "\u200b"])
def test_no_name_is_none(given: str) -> None:
    with pytest.raises(InputError):
        safe_name(given)


@run
async def test_hostile_names_are_only_names(tmp_path: Path) -> None:
    async with desk(tmp_path / "data") as here:
        await here.upload("../../../escape.txt", FEE)
        sent = await here.http.post(
            "/sources", files=[("f", ('x"; evil="\r\n', b"one")), ("f", ("..\\..\\two.txt", b"two"))]
        )
        assert sent.status_code == 201
        assert {*await here.read()} >= {"escape.txt", "two.txt"}
        for each in here.catalog.records():
            content = await here.http.get(f"/sources/{each.id}/content")
            assert content.headers["content-disposition"].startswith("attachment; filename")
    assert {*files(tmp_path / "data")} == {sha256(data) for data in (FEE, b"one", b"two")}
    assert os.listdir(tmp_path) == ["data"]  # noqa: PTH208


@run
async def test_names_are_of_one_source_only(tmp_path: Path) -> None:
    """What is uploaded does not replace a file of a folder that is called the same."""
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/fee.txt").write_bytes(FEE)
    async with desk(tmp_path, tmp_path / "docs") as here:
        assert (await here.upload("fee.txt", NEW_FEE))["name"] == "fee (2).txt"
        assert (await here.upload("Fee.txt", NEW_FEE))["name"] == "Fee (3).txt"
        assert (await here.upload("fee.txt", FEE))["name"] == "fee (2).txt"
        assert len(await here.read()) == 3


def bomb() -> bytes:
    """A DOCX whose only part is a gigabyte of blanks."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        main = "application/vnd.openxmlformats-officedocument.wordprocessingml.document.main+xml"
        archive.writestr(
            "[Content_Types].xml", f'<Types><Override PartName="/d.xml" ContentType="{main}"/></Types>'
        )
        with archive.open("word/document.xml", "w") as part:
            for _ in range(1024):
                part.write(b" " * (1 << 20))
    return out.getvalue()


@pytest.mark.slow
@run
async def test_what_lies_or_is_broken_fails_alone(tmp_path: Path) -> None:
    """Bytes are what they are, whatever they are called; and one that cannot be read stays in the list."""
    async with desk(tmp_path) as here:
        pdf = make_pdf(Sheet([Line("This is a PDF in truth.")]))
        await here.upload("picture.png", pdf, "image/png")
        await here.upload("page.pdf", b"<!doctype html><p>This is a page in truth.", "application/pdf")
        await here.upload("good.txt", FEE)
        for name, data in {
            "empty.txt": b"", "broken.pdf": b"%PDF-1.7\n1 0 obj", "archive.docx": b"PK\3\4nothing",
            "old.doc": b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "bomb.docx": bomb(),
        }.items():  # fmt: skip
            await here.upload(name, data, "text/plain")
        states = await here.read()
        good = {name for name, state in states.items() if state == "ready"}
        assert good == {"picture.png", "page.pdf", "good.txt"}
        assert states.keys() - good == {"empty.txt", "broken.pdf", "archive.docx", "old.doc", "bomb.docx"}
        records = {record.name: record for record in here.catalog.records()}
        assert [records[name].kind for name in ("picture.png", "page.pdf")] == ["pdf", "html"]
        assert all(records[name].reason for name in states.keys() - good)
        assert records["empty.txt"].reason == "it is empty"
        assert (await here.check(FEE.decode())).status == "verified"
        broken = records["broken.pdf"].id
        for path, status in (("text", 422), ("pages/1.png", 422), ("content", 200)):
            assert (await here.http.get(f"/sources/{broken}/{path}")).status_code == status
        for path in ("pages/1.png", "pages/0.png", "pages/2.gif", "pages/x.png", "pages/-1.png"):
            shown = await here.http.get(f"/sources/{records['good.txt'].id}/{path}")
            assert (shown.status_code, shown.json()["error"]["code"]) == (404, "not_found")


async def send_raw(
    app: Any, path: str, query: bytes, headers: dict[str, str], *messages: Message
) -> list[Message]:
    """What an app answers to a request that comes in these pieces."""
    waiting, sent = list(messages), list[Message]()

    async def receive() -> Message:
        return waiting.pop(0) if waiting else {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        sent.append(message)

    scope = {
        "type": "http", "method": "POST", "path": path, "raw_path": path.encode(), "query_string": query,
        "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
        "client": ("127.0.0.1", 1), "server": ("desk", 80), "scheme": "http",
        "http_version": "1.1", "root_path": "",
    }  # fmt: skip
    await app(scope, receive, send)
    return sent


@run
async def test_an_upload_that_is_cut_or_too_large_leaves_nothing(tmp_path: Path) -> None:
    part = b'--b\r\ncontent-disposition: form-data; name="f"; filename="a.txt"\r\n\r\n'
    form = {"content-type": "multipart/form-data; boundary=b"}
    async with desk(tmp_path, max_upload=1 << 20) as here:
        for query, headers, begin in ((b"name=a.txt", {}, b""), (b"", form, part)):
            piece = {"type": "http.request", "body": begin + b"x" * 1000, "more_body": True}
            assert await send_raw(here.app, "/sources", query, headers, piece) == []
            large = {"type": "http.request", "body": begin + b"x" * (1 << 20), "more_body": True}
            sent = await send_raw(here.app, "/sources", query, headers, large, large)
            assert sent[0]["status"] == 413
        assert list(files(tmp_path)) == []
        assert here.catalog.records() == []
        bad = await here.http.post("/sources", content=b"--b nonsense", headers=form)
        assert (bad.status_code, bad.json()["error"]["code"]) == (400, "bad_input")


@run
async def test_uploads_of_the_same_bytes_at_once(tmp_path: Path) -> None:
    """Under one name they are one source, under many names many, and the bytes are there once."""
    async with desk(tmp_path) as here:
        sent = await asyncio.gather(*(here.http.post("/sources?name=a.txt", content=FEE) for _ in range(20)))
        assert sorted(each.status_code for each in sent) == [200] * 19 + [201]
        await asyncio.gather(*(here.upload(f"{n}.txt", FEE) for n in range(20)))
        assert len(here.catalog.records()) == 21
        assert list(files(tmp_path)) == [sha256(FEE)]
        for record in here.catalog.records()[:-1]:
            await here.catalog.remove(record.id)
        await here.catalog.sweep(0)
        # The last one has them still.
        assert list(files(tmp_path)) == [sha256(FEE)]


@run
async def test_a_caller_who_leaves_leaves_nothing_halfway(tmp_path: Path) -> None:
    """Cancelled at any step, a source is there after a restart exactly if it is there before."""
    store = MemoryStore()
    async with desk(tmp_path, store=store) as here:
        for steps in range(40):
            task = asyncio.create_task(here.upload(f"{steps}.txt", b"%d" % steps))
            for _ in range(steps):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        await here.upload("last.txt", b"last")
        await here.read()
        names = [record.name for record in here.catalog.records()]
        for record in here.catalog.records():
            assert await here.catalog.path(record.id)
    async with desk(tmp_path, store=store) as here:
        assert [record.name for record in here.catalog.records()] == names
        await here.catalog.recover()
        assert len([*files(tmp_path)]) == len(names)


@run
async def test_what_a_crash_left_is_cleaned_up(tmp_path: Path) -> None:
    stray = tmp_path / "sources" / sha256(b"stray")[:2] / sha256(b"stray")
    stray.parent.mkdir(parents=True)
    stray.write_bytes(b"stray")
    (tmp_path / "sources/.aside-x").write_bytes(b"half")
    async with desk(tmp_path) as here:
        kept = await here.upload("fee.txt", FEE)
        await here.catalog.recover()
        assert [*files(tmp_path)] == [kept["sha256"]]


@run
async def test_a_file_counts_once_while_it_is_taken(tmp_path: Path) -> None:
    """Also between the moment in which it is kept and the one in which nobody waits for it any more."""
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/fee.txt").write_bytes(FEE)
    async with desk(tmp_path / "data", tmp_path / "docs") as here:
        await here.read()
        here.catalog.watch.coming |= {record.id for record in here.catalog.records()} | {"another"}
        assert here.catalog.status() == (1, 2)


@run
async def test_a_folder_is_followed(tmp_path: Path) -> None:
    docs = tmp_path / "docs"
    (docs / "deep").mkdir(parents=True)
    (docs / "fee.txt").write_bytes(FEE)
    (docs / "deep/more.md").write_bytes(b"More words are deeper down.")
    (docs / ".hidden.txt").write_bytes(b"hidden")
    (tmp_path / "secret.txt").write_bytes(b"secret")
    (docs / "link.txt").symlink_to(tmp_path / "secret.txt")
    (docs / "near.txt").symlink_to(docs / "fee.txt")
    (docs / "loop.txt").symlink_to(docs / "loop.txt")
    (docs / "out").symlink_to(tmp_path)
    os.mkfifo(docs / "pipe")
    async with desk(tmp_path / "data", docs) as here:
        expected = {"fee.txt": "ready", "near.txt": "ready", "deep/more.md": "ready", "pipe": "failed"}
        assert await here.read() == expected
        rows = await kinds(here)
        await here.catalog.watch.poll()
        assert await kinds(here) == rows
        before = {record.name: record for record in here.catalog.records()}
        (docs / "new.txt").write_bytes(b"A new file has come.")
        (docs / "deep/more.md").unlink()
        (docs / "fee.txt").write_bytes(NEW_FEE)
        await here.catalog.watch.poll()
        # They may still be written to.
        assert {*await here.read()} == {"fee.txt", "near.txt", "pipe"}
        await here.catalog.watch.poll()
        assert {*await here.read()} == {"fee.txt", "near.txt", "new.txt", "pipe"}
        after = {record.name: record for record in here.catalog.records()}
        assert after["fee.txt"].id == before["fee.txt"].id
        assert after["fee.txt"].sha256 == sha256(NEW_FEE)
        assert (await here.check(NEW_FEE.decode(), "fee.txt")).status == "verified"
        refused = await here.http.delete(f"/sources/{after['fee.txt'].id}")
        assert (refused.status_code, refused.json()["error"]["code"]) == (409, "conflict")
        # A folder that cannot be looked into says nothing about its files.
        docs.rename(tmp_path / "away")
        await here.catalog.watch.poll()
        assert {*await here.read()} == {"docs", "fee.txt", "near.txt", "new.txt", "pipe"}
        (tmp_path / "away").rename(docs)
        await here.catalog.watch.poll()
        assert {*await here.read()} == {"fee.txt", "near.txt", "new.txt", "pipe"}


@run
async def test_files_change_while_nobody_looks(tmp_path: Path) -> None:
    """Over a restart a file that changed is another version, one that did not costs nothing, others go."""
    store, names = MemoryStore(), [tmp_path / f"{n}.txt" for n in range(3)]
    for path in names:
        path.write_bytes(path.name.encode() * 5)
    async with desk(tmp_path / "data", *names, store=store) as here:
        before = {record.name: record for record in here.catalog.records()}
    names[1].write_bytes(b"This file has changed.")
    async with desk(tmp_path / "data", *names[:2], tmp_path / "none.txt", store=store) as here:
        after = {record.name: record for record in here.catalog.records()}
        assert after.keys() == {"0.txt", "1.txt", "none.txt"}
        assert after["none.txt"].reason == "it cannot be found: No such file or directory"
        (tmp_path / "none.txt").write_bytes(b"Here it is at last.")
        await here.catalog.watch.poll()
        await here.catalog.watch.poll()
        assert await here.read() == dict.fromkeys(("0.txt", "1.txt", "none.txt"), "ready")
    assert after["0.txt"].added_at == before["0.txt"].added_at
    assert (after["1.txt"].id, after["1.txt"].sha256) == (
        before["1.txt"].id,
        sha256(b"This file has changed."),
    )


@run
async def test_a_folder_has_its_limits(tmp_path: Path) -> None:
    docs = tmp_path / "docs"
    docs.mkdir()
    for n in range(5):
        (docs / f"{n}.txt").write_bytes(b"word")
    with (docs / "0.txt").open("wb") as file:
        file.truncate(1 << 40)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("citewire.server.sources.folder_scan.MOST_FILES", 3)
        async with desk(tmp_path, docs) as here:
            reasons = {record.name: record.reason for record in here.catalog.records()}
    assert reasons.keys() == {"0.txt", "1.txt", "2.txt", "docs"}
    assert reasons["0.txt"] == "it has more than 268435456 bytes"
    assert reasons["docs"] == "it has more than 3 files; the others are left out"


@run
async def test_progress_is_told_in_order(tmp_path: Path) -> None:
    async with desk(tmp_path) as here:
        first = await here.upload("first.txt", FEE)
        await here.read()
        stream = asyncio.create_task(here.http.get("/sources/events"))
        some = here.as_caller({"source:*": ["list"], f"source:{first['id']}": ["read"]})
        narrow = asyncio.create_task(some.get("/sources/events"))
        async with aclosing(here.catalog.changes()) as changes:
            await anext(changes)
            second = await here.upload("second.txt", NEW_FEE)
            async for batch in changes:
                if any(change.record and change.record.state == "ready" for change in batch or ()):
                    break
        await here.catalog.remove(second["id"])
        await asyncio.sleep(0)
        here.catalog.end_events()
        body = (await stream).text
        frames = [
            dict(line.split(": ", 1) for line in frame.split("\n")) for frame in body.strip().split("\n\n")
        ]
        told = [(frame["event"], codec.decode(frame["data"])) for frame in frames]
        assert (told[0][0], [each["name"] for each in told[0][1]["sources"]]) == ("snapshot", ["first.txt"])
        assert [(event, data.get("state")) for event, data in told[1:]] == [
            ("source", "waiting"), ("source", "reading"), ("source", "ready"), ("removed", None),
        ]  # fmt: skip
        assert (await narrow).text == body.split("\n\n")[0] + "\n\n"


@run
async def test_by_url(tmp_path: Path) -> None:
    pages = {
        "https://a.test/docs/fee": FetchResult(
            "Die Gebühr ist 40.".encode("latin-1"), "https://b.test/x/fee.txt", "text/plain; charset=latin-1"
        ),
        "https://a.test/given": FetchResult(FEE, "https://a.test/given"),
    }  # fmt: skip

    def fetch(url: str) -> FetchResult:
        if url not in pages:
            raise DocumentError("there is nothing")
        return pages[url]

    store = MemoryStore()
    given = ("https://a.test/given", "https://a.test/nothing")
    async with desk(tmp_path, *given, store=store, fetch=fetch) as here:
        sent = await here.http.post("/sources", json={"url": "https://a.test/docs/fee"})
        assert sent.status_code == 201
        assert (await here.http.post("/sources", json={"url": "https://a.test/docs/fee"})).status_code == 200
        assert await here.read() == {"fee": "ready", "given": "ready", "nothing": "failed"}
        for name in ("https://a.test/docs/fee", "https://b.test/x/fee.txt", "fee"):
            assert (await here.check("Die Gebühr ist 40", name)).status == "verified"
        refused = await here.http.post("/sources", json={"url": "https://a.test/nothing2"})
        assert (refused.status_code, refused.json()["error"]["code"]) == (422, "bad_document")
        for record in here.catalog.records():
            status = 204 if record.name == "fee" else 409
            assert (await here.http.delete(f"/sources/{record.id}")).status_code == status
    async with desk(tmp_path, *given[1:], store=store, fetch=fetch) as here:
        assert [*await here.read()] == ["nothing"]


@pytest.mark.parametrize(
    ("url", "code"),
    [
        ("http://127.0.0.1/", "address_refused"),
        ("http://[::1]/", "address_refused"),
        ("http://169.254.169.254/latest/meta-data", "address_refused"),
        ("file:///etc/passwd", "bad_url"),
        ("http://a:b@c.test/", "bad_url"),
    ],
)
def test_no_url_leads_inside(url: str, code: str, tmp_path: Path) -> None:
    async def main() -> None:
        async with desk(tmp_path) as here:
            refused = await here.http.post("/sources", json={"url": url})
            assert (refused.status_code, refused.json()["error"]["code"]) == (422, code)
            assert here.catalog.records() == []

    asyncio.run(main())


@run
async def test_requests_that_make_no_sense(tmp_path: Path) -> None:
    async with desk(tmp_path) as here:
        for params, content, kind in (
            ({}, b"text", "text/plain"), ({"name": ".."}, b"text", "text/plain"),
            ({}, b"{", "application/json"), ({}, b"{}", "application/json"),
            ({}, b'{"url": 1}', "application/json"), ({}, b"", "multipart/form-data"),
            ({}, b'{"url": "' + b"x" * 70_000 + b'"}', "application/json"),
        ):  # fmt: skip
            sent = await here.http.post(
                "/sources", params=params, content=content, headers={"content-type": kind}
            )
            assert (sent.status_code, "error" in sent.json()) == (400, True)
        same = [("f", ("a.txt", b"one")), ("f", ("x/a.txt", b"two"))]
        assert (await here.http.post("/sources", files=same)).status_code == 400
        assert (
            await here.http.post("/sources", data={"a": "b"}, files=[("f", ("", b""))])
        ).status_code == 400
        # A JSON file is a file if it has a name.
        assert (await here.upload("data.json", b'{"a": 1}', "application/json"))["name"] == "data.json"
        for path in ("nope", "nope/text", "nope/content", "nope/pages/1.png"):
            assert (await here.http.get(f"/sources/{path}")).status_code == 404
        with pytest.raises(Conflict):
            await here.catalog.text(here.catalog.records()[0].id)


@run
async def test_who_may_do_what(tmp_path: Path) -> None:
    async with desk(tmp_path) as here:
        one, two = await here.upload("one.txt", FEE), await here.upload("two.txt", NEW_FEE)
        await here.read()
        read = here.as_caller({"source:*": ["list"], f"source:{one['id']}": ["read"]})
        assert [each["name"] for each in (await read.get("/sources")).json()["sources"]] == ["one.txt"]
        for method, path in (
            ("GET", f"/sources/{two['id']}"), ("GET", f"/sources/{two['id']}/text"),
            ("GET", f"/sources/{two['id']}/content"), ("GET", f"/sources/{two['id']}/pages/1.png"),
            ("DELETE", f"/sources/{one['id']}"), ("POST", "/sources?name=three.txt"),
        ):  # fmt: skip
            assert (await read.request(method, path)).status_code == 403
        assert (await here.as_caller({"verify": ["*"]}).get("/sources")).status_code == 403
        listed = (await here.http.get("/sources?limit=1")).json()
        assert (listed["next"], listed["reading"], listed["total"]) == ("one.txt", 0, 2)
        assert (await here.http.get("/sources?after=one.txt")).json()["sources"][0]["name"] == "two.txt"


@run
async def test_a_disk_that_is_full_is_said(tmp_path: Path) -> None:
    async with desk(tmp_path) as here:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("os.fsync", full)
            sent = await here.http.post("/sources?name=a.txt", content=FEE)
        assert (sent.status_code, sent.json()["error"]["code"]) == (503, "store_failed")
        assert (list(files(tmp_path)), here.catalog.records()) == ([], [])


def full(_: int) -> None:
    raise OSError(28, "No space left on device")


def test_the_operations_are_described() -> None:
    described = openapi(SourceApi(None).operations(), "1")["paths"]["/sources"]["post"]  # pyright: ignore[reportArgumentType]
    assert {*described["responses"]} >= {"200", "201", "400", "413", "422"}
    assert {*described["requestBody"]["content"]} == {
        "application/octet-stream", "multipart/form-data", "application/json",
    }  # fmt: skip
