"""Clients that publish, annotate and listen while their servers are killed, and what is to be so afterwards.

Nothing that was acknowledged is lost, nothing counts twice, and whoever listens hears of everything once.
"""

from __future__ import annotations

import asyncio
import os
import random
import re
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlencode

import httpx2
import msgspec
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import WebSocketException

from citewire.channels.fold import AnnotationEvent, MessageEvent, event_of, replay
from citewire.channels.message import Action
from citewire.channels.store import ChannelStore, Row
from citewire.server.ably.codec import Flag, FrameAction
from citewire.testing import check_log, everything
from citewire.wakeup import Wakeup
from support.ably_server import packed
from support.server_process import descendants, environment

Json = dict[str, Any]

CHANNELS = ("ai:rivers", "ai:lakes")
ALL = int(Flag.PUBLISH | Flag.SUBSCRIBE | Flag.ANNOTATION_PUBLISH | Flag.ANNOTATION_SUBSCRIBE)
TYPES = ("all:total.v1", "seen:flag.v1", "tags:distinct.v1", "vote:unique.v1", "uses:multiple.v1", "plain")
# Frames that a client sends ahead of their acknowledgements.
AHEAD = 16
# Frames that come and go between a start and a kill, at most.
MOST_STEPS = 300
NEVER = -1
# What a client meets when its server dies.
CUT = (OSError, EOFError, WebSocketException)

# `citewire serve` as often as a byte comes, each in a process of its own: what it imports takes a second.
_SERVERS = """
import os, sys
import citewire.cli.serve, citewire.server.serve
from citewire.cli import main
while os.read(0, 1):
    if not (pid := os.fork()):
        print(os.getpid(), flush=True)
        main(["serve", *sys.argv[1:]])
    os.waitpid(pid, 0)
    print("gone", flush=True)
"""


class Server:
    """A server that is killed after so many steps of its clients, whatever it is doing."""

    def __init__(self, log: Path, *arguments: str | Path, key: str = "") -> None:
        self.key, self.port, self._arguments = key, 0, arguments
        self.up, self.down = asyncio.Event(), asyncio.Event()
        self._log, self._pid, self._left = log, 0, NEVER

    def __enter__(self) -> Self:
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-c", _SERVERS, *self._arguments, "--port", "0", "--workers", "1"],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, env=environment(),
            )  # fmt: skip
        return self

    def __exit__(self, *_: object) -> None:
        if self._pid:
            self._kill()
        self._process.communicate()

    @property
    def url(self) -> str:
        """Where it is."""
        return f"127.0.0.1:{self.port}"

    def start(self, steps: int = NEVER) -> None:
        """Start it, to be killed after so many steps."""
        assert self._process.stdin
        said = "gone"
        while said.endswith("gone"):  # it had no database for too long
            self._process.stdin.write(b".")
            self._process.stdin.flush()
            said = "\n".join(self._said("Ctrl-C", "gone"))
        self._pid = int(said.partition("\n")[0])
        found = re.search(r" at http://127\.0\.0\.1:(\d+)$", said, re.MULTILINE)
        assert found
        self.port = int(found[1])
        if key := re.search(r"^  (\S+\.\S+:\S+)$", said, re.MULTILINE):
            self.key = key[1]
        self.down.clear()
        self.up.set()
        self.kill_after(steps)

    def kill_after(self, steps: int) -> None:
        """Kill it then."""
        self._left = steps
        self._kill_in_time()

    def step(self) -> None:
        """A client has sent or heard something."""
        self._left -= 1
        self._kill_in_time()

    def _kill_in_time(self) -> None:
        if self._left == 0:
            self._kill()
            self._said("gone")
            self.up.clear()
            self.down.set()

    def _kill(self) -> None:
        # What it has started would end by itself, but only after it has begun in earnest.
        for pid in (self._pid, *descendants(self._pid)):
            os.kill(pid, signal.SIGKILL)
        self._pid = 0

    def _said(self, *last: str) -> list[str]:
        """The lines up to one with any of these in it."""
        assert self._process.stdout
        said = list[str]()
        for line in self._process.stdout:
            said.append(line.decode().rstrip("\n"))
            if any(each in line.decode() for each in last):
                return said
        raise AssertionError(self._log.read_text())


