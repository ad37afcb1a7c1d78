"""The client's address and scheme behind reverse proxies.

`X-Forwarded-For` and `X-Forwarded-Proto` are accepted only from proxies named in the settings. Otherwise they
are ignored: callers could invent addresses and get a new rate limit with each of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import TypeAlias

from starlette.types import ASGIApp, Receive, Scope, Send

__all__ = ["TrustedProxies", "is_network"]

_Address: TypeAlias = IPv4Address | IPv6Address
_SECURE = {"http": "https", "ws": "wss"}


def is_network(text: str) -> bool:
    """Whether this is an IP address, or a network such as `10.0.0.0/8`."""
    try:
        ip_network(text)
    except ValueError:
        return False
    return True


class TrustedProxies:
    """Middleware: sets the client's address and scheme in the scope, as reported by `trusted` proxies."""

    def __init__(self, app: ASGIApp, trusted: Sequence[str]) -> None:
        self.app = app
        self._networks = [ip_network(each) for each in trusted]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if self._networks and scope["type"] in ("http", "websocket"):
            self._apply(scope)
        await self.app(scope, receive, send)

    def _apply(self, scope: Scope) -> None:
        peer = _address((scope.get("client") or ("",))[0])
        if peer is None or not self._trusts(peer):
            return
        scope["client"] = (str(self._client(peer, _values(scope, b"x-forwarded-for"))), 0)
        # The last value was set by the proxy next to us.
        if _values(scope, b"x-forwarded-proto")[-1:] == ["https"]:
            scope["scheme"] = _SECURE.get(scope["scheme"], scope["scheme"])

    def _client(self, peer: _Address, hops: Iterable[str]) -> _Address:
        """Return the last hop before our own proxies. Anybody may have forged the hops before it."""
        for hop in reversed([*hops]):
            if (address := _address(hop)) is None:
                break
            peer = address
            if not self._trusts(address):
                break
        return peer

    def _trusts(self, address: _Address) -> bool:
        return any(address in network for network in self._networks)


def _values(scope: Scope, name: bytes) -> list[str]:
    """Return all values of a list header, however often it was sent."""
    sent = [value.decode("latin-1") for key, value in scope["headers"] if key == name]
    return [each.strip().lower() for line in sent for each in line.split(",")]


def _address(text: str) -> _Address | None:
    """Return the address of a hop, without the port that some proxies add. None if it is not an address."""
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    try:
        found = ip_address(text)
    except ValueError:
        return None
    return (found.ipv4_mapped or found) if isinstance(found, IPv6Address) else found
