"""All answers at a glance: the list and its filters, what is told of changes, what is on record."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from citewire import codec
from citewire.audit.export_check import check_export
from citewire.channels.hub import Hub
from citewire.channels.memory import MemoryStore
from citewire.channels.message import MessageDraft, Publisher
from citewire.channels.store import Slot
from citewire.errors import InputError
from citewire.server.access.capability import FULL, Capability
from citewire.server.access.keys import Caller
from citewire.server.answers.answer_api import AnswerApi, AnswersQuery, VerdictsQuery
from citewire.server.answers.answer_index import AnswerIndex, IndexPosition
from citewire.server.bridge.thread_channels import SERVER, ThreadChannels
from citewire.server.http.operations import ApiCall
from citewire.threadlog.answer_annotations import make_citation_note, make_verdict_note
from citewire.threadlog.names import ai_channel
from support.app import Answer, App, opened_app
from support.librarian_sources import SOURCES
from support.misquoting_agent import ANSWERS

HOUR = 3_600_000
NOON = 1_763_294_400_000  # 2025-11-16T12:00Z
ANYBODY = Caller("k", FULL)


class _Counting(MemoryStore):
    """Counts how often it was asked for the messages of a channel."""

    def __init__(self, now: Callable[[], int]) -> None:
        super().__init__(now)
        self.asked = 0

    async def slots(
        self, channel: str, after: str, before: str, limit: int = 1000, *, reverse: bool = False
    ) -> tuple[Slot, ...]:
        self.asked += limit > 1
        return await super().slots(channel, after, before, limit, reverse=reverse)


class House:
    """Channels of threads at times of one's own, and the overview over them."""

    def __init__(self) -> None:
        self.now = NOON
        self.store = _Counting(lambda: self.now)
        hub = Hub(self.store)
        self.channels = ThreadChannels(self.store, hub)
        self.overview = AnswerApi(AnswerIndex(self.store, self.channels))
        hub.on_channel_changed = self.overview.notify_channel_changed

    async def answer(
        self, thread: str, verdicts: str, source: str = "a.pdf", agent: str = "clerk", message: str = "m"
    ) -> None:
        """An answer with so many citations, and verdicts on those that have one: `altered verified ?`."""
        channel = ai_channel(thread)
        headers = {"threadId": thread, "runId": "r", "messageId": message}
        draft = MessageDraft(
            id=message, name="response", data="Said.", extras={"headers": headers}, client_id=agent
        )
        [serial] = await self.channels.publish(channel, SERVER, [draft])
        notes: list[Any] = []
        for at, status in enumerate(verdicts.split()):
            notes.append(make_citation_note({"title": source}, f"k{at}", None, agent))
            if status != "?":
                notes.append(make_verdict_note({"citewire": {"status": status}}, f"k{at}", None))
        if notes:
            await self.channels.annotate(
                channel, SERVER, [replace(note, message_serial=serial) for note in notes]
            )

    async def list(self, caller: Caller = ANYBODY, **query: Any) -> Any:
        return await self.overview.list(_call(caller, AnswersQuery(**query)))

    async def names(self, **query: Any) -> list[str]:
        return [each.thread_id for each in (await self.list(**query)).threads]

    async def frames(self, caller: Caller = ANYBODY, **query: Any) -> AsyncGenerator[tuple[str, Any]]:
        streamed: Any = await self.overview.events(_call(caller, AnswersQuery(**query)))
        async for frame in streamed._frames:
            if not frame.startswith(b":"):
                event, data = frame.decode().strip().split("\n")
                yield event.removeprefix("event: "), codec.decode(data.removeprefix("data: "))


def _call(caller: Caller, query: Any) -> ApiCall:
    return ApiCall(caller, {}, query, None, cast("Any", None))


def run(main: Callable[[House], Awaitable[None]]) -> None:
    async def opened() -> None:
        async with asyncio.timeout(20):
            await main(House())

    asyncio.run(opened())


# --- the list -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ({}, "d c b a"),
        ({"status": "altered"}, "c a"),
        ({"status": "pending"}, "d"),
        ({"status": "skipped"}, ""),
        ({"source": "b.pdf"}, "c"),
        ({"source": "B.PDF"}, ""),
        ({"agent": "scout"}, "b"),
        ({"since": "2025-11-16T14:00"}, "d c"),
        ({"until": "2025-11-16T14:00"}, "b a"),
        ({"since": "2025-11-16T13:00Z", "until": "2025-11-16T15:00+00:00"}, "c b"),
        ({"status": "altered", "agent": "clerk", "source": "a.pdf"}, "a"),
        ({"limit": 2}, "d c"),
    ],
)  # fmt: skip
def test_filters(query: dict[str, Any], expected: str) -> None:
    async def main(house: House) -> None:
        await house.answer("a", "altered verified")
        house.now += HOUR
        await house.answer("b", "verified verified", agent="scout")
        house.now += HOUR
        await house.answer("c", "altered", source="b.pdf")
        house.now += HOUR
        await house.answer("d", "verified ?", source="c.pdf")
        assert await house.names(**query) == expected.split()

    run(main)


