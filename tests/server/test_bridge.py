"""Threads and their channels: answers are told there once, and what others cite there is checked."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from citewire import codec
from citewire.channels.annotation import AnnotationAction, AnnotationDraft
from citewire.channels.channels import HistoryQuery as Which
from citewire.channels.errors import ChannelError
from citewire.channels.hub import Hub
from citewire.channels.memory import MemoryStore
from citewire.channels.message import Action, Message, MessageDraft, MessageOperation, Publisher
from citewire.channels.store import Entry, Row, StoreError
from citewire.server.bridge.thread_channels import ThreadChannels
from citewire.threadlog.names import ai_channel, thread_of_ai_channel
from support.ably_node import AblyFailed, node_ably
from support.ably_python import AblyRealtime, ChannelMode, ChannelOptions, Told
from support.annotated_stream import FINISHED, STARTED, answer, block, chunk, end, messages, say, start
from support.app import App, listening, opened_app
from support.bridge_runs import AI, ANN, CITE, QUOTE, VERDICT, Tied, agrees, counts
from support.clock import LONG, clock, on_clock
from support.librarian_sources import SOURCES
from support.thread_runs import CHANNEL, HALF, TEXT, WHOLE, House, Scripted, takes

Events = list[dict[str, Any]]


# --- outward ------------------------------------------------------------------------------------------------


def test_an_answer_is_a_message_with_its_citations_and_verdicts() -> None:
    async def main() -> None:
        house = Tied(Scripted(*WHOLE))
        await house.post()
        await house.settled()
        message = await house.only()
        assert (message.name, message.data, message.client_id, message.id) == (
            "response",
            "Paris [1].",
            "bot",
            "m",
        )
        assert message.extras == {"headers": {"threadId": "t", "runId": "r", "messageId": "m"}}
        assert counts(message, CITE) == {"doc1": 1}
        assert counts(message, VERDICT) == {"verified": 1}
        cite, verdict = (await house.channels.annotations(AI, message.serial)).items
        key = next(iter((await house.record())["citations"]))
        assert codec.decode(cite.data or b"") == {
            "title": "doc1", "snippet": "Paris is the capital of France.",
            "startOffset": 0, "endOffset": 5, "key": key,
        }  # fmt: skip
        assert (cite.client_id, verdict.client_id, verdict.name) == ("bot", "citewire", "verified")
        told = codec.decode(verdict.data or b"")
        assert (told["key"], told["status"]) == (key, "verified")
        [group] = (await house.channels.citations(AI)).items
        assert group.citations[0].verdict == told

    asyncio.run(main())


TWO = f"Paris [1], and costs [2].{block('Paris is the capital of France.', 'Costs rose.')}"
WORDS = {"role": "assistant", "content": "Paris [1]."}
SCRIPTS: dict[str, Events] = {
    "one": WHOLE,
    "chunks": [STARTED, chunk("Paris ", "m"), chunk(TEXT[6:]), FINISHED],
    "two citations": [STARTED, *answer(TWO), FINISHED],
    "two answers": [STARTED, *answer(TEXT), *answer("Rome.", "m2"), FINISHED],
    "only a snapshot": [STARTED, messages({"id": "m", "role": "assistant", "content": TEXT}), FINISHED],
    "changed": [STARTED, *answer(TEXT), messages({**WORDS, "id": "m", "content": "Paris [1]!"}), FINISHED],
    "renamed": [STARTED, *answer(TEXT), messages({**WORDS, "id": "other"}), FINISHED],
    "renamed, and its id used again": [
        STARTED,
        *answer(TEXT),
        messages({**WORDS, "id": "other"}),
        *answer("Rome."),
        FINISHED,
    ],
    "taken back": [STARTED, *answer(TEXT), messages(), FINISHED],
    "taken back and said": [STARTED, *answer(TEXT), messages(), messages({**WORDS, "id": "m"}), FINISHED],
    "fails": [STARTED, start(), say("Paris "), {"type": "RUN_ERROR", "message": "no"}],
    "nothing": [STARTED, FINISHED],
}


@pytest.mark.parametrize("name", SCRIPTS)
def test_the_channel_tells_what_the_thread_is(name: str) -> None:
    async def main() -> None:
        house = Tied(Scripted(*SCRIPTS[name]))
        await house.post()
        await house.settled()
        await agrees(house)

    asyncio.run(main())


class Dying(MemoryStore):
    """Takes so many writes, and none after; the last one `in_vain`: it is kept, but nobody hears of it."""

    def __init__(self) -> None:
        super().__init__()
        self.left, self.in_vain, self.reads = 1 << 30, False, list[str]()

    def live(self, writes: int, in_vain: bool) -> None:
        self.left, self.in_vain, self.died = writes, in_vain, asyncio.Event()

    def _spend(self) -> None:
        if self.left <= 0:
            self.died.set()
            raise StoreError("the disk is gone")
        self.left -= 1

    def _hear(self) -> None:
        if self.left == 0 and self.in_vain:
            self._spend()

    async def append(self, channel: str, entries: Sequence[Entry]) -> tuple[Row, ...]:
        self._spend()
        rows = await super().append(channel, entries)
        self._hear()
        return rows

    async def change(self, channel: str, keys: Sequence[str], decide: Any) -> Any:
        self._spend()
        changed = await super().change(channel, keys, decide)
        self._hear()
        return changed

    async def read(self, channel: str, after: Any = None, limit: int = 1000) -> tuple[Row, ...]:
        self.reads.append(channel)
        return await super().read(channel, after, limit)


async def first_life(house: Tied, cites: bool) -> None:
    """A run, and a citation of somebody else's; until all is done, or the store dies."""

    async def live() -> None:
        await house.post()
        await house.settled()
        if cites:
            await house.cite((await house.only()).serial, snippet=QUOTE)
            await house.settled()

    assert isinstance(house.store, Dying)
    living, dying = asyncio.create_task(live()), asyncio.create_task(house.store.died.wait())
    await asyncio.wait([living, dying], return_when=asyncio.FIRST_COMPLETED)
    for task in (living, dying):
        task.cancel()
    await asyncio.gather(living, dying, return_exceptions=True)
    await house.bridge.aclose()
    await house.runs.aclose()
    await asyncio.sleep(0)  # what was on its way to the store gets there, or not


