"""The actor of an action, as recorded in rows of the log."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

__all__ = ["Actor", "SERVER"]


class Actor(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """The API key, client id and person behind an action, as far as they are known.

    `person` is the claim of that name in a token; on the command line it is the system's user. Actions that
    the server takes because of its settings or rules have `via="server"`.
    """

    key: str | None = None
    client_id: str | None = None
    person: str | None = None
    via: Literal["api", "command", "server"] = "api"

    @property
    def name(self) -> str:
        """The display name: the person, else the client id (unless it is the wildcard `*`), else the key."""
        client = None if self.client_id == "*" else self.client_id
        return self.person or client or self.key or ("the server" if self.via == "server" else "")


SERVER = Actor(via="server")
"""The server itself."""
