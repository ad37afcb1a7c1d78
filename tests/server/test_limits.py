"""What one client can do to the others: in-process for requests, over real sockets for connections."""

from __future__ import annotations

import asyncio
import json
import socket
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator, Iterable
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any, TypeAlias

import pytest
import uvicorn
import uvloop
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from citewire.server.ops import limits
from citewire.server.ops.connections import make_http_protocol, make_websocket_protocol
from citewire.server.ops.limits import RequestLimits, client_address
from citewire.server.ops.settings import Settings

OK = b"HTTP/1.1 200 OK"
Runner: TypeAlias = Callable[[Coroutine[Any, Any, None]], None]


async def echo_size(scope: Scope, receive: Receive, send: Send) -> None:
    """Answers with the size of the body, which it reads piece by piece."""
    size, more = 0, True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            return
        size, more = size + len(message["body"]), message["more_body"]
    await Response(str(size))(scope, receive, send)


class Answer:
    """What an app sent for one request."""

    def __init__(self) -> None:
        self.sent: list[Message] = []

    async def send(self, message: Message) -> None:
        self.sent.append(message)

    @property
    def status(self) -> int:
        return self.sent[0]["status"]

    @property
    def headers(self) -> dict[bytes, bytes]:
        return dict(self.sent[0]["headers"])

    @property
    def body(self) -> bytes:
        return b"".join(message["body"] for message in self.sent[1:])

    @property
    def code(self) -> str:
        error = json.loads(self.body)["error"]
        assert set(error) == {"code", "message"}
        return error["code"]


async def ask(
    app: ASGIApp,
    path: str = "/",
    *,
    headers: Iterable[tuple[bytes, bytes]] = (),
    query: bytes = b"",
    pieces: Iterable[bytes] = (b"",),
    client: str = "192.0.2.1",
) -> Answer:
    """Call the app as a server would; a body that has ended goes on with nothing."""
    parts = list(pieces)
    messages = [
        {"type": "http.request", "body": part, "more_body": n < len(parts)} for n, part in enumerate(parts, 1)
    ]

    async def receive() -> Message:
        if not messages:
            await asyncio.Event().wait()
        return messages.pop(0)

    scope = {
        "type": "http",
        "method": "POST",
        "path": path,
        "raw_path": path.encode(),
        "query_string": query,
        "headers": list(headers),
        "client": (client, 1),
    }
    answer = Answer()
    await app(scope, receive, answer.send)
    return answer


SMALL = Settings(max_body=10, max_upload=20, max_headers=3, max_header_bytes=100, max_url=50)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        pytest.param({"pieces": [b"12345", b"67890"]}, (200, "10"), id="as large as it may be"),
        pytest.param({"pieces": [b"12345", b"678901"]}, (413, "too_large"), id="counted"),
        pytest.param({"headers": [(b"content-length", b"11")]}, (413, "too_large"), id="declared"),
        pytest.param({"headers": [(b"content-length", b"9" * 30)]}, (400, "bad_request"), id="huge number"),
        pytest.param({"headers": [(b"content-length", b"-1")]}, (400, "bad_request"), id="negative"),
        pytest.param(
            {"headers": [(b"content-length", b"1"), (b"content-length", b"11")]},
            (413, "too_large"),
            id="declared twice",
        ),
        pytest.param(
            {"headers": [(b"content-length", b"1")], "pieces": [b"12345678901"]}, (413, "too_large"), id="lie"
        ),
        pytest.param({"path": "/sources", "pieces": [b"x" * 20]}, (200, "20"), id="upload"),
        pytest.param({"path": "/sources", "pieces": [b"x" * 21]}, (413, "too_large"), id="large upload"),
        pytest.param({"path": "/sources/x", "pieces": [b"x" * 20]}, (413, "too_large"), id="no upload"),
        pytest.param({"path": "/" + "x" * 50}, (414, "url_too_long"), id="path"),
        pytest.param({"query": b"x" * 50}, (414, "url_too_long"), id="query"),
        pytest.param({"headers": [(b"a", b"b")] * 3}, (200, "0"), id="as many headers as there may be"),
        pytest.param({"headers": [(b"a", b"b")] * 4}, (431, "headers_too_large"), id="many headers"),
        pytest.param({"headers": [(b"a", b"b" * 100)]}, (431, "headers_too_large"), id="large header"),
    ],
)
def test_requests_that_are_too_large(given: dict[str, Any], expected: tuple[int, str]) -> None:
    answer = asyncio.run(ask(RequestLimits(echo_size, SMALL, uploads={"/sources"}), **given))
    assert (answer.status, answer.body.decode() if answer.status == 200 else answer.code) == expected