@pytest.mark.parametrize("in_vain", [False, True])
@pytest.mark.parametrize("resumes", [True, False])
@pytest.mark.parametrize("name", SCRIPTS)
def test_a_crash_at_any_write(name: str, resumes: bool, in_vain: bool) -> None:
    """What was told stays told and is told once, and the rest is told after the restart."""
    cites, writes = name == "one", 0
    while True:
        writes += 1
        store = Dying()

        async def first(store: Dying = store, writes: int = writes) -> None:
            store.live(writes, in_vain)
            await first_life(Tied(Scripted(*SCRIPTS[name]), store, resumes=resumes), cites)

        async def again(store: Dying = store) -> tuple[Tied, list[Row]]:
            store.live(1 << 30, in_vain=False)
            house = Tied(Scripted(*SCRIPTS[name]), store, resumes=resumes)
            await house.runs.recover()
            await house.runs.wait_idle()
            await house.bridge.recover()
            await house.settled()
            if await store.head(CHANNEL) is not None:
                await agrees(house)
            return house, await house.told()

        asyncio.run(first())
        survived = store.left > 0
        _, told = asyncio.run(again())
        assert asyncio.run(again())[1] == told
        if survived:
            return


def test_a_start_reads_no_log_that_is_told() -> None:
    store = Dying()

    async def main() -> None:
        house = Tied(Scripted(*WHOLE), store)
        await house.post()
        await house.settled()
        store.reads.clear()
        again = Tied(Scripted(*WHOLE), store)
        await again.bridge.recover()
        assert store.reads == []
        await store.append(CHANNEL, [Entry("x", "review", b"{}")])
        await again.bridge.recover()
        assert CHANNEL in store.reads

    asyncio.run(main())


