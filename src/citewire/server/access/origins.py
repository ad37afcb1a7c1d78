"""Browser security: which origins may call the server, and which requests may use the session cookie.

A browser sends cookies with every request, whichever page caused it. SameSite stops other sites, but a
browser treats all ports of a host as the same site, so the origin is checked as well. A page of another
allowed origin must send a key or a token; it can never use the cookie.
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
    """Whether only this machine can reach a server bound to `host`. False for unknown host names."""
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def is_known_host(host: str, names: Sequence[str]) -> bool:
    """Whether a `Host` header names this server: by an IP address, as localhost, or by one of its `names`.

    Any other name may point here by DNS rebinding, and its pages would pass as ours.
    """
    match = _HOST.fullmatch(host.lower())
    name = match[1].strip("[]") if match else ""
    try:
        ip_address(name)
    except ValueError:
        return name == "localhost" or name in (each.lower() for each in names)
    return True


def own_scheme(scheme: str, host: str, public_url: str | None) -> str:
    """Return the scheme the browser used for this `Host`: the public URL's, if that URL names the host.

    A proxy that terminates TLS may call us over HTTP. Otherwise it is `scheme`, the request's own.
    """
    public = urlsplit(public_url or "")
    is_public = _is_own(f"{public.scheme}://{public.netloc}", public.scheme, host)
    return "https" if scheme == "https" or (is_public and public.scheme == "https") else "http"


def origin_allowed(origin: str | None, scheme: str, host: str, allowed: Sequence[str]) -> bool:
    """Whether a page at `origin` may call: it belongs to this server or is one of the `allowed` origins.

    `scheme` and `host` are those of the request, see `own_scheme`. A request without an origin does not come
    from another origin's page. `*` allows every origin except `null`, which any page can have.
    """
    if origin is None:
        return True
    if origin == "null":
        return False
    is_named = "*" in allowed or origin.lower() in (each.lower() for each in allowed)
    return is_named or _is_own(origin, scheme, host)


def cookie_allowed(method: str, origin: str | None, fetch_site: str | None, scheme: str, host: str) -> bool:
    """Whether a request may use the cookie: from our own page, or a read that no page caused.

    `fetch_site` is the header `Sec-Fetch-Site`, which browsers send only with TLS.
    """
    if origin is not None:
        return fetch_site in (None, "same-origin") and _is_own(origin, scheme, host)
    if fetch_site == "same-origin":
        return True
    return method in _READS and fetch_site in (None, "none")


def cookie_name(host: str, *, secure: bool) -> str:
    """Return the name of the session cookie for this `Host`.

    With TLS, browsers bind it to the host (`__Host-`). Without TLS they share cookies among all ports of a
    host, so the name includes the port.
    """
    return "__Host-citewire_session" if secure else f"citewire_session_{port_of(host)}"


def port_of(host: str) -> int:
    """Return the port in a `Host` header, 80 by default."""
    match = _HOST.fullmatch(host.lower())
    return int(match[2]) if match and match[2] else 80


def session_cookie(name: str, value: str, seconds: int, *, secure: bool) -> str:
    """Return the `Set-Cookie` header for a session. Scripts cannot read the cookie."""
    only_tls = "; Secure" if secure else ""
    return f"{name}={value}; Path=/; Max-Age={seconds}; HttpOnly; SameSite=Strict{only_tls}"


def _is_own(origin: str, scheme: str, host: str) -> bool:
    found, separator, authority = origin.lower().partition("://")
    port = _PORTS.get(found)
    if not separator or port is None or not authority or found != scheme:
        return False
    return authority.removesuffix(port) == host.lower().removesuffix(port)
