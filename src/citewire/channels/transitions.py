"""Turn published drafts into changes of a channel, decided on the slots at the time of the commit."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache, partial
from typing import TypeAlias

from msgspec import Struct, msgpack
from msgspec.structs import replace

from citewire.channels.annotation import Annotation, AnnotationDraft, check_annotation_drafts, check_step
from citewire.channels.errors import ChannelError
from citewire.channels.fold import (
    SERVER_CONNECTION_ID,
    AnnotationEvent,
    Effect,
    MessageEvent,
    apply_annotation,
    apply_message,
    effect_of,
    entry_of,
    frame_key,
    id_key,
    make_summary_message,
    message_key,
    message_of,
    pack,
    summary_key,
    with_summary,
)
from citewire.channels.message import (
    Action,
    Message,
    MessageDraft,
    MessageOperation,
    MessageVersion,
    Publisher,
    apply_edit,
    check_message_drafts,
)
from citewire.channels.offsets import ClaimedOffsets, check_offsets, is_citation, read_claimed_offsets
from citewire.channels.serial import serial_of, tick_of
from citewire.channels.store import Change, ChannelPosition, Entry, SlotValues
from citewire.errors import InputError

__all__ = [
    "AnnotateTransition",
    "PublishTransition",
    "make_annotate_transition",
    "make_publish_transition",
    "normalize_serial",
]

_EDITS = (Action.UPDATE, Action.DELETE, Action.APPEND)
_MOST = 1000
"""How many may come in one publish."""

_Serials: TypeAlias = tuple[str, ...]
_serials = msgpack.Decoder(tuple[str, ...])


# A message is annotated many times.
@lru_cache(maxsize=1024)
def normalize_serial(serial: str | None) -> str:
    """Return the serial in this server's form. Raises `ChannelError`."""
    try:
        return serial_of(*tick_of(serial or ""))
    except InputError as exc:
        raise ChannelError(40003, "not a serial of a message") from exc


class _ChangeBuilder:
    """Collects the rows and slots of one change, starting from the current slots."""

    def __init__(self, values: SlotValues, place: ChannelPosition) -> None:
        self.values = dict(values)
        self.puts: dict[str, bytes | None] = {}
        self.entries: list[Entry] = []
        self.place = place

    @property
    def serial(self) -> str:
        """The serial of the next row."""
        return self.place.serial(len(self.entries))

    @property
    def timestamp(self) -> int:
        """The timestamp of the next row."""
        return (self.place.tick + len(self.entries)) // 1000

    def put(self, puts: dict[str, bytes | None]) -> None:
        self.values |= puts
        self.puts |= puts

    def add(self, event: MessageEvent | AnnotationEvent) -> None:
        self.entries.append(entry_of(event))

    def add_once(self, key: str | None, do: Callable[[], None]) -> str:
        """Return the serial of the row that `do` adds, or added earlier according to the slot `key`."""
        if key and (before := self.values[key]):
            return before.decode()
        serial = self.serial
        do()
        if key:
            self.put({key: serial.encode()})
        return serial

    def message(self, serial: str) -> Message:
        found = message_of(self.values[message_key(serial)])
        if found is None:
            raise ChannelError(40400, "no message has this serial")
        return found

    def change(self, frame: str | None, serials: list[str]) -> Change[_Serials]:
        """Build the change; for a frame, also store the result for a repetition of the frame."""
        if frame and self.entries:
            self.puts[frame] = pack(serials)
        return Change(tuple(serials), self.entries, self.puts)


def _find_repeated_frame(values: SlotValues, frame: str | None) -> Change[_Serials] | None:
    """Return the result of the caller's frame if it was already processed."""
    before = values[frame] if frame else None
    return Change(_serials.decode(before)) if before else None


class _CheckedMessage(Struct, frozen=True):
    """A checked draft with its sender's client id; `id` is the default id of a new message.

    `key` is the slot with the result for the id that the sender gave.
    """

    draft: MessageDraft
    client_id: str | None
    id: str
    key: str | None

    def needs(self) -> Iterable[str]:
        """Yield the keys of the slots that it depends on."""
        if self.key:
            yield self.key
        if self.draft.serial is not None:
            yield message_key(self.draft.serial)
            yield summary_key(self.draft.serial)