def test_what_was_written_together_is_told_together() -> None:
    """However many deltas there are."""

    async def main() -> None:
        pieces = [say(f"{number} ") for number in range(200)]
        script = Scripted(STARTED, start(), *pieces, end(), FINISHED)
        alone = House(script)
        await alone.post()
        house = Tied(script, alone.store)
        await house.bridge.recover()
        assert len(await house.told()) == 1
        assert (await house.only()).data == "".join(piece["delta"] for piece in pieces)

    asyncio.run(main())


def test_a_long_answer_is_cut_and_says_so() -> None:
    async def main() -> None:
        text = "é" * 200_000 + "😀" * 50_000
        house = Tied(
            Scripted(STARTED, start(), say(text[:150_000]), say(text[150_000:]), say("more"), end(), FINISHED)
        )
        await house.post()
        await house.settled()
        message = await house.only()
        assert isinstance(message.data, str)
        assert 512 * 1024 - 4 < len(message.data.encode()) <= 512 * 1024
        assert text.startswith(message.data)
        assert message.extras is not None
        assert message.extras["headers"]["truncated"] is True
        assert all(len(row.data) < 66_000 for row in await house.told())

    asyncio.run(main())


def test_who_speaks() -> None:
    """A subagent under its own name, unless that is taken."""

    async def main() -> None:
        begun = [
            {"type": "SUBAGENT_STARTED", "subagentRunId": name, "name": name}
            for name in ("poet", "citewire", "*")
        ]
        ended = [{"type": "SUBAGENT_FINISHED", "subagentRunId": each["name"]} for each in begun]
        said = [
            event
            for at, each in enumerate(begun)
            for event in (
                start(f"m{at}", subagentRunId=each["name"]),
                say("Hi", f"m{at}", subagentRunId=each["name"]),
                end(f"m{at}", subagentRunId=each["name"]),
            )
        ]
        house = Tied(Scripted(STARTED, *begun, *said, *ended, *answer("Me.", "m"), FINISHED))
        await house.post()
        await house.settled()
        assert [each.client_id for each in await house.said()] == ["poet", "bot", "bot", "bot"]

    asyncio.run(main())


def _record(kind: str, name: str, **fields: Any) -> Entry:
    return Entry(name, "record", codec.encode({"type": kind, "message_id": "m", **fields}))


def test_a_verdict_that_changes() -> None:
    """Those that are left under its old name are counted anew."""

    async def main() -> None:
        script = [STARTED, *answer("One [1]. Two [2]. Three."), FINISHED]
        house = Tied(Scripted(*script))
        await house.post()
        for key, status in (
            ("a", "missed"),
            ("b", "missed"),
            ("c", "verified"),
            ("a", "verified"),
            ("a", "partial"),
        ):
            entries = [
                _record("citation", f"c{key}", key=key, citation={"citationNumber": ord(key) - 96, "url": "https://www.x.org/"}),
                _record(
                    "verdict", f"v{key}{status}", key=key, quote="",
                    verification={"citewire": {"status": status}},
                ),
            ]  # fmt: skip
            await house.hub.append(CHANNEL, entries)
            house.bridge.notify_log_written(CHANNEL)
            await house.settled()
        message = await house.only()
        assert counts(message, VERDICT) == {"missed": 1, "verified": 1, "partial": 1}
        assert counts(message, CITE) == {"x.org": 3}
        annotations = (await house.channels.annotations(AI, message.serial)).items
        places = [
            codec.decode(each.data or b"").get("startOffset") for each in annotations if each.type == CITE
        ]
        assert places == [0, 9, None]
        [group] = (await house.channels.citations(AI)).items
        assert [each.verdict["status"] for each in group.citations if each.verdict] == [
            "partial",
            "missed",
            "verified",
        ]

    asyncio.run(main())


def test_an_answer_that_is_said_anew_cites_anew() -> None:
    async def main() -> None:
        house = Tied(Scripted(STARTED, *answer(TWO), messages(), *answer(TEXT), FINISHED))
        await house.post()
        await house.settled()
        message = await house.only()
        assert (message.data, message.action) == ("Paris [1].", Action.UPDATE)
        actions = [each.action for each in (await house.channels.versions(AI, message.serial)).items]
        assert actions == [Action.CREATE, Action.DELETE, Action.UPDATE]

    asyncio.run(main())