def test_nothing_is_buffered() -> None:
    """The app has each piece before the next one is asked for."""
    seen: list[str] = []

    async def app(_: Scope, receive: Receive, send: Send) -> None:
        while (await receive())["more_body"]:
            seen.append("read")
        await Response()({"type": "http"}, receive, send)

    def pieces() -> Iterable[bytes]:
        for _ in range(3):
            seen.append("sent")
            yield b"x"

    async def run() -> None:
        source = iter(pieces())

        async def receive() -> Message:
            piece = next(source, None)
            return {"type": "http.request", "body": piece or b"", "more_body": piece is not None}

        scope: Scope = {"type": "http", "path": "/", "query_string": b"", "headers": []}
        await RequestLimits(app, SMALL)(scope, receive, Answer().send)

    asyncio.run(run())
    assert seen == ["sent", "read"] * 3


async def read_all(request: Request) -> Response:
    return Response(str(len(await request.body())))


async def catch_all(request: Request) -> Response:
    with suppress(Exception):
        await request.body()
    return Response("all is well")


@pytest.mark.parametrize("endpoint", [read_all, catch_all])
def test_what_an_app_makes_of_a_refused_body_is_not_sent(
    endpoint: Callable[[Request], Awaitable[Response]],
) -> None:
    """Starlette would answer 500, and raise."""
    app = RequestLimits(Starlette(routes=[Route("/", endpoint, methods=["POST"])]), SMALL)
    answer = asyncio.run(ask(app, pieces=[b"x" * 8] * 3))
    assert (answer.status, answer.code) == (413, "too_large")


def test_an_error_of_the_app_is_its_own() -> None:
    async def app(*_: Any) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        asyncio.run(ask(RequestLimits(app, SMALL)))


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_rate() -> None:
    """A burst, then as many as the rate gives; nobody pays for another, and health is always told."""
    clock = Clock()
    app = RequestLimits(echo_size, Settings(rate=0.5, burst=3), clock=clock)

    async def statuses(count: int, path: str = "/", client: str = "192.0.2.1") -> list[int]:
        return [(await ask(app, path, client=client)).status for _ in range(count)]

    async def run() -> None:
        assert await statuses(5) == [200, 200, 200, 429, 429]
        refused = await ask(app)
        assert (refused.code, refused.headers[b"retry-after"]) == ("too_many_requests", b"2")
        assert await statuses(2, "/healthz") == [200, 200]
        assert await statuses(1, client="192.0.2.2") == [200]
        clock.now += 2
        assert await statuses(2) == [200, 429]
        clock.now += 1000
        assert await statuses(4) == [200, 200, 200, 429]

    asyncio.run(run())


def test_as_many_clients_as_there_are_take_a_bounded_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "_BUCKETS", 50)
    app = RequestLimits(echo_size, Settings(rate=1, burst=1), clock=Clock())

    async def run() -> list[int]:
        return [(await ask(app, client=f"192.0.{n}.1")).status for n in [*range(60), 0, 59]]

    assert asyncio.run(run()) == [200] * 60 + [200, 429]  # the oldest is forgotten, the newest is not


@pytest.mark.parametrize(
    ("client", "expected"),
    [
        (("192.0.2.1", 5), "192.0.2.1"),
        (("2001:db8:1:2:3:4:5:6", 5), "2001:db8:1:2::"),
        (("2001:db8:1:2:ffff::1", 5), "2001:db8:1:2::"),
        (("::ffff:192.0.2.1", 5), "::ffff:192.0.2.1"),
        (("testclient", 5), "testclient"),
        (None, ""),
    ],
)
def test_address(client: Any, expected: str) -> None:
    assert client_address({"client": client}) == expected


