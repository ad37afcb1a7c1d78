"""A thread: what was handed out stays, the past can be read and forked, an event costs what it changes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from functools import cache
from itertools import count
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from citewire.agui import events as ev
from citewire.agui.citation_bridge import is_citation_list, normalise_citations
from citewire.agui.thread.persistent_list import ListSnapshot
from citewire.agui.thread.thread import NotInLog, Thread
from citewire.frozen import FrozenDict
from support.agui_streams import Streams
from support.call_counts import count_calls

Json = dict[str, Any]
Step = Callable[[Thread], object]


def e(name: str, /, **fields: Any) -> Json:
    return {"type": name, **fields}


def text(part: str, name: str = "m1", /, **fields: Any) -> Json:
    return e(f"TEXT_MESSAGE_{part}", messageId=name, **fields)


def say(delta: str, name: str = "m1", /, **fields: Any) -> Json:
    return text("CONTENT", name, delta=delta, **fields)


def think(part: str, /, **fields: Any) -> Json:
    return e(f"REASONING_MESSAGE_{part}", messageId="m1", **fields)


def tool(part: str, /, **fields: Any) -> Json:
    return e(f"TOOL_CALL_{part}", toolCallId="t1", **fields)


def patch(*operations: Any) -> Json:
    return e("STATE_DELTA", delta=list(operations))


def put(path: str, value: Any, op: str = "add") -> Json:
    return {"op": op, "path": path, "value": value}


def user(name: str, content: str = "hi") -> Json:
    return {"id": name, "role": "user", "content": content}


RUN, DONE = e("RUN_STARTED", threadId="t", runId="r"), e("RUN_FINISHED", threadId="t", runId="r")
S1 = {"subagentRunId": "s1"}
CITED = e("STATE_SNAPSHOT", snapshot={"citations": {"m1": [{"id": "a"}], "m2": ["https://example.com"]}})
ASK = {"type": "interrupt", "interrupts": [{"id": "i", "reason": "ask"}]}
HISTORY = e(
    "MESSAGES_SNAPSHOT",
    messages=[user("u9"), {"id": "m1", "role": "assistant", "content": "old", "citations": [{"id": "x"}]}],
)
EVENTS: list[Any] = [
    RUN, DONE, DONE | {"outcome": ASK}, e("RUN_ERROR", message="no"),
    RUN | {"input": {"threadId": "t", "runId": "r", "messages": [user("u8")]}},
    text("START"), say("a"), say("b"), say("\ud83d"), say("\ude00"), say("c", metadata={"k": 1}), text("END"),
    text("START", "m2", **S1), say("d", "m2"), say("e", "m2", **S1), text("END", "m2"),
    text("CHUNK", "m3", delta="f"), e("TEXT_MESSAGE_CHUNK", delta="g"), text("CHUNK", "m4", delta="h", **S1),
    think("START", role="reasoning"), think("CONTENT", delta="i"), think("END"), think("CHUNK", delta="j"),
    tool("START", toolCallName="look"), tool("START", toolCallName="look", parentMessageId="m1"),
    tool("ARGS", delta='{"q":'), tool("ARGS", delta='"x"}'), tool("END"),
    tool("RESULT", messageId="r1", content="k"), tool("RESULT", messageId="r2", content="l"),
    e("TOOL_CALL_START", toolCallId="t2", toolCallName="look", **S1),
    e("TOOL_CALL_ARGS", toolCallId="t2", delta="{}"), e("TOOL_CALL_END", toolCallId="t2", **S1),
    e("TOOL_CALL_RESULT", toolCallId="t2", messageId="r3", content="k"),
    CITED, e("STATE_SNAPSHOT", snapshot=None), HISTORY, e("MESSAGES_SNAPSHOT", messages=[]),
    patch(put("/citations", {})), patch(put("/citations/m1", [{"id": "b"}])),
    patch(put("/n", 1), put("/no/where", 1)), patch(put("/citations/m1/0/title", "t")),
    patch({"op": "remove", "path": "/citations/m1"}),
    e("ACTIVITY_SNAPSHOT", messageId="a1", activityType="x", content={"n": 1}),
    e("ACTIVITY_DELTA", messageId="a1", activityType="x", patch=[put("/n", 2)]),
    e("ACTIVITY_SNAPSHOT", messageId="r1", activityType="x", content={"n": 3}),
    e("CUSTOM", name="x", value=[1]),
    e("SUBAGENT_STARTED", name="helper", **S1), e("SUBAGENT_FINISHED", **S1),
    e("REASONING_ENCRYPTED_VALUE", subtype="message", entityId="m1", encryptedValue="x"),
    e("THINKING_START"), e("NEW"), text("CONTENT", delta=5), b"{", b"[]",
]  # fmt: skip
LOCAL: list[Step] = [
    lambda thread: thread.add_message(user("u1")),
    lambda thread: thread.set_messages([user("u1"), user("m1", "mine")]),
    lambda thread: thread.set_state({"citations": {"m1": [{"id": "c", "title": "local"}]}}),
    lambda thread: thread.cut("m1"),
    lambda thread: thread.open_stream(),
    lambda thread: thread.open_stream(goes_on=True),
    lambda thread: thread.fail("lost"),
    lambda thread: thread.stop(),
    lambda thread: thread.note("odd", "something"),
]


def applying(event: Any) -> Step:
    return lambda thread: thread.apply(event)


# Mostly in a run, and mostly events of the same few messages, so that many of them have a place.
steps = st.lists(
    st.sampled_from([*map(applying, EVENTS)]) | st.sampled_from([*map(applying, EVENTS), *LOCAL]), max_size=25
).map(lambda listed: [applying(RUN), applying(text("START")), *listed])
random_steps = st.integers(0, 2**32).map(
    lambda seed: [applying(event) for event in Streams(seed).make()["stream"]]
)


def thread_of(taken: Iterable[Step], **options: Any) -> Thread:
    given_options: Json = {"clock": count().__next__, "clear_removed": True} | options
    thread = Thread(**given_options)
    for step in taken:
        step(thread)
    return thread


def views(thread: Thread) -> tuple[Any, Any]:
    return thread.agui, thread.contract


@given(steps | random_steps, st.booleans())
def test_what_was_handed_out_is_the_past(taken: list[Step], look: bool) -> None:
    """After each step: the views taken then, `at(n)`, and a thread that got only the first n are the same.

    Whether or not what was handed out was looked into before the thread went on.
    """
    thread, handed_out = thread_of([]), list[tuple[Any, Any]]()
    seen = [repr(views(thread))]
    for step in taken:
        step(thread)
        handed_out.append(views(thread))
        if look:
            seen.append(repr(handed_out[-1]))
    for number, then in enumerate(handed_out, 1):
        fresh = thread_of(taken[:number])
        past = thread.at(number)
        assert past.number == fresh.number == number
        assert repr(then) == repr(views(fresh)) == repr((past.agui, past.contract))
        assert then == (past.agui, past.contract)
        if look:
            assert repr(then) == seen[number]


@given(steps | random_steps, st.data())
def test_a_fork_goes_its_own_way(taken: list[Step], data: st.DataObject) -> None:
    """With the same it becomes the same; with anything else the original does not notice."""
    thread = thread_of(taken, clock=float)
    number = data.draw(st.integers(0, len(taken)))
    before = repr(views(thread))
    again, other = thread.fork(number), thread.fork(number)
    past = thread.at(number)
    assert views(again) == (past.agui, past.contract)
    for step in data.draw(steps):
        step(other)
    for step in taken[number:]:
        step(again)
    assert again.number == thread.number
    assert repr(views(again)) == repr(views(thread)) == before
    assert list(again.entries()) == list(thread.entries())
    fresh = thread_of(taken, clock=float)
    for each in (thread, again, fresh):
        each.extend([CITED, text("START", "m2"), CITED])
    assert repr(views(again)) == repr(views(thread)) == repr(views(fresh))
    for earlier in range(number + 1):
        assert repr(other.at(earlier)) == repr(thread.at(earlier))


def test_forks_share_nothing_that_changes() -> None:
    """What only shows later, too: citations that wait for their message, what a subagent is at, the clock."""
    thread = thread_of([applying(RUN), applying(CITED), applying(e("SUBAGENT_STARTED", name="x", **S1))])
    thread.apply(think("START", role="reasoning") | {"messageId": "m7"})
    fork = thread.fork(thread.number)
    fork.extend([text("START"), CITED, e("SUBAGENT_FINISHED", **S1)])
    fork.apply(think("END") | {"messageId": "m7"})
    assert fork.contract.messages[1]["citations"] == [{"id": "a", "index": 1}]
    assert (fork.contract.subagents[0].info["status"], fork.contract.messages[0]["reasoningDurationMs"]) == (
        "complete",
        1000,
    )
    thread.apply(text("START"))
    assert thread.contract.subagents[0].info["status"] == "running"
    assert "citations" not in thread.contract.messages[1]
    thread.extend([patch(put("/n", 1)), think("END") | {"messageId": "m7"}])
    assert thread.contract.messages[1]["citations"] == [{"id": "a", "index": 1}]
    assert thread.contract.messages[0]["reasoningDurationMs"] == 2000


@pytest.mark.slow
@given(steps | random_steps, st.integers(0, 6), st.booleans())
def test_a_short_history_loses_no_view(taken: list[Step], history: int, look: bool) -> None:
    """The log is trimmed, the views are those of everything, and what it no longer has is gone."""
    short, whole = thread_of([], history=history), thread_of([])
    for number, step in enumerate(taken, 1):
        assert step(short) == step(whole) == number
        if look:
            assert repr(views(short)) == repr(views(whole))
    assert repr(views(short)) == repr(views(whole))
    floor = next(number for number in range(short.number + 1) if has(short, number))
    assert min(history, short.number) <= short.number - floor <= max(2 * history, 1)
    for number in range(-1, floor):
        for reach in (short.at, short.fork, short.entries):
            with pytest.raises(NotInLog) as caught:
                reach(number)
            assert caught.value.code == "not_in_log"
    for number in range(floor, short.number + 1):
        assert repr(short.at(number)) == repr(whole.at(number))
        assert repr(views(short.fork(number))) == repr(views(whole.fork(number)))
        assert list(short.entries(number)) == list(whole.entries(number))


def has(thread: Thread, number: int) -> bool:
    try:
        thread.at(number)
    except NotInLog:
        return False
    return True


@given(steps, st.integers(1, 4))
def test_a_fork_of_a_short_history(taken: list[Step], history: int) -> None:
    short = thread_of(taken, history=history, clock=float)
    floor = next(number for number in range(short.number + 1) if has(short, number))
    for number in range(floor, short.number + 1):
        again = short.fork(number)
        for step in taken[number:]:
            step(again)
        assert repr(views(again)) == repr(views(short))
        assert again.number == short.number


@given(steps | random_steps)
def test_extending_is_applying_one_by_one(taken: list[Step]) -> None:
    thread = thread_of(taken)
    again = Thread(clock=count().__next__, clear_removed=True)
    entries = list(thread.entries())
    events = [entry for entry in entries if isinstance(entry, ev.Event | ev.UnknownEvent | ev.MalformedEvent)]
    if len(events) == len(entries):
        assert again.extend(events) == len(events)
        assert repr(views(again)) == repr(views(thread))


def test_numbers() -> None:
    thread = Thread()
    assert thread.number == 0
    assert [thread.apply(RUN), thread.apply(b"["), thread.add_message(user("u")), thread.stop()] == [
        1,
        2,
        3,
        4,
    ]
    assert thread.extend([DONE, DONE]) == thread.number == 6
    assert len(thread.entries()) == 6
    assert list(thread.entries(4)) == [ev.from_dict(DONE)] * 2
    assert list(thread.entries(6)) == []
    for number in (7, -1):
        with pytest.raises(NotInLog):
            thread.at(number)
        with pytest.raises(NotInLog):
            thread.fork(number)


# Before a message


def test_before_a_message() -> None:
    thread = thread_of([])
    thread.add_message(user("u1"))
    thread.extend([RUN, text("START"), say("a"), text("END"), tool("START", toolCallName="x"), tool("END")])
    thread.apply(tool("RESULT", messageId="r1", content="k"))
    thread.apply(DONE)
    thread.apply(RUN)
    thread.apply(e("MESSAGES_SNAPSHOT", messages=[*thread.agui.messages, user("u2")]))
    numbers = {"u1": 0, "m1": 2, "t1": 5, "r1": 7, "u2": 10}
    for name, number in numbers.items():
        assert thread.before(name) == thread.at(number)
        assert name not in [message["id"] for message in thread.before(name).agui.messages]
    with pytest.raises(NotInLog) as caught:
        thread.before("nobody")
    assert caught.value.code == "not_in_log"


def test_before_a_message_that_was_there_from_the_start() -> None:
    """There is nothing earlier, so that is where the thread starts."""
    thread = thread_of([applying(RUN)], messages=[user("u0")])
    assert thread.before("u0") == thread.at(0)


def test_before_a_message_that_this_side_set() -> None:
    thread = thread_of([applying(RUN)])
    thread.set_messages([user("u1")])
    assert thread.before("u1") == thread.at(1)


def test_before_a_message_that_only_the_contract_shows() -> None:
    """The client rejects what comes before a run; the contract does not."""
    thread = thread_of([applying(e("CUSTOM", name="x", value=1)), applying(text("START"))])
    assert [message["id"] for message in thread.contract.messages] == ["m1"]
    assert thread.before("m1") == thread.at(1)


def test_looking_back_does_not_make_the_views_old() -> None:
    thread = thread_of([applying(RUN), applying(text("START"))])
    assert [view.messages[0]["content"] for view in views(thread)] == ["", ""]
    thread.apply(say("a"))
    thread.before("m1")
    thread.at(2)
    thread.fork(2)
    assert [view.messages[0]["content"] for view in views(thread)] == ["a", "a"]


# What this side does


def test_messages_of_this_side() -> None:
    thread = thread_of([])
    message = user("u1")
    thread.add_message(message)
    thread.extend([RUN, text("START"), say("a"), text("END"), DONE])
    thread.add_message(user("u2"))
    for view in views(thread):
        assert [each["id"] for each in view.messages] == ["u1", "m1", "u2"]
        assert view.messages[0] == message
    thread.set_messages([user("u1", "anew")])
    assert [list(view.messages) for view in views(thread)] == [[user("u1", "anew")]] * 2


def test_what_this_side_gives_is_taken_as_it_is_now() -> None:
    """Who gave it may change it at once, before anybody has looked."""
    message, listed, state = user("u1"), [user("u2")], {"a": [1]}
    thread, other = thread_of([]), thread_of([], messages=[message], state=state)
    thread.add_message(message)
    third = thread_of([])
    third.set_messages(listed)
    thread.set_state(state)
    message["content"] = listed[0]["content"] = "changed"
    state["a"].append(2)
    listed.clear()
    for view in (*views(thread), *views(other)):
        assert list(view.messages) == [user("u1")]
        assert view.state == {"a": [1]}
    for view in views(third):
        assert list(view.messages) == [user("u2")]
    for view in (thread.at(2).agui, thread.at(2).contract):
        assert list(view.messages) == [user("u1")]


def test_cutting_off_what_came_after() -> None:
    """The answer, and the calls that were made for it, whichever message holds them."""
    parents: list[Json] = [{}, {"parentMessageId": "m0"}, {"parentMessageId": "m1"}]
    for parent in parents:
        thread = thread_of([])
        thread.add_message(user("u1"))
        thread.extend([RUN, tool("START", toolCallName="x", **parent), tool("END")])
        thread.extend(
            [tool("RESULT", messageId="r1", content="k"), text("START"), say("a"), text("END"), DONE]
        )
        thread.cut("u1")
        for view in views(thread):
            assert [message["id"] for message in view.messages] == ["u1"]
        assert list(thread.contract.tool_calls) == []
        thread.cut("nobody")
        for view in views(thread):
            assert [message["id"] for message in view.messages] == ["u1"]


def test_cutting_off_an_answer_that_is_only_a_call() -> None:
    thread = thread_of([], messages=[user("u1")])
    thread.extend([RUN, tool("START", toolCallName="x"), tool("END"), DONE])
    thread.cut("u1")
    assert list(thread.contract.tool_calls) == []
    assert [message["id"] for message in thread.agui.messages] == ["u1"]


def test_cutting_keeps_the_calls_before() -> None:
    thread = thread_of([], messages=[user("u1")])
    thread.extend([RUN, tool("START", toolCallName="x"), tool("END"), text("START"), text("END"), DONE])
    thread.add_message(user("u2"))
    thread.extend([RUN, tool("START", toolCallName="x") | {"toolCallId": "t2"}, text("START", "m2")])
    thread.cut("u2")
    assert [call["id"] for call in thread.contract.tool_calls] == ["t1"]
    assert [message["id"] for message in thread.contract.messages] == ["u1", "m1", "u2"]


@pytest.mark.parametrize("state", [{"a": 1}, [], None, 5, "x", {"citations": {"m1": [{"id": "a"}]}}])
def test_state_of_this_side(state: Any) -> None:
    thread = thread_of([applying(RUN), applying(text("START"))])
    thread.set_state(state)
    assert [view.state for view in views(thread)] == [state, state]
    thread.apply(patch(put("", {"b": 2})))
    assert [view.state for view in views(thread)] == [{"b": 2}, {"b": 2}]


def test_a_new_response_starts_afresh() -> None:
    thread = thread_of([applying(RUN), applying(text("START")), applying(DONE)])
    assert thread.agui.outcome == "failed"
    thread.extend([RUN, text("START", "m2")])
    assert [message["id"] for message in thread.agui.messages] == ["m1"]
    thread.open_stream()
    thread.extend([RUN, text("START", "m3"), text("END", "m3"), DONE])
    assert (thread.agui.outcome, thread.agui.error) == ("completed", None)
    assert [message["id"] for message in thread.agui.messages] == ["m1", "m3"]
    assert [message["id"] for message in thread.contract.messages] == ["m1", "m2", "m3"]


def test_a_response_that_goes_on_where_one_broke_off() -> None:
    thread = thread_of([applying(RUN), applying(text("START")), applying(say("a"))])
    thread.fail("lost")
    assert (thread.agui.outcome, thread.contract.status) == ("failed", "error")
    thread.open_stream(goes_on=True)
    thread.extend([say("b"), text("END"), DONE])
    assert (thread.agui.outcome, thread.agui.error) == ("completed", None)
    assert (thread.contract.status, thread.contract.error) == ("idle", None)
    assert [view.messages[0]["content"] for view in views(thread)] == ["ab", "ab"]


@pytest.mark.parametrize(
    ("error", "said"),
    [
        pytest.param("lost", "lost", id="text"),
        pytest.param(OSError("lost"), "lost", id="an exception"),
        pytest.param(TimeoutError(), "TimeoutError", id="an exception that says nothing"),
        pytest.param("a\x1b[31mb\nc", "ab\\nc", id="what a terminal would obey"),
    ],
)
def test_a_run_that_failed_on_its_way(error: str | Exception, said: str) -> None:
    thread = thread_of([applying(RUN), applying(text("START")), applying(say("a"))])
    thread.fail(error)
    assert (thread.contract.status, thread.contract.is_loading, thread.contract.error) == (
        "error",
        False,
        said,
    )
    assert (thread.agui.outcome, thread.agui.error) == ("failed", said)
    assert [view.messages[0]["content"] for view in views(thread)] == ["a", "a"]


def test_a_very_long_error_is_cut() -> None:
    thread = thread_of([])
    thread.fail("x" * 10**6)
    assert len(thread.contract.error) == 2000


def test_a_run_that_was_stopped() -> None:
    thread = thread_of([applying(RUN), applying(text("START")), applying(say("a"))])
    thread.stop()
    assert (thread.contract.status, thread.contract.is_loading, thread.contract.error) == (
        "idle",
        False,
        None,
    )
    assert (thread.agui.outcome, thread.agui.error) == ("completed", None)
    assert list(thread.problems) == []
    assert [view.messages[0]["content"] for view in views(thread)] == ["a", "a"]


def test_notes_are_problems() -> None:
    thread = thread_of([applying(RUN)])
    thread.note("odd", "something")
    assert [(each.code, each.path, each.message) for each in thread.problems] == [("odd", "#2", "something")]
    assert thread.agui.outcome == "completed"


# What comes from outside


DEEP = json.loads("[" * 800 + "]" * 800)
# What comes, and the code of the problem that it is in the contract view (either of two); "" for none.
HOSTILE: dict[str, tuple[Any, str]] = {
    "no JSON": (b"data", "bad_json"),
    "a cut frame": (b'{"type":"TEXT_MESSAGE_CONTENT","messageId":"m1","del', "bad_json"),
    "no UTF-8": (b'{"type":"TEXT_MESSAGE_CONTENT","messageId":"m1","delta":"\xff"}', "bad_json"),
    "no UTF-8 in what we do not know": (b'{"type":"NEW","x":"\xff"}', "bad_json"),
    "an array": (b"[]", "bad_event"),
    "no type": ({}, "bad_event"),
    "nothing": (None, "bad_event"),
    "an object of Python": (e("CUSTOM", name="x", value=object()), "unwritable"),
    "without end": (b"[" * 10**5, "bad_json"),
    "an unknown type": (e("NEW", messageId="m1"), ""),
    "text that is a number": (say(5), "bad_field"),  # pyright: ignore[reportArgumentType]
    "text that is missing": (text("CONTENT"), "bad_field"),
    "text that is null": (text("CONTENT", delta=None), "bad_field"),
    "an id that is a number": (e("TEXT_MESSAGE_START", messageId=5), "bad_field"),
    "a role that is half of a pair": (text("START", role="\ud83d"), "bad_field"),
    "a role that there is not": (text("START", role="robot"), "bad_field"),
    "metadata that is null": (text("START", metadata=None), "bad_field"),
    "a timestamp that is text": (text("START", timestamp="x"), "bad_field"),
    "text of nobody": (say("x", "nobody"), "unknown_message"),
    "a thought of nobody": (e("REASONING_MESSAGE_CONTENT", messageId="nobody", delta="x"), "unknown_message"),
    "arguments of nobody": (e("TOOL_CALL_ARGS", toolCallId="nobody", delta="{}"), "unknown_tool_call"),
    "a result of nobody": (
        e("TOOL_CALL_RESULT", messageId="r", toolCallId="nobody", content="x"), "unknown_tool_call"
    ),
    "the end of no call": (e("TOOL_CALL_END", toolCallId="nobody"), "unknown_tool_call"),
    "a call twice": (tool("START", toolCallName="look"), "duplicate_start"),
    "a message twice": (text("START"), ""),
    "a chunk of nothing": (e("TEXT_MESSAGE_CHUNK", delta="x"), "out_of_order"),
    "a patch of a parent that is missing": (patch(put("/no/where", 1)), "bad_patch"),
    "a patch of a prototype": (patch(put("/__proto__/x", 1)), "bad_patch"),
    "a patch of a constructor": (patch(put("/constructor/prototype/x", 1)), "bad_patch"),
    "a patch that fails late": (patch(put("/n", 2), put("/citations/m1", []), put("/no/x", 1)), "bad_patch"),
    "a patch with an unknown operation": (patch({"op": "upsert", "path": "/n", "value": 2}), "bad_patch"),
    "a patch that is text": (e("STATE_DELTA", delta="x"), "bad_field"),
    "a patch of text": (patch("x"), "bad_patch"),
    "a patch of null": (patch(None), "bad_patch"),
    "a patch without path": (patch({"op": "remove"}), "bad_patch"),
    "an operation that is a list": (patch({"op": ["add"], "path": "/n", "value": 1}), "bad_patch"),
    "a huge index": (patch(put("/list/" + "9" * 5000, 1)), "bad_patch"),
    "from that means nothing and is a number": (patch(put("/n", 1) | {"from": 5}), ""),
    "from that means nothing and is null": (patch(put("/n", 1) | {"from": None}), ""),
    "from that means nothing and is a list": (patch(put("/n", 1) | {"from": []}), ""),
    "from that means nothing and is no pointer": (patch(put("/n", 1) | {"from": "/citations/~2"}), ""),
    "from that means nothing and is unsafe": (patch(put("/n", 1) | {"from": "/citations/__proto__"}), ""),
    "citations that are a list": (patch(put("/citations", [])), ""),
    "citations that are text": (patch(put("/citations/m1", "x")), ""),
    "citations of junk": (patch(put("/citations/m1", [5, None, {}, [], {"x": 1}])), "bad_citation"),
    "citations too deep": (patch(put("/citations/m1", [{"id": "a", "extra": DEEP}])), "bad_json bad_patch"),
    "a state too deep": (e("STATE_SNAPSHOT", snapshot=DEEP), "bad_json"),
    "a patch too deep": (patch(put("/n", 2), put("/deep", DEEP)), "bad_json bad_patch"),
    "a result too deep": (tool("RESULT", messageId="r", content=DEEP), "bad_json"),
    "a custom value too deep": (e("CUSTOM", name="x", value=DEEP), "bad_json"),
    "a message too deep": (e("MESSAGES_SNAPSHOT", messages=[user("m1") | {"content": DEEP}]), "bad_json"),
    "messages that are text": (e("MESSAGES_SNAPSHOT", messages="x"), "bad_field"),
    "a message that is text": (e("MESSAGES_SNAPSHOT", messages=["x"]), "bad_field"),
    "a thought with a wrong role": (think("START", role="x"), "bad_field"),
    "an outcome that is a list": (DONE | {"outcome": []}, "bad_field"),
    "usage that is text": (e("RUN_ERROR", message="no", usage="x"), "bad_field"),
    "a subagent without name": (e("SUBAGENT_STARTED", **S1), "bad_field"),
    "a subagent without id": (e("SUBAGENT_STARTED", name="x"), "bad_field"),
}  # fmt: skip
SETTING: list[Any] = [
    RUN, text("START"), say("a"), tool("START", toolCallName="look"), tool("ARGS", delta='{"q":1}'),
    e("STATE_SNAPSHOT", snapshot={"n": 1, "list": [], "citations": {"m1": [{"id": "a"}]}}),
]  # fmt: skip
CHANGES_NOTHING = {"bad_json", "bad_event", "unwritable", "bad_patch", "unknown_message", "unknown_tool_call"}


@pytest.mark.parametrize(("event", "code"), HOSTILE.values(), ids=HOSTILE)
@pytest.mark.parametrize("look", [False, True], ids=["", "looked at"])
def test_bad_input_is_reported_and_nothing_is_lost(event: Any, code: str, look: bool) -> None:
    """And the thread goes on: what comes after is taken."""
    thread = thread_of(map(applying, SETTING))
    before = thread.contract.to_json()
    assert thread.apply(event) == len(SETTING) + 1
    if look:
        repr(views(thread))
    thread.extend([text("START", "m9"), say("b"), say("z", "m9")])
    after = thread.contract
    assert after.messages[0]["content"].endswith("b") or "MESSAGES" in str(event)
    assert [message["content"] for message in after.messages if message["id"] == "m9"] == ["z"]
    problems = {problem.code for problem in after.problems if problem.path == f"#{len(SETTING) + 1}"}
    assert bool(problems) is bool(code)
    assert problems <= set(code.split())
    if problems and problems <= CHANGES_NOTHING:
        rest: Json = after.to_json() | {"messages": before["messages"], "problems": []}
        assert rest == before
        assert [message | {"content": "a"} for message in after.messages if message["id"] != "m9"] == list(
            before["messages"]
        )
    assert all(problem.message.isprintable() for problem in after.problems)


MESSAGES: dict[str, Any] = {
    "no id": {"role": "user", "content": "x"},
    "an id that is null": {"id": None, "role": "user"},
    "an id that is a number": {"id": 5, "role": "user"},
    "an id that is a list": {"id": ["x"], "role": "user"},
    "an id that is an object": {"id": {}, "role": "user"},
    "a subagent's without id": {"role": "user", **S1},
    "a subagent's with a list as id": {"id": [], **S1},
    "nothing": {},
    "citations of text": {"id": "m1", "citations": "x"},
    "citations of junk": {"id": "m1", "citations": [5]},
    "calls that are text": {"id": "m1", "role": "assistant", "toolCalls": "x"},
    "calls of junk": {"id": "m1", "role": "assistant", "toolCalls": [5, {}, {"function": {}}]},
    "content that is a number": {"id": "m1", "role": "assistant", "content": 5},
    "a key that is half of a pair": {"id": "\ud83d", "role": "user", "content": "x"},
}


@pytest.mark.parametrize("message", MESSAGES.values(), ids=MESSAGES)
def test_bad_messages_in_a_snapshot(message: Any) -> None:
    """Neither view fails, at once or with what comes after: state, more text, another cut."""
    thread = thread_of(map(applying, SETTING))
    thread.apply(e("MESSAGES_SNAPSHOT", messages=[message, user("u5"), message]))
    assert "u5" in [each.get("id") for each in thread.contract.messages]
    thread.extend([text("START"), say("b"), CITED, patch(put("/citations/u5", ["x"]))])
    repr(views(thread))
    thread.cut("u5")
    repr(views(thread))
    thread.set_messages([user("u6")])
    thread.cut("u6")
    assert [each["id"] for each in thread.contract.messages] == ["u6"]
    assert repr(thread.at(thread.number).contract) == repr(thread.contract)


def test_events_that_are_taken_apart_by_the_reader_later() -> None:
    """Arguments are parsed when they are read; what cannot be is empty then, and not an error."""
    thread = thread_of(map(applying, SETTING[:4]))
    thread.apply(tool("ARGS", delta='{"a":' * 800 + "1" + "}" * 800))
    for view in views(thread):
        repr(view)


@given(st.integers(0, 2**32))
def test_nothing_from_outside_is_an_error(seed: int) -> None:
    """Streams with everything wrong, to a thread that nobody set up, and both views are JSON in the end."""
    made = Streams(seed).make()
    thread = Thread(messages=made.get("messages", ()), state=made.get("state"))
    thread.extend(made["stream"])
    for view in views(thread):
        shown = view.to_json()
        assert json.loads(json.dumps(shown)) == shown


@pytest.mark.parametrize(
    "message",
    [
        {"id": "m1", "role": "assistant", "toolCalls": [{"function": {"name": "a", "arguments": ""}}]},
        {
            "id": "m1",
            "role": "assistant",
            "toolCalls": [{"id": [1], "function": {"name": "", "arguments": ""}}],
        },
        {"id": ["m1"], "role": "assistant", "content": ""},
        {"id": {"a": 1}, "role": "activity", "content": {}},
        {"role": "reasoning"},
    ],
)
def test_messages_of_this_side_may_have_any_shape(message: Json) -> None:
    """A client posts what it likes, and what comes after it is taken."""
    thread = Thread(messages=[message])
    thread.extend(
        [
            {"type": "RUN_STARTED", "threadId": "t", "runId": "r"},
            {"type": "MESSAGES_SNAPSHOT", "messages": [{"id": "m2", "role": "user", "content": "hi"}]},
            {"type": "ACTIVITY_SNAPSHOT", "messageId": "m1", "activityType": "x", "content": {}},
        ]
    )
    assert thread.agui.outcome == "completed"
    assert "m2" in [each.get("id") for each in thread.agui.messages]


def test_an_activity_takes_the_place_of_a_message_with_a_call() -> None:
    """The call is gone with its message, as it is for the AG-UI client; its end says so and fails nothing."""
    thread = Thread()
    thread.extend(
        [
            {"type": "RUN_STARTED", "threadId": "t", "runId": "r"},
            {"type": "TOOL_CALL_START", "toolCallId": "c", "toolCallName": "look"},
            {"type": "ACTIVITY_SNAPSHOT", "messageId": "c", "activityType": "x", "content": {"a": 1}},
            {"type": "TOOL_CALL_END", "toolCallId": "c", "metadata": {"b": 2}},
        ]
    )
    activity = {"id": "c", "role": "activity", "activityType": "x", "content": {"a": 1}}
    assert thread.agui.messages == [activity]
    assert [problem.code for problem in thread.agui.problems] == ["unknown_tool_call"]
    assert [call["status"] for call in thread.contract.tool_calls] == ["complete"]


# Values that a field may have, and that it may not have.
CALL = {"id": "t1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
ANYTHING: list[Any] = [
    None, True, 5, -1.5, "", "x", "m1", "t1", "s1", "\ud83d", [], {}, [None], ["x"], [[]], [{}], {"": None},
    {"id": 5}, {"type": "interrupt", "interrupts": [5, {"id": []}]}, DEEP, {"a": DEEP},
    [{"id": "m1", "role": "user", "content": 5}], [{"id": ["m1"], "citations": [[]], "subagentRunId": "s1"}],
    [{"id": "m1", "role": "assistant", "toolCalls": [CALL]}, {"id": "m1", "role": "assistant", **S1}],
    [{"id": "m1", "role": "assistant", "toolCalls": [{}, 5]}], {"citations": {"m1": [5, {"id": 5}], "": {}}},
    {"citations": {"m1": [{"id": "a", "extra": DEEP}]}}, [put("/citations", {"m1": ["x"]}), put("/no/x", 1)],
    [put("/citations/m1/0/title", DEEP)], [{"op": "move", "path": "", "from": "/citations"}],
    [{"op": "test", "path": "", "value": DEEP}], [{"op": "copy", "path": "/citations/m1/0", "from": ""}],
]  # fmt: skip
WIRE_NAMES = sorted({name for kind in ev.TYPES.values() for name in kind.__struct_encode_fields__})
BARE: list[Json] = [{"type": name} for name in (*ev.TYPES, "NEW")]


def spoil(event: Any, fields: Json) -> Step:
    return applying(event | fields if isinstance(event, dict) else event)


spoilt = st.builds(
    spoil,
    st.sampled_from(EVENTS) | st.sampled_from(BARE),
    st.dictionaries(st.sampled_from(WIRE_NAMES), st.sampled_from(ANYTHING), max_size=3),
)


@given(st.lists(spoilt | st.sampled_from(LOCAL), max_size=20))
def test_no_field_whatever_is_an_error(taken: list[Step]) -> None:
    """Any event with any value in any field, after any other."""
    thread = thread_of([applying(RUN), applying(text("START")), applying(CITED)])
    for step in taken:
        step(thread)
        repr(views(thread))
    again = thread_of([applying(RUN), applying(text("START")), applying(CITED), *taken])
    assert repr(views(again)) == repr(views(thread))
    assert repr(again.at(again.number).contract) == repr(thread.contract)


# Text


@pytest.mark.parametrize("read", [False, True], ids=["", "read between"])
def test_halves_of_a_pair_in_two_deltas_are_joined(read: bool) -> None:
    thread = thread_of([applying(RUN), applying(text("START"))])
    shown: list[list[str]] = []
    for delta in ("a", "\ud83d", "\ude00", "b\ud83d"):
        thread.apply(say(delta))
        if read:
            shown.append([view.messages[0]["content"] for view in views(thread)])
    assert [view.messages[0]["content"] for view in views(thread)] == ["a😀b\ufffd"] * 2
    thread.apply(say("\ude00"))
    assert [view.messages[0]["content"] for view in views(thread)] == ["a😀b😀"] * 2
    assert shown == ([["a"] * 2, ["a\ufffd"] * 2, ["a😀"] * 2, ["a😀b\ufffd"] * 2] if read else [])


def test_halves_are_joined_in_reasoning_and_arguments_too() -> None:
    thread = thread_of([applying(RUN), applying(think("START", role="reasoning"))])
    thread.extend([think("CONTENT", delta="\ud83d"), think("CONTENT", delta="\ude00")])
    thread.apply(tool("START", toolCallName="look"))
    thread.extend([tool("ARGS", delta='{"q":"\ud83d'), tool("ARGS", delta='\ude00"}')])
    assert thread.contract.messages[0]["reasoning"] == "😀"
    assert thread.agui.messages[0]["content"] == "😀"
    assert thread.agui.messages[1]["toolCalls"][0]["function"]["arguments"] == '{"q":"😀"}'
    assert thread.contract.tool_calls[0]["args"] == {"q": "😀"}


def test_deltas_of_one_message_that_end_another_of_chunks() -> None:
    """However many are folded at once, each is judged by itself: one is a subagent's, the next is not."""
    events = [
        RUN, text("START", "m2", **S1), text("CHUNK", "m3", delta="x"), say("a", "m2", **S1), say("b", "m2"),
        e("TEXT_MESSAGE_CHUNK", delta="y"),
    ]  # fmt: skip
    at_once, one_by_one = thread_of(map(applying, events)), thread_of([])
    for event in events:
        one_by_one.apply(event)
        repr(views(one_by_one))
    assert repr(views(at_once)) == repr(views(one_by_one))


