"""The operations on a server's channels, shared by its REST and WebSocket APIs and independent of both.

Every change is decided and stored in one step; when a call returns, its result is stored. The caller has
already been authenticated and authorized; only the ownership of a message is checked here.
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from typing import Any, Generic, TypeAlias, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from citewire.channels.annotation import Annotation, AnnotationDraft
from citewire.channels.channel_citations import (
    SourceCitations,
    citation_slot_keys,
    creates_citation,
    find_current_citations,
    group_by_source,
)
from citewire.channels.errors import ChannelError
from citewire.channels.fold import (
    MAX_SHOWN_CLIENTS,
    SERVER_CONNECTION_ID,
    AnnotationEvent,
    ChannelEvent,
    MessageEvent,
    clients_key,
    event_of,
    find_slot_ranges,
    hidden_of,
    id_key,
    message_key,
    message_of,
    summary_key,
    with_summary,
)
from citewire.channels.hub import Hub
from citewire.channels.message import Action, Message, MessageDraft, Publisher
from citewire.channels.projection_mark import MARK_SLOT, ProjectionMark, decide_with_mark
from citewire.channels.rules import DEFAULT_RULES, Rules
from citewire.channels.store import ChannelStore, Cursor, Decide, Head, Row
from citewire.channels.store_rules import check_name, head_at
from citewire.channels.summary import HiddenClient, summarize_client
from citewire.channels.transitions import make_annotate_transition, make_publish_transition, normalize_serial
from citewire.errors import InputError

__all__ = ["Channels", "HistoryQuery", "ResultPage", "START_SERIAL", "check_limit"]

_T = TypeVar("_T")
_Serials: TypeAlias = tuple[str, ...]

PAGE_ITEMS = 1000
"""The most that a page may be asked for."""
_TRIMMED = 256
"""How many rows are forgotten at once."""
_LAST_MS = 10**14 - 2
"""The last millisecond after which there is another in 14 digits."""
START_SERIAL = "00000000000000-000@0"
"""The serial before the first row of a channel that has none yet."""


class ResultPage(Struct, Generic[_T], frozen=True):
    """One page of a list; `next` is the cursor after its last item, or None on the last page."""

    items: tuple[_T, ...]
    next: str | None


class HistoryQuery(Struct, frozen=True, kw_only=True):
    """A query for messages: between two times in milliseconds, up to a serial, forwards or backwards."""

    start: int = 0
    end: int | None = None
    until: str | None = None
    forwards: bool = False
    limit: int = 100
    cursor: str | None = None


class Channels:
    """The channels of a store; their logs are named `space` plus the channel's name.

    `rules` may be replaced at any time. A summary's group lists up to `shown` clients. `ids` makes missing
    ids.
    """

    def __init__(
        self,
        store: ChannelStore,
        hub: Hub,
        rules: Rules = DEFAULT_RULES,
        *,
        space: str = "channel:",
        shown: int = MAX_SHOWN_CLIENTS,
        ids: Callable[[], str] = lambda: secrets.token_urlsafe(9),
    ) -> None:
        self.rules = rules
        self._store, self._hub = store, hub
        self._space, self._shown, self._ids = space, shown, ids

    async def publish(
        self, channel: str, who: Publisher, drafts: Sequence[MessageDraft], mark: ProjectionMark | None = None
    ) -> tuple[str, ...]:
        """Publish the drafts, all or nothing, and return the serials of the new messages and new versions.

        Repeated draft ids and repeated frames return the serials of the first time. If `mark` was already
        reached, nothing is published and no serials are returned.
        """
        decide = make_publish_transition(who, drafts, self._base(who))
        if decide.edits:
            self.rules.check_mutable(channel)
        return await self._change(channel, decide.keys, decide, mark)

    async def update(self, channel: str, who: Publisher, serial: str, draft: MessageDraft) -> str:
        """Replace the fields of a message that the draft sets, and return the serial of the new version."""
        return await self._edit(channel, who, Action.UPDATE, serial, draft)

    async def delete(self, channel: str, who: Publisher, serial: str, draft: MessageDraft) -> str:
        """Mark a message as deleted and return the serial of the new version. It stays in history."""
        return await self._edit(channel, who, Action.DELETE, serial, draft)

    async def append(self, channel: str, who: Publisher, serial: str, draft: MessageDraft) -> str:
        """Append the draft's data to that of a message and return the serial of the new version."""
        return await self._edit(channel, who, Action.APPEND, serial, draft)

    async def annotate(
        self,
        channel: str,
        who: Publisher,
        notes: Sequence[AnnotationDraft],
        mark: ProjectionMark | None = None,
    ) -> tuple[str, ...]:
        """Store the annotations, all or nothing; return their serials. Repeats and `mark`: see `publish`."""
        self.rules.check_mutable(channel)
        decide = make_annotate_transition(who, notes, self._base(who), self._shown)
        return await self._change(channel, decide.keys, decide, mark)

    async def projection_mark(self, channel: str) -> ProjectionMark | None:
        """Return the channel's last mark."""
        return ProjectionMark.from_slot(
            (await self._store.values(self._name(channel), [MARK_SLOT]))[MARK_SLOT]
        )

    async def serial_by_id(self, channel: str, id: str) -> str | None:  # noqa: A002  # as a message calls it
        """Return the serial of the message that the server published under this id, or None."""
        key = id_key("message", id, SERVER_CONNECTION_ID)
        found = (await self._store.values(self._name(channel), [key]))[key]
        return found.decode() if found else None

    async def message(self, channel: str, serial: str) -> Message:
        """Return the current version of a message, with its summary."""
        keys = message_key(normalize_serial(serial)), summary_key(normalize_serial(serial))
        values = await self._store.values(self._name(channel), keys)
        found = message_of(values[keys[0]])
        if found is None:
            raise ChannelError(40400, "no message has this serial")
        return with_summary(found, values[keys[1]])

    async def versions(
        self, channel: str, serial: str, limit: int = 100, cursor: str | None = None
    ) -> ResultPage[Message]:
        """Return the versions of a message as they were delivered, oldest first. Appends create none."""
        events = await self._events_about(channel, "m", serial, limit, cursor)
        found = tuple(event.message for event in events.items if isinstance(event, MessageEvent))
        return ResultPage(found, events.next)

    async def annotations(
        self, channel: str, serial: str, limit: int = 100, cursor: str | None = None
    ) -> ResultPage[Annotation]:
        """Return the annotations of a message, creates and deletes, oldest first."""
        events = await self._events_about(channel, "a", serial, limit, cursor)
        found = tuple(event.annotation for event in events.items if isinstance(event, AnnotationEvent))
        return ResultPage(found, events.next)

    async def history(self, channel: str, which: HistoryQuery) -> ResultPage[Message]:
        """Return messages in the order of their creation, each in its current version with its summary."""
        name, (after, before) = self._name(channel), _bounds(which)
        found = await self._store.slots(name, after, before, which.limit, reverse=not which.forwards)
        serials = [slot.key[2:] for slot in found]
        if not serials:
            return ResultPage((), None)
        after, before = (found[-1].key, before) if which.forwards else (after, found[-1].key)
        more = await self._store.slots(name, after, before, 1)
        summaries = await self._store.values(name, [summary_key(serial) for serial in serials])
        messages = (message_of(slot.value) for slot in found)
        return ResultPage(
            tuple(with_summary(each, summaries[summary_key(each.serial)]) for each in messages if each),
            serials[-1] if more else None,
        )

    async def client_summary(self, channel: str, serial: str, client_id: str) -> Mapping[str, Any]:
        """Return one client's part of a message's summary: its entries, clipped, with their totals."""
        serial, hidden = (await self.message(channel, serial)).serial, list[HiddenClient]()
        name, prefix = self._name(channel), clients_key(serial, client_id)
        after = prefix
        while found := await self._store.slots(name, after, prefix[:-1] + ";"):
            hidden += (each for slot in found if (each := hidden_of(slot.value)))
            after = found[-1].key
        key = summary_key(serial)
        return summarize_client((await self._store.values(name, [key]))[key], client_id, hidden)

    async def citations(
        self, channel: str, limit: int = 100, cursor: str | None = None
    ) -> ResultPage[SourceCitations]:
        """Return the citations of all messages by source; each page groups those among `limit` annotations.

        Citations that their client deleted, and those of deleted messages, are left out.
        """
        name = self._name(channel)
        after, end = f"a:{_check_listing_cursor(cursor)}" if cursor else "a:", "a;"
        rows = await self._store.rows_by_id(name, after, end, check_limit(limit))
        if not rows:
            return ResultPage((), None)
        more = await self._store.rows_by_id(name, rows[-1].id, end, 1)
        events = (each for each in map(event_of, rows) if isinstance(each, AnnotationEvent))
        citing = [each.annotation for each in events if creates_citation(each.annotation)]
        values = await self._store.values(name, citation_slot_keys(citing))
        return ResultPage(
            group_by_source(find_current_citations(citing, values)), rows[-1].id[2:] if more else None
        )

    async def export(
        self, channel: str, after: Cursor | None = None
    ) -> AsyncGenerator[tuple[Row, ChannelEvent]]:
        """Yield every row and event of the channel, in order, up to now."""
        name = self._name(channel)
        while rows := await self._store.read(name, after):
            for row in rows:
                yield row, event_of(row)
            after = rows[-1].cursor

    async def head(self, channel: str) -> Head | None:
        """Return the end of the channel's log; None if nothing was ever published."""
        return await self._store.head(self._name(channel))

    async def cursor_after(self, channel: str, serial: str) -> Cursor | None:
        """Return the cursor for a subscriber that has seen everything up to a row's serial.

        `START_SERIAL` gives None, which means from the start. Raises `CursorLost` like `Slots.seek`.
        """
        return (
            None
            if serial == START_SERIAL
            else await self._store.seek(self._name(channel), normalize_serial(serial))
        )

    def follow(self, channel: str, after: Cursor | None = None) -> AsyncGenerator[Sequence[Row]]:
        """Follow the channel like `Hub.follow`; decode its rows with `event_of`."""
        return self._hub.follow(self._name(channel), after)

    async def names(self, prefix: str = "", limit: int = 100, after: str | None = None) -> ResultPage[str]:
        """Return the names of the channels in which anything was ever published, in order."""
        begins = self._space + prefix
        start = "" if after is None else self._space + after
        heads = await self._store.heads(begins, start, check_limit(limit))
        more = heads and await self._store.heads(begins, heads[-1].channel, 1)
        found = tuple(head.channel.removeprefix(self._space) for head in heads)
        return ResultPage(found, found[-1] if more else None)

    async def trim(self, channel: str, before: int) -> int:
        """Delete rows older than `before`, in milliseconds, and return their number.

        Messages created before then are deleted together with their later versions and annotations.
        """
        name, count = self._name(channel), 0
        while read := await self._store.read(name, limit=_TRIMMED):
            rows = [row for row in read if row.tick < before * 1000]
            if not rows:
                break
            ranges = find_slot_ranges([event_of(row) for row in rows], rows[-1].serial)
            await self._hub.announce_removal("trimmed", head_at(name, rows[-1]))
            await self._store.trim(name, rows[-1].cursor, ranges)
            count += len(rows)
        return count

    async def drop(self, channel: str) -> None:
        """Delete the channel and its content."""
        await self._hub.drop(self._name(channel))

    def _name(self, channel: str) -> str:
        """Return the name of the channel's log, which never equals that of another kind of log."""
        name = self._space + channel
        try:
            check_name(name)
        except InputError as exc:
            raise ChannelError(40010, f"not a channel: {exc.message}") from exc
        if channel[:1] in {"", "[", ":"} or "\n" in channel:
            raise ChannelError(40010, "a channel's name is not empty, has one line and begins with no [ or :")
        return name

    def _base(self, who: Publisher) -> str:
        """Return the prefix of the ids that we generate."""
        if who.connection_id is None or who.msg_serial is None:
            return self._ids()
        return f"{who.connection_id}:{who.msg_serial}"

    async def _change(
        self, channel: str, keys: Sequence[str], decide: Decide[_Serials], mark: ProjectionMark | None
    ) -> _Serials:
        name = self._name(channel)
        if mark is not None:
            keys, decide = [*keys, MARK_SLOT], decide_with_mark(decide, mark, ())
        return (await self._hub.commit_and_notify(name, self._store.change(name, keys, decide))).result

    async def _edit(
        self, channel: str, who: Publisher, action: Action, serial: str, draft: MessageDraft
    ) -> str:
        [version] = await self.publish(channel, who, [replace(draft, action=action, serial=serial)])
        return version

    async def _events_about(
        self, channel: str, kind: str, serial: str, limit: int, cursor: str | None
    ) -> ResultPage[ChannelEvent]:
        """Return a page of a message's events from rows of one kind (`m` versions, `a` annotations)."""
        serial = (await self.message(channel, serial)).serial
        name, prefix, end = self._name(channel), f"{kind}:{serial}:", f"{kind}:{serial};"
        after = prefix + normalize_serial(cursor) if cursor else prefix
        rows = await self._store.rows_by_id(name, after, end, check_limit(limit))
        more = rows and await self._store.rows_by_id(name, rows[-1].id, end, 1)
        return ResultPage(tuple(map(event_of, rows)), rows[-1].id.removeprefix(prefix) if more else None)


