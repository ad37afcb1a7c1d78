"""The real clients of Ably, npm's and PyPI's, over our wire, at one node and at two."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from citewire.channels.postgres import PostgresStore
from support.ably_node import AblyFailed, NodeAbly, node_ably
from support.ably_python import AblyRealtime, AblyRest, ChannelMode, ChannelOptions, Told, pypis
from support.ably_server import Line, Parts, listening
from support.postgres import need_postgres

Annotation = pypis("ably.types.annotation", "Annotation")
ConnectionState = pypis("ably.types.connectionstate", "ConnectionState")
Message = pypis("ably.types.message", "Message")
MessageAction = pypis("ably.types.message", "MessageAction")

CITATION = {"url": "https://rivers.example/danube", "title": "Danube", "startOffset": 4, "endOffset": 10}
TYPE = "citations:multiple.v1"
MODES = ["PUBLISH", "SUBSCRIBE", "ANNOTATION_PUBLISH", "ANNOTATION_SUBSCRIBE"]
formats = pytest.mark.parametrize("is_binary", [False, True], ids=["json", "msgpack"])


def of(told: list[dict[str, Any]], kind: str, client: str = "reader") -> list[dict[str, Any]]:
    return [each[kind] for each in told if kind in each and each["client"] == client]


def summaries(told: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [
        each["annotations"]["summary"] for each in of(told, "message") if each["action"] == "message.summary"
    ]


class Place:
    """Where the tests are: one node over a store in memory, or two over one database."""

    def __init__(self, folder: Path, dsn: str | None) -> None:
        self._folder, self._dsn = folder, dsn

    @asynccontextmanager
    async def nodes(self, clock: Callable[[], float] = time.time) -> AsyncGenerator[tuple[Parts, int, Line]]:
        """A node with its port, for whoever writes; and a line to the other one, or the same, for readers."""
        async with AsyncExitStack() as stack:
            stores = [await PostgresStore.open(self._dsn) for _ in range(2)] if self._dsn else []
            for store in stores:
                stack.push_async_callback(store.close)
            here = Parts(self._folder, clock, store=stores[0] if stores else None)
            there = here.another(stores[1]) if stores else here
            port = await stack.enter_async_context(listening(here.app))
            line = await stack.enter_async_context(
                Line(await stack.enter_async_context(listening(there.app)))
            )
            yield here, port, line


@pytest.fixture(params=["memory", "postgres"])
def place(tmp_path: Path, request: pytest.FixtureRequest) -> Place:
    if request.param == "memory":
        return Place(tmp_path, None)
    need_postgres()
    return Place(tmp_path, request.getfixturevalue("dsn"))


@asynccontextmanager
async def npm(
    place: Place, is_binary: bool, clock: Callable[[], float] = time.time
) -> AsyncGenerator[tuple[Parts, NodeAbly, Line]]:
    """Nodes, and npm's client as a bot, by REST, and as a reader behind a line that can be cut."""
    async with place.nodes(clock) as (parts, port, line), node_ably() as node:
        given = {"key": parts.key, "endpoint": "localhost", "tls": False, "useBinaryProtocol": is_binary}
        bot = given | {"port": port, "clientId": "bot"}
        await node.ask("open", "bot", options=bot)
        await node.ask("open", "rest", options=bot, rest=True)
        await node.ask("open", "reader", options=given | {"port": line.port})
        yield parts, node, line