def test_results_stand_behind_their_call() -> None:
    """And behind its other results, as far as there is nothing else between."""
    events = [
        RUN, tool("START", toolCallName="x"), tool("END"), text("START"),
        *(tool("RESULT", messageId=name, content="x") for name in ("r1", "r2")),
        e("ACTIVITY_SNAPSHOT", messageId="r1", activityType="x", content={}),
        tool("RESULT", messageId="r3", content="x"),
    ]  # fmt: skip
    order = ["t1", "r3", "r1", "r2", "m1"]
    for history in (1, 3, 100):
        thread = thread_of(map(applying, events), history=history)
        assert [message["id"] for message in thread.agui.messages] == order
    forked = thread_of(map(applying, events[:-1])).fork(len(events) - 1)
    forked.apply(events[-1])
    assert [message["id"] for message in forked.agui.messages] == order


# Who shares what


def test_messages_that_are_not_touched_are_the_same_objects() -> None:
    names = [f"m{number}" for number in range(300)]
    thread = thread_of([applying(RUN)], messages=[user(name) for name in names])
    thread.apply(e("STATE_SNAPSHOT", snapshot={"citations": {name: [{"id": "a"}] for name in names}}))
    before = thread.contract

    def changed(*events: Json) -> list[int]:
        nonlocal before
        thread.extend(events)
        then, before = before, thread.contract
        return [place for place in range(300) if then.messages[place] is not before.messages[place]]

    assert changed(say("x", "m7")) == [7]
    assert changed(patch(put("/citations/m7", [{"id": "b"}]))) == [7]
    assert changed(patch(put("/citations/m7/0/title", "t"), put("/citations/m8/-", {"id": "c"}))) == [7, 8]
    assert changed(patch(put("/n", 1))) == []
    assert changed(patch(put("/citations/m7", [{"id": "b", "title": "t"}]))) == []
    assert changed(patch(put("/citations/m9", []))) == []
    assert changed(patch({"op": "remove", "path": "/citations/m10"})) == [10]
    assert changed(e("CUSTOM", name="x", value=1), tool("START", toolCallName="look"), tool("END")) == []
    assert changed(patch(put("/citations", {"m11": [{"id": "z"}]}))) == [11]
    thread.apply(patch(put("/citations/m11", [])))
    assert changed(patch({"op": "remove", "path": "/citations/m12"})) == []
    assert changed(patch(put("/citations/m13", []), {"op": "remove", "path": "/citations/m13"})) == [13]
    assert changed(patch(put("/citations/m13", []), {"op": "remove", "path": "/citations/m13"})) == []


