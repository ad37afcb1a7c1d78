"""What no client of Ably's wire may do: each is refused with its number, and nothing is lost."""

from __future__ import annotations

import asyncio
import json
import time
from base64 import b64encode
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode

import httpx2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect
from websockets.sync.connection import Connection

from citewire.channels.channels import HistoryQuery
from citewire.channels.message import PUBLISH_BYTES, MessageDraft
from citewire.server.ably.codec import FrameAction
from citewire.server.ably.connection import FRAME_BYTES
from citewire.server.access.capability import Capability
from support.ably_server import BOT, CHANNEL, CITE, Parts, packed, run
from support.ably_socket import Closed, Json, Socket
from support.clock import hurried, on_clock
from support.server_process import DEADLINE, Serving

# Those that Ably's clients know, and that a client can be to blame for.
CODES = {
    40000, 40003, 40006, 40009, 40010, 40012, 40013, 40031, 40032, 40101, 40102, 40104, 40105, 40142, 40144,
    40160, 40165, 40300, 40400, 42910, 42911, 80018, 90001, 90003, 90010, 93002,
}  # fmt: skip
NOBODY = "01794768614785-000@0:000"


@pytest.fixture
def parts(tmp_path: Path) -> Parts:
    return Parts(tmp_path)


@pytest.fixture(scope="module")
def used(tmp_path_factory: pytest.TempPathFactory) -> Parts:
    """A server to which much has happened before."""
    return Parts(tmp_path_factory.mktemp("used"))


def http(parts: Parts, token: str | None = None, form: str = "application/json") -> httpx2.AsyncClient:
    """A client without a socket, with a key or a token."""
    credential = f"Bearer {b64encode(token.encode()).decode()}" if token else f"Bearer {parts.key}"
    return httpx2.AsyncClient(
        transport=httpx2.ASGITransport(app=parts.app),
        base_url="http://localhost",
        headers={"authorization": credential, "content-type": form},
    )


async def data(parts: Parts, channel: str = CHANNEL) -> list[Any]:
    """That of all messages."""
    found, cursor = list[Any](), None
    while True:
        which = HistoryQuery(forwards=True, limit=1000, cursor=cursor)
        page = await parts.channels.history(channel, which)
        found += [message.data for message in page.items]
        if (cursor := page.next) is None:
            return found


# Who one is


@pytest.mark.parametrize("method", ["total", "multiple", "flag", "distinct", "unique"])
def test_annotations_of_nobody(parts: Parts, method: str) -> None:
    """Where each client counts once, one must be known; and what was to be kept with such a one is not."""
    token = parts.keyring.issue_token("app.key", Capability.of({"ai:*": ["annotation-publish"]}), 60)
    is_kept = method in {"total", "multiple"}

    async def main() -> None:
        [serial] = await parts.channels.publish(CHANNEL, BOT, [MessageDraft(data="text")])
        about = {"messageSerial": serial, "name": "a"}
        notes = [about | {"type": "a:total.v1"}, about | {"type": f"b:{method}.v1"}]
        async with Socket(parts.realtime, access_token=token) as socket:
            socket.send(FrameAction.ANNOTATION, channel=CHANNEL, msgSerial=0, annotations=notes)
            answer = await socket.done(0)
            assert answer.get("error", {}).get("code") == (None if is_kept else 40000)
        async with http(parts, token) as client:
            url = f"/channels/{CHANNEL}/messages/{serial}/annotations"
            response = await client.post(url, content=json.dumps(notes))
            assert response.json().get("error", {}).get("code") == (None if is_kept else 40000)
        kept = await parts.channels.annotations(CHANNEL, serial)
        assert len(kept.items) == (4 if is_kept else 0)

    run(main())


