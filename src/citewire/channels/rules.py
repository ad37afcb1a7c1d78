"""Rules of channels: for one channel by name, for a namespace like `ai:*`, or for all channels with `*`.

The namespace of a channel is its name up to the first colon, or the whole name. Settings that a rule leaves
open come from the next rule, in the order channel, namespace, `*`. Without any rule a setting is off, except
that messages in the namespace `ai` are mutable.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, TypeAlias

from msgspec import Meta, Struct

from citewire.channels.errors import ChannelError

__all__ = ["BUILT_IN_RULES", "DEFAULT_RULES", "Duration", "Rule", "Rules", "is_pattern", "seconds_of"]

_SECONDS = {"m": 60, "h": 3600, "d": 86400}
# Up to some 270 years. An end anchor with the same meaning in Python and for readers of our OpenAPI document.
_DURATION, _END = "[1-9][0-9]{0,4}[mhd]", r"$(?!\n)"
Duration: TypeAlias = Annotated[str, Meta(pattern=f"^{_DURATION}{_END}")]
"""A number of minutes, hours or days: `90m`, `36h`, `30d`."""
_Retention: TypeAlias = Annotated[str, Meta(pattern=f"^(none|{_DURATION}){_END}")]
_PATTERN = re.compile(r"\*|[^*:\[][^*:]*:\*|[^*:\[][^*]*")


def seconds_of(duration: str) -> int:
    """Return the number of seconds in a `Duration`."""
    return int(duration[:-1]) * _SECONDS[duration[-1]]


def is_pattern(text: str) -> bool:
    """Tell whether a rule can apply to this: a channel, a namespace like `ai:*`, or `*`."""
    return bool(_PATTERN.fullmatch(text)) and text.isprintable() and len(text.encode()) <= 256


class Rule(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The settings of the channels that match. None leaves a setting to the next rule.

    `mutable`: messages can be updated, deleted, appended to and annotated. `retention`: how long the log is
    stored, a `Duration` or `none` for ever.
    """

    mutable: bool | None = None
    retention: _Retention | None = None


BUILT_IN_RULES = {"ai:*": Rule(mutable=True)}


class Rules(Struct, frozen=True):
    """The rules by channel or pattern. They take precedence over the built-in rules."""

    given: Mapping[str, Rule] = {}

    def of(self, channel: str) -> Rule:
        """Return the effective rule of a channel or a pattern, with every setting filled in."""
        mutable = retention = None
        for pattern in dict.fromkeys((channel, f"{channel.partition(':')[0]}:*", "*")):
            for rules in (self.given, BUILT_IN_RULES):
                if rule := rules.get(pattern):
                    mutable = rule.mutable if mutable is None else mutable
                    retention = retention or rule.retention
        return Rule(mutable or False, retention or "none")

    @property
    def has_retention(self) -> bool:
        """Whether any rule limits the retention."""
        return any(rule.retention not in (None, "none") for rule in self.given.values())

    def retention_seconds(self, channel: str) -> int | None:
        """Return the retention of a channel in seconds; None for ever."""
        retention = self.of(channel).retention or "none"
        return None if retention == "none" else seconds_of(retention)

    def check_mutable(self, channel: str) -> None:
        """Raise `ChannelError` unless messages of the channel are mutable."""
        if not self.of(channel).mutable:
            raise ChannelError(
                93002, f"messages of {channel} cannot be changed or annotated: no rule says so"
            )


DEFAULT_RULES = Rules()