class Client:
    """A client that comes back to any server that is up, as the same connection where it `resumes`."""

    def __init__(
        self,
        servers: Sequence[Server],
        name: str,
        seed: int,
        *,
        is_packed: bool = False,
        resumes: bool = True,
    ) -> None:
        self._servers, self.server = servers, servers[0]
        self._chance = random.Random(f"{seed} {name}")
        self.name, self.is_packed, self.resumes = name, is_packed, resumes
        self._connected: Json = {}

    async def run(self) -> None:
        """Until it has done all it has to do."""
        while True:
            self.server = self._chance.choice(
                [each for each in self._servers if each.up.is_set()] or self._servers
            )
            await self.server.up.wait()
            with suppress(*CUT):
                async with connect(self._url(), proxy=None, compression=None, max_size=None) as socket:
                    self._greeted(await self.hear(socket))
                    return await self.session(socket)

    async def session(self, socket: ClientConnection) -> None:
        """What it does while it is connected."""
        raise NotImplementedError

    def _url(self) -> str:
        asked = {"key": self.server.key, "clientId": self.name}
        asked |= {"format": "msgpack"} if self.is_packed else {}
        if self._connected and self.resumes:
            asked["resume"] = self._connected["connectionDetails"]["connectionKey"]
        return f"ws://{self.server.url}/?{urlencode(asked)}"

    def _greeted(self, connected: Json) -> None:
        """A server takes up what one before it began."""
        assert connected["action"] == FrameAction.CONNECTED
        assert "error" not in connected
        is_new = not self._connected or not self.resumes
        assert is_new or connected["connectionId"] == self._connected["connectionId"]
        self._connected = connected

    async def hear(self, socket: ClientConnection) -> Json:
        """The next frame."""
        data = await socket.recv()
        self.server.step()
        return msgspec.json.decode(data) if isinstance(data, str) else msgspec.msgpack.decode(data)

    async def tell(self, socket: ClientConnection, frame: Json) -> None:
        """Send a frame."""
        data = packed(frame, self.is_packed)
        await socket.send(data if self.is_packed else data.decode())
        self.server.step()


