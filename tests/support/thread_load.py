"""Clients that ask, review and add sources while their servers are killed, and what must hold afterwards.

Whatever was acknowledged is there, once, and nothing that a client posts changes what the server itself said.
"""

from __future__ import annotations

import hmac
import random
import re
import secrets
import time
from base64 import b64encode
from collections.abc import AsyncGenerator, Sequence
from contextlib import suppress
from typing import Any
from urllib.parse import quote

import httpx2

from citewire import codec
from citewire.agui.sse import SseParser
from citewire.dialects.base import is_list, is_object
from support.ably_load import Server, rest

Json = dict[str, Any]

QUESTION = "What is the refund policy?"
# What a client meets when its server dies, or has not found its database yet.
CUT = (httpx2.TransportError, httpx2.HTTPStatusError)
KEY = "deepcitation"


class Asker:
    """Asks in threads of its own, honestly and not, and remembers what was acknowledged."""

    def __init__(self, servers: Sequence[Server], name: str, seed: int) -> None:
        self._servers = servers
        self._chance = random.Random(f"{seed} {name}")
        self.name = name
        self.threads = [f"{name}:{number}" for number in range(3)]
        self.events: dict[str, dict[str, bytes]] = {}
        """By thread, the events that were received, by their cursor."""
        self.answers: dict[tuple[str, str], tuple[str, Json]] = {}
        """By thread and message, the text and the statuses of its citations, once a run was over."""
        self.reviews: set[tuple[str, str, str, int]] = set()
        self.sources: set[str] = set()
        self.requests: list[Json] = []
        """Requests for tokens that were granted."""
        self.count = 0
        self.ends = False

    async def run(self) -> None:
        """Act until told to end."""
        while not self.ends:
            server = self._chance.choice(
                [each for each in self._servers if each.up.is_set()] or self._servers
            )
            await server.up.wait()
            with suppress(*CUT):
                async with rest(server) as client:
                    client.timeout = httpx2.Timeout(20)
                    await self._act(client, server)

    async def _act(self, client: httpx2.AsyncClient, server: Server) -> None:
        kinds = [self._ask, self._ask, self._review, self._add_source, self._request_token]
        await self._chance.choice(kinds)(client, server)
        self.count += 1

    async def _ask(self, client: httpx2.AsyncClient, server: Server) -> None:
        thread = self._chance.choice(self.threads)
        view = await self._view(client, thread)
        messages, state = self._posted(view)
        user = {"id": secrets.token_hex(8), "role": "user", "content": QUESTION}
        body = {
            "threadId": thread,
            "runId": secrets.token_hex(8),
            "messages": [*messages, user],
            "state": state,
        }
        is_over = False
        async for cursor, event in self._stream(client, server, body):
            self.events.setdefault(thread, {})[cursor] = event
            is_over = b'"RUN_FINISHED"' in event
        if is_over:
            self._note(thread, await self._view(client, thread))

    async def _stream(
        self, client: httpx2.AsyncClient, server: Server, body: Json
    ) -> AsyncGenerator[tuple[str, bytes]]:
        frames = SseParser()
        async with client.stream("POST", "/agui", json=body) as response:
            response.raise_for_status()
            async for piece in response.aiter_bytes():
                server.step()
                for frame in frames.feed(piece):
                    if frame.id:
                        yield frame.id, frame.data

    async def _view(self, client: httpx2.AsyncClient, thread: str) -> Json:
        response = await client.get(f"/threads/{quote(thread, safe='')}")
        if response.status_code == 404:
            return {"messages": [], "state": {}}
        response.raise_for_status()
        return response.json()

    def _posted(self, view: Json) -> tuple[list[Json], Any]:
        """What the client says was said: the truth, nothing, or a forgery."""
        messages, state = view["messages"], view["state"]
        match self._chance.randrange(4):
            case 0:
                return messages, state
            case 1:
                return [], {}
            case 2:
                return [{**each, "content": "Forged."} for each in messages], state
            case _:
                return messages, forged(state)

    def _note(self, thread: str, view: Json) -> None:
        for message in view["messages"]:
            record = message_record(view, message["id"])
            if message["role"] == "assistant" and record and record["status"] == "complete":
                self.answers.setdefault((thread, message["id"]), (message["content"], statuses(record)))

    async def _review(self, client: httpx2.AsyncClient, server: Server) -> None:
        known = [(thread, name, key) for (thread, name), (_, found) in self.answers.items() for key in found]
        if not known:
            return
        thread, name, key = self._chance.choice(known)
        number = self._chance.randrange(1 << 40)
        body = {"messageId": name, "key": key, "event": "popover_closed", "dwellMs": number}
        said = await client.post(f"/threads/{quote(thread, safe='')}/reviews", json=body)
        server.step()
        said.raise_for_status()
        self.reviews.add((thread, name, key, number))

    async def _add_source(self, client: httpx2.AsyncClient, server: Server) -> None:
        name = f"{secrets.token_hex(6)}.txt"
        said = await client.post(f"/sources?name={name}", content=f"The word is {name}.".encode())
        server.step()
        said.raise_for_status()
        self.sources.add(name)

    async def _request_token(self, client: httpx2.AsyncClient, server: Server) -> None:
        asked = token_request(server.key)
        said = await client.post(f"/keys/{asked['keyName']}/requestToken", json=asked)
        server.step()
        said.raise_for_status()
        self.requests.append(asked)

    # --- afterwards -----------------------------------------------------------------------------------------

    async def check(self, server: Server) -> None:
        """All that was acknowledged holds."""
        async with rest(server) as client:
            client.timeout = httpx2.Timeout(60)
            for thread in self.threads:
                await self._check_thread(client, thread)
            listed = (await client.get("/sources?limit=1000")).raise_for_status().json()["sources"]
            assert self.sources <= {each["name"] for each in listed}
            for asked in self.requests:
                said = await client.post(f"/keys/{asked['keyName']}/requestToken", json=asked)
                assert said.status_code == 401, said.text

    async def _check_thread(self, client: httpx2.AsyncClient, thread: str) -> None:
        kept = await self._all_events(client, thread)
        for cursor, event in self.events.get(thread, {}).items():
            there, received = unsigned(codec.encode(kept[cursor])), unsigned(event)
            assert there == received, (cursor, there, received)
        view = await self._view(client, thread)
        for (name, message_id), (text, found) in self.answers.items():
            if name == thread:
                record = message_record(view, message_id)
                assert record
                assert statuses(record) == found
                shown = [each for each in view["messages"] if each["id"] == message_id]
                assert [each["content"] for each in shown] in ([], [text])
        assert all(each["status"] in ("complete", "error") for each in records(view).values())
        looks = view["state"].get(KEY, {}).get("reviews", {})
        for name, message_id, key, number in self.reviews:
            if name == thread:
                assert [each.get("dwellMs") for each in looks[message_id][key]].count(number) == 1

    async def _all_events(self, client: httpx2.AsyncClient, thread: str) -> dict[str, Json]:
        found: dict[str, Json] = {}
        after = ""
        while True:
            page = await client.get(f"/threads/{quote(thread, safe='')}/events?limit=1000{after}")
            if page.status_code == 404:
                return found
            value = page.raise_for_status().json()
            found |= {each["id"]: each["event"] for each in value["events"]}
            if value["next"] is None:
                return found
            after = f"&after={value['next']}"


