"""The pages for people: their files, and the session of a browser that loads them."""

from __future__ import annotations

from importlib.resources import files
from secrets import token_hex

from starlette.requests import Request
from starlette.responses import Response

from citewire.server.capability import Capability
from citewire.server.http import Call, Operation, Page, refusal
from citewire.server.keys import Keyring
from citewire.server.origins import host_known, is_loopback, session_cookie
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
_FILES = {
    each.name: each.read_bytes()
    for each in (files("citewire.server") / "pages").iterdir()
    if each.name != "proof.html" and each.name.rpartition(".")[2] in _TYPES
}
# What a page may do for the person in front of it.
_SESSION = Capability.of(
    {
        "thread:*": ["list", "read", "review", "run", "stop"],
        "source:*": ["add", "list", "read"],
        "verify": ["verify"],
    }
)


class Site:
    """The page at `/` and what it needs."""

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
                method="GET", path="/questions.json", summary="Questions to try",
                handle=self.questions, gives=list[str],
            ),
            *(_served(name) for name in sorted(_FILES) if name != "index.html"),
        ]  # fmt: skip

    async def home(self, call: Call) -> Response:
        """The page, with a session for the browser that loads it."""
        request = call.request
        try:
            key = self._key(request)
        except Refused as exc:
            response = refusal(exc)
            # What a browser asks the person in front of it for.
            response.headers["www-authenticate"] = 'Basic realm="citewire"'
            return response
        response = _file("index.html")
        if key is not None:
            seconds = int(self._settings.session_lifetime)
            token = self._keyring.token(key, _SESSION, seconds, f"browser-{token_hex(8)}")
            secure = request.url.scheme == "https" or (self._settings.public_url or "").startswith("https:")
            response.headers["set-cookie"] = session_cookie(token, seconds, secure=secure)
        response.headers["cache-control"] = "no-store"
        return response

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


def _served(name: str) -> Operation:
    async def give(_: Call) -> Response:
        return _file(name)

    return Operation(
        method="GET", path=f"/pages/{name}", summary="A file of the page", handle=give, gives=_type(name)
    )


def _file(name: str) -> Response:
    return Response(_FILES[name], media_type=_type(name), headers=SAFE)


def _type(name: str) -> str:
    return _TYPES[name.rpartition(".")[2]]