@pytest.mark.parametrize(
    "query",
    [{"status": "good"}, {"since": "soon"}, {"until": "2025-13-01"}, {"cursor": "x"}, {"cursor": "²:a"}],
)
def test_no_filters(query: dict[str, Any]) -> None:
    async def main(house: House) -> None:
        with pytest.raises(InputError):
            await house.list(**query)

    run(main)


def test_what_is_said_of_an_answer() -> None:
    async def main(house: House) -> None:
        await house.answer("t/ü", "altered verified verified ?")
        (thread,) = (await house.list()).threads
        (answer,) = thread.answers
        assert (thread.thread_id, answer.message_id, answer.run_id) == ("t/ü", "m", "r")
        assert (answer.agent, answer.text, answer.sources) == ("clerk", "Said.", ["a.pdf"])
        assert answer.verdicts == {"altered": 1, "verified": 2, "pending": 1}
        assert answer.at == "2025-11-16T12:00:00.000+00:00"

    run(main)


def test_a_long_thread_is_cut_and_says_so() -> None:
    async def main(house: House) -> None:
        for at in range(55):
            house.now += 1
            await house.answer("t", "verified" if at % 2 else "altered", message=f"m{at}")
        (thread,) = (await house.list()).threads
        assert [each.message_id for each in thread.answers[:2]] == ["m54", "m53"]
        assert (len(thread.answers), thread.more) == (50, 5)
        (thread,) = (await house.list(status="altered")).threads
        assert (len(thread.answers), thread.more) == (28, 0)

    run(main)


def test_what_others_say_in_the_channel_is_no_answer() -> None:
    async def main(house: House) -> None:
        eve = Publisher(client_id="eve", connection_id="c1")
        await house.channels.publish(ai_channel("t"), eve, [MessageDraft(name="response", data="Mine.")])
        assert await house.names() == []

    run(main)


@settings(max_examples=25, deadline=None)
@given(
    threads=st.lists(
        st.tuples(st.integers(0, 30), st.sampled_from(["altered", "verified", "?"])), max_size=12
    ),
    limit=st.integers(1, 5),
    status=st.sampled_from([None, "altered"]),
)
def test_pages_are_the_list(threads: list[tuple[int, str]], limit: int, status: str | None) -> None:
    """Whatever their number and size: every thread once, the latest first."""

    async def main(house: House) -> None:
        for at, (later, verdict) in enumerate(threads):
            house.now += later * 1000
            await house.answer(f"t{at}", verdict)
        whole = await house.names(status=status, limit=100)
        found, cursor = list[str](), None
        while True:
            page = await house.list(status=status, limit=limit, cursor=cursor)
            found += [each.thread_id for each in page.threads]
            if (cursor := page.next) is None:
                break
        assert found == whole
        assert sorted(found) == sorted(
            f"t{at}" for at, (_, said) in enumerate(threads) if status in (None, said)
        )

    run(main)


def test_a_page_reads_no_more_than_it_shows() -> None:
    """However many threads there are; and what was read is not read again until something happens there."""

    async def main(house: House) -> None:
        for at in range(1200):
            await house.answer(f"t{at}", "")
        house.store.asked = 0
        page = await house.list(limit=20)
        assert (len(page.threads), house.store.asked) == (20, 20)
        await house.list(limit=20)
        assert house.store.asked == 20
        await house.answer("t1199", "", message="m2")
        await house.list(limit=20)
        assert house.store.asked == 21
        # A filter that nothing fits looks into so many, and says where it was.
        house.store.asked = 0
        page = await house.list(status="altered")
        assert (page.threads, house.store.asked <= 500, page.next is not None) == ([], True, True)

    run(main)


def test_who_may_not_read_a_thread_does_not_see_it() -> None:
    async def main(house: House) -> None:
        for thread in ("mine", "yours"):
            await house.answer(thread, "verified")
        me = Caller("k", Capability.of({"answer:*": ["list"], "thread:mine": ["read"]}))
        assert [each.thread_id for each in (await house.list(me)).threads] == ["mine"]
        counts = await house.overview.verdicts(_call(me, VerdictsQuery()))
        assert [each.answers for each in counts.buckets] == [1]

    run(main)


