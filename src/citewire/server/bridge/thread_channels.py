"""Channels that belong to threads. Only the server may publish verdicts and the agent's citations there."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from citewire.channels.annotation import AnnotationDraft
from citewire.channels.channels import Channels
from citewire.channels.errors import ChannelError
from citewire.channels.fold import SERVER_CONNECTION_ID
from citewire.channels.message import MessageDraft, Publisher
from citewire.channels.offsets import is_citation
from citewire.channels.projection_mark import ProjectionMark
from citewire.threadlog.answer_annotations import CITEWIRE

__all__ = ["SERVER", "ThreadChannels"]

SERVER = Publisher(client_id="*", connection_id=SERVER_CONNECTION_ID)
"""The server itself, which publishes on behalf of its agents."""
_NAMESPACE, _VERDICTS = "ai", "verdicts"


class ThreadChannels(Channels):
    """Guards the namespace `ai`: only the server may publish verdicts, be `citewire`, or cite as the agent.

    `agent` is the client id of the agent's messages. `cited` is called with the channel when another client
    cites something, or deletes a citation.
    """

    agent: str | None = None
    cited: Callable[[str], None] | None = None

    async def publish(
        self, channel: str, who: Publisher, drafts: Sequence[MessageDraft], mark: ProjectionMark | None = None
    ) -> tuple[str, ...]:
        """See `Channels`."""
        if _is_guarded(channel, who):
            senders = {name for draft in drafts for name in (draft.client_id, _editor(draft))}
            _check_names(senders | {who.client_id})
        return await super().publish(channel, who, drafts, mark)

    async def annotate(
        self,
        channel: str,
        who: Publisher,
        notes: Sequence[AnnotationDraft],
        mark: ProjectionMark | None = None,
    ) -> tuple[str, ...]:
        """See `Channels`."""
        if not _is_guarded(channel, who):
            return await super().annotate(channel, who, notes, mark)
        _check_names({who.client_id, *(note.client_id for note in notes)})
        if any(note.type.partition(":")[0] == _VERDICTS for note in notes):
            raise ChannelError(40160, "only the server gives verdicts on the answers of a thread")
        citing = {note.client_id or who.client_id for note in notes if is_citation(note.type)}
        if self.agent is not None and self.agent in citing:
            raise ChannelError(40160, f"in this namespace only the server cites as {self.agent}")
        serials = await super().annotate(channel, who, notes, mark)
        if self.cited and citing:
            self.cited(channel)
        return serials


def _is_guarded(channel: str, who: Publisher) -> bool:
    return channel.partition(":")[0] == _NAMESPACE and who.connection_id != SERVER_CONNECTION_ID


def _editor(draft: MessageDraft) -> str | None:
    return draft.version.client_id if draft.version else None


def _check_names(names: set[str | None]) -> None:
    if CITEWIRE in names:
        raise ChannelError(40160, f"in this namespace {CITEWIRE} is the server itself")
