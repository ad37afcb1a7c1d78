"""The command line: arguments in, text out; how things are done is known elsewhere.

Exit codes: 0 done, 1 something was lost under `--strict` or rejected under `--check`, 2 the input or the
arguments cannot be used.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncGenerator, Iterable, Iterator, Sequence
from contextlib import nullcontext, suppress
from enum import StrEnum
from inspect import Parameter, Signature
from io import BufferedReader
from itertools import islice
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO, NoReturn, cast, get_args

import typer
from msgspec import ValidationError, to_builtins
from msgspec import convert as typed
from msgspec.structs import replace
from typer.core import TyperGroup

import citewire
from citewire.codec import decode, encode, pretty
from citewire.dialects import stream_dialects
from citewire.errors import CitewireError, OutputError
from citewire.model import Answer, Loss, Problem, Status
from citewire.rendering import FORMATS
from citewire.server.settings import Option, Settings, options, read_toml, unknown_names
from citewire.text import Unit, for_log

if TYPE_CHECKING:
    from rich.progress import Progress

    from citewire.documents import Document
    from citewire.extraction import Extraction
    from citewire.verification.engine import Engine
    from citewire.verification.library import Checked
    from citewire.verification.report import Report
    from citewire.verification.verifier import Asked

# Typer keeps its own copy of click to itself and shows only the leaves of its errors.
_UsageError: type[Exception] = typer.BadParameter.__bases__[0]


class _Commands(TyperGroup):
    """Says what is wrong with the arguments in one line, as for everything else: they may be hostile too."""

    def main(self, args: Sequence[str] | None = None, *_: Any, **extra: Any) -> NoReturn:
        arguments = _repeated(sys.argv[1:] if args is None else args) or ["--help"]
        try:
            extra["standalone_mode"] = False
            code = super().main(arguments, **extra)
        except _UsageError as exc:
            _say(f"citewire: {exc.format_message()}")  # type: ignore[attr-defined]
            code = 2
        sys.exit(code or 0)


def _repeated(arguments: Sequence[str]) -> list[str]:
    """`--sources a b` as `--sources a --sources b`, which is all that the library below knows."""
    made: list[str] = []
    many = False
    for at, argument in enumerate(arguments):
        if argument.startswith("-") and argument != "-":
            many = argument == "--sources"
        elif many and arguments[at - 1] != "--sources":
            made.append("--sources")
        made.append(argument)
    return made


app = typer.Typer(
    cls=_Commands,
    help="Trustworthy citations on AI answers.",
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
)

# How many ids a line about losses names before it only counts them.
_NAMED = 4


class _View(StrEnum):
    contract = "contract"
    agui = "agui"


class _UnitName(StrEnum):
    codepoints = "codepoints"
    utf16 = "utf16"
    utf8 = "utf8"


_File = Annotated[str, typer.Argument(metavar="FILE", help="The payload; `-` reads standard input.")]
_From = Annotated[
    str | None, typer.Option("--from", metavar="DIALECT", help="What FILE speaks; detected when not given.")
]
_UnitOption = Annotated[
    _UnitName | None, typer.Option("--unit", help="What the payload's offsets count, if not the usual unit.")
]
_TextOption = Annotated[
    Path | None, typer.Option("--text", metavar="FILE", help="The answer's text, for payloads without it.")
]


@app.callback(invoke_without_command=True)
def _root(version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False) -> None:
    if version:
        typer.echo(citewire.__version__)
        raise typer.Exit


@app.command(
    epilog="""**Examples**

`citewire convert response.json --to salesforce`

`citewire convert events.json --from openai.responses --to ngaf --strict`

`curl ... | citewire convert - --to markdown`

`citewire convert --list`"""
)
def convert(
    file: _File = "-",
    source: _From = None,
    target: Annotated[str | None, typer.Option("--to", metavar="DIALECT", help="What to write.")] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Exit 1 if anything is lost.")] = False,
    unit: _UnitOption = None,
    text: _TextOption = None,
    show_list: Annotated[bool, typer.Option("--list", help="List the dialects.")] = False,
) -> None:
    """Write the citations of a payload in another dialect.

    The payload goes to standard output. What that dialect cannot say goes to standard error, and so does
    what could not be read.
    """
    if show_list:
        _list_dialects()
        return
    if target is None:
        _fail("name a dialect with --to, or see --list")
    answer = _read(file, source, unit, text)
    try:
        written = citewire.write(answer, target)
        shown = written.payload if isinstance(written.payload, str) else pretty(written.payload) + "\n"
    except CitewireError as exc:
        _fail(str(exc))
    _write_out(shown)
    _report_losses(written.losses)
    if strict and (written.losses or answer.problems):
        raise typer.Exit(1)


@app.command(
    epilog="""**Examples**

