"""Ably's REST calls without its clients, tokens, and the sandbox."""

from __future__ import annotations

import hmac
import json
import time
from base64 import b64encode
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx2
import msgspec
import pytest

from citewire.channels.annotation import Annotation, AnnotationDraft
from citewire.channels.channels import HistoryQuery
from citewire.channels.fold import AnnotationEvent, MessageEvent, replay
from citewire.channels.message import Action, Message, MessageDraft, Publisher
from citewire.server.ably.codec import Flag, FrameAction
from citewire.server.ably.publish_rates import PublishRates
from citewire.server.access.capability import Capability
from support.ably_server import BOT, CHANNEL, CITE, Parts, packed, run
from support.ably_socket import Json, Socket

both = pytest.mark.parametrize("form", ["json", "msgpack"])


@pytest.fixture
def parts(tmp_path: Path) -> Parts:
    return Parts(tmp_path)


@asynccontextmanager
async def http(
    parts: Parts, form: str = "json", key: str | None = None
) -> AsyncGenerator[httpx2.AsyncClient]:
    media = "application/x-msgpack" if form == "msgpack" else "application/json"
    auth = "Basic " + b64encode((key or parts.key).encode()).decode()
    headers = {"authorization": auth, "accept": media, "content-type": media}
    transport = httpx2.ASGITransport(app=parts.app)
    async with httpx2.AsyncClient(
        transport=transport, base_url="http://localhost:8787", headers=headers
    ) as client:
        yield client


def value(response: httpx2.Response) -> Any:
    is_packed = response.headers["content-type"] == "application/x-msgpack"
    return (msgspec.msgpack.decode if is_packed else msgspec.json.decode)(response.content)


@both
def test_rest_calls(parts: Parts, form: str) -> None:
    """Publish, read, edit, annotate and read back, in one form or the other."""

    async def main() -> None:
        async with http(parts, form) as client:
            is_packed = form == "msgpack"
            url = f"/channels/{quote(CHANNEL, safe='')}/messages"
            body = {"name": "response", "data": "The Danube"}
            made = await client.post(url, content=packed(body, is_packed))
            assert made.status_code == 201
            [serial] = value(made)["serials"]
            about = f"{url}/{quote(serial, safe='')}"
            for action, data in ((5, " rises"), (1, "The Danube")):
                edited = await client.patch(
                    about, content=packed({"action": action, "data": data}, is_packed)
                )
                assert (edited.status_code, [*value(edited)]) == (200, ["versionSerial"])
            binary = b"\1\2" if is_packed else "AQI="
            note = {"type": CITE, "name": "a", "clientId": "bot", "data": binary}
            note |= {} if is_packed else {"encoding": "base64"}
            noted = await client.post(about + "/annotations", content=packed([note], is_packed))
            assert (noted.status_code, len(value(noted)["serials"])) == (201, 1)

            message = value(await client.get(about))
            assert (message["data"], message["action"]) == ("The Danube", Action.UPDATE)
            assert message["annotations"]["summary"][CITE]["a"]["clientIds"] == {"bot": 1}
            assert value(await client.get(url)) == [message]
            assert [each["action"] for each in value(await client.get(about + "/versions"))] == [0, 1]
            [listed] = value(await client.get(about + "/annotations"))
            assert {name: listed.get(name) for name in note} == note
            for_bot = value(await client.get(about + "/client-summary?forClientId=bot"))
            assert for_bot[CITE]["a"]["clipped"] is True
            assert value(await client.get(f"/channels/{CHANNEL}/presence")) == []
            assert abs(value(await client.get("/time"))[0] - time.time() * 1000) < 60_000

    run(main())


