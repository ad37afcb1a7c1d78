"""The agent: what a program does with one, and the shared cases of the contract's life cycle."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import wraps
from typing import Any, ParamSpec

import pytest

from citewire.agui import agent as agent_module
from citewire.agui.agent import Agent, AgentError, CannotConnect, CannotRegenerate, OpenInterrupts
from citewire.agui.agents import LocalAgent, Replay, RunRequest
from citewire.agui.client import HttpAgent
from citewire.agui.events import RunInput, decode
from citewire.agui.runs import Run
from citewire.agui.sse import encode_frame
from citewire.agui.thread.thread import NotInLog, Thread
from support import agents
from support.agents import need_agents, serve
from support.case_matching import matches
from support.cases import CASES, need_cases
from support.loopback import EVENTS, HOLD, Loopback, answer

Json = dict[str, Any]

STARTED: Json = {"type": "RUN_STARTED", "threadId": "t", "runId": "r"}
FINISHED: Json = {"type": "RUN_FINISHED", "threadId": "t", "runId": "r"}


def text(content: str, name: str = "m1") -> list[Json]:
    return [
        {"type": "TEXT_MESSAGE_START", "messageId": name, "role": "assistant"},
        {"type": "TEXT_MESSAGE_CONTENT", "messageId": name, "delta": content},
        {"type": "TEXT_MESSAGE_END", "messageId": name},
    ]


def run_of(*events: Json) -> list[Json]:
    return [STARTED, *events, FINISHED]


def interrupted(*interrupts: Json) -> list[Json]:
    return [STARTED, {**FINISHED, "outcome": {"type": "interrupt", "interrupts": list(interrupts)}}]


class Scripted:
    """A source that does what the test says, when it says so, and counts what it is asked to do.

    A run ends at once, unless `hang` is set: then it goes on until `resolve`, or a failure.
    """

    def __init__(self, hang: bool = True) -> None:
        self.hang = hang
        self.calls: Counter[str] = Counter()
        self.requests: list[RunRequest] = []
        self.messages: list[Json] = []
        self.closed = 0
        self._queue: asyncio.Queue[Json | Exception | None] = asyncio.Queue()

    def add_message(self, message: Json) -> None:
        self.calls["addMessage"] += 1
        self.messages.append(message)

    def set_messages(self, messages: Sequence[Json]) -> None:
        self.calls["setMessages"] += 1
        self.messages = list(messages)

    def run_agent(self, request: RunRequest) -> AsyncIterator[Json]:
        self.calls["runAgent"] += 1
        self.requests.append(request)
        return self._events()

    def abort_run(self) -> None:
        self.calls["abortRun"] += 1

    async def _events(self) -> AsyncIterator[Json]:
        try:
            while self.hang:
                item = await self._queue.get()
                try:
                    if isinstance(item, Exception):
                        raise item
                    if item is None:
                        return
                    yield item
                finally:
                    self._queue.task_done()
        finally:
            self.closed += 1

    async def emit(self, *events: Json) -> None:
        """Give these, and wait until each has been taken."""
        for event in events:
            await self._queue.put(event)
        async with asyncio.timeout(20):
            await self._queue.join()

    async def end(self, failure: Exception | None = None) -> None:
        self._queue.put_nowait(failure)


class Connected(Scripted):
    """One that can be joined."""

    def __init__(self) -> None:
        super().__init__()
        self.last_event_id: str | None = None
        self.joined: list[str | None] = []

    def connect(self, last_event_id: str | None = None) -> AsyncIterator[Json]:
        self.joined.append(last_event_id)
        return self._events()


P = ParamSpec("P")


def in_loop(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """A test that is a coroutine. No task of its own may outlive it."""

    @wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        async def alone() -> None:
            await test(*args, **kwargs)
            assert asyncio.all_tasks() == {asyncio.current_task()}

        asyncio.run(alone())

    return run


# The shared cases


def agent_cases() -> list[Json]:
    if not CASES.is_dir():
        return []
    cases: list[Json] = json.loads((CASES / "ngaf/cases.json").read_bytes())
    return [case for case in cases if case["target"] == "agent"]


class Stage:
    """Plays the steps of a case."""

    def __init__(self) -> None:
        self.source = Connected()
        self.source.hang = False
        self.agent = Agent(self.source, seed_args=True)
        self.run: Run | None = None

    async def play(self, step: Json) -> None:
        match step:
            case {"hang": True}:
                self.source.hang = True
            case {"resolve": True}:
                assert self.run
                await self.source.end()
                await self.run
                self.source.hang = False
            case {"emit": event}:
                await self._join()
                await self.source.emit(event)
            case {"fail": message}:
                await self._join()
                assert self.run
                await self.source.end(RuntimeError(message))
                await self.run
            case {"submit": options}:
                await self._act(lambda: self.agent.submit(**options), step)
            case {"regenerate": index}:
                await self._act(lambda: self.agent.regenerate(index), step)
            case _:
                raise LookupError(f"a step that the runner does not know: {step}")

    async def _join(self) -> None:
        """What comes while nothing runs is a run that somebody else started."""
        if self.run is None:
            self.source.hang = True
            self.run = self.agent.attach()

    async def _act(self, act: Callable[[], Run], step: Json) -> None:
        if "expectError" in step:
            with pytest.raises(AgentError, match=step["expectError"]):
                act()
            return
        self.run = act()
        if step.get("await"):
            await self.run


@pytest.mark.parametrize("case", agent_cases(), ids=lambda case: case["name"])
@in_loop
async def test_shared_cases(case: Json) -> None:
    need_cases()
    stage = Stage()
    async with stage.agent as agent:
        for step in case["steps"]:
            await stage.play(step)
        contract = agent.contract.to_json()
        calls = {name: stage.source.calls[name] for name in case["expected"].get("calls", ())}
        actual = {**contract, "emitted": contract["events"], "calls": calls}
        assert matches(actual, case["expected"]), actual


# Saying something


@in_loop
async def test_a_message_goes_to_the_thread_and_to_the_source() -> None:
    source = Scripted(hang=False)
    async with Agent(source) as agent:
        parts: list[Json] = [{"type": "text", "text": "and this"}]
        await agent.submit("hello")
        await agent.submit(parts)
        assert [message["content"] for message in agent.contract.messages] == ["hello", parts]
        assert list(agent.contract.messages) == source.messages
        assert all(message["role"] == "user" for message in source.messages)
        assert len({message["id"] for message in source.messages}) == 2
        assert [len(request.messages or ()) for request in source.requests] == [1, 2]


@in_loop
async def test_awaiting_a_run_gives_the_contract() -> None:
    async with Agent(Replay(run_of(*text("Hi.")))) as agent:
        run = agent.submit("hello")
        assert run.is_active
        assert agent.is_loading
        contract = await run
        assert not run.is_active
        assert not agent.is_loading
        assert (contract.status, contract.messages[1]["content"]) == ("idle", "Hi.")
        assert await run is contract


@in_loop
async def test_the_agent_is_sent_what_was_said_before() -> None:
    """As the AG-UI client holds it: with tool calls and their results."""
    seen: list[RunInput] = []
    call: list[Json] = [
        {"type": "TOOL_CALL_START", "toolCallId": "c", "toolCallName": "look", "parentMessageId": "m1"},
        {"type": "TOOL_CALL_ARGS", "toolCallId": "c", "delta": "{}"},
        {"type": "TOOL_CALL_END", "toolCallId": "c"},
        {"type": "TOOL_CALL_RESULT", "toolCallId": "c", "messageId": "r1", "content": "found"},
    ]

    def reply(run_input: RunInput) -> list[Json]:
        seen.append(run_input)
        return run_of(*text("Hi."), *call)

    async with Agent(LocalAgent(reply)) as agent:
        await agent.submit("one")
        await agent.submit("two")
    roles = [message["role"] for message in seen[1].messages]
    assert roles == ["user", "assistant", "tool", "user"]
    assert seen[1].messages[1]["toolCalls"][0]["function"] == {"name": "look", "arguments": "{}"}


@in_loop
async def test_state_is_merged_key_by_key() -> None:
    source = Scripted(hang=False)
    async with Agent(source, state={"a": {"x": 1}, "b": 1}) as agent:
        await agent.submit(state={"a": {"y": 2}, "c": 3})
        assert agent.contract.state == {"a": {"y": 2}, "b": 1, "c": 3}
        assert source.requests[0].state == agent.contract.state


@in_loop
async def test_state_that_is_no_object_is_replaced() -> None:
    async with Agent(Scripted(hang=False), state=[1]) as agent:
        await agent.submit(state={"a": 1})
        assert agent.contract.state == {"a": 1}


@in_loop
async def test_starts_with_the_messages_of_the_source() -> None:
    messages = [{"id": "1", "role": "user", "content": "before"}]
    async with Agent(Replay([], messages=messages)) as agent:
        assert list(agent.contract.messages) == messages


@in_loop
async def test_gives_the_source_the_messages_of_the_thread() -> None:
    messages = [{"id": "1", "role": "user", "content": "before"}]
    source = Scripted()
    async with Agent(source, Thread(messages=messages)):
        assert source.messages == messages


def test_a_thread_has_its_own_options() -> None:
    with pytest.raises(TypeError, match="seed_args"):
        Agent(Scripted(), Thread(), seed_args=True)


def test_outside_of_a_loop_nothing_is_changed() -> None:
    agent = Agent(source := Scripted())
    for ask in (lambda: agent.submit("hello"), lambda: agent.attach([])):
        with pytest.raises(RuntimeError, match="no running event loop"):
            ask()
    assert (agent.thread.number, source.messages) == (0, [])


class Plain:
    """What every source has, and no more. `run_agent` is in the ways below."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.answers = 0

    def add_message(self, message: Json) -> None:
        self.said.append(message["content"])

    def abort_run(self) -> None:
        pass

    def reply(self) -> list[Json]:
        self.answers += 1
        return run_of(*text("Hi.", f"m{self.answers}"))


