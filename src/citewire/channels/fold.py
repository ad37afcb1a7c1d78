"""Fold the rows of a channel into its slots: the changes of each row, and the state after all of them.

| slot | holds |
|---|---|
| `m:<serial>` | the current message |
| `s:<serial>` | the summary of its annotations |
| `c:<serial>:<client>:<group>` | a client that counts in a group of that summary but is not listed there |
| `x:<serial>:<client, type and name>` | the serial of the last delete of such citations |
| `v:<serial>:<citation>` | our verdict on a citation: the latest annotation that reported it |
| `i:<kind and id>`, `f:<frame>` | the result for an id or a frame; a repetition adds no row |
| `b:mark` | how far another log has been projected into this channel (see `projection_mark`) |

Rows have ids for lookup: `m:<serial>:<version>` is a version of a message, `p:<version>` an append,
`a:<message>:<serial>` an annotation. Clients and groups in keys are hashed, so that every key fits.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from hashlib import sha256
from typing import TypeAlias

from msgspec import Raw, Struct, msgpack
from msgspec.structs import replace

from citewire.channels.annotation import Annotation, AnnotationAction, AnnotationDraft, step_of
from citewire.channels.message import Action, Annotations, Message, Publisher, merge_delivered
from citewire.channels.offsets import decode_json_object, is_citation
from citewire.channels.store import Entry, Row, SlotValues
from citewire.channels.summary import HiddenClient, SummaryStep, fold_step, method_of

__all__ = ["AnnotationEvent", "ChannelEvent", "MessageEvent", "entry_of", "event_of", "replay"]

MESSAGE, ANNOTATION = "message", "annotation"
SERVER_CONNECTION_ID = "citewire"
"""The connection of what the server itself says: no client gets one of this name."""
VERDICT_TYPE = "verdicts:multiple.v1"
MAX_SHOWN_CLIENTS = 100
"""How many clients a group of a summary names, unless told otherwise (D7)."""

_Puts: TypeAlias = dict[str, bytes | None]


class MessageEvent(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """A message as subscribers receive it, and the frame that carried it, if any."""

    message: Message
    connection_id: str | None = None
    msg_serial: int | None = None


class AnnotationEvent(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """An annotation, the frame that carried it, and the summary that it changed, if any."""

    annotation: Annotation
    summary: Message | None = None
    connection_id: str | None = None
    msg_serial: int | None = None


class RawSummaryEvent(Struct, frozen=True, rename="camel"):
    """An `AnnotationEvent` with an undecoded summary: readers mostly need only the last one of a message."""

    annotation: Annotation
    summary: Raw = Raw()
    connection_id: str | None = None


ChannelEvent: TypeAlias = MessageEvent | AnnotationEvent

pack = msgpack.encode
_posted, _annotated = msgpack.Decoder(MessageEvent), msgpack.Decoder(AnnotationEvent)
_skimmed = msgpack.Decoder(RawSummaryEvent)
_message, _hidden = msgpack.Decoder(Message), msgpack.Decoder(HiddenClient)


def entry_of(event: ChannelEvent) -> Entry:
    """Return the log entry that stores an event."""
    if isinstance(event, AnnotationEvent):
        about = event.annotation
        return Entry(f"a:{about.message_serial}:{about.serial}", ANNOTATION, pack(event))
    serial, version = event.message.serial, event.message.version.serial
    name = f"p:{version}" if event.message.action is Action.APPEND else f"m:{serial}:{version}"
    return Entry(name, MESSAGE, pack(event))


def event_of(row: Row) -> ChannelEvent:
    """Decode the event in a row."""
    return (_annotated if row.kind == ANNOTATION else _posted).decode(row.data)


def decode_without_summary(row: Row) -> RawSummaryEvent:
    """Decode the annotation in a row and leave its summary undecoded."""
    return _skimmed.decode(row.data)


def decode_summary(annotated: RawSummaryEvent) -> Message:
    """Decode the summary message."""
    return _message.decode(annotated.summary)


# A message is annotated many times between two changes; the size is how many are annotated concurrently.
@lru_cache(maxsize=32)
def message_of(value: bytes | None) -> Message | None:
    """Decode the message in a slot."""
    return _message.decode(value) if value else None


def hidden_of(value: bytes | None) -> HiddenClient | None:
    """Decode the hidden client in a slot."""
    return _hidden.decode(value) if value else None


def with_summary(message: Message, summary: bytes | None) -> Message:
    """Return the message with the summary from a slot, if there is one."""
    return replace(message, annotations=Annotations(msgpack.decode(summary))) if summary else message


# A client annotates more than once, and names the same sources.
@lru_cache(maxsize=1024)
def _digest(*parts: str | None) -> str:
    return sha256(pack(parts)).hexdigest()[:32]


def message_key(serial: str) -> str:
    """Return the key of a message's slot."""
    return f"m:{serial}"


def summary_key(serial: str) -> str:
    """Return the key of a message's summary slot."""
    return f"s:{serial}"


def clients_key(serial: str, client_id: str | None) -> str:
    """Return the key prefix of the groups in which a client is hidden."""
    return f"c:{serial}:{_digest(client_id)}:"


class Effect(Struct, frozen=True):
    """The change that an annotation makes to its message's summary, and its client's slot key if hidden."""

    step: SummaryStep
    hidden: str


def effect_of(annotation: AnnotationDraft | Annotation) -> Effect | None:
    """Return the annotation's effect; None if annotations of its type are not summarised."""
    step = step_of(annotation)
    if step is None:
        return None
    group = _digest(step.type, None if step.method.moves else step.name)
    return Effect(step, clients_key(annotation.message_serial, step.client_id) + group)


