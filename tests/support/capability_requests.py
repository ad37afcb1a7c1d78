"""What the capability fuzzer asks for: objects on a server, and random requests of every operation."""

from __future__ import annotations

import random
import re
import secrets
from collections.abc import Callable, Iterable
from typing import Any
from urllib.parse import quote
from uuid import uuid4

from support.app import App
from support.capability_model import Request

THREADS = ("ann:1", "ann:2", "bob:1", "bob", "team:x:y", "a/b")
CHANNELS = ("chat:ann", "chat:bob", "chat:bob:x", "news")
RULES = ("chat:*", "fuzz:*")
# Rows that follow those of threads and keys by themselves, in their own time.
FOLLOWING = ("audit:", "channel:ai:", "tie:")


def path_of(template: str, *names: str) -> str:
    """The path with these names in it, percent-encoded."""
    left = iter(names)
    return re.sub(r"\{[^}]*\}", lambda _: quote(next(left), safe=""), template)


class World:
    """The objects that there are; whatever a request takes away is put back."""

    def __init__(self, app: App) -> None:
        self.app = app
        self.sources: list[str] = []
        self.names: dict[str, str] = {}
        """By name, the id of a source."""
        self.messages: dict[str, str] = {}
        """By channel, the serial of a message of ann's."""

    async def settle(self, operation: tuple[str, str] = ("", "/sources")) -> None:
        """Put everything there that should be, and wait until nothing is going on."""
        app = self.app
        if operation[1].startswith("/sources") or operation[0] == "DELETE":
            await self.restore()
        await app.server.catalog.wait_until_read()
        await app.server.runs.wait_idle()

    async def restore(self) -> None:
        """Make anew what was deleted, and delete what was added."""
        app = self.app
        known = {each["threadId"] for each in (await app.ask("GET", "/threads?limit=1000")).json["threads"]}
        for name in {*THREADS} - known:
            await app.ask("POST", "/agui", run_input(name))
        listed = (await app.ask("GET", "/sources?limit=1000")).json["sources"]
        if len(listed) < 3 or len(listed) > 8:
            for each in listed:
                await app.ask("DELETE", f"/sources/{each['id']}")
            for number in range(3):
                await app.ask("POST", f"/sources?name=known{number}.txt", b"Known words %d." % number)
            listed = (await app.ask("GET", "/sources?limit=1000")).json["sources"]
        self.sources = [each["id"] for each in listed]
        self.names = {each["name"]: each["id"] for each in listed}
        for channel in CHANNELS:
            if channel not in self.messages:
                await self.say(channel)

    async def say(self, channel: str) -> None:
        """A message of ann's in a channel."""
        await self.app.ask("PUT", path_of("/rules/{}", channel), {"mutable": True})
        body = {"name": "note", "data": "words", "clientId": "ann"}
        said = await self.app.ask("POST", path_of("/channels/{}/messages", channel), body)
        self.messages[channel] = said.json["serials"][0]

    async def everything(self) -> Any:
        """All that a refused request must leave as it is."""
        heads: dict[str, int] = {}
        after = ""
        while found := await self.app.server.hub.store.heads("", after):
            heads |= {head.channel: head.n for head in found if not head.channel.startswith(FOLLOWING)}
            after = found[-1].channel
        return heads, [key.name for key in self.app.server.keyring.rows()]


def run_input(thread: str) -> dict[str, Any]:
    messages = [{"id": uuid4().hex, "role": "user", "content": "What are the known words?"}]
    return {"threadId": thread, "runId": uuid4().hex, "messages": messages}


