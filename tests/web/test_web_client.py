"""client.js against a real server: whatever happens to the line between them, both have the same thread."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from itertools import chain
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import pytest

from citewire.agui import Thread
from support.app import App, listening, opened_app
from support.cases import ROOT
from support.loopback import EVENTS, HOLD, Loopback
from support.server_agents import VISIBLE
from support.server_process import Serving
from support.web_page import Line, Page, Talk, opened_line, opened_page

Json = dict[str, Any]
POLICY = ROOT / "src/citewire/samples/refund-policy.html"


class House(NamedTuple):
    """A server, a page of it, and the line between them."""

    app: App
    page: Page
    line: Line
    pipe: Path

    def go_on(self) -> None:
        """Let the agent go on that is held."""
        self.pipe.write_bytes(b"x")

    async def log(self, thread: str) -> list[Json]:
        """The events of a thread as the server has them."""
        answer = await self.app.ask("GET", f"/threads/{thread}/events")
        return [row["event"] for row in answer.json["events"]]


@asynccontextmanager
async def opened_house(
    folder: Path, limits: Iterator[int] | None = None, **given: Any
) -> AsyncGenerator[House]:
    pipe = folder / "pipe"
    os.mkfifo(pipe)
    settings: Json = {"agent": "support.server_agents:held", "sources": (str(POLICY),), **given}
    async with (
        opened_app(folder / "data", **settings) as app,
        listening(app) as address,
        opened_line(address, limits) as (url, line),
        opened_page(url, app.key) as page,
    ):
        yield House(app, page, line, pipe)


async def held(talk: Talk) -> None:
    """Until the agent is in the middle of its answer."""
    await talk.until(
        lambda line: len([each for each in talk.events if each["type"].endswith("CONTENT")]) >= 2
    )


async def same_as_the_log(house: House, view: Json, thread: str = "t") -> None:
    """The view of the page is that of the server's log."""
    folded = Thread(messages=view["messages"][:1])
    folded.extend(await house.log(thread))
    expected = folded.contract.to_json()
    assert view["messages"][-1]["content"] == VISIBLE
    assert [each["extra"]["citewire"]["status"] for each in view["messages"][-1]["citations"]] == ["verified"]
    # Links to proofs are signed anew for each who reads them.
    for name in ("status", "error", "toolCalls", "problems"):
        assert view[name] == expected[name], name
    assert [unsigned(each) for each in view["messages"]] == [unsigned(each) for each in expected["messages"]]


def unsigned(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: unsigned(each) for name, each in value.items()}  # pyright: ignore[reportUnknownVariableType]
    if isinstance(value, list):
        return [unsigned(each) for each in value]  # pyright: ignore[reportUnknownVariableType]
    return value.partition("?sig=")[0] if isinstance(value, str) else value


def test_ask(tmp_path: Path) -> None:
    async def main() -> None:
        async with opened_house(tmp_path) as house:
            talk = house.page.begin("ask", thread='a/b "c"', text="How long?")
            last = await talk.over()
            assert (talk.statuses, last["view"]["status"]) == (["connecting", "live"], "idle")
            assert talk.events == await house.log("a%2Fb%20%22c%22")
            await same_as_the_log(house, last["view"], "a%2Fb%20%22c%22")

    asyncio.run(main())


def test_a_line_that_breaks_in_the_middle(tmp_path: Path) -> None:
    """The page is told, comes back by itself and misses nothing; another page that joins has the same."""

    async def main() -> None:
        async with opened_house(tmp_path) as house:
            talk = house.page.begin("ask", thread="t", text=str(house.pipe))
            await held(talk)
            house.line.cut()
            assert (await talk.status("retrying"))["error"]["code"] == "stream_ended"
            await talk.status("live")
            other = house.page.begin("join", thread="t")
            await held(other)
            house.go_on()
            first, second = await talk.over(), await other.over()
            assert talk.events == await house.log("t")
            await same_as_the_log(house, first["view"])
            assert unsigned(second["view"]["messages"]) == unsigned(first["view"]["messages"])
            assert unsigned(second["view"]["state"]) == unsigned(first["view"]["state"])

    asyncio.run(main())


