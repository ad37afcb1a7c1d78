"""React: the hook, the components, and the package that they come in."""

from __future__ import annotations

import gzip
import json
import re
import shutil
import tomllib
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

import citewire
from support import browser as chromium
from support.agui_node import NODE, RealClient
from support.bundle import WEB, Package, bundle, check_types, packed, project, run, served
from support.server_process import Serving

pytestmark = pytest.mark.timeout(120)

browser, context, page = chromium.browser, chromium.context, chromium.page
SCRIPTS = NODE / "react"

SAMPLES = Path(__file__).parents[2] / "src/citewire/samples"
QUESTION = "What is the refund policy?"
COUNTS = {"total": 0, "verified": 0, "partial": 0, "missed": 0, "altered": 0, "pending": 0, "skipped": 0}
NOTHING = {"citations": {}, "verifications": {}, "status": "complete", "summary": COUNTS}


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Package:
    return packed(tmp_path_factory.mktemp("packed"))


@pytest.fixture(scope="module")
def newest(package: Package, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with the package and the newest React."""
    return project(tmp_path_factory.mktemp("project"), package)


@pytest.fixture(scope="module", params=["19", "18"])
def app(request: pytest.FixtureRequest, package: Package, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with the package and React of this version."""
    if request.param == "19":
        return request.getfixturevalue("newest")
    return project(tmp_path_factory.mktemp("project"), package, f"-{request.param}")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    """A server over the samples, which pages of any origin may call."""
    with Serving(tmp_path_factory.mktemp("served") / "data", "--sources", SAMPLES, "--origin", "*") as server:
        server.read_sources()
        yield server


def _node(app: Path, script: str, *arguments: str) -> Any:
    """What a script says when it runs in this project."""
    shutil.copy(SCRIPTS / script, app)
    return json.loads(run("node", script, *arguments, folder=app))


def _hook(app: Path, *inputs: dict[str, Any]) -> Any:
    told = _node(app, "hook.mjs", json.dumps(inputs))
    assert told["complaints"] == []
    assert told["alias"]
    return told


def _message(**record: Any) -> dict[str, Any]:
    return {"agUiState": {"deepcitation": {"messages": {"m": record}}}, "messageId": "m"}


FULL = {
    "messageId": "m",
    "citations": {"k": {"fullPhrase": "30 days", "citationNumber": 1}},
    "verifications": {"k": {"status": "found"}},
    "summary": {**COUNTS, "total": 1, "verified": 1},
    "status": "verifying",
}
READ = {name: value for name, value in FULL.items() if name != "messageId"}


STATES = ("null", "[]", "3", "{}", '{"deepcitation": []}')
MESSAGES: list[tuple[dict[str, Any], dict[str, Any]]] = [
    (_message(**FULL), READ),
    (_message(**FULL, error="no verifier"), {**READ, "error": "no verifier"}),
    ({**_message(**FULL), "messageId": "other"}, NOTHING),
    ({**_message(**FULL), "stateKey": "elsewhere"}, NOTHING),
    ({"agUiState": {"x": {"messages": {"m": FULL}}}, "messageId": "m", "stateKey": "x"}, READ),
    ({"agUiState": {"deepcitation": {"messages": {"a/b~'\"": FULL}}}, "messageId": "a/b~'\""}, READ),
    *(({"agUiState": json.loads(state), "messageId": "m"}, NOTHING) for state in STATES),
    *(({**_message(**FULL), "messageId": name}, NOTHING) for name in ("__proto__", "constructor", "")),
    ({"agUiState": {"deepcitation": {"messages": {"m": "text"}}}, "messageId": "m"}, NOTHING),
    (_message(), NOTHING),
    (_message(citations=[], verifications="x", summary=3, status="done", error=4), NOTHING),
    (_message(summary={"total": 2}), {**NOTHING, "summary": {**COUNTS, "total": 2}}),
]  # fmt: skip


def test_the_hook_reads_whatever_is_there(app: Path) -> None:
    seen = _hook(app, *(given for given, _ in MESSAGES))["seen"]
    assert seen == [expected for _, expected in MESSAGES]


def test_the_hook_gives_the_same_object_for_the_same_message(app: Path) -> None:
    """Also where the state around it is another, and for all messages that nobody knows."""
    known = [{"messageId": "m", "agUiState": {"n": n, **_message(**FULL)["agUiState"]}} for n in range(2)]
    inputs = [{"messageId": "one"}, *known, {"messageId": "another"}, *known, _message(**FULL, error="x")]
    assert _hook(app, *inputs)["same"] == [0, 1, 1, 0, 1, 1, 6]


def test_the_hook_reads_what_the_real_client_holds(app: Path, server: Serving) -> None:
    with RealClient() as client:
        asked = [{"id": "u", "role": "user", "content": QUESTION}]
        thread = f"hook-{app.name}"
        answer = client.run_at(f"{server.url}/agui", headers=server.headers, threadId=thread, messages=asked)
    ((name, record),) = answer["state"]["deepcitation"]["messages"].items()
    (seen,) = _hook(app, {"agUiState": answer["state"], "messageId": name})["seen"]
    assert {**seen, "messageId": name} == record
    assert seen["summary"]["verified"] > 0


def test_the_hook_is_small(newest: Path) -> None:
    """5 KB compressed, without React."""
    code = bundle(newest, 'export * from "./node_modules/citewire/react/hook.js"', "--minify")
    assert "deepcitation" in code
    assert len(gzip.compress(code.encode())) < 5 * 1024


@pytest.mark.parametrize(("module", "how"), [("esnext", "bundler"), ("nodenext", "nodenext")])
def test_the_types_fit_an_application(newest: Path, module: str, how: str) -> None:
    shutil.copy(SCRIPTS / "consumer.tsx", newest)
    check_types(newest, "consumer.tsx", "--jsx", "react-jsx", "--module", module, "--moduleResolution", how)


def test_the_components_keep_to_their_types(newest: Path) -> None:
    """They are JavaScript: what index.d.ts says of them has to hold."""
    shutil.copytree(WEB, newest / "source")
    files = sorted((newest / "source/react").glob("*.js"))
    check_types(
        newest, *files, "--allowJs", "--checkJs", "--module", "esnext", "--moduleResolution", "bundler"
    )


def test_the_package_holds_what_it_says(package: Package) -> None:
    said = json.loads((WEB / "package.json").read_text())
    named = {path.removeprefix("./") for target in said["exports"].values() for path in _paths(target)}
    assert named <= package.held
    assert {path.rpartition(".")[2] for path in package.held} <= {"js", "json", "md", "ts"}
    python = tomllib.loads((WEB / "../../../pyproject.toml").read_text())["project"]
    assert (said["name"], said["version"]) == (python["name"], citewire.__version__)


def _paths(target: str | dict[str, str]) -> list[str]:
    return [target] if isinstance(target, str) else list(target.values())


def test_every_entry_of_the_package_can_be_bundled(newest: Path) -> None:
    package = json.loads((WEB / "package.json").read_text())
    entries = [f"citewire{name[1:]}" for name, target in package["exports"].items() if "default" in target]
    assert bundle(newest, "".join(f'export * as n{at} from "{entry}";' for at, entry in enumerate(entries)))


def test_a_server_can_import_every_entry_but_the_elements(app: Path) -> None:
    """There is no `customElements` where pages are rendered beforehand."""
    imports = "".join(f'import "citewire/{name}";' for name in ("client", "react", "thread", "view", "words"))
    code = f"{imports} console.log(typeof customElements)"
    assert run("node", "--input-type=module", "--eval", code, folder=app) == "undefined\n"


def test_a_page_that_a_server_rendered(app: Path, page: Page, tmp_path: Path) -> None:
    """Everybody can read it before anything runs, and nothing has to be drawn again."""
    source = (SCRIPTS / "rendered.jsx").read_text()
    rendering = (
        'import { renderToString } from "react-dom/server"; process.stdout.write(renderToString(page));'
    )
    html = run("node", "--input-type=module", "--eval", source + rendering, folder=app)
    assert '<cite-answer id="a" class="mine">30 days [1] &lt;img src=x' in html
    taking = (
        'import { hydrateRoot } from "react-dom/client"; hydrateRoot(document.querySelector("div"), page);'
    )
    code = bundle(app, source + taking)
    with _site(tmp_path, f"<div>{html}</div>", code) as url:
        page.goto(url)
        expect(page.locator("cite-answer.mine cite-marker").get_by_role("button")).to_have_accessible_name(
            re.compile("Citation 1: Not found")
        )
        expect(page.locator("[data-variant=brackets]")).to_contain_text("[<img src=x onerror=alert(1)>1…]")
        expect(page.locator("cite-summary")).to_contain_text("1 not found")
        expect(page.locator("[data-variant=text] cite-marker")).to_have_count(6)
    assert chromium.complaints(page) == []


def test_reviews_go_with_the_next_run_and_with_no_other(newest: Path) -> None:
    first, second, third, other, held, polluted = _node(newest, "reviews.mjs")
    at = {"at": "2026-11-16T08:00:00.000Z"}
    closed = {"event": "popover_closed", "dwellMs": 3, **at}
    rest = {"theme": "dark", "deepcitation": {"messages": {"m": 1}}}
    assert first["deepcitation"]["reviews"] == {"a/b": {"__proto__": [{"event": "popover_opened", **at}]}}
    assert second["deepcitation"] == {"messages": {"m": 1}, "reviews": {"a/b": {"k": [closed]}}}
    assert third == rest
    assert other["x"]["reviews"] == {"a/b": {"k": [closed, closed]}}
    assert held["deepcitation"]["reviews"] == {"old": {}}
    assert polluted == 0


@contextmanager
def _site(folder: Path, body: str, code: str) -> Generator[str]:
    """A page with this in it."""
    script = "<script type=module src=/app.js></script>"
    html = f"<!doctype html><link rel=icon href=data:,><title>React</title>{body}{script}"
    (folder / "index.html").write_text(html)
    (folder / "app.js").write_text(code)
    with served(folder) as url:
        yield url


@pytest.fixture(scope="module")
def chat(app: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The chat on a page."""
    with _site(
        tmp_path_factory.mktemp("chat"), "<div></div>", bundle(app, (SCRIPTS / "chat.jsx").read_text())
    ) as url:
        yield url


def test_a_chat_in_a_browser(app: Path, chat: str, server: Serving, page: Page) -> None:
    page.goto(f"{chat}/#server={server.url}&key={server.key}")
    page.get_by_role("button", name="Ask").click()
    answer = page.locator("article")
    expect(answer).to_have_attribute("data-status", "complete")
    version = json.loads((app / "node_modules/react/package.json").read_text())["version"]
    assert page.evaluate("version") == version

    # The hook has what the server keeps.
    ((message, record),) = server.get(f"/threads/{version}")["state"]["deepcitation"]["messages"].items()
    assert {**page.evaluate("hooked"), "messageId": message} == record
    total = record["summary"]["total"]

    # The elements have it too.
    inline = answer.locator("cite-answer.mine")
    expect(inline).to_contain_text("30 days of delivery")
    expect(inline.locator("cite-marker")).to_have_count(total)
    expect(answer.locator("cite-summary")).to_contain_text(f"{total} verified")
    expect(answer.locator("cite-sources")).to_contain_text("refund-policy.html")

    # So do citations that stand alone; what is loading is not verified, whatever is known.
    alone = answer.locator("span[data-variant]")
    expect(alone).to_have_count(total)
    expect(alone.first).to_contain_text("see refund-policy.html1✓")
    expect(alone.first.get_by_role("button")).to_have_accessible_name(re.compile("Citation 1: Verified"))
    expect(alone.nth(1).get_by_role("button")).to_have_accessible_name(
        re.compile("Citation 2: Being checked")
    )

    # Who looks at a card tells so, now and with the next run.
    inline.get_by_role("button").first.click()
    expect(page.locator("cite-card:popover-open")).to_be_visible()
    page.wait_for_function("reviewed.some(({ event }) => event === 'citation_reviewed')")
    page.keyboard.press("Escape")
    page.wait_for_function("reviewed.some(({ event }) => event === 'popover_closed')")
    told = page.evaluate("reviewed")
    assert [each["event"] for each in told] == ["popover_opened", "citation_reviewed", "popover_closed"]
    assert {each["messageId"] for each in told} == {message}
    page.get_by_role("button", name="Ask").click()
    expect(answer).to_have_count(2)
    expect(answer.last).to_have_attribute("data-status", "complete")
    kept = server.get(f"/threads/{version}")["state"]["deepcitation"]["reviews"][message][told[0]["key"]]
    assert [each["event"] for each in kept] == [each["event"] for each in told]
    assert [_time(each["claimedAt"]) for each in kept] == [_time(each["at"]) for each in told]
    assert chromium.complaints(page) == []


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text)
