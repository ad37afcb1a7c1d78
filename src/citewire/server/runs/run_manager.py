"""Runs that live on the server: they outlive the client's connection, can be joined, and survive crashes.

Clients are served from the log, so a client that joins later or reconnects gets the same events, also from
another node. One node at a time runs the agent of a thread: the node that holds the thread's lease. The
others follow the log, send that node requests (see `node_requests`), and take over when it dies.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from functools import partial
from weakref import WeakValueDictionary

from citewire.agui.events import AnyEvent, RunInput
from citewire.agui.middleware import CitationStream
from citewire.channels.actor import SERVER, Actor
from citewire.channels.hub import Hub
from citewire.channels.lease import Leases, SingleProcessLeases
from citewire.channels.store import Cursor, Row, StoreError
from citewire.errors import CitewireError, Conflict, NotFound, ServerOverloaded
from citewire.server.access.keys import Caller
from citewire.server.runs.deferred_verdicts import DeferredVerdicts
from citewire.server.runs.driver import RunDriver, RunObserver
from citewire.server.runs.live_run import (
    LiveRun,
    follow_run,
    insert_after_first,
    read_ended_run,
    read_logged_frames,
    watch_thread,
)
from citewire.server.runs.node_requests import NodeRequests
from citewire.threadlog.foreign_citations import ForeignCitation
from citewire.threadlog.names import channel_of, deferred_lease, input_id, thread_of
from citewire.threadlog.rows import (
    EndedRun,
    NodeRequest,
    RequestKind,
    RowKind,
    StartedRun,
    decode_row,
    encode_row,
)
from citewire.threadlog.unfinished_runs import cursor_before, find_unfinished_run, has_unfinished_run

__all__ = ["RunManager"]

_log = logging.getLogger("citewire.runs")
_WATCHED = "a run of this thread is going on, and somebody is watching it"
_BUSY = "another node has work to do in this thread"
# Seconds to wait for another node to release a thread that this node needs, and between two attempts.
_PATIENCE, _SHORTLY = 5.0, 0.05
# Seconds of silence after which the node of a run may have died, with and without watchers here; and the
# interval of checks.
_QUIET, _UNWATCHED = 2.0, 10.0
_LOOK = 0.5


class RunManager:
    """The runs of a server. With `resumes`, the agent is called again with the same input after a restart.

    Without `leases`, no other node shares the store. `cited` is called with a thread's log channel when a
    client on another node cites something in its channel, and `untied` with the name of a lost bridge lease.
    """

    def __init__(
        self,
        hub: Hub,
        driver: RunDriver,
        observer: RunObserver,
        *,
        linger: float,
        most: int,
        resumes: bool,
        leases: Leases | None = None,
    ) -> None:
        self._hub, self._driver, self._observer = hub, driver, observer
        self._linger, self._most, self._resumes = linger, most, resumes
        self.leases: Leases = leases or SingleProcessLeases()
        self.is_shared = not isinstance(self.leases, SingleProcessLeases)
        self.on_cited_elsewhere: Callable[[str], None] = lambda _: None
        self.on_bridge_lease_lost: Callable[[str], None] = lambda _: None
        self._live: dict[str, LiveRun] = {}
        # Runs on other nodes that are watched here; when activity was last seen in threads that do not run
        # here.
        self._remote: dict[str, LiveRun] = {}
        self._heard: dict[str, float] = {}
        self._node_requests = NodeRequests(hub, self._handle_request if self.is_shared else None)
        self._tasks: set[asyncio.Task[None]] = set()
        self._deferred = DeferredVerdicts(driver, self.leases, self._node_requests, self._release_later)
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._closing = False
        self.leases.on_lost(self._lost)

    @property
    def active_count(self) -> int:
        """The number of runs on this node."""
        return len(self._live)

    @property
    def watcher_count(self) -> int:
        """The number of open streams of runs, including runs on other nodes."""
        return sum(live.watchers for live in (*self._live.values(), *self._remote.values()))

    def is_live(self, channel: str) -> bool:
        """Return whether a run of this thread is in progress on this node."""
        return channel in self._live

    def stream(self, channel: str) -> CitationStream | None:
        """Return the stream of the thread's run on this node, or None."""
        live = self._live.get(channel)
        return live and live.stream

    async def start(self, run_input: RunInput, caller: Caller) -> AsyncGenerator[bytes]:
        """Start a run, or join the run with this id. Returns the frames of its events."""
        channel, name = channel_of(run_input.thread_id), input_id(run_input.run_id)
        other = self._live.get(channel) or self._remote.get(channel)
        if other and other.run_id != run_input.run_id:
            await other.wait_unwatched()
        async with self._lock_thread(channel):
            is_ours = await self._acquire_thread(channel, "superseded", unless=name)
            if is_ours:
                await self._settle(channel)
            live = self._live.get(channel) if is_ours else await self._find_live_run(channel)
            if live is None or live.run_id != run_input.run_id:
                if known := await self._hub.store.get(channel, name):
                    return read_ended_run(self._hub.store, channel, cursor_before(known))
                if not is_ours:
                    raise Conflict("the thread is being forgotten")
                live = await self._begin(channel, name, run_input, caller)
            return self._frames(channel, live.after, live)

    async def _begin(self, channel: str, name: str, posted: RunInput, caller: Caller) -> LiveRun:
        if other := self._live.get(channel):
            if other.watchers:
                raise Conflict(_WATCHED)
            other.end("superseded")
            await self._ended(other)
        if len(self._live) >= self._most or self._closing:
            raise ServerOverloaded("the server has no room for another run")
        # The run takes up all pending verdicts, and no other task may change the record meanwhile.
        await self._deferred.stop(channel)
        await self._deferred.acquire_lease(channel)
        begun = await self._driver.prepare_run(channel, posted, caller)
        entries = [encode_row(begun.started, name), *begun.reviews]
        row, *_ = await self._hub.append(channel, entries)
        return self._run(LiveRun(begun.started, channel, cursor_before(row), begun.news), row.cursor)

    def _run(self, live: LiveRun, end: Cursor, goes_on: list[AnyEvent] | None = None) -> LiveRun:
        """Drive the run on this node, and listen for requests after `end`."""
        self._live[live.channel] = live
        self._remote.pop(live.channel, None)
        task = asyncio.create_task(self._drive(live, goes_on))
        live.drive(task, self._linger, lambda: self._unwatched(live))
        self._own(task)
        self._node_requests.listen(live.channel, end)
        return live

    async def _drive(self, live: LiveRun, goes_on: list[AnyEvent] | None) -> None:
        channel = live.channel
        try:
            await self._driver.drive(live, goes_on)
        finally:
            if self._live.get(channel) is live:
                del self._live[channel]
            self._observer.on_log_written(channel)
            self._release_later(channel)
        if live.stream is None or live.stream.has_undecided_checks:
            self._own(self._deferred.start(channel))

    async def add_foreign_citations(self, channel: str, citations: Sequence[ForeignCitation]) -> bool:
        """Add citations by other clients: to the open run, or else to the thread, to be decided later.

        Returns False if that is impossible now: a run has not begun yet, is about to end, or belongs to
        another node. Idempotent: each citation is added once.
        """
        async with self._lock_thread(channel):
            if live := self._live.get(channel):
                stream = live.stream
                return stream is not None and all(
                    [
                        await stream.add_foreign_citation(
                            each.message_id, each.cited, each.by, each.annotation
                        )
                        for each in citations
                    ]
                )
            if (
                self._closing
                or not await self.leases.take(channel)
                or not await self._deferred.acquire_lease(channel)
            ):
                return False
            await self._deferred.add_citations(channel, citations)
            self._own(self._deferred.start(channel))
            return True

    def _own(self, task: asyncio.Task[None]) -> None:
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def notify_cited(self, channel: str) -> None:
        """Tell the node that runs this thread that other clients have cited something."""
        await self._node_requests.send(channel, "cited")

    # --- reading ------------------------------------------------------------------------------------------

    async def join(self, thread_id: str, after: Cursor | None) -> AsyncGenerator[bytes]:
        """Return the frames of a thread's events after the cursor, up to the end of the current run."""
        channel = channel_of(thread_id)
        return self._frames(channel, after, await self._find_live_run(channel))

    async def join_current_run(self, thread_id: str) -> AsyncGenerator[bytes] | None:
        """Return the frames of the current run, with its input, for a client without state; None if idle."""
        channel = channel_of(thread_id)
        live = await self._find_live_run(channel)
        if live is None:
            return None
        return insert_after_first(self._frames(channel, live.after, live), live.started.input)

    async def watch_thread(self, thread_id: str, after: Cursor | None) -> AsyncGenerator[bytes]:
        """Stream the frames of everything that happens in a thread after the cursor, on any node."""
        channel = channel_of(thread_id)
        await self._find_live_run(channel)
        async with aclosing(
            watch_thread(channel, self._hub, after, partial(self._live_run_after, channel))
        ) as frames:
            async for each in frames:
                yield each

    def _frames(self, channel: str, after: Cursor | None, live: LiveRun | None) -> AsyncGenerator[bytes]:
        return (
            follow_run(live, self._hub, after)
            if live
            else read_logged_frames(self._hub.store, channel, after)
        )

    # --- ending -------------------------------------------------------------------------------------------

    async def stop_run(self, thread_id: str, run_id: str) -> None:
        """End a run at once, unless it has ended. Raises `NotFound`, or `ServerOverloaded` on no reply."""
        channel = channel_of(thread_id)
        live = await self._find_live_run(channel)
        if live is None or live.run_id != run_id:
            if await self._hub.store.get(channel, input_id(run_id)) is None:
                raise NotFound("there is no such run")
        elif live.task:
            live.end("stopped")
            await self._ended(live)
        elif not await self._node_requests.request_end(
            channel, "stopped", run_id
        ) and await self._settle_unless_elsewhere(channel):
            raise ServerOverloaded("the node on which the run goes on does not answer")

    async def delete_thread(self, thread_id: str, by: Actor = SERVER) -> None:
        """Delete a thread with all its data. Raises `NotFound`, or `Conflict` if another node holds it."""
        channel = channel_of(thread_id)
        async with self._lock_thread(channel):
            await self._acquire_thread(channel, "stopped")
            if live := self._live.get(channel):
                live.end("stopped")
                await self._ended(live)
            if await self._hub.store.head(channel) is None:
                raise NotFound("there is no such thread")
            if not await self._deferred.acquire_lease(channel):
                raise Conflict(_BUSY)
            await self._forget(channel, by)

    async def expire_thread(self, channel: str, before_ms: int) -> None:
        """Delete a thread without activity since `before_ms`, unless a run is in progress."""
        async with self._lock_thread(channel):
            if not (await self.leases.take(channel) and await self.leases.take(deferred_lease(channel))):
                return
            await self._settle(channel)
            head = await self._hub.store.head(channel)
            if channel not in self._live and head and head.tick < before_ms * 1000:
                await self._forget(channel, SERVER)

    async def _forget(self, channel: str, by: Actor) -> None:
        await self._deferred.stop(channel)
        await self._hub.drop(channel, by)
        await self._observer.on_thread_deleted(thread_of(channel))

    def _unwatched(self, live: LiveRun) -> None:
        """Handle a run without watchers on this node: end it, or ask the other nodes first."""
        if self.is_shared:
            self._own(asyncio.create_task(self._ask_whether_left(live)))
        else:
            live.end("abandoned")

    async def _ask_whether_left(self, live: LiveRun) -> None:
        try:
            await self._node_requests.send(live.channel, "abandoned", live.run_id)
        except CitewireError:
            live.restart_linger()

    async def wait_idle(self) -> None:
        """Wait until no run is in progress here and no deferred verdict is being decided."""
        while self._tasks:
            await asyncio.wait(list(self._tasks))

    async def _ended(self, live: LiveRun) -> None:
        if live.task:
            await asyncio.wait([live.task])

    async def aclose(self) -> None:
        """End all runs. With `resumes`, they are left unfinished instead, to be resumed after the restart."""
        self._closing = True
        for live in list(self._live.values()):
            if not self._resumes:
                live.end("interrupted")
            elif live.task:
                live.task.cancel()
        await self._wait(_PATIENCE)
        for task in self._tasks:
            task.cancel()
        await self._wait(_SHORTLY)  # cancelled tasks release their leases
        self._node_requests.close()

    async def _wait(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self.wait_idle()

    # --- recovery after a restart or the death of another node --------------------------------------------

    async def recover(self) -> None:
        """Go through all threads, and end or resume the runs that a crash cut short."""
        after = ""
        while heads := await self._hub.store.heads("run:", after):
            for head in heads:
                with suppress(CitewireError):
                    if await self._settle_unless_elsewhere(head.channel):
                        self.note_activity(head.channel)
            after = heads[-1].channel

    async def settle_run(self, channel: str) -> None:
        """End or resume a run that was cut short.

        With other nodes this is delayed: a node that lost its database connection for a moment regains its
        leases.
        """
        if not self.is_shared:
            await self._settle_unless_elsewhere(channel)
        elif channel not in self._heard:
            self.note_activity(channel)

    async def _settle_unless_elsewhere(self, channel: str) -> bool:
        """Return whether another node runs this thread. A run without any node is ended or resumed."""
        if channel in self._live or not await has_unfinished_run(self._hub.store, channel):
            return False
        async with self._lock_thread(channel):
            if not await self.leases.take(channel):
                return True
            await self._settle(channel)
            return False

    async def _settle(self, channel: str) -> None:
        if channel in self._live or self._closing:
            return
        left = await find_unfinished_run(self._hub.store, channel)
        if left is None:
            return
        if self._resumes and not left.was_stopped and not left.has_ended:
            live = self._track_run(channel, left.started, left.after)
            live.started = left.restarted()
            self._run(live, left.end, left.restart_events(self._driver.state_key))
        else:
            await self._driver.end_unfinished_run(channel, left)
            self._own(self._deferred.start(channel))

    def note_activity(self, channel: str) -> None:
        """Record activity in a channel. A thread that does not run here is then checked for a dead node."""
        if self.is_shared and channel.startswith("run:") and channel not in self._live:
            self._heard[channel] = asyncio.get_running_loop().time()

    async def watch_other_nodes(self) -> None:
        """Check at regular intervals whether the nodes of runs elsewhere are still alive."""
        while self.is_shared:
            await asyncio.sleep(_LOOK)
            await self.settle_dead_nodes()

    async def settle_dead_nodes(self) -> None:
        """End or resume the runs of silent threads whose nodes have died."""
        for channel, heard in list(self._heard.items()):
            live, now = self._remote.get(channel), asyncio.get_running_loop().time()
            if now - heard < (_QUIET if live and live.watchers else _UNWATCHED):
                continue
            try:
                is_elsewhere = await self._settle_unless_elsewhere(channel)
            except CitewireError:  # database unreachable: assume the other node still owns it
                is_elsewhere = True
            except Exception:  # noqa: BLE001  # one thread that cannot be settled is no reason to leave others
                _log.exception("a run that was cut short could not be settled")
                is_elsewhere = False
            if is_elsewhere:
                self._heard[channel] = asyncio.get_running_loop().time()
            else:
                self._heard.pop(channel, None)
                if self._remote.get(channel) is live:
                    self._remote.pop(channel, None)

    # --- several nodes ------------------------------------------------------------------------------------

    async def _find_live_run(self, channel: str) -> LiveRun | None:
        """Return the current run of a thread, on this or another node."""
        here = self._live.get(channel)
        if here or not self.is_shared:
            return here
        left = await find_unfinished_run(self._hub.store, channel)
        if left is None:
            return None
        live = self._track_run(channel, left.started, left.after)
        self._node_requests.listen(channel, left.end)
        return live

    def _live_run_after(self, channel: str, rows: Sequence[Row]) -> LiveRun | None:
        """Return the current run of a thread, given the newest rows of its log."""
        last = next((row for row in reversed(rows) if row.kind in {RowKind.INPUT, RowKind.END}), None)
        started = decode_row(last) if last and self.is_shared and channel not in self._live else None
        if last and isinstance(started, StartedRun):
            self._track_run(channel, started, cursor_before(last))
            self._node_requests.listen(channel, last.cursor)
        return self._live.get(channel) or self._remote.get(channel)

    def _track_run(self, channel: str, started: StartedRun, after: Cursor) -> LiveRun:
        """Return the known run, or start tracking it, so that all its watchers are counted together."""
        known = self._live.get(channel) or self._remote.get(channel)
        if known is None or known.run_id != started.input.run_id:
            known = self._remote[channel] = LiveRun(started, channel, after)
            self.note_activity(channel)
        return known

    async def _handle_request(self, channel: str, said: NodeRequest | EndedRun) -> None:
        """Handle a request from another node, or the end of a run, in a thread that this node listens to."""
        live = self._live.get(channel) or self._remote.get(channel)
        if isinstance(said, EndedRun):
            if live and live.run_id == said.run_id:
                self._remote.pop(channel, None)
                if live.journal and not live.journal.is_ended:  # another node held the lease meanwhile
                    self._lost(channel)
            self._release_later(channel)
        elif said.what == "left":
            await self._deferred.stop(channel)
        elif said.what == "cited":
            self.on_cited_elsewhere(channel)
        elif live and live.run_id == said.run_id:
            await self._handle_run_request(live, said.what)

    async def _handle_run_request(self, live: LiveRun, what: RequestKind) -> None:
        if what == "superseded" and live.task:
            await live.wait_unwatched()
        match what:
            case "watched":
                live.restart_linger()
            case "stopped" if live.task:
                live.end("stopped")
            case "superseded" | "abandoned" if live.watchers:
                await self._node_requests.send(live.channel, "watched", live.run_id)
            case "superseded" | "abandoned" if live.task:
                live.end_soon(what)
            case _:  # the run belongs to another node
                pass

    async def _acquire_thread(self, channel: str, what: RequestKind, unless: str = "") -> bool:
        """Take the lease of a thread, ending a run on another node first. Returns True once it is held.

        Returns False if a row with the id `unless` exists. Raises `Conflict` if that run is watched, or the
        other node does not release the thread.
        """
        until = asyncio.get_running_loop().time() + _PATIENCE
        while True:
            if unless and self.is_shared and await self._hub.store.get(channel, unless):
                return False
            if await self.leases.take(channel):
                return True
            live = await self._find_live_run(channel)
            if live and input_id(live.run_id) == unless:  # it has just begun
                return False
            if live is None and asyncio.get_running_loop().time() < until:
                await asyncio.sleep(_SHORTLY)
            elif live is None or (what == "superseded" and live.watchers):
                raise Conflict(_WATCHED if live else _BUSY)
            elif not await self._node_requests.request_end(channel, what, live.run_id):
                raise Conflict(_WATCHED if what == "superseded" else _BUSY)

    @asynccontextmanager
    async def _lock_thread(self, channel: str) -> AsyncGenerator[None]:
        """Lock a thread for one task. On exit, leases that are no longer needed are released.

        The lock exists as long as a task holds it or waits for it.
        """
        async with self._locks.setdefault(channel, asyncio.Lock()):
            try:
                yield
            finally:
                if self.is_shared:
                    await self._let_go(channel)

    async def _let_go(self, channel: str) -> None:
        is_live, is_late = channel in self._live, self._deferred.is_deciding(channel)
        for name, is_held in ((channel, is_live), (deferred_lease(channel), is_late)):
            if not is_held:
                with suppress(StoreError):  # a lost connection releases the lease
                    await self.leases.release(name)
        if not (is_live or is_late or channel in self._remote):
            self._node_requests.stop_listening(channel)

    def _release_later(self, channel: str) -> None:
        """Release a thread once its lock is free."""
        if self.is_shared:
            self.note_activity(channel)
            self._own(asyncio.create_task(self._release(channel)))

    async def _release(self, channel: str) -> None:
        async with self._lock_thread(channel):
            pass

    def _lost(self, name: str) -> None:
        """Handle the loss of a lease to another node."""
        if name.startswith("late:"):
            self._deferred.cancel(f"run:{name.removeprefix('late:')}")
        elif name.startswith("tie:"):
            self.on_bridge_lease_lost(name)
        elif live := self._live.pop(name, None):
            live.hand_over()
