"""Rebuild a thread as of any row, by folding its log as a client folds the events it receives."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from contextlib import suppress
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from citewire.agui import events as ev
from citewire.agui.citations.echoes import fingerprints
from citewire.agui.citations.message_state import CitationSeen, ReviewGiven
from citewire.agui.citations.posted_messages import (
    find_posted_ids,
    id_of,
    is_posted,
    mark_posted,
    role_of,
    started_message_id,
)
from citewire.agui.citations.shared_state import CITATIONS
from citewire.agui.citations.unfinished_messages import unfinished_message_patches
from citewire.agui.events import Json
from citewire.agui.thread.thread import Thread
from citewire.channels.store import Cursor, Row, RowReader
from citewire.dialects.base import is_object
from citewire.errors import InputError
from citewire.patch import PatchError, apply_patch
from citewire.threadlog.authority import OwnRecord, accept_input, keep_own_lists, withdraw_citations
from citewire.threadlog.reviews import ReviewsByCitation, add_reviews
from citewire.threadlog.rows import (
    EndedRun,
    EventRow,
    PostedReviewRow,
    StartedRun,
    ThreadRow,
    WithdrawnCitations,
    decode_row,
    is_verdict,
)

__all__ = ["ThreadAtCursor", "ThreadHistory"]

_PAGE = 1000
# Events that a thread retains while folding: only the result is needed.
_KEPT = 256


class ThreadAtCursor(Struct, frozen=True):
    """A thread as of the row at `cursor`."""

    cursor: Cursor
    status: Literal["running", "idle", "error"]
    run_id: str | None
    error: str | None
    messages: list[Any]
    state: Any
    context: list[Any] = []


class _Fold:
    """A thread being folded, with what the server itself said in it."""

    def __init__(self, epoch: str, key: str) -> None:
        self._key = key
        self.thread = Thread(history=_KEPT)
        self.cursor = Cursor(epoch, 0)
        self.run_id: str | None = None
        self.context: list[Any] = []
        self.is_running = False
        self.turn = asyncio.Lock()
        self._said: dict[str, Json] = {}
        self._posted: set[str] = set()
        self._fingerprints: set[bytes] = set()
        self._record: Json | None = None
        self._lists: Any = None
        self.reviews: dict[tuple[str, str], list[Json]] = {}
        # Keys of citations by other clients, by annotation, and keys of the withdrawn ones.
        self._foreign: dict[str, str] = {}
        self._withdrawn: set[str] = set()

    def take(self, row: Row) -> None:
        if not is_verdict(row):  # verdicts are in the state
            self._take(decode_row(row))
        self.cursor = row.cursor  # set last, so that a row that cannot be read is not skipped the next time

    def _take(self, row: ThreadRow) -> None:
        match row:
            case StartedRun():
                self._begin(row)
            case EventRow(event, is_deferred=False):
                self._apply(event)
            case EventRow(event):
                self._patch(event)
            case CitationSeen(annotation=str(annotation)):
                self._foreign[annotation] = row.key
            case WithdrawnCitations():
                self._withdrawn |= {self._foreign[each] for each in row.annotations if each in self._foreign}
            case PostedReviewRow() | ReviewGiven():  # the second was written by an earlier version
                self._review(row.message_id, row.key, row.review)
            case EndedRun():
                self._end()
            case _:  # rows for the record only
                pass

    def own(self) -> OwnRecord:
        """Return what the server itself said."""
        self._remember()
        record, lists = withdraw_citations(self._record, self._lists, self._withdrawn)
        prints = frozenset(self._fingerprints)
        return OwnRecord(dict(self._said), frozenset(self._posted), record, lists, prints)

    def _begin(self, started: StartedRun) -> None:
        accepted = accept_input(started.input, self.own(), self._key).input
        self.run_id, self.context, self.is_running = accepted.run_id, accepted.context, True
        self._posted |= {
            name for each in accepted.messages if (name := id_of(each)) and name not in self._said
        }
        self._fingerprints |= fingerprints(
            each for each in accepted.messages if id_of(each) not in self._said
        )
        self.thread.set_messages(each for each in accepted.messages if is_object(each))
        self.thread.set_state(accepted.state)
        self.thread.open_stream()

    def _apply(self, event: ev.AnyEvent) -> None:
        if (name := started_message_id(event, self._role)) in self._posted:
            # The server now uses this id; what a client posted under it does not belong to the answer.
            self._posted.discard(name)
            self.thread.set_messages(each for each in self.thread.agui.messages if id_of(each) != name)
        elif isinstance(event, ev.MessagesSnapshot | ev.StateSnapshot):
            self._remember()  # the snapshot may omit something
        if isinstance(event, ev.MessagesSnapshot):
            event = replace(event, messages=[each for each in event.messages if not self._is_forged(each)])
        self._posted |= find_posted_ids(event) - self._said.keys()
        self.thread.apply(event)

    def _is_forged(self, message: Any) -> bool:
        """Return whether a client posted this message under the id of one of the server's messages."""
        return is_posted(message) and id_of(message) in self._said

    def _role(self, name: str) -> Any:
        return next((role_of(each) for each in self.thread.agui.messages if id_of(each) == name), None)

    def _end(self) -> None:
        self.is_running = False
        state = self.state
        if patches := unfinished_message_patches(state, self._key):
            self.thread.set_state(apply_patch(state, patches))

    def _remember(self) -> None:
        """Remember what the server has said so far, before the messages or the state are replaced."""
        view = self.thread.agui
        # User messages belong to the client even if the agent assigned their id: they may be edited.
        self._said |= {
            name: each
            for each in view.messages
            if (name := id_of(each)) and name not in self._posted and role_of(each) != "user"
        }
        if is_object(view.state):
            record = view.state.get(self._key)
            if is_object(record):
                self._record = {name: value for name, value in record.items() if name != "reviews"}
            self._lists = (
                self._without_posted(view.state[CITATIONS])
                if CITATIONS in view.state
                else keep_own_lists(self._lists, self._record)
            )

    def _without_posted(self, lists: Any) -> Any:
        """Return the citation lists without those of posted messages, or None if none is left."""
        if not is_object(lists) or self._posted.isdisjoint(lists):
            return lists
        return {name: entries for name, entries in lists.items() if name not in self._posted} or None

    @property
    def state(self) -> Any:
        """The thread's state. The server's own part is included even if an agent's snapshot omitted it."""
        self._remember()
        state = self.thread.agui.state
        if self.is_running or not (state is None or is_object(state)):
            return state
        ours = {self._key: self._record, CITATIONS: keep_own_lists(self._lists, self._record)}
        missing = {name: value for name, value in ours.items() if value and name not in (state or {})}
        return {**(state or {}), **missing} if missing else state

    def _patch(self, event: ev.AnyEvent) -> None:
        """Apply a state event sent between runs. Clients get the resulting state when they reconnect."""
        if isinstance(event, ev.StateSnapshot):
            self.thread.set_state(event.snapshot)
        elif isinstance(event, ev.StateDelta):
            # A patch to a state that a later run replaced may no longer apply.
            with suppress(PatchError):
                self.thread.set_state(apply_patch(self.state, event.delta))

    def _review(self, message_id: str, key: str, review: Json) -> None:
        known = self.reviews.setdefault((message_id, key), [])
        if review not in known:
            known.append(review)

    def past(self) -> ThreadAtCursor:
        view = self.thread.agui
        status = "running" if self.is_running else "error" if view.run_error else "idle"
        messages = [mark_posted(each) if id_of(each) in self._posted else each for each in view.messages]
        state = add_reviews(self.state, self._key, self.reviews)
        return ThreadAtCursor(self.cursor, status, self.run_id, view.run_error, messages, state, self.context)


