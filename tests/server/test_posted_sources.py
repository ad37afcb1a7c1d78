"""What a client brings to a run never passes for a source of the library, and a verdict on it says so."""

from __future__ import annotations

import asyncio
import csv
import io
from base64 import b64encode
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from citewire import codec
from citewire.agui import Thread
from citewire.agui.events import RunInput, to_dict
from citewire.agui.middleware import Citing
from citewire.agui.sse import SseParser
from citewire.audit.export_check import check_export
from citewire.documents import fetch
from citewire.verification.document_set import CheckResult
from citewire.verification.engine import Engine
from citewire.verification.sources import SourceContent, SourceOrigin, SourceUrl
from citewire.verification.verifier import QuoteCheck
from support.annotated_stream import FINISHED, STARTED, answer, block
from support.app import App, opened_app
from support.loopback import Loopback
from support.loopback import answer as http_answer
from support.scripted_tools import Json

KEY = "deepcitation"
TRUE, FORGED = "Refunds take 30 days.", "Refunds take 90 days."
POSTED = "the source was posted with the question"
CLIENT_TOOL = "the source is what a tool of the client returned"
POLICY = SourceContent(TRUE, "policy.txt", "https://shop.example/policy", also=("src1",))
PAGE = SourceContent(
    f"<html><head><title>Terms of Sale</title></head><body><p>{TRUE}</p></body></html>", "t.html"
)


def posted(content: str = FORGED, name: str = "policy.txt", **more: Any) -> SourceContent:
    fields: dict[str, Any] = {"origin": "posted", **more}
    return SourceContent(content, name, **fields)


def checked_with(
    sources: list[SourceContent], brought: list[SourceContent | SourceUrl], asked: QuoteCheck
) -> CheckResult:
    async def main() -> CheckResult:
        async with Engine(sources, workers=1) as engine:
            await engine.add(*brought, scope="run")
            (found,) = [each async for each in engine.check([asked])]
            return found

    return asyncio.run(main())


NAMED: dict[str, tuple[SourceContent, dict[str, Any]]] = {
    "its name": (posted(), {"source": "policy.txt"}),
    "its name, likely": (posted(), {"likely": ("policy.txt",)}),
    "another case": (posted(name="POLICY.TXT"), {"likely": ("Policy.txt",)}),
    "without its ending": (posted(name="policy.md"), {"likely": ("policy",)}),
    "its address": (posted(url="https://shop.example/policy"), {"likely": ("https://shop.example/policy",)}),
    "its id": (posted(name="src1"), {"likely": ("src1",)}),
    "the title that it has in itself": (posted(name="Terms of Sale"), {"source": "terms of sale"}),
    "a second name": (posted(name="zz", title="policy.txt"), {"likely": ("zz", "policy.txt")}),
    "the result of a client's tool": (posted(origin="client_tool"), {"likely": ("policy.txt",)}),
}  # fmt: skip


@pytest.mark.parametrize(("brought", "named"), NAMED.values(), ids=NAMED.keys())
def test_a_citation_that_names_a_source_is_checked_there_only(
    brought: SourceContent, named: dict[str, Any]
) -> None:
    found = checked_with([POLICY, PAGE], [brought], QuoteCheck("a", FORGED, scope="run", **named))
    assert (found.status, found.origin, found.warnings) == ("altered", None, ())
    assert found.source in {"policy.txt", "t.html"}


OWN: dict[str, tuple[SourceContent, dict[str, Any], str, SourceOrigin]] = {
    "its own name": (posted(name="letter.txt"), {"likely": ("letter.txt",)}, "letter.txt", "posted"),
    "no name": (posted(), {}, "policy.txt (posted)", "posted"),
    "a name that it shares, by its own": (
        posted(), {"likely": ("policy.txt (posted)",)}, "policy.txt (posted)", "posted",
    ),
    "an id, while its name is taken": (
        posted(also=("zz",)), {"likely": ("zz",)}, "policy.txt (posted)", "posted",
    ),
    "a place in a list": (posted(name="letter.txt"), {"likely": ("letter.txt", "1")}, "letter.txt", "posted"),
    "a client's tool": (
        posted(name="cart", origin="client_tool"), {"likely": ("cart",)}, "cart", "client_tool",
    ),
    "a client's tool, no name": (posted(origin="client_tool"), {}, "policy.txt (client tool)", "client_tool"),
}  # fmt: skip


@pytest.mark.parametrize(("brought", "named", "name", "origin"), OWN.values(), ids=OWN.keys())
def test_a_verdict_on_what_a_client_brought_says_so(
    brought: SourceContent, named: dict[str, Any], name: str, origin: SourceOrigin
) -> None:
    sources = [POLICY, SourceContent("Nothing of the kind.", "1.txt")]
    found = checked_with(sources, [brought], QuoteCheck("a", FORGED, scope="run", **named))
    assert (found.status, found.source, found.origin) == ("verified", name, origin)
    assert found.warnings == ((POSTED if origin == "posted" else CLIENT_TOOL),)