@formats
def test_npm_client(place: Place, is_binary: bool) -> None:
    """An answer that streams, is cited meanwhile, read back, loses a citation again, and is deleted."""

    async def main() -> None:
        async with npm(place, is_binary) as (_, node, _line):
            await node.ask("listen", "reader", channel="ai:rivers", options={"modes": MODES})
            await node.ask("listen", "reader", channel="ai:rivers", annotations=True)
            published = await node.call("bot", "ai:rivers", "publish", "response", "The Danube rises ")
            [serial] = published["serials"]
            pieces = ("in Germany ", "and ends ", "in the Black Sea. 🌊")
            edits = [
                node.call("bot", "ai:rivers", "appendMessage", {"serial": serial, "data": it})
                for it in pieces
            ]
            cite = {"type": TYPE, "name": "rivers.example", "data": CITATION}
            cites = node.call("bot", "ai:rivers", "annotations.publish", serial, cite)
            *edited, _ = await asyncio.gather(*edits, cites)
            versions = [each["versionSerial"] for each in edited]
            assert serial < versions[0] < versions[1] < versions[2]
            await node.call(
                "rest", "ai:rivers", "annotations.publish", serial, cite | {"name": "atlas.example"}
            )
            told = await node.until(
                lambda told: len(of(told, "annotation")) == 2 and len(summaries(told)) == 2
            )

            text = "".join(
                each["data"] for each in of(told, "message") if each["action"] != "message.summary"
            )
            assert text == "The Danube rises " + "".join(pieces)
            assert [each["name"] for each in of(told, "annotation")] == ["rivers.example", "atlas.example"]
            assert [each["data"] for each in of(told, "annotation")] == [CITATION, CITATION]
            one = {
                "total": 1,
                "clientIds": {"bot": 1},
                "totalUnidentified": 0,
                "totalClientIds": 1,
                "clipped": False,
            }
            assert summaries(told)[-1] == {TYPE: {"rivers.example": one, "atlas.example": one}}

            pages = await node.ask(
                "pages", "rest", channel="ai:rivers", method="annotations.get", args=[serial, {"limit": 1}]
            )
            assert [[each["name"] for each in page] for page in pages] == [
                ["rivers.example"],
                ["atlas.example"],
            ]
            await node.call(
                "bot", "ai:rivers", "annotations.delete", serial, {"type": TYPE, "name": "rivers.example"}
            )
            told = await node.until(lambda told: len(summaries(told)) == 3)
            assert summaries(told)[-1] == {TYPE: {"atlas.example": one}}

            history = await node.call("rest", "ai:rivers", "history")
            [message] = history["items"]
            assert not history["hasNext"]
            assert (message["data"], message["action"]) == (text, "message.update")
            assert message["annotations"]["summary"] == {TYPE: {"atlas.example": one}}
            assert (await node.call("rest", "ai:rivers", "getMessage", serial)) == message
            await node.call("bot", "ai:rivers", "deleteMessage", {"serial": serial})
            await node.until(lambda told: of(told, "message")[-1]["action"] == "message.delete")
            [deleted] = (await node.call("rest", "ai:rivers", "history"))["items"]
            assert (deleted["serial"], deleted["action"]) == (serial, "message.delete")

    asyncio.run(main())


def test_npm_client_that_comes_late_reads_what_was_before(place: Place) -> None:
    """Its history ends where what it is told begins: nothing is missing, and nothing comes twice."""

    async def main() -> None:
        async with npm(place, is_binary=True) as (_, node, _line):
            [serial] = (await node.call("bot", "ai:rivers", "publish", "response", "The Danube "))["serials"]
            await node.call("bot", "ai:rivers", "appendMessage", {"serial": serial, "data": "rises"})
            await node.ask("listen", "reader", channel="ai:rivers")
            await node.call("bot", "ai:rivers", "publish", "response", "later")
            told = await node.until(lambda told: bool(of(told, "message")))
            before = await node.call("reader", "ai:rivers", "history", {"untilAttach": True})
            assert [each["data"] for each in before["items"]] == ["The Danube rises"]
            assert [each["data"] for each in of(told, "message")] == ["later"]

    asyncio.run(main())