@pytest.mark.parametrize("seed", range(3))
def test_a_line_that_breaks_all_the_time(tmp_path: Path, seed: int) -> None:
    """Wherever it breaks: in the head of an answer, in a frame, in a character."""
    limits = chain((700, 1500), Random(seed).choices((90, 700, 2500, 4000), k=1000))

    async def main() -> None:
        async with opened_house(tmp_path, limits) as house:
            asked = house.page.begin("ask", thread="t", text="How long?")
            last = await asked.over()
            assert asked.events == await house.log("t")
            await same_as_the_log(house, last["view"])
            assert house.line.connections > 2
            joined = await house.page.done("join", thread="t")
            assert unsigned(joined["view"]["messages"]) == unsigned(last["view"]["messages"])

    asyncio.run(main())


def test_stop_and_ask_anew(tmp_path: Path) -> None:
    async def main() -> None:
        async with opened_house(tmp_path) as house:
            talk = house.page.begin("ask", thread="t", text=str(house.pipe))
            await held(talk)
            assert "failed" not in await house.page.done("stop", thread="t")
            last = await talk.over()
            assert (talk.events[-1]["code"], last["view"]["status"]) == ("stopped", "idle")
            again = house.page.begin("regenerate", thread="t", message="answer")
            await held(again)
            house.go_on()
            view = (await again.over())["view"]
            assert [each["role"] for each in view["messages"]] == ["user", "assistant"]
            assert view["messages"][-1]["content"] == VISIBLE
            assert view["messages"][0] == last["view"]["messages"][0]

    asyncio.run(main())


def test_who_leaves_comes_back(tmp_path: Path) -> None:
    """The run goes on without anybody, and is there whole."""

    async def main() -> None:
        async with opened_house(tmp_path) as house:
            talk = house.page.begin("ask", thread="t", text=str(house.pipe))
            await held(talk)
            talk.leave()
            left = await talk.over()
            assert (left["failed"]["name"], left["view"]["status"]) == ("AbortError", "idle")
            house.go_on()
            await house.app.server.runs.wait_idle()
            joined = await house.page.done("join", thread="t")
            assert joined["view"]["messages"][-1]["content"] == VISIBLE

    asyncio.run(main())


def test_sources(tmp_path: Path) -> None:
    async def main() -> None:
        async with opened_house(tmp_path) as house:
            watch = house.page.begin("watch")
            await watch.until(lambda line: line.get("event", {}).get("event") == "snapshot")
            text = "It is so. " * 40_000
            upload = house.page.begin("upload", name="", text=text)
            assert (await upload.over())["failed"]["code"] == "bad_input"
            upload = house.page.begin("upload", name="so.txt", text=text)
            added = (await upload.over())["value"]
            assert (added["name"], added["size"]) == ("so.txt", len(text))
            shares = [line["progress"] for line in upload.said if "progress" in line]
            assert (shares, shares[-1]) == (sorted(shares), 1)
            await watch.until(
                lambda line: (
                    line.get("event", {}).get("data", {}).get("id") == added["id"]
                    and line["event"]["data"]["state"] == "ready"
                )
            )
            house.line.cut()
            await watch.status("retrying")
            await watch.until(lambda line: line.get("event", {}).get("event") == "snapshot")
            listed = (await house.page.done("sources"))["value"]
            assert {each["name"] for each in listed["sources"]} == {"so.txt", POLICY.name}
            refused = await house.page.done("url", url="http://127.0.0.1/")
            assert (refused["failed"]["name"], refused["failed"]["code"]) == ("WireError", "address_refused")
            watch.leave()
            assert (await watch.over())["failed"]["name"] == "AbortError"

    asyncio.run(main())


def test_reviews(tmp_path: Path) -> None:
    async def main() -> None:
        async with opened_house(tmp_path) as house:
            view = (await house.page.done("ask", thread="t", text="How long?"))["view"]
            ((message, record),) = view["state"]["deepcitation"]["messages"].items()
            review: Json = {
                "messageId": message,
                "key": next(iter(record["citations"])),
                "event": "citation_reviewed",
            }
            assert "failed" not in await house.page.done(
                "review", thread="t", review=review | {"dwellMs": 2500}
            )
            wrong = await house.page.done("review", thread="t", review=review | {"event": "seen"})
            assert (wrong["failed"]["code"], wrong["failed"]["status"]) == ("bad_shape", 400)

    asyncio.run(main())