def test_the_client_s_messages_that_are_not_touched_are_the_same_objects() -> None:
    thread = thread_of([applying(RUN)], messages=[user(f"m{number}") for number in range(300)])
    before = thread.agui
    thread.extend([text("START", "m7"), say("x", "m7"), patch(put("/a", 1))])
    after = thread.agui
    assert [place for place in range(300) if before.messages[place] is not after.messages[place]] == [7]


def test_state_that_is_not_touched_is_the_same_object() -> None:
    thread = thread_of([applying(RUN)], state={"a": {"b": 1}, "c": {"d": 2}})
    before = views(thread)
    thread.apply(patch(put("/a/b", 9)))
    for then, now in zip(before, views(thread), strict=True):
        assert (then.state["a"], now.state["a"]) == ({"b": 1}, {"b": 9})
        assert then.state["c"] is now.state["c"]


def test_a_view_is_made_once() -> None:
    thread = thread_of(map(applying, SETTING))
    assert thread.contract is thread.contract
    assert thread.agui is thread.agui
    assert thread.problems is thread.contract.problems


def test_nothing_in_a_view_can_be_changed() -> None:
    thread = thread_of([*map(applying, SETTING), applying(e("CUSTOM", name="x", value=[{}]))])
    thread.extend([text("START", "m2", **S1), text("END"), tool("END"), DONE | {"outcome": ASK}])

    def refuse(container: Any) -> None:
        if isinstance(container, dict):
            with pytest.raises(TypeError):
                container["x"] = 1
        elif isinstance(container, list):
            with pytest.raises(TypeError):
                cast("list[Any]", container).append(1)
        elif isinstance(container, ListSnapshot | tuple):
            assert not hasattr(cast("object", container), "append")
        else:
            return
        inner = cast("Any", container.values() if isinstance(container, dict) else container)
        for each in inner:
            refuse(each)

    for view in views(thread):
        for name in view.__struct_fields__:
            refuse(getattr(view, name))
            with pytest.raises(AttributeError):
                setattr(view, name, None)
    refuse(thread.contract.subagents[0].info)
    refuse(thread.contract.subagents[0].messages)


