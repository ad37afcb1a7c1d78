"""The one connection through which a node writes: what waits goes in one statement, and is told when kept.

As a rule a node is the only one that writes to a channel for a while, and knows how it is. So it decides on
what it knows and writes in one round; where another node was faster, it locks the channels, looks, and
decides again.

The leases of the node are locks of this connection. Without it they are gone, and nothing can be written.
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
from citewire.channels.store import BATCH_BYTES, Head, Row, StoreError, load_migrations
from citewire.channels.write_quota import WriteQuota
from citewire.errors import InputError

__all__ = ["PostgresWriter", "SeenHeads", "WriteRequest"]

_log = logging.getLogger("citewire.store")
_T = TypeVar("_T")

# Enough to share the sync among many, few enough that the first of them does not wait long.
_GROUP = 512
# Seconds that calls wait for a database that is away, before it is said; and between two tries.
_PATIENCE, _AGAIN = 10.0, 0.2
# How often a batch is decided anew because others were faster: under locks, only new channels can be.
_TRIES = 5
_SEEN_KEPT = 10_000
# What it is called when a channel is not as was believed, by us and by Postgres; and when an id is there.
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
# The hash of a row is what the row after it holds; of rows that were let go there is no telling.
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
    """One call on its way: part of a `batch`, or `alone` on the connection; and what its caller waits for.

    `ids` are of entries that the log may have already.
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
        """Tell the caller, if it still waits."""
        if self.future.done():
            return
        if isinstance(result, Exception):
            self.future.set_exception(result)
        else:
            self.future.set_result(result)


class LeaseLost(StoreError):
    """A lease went to another while the database was away. Nothing was kept; the same may be asked again."""

    code = "lease_lost"


