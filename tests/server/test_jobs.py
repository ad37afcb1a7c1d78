"""Quotes checked by workers: the same verdicts as of the engine, each once, whatever dies on the way."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncGenerator, AsyncIterable, Iterable, Sequence
from contextlib import nullcontext
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from citewire import cli
from citewire.agui.events import RunStarted
from citewire.channels.hub import Hub
from citewire.channels.memory import MemoryStore
from citewire.channels.postgres_database import connect
from citewire.channels.store import Entry, Row
from citewire.server.jobs.after_commit_verifier import AfterCommitVerifier
from citewire.server.jobs.question import (
    LARGEST,
    AttachedSource,
    JobQuestion,
    Manifest,
    read,
    sha256_of,
    write,
)
from citewire.server.jobs.queue import QUEUE, JobQueue, prepare
from citewire.server.jobs.verifier import JobVerifier
from citewire.server.storage import backend
from citewire.threadlog.journal import RunJournal
from citewire.verification import verifier
from citewire.verification.document_set import CheckResult
from citewire.verification.expected_place import ExpectedPlace
from citewire.verification.sources import SourceContent
from citewire.verification.verifier import QuoteCheck, check_in_order
from support.app import opened_app
from support.folder_search import traces, traces_in_tables
from support.postgres import Postgres
from support.server_agents import QUOTE
from support.worker_process import (
    ANSWERED,
    ASKED,
    CUT,
    DOING,
    FEES,
    JOBS,
    LEAVE,
    MADE,
    STUCK,
    Node,
    Working,
    node,
    on_node,
)

# Workers are started like by people, which takes seconds on a busy machine.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

NOTE = "Nobody pays before the ninth of May."
# All that a question can be, and a reader of JSON may trip over.
QUOTES = [
    *(QuoteCheck(f"same{n}", f"The fee of member {n} is {n + 40} dollars") for n in range(30)),
    QuoteCheck("altered", "The fee of member 7 is 48 dollars"),
    QuoteCheck("missed", "The fee of nobody was ever waived for good"),
    QuoteCheck("named", "due on day 5", "fees.pdf", ExpectedPlace(pages=(3,), before="2 is 42 dollars, ")),
    QuoteCheck("unknown", "due on day 5", "bees.pdf"),
    QuoteCheck("likely", "due on day 6", likely=("nothing.txt", "fees")),
    QuoteCheck("along", "before the ninth of May", scope="run"),
    QuoteCheck("alone", "The fee of member 7 is 47 dollars", scope="run", alone=True),
    QuoteCheck("nothing", "", claim="the fee of member 12 is 52 dollars"),
    QuoteCheck("odd\ud800", "the fee\x00 of \udcff member", near=ExpectedPlace(pages=(2**70,))),
    QuoteCheck("empty", " \n"),
]


def fees(*numbers: int) -> list[QuoteCheck]:
    return [QuoteCheck(f"fee{n}", f"The fee of member {n} is {n + 40} dollars") for n in numbers]


def statuses(checked: Iterable[CheckResult]) -> list[str]:
    return [each.status for each in checked]


def test_verdicts_are_those_of_the_engine(dsn: str, tmp_path: Path) -> None:
    async def main(one: Node) -> None:
        await one.upload(FEES, "fees.pdf")
        await one.verifier.add(
            SourceContent(NOTE, "note"), SourceContent(FEES, "copy", also=("double",)), scope="run"
        )
        async with Working(dsn, tmp_path):
            found = await one.check(*QUOTES)
        await one.engine.forget("run")
        await one.engine.add(
            SourceContent(NOTE, "note"), SourceContent(FEES, "copy", also=("double",)), scope="run"
        )
        assert found == [checked async for checked in check_in_order(one.engine, QUOTES)]
        assert len({each.status for each in found}) == 4
        assert [each.id for each in found if each.context] == ["nothing"]
        # Where it is can be shown by the node, whichever of its sources it is in.
        shown = [each for each in found if each.boxes]
        assert all(await one.verifier.pictures(shown, "png"))

    on_node(dsn, tmp_path, main)


def test_a_question_is_one_job_whoever_asks_it_and_however_often(dsn: str, tmp_path: Path) -> None:
    async def main(one: Node) -> None:
        await one.upload(FEES, "fees.pdf")
        async with node(dsn, tmp_path / "other") as other:
            asking = asyncio.create_task(one.check(*fees(1, 2, 3)))
            await one.until(ASKED, 3)
            made = await one.one(MADE)
            again = asyncio.create_task(other.check(*fees(3, 2, 1), *fees(2)))
            async with Working(dsn, tmp_path):
                assert statuses(await asking) == ["verified"] * 3
                assert statuses(await again) == ["verified"] * 4
                await one.until(JOBS, 0)
                assert statuses(await other.check(*fees(1, 2, 3))) == ["verified"] * 3
            assert (await one.one(MADE), await one.one(ANSWERED)) == (made, 3)
            # Nobody waits for what was answered before, also without a worker.
            assert statuses(await one.check(*fees(1, 3))) == ["verified"] * 2

    on_node(dsn, tmp_path, main)


def test_a_question_is_with_one_job_at_a_time_and_has_one_verdict(dsn: str, tmp_path: Path) -> None:
    """Also where two nodes ask at once, and neither has seen the question of the other."""

    async def main(one: Node) -> None:
        async with JobQueue.open(dsn) as queue:
            await queue.enqueue({"a": b"1", "b": b"2"})
            first = await one.one(MADE)
            await queue.enqueue({"b": b"2", "a": b"1"})
            assert await one.one(JOBS) == 1
            await queue.enqueue({"b": b"2", "c": b"3"})
            second = await one.one(MADE)
            assert await queue.questions(first) == {"a": b"1", "b": b"2"}
            assert await queue.questions(second) == {"c": b"3"}
            assert await queue.find_verdicts("abcd") == {"a": None, "b": None, "c": None}
            await queue.write_verdicts({"a": b"yes"})
            await queue.write_verdicts({"a": b"no", "c": b"yes", "d": b"nobody asked"})
            assert await queue.find_verdicts("abcd") == {"a": b"yes", "b": None, "c": b"yes"}
            await queue.enqueue({"a": b"1"})
            assert (await queue.questions(first), await one.one(JOBS)) == ({"b": b"2"}, 2)
            # Whatever became of the job: what it left can be asked again.
            await one.meddle("DELETE FROM procrastinate_jobs")
            assert await queue.find_verdicts("abcd") == {"a": b"yes", "c": b"yes"}
            await queue.enqueue({"a": b"1", "b": b"2"})
            assert await queue.questions(await one.one(MADE)) == {"b": b"2"}

    on_node(dsn, tmp_path, main)


def test_a_change_of_the_sources_is_another_question(dsn: str, tmp_path: Path) -> None:
    async def main(one: Node) -> None:
        await one.upload(b"The fee is 40 dollars.", "fee.txt")
        fee = QuoteCheck("fee", "The fee is 50 dollars.")
        async with Working(dsn, tmp_path):
            assert statuses(await one.check(fee)) == ["altered"]
            await one.upload(b"The fee is 50 dollars.", "fee.txt")
            assert statuses(await one.check(fee)) == ["verified"]
            await one.catalog.drop(one.catalog.records()[0].id)
            assert statuses(await one.check(fee)) == ["skipped"]
            await one.upload(b"The fee is 40 dollars.", "fee.txt")
            assert statuses(await one.check(fee)) == ["altered"]

    on_node(dsn, tmp_path, main)


def test_workers_share_the_jobs(dsn: str, tmp_path: Path) -> None:
    async def main(one: Node) -> None:
        await one.verifier.add(SourceContent(NOTE, "note"), scope="run")
        quotes = [
            QuoteCheck(str(n), f"Nobody pays {n} before the ninth of May.", scope="run") for n in range(200)
        ]
        async with Working(dsn, tmp_path), Working(dsn, tmp_path):
            asking = asyncio.create_task(one.check(*quotes))
            await one.until(ASKED, 200)
            async with one.held():
                await one.until(DOING, 2)
            assert statuses(await asking) == ["altered"] * 200
            await one.until(JOBS, 0)

    on_node(dsn, tmp_path, main)


def test_another_worker_takes_the_job_of_one_that_was_killed(dsn: str, tmp_path: Path) -> None:
    async def main(one: Node) -> None:
        await one.upload(FEES, "fees.pdf")
        asking = asyncio.create_task(one.check(*fees(*range(20))))
        await one.until(ASKED, 20)
        async with Working(dsn, tmp_path) as killed:
            async with one.held():
                await one.until(DOING, 1)
                await one.until(STUCK, 1)
                await killed.end(signal.SIGKILL)
                # Else it would be written although nobody is there any more.
                await one.one(CUT)
            async with Working(dsn, tmp_path) as other:
                assert statuses(await asking) == ["verified"] * 20
                await one.until(JOBS, 0)
                assert "a worker died in job" in other.log.read_text()
        assert (await one.one(ANSWERED), await one.one(ASKED)) == (20, 0)

    on_node(dsn, tmp_path, main)


def test_a_worker_that_is_stopped_ends_what_it_does(dsn: str, tmp_path: Path) -> None:
    async def main(one: Node) -> None:
        await one.upload(FEES, "fees.pdf")
        asking = asyncio.create_task(one.check(*fees(1, 2)))
        await one.until(ASKED, 2)
        async with Working(dsn, tmp_path) as stopped:
            async with one.held():
                await one.until(STUCK, 1)
                stopped.send(signal.SIGTERM)
            assert await stopped.end() == 0
            assert "Traceback" not in stopped.log.read_text()
        assert statuses(await asking) == ["verified"] * 2
        assert await one.one("SELECT count(*) FROM citewire_jobs.procrastinate_workers") == 0

    on_node(dsn, tmp_path, main)


def test_a_question_that_ends_every_worker_is_given_up_and_costs_no_other(dsn: str, tmp_path: Path) -> None:
    """A job whose worker is gone is tried again: of several questions each on its own, one three times."""

    async def main(one: Node) -> None:
        await one.upload(FEES, "fees.pdf")
        poison = asyncio.create_task(one.check(*fees(1)))
        await one.until(ASKED, 1)
        await one.meddle(f"{LEAVE}, attempts = 2")
        others = asyncio.create_task(one.check(*fees(2, 3, 4)))
        await one.until(ASKED, 4)
        await one.meddle(LEAVE)
        async with Working(dsn, tmp_path):
            (given_up,) = await poison
            assert (given_up.status, given_up.reason) == ("skipped", "the check failed 3 times")
            assert statuses(await others) == ["verified"] * 3
            await one.until(JOBS, 0)

    on_node(dsn, tmp_path, main)


def test_what_is_not_decided_in_time_is_decided_when_a_worker_comes(
    dsn: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        settings: dict[str, Any] = {"store": dsn, "verify_jobs": True, "agent": "support.server_agents:held"}
        async with opened_app(tmp_path / "data", deadline=0.5, **settings) as app:
            text = f"<p>{QUOTE}</p>".encode()
            sent = await app.ask("POST", "/sources?name=refund-policy.html", text, content_type="text/html")
            assert sent.status == 201, sent
            run = {"threadId": "t", "runId": "r", "messages": [{"id": "u", "role": "user", "content": ""}]}
            said = await app.ask("POST", "/agui", run, accept="text/event-stream")
            assert b"RUN_FINISHED" in said.body
            assert b'"value":"verifying"' in said.body
            assert b'"value":"complete"' not in said.body
            figures = b""
            while b"citewire_jobs_waiting" not in figures or b"citewire_jobs_waiting 0.0" in figures:
                await asyncio.sleep(0.05)  # it looks once a second, and there is nothing else to wait for
                figures = (await app.ask("GET", "/metrics")).body
            assert b"citewire_workers_alive 0.0" in figures
            assert "1 quotes wait, and no worker is alive" in caplog.text
            async with Working(dsn, tmp_path):
                await app.server.runs.wait_idle()
            state = (await app.ask("GET", "/threads/t")).json["state"]
            summary = state["deepcitation"]["messages"]["answer"]["summary"]
            assert (summary["verified"], summary["pending"]) == (1, 0)

    asyncio.run(main())


def test_malformed_rows_do_no_harm(dsn: str, tmp_path: Path) -> None:
    """Who can write to the database can write anything there; no worker reads a file of its own for it."""
    secret = tmp_path / "secret.txt"
    secret.write_text(NOTE)
    manifest = write(Manifest((AttachedSource("local", url=str(secret)),)))
    broken = {
        "not JSON": b"\xff{",
        "another shape": b'{"quote": 7}',
        "a list": b"[]",
        "deep": b"[" * 100_000,
        "too large": b'{"quote": "' + b"x" * LARGEST + b'"}',
        "no such manifest": write(JobQuestion("ninth of May", given="0" * 64)),
        "a manifest of files": write(JobQuestion("ninth of May", given=sha256_of(manifest))),
        "a bad name": b'{"quote": "q", "given": "../../etc"}',
        "no such place": b'{"quote": "q", "at": "nowhere"}',
    }

    async def main(one: Node) -> None:
        await one.upload(FEES, "fees.pdf")
        add = "INSERT INTO procrastinate_jobs (queue_name, task_name, args) VALUES ($1, $2, $3)"
        jobs = [("citewire.verify", "[1]"), ("citewire.verify", '{"job": 7, "x": "y"}'), ("os.system", "{}")]
        for task, args in jobs:
            await one.meddle(add, QUEUE, task, args)
        await one.meddle(add, QUEUE, "citewire.verify", "{}")
        job = await one.one(MADE)
        for key, question in broken.items():
            ask = "INSERT INTO citewire.verdict (key, question, job) VALUES ($1, $2, $3)"
            await one.store.db.execute(ask, key, question, job)
        hand = "INSERT INTO citewire.given VALUES ($1, $2)"
        await one.store.db.execute(hand, sha256_of(manifest), manifest)
        async with Working(dsn, tmp_path):
            assert statuses(await one.check(*fees(1))) == ["verified"]
            await one.until(ANSWERED, len(broken) + 1)
        for row in await one.store.db.fetch("SELECT key, data FROM citewire.verdict"):
            if row["key"] in broken:
                said = read(row["data"], CheckResult)
                assert said.status == "skipped", row["key"]
                assert (said.reason or "").startswith("the question cannot be answered: "), row["key"]
        # A verdict that is none is told of the quote.
        await one.store.db.execute("UPDATE citewire.verdict SET data = 'x'")
        (checked,) = await one.check(*fees(1))
        assert (checked.status, (checked.reason or "")[:28]) == ("skipped", "the verdict cannot be read: ")

    on_node(dsn, tmp_path, main)


@pytest.mark.parametrize("value", QUOTES, ids=lambda asked: ascii(asked.id))
def test_a_question_arrives_as_it_was_asked(value: QuoteCheck) -> None:
    posed = JobQuestion.of(value, None, None)
    assert read(write(posed), JobQuestion) == posed
    assert write(read(write(posed), JobQuestion)) == write(posed)


def test_all_goes_on_when_the_database_comes_back(tmp_path: Path) -> None:
    with Postgres() as server:

        async def main(one: Node) -> None:
            await one.upload(FEES, "fees.pdf")
            async with Working(server.dsn, tmp_path):
                assert statuses(await one.check(*fees(1))) == ["verified"]
                await asyncio.to_thread(server.crash)
                asking = asyncio.create_task(one.check(*fees(1, 2, 3)))
                await asyncio.to_thread(server.start)
                assert statuses(await asking) == ["verified"] * 3
                await asyncio.to_thread(server.kill_backends)
                assert statuses(await one.check(*fees(4, 5, 6))) == ["verified"] * 3

        on_node(server.dsn, tmp_path, main)


def test_old_verdicts_are_forgotten(dsn: str, tmp_path: Path) -> None:
    async def main(one: Node) -> None:
        await one.upload(FEES, "fees.pdf")
        async with Working(dsn, tmp_path):
            assert statuses(await one.check(*fees(1, 2))) == ["verified"] * 2
        await one.one("UPDATE citewire.verdict SET at = at - interval '2 hours' RETURNING 1")
        assert statuses(await one.check(*fees(1))) == ["verified"]
        async with Working(dsn, tmp_path):
            await one.until(ANSWERED, 0)

    on_node(dsn, tmp_path, main)


def test_many_may_prepare_the_tables_at_once_and_need_no_rights_but_to_make_schemas(dsn: str) -> None:
    async def main() -> None:
        db = await connect(dsn)
        try:
            await db.execute("DROP ROLE IF EXISTS plain; CREATE ROLE plain LOGIN")
            await db.execute(
                f"GRANT CREATE ON DATABASE {await db.fetchval('SELECT current_database()')} TO plain"
            )
            plain = dsn.replace("postgres@", "plain@")
            await asyncio.gather(*(prepare(plain) for _ in range(5)))
            await prepare(plain)
            steps = {each.name for each in files("procrastinate.sql.migrations").iterdir()}
            applied = {row["name"] for row in await db.fetch("SELECT name FROM citewire_jobs.applied")}
            assert applied == {name for name in steps if name.endswith(".sql")}
        finally:
            await db.execute("DROP OWNED BY plain; DROP ROLE plain")
            db.terminate()

    asyncio.run(main())


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "a worker needs a database: --store postgresql://USER@HOST/NAME"),
        (["--store", "somewhere"], "a worker needs a database: --store postgresql://USER@HOST/NAME"),
        (["--store", "postgresql://me:pass word@db/x"], "--store: expected a path"),
        (["--concurrency", "0", "--store", "postgresql://db"], "'--concurrency'"),
    ],
)
def test_a_worker_that_cannot_begin_says_why(
    arguments: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(cli.app, ["worker", *arguments], prog_name="citewire")
    assert (result.exit_code, result.stdout) == (2, "")
    assert said in result.stderr
    assert "pass word" not in result.stderr


def test_a_quote_is_asked_for_once_its_citation_is_kept() -> None:
    class Held(MemoryStore):
        is_free = asyncio.Event()

        async def append(self, channel: str, entries: Sequence[Entry]) -> tuple[Row, ...]:
            await self.is_free.wait()
            return await super().append(channel, entries)

    async def main() -> None:
        asked: list[str] = []

        class Asking(JobVerifier):
            def __init__(self) -> None:
                pass

            async def check(
                self, quotes: Iterable[QuoteCheck] | AsyncIterable[QuoteCheck]
            ) -> AsyncGenerator[CheckResult]:
                async for each in verifier.iter_quotes(quotes):
                    asked.append(each.quote)
                    yield CheckResult(each.id, "verified")

        async def nobody(_: object) -> None:
            pass

        store = Held()
        journal = RunJournal(Hub(store), "run:t", nobody)
        await journal.put("t", "r", [RunStarted("t", "r")])
        checking = asyncio.create_task(
            anext(AfterCommitVerifier(Asking(), journal.wait_written).check(fees(1)))
        )
        for _ in range(10):
            await asyncio.sleep(0)
        assert asked == []
        store.is_free.set()
        await checking
        assert asked == [fees(1)[0].quote]
        assert len(await store.read("run:t")) == 1

    asyncio.run(main())


def test_what_came_with_a_run_goes_with_it(dsn: str, tmp_path: Path) -> None:
    """From the tables, from the folder of the node and from that of the worker; another run keeps its own."""
    worker = tmp_path / "worker"

    def quote(words: str, scope: str) -> QuoteCheck:
        return QuoteCheck(words, words, scope=scope, alone=True)

    async def main(one: Node) -> None:
        await one.upload(FEES, "fees.pdf")
        for scope in ("run", "other"):
            await one.verifier.add(SourceContent(NOTE, "note"), scope=scope)
        async with Working(dsn, tmp_path, data=worker):
            assert statuses(await one.check(quote("before the ninth of May", "run"))) == ["verified"]
            assert await traces_in_tables(one.store.db, "ninth of May") == [
                "citewire.verdict",
                "citewire.given",
            ]
            await one.verifier.forget("run")
            both = [quote("before the ninth of May", "other"), quote("Nobody pays before", "other")]
            assert statuses(await one.check(*both)) == ["verified"] * 2
            await one.verifier.forget("other")
            assert await traces_in_tables(one.store.db, "ninth of May") == []
            # The worker forgets it once the job is over.
            await one.until(JOBS, 0)
            assert statuses(await one.check(*fees(1))) == ["verified"]
            assert traces(tmp_path, "ninth of May") == []

    on_node(dsn, tmp_path, main)


def test_a_question_that_nobody_answered_goes_with_its_run(dsn: str, tmp_path: Path) -> None:
    """And can be asked again: what a worker says of the one before does not count any more."""

    async def main(one: Node) -> None:
        await one.verifier.add(SourceContent(NOTE, "note"), scope="run")
        asking = asyncio.create_task(one.check(QuoteCheck("q", "before the ninth of May", scope="run")))
        await one.until(ASKED, 1)
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        await one.verifier.forget("run")
        assert await traces_in_tables(one.store.db, "ninth of May") == []
        await one.verifier.add(SourceContent(NOTE, "note"), scope="run")
        again = asyncio.create_task(one.check(QuoteCheck("q", "before the ninth of May", scope="run")))
        await one.until(ASKED, 1)
        async with JobQueue.open(dsn) as queue:
            [key] = [row[0] for row in await one.store.db.fetch("SELECT key FROM citewire.verdict")]
            job = await one.one("SELECT job FROM citewire.verdict")
            await queue.write_verdicts({key: write(CheckResult(None, "skipped", "gone"))}, job - 1)
        async with Working(dsn, tmp_path):
            assert statuses(await again) == ["verified"]

    on_node(dsn, tmp_path, main)


def test_what_a_dead_node_left_is_forgotten(dsn: str, tmp_path: Path) -> None:
    """What living ones have is touched again and again."""

    async def main(one: Node) -> None:
        async with JobQueue.open(dsn) as queue:
            for scope in ("dead", "alive"):
                await queue.store_contents(scope, {sha256_of(NOTE.encode()): NOTE.encode()})
            await one.store.db.execute("UPDATE citewire.given SET at = at - interval '2 hours'")
            await queue.touch(["alive"])
            await queue.tidy()
            assert [row[0] for row in await one.store.db.fetch("SELECT scope FROM citewire.given")] == [
                "alive"
            ]

    on_node(dsn, tmp_path, main)


def test_a_worker_keeps_no_copy_of_a_source_that_is_gone(dsn: str, tmp_path: Path) -> None:
    worker = tmp_path / "worker"

    async def main(one: Node) -> None:
        await one.upload(NOTE.encode(), "note.txt")
        await one.upload(FEES, "fees.pdf")
        async with Working(dsn, tmp_path, data=worker):
            assert statuses(await one.check(QuoteCheck("q", "before the ninth of May"))) == ["verified"]
        assert traces(worker, "ninth of May")
        [source] = [held for held in one.catalog.holdings() if held.name == "note.txt"]
        await one.catalog.remove(source.id)
        await one.store.db.execute("UPDATE citewire.blob SET touched = touched - interval '1 hour'")
        await one.catalog.sweep(0)
        async with Working(dsn, tmp_path, data=worker):
            async with asyncio.timeout(60):
                while traces(worker, "ninth of May"):
                    await one.one("SELECT pg_sleep(0.02)")
            assert statuses(await one.check(*fees(1))) == ["verified"]
        assert traces(worker, "ninth of May") == traces(tmp_path / "node", "ninth of May") == []

    on_node(dsn, tmp_path, main)


@pytest.mark.parametrize("is_locked", [True, False])
def test_the_temporary_folder_of_a_worker_that_was_killed_goes(
    dsn: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_locked: bool
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    left = tmp_path / "citewire-worker-left"
    left.mkdir()
    (left / "lock").touch()
    (left / "note").write_text(NOTE)
    os.utime(left / "lock", (0, 0))

    async def main(one: Node) -> None:
        with backend.lock_folder(left) if is_locked else nullcontext():
            async with Working(dsn, tmp_path) as worker:
                assert left.exists() is is_locked
                assert await worker.end() == 0

    on_node(dsn, tmp_path, main)
    assert len([*tmp_path.glob("citewire-worker-*")]) == is_locked
