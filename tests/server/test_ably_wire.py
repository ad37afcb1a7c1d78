"""Ably's WebSocket without its clients: frames and connections."""

from __future__ import annotations

from base64 import b64encode
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from citewire.channels.annotation import AnnotationDraft
from citewire.channels.channels import HistoryQuery
from citewire.channels.message import Action, Message, MessageDraft, MessageVersion
from citewire.server.ably import codec
from citewire.server.ably.codec import AblyFrame, Flag, FrameAction
from citewire.server.ably.errors import AblyError
from citewire.server.ably.message_filter import MessageFilter
from citewire.server.ably.publish_rates import PublishRates
from citewire.server.access.capability import Capability
from support.ably_server import BOT, CHANNEL, CITE, Parts, packed, run
from support.ably_socket import Closed, Json, Socket

ALL = int(Flag.PUBLISH | Flag.SUBSCRIBE | Flag.ANNOTATION_PUBLISH | Flag.ANNOTATION_SUBSCRIBE)
both = pytest.mark.parametrize("form", ["json", "msgpack"])


@pytest.fixture
def parts(tmp_path: Path) -> Parts:
    return Parts(tmp_path)


# Frames


@pytest.mark.parametrize(
    ("sent", "is_packed", "kept"),
    [
        ({}, False, (None, None)),
        ({"data": "text"}, False, ("text", None)),
        ({"data": "{}", "encoding": "json"}, True, ("{}", "json")),
        ({"data": "AQI=", "encoding": "base64"}, False, (b"\1\2", None)),
        (
            {"data": "AQI=", "encoding": "utf-8/cipher+aes-128-cbc/base64"},
            False,
            (b"\1\2", "utf-8/cipher+aes-128-cbc"),
        ),
        ({"data": b"\1\2"}, True, (b"\1\2", None)),
        ({"data": {"a": [1]}}, False, ('{"a":[1]}', "json")),
        ({"data": ["é"]}, True, ('["é"]', "json")),
        ({"data": "", "encoding": ""}, False, ("", None)),
    ],
)
def test_data_as_it_is_kept(sent: Json, is_packed: bool, kept: tuple[Any, Any]) -> None:
    [draft] = codec.read_drafts(packed([sent], is_packed), packed=is_packed)
    assert (draft.data, draft.encoding) == kept
    [note] = codec.read_notes(packed(sent | {"type": "a"}, is_packed), packed=is_packed, about="s")
    assert (note.data, note.encoding, note.message_serial) == (*kept, "s")


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        ({"data": 5}, 40013),
        ({"data": True}, 40013),
        ({"data": {"a": 1}, "encoding": "utf-8"}, 40013),
        ({"data": "%%", "encoding": "base64"}, 40013),
        ({"extras": {"a": msgspec.msgpack.Ext(5, b"x")}}, 40013),
        ({"extras": [1]}, 40000),
        ({"action": 9}, 40000),
        ({"name": 1}, 40000),
        ("text", 40000),
    ],
)
def test_messages_that_are_refused(sent: Any, code: int) -> None:
    with pytest.raises(AblyError) as refused:
        codec.read_drafts(msgspec.msgpack.encode([sent]), packed=True)
    assert refused.value.ably == code


@pytest.mark.parametrize(
    "data", ["", "[]", "{", '{"action":"x"}', "[" * 100_000, b"", b"\xc1", b"\x81\xa6action\xa1\xff"]
)
def test_what_is_no_frame(data: str | bytes) -> None:
    with pytest.raises(AblyError):
        codec.read_frame(data)


@given(
    st.none() | st.text() | st.binary(),
    st.sampled_from([None, "json", "utf-8", "utf-8/cipher+aes-256-cbc"]),
    st.dictionaries(st.text(), st.none() | st.booleans() | st.text()),
    st.booleans(),
)
def test_a_message_is_the_same_in_both_forms(
    data: Any, encoding: str | None, extras: Json, is_packed: bool
) -> None:
    """What a server sends, sent back, is what it was: bytes as bytes, text as text."""
    message = Message(
        action=Action.CREATE,
        serial="s",
        timestamp=1,
        version=MessageVersion("s", 1),
        data=data,
        encoding=encoding,
        extras=extras,
    )
    frame = AblyFrame(action=FrameAction.MESSAGE, messages=[codec.sendable(message, packed=is_packed)])
    again = codec.read_frame(codec.write_frame(frame, packed=is_packed))
    [draft] = codec.read_drafts(again.messages, packed=is_packed)
    assert (draft.data, draft.encoding, draft.extras) == (data, encoding, extras)


