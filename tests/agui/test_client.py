"""Sources: an agent over HTTP against a server that misbehaves on command, in-process agents, middleware."""

import asyncio
import gzip
import tracemalloc
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import aclosing
from importlib.util import find_spec
from typing import Any

import httpx2
import pytest

from citewire.agui import transport
from citewire.agui.agents import BaseAgent, LocalAgent, Next, Replay, RunRequest
from citewire.agui.client import HttpAgent
from citewire.agui.events import AnyEvent, EventError, RunInput, decode
from citewire.agui.sse import PING, FrameTooLarge, encode_frame
from citewire.agui.transport import (
    BadStatus,
    ConnectFailed,
    DeadlinePassed,
    NoAnswer,
    NotAnEventStream,
    StreamEnded,
    StreamStalled,
    Timeouts,
    UnsupportedEncoding,
)
from citewire.errors import CitewireError, DecodeError, InputError
from support.cases import need
from support.clock import LONG, clock, hurried, on_clock
from support.loopback import BREAK, CHUNKED, EVENTS, HOLD, Answer, Loopback, answer, chunk

Json = dict[str, Any]

STARTED = b'{"type":"RUN_STARTED","threadId":"t","runId":"r"}'
HELLO = b'{"type":"TEXT_MESSAGE_CHUNK","messageId":"m","delta":"hello"}'
FINISHED = b'{"type":"RUN_FINISHED","threadId":"t","runId":"r"}'
FAILED = b'{"type":"RUN_ERROR","message":"no luck"}'

WHOLE = ["RUN_STARTED", "TEXT_MESSAGE_CHUNK", "RUN_FINISHED"]
CUT = WHOLE[:2]


def framed(*events: bytes) -> bytes:
    return b"".join(b"data: %b\n\n" % event for event in events)


OPEN = framed(STARTED, HELLO)
RUN = OPEN + framed(FINISHED)
PROTO = "application/vnd.ag-ui.event+proto"


class Received(list[str]):
    """The types of the events that came, and what was raised after them."""

    error: BaseException | None = None


async def receive(events: AsyncIterator[AnyEvent]) -> Received:
    received = Received()
    try:
        async for event in events:
            received.append(event.type)
    except Exception as exc:  # noqa: BLE001  # what it is is the subject
        received.error = exc
    return received


async def receive_late(agent: HttpAgent, server: Loopback, count: int) -> Received:
    """As `receive`, but time flies once the server was asked and so many events came."""
    events = agent.run_agent()
    received = Received([(await anext(events)).type for _ in range(count)])
    reading = asyncio.create_task(receive(events))
    await server.until(requests=1)
    rest = await hurried(reading)
    received += rest
    received.error = rest.error
    return received


def run(*answers: Answer, **options: Any) -> tuple[Received, Loopback]:
    """One run of an agent that answers like this."""

    async def main() -> tuple[Received, Loopback]:
        options.setdefault("backoff", 0)
        async with Loopback(*answers) as server, HttpAgent(server.url, **options) as agent:
            return await receive(agent.run_agent()), server

    return asyncio.run(main())


def test_gives_the_events_of_a_run() -> None:
    received, server = run([answer(RUN)])
    assert received == WHOLE
    assert received.error is None
    assert len(server.requests) == 1


@pytest.mark.parametrize("ending", [FINISHED, FAILED])
@pytest.mark.parametrize("head", [EVENTS, CHUNKED])
def test_gives_each_event_as_it_comes(head: bytes, ending: bytes) -> None:
    async def main() -> None:
        wrap = chunk if head is CHUNKED else bytes
        first, rest = wrap(framed(STARTED) + b"data: "), wrap(HELLO + b"\n\n" + framed(ending))
        end = b"0\r\n\r\n" if head is CHUNKED else b""
        async with Loopback([head, first, HOLD, rest, end]) as server, HttpAgent(server.url) as agent:
            events = agent.run_agent()
            assert (await anext(events)).type == "RUN_STARTED"
            server.go_on()
            assert [event.type async for event in events] == ["TEXT_MESSAGE_CHUNK", decode(ending).type]

    asyncio.run(main())


