"""Ably's REST API over our channels, plus two calls of our own: a channel's citations and its export."""

from __future__ import annotations

import re
import secrets
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import Any, TypeAlias
from urllib.parse import unquote, urlencode

from msgspec import Raw, Struct
from msgspec.structs import replace
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from citewire.channels.annotation import Annotation
from citewire.channels.channels import Channels, HistoryQuery, ResultPage, check_limit
from citewire.channels.fold import ChannelEvent, MessageEvent
from citewire.channels.message import Action, Message, MessageDraft
from citewire.channels.store import Cursor, Row
from citewire.errors import CitewireError
from citewire.server.ably import codec
from citewire.server.ably.auth import AblyAuthenticator, Client, TokenRequest
from citewire.server.ably.codec import WireReader, sendable
from citewire.server.ably.connection import resumed_id
from citewire.server.ably.errors import AblyError, info_of
from citewire.server.access.errors import AccessRefused
from citewire.server.http.pagination import ListPage, list_visible

__all__ = ["AblyCall", "CALLS", "ChannelStatusApi", "Handler", "rest_routes"]

_MSGPACK, _JSON = "application/x-msgpack", "application/json"
_MOST_BATCHES = 100


class AblyCall(Struct, frozen=True):
    """A REST request: the names in its path, and the formats of its body and its response."""

    request: Request
    names: Sequence[str]
    packed: bool
    answers_packed: bool
    gate: AblyAuthenticator

    @property
    def channel(self) -> str:
        """The channel named in the path."""
        return self.names[0]

    @property
    def query(self) -> Mapping[str, str]:
        """The query parameters."""
        return self.request.query_params

    def client(self) -> Client:
        """Authenticate the request. Raises `AccessRefused` and `AblyError`."""
        return self.gate.client_of_request(self.request)

    def allowed(self, operation: str) -> Client:
        """Authenticate the request and require `operation` on its channel."""
        client = self.client()
        client.require(operation, self.channel)
        return client

    def number(self, name: str) -> int | None:
        """Return a numeric query parameter, or None. Raises `AblyError` if it is not a number."""
        if (text := self.query.get(name)) is None:
            return None
        if not (text.isascii() and text.isdigit() and len(text) <= 15):
            raise AblyError(40003, f"{name} is a number")
        return int(text)

    @property
    def limit(self) -> int:
        """The requested page size, 100 by default."""
        given = self.number("limit")
        return 100 if given is None else given

    def answer(self, value: Any, status: int = 200) -> Response:
        """Make a response in the format the client accepts."""
        media = _MSGPACK if self.answers_packed else _JSON
        return Response(codec.encode_body(value, packed=self.answers_packed), status, media_type=media)

    def items(self, items: Sequence[Message] | Sequence[Annotation]) -> Sequence[Any]:
        """Prepare messages or annotations for the response format."""
        return [sendable(item, packed=self.answers_packed) for item in items]

    def page(self, items: Any, following: str | None) -> Response:
        """Make a response with one page of a list and links to the first, current and next page."""
        response = self.answer(items)
        # One header per link: clients accept neither a comma-separated list nor any other form of URL.
        for rel, cursor in (("first", None), ("current", self.query.get("cursor")), ("next", following)):
            if rel != "next" or cursor:
                query = {name: value for name, value in self.query.items() if name in _LISTING}
                query |= {"cursor": cursor} if cursor else {}
                place = self.request.url.path.rpartition("/")[2]
                response.headers.append("link", f'<./{place}?{urlencode(query)}>; rel="{rel}"')
        return response


# Query parameters repeated in page links.
_LISTING = ("start", "end", "limit", "direction", "from_serial", "fromSerial", "prefix", "by")
Handler: TypeAlias = Callable[[AblyCall], Awaitable[Response]]


async def _publish(call: AblyCall) -> Response:
    client, body = call.client(), await call.request.body()
    drafts, key = (
        codec.read_drafts(body, packed=call.packed),
        codec.read_connection_key(body, packed=call.packed),
    )
    connection_id = key and _connection(key, client, call.gate)
    return call.answer(await _published(call, client, call.channel, drafts, connection_id), 201)


