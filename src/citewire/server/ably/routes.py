"""All that Ably's clients ask for, as routes of an app."""

from __future__ import annotations

from starlette.routing import BaseRoute, WebSocketRoute

from citewire.server.ably.auth import AblyAuthenticator
from citewire.server.ably.realtime import Realtime
from citewire.server.ably.rest import CALLS, ChannelStatusApi, rest_routes
from citewire.server.ably.sandbox import Sandbox

__all__ = ["routes"]


def routes(gate: AblyAuthenticator, realtime: Realtime, sandbox: Sandbox | None = None) -> list[BaseRoute]:
    """The WebSocket at `/`, the REST calls, and with a sandbox those that make apps."""
    statuses = ChannelStatusApi(realtime.occupancy)
    calls = {**CALLS, "/channels": {"GET": statuses.list}, "/channels/{channel}": {"GET": statuses.show}}
    made = sandbox.routes(gate) if sandbox else []
    return [WebSocketRoute("/", realtime), *rest_routes(gate, calls), *made]