class Generating(Plain):
    async def run_agent(self) -> AsyncIterator[Json]:
        for event in self.reply():
            yield event


class Listing(Plain):
    def run_agent(self) -> list[Json]:
        return self.reply()


class Awaited(Plain):
    async def run_agent(self, request: RunRequest | None = None) -> list[Json]:
        assert request
        return self.reply()


@pytest.mark.parametrize("kind", [Generating, Listing, Awaited])
@in_loop
async def test_a_source_needs_three_methods(kind: type[Generating | Listing | Awaited]) -> None:
    messages = [{"id": "1", "role": "user", "content": "before"}]
    async with Agent(source := kind(), Thread(messages=messages)) as agent:
        await agent.submit("hello")
        contract = await agent.regenerate(-1)
        assert [message["content"] for message in contract.messages] == ["before", "hello", "Hi."]
        assert (source.said, source.answers, contract.status) == (["hello"], 2, "idle")


# What goes wrong


@pytest.mark.parametrize("failure", [ZeroDivisionError("no luck"), asyncio.CancelledError("no luck")])
@pytest.mark.parametrize("before", [[], [STARTED]])
@in_loop
async def test_what_a_source_raises_is_in_the_contract(before: list[Json], failure: BaseException) -> None:
    def broken(_: RunInput) -> Iterator[Json]:
        yield from before
        raise failure

    async with Agent(LocalAgent(broken)) as agent:
        contract = await agent.submit("hello")
        assert (contract.status, contract.is_loading, contract.error) == ("error", False, "no luck")
        assert len(contract.messages) == 1
        assert not agent.is_loading