def test_pages(parts: Parts) -> None:
    """Each link is a header of its own, in the one form that clients take; the last page has no next."""

    async def main() -> None:
        await parts.channels.publish("a/b %:c", BOT, [MessageDraft(data=str(at)) for at in range(5)])
        async with http(parts) as client:
            url = f"/channels/{quote('a/b %:c', safe='')}/"
            query, found = "messages?limit=2&direction=forwards&untilAttach=false", list[str]()
            while query:
                page = await client.get(url + query)
                found += [message["data"] for message in value(page)]
                links = dict(link.rsplit("; ", 1)[::-1] for link in page.headers.get_list("link"))
                assert links['rel="first"'] == "<./messages?limit=2&direction=forwards>"
                query = links.get('rel="next"', "").strip("<>./")
            assert found == ["0", "1", "2", "3", "4"]
            backwards = value(await client.get(url + "history?limit=1"))
            assert [message["data"] for message in backwards] == ["4"]

    run(main())


@pytest.mark.parametrize(
    ("method", "path", "body", "code", "status"),
    [
        ("GET", "/channels/ai:x/messages/01794768614785-000@0:000", None, 40400, 404),
        ("GET", "/channels/ai:x/messages/nonsense", None, 40003, 400),
        ("GET", "/channels/ai:x/messages?limit=1001", None, 40003, 400),
        ("GET", "/channels/ai:x/messages?limit=many", None, 40003, 400),
        ("GET", "/channels/ai:x/messages?direction=up", None, 40003, 400),
        ("GET", "/channels/ai:x/messages?cursor=x", None, 40003, 400),
        (
            "GET",
            "/channels/ai:x/messages/01794768614785-000@0:000/client-summary?forClientId=*",
            None,
            40003,
            400,
        ),
        ("POST", "/channels/ai:x/messages", [], 40000, 400),
        ("POST", "/channels/ai:x/messages", "text", 40000, 400),
        ("POST", "/channels/ai:x/messages", {"data": "x" * 70_000}, 40009, 413),
        ("POST", "/channels/ai:x/messages", [{"id": "a"}, {"id": "b"}], 40031, 400),
        ("POST", "/channels/ai:x/messages", {"connectionKey": "a!b"}, 40006, 400),
        ("POST", "/channels/%5Bx/messages", {"data": "x"}, 40010, 400),
        ("POST", "/channels/%5Bfilter=eA==%5Dx/messages", {"data": "x"}, 40010, 400),
        ("GET", "/channels?by=name", None, 40003, 400),
        ("GET", "/channels?limit=0", None, 40003, 400),
        ("GET", "/channels/ai:x/export?after=x", None, 40000, 400),
        ("GET", "/channels/ai:x/export?after=x:1", None, 90003, 404),
        ("GET", "/stats", None, 40400, 404),
        ("PATCH", "/channels/ai:x/messages/01794768614785-000@0:000", {"data": "no action"}, 40000, 400),
        ("PATCH", "/channels/x/messages/01794768614785-000@0:000", {"action": 1, "data": "a"}, 93002, 400),
        (
            "POST",
            "/channels/ai:x/messages/01794768614785-000@0:000/annotations",
            {"type": "a:b.v1"},
            40000,
            400,
        ),
    ],
)
def test_calls_that_are_refused(
    parts: Parts, method: str, path: str, body: Any, code: int, status: int
) -> None:
    async def main() -> None:
        async with http(parts) as client:
            refused = await client.request(method, path, content=None if body is None else json.dumps(body))
            error = value(refused)["error"]
            assert (error["code"], error["statusCode"], refused.status_code) == (code, status, status)
            assert refused.headers["x-ably-errorcode"] == str(code)
            assert refused.headers["x-ably-errormessage"]

    run(main())


