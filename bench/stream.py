"""The middleware on a stream: CPU of the server for each event, and how much later a delta arrives.

An agent sends one event per write over loopback HTTP; a server relays it, as raw bytes, through the
middleware with and without citations, or through the models of ag-ui-protocol; a client reads it. Agent,
server and client are three processes, and what is counted is the CPU time of the server alone: the workers
that search are processes of their own. A delta carries the time at which it was sent.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing as mp
import os
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterator, MutableMapping
from contextlib import contextmanager
from statistics import median, quantiles
from typing import Any

import httpx2
import uvicorn
from ag_ui.core import Event
from ag_ui.encoder import EventEncoder
from pydantic import TypeAdapter

from bench.table import show
from citewire.agui.asgi import CitationMiddleware
from citewire.verification.sources import SourceContent

Message = MutableMapping[str, Any]
Send = Callable[[Message], Awaitable[None]]

EVENTS, CITATIONS, ROUNDS = 2000, 20, 5
# Seconds between events: that of a fast model, and long enough that no two are read at once.
PACE = 0.001
WORDS = [f"Item {n} was returned within {n + 10} days of purchase" for n in range(CITATIONS)]
SOURCE = SourceContent("\n".join(f"{words}, and the refund was paid." for words in WORDS * 200), "policy.txt")
INPUT: dict[str, Any] = {
    "threadId": "t",
    "runId": "r",
    "messages": [],
    "state": {},
    "tools": [],
    "context": [],
}


def block() -> str:
    entries = [{"id": n + 1, "full_phrase": words} for n, words in enumerate(WORDS)]
    return f"\n<<<CITATION_DATA>>>\n{json.dumps({'policy.txt': entries})}\n<<<END_CITATION_DATA>>>"


def events(cited: bool) -> Iterator[dict[str, Any]]:
    """The cited one has its block in the middle, so that it is checked while the rest streams."""
    yield {"type": "RUN_STARTED", "threadId": "t", "runId": "r"}
    yield {"type": "TEXT_MESSAGE_START", "messageId": "m", "role": "assistant"}
    pieces = ["word " for _ in range(EVENTS)]
    if cited:
        text = block()
        size = -(-len(text) // 200)
        pieces[100:300] = [text[at : at + size] for at in range(0, len(text), size)]
    for piece in pieces:
        yield {"type": "TEXT_MESSAGE_CONTENT", "messageId": "m", "delta": piece}
    yield {"type": "TEXT_MESSAGE_END", "messageId": "m"}
    yield {"type": "RUN_FINISHED", "threadId": "t", "runId": "r"}


def agent(listener: socket.socket) -> None:
    """The agent: a bare server, one event per write, each with the time at which it was written."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = next(
            int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length")
        )
        await reader.readexactly(length)
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n")
        for event in events(b"cited" in head.split(b"\r\n", 1)[0]):
            await asyncio.sleep(PACE)
            stamped = {**event, "timestamp": time.monotonic_ns() // 1000}
            writer.write(f"data: {json.dumps(stamped)}\n\n".encode())
            await writer.drain()
        writer.close()

    async def main() -> None:
        async with await asyncio.start_server(answer, sock=listener) as server:
            await server.serve_forever()

    asyncio.run(main())


def relay(base: str, through: Callable[[AsyncIterator[bytes]], AsyncIterator[bytes]] | None = None) -> Any:
    """An app that passes a request on to the agent, and its answer back."""
    client = httpx2.AsyncClient(timeout=None)

    async def app(scope: Message, receive: Any, send: Send) -> None:
        body = (await receive())["body"]
        async with client.stream("POST", f"{base}{scope['path']}", content=body) as response:
            headers = [(b"content-type", b"text/event-stream")]
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            pieces = response.aiter_raw()
            async for piece in through(pieces) if through else pieces:
                await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    return app


async def through_models(pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    adapter, encoder, held = TypeAdapter[Any](Event), EventEncoder(), b""
    async for piece in pieces:
        *frames, held = (held + piece).split(b"\n\n")
        for frame in frames:
            yield encoder.encode(adapter.validate_json(frame.removeprefix(b"data: "))).encode()


def server(listener: socket.socket, agent_url: str) -> None:
    plain, models = relay(agent_url), relay(agent_url, through_models)
    citing = CitationMiddleware(relay(agent_url), sources=SOURCE, image_format=None)

    async def app(scope: Message, receive: Any, send: Send) -> None:
        if scope["path"] == "/cpu":
            headers = [(b"content-type", b"text/plain")]
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            await send({"type": "http.response.body", "body": str(time.process_time()).encode()})
        else:
            kind, _, path = scope["path"][1:].partition("/")
            chosen = {"relay": plain, "models": models, "citing": citing}[kind]
            await chosen({**scope, "path": f"/{path}"}, receive, send)

    uvicorn.Server(uvicorn.Config(app, log_config=None, lifespan="off")).run(sockets=[listener])


@contextmanager
def running(target: Callable[..., None], *args: Any) -> Generator[str]:
    """The address of a server in a process of its own."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        process = mp.get_context("fork").Process(target=target, args=(listener, *args))
        process.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            process.terminate()
            process.join(10)
            process.kill()


def read(url: str, path: str) -> tuple[float, list[float]]:
    """CPU microseconds of the server for each event of a run, and milliseconds until each delta was there."""
    waits: list[float] = []
    with httpx2.Client(timeout=60) as client:
        before = float(client.get(f"{url}/cpu").text)
        with client.stream("POST", f"{url}/{path}", json=INPUT) as response:
            for piece in response.iter_raw():
                now = time.monotonic_ns() // 1000
                said = [frame for frame in piece.split(b"\n\n") if b'"TEXT_MESSAGE_CONTENT"' in frame]
                waits += [(now - json.loads(frame[6:]).get("timestamp", now)) / 1000 for frame in said]
        after = float(client.get(f"{url}/cpu").text)
    return (after - before) / EVENTS * 1e6, waits


KINDS = {
    "raw byte relay": "relay/plain",
    "middleware, no citations": "citing/plain",
    f"middleware, {CITATIONS} citations": "citing/cited",
    "models of ag-ui-protocol": "models/plain",
}


def main() -> None:
    """Print the table."""
    costs: dict[str, list[float]] = {name: [] for name in KINDS}
    waits: dict[str, list[float]] = {name: [] for name in KINDS}
    with running(agent) as agent_url, running(server, agent_url) as url:
        for path in KINDS.values():
            read(url, path)
        for _ in range(ROUNDS):
            for name, path in KINDS.items():
                cost, waited = read(url, path)
                costs[name].append(cost)
                waits[name] += waited
    base = "raw byte relay"
    rows = [
        (
            name,
            f"{median(costs[name]):.0f} µs",
            f"{median(ours / theirs for ours, theirs in zip(costs[name], costs[base], strict=True)):.2f}",
            f"{median(waits[name]):.2f} ms",
            f"{quantiles(waits[name], n=100)[-1]:.2f} ms",
        )
        for name in KINDS
    ]
    title = f"{EVENTS} events over HTTP, {PACE * 1000:g} ms apart, {ROUNDS} rounds, {os.cpu_count()} cores"
    show(title, ("", "CPU per event", "ratio", "delta there after", "99 %"), rows)


if __name__ == "__main__":
    main()
