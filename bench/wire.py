"""`citewire serve` in a process of its own, and raw clients in this one: annotations through it, and fan-out.

Through the wire, one client publishes one annotation per frame, with so many frames unanswered at most, and
another one is told of each and of the summaries. More of them on their way share a sync, and wait longer.

Fan-out is compared with python-socketio, which runs under uvicorn as we do: one client publishes, all others
get the same JSON, and what they get is counted until all have all. We have every message on disk before
anybody gets it; socketio keeps none. `one by one`: each is published once all have the last. `at once`: all
are sent together, and we make fewer and larger frames of them.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable
from itertools import count
from pathlib import Path
from statistics import median, quantiles
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

import msgspec
import uvloop

from bench.sockets import Socket, socketio
from bench.table import show
from bench.verify import ROOT
from citewire.server.ably.codec import Flag, FrameAction

sys.path.append(str(ROOT / "tests"))
from support.server_process import Serving  # the server as people run it

_FRAMES, _WINDOWS, _WIRE_ROUNDS = 8_000, (32, 64, 256), 3
_GOAL, _P99_GOAL = 4_000, 25
_AUDIENCES, _DELIVERIES, _ROUNDS, _FAN_GOAL = (100, 1000), 20_000, 3, 3
# A thousand clients at one address.
_LIMITS = ("--rate", "10000", "--burst", "10000", "--max-client-requests", "5000", "--max-requests", "5000")
_TEXT = "The Danube rises in Germany and ends in the Black Sea. " * 20
_DATA = {
    "url": "https://rivers.example/danube", "title": "Danube facts", "startOffset": 40, "endOffset": 53,
    "snippet": "empties into the Black Sea",
}  # fmt: skip
_MARK = b"rivers.example/danube"
"""Once in everything that is delivered."""


def _framed(action: FrameAction, channel: str, **rest: Any) -> bytes:
    return json.dumps({"action": action, "channel": channel, **rest}).encode()


async def _until(is_so: Callable[[], object]) -> None:
    while not is_so():  # noqa: ASYNC110  # what comes is counted, and nobody else is told
        await asyncio.sleep(0.0005)


# --- annotations through the wire -------------------------------------------------------------------------


class _Pipeline:
    """When frames were sent, and acknowledged, and when what was in them was delivered."""

    def __init__(self) -> None:
        self.sent, self.acked, self.told = list[float](), list[float](), list[float]()
        self._moved = asyncio.Event()

    def answer(self, text: bytes) -> None:
        frame = msgspec.json.decode(text)
        assert frame["action"] == FrameAction.ACK, frame
        self.acked += [perf_counter()] * frame["count"]
        self._moved.set()

    def deliver(self, text: bytes) -> None:
        self.told += [perf_counter()] * len(msgspec.json.decode(text).get("annotations", ()))

    async def run(self, publisher: Socket, channel: str, serial: str, window: int) -> None:
        note = {"messageSerial": serial, "type": "citations:multiple.v1", "data": _DATA}
        notes = [{**note, "name": f"{name}.example"} for name in "abcde"]
        while len(self.acked) < _FRAMES:
            some = range(len(self.sent), min(_FRAMES, len(self.acked) + window))
            frames = [
                _framed(FrameAction.ANNOTATION, channel, msgSerial=n + 1, annotations=[notes[n % 5]])
                for n in some
            ]
            self.sent += [perf_counter()] * len(frames)
            self._moved.clear()
            publisher.send(*frames)
            await self._moved.wait()
        await _until(lambda: len(self.told) == _FRAMES)


async def _annotated(serving: Serving, channel: str, window: int) -> tuple[float, float, float]:
    """Annotations per second, and the 99th percentile of milliseconds until ACK and until delivery."""
    publisher = await Socket.to(serving.port, f"/?key={serving.key}&clientId=bot")
    publisher.send(_framed(FrameAction.MESSAGE, channel, msgSerial=0, messages=[{"data": _TEXT}]))
    [serial] = json.loads(await publisher.heard.get())["res"][0]["serials"]
    subscriber = await Socket.to(serving.port, f"/?key={serving.key}")
    subscriber.send(_framed(FrameAction.ATTACH, channel, flags=Flag.SUBSCRIBE | Flag.ANNOTATION_SUBSCRIBE))
    await subscriber.heard.get()
    pipeline = _Pipeline()
    publisher.hear, subscriber.hear = pipeline.answer, pipeline.deliver
    await pipeline.run(publisher, channel, serial, window)
    publisher.close()
    subscriber.close()
    rate = _FRAMES / (pipeline.told[-1] - pipeline.sent[0])
    return rate, _p99(pipeline.sent, pipeline.acked), _p99(pipeline.sent, pipeline.told)


def _p99(before: list[float], after: list[float]) -> float:
    return quantiles((b - a for a, b in zip(before, after, strict=True)), n=100)[98] * 1000


def through_the_wire() -> None:
    """The table of annotations per second through a server."""

    async def measure(serving: Serving, window: int) -> tuple[float, ...]:
        rounds = [await _annotated(serving, f"ai:{window}:{n}", window) for n in range(_WIRE_ROUNDS)]
        return tuple(map(median, zip(*rounds, strict=True)))

    rows: list[tuple[str, ...]] = []
    with TemporaryDirectory() as folder, Serving(Path(folder) / "data", *_LIMITS) as serving:
        for window in _WINDOWS:
            rate, acked, told = uvloop.run(measure(serving, window))
            figures = f"{rate:,.0f}", f"≥ {_GOAL:,}", f"{acked:.1f}", f"{told:.1f}", f"≤ {_P99_GOAL}"
            rows.append((str(window), *figures))
    head = ("unanswered", "per second", "goal", "p99 ms to ACK", "to delivery", "goal")
    show("Annotations through the wire, one per frame", head, rows)


# --- fan-out ----------------------------------------------------------------------------------------------


class _Audience:
    """Clients of one server, and one who publishes; `frame` gives what is published next."""

    def __init__(self, publisher: Socket, frame: Callable[[], bytes]) -> None:
        self._publisher, self._frame = publisher, frame
        self._members: list[Socket] = []
        self._got = 0

    async def join(self, size: int, port: int, path: str, word: bytes, *hello: bytes) -> None:
        """Have so many members, who say hello and wait for a word."""

        async def member() -> Socket:
            made = await Socket.to(port, path)
            made.send(*hello)
            while word not in await made.heard.get():
                pass
            made.hear = self._hear
            return made

        while len(self._members) < size:
            self._members += await asyncio.gather(*(member() for _ in range(50)))

    def _hear(self, text: bytes) -> None:
        self._got += text.count(_MARK)

    async def deliver(self, messages: int, at_once: int) -> float:
        """Deliveries per second of so many messages."""
        self._got, start, due = 0, perf_counter(), 0
        for _ in range(0, messages, at_once):
            self._publisher.send(*(self._frame() for _ in range(at_once)))
            due += at_once * len(self._members)
            await _until(lambda: self._got >= due)  # noqa: B023  # it is called before the next
        assert self._got == due, "some came twice"
        return due / (perf_counter() - start)


async def _ours(serving: Serving, size: int) -> _Audience:
    path, channel, numbers = f"/?key={serving.key}", f"ai:{size}", count()
    message = {"name": "cite", "data": _DATA}
    audience = _Audience(
        await Socket.to(serving.port, path),
        lambda: _framed(FrameAction.MESSAGE, channel, msgSerial=next(numbers), messages=[message]),
    )
    await audience.join(size, serving.port, path, b'"action":11', _framed(FrameAction.ATTACH, channel))
    return audience


async def _theirs(port: int, size: int) -> _Audience:
    path = "/socket.io/?EIO=4&transport=websocket"
    publisher = await Socket.to(port, path)
    publisher.send(b"40")
    await publisher.heard.get()
    frame = b"42" + json.dumps(["cite", _DATA]).encode()
    audience = _Audience(publisher, lambda: frame)
    await audience.join(size, port, path, b'"joined"', b"40", b'42["join",0]')
    return audience


async def _compared(serving: Serving, port: int, size: int) -> list[tuple[str, ...]]:
    audiences = await _ours(serving, size), await _theirs(port, size)
    rows: list[tuple[str, ...]] = []
    messages = _DELIVERIES // size
    for name, at_once in (("one by one", 1), ("at once", messages)):
        rounds = [[await each.deliver(messages, at_once) for each in audiences] for _ in range(_ROUNDS)]
        rates = [f"{median(each):,.0f}" for each in zip(*rounds, strict=True)]
        ratio = median(ours / theirs for ours, theirs in rounds)
        rows.append((f"{size:,}, {name}", *rates, f"{ratio:.1f}", f"≥ {_FAN_GOAL}"))
    return rows


def fan_out() -> None:
    """The table of deliveries per second to many, in comparison."""
    with TemporaryDirectory() as folder, Serving(Path(folder) / "data", *_LIMITS) as serving:
        rows: list[tuple[str, ...]] = []
        for size in _AUDIENCES:
            with socketio() as port:
                rows += uvloop.run(_compared(serving, port, size))
    show("Fan-out: deliveries per second", ("subscribers", "citewire", "socketio", "ratio", "goal"), rows)


def main() -> None:
    through_the_wire()
    fan_out()


if __name__ == "__main__":
    main()
