"""The single connection through which a node writes: it combines waiting calls into one statement.

Usually a node is the only writer of a channel for a while, and its cache of the channel is valid. So it
decides on the cached state and writes in one round trip. If another node wrote first, it locks the channels,
reads them, and decides again.

The node's leases are locks of this connection. Without it they are lost, and nothing can be written.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from hashlib import sha256
from secrets import token_hex
from typing import Any, Generic, TypeAlias, TypeVar

import asyncpg
from asyncpg import PostgresError

from citewire.channels.postgres_batch import Batch, CachedChannel, ChannelCache, encode_notifications
from citewire.channels.postgres_database import (
    StoreTooNew,
    check_schema_version,
    connect,
    schema_version,
    translate_errors,
)
from citewire.channels.serial import series_of
from citewire.channels.store import BATCH_BYTES, Head, Row, StoreError
from citewire.channels.store_rules import load_migrations
from citewire.channels.write_quota import WriteQuota
from citewire.errors import InputError

__all__ = ["PostgresWriter", "SeenHeads", "WriteRequest"]

_log = logging.getLogger("citewire.store")
_T = TypeVar("_T")

# Enough calls to share one sync among many, few enough that the first does not wait long.
_GROUP = 512
# Seconds that calls wait for an unreachable database before they fail, and seconds between two retries.
_PATIENCE, _AGAIN = 10.0, 0.2
# How often a batch is decided again after a conflict: under locks, only new channels can conflict.
_TRIES = 5
_SEEN_KEPT = 10_000
# SQL states for a channel that differs from our cache (ours and Postgres's), and for a duplicate id.
_CONFLICT_STATES, _DUPLICATE_STATE = frozenset({"CW001", "40001", "40P01"}), "23505"

_WRITE = f"SELECT citewire.write({', '.join(f'${n}' for n in range(1, 20))})"
_LOOK = """
SELECT w.name, w.key, c.epoch, c.n, c.tick, c.hash, c.floor, c.lost_to, s.value
FROM unnest($1::text[], $2::text[]) AS w (name, key)
LEFT JOIN citewire.channel AS c ON c.name = w.name
LEFT JOIN citewire.slot AS s ON s.channel = c.no AND s.key = w.key
"""
_LOCK = "SELECT no FROM citewire.channel WHERE name = ANY ($1::text[]) ORDER BY name FOR UPDATE"
_FIRST = """
SELECT w.name, c.epoch, l.n, l.tick, l.id, l.kind, l.data, l.before
FROM unnest($1::text[], $2::text[]) AS w (name, id)
JOIN citewire.channel AS c ON c.name = w.name JOIN citewire.log AS l ON l.channel = c.no AND l.id = w.id
"""
# The hash of a row is stored in the next row; the hashes of removed rows are unknown.
_FIND_REPLACED = """
SELECT c.name FROM unnest($1::text[], $2::text[], $3::bigint[], $4::bytea[]) AS w (name, epoch, n, hash)
JOIN citewire.channel AS c ON c.name = w.name AND c.epoch = w.epoch
LEFT JOIN citewire.log AS l ON l.channel = c.no AND l.n = w.n + 1
WHERE c.n < w.n OR (c.n = w.n AND c.hash <> w.hash) OR l.before <> w.hash
"""
_NEW_EPOCH = """
UPDATE citewire.channel SET epoch = $3, lost_to = greatest(tick, $4) WHERE name = $1 AND epoch = $2
"""
_LOCK_LEASE, _UNLOCK_LEASE = "SELECT pg_try_advisory_lock($1)", "SELECT pg_advisory_unlock($1)"
_HOLD = "INSERT INTO citewire.lease VALUES ($1, $2) ON CONFLICT (name) DO UPDATE SET holder = excluded.holder"
_IS_HELD = "SELECT true FROM citewire.lease WHERE name = $1 AND holder = $2"
_LET_GO = "DELETE FROM citewire.lease WHERE name = $1 AND holder = $2"

_LOST = "another node has taken what was ours while the database was away"

_Needs: TypeAlias = tuple[str, Sequence[str]]
"""A channel, and keys of slots in it."""


class WriteRequest(Generic[_T]):
    """A queued call, either part of a `batch` or `alone` on the connection, with its caller's future.

    `ids` are those of entries that the log may already have.
    """

    def __init__(
        self,
        *,
        batch: Callable[[Batch], _T] | None = None,
        alone: Callable[[asyncpg.Connection[Any]], Awaitable[_T]] | None = None,
        needs: _Needs | None = None,
        ids: Sequence[str] = (),
        entries: int = 1,
        size: int = 0,
    ) -> None:
        self.batch, self.alone, self.needs, self.ids = batch, alone, needs, ids
        self.entries, self.size = entries, size
        self.future: asyncio.Future[_T] = asyncio.get_running_loop().create_future()

    def settle(self, result: Any) -> None:
        """Pass the result to the caller, if it still waits."""
        if self.future.done():
            return
        if isinstance(result, Exception):
            self.future.set_exception(result)
        else:
            self.future.set_result(result)


class LeaseLost(StoreError):
    """Another node took a lease while the database was unreachable. Nothing was stored; a retry is safe."""

    code = "lease_lost"


class SeenHeads:
    """The latest known heads of channels, used to detect a database restored from an older copy."""

    def __init__(self) -> None:
        self._heads: dict[str, Head] = {}

    def record_head(self, head: Head) -> None:
        """Record that a row was stored, or returned to a reader."""
        known = self._heads.pop(head.channel, None)
        is_later = known and known.epoch == head.epoch and known.n > head.n
        self._heads[head.channel] = known if known and is_later else head
        if len(self._heads) > _SEEN_KEPT:
            del self._heads[next(iter(self._heads))]

    def forget(self, channel: str) -> None:
        """Forget a channel that was dropped."""
        self._heads.pop(channel, None)

    async def renew_epochs(self, db: asyncpg.Connection[Any]) -> None:
        """Give a new epoch to channels whose rows were lost or replaced, so that nobody confuses the two."""
        heads = dict(self._heads)
        asked = ([getattr(head, name) for head in heads.values()] for name in ("epoch", "n", "hash"))
        for (channel,) in await db.fetch(_FIND_REPLACED, list(heads), *asked):
            head = heads[channel]
            _log.warning(
                "%s has not what it had up to %s: the database is an older copy", channel, head.cursor
            )
            await db.execute(_NEW_EPOCH, channel, head.epoch, _next_epoch(head.epoch), head.tick)
            await db.execute("SELECT pg_notify('citewire', $1)", *encode_notifications([channel]))
            self.forget(channel)


def _next_epoch(epoch: str) -> str:
    _, _, life = epoch.partition("~")
    return f"{series_of(epoch)}~{int(life or 0) + 1}"


class PostgresWriter:
    """Executes write requests, one batch after the other. Create, use and close it in one event loop."""

    def __init__(self, dsn: str, now: Callable[[], int], seen: SeenHeads) -> None:
        self._dsn, self._now, self._seen = dsn, now, seen
        self._known = len(load_migrations("postgres"))
        self._db: asyncpg.Connection[Any] | None = None
        self._cache = ChannelCache()
        self._quota = WriteQuota()
        self._calls: deque[WriteRequest[Any]] = deque()
        self._more = asyncio.Event()
        self._closing = False
        self._id = token_hex(8)
        self._leases: dict[str, int] = {}
        self._on_lost: Callable[[str], None] | None = None
        self._task = asyncio.create_task(self._run())

    @property
    def pid(self) -> int | None:
        """The Postgres backend process of our connection, by which we recognize our own notifications."""
        return self._db.get_server_pid() if self._db and not self._db.is_closed() else None

    async def submit(self, call: WriteRequest[_T]) -> _T:
        """Queue a request and return its result. Raises its work's errors, `StoreBusy` and `StoreError`."""
        if self._closing:
            raise StoreError("the store is closed")
        await self._quota.take(call.entries, call.size)
        self._calls.append(call)
        self._more.set()
        return await call.future

    async def ensure_connected(self) -> None:
        """Connect if necessary, and retake the leases."""
        await self.submit(WriteRequest(alone=_nothing))

    def forget(self, channel: str) -> None:
        """Drop the channel from the cache after a change outside a batch."""
        self._cache.forget([channel])

    async def close(self) -> None:
        """Finish all queued requests, then disconnect."""
        self._closing = True
        async with self._quota.line:  # after all callers that wait in line
            self._more.set()
        await asyncio.wait([self._task])
        self.disconnect()

    # --- leases -------------------------------------------------------------------------------------------

    async def take(self, name: str) -> bool:
        """See `Leases`."""
        if name in self._leases:
            return True

        async def alone(db: asyncpg.Connection[Any]) -> bool:
            if name not in self._leases and await db.fetchval(_LOCK_LEASE, lock):
                await db.execute(_HOLD, name, self._id)
                if call.future.cancelled():  # nobody would ever release it
                    await self._release_lock(db, name, lock)
                else:
                    self._leases[name] = lock
            return name in self._leases

        lock, call = _lock_of(name), WriteRequest(alone=alone)
        return await self.submit(call)

    async def release(self, name: str) -> None:
        """See `Leases`."""

        async def alone(db: asyncpg.Connection[Any]) -> None:
            if name not in self._leases:  # it was not retaken meanwhile
                await self._release_lock(db, name, _lock_of(name))

        if self._leases.pop(name, None) is not None:
            await self.submit(WriteRequest(alone=alone))

    async def _release_lock(self, db: asyncpg.Connection[Any], name: str, lock: int) -> None:
        await db.execute(_LET_GO, name, self._id)
        await db.execute(_UNLOCK_LEASE, lock)

    def on_lost(self, told: Callable[[str], None]) -> None:
        """See `Leases`."""
        self._on_lost = told

    async def _retake_leases(self, db: asyncpg.Connection[Any]) -> bool:
        """Retake the leases that we held before the connection broke; False if any of them was lost."""
        lost: list[str] = []
        for name, lock in list(self._leases.items()):  # some may be released meanwhile
            if await db.fetchval(_LOCK_LEASE, lock):
                if await db.fetchval(_IS_HELD, name, self._id):
                    continue
                await db.execute(_UNLOCK_LEASE, lock)  # another node has held it, and may have released it
            lost.append(name)
        for name in lost:
            if self._leases.pop(name, None) is not None and self._on_lost:
                self._on_lost(name)
        return not lost

    # --- the connection -----------------------------------------------------------------------------------

    async def _connected(self) -> asyncpg.Connection[Any]:
        """Return the connection, reconnecting if needed. Raises `StoreError` if the database stays away."""
        until = asyncio.get_running_loop().time() + _PATIENCE
        while True:
            if self._db and not self._db.is_closed():
                return self._db
            try:
                return await self._connect()
            except (StoreTooNew, LeaseLost):
                raise
            except StoreError:
                if asyncio.get_running_loop().time() > until or self._closing:
                    raise
            await asyncio.sleep(_AGAIN)

    async def _connect(self) -> asyncpg.Connection[Any]:
        self._cache.forget()
        db = await connect(self._dsn)
        try:
            with translate_errors("read"):
                check_schema_version(await schema_version(db), self._known)
                await self._seen.renew_epochs(db)
                has_all = await self._retake_leases(
                    db
                )  # the last step: a caller notified of a loss must be refused
        except BaseException:
            db.terminate()
            raise
        self._db = db
        if not has_all:
            # The callers of waiting requests may have relied on a lost lease.
            waiting, self._calls = self._calls, deque()
            self._settle_all(waiting, [LeaseLost(_LOST)] * len(waiting))
            raise LeaseLost(_LOST)
        return db

    def disconnect(self) -> None:
        """Close the connection at once, even during a query."""
        if self._db:
            self._db.terminate()
        self._db = None

    # --- batches ------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        while True:
            while not self._calls:
                if self._closing and not self._quota.line.locked():
                    return
                self._more.clear()
                await self._more.wait()
            calls = self._next_group()
            self._settle_all(calls, await self._results(calls))

    def _settle_all(self, calls: Iterable[WriteRequest[Any]], results: Sequence[Any]) -> None:
        for call, result in zip(calls, results, strict=True):
            self._quota.free(call.entries, call.size)
            call.settle(result)

    def _next_group(self) -> list[WriteRequest[Any]]:
        """Return the next requests: one that runs alone, or several that form a batch."""
        group = [self._calls.popleft()]
        size = group[0].size
        while group[0].batch and self._calls and len(group) < _GROUP:
            call = self._calls[0]
            size += call.size
            if call.batch is None or size > BATCH_BYTES:
                break
            group.append(self._calls.popleft())
        return group

    async def _results(self, calls: list[WriteRequest[Any]]) -> Sequence[Any]:
        try:
            db = await self._connected()
            with translate_errors("write to"):
                return await self._run_group(db, calls)
        except Exception as error:  # noqa: BLE001 - its caller gets it, and the writer lives on
            self._cache.forget()
            if not isinstance(error, LeaseLost) and not isinstance(error.__cause__, PostgresError):
                self.disconnect()  # unknown what was committed, or what this connection returns next
            return [error] * len(calls)

    async def _run_group(self, db: asyncpg.Connection[Any], calls: list[WriteRequest[Any]]) -> Sequence[Any]:
        if calls[0].alone:
            return [await calls[0].alone(db)]
        try:
            if results := await self._write_optimistically(db, calls):
                return results
            return await self._write_locked(db, calls)
        except (PostgresError, ValueError) as error:
            self._cache.forget()
            if isinstance(error, PostgresError) and _class(error) not in {"22", "23", "54"}:
                raise
            if len(calls) == 1:
                refused = InputError("an id that the log has already")
                return [
                    refused
                    if _class(error) == "23"
                    else StoreError("the database refused what was written", detail=error)
                ]
            return [result for call in calls for result in await self._run_group(db, [call])]

    async def _write_optimistically(
        self, db: asyncpg.Connection[Any], calls: list[WriteRequest[Any]]
    ) -> list[Any] | None:
        """Write based on the cache and return the results; None if it is stale and nothing was written."""
        needs = [call.needs for call in calls if call.needs]
        self._cache.clear_if_full()
        for _ in range(_TRIES):
            if not (asked := self._cache.find_missing(needs)):
                break
            await self._load_missing(db, asked)
        else:
            return None
        batch = Batch(self._cache, self._now)
        results = _run_all(batch, calls)
        try:
            await self._write(db, batch)
        except PostgresError as error:
            if error.sqlstate in {*_CONFLICT_STATES, _DUPLICATE_STATE}:
                return None
            raise
        self._record_committed(batch)
        return results

    async def _write_locked(self, db: asyncpg.Connection[Any], calls: list[WriteRequest[Any]]) -> list[Any]:
        """Lock the channels, decide on their current state, write, and return the results."""
        needs = [call.needs for call in calls if call.needs]
        names = sorted({channel for channel, _ in needs}, key=str.encode)
        for tries_left in reversed(range(_TRIES)):
            try:
                async with db.transaction():
                    await db.execute(_LOCK, names)
                    self._cache.forget(names)
                    await self._load_missing(db, self._cache.find_missing(needs))
                    batch = Batch(self._cache, self._now, await _find_first_rows(db, calls))
                    results = _run_all(batch, calls)
                    await self._write(db, batch)
                self._record_committed(batch)
                return results
            except PostgresError as error:
                self._cache.forget(names)
                if error.sqlstate not in _CONFLICT_STATES or not tries_left:
                    raise
        raise AssertionError

    async def _load_missing(
        self, db: asyncpg.Connection[Any], asked: Sequence[tuple[str, str | None]]
    ) -> None:
        """Load missing cache entries, all in one query."""
        found = await db.fetch(_LOOK, [name for name, _ in asked], [key for _, key in asked])
        slots: dict[str, dict[str, bytes | None]] = {}
        channels: dict[str, CachedChannel | None] = {}
        for name, key, epoch, n, tick, head_hash, floor, lost_to, value in found:
            channels[name] = epoch and CachedChannel(Head(name, epoch, n, tick, head_hash), floor, lost_to)
            if key is not None:
                slots.setdefault(name, {})[key] = value
        for name, known in channels.items():
            self._cache.remember_head(name, known, slots.get(name, {}))

    async def _write(self, db: asyncpg.Connection[Any], batch: Batch) -> None:
        """Write the whole batch or nothing."""
        if not batch.heads:
            return
        try:
            await db.fetchval(_WRITE, *batch.sql_arguments())
        except BaseException:
            self._cache.forget(batch.heads)
            raise

    def _record_committed(self, batch: Batch) -> None:
        """Update the cache and the seen heads after a commit."""
        batch.update_cache()
        for known in batch.heads.values():
            self._seen.record_head(known.head)


async def _nothing(_: object) -> None:
    pass


def _run_all(batch: Batch, calls: Iterable[WriteRequest[Any]]) -> list[Any]:
    """Run the calls in order and return the result or the error of each."""
    results: list[Any] = []
    for call in calls:
        try:
            results.append(call.batch(batch) if call.batch else None)
        except Exception as error:  # noqa: BLE001 - its caller gets it
            results.append(error)
    return results


async def _find_first_rows(
    db: asyncpg.Connection[Any], calls: Iterable[WriteRequest[Any]]
) -> dict[tuple[str, str], Row]:
    """Return the rows that the log already has under the ids of the calls."""
    wanted = [(call.needs[0], each) for call in calls if call.needs for each in call.ids]
    if not wanted:
        return {}
    found = await db.fetch(_FIRST, [channel for channel, _ in wanted], [each for _, each in wanted])
    return {(name, row[2]): Row(epoch, *row) for name, epoch, *row in found}


def _class(error: Exception) -> str:
    return (getattr(error, "sqlstate", None) or "")[:2]


def _lock_of(name: str) -> int:
    """Return the number of the Postgres advisory lock for a lease."""
    return int.from_bytes(sha256(f"citewire lease {name}".encode()).digest()[:8], signed=True)
