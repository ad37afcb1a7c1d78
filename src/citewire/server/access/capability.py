"""Capabilities: the operations allowed on resources, in Ably's form `{"thread:*": ["read", "run"]}`.

A resource is a name of segments separated by colons. In a pattern, a segment `*` matches any one segment, and
at the end one or more segments; within a segment (`foo*`) it is an ordinary character. A name may have a
qualifier in front, as in `[meta]log`. A pattern matches it with the same qualifier or with `[*]`, which
matches any qualifier and none. The operation `*` allows every operation.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, TypeAlias

import msgspec
from msgspec import Meta, Struct

from citewire.errors import ShapeError

__all__ = ["Capability", "FULL"]

_ANY = "*"
# Enough for a token that lists its channels one by one, and few enough to intersect with its key's.
_MOST_RESOURCES = 200
_Resource: TypeAlias = Annotated[str, Meta(min_length=1, max_length=2048)]
_Operation: TypeAlias = Annotated[str, Meta(pattern=r"\A(\*|[a-z][a-z-]{0,63})\Z")]
_Granted: TypeAlias = Annotated[
    dict[_Resource, Annotated[list[_Operation], Meta(min_length=1, max_length=100)]],
    Meta(max_length=_MOST_RESOURCES),
]

_Segments: TypeAlias = tuple[str, ...]


class _Grant(Struct, frozen=True):
    qualifier: str | None
    segments: _Segments
    operations: frozenset[str]

    def allows(self, operation: str, qualifier: str | None, name: _Segments) -> bool:
        return (
            not self.operations.isdisjoint((operation, _ANY))
            and self.qualifier in (_ANY, qualifier)
            and _matches(self.segments, name)
        )

    def __and__(self, other: _Grant) -> _Grant | None:
        qualifiers = {self.qualifier, other.qualifier}
        if len(qualifiers) > 1:
            qualifiers.discard(_ANY)
        segments = _meet(self.segments, other.segments)
        operations = _both(self.operations, other.operations)
        if len(qualifiers) > 1 or segments is None or not operations:
            return None
        return _Grant(qualifiers.pop(), segments, operations)

    @property
    def resource(self) -> str:
        before = "" if self.qualifier is None else f"[{self.qualifier}]"
        return before + ":".join(self.segments)


class Capability(Struct, frozen=True):
    """The operations its holder may do. `one & other` is what both allow."""

    grants: tuple[_Grant, ...] = ()

    @classmethod
    def of(cls, value: Any) -> Capability:
        """Parse a capability from a decoded JSON object. Raises `ShapeError` for anything else."""
        try:
            granted = msgspec.convert(value, _Granted)
        except msgspec.ValidationError as exc:
            message, _, path = str(exc).partition(" - at `")
            raise ShapeError(f"not a capability: {message}", path.rstrip("`") or "$") from exc
        return cls._union(
            _Grant(*_parse(resource), frozenset(operations)) for resource, operations in granted.items()
        )

    @classmethod
    def _union(cls, grants: Iterable[_Grant]) -> Capability:
        """Merge grants into one per resource, sorted by resource."""
        joined: dict[str, _Grant] = {}
        for grant in grants:
            name = grant.resource
            before = joined.get(name, grant)
            joined[name] = _Grant(
                grant.qualifier, grant.segments, _either(before.operations, grant.operations)
            )
        return cls(tuple(joined[name] for name in sorted(joined)))

    def __and__(self, other: Capability) -> Capability:
        met = (one & another for one in self.grants for another in other.grants)
        return self._union(grant for grant in met if grant is not None)

    def allows(self, operation: str, resource: str) -> bool:
        """Whether the operation is allowed on the resource, which is a name and not a pattern."""
        qualifier, name = _parse(resource)
        return any(grant.allows(operation, qualifier, name) for grant in self.grants)

    @property
    def is_readable(self) -> bool:
        """Whether `of` accepts the output of `plain`: an intersection may have too many or too long names."""
        try:
            msgspec.convert(self.plain(), _Granted)
        except msgspec.ValidationError:
            return False
        return True

    def plain(self) -> dict[str, list[str]]:
        """Return the capability as JSON. Equal capabilities give the same order."""
        return {grant.resource: sorted(grant.operations) for grant in self.grants}


def _parse(resource: str) -> tuple[str | None, _Segments]:
    qualifier, name = None, resource
    if resource.startswith("[") and "]" in resource:
        qualifier, _, name = resource[1:].partition("]")
    return qualifier, tuple(name.split(":"))


def _matches(pattern: _Segments, name: _Segments) -> bool:
    if pattern[-1] == _ANY and len(name) > len(pattern):
        name = name[: len(pattern)]
    return len(name) == len(pattern) and all(
        part in (_ANY, given) for part, given in zip(pattern, name, strict=True)
    )


def _meet(one: _Segments, other: _Segments) -> _Segments | None:
    """Return the pattern of the names that match both, or None if there are none."""
    short, long = sorted((one, other), key=len)
    if len(short) < len(long):
        if short[-1] != _ANY:
            return None
        short += (_ANY,) * (len(long) - len(short))
    met: list[str] = []
    for left, right in zip(short, long, strict=True):
        if left != right and _ANY not in (left, right):
            return None
        met.append(right if left == _ANY else left)
    return tuple(met)


def _both(one: frozenset[str], other: frozenset[str]) -> frozenset[str]:
    if _ANY in one:
        return other
    return one if _ANY in other else one & other


def _either(one: frozenset[str], other: frozenset[str]) -> frozenset[str]:
    together = one | other
    return frozenset({_ANY}) if _ANY in together else together


FULL = Capability.of({"[*]*": ["*"]})
"""Every operation on every resource."""
