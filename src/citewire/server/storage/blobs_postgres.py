"""Bytes of sources in a shared Postgres database. Each server keeps copies of those it needs."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from pathlib import Path

from citewire.channels.postgres_database import Database
from citewire.channels.store import StoreError
from citewire.server.storage.blobs import BlobDraft, Blobs

__all__ = ["PostgresBlobs"]

# Size of a part in bytes. The database handles each part as one value.
PART = 1 << 20
# Seconds for which touched bytes are protected from deletion. By then the log says who needs them.
_GRACE = 600
# Limit on concurrent transfers. Each takes one of few connections.
_AT_ONCE = 2


class PostgresBlobs(Blobs):
    """The bytes of one `room` of the database, with local copies in `folder`.

    Recently touched bytes are never deleted, so servers need not know of each other's uploads.
    """

    def __init__(self, folder: Path, db: Database, room: str) -> None:
        super().__init__(folder)
        self._db, self._room = db, room
        self._ways = asyncio.Semaphore(_AT_ONCE)

    async def share(self, draft: BlobDraft) -> None:
        """See `Blobs`."""
        async with self._ways:
            if not await self.touch([draft.sha256]):
                await self._send(draft)

    async def fetch(self, sha256: str) -> Path | None:
        """See `Blobs`."""
        path = await super().fetch(sha256)
        if path is None:
            async with self._ways:
                path = await super().fetch(sha256) or await self._fetch(sha256)
        return path

    async def is_intact(self, sha256: str) -> bool:
        """See `Blobs`. A damaged copy is downloaded again."""
        if await super().is_intact(sha256):
            return True
        await super().delete([sha256])
        return await self.fetch(sha256) is not None

    async def touch(self, sha256s: Collection[str]) -> set[str]:
        """See `Blobs`."""
        # Lock rows in a fixed order, or two concurrent calls could deadlock.
        rows = await self._db.fetch(
            "WITH found AS (SELECT sha256 FROM citewire.blob WHERE room = $1 AND sha256 = ANY($2)"
            " ORDER BY sha256 FOR UPDATE) UPDATE citewire.blob AS b SET touched = now() FROM found"
            " WHERE b.room = $1 AND b.sha256 = found.sha256 RETURNING b.sha256",
            self._room, [*sha256s],
        )  # fmt: skip
        return {row["sha256"] for row in rows}

    async def delete(self, sha256s: Collection[str]) -> set[str]:
        """See `Blobs`."""
        await super().delete(sha256s)
        if not sha256s:
            return set()
        await self._db.execute(
            "WITH loose AS (SELECT sha256 FROM citewire.blob WHERE room = $1 AND sha256 = ANY($2)"
            " AND touched < now() - make_interval(secs => $3) ORDER BY sha256 FOR UPDATE)"
            " DELETE FROM citewire.blob AS b USING loose WHERE b.room = $1 AND b.sha256 = loose.sha256",
            self._room, [*sha256s], _GRACE,
        )  # fmt: skip
        left = await self._db.fetch(
            "SELECT sha256 FROM citewire.blob WHERE room = $1 AND sha256 = ANY($2)", self._room, [*sha256s]
        )
        return {row["sha256"] for row in left}

    async def list_hashes(self) -> set[str]:
        """See `Blobs`."""
        rows = await self._db.fetch("SELECT sha256 FROM citewire.blob WHERE room = $1", self._room)
        return await super().list_hashes() | {row["sha256"] for row in rows}

    async def _send(self, draft: BlobDraft) -> None:
        """Upload the bytes in one transaction. Of two concurrent uploads of the same bytes, one waits."""
        async with self._db.connection() as db, db.transaction():
            is_new = await db.fetchval(
                "INSERT INTO citewire.blob (room, sha256, size) VALUES ($1, $2, $3)"
                " ON CONFLICT (room, sha256) DO UPDATE SET touched = now() RETURNING xmax = 0",
                self._room, draft.sha256, draft.size,
            )  # fmt: skip
            for part in range(-(-draft.size // PART) if is_new else 0):
                data = await asyncio.to_thread(_piece, draft.path, part)
                await db.execute(
                    "INSERT INTO citewire.blob_part (room, sha256, part, data) VALUES ($1, $2, $3, $4)",
                    self._room, draft.sha256, part, data,
                )  # fmt: skip

    async def _fetch(self, sha256: str) -> Path | None:
        found = await self._db.fetch(
            "SELECT size FROM citewire.blob WHERE room = $1 AND sha256 = $2", self._room, sha256
        )
        if not found:
            return None
        async with self.draft() as draft:
            for part in range(-(-found[0]["size"] // PART)):
                parts = await self._db.fetch(
                    "SELECT data FROM citewire.blob_part WHERE room = $1 AND sha256 = $2 AND part = $3",
                    self._room, sha256, part,
                )  # fmt: skip
                if not parts:
                    return None  # deleted in the meantime
                await draft.write(parts[0]["data"])
            await draft.finish()
            if draft.sha256 != sha256:
                raise StoreError("the bytes of a source are damaged in the database")
            await super().keep(draft)
        return self.path(sha256)


def _piece(path: Path, part: int) -> bytes:
    with path.open("rb") as file:
        file.seek(part * PART)
        return file.read(PART)
