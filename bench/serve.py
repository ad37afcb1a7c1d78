"""The server under load: how much later deltas come through it, checks per second, and its cold start.

An agent streams ten deltas a second to each of many clients at once, and every tenth of them cites. The
clients read it directly, and through `citewire serve`, round by round, so that a busy moment hits both. A gap
is the time between two deltas of a stream; what is extra of it is the difference to the same gap of the same
stream in the direct run. An answer is whole where every word came and every citation ended verified.

Agent, server, its worker and the clients share the cores of this machine: where those are few, the server
does not have one to itself. `python -m bench.serve 50 100` runs other numbers of streams.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import re
import socket
import sys
import tempfile
from bisect import bisect_left
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from itertools import accumulate, pairwise
from pathlib import Path
from random import Random
from statistics import median, quantiles
from time import perf_counter
from typing import Any, NamedTuple

import httpx2
import msgspec
import uvloop

from bench.stream import running
from bench.table import show
from bench.verify import ROOT
from citewire.extraction import extract
from citewire.verification.engine import Engine
from citewire.verification.report import list_quote_checks, make_report
from citewire.verification.sources import SourceContent

sys.path.append(str(ROOT / "tests"))
from support.server_process import Serving, asked  # the server as people run it

STREAMS, ROUNDS = (100, 250, 500), 2
SECONDS, PACE, CITATIONS = 20, 0.1, 20
DELTAS = int(SECONDS / PACE)
# Seconds in which the streams begin, each at a time of its own.
RAMP = 5.0
# Milliseconds.
GOAL = 100
CHECKS, CHECKERS, CHECK_SECONDS, STARTS = 3, 8, 4.0, 5

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"
THREAD = re.compile(rb'"threadId": ?"\d+-(\d+)"')
EVENT = re.compile(rb"^data: (.*)$", re.MULTILINE)


def fact(number: int) -> str:
    return f"Item {number} was returned within {number % 80 + 10} days of purchase"


def source(facts: int) -> str:
    return "\n".join(f"{fact(number)}, and the refund was paid." for number in range(facts))


def cited(number: int) -> str:
    return f"<cite attachment_id='policy.txt' full_phrase='{fact(number)}'/>"


def deltas(stream: int) -> list[tuple[str, str]]:
    """What the agent says to one client: words that are seen, and tags after them. No two cite the same."""
    every = DELTAS // CITATIONS
    tags = {every * n: cited(stream * CITATIONS + n) for n in range(CITATIONS)}
    return [(f"word {n} ", tags.get(n, "")) for n in range(DELTAS)]


# --- the agent --------------------------------------------------------------------------------------------


def frames(stream: int) -> list[bytes]:
    ids, said = {"threadId": "t", "runId": "r"}, {"messageId": "m"}
    events = [
        {"type": "RUN_STARTED", **ids},
        {"type": "TEXT_MESSAGE_START", "role": "assistant", **said},
        *({"type": "TEXT_MESSAGE_CONTENT", "delta": seen + tag, **said} for seen, tag in deltas(stream)),
        {"type": "TEXT_MESSAGE_END", **said},
        {"type": "RUN_FINISHED", **ids},
    ]
    return [f"data: {json.dumps(event)}\n\n".encode() for event in events]


class Speaker(asyncio.Protocol):
    """The agent towards one client: a frame in each write, by the clock, whatever became of the last."""

    def connection_made(self, transport: Any) -> None:
        self._transport, self._heard = transport, b""
        self._loop = asyncio.get_running_loop()

    def data_received(self, data: bytes) -> None:
        self._heard += data
        if (found := THREAD.search(self._heard)) and self._heard.endswith(b"}"):
            self._told, self._due = iter(frames(int(found[1]))), self._loop.time()
            self._transport.write(HEAD)
            self._say()

    def _say(self) -> None:
        told = next(self._told, None)
        if told is None or self._transport.is_closing():
            self._transport.close()
        else:
            self._transport.write(told)
            self._due += PACE
            self._loop.call_at(self._due, self._say)


def agent(listener: socket.socket) -> None:
    async def main() -> None:
        server = await asyncio.get_running_loop().create_server(Speaker, sock=listener)
        await server.serve_forever()

    uvloop.run(main())


# --- the clients ------------------------------------------------------------------------------------------


class Heard(NamedTuple):
    """Milliseconds between the deltas of an answer, its text, and how many of its citations are verified."""

    gaps: list[float]
    text: str
    verified: int


class Listener(asyncio.Protocol):
    """A client: notes what comes and when. It is read once all is over."""

    def __init__(self, request: bytes) -> None:
        self._request = request
        self._times: list[float] = []
        self._pieces: list[bytes] = []
        self.gone: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: Any) -> None:
        transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        self._times.append(perf_counter())
        self._pieces.append(data)

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        if not self.gone.done():
            self.gone.set_result(None)

    def heard(self) -> Heard:
        ends = list(accumulate(map(len, self._pieces)))
        times: list[float] = []
        text, verified = "", 0
        for found in EVENT.finditer(b"".join(self._pieces)):
            event = msgspec.json.decode(found[1])
            if event["type"] == "TEXT_MESSAGE_CONTENT":
                times.append(self._times[bisect_left(ends, found.end())])
                text += event["delta"]
            elif event.get("name") == "citewire.message_complete":
                verified = event["value"]["summary"]["verified"]
        return Heard([1e3 * (later - earlier) for earlier, later in pairwise(times)], text, verified)


def post(place: str, body: Any, headers: dict[str, str]) -> bytes:
    data = json.dumps(body).encode()
    sent = {
        "host": place,
        "connection": "close",
        "content-type": "application/json",
        "content-length": str(len(data)),
        **headers,
    }
    lines = ["POST /agui HTTP/1.1", *(f"{name}: {value}" for name, value in sent.items())]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + data


async def wave(url: str, headers: dict[str, str], streams: int, number: int) -> list[Heard]:
    """What the clients heard of one run each."""
    random, loop = Random(number), asyncio.get_running_loop()
    place = url.removeprefix("http://")
    host, _, port = place.partition(":")

    async def listen(stream: int) -> Listener:
        body = asked(f"{number}-{stream}", text="What was returned?", state={}, tools=[], context=[])
        request = post(place, body, headers)
        await asyncio.sleep(random.random() * RAMP)
        _, listener = await loop.create_connection(lambda: Listener(request), host, int(port))
        await asyncio.wait_for(listener.gone, 5 * (SECONDS + RAMP))
        return listener

    gc.collect()
    gc.disable()  # a pause of ours would be a gap
    try:
        listeners = await asyncio.gather(*map(listen, range(streams)))
    finally:
        gc.enable()
    return [listener.heard() for listener in listeners]


# --- streams ----------------------------------------------------------------------------------------------


class Load:
    """Gaps of the answers that were whole, how many those were, and what the server took."""

    def __init__(self) -> None:
        self.direct: list[float] = []
        self.through: list[float] = []
        self.extra: list[float] = []
        self.whole = 0
        self.cpu = 0.0
        self.memory: list[float] = []

    def add(self, stream: int, plain: Heard, ours: Heard) -> None:
        if ours.text == "".join(seen for seen, _ in deltas(stream)) and ours.verified == CITATIONS:
            self.whole += 1
            self.direct += plain.gaps
            self.through += ours.gaps
            self.extra += [gap - was for gap, was in zip(ours.gaps, plain.gaps, strict=True)]

    def row(self, streams: int) -> tuple[str, ...]:
        return (
            f"{streams}",
            f"{self.whole / (ROUNDS * streams):.0%}",
            *(_at(99.9, gaps) for gaps in (self.direct, self.through)),
            *(_at(share, self.extra) for share in (50, 99, 99.9)),
            f"≤ {GOAL} ms",
            f"{self.cpu:.0f} µs",
            " → ".join(f"{each:.0f}" for each in self.memory) + " MB",
            f"{os.getloadavg()[0]:.1f}",
        )


def _at(share: float, values: Sequence[float]) -> str:
    return f"{quantiles(values, n=1000)[round(share * 10) - 1]:.0f} ms" if len(values) > 1 else "none"


def figures(serving: Serving) -> tuple[float, float]:
    """Seconds of CPU and MB of memory that the server has taken, without its worker."""
    with serving.client() as client:
        told = client.get("/metrics").text.splitlines()
    values = dict(line.rsplit(" ", 1) for line in told if not line.startswith("#"))
    return float(values["process_cpu_seconds_total"]), float(values["process_resident_memory_bytes"]) / 1e6


def ready(serving: Serving) -> None:
    """Wait until the sources are read."""
    for _ in range(600):
        if all(each["state"] == "ready" for each in serving.get("/sources")["sources"]):
            return
        asyncio.run(asyncio.sleep(0.1))
    raise TimeoutError("the sources are not read")


def load(streams: int, folder: Path, agent_url: str) -> Load:
    (folder / "policy.txt").write_text(source(streams * CITATIONS))
    found = Load()
    arguments = "--agent", f"{agent_url}/agui", "--sources", folder / "policy.txt", "--workers", "1"
    with Serving(folder / "data", *arguments) as serving:
        ready(serving)
        uvloop.run(wave(serving.url, serving.headers, min(streams, 20), 0))
        began = figures(serving)[0]
        for number in range(1, ROUNDS + 1):
            plain = uvloop.run(wave(agent_url, {}, streams, number))
            ours = uvloop.run(wave(serving.url, serving.headers, streams, number))
            for stream in range(streams):
                found.add(stream, plain[stream], ours[stream])
            found.memory.append(figures(serving)[1])
        found.cpu = 1e6 * (figures(serving)[0] - began) / (ROUNDS * streams * DELTAS)
    return found


def loads(counts: Sequence[int]) -> None:
    rows: list[tuple[str, ...]] = []
    with running(agent) as agent_url:
        for streams in counts:
            with tempfile.TemporaryDirectory() as folder:
                rows.append(load(streams, Path(folder), agent_url).row(streams))
    head = ("streams", "whole", "direct 99.9 %", "through 99.9 %", "extra 50 %", "99 %", "99.9 %", "goal")
    title = f"{1 / PACE:g} deltas a second for {SECONDS} s, {CITATIONS} citations each, {ROUNDS} rounds"
    show(f"{title}, {os.cpu_count()} cores", (*head, "CPU per delta", "memory", "load"), rows)


# --- checks -----------------------------------------------------------------------------------------------


def small(number: int) -> str:
    return " ".join(f"This is so {cited(number + n)}." for n in range(CHECKS))


async def rate(check: Callable[[int], Awaitable[None]]) -> float:
    """Checks per second, each of the checkers waiting for one before it asks for the next."""
    start, done = perf_counter(), 0

    async def work(checker: int) -> None:
        nonlocal done
        while perf_counter() - start < CHECK_SECONDS:
            await check(checker * CHECKS)
            done += 1

    await asyncio.gather(*map(work, range(CHECKERS)))
    return done / (perf_counter() - start)


async def served(serving: Serving) -> float:
    async with httpx2.AsyncClient(base_url=serving.url, headers=serving.headers, timeout=30) as client:

        async def check(number: int) -> None:
            answer = await client.post("/verify", json={"answer": small(number)})
            assert answer.json()["counts"] == {"verified": CHECKS}, answer.text

        return await rate(check)


async def called(text: str) -> float:
    async with Engine(SourceContent(text, "policy.txt"), workers=1) as engine:

        async def check(number: int) -> None:
            answer = extract(small(number)).answer
            async with aclosing(engine.check(list_quote_checks(answer))) as results:
                checks = [checked async for checked in results]
            assert make_report(answer, checks).counts == {"verified": CHECKS}

        await check(0)
        return await rate(check)


def checks() -> None:
    text = source(CHECKS * CHECKERS)
    with tempfile.TemporaryDirectory() as folder:
        (path := Path(folder) / "policy.txt").write_text(text)
        arguments = "--sources", path, "--workers", "1", "--rate", "1e6", "--burst", "1000000"
        with Serving(Path(folder) / "data", *arguments) as serving:
            ready(serving)
            uvloop.run(served(serving))
            pairs = [(uvloop.run(served(serving)), uvloop.run(called(text))) for _ in range(3)]
    ours, theirs = (median(rates) for rates in zip(*pairs, strict=True))
    share = median(ours / theirs for ours, theirs in pairs)
    title = f"Answers with {CHECKS} citations checked per second, {CHECKERS} at a time"
    row = f"{ours:.0f}", f"{theirs:.0f}", f"{share:.2f}", f"{os.getloadavg()[0]:.1f}"
    show(title, ("POST /verify", "the engine itself", "ratio", "load"), [row])


# --- the start --------------------------------------------------------------------------------------------


def first_answer(folder: Path) -> tuple[float, float, float]:
    """Seconds from nothing until the server listens, until the first words, and until all is verified."""
    samples = ROOT / "src" / "citewire" / "samples"
    began, words, summary = perf_counter(), 0.0, {"total": 0, "verified": 0}
    with Serving(folder, "--sources", samples) as serving:
        listens = perf_counter() - began
        with serving.watch("/agui", asked("t", folder.name, "What is the refund policy?")) as events:
            for _, event in events:
                if event["type"] == "TEXT_MESSAGE_CONTENT":
                    words = words or perf_counter() - began
                if event.get("name") == "citewire.message_complete":
                    summary = event["value"]["summary"]
        assert summary["verified"] == summary["total"] > 0, summary
        return listens, words, perf_counter() - began


def starts() -> None:
    with tempfile.TemporaryDirectory() as folder:
        times = [first_answer(Path(folder) / str(number)) for number in range(STARTS)]
    row = (*(f"{median(each):.2f} s" for each in zip(*times, strict=True)), f"{os.getloadavg()[0]:.1f}")
    show(
        "From the start of the process, with nothing kept",
        ("listens", "first words", "verified", "load"),
        [row],
    )


def main(counts: Sequence[int] = STREAMS) -> None:
    """Print the tables."""
    loads(counts)
    checks()
    starts()


if __name__ == "__main__":
    main([int(each) for each in sys.argv[1:]] or STREAMS)
