"""The console in a real browser: what is there, at any time, as it comes, and what one can do with it."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Literal, NamedTuple

import httpx2
import pytest
from playwright.sync_api import Browser, BrowserContext, Locator, Page, expect

from citewire.server.app import Server
from support.app import in_thread
from support.browser import browser, complaints, context, page, picture, serious, watched
from support.librarian_sources import SOURCES
from support.misquoting_agent import ANSWERS

__all__ = ["browser", "context", "page"]

pytestmark = pytest.mark.timeout(120)

# Runs where it is taken for markup, in any of these places.
EVIL = """"'><img src=x onerror="window.hacked=1"><script>window.hacked=1</script>{{7*7}}"""


class Console(NamedTuple):
    """A server with answers in it, and whoever asks it from elsewhere."""

    url: str
    client: httpx2.Client
    folder: Path
    server: Server

    def ask(self, thread: str, question: str, run: str = "r") -> None:
        message = {"id": f"u-{run}", "role": "user", "content": question}
        posted = {"threadId": thread, "runId": run, "messages": [message]}
        self.client.post("/agui", json=posted).raise_for_status()


@pytest.fixture(scope="module")
def console(tmp_path_factory: pytest.TempPathFactory) -> Generator[Console]:
    folder = tmp_path_factory.mktemp("data")
    with in_thread(folder, agent="support.misquoting_agent:answer", agent_name="clerk") as (url, app):
        headers = {"authorization": f"Bearer {app.key}"}
        with httpx2.Client(base_url=url, headers=headers, trust_env=False, timeout=30) as client:
            made = Console(f"{url}/console", client, folder, app.server)
            _fill(made)
            yield made


def _fill(console: Console) -> None:
    with console.client.stream("GET", "/sources/events") as changes:
        for name, data in SOURCES.items():
            console.client.post("/sources", params={"name": name}, content=data).raise_for_status()
        waiting = {*SOURCES}
        for line in changes.iter_lines():
            if '"state":"ready"' in line:
                waiting -= {name for name in waiting if f'"name":"{name}"' in line}
            if not waiting:
                break
    for at, said in enumerate(ANSWERS):
        console.ask(f"t{at}", said.question)
    console.ask(EVIL, EVIL)
    first = console.client.get("/threads/t3/record").json()["citations"][0]
    look = {"messageId": first["message"], "key": first["key"], "event": "citation_reviewed", "dwellMs": 2500}
    console.client.post("/threads/t3/reviews", json=look).raise_for_status()
    while len(console.client.get("/answers").json()["threads"]) < len(ANSWERS) + 1:
        pass  # each thread has its own task, which is nearly done


def threads(page: Page) -> Locator:
    return page.locator(".thread")


def opened(page: Page, console: Console, query: str = "") -> Page:
    """The console, for who is signed in."""
    if not page.context.cookies():
        page.goto(console.server.sign_in_link("console"))
    page.goto(console.url + query)
    expect(page.locator("#live")).to_have_text("Live" if "view=" not in query else "")
    return page


# --- the list -----------------------------------------------------------------------------------------------


def test_filters(page: Page, console: Console, tmp_path: Path) -> None:
    """They are in the address: a view can be shared, loaded again, and gone back to."""
    opened(page, console)
    expect(threads(page)).to_have_count(7)
    picture(page, tmp_path, "console")
    page.get_by_role("combobox", name="Verdict").select_option("altered")
    expect(threads(page)).to_have_count(2)
    expect(threads(page).first).to_contain_text("1 altered")
    expect(page).to_have_url(re.compile(r"\?status=altered$"))
    page.get_by_label("Source").fill("report.html")
    page.get_by_label("Source").press("Enter")
    expect(threads(page)).to_have_text([re.compile("Thread t2")])
    page.reload()
    expect(threads(page)).to_have_text([re.compile("Thread t2")])
    expect(page.get_by_label("Source")).to_have_value("report.html")
    page.get_by_label("Agent").fill("nobody")
    page.get_by_label("Agent").press("Enter")
    expect(page.get_by_text("No answer fits these filters.")).to_be_visible()
    expect(threads(page)).to_have_count(0)
    page.go_back()
    expect(threads(page)).to_have_count(1)
    page.get_by_role("button", name="Clear filters").click()
    expect(threads(page)).to_have_count(7)
    page.get_by_role("textbox", name="From").fill("2001-01-01T00:00")
    page.get_by_role("textbox", name="Until").fill("2001-01-02T00:00")
    expect(threads(page)).to_have_count(0)
    assert complaints(page) == []


