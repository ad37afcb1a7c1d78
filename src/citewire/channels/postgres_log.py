"""The read operations of a store in Postgres."""

# ruff: noqa: S608 - statements are put together from our own parts only

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from citewire.channels.postgres_database import Database, connect, translate_errors
from citewire.channels.postgres_writer import SeenHeads
from citewire.channels.serial import series_of, tick_of
from citewire.channels.snapshot_deadline import deadline
from citewire.channels.store import (
    PAGE_BYTES,
    Chain,
    ChainLink,
    Cursor,
    CursorLost,
    ErasedChannel,
    Extent,
    Head,
    Row,
    Slot,
    SlotValues,
    StoreError,
)
from citewire.channels.store_rules import (
    check_cursor,
    check_keys,
    check_name,
    check_prefix,
    check_span,
    clamp_limit,
    head_at,
)

__all__ = ["PostgresLog"]

_HEAD = "SELECT name, epoch, n, tick, hash FROM citewire.channel WHERE name = $1"
_FLOOR = "SELECT name, epoch, floor, floor_tick, floor_hash FROM citewire.channel WHERE name = $1"
_HEADS = """
SELECT name, epoch, n, tick, hash FROM citewire.channel
WHERE name >= $1 AND name > $2 AND ($3::text IS NULL OR name < $3) ORDER BY name LIMIT $4
"""
_EXTENTS = "SELECT name, epoch, floor, n FROM citewire.channel WHERE name > $1 ORDER BY name LIMIT $2"
_CHAINS = """
SELECT name, epoch, c.floor, floor_tick, floor_hash, c.n, tick, hash
FROM unnest($1::text[]) WITH ORDINALITY AS w (name, at) JOIN citewire.channel AS c USING (name) ORDER BY at
"""
# A page: a number of rows, or until a number of bytes is reached. Only lengths are read beforehand.
_PAGE = """
SELECT * FROM (
    SELECT *, sum(octet_length({size})) OVER (ORDER BY {order}) - octet_length({size}) AS so_far
    FROM ({rows}) AS r
) AS p WHERE so_far < {bytes} ORDER BY {order}
"""
_ROWS = _PAGE.format(
    size="data", order="n", bytes=PAGE_BYTES,
    rows="""SELECT l.n, tick, id, kind, data, before FROM citewire.log AS l
    WHERE l.channel = c.no AND l.n > {after} ORDER BY l.n LIMIT {limit}""",
)  # fmt: skip
_READ = f"""
SELECT c.epoch, c.floor, c.n AS upto, r.n, r.tick, r.id, r.kind, r.data, r.before
FROM citewire.channel AS c
LEFT JOIN LATERAL ({_ROWS.format(after="greatest($2, c.floor)", limit="$3")}) AS r ON true
WHERE c.name = $1 ORDER BY r.n
"""
_AFTER = f"""
SELECT w.name, c.epoch, r.n, r.tick, r.id, r.kind, r.data, r.before
FROM unnest($1::text[], $2::text[], $3::bigint[]) AS w (name, epoch, n)
LEFT JOIN citewire.channel AS c ON c.name = w.name AND c.epoch = w.epoch AND w.n BETWEEN c.floor AND c.n
LEFT JOIN LATERAL ({_ROWS.format(after="w.n", limit="$4")}) AS r ON true ORDER BY r.n
"""
_GET = """
SELECT epoch, l.n, l.tick, id, kind, data, before
FROM citewire.channel AS c JOIN citewire.log AS l ON l.channel = c.no
WHERE name = $1 AND id = $2 AND l.n > floor
"""
_NAMED = _PAGE.format(
    size="data", order="id", bytes=PAGE_BYTES,
    rows="""SELECT epoch, l.n, l.tick, id, kind, data, before
    FROM citewire.channel AS c JOIN citewire.log AS l ON l.channel = c.no
    WHERE name = $1 AND id > $2 AND id < $3 AND l.n > floor ORDER BY id LIMIT $4""",
)  # fmt: skip
_ERASED = """
SELECT no, at, name, epoch, floor, floor_tick, floor_hash, n, tick, hash FROM citewire.erased
WHERE no > $1 AND starts_with(name, $2) ORDER BY no LIMIT $3
"""
_LINKS = """
SELECT l.n, l.tick, kind, content, before FROM citewire.erased AS e JOIN citewire.link AS l ON l.erased = e.no
WHERE epoch = $1 AND l.n > $2 ORDER BY l.n LIMIT $3
"""
_SEEK = """
SELECT epoch, floor_tick, tick, lost_to, citewire.last_at(no, floor, n, $2) AS n
FROM citewire.channel WHERE name = $1
"""
_VALUES = """
SELECT key, value FROM citewire.channel AS c JOIN citewire.slot AS s ON s.channel = c.no
WHERE name = $1 AND key = ANY ($2::text[])
"""
_SLOTS = """
SELECT key, value FROM citewire.channel AS c JOIN citewire.slot AS s ON s.channel = c.no
WHERE name = $1 AND key > $2 AND key < $3 ORDER BY key {way} LIMIT $4
"""
_UP, _DOWN = (
    _PAGE.format(size="value", order=f"key {way}", bytes=PAGE_BYTES, rows=_SLOTS.format(way=way))
    for way in ("ASC", "DESC")
)
_LARGEST = 2**62


