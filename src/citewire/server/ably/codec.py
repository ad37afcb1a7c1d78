"""Frames of Ably's protocol, as of ably-js 2.28 and ably-python 3.1: JSON as text, msgpack as bytes.

Data comes with an `encoding`, the list of transformations applied to it. Only msgpack has a type for bytes;
JSON carries them as base64, the last entry of the encoding. All other entries are left to the clients.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Mapping, Sequence
from enum import IntEnum, IntFlag
from typing import Any, Generic, TypeAlias, TypeVar, cast

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from citewire import codec
from citewire.channels.annotation import Annotation, AnnotationAction, AnnotationDraft
from citewire.channels.message import Action, Message, MessageDraft, MessageOperation
from citewire.errors import DecodeError, OutputError
from citewire.server.ably.errors import AblyError, ErrorInfo

__all__ = [
    "AblyFrame", "AuthDetails", "ConnectionDetails", "Flag", "FrameAction", "InboundFrame", "MODES",
    "PublishResult", "Wire", "WireReader", "encode_body", "read_connection_key", "read_drafts", "read_frame",
    "read_notes", "sendable", "write_frame",
]  # fmt: skip

Wire: TypeAlias = str | bytes
"""A frame as a WebSocket carries it: text is JSON, bytes are msgpack."""
_Sent = TypeVar("_Sent", bound=Message | Annotation)
_T = TypeVar("_T")


class FrameAction(IntEnum):
    """The action number of a protocol frame."""

    HEARTBEAT = 0
    ACK = 1
    NACK = 2
    CONNECT = 3
    CONNECTED = 4
    DISCONNECT = 5
    DISCONNECTED = 6
    CLOSE = 7
    CLOSED = 8
    ERROR = 9
    ATTACH = 10
    ATTACHED = 11
    DETACH = 12
    DETACHED = 13
    PRESENCE = 14
    MESSAGE = 15
    SYNC = 16
    AUTH = 17
    ANNOTATION = 21


class Flag(IntFlag):
    """Flags and modes of ATTACH and ATTACHED."""

    HAS_BACKLOG = 1 << 1
    RESUMED = 1 << 2
    ATTACH_RESUME = 1 << 5
    PRESENCE = 1 << 16
    PUBLISH = 1 << 17
    SUBSCRIBE = 1 << 18
    PRESENCE_SUBSCRIBE = 1 << 19
    ANNOTATION_PUBLISH = 1 << 21
    ANNOTATION_SUBSCRIBE = 1 << 22


MODES = (
    Flag.PRESENCE
    | Flag.PUBLISH
    | Flag.SUBSCRIBE
    | Flag.PRESENCE_SUBSCRIBE
    | Flag.ANNOTATION_PUBLISH
    | Flag.ANNOTATION_SUBSCRIBE
)


class AuthDetails(Struct, frozen=True, rename="camel"):
    """The new token in an AUTH frame."""

    access_token: str | None = None


class InboundFrame(Struct, frozen=True, rename="camel"):
    """A frame from a client. Messages and annotations are decoded later, once the action is known."""

    action: int
    id: str | None = None
    channel: str | None = None
    channel_serial: str | None = None
    msg_serial: int | None = None
    flags: int | None = None
    params: dict[str, Any] | None = None
    messages: Raw = Raw()
    annotations: Raw = Raw()
    auth: AuthDetails | None = None


class ConnectionDetails(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """Details of a connection, sent in CONNECTED. Times are in milliseconds."""

    connection_key: str
    max_message_size: int
    max_frame_size: int
    connection_state_ttl: int
    max_idle_interval: int
    client_id: str | None = None


class PublishResult(Struct, frozen=True):
    """The serials assigned to the items of one acknowledged frame."""

    serials: Sequence[str]


class AblyFrame(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """A frame sent to a client."""

    action: FrameAction
    id: str | None = None
    channel: str | None = None
    channel_serial: str | None = None
    connection_id: str | None = None
    connection_details: ConnectionDetails | None = None
    msg_serial: int | None = None
    count: int | None = None
    flags: int | None = None
    error: ErrorInfo | None = None
    params: Mapping[str, str] | None = None
    messages: Sequence[Message] | None = None
    annotations: Sequence[Annotation] | None = None
    res: Sequence[PublishResult] | None = None


class _Message(Struct, frozen=True, kw_only=True, rename="camel"):
    """A `MessageDraft` with its data still undecoded."""

    action: Action | None = None
    serial: str | None = None
    id: str | None = None
    name: str | None = None
    data: Any = None
    encoding: str | None = None
    extras: dict[str, Any] | None = None
    client_id: str | None = None
    version: MessageOperation | None = None
    connection_key: str | None = None


class _Annotation(Struct, frozen=True, kw_only=True, rename="camel"):
    """An `AnnotationDraft` with its data still undecoded."""

    type: str
    message_serial: str | None = None
    action: AnnotationAction | None = None
    id: str | None = None
    name: str | None = None
    count: int | None = None
    data: Any = None
    encoding: str | None = None
    extras: dict[str, Any] | None = None
    client_id: str | None = None


class WireReader(Generic[_T]):
    """Decodes values of one type from msgpack or JSON."""

    def __init__(self, kind: Any) -> None:
        self._json, self._msgpack = msgspec.json.Decoder(kind), msgspec.msgpack.Decoder(kind)

    def __call__(self, data: bytes | str | Raw, *, packed: bool) -> _T:
        """Decode `data`. Raises `AblyError`."""
        try:
            return (self._msgpack if packed else self._json).decode(data)  # pyright: ignore[reportArgumentType]  # text is JSON
        except (msgspec.MsgspecError, UnicodeError, RecursionError) as exc:
            raise AblyError(40000, f"not what was expected: {exc}") from exc


_inbound = WireReader[InboundFrame](InboundFrame)
_HALF = Raw(b"half a character")
# Clients send a single item or a list.
_messages = WireReader["list[_Message] | _Message | None"](list[_Message] | _Message | None)
_annotations = WireReader["list[_Annotation] | _Annotation | None"](list[_Annotation] | _Annotation | None)


def read_frame(data: Wire) -> InboundFrame:
    """Decode a frame from a client. Raises `AblyError`."""
    try:
        return _inbound(data, packed=isinstance(data, bytes))
    except AblyError:
        if isinstance(data, str) and (frame := _around_half(data)):
            return frame
        raise


def _around_half(text: str) -> InboundFrame | None:
    """Read a frame that contains a lone surrogate, as cut streamed text can. Only its content is refused."""
    try:
        whole = codec.decode_with_surrogates(text.encode("utf-8", "surrogatepass"))
        frame = {name: whole[name] for name in ("action", "channel", "msgSerial")}
        return replace(msgspec.convert(frame, InboundFrame), messages=_HALF, annotations=_HALF)
    except (DecodeError, LookupError, TypeError, msgspec.ValidationError):
        return None


def _listed(reader: WireReader[list[_T] | _T | None], data: bytes | Raw, is_packed: bool) -> Sequence[_T]:
    if data is _HALF:
        raise AblyError(40013, "text that was cut within a pair of surrogates")
    found = reader(data, packed=is_packed) if data else None
    if found is None:
        return ()
    return cast("list[_T]", found) if isinstance(found, list) else (found,)


def read_drafts(data: bytes | Raw, *, packed: bool) -> tuple[MessageDraft, ...]:
    """Decode the messages a client sent. Raises `AblyError`."""
    return tuple(map(_draft, _listed(_messages, data, packed)))


def read_connection_key(data: bytes, *, packed: bool) -> str | None:
    """Return the key of the connection on whose behalf messages are published over REST, if any."""
    return next((each.connection_key for each in _listed(_messages, data, packed)), None)


def read_notes(data: bytes | Raw, *, packed: bool, about: str | None = None) -> tuple[AnnotationDraft, ...]:
    """Decode the annotations a client sent. `about`, if given, is the serial of their message."""
    return tuple(_note(each, about) for each in _listed(_annotations, data, packed))


def _draft(given: _Message) -> MessageDraft:
    data, encoding = _data(given.data, given.encoding)
    return MessageDraft(
        action=given.action or Action.CREATE,
        serial=given.serial,
        id=given.id,
        name=given.name,
        data=data,
        encoding=encoding,
        extras=_extras(given.extras),
        client_id=given.client_id,
        version=given.version,
    )


def _note(given: _Annotation, about: str | None) -> AnnotationDraft:
    data, encoding = _data(given.data, given.encoding)
    return AnnotationDraft(
        message_serial=about or given.message_serial or "",
        type=given.type,
        action=given.action or AnnotationAction.CREATE,
        id=given.id,
        name=given.name,
        count=given.count,
        data=data,
        encoding=encoding,
        extras=_extras(given.extras),
        client_id=given.client_id,
    )


def _data(data: Any, encoding: str | None) -> tuple[str | bytes | None, str | None]:
    """Normalize data for storage: base64 is decoded to bytes; objects and lists are encoded as JSON."""
    before, _, last = (encoding or "").rpartition("/")
    match data:
        case str() if last == "base64":
            try:
                return b64decode(data, validate=True), before or None
            except ValueError as exc:
                raise AblyError(40013, "data that is not the base64 it is said to be") from exc
        case None | str() | bytes():
            return data, encoding or None
        case dict() | list() if not encoding:
            return _json(data).decode(), "json"
        case _:
            raise AblyError(40013, "data is text, bytes, an object or a list")


def _extras(extras: dict[str, Any] | None) -> dict[str, Any] | None:
    """Refuse extras that JSON cannot express: a msgpack publisher may have JSON subscribers."""
    if extras is not None:
        _json(extras)
    return extras


def _json(value: Any) -> bytes:
    try:
        return codec.encode(value)
    except OutputError as exc:
        raise AblyError(40013, f"data that cannot be kept: {exc.message}") from exc


def sendable(item: _Sent, *, packed: bool) -> _Sent:
    """Return a message or annotation ready for a JSON or msgpack frame."""
    if packed or not isinstance(item.data, bytes):
        return item
    # The JSON encoder writes bytes as base64.
    return replace(item, encoding=f"{item.encoding}/base64" if item.encoding else "base64")


def write_frame(frame: AblyFrame, *, packed: bool) -> Wire:
    """Encode a frame."""
    return msgspec.msgpack.encode(frame) if packed else codec.encode(frame).decode()


def encode_body(value: Any, *, packed: bool) -> bytes:
    """Encode a response body."""
    return msgspec.msgpack.encode(value) if packed else codec.encode(value)
