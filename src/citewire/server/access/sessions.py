"""Sessions of our own pages: a credential of its own kind, in a cookie.

A session is sealed with the server's secret. It is not a token: it is refused as a `Bearer`, in a query, and
by all of Ably's endpoints. It holds what of a key or token a page may use, and ends with that. Only a key,
a token or a one-time link makes a session; a session makes or prolongs none.
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
# Characters of a cookie that browsers keep, less its name and attributes.
_LONGEST = 3800
# What a page may do for the person in front of it. The console may do all that the chat may.
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
"""What the session of each page may do at most: add sources, for example, and not replace them."""


class _Session(Struct, frozen=True, array_like=True):
    """What is sealed. `mark` is that of the key, `server` the one that the session is for."""

    key: str
    mark: str
    capability: dict[str, list[str]]
    client_id: str | None
    expires: float
    page: PageName
    server: str
    person: str | None


class Sessions:
    """Makes the sessions of a server, and says whom they stand for."""

    def __init__(self, keyring: Keyring, settings: Settings, clock: Callable[[], float] = time.time) -> None:
        self._keyring, self._clock = keyring, clock
        self._lifetime = settings.session_lifetime
        public = urlsplit(settings.public_url or "")
        self._public, self._own_name = public.netloc.lower(), public.hostname
        self._is_public_tls = public.scheme == "https"

    def start(self, caller: Caller, page: PageName, request: Request) -> str:
        """The `Set-Cookie` header of a new session for what of the caller's rights the page may use.

        Raises `Forbidden` where that is nothing or cannot be kept, `TokenExpired` where the token has ended.
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
        # A key may speak for anybody: each of its browsers has a name of its own.
        client_id = f"browser-{token_hex(8)}" if caller.client_id == "*" else caller.client_id
        session = _Session(
            caller.key, self._keyring.grant_of(caller.key).mark, capability.plain(), client_id, expires, page,
            self._server(request), caller.person,
        )  # fmt: skip
        return session_cookie(self._name(request), self._seal(session), seconds, secure=self._is_tls(request))

    def caller(self, request: Request, page: PageName | None = None) -> Caller:
        """Whom the session of a request stands for. For a `page`, it has to be one of that page.

        Raises `NoCredentials` where there is no session, `TokenExpired` where it has ended, `Forbidden` where
        it is for another page, `BadToken` and `BadCredentials` where it is none, or its key was revoked.
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
        """Whether the request was sent to an address, or to a name of this server. See `host_known`."""
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
        # What is sealed was written here, so that it can be read.
        return msgspec.json.decode(zlib.decompress(self._keyring.unseal(_PURPOSE, text)), type=_Session)

    def _name(self, request: Request) -> str:
        return cookie_name(_host(request), secure=self._is_tls(request))

    def _server(self, request: Request) -> str:
        """What the session is bound to: the public address, else the port that the browser has called."""
        return self._public or str(port_of(_host(request)))

    def _is_tls(self, request: Request) -> bool:
        return self._is_public_tls or request.url.scheme == "https"


def _host(request: Request) -> str:
    return request.headers.get("host", "").lower()