def test_places() -> None:
    place = IndexPosition.parse("17:a:b%2Fc")
    assert (place.tick, place.channel, str(place)) == (17, "channel:ai:a:b%2Fc", "17:a:b%2Fc")


# --- verdicts over time -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        (
            {"bucket": "hour"},
            [
                ("2025-11-16T12:00:00.000+00:00", 2, {"altered": 1, "verified": 2}),
                ("2025-11-16T13:00:00.000+00:00", 1, {"missed": 1}),
                ("2025-11-17T13:00:00.000+00:00", 1, {"verified": 1}),
            ],
        ),
        (
            {"bucket": "day"},
            [
                ("2025-11-16T00:00:00.000+00:00", 3, {"altered": 1, "missed": 1, "verified": 2}),
                ("2025-11-17T00:00:00.000+00:00", 1, {"verified": 1}),
            ],
        ),
        ({"status": "missed"}, [("2025-11-16T00:00:00.000+00:00", 1, {"missed": 1})]),
        ({"since": "2025-11-18"}, []),
    ],
)
def test_verdicts_by_time(query: dict[str, Any], expected: list[Any]) -> None:
    async def main(house: House) -> None:
        await house.answer("a", "altered verified")
        house.now += HOUR - 1
        await house.answer("b", "verified")
        house.now += 1
        await house.answer("c", "missed")
        house.now += 24 * HOUR
        await house.answer("d", "verified")
        counts = await house.overview.verdicts(_call(ANYBODY, VerdictsQuery(**query)))
        assert [(each.at, each.answers, each.verdicts) for each in counts.buckets] == expected

    run(main)


# --- what changes -------------------------------------------------------------------------------------------


def test_changes_are_told() -> None:
    """New answers, new verdicts, and threads that are gone or fit no longer."""

    async def main(house: House) -> None:
        async with aclosing(house.frames()) as frames, aclosing(house.frames(status="altered")) as altered:
            assert [await anext(frames), await anext(altered)] == [("reset", {})] * 2
            await house.answer("a", "altered")
            for each in (frames, altered):
                event, thread = await anext(each)
                assert (event, thread["threadId"], thread["answers"][0]["verdicts"]) == (
                    "thread",
                    "a",
                    {"altered": 1},
                )
            await house.channels.drop(ai_channel("a"))
            for each in (frames, altered):
                assert (await anext(each))[1] == {
                    "threadId": "a",
                    "updatedAt": None,
                    "answers": [],
                    "more": 0,
                }
            await house.answer("b", "verified")
            assert (await anext(frames))[1]["answers"]
            assert (await anext(altered))[1]["answers"] == []

    run(main)


def test_changes_of_others_threads_are_not_told() -> None:
    async def main(house: House) -> None:
        me = Caller("k", Capability.of({"thread:mine": ["read"]}))
        async with aclosing(house.frames(me)) as frames:
            await anext(frames)
            await house.answer("yours", "altered")
            await house.answer("mine", "altered")
            assert (await anext(frames))[1]["threadId"] == "mine"

    run(main)


def test_who_is_too_slow_begins_anew() -> None:
    """Nothing is kept for a slow reader: after too many changes it is told to look at everything."""

    async def main(house: House) -> None:
        async with aclosing(house.frames()) as frames:
            await anext(frames)
            for at in range(5000):
                house.overview.notify_channel_changed(f"channel:ai:t{at}")
            assert await anext(frames) == ("reset", {})

    run(main)


def test_a_stream_ends_with_the_server() -> None:
    async def main(house: House) -> None:
        async with aclosing(house.frames()) as frames:
            await anext(frames)
            house.overview.end_events()
            assert [each async for each in frames] == []

    run(main)


# --- what is on record --------------------------------------------------------------------------------------


def serve(folder: Path, main: Callable[[App, dict[str, str]], Awaitable[None]]) -> None:
    """A server whose agent misquotes, with six threads `t0` to `t5`; and the ids of sources by name."""

    async def opened() -> None:
        async with opened_app(folder, agent="support.misquoting_agent:answer", agent_name="clerk") as app:
            ids: dict[str, str] = {}
            for name, data in SOURCES.items():
                ids[name] = (await app.ask("POST", f"/sources?name={name}", data)).json["sources"][0]["id"]
            await app.server.catalog.wait_until_read()
            for at, said in enumerate(ANSWERS):
                await asked(app, f"t{at}", said.question)
            await app.server.bridge.wait_idle()
            await main(app, ids)

    asyncio.run(opened())


