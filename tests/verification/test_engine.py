"""The engine: every quote gets its verdict, whatever sources, quotes and workers do, and nothing is left."""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
import signal
import threading
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import aclosing
from pathlib import Path
from random import Random
from typing import Any

import pytest
from msgspec.structs import replace

from citewire.documents.cache import Cache
from citewire.documents.load import load
from citewire.verification import search_cache, search_worker
from citewire.verification.document_search import DocumentRef, SearchRequest
from citewire.verification.document_set import CheckResult, DocumentSet
from citewire.verification.engine import Engine, EngineLimits
from citewire.verification.expected_place import ExpectedPlace
from citewire.verification.match import SearchableText
from citewire.verification.search_worker import SearchWorker, WorkerSetup
from citewire.verification.sketches import make_sketch
from citewire.verification.source_reading import SourceReading
from citewire.verification.sources import SourceContent, SourceInput
from citewire.verification.verifier import QuoteCheck, Verifier
from support.clock import LONG, clock, on_clock
from support.library_documents import document

pytestmark = pytest.mark.slow

SOURCES = [
    document(
        [f"Chapter {n}. The fee of member {n} is {n + 40} dollars, due on day {n + 3}.\n"], f"part{n}.txt"
    )
    for n in range(9)
]
POISONED = """
import faulthandler, os, time
from citewire.verification.document_search import DocumentSearcher
from citewire.verification.search_worker import serve

search, watch = DocumentSearcher.search, faulthandler.dump_traceback_later

def watched(seconds, exit):
    global given
    given = seconds
    watch(seconds, exit=exit)

def hurry():
    # What does not hang may be slow, so the time it has is long.
    watch(given / 200, exit=True)

def poisoned(self, asked):
    if "crash" in asked.quote: os.abort()
    if "hang" in asked.quote: hurry(), time.sleep(600)
    if "sleep" in asked.quote: time.sleep(600)
    if "fill" in asked.quote: bytearray(8 << 30)
    if "bug" in asked.quote: raise ValueError("a bug")
    if "leave" in asked.quote: os._exit(3)
    return search(self, asked)

DocumentSearcher.search, faulthandler.dump_traceback_later = poisoned, watched
serve()
"""


def fee(n: int, **more: Any) -> QuoteCheck:
    return QuoteCheck(f"fee{n}", f"The fee of member {n} is {n + 40} dollars", **more)


def poison(word: str) -> QuoteCheck:
    return QuoteCheck(word, f"these words {word} the worker", source="part1")


@pytest.fixture
def poisoned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers that some words kill."""
    (tmp_path / "poisoned.py").write_text(POISONED, "utf-8")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(search_worker, "_COMMAND", ("-c", "import poisoned"))


@pytest.fixture
def stuck(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Readers that tell of themselves in a pipe, and then do nothing."""
    told = tmp_path / "told"
    os.mkfifo(told)
    program = f"import time; open({str(told)!r}, 'w').close(); time.sleep(60)"
    monkeypatch.setattr("citewire.documents.reader._COMMAND", ("-c", program))
    return told


def children() -> set[str]:
    """The processes of this one; where the system does not list them, none."""
    lists = Path("/proc/self/task").glob("*/children")
    return {pid for each in lists for pid in each.read_text().split()}


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    """No process and no thread is left by any test."""
    before = children(), set(threading.enumerate())
    yield
    for thread in set(threading.enumerate()) - before[1]:
        # One that has read a source ends by itself.
        thread.join(30)
    assert (children() - before[0], set(threading.enumerate()) - before[1]) == (set(), set())


def run(
    quotes: Any, sources: SourceInput | Iterable[SourceInput] = SOURCES, **options: Any
) -> dict[str | None, CheckResult]:
    async def main() -> dict[str | None, CheckResult]:
        async with Engine(sources, **options) as engine:
            return {checked.id: checked async for checked in engine.check(quotes)}

    return asyncio.run(main())


def test_it_is_a_verifier() -> None:
    engine: Verifier = Engine()
    assert engine


