"""HTTP operations on the rules of channels: those from the settings, and those set by API calls.

A rule set here overrides the settings for the same pattern, until it is deleted. It is stored in the log
`rules:`, so all servers that share the log have the same rules.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal

from msgspec import Struct

from citewire.channels.channels import Channels
from citewire.channels.hub import Hub
from citewire.channels.rules import BUILT_IN_RULES, Rule, Rules, is_pattern
from citewire.channels.store import Row
from citewire.codec import decode_as
from citewire.errors import InputError, NotFound
from citewire.server.http.operations import ApiCall, Operation
from citewire.server.ops.settings import PatternRule
from citewire.server.storage.follower import ChannelFollower

__all__ = ["RuleApi"]

_LOG = "rules:"


class RuleView(Struct, frozen=True):
    """The rule in effect for a pattern, and its origin; None is the built-in default."""

    pattern: str
    mutable: bool
    retention: str
    said: Literal["settings", "call"] | None


class RuleList(Struct, frozen=True):
    """All patterns that have a rule."""

    rules: list[RuleView]


class _RuleRow(Struct, frozen=True, rename="camel"):
    """A row of the log: a rule, or None if it was deleted, and the caller."""

    pattern: str
    rule: Rule | None
    key: str
    client_id: str | None
    person: str | None = None


class RuleApi:
    """The rules of `channels`. Changes take effect at once."""

    def __init__(self, hub: Hub, channels: Channels, settings: Iterable[PatternRule] = ()) -> None:
        self._channels = channels
        self._settings = {each.pattern: each.rule for each in settings}
        self._said: dict[str, Rule] = {}
        self._log = ChannelFollower(hub, _LOG, self._apply, self._said.clear, self._settle)

    async def catch_up(self) -> None:
        """Apply all rows that the log has now."""
        await self._log.catch_up()

    async def run(self) -> None:
        """Apply changes made on other servers as they arrive."""
        await self._log.run()

    def _apply(self, row: Row) -> None:
        said: _RuleRow = decode_as(row.data, _RuleRow)
        self._said.pop(said.pattern, None)
        if said.rule is not None:
            self._said[said.pattern] = said.rule

    def _settle(self) -> None:
        self._channels.rules = Rules(self._settings | self._said)

    def operations(self) -> list[Operation]:
        """Return the operations on rules."""
        of = "rule:{pattern}"
        return [
            Operation(
                method="GET", path="/rules", summary="The rules of channels",
                handle=self.list, needs=("list", "rule:*"), gives=RuleList,
            ),
            Operation(
                method="GET", path="/rules/{pattern}", summary="What is so in a channel or a namespace",
                handle=self.show, needs=("read", of), gives=RuleView,
            ),
            Operation(
                method="PUT", path="/rules/{pattern}", summary="Say what is so, at once and for good",
                handle=self.put, needs=("set", of), body=Rule, gives=RuleView,
            ),
            Operation(
                method="DELETE", path="/rules/{pattern}", summary="Have what the settings say again",
                handle=self.delete, needs=("delete", of),
            ),
        ]  # fmt: skip

    async def list(self, call: ApiCall) -> RuleList:
        """Return the rules that the caller may read."""
        patterns = sorted({*BUILT_IN_RULES, *self._settings, *self._said})
        return RuleList([self._view(each) for each in patterns if call.caller.may("read", f"rule:{each}")])

    async def show(self, call: ApiCall) -> RuleView:
        """Return one rule with all its fields filled in."""
        return self._view(_pattern(call.path))

    async def put(self, call: ApiCall) -> RuleView:
        """Store a rule."""
        pattern = _pattern(call.path)
        await self._say(call, pattern, call.body)
        return self._view(pattern)

    async def delete(self, call: ApiCall) -> None:
        """Delete a rule that was set by a call. Raises `NotFound`."""
        pattern = _pattern(call.path)
        await self._log.catch_up()
        if pattern not in self._said:
            raise NotFound("no call has made a rule for this")
        await self._say(call, pattern, None)

    async def _say(self, call: ApiCall, pattern: str, rule: Rule | None) -> None:
        caller = call.caller
        said = _RuleRow(pattern, rule, caller.key, caller.client_id, caller.person)
        await self._log.write([("rule", said)])

    def _view(self, pattern: str) -> RuleView:
        rule = self._channels.rules.of(pattern)
        said = "call" if pattern in self._said else "settings" if pattern in self._settings else None
        return RuleView(pattern, bool(rule.mutable), rule.retention or "none", said)


def _pattern(path: Mapping[str, str]) -> str:
    if not is_pattern(path["pattern"]):
        raise InputError("a rule is for a channel, for a namespace as `ai:*`, or for all as `*`")
    return path["pattern"]