# The bridge, step by step


# Ids that are given, ids that are made up and may be taken, and entries that are left out.
ENTRIES: list[Any] = [
    [{"id": "a"}, {"id": "b"}],
    [{"id": "a"}, "https://example.com"],
    [{"title": "t"}, {"id": "c1"}, {"refId": "c3"}],
    [5, {"id": "a"}],
    [],
]
SMALL: list[Any] = ["c1", "c2", "a", None]
WHOLE: list[Any] = [{"id": "c1"}, {"title": "u"}, "x", {}, 5]


def change(op: str, place: str, value: Any, source: str) -> Json:
    return {"op": op, "path": f"/citations/m1{place}", "value": value, "from": f"/citations/{source}"}


def with_state(entry: Any) -> Step:
    return lambda thread: thread.set_state({"citations": {"m1": entry, "m2": ["x"]}})


def with_snapshot(entry: Any) -> Step:
    return applying(e("STATE_SNAPSHOT", snapshot={"citations": {"m1": entry, "m2": ["x"]}}))


sources = st.sampled_from(["m1/0", "m1/1", "m1/0/id", "m2", "m2/0"])
changes = st.one_of(
    st.builds(
        change,
        st.sampled_from(["replace", "add", "remove"]),
        st.sampled_from(["/0/id", "/1/id", "/0/title", "/1/title", "/0/x"]),
        st.sampled_from(SMALL),
        sources,
    ),
    st.builds(
        change,
        st.sampled_from(["replace", "add", "remove", "move", "copy"]),
        st.sampled_from(["/0", "/1", "/-"]),
        st.sampled_from(WHOLE),
        sources,
    ),
    st.builds(
        change, st.sampled_from(["add", "remove", "copy"]), st.just(""), st.sampled_from(ENTRIES), sources
    ),
)
bridge_steps = st.one_of(
    st.lists(changes, min_size=1, max_size=2).map(lambda listed: applying(patch(*listed))),
    st.sampled_from(ENTRIES).map(with_snapshot),
    st.sampled_from(ENTRIES).map(with_state),
    st.sampled_from([applying(text("START")), applying(HISTORY), applying(patch(put("/n", 1)))]),
)