def _connection(key: str, client: Client, gate: AblyAuthenticator) -> str:
    try:
        return resumed_id(key, client, gate)
    except AccessRefused as exc:
        raise AblyError(40006, "not the key of a connection of this client") from exc


async def _published(
    call: AblyCall,
    client: Client,
    channel: str,
    drafts: Sequence[MessageDraft],
    connection_id: str | None = None,
) -> dict[str, Any]:
    call.gate.spend(client, len(drafts))
    who = client.authorize_publish(channel, (draft.action for draft in drafts), connection_id=connection_id)
    if all(draft.id is None for draft in drafts):
        base = secrets.token_urlsafe(9)
        drafts = [replace(draft, id=f"{base}:{at}") for at, draft in enumerate(drafts)]
    serials = await client.channels.publish(channel, who, drafts)
    named = drafts[0].id or ""
    return {"channel": channel, "messageId": named.rpartition(":")[0] or named, "serials": serials}


class _Batch(Struct, frozen=True):
    channels: list[str] | str
    messages: Raw


_batches = WireReader["list[_Batch] | _Batch"](list[_Batch] | _Batch)


async def _publish_batch(call: AblyCall) -> Response:
    """Publish the same messages to many channels. Each channel succeeds or fails on its own."""
    client = call.client()
    given = _batches(await call.request.body(), packed=call.packed)
    batches = given if isinstance(given, list) else [given]
    targets = sum(1 if isinstance(each.channels, str) else len(each.channels) for each in batches)
    if targets > _MOST_BATCHES:
        raise AblyError(40000, f"more than {_MOST_BATCHES} channels at once")
    answers = [await _batch(call, client, each) for each in batches]
    return call.answer(answers if isinstance(given, list) else answers[0], 201)


async def _batch(call: AblyCall, client: Client, batch: _Batch) -> dict[str, Any]:
    drafts = codec.read_drafts(batch.messages, packed=call.packed)
    results: list[dict[str, Any]] = []
    for channel in [batch.channels] if isinstance(batch.channels, str) else batch.channels:
        try:
            results.append(await _published(call, client, channel, drafts))
        except CitewireError as exc:
            results.append({"channel": channel, "error": info_of(exc)})
    failed = sum("error" in result for result in results)
    return {"successCount": len(results) - failed, "failureCount": failed, "results": results}


async def _history(call: AblyCall) -> Response:
    client, query = call.allowed("history"), call.query
    direction = query.get("direction", "backwards")
    if direction not in {"backwards", "forwards"}:
        raise AblyError(40003, "the direction is backwards or forwards")
    which = HistoryQuery(
        start=call.number("start") or 0,
        end=call.number("end"),
        # Clients and Ably's specification use different spellings.
        until=query.get("from_serial") or query.get("fromSerial"),
        forwards=direction == "forwards",
        limit=call.limit,
        cursor=query.get("cursor"),
    )
    page = await client.channels.history(call.channel, which)
    return call.page(call.items(page.items), page.next)


async def _message(call: AblyCall) -> Response:
    client = call.allowed("history")
    message = await client.channels.message(call.channel, call.names[1])
    return call.answer(sendable(message, packed=call.answers_packed))


async def _edit(call: AblyCall) -> Response:
    client, drafts = call.client(), codec.read_drafts(await call.request.body(), packed=call.packed)
    if len(drafts) != 1 or drafts[0].action is Action.CREATE:
        raise AblyError(40000, "one update, delete or append")
    call.gate.spend(client, 1)
    draft = replace(drafts[0], serial=call.names[1])
    who = client.authorize_publish(call.channel, [draft.action])
    [version] = await client.channels.publish(call.channel, who, [draft])
    return call.answer({"versionSerial": version})


async def _versions(call: AblyCall) -> Response:
    return await _about(call, call.allowed("history").channels.versions)


async def _annotations(call: AblyCall) -> Response:
    return await _about(call, call.allowed("history").channels.annotations)


