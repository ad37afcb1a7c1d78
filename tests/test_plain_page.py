"""The plain page in a real browser, before a server that does no more than it must: real events of the
middleware over the sample documents, under the policy that pages are served with."""

from __future__ import annotations

import asyncio
import html
import json
from collections.abc import Generator
from string import Template
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, JSONResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from agents import said, serve
from cases import ROOT
from chromium import Tab, chromium
from citewire.agui import CitationMiddleware
from citewire.patch import PatchError, apply
from citewire.server.site import SAFE

pytestmark = pytest.mark.slow

PAGES = ROOT / "src/citewire/server/pages"
SAMPLES = ROOT / "src/citewire/samples"
POLICY = [(name.encode(), value.encode()) for name, value in SAFE.items()]
EVIL = "<img src=x onerror=\"document.title='run'\"><script>document.title='run'</script>"
CITED = {
    "refund-policy.html": {1: "you may return any lamp within 30 days of delivery"},
    "report.pdf": {2: "revenue grow by 12.4% in 2025, from £5.92 million", 5: "Profit for the year 405 577"},
    "handbook.md": {3: "Each parent has 80 days of the parental leave at full pay."},
    EVIL: {4: f"Lamps are made of cheese {EVIL}"},
}  # fmt: skip
VISIBLE = f"It is 30 days [1]. Revenue grew [2], profit too [5, 1]. Leave is 80 [3]. {EVIL} [4] Not row[9]."
ENTRIES = {
    name: [{"id": n, "full_phrase": quote} for n, quote in quotes.items()] for name, quotes in CITED.items()
}
CITING = f"{VISIBLE}\n\n<<<CITATION_DATA>>>\n{json.dumps(ENTRIES)}\n<<<END_CITATION_DATA>>>"
LOST = "The connection was lost before the answer was complete. Reload the page to see how it went on."
QUESTIONS = ["What is the refund policy?", "How many days of parental leave are there?"]


HOSTILE = [
    EVIL,
    "javascript:document.title='run'",
    "data:text/html,run",
    "data:image/svg+xml;base64,PHN2Zy8+",
    "gone.png",
]


def hostile_run() -> list[dict[str, Any]]:
    """What the middleware never sends: every address of it leads where no link and no picture may."""
    start, *rest, end = said(" ".join(f"[{n}]" for n in range(1, 6)))
    cited = {f"k{n}": {"citationNumber": n, "fullPhrase": EVIL, "title": EVIL} for n in range(1, 6)}
    difference = {"kind": EVIL, "quote": EVIL, "source": EVIL}
    judged = {
        f"k{n}": {
            "evidence": {"src": address},
            "citewire": {"status": "altered", "proof": address, "diff": [difference]},
        }
        for n, address in enumerate(HOSTILE, 1)
    }  # fmt: skip
    state = {"deepcitation": {"messages": {"m": {"citations": cited, "verifications": judged}}}}
    return [start, {"type": "STATE_SNAPSHOT", "snapshot": state}, *rest, end]


