"""The example with CopilotKit: a real chat of theirs, a real server of ours, a real browser."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Locator, Page, expect

from support import browser as chromium
from support.bundle import run, served
from support.cases import ROOT
from support.copilotkit import EXAMPLE, need_copilotkit
from support.server_process import Serving

pytestmark = pytest.mark.timeout(180)

browser, context, page = chromium.browser, chromium.context, chromium.page
SAMPLES = ROOT / "src/citewire/samples"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The example as it is built, on a server of its own."""
    need_copilotkit()
    folder = tmp_path_factory.mktemp("site")
    shutil.copy(EXAMPLE / "index.html", folder)
    run("npm", "run", "build", "--", f"--outdir={folder}/dist", folder=EXAMPLE)
    with served(folder) as url:
        yield url


def _ask(page: Page, question: str) -> Locator:
    """Ask, and get the answers."""
    box = page.get_by_role("textbox")
    box.fill(question)
    box.press("Enter")
    return page.locator("article", has=page.locator("cite-answer"))


def test_a_chat_shows_checked_citations(page: Page, site: str, tmp_path: Path) -> None:
    hosts: set[str] = set()
    page.on("request", lambda request: hosts.add(urlsplit(request.url).netloc))
    with Serving(tmp_path / "data", "--sources", SAMPLES, "--origin", site) as server:
        server.read_sources()
        page.goto(f"{site}/#server={server.url}&key={server.key}")
        answers = _ask(page, "What is the refund policy?")
        expect(answers).to_have_attribute("data-status", "complete")
        expect(answers.locator("cite-answer")).to_contain_text("30 days of delivery")
        markers = answers.locator("cite-answer cite-marker").get_by_role("button")
        expect(markers.first).to_have_accessible_name(re.compile("Citation 1: Verified, refund-policy"))
        expect(answers.locator("cite-summary")).to_contain_text(f"{markers.count()} verified")
        expect(answers.locator("cite-sources")).to_contain_text("refund-policy.html")

        markers.first.click()
        card = page.locator("cite-card:popover-open")
        expect(card).to_contain_text("return any lamp within 30 days")
        chromium.picture(page, tmp_path, "copilotkit")
        page.keyboard.press("Escape")
        expect(card).to_have_count(0)

        # What was looked at goes along with the next question.
        _ask(page, "How many days of holiday do I get?")
        expect(answers).to_have_count(2)
        expect(answers.last).to_have_attribute("data-status", "complete")
        (thread,) = server.get("/threads")["threads"]
        (reviews,) = server.get(f"/threads/{thread['threadId']}")["state"]["deepcitation"]["reviews"].values()
        assert {"popover_opened", "popover_closed"} <= {one["event"] for one in next(iter(reviews.values()))}
        assert hosts == {urlsplit(each).netloc for each in (site, server.url)}
    assert chromium.complaints(page) == []


def test_an_answer_is_shown_as_it_comes(page: Page, site: str, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    given = ("--agent", "support.server_agents:held", "--sources", SAMPLES, "--origin", site)
    with Serving(tmp_path / "data", *given, PYTHONPATH=str(Path(__file__).parents[1])) as server:
        server.read_sources()
        page.goto(f"{site}/#server={server.url}&key={server.key}")
        answer = _ask(page, str(pipe))
        expect(answer.get_by_text("You have 30 days", exact=True)).to_be_visible()
        expect(answer).to_have_attribute("data-status", "streaming")
        pipe.write_bytes(b"go")
        expect(answer).to_have_attribute("data-status", "complete")
        expect(answer.locator("cite-answer")).to_contain_text("and I am sure of it.")
        marker = answer.locator("cite-marker").get_by_role("button")
        expect(marker).to_have_accessible_name(re.compile("Citation 1: Verified"))
    assert chromium.complaints(page) == []


def test_the_lock_names_no_registry() -> None:
    packages = json.loads((EXAMPLE / "package-lock.json").read_text())["packages"]
    resolved = {each["resolved"] for each in packages.values() if "resolved" in each}
    assert resolved == {"markdown", "../../src/citewire/web"}
