"""People who edit in CopilotKit: they ask again, delete, change and stop. The answers of the server stay."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from citewire.agui.citations.posted_messages import is_posted
from support import browser as chromium
from support.agui_node import NODE
from support.bundle import served
from support.cases import ROOT
from support.copilotkit import bundle_with_copilotkit, need_copilotkit
from support.server_agents import VISIBLE
from support.server_process import Serving

pytestmark = pytest.mark.timeout(120)

browser, context, page = chromium.browser, chromium.context, chromium.page
PAGE = NODE / "copilotkit"
SAMPLES = ROOT / "src/citewire/samples"
# What the agent says before it waits.
HALF = "You have 30 days [1]"
Json = dict[str, Any]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A page with the chat of CopilotKit, on a server of its own."""
    need_copilotkit()
    folder = tmp_path_factory.mktemp("site")
    shutil.copy(PAGE / "index.html", folder)
    bundle_with_copilotkit(PAGE / "chat.jsx", folder)
    with served(folder) as url:
        yield url


@pytest.fixture(scope="module")
def server(site: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    """A server whose agent waits when it is asked about a pipe."""
    given = ("--agent", "support.server_agents:held_by_run", "--sources", SAMPLES, "--origin", site)
    folder = tmp_path_factory.mktemp("served") / "data"
    with Serving(folder, *given, PYTHONPATH=str(Path(__file__).parents[1])) as server:
        server.read_sources()
        yield server


class Chat:
    """A thread, as the page has it and as the server has it."""

    def __init__(self, page: Page, server: Serving) -> None:
        self.page, self.server = page, server

    def call(self, script: str, argument: Any = None) -> Any:
        """What a call of the page gives, once its promise is kept."""
        return self.page.evaluate(script, argument)

    def ask(self, question: str) -> str:
        """Ask, and wait for the end of the run; the id of the answer."""
        self.call(
            "(content) => chat.sendMessage({ id: crypto.randomUUID(), role: 'user', content })", question
        )
        return self.messages[-1]["id"]

    def ask_and_wait_for_half(self, pipe: Path) -> str:
        """Ask what the agent does not answer until somebody writes to the pipe; the id of the answer."""
        os.mkfifo(pipe)
        _type(self.page, str(pipe))
        expect(self.page.get_by_text(HALF, exact=True)).to_be_visible()
        return self.messages[-1]["id"]

    @property
    def messages(self) -> list[Json]:
        """The messages that the page posts with the next question."""
        return self.call("() => chat.agent.messages")

    @property
    def thread(self) -> str:
        return f"/threads/{self.call('() => chat.agent.threadId')}"

    def view(self) -> Json:
        """The thread on the server after a run. Nothing is under way in it, and the page has the same."""
        view = self.server.get(self.thread)
        assert view["status"] == "idle"
        assert set(_statuses(view).values()) <= {"complete", "error"}
        assert _shown(self.messages) == _shown(view["messages"])
        assert _unsigned(self.call("() => chat.agent.state")) == _unsigned(view["state"])
        assert chromium.complaints(self.page) == []
        return view


@pytest.fixture
def chat(page: Page, site: str, server: Serving) -> Chat:
    page.goto(f"{site}/#server={server.url}&key={server.key}")
    expect(page.get_by_role("textbox")).to_be_visible()
    return Chat(page, server)


def _type(page: Page, question: str) -> None:
    page.get_by_role("textbox").fill(question)
    page.get_by_role("textbox").press("Enter")


def _shown(messages: list[Json]) -> list[tuple[str, str]]:
    return [(each["id"], each["content"]) for each in messages]


def _statuses(view: Json) -> dict[str, str]:
    return {name: each["status"] for name, each in view["state"]["deepcitation"]["messages"].items()}


def _unsigned(value: Any) -> Any:
    """The same without the signatures of links, which change with time."""
    return json.loads(re.sub(r'\?sig=[^"]*', "", json.dumps(value)))


def _record(view: Json, answer: str) -> Any:
    """The citations and verdicts of an answer."""
    state = view["state"]
    return _unsigned((state["deepcitation"]["messages"][answer], state["citations"][answer]))


def test_an_answer_is_regenerated(chat: Chat) -> None:
    first, second = chat.ask("One?"), chat.ask("Two?")
    old, before = chat.messages, chat.view()
    assert _record(before, first)[0]["summary"]["verified"] == 1

    chat.call("(id) => chat.reloadMessages(id)", first)
    after = chat.view()
    third = chat.messages[-1]["id"]
    assert _shown(after["messages"]) == [_shown(old)[0], (third, VISIBLE)]
    assert _statuses(after) == dict.fromkeys((first, second, third), "complete")
    for answer in (first, second):
        assert _record(after, answer) == _record(before, answer)

    # The branch that was left is as it was when the page goes back to it.
    chat.call("(messages) => chat.setMessages(messages)", old)
    chat.ask("Three?")
    back = chat.view()
    assert _shown(back["messages"])[:4] == _shown(old)
    assert _record(back, third) == _record(after, third)


def test_messages_are_deleted_and_changed(chat: Chat) -> None:
    first, second = chat.ask("One?"), chat.ask("Two?")
    before = chat.view()

    chat.call("(id) => chat.deleteMessage(id)", first)
    third = chat.ask("Three?")
    after = chat.view()
    assert [name for name, _ in _shown(after["messages"]) if name.endswith("-answer")] == [second, third]
    assert _record(after, first) == _record(before, first)

    # CopilotKit lists a placeholder for a deleted answer. The page posts it as well, and changes all texts.
    chat.call("(id) => chat.deleteMessage(id)", third)
    chat.page.wait_for_function("() => chat.messages.at(-1).name === 'coagent-state-render'")
    # CopilotKit itself cannot copy the functions that are in its messages.
    change = "({ generativeUI, ...one }) => ({ ...one, content: `Changed by the ${one.role}.` })"
    chat.call(f"() => chat.setMessages(chat.messages.map({change}))")
    fourth = chat.ask("Four?")
    changed = chat.view()
    assert [each["content"] for each in changed["messages"]] == [
        *("Changed by the user.", "Changed by the user.", VISIBLE, "Changed by the user."),
        *("Changed by the assistant.", "Four?", VISIBLE),
    ]
    assert [each["id"] for each in changed["messages"] if is_posted(each)] == [changed["messages"][4]["id"]]
    assert set(_statuses(changed)) == {first, second, third, fourth}
    for answer in (first, second, third):
        assert _record(changed, answer) == _record(after, answer)


def _stop_by_hook(page: Page) -> None:
    asked = "{ id: crypto.randomUUID(), role: 'user', content: 'And then?' }"
    page.evaluate(f"() => {{ chat.stopGeneration(); chat.sendMessage({asked}); }}")


def _stop_by_button(page: Page) -> None:
    page.get_by_test_id("copilot-send-button").click()
    _type(page, "And then?")


@pytest.mark.parametrize("stop_and_ask", [_stop_by_hook, _stop_by_button])
def test_a_run_is_stopped_and_the_next_one_asked_for_at_once(
    chat: Chat, tmp_path: Path, stop_and_ask: Callable[[Page], None]
) -> None:
    first = chat.ask("One?")
    before = chat.view()
    second = chat.ask_and_wait_for_half(tmp_path / "pipe")
    stop_and_ask(chat.page)
    expect(chat.page.get_by_text(VISIBLE, exact=True)).to_have_count(2)
    chat.page.wait_for_function("() => !chat.isLoading")
    after, third = chat.view(), chat.messages[-1]["id"]
    assert _statuses(after) == {first: "complete", second: "error", third: "complete"}
    assert dict(_shown(after["messages"]))[second] == HALF
    assert _record(after, first) == _record(before, first)


def test_what_is_stale_does_not_overwrite_an_answer(chat: Chat, tmp_path: Path) -> None:
    """The page leaves a run that goes on. It posts half an answer and a state in which it is streaming."""
    pipe = tmp_path / "pipe"
    first = chat.ask_and_wait_for_half(pipe)
    stale = chat.call("() => [chat.agent.messages, chat.agent.state]")
    assert stale[1]["deepcitation"]["messages"][first]["status"] == "streaming"
    chat.call("() => chat.stopGeneration()")
    with chat.server.watch(f"{chat.thread}/events") as events:
        pipe.write_bytes(b"go")
        assert [event for _, event in events][-1]["type"] == "RUN_FINISHED"
    whole = chat.server.get(chat.thread)
    assert _statuses(whole) == {first: "complete"}

    second = chat.ask("Two?")
    chat.call("([messages, state]) => { chat.setMessages(messages); chat.agent.setState(state); }", stale)
    third = chat.ask("Three?")
    after = chat.view()
    assert dict(_shown(after["messages"]))[first] == VISIBLE
    assert _statuses(after) == dict.fromkeys((first, second, third), "complete")

    chat.call("() => chat.reset()")
    chat.ask("Four?")
    anew = chat.view()
    assert len(anew["messages"]) == 2
    for answer in (first, second, third):
        assert _record(anew, answer) == _record(after, answer)
    assert _record(after, first) == _record(whole, first)
