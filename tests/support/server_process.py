"""`citewire serve` in a process of its own, as people run it."""

from __future__ import annotations

import json
import os
import re
import resource
import select
import signal
import subprocess
import sys
import time
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Self

import httpx2

from citewire.agui.sse import SseParser
from citewire.server.access.keys import Keyring
from citewire.server.access.sign_in import sign_in_link

SCRIPT = Path(sys.executable).with_name("citewire")
# Seconds: what takes this long hangs.
DEADLINE = 30.0

Json = dict[str, Any]
Event = tuple[str | None, Json]


def command(*arguments: str | Path, script: Path = SCRIPT) -> list[str]:
    """How the server is started."""
    return [str(script), "serve", *map(str, arguments)]


def environment(**more: str) -> dict[str, str]:
    """The environment without settings of whoever runs the tests."""
    return {name: value for name, value in os.environ.items() if not name.startswith("CITEWIRE_")} | more


class Serving:
    """A server over `folder`, while the block lasts. It can be ended and started again, at the same address.

    No process that it starts may be left, however it ends.
    """

    def __init__(self, folder: Path, *arguments: str | Path, script: Path = SCRIPT, **env: str) -> None:
        self.folder, self.port, self.key, self.said = folder, 0, "", ""
        self._arguments, self._script, self._env = arguments, script, env
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """Where it is."""
        return f"http://127.0.0.1:{self.port}"

    def sign_in_link(self) -> str:
        """A link that signs a browser in, as `citewire keys link` makes it."""
        keyring = Keyring(self.folder)
        return sign_in_link(keyring, self.url, keyring.widest_key())

    @property
    def pid(self) -> int:
        """The process of the server."""
        assert self._process
        return self._process.pid

    @property
    def headers(self) -> dict[str, str]:
        """Who may do everything."""
        return {"authorization": f"Bearer {self.key}"}

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        if self._process:
            self.kill()

    def start(self) -> None:
        """Start it, and wait until it says where it is."""
        self.folder.mkdir(exist_ok=True)
        given = command(
            "--data", self.folder, "--port", str(self.port), *self._arguments, script=self._script
        )
        env = environment(**self._env)
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                given, cwd=self.folder, env=env, stdout=subprocess.PIPE, stderr=log
            )
        said = self.said = _until(self._process, "Ctrl-C")
        found = re.search(r" at http://127\.0\.0\.1:(\d+)$", said, re.MULTILINE)
        assert found, f"{said}\n{self.log.read_text()}"
        self.port = int(found[1])
        if key := re.search(r"^  (\S+\.\S+:\S+)$", said, re.MULTILINE):
            self.key = key[1]

    @property
    def log(self) -> Path:
        """What it said on standard error."""
        return self.folder.with_suffix(".log")

    def stop(self) -> None:
        """End it as an operator does, and see that it ends well."""
        assert self._end(signal.SIGTERM) == 0, self.log.read_text()

    def kill(self) -> None:
        """End it as a crash does."""
        self._end(signal.SIGKILL)

    def _end(self, how: signal.Signals) -> int:
        process, self._process = self._process, None
        assert process
        assert process.stdout
        with _children(process.pid) as children, process.stdout:
            process.send_signal(how)
            code = process.wait(DEADLINE)
            for child in children:
                assert select.select([child], [], [], DEADLINE)[0], "it left a process behind"
        return code

    @contextmanager
    def full_disk(self) -> Generator[None]:
        """While this lasts, no file of its takes another byte."""
        assert self._process
        pid, what = self._process.pid, resource.RLIMIT_FSIZE
        before = resource.prlimit(pid, what)
        resource.prlimit(pid, what, (1, before[1]))
        try:
            yield
        finally:
            resource.prlimit(pid, what, before)

    def client(self, **headers: str) -> httpx2.Client:
        """A client that may do everything, or what the headers let it."""
        return httpx2.Client(
            base_url=self.url, headers={**self.headers, **headers}, timeout=DEADLINE, trust_env=False
        )

    def get(self, path: str, **params: Any) -> Any:
        """What is there, as JSON."""
        with self.client() as client:
            return client.get(path, params=params).raise_for_status().json()

    @contextmanager
    def watch(self, path: str, body: Json | None = None, after: str = "") -> Generator[Iterator[Event]]:
        """The events of a stream as they come, with their ids, from the one `after` on."""
        headers = {"accept": "text/event-stream", "last-event-id": after}
        method = "GET" if body is None else "POST"
        with self.client() as client, client.stream(method, path, headers=headers, json=body) as response:
            if response.status_code != 200:
                response.read()
            assert response.status_code == 200, response.text
            yield _events(response.iter_raw())

    def read_sources(self) -> None:
        """Wait until it has read its sources."""
        states, total = dict[str, str](), 1
        with self.watch("/sources/events") as events:
            while sum(state in ("ready", "failed") for state in states.values()) < total:
                _, said = next(events)
                total = said.get("total", total)
                states |= {each["id"]: each["state"] for each in said.get("sources", [said])}

    def ask(self, thread: str, run: str = "r", text: str = "", **more: Any) -> list[Event]:
        """The events of a whole run."""
        with self.watch("/agui", asked(thread, run, text, **more)) as events:
            return list(events)


def asked(thread: str, run: str = "r", text: str = "", **more: Any) -> Json:
    """What starts a run."""
    message = {"id": f"u-{run}", "role": "user", "content": text}
    return {"threadId": thread, "runId": run, "messages": [message], **more}


def _events(pieces: Iterable[bytes]) -> Iterator[Event]:
    frames = SseParser()
    for piece in pieces:
        for frame in frames.feed(piece):
            if frame.data:
                yield frame.id, json.loads(frame.data)


def _until(process: subprocess.Popen[bytes], words: str) -> str:
    """What it prints, up to a line with these words, or to its end."""
    assert process.stdout
    said, deadline = "", time.monotonic() + DEADLINE
    while words not in said:
        ready = select.select([process.stdout], [], [], max(0.0, deadline - time.monotonic()))[0]
        if not ready or not (piece := os.read(process.stdout.fileno(), 1 << 16)):
            break
        said += piece.decode()
    return said


@contextmanager
def _children(pid: int) -> Generator[list[int]]:
    """Handles of all that a process has started, and what they have: readable once it has ended."""
    handles: list[int] = []
    try:
        for child in descendants(pid):
            try:
                handles.append(os.pidfd_open(child))
            except ProcessLookupError:  # it has ended meanwhile
                continue
        yield handles
    finally:
        for handle in handles:
            os.close(handle)


def descendants(pid: int) -> Iterator[int]:
    """All processes that a process has started, and what they have."""
    for task in Path(f"/proc/{pid}/task").iterdir():
        children: list[str] = []
        with suppress(FileNotFoundError, ProcessLookupError):  # a thread that has ended meanwhile
            children = (task / "children").read_text().split()
        for child in children:
            yield int(child)
            yield from descendants(int(child))
