"""Reading is fair: slow, large and scanned files hold up nobody else, and all stay within one memory."""

from __future__ import annotations

import asyncio
import hashlib
import io
import os
import signal
import zlib
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pytest
from PIL import Image

from citewire.channels.memory import MemoryStore
from citewire.documents.cache import Cache
from citewire.documents.html import read_html
from citewire.documents.ocr import NO_WORDS, OcrTurn, OcrUnfinished
from citewire.documents.ocr_page_cache import OcrPageCache, forget_pages
from citewire.documents.reader import ReaderTimeout
from citewire.verification.document_set import CheckResult
from citewire.verification.engine import Engine, EngineLimits
from citewire.verification.lanes import CURRENT_ACCOUNT
from citewire.verification.reader_pool import Lanes, TooManyReads
from citewire.verification.sources import SourceContent
from citewire.verification.verifier import QuoteCheck
from support.catalog_desk import desk
from support.clock import LONG, hurried, on_clock

pytestmark = pytest.mark.slow

# Readers that some files trouble: the first word of a file says how. Whatever is too slow for the quick lane
# says so at once, so that no test waits for it; in the heavy one a file that hangs does so in earnest. A file
# that stalls does so in every lane.
READER = """
import os, resource, time
from importlib import import_module
from citewire.documents import reader

load = import_module("citewire.documents.load")
read = load.read

def hostile(data, **options):
    word = data.split()[0].decode("utf-8", "replace")
    with open(os.environ["TOLD"], "a") as told:
        told.write(word + "\\n")
    if word.startswith("stall"): time.sleep(600)
    if word.startswith("hang") and resource.getrlimit(resource.RLIMIT_CPU)[0] > 10: time.sleep(600)
    if word.startswith(("hang", "late")): raise reader.ReaderTimeout("not read in time")
    if word.startswith("eat"):
        kept = []
        while True: kept.append(bytearray(1 << 24))
    return read(data, **options)

load.read = hostile
reader.serve()
"""
FEE = "The fee of member 7 is 47 dollars"


