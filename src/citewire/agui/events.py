"""The events of AG-UI 1.0, including retired ones, as frozen values.

`decode` accepts any JSON object with a `type` and loses no data: an unknown type becomes an `UnknownEvent`, a
known type with invalid fields a `MalformedEvent`, and unknown fields go into `extra`, each with its original
bytes. Anything else raises `EventError`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, TypeAlias, TypeGuard, cast

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from citewire import codec
from citewire.errors import DecodeError, InputError, OutputError
from citewire.text import one_line

if TYPE_CHECKING:
    from citewire.error_reports import ErrorReport

Json: TypeAlias = dict[str, Any]
_Text: TypeAlias = str | UnsetType
_Integer = Annotated[int, Meta(ge=-(2**53 - 1), le=2**53 - 1)]
# Never on the wire: `decode` reads an event with such a key field by field, and `encode` inlines the field.
_EXTRA = "citewire:extra"
TextRole = Literal["developer", "system", "assistant", "user"]


class EventError(InputError):
    """The value is not an event: not a JSON object, or one without a type."""

    code = "bad_event"


class Event(
    Struct,
    frozen=True,
    gc=False,
    kw_only=True,
    omit_defaults=True,
    forbid_unknown_fields=True,
    rename="camel",
    tag_field="type",
):
    """Fields that every event may have. `extra` holds the unknown fields, by name."""

    timestamp: _Integer | UnsetType = UNSET
    raw_event: Any = UNSET
    metadata: Json | UnsetType = UNSET
    extra: Mapping[str, Raw] | UnsetType = msgspec.field(default=UNSET, name=_EXTRA)

    @property
    def type(self) -> str:
        """The name on the wire."""
        return cast("str", self.__struct_config__.tag)


class AttributedEvent(Event, frozen=True, gc=False, kw_only=True):
    """An event that may come from a subagent."""

    subagent_run_id: str | UnsetType = UNSET


class RunStarted(Event, frozen=True, gc=False, tag="RUN_STARTED"):
    thread_id: str
    run_id: str
    protocol_version: _Text = UNSET
    parent_run_id: _Text = UNSET
    input: Json | UnsetType = UNSET


class RunFinished(Event, frozen=True, gc=False, tag="RUN_FINISHED"):
    thread_id: str
    run_id: str
    result: Any = UNSET
    outcome: Json | UnsetType | None = UNSET
    usage: list[Any] | UnsetType = UNSET


class RunError(Event, frozen=True, gc=False, tag="RUN_ERROR"):
    message: str
    code: _Text = UNSET
    usage: list[Any] | UnsetType = UNSET


class StepStarted(AttributedEvent, frozen=True, gc=False, tag="STEP_STARTED"):
    step_name: str


class StepFinished(AttributedEvent, frozen=True, gc=False, tag="STEP_FINISHED"):
    step_name: str


class TextMessageStart(AttributedEvent, frozen=True, gc=False, tag="TEXT_MESSAGE_START"):
    message_id: str
    role: TextRole | UnsetType = UNSET
    name: _Text = UNSET


class TextMessageContent(AttributedEvent, frozen=True, gc=False, tag="TEXT_MESSAGE_CONTENT"):
    message_id: str
    delta: str


class TextMessageEnd(AttributedEvent, frozen=True, gc=False, tag="TEXT_MESSAGE_END"):
    message_id: str


class TextMessageChunk(AttributedEvent, frozen=True, gc=False, tag="TEXT_MESSAGE_CHUNK"):
    message_id: _Text = UNSET
    role: TextRole | UnsetType = UNSET
    delta: _Text = UNSET
    name: _Text = UNSET


class ToolCallStart(AttributedEvent, frozen=True, gc=False, tag="TOOL_CALL_START"):
    tool_call_id: str
    tool_call_name: str
    parent_message_id: str | UnsetType | None = UNSET


class ToolCallArgs(AttributedEvent, frozen=True, gc=False, tag="TOOL_CALL_ARGS"):
    tool_call_id: str
    delta: str


class ToolCallEnd(AttributedEvent, frozen=True, gc=False, tag="TOOL_CALL_END"):
    tool_call_id: str


class ToolCallChunk(AttributedEvent, frozen=True, gc=False, tag="TOOL_CALL_CHUNK"):
    tool_call_id: _Text = UNSET
    tool_call_name: _Text = UNSET
    parent_message_id: str | UnsetType | None = UNSET
    delta: _Text = UNSET


class ToolCallResult(AttributedEvent, frozen=True, gc=False, tag="TOOL_CALL_RESULT"):
    message_id: str
    tool_call_id: str
    content: str | list[Any]
    role: Literal["tool"] | UnsetType = UNSET


class StateSnapshot(AttributedEvent, frozen=True, gc=False, tag="STATE_SNAPSHOT"):
    snapshot: Any


class StateDelta(AttributedEvent, frozen=True, gc=False, tag="STATE_DELTA"):
    delta: list[Any]


class MessagesSnapshot(Event, frozen=True, gc=False, tag="MESSAGES_SNAPSHOT"):
    messages: list[Any]


class ActivitySnapshot(AttributedEvent, frozen=True, gc=False, tag="ACTIVITY_SNAPSHOT"):
    message_id: str
    activity_type: str
    content: Json
    replace: bool | UnsetType = UNSET


class ActivityDelta(AttributedEvent, frozen=True, gc=False, tag="ACTIVITY_DELTA"):
    message_id: str
    activity_type: str
    patch: list[Any]


class RawEvent(AttributedEvent, frozen=True, gc=False, tag="RAW"):
    event: Any
    source: _Text = UNSET


class Custom(AttributedEvent, frozen=True, gc=False, tag="CUSTOM"):
    name: str
    value: Any


class ReasoningStart(AttributedEvent, frozen=True, gc=False, tag="REASONING_START"):
    message_id: str


class ReasoningMessageStart(AttributedEvent, frozen=True, gc=False, tag="REASONING_MESSAGE_START"):
    message_id: str
    role: Literal["reasoning"]


class ReasoningMessageContent(AttributedEvent, frozen=True, gc=False, tag="REASONING_MESSAGE_CONTENT"):
    message_id: str
    delta: str


class ReasoningMessageEnd(AttributedEvent, frozen=True, gc=False, tag="REASONING_MESSAGE_END"):
    message_id: str


class ReasoningMessageChunk(AttributedEvent, frozen=True, gc=False, tag="REASONING_MESSAGE_CHUNK"):
    message_id: _Text = UNSET
    delta: _Text = UNSET


class ReasoningEnd(AttributedEvent, frozen=True, gc=False, tag="REASONING_END"):
    message_id: str


class ReasoningEncryptedValue(AttributedEvent, frozen=True, gc=False, tag="REASONING_ENCRYPTED_VALUE"):
    subtype: Literal["tool-call", "message"]
    entity_id: str
    encrypted_value: str


class SubagentStarted(Event, frozen=True, gc=False, tag="SUBAGENT_STARTED"):
    subagent_run_id: str
    name: str
    description: _Text = UNSET
    parent_subagent_run_id: _Text = UNSET
    parent_tool_call_id: _Text = UNSET
    parent_message_id: _Text = UNSET


class SubagentFinished(Event, frozen=True, gc=False, tag="SUBAGENT_FINISHED"):
    subagent_run_id: str
    result: Any = UNSET
    outcome: Json | UnsetType = UNSET


class SubagentError(Event, frozen=True, gc=False, tag="SUBAGENT_ERROR"):
    subagent_run_id: str
    message: str
    code: _Text = UNSET


class ThinkingStart(AttributedEvent, frozen=True, gc=False, tag="THINKING_START"):
    """Retired, like the four below: protocol 1.0 calls thinking reasoning."""

    title: Any = UNSET


class ThinkingTextMessageStart(AttributedEvent, frozen=True, gc=False, tag="THINKING_TEXT_MESSAGE_START"):
    pass


class ThinkingTextMessageContent(AttributedEvent, frozen=True, gc=False, tag="THINKING_TEXT_MESSAGE_CONTENT"):
    delta: str


class ThinkingTextMessageEnd(AttributedEvent, frozen=True, gc=False, tag="THINKING_TEXT_MESSAGE_END"):
    pass


class ThinkingEnd(AttributedEvent, frozen=True, gc=False, tag="THINKING_END"):
    pass


class UnknownEvent(Struct, frozen=True, gc=False):
    """An event whose type is in neither protocol 1.0 nor an earlier one, as received."""

    type: str
    raw: bytes


class MalformedEvent(Struct, frozen=True, gc=False):
    """An event of a known type with a missing or invalid field, as received."""

    type: str
    fields: Json
    reason: str
    raw: bytes


AnyEvent: TypeAlias = Event | UnknownEvent | MalformedEvent


def _leaves(base: type[Event]) -> list[type[Event]]:
    below = [leaf for kind in base.__subclasses__() for leaf in _leaves(kind)]
    return below if base in (Event, AttributedEvent) else [base]


TYPES: Mapping[str, type[Event]] = {str(kind.__struct_config__.tag): kind for kind in _leaves(Event)}
"""Every event class by its name on the wire."""

_Typed: Any = TYPES["RUN_STARTED"]
for _kind in TYPES.values():
    _Typed = _Typed | _kind
_typed_decoder: msgspec.json.Decoder[Event] = msgspec.json.Decoder(_Typed)
_fields_decoder = msgspec.json.Decoder(dict[str, Raw])
_encoder = msgspec.json.Encoder()


decode_plain = _typed_decoder.decode
"""Decode an event without unknown or invalid fields; raises PLAIN_ERRORS for any other.

