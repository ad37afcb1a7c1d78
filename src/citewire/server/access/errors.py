"""Why a caller is turned away. What is said never tells whether a key exists.

CitewireError
└── Refused
    ├── NoCredentials    nothing was sent
    ├── BadCredentials   no key: unknown, revoked, or with another secret
    ├── BadToken         no token of ours: changed, of another key, in a form we do not take
    ├── TokenExpired     a token that was good once
    ├── BadLink          a signed link that is incomplete, changed, or of another server
    ├── LinkExpired      a signed link whose time has passed
    └── Forbidden        known, but not allowed to do this
"""

from __future__ import annotations

from typing import ClassVar

from citewire.errors import CitewireError

__all__ = [
    "AccessRefused", "BadCredentials", "BadLink", "BadToken", "Forbidden", "LinkExpired", "NoCredentials",
    "TokenExpired",
]  # fmt: skip


class AccessRefused(CitewireError):
    """The caller may not. `status` is what HTTP calls it."""

    status: ClassVar[int] = 401


class NoCredentials(AccessRefused):
    """A request without key, token or session."""

    code = "no_credentials"

    def __init__(self) -> None:
        super().__init__("a key or a token is needed")


class BadCredentials(AccessRefused):
    """Not a key of this server: unknown, revoked and wrong secret are all the same."""

    code = "bad_credentials"

    def __init__(self) -> None:
        super().__init__("this is no valid key")


class BadToken(AccessRefused):
    """A token or a link that this server does not take."""

    code = "bad_token"


class TokenExpired(AccessRefused):
    """A token or a link whose time has passed; a new one will do."""

    code = "token_expired"


class BadLink(AccessRefused):
    """A signed link that this server did not make, or not for this."""

    code = "bad_link"
    status = 403

    def __init__(self) -> None:
        super().__init__("this link is incomplete, or was changed")


class LinkExpired(AccessRefused):
    """A signed link whose time has passed: it worked until `end`, in seconds since 1970."""

    code = "link_expired"
    status = 410

    def __init__(self, end: int) -> None:
        super().__init__("this link has expired")
        self.end = end


class Forbidden(AccessRefused):
    """The caller is known, and not allowed to do this."""

    code = "forbidden"
    status = 403
