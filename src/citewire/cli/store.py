"""`citewire store`: copy a server's data to another store."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from citewire.cli.output import fail, say, write_out
from citewire.cli.serve import load_settings
from citewire.errors import CitewireError

__all__ = ["app"]

app = typer.Typer(rich_markup_mode="markdown")
_store = typer.Typer(help="Move what a server keeps.")
app.add_typer(_store, name="store")

# Seconds between two lines of progress.
_EVERY = 5.0


@_store.callback()
def _group() -> None:
    """Move what a server keeps."""


@_store.command(
    epilog="""**Examples**

`citewire store copy .citewire postgresql://citewire@db.example.com/citewire`"""
)
def copy(
    folder: Annotated[Path, typer.Argument(metavar="SQLITE_DIR", help="The folder of the server's log.")],
    dsn: Annotated[str, typer.Argument(metavar="DSN", help="An empty Postgres database.")],
    data: Annotated[
        Path | None, typer.Option(metavar="DIR", help="The data folder, when the log is not in it.")
    ] = None,
) -> None:
    """Copy all that an embedded server keeps into a Postgres database, and read it back.

    The server must have been stopped. All is copied or nothing: after an interruption, start it again.
    """
    try:
        address = load_settings(None, {"store": dsn}).dsn
        if address is None:
            fail("DSN: this is no address of a database: postgresql://USER@HOST/NAME")
        try:
            from citewire.server.storage.postgres_copy import copy_to_postgres as copied  # noqa: PLC0415  # needs the extra `postgres`
        except ImportError:
            fail("a Postgres database needs `pip install 'citewire[postgres]'`")
        done = asyncio.run(copied(folder, data or folder, address, _Progress().report))
    except CitewireError as exc:
        fail(exc.explanation)
    was = "copied" if done.is_new else "there already"
    write_out(f"{was}: {_shown(done.rows)}\nverified: read back as they were, every chain whole\n")
    if done.needs_secret:
        say("note: the keys need the CITEWIRE_SECRET that this server had: no secret is in its folder")


class _Progress:
    """Prints a line of progress from time to time."""

    def __init__(self) -> None:
        self._next = time.monotonic() + _EVERY

    def report(self, done: str, rows: Mapping[str, int]) -> None:
        if (now := time.monotonic()) >= self._next:
            self._next = now + _EVERY
            say(f"{done}: {_shown(rows)}")


def _shown(rows: Mapping[str, int]) -> str:
    names = {
        "channel": "channels", "log": "rows", "slot": "slots", "erased": "dropped channels", "blob": "files",
    }  # fmt: skip
    return ", ".join(f"{rows[table]:,} {name}" for table, name in names.items())