def test_a_token_that_is_over(tmp_path: Path) -> None:
    later = 0.0
    parts = Parts(tmp_path, lambda: time.time() + later)
    token = parts.keyring.issue_token("app.key", Capability.of({"*": ["*"]}), 60, "ann")

    async def main() -> None:
        nonlocal later
        async with Socket(parts.realtime, access_token=token) as socket:
            key = socket.key
        later = 100
        async with Socket(parts.realtime, access_token=token, resume=key) as socket:
            assert (socket.connected["action"], socket.connected["error"]["code"]) == (
                FrameAction.ERROR,
                40142,
            )
        async with http(parts, token) as client:
            refused = await client.post(f"/channels/{CHANNEL}/messages", content='{"data":"late"}')
            assert (refused.status_code, refused.headers["x-ably-errorcode"]) == (401, "40142")
        renewed = parts.keyring.issue_token("app.key", Capability.of({"*": ["*"]}), 60, "ann")
        async with Socket(parts.realtime, access_token=renewed, resume=key) as socket:
            assert socket.connected["connectionId"] == key.partition("!")[0]
        assert await data(parts) == []

    run(main())


def test_a_key_that_is_revoked(tmp_path: Path) -> None:
    """Those who are connected with it, or with a token of it, are let go; others are not."""

    async def main() -> None:
        parts = Parts(tmp_path)
        other = parts.keyring.create(name="app.other")
        token = parts.keyring.issue_token("app.other", Capability.of({"*": ["*"]}), 60)
        async with (
            Socket(parts.realtime, key=parts.key) as stays,
            Socket(parts.realtime, key=other) as one,
            Socket(parts.realtime, access_token=token) as two,
        ):
            parts.keyring.revoke("app.other")
            for socket in (one, two):
                refused = await hurried(asyncio.ensure_future(socket.next(FrameAction.ERROR)))
                assert refused["error"]["code"] == 40101
                await socket.task
            await stays.publish(CHANNEL, 0, {"data": "goes on"})

    on_clock(main())


# How much there is


