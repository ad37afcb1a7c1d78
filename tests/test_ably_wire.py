"""Ably's WebSocket without its clients: frames and connections."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ably_server import BOT, CHANNEL, CITE, Parts, packed, run
from ably_socket import Closed, Json, Socket
from citewire.channels.channels import History
from citewire.channels.message import Action, Draft, Message, Version
from citewire.server.ably import codec
from citewire.server.ably.codec import Act, Flag, Frame
from citewire.server.ably.errors import AblyError
from citewire.server.capability import Capability

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
    [draft] = codec.drafts(packed([sent], is_packed), packed=is_packed)
    assert (draft.data, draft.encoding) == kept
    [note] = codec.notes(packed(sent | {"type": "a"}, is_packed), packed=is_packed, about="s")
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
        codec.drafts(msgspec.msgpack.encode([sent]), packed=True)
    assert refused.value.ably == code


@pytest.mark.parametrize(
    "data", ["", "[]", "{", '{"action":"x"}', "[" * 100_000, b"", b"\xc1", b"\x81\xa6action\xa1\xff"]
)
def test_what_is_no_frame(data: str | bytes) -> None:
    with pytest.raises(AblyError):
        codec.read(data)


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
        version=Version("s", 1),
        data=data,
        encoding=encoding,
        extras=extras,
    )
    frame = Frame(action=Act.MESSAGE, messages=[codec.sendable(message, packed=is_packed)])
    again = codec.read(codec.written(frame, packed=is_packed))
    [draft] = codec.drafts(again.messages, packed=is_packed)
    assert (draft.data, draft.encoding, draft.extras) == (data, encoding, extras)


def test_an_acknowledgement_says_its_number_also_when_that_is_nought() -> None:
    frame = Frame(action=Act.ACK, msg_serial=0, count=1, res=[codec.Result(["s"])])
    assert (
        codec.written(frame, packed=False) == '{"action":1,"msgSerial":0,"count":1,"res":[{"serials":["s"]}]}'
    )


# Connections


@both
def test_a_connection_from_its_beginning_to_its_end(parts: Parts, form: str) -> None:
    async def main() -> None:
        async with Socket(parts.realtime, key=parts.key, clientId="bot", format=form) as socket:
            details = socket.connected["connectionDetails"]
            assert socket.connected["action"] == Act.CONNECTED
            assert (details["clientId"], details["maxMessageSize"]) == ("bot", 65536)
            socket.send(Act.HEARTBEAT, id="ping")
            assert await socket.get() == {"action": 0, "id": "ping"}
            assert (await socket.attach(CHANNEL))["flags"] & Flag.SUBSCRIBE
            [serial] = await socket.publish(CHANNEL, 0, {"name": "response", "data": "The Danube"})
            message = await socket.next(Act.MESSAGE)
            assert message["messages"][0]["serial"] == serial
            assert message["channelSerial"] == serial.removesuffix(":000")
            socket.send(Act.DETACH, channel=CHANNEL)
            assert await socket.get() == {"action": Act.DETACHED, "channel": CHANNEL}
            socket.send(Act.CLOSE)
            assert await socket.get() == {"action": Act.CLOSED}
            with pytest.raises(Closed):
                await socket.get()
            assert socket.close_code == 1000
        assert not len(parts.realtime)

    run(main())


def test_who_is_not_let_in(parts: Parts) -> None:
    past = parts.keyring.token("app.key", Capability(), 1)
    named = parts.keyring.token("app.key", Capability.of({"*": ["*"]}), 60, "ann")
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
                assert (socket.connected["action"], socket.connected["error"]["code"]) == (Act.ERROR, code), (
                    params
                )
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
    token = parts.keyring.token("app.key", Capability.of({"ai:*": ["subscribe"]}), 60)

    async def main() -> None:
        async with Socket(parts.realtime, access_token=token) as socket:
            refused = await socket.attach(channel, **asked)
            assert (refused["action"], refused["channel"], refused["error"]["code"]) == (
                Act.ERROR,
                channel,
                code,
            )
            assert (await socket.attach(CHANNEL))["action"] == Act.ATTACHED

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
                socket.send(Act.MESSAGE, channel=channel, msgSerial=number, messages=[message])
            answered: list[tuple[int, int]] = []
            while len(answered) < 20:
                frame = await socket.next(Act.ACK, Act.NACK)
                assert frame["action"] == Act.NACK or len(frame["res"]) == frame["count"]
                answered += [(frame["msgSerial"] + at, frame["action"]) for at in range(frame["count"])]
            assert answered == [(number, Act.NACK if number == 7 else Act.ACK) for number in range(20)]
            assert not await socket.rest()
        history = await parts.channels.history(CHANNEL, History(forwards=True))
        assert [message.data for message in history.items] == [
            str(number) for number in range(20) if number != 7
        ]

    run(main())


@pytest.mark.parametrize(
    ("channel", "action", "payload", "code"),
    [
        ("other", Act.ANNOTATION, {"type": "a:total.v1", "messageSerial": "01794768614785-000@0:000"}, 93002),
        (CHANNEL, Act.ANNOTATION, {"type": "a:total.v1", "messageSerial": "01794768614785-000@0:000"}, 40400),
        (CHANNEL, Act.ANNOTATION, {"type": "a:total.v1", "messageSerial": "x"}, 40003),
        (CHANNEL, Act.ANNOTATION, {"type": "a:other.v1", "messageSerial": "01794768614785-000@0:000"}, 40000),
        (CHANNEL, Act.ANNOTATION, {"name": "no type"}, 40000),
        (CHANNEL, Act.MESSAGE, {"data": "x" * 70_000}, 40009),
        (CHANNEL, Act.MESSAGE, {"data": "x", "clientId": "*"}, 40012),
        (CHANNEL, Act.MESSAGE, {"data": 1}, 40013),
        (":bad", Act.MESSAGE, {"data": "x"}, 40010),
        (CHANNEL, Act.PRESENCE, {}, 40000),
    ],
)
def test_frames_that_are_refused(parts: Parts, channel: str, action: Act, payload: Json, code: int) -> None:
    async def main() -> None:
        async with Socket(parts.realtime, key=parts.key) as socket:
            kind = "annotations" if action is Act.ANNOTATION else "messages"
            socket.send(action, channel=channel, msgSerial=0, **{kind: [payload]})
            refused = await socket.done(0)
            assert (refused["action"], refused["error"]["code"]) == (Act.NACK, code)

    run(main())


@pytest.mark.parametrize(
    "data", ["{", b"\x80", '{"action":15,"channel":"a"}', '{"action":10}', "x" * 600_000]
)
def test_what_ends_a_connection(parts: Parts, data: str | bytes) -> None:
    async def main() -> None:
        async with Socket(parts.realtime, key=parts.key) as socket:
            socket.send_raw(data)
            assert (await socket.get())["action"] == Act.ERROR
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
            socket.send(Act.MESSAGE, channel=CHANNEL, msgSerial=0, messages=[{"data": "x"}])
            assert (await socket.done(0))["error"]["code"] == 40165

    run(main())


def test_one_who_does_not_want_an_echo(parts: Parts) -> None:
    """Its own messages and annotations are left out; summaries are nobody's own."""

    async def main() -> None:
        async with Socket(parts.realtime, key=parts.key, echo="false", clientId="bot") as socket:
            await socket.attach(CHANNEL, flags=ALL)
            [serial] = await socket.publish(CHANNEL, 0, {"data": "mine"})
            note = {"type": CITE, "name": "a", "messageSerial": serial}
            socket.send(Act.ANNOTATION, channel=CHANNEL, msgSerial=1, annotations=[note])
            await socket.done(1)
            await parts.channels.publish(CHANNEL, BOT, [Draft(data="of others")])
            found: list[Json] = []
            while not any(
                each.get("data") == "of others" for frame in found for each in frame.get("messages", [])
            ):
                found.append(await socket.get())
            told = [each for frame in found for each in frame.get("messages", [])]
            assert [each["action"] for each in told] == [Action.SUMMARY, Action.CREATE]
            assert not any("annotations" in frame for frame in found)

    run(main())
