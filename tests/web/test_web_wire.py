"""The JavaScript reducer shows what the Python contract view shows, after every single event."""

from __future__ import annotations

import base64
import json
from itertools import count, pairwise
from pathlib import Path
from random import Random
from typing import Any, cast

import pytest

from citewire.agui import Thread
from citewire.agui.events import write_json
from citewire.agui.sse import SseParser
from citewire.patch import PatchError, apply_patch
from support.agui_collisions import Collisions
from support.agui_streams import Streams
from support.case_matching import matches
from support.cases import CASES, need_cases
from support.web_node import asked
from support.web_streams import Broken

Json = dict[str, Any]
OWN: list[Json] = json.loads((Path(__file__).parents[1] / "data/web/thread.json").read_text("utf-8"))


def plain(value: Any) -> Any:
    """JSON as JavaScript has it: one kind of number, of problems only what is promised, and no run id."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, list):
        return [plain(each) for each in cast("list[Any]", value)]
    return (
        {key: plain(each) for key, each in cast("Json", value).items()} if isinstance(value, dict) else value
    )


def shown(view: Json) -> str:
    problems = [{"code": problem["code"], "path": problem["path"]} for problem in view["problems"]]
    compared = {key: value for key, value in view.items() if key != "runId"} | {"problems": problems}
    # Text: to Python, 1 equals true.
    return json.dumps(plain(compared), sort_keys=True)


def oracle(request: Json) -> list[Json]:
    """The views of the Python thread, before the first event and after each."""
    ticks = count()
    thread = Thread(
        messages=request.get("messages", ()),
        state=request.get("state"),
        seed_args=request.get("seedArgs", False),
        clock=lambda: float(next(ticks)),
    )
    views = [thread.contract.to_json()]
    for event in request["stream"]:
        thread.apply(event)
        views.append(thread.contract.to_json())
    return [json.loads(write_json(view)) for view in views]


def check(requests: list[Json]) -> None:
    """Both show the same, all the way."""
    for request, views in zip(requests, asked(requests), strict=True):
        for at, (ours, theirs) in enumerate(zip(oracle(request), views, strict=True)):
            assert shown(theirs) == shown(ours), json.dumps(request | {"stream": request["stream"][:at]})


def test_own_cases() -> None:
    """They are what they should be in both."""
    for case, views in zip(OWN, asked(OWN), strict=True):
        assert matches(views[-1], case["expected"]), (case["name"], views[-1])
    check(OWN)


def test_shared_ngaf_cases() -> None:
    need_cases()
    every = json.loads((CASES / "ngaf/cases.json").read_text("utf-8"))
    cases = [case for case in every if case["target"] != "agent"]
    assert len(cases) > 15
    streams = [
        {"stream": case["events"], "seedArgs": True, **_start(case.get("initial", {}))} for case in cases
    ]
    check(streams)
    for case, views in zip(cases, asked(streams), strict=True):
        if "throws" not in case["expected"]:
            assert matches(views[-1] | {"emitted": views[-1]["events"]}, case["expected"]), case["name"]


def test_shared_agui_streams() -> None:
    need_cases()
    cases = [json.loads(path.read_text("utf-8")) for path in sorted((CASES / "agui-streams").glob("*.json"))]
    assert len(cases) > 30
    check([{"stream": case["stream"], **_start(case.get("input", {}))} for case in cases])


def _start(given: Json) -> Json:
    return {key: given[key] for key in ("messages", "state") if key in given}


@pytest.mark.parametrize("maker", [Streams, Broken, Collisions])
def test_random_streams(maker: type[Streams | Broken | Collisions]) -> None:
    streams = maker(2024)
    check([streams.make() for _ in range(300)])


def test_nesting_without_end_is_a_problem() -> None:
    """JSON.parse takes it, and whatever walks through it later would not."""
    deep: Any = 1
    for _ in range(900):
        deep = [deep]
    events: list[Json] = [
        {"type": "STATE_SNAPSHOT", "snapshot": deep},
        {"type": "STATE_DELTA", "delta": [{"op": "add", "path": "/a", "value": deep}]},
        {"type": "MESSAGES_SNAPSHOT", "messages": [{"id": "m", "content": deep}]},
        {"type": "CUSTOM", "name": "n", "value": deep},
        {"type": "TEXT_MESSAGE_START", "messageId": "m", "rawEvent": deep},
    ]
    (views,) = asked([{"stream": events}])
    assert [problem["code"] for problem in views[-1]["problems"]] == ["bad_json"] * 4
    assert (views[-1]["state"], views[-1]["events"], len(views[-1]["messages"])) == ({}, [], 1)


def test_a_peer_cannot_fill_the_memory() -> None:
    noise: list[Json] = [{"type": "CUSTOM", "name": "n", "value": number} for number in range(30_000)]
    ((after,),) = asked([{"stream": [{}] * 5000 + noise, "last": True}])
    assert (len(after["problems"]), after["problems"][-1]["code"]) == (1001, "too_many_problems")
    assert "4000" in after["problems"][-1]["message"]
    assert 10_000 <= len(after["events"]) <= 20_000
    assert after["events"][-1]["data"] == 29_999


def test_what_did_not_change_is_the_same_object() -> None:
    """So that a page need only look at what is new: asked of each part of the view, by its path."""
    entries = [{"id": "a", "extra": {"citewire": {"status": "pending"}}}, "u"]
    stream: list[Json] = [
        {"type": "TEXT_MESSAGE_START", "messageId": "m1"},
        {"type": "TEXT_MESSAGE_START", "messageId": "m2"},
        {"type": "STATE_SNAPSHOT", "snapshot": {"citations": {"m1": entries}, "other": {"big": [1]}}},
        {"type": "TEXT_MESSAGE_CONTENT", "messageId": "m2", "delta": "x"},
        {"type": "STATE_DELTA", "delta": [
            {"op": "replace", "path": "/citations/m1/0/extra/citewire/status", "value": "verified"}
        ]},
        {"type": "STATE_DELTA", "delta": [{"op": "add", "path": "/steps", "value": 1}]},
    ]  # fmt: skip
    parts = ["messages", "messages/0", "messages/1", "messages/0/citations", "messages/0/citations/1"]
    parts += ["state", "state/other", "toolCalls", "problems"]
    (kept,) = asked([{"stream": stream, "parts": parts}])
    new = [[part for part in parts if part not in same] for same in kept[4:]]
    assert new == [
        ["messages", "messages/1"],
        ["messages", "messages/0", "messages/0/citations", "state"],
        ["state"],
    ]


def test_a_delta_costs_the_same_however_long_the_answer_is() -> None:
    """In bytes, which are counted: a copy of the answer so far would take a million."""
    ((short, long),) = asked([{"weigh": [1_000, 200_000]}])
    assert short > 0
    assert long < 2 * short + 10_000


OPERATIONS: list[Json] = [
    {"op": "add", "path": "/a/-", "value": 3},
    {"op": "add", "path": "/a/0", "value": {"x": 1}},
    {"op": "move", "from": "/a/0", "path": "/b"},
    {"op": "copy", "from": "/a", "path": "/a/1"},
    {"op": "replace", "path": "", "value": {"a": [1, [2]]}},
    {"op": "remove", "path": "/a/1"},
    {"op": "remove", "path": ""},
    {"op": "test", "path": "/a", "value": [1, 2]},
    {"op": "test", "path": "/a/0", "value": 1.0},
    {"op": "add", "path": "/~01/x", "value": 1},
    {"op": "add", "path": "/~2", "value": 1},
    {"op": "add", "path": "a", "value": 1},
    {"op": "add", "path": "/a"},
    {"op": "replace", "path": "/a/1e0", "value": 1},
    {"op": "add", "path": "/b/toString/x", "value": 1},
]


def test_patches() -> None:
    """In any order, on a document that nobody may change: the same as in Python, or refused as there."""
    random = Random(1)
    document: Json = {"a": [1, 2], "b": {}, "~1": {}}
    requests = [
        {"document": document, "operations": random.choices(OPERATIONS, k=random.randrange(1, 5))}
        for _ in range(300)
    ]
    for request, answer in zip(requests, asked(requests), strict=True):
        try:
            assert answer["value"] == apply_patch(document, request["operations"]), request
        except PatchError:
            assert "error" in answer, request
            assert answer["value"] == document


SSE = (
    '\ufeffdata: {"a": "ü😀"}\r\n\r\n: ping\n\nid: e:1\rdata:x\rdata: y\r\revent: source\r\ndata\n'
    "data:  z\n\nid: 7\n\nid: n\0\ndata: w\nretry: 5\nnot a field\n\ndata: v"
).encode() + b"\n\ndata: \xff\n\ndata: never ended\n"


def test_frames_are_read_however_they_are_cut() -> None:
    """As Python reads them, but for the last one: what was cut off comes again after the cursor."""
    random = Random(3)
    expected = [
        {"data": frame.data.decode(), "id": frame.id, "event": frame.event} for frame in SseParser().feed(SSE)
    ]
    assert len(expected) == 7
    cuts = [list(range(len(SSE) + 1)), [0, len(SSE)]]
    cuts += [
        sorted({0, len(SSE), *random.choices(range(len(SSE)), k=random.randrange(1, 9))}) for _ in range(200)
    ]
    requests = [{"frames": [base64.b64encode(SSE[a:b]).decode() for a, b in pairwise(cut)]} for cut in cuts]
    for frames in asked(requests):
        assert [{"id": None, "event": None, **frame} for frame in frames] == expected