@pytest.fixture
def told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Readers that some files keep busy; in the file is the first word of each file that was read."""
    monkeypatch.setattr("citewire.documents.reader._COMMAND", ("-c", READER))
    monkeypatch.setenv("TOLD", str(tmp_path / "told"))
    (tmp_path / "told").touch()
    return tmp_path / "told"


def hanging(count: int) -> list[SourceContent]:
    return [SourceContent(f"hang{n} for long".encode(), f"hang{n}.txt") for n in range(count)]


def stalling(count: int) -> list[SourceContent]:
    return [SourceContent(f"stall{n} for long".encode(), f"stall{n}.txt") for n in range(count)]


async def verdict(engine: Engine, asked: QuoteCheck) -> tuple[str, str | None]:
    checked = await anext(engine.check([asked]))
    return checked.status, checked.source


async def soon(engine: Engine, asked: QuoteCheck) -> CheckResult:
    """The verdict on a quote for which time flies."""

    async def check() -> CheckResult:
        return await anext(engine.check([asked]))

    return await hurried(asyncio.create_task(check()))


def words(told: Path) -> list[str]:
    """The first word of each file that was read, in order."""
    return told.read_text().split()


def test_slow_files_of_one_caller_hold_up_nobody_else(told: Path) -> None:
    """Six files that hang, then a small one of somebody else: found, also by a quote that names no source."""

    async def main() -> None:
        async with Engine(workers=1, limits=EngineLimits(readers=1)) as engine:
            CURRENT_ACCOUNT.set("ann")
            await engine.add(*hanging(6))
            CURRENT_ACCOUNT.set("bob")
            await engine.add(SourceContent(f"It says: {FEE}.".encode(), "fees.txt"))
            assert await verdict(engine, QuoteCheck("1", FEE, "fees.txt")) == ("verified", "fees.txt")
            assert not all(reading.is_read for reading in engine.shared_sources)
            assert await verdict(engine, QuoteCheck("2", FEE)) == ("verified", "fees.txt")
            assert not all(reading.is_read for reading in engine.shared_sources)

    asyncio.run(main())
    assert "It" in told.read_text().split()


@pytest.mark.usefixtures("told")
def test_files_that_stall_in_the_quick_lane_hold_up_no_verified_quote() -> None:
    """Eight files of somebody else keep all readers busy that one caller may have, for ten seconds each."""

    async def main() -> None:
        async with Engine(workers=1, deadline=None, limits=EngineLimits(readers=2)) as engine:
            CURRENT_ACCOUNT.set("ann")
            await engine.add(*stalling(8))
            CURRENT_ACCOUNT.set("bob")
            await engine.add(SourceContent(f"It says: {FEE}.".encode(), "fees.txt"))
            assert await verdict(engine, QuoteCheck("1", FEE)) == ("verified", "fees.txt")
            assert not all(reading.settled.is_set() for reading in engine.shared_sources)

    asyncio.run(main())


@pytest.mark.usefixtures("told")
def test_a_quote_that_is_not_verified_waits_only_a_moment_for_the_files_of_others() -> None:
    """What was not read by then is named in the verdict."""

    async def main() -> None:
        async with Engine(workers=1, deadline=None, limits=EngineLimits(readers=2)) as engine:
            CURRENT_ACCOUNT.set("ann")
            await engine.add(*stalling(8))
            CURRENT_ACCOUNT.set("bob")
            await engine.add(SourceContent(f"It says: {FEE}.".encode(), "fees.txt"))

            async def check(quote: str, source: str | None = None) -> CheckResult:
                return await soon(engine, QuoteCheck("1", quote, source))

            altered = await check(FEE.replace("47", "94"))
            assert (altered.status, altered.source) == ("altered", "fees.txt")
            missed = await check("nobody has ever written down such words as these")
            assert missed.status == "missed"
            unread = ", ".join(f"stall{n}.txt" for n in range(8))
            assert altered.warnings[-1] == missed.warnings[-1] == f"not looked for in {unread}"
            CURRENT_ACCOUNT.set("carol")
            assert await check(FEE.replace("47", "94")) == altered
            unknown = await check(FEE, "nobody.txt")
            assert (unknown.status, unknown.reason) == ("skipped", "no source is called nobody.txt")
            assert unknown.warnings == missed.warnings
            assert not all(reading.settled.is_set() for reading in engine.shared_sources)

    on_clock(main())


@pytest.mark.usefixtures("told")
def test_a_verified_quote_waits_only_a_while_for_the_sources_of_the_server() -> None:
    """After a start, what callers uploaded before counts as the server's."""

    async def main() -> None:
        async with Engine(workers=1, deadline=None, limits=EngineLimits(readers=2)) as engine:
            await engine.add(*stalling(8), SourceContent(FEE, "fees.txt"))
            await engine.shared_sources[-1].settled.wait()
            checked = await soon(engine, QuoteCheck("1", FEE))
            assert (checked.status, checked.source) == ("verified", "fees.txt")
            assert not all(reading.settled.is_set() for reading in engine.shared_sources)

    on_clock(main())


@pytest.mark.usefixtures("told")
def test_where_no_source_is_read_a_quote_waits_for_those_of_others() -> None:
    async def main() -> None:
        async with Engine(workers=1, deadline=LONG, limits=EngineLimits(readers=2)) as engine:
            CURRENT_ACCOUNT.set("ann")
            await engine.add(*stalling(2))
            CURRENT_ACCOUNT.set("bob")
            checked = await soon(engine, QuoteCheck("1", FEE))
            assert (checked.status, checked.reason) == ("pending", "deadline")

    on_clock(main())


