"""Links that sign a browser in, once: `citewire serve` and `citewire keys link` print them."""

from __future__ import annotations

import time
from collections.abc import Callable
from secrets import token_urlsafe

import msgspec
from msgspec import Struct

from citewire.server.access.errors import BadToken, TokenExpired
from citewire.server.access.keys import Caller, Keyring
from citewire.server.access.sessions import PageName
from citewire.server.access.used_names import UsedNames

__all__ = ["ADDRESS", "LINK_SECONDS", "SignInLinks", "sign_in_link"]

LINK_SECONDS = 3600
"""How long a link works that nobody has used."""

ADDRESS = "address"
"""The file of the data folder that says where the server is that uses it."""

_PURPOSE = "sign in"


class _Link(Struct, frozen=True, array_like=True):
    """What is sealed: the key that the link stands for, with its mark, and a name that is used once."""

    key: str
    mark: str
    page: PageName
    nonce: str
    expires: float


def sign_in_link(
    keyring: Keyring, address: str, key: str, page: PageName = "chat", seconds: float = LINK_SECONDS
) -> str:
    """A link to a page of the server at `address`, which signs one browser in with the rights of a key."""
    link = _Link(key, keyring.grant_of(key).mark, page, token_urlsafe(16), time.time() + seconds)
    token = keyring.seal(_PURPOSE, msgspec.json.encode(link))
    return f"{address.rstrip('/')}/sign-in?token={token}"


class SignInLinks:
    """Takes links, each once."""

    def __init__(self, keyring: Keyring, used: UsedNames, clock: Callable[[], float] = time.time) -> None:
        self._keyring, self._used, self._clock = keyring, used, clock

    async def use(self, token: str) -> tuple[Caller, PageName]:
        """Whom a link stands for, and the page that it leads to.

        Raises `TokenExpired` where it was used or has expired, `BadToken` and `BadCredentials` where it is
        none, or its key was revoked.
        """
        link = msgspec.json.decode(self._keyring.unseal(_PURPOSE, token), type=_Link)
        holder = self._keyring.grant_of(link.key)
        if link.mark != holder.mark:
            raise BadToken("this is a link of another server")
        if link.expires <= self._clock():
            raise TokenExpired("this link has expired")
        if not await self._used.use(link.nonce, link.expires):
            raise TokenExpired("this link was used already")
        return Caller(link.key, holder.capability, "*"), link.page