def test_what_the_server_refuses(tmp_path: Path) -> None:
    """Nothing is asked again that would be refused again, and the thread says what was wrong."""

    async def main() -> None:
        async with opened_app(tmp_path) as app, listening(app) as (host, port):
            async with opened_page(f"http://{host}:{port}", "no.key:at-all") as page:
                talk = page.begin("ask", thread="t", text="?")
                last = await talk.over()
                assert (last["failed"]["code"], last["failed"]["status"]) == ("bad_credentials", 401)
                assert (talk.statuses, last["view"]["status"]) == (["connecting", "lost"], "error")
                assert last["view"]["error"] == last["failed"]["message"]
                assert [each["content"] for each in last["view"]["messages"]] == ["?"]
            async with opened_page(f"http://{host}:{port}", app.key) as page:
                assert (await page.done("join", thread="none"))["failed"]["status"] == 404
                assert (await page.done("stop", thread="none"))["failed"]["code"] == "not_found"
                assert (await page.done("regenerate", thread="none", message="m"))["failed"][
                    "code"
                ] == "cannot_regenerate"

    asyncio.run(main())


def test_a_server_that_is_gone(tmp_path: Path) -> None:
    """It is asked again, so many times and no more."""

    async def main() -> None:
        async with opened_page("http://127.0.0.1:9", "a:b", retries=1) as page:
            talk = page.begin("ask", thread="t", text="?")
            last = await talk.over()
            assert talk.statuses == ["connecting", "retrying", "connecting", "lost"]
            assert (last["failed"]["code"], last["view"]["status"]) == ("connect_failed", "error")

    asyncio.run(main())


def test_a_server_that_starts_again(tmp_path: Path) -> None:
    """It breaks down in the middle of an answer; what it asks its agent again ends up on the page once."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    given = (
        "--agent",
        "support.server_agents:held",
        "--sources",
        POLICY,
        "--workers",
        "1",
        "--resume-runs",
        "always",
    )

    async def main(server: Serving) -> None:
        async with opened_page(server.url, server.key) as page:
            talk = page.begin("ask", thread="t", text=str(pipe))
            await held(talk)
            await asyncio.to_thread(server.kill)
            await talk.status("retrying")
            await asyncio.to_thread(server.start)
            await talk.status("live")
            await asyncio.to_thread(pipe.write_bytes, b"x")
            view = (await talk.over())["view"]
            assert [each["role"] for each in view["messages"]] == ["user", "assistant"]
            assert view["messages"][-1]["content"] == VISIBLE
            assert [each["extra"]["citewire"]["status"] for each in view["messages"][-1]["citations"]] == [
                "verified"
            ]

    with Serving(tmp_path / "data", *given, PYTHONPATH=str(Path(__file__).parents[1])) as server:
        asyncio.run(main(server))


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        pytest.param([EVENTS + b": ping\n\n", HOLD], "stalled", id="silence"),
        pytest.param([EVENTS + b"data: {}\n\n: no end"], "stream_ended", id="cut"),
        pytest.param(
            [b"HTTP/1.1 200 OK\r\ncontent-type: text/html\r\n\r\n<p>Hello"],
            "not_an_event_stream",
            id="a page",
        ),
        pytest.param(
            [b"HTTP/1.1 500 No\r\ncontent-length: 2\r\n\r\nno"], "bad_status", id="no error of ours"
        ),
        pytest.param(
            [EVENTS + b"data: " + b"x" * (11 << 20), HOLD], "frame_too_large", id="a frame without end"
        ),
    ],
)
def test_what_is_no_server_of_ours(answer: list[Any], code: str) -> None:
    async def main() -> None:
        async with Loopback(answer) as server, opened_page(server.url, "a:b", 1, quiet=1000) as page:
            last = await page.done("ask", thread="t", text="?")
            assert (last["failed"]["name"], last["failed"]["code"]) == ("WireError", code)
            assert last["view"]["status"] == "error"

    asyncio.run(main())