@pytest.mark.parametrize("count", [2, 9], ids=["few", "many"])
def test_it_says_what_the_library_says(count: int) -> None:
    asked = [
        fee(1),
        fee(0, source="part0.txt"),
        fee(1, source="PART0"),
        fee(1, near=ExpectedPlace((7,))),
        QuoteCheck("line", "The fee of member 1 is 41 dollars", near=ExpectedPlace((1,), (99,))),
        QuoteCheck("around", "due on day", near=ExpectedPlace((), (3,), "dollars,", "2.")),
        QuoteCheck("strange", "due on day", near=ExpectedPlace((-1,), (2**53,), "\ud800")),
        QuoteCheck("altered", "The fee of member 1 is 54 dollars"),
        QuoteCheck("absent", "nobody has ever written down such words as these"),
        QuoteCheck("short", "41 dollars"),
        QuoteCheck("shorter", "day 4"),
        QuoteCheck("empty", " ... "),
        QuoteCheck("unknown", "The fee", source="nobody.txt"),
        QuoteCheck("everywhere", "due on day"),
    ]
    # Verdicts come as they are known: what is asked twice needs ids of its own.
    asked = [replace(each, id=f"{number} {each.id}") for number, each in enumerate(asked)]
    library = DocumentSet(SOURCES[:count])
    expected = {each.id: library.check(each.quote, each.source, each.near, each.id) for each in asked}
    assert run(asked, SOURCES[:count], workers=2) == expected


def noisy(words: str, random: Random, share: float) -> str:
    letters = "abcdefghijklmnopqrstuvwxyz "
    return "".join(random.choice(letters) if random.random() < share else char for char in words)


def test_many_quotes_in_many_documents() -> None:
    """A quote is what it is in the one document that has it, though twenty have the same words."""
    random = Random(0)
    starts, ends = ["b", "dr", "fl", "gr", "k", "m", "pr", "st"], ["rn", "lt", "sh", "nd", "ck", "m"]
    vocabulary = [a + b + c + d for a in starts for b in "aeiou" for c in ends for d in ("", "ing", "ed")]
    texts = [" ".join(random.choices(vocabulary, k=2000)) for _ in range(20)]
    sources = [document([text + "\n"], f"{n}.txt") for n, text in enumerate(texts)]
    alone = [DocumentSet([source]) for source in sources]
    asked: list[QuoteCheck] = []
    expected: list[tuple[str, str | None]] = []
    for number in range(120):
        words = texts[number % 20].split()
        at = random.randrange(len(words) - 16)
        quote = noisy(" ".join(words[at : at + 16]), random, (0.0, 0.03, 0.1)[number % 3])
        asked.append(QuoteCheck(str(number), quote))
        checked = alone[number % 20].check(quote)
        expected.append((checked.status, checked.source))
    found = run(asked, sources, workers=2, deadline=None)
    assert [(found[each.id].status, found[each.id].source) for each in asked] == expected
    assert {status for status, _ in expected} >= {"verified", "altered"}


def test_sources_of_every_kind(tmp_path: Path) -> None:
    folder = tmp_path / "docs"
    (folder / "sub").mkdir(parents=True)
    (folder / ".hidden.txt").write_text("Hidden files are not read.")
    (folder / "sub/one.txt").write_text("The first source is a file in a folder.")
    (tmp_path / "two.md").write_text("The second source is a *file*.")
    tool = SourceContent("The third source is a text.", "search", "https://a.test/x/page.html", "A title")
    sources = [
        folder,
        str(tmp_path / "two.md"),
        tool,
        SOURCES[0],
        SourceContent(b"The fifth source is bytes.", "b"),
    ]
    asked = [
        QuoteCheck("1", "The first source is a file", source="sub/one.txt"),
        QuoteCheck("2", "The second source is a file", source=str(tmp_path / "two.md")),
        QuoteCheck("3", "The third source is a text", source="https://a.test/x/page.html"),
        QuoteCheck("4", "The fee of member 0 is 40 dollars", source=SOURCES[0].sha256),
        QuoteCheck("5", "The fifth source is bytes"),
        QuoteCheck("6", "The third source is a text", source="a title"),
        QuoteCheck("7", "The first source is a file", source="one.txt"),
        QuoteCheck("8", "Hidden files are not read"),
    ]
    found = run(asked, sources, cache=Cache(tmp_path / "cache"))
    expected = ["sub/one.txt", "two.md", "search", "part0.txt", "b", "search", "sub/one.txt", None]
    assert [found[each.id].source for each in asked] == expected
    assert [found[each.id].status for each in asked] == [*["verified"] * 7, "missed"]


