"""A stream that follows a thread from run to run, for those who did not start them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from citewire.agui import events as ev
from citewire.agui.sse import SseParser
from citewire.channels.store import Cursor, Entry
from citewire.threadlog.names import channel_of
from support.app import App, opened_app
from support.chat_agent import HELD
from support.clock import hurried, on_clock

Event = tuple[str | None, dict[str, Any]]


def run(folder: Path, main: Callable[[App], Awaitable[None]]) -> None:
    async def opened() -> None:
        async with opened_app(folder, agent="support.chat_agent:answer") as app:
            await main(app)

    asyncio.run(opened())


def posted(run_id: str, *questions: str) -> dict[str, Any]:
    messages = [{"id": f"u{n}", "role": "user", "content": text} for n, text in enumerate(questions)]
    return {"threadId": "t", "runId": run_id, "messages": messages, "state": {"asked": len(questions)}}


async def followed(app: App, after: str | None = None) -> AsyncGenerator[Event]:
    frames = SseParser()
    async with aclosing(app.server.runs.watch_thread("t", Cursor.parse(after) if after else None)) as pieces:
        async for piece in pieces:
            for frame in frames.feed(piece):
                if frame.data:
                    yield frame.id, json.loads(frame.data)


async def up_to(events: AsyncGenerator[Event], kind: str) -> list[Event]:
    """The events up to the first of a kind."""
    seen = list[Event]()
    async for each in events:
        seen.append(each)
        if each[1]["type"] == kind:
            break
    return seen


def test_every_run_begins_with_what_was_posted(tmp_path: Path) -> None:
    async def main(app: App) -> None:
        await app.ask("POST", "/agui", posted("r1", "one"))
        async with aclosing(followed(app)) as events:
            first = await up_to(events, "RUN_FINISHED")
            await app.ask("POST", "/agui", posted("r2", "one", "two"))
            second = await up_to(events, "RUN_FINISHED")
        for seen, count in ((first, 1), (second, 2)):
            assert [each["type"] for _, each in seen[:3]] == [
                "RUN_STARTED",
                "MESSAGES_SNAPSHOT",
                "STATE_SNAPSHOT",
            ]
            assert [name is None for name, _ in seen[:3]] == [True, True, False]
            assert (len(seen[1][1]["messages"]), seen[2][1]["snapshot"]["asked"]) == (count, count)
        both = [*first, *second]
        for at, (name, _) in enumerate(both):
            if name and at + 1 < len(both):
                async with aclosing(followed(app, name)) as events:
                    assert await anext(events) == both[at + 1]

    run(tmp_path, main)


def test_verdicts_that_come_late(tmp_path: Path) -> None:
    async def main(app: App) -> None:
        await app.ask("POST", "/agui", posted("r1", "one"))
        late = ev.StateDelta([{"op": "add", "path": "/late", "value": 1}])
        async with aclosing(followed(app)) as events:
            await up_to(events, "RUN_FINISHED")
            await app.server.hub.append(channel_of("t"), [Entry("late", "late", ev.encode(late))])
            name, event = await anext(events)
        assert (event["type"], event["delta"]) == ("STATE_DELTA", late.delta)
        assert (await app.ask("GET", "/threads/t")).json["cursor"] == name

    run(tmp_path, main)


def test_who_follows_watches_the_run(tmp_path: Path) -> None:
    """It does not end because whoever asked has left."""

    async def main(app: App) -> None:
        await app.ask("POST", "/agui", posted("r1", "one"))
        async with aclosing(followed(app)) as events:
            await up_to(events, "RUN_FINISHED")
            await app.ask("POST", "/agui", posted("r2", "please wait"), leaves=True)
            await up_to(events, "TEXT_MESSAGE_CONTENT")
            assert app.server.runs.watcher_count == 1
            HELD.go_on()
            assert (await up_to(events, "RUN_FINISHED"))[-1][1]["runId"] == "r2"

    run(tmp_path, main)


def test_over_http(tmp_path: Path) -> None:
    async def main(app: App) -> None:
        assert (
            await app.ask("GET", "/threads/t/events?follow=true", accept="text/event-stream")
        ).status == 404
        await app.ask("POST", "/agui", posted("r1", "one"))
        found = await app.ask("GET", "/threads/t/events?follow=true", accept="text/event-stream", leaves=True)
        assert (found.status, found.headers["content-type"]) == (200, "text/event-stream; charset=utf-8")
        lost = await app.ask("GET", "/threads/t/events?follow=true&after=gone:1", accept="text/event-stream")
        assert lost.code == "cursor_lost"

    run(tmp_path, main)


FOLLOW = "/threads/t/events?follow=true"


def test_a_stream_ends_with_the_token_it_was_asked_for_with(tmp_path: Path) -> None:
    async def main(app: App) -> None:
        await app.ask("POST", "/agui", posted("r1", "one"))
        token = app.token({"thread:t": ["read"]}, seconds=1)
        async with asyncio.timeout(30):
            ended = await app.ask("GET", FOLLOW, key=token, accept="text/event-stream")
        assert ended.status == 200
        assert b"RUN_FINISHED" in ended.body
        again = await app.ask("GET", FOLLOW, key=token, accept="text/event-stream")
        assert (again.status, again.code) == (401, "token_expired")

    run(tmp_path, main)


@pytest.mark.parametrize("path", [FOLLOW, "/sources/events", "/answers/events"])
def test_a_stream_ends_when_its_key_is_revoked(tmp_path: Path, path: str) -> None:
    async def main() -> None:
        async with opened_app(tmp_path) as app:
            await app.ask("POST", "/agui", posted("r1", "one"))
            key = app.server.keyring.create()
            streaming = asyncio.create_task(app.ask("GET", path, key=key, accept="text/event-stream"))
            await asyncio.sleep(0)
            app.server.keyring.revoke(key.partition(":")[0])
            assert (await hurried(streaming)).status == 200

    on_clock(main())
