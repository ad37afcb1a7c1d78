"""Fetching: what is never reached, whatever a URL, a resolver or a redirect says, and what it may cost."""

import asyncio
import gzip
import socket
import ssl
import zlib
from collections.abc import Callable, Iterable
from contextlib import suppress
from ipaddress import ip_address
from pathlib import Path
from threading import Event
from types import SimpleNamespace
from typing import Any

import pytest

from citewire.documents.fetch import (
    AddressRefused,
    BadUrl,
    FetchError,
    FetchResult,
    FetchTimeout,
    FetchTooLarge,
    IpAddress,
    Route,
    fetch,
)
from support.clock import clock, on_clock
from support.loopback import BREAK, CHUNKED, HOLD, Answer, Loopback, answer, chunk

PUBLIC = "93.184.215.14"
# Only for what never comes: whatever a slow machine has not done by then ends in the same way.
SOON = 0.3
# What takes this long hangs.
LATE = 20.0

# For docs.example.test, until 2100, trusted by nobody but these tests.
PEM = """\
-----BEGIN PRIVATE KEY-----
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgpmPGW5xsB2A2lm/t
Q6B2SUIZuruXQFW65PvYs6MNv1yhRANCAAQ9tu9/QwsSrAzLoTeuuVKbQGFDOotN
b2DTRYnMVS55CzIL55/PQBA+z5E12AvX0O+AASrG4DM1BE0waMeY+LTL
-----END PRIVATE KEY-----
-----BEGIN CERTIFICATE-----
MIIBiTCCAS+gAwIBAgIBATAKBggqhkjOPQQDAjAcMRowGAYDVQQDDBFkb2NzLmV4
YW1wbGUudGVzdDAgFw0wMDAxMDEwMDAwMDBaGA8yMTAwMDEwMTAwMDAwMFowHDEa
MBgGA1UEAwwRZG9jcy5leGFtcGxlLnRlc3QwWTATBgcqhkjOPQIBBggqhkjOPQMB
BwNCAAQ9tu9/QwsSrAzLoTeuuVKbQGFDOotNb2DTRYnMVS55CzIL55/PQBA+z5E1
2AvX0O+AASrG4DM1BE0waMeY+LTLo2AwXjAcBgNVHREEFTATghFkb2NzLmV4YW1w
bGUudGVzdDAPBgNVHRMBAf8EBTADAQH/MB0GA1UdDgQWBBRNGRDIn2BC4X19roMj
x3tNKUDyBTAOBgNVHQ8BAf8EBAMCAoQwCgYIKoZIzj0EAwIDSAAwRQIgSDwtaLZ0
nMJDn4LcoOdIe5iP/WIsNQJAMRrBmtl9q2MCIQDMn17dTZ88YfyDWehSWkDAh2fq
WkisTINQRukWG80rZA==
-----END CERTIFICATE-----
"""


