"""What a channel refuses, under the code that Ably's clients know."""

from __future__ import annotations

from types import MappingProxyType

from citewire.errors import CitewireError

__all__ = ["ChannelError", "STATUS"]

STATUS = MappingProxyType(
    {
        40000: 400,  # a request that cannot be used
        40003: 400,  # a parameter out of range, a serial or cursor of no message
        40009: 413,  # too large
        40010: 400,  # a channel's name
        40012: 400,  # a client id
        40013: 400,  # data or its encoding
        40031: 400,  # a message id
        40160: 401,  # not allowed
        40400: 404,  # no such message
        93002: 400,  # the channel's messages cannot be changed or annotated
    }
)
"""The HTTP status of each code."""


class ChannelError(CitewireError):
    """Refused: nothing was kept. `ably` says why, as Ably's clients are told."""

    code = "channel_refused"

    def __init__(self, ably: int, message: str) -> None:
        super().__init__(message)
        self.ably = ably

    @property
    def status(self) -> int:
        """The HTTP status of the answer."""
        return STATUS[self.ably]