@in_loop
async def test_a_failure_on_the_way_keeps_what_came() -> None:
    log = [encode_frame(decode(json.dumps(event))) for event in [STARTED, *text("Half an")]]
    async with Loopback([answer(b"".join(log))]) as server, Agent(HttpAgent(server.url)) as agent:
        contract = await agent.submit("hello")
        assert (contract.status, contract.problems[-1].code) == ("error", "stream_ended")
        assert contract.messages[1]["content"] == "Half an"


@in_loop
async def test_a_source_that_ends_before_its_run() -> None:
    source = Scripted()
    async with Agent(source) as agent:
        run = agent.submit()
        await source.emit(STARTED, *text("Hi."))
        await source.end()
        contract = await run
        assert (contract.status, contract.is_loading) == ("error", False)
        assert contract.error.startswith("the events ended before the run did")
        assert contract.problems[-1].code == "stream_ended"


@in_loop
async def test_what_is_no_event_is_a_problem_and_no_failure() -> None:
    async with Agent(Scripted()) as agent:
        contract = await agent.attach([STARTED, 5, "not JSON", {"type": "NEW"}, *text("Hi."), FINISHED])
        assert contract.status == "idle"
        assert contract.messages[0]["content"] == "Hi."
        assert [problem.code for problem in contract.problems] == ["bad_event", "bad_json"]


