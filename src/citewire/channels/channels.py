"""The channels of a server: what its REST and its WebSocket part do, without either.

Every change is decided and kept in one step of the store; what comes back was kept. A caller has been
identified and allowed to do what it asks; only whose message it is, is looked at here.
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from typing import Any, Generic, TypeAlias, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from citewire.channels.annotation import Annotation, Note
from citewire.channels.citing import Cited, by_source, is_cited, keys_for, standing
from citewire.channels.deciding import annotating, posting, whole_serial
from citewire.channels.fold import (
    OURS,
    SHOWN,
    Annotated,
    Event,
    Posted,
    clients_key,
    event_of,
    hidden_of,
    id_key,
    message_key,
    message_of,
    spans,
    summary_key,
    with_summary,
)
from citewire.channels.hub import Hub
from citewire.channels.mark import MARK, Mark, marked
from citewire.channels.message import Action, Draft, Message, Who
from citewire.channels.refusal import ChannelError
from citewire.channels.rules import DEFAULT, Rules
from citewire.channels.store import ChannelStore, Cursor, Decide, Head, Row, check_name, head_at
from citewire.channels.summary import Hidden, of_client
from citewire.errors import InputError

__all__ = ["START", "Channels", "History", "Page", "limited"]

_T = TypeVar("_T")
_Serials: TypeAlias = tuple[str, ...]

PAGE_ITEMS = 1000
"""The most that a page may be asked for."""
_TRIMMED = 256
"""How many rows are forgotten at once."""
_LAST_MS = 10**14 - 2
"""The last millisecond after which there is another in 14 digits."""
START = "00000000000000-000@0"
"""The serial before the first row of a channel that has none yet."""


class Page(Struct, Generic[_T], frozen=True):
    """Some of a list; `next` is the cursor behind them, where there are more."""

    items: tuple[_T, ...]
    next: str | None


class History(Struct, frozen=True, kw_only=True):
    """Which messages are asked for: between two times in milliseconds, up to a serial, backwards or not."""

    start: int = 0
    end: int | None = None
    until: str | None = None
    forwards: bool = False
    limit: int = 100
    cursor: str | None = None


class Channels:
    """The channels whose logs are called `space` and their name. `rules` may be replaced at any time.

    No group of a summary names more than `shown` clients. `ids` names what comes without an id.
    """

    def __init__(
        self,
        store: ChannelStore,
        hub: Hub,
        rules: Rules = DEFAULT,
        *,
        space: str = "channel:",
        shown: int = SHOWN,
        ids: Callable[[], str] = lambda: secrets.token_urlsafe(9),
    ) -> None:
        self.rules = rules
        self._store, self._hub = store, hub
        self._space, self._shown, self._ids = space, shown, ids

    async def publish(
        self, channel: str, who: Who, drafts: Sequence[Draft], mark: Mark | None = None
    ) -> tuple[str, ...]:
        """Do what the drafts say, all or nothing: the serials of new messages, and of new versions.

        A draft whose id is known, and a frame that is known, give what they gave at first. With a `mark` that
        was reached before, nothing happens and there are no serials.
        """
        decide = posting(who, drafts, self._base(who))
        if decide.edits:
            self.rules.need_mutable(channel)
        return await self._change(channel, decide.keys, decide, mark)

    async def update(self, channel: str, who: Who, serial: str, draft: Draft) -> str:
        """Replace what the draft gives of a message; the serial of its new version."""
        return await self._edit(channel, who, Action.UPDATE, serial, draft)

    async def delete(self, channel: str, who: Who, serial: str, draft: Draft) -> str:
        """Mark a message as deleted; the serial of its new version. It stays in history."""
        return await self._edit(channel, who, Action.DELETE, serial, draft)

    async def append(self, channel: str, who: Who, serial: str, draft: Draft) -> str:
        """Put the draft's data behind that of a message; the serial of its new version."""
        return await self._edit(channel, who, Action.APPEND, serial, draft)

    async def annotate(
        self, channel: str, who: Who, notes: Sequence[Note], mark: Mark | None = None
    ) -> tuple[str, ...]:
        """Keep the annotations, all or nothing; their serials. Known ones, and marks, as with `publish`."""
        self.rules.need_mutable(channel)
        decide = annotating(who, notes, self._base(who), self._shown)
        return await self._change(channel, decide.keys, decide, mark)

    async def mark(self, channel: str) -> Mark | None:
        """The last mark of the channel."""
        return Mark.of((await self._store.values(self._name(channel), [MARK]))[MARK])

    async def serial(self, channel: str, id: str) -> str | None:  # noqa: A002  # as a message calls it
        """The serial of the message that the server published under this id; None where there is none."""
        key = id_key("message", id, OURS)
        found = (await self._store.values(self._name(channel), [key]))[key]
        return found.decode() if found else None

    async def message(self, channel: str, serial: str) -> Message:
        """The message as it stands, with its summary."""
        keys = message_key(whole_serial(serial)), summary_key(whole_serial(serial))
        values = await self._store.values(self._name(channel), keys)
        found = message_of(values[keys[0]])
        if found is None:
            raise ChannelError(40400, "no message has this serial")
        return with_summary(found, values[keys[1]])

    async def versions(
        self, channel: str, serial: str, limit: int = 100, cursor: str | None = None
    ) -> Page[Message]:
        """The versions of a message as they were delivered, the oldest first. Appends make none."""
        events = await self._about(channel, "m", serial, limit, cursor)
        found = tuple(event.message for event in events.items if isinstance(event, Posted))
        return Page(found, events.next)

    async def annotations(
        self, channel: str, serial: str, limit: int = 100, cursor: str | None = None
    ) -> Page[Annotation]:
        """The annotations of a message, creates and deletes, the oldest first."""
        events = await self._about(channel, "a", serial, limit, cursor)
        found = tuple(event.annotation for event in events.items if isinstance(event, Annotated))
        return Page(found, events.next)

    async def history(self, channel: str, which: History) -> Page[Message]:
        """Messages in the order in which they were made, each as it stands, with its summary."""
        name, (after, before) = self._name(channel), _bounds(which)
        found = await self._store.slots(name, after, before, which.limit, reverse=not which.forwards)
        serials = [slot.key[2:] for slot in found]
        if not serials:
            return Page((), None)
        after, before = (found[-1].key, before) if which.forwards else (after, found[-1].key)
        more = await self._store.slots(name, after, before, 1)
        summaries = await self._store.values(name, [summary_key(serial) for serial in serials])
        messages = (message_of(slot.value) for slot in found)
        return Page(
            tuple(with_summary(each, summaries[summary_key(each.serial)]) for each in messages if each),
            serials[-1] if more else None,
        )

    async def client_summary(self, channel: str, serial: str, client_id: str) -> Mapping[str, Any]:
        """What of a message's summary one client has to do with: its entries, clipped, with their totals."""
        serial, hidden = (await self.message(channel, serial)).serial, list[Hidden]()
        name, prefix = self._name(channel), clients_key(serial, client_id)
        after = prefix
        while found := await self._store.slots(name, after, prefix[:-1] + ";"):
            hidden += (each for slot in found if (each := hidden_of(slot.value)))
            after = found[-1].key
        key = summary_key(serial)
        return of_client((await self._store.values(name, [key]))[key], client_id, hidden)

    async def citations(self, channel: str, limit: int = 100, cursor: str | None = None) -> Page[Cited]:
        """The citations of all messages, by source; each page groups those among `limit` annotations.

        Those that their client took back, and those of deleted messages, are left out.
        """
        name = self._name(channel)
        after, end = f"a:{_checked(cursor)}" if cursor else "a:", "a;"
        rows = await self._store.named(name, after, end, limited(limit))
        if not rows:
            return Page((), None)
        more = await self._store.named(name, rows[-1].id, end, 1)
        events = (each for each in map(event_of, rows) if isinstance(each, Annotated))
        citing = [each.annotation for each in events if is_cited(each.annotation)]
        values = await self._store.values(name, keys_for(citing))
        return Page(by_source(standing(citing, values)), rows[-1].id[2:] if more else None)

    async def export(self, channel: str, after: Cursor | None = None) -> AsyncGenerator[tuple[Row, Event]]:
        """Everything that ever happened in the channel, in order, up to now."""
        name = self._name(channel)
        while rows := await self._store.read(name, after):
            for row in rows:
                yield row, event_of(row)
            after = rows[-1].cursor

    async def head(self, channel: str) -> Head | None:
        """The end of the channel's log; None where nothing was ever published."""
        return await self._store.head(self._name(channel))

    async def cursor(self, channel: str, serial: str) -> Cursor | None:
        """Where following goes on for one who has seen everything up to a row's serial.

        `START` gives None, which is the start. CursorLost as with `Slots.seek`.
        """
        return None if serial == START else await self._store.seek(self._name(channel), whole_serial(serial))

    def follow(self, channel: str, after: Cursor | None = None) -> AsyncGenerator[Sequence[Row]]:
        """As `Hub.follow`; `event_of` says what a row holds."""
        return self._hub.follow(self._name(channel), after)

    async def names(self, prefix: str = "", limit: int = 100, after: str | None = None) -> Page[str]:
        """The channels in which anything was ever published, by name."""
        begins = self._space + prefix
        start = "" if after is None else self._space + after
        heads = await self._store.heads(begins, start, limited(limit))
        more = heads and await self._store.heads(begins, heads[-1].channel, 1)
        found = tuple(head.channel.removeprefix(self._space) for head in heads)
        return Page(found, found[-1] if more else None)

    async def trim(self, channel: str, before: int) -> int:
        """Forget what happened before a time, in milliseconds; how many rows that were.

        Messages that were made by then go with all that became of them since.
        """
        name, count = self._name(channel), 0
        while read := await self._store.read(name, limit=_TRIMMED):
            rows = [row for row in read if row.tick < before * 1000]
            if not rows:
                break
            ranges = spans([event_of(row) for row in rows], rows[-1].serial)
            await self._hub.removing("trimmed", head_at(name, rows[-1]))
            await self._store.trim(name, rows[-1].cursor, ranges)
            count += len(rows)
        return count

    async def drop(self, channel: str) -> None:
        """Forget the channel with all that was in it."""
        await self._hub.drop(self._name(channel))

    def _name(self, channel: str) -> str:
        """What the log of a channel is called: never what a log of something else is called."""
        name = self._space + channel
        try:
            check_name(name)
        except InputError as exc:
            raise ChannelError(40010, f"not a channel: {exc.message}") from exc
        if channel[:1] in {"", "[", ":"} or "\n" in channel:
            raise ChannelError(40010, "a channel's name is not empty, has one line and begins with no [ or :")
        return name

    def _base(self, who: Who) -> str:
        """What the ids that we give begin with."""
        if who.connection_id is None or who.msg_serial is None:
            return self._ids()
        return f"{who.connection_id}:{who.msg_serial}"

    async def _change(
        self, channel: str, keys: Sequence[str], decide: Decide[_Serials], mark: Mark | None
    ) -> _Serials:
        name = self._name(channel)
        if mark is not None:
            keys, decide = [*keys, MARK], marked(decide, mark, ())
        return (await self._hub.tell(name, self._store.change(name, keys, decide))).result

    async def _edit(self, channel: str, who: Who, action: Action, serial: str, draft: Draft) -> str:
        [version] = await self.publish(channel, who, [replace(draft, action=action, serial=serial)])
        return version

    async def _about(
        self, channel: str, kind: str, serial: str, limit: int, cursor: str | None
    ) -> Page[Event]:
        """The events about a message whose rows are called so."""
        serial = (await self.message(channel, serial)).serial
        name, prefix, end = self._name(channel), f"{kind}:{serial}:", f"{kind}:{serial};"
        after = prefix + whole_serial(cursor) if cursor else prefix
        rows = await self._store.named(name, after, end, limited(limit))
        more = rows and await self._store.named(name, rows[-1].id, end, 1)
        return Page(tuple(map(event_of, rows)), rows[-1].id.removeprefix(prefix) if more else None)