class Desk:
    """A server with one thread, whose agent does as it is told: answers, fails, or goes on for ever."""

    def __init__(self) -> None:
        self.posted: dict[str, Any] = {}
        self.sent = b""
        self.stopped = asyncio.Event()
        routes = [
            Route("/agui", self.run, methods=["POST"]),
            Route("/threads/{thread}", self.show),
            Route("/threads/{thread}/runs/{run}/stop", self.stop, methods=["POST"]),
            Route("/sources", self.sources),
            Route("/questions.json", self.questions),
            Route("/proofs/p", self.proof),
            Route("/", self.home),
            Mount("/pages", StaticFiles(directory=PAGES)),
        ]
        self.app = CitationMiddleware(Starlette(routes=routes), [str(SAMPLES)], deadline=None)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def kept(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], *POLICY]
            elif scope.get("path") == "/agui":
                self.sent += message.get("body", b"")
            await send(message)

        await self.app(scope, receive, kept)

    async def run(self, request: Request) -> ASGIApp:
        self.posted, self.sent, self.stopped = await request.json(), b"", asyncio.Event()
        first, start, *rest = said(CITING)
        match self.posted["messages"][-1]["content"]:
            case "refuse":
                return JSONResponse({"error": {"code": "conflict", "message": f"busy {EVIL}"}}, 409)
            case "fail":
                return EventStream(
                    first, {"type": "RUN_ERROR", "message": f"no model {EVIL}", "code": "agent_failed"}
                )
            case "break off":
                return EventStream(first, start, rest[0])
            case "go on":
                end = {"type": "RUN_ERROR", "message": "the run was stopped", "code": "stopped"}
                return EventStream(first, start, rest[0], self.stopped, end)
            case _:
                return EventStream(first, start, *rest)

    async def show(self, request: Request) -> ASGIApp:
        """The last run, after what came before it, as the real one does."""
        assert request.headers["accept"] == "text/event-stream"
        if request.path_params["thread"] != self.posted.get("threadId"):
            return JSONResponse({"error": {"code": "not_found", "message": "there is no such thread"}}, 404)
        if self.posted["messages"][-1]["content"] == "be hostile":
            return EventStream(*hostile_run())
        first, _, rest = self.sent.partition(b"\n\n")
        messages = {"type": "MESSAGES_SNAPSHOT", "messages": self.posted["messages"]}
        state = {"type": "STATE_SNAPSHOT", "snapshot": self.posted["state"]}
        return EventStream(first + b"\n\n", messages, state, rest)

    async def stop(self, request: Request) -> Response:
        assert request.path_params["thread"] == self.posted["threadId"]
        self.stopped.set()
        return Response(status_code=204)

    async def sources(self, _: Request) -> Response:
        names = [*sorted(path.name for path in SAMPLES.iterdir()), EVIL]
        return JSONResponse({"sources": [{"name": name, "state": "ready"} for name in names]})

    async def questions(self, _: Request) -> Response:
        return JSONResponse(QUESTIONS)

    async def home(self, _: Request) -> Response:
        return FileResponse(PAGES / "index.html")

    async def proof(self, _: Request) -> Response:
        names = (
            "word",
            "sign",
            "quote",
            "found",
            "source",
            "page",
            "warnings",
            "sha256",
            "checked",
            "version",
        )
        values = {name: html.escape(f"{name} {EVIL}") for name in names}
        page = Template((PAGES / "proof.html").read_text("utf-8"))
        return HTMLResponse(page.substitute(values, status="altered", reason="", picture=""))


class EventStream(Response):
    """Sends these events, bytes as they are, and waits where it is told to wait."""

    def __init__(self, *events: dict[str, Any] | bytes | asyncio.Event) -> None:
        super().__init__(media_type="text/event-stream")
        del self.headers["content-length"]
        self._events = events

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        for event in self._events:
            if isinstance(event, asyncio.Event):
                await event.wait()
            else:
                body = event if isinstance(event, bytes) else b"data: %b\n\n" % json.dumps(event).encode()
                await send({"type": "http.response.body", "body": body, "more_body": True})
        await send({"type": "http.response.body", "body": b""})


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Generator[Tab]:
    with chromium(tmp_path_factory.mktemp("profile")) as tab:
        yield tab


@pytest.fixture(scope="module")
def url() -> Generator[str]:
    with serve(Desk()) as url:
        yield url


@pytest.fixture
def tab(browser: Tab, url: str) -> Generator[Tab]:
    """The page, with no thread yet."""
    browser.open(url)
    until(browser, "!$('#question').disabled && $('#questions button') && $('#sources').textContent")
    yield browser
    browser.call("Emulation.clearDeviceMetricsOverride")
    browser.evaluate("sessionStorage.clear()")
    browser.open("about:blank")


def until(tab: Tab, condition: str) -> None:
    """Wait for something to be so on the page."""
    tab.evaluate(f"""new Promise(done => {{
        const $ = selector => document.querySelector(selector);
        const look = () => ({condition}) && (watch.disconnect(), done());
        const watch = new MutationObserver(look);
        watch.observe(document, {{subtree: true, childList: true, attributes: true, characterData: true}});
        look();
    }})""")


def ask(tab: Tab, question: str) -> None:
    """By keyboard."""
    tab.evaluate("question.focus()")
    tab.call("Input.insertText", text=question)
    press(tab, "Enter")


def press(tab: Tab, key: str) -> None:
    for kind in ("keyDown", "keyUp"):
        tab.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, text="\r" if key == "Enter" else "")


