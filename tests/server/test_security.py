"""What somebody who means harm may send to the whole server, and what comes of it: one error, and no more."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import re
import socket
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Iterable
from contextlib import AsyncExitStack, contextmanager, suppress
from functools import partial
from ipaddress import ip_address
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from citewire.agui.sse import SseParser
from citewire.documents import fetch
from citewire.server.ops import logs
from support.app import Answer, App, listening, opened_app
from support.clock import LONG, Clock, clock, hurried
from support.loopback import Loopback, answer

SECRET = "s3cr3t-of-somebody"


def run(folder: Path, main: Callable[[App], Awaitable[None]], **settings: Any) -> None:
    async def opened() -> None:
        async with opened_app(folder, **settings) as app:
            await main(app)

    with asyncio.Runner(loop_factory=Clock) as runner:
        runner.run(opened())


@contextmanager
def logged() -> Generator[io.StringIO]:
    """All that the server logs, as it logs it."""
    loggers = [
        logging.getLogger(name) for name in ("", "citewire", "uvicorn", "uvicorn.error", "uvicorn.access")
    ]
    before = [(each, each.handlers, each.level, each.propagate) for each in loggers]
    stream = io.StringIO()
    logs.configure("debug", "json", stream)
    try:
        yield stream
    finally:
        for each, handlers, level, propagate in before:
            each.handlers, each.propagate = handlers, propagate
            each.setLevel(level)


def lines(log: io.StringIO) -> list[dict[str, Any]]:
    """Each line is one record."""
    return [json.loads(line) for line in log.getvalue().splitlines()]


# --- names --------------------------------------------------------------------------------------------------

TRICKS = [
    "..", ".", "%2e%2e", "%2e%2e%2f%2e%2e%2fkeys.json", "..%2Fkeys.json", "..%5ckeys.json", "%2Fetc%2Fpasswd",
    "%00", "a%00.txt", "%0d%0aset-cookie:%20a=b", "%0a", "%0Aid:%201", "%E2%80%A8", "%C2%85", "%1b%5b31m",
    "%ff%fe", "%ED%B0%AF", "%F0%9F%98%80", "%E2%80%AE", "%25%32%66", "*", "%5B*%5D*", "{thread}",
    "a" * 2000, "CON", "~", "%24%7Bjndi%7D", "%s%n", "a%3Ab", "%20",
]  # fmt: skip
PLACES = [
    ("GET", "/threads/{}"), ("GET", "/threads/{}/events"), ("POST", "/threads/{}/runs/{}/stop"),
    ("GET", "/threads/{}/messages/{}/citations?dialect=openai"), ("DELETE", "/threads/{}"),
    ("GET", "/sources/{}"), ("GET", "/sources/{}/text"), ("GET", "/sources/{}/content"),
    ("GET", "/sources/{}/pages/{}.{}"), ("DELETE", "/sources/{}"), ("GET", "/proofs/{}"),
    ("GET", "/web/{}"), ("GET", "/threads?after={}"), ("GET", "/sources?after={}"), ("GET", "/{}"),
]  # fmt: skip


def harmless(found: Answer) -> None:
    """Nothing of what was sent is in the head."""
    assert set(found.headers) <= {
        "allow", "cache-control", "content-length", "content-type", "vary", "x-request-id",
        "www-authenticate",
    }, found  # fmt: skip
    assert not any(ord(char) < 32 for value in found.headers.values() for char in value), found


@pytest.mark.parametrize("trick", TRICKS)
def test_a_name_is_only_a_name(tmp_path: Path, trick: str) -> None:
    """It leads nowhere, is told nobody as it is, and a line of the log stays one."""
    (tmp_path / "outside.txt").write_text(SECRET)

    async def main(app: App) -> None:
        for method, place in PLACES:
            found = await app.ask(method, place.replace("{}", trick))
            harmless(found)
            assert found.status in (200, 400, 404), (place, found)
            if found.status == 200:
                assert found.json in (
                    {"threads": [], "next": None},
                    {"sources": [], "reading": 0, "total": 0, "next": None},
                )
            else:
                assert found.code
        assert [len(line["message"]) < 5000 for line in lines(log)] == [True] * len(PLACES)
        assert log.getvalue().replace("\n", "").isprintable()

    with logged() as log:
        run(tmp_path / "data", main)


@pytest.mark.parametrize(
    "name",
    ["../../keys.json", "..", "/etc/passwd", "C:\\x.txt", "a\\..\\b", "a\0.txt", "a\r\nx: y.txt",
     "\u202egnp.exe", "x" * 5000, "", " ", ".", 'a";b.txt', "ümlaut.txt", "😀.txt", "-rf", "a\u2028b"],
)  # fmt: skip
def test_the_name_of_a_file(tmp_path: Path, name: str) -> None:
    """Whatever a source is called, its bytes are where they belong, and who saves them gets a plain name."""
    before = {each.name for each in tmp_path.iterdir()}

    async def main(app: App) -> None:
        form = "multipart/form-data; boundary=b"
        told = name.encode().replace(b"\r", b"%0D").replace(b"\n", b"%0A").replace(b'"', b"%22")
        body = (
            b'--b\r\ncontent-disposition: form-data; name="f"; filename="%b"\r\n\r\nWords.\r\n--b--\r\n'
            % told
        )
        for found in (
            await app.ask("POST", f"/sources?name={quote(name, safe='')}", b"Words."),
            await app.ask("POST", "/sources", body, content_type=form),
        ):
            if found.status >= 300:
                assert found.status == 400, found
                assert found.code
                continue
            (source,) = found.json["sources"]
            assert source["name"].isprintable()
            assert not {"/", "\\"} & set(source["name"])
            saved = await app.ask("GET", f"/sources/{source['id']}/content")
            assert saved.body == b"Words."
            head = saved.headers["content-disposition"]
            assert re.fullmatch(r"attachment; filename(=\"[ -~]+\"|\*=utf-8''[\w.~%!$&+^`|'()*-]+)", head), (
                head
            )
            assert saved.headers["content-security-policy"] == "default-src 'none'; sandbox"
            assert saved.headers["x-content-type-options"] == "nosniff"

    run(tmp_path / "data", main)
    assert {each.name for each in tmp_path.iterdir()} == before | {"data"}


@pytest.mark.parametrize("name", ["t\r\nid: 7", "t\n\ndata: {}", "t\0", "t\u2028", "../x", "😀", "t" * 150])
def test_no_id_is_a_frame_of_its_own(tmp_path: Path, name: str) -> None:
    async def main(app: App) -> None:
        posted: dict[str, Any] = {"threadId": name, "runId": name.replace("\0", "0"), "messages": []}
        streamed = await app.ask("POST", "/agui", posted)
        again = await app.ask("GET", f"/threads/{quote(name, safe='')}/events", accept="text/event-stream")
        for found in (streamed, again):
            assert found.status == 200, found
            frames = [line for line in found.body.decode().split("\n") if line]
            ids = [line[4:] for line in frames if line.startswith("id: ")]
            assert ids
            assert all(re.fullmatch(r"[0-9a-f]+:\d+", each) for each in ids)
            assert all(line.startswith(("id: ", "data: {")) for line in frames)
            assert b"\r" not in found.body
            events = [json.loads(frame.data) for frame in SseParser().feed(found.body) if frame.data]
            assert events[0]["threadId"] == name
        harmless(await app.ask("DELETE", f"/threads/{quote(name, safe='')}"))

    with logged() as log:
        run(tmp_path, main, agent="support.teasing_agent:teasing")
    assert lines(log)
    assert log.getvalue().replace("\n", "").isprintable()


def test_what_is_sent_back_in_a_header(tmp_path: Path) -> None:
    async def main(app: App) -> None:
        for sent in ("a b", "x" * 65, "é", "a;b", '"'):
            found = await app.ask("GET", "/healthz", x_request_id=sent)
            assert re.fullmatch(r"[0-9a-f]{16}", found.headers["x-request-id"])
        assert (await app.ask("GET", "/healthz", x_request_id="abc-1.2")).headers["x-request-id"] == "abc-1.2"

    run(tmp_path, main)


# --- what is sent -------------------------------------------------------------------------------------------

BODIES = [
    pytest.param(b"", "bad_json", id="nothing"),
    pytest.param(b"{", "bad_json", id="cut"),
    pytest.param(b"[]", "bad_shape", id="a list"),
    pytest.param(b"null", "bad_shape", id="null"),
    pytest.param(b"[" * 100_000, "bad_json", id="deep lists"),
    pytest.param(b'{"a":' * 100_000, "bad_json", id="deep objects"),
    pytest.param(b'{"threadId":"\\ud800","runId":"r"}', "bad_json", id="a lone surrogate"),
    pytest.param(b'{"threadId":"\xed\xa0\x80","runId":"r"}', "bad_json", id="a surrogate in UTF-8"),
    pytest.param(b'{"threadId":"\xff","runId":"r"}', "bad_json", id="not UTF-8"),
    pytest.param('{"threadId":"t","runId":"r"}'.encode("utf-16"), "bad_json", id="UTF-16"),
    pytest.param(b'{"threadId":NaN,"runId":"r"}', "bad_json", id="NaN"),
    pytest.param(b'{"threadId":"t","runId":"r","state":Infinity}', "bad_json", id="Infinity"),
    pytest.param(b'{"threadId":"t","runId":"r","state":1e999}', "bad_json", id="more than a number"),
    pytest.param(b'{"threadId":1,"runId":"r"}', "bad_shape", id="a number"),
    pytest.param(b'{"threadId":"","runId":"r"}', "bad_input", id="no name"),
    pytest.param(b'{"threadId":"t","runId":"\\u0000"}', "bad_input", id="NUL"),
    pytest.param(b'{"threadId":"%b","runId":"r"}' % (b"t" * 600), "bad_input", id="a long name"),
    pytest.param(b'{"threadId":"t","runId":"%b"}' % (b"r" * 600), "bad_input", id="a long name of a run"),
    pytest.param(b'{"threadId":"t","runId":"r"} x', "bad_json", id="more behind it"),
]


@pytest.mark.parametrize(("body", "code"), BODIES)
def test_a_body_that_is_no_run(tmp_path: Path, body: bytes, code: str) -> None:
    async def main(app: App) -> None:
        found = await app.ask("POST", "/agui", body, content_type="application/json")
        assert (found.status, found.code) == (400, code)
        assert (await app.ask("GET", "/threads")).json["threads"] == []
        for path in ("/verify", "/sources", "/threads/t/reviews"):
            found = await app.ask("POST", path, body, content_type="application/json")
            assert (found.status, found.code[:4]) == (400, "bad_"), (path, found)

    run(tmp_path, main)


def test_of_a_field_that_is_there_twice_one_is_asked_and_done(tmp_path: Path) -> None:
    """Not one by whoever guards the resource, and another by whoever acts on it."""

    async def main(app: App) -> None:
        body = b'{"threadId":"mine","threadId":"theirs","runId":"r"}'
        key = app.token({"thread:mine": ["run"]})
        found = await app.ask("POST", "/agui", body, key=key, content_type="application/json")
        assert (found.status, found.code) == (403, "forbidden")
        assert (await app.ask("GET", "/threads")).json["threads"] == []

    run(tmp_path, main)


@pytest.mark.parametrize(
    "kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=b", "", "a/b"]
)
def test_a_form_of_another_site_is_no_request(tmp_path: Path, kind: str) -> None:
    async def main(app: App) -> None:
        for path in ("/agui", "/verify", "/threads/t/reviews", "/sources"):
            found = await app.ask("POST", path, b'{"threadId":"t","runId":"r"}', content_type=kind)
            assert (found.status, found.code) == (400, "bad_input"), (path, found)

    run(tmp_path, main)


@pytest.mark.parametrize(
    "path", ["/agui", "/verify", "/threads/t/reviews", "/sources", "/sources?name=a.txt"]
)
def test_a_body_without_end(tmp_path: Path, path: str) -> None:
    """It is left where it is too large, and nothing of it is kept."""
    sent = 0

    async def endless() -> AsyncGenerator[bytes]:
        nonlocal sent
        while True:
            sent += 1000
            yield b" " * 1000

    async def main(app: App) -> None:
        found = await app.ask("POST", path, endless(), content_type="application/json")
        assert (found.status, found.code) in ((413, "too_large"), (400, "bad_input"))
        assert sent < 110_000
        assert (await app.ask("GET", "/sources")).json["total"] == 0

    run(tmp_path, main, max_body=100_000, max_upload=100_000)
    kept = [each for each in (tmp_path / "sources").rglob("*") if each.is_file()]
    assert not kept


@pytest.mark.parametrize(
    ("target", "headers", "expected"),
    [
        ("/threads/" + "t" * 9000, {}, (414, "url_too_long")),
        ("/threads?after=" + "t" * 9000, {}, (414, "url_too_long")),
        ("/threads", {"cookie": "x" * 40_000}, (431, "headers_too_large")),
        ("/threads", {f"x_{n}": "" for n in range(200)}, (431, "headers_too_large")),
        ("/threads", {"content_length": "99999999999"}, (413, "too_large")),
        ("/threads", {"content_length": "-1"}, (400, "bad_request")),
        ("/threads", {"content_length": "1e3"}, (400, "bad_request")),
    ],
    ids=["path", "query", "cookie", "headers", "length", "negative", "no number"],
)
def test_a_head_that_is_too_large(
    tmp_path: Path, target: str, headers: dict[str, Any], expected: tuple[int, str]
) -> None:
    async def main(app: App) -> None:
        found = await app.ask("GET", target, **headers)
        assert (found.status, found.code) == expected

    run(tmp_path, main)


METHODS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT", "BREW", "get"]


def test_every_refusal_has_one_shape(tmp_path: Path) -> None:
    """Whatever the path and the method; and of a path, all methods that it has are told."""

    async def main(app: App) -> None:
        has: dict[str, set[str]] = {}
        for each in app.server.operations:
            has.setdefault(each.path, set()).add(each.method)
        del has["/sources/events"]  # with another method it is a source of this name
        for path, own in has.items():
            target = re.sub(r"\{\w+\}", "x", path)
            taken = {*own, *(["HEAD"] if "GET" in own else ())}
            for method in {*METHODS} - taken:
                found = await app.ask(method, target)
                assert (found.status, found.code) == (405, "method_not_allowed"), (method, target)
                assert {*found.headers["allow"].split(", ")} == taken, (method, target)
        for target in (
            "/nope",
            "//",
            "/threads/",
            "/threads//",
            "/threads/t/x",
            "/Threads",
            "/metrics%0a",
            "*",
        ):
            for method in METHODS:
                found = await app.ask(method, target)
                assert (found.status, found.code) == (404, "not_found"), (method, target)

    run(tmp_path, main)


def test_a_failure_of_ours(tmp_path: Path) -> None:
    """Is told without details, in the same shape, and logged."""

    async def main(app: App) -> None:
        (tmp_path / "keys.json").write_text(f'[{{"name": "{SECRET}"}}]')
        found = await app.ask("GET", "/threads")
        assert (found.status, found.code) == (500, "internal")
        assert not {SECRET, "keys.json", str(tmp_path)} & set(found.body.decode().split('"'))
        assert (await app.ask("GET", "/healthz")).status == 200
        assert any("keys.json" in line.get("exception", "") for line in lines(log))

    with logged() as log:
        run(tmp_path, main)


STARTS = st.sampled_from(["/threads/", "/sources/", "/proofs/", "/agui"])
ESCAPES = st.binary(max_size=20).map(lambda data: "".join(f"%{each:02x}" for each in data))
LETTERS = st.text(st.sampled_from("/?%.=&#;:\\abt0 \0\r\né"), max_size=20)
TARGETS = st.tuples(STARTS | st.just("/"), ESCAPES | LETTERS).map("".join)


def test_whatever_is_asked(tmp_path: Path) -> None:
    """Comes to an end, with an answer that is no failure."""
    with asyncio.Runner() as runner:
        stack = AsyncExitStack()
        app = runner.run(stack.enter_async_context(opened_app(tmp_path)))

        @given(
            st.sampled_from(METHODS),
            TARGETS,
            st.binary(max_size=50) | st.just(b'{"threadId":"t","runId":"r"}'),
        )
        @example("GET", "/threads/%80%2f%2F", b"")
        def answers(method: str, target: str, body: bytes) -> None:
            found = runner.run(app.ask(method, target, body, leaves=True))
            assert found.status < 500
            assert found.status < 400 or found.code

        try:
            answers()
        finally:
            runner.run(stack.aclose())


# --- where it is sent to ------------------------------------------------------------------------------------

HERE = [
    "http://127.0.0.1/", "http://127.0.0.1:8787/metrics", "http://127.1/", "http://2130706433/", "http://0x7f000001/",
    "http://017700000001/", "http://0/", "http://localhost/", "http://[::1]/", "http://[::ffff:127.0.0.1]/",
    "http://169.254.169.254/latest/meta-data/", "http://[fd00:ec2::254]/", "http://10.0.0.1/", "http://192.168.0.1/",
    "http://rebound.example.test/", "http://127.0.0.1.nip.example.test/", "http://user:pass@127.0.0.1/",
    "file:///etc/passwd", "ftp://example.test/", "gopher://127.0.0.1:6379/_x", "http://example.test:22/",
    "http://example.test\r\nx: y/", "javascript:alert(1)", "//example.test/", "data:text/plain,x", "http://",
    "http://①②⑦.0.0.1/", "http://127。0。0。1/", "unix:/tmp/x", "x", "http://[fe80::1%25eth0]/",
]  # fmt: skip


@pytest.fixture
def private(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every name leads to this machine, and nothing leaves it."""

    def nowhere(address: tuple[str, int], *_: Any, **__: Any) -> socket.socket:
        raise AssertionError(f"on the way to {address}")

    names = fetch.Route(resolve=lambda _host: ["127.0.0.1"])
    monkeypatch.setattr(socket, "create_connection", nowhere)
    monkeypatch.setattr(fetch, "fetch", partial(fetch.fetch, route=names))


