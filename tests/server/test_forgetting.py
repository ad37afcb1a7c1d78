"""What is deleted is gone: from the bytes, from every cache, from the index and from the log."""

from __future__ import annotations

import asyncio
import hashlib
import signal
import subprocess
import sys
from base64 import b64encode
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from pathlib import Path
from time import monotonic
from typing import Any

import pytest

from citewire.documents.cache import Cache, PackedArrays
from citewire.documents.document import Document
from citewire.documents.load import read
from citewire.documents.scratch import ScratchCaches
from citewire.librarian import PassageIndex
from citewire.server.access.keys import Keyring
from citewire.verification.document_set import CheckResult
from citewire.verification.engine import Engine
from citewire.verification.lanes import ReadJob
from citewire.verification.reader_pool import Lanes, ReaderPool, default_reader_memory
from citewire.verification.sources import SourceContent, iter_sources
from citewire.verification.verifier import QuoteCheck
from support.app import App, opened_app
from support.folder_search import traces
from support.pdfs import Line, Sheet, make_pdf

# Words that stand nowhere else, in one sentence each.
ONCE = "The quizzlewump of Farnbarough weighs eleven stone."
TOLD = "A blorptangle was seen near Ystrathnoddy in the spring."
HELD = "Every snargleford must be polished by Hexworthington himself."
ATTACHED = "Nobody but Vrimbleshaw may open the second grommetcase."


def pdf_of(sentence: str) -> bytes:
    return make_pdf(Sheet([Line(sentence, y=700), Line("And a second line, which says little.", y=660)]))