def texts(tab: Tab, selector: str) -> list[str]:
    return tab.evaluate(f"[...document.querySelectorAll({json.dumps(selector)})].map(n => n.textContent)")


def answered(tab: Tab, question: str = "What is the refund policy?") -> None:
    ask(tab, question)
    until(tab, "$('.assistant') && $('#stop').hidden")


def quiet(tab: Tab) -> None:
    """Nothing of what came has run, and nothing went wrong."""
    assert tab.evaluate("document.title") == "citewire"
    for event in ("Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded"):
        assert tab.told(event) == []


def test_an_answer_with_its_citations(tab: Tab) -> None:
    assert texts(tab, "#questions button") == QUESTIONS
    assert EVIL in texts(tab, "#sources")[0]
    answered(tab)
    assert texts(tab, ".assistant .text") == [
        f"It is 30 days 1 ✓. Revenue grew 2 ≠, profit too 5 ✓1 ✓. Leave is 80 3 ≈. {EVIL} 4 ✗ Not row[9]."
    ]
    assert texts(tab, ".assistant .summary") == ["1 altered · 1 not found · 1 partial · 2 verified"]
    assert texts(tab, ".assistant ol > li > p:first-child") == [
        "1 ✓ Verified refund-policy.html, page 1", "2 ≠ Altered report.pdf, page 2",
        "3 ≈ Partial handbook.md, page 1",
        f"4 ✗ Not found {EVIL}", "5 ✓ Verified report.pdf, page 4",
    ]  # fmt: skip
    assert texts(tab, "li.altered q") == [
        CITED["report.pdf"][2],
        "revenue grow by 14.2% in 2025, from £5.92 million",
    ]
    assert texts(tab, "li.altered ul li") == ["number: the quote says 12.4%, the source 14.2%"]
    shown = tab.evaluate(
        "Promise.all([...document.images].map(i => (i.loading = 'eager', i.decode()).then(() => i.alt)))"
    )
    assert shown == [f"report.pdf, page {page}, with the words marked" for page in (2, 4)]
    quiet(tab)


def test_a_second_question_goes_with_the_first(tab: Tab) -> None:
    tab.evaluate("document.querySelector('#questions button').click()")
    until(tab, "$('.assistant') && $('#stop').hidden")
    ask(tab, "And then?")
    until(tab, "document.querySelectorAll('.user').length === 2 && $('#stop').hidden")
    assert texts(tab, ".user .text") == [QUESTIONS[0], "And then?"]
    assert tab.evaluate(
        "document.querySelector('#hint').hidden && document.querySelector('#questions').hidden"
    )


def test_a_reload_keeps_the_thread_until_a_new_one_is_asked_for(tab: Tab) -> None:
    answered(tab)
    before = texts(tab, "article")
    tab.open(tab.evaluate("location.href"))
    until(tab, "$('.assistant') && $('#stop').hidden")
    assert texts(tab, "article") == before
    tab.evaluate("document.querySelector('#new').click()")
    assert texts(tab, "article") == []
    assert not tab.evaluate("document.querySelector('#questions').hidden || 'thread' in sessionStorage")
    quiet(tab)


def test_the_keyboard_leads_from_a_marker_to_its_citation(tab: Tab) -> None:
    answered(tab)
    tab.evaluate("document.querySelector('.text .altered').focus()")
    assert tab.evaluate("document.activeElement.ariaLabel") == "Citation 2: Altered"
    press(tab, "Enter")
    assert "Altered" in tab.evaluate("document.querySelector(':target').textContent")


@pytest.mark.parametrize(
    ("question", "problem"),
    [
        pytest.param("fail", f"no model {EVIL} (agent_failed)", id="RUN_ERROR"),
        pytest.param("refuse", f"busy {EVIL} (conflict)", id="HTTP"),
        pytest.param("break off", LOST, id="broken off"),
    ],
)
def test_a_failure_is_told_and_the_next_question_works(tab: Tab, question: str, problem: str) -> None:
    ask(tab, question)
    until(tab, "!$('#problem').hidden && $('#stop').hidden")
    assert texts(tab, "#problem") == [problem]
    assert tab.evaluate("document.title") == "citewire"
    answered(tab)
    assert tab.evaluate("document.querySelector('#problem').hidden")