@pytest.mark.parametrize("form", ["json", "msgpack"])
def test_the_largest_message(parts: Parts, form: str) -> None:
    """All that it has counts, also that of others in the same publish; one byte more is refused."""
    fits: list[Json] = [
        {"data": "x" * PUBLISH_BYTES},
        {"data": "ü" * (PUBLISH_BYTES // 2)},
        {"name": "ab", "data": "x" * (PUBLISH_BYTES - 2)},
        {"clientId": "ab", "data": "x" * (PUBLISH_BYTES - 2)},
    ]

    async def main() -> None:
        async with Socket(parts.realtime, key=parts.key, format=form) as socket:
            for number, message in enumerate(fits):
                more = message | {"data": message["data"] + "x"}
                for at, messages in enumerate(([message], [more], [message, {"data": "x"}])):
                    sent = {"channel": CHANNEL, "msgSerial": 3 * number + at, "messages": messages}
                    socket.send(FrameAction.MESSAGE, **sent)
                    answer = await socket.done(3 * number + at)
                    assert answer.get("error", {}).get("code") == (40009 if at else None)
        assert await data(parts) == [message["data"] for message in fits]

    run(main())


def test_thousands_of_channels(parts: Parts) -> None:
    """One connection is attached to a thousand, and publishes to any number; leaving one makes room."""
    names = [f"ai:{at}" for at in range(3000)]

    async def main() -> None:
        async with Socket(parts.realtime, key=parts.key) as socket:
            for number, name in enumerate(names):
                socket.send(FrameAction.MESSAGE, channel=name, msgSerial=number, messages=[{"data": name}])
            done = 0
            while done < len(names):
                done += (await socket.next(FrameAction.ACK))["count"]
            for name in names:
                attached = await socket.attach(name)
                assert attached.get("error", {}).get("code") == (None if name in names[:1000] else 90010), (
                    name
                )
            socket.send(FrameAction.DETACH, channel=names[0])
            await socket.next(FrameAction.DETACHED)
            assert (await socket.attach(names[-1]))["action"] == FrameAction.ATTACHED
            await parts.channels.publish(names[-1], BOT, [MessageDraft(data="heard")])
            heard = await socket.next(FrameAction.MESSAGE)
            assert (heard["channel"], heard["messages"][0]["data"]) == (names[-1], "heard")

    run(main())


def test_a_client_that_sends_and_does_not_listen(parts: Parts) -> None:
    """Nobody reads on for it; when it listens at last, all was kept once, and it is told so in order."""
    total = 5000

    async def main() -> None:
        async with Socket(parts.realtime, key=parts.key) as socket:
            socket.takes.clear()
            for number in range(total):
                socket.send(
                    FrameAction.MESSAGE, channel=CHANNEL, msgSerial=number, messages=[{"data": f"{number}"}]
                )
            async with Socket(parts.realtime, key=parts.key) as other:
                await other.publish("ai:other", 0, {"data": "is not held up"})
            assert len(await data(parts)) < total
            socket.takes.set()
            done = 0
            while done < total:
                frame = await socket.next(FrameAction.ACK, FrameAction.NACK)
                assert (frame["action"], frame["msgSerial"]) == (FrameAction.ACK, done)
                done += frame["count"]
        assert await data(parts) == [str(number) for number in range(total)]

    run(main())


class Stuck(Socket):
    """Takes no frames any more, but hears when it is left."""

    async def _take(self, message: Any) -> None:
        if message["type"] == "websocket.close":
            self.takes.set()
        await super()._take(message)


def test_a_slow_client_is_told_to_come_back(tmp_path: Path) -> None:
    """By the code of its end; all that it has not taken it gets then."""
    many = [str(number) for number in range(2000)]

    async def main() -> None:
        parts = Parts(tmp_path)
        async with Stuck(parts.realtime, key=parts.key) as socket:
            serial = (await socket.attach(CHANNEL))["channelSerial"]
            socket.takes.clear()
            for text in many:
                await parts.channels.publish(CHANNEL, BOT, [MessageDraft(data=text)])
            await hurried(socket.task)
            with pytest.raises(Closed):
                await socket.next(FrameAction.CLOSED)
            assert socket.close_code == 1012
        async with Socket(parts.realtime, key=parts.key, resume=socket.key) as again:
            await again.attach(CHANNEL, channelSerial=serial)
            heard = list[str]()
            while len(heard) < len(many):
                heard += [each["data"] for each in (await again.next(FrameAction.MESSAGE))["messages"]]
            assert heard == many

    on_clock(main())


# Garbage

_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)
_VALUE = _JSON | st.binary() | st.sampled_from([CHANNEL, NOBODY, CITE, 0, 1, 5, "", -1, 1 << 70, "[]x"])


def _mapping(*names: str) -> st.SearchStrategy[dict[str, Any]]:
    return st.dictionaries(st.sampled_from(names), _VALUE)


_MESSAGE = _mapping("action", "serial", "id", "name", "data", "encoding", "extras", "clientId", "version")
_NOTE = _mapping(
    "action", "messageSerial", "type", "name", "count", "data", "encoding", "id", "extras", "clientId"
)
_CARRIED = st.lists(_MESSAGE | _NOTE, max_size=3) | _MESSAGE | _NOTE | _VALUE


def _frame(action: int, frame: Json, carried: Json) -> Json:
    return {"action": action, "channel": CHANNEL, "msgSerial": 0} | frame | carried


_FRAME = st.builds(
    _frame,
    st.sampled_from([*map(int, FrameAction), 99]),
    _mapping("channel", "msgSerial", "flags", "channelSerial", "params", "auth", "id", "count", "action"),
    st.dictionaries(st.sampled_from(["messages", "annotations"]), _CARRIED),
)


def _written(value: Any, is_packed: bool) -> bytes:
    """As a client would write it; what has no such form is not sent."""
    try:
        return packed(value, is_packed)
    except (OverflowError, ValueError, TypeError):
        return b""


class Written(NamedTuple):
    """What is to be written in one form or the other."""

    value: Any


def _codes(frames: list[Json]) -> set[int]:
    return {frame["error"]["code"] for frame in frames if "error" in frame}


async def _frame_is_survived(parts: Parts, wire: str | bytes, is_packed: bool) -> None:
    form = {"format": "msgpack"} if is_packed else {}
    async with Socket(parts.realtime, key=parts.key, **form) as socket:
        socket.send_raw(wire)
        assert _codes(await socket.rest()) <= CODES
    async with Socket(parts.realtime, key=parts.key) as socket:
        await socket.publish(CHANNEL, 0, {"data": "goes on"})


@settings(max_examples=200)
@given(st.text() | st.binary() | _VALUE.map(lambda value: _written(value, True)))
def test_anything_for_a_frame(used: Parts, wire: str | bytes) -> None:
    run(_frame_is_survived(used, wire, isinstance(wire, bytes)))


@settings(max_examples=200)
@given(_FRAME, st.booleans())
def test_anything_in_a_frame(used: Parts, frame: Json, is_packed: bool) -> None:
    wire = _written(frame, is_packed)
    run(_frame_is_survived(used, wire if is_packed else wire.decode(), is_packed))


_CALLS = [
    ("POST", f"/channels/{CHANNEL}/messages"),
    ("PATCH", f"/channels/{CHANNEL}/messages/{NOBODY}"),
    ("POST", f"/channels/{CHANNEL}/messages/{NOBODY}/annotations"),
    ("POST", "/messages"),
    ("POST", "/keys/app.key/requestToken"),
]
_BODY: st.SearchStrategy[Any] = (
    _CARRIED
    | st.fixed_dictionaries({"channels": _VALUE, "messages": _CARRIED})
    | _mapping("keyName", "timestamp", "nonce", "ttl", "capability", "clientId", "mac")
)


@settings(max_examples=200)
@given(st.sampled_from(_CALLS), _BODY.map(Written) | st.binary(), st.booleans())
def test_anything_in_a_body(
    used: Parts, call: tuple[str, str], body: Written | bytes, is_packed: bool
) -> None:
    async def main() -> None:
        form = "application/x-msgpack" if is_packed else "application/json"
        content = body if isinstance(body, bytes) else _written(body.value, is_packed)
        async with http(used, form=form) as client:
            response = await client.request(*call, content=content)
            if response.status_code >= 300:
                assert int(response.headers["x-ably-errorcode"]) in CODES

    run(main())


_TEXT = st.text() | st.sampled_from([NOBODY, CHANNEL, "1", "*", "forwards", "9" * 15])


def _texts(*names: str) -> st.SearchStrategy[dict[str, str]]:
    return st.dictionaries(st.sampled_from(names), _TEXT)


@given(_texts("clientId", "resume", "recover", "format", "echo", "heartbeats", "v"))
def test_anything_in_an_address(used: Parts, params: dict[str, str]) -> None:
    async def main() -> None:
        async with Socket(used.realtime, key=used.key, **params) as socket:
            assert _codes([socket.connected]) <= CODES

    run(main())


# What is left of a path with these in it is another path.
_NAME = _TEXT.filter(lambda text: text not in {"", ".", ".."})


@settings(max_examples=200)
@given(
    _NAME,
    _NAME,
    st.sampled_from(["", "/{}", "/{}/versions", "/{}/annotations", "/{}/client-summary"]),
    _texts("limit", "start", "end", "direction", "cursor", "from_serial", "forClientId", "format"),
)
def test_anything_in_a_query(
    used: Parts, channel: str, serial: str, path: str, query: dict[str, str]
) -> None:
    async def main() -> None:
        async with http(used) as client:
            url = f"/channels/{quote(channel, safe='')}/messages{path.format(quote(serial, safe=''))}"
            response = await client.get(f"{url}?{urlencode(query)}")
            assert response.status_code == 200 or int(response.headers["x-ably-errorcode"]) in CODES

    run(main())


# A server of its own


def _socket(server: Serving) -> Connection:
    url = f"ws://127.0.0.1:{server.port}/?{urlencode({'key': server.key})}"
    return connect(url, proxy=None, open_timeout=DEADLINE)


def _done(socket: Connection, action: FrameAction, number: int, **frame: Any) -> Json:
    """The answer to a frame."""
    socket.send(json.dumps({"action": action, "channel": CHANNEL, "msgSerial": number, **frame}))
    while (answer := json.loads(socket.recv(DEADLINE)))["action"] not in (FrameAction.ACK, FrameAction.NACK):
        pass
    return answer


def _code(answer: Mapping[str, Any]) -> int | None:
    return answer.get("error", {}).get("code")


@pytest.mark.slow
def test_a_full_disk(tmp_path: Path) -> None:
    """Whoever publishes is told that it was not kept; sent again when there is room, it is kept once."""
    with Serving(tmp_path / "data") as server, server.client() as client, _socket(server) as socket:
        first = _done(socket, FrameAction.MESSAGE, 0, messages=[{"data": "before"}])
        [serial] = first["res"][0]["serials"]
        message = {"messages": [{"data": "while"}]}
        note = {"annotations": [{"messageSerial": serial, "type": CITE, "name": "a"}]}
        url = f"/channels/{CHANNEL}/messages"
        with server.full_disk():
            assert _code(_done(socket, FrameAction.MESSAGE, 1, **message)) == 50003
            assert _code(_done(socket, FrameAction.ANNOTATION, 2, **note)) == 50003
            refused = client.post(url, json={"data": "by REST"})
            assert (refused.status_code, refused.headers["x-ably-errorcode"]) == (503, "50003")
            assert [each["data"] for each in server.get(url)] == ["before"]
        assert _done(socket, FrameAction.MESSAGE, 1, **message)["action"] == FrameAction.ACK
        assert _done(socket, FrameAction.ANNOTATION, 2, **note)["action"] == FrameAction.ACK
        assert client.post(url, json={"data": "by REST"}).status_code == 201
        server.kill()
        server.start()
        found = server.get(url, direction="forwards")
        assert [each["data"] for each in found] == ["before", "while", "by REST"]
        assert found[0]["annotations"]["summary"][CITE]["a"]["total"] == 1


@pytest.mark.slow
def test_floods_and_frames_beyond_all_measure(tmp_path: Path) -> None:
    """What comes too fast is refused and not kept; what is too large ends its connection, and no other."""
    limits = ("--publish-rate", "1", "--key-publish-rate", "4")
    with Serving(tmp_path / "data", *limits) as server, server.client() as client, _socket(server) as socket:
        many = [{"data": str(at)} for at in range(3)]
        assert _code(_done(socket, FrameAction.MESSAGE, 0, messages=many)) is None
        assert _code(_done(socket, FrameAction.MESSAGE, 1, messages=[{"data": "too soon"}])) == 42911
        with _socket(server) as other:
            assert _code(_done(other, FrameAction.MESSAGE, 0, messages=[{"data": "fits"}] * 6)) is None
            other.send(" " * (FRAME_BYTES + 1))
            with pytest.raises(ConnectionClosed) as closed:
                _done(other, FrameAction.MESSAGE, 1)
            assert closed.value.rcvd
            assert closed.value.rcvd.code == 1009
        refused = client.post(f"/channels/{CHANNEL}/messages", json={"data": "too soon"})
        assert (refused.status_code, refused.headers["x-ably-errorcode"]) == (429, "42910")
        assert len(server.get(f"/channels/{CHANNEL}/messages")) == 9
        socket.ping().wait(DEADLINE)