def test_a_channel_that_cannot_be_written_to_stops_no_run() -> None:
    class Full(MemoryStore):
        is_full = True

        async def change(self, channel: str, keys: Sequence[str], decide: Any) -> Any:
            if self.is_full and channel.startswith("channel:"):
                raise StoreError("full")
            return await super().change(channel, keys, decide)

    async def main() -> None:
        store = Full()
        house = Tied(Scripted(*WHOLE), store)
        events = await house.post()
        assert events[-1]["type"] == "RUN_FINISHED"
        await asyncio.sleep(0)
        assert await house.told() == []
        store.is_full = False
        clock().leap(LONG)
        async with aclosing(house.channels.follow(AI)) as rows:
            await anext(rows)
        await house.settled()
        await agrees(house)

    on_clock(main())


def test_a_thread_goes_with_its_channel() -> None:
    async def main() -> None:
        house = Tied(Scripted(*WHOLE))
        await house.post()
        await house.settled()
        await house.runs.delete_thread("t")
        await house.settled()
        assert await house.store.heads("") == ()
        await house.post()
        await house.settled()
        await agrees(house)

    asyncio.run(main())


def test_a_channel_is_dropped_whose_thread_was() -> None:
    """Also where a crash came in between; that of nobody's stays."""

    async def main() -> None:
        house = Tied(Scripted(*WHOLE))
        await house.post()
        await house.settled()
        await house.channels.publish("ai:free", ANN, [MessageDraft(data="mine")])
        await house.store.drop(CHANNEL)
        again = Tied(Scripted(*WHOLE), house.store)
        await again.bridge.recover()
        assert (await again.channels.names("ai:")).items == ("ai:free",)

    asyncio.run(main())


def test_nobody_takes_the_id_of_an_answer_before_the_server_does() -> None:
    """A client's message under that id stays, and the answer is a message of its own beside it."""

    async def main() -> None:
        house = Tied(Scripted(*WHOLE))
        await house.channels.publish(AI, ANN, [MessageDraft(id="m", name="response", data="mine")])
        await house.post()
        await house.settled()
        answer, mine = (await house.channels.history(AI, Which())).items
        assert (mine.data, mine.client_id) == ("mine", "ann")
        assert (answer.id, answer.client_id, answer.data) == ("m", "bot", (await whole_answer()).data)

    asyncio.run(main())


async def whole_answer() -> Message:
    """The answer of a thread in whose channel nobody else speaks."""
    house = Tied(Scripted(*WHOLE))
    await house.post()
    await house.settled()
    return await house.only()


@pytest.mark.parametrize("action", [Action.UPDATE, Action.APPEND, Action.DELETE])
def test_nobody_else_changes_an_answer(action: Action) -> None:
    """Whatever its capability, and whoever it says it is."""

    async def main() -> None:
        house = Tied(Scripted(*WHOLE))
        await house.post()
        await house.settled()
        before = await house.only()
        for who, name in ((ANN, None), (ANYBODY, None), (ANYBODY, before.client_id)):
            draft = MessageDraft(
                action=action, serial=before.serial, data="other", version=MessageOperation(client_id=name)
            )
            with pytest.raises(ChannelError) as caught:
                await house.channels.publish(AI, who, [draft])
            assert caught.value.ably == 40160
        assert await house.only() == before

    asyncio.run(main())


@pytest.mark.parametrize("name", ["t", "a b", "ä/ö", "a~b", "x.y_z-1", "ai:x", "%41"])
def test_the_channel_of_a_thread(name: str) -> None:
    channel = ai_channel(name)
    assert re.fullmatch(r"ai:[A-Za-z0-9._%-]+", channel)
    assert thread_of_ai_channel(channel) == name
    assert thread_of_ai_channel(f"ai:{name}") == (name if channel == f"ai:{name}" else None)


# --- what only the server says ------------------------------------------------------------------------------


