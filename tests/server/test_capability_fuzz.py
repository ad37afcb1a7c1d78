"""Random keys, tokens and sessions against every operation: the server allows what the model allows.

The model (`capability_model`) is written from the docs and shares no code with the server.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from citewire import codec
from citewire.server.ably.codec import Flag, FrameAction
from citewire.server.ably.rest import CALLS
from support.ably_socket import Closed, Socket
from support.app import Answer, App, opened_app
from support.capability_credentials import Credentials
from support.capability_model import Credential, Request, Verdict, grants, judge
from support.capability_requests import CHANNELS, Requests, World
from support.soak import scaled

SEED = int(os.environ.get("CITEWIRE_SEED", "0")) or random.SystemRandom().randrange(1, 1 << 32)
MODES = {
    Flag.PUBLISH: "publish",
    Flag.SUBSCRIBE: "subscribe",
    Flag.ANNOTATION_PUBLISH: "annotation-publish",
    Flag.ANNOTATION_SUBSCRIBE: "annotation-subscribe",
}


class Fuzz:
    """Asks, and compares with the model."""

    def __init__(self, app: App, rng: random.Random) -> None:
        self.app, self.rng = app, rng
        self.world = World(app)
        self.requests = Requests(self.world, rng)
        self.credentials = Credentials(app, rng)
        self.counted: Counter[Verdict] = Counter()
        self.reached: set[tuple[str, str]] = set()

    async def run(self, count: int) -> None:
        await self.world.settle()
        for number in range(count):
            operation, request = self.requests.random()
            credential = await self.credentials.random(request)
            await self.one(operation, credential, request)
            if number % 10 == 0:
                await self.realtime(credential)

    async def one(self, operation: tuple[str, str], credential: Credential, request: Request) -> None:
        expected = self.expected(operation, credential, request)
        before = await self.world.everything() if expected != "allowed" and request.changes else None
        answer = await self.ask(credential, request)
        about = (SEED, credential, request, answer.status, answer.body[:300])
        assert verdict_of(answer) == expected, about
        self.counted[expected] += 1
        if expected == "allowed":
            self.reached.add(operation)
            assert answer.status < 500, about
            if request.shows:
                await self.listed(credential, request, answer)
            if request.changes:
                await self.world.settle(operation)
        elif before is not None:
            assert await self.world.everything() == before, about

    def expected(self, operation: tuple[str, str], credential: Credential, request: Request) -> Verdict:
        if operation == ("GET", "/channels"):  # every known caller may ask, and gets what it may know of
            return "allowed" if credential.is_known and not credential.is_session else "unknown"
        said = judge(credential, request)
        if said == "forbidden" and operation == ("PATCH", "/channels/{channel}/messages/{serial}"):
            # The message is ann's: enough is the right to change one's own, for who comes as ann.
            [(_, channel)] = request.needs
            is_own = credential.client_id == "ann" and credential.may("message-update-own", channel)
            return "allowed" if is_own else "forbidden"
        return said

    async def ask(self, credential: Credential, request: Request) -> Answer:
        path = request.path
        if credential.in_query:
            path += f"{'&' if '?' in path else '?'}access_token={credential.text}"
        headers: dict[str, Any] = dict(credential.headers)
        body: bytes = request.body if isinstance(request.body, bytes) else codec.encode(request.body)
        if body:
            headers["content_type"] = request.content
        return await self.app.ask(request.method, path, body, key=None, leaves=True, **headers)

    async def listed(self, credential: Credential, request: Request, answer: Answer) -> None:
        """A list shows just what the caller may read: nothing more, nothing less."""
        assert request.shows
        assert request.may_show
        whole = await self.app.ask("GET", request.path)
        every = set(request.shows(whole.json))
        expected = {name for name in every if credential.may(*request.may_show(name))}
        assert set(request.shows(answer.json)) == expected, (SEED, credential, request)

    async def realtime(self, credential: Credential) -> None:
        """The same credential over a WebSocket, where sessions count for nothing."""
        if not credential.text:
            return
        channel = self.rng.choice(CHANNELS)
        try:
            async with Socket(self.app.server.realtime, access_token=credential.text) as client:
                is_known = client.connected["action"] == FrameAction.CONNECTED
                assert is_known == credential.is_known, (SEED, credential, client.connected)
                if is_known:
                    await self.attach(client, credential, channel)
        except Closed:
            assert not credential.is_known, (SEED, credential)

    async def attach(self, client: Socket, credential: Credential, channel: str) -> None:
        attached = await client.attach(channel, flags=int(sum(MODES)))
        flags = Flag(attached.get("flags", 0)) if attached["action"] == FrameAction.ATTACHED else Flag(0)
        got = {operation for mode, operation in MODES.items() if mode in flags}
        assert got == {each for each in MODES.values() if credential.may(each, channel)}, (SEED, credential)


def verdict_of(answer: Answer) -> Verdict:
    """What the server said, in the words of the model; Ably's clients get 401 with a code for both."""
    if answer.status not in (401, 403):
        return "allowed"
    error = answer.json["error"]
    return "forbidden" if error["code"] in ("forbidden", 40160) else "unknown"


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_the_server_allows_what_the_model_allows(tmp_path: Path) -> None:
    rng = random.Random(SEED)
    sys.stdout.write(f"CITEWIRE_SEED={SEED}\n")

    async def main() -> None:
        async with opened_app(tmp_path) as app:
            fuzz = Fuzz(app, rng)
            await fuzz.run(scaled(300, 10_000))
            sys.stdout.write(f"{dict(fuzz.counted)}\n")
            assert min(fuzz.counted.values()) > scaled(20, 1000)
            assert len(fuzz.reached) > scaled(20, len(fuzz.requests.operations) - 1)

    asyncio.run(main())


def test_every_operation_is_asked_for(tmp_path: Path) -> None:
    """Whoever adds an operation adds it to the fuzzer, with what it needs."""

    async def main() -> None:
        async with opened_app(tmp_path) as app:
            known = Requests(World(app), random.Random(0)).operations
            assert {(each.method, each.path) for each in app.server.operations if each.needs} <= known
            assert set(channel_calls()) <= known

    asyncio.run(main())


def channel_calls() -> Iterator[tuple[str, str]]:
    """Ably's calls that need something of a channel."""
    for path, handlers in CALLS.items():
        if path.startswith("/channels"):
            yield from ((method, path) for method in handlers)


def test_the_model_is_strict() -> None:
    """The model itself refuses and allows what the docs say."""
    table: list[tuple[str, str, bool]] = [
        ("thread:*", "thread:a", True), ("thread:*", "thread:a:b", True), ("thread:*", "thread", False),
        ("thread:*:1", "thread:a:1", True), ("thread:*:1", "thread:a:b:1", False), ("*", "a:b", True),
        ("*", "[meta]log", False), ("[*]*", "[meta]log", True), ("[*]*", "a", True),
        ("thread*", "threads", False), ("[meta]*", "[meta]log", True), ("[meta]*", "log", False),
    ]  # fmt: skip
    for pattern, name, expected in table:
        assert grants({pattern: ["read"]}, "read", name) is expected, (pattern, name)
    assert not grants({"thread:*": ["read"]}, "run", "thread:a")
    assert grants({"thread:*": ["*"]}, "run", "thread:a")