`citewire render response.json --to terminal`

`citewire render message.json --from salesforce --to html > answer.html`"""
)
def render(
    file: _File = "-",
    source: _From = None,
    target: Annotated[
        str, typer.Option("--to", metavar="FORMAT", help=f"One of {', '.join(FORMATS)}.")
    ] = "text",
    unit: _UnitOption = None,
    text: _TextOption = None,
) -> None:
    """Show the answer with numbered markers and its list of sources."""
    answer = _read(file, source, unit, text)
    try:
        rendered = citewire.render(answer, target)
    except CitewireError as exc:
        _fail(str(exc))
    _write_out(rendered.rstrip("\n") + "\n")


@app.command(
    epilog="""**Examples**

`citewire reduce events.jsonl`

`citewire reduce run.sse --view agui --check`

`curl -N ... | citewire reduce - --at 12`"""
)
def reduce(
    file: Annotated[
        str,
        typer.Argument(
            metavar="EVENTS", help="AG-UI events as JSON lines, SSE or a JSON list; `-` reads standard input."
        ),
    ] = "-",
    view: Annotated[
        _View,
        typer.Option("--view", help="What a citation front end shows, or what the AG-UI client holds."),
    ] = _View.contract,
    check: Annotated[
        bool, typer.Option("--check", help="Exit 1 where the AG-UI client would reject the stream.")
    ] = False,
    at: Annotated[
        int | None, typer.Option("--at", metavar="N", min=0, help="After the first N events only.")
    ] = None,
    seed_args: Annotated[
        bool, typer.Option("--seed-args", help="Take each fragment of tool arguments for the whole.")
    ] = False,
) -> None:
    """Show what a log of AG-UI events comes to.

    The view goes to standard output as JSON; what was wrong on the way is in its `problems`.
    """
    from citewire.agui.sse import records  # noqa: PLC0415  # the other commands do not need it
    from citewire.agui.thread import Thread  # noqa: PLC0415

    clock, failure = _EventClock(), None
    thread = Thread(seed_args=seed_args, clock=clock)
    try:
        for record in islice(records(_lines(file)), at):
            event = _event(record)
            clock.tick(event)
            thread.apply(event)
    except CitewireError as exc:
        failure = exc
        thread.fail(exc)
    shown = thread.contract.to_json() if view is _View.contract else thread.agui.to_json()
    if failure is None or thread.number > 1:  # what came before it is not lost
        _write_out(_pretty_cut(shown) + "\n")
    if failure is not None:
        _fail(str(failure))
    if check and thread.agui.outcome == "failed":
        _say(f"rejected: {thread.agui.error}")
        raise typer.Exit(1)


def _lines(file: str) -> Iterator[bytes]:
    """The lines of a log as they come, in pieces where they are longer than any event."""
    from citewire.agui.sse import MAX_FRAME  # noqa: PLC0415  # as above

    try:
        with nullcontext(_stdin()) if file == "-" else Path(file).open("rb") as log:
            while line := log.readline(MAX_FRAME + 1):
                yield line
    except OSError as exc:
        _fail(f"{file}: {exc.strerror or exc}")


def _stdin() -> BinaryIO:
    """Standard input, by a reader of its own: Python cannot end while a thread waits in the usual one."""
    usual = sys.stdin.buffer
    return os.fdopen(os.dup(usual.fileno()), "rb") if isinstance(usual, BufferedReader) else usual


def _pretty_cut(value: Any) -> str:
    """JSON for people; streamed text may hold half of a surrogate pair, which only an escape can say."""
    try:
        return pretty(value)
    except OutputError:
        return json.dumps(to_builtins(value), indent=2)


class _EventClock:
    """The time as the events tell it: a log is not read at the speed at which it was written."""

    def __init__(self) -> None:
        self._seconds = 0.0

    def tick(self, event: object) -> None:
        stamp = getattr(event, "timestamp", None)
        self._seconds = stamp / 1000 if isinstance(stamp, int) else self._seconds

    def __call__(self) -> float:
        return self._seconds


def _event(record: bytes) -> object:
    """The event, or the bytes that are none: a thread says what is wrong with them."""
    from citewire.agui.events import decode  # noqa: PLC0415  # as above

    try:
        return decode(record)
    except CitewireError:
        return record


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
        _fail("name a source with --sources")
    asyncio.run(_check_each(file, sources))


async def _check_each(file: str, sources: list[str]) -> None:
    from citewire.documents import Cache  # noqa: PLC0415  # they bring numpy along
    from citewire.verification.engine import Engine  # noqa: PLC0415
    from citewire.verification.verifier import in_order  # noqa: PLC0415

    wrong: list[str] = []

    async def asked() -> AsyncGenerator[Asked]:
        async for line in _awaited(_lines(file)):
            if line.strip():
                question, remark = _asked(line)
                wrong.append(remark)
                yield question

    async with Engine(sources, cache=Cache(), deadline=None) as engine:
        await _read_sources(engine)
        if all(reading.problem for reading in engine.known):
            _fail("none of the sources can be read")
        async for checked in in_order(engine, asked()):
            remark = wrong.pop(0)
            shown = replace(checked, status="skipped", reason=remark) if remark else checked
            _write_out(encode(shown).decode() + "\n")


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
    source: _From = None,
    form: Annotated[_ReportFormat, typer.Option("--format", help="How to report.")] = _ReportFormat.text,
    fail_on: Annotated[
        str, typer.Option("--fail-on", metavar="STATUS,…", help="Exit 1 where one of these occurs.")
    ] = "",
) -> None:
    """Check every quote that an answer cites against its sources.

    Says whether the words are there. It does not know whether they support the sentences they are cited for.
    """
    from citewire.verification.page import write_page  # noqa: PLC0415  # they bring numpy along
    from citewire.verification.pictures import originals  # noqa: PLC0415

    unwanted = {status.strip() for status in fail_on.split(",") if status.strip()}
    if unknown := unwanted - set(get_args(Status)):
        _fail(f"no status is called {min(unknown)}; there are {', '.join(get_args(Status))}")
    if not sources:
        _fail("name a source with --sources")
    answers = [(file, answer) for file in files or ["-"] for answer in _answers(file, source)]
    reports, documents = asyncio.run(_verified(answers, sources))
    match form:
        case _ReportFormat.text:
            _write_out("".join(_as_text(file, report) for file, report in reports))
        case _ReportFormat.json:
            _write_out("".join(_as_json(file, report, documents) for file, report in reports))
        case _ReportFormat.html:
            _write_out(write_page(reports, documents, originals(sources)))
    if any(check.status in unwanted for _, report in reports for check in report.checks):
        raise typer.Exit(1)


def _answers(file: str, source: str | None) -> tuple[Answer, ...]:
    try:
        answers = citewire.read_all(_bytes(file), source)
    except CitewireError as exc:
        _fail(f"{file}: {exc}")
    for answer in answers:
        _report_problems(answer.problems)
    return answers


_SYMBOLS = {"verified": "✓", "partial": "~", "altered": "≠", "missed": "✗", "skipped": "-", "pending": "?"}


def _as_text(file: str, report: Report) -> str:
    lines = [f"{for_log(file, 200)}: {len(report.answer.citations)} citations"]
    for check in report.checks:
        lines += _check_lines(check)
    if report.uncited:
        lines.append(f"{len(report.uncited)} sentences without a citation:")
        lines += [f"    {for_log(sentence.text, 200)}" for sentence in report.sentences]
    lines.append(
        ", ".join(f"{count} {status}" for status, count in report.counts.items()) or "nothing to check"
    )
    return "\n".join(lines) + "\n"


def _check_lines(check: Checked) -> Iterator[str]:
    page = f" p. {check.page}" if check.page else ""
    place = f"  {for_log(check.source, 80)}{page}" if check.source else ""
    yield f"{_SYMBOLS[check.status]} {check.status:8} {for_log(check.id, 40)}{place}"
    if check.quote:
        yield f"    “{for_log(check.quote, 300)}”"
    if check.status in ("altered", "partial"):
        yield f"    source: “{for_log(check.found, 300)}”"
    if check.reason:
        yield f"    {for_log(check.reason, 200)}"
    yield from (f"    note: {for_log(warning, 200)}" for warning in check.warnings)


def _as_json(file: str, report: Report, documents: Iterable[Document]) -> str:
    from citewire.verification.proof import prove_all  # noqa: PLC0415  # as above

    checks = [
        {**to_builtins(check), "proof": proof}
        for check, proof in zip(report.checks, prove_all(report.checks, documents), strict=True)
    ]
    told = {"answer": file, "counts": report.counts, "checks": checks, "uncited": report.sentences}
    return pretty(told) + "\n"


async def _verified(
    answers: list[tuple[str, Answer]], sources: list[str]
) -> tuple[list[tuple[str, Report]], list[Document]]:
    """The reports, and the documents that there are."""
    from rich.console import Console  # noqa: PLC0415  # a tenth of a second
    from rich.progress import Progress  # noqa: PLC0415

    from citewire.documents import Cache  # noqa: PLC0415  # they bring numpy along
    from citewire.verification.engine import Engine  # noqa: PLC0415
    from citewire.verification.report import questions, report  # noqa: PLC0415
    from citewire.verification.verifier import in_order  # noqa: PLC0415

    asked = [questions(answer) for _, answer in answers]
    checks: list[Checked] = []
    with Progress(console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty()) as bars:
        async with Engine(sources, cache=Cache(), deadline=None) as engine:
            await _read_sources(engine, bars)
            bar = bars.add_task("checking quotes", total=sum(map(len, asked)))
            async for checked in in_order(engine, (question for each in asked for question in each)):
                checks.append(checked)
                bars.advance(bar)
            found = {check.sha256 for check in checks}
            documents = [engine.document(reading, boxes=reading.sha256 in found) for reading in engine.known]
    each = iter(checks)
    reports = [
        (file, report(answer, list(islice(each, len(questions)))))
        for (file, answer), questions in zip(answers, asked, strict=True)
    ]
    return reports, [document for document in documents if document]


async def _read_sources(engine: Engine, bars: Progress | None = None) -> None:
    """Have all of them read; what is wrong with one is said."""
    bar = bars.add_task("reading sources", total=len(engine.known)) if bars else None
    async for reading in engine.readings():
        if bars and bar is not None:
            bars.advance(bar)
        if reading.problem:
            _say(f"left out: {reading.name}: {reading.problem.message} [{reading.problem.code}]")
        for note in reading.notes:
            _say(f"note: {reading.name}: {note.path}: {note.message} [{note.code}]")


async def _awaited(lines: Iterator[bytes]) -> AsyncGenerator[bytes]:
    """Lines as they come, from a thread: the next may be sent only when this one was answered."""
    loop = asyncio.get_running_loop()
    queue: asyncio.Queue[bytes | typer.Exit | None] = asyncio.Queue(1)

    def put(item: bytes | typer.Exit | None) -> None:
        asyncio.run_coroutine_threadsafe(queue.put(item), loop).result()

    def read() -> None:
        # Nobody may listen any more.
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


def _asked(line: bytes) -> tuple[Asked, str]:
    """The question of a line, and what is wrong with it."""
    from citewire.verification.verifier import Asked, Question  # noqa: PLC0415  # as above

    name = None
    try:
        fields = decode(line)
        name = cast("dict[str, Any]", fields).get("id") if isinstance(fields, dict) else None
        said = typed(fields, Question)
    except CitewireError as exc:
        return Asked(None, ""), f"not a line of JSON: {exc.message}"
    except ValidationError as exc:
        return Asked(None if name is None else str(name), ""), f"not a line with a quote: {exc}"
    return said.asked(None if name is None else str(name)), ""


def serve(config: Path | None, **flags: Any) -> None:
    """Serve verified answers over HTTP.

    What is not given here is looked for in the environment (`CITEWIRE_PORT` for `--port`), and then in a TOML
    file (`port = 8787`).
    """
    file = config or Path("citewire.toml")
    try:
        toml = read_toml(file) if config or file.exists() else {}
        given = {name: value for name, value in flags.items() if value not in (None, [])}
        settings = Settings.load(given, os.environ, toml)
        for name in unknown_names(os.environ):
            _say(f"note: {name} is no setting")
        from citewire.server.serve import run  # noqa: PLC0415  # it brings all the rest along

        run(settings)
    except CitewireError as exc:
        _fail(str(exc))


def _parameter(option: Option) -> Parameter:
    """An option of the command line, as text: that is judged together with what other places say."""
    is_switch = isinstance(option.default, bool)
    kind = bool if is_switch else list[str] if option.many else str
    shown = typer.Option(
        f"{option.flag}/--no-{option.name}" if is_switch else option.flag,
        metavar=None if is_switch else option.kind,
        help=f"{option.help} [default: {option.shown_default}]" if option.shown_default else option.help,
    )
    annotation = Annotated[kind | None, shown]
    return Parameter(option.name, Parameter.KEYWORD_ONLY, default=None, annotation=annotation)


_CONFIG = typer.Option(metavar="FILE", help="The TOML file; ./citewire.toml where there is one.")
# Typer reads it for the options.
serve.__signature__ = Signature(  # type: ignore[attr-defined]
    [
        *(_parameter(option) for option in options()),
        Parameter("config", Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[Path | None, _CONFIG]),
    ]
)
app.command(
    epilog="""**Examples**

