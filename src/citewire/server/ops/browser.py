"""Open the start page in the user's browser when the server is started at a terminal."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from html import escape
from pathlib import Path

__all__ = ["has_browser", "open_browser"]

_log = logging.getLogger("citewire.server")
_FILE = "sign-in.html"
# Seconds that a browser may take to start, and seconds for which the file stays readable.
_START, _READ = 20, 30
_REDIRECT = '<!doctype html><meta charset="utf-8"><meta http-equiv="refresh" content="0; url={}">'


def has_browser(environ: Mapping[str, str], *, is_terminal: bool) -> bool:
    """Whether a person would see a browser: at a terminal, with a display, and not in CI."""
    has_display = sys.platform in ("darwin", "win32") or "DISPLAY" in environ or "WAYLAND_DISPLAY" in environ
    return is_terminal and has_display and not environ.get("CI")


async def open_browser(link: str, folder: Path) -> None:
    """Open a link without exposing it to other users of the machine, not even in the process list.

    The browser opens a file in the data folder, readable only by its owner, that redirects to the link.
    """
    try:
        with _redirect(link, folder) as uri:
            await _launch(uri)
            await asyncio.sleep(_READ)
    except OSError:
        _log.warning("the browser could not be opened")


@contextmanager
def _redirect(link: str, folder: Path) -> Generator[str]:
    """Context manager: a file that redirects to the link, deleted at the end."""
    file = folder.resolve() / _FILE
    file.unlink(missing_ok=True)
    try:
        handle = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "w", encoding="utf-8") as written:
            written.write(_REDIRECT.format(escape(link)))
        yield file.as_uri()
    finally:
        file.unlink(missing_ok=True)


async def _launch(uri: str) -> None:
    """Run Python's `webbrowser` in a separate process and wait for it: a browser may print a lot."""
    quiet = asyncio.subprocess.DEVNULL
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "webbrowser", uri, stdin=quiet, stdout=quiet, stderr=quiet
    )
    try:
        await asyncio.wait_for(process.wait(), _START)
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()