@pytest.mark.parametrize(
    ("method", "path", "needs"),
    [
        ("POST", "/channels/ai:x/messages", "publish"),
        ("GET", "/channels/ai:x/messages", "history"),
        ("GET", "/channels/ai:x/messages/{}", "history"),
        ("PATCH", "/channels/ai:x/messages/{}", "message-update-any"),
        ("GET", "/channels/ai:x/messages/{}/versions", "history"),
        ("GET", "/channels/ai:x/messages/{}/annotations", "history"),
        ("POST", "/channels/ai:x/messages/{}/annotations", "annotation-publish"),
        ("GET", "/channels/ai:x/messages/{}/client-summary?forClientId=a", "subscribe"),
        ("GET", "/channels/ai:x/citations", "history"),
        ("GET", "/channels/ai:x/export", "history"),
        ("GET", "/channels/ai:x/presence", "presence"),
        ("GET", "/channels/ai:x", "channel-metadata"),
    ],
)
def test_what_each_call_needs(parts: Parts, method: str, path: str, needs: str) -> None:
    """With that alone it is done, with everything else it is refused."""
    every = ["publish", "subscribe", "history", "presence", "channel-metadata", "annotation-publish"]
    every += ["annotation-subscribe", "message-update-any", "message-update-own", "message-delete-any"]
    left = [
        each
        for each in every
        if each != needs and not (needs.endswith("-any") and each == needs[:-3] + "own")
    ]
    able = parts.keyring.create(Capability.of({"ai:*": [needs]}), "app.able")
    unable = parts.keyring.create(Capability.of({"ai:*": left, "other": ["*"]}), "app.unable")

    async def main() -> None:
        [serial] = await parts.channels.publish("ai:x", BOT, [MessageDraft(data="text")])
        body = (
            {"type": "a:total.v1"}
            if "annotations" in path
            else {"data": "x", "action": 1 if "{}" in path else 0}
        )
        content = None if method == "GET" else json.dumps(body)
        for key, statuses in ((able, (200, 201)), (unable, (401,))):
            async with http(parts, key=key) as client:
                answer = await client.request(method, path.format(serial), content=content)
                assert answer.status_code in statuses, answer.text

    run(main())


def test_only_ones_own_messages(parts: Parts) -> None:
    capability = Capability.of({"ai:*": ["message-update-own", "message-delete-own"]})
    ann = parts.keyring.issue_token("app.key", capability, 60, "ann")

    async def main() -> None:
        [mine] = await parts.channels.publish("ai:x", Publisher(client_id="ann"), [MessageDraft(data="text")])
        [other] = await parts.channels.publish(
            "ai:x", Publisher(client_id="bob"), [MessageDraft(data="text")]
        )
        async with http(parts) as client:
            client.headers["authorization"] = f"Bearer {b64encode(ann.encode()).decode()}"
            for serial, status in ((mine, 200), (other, 401)):
                for action in (1, 5, 2):
                    body = json.dumps({"action": action, "data": "!"})
                    edited = await client.patch(f"/channels/ai:x/messages/{serial}", content=body)
                    assert edited.status_code == status, edited.text

    run(main())


def test_a_publish_that_is_repeated_is_done_once(parts: Parts) -> None:
    async def main() -> None:
        async with http(parts) as client:
            body = json.dumps([{"data": "a", "id": "base:0"}, {"data": "b", "id": "base:1"}])
            first, again = [
                value(await client.post("/channels/ai:x/messages", content=body)) for _ in range(2)
            ]
            assert first == again
            assert first["messageId"] == "base"
            assert len(value(await client.get("/channels/ai:x/messages"))) == 2

    run(main())


def test_a_batch(parts: Parts) -> None:
    async def main() -> None:
        async with http(parts) as client:
            body = {"channels": ["a", ":bad", "b"], "messages": {"data": "x"}}
            answer = value(await client.post("/messages", content=json.dumps(body)))
            assert (answer["successCount"], answer["failureCount"]) == (2, 1)
            assert answer["results"][1]["error"]["code"] == 40010
            assert len(value(await client.post("/messages", content=json.dumps([body])))) == 1

    run(main())


