"""From the rows of a channel to its slots: what each row changes, and so what all of them add up to.

| slot | holds |
|---|---|
| `m:<serial>` | the message as it stands |
| `s:<serial>` | the summary of its annotations |
| `c:<serial>:<client>:<group>` | a client who counts in a group of that summary and is not named there |
| `x:<serial>:<client, type and name>` | the serial of the last delete of such citations |
| `i:<kind and id>`, `f:<frame>` | what became of an id or a frame; a repetition leaves no row |

Rows have ids by which they are found again: `m:<serial>:<version>` a version of a message, `p:<version>` an
append, `a:<message>:<serial>` an annotation. The clients and groups in keys are hashes, so that all fit.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from hashlib import sha256
from typing import TypeAlias

from msgspec import Raw, Struct, msgpack
from msgspec.structs import replace

from citewire.channels.annotation import Annotation, AnnotationAction, Note, step_of
from citewire.channels.message import Action, Annotations, Message, Who, kept
from citewire.channels.offsets import is_citation
from citewire.channels.store import Entry, Row, Values
from citewire.channels.summary import Hidden, Step, fold, method_of

__all__ = ["Annotated", "Event", "Posted", "entry_of", "event_of", "replay"]

MESSAGE, ANNOTATION = "message", "annotation"
SHOWN = 100
"""How many clients a group of a summary names, unless told otherwise (D7)."""

_Puts: TypeAlias = dict[str, bytes | None]


class Posted(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """A message as subscribers get it, and the frame it came in, if it did."""

    message: Message
    connection_id: str | None = None
    msg_serial: int | None = None


class Annotated(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """An annotation, the frame it came in, and the summary that it changed, if it did."""

    annotation: Annotation
    summary: Message | None = None
    connection_id: str | None = None
    msg_serial: int | None = None


Event: TypeAlias = Posted | Annotated

pack = msgpack.encode
_posted, _annotated = msgpack.Decoder(Posted), msgpack.Decoder(Annotated)
_message, _hidden = msgpack.Decoder(Message), msgpack.Decoder(Hidden)


def entry_of(event: Event) -> Entry:
    """The entry under which the log keeps an event."""
    if isinstance(event, Annotated):
        about = event.annotation
        return Entry(f"a:{about.message_serial}:{about.serial}", ANNOTATION, pack(event))
    serial, version = event.message.serial, event.message.version.serial
    name = f"p:{version}" if event.message.action is Action.APPEND else f"m:{serial}:{version}"
    return Entry(name, MESSAGE, pack(event))


def event_of(row: Row) -> Event:
    """The event that a row holds."""
    return (_annotated if row.kind == ANNOTATION else _posted).decode(row.data)


# A message is annotated many times between two changes of it; as many as are annotated at the same time.
@lru_cache(maxsize=32)
def message_of(value: bytes | None) -> Message | None:
    """The message in a slot."""
    return _message.decode(value) if value else None


def hidden_of(value: bytes | None) -> Hidden | None:
    """The hidden client in a slot."""
    return _hidden.decode(value) if value else None


def with_summary(message: Message, summary: bytes | None) -> Message:
    """The message with the summary in a slot, if there is one."""
    return replace(message, annotations=Annotations(msgpack.decode(summary))) if summary else message


def _digest(*parts: str | None) -> str:
    return sha256(pack(parts)).hexdigest()[:32]


def message_key(serial: str) -> str:
    """Where a message is."""
    return f"m:{serial}"


def summary_key(serial: str) -> str:
    """Where its summary is."""
    return f"s:{serial}"


def clients_key(serial: str, client_id: str | None) -> str:
    """What the keys of the groups begin with in which a client is hidden."""
    return f"c:{serial}:{_digest(client_id)}:"


class Effect(Struct, frozen=True):
    """What an annotation does to the summary of its message, and where its client is if hidden."""

    step: Step
    hidden: str


def effect_of(annotation: Note | Annotation) -> Effect | None:
    """Its effect; None where annotations of its type are not summarised."""
    step = step_of(annotation)
    if step is None:
        return None
    group = _digest(step.type, None if step.method.moves else step.name)
    return Effect(step, clients_key(annotation.message_serial, step.client_id) + group)


def deleted_key(annotation: Annotation) -> str:
    """Where it is said when its client last took back annotations as this one."""
    method = method_of(annotation.type)
    name = annotation.name if method is None or method.named else None
    return f"x:{annotation.message_serial}:{_digest(annotation.client_id, annotation.type, name)}"


def _takes_back(annotation: Annotation, effect: Effect | None) -> bool:
    """Whether it says that citations of its client are none; one less of a total does not say whose."""
    return (
        annotation.action is AnnotationAction.DELETE
        and is_citation(annotation.type)
        and (effect.step if effect else annotation).client_id is not None
    )


def id_key(kind: str, name: str) -> str:
    """Where it is said what became of an id."""
    return f"i:{_digest(kind, name)}"


def frame_key(who: Who) -> str | None:
    """Where it is said what became of the caller's frame, if it came in one."""
    if who.connection_id is None or who.msg_serial is None:
        return None
    return f"f:{_digest(who.connection_id, str(who.msg_serial))}"


def posted(before: Message | None, message: Message) -> _Puts:
    """The slots that a message changes, delivered after `before`."""
    return {message_key(message.serial): pack(kept(before, message))}


def annotated(
    values: Values, message: Message, annotation: Annotation, effect: Effect | None, shown: int
) -> _Puts:
    """The slots that an annotation of the message changes. A deleted message's summary stays as it is."""
    puts: _Puts = {}
    if _takes_back(annotation, effect):
        puts[deleted_key(annotation)] = annotation.serial.encode()
    if effect and message.action is not Action.DELETE:
        summary, before = summary_key(message.serial), values.get(effect.hidden)
        if folded := fold(values.get(summary), hidden_of(before), effect.step, shown):
            puts[summary] = folded.summary
            if before or folded.hidden:
                puts[effect.hidden] = pack(folded.hidden) if folded.hidden else None
    return puts


def summary_after(message: Message, puts: _Puts) -> Message | None:
    """What tells subscribers of the summary that these puts change, if they do."""
    summary = puts.get(summary_key(message.serial))
    return message.summarised(Raw(summary)) if summary else None


def replay(events: Iterable[Event], shown: int = SHOWN) -> dict[str, bytes]:
    """The slots that all these events leave, from the first one on."""
    slots: dict[str, bytes] = {}
    for event in events:
        for key, value in _changes(slots, event, shown).items():
            if value is None:
                slots.pop(key, None)
            else:
                slots[key] = value
    return slots


def _changes(slots: dict[str, bytes], event: Event, shown: int) -> _Puts:
    if isinstance(event, Posted):
        return posted(message_of(slots.get(message_key(event.message.serial))), event.message)
    message = _message.decode(slots[message_key(event.annotation.message_serial)])
    return annotated(slots, message, event.annotation, effect_of(event.annotation), shown)