def test_ten_thousand_requests_at_once_stay_bounded() -> None:
    """The rest is refused at once, while those that have room go on, and then there is room again."""
    release = asyncio.Event()
    inside = most = 0

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        await release.wait()
        inside -= 1
        await echo_size(scope, receive, send)

    limited = RequestLimits(app, Settings(max_requests=100, max_client_requests=20, rate=1e6, burst=1000))

    async def run() -> None:
        crowd = ["192.0.2.1"] * 5000 + [f"192.0.2.{n % 200}" for n in range(5000)]
        waiting = {asyncio.create_task(ask(limited, client=client)) for client in crowd}
        answers: list[Answer] = []
        while len(answers) < 9_900:
            done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            answers += [task.result() for task in done]
        release.set()
        answers += await asyncio.gather(*waiting)
        counts = Counter((answer.status, answer.code if answer.status != 200 else "") for answer in answers)
        assert (most, counts[200, ""]) == (100, 100)
        assert set(counts) == {(200, ""), (503, "busy"), (429, "too_many_requests")}
        assert all(b"retry-after" in answer.headers for answer in answers if answer.status != 200)
        assert (await ask(limited)).status == 200

    asyncio.run(run())


def test_a_request_that_fails_gives_its_room_back() -> None:
    async def app(scope: Scope, *_: Any) -> None:
        raise ConnectionResetError(scope["path"])

    limited = RequestLimits(app, Settings(max_requests=1, max_client_requests=1))

    async def run() -> None:
        for _ in range(3):
            with pytest.raises(ConnectionResetError):
                await ask(limited)

    asyncio.run(run())


# Over real sockets


LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "asyncio": asyncio.new_event_loop,
    "uvloop": uvloop.new_event_loop,
}


@pytest.fixture(params=LOOPS)
def run(request: pytest.FixtureRequest) -> Runner:
    """Runs a coroutine on each of the loops that a server may have."""

    def runner(coroutine: Coroutine[Any, Any, None]) -> None:
        with asyncio.Runner(loop_factory=LOOPS[request.param]) as loop:
            loop.run(coroutine)

    return runner


@asynccontextmanager
async def serving(app: ASGIApp, pings: float = 20.0, /, **settings: Any) -> AsyncGenerator[tuple[str, int]]:
    """The address of a uvicorn in this loop, with everything that limits it."""
    given, started = Settings(**settings), asyncio.Event()

    async def notify() -> None:
        started.set()

    config = uvicorn.Config(
        RequestLimits(app, given),
        http=make_http_protocol(given),
        ws=make_websocket_protocol(given),
        log_config=None,
        lifespan="off",
        callback_notify=notify,
        ws_ping_interval=pings,
        ws_ping_timeout=pings,
        timeout_graceful_shutdown=1,
    )
    server = uvicorn.Server(config)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        task = asyncio.create_task(server.serve(sockets=[listener]))
        await started.wait()
        try:
            yield listener.getsockname()
        finally:
            server.should_exit = True
            await task


async def converse(where: tuple[str, int], data: bytes) -> bytes:
    """All that comes back until the server closes the connection, which this side never does."""
    reader, writer = await asyncio.open_connection(*where)
    writer.write(data)
    try:
        return await reader.read()
    except ConnectionResetError:
        return b"reset"
    finally:
        writer.close()


def head(*lines: str, path: str = "/") -> bytes:
    return "\r\n".join([f"POST {path} HTTP/1.1", "host: x", *lines, "", ""]).encode()


WHOLE = head("content-length: 0")
CHUNKED = head("transfer-encoding: chunked")


@pytest.mark.parametrize(
    ("data", "answers"),
    [
        pytest.param(b"", 0, id="nothing"),
        pytest.param(b"PO", 0, id="half a method"),
        pytest.param(b"POST / HTTP/1.1\r\nhost: x\r\nx-a: ", 0, id="half a head"),
        pytest.param(b"\r\n\r\n\r\n", 0, id="empty lines"),
        pytest.param(WHOLE + b"POST / HT", 1, id="a request, then half of one"),
        pytest.param(WHOLE * 2 + b"POST / HT", 2, id="two requests, then half of one"),
    ],
)
def test_a_head_that_does_not_come(run: Runner, data: bytes, answers: int) -> None:
    async def go() -> None:
        async with serving(echo_size, header_timeout=0.1) as where:
            assert (await converse(where, data)).count(OK) == answers

    run(go())


