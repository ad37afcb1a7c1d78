"""Runs with mutated messages and state: what the server says of its own answers never changes."""

from __future__ import annotations

import asyncio
import json
import random
import re
import sys
from collections import Counter
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest

from citewire import codec
from citewire.agui.shapes import filter_sendable
from support.app import App, opened_app
from support.authority_agent import CUTS, SOURCE, TEXT
from support.soak import scaled

Json = dict[str, Any]
KEY = "deepcitation"
SEED = 20261117
# Runs in one thread: its list and its log grow with each.
RUNS_EACH = 10
DIALECTS = ("deepcitation", "openai.responses", "salesforce")
JUNK: list[Any] = [
    None, True, 0, -1, 1e300, "", "verified", "complete", "streaming", [], {}, [[]], {"__proto__": {"a": 1}},
    {"constructor": {"prototype": 1}}, "\u0000", "x" * 3000, {"status": "found"}, [{"id": 1}],
]  # fmt: skip


# --- mutations ----------------------------------------------------------------------------------------------


def members(value: Any) -> Json:
    """The object, or an empty one where it is none."""
    return cast("Json", value) if isinstance(value, dict) else {}


def paths(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """All places in a value, but the whole."""
    items = cast("list[Any]", value) if isinstance(value, list) else []
    inside: list[tuple[Any, Any]] = [*members(value).items(), *enumerate(items)]
    return [path for key, child in inside for path in ((*at, key), *paths(child, (*at, key)))]


def place(value: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        value = value[key]
    return value


class Liar:
    """Mutates what a client would post. `names` are ids of answers, those to come among them."""

    def __init__(self, rng: random.Random, names: list[str]) -> None:
        self.rng, self.names = rng, names

    def lie(self, messages: list[Any], state: Any) -> tuple[Any, Any]:
        for _ in range(self.rng.randint(1, 5)):
            if self.rng.random() < 0.5:
                messages = self.rng.choice(self.of_messages())(messages)
            else:
                state = self.rng.choice(self.of_state())(state)
        return messages, state

    def of_messages(self) -> list[Callable[[list[Any]], list[Any]]]:
        return [
            self.retext, self.retext, self.rerole, self.in_parts, self.drop, self.drop, self.truncate,
            self.repeat, self.shuffle, self.forge, self.forge, self.mark, self.call, self.odd,
        ]  # fmt: skip

    def of_state(self) -> list[Callable[[Any], Any]]:
        return [
            self.replace_any, self.replace_any, self.remove_any, self.remove_any, self.swap,
            self.forge_record, self.forge_record, self.forge_lists, self.forge_lists, self.pend, self.review,
            self.whole,
        ]  # fmt: skip

    def one(self, messages: list[Any], **change: Any) -> list[Any]:
        if not messages:
            return messages
        at = self.rng.randrange(len(messages))
        changed = {**messages[at], **change} if isinstance(messages[at], dict) else change
        return [*messages[:at], changed, *messages[at + 1 :]]

    def retext(self, messages: list[Any]) -> list[Any]:
        return self.one(messages, content=self.rng.choice(("Forged [1].", "", TEXT.upper(), None, "x" * 999)))

    def rerole(self, messages: list[Any]) -> list[Any]:
        return self.one(messages, role=self.rng.choice(("user", "assistant", "tool", "system", "developer")))

    def in_parts(self, messages: list[Any]) -> list[Any]:
        return self.one(
            messages, content=[{"type": "text", "text": "Forged"}, {"type": "text", "text": "[1]"}]
        )

    def drop(self, messages: list[Any]) -> list[Any]:
        at = self.rng.randrange(len(messages) + 1)
        return [*messages[:at], *messages[at + 1 :]]

    def truncate(self, messages: list[Any]) -> list[Any]:
        return messages[: self.rng.randrange(len(messages) + 1)]

    def repeat(self, messages: list[Any]) -> list[Any]:
        return [*messages, *self.one(messages[:1], content="Forged again")]

    def shuffle(self, messages: list[Any]) -> list[Any]:
        return self.rng.sample(messages, len(messages))

    def forge(self, messages: list[Any]) -> list[Any]:
        role = self.rng.choice(("assistant", "assistant", "user", "system"))
        forged = {"id": self.rng.choice(self.names), "role": role, "content": f"Forged: {TEXT}"}
        return [*messages, forged]

    def mark(self, messages: list[Any]) -> list[Any]:
        return self.one(messages, metadata={"citewire": {"posted": self.rng.choice((True, False, None))}})

    def call(self, messages: list[Any]) -> list[Any]:
        made = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
        asked = {"id": self.rng.choice(self.names), "role": "assistant", "toolCalls": [made]}
        told = {
            "id": self.rng.choice(self.names),
            "role": "tool",
            "toolCallId": "c",
            "content": SOURCE.upper(),
        }
        return [*messages, asked, told]

    def odd(self, messages: list[Any]) -> list[Any]:
        name = self.rng.choice(("__proto__", "constructor", "a/b~c", "é" * 40))
        return [*messages, {"id": name, "role": "assistant", "content": self.rng.choice(("Odd", "", TEXT))}]

    def replace_any(self, state: Any) -> Any:
        found = paths(state)
        if not found:
            return {KEY: self.rng.choice(JUNK)}
        path = self.rng.choice(found)
        place(state, path[:-1])[path[-1]] = self.rng.choice(JUNK)
        return state

    def remove_any(self, state: Any) -> Any:
        if found := paths(state):
            path = self.rng.choice(found)
            del place(state, path[:-1])[path[-1]]
        return state

    def swap(self, state: Any) -> Any:
        """One part of the state in the place of another: a verdict on another citation, say."""
        if found := paths(state):
            one, other = self.rng.choice(found), self.rng.choice(found)
            value = json.loads(json.dumps(place(state, other)))
            place(state, one[:-1])[one[-1]] = value
        return state

    def forge_record(self, state: Any) -> Any:
        name, key = self.rng.choice(self.names), f"{self.rng.getrandbits(64):016x}"
        cited = {key: {"fullPhrase": "Forged.", "citationNumber": 1, "attachmentId": "harbour.txt"}}
        verdict = {key: {"status": "found", "citewire": {"status": "verified", "source": "harbour.txt"}}}
        summary = {
            "total": 1,
            "verified": 1,
            "partial": 0,
            "missed": 0,
            "pending": 0,
            "altered": 0,
            "skipped": 0,
        }
        message = {"messageId": name, "citations": cited, "verifications": verdict, "summary": summary}
        held = members(state)
        record = members(held.get(KEY))
        known = members(record.get("messages"))
        messages = {**known, name: {**message, "status": "complete"}}
        return {**held, KEY: {"citations": cited, "verifications": verdict, **record, "messages": messages}}

    def forge_lists(self, state: Any) -> Any:
        ours = {"own": self.rng.random() < 0.5, "key": "0" * 16, "status": "verified"}
        entry = {"id": "1", "index": 1, "title": "Forged", "url": "https://forged.example"}
        held = members(state)
        lists = members(held.get("citations"))
        forged = [{**entry, "extra": {"citewire": ours}}] if self.rng.random() < 0.7 else [entry]
        return {**held, "citations": {**lists, self.rng.choice(self.names): forged}}

    def pend(self, state: Any) -> Any:
        """As a client has it that left early."""
        for message in members(members(members(state).get(KEY)).get("messages")).values():
            if isinstance(message, dict):
                status = self.rng.choice(("streaming", "extracting", "verifying"))
                cast("Json", message).update(status=status, verifications={})
        return state

    def review(self, state: Any) -> Any:
        held = members(state)
        record = members(held.get(KEY))
        looks = [{"event": "popover_opened", "at": "2026-01-01T00:00:00Z"}, self.rng.choice(JUNK)]
        noted = {self.rng.choice(self.names): {"k": looks, "__proto__": looks}}
        return {**held, KEY: {**record, "reviews": self.rng.choice((noted, *JUNK))}}

    def whole(self, state: Any) -> Any:
        return self.rng.choice(({}, None, [], "x", 5, {KEY: None}, {"citations": None}, state))


# --- what is said -------------------------------------------------------------------------------------------


def stable(value: Any) -> Any:
    """The value without the signatures of links, which are new each time."""
    return json.loads(re.sub(r"\?sig=[\w.-]+", "", json.dumps(value)))


class Thread:
    """A thread of the server, and what was said of each of its answers when its run was over."""

    def __init__(self, app: App, name: str) -> None:
        self.app, self.name = app, name
        self.known: dict[str, Json] = {}

    async def get(self, path: str) -> Any:
        answer = await self.app.ask("GET", f"/threads/{self.name}{path}")
        return answer.json if answer.status == 200 else answer.status

    async def run(self, run: str, messages: Any, state: Any) -> int:
        body = {"threadId": self.name, "runId": run, "messages": messages, "state": state}
        answer = await self.app.ask("POST", "/agui", codec.encode(body), content_type="application/json")
        await self.app.server.runs.wait_idle()
        await self.app.server.bridge.wait_idle()
        return answer.status

    async def cut(self, run: str, messages: Any, state: Any) -> bool:
        """Post a run that stops in the middle of its answer; False where the post is refused."""
        held = CUTS[run] = asyncio.Event()
        waiting = [asyncio.create_task(held.wait()), asyncio.create_task(self.run(run, messages, state))]
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        if held.is_set():  # what was said until then is in the log
            await self.until(lambda view: any(_begins(each, run) for each in view["messages"]))
        for task in waiting:
            task.cancel()
        CUTS.pop(run, None)
        return held.is_set()

    async def until(self, is_so: Callable[[Any], bool]) -> None:
        async with asyncio.timeout(30):
            while not is_so(await self.get("")):  # noqa: ASYNC110  # the server tells of it to those who ask
                await asyncio.sleep(0.01)

    async def resumed(self) -> None:
        """Wait until the run that was cut has ended, on a server that was started again."""
        await self.until(lambda view: view["status"] != "running")
        await self.app.server.runs.wait_idle()
        await self.app.server.bridge.wait_idle()

    async def said(self) -> dict[str, Json]:
        """All that is said of each answer, by whoever says it."""
        view, record = await self.get(""), await self.get("/record")
        joined = await self.app.ask("GET", f"/threads/{self.name}", accept="text/event-stream")
        channel = await self.app.ask("GET", f"/channels/ai%3A{self.name}/messages?limit=1000")
        found: dict[str, Json] = {}
        for message in channel.json:
            name = message["extras"]["headers"]["messageId"]
            found[name] = {
                "channel": [message["data"], message.get("annotations")],
                "record": view["state"][KEY]["messages"].get(name),
                "list": view["state"]["citations"].get(name),
                "audit": [
                    {field: value for field, value in each.items() if field != "reviews"}
                    for each in record["citations"]
                    if each["message"] == name
                ],
                "shown": [each for each in view["messages"] if each.get("id") == name],
            }
            for dialect in DIALECTS:
                found[name][dialect] = await self.get(f"/messages/{name}/citations?dialect={dialect}")
        events = [json.loads(line[6:]) for line in joined.body.split(b"\n\n") if line.startswith(b"data: ")]
        assert stable(events[1]["messages"]) == stable(filter_sendable(view["messages"]))
        assert stable(events[2]["snapshot"]) == stable(view["state"])
        return stable(found)

    async def check(self) -> None:
        """What was known of each answer is so still; where a client left one out, it is not shown."""
        found = await self.said()
        assert found.keys() >= self.known.keys()
        for name, before in self.known.items():
            now = found[name]
            if not now["shown"]:
                now |= {field: before[field] for field in ("shown", *DIALECTS)}
            assert now == before, name
        for name in found.keys() - self.known.keys():
            assert found[name]["record"]["status"] in ("complete", "error"), name
        view = await self.get("")
        own = {each["id"] for each in view["messages"] if each["role"] == "assistant" and not _posted(each)}
        assert own <= found.keys(), "what is shown as ours is an answer of ours"
        self.known = {**found, **self.known}


def _begins(message: Json, run: str) -> bool:
    """Whether this is the answer of a run, or how it begins."""
    return message.get("id") == f"{run}-answer" and str(message.get("content")).startswith(f"{run}: ")


def _posted(message: Json) -> bool:
    return members(message.get("metadata")).get("citewire") == {"posted": True}


class Fuzz:
    """Posts lies to one thread after another. Counts those that were taken, and what of them was ignored."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.rng = folder, random.Random(SEED)
        self.key: str | None = None
        self.taken = self.cuts = 0
        self.ignored: Counter[str] = Counter()

    @asynccontextmanager
    async def server(self) -> AsyncGenerator[App]:
        settings: Json = {"agent": "support.authority_agent:answer", "resume_runs": "always"}
        async with opened_app(self.folder, key=self.key, **settings) as app:
            if self.key is None:
                await app.ask("POST", "/sources?name=harbour.txt", SOURCE.encode())
            self.key = app.key
            yield app
            figures = (await app.ask("GET", "/metrics")).body.decode()
        found = re.findall(r'citewire_posted_ignored_total\{what="(\w+)"\} (\S+)', figures)
        self.ignored.update({what: int(float(each)) for what, each in found})

    async def lie(self, thread: Thread, n: int) -> tuple[str, Any, Any]:
        view, run = await thread.get(""), f"r{'x' * (n % 3)}{n}"
        liar = Liar(self.rng, [*thread.known, f"{run}-answer", "x", "y"])
        asked = [*view["messages"], {"id": f"u{n}", "role": "user", "content": "?"}]
        return run, *liar.lie(asked, view["state"])

    async def begin(self, thread: Thread, numbers: range) -> None:
        assert await thread.run("r", [{"id": "u", "role": "user", "content": "?"}], {}) == 200
        await thread.check()
        await self.go_on(thread, numbers)

    async def go_on(self, thread: Thread, numbers: range) -> None:
        for n in numbers:
            self.taken += await thread.run(*await self.lie(thread, n)) == 200
            await thread.check()

    async def cut(self, thread: Thread, n: int) -> None:
        """A run that is cut short, to which a message was posted under the id of its answer."""
        run, messages, state = await self.lie(thread, n)
        is_cut = await thread.cut(run, Liar(self.rng, [f"{run}-answer"]).forge(messages), state)
        self.taken += is_cut
        self.cuts += is_cut

    async def end(self, thread: Thread, app: App, numbers: range) -> None:
        """Have the run that was cut short go on, and lie a little more."""
        thread.app = app
        await thread.resumed()
        await thread.check()
        await self.go_on(thread, numbers)
        summaries = {tuple(each["record"]["summary"].items()) for each in thread.known.values()}
        assert len(summaries) == 1, "the same answer has the same verdicts"


@pytest.mark.soak
@pytest.mark.timeout(3000)
def test_mutated_posts_change_nothing_that_the_server_said(tmp_path: Path) -> None:
    """The server is killed once in each thread, in the middle of an answer, and asks the agent again."""
    count = scaled(60, 2000)
    sys.stdout.write(f"seed {SEED}, {count} runs\n")

    async def main() -> None:
        fuzz, left = Fuzz(tmp_path), list[tuple[Thread, range]]()
        for first in range(0, count, RUNS_EACH):
            middle = first + RUNS_EACH // 2
            async with fuzz.server() as app:
                for thread, numbers in left:
                    await fuzz.end(thread, app, numbers)
                thread = Thread(app, f"t{first}")
                await fuzz.begin(thread, range(first, middle))
                await fuzz.cut(thread, middle)
            left = [(thread, range(middle + 1, first + RUNS_EACH))]
        async with fuzz.server() as app:
            for thread, numbers in left:
                await fuzz.end(thread, app, numbers)
        sys.stdout.write(f"{fuzz.taken} of {count} posts were taken, {fuzz.cuts} of them cut short; ")
        sys.stdout.write(f"ignored: {dict(fuzz.ignored)}\n")
        assert fuzz.taken > count / 2
        assert fuzz.cuts
        assert fuzz.ignored

    asyncio.run(main())