def test_answers_come_by_themselves(page: Page, console: Console) -> None:
    """And the plot with them, while somebody else asks."""
    opened(page, console)
    expect(threads(page)).to_have_count(7)
    summed = page.locator(".plot .sum")
    expect(summed).to_contain_text("2 altered")
    console.ask("t2", ANSWERS[3].question, "again")
    first = threads(page).first
    expect(first.locator("h3")).to_have_text("Thread t2")
    expect(first.locator(".answer")).to_have_count(2)
    expect(first.locator(".answer").first).to_contain_text("1 altered")
    expect(summed).to_contain_text("3 altered")
    console.ask("new", ANSWERS[0].question)
    expect(threads(page)).to_have_count(8)
    expect(first).to_contain_text("2 verified")
    console.client.delete("/threads/new").raise_for_status()
    expect(threads(page)).to_have_count(7)
    expect(page.get_by_text("Thread new")).to_have_count(0)


def test_the_plot_and_its_table(page: Page, console: Console) -> None:
    opened(page, console, "?bucket=hour")
    plot = page.get_by_role("img", name=re.compile(r"verdicts from .*: 3? ?2? ?\d+ altered"))
    expect(plot).to_be_visible()
    page.get_by_text("As a table").click()
    rows = page.get_by_role("region", name="Verdicts over time").locator("tbody tr")
    said = [int(each) for each in rows.last.locator("td").all_inner_texts()]
    assert said[0] >= 1
    assert sum(said[1:]) >= 1
    rows.last.get_by_role("link").click()
    expect(page).to_have_url(re.compile("since=.*until="))
    expect(threads(page).first).to_be_visible()


def test_what_fails_is_told(page: Page, console: Console) -> None:
    opened(page, console)
    expect(threads(page)).to_have_count(7)
    refused = {"error": {"code": "store_failed", "message": "the disk is full"}}
    page.route("**/answers?*", lambda route: route.fulfill(status=503, json=refused))
    page.get_by_role("combobox", name="Verdict").select_option("missed")
    expect(page.locator(".list").get_by_role("alert")).to_contain_text("the disk is full")
    page.unroute("**/answers?*")
    page.locator(".list").get_by_role("button", name="Try again").click()
    expect(threads(page).first).to_be_visible()
    expect(page.locator(".list").get_by_role("alert")).to_have_count(0)


# --- an answer at any time ----------------------------------------------------------------------------------


def test_an_answer_at_any_time(page: Page, console: Console, tmp_path: Path) -> None:
    opened(page, console)
    page.locator("[data-thread=t3] a").click()
    past = page.locator(".past")
    answer = past.locator("cite-answer")
    expect(answer).to_contain_text("From abroad we pay the postage")
    expect(past.locator("cite-summary")).to_contain_text("1 altered")
    expect(past.locator(".user")).to_have_text(re.compile("Who pays for sending it back"))
    expect(past.locator(".record")).to_contain_text("read it for 2.5 s")
    picture(page, tmp_path, "console-answer")
    steps = past.get_by_role("slider")
    expect(steps).to_have_attribute("aria-valuetext", re.compile("somebody looks at a citation"))
    for _ in range(3):
        past.get_by_role("button", name="Step back").click()
    expect(page).to_have_url(re.compile("at=[0-9]+"))
    steps.press("Home")
    expect(past.locator("output")).to_have_text(re.compile("a question is asked · step 1 of"))
    expect(answer).to_have_count(0)
    expect(past.locator(".user")).to_be_visible()
    # In the middle of it nothing is judged yet, and that address can be shared.
    seen = list[str]()
    for _ in range(12):
        steps.press("ArrowRight")
        expect(past.locator("output")).to_have_text(re.compile(f"step {len(seen) + 2} of"))
        expect(page).to_have_url(re.compile("at="))
        seen.append(past.inner_text())
    assert any("verified" not in each for each in seen)
    page.goto(console.url + "?thread=t3&at=8")
    expect(answer).to_contain_text("Labels are free")
    expect(past.locator("cite-summary")).not_to_contain_text("altered")
    past.get_by_role("button", name="Now").click()
    expect(past.locator("cite-summary")).to_contain_text("1 altered")
    expect(page).to_have_url(re.compile(r"\?thread=t3$"))
    assert complaints(page) == []