@pytest.mark.usefixtures("private")
def test_no_source_is_fetched_from_within(tmp_path: Path) -> None:
    async def main(app: App) -> None:
        for url in HERE:
            found = await app.ask("POST", "/sources", {"url": url})
            assert (found.status, found.code) in ((422, "address_refused"), (422, "bad_url")), (url, found)
        assert (await app.ask("GET", "/sources")).json["total"] == 0

    run(tmp_path, main)


@pytest.mark.parametrize(
    "to",
    ["http://169.254.169.254/", "http://127.0.0.1:{inner}/", "http://localhost:{inner}/", "http://[::1]:{inner}/",
     "//127.0.0.1:{inner}/", "file:///etc/passwd"],
)  # fmt: skip
def test_no_redirect_leads_within(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, to: str) -> None:
    """The server that it is sent to is there, and never hears of it."""

    def port(server: Loopback) -> int:
        return int(server.url.split(":")[2].split("/")[0])

    async def main(app: App) -> None:
        async with Loopback([answer(SECRET.encode(), "text/plain")]) as inner:
            head = f"location: {to.format(inner=port(inner))}\r\n"
            async with Loopback([answer(b"", None, "302 Found", head)]) as outer:
                way = fetch.Route(
                    resolve=lambda _host: ["127.0.0.1"],
                    allow=lambda address, at: address == ip_address("127.0.0.1") and at == port(outer),
                )
                monkeypatch.setattr(fetch, "fetch", partial(fetch.fetch, route=way))
                url = f"http://docs.example.test:{port(outer)}/a"
                found = await app.ask("POST", "/sources", {"url": url})
                assert (found.status, found.code) in ((422, "address_refused"), (422, "bad_url")), found
                assert (len(outer.requests), len(inner.requests)) == (1, 0)

    run(tmp_path, main)


