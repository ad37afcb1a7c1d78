"""Parse ATTACH frames: the channel, the modes, and how far back to rewind."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from citewire.server.ably.auth import Client
from citewire.server.ably.codec import MODES, Flag, InboundFrame
from citewire.server.ably.errors import AblyError
from citewire.server.ably.message_filter import MessageFilter, parse_channel_name

__all__ = ["AttachRequest", "Rewind", "allowed_modes", "read_attach_request"]

_DEFAULT = MODES & ~Flag.ANNOTATION_SUBSCRIBE
_NEEDS = {
    Flag.PUBLISH: "publish",
    Flag.SUBSCRIBE: "subscribe",
    # Nobody is ever present, so any subscriber may subscribe to presence.
    Flag.PRESENCE_SUBSCRIBE: "subscribe",
    Flag.ANNOTATION_PUBLISH: "annotation-publish",
    Flag.ANNOTATION_SUBSCRIBE: "annotation-subscribe",
}
_REWIND = re.compile(r"(?P<count>[1-9][0-9]{0,5})|(?P<length>[1-9][0-9]{0,5})(?P<unit>[sm])")
_SECONDS = {"s": 1, "m": 60}
MAX_REWIND = 100
"""The largest number of messages a rewind returns."""


class Rewind(Struct, frozen=True):
    """How far to rewind: a number of messages, or a period in milliseconds."""

    count: int = MAX_REWIND
    period: int | None = None


class AttachRequest(Struct, frozen=True):
    """A parsed ATTACH frame. `params` holds only the parameters the server supports, echoed in ATTACHED."""

    channel: str
    filter: MessageFilter | None
    modes: Flag
    rewind: Rewind | None
    append_full: bool
    params: Mapping[str, str]


def read_attach_request(frame: InboundFrame) -> AttachRequest:
    """Parse an ATTACH frame. Raises `AblyError` for unknown modes, filters or parameters."""
    want = parse_channel_name(frame.channel or "")
    given = want.params | {name: str(value) for name, value in (frame.params or {}).items()}
    known = {name: given[name] for name in ("modes", "rewind", "appendMode") if name in given}
    flags = Flag(frame.flags or 0)
    modes = _named(known["modes"]) if "modes" in known else (flags & MODES) or _DEFAULT
    if want.filter:
        # A filtered channel is read-only.
        modes &= Flag.SUBSCRIBE
    is_again = frame.channel_serial is not None or Flag.ATTACH_RESUME in flags
    rewind = _rewind(known["rewind"]) if "rewind" in known else None
    mode = known.get("appendMode", "delta")
    if mode not in {"delta", "full"}:
        raise AblyError(40003, "appendMode is delta or full")
    return AttachRequest(
        want.channel, want.filter, modes, None if is_again else rewind, mode == "full", known
    )


def allowed_modes(client: Client, channel: str, modes: Flag) -> Flag:
    """Return the subset of `modes` that the client's capability allows."""
    found = Flag(0)
    for mode, operation in _NEEDS.items():
        if mode in modes and client.may(operation, channel):
            found |= mode
    return found


def _named(modes: str) -> Flag:
    known: Mapping[str, Any] = Flag.__members__
    found = Flag(0)
    for name in modes.upper().replace("-", "_").split(","):
        mode = known.get(name.strip())
        if mode is None or mode not in MODES:
            raise AblyError(40003, "a mode that is not known")
        found |= mode
    return found


def _rewind(text: str) -> Rewind:
    found = _REWIND.fullmatch(text)
    if not found:
        raise AblyError(40003, "rewind is a number of messages, or of seconds or minutes: 10, 15s, 2m")
    if count := found["count"]:
        return Rewind(min(int(count), MAX_REWIND))
    return Rewind(period=int(found["length"]) * _SECONDS[found["unit"]] * 1000)
