"""The channels over real stores: what is published, changed, annotated, and read back."""

import asyncio
import random
import subprocess
import sys
from collections.abc import Awaitable, Callable, Coroutine
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from hypothesis.stateful import run_state_machine_as_test as run_machine

from citewire import codec
from citewire.channels.annotation import Annotation, AnnotationAction, AnnotationDraft
from citewire.channels.channels import START_SERIAL, Channels, HistoryQuery, ResultPage
from citewire.channels.errors import STATUS, ChannelError
from citewire.channels.fold import AnnotationEvent, MessageEvent, event_of, replay
from citewire.channels.hub import Hub
from citewire.channels.memory import MemoryStore
from citewire.channels.message import (
    AGGREGATED_MESSAGE_BYTES,
    PUBLISH_BYTES,
    Action,
    Message,
    MessageDraft,
    MessageOperation,
    Publisher,
)
from citewire.channels.rules import DEFAULT_RULES, Rule, Rules
from citewire.channels.sqlite import SqliteStore
from citewire.channels.store import (
    ChannelStore,
    CommittedChange,
    CursorLost,
    Decide,
    StoreError,
)
from citewire.channels.summary import METHODS

_T = TypeVar("_T")

CITES = "citations:multiple.v1"
BOT, ANNE, NOBODY = Publisher(client_id="bot"), Publisher(client_id="anne"), Publisher()


def channels_on(store: ChannelStore, **options: Any) -> Channels:
    """Channels with ids that count, from a clock that stands unless the store has another."""
    numbers = count()
    return Channels(store, Hub(store), ids=lambda: f"id{next(numbers)}", **options)


def with_channels(work: Callable[[Channels], Coroutine[Any, Any, _T]], **options: Any) -> _T:
    return asyncio.run(work(channels_on(MemoryStore(lambda: 1_794_768_614_785), **options)))


async def post(
    channels: Channels, data: str = "The Danube", who: Publisher = BOT, channel: str = "ai:x"
) -> str:
    [serial] = await channels.publish(channel, who, [MessageDraft(name="response", data=data)])
    return serial


def note(serial: str, type_: str = CITES, name: str | None = "a", **more: Any) -> AnnotationDraft:
    return AnnotationDraft(message_serial=serial, type=type_, name=name, **more)


def citing(serial: str, name: str = "a", client: str | None = None, **data: Any) -> AnnotationDraft:
    return note(serial, name=name, data=codec.encode(data).decode(), encoding="json", client_id=client)


async def all_of(ask: Callable[[str | None], Awaitable[ResultPage[_T]]]) -> list[_T]:
    """Every page of it."""
    page = await ask(None)
    items = [*page.items]
    while page.next:
        page = await ask(page.next)
        items += page.items
    return items


async def events_of(channels: Channels, channel: str = "ai:x") -> list[MessageEvent | AnnotationEvent]:
    return [event async for _, event in channels.export(channel)]


def summary(message: Message) -> Any:
    return message.annotations and message.annotations.summary


def test_an_answer_that_grows() -> None:
    """Subscribers get what is new, with all the rest of the message; readers get the whole."""

    async def run(channels: Channels) -> None:
        serial = await post(channels, "The Danube ")
        version = await channels.append(
            "ai:x", BOT, serial, MessageDraft(data="ends", extras={"headers": {"a": 1}})
        )
        whole = await channels.message("ai:x", serial)
        assert (whole.action, whole.data, whole.name) == (Action.UPDATE, "The Danube ends", "response")
        assert whole.version.serial == version > serial
        assert whole.version.timestamp > whole.timestamp
        _, told = await events_of(channels)
        assert isinstance(told, MessageEvent)
        assert (told.message.action, told.message.data) == (Action.APPEND, "ends")
        assert (told.message.name, told.message.extras) == ("response", {"headers": {"a": 1}})
        assert (told.message.version, told.message.timestamp) == (whole.version, whole.timestamp)
        assert told.message.id == whole.id == "id0:0"

    with_channels(run)


def test_edits_replace_what_they_give() -> None:
    async def run(channels: Channels) -> None:
        serial = await post(channels)
        await channels.annotate("ai:x", BOT, [note(serial)])
        about = MessageOperation(description="typo", metadata={"k": "v"})
        await channels.update("ai:x", ANNE, serial, MessageDraft(data="The Rhine", version=about))
        await channels.append("ai:x", ANNE, serial, MessageDraft(data=" ends"))
        await channels.delete("ai:x", ANNE, serial, MessageDraft())
        versions = (await channels.versions("ai:x", serial)).items
        assert [(each.action, each.data) for each in versions] == [
            (Action.CREATE, "The Danube"),
            (Action.UPDATE, "The Rhine"),
            (Action.DELETE, "The Rhine ends"),
        ]
        assert {each.client_id for each in versions} == {"bot"}
        update = versions[1].version
        assert (update.client_id, update.description, update.metadata) == ("anne", "typo", {"k": "v"})
        assert summary(versions[1])[CITES]["a"]["total"] == 1
        assert await channels.message("ai:x", serial) == versions[-1]

    with_channels(run)