class Requests:
    """Random requests, of every operation that there is."""

    def __init__(self, world: World, rng: random.Random) -> None:
        self._world, self._rng = world, rng
        self._makers: dict[tuple[str, str], Callable[[], Request]] = {}
        self._threads()
        self._sources()
        self._rest_of_ours()
        self._channels()

    @property
    def operations(self) -> set[tuple[str, str]]:
        """Those that are asked for, as method and path template."""
        return {*self._makers}

    def random(self) -> tuple[tuple[str, str], Request]:
        operation = self._rng.choice([*self._makers])
        return operation, self._makers[operation]()

    def _thread(self) -> str:
        return self._rng.choice([*THREADS, "nobody:1"])

    def _source(self) -> str:
        return self._rng.choice([*self._world.sources, "0" * 32])

    def _channel(self) -> str:
        return self._rng.choice(CHANNELS)

    def _add(
        self,
        method: str,
        template: str,
        needs: Callable[[str], list[tuple[str, str]]],
        name: Callable[[], str] = str,
        *,
        rest: Callable[[str], list[str]] = lambda _: [],
        body: Callable[[str], Any] = lambda _: b"",
        query: str = "",
        changes: bool = False,
        shows: Callable[[Any], Iterable[str]] | None = None,
        may_show: Callable[[str], tuple[str, str]] | None = None,
    ) -> None:
        def make() -> Request:
            given = name()
            path = path_of(template.replace(":path", ""), *([given] if given else []), *rest(given)) + query
            return Request(
                method, path, needs(given), body(given), changes=changes, shows=shows, may_show=may_show,
                is_of_channels=template.startswith("/channels"),
            )  # fmt: skip

        self._makers[method, template] = make

    def _threads(self) -> None:
        def need(operation: str) -> Callable[[str], list[tuple[str, str]]]:
            return lambda name: [(operation, f"thread:{name}")]

        add, name = self._add, self._thread
        add("POST", "/agui", need("run"), body=run_input, changes=True)
        self._makers["POST", "/agui"] = self._run
        add("GET", "/threads", lambda _: [("list", "thread:*")],
            shows=lambda value: [each["threadId"] for each in value["threads"]],
            may_show=lambda thread: ("read", f"thread:{thread}"))  # fmt: skip
        add("GET", "/threads/{thread}", need("read"), name)
        add("GET", "/threads/{thread}/events", need("read"), name)
        add("GET", "/threads/{thread}/record", need("audit"), name)
        add(
            "POST",
            "/threads/{thread}/runs/{run}/stop",
            need("stop"),
            name,
            rest=lambda _: ["r"],
            changes=True,
        )
        add("GET", "/threads/{thread}/messages/{message}/citations", need("read"), name,
            rest=lambda _: ["m"], query="?dialect=markdown")  # fmt: skip
        review = {"messageId": "m", "key": "k", "event": "popover_opened"}
        add("POST", "/threads/{thread}/reviews", need("review"), name, body=lambda _: review, changes=True)
        add("DELETE", "/threads/{thread}", need("delete"), name, changes=True)

    def _run(self) -> Request:
        thread = self._thread()
        return Request("POST", "/agui", [("run", f"thread:{thread}")], run_input(thread), changes=True)

    def _sources(self) -> None:
        def need(operation: str) -> Callable[[str], list[tuple[str, str]]]:
            return lambda name: [(operation, f"source:{name}")]

        def every(operation: str) -> Callable[[str], list[tuple[str, str]]]:
            return lambda _: [(operation, "source:*")]

        add, name = self._add, self._source
        add("POST", "/sources", every("add"), query=f"?name={secrets.token_hex(4)}.txt",
            body=lambda _: secrets.token_bytes(8).hex().encode(), changes=True)  # fmt: skip
        self._makers["POST", "/sources"] = self._new_source
        add("GET", "/sources", every("list"), shows=lambda value: [each["id"] for each in value["sources"]],
            may_show=lambda source: ("read", f"source:{source}"))  # fmt: skip
        add("GET", "/sources/events", every("list"))
        for rest in ("", "/text", "/content"):
            add("GET", "/sources/{source}" + rest, need("read"), name)
        add(
            "GET",
            "/sources/{source}/pages/{number}.{format}",
            need("read"),
            name,
            rest=lambda _: ["1", "png"],
        )
        add("GET", "/sources/{source}/versions", need("trace"), name)
        add("GET", "/sources/{source}/citations", need("trace"), name)
        add("DELETE", "/sources/{source}", need("delete"), name, changes=True)

    def _replaced_source(self) -> Request:
        """Other bytes under the name of a source that is there."""
        name, source = self._rng.choice([*self._world.names.items()])
        words, also = secrets.token_hex(8).encode(), [("replace", f"source:{source}")]
        return Request(
            "POST",
            f"/sources?name={name}",
            [("add", "source:*")],
            words,
            "text/plain",
            changes=True,
            also=also,
        )

    def _new_source(self) -> Request:
        if self._rng.random() < 0.5:
            return self._replaced_source()
        path = f"/sources?name={secrets.token_hex(6)}.txt"
        words = secrets.token_hex(8).encode()
        return Request("POST", path, [("add", "source:*")], words, content="text/plain", changes=True)

    def _rest_of_ours(self) -> None:
        def just(operation: str, resource: str) -> Callable[[str], list[tuple[str, str]]]:
            return lambda _: [(operation, resource)]

        add = self._add
        add("GET", "/answers", just("list", "answer:*"),
            shows=lambda value: [each["threadId"] for each in value["threads"]],
            may_show=lambda thread: ("read", f"thread:{thread}"))  # fmt: skip
        add("GET", "/answers/events", just("list", "answer:*"))
        add("GET", "/verdicts", just("count", "answer:*"), query="?bucket=day")
        add("GET", "/audit", just("export", "audit"))
        add("GET", "/metrics", just("read", "metrics"))
        add("POST", "/verify", just("verify", "verify"), body=lambda _: {"quotes": []})
        add("GET", "/rules", just("list", "rule:*"))
        for method, operation in (("GET", "read"), ("PUT", "set"), ("DELETE", "delete")):
            add(method, "/rules/{pattern}", lambda name, operation=operation: [(operation, f"rule:{name}")],
                lambda: self._rng.choice(RULES), body=lambda _: {"mutable": True},
                changes=method != "GET")  # fmt: skip
        named = {"attachmentId": "fuzz"}
        for path, operation in (("/prepareAttachments", "add"), ("/convertFile", "add")):
            add("POST", path, just(operation, "attachments"), body=lambda _: named, changes=True)
        add("POST", "/getAttachment", just("read", "attachments"), body=lambda _: named)
        asked: dict[str, Any] = {"data": {"attachmentId": "fuzz", "citations": {}}}
        add("POST", "/verifyCitations", just("verify", "attachments"), body=lambda _: asked)
        add("POST", "/attachments/{attachment}/extend", just("extend", "attachments"), lambda: "fuzz",
            body=lambda _: {"duration": "month"}, changes=True)  # fmt: skip
        add(
            "DELETE", "/attachments/{attachment}", just("delete", "attachments"), lambda: "fuzz", changes=True
        )

    def _channels(self) -> None:
        def need(operation: str) -> Callable[[str], list[tuple[str, str]]]:
            return lambda name: [(operation, name)]

        def serial(channel: str) -> list[str]:
            return [self._world.messages[channel]]

        add, name = self._add, self._channel
        base, one = "/channels/{channel}", "/channels/{channel}/messages/{serial}"
        add("GET", "/channels", lambda _: [], shows=lambda value: [each["name"] for each in value],
            may_show=lambda channel: ("channel-metadata", channel))  # fmt: skip
        add("GET", base, need("channel-metadata"), name)
        add("POST", f"{base}/messages", need("publish"), name, body=lambda _: {"data": "x"}, changes=True)
        for rest in ("messages", "history", "citations", "export", "presence/history"):
            add("GET", f"{base}/{rest}", need("history"), name)
        add("GET", f"{base}/presence", need("presence"), name)
        add("GET", one, need("history"), name, rest=serial)
        add("GET", f"{one}/versions", need("history"), name, rest=serial)
        add("GET", f"{one}/annotations", need("history"), name, rest=serial)
        add("GET", f"{one}/client-summary", need("subscribe"), name, rest=serial, query="?forClientId=ann")
        note = {"type": "reaction:distinct.v1", "name": "x"}
        add("POST", f"{one}/annotations", need("annotation-publish"), name, rest=serial,
            body=lambda _: [note], changes=True)  # fmt: skip
        add("PATCH", one, need("message-update-any"), name, rest=serial,
            body=lambda _: {"action": 1, "data": "y"}, changes=True)  # fmt: skip