def test_a_run_can_be_stopped(tab: Tab) -> None:
    ask(tab, "go on")
    until(tab, "$('.assistant .text')?.textContent")
    assert tab.evaluate("document.querySelector('#thread').ariaBusy") == "true"
    tab.evaluate("document.querySelector('#stop').click()")
    until(tab, "$('#stop').hidden")
    assert texts(tab, "#problem") == ["the run was stopped (stopped)"]
    assert tab.evaluate("document.querySelector('#thread').ariaBusy") == "false"


def test_no_address_leads_out_of_http(tab: Tab) -> None:
    answered(tab, "be hostile")
    tab.open(tab.evaluate("location.href"))
    until(tab, "$('li.altered') && !$('article img')")
    links = tab.evaluate("[...document.querySelectorAll('li a')].map(a => new URL(a.href).protocol)")
    assert set(links) == {"http:"}
    assert texts(tab, ".assistant .note").count("The picture could not be loaded.") == len(links)
    assert tab.evaluate("document.title") == "citewire"
    assert tab.told("Runtime.exceptionThrown") == []


@pytest.mark.parametrize("width", [320, 390, 1000])
def test_nothing_is_wider_than_the_screen(tab: Tab, width: int) -> None:
    tab.call(
        "Emulation.setDeviceMetricsOverride", width=width, height=800, deviceScaleFactor=1, mobile=width < 500
    )
    answered(tab)
    assert tab.evaluate("document.documentElement.scrollWidth <= innerWidth")


STATE = {"list": [1, 2, 3], "deep": {"a/b": {"m~n": 1}}}


@pytest.mark.parametrize(
    "operations",
    [
        [{"op": "add", "path": "/list/1", "value": 9}, {"op": "add", "path": "/list/-", "value": {}}],
        [{"op": "replace", "path": "/deep/a~1b/m~0n", "value": None}],
        [{"op": "remove", "path": "/list/0"}, {"op": "move", "from": "/list/0", "path": "/moved"}],
        [
            {"op": "copy", "from": "/deep", "path": "/deep/a~1b/again"},
            {"op": "replace", "path": "", "value": []},
        ],
        [
            {"op": "test", "path": "/deep", "value": {"a/b": {"m~n": 1}}},
            {"op": "add", "path": "/n", "value": 1},
        ],
        [{"op": "test", "path": "/list", "value": [1, 2]}],
        [{"op": "add", "path": "list", "value": 9}],
        [{"op": "add", "path": "/~2", "value": 9}],
        [{"op": "move", "from": "/deep", "path": "/deep/a~1b/self"}],
        [{"op": "add", "path": "/list/4", "value": 9}],
        [{"op": "add", "path": "/list/01", "value": 9}],
        [{"op": "add", "path": "/list/length", "value": 9}],
        [{"op": "replace", "path": "/none", "value": 9}],
        [{"op": "add", "path": "/none/deeper", "value": 9}],
        [{"op": "remove", "path": "/list/3"}],
        [{"op": "add", "path": "/__proto__/polluted", "value": 9}],
        [{"op": "add", "path": "/constructor", "value": 9}],
        [{"op": "add", "path": "/kept", "value": 1}, {"op": "turn", "path": "/list"}],
    ],
)
def test_patches_are_applied_as_elsewhere(tab: Tab, operations: list[Any]) -> None:
    """As `citewire.patch` does it: the same state, or none of it."""
    try:
        expected = apply(STATE, operations)
    except PatchError:
        expected = STATE
    event = json.dumps({"type": "STATE_DELTA", "delta": operations})
    thread = json.dumps({"state": STATE})
    done = tab.evaluate(
        f"import('/pages/thread.js').then(({{take}}) => {{ const thread = {thread};"
        f" try {{ take(thread, {event}); }} catch {{}} return [thread.state, 'polluted' in {{}}]; }})"
    )
    assert done == [expected, False]


def test_the_proof_page_shows_text_as_text(tab: Tab, url: str) -> None:
    tab.open(f"{url}/proofs/p")
    assert texts(tab, "dd q") == [f"quote {EVIL}"]
    assert tab.evaluate("document.title") == f"word {EVIL}: source {EVIL}"
    empty = "[...document.querySelectorAll('dt, img')].filter(n => !n.offsetHeight).map(n => n.textContent)"
    assert tab.evaluate(empty) == ["Why", ""]
    assert tab.told("Log.entryAdded") == []
