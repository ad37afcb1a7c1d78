"""The input of the commands: files, standard input, and the option that names a dialect."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from io import BufferedReader
from pathlib import Path
from typing import Annotated, BinaryIO

import typer

from citewire.cli.output import fail

__all__ = ["DialectOption", "read_bytes", "read_lines"]

DialectOption = Annotated[
    str | None, typer.Option("--from", metavar="DIALECT", help="What FILE speaks; detected when not given.")
]


def read_bytes(file: str) -> bytes:
    """Read the whole file; `-` is standard input."""
    try:
        return sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
    except OSError as exc:
        fail(f"{file}: {exc.strerror or exc}")


def read_lines(file: str) -> Iterator[bytes]:
    """Yield the lines of a log as they arrive, in pieces if they are longer than any event."""
    from citewire.agui.sse import MAX_FRAME  # noqa: PLC0415  # `--help` and `convert` do not need it

    try:
        with nullcontext(_stdin()) if file == "-" else Path(file).open("rb") as log:
            while line := log.readline(MAX_FRAME + 1):
                yield line
    except OSError as exc:
        fail(f"{file}: {exc.strerror or exc}")


def _stdin() -> BinaryIO:
    """Open standard input with a separate reader: Python cannot exit while a thread blocks in the usual."""
    usual = sys.stdin.buffer
    return os.fdopen(os.dup(usual.fileno()), "rb") if isinstance(usual, BufferedReader) else usual
