"""Sandbox apps with full-access keys, which anybody may create. For test suites only.

Ably's client libraries test themselves against them. Apps end with the process or with DELETE.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct
from starlette.responses import Response
from starlette.routing import Route

from citewire import codec
from citewire.channels.channels import Channels
from citewire.channels.hub import Hub
from citewire.channels.rules import Rule, Rules
from citewire.channels.store import ChannelStore
from citewire.server.ably.auth import AblyAuthenticator, KeyRealm
from citewire.server.ably.codec import WireReader
from citewire.server.ably.errors import AblyError
from citewire.server.ably.rest import AblyCall, rest_routes
from citewire.server.access.capability import FULL, Capability
from citewire.server.access.keys import Keyring

__all__ = ["Sandbox"]

_MOST_APPS = 1000


class _Key(Struct, frozen=True):
    capability: str | dict[str, Any] | None = None


class _Namespace(Struct, frozen=True, rename="camel"):
    id: str
    persisted: bool = False
    mutable_messages: bool = False


class _App(Struct, frozen=True):
    keys: list[_Key] = []
    namespaces: list[_Namespace] = []


_app = WireReader[_App](_App)


class Sandbox:
    """Sandbox apps. Their keys are stored in `folder`, their channels in the store."""

    def __init__(self, folder: Path, store: ChannelStore, hub: Hub) -> None:
        self._keyring, self._store, self._hub = Keyring(folder), store, hub
        self._apps: dict[str, Channels] = {}

    @property
    def realm(self) -> KeyRealm:
        """The key realm of the sandbox apps."""
        return KeyRealm(self._keyring, lambda key: self._apps[key.partition(".")[0]])

    def routes(self, gate: AblyAuthenticator) -> list[Route]:
        """Return the routes that create and delete apps."""
        calls = {
            "/apps": {"POST": self._make},
            "/apps/{app}": {"DELETE": self._end},
            "/stats": {"POST": _stats},
        }
        return rest_routes(gate, calls)

    async def _make(self, call: AblyCall) -> Response:
        asked = _app(await call.request.body(), packed=call.packed)
        if len(self._apps) >= _MOST_APPS:
            raise AblyError(40000, f"more than {_MOST_APPS} apps")
        app = secrets.token_hex(4)
        rules = {f"{each.id}:*": Rule(mutable=each.mutable_messages) for each in asked.namespaces}
        self._apps[app] = Channels(self._store, self._hub, Rules(rules), space=_space(app))
        keys = [self._key(f"{app}.{secrets.token_hex(4)}", each) for each in asked.keys]
        url = call.request.url
        made = {
            "appId": app,
            "accountId": "sandbox",
            "keys": keys,
            "namespaces": asked.namespaces,
            "endpoint": url.hostname,
            "port": url.port or (443 if url.scheme == "https" else 80),
            "tls": url.scheme == "https",
        }
        return call.answer(made, 201)

    def _key(self, name: str, asked: _Key) -> Mapping[str, str]:
        """Create a key and return it under both sets of field names that clients know."""
        given = codec.decode(asked.capability) if isinstance(asked.capability, str) else asked.capability
        capability = Capability.of(given) if given else FULL
        text = self._keyring.create(capability, name)
        secret = text.partition(":")[2]
        return {
            "keyName": name,
            "keySecret": secret,
            "keyStr": text,
            "id": name.partition(".")[2],
            "value": secret,
            "capability": codec.encode(capability.plain()).decode(),
        }

    async def _end(self, call: AblyCall) -> Response:
        [app] = call.names
        if self._apps.pop(app, None) is not None:
            for key in self._keyring.rows():
                if key.name.startswith(f"{app}.") and key.revoked is None:
                    self._keyring.revoke(key.name)
            while heads := await self._store.heads(_space(app)):
                for head in heads:
                    await self._hub.drop(head.channel)
        return Response(status_code=204)


async def _stats(_: AblyCall) -> Response:
    """Accept the statistics a test suite posts, and drop them."""
    return Response(status_code=201)


def _space(app: str) -> str:
    return f"sandbox:{app}:"