@given(st.sampled_from(ENTRIES), st.lists(bridge_steps, max_size=6))
@settings(max_examples=300)
def test_citations_are_those_of_the_state_however_it_came_about(entry: Any, taken: list[Step]) -> None:
    """After every state event they are what normalising the entry anew gives, ids and all."""
    thread = thread_of([applying(text("START"))], clear_removed=False, state={"citations": {"m2": ["x"]}})
    for step in (with_snapshot(entry), *taken):
        step(thread)
        last, problems = thread.entries(thread.number - 1)[0], thread.problems
        failed = bool(problems) and (problems[-1].code, problems[-1].path) == (
            "bad_patch",
            f"#{thread.number}",
        )
        cited = thread.contract.state["citations"].get("m1")
        if isinstance(last, ev.StateSnapshot | ev.StateDelta) and not failed and is_citation_list(cited):
            assert thread.contract.messages[-1].get("citations") == normalise_citations(cited)


listed_ids = st.sampled_from([{"id": "a"}, {"id": "c1"}, {"id": "c2"}, {"title": "t"}, "x"])
id_changes = st.builds(
    change,
    st.sampled_from(["replace", "add"]),
    st.sampled_from(["/0/id", "/1/id", "/2/id"]),
    st.sampled_from(["a", "c1", "c2", "c3"]),
    st.just("m2"),
)


