"""Requests between nodes about a thread, sent through its log so that every node involved receives them.

| `what` | what the receiving node does |
|---|---|
| `stopped` | ends that run, if it runs there |
| `superseded`, `abandoned` | replies `watched` if it has a watcher; else the run ends after a second |
| `watched` | does not end that run |
| `cited` | reads the new citations in the thread's channel |
| `left` | stops deciding deferred verdicts, so that another node can |

So no node has to count the watchers on other nodes, and the watchers of a dead node do not count. Before it
replies to `superseded`, the node of the run gives its own clients a second to leave.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from uuid import uuid4

from citewire.channels.hub import Hub
from citewire.channels.store import Cursor, CursorLost, Row, StoreError
from citewire.errors import CitewireError
from citewire.threadlog.rows import EndedRun, NodeRequest, RequestKind, RowKind, decode_row, encode_row

__all__ = ["NodeRequests"]

_log = logging.getLogger("citewire.runs")
# Seconds that a node has to reply.
_ANSWER = 5.0
# Seconds before a failed store is read again.
_AGAIN = 1.0


class NodeRequests:
    """Sends requests, and calls `hear` with the requests and run ends in the threads it listens to.

    Without `hear`, it does not listen.
    """

    def __init__(
        self, hub: Hub, hear: Callable[[str, NodeRequest | EndedRun], Awaitable[None]] | None
    ) -> None:
        self._hub, self._hear = hub, hear
        self._node = uuid4().hex[:8]
        self._listeners: dict[str, asyncio.Task[None]] = {}

    async def send(self, channel: str, what: RequestKind, run_id: str | None = None) -> Cursor:
        """Send a request. Returns its cursor, after which the reply will appear."""
        entry = encode_row(NodeRequest(what, run_id, self._node), uuid4().hex)
        (row,) = await self._hub.append(channel, [entry])
        return row.cursor

    async def request_end(self, channel: str, what: RequestKind, run_id: str) -> bool:
        """Request the end of a run. Returns False if it is watched, or no node replies within 5 seconds."""
        after = await self.send(channel, what, run_id)
        try:
            async with asyncio.timeout(_ANSWER), aclosing(self._hub.follow(channel, after)) as followed:
                async for rows in followed:
                    for said in filter(None, map(_said, rows)):
                        if said.run_id == run_id and (isinstance(said, EndedRun) or said.what == "watched"):
                            return isinstance(said, EndedRun)
        except TimeoutError:
            return False
        except CursorLost:  # the thread was deleted
            return True
        return False

    def listen(self, channel: str, after: Cursor) -> None:
        """Start listening for requests in a thread after the cursor."""
        if self._hear and channel not in self._listeners:
            self._listeners[channel] = asyncio.create_task(self._listen(channel, after))

    async def listen_from_now(self, channel: str) -> None:
        """Start listening for requests in a thread after its current head."""
        if self._hear and (head := await self._hub.store.head(channel)):
            self.listen(channel, head.cursor)

    def stop_listening(self, channel: str) -> None:
        """Stop listening to a thread. A request that is being handled right now is completed."""
        if (ear := self._listeners.pop(channel, None)) and ear is not asyncio.current_task():
            ear.cancel()

    def close(self) -> None:
        """Stop listening to all threads."""
        for channel in list(self._listeners):
            self.stop_listening(channel)

    async def _listen(self, channel: str, after: Cursor) -> None:
        ear = asyncio.current_task()
        while self._listeners.get(channel) is ear:
            try:
                async with aclosing(self._hub.follow(channel, after)) as followed:
                    async for rows in followed:
                        for said in filter(None, map(_said, rows)):
                            await self._tell(channel, said)
                        after = rows[-1].cursor
                        if self._listeners.get(channel) is not ear:
                            return
                return
            except CursorLost:
                self.stop_listening(channel)
            except StoreError:
                await asyncio.sleep(_AGAIN)

    async def _tell(self, channel: str, said: NodeRequest | EndedRun) -> None:
        try:
            if self._hear:
                await self._hear(channel, said)
        except CitewireError as exc:
            _log.warning("what was asked in %s could not be answered: %s", channel, exc)


def _said(row: Row) -> NodeRequest | EndedRun | None:
    said = decode_row(row) if row.kind in {RowKind.REQUEST, RowKind.END} else None
    return said if isinstance(said, NodeRequest | EndedRun) else None