class PostgresLog:
    """`Log`, and the read operations of `Slots`. `seen` records the latest rows that were returned."""

    def __init__(self, db: Database, seen: SeenHeads) -> None:
        self.db, self._seen = db, seen
        self._closed = False

    async def read(self, channel: str, after: Cursor | None = None, limit: int = 1000) -> tuple[Row, ...]:
        """See `Log`."""
        check_name(channel)
        found = await self._fetch(
            _READ, channel, _number(after.n) if after else 0, max(1, clamp_limit(limit))
        )
        if after:
            end = Cursor(found[0]["epoch"], found[0]["upto"]) if found else None
            check_cursor(after, end, found[0]["floor"] if found else 0)
        if not clamp_limit(limit) or not found or found[0]["n"] is None:
            return ()
        rows = tuple(Row(epoch, *row) for epoch, _, _, *row in found)
        self._seen.record_head(head_at(channel, rows[-1]))
        return rows

    async def after(self, cursors: Mapping[str, Cursor], limit: int) -> dict[str, Sequence[Row] | None]:
        """See `hub.SharedStore`."""
        epochs, numbers = ([getattr(each, name) for each in cursors.values()] for name in ("epoch", "n"))
        rows: dict[str, list[Row]] = {}
        for name, epoch, *row in await self._fetch(
            _AFTER, list(cursors), epochs, numbers, clamp_limit(limit)
        ):
            if epoch is not None:
                rows.setdefault(name, []).extend([Row(epoch, *row)] if row[0] is not None else [])
        for name, new in rows.items():
            if new:
                self._seen.record_head(head_at(name, new[-1]))
        return {name: rows.get(name) for name in cursors}

    async def get(self, channel: str, id: str) -> Row | None:  # noqa: A002
        """See `Log`."""
        check_name(channel)
        check_name(id)
        found = await self._fetch(_GET, channel, id)
        return Row(*found[0]) if found else None

    async def head(self, channel: str) -> Head | None:
        """See `Log`."""
        check_name(channel)
        found = await self._fetch(_HEAD, channel)
        return Head(*found[0]) if found else None

    async def heads(self, prefix: str, after: str = "", limit: int = 1000) -> tuple[Head, ...]:
        """See `Log`."""
        check_prefix(prefix)
        check_prefix(after)
        found = await self._fetch(_HEADS, prefix, after, _end_of_prefix(prefix), clamp_limit(limit))
        return tuple(Head(*row) for row in found)

    async def floor(self, channel: str) -> Head | None:
        """See `Log`."""
        check_name(channel)
        found = await self._fetch(_FLOOR, channel)
        return Head(*found[0]) if found else None

    async def extents(self, after: str = "", limit: int = 1000) -> tuple[Extent, ...]:
        """See `Log`."""
        check_prefix(after)
        return tuple(Extent(*row) for row in await self._fetch(_EXTENTS, after, clamp_limit(limit)))

    async def chains(self, channels: Sequence[str]) -> tuple[Chain, ...]:
        """See `Log`."""
        return tuple(
            Chain(Head(name, epoch, *ends[:3]), Head(name, epoch, *ends[3:]))
            for name, epoch, *ends in await self._fetch(_CHAINS, [*channels])
        )

    @asynccontextmanager
    async def snapshot(self) -> AsyncGenerator[PostgresLog]:
        """See `Log`: a read-only transaction on a connection of its own."""
        self._ask()
        db = await connect(self.db.dsn)
        try:
            with translate_errors("read"):
                await db.transaction(isolation="repeatable_read", readonly=True).start()
                await db.fetchval("SELECT 1")  # the snapshot is taken at the first statement
            async with deadline():
                yield _Snapshot(self.db, db)
        finally:
            db.terminate()

    async def erased(self, prefix: str, after: int = 0, limit: int = 1000) -> tuple[ErasedChannel, ...]:
        """See `Log`."""
        check_prefix(prefix)
        found = await self._fetch(_ERASED, _number(after), prefix, clamp_limit(limit))
        return tuple(
            ErasedChannel(no, at, Head(name, epoch, *ends[:3]), Head(name, epoch, *ends[3:]))
            for no, at, name, epoch, *ends in found
        )

    async def links(self, epoch: str, after: int = 0, limit: int = 1000) -> tuple[ChainLink, ...]:
        """See `Log`."""
        check_name(epoch)
        return tuple(
            ChainLink(*row) for row in await self._fetch(_LINKS, epoch, _number(after), clamp_limit(limit))
        )

    async def seek(self, channel: str, serial: str) -> Cursor:
        """See `Slots`. Serials from before a restore of an older copy are lost: their rows may be missing."""
        check_name(channel)
        tick, series = tick_of(serial)
        found = await self._fetch(_SEEK, channel, tick)
        for epoch, floor_tick, last, lost_to, n in found:
            if series == series_of(epoch) and max(floor_tick, lost_to + 1) <= tick <= last:
                return Cursor(epoch, n)
        raise CursorLost(f"the log does not go on from {serial}")

    async def values(self, channel: str, keys: Sequence[str]) -> SlotValues:
        """See `Slots`."""
        asked = check_keys(channel, keys)
        return dict.fromkeys(asked) | dict(await self._fetch(_VALUES, channel, asked))

    async def slots(
        self, channel: str, after: str, before: str, limit: int = 1000, *, reverse: bool = False
    ) -> tuple[Slot, ...]:
        """See `Slots`."""
        span = check_span(channel, after, before)
        found = await self._fetch(_DOWN if reverse else _UP, *span, clamp_limit(limit))
        return tuple(Slot(key, value) for key, value, _ in found)

    async def rows_by_id(self, channel: str, after: str, before: str, limit: int = 1000) -> tuple[Row, ...]:
        """See `Slots`."""
        span = check_span(channel, after, before)
        found = await self._fetch(_NAMED, *span, clamp_limit(limit))
        return tuple(Row(*row) for *row, _ in found)

    async def close(self) -> None:
        """See `Log`."""
        self._closed = True
        await self.db.close()

    async def _fetch(self, sql: str, *args: object) -> list[Any]:
        self._ask()
        return await self.db.fetch(sql, *args)

    def _ask(self) -> None:
        if self._closed:
            raise StoreError("the store is closed")


class _Snapshot(PostgresLog):
    """Reads everything in one transaction. The creator closes the connection."""

    def __init__(self, db: Database, connection: Any) -> None:
        super().__init__(db, SeenHeads())
        self._connection = connection

    async def _fetch(self, sql: str, *args: object) -> list[Any]:
        with translate_errors("read"):
            return await self._connection.fetch(sql, *args)

    async def close(self) -> None:
        """Do nothing: the creator closes the connection."""


def _number(n: int) -> int:
    """Clamp a number so that it fits a Postgres bigint; no channel has that many rows."""
    return max(-1, min(n, _LARGEST))


def _end_of_prefix(prefix: str) -> str | None:
    """Return the first text after all texts with this prefix, in code point order, or None."""
    for at in reversed(range(len(prefix))):
        if (point := ord(prefix[at])) < 0x10FFFF:
            return prefix[:at] + chr(0xE000 if point == 0xD7FF else point + 1)
    return None
