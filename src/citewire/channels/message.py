"""Messages: the draft that a client sends, the message that a channel stores, and the effect of an edit.

Field names and action numbers are those of Ably's wire format (spec TM2, TM5).
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
    # msgspec decodes no union of the two, though MessagePack distinguishes them.
    Data = Any

# Encodings that allow appending; data cannot be added to the end of JSON or of a cipher text.
_PLAIN = (None, "utf-8")


class Action(IntEnum):
    """The operation that a message reports."""

    CREATE = 0
    UPDATE = 1
    DELETE = 2
    META = 3
    SUMMARY = 4
    APPEND = 5


class Publisher(Struct, frozen=True, kw_only=True):
    """The caller of a publish. With client id `*` it may act as any client; with None it is anonymous.

    A frame, identified by its connection and number, is processed once, however often it is sent. With
    `own_only` the caller may not change other clients' messages.
    """

    client_id: str | None = None
    connection_id: str | None = None
    msg_serial: int | None = None
    own_only: bool = False

    def resolve_client_id(self, given: str | None) -> str | None:
        """Return the client id for an item that claims to be from `given`. Raises `ChannelError`."""
        if given is not None and (given in {"", "*"} or bytes_of(given) > NAME_BYTES):
            raise ChannelError(40012, "not a client id")
        if self.client_id == "*" or given in (None, self.client_id):
            return given if self.client_id == "*" else self.client_id
        raise ChannelError(40012, "a client id that is not the caller's")


class MessageOperation(Struct, frozen=True, rename="camel"):
    """The metadata that a client sends with an edit."""

    client_id: str | None = None
    description: str | None = None
    metadata: dict[str, str] | None = None


class MessageDraft(Struct, frozen=True, kw_only=True, rename="camel"):
    """A message as a client sends it; an edit names the serial of the message it changes."""

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
    """One version of a message; a higher serial is a later version."""

    serial: str
    timestamp: int
    client_id: str | None = None
    description: str | None = None
    metadata: dict[str, str] | None = None


class Annotations(Struct, frozen=True):
    """The summary of a message's annotations, by type."""

    summary: Any


class Message(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """A message as a channel stores and delivers it. `timestamp` and `client_id` are its first version's."""

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
        """The data, if it is plain text."""
        return self.data if isinstance(self.data, str) and self.encoding in _PLAIN else None

    def as_summary(self, summary: Any) -> Message:
        """Return the message that reports a new summary: without data and extras, to keep it small."""
        return replace(
            self,
            action=Action.SUMMARY,
            data=None,
            encoding=None,
            extras=None,
            annotations=Annotations(summary),
        )


def bytes_of(*values: Any) -> int:
    """Return the bytes that count towards a message's size. Raises `ChannelError` for unencodable values."""
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
    """Raise `ChannelError` for drafts that are too large or whose ids do not form one sequence."""
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
    """Check that several items have the ids `<base>:<index>`, or none of them has an id."""
    given = [each for each in ids if each is not None]
    if any(not 1 <= bytes_of(each) <= NAME_BYTES for each in given):
        raise ChannelError(40031, f"an id has 1 to {NAME_BYTES} bytes")
    if len(ids) > 1 and given:
        base = given[0].rpartition(":")[0]
        if ids != [f"{base}:{at}" for at in range(len(ids))]:
            raise ChannelError(40031, "the ids of several are base:0, base:1, and so on")


def apply_edit(before: Message, draft: MessageDraft, version: MessageVersion) -> Message:
    """Return the message that subscribers receive after an edit; for an append, only the new data.

    Fields that the draft does not set keep their values.
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
    """Return the current message after this one was delivered."""
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