CITEWIRE, ANYBODY = Publisher(client_id="citewire"), Publisher(client_id="*")


@pytest.mark.parametrize(
    ("who", "kind", "client_id"),
    [(ANN, VERDICT, None), (ANN, "verdicts:total.v1", None), (ANYBODY, VERDICT, "x"), (CITEWIRE, CITE, None),
     (ANYBODY, CITE, "citewire")],
)  # fmt: skip
def test_nobody_else_gives_verdicts(who: Publisher, kind: str, client_id: str | None) -> None:
    async def main() -> None:
        channels = ThreadChannels(store := MemoryStore(), Hub(store))
        [serial] = await channels.publish(AI, ANN, [MessageDraft(data="mine")])
        note = AnnotationDraft(message_serial=serial, type=kind, name="verified", client_id=client_id)
        with pytest.raises(ChannelError) as caught:
            await channels.annotate(AI, who, [note])
        assert (caught.value.ably, caught.value.status) == (40160, 401)

    asyncio.run(main())


@pytest.mark.parametrize(
    ("who", "draft"),
    [
        (CITEWIRE, MessageDraft(data="x")),
        (ANYBODY, MessageDraft(data="x", client_id="citewire")),
        (
            ANYBODY,
            MessageDraft(action=Action.UPDATE, data="x", version=MessageOperation(client_id="citewire")),
        ),
    ],
)
def test_nobody_else_is_citewire(who: Publisher, draft: MessageDraft) -> None:
    async def main() -> None:
        channels = ThreadChannels(store := MemoryStore(), Hub(store))
        [serial] = await channels.publish(AI, ANN, [MessageDraft(data="mine")])
        with pytest.raises(ChannelError):
            await channels.publish(AI, who, [replace(draft, serial=serial)])
        if draft.action is Action.CREATE:
            await channels.publish("elsewhere", who, [draft])

    asyncio.run(main())


@pytest.mark.parametrize("action", AnnotationAction)
@pytest.mark.parametrize("kind", [CITE, "citations", "citations:distinct.v1"])
@pytest.mark.parametrize(("sender", "name"), [("poet", "poet"), ("poet", "bot"), ("bot", "bot")])
@pytest.mark.parametrize("is_anybody", [True, False])
def test_nobody_else_cites_as_the_agent(
    action: AnnotationAction, kind: str, sender: str, name: str, is_anybody: bool
) -> None:
    """Nor takes back what the agent cites, nor what a subagent does."""

    async def main() -> None:
        begun = {"type": "SUBAGENT_STARTED", "subagentRunId": "s", "name": "poet"}
        ended = {"type": "SUBAGENT_FINISHED", "subagentRunId": "s"}
        by = {"subagentRunId": "s"} if sender == "poet" else {}
        said = [start(**by), say(TEXT, **by), end(**by)]
        house = Tied(Scripted(STARTED, begun, *said, ended, FINISHED))
        await house.post()
        await house.settled()
        message = await house.only()
        assert message.client_id == sender
        note = AnnotationDraft(message_serial=message.serial, type=kind, name="doc1", action=action)
        who = ANYBODY if is_anybody else Publisher(client_id=name)
        with pytest.raises(ChannelError) as caught:
            await house.channels.annotate(AI, who, [replace(note, client_id=name if is_anybody else None)])
        assert (caught.value.ably, caught.value.status) == (40160, 401)
        await house.channels.annotate(AI, ANYBODY, [replace(note, client_id="ann")])
        await house.settled()
        assert counts(await house.only(), CITE).get("doc1", 0) >= 1
        [group] = (await house.channels.citations(AI)).items
        assert sender in {each.annotation.client_id for each in group.citations}

    asyncio.run(main())


def test_others_may_have_the_name_of_a_subagent_elsewhere() -> None:
    async def main() -> None:
        house = Tied(Scripted(*WHOLE))
        await house.post()
        await house.settled()
        await house.cite((await house.only()).serial, Publisher(client_id="poet"), snippet=QUOTE)
        [serial] = await house.channels.publish(AI, ANN, [MessageDraft(data="mine")])
        await house.cite(serial)

    asyncio.run(main())


