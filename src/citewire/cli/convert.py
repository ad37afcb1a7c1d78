"""`citewire convert` and `citewire render`: write a payload in another dialect, or for people."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

import citewire
from citewire.cli.input import DialectOption, read_bytes
from citewire.cli.output import fail, report_problems, say, write_out
from citewire.codec import pretty
from citewire.dialects import stream_dialects
from citewire.errors import CitewireError
from citewire.model import Answer, Loss
from citewire.rendering import FORMATS
from citewire.text import Unit, one_line

__all__ = ["app"]

app = typer.Typer(rich_markup_mode="markdown")

# How many ids a line about losses lists before it only counts them.
_NAMED = 4


class _UnitName(StrEnum):
    codepoints = "codepoints"
    utf16 = "utf16"
    utf8 = "utf8"


_File = Annotated[str, typer.Argument(metavar="FILE", help="The payload; `-` reads standard input.")]
_UnitOption = Annotated[
    _UnitName | None, typer.Option("--unit", help="What the payload's offsets count, if not the usual unit.")
]
_TextOption = Annotated[
    Path | None, typer.Option("--text", metavar="FILE", help="The answer's text, for payloads without it.")
]


@app.command(
    epilog="""**Examples**

`citewire convert response.json --to salesforce`

`citewire convert events.json --from openai.responses --to ngaf --strict`

`curl ... | citewire convert - --to markdown`

`citewire convert --list`"""
)
def convert(
    file: _File = "-",
    source: DialectOption = None,
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
        fail("name a dialect with --to, or see --list")
    answer = _read(file, source, unit, text)
    try:
        written = citewire.write(answer, target)
        shown = written.payload if isinstance(written.payload, str) else pretty(written.payload) + "\n"
    except CitewireError as exc:
        fail(exc.explanation)
    write_out(shown)
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
    source: DialectOption = None,
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
        fail(exc.explanation)
    write_out(rendered.rstrip("\n") + "\n")


def _list_dialects() -> None:
    dialects = citewire.dialects()
    width = max(map(len, dialects))
    for name, dialect in dialects.items():
        streamed = "  (streams)" if name in stream_dialects() else ""
        typer.echo(f"{name:{width}}  {dialect.UPSTREAM}{streamed}")


def _read(file: str, source: str | None, unit: _UnitName | None, text: Path | None) -> Answer:
    """Read the first answer of a file; report its problems, and how many more answers there are."""
    data = read_bytes(file)
    known = None if text is None else read_bytes(str(text)).decode("utf-8", "replace")
    counted: Unit | None = None if unit is None else unit.value
    try:
        answers = citewire.read_all(data, source, text=known, unit=counted)
    except CitewireError as exc:
        fail(exc.explanation)
    answer = next(iter(answers), None)
    if answer is None:
        fail("there is no answer in this payload")
    if len(answers) > 1:
        say(f"note: the first of {len(answers)} answers in this payload")
    report_problems(answer.problems)
    return answer


def _report_losses(losses: Iterable[Loss]) -> None:
    """Print one line for each kind of loss, however many citations it affects."""
    grouped: dict[tuple[str, str], list[str]] = {}
    for loss in losses:
        reason = _SELF_EVIDENT.get(loss.field, loss.reason)
        grouped.setdefault((loss.field, reason), []).append(loss.citation or loss.source or "")
    for (field, reason), ids in grouped.items():
        say(f"lost: {field}{_format_ids(ids)}: {reason}")


# Losses whose reason differs for each citation only in the new name.
_SELF_EVIDENT = {
    "id": "will read under another name",
    "source.id": "will read under another name",
    "ordinal": "numbered anew",
}


def _format_ids(ids: list[str]) -> str:
    named = [one_line(name, 40) for name in ids if name]
    if not named:
        return ""
    if len(named) <= _NAMED:
        return f" of {', '.join(named)}"
    return f" of {len(named)} ({', '.join(named[:_NAMED])}, …)"
