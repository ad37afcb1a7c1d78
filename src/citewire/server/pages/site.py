"""The web pages: their files, and how a browser gets a session."""

from __future__ import annotations

import gzip
import re
from collections.abc import Iterator
from hashlib import sha256
from html import escape
from importlib.resources import files
from importlib.resources.abc import Traversable
from string import Template

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response

from citewire.errors import NotFound
from citewire.server.access.errors import AccessRefused, Forbidden, NoCredentials
from citewire.server.access.keys import Caller
from citewire.server.access.sessions import PageName, Sessions
from citewire.server.access.sign_in import SignInLinks
from citewire.server.http.operations import ApiCall, Authenticate, Bytes, HtmlPage, Operation
from citewire.text import one_line

__all__ = ["SECURITY_HEADERS", "Site"]

SECURITY_HEADERS = {
    "content-security-policy": "default-src 'self'; img-src 'self' data:; base-uri 'none'; "
    "form-action 'self'; frame-ancestors 'none'; require-trusted-types-for 'script'",
    "x-content-type-options": "nosniff",
    # A link to a proof contains its own access token.
    "referrer-policy": "no-referrer",
}
"""Security headers: a page may load only our own files."""

_TYPES = {"html": "text/html", "js": "text/javascript", "css": "text/css", "svg": "image/svg+xml"}
_GZIP = re.compile(r"\bgzip\b(?!\s*;\s*q=0(?:\.0*)?\s*(?:,|$))")


class _File(Struct, frozen=True):
    """A static file, plain and compressed."""

    type: str
    plain: bytes
    packed: bytes
    etag: str

    @classmethod
    def of(cls, name: str, data: bytes) -> _File:
        packed = gzip.compress(data, mtime=0)
        return cls(_TYPES[name.rpartition(".")[2]], data, packed, f'W/"{sha256(data).hexdigest()[:32]}"')

    def answer(self, request: Request) -> Response:
        headers = {
            **SECURITY_HEADERS,
            "cache-control": "no-cache",
            "etag": self.etag,
            "vary": "accept-encoding",
        }
        if self.etag in request.headers.get("if-none-match", ""):
            return Response(status_code=304, headers=headers)
        if not _GZIP.search(request.headers.get("accept-encoding", "")):
            return Response(self.plain, media_type=self.type, headers=headers)
        headers["content-encoding"] = "gzip"
        return Response(self.packed, media_type=self.type, headers=headers)


def _found(folder: Traversable, prefix: str = "") -> Iterator[tuple[str, _File]]:
    for each in folder.iterdir():
        name = prefix + each.name
        if each.is_dir():
            yield from _found(each, f"{name}/")
        elif each.name.rpartition(".")[2] in _TYPES:
            yield name, _File.of(name, each.read_bytes())


# Files are loaded at startup; no other file can be requested.
_FILES = dict(_found(files("citewire") / "web"))
_SIGN_IN = Template((files("citewire.server") / "pages" / "sign_in.html").read_text("utf-8"))
_PAGES: dict[PageName, tuple[str, str]] = {
    "chat": ("/", "chat/index.html"),
    "console": ("/console", "console/index.html"),
}
# Headings of the sign-in page, by error code.
_TITLES = {
    "no_credentials": "Sign in to citewire",
    "token_expired": "Your session has ended",
    "forbidden": "This is not allowed here",
}
_LINK_ENDED = "This link no longer works"


class LinkQuery(Struct, frozen=True):
    """The token of a one-time link or, without one, the page to sign in for."""

    token: str | None = None
    page: PageName = "chat"


class KeyQuery(Struct, frozen=True):
    """The page to open after signing in."""

    page: PageName = "chat"


