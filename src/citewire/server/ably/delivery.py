"""Turn a channel's rows into frames, each encoded once and shared by all subscribers.

Consecutive rows of one kind share a frame. Of several summaries of one message only the last is sent. A
frame's serial is a cursor: everything up to it has been delivered. A client that gets both annotations and
summaries therefore gets the summaries first, without a serial. If the connection breaks in between, it gets
the summaries again, which changes nothing, and no annotation twice.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import TypeAlias

from msgspec import Struct

from citewire.channels.annotation import Annotation
from citewire.channels.fold import ANNOTATION, MessageEvent, decode_summary, decode_without_summary, event_of
from citewire.channels.message import Action, Message
from citewire.channels.store import Row
from citewire.server.ably.codec import AblyFrame, FrameAction, Wire, sendable, write_frame

__all__ = ["AnnotationBatch", "DeliveryBatch", "DeliveryCache", "MessageBatch", "channel_serial"]

_FRAME_BYTES = 128 * 1024
"""Largest total size of rows in one frame. Only a single larger message exceeds it."""
_KEPT_BYTES = 1024 * 1024
"""Size of the cache of encoded frames, in bytes of row data."""


def channel_serial(serial: str) -> str:
    """Return a row's serial as a frame's channel serial, without the index."""
    return serial.removesuffix(":000")


class MessageEdit(Struct, frozen=True):
    """A new version of a message."""

    serial: str
    version: str
    is_append: bool


class _SharedFrames:
    """Frames cached by name and format, each encoded on first use."""

    def __init__(self, channel: str, row: Row, owners: frozenset[str | None]) -> None:
        self.channel, self.serial, self.owners = channel, channel_serial(row.serial), owners
        self._made: dict[tuple[object, bool], Wire] = {}

    def _once(self, name: object, packed: bool, frame: Callable[[], AblyFrame]) -> Wire:
        made = self._made.get((name, packed))
        if made is None:
            made = self._made[name, packed] = write_frame(frame(), packed=packed)
        return made

    def messages(self, messages: Sequence[Message], *, packed: bool, serial: str | None) -> AblyFrame:
        """Make a MESSAGE frame."""
        return AblyFrame(
            action=FrameAction.MESSAGE,
            channel=self.channel,
            channel_serial=serial,
            messages=[sendable(each, packed=packed) for each in messages],
        )


class MessageBatch(_SharedFrames):
    """Consecutive message rows, delivered together."""

    def __init__(self, channel: str, rows: Sequence[Row]) -> None:
        events = [event for event in map(event_of, rows) if isinstance(event, MessageEvent)]
        super().__init__(channel, rows[-1], frozenset(event.connection_id for event in events))
        self.events = events
        self.edits = tuple(
            MessageEdit(message.serial, message.version.serial, message.action is Action.APPEND)
            for message in (event.message for event in events)
            if message.action is not Action.CREATE
        )

    def wire(self, *, packed: bool) -> Wire:
        """Return all messages as one frame."""
        messages = [event.message for event in self.events]
        return self._once("all", packed, lambda: self.messages(messages, packed=packed, serial=self.serial))


class AnnotationBatch(_SharedFrames):
    """Consecutive annotation rows, delivered together."""

    def __init__(self, channel: str, rows: Sequence[Row]) -> None:
        events = [decode_without_summary(row) for row in rows]
        super().__init__(channel, rows[-1], frozenset(event.connection_id for event in events))
        self.events = events
        latest = {event.annotation.message_serial: event for event in events if event.summary}
        self.summaries = tuple(map(decode_summary, latest.values()))

    def wire(self, *, packed: bool, but: str | None = None) -> Wire | None:
        """Return the annotations as one frame, without those from the connection `but`."""
        if but not in self.owners or but is None:
            return self._once("all", packed, lambda: self._annotations(packed, [*self._all(None)]))
        found = [*self._all(but)]
        return write_frame(self._annotations(packed, found), packed=packed) if found else None

    def summary(self, *, packed: bool, is_last: bool) -> Wire | None:
        """Return the summaries as one frame. It carries the serial only if no annotation frame follows."""
        if not self.summaries:
            return None
        serial = self.serial if is_last else None
        return self._once(
            is_last, packed, lambda: self.messages(self.summaries, packed=packed, serial=serial)
        )

    def _all(self, but: str | None) -> Iterator[Annotation]:
        return (each.annotation for each in self.events if but is None or each.connection_id != but)

    def _annotations(self, packed: bool, annotations: Sequence[Annotation]) -> AblyFrame:
        return AblyFrame(
            action=FrameAction.ANNOTATION,
            channel=self.channel,
            channel_serial=self.serial,
            annotations=[sendable(each, packed=packed) for each in annotations],
        )


DeliveryBatch: TypeAlias = MessageBatch | AnnotationBatch


class DeliveryCache:
    """Cache of recent batches. Subscribers who keep up ask for the same rows at the same time."""

    def __init__(self) -> None:
        self._made: OrderedDict[tuple[str, int, int], tuple[int, tuple[DeliveryBatch, ...]]] = OrderedDict()
        self._size = 0

    def batches_of(self, channel: str, rows: Sequence[Row]) -> tuple[DeliveryBatch, ...]:
        """Return the rows as batches, in order."""
        # An epoch belongs to one channel only.
        key = rows[0].epoch, rows[0].n, rows[-1].n
        if (made := self._made.get(key)) is not None:
            return made[1]
        parts, size = tuple(_parts(channel, rows)), sum(len(row.data) for row in rows)
        self._made[key] = size, parts
        self._size += size
        while self._size > _KEPT_BYTES and len(self._made) > 1:
            self._size -= self._made.popitem(last=False)[1][0]
        return parts


def _parts(channel: str, rows: Sequence[Row]) -> Iterator[DeliveryBatch]:
    for kind, group in groupby(rows, key=lambda row: row.kind):
        part = AnnotationBatch if kind == ANNOTATION else MessageBatch
        for some in _chunks(group):
            yield part(channel, some)


def _chunks(rows: Iterator[Row]) -> Iterator[Sequence[Row]]:
    """Split rows into chunks that fit into a frame. A larger row gets a chunk of its own."""
    some: list[Row] = []
    size = 0
    for row in rows:
        if some and size + len(row.data) > _FRAME_BYTES:
            yield some
            some, size = [], 0
        some.append(row)
        size += len(row.data)
    if some:
        yield some
