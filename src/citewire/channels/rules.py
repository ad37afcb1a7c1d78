"""Rules of channels: for one channel by its name, or for a namespace as `ai:*`.

The namespace of a channel is its name up to the first colon, or all of it. The rule of the channel itself
comes first, then that of its namespace, then that of `*`.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from citewire.channels.refusal import ChannelError

__all__ = ["DEFAULT", "Rule", "Rules"]


class Rule(Struct, frozen=True):
    """`mutable`: messages can be updated, deleted, appended to and annotated."""

    mutable: bool = False


class Rules(Struct, frozen=True):
    """The rules by the channel or pattern that they are for."""

    given: Mapping[str, Rule] = {}

    def of(self, channel: str) -> Rule:
        """The rule of a channel."""
        namespace = channel.partition(":")[0]
        for pattern in (channel, f"{namespace}:*", "*"):
            if rule := self.given.get(pattern):
                return rule
        return Rule()

    def need_mutable(self, channel: str) -> None:
        """Refuse what only channels with mutable messages allow."""
        if not self.of(channel).mutable:
            raise ChannelError(
                93002, f"messages of {channel} cannot be changed or annotated: no rule says so"
            )


DEFAULT = Rules({"ai:*": Rule(mutable=True)})
