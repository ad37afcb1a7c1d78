"""The bridge between threads and channels: publishes answers in channels, and checks what is cited there.

Each thread with news has its own task, which never blocks the thread's run. The log of the thread alone
determines what is published, and the position reached is stored together with it. So after a failure or a
crash, the log is read again and publishing continues where it stopped. Among several nodes, the one that
holds the bridge lease does this, usually the node of the run; the others wait until it is released.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress

from msgspec import Struct, msgpack

from citewire.channels.hub import Hub
from citewire.channels.projection_mark import ProjectionMark
from citewire.channels.serial import series_of
from citewire.channels.store import Change, ChannelStore, Cursor, Entry, Head, StoreError
from citewire.errors import CitewireError
from citewire.server.bridge.channel_to_thread import ChannelToThread
from citewire.server.bridge.thread_channels import ThreadChannels
from citewire.server.bridge.thread_to_channel import ThreadToChannel
from citewire.server.runs.run_manager import RunManager
from citewire.threadlog.names import ai_channel, bridge_lease, channel_of, thread_of, thread_of_ai_channel
from citewire.threadlog.projection import Projection

__all__ = ["Bridge"]

_log = logging.getLogger("citewire.bridge")
# Threads processed at once, and threads that stay folded in memory.
_AT_ONCE, _KEPT = 8, 64
# Seconds before a failure is retried, first and longest delay; and before another node's lease is tried
# again.
_SOON, _LATER = 1.0, 60.0
_FREED = 0.5
# Seconds to wait for another node to release a deleted thread, and between two attempts.
_PATIENCE, _SHORTLY = 5.0, 0.05
_PAGE = 1000
_SEEN = "seen"


class _SeenPositions(Struct, frozen=True, array_like=True):
    """Positions in the logs of a thread and of its channel up to which nothing is left to do."""

    log: str
    channel: str | None


class _ThreadLink:
    """Both directions between a thread and its channel, and the positions last stored."""

    def __init__(
        self, outward: ThreadToChannel, inward: ChannelToThread, seen: _SeenPositions | None
    ) -> None:
        self.outward, self.inward, self.seen = outward, inward, seen


class _Thread:
    """A thread with news. Its `tie` is valid until a failure; then a `timer` runs.

    Once it `was_free`, another node may have published more.
    """

    def __init__(self, channel: str) -> None:
        self.channel, self.ai = channel, ai_channel(thread_of(channel))
        self.task: asyncio.Task[None] | None = None
        self.timer: asyncio.TimerHandle | None = None
        self.delay = _SOON
        self.has_news = self.is_cited = self.was_free = False
        self.tie: _ThreadLink | None = None

    async def leave(self) -> None:
        """Cancel its timer and its task."""
        if self.timer:
            self.timer.cancel()
        if self.task:
            self.task.cancel()
            await asyncio.wait([self.task])


class Bridge:
    """Connects the threads of `runs` to `channels`. `agent` is the client id of the agent's messages."""

    def __init__(
        self, store: ChannelStore, hub: Hub, channels: ThreadChannels, runs: RunManager, agent: str
    ) -> None:
        self._store, self._hub, self._channels, self._runs = store, hub, channels, runs
        self._agent, self._leases = agent, runs.leases
        self._threads: dict[str, _Thread] = {}
        self._room = asyncio.Semaphore(_AT_ONCE)
        self._closed = False
        channels.agent, channels.cited = agent, self._cited
        runs.on_cited_elsewhere, runs.on_bridge_lease_lost = self._cited_elsewhere, self._lost

    def notify_log_written(self, channel: str) -> None:
        """Wake the bridge: a thread's log has new rows, or its run has ended."""
        self._wake(channel)

    def _cited(self, ai: str) -> None:
        """Handle a citation by another client in a channel, or its deletion."""
        if thread_id := thread_of_ai_channel(ai):
            self._wake(channel_of(thread_id), is_cited=True)

    def _cited_elsewhere(self, channel: str) -> None:
        """Handle a citation on another node, which has asked this node to read it."""
        self._wake(channel, is_cited=True)

    async def recover(self) -> None:
        """Go through all threads, and catch up with those that a crash left behind."""
        await self._drop_orphans()
        after = ""
        while heads := await self._store.heads("run:", after):
            for head in heads:
                if await self._is_behind(head):
                    self._wake(head.channel)
                    await self._idle(head.channel)
            after = heads[-1].channel

    async def forget_thread(self, thread_id: str) -> None:
        """Delete the channel of a deleted thread."""
        channel, ai = channel_of(thread_id), ai_channel(thread_id)
        if thread := self._threads.pop(channel, None):
            await thread.leave()
        if _fits(ai):
            await self._obtain(channel)
            await self._channels.drop(ai)
            await self._hub.drop(bridge_lease(channel))
            await self._release(channel)

    async def wait_idle(self) -> None:
        """Wait until all pending publishing and reading of citations is done or has failed."""
        for channel in list(self._threads):
            await self._idle(channel)

    async def aclose(self) -> None:
        """Stop all tasks. They resume after the restart."""
        self._closed = True
        for thread in list(self._threads.values()):
            await thread.leave()
            await self._let_go_of(thread)

    # --- tasks --------------------------------------------------------------------------------------------

    def _wake(self, channel: str, *, is_cited: bool = False) -> None:
        thread = self._threads.pop(channel, None) or _Thread(channel)
        if self._closed or not _fits(thread.ai):
            return
        self._threads[channel] = thread  # at the end: threads are ordered by their latest news
        thread.has_news = True
        thread.is_cited |= is_cited
        if thread.task is None and thread.timer is None:
            thread.task = asyncio.create_task(self._work(thread))

    async def _idle(self, channel: str) -> None:
        thread = self._threads.get(channel)
        if thread and thread.task:
            await asyncio.wait([thread.task])

    async def _work(self, thread: _Thread) -> None:
        try:
            while thread.has_news:
                thread.has_news = False
                async with self._room:
                    if await self._leases.take(bridge_lease(thread.channel)):
                        await self._process(thread)
                    else:
                        await self._leave_to_other(thread)
                if not thread.has_news:
                    await self._let_go_of(thread)
                thread.delay = _SOON
        except Exception as exc:  # noqa: BLE001  # the root of a task: no run depends on it
            known = isinstance(exc, CitewireError)
            _log.warning("%s is told later: %s", thread.ai, exc, exc_info=None if known else exc)
            thread.tie = None
            await self._let_go_of(thread)
            self._try_again(thread, thread.delay)
            thread.delay = min(2 * thread.delay, _LATER)
        finally:
            thread.task = None
            self._let_go()

    async def _leave_to_other(self, thread: _Thread) -> None:
        """Another node holds the lease. Notify it of citations on this node, and try again later."""
        if thread.is_cited:
            thread.is_cited = False
            await self._runs.notify_cited(thread.channel)
        self._try_again(thread, _FREED)

    async def _let_go_of(self, thread: _Thread) -> None:
        """Release the lease, unless the thread's run on this node will soon have more."""
        if self._runs.is_shared and not (self._runs.is_live(thread.channel) and thread.tie):
            thread.was_free = True
            await self._release(thread.channel)

    async def _release(self, channel: str) -> None:
        with suppress(StoreError):  # a lost connection releases the lease
            await self._leases.release(bridge_lease(channel))

    async def _obtain(self, channel: str) -> None:
        """Take the lease of a thread to be deleted. Gives up after 5 seconds; leftovers are dropped later."""
        until = asyncio.get_running_loop().time() + _PATIENCE
        while not await self._leases.take(bridge_lease(channel)):
            if asyncio.get_running_loop().time() > until:
                return
            await asyncio.sleep(_SHORTLY)

    def _lost(self, name: str) -> None:
        """Handle the loss of a bridge lease to another node."""
        if thread := self._threads.get(f"run:{name.removeprefix('tie:')}"):
            thread.tie = None
            if thread.task:
                thread.task.cancel()
            self._try_again(thread, _FREED)

    def _try_again(self, thread: _Thread, seconds: float) -> None:
        if thread.timer is None and not self._closed:
            thread.timer = asyncio.get_running_loop().call_later(seconds, self._again, thread)

    def _again(self, thread: _Thread) -> None:
        thread.timer = None
        self._wake(thread.channel)

    def _let_go(self) -> None:
        """Limit the number of threads that stay folded in memory."""
        resting = [name for name, each in self._threads.items() if not (each.task or each.timer)]
        for name in resting[:-_KEPT]:
            del self._threads[name]

    async def _process(self, thread: _Thread) -> None:
        head = await self._store.head(thread.channel)
        if head is None or not self._channels.rules.of(thread.ai).mutable:
            return
        tie = thread.tie
        if thread.was_free:
            thread.was_free, thread.is_cited = False, True
            if tie and await self._channels.projection_mark(thread.ai) != tie.outward.mark:
                tie = None
        if tie is None or tie.outward.mark.epoch != series_of(head.epoch):
            tie = thread.tie = await self._open_link(thread, head)
        await tie.outward.catch_up()
        projection, is_live = tie.outward.projection, self._runs.is_live(thread.channel)
        if thread.is_cited or not is_live:
            thread.is_cited = False
            if await tie.inward.scan_channel(projection):
                thread.has_news = True
        if await tie.inward.offer_citations(projection):
            thread.has_news = True
        if not (thread.has_news or is_live) and tie.inward.is_done(projection):
            await self._note(thread, tie)

    async def _open_link(self, thread: _Thread, head: Head) -> _ThreadLink:
        """Load the positions of a thread and its channel."""
        mark, seen = await self._channels.projection_mark(thread.ai), await self._seen(thread.channel)
        series = series_of(head.epoch)
        if mark and mark.epoch != series:  # left by a deleted thread with the same id
            await self._channels.drop(thread.ai)
            mark = None
        projection = Projection(thread_of(thread.channel), series, self._agent)
        outward = ThreadToChannel(
            self._store, thread.channel, self._channels, thread.ai, projection, mark or ProjectionMark(series)
        )
        inward = ChannelToThread(self._channels, thread.ai, self._hub, thread.channel, self._runs)
        if mark and seen and seen.channel:
            inward.cursor = Cursor.parse(seen.channel)
        thread.is_cited = True
        return _ThreadLink(outward, inward, seen)

    # --- stored positions ---------------------------------------------------------------------------------

    async def _note(self, thread: _Thread, tie: _ThreadLink) -> None:
        """Store that nothing is left to do, lest the next start read the whole log to find out."""
        inward = tie.inward.cursor
        seen = _SeenPositions(str(tie.outward.cursor), str(inward) if inward else None)
        if seen != tie.seen:
            entry = Entry(f"{seen.log} {seen.channel}", "seen", b"")
            change = Change(None, [entry], {_SEEN: msgpack.encode(seen)})
            await self._store.change(bridge_lease(thread.channel), [], lambda values, place: change)
            tie.seen = seen

    async def _seen(self, channel: str) -> _SeenPositions | None:
        slot = (await self._store.values(bridge_lease(channel), [_SEEN]))[_SEEN]
        return msgpack.decode(slot, type=_SeenPositions) if slot else None

    async def _is_behind(self, head: Head) -> bool:
        ai = ai_channel(thread_of(head.channel))
        if not _fits(ai):
            return False
        seen, end = await self._seen(head.channel), await self._channels.head(ai)
        return seen != _SeenPositions(str(head.cursor), str(end.cursor) if end else None)

    async def _drop_orphans(self) -> None:
        """Delete the channels of threads whose deletion was cut short by a crash."""
        after: str | None = None
        while True:
            page = await self._channels.names("ai:", _PAGE, after)
            for ai in page.items:
                if await self._is_orphan(ai) and (thread_id := thread_of_ai_channel(ai)):
                    channel = channel_of(thread_id)
                    if await self._leases.take(bridge_lease(channel)) and await self._is_orphan(ai):
                        await self._channels.drop(ai)
                    await self._release(channel)
            if (after := page.next) is None:
                return

    async def _is_orphan(self, ai: str) -> bool:
        mark, thread_id = await self._channels.projection_mark(ai), thread_of_ai_channel(ai)
        head = await self._store.head(channel_of(thread_id)) if mark and thread_id else None
        return mark is not None and (head is None or series_of(head.epoch) != mark.epoch)


def _fits(ai: str) -> bool:
    """Return whether a channel may have this name. Threads with the longest ids have no channel."""
    return len(ai) <= 500