# --- inward -------------------------------------------------------------------------------------------------


def test_what_somebody_else_cites_is_checked_while_a_run_is_open() -> None:
    async def main() -> None:
        agent = Scripted(*HALF, say("[1]."), end(), FINISHED)
        house = Tied(agent)
        reading = asyncio.create_task(house.post())
        await agent.held.wait()
        async with aclosing(house.channels.follow(AI)) as rows:
            await anext(rows)
        annotation = await house.cite((await house.only()).serial, snippet=QUOTE, startOffset=0, endOffset=5)
        await house.bridge.wait_idle()
        agent.go_on.set()
        events = await reading
        takes(events)
        assert b"Costs fell" in codec.encode([each for each in events if each["type"] == "STATE_DELTA"])
        await house.settled()
        record = await house.record()
        assert (record["summary"]["verified"], record["status"]) == (1, "complete")
        [key] = record["citations"]
        past = await house.history.snapshot_at(CHANNEL)
        assert past is not None
        [entry] = past.state["citations"]["m"]
        assert (entry["snippet"], entry["extra"]["citewire"]["status"]) == (QUOTE, "verified")
        row = await house.store.get(CHANNEL, f"annotation:{annotation}")
        assert row is not None
        seen = codec.decode(row.data)
        assert (seen["by"], seen["key"], seen["annotation"]) == ("ann", key, annotation)
        message = await house.only()
        assert (counts(message, CITE), counts(message, VERDICT)) == ({"doc": 1}, {"verified": 1})
        [group] = (await house.channels.citations(AI)).items
        assert [each.verdict and each.verdict["annotation"] for each in group.citations] == [annotation]

    asyncio.run(main())


def test_what_somebody_else_cites_later_is_there_for_who_comes_back() -> None:
    """In the thread, and in the next run, even where its client does not know of it."""

    async def main() -> None:
        house = Tied(Scripted(*WHOLE))
        await house.post()
        await house.settled()
        before = await house.history.snapshot_at(CHANNEL)
        assert before is not None
        await house.cite((await house.only()).serial, snippet="Costs rose.", url="https://x.org/a", page=3)
        await house.settled()
        record = await house.record()
        assert (record["summary"]["verified"], record["summary"]["missed"]) == (1, 1)
        assert {"url", "pageNumber"} <= {*list(record["citations"].values())[-1]}
        assert counts(await house.only(), VERDICT) == {"verified": 1, "missed": 1}

        house.agent.events = (STARTED, *answer("Rome.", "m2"), FINISHED)
        state, sent = codec.decode(codec.encode(before.state)), codec.decode(codec.encode(before.messages))
        events = await house.post("r2", state=state, messages=sent)
        takes(events)
        await house.settled()
        assert (await house.record())["summary"]["missed"] == 1
        assert sum(row.kind == "record" and b'"annotation"' in row.data for row in await house.rows()) == 1
        assert counts((await house.said())[0], VERDICT) == {"verified": 1, "missed": 1}

    asyncio.run(main())


BAD: list[Any] = [
    {},
    {"snippet": ""},
    {"snippet": 7, "quote": ["x"]},
    {"snippet": None, "startOffset": -1, "endOffset": "x", "page": 0, "url": 3},
    [],
    "text",
]


@pytest.mark.parametrize("data", BAD, ids=str)
def test_a_citation_that_says_nothing_is_skipped(data: Any) -> None:
    async def main() -> None:
        house = Tied(Scripted(*WHOLE))
        await house.post()
        await house.settled()
        serial = (await house.only()).serial
        note = AnnotationDraft(
            message_serial=serial, type=CITE, name="doc", data=codec.encode(data), encoding="json"
        )
        await house.channels.annotate(AI, ANN, [note])
        await house.settled()
        assert counts(await house.only(), VERDICT) == {"verified": 1, "skipped": 1}
        listed = [each for group in (await house.channels.citations(AI)).items for each in group.citations]
        assert [each.verdict["reason"] for each in listed if each.verdict and "reason" in each.verdict] == [
            "nothing quoted"
        ]

    asyncio.run(main())


