"""`citewire serve`: the process around the server, from keys and port to a clean shutdown."""

from __future__ import annotations

import asyncio
import gc
import logging
import math
import os
import resource
import shlex
import signal
import socket
import sys
from collections.abc import Awaitable, Callable, Generator
from contextlib import aclosing, contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import uvicorn

from citewire.server.access.keys import Keyring, check_binding
from citewire.server.access.origins import is_loopback
from citewire.server.access.sign_in import ADDRESS, LINK_SECONDS
from citewire.server.app import Server, open_server
from citewire.server.ops import logs
from citewire.server.ops.browser import has_browser, open_browser
from citewire.server.ops.connections import make_http_protocol, make_websocket_protocol
from citewire.server.ops.settings import SettingError, Settings
from citewire.server.sources.catalog import Catalog
from citewire.server.storage.backend import open_configured_vault
from citewire.server.storage.data_folder import keep_private, restrict_new_files
from citewire.text import one_line

__all__ = ["run", "serve", "uvicorn_config"]

_log = logging.getLogger("citewire.server")
_BACKLOG = 2048
# Objects allocated before the youngest garbage collection runs.
_YOUNG = 10_000
# Seconds for which the event loop may hold the GIL against the thread that writes the log, which needs it for
# every row: at Python's default of 5 ms, a hundred rows take half a second.
_SWITCH = 0.0005
# Most bytes of a WebSocket frame from a client: eight times the limit of one message.
_FRAME = 512 << 10
# Open files in addition to the connections of clients and to the agent.
_FILES = 256
# Seconds in which the browser that the server opens has to use its link.
_OPENING = 120


def run(settings: Settings, questions: tuple[str, ...] = ()) -> None:
    """Serve until the process is told to end. Raises `CitewireError` if it cannot start."""
    logs.configure(settings.log_level, settings.log_format)
    factory = uvicorn.Config("citewire", log_config=None).get_loop_factory()
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(serve(settings, questions))


async def serve(settings: Settings, questions: tuple[str, ...] = ()) -> None:
    """Like `run`, within a running event loop."""
    restrict_new_files()
    for folder in {Path(settings.data), *([] if settings.dsn else [settings.store_folder])}:
        keep_private(folder)
    keyring = Keyring.from_vault(await open_configured_vault(settings))
    check_binding(settings.host, keyring)
    _raise_limit(settings)
    with _bound(settings) as listening:
        async with open_server(settings, keyring, listening.getsockname()[1], questions) as server:
            # Only now: if the server failed to start, the key would be created but never shown.
            made = keyring.create_development_key() if is_loopback(settings.host) else None
            with _address_file(server):
                _print_banner(server, made, questions)
                _tune()
                await _serve_until_told(server, listening)


async def _serve_until_told(server: Server, listening: socket.socket) -> None:
    """Serve requests until the process is told to end."""
    tasks = [asyncio.create_task(_tell_progress(server.catalog))]
    settings = server.settings
    if settings.open_browser and has_browser(os.environ, is_terminal=sys.stdout.isatty()):
        link = server.sign_in_link(seconds=_OPENING)
        tasks.append(asyncio.create_task(open_browser(link, Path(settings.data))))
    config = uvicorn_config(
        server, backlog=_BACKLOG, timeout_graceful_shutdown=math.ceil(settings.shutdown_timeout)
    )
    try:
        await _Uvicorn(config, server.drain).serve([listening])
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def uvicorn_config(server: Server, **more: Any) -> uvicorn.Config:
    """Return the uvicorn configuration for our app."""
    return uvicorn.Config(
        server.app,
        http=make_http_protocol(server.settings),
        ws=make_websocket_protocol(server.settings),
        log_config=None,
        access_log=False,
        lifespan="off",
        ws_max_size=_FRAME,
        # Ably's clients treat a ping as a sign of life.
        ws_ping_interval=10,
        server_header=False,
        # By default uvicorn trusts proxy headers from 127.0.0.1. `TrustedProxies` decides that instead.
        proxy_headers=False,
        **more,
    )


@contextmanager
def _address_file(server: Server) -> Generator[None]:
    """Write the address to the data folder while the server runs, for `citewire keys link`."""
    file = Path(server.settings.data) / ADDRESS
    # An existing file may be a link, or belong to another user: never write to it.
    file.unlink(missing_ok=True)
    handle = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "w", encoding="utf-8") as written:
        written.write(f"{server.address}\n")
    try:
        yield
    finally:
        file.unlink(missing_ok=True)


class _Uvicorn(uvicorn.Server):
    """Ends open streams before it waits for their connections."""

    def __init__(self, config: uvicorn.Config, drain: Callable[[], Awaitable[None]]) -> None:
        super().__init__(config)
        self._drain = drain

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        # Uvicorn would raise the signal again when done, before our own parts are closed.
        del frame
        self.force_exit = self.should_exit and sig == signal.SIGINT
        self.should_exit = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await self._drain()
        await super().shutdown(sockets)


def _bound(settings: Settings) -> socket.socket:
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    listening = socket.socket(family)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((settings.host, settings.port))
        # Listen now: clients may connect as soon as the address is shown, and a second server fails here.
        listening.listen(_BACKLOG)
    except OSError as exc:
        listening.close()
        raise SettingError(f"cannot listen on {settings.host} port {settings.port}: {exc.strerror}") from exc
    return listening


def _tune() -> None:
    """Exclude existing objects from garbage collection: each full collection would pause every stream."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(_YOUNG)
    sys.setswitchinterval(_SWITCH)


def _raise_limit(settings: Settings) -> None:
    """Raise the limit of open files for the allowed connections, as far as the system permits."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 2 * settings.max_connections + _FILES
    if soft < wanted:
        most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
        if most < wanted:
            _log.warning("%d open files are too few for %d connections", most, settings.max_connections)


def _print_banner(server: Server, key: str | None, questions: tuple[str, ...]) -> None:
    """Print the address, a new key and a sign-in link."""
    lines = [f"citewire is at {server.address}"]
    if key is not None:
        lines += ["", "A key for development, which is not shown again:", f"  {key}"]
    lines += ["", *_way_in(server)]
    if questions:
        lines += ["", "Try:", *(f"  {question}" for question in questions)]
    lines += ["", "Stop it with Ctrl-C.", ""]
    _write("\n".join(lines))


def _way_in(server: Server) -> list[str]:
    """Return how to open the pages. Omits the link if others can reach the server and read its output."""
    settings = server.settings
    again = f"citewire keys link --data {shlex.quote(settings.data)}"
    if not (sys.stdout.isatty() or (is_loopback(settings.host) and settings.public_url is None)):
        return [f"To open its pages in a browser: {again}"]
    return [
        f"Open {server.sign_in_link()} in a browser.",
        f"This link works once, within {LINK_SECONDS // 60} minutes. For another one: {again}",
    ]


async def _tell_progress(catalog: Catalog) -> None:
    """Print the progress of reading the sources; without a terminal, only the result."""
    reading, total = catalog.status()
    if not total:
        return
    is_looking = sys.stdout.isatty()
    async with aclosing(catalog.changes()) as changes:
        async for _ in changes:
            reading, total = catalog.status()
            if is_looking and reading:
                _write(f"\rReading: {total - reading} of {total} sources ")
            if not reading:
                break
    failed = [record for record in catalog.records() if record.state == "failed"]
    _write(f"{chr(13) if is_looking else ''}Read: {total - len(failed)} of {total} sources         \n")
    for record in failed:
        _write(f"  not {one_line(record.name, 80)}: {one_line(record.reason, 200)}\n")


def _write(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()
