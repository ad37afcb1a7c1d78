"""Errors for callers that are refused. Their messages never reveal whether a key exists.

CitewireError
└── AccessRefused
    ├── NoCredentials    no key, token or session was sent
    ├── BadCredentials   not a valid key: unknown, revoked, or with a wrong secret
    ├── BadToken         not a valid token: changed, of another key, or in an unsupported form
    ├── TokenExpired     a token that has expired
    ├── BadLink          a signed link that is incomplete, changed, or from another server
    ├── LinkExpired      a signed link that has expired
    └── Forbidden        the caller is known, but not allowed to do this
"""

from __future__ import annotations

from typing import ClassVar

from citewire.errors import CitewireError

__all__ = [
    "AccessRefused", "BadCredentials", "BadLink", "BadToken", "Forbidden", "LinkExpired", "NoCredentials",
    "TokenExpired",
]  # fmt: skip


class AccessRefused(CitewireError):
    """Access was refused. `status` is the HTTP status code."""

    status: ClassVar[int] = 401


class NoCredentials(AccessRefused):
    """The request has no key, token or session."""

    code = "no_credentials"

    def __init__(self) -> None:
        super().__init__("a key or a token is needed")


class BadCredentials(AccessRefused):
    """Not a valid key. Unknown, revoked and wrong secret are not distinguished."""

    code = "bad_credentials"

    def __init__(self) -> None:
        super().__init__("this is no valid key")


class BadToken(AccessRefused):
    """A token or link that this server does not accept."""

    code = "bad_token"


class TokenExpired(AccessRefused):
    """A token or link that has expired. The caller can get a new one."""

    code = "token_expired"


class BadLink(AccessRefused):
    """A signed link that this server did not make, or made for another purpose."""

    code = "bad_link"
    status = 403

    def __init__(self) -> None:
        super().__init__("this link is incomplete, or was changed")


class LinkExpired(AccessRefused):
    """A signed link that expired at `end`, in seconds since 1970."""

    code = "link_expired"
    status = 410

    def __init__(self, end: int) -> None:
        super().__init__("this link has expired")
        self.end = end


class Forbidden(AccessRefused):
    """The caller is known, but not allowed to do this."""

    code = "forbidden"
    status = 403
