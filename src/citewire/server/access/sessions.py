"""Browser sessions of our own pages, stored in a sealed cookie.

A session is sealed with the server's secret. It is not a token: it is refused as a `Bearer`, in a query, and
by all Ably endpoints. It holds what a page may use of a key or token, and expires with it. Only a key, a
token or a one-time link starts a session; a session cannot start or extend one.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable
from secrets import token_hex
from typing import Any, Literal, TypeAlias
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct
from starlette.requests import Request

from citewire.server.access.capability import Capability
from citewire.server.access.errors import BadToken, Forbidden, NoCredentials, TokenExpired
from citewire.server.access.keys import Caller, Keyring
from citewire.server.access.origins import cookie_name, is_known_host, port_of, session_cookie
from citewire.server.ops.settings import Settings

__all__ = ["PAGE_CAPABILITIES", "PageName", "Sessions"]

PageName: TypeAlias = Literal["chat", "console"]

_PURPOSE = "session"
# The largest cookie that browsers store, less its name and attributes, in characters.
_LONGEST = 3800
# What each page may do for its user. The console may do everything the chat may.
_CHAT: dict[str, Any] = {
    "thread:*": ["list", "read", "review", "run", "stop"],
    "source:*": ["add", "list", "read"],
    "verify": ["verify"],
}
_CONSOLE: dict[str, Any] = {
    "answer:*": ["count", "list"],
    "audit": ["export"],
    "rule:*": ["delete", "list", "read", "set"],
    "source:*": ["add", "list", "read", "trace"],
    "thread:*": ["audit", "list", "read", "review", "run", "stop"],
    "verify": ["verify"],
}
PAGE_CAPABILITIES: dict[PageName, Capability] = {
    "chat": Capability.of(_CHAT),
    "console": Capability.of(_CONSOLE),
}
"""The most that each page's session may do: for example, add sources but not replace them."""


class _Session(Struct, frozen=True, array_like=True):
    """The sealed content of a cookie. `mark` is the key's mark, `server` the server the session is for."""

    key: str
    mark: str
    capability: dict[str, list[str]]
    client_id: str | None
    expires: float
    page: PageName
    server: str
    person: str | None


class Sessions:
    """Starts browser sessions and authenticates requests that carry one."""

    def __init__(self, keyring: Keyring, settings: Settings, clock: Callable[[], float] = time.time) -> None:
        self._keyring, self._clock = keyring, clock
        self._lifetime = settings.session_lifetime
        public = urlsplit(settings.public_url or "")
        self._public, self._own_name = public.netloc.lower(), public.hostname
        self._is_public_tls = public.scheme == "https"

    def start(self, caller: Caller, page: PageName, request: Request) -> str:
        """Return the `Set-Cookie` header of a new session, limited to what the page may do.

        Raises `Forbidden` if nothing is left or it does not fit, `TokenExpired` if the token has ended.
        """
        self._check_start(caller, request)
        capability = caller.capability & PAGE_CAPABILITIES[page]
        if not capability.grants:
            raise Forbidden("this key or token may do nothing on this page")
        if not capability.is_readable:
            raise Forbidden("the capability of this key or token names too much for a session")
        now = self._clock()
        expires = min(now + self._lifetime, caller.expires or now + self._lifetime)
        seconds = int(expires - now)
        if seconds < 1:
            raise TokenExpired("the token has expired")
        # A key may use any client id, so each of its browsers gets one of its own.
        client_id = f"browser-{token_hex(8)}" if caller.client_id == "*" else caller.client_id
        session = _Session(
            caller.key, self._keyring.grant_of(caller.key).mark, capability.plain(), client_id, expires, page,
            self._server(request), caller.person,
        )  # fmt: skip
        return session_cookie(self._name(request), self._seal(session), seconds, secure=self._is_tls(request))

    def caller(self, request: Request, page: PageName | None = None) -> Caller:
        """Authenticate a request by its session. With `page`, the session must be for that page.

        Raises `NoCredentials` without a session, `TokenExpired` if it has ended, `Forbidden` for another
        page, `BadToken` and `BadCredentials` if it is invalid or its key was revoked.
        """
        text = request.cookies.get(self._name(request))
        if not text or not self.is_own_host(request):
            raise NoCredentials
        session = self._unseal(text)
        holder = self._keyring.grant_of(session.key)
        if (session.mark, session.server) != (holder.mark, self._server(request)):
            raise BadToken("this is a session of another server")
        if session.expires <= self._clock():
            raise TokenExpired("the session has ended")
        if page == "console" and session.page != "console":
            raise Forbidden("this session is not for the console")
        capability = Capability.of(session.capability) & PAGE_CAPABILITIES[session.page] & holder.capability
        rights = session.key, capability, session.client_id, session.expires
        return Caller(*rights, is_session=True, person=session.person)

    def is_own_host(self, request: Request) -> bool:
        """Whether the request names this server, by address or by name. See `is_known_host`."""
        return is_known_host(_host(request), [self._own_name] if self._own_name else [])

    def _check_start(self, caller: Caller, request: Request) -> None:
        if caller.is_session:
            raise Forbidden("a session makes no other one")
        if not self.is_own_host(request):
            raise Forbidden("the server was called by a name that it does not know: set --public-url")

    def _seal(self, session: _Session) -> str:
        text = self._keyring.seal(_PURPOSE, zlib.compress(msgspec.json.encode(session), 9))
        if len(text) > _LONGEST:
            raise Forbidden("the capability of this token is too long for a session")
        return text

    def _unseal(self, text: str) -> _Session:
        # Sealed data was written by this server, so decoding cannot fail.
        return msgspec.json.decode(zlib.decompress(self._keyring.unseal(_PURPOSE, text)), type=_Session)

    def _name(self, request: Request) -> str:
        return cookie_name(_host(request), secure=self._is_tls(request))

    def _server(self, request: Request) -> str:
        """Return what a session is bound to: the public address, else the port the browser called."""
        return self._public or str(port_of(_host(request)))

    def _is_tls(self, request: Request) -> bool:
        return self._is_public_tls or request.url.scheme == "https"


def _host(request: Request) -> str:
    return request.headers.get("host", "").lower()
