"""Fetch a page or file from the public web, and from nowhere else.

The URL was written by a model, or by a user who prompted it, and must not lead to hosts that only this
machine can reach. So a name is resolved once, all its addresses must be public, and the connection goes to
the checked address: a name server that later answers differently (DNS rebinding) is not asked again.
Redirects are checked in the same way. Error messages contain no addresses, which may be secret.

    DocumentError
    └── FetchError           no usable response; the others are kinds of it
        ├── BadUrl           not http or https, with a password, with a host that can be read in two ways
        ├── AddressRefused   an address that is not public, or a port that is not for the web
        ├── FetchTooLarge    more bytes than allowed, as sent or decompressed
        └── FetchTimeout     not finished in time, name lookup and redirects included
"""

from __future__ import annotations

import re
import socket
import ssl
import time
import zlib
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from threading import Thread
from typing import Any, TypeAlias

import httpcore2
import httpx2
from msgspec import Struct

from citewire.documents.errors import DocumentError

__all__ = [
    "AddressRefused",
    "BadUrl",
    "FetchError",
    "FetchResult",
    "FetchTimeout",
    "FetchTooLarge",
    "Route",
    "fetch",
]

IpAddress: TypeAlias = IPv4Address | IPv6Address

FETCH_LIMIT = 64 << 20
FETCH_DEADLINE = 30.0
_REDIRECTS = 5
# Most addresses of a host that are tried; each gets its share of the remaining time.
_ATTEMPTS = 4

_PORTS = {"http": 80, "https": 443}
_MOVED = frozenset({301, 302, 303, 307, 308})
# Identity: nothing to decompress, if the server complies.
_SENT = [
    (b"accept-encoding", b"identity"), (b"connection", b"close"), (b"user-agent", b"citewire"),
]  # fmt: skip

# Only 2000::/3 is public at all, which excludes ::/96, ::ffff:0:0/96 and 64:ff9b::/96, which embed IPv4.
_UNICAST = ip_network("2000::/3")
# Not public, although `is_global` may say otherwise: Teredo and similar, 6to4 and its relays, documentation,
# drafts, and an address at which Azure serves its virtual machines.
_OTHERS = ("2001::/23", "2002::/16", "3fff::/20", "192.0.0.0/24", "192.88.99.0/24", "168.63.129.16/32")
_SPECIAL = tuple(map(ip_network, _OTHERS))

_LABEL = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?")
# 127.1, 0x7f000001, 017700000001: some resolvers read these as IPv4 addresses.
_NUMBER = re.compile(r"\d+|0x[0-9a-f]*")


class FetchError(DocumentError):
    code = "fetch_failed"


class BadUrl(FetchError):
    code = "bad_url"


class AddressRefused(FetchError):
    code = "address_refused"


class FetchTooLarge(FetchError):
    code = "fetch_too_large"


class FetchTimeout(FetchError):
    code = "fetch_timeout"


class FetchResult(Struct, frozen=True):
    """A response: its bytes, its final URL, and its content type."""

    data: bytes
    url: str
    content_type: str | None = None


def resolve(host: str) -> Iterable[str]:
    """Return all addresses of a host name from the system's resolver. Raises `OSError`."""
    return [str(found[4][0]) for found in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)]


class Route(Struct, frozen=True, kw_only=True):
    """How to connect. `allow` permits an address and port that are otherwise refused; it is for tests."""

    resolve: Callable[[str], Iterable[str]] = resolve
    allow: Callable[[IpAddress, int], bool] = lambda _address, _port: False
    tls: ssl.SSLContext | None = None


_WEB = Route()


def fetch(
    url: str, *, limit: int = FETCH_LIMIT, deadline: float = FETCH_DEADLINE, route: Route = _WEB
) -> FetchResult:
    """GET `url`, up to `limit` bytes and within `deadline` seconds. Raises `FetchError`."""
    clock = _Deadline(deadline)
    target = _checked(url)
    for _ in range(_REDIRECTS + 1):
        got = _get(target, limit, clock, route)
        if isinstance(got, FetchResult):
            return got
        target = got
    raise FetchError(f"more than {_REDIRECTS} redirects")


def _checked(url: str, base: httpx2.URL | None = None) -> httpx2.URL:
    try:
        parsed = base.join(url) if base else httpx2.URL(url)
        host = parsed.raw_host.decode("ascii")
    except (httpx2.InvalidURL, ValueError) as exc:
        raise BadUrl("not a URL") from exc
    if parsed.scheme not in _PORTS:
        raise BadUrl("only http and https URLs are fetched")
    # Browsers read a backslash as a slash, so the end of the host is ambiguous.
    if parsed.userinfo or "\\" in url:
        raise BadUrl("a URL with a user name, password or backslash is not fetched")
    labels = host.removesuffix(".").split(".")
    named = len(host) < 255 and all(map(_LABEL.fullmatch, labels)) and not _NUMBER.fullmatch(labels[-1])
    if not named and _literal(host) is None:
        raise BadUrl("the URL has no proper host")
    return parsed


def _literal(host: str) -> IpAddress | None:
    try:
        return None if "%" in host else ip_address(host)
    except ValueError:
        return None


def _is_public(address: IpAddress) -> bool:
    if not address.is_global or address.is_multicast or address.is_reserved:
        return False
    return (address.version == 4 or address in _UNICAST) and not any(address in net for net in _SPECIAL)