class Writer(Client):
    """Sends ahead, and after a cut again what was not acknowledged.

    One that does not resume numbers its frames anew, and only the ids in them say what they are.
    """

    def __init__(
        self, servers: Sequence[Server], name: str, seed: int, *, ahead: int = AHEAD, **how: bool
    ) -> None:
        super().__init__(servers, name, seed, **how)
        self._ahead = ahead
        self._waiting: dict[int, Json] = {}
        self._number = self._made = 0
        self._serials: dict[str, list[str]] = {channel: [] for channel in CHANNELS}
        self._heard = Wakeup()
        self.ends = False
        self.sent: list[list[str]] = []
        """The marks of what is to be kept together, or not at all."""
        self.kept: dict[str, str] = {}
        """The serials of what was acknowledged, by its mark."""

    async def session(self, socket: ClientConnection) -> None:
        if not self.resumes:
            self._waiting = dict(enumerate(self._waiting.values()))
            self._number = len(self._waiting)
        for number, frame in list(self._waiting.items()):
            await self.tell(socket, frame | {"msgSerial": number})
        while self._waiting or not self.ends:
            while len(self._waiting) < self._ahead and not self.ends:
                number, frame = self._number, self._next()
                self._waiting[number] = frame
                self._number += 1
                await self.tell(socket, frame | {"msgSerial": number})
            self._note(await self.hear(socket))

    def _note(self, frame: Json) -> None:
        """An acknowledgement is of the frames that have waited longest."""
        if frame["action"] == FrameAction.HEARTBEAT:
            return
        if frame["action"] == FrameAction.NACK and frame["error"]["statusCode"] == 503:
            raise ConnectionResetError  # it may be kept or not: come back, and say it again
        assert frame["action"] == FrameAction.ACK, frame
        assert len(frame["res"]) == frame["count"]
        for number, result in enumerate(frame["res"], frame["msgSerial"]):
            assert number == next(iter(self._waiting))
            done = self._waiting.pop(number)
            for item, serial in zip(_items(done), result["serials"], strict=True):
                assert self.kept.setdefault(_mark(item), serial) == serial
                if item["action"] == Action.CREATE and "messages" in done:
                    self._serials[done["channel"]].append(serial)
        self._heard.notify()

    async def acknowledged(self, count: int) -> None:
        """Wait until so many more were."""
        until = len(self.kept) + count
        while len(self.kept) < until:
            await self._heard.wait()

    def _next(self) -> Json:
        channel = self._chance.choice(CHANNELS)
        self._made += 1
        known = self._serials[channel][-5:]
        kind = self._chance.choices(["message", "note", "edit"], [4, 5, 2 if self.resumes else 0])[0]
        if kind == "message" or not known:
            return {
                "action": FrameAction.MESSAGE,
                "channel": channel,
                "messages": self._several({"action": 0}),
            }
        about = self._chance.choice(known)
        if kind == "edit":
            edit = {"action": int(self._chance.choice([Action.UPDATE, Action.APPEND])), "serial": about}
            return {
                "action": FrameAction.MESSAGE,
                "channel": channel,
                "messages": [edit | {"data": self._name(0)}],
            }
        note = {
            "messageSerial": about,
            "action": int(self._chance.random() < 0.3),
            "type": self._chance.choice(TYPES),
            "name": self._chance.choice("abc"),
        }
        return {"action": FrameAction.ANNOTATION, "channel": channel, "annotations": self._several(note)}

    def _several(self, item: Json) -> list[Json]:
        [count] = self._chance.choices([1, 2, 3, 50], [30, 10, 10, 1])
        names = [self._name(at) for at in range(count)]
        self.sent.append(names)
        return [item | {"data": name} | ({} if self.resumes else {"id": name}) for name in names]

    def _name(self, at: int) -> str:
        """A mark by which it is known again; it has the form of an id."""
        return f"{self.name}.{self._made}:{at}"


def _items(frame: Json) -> list[Json]:
    return frame.get("messages") or frame["annotations"]


def _mark(item: Json) -> str:
    return item["data"]


class Listener(Client):
    """Keeps what an app would keep, and what it heard of in which order, by channel."""

    def __init__(self, servers: Sequence[Server], name: str, seed: int, **how: bool) -> None:
        super().__init__(servers, name, seed, **how)
        self._at: dict[str, str] = {}
        self._ended: set[str] = set()
        self.attached = asyncio.Event()
        self.heard: dict[str, list[str]] = {channel: [] for channel in CHANNELS}
        self.texts: dict[str, str] = {}
        self.summaries: dict[str, Any] = {}

    async def session(self, socket: ClientConnection) -> None:
        for channel in CHANNELS:
            place = {"channelSerial": self._at[channel]} if channel in self._at else {}
            await self.tell(socket, {"action": FrameAction.ATTACH, "channel": channel, "flags": ALL} | place)
        while len(self._ended) < len(CHANNELS):
            self._note(await self.hear(socket))

    def _note(self, frame: Json) -> None:
        if frame["action"] == FrameAction.HEARTBEAT:
            return
        if frame["action"] == FrameAction.DETACHED:
            raise ConnectionResetError  # the store was away: come back
        channel = frame["channel"]
        if frame["action"] == FrameAction.ATTACHED:
            assert "error" not in frame
            assert channel not in self._at or frame["flags"] & Flag.RESUMED
        self._at[channel] = frame.get("channelSerial") or self._at[channel]
        if len(self._at) == len(CHANNELS):
            self.attached.set()
        self.heard[channel] += [each["serial"] for each in frame.get("annotations", [])]
        for message in frame.get("messages", []):
            self._keep(channel, message)

    def _keep(self, channel: str, message: Json) -> None:
        serial, action = message["serial"], message["action"]
        if action == Action.CREATE:
            self.heard[channel].append(serial)
            if message["data"].startswith("end"):
                self._ended.add(channel)
        if action == Action.APPEND:
            self.texts[serial] += message["data"]
        elif action != Action.SUMMARY:
            self.texts[serial] = message["data"]
        if "annotations" in message:
            self.summaries[serial] = message["annotations"]["summary"]


