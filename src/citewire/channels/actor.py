"""Who did something, as rows of the log say it."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

__all__ = ["Actor", "SERVER"]


class Actor(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """Who did something, as far as it is known: an API key, a client id and a person.

    `person` is the claim of that name in a token; on the command line it is the user of the system. What the
    server does by itself, by its settings or its rules, is done via `server`.
    """

    key: str | None = None
    client_id: str | None = None
    person: str | None = None
    via: Literal["api", "command", "server"] = "api"

    @property
    def name(self) -> str:
        """For people: the person, else the client unless it may be anybody, else the key."""
        client = None if self.client_id == "*" else self.client_id
        return self.person or client or self.key or ("the server" if self.via == "server" else "")


SERVER = Actor(via="server")
"""The server itself."""
