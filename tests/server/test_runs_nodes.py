"""Runs and their channels on several nodes: any of them can be asked, and any of them may die."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import aclosing, suppress
from typing import Any

import pytest
from msgspec.structs import replace

from citewire import codec
from citewire.agui import Thread
from citewire.audit.thread_fold import ThreadFold
from citewire.channels.message import Message
from citewire.channels.postgres import PostgresStore
from citewire.channels.postgres_writer import LeaseLost
from citewire.channels.store import Cursor, Entry, Row
from citewire.errors import Conflict, NotFound
from citewire.threadlog.journal import encode_frames
from citewire.threadlog.projection import Projection
from citewire.threadlog.rows import TERMINAL
from support.annotated_stream import FINISHED, STARTED, answer, end, say
from support.bridge_runs import AI, CITE, QUOTE, VERDICT, agrees, counts
from support.clock import LONG, clock, on_clock
from support.nodes import Memory, Node, Postgres, World, nodes
from support.postgres import Postgres as Server
from support.postgres import need_postgres
from support.thread_runs import (
    CHANNEL,
    HALF,
    ME,
    WHOLE,
    Events,
    Scripted,
    decoded,
    posted,
    read,
    takes,
    text_of,
    types,
)

REST = [say("[1]."), end(), FINISHED]
# Events of `HALF`, and of what is put into the state when an answer begins.
SAID = 4


@pytest.fixture(params=["memory", "postgres"])
def world(request: pytest.FixtureRequest) -> World:
    if request.param == "memory":
        return Memory()
    need_postgres()
    return Postgres(request.getfixturevalue("dsn"))


async def held(node: Node) -> Cursor:
    """Until the agent waits and all that it said is kept; the cursor of the last of it."""
    await node.agent.held.wait()
    seen: list[Row] = []
    async with aclosing(node.hub.follow(CHANNEL)) as followed:
        while sum(row.kind == "event" for row in seen) < SAID:
            seen += await anext(followed)
    return seen[-1].cursor


async def left(node: Node) -> None:
    """A run of which only the beginning was read."""
    await read(await node.runs.start(posted(), ME), most=SAID)
    await held(node)


async def later(seconds: float) -> None:
    """After some time, and all that then happens by itself in memory."""
    clock().leap(seconds)
    for _ in range(100):
        await asyncio.sleep(0)


async def outcomes(node: Node) -> list[str]:
    rows = await node.store.read(CHANNEL)
    return [codec.decode(row.data)["outcome"] for row in rows if row.kind == "over"]


async def asked(node: Node) -> list[str]:
    rows = await node.store.read(CHANNEL)
    return [codec.decode(row.data)["what"] for row in rows if row.kind == "ask"]


# --- joining ------------------------------------------------------------------------------------------------


def test_a_run_is_joined_from_another_node(world: World) -> None:
    """By its id, from its start, from anywhere in it, and by one who knows nothing."""

    async def main() -> None:
        async with nodes(world, Scripted(*HALF, *REST), Scripted()) as (here, there):
            first = asyncio.create_task(here.post(state={"theme": "dark"}))
            await held(here)
            frames = await there.runs.join_current_run("t")
            assert frames is not None
            cursor = [row.cursor for row in await there.store.read(CHANNEL) if row.kind == "event"][1]
            joining = [
                asyncio.create_task(read(each))
                for each in (
                    await there.runs.start(posted(), ME),
                    await there.runs.join("t", None),
                    await there.runs.join("t", cursor),
                    frames,
                )
            ]
            await asyncio.sleep(0)
            here.agent.go_on.set()
            whole = await first
            again, joined, rest, anew = await asyncio.gather(*joining)
            assert whole == again == joined
            assert whole[2:] == rest
            assert types(anew)[:3] == ["RUN_STARTED", "MESSAGES_SNAPSHOT", "STATE_SNAPSHOT"]
            assert [each for each in anew if not each["type"].endswith("SNAPSHOT")] == whole
            takes(anew)
            assert await there.post() == whole  # also once it has ended
            assert not there.agent.inputs

    asyncio.run(main())


def _without_snapshots(events: Events) -> Events:
    """The events but those that bring a client up to date."""
    return [each for each in events if not each["type"].endswith("SNAPSHOT")]


def test_a_thread_is_followed_from_another_node(world: World) -> None:
    async def main() -> None:
        async with nodes(world, Scripted(*WHOLE), Scripted(*WHOLE)) as (here, there):
            async with aclosing(there.runs.watch_thread("t", None)) as frames:
                await anext(frames)  # nothing yet
                first = await here.post("r1")
                second = _without_snapshots(await there.post("r2"))
                seen: Events = []
                while types(seen).count("RUN_FINISHED") < 2:
                    seen += decoded(await anext(frames))
            assert _without_snapshots(seen) == [*first, *second]

    asyncio.run(main())


def test_who_watches_on_another_node_counts() -> None:
    async def main() -> None:
        agents = Scripted(*HALF, *REST), Scripted()
        async with nodes(Memory(), *agents, linger=LONG) as (here, there):
            await left(here)
            watching = await there.runs.start(posted(), ME)
            await anext(watching)
            await later(LONG)
            assert await asked(here) == ["abandoned", "watched"]
            await later(1)
            assert here.runs.is_live(CHANNEL)
            await watching.aclose()
            await later(LONG)
            assert here.runs.is_live(CHANNEL)
            await later(1)
            assert await outcomes(here) == ["abandoned"]

    on_clock(main())


# --- starting -----------------------------------------------------------------------------------------------


def test_two_nodes_start_the_same_run_at_once(world: World) -> None:
    async def main() -> None:
        async with nodes(world, Scripted(*WHOLE), Scripted(*WHOLE)) as made:
            one, other = await asyncio.gather(*(node.post() for node in made))
            assert one == other
            assert sum(len(node.agent.inputs) for node in made) == 1
            assert await outcomes(made[0]) == ["finished"]

    asyncio.run(main())


def test_two_nodes_start_different_runs_at_once(world: World) -> None:
    """One goes on, as its client watches it; who asks for the other is told."""

    async def main() -> None:
        agents = Scripted(*HALF, *REST), Scripted(*HALF, *REST)
        async with nodes(world, *agents) as made:
            tasks = {asyncio.create_task(node.post(f"r{at}")) for at, node in enumerate(made)}
            refused, going = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            with pytest.raises(Conflict):
                await refused.pop()
            for node in made:
                node.agent.go_on.set()
            assert types(await going.pop())[-1] == "RUN_FINISHED"
            assert sum(len(node.agent.inputs) for node in made) == 1

    asyncio.run(main())


def test_another_run_ends_one_that_nobody_watches_elsewhere(world: World) -> None:
    async def main() -> None:
        async with nodes(world, Scripted(*HALF), Scripted(*WHOLE)) as (here, there):
            await left(here)
            assert types(await there.post("r2"))[-1] == "RUN_FINISHED"
            assert await outcomes(there) == ["superseded", "finished"]
            events = await here.post("r")
            assert events == await there.post("r")
            assert events[-1]["code"] == "superseded"

    asyncio.run(main())


@pytest.mark.parametrize("watcher", [0, 1])
def test_another_run_waits_for_a_client_that_is_leaving_a_node(watcher: int) -> None:
    """Wherever it was: on the node of the run, or on the one that it asks next."""

    async def main() -> None:
        async with nodes(Memory(), Scripted(*HALF), Scripted(*WHOLE)) as (here, there):
            await left(here)
            leaving = await (here, there)[watcher].runs.start(posted(), ME)
            await anext(leaving)
            asking = asyncio.create_task(there.post("r2"))
            await later(0)
            await leaving.aclose()
            await later(0)
            await later(1)
            assert types(await asking)[-1] == "RUN_FINISHED"
            assert await outcomes(there) == ["superseded", "finished"]

    on_clock(main())


@pytest.mark.parametrize("watcher", [0, 1, 2])
def test_a_run_that_is_watched_anywhere_is_not_ended_by_another(world: World, watcher: int) -> None:
    async def main() -> None:
        agents = Scripted(*HALF, *REST), Scripted(), Scripted()
        async with nodes(world, *agents) as made:
            await left(made[0])
            watching = await made[watcher].runs.start(posted(), ME)
            await anext(watching)
            with pytest.raises(Conflict):
                await made[1].post("r2")
            made[0].agent.go_on.set()
            assert types(await read(watching))[-1] == "RUN_FINISHED"
            assert await outcomes(made[2]) == ["finished"]

    asyncio.run(main())


# --- ending -------------------------------------------------------------------------------------------------


def test_a_run_is_stopped_from_another_node(world: World) -> None:
    async def main() -> None:
        async with nodes(world, Scripted(*HALF), Scripted()) as (here, there):
            reading = asyncio.create_task(here.post())
            await held(here)
            await there.runs.stop_run("t", "r")
            assert (await reading)[-1]["code"] == "stopped"
            await there.runs.stop_run("t", "r")  # it has ended already
            with pytest.raises(NotFound):
                await there.runs.stop_run("t", "other")
            assert await outcomes(there) == ["stopped"]

    asyncio.run(main())


def test_a_thread_is_forgotten_from_another_node(world: World) -> None:
    """Whatever goes on in it: a run, or what is decided late."""

    async def main() -> None:
        async with nodes(world, Scripted(*HALF), Scripted(*WHOLE), deadline=0) as (here, there):
            reading = asyncio.create_task(here.post())
            await held(here)
            await there.runs.delete_thread("t")
            await asyncio.gather(reading, return_exceptions=True)
            assert await here.store.head(CHANNEL) is None

            there.words.may.clear()
            await there.post("r2")
            await there.words.asked.wait()
            await here.runs.delete_thread("t")
            there.words.may.set()
            await there.settled()
            for node in (here, there):
                assert await node.store.head(CHANNEL) is None
                assert await node.store.head(f"channel:{AI}") is None
                with pytest.raises(NotFound):
                    await node.runs.delete_thread("t")

    asyncio.run(main())


def test_a_thread_that_is_in_use_elsewhere_is_not_too_old(world: World) -> None:
    async def main() -> None:
        async with nodes(world, Scripted(*HALF, *REST), Scripted()) as (here, there):
            reading = asyncio.create_task(here.post())
            await held(here)
            await there.runs.expire_thread(CHANNEL, 10**13)
            here.agent.go_on.set()
            assert types(await reading)[-1] == "RUN_FINISHED"
            await here.settled()
            await there.runs.expire_thread(CHANNEL, 10**13)
            assert await here.store.head(CHANNEL) is None

    asyncio.run(main())


# --- dying --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("resumes", [True, False])
def test_a_node_dies(world: World, resumes: bool) -> None:
    """Those who watch its run on another node get the end of it, and so do those who come back there."""

    async def main() -> None:
        agents = Scripted(*HALF), Scripted(*WHOLE)
        async with nodes(world, *agents, resumes=resumes) as (here, there):
            began = await here.runs.start(posted(), ME)
            known = await read(began, most=SAID)
            cursor = await held(here)
            watching = asyncio.create_task(there.post())
            await asyncio.sleep(0)
            await there.runs.recover()
            assert not await outcomes(there)  # it is alive
            await here.die()
            await there.runs.recover()
            events = await watching
            takes(events)
            assert known == events[:SAID]
            assert events[SAID:] == await read(await there.runs.join("t", cursor))
            past = await there.history.snapshot_at(CHANNEL)
            assert past is not None
            if resumes:
                assert (past.status, text_of(events)) == ("idle", "Paris [1].")
            else:
                assert (past.status, events[-1]["code"]) == ("error", "interrupted")
            await there.settled()
            await agrees(there)

    asyncio.run(main())


def test_a_run_that_was_to_be_stopped_when_its_node_died_does_not_go_on() -> None:
    async def main() -> None:
        world = Memory()
        async with nodes(world, Scripted(*HALF), Scripted(*WHOLE), resumes=True) as (here, there):
            await left(here)
            data = codec.encode({"what": "stopped", "runId": "r", "by": "x"})
            await world.store.append(CHANNEL, [Entry("x", "ask", data)])
            await here.die()
            await there.runs.recover()
            assert await outcomes(there) == ["stopped"]

    asyncio.run(main())


@pytest.mark.parametrize("watched", [True, False])
def test_nodes_look_after_each_other(watched: bool) -> None:
    async def main() -> None:
        async with nodes(Memory(), Scripted(*HALF), Scripted(), linger=10 * LONG) as (here, there):
            await left(here)
            if watched:
                await anext(await there.runs.join("t", None))
            looking = asyncio.create_task(there.runs.watch_other_nodes())
            for dies in (False, True):
                if dies:
                    await here.die()
                for _ in range(10):
                    await later(3)
                assert await outcomes(there) == (["interrupted"] if dies else [])
            looking.cancel()

    on_clock(main())


@pytest.mark.parametrize("resumes", [True, False])
@pytest.mark.parametrize("in_vain", [True, False])
def test_a_node_dies_at_any_write(resumes: bool, in_vain: bool) -> None:
    """Whoever watches on another node gets all of the run, or its end; and the channel tells of it once."""

    async def main(writes: int) -> bool:
        world = Memory()
        async with nodes(world, Scripted(*WHOLE), Scripted(*WHOLE), resumes=resumes) as (here, there):
            store = world.members[0]
            store.writes, store.in_vain = writes, in_vain
            watching = asyncio.create_task(to_the_end(there))
            await asyncio.gather(here.post(), return_exceptions=True)
            await here.settled()
            survived = not store.is_cut
            await here.die()
            await there.runs.recover()
            if await there.store.head(CHANNEL) is None:
                watching.cancel()
                return survived
            seen = await read(await there.runs.join("t", None))
            takes(seen)
            watched = await watching
            assert seen == (watched[:1] + watched[3:] if len(watched) > 1 else watched)
            await there.bridge.recover()
            await there.settled()
            await agrees(there)
            past = await there.history.snapshot_at(CHANNEL)
            assert past is not None
            if resumes or survived:
                assert (past.status, past.messages[-1]["content"]) == ("idle", "Paris [1].")
            elif past.status == "error":
                assert seen[-1]["code"] == "interrupted"
            thread = Thread(messages=posted().messages, state={})
            thread.extend(seen)
            assert list(thread.agui.messages) == list(past.messages)
            return survived

    writes = 1
    while not asyncio.run(main(writes)):
        writes += 1
    assert writes > 5


async def to_the_end(node: Node) -> Events:
    """What one who follows a thread gets up to the end of its run: what was posted, after the first event."""
    seen: Events = []
    async with aclosing(node.runs.watch_thread("t", None)) as frames:
        while not seen or seen[-1]["type"] not in TERMINAL:
            seen += decoded(await anext(frames))
    return seen


def test_a_lease_that_is_lost() -> None:
    """Nothing more is written of the run here; who watches it has to come back, to any node."""

    async def main() -> None:
        world = Memory()
        agents = Scripted(*HALF, *REST), Scripted(*WHOLE)
        async with nodes(world, *agents, resumes=True) as (here, there):
            reading = asyncio.create_task(here.post())
            await held(here)
            world.members[0].lose(CHANNEL)
            assert await there.leases.take(CHANNEL)
            before = len(await there.store.read(CHANNEL))
            here.agent.go_on.set()
            cut = await reading
            assert types(cut)[-1] == "TEXT_MESSAGE_CONTENT"
            await here.agent.left.wait()
            assert len(await there.store.read(CHANNEL)) == before
            await there.runs.recover()
            again = await here.post()
            takes(again)
            assert again[: len(cut)] == cut
            assert text_of(again) == "Paris [1]."

    asyncio.run(main())


def test_a_node_that_was_cut_off_writes_nothing_of_what_it_has_lost(dsn: str) -> None:
    async def main() -> None:
        world = Postgres(dsn)
        async with nodes(world, Scripted(*HALF, *REST), Scripted()) as (here, there):
            assert isinstance(here.store, PostgresStore)
            assert isinstance(there.store, PostgresStore)
            reading = asyncio.create_task(here.post())
            await held(here)
            while not await there.store.take(CHANNEL):
                await there.store.db.execute("SELECT pg_terminate_backend($1)", here.store.pid)
            await there.runs.recover()
            rows = await there.store.read(CHANNEL)
            here.agent.go_on.set()
            await here.runs.wait_idle()
            with suppress(LeaseLost):  # whoever comes first is told, if the run has not been
                await here.store.append("behind", [Entry("x", "x", b"")])
            assert await outcomes(there) == ["interrupted"]
            assert await there.store.read(CHANNEL) == rows
            takes(await reading)

    asyncio.run(main())


def test_a_database_that_is_away_for_a_while() -> None:
    async def main() -> None:
        world = Memory()
        async with nodes(world, Scripted(*HALF, *REST), patience=LONG) as (here,):
            reading = asyncio.create_task(here.post())
            await held(here)
            world.members[0].is_cut = True
            here.agent.go_on.set()
            await here.agent.left.wait()
            clock().leap(LONG / 2)
            await asyncio.sleep(0.01)
            world.members[0].is_cut = False
            clock().leap(LONG / 2)
            events = await reading
            takes(events)
            assert text_of(events) == "Paris [1]."
            assert await outcomes(here) == ["finished"]

    on_clock(main())


def test_a_database_that_stays_away() -> None:
    """Those who watch are told, and the log is right once it is back."""

    async def main() -> None:
        world = Memory()
        async with nodes(world, Scripted(*HALF, *REST)) as (here,):
            reading = asyncio.create_task(here.post())
            await held(here)
            world.members[0].is_cut = True
            here.agent.go_on.set()
            assert (await reading)[-1]["code"] == "store_failed"
            await here.runs.wait_idle()
            clock().leap(LONG)
            await here.runs.settle_dead_nodes()
            world.members[0].is_cut = False
            clock().leap(LONG)
            await here.runs.settle_dead_nodes()
            assert await outcomes(here) == ["interrupted"]
            takes(await here.post())

    on_clock(main())


# --- channels -----------------------------------------------------------------------------------------------


async def told(node: Node) -> None:
    """Until the answer that is being written is in the channel."""
    async with aclosing(node.channels.follow(AI)) as rows:
        await anext(rows)


def test_what_is_cited_on_another_node_while_a_run_is_open(world: World) -> None:
    """The run takes it in, and its client gets it."""

    async def main() -> None:
        async with nodes(world, Scripted(*HALF, *REST), Scripted()) as (here, there):
            reading = asyncio.create_task(here.post())
            await held(here)
            await told(here)
            annotation = await there.cite((await there.only()).serial, snippet=QUOTE)
            async with aclosing(there.hub.follow(CHANNEL)) as followed:
                async for rows in followed:
                    if any(row.id == f"annotation:{annotation}" for row in rows):
                        break
            here.agent.go_on.set()
            events = await reading
            takes(events)
            assert b"Costs fell" in codec.encode([each for each in events if each["type"] == "STATE_DELTA"])
            await here.settled()
            await there.settled()
            message = await there.only()
            assert (counts(message, CITE), counts(message, VERDICT)) == ({"doc": 1}, {"verified": 1})
            await agrees(there)

    asyncio.run(main())


def test_what_is_cited_on_another_node_while_something_is_decided_late(world: World) -> None:
    """That node goes on with all of it."""

    async def main() -> None:
        async with nodes(world, Scripted(*WHOLE), Scripted(), deadline=0) as (here, there):
            here.words.may.clear()
            await here.post()
            await here.words.asked.wait()
            await here.bridge.wait_idle()
            await there.cite((await there.only()).serial, snippet=QUOTE)
            await there.settled()
            await agrees(there)
            assert (await there.record())["summary"]["verified"] == 2
            assert counts(await there.only(), VERDICT) == {"verified": 2}

    asyncio.run(main())


def test_a_thread_goes_from_node_to_node(world: World) -> None:
    """What each of them says is told once, in one channel."""

    async def main() -> None:
        async with nodes(world, *(Scripted() for _ in range(3))) as made:
            for at in range(6):
                node = made[at % 3]
                node.agent.events = (STARTED, *answer(f"Paris {at}.", f"m{at}"), FINISHED)
                past = await node.history.snapshot_at(CHANNEL)
                kept: dict[str, Any] = {"messages": past.messages, "state": past.state} if past else {}
                await node.post(f"r{at}", **codec.decode(codec.encode(kept)))
                await node.cite((await cited(node, at)).serial, snippet=QUOTE)
                await node.settled()
            for node in made:
                assert [each.data for each in await node.said()] == [f"Paris {at}." for at in range(6)]
                assert [counts(each, VERDICT) for each in await node.said()] == [{"verified": 1}] * 6
                await agrees(node)

    asyncio.run(main())


async def cited(node: Node, at: int) -> Message:
    """The message of an answer, once it is told."""
    await node.settled()
    while len(said := await node.said()) <= at:
        await node.bridge.wait_idle()
        await asyncio.sleep(0)
    return said[at]


def test_a_channel_whose_log_goes_on_from_an_older_copy_is_not_told_anew() -> None:
    async def main() -> None:
        world = Memory()
        async with nodes(world, Scripted(*WHOLE)) as (here,):
            await here.post()
            await here.settled()
            before = await here.told()
        world.renew(CHANNEL)
        async with nodes(world, Scripted(STARTED, *answer("Rome.", "m2"), FINISHED)) as (again,):
            await again.bridge.recover()
            assert await again.told() == before
            await again.post("r2")
            await again.settled()
            assert [each.data for each in await again.said()] == ["Paris [1].", "Rome."]

    asyncio.run(main())


# --- what nodes ask -----------------------------------------------------------------------------------------


def test_whoever_reads_the_log_sees_nothing_of_what_nodes_ask() -> None:
    async def main() -> None:
        async with nodes(Memory(), Scripted(*WHOLE)) as (plain,):
            events = await plain.post()
            rows = await plain.store.read(CHANNEL)
            folded = await plain.history.snapshot_at(CHANNEL)
        async with nodes(Memory(), Scripted()) as (node,):
            for at, row in enumerate(rows):
                data = codec.encode({"what": "watched", "runId": "r", "by": "x"})
                pair = [Entry(f"ask {at}", "ask", data), Entry(row.id, row.kind, row.data)]
                await node.store.append(CHANNEL, pair)
            await node.runs.recover()
            assert await node.post() == events
            past = await node.history.snapshot_at(CHANNEL)
            assert folded is not None
            assert past == replace(folded, cursor=past.cursor if past else folded.cursor)
            mixed = await node.store.read(CHANNEL)
            for fold in (audited, projected, sent):
                assert fold(mixed) == fold(rows)

    asyncio.run(main())


def audited(rows: Sequence[Row]) -> Any:
    fold = ThreadFold("t")
    for row in rows:
        fold.take(row)
    return [(each.run, each.key, each.quote, each.cites, each.reviews) for each in fold.citations()]


def projected(rows: Sequence[Row]) -> Any:
    projection = Projection("t", "e", "bot")
    return [(step.answer, step.sent) for row in rows for step in projection.apply_row(row)]


def sent(rows: Sequence[Row]) -> Any:
    return decoded(encode_frames(rows))


# --- a database that breaks ---------------------------------------------------------------------------------


@pytest.mark.parametrize("breaks", ["crash", "kill_backends"])
def test_a_database_breaks_while_a_run_goes_on(breaks: str) -> None:
    """It goes on where it is, and those who watch it anywhere get all of it."""
    need_postgres()

    async def main(server: Server) -> None:
        agents = Scripted(*HALF, *REST), Scripted()
        async with nodes(Postgres(server.dsn), *agents, patience=30.0) as (here, there):
            reading = [asyncio.create_task(here.post())]
            await held(here)
            watching = await there.runs.join("t", None)
            first = decoded(await anext(watching))
            reading.append(asyncio.create_task(read(watching)))
            await asyncio.to_thread(getattr(server, breaks))
            here.agent.go_on.set()
            if breaks == "crash":
                await asyncio.to_thread(server.start)
            one, other = await asyncio.gather(*reading)
            takes(one)
            assert one == first + other
            assert text_of(one) == "Paris [1]."
            assert await outcomes(there) == ["finished"]

    with Server() as server:
        asyncio.run(main(server))