class PublishTransition(Struct, frozen=True):
    """The decision about the messages of one publish."""

    who: Publisher
    frame: str | None
    posts: tuple[_CheckedMessage, ...]

    @property
    def edits(self) -> bool:
        """Whether it changes existing messages."""
        return any(post.draft.serial is not None for post in self.posts)

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys of the slots that it depends on."""
        return _keys(self.frame, self.posts)

    def __call__(self, values: SlotValues, place: ChannelPosition) -> Change[_Serials]:
        if known := _find_repeated_frame(values, self.frame):
            return known
        work = _ChangeBuilder(values, place)
        serials = [work.add_once(post.key, partial(self._post, work, post)) for post in self.posts]
        return work.change(self.frame, serials)

    def _post(self, work: _ChangeBuilder, post: _CheckedMessage) -> None:
        if post.draft.serial is None:
            message = self._created(work, post)
            work.put(apply_message(None, message))
        else:
            message = self._edited(work, post, post.draft.serial)
        work.add(MessageEvent(message, self.who.connection_id, self.who.msg_serial))

    def _created(self, work: _ChangeBuilder, post: _CheckedMessage) -> Message:
        draft, serial, timestamp = post.draft, work.serial, work.timestamp
        return Message(
            action=Action.CREATE,
            serial=serial,
            timestamp=timestamp,
            version=MessageVersion(serial, timestamp),
            id=draft.id or post.id,
            name=draft.name,
            data=draft.data,
            encoding=draft.encoding,
            extras=draft.extras,
            client_id=post.client_id,
            connection_id=self.who.connection_id,
        )

    def _edited(self, work: _ChangeBuilder, post: _CheckedMessage, serial: str) -> Message:
        before, about = work.message(serial), post.draft.version or MessageOperation()
        if before.connection_id == SERVER_CONNECTION_ID != self.who.connection_id:
            raise ChannelError(40160, "only the server changes its own messages")
        if self.who.own_only and (post.client_id is None or post.client_id != before.client_id):
            raise ChannelError(40160, "only messages of one's own may be changed")
        # Ably's clients expect it to be later than the message's timestamp, even within the same millisecond.
        timestamp = max(work.timestamp, before.timestamp + 1)
        version = MessageVersion(work.serial, timestamp, post.client_id, about.description, about.metadata)
        message = apply_edit(before, post.draft, version)
        work.put(apply_message(before, message))
        if message.action is Action.APPEND:
            return message
        return with_summary(message, work.values[summary_key(serial)])


def make_publish_transition(who: Publisher, drafts: Sequence[MessageDraft], base: str) -> PublishTransition:
    """Check the drafts and return the decision; new messages without an id get `base:0`, `base:1` …"""
    _check_count(drafts)
    settled = tuple(map(_normalize_draft, drafts))
    check_message_drafts(settled)
    posts = tuple(
        _CheckedMessage(
            draft, who.resolve_client_id(_sender(draft)), f"{base}:{at}", _id_key("message", draft.id, who)
        )
        for at, draft in enumerate(settled)
    )
    return PublishTransition(who, frame_key(who), posts)


def _id_key(kind: str, name: str | None, who: Publisher) -> str | None:
    return None if name is None else id_key(kind, name, who.connection_id)


def _normalize_draft(draft: MessageDraft) -> MessageDraft:
    """Remove fields without effect: a new message has no serial, and an edit takes its message's id."""
    if draft.action is Action.CREATE:
        return replace(draft, serial=None)
    if draft.action not in _EDITS:
        raise ChannelError(40000, "not an action that can be published")
    if draft.action is Action.APPEND and draft.data is None:
        raise ChannelError(40013, "nothing to append")
    return replace(draft, serial=normalize_serial(draft.serial), id=None)


def _sender(draft: MessageDraft) -> str | None:
    """Return the client id that a draft claims; an edit cannot change the message's first sender."""
    if draft.action is Action.CREATE:
        return draft.client_id
    return draft.version.client_id if draft.version else None


