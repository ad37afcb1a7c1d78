"""What a client of Ably's WebSocket is told, also when it was away, and when it is left."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from citewire.channels.annotation import AnnotationAction, AnnotationDraft
from citewire.channels.channels import HistoryQuery
from citewire.channels.message import Action, MessageDraft
from citewire.server.ably.codec import Flag, FrameAction
from citewire.server.access.capability import FULL, Capability
from support.ably_server import BOT, CHANNEL, CITE, Parts, run
from support.ably_socket import Closed, Json, Socket
from support.clock import clock, hurried, on_clock

ALL = int(Flag.PUBLISH | Flag.SUBSCRIBE | Flag.ANNOTATION_PUBLISH | Flag.ANNOTATION_SUBSCRIBE)


@pytest.fixture
def parts(tmp_path: Path) -> Parts:
    return Parts(tmp_path)


def test_a_frame_that_comes_again_is_done_once(parts: Parts) -> None:
    """Also on another socket, and by another process over the same data."""

    async def main() -> None:
        async with Socket(parts.realtime, key=parts.key) as socket:
            first = await socket.publish(CHANNEL, 0, {"data": "once"})
            assert await socket.publish(CHANNEL, 0, {"data": "once"}) == first
            key, connection = socket.key, socket.connected["connectionId"]
        parts.restart()
        async with Socket(parts.realtime, key=parts.key, resume=key) as socket:
            assert socket.connected["connectionId"] == connection
            assert "error" not in socket.connected
            assert socket.key != key
            assert await socket.publish(CHANNEL, 0, {"data": "once"}) == first
        assert len((await parts.channels.history(CHANNEL, HistoryQuery())).items) == 1

    run(main())


@pytest.mark.parametrize("how", ["resume", "recover"])
def test_what_cannot_be_taken_up(parts: Parts, how: str) -> None:
    other = parts.keyring.create(name="app.other")

    async def main() -> None:
        async with Socket(parts.realtime, key=parts.key) as socket:
            key = socket.key
        for credential, shown, client in (
            (parts.key, "_____!fake-key", {}),
            (parts.key, "nothing", {}),
            (parts.key, key[:-1] + ("A" if key[-1] != "A" else "E"), {}),
            (parts.key, key, {"clientId": "another"}),
            (other, key, {}),
        ):
            async with Socket(parts.realtime, key=credential, **{how: shown}, **client) as again:
                assert again.connected["action"] == FrameAction.CONNECTED
                assert again.connected["error"]["code"] == 80018
                assert again.connected["connectionId"] != key.partition("!")[0]

    run(main())


def test_the_old_socket_of_a_connection_is_closed(parts: Parts) -> None:
    async def main() -> None:
        async with (
            Socket(parts.realtime, key=parts.key) as old,
            Socket(parts.realtime, key=parts.key, resume=old.key) as new,
        ):
            with pytest.raises(Closed):
                await old.get()
            await new.publish(CHANNEL, 0, {"data": "goes on"})
            assert len(parts.realtime) == 1

    run(main())


def test_a_channel_that_is_gone_cannot_be_taken_up(parts: Parts) -> None:
    async def main() -> None:
        async with Socket(parts.realtime, key=parts.key) as socket:
            await socket.publish(CHANNEL, 0, {"data": "old"})
            serial = (await socket.attach(CHANNEL))["channelSerial"]
            await parts.channels.drop(CHANNEL)
            assert (await socket.next(FrameAction.DETACHED))["error"]["code"] == 90003
            for lost in (serial, "nonsense"):
                again = await socket.attach(CHANNEL, channelSerial=lost)
                assert not again["flags"] & Flag.RESUMED
                assert again["error"]["code"] == 90003
                socket.send(FrameAction.DETACH, channel=CHANNEL)

    run(main())


_STEPS = st.lists(
    st.sampled_from(["publish", "append", "update", "cite", "take back", "cut", "connect", "read"]),
    max_size=30,
)


# The first append it hears of after the cut is all of the message, and so has the second in it.
@example(["publish", "read", "cut", "append", "cite", "append", "connect"], False, False)
@given(_STEPS, st.booleans(), st.booleans())
def test_a_reader_who_is_cut_off_sees_everything_once(
    steps: list[str], is_packed: bool, is_full: bool
) -> None:
    """However often, wherever: annotations once, in order, and messages and summaries as they stand."""

    async def main(folder: str) -> None:
        parts = Parts(Path(folder))
        reader = Reader(parts, is_packed, {"appendMode": "full"} if is_full else {})
        await reader.connect()
        serials: list[str] = []
        for at, step in enumerate(steps):
            match step:
                case "publish":
                    serials += await parts.channels.publish(CHANNEL, BOT, [MessageDraft(data=f"{at} ")])
                case "append" | "update" if serials:
                    edit = getattr(parts.channels, step)
                    await edit(CHANNEL, BOT, serials[at % len(serials)], MessageDraft(data=f"{at} "))
                case "cite" | "take back" if serials:
                    note = AnnotationDraft(
                        message_serial=serials[at % len(serials)],
                        type=CITE,
                        name="a",
                        action=AnnotationAction(step == "take back"),
                    )
                    await parts.channels.annotate(CHANNEL, BOT, [note])
                case "cut" | "connect" | "read":
                    await getattr(reader, step)()
                case _:
                    pass
        await reader.connect()
        await reader.read()
        await reader.cut()
        kept: list[str] = []
        for serial in serials:
            page = await parts.channels.annotations(CHANNEL, serial, 1000)
            kept += [each.serial for each in page.items]
            message = await parts.channels.message(CHANNEL, serial)
            assert reader.texts[serial] == message.data
            summary: Any = message.annotations.summary if message.annotations else {}
            assert reader.summaries.get(serial, {}) == summary
        assert reader.annotations == sorted(kept)

    with TemporaryDirectory() as folder:
        run(main(folder))


class Reader:
    """A client that keeps what an app would keep."""

    def __init__(self, parts: Parts, is_packed: bool, params: Json) -> None:
        self._parts, self._form, self._params = parts, "msgpack" if is_packed else "json", params
        self._resume: dict[str, str] = {}
        self._socket: Socket | None = None
        self._serial: str | None = None
        self.texts: dict[str, str] = {}
        self.summaries: dict[str, Any] = {}
        self.annotations: list[str] = []

    async def connect(self) -> None:
        if self._socket:
            return
        socket = self._socket = Socket(
            self._parts.realtime, key=self._parts.key, format=self._form, **self._resume
        )
        await socket.__aenter__()
        self._resume = {"resume": socket.key}
        socket.send(
            FrameAction.ATTACH, channel=CHANNEL, channelSerial=self._serial, flags=ALL, params=self._params
        )
        if self._serial is None:
            await self._hear(socket)

    async def read(self) -> None:
        """Up to a message that comes after all else, if it is connected."""
        if self._socket:
            [mark] = await self._parts.channels.publish(CHANNEL, BOT, [MessageDraft(data="mark")])
            while mark not in self.texts:
                await self._hear(self._socket)

    async def cut(self) -> None:
        if self._socket:
            await self._socket.drop()
        self._socket = None

    async def _hear(self, socket: Socket) -> None:
        frame = await socket.get()
        self._serial = socket.serials.get(CHANNEL, self._serial)
        for message in frame.get("messages", []):
            serial = message["serial"]
            if message["action"] == Action.APPEND:
                self.texts[serial] += message["data"]
            elif message["action"] != Action.SUMMARY:
                self.texts[serial] = message["data"]
            if "annotations" in message:
                self.summaries[serial] = message["annotations"]["summary"]
        self.annotations += [each["serial"] for each in frame.get("annotations", [])]


# What an attachment is told


async def texts(socket: Socket, number: int) -> list[tuple[int, str]]:
    """Actions and data of the next messages."""
    found: list[tuple[int, str]] = []
    while len(found) < number:
        frame = await socket.next(FrameAction.MESSAGE)
        found += [(each["action"], each.get("data")) for each in frame["messages"]]
    return found


def test_whoever_comes_later_first_gets_all_of_an_answer(parts: Parts) -> None:
    """Then only what is new; unless it wants all of it each time."""

    async def main() -> None:
        channels = parts.channels
        [serial] = await channels.publish(CHANNEL, BOT, [MessageDraft(name="response", data="The ")])
        async with (
            Socket(parts.realtime, key=parts.key) as late,
            Socket(parts.realtime, key=parts.key) as full,
        ):
            await late.attach(CHANNEL)
            await full.attach(CHANNEL, params={"appendMode": "full"})
            for piece in ("Danube ", "rises"):
                await channels.append(CHANNEL, BOT, serial, MessageDraft(data=piece))
                # Both have had it before there is more.
                expected = "The Danube " if piece == "Danube " else "The Danube rises"
                assert await texts(full, 1) == [(Action.UPDATE, expected)]
                told = (Action.UPDATE, expected) if piece == "Danube " else (Action.APPEND, piece)
                assert await texts(late, 1) == [told]

    run(main())


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ({"params": {"rewind": "2"}}, ["two!", "three"]),
        ({"params": {"rewind": 1}}, ["three"]),
        ({"params": {"rewind": "2m"}}, ["one", "two!", "three"]),
        ({"params": {"rewind": "2"}, "flags": int(Flag.ATTACH_RESUME)}, []),
        ({}, []),
    ],
)
def test_rewind(parts: Parts, given: Json, shown: list[str]) -> None:
    """The last messages as they stand, the oldest first; then what is new."""

    async def main() -> None:
        channels = parts.channels
        serials = await channels.publish(
            CHANNEL, BOT, [MessageDraft(data=data) for data in ("one", "two", "three")]
        )
        await channels.append(CHANNEL, BOT, serials[1], MessageDraft(data="!"))
        async with Socket(parts.realtime, key=parts.key) as socket:
            attached = await socket.attach(CHANNEL, **given)
            assert bool(attached["flags"] & Flag.HAS_BACKLOG) == bool(shown)
            await channels.publish(CHANNEL, BOT, [MessageDraft(data="four")])
            assert [data for _, data in await texts(socket, len(shown) + 1)] == [*shown, "four"]

    run(main())


def test_attaching_again_neither_loses_nor_repeats(parts: Parts) -> None:
    async def main() -> None:
        async with Socket(parts.realtime, key=parts.key) as socket:
            first = await socket.attach(CHANNEL)
            await parts.channels.publish(CHANNEL, BOT, [MessageDraft(data="one")])
            await texts(socket, 1)
            # It had not heard of the message when it sent this.
            again = await socket.attach(
                CHANNEL, channelSerial=first["channelSerial"], flags=int(Flag.SUBSCRIBE)
            )
            assert again["flags"] == Flag.SUBSCRIBE | Flag.RESUMED
            await parts.channels.publish(CHANNEL, BOT, [MessageDraft(data="two")])
            assert await texts(socket, 1) == [(Action.CREATE, "two")]

    run(main())


def test_annotations_that_come_together_have_one_summary(parts: Parts) -> None:
    """And one frame, with the last serial; the summary before it has none, so that a cut loses nothing."""

    async def main() -> None:
        [serial] = await parts.channels.publish(CHANNEL, BOT, [MessageDraft(data="text")])
        async with (
            Socket(parts.realtime, key=parts.key) as hears,
            Socket(parts.realtime, key=parts.key) as sums,
        ):
            await hears.attach(CHANNEL, flags=ALL)
            await sums.attach(CHANNEL)
            notes = [AnnotationDraft(message_serial=serial, type=CITE, name=name) for name in "abc"]
            last = (await parts.channels.annotate(CHANNEL, BOT, notes))[-1].removesuffix(":000")
            summary, raw = await hears.get(), await hears.get()
            assert "channelSerial" not in summary
            assert [*summary["messages"][0]["annotations"]["summary"][CITE]] == ["a", "b", "c"]
            assert ([each["name"] for each in raw["annotations"]], raw["channelSerial"]) == (
                ["a", "b", "c"],
                last,
            )
            assert (await sums.get()) == summary | {"channelSerial": last}

    run(main())


# Time


def test_a_token_that_ends(tmp_path: Path) -> None:
    """Its client is asked for another in time, and goes on with that; without one it ends."""

    async def main() -> None:
        ahead = time.time() - clock().time()
        parts = Parts(tmp_path, lambda: ahead + clock().time())
        capability = Capability.of({"ai:*": ["subscribe"]})
        token = parts.keyring.issue_token("app.key", capability, 60, "ann")
        async with Socket(parts.realtime, access_token=token, heartbeats="false") as socket:
            await socket.attach(CHANNEL)
            clock().leap(40)
            assert (await hurried(asyncio.ensure_future(socket.get())))["action"] == FrameAction.AUTH
            more = Capability.of({"ai:*": ["subscribe", "publish"]})
            renewed = parts.keyring.issue_token("app.key", more, 60, "ann")
            socket.send(FrameAction.AUTH, auth={"accessToken": renewed})
            assert (await socket.get())["connectionId"] == socket.connected["connectionId"]
            assert (await socket.get())["flags"] & Flag.PUBLISH
            await socket.publish(CHANNEL, 0, {"data": "now it may"})
            ended = await hurried(asyncio.ensure_future(socket.next(FrameAction.DISCONNECTED)))
            assert ended["error"]["code"] == 40142
            with pytest.raises(Closed):
                await socket.next(FrameAction.CLOSED)

    on_clock(main())


def test_nothing_is_taken_or_sent_once_a_token_has_ended(tmp_path: Path) -> None:
    """At once, whenever the connection was looked after last; also with a second, shorter token."""

    async def main() -> None:
        ahead = time.time() - clock().time()
        parts = Parts(tmp_path, lambda: ahead + clock().time())
        long, short = (parts.keyring.issue_token("app.key", FULL, seconds, "ann") for seconds in (60, 2))
        async with Socket(parts.realtime, access_token=long) as renewed:
            renewed.send(FrameAction.AUTH, auth={"accessToken": short})
            assert (await renewed.next(FrameAction.CONNECTED))["connectionId"] == renewed.connected[
                "connectionId"
            ]
            async with Socket(parts.realtime, access_token=short) as socket:
                await socket.publish(CHANNEL, 0, {"data": "in time"})
                clock().leap(2)
                socket.send(
                    FrameAction.MESSAGE, channel=CHANNEL, msgSerial=1, messages=[{"data": "too late"}]
                )
                for each in (socket, renewed):
                    async with asyncio.timeout(2):
                        ended = await each.next(FrameAction.DISCONNECTED)
                    assert ended["error"]["code"] == 40142
        assert len((await parts.channels.history(CHANNEL, HistoryQuery())).items) == 1

    on_clock(main())


@pytest.mark.parametrize(
    ("client", "capability", "code"),
    [("bob", {"*": ["*"]}, 40102), (None, {"*": ["*"]}, 40102), ("ann", {"ai:*": ["publish"]}, 40160)],
)
def test_a_token_that_does_not_do(parts: Parts, client: str | None, capability: Json, code: int) -> None:
    async def main() -> None:
        token = parts.keyring.issue_token("app.key", Capability.of({"ai:*": ["subscribe"]}), 60, "ann")
        async with Socket(parts.realtime, access_token=token) as socket:
            await socket.attach(CHANNEL)
            other = parts.keyring.issue_token("app.key", Capability.of(capability), 60, client)
            socket.send(FrameAction.AUTH, auth={"accessToken": other})
            assert (await socket.next(FrameAction.ERROR))["error"]["code"] == code

    run(main())


def test_heartbeats_come_while_nothing_else_does(tmp_path: Path) -> None:
    async def main() -> None:
        parts = Parts(tmp_path)
        async with (
            Socket(parts.realtime, key=parts.key) as socket,
            Socket(parts.realtime, key=parts.key, heartbeats="false") as silent,
        ):
            assert await hurried(asyncio.ensure_future(socket.get())) == {"action": FrameAction.HEARTBEAT}
            assert not await silent.rest()

    on_clock(main())


def test_a_client_that_takes_nothing_is_left(tmp_path: Path) -> None:
    """What it missed it gets when it comes back."""

    async def main() -> None:
        parts = Parts(tmp_path)
        async with Socket(parts.realtime, key=parts.key) as socket:
            serial = (await socket.attach(CHANNEL))["channelSerial"]
            socket.takes.clear()
            await parts.channels.publish(CHANNEL, BOT, [MessageDraft(data="missed")])
            await hurried(socket.task)
            assert not len(parts.realtime)
        async with Socket(parts.realtime, key=parts.key, resume=socket.key) as again:
            assert again.connected["connectionId"] == socket.connected["connectionId"]
            await again.attach(CHANNEL, channelSerial=serial)
            assert await texts(again, 1) == [(Action.CREATE, "missed")]

    on_clock(main())


def test_a_server_that_goes_down_says_so(parts: Parts) -> None:
    async def main() -> None:
        async with Socket(parts.realtime, key=parts.key) as socket:
            parts.realtime.close()
            assert (await socket.get())["action"] == FrameAction.DISCONNECTED
            with pytest.raises(Closed):
                await socket.get()
            assert socket.close_code == 1012
        async with Socket(parts.realtime, key=parts.key) as late:
            assert late.connected["action"] == FrameAction.DISCONNECTED

    run(main())
