"""`citewire check` and `citewire verify`: check quotes against their sources."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator, Iterable, Iterator
from contextlib import suppress
from enum import StrEnum
from itertools import islice
from threading import Thread
from typing import TYPE_CHECKING, Annotated, Any, cast, get_args

import typer
from msgspec import ValidationError, convert, to_builtins
from msgspec.structs import replace

from citewire.cli.input import DialectOption, read_bytes, read_lines
from citewire.cli.output import fail, report_problems, say, write_out
from citewire.codec import decode, encode, pretty
from citewire.errors import CitewireError
from citewire.model import Answer, Status
from citewire.text import one_line

if TYPE_CHECKING:
    from rich.progress import Progress

    from citewire.documents import Document
    from citewire.verification.document_set import CheckResult
    from citewire.verification.engine import Engine
    from citewire.verification.report import Report
    from citewire.verification.verifier import QuoteCheck

__all__ = ["app"]

app = typer.Typer(rich_markup_mode="markdown")


@app.command(
    epilog="""**Examples**

`citewire check quotes.jsonl --sources report.pdf`

`echo '{"id": "1", "quote": "rose 12%"}' | citewire check - --sources docs/ https://example.com/report.html`"""
)
def check(
    file: Annotated[
        str,
        typer.Argument(
            metavar="QUOTES",
            help='JSON lines `{"id", "quote", "source"?, "page"?, "line"?, "prefix"?, "suffix"?}`; '
            "`-` reads standard input.",
        ),
    ] = "-",
    sources: Annotated[
        list[str] | None,
        typer.Option("--sources", metavar="PATH…", help="Files, folders and URLs to look in."),
    ] = None,
) -> None:
    """Check quotes against their sources: one JSON line in, one JSON line out, in the same order.

    Says whether the words are there, and where, and what differs. It does not know whether they support what
    they are cited for.
    """
    if not sources:
        fail("name a source with --sources")
    asyncio.run(_check_each(file, sources))


async def _check_each(file: str, sources: list[str]) -> None:
    from citewire.documents import Cache  # noqa: PLC0415  # they bring numpy along, which `--help` need not
    from citewire.verification.engine import Engine  # noqa: PLC0415
    from citewire.verification.verifier import check_in_order  # noqa: PLC0415

    wrong: list[str] = []

    async def asked() -> AsyncGenerator[QuoteCheck]:
        async for line in _read_in_thread(read_lines(file)):
            if line.strip():
                question, remark = _parse_question(line)
                wrong.append(remark)
                yield question

    async with Engine(sources, cache=Cache(), deadline=None) as engine:
        await _read_sources(engine)
        if all(reading.problem for reading in engine.shared_sources):
            fail("none of the sources can be read")
        async for checked in check_in_order(engine, asked()):
            remark = wrong.pop(0)
            shown = replace(checked, status="skipped", reason=remark) if remark else checked
            write_out(encode(shown).decode() + "\n")


async def _read_in_thread(lines: Iterator[bytes]) -> AsyncGenerator[bytes]:
    """Yield lines as they arrive, read in a thread: a sender may wait for one answer before it sends more."""
    loop = asyncio.get_running_loop()
    queue: asyncio.Queue[bytes | typer.Exit | None] = asyncio.Queue(1)

    def put(item: bytes | typer.Exit | None) -> None:
        asyncio.run_coroutine_threadsafe(queue.put(item), loop).result()

    def read() -> None:
        # The event loop may have ended.
        with suppress(RuntimeError):
            try:
                for line in lines:
                    put(line)
                put(None)
            except typer.Exit as exc:
                put(exc)

    Thread(target=read, daemon=True).start()
    while (item := await queue.get()) is not None:
        if isinstance(item, typer.Exit):
            raise item
        yield item


def _parse_question(line: bytes) -> tuple[QuoteCheck, str]:
    """Parse a line into a quote to check, and return it with what is wrong with the line."""
    from citewire.verification.verifier import QuoteCheck, QuoteInput  # noqa: PLC0415  # as above

    name = None
    try:
        fields = decode(line)
        name = cast("dict[str, Any]", fields).get("id") if isinstance(fields, dict) else None
        said = convert(fields, QuoteInput)
    except CitewireError as exc:
        return QuoteCheck(None, ""), f"not a line of JSON: {exc.message}"
    except ValidationError as exc:
        return QuoteCheck(None if name is None else str(name), ""), f"not a line with a quote: {exc}"
    return said.to_quote_check(None if name is None else str(name)), ""


class _ReportFormat(StrEnum):
    text = "text"
    json = "json"
    html = "html"


@app.command(
    epilog="""**Examples**

`citewire verify answer.json --sources report.pdf`

`citewire verify answers/*.json --sources docs/ --format json --fail-on altered,missed`