def piece(data: bytes) -> bytes:
    """Enough of a file to tell it by."""
    return data[len(data) // 2 : len(data) // 2 + 48]


class Home:
    """A server over `folder`, which can be started again."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "data"
        self._key = Keyring(self.folder).create()

    def run(self, work: Callable[[App], Awaitable[None]]) -> None:
        async def main() -> None:
            async with opened_app(self.folder, key=self._key) as app:
                await work(app)

        asyncio.run(main())

    def assert_no_trace(self, *words: str | bytes) -> None:
        """What was erased leaves the write-ahead log once those who read it have finished."""
        deadline = monotonic() + 30
        while found := traces(self.folder, *words):
            assert monotonic() < deadline, found

    def assert_no_trace_again(self, *words: str | bytes) -> None:
        """Now, and after another start."""
        self.assert_no_trace(*words)

        async def nothing(_: App) -> None:
            self.assert_no_trace(*words)

        self.run(nothing)
        self.assert_no_trace(*words)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


async def verify(app: App, quote: str, *sources: dict[str, Any]) -> str:
    answer = await app.ask("POST", "/verify", {"quotes": [{"quote": quote}], "sources": [*sources]})
    assert answer.status == 200, answer
    return answer.json["checks"][0]["status"]


async def upload(app: App, name: str, data: bytes) -> dict[str, Any]:
    sent = await app.ask("POST", f"/sources?name={name}", data)
    assert sent.status in {200, 201}, sent
    await app.server.catalog.wait_until_read()
    return sent.json["sources"][0]


async def say(app: App, question: str, **more: Any) -> bytes:
    message = {"id": "u", "role": "user", "content": question}
    asked: dict[str, Any] = {
        "threadId": "t", "runId": "r", "messages": [message], "tools": [], "context": [], "state": {},
        "forwardedProps": {},
    }  # fmt: skip
    answer = await app.ask("POST", "/agui", asked | more)
    assert answer.status == 200, answer
    return answer.body


async def sweep(app: App) -> None:
    """What happens by itself, in its time."""
    await app.server.catalog.sweep(0)
    await app.server.attachments.sweep()
    await app.server.caches.sweep()


# --- what came with one request -----------------------------------------------------------------------------


def test_what_is_looked_for_is_found_where_it_is(tmp_path: Path) -> None:
    """Or the other tests would show nothing."""
    for number, encoding in enumerate(("utf-8", "utf-16-le", "utf-32-le")):
        (tmp_path / f"{number}").write_bytes(b"x" + ONCE.upper().encode(encoding))
    (tmp_path / "3").write_bytes(b64encode(b"x" + ONCE.encode()))
    assert len(traces(tmp_path, "quizzlewump")) == 4


def test_sources_of_a_check_are_gone_when_it_is_answered(home: Home) -> None:
    data = pdf_of(TOLD)

    async def check(app: App) -> None:
        text, file = {"name": "a.txt", "text": ONCE}, {"name": "b.pdf", "base64": b64encode(data).decode()}
        assert await verify(app, ONCE, text, file) == "verified"
        assert await verify(app, TOLD, text, file) == "verified"
        assert await verify(app, "no such words as these", text, file) == "missed"
        home.assert_no_trace("quizzlewump", "blorptangle", piece(data))

    home.run(check)
    home.assert_no_trace_again("quizzlewump", "blorptangle", piece(data))


def test_what_came_with_a_run_is_in_its_log_only_and_goes_with_the_thread(home: Home) -> None:
    data = pdf_of(TOLD)
    found = [{"description": "search", "value": ONCE}]
    file = {"type": "binary", "mimeType": "application/pdf", "data": b64encode(data).decode()}

    async def run(app: App) -> None:
        parts = [{"type": "text", "text": f"Is it so? [^1]\n\n[^1]: {ONCE}"}, file]
        tool = {"id": "c", "role": "tool", "toolCallId": "c1", "content": ONCE}
        call = {"id": "c1", "type": "function", "function": {"name": "search", "arguments": "{}"}}
        said = {"id": "a", "role": "assistant", "content": "", "toolCalls": [call]}
        user = {"id": "u2", "role": "user", "content": parts}
        await say(app, "What do you know?", messages=[said, tool, user], context=found)
        assert {each.partition(":")[0] for each in traces(home.folder, "quizzlewump")} <= {
            "log.sqlite", "log.sqlite-wal",
        }  # fmt: skip
        assert traces(home.folder / "cache", "blorptangle", piece(data)) == []
        assert (await app.ask("DELETE", "/threads/t")).status == 204
        home.assert_no_trace("quizzlewump", "blorptangle", piece(data))

    home.run(run)
    home.assert_no_trace_again("quizzlewump", "blorptangle", piece(data))


# --- what the server keeps ----------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["text", "pdf"])
def test_a_source_that_nobody_cites_is_gone(home: Home, form: str) -> None:
    data = HELD.encode() if form == "text" else pdf_of(HELD)

    async def remove(app: App) -> None:
        source = await upload(app, f"held.{form}", data)
        assert await verify(app, HELD) == "verified"
        assert {each.partition("/")[0] for each in traces(home.folder, "snargleford")} >= {"cache"}
        assert (await app.ask("DELETE", f"/sources/{source['id']}")).status == 204
        await sweep(app)
        home.assert_no_trace("snargleford", "hexworthington", piece(data))

    home.run(remove)
    home.assert_no_trace_again("snargleford", "hexworthington", piece(data))


def test_what_a_source_was_before_is_gone(home: Home) -> None:
    async def change(app: App) -> None:
        await upload(app, "held.txt", HELD.encode())
        assert await verify(app, HELD) == "verified"
        await upload(app, "held.txt", b"The second version says something else.")
        await sweep(app)
        home.assert_no_trace("snargleford")
        assert await verify(app, "The second version says something else.") == "verified"

    home.run(change)
    home.assert_no_trace_again("snargleford")


def test_a_source_that_is_cited_goes_with_the_last_thread(home: Home) -> None:
    async def cite(app: App) -> None:
        source = await upload(app, "held.txt", HELD.encode())
        assert b"/proofs/" in await say(app, "Who polishes the snargleford?")
        await app.ask("DELETE", f"/sources/{source['id']}")
        await sweep(app)
        assert traces(home.folder / "sources", "snargleford")

    async def delete(app: App) -> None:
        assert (await app.ask("DELETE", "/threads/t")).status == 204
        await sweep(app)
        home.assert_no_trace("snargleford", "hexworthington")

    home.run(cite)
    home.run(delete)
    home.assert_no_trace_again("snargleford", "hexworthington")


def test_an_attachment_is_gone(home: Home) -> None:
    data = pdf_of(ATTACHED)

    async def attach(app: App) -> None:
        form = (
            b'--x\r\nContent-Disposition: form-data; name="file"; filename="a.pdf"\r\n\r\n' + data
            + b'\r\n--x\r\nContent-Disposition: form-data; name="attachmentId"\r\n\r\nmine\r\n--x--\r\n'
        )  # fmt: skip
        sent = await app.ask(
            "POST", "/prepareAttachments", form, content_type="multipart/form-data; boundary=x"
        )
        assert sent.json["status"] == "ready", sent
        cited = {"data": {"attachmentId": "mine", "citations": {"1": {"fullPhrase": ATTACHED}}}}
        told = await app.ask("POST", "/verifyCitations", cited)
        assert told.json["verifications"]["1"]["status"] == "found", told
        assert traces(home.folder / "cache", "vrimbleshaw")
        assert (await app.ask("DELETE", "/attachments/mine")).status == 200
        home.assert_no_trace("vrimbleshaw", "grommetcase", piece(data))

    home.run(attach)
    home.assert_no_trace_again("vrimbleshaw", "grommetcase", piece(data))


def test_what_is_kept_is_not_read_again_after_a_restart(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the end of a check on the same bytes nor a sweep costs a source its place in the cache."""
    same = {"name": "same.txt", "text": HELD}

    async def first(app: App) -> None:
        await upload(app, "held.pdf", pdf_of(HELD))
        await upload(app, "held.txt", HELD.encode())
        assert await verify(app, HELD, same) == "verified"
        await sweep(app)

    async def second(app: App) -> None:
        await app.server.catalog.wait_until_read()
        assert [each.state for each in app.server.catalog.records()] == ["ready", "ready"]
        assert await verify(app, HELD) == "verified"

    home.run(first)
    monkeypatch.setattr("citewire.documents.reader._COMMAND", ("-c", "raise SystemExit(1)"))
    home.run(second)


# --- after a crash ------------------------------------------------------------------------------------------


def document_of(text: str) -> Document:
    name = hashlib.sha256(text.encode()).hexdigest()
    return read(text.encode(), sha256=name, name="x.txt", url=None, charset=None, hint="text")


def test_what_a_crash_left_is_gone_after_the_next_start(home: Home) -> None:
    """Orphans of every kind: of what was deleted just before, of a writer, and of older versions."""

    async def hold(app: App) -> None:
        await upload(app, "held.txt", HELD.encode())

    home.run(hold)
    cache, orphan = Cache(home.folder / "cache"), document_of(ONCE)
    cache.put(f"{orphan.sha256}-text", orphan)
    for left in (cache.version_folder / ".aside-left", cache.folder / "v1" / f"{'1' * 64}-text"):
        left.mkdir(parents=True)
        (left / "meta.msgpack").write_bytes(ONCE.encode())
    index = PassageIndex(home.folder / "search.sqlite")
    index.add("gone", document_of(TOLD))
    index.close()
    assert len(traces(home.folder, "quizzlewump", "blorptangle")) == 4

    async def look(app: App) -> None:
        await app.server.catalog.wait_until_read()
        await sweep(app)
        home.assert_no_trace("quizzlewump", "blorptangle")
        assert await verify(app, HELD) == "verified"

    home.run(look)
    home.assert_no_trace("quizzlewump", "blorptangle")


SCOPED = """
import asyncio, sys
from pathlib import Path
from citewire.documents.cache import Cache
from citewire.verification.engine import Engine
from citewire.verification.sources import SourceContent
from citewire.verification.verifier import QuoteCheck

async def main():
    async with Engine(cache=Cache(Path(sys.argv[1])), workers=1) as engine:
        await engine.add(SourceContent(sys.argv[2], "once.txt"), scope="s")
        async for checked in engine.check([QuoteCheck("q", sys.argv[2], scope="s")]):
            print(checked.status, flush=True)
        await asyncio.sleep(60)

asyncio.run(main())
"""


def test_a_process_that_was_killed_leaves_its_scopes_to_the_next(tmp_path: Path) -> None:
    """And what another process is just using stays: it has it locked."""

    def started(sentence: str) -> subprocess.Popen[bytes]:
        command = (sys.executable, "-c", SCOPED, str(tmp_path), sentence)
        process = subprocess.Popen(command, stdout=subprocess.PIPE)  # our own code
        assert process.stdout
        assert process.stdout.readline() == b"verified\n"
        return process

    killed, alive = started(ONCE), started(TOLD)
    try:
        killed.send_signal(signal.SIGKILL)
        killed.wait()
        assert traces(tmp_path, "quizzlewump")

        async def main() -> None:
            async with Engine(cache=Cache(tmp_path), workers=1):
                assert traces(tmp_path, "quizzlewump") == []
                assert traces(tmp_path, "blorptangle")

        asyncio.run(main())
    finally:
        for process in (killed, alive):
            process.kill()
            process.communicate()


# --- at the same time ---------------------------------------------------------------------------------------


async def found(engine: Engine, quote: str, scope: str | None = None) -> CheckResult:
    async with aclosing(engine.check([QuoteCheck("q", quote, scope=scope)])) as results:
        return await anext(results)


def on_engine(folder: Path, work: Callable[[Engine], Awaitable[None]]) -> None:
    async def main() -> None:
        async with Engine(cache=Cache(folder / "cache"), workers=2) as engine:
            await work(engine)

    asyncio.run(main())


def test_two_requests_with_the_same_source(tmp_path: Path) -> None:
    async def main(engine: Engine) -> None:
        for scope in ("a", "b"):
            await engine.add(SourceContent(ONCE, "once.txt"), scope=scope)
        assert (await found(engine, ONCE, "a")).status == "verified"
        await engine.forget("a")
        assert (await found(engine, ONCE, "b")).status == "verified"
        assert (await found(engine, ONCE, "a")).status == "skipped"
        await engine.forget("b")
        assert traces(tmp_path, "quizzlewump") == []

    on_engine(tmp_path, main)


def test_a_source_that_goes_while_a_request_brings_the_same_bytes(tmp_path: Path) -> None:
    """The one costs the other nothing, whichever goes first."""
    path = tmp_path / "bytes"
    path.write_text(HELD)
    name = hashlib.sha256(HELD.encode()).hexdigest()

    async def main(engine: Engine) -> None:
        reading = engine.add_source(SourceContent(path, "held.txt"), lambda _: None)
        await engine.add(SourceContent(HELD, "held.txt"), scope="a")
        await engine.add(SourceContent(HELD, "held.txt"), scope="b")
        assert (await found(engine, HELD, "a")).status == "verified"
        await engine.forget("a")
        assert (await found(engine, HELD)).status == "verified"
        engine.remove(reading)
        await engine.discard(name)
        assert (await found(engine, HELD, "b")).status == "verified"
        await engine.forget("b")
        assert traces(tmp_path / "cache", "snargleford") == []

    on_engine(tmp_path, main)


def test_what_was_dropped_from_the_cache_is_read_again(tmp_path: Path) -> None:
    """A quote that is just being checked does not fail for it."""
    path = tmp_path / "bytes"
    path.write_text(HELD)

    async def main(engine: Engine) -> None:
        await engine.add(SourceContent(path, "held.txt"), scope="a", is_kept=True)
        await engine.prewarm()
        assert (await found(engine, "words that are not there", "a")).status == "missed"
        await engine.discard(hashlib.sha256(HELD.encode()).hexdigest())
        # Another worker than the one that has it open may be asked.
        several = await asyncio.gather(*(found(engine, HELD[: 20 + n], "a") for n in range(12)))
        assert "skipped" not in {each.status for each in several}

    on_engine(tmp_path, main)


class Discarding(Cache):
    """Somebody discards the bytes just before what was made of them is written."""

    readers: ReaderPool

    def put(self, key: str, document: Document) -> None:
        self.readers.discard(key[:64], self)
        super().put(key, document)


def test_bytes_that_are_discarded_while_they_are_read_leave_nothing(tmp_path: Path) -> None:
    async def main() -> None:
        cache = Discarding(tmp_path)
        cache.readers = ReaderPool(tmp_path, Lanes.within(1, default_reader_memory()), 1)
        [listed] = iter_sources(SourceContent(ONCE, "once.txt"))
        _, document = await cache.readers.read(listed, cache, ReadJob())
        assert document.text.strip() == ONCE

    asyncio.run(main())
    assert traces(tmp_path, "quizzlewump") == []


def test_what_is_written_after_its_scope_was_forgotten_is_written_nowhere(tmp_path: Path) -> None:
    """Neither a document nor an index: there is no folder for them any more, and none is made."""
    scratch = ScratchCaches(tmp_path)
    cache = scratch.make()
    document = document_of(ONCE)
    key = f"{document.sha256}-text"
    cache.put(key, document)
    index = PackedArrays(ONCE.encode(), ())
    cache.write(f"{key}/search", index)
    assert cache.read(f"{key}/search")
    cache.drop(key)
    cache.write(f"{key}/search", index)
    assert cache.read(f"{key}/search") is None
    cache.put(key, document)
    scratch.remove(cache)
    cache.put(key, document)
    cache.write(f"{key}/search", index)
    assert traces(tmp_path, "quizzlewump") == []
    scratch.close()
    assert [path.name for path in tmp_path.iterdir()] == ["lock"]


def test_nothing_is_left_by_requests_that_are_cut_short(home: Home) -> None:
    """Whoever leaves in the middle of a check takes its sources along."""

    async def leave(app: App) -> None:
        body = {"quotes": [{"quote": ONCE}], "sources": [{"name": "a.txt", "text": ONCE}]}
        for wait in range(12):
            asking = asyncio.create_task(app.ask("POST", "/verify", body))
            for _ in range(wait * wait):
                await asyncio.sleep(0)
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)
        assert await verify(app, ONCE) == "skipped"  # there is no source
        home.assert_no_trace("quizzlewump")

    home.run(leave)
    home.assert_no_trace("quizzlewump")