def test_an_acknowledgement_says_its_number_also_when_that_is_nought() -> None:
    frame = AblyFrame(action=FrameAction.ACK, msg_serial=0, count=1, res=[codec.PublishResult(["s"])])
    assert (
        codec.write_frame(frame, packed=False)
        == '{"action":1,"msgSerial":0,"count":1,"res":[{"serials":["s"]}]}'
    )


# Connections


@both
def test_a_connection_from_its_beginning_to_its_end(parts: Parts, form: str) -> None:
    async def main() -> None:
        async with Socket(parts.realtime, key=parts.key, clientId="bot", format=form) as socket:
            details = socket.connected["connectionDetails"]
            assert socket.connected["action"] == FrameAction.CONNECTED
            assert (details["clientId"], details["maxMessageSize"]) == ("bot", 65536)
            socket.send(FrameAction.HEARTBEAT, id="ping")
            assert await socket.get() == {"action": 0, "id": "ping"}
            assert (await socket.attach(CHANNEL))["flags"] & Flag.SUBSCRIBE
            [serial] = await socket.publish(CHANNEL, 0, {"name": "response", "data": "The Danube"})
            message = await socket.next(FrameAction.MESSAGE)
            assert message["messages"][0]["serial"] == serial
            assert message["channelSerial"] == serial.removesuffix(":000")
            socket.send(FrameAction.DETACH, channel=CHANNEL)
            assert await socket.get() == {"action": FrameAction.DETACHED, "channel": CHANNEL}
            socket.send(FrameAction.CLOSE)
            assert await socket.get() == {"action": FrameAction.CLOSED}
            with pytest.raises(Closed):
                await socket.get()
            assert socket.close_code == 1000
        assert not len(parts.realtime)

    run(main())


def test_who_is_not_let_in(parts: Parts) -> None:
    past = parts.keyring.issue_token("app.key", Capability(), 1)
    named = parts.keyring.issue_token("app.key", Capability.of({"*": ["*"]}), 60, "ann")
    cases: list[tuple[dict[str, str], int]] = [
        ({}, 40101),
        ({"key": "app.key:wrong"}, 40101),
        ({"key": "app.other:wrong"}, 40101),
        ({"access_token": "nonsense"}, 40144),
        ({"accessToken": past[:-6] + "AAAAAA"}, 40144),
        ({"access_token": named, "clientId": "bob"}, 40102),
        ({"key": parts.key, "clientId": ""}, 40012),
        ({"key": parts.key, "clientId": "x" * 600}, 40012),
    ]

    async def main() -> None:
        for params, code in cases:
            async with Socket(parts.realtime, **params) as socket:
                assert (socket.connected["action"], socket.connected["error"]["code"]) == (
                    FrameAction.ERROR,
                    code,
                ), params
                with pytest.raises(Closed):
                    await socket.get()

    run(main())


@pytest.mark.parametrize(
    ("asked", "granted"),
    [
        ({}, Flag.PUBLISH | Flag.SUBSCRIBE | Flag.PRESENCE_SUBSCRIBE | Flag.ANNOTATION_PUBLISH),
        ({"flags": int(Flag.SUBSCRIBE)}, Flag.SUBSCRIBE),
        ({"flags": int(Flag.ANNOTATION_SUBSCRIBE)}, Flag.ANNOTATION_SUBSCRIBE),
        (
            {"flags": int(Flag.PUBLISH), "params": {"modes": "subscribe,annotation_subscribe"}},
            Flag.SUBSCRIBE | Flag.ANNOTATION_SUBSCRIBE,
        ),
    ],
)
def test_modes(parts: Parts, asked: Json, granted: Flag) -> None:
    async def main() -> None:
        async with Socket(parts.realtime, key=parts.key) as socket:
            assert (await socket.attach(CHANNEL, **asked))["flags"] == granted

    run(main())


