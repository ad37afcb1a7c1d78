"""Runs of the server over a log: they outlive their clients and a restart, and a client can take them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import Any

import pytest

from citewire import codec
from citewire.agui import Thread
from citewire.agui import events as ev
from citewire.agui.citations.posted_messages import without_mark
from citewire.agui.events import RunInput
from citewire.channels.store import Cursor
from citewire.errors import Conflict, InputError, NotFound, ServerOverloaded
from support.annotated_stream import FINISHED, STARTED, answer, chunk, say, start
from support.clock import LONG, clock, on_clock
from support.thread_runs import (
    CHANNEL,
    HALF,
    KEY,
    ME,
    TEXT,
    WHOLE,
    Events,
    House,
    Scripted,
    cut,
    posted,
    read,
    takes,
    text_of,
    types,
)

# --- a run --------------------------------------------------------------------------------------------------


def test_a_run_is_answered_from_the_log() -> None:
    async def main() -> None:
        house = House(Scripted(*WHOLE))
        events = await house.post()
        takes(events)
        assert text_of(events) == "Paris [1]."
        rows = await house.rows()
        assert [row.kind for row in rows][:: len(rows) - 1] == ["input", "over"]
        assert [row.data for row in rows if row.kind == "event"] == [*_lines(events)]
        past = await house.history.snapshot_at(CHANNEL)
        assert past is not None
        assert (past.status, past.run_id, past.error) == ("idle", "r", None)
        assert [message["role"] for message in past.messages] == ["user", "assistant"]
        assert past.state[KEY]["messages"]["m"]["summary"]["verified"] == 1
        assert (house.verdicts, house.outcomes) == ([("t", "verified")], ["finished"])

    asyncio.run(main())


def _lines(events: Events) -> Iterable[bytes]:
    return (ev.encode(ev.coerce(event)) for event in events)


def test_the_agent_is_told_who_asks() -> None:
    async def main() -> None:
        agent = Scripted(*WHOLE)
        await House(agent).post(forwarded_props={"a": 1, "citewire": {"clientId": "mallory"}})
        assert agent.inputs[0].forwarded_props == {
            "a": 1,
            "citewire": {"clientId": "ann", "key": "app.key"},
        }

    asyncio.run(main())


@pytest.mark.parametrize(
    ("events", "code", "text"),
    [
        ([], "stream_ended", ""),
        ([STARTED, *answer("Hi")], "stream_ended", "Hi"),
        ([STARTED, start(), say("Hi")], "stream_ended", "Hi"),
        ([start()], "out_of_order", ""),
        ([STARTED, say("Hi")], "out_of_order", ""),
        ([STARTED, start(), FINISHED], "out_of_order", ""),
        ([{"no": "type"}], "bad_event", ""),
        ([STARTED, {"type": "STATE_DELTA", "delta": "no"}], "bad_field", ""),
    ],
)
def test_an_agent_that_breaks_the_protocol(events: Events, code: str, text: str) -> None:
    """A client can take what comes of it, and is told."""

    async def main() -> None:
        house = House(Scripted(*events))
        got = await house.post()
        takes(got)
        assert (got[-1]["type"], got[-1]["code"]) == ("RUN_ERROR", code)
        assert text_of(got) == text
        past = await house.history.snapshot_at(CHANNEL)
        assert past is not None
        assert past.status == "error"

    asyncio.run(main())


def test_an_agent_that_raises() -> None:
    """What it says may be secret."""

    async def boom(_: RunInput) -> AsyncIterator[dict[str, Any]]:
        yield STARTED
        raise ValueError("s3cret")

    async def main() -> None:
        got = await House(boom).post()
        takes(got)
        assert (got[-1]["type"], got[-1]["code"]) == ("RUN_ERROR", "agent_failed")
        assert got[-1]["message"].startswith("the agent failed (error id ")
        assert "s3cret" not in str(got)

    asyncio.run(main())


def test_a_run_that_takes_too_long_is_ended() -> None:
    """What was said stays, and the code says why."""

    async def main() -> None:
        agent = Scripted(*HALF)
        house = House(agent, timeout=LONG)
        reading = asyncio.create_task(house.post())
        await agent.held.wait()
        clock().leap(LONG)
        got = await reading
        takes(got)
        assert (got[-1]["type"], got[-1]["code"]) == ("RUN_ERROR", "timed_out")
        assert text_of(got) == "Paris "
        assert house.outcomes == ["timed_out"]
        past = await house.history.snapshot_at(CHANNEL)
        assert past is not None
        assert (past.status, past.error) == ("error", "the run took longer than the server allows")

    on_clock(main())


@pytest.mark.parametrize(("version", "code"), [("1.7", "newer_protocol"), ("one", "unreadable_protocol")])
def test_a_protocol_that_is_newer_or_unreadable_is_logged(
    caplog: pytest.LogCaptureFixture, version: str, code: str
) -> None:
    async def main() -> None:
        events = await House(Scripted({**STARTED, "protocolVersion": version}, FINISHED)).post()
        assert types(events)[-1] == "RUN_FINISHED"

    asyncio.run(main())
    assert [getattr(record, "fields", {}).get("code") for record in caplog.records] == [code]


# --- clients that come and go -------------------------------------------------------------------------------


def test_a_run_goes_on_without_its_client() -> None:
    async def main() -> None:
        agent = Scripted(*HALF, say("[1]."), {"type": "TEXT_MESSAGE_END", "messageId": "m"}, FINISHED)
        house = House(agent)
        first = await read(await house.runs.start(posted(), ME), most=3)
        agent.go_on.set()
        again = await house.post()
        takes(again)
        assert again[: len(first)] == first
        assert text_of(again) == "Paris [1]."
        assert len(agent.inputs) == 1

    asyncio.run(main())


def test_two_watch_the_same() -> None:
    async def main() -> None:
        agent = Scripted(*HALF, {"type": "TEXT_MESSAGE_END", "messageId": "m"}, FINISHED)
        house = House(agent)
        readers = [asyncio.create_task(house.post()) for _ in range(2)]
        await agent.held.wait()
        agent.go_on.set()
        one, other = await asyncio.gather(*readers)
        assert one == other
        assert (types(one)[-1], len(agent.inputs)) == ("RUN_FINISHED", 1)

    asyncio.run(main())


def test_a_run_that_has_ended_is_read_again() -> None:
    async def main() -> None:
        agent = Scripted(*WHOLE)
        house = House(agent)
        assert await house.post() == await house.post()
        assert len(agent.inputs) == 1

    asyncio.run(main())


@pytest.mark.parametrize("after", range(1, 12, 3))
def test_a_client_goes_on_where_it_was(after: int) -> None:
    async def main() -> None:
        house = House(Scripted(*WHOLE))
        whole = await house.post()
        rows = [row for row in await house.rows() if row.kind == "event"]
        rest = await read(await house.runs.join("t", rows[after - 1].cursor))
        assert whole[after:] == rest

    asyncio.run(main())


def test_who_joins_from_scratch_gets_what_came_before() -> None:
    async def main() -> None:
        agent = Scripted(*HALF, {"type": "TEXT_MESSAGE_END", "messageId": "m"}, FINISHED)
        house = House(agent)
        first = asyncio.create_task(house.post(state={"theme": "dark"}))
        await agent.held.wait()
        frames = await house.runs.join_current_run("t")
        assert frames is not None
        joining = asyncio.create_task(read(frames))
        agent.go_on.set()
        joined = await joining
        takes(joined)
        assert types(joined)[:4] == [
            "RUN_STARTED", "MESSAGES_SNAPSHOT", "STATE_SNAPSHOT", "TEXT_MESSAGE_START",
        ]  # fmt: skip
        thread = Thread()
        thread.extend(joined)
        assert thread.agui.messages[0]["content"] == "What?"
        assert thread.agui.state["theme"] == "dark"
        assert [event for event in joined if not event["type"].endswith("SNAPSHOT")] == await first

    asyncio.run(main())


def test_a_run_that_nobody_watches_is_left() -> None:
    async def main() -> None:
        agent = Scripted(*HALF)
        house = House(agent, linger=LONG)
        await read(await house.runs.start(posted(), ME), most=3)
        await agent.held.wait()
        clock().leap(LONG)
        await agent.left.wait()
        await house.runs.wait_idle()
        events = await house.post()
        takes(events)
        assert (events[-1]["type"], events[-1]["code"]) == ("RUN_ERROR", "abandoned")

    on_clock(main())


def test_a_run_that_is_watched_again_goes_on() -> None:
    async def main() -> None:
        agent = Scripted(*HALF, {"type": "TEXT_MESSAGE_END", "messageId": "m"}, FINISHED)
        house = House(agent, linger=LONG)
        await read(await house.runs.start(posted(), ME), most=3)
        again = await house.runs.start(posted(), ME)
        await anext(again)
        clock().leap(2 * LONG)
        await asyncio.sleep(0)
        agent.go_on.set()
        assert types(await read(again))[-1] == "RUN_FINISHED"

    on_clock(main())


# --- ends ---------------------------------------------------------------------------------------------------


def test_a_run_is_stopped_at_once() -> None:
    """Whatever it waits for: the agent, or a verdict."""

    async def main() -> None:
        agent = Scripted(*HALF)
        house = House(agent)
        reading = asyncio.create_task(house.post())
        await agent.held.wait()
        await house.runs.stop_run("t", "r")
        events = await reading
        takes(events)
        assert (text_of(events), events[-1]["code"]) == ("Paris ", "stopped")
        assert agent.left.is_set()
        await house.runs.stop_run("t", "r")  # it has ended already
        with pytest.raises(NotFound):
            await house.runs.stop_run("t", "other")

        waiting = House(Scripted(*WHOLE), deadline=None)
        waiting.words.may.clear()
        reading = asyncio.create_task(waiting.post())
        await waiting.words.asked.wait()
        await waiting.runs.stop_run("t", "r")
        assert types(await reading)[-1] in ("RUN_FINISHED", "RUN_ERROR")

    asyncio.run(main())


def test_what_was_not_decided_in_time_is_there_later() -> None:
    async def main() -> None:
        house = House(Scripted(*WHOLE), deadline=0)
        house.words.may.clear()
        events = await house.post()
        assert types(events)[-1] == "RUN_FINISHED"
        thread = Thread()
        thread.extend(events)
        assert thread.agui.state[KEY]["messages"]["m"]["summary"]["pending"] == 1
        house.words.may.set()
        await house.runs.wait_idle()
        past = await house.history.snapshot_at(CHANNEL)
        assert past is not None
        summary = past.state[KEY]["messages"]["m"]["summary"]
        assert (summary["pending"], summary["verified"]) == (0, 1)
        assert await house.post() == events  # the stream is what it was

    asyncio.run(main())


def test_another_run_ends_one_that_nobody_watches() -> None:
    """A front end stops by leaving, and asks the next thing at once."""

    async def main() -> None:
        agent = Scripted(*HALF)
        house = House(agent)
        await read(await house.runs.start(posted(), ME), most=3)
        await agent.held.wait()
        agent.events = tuple(WHOLE)
        assert types(await house.post("r2"))[-1] == "RUN_FINISHED"
        assert (await house.post("r"))[-1]["code"] == "superseded"

    asyncio.run(main())


def test_another_run_waits_for_a_client_that_is_leaving() -> None:
    """A browser that stops a run closes its stream while it already asks the next thing."""

    async def main() -> None:
        agent = Scripted(*HALF)
        house = House(agent)
        leaving = await house.runs.start(posted(), ME)
        await anext(leaving)
        await agent.held.wait()
        agent.events = tuple(WHOLE)
        asking = asyncio.create_task(house.post("r2"))
        for _ in range(100):
            await asyncio.sleep(0)
        await leaving.aclose()
        assert types(await asking)[-1] == "RUN_FINISHED"
        assert house.outcomes == ["superseded", "finished"]

    asyncio.run(main())


def test_a_run_that_is_watched_is_not_ended_by_another() -> None:
    async def main() -> None:
        agent = Scripted(*HALF)
        house = House(agent)
        reading = asyncio.create_task(house.post())
        await agent.held.wait()
        with pytest.raises(Conflict):
            await house.post("r2")
        await house.runs.stop_run("t", "r")
        await reading

    asyncio.run(main())


def test_there_is_room_for_so_many() -> None:
    async def main() -> None:
        agent = Scripted(*HALF)
        house = House(agent, most=1)
        reading = asyncio.create_task(house.post())
        await agent.held.wait()
        with pytest.raises(ServerOverloaded):
            await read(await house.runs.start(posted(thread_id="other"), ME))
        await house.runs.stop_run("t", "r")
        await reading

    asyncio.run(main())


def test_a_thread_is_forgotten() -> None:
    async def main() -> None:
        agent = Scripted(*HALF)
        house = House(agent)
        reading = asyncio.create_task(house.post())
        await agent.held.wait()
        await house.runs.delete_thread("t")
        await asyncio.gather(reading, return_exceptions=True)
        assert await house.history.snapshot_at(CHANNEL) is None
        with pytest.raises(NotFound):
            await house.runs.delete_thread("t")

    asyncio.run(main())


@pytest.mark.parametrize("name", ["", "x" * 600, "\ud800", "é" * 300])
def test_ids_that_no_log_can_have(name: str) -> None:
    async def main() -> None:
        house = House(Scripted(*WHOLE))
        for run_input in (posted(thread_id=name), posted(name)):
            with pytest.raises(InputError):
                await house.runs.start(run_input, ME)

    asyncio.run(main())


# --- a restart ----------------------------------------------------------------------------------------------


async def restarted(house: House, n: int) -> tuple[Events, Any]:
    """What a client gets that has seen `n` rows, and the thread at the end of its run."""
    await house.runs.recover()
    head = await house.store.head(CHANNEL)
    assert head is not None
    rest = await read(await house.runs.join("t", Cursor(head.epoch, n)))
    await house.runs.wait_idle()
    (over,) = [row.n for row in await house.rows() if row.kind == "over"]
    return rest, await house.history.snapshot_at(CHANNEL, over)


ANSWERS = [
    pytest.param(WHOLE, id="a message"),
    pytest.param([STARTED, chunk("Paris ", "m"), chunk(TEXT[6:]), FINISHED], id="chunks"),
]


@pytest.mark.parametrize("events", ANSWERS)
@pytest.mark.parametrize("resumes", [True, False])
def test_a_restart_at_any_point(events: Events, resumes: bool) -> None:
    """A client that goes on where it was can take what comes, and ends where it would have."""
    whole = House(Scripted(*events))
    asyncio.run(whole.post())
    rows = asyncio.run(whole.rows())
    for n in range(1, len(rows)):
        store = cut(whole.store, n)
        known = [row for row in rows[:n] if row.kind == "event"]

        rest, past = asyncio.run(restarted(House(Scripted(*events), store, resumes=resumes), n))
        seen = [codec.decode(row.data) for row in known] + rest
        takes(seen)
        thread = Thread(messages=posted().messages, state={})
        thread.extend(seen)
        assert [*map(without_mark, thread.agui.messages)] == [*map(without_mark, past.messages)]
        assert thread.agui.state == past.state
        if resumes or rows[n - 1].kind == "over" or b"RUN_FINISHED" in rows[n - 1].data:
            assert past.status == "idle"
            assert past.messages[-1]["content"] == "Paris [1]."
            assert past.state[KEY]["messages"]["m"]["summary"]["verified"] == 1
        else:
            assert (past.status, rest[-1]["code"]) == ("error", "interrupted")
            record = past.state.get(KEY, {"messages": {}})["messages"]
            assert {each["status"] for each in record.values()} <= {"complete", "error", "verifying"}


@pytest.mark.parametrize("resumes", [True, False])
def test_a_clean_end_leaves_the_same_as_a_crash(resumes: bool) -> None:
    async def main() -> None:
        agent = Scripted(*HALF)
        house = House(agent, resumes=resumes)
        reading = asyncio.create_task(house.post())
        await agent.held.wait()
        await house.runs.aclose()
        house.hub.close()
        events = await reading
        again = House(Scripted(*WHOLE), house.store, resumes=resumes)
        await again.runs.recover()
        await again.runs.wait_idle()
        past = await again.history.snapshot_at(CHANNEL)
        assert past is not None
        if resumes:
            assert past.messages[-1]["content"] == "Paris [1]."
        else:
            assert (events[-1]["code"], past.status) == ("interrupted", "error")

    asyncio.run(main())