@formats
def test_npm_client_is_told_what_happened_while_it_was_cut_off(place: Place, is_binary: bool) -> None:
    """Annotations and their summary come once, in order; so does the message that it could not send."""

    async def main() -> None:
        async with npm(place, is_binary) as (_, node, line):
            await node.ask("listen", "reader", channel="ai:rivers", options={"modes": MODES})
            await node.ask("listen", "reader", channel="ai:rivers", annotations=True)
            before = await node.ask("state", "reader", **{"is": "connected"})
            [serial] = (await node.call("bot", "ai:rivers", "publish", "response", "The Danube "))["serials"]
            await node.until(lambda told: len(of(told, "message")) == 1)

            line.cut()
            await node.ask("state", "reader", **{"is": "disconnected"})
            sending = asyncio.create_task(
                node.call("reader", "ai:rivers", "publish", "late", "sent while cut")
            )
            for name in ("a.example", "b.example", "c.example"):
                cite = {"type": TYPE, "name": name, "data": CITATION}
                await node.call("bot", "ai:rivers", "annotations.publish", serial, cite)
            await node.call("bot", "ai:rivers", "appendMessage", {"serial": serial, "data": "rises"})
            line.mend()
            after = await node.ask("state", "reader", **{"is": "connected"})
            await sending
            told = await node.until(
                lambda told: any(each.get("name") == "late" for each in of(told, "message"))
            )

            assert after["id"] == before["id"]
            assert [each["name"] for each in of(told, "annotation")] == [
                "a.example",
                "b.example",
                "c.example",
            ]
            assert [*summaries(told)[-1][TYPE]] == ["a.example", "b.example", "c.example"]
            # The first it hears of the message after the cut is all of it.
            assert [each["data"] for each in of(told, "message") if each["action"] == "message.update"] == [
                "The Danube rises"
            ]
            assert sum(each.get("name") == "late" for each in of(told, "message")) == 1

    asyncio.run(main())


def test_npm_client_gets_what_its_token_is_for(place: Place) -> None:
    """A token that may listen, of a client with a name; all else is refused with Ably's numbers."""

    async def main() -> None:
        async with npm(place, is_binary=True) as (_, node, line):
            [serial] = (await node.call("bot", "ai:rivers", "publish", "response", "The Danube "))["serials"]
            asked = {"clientId": "guest", "capability": {"ai:*": ["subscribe", "annotation-publish"]}}
            token = await node.call("rest", None, "auth.requestToken", asked)
            options = {"token": token["token"], "endpoint": "localhost", "tls": False, "port": line.port}
            await node.ask("open", "guest", options=options)
            await node.ask("listen", "guest", channel="ai:rivers")
            with pytest.raises(AblyFailed) as refused:
                await node.call("guest", "ai:rivers", "publish", "response", "not mine to say")
            assert refused.value.code == 40160
            with pytest.raises(AblyFailed) as refused:
                await node.call("guest", "other", "attach")
            assert refused.value.code == 40160
            await node.call("guest", "ai:rivers", "annotations.publish", serial, {"type": "seen:flag.v1"})
            told = await node.until(lambda told: bool(of(told, "message", "guest")))
            [message] = of(told, "message", "guest")
            assert message["annotations"]["summary"]["seen:flag.v1"]["clientIds"] == ["guest"]

    asyncio.run(main())


def test_npm_client_whose_token_ends_while_it_is_cut_off(place: Place) -> None:
    """It is told so, gets another, and goes on where it was."""
    ahead = 0

    async def main() -> None:
        nonlocal ahead
        async with npm(place, is_binary=True, clock=lambda: time.time() + ahead) as (parts, node, line):
            given = {"key": parts.key, "endpoint": "localhost", "tls": False, "port": line.port}
            token = {"useTokenAuth": True, "defaultTokenParams": {"ttl": 60_000}}
            await node.ask("open", "guest", options=given | token)
            await node.ask("listen", "guest", channel="ai:rivers")
            before = await node.ask("state", "guest", **{"is": "connected"})
            line.cut()
            await node.ask("state", "guest", **{"is": "disconnected"})
            ahead = 100
            await node.call("bot", "ai:rivers", "publish", "response", "The Danube ")
            line.mend()
            told = await node.until(lambda told: bool(of(told, "message", "guest")))
            assert [each["data"] for each in of(told, "message", "guest")] == ["The Danube "]
            after = await node.ask("state", "guest", **{"is": "connected"})
            assert after["id"] == before["id"]

    asyncio.run(main())