def _bounds(which: HistoryQuery) -> tuple[str, str]:
    """Return the keys between which the messages lie."""
    check_limit(which.limit)
    end = _LAST_MS if which.end is None else which.end
    if not 0 <= which.start <= end <= _LAST_MS:
        raise ChannelError(40003, "a history begins before it ends, in milliseconds")
    after, before = message_key(f"{which.start:014d}"), message_key(f"{end + 1:014d}")
    if which.until is not None:
        # "!" sorts before every character that can follow.
        before = min(before, message_key(normalize_serial(which.until)) + "!")
    if which.cursor is not None:
        key = message_key(normalize_serial(which.cursor))
        after, before = (max(after, key), before) if which.forwards else (after, min(before, key))
    return after, before


def check_limit(limit: int) -> int:
    """Return the requested page size. Raises `ChannelError` if it is out of range."""
    if not 1 <= limit <= PAGE_ITEMS:
        raise ChannelError(40003, f"a page has 1 to {PAGE_ITEMS}")
    return limit


def _check_listing_cursor(cursor: str) -> str:
    """Check the cursor of a listing of all messages: a message's serial and an annotation's serial."""
    about, middle, serial = cursor.partition(":000:")
    if not middle:
        raise ChannelError(40003, "not a cursor")
    return f"{normalize_serial(about)}:{normalize_serial(serial)}"