def test_posts_the_input_of_the_run() -> None:
    async def main() -> Loopback:
        options: Json = {
            "thread_id": "t",
            "tools": [{"name": "x"}],
            "context": [{"description": "d", "value": "v"}],
        }
        headers = {"Authorization": "Bearer secret", "Accept": "text/html"}
        async with (
            Loopback([answer(RUN)]) as server,
            HttpAgent(server.url, headers=headers, forwarded_props={"a": 1}, **options) as agent,
        ):
            agent.add_message({"id": "u", "role": "user", "content": "héé 😀"})
            resume = [{"interruptId": "i", "status": "resolved"}]
            await receive(agent.run_agent(RunRequest(run_id="r", state={"s": 1}, resume=resume)))
            return server

    (request,) = asyncio.run(main()).requests
    assert (request.method, request.path) == ("POST", "/agui")
    assert request.headers["accept"] == "text/event-stream"
    assert request.headers["accept-encoding"] == "identity"
    assert request.headers["content-type"] == "application/json"
    assert request.headers["authorization"] == "Bearer secret"
    assert request.json == {
        "threadId": "t",
        "runId": "r",
        "protocolVersion": "1.0",
        "messages": [{"id": "u", "role": "user", "content": "héé 😀"}],
        "state": {"s": 1},
        "tools": [{"name": "x"}],
        "context": [{"description": "d", "value": "v"}],
        "forwardedProps": {"a": 1},
        "resume": [{"interruptId": "i", "status": "resolved"}],
    }


def test_an_old_peer_is_told_no_version() -> None:
    _, server = run([answer(RUN)], protocol_version=None)
    sent = server.requests[0].json
    assert sent.keys() == {"threadId", "runId", "messages", "state", "tools", "context", "forwardedProps"}
    assert (sent["state"], sent["tools"], sent["forwardedProps"]) == ({}, [], {})


def test_sends_messages_as_protocol_1_has_them() -> None:
    """Retired parts upgraded, what only a client shows left out, and everything else as the caller put it."""
    binary = {"type": "binary", "mimeType": "image/png", "data": "aGk=", "filename": "a.png"}
    image = {"type": "image", "source": {"type": "data", "value": "aGk=", "mimeType": "image/png"}}
    messages: list[Json] = [
        {"id": "1", "role": "user", "content": [{"type": "text", "text": "see"}, binary], "mine": 1},
        {"id": "2", "role": "activity", "activityType": "x", "content": {}},
        {"id": "3", "role": "assistant", "content": "ok", "subagentRunId": None},
        {"id": "4", "role": "assistant", "content": "ok", "subagentRunId": "s"},
    ]
    _, server = run([answer(RUN)], messages=messages)
    named = {**image, "metadata": {"filename": "a.png"}}
    assert server.requests[0].json["messages"] == [
        {"id": "1", "role": "user", "content": [{"type": "text", "text": "see"}, named], "mine": 1},
        {"id": "3", "role": "assistant", "content": "ok"},
        {"id": "4", "role": "assistant", "content": "ok", "subagentRunId": "s"},
    ]
    assert messages[2]["subagentRunId"] is None


HTML = b"<html>\n<title>502 \x1b[31mBad</title>"
LARGE = [b"data: " + b"x" * 2**20] + [b"x" * 2**20] * 10


@pytest.mark.parametrize(
    ("steps", "error", "came"),
    [
        pytest.param([answer(HTML, "text/html")], NotAnEventStream, [], id="HTML"),
        pytest.param([answer(b"{}", "application/json")], NotAnEventStream, [], id="JSON"),
        pytest.param([answer(b"{}", "application/problem+json; x=y")], NotAnEventStream, [], id="+json"),
        pytest.param([answer(HTML, None)], NotAnEventStream, [], id="HTML, not named"),
        pytest.param([answer(b"data: hi\n\n", None)], NotAnEventStream, [], id="other frames"),
        pytest.param([answer(b"", None)], NotAnEventStream, [], id="nothing, not named"),
        pytest.param([answer(b"x", PROTO)], UnsupportedEncoding, [], id="proto"),
        pytest.param([answer(b"x", more="content-encoding: br\r\n")], UnsupportedEncoding, [], id="brotli"),
        pytest.param([answer(b"x", more="content-encoding: gzip, br\r\n")],
                     UnsupportedEncoding, [], id="compressed twice"),
        pytest.param([answer(b"no gzip at all", more="content-encoding: gzip\r\n")],
                     UnsupportedEncoding, [], id="not compressed"),
        pytest.param([answer(b"", status="204 No Content")], StreamEnded, [], id="nothing"),
        pytest.param([answer(b"")], StreamEnded, [], id="an empty stream"),
        pytest.param([answer(OPEN)], StreamEnded, CUT, id="no end"),
        pytest.param([answer(RUN + framed(STARTED))], StreamEnded, [*WHOLE, "RUN_STARTED"], id="another"),
        pytest.param([EVENTS, OPEN, b"data: {"], StreamEnded, CUT, id="within an event"),
        pytest.param([CHUNKED, chunk(OPEN)], StreamEnded, CUT, id="within the body"),
        pytest.param([CHUNKED, chunk(OPEN), b"zz\r\n"], StreamEnded, CUT, id="not HTTP"),
        pytest.param([answer(OPEN + framed(b"[DONE]", FINISHED))], DecodeError, CUT, id="not JSON"),
        pytest.param([answer(OPEN + framed(b"[1]", FINISHED))], EventError, CUT, id="no object"),
        pytest.param([answer(OPEN + framed(b"{}", FINISHED))], EventError, CUT, id="no type"),
        pytest.param([EVENTS, OPEN, *LARGE], FrameTooLarge, CUT, id="no end of a frame"),
        pytest.param([answer(RUN, status="500 Oops")], BadStatus, [], id="500"),
        pytest.param([answer(RUN, status="307 Away", more="location: /b\r\n")], BadStatus, [], id="307"),
        pytest.param([], NoAnswer, [], id="closed at once"),
        pytest.param([BREAK], NoAnswer, [], id="reset at once"),
        pytest.param([b"SSH-2.0-OpenSSH\r\n"], NoAnswer, [], id="not HTTP at all"),
    ],
)  # fmt: skip
def test_failures(steps: Answer, error: type[CitewireError], came: list[str]) -> None:
    """Each is raised once, with a code, after all that came before; nothing is asked again."""
    received, server = run(steps)
    assert received == came
    assert type(received.error) is error
    assert len(server.requests) == 1


