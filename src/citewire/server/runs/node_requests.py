"""What nodes ask of each other about a thread: in its log, so that whoever has to do with it hears of it.

| `what` | whoever hears it |
|---|---|
| `stopped` | ends that run, if it goes on there |
| `superseded`, `abandoned` | says `watched` if somebody watches it there; else it is ended in a second |
| `watched` | leaves that run alone |
| `cited` | looks at what was cited in the channel of the thread |
| `left` | leaves what it decides late, so that another can do it |

So nobody counts who watches on other nodes, and none counts whose node has died. Before it answers
`superseded`, the node of the run gives its own clients a second to leave.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from typing import Literal, TypeAlias
from uuid import uuid4

from msgspec import Struct

from citewire import codec
from citewire.channels.hub import Hub
from citewire.channels.store import Cursor, CursorLost, Entry, Row, StoreError
from citewire.codec import decode_as
from citewire.errors import CitewireError
from citewire.server.runs.journal import EndedRun

__all__ = ["NodeRequest", "NodeRequests", "RequestKind", "read_request"]

_log = logging.getLogger("citewire.runs")
# Seconds that a node has to answer.
_ANSWER = 5.0
# Seconds after which a store that failed is asked again.
_AGAIN = 1.0

RequestKind: TypeAlias = Literal["stopped", "superseded", "abandoned", "watched", "cited", "left"]


class NodeRequest(Struct, frozen=True, rename="camel"):
    """What is asked, about which run if it is about one, and the node that asks."""

    what: RequestKind
    run_id: str | None
    by: str


def read_request(row: Row) -> NodeRequest:
    """What a row of the kind `ask` says."""
    return decode_as(row.data, NodeRequest)


class NodeRequests:
    """Asks, and has `hear` told of what is asked, and which runs are over, in threads that it listens to.

    Without `hear` there is nobody to listen to.
    """

    def __init__(
        self, hub: Hub, hear: Callable[[str, NodeRequest | EndedRun], Awaitable[None]] | None
    ) -> None:
        self._hub, self._hear = hub, hear
        self._node = uuid4().hex[:8]
        self._ears: dict[str, asyncio.Task[None]] = {}

    async def send(self, channel: str, what: RequestKind, run_id: str | None = None) -> Cursor:
        """Ask something; where the answer comes after."""
        data = codec.encode(NodeRequest(what, run_id, self._node))
        (row,) = await self._hub.append(channel, [Entry(uuid4().hex, "ask", data)])
        return row.cursor

    async def request_end(self, channel: str, what: RequestKind, run_id: str) -> bool:
        """Ask for the end of a run, and whether it came: not where it is watched, or nobody answers."""
        after = await self.send(channel, what, run_id)
        try:
            async with asyncio.timeout(_ANSWER), aclosing(self._hub.follow(channel, after)) as followed:
                async for rows in followed:
                    for said in filter(None, map(_said, rows)):
                        if said.run_id == run_id and (isinstance(said, EndedRun) or said.what == "watched"):
                            return isinstance(said, EndedRun)
        except TimeoutError:
            return False
        except CursorLost:  # the thread is no more
            return True
        return False

    def listen(self, channel: str, after: Cursor) -> None:
        """Hear what is asked in a thread after the cursor, from now on."""
        if self._hear and channel not in self._ears:
            self._ears[channel] = asyncio.create_task(self._listen(channel, after))

    async def listen_from_now(self, channel: str) -> None:
        """Hear what is asked in a thread after what is there."""
        if self._hear and (head := await self._hub.store.head(channel)):
            self.listen(channel, head.cursor)

    def stop_listening(self, channel: str) -> None:
        """Listen to a thread no longer. Whoever is told of something at this moment goes on with it."""
        if (ear := self._ears.pop(channel, None)) and ear is not asyncio.current_task():
            ear.cancel()

    def close(self) -> None:
        """Listen to none."""
        for channel in list(self._ears):
            self.stop_listening(channel)

    async def _listen(self, channel: str, after: Cursor) -> None:
        ear = asyncio.current_task()
        while self._ears.get(channel) is ear:
            try:
                async with aclosing(self._hub.follow(channel, after)) as followed:
                    async for rows in followed:
                        for said in filter(None, map(_said, rows)):
                            await self._tell(channel, said)
                        after = rows[-1].cursor
                        if self._ears.get(channel) is not ear:
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
    if row.kind == "ask":
        return read_request(row)
    return decode_as(row.data, EndedRun) if row.kind == "over" else None