@pytest.mark.parametrize(
    ("likely", "status"),
    [
        pytest.param(("part3.txt",), "altered", id="another one"),
        pytest.param(("nobody.txt", "part2"), "verified", id="the second name"),
        pytest.param(("nobody.txt", "part3", "part2"), "altered", id="the first of two"),
        pytest.param(("nobody.txt",), "verified", id="nobody knows it"),
    ],
)
def test_a_quote_is_pinned_to_its_source_if_that_is_known(likely: tuple[str, ...], status: str) -> None:
    assert run([fee(2, likely=likely)])["fee2"].status == status


def test_the_same_content_under_two_names() -> None:
    sources = [SourceContent("The same words twice.", name) for name in ("b.txt", "a.txt")]
    asked = [QuoteCheck("1", "The same words twice"), QuoteCheck("2", "The same words twice", source="a.txt")]
    assert [checked.source for _, checked in sorted(run(asked, sources).items())] == ["b.txt", "a.txt"]


def test_a_source_may_come_late() -> None:
    async def main() -> list[tuple[str, str | None]]:
        async with Engine(SOURCES[:1], workers=1) as engine:
            await engine.prewarm()
            found = [checked async for checked in engine.check([fee(2)])]
            await engine.add(SOURCES[2], SourceContent("A tool has found these words.", "tool"))
            late = [fee(2), QuoteCheck("tool", "A tool has found these words", source="tool")]
            found += [checked async for checked in engine.check(late)]
            return sorted((checked.status, checked.source) for checked in found)

    expected = [("altered", "part0.txt"), ("verified", "part2.txt"), ("verified", "tool")]
    assert asyncio.run(main()) == expected


def ignore(_: SourceReading) -> None:
    """Whoever takes a source and does not want to know."""


def test_a_source_may_go_again() -> None:
    """Whatever was found in it, and whether or not it was read, asked for by name, or a worker died since."""
    words = "The fee of member 2 is 42 dollars"

    async def main() -> None:
        async with Engine(SOURCES[:1], workers=2) as engine:
            for name in ("first.txt", "second.txt", "third.txt"):
                unread = engine.add_source(SourceContent(f"Nobody waits for {name}.", "unread"), ignore)
                told: list[tuple[bool, bool]] = []
                reading = engine.add_source(
                    SourceContent(f"{words}.", name),
                    lambda each, told=told: told.append((each.begun, each.is_read)),
                )
                engine.remove(unread)
                found = [
                    checked
                    async for checked in engine.check([QuoteCheck("1", words), QuoteCheck("2", words, name)])
                ]
                assert [(each.status, each.source) for each in found] == [("verified", name)] * 2
                assert told == [(True, False), (True, True)]
                engine.remove(reading)
                os.kill(engine.pids[-1], signal.SIGKILL)
                left = {
                    each.id: each
                    async for each in engine.check([QuoteCheck("1", words), QuoteCheck("2", words, name)])
                }
                assert (left["1"].status, left["1"].source) == ("altered", "part0.txt")
                assert left["2"].reason == f"no source is called {name}"
            assert [reading.name for reading in engine.shared_sources] == ["part0.txt"]

    asyncio.run(main())


def test_sources_come_and_go_while_quotes_are_checked() -> None:
    """One that is there all the time is found all the time."""

    async def main() -> None:
        async with Engine(SOURCES[:1], workers=2) as engine:

            async def churn() -> None:
                for n in range(20):
                    reading = engine.add_source(
                        SourceContent(f"Words number {n} come and go.", f"{n}.txt"), ignore
                    )
                    if n % 2:
                        await engine.prewarm()
                    engine.remove(reading)

            churning = asyncio.create_task(churn())
            while not churning.done():
                async for checked in engine.check([fee(0)]):
                    assert (checked.status, checked.source) == ("verified", "part0.txt")
            await churning

    asyncio.run(main())