def test_the_citations_of_a_channel(parts: Parts) -> None:
    async def main() -> None:
        [serial] = await parts.channels.publish(CHANNEL, BOT, [MessageDraft(data="The Danube rises")])
        data = json.dumps(
            {"url": "https://rivers.example", "title": "Rivers", "startOffset": 4, "endOffset": 10}
        )
        note = AnnotationDraft(message_serial=serial, type=CITE, name="a", data=data, encoding="json")
        await parts.channels.annotate(CHANNEL, BOT, [note])
        async with http(parts) as client:
            [cited] = value(await client.get(f"/channels/{CHANNEL}/citations"))
            assert (cited["source"], cited["title"]) == ("https://rivers.example", "Rivers")
            [citation] = cited["citations"]
            assert citation["annotation"]["messageSerial"] == serial
            assert citation["placed"]["status"] == "inside"

    run(main())


def test_the_channels_there_are(parts: Parts) -> None:
    """By name, page by page, of those that the client may know of: as they are, or their names."""
    some = parts.keyring.create(Capability.of({"ai:*": ["channel-metadata"]}), "app.some")

    async def main() -> None:
        names = ["ai:1", "ai:2", "ai:3", "b", "ü/x"]
        for name in reversed(names):
            await parts.channels.publish(name, BOT, [MessageDraft(data="x")])
        async with http(parts) as client:
            query, found = "channels?limit=2&by=id", list[str]()
            while query:
                page = await client.get(f"/{query}")
                found += value(page)
                links = dict(link.rsplit("; ", 1)[::-1] for link in page.headers.get_list("link"))
                query = links.get('rel="next"', "").strip("<>./")
            assert found == names
            assert value(await client.get("/channels?prefix=ai%3A&by=id")) == names[:3]
            async with Socket(parts.realtime, key=parts.key) as socket:
                await socket.attach("b")
                [listed] = value(await client.get("/channels?prefix=b"))
                assert listed == value(await client.get("/channels/b"))
                assert listed["channelId"] == listed["name"] == "b"
                metrics = listed["status"]["occupancy"]["metrics"]
                assert (listed["status"]["isActive"], metrics["subscribers"]) == (True, 1)
        async with http(parts, key=some) as client:
            assert value(await client.get("/channels?by=id")) == names[:3]
            assert value(await client.get("/channels?prefix=b&by=id")) == []

    run(main())


def test_an_export_says_all_that_happened(parts: Parts) -> None:
    """A line for each row, from any of them on; what it says adds up to what the channel says."""

    async def main() -> None:
        who = Publisher(client_id="ann", connection_id="c", msg_serial=1)
        [serial] = await parts.channels.publish(CHANNEL, who, [MessageDraft(data="The ", name="response")])
        await parts.channels.append(CHANNEL, BOT, serial, MessageDraft(data="Danube"))
        notes = [AnnotationDraft(message_serial=serial, type=CITE, name=name) for name in "ab"]
        await parts.channels.annotate(CHANNEL, BOT, notes)
        await parts.channels.publish(CHANNEL, BOT, [MessageDraft(data=b"\0\xff")])
        async with http(parts) as client:
            answer = await client.get(f"/channels/{CHANNEL}/export")
            assert answer.headers["content-type"] == "application/jsonl"
            lines = [json.loads(line) for line in answer.text.splitlines()]
            assert [*lines[0]] == ["cursor", "serial", "message"]
            rest = await client.get(f"/channels/{CHANNEL}/export?after={lines[1]['cursor']}")
            assert [json.loads(line) for line in rest.text.splitlines()] == lines[2:]
            assert (await client.get("/channels/ai:none/export")).text == ""
        events = [
            AnnotationEvent(msgspec.convert(line["annotation"], Annotation))
            if "annotation" in line
            else MessageEvent(msgspec.convert(line["message"], Message))
            for line in lines
        ]
        slots = replay(events)
        for key in (f"m:{serial}", f"s:{serial}"):
            kept = await parts.store.values(f"channel:{CHANNEL}", [key])
            assert slots[key] == kept[key]
        assert (lines[-1]["message"]["data"], lines[-1]["message"]["encoding"]) == ("AP8=", "base64")

    run(main())


