"""The pages for people: their files, and the session of a browser that loads them."""

from __future__ import annotations

import gzip
import re
from collections.abc import Iterator
from hashlib import sha256
from importlib.resources import files
from importlib.resources.abc import Traversable
from secrets import token_hex

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response

from citewire.server.capability import Capability
from citewire.server.http import Bytes, Call, NotFound, Operation, Page, refusal
from citewire.server.keys import Keyring
from citewire.server.origins import CONSOLE, SESSION, host_known, is_loopback, session_cookie
from citewire.server.refusals import NoCredentials, Refused
from citewire.server.settings import Settings

__all__ = ["SAFE", "Site"]

SAFE = {
    "content-security-policy": "default-src 'self'; img-src 'self' data:; base-uri 'none'; "
    "form-action 'self'; frame-ancestors 'none'; require-trusted-types-for 'script'",
    "x-content-type-options": "nosniff",
    # A link to a proof carries its own right to be seen.
    "referrer-policy": "no-referrer",
}
"""Headers under which a page trusts nothing but our own files."""

_TYPES = {"html": "text/html", "js": "text/javascript", "css": "text/css", "svg": "image/svg+xml"}
_GZIP = re.compile(r"\bgzip\b(?!\s*;\s*q=0(?:\.0*)?\s*(?:,|$))")


class _File(Struct, frozen=True):
    """A file as browsers get it."""

    type: str
    plain: bytes
    packed: bytes
    etag: str

    @classmethod
    def of(cls, name: str, data: bytes) -> _File:
        packed = gzip.compress(data, mtime=0)
        return cls(_TYPES[name.rpartition(".")[2]], data, packed, f'W/"{sha256(data).hexdigest()[:32]}"')

    def answer(self, request: Request) -> Response:
        headers = {**SAFE, "cache-control": "no-cache", "etag": self.etag, "vary": "accept-encoding"}
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


# What is there when the server starts is all that can be asked for.
_FILES = dict(_found(files("citewire") / "web"))
# What a page may do for the person in front of it.
_SESSION = Capability.of(
    {
        "thread:*": ["list", "read", "review", "run", "stop"],
        "source:*": ["add", "list", "read"],
        "verify": ["verify"],
    }
)
# What the console may. A browser sends the cookies of both pages to each, and this one counts: so it may all
# that the other may.
_CONSOLE = Capability.of(
    {
        "answer:*": ["count", "list"],
        "audit": ["export"],
        "rule:*": ["delete", "list", "read", "set"],
        "source:*": ["add", "list", "read", "trace"],
        "thread:*": ["audit", "list", "read", "review", "run", "stop"],
        "verify": ["verify"],
    }
)


class Site:
    """The pages at `/` and `/console`, and what they need."""

    def __init__(self, keyring: Keyring, settings: Settings, questions: tuple[str, ...]) -> None:
        self._keyring, self._settings, self._questions = keyring, settings, questions

    def operations(self) -> list[Operation]:
        """What a browser asks for."""
        return [
            Operation(
                method="GET", path="/", summary="A page that asks the agent", handle=self.home, gives=Page,
                errors=(401,),
            ),
            Operation(
                method="GET", path="/console", summary="A page that shows all answers", handle=self.console,
                gives=Page, errors=(401,),
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

    async def home(self, call: Call) -> Response:
        """The page that asks the agent."""
        return self._page(call.request, "chat/index.html", SESSION, _SESSION)

    async def console(self, call: Call) -> Response:
        """The page that shows all answers."""
        return self._page(call.request, "console/index.html", CONSOLE, _CONSOLE)

    def _page(self, request: Request, file: str, cookie: str, may: Capability) -> Response:
        """A page, with a session for the browser that loads it."""
        try:
            key = self._key(request)
        except Refused as exc:
            response = refusal(exc)
            # What a browser asks the person in front of it for.
            response.headers["www-authenticate"] = 'Basic realm="citewire"'
            return response
        response = _FILES[file].answer(request)
        if key is not None:
            seconds = int(self._settings.session_lifetime)
            token = self._keyring.token(key, may, seconds, f"browser-{token_hex(8)}")
            secure = request.url.scheme == "https" or (self._settings.public_url or "").startswith("https:")
            response.headers["set-cookie"] = session_cookie(token, seconds, secure=secure, name=cookie)
        response.headers["cache-control"] = "no-store"
        return response

    async def file(self, call: Call) -> Response:
        """One of our own files."""
        if (found := _FILES.get(call.path["file"])) is None:
            raise NotFound("there is no such file")
        return found.answer(call.request)

    async def questions(self, _: Call) -> list[str]:
        """What a newcomer may ask."""
        return list(self._questions)

    def _key(self, request: Request) -> str | None:
        """The key that a session is made of: the one that was sent, or on this machine the first there is.

        Whoever can load the page of a server that only this machine reaches sits in front of it. Where others
        reach it they are asked for a key, which a browser takes as name and password.
        """
        if header := request.headers.get("authorization"):
            return self._keyring.caller(header).key
        settings = self._settings
        alone = settings.public_url is None and is_loopback(settings.host)
        if not alone or not host_known(request.headers.get("host", ""), ()):
            raise NoCredentials
        return next((key.name for key in self._keyring.rows() if key.revoked is None), None)
