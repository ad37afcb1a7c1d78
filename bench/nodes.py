"""`citewire serve` and `citewire worker` in processes of their own on one Postgres, raw clients in this one.

Through the wire, publishers send one annotation per frame, with so many frames unanswered at most, each in a
channel of its own, and somebody is told of each; the lag is from the sending to that. Nodes, Postgres and the
clients share the cores of this machine: where those are few, a second node has none of its own to add.

Jobs: many askers have the few quotes of an answer checked, again and again, none of them asked before. The
node's own engine does the same, with one process that looks quotes up, as each worker has.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, ExitStack, aclosing, asynccontextmanager
from itertools import count
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

import msgspec
import uvloop

from bench.annotating import DATA, NAMES, TEXT, TYPE, Timed, p99, timed
from bench.serve import fact, source
from bench.sockets import Socket
from bench.table import show
from bench.verify import ROOT
from citewire.server.ably.codec import Flag, FrameAction
from citewire.verification.verifier import QuoteCheck, Verifier

sys.path.append(str(ROOT / "tests"))
from support.postgres import Postgres
from support.server_process import Serving
from support.worker_process import MADE, Node, Working, node

UNANSWERED, WIRE_ROUNDS, WIRE_SECONDS = 64, 3, 1.5
PACE, PACED_SECONDS, P99_GOAL = 300, 5, 25
ASKERS, QUOTES, FACTS, JOB_SECONDS = 16, 5, 20_000, 3.0


# --- through the wire -------------------------------------------------------------------------------------


class _Flow:
    """One who publishes annotations on one node, and one on the same or another who is told of them."""

    def __init__(self, publisher: Socket, subscriber: Socket, channel: str, serial: str) -> None:
        self._publisher, self._subscriber, self._channel = publisher, subscriber, channel
        note = {"messageSerial": serial, "type": TYPE, "data": DATA, "encoding": "json"}
        self._notes = [{**note, "name": name} for name in NAMES]
        self.sent, self.acked, self.told = list[float](), list[float](), list[float]()
        self._moved = asyncio.Event()
        publisher.hear, subscriber.hear = self._answer, self._deliver

    @classmethod
    @asynccontextmanager
    async def between(cls, key: str, ports: tuple[int, int], channel: str) -> AsyncGenerator[_Flow]:
        """From the node at the first port to that at the second."""
        publisher = await Socket.to(ports[0], f"/?key={key}&clientId=bot")
        subscriber = await Socket.to(ports[1], f"/?key={key}")
        try:
            publisher.send(_framed(FrameAction.MESSAGE, channel, msgSerial=0, messages=[{"data": TEXT}]))
            [serial] = msgspec.json.decode(await publisher.heard.get())["res"][0]["serials"]
            subscriber.send(
                _framed(FrameAction.ATTACH, channel, flags=Flag.SUBSCRIBE | Flag.ANNOTATION_SUBSCRIBE)
            )
            await subscriber.heard.get()
            yield cls(publisher, subscriber, channel, serial)
        finally:
            publisher.close()
            subscriber.close()

    async def pressed(self, unanswered: int, seconds: float) -> None:
        """Send as many as so many unanswered ones allow, and wait until all are delivered."""
        start = perf_counter()
        while perf_counter() - start < seconds:
            self._send(len(self.acked) + unanswered - len(self.sent))
            await self._move()
        await self._end()

    async def paced(self, per_second: float, seconds: float) -> None:
        """Send so many, each in its time, and wait until all are delivered."""
        start = perf_counter()
        for at in range(int(per_second * seconds)):
            await asyncio.sleep(start + at / per_second - perf_counter())
            self._send(1)
        await self._end()

    async def _end(self) -> None:
        while min(len(self.acked), len(self.told)) < len(self.sent):
            await self._move()

    async def _move(self) -> None:
        self._moved.clear()
        await self._moved.wait()

    def _send(self, frames: int) -> None:
        some = range(len(self.sent), len(self.sent) + frames)
        self.sent += [perf_counter()] * frames
        self._publisher.send(
            *(
                _framed(
                    FrameAction.ANNOTATION, self._channel, msgSerial=n + 1, annotations=[self._notes[n % 5]]
                )
                for n in some
            )
        )

    def _answer(self, text: bytes) -> None:
        frame = msgspec.json.decode(text)
        assert frame["action"] == FrameAction.ACK, frame
        self.acked += [perf_counter()] * frame["count"]
        self._moved.set()

    def _deliver(self, text: bytes) -> None:
        self.told += [perf_counter()] * len(msgspec.json.decode(text).get("annotations", ()))
        self._moved.set()


def _framed(action: FrameAction, channel: str, **rest: Any) -> bytes:
    return msgspec.json.encode({"action": action, "channel": channel, **rest})


def _lags(before: Sequence[float], after: Sequence[float]) -> list[float]:
    return [b - a for a, b in zip(before, after, strict=True)]


async def _pressed(key: str, routes: Sequence[tuple[int, int]], turn: int) -> Timed:
    """All routes at once, each with a channel of its own: how much they deliver, and how late."""
    async with AsyncExitStack() as stack:
        flows = [
            await stack.enter_async_context(_Flow.between(key, route, f"ai:{turn}:{at}"))
            for at, route in enumerate(routes)
        ]
        await asyncio.gather(*(flow.pressed(UNANSWERED, WIRE_SECONDS) for flow in flows))
    took = max(flow.told[-1] for flow in flows) - min(flow.sent[0] for flow in flows)
    lags = [lag for flow in flows for lag in _lags(flow.sent, flow.told)]
    return Timed(len(lags) / took, p99(lags))


async def _paced(key: str, route: tuple[int, int], turn: int) -> tuple[float, float, float]:
    """The median and the 99th percentile of milliseconds until delivery, and the latter until the ACK."""
    async with _Flow.between(key, route, f"ai:{turn}") as flow:
        await flow.paced(PACE, PACED_SECONDS)
    told = _lags(flow.sent, flow.told)
    return median(told) * 1000, p99(told), p99(_lags(flow.sent, flow.acked))


def through_the_wire(server: Postgres) -> None:
    """The tables of annotations through one node and two, and of their way from node to node."""
    with server.database() as dsn, TemporaryDirectory() as folder, ExitStack() as stack:
        arguments = "--store", dsn, "--workers", "1"
        nodes = [stack.enter_context(Serving(Path(folder) / name, *arguments)) for name in "ab"]
        key, (a, b) = nodes[0].key, (node.port for node in nodes)
        turns = count()
        routes = {
            "one node": [(a, a)],
            "one node, two pairs": [(a, a), (a, a)],
            "two nodes, two pairs": [(a, a), (b, b)],
            "from one to the other": [(a, b)],
        }
        found = [
            {name: uvloop.run(_pressed(key, each, next(turns))) for name, each in routes.items()}
            for _ in range(WIRE_ROUNDS)
        ]
        rows: list[tuple[str, ...]] = []
        for name in routes:
            rate = median(each[name].rate for each in found)
            ratio = median(each[name].rate / each["one node"].rate for each in found)
            rows.append(
                (name, f"{rate:,.0f}", f"{ratio:.2f}", f"{median(each[name].p99 for each in found):.1f}")
            )
        show(
            f"Annotations through the wire on Postgres, {UNANSWERED} unanswered per publisher",
            ("", "per second", "to one node", "p99 ms to delivery"),
            rows,
        )
        rows = []
        for name, route in {"the same node": (a, a), "the other node": (a, b)}.items():
            lags = [uvloop.run(_paced(key, route, next(turns))) for _ in range(WIRE_ROUNDS)]
            lag, late, acked = map(median, zip(*lags, strict=True))
            worst = max(each[1] for each in lags)
            rows.append((name, f"{lag:.1f}", f"{late:.1f}", f"{worst:.1f}", f"≤ {P99_GOAL}", f"{acked:.1f}"))
        show(
            f"{PACE} annotations a second on one node: milliseconds until a subscriber has them",
            ("subscriber on", "p50", "p99", "worst p99", "goal", "p99 to ACK"),
            rows,
        )


# --- jobs -------------------------------------------------------------------------------------------------


def _quote(number: int) -> str:
    """A sentence of the source; when all were asked about, with a word less."""
    sentence = f"{fact(number % FACTS)}, and the refund was paid"
    return sentence.rsplit(" ", number // FACTS)[0]


async def _asked(one: Node, verifier: Verifier, facts: count[int]) -> tuple[Timed, float]:
    """Answers checked per second, and jobs."""

    async def answer(_: int, __: int) -> None:
        quotes = [QuoteCheck(None, _quote(next(facts))) for _ in range(QUOTES)]
        async with aclosing(verifier.check(quotes)) as results:
            assert [each.status async for each in results] == ["verified"] * QUOTES

    await timed(answer, ASKERS, JOB_SECONDS)  # a worker that is new reads the source first
    made, start = await one.one(MADE), perf_counter()
    checked = await timed(answer, ASKERS, JOB_SECONDS)
    return checked, (await one.one(MADE) - made) / (perf_counter() - start)


async def _by_workers(dsn: str, folder: Path) -> list[tuple[str, ...]]:
    facts, rows = count(), list[tuple[str, ...]]()
    async with node(dsn, folder / "node") as one, AsyncExitStack() as stack:
        await one.upload(source(FACTS).encode(), "policy.txt")
        own, _ = await _asked(one, one.engine, facts)
        rows.append(("the node itself", f"{own.rate * QUOTES:,.0f}", "", "1.00", f"{own.p99:.0f}"))
        for name in ("one worker", "two workers"):
            (folder / name).mkdir()
            await stack.enter_async_context(Working(dsn, folder / name, 4))
            found, jobs = await _asked(one, one.verifier, facts)
            rate, ratio = found.rate * QUOTES, found.rate / own.rate
            rows.append((name, f"{rate:,.0f}", f"{jobs:,.0f}", f"{ratio:.2f}", f"{found.p99:.0f}"))
    return rows


def checked_by_workers(server: Postgres) -> None:
    """The table of quotes checked by workers."""
    with server.database() as dsn, TemporaryDirectory() as folder:
        rows = asyncio.run(_by_workers(dsn, Path(folder)))
    title = f"Quotes checked, {ASKERS} answers at a time with {QUOTES} quotes each"
    show(title, ("by", "quotes per second", "jobs per second", "to the node", "p99 ms per answer"), rows)
