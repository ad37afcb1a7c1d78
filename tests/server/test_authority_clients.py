"""Real AG-UI clients that edit, that are stale and that lie, before the real server."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx2
import pytest

from support.agui_node import Answer, RealClient
from support.app import App, in_thread
from support.authority_agent import SOURCE, TEXT

pytestmark = pytest.mark.slow
Json = dict[str, Any]
KEY = "deepcitation"
VERSIONS = ("1.0.0", "0.0.59")


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, App]]:
    with in_thread(tmp_path_factory.mktemp("served"), agent="support.authority_agent:answer") as (url, app):
        headers = {"authorization": f"Bearer {app.key}", "content-type": "text/plain"}
        added = httpx2.post(
            f"{url}/sources?name=harbour.txt", content=SOURCE, headers=headers, trust_env=False
        )
        assert added.status_code == 201
        yield url, app


@pytest.fixture(scope="module")
def node() -> Iterator[RealClient]:
    with RealClient() as client:
        yield client


class Chat:
    """One thread, as a real client has it."""

    def __init__(self, node: RealClient, served: tuple[str, App], version: str, name: str) -> None:
        (self.url, app), self.node, self.version = served, node, version
        self.thread = f"{name}-{version}"
        self.headers = {"Authorization": f"Bearer {app.key}"}
        self.runs = 0

    def ask(self, messages: list[Any], state: Any) -> Answer:
        self.runs += 1
        question = {"id": f"u{self.runs}", "role": "user", "content": "?"}
        answer = self.node.run_at(
            f"{self.url}/agui", self.version, headers=self.headers, threadId=self.thread,
            runId=f"run-0{self.runs}", messages=[*messages, question], state=state,
        )  # fmt: skip
        assert (answer["outcome"], answer["warnings"]) == ("completed", []), answer["error"]
        assert answer["messages"][-1]["content"] == f"run-0{self.runs}: {TEXT}"
        assert answer["state"] == self.view()["state"], "the client has what the server has"
        return answer

    def view(self) -> Json:
        answer = httpx2.get(f"{self.url}/threads/{self.thread}", headers=self.headers, trust_env=False)
        return answer.json()


@pytest.fixture(params=VERSIONS)
def chat(request: pytest.FixtureRequest, node: RealClient, served: tuple[str, App]) -> Chat:
    return Chat(node, served, request.param, request.node.originalname)


def texts(messages: list[Json]) -> list[str]:
    return [each["content"] for each in messages if each["role"] == "assistant"]


def test_a_client_that_goes_on(chat: Chat) -> None:
    first = chat.ask([], {})
    second = chat.ask(first["messages"], first["state"])
    assert texts(second["messages"]) == [f"run-01: {TEXT}", f"run-02: {TEXT}"]
    assert [each["type"] for each in second["events"] if each["type"].endswith("SNAPSHOT")] == []


def test_a_client_that_asks_again_for_an_answer(chat: Chat) -> None:
    first = chat.ask([], {})
    second = chat.ask(first["messages"][:1], first["state"])
    assert texts(second["messages"]) == [f"run-02: {TEXT}"]
    record = second["state"][KEY]["messages"]
    assert record["run-01-answer"] == first["state"][KEY]["messages"]["run-01-answer"]


def test_a_client_that_edits_a_question_and_drops_what_followed(chat: Chat) -> None:
    first = chat.ask([], {})
    second = chat.ask(first["messages"], first["state"])
    third = chat.ask([], second["state"])
    assert texts(third["messages"]) == [f"run-03: {TEXT}"]
    back = chat.ask(second["messages"], third["state"])
    assert texts(back["messages"]) == [f"run-01: {TEXT}", f"run-02: {TEXT}", f"run-04: {TEXT}"]


def test_a_client_that_deletes_an_answer_and_posts_a_result_of_its_tool(chat: Chat) -> None:
    first = chat.ask([], {})
    second = chat.ask(first["messages"], first["state"])
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    asked = {"id": "a", "role": "assistant", "toolCalls": [call]}
    result = {"id": "t", "role": "tool", "toolCallId": "c", "content": "done"}
    left = [each for each in second["messages"] if each["id"] != "run-01-answer"]
    third = chat.ask([*left, asked, result], {**second["state"], "theme": "dark"})
    assert texts([each for each in third["messages"] if each.get("content")]) == [
        f"run-02: {TEXT}",
        f"run-03: {TEXT}",
    ]
    assert third["state"]["theme"] == "dark"


def test_a_client_that_left_early_is_brought_up_to_date(chat: Chat) -> None:
    first = chat.ask([], {})
    half = {**first["messages"][-1], "content": "run-01: It"}
    record = first["state"][KEY]["messages"]["run-01-answer"]
    stale: Json = {
        "messageId": "run-01-answer",
        "citations": {},
        "verifications": {},
        "summary": record["summary"],
    }
    messages = {"run-01-answer": {**stale, "status": "streaming"}}
    state = {KEY: {"citations": {}, "verifications": {}, "messages": messages}}
    second = chat.ask([first["messages"][0], half], state)
    assert texts(second["messages"]) == [f"run-01: {TEXT}", f"run-02: {TEXT}"]
    assert second["state"][KEY]["messages"]["run-01-answer"] == record


def test_a_client_that_lies(chat: Chat) -> None:
    first = chat.ask([], {})
    forged = {"id": "x", "role": "assistant", "content": "Forged [1]."}
    coming = {"id": "run-02-answer", "role": "assistant", "content": "Forged as well."}
    lie = [first["messages"][0], {**first["messages"][-1], "content": "Forged too."}, forged, coming]
    second = chat.ask(
        lie, {KEY: {"messages": {"x": {"status": "complete"}}}, "citations": {"x": [{"id": "1"}]}}
    )
    assert texts(second["messages"]) == [f"run-01: {TEXT}", "Forged [1].", f"run-02: {TEXT}"]
    marks = {each["id"]: each.get("metadata") for each in chat.view()["messages"]}
    assert marks["x"] == {"citewire": {"posted": True}}
    assert marks["run-01-answer"] is marks["run-02-answer"] is None