@pytest.mark.parametrize(
    ("before", "more"),
    [
        (MessageDraft(data="a"), MessageDraft(data=b"b")),
        (MessageDraft(data=b"a"), MessageDraft(data="b")),
        (MessageDraft(data="{}", encoding="json"), MessageDraft(data="{}", encoding="json")),
        (MessageDraft(data="a"), MessageDraft(data="{}", encoding="json")),
        (
            MessageDraft(data=b"a", encoding="cipher+aes-128-cbc"),
            MessageDraft(data=b"b", encoding="cipher+aes-128-cbc"),
        ),
        (MessageDraft(data="a"), MessageDraft()),
    ],
)
def test_what_cannot_be_appended(before: MessageDraft, more: MessageDraft) -> None:
    async def run(channels: Channels) -> None:
        [serial] = await channels.publish("ai:x", BOT, [before])
        with pytest.raises(ChannelError) as refused:
            await channels.append("ai:x", BOT, serial, more)
        assert refused.value.ably == 40013

    with_channels(run)


def test_bytes_and_nothing_grow_too() -> None:
    async def run(channels: Channels) -> None:
        serials = await channels.publish("ai:x", BOT, [MessageDraft(data=b"a"), MessageDraft(name="empty")])
        for serial in serials:
            await channels.append("ai:x", BOT, serial, MessageDraft(data=b"b"))
        assert [(await channels.message("ai:x", serial)).data for serial in serials] == [b"ab", b"b"]

    with_channels(run)