@given(st.lists(listed_ids, min_size=2, max_size=3), st.lists(id_changes, max_size=4))
def test_made_up_ids_move_when_theirs_is_taken(entry: list[Any], taken: list[Json]) -> None:
    """Or freed, by a change of the id of another entry."""
    thread = thread_of([applying(text("START")), with_snapshot(entry)])
    for each in taken:
        thread.apply(patch(each))
        cited = thread.contract.state["citations"]["m1"]
        assert thread.contract.messages[0]["citations"] == normalise_citations(cited)


def test_citations_of_a_state_that_this_side_set() -> None:
    thread = thread_of([applying(text("START")), applying(CITED)])
    thread.set_state({"citations": {"m1": [{"id": "x"}, {"id": "y"}]}})
    assert [each["id"] for each in thread.contract.messages[0]["citations"]] == ["a"]
    thread.apply(patch(put("/n", 1)))
    assert [each["id"] for each in thread.contract.messages[0]["citations"]] == ["x", "y"]


# What it costs


@cache
def long_thread(size: int) -> Thread:
    """One with so many messages, all of them cited, and a message and a call that are open."""
    names = [f"n{number}" for number in range(size)]
    entries = {name: [{"id": "a", "title": "t"}] for name in names}
    thread = Thread(messages=[user(name) for name in names], state={"citations": entries, "list": []})
    thread.extend(
        [RUN, text("START"), tool("START", toolCallName="look"), patch(put("/citations/m1", ["x"]))]
    )
    return thread