async def _about(
    call: AblyCall, pages: Callable[[str, str, int, str | None], Awaitable[ResultPage[Any]]]
) -> Response:
    page = await pages(call.channel, call.names[1], call.limit, call.query.get("cursor"))
    return call.page(call.items(page.items), page.next)


async def _annotate(call: AblyCall) -> Response:
    client = call.client()
    notes = codec.read_notes(await call.request.body(), packed=call.packed, about=call.names[1])
    call.gate.spend(client, len(notes))
    serials = await client.channels.annotate(call.channel, client.authorize_annotate(call.channel), notes)
    return call.answer({"channel": call.channel, "serials": serials}, 201)


async def _client_summary(call: AblyCall) -> Response:
    client, named = call.allowed("subscribe"), call.query.get("forClientId")
    if named in {None, "", "*"}:
        raise AblyError(40003, "forClientId names one client")
    return call.answer(await client.channels.client_summary(call.channel, call.names[1], named or ""))


async def _citations(call: AblyCall) -> Response:
    client = call.allowed("history")
    page = await client.channels.citations(call.channel, call.limit, call.query.get("cursor"))
    return call.page(page.items, page.next)


async def _export(call: AblyCall) -> Response:
    """Stream every stored event of a channel as JSON lines."""
    client, after = call.allowed("history"), call.query.get("after")
    events = client.channels.export(call.channel, Cursor.parse(after) if after else None)
    # Read the first event before the response starts: a lost cursor must still give an error response.
    first = await anext(events, None)
    return StreamingResponse(_lines(first, events), media_type="application/jsonl")


async def _lines(
    first: tuple[Row, ChannelEvent] | None, events: AsyncGenerator[tuple[Row, ChannelEvent]]
) -> AsyncGenerator[bytes]:
    async with aclosing(events):
        if first:
            yield _line(*first)
            async for row, event in events:
                yield _line(row, event)


def _line(row: Row, event: ChannelEvent) -> bytes:
    item = event.message if isinstance(event, MessageEvent) else event.annotation
    about = {"cursor": str(row.cursor), "serial": row.serial, row.kind: sendable(item, packed=False)}
    return codec.encode_body(about, packed=False) + b"\n"


class ChannelStatusApi:
    """Calls that list channels and show their status. `occupancy` counts the attached connections."""

    def __init__(self, occupancy: Callable[[Channels, str], Any]) -> None:
        self._occupancy = occupancy

    async def list(self, call: AblyCall) -> Response:
        """List the channels the client may see, sorted by name, as names or with their status."""
        client, by = call.client(), call.query.get("by", "value")
        if by not in {"id", "value"}:
            raise AblyError(40003, "by is id or value")
        names = await _visible_names(call, client)
        found = (
            names.items if by == "id" else [self._status(client, name, has_log=True) for name in names.items]
        )
        return call.page(found, call.gate.cursors.write(names.after))

    async def show(self, call: AblyCall) -> Response:
        """Show the status of one channel."""
        client = call.allowed("channel-metadata")
        head = await client.channels.head(call.channel)
        return call.answer(self._status(client, call.channel, has_log=head is not None))

    def _status(self, client: Client, channel: str, *, has_log: bool) -> dict[str, Any]:
        metrics = self._occupancy(client.channels, channel)
        about = {"isActive": has_log or metrics.connections > 0, "occupancy": {"metrics": metrics}}
        return {"channelId": channel, "name": channel, "status": about}


async def _visible_names(call: AblyCall, client: Client) -> ListPage[str]:
    """Return a page of the channel names the client may see."""
    prefix, cursors = call.query.get("prefix", ""), call.gate.cursors

    async def read(after: str, limit: int) -> Sequence[tuple[str, str]]:
        page = await client.channels.names(prefix, limit, after or None)
        return [(name, name) for name in page.items]

    def is_visible(name: str) -> bool:
        return client.may("channel-metadata", name)

    return await list_visible(
        read, is_visible, cursors.read(call.query.get("cursor")), check_limit(call.limit)
    )