def test_no_message_grows_for_ever() -> None:
    async def run(channels: Channels) -> None:
        serial, piece = await post(channels, ""), MessageDraft(data="x" * PUBLISH_BYTES)
        for _ in range(AGGREGATED_MESSAGE_BYTES // PUBLISH_BYTES):
            await channels.append("ai:x", BOT, serial, piece)
        with pytest.raises(ChannelError) as refused:
            await channels.append("ai:x", BOT, serial, MessageDraft(data="x"))
        assert (refused.value.ably, refused.value.status) == (40009, 413)

    with_channels(run)


SERIAL = "00000000000001-000@0:000"
"""Of no message."""


@pytest.mark.parametrize(
    ("code", "channel", "who", "drafts"),
    [
        (40000, "ai:x", BOT, []),
        (40000, "ai:x", BOT, [MessageDraft()] * 1001),
        (40000, "ai:x", BOT, [MessageDraft(action=Action.SUMMARY, serial=SERIAL)]),
        (40003, "ai:x", BOT, [MessageDraft(action=Action.UPDATE)]),
        (40003, "ai:x", BOT, [MessageDraft(action=Action.UPDATE, serial="x")]),
        (40009, "ai:x", BOT, [MessageDraft(data="x" * PUBLISH_BYTES, name="y")]),
        (40009, "ai:x", BOT, [MessageDraft(data="é" * (PUBLISH_BYTES // 4))] * 2 + [MessageDraft(data="x")]),
        (40009, "ai:x", BOT, [MessageDraft(extras={"headers": {"a": "x" * PUBLISH_BYTES}})]),
        (40010, "", BOT, [MessageDraft()]),
        (40010, ":x", BOT, [MessageDraft()]),
        (40010, "[meta]x", BOT, [MessageDraft()]),
        (40010, "a\nb", BOT, [MessageDraft()]),
        (40010, "x\0", BOT, [MessageDraft()]),
        (40010, "x" * 512, BOT, [MessageDraft()]),
        (40012, "ai:x", BOT, [MessageDraft(client_id="anne")]),
        (40012, "ai:x", NOBODY, [MessageDraft(client_id="anne")]),
        (40012, "ai:x", Publisher(client_id="*"), [MessageDraft(client_id="*")]),
        (
            40012,
            "ai:x",
            BOT,
            [MessageDraft(action=Action.DELETE, serial=SERIAL, version=MessageOperation(client_id="anne"))],
        ),
        (40013, "ai:x", BOT, [MessageDraft(data="\ud800")]),
        (40013, "ai:x", BOT, [MessageDraft(extras={"n": 10**30})]),
        (40031, "ai:x", BOT, [MessageDraft(id="")]),
        (40031, "ai:x", BOT, [MessageDraft(id="a:0"), MessageDraft(id="b:1")]),
        (40031, "ai:x", BOT, [MessageDraft(id="a:0"), MessageDraft()]),
        (40400, "ai:x", BOT, [MessageDraft(action=Action.UPDATE, serial=SERIAL)]),
        (40400, "ai:x", BOT, [MessageDraft(), MessageDraft(action=Action.APPEND, serial=SERIAL, data="x")]),
        (93002, "chat", BOT, [MessageDraft(), MessageDraft(action=Action.DELETE, serial=SERIAL)]),
    ],
)
def test_publishes_that_are_refused(
    code: int, channel: str, who: Publisher, drafts: list[MessageDraft]
) -> None:
    """With the code that Ably's clients know, and nothing is kept."""

    async def run(channels: Channels) -> None:
        with pytest.raises(ChannelError) as refused:
            await channels.publish(channel, who, drafts)
        assert (refused.value.ably, refused.value.status) == (code, STATUS[code])
        assert await channels.head("ai:x") is None

    with_channels(run)


@pytest.mark.parametrize(
    ("code", "who", "more"),
    [
        (40000, BOT, {"type_": "foo:bar.v9"}),
        (40000, BOT, {"name": None}),
        (40000, BOT, {"name": ""}),
        (40000, BOT, {"name": None, "action": AnnotationAction.DELETE}),
        (40000, BOT, {"name": "x" * 513}),
        (40000, BOT, {"type_": "x" * 513}),
        (40000, BOT, {"count": -1}),
        (40000, BOT, {"count": 10**12}),
        (40000, NOBODY, {"type_": "x:distinct.v1"}),
        (40000, NOBODY, {"type_": "x:unique.v1"}),
        (40000, NOBODY, {"type_": "x:flag.v1", "name": None}),
        (40000, Publisher(client_id="*"), {"type_": "x:flag.v1", "action": AnnotationAction.DELETE}),
        (40009, BOT, {"data": "x" * (PUBLISH_BYTES + 1)}),
        (40012, BOT, {"client_id": "anne"}),
        (40031, BOT, {"id": ""}),
    ],
)
def test_annotations_that_are_refused(code: int, who: Publisher, more: dict[str, Any]) -> None:
    """And the ones beside them with them."""

    async def run(channels: Channels) -> None:
        serial = await post(channels)
        with pytest.raises(ChannelError) as refused:
            await channels.annotate("ai:x", who, [note(serial), note(serial, **more)])
        assert refused.value.ably == code
        assert len(await events_of(channels)) == 1

    with_channels(run)


def test_annotations_come_all_or_none() -> None:
    async def run(channels: Channels) -> None:
        serial = await post(channels)
        for other, code in [(SERIAL, 40400), ("x", 40003)]:
            with pytest.raises(ChannelError) as refused:
                await channels.annotate("ai:x", BOT, [note(serial), note(other)])
            assert refused.value.ably == code
        assert summary(await channels.message("ai:x", serial)) is None
        await channels.annotate("ai:x", BOT, [note(serial), note(serial), note(serial, name="b")])
        counts = summary(await channels.message("ai:x", serial))[CITES]
        assert {name: each["total"] for name, each in counts.items()} == {"a": 2, "b": 1}

    with_channels(run)


def test_only_ones_own() -> None:
    async def run(channels: Channels) -> None:
        mine, nobodys = await post(channels), await post(channels, who=NOBODY)
        await channels.update(
            "ai:x", Publisher(client_id="bot", own_only=True), mine, MessageDraft(data="new")
        )
        for who, serial in [("anne", mine), ("bot", nobodys), (None, nobodys)]:
            with pytest.raises(ChannelError) as refused:
                await channels.delete("ai:x", Publisher(client_id=who, own_only=True), serial, MessageDraft())
            assert (refused.value.ably, refused.value.status) == (40160, 401)

    with_channels(run)


@pytest.mark.parametrize(
    ("channel", "mutable"),
    [("ai", True), ("ai:x", True), ("ai:x:y", True), ("aix", False), ("x:ai", False), ("", False)],
)
def test_rules_by_default(channel: str, mutable: bool) -> None:
    assert DEFAULT_RULES.of(channel).mutable is mutable


def test_the_nearest_rule_counts() -> None:
    rules = Rules({"*": Rule(mutable=True), "chat:*": Rule(mutable=False), "chat:x": Rule(mutable=True)})
    assert [rules.of(name).mutable for name in ("a", "chat", "chat:y", "chat:x")] == [
        True,
        False,
        False,
        True,
    ]


def test_rules_change_at_once() -> None:
    async def run(channels: Channels) -> None:
        serial = await post(channels, channel="chat")
        for work in (
            channels.annotate("chat", BOT, [note(serial)]),
            channels.append("chat", BOT, serial, MessageDraft(data="x")),
        ):
            with pytest.raises(ChannelError) as refused:
                await work
            assert refused.value.ably == 93002
        channels.rules = Rules({"chat": Rule(mutable=True)})
        await channels.annotate("chat", BOT, [note(serial)])

    with_channels(run)


def test_an_id_counts_once() -> None:
    """D9: alone, in a batch and beside new ones; messages and annotations have ids of their own."""

    async def run(channels: Channels) -> None:
        [first] = await channels.publish("ai:x", BOT, [MessageDraft(id="q:0", data="first")])
        again = await channels.publish(
            "ai:x", ANNE, [MessageDraft(id="q:0", data="other"), MessageDraft(id="q:1")]
        )
        assert again[0] == first
        [cited] = await channels.annotate("ai:x", BOT, [note(first, id="q:0")])
        assert await channels.annotate("ai:x", BOT, [note(first, id="q:0")]) == (cited,)
        message = await channels.message("ai:x", first)
        assert (message.data, message.id, summary(message)[CITES]["a"]["total"]) == ("first", "q:0", 1)
        # The id of an edit is that of its message, and no reason to leave it out.
        await channels.update("ai:x", BOT, first, MessageDraft(id="q:0", data="new"))
        assert (await channels.message("ai:x", first)).data == "new"
        assert len(await events_of(channels)) == 4

    with_channels(run)


def test_a_frame_counts_once() -> None:
    """D9: by connection and number; and an id that looks like a frame's is none."""

    async def run(channels: Channels) -> None:
        frame = Publisher(client_id="bot", connection_id="conn", msg_serial=0)
        serials = await channels.publish("ai:x", frame, [MessageDraft(data="a"), MessageDraft(data="b")])
        assert (
            await channels.publish("ai:x", frame, [MessageDraft(data="a"), MessageDraft(data="b")]) == serials
        )
        assert (await channels.message("ai:x", serials[1])).id == "conn:0:1"
        for number, other in [(1, "conn"), (0, "other")]:
            who = Publisher(client_id="bot", connection_id=other, msg_serial=number)
            edits = [MessageDraft(action=Action.APPEND, serial=serials[0], data="+")] * 2
            assert await channels.publish("ai:x", who, edits) == await channels.publish("ai:x", who, edits)
        await channels.publish("ai:x", BOT, [MessageDraft(id="conn:7:0")])
        seventh = Publisher(client_id="bot", connection_id="conn", msg_serial=7)
        assert len({*await channels.annotate("ai:x", seventh, [note(serials[0])] * 2)}) == 2
        assert (await channels.message("ai:x", serials[0])).data == "a++++"
        assert len(await events_of(channels)) == 2 + 4 + 1 + 2

    with_channels(run)


def test_what_subscribers_get_of_an_annotation() -> None:
    """The event always; the summary only when it changed, and not for a message that was deleted."""

    async def run(channels: Channels) -> None:
        serial = await post(channels)
        flag = note(serial, "x:flag.v1", None)
        for _ in range(2):
            await channels.annotate("ai:x", BOT, [flag])
        await channels.annotate("ai:x", BOT, [note(serial, "plain", None)])
        await channels.delete("ai:x", BOT, serial, MessageDraft())
        await channels.annotate("ai:x", ANNE, [flag])
        told = [event for event in await events_of(channels) if isinstance(event, AnnotationEvent)]
        assert [event.summary is not None for event in told] == [True, False, False, False]
        news = told[0].summary
        assert news is not None
        assert (news.action, news.serial, news.name, news.data) == (Action.SUMMARY, serial, "response", None)
        assert summary(news) == {"x:flag.v1": {"total": 1, "clientIds": ["bot"], "clipped": False}}
        assert summary(await channels.message("ai:x", serial)) == summary(news)
        listed = (await channels.annotations("ai:x", serial)).items
        assert listed == tuple(event.annotation for event in told)
        assert all(each.serial > serial for each in listed)

    with_channels(run)


def test_a_client_who_is_not_named_can_go_and_come_back() -> None:
    async def run(channels: Channels) -> None:
        serial = await post(channels)
        gone = note(serial, action=AnnotationAction.DELETE)
        for each in (note(serial, count=3), gone, gone, note(serial)):
            await channels.annotate("ai:x", BOT, [each])
        told = [event for event in await events_of(channels) if isinstance(event, AnnotationEvent)]
        assert [event.summary is not None for event in told] == [True, True, False, True]
        group = summary(await channels.message("ai:x", serial))[CITES]["a"]
        assert (group["total"], group["clientIds"], group["clipped"]) == (1, {}, True)
        mine = await channels.client_summary("ai:x", serial, "bot")
        assert mine[CITES]["a"]["clientIds"] == {"bot": 1}
        assert await channels.client_summary("ai:x", serial, "anne") == {}

    with_channels(run, shown=0)


TEXT = "🌊 Danube"


@pytest.mark.parametrize(
    ("data", "status", "unit"),
    [
        ({"startOffset": 3, "endOffset": 9}, "inside", "utf16"),
        ({"startIndex": 3, "endIndex": 9}, "inside", "utf16"),
        ({"startOffset": 2, "endOffset": 8, "unit": "codepoints"}, "inside", "codepoints"),
        ({"startOffset": 5, "endOffset": 11, "unit": "utf8"}, "inside", "utf8"),
        ({"startOffset": 3, "endOffset": 10}, "outside", "utf16"),
        ({"startOffset": 2, "endOffset": 9, "unit": "codepoints"}, "outside", "codepoints"),
        ({"startOffset": -1, "endOffset": 9}, "outside", "utf16"),
        ({"startOffset": 10**30, "endOffset": 10**31}, "outside", "utf16"),
        ({"startOffset": 9, "endOffset": 3}, "reversed", "utf16"),
        ({"startOffset": 1, "endOffset": 9}, "split", "utf16"),
        ({"startOffset": 1, "endOffset": 5, "unit": "utf8"}, "split", "utf8"),
        ({"startOffset": 3}, "unchecked", None),
        ({"startOffset": "3", "endOffset": "9"}, "unchecked", None),
        ({"startOffset": 3, "endOffset": 9, "unit": "words"}, "unchecked", None),
        ({"startOffset": True, "endOffset": 9}, "unchecked", None),
    ],
)
def test_offsets_are_looked_at(data: dict[str, Any], status: str, unit: str | None) -> None:
    """D10; and the data stays as it is."""

    async def run(channels: Channels) -> Annotation:
        sent = citing(await post(channels, TEXT), **data)
        await channels.annotate("ai:x", BOT, [sent])
        [kept] = (await channels.annotations("ai:x", sent.message_serial)).items
        assert (kept.data, kept.encoding) == (sent.data, "json")
        return kept

    kept = with_channels(run)
    assert kept.citewire is not None
    assert (kept.citewire.status, kept.citewire.unit) == (status, unit)
    assert kept.citewire.version == kept.message_serial


@pytest.mark.parametrize(
    ("message", "sent", "status"),
    [
        (MessageDraft(data="x"), {"data": b"..", "encoding": "json/utf-8/cipher+aes-256-cbc"}, "unchecked"),
        (MessageDraft(data=b"x", encoding="utf-8/cipher+aes-256-cbc"), {}, "unchecked"),
        (MessageDraft(data='"x"', encoding="json"), {}, "unchecked"),
        (MessageDraft(data="x"), {"type_": "likes:multiple.v1"}, None),
        (MessageDraft(data="x"), {"data": "[1]"}, None),
        (MessageDraft(data="x"), {"data": "{"}, None),
        (MessageDraft(data="x"), {"encoding": None}, None),
        (
            MessageDraft(data="x"),
            {"data": b'{"startOffset":0,"endOffset":1}', "encoding": "json/utf-8"},
            "inside",
        ),
    ],
)
def test_offsets_that_cannot_be_looked_at(
    message: MessageDraft, sent: dict[str, Any], status: str | None
) -> None:
    async def run(channels: Channels) -> Annotation:
        [serial] = await channels.publish("ai:x", BOT, [message])
        data = {"data": '{"startOffset":0,"endOffset":1}', "encoding": "json"} | sent
        await channels.annotate("ai:x", BOT, [note(serial, **data)])
        return (await channels.annotations("ai:x", serial)).items[0]

    kept = with_channels(run)
    assert (kept.citewire and kept.citewire.status) == status


def test_the_citations_of_a_channel() -> None:
    """By source, without those taken back or of deleted messages; as they fit the text as it now is."""

    async def run(channels: Channels) -> None:
        first, second, third = [await post(channels, text) for text in ("one", "two", "three")]
        danube = {"url": "https://rivers.example/danube", "title": "Danube facts"}
        ahead = citing(first, startOffset=4, endOffset=8, **danube)
        await channels.annotate("ai:x", BOT, [ahead, citing(first, "b")])
        await channels.annotate("ai:x", ANNE, [citing(second, **danube), citing(second, "gone")])
        await channels.annotate("ai:x", ANNE, [note(second, name="gone", action=AnnotationAction.DELETE)])
        await channels.annotate("ai:x", BOT, [citing(third), note(second, "likes:total.v1")])
        await channels.append("ai:x", BOT, first, MessageDraft(data=" and more"))
        await channels.delete("ai:x", BOT, third, MessageDraft())
        whole = await channels.citations("ai:x")
        assert whole.next is None
        assert [(each.source, each.title, len(each.citations)) for each in whole.items] == [
            ("https://rivers.example/danube", "Danube facts", 2),
            ("b", None, 1),
        ]
        [grown, plain] = whole.items[0].citations
        assert grown.annotation.citewire is not None
        assert grown.annotation.citewire.status == "outside"
        assert grown.placed is not None
        assert (grown.placed.status, plain.placed) == ("inside", None)
        paged = await all_of(lambda cursor: channels.citations("ai:x", 2, cursor))
        serials = sorted(each.annotation.serial for group in paged for each in group.citations)
        assert serials == sorted(each.annotation.serial for group in whole.items for each in group.citations)
        # A flag has no name to take it back by.
        await channels.annotate("ai:x", ANNE, [note(second, "citations:flag.v1", "c")])
        flagged = await channels.citations("ai:x")
        await channels.annotate(
            "ai:x", ANNE, [note(second, "citations:flag.v1", None, action=AnnotationAction.DELETE)]
        )
        assert [each.source for each in flagged.items] == ["https://rivers.example/danube", "b", "c"]
        assert (await channels.citations("ai:x")).items == whole.items
        # Cited anew after it was taken back, it counts again.
        await channels.annotate("ai:x", ANNE, [citing(second, "gone")])
        assert [each.source for each in (await channels.citations("ai:x")).items][-1] == "gone"

    with_channels(run)


@pytest.mark.parametrize("limit", [1, 2, 3, 7, 100])
def test_pages(limit: int) -> None:
    """Both ways through a history, and annotations the oldest first: each once, and no empty last page."""
    clock = count(1000)

    async def run() -> None:
        channels = channels_on(MemoryStore(lambda: next(clock)))
        serials = [await post(channels, str(at)) for at in range(6)]
        await channels.append("ai:x", BOT, serials[0], MessageDraft(data="!"))
        notes = [(await channels.annotate("ai:x", BOT, [note(serials[0])]))[0] for _ in range(6)]

        def history(**which: Any) -> Callable[[str | None], Awaitable[ResultPage[Message]]]:
            return lambda cursor: channels.history("ai:x", HistoryQuery(limit=limit, cursor=cursor, **which))

        async def seen(**which: Any) -> list[Any]:
            return [message.data for message in await all_of(history(**which))]

        assert await seen() == ["5", "4", "3", "2", "1", "0!"]
        assert await seen(forwards=True) == ["0!", "1", "2", "3", "4", "5"]
        assert await seen(start=1001, end=1003) == ["3", "2", "1"]
        assert await seen(start=1001, end=1003, forwards=True) == ["1", "2", "3"]
        assert await seen(until=serials[2]) == await seen(until=serials[2].removesuffix(":000"))
        assert await seen(until=serials[2]) == ["2", "1", "0!"]
        oldest = (await all_of(history()))[-1]
        assert summary(oldest)[CITES]["a"]["total"] == 6
        listed = await all_of(lambda cursor: channels.annotations("ai:x", serials[0], limit, cursor))
        assert [each.serial for each in listed] == notes
        assert [
            each.data for each in await all_of(lambda c: channels.versions("ai:x", serials[0], limit, c))
        ] == ["0"]

    asyncio.run(run())


def test_questions_that_are_refused() -> None:
    async def run(channels: Channels) -> None:
        serial = await post(channels)
        for code, ask in [
            (40003, channels.history("ai:x", HistoryQuery(limit=0))),
            (40003, channels.history("ai:x", HistoryQuery(limit=1001))),
            (40003, channels.history("ai:x", HistoryQuery(start=2, end=1))),
            (40003, channels.history("ai:x", HistoryQuery(start=-1))),
            (40003, channels.history("ai:x", HistoryQuery(cursor="x"))),
            (40003, channels.history("ai:x", HistoryQuery(until="x"))),
            (40003, channels.annotations("ai:x", serial, 1001)),
            (40003, channels.annotations("ai:x", serial, cursor="x")),
            (40003, channels.citations("ai:x", cursor="x")),
            (40003, channels.citations("ai:x", cursor=f"x:000:{serial}")),
            (40003, channels.message("ai:x", "x")),
            (40003, channels.cursor_after("ai:x", "x")),
            (40400, channels.message("ai:x", SERIAL)),
            (40400, channels.message("ai:none", serial)),
            (40400, channels.versions("ai:x", SERIAL)),
            (40400, channels.annotations("ai:x", SERIAL)),
            (40400, channels.client_summary("ai:x", SERIAL, "bot")),
            (40010, channels.history("[x]", HistoryQuery())),
            (40010, channels.head(":x")),
        ]:
            with pytest.raises(ChannelError) as refused:
                await ask
            assert refused.value.ably == code
        assert (await channels.history("ai:none", HistoryQuery())).items == ()
        assert (await channels.citations("ai:none")).items == ()

    with_channels(run)


def test_names_of_logs_never_meet() -> None:
    """No channel reaches a log that is not one of its own space."""

    async def run() -> None:
        store = MemoryStore()
        one, other = channels_on(store), channels_on(store, space="app:")
        await post(one, channel="run:x")
        assert await store.head("run:x") is None
        assert await other.head("run:x") is None

    asyncio.run(run())


def test_following_goes_on_from_a_serial() -> None:
    """With all that was missed, annotations and summaries too; from the start where there was nothing."""

    async def run(channels: Channels) -> None:
        assert await channels.cursor_after("ai:x", START_SERIAL) is None
        serial = await post(channels)
        [cited] = await channels.annotate("ai:x", BOT, [note(serial)])
        version = await channels.append("ai:x", BOT, serial, MessageDraft(data="!"))
        head = await channels.head("ai:x")
        assert head is not None
        assert head.serial == version
        for seen, missed in [(serial, 2), (cited, 1), (START_SERIAL, 3)]:
            after = await channels.cursor_after("ai:x", seen.removesuffix(":000"))
            rows = await anext(channels.follow("ai:x", after))
            assert len(rows) == missed
        assert [type(event_of(row)) for row in rows] == [MessageEvent, AnnotationEvent, MessageEvent]
        await channels.drop("ai:x")
        with pytest.raises(CursorLost):
            await channels.cursor_after("ai:x", version)

    with_channels(run)


def test_one_more_costs_the_same_however_many_there_are() -> None:
    """Counted in slots asked for and bytes written, for each method, on a message with 30 and with 300."""

    class Counting(MemoryStore):
        asked, written = 0, 0

        async def change(self, channel: str, keys: Any, decide: Decide[_T]) -> CommittedChange[_T]:
            def counting(values: Any, place: Any) -> Any:
                change = decide(values, place)
                self.written = sum(len(entry.data) for entry in change.entries)
                self.written += sum(len(key) + len(value or b"") for key, value in change.puts.items())
                return change

            self.asked = len(keys)
            return await super().change(channel, keys, counting)

    async def run(method: str, crowd: int) -> tuple[int, int]:
        store = Counting(lambda: 1)
        channels = channels_on(store, shown=2)
        serial = await post(channels)
        for at in range(crowd):
            who = Publisher(client_id=f"client {at:5}")
            await channels.annotate("ai:x", who, [note(serial, f"x:{method}", "a", id=f"{at:5}")])
        return store.asked, store.written

    for method in METHODS:
        few, many = (asyncio.run(run(method, crowd)) for crowd in (30, 300))
        assert few[0] == many[0] <= 4
        # The numbers in it have more digits.
        assert few[1] <= many[1] <= few[1] + 16


_FEW = ["u", "v", "w", None]
_TYPES = [f"citations:{method}" for method in METHODS] + ["plain"]
_texts = st.sampled_from(["", "a", "🌊", "é\n"])
_notes = st.fixed_dictionaries(
    {
        "type_": st.sampled_from(_TYPES),
        "name": st.sampled_from("ab"),
        "count": st.none() | st.integers(0, 3),
        "action": st.sampled_from(AnnotationAction),
        "id": st.none() | st.sampled_from("stu"),
    }
)


class Machine(RuleBasedStateMachine):
    """A channel in SQLite, closed and opened at any time, next to one in memory that is not."""

    @initialize()
    def begin(self) -> None:
        self.place = TemporaryDirectory()
        self.runner = asyncio.Runner()
        self.clock = 1000
        self.messages = 0
        self.plain = channels_on(MemoryStore(lambda: self.clock), shown=2)
        self.open()

    def open(self) -> None:
        self.store = self.runner.run(self.opened())
        self.kept = channels_on(self.store, shown=2)

    async def opened(self) -> SqliteStore:
        return SqliteStore(Path(self.place.name), lambda: self.clock)

    def both(self, work: Callable[[Channels], Coroutine[Any, Any, Any]]) -> None:
        """The same is done, or refused, in both."""
        results: list[object] = []
        for channels in (self.plain, self.kept):
            try:
                results.append([tick(each) for each in self.runner.run(work(channels))])
            except ChannelError as error:
                results.append(error.ably)
        assert results[0] == results[1]

    @rule(data=_texts, client=st.sampled_from(_FEW), step=st.integers(-2, 2))
    def publish(self, data: str, client: str | None, step: int) -> None:
        self.clock += step
        self.messages += 1
        self.both(
            lambda channels: channels.publish("ai:x", Publisher(client_id=client), [MessageDraft(data=data)])
        )

    @precondition(lambda self: self.messages)
    @rule(
        which=st.data(),
        edits=st.lists(st.tuples(st.sampled_from([1, 2, 5]), _texts | st.none()), min_size=1, max_size=3),
        frame=st.none() | st.integers(0, 2),
    )
    def edit(self, which: st.DataObject, edits: list[tuple[int, str | None]], frame: int | None) -> None:
        at = which.draw(st.integers(0, self.messages - 1))
        who = Publisher(client_id="u", connection_id="c", msg_serial=frame)

        async def work(channels: Channels) -> tuple[str, ...]:
            serial = await nth(channels, at)
            drafts = [MessageDraft(action=Action(action), serial=serial, data=data) for action, data in edits]
            return await channels.publish("ai:x", who, drafts)

        self.both(work)

    @precondition(lambda self: self.messages)
    @rule(
        which=st.data(),
        client=st.sampled_from(_FEW),
        many=st.lists(_notes, min_size=1, max_size=4),
    )
    def annotate(self, which: st.DataObject, client: str | None, many: list[dict[str, Any]]) -> None:
        at = which.draw(st.integers(0, self.messages - 1))

        async def work(channels: Channels) -> tuple[str, ...]:
            serial = await nth(channels, at)
            notes = [note(serial, **each) for each in many]
            return await channels.annotate("ai:x", Publisher(client_id=client), notes)

        self.both(work)

    @rule()
    def reopen(self) -> None:
        self.runner.run(self.store.close())
        self.open()

    @invariant()
    def the_log_explains_the_slots(self) -> None:
        """And each row has the summary that all up to it add up to."""
        events = self.runner.run(events_of(self.kept))
        slots = dict(self.runner.run(self.store.slots("channel:ai:x", "", "~")))
        folded = replay(events, shown=2)
        assert folded == {key: value for key, value in slots.items() if key[0] not in "if"}
        told = {
            each.summary.serial: summary(each.summary)
            for each in events
            if isinstance(each, AnnotationEvent) and each.summary
        }
        messages = self.runner.run(self.kept.history("ai:x", HistoryQuery(limit=1000))).items
        assert {each.serial: summary(each) for each in messages if each.annotations} == told

    def teardown(self) -> None:
        self.runner.run(self.store.close())
        self.runner.close()
        self.place.cleanup()


def tick(serial: str) -> str:
    """What two channels share of a serial."""
    return serial.partition("@")[0]


async def nth(channels: Channels, at: int) -> str:
    page = await channels.history("ai:x", HistoryQuery(limit=at + 1, forwards=True))
    return page.items[at].serial


@pytest.mark.slow
def test_the_log_explains_everything() -> None:
    """Whatever is done, in whatever order, and wherever the process ends in between."""
    run_machine(Machine, settings=settings(max_examples=60, stateful_step_count=20))


def test_all_at_once(tmp_path: Path) -> None:
    """Many who annotate, append and repeat themselves together: each counts once, and the log explains it."""

    async def run() -> None:
        store = SqliteStore(tmp_path)
        channels = channels_on(store, shown=3)
        serial = await post(channels, "")

        def work(at: int) -> Coroutine[Any, Any, object]:
            if at % 5 == 0:
                frame = Publisher(client_id="bot", connection_id="c", msg_serial=at // 10)
                return channels.append("ai:x", frame, serial, MessageDraft(data="x"))
            if at % 7 == 0:
                return channels.annotate("ai:x", NOBODY, [note(serial, "x:flag.v1")])
            who = Publisher(client_id=f"u{at % 9}")
            return channels.annotate("ai:x", who, [note(serial, id=f"{at // 2}")])

        done = await asyncio.gather(*(work(at) for at in range(400)), return_exceptions=True)
        assert {type(each) for each in done} == {str, tuple, ChannelError}
        message = await channels.message("ai:x", serial)
        assert message.data == "x" * 40
        ids = {at // 2 for at in range(400) if at % 5 and at % 7}
        group = summary(message)[CITES]["a"]
        assert (group["total"], group["totalClientIds"], len(group["clientIds"])) == (len(ids), 9, 3)
        slots = dict(await store.slots("channel:ai:x", "", "~", 10_000))
        folded = replay(await events_of(channels), shown=3)
        assert folded == {key: value for key, value in slots.items() if key[0] not in "if"}
        await store.close()

    asyncio.run(run())


class Failing(MemoryStore):
    """A store that keeps what it then says it could not."""

    async def change(self, channel: str, keys: Any, decide: Decide[_T]) -> CommittedChange[_T]:
        await super().change(channel, keys, decide)
        raise StoreError("who knows")


def test_who_is_not_sure_may_ask_again() -> None:
    """With its id, or in its frame."""

    async def run() -> None:
        channels = channels_on(Failing())
        for who, draft in [
            (BOT, MessageDraft(id="a")),
            (Publisher(connection_id="c", msg_serial=0), MessageDraft()),
        ]:
            for _ in range(3):
                with pytest.raises(StoreError):
                    await channels.publish("ai:x", who, [draft])
        assert len(await events_of(channels)) == 2

    asyncio.run(run())


# Four lanes annotate one message, each from where the last process was heard to be, and say what is
# acknowledged.
_LANES = 4
_PUBLISHER = """
import asyncio, pathlib, sys
from citewire.channels.annotation import AnnotationDraft
from citewire.channels.channels import Channels
from citewire.channels.hub import Hub
from citewire.channels.message import MessageDraft, Publisher
from citewire.channels.sqlite import SqliteStore

async def lane(channels, serial, lane, k):
    while True:
        who = Publisher(client_id=f"client {lane}")
        kind, name = "citations:multiple.v1", f"{lane}.{k}"
        notes = [AnnotationDraft(message_serial=serial, type=kind, name="a", id=name)]
        [kept] = await channels.annotate("ai:x", who, notes)
        print(lane, k, kept, flush=True)
        k += 1

async def main():
    store = SqliteStore(pathlib.Path(sys.argv[1]))
    channels = Channels(store, Hub(store), shown=2)
    [serial] = await channels.publish("ai:x", Publisher(), [MessageDraft(id="answer", data="text")])
    await asyncio.gather(*(lane(channels, serial, i, int(k)) for i, k in enumerate(sys.argv[2:])))

asyncio.run(main())
"""


def _kill_after(folder: Path, starts: list[int], lines: int) -> list[tuple[int, int, str]]:
    """Kill a publisher after so many acknowledgements; all it made, those still in the pipe too."""
    command = [sys.executable, "-c", _PUBLISHER, str(folder), *map(str, starts)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as publisher:
        assert publisher.stdout
        heard = [publisher.stdout.readline() for _ in range(lines)]
        publisher.kill()
        heard += publisher.stdout.readlines()
    said = [line.split() for line in heard if line.endswith("\n")]
    return [(int(lane), int(k), serial) for lane, k, serial in said]


@pytest.mark.slow
def test_kill_nine(tmp_path: Path) -> None:
    """Killed at random points: each acknowledged annotation is there once, and counts once."""
    chance = random.Random(7)
    acknowledged: dict[tuple[int, int], str] = {}
    starts = [0] * _LANES
    for _ in range(12):
        for lane, k, serial in _kill_after(tmp_path, starts, chance.randrange(80)):
            assert acknowledged.setdefault((lane, k), serial) == serial
            starts[lane] = k
        asyncio.run(_check_kept(tmp_path, acknowledged))
    assert len(acknowledged) > 200


async def _check_kept(folder: Path, acknowledged: dict[tuple[int, int], str]) -> None:
    store = SqliteStore(folder)
    channels = channels_on(store)
    if await channels.head("ai:x"):
        events = await events_of(channels)
        notes = [event.annotation for event in events if isinstance(event, AnnotationEvent)]
        kept = {each.id: each.serial for each in notes}
        assert len(kept) == len(notes)
        assert {f"{lane}.{k}": serial for (lane, k), serial in acknowledged.items()}.items() <= kept.items()
        slots = dict(await store.slots("channel:ai:x", "", "~", 10_000))
        assert replay(events, shown=2) == {key: slots[key] for key in slots if key[0] not in "if"}
        [message] = (await channels.history("ai:x", HistoryQuery())).items
        if notes:
            assert summary(message)[CITES]["a"]["total"] == len(notes)
    await store.close()