def costs(size: int, events: Callable[[int], Json]) -> tuple[float, float]:
    """Calls per event in a thread with `size` messages: read in the end, and with a snapshot after each."""
    thread = long_thread(size).fork(4)
    first, *listed = (ev.from_dict(events(number)) for number in range(101))
    thread.apply(first)
    repr((thread.agui.messages[-1], thread.contract.messages[-1]))

    def look() -> None:
        thread.agui.messages[-1]
        thread.contract.messages[-1]

    def read_in_the_end() -> None:
        thread.extend(listed[:50])
        look()

    def look_after_each() -> None:
        for event in listed[50:]:
            thread.apply(event)
            look()

    return count_calls(read_in_the_end) / 50, count_calls(look_after_each) / 50


COSTS: dict[str, Callable[[int], Json]] = {
    "text": lambda number: say(f"{number} "),
    "reasoning": lambda number: think("CONTENT", delta=f"{number} "),
    "arguments": lambda number: tool("ARGS", delta="[" if number else '{"a":'),
    "state": lambda number: patch(put("/n", number)),
    "a long list in the state": lambda number: patch(put("/list/-", number)),
    "a citation": lambda number: patch(put("/citations/m1/-", {"id": str(number)})),
    "a change of a citation": lambda number: patch(put("/citations/n5/0/title", str(number))),
    "the citations of a message": lambda number: patch(put("/citations/n5", [{"id": str(number)}])),
    "early citations": lambda number: patch(put(f"/citations/later{number}", [{"id": "a"}])),
    "a patch that fails": lambda number: patch(put("/n", number), put("/no/where", 1)),
    "a custom event": lambda number: e("CUSTOM", name="x", value=number),
    "a new message": lambda number: text("START", f"new{number}"),
    "an activity": lambda number: e(
        "ACTIVITY_SNAPSHOT", messageId="a1", activityType="x", content={"n": number}
    ),
    "a chunk": lambda number: text("CHUNK", "m5", delta=str(number)),
    "text of nobody": lambda number: say(str(number), "nobody"),
    "an unknown event": lambda number: e("NEW", n=number),
}