`citewire serve --sources docs/`

`citewire serve --agent https://agent.example.com/agui --sources docs/ https://example.com/report.html`

`citewire serve --agent my_agent:app --port 0`"""
)(serve)


@app.command(
    epilog="""**Examples**

`citewire extract answer.txt`

`llm "..." | citewire extract -`"""
)
def extract(
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="What a model wrote; `-` reads standard input.")
    ] = "-",
) -> None:
    """Take the citations out of the text of a model, as JSON.

    `visible_text` is what a reader sees, `problems` what could not be read, with its place in the text.
    """
    found = citewire.extract(_bytes(file).decode("utf-8", "replace"))
    _write_out(_pretty_cut(_shown(found)) + "\n")


def _shown(found: Extraction) -> dict[str, Any]:
    """What was found, without what is only kept to write it back, and without what is not known."""
    shown = found.answer.bare()
    known = {"citations": shown.citations, "sources": shown.sources, "problems": found.problems}
    return {"visible_text": found.visible_text, **_sparse(to_builtins(known))}


def _sparse(value: Any) -> Any:
    if isinstance(value, dict):
        members = cast("dict[str, Any]", value).items()
        return {key: _sparse(member) for key, member in members if member is not None and member != {}}
    return [_sparse(item) for item in cast("list[Any]", value)] if isinstance(value, list) else value


def _list_dialects() -> None:
    dialects = citewire.dialects()
    width = max(map(len, dialects))
    for name, dialect in dialects.items():
        streamed = "  (streams)" if name in stream_dialects() else ""
        typer.echo(f"{name:{width}}  {dialect.UPSTREAM}{streamed}")


def _read(file: str, source: str | None, unit: _UnitName | None, text: Path | None) -> Answer:
    """The first answer of a file; what was left out of it, and how many more there are, is reported."""
    data = _bytes(file)
    known = None if text is None else _bytes(str(text)).decode("utf-8", "replace")
    counted: Unit | None = None if unit is None else unit.value
    try:
        answers = citewire.read_all(data, source, text=known, unit=counted)
    except CitewireError as exc:
        _fail(str(exc))
    answer = next(iter(answers), None)
    if answer is None:
        _fail("there is no answer in this payload")
    if len(answers) > 1:
        _say(f"note: the first of {len(answers)} answers in this payload")
    _report_problems(answer.problems)
    return answer


def _bytes(file: str) -> bytes:
    try:
        return sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
    except OSError as exc:
        _fail(f"{file}: {exc.strerror or exc}")


def _write_out(text: str) -> None:
    """Text as UTF-8 whatever the locale says; what has no UTF-8 form is shown as an escape."""
    try:
        sys.stdout.buffer.write(text.encode("utf-8", "backslashreplace"))
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        # Whoever read us has had enough; Python would complain once more when it closes the pipe.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(0) from None
    except OSError as exc:
        _fail(f"standard output: {exc.strerror or exc}")


def _report_problems(problems: Iterable[Problem]) -> None:
    for problem in problems:
        _say(f"left out: {problem.path}: {problem.message} [{problem.code}]")


def _report_losses(losses: Iterable[Loss]) -> None:
    """One line for each thing that happened, however many citations it happened to."""
    grouped: dict[tuple[str, str], list[str]] = {}
    for loss in losses:
        reason = _SELF_EVIDENT.get(loss.field, loss.reason)
        grouped.setdefault((loss.field, reason), []).append(loss.citation or loss.source or "")
    for (field, reason), ids in grouped.items():
        _say(f"lost: {field}{_of(ids)}: {reason}")


# Losses whose reason differs for each citation only in the new name.
_SELF_EVIDENT = {
    "id": "will read under another name",
    "source.id": "will read under another name",
    "ordinal": "numbered anew",
}


def _of(ids: list[str]) -> str:
    named = [for_log(name, 40) for name in ids if name]
    if not named:
        return ""
    if len(named) <= _NAMED:
        return f" of {', '.join(named)}"
    return f" of {len(named)} ({', '.join(named[:_NAMED])}, …)"


def _say(line: str) -> None:
    typer.echo(for_log(line, 2000), err=True)


def _fail(message: str) -> NoReturn:
    _say(f"citewire: {message}")
    raise typer.Exit(2)


def main(arguments: list[str] | None = None) -> Any:
    """Run the command line."""
    return app(arguments, prog_name="citewire")
