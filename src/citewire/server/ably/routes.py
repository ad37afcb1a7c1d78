"""Routes for Ably clients."""

from __future__ import annotations

from starlette.routing import BaseRoute, WebSocketRoute

from citewire.server.ably.auth import AblyAuthenticator
from citewire.server.ably.realtime import Realtime
from citewire.server.ably.rest import CALLS, ChannelStatusApi, rest_routes
from citewire.server.ably.sandbox import Sandbox

__all__ = ["routes"]


def routes(gate: AblyAuthenticator, realtime: Realtime, sandbox: Sandbox | None = None) -> list[BaseRoute]:
    """Return the WebSocket route at `/`, the REST routes and, with a sandbox, those that create apps."""
    statuses = ChannelStatusApi(realtime.occupancy)
    calls = {**CALLS, "/channels": {"GET": statuses.list}, "/channels/{channel}": {"GET": statuses.show}}
    made = sandbox.routes(gate) if sandbox else []
    return [WebSocketRoute("/", realtime), *rest_routes(gate, calls), *made]