class Kept:
    """What is in a store, of all channels."""

    def __init__(self) -> None:
        self.marks: dict[str, str] = {}
        self.order: dict[str, list[str]] = {}
        self.texts: dict[str, str] = {}
        self.summaries: dict[str, Any] = {}

    async def read(self, store: ChannelStore) -> Self:
        """Read it, in which numbers have no gap, and slots are what the log adds up to."""
        for channel in CHANNELS:
            name = f"channel:{channel}"
            rows = await everything(store, name, page=1000)
            check_log(rows)
            slots = await _slots(store, name)
            assert slots == replay(map(event_of, rows))
            self.order[channel] = list(self._told(rows))
            for key, value in slots.items():
                if key.startswith("m:"):
                    self.texts[key[2:]] = msgspec.msgpack.decode(value)["data"]
                if key.startswith("s:"):
                    self.summaries[key[2:]] = msgspec.msgpack.decode(value)
        return self

    def check(self, writers: Iterable[Writer]) -> None:
        """All that was acknowledged is there, where it was said to be; and what goes together, together."""
        for each in writers:
            assert each.kept.items() <= self.marks.items()
            for names in each.sent:
                assert len({name in self.marks for name in names}) == 1

    def check_all(self, writers: Iterable[Writer], listeners: Iterable[Listener]) -> None:
        """Nothing else is there, and the listeners know all of it."""
        sent = {mark for each in writers for mark in each.kept}
        assert self.marks.keys() == sent | {f"end {channel}" for channel in CHANNELS}
        for each in listeners:
            assert each.heard == self.order
            assert each.texts == self.texts
            assert each.summaries == self.summaries

    def _told(self, rows: list[Row]) -> Iterator[str]:
        """The serials of new messages and of annotations; and note each mark, which must be there once."""
        for row in rows:
            event = event_of(row)
            item = event.message if isinstance(event, MessageEvent) else event.annotation
            assert self.marks.setdefault(str(item.data), row.serial) == row.serial
            if isinstance(event, AnnotationEvent) or event.message.action is Action.CREATE:
                yield row.serial


async def _slots(store: ChannelStore, name: str) -> dict[str, bytes]:
    """All but those that say what became of ids and frames."""
    found, last = dict[str, bytes](), ""
    while page := await store.slots(name, last, "~", 1000):
        found |= {slot.key: slot.value for slot in page if slot.key[0] not in "if"}
        last = page[-1].key
    return found


def seed() -> int:
    """That of this run, which `CITEWIRE_SEED` gives again, as far as processes ever do the same."""
    number = int(os.environ.get("CITEWIRE_SEED", random.randrange(1 << 32)))
    print(f"CITEWIRE_SEED={number}")  # noqa: T201  # for whoever reads of a failure
    return number


def rest(server: Server) -> httpx2.AsyncClient:
    """A client of its REST."""
    headers = {"authorization": f"Bearer {server.key}"}
    return httpx2.AsyncClient(base_url=f"http://{server.url}", headers=headers, trust_env=False)


async def say_the_end(server: Server) -> None:
    """Tell the listeners that nothing more comes."""
    async with rest(server) as client:
        for channel in CHANNELS:
            said = await client.post(f"/channels/{channel}/messages", json={"data": f"end {channel}"})
            said.raise_for_status()
