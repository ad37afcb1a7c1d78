"""The real `@ag-ui/client`, in Node, for tests that compare us with it."""

from __future__ import annotations

import json
import os
import select
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from typing import IO, Any, Self, TypedDict

from support.cases import ROOT, need

NODE = ROOT / "tests/node"
# Seconds without a byte in or out: the client takes milliseconds for a stream.
DEADLINE = 30.0
# Streams in flight: enough that neither side waits for the other.
WINDOW = 16


class Answer(TypedDict):
    """What client.mjs says about one stream."""

    id: int
    outcome: str  # "completed" or "failed"
    error: str | None
    messages: list[dict[str, Any]]
    state: Any
    pendingInterrupts: list[dict[str, Any]]
    events: list[dict[str, Any]]  # as delivered: stripped, chunks expanded
    warnings: list[str]


def need_node() -> None:
    """Go on when the real client can be run, else skip."""
    need("node", shutil.which("node") is not None, "install Node.js 20+, then npm ci --prefix tests/node")
    need("@ag-ui/client", (NODE / "node_modules/@ag-ui/client").is_dir(), "npm ci --prefix tests/node")


class RealClient:
    """A Node process with the real client in it, a fresh agent for each stream.

    It starts with the first stream, so that where Node is missing the skip is the test's own (see
    `cases.need_cases`) also when a fixture holds the client.
    """

    _node: subprocess.Popen[bytes] | None = None
    _received: bytes = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        node, self._node, self._received = self._node, None, b""
        if node is None:
            return
        stdin, stdout = _pipes(node)
        stdin.close()
        try:
            node.wait(timeout=5)
        except subprocess.TimeoutExpired:
            node.kill()
            node.wait(timeout=5)
        finally:
            stdout.close()

    def run(self, stream: Sequence[Any], messages: Sequence[Any] | None = None, state: Any = None) -> Answer:
        """What the client makes of the raw events in `stream`. To the client, a null state is none."""
        return self.run_many([{"stream": stream, "messages": messages, "state": state}])[0]

    def run_at(self, url: str, version: str = "1.0.0", **given: Any) -> Answer:
        """What the client of this version makes of a run of the agent at `url`."""
        return self.run_many([{"url": url, "version": version, **given}])[0]

    def run_many(self, requests: Iterable[dict[str, Any]]) -> list[Answer]:
        """The answers to many `{"stream" or "url", "messages"?, "state"?, …}`, in their order.

        Raises TimeoutError when the process is silent for too long, ConnectionError when it is gone; it is
        ended then, and the next call starts another.
        """
        lines = [_line(number, request) for number, request in enumerate(requests)]
        self._node = self._node or _start()
        try:
            answers = self._exchange(*_pipes(self._node), lines)
        except BaseException:
            # Answers still to come would be taken for those of the next call.
            self._node.kill()
            self.__exit__()
            raise
        assert [answer["id"] for answer in answers] == list(range(len(lines)))
        return answers

    def _exchange(self, stdin: IO[bytes], stdout: IO[bytes], lines: list[bytes]) -> list[Answer]:
        """Write and read as either is possible: a process whose answers nobody takes stops reading."""
        answers: list[Answer] = []
        sent, unsent = 0, b""
        while len(answers) < len(lines):
            if not unsent and sent < min(len(lines), len(answers) + WINDOW):
                sent, unsent = sent + 1, lines[sent]
            readable, writable, _ = select.select([stdout], [stdin] if unsent else [], [], DEADLINE)
            if writable:
                unsent = unsent[os.write(stdin.fileno(), unsent) :]
            if readable:
                answers += self._read(stdout)
            if not (readable or writable):
                raise TimeoutError(f"no answer from node within {DEADLINE} s")
        return answers

    def _read(self, stdout: IO[bytes]) -> list[Answer]:
        """The answers that are complete by now."""
        data = os.read(stdout.fileno(), 1 << 20)
        if not data:
            raise ConnectionError("node ended early: see its standard error")
        *lines, self._received = (self._received + data).split(b"\n")
        return [json.loads(line) for line in lines]


def _start() -> subprocess.Popen[bytes]:
    need_node()
    node = subprocess.Popen(
        ["node", NODE / "client.mjs"], bufsize=0, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    os.set_blocking(_pipes(node)[0].fileno(), False)
    return node


def _pipes(node: subprocess.Popen[bytes]) -> tuple[IO[bytes], IO[bytes]]:
    assert node.stdin
    assert node.stdout
    return node.stdin, node.stdout


def _line(number: int, request: dict[str, Any]) -> bytes:
    given = {key: value for key, value in request.items() if value is not None}
    return json.dumps(given | {"id": number}, allow_nan=False).encode("ascii") + b"\n"