# --- over sockets -------------------------------------------------------------------------------------------


async def converse(where: tuple[str, int], data: bytes, trickle: bytes = b"") -> bytes:
    """What comes until the server ends the connection, while time flies; `trickle` is sent every second."""
    loop, got = asyncio.get_running_loop(), b""
    with socket.socket() as client, suppress(ConnectionError):
        client.setblocking(False)
        await loop.sock_connect(client, where)
        await loop.sock_sendall(client, data)
        while True:
            reading = asyncio.create_task(loop.sock_recv(client, 1 << 16))
            while not reading.done():
                clock().leap(1)
                with suppress(OSError):  # it may be closed, or full
                    client.send(b"" if got else trickle)
                await asyncio.sleep(0)
            if not (piece := await reading):
                break
            got += piece
    return got


def head(app: App, *more: str, target: str = "POST /agui") -> bytes:
    return "\r\n".join(
        [f"{target} HTTP/1.1", "host: x", f"authorization: Bearer {app.key}", *more, "", ""]
    ).encode()


RAW: dict[str, tuple[Callable[[App], bytes], bytes, int]] = {
    "nothing": (lambda _: b"", b"", 0),
    "half a head": (lambda _: b"GET /threads HTTP/1.1\r\nhost: ", b"", 0),
    "a head that trickles": (lambda _: b"GET /threads HTTP/1.1\r\n", b"a: b\r\n", 0),
    "a header without end": (lambda _: b"GET /threads HTTP/1.1\r\na: ", b"b" * 20_000, 431),
    "a body that does not come": (lambda app: head(app, "content-length: 99"), b"", 408),
    "a body that trickles": (lambda app: head(app, "content-length: 99999"), b"x", 408),
    "an upload that trickles": (
        lambda app: head(app, "content-length: 99999", target="POST /sources?name=a.txt"), b"x", 408,
    ),
    "chunks that trickle": (lambda app: head(app, "transfer-encoding: chunked"), b"1\r\nx\r\n", 408),
    "chunks without end": (
        lambda app: head(app, "transfer-encoding: chunked"), b"2000\r\n" + b"x" * 0x2000 + b"\r\n", 413,
    ),
    "a length that is too large": (lambda app: head(app, "content-length: 9999999"), b"", 413),
    "two lengths": (lambda app: head(app, "content-length: 1", "content-length: 2"), b"", 400),
    "a length and chunks": (
        lambda app: head(app, "content-length: 4", "transfer-encoding: chunked") + b"0\r\n\r\n", b"", 400,
    ),
    "a line that goes on": (lambda app: head(app, "a: b\r\n c"), b"", 400),
    "NUL": (lambda app: head(app, "a: b\0c"), b"", 400),
    "a bare line feed": (lambda app: head(app, "a: b\nauthorization: x"), b"", 400),
    "a blank in a name": (lambda app: head(app, "content-length : 4"), b"", 400),
    "no HTTP": (lambda _: b"\x16\x03\x01\x02\x00\x01", b"", 400),
    "another HTTP": (lambda _: b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"", 400),
}  # fmt: skip