@in_loop
async def test_strictly_what_the_client_rejects_fails_the_run() -> None:
    log = [STARTED, *text("Hi."), {"type": "TEXT_MESSAGE_CONTENT", "messageId": "m9", "delta": "x"}, FINISHED]
    async with Agent(Replay(log)) as lenient, Agent(Replay(log), strict=True) as strict:
        assert (await lenient.submit()).status == "idle"
        contract = await strict.submit()
        assert (contract.status, contract.problems[-1].code) == ("error", "out_of_order")
        assert "the text message 'm9' is not open" in contract.error
        assert contract.messages[0]["content"] == "Hi."
        # The order rules begin anew with each run.
        assert (await strict.attach(run_of(*text("Again.", "m2")))).status == "idle"


# Stopping


@in_loop
async def test_stopping_is_no_error() -> None:
    source = Scripted()
    async with Agent(source) as agent:
        run = agent.submit("hello")
        await source.emit(STARTED, *text("Hi."))
        await agent.stop()
        assert source.calls["abortRun"] == source.closed == 1
        contract = await run
        assert (contract.status, contract.is_loading, contract.error) == ("idle", False, None)
        assert contract.messages[1]["content"] == "Hi."
        await agent.stop()
        assert source.calls["abortRun"] == 2  # the source is told though nothing runs here


@in_loop
async def test_stopping_where_nothing_ever_ran() -> None:
    """The contract of front ends: stop calls the source's abort, whatever runs."""
    source = Scripted()
    async with Agent(source) as agent:
        await agent.stop()
        assert source.calls["abortRun"] == 1
        assert (agent.contract.status, agent.contract.error) == ("idle", None)


@in_loop
async def test_stopping_leaves_an_earlier_error() -> None:
    source = Scripted()
    async with Agent(source) as agent:
        run = agent.submit("hello")
        await source.end(ValueError("no luck"))
        await run
        agent.retry()
        await agent.stop()
        assert (agent.contract.is_loading, agent.contract.error) == (False, "no luck")


@in_loop
async def test_stopping_before_anything_ran() -> None:
    """Not a step of the run was taken, and nobody waits for it."""
    source = Scripted()
    async with Agent(source) as agent:
        run = agent.submit("hello")
        await agent.stop()
        assert [event async for event in run] == []
        assert (await run).status == "idle"
        assert source.calls["runAgent"] == 0


@in_loop
async def test_stopping_ends_the_request() -> None:
    events = b"".join(encode_frame(decode(json.dumps(event))) for event in [STARTED, *text("Hi.")])
    async with Loopback([EVENTS, events, HOLD]) as server, Agent(HttpAgent(server.url)) as agent:
        run = agent.submit("hello")
        async for event in run:
            if event.type == "TEXT_MESSAGE_END":
                break
        await agent.stop()
        await server.until(lost=1)
        assert (agent.contract.status, agent.contract.error) == ("idle", None)


