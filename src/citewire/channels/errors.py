"""Errors of channel operations, with the codes that Ably's clients know."""

from __future__ import annotations

from types import MappingProxyType

from citewire.errors import CitewireError

__all__ = ["ChannelError", "STATUS"]

STATUS = MappingProxyType(
    {
        40000: 400,  # an invalid request
        40003: 400,  # a parameter out of range, an unknown serial or cursor
        40009: 413,  # too large
        40010: 400,  # an invalid channel name
        40012: 400,  # an invalid client id
        40013: 400,  # invalid data or encoding
        40031: 400,  # an invalid message id
        40160: 401,  # not allowed
        40400: 404,  # no such message
        93002: 400,  # the channel's messages cannot be changed or annotated
    }
)
"""The HTTP status of each code."""


class ChannelError(CitewireError):
    """A channel refused the request and stored nothing. `ably` is the error code for Ably's clients."""

    code = "channel_refused"

    def __init__(self, ably: int, message: str) -> None:
        super().__init__(message)
        self.ably = ably

    @property
    def status(self) -> int:
        """The HTTP status of the response."""
        return STATUS[self.ably]
