"""The output of the commands: results on standard output, each message on one line of standard error."""

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
    """Write text as UTF-8, whatever the locale; characters without a UTF-8 form are escaped."""
    write_bytes(text.encode("utf-8", "backslashreplace"))


def write_bytes(data: bytes) -> None:
    """Write bytes to standard output and flush it."""
    try:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        # The reader closed the pipe; Python would complain again when it closes its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(0) from None
    except OSError as exc:
        fail(f"standard output: {exc.strerror or exc}")


def pretty_with_escapes(value: Any) -> str:
    """Format JSON for people; half a surrogate pair, as in streamed text, is escaped."""
    try:
        return pretty(value)
    except OutputError:
        return json.dumps(to_builtins(value), indent=2)


def report_problems(problems: Iterable[Problem]) -> None:
    """Print what was left out of an answer."""
    for problem in problems:
        say(f"left out: {problem.path}: {problem.message} [{problem.code}]")


def say(line: str) -> None:
    """Print a message to standard error, on one line and sanitized."""
    typer.echo(one_line(line, 2000), err=True)


def fail(message: str) -> NoReturn:
    """Print what is wrong with the input or the arguments, and exit with code 2."""
    say(f"citewire: {message}")
    raise typer.Exit(2)