@in_loop
async def test_the_next_run_stops_the_one_before() -> None:
    source = Scripted()
    async with Agent(source) as agent:
        first = agent.submit("one")
        await source.emit(STARTED, *text("Hi."))
        second = agent.submit("two")
        assert not first.is_active
        assert (await first).status == "idle"
        await source.emit(STARTED, *text("Ho.", "m2"), FINISHED)
        await source.end()
        await second
        assert [message["content"] for message in agent.contract.messages] == ["one", "Hi.", "two", "Ho."]
        assert [len([event async for event in run]) for run in (first, second)] == [4, 5]
        assert source.calls["abortRun"] == 1


@in_loop
async def test_a_source_that_cannot_be_cancelled_is_left_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it says afterwards is not heard, and the next run does not wait for it for long."""
    monkeypatch.setattr(agent_module, "_CANCEL_TIMEOUT", 0.01)
    go_on, asked = asyncio.Event(), 0

    async def stubborn(_: RunInput) -> AsyncIterator[Json]:
        nonlocal asked
        asked += 1
        if asked > 1:
            for event in run_of(*text("Hi.")):
                yield event
            return
        yield STARTED
        while not go_on.is_set():
            with suppress(asyncio.CancelledError):
                await go_on.wait()
        for event in text("Too late.", "m9"):
            yield event

    async with Agent(LocalAgent(stubborn)) as agent:
        run = agent.submit("one")
        async for _ in run:
            break
        await agent.submit("two")
        go_on.set()
        await agent.stop()
        assert [message["content"] for message in agent.contract.messages] == ["one", "two", "Hi."]


# Events


@in_loop
async def test_a_run_gives_its_events_from_the_beginning() -> None:
    """To everybody who asks, whenever they ask; local entries of the log are not events."""
    log = run_of(*text("Hi."), {"type": "NEW"})
    async with Agent(Replay(log)) as agent:
        for _ in range(2):
            run = agent.submit("hello", state={"a": 1})
            during = [event.type async for event in run]
            after = [event.type async for event in run]
            assert during == after == [event["type"] for event in log]


@in_loop
async def test_an_agent_gives_the_events_of_all_runs_from_now_on() -> None:
    types: list[str] = []
    async with Agent(Replay(run_of())) as agent:
        await agent.submit()
        events = aiter(agent)

        async def read() -> None:
            types.extend([event.type async for event in events])

        reading = asyncio.create_task(read())
        await agent.submit()
        await agent.submit()
    await reading
    assert types == ["RUN_STARTED", "RUN_FINISHED"] * 2
    assert [event async for event in agent] == []


@in_loop
async def test_nobody_has_to_keep_up() -> None:
    """A run goes on at its own pace; a reader that is too slow for the log is told so."""
    delta = {"type": "TEXT_MESSAGE_CONTENT", "messageId": "m1", "delta": "x"}
    start, *_, end = text("")
    async with Agent(Replay(run_of(start, *[delta] * 5000, end)), history=500) as agent:
        run = agent.submit()
        events = aiter(run)
        await anext(events)
        contract = await run
        assert contract.messages[0]["content"] == "x" * 5000
        with pytest.raises(NotInLog):
            async for _ in events:
                pass


@in_loop
async def test_a_source_that_never_waits_lets_others_run() -> None:
    async def busy(_: RunInput) -> AsyncIterator[Json]:
        yield STARTED
        while True:
            yield {"type": "CUSTOM", "name": "tick", "value": 1}

    async with Agent(LocalAgent(busy)) as agent:
        run = agent.submit()
        async for _ in run:
            break
        await agent.stop()
        assert agent.contract.status == "idle"


# Interrupts

ASK: Json = {"id": "i1", "reason": "confirm"}
ASK_TOO: Json = {"id": "i2", "reason": "confirm"}
ODD: Json = {"status": "resolved", "x": 1}


async def paused(*interrupts: Json) -> tuple[Agent, Scripted]:
    source = Scripted()
    agent = Agent(source)
    run = agent.submit("hello")
    await source.emit(*interrupted(*interrupts))
    await source.end()
    await run
    source.hang = False
    return agent, source


@pytest.mark.parametrize(
    ("resume", "sent"),
    [
        pytest.param({"i1": True}, {"status": "resolved", "payload": True}, id="payload"),
        pytest.param({"i1": None}, {"status": "resolved", "payload": None}, id="null"),
        pytest.param({"i1": {"status": "cancelled"}}, {"status": "cancelled"}, id="response"),
        pytest.param({"i1": ODD}, {"status": "resolved", "payload": ODD}, id="a payload that looks like one"),
        pytest.param([{"interruptId": "i1", "status": "resolved"}], {"status": "resolved"}, id="entries"),
    ],
)
@in_loop
async def test_interrupts_are_answered(resume: Any, sent: Json) -> None:
    agent, source = await paused(ASK)
    async with agent:
        assert [one["id"] for one in agent.contract.interrupts] == ["i1"]
        await agent.submit(resume=resume)
        assert source.requests[1].resume == [{"interruptId": "i1", **sent}]


@pytest.mark.parametrize(
    ("resume", "missing"),
    [
        (None, ("i1", "i2")),
        ({}, ("i1", "i2")),
        ({"i1": 1}, ("i2",)),
        ([{"interruptId": "i2", "status": "resolved"}], ("i1",)),
    ],
)
@in_loop
async def test_all_of_them_are_answered_or_none(resume: Any, missing: tuple[str, ...]) -> None:
    agent, source = await paused(ASK, ASK_TOO)
    async with agent:
        before = agent.thread.number
        with pytest.raises(OpenInterrupts, match="open_interrupts") as caught:
            agent.submit("go on", state={"a": 1}, resume=resume)
        assert caught.value.ids == missing
        assert (agent.thread.number, source.calls["runAgent"]) == (before, 1)


@pytest.mark.parametrize(
    ("expires", "late"),
    [
        (timedelta(hours=-1), True),
        (timedelta(hours=1), False),
    ],
)
@in_loop
async def test_one_that_has_expired_can_only_be_cancelled(expires: timedelta, late: bool) -> None:
    when = (datetime.now(UTC) + expires).isoformat().replace("+00:00", "Z")
    agent, _ = await paused({**ASK, "expiresAt": when})
    async with agent:
        if late:
            with pytest.raises(OpenInterrupts, match="expired"):
                agent.submit(resume={"i1": True})
            await agent.submit(resume={"i1": {"status": "cancelled"}})
        else:
            await agent.submit(resume={"i1": True})


@pytest.mark.parametrize("when", ["soon", "0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00"])
@in_loop
async def test_a_date_that_cannot_be_read_or_compared_does_not_pass(when: str) -> None:
    agent, _ = await paused({**ASK, "expiresAt": when})
    async with agent:
        await agent.submit(resume={"i1": True})


@in_loop
async def test_answered_interrupts_are_gone() -> None:
    agent, source = await paused(ASK)
    async with agent:
        source.hang = True
        run = agent.submit(resume={"i1": True})
        await source.emit(*run_of())
        await source.end()
        assert list((await run).interrupts) == []
        source.hang = False
        await agent.submit("and now")


# Once more


@in_loop
async def test_regenerates_an_answer() -> None:
    answers = iter(["One.", "Two.", "Three."])
    seen: list[list[str]] = []

    def reply(run_input: RunInput) -> list[Json]:
        seen.append([message["content"] for message in run_input.messages])
        content = next(answers)
        return run_of(*text(content, content))

    source = LocalAgent(reply)
    async with Agent(source) as agent:
        await agent.submit("first")
        await agent.submit("second")
        contract = await agent.regenerate(1)
        assert [message["content"] for message in contract.messages] == ["first", "Three."]
        assert seen[2] == ["first"]
        assert [message["content"] for message in source.messages] == ["first"]
        with pytest.raises(StopIteration):
            next(answers)


@pytest.mark.parametrize("index", [-1, 3])
@in_loop
async def test_regenerates_the_last_answer(index: int) -> None:
    contents = iter(["One.", "Two.", "Three."])

    def reply(_: RunInput) -> list[Json]:
        content = next(contents)
        return run_of(*text(content, content))

    async with Agent(LocalAgent(reply)) as agent:
        await agent.submit("first")
        await agent.submit("second")
        contract = await agent.regenerate(index)
        shown = [message["content"] for message in contract.messages]
        assert shown == ["first", "One.", "second", "Three."]


@pytest.mark.parametrize(
    ("index", "why"),
    [(0, "no question"), (1, "not an assistant"), (5, "not an assistant"), (-9, "not an assistant")],
)
@in_loop
async def test_what_cannot_be_regenerated(index: int, why: str) -> None:
    messages = [
        {"id": "a", "role": "assistant", "content": "Hi."},
        {"id": "u", "role": "user", "content": "?"},
    ]
    async with Agent(Scripted(), messages=messages) as agent:
        with pytest.raises(CannotRegenerate, match=why):
            agent.regenerate(index)
        assert len(agent.contract.messages) == 2


@in_loop
async def test_nothing_is_regenerated_while_a_run_has_not_begun() -> None:
    async with Agent(Scripted()) as agent:
        agent.submit("hello")
        with pytest.raises(CannotRegenerate, match="loading"):
            agent.regenerate(0)


@in_loop
async def test_retries_what_failed() -> None:
    agent, source = await paused(ASK)
    async with agent:
        source.hang = True
        run = agent.submit(resume={"i1": True})
        await source.end(ValueError("no luck"))
        assert (await run).status == "error"
        again = agent.retry()
        assert again
        assert agent.retry() is None
        await source.emit(*run_of(*text("Hi.")))
        await source.end()
        contract = await again
        assert (contract.status, contract.error) == ("idle", None)
        assert source.calls["addMessage"] == 1
        assert source.requests[2].resume == source.requests[1].resume


@in_loop
async def test_nothing_to_retry() -> None:
    async with Agent(Scripted()) as agent:
        assert agent.retry() is None


# Runs of others


@in_loop
async def test_attaches_to_events() -> None:
    """Also to those of another agent."""

    async def given() -> AsyncIterator[Json]:
        for event in run_of(*text("Hi.")):
            yield event

    async with Agent(Scripted()) as agent, Agent(Scripted()) as other:
        run = agent.attach(given())
        shadow = other.attach(run)
        assert len([event async for event in run]) == 5
        for each in (run, shadow):
            assert (await each).messages[0]["content"] == "Hi."


@in_loop
async def test_joins_and_reconnects_after_the_last_event() -> None:
    log = [encode_frame(decode(json.dumps(event)), str(n)) for n, event in enumerate(run_of(*text("Hi.")))]
    cut, rest = answer(b"".join(log[:3])), answer(b"".join(log[3:]))
    async with Loopback([cut], [rest]) as server, Agent(HttpAgent(server.url), strict=True) as agent:
        assert (await agent.attach()).problems[-1].code == "stream_ended"
        contract = await agent.reconnect()
        assert (contract.status, contract.messages[0]["content"]) == ("idle", "Hi.")
        assert [request.headers.get("last-event-id") for request in server.requests] == [None, "2"]
        assert {request.method for request in server.requests} == {"GET"}


@in_loop
async def test_a_source_that_cannot_be_joined() -> None:
    async with Agent(Scripted()) as agent:
        for join in (agent.attach, agent.reconnect):
            with pytest.raises(CannotConnect, match="Scripted"):
                join()


@pytest.mark.parametrize(
    "begin",
    [("submit", "two"), ("attach",), ("attach", [STARTED]), ("regenerate", -1), ("retry",)],
    ids=lambda begin: f"{begin[0]}-{len(begin)}",
)
@in_loop
async def test_no_run_goes_on_after_an_event_of_another(begin: tuple[Any, ...]) -> None:
    """Without an id the peer would give the run again from its start."""
    with_ids = b"".join(encode_frame(decode(json.dumps(event)), "e") for event in run_of(*text("Hi.")))
    cut = answer(encode_frame(decode(json.dumps(STARTED))))
    async with Loopback([answer(with_ids)], [cut]) as server, Agent(HttpAgent(server.url)) as agent:
        await agent.submit("one")
        run = getattr(agent, begin[0])(*begin[1:])
        for _ in range(2):
            with pytest.raises(CannotConnect, match="id"):
                agent.reconnect()
            assert (await run).status == "error"


@in_loop
async def test_reconnects_as_often_as_it_takes() -> None:
    """Each time after the last event that came, even where the time before gave none."""
    log = [encode_frame(decode(json.dumps(event)), str(n)) for n, event in enumerate(run_of(*text("Hi.")))]
    cut, rest = answer(b"".join(log[:3])), answer(b"".join(log[3:]))
    away = answer(b"", status="500 Oops")
    async with Loopback([cut], [away], [rest]) as server, Agent(HttpAgent(server.url)) as agent:
        assert (await agent.submit("one")).status == "error"
        assert (await agent.reconnect()).status == "error"
        assert (await agent.reconnect()).status == "idle"
        assert [request.headers.get("last-event-id") for request in server.requests] == [None, "2", "2"]


@in_loop
async def test_a_thread_in_the_middle_of_a_run_waits_for_nobody() -> None:
    async with Agent(Replay(run_of(*text("Hi.")))) as agent:
        await agent.submit("one")
        past = agent.thread.fork(agent.thread.before("m1").number)
        assert past.contract.is_loading
        async with Agent(agent.source, past) as other:
            assert (other.is_loading, other.contract.status) == (False, "idle")
            assert (await other.submit("again")).messages[-1]["content"] == "Hi."


@in_loop
async def test_goes_on_from_the_past() -> None:
    async with Agent(Replay(run_of(*text("Hi.")))) as agent:
        await agent.submit("one")
        number = agent.thread.number
        await agent.submit("two")
        async with Agent(agent.source, agent.thread.fork(number)) as other:
            other.thread.apply({"type": "STATE_SNAPSHOT", "snapshot": {"a": 1}})
            await other.submit("another")
            assert [message["content"] for message in other.contract.messages][::2] == ["one", "another"]
        assert agent.contract.state == {}


# The end


@in_loop
async def test_closing_ends_everything() -> None:
    source = Scripted()
    agent = Agent(source)
    run = agent.submit("hello")
    reading = asyncio.create_task(anext(aiter(agent), None))
    await source.emit(STARTED)
    await agent.aclose()
    assert await reading is not None
    assert (await run).status == "idle"
    assert source.closed == 1
    with pytest.raises(AgentError, match="closed"):
        agent.submit("more")
    with pytest.raises(AgentError, match="closed"):
        agent.attach([])
    assert len(agent.contract.messages) == 1


@in_loop
async def test_closing_closes_the_source() -> None:
    async with Loopback([answer(encode_frame(decode(json.dumps(FINISHED))))]) as server:
        source = HttpAgent(server.url)
        async with Agent(source) as agent:
            await agent.submit("hello")
        # Connections that were left open would be a ResourceWarning, which is an error here.


# Agents of others


@pytest.mark.slow
@pytest.mark.parametrize(
    "build",
    [
        agents.pydantic_ai_test_model,
        agents.pydantic_ai_function_model,
        agents.langgraph_scripted,
        agents.agno_scripted,
    ],
)
def test_runs_agents_that_others_wrote(build: Callable[[], Any]) -> None:
    """Twice, so that what it sends back to them is what they take, and the second time once more."""

    async def main(url: str) -> None:
        answers: list[str] = []
        async with Agent(source := HttpAgent(url), strict=True) as agent:
            for turn in (1, 2, 2):
                if turn == len(answers):
                    source.thread_id = "another"  # see `regenerate`
                    contract = await agent.regenerate(-1)
                else:
                    contract = await agent.submit("What is the capital of France?")
                assert (contract.status, contract.error) == ("idle", None)
                answers = [
                    m["content"] for m in contract.messages if m["role"] == "assistant" and m["content"]
                ]
                assert answers == [agents.ANSWER] * turn
            assert agent.thread.agui.outcome == "completed"

    need_agents()
    with serve(build()) as url:
        asyncio.run(main(url + agents.PATH))
