"""Summaries of a message's annotations, by type and usually by name.

A summary is stored in the form that clients receive. It lists the first clients of each group while there is
room; later clients are only counted there, and each is stored separately as a `HiddenClient`. So one more
annotation costs the same whether the message has ten or a million of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, TypeAlias

from msgspec import Raw, Struct, msgpack, to_builtins
from msgspec.structs import replace

from citewire.channels.errors import ChannelError

__all__ = [
    "HiddenClient",
    "METHODS",
    "SummaryMethod",
    "SummaryStep",
    "SummaryUpdate",
    "fold_step",
    "method_of",
    "summarize_client",
]

SUMMARY_BYTES = 64 * 1024
"""How large a summary may become; beyond that it names no more clients, and takes no more names."""
# The bytes of a group besides its name, and of a client besides its id.
_GROUP_BYTES = 128
_CLIENT_BYTES = 16


class Group(Struct, frozen=True):
    """The counts under one name: `shown` by client id, the number of `clients`, and the anonymous count."""

    total: int = 0
    shown: Mapping[str, int] = {}
    clients: int = 0
    unidentified: int = 0


class SummaryTotal(Struct, frozen=True):
    """`total.v1`."""

    total: int
    client_ids: ClassVar[tuple[str, ...]] = ()

    def group(self) -> Group:
        """Return the counts."""
        return Group(self.total, unidentified=self.total)

    @classmethod
    def of(cls, group: Group) -> SummaryTotal:
        """Return the form that clients receive."""
        return cls(group.total)


class SummaryClientIdList(Struct, frozen=True, rename="camel"):
    """`flag.v1`, `distinct.v1` and `unique.v1`: each client counts once."""

    total: int
    client_ids: tuple[str, ...]
    clipped: bool

    def group(self) -> Group:
        """Return the counts."""
        return Group(self.total, dict.fromkeys(self.client_ids, 1), self.total)

    @classmethod
    def of(cls, group: Group) -> SummaryClientIdList:
        """Return the form that clients receive."""
        return cls(group.total, tuple(group.shown), group.clients > len(group.shown))


class SummaryClientIdCounts(Struct, frozen=True, rename="camel"):
    """`multiple.v1`."""

    total: int
    client_ids: dict[str, int]
    total_unidentified: int
    total_client_ids: int
    clipped: bool

    def group(self) -> Group:
        """Return the counts."""
        return Group(self.total, self.client_ids, self.total_client_ids, self.total_unidentified)

    @classmethod
    def of(cls, group: Group) -> SummaryClientIdCounts:
        """Return the form that clients receive."""
        shown = dict(group.shown)
        return cls(group.total, shown, group.unidentified, group.clients, group.clients > len(shown))


_Form: TypeAlias = SummaryTotal | SummaryClientIdList | SummaryClientIdCounts
_Forms: TypeAlias = Mapping[str, _Form]

_FORMS: tuple[type[_Form], ...] = (SummaryTotal, SummaryClientIdList, SummaryClientIdCounts)
_decoders = {form: msgpack.Decoder(form) for form in _FORMS}
_raw = msgpack.Decoder(dict[str, Raw])


class SummaryMethod(Struct, frozen=True):
    """How annotations of a type are summarised.

    `identified`: a client id is required. `named`: there is one group per name. `adds`: repeated annotations
    of a client add to its count. `moves`: a client is in one group only.
    """

    form: type[_Form]
    identified: bool = False
    named: bool = True
    adds: bool = False
    moves: bool = False

    def groups(self, data: Raw | None) -> dict[str, Raw]:
        """Return the groups of a type by name, undecoded; a type without names has one group, named ""."""
        if data is None:
            return {}
        return _raw.decode(data) if self.named else {"": data}

    def read(self, groups: Mapping[str, Raw], names: Iterable[str]) -> dict[str, _Form]:
        """Decode the groups with these names."""
        decoder = _decoders[self.form]
        return {name: decoder.decode(groups[name]) for name in names if name in groups}

    def to_wire(self, groups: Mapping[str, _Form | Raw]) -> Any:
        """Return the groups in the form that clients receive."""
        return groups if self.named else groups[""]


METHODS: Mapping[str, SummaryMethod] = {
    "total.v1": SummaryMethod(SummaryTotal, named=False, adds=True),
    "flag.v1": SummaryMethod(SummaryClientIdList, identified=True, named=False),
    "distinct.v1": SummaryMethod(SummaryClientIdList, identified=True),
    "unique.v1": SummaryMethod(SummaryClientIdList, identified=True, moves=True),
    "multiple.v1": SummaryMethod(SummaryClientIdCounts, adds=True),
}


def method_of(type: str) -> SummaryMethod | None:  # noqa: A002 - as it is called in an annotation
    """Return the method of an annotation's type `namespace:method`; None if it is only a namespace."""
    namespace, colon, method = type.partition(":")
    if not namespace or (colon and method not in METHODS):
        raise ChannelError(40000, f"not a type of annotations; their methods are {', '.join(METHODS)}")
    return METHODS[method] if colon else None


class SummaryStep(Struct, frozen=True):
    """The change that one annotation makes to a summary."""

    type: str
    method: SummaryMethod
    name: str
    client_id: str | None
    count: int
    delete: bool


class HiddenClient(Struct, frozen=True, array_like=True):
    """A client that counts in a group but is not listed there."""

    type: str
    name: str
    count: int


class SummaryUpdate(Struct, frozen=True):
    """A changed summary, and the new hidden entry of the client that changed it."""

    summary: bytes
    hidden: HiddenClient | None


class _Groups(Struct, frozen=True):
    """The groups of one type that a step concerns, and the hidden entry of its client."""

    forms: _Forms
    hidden: HiddenClient | None