def test_an_unreadable_source_costs_only_its_quotes(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    bad = [SourceContent(b"PK\3\4", "bad.zip"), tmp_path / "nowhere.txt", tmp_path / "empty"]

    async def main() -> None:
        async with Engine([*bad, SOURCES[1]], workers=1) as engine:
            asked = [
                fee(1),
                fee(2, source="bad.zip"),
                fee(3, source="nowhere"),
                fee(4, source=str(tmp_path / "empty")),
                QuoteCheck("absent", "nobody has ever written down such words"),
            ]
            found = {checked.id: checked async for checked in engine.check(asked)}
            assert found["fee1"].status == "verified"
            assert [found[f"fee{n}"].status for n in (2, 3, 4)] == ["skipped"] * 3
            assert found["fee3"].reason == "there is no such file"
            assert found["fee4"].reason == "it is a folder"
            assert found["absent"].warnings == ("not looked for in bad.zip, nowhere.txt, empty",)
            readings = {reading.name: reading.problem async for reading in engine.iter_readings()}
            assert {name for name, problem in readings.items() if problem} == {
                "bad.zip",
                "nowhere.txt",
                "empty",
            }

    asyncio.run(main())


def test_without_text_or_sources() -> None:
    assert run([fee(1)], [document([" \n"])])["fee1"].reason == "no text layer"
    assert run([fee(1)], [])["fee1"].reason == "there is no source"


@pytest.mark.parametrize(
    ("word", "reason"),
    [
        pytest.param("crash", "the search ended with SIGABRT", id="crash"),
        pytest.param("leave", "the search ended with status 3", id="exit"),
        pytest.param("fill", "it takes too much memory", id="memory"),
        pytest.param("hang", "not done within 20 s", id="hang"),
        pytest.param("bug", r"the search failed \(error id [0-9a-f]{16}\)", id="bug"),
    ],
)
@pytest.mark.usefixtures("poisoned")
def test_what_kills_a_worker_is_skipped_and_all_else_is_done(word: str, reason: str) -> None:
    asked = [*(fee(n, source=f"part{n}") for n in range(6)), poison(word), *(fee(n) for n in range(6, 9))]
    found = run([*asked, QuoteCheck("last", "Chapter 1", source="part1")], limits=EngineLimits(seconds=20))
    assert found[word].status == "skipped"
    assert re.fullmatch(reason, found[word].reason or "")
    assert {checked.status for key, checked in found.items() if key != word} == {"verified"}


def test_where_things_are_on_this_machine_is_only_logged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A cache that was lost, or an interpreter that is gone."""

    lost = SearchWorker(WorkerSetup(str(tmp_path / "lost"), 1 << 20, 1 << 30))
    answer = lost.ask(SearchRequest("words", 60, documents=(DocumentRef(0, "a" * 64),)))
    lost.end()
    assert answer.is_missing
    assert (answer.error, answer.detail) == ("it is not in the cache any more", str(tmp_path / "lost"))
    monkeypatch.setattr("sys.executable", str(tmp_path / "no-python"))
    said = run([fee(0)], SOURCES[:1], workers=1)["fee0"].reason
    assert said
    assert "there is no process to search in (error id " in said
    assert str(tmp_path) not in said
    assert str(tmp_path / "no-python") in caplog.text


def test_a_worker_that_others_kill_costs_nothing() -> None:
    async def main() -> list[str]:
        async with Engine(SOURCES, workers=2) as engine:
            await engine.prewarm()
            for pid in engine.pids:
                os.kill(pid, signal.SIGKILL)
            asked = [fee(1), fee(2), fee(3, source="part3")]
            return [checked.status async for checked in engine.check(asked)]

    assert asyncio.run(main()) == ["verified"] * 3


@pytest.mark.usefixtures("poisoned")
def test_past_the_deadline_a_quote_is_pending() -> None:
    async def main() -> list[CheckResult]:
        asked, found = [poison("sleep"), fee(0, source="part0")], list[CheckResult]()
        async with Engine(SOURCES, deadline=LONG, workers=2, limits=EngineLimits(seconds=LONG)) as engine:
            async for checked in engine.check(asked):
                found.append(checked)
                clock().leap(LONG)
        return found

    fine, late = on_clock(main())
    assert (fine.id, fine.status) == ("fee0", "verified")
    assert (late.id, late.status, late.reason) == ("sleep", "pending", "deadline")


def test_a_verdict_does_not_wait_for_the_next_quote() -> None:
    """One is asked only when the one before was answered."""

    async def main() -> list[str]:
        answered, seen = asyncio.Event(), list[str]()

        async def questions() -> AsyncIterator[QuoteCheck]:
            for n in range(3):
                yield fee(n)
                await answered.wait()
                answered.clear()

        async with Engine(SOURCES, workers=1) as engine:
            async for checked in engine.check(questions()):
                seen.append(checked.status)
                answered.set()
        return seen

    assert asyncio.run(main()) == ["verified"] * 3


def test_an_iterator_that_is_closed_early_leaves_the_engine_as_it_was() -> None:
    async def main() -> None:
        async with Engine(SOURCES, workers=1) as engine:
            async with aclosing(engine.check(fee(n % 9) for n in range(10_000))) as results:
                assert (await anext(results)).status == "verified"
            assert [checked.status async for checked in engine.check([fee(1)])] == ["verified"]

    asyncio.run(main())


def test_quotes_are_taken_as_fast_as_results_are() -> None:
    pulled = 0

    def many() -> Iterator[QuoteCheck]:
        nonlocal pulled
        for n in range(100):
            pulled += 1
            yield fee(n % 6)

    async def main() -> None:
        async with Engine(SOURCES, workers=1, limits=EngineLimits(waiting=5)) as engine:
            seen = 0
            async for _ in engine.check(many()):
                seen += 1
                # One more than may wait was taken to see that it has to.
                assert pulled <= seen + 5 + 1
            assert seen == pulled == 100

    asyncio.run(main())


def test_what_a_producer_raises_is_raised_after_what_it_gave() -> None:
    def broken() -> Iterator[QuoteCheck]:
        yield fee(1)
        raise LookupError("no more")

    async def main() -> None:
        async with Engine(SOURCES) as engine:
            results = engine.check(broken())
            assert (await anext(results)).status == "verified"
            with pytest.raises(LookupError, match="no more"):
                await anext(results)

    asyncio.run(main())


@pytest.mark.usefixtures("poisoned")
def test_a_result_is_remembered() -> None:
    async def main() -> None:
        async with Engine(SOURCES, workers=1) as engine:
            first = [checked async for checked in engine.check([fee(1)])]
            for pid in engine.pids:
                os.kill(pid, signal.SIGSTOP)
            # No worker answers any more.
            again = [checked async for checked in engine.check([fee(1)])]
            assert again == first

    asyncio.run(main())


def test_a_document_is_read_and_indexed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second engine finds all in the cache: there are no readers any more."""
    source = SourceContent("The words of a file are kept.", "kept.txt")
    asked = [QuoteCheck("q", "The words of a file are kept")]
    first = run(asked, source, cache=Cache(tmp_path))
    entries = sorted(path.name[64:] for path in tmp_path.glob("v*/*"))
    assert entries == ["-text"]
    assert [path.parent.name for path in tmp_path.glob("v*/*/*/meta.msgpack")] == ["search2"]
    monkeypatch.setattr("citewire.documents.reader._COMMAND", ("-c", "raise SystemExit(1)"))
    assert run(asked, source, cache=Cache(tmp_path)) == first
    assert sorted(path.name[64:] for path in tmp_path.glob("v*/*")) == entries


def test_what_is_kept_has_a_version() -> None:
    """When this fails, views, grams or sketches are not what they were: raise `kept.VERSION`, too."""
    made = SearchableText("The ﬁrst fee™ is ٤0 dol-\nlars — “due” on day 3, 한\n글 בָּ.")
    arrays = (made.view.starts, made.view.ends, *made.index.grams, make_sketch(made.letters.text))
    told = hashlib.sha256(made.view.text.encode() + b"".join(array.tobytes() for array in arrays))
    assert (search_cache.INDEX_VERSION, told.hexdigest()[:16]) == (2, "7c7e5a6aae9e9c09")


@pytest.mark.parametrize(
    "text", ["", "a", "The fee is 40 dol-\nlars.", "日本語の文書です。" * 9, "é\u0301" * 50]
)
def test_what_is_kept_is_what_was_made(text: str, tmp_path: Path) -> None:
    cache, key = Cache(tmp_path), "0" * 64
    cache.put(key, load(text.encode() or b" "))
    made, again = (search_cache.CachedSearchIndex.load_or_build(text, cache, key) for _ in range(2))
    ours, theirs = made.searchable, again.searchable
    assert (theirs.text, theirs.view.text, theirs.view.joints) == (text, ours.view.text, ours.view.joints)
    for one, other in zip(
        (*ours.view[1:3], *ours.index.grams), (*theirs.view[1:3], *theirs.index.grams), strict=True
    ):
        assert one.tolist() == other.tolist()
    assert again.sketch.tolist() == made.sketch.tolist()


def test_a_cache_that_cannot_be_written_does_no_harm(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert run([fee(1)], cache=Cache(tmp_path / "file"))["fee1"].status == "verified"


def test_bad_quotes_do_no_harm() -> None:
    whole = SOURCES[2].text
    bad = ["\ud800 lone", "5", "%", "x" * 50_000, "fee " * 12_000, "**", "[1]", "\0", "", whole]
    found = run(
        [
            fee(1),
            *(
                QuoteCheck(str(n), quote, near=ExpectedPlace((-1, 10**30), (-1, 10**30), quote, quote))
                for n, quote in enumerate(bad)
            ),
        ]
    )
    assert found["fee1"].status == "verified"
    assert [found[str(n)].quote for n in range(len(bad))] == bad
    assert [quote for n, quote in enumerate(bad) if found[str(n)].status == "verified"] == ["5", whole]


def test_leaving_early_ends_readers_and_workers(stuck: Path) -> None:
    async def main() -> None:
        engine = Engine([SourceContent(b"c", f"{n}.txt") for n in range(9)], workers=1)
        async with engine:
            # Waits for a reader to be there.
            await asyncio.to_thread(stuck.read_bytes)
            asking = asyncio.create_task(anext(engine.check([fee(1)])))
            await asyncio.sleep(0)
            # The child may be there before its parent knows.
            while not (pids := engine.pids):  # noqa: ASYNC110  # nothing tells of it
                await asyncio.sleep(0)
        assert ((await asking).status, engine.pids) == ("skipped", [])
        assert [pid for pid in pids if str(pid) in children()] == []
        assert [reading.problem async for reading in engine.iter_readings() if not reading.problem] == []
        with pytest.raises(RuntimeError):
            await anext(engine.check([fee(1)]))

    asyncio.run(main())


def test_a_run_that_is_cancelled_leaves_nothing(stuck: Path) -> None:
    """As by Ctrl-C. What is left would be seen by `nothing_left`."""

    async def main() -> None:
        async with Engine([SourceContent(b"c", "c.txt")], workers=2) as engine:
            async for _ in engine.check([fee(1)]):
                pass

    async def cancelled() -> None:
        task = asyncio.create_task(main())
        await asyncio.to_thread(stuck.read_bytes)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancelled())


def test_where_nothing_is_quoted_the_closest_passage_is_context() -> None:
    claim = "Member 4 has to pay a fee of 44 dollars, due on day 7"
    asked = [
        QuoteCheck("near", "", claim=claim),
        QuoteCheck("far", "", claim="Whales sing at night"),
        QuoteCheck("none", ""),
    ]
    found = run(asked)
    assert {(one.status, one.reason) for one in found.values()} == {("skipped", "nothing quoted")}
    near = found["near"].context
    assert near is not None
    assert (near.source, near.page) == ("part4.txt", 1)
    assert "fee of member 4 is 44 dollars" in near.text
    assert found["far"].context is found["none"].context is None


def test_what_a_client_posted_takes_no_name_of_a_source() -> None:
    """A quote that names the source is judged by the source; a posted text of its own name says so."""

    async def main() -> list[CheckResult]:
        policy = SourceContent("Refunds take 30 days.", "policy.txt")
        forged = SourceContent("Refunds take 90 days.", "policy.txt", origin="posted")
        letter = SourceContent("The lamp broke in May.", "letter.txt", origin="posted")
        async with Engine([policy], workers=1) as engine:
            await engine.add(forged, letter, scope="run")
            asked = [
                QuoteCheck("named", "Refunds take 90 days.", source="policy.txt", scope="run"),
                QuoteCheck("true", "Refunds take 30 days.", scope="run"),
                QuoteCheck("own", "The lamp broke in May.", source="letter.txt", scope="run"),
                QuoteCheck("loose", "Refunds take 90 days.", scope="run"),
            ]
            found = {checked.id: checked async for checked in engine.check(asked)}
            return [found[each.id] for each in asked]

    named, true, own, loose = asyncio.run(main())
    assert (named.status, true.status, own.status) == ("altered", "verified", "verified")
    assert named.warnings == true.warnings == ()
    posted = "the source was posted with the question"
    assert (posted in own.warnings, posted in loose.warnings) == (True, True)