@pytest.mark.parametrize(
    ("channel", "asked", "code"),
    [
        ("ai:rivers", {"flags": int(Flag.PUBLISH)}, 40160),
        ("other", {}, 40160),
        ("ai:rivers", {"params": {"modes": "everything"}}, 40003),
        ("ai:rivers", {"params": {"rewind": "soon"}}, 40003),
        ("ai:rivers", {"params": {"appendMode": "half"}}, 40003),
        ("ai:" + "x" * 600, {}, 40010),
    ],
)
def test_attachments_that_are_refused(parts: Parts, channel: str, asked: Json, code: int) -> None:
    """Of the channel only: the connection goes on."""
    token = parts.keyring.issue_token("app.key", Capability.of({"ai:*": ["subscribe"]}), 60)

    async def main() -> None:
        async with Socket(parts.realtime, access_token=token) as socket:
            refused = await socket.attach(channel, **asked)
            assert (refused["action"], refused["channel"], refused["error"]["code"]) == (
                FrameAction.ERROR,
                channel,
                code,
            )
            assert (await socket.attach(CHANNEL))["action"] == FrameAction.ATTACHED

    run(main())


@both
def test_frames_are_answered_in_order_and_once(parts: Parts, form: str) -> None:
    """Many at once, one of which is refused."""

    async def main() -> None:
        async with Socket(parts.realtime, key=parts.key, format=form) as socket:
            for number in range(20):
                channel = "other" if number == 7 else CHANNEL
                action = 1 if number == 7 else 0
                message = {"data": str(number), "action": action, "serial": "01794768614785-000@0:000"}
                socket.send(FrameAction.MESSAGE, channel=channel, msgSerial=number, messages=[message])
            answered: list[tuple[int, int]] = []
            while len(answered) < 20:
                frame = await socket.next(FrameAction.ACK, FrameAction.NACK)
                assert frame["action"] == FrameAction.NACK or len(frame["res"]) == frame["count"]
                answered += [(frame["msgSerial"] + at, frame["action"]) for at in range(frame["count"])]
            assert answered == [
                (number, FrameAction.NACK if number == 7 else FrameAction.ACK) for number in range(20)
            ]
            assert not await socket.rest()
        history = await parts.channels.history(CHANNEL, HistoryQuery(forwards=True))
        assert [message.data for message in history.items] == [
            str(number) for number in range(20) if number != 7
        ]

    run(main())


@pytest.mark.parametrize(
    ("channel", "action", "payload", "code"),
    [
        (
            "other",
            FrameAction.ANNOTATION,
            {"type": "a:total.v1", "messageSerial": "01794768614785-000@0:000"},
            93002,
        ),
        (
            CHANNEL,
            FrameAction.ANNOTATION,
            {"type": "a:total.v1", "messageSerial": "01794768614785-000@0:000"},
            40400,
        ),
        (CHANNEL, FrameAction.ANNOTATION, {"type": "a:total.v1", "messageSerial": "x"}, 40003),
        (
            CHANNEL,
            FrameAction.ANNOTATION,
            {"type": "a:other.v1", "messageSerial": "01794768614785-000@0:000"},
            40000,
        ),
        (CHANNEL, FrameAction.ANNOTATION, {"name": "no type"}, 40000),
        (CHANNEL, FrameAction.MESSAGE, {"data": "x" * 70_000}, 40009),
        (CHANNEL, FrameAction.MESSAGE, {"data": "x", "clientId": "*"}, 40012),
        (CHANNEL, FrameAction.MESSAGE, {"data": 1}, 40013),
        (":bad", FrameAction.MESSAGE, {"data": "x"}, 40010),
        (CHANNEL, FrameAction.PRESENCE, {}, 40000),
    ],
)
def test_frames_that_are_refused(
    parts: Parts, channel: str, action: FrameAction, payload: Json, code: int
) -> None:
    async def main() -> None:
        async with Socket(parts.realtime, key=parts.key) as socket:
            kind = "annotations" if action is FrameAction.ANNOTATION else "messages"
            socket.send(action, channel=channel, msgSerial=0, **{kind: [payload]})
            refused = await socket.done(0)
            assert (refused["action"], refused["error"]["code"]) == (FrameAction.NACK, code)

    run(main())


@pytest.mark.parametrize(
    "data", ["{", b"\x80", '{"action":15,"channel":"a"}', '{"action":10}', "x" * 600_000]
)
def test_what_ends_a_connection(parts: Parts, data: str | bytes) -> None:
    async def main() -> None:
        async with Socket(parts.realtime, key=parts.key) as socket:
            socket.send_raw(data)
            assert (await socket.get())["action"] == FrameAction.ERROR
            with pytest.raises(Closed):
                await socket.get()

    run(main())


