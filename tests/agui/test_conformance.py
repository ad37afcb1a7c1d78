"""The protocol's own conformance streams, in the view of what the AG-UI client holds."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import reduce
from pathlib import Path
from typing import Any

import pytest

from citewire.agui import Thread
from citewire.agui.client import prepare_input
from citewire.agui.events import RunInput, coerce, to_dict
from citewire.agui.protocol import ProtocolEnforcer, ProtocolError
from support.case_matching import MISSING, matches
from support.cases import CASES, need_cases

STREAMS = sorted((CASES / "agui-streams").glob("*.json"))


@pytest.fixture(params=STREAMS, ids=lambda path: path.stem)
def case(request: pytest.FixtureRequest) -> dict[str, Any]:
    path: Path = request.param
    return json.loads(path.read_text("utf-8"))


def delivered(stream: Sequence[Any]) -> list[dict[str, Any]]:
    """The events as the client delivers them, up to the one that it rejects."""
    gate, events = ProtocolEnforcer(), list[dict[str, Any]]()
    try:
        for event in stream:
            events.extend(map(to_dict, gate.admit(coerce(event))))
    except ProtocolError:
        pass
    return events


def look_up(events: Any, path: str) -> Any:
    """The value at `2.delta.0.op`."""

    def step(value: Any, name: str) -> Any:
        if isinstance(value, list):
            return value[int(name)]  # pyright: ignore[reportUnknownVariableType]
        return value.get(name, MISSING) if isinstance(value, dict) else MISSING  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType]

    return reduce(step, path.split("."), events)


def test_the_streams_are_there() -> None:
    need_cases()
    assert len(STREAMS) > 30


def test_the_client_holds_what_the_protocol_says(case: dict[str, Any]) -> None:
    expected, start = case["expect"], case.get("input", {})
    thread = Thread(messages=start.get("messages", ()), state=start.get("state"))
    thread.extend(case["stream"])
    held = thread.agui

    assert held.outcome == expected["outcome"], held.error
    assert (held.error is None) == (expected["outcome"] == "completed")
    assert matches(held.to_json(), {key: expected[key] for key in ("messages", "state") if key in expected})
    assert expected.get("messageCount", len(held.messages)) == len(held.messages)
    assert (held.run_error is not None) == bool(expected.get("runError"))
    if isinstance(expected.get("runError"), str):
        assert expected["runError"] in (held.run_error or "")
    if expected.get("warnings"):
        assert held.problems or "request" in expected
    if expected.get("noWarnings"):
        assert not held.problems


def test_events_are_delivered_as_the_protocol_says(case: dict[str, Any]) -> None:
    expected, events = case["expect"], delivered(case["stream"])
    types = [event["type"] for event in events]
    assert expected.get("eventTypes", types) == types
    assert not set(expected.get("eventTypesAbsent", ())) & set(types)
    for path, value in expected.get("eventPaths", {}).items():
        assert matches(look_up(events, path), value), path
    for path in expected.get("eventAbsentPaths", ()):
        assert look_up(events, path) is MISSING, path


def test_the_run_input_is_what_the_protocol_says(case: dict[str, Any]) -> None:
    """A client pinned to an older peer than this one may translate for it; ours does not."""
    expected = case["expect"]
    if "request" not in expected or case.get("client", {}).get("maxProtocolVersion") == "0.0.39":
        return
    sent = prepare_input(RunInput(thread_id="t", run_id="r", messages=case["input"]["messages"]))
    assert matches({"messages": sent.messages}, expected["request"])