@pytest.mark.parametrize("case", RAW)
def test_whoever_is_slow_or_lies(tmp_path: Path, case: str) -> None:
    """Is left in the end, told why where there is a request, and nobody else notices."""
    data, trickle, status = RAW[case]

    async def main(app: App) -> None:
        async with listening(app) as where:
            found = await converse(where, data(app), trickle)
            first, _, body = found.partition(b"\r\n\r\n")
            assert (int(first.split(b" ")[1]) if found else 0) == status, found
            if found:
                assert set(json.loads(body[: body.rindex(b"}") + 1])["error"]) == {"code", "message"}
            last = await converse(where, head(app, "connection: close", target="GET /threads"))
            assert last.endswith(b'{"threads":[],"next":null}')

    run(tmp_path, main, max_body=100_000, max_connections=2)


def test_a_body_that_is_longer_than_it_says_is_no_request(tmp_path: Path) -> None:
    """What follows is taken for one, has to say itself who sends it, and does nothing."""

    async def main(app: App) -> None:
        await app.ask("POST", "/agui", {"threadId": "t", "runId": "r"})
        async with listening(app) as where:
            smuggled = b"DELETE /threads/t HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"
            found = await converse(where, head(app, "content-length: 2") + b"{}" + smuggled)
            assert re.findall(rb"HTTP/1.1 (\d+)", found) == [b"400", b"401"]
        assert (await app.ask("GET", "/threads/t")).status == 200

    run(tmp_path, main)