def _addresses(host: str, port: int, clock: _Deadline, route: Route) -> list[IpAddress]:
    """Return every address of the host. Raises `AddressRefused` if one of them is not allowed."""
    literal = _literal(host)
    try:
        found = [literal] if literal else list(map(ip_address, _resolved(host, clock, route)))
    except TimeoutError as exc:
        raise FetchTimeout("the host was not found in time") from exc
    except (OSError, ValueError) as exc:
        raise FetchError("the host was not found") from exc
    for address in found:
        if not (port in _PORTS.values() and _is_public(address)) and not route.allow(address, port):
            raise AddressRefused("the host or the port is not one of the public web")
    return list(dict.fromkeys(found))


def _resolved(host: str, clock: _Deadline, route: Route) -> Iterable[str]:
    # A lookup cannot be interrupted, only abandoned: it ends when the resolver gives up.
    answer: Future[list[str]] = Future()

    def ask() -> None:
        try:
            answer.set_result(list(route.resolve(host)))
        except Exception as exc:  # noqa: BLE001  # the root of a thread; raised where it is awaited
            answer.set_exception(exc)

    Thread(target=ask, name="citewire-resolve", daemon=True).start()
    return answer.result(clock.left())


def _get(url: httpx2.URL, limit: int, clock: _Deadline, route: Route) -> FetchResult | httpx2.URL:
    """Return the response, or the URL it redirects to."""
    port = _PORTS[url.scheme] if url.port is None else url.port
    backend = _PinnedBackend(_addresses(url.raw_host.decode("ascii"), port, clock, route), clock)
    # The certificate must match the name, not the address.
    asked = httpcore2.URL(scheme=url.raw_scheme, host=url.raw_host, port=port, target=url.raw_path)
    tls = (route.tls or httpx2.create_ssl_context()) if url.scheme == "https" else None
    headers = [(b"host", url.netloc), *_SENT]
    try:
        with (
            httpcore2.ConnectionPool(ssl_context=tls, network_backend=backend) as pool,
            pool.stream("GET", asked, headers=headers) as response,
        ):
            said = {name.lower(): value.decode("utf-8", "replace") for name, value in response.headers}
            if response.status in _MOVED and b"location" in said:
                return _checked(said[b"location"], url)
            if response.status != 200:
                raise FetchError(f"HTTP status {response.status}")
            data = _body(response, said.get(b"content-encoding", "identity").lower(), limit)
    except httpcore2.TimeoutException as exc:
        raise FetchTimeout("no answer in time") from exc
    except (httpcore2.NetworkError, httpcore2.ProtocolError, zlib.error) as exc:
        is_certificate = "CERTIFICATE_VERIFY_FAILED" in str(exc)
        why = "the certificate of the host is not valid" if is_certificate else "the transfer failed"
        raise FetchError(why, detail=exc) from exc
    return FetchResult(data, str(url), said.get(b"content-type"))


def _body(response: httpcore2.Response, coding: str, limit: int) -> bytes:
    """Return the decompressed body. Both sizes are limited: an endless stream may hold almost nothing."""
    if coding not in {"identity", "gzip", "x-gzip", "deflate"}:
        raise FetchError("packed in a way that was not asked for")
    unpacking = None if coding == "identity" else zlib.decompressobj(wbits=32 + zlib.MAX_WBITS)
    came, data = 0, bytearray()
    for chunk in response.iter_stream():
        came += len(chunk)
        data += unpacking.decompress(chunk, limit + 1 - len(data)) if unpacking else chunk
        if max(came, len(data)) > limit:
            raise FetchTooLarge(f"more than {limit} bytes")
    if unpacking and not unpacking.eof:
        raise FetchError("packed, and cut short")
    return bytes(data)


class _Deadline:
    def __init__(self, seconds: float) -> None:
        self._until = time.monotonic() + seconds

    def left(self) -> float:
        if (left := self._until - time.monotonic()) <= 0:
            raise FetchTimeout("not finished in time")
        return left


class _PinnedBackend(httpcore2.SyncBackend):
    """Connects to the checked addresses, whatever the host name."""

    def __init__(self, addresses: list[IpAddress], clock: _Deadline) -> None:
        self._addresses = [str(address) for address in addresses[:_ATTEMPTS]]
        self._clock = clock

    def connect_tcp(self, host: str, port: int, *_: Any, **__: Any) -> httpcore2.NetworkStream:
        failure: Exception = httpcore2.ConnectError("the host has no address")
        for tried, address in enumerate(self._addresses):
            share = self._clock.left() / (len(self._addresses) - tried)
            try:
                return _TimedStream(super().connect_tcp(address, port, share), self._clock)
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout) as exc:
                failure = exc
        raise failure


class _TimedStream(httpcore2.NetworkStream):
    """A connection that waits no longer than the time left: a slow trickle of bytes does not extend it."""

    def __init__(self, stream: httpcore2.NetworkStream, clock: _Deadline) -> None:
        self._stream = stream
        self._clock = clock
        self.close, self.get_extra_info = stream.close, stream.get_extra_info

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self._stream.read(max_bytes, self._clock.left())

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._stream.write(buffer, self._clock.left())

    def start_tls(self, ssl_context: ssl.SSLContext, *names: Any, **options: Any) -> httpcore2.NetworkStream:
        options["timeout"] = self._clock.left()
        return _TimedStream(self._stream.start_tls(ssl_context, *names, **options), self._clock)