def test_a_caller_has_only_so_many_sources_unread(told: Path) -> None:
    async def main() -> None:
        async with Engine(workers=1, limits=EngineLimits(readers=1, unread=3)) as engine:
            CURRENT_ACCOUNT.set("ann")
            await engine.add(*hanging(4))
            refused = await anext(engine.iter_readings())
            assert refused.problem
            assert refused.problem.code == "too_many_reads"
            with pytest.raises(TooManyReads):
                engine.check_read_quota()
            CURRENT_ACCOUNT.set("bob")
            engine.check_read_quota()
            await engine.add(SourceContent(f"It says: {FEE}.".encode(), "fees.txt"))
            assert await verdict(engine, QuoteCheck("1", FEE, "fees.txt")) == ("verified", "fees.txt")

    asyncio.run(main())


def test_a_file_that_failed_is_not_read_again_until_it_is_asked_for(told: Path, tmp_path: Path) -> None:
    data = b"late again"

    def problem(*, again: bool = False, memory: int = 2 << 30) -> str | None:
        async def main() -> str | None:
            limits = EngineLimits(readers=1, reader_memory=memory)
            async with Engine(cache=Cache(tmp_path / "cache"), workers=1, limits=limits) as engine:
                if again:
                    await engine.retry(hashlib.sha256(data).hexdigest())
                await engine.add(SourceContent(data, "slow.txt"))
                await engine.prewarm()
                [reading] = engine.shared_sources
                return reading.problem and reading.problem.code

        return asyncio.run(main())

    assert [problem(), problem()] == ["reader_timeout"] * 2
    # Once in the quick lane, once in the heavy one, and not after a restart.
    assert told.read_text().split() == ["late"] * 2
    assert problem(again=True) == "reader_timeout"
    assert told.read_text().split() == ["late"] * 4
    assert problem(memory=16 << 30) == "reader_timeout"
    assert told.read_text().split() == ["late"] * 6


def test_what_the_cache_has_dropped_is_read_again_once_for_all_quotes(told: Path, tmp_path: Path) -> None:
    """Three quotes at once need each of the files. The worker that has them open is gone."""
    sources = [SourceContent(f"file{n} says: {FEE}.".encode(), f"file{n}.txt") for n in range(6)]
    asked = [QuoteCheck(str(n), FEE, f"file{n % 6}.txt") for n in range(18)]

    async def main() -> list[str]:
        cache, limits = Cache(tmp_path / "cache"), EngineLimits(readers=1)
        async with Engine(sources, cache=cache, workers=1, deadline=None, limits=limits) as engine:
            await engine.prewarm()
            cache.prune(lambda _: False)
            [worker] = engine.pids
            os.kill(worker, signal.SIGKILL)
            return [checked.status async for checked in engine.check(asked)]

    assert asyncio.run(main()) == ["verified"] * 18
    assert Counter(told.read_text().split()) == {f"file{n}": 2 for n in range(6)}


def test_readers_together_stay_within_their_memory(told: Path) -> None:
    """Each fills what it may have; the sum of what they hold is never more than the bound."""
    bound, most = 2 << 30, 0

    async def main() -> int:
        nonlocal most
        limits = EngineLimits(readers=4, reader_memory=bound)
        async with Engine(workers=1, limits=limits) as engine:
            await engine.add(SourceContent(FEE, "fees.txt"))
            await verdict(engine, QuoteCheck("1", FEE))
            workers = {*engine.pids}
            await engine.add(*(SourceContent(f"eat{n} all".encode(), f"eat{n}.txt") for n in range(4)))
            reading = asyncio.create_task(engine.prewarm())
            while not reading.done():
                most = max(most, sum(map(resident, {*engine.pids} - workers)))
                await asyncio.wait([reading], timeout=0.01)
            failed = [each.problem and each.problem.code for each in engine.shared_sources[1:]]
            assert failed == ["reader_failed"] * 4
            return len({*engine.pids} - workers)

    assert asyncio.run(main()) == 0
    assert 0 < most < bound