@pytest.fixture(autouse=True)
def loopback_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a check fails to refuse, the test fails, and nobody outside hears of it."""
    connect = socket.create_connection

    def guarded(address: tuple[str, int], *rest: Any, **options: Any) -> socket.socket:
        assert ip_address(address[0]).is_loopback, f"on the way to {address}"
        return connect(address, *rest, **options)

    monkeypatch.setattr(socket, "create_connection", guarded)


def on_loopback(address: IpAddress, _port: int) -> bool:
    return str(address) == "127.0.0.1"


class Names:
    """A resolver that gives each of `answers` in turn, the last one for ever, and counts the questions."""

    def __init__(self, *answers: Iterable[str]) -> None:
        self._answers = answers
        self.asked: list[str] = []

    def __call__(self, host: str) -> Iterable[str]:
        self.asked.append(host)
        return self._answers[min(len(self.asked), len(self._answers)) - 1]


def nobody(host: str) -> Iterable[str]:
    raise AssertionError(f"{host} was looked up")


def refused(url: str, resolve: Callable[[str], Iterable[str]] = nobody) -> FetchError:
    with pytest.raises(FetchError) as caught:
        fetch(url, deadline=LATE, route=Route(resolve=resolve))
    return caught.value


def serve(*answers: Answer, path: str = "http://docs.example.test:{port}/a", **options: Any) -> Any:
    """What fetching from a server that answers like this gives or raises, and the server."""

    async def main() -> tuple[FetchResult | FetchError, Loopback]:
        async with Loopback(*answers) as server:
            port = server.url.split(":")[2].split("/")[0]
            options.setdefault("deadline", LATE)
            options.setdefault("route", Route(resolve=Names(["127.0.0.1"]), allow=on_loopback))
            try:
                return await asyncio.to_thread(fetch, path.format(port=port), **options), server
            except FetchError as exc:
                return exc, server

    return asyncio.run(main())


def moved(location: str, status: str = "302 Found") -> Answer:
    return [answer(b"", None, status, f"location: {location}\r\n")]


@pytest.mark.parametrize(
    "address",
    [
        "0.0.0.0", "10.1.2.3", "100.64.0.1", "127.0.0.1", "127.8.8.8", "168.63.129.16", "169.254.169.254",
        "172.16.0.1", "192.0.0.8", "192.0.2.1", "192.88.99.1", "192.168.1.1", "198.18.0.1", "198.51.100.1",
        "203.0.113.1", "224.0.0.1", "224.0.1.1", "239.255.255.250", "240.0.0.1", "255.255.255.255",
        "::", "::1", "::7f00:1", "::8.8.8.8", "::ffff:127.0.0.1", "::ffff:8.8.8.8", "64:ff9b::7f00:1",
        "64:ff9b:1::1", "100::1", "2001::1", "2001:db8::1", "2001:10::1", "2002:7f00:1::", "3fff::1",
        "5f00::1", "fc00::1", "fd00:ec2::254", "fe80::1", "fe80::1%eth0", "fec0::1", "ff02::1", "ff0e::1",
    ],
)  # fmt: skip
def test_no_address_that_is_not_public(address: str) -> None:
    """Neither by name, not even beside a public one, nor written into the URL."""
    for answers in ([address], [PUBLIC, address], [address, PUBLIC]):
        assert isinstance(refused("http://docs.example.test/", Names(answers)), AddressRefused)
    if "%" not in address:
        literal = f"[{address}]" if ":" in address else address
        assert isinstance(refused(f"https://{literal}/"), AddressRefused)


def test_the_error_does_not_tell_the_address() -> None:
    assert "10.1.2.3" not in str(refused("http://intranet.example.test/", Names(["10.1.2.3"])))


@pytest.mark.parametrize(
    "url",
    [
        "", "docs.example.test", "/etc/passwd", "//docs.example.test/", "http:", "http://", "http:///x",
        "http:x",
        "file:///etc/passwd", "ftp://docs.example.test/", "gopher://docs.example.test/", "data:text/html,x",
        "javascript:alert(1)", "http://user@docs.example.test/", "http://user:secret@docs.example.test/",
        "http://:secret@docs.example.test/", "http://docs.example.test\\@127.0.0.1/",
        "http://127.1/", "http://127.0.1/", "http://2130706433/", "http://0x7f000001/", "http://0x7f.0.0.1/",
        "http://017700000001/", "http://0177.0.0.1/", "http://127.0.0.1.1/", "http://127.0.0.256/", "http://0/",
        "http://0x/", "http://127.0.0.1./", "http://134744072/", "http://①②⑦.0.0.1/", "http://１２７.0.0.1/",
        "http://%31%32%37.0.0.1/", "http://[::1/", "http://[::1%25lo]/", "http://[fe80::1%eth0]/",
        "http://[v1.x]/", "http://a..b/", "http://.a/", "http://-a.test/", "http://a b/", "http://a\tb/",
        "http://a/\r\nx: y", "http://a/\0", f"http://{'a' * 64}.test/", f"http://{'a.' * 127}test/",
        "http://a:b/", "http://\ud800/", "http://docs.example.test/" + "a" * 70000,
    ],
)  # fmt: skip
def test_no_url_that_is_not_plain(url: str) -> None:
    """No name of any of them is even looked up."""
    assert isinstance(refused(url), BadUrl)


@pytest.mark.parametrize("port", [0, 22, 25, 81, 6379, 8080, 65535, 65536, 99999])
def test_no_port_that_is_not_for_the_web(port: int) -> None:
    assert isinstance(refused(f"http://docs.example.test:{port}/", Names([PUBLIC])), AddressRefused | BadUrl)


@pytest.mark.parametrize("answers", [[], ["not an address"], ["127.0.0.1.1"]])
def test_a_name_without_an_address(answers: list[str]) -> None:
    assert refused("http://docs.example.test/", Names(answers)).code == "fetch_failed"


@pytest.mark.parametrize("error", [OSError("no such name"), UnicodeError("label too long")])
def test_a_name_that_is_not_found(error: Exception) -> None:
    def resolve(_: str) -> Iterable[str]:
        raise error

    assert refused("http://docs.example.test/", resolve).code == "fetch_failed"


def test_a_name_is_resolved_once_and_that_address_is_used() -> None:
    """A name server that says loopback the next time (DNS rebinding) is not asked a second time."""
    names = Names(["127.0.0.1"], ["127.0.0.2"])
    got, server = serve(
        [answer(b"%PDF-1.7", "application/pdf")], route=Route(resolve=names, allow=on_loopback)
    )
    assert (got.data, got.content_type) == (b"%PDF-1.7", "application/pdf")
    assert names.asked == ["docs.example.test"]
    (request,) = server.requests
    assert request.headers["host"] == got.url.split("/")[2]
    assert request.headers["accept-encoding"] == "identity"
    assert not {"cookie", "authorization", "referer"} & set(request.headers)


def test_another_address_of_the_name_is_tried() -> None:
    def allow(address: IpAddress, _port: int) -> bool:
        return address.is_loopback

    route = Route(resolve=Names(["127.0.0.2", "127.0.0.1"]), allow=allow)
    got, _ = serve([answer(b"here")], route=route)
    assert got.data == b"here"


@pytest.mark.parametrize(
    ("location", "error"),
    [
        ("http://127.0.0.2/", AddressRefused), ("//10.0.0.1/latest/meta-data", AddressRefused),
        ("http://[::1]/", AddressRefused), ("file:///etc/passwd", BadUrl), ("http://2130706433/", BadUrl),
        ("http://user:secret@docs.example.test/", BadUrl), ("http://[", BadUrl),
        ("http://\\@127.0.0.1/", BadUrl),
    ],
)  # fmt: skip
def test_a_redirect_is_checked_like_the_url(location: str, error: type[FetchError]) -> None:
    got, server = serve(moved(location), [answer(b"secret")])
    assert type(got) is error
    assert len(server.requests) == 1


def test_a_redirect_to_the_same_name_is_resolved_anew() -> None:
    """And refused if the name has moved into the house meanwhile."""
    route = Route(resolve=Names(["127.0.0.1"], ["127.0.0.1", "10.0.0.1"]), allow=on_loopback)
    got, server = serve(moved("/b"), [answer(b"secret")], route=route)
    assert isinstance(got, AddressRefused)
    assert len(server.requests) == 1


@pytest.mark.parametrize("status", ["301 Moved", "302 Found", "303 Other", "307 Temporary", "308 Permanent"])
def test_redirects_are_followed(status: str) -> None:
    got, server = serve(moved("b?c=ä#d", status), [answer(b"there")])
    assert got.data == b"there"
    assert got.url.endswith("/b?c=%C3%A4#d")
    assert [request.path for request in server.requests] == ["/a", "/b?c=%C3%A4"]


def test_redirects_without_end() -> None:
    got, server = serve(moved("/again"))
    assert got.code == "fetch_failed"
    assert len(server.requests) == 6


@pytest.mark.parametrize(
    "broken",
    [
        [answer(b"gone", status="404 Not Found")],
        [answer(b"", status="204 No Content")],
        [answer(b"half", status="206 Partial Content")],
        [answer(b"", status="302 Found")],
        [b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nshort"],
        [CHUNKED, chunk(b"short"), BREAK],
        [b"SSH-2.0-OpenSSH_9.9\r\n"],
        [BREAK],
        [b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 100_000],
        [answer(b"\x1f\x8b damaged", more="content-encoding: gzip\r\n")],
        [answer(gzip.compress(b"cut")[:-9], more="content-encoding: gzip\r\n")],
        [answer(b"what", more="content-encoding: br\r\n")],
    ],
)
def test_an_answer_that_is_none(broken: Answer) -> None:
    got, _ = serve(broken)
    assert got.code == "fetch_failed"


@pytest.mark.parametrize(("packed", "coding"), [(gzip.compress, "gzip"), (zlib.compress, "deflate")])
def test_a_packed_answer(packed: Callable[[bytes], bytes], coding: str) -> None:
    """Though nobody asked for it."""
    got, _ = serve([answer(packed(b"unpacked"), more=f"content-encoding: {coding}\r\n")])
    assert got.data == b"unpacked"


@pytest.mark.parametrize(
    "large",
    [
        [answer(b"x" * 1001)],
        [CHUNKED, *([chunk(b"x" * 100)] * 11), HOLD],
        # A bomb, and one that never unpacks to anything.
        [answer(gzip.compress(b"x" * 1_000_000), more="content-encoding: gzip\r\n")],
        [answer(gzip.compress(b"", 0)[:10] + b"\0\0\0\xff\xff" * 300, more="content-encoding: gzip\r\n")],
    ],
)
def test_an_answer_that_is_too_large(large: Answer) -> None:
    got, _ = serve(large, limit=1000)
    assert isinstance(got, FetchTooLarge)


def test_an_answer_of_just_the_limit() -> None:
    got, _ = serve([answer(gzip.compress(b"x" * 1000), more="content-encoding: gzip\r\n")], limit=1000)
    assert got.data == b"x" * 1000


@pytest.mark.parametrize("stalled", [[HOLD], [b"HTTP/1.1 200 OK\r\n", HOLD], [CHUNKED, chunk(b"x"), HOLD]])
def test_an_answer_that_stalls(stalled: Answer) -> None:
    got, _ = serve(stalled, deadline=SOON)
    assert isinstance(got, FetchTimeout)


@pytest.mark.parametrize("head", [CHUNKED, b""], ids=["body", "head"])
def test_a_byte_now_and_then_buys_no_time(head: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each wait is short, as is each byte, but the whole of it has an end. Each byte takes a second."""

    async def main() -> None:
        gone = asyncio.Event()

        async def drip(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(head or b"HTTP/1.1 200 OK\r\nx: ")
            with suppress(ConnectionError):
                while not await asyncio.sleep(0.001):
                    writer.write(chunk(b"x") if head else b"x")
                    await writer.drain()
                    clock().leap(1)
            writer.close()
            gone.set()

        monkeypatch.setattr("citewire.documents.fetch.time", SimpleNamespace(monotonic=clock().time))
        async with await asyncio.start_server(drip, "127.0.0.1", 0) as server:
            url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
            with pytest.raises(FetchTimeout):
                await asyncio.to_thread(fetch, url, deadline=LATE, route=Route(allow=on_loopback))
            await gone.wait()

    on_clock(main())


def test_a_resolver_that_hangs() -> None:
    release = Event()

    def resolve(_: str) -> Iterable[str]:
        release.wait(LATE)
        return [PUBLIC]

    with pytest.raises(FetchTimeout):
        fetch("http://docs.example.test/", deadline=SOON, route=Route(resolve=resolve))
    release.set()


def test_proxies_of_the_environment_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9/")
    got, _ = serve([answer(b"direct")])
    assert got.data == b"direct"


class Secure(Loopback):
    """Loopback with TLS; `names` are those that clients asked for."""

    def __init__(self, pem: Path, *answers: Answer) -> None:
        super().__init__(*answers)
        self.names: list[str | None] = []
        self._tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self._tls.load_cert_chain(pem)
        self._tls.sni_callback = lambda _socket, name, _context: self.names.append(name)

    async def __aenter__(self) -> "Secure":
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=self._tls)
        self.port: int = self._server.sockets[0].getsockname()[1]
        return self


@pytest.mark.parametrize(("host", "trusted"), [("docs.example.test", True), ("other.example.test", False)])
def test_the_certificate_is_for_the_name(tmp_path: Path, host: str, trusted: bool) -> None:
    """Not for the address that was connected to."""
    (tmp_path / "pem").write_text(PEM)

    async def main() -> tuple[bytes, list[str | None]]:
        async with Secure(tmp_path / "pem", [answer(b"safe")]) as server:
            tls = ssl.create_default_context(cadata=PEM[PEM.index("-----BEGIN CERT") :])
            route = Route(resolve=Names(["127.0.0.1"]), allow=on_loopback, tls=tls)
            url = f"https://{host}:{server.port}/"
            try:
                got = await asyncio.to_thread(fetch, url, deadline=LATE, route=route)
            except FetchError as exc:
                assert "certificate" in str(exc)  # noqa: PT017  # the other host expects none
                return b"", server.names
            return got.data, server.names

    assert asyncio.run(main()) == (b"safe" if trusted else b"", [host])