@asynccontextmanager
async def pypi(parts: Parts, port: int, **options: Any) -> AsyncGenerator[tuple[Any, Any]]:
    """PyPI's client: its realtime part takes a port in `endpoint` only, its REST part only elsewhere.

    Without TLS its REST part sends no key, but asks for a token.
    """
    realtime = AblyRealtime(parts.key, endpoint=f"localhost:{port}", tls=False, **options)
    options |= {"port": port, "use_token_auth": True}
    rest = AblyRest(parts.key, endpoint="localhost", tls=False, **options)
    try:
        yield realtime, rest
    finally:
        await realtime.close()
        await rest.close()


@formats
def test_pypi_client(place: Place, is_binary: bool) -> None:
    """The same answer with PyPI's client: streamed, cited, cut off and told of what it missed, read back."""

    async def main() -> None:
        form = {"use_binary_protocol": is_binary}
        async with (
            place.nodes() as (parts, port, line),
            pypi(parts, port, client_id="bot", **form) as (bot, rest),
            pypi(parts, line.port, disconnected_retry_timeout=50, **form) as (reader, _),
        ):
            messages, annotations = Told(), Told()
            channel = reader.channels.get("ai:rivers", ChannelOptions(modes=list(ChannelMode)))
            await channel.subscribe(messages.add)
            await channel.annotations.subscribe(annotations.add)
            writing = bot.channels.get("ai:rivers")
            [serial] = (await writing.publish("response", "The Danube rises ")).serials
            for piece in ("in Germany ", "and ends ", "in the Black Sea."):
                await writing.append_message(Message(serial=serial, data=piece))
            await messages.until(lambda told: len(told) == 4)
            text = "The Danube rises in Germany and ends in the Black Sea."
            assert "".join(each.data for each in messages.items) == text

            cite = Annotation(type=TYPE, name="rivers.example", data=CITATION)
            await writing.annotations.publish(serial, cite)
            [first] = await annotations.until(lambda told: len(told) == 1)
            assert (first.name, first.data, first.client_id) == ("rivers.example", CITATION, "bot")

            line.cut()
            await reader.connection.once_async(ConnectionState.DISCONNECTED)
            await rest.channels.get("ai:rivers").annotations.publish(
                serial, Annotation(type=TYPE, name="atlas.example")
            )
            line.mend()
            told = await annotations.until(lambda told: len(told) == 2)
            assert [each.name for each in told] == ["rivers.example", "atlas.example"]
            told = await messages.until(lambda told: len(told) == 6)
            assert [*told[-1].annotations.summary[TYPE]] == ["rivers.example", "atlas.example"]

            reading = rest.channels.get("ai:rivers")
            listed = await reading.annotations.get(serial)
            assert [each.name for each in listed.items] == ["rivers.example", "atlas.example"]
            await reading.annotations.delete(serial, Annotation(type=TYPE, name="rivers.example"))
            told = await messages.until(lambda told: len(told) == 7)
            assert [*told[-1].annotations.summary[TYPE]] == ["atlas.example"]
            [message] = (await reading.history()).items
            assert message.data == text
            assert [*message.annotations.summary[TYPE]] == ["atlas.example"]
            await writing.delete_message(Message(serial=serial))
            told = await messages.until(lambda told: len(told) == 8)
            assert told[-1].action == MessageAction.MESSAGE_DELETE
            assert [each.action for each in (await reading.history()).items] == [told[-1].action]

    asyncio.run(main())