def bomb() -> bytes:
    """A PDF of a few kilobytes with a page of 400 MB of drawing, packed twice."""
    packed, again = zlib.compressobj(9), zlib.compressobj(9)
    piece = b"BT /F 9 Tf 9 9 Td (aaaaaaaa) Tj ET " * 30_000
    content = b"".join(again.compress(packed.compress(piece)) for _ in range(400))
    content += again.compress(packed.flush()) + again.flush()
    stream = b"<< /Length %d /Filter [/FlateDecode /FlateDecode] >>\nstream\n%b\nendstream"
    objects = (
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 9 9] /Contents 4 0 R "
        b"/Resources << /Font << /F << /Type /Font /Subtype /Type1 /BaseFont /Helvetica >> >> >> >>",
        stream % (len(content), content),
    )
    body = b"".join(b"%d 0 obj\n%b\nendobj\n" % (n, each) for n, each in enumerate(objects, 1))
    return b"%PDF-1.7\n" + body + b"trailer << /Root 1 0 R /Size 5 >>\n"


def test_small_pdfs_that_unpack_to_much_stay_within_the_memory() -> None:
    """The readers are the real ones. Each file is refused, and the sum of their memory is bounded."""
    data, bound = bomb(), 2 << 30
    assert len(data) < 20_000

    async def main() -> tuple[int, list[str | None]]:
        most = 0
        limits = EngineLimits(readers=4, reader_memory=bound)
        async with Engine(workers=1, limits=limits) as engine:
            await engine.add(SourceContent(FEE, "fees.txt"))
            await verdict(engine, QuoteCheck("1", FEE))
            workers = {*engine.pids}
            await engine.add(*(SourceContent(data + bytes([32 + n]), f"{n}.pdf") for n in range(4)))
            reading = asyncio.create_task(engine.prewarm())
            while not reading.done():
                most = max(most, sum(map(resident, {*engine.pids} - workers)))
                await asyncio.wait([reading], timeout=0.01)
            return most, [each.problem and each.problem.code for each in engine.shared_sources[1:]]

    most, codes = asyncio.run(main())
    assert set(codes) <= {"reader_failed", "reader_timeout"}
    assert 0 < most < bound