async def _nobody(call: AblyCall) -> Response:
    """Return an empty presence list: nobody is ever present."""
    call.allowed("presence" if call.request.url.path.endswith("presence") else "history")
    return call.page([], None)


async def _no_stats(call: AblyCall) -> Response:
    """Refuse statistics, so that an empty response is not mistaken for a figure."""
    call.client()
    raise AblyError(40400, "this server keeps no statistics; GET /metrics has its figures", 404)


_token_request = WireReader[TokenRequest](TokenRequest)


async def _request_token(call: AblyCall) -> Response:
    asked = _token_request(await call.request.body(), packed=call.packed)
    return call.answer(await call.gate.issue_token(call.names[0], asked, call.request), 201)


async def _time(call: AblyCall) -> Response:
    return call.answer([call.gate.now])


CALLS: Mapping[str, Mapping[str, Handler]] = {
    "/channels/{channel}/messages": {"GET": _history, "POST": _publish},
    "/channels/{channel}/history": {"GET": _history},
    "/channels/{channel}/messages/{serial}": {"GET": _message, "PATCH": _edit},
    "/channels/{channel}/messages/{serial}/versions": {"GET": _versions},
    "/channels/{channel}/messages/{serial}/annotations": {"GET": _annotations, "POST": _annotate},
    "/channels/{channel}/messages/{serial}/client-summary": {"GET": _client_summary},
    "/channels/{channel}/citations": {"GET": _citations},
    "/channels/{channel}/export": {"GET": _export},
    "/channels/{channel}/presence": {"GET": _nobody},
    "/channels/{channel}/presence/history": {"GET": _nobody},
    "/messages": {"POST": _publish_batch},
    "/stats": {"GET": _no_stats},
    "/keys/{key}/requestToken": {"POST": _request_token},
    "/time": {"GET": _time},
}


def rest_routes(gate: AblyAuthenticator, calls: Mapping[str, Mapping[str, Handler]]) -> list[Route]:
    """Make Starlette routes for the calls."""
    return [_route(path, _Endpoint(gate, path, handlers)) for path, handlers in calls.items()]


def _route(path: str, endpoint: _Endpoint) -> Route:
    route = Route(path, endpoint, methods=[*endpoint.handlers])
    # Starlette's own pattern ends in `$`, which accepts /time%0a for /time.
    route.path_regex = re.compile(route.path_regex.pattern.removesuffix("$") + r"\Z")
    return route


class _Endpoint:
    """ASGI app for the calls of one path."""

    def __init__(self, gate: AblyAuthenticator, path: str, handlers: Mapping[str, Handler]) -> None:
        self.handlers, self._gate = handlers, gate
        self._path = path.split("/")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive, send)
        call = AblyCall(
            request,
            self._names(scope),
            _is_msgpack(request.headers.get("content-type")),
            _is_msgpack(request.headers.get("accept")) or request.query_params.get("format") == "msgpack",
            self._gate,
        )
        try:
            response = await self.handlers["GET" if request.method == "HEAD" else request.method](call)
        except ClientDisconnect:
            return
        except Exception as exc:  # noqa: BLE001  # the root of a request: the caller gets an error
            response = _refusal(call, exc)
        await response(scope, receive, send)

    def _names(self, scope: Scope) -> Sequence[str]:
        """Return the names in the path, decoded. A name may contain a slash written as %2F."""
        parts = scope["raw_path"].decode("ascii", "replace").split("?")[0].split("/")[-len(self._path) :]
        return [unquote(part) for part, name in zip(parts, self._path, strict=True) if name.startswith("{")]


def _is_msgpack(media: str | None) -> bool:
    return _MSGPACK in (media or "")


def _refusal(call: AblyCall, error: Exception) -> Response:
    info = info_of(error)
    response = call.answer({"error": info}, info.status_code)
    response.headers["x-ably-errorcode"] = str(info.code)
    if info.status_code == 503:
        response.headers["retry-after"] = "1"
    response.headers["x-ably-errormessage"] = info.message.encode("ascii", "replace").decode()
    return response