def test_a_key_with_which_too_much_is_published(tmp_path: Path) -> None:
    """Nothing of what comes too soon is kept, over REST and a WebSocket alike; other keys go on."""
    now = [0.0]
    parts = Parts(tmp_path, rates=PublishRates(100, 1, clock=lambda: now[0]))
    other = parts.keyring.create(name="app.other")

    async def main() -> None:
        async with http(parts) as client, http(parts, key=other) as another:
            url, body = f"/channels/{CHANNEL}/messages", json.dumps([{"data": "a"}, {"data": "b"}])
            [serial, _] = value(await client.post(url, content=body))["serials"]
            for method, path, content in (
                ("POST", url, body),
                ("PATCH", f"{url}/{serial}", '{"action":1,"data":"c"}'),
                ("POST", f"{url}/{serial}/annotations", '{"type":"a:total.v1"}'),
            ):
                refused = await client.request(method, path, content=content)
                assert (refused.status_code, refused.headers["x-ably-errorcode"]) == (429, "42910"), path
            async with Socket(parts.realtime, key=parts.key) as socket:
                socket.send(FrameAction.MESSAGE, channel=CHANNEL, msgSerial=0, messages=[{"data": "x"}])
                assert (await socket.done(0))["error"]["code"] == 42910
            assert (await another.post(url, content=body)).status_code == 201
            assert len(value(await client.get(url))) == 4
            now[0] += 1
            assert (await client.post(url, content=body)).status_code == 201

    run(main())


# Tokens


def request_of(key: str, **fields: Any) -> Json:
    """A request for a token as a client signs it."""
    name, _, secret = key.partition(":")
    asked: Json = {"keyName": name, "timestamp": int(time.time() * 1000), "nonce": "n" * 16} | fields
    parts = [
        asked.get(field, "") for field in ("keyName", "ttl", "capability", "clientId", "timestamp", "nonce")
    ]
    text = "".join(f"{part}\n" for part in parts).encode()
    return asked | {"mac": b64encode(hmac.digest(secret.encode(), text, "sha256")).decode()}


@pytest.mark.parametrize(
    ("fields", "after", "code"),
    [
        ({"timestamp": 1}, {}, 40104),
        ({}, {"mac": "AAAA"}, 40101),
        ({}, {"clientId": "other"}, 40101),
        ({}, {"keyName": "app.nobody"}, 40101),
        ({"ttl": 25 * 3600 * 1000}, {}, 40003),
        ({"ttl": 0}, {}, 40003),
        ({"capability": "{"}, {}, 40000),
        ({"capability": '{"a":["x"]}', "clientId": ""}, {}, 40012),
        ({"nonce": ""}, {}, 40105),
        ({}, {"nonce": None, "mac": None}, 40101),
        ({"nonce": "x\n1\nn"}, {}, 40105),
        ({"nonce": "n" * 16 + "\x00"}, {}, 40105),
        ({"clientId": "admin\n1\nx"}, {}, 40012),
        ({"clientId": "admin\x85"}, {"mac": None}, 40012),
    ],
)
def test_requests_for_a_token_that_are_refused(parts: Parts, fields: Json, after: Json, code: int) -> None:
    async def main() -> None:
        async with http(parts) as client:
            del client.headers["authorization"]
            body = json.dumps(request_of(parts.key, **fields) | after)
            refused = await client.post("/keys/app.key/requestToken", content=body)
            assert value(refused)["error"]["code"] == code, refused.text

    run(main())