`citewire verify answer.json --sources docs/ --format html > report.html`"""
)
def verify(
    files: Annotated[
        list[str] | None, typer.Argument(metavar="ANSWER…", help="Payloads; `-` reads standard input.")
    ] = None,
    sources: Annotated[
        list[str] | None,
        typer.Option("--sources", metavar="PATH…", help="Files, folders and URLs to look in."),
    ] = None,
    source: DialectOption = None,
    form: Annotated[_ReportFormat, typer.Option("--format", help="How to report.")] = _ReportFormat.text,
    fail_on: Annotated[
        str, typer.Option("--fail-on", metavar="STATUS,…", help="Exit 1 where one of these occurs.")
    ] = "",
) -> None:
    """Check every quote that an answer cites against its sources.

    Says whether the words are there. It does not know whether they support the sentences they are cited for.
    """
    from citewire.evidence.pictures import make_original_reader  # noqa: PLC0415
    from citewire.evidence.report_page import write_page  # noqa: PLC0415  # they bring numpy along

    unwanted = {status.strip() for status in fail_on.split(",") if status.strip()}
    if unknown := unwanted - set(get_args(Status)):
        fail(f"no status is called {min(unknown)}; there are {', '.join(get_args(Status))}")
    if not sources:
        fail("name a source with --sources")
    answers = [(file, answer) for file in files or ["-"] for answer in _answers(file, source)]
    reports, documents = asyncio.run(_verify_answers(answers, sources))
    match form:
        case _ReportFormat.text:
            write_out("".join(_as_text(file, report) for file, report in reports))
        case _ReportFormat.json:
            write_out("".join(_as_json(file, report, documents) for file, report in reports))
        case _ReportFormat.html:
            write_out(write_page(reports, documents, make_original_reader(sources)))
    if any(check.status in unwanted for _, report in reports for check in report.checks):
        raise typer.Exit(1)


def _answers(file: str, source: str | None) -> tuple[Answer, ...]:
    from citewire.extraction import read_answers  # noqa: PLC0415

    try:
        answers = read_answers(read_bytes(file), source)
    except CitewireError as exc:
        fail(f"{file}: {exc.explanation}")
    for answer in answers:
        report_problems(answer.problems)
    return answers


_SYMBOLS = {"verified": "✓", "partial": "~", "altered": "≠", "missed": "✗", "skipped": "-", "pending": "?"}


def _as_text(file: str, report: Report) -> str:
    count = len(report.answer.citations)
    lines = [f"{one_line(file, 200)}: {count} citation{'' if count == 1 else 's'}"]
    for check in report.checks:
        lines += _check_lines(check)
    if report.uncited:
        lines.append(f"{len(report.uncited)} sentences without a citation:")
        lines += [f"    {one_line(sentence.text, 200)}" for sentence in report.uncited_sentences]
    lines.append(
        ", ".join(f"{count} {status}" for status, count in report.counts.items()) or "nothing to check"
    )
    return "\n".join(lines) + "\n"


def _check_lines(check: CheckResult) -> Iterator[str]:
    page = f" p. {check.page}" if check.page else ""
    place = f"  {one_line(check.source, 80)}{page}" if check.source else ""
    yield f"{_SYMBOLS[check.status]} {check.status:8} {one_line(check.id, 40)}{place}"
    if check.quote:
        yield f"    “{one_line(check.quote, 300)}”"
    if check.status in ("altered", "partial"):
        yield f"    source: “{one_line(check.found, 300)}”"
    if check.reason:
        yield f"    {one_line(check.reason, 200)}"
    yield from (f"    note: {one_line(warning, 200)}" for warning in check.warnings)


def _as_json(file: str, report: Report, documents: Iterable[Document]) -> str:
    from citewire.evidence.proof import prove_all  # noqa: PLC0415  # as above

    checks = [
        {**to_builtins(check), "proof": proof}
        for check, proof in zip(report.checks, prove_all(report.checks, documents), strict=True)
    ]
    told = {"answer": file, "counts": report.counts, "checks": checks, "uncited": report.uncited_sentences}
    return pretty(told) + "\n"


async def _verify_answers(
    answers: list[tuple[str, Answer]], sources: list[str]
) -> tuple[list[tuple[str, Report]], list[Document]]:
    """Return the reports, and the documents that could be read."""
    from rich.console import Console  # noqa: PLC0415  # a tenth of a second
    from rich.progress import Progress  # noqa: PLC0415

    from citewire.documents import Cache  # noqa: PLC0415  # they bring numpy along
    from citewire.verification.engine import Engine  # noqa: PLC0415
    from citewire.verification.report import list_quote_checks, make_report  # noqa: PLC0415
    from citewire.verification.verifier import check_in_order  # noqa: PLC0415

    asked = [list_quote_checks(answer) for _, answer in answers]
    checks: list[CheckResult] = []
    with Progress(console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty()) as bars:
        async with Engine(sources, cache=Cache(), deadline=None) as engine:
            await _read_sources(engine, bars)
            bar = bars.add_task("checking quotes", total=sum(map(len, asked)))
            async for checked in check_in_order(engine, (question for each in asked for question in each)):
                checks.append(checked)
                bars.advance(bar)
            found = {check.sha256 for check in checks}
            documents = [
                engine.get_document(reading, boxes=reading.sha256 in found)
                for reading in engine.shared_sources
            ]
    each = iter(checks)
    reports = [
        (file, make_report(answer, list(islice(each, len(questions)))))
        for (file, answer), questions in zip(answers, asked, strict=True)
    ]
    return reports, [document for document in documents if document]


async def _read_sources(engine: Engine, bars: Progress | None = None) -> None:
    """Read all sources, and print the problems of each."""
    bar = bars.add_task("reading sources", total=len(engine.shared_sources)) if bars else None
    async for reading in engine.iter_readings():
        if bars and bar is not None:
            bars.advance(bar)
        if reading.problem:
            say(f"left out: {reading.name}: {reading.problem.message} [{reading.problem.code}]")
        for note in reading.notes:
            say(f"note: {reading.name}: {note.path}: {note.message} [{note.code}]")
