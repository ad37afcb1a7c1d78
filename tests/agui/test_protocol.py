"""The order rules of AG-UI in our own words: each with a stream that keeps it and one that breaks it."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any

import pytest

from citewire.agui import events as ev
from citewire.agui import shapes
from citewire.agui.chunks import ChunkExpander
from citewire.agui.protocol import FieldError, ProtocolEnforcer, ProtocolError, check
from citewire.agui.retired_shapes import RetiredEventTranslator, modernise_messages
from citewire.errors import CitewireError

Json = dict[str, Any]


def e(name: str, /, **fields: Any) -> Json:
    return {"type": name, **fields}


def text(step: str, name: str = "m", /, **more: Any) -> Json:
    said = {"CONTENT": {"delta": "x"}}.get(step, {})
    return e(f"TEXT_MESSAGE_{step}", messageId=name, **said | more)


def tool(step: str, name: str = "t", /, **more: Any) -> Json:
    said = {"START": {"toolCallName": "look"}, "ARGS": {"delta": "{}"}}.get(step, {})
    return e(f"TOOL_CALL_{step}", toolCallId=name, **said | more)


def thought(step: str, name: str = "m", /, **more: Any) -> Json:
    said = {"START": {"role": "reasoning"}, "CONTENT": {"delta": "hm"}}.get(step, {})
    return e(f"REASONING_MESSAGE_{step}", messageId=name, **said | more)


def span(step: str, name: str = "m", /, **more: Any) -> Json:
    return e(f"REASONING_{step}", messageId=name, **more)


def step(name: str, called: str = "plan", **more: Any) -> Json:
    return e(f"STEP_{name}", stepName=called, **more)


def agent(name: str, **more: Any) -> Json:
    return e("SUBAGENT_STARTED", subagentRunId=name, name=name, **more)


def of(name: str) -> Json:
    return {"subagentRunId": name}


START = e("RUN_STARTED", threadId="t", runId="r")
RUN_INPUT: Json = {"threadId": "t", "runId": "r", "messages": []}
FINISH = e("RUN_FINISHED", threadId="t", runId="r")
ERROR = e("RUN_ERROR", message="no")
DELTA = e("STATE_DELTA", delta=[{"op": "add", "path": "/a", "value": 1}])
CUSTOM = e("CUSTOM", name="x", value=1)
GONE = e("SUBAGENT_FINISHED", **of("s1"))
ANYTIME = [
    e("STATE_SNAPSHOT", snapshot=None),
    DELTA,
    e("MESSAGES_SNAPSHOT", messages=[]),
    e("ACTIVITY_SNAPSHOT", messageId="a", activityType="x", content={}),
    e("ACTIVITY_DELTA", messageId="a", activityType="x", patch=[]),
    e("RAW", event=None),
    CUSTOM,
    tool("RESULT", "nobody's", messageId="r", content="x"),
    e("REASONING_ENCRYPTED_VALUE", subtype="message", entityId="nobody", encryptedValue="x"),
]


def run(*events: Json) -> list[Json]:
    return [START, *events, FINISH]


KEPT = {
    "nothing at all": [],
    "an empty run": run(),
    "a run that just stops": [START, text("START"), text("CONTENT")],
    "an error before any run": [ERROR],
    "an error with things open": [START, text("START"), tool("START"), step("STARTED"), agent("s1"), ERROR],
    "an error after the end": [*run(), ERROR],
    "a run after an error": [START, text("START"), ERROR, *run()],
    "a run after an error alone": [ERROR, *run()],
    "a run after a run": [*run(text("START"), text("END")), *run(text("START"), text("END"))],
    "what is unknown, anywhere": [e("NEW"), START, e("NEW"), FINISH, e("NEW"), ERROR, e("NEW")],
    "ids that differ from those of the start": [START, e("RUN_FINISHED", threadId="x", runId="y")],
    "a message": run(text("START"), text("CONTENT"), text("CONTENT"), text("END")),
    "a message without text": run(text("START"), text("END")),
    "a message again": run(text("START"), text("END"), text("START"), text("CONTENT"), text("END")),
    "messages side by side": run(
        text("START", "a"), text("START", "b"), text("CONTENT", "a"), text("END", "b"), text("END", "a")
    ),
    "an empty id": run(text("START", ""), text("CONTENT", ""), text("END", "")),
    "a tool call": run(tool("START"), tool("ARGS"), tool("END")),
    "calls side by side": run(tool("START", "a"), tool("START", "b"), tool("END", "a"), tool("END", "b")),
    "a tool call within a message": run(text("START"), tool("START"), tool("END"), text("END")),
    "reasoning": run(span("START"), thought("START"), thought("CONTENT"), thought("END"), span("END")),
    "reasoning without its span": run(thought("START"), thought("END")),
    "one id for a message, a call, a thought and a span": run(
        text("START", "x"), tool("START", "x"), thought("START", "x"), span("START", "x"),
        text("END", "x"), tool("END", "x"), thought("END", "x"), span("END", "x"),
    ),
    "steps": run(step("STARTED"), step("STARTED", "act"), step("FINISHED"), step("FINISHED", "act")),
    "a step again": run(step("STARTED"), step("FINISHED"), step("STARTED"), step("FINISHED")),
    "a step of the same name in a subagent": run(
        agent("s1"), step("STARTED"), step("STARTED", **of("s1")), step("FINISHED", **of("s1")),
        step("FINISHED"), GONE,
    ),
    "state and the like within a message": run(text("START"), *ANYTIME, text("END")),
    "subagents": run(
        agent("s1"), agent("s2", parentSubagentRunId="s1"), GONE,
        e("SUBAGENT_ERROR", message="no", **of("s2")),
    ),
    "a subagent whose parent has ended": run(
        agent("s1"), GONE, agent("s2", parentSubagentRunId="s1"), e("SUBAGENT_FINISHED", **of("s2"))
    ),
    "a subagent again in another run": [*run(agent("s1"), GONE), *run(agent("s1"), GONE)],
    "what a subagent that never started says": run(text("START", **of("s9")), text("END", **of("s9"))),
    "untagged events go on with a subagent's": run(
        text("START", **of("s1")), text("CONTENT"), text("CONTENT", **of("s1")), text("END")
    ),
    "a call in a message of the same subagent": run(
        text("START", **of("s1")), text("END"), tool("START", parentMessageId="m", **of("s1")), tool("END")
    ),
    "a call that takes its message's owner": run(
        text("START", **of("s1")), text("END"), tool("START", parentMessageId="m"), tool("ARGS", **of("s1")),
        tool("END"),
    ),
    "text of a message that is a result of the same": run(
        tool("RESULT", messageId="m", content="x", **of("s1")), text("START", **of("s1")), text("END")
    ),
    "the secret of a subagent's thought": run(
        thought("START", **of("s1")), thought("END"),
        e("REASONING_ENCRYPTED_VALUE", subtype="message", entityId="m", encryptedValue="x", **of("s1")),
    ),
    "a message that changed hands in a snapshot": run(
        text("START", **of("s1")),
        e("MESSAGES_SNAPSHOT", messages=[{"id": "m", "role": "assistant", **of("s2")}]),
        text("END", **of("s2")),
    ),
    "a message of another run": [
        *run(text("START", **of("s1")), text("END")), *run(text("START", **of("s2")), text("END"))
    ],
    "an activity that is replaced by another's": run(
        e("ACTIVITY_SNAPSHOT", messageId="a", activityType="x", content={}, **of("s1")),
        e("ACTIVITY_SNAPSHOT", messageId="a", activityType="x", content={}, **of("s2")),
        e("ACTIVITY_DELTA", messageId="a", activityType="x", patch=[], **of("s2")),
    ),
}  # fmt: skip


@pytest.mark.parametrize("events", KEPT.values(), ids=KEPT)
def test_streams_that_keep_the_rules(events: list[Json]) -> None:
    assert check(events) == ()
    unknown = [f"#{number}" for number, event in enumerate(events, 1) if event["type"] == "NEW"]
    assert [problem.path for problem in check(events, lenient=True)] == unknown


# The stream, and the number of the event that breaks a rule.
BROKEN: dict[str, tuple[list[Json], int]] = {
    "text before any run": ([text("START")], 1),
    "state before any run": ([DELTA], 1),
    "an end before any run": ([FINISH], 1),
    "a chunk before any run": ([e("TEXT_MESSAGE_CHUNK", messageId="m")], 1),
    "a run within a run": ([START, START], 2),
    "an end after the end": ([START, FINISH, FINISH], 3),
    "state after the end": ([START, FINISH, DELTA], 3),
    "text after the end": ([START, FINISH, text("START")], 3),
    "an event that only passes after the end": ([START, FINISH, CUSTOM], 3),
    "state after an error": ([START, ERROR, DELTA], 3),
    "an end after an error": ([START, ERROR, FINISH], 3),
    "an error after an error": ([START, ERROR, ERROR], 3),
    "an end with a message open": (run(text("START")), 3),
    "an end with a call open": (run(tool("START")), 3),
    "an end with a step open": (run(step("STARTED")), 3),
    "an end with a thought open": (run(thought("START")), 3),
    "an end with a span open": (run(span("START")), 3),
    "an end with a subagent running": (run(agent("s1")), 3),
    "a message opened twice": (run(text("START"), text("START")), 3),
    "text without a message": (run(text("CONTENT")), 2),
    "text after its end": (run(text("START"), text("END"), text("CONTENT")), 4),
    "the end of no message": (run(text("END")), 2),
    "text of another id": (run(text("START", "a"), text("CONTENT", "b")), 3),
    "text of a message of another run": ([*run(text("START"), text("END")), START, text("CONTENT")], 6),
    "text of a message that an error cut off": ([START, text("START"), ERROR, START, text("CONTENT")], 5),
    "a call opened twice": (run(tool("START"), tool("START")), 3),
    "arguments without a call": (run(tool("ARGS")), 2),
    "the end of no call": (run(tool("END")), 2),
    "arguments of a message": (run(text("START", "x"), tool("ARGS", "x")), 3),
    "a thought opened twice": (run(thought("START"), thought("START")), 3),
    "a thought that was not opened": (run(span("START"), thought("CONTENT")), 3),
    "the end of no thought": (run(thought("END")), 2),
    "a span opened twice": (run(span("START"), span("START")), 3),
    "the end of no span": (run(thought("START"), span("END")), 3),
    "a step opened twice": (run(step("STARTED"), step("STARTED")), 3),
    "the end of no step": (run(step("FINISHED")), 2),
    "the end of another's step": (run(step("STARTED"), step("FINISHED", **of("s1"))), 3),
    "a subagent twice": (run(agent("s1"), agent("s1")), 3),
    "a subagent again": (run(agent("s1"), GONE, agent("s1")), 4),
    "a subagent of nobody": (run(agent("s1", parentSubagentRunId="s0")), 2),
    "a subagent of itself": (run(agent("s1", parentSubagentRunId="s1")), 2),
    "the end of no subagent": (run(GONE), 2),
    "the end of one that has ended": (run(agent("s1"), GONE, GONE), 4),
    "the failure of one that has ended": (
        run(agent("s1"), GONE, e("SUBAGENT_ERROR", message="no", **of("s1"))), 4,
    ),
    "text of another subagent": (run(text("START", **of("s1")), text("CONTENT", **of("s2"))), 3),
    "text of a subagent in the agent's": (run(text("START"), text("CONTENT", **of("s1"))), 3),
    "the end of another's call": (run(tool("START", **of("s1")), tool("END", **of("s2"))), 3),
    "another's thought": (run(thought("START", **of("s1")), thought("END", **of("s2"))), 3),
    "a message opened again by another": (
        run(text("START", **of("s1")), text("END"), text("START", **of("s2"))), 4,
    ),
    "a call in another's message": (
        run(text("START", **of("s1")), tool("START", parentMessageId="m", **of("s2"))), 3,
    ),
    "a call in the agent's message": (run(text("START"), tool("START", parentMessageId="m", **of("s1"))), 3),
    "a call that moves to another's message": (
        run(tool("START", **of("s1")), tool("END"), text("START"), tool("START", parentMessageId="m")), 5,
    ),
    "text of a message that a snapshot gave away": (
        run(
            text("START", **of("s1")),
            e("MESSAGES_SNAPSHOT", messages=[{"id": "m", "role": "assistant"}]),
            text("CONTENT", **of("s1")),
        ), 4,
    ),
    "text of a message that came with the run": (
        [
            START | {"input": RUN_INPUT | {"messages": [{"id": "m", "role": "assistant", **of("s1")}]}},
            text("START", **of("s2")),
        ], 2,
    ),
    "another's activity": (
        run(
            e("ACTIVITY_SNAPSHOT", messageId="a", activityType="x", content={}, **of("s1")),
            e("ACTIVITY_DELTA", messageId="a", activityType="x", patch=[], **of("s2")),
        ), 3,
    ),
    "the secret of another's message": (
        run(
            text("START", **of("s1")), text("END"),
            e("REASONING_ENCRYPTED_VALUE", subtype="message", entityId="m", encryptedValue="x", **of("s2")),
        ), 4,
    ),
    "the secret of another's call": (
        run(
            tool("START", **of("s1")), tool("END"),
            e("REASONING_ENCRYPTED_VALUE", subtype="tool-call", entityId="t", encryptedValue="x", **of("s2")),
        ), 4,
    ),
    "the secret of another's thought": (
        run(
            thought("START", **of("s1")), thought("END"),
            e("REASONING_ENCRYPTED_VALUE", subtype="message", entityId="m", encryptedValue="x", **of("s2")),
        ), 4,
    ),
    "text of a message that is another's result": (
        run(tool("RESULT", messageId="m", content="x", **of("s1")), text("START", **of("s2"))), 3,
    ),
    "a thought that was never started, as it was called": (
        run(e("THINKING_START"), e("THINKING_TEXT_MESSAGE_CONTENT", delta="x")), 3,
    ),
    "the end of no span, as it was called": (run(e("THINKING_END")), 2),
}  # fmt: skip


@pytest.mark.parametrize(("events", "number"), BROKEN.values(), ids=BROKEN)
def test_streams_that_break_a_rule(events: list[Json], number: int) -> None:
    with pytest.raises(ProtocolError) as caught:
        check(events)
    assert caught.value.path == f"#{number}"
    assert caught.value.code == "out_of_order"
    assert check(events[: number - 1]) == ()
    reported = [problem for problem in check(events, lenient=True) if problem.code == "out_of_order"]
    assert reported[0].path == f"#{number}"
    assert reported[0].message == caught.value.message


@pytest.mark.parametrize(("events", "number"), BROKEN.values(), ids=BROKEN)
def test_what_is_rejected_changes_nothing(events: list[Json], number: int) -> None:
    """What follows is judged as if it had not come."""
    without = events[: number - 1] + events[number:]
    later = [
        (problem.message, int(problem.path[1:]) - 1)
        for problem in check(events, lenient=True)
        if int(problem.path[1:]) > number
    ]
    assert later == [
        (problem.message, int(problem.path[1:]))
        for problem in check(without, lenient=True)
        if int(problem.path[1:]) >= number
    ]


BAD_FIELDS: dict[str, Json] = {
    "a field that is missing": e("TEXT_MESSAGE_CONTENT", messageId="m"),
    "a field of another kind": e("CUSTOM", name=5, value=1),
    "a subagent that is null": text("START", subagentRunId=None),
    "metadata that is null": text("START", metadata=None),
    "a timestamp with a fraction": text("START", timestamp=1.5),
    "a role that there is not": text("START", role="robot"),
    "a pointer that is none": e("STATE_DELTA", delta=[{"op": "add", "path": "a", "value": 1}]),
    "a pointer with a bad escape": e("STATE_DELTA", delta=[{"op": "remove", "path": "/~2"}]),
    "an operation without value": e("STATE_DELTA", delta=[{"op": "add", "path": "/a"}]),
    "an operation without path": e(
        "ACTIVITY_DELTA", messageId="m", activityType="x", patch=[{"op": "remove"}]
    ),
    "a move from nowhere": e("STATE_DELTA", delta=[{"op": "move", "path": "/a"}]),
    "an operation that is no object": e("STATE_DELTA", delta=["add"]),
    "a message without id": e("MESSAGES_SNAPSHOT", messages=[{"role": "user", "content": "x"}]),
    "a message without content": e("MESSAGES_SNAPSHOT", messages=[{"id": "m", "role": "user"}]),
    "a message that is text": e("MESSAGES_SNAPSHOT", messages=["m"]),
    "content that is a number": e("MESSAGES_SNAPSHOT", messages=[{"id": "m", "role": "user", "content": 5}]),
    "a part without text": tool("RESULT", messageId="r", content=[{"type": "text"}]),
    "usage that is negative": ERROR | {"usage": [{"inputTokens": -1}]},
    "no interrupts": FINISH | {"outcome": {"type": "interrupt", "interrupts": []}},
    "interrupts without id": FINISH | {"outcome": {"type": "interrupt", "interrupts": [{"reason": "x"}]}},
    "an outcome that is null, of a subagent": GONE | {"outcome": None},
}


@pytest.mark.parametrize("event", BAD_FIELDS.values(), ids=BAD_FIELDS)
def test_fields_that_are_wrong(event: Json) -> None:
    events = [START, agent("s1"), e("SUBAGENT_FINISHED", **of("s1")), event]
    with pytest.raises(FieldError) as caught:
        check(events)
    assert (caught.value.code, caught.value.path) == ("bad_field", "#4")
    assert event["type"] in caught.value.message
    assert [(p.code, p.path) for p in check([*events, CUSTOM], lenient=True)] == [("bad_field", "#4")]


def test_what_is_no_event_is_reported_too() -> None:
    with pytest.raises(CitewireError) as caught:
        check([START, b"[]"])
    assert caught.value.code == "bad_event"
    problems = check([START, b"[]", "{", {"no": "type"}, 5, b'{"type":"NEW"}', FINISH, DELTA], lenient=True)
    assert [(problem.code, problem.path) for problem in problems] == [
        ("bad_event", "#2"),
        ("bad_json", "#3"),
        ("bad_event", "#4"),
        ("bad_event", "#5"),
        ("unknown_event", "#6"),
        ("out_of_order", "#8"),
    ]


def test_lenient_reports_everything() -> None:
    events = [
        text("START"), START, START, text("CONTENT"), e("NEW"), text("START", more=1),
        e("THINKING_START"), e("THINKING_END"), text("CONTENT", delta=5), FINISH, text("END"), FINISH, DELTA,
    ]  # fmt: skip
    problems = check(events, lenient=True)
    assert [(problem.code, problem.path) for problem in problems] == [
        ("out_of_order", "#1"),
        ("out_of_order", "#3"),
        ("out_of_order", "#4"),
        ("unknown_event", "#5"),
        ("unknown_field", "#6"),
        ("retired_event", "#7"),
        ("retired_event", "#8"),
        ("bad_field", "#9"),
        ("out_of_order", "#10"),
        ("out_of_order", "#13"),
    ]
    assert all(problem.message for problem in problems)


def test_names_from_outside_are_harmless_in_messages() -> None:
    nasty = "\x1b[31m" + "x" * 10_000 + "\n"
    streams = [
        [e(nasty)],
        run(text("CONTENT", nasty)),
        run(text("START", nasty)),
        run(step("FINISHED", nasty)),
        run(agent(nasty), agent(nasty)),
        run(text("START", **of(nasty)), text("CONTENT", **of("s"))),
        run(text("START", **{nasty: 1})),
        run(e("MESSAGES_SNAPSHOT", messages=[{"id": "m", "role": "assistant", nasty: 1}])),
        run(e("TEXT_MESSAGE_CHUNK", messageId=nasty), e("TEXT_MESSAGE_CHUNK", messageId=nasty, role="user")),
        run(
            e("TEXT_MESSAGE_CHUNK", messageId="m", **of("s")),
            e("TEXT_MESSAGE_CHUNK", messageId="m", **of(nasty)),
        ),
    ]
    for events in streams:
        for problem in check(events, lenient=True):
            assert len(problem.message) < 1000
            assert problem.message.isprintable()


# What comes through


def delivered(events: Iterable[Json], gate: ProtocolEnforcer | None = None) -> list[Json]:
    gate = gate or ProtocolEnforcer()
    return [ev.to_dict(event) for each in events for event in gate.admit(ev.from_dict(each))]


def told(*events: Json) -> list[str]:
    notes: list[str] = []
    gate = ProtocolEnforcer(lambda code, message: notes.append(f"{code}: {message}"))
    delivered([START, *events], gate)
    return notes


def chunk(message: str | None = "m", delta: str | None = "x", **more: Any) -> Json:
    said = {"messageId": message, "delta": delta}
    return e("TEXT_MESSAGE_CHUNK", **{key: value for key, value in said.items() if value is not None}, **more)


def tool_chunk(
    name: str | None = "t", called: str | None = "look", delta: str | None = "x", **more: Any
) -> Json:
    said = {"toolCallId": name, "toolCallName": called, "delta": delta}
    return e("TOOL_CALL_CHUNK", **{key: value for key, value in said.items() if value is not None}, **more)


def thought_chunk(name: str | None = "m", delta: str | None = "hm", **more: Any) -> Json:
    return chunk(name, delta, **more) | {"type": "REASONING_MESSAGE_CHUNK"}


def opened(message: str = "m", /, **more: Any) -> Json:
    return text("START", message, **{"role": "assistant"} | more)


CHUNKS: dict[str, tuple[list[Json], list[Json]]] = {
    "one": ([chunk()], [opened(), text("CONTENT")]),
    "without text": ([chunk(delta=None)], [opened()]),
    "with empty text": ([chunk(delta="")], [opened(), text("CONTENT") | {"delta": ""}]),
    "that goes on without id": ([chunk(), chunk(None)], [opened(), text("CONTENT"), text("CONTENT")]),
    "that goes on with its id": ([chunk(), chunk()], [opened(), text("CONTENT"), text("CONTENT")]),
    "another id": (
        [chunk(), chunk("n")],
        [opened(), text("CONTENT"), text("END"), opened("n"), text("CONTENT", "n")],
    ),
    "with a role and a name": (
        [chunk(role="user", name="Ann"), chunk(None, role="user", name="Ann")],
        [opened(role="user", name="Ann"), text("CONTENT"), text("CONTENT")],
    ),
    "the role that it had by default": (
        [chunk(), chunk(role="assistant")],
        [opened(), text("CONTENT"), text("CONTENT")],
    ),
    "an id that is empty": ([chunk(""), chunk(None)], [opened(""), text("CONTENT", ""), text("CONTENT", "")]),
    "metadata of the first": (
        [chunk(metadata={"k": 1})],
        [opened(metadata={"k": 1}), text("CONTENT", metadata={"k": 1})],
    ),
    "metadata alone": (
        [chunk(), chunk(None, None, metadata={"k": 1})],
        [opened(), text("CONTENT"), text("CONTENT", metadata={"k": 1}) | {"delta": ""}],
    ),
    "a raw event alone": (
        [chunk(delta=None, rawEvent=1)],
        [opened(), text("CONTENT", rawEvent=1) | {"delta": ""}],
    ),
    "nothing but to go on": ([chunk(), chunk(None, None)], [opened(), text("CONTENT")]),
    "a call": (
        [tool_chunk(), tool_chunk(None, None), tool_chunk(called=None)],
        [tool("START"), *[tool("ARGS") | {"delta": "x"}] * 3],
    ),
    "a call with a parent": (
        [tool_chunk(parentMessageId="m", delta=None)],
        [tool("START", parentMessageId="m")],
    ),
    "a parent that is null": ([tool_chunk(parentMessageId=None, delta=None)], [tool("START")]),
    "a thought": ([thought_chunk(), thought_chunk(None)], [thought("START"), *[thought("CONTENT")] * 2]),
    "of another kind": (
        [chunk(), tool_chunk(delta=None), thought_chunk("m", None)],
        [opened(), text("CONTENT"), text("END"), tool("START"), tool("END"), thought("START")],
    ),
    "and an event that ends it": ([chunk(), DELTA], [opened(), text("CONTENT"), text("END"), DELTA]),
    "and custom events": ([chunk(), CUSTOM], [opened(), text("CONTENT"), text("END"), CUSTOM]),
    "and then the same id": (
        [chunk(), CUSTOM, chunk()],
        [opened(), text("CONTENT"), text("END"), CUSTOM, opened(), text("CONTENT")],
    ),
    "and the end of the run": ([chunk(), FINISH], [opened(), text("CONTENT"), text("END"), FINISH]),
    "and an error": ([chunk(), ERROR], [opened(), text("CONTENT"), text("END"), ERROR]),
    "and nothing": ([chunk()], [opened(), text("CONTENT")]),
    **{
        f"and {event['type']}, which does not end it": (
            [chunk(), event, chunk(None)],
            [opened(), text("CONTENT"), event, text("CONTENT")],
        )
        for event in (
            e("RAW", event=1),
            e("ACTIVITY_SNAPSHOT", messageId="a", activityType="x", content={}),
            e("ACTIVITY_DELTA", messageId="a", activityType="x", patch=[]),
            e("REASONING_ENCRYPTED_VALUE", subtype="message", entityId="m", encryptedValue="x"),
            agent("s1"),
        )
    },
    "in two lanes": (
        [chunk("a", **of("s1")), chunk("b", **of("s2")), chunk(None, **of("s1")), chunk(None, **of("s2"))],
        [
            opened("a", **of("s1")), text("CONTENT", "a", **of("s1")),
            opened("b", **of("s2")), text("CONTENT", "b", **of("s2")),
            text("CONTENT", "a", **of("s1")), text("CONTENT", "b", **of("s2")),
        ],
    ),
    "of a lane that is known by the id": (
        [chunk("a", **of("s1")), chunk("a")],
        [opened("a", **of("s1")), text("CONTENT", "a", **of("s1")), text("CONTENT", "a", **of("s1"))],
    ),
    "of the only lane": (
        [chunk("a", **of("s1")), chunk(None)],
        [opened("a", **of("s1")), text("CONTENT", "a", **of("s1")), text("CONTENT", "a", **of("s1"))],
    ),
    "of the agent's lane before others": (
        [chunk("a"), chunk("b", **of("s1")), chunk(None)],
        [
            opened("a"), text("CONTENT", "a"), opened("b", **of("s1")), text("CONTENT", "b", **of("s1")),
            text("CONTENT", "a"),
        ],
    ),
    "and an event of another lane": (
        [chunk("a", **of("s1")), CUSTOM, CUSTOM | of("s2"), chunk(None, **of("s1"))],
        [
            opened("a", **of("s1")), text("CONTENT", "a", **of("s1")), CUSTOM, CUSTOM | of("s2"),
            text("CONTENT", "a", **of("s1")),
        ],
    ),
    "and an event that ends all lanes": (
        [chunk("a"), chunk("b", **of("s1")), e("MESSAGES_SNAPSHOT", messages=[])],
        [
            opened("a"), text("CONTENT", "a"), opened("b", **of("s1")), text("CONTENT", "b", **of("s1")),
            text("END", "a"), text("END", "b", **of("s1")), e("MESSAGES_SNAPSHOT", messages=[]),
        ],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("chunks", "events"), CHUNKS.values(), ids=CHUNKS)
def test_chunks_are_written_out(chunks: list[Json], events: list[Json]) -> None:
    assert delivered([START, *chunks]) == [START, *events]


BAD_CHUNKS: dict[str, list[Json]] = {
    "the first without id": [chunk(None)],
    "the first of a call without id": [tool_chunk(None)],
    "the first of a call without name": [tool_chunk(called=None)],
    "the first thought without id": [thought_chunk(None)],
    "without id after an event that ended it": [chunk(), CUSTOM, chunk(None)],
    "without id after another kind": [chunk(), tool_chunk(), chunk(None)],
    "of another kind without id": [chunk(), tool_chunk(None)],
    "another role": [chunk(role="user"), chunk(role="system")],
    "another role than the default": [chunk(), chunk(role="user")],
    "another name": [chunk(name="Ann"), chunk(name="Bob")],
    "a name too late": [chunk(), chunk(name="Bob")],
    "another tool": [tool_chunk(), tool_chunk(called="find")],
    "another parent": [tool_chunk(parentMessageId="a"), tool_chunk(parentMessageId="b")],
    "of another subagent": [chunk(**of("s1")), chunk(**of("s2"))],
    "of a subagent, in the agent's": [chunk(), chunk(**of("s1"))],
    "of one of two lanes": [chunk("a", **of("s1")), chunk("b", **of("s2")), chunk(None)],
    "of a message that is open already": [text("START"), chunk()],
}


@pytest.mark.parametrize("chunks", BAD_CHUNKS.values(), ids=BAD_CHUNKS)
def test_chunks_that_fit_no_stream(chunks: list[Json]) -> None:
    with pytest.raises(ProtocolError) as caught:
        check([START, *chunks])
    assert caught.value.code == "out_of_order"
    assert caught.value.path == f"#{len(chunks) + 1}"


@pytest.mark.parametrize("chunks", BAD_CHUNKS.values(), ids=BAD_CHUNKS)
def test_a_chunk_that_is_rejected_changes_nothing(chunks: list[Json]) -> None:
    """Passed over, it leaves the streams open that were open."""
    *before, bad = chunks
    ends = [FINISH] if before[:1] != [text("START")] else [text("END"), FINISH]
    assert [problem.path for problem in check([START, *before, bad, *ends], lenient=True)] == [
        f"#{len(chunks) + 1}"
    ]
    assert check([START, *before, *ends]) == ()


def test_copies_of_chunk_streams_go_their_own_ways() -> None:
    chunks = ChunkExpander()
    chunks.expand(ev.TextMessageChunk("m"))
    twin = chunks.copy()
    assert twin.expand(ev.StateSnapshot(1)) == [ev.TextMessageEnd("m"), ev.StateSnapshot(1)]
    assert chunks.expand(ev.TextMessageChunk(delta="x")) == [ev.TextMessageContent("m", "x")]


def test_copies_of_a_gate_go_their_own_ways() -> None:
    gate = ProtocolEnforcer()
    delivered([START, text("START"), chunk("n"), e("THINKING_START")], gate)
    twin = gate.copy()
    delivered([text("END"), e("THINKING_END"), FINISH], twin)
    delivered([text("CONTENT"), text("END"), agent("s1"), ERROR], gate)
    with pytest.raises(ProtocolError):
        delivered([text("START")], twin)
    with pytest.raises(ProtocolError):
        delivered([text("START")], gate)


# Shapes that were retired


THINKING = [
    e("THINKING_START", title="t", timestamp=5, rawEvent=1),
    e("THINKING_TEXT_MESSAGE_START", metadata={"k": 1}),
    e("THINKING_TEXT_MESSAGE_CONTENT", delta="hm"),
    e("THINKING_TEXT_MESSAGE_END"),
    e("THINKING_END"),
]


def test_thinking_is_reasoning() -> None:
    """Thinking has no ids, so it gets some: one for each span, and one for each message in it."""
    first, second = (delivered([START, *THINKING, *THINKING])[at:][:5] for at in (1, 6))
    for made in (first, second):
        span_id, name = made[0]["messageId"], made[1]["messageId"]
        assert made == [
            span("START", span_id, timestamp=5, rawEvent=1),
            thought("START", name, metadata={"k": 1}),
            thought("CONTENT", name),
            thought("END", name),
            span("END", span_id),
        ]
    assert len({event["messageId"] for event in (*first, *second)}) == 4
    assert told(*THINKING) == [f"retired_event: {old['type']} is read as {new['type']}"
                               for old, new in zip(THINKING, first, strict=True)]  # fmt: skip


def test_thinking_of_a_subagent() -> None:
    made = delivered([START, *(event | of("s1") for event in THINKING)])[1:]
    assert [event["subagentRunId"] for event in made] == ["s1"] * 5


@pytest.mark.parametrize(
    ("old", "modern"),
    [
        pytest.param(text("START", rawEvent=None), text("START"), id="raw event"),
        pytest.param(tool("START", parentMessageId=None), tool("START"), id="parent of a call"),
        pytest.param(FINISH | {"result": None, "outcome": None}, FINISH, id="result and outcome"),
        pytest.param(GONE | {"result": None}, GONE, id="result of a subagent"),
        pytest.param(
            e("CUSTOM", name="x", value=None), e("CUSTOM", name="x", value=None), id="a value stays"
        ),
        pytest.param(
            e("STATE_SNAPSHOT", snapshot=None), e("STATE_SNAPSHOT", snapshot=None), id="a state stays"
        ),
    ],
)
def test_nulls_of_older_peers_are_absent(old: Json, modern: Json) -> None:
    before = [START, agent("s1")] if old["type"] == "SUBAGENT_FINISHED" else [START]
    assert delivered([*before, old])[-1] == modern


def test_nulls_of_older_inputs_are_absent() -> None:
    old = RUN_INPUT | {
        "forwardedProps": None,
        "state": None,
        "tools": [{"name": "a", "description": "b", "parameters": None}],
        "resume": [{"interruptId": "i", "status": "resolved", "payload": None}],
    }
    modern = RUN_INPUT | {
        "state": None,
        "tools": [{"name": "a", "description": "b"}],
        "resume": [{"interruptId": "i", "status": "resolved"}],
    }
    kept = copy.deepcopy(old)
    assert delivered([START | {"input": old}]) == [START | {"input": modern}]
    assert old == kept


PNG: Json = {"type": "image", "source": {"type": "url", "value": "u", "mimeType": "image/png"}}
BINARY: Json = {"type": "binary", "mimeType": "image/png", "url": "u"}


@pytest.mark.parametrize(
    ("parts", "modern"),
    [
        pytest.param([BINARY], [PNG], id="an address"),
        pytest.param(
            [{"type": "binary", "mimeType": "audio/ogg", "data": "AA=="}],
            [{"type": "audio", "source": {"type": "data", "value": "AA==", "mimeType": "audio/ogg"}}],
            id="bytes",
        ),
        pytest.param(
            [{"type": "binary", "mimeType": "text/csv", "url": "u", "filename": "f"}],
            [
                {
                    "type": "document",
                    "source": {"type": "url", "value": "u", "mimeType": "text/csv"},
                    "metadata": {"filename": "f"},
                }
            ],
            id="a document with a name",
        ),
        pytest.param(
            [{"type": "binary", "mimeType": "image/png", "data": "AA==", "url": "u"}],
            [{"type": "image", "source": {"type": "data", "value": "AA==", "mimeType": "image/png"}}],
            id="bytes before an address",
        ),
        pytest.param([BINARY, PNG], [PNG], id="a modern one beside it"),
        pytest.param([BINARY | {"id": "x", "url": ""}], [BINARY | {"id": "x", "url": ""}], id="an id only"),
        pytest.param([{"type": "binary"}], [{"type": "binary"}], id="no type of media"),
        pytest.param([PNG | {"metadata": None}], [PNG], id="metadata null"),
        pytest.param([{"type": "text", "text": "x"}, 5], [{"type": "text", "text": "x"}, 5], id="others"),
    ],
)
def test_binary_parts_are_media(parts: list[Any], modern: list[Any]) -> None:
    message: Json = {"id": "m", "role": "user", "content": parts}
    before = copy.deepcopy(message)
    assert modernise_messages([message]) == [{"id": "m", "role": "user", "content": modern}]
    assert message == before


@pytest.mark.parametrize(
    "message", [5, None, "x", [], {}, {"content": "x"}, {"content": None}, {"content": {}}]
)
def test_what_is_no_old_message_stays(message: Any) -> None:
    assert modernise_messages([message]) == [message]


def test_modern_events_stay_themselves() -> None:
    for payload in (START, FINISH, text("START"), DELTA, tool("START", parentMessageId="m")):
        event = ev.from_dict(payload)
        assert isinstance(event, ev.Event)
        assert RetiredEventTranslator().translate(event) == event


# What the protocol does not describe


@pytest.mark.parametrize(
    ("event", "through", "left_out"),
    [
        pytest.param(text("START", new=1, newer=2), text("START"), "new, newer", id="fields"),
        pytest.param(
            FINISH | {"outcome": {"type": "new"}}, FINISH, "/outcome", id="an outcome that we do not know"
        ),
        pytest.param(
            FINISH | {"outcome": {"type": "success", "new": 1}},
            FINISH | {"outcome": {"type": "success"}},
            "/outcome/new",
            id="a member of an outcome",
        ),
        pytest.param(
            e("STATE_DELTA", delta=[{"op": "upsert", "path": "/a"}, *DELTA["delta"]]),
            DELTA,
            "/delta/0",
            id="an operation that we do not know",
        ),
        pytest.param(
            e("STATE_DELTA", delta=[DELTA["delta"][0] | {"new": 1}]),
            e("STATE_DELTA", delta=[DELTA["delta"][0] | {"new": 1}]),
            "",
            id="a member of an operation stays",
        ),
        pytest.param(
            e("MESSAGES_SNAPSHOT", messages=[{"id": "m", "role": "assistant", "annotations": []}]),
            e("MESSAGES_SNAPSHOT", messages=[{"id": "m", "role": "assistant"}]),
            "/messages/0/annotations",
            id="a member of a message",
        ),
        pytest.param(
            e("MESSAGES_SNAPSHOT", messages=[{"id": "m", "role": "robot"}, {"id": "n", "role": "assistant"}]),
            e("MESSAGES_SNAPSHOT", messages=[{"id": "n", "role": "assistant"}]),
            "/messages/0",
            id="a role that we do not know",
        ),
        pytest.param(
            tool("RESULT", messageId="r", content=[{"type": "hologram"}, {"type": "text", "text": "x"}]),
            tool("RESULT", messageId="r", content=[{"type": "text", "text": "x"}]),
            "/content/0",
            id="a part that we do not know",
        ),
        pytest.param(
            START | {"input": RUN_INPUT | {"new": 1}},
            START | {"input": RUN_INPUT},
            "/input/new",
            id="a member of an input",
        ),
        pytest.param(
            ERROR | {"usage": [{"model": "m", "price": 1}]},
            ERROR | {"usage": [{"model": "m"}]},
            "/usage/0/price",
            id="a member of usage",
        ),
    ],
)
def test_unknown_material_is_left_out(event: Json, through: Json, left_out: str) -> None:
    before = [] if event["type"] == "RUN_STARTED" else [START]
    notes: list[str] = []
    gate = ProtocolEnforcer(lambda code, message: notes.append(f"{code}: {message}"))
    assert delivered([*before, event], gate)[-1] == through
    assert notes == ([f"unknown_field: {event['type']} has no {left_out}"] if left_out else [])
    assert check([*before, event]) == ()


TEXT_PART: Json = {"type": "text", "text": "x"}
CALL: Json = {"id": "t", "type": "function", "function": {"name": "f", "arguments": ""}}
ASSISTANT: Json = {"id": "m", "role": "assistant"}
ASK: Json = {"id": "i", "reason": "r"}
SAME: Any = object()
# The shape, the value, what is left of it, what was removed, and what is wrong.
CLEANED: dict[str, tuple[shapes.Shape, Any, Any, list[str], list[str]]] = {
    "text": (shapes.CONTENT, "x", SAME, [], []),
    "no parts": (shapes.CONTENT, [], SAME, [], []),
    "content null": (shapes.CONTENT, None, SAME, [], ["/v is not a list"]),
    "a part": (shapes.CONTENT, [TEXT_PART | {"id": "p", "metadata": 0}], SAME, [], []),
    "a part with more": (shapes.CONTENT, [TEXT_PART | {"new": 1}], [TEXT_PART], ["/v/0/new"], []),
    "a part of an unknown kind": (shapes.CONTENT, [{"type": "new"}, TEXT_PART], [TEXT_PART], ["/v/0"], []),
    "a part without kind": (shapes.CONTENT, [{}], [], ["/v/0"], []),
    "a part whose kind is a list": (shapes.CONTENT, [{"type": ["text"]}], [], ["/v/0"], []),
    "a part that is text": (shapes.CONTENT, ["x"], SAME, [], ["/v/0 is not an object"]),
    "a part without its text": (shapes.CONTENT, [{"type": "text"}], SAME, [], ["/v/0/text is missing"]),
    "a source of an unknown kind takes its part along": (
        shapes.CONTENT, [{"new": 1, "id": 5, "type": "image", "source": {"type": "new"}}, TEXT_PART],
        [TEXT_PART], ["/v/0"], [],
    ),
    "a source that is wrong": (
        shapes.CONTENT, [{"type": "image", "source": {"type": "data", "value": "x"}}],
        SAME, [], ["/v/0/source/mimeType is missing"],
    ),
    "a source that is text": (
        shapes.CONTENT, [{"type": "image", "source": "u"}], SAME, [], ["/v/0/source is not an object"],
    ),
    "sources": (
        shapes.CONTENT,
        [
            {"type": "video", "source": {"type": "file", "value": "x", "provider": "p", "mimeType": "m"}},
            {"type": "audio", "source": {"type": "url", "value": "x"}},
            {"type": "document", "source": {"type": "data", "value": "x", "mimeType": "m"}},
        ], SAME, [], [],
    ),
    "a message": (shapes.MESSAGES, [ASSISTANT | {"content": "x", "toolCalls": [CALL]}], SAME, [], []),
    "a message of an unknown role": (shapes.MESSAGES, [{"role": "new", "id": 5}], [], ["/v/0"], []),
    "content null in a message": (
        shapes.MESSAGES, [ASSISTANT | {"content": None}], SAME, [], ["/v/0/content is not a string"],
    ),
    "a call with more": (
        shapes.MESSAGES,
        [ASSISTANT | {"toolCalls": [CALL | {"function": CALL["function"] | {"new": 1}, "newer": 2}]}],
        [ASSISTANT | {"toolCalls": [CALL]}],
        ["/v/0/toolCalls/0/function/new", "/v/0/toolCalls/0/newer"], [],
    ),
    "a call of another type": (
        shapes.MESSAGES, [ASSISTANT | {"toolCalls": [CALL | {"type": "new"}]}],
        SAME, [], ["/v/0/toolCalls/0/type is not one of function"],
    ),
    "a user with a part that goes": (
        shapes.MESSAGES, [{"id": "u", "role": "user", "content": [{"type": "new"}]}],
        [{"id": "u", "role": "user", "content": []}], ["/v/0/content/0"], [],
    ),
    "an activity with text": (
        shapes.MESSAGES, [{"id": "a", "role": "activity", "activityType": "x", "content": "x"}],
        SAME, [], ["/v/0/content is not an object"],
    ),
    "messages that are an object": (shapes.MESSAGES, {}, SAME, [], ["/v is not a list"]),
    "operations": (
        shapes.PATCH,
        [
            {"op": "add", "path": "/-", "value": None, "new": 1}, {"op": "remove", "path": ""},
            {"op": "move", "path": "/a~0", "from": "/~1"}, {"op": "copy", "path": "/", "from": "//"},
            {"op": "test", "path": "/a", "value": []}, {"op": "replace", "path": "/\n", "value": 1},
        ], SAME, [], [],
    ),
    "an unknown operation": (shapes.PATCH, [{"op": "new"}], [], ["/v/0"], []),
    "no operation": (shapes.PATCH, [{"path": "/a"}], [], ["/v/0"], []),
    "a pointer without slash": (
        shapes.PATCH, [{"op": "remove", "path": "a"}], SAME, [], ["/v/0/path is not a JSON pointer"],
    ),
    "from nowhere": (shapes.PATCH, [{"op": "copy", "path": "/a"}], SAME, [], ["/v/0/from is missing"]),
    "success": (shapes.RUN_OUTCOME, {"type": "success", "pendingToolCallIds": ["t"]}, SAME, [], []),
    "cancelled": (shapes.RUN_OUTCOME, {"type": "cancelled", "new": 1}, {"type": "cancelled"}, ["/v/new"], []),
    "an unknown outcome": (shapes.RUN_OUTCOME, {"type": "new"}, None, ["/v"], []),
    "an outcome without type": (shapes.RUN_OUTCOME, {}, None, ["/v"], []),
    "an outcome that is text": (shapes.RUN_OUTCOME, "success", SAME, [], ["/v is not an object"]),
    "interrupts": (
        shapes.RUN_OUTCOME, {"type": "interrupt", "interrupts": [ASK | {"new": 1}]},
        {"type": "interrupt", "interrupts": [ASK]}, ["/v/interrupts/0/new"], [],
    ),
    "no interrupts": (
        shapes.RUN_OUTCOME, {"type": "interrupt", "interrupts": []},
        SAME, [], ["/v/interrupts is too short"],
    ),
    "suspended": (shapes.SUBAGENT_OUTCOME, {"type": "suspended", "interruptIds": ["i"]}, SAME, [], []),
    "a subagent's interrupt": (shapes.SUBAGENT_OUTCOME, {"type": "interrupt"}, None, ["/v"], []),
    "usage": (shapes.USAGE, [{}, {"inputTokens": 0, "outputTokens": 1.0, "provider": "p"}], SAME, [], []),
    "usage that is no count": (
        shapes.USAGE,
        [{"inputTokens": 1.5}, {"totalTokens": True}, {"outputTokens": -1}, {"inputTokens": 2**53}],
        SAME, [],
        [
            "/v/0/inputTokens is not a whole number", "/v/1/totalTokens is not a whole number",
            "/v/2/outputTokens is not a whole number", "/v/3/inputTokens is not a whole number",
        ],
    ),
    "an input": (
        shapes.RUN_INPUT,
        {
            "threadId": "t", "runId": "r", "messages": [ASSISTANT], "state": None, "parentRunId": "p",
            "tools": [{"name": "n", "description": "d", "parameters": {}}],
            "context": [{"description": "d", "value": "v"}], "forwardedProps": 0, "protocolVersion": "1.0",
            "resume": [{"interruptId": "i", "status": "cancelled", "payload": 0}],
        }, SAME, [], [],
    ),
    "an input without its lists": (
        shapes.RUN_INPUT, {"threadId": "t", "runId": "r"}, SAME, [], ["/v/messages is missing"],
    ),
    "a resume that is neither": (
        shapes.RUN_INPUT,
        {"threadId": "t", "runId": "r", "messages": [], "resume": [{"interruptId": "i", "status": "new"}]},
        SAME, [], ["/v/resume/0/status is not one of resolved, cancelled"],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("shape", "value", "left", "removed", "faults"), CLEANED.values(), ids=CLEANED)
def test_cleaning(shape: shapes.Shape, value: Any, left: Any, removed: list[str], faults: list[str]) -> None:
    before = copy.deepcopy(value)
    cleaned = shapes.clean(value, shape, "/v")
    assert cleaned.faults == faults
    assert cleaned.removed == removed
    if not faults:
        assert cleaned.value == (value if left is SAME else left)
    assert value == before


@pytest.mark.parametrize(
    ("operations", "plain"),
    [
        pytest.param([], True, id="none"),
        pytest.param([{"op": "add", "path": "/a/-", "value": None}], True, id="add"),
        pytest.param([{"op": "remove", "path": ""}, {"op": "test", "path": "/", "value": 1}], True, id="two"),
        pytest.param([{"op": "move", "path": "/a", "from": "/b"}], False, id="move"),
        pytest.param([{"op": "add", "path": "/a~0", "value": 1}], False, id="escape"),
        pytest.param([{"op": "add", "path": "a", "value": 1}], False, id="no pointer"),
        pytest.param([{"op": "add", "path": "/a"}], False, id="no value"),
        pytest.param([{"op": "new", "path": "/a", "value": 1}], False, id="unknown"),
        pytest.param([{"op": ["add"], "path": "/a", "value": 1}], False, id="a list"),
        pytest.param([{"op": "add", "path": None, "value": 1}], False, id="null"),
        pytest.param(["add"], False, id="no object"),
    ],
)
def test_a_plain_patch_is_surely_clean(operations: list[Any], plain: bool) -> None:
    assert shapes.is_plain_patch(operations) is plain
    cleaned = shapes.clean(operations, shapes.PATCH, "/v")
    if plain:
        assert (cleaned.value, cleaned.removed, cleaned.faults) == (operations, [], [])