A result with `extra` was not a plain event either: the peer used our reserved name.
"""
PLAIN_ERRORS = (msgspec.MsgspecError, UnicodeError, RecursionError)


def decode(data: bytes | str) -> AnyEvent:
    """Decode one event from a JSON object. Raises `EventError` or `DecodeError` if there is none."""
    try:
        event = decode_plain(data)
    except PLAIN_ERRORS:
        return _decode_with_care(data)
    return _decode_with_care(data) if event.extra else event


# A tuple: `isinstance` is several times faster with it than with a union.
_EVENTS = (Event, UnknownEvent, MalformedEvent)
_NO_JSON = "the event has no JSON form"


def coerce(value: object) -> AnyEvent:
    """Convert `value` to an event: an event, JSON as bytes, text or a dict, or a model of ag-ui-protocol."""
    if isinstance(value, _EVENTS):
        return value
    if isinstance(value, bytes | str):
        return decode(value)
    if isinstance(value, dict):
        return from_dict(cast("Json", value))
    if callable(dump := getattr(value, "model_dump_json", None)):
        try:
            return decode(cast("str", dump(by_alias=True)))
        except (ValueError, TypeError, AttributeError) as exc:
            raise EventError("the event is a model that has no JSON form", detail=exc) from exc
    raise EventError(f"{one_line(type(value).__name__, 80)} is not an event")


def from_dict(fields: Json) -> AnyEvent:
    """Build an event from a dict of its fields, named as on the wire."""
    return decode(write_json(fields))


def encode(event: AnyEvent) -> bytes:
    """Encode `event` as JSON. Unknown fields and unknown events keep their original bytes."""
    if not isinstance(event, Event):
        return event.raw
    if not event.extra:
        return _encode(event)
    known = _encode(msgspec.structs.replace(event, extra=UNSET))
    more = (b"%b:%b" % (write_json(name), bytes(raw)) for name, raw in event.extra.items())
    return b"%b,%b}" % (known[:-1], b",".join(more))


def _encode(event: Event) -> bytes:
    try:
        return _encoder.encode(event)
    except UnicodeError:
        return _escaped(msgspec.to_builtins(event))
    except (RecursionError, TypeError, ValueError, OverflowError) as exc:
        raise OutputError(_NO_JSON, detail=exc) from exc


def to_run_error(report: ErrorReport) -> RunError:
    """Build the RUN_ERROR event for an error report; the error id is in its message and metadata."""
    return RunError(report.message, report.code, metadata=report.metadata or UNSET)


def to_dict(event: AnyEvent) -> Json:
    """Convert `event` to plain JSON values, named as on the wire."""
    if isinstance(event, MalformedEvent):
        return event.fields
    return cast("Json", codec.decode_with_surrogates(encode(event)))


def to_model(event: AnyEvent) -> Any:
    """Convert `event` to a model of the ag-ui-protocol package, which must be installed.

    Raises `EventError` for events without a model: unknown and retired types, malformed fields.
    """
    from ag_ui.core import Event as Models  # noqa: PLC0415  # a peer that citewire does not need
    from pydantic import TypeAdapter, ValidationError  # noqa: PLC0415  # it comes with the peer

    try:
        return TypeAdapter[Any](Models).validate_json(encode(event))
    except ValidationError as exc:
        why = exc.errors()[0]["msg"]
        raise EventError(f"ag-ui-protocol takes no such {event.type}", detail=why) from exc


def is_typed(event: AnyEvent) -> TypeGuard[Event]:
    """Whether the type of `event` is known and its fields are valid."""
    return isinstance(event, Event)


def _decode_with_care(data: bytes | str) -> AnyEvent:
    """Decode an event that the typed decoder refused, field by field."""
    # A lone surrogate in text becomes a JSON escape.
    raw = data if isinstance(data, bytes) else data.encode("utf-8", "backslashreplace")
    _check_utf8(raw)
    fields = _fields(raw)
    name = codec.decode_with_surrogates(bytes(fields["type"])) if "type" in fields else None
    if not isinstance(name, str) or not name:
        raise EventError("an event has a type, which is a string", "$.type")
    kind = TYPES.get(name)
    if kind is None:
        return UnknownEvent(name, raw)
    return _typed(kind, fields, raw)


def _typed(kind: type[Event], fields: dict[str, Raw], raw: bytes) -> AnyEvent:
    known = _WIRE_NAMES[kind]
    values = {
        name: codec.decode_with_surrogates(bytes(value)) for name, value in fields.items() if name in known
    }
    stamp = values.get("timestamp")
    if isinstance(stamp, float) and stamp.is_integer():
        values["timestamp"] = int(stamp)  # JSON does not distinguish 1.0 from 1
    try:
        event = msgspec.convert(values, kind)
    except (msgspec.ValidationError, UnicodeError) as exc:
        return MalformedEvent(
            str(kind.__struct_config__.tag), cast("Json", codec.decode_with_surrogates(raw)), str(exc), raw
        )
    extra = {name: value for name, value in fields.items() if name not in known and name != "type"}
    return msgspec.structs.replace(event, extra=extra) if extra else event


_WIRE_NAMES: Mapping[type[Event], frozenset[str]] = {
    kind: frozenset(kind.__struct_encode_fields__) - {_EXTRA} for kind in TYPES.values()
}


def _check_utf8(raw: bytes) -> None:
    """Raise `DecodeError` for invalid UTF-8. Original bytes that are stored are not checked again."""
    try:
        raw.decode()
    except UnicodeDecodeError as exc:
        raise DecodeError(f"not UTF-8 at byte {exc.start}") from exc


def _fields(raw: bytes) -> dict[str, Raw]:
    try:
        return _fields_decoder.decode(raw)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        whole = codec.decode_with_surrogates(raw)
    if not isinstance(whole, dict):
        raise EventError("an event is a JSON object")
    return {name: Raw(_escaped(value)) for name, value in cast("Json", whole).items()}


def write_json(value: Any) -> bytes:
    """Encode `value` as JSON. A lone surrogate becomes an escape."""
    try:
        return codec.encode(value)
    except OutputError:
        return _escaped(msgspec.to_builtins(value, enc_hook=_no_json))


def _no_json(value: object) -> Any:
    raise OutputError(f"a {type(value).__name__} has no JSON form")


def _escaped(value: Any) -> bytes:
    """Encode as ASCII JSON, the only form that can hold lone surrogates."""
    try:
        return json.dumps(value, separators=(",", ":"), allow_nan=False).encode()
    except (TypeError, ValueError, RecursionError) as exc:
        raise OutputError(_NO_JSON, detail=exc) from exc


class RunInput(Struct, frozen=True, kw_only=True, rename="camel"):
    """The input that a client sends to start a run. Lists are always sent: older agents require them."""

    PROTOCOL: ClassVar[str] = "1.0"

    thread_id: str
    run_id: str
    messages: list[Any] = msgspec.field(default_factory=list[Any])
    state: Any = msgspec.field(default_factory=dict[str, Any])
    tools: list[Any] = msgspec.field(default_factory=list[Any])
    context: list[Any] = msgspec.field(default_factory=list[Any])
    forwarded_props: Any = msgspec.field(default_factory=dict[str, Any])
    resume: list[Any] | UnsetType = UNSET
    protocol_version: str | UnsetType = PROTOCOL
    parent_run_id: _Text = UNSET
