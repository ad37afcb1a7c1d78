"""What a browser is trusted with: which pages may call, and which of them by their session cookie alone.

A browser sends a cookie along whoever made it send the request. SameSite keeps other sites from that, but
to a browser every port of one host is the same site, so the origin is looked at as well. A page of another
origin that is allowed to call sends a key or a token; it never calls by cookie.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from ipaddress import ip_address
from urllib.parse import urlsplit

__all__ = [
    "cookie_allowed", "cookie_name", "is_known_host", "is_loopback", "origin_allowed", "own_scheme",
    "port_of", "session_cookie",
]  # fmt: skip

_READS = frozenset({"GET", "HEAD"})
_HOST = re.compile(r"(\[[0-9a-f:.]+\]|[\w.-]+)(?::([0-9]{1,5}))?", re.ASCII)
_PORTS = {"http": ":80", "https": ":443"}


def is_loopback(host: str) -> bool:
    """Whether a server bound to `host` is reached from this machine only. Of other names we do not know."""
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def is_known_host(host: str, names: Sequence[str]) -> bool:
    """Whether a `Host` header names this server: by an address, as localhost, or by one of its `names`.

    Any other name may be one that somebody made lead here (DNS rebinding), and its pages would count as ours.
    """
    match = _HOST.fullmatch(host.lower())
    name = match[1].strip("[]") if match else ""
    try:
        ip_address(name)
    except ValueError:
        return name == "localhost" or name in (each.lower() for each in names)
    return True


def own_scheme(scheme: str, host: str, public_url: str | None) -> str:
    """The scheme by which a browser has called this `Host`: that of the public URL where it names the host.

    A proxy that does TLS may call us without; otherwise `scheme`, that of the request, is the browser's.
    """
    public = urlsplit(public_url or "")
    is_public = _is_own(f"{public.scheme}://{public.netloc}", public.scheme, host)
    return "https" if scheme == "https" or (is_public and public.scheme == "https") else "http"


def origin_allowed(origin: str | None, scheme: str, host: str, allowed: Sequence[str]) -> bool:
    """Whether a page at `origin` may call: it is of this server, or of one of the `allowed` origins.

    `scheme` and `host` are those by which the server was called, see `own_scheme`. Without an origin no page
    of another one calls. `*` allows every origin but `null`, which is anybody's.
    """
    if origin is None:
        return True
    if origin == "null":
        return False
    is_named = "*" in allowed or origin.lower() in (each.lower() for each in allowed)
    return is_named or _is_own(origin, scheme, host)


def cookie_allowed(method: str, origin: str | None, fetch_site: str | None, scheme: str, host: str) -> bool:
    """Whether a cookie may speak for a request: a page of ours made it, or it only reads and no page made it.

    `fetch_site` is the header `Sec-Fetch-Site`, which browsers leave out where there is no TLS.
    """
    if origin is not None:
        return fetch_site in (None, "same-origin") and _is_own(origin, scheme, host)
    if fetch_site == "same-origin":
        return True
    return method in _READS and fetch_site in (None, "none")


def cookie_name(host: str, *, secure: bool) -> str:
    """How the cookie of a session is called at this `Host`.

    With TLS, browsers bind it to the host (`__Host-`). Without, they share cookies among all ports of a host,
    so that the port is part of the name.
    """
    return "__Host-citewire_session" if secure else f"citewire_session_{port_of(host)}"


def port_of(host: str) -> int:
    """The port in a `Host` header, as a browser sees it."""
    match = _HOST.fullmatch(host.lower())
    return int(match[2]) if match and match[2] else 80


def session_cookie(name: str, value: str, seconds: int, *, secure: bool) -> str:
    """The `Set-Cookie` header for a session. No script can read it."""
    only_tls = "; Secure" if secure else ""
    return f"{name}={value}; Path=/; Max-Age={seconds}; HttpOnly; SameSite=Strict{only_tls}"


def _is_own(origin: str, scheme: str, host: str) -> bool:
    found, separator, authority = origin.lower().partition("://")
    port = _PORTS.get(found)
    if not separator or port is None or not authority or found != scheme:
        return False
    return authority.removesuffix(port) == host.lower().removesuffix(port)