@pytest.mark.parametrize("events", COSTS.values(), ids=COSTS)
def test_an_event_costs_the_same_in_a_long_thread(events: Callable[[int], Json]) -> None:
    for short, long in zip(costs(100, events), costs(10_000, events), strict=True):
        assert long <= 1.3 * short + 2


def test_snapshots_cost_the_same_however_many_subagents_there_are() -> None:
    def calls(count: int) -> int:
        thread = Thread()
        thread.extend([RUN, text("START")])
        thread.extend(e("SUBAGENT_STARTED", name="x", subagentRunId=f"s{number}") for number in range(count))
        views(thread)
        thread.apply(say("a"))
        return count_calls(lambda: views(thread))

    assert calls(1000) <= 1.3 * calls(10) + 2


def test_trimming_costs_little_per_event() -> None:
    """In a long thread with a short history: a mark is made once in so many events."""

    def calls(size: int) -> float:
        thread = Thread(messages=[user(f"n{number}") for number in range(size)], history=500)
        thread.extend([RUN, text("START")])
        listed = [ev.from_dict(say("x"))] * 5000
        return count_calls(lambda: thread.extend(listed)) / 5000

    assert calls(10_000) <= 1.3 * calls(100) + 2


def test_the_log_is_bounded_by_the_history() -> None:
    thread = Thread(history=100)
    thread.extend([RUN, text("START")])
    for _ in range(50):
        thread.extend(say("x", "nobody") if number % 2 else e("NEW", n=number) for number in range(100))
    assert thread.number == 5002
    with pytest.raises(NotInLog):
        thread.entries(thread.number - 201)
    assert len(thread.entries(thread.number - 100)) == 100


MEGABYTE = "x" * 2**20
HEAVY: dict[str, Json] = {
    "state": e("STATE_SNAPSHOT", snapshot=MEGABYTE),
    "events of providers": e("RAW", event=MEGABYTE),
    "raw events beside text": say("x", rawEvent=MEGABYTE),
    "metadata of text": say("x", metadata={"k": MEGABYTE}),
    "unknown fields of text": say("x", more=MEGABYTE),
    "text of nobody": say(MEGABYTE, "nobody"),
    "arguments of nobody": e("TOOL_CALL_ARGS", toolCallId="nobody", delta=MEGABYTE),
    "unknown events": e("NEW", more=MEGABYTE),
    "malformed events": e("CUSTOM", name=5, value=MEGABYTE),
}


@pytest.mark.parametrize("event", HEAVY.values(), ids=HEAVY)
def test_the_log_is_bounded_in_bytes(event: Json) -> None:
    """However short it is: of a hundred megabytes that are in no view, it lets the first go."""
    thread = thread_of([applying(RUN), applying(text("START"))])
    thread.extend([ev.from_dict(event)] * 100)
    assert thread.number == 102
    with pytest.raises(NotInLog):
        thread.entries(0)
    assert thread.contract.messages[0]["id"] == "m1"


def test_problems_are_bounded() -> None:
    thread = thread_of([applying(RUN)])
    thread.extend([b"{"] * 2000)
    thread.extend([e("NEW"), say("x", "nobody")])
    assert len(thread.problems) == 1001
    assert {problem.code for problem in thread.problems[:1000]} == {"bad_json"}
    last = thread.problems[-1]
    assert (last.code, last.path) == ("too_many_problems", "#2003")
    assert last.message == "and 1001 more: bad_json 1000, unknown_message 1"
    assert thread.fork(thread.number).problems == thread.problems


def test_custom_events_are_bounded() -> None:
    """The latest are kept."""
    thread = thread_of([applying(RUN)])
    thread.extend(ev.Custom("x", number) for number in range(30_000))
    kept = [event["data"] for event in thread.contract.events]
    assert kept == list(range(30_000))[-len(kept) :]
    assert 1000 <= len(kept) <= 20_000


def test_long_texts_are_joined_when_they_are_read() -> None:
    thread = Thread()
    thread.extend([RUN, text("START")])
    thread.extend([ev.TextMessageContent("m1", "x")] * 50_000)
    folded = count_calls(lambda: views(thread))
    assert folded < 1000 * len(views(thread))
    assert [len(view.messages[0]["content"]) for view in views(thread)] == [50_000] * 2
    assert type(thread.agui.messages[0]) is FrozenDict
