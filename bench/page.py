"""What people see, in Chromium: an answer that streams in at full speed, and what the page weighs.

5,000 deltas, each in a task of its own, go into `<cite-answer>` with 100 citations whose verdicts come in
between, and the same text into a bare `<pre>`. The longest gap between two of these tasks is the longest time
for which the page did not react. Memory is the heap of the page after a collection.

Then the chat page of a server, whose agent cites fifty quotes of three PDFs: how long after each verdict was
reached its marker shows it.
"""

from __future__ import annotations

import gzip
import re
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any, cast

from playwright.sync_api import Browser, CDPSession, Page, sync_playwright

from bench.table import show
from bench.verify import ROOT

sys.path.append(str(ROOT / "tests"))
from citewire.agui.events import RunInput
from support.agents import fifty, said, serve
from support.app import in_thread
from support.browser import WEB, site

DELTAS, CITATIONS, FIFTHS, ROUNDS = 5_000, 100, 5, 3
GOAL_KB = 150

FEED = """() => {
window.feed = async ([kind, deltas, citations, first]) => {
    const wait = new MessageChannel();
    const turn = () => new Promise((go) => { wait.port2.onmessage = go; wait.port1.postMessage(0); });
    const answer = document.querySelector("cite-answer");
    const pre = document.querySelector("pre") ?? document.body.appendChild(document.createElement("pre"));
    if (!pre.firstChild) pre.append("");
    const every = Math.floor(window.total / citations);
    const state = window.state ??= { citations: {}, verifications: {}, status: "streaming" };
    window.text ??= "";
    let [longest, last] = [0, performance.now()];
    for (let n = first; n < first + deltas; n++) {
        const number = Math.floor(n / every) + 1;
        const isMarker = n % every === every - 1;
        const delta = isMarker ? `[${number}]. ` : n % (every * 4) === 0 ? "\\n\\n" : `word ${n} and *more* `;
        if (kind === "pre") pre.firstChild.appendData(delta);
        else {
            text += delta;
            const key = `k${number}`;
            const record = { citationNumber: number, fullPhrase: "words", attachmentId: `s${number % 9}` };
            const verdict = { citewire: { status: number % 10 ? "verified" : "altered", page: 1 } };
            if (isMarker) state.citations = { ...state.citations, [key]: record };
            if (n % every === every / 2 && number > 1)
                state.verifications = { ...state.verifications, [`k${number - 1}`]: verdict };
            answer.message = { id: "m", content: text };
            answer.state = { deepcitation: { messages: { m: { ...state } } } };
        }
        await turn();
        const now = performance.now();
        if (now - window.began > 1000) longest = Math.max(longest, now - last);
        last = now;
    }
    return longest;
};
}"""
DRAW = """async ([deltas, fifths, blocks]) => {
    const { Markdown } = await import("/web/markdown.js");
    const root = document.body.appendChild(document.createElement("div"));
    const markdown = new Markdown(root, () => document.createElement("i"));
    const times = [];
    for (let fifth = 0; fifth < fifths; fifth++) {
        const start = performance.now();
        for (let n = 0; n < deltas / fifths; n++) {
            const end = blocks && n % 200 === 0 ? "\\n\\n" : n % 50 === 0 ? "[7]. " : "";
            markdown.append(end || `word ${n} and *more* `);
            markdown.draw();
        }
        times.push((performance.now() - start) / (deltas / fifths) * 1000);
    }
    return times;
}"""

# Milliseconds from the time that each verdict says it was reached to the frame that shows it.
SHOWN = """() => { window.shown = new Promise((done) => {
    const [known, late] = [new Set(), []];
    const look = () => {
        const now = performance.timeOrigin + performance.now();
        const answer = document.querySelector("cite-answer");
        for (const marker of answer?.shadowRoot.querySelectorAll("cite-marker") ?? []) {
            const verdict = marker.cited[0]?.verification;
            if (!verdict?.verifiedAt || known.has(marker)) continue;
            known.add(marker);
            late.push(now - Date.parse(verdict.verifiedAt));
        }
        known.size < 50 ? requestAnimationFrame(look) : done(late);
    };
    look();
}); }"""


def main() -> None:
    """Print the tables."""
    with serve(site()) as url, sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"),
            args=["--no-sandbox", "--disable-gpu", "--js-flags=--expose-gc"],
        )
        stream(browser, url)
        drawing(browser, url)
        verdicts(browser)
        browser.close()
    weight("elements.js")
    weight("chat/index.html", "chat/chat.css", "chat/viewer.css", "chat/chat.js", "icon.svg")


def stream(browser: Browser, url: str) -> None:
    """5,000 deltas into the element, and into a bare <pre>."""
    runs = {kind: [one_stream(browser, url, kind) for _ in range(ROUNDS)] for kind in ("pre", "answer")}
    rows = [
        (name, *(f"{median(run[figure] for run in runs[kind]):.{digits}f}" for kind in runs))
        for name, figure, digits in (
            ("longest gap after the first second, ms", "longest", 0),
            ("seconds in all", "seconds", 1),
            ("main thread per delta, first fifth, µs", "first", 0),
            ("main thread per delta, last fifth, µs", "last", 0),
            ("heap before, MB", "before", 1),
            ("heap after, MB", "after", 1),
        )
    ]
    show(
        f"{DELTAS:,} deltas, {CITATIONS} citations: median of {ROUNDS}", ("", "<pre>", "<cite-answer>"), rows
    )


