"""`citewire worker`, which checks quotes for servers that share a database."""

from __future__ import annotations

import asyncio
import os
import stat
import tempfile
import time
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Annotated

import typer

from citewire.cli.output import fail
from citewire.cli.serve import load_settings
from citewire.documents.scratch import remove_abandoned
from citewire.errors import CitewireError

__all__ = ["app"]

app = typer.Typer(rich_markup_mode="markdown")

_PREFIX = "citewire-worker-"
# Seconds that a worker may take to lock its folder.
_STARTING = 60.0


@app.command(
    epilog="""**Examples**

`citewire worker --store postgresql://citewire@db.example.com/citewire`

`CITEWIRE_STORE=postgresql://citewire:secret@db.example.com/citewire citewire worker --concurrency 8`"""
)
def worker(
    store: Annotated[
        str | None,
        typer.Option(metavar="DSN", help="The database of the servers; else where `citewire serve` looks."),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="A folder for copies, of this worker alone; else a temporary one."),
    ] = None,
    concurrency: Annotated[
        int, typer.Option(min=1, max=64, metavar="NUMBER", help="Jobs at a time, each of up to 32 quotes.")
    ] = 4,
    config: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The TOML file; ./citewire.toml where there is one.")
    ] = None,
) -> None:
    """Check quotes for servers with `--verify-jobs`, in as many workers as you start.

    Of the settings of `citewire serve` it takes `store`, `workers`, `readers`, `worker_memory`, `log_level`
    and `log_format`, from the environment or the file.
    """
    try:
        settings = load_settings(config, {"store": store})
        if settings.dsn is None:
            fail("a worker needs a database: --store postgresql://USER@HOST/NAME")
        try:
            from citewire.server.jobs.worker import run_worker  # noqa: PLC0415  # needs the extra `postgres`
        except ImportError:
            fail("a worker needs `pip install 'citewire[postgres]'`")
        from citewire.server.ops import logs  # noqa: PLC0415  # a tenth of a second, which `--help` need not

        logs.configure(settings.log_level, settings.log_format)
        with _temporary() if data is None else nullcontext(data) as folder:
            asyncio.run(run_worker(settings, settings.dsn, Path(folder), concurrency))
    except CitewireError as exc:
        fail(exc.explanation)


def _temporary() -> tempfile.TemporaryDirectory[str]:
    """Create a folder for the worker's lifetime, and remove those of killed workers."""
    for left in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with suppress(OSError):
            info, lock = left.lstat(), (left / "lock").lstat()
            # A worker that has just started may be about to lock it.
            is_old = lock.st_mtime < time.time() - _STARTING
            if stat.S_ISDIR(info.st_mode) and info.st_uid == os.geteuid() and is_old:
                remove_abandoned(left)
    return tempfile.TemporaryDirectory(prefix=_PREFIX)
