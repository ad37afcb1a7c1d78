"""From a channel into its thread: pass on citations that other clients attach to answers, to be checked."""

from __future__ import annotations

from citewire.channels.annotation import Annotation, AnnotationAction
from citewire.channels.channels import Channels
from citewire.channels.errors import ChannelError
from citewire.channels.fold import SERVER_CONNECTION_ID, AnnotationEvent, deleted_key
from citewire.channels.hub import Hub
from citewire.channels.offsets import is_citation
from citewire.channels.store import Cursor, CursorLost
from citewire.server.runs.run_manager import RunManager
from citewire.threadlog.foreign_citations import ForeignCitation, read_foreign_citation
from citewire.threadlog.projection import Projection
from citewire.threadlog.rows import WithdrawnCitations, encode_row

__all__ = ["ChannelToThread"]

_PAGE = 1000
# Citations offered at once: no run can start meanwhile.
_AT_ONCE = 100


class ChannelToThread:
    """The direction from the channel `ai` into the log `channel` of its thread.

    The channel has been read up to `cursor`. A citation that is in the thread's log is never added again.
    """

    def __init__(self, channels: Channels, ai: str, hub: Hub, channel: str, runs: RunManager) -> None:
        self._channels, self._ai, self._hub, self._channel, self._runs = channels, ai, hub, channel, runs
        self.cursor: Cursor | None = None
        # Citations that are not in the log yet; citations that were offered to this run, or to its deferred
        # verdicts.
        self._coming: dict[str, ForeignCitation] = {}
        self._offered: set[str] = set()
        self._run: tuple[str, object] | None = None

    async def scan_channel(self, projection: Projection) -> bool:
        """Read new citations and deletions by other clients. Returns whether the log has a new row."""
        known, has_more = {each.annotation for each, _ in projection.foreign_citations()}, False
        try:
            async for row, event in self._channels.export(self._ai, self.cursor):
                if isinstance(event, AnnotationEvent) and _is_foreign(event.annotation):
                    has_more |= await self._take(event.annotation, projection, known)
                self.cursor = row.cursor
        except CursorLost:  # the channel was deleted up to here
            self.cursor = None
            return await self.scan_channel(projection)
        return has_more

    async def offer_citations(self, projection: Projection) -> bool:
        """Offer the citations by other clients to the thread. Returns whether there are more to offer.

        A new run is offered all of them, since its client may not know them.
        """
        run = projection.run_id, self._runs.stream(self._channel)
        if run != self._run:
            self._offered = set()
        elif not self._coming:
            return False
        known = {each.annotation: each for each, _ in projection.foreign_citations()}
        self._coming = {serial: each for serial, each in self._coming.items() if serial not in known}
        left = [
            each for each in (*known.values(), *self._coming.values()) if each.annotation not in self._offered
        ]
        if left and not await self._runs.add_foreign_citations(self._channel, left[:_AT_ONCE]):
            return False
        self._run = run
        self._offered |= {each.annotation for each in left[:_AT_ONCE]}
        return len(left) > _AT_ONCE

    def is_done(self, projection: Projection) -> bool:
        """Return whether all citations that could be added were added, and have verdicts."""
        return self._coming.keys() <= self._offered and all(
            done for _, done in projection.foreign_citations()
        )

    async def _take(self, annotation: Annotation, projection: Projection, known: set[str]) -> bool:
        try:
            message = await self._channels.message(self._ai, annotation.message_serial)
        except ChannelError:  # the message has expired
            return False
        message_id = (
            projection.message_id(message.id or "") if message.connection_id == SERVER_CONNECTION_ID else None
        )
        if message_id is None:
            return False
        if annotation.action is AnnotationAction.DELETE:
            return await self._take_back(annotation, message_id, known)
        if annotation.serial not in known:
            self._coming[annotation.serial] = read_foreign_citation(annotation, message, message_id)
        return False

    async def _take_back(self, delete: Annotation, message_id: str, known: set[str]) -> bool:
        """Withdraw a client's citations under a name. Ignores anonymous ones: the author is unknown."""
        gone = await self._like(delete) if delete.client_id is not None else []
        for serial in gone:
            self._coming.pop(serial, None)
        taken = [serial for serial in gone if serial in known]
        if taken:
            row = WithdrawnCitations(message_id, taken, delete.client_id)
            await self._hub.append(self._channel, [encode_row(row, f"withdrawal:{delete.serial}")])
        return bool(taken)

    async def _like(self, delete: Annotation) -> list[str]:
        """Return the serials of the annotations that a delete covers."""
        found: list[str] = []
        cursor: str | None = None
        while True:
            page = await self._channels.annotations(self._ai, delete.message_serial, _PAGE, cursor)
            found += (
                each.serial
                for each in page.items
                if each.serial < delete.serial and deleted_key(each) == deleted_key(delete)
            )
            if (cursor := page.next) is None:
                return found


def _is_foreign(annotation: Annotation) -> bool:
    return annotation.connection_id != SERVER_CONNECTION_ID and is_citation(annotation.type)