def one_stream(browser: Browser, url: str, kind: str) -> dict[str, float]:
    page = browser.new_page()
    page.goto(url)
    session = page.context.new_cdp_session(page)
    ask(session, "Performance.enable")
    page.evaluate(FEED)
    page.evaluate("([total]) => { window.total = total; window.began = performance.now(); }", [DELTAS])
    before, start = heap(session), page.evaluate("performance.now()")
    tasks = [task_seconds(session)]
    longest: list[float] = []
    share = DELTAS // FIFTHS
    for fifth in range(FIFTHS):
        longest.append(page.evaluate("feed", [kind, share, CITATIONS, fifth * share]))
        tasks.append(task_seconds(session))
    seconds = (page.evaluate("performance.now()") - start) / 1000
    spent = [(later - earlier) / share * 1e6 for earlier, later in pairwise(tasks)]
    figures = {"longest": max(longest), "seconds": seconds, "first": spent[0], "last": spent[-1]}
    figures |= {"before": before, "after": heap(session)}
    page.close()
    return figures


def task_seconds(session: CDPSession) -> float:
    return metrics(session)["TaskDuration"]


def heap(session: CDPSession) -> float:
    """Megabytes in use after a collection."""
    ask(session, "HeapProfiler.collectGarbage")
    return metrics(session)["JSHeapUsedSize"] / 1e6


def metrics(session: CDPSession) -> dict[str, float]:
    return {one["name"]: one["value"] for one in ask(session, "Performance.getMetrics")["metrics"]}


def ask(session: CDPSession, method: str) -> Any:
    return cast("Any", session).send(method)


def drawing(browser: Browser, url: str) -> None:
    """What the script costs when every delta is drawn by itself, by fifths of the answer."""
    rows: list[tuple[str, ...]] = []
    for name, blocks in (("in paragraphs", True), ("in one paragraph", False)):
        page: Page = browser.new_page()
        page.goto(url)
        page.evaluate(DRAW, [500, FIFTHS, blocks])
        times = page.evaluate(DRAW, [DELTAS, FIFTHS, blocks])
        rows.append((name, *(f"{each:.0f}" for each in times)))
        page.close()
    show(
        f"Script per delta, µs, by fifths of {DELTAS:,} deltas, each drawn by itself",
        ("", *(f"{n}." for n in range(1, FIFTHS + 1))), rows,
    )  # fmt: skip


async def cited(run_input: RunInput) -> AsyncIterator[dict[str, Any]]:
    """An agent that cites fifty quotes."""
    ids = {"threadId": run_input.thread_id, "runId": run_input.run_id}
    for event in said(fifty()[1], name=run_input.run_id, size=40):
        yield event | (ids if event["type"].startswith("RUN_") else {})


def verdicts(browser: Browser) -> None:
    """From a verdict on the server to the marker that shows it."""
    late: list[float] = []
    with tempfile.TemporaryDirectory() as data, tempfile.TemporaryDirectory() as sources:
        for name, content in fifty()[0].items():
            Path(sources, name).write_bytes(content)
        with in_thread(Path(data), agent="bench.page:cited", sources=(sources,)) as (url, _):
            page = browser.new_page()
            for at in range(ROUNDS):
                page.goto(f"{url}/?{at}")
                page.locator("#sources .ready").nth(2).wait_for()
                page.evaluate(SHOWN)
                page.locator("#question").fill("How much did it rain?")
                page.locator("#question").press("Enter")
                late += page.evaluate("shown")
            page.close()
    ordered = sorted(late)
    figures = (f"{ordered[int(share * (len(ordered) - 1))]:.0f}" for share in (0.5, 0.95, 1))
    show(
        f"From verdict to marker, ms, {len(ordered)} verdicts",
        ("median", "95 %", "longest"),
        [tuple(figures)],
    )


def weight(*entries: str) -> None:
    """What a page that starts with these files loads, each compressed by itself."""
    loaded = sorted(closure(*(WEB / entry for entry in entries)))
    sizes = {
        path.relative_to(WEB).as_posix(): (path.stat().st_size, len(gzip.compress(path.read_bytes(), 9)))
        for path in loaded
    }
    rows = [(name, f"{size / 1000:.1f}", f"{packed / 1000:.1f}") for name, (size, packed) in sizes.items()]
    total = tuple(f"{sum(column) / 1000:.1f}" for column in zip(*sizes.values(), strict=True))
    show(
        f"Page weight, KB (goal: {GOAL_KB} compressed)",
        ("file", "as it is", "gzip"),
        [*rows, ("all", *total)],
    )


def closure(*paths: Path) -> set[Path]:
    """These files and all that they import."""
    found: set[Path] = set()
    queue = list(paths)
    while queue:
        path = queue.pop().resolve()
        if path not in found:
            found.add(path)
            queue += [
                path.parent / name for name in re.findall(r'from "(\.{1,2}/[^"]+)"', path.read_text("utf-8"))
            ]
    return found


if __name__ == "__main__":
    main()
