"""A real browser, spoken to over the pipe of its DevTools protocol, which needs no driver and no port."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from support.cases import need

_NAMES = ("chromium", "chromium-browser", "google-chrome")
_OPTIONS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
    "--disable-background-networking", "--remote-debugging-pipe",
)  # fmt: skip
# The browser reads commands from 3 and answers on 4.
_LAUNCH = "import os, sys; _, a, b, *c = sys.argv; os.dup2(int(a), 3); os.dup2(int(b), 4); os.execv(c[0], c)"


class Tab:
    """A page in the browser. `events` are all that it told of so far."""

    def __init__(self, to: int, out: int) -> None:
        self._to, self._out = to, out
        self._session: str | None = None
        self._number = 0
        self._unread = b""
        self.events: list[dict[str, Any]] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **params: Any) -> Any:
        """What a command of the protocol answers."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while (came := self._next()).get("id") != self._number:
            self.events.append(came)
        assert "error" not in came, came
        return came["result"]

    def open(self, url: str) -> None:
        """Go there, and wait until everything on it is loaded."""
        self.events.clear()
        self.call("Page.navigate", url=url)
        while not self.told("Page.loadEventFired"):
            self.events.append(self._next())

    def told(self, method: str) -> list[Any]:
        return [event["params"] for event in self.events if event.get("method") == method]

    def evaluate(self, expression: str) -> Any:
        """The value of an expression in the page, or of its promise."""
        done = self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in done, done
        return done["result"].get("value")

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._unread:
            more = os.read(self._out, 1 << 20)
            assert more, "the browser is gone"
            self._unread += more
        message, _, self._unread = self._unread.partition(b"\0")
        return json.loads(message)


def _pipe() -> tuple[int, int]:
    """A pipe whose ends are not 3 or 4."""
    ends = os.pipe()
    moved = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in ends]
    for end in ends:
        os.close(end)
    return moved[0], moved[1]


@contextmanager
def chromium(profile: Path) -> Generator[Tab]:
    """A browser with a tab of its own, or a skip."""
    program = next(filter(None, map(shutil.which, _NAMES)), None)
    need("Chromium", program is not None, "install the package chromium")
    (browser_in, to), (out, browser_out) = _pipe(), _pipe()
    child = subprocess.Popen(
        [sys.executable, "-c", _LAUNCH, str(browser_in), str(browser_out), str(program), *_OPTIONS,
         f"--user-data-dir={profile}"],
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        pass_fds=(browser_in, browser_out), start_new_session=True,
    )  # fmt: skip
    os.close(browser_in)
    os.close(browser_out)
    try:
        yield Tab(to, out)
    finally:
        os.killpg(child.pid, signal.SIGKILL)
        child.wait()
        os.close(to)
        os.close(out)
