"""Filtered channels, `[filter=<JMESPath in base64>]name`: the subscriber receives only matching messages.

An expression tests a message's `name` and the `headers` in its extras. Only comparisons and boolean operators
are allowed: JMESPath that builds new values could keep the server busy forever with a short expression.
"""

from __future__ import annotations

import re
import warnings
from base64 import b64decode
from typing import Any
from urllib.parse import parse_qsl

import jmespath  # pyright: ignore[reportMissingTypeStubs]
from jmespath.exceptions import JMESPathError  # pyright: ignore[reportMissingTypeStubs]
from msgspec import Struct

from citewire.channels.message import Message
from citewire.server.ably.errors import AblyError

__all__ = ["ChannelRequest", "MessageFilter", "parse_channel_name"]

_LONGEST, _DEEPEST = 1000, 20
_PARTS = {
    "and_expression", "comparator", "field", "function_expression", "literal", "not_expression",
    "or_expression", "subexpression",
}  # fmt: skip
_FUNCTIONS = {"contains", "ends_with", "starts_with"}
_NAME = re.compile(r"\[filter=(?P<filter>[^?\]]*)(\?(?P<params>[^\]]*))?\](?P<channel>.+)", re.DOTALL)


class MessageFilter:
    """A compiled filter expression. Raises `AblyError` for an invalid one."""

    def __init__(self, expression: str) -> None:
        if len(expression) > _LONGEST:
            raise AblyError(40003, f"a filter of more than {_LONGEST} characters")
        try:
            with warnings.catch_warnings():
                # The parser warns about unquoted `text`, which early clients send.
                warnings.simplefilter("ignore", PendingDeprecationWarning)
                self._compiled: Any = jmespath.compile(expression)  # pyright: ignore[reportUnknownMemberType]
        except (JMESPathError, ValueError, RecursionError) as exc:
            raise AblyError(40003, "a filter that is no JMESPath expression") from exc
        if not _is_plain(self._compiled.parsed, _DEEPEST):
            raise AblyError(
                40003,
                "a filter compares name and headers with values, with && || ! and parentheses, and with the "
                f"functions {', '.join(sorted(_FUNCTIONS))}; {_DEEPEST} deep at most",
            )

    def matches(self, message: Message) -> bool:
        """Whether the message matches. Values that cannot be compared do not match."""
        headers = (message.extras or {}).get("headers")
        try:
            found = self._compiled.search({"name": message.name, "headers": headers})
        except (JMESPathError, TypeError, RecursionError):
            return False
        # JMESPath's false values. 0 is not one.
        return found is not False and found not in (None, "", [], {})


def _is_plain(part: dict[str, Any], depth: int) -> bool:
    kind, value = part["type"], part.get("value")
    return (
        depth > 0
        and kind in _PARTS
        and (kind != "function_expression" or value in _FUNCTIONS)
        and not isinstance(value, dict | list)
        and all(_is_plain(child, depth - 1) for child in part["children"])
    )


class ChannelRequest(Struct, frozen=True):
    """A parsed channel name: the channel, its filter and its parameters."""

    channel: str
    filter: MessageFilter | None = None
    params: dict[str, str] = {}


def parse_channel_name(name: str) -> ChannelRequest:
    """Parse the channel name of an ATTACH frame. Raises `AblyError`."""
    found = _NAME.fullmatch(name)
    if not found:
        return ChannelRequest(name)
    try:
        expression = b64decode(found["filter"], validate=True).decode()
    except ValueError as exc:
        raise AblyError(40010, "a filter in the name of a channel is written in base64") from exc
    params = dict(parse_qsl(found["params"] or "", keep_blank_values=True))
    return ChannelRequest(found["channel"], MessageFilter(expression), params)