def test_a_connection_that_is_reset_ends_the_stream() -> None:
    async def main() -> Received:
        async with Loopback([EVENTS, OPEN, HOLD, BREAK]) as server:
            agent = HttpAgent(server.url)
            received = Received()
            async with agent:
                events = agent.run_agent()
                received += [(await anext(events)).type, (await anext(events)).type]
                server.go_on()
                received.error = (await receive(events)).error
            return received

    received = asyncio.run(main())
    assert isinstance(received.error, StreamEnded)
    assert received == CUT


@pytest.mark.parametrize(
    "steps",
    [
        pytest.param([CHUNKED, chunk(RUN)], id="cut"),
        pytest.param([EVENTS, RUN + b"data: {", HOLD], id="held open within what follows"),
        pytest.param([EVENTS, RUN, HOLD], id="held open"),
        pytest.param([answer(RUN + b"data: {")], id="cut within what follows"),
        pytest.param([answer(RUN, None)], id="no content type"),
        pytest.param([answer(RUN, "text/plain")], id="another content type"),
        pytest.param([answer(RUN, more="content-encoding: identity\r\n")], id="identity"),
        pytest.param([answer(PING + RUN[:-2])], id="comments, and no blank line at the end"),
        pytest.param([answer(RUN.replace(b"\n", b"\r\n"), "Text/Event-Stream;charset=UTF-8")], id="CRLF"),
    ],
)
def test_a_run_that_has_ended_is_whole(steps: Answer) -> None:
    """Whatever becomes of the connection afterwards, and however the response was labelled."""

    async def main(timeouts: Timeouts) -> Received:
        async with Loopback(steps) as server, HttpAgent(server.url, timeouts=timeouts) as agent:
            return await receive_late(agent, server, len(WHOLE))

    for timeouts in (Timeouts(grace=LONG), Timeouts(total=LONG, grace=2 * LONG)):
        received = on_clock(main(timeouts))
        assert received == WHOLE
        assert received.error is None


@pytest.mark.parametrize(
    ("steps", "timeouts", "error", "came"),
    [
        pytest.param([HOLD], Timeouts(first_byte=LONG), NoAnswer, [], id="no answer"),
        pytest.param([EVENTS, HOLD], Timeouts(idle=LONG, first_byte=None), StreamStalled, [], id="no event"),
        pytest.param([EVENTS, OPEN, HOLD], Timeouts(idle=LONG), StreamStalled, CUT, id="stall"),
        pytest.param([EVENTS, OPEN + b"data:", HOLD], Timeouts(idle=LONG), StreamStalled, CUT, id="in frame"),
        pytest.param([HOLD], Timeouts(total=LONG), DeadlinePassed, [], id="total, no answer"),
        pytest.param([EVENTS, OPEN, HOLD], Timeouts(total=LONG), DeadlinePassed, CUT, id="total"),
    ],
)  # fmt: skip
def test_a_server_that_stalls(
    steps: Answer, timeouts: Timeouts, error: type[CitewireError], came: list[str]
) -> None:
    """The run ends with a code, and the server sees that nobody waits any more."""

    async def main() -> Received:
        async with Loopback(steps) as server, HttpAgent(server.url, timeouts=timeouts) as agent:
            received = await receive_late(agent, server, len(came))
            await server.until(lost=1)
            return received

    received = on_clock(main())
    assert received == came
    assert type(received.error) is error


