"""REST operations: each declares its types, its required capability and its errors.

An operation is declared once. The route, the authorization, the parsing of path, query and body, and the
OpenAPI document are all derived from that declaration.
"""

from __future__ import annotations

import logging
import re
import types
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Protocol, TypeAlias, cast, get_args
from urllib.parse import unquote

import msgspec
from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import asdict, fields
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from citewire import codec
from citewire.agui.transport import TransportError
from citewire.channels.store import CursorLost, StoreError
from citewire.documents.errors import DocumentError
from citewire.error_reports import ErrorReport, report_detail, report_unexpected
from citewire.errors import (
    CitewireError,
    Conflict,
    DialectError,
    InputError,
    NotFound,
    ServerBusy,
    ShapeError,
)
from citewire.server.access.capability import Capability
from citewire.server.access.keys import Caller
from citewire.verification.reader_pool import TooManyReads

__all__ = [
    "ApiCall", "Authenticate", "Bytes", "CALLER", "CHECK_KEY", "EventStream", "HtmlPage", "ImageFile",
    "MultipartForm", "NoSuchMethod", "Operation", "error_response", "json_response", "keep_escaped_slashes",
    "openapi", "routes",
]  # fmt: skip

CALLER = "citewire.caller"
"""Scope key of the authenticated `Caller`."""

CHECK_KEY = "citewire.check_key"
"""Scope key of the function that raises `AccessRefused` once the named key is revoked."""

_ANYBODY = Caller("", Capability())
# Stands for an escaped slash during routing. A lone surrogate occurs in no name.
_SLASH, _ESCAPED = "\udc2f", re.compile("%2f", re.IGNORECASE)

_log = logging.getLogger("citewire.server")


class NoSuchMethod(CitewireError):
    """The path exists, but not with this method."""

    code = "method_not_allowed"


# The first matching type wins.
_STATUS: tuple[tuple[type[CitewireError], int], ...] = (
    (NotFound, 404),
    (NoSuchMethod, 405),
    (Conflict, 409),
    (CursorLost, 410),
    (TooManyReads, 429),
    (DocumentError, 422),
    (InputError, 400),
    (DialectError, 400),
    (TransportError, 502),
    (StoreError, 503),
    (ServerBusy, 503),
)

_ERRORS = {
    400: "the request cannot be used",
    401: "no credentials, or none that are known",
    403: "the credentials do not allow this",
    404: "there is nothing of this name",
    408: "the request came too slowly",
    409: "something else is going on",
    410: "the log no longer goes on from there, or the link has expired",
    413: "the request is too large",
    414: "its path and query are too long",
    422: "the document cannot be read",
    429: "too many requests",
    431: "its headers are too many or too large",
    502: "the agent failed",
    503: "the server has no room for it, or is going down",
}
_ALWAYS = (400, 401, 403, 408, 413, 414, 429, 431, 503)


class EventStream:
    """Response type of an operation that streams AG-UI events."""

    media = "text/event-stream"


class HtmlPage:
    """Response type of an operation that returns an HTML page."""

    media = "text/html"


class Bytes:
    """A file as raw bytes, in a request or a response."""

    media = "application/octet-stream"


class MultipartForm:
    """A form with files, as browsers send it."""

    media = "multipart/form-data"


class ImageFile:
    """Response type of an operation that returns an image."""

    media = "image/*"


class ErrorBody(Struct, frozen=True):
    """An error: a stable code for programs and a message for people."""

    code: str
    message: str
    id: str | UnsetType = UNSET
    """The error id, if the server's log has more details."""


class ErrorAnswer(Struct, frozen=True):
    """The body of every error response."""

    error: ErrorBody


class ApiCall(Struct, frozen=True):
    """A parsed and authorized request."""

    caller: Caller
    path: Mapping[str, str]
    query: Any
    body: Any
    request: Request


Handler: TypeAlias = Callable[[ApiCall], Awaitable[Any]]


class Operation(Struct, frozen=True, kw_only=True):
    """One operation of the REST API.

    `needs` is the operation and the resource the caller must be allowed; the resource may contain names of
    the path and fields of the body. Without `needs` the operation is public. `query` and `body` are Structs;
    a body of `bytes` is left for the handler to read. `gives` is a Struct, a kind of stream, a media type, or
    None for no content.
    """

    method: str
    path: str
    summary: str
    handle: Handler
    needs: tuple[str, str] | None = None
    query: type[Any] | None = None
    body: type[Any] | None = None
    gives: Any = None
    also: tuple[Any, ...] = ()
    """Other media types it may respond with."""
    takes: tuple[Any, ...] = ()
    """Other body types besides `bytes`, which the handler reads itself."""
    creates: bool = False
    """Whether it responds with 201 when it creates something."""
    errors: tuple[int, ...] = ()
    shows_errors: bool = False
    """Whether its own `errors` are shown as an HTML page."""
    redirects: bool = False
    """Whether it responds with 303 instead of 200."""

    def resource(self, path: Mapping[str, str], body: Any = None) -> str:
        """Return the resource that the caller needs access to."""
        known = dict(path)
        if isinstance(body, Struct):
            known |= {name: value for name, value in asdict(body).items() if isinstance(value, str)}
        return self.needs[1].format_map(known) if self.needs else ""


