"""The first minute of a newcomer: `make run`, then what the README says to type."""

from __future__ import annotations

import io
import json
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest
from PIL import Image
from playwright.sync_api import Page, expect

from support.browser import browser, complaints, context, page
from support.cases import ROOT, need

__all__ = ["browser", "context", "page"]

SAMPLES = ROOT / "examples/serve_samples.py"


@contextmanager
def running(folder: Path) -> Generator[tuple[str, str, str, list[str]]]:
    """The address, the key, the link and the questions that `make run` prints."""
    with subprocess.Popen(
        [sys.executable, SAMPLES], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as server:
        try:
            assert server.stdout
            lines = list(iter(server.stdout.readline, "Read: 4 of 4 sources         \n"))
            assert lines, server.stderr and server.stderr.read()
            said = "".join(lines)
            address, key = re.search(r"http://\S+", said), re.search(r"\S+\.\S+:\S{43}", said)
            assert address
            assert key
            link = re.search(r"^Open (\S+/sign-in\S+) in a browser", said, re.MULTILINE)
            assert link
            yield address[0], key[0], link[1], re.findall(r"^  (.*\?)$", said, re.MULTILINE)
        finally:
            server.send_signal(signal.SIGINT)
            assert server.wait(timeout=30) == 0


@pytest.mark.slow
def test_what_the_readme_says_to_type(tmp_path: Path) -> None:
    need("curl", shutil.which("curl") is not None, "install curl")
    readme = (ROOT / "README.md").read_text("utf-8")
    (typed,) = [
        block
        for block in re.findall(r"^```sh\n(.*?)^```$", readme, re.DOTALL | re.MULTILINE)
        if "curl" in block
    ]
    with running(tmp_path) as (address, key, _, questions):
        assert questions[0] in typed
        assert len(questions) == 3
        filled, count = re.subn(r"URL=\S+ KEY=\S+", f"URL={address} KEY={key}", typed)
        assert count == 1
        done = subprocess.run(
            ["bash", "-e", "-c", filled], cwd=tmp_path, capture_output=True, text=True, check=True, timeout=50
        )
    answer = json.loads((tmp_path / "answer.json").read_text("utf-8"))
    (message,) = answer["state"]["deepcitation"]["messages"].values()
    assert message["summary"]["verified"] == message["summary"]["total"] == 4
    assert "within 30 days of delivery" in answer["messages"][-1]["content"]
    with Image.open(io.BytesIO((tmp_path / "proof.avif").read_bytes())) as picture:
        assert min(picture.size) > 50
    citations = json.loads(done.stdout[done.stdout.rindex('{"dialect"') :])
    content = citations["payload"]["staticContent"]["citationContent"]
    assert len(content["citations"]) == 4


@pytest.mark.slow
def test_the_link_opens_the_page_in_a_browser(page: Page, tmp_path: Path) -> None:
    """As a newcomer does it: click, and ask one of the questions."""
    with running(tmp_path) as (address, _, link, questions):
        page.goto(link)
        expect(page.locator("#question")).to_be_visible()
        assert page.url == f"{address}/"
        page.get_by_role("button", name=questions[0]).click()
        expect(page.locator("cite-summary")).to_contain_text("4 verified")
        assert complaints(page) == []