def test_odd_citations_break_nothing() -> None:
    async def main() -> None:
        house = Tied(Scripted(*WHOLE))
        await house.post()
        await house.settled()
        serial = (await house.only()).serial
        await house.cite(serial, snippet="x" * 60_000, url="http://[", title="\x00", page=10**30, endOffset=1)
        raw = [
            AnnotationDraft(
                message_serial=serial,
                type="citations",
                data=b"\xff",
                encoding="utf-8/cipher+aes-256-cbc/base64",
            ),
            AnnotationDraft(message_serial=serial, type="citations:flag.v1", data=None),
            AnnotationDraft(message_serial=serial, type="citations:total.v1", data="{", encoding="json"),
        ]
        await house.channels.annotate(AI, ANN, raw)
        [mine] = await house.channels.publish(AI, ANN, [MessageDraft(name="response", data="x")])
        await house.cite(mine, snippet=QUOTE)
        await house.settled()
        message = (await house.said())[0]
        assert counts(message, VERDICT) == {"verified": 1, "missed": 1, "skipped": 3}

    asyncio.run(main())


def test_a_citation_that_is_taken_back() -> None:
    """Its verdict counts no longer. What the thread was told stays; later runs are not told again."""

    async def main() -> None:
        house = Tied(Scripted(*WHOLE))
        await house.post()
        await house.settled()
        serial = (await house.only()).serial
        before = await house.history.snapshot_at(CHANNEL)
        assert before is not None
        await house.cite(serial, snippet=QUOTE)
        await house.cite(serial, Publisher(client_id="bob"), snippet=QUOTE)
        await house.settled()
        assert counts(await house.only(), VERDICT) == {"verified": 3}
        gone = AnnotationDraft(message_serial=serial, type=CITE, name="doc", action=AnnotationAction.DELETE)
        await house.channels.annotate(AI, ANN, [gone])
        await house.settled()
        assert counts(await house.only(), VERDICT) == {"verified": 2}
        assert len((await house.record())["citations"]) == 3

        house.agent.events = (STARTED, *answer("Rome.", "m2"), FINISHED)
        state, sent = codec.decode(codec.encode(before.state)), codec.decode(codec.encode(before.messages))
        await house.post("r2", state=state, messages=sent)
        await house.settled()
        assert len((await house.record())["citations"]) == 2

    asyncio.run(main())


# --- with everything in place -------------------------------------------------------------------------------


async def asked(app: App, thread: str, text: str) -> None:
    """A question to the librarian, and its answer to the end."""
    question = {"id": "u", "role": "user", "content": text}
    posted = {"threadId": thread, "runId": "r", "messages": [question]}
    answered = await app.ask("POST", "/agui", posted)
    assert b"RUN_FINISHED" in answered.body


def summary_in(message: dict[str, Any], kind: str) -> dict[str, int]:
    annotations: dict[str, Any] = message.get("annotations") or {}
    summary: dict[str, Any] = annotations.get("summary", {})
    return {name: group["total"] for name, group in summary.get(kind, {}).items()}