def test_an_answer_that_is_gone(page: Page, console: Console) -> None:
    opened(page, console, "?thread=nobody%2F%22")
    expect(page.locator(".past").get_by_role("alert")).to_contain_text("There is no such thread")


def test_an_open_answer_goes_on(page: Page, console: Console) -> None:
    opened(page, console, "?thread=t5")
    past = page.locator(".past")
    expect(past.locator("cite-answer")).to_have_count(1)
    console.client.post(
        "/agui",
        json={
            "threadId": "t5",
            "runId": "more",
            "messages": [
                *console.client.get("/threads/t5").json()["messages"],
                {"id": "u2", "role": "user", "content": ANSWERS[1].question},
            ],
        },
    ).raise_for_status()
    expect(past.locator("cite-answer")).to_have_count(2)
    expect(past.locator("cite-answer").last).to_contain_text("27 days")


# --- sources ------------------------------------------------------------------------------------------------


def test_who_cites_a_source(page: Page, console: Console, tmp_path: Path) -> None:
    opened(page, console, "?view=sources")
    page.get_by_role("link", name="returns.pdf").click()
    sheet = page.locator(".sheet")
    image = sheet.get_by_role("img", name="Page 1 of returns.pdf")
    image.evaluate("image => image.decode()")
    altered = sheet.locator(".marks a.altered")
    expect(altered.first).to_have_attribute(
        "aria-label", re.compile("Altered: “For parcels from abroad the shop")
    )
    picture(page, tmp_path, "console-source")
    whole, mark = image.bounding_box(), altered.first.bounding_box()
    assert whole
    assert mark
    assert whole["x"] < mark["x"] < mark["x"] + mark["width"] < whole["x"] + whole["width"]
    assert whole["y"] < mark["y"] < whole["y"] + whole["height"] / 2
    before = sheet.locator(".marks a").count()
    sheet.get_by_role("button", name="Next page").click()
    expect(sheet.get_by_role("img", name="Page 2 of returns.pdf")).to_be_visible()
    expect(page).to_have_url(re.compile("page=2"))
    expect(sheet.locator(".marks a.altered")).to_have_count(0)
    sheet.get_by_role("button", name="Page before").click()
    expect(sheet.locator(".marks a")).to_have_count(before)
    altered.first.focus()
    page.keyboard.press("Enter")
    expect(page.locator(":focus")).to_have_text(re.compile("Thread t[23]"))
    page.keyboard.press("Enter")
    expect(page.locator(".past cite-answer").last).to_contain_text("From abroad we pay the postage")
    opened(page, console, "?view=sources&document=none")
    expect(page.locator(".sheet").get_by_role("alert")).to_contain_text("There is no such source")


# --- rules and files ----------------------------------------------------------------------------------------


def test_rules(page: Page, console: Console, tmp_path: Path) -> None:
    opened(page, console, "?view=rules")
    rows = page.locator(".rules tbody tr")
    expect(rows).to_have_count(1)
    form = page.locator(".rules .add")
    form.get_by_label("Channel or namespace").fill("chat:*")
    form.get_by_label(re.compile("Kept for")).fill("soon")
    form.get_by_role("button", name="Save").click()
    expect(page.get_by_role("alert")).to_contain_text("That did not work")
    expect(rows).to_have_count(1)
    form.get_by_label(re.compile("Kept for")).fill("30d")
    form.get_by_role("button", name="Save").click()
    expect(rows).to_have_count(2)
    expect(page.get_by_role("alert")).to_have_count(0)
    assert console.client.get("/rules/chat:1").json()["retention"] == "30d"
    page.get_by_label("How long chat:* is kept").fill("36h")
    page.get_by_role("button", name="Save the rule for chat:*").click()
    expect(page.locator(".done")).to_contain_text("chat:*")
    picture(page, tmp_path, "console-rules")
    assert console.client.get("/rules/chat:1").json()["retention"] == "36h"
    page.get_by_role("button", name="Remove the rule for chat:*").click()
    expect(rows).to_have_count(1)
    assert console.client.get("/rules/chat:1").json()["retention"] == "none"


