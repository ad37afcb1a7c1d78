"""Rules of channels: for one channel by its name, for a namespace as `ai:*`, or for all as `*`.

The namespace of a channel is its name up to the first colon, or all of it. What a rule does not say, the next
one says: that of the channel, that of its namespace, that of `*`. What none says is not so, but that messages
are mutable in the namespace `ai`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, TypeAlias

from msgspec import Meta, Struct

from citewire.channels.errors import ChannelError

__all__ = ["BUILT_IN_RULES", "DEFAULT_RULES", "Duration", "Rule", "Rules", "is_pattern", "seconds_of"]

_SECONDS = {"m": 60, "h": 3600, "d": 86400}
# Up to some 270 years. An end that means the same to Python and to who reads our OpenAPI document.
_DURATION, _END = "[1-9][0-9]{0,4}[mhd]", r"$(?!\n)"
Duration: TypeAlias = Annotated[str, Meta(pattern=f"^{_DURATION}{_END}")]
"""A number of minutes, hours or days: `90m`, `36h`, `30d`."""
_Retention: TypeAlias = Annotated[str, Meta(pattern=f"^(none|{_DURATION}){_END}")]
_PATTERN = re.compile(r"\*|[^*:\[][^*:]*:\*|[^*:\[][^*]*")


def seconds_of(duration: str) -> int:
    """The seconds in a `Duration`."""
    return int(duration[:-1]) * _SECONDS[duration[-1]]


def is_pattern(text: str) -> bool:
    """Whether a rule can be for this: a channel, a namespace as `ai:*`, or `*`."""
    return bool(_PATTERN.fullmatch(text)) and text.isprintable() and len(text.encode()) <= 256


class Rule(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What is so in the channels it is for. What is None it leaves to the next rule.

    `mutable`: messages can be updated, deleted, appended to and annotated. `retention`: how long what has
    happened is kept, a `Duration` or `none` for ever.
    """

    mutable: bool | None = None
    retention: _Retention | None = None


BUILT_IN_RULES = {"ai:*": Rule(mutable=True)}


class Rules(Struct, frozen=True):
    """The rules by the channel or pattern that they are for, before those that are built in."""

    given: Mapping[str, Rule] = {}

    def of(self, channel: str) -> Rule:
        """The rule of a channel, or of a pattern, with nothing left open."""
        mutable = retention = None
        for pattern in dict.fromkeys((channel, f"{channel.partition(':')[0]}:*", "*")):
            for rules in (self.given, BUILT_IN_RULES):
                if rule := rules.get(pattern):
                    mutable = rule.mutable if mutable is None else mutable
                    retention = retention or rule.retention
        return Rule(mutable or False, retention or "none")

    @property
    def has_retention(self) -> bool:
        """Whether there is anything that is not kept for ever."""
        return any(rule.retention not in (None, "none") for rule in self.given.values())

    def retention_seconds(self, channel: str) -> int | None:
        """For how many seconds what happened in a channel is kept; None for ever."""
        retention = self.of(channel).retention or "none"
        return None if retention == "none" else seconds_of(retention)

    def check_mutable(self, channel: str) -> None:
        """Refuse what only channels with mutable messages allow."""
        if not self.of(channel).mutable:
            raise ChannelError(
                93002, f"messages of {channel} cannot be changed or annotated: no rule says so"
            )


DEFAULT_RULES = Rules()
