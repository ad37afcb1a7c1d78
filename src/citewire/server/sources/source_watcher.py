"""Import the sources that the settings name (files, folders and URLs) and follow their changes.

Folders are polled instead of watched through the operating system. Polling also works on network drives and
in containers, and does not run into limits on watches. If several servers name the same folder, one of them
polls it; when that server stops, another takes over.
"""

from __future__ import annotations

import asyncio
import logging
import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from citewire.channels.lease import Leases
from citewire.server.ops.settings import Settings
from citewire.server.ops.timestamps import now_iso
from citewire.server.sources.folder_scan import FileStamp, FoundFile, open_file, scan_folders, stamp_of
from citewire.server.sources.stored_sources import (
    LONGEST_NAME,
    StoredSource,
    clean_name,
    source_id_of,
)
from citewire.verification.reader_pool import run_in_thread

if TYPE_CHECKING:
    from citewire.server.sources.catalog import Catalog

__all__ = ["SourceWatcher"]

_log = logging.getLogger("citewire.sources")
# Seconds between two polls.
_EVERY = 2.0
_PIECE = 1 << 20


class SourceWatcher:
    """Updates the catalog to match the sources in the settings."""

    def __init__(self, catalog: Catalog, settings: Settings, leases: Leases) -> None:
        self._catalog, self._follows, self._leases = catalog, settings.watch, leases
        self._is_alone = settings.dsn is None
        self._paths = [Path(each) for each in settings.sources if "://" not in each]
        self._urls = {source_id_of("url", each): each for each in settings.sources if "://" in each}
        self._stamps: dict[str, FileStamp | None] | None = None
        self.coming: set[str] = set()
        """Sources that are about to be added to the catalog, or have just been added."""
        self._looking = asyncio.Lock()

    async def start(self) -> None:
        """Determine which sources are still to come, and drop URLs that the settings no longer name."""
        held = self._catalog.holdings()
        files = (await run_in_thread(partial(scan_folders, self._paths))).found
        self.coming = {*map(_id, files), *self._urls} - {each.id for each in held}
        for each in held if self._is_alone else ():
            if each.given and each.origin == "url" and each.id not in self._urls:
                await self._catalog.drop(each.id)

    async def is_configured(self, held: StoredSource) -> bool:
        """Return whether a source is named in the settings of this server, or of another running one."""
        name = held.root or held.id
        if self._is_alone or name in self._urls or name in map(_root, self._paths):
            return True
        is_free = await self._leases.take(_lease(name))
        if is_free:
            await self._leases.release(_lease(name))
        return not is_free

    async def run(self) -> None:
        """Import all sources once; then follow their changes, if the settings say so."""
        fetching = asyncio.create_task(self._fetch_all())
        try:
            while self._stamps is None or self._follows:
                try:
                    await self.poll()
                except Exception:  # noqa: BLE001  # the disk is full, say, which may not stay so
                    _log.exception("the sources that the settings name cannot be followed")
                await asyncio.sleep(_EVERY)
            await fetching
        finally:
            fetching.cancel()

    async def poll(self) -> None:
        """Scan the files and folders once.

        A file that has changed since the last poll may still be being written: it waits for the next poll.
        """
        async with self._looking:
            await self._poll()

    async def _poll(self) -> None:
        paths = [path for path in self._paths if await self._leases.take(_lease(_root(path)))]
        seen = await run_in_thread(partial(scan_folders, paths))
        held = {each.id: each for each in self._catalog.holdings()}
        stamps = {_id(found): found.stamp for found in seen.found}
        for found in seen.found:
            if self._stamps is None or self._stamps.get(_id(found)) == found.stamp:
                await self._take(found, held.get(_id(found)))
            self.coming.discard(_id(found))
        # Files in other folders are imported by the server that holds their lease.
        self.coming &= self._urls.keys()
        self._stamps = stamps
        unseen, ours = {_id_of(root) for root in seen.unseen}, {*map(_root, paths)}
        for each in held.values():
            is_ours = each.root is not None and (self._is_alone or each.root in ours)
            if is_ours and each.root not in unseen and each.id not in stamps:
                await self._catalog.drop(each.id)

    async def _take(self, found: FoundFile, held: StoredSource | None) -> None:
        """Import a file, unless it is unchanged."""
        if held and held.sha256 and held.stamp == found.stamp:
            return
        name = clean_name(found.name)[-LONGEST_NAME:] or "unnamed"
        root = _id_of(found.root)
        new = StoredSource(_id(found), name, "folder", now_iso(), given=True, root=root, stamp=found.stamp)
        try:
            if not found.problem:
                await self._copy(found, new)
                return
            problem = found.problem
        except OSError as exc:
            problem = f"it cannot be opened: {exc.strerror}"
        await self._catalog.keep(replace(new, reason=problem))

    async def _copy(self, found: FoundFile, new: StoredSource) -> None:
        with open_file(found.path) as file:
            if stamp_of(file) != found.stamp:
                return
            async with self._catalog.draft() as draft:
                while piece := await asyncio.to_thread(file.read, _PIECE):
                    await draft.write(piece)
                # Discard the copy if the file was written to meanwhile.
                if stamp_of(file) == found.stamp:
                    await self._catalog.keep(new, draft)

    async def _fetch_all(self) -> None:
        """Fetch the URLs that are not stored yet. Failures are retried at the next start."""
        held = {each.id for each in self._catalog.holdings() if each.sha256}
        for source_id, url in self._urls.items():
            if await self._leases.take(_lease(source_id)) and source_id not in held:
                await self._catalog.fetch(url, given=True)
            self.coming.discard(source_id)


def _lease(name: str) -> str:
    """Return the lease under which one of several servers imports a source."""
    return f"given:{name}"


def _root(path: Path) -> str:
    return _id_of(path.absolute())


def _id(found: FoundFile) -> str:
    return _id_of(found.path)


def _id_of(path: Path) -> str:
    return source_id_of("folder", os.fsencode(path))