def deleted_key(annotation: Annotation) -> str:
    """Return the key of the slot with the last time its client deleted annotations like this one."""
    method = method_of(annotation.type)
    name = annotation.name if method is None or method.named else None
    return f"x:{annotation.message_serial}:{_digest(annotation.client_id, annotation.type, name)}"


def verdict_key(annotation: Annotation) -> str | None:
    """Return the key of our verdict on a citation: by its serial, or by our own key if it is ours."""
    about = annotation.serial
    if annotation.connection_id == SERVER_CONNECTION_ID:
        about = decode_json_object(annotation.data, annotation.encoding).get("key")
    return _verdict_key(annotation.message_serial, about)


def own_verdict_key(annotation: Annotation) -> str | None:
    """Return the slot key of a verdict by the server; None for all else, also for other clients' verdicts."""
    if (
        annotation.connection_id != SERVER_CONNECTION_ID
        or annotation.type != VERDICT_TYPE
        or annotation.data is None
    ):
        return None
    data = decode_json_object(annotation.data, annotation.encoding)
    return _verdict_key(annotation.message_serial, data.get("annotation") or data.get("key"))


def _verdict_key(serial: str, about: object) -> str | None:
    return f"v:{serial}:{_digest(about)}" if isinstance(about, str) else None


def _takes_back(annotation: Annotation, effect: Effect | None) -> bool:
    """Tell whether it deletes citations of a known client; lowering a total does not say whose."""
    return (
        annotation.action is AnnotationAction.DELETE
        and is_citation(annotation.type)
        and (effect.step if effect else annotation).client_id is not None
    )


def id_key(kind: str, name: str, connection_id: str | None) -> str:
    """Return the key of the slot with the result for an id that a publisher gave.

    The server's ids are separate from those of clients: no client can take the id of an answer before the
    server uses it.
    """
    return f"i:{_digest(kind if connection_id == SERVER_CONNECTION_ID else f'client {kind}', name)}"


def frame_key(who: Publisher) -> str | None:
    """Return the key of the slot with the result for the caller's frame, if there is one."""
    if who.connection_id is None or who.msg_serial is None:
        return None
    # The frames of a connection sort together, so that a transaction writes few pages of the table.
    return f"f:{_digest(who.connection_id)}:{who.msg_serial}."


def find_slot_ranges(events: Sequence[ChannelEvent], serial: str) -> list[tuple[str, str]]:
    """Return the key ranges of the slots to delete with these events, the last of which has this serial.

    These are the slots of messages created up to then, and the results for the ids and frames of the events.
    """
    spans = [(f"{kind}:", f"{kind}:{serial};") for kind in "mscvx"]
    for event in events:
        item = event.message if isinstance(event, MessageEvent) else event.annotation
        kind = MESSAGE if isinstance(event, MessageEvent) else ANNOTATION
        who = Publisher(connection_id=event.connection_id, msg_serial=event.msg_serial)
        keys = (id_key(kind, item.id or "", event.connection_id), frame_key(who))
        # "!" sorts before every character that can follow, and no other key starts with `key[:-1]`.
        spans += [(key[:-1], f"{key}!") for key in keys if key]
    return spans


def apply_message(before: Message | None, message: Message) -> _Puts:
    """Return the slots that a message changes when it is delivered after `before`."""
    return {message_key(message.serial): pack(merge_delivered(before, message))}


def apply_annotation(
    values: SlotValues, message: Message, annotation: Annotation, effect: Effect | None, shown: int
) -> _Puts:
    """Return the slots that an annotation of the message changes. A deleted message keeps its summary."""
    puts: _Puts = {}
    if verdict := own_verdict_key(annotation):
        puts[verdict] = pack(annotation)
    if _takes_back(annotation, effect):
        puts[deleted_key(annotation)] = annotation.serial.encode()
    if effect and message.action is not Action.DELETE:
        summary, before = summary_key(message.serial), values.get(effect.hidden)
        if folded := fold_step(values.get(summary), hidden_of(before), effect.step, shown):
            puts[summary] = folded.summary
            if before or folded.hidden:
                puts[effect.hidden] = pack(folded.hidden) if folded.hidden else None
    return puts


def make_summary_message(message: Message, puts: _Puts) -> Message | None:
    """Return the message that reports the changed summary to subscribers; None if these puts change none."""
    summary = puts.get(summary_key(message.serial))
    return message.as_summary(Raw(summary)) if summary else None


def replay(events: Iterable[ChannelEvent], shown: int = MAX_SHOWN_CLIENTS) -> dict[str, bytes]:
    """Fold these events, starting with the first that still exists, and return the resulting slots."""
    slots: dict[str, bytes] = {}
    for event in events:
        for key, value in _changes(slots, event, shown).items():
            if value is None:
                slots.pop(key, None)
            else:
                slots[key] = value
    return slots


def _changes(slots: dict[str, bytes], event: ChannelEvent, shown: int) -> _Puts:
    is_post = isinstance(event, MessageEvent)
    serial = event.message.serial if is_post else event.annotation.message_serial
    message = message_of(slots.get(message_key(serial)))
    if is_post and (message or event.message.action is Action.CREATE):
        return apply_message(message, event.message)
    if is_post or message is None:
        return {}  # Its message was deleted with earlier rows.
    return apply_annotation(slots, message, event.annotation, effect_of(event.annotation), shown)