def test_export(page: Page, console: Console, tmp_path: Path) -> None:
    """What the filters leave; and the file holds, as whoever gets it can check."""
    opened(page, console, "?status=altered&agent=clerk")
    expect(threads(page).first).to_be_visible()
    saved: dict[str, Path] = {}
    for name in ("JSONL", "CSV", "HTML"):
        with page.expect_download() as download:
            page.get_by_role("link", name=name, exact=True).click()
        saved[name] = tmp_path / download.value.suggested_filename
        download.value.save_as(saved[name])
    verify = [Path(sys.executable).with_name("citewire"), "audit", "verify", saved["JSONL"]]
    done = subprocess.run(verify, capture_output=True, text=True, check=False, timeout=60)
    # Whole, and signed by a key that nobody has named as trusted.
    assert (done.returncode, done.stdout.split(":")[0]) == (3, "whole"), done
    lines = saved["CSV"].read_text("utf-8").splitlines()
    assert {line.split(",")[0] for line in lines[1:]} == {"t2", "t3"}
    assert all(",altered," in line for line in lines[1:])
    assert "21%" in saved["HTML"].read_text("utf-8")


# --- who else looks -----------------------------------------------------------------------------------------


def test_nothing_of_a_stranger_runs(page: Page, console: Console) -> None:
    """Ids of threads, questions, answers, quotes and names of sources are text, wherever they stand."""
    opened(page, console)
    entry = page.locator(".thread").filter(has_text="window.hacked")
    expect(entry.locator("h3")).to_have_text(f"Thread {EVIL}")
    entry.get_by_role("link").click()
    expect(page.locator(".past .head h2")).to_have_text(f"Thread {EVIL}")
    expect(page.locator(".past cite-answer")).to_be_visible()
    expect(page.locator(".record q")).to_have_text(re.compile(re.escape("window.hacked")))
    page.go_back()
    page.get_by_label("Source").fill(EVIL)
    page.get_by_label("Source").press("Enter")
    expect(threads(page)).to_have_count(1)
    page.goto(
        f"{console.url}?view=%22%3E%3Cscript%3Ewindow.hacked=1%3C/script%3E&status={EVIL}&bucket={EVIL}&at={EVIL}"
    )
    expect(page.locator(".list").get_by_role("alert")).to_contain_text("a status is one of")
    assert page.evaluate("window.hacked") is None
    assert not [each for each in complaints(page) if "Security Policy" in each]


@pytest.mark.parametrize(("scheme", "width"), [("light", 1300), ("dark", 390)])
def test_everybody_can_use_it(
    browser: Browser, console: Console, tmp_path: Path, scheme: Literal["light", "dark"], width: int
) -> None:
    context: BrowserContext = browser.new_context(
        viewport={"width": width, "height": 844}, color_scheme=scheme, reduced_motion="reduce"
    )
    context.set_default_timeout(10_000)
    page = watched(context.new_page())
    for name, query, shown in (
        ("list", "", ".thread"),
        ("answer", "?thread=t3", ".past cite-sources"),
        ("sources", "?view=sources", ".names a"),
        ("rules", "?view=rules", ".rules tbody tr"),
    ):
        opened(page, console, query)
        expect(page.locator(shown).first).to_be_visible()
        if name == "sources":
            page.get_by_role("link", name="returns.pdf").click()
            page.locator("figure img").evaluate("image => image.decode()")
        assert serious(page) == [], name
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), name
        picture(page, tmp_path, f"console-{name}-{scheme}-{width}")
    assert complaints(page) == []
    context.close()


def test_by_keyboard_alone(page: Page, console: Console) -> None:
    """From the first filter to an answer, through its history, and back."""
    opened(page, console)
    expect(threads(page).first).to_be_visible()
    found = list[str]()
    for _ in range(40):
        page.keyboard.press("Tab")
        found.append(
            page.evaluate("document.activeElement.className + ' ' + (document.activeElement.name ?? '')")
        )
        if found[-1].startswith("answer"):
            break
    assert {each.split()[-1] for each in found if each.strip()} >= {
        "status",
        "source",
        "agent",
        "since",
        "until",
    }
    page.keyboard.press("Enter")
    slider = page.get_by_role("slider")
    expect(slider).to_be_visible()
    for _ in range(60):
        page.keyboard.press("Tab")
        if slider.evaluate("node => node === document.activeElement"):
            break
    page.keyboard.press("Home")
    expect(page.locator(".past output")).to_contain_text("step 1 of")
    page.go_back()
    expect(page.locator(".past")).not_to_have_class(re.compile("open"))
