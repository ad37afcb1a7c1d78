"""Random streams through the real `@ag-ui/client` and through ours: the same messages, state and verdict."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from citewire.agui import Thread
from citewire.agui.events import coerce, to_dict
from citewire.agui.protocol import ProtocolEnforcer, ProtocolError, check
from support.agui_collisions import Collisions
from support.agui_node import Answer, RealClient, need_node
from support.agui_streams import Json, Streams
from support.soak import scaled

# Streams for each seed. With twenty times as many nothing else was found.
MANY = 1500
_MINTED = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|thinking-(?:message|span)-\d+")


@pytest.fixture(scope="module")
def client() -> Iterator[RealClient]:
    with RealClient() as real:
        yield real


def named(value: Any) -> Any:
    """`value` with the ids that either side makes up for thinking numbered in order."""
    names: dict[str, str] = {}
    text = _MINTED.sub(lambda made: names.setdefault(made[0], f"made-{len(names)}"), json.dumps(value))
    return json.loads(text)


def of_the_client(answer: Answer) -> Json:
    return {
        "outcome": answer["outcome"],
        "messages": named(answer["messages"]),
        "state": answer["state"],
        "pendingInterrupts": answer["pendingInterrupts"],
        "events": [event["type"] for event in answer["events"]],
    }


def of_ours(request: Json) -> Json:
    thread = Thread(messages=request.get("messages", ()), state=request.get("state"))
    thread.extend(request["stream"])
    thread.contract.to_json()  # takes anything
    held = thread.agui.to_json()
    events: list[str] = []
    gate = ProtocolEnforcer()
    try:
        for event in request["stream"]:
            events.extend(delivered.type for delivered in gate.admit(coerce(event)))
        check(request["stream"])
    except ProtocolError:
        assert held["outcome"] == "failed"
    else:
        assert held["outcome"] == "completed"
    held["messages"] = named(held["messages"])
    return {key: held[key] for key in ("outcome", "messages", "state", "pendingInterrupts")} | {
        "events": events
    }


def is_comparable(answer: Answer) -> bool:
    """Not where two messages have one id: a snapshot makes them one object, which JSON cannot say."""
    ids = [message["id"] for message in answer["messages"]]
    return len(ids) == len(set(ids))


def shrunk(request: Json, client: RealClient) -> Json:
    """The request without the events that the difference does not need."""
    at = 0
    while at < len(request["stream"]):
        shorter = {**request, "stream": request["stream"][:at] + request["stream"][at + 1 :]}
        if of_the_client(client.run(**shorter)) != of_ours(shorter):
            request = shorter
        else:
            at += 1
    return request


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_random_streams(client: RealClient, seed: int) -> None:
    need_node()
    streams = Streams(seed)
    requests = [streams.make() for _ in range(MANY)]
    answers = client.run_many(requests)
    taken = compared = 0
    for request, answer in zip(requests, answers, strict=True):
        if not is_comparable(answer):
            continue
        compared += 1
        taken += answer["outcome"] == "completed"
        if of_the_client(answer) != of_ours(request):
            smallest = shrunk(request, client)
            print(json.dumps(smallest))  # noqa: T201  # to try by hand
            assert of_ours(smallest) == of_the_client(client.run(**smallest))
    # Both verdicts must be common, or little was compared.
    assert compared > MANY * 0.8
    assert MANY * 0.25 < taken < MANY * 0.75


@pytest.mark.parametrize("seed", range(2))
def test_streams_in_which_every_kind_shares_ids(client: RealClient, seed: int) -> None:
    """Messages, tool calls, activities, reasoning and steps of one id. Most streams are legal."""
    need_node()
    streams = Collisions(seed)
    requests = [streams.make() for _ in range(scaled(200, MANY))]
    compared = 0
    for request, answer in zip(requests, client.run_many(requests), strict=True):
        mine = of_ours(request)  # fails on none, comparable or not
        has_snapshot = any(event["type"] == "MESSAGES_SNAPSHOT" for event in request["stream"])
        if is_comparable(answer) or not has_snapshot:
            compared += 1
            assert mine == of_the_client(answer), json.dumps(shrunk(request, client))
    assert compared > len(requests) * 0.7


def test_text_cut_within_a_character(client: RealClient) -> None:
    """JavaScript cuts between UTF-16 units, and joins them again."""
    need_node()
    halves = ["\ud83d", "\ude00", "e", "\u0301", "👩", "\u200d", "💻"]
    stream: list[Json] = [
        {"type": "RUN_STARTED", "threadId": "t", "runId": "r"},
        {"type": "TEXT_MESSAGE_START", "messageId": "m"},
        *({"type": "TEXT_MESSAGE_CONTENT", "messageId": "m", "delta": half} for half in halves),
    ]
    lines = [json.dumps(event).encode() for event in stream]
    thread = Thread()
    thread.extend(lines)
    assert thread.agui.messages[0]["content"] == "😀e\u0301👩\u200d💻"
    assert client.run(stream)["messages"] == thread.agui.messages
    assert [to_dict(coerce(line)) for line in lines] == stream
