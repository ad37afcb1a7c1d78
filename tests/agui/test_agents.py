"""The agents of other people, and the server they run on."""

import asyncio
import json
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import httpx2
import pytest

from support import agents
from support.agents import need_agents, serve

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

pytestmark = pytest.mark.slow

INPUT = {
    "threadId": "t",
    "runId": "r",
    "state": {"theme": "dark"},
    "messages": [{"id": "u", "role": "user", "content": "What is the capital of France?"}],
    "tools": [],
    "context": [],
    "forwardedProps": {},
}


def text(pieces: int) -> list[str]:
    return ["TEXT_MESSAGE_START", *["TEXT_MESSAGE_CONTENT"] * pieces, "TEXT_MESSAGE_END"]


def call(fragments: int) -> list[str]:
    return ["TOOL_CALL_START", *["TOOL_CALL_ARGS"] * fragments, "TOOL_CALL_END"]


def thought() -> list[str]:
    message = [f"REASONING_MESSAGE_{part}" for part in ("START", "CONTENT", "END")]
    return ["REASONING_START", *message, "REASONING_END"]


def step(*types: str) -> list[str]:
    return ["STEP_STARTED", *types, "STATE_SNAPSHOT", "STEP_FINISHED"]


@pytest.mark.parametrize(
    ("build", "inside"),
    [
        # Pydantic AI opens a message for its tool calls to belong to.
        (agents.pydantic_ai_test_model, [*text(0), *call(1), "TOOL_CALL_RESULT", *text(5)]),
        (
            agents.pydantic_ai_function_model,
            [*thought(), *text(0), *call(2), "TOOL_CALL_RESULT", "STATE_DELTA", "CUSTOM", *text(4)],
        ),
        (
            agents.langgraph_scripted,
            [
                *step(*call(2)),
                *step("TOOL_CALL_RESULT"),
                *step(*text(4)),
                "STATE_SNAPSHOT",
                "MESSAGES_SNAPSHOT",
            ],
        ),
        (agents.agno_scripted, ["STATE_SNAPSHOT", *text(4), "STATE_SNAPSHOT"]),
    ],
)
def test_an_agent_answers(build: "Callable[[], ASGIApp]", inside: list[str]) -> None:
    """RAW events are left out: where they stand is between a framework and its adapter."""
    need_agents()
    with serve(build()) as url, httpx2.Client(trust_env=False, timeout=20) as client:
        response = client.post(url + agents.PATH, json=INPUT)
    assert response.status_code == 200
    assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
    frames = response.text.removesuffix("\n\n").split("\n\n")
    events: list[dict[str, Any]] = [json.loads(frame.removeprefix("data: ")) for frame in frames]
    types = [event["type"] for event in events if event["type"] != "RAW"]
    assert types == ["RUN_STARTED", *inside, "RUN_FINISHED"]
    said = [event["delta"] for event in events if event["type"] == "TEXT_MESSAGE_CONTENT"]
    assert "".join(said) == agents.ANSWER


async def stalled(scope: "Scope", _receive: "Receive", send: "Send") -> None:
    """An app that begins an answer and never ends it."""
    assert scope["type"] == "http"
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"so far\n", "more_body": True})
    await asyncio.Event().wait()


async def broken(_scope: "Scope", _receive: "Receive", send: "Send") -> None:
    """An app that cannot start."""
    await send({"type": "lifespan.startup.failed", "message": "no database"})


def test_a_server_leaves_nothing_behind() -> None:
    """Not even when an answer is still under way."""
    need_agents()
    before = threading.enumerate()
    with httpx2.Client(trust_env=False, timeout=20) as client:
        with serve(stalled) as url, client.stream("GET", url) as response:
            assert next(response.iter_lines()) == "so far"
        with pytest.raises(httpx2.ConnectError):
            client.get(url)
    assert threading.enumerate() == before


def test_an_app_that_does_not_start_is_an_error() -> None:
    need_agents()
    with pytest.raises(RuntimeError, match="did not start"), serve(broken):
        pass