def test_a_token(parts: Parts) -> None:
    """It holds for its time, its client and what its key also has, and is given once for a request."""
    key = parts.keyring.create(Capability.of({"ai:*": ["subscribe", "publish"]}), "app.some")

    async def main() -> None:
        async with http(parts) as client:
            capability = json.dumps({"*": ["publish", "history"]})
            asked = request_of(key, clientId="ann", ttl=60_000, capability=capability)
            url = "/keys/app.some/requestToken"
            made = value(await client.post(url, content=json.dumps(asked)))
            assert made["expires"] - made["issued"] == 60_000
            assert json.loads(made["capability"]) == {"ai:*": ["publish"]}
            again = value(await client.post(url, content=json.dumps(asked)))
            assert again["error"]["code"] == 40105
            none = request_of(key, capability=json.dumps({"other": ["publish"]}), nonce="m" * 16)
            assert value(await client.post(url, content=json.dumps(none)))["error"]["code"] == 40160
        async with Socket(parts.realtime, access_token=made["token"]) as socket:
            assert socket.connected["connectionDetails"]["clientId"] == "ann"
            await socket.publish(CHANNEL, 0, {"data": "may"})
            assert (await socket.attach(CHANNEL, flags=int(Flag.SUBSCRIBE)))["error"]["code"] == 40160

    run(main())


def test_a_signature_covers_one_reading(parts: Parts) -> None:
    """The parts of what is signed are lines: one of several could be read as another part."""
    now = int(time.time() * 1000)
    signed = request_of(parts.key, clientId=f"admin\n{now}\nx", timestamp=now + 1)
    other = signed | {"clientId": "admin", "timestamp": now, "nonce": f"x\n{now + 1}\n{signed['nonce']}"}

    async def main() -> None:
        async with http(parts) as client:
            del client.headers["authorization"]
            for asked in (signed, other):
                answer = await client.post("/keys/app.key/requestToken", content=json.dumps(asked))
                assert "token" not in value(answer)

    run(main())


def test_no_token_for_more_than_can_be_written(parts: Parts) -> None:
    """What two capabilities have in common may be longer than each of them; such a token would be refused."""
    key = parts.keyring.create(Capability.of({f"*:{n}": ["publish"] for n in range(100)}), "app.many")
    capability = json.dumps({f"{n}:*": ["publish"] for n in range(3)})

    async def main() -> None:
        async with http(parts) as client:
            asked = request_of(key, capability=capability)
            refused = await client.post("/keys/app.many/requestToken", content=json.dumps(asked))
            assert value(refused)["error"]["code"] == 40160

    run(main())


# The sandbox


def test_apps_of_the_sandbox(parts: Parts) -> None:
    """Each has its own keys, rules and channels, until it is deleted."""

    async def main() -> None:
        async with http(parts) as client:
            body = {
                "keys": [{}, {"capability": '{"a":["subscribe"]}'}],
                "namespaces": [
                    {"id": "mutable", "mutableMessages": True},
                    {"id": "persisted", "persisted": True},
                ],
            }
            apps = [value(await client.post("/apps", content=json.dumps(body))) for _ in range(2)]
        assert (apps[0]["endpoint"], apps[0]["port"], apps[0]["tls"]) == ("localhost", 8787, False)
        assert len(apps[0]["namespaces"]) == 2
        full, few = apps[0]["keys"]
        assert full["keyStr"] == f"{apps[0]['appId']}.{full['id']}:{full['value']}"
        async with (
            http(parts, key=full["keyStr"]) as one,
            http(parts, key=apps[1]["keys"][0]["keyStr"]) as two,
        ):
            await one.post("/channels/mutable:x/messages", content='{"data":"mine"}')
            assert len(value(await one.get("/channels/mutable:x/messages"))) == 1
            assert value(await two.get("/channels/mutable:x/messages")) == []
            async with Socket(parts.realtime, key=few["keyStr"]) as socket:
                assert (await socket.attach("a"))["flags"] & Flag.SUBSCRIBE
                assert (await socket.attach("b"))["error"]["code"] == 40160
            assert (await one.delete(f"/apps/{apps[0]['appId']}")).status_code == 204
            assert (await one.get("/channels/mutable:x/messages")).status_code == 401
        assert not await parts.store.heads("sandbox:")
        assert (await parts.channels.history("mutable:x", HistoryQuery())).items == ()

    run(main())