def test_half_a_character_is_refused_and_no_more(parts: Parts) -> None:
    """As an answer has it that was cut within a pair of surrogates: the connection goes on."""

    async def main() -> None:
        async with Socket(parts.realtime, key=parts.key) as socket:
            half = r'"messages":[{"data":"\ud83d"}]'
            socket.send_raw(f'{{"action":15,"channel":"ai:rivers","msgSerial":0,{half}}}')
            assert (await socket.done(0))["error"]["code"] == 40013
            await socket.publish(CHANNEL, 1, {"data": "goes on"})

    run(main())


def test_what_is_not_known_is_ignored(parts: Parts) -> None:
    async def main() -> None:
        async with Socket(parts.realtime, key=parts.key, appendRollupWindow="0") as socket:
            socket.send_raw('{"action":99,"future":true}')
            assert not await socket.rest()

    run(main())


def test_attached_without_a_mode_one_may_not_publish(parts: Parts) -> None:
    async def main() -> None:
        async with Socket(parts.realtime, key=parts.key) as socket:
            await socket.attach(CHANNEL, flags=int(Flag.SUBSCRIBE))
            socket.send(FrameAction.MESSAGE, channel=CHANNEL, msgSerial=0, messages=[{"data": "x"}])
            assert (await socket.done(0))["error"]["code"] == 40165

    run(main())


def test_one_who_does_not_want_an_echo(parts: Parts) -> None:
    """Its own messages and annotations are left out; summaries are nobody's own."""

    async def main() -> None:
        async with Socket(parts.realtime, key=parts.key, echo="false", clientId="bot") as socket:
            await socket.attach(CHANNEL, flags=ALL)
            [serial] = await socket.publish(CHANNEL, 0, {"data": "mine"})
            note = {"type": CITE, "name": "a", "messageSerial": serial}
            socket.send(FrameAction.ANNOTATION, channel=CHANNEL, msgSerial=1, annotations=[note])
            await socket.done(1)
            await parts.channels.publish(CHANNEL, BOT, [MessageDraft(data="of others")])
            found: list[Json] = []
            while not any(
                each.get("data") == "of others" for frame in found for each in frame.get("messages", [])
            ):
                found.append(await socket.get())
            told = [each for frame in found for each in frame.get("messages", [])]
            assert [each["action"] for each in told] == [Action.SUMMARY, Action.CREATE]
            assert not any("annotations" in frame for frame in found)

    run(main())


def test_a_flood_is_refused_and_the_connection_lives(tmp_path: Path) -> None:
    """What goes beyond the rate gets a NACK each, in order, and nothing of it is kept."""
    now = [0.0]
    parts = Parts(tmp_path, rates=PublishRates(10, 1000, clock=lambda: now[0]))

    async def main() -> None:
        async with Socket(parts.realtime, key=parts.key) as socket:
            for number in range(30):
                frame = {"channel": CHANNEL, "msgSerial": number}
                socket.send(FrameAction.MESSAGE, **frame, messages=[{"data": str(number)}])
            answers = [await socket.next(FrameAction.ACK, FrameAction.NACK) for _ in range(11)]
            assert (answers[0]["action"], answers[0]["count"]) == (FrameAction.ACK, 20)
            assert [each["msgSerial"] for each in answers[1:]] == [*range(20, 30)]
            assert {each["error"]["code"] for each in answers[1:]} == {42911}
            async with Socket(parts.realtime, key=parts.key) as other:
                await other.publish(CHANNEL, 0, {"data": "of another"})
            now[0] += 0.1
            await socket.publish(CHANNEL, 30, {"data": "again"})
            assert len((await parts.channels.history(CHANNEL, HistoryQuery(limit=1000))).items) == 22

    run(main())


# Filters


def filtered(expression: str, channel: str = CHANNEL, params: str = "") -> str:
    return f"[filter={b64encode(expression.encode()).decode()}{params}]{channel}"


HEADED = Message(
    action=Action.CREATE,
    serial="s",
    timestamp=1,
    version=MessageVersion("s", 1),
    name="filtered",
    extras={"headers": {"number": 26095, "word": "Danube", "a-b": None, "list": ["x"]}},
)


