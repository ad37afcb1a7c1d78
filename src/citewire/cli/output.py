"""What the commands say: the result on standard output, every remark on one line of standard error."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable
from typing import Any, NoReturn

import typer
from msgspec import to_builtins

from citewire.codec import pretty
from citewire.errors import OutputError
from citewire.model import Problem
from citewire.text import one_line

__all__ = ["fail", "pretty_with_escapes", "report_problems", "say", "write_bytes", "write_out"]


def write_out(text: str) -> None:
    """Text as UTF-8 whatever the locale says; what has no UTF-8 form is shown as an escape."""
    write_bytes(text.encode("utf-8", "backslashreplace"))


def write_bytes(data: bytes) -> None:
    """Bytes to standard output, at once."""
    try:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        # Whoever read us has had enough; Python would complain once more when it closes the pipe.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(0) from None
    except OSError as exc:
        fail(f"standard output: {exc.strerror or exc}")


def pretty_with_escapes(value: Any) -> str:
    """JSON for people; streamed text may hold half of a surrogate pair, which only an escape can say."""
    try:
        return pretty(value)
    except OutputError:
        return json.dumps(to_builtins(value), indent=2)


def report_problems(problems: Iterable[Problem]) -> None:
    """Say what was left out of an answer."""
    for problem in problems:
        say(f"left out: {problem.path}: {problem.message} [{problem.code}]")


def say(line: str) -> None:
    """A remark on standard error, on one line and harmless whatever is in it."""
    typer.echo(one_line(line, 2000), err=True)


def fail(message: str) -> NoReturn:
    """End with what is wrong with the input or the arguments."""
    say(f"citewire: {message}")
    raise typer.Exit(2)