def test_a_page_whose_address_a_client_posted_takes_no_name_either(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its address ends like a source of the library is called."""
    route = fetch.Route(allow=lambda _address, _port: True)
    monkeypatch.setattr(fetch, "fetch", partial(fetch.fetch, route=route))

    async def main() -> tuple[CheckResult, CheckResult]:
        page = http_answer(FORGED.encode(), "text/plain")
        async with Loopback([page]) as server, Engine([POLICY], workers=1) as engine:
            url = server.url.replace("/agui", "/policy.txt")
            await engine.add(SourceUrl(url, "posted"), scope="run")
            asked = [QuoteCheck(name, FORGED, likely=(name,), scope="run") for name in ("policy.txt", url)]
            found = {each.id: each async for each in engine.check(asked)}
            return found["policy.txt"], found[url]

    named, own = asyncio.run(main())
    assert (named.status, named.source, named.origin) == ("altered", "policy.txt", None)
    assert (own.status, own.origin, own.warnings) == ("verified", "posted", (POSTED,))


# --- the server ---------------------------------------------------------------------------------------------


def with_app(folder: Path, main: Callable[[App], Awaitable[None]]) -> None:
    async def opened() -> None:
        async with opened_app(folder, agent="support.scripted_tools:script") as app:
            await app.ask("POST", "/sources?name=policy.txt", TRUE.encode())
            await main(app)

    asyncio.run(opened())


async def run(
    app: App, events: list[Json], messages: list[Any], run_id: str = "r", **more: Any
) -> list[Json]:
    body = {"threadId": "t", "runId": run_id, "messages": messages, "forwardedProps": {"events": events}}
    got = await app.ask("POST", "/agui", {"tools": [], "context": [], "state": {}, **body, **more})
    assert got.status == 200, got
    sent = [codec.decode(frame.data) for frame in SseParser().feed(got.body) if frame.data]
    assert sent[-1]["type"] == "RUN_FINISHED", sent[-1]
    return sent


async def verdict(app: App, name: str = "m") -> Json:
    """The only verdict on an answer, as the thread has it."""
    state = (await app.ask("GET", "/threads/t")).json["state"]
    (only,) = state[KEY]["messages"][name]["verifications"].values()
    return only


def user(*parts: Json) -> Json:
    return {"id": "u", "role": "user", "content": [{"type": "text", "text": "?"}, *parts]}


def document(text: str, name: str) -> Json:
    source = {"type": "data", "value": b64encode(text.encode()).decode(), "mimeType": "text/plain"}
    return {"type": "document", "source": source, "metadata": {"filename": name}}


def tool(text: str, name: str, call: str = "c") -> Json:
    content = codec.encode([{"title": name, "text": text}]).decode()
    return {"id": f"t-{call}", "role": "tool", "toolCallId": call, "content": content}


def cites(source: str, name: str = "m", quote: str = FORGED) -> list[Json]:
    return answer(f"Refunds [1].{block(quote, source=source)}", name)


BROUGHT: dict[str, Callable[[str], Json]] = {
    "an attachment": lambda name: {"messages": [user(document(FORGED, name))]},
    "a tool's result": lambda name: {"messages": [user(), tool(FORGED, name)]},
    "context": lambda name: {"messages": [user()], "context": [{"description": name, "value": FORGED}]},
}


@pytest.mark.parametrize("brought", BROUGHT.values(), ids=BROUGHT.keys())
def test_a_posted_text_is_no_source_of_the_server(tmp_path: Path, brought: Callable[[str], Json]) -> None:
    async def main(app: App) -> None:
        for at, (name, cited, status, source, origin) in enumerate(
            [
                ("policy.txt", "policy.txt", "altered", "policy.txt", None),
                ("policy.txt", "another", "verified", "policy.txt (posted)", "posted"),
                ("letter.txt", "letter.txt", "verified", "letter.txt", "posted"),
            ]
        ):
            await run(app, cites(cited, f"m{at}"), run_id=f"r{at}", **brought(name))
            found = (await verdict(app, f"m{at}"))["citewire"]
            assert (found["status"], found["source"], found.get("origin")) == (status, source, origin)
            assert (POSTED in found.get("warnings", ())) is (origin == "posted")

    with_app(tmp_path, main)


def test_every_record_says_that_a_source_was_posted(tmp_path: Path) -> None:
    """The list of citations, the proof, the channel, and the audit in all its forms."""

    async def main(app: App) -> None:
        await run(app, cites("letter.txt"), [user(document(FORGED, "letter.txt"))])
        thread = (await app.ask("GET", "/threads/t")).json
        (entry,) = thread["state"]["citations"]["m"]
        assert entry["extra"]["citewire"]["origin"] == "posted"
        proof = (await verdict(app))["citewire"]["proof"]
        page = await app.ask("GET", proof[proof.index("/proofs/") :])
        assert POSTED in page.body.decode()
        (cited,) = (await app.ask("GET", "/threads/t/record")).json["citations"]
        assert (cited["verdict"]["status"], cited["verdict"]["origin"]) == ("verified", "posted")
        export = (await app.ask("GET", "/audit")).body
        assert b'"origin":"posted"' in export
        assert not check_export(export.splitlines(keepends=True)).breaks
        (row,) = csv.DictReader(io.StringIO((await app.ask("GET", "/audit?format=csv")).body.decode()))
        assert (row["status"], row["origin"]) == ("verified", "posted")
        assert POSTED in (await app.ask("GET", "/audit?format=html")).body.decode()

    with_app(tmp_path, main)


# --- results of tools ---------------------------------------------------------------------------------------

CALL = [
    {"type": "TOOL_CALL_START", "toolCallId": "c", "toolCallName": "look"},
    {"type": "TOOL_CALL_END", "toolCallId": "c"},
]
RESULT = {
    "type": "TOOL_CALL_RESULT",
    "messageId": "t-c",
    "toolCallId": "c",
    "content": tool(FORGED, "notes")["content"],
}


def caller(name: str, call: str) -> Json:
    """A message of the assistant that calls a tool."""
    function = {"name": "look", "arguments": "{}"}
    return {
        "id": name,
        "role": "assistant",
        "toolCalls": [{"id": call, "type": "function", "function": function}],
    }


AGENTS = caller("c", "c")
Shown = tuple[str, str | None]
RESULTS: dict[str, tuple[list[Json], list[Json], Shown]] = {
    "the agent's, in the log": ([*CALL, RESULT], [AGENTS, tool(FORGED, "notes")], ("verified", None)),
    "the agent's, changed by the client": (
        [*CALL, {**RESULT, "content": tool(TRUE, "notes")["content"]}],
        [AGENTS, tool(FORGED, "notes")],
        ("altered", None),
    ),
    "another one to a call that the log answers": (
        [*CALL, {**RESULT, "content": "nothing"}],
        [AGENTS, {**tool(FORGED, "notes"), "id": "mine"}],
        ("verified", "posted"),
    ),
    "the same, with the agent's left out": (
        [*CALL, {**RESULT, "content": "nothing"}],
        [{**tool(FORGED, "notes"), "id": "mine"}],
        ("verified", "posted"),
    ),
    "to a call that the client answers": (CALL, [AGENTS, tool(FORGED, "notes")], ("verified", "client_tool")),
    "to a call that the client made up": (
        CALL, [caller("x", "d"), tool(FORGED, "notes", "d")], ("verified", "posted"),
    ),
    "to no call": ([], [tool(FORGED, "notes", "e")], ("verified", "posted")),
}  # fmt: skip


@pytest.mark.parametrize(("first", "second", "shown"), RESULTS.values(), ids=RESULTS.keys())
def test_whose_a_result_of_a_tool_is(
    tmp_path: Path, first: list[Json], second: list[Json], shown: Shown
) -> None:
    async def main(app: App) -> None:
        await run(app, first, [user()])
        await run(app, cites("notes"), [user(), *second], "r2")
        found = (await verdict(app))["citewire"]
        assert (found["status"], found.get("origin")) == shown
        said = {"posted": [POSTED], "client_tool": [CLIENT_TOOL], None: []}[shown[1]]
        assert found.get("warnings", []) == said

    with_app(tmp_path, main)


def test_a_result_that_came_in_the_run_itself_is_the_agents(tmp_path: Path) -> None:
    """Also beside a posted text of the same name."""

    async def main(app: App) -> None:
        other = "Refunds take 60 days."
        given = [user(document(other, "notes"))]
        await run(app, [*CALL, RESULT, *cites("notes")], given)
        assert "origin" not in (await verdict(app))["citewire"]
        await run(app, cites("notes", "n", other), [*given, AGENTS, tool(FORGED, "notes")], "r2")
        found = (await verdict(app, "n"))["citewire"]
        assert (found["status"], found.get("origin")) == ("altered", None)

    with_app(tmp_path, main)


@pytest.mark.parametrize("is_streamed", [True, False])
def test_the_middleware_knows_the_results_of_its_own_run(is_streamed: bool) -> None:
    """Without a log, what came before is posted."""
    said = (STARTED, *([*CALL, RESULT] if is_streamed else ()), *cites("notes"), FINISHED)

    async def agent(_: RunInput) -> AsyncIterator[Any]:
        for event in said:
            yield event

    async def main() -> Any:
        thread = Thread(state={})
        earlier = [user(), *([] if is_streamed else [AGENTS, tool(FORGED, "notes")])]
        given = RunInput(thread_id="t", run_id="r", messages=earlier, state={})
        async with Citing([POLICY]) as citing:
            thread.extend([to_dict(event) async for event in citing(given, agent)])
        return thread.agui.state

    (found,) = asyncio.run(main())[KEY]["messages"]["m"]["verifications"].values()
    assert found["citewire"]["status"] == "verified"
    assert found["citewire"].get("origin") == (None if is_streamed else "posted")