class _CheckedAnnotation(Struct, frozen=True):
    """A checked annotation draft with its sender's client id; `id` is its default id.

    `key` is the slot with the result for the id that the sender gave.
    """

    note: AnnotationDraft
    effect: Effect | None
    claim: ClaimedOffsets | None
    id: str
    key: str | None

    def needs(self) -> Iterable[str]:
        """Yield the keys of the slots that it depends on."""
        if self.key:
            yield self.key
        yield message_key(self.note.message_serial)
        yield summary_key(self.note.message_serial)
        if self.effect:
            yield self.effect.hidden


class AnnotateTransition(Struct, frozen=True):
    """The decision about the annotations of one publish."""

    who: Publisher
    frame: str | None
    remarks: tuple[_CheckedAnnotation, ...]
    shown: int

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys of the slots that it depends on."""
        return _keys(self.frame, self.remarks)

    def __call__(self, values: SlotValues, place: ChannelPosition) -> Change[_Serials]:
        if known := _find_repeated_frame(values, self.frame):
            return known
        work = _ChangeBuilder(values, place)
        serials = [
            work.add_once(remark.key, partial(self._annotate, work, remark)) for remark in self.remarks
        ]
        return work.change(self.frame, serials)

    def _annotate(self, work: _ChangeBuilder, remark: _CheckedAnnotation) -> None:
        message = work.message(remark.note.message_serial)
        self._check_sender(remark.note, message)
        annotation = self._annotation(work, remark, message)
        puts = apply_annotation(work.values, message, annotation, remark.effect, self.shown)
        work.put(puts)
        summary = make_summary_message(message, puts)
        work.add(AnnotationEvent(annotation, summary, self.who.connection_id, self.who.msg_serial))

    def _check_sender(self, note: AnnotationDraft, message: Message) -> None:
        """Refuse to create or delete a citation under the client id of one of the server's own answers."""
        is_answer = message.connection_id == SERVER_CONNECTION_ID != self.who.connection_id
        is_sender = note.client_id is not None and note.client_id == message.client_id
        if is_answer and is_sender and is_citation(note.type):
            raise ChannelError(40160, "only the server cites as the sender of its own message")

    def _annotation(self, work: _ChangeBuilder, remark: _CheckedAnnotation, message: Message) -> Annotation:
        note = remark.note
        return Annotation(
            action=note.action,
            serial=work.serial,
            message_serial=note.message_serial,
            type=note.type,
            timestamp=work.timestamp,
            id=note.id or remark.id,
            name=note.name,
            count=note.count,
            data=note.data,
            encoding=note.encoding,
            extras=note.extras,
            client_id=note.client_id,
            connection_id=self.who.connection_id,
            citewire=remark.claim and check_offsets(remark.claim, message),
        )


def make_annotate_transition(
    who: Publisher, notes: Sequence[AnnotationDraft], base: str, shown: int
) -> AnnotateTransition:
    """Check the drafts and return the decision; annotations without an id get `base:0`, `base:1` …"""
    _check_count(notes)
    check_annotation_drafts(notes)
    remarks = tuple(_check_annotation(who, note, f"{base}:{at}") for at, note in enumerate(notes))
    return AnnotateTransition(who, frame_key(who), remarks, shown)


def _check_annotation(who: Publisher, note: AnnotationDraft, name: str) -> _CheckedAnnotation:
    note = replace(
        note,
        message_serial=normalize_serial(note.message_serial),
        client_id=who.resolve_client_id(note.client_id),
    )
    if effect := effect_of(note):
        check_step(effect.step)
    claim = read_claimed_offsets(note.type, note.data, note.encoding)
    return _CheckedAnnotation(note, effect, claim, name, _id_key("annotation", note.id, who))


def _check_count(items: Sequence[object]) -> None:
    if not 1 <= len(items) <= _MOST:
        raise ChannelError(40000, f"1 to {_MOST} in one publish")


def _keys(frame: str | None, items: Iterable[_CheckedMessage | _CheckedAnnotation]) -> tuple[str, ...]:
    """Return the keys of the slots that these depend on, and that of their frame."""
    needed = (key for item in items for key in item.needs())
    return (frame, *needed) if frame else (*needed,)
