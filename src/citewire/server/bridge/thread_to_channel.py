"""From a thread's log into its channel: publish the steps of the projection, once and in order."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from citewire.channels.annotation import AnnotationDraft
from citewire.channels.channels import Channels
from citewire.channels.errors import ChannelError
from citewire.channels.fold import SERVER_CONNECTION_ID
from citewire.channels.message import Action, MessageDraft
from citewire.channels.projection_mark import ProjectionMark
from citewire.channels.store import Cursor, RowReader
from citewire.server.bridge.thread_channels import SERVER
from citewire.threadlog.projection import Projection, ProjectionStep

__all__ = ["ThreadToChannel", "group_steps"]

_log = logging.getLogger("citewire.bridge")
_PAGE = 256
# Bytes of messages or annotations per publish: the rest of its limit is for names and headers.
_TOGETHER = 48 * 1024
# Most bytes per character.
_WIDEST = 4
_MOST_NOTES = 200
_IMMUTABLE = 93002


class ThreadToChannel:
    """The direction from a thread's log `channel` into the channel `ai`, where all up to `mark` is published.

    The log has been folded up to `cursor`. After an error it has to be folded again from the start.
    """

    def __init__(
        self,
        store: RowReader,
        channel: str,
        channels: Channels,
        ai: str,
        projection: Projection,
        mark: ProjectionMark,
    ) -> None:
        self._store, self._channel, self._channels, self._ai = store, channel, channels, ai
        self.projection, self.mark = projection, mark
        self.cursor: Cursor | None = None
        self._serials: dict[str, str | None] = {}

    async def catch_up(self) -> None:
        """Publish everything in the log that is not published yet."""
        while rows := await self._store.read(self._channel, self.cursor, _PAGE):
            steps = (step for row in rows for step in self.projection.apply_row(row))
            for group in group_steps([step for step in steps if not self.mark.covers(step.mark)]):
                await self._tell(group)
            self.cursor = rows[-1].cursor

    async def _tell(self, steps: Sequence[ProjectionStep]) -> None:
        """Publish the steps. A step that the channel rejects is skipped, since it would be rejected again."""
        mark = steps[-1].mark
        try:
            if isinstance(steps[0].sent, AnnotationDraft):
                await self._annotate(steps, mark)
            else:
                await self._publish(steps, mark)
        except ChannelError as exc:
            if exc.ably == _IMMUTABLE:  # not skipped, since the rule may change
                raise
            if len(steps) > 1:
                for step in steps:
                    await self._tell([step])
            else:
                _log.warning("something cannot be told in %s: %s", self._ai, exc)
        self.mark = mark

    async def _publish(self, steps: Sequence[ProjectionStep], mark: ProjectionMark) -> None:
        """Publish the first draft, with the appended texts of the others."""
        drafts = [step.sent for step in steps if isinstance(step.sent, MessageDraft)]
        draft = drafts[0]
        if len(drafts) > 1:
            texts = (each.data for each in drafts)
            draft = replace(draft, data="".join(text for text in texts if isinstance(text, str)))
        if draft.action is not Action.CREATE:
            draft = replace(draft, serial=await self._serial(steps[0].answer))
        if draft.action is Action.CREATE or draft.serial:
            await self._channels.publish(self._ai, SERVER, [draft], mark)

    async def _annotate(self, steps: Sequence[ProjectionStep], mark: ProjectionMark) -> None:
        notes = [
            replace(step.sent, message_serial=serial)
            for step in steps
            if isinstance(step.sent, AnnotationDraft) and (serial := await self._serial(step.answer))
        ]
        if notes:
            await self._channels.annotate(self._ai, SERVER, notes, mark)

    async def _serial(self, answer: str) -> str | None:
        """Return the serial of an answer's message. None if another client used its id, or it has expired."""
        if answer not in self._serials:
            self._serials[answer] = await self._own(answer)
            if self._serials[answer] is None:
                _log.warning("an answer has no message of ours in %s", self._ai)
        return self._serials[answer]

    async def _own(self, answer: str) -> str | None:
        serial = await self._channels.serial_by_id(self._ai, answer)
        try:
            message = await self._channels.message(self._ai, serial) if serial else None
        except ChannelError:
            return None
        return message.serial if message and message.connection_id == SERVER_CONNECTION_ID else None


def group_steps(steps: Sequence[ProjectionStep]) -> Iterator[list[ProjectionStep]]:
    """Group steps that can be published together: appends to one text, or annotations."""
    group: list[ProjectionStep] = []
    size = 0
    for step in steps:
        weight = len(step.sent.data or "") * _WIDEST
        if group and (size + weight > _TOGETHER or not _go_together(group, step)):
            yield group
            group, size = [], 0
        group.append(step)
        size += weight
    if group:
        yield group


def _go_together(group: list[ProjectionStep], step: ProjectionStep) -> bool:
    match group[0].sent, step.sent:
        case AnnotationDraft(), AnnotationDraft():
            return len(group) < _MOST_NOTES
        case MessageDraft(data=str()), MessageDraft(action=Action.APPEND, extras=None):
            return group[0].answer == step.answer
        case _:
            return False