def _bounds(which: History) -> tuple[str, str]:
    """The keys between which the messages are."""
    limited(which.limit)
    end = _LAST_MS if which.end is None else which.end
    if not 0 <= which.start <= end <= _LAST_MS:
        raise ChannelError(40003, "a history begins before it ends, in milliseconds")
    after, before = message_key(f"{which.start:014d}"), message_key(f"{end + 1:014d}")
    if which.until is not None:
        # "!" comes before all that could follow.
        before = min(before, message_key(whole_serial(which.until)) + "!")
    if which.cursor is not None:
        key = message_key(whole_serial(which.cursor))
        after, before = (max(after, key), before) if which.forwards else (after, min(before, key))
    return after, before


def limited(limit: int) -> int:
    """The length of a page that is asked for. Raises `ChannelError` where it is none."""
    if not 1 <= limit <= PAGE_ITEMS:
        raise ChannelError(40003, f"a page has 1 to {PAGE_ITEMS}")
    return limit


def _checked(cursor: str) -> str:
    """The cursor of a listing of all messages: the serials of a message and of one of its annotations."""
    about, middle, serial = cursor.partition(":000:")
    if not middle:
        raise ChannelError(40003, "not a cursor")
    return f"{whole_serial(about)}:{whole_serial(serial)}"
