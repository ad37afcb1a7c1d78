"""One-time links that sign a browser in, printed by `citewire serve` and `citewire keys link`."""

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
"""How long an unused link works, in seconds."""

ADDRESS = "address"
"""File in the data folder with the address of the server that uses the folder."""

_PURPOSE = "sign in"


class _Link(Struct, frozen=True, array_like=True):
    """The sealed content of a link: its key with the key's mark, and a nonce that can be used once."""

    key: str
    mark: str
    page: PageName
    nonce: str
    expires: float


def sign_in_link(
    keyring: Keyring, address: str, key: str, page: PageName = "chat", seconds: float = LINK_SECONDS
) -> str:
    """Make a link to a page of the server at `address` that signs one browser in with a key's rights."""
    link = _Link(key, keyring.grant_of(key).mark, page, token_urlsafe(16), time.time() + seconds)
    token = keyring.seal(_PURPOSE, msgspec.json.encode(link))
    return f"{address.rstrip('/')}/sign-in?token={token}"


class SignInLinks:
    """Accepts sign-in links, each once."""

    def __init__(self, keyring: Keyring, used: UsedNames, clock: Callable[[], float] = time.time) -> None:
        self._keyring, self._used, self._clock = keyring, used, clock

    async def use(self, token: str) -> tuple[Caller, PageName]:
        """Use up a link and return its caller and page.

        Raises `TokenExpired` if it was used or has expired, `BadToken` and `BadCredentials` if it is invalid
        or its key was revoked.
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