class SeenHeads:
    """How far channels were seen to go, by which it is known when a database is an older copy."""

    def __init__(self) -> None:
        self._heads: dict[str, Head] = {}

    def record_head(self, head: Head) -> None:
        """A row was kept, or shown to somebody."""
        known = self._heads.pop(head.channel, None)
        is_later = known and known.epoch == head.epoch and known.n > head.n
        self._heads[head.channel] = known if known and is_later else head
        if len(self._heads) > _SEEN_KEPT:
            del self._heads[next(iter(self._heads))]

    def forget(self, channel: str) -> None:
        """The channel was dropped."""
        self._heads.pop(channel, None)

    async def renew_epochs(self, db: asyncpg.Connection[Any]) -> None:
        """Give channels that are not as they were a new epoch, so that nobody takes new rows for old ones."""
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
    """Takes calls, one batch after the other. Made, used and closed in one event loop."""

    def __init__(self, dsn: str, now: Callable[[], int], seen: SeenHeads) -> None:
        self._dsn, self._now, self._seen = dsn, now, seen
        self._known = len(load_migrations("postgres"))
        self._db: asyncpg.Connection[Any] | None = None
        self._knowledge = ChannelCache()
        self._room = WriteQuota()
        self._calls: deque[WriteRequest[Any]] = deque()
        self._more = asyncio.Event()
        self._closing = False
        self._id = token_hex(8)
        self._leases: dict[str, int] = {}
        self._told: Callable[[str], None] | None = None
        self._task = asyncio.create_task(self._run())

    @property
    def pid(self) -> int | None:
        """The process of the database that does our writing, by which we know our own news."""
        return self._db.get_server_pid() if self._db and not self._db.is_closed() else None

    async def submit(self, call: WriteRequest[_T]) -> _T:
        """What becomes of the call. Raises what its work raises, `StoreBusy`, `StoreError`."""
        if self._closing:
            raise StoreError("the store is closed")
        await self._room.take(call.entries, call.size)
        self._calls.append(call)
        self._more.set()
        return await call.future

    async def ensure_connected(self) -> None:
        """See that there is a connection, and all that goes with it."""
        await self.submit(WriteRequest(alone=_nothing))

    def forget(self, channel: str) -> None:
        """Something has happened to the channel that is no batch."""
        self._knowledge.forget([channel])

    async def close(self) -> None:
        """Finish what was asked for."""
        self._closing = True
        async with self._room.line:  # behind all who wait in it
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
            if name not in self._leases:  # it was not taken again meanwhile
                await self._release_lock(db, name, _lock_of(name))

        if self._leases.pop(name, None) is not None:
            await self.submit(WriteRequest(alone=alone))

    async def _release_lock(self, db: asyncpg.Connection[Any], name: str, lock: int) -> None:
        await db.execute(_LET_GO, name, self._id)
        await db.execute(_UNLOCK_LEASE, lock)

    def on_lost(self, told: Callable[[str], None]) -> None:
        """See `Leases`."""
        self._told = told

    async def _retake_leases(self, db: asyncpg.Connection[Any]) -> bool:
        """Whether we have all leases again that we had before the connection broke."""
        lost: list[str] = []
        for name, lock in list(self._leases.items()):  # some may be released meanwhile
            if await db.fetchval(_LOCK_LEASE, lock):
                if await db.fetchval(_IS_HELD, name, self._id):
                    continue
                await db.execute(_UNLOCK_LEASE, lock)  # another has had it, and may be done with it
            lost.append(name)
        for name in lost:
            if self._leases.pop(name, None) is not None and self._told:
                self._told(name)
        return not lost

    # --- the connection -----------------------------------------------------------------------------------

    async def _connected(self) -> asyncpg.Connection[Any]:
        """The connection, anew if need be. Raises `StoreError` when the database stays away."""
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
        self._knowledge.forget()
        db = await connect(self._dsn)
        try:
            with translate_errors("read"):
                check_schema_version(await schema_version(db), self._known)
                await self._seen.renew_epochs(db)
                has_all = await self._retake_leases(
                    db
                )  # the last step: who is told of a loss must be refused
        except BaseException:
            db.terminate()
            raise
        self._db = db
        if not has_all:
            # Whoever asked for what waits may have believed to have a lease.
            waiting, self._calls = self._calls, deque()
            self._settle_all(waiting, [LeaseLost(_LOST)] * len(waiting))
            raise LeaseLost(_LOST)
        return db

    def disconnect(self) -> None:
        """Let go of the connection, whatever is going on."""
        if self._db:
            self._db.terminate()
        self._db = None

    # --- batches ------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        while True:
            while not self._calls:
                if self._closing and not self._room.line.locked():
                    return
                self._more.clear()
                await self._more.wait()
            calls = self._next_group()
            self._settle_all(calls, await self._results(calls))

    def _settle_all(self, calls: Iterable[WriteRequest[Any]], results: Sequence[Any]) -> None:
        for call, result in zip(calls, results, strict=True):
            self._room.free(call.entries, call.size)
            call.settle(result)

    def _next_group(self) -> list[WriteRequest[Any]]:
        """The calls that come first: one that goes alone, or some that go together."""
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
            self._knowledge.forget()
            if not isinstance(error, LeaseLost) and not isinstance(error.__cause__, PostgresError):
                self.disconnect()  # unknown what was committed, or what this connection sends next
            return [error] * len(calls)

    async def _run_group(self, db: asyncpg.Connection[Any], calls: list[WriteRequest[Any]]) -> Sequence[Any]:
        if calls[0].alone:
            return [await calls[0].alone(db)]
        try:
            if results := await self._write_optimistically(db, calls):
                return results
            return await self._write_locked(db, calls)
        except (PostgresError, ValueError) as error:
            self._knowledge.forget()
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
        """The results, if what we know of the channels is so; else None, and nothing is written."""
        needs = [call.needs for call in calls if call.needs]
        self._knowledge.clear_if_full()
        for _ in range(_TRIES):
            if not (asked := self._knowledge.find_missing(needs)):
                break
            await self._load_missing(db, asked)
        else:
            return None
        batch = Batch(self._knowledge, self._now)
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
        """The results, decided while nobody else can write to the channels."""
        needs = [call.needs for call in calls if call.needs]
        names = sorted({channel for channel, _ in needs}, key=str.encode)
        for tries_left in reversed(range(_TRIES)):
            try:
                async with db.transaction():
                    await db.execute(_LOCK, names)
                    self._knowledge.forget(names)
                    await self._load_missing(db, self._knowledge.find_missing(needs))
                    batch = Batch(self._knowledge, self._now, await _find_first_rows(db, calls))
                    results = _run_all(batch, calls)
                    await self._write(db, batch)
                self._record_committed(batch)
                return results
            except PostgresError as error:
                self._knowledge.forget(names)
                if error.sqlstate not in _CONFLICT_STATES or not tries_left:
                    raise
        raise AssertionError

    async def _load_missing(
        self, db: asyncpg.Connection[Any], asked: Sequence[tuple[str, str | None]]
    ) -> None:
        """Have the knowledge that is missing, all of one moment."""
        found = await db.fetch(_LOOK, [name for name, _ in asked], [key for _, key in asked])
        slots: dict[str, dict[str, bytes | None]] = {}
        channels: dict[str, CachedChannel | None] = {}
        for name, key, epoch, n, tick, head_hash, floor, lost_to, value in found:
            channels[name] = epoch and CachedChannel(Head(name, epoch, n, tick, head_hash), floor, lost_to)
            if key is not None:
                slots.setdefault(name, {})[key] = value
        for name, known in channels.items():
            self._knowledge.remember_head(name, known, slots.get(name, {}))

    async def _write(self, db: asyncpg.Connection[Any], batch: Batch) -> None:
        """Write the batch, whole or not at all."""
        if not batch.heads:
            return
        try:
            await db.fetchval(_WRITE, *batch.sql_arguments())
        except BaseException:
            self._knowledge.forget(batch.heads)
            raise

    def _record_committed(self, batch: Batch) -> None:
        """The batch is committed."""
        batch.update_cache()
        for known in batch.heads.values():
            self._seen.record_head(known.head)


async def _nothing(_: object) -> None:
    pass


def _run_all(batch: Batch, calls: Iterable[WriteRequest[Any]]) -> list[Any]:
    """What each call gives, or raises, one after the other."""
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
    """The rows that the log has under the ids of the calls."""
    wanted = [(call.needs[0], each) for call in calls if call.needs for each in call.ids]
    if not wanted:
        return {}
    found = await db.fetch(_FIRST, [channel for channel, _ in wanted], [each for _, each in wanted])
    return {(name, row[2]): Row(epoch, *row) for name, epoch, *row in found}


def _class(error: Exception) -> str:
    return (getattr(error, "sqlstate", None) or "")[:2]


def _lock_of(name: str) -> int:
    """The number by which Postgres knows a lease."""
    return int.from_bytes(sha256(f"citewire lease {name}".encode()).digest()[:8], signed=True)
