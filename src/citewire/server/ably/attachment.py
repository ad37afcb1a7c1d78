"""One client's attachment to one channel: its position in the log and the frames still to be sent."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

from msgspec import Struct

from citewire.channels.channels import START_SERIAL, Channels, HistoryQuery
from citewire.channels.errors import ChannelError
from citewire.channels.message import Action, Message
from citewire.channels.store import Cursor, CursorLost
from citewire.channels.transitions import normalize_serial
from citewire.server.ably.attach_request import AttachRequest
from citewire.server.ably.codec import AblyFrame, Flag, FrameAction, Wire, sendable, write_frame
from citewire.server.ably.delivery import AnnotationBatch, DeliveryCache, MessageBatch, channel_serial
from citewire.server.ably.errors import ErrorInfo, info_of

__all__ = ["ChannelAttachment", "FrameFormat"]

_KNOWN = 1000
"""How many older messages an attachment remembers as sent in full. Others are sent in full again."""
_HEARS = Flag.SUBSCRIBE | Flag.ANNOTATION_SUBSCRIBE


class FrameFormat(Struct, frozen=True):
    """The frame format of a connection. `own`, if set, is the connection whose messages are left out."""

    packed: bool
    own: str | None


class _Start(Struct, frozen=True):
    """Where an attachment starts reading. Without a `cursor`, at the start of the log."""

    cursor: Cursor | None
    serial: str
    flags: Flag = Flag(0)
    error: ErrorInfo | None = None


class ChannelAttachment:
    """A client's position in a channel, which advances as its frames are consumed."""

    def __init__(
        self,
        channels: Channels,
        channel: str,
        asked: AttachRequest,
        modes: Flag,
        form: FrameFormat,
        batches: DeliveryCache,
    ) -> None:
        self.channel, self.asked, self.modes = channel, asked, modes
        self.serial: str | None = None
        """Serial of the last row whose frames were consumed."""
        self._channels, self._form, self._batches = channels, form, batches
        self._is_told = Flag.SUBSCRIBE in modes
        self._is_noted = Flag.ANNOTATION_SUBSCRIBE in modes
        self._since = ""
        self._known: dict[str, str] = {}

    async def frames(self, after: str | None, now: int) -> AsyncGenerator[Wire]:
        """Yield ATTACHED, the rewound messages, then all frames after `after`, or after the end of the log.

        A rewind counts back from `now`, in milliseconds. Raises `CursorLost` when the channel is dropped.
        """
        start = await self._begin(after)
        shown = () if start.flags else await self._rewound(start.serial, now)
        self._since, self.serial = normalize_serial(start.serial), start.serial
        yield self._attached(start, has_backlog=bool(shown))
        if shown:
            self._known = {message.serial: message.version.serial for message in shown}
            yield self._messages(shown, start.serial)
        if self.modes & _HEARS:
            async with aclosing(self._channels.follow(self.asked.channel, start.cursor)) as following:
                async for rows in following:
                    for part in self._batches.batches_of(self.asked.channel, rows):
                        for wire in await self._frames_for(part):
                            yield wire
                        self.serial = part.serial

    async def _begin(self, after: str | None) -> _Start:
        """Start at `after`. If the log cannot continue from there, start at its end and report the error."""
        error = None
        if after is not None:
            try:
                return _Start(await self._cursor(after), after, Flag.RESUMED)
            except CursorLost as exc:
                error = info_of(exc)
        head = await self._channels.head(self.asked.channel)
        return (
            _Start(head.cursor, head.serial, error=error) if head else _Start(None, START_SERIAL, error=error)
        )

    async def _cursor(self, serial: str) -> Cursor | None:
        try:
            return await self._channels.cursor_after(self.asked.channel, channel_serial(serial))
        except ChannelError as exc:
            if exc.ably != 40003:
                raise
            # A serial from another server is as useless as one from a deleted log.
            raise CursorLost(exc.message) from exc

    async def _rewound(self, until: str, now: int) -> Sequence[Message]:
        """Return the current state of the messages to rewind, up to a serial, oldest first."""
        rewind = self.asked.rewind
        if rewind is None or not self._is_told:
            return ()
        start = 0 if rewind.period is None else max(0, now - rewind.period)
        page = await self._channels.history(
            self.asked.channel, HistoryQuery(start=start, until=until, limit=rewind.count)
        )
        return [message for message in page.items[::-1] if self._fits(message)]

    def _attached(self, start: _Start, *, has_backlog: bool) -> Wire:
        return self._written(
            AblyFrame(
                action=FrameAction.ATTACHED,
                channel=self.channel,
                channel_serial=channel_serial(start.serial),
                flags=self.modes | start.flags | (Flag.HAS_BACKLOG if has_backlog else Flag(0)),
                error=start.error,
                params=self.asked.params or None,
            )
        )

    async def _frames_for(self, part: MessageBatch | AnnotationBatch) -> Sequence[Wire]:
        packed, own = self._form.packed, self._form.own
        if isinstance(part, MessageBatch):
            posts = await self._posts(part) if self._is_told else None
            return [posts] if posts else ()
        if self.asked.filter:
            return ()
        notes = part.wire(packed=packed, but=own) if self._is_noted else None
        summary = part.summary(packed=packed, is_last=notes is None) if self._is_told else None
        return [wire for wire in (summary, notes) if wire]

    async def _posts(self, part: MessageBatch) -> Wire | None:
        packed, own = self._form.packed, self._form.own
        is_shared = self.asked.filter is None and (own is None or own not in part.owners)
        if is_shared and all(
            self._is_next(edit.serial, edit.version, is_append=edit.is_append) for edit in part.edits
        ):
            for edit in part.edits:
                self._note(edit.serial, edit.version)
            return part.wire(packed=packed)
        others = [event.message for event in part.events if own is None or event.connection_id != own]
        told = [message for each in others if self._fits(each) and (message := await self._whole(each))]
        return self._messages(told, part.serial) if told else None

    def _fits(self, message: Message) -> bool:
        return self.asked.filter is None or self.asked.filter.matches(message)

    async def _whole(self, message: Message) -> Message | None:
        """Return the message in full if needed; None if the client has seen this version or it is deleted."""
        serial, version = message.serial, message.version.serial
        if version <= self._known.get(serial, ""):
            return None
        if not self._is_next(serial, version, is_append=message.action is Action.APPEND):
            try:
                message = await self._channels.message(self.asked.channel, serial)
            except ChannelError:
                return None
        self._note(serial, message.version.serial)
        return message

    def _is_next(self, serial: str, version: str, *, is_append: bool) -> bool:
        """Whether the client can apply this version as published, because it has seen the one before."""
        if is_append and self.asked.append_full:
            return False
        known = self._known.get(serial)
        if known is None:
            return not is_append or serial > self._since
        return version > known

    def _note(self, serial: str, version: str) -> None:
        """Remember the version sent of a message older than the attachment, or sent before its turn."""
        if serial <= self._since or self.asked.append_full:
            self._known.pop(serial, None)
            self._known[serial] = version
            if len(self._known) > _KNOWN:
                del self._known[next(iter(self._known))]

    def _messages(self, messages: Sequence[Message], serial: str) -> Wire:
        packed = self._form.packed
        return self._written(
            AblyFrame(
                action=FrameAction.MESSAGE,
                channel=self.channel,
                channel_serial=channel_serial(serial),
                messages=[sendable(each, packed=packed) for each in messages],
            )
        )

    def _written(self, frame: AblyFrame) -> Wire:
        return write_frame(frame, packed=self._form.packed)