def test_slow_connections_leave_room(tmp_path: Path) -> None:
    """As many as there may be, one after another, and then others are served."""

    async def main(app: App) -> None:
        async with listening(app) as where:
            slow = [await asyncio.open_connection(*where) for _ in range(20)]
            for _, writer in slow:
                writer.write(b"GET /threads HTTP/1.1\r\n")
            full = await converse(where, b"")
            assert b" 503 " in full
            assert b'"code":"busy"' in full
            for reader, writer in slow:
                assert await hurried(asyncio.create_task(reader.read())) == b""
                writer.close()
            found = await converse(where, head(app, "connection: close", target="GET /threads"))
            assert found.endswith(b'{"threads":[],"next":null}')

    run(tmp_path, main, max_connections=20, header_timeout=LONG)


# --- many ---------------------------------------------------------------------------------------------------


def test_ten_thousand_at_once(tmp_path: Path) -> None:
    """Whoever asks too much is told so, while another is served, and what was begun is done."""

    async def main(app: App) -> None:
        hog, other = app.server.keyring.create(), app.server.keyring.create()
        body = {"threadId": "t", "runId": "r"}
        crowd = [app.ask("POST", "/agui", body, key=hog) for _ in range(10_000)]
        asked = [asyncio.create_task(each) for each in crowd]
        served = await app.ask("GET", "/threads", key=other)
        assert served.status == 200
        found = await asyncio.gather(*asked)
        statuses = {each.status for each in found}
        assert statuses == {200, 429}
        assert sum(each.status == 200 for each in found) <= 200
        assert all(each.code == "too_many_requests" for each in found if each.status == 429)
        assert all(int(each.headers["retry-after"]) > 0 for each in found if each.status == 429)
        assert {each.body for each in found if each.status == 200} == {found[0].body}
        threads = (await app.ask("GET", "/threads", key=other)).json["threads"]
        assert [each["threadId"] for each in threads] == ["t"]

    run(tmp_path, main, rate=1.0, burst=200, max_client_requests=50)