def read_types(summary: bytes | None) -> dict[str, Raw]:
    """Return the undecoded summaries by type."""
    return _raw.decode(summary) if summary else {}


def fold_step(
    summary: bytes | None, hidden: HiddenClient | None, step: SummaryStep, shown: int
) -> SummaryUpdate | None:
    """Return the summary after a step; None if nothing changes.

    `hidden` is the entry of the step's client in the step's group or, for a method that moves clients, in any
    group of the type. No group lists more than `shown` clients.
    """
    method, types = step.method, read_types(summary)
    groups = method.groups(types.get(step.type))
    # Groups that the step does not touch are copied undecoded: decoding a hundred clients in each is slow.
    before = _Groups(method.read(groups, groups if method.moves else (step.name,)), hidden)
    after = _deleted(before, step) if step.delete else _created(before, step, len(summary or b""), shown)
    if after is None:
        return None
    changed: dict[str, _Form | Raw] = {**groups, **after.forms}
    for name in before.forms.keys() - after.forms.keys():
        del changed[name]
    written: dict[str, Any] = {**types, step.type: changed and method.to_wire(changed)}
    if not changed:
        del written[step.type]
    return SummaryUpdate(msgpack.encode(written), after.hidden)


def _created(groups: _Groups, step: SummaryStep, size: int, shown: int) -> _Groups | None:
    home = _group_of_client(groups, step)
    if home is not None and not step.method.adds:
        if home == step.name:
            return None
        groups = _without_client(groups, home, step)
    if (
        step.name not in groups.forms
        and size + _byte_length(step.type, step.name) + _GROUP_BYTES > SUMMARY_BYTES
    ):
        raise ChannelError(40009, f"a summary of more than {SUMMARY_BYTES // 1024} KiB")
    return _with_client(groups, step, size, shown)


def _deleted(groups: _Groups, step: SummaryStep) -> _Groups | None:
    """Remove the client's count from the group; without a client id, lower the anonymous count (D1–D3)."""
    if step.client_id is not None:
        return (
            _without_client(groups, step.name, step) if _group_of_client(groups, step) == step.name else None
        )
    group = _group(groups, step.name)
    taken = min(step.count, group.unidentified)
    if not taken:
        return None
    return _with_group(
        groups, step, replace(group, total=group.total - taken, unidentified=group.unidentified - taken)
    )


def _group_of_client(groups: _Groups, step: SummaryStep) -> str | None:
    """Return the name of the group that already counts the step's client."""
    names = groups.forms if step.method.moves else (step.name,) if step.name in groups.forms else ()
    for name in names:
        if step.client_id in groups.forms[name].client_ids:
            return name
    return groups.hidden and groups.hidden.name


def _with_client(groups: _Groups, step: SummaryStep, size: int, shown: int) -> _Groups:
    """Add the count of the step; list the client if there is room."""
    group, client, hidden = _group(groups, step.name), step.client_id, groups.hidden
    total = group.total + step.count
    if client is None:
        return _with_group(
            groups, step, replace(group, total=total, unidentified=group.unidentified + step.count)
        )
    if client in group.shown:
        more = {**group.shown, client: group.shown[client] + step.count}
        return _with_group(groups, step, replace(group, total=total, shown=more))
    if hidden:
        hidden = replace(hidden, count=hidden.count + step.count)
        return replace(_with_group(groups, step, replace(group, total=total)), hidden=hidden)
    group = replace(group, total=total, clients=group.clients + 1)
    if len(group.shown) < shown and size + _byte_length(client) + _CLIENT_BYTES <= SUMMARY_BYTES:
        return _with_group(groups, step, replace(group, shown={**group.shown, client: step.count}))
    return replace(_with_group(groups, step, group), hidden=HiddenClient(step.type, step.name, step.count))


def _without_client(groups: _Groups, name: str, step: SummaryStep) -> _Groups:
    """Remove the step's client from the group with this name."""
    group = _group(groups, name)
    shown = dict(group.shown)
    count = shown.pop(step.client_id or "", 0) or (groups.hidden.count if groups.hidden else 0)
    group = replace(group, total=group.total - count, shown=shown, clients=group.clients - 1)
    return replace(_with_group(groups, replace(step, name=name), group), hidden=None)


def _group(groups: _Groups, name: str) -> Group:
    form = groups.forms.get(name)
    return form.group() if form else Group()


def _with_group(groups: _Groups, step: SummaryStep, group: Group) -> _Groups:
    """Return the groups with this one replaced, or removed if its total is 0."""
    forms = {**groups.forms, step.name: step.method.form.of(group)}
    if not group.total:
        del forms[step.name]
    return replace(groups, forms=forms)


def _byte_length(*texts: str) -> int:
    return sum(len(text.encode()) for text in texts)


def summarize_client(summary: bytes | None, client_id: str, hidden: Iterable[HiddenClient]) -> dict[str, Any]:
    """Return the groups that count a client, by type, each with its totals and no other client."""
    counts = {(each.type, each.name): each.count for each in hidden}
    found: dict[str, Any] = {}
    for kind, data in read_types(summary).items():
        method, forms = METHODS[kind.partition(":")[2]], dict[str, _Form]()
        groups = method.groups(data)
        for name, form in method.read(groups, groups).items():
            group = form.group()
            if count := group.shown.get(client_id) or counts.get((kind, name)):
                alone = method.form.of(replace(group, shown={client_id: count}))
                forms[name] = alone if isinstance(alone, SummaryTotal) else replace(alone, clipped=True)
        if forms:
            found[kind] = to_builtins(method.to_wire(forms))
    return found