class Site:
    """The pages at `/` and `/console`, their files, and sign-in."""

    def __init__(
        self, authenticate: Authenticate, sessions: Sessions, links: SignInLinks, questions: tuple[str, ...]
    ) -> None:
        self._authenticate, self._sessions = authenticate, sessions
        self._links, self._questions = links, questions

    def operations(self) -> list[Operation]:
        """Return the operations that browsers use."""
        return [
            Operation(
                method="GET", path="/", summary="A page that asks the agent", handle=self.home,
                gives=HtmlPage, errors=(401, 403), shows_errors=True,
            ),
            Operation(
                method="GET", path="/console", summary="A page that shows all answers", handle=self.console,
                gives=HtmlPage, errors=(401, 403), shows_errors=True,
            ),
            Operation(
                method="GET", path="/sign-in", summary="Sign a browser in by a one-time link",
                handle=self.sign_in, query=LinkQuery, redirects=True, errors=(401, 403), shows_errors=True,
            ),
            Operation(
                # A browser sends a key to every path next to and below the one that asked for it. There is
                # nothing else below /sign-in/.
                method="GET", path="/sign-in/key", summary="Sign a browser in with a key",
                handle=self.sign_in_with_key, query=KeyQuery, redirects=True, errors=(401, 403),
                shows_errors=True,
            ),
            Operation(
                method="GET", path="/questions.json", summary="Questions to try",
                handle=self.questions, gives=list[str],
            ),
            Operation(
                method="GET", path="/web/{file:path}", summary="A file of a page, or of the elements",
                handle=self.file, gives=Bytes, also=(*_TYPES.values(),),
            ),
        ]  # fmt: skip

    async def home(self, call: ApiCall) -> Response:
        """Serve the chat page."""
        return self._page(call.request, "chat")

    async def console(self, call: ApiCall) -> Response:
        """Serve the console page."""
        return self._page(call.request, "console")

    def _page(self, request: Request, page: PageName) -> Response:
        """Serve a page if the request has a session, or start one if it carries a key or token."""
        try:
            cookie = self._checked(request, page)
        except AccessRefused as exc:
            return _refused(exc, page, request)
        response = _FILES[_PAGES[page][1]].answer(request)
        if cookie:
            response.headers["set-cookie"] = cookie
        response.headers["cache-control"] = "no-store"
        return response

    def _checked(self, request: Request, page: PageName) -> str | None:
        """Return the cookie of a new session, or None if the request already has one."""
        if request.headers.get("authorization"):
            return self._sessions.start(self._authenticate(request), page, request)
        self._sessions.caller(request, page)
        return None

    async def sign_in(self, call: ApiCall) -> Response:
        """Start a session with a link and redirect to its page, at a URL without the secret."""
        query: LinkQuery = call.query
        request = call.request
        try:
            if query.token is None:
                raise NoCredentials
            caller, page = await self._link(query.token, request)
            # A link is printed for the operator of the server, so it opens both pages.
            cookie = self._sessions.start(caller, "console", request)
        except AccessRefused as exc:
            return _refused(exc, query.page, request, is_link=query.token is not None)
        return _go_on(page, cookie)

    async def sign_in_with_key(self, call: ApiCall) -> Response:
        """Start a session with the key the user enters in the browser's prompt, and redirect to a page."""
        request, page = call.request, call.query.page
        try:
            if not request.headers.get("authorization"):
                raise NoCredentials
            cookie = self._sessions.start(self._authenticate(request), page, request)
        except AccessRefused as exc:
            return _refused(exc, page, request, asks=True)
        return _go_on(page, cookie)

    async def _link(self, token: str, request: Request) -> tuple[Caller, PageName]:
        # A preview or prefetch of a link must not use it up.
        if request.method == "HEAD" or "prefetch" in request.headers.get("sec-purpose", ""):
            raise NoCredentials
        if not self._sessions.is_own_host(request):
            raise Forbidden("the server was called by a name that it does not know: set --public-url")
        return await self._links.use(token)

    async def file(self, call: ApiCall) -> Response:
        """Serve one of our static files."""
        if (found := _FILES.get(call.path["file"])) is None:
            raise NotFound("there is no such file")
        return found.answer(call.request)

    async def questions(self, _: ApiCall) -> list[str]:
        """Return example questions for new users."""
        return list(self._questions)


def _go_on(page: PageName, cookie: str) -> Response:
    headers = {
        **SECURITY_HEADERS,
        "location": _PAGES[page][0],
        "set-cookie": cookie,
        "cache-control": "no-store",
    }
    return Response(status_code=303, headers=headers)


def _refused(
    error: AccessRefused, page: PageName, request: Request, *, is_link: bool = False, asks: bool = False
) -> Response:
    """Return the sign-in page. With `asks`, the browser prompts for a key, as user name and password."""
    # When another site links here, the browser withholds the cookie (SameSite) until the page is reloaded. It
    # must not prompt for a key then: a key is accepted only from our own page.
    is_sent = request.headers.get("sec-fetch-site") in ("cross-site", "same-site")
    shown = {
        "title": _LINK_ENDED if is_link and error.status == 401 else _TITLES.get(error.code, "Sign in again"),
        "reason": "" if isinstance(error, NoCredentials) else _sentence(error.message),
        "page": page,
        "again": "again" if is_sent and not asks else "",
    }
    scheme = "Basic" if asks and not is_sent else "Bearer"
    headers = {**SECURITY_HEADERS, "cache-control": "no-store", "vary": "cookie, sec-fetch-site"}
    if error.status == 401:
        headers["www-authenticate"] = f'{scheme} realm="citewire"'
    text = _SIGN_IN.substitute({name: escape(value) for name, value in shown.items()})
    return Response(text, error.status, media_type="text/html", headers=headers)


def _sentence(message: str) -> str:
    shown = one_line(message, 500)
    return f"{shown[:1].upper()}{shown[1:]}."
