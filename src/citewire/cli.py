"""The command line: arguments in, text out; how things are done is known elsewhere.

Exit codes: 0 done, 1 something was lost under `--strict` or rejected under `--check`, 2 the input or the
arguments cannot be used.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext
from enum import StrEnum
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, cast, get_args

import typer
from msgspec import to_builtins
from typer.core import TyperGroup

import citewire
from citewire.codec import decode, encode, pretty
from citewire.dialects import stream_dialects
from citewire.errors import CitewireError, OutputError
from citewire.model import Answer, Loss, Problem, Status
from citewire.rendering import FORMATS
from citewire.text import Unit, for_log

if TYPE_CHECKING:
    from citewire.documents import Document
    from citewire.verification.library import Checked, Library
    from citewire.verification.report import Report

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
        with nullcontext(sys.stdin.buffer) if file == "-" else Path(file).open("rb") as log:
            while line := log.readline(MAX_FRAME + 1):
                yield line
    except OSError as exc:
        _fail(f"{file}: {exc.strerror or exc}")


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
            help='JSON lines `{"id", "quote", "source"?, "page"?}`; `-` reads standard input.',
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
    from citewire.verification.library import Library  # noqa: PLC0415  # brings numpy along

    if not sources:
        _fail("name a source with --sources")
    library = Library(_documents(sources))
    if not library.held:
        _fail("none of the sources can be read")
    for line in _lines(file):
        if line.strip():
            _write_out(encode(_check_line(library, line)).decode() + "\n")


class _ReportFormat(StrEnum):
    text = "text"
    json = "json"


@app.command(
    epilog="""**Examples**

`citewire verify answer.json --sources report.pdf`

`citewire verify answers/*.json --sources docs/ --format json --fail-on altered,missed`"""
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
    from citewire.verification.library import Library  # noqa: PLC0415  # brings numpy along
    from citewire.verification.report import verify_answer  # noqa: PLC0415

    unwanted = {status.strip() for status in fail_on.split(",") if status.strip()}
    if unknown := unwanted - set(get_args(Status)):
        _fail(f"no status is called {min(unknown)}; there are {', '.join(get_args(Status))}")
    if not sources:
        _fail("name a source with --sources")
    library = Library(_documents(sources))
    reports = [
        (file, verify_answer(answer, library)) for file in files or ["-"] for answer in _answers(file, source)
    ]
    for file, report in reports:
        _write_out(_as_text(file, report) if form is _ReportFormat.text else _as_json(file, report))
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
        texts = (report.answer.parts[span.part].text[span.start : span.end] for span in report.uncited)
        lines += [f"    {for_log(text, 200)}" for text in texts]
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


def _as_json(file: str, report: Report) -> str:
    uncited = [
        {"text": report.answer.parts[span.part].text[span.start : span.end], **to_builtins(span)}
        for span in report.uncited
    ]
    return (
        pretty({"answer": file, "counts": report.counts, "checks": report.checks, "uncited": uncited}) + "\n"
    )


def _documents(sources: list[str]) -> Iterator[Document]:
    """The documents that can be read; what cannot is said."""
    from citewire.documents import Cache, load  # noqa: PLC0415  # as above

    cache = Cache()
    for source in sources:
        folder = Path(source)
        files = sorted(path for path in folder.rglob("*") if path.is_file()) if folder.is_dir() else [source]
        for each in files:
            try:
                document = load(each, cache=cache)
            except CitewireError as exc:
                _say(f"left out: {each}: {exc.message} [{exc.code}]")
            else:
                for problem in document.problems:
                    _say(f"note: {each}: {problem.path}: {problem.message} [{problem.code}]")
                yield document


def _check_line(library: Library, line: bytes) -> Checked:
    from citewire.verification.library import Checked  # noqa: PLC0415  # as above

    try:
        asked = decode(line)
    except CitewireError as exc:
        return Checked(None, "skipped", f"not a line of JSON: {exc.message}")
    if not isinstance(asked, dict) or not isinstance(
        quote := cast("dict[str, Any]", asked).get("quote"), str
    ):
        return Checked(None, "skipped", "a line has an id and a quote")
    fields = cast("dict[str, Any]", asked)
    name, source, page = (fields.get(key) for key in ("id", "source", "page"))
    pages = (page,) if isinstance(page, int) else ()
    return library.check(
        quote, source if isinstance(source, str) else None, pages, None if name is None else str(name)
    )


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