async def feed(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, data: bytes) -> None:
    """Send it again and again, until the server ends the connection without a word."""
    ended = asyncio.create_task(reader.read())
    while not ended.done():
        writer.write(data)
        await asyncio.wait([ended], timeout=0.01)
    with suppress(ConnectionError):
        assert await ended == b""
    writer.close()


@pytest.mark.parametrize(
    ("first", "status", "then"),
    [
        pytest.param(WHOLE[:-2], b"", b"a: b\r\n", id="a head"),
        pytest.param(WHOLE, b"200", b"\r\n", id="empty lines after a request"),
        pytest.param(head("content-length: 99999999"), b"413", b"x", id="a body after its refusal"),
    ],
)
def test_what_trickles_in_without_end(run: Runner, first: bytes, status: bytes, then: bytes) -> None:
    """The time counts from the first byte, not from the last."""

    async def go() -> None:
        async with serving(echo_size, header_timeout=0.2, max_body=10) as where:
            reader, writer = await asyncio.open_connection(*where)
            writer.write(first)
            if status:
                answer = await reader.readuntil(b"\r\n\r\n")
                assert answer.split(b" ")[1] == status
                await reader.readexactly(
                    int(answer.lower().partition(b"content-length: ")[2].split(b"\r")[0])
                )
            await feed(reader, writer, then)

    run(go())


@pytest.mark.parametrize(
    ("data", "status"),
    [
        pytest.param(b"POST /" + b"x" * 3000, 431, id="path without end"),
        pytest.param(head()[:-2] + b"a: " + b"x" * 3000, 431, id="header without end"),
        pytest.param(head()[:-2] + b"a: b\r\n" * 500, 431, id="headers without end"),
        pytest.param(b"\r\n" * 1500, 431, id="empty lines without end"),
        pytest.param(CHUNKED + b"0\r\n" + b"a: b\r\n", 408, id="trailers that do not end"),
        pytest.param(head("content-length: 5") + b"12", 408, id="body that does not end"),
        pytest.param(CHUNKED + b"2\r\n12\r\n", 408, id="chunks that do not end"),
        pytest.param(b"nonsense\r\n\r\n", 400, id="not HTTP"),
        pytest.param(head("content-length: 1", "content-length: 2"), 400, id="two lengths"),
        pytest.param(head(*["a: b"] * 200, "connection: close"), 431, id="many headers"),
        pytest.param(head("connection: close", path="/" + "x" * 1500), 414, id="long path"),
        pytest.param(head("content-length: 2000", "connection: close"), 413, id="large body"),
    ],
)
def test_what_cannot_be_served_is_told_so(run: Runner, data: bytes, status: int) -> None:
    small = {"max_header_bytes": 1000, "max_url": 1000, "max_body": 1000, "body_timeout": 0.1}

    async def go() -> None:
        async with serving(echo_size, **small) as where:
            answer = await converse(where, data)
            first, _, body = answer.partition(b"\r\n\r\n")
            assert first.split(b" ")[1] == str(status).encode(), answer
            assert json.loads(body)["error"]["code"]

    run(go())


def test_a_trailer_is_no_header(run: Runner) -> None:
    """Whoever looks at the headers late must not find what nobody judged."""
    seen: list[bytes] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await echo_size(scope, receive, send)
        seen.extend(name for name, _ in scope["headers"])

    async def go() -> None:
        async with serving(app) as where:
            sent = head("transfer-encoding: chunked", "connection: close") + b"0\r\nauthorization: x\r\n\r\n"
            assert OK in await converse(where, sent)

    run(go())
    assert seen == [b"host", b"transfer-encoding", b"connection"]


async def endless(_: Scope, __: Receive, send: Send) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    while True:
        await send({"type": "http.response.body", "body": b"x" * 65536, "more_body": True})


# More than the system keeps for a client that does not read.
LOT = 16 << 20