class Authenticate(Protocol):
    """**Protocol:** authenticates requests."""

    def __call__(self, request: Request) -> Caller:
        """Return the caller of a request. Raises `AccessRefused` if it cannot be authenticated."""
        ...


def routes(operations: Iterable[Operation], authenticate: Authenticate) -> list[Route]:
    """Make Starlette routes for the operations."""
    by_path: dict[str, dict[str, Operation]] = {}
    for each in operations:
        by_path.setdefault(each.path, {})[each.method] = each
    # One route for all methods of a path, so that it knows them when another method is requested.
    return [_route(path, _Endpoint(own, authenticate), [*own]) for path, own in by_path.items()]


def _route(path: str, endpoint: ASGIApp, methods: list[str]) -> Route:
    route = Route(path, endpoint, methods=methods)
    # Starlette's own pattern accepts /metrics%0a for /metrics, which a proxy guarding that path does not.
    route.path_regex = re.compile(route.path_regex.pattern.removesuffix("$") + r"\Z")
    return route


def keep_escaped_slashes(app: ASGIApp) -> ASGIApp:
    """Wrap an app so that a slash written as %2F is part of a name and does not split the path."""

    async def through(scope: Scope, receive: Receive, send: Send) -> None:
        raw: bytes = scope.get("raw_path") or b""
        if scope["type"] != "http" or b"%2f" not in raw.lower():
            return await app(scope, receive, send)
        path, kept = scope["path"], _ESCAPED.sub(_SLASH, raw.partition(b"?")[0].decode("ascii", "replace"))
        scope["path"] = unquote(kept)

        async def out(message: Message) -> None:
            scope["path"] = path  # the sender may log it, and must not see our placeholder
            await send(message)

        try:
            await app(scope, receive, out)
        finally:
            scope["path"] = path

    return through


class _Endpoint:
    """ASGI app for the operations of one path."""

    def __init__(self, operations: Mapping[str, Operation], authenticate: Authenticate) -> None:
        self._operations, self._authenticate = operations, authenticate

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive, send)
        try:
            response = await self._answer(request)
        except ClientDisconnect:
            return
        except Exception as exc:  # noqa: BLE001  # the root of a request: the caller gets an error
            response = error_response(exc)
        await response(scope, receive, send)

    async def _answer(self, request: Request) -> ASGIApp:
        operation = self._operations["GET" if request.method == "HEAD" else request.method]
        path = {name: value.replace(_SLASH, "/") for name, value in request.path_params.items()}
        caller = _ANYBODY
        if operation.needs:
            caller = request.scope[CALLER] = self._authenticate(request)
        query = _read_query(request, operation.query)
        body = await _read_body(request, operation.body, is_session=caller.is_session)
        if operation.needs:
            caller.require(operation.needs[0], operation.resource(path, body))
        result = await operation.handle(ApiCall(caller, path, query, body, request))
        return cast("ASGIApp", result) if callable(result) else json_response(result)


def json_response(value: Any, status: int = 200) -> Response:
    """Return a value as a JSON response. None gives 204."""
    if value is None:
        return Response(status_code=204)
    return Response(codec.encode(value), status, media_type="application/json")


def error_response(error: Exception) -> Response:
    """Convert an exception to a response. Unexpected ones are logged and reported without details."""
    known = (status for kind, status in _STATUS if isinstance(error, kind))
    status = getattr(error, "status", None) or next(known, 500)
    if status == 500 or not isinstance(error, CitewireError):
        return json_response(ErrorAnswer(_body(report_unexpected(error, _log))), 500)
    where = f"{error.path}: " if isinstance(error, InputError) and error.path != "$" else ""
    report = report_detail(error.detail, _log, code=error.code, message=where + error.message)
    response = json_response(ErrorAnswer(_body(report)), status)
    if status == 401:
        response.headers["www-authenticate"] = 'Bearer realm="citewire"'
    if isinstance(error, StoreError):
        response.headers["retry-after"] = "1"
    return response


def _body(report: ErrorReport) -> ErrorBody:
    return ErrorBody(report.code, report.message, report.error_id or UNSET)


def _read_query(request: Request, kind: type[Any] | None) -> Any:
    if kind is None:
        return None
    names = {each.encode_name: each for each in fields(kind)}
    given: dict[str, Any] = {}
    for name, value in request.query_params.multi_items():
        if name not in names:
            continue
        if _is_list(names[name].type):
            given.setdefault(name, []).append(value)
        elif name in given:
            raise ShapeError("given twice", f"?{name}")
        else:
            given[name] = value
    try:
        return msgspec.convert(given, kind, strict=False)
    except msgspec.ValidationError as exc:
        message, _, path = str(exc).partition(" - at `$.")
        raise ShapeError(message, f"?{path.rstrip('`')}") from exc


