"""Who may do what, as a model of its own: written from the docs, without the server's code.

The fuzzer in `test_capability_fuzz.py` asks the server the same and compares. A capability is a plain
dict, as in JSON. A credential holds several; what it allows is what all of them allow.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal, NamedTuple

Granted = dict[str, list[str]]
Verdict = Literal["allowed", "unknown", "forbidden"]
"""`unknown`: the server does not accept the credential. `forbidden`: it does, but for less than this."""

EVERYTHING: Granted = {"[*]*": ["*"]}
CHAT: Granted = {
    "thread:*": ["list", "read", "review", "run", "stop"],
    "source:*": ["add", "list", "read"],
    "verify": ["verify"],
}
"""What the session of the chat page may do at most."""
CONSOLE: Granted = {
    "answer:*": ["count", "list"],
    "audit": ["export"],
    "rule:*": ["delete", "list", "read", "set"],
    "source:*": ["add", "list", "read", "trace"],
    "thread:*": ["audit", "list", "read", "review", "run", "stop"],
    "verify": ["verify"],
}
"""What the session of the console may do at most."""


def covers(pattern: str, name: str) -> bool:
    """Whether a resource pattern covers a name: `*` is one segment, and at the end one or more."""
    *segments, last = _bare(pattern).split(":")
    parts = ["[^:]*" if part == "*" else re.escape(part) for part in segments]
    parts.append(".*" if last == "*" else re.escape(last))
    is_qualified = _qualifier(pattern) in ("[*]", _qualifier(name))
    return is_qualified and re.fullmatch(":".join(parts), _bare(name), re.DOTALL) is not None


def _qualifier(text: str) -> str:
    found = re.match(r"\[[^\]]*\]", text)
    return found[0] if found else ""


def _bare(text: str) -> str:
    return text[len(_qualifier(text)) :]


def grants(granted: Granted, operation: str, resource: str) -> bool:
    """Whether one capability allows an operation on a resource."""
    return any(
        covers(pattern, resource) and ("*" in operations or operation in operations)
        for pattern, operations in granted.items()
    )


class Credential(NamedTuple):
    """Something a request is sent with.

    `is_known` is false for one that the server must not accept at all: expired, revoked, forged, of another
    kind than where it is shown. `client_id` is None for an anonymous caller and `*` for a key.
    """

    label: str
    headers: dict[str, str]
    capabilities: Sequence[Granted]
    is_known: bool = True
    client_id: str | None = None
    text: str = ""
    """The key or token itself; empty where the credential is none of them."""
    in_query: bool = False
    is_session: bool = False

    def may(self, operation: str, resource: str) -> bool:
        return self.is_known and all(grants(each, operation, resource) for each in self.capabilities)


class Request(NamedTuple):
    """A request of the server's API, with what it needs.

    `needs` are alternatives, any of which is enough; none at all means that everybody may. `also` are needed
    beside it. `shows` gives the names that the answer lists and `may_show` the right that each of them needs.
    Channels are for keys and tokens only, not for sessions.
    """

    method: str
    path: str
    needs: Sequence[tuple[str, str]]
    body: Any = b""
    content: str = "application/json"
    changes: bool = False
    also: Sequence[tuple[str, str]] = ()
    is_of_channels: bool = False
    shows: Callable[[Any], Iterable[str]] | None = None
    may_show: Callable[[str], tuple[str, str]] | None = None


def judge(credential: Credential, request: Request) -> Verdict:
    """What the server has to say to it."""
    if not request.needs:
        return "allowed"
    if not credential.is_known or (credential.in_query and request.method != "GET"):
        return "unknown"
    if credential.is_session and request.is_of_channels:
        return "unknown"
    is_allowed = any(credential.may(*each) for each in request.needs)
    return "allowed" if is_allowed and all(credential.may(*each) for each in request.also) else "forbidden"