async def a_lot(scope: Scope, receive: Receive, send: Send) -> None:
    await Response(b"x" * LOT)(scope, receive, send)


def told_when_gone(app: ASGIApp, gone: asyncio.Event) -> ASGIApp:
    """The app, until the client has left."""

    async def wrapped(scope: Scope, receive: Receive, send: Send) -> None:
        task = asyncio.ensure_future(app(scope, receive, send))
        while (await receive())["type"] != "http.disconnect":
            pass
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        gone.set()

    return wrapped


async def not_reading(where: tuple[str, int]) -> socket.socket:
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.setblocking(False)
    await asyncio.get_running_loop().sock_connect(client, where)
    return client


def test_a_client_that_never_reads_a_stream(run: Runner) -> None:
    async def go() -> None:
        gone = asyncio.Event()
        async with serving(told_when_gone(endless, gone), write_timeout=0.2) as where:
            with await not_reading(where) as client:
                await asyncio.get_running_loop().sock_sendall(client, WHOLE)
                await gone.wait()

    run(go())


def test_a_client_that_never_reads_what_is_complete(
    run: Runner,
) -> None:
    """The app is long done with it, but as long as the connection is open no other one is let in."""
    closing = head("content-length: 0", "connection: close")

    async def go() -> None:
        async with serving(a_lot, write_timeout=0.2, max_connections=1) as where:
            with await not_reading(where) as client:
                await asyncio.get_running_loop().sock_sendall(client, WHOLE)
                while b" 503 " in (answer := await converse(where, closing)):
                    pass
                assert OK in answer

    run(go())


def test_a_slow_reader_is_waited_for(run: Runner) -> None:
    """Where it never has all of it within the deadline."""

    async def go() -> None:
        async with serving(a_lot, write_timeout=0.5) as where:
            with await not_reading(where) as client:
                loop = asyncio.get_running_loop()
                await loop.sock_sendall(client, head("content-length: 0", "connection: close"))
                size = 0
                while data := await loop.sock_recv(client, 4096):
                    size += len(data)
                assert size > LOT

    run(go())


def test_all_that_are_being_answered_learn_that_the_client_left(
    run: Runner,
) -> None:
    """uvicorn by itself tells only the last of the requests that were sent at once."""

    async def go() -> None:
        started, gone = asyncio.Event(), asyncio.Event()

        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            await send({"type": "http.response.start", "status": 200, "headers": []})
            started.set()
            while (await receive())["type"] != "http.disconnect":
                pass
            gone.set()

        async with serving(app) as where:
            _, writer = await asyncio.open_connection(*where)
            writer.write(WHOLE * 3)
            await started.wait()
            writer.close()
            await gone.wait()

    run(go())


@pytest.mark.parametrize(("count", "answered"), [(8, 8), (1000, 0)])
def test_requests_that_are_sent_at_once(run: Runner, count: int, answered: int) -> None:
    """A few are answered in turn; whoever sends a thousand is cut off before they are all kept."""

    async def go() -> None:
        async with serving(echo_size) as where:
            data = WHOLE * (count - 1) + head("content-length: 0", "connection: close")
            assert (await converse(where, data)).count(OK) == answered

    run(go())


def test_connections_are_counted(run: Runner) -> None:
    async def go() -> None:
        async with serving(echo_size, max_connections=2) as where:
            held = [await asyncio.open_connection(*where) for _ in range(2)]
            refused = await converse(where, b"")
            assert b" 503 " in refused
            assert b'"code":"busy"' in refused
            for reader, writer in held:
                writer.write(head("content-length: 0", "connection: close"))
                assert OK in await reader.read()
                writer.close()

    run(go())


