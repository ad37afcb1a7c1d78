"""examples/cluster: one command, two nodes, a page; and nothing of it is left."""

from __future__ import annotations

import os
import re
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest
from playwright.sync_api import Browser, expect

from support.browser import browser, picture, serious
from support.cases import ROOT
from support.postgres import need_postgres
from support.server_process import descendants, environment

__all__ = ["browser"]

# It starts five processes, and stops some.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
RUN = ROOT / "examples/cluster/run.py"
# Seconds: what takes this long hangs.
DEADLINE = 120


class Cluster(NamedTuple):
    process: subprocess.Popen[str]
    url: str


@contextmanager
def started() -> Generator[Cluster]:
    """The cluster. Its processes and its folder are gone afterwards."""
    need_postgres()
    process = subprocess.Popen(
        [sys.executable, RUN, "0"], env=environment(), stdout=subprocess.PIPE, text=True, cwd="/"
    )
    with process:
        try:
            assert process.stdout
            assert select.select([process.stdout], [], [], DEADLINE)[0], "it does not start"
            found = re.search(r"http://\S+", process.stdout.readline())
            assert found
            yield Cluster(process, found[0])
        finally:
            parts = [*descendants(process.pid)]
            folders = {Path(f"/proc/{part}/cwd").readlink() for part in parts if _is_there(part)}
            handles = [os.pidfd_open(part) for part in parts if _is_there(part)]
            process.send_signal(signal.SIGINT)
            code = process.wait(DEADLINE)
            left = [handle for handle in handles if not select.select([handle], [], [], DEADLINE)[0]]
            for handle in handles:
                os.close(handle)
    assert code == 0
    assert parts
    assert not left
    assert not [folder for folder in folders if "citewire-cluster-" in str(folder) and folder.exists()]


def _is_there(pid: int) -> bool:
    return Path(f"/proc/{pid}/cwd").exists()


def test_one_node_answers_and_the_other_shows_it(browser: Browser, tmp_path: Path) -> None:
    """Also when the one that answers is killed in the middle of it; and it catches up once it is back."""
    expect.set_options(timeout=DEADLINE * 1000)
    with started() as cluster:
        page = browser.new_page(viewport={"width": 1300, "height": 850}, reduced_motion="reduce")
        page.goto(cluster.url)
        left, right = page.locator("#left"), page.locator("#right")
        left.get_by_role("button", name="What is the refund policy?").click()
        expect(right.locator("cite-answer")).to_contain_text("I found this")
        expect(right.locator(".state")).to_contain_text("answering")
        left.get_by_role("button", name="Kill the left node").click()
        expect(left.locator(".state")).to_have_text("killed")
        picture(page, tmp_path, "cluster-killed")
        expect(right.locator("cite-summary")).to_contain_text("4 verified")
        expect(right.locator(".state")).to_contain_text("ready")
        assert serious(page) == []
        right.get_by_role("textbox").fill("How many days of holiday do I get?")
        right.get_by_role("textbox").press("Enter")
        expect(right.locator("article")).to_have_count(2)
        left.get_by_role("button", name="Start the left node").click()
        expect(left.locator("cite-summary").last).to_contain_text("3 verified")
        expect(left.locator(".state")).to_contain_text("ready")
        for pane in (left, right):
            expect(pane.locator(".question")).to_have_count(2)
            expect(pane.locator("cite-summary").first).to_contain_text("4 verified")
        picture(page, tmp_path, "cluster")
        page.close()


def test_it_says_why_it_cannot_start() -> None:
    need_postgres()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = subprocess.run(
            [sys.executable, RUN, port], env=environment(), capture_output=True, text=True, check=False,
            timeout=DEADLINE,
        )  # fmt: skip
    assert done.returncode == 1
    assert re.fullmatch(r"the cluster cannot start: .*in use.*\n", done.stderr)