# --- secrets ------------------------------------------------------------------------------------------------


def test_no_secret_is_logged(tmp_path: Path) -> None:
    """Wherever somebody puts it, also where it does not belong."""

    async def main(app: App) -> None:
        name, _, secret = app.key.partition(":")
        token = app.token({"thread:*": ["list"]})
        secrets.extend([secret, token, token.rpartition(".")[2], SECRET])
        cookie = (await app.ask("GET", "/")).headers["set-cookie"].partition(";")[0]
        link = app.server.sign_in_link().removeprefix(app.server.address)
        secrets.extend([cookie.partition("=")[2], link.partition("=")[2]])
        assert (await app.ask("GET", link, key=None)).status == 303
        assert (await app.ask("GET", link, key=None)).status == 401
        for target, headers in requests(name, token):
            for method in ("GET", "POST", "PUT"):
                await app.ask(method, target, key=None, **headers)
        await app.ask("POST", "/sources", {"url": f"http://user:{SECRET}@127.0.0.1/?token={SECRET}"})
        await app.ask("POST", "/agui", {"threadId": "t", "runId": "r", "state": {"password": SECRET}})
        await app.ask("GET", "/threads", key=None, cookie=cookie)
        async with listening(app) as where:
            await converse(where, head(app, "a: b\r\n c"))
            await converse(where, head(app, "connection: close", target=f"GET /?access_token={token}"))

    def requests(name: str, token: str) -> Iterable[tuple[str, dict[str, Any]]]:
        yield "/threads", {"authorization": f"Bearer {token}"}
        yield "/threads", {"authorization": f"Basic {SECRET}"}
        yield "/threads", {"authorization": f"Bearer {name}:{SECRET}"}
        yield (
            "/threads",
            {"authorization": SECRET, "cookie": f"citewire_session={SECRET}", "x_api_key": SECRET},
        )
        yield f"/threads?access_token={token}", {}
        yield f"/threads?%61ccess_token={SECRET}&Access_Token={SECRET}&key={SECRET}", {}
        yield f"/proofs/x.{'0' * 32}?sig={SECRET}", {}
        yield f"/threads?after=x&token={SECRET}", {}

    secrets: list[str] = []
    with logged() as log:
        run(tmp_path, main)
    assert len(lines(log)) > 20
    assert [secret for secret in secrets if secret in log.getvalue()] == []