def token_request(key: str) -> Json:
    """A request for a token, signed as Ably's clients sign it."""
    name, _, secret = key.partition(":")
    asked: Json = {"keyName": name, "timestamp": int(time.time() * 1000), "nonce": secrets.token_hex(16)}
    text = "\n".join([name, "", "", "", str(asked["timestamp"]), asked["nonce"], ""])
    return asked | {"mac": b64encode(hmac.digest(secret.encode(), text.encode(), "sha256")).decode()}


def forged(state: Any) -> Any:
    """The state with every verdict turned into another."""
    if is_object(state):
        return {name: "not_found" if name == "status" else forged(value) for name, value in state.items()}
    return [forged(each) for each in state] if is_list(state) else state


def records(view: Json) -> dict[str, Json]:
    """The records of the server's answers, by message."""
    state: Json = view["state"] or {}
    return state.get(KEY, {}).get("messages", {})


def message_record(view: Json, message_id: str) -> Json | None:
    """The record of one answer."""
    return records(view).get(message_id)


def statuses(record: Json) -> Json:
    """The status of each citation of an answer."""
    return {key: each["citewire"]["status"] for key, each in record["verifications"].items()}


def unsigned(event: bytes) -> Any:
    """An event without what is made anew in its links whenever it is sent: the address and the signature."""
    return codec.decode(re.sub(rb"http://127\.0\.0\.1:\d+(/proofs/[\w.-]+)\?sig=[\w.-]+", rb"\1", event))