class ThreadHistory:
    """The threads of a store. The `most` recently used ones stay folded in memory and are only continued."""

    def __init__(self, store: RowReader, state_key: str, most: int = 64) -> None:
        self._store, self._key, self._most = store, state_key, most
        self._folds: OrderedDict[str, _Fold] = OrderedDict()

    async def snapshot_at(self, channel: str, n: int | None = None) -> ThreadAtCursor | None:
        """Return the thread as of row `n`, or as it is now. None if it does not exist."""
        fold = await self._folded(channel, n)
        return fold and fold.past()

    async def own_record(self, channel: str) -> tuple[OwnRecord, ReviewsByCitation]:
        """Return what the server said in a thread, and its recorded reviews. Empty if there is no thread."""
        fold = await self._folded(channel)
        return (OwnRecord(), {}) if fold is None else (fold.own(), fold.reviews)

    async def _folded(self, channel: str, n: int | None = None) -> _Fold | None:
        """Fold a thread up to row `n`, or all of it. Returns None if the thread does not exist.

        Read the fold before the next await, and do not look for it in the cache: it may have been evicted.
        """
        head = await self._store.head(channel)
        if head is None:
            self._folds.pop(channel, None)
            return None
        if n is not None and not 0 <= n <= head.n:
            raise InputError(f"the thread has {head.n} rows", "?at")
        fold = self._cached(channel, head.epoch)
        async with fold.turn:
            if n is None or n >= fold.cursor.n:
                await self._go_on(channel, fold, head.n if n is None else n)
                return fold
        past = _Fold(head.epoch, self._key)
        await self._go_on(channel, past, n)
        return past

    def _cached(self, channel: str, epoch: str) -> _Fold:
        fold = self._folds.get(channel)
        if fold is None or fold.cursor.epoch != epoch:
            fold = self._folds[channel] = _Fold(epoch, self._key)
        self._folds.move_to_end(channel)
        if len(self._folds) > self._most:
            self._folds.popitem(last=False)
        return fold

    async def _go_on(self, channel: str, fold: _Fold, n: int) -> None:
        while fold.cursor.n < n:
            rows = await self._store.read(channel, fold.cursor, min(_PAGE, n - fold.cursor.n))
            if not rows:
                return
            for row in rows:
                fold.take(row)
            await asyncio.sleep(0)