@pytest.mark.parametrize(
    ("expression", "fits"),
    [
        ('name == `"filtered"` && headers.number == `26095`', True),
        ("name == 'other' || headers.number > `26000`", True),
        ("!(headers.number < `26000`) && headers.word != 'Rhine'", True),
        ("starts_with(headers.word, 'Dan') && contains(headers.list, 'x')", True),
        ('headers."a-b" == `null`', True),
        ("headers.number == `1`", False),
        ("headers.nothing == 'x'", False),
        ("name == `filtered`", True),
        ("headers.word && headers.number", True),
        ("headers.nothing", False),
        # What cannot be compared.
        ("starts_with(headers.number, 'x')", False),
        ("headers.word > `1`", False),
    ],
)
def test_what_fits_a_filter(expression: str, fits: bool) -> None:
    assert MessageFilter(expression).matches(HEADED) is fits
    assert not MessageFilter(f"({expression}) && headers.number == `26095`").matches(
        replace(HEADED, extras=None)
    )


@pytest.mark.parametrize(
    "expression",
    [
        "",
        "name ==",
        "x" * 1001,
        "(" * 500 + "name" + ")" * 499,
        "!" * 500 + "name",
        "[@,@]" + "|[@,@]" * 100,
        "headers.*",
        "to_string(@)",
        "sort_by(headers.list, &@)",
        "name[?@]",
        "name == `[[1]]`",
        "{a: name}",
        "unknown(name)",
        "name && " * 30 + "name",
    ],
)
def test_filters_that_are_refused(expression: str) -> None:
    with pytest.raises(AblyError) as caught:
        MessageFilter(expression)
    assert caught.value.ably == 40003


@given(st.text(max_size=60) | st.text("nameheaders.()[]|&!=<>`'\"@*, 01", max_size=60))
def test_any_text_is_a_filter_or_refused(expression: str) -> None:
    try:
        found = MessageFilter(expression)
    except AblyError:
        return
    assert found.matches(HEADED) in (True, False)


@both
def test_a_subscriber_of_some_messages(parts: Parts, form: str) -> None:
    """It gets those that fit, under the name it asked for, also of those before; no annotations of them."""

    async def main() -> None:
        name = filtered("headers.n > `1`", params="?rewind=10")
        drafts = [MessageDraft(data=str(n), name="x", extras={"headers": {"n": n}}) for n in range(4)]
        before = await parts.channels.publish(CHANNEL, BOT, drafts)
        async with Socket(parts.realtime, key=parts.key, format=form) as socket:
            attached = await socket.attach(name, flags=ALL)
            assert (attached["channel"], attached["flags"] & ALL) == (name, Flag.SUBSCRIBE)
            again = await socket.next(FrameAction.MESSAGE)
            assert (again["channel"], [each["data"] for each in again["messages"]]) == (name, ["2", "3"])
            await socket.attach(CHANNEL, flags=ALL)
            await parts.channels.publish(CHANNEL, BOT, drafts)
            await parts.channels.annotate(
                CHANNEL, BOT, [AnnotationDraft(message_serial=before[2], type="a:total.v1")]
            )
            for serial in before:
                await parts.channels.append(CHANNEL, BOT, serial, MessageDraft(data="+"))
            await parts.channels.publish(
                CHANNEL, BOT, [MessageDraft(data="end", extras={"headers": {"n": 9}})]
            )
            got: dict[str, list[str]] = {name: [], CHANNEL: []}
            while any("end" not in each for each in got.values()):
                frame = await socket.get()
                got[frame["channel"]] += [each.get("data", "") for each in frame.get("messages", [])]
            # An append to what it was shown when it attached is the rest only; to all else it is the whole.
            assert got[name] == ["2", "3", "+", "+", "end"]
            assert len(got[CHANNEL]) == 4 + 1 + 4 + 1
            await socket.drop()

    run(main())


def test_a_filter_shows_nothing_that_one_may_not_see(parts: Parts) -> None:
    key = parts.keyring.create(Capability.of({"b": ["subscribe"], "a": ["publish"]}), "app.some")

    async def main() -> None:
        async with Socket(parts.realtime, key=key) as socket:
            assert (await socket.attach(filtered("name", "b")))["flags"] & Flag.SUBSCRIBE
            assert (await socket.attach(filtered("name", "a")))["error"]["code"] == 40160
            assert (await socket.attach(filtered("name", "[x]b")))["error"]["code"] == 40160
            assert (await socket.attach("[filter=%]b"))["error"]["code"] == 40010
            assert (await socket.attach(filtered("name[", "b")))["error"]["code"] == 40003

    run(main())