def test_a_stream_may_take_longer_than_a_head(run: Runner) -> None:
    """No deadline of a request is one of its answer, also where half a request waits behind it."""

    async def app(_: Scope, receive: Receive, send: Send) -> None:
        await receive()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for _n in range(10):
            with suppress(TimeoutError):
                async with asyncio.timeout(0.05):
                    assert (await receive())["type"] != "http.disconnect"
            await send({"type": "http.response.body", "body": b"+", "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    async def go() -> None:
        async with serving(app, header_timeout=0.1, body_timeout=0.1) as where:
            assert (await converse(where, WHOLE + b"POST /")).count(b"+") == 10

    run(go())


def test_a_web_socket_is_refused_in_the_same_shape(run: Runner) -> None:
    async def app(_: Scope, receive: Receive, send: Send) -> None:
        await receive()
        await send({"type": "websocket.accept"})
        await send({"type": "websocket.close"})

    upgrade = head(
        "connection: upgrade",
        "upgrade: websocket",
        "sec-websocket-version: 13",
        "sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==",
    ).replace(b"POST", b"GET")

    async def go() -> None:
        async with serving(app, rate=0.001, burst=1) as where:
            reader, writer = await asyncio.open_connection(*where)
            writer.write(upgrade)
            assert b" 101 " in await reader.readuntil(b"\r\n\r\n")
            writer.close()
            refused = await converse(where, upgrade)
            assert b" 429 " in refused
            assert b'"code":"too_many_requests"' in refused

    run(go())


# --- WebSockets whose client stops reading -----------------------------------------------------------------

UPGRADE = (
    b"GET /ws HTTP/1.1\r\nhost: x\r\nupgrade: websocket\r\nconnection: upgrade\r\n"
    b"sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\nsec-websocket-version: 13\r\n\r\n"
)


def talkative(way: str, ended: asyncio.Event) -> ASGIApp:
    """Sends much more than any buffer holds, one way or another, and says when the app is done with it."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await echo_size(scope, receive, send)
            return
        await receive()
        await send({"type": "websocket.accept"})
        try:
            for _ in range(1 if way == "one message, then close" else 1000):
                await send({"type": "websocket.send", "bytes": bytes(1 << 22)})
            while way == "waits" and (await receive())["type"] != "websocket.disconnect":
                pass
            await send({"type": "websocket.close", "code": 1000})
        finally:
            ended.set()

    return app


@pytest.mark.parametrize("way", ["many messages", "one message, then close"])
def test_a_websocket_that_is_not_read_gives_its_place_back(run: Runner, way: str) -> None:
    """The only place of the server: it is taken until the client is given up, and free afterwards."""

    async def go() -> None:
        ended = asyncio.Event()
        async with serving(talkative(way, ended), max_connections=1, write_timeout=0.2) as where:
            with stuck_client(where) as client:
                await ended.wait()
                while OK not in await converse(where, head("content-length: 0", "connection: close")):
                    pass
                client.setblocking(False)
                assert is_reset(client)

    run(go())


def test_pings_that_are_not_answered_end_a_websocket(run: Runner) -> None:
    async def go() -> None:
        ended = asyncio.Event()
        async with serving(waiting(ended), 0.1, max_connections=1, write_timeout=0.2) as where:
            with stuck_client(where):
                await ended.wait()
                while OK not in await converse(where, head("content-length: 0", "connection: close")):
                    pass

    run(go())


def test_a_slow_reader_is_not_given_up(run: Runner) -> None:
    """Whoever reads a little within each timeout gets everything."""

    async def go() -> None:
        ended = asyncio.Event()
        async with serving(talkative("one message, then close", ended), write_timeout=0.5) as where:
            reader, writer = await asyncio.open_connection(*where, limit=1 << 12)
            writer.write(UPGRADE)
            await reader.readuntil(b"\r\n\r\n")
            left = (1 << 22) + 10
            while left:
                left -= len(await reader.read(min(left, 1 << 17)))
            writer.close()

    run(go())


def waiting(ended: asyncio.Event) -> ASGIApp:
    """Accepts, and sends nothing."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await echo_size(scope, receive, send)
            return
        await receive()
        await send({"type": "websocket.accept"})
        await receive()
        ended.set()

    return app


@contextmanager
def stuck_client(where: tuple[str, int]) -> Generator[socket.socket]:
    """A client that has made its handshake, and never reads."""
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect(where)
        client.sendall(UPGRADE)
        yield client


def is_reset(client: socket.socket) -> bool:
    """Whether the server has aborted the connection."""
    try:
        while client.recv(1 << 16):
            pass
    except ConnectionResetError:
        return True
    except BlockingIOError:
        return False
    return False