async def asked(app: App, thread: str, question: str) -> Answer:
    message = {"id": "u", "role": "user", "content": question}
    return await app.ask("POST", "/agui", {"threadId": thread, "runId": "r", "messages": [message]})


@pytest.mark.timeout(120)
def test_the_record(tmp_path: Path) -> None:
    async def main(app: App, ids: dict[str, str]) -> None:
        # Of a thread: its steps, each of which it can be seen at; and who looked.
        told = (await app.ask("GET", "/threads/t3/record")).json
        steps = told["steps"]
        assert [steps[0]["what"], steps[-1]["what"]] == ["input", "over"]
        assert [each["n"] for each in steps] == sorted({each["n"] for each in steps})
        assert [each["at"] for each in steps] == sorted(each["at"] for each in steps)
        seen = [(await app.ask("GET", f"/threads/t3?at={each['n']}")).json for each in steps]
        lengths = [len(each["messages"][-1]["content"]) for each in seen[1:]]
        assert lengths[-1] > 50
        assert seen[-1] == (await app.ask("GET", "/threads/t3")).json
        first, second = told["citations"]
        assert [each["verdict"]["status"] for each in (first, second)] == ["verified", "altered"]
        review = {
            "messageId": first["message"],
            "key": first["key"],
            "event": "citation_reviewed",
            "dwellMs": 2500,
        }
        await app.ask("POST", "/threads/t3/reviews", review)
        told = (await app.ask("GET", "/threads/t3/record")).json
        (look,) = told["citations"][0]["reviews"]
        assert (look["who"], look["event"], look["dwellMs"]) == (
            app.key.partition(":")[0],
            "citation_reviewed",
            2500,
        )
        assert told["steps"][-1]["what"] == "review"
        assert (await app.ask("GET", "/threads/none/record")).code == "not_found"
        await _sources(app, ids)
        await _audit(app)

    serve(tmp_path, main)


async def _sources(app: App, ids: dict[str, str]) -> None:
    """Who cites a source, and where on its pages; also of what it was before."""
    path = f"/sources/{ids['returns.pdf']}/citations"
    found = (await app.ask("GET", path)).json
    assert sorted({each["threadId"] for each in found["citations"]}) == ["t0", "t3", "t5"]
    assert {each["status"] for each in found["citations"]} == {"verified", "altered"}
    sizes = {each["number"]: each for each in found["pages"]}
    assert {*sizes} == {1, 2}
    for each in found["citations"]:
        assert each["isCurrent"]
        assert each["boxes"]
        for box in each["boxes"]:
            size = sizes[box["page"]]
            assert 0 <= box["left"] < box["right"] <= size["width"]
            assert 0 <= box["top"] < box["bottom"] <= size["height"]
    mine = app.token({f"source:{ids['returns.pdf']}": ["trace"], "thread:t3": ["read"]})
    assert {each["threadId"] for each in (await app.ask("GET", path, key=mine)).json["citations"]} == {"t3"}
    assert (await app.ask("GET", f"{path}?after=t3")).json["citations"][0]["threadId"] == "t5"
    assert (await app.ask("GET", f"/sources/{ids['asia.txt']}/citations")).json["citations"] == []
    assert (await app.ask("GET", "/sources/none/citations")).code == "not_found"
    await app.ask("POST", "/sources?name=care.txt", b"Something else.")
    (old,) = (await app.ask("GET", f"/sources/{ids['care.txt']}/citations")).json["citations"]
    assert (old["isCurrent"], old["boxes"]) == (False, [])


async def _audit(app: App) -> None:
    """The same as `citewire audit export` gives, of what is asked for."""
    whole = await app.ask("GET", "/audit")
    assert whole.headers["content-disposition"].endswith('.jsonl"')
    report = check_export(whole.body.splitlines(keepends=True))
    assert (report.breaks, report.citations, len(report.chains)) == ([], 13, 8)
    altered = await app.ask("GET", "/audit?format=csv&status=altered&client=clerk")
    assert altered.headers["content-type"] == "text/csv; charset=utf-8"
    assert [line.split(",")[0] for line in altered.body.decode().splitlines()] == ["thread", "t2", "t3"]
    page = await app.ask("GET", "/audit?format=html&thread=t4")
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert "sandbox" in page.headers["content-security-policy"]
    assert page.headers["content-disposition"].startswith("attachment")
    assert b"Lavender" in page.body
    for query in ("format=pdf", "status=good", "since=soon"):
        assert (await app.ask("GET", f"/audit?{query}")).status == 400