@pytest.mark.parametrize("ending", [FINISHED, FAILED])
@pytest.mark.parametrize("more", [b"", PING])
def test_a_connection_that_is_kept_open_is_left_after_a_moment(ending: bytes, more: bytes) -> None:
    """Without a word of an error, whatever signs of life come."""

    async def body() -> AsyncIterator[bytes]:
        yield framed(STARTED, ending)
        while True:
            await (asyncio.sleep(0) if more else asyncio.Event().wait())
            yield more

    def handler(_: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(200, headers={"content-type": "text/event-stream"}, content=body())

    async def main() -> Received:
        agent = http_agent(handler, timeouts=Timeouts(idle=None, grace=LONG))
        return await hurried(asyncio.create_task(receive(agent.run_agent())))

    received = on_clock(main())
    assert received == ["RUN_STARTED", decode(ending).type]
    assert received.error is None


@pytest.mark.parametrize("method", ["run_agent", "connect"])
def test_another_run_may_follow(method: str) -> None:
    """In the same response: the grace goes on when it begins, and the one before counts no more."""

    async def main() -> None:
        timeouts = Timeouts(grace=LONG)
        steps = [EVENTS, RUN, HOLD, OPEN]
        async with Loopback(steps) as server, HttpAgent(server.url, timeouts=timeouts) as agent:
            events = getattr(agent, method)()
            assert [(await anext(events)).type for _ in WHOLE] == WHOLE
            server.go_on()
            rest = await receive(events)
            assert (rest, type(rest.error)) == (CUT, StreamEnded)

    asyncio.run(main())


def test_who_joins_waits_for_the_first_event() -> None:
    """Nothing has ended yet, so it is no matter of grace."""

    async def main() -> None:
        timeouts = Timeouts(grace=0)
        async with (
            Loopback([EVENTS, PING, HOLD, RUN]) as server,
            HttpAgent(server.url, timeouts=timeouts) as agent,
        ):
            reading = asyncio.create_task(receive(agent.connect()))
            await server.until(requests=1)
            server.go_on()
            assert await reading == WHOLE

    asyncio.run(main())


def compress(data: bytes, coding: str) -> bytes:
    if coding == "raw":  # what some servers call deflate
        packer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
        return packer.compress(data) + packer.flush()
    return zlib.compress(data) if coding == "deflate" else gzip.compress(data)


@pytest.mark.parametrize("coding", ["gzip", "x-gzip", "GZIP", "deflate", "raw", "identity"])
@pytest.mark.parametrize("size", [1, 5, 1 << 20])
def test_compressed_events_are_read(coding: str, size: int) -> None:
    body = RUN if coding == "identity" else compress(RUN, coding.lower())
    named = "deflate" if coding == "raw" else coding
    head = EVENTS.replace(b"\r\n\r\n", f"\r\ncontent-encoding: {named}\r\n\r\n".encode())
    received, _ = run([head, *(body[at : at + size] for at in range(0, len(body), size))])
    assert received == WHOLE


def test_compressed_events_come_as_they_are_flushed() -> None:
    """Not only at the end: what the agent has said so far is there while the connection is held."""
    packer = zlib.compressobj(wbits=16 + zlib.MAX_WBITS)
    first = packer.compress(framed(STARTED)) + packer.flush(zlib.Z_SYNC_FLUSH)
    rest = packer.compress(RUN[len(framed(STARTED)) :]) + packer.flush()
    head = EVENTS.replace(b"\r\n\r\n", b"\r\ncontent-encoding: gzip\r\n\r\n")

    async def main() -> None:
        async with Loopback([head, first, HOLD, rest]) as server, HttpAgent(server.url) as agent:
            events = agent.run_agent()
            assert (await anext(events)).type == "RUN_STARTED"
            server.go_on()
            assert [event.type async for event in events] == WHOLE[1:]

    asyncio.run(main())


def test_members_of_gzip_follow_each_other() -> None:
    body = gzip.compress(RUN[:20]) + gzip.compress(RUN[20:])
    received, _ = run([answer(body, more="content-encoding: gzip\r\n")])
    assert received == WHOLE


@pytest.mark.slow
def test_events_that_expand_without_end_are_refused() -> None:
    bomb = gzip.compress(b": " + b"\n" * (64 << 20))
    assert len(bomb) < 100_000
    received, _ = run([answer(bomb, more="content-encoding: gzip\r\n")])
    assert isinstance(received.error, UnsupportedEncoding)
    assert received.error.message == "the compressed events of the agent expand too much"


def test_every_failure_has_a_code_of_its_own() -> None:
    errors = [getattr(transport, name) for name in transport.__all__]
    codes = [each.code for each in errors if issubclass(each, CitewireError)]
    assert len(codes) == len(set(codes)) == 9


def test_an_error_body_is_kept_in_part_and_told_to_nobody() -> None:
    body = b"\x1b[31m<b>no\r\n\r\nroom</b>\xff" + b"x" * 100_000
    received, _ = run([answer(body, "text/html", "507 Full")])
    error = received.error
    assert isinstance(error, BadStatus)
    assert error.status == 507
    assert error.excerpt.startswith("<b>no room</b>\ufffdxxx")
    assert len(error.excerpt) == 200
    assert error.detail == error.excerpt
    assert (str(error), error.message) == (
        "the agent answered HTTP 507 [bad_status]",
        "the agent answered HTTP 507",
    )


def test_an_error_body_that_never_comes_is_not_waited_for() -> None:
    async def body() -> AsyncIterator[bytes]:
        yield b"half"
        clock().leap(LONG)
        await asyncio.Event().wait()

    agent = http_agent(lambda _: httpx2.Response(500, content=body()))
    received = on_clock(receive(agent.run_agent()))
    assert isinstance(received.error, BadStatus)
    assert received.error.excerpt == "half"


BUSY = [answer(b"later", "text/plain", "503 Busy")]
AWAY, LATE = [answer(b"", status="502 Away")], [answer(b"", status="504 Late")]


@pytest.mark.parametrize(
    ("answers", "retries", "asked", "error"),
    [
        pytest.param([BUSY, BUSY, [answer(RUN)]], 2, 3, None, id="in the end it answers"),
        pytest.param([BUSY], 2, 3, BadStatus, id="it never does"),
        pytest.param([BUSY], 0, 1, BadStatus, id="once only"),
        pytest.param([AWAY, [answer(RUN)]], 5, 2, None, id="502"),
        pytest.param([LATE], 5, 1, BadStatus, id="not when something may have run"),
        pytest.param([BUSY, [answer(b"", status="500 X")]], 5, 2, BadStatus, id="then another status"),
        pytest.param([BUSY, [answer(framed(STARTED))]], 5, 2, StreamEnded, id="not after an event"),
        pytest.param([BUSY, [answer(b"")]], 5, 2, StreamEnded, id="not after an answer"),
    ],
)  # fmt: skip
def test_tries_again(
    answers: list[Answer], retries: int, asked: int, error: type[CitewireError] | None
) -> None:
    received, server = run(*answers, retries=retries)
    assert len(server.requests) == asked
    assert isinstance(received.error, error) if error else received == WHOLE
    assert len({request.json["runId"] for request in server.requests}) == 1


def http_agent(handler: Callable[[httpx2.Request], httpx2.Response], **options: Any) -> HttpAgent:
    client = httpx2.AsyncClient(transport=httpx2.MockTransport(handler))
    options.setdefault("backoff", 0)
    return HttpAgent("https://user:pass@agent.example:8443/a?token=secret", client=client, **options)


@pytest.mark.parametrize("failure", [httpx2.ConnectError, httpx2.ConnectTimeout])
def test_tries_to_connect_again(failure: type[httpx2.TransportError]) -> None:
    tried: list[httpx2.Request] = []

    def handler(request: httpx2.Request) -> httpx2.Response:
        tried.append(request)
        raise failure("no route")

    received = asyncio.run(receive(http_agent(handler, retries=3).run_agent()))
    assert len(tried) == 4
    assert isinstance(received.error, ConnectFailed)
    assert received.error.message == "cannot connect to the agent"
    assert received.error.detail == f"https://agent.example:8443: {failure.__name__}"


def test_nobody_at_the_port() -> None:
    async def main() -> Received:
        async with Loopback([]) as server:
            url = server.url
        async with HttpAgent(url, retries=1, backoff=0) as agent:
            return await receive(agent.run_agent())

    assert isinstance(asyncio.run(main()).error, ConnectFailed)


def test_pauses_grow_and_end_with_the_run() -> None:
    asked: list[float] = []

    async def body() -> AsyncIterator[bytes]:
        yield b"later"

    def handler(_: httpx2.Request) -> httpx2.Response:
        asked.append(clock().time())
        return httpx2.Response(503, content=body())

    async def main(**options: Any) -> Received:
        asked.clear()
        agent = http_agent(handler, retries=99, **options)
        return await hurried(asyncio.create_task(receive(agent.run_agent())))

    received = on_clock(main(backoff=60, timeouts=Timeouts(total=9)))
    assert isinstance(received.error, DeadlinePassed)
    assert len(asked) == 1
    received = on_clock(main(backoff=1, timeouts=Timeouts(total=LONG)))
    assert isinstance(received.error, DeadlinePassed)
    assert asked[-1] - asked[-2] >= 8


def test_no_secret_is_in_an_error() -> None:
    def handler(request: httpx2.Request) -> httpx2.Response:
        raise httpx2.LocalProtocolError(f"Illegal header value {request.headers['authorization']!r}")

    received = asyncio.run(receive(http_agent(handler, headers={"Authorization": "s3cret"}).run_agent()))
    error = received.error
    assert isinstance(error, NoAnswer)
    assert error.__suppress_context__
    assert not {"s3cret", "pass", "token"} & set(str(error).replace("/", " ").split())


@pytest.mark.parametrize("name", ["x y", "", "x\r\ny", "é"])
def test_names_that_http_does_not_take_are_refused(name: str) -> None:
    with pytest.raises(InputError):
        HttpAgent("http://x/", headers={name: "v"})


@pytest.mark.parametrize("value", ["s3cret\n", "s3cret\r\nz: 1", " s3cret", "s3crét", "s3cret\0"])
def test_values_that_http_does_not_take_are_refused_unquoted(value: str) -> None:
    with pytest.raises(InputError) as caught:
        HttpAgent("http://x/", headers={"x": value})
    assert "s3cr" not in str(caught.value)


@pytest.mark.parametrize(
    "url", ["", "agent", "/agui", "ftp://x/", "http://", "http://[::1", "http://x:99999/"]
)
def test_what_is_no_url_is_refused(url: str) -> None:
    with pytest.raises(InputError):
        HttpAgent(url)


async def cancel(agent: BaseAgent, reading: asyncio.Task[Received]) -> None:
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading


async def abort(agent: BaseAgent, reading: asyncio.Task[Received]) -> None:
    agent.abort_run()
    assert (await reading).error is None


async def aclose(agent: HttpAgent, reading: asyncio.Task[Received]) -> None:
    await agent.aclose()
    assert (await reading).error is None


@pytest.mark.parametrize("steps", [[HOLD], [EVENTS, HOLD], [EVENTS, framed(STARTED), HOLD]])
@pytest.mark.parametrize("end", [cancel, abort, aclose])
def test_ending_a_run_ends_its_request(
    steps: Answer, end: Callable[[HttpAgent, asyncio.Task[Received]], Awaitable[None]]
) -> None:
    """The server sees the connection go, whatever it was about to do."""

    async def main() -> None:
        async with Loopback(steps) as server, HttpAgent(server.url) as agent:
            reading = asyncio.create_task(receive(agent.run_agent()))
            await server.until(requests=1)
            await end(agent, reading)
            await server.until(lost=1)

    asyncio.run(main())


def test_leaving_the_loop_ends_the_request() -> None:
    async def main() -> None:
        async with Loopback([EVENTS, RUN, HOLD]) as server, HttpAgent(server.url) as agent:
            async with aclosing(agent.run_agent()) as events:
                async for _ in events:
                    break
            await server.until(lost=1)

    asyncio.run(main())


def test_an_aborted_run_gives_no_more_events() -> None:
    async def main() -> None:
        async with Loopback([EVENTS, RUN, HOLD]) as server, HttpAgent(server.url) as agent:
            events = agent.run_agent()
            await anext(events)
            agent.abort_run()
            agent.abort_run()
            assert [event async for event in events] == []
            # The next run is another one.
            assert (await anext(agent.run_agent())).type == "RUN_STARTED"

    asyncio.run(main())


def test_joins_a_run_after_the_last_event() -> None:
    async def main() -> None:
        first = b"".join(encode_frame(decode(event), f"e{n}") for n, event in enumerate([STARTED, HELLO]))
        rest = encode_frame(decode(FINISHED), "é2") + b"id:\n\n"
        async with Loopback([answer(first)], [answer(rest)]) as server, HttpAgent(server.url) as agent:
            assert agent.last_event_id is None
            cut = await receive(agent.run_agent())
            assert (cut, type(cut.error), agent.last_event_id) == (CUT, StreamEnded, "e1")
            events = agent.connect(agent.last_event_id)
            assert (await anext(events)).type == "RUN_FINISHED"
            assert agent.last_event_id == "é2"
            assert [event async for event in events] == []
            assert agent.last_event_id is None
            joined = server.requests[1]
            assert (joined.method, joined.path, joined.body) == ("GET", "/agui", b"")
            assert joined.headers["last-event-id"] == "e1"
            assert "content-type" not in joined.headers

    asyncio.run(main())


@pytest.mark.parametrize(
    ("given", "came", "error"),
    [
        pytest.param(answer(b"", None, "204 No Content"), [], None, id="204"),
        pytest.param(answer(b""), [], None, id="nothing new"),
        pytest.param(answer(framed(HELLO, FINISHED)), WHOLE[1:], None, id="in the middle"),
        pytest.param(answer(framed(HELLO)), ["TEXT_MESSAGE_CHUNK"], StreamEnded, id="cut"),
        pytest.param(answer(b"", None), [], None, id="nothing, not named"),
        pytest.param(answer(b"gone", "text/plain", "410 Gone"), [], BadStatus, id="410"),
    ],
)
def test_what_one_may_find_when_joining(
    given: bytes, came: list[str], error: type[CitewireError] | None
) -> None:
    async def main() -> tuple[Received, Loopback]:
        async with Loopback([given]) as server, HttpAgent("http://x/") as agent:
            agent.connect_url = server.url + "/t?x=1"
            return await receive(agent.connect()), server

    received, server = asyncio.run(main())
    assert received == came
    assert error is None or isinstance(received.error, error)
    assert server.requests[0].path == "/agui/t?x=1"
    assert "last-event-id" not in server.requests[0].headers


def test_bytes_that_are_no_utf8_are_reported_and_do_not_end_the_run() -> None:
    async def main() -> tuple[Any, list[str]]:
        problems: list[str] = []
        body = RUN.replace(b"hello", b"hel\xfflo")
        async with Loopback([answer(body)]) as server, HttpAgent(server.url) as agent:
            agent.on_problem = lambda code, _: problems.append(code)
            _, event, _ = [event async for event in agent.run_agent()]
            return event, problems

    event, problems = asyncio.run(main())
    assert (event.delta, problems) == ("hel\ufffdlo", ["bad_utf8"])


def test_a_client_of_the_callers_stays_open() -> None:
    async def main() -> None:
        async with Loopback([answer(RUN)]) as server, httpx2.AsyncClient(follow_redirects=True) as client:
            for _ in range(2):
                async with HttpAgent(server.url, client=client) as agent:
                    assert await receive(agent.run_agent()) == WHOLE
            assert not client.is_closed

    asyncio.run(main())


def test_a_long_stream_takes_little_memory() -> None:
    """What was read is not kept: 50 MB pass, and never more than a few stay."""
    delta = framed(b'{"type":"TEXT_MESSAGE_CHUNK","messageId":"m","delta":"%b"}' % (b"x" * 100_000))

    async def main() -> int:
        steps = [EVENTS, framed(STARTED), *[delta * 10] * 50, framed(FINISHED)]
        async with Loopback(steps) as server, HttpAgent(server.url) as agent:
            return sum([1 async for _ in agent.run_agent()])

    tracemalloc.start()
    try:
        assert asyncio.run(main()) == 502
        assert tracemalloc.get_traced_memory()[1] < 10e6
    finally:
        tracemalloc.stop()


# Middleware


def types(agent: BaseAgent) -> list[str]:
    return asyncio.run(receive(agent.run_agent()))


def test_middleware_goes_from_the_outside_in() -> None:
    seen: list[str] = []

    def named(name: str) -> Callable[[RunInput, Next], AsyncIterator[AnyEvent]]:
        async def middleware(run_input: RunInput, go_on: Next) -> AsyncIterator[AnyEvent]:
            seen.append(name)
            async for event in go_on(run_input):
                seen.append(f"{name} {event.type}")
                yield event

        return middleware

    agent = Replay([STARTED, FINISHED])
    assert agent.use(named("a"), named("b")).use(named("c")) is agent
    assert types(agent) == ["RUN_STARTED", "RUN_FINISHED"]
    assert seen == [
        "a", "b", "c",
        "c RUN_STARTED", "b RUN_STARTED", "a RUN_STARTED",
        "c RUN_FINISHED", "b RUN_FINISHED", "a RUN_FINISHED",
    ]  # fmt: skip


def test_middleware_may_change_everything() -> None:
    asked: list[str] = []

    def echo(run_input: RunInput) -> Iterator[bytes]:
        asked.append(run_input.thread_id)
        return iter([STARTED, HELLO, FINISHED])

    async def twice(run_input: RunInput, go_on: Next) -> AsyncIterator[AnyEvent]:
        async for event in go_on(RunInput(thread_id="other", run_id="1")):
            if event.type != "RUN_FINISHED":
                yield event
        async for event in go_on(run_input):
            if event.type != "RUN_STARTED":
                yield event

    assert types(LocalAgent(echo, thread_id="mine").use(twice)) == [*CUT, *WHOLE[1:]]
    assert asked == ["other", "mine"]


@pytest.mark.parametrize("way", ["leave", "abort", "cancel"])
def test_middleware_is_closed_with_its_run(way: str) -> None:
    """Even one that was not written with care, and from the outside in when it is left."""
    closed: list[str] = []

    async def careless(run_input: RunInput, go_on: Next) -> AsyncIterator[AnyEvent]:
        try:
            async for event in go_on(run_input):
                yield event
        finally:
            closed.append("outer")

    async def endless(run_input: RunInput) -> AsyncIterator[bytes]:
        try:
            yield STARTED
            await asyncio.Event().wait()
        finally:
            closed.append("inner")

    async def main() -> None:
        agent = LocalAgent(endless).use(careless)
        events = agent.run_agent()
        await anext(events)
        if way == "leave":
            await events.aclose()
        else:
            reading = asyncio.create_task(receive(events))
            await asyncio.sleep(0)
            await (abort if way == "abort" else cancel)(agent, reading)
        assert sorted(closed) == ["inner", "outer"]
        assert closed[0] == ("outer" if way == "leave" else "inner")

    asyncio.run(main())


# Agents in this process


def _list(_: RunInput) -> list[bytes]:
    return [STARTED, HELLO, FINISHED]


def _generator(_: RunInput) -> Iterator[Any]:
    yield from (STARTED, HELLO.decode(), decode(FINISHED))


async def _async_generator(_: RunInput) -> AsyncIterator[Any]:
    for event in (STARTED, HELLO.decode(), decode(FINISHED)):
        yield event


async def _coroutine(_: RunInput) -> list[bytes]:
    return [STARTED, HELLO, FINISHED]


@pytest.mark.parametrize(
    "function",
    [
        pytest.param(_list, id="list"),
        pytest.param(_generator, id="generator"),
        pytest.param(_async_generator, id="async generator"),
        pytest.param(_coroutine, id="coroutine"),
    ],
)
def test_a_function_is_an_agent(function: Callable[[RunInput], Any]) -> None:
    assert types(LocalAgent(function)) == WHOLE


def test_a_function_may_give_models_of_ag_ui() -> None:
    need("ag-ui-protocol", find_spec("ag_ui") is not None, "run `uv sync`, which installs the group `agents`")
    from ag_ui.core import RunFinishedEvent, RunStartedEvent  # noqa: PLC0415  # slow to load

    models = [RunStartedEvent(thread_id="t", run_id="r"), RunFinishedEvent(thread_id="t", run_id="r")]
    assert types(LocalAgent(lambda _: models)) == ["RUN_STARTED", "RUN_FINISHED"]


def test_what_a_function_raises_fails_the_run() -> None:
    def broken(run_input: RunInput) -> Iterator[bytes]:
        yield STARTED
        raise ZeroDivisionError(run_input.thread_id)

    received = asyncio.run(receive(LocalAgent(broken, thread_id="t").run_agent()))
    assert received == ["RUN_STARTED"]
    assert isinstance(received.error, ZeroDivisionError)


def test_a_function_sees_the_messages_of_the_source() -> None:
    seen: list[RunInput] = []

    def look(run_input: RunInput) -> list[bytes]:
        seen.append(run_input)
        return [STARTED, FINISHED]

    agent = LocalAgent(look, messages=[{"id": "1"}])
    agent.add_message({"id": "2"})
    types(agent)
    agent.set_messages([{"id": "3"}])
    types(agent)
    assert [[message["id"] for message in each.messages] for each in seen] == [["1", "2"], ["3"]]
    assert seen[0].run_id != seen[1].run_id


def test_a_replay_is_the_same_every_time() -> None:
    replay = Replay(iter([STARTED, {"type": "NEW", "x": 1}, FINISHED]))
    assert types(replay) == types(replay) == ["RUN_STARTED", "NEW", "RUN_FINISHED"]


def test_a_replay_of_what_is_no_event_is_refused() -> None:
    with pytest.raises(CitewireError):
        Replay([STARTED, 5])