@pytest.mark.slow
def test_npm_client_watches_the_librarian(tmp_path: Path) -> None:
    """The answer as it is said, its citations, how many are verified; and one of its own, checked as well."""

    async def main() -> None:
        async with opened_app(tmp_path) as app, listening(app) as (_, port), node_ably() as node:
            await app.ask("POST", "/sources?name=returns.pdf", SOURCES["returns.pdf"])
            options = {
                "key": app.key, "endpoint": "localhost", "tls": False, "port": port, "clientId": "ann",
            }  # fmt: skip
            modes = ["PUBLISH", "SUBSCRIBE", "ANNOTATION_PUBLISH", "ANNOTATION_SUBSCRIBE"]
            await node.ask("open", "ann", options=options)
            await node.ask("listen", "ann", channel="ai:a%20b", options={"modes": modes})
            await node.ask("listen", "ann", channel="ai:a%20b", annotations=True)
            await asked(app, "a b", "What is the refund policy?")

            def settled(told: list[dict[str, Any]]) -> bool:
                last = [each["message"] for each in told if "message" in each][-1:]
                cited = sum(summary_in(last[0], CITE).values()) if last else 0
                return bool(cited) and summary_in(last[0], VERDICT) == {"verified": cited}

            told = await node.until(settled)
            messages = [each["message"] for each in told if "message" in each]
            said = [each for each in messages if each["action"] != "message.summary"]
            assert (said[0]["action"], said[0]["name"], said[0]["clientId"]) == (
                "message.create", "response", "librarian",
            )  # fmt: skip
            assert said[0]["extras"]["headers"] == {"threadId": "a b", "runId": "r", "messageId": "r-answer"}
            text = "".join(each["data"] for each in said)
            cites = [each["annotation"] for each in told if each.get("annotation", {}).get("type") == CITE]
            assert {(each["name"], each["clientId"]) for each in cites} == {("returns", "librarian")}
            for each in cites:
                start, end = each["data"]["startOffset"], each["data"]["endOffset"]
                assert text.encode("utf-16-le")[2 * start : 2 * end].decode("utf-16-le").strip()

            serial = messages[0]["serial"]
            mine = {"snippet": "Return labels are free inside the country.", "title": "returns.pdf"}
            await node.call(
                "ann",
                "ai:a%20b",
                "annotations.publish",
                serial,
                {"type": CITE, "name": "returns", "data": mine},
            )
            told = await node.until(
                lambda told: (
                    told[-1].get("annotation", {}).get("clientId") == "citewire"
                    and "annotation" in told[-1]["annotation"]["data"]
                )
            )
            assert told[-1]["annotation"]["name"] == "verified"
            state = (await app.ask("GET", "/threads/a%20b")).json["state"]
            assert mine["snippet"] in {each.get("snippet") for each in state["citations"]["r-answer"]}
            [group] = (await app.ask("GET", "/channels/ai%3Aa%2520b/citations")).json
            assert {each["verdict"]["status"] for each in group["citations"]} == {"verified"}
            with pytest.raises(AblyFailed) as refused:
                await node.call(
                    "ann", "ai:a%20b", "annotations.publish", serial, {"type": VERDICT, "name": "verified"}
                )
            assert refused.value.code == 40160

    asyncio.run(main())


@pytest.mark.slow
def test_pypi_client_watches_the_librarian(tmp_path: Path) -> None:
    async def main() -> None:
        async with opened_app(tmp_path, agent_name="lib") as app, listening(app) as (_, port):
            await app.ask("POST", "/sources?name=returns.pdf", SOURCES["returns.pdf"])
            client = AblyRealtime(app.key, endpoint=f"localhost:{port}", tls=False)
            messages, annotations = Told(), Told()
            channel = client.channels.get("ai:t", ChannelOptions(modes=list(ChannelMode)))
            await channel.subscribe(messages.add)
            await channel.annotations.subscribe(annotations.add)
            await asked(app, "t", "What is the refund policy?")
            told = await annotations.until(lambda told: {CITE, VERDICT} <= {each.type for each in told})
            assert {each.client_id for each in told} == {"lib", "citewire"}
            said = await messages.until(lambda told: VERDICT in _summary(told[-1]))
            assert [*_summary(said[-1])[VERDICT]] == ["verified"]
            assert said[0].extras["headers"]["messageId"] == "r-answer"
            await client.close()

    asyncio.run(main())


def _summary(message: Any) -> Any:
    return message.annotations.summary if message.annotations else {}


def test_a_thread_is_deleted_with_its_channel(tmp_path: Path) -> None:
    async def main() -> None:
        async with opened_app(tmp_path) as app:
            await asked(app, "t", "What is it?")
            await app.server.bridge.wait_idle()
            assert len((await app.ask("GET", "/channels/ai%3At/messages")).json) == 1
            await app.ask("DELETE", "/threads/t")
            assert (await app.ask("GET", "/channels/ai%3At/messages")).json == []

    asyncio.run(main())
