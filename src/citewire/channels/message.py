"""Messages: what a client sends, what a channel makes of it, and what an edit changes.

Names of fields and numbers of actions are those of Ably's wire (spec TM2, TM5).
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from citewire.channels.errors import ChannelError

__all__ = [
    "Action",
    "Annotations",
    "Data",
    "Message",
    "MessageDraft",
    "MessageOperation",
    "MessageVersion",
    "Publisher",
    "bytes_of",
]

KIB = 1024
PUBLISH_BYTES = 64 * KIB
"""The most that the messages of one publish may hold: names, data, client ids and extras."""
AGGREGATED_MESSAGE_BYTES = 512 * KIB
"""The most that appends may make of one message."""
NAME_BYTES = 512

if TYPE_CHECKING:
    Data: TypeAlias = str | bytes | None
else:
    # As it decodes no union of the two, though MessagePack tells them apart.
    Data = Any

# What can be put behind one another; the end of JSON or of a cipher is not where more can go on.
_PLAIN = (None, "utf-8")


class Action(IntEnum):
    """What a message is about."""

    CREATE = 0
    UPDATE = 1
    DELETE = 2
    META = 3
    SUMMARY = 4
    APPEND = 5


class Publisher(Struct, frozen=True, kw_only=True):
    """Who asks. The client id `*` may take any; none is nobody's.

    A frame, named by its connection and number, is done once, however often it comes. `own_only`: other
    people's messages may not be changed.
    """

    client_id: str | None = None
    connection_id: str | None = None
    msg_serial: int | None = None
    own_only: bool = False

    def resolve_client_id(self, given: str | None) -> str | None:
        """The client id of something that says it is from `given`."""
        if given is not None and (given in {"", "*"} or bytes_of(given) > NAME_BYTES):
            raise ChannelError(40012, "not a client id")
        if self.client_id == "*" or given in (None, self.client_id):
            return given if self.client_id == "*" else self.client_id
        raise ChannelError(40012, "a client id that is not the caller's")


class MessageOperation(Struct, frozen=True, rename="camel"):
    """What a client says about an edit."""

    client_id: str | None = None
    description: str | None = None
    metadata: dict[str, str] | None = None


class MessageDraft(Struct, frozen=True, kw_only=True, rename="camel"):
    """A message as a client sends it; one that is not new names the serial of the message it changes."""

    action: Action = Action.CREATE
    serial: str | None = None
    id: str | None = None
    name: str | None = None
    data: Data = None
    encoding: str | None = None
    extras: dict[str, Any] | None = None
    client_id: str | None = None
    version: MessageOperation | None = None


class MessageVersion(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """One state of a message: the higher serial is the later one."""

    serial: str
    timestamp: int
    client_id: str | None = None
    description: str | None = None
    metadata: dict[str, str] | None = None


class Annotations(Struct, frozen=True):
    """What the annotations of a message add up to, by type."""

    summary: Any


class Message(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """A message as a channel keeps and delivers it. `timestamp` and `client_id` are its first version's."""

    action: Action
    serial: str
    timestamp: int
    version: MessageVersion
    id: str | None = None
    name: str | None = None
    data: Data = None
    encoding: str | None = None
    extras: dict[str, Any] | None = None
    client_id: str | None = None
    connection_id: str | None = None
    annotations: Annotations | None = None

    @property
    def text(self) -> str | None:
        """Its data, where that is plain text."""
        return self.data if isinstance(self.data, str) and self.encoding in _PLAIN else None

    def as_summary(self, summary: Any) -> Message:
        """What tells of a new summary: all that is small."""
        return replace(
            self,
            action=Action.SUMMARY,
            data=None,
            encoding=None,
            extras=None,
            annotations=Annotations(summary),
        )


def bytes_of(*values: Any) -> int:
    """How much of the room of a message these take; what has no form on the wire is refused."""
    try:
        return sum(map(_bytes, values))
    except (TypeError, ValueError, OverflowError, RecursionError) as exc:
        raise ChannelError(40013, f"data that cannot be kept: {exc}") from exc


def _bytes(value: Any) -> int:
    match value:
        case None:
            return 0
        case str():
            return len(value.encode())
        case bytes():
            return len(value)
        case _:
            return len(msgspec.msgpack.encode(value))


def check_message_drafts(drafts: Sequence[MessageDraft]) -> None:
    """Refuse what is too large, and ids that do not go together."""
    size = 0
    for draft in drafts:
        about = draft.version or MessageOperation()
        size += bytes_of(draft.name, draft.data, draft.client_id, draft.extras)
        size += bytes_of(about.client_id, about.description, about.metadata)
        bytes_of(draft.encoding)
    if size > PUBLISH_BYTES:
        raise ChannelError(40009, f"more than {PUBLISH_BYTES // KIB} KiB in one publish")
    check_ids([draft.id for draft in drafts])


def check_ids(ids: list[str | None]) -> None:
    """Several have ids `<base>:<index>`, or none has one."""
    given = [each for each in ids if each is not None]
    if any(not 1 <= bytes_of(each) <= NAME_BYTES for each in given):
        raise ChannelError(40031, f"an id has 1 to {NAME_BYTES} bytes")
    if len(ids) > 1 and given:
        base = given[0].rpartition(":")[0]
        if ids != [f"{base}:{at}" for at in range(len(ids))]:
            raise ChannelError(40031, "the ids of several are base:0, base:1, and so on")


def apply_edit(before: Message, draft: MessageDraft, version: MessageVersion) -> Message:
    """The message as subscribers get it after an edit: of an append, only what is new.

    What the draft does not give stays as it was.
    """
    data, encoding = (before.data, before.encoding) if draft.data is None else (draft.data, draft.encoding)
    return replace(
        before,
        action=draft.action,
        version=version,
        name=before.name if draft.name is None else draft.name,
        data=data,
        encoding=encoding,
        extras=before.extras if draft.extras is None else draft.extras,
    )


def merge_delivered(before: Message | None, delivered: Message) -> Message:
    """The message as it stands after this was delivered."""
    if before is None or delivered.action is not Action.APPEND:
        return replace(delivered, annotations=None)
    return replace(delivered, action=Action.UPDATE, data=_joined(before, delivered), annotations=None)


def _joined(before: Message, more: Message) -> str | bytes:
    if before.encoding in _PLAIN and more.encoding in _PLAIN:
        match before.data, more.data:
            case str() as text, str() as end:
                return _whole(text + end)
            case bytes() as data, bytes() as end:
                return _whole(data + end)
            case None, str() | bytes() as end:
                return end
            case _:
                pass
    raise ChannelError(40013, "only text can be appended to text, and bytes to bytes")


def _whole(data: str | bytes) -> str | bytes:
    if bytes_of(data) > AGGREGATED_MESSAGE_BYTES:
        raise ChannelError(40009, f"a message of more than {AGGREGATED_MESSAGE_BYTES // KIB} KiB")
    return data
