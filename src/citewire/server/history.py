"""What a thread was at any time: its log, folded as a client folds what it is sent."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from contextlib import suppress
from typing import Any, Literal

from msgspec import Struct

from citewire import codec
from citewire.agui import events as ev
from citewire.agui.thread import Thread
from citewire.channels.store import Cursor, Row, Store
from citewire.dialects.base import is_list, is_object
from citewire.errors import InputError
from citewire.patch import PatchError, apply
from citewire.server.http import read
from citewire.server.journal import Over, Started

__all__ = ["History", "Past"]

_PAGE = 1000
# Events that a thread keeps while it is folded: only what comes of them is asked for.
_KEPT = 256


class Past(Struct, frozen=True):
    """A thread after the row at `cursor`."""

    cursor: Cursor
    status: Literal["running", "idle", "error"]
    run_id: str | None
    error: str | None
    messages: list[Any]
    state: Any
    context: list[Any] = []


class _Fold:
    """A thread that is being folded."""

    def __init__(self, epoch: str, key: str) -> None:
        self._key = key
        self.thread = Thread(history=_KEPT)
        self.cursor = Cursor(epoch, 0)
        self.run_id: str | None = None
        self.context: list[Any] = []
        self.is_running = False
        self.turn = asyncio.Lock()

    def take(self, row: Row) -> None:
        self.cursor = row.cursor
        match row.kind:
            case "input":
                self._begin(read(row.data, Started))
            case "event":
                self.thread.apply(row.data)
            case "late":
                self._patch(ev.decode(row.data))
            case "review":
                self.thread.set_state(_with_review(self.thread.agui.state, self._key, codec.decode(row.data)))
            case "over":
                self.is_running = False
                read(row.data, Over)
            case _:  # what is only for the record
                pass

    def _begin(self, started: Started) -> None:
        self.run_id, self.context, self.is_running = started.input.run_id, started.input.context, True
        self.thread.set_messages(each for each in started.input.messages if is_object(each))
        self.thread.set_state(started.input.state)
        self.thread.open_stream()

    def _patch(self, event: ev.AnyEvent) -> None:
        """A client between runs takes no event, but one that comes back is told of the state."""
        if isinstance(event, ev.StateSnapshot):
            self.thread.set_state(event.snapshot)
        elif isinstance(event, ev.StateDelta):
            # One of a state that a later run has replaced may fit no longer.
            with suppress(PatchError):
                self.thread.set_state(apply(self.thread.agui.state, event.delta))

    def past(self) -> Past:
        view = self.thread.agui
        status = "running" if self.is_running else "error" if view.run_error else "idle"
        return Past(
            self.cursor, status, self.run_id, view.run_error, list(view.messages), view.state, self.context
        )


class History:
    """The threads of a store. Those that were asked for last are kept folded, and only go on."""

    def __init__(self, store: Store, state_key: str, most: int = 64) -> None:
        self._store, self._key, self._most = store, state_key, most
        self._folds: OrderedDict[str, _Fold] = OrderedDict()

    async def at(self, channel: str, n: int | None = None) -> Past | None:
        """The thread after row `n`, or as it is now; None where there is no thread."""
        head = await self._store.head(channel)
        if head is None:
            self._folds.pop(channel, None)
            return None
        if n is not None and not 0 <= n <= head.n:
            raise InputError(f"the thread has {head.n} rows", "?at")
        fold = self._folds.get(channel)
        if fold is None or fold.cursor.epoch != head.epoch:
            fold = self._folds[channel] = _Fold(head.epoch, self._key)
        self._folds.move_to_end(channel)
        if len(self._folds) > self._most:
            self._folds.popitem(last=False)
        if n is not None and n < fold.cursor.n:
            fold = _Fold(head.epoch, self._key)
        async with fold.turn:
            await self._go_on(channel, fold, head.n if n is None else n)
            return fold.past()

    async def _go_on(self, channel: str, fold: _Fold, n: int) -> None:
        while fold.cursor.n < n:
            rows = await self._store.read(channel, fold.cursor, min(_PAGE, n - fold.cursor.n))
            if not rows:
                return
            for row in rows:
                fold.take(row)
            await asyncio.sleep(0)


def _with_review(state: Any, key: str, row: dict[str, Any]) -> Any:
    """The state with what somebody did, where a client would note it."""
    path, levels = (key, "reviews", row["messageId"], row["key"]), [state]
    for name in path:
        level = levels[-1].get(name) if is_object(levels[-1]) else None
        levels.append(level)
    value: Any = [*(levels[-1] if is_list(levels[-1]) else ()), row["review"]]
    for name, level in zip(reversed(path), reversed(levels[:-1]), strict=True):
        value = {**(level if is_object(level) else {}), name: value}
    return value
