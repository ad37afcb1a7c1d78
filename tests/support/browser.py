"""A real browser for tests, driven by Playwright, and the elements on pages of a small server.

A test module imports the fixtures that it uses. Pictures of what was seen are saved where
`CITEWIRE_SCREENSHOTS` says, else in pytest's own temporary folder.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Generator
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.responses import HTMLResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from citewire.server.pages.site import SECURITY_HEADERS
from support.agents import serve
from support.cases import ROOT, need

WEB = ROOT / "src/citewire/web"
AXE = ROOT / "tests/node/node_modules/axe-core/axe.min.js"
_NAMES = ("chromium", "chromium-browser", "google-chrome")
_POLICY = [(name.encode(), value.encode()) for name, value in SECURITY_HEADERS.items()]
_BODY = """<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content="width=device-width">
<meta name=color-scheme content="light dark"><title>citewire</title>
<link rel=icon href="data:,"><link rel=stylesheet href="/page.css">
<script type=module src="/web/elements.js"></script>
<main><h1>Answer</h1><cite-summary for=answer></cite-summary><cite-answer id=answer></cite-answer>
<cite-sources for=answer></cite-sources></main>"""
_STYLE = """body { margin: 0; background: Canvas; color: CanvasText; font: 1rem/1.6 system-ui, sans-serif }
main { max-width: 44rem; margin: 0 auto; padding: 1rem } h1 { font-size: 1.1rem }"""


class _Policy:
    """Puts the headers of the server's own pages on every answer, but below `/free`."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start" and not scope["path"].startswith("/free"):
                message["headers"] = [*message["headers"], *_POLICY]
            await send(message)

        await self.app(scope, receive, guarded)


async def _page(_: Any) -> Response:
    return HTMLResponse(_BODY)


async def _style(_: Any) -> Response:
    return Response(_STYLE, media_type="text/css")


def site(*more: Route) -> Starlette:
    """The elements on a page at `/` under our policy, at `/free` under none, and what else a test needs."""
    routes = [
        Route("/", _page),
        Route("/free", _page),
        Route("/page.css", _style),
        Mount("/web", StaticFiles(directory=WEB)),
        Mount("/free/examples", StaticFiles(directory=ROOT / "examples")),
        *more,
    ]
    return Starlette(routes=routes, middleware=[Middleware(_Policy)])


@pytest.fixture(scope="module")
def browser() -> Generator[Browser]:
    """One for all tests of a worker, or a skip."""
    program = next(filter(None, map(shutil.which, _NAMES)), None)
    need("Chromium", program is not None, "install the package chromium")
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-gpu"])
        yield started
        started.close()


@pytest.fixture(scope="module")
def url() -> Generator[str]:
    with serve(site()) as address:
        yield address


@pytest.fixture
def context(browser: Browser) -> Generator[BrowserContext]:
    made = browser.new_context(viewport={"width": 900, "height": 800}, reduced_motion="reduce")
    made.set_default_timeout(10_000)
    yield made
    made.close()


@pytest.fixture
def page(context: BrowserContext) -> Page:
    """A watched page."""
    return watched(context.new_page())


_COMPLAINTS: WeakKeyDictionary[Page, list[str]] = WeakKeyDictionary()


def watched(page: Page) -> Page:
    """A page that remembers what it complains of."""
    told = _COMPLAINTS[page] = []
    page.on(
        "console", lambda message: told.append(message.text) if message.type in {"error", "warning"} else None
    )
    page.on("pageerror", lambda error: told.append(str(error)))
    return page


def complaints(page: Page) -> list[str]:
    """What a watched page complained of so far."""
    return _COMPLAINTS[page]


def show(page: Page, view: dict[str, Any], **attributes: str) -> None:
    """Give the answer on the page a view, and wait until it is drawn."""
    page.evaluate(
        """async ([view, attributes]) => {
            const answer = document.querySelector("cite-answer");
            for (const [name, value] of Object.entries(attributes)) answer.setAttribute(name, value);
            Object.assign(answer, view);
            await answer.drawn;
        }""",
        [view, attributes],
    )


def serious(page: Page) -> list[Any]:
    """What axe-core finds on the page that keeps people out."""
    need("axe-core", AXE.is_file(), "run `npm ci` in tests/node")
    page.evaluate(AXE.read_text("utf-8"))
    found = page.evaluate("axe.run().then(({ violations }) => violations)")
    return [
        (one["id"], [node["html"][:200] for node in one["nodes"]])
        for one in found
        if one["impact"] in {"serious", "critical"}
    ]


def picture(page: Page, folder: Path, name: str) -> None:
    """Save what is seen, for people to look at."""
    folder = Path(os.environ.get("CITEWIRE_SCREENSHOTS", folder))
    folder.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=folder / f"{name}.png", full_page=True)