def resident(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (FileNotFoundError, ProcessLookupError):
        return 0


def test_who_leaves_takes_the_reader_along(told: Path) -> None:
    """A slot is free again only when its child has ended: leaving early is no way to have more of them."""

    async def main() -> None:
        async with Engine(workers=1, limits=EngineLimits(readers=1)) as engine:
            await engine.add(SourceContent(FEE, "fees.txt"))
            # The worker is there by now.
            await verdict(engine, QuoteCheck("1", FEE))
            workers = len(engine.pids)
            for n in range(3):
                await engine.add(SourceContent(f"hang{n} for long".encode(), "slow.txt"), scope=f"s{n}")
                [reading] = engine.scope_sources(f"s{n}")
                await reading.settled.wait()
                await engine.forget(f"s{n}")
                assert len(engine.pids) <= workers

    asyncio.run(main())


def test_ocr_goes_on_where_the_last_turn_ended(tmp_path: Path) -> None:
    """Each turn reads one page more, each page is read once, and in the end nothing of the turns is left."""
    sha256, read = "c" * 64, list[str]()
    cache = Cache(tmp_path)
    cache.version_folder.mkdir()

    def turn() -> list[str]:
        pages = OcrTurn(OcrPageCache(str(tmp_path), sha256, "eng"), seconds=0)
        found: list[str] = []
        for n in range(4):
            reading = NO_WORDS._replace(text=f"page {n}\n") if n else NO_WORDS
            found.append(
                pages.read(f"page {n}", lambda n=n, reading=reading: (read.append(str(n)), reading)[1]).text
            )
        return found

    for _ in range(3):
        with pytest.raises(OcrUnfinished):
            turn()
    assert turn() == ["\n", "page 1\n", "page 2\n", "page 3\n"]
    assert read == ["0", "1", "2", "3"]
    forget_pages(cache, sha256)
    assert [*cache.version_folder.iterdir()] == []


def test_ocr_without_a_place_for_pages_is_done_in_one_turn() -> None:
    turn = OcrTurn(None, seconds=0)
    assert [turn.read(str(n), lambda: NO_WORDS) for n in range(3)] == [NO_WORDS] * 3


TESSERACT = """#!/bin/sh
cat > /dev/null
printf '5\\t1\\t1\\t1\\t1\\t1\\t10\\t10\\t50\\t20\\t95\\tWords\\n'
"""


def test_a_scan_that_is_read_anew_takes_turns_too(
    told: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A turn for each of three pages. What the cache had is replaced, and nothing of the turns is left."""
    (tmp_path / "tesseract").write_text(TESSERACT)
    (tmp_path / "tesseract").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setattr("citewire.verification.reader_pool._OCR_TURN", 0.0)
    pages, data = [Image.new("L", (200, 100), shade) for shade in (0, 40, 80)], io.BytesIO()
    pages[0].save(data, "PDF", save_all=True, append_images=pages[1:])
    given = SourceContent(data.getvalue(), "scan.pdf")

    async def main() -> list[tuple[str, int]]:
        async with Engine(
            cache=Cache(tmp_path / "cache"), workers=1, limits=EngineLimits(readers=1)
        ) as engine:
            found: list[tuple[str, int]] = []
            for anew in (False, False, True):
                document = await engine.load(given, anew=anew)
                found.append((document.text, len(words(told))))
            assert scratch(tmp_path / "cache") == []
            return found

    text = "Words\n" * 3
    # Once to see that there are only pictures, then the three turns.
    assert asyncio.run(main()) == [(text, 4), (text, 4), (text, 8)]
    assert sorted(each.name.count("-ocr") for each in Cache(tmp_path / "cache").version_folder.iterdir()) == [
        0,
        1,
    ]


def scratch(folder: Path) -> list[Path]:
    """The caches that are removed after use, of all engines."""
    return [path for path in folder.glob("scratch/*/*") if path.is_dir()]


def failures(folder: Path) -> list[Path]:
    return [*folder.glob("failed-v*/*")]


def test_no_failure_is_kept_of_what_is_read_anew(told: Path, tmp_path: Path) -> None:
    """It could be read before: it is tried in any case, and the next time as well."""
    given = SourceContent(b"late again", "slow.txt")

    async def main() -> None:
        async with Engine(
            cache=Cache(tmp_path / "cache"), workers=1, limits=EngineLimits(readers=1)
        ) as engine:
            for tries in (2, 4):
                with pytest.raises(ReaderTimeout):
                    await engine.load(given, anew=True)
                assert failures(tmp_path / "cache") == []
                assert words(told) == ["late"] * tries
            with pytest.raises(ReaderTimeout):
                await engine.load(given)
            assert len(failures(tmp_path / "cache")) == 1
            with pytest.raises(ReaderTimeout):
                await engine.load(given, anew=True)
            assert words(told) == ["late"] * 8

    asyncio.run(main())


def test_no_failure_is_kept_on_disk_of_what_came_with_one_request(told: Path, tmp_path: Path) -> None:
    """The process itself remembers it, so that nobody can keep readers busy with one file."""
    given = SourceContent(b"late again", "slow.txt")

    async def main() -> None:
        async with Engine(
            cache=Cache(tmp_path / "cache"), workers=1, limits=EngineLimits(readers=1)
        ) as engine:
            for scope in ("first", "second"):
                await engine.add(given, scope=scope)
                assert (await verdict(engine, QuoteCheck("1", FEE, scope=scope)))[0] == "skipped"
                await engine.forget(scope)
            assert words(told) == ["late"] * 2

    asyncio.run(main())
    digest = hashlib.sha256(b"late again").hexdigest()
    assert [path for path in (tmp_path / "cache").rglob("*") if digest in path.name] == []
    assert failures(tmp_path / "cache") == []


@pytest.mark.usefixtures("told")
def test_failures_of_what_nobody_needs_are_removed(tmp_path: Path) -> None:
    older = tmp_path / "cache/failed-v0"
    older.mkdir(parents=True)
    (older / ("a" * 64 + "-b")).touch()

    async def main() -> None:
        async with Engine(
            cache=Cache(tmp_path / "cache"), workers=1, limits=EngineLimits(readers=1)
        ) as engine:
            await engine.add(SourceContent(b"late one", "one.txt"), SourceContent(b"late two", "two.txt"))
            await engine.prewarm()
            assert len(failures(tmp_path / "cache")) == 3
            needed = hashlib.sha256(b"late two").hexdigest()
            await engine.prune(lambda sha256: sha256 == needed)
            [left] = failures(tmp_path / "cache")
            assert left.name.startswith(needed)

    asyncio.run(main())


def test_a_scan_waits_apart_from_text() -> None:
    """All slots for tesseract are taken: text goes through its own."""
    lanes = Lanes.within(1, 2 << 30)
    assert lanes.ocr is not lanes.quick
    assert lanes.ocr is not lanes.heavy


def attributes(kind: str, count: int) -> str:
    pieces: dict[str, Iterable[str]] = {
        "one element": ("<p ", *(f"a{n}=1 " for n in range(count)), ">"),
        "bodies": (f"<body a{n}=1>" for n in range(count)),
        "many elements": (f"<p a{n}=1>x</p>" for n in range(count)),
        "quoted": ("<p ", *(f"a{n}='>' " for n in range(count)), ">"),
    }
    return f"<html><body>{''.join(pieces[kind])}<p class=x id='y' {'b=2 ' * 9}hidden>gone</p>The end."


@pytest.mark.parametrize("kind", ["one element", "bodies", "many elements", "quoted"])
def test_attributes_cost_no_more_than_their_bytes(kind: str) -> None:
    """100,000 distinct attributes took the parser a minute. What hides text is still seen."""
    document = read_html(attributes(kind, 100_000).encode(), sha256="0" * 64)
    assert document.text.endswith("The end.")
    hidden = [document.text[aside.start : aside.end] for aside in document.asides]
    assert hidden == ["gone"]


def test_scripts_with_comparisons_are_no_tags() -> None:
    """A `<` in a script, a comment or a text field does not swallow the end of its element."""
    script = "if (a<b) " + "x = y " * 20_000
    page = f"<script>{script}</script><!-- <p {'a=1 ' * 20_000} --><textarea><p z='1'></textarea><p>Seen</p>"
    assert read_html(page.encode(), sha256="0" * 64).text == "<p z='1'>\nSeen"


@pytest.mark.usefixtures("told")
def test_an_upload_is_refused_where_too_many_wait(tmp_path: Path) -> None:
    """The limit is that of one caller, and says what it is about."""

    async def main() -> None:
        limits = EngineLimits(readers=1, unread=2)
        async with desk(tmp_path, reading=limits) as at:
            for n in range(2):
                await at.upload(f"hang{n}.txt", f"hang{n} for long".encode())
            sent = await at.http.post("/sources", params={"name": "more.txt"}, content=b"more")
            assert (sent.status_code, sent.json()["error"]["code"]) == (429, "too_many_reads")

    asyncio.run(main())


def test_a_failed_source_is_read_again_when_it_is_uploaded_again(told: Path, tmp_path: Path) -> None:
    """A restart does not read it again; whoever uploads the same bytes wants another try."""
    store = MemoryStore()

    async def main(*, upload: bool) -> dict[str, str]:
        async with desk(tmp_path, store=store) as at:
            if upload:
                await at.upload("late.txt", b"late again")
            return await at.read()

    tries: list[int] = []
    for upload in (True, False, True):
        assert asyncio.run(main(upload=upload)) == {"late.txt": "failed"}
        tries.append(len(told.read_text().split()))
    assert tries == [2, 2, 4]
