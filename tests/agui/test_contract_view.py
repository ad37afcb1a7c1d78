"""The Agent contract: the documented table, the citations bridge, and what the peers lack."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from citewire.agui import Thread, bridge_citations_state
from citewire.agui.thread.thread import NotInLog
from citewire.patch import PatchError, apply_patch
from support.case_matching import matches
from support.cases import CASES, need_cases

Json = dict[str, Any]
PATH = CASES / "ngaf" / "cases.json"
# Those of the agent are in test_agent.py.
EVERY: list[Json] = json.loads(PATH.read_text("utf-8")) if PATH.exists() else []
SHARED = [case for case in EVERY if case["target"] != "agent"]


def start(name: str = "m1") -> Json:
    return {"type": "TEXT_MESSAGE_START", "messageId": name}


def say(delta: Any, name: str = "m1") -> Json:
    return {"type": "TEXT_MESSAGE_CONTENT", "messageId": name, "delta": delta}


def think(part: str, **fields: Any) -> Json:
    return {"type": f"REASONING_MESSAGE_{part}", "messageId": "m1", **fields}


def call(part: str, **fields: Any) -> Json:
    return {"type": f"TOOL_CALL_{part}", "toolCallId": "t1", **fields}


def patch(*operations: Json) -> Json:
    return {"type": "STATE_DELTA", "delta": list(operations)}


def snapshot(state: Any) -> Json:
    return {"type": "STATE_SNAPSHOT", "snapshot": state}


def cite(*entries: Any, name: str = "m1") -> Json:
    return snapshot({"citations": {name: list(entries)}})


END = {"type": "TEXT_MESSAGE_END", "messageId": "m1"}
HELLO: Json = {"id": "u", "role": "user", "content": "hi"}
RUN, DONE = {"type": "RUN_STARTED"}, {"type": "RUN_FINISHED"}
RUNNING: Json = {"id": "t1", "name": "lookup", "args": {}, "status": "running"}
LOOKUP = call("START", toolCallName="lookup")


def contract(*events: Json, **options: Any) -> Json:
    thread = Thread(**options)
    thread.extend(events)
    return thread.contract.to_json()


def codes(*events: Json, **options: Any) -> list[str]:
    thread = Thread(**options)
    thread.extend(events)
    return [problem.code for problem in thread.problems if problem.code != "bad_field"]


def citations(*events: Json, **options: Any) -> list[Any]:
    return [message.get("citations") for message in contract(*events, **options)["messages"]]


def test_the_cases_are_there() -> None:
    need_cases()
    assert len(SHARED) > 15


@pytest.mark.parametrize("case", SHARED, ids=lambda case: case["name"])
def test_shared_cases(case: Json) -> None:
    initial, expected = case.get("initial", {}), case["expected"]
    thread = Thread(state=initial.get("state"), messages=initial.get("messages", ()), seed_args=True)
    thread.extend(case["events"])
    if "throws" in expected:
        assert [problem.code for problem in thread.problems] == ["bad_patch"]
        assert thread.contract.state == case["call"]["doc"]
        with pytest.raises(PatchError) as caught:
            apply_patch(case["call"]["doc"], case["call"]["ops"])
        assert expected["throws"] in str(caught.value)
        return
    shown = thread.contract.to_json()
    assert matches(shown | {"emitted": shown["events"]}, expected)
    if case["target"] == "bridge":
        messages = case["call"]["messages"]
        for _ in range(case["call"].get("times", 1)):
            messages = bridge_citations_state(case["call"]["thread"], messages)
        assert matches({"messages": messages}, expected)


ASSISTANT: Json = {"id": "m1", "role": "assistant", "content": ""}


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        pytest.param([], {"status": "idle", "isLoading": False, "error": None, "state": {}}, id="nothing"),
        pytest.param([RUN], {"status": "running", "isLoading": True, "error": None}, id="run started"),
        pytest.param([RUN, DONE], {"status": "idle", "isLoading": False}, id="run finished"),
        pytest.param(
            [RUN, {"type": "RUN_ERROR", "message": "boom"}],
            {"status": "error", "isLoading": False, "error": "boom"},
            id="run error",
        ),
        pytest.param(
            [{"type": "RUN_ERROR", "code": "x"}],
            {"status": "error", "error": {"type": "RUN_ERROR", "code": "x"}},
            id="run error without a message",
        ),
        pytest.param(
            [{"type": "RUN_ERROR", "message": "boom"}, DONE],
            {"status": "idle", "error": "boom"},
            id="only a start clears an error",
        ),
        pytest.param(
            [{"type": "RUN_ERROR", "message": "boom"}, RUN], {"error": None}, id="a start clears an error"
        ),
        pytest.param([start()], {"messages": [ASSISTANT]}, id="text start"),
        pytest.param(
            [{**start(), "role": "user"}], {"messages": [ASSISTANT]}, id="always a slot of the assistant"
        ),
        pytest.param([start(), say("a"), start()], {"messages": [{"content": "a"}]}, id="slot reused"),
        pytest.param(
            [start(), start("m2"), say("a"), say("b", "m2"), say("c"), END],
            {"messages": [{"content": "ac"}, {"content": "b"}]},
            id="interleaved",
        ),
        pytest.param([think("START")], {"messages": [ASSISTANT | {"reasoning": ""}]}, id="reasoning start"),
        pytest.param(
            [start(), think("START"), think("CONTENT", delta="a"), think("CHUNK", delta="b"), say("c")],
            {"messages": [{"content": "c", "reasoning": "ab"}]},
            id="reasoning in the same slot",
        ),
        pytest.param(
            [think("CHUNK", delta="a"), {"type": "REASONING_MESSAGE_CHUNK", "delta": "b"}],
            {"messages": [{"reasoning": "ab"}]},
            id="reasoning in chunks only",
        ),
        pytest.param(
            [LOOKUP],
            {"messages": {"$exact": []}, "toolCalls": {"$exact": [RUNNING]}},
            id="tool start",
        ),
        pytest.param(
            [LOOKUP, call("RESULT", content={"hits": 3})],
            {"toolCalls": [{"result": {"hits": 3}, "status": "running"}]},
            id="tool result, verbatim",
        ),
        pytest.param([LOOKUP, call("END")], {"toolCalls": [{"status": "complete"}]}, id="tool end"),
        pytest.param(
            [snapshot({"a": 1}), snapshot({"b": 1})],
            {"state": {"$exact": {"b": 1}}},
            id="state replaced",
        ),
        pytest.param(
            [snapshot(None)], {"state": {"$exact": {}}}, id="null state"
        ),
        pytest.param(
            [patch({"op": "add", "path": "/a", "value": 1}, {"op": "add", "path": "/b/c", "value": 1})],
            {"state": {"$exact": {}}},
            id="patch applied whole or not at all",
        ),
        pytest.param(
            [start(), {"type": "MESSAGES_SNAPSHOT", "messages": [HELLO | {"x": 1}]}],
            {"messages": {"$exact": [HELLO | {"x": 1}]}},
            id="messages replaced, verbatim",
        ),
        pytest.param(
            [
                {"type": "CUSTOM", "name": "state_update", "value": {"x": 1}},
                {"type": "CUSTOM", "name": "state_update", "value": [1]},
                {"type": "CUSTOM", "name": "n", "value": None},
            ],
            {
                "events": [
                    {"type": "state_update", "data": {"x": 1}},
                    {"type": "custom", "name": "state_update", "data": [1]},
                    {"type": "custom", "name": "n", "data": None},
                ]
            },
            id="custom",
        ),
        pytest.param(
            [{"type": "FUTURE"}, {"type": "STEP_STARTED"}, {"type": "RAW", "event": 1}],
            {"messages": [], "status": "idle", "events": []},
            id="ignored",
        ),
        pytest.param(
            [
                {"type": "TEXT_MESSAGE_CHUNK", "messageId": "m1", "delta": "a"},
                {"type": "TEXT_MESSAGE_CHUNK", "delta": "b"},
                {"type": "TOOL_CALL_CHUNK", "toolCallId": "t", "toolCallName": "x", "delta": '{"a":'},
                {"type": "TOOL_CALL_CHUNK", "delta": "1}"},
                DONE,
            ],
            {"messages": [{"content": "ab"}], "toolCalls": [{"args": {"a": 1}, "status": "complete"}]},
            id="chunks",
        ),
        pytest.param(
            [{"type": "MESSAGES_SNAPSHOT", "messages": [{"id": "m1", "role": "assistant"}]}, say("a")],
            {"messages": [{"content": "a"}]},
            id="text for a message without content",
        ),
        pytest.param(
            [
                {"type": "MESSAGES_SNAPSHOT", "messages": [{"id": "m1", "content": [{"type": "image"}]}]},
                say("a"),
                say("b"),
            ],
            {"messages": [{"content": [{"type": "image"}, {"type": "text", "text": "ab"}]}]},
            id="text behind blocks",
        ),
    ],
)  # fmt: skip
def test_the_table(events: list[Json], expected: Json) -> None:
    assert matches(contract(*events), expected)


@pytest.mark.parametrize(
    ("fragments", "seed", "args"),
    [
        pytest.param(['{"a":1}', '{"b":2}'], True, {"b": 2}, id="seed: the last one"),
        pytest.param(['{"a":1}', '{"b"'], True, {}, id="seed: what does not parse is nothing"),
        pytest.param(['{"a":1}', "[1]"], True, {}, id="seed: a list is nothing"),
        pytest.param(['{"a"', ":1}"], False, {"a": 1}, id="fragments"),
        pytest.param(['{"a":"x', "y"], False, {"a": "xy"}, id="the best so far"),
        pytest.param(['{"a":1}', '{"b":2}'], False, {"b": 2}, id="an object replaces a whole one"),
        pytest.param(["nonsense"], False, {}, id="nonsense"),
    ],
)
def test_tool_arguments(fragments: list[str], seed: bool, args: Json) -> None:
    events = [LOOKUP, *(call("ARGS", delta=fragment) for fragment in fragments)]
    assert contract(*events, seed_args=seed)["toolCalls"][0]["args"] == args


def test_reasoning_is_timed_by_the_clock_of_the_thread() -> None:
    seconds = iter((10.0, 12.5, 20.0))
    thread = Thread(clock=lambda: next(seconds))
    thread.extend([think("START", role="reasoning"), think("CONTENT", delta="a"), think("END")])
    assert thread.contract.messages[0]["reasoningDurationMs"] == 2500
    other = Thread(clock=lambda: next(seconds))
    other.extend([start(), think("END")])
    assert "reasoningDurationMs" not in other.contract.messages[0]
    assert thread.at(3).contract.messages[0]["reasoningDurationMs"] == 2500


@pytest.mark.parametrize(
    ("entry", "citation"),
    [
        pytest.param("https://x", {"id": "c1", "index": 1, "url": "https://x"}, id="a string is a url"),
        pytest.param(
            "javascript:x", {"id": "c1", "index": 1, "url": "javascript:x"}, id="no url is validated"
        ),
        pytest.param({"refId": "a", "id": 5}, {"id": "a", "index": 1}, id="ids are strings"),
        pytest.param({"id": "", "refId": "a"}, {"id": "", "index": 1}, id="an empty id is one"),
        pytest.param({"id": "a", "index": 7}, {"id": "a", "index": 7}, id="index"),
        pytest.param({"id": "a", "index": "7"}, {"id": "a", "index": 1}, id="an index is a number"),
        pytest.param({"id": "a", "index": True}, {"id": "a", "index": 1}, id="and no boolean"),
        pytest.param(
            {"name": "N", "href": "u", "excerpt": "e"},
            {"id": "c1", "index": 1, "title": "N", "url": "u", "snippet": "e"},
            id="other spellings",
        ),
        pytest.param(
            {"title": 5, "name": "N"}, {"id": "c1", "index": 1, "title": "N"}, id="first that is text"
        ),
        pytest.param(
            {"title": "", "name": "N"}, {"id": "c1", "index": 1, "title": ""}, id="empty text is text"
        ),
        pytest.param(
            {"id": "a", "extra": {"x": [1]}, "unknown": 1},
            {"id": "a", "index": 1, "extra": {"x": [1]}},
            id="extra, and nothing unknown",
        ),
        pytest.param(
            {"id": "a", "sourceType": "file", "iconUrl": "i", "publishedAt": 5},
            {"id": "a", "index": 1, "sourceType": "file", "iconUrl": "i", "publishedAt": 5},
            id="what later front ends read",
        ),
    ],
)
def test_a_citation_is_normalised(entry: Any, citation: Json) -> None:
    assert citations(start(), cite(entry)) == [[citation]]
    carried = {"id": "m1", "role": "assistant", "content": "", "citations": [entry]}
    assert citations({"type": "MESSAGES_SNAPSHOT", "messages": [carried]}) == [[citation]]


@pytest.mark.parametrize("entry", [5, None, True, ["x"], {}, {"unknown": 1}], ids=str)
def test_an_entry_that_says_nothing_is_left_out_and_reported(entry: Any) -> None:
    assert citations(start(), cite(entry, "u")) == [[{"id": "c2", "index": 2, "url": "u"}]]
    assert codes(start(), cite(entry, "u")) == ["bad_citation"]


def test_a_made_up_id_is_never_one_that_is_taken() -> None:
    found = citations(start(), cite("u", {"id": "c1"}, {"refId": "c3"}, "v", {"id": "c1"}))[0]
    assert [each["id"] for each in found] == ["c2", "c1", "c3", "c4", "c1"]  # nothing is deduplicated


NO_ENTRIES: tuple[Any, ...] = ([], {}, "x", 5, None)
NO_CITATIONS: tuple[Any, ...] = ({}, None, 5, *({"citations": each} for each in NO_ENTRIES))


@pytest.mark.parametrize(
    "state", [*NO_CITATIONS, *({"citations": {"m1": entry}} for entry in NO_ENTRIES)], ids=str
)
def test_no_citations_leave_messages_as_they_are(state: Any) -> None:
    messages = [{"id": "m1", "role": "assistant", "content": "", "citations": ["kept"]}]
    assert bridge_citations_state(SimpleNamespace(state=state), messages) == messages
    events = [start(), cite("u"), {"type": "STATE_SNAPSHOT", "snapshot": state}]
    assert citations(*events) == [[{"id": "c1", "index": 1, "url": "u"}]]


ADDED = patch({"op": "add", "path": "/citations/m1", "value": ["u"]})
MOVED = patch({"op": "move", "from": "/citations/m9", "path": "/citations/m1"})
LATER = patch({"op": "add", "path": "/other", "value": 1})
SOURCE = [{"id": "c1", "index": 1, "url": "u"}]


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        pytest.param([cite("u"), start(), say("a")], [None], id="not after plain text"),
        pytest.param([cite("u"), start(), LATER], [SOURCE], id="early ones at the next state event"),
        pytest.param([start(), cite("u", name="m2"), start("m2"), LATER], [None, SOURCE], id="by id"),
        pytest.param(
            [start(), snapshot({"citations": {}}), ADDED],
            [SOURCE],
            id="by a patch",
        ),
        pytest.param(
            [start(), cite("u"), patch({"op": "add", "path": "/citations/m1/-", "value": "v"})],
            [[*SOURCE, {"id": "c2", "index": 2, "url": "v"}]],
            id="within the list",
        ),
        pytest.param(
            [start(), cite("u", name="m9"), MOVED],
            [SOURCE],
            id="moved to it",
        ),
        pytest.param(
            [start(), patch({"op": "add", "path": "", "value": {"citations": {"m1": ["u"]}}})],
            [SOURCE],
            id="with the root",
        ),
        pytest.param(
            [start(), cite("u"), {"type": "MESSAGES_SNAPSHOT", "messages": [ASSISTANT]}],
            [None],
            id="a snapshot of messages replaces them",
        ),
        pytest.param(
            [start(), cite("u"), {"type": "MESSAGES_SNAPSHOT", "messages": [ASSISTANT]}, LATER],
            [SOURCE],
            id="until the next state event",
        ),
        pytest.param(
            [start(), cite("u"), patch({"op": "remove", "path": "/citations/m1"})], [SOURCE], id="not removed"
        ),
    ],
)  # fmt: skip
def test_when_citations_come(events: list[Json], expected: list[Any]) -> None:
    assert citations(*events) == expected


def test_a_removed_entry_clears_its_message_when_asked_to() -> None:
    events = [start(), start("m2"), cite("u"), patch({"op": "remove", "path": "/citations/m1"})]
    assert citations(*events, clear_removed=True) == [None, None]


def test_only_messages_whose_entry_changed_are_touched() -> None:
    thread = Thread()
    thread.extend([start(), start("m2"), cite("u"), {"type": "STATE_DELTA", "delta": []}])
    before = thread.contract
    thread.apply(patch({"op": "add", "path": "/citations/m2", "value": ["v"]}))
    after = thread.contract
    assert after.messages[0] is before.messages[0]
    assert "citations" not in before.messages[1]
    assert after.messages[1]["citations"] == [{"id": "c1", "index": 1, "url": "v"}]


@pytest.mark.parametrize(
    ("events", "code"),
    [
        pytest.param([say("a", "ghost")], "unknown_message", id="text of no message"),
        pytest.param(
            [think("CONTENT", delta="a") | {"messageId": "ghost"}],
            "unknown_message",
            id="reasoning of no message",
        ),
        pytest.param([call("ARGS", delta="{}")], "unknown_tool_call", id="arguments of no call"),
        pytest.param([LOOKUP, LOOKUP], "duplicate_start", id="a call that starts twice"),
        pytest.param([patch({"op": "add", "path": "/a/b", "value": 1})], "bad_patch", id="missing parent"),
        pytest.param([patch({"op": "add", "path": "/__proto__/x", "value": 1})], "bad_patch", id="__proto__"),
        pytest.param([{"type": "TEXT_MESSAGE_CHUNK", "delta": "a"}], "out_of_order", id="a chunk of nothing"),
    ],
)
def test_what_has_no_place_is_reported_and_changes_nothing(events: list[Json], code: str) -> None:
    before = contract(start(), say("x"))
    after = contract(start(), say("x"), *events)
    assert code in codes(start(), say("x"), *events)
    assert after["messages"] == before["messages"]
    assert after["state"] == before["state"]


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        pytest.param(say(5), "x", id="number"),
        pytest.param({"type": "TEXT_MESSAGE_CONTENT", "messageId": "m1"}, "x", id="no delta"),
        pytest.param(say("y") | {"metadata": None}, "xy", id="null"),
        pytest.param(say("y") | {"messageId": 5}, "x", id="id is a number"),
        pytest.param({"type": "MESSAGES_SNAPSHOT", "messages": 5}, "x", id="no messages"),
        pytest.param({"type": "STATE_DELTA", "delta": 5}, "x", id="no patch"),
    ],
)
def test_a_wrong_field_is_reported_and_the_rest_is_read(event: Json, expected: str) -> None:
    thread = Thread()
    thread.extend([start(), say("x"), event])
    assert thread.contract.messages[0]["content"] == expected
    assert "bad_field" in [problem.code for problem in thread.problems]
    assert {problem.path for problem in thread.problems} == {"#3"}


def test_interrupts_wait_until_the_next_run_ends() -> None:
    interrupt = {"id": "i1", "reason": "approve", "message": "Send it?"}
    finished = DONE | {"outcome": {"type": "interrupt", "interrupts": [interrupt]}}
    assert contract(RUN, finished)["interrupts"] == [interrupt]
    assert contract(RUN, finished, RUN)["interrupts"] == [interrupt]
    assert contract(RUN, finished, RUN, DONE)["interrupts"] == []


def test_subagents_have_messages_of_their_own() -> None:
    tag = {"subagentRunId": "s1"}
    shown = contract(
        start(),
        {"type": "SUBAGENT_STARTED", "name": "scout", "parentMessageId": "m1", **tag},
        start("m2") | tag,
        say("found", "m2"),
        LOOKUP | tag,
        call("ARGS", delta='{"q":1}'),
        call("END"),
        cite("u", name="m2"),
        {"type": "SUBAGENT_FINISHED", "result": 3, **tag},
        {"type": "SUBAGENT_STARTED", "name": "other", "subagentRunId": "s2"},
        {"type": "SUBAGENT_ERROR", "message": "lost", "subagentRunId": "s2"},
    )
    assert [message["id"] for message in shown["messages"]] == ["m1"]
    assert shown["toolCalls"] == []
    scout, other = shown["subagents"]
    assert matches(
        scout, {"id": "s1", "name": "scout", "status": "complete", "result": 3, "parentMessageId": "m1"}
    )
    assert matches(scout["messages"], [{"id": "m2", "content": "found", "citations": SOURCE}])
    assert matches(scout["toolCalls"], [{"args": {"q": 1}, "status": "complete"}])
    assert matches(other, {"status": "error", "error": "lost", "messages": []})


def test_after_a_run_that_ended_nothing_goes_on() -> None:
    thread = Thread()
    thread.extend([RUN, DONE])
    thread.open_stream(goes_on=True)
    assert thread.contract.status == "idle"


@pytest.mark.parametrize("given", ["init", "set_state", "set_messages"])
def test_citations_of_a_state_that_is_there_already(given: str) -> None:
    state = {"citations": {"m1": ["u"]}}
    thread = Thread(
        state=state if given != "set_state" else None, messages=[ASSISTANT] if given == "init" else ()
    )
    if given == "set_state":
        thread.apply(start())
        thread.set_state(state)
    elif given == "set_messages":
        thread.set_messages([ASSISTANT])
    assert "citations" not in thread.contract.messages[0]
    thread.apply(LATER)
    assert thread.contract.messages[0]["citations"] == SOURCE
    assert bridge_citations_state(thread, [ASSISTANT])[0]["citations"] == SOURCE


def test_a_message_that_a_snapshot_takes_from_a_subagent() -> None:
    tagged = start("m2") | {"subagentRunId": "s1"}
    shown = contract(
        tagged, {"type": "MESSAGES_SNAPSHOT", "messages": [ASSISTANT | {"id": "m2"}]}, cite("u", name="m2")
    )
    assert [message["citations"] for message in shown["messages"]] == [SOURCE]
    assert shown["subagents"][0]["messages"] == []


def test_a_peer_cannot_fill_the_memory_with_problems_or_events() -> None:
    thread = Thread()
    thread.extend([b"{}"] * 5000)
    assert len(thread.problems) == len(thread.agui.problems) + 1000 == 1001
    assert thread.problems[-1].code == "too_many_problems"
    assert "4000" in thread.problems[-1].message
    thread.extend([{"type": "CUSTOM", "name": "n", "value": number} for number in range(25_000)])
    assert 10_000 <= len(thread.contract.events) <= 20_000
    assert thread.contract.events[-1]["data"] == 24_999


def test_copies_of_copies_are_refused() -> None:
    grow = [{"op": "copy", "from": "/a", "path": "/a/-"}] * 40
    thread = Thread(state={"a": [1]})
    thread.apply(patch(*grow))
    assert [problem.code for problem in thread.problems] == ["bad_patch"]
    assert thread.state == {"a": [1]}


def test_large_events_shorten_the_history() -> None:
    thread = Thread()
    for number in range(60):
        thread.apply({"type": "RAW", "event": f"{number}" + "x" * (2 << 20)})
    with pytest.raises(NotInLog):
        thread.entries(0)
    assert thread.number == 60


def test_a_failed_transport_is_an_error_and_a_stop_is_none() -> None:
    thread = Thread()
    thread.extend([RUN, start(), say("half")])
    thread.fail(ConnectionError("gone"))
    assert (thread.contract.status, thread.contract.is_loading, thread.contract.error) == (
        "error",
        False,
        "gone",
    )
    assert thread.contract.messages[0]["content"] == "half"
    thread.apply(RUN)
    thread.stop()
    assert (thread.contract.status, thread.contract.error) == ("idle", None)


def test_asking_anew_keeps_the_turns_before_it_as_they_are() -> None:
    thread = Thread()
    thread.add_message(HELLO)
    thread.extend([start(), say("a"), think("START"), LOOKUP, call("RESULT", content="3"), cite("u")])
    before = thread.contract
    thread.add_message(HELLO | {"id": "u2"})
    thread.extend([start("m2"), LOOKUP | {"toolCallId": "t2"}])
    thread.cut("u2")
    assert [message["id"] for message in thread.contract.messages] == ["u", "m1", "u2"]
    assert thread.contract.messages[:2] == list(before.messages)
    assert thread.contract.tool_calls == before.tool_calls
    thread.cut("u")
    assert thread.contract.messages == [HELLO]
    assert thread.contract.tool_calls == []
    thread.cut("nobody")
    assert thread.contract.messages == [HELLO]


@pytest.mark.parametrize("how", ["failed", "stopped", "unnoticed"])
def test_a_run_that_broke_off_goes_on(how: str) -> None:
    thread = Thread()
    thread.extend([RUN | {"threadId": "t", "runId": "r"}, start(), say("a")])
    if how == "failed":
        thread.fail("gone")
    elif how == "stopped":
        thread.stop()
    thread.open_stream(goes_on=True)
    assert (thread.contract.status, thread.contract.error) == ("running", None)
    thread.extend([say("b"), END, DONE | {"threadId": "t", "runId": "r"}])
    assert thread.contract.messages[0]["content"] == thread.agui.messages[0]["content"] == "ab"
    assert (thread.contract.status, thread.agui.outcome) == ("idle", "completed")


@pytest.mark.parametrize("view", ["contract", "agui"])
def test_nesting_without_end_is_reported(view: str) -> None:
    deep: Any = []
    for _ in range(900):
        deep = [deep]
    thread = Thread()
    thread.extend([RUN | {"threadId": "t", "runId": "r"}, snapshot(deep)])
    shown = getattr(thread, view)
    assert [problem.code for problem in shown.problems] == ["bad_json"]
    assert shown.state == {}