def _is_list(kind: Any) -> bool:
    return getattr(kind, "__origin__", None) in (list, tuple)


async def _read_body(request: Request, kind: type[Any] | None, *, is_session: bool) -> Any:
    if kind is None or kind is bytes:
        return None
    # With a session, refuse other sites' forms and bodies without a type: our pages send neither.
    unsaid = "" if is_session else "application/json"
    content = request.headers.get("content-type", unsaid).partition(";")[0].strip().lower()
    if content != "application/json":
        raise InputError("the body is to be application/json")
    return codec.decode_as(await request.body(), kind)


def openapi(operations: Iterable[Operation], version: str) -> dict[str, Any]:
    """Return the OpenAPI document of the operations."""
    listed = list(operations)
    kinds: set[Any] = {kind for each in listed for kind in (each.body, each.gives, *each.also, *each.takes)}
    known = sorted({*filter(_is_struct, kinds), ErrorAnswer}, key=lambda kind: kind.__name__)
    schemas, components = msgspec.json.schema_components(known, ref_template="#/components/schemas/{name}")
    refs: dict[Any, Any] = dict(zip(known, schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for each in listed:
        path = each.path.replace(":path}", "}")
        paths.setdefault(path, {})[each.method.lower()] = _described(each, refs)
    return {
        "openapi": "3.1.0",
        "info": {"title": "citewire", "version": version},
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {
                "key": {"type": "http", "scheme": "basic", "description": "an API key, app.key:secret"},
                "token": {"type": "http", "scheme": "bearer", "description": "a JWT, or an API key"},
            },
        },
    }


def _is_struct(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Struct)


def _described(operation: Operation, refs: Mapping[Any, Any]) -> dict[str, Any]:
    always = {*_ALWAYS} - (set() if operation.needs else {401, 403})
    errors = {*always, *operation.errors, *((404,) if "{" in operation.path else ())}
    answers: dict[str, Any] = {str(status): _error(status, refs) for status in sorted(errors)}
    for status in operation.errors if operation.shows_errors else ():
        answers[str(status)] = {"description": _ERRORS[status], **_content((HtmlPage,), refs)}
    content = _content((operation.gives, *operation.also), refs) if operation.gives else {}
    if operation.redirects:
        answers["303"] = {"description": "done; `location` has a page"}
    else:
        answers["200" if operation.gives else "204"] = {"description": "done", **content}
    if operation.creates:
        answers["201"] = {"description": "made", **content}
    described: dict[str, Any] = {
        "summary": operation.summary,
        "operationId": _operation_id(operation),
        "parameters": [*_in_path(operation.path), *_in_query(operation.query)],
        "responses": answers,
    }
    if operation.needs:
        described["security"] = [{"key": []}, {"token": []}]
        described["x-capability"] = {operation.needs[1]: [operation.needs[0]]}
    if operation.body in refs:
        described["requestBody"] = {
            "required": True,
            "content": {"application/json": {"schema": refs[operation.body]}},
        }
    elif operation.body is bytes:
        described["requestBody"] = {"required": True, **_content((Bytes, *operation.takes), refs)}
    return described


def _content(kinds: Iterable[Any], refs: Mapping[Any, Any]) -> dict[str, Any]:
    content: dict[str, Any] = {}
    for kind in kinds:
        if _is_struct(kind):
            content["application/json"] = {"schema": refs[kind]}
        else:
            content[kind if isinstance(kind, str) else getattr(kind, "media", "application/json")] = {}
    return {"content": content}


def _error(status: int, refs: Mapping[Any, Any]) -> dict[str, Any]:
    return {
        "description": _ERRORS[status],
        "content": {"application/json": {"schema": refs[ErrorAnswer]}},
    }


def _operation_id(operation: Operation) -> str:
    words = (
        operation.path.replace(":path", "").replace("{", "by_").replace("}", "").strip("/").replace("/", "_")
    )
    return f"{operation.method.lower()}_{words}".replace(".", "_").replace("-", "_")


def _in_path(path: str) -> list[dict[str, Any]]:
    names = [
        part[1:-1].partition(":")[0] for part in path.replace(".", "/").split("/") if part.startswith("{")
    ]
    return [{"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in names]


def _in_query(kind: type[Any] | None) -> list[dict[str, Any]]:
    if kind is None:
        return []
    return [
        {
            "name": each.encode_name,
            "in": "query",
            "required": each.required,
            "schema": msgspec.json.schema(_without_none(each.type)),
        }
        for each in fields(kind)
    ]


def _without_none(kind: Any) -> Any:
    """Return the type of an optional parameter without None."""
    if isinstance(kind, types.UnionType):
        left = [each for each in get_args(kind) if each is not type(None)]
        return left[0] if len(left) == 1 else kind
    return kind
