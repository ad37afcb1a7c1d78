"""Find the versions of sources that verdicts refer to, and compare them with the record."""

from __future__ import annotations

import asyncio
import hashlib
from typing import Literal, Protocol, TypeAlias

from msgspec import Struct

from citewire.documents.document import Document
from citewire.documents.draw import Crop
from citewire.documents.errors import DocumentError
from citewire.server.sources.stored_sources import StoredSource
from citewire.server.storage.blobs import Blobs
from citewire.verification.engine import Engine
from citewire.verification.reader_pool import TooManyReads
from citewire.verification.source_reading import SourceReading

__all__ = ["CheckedVersion", "CheckedVersions", "KnownSources", "VersionState"]

VersionState: TypeAlias = Literal[
    "unchanged", "changed", "removed", "unavailable", "not_kept", "gone", "damaged", "reads_differently"
]
"""Where the checked version is intact, what became of the source since: `unchanged`, `changed`, `removed`, or
`unavailable` where it came from. Else what is wrong with the checked version: `not_kept` if its
bytes were never a source of the server, `gone` if they were; `damaged` if their SHA-256 is not that of the
verdict, `reads_differently` if that of their text is not."""


class CheckedVersion(Struct, frozen=True):
    """What is left of a checked version of a source. It has a `document` if it is intact."""

    state: VersionState
    document: Document | None = None


class KnownSources(Protocol):
    """**Protocol:** looks up current and former sources."""

    async def version_of(
        self, sha256: str, name: str | None
    ) -> tuple[StoredSource, StoredSource | None] | None:
        """Return the source `name` as it was with these bytes, and as it is now. None if none had them."""
        ...

    def reading_of(self, held: StoredSource) -> SourceReading | None:
        """Return the reading of this version, if it is the current one."""
        ...

    async def draw(self, sha256: str, crop: Crop) -> bytes:
        """See `proof_api.VersionFinder`."""
        ...


class CheckedVersions:
    """The checked versions of `sources`, with their bytes in `blobs` and their text in the engine's cache."""

    def __init__(self, sources: KnownSources, blobs: Blobs, engine: Engine) -> None:
        self._sources, self._blobs, self._engine = sources, blobs, engine
        # Bytes that were read again because their cached text differed from the record.
        self._read_again: set[str] = set()

    async def find(self, sha256: str, name: str | None, text_sha256: str | None) -> CheckedVersion:
        """Find the version of the source `name` with these bytes and this text. Both hashes are recomputed.

        Raises `StoreError`.
        """
        known = await self._sources.version_of(sha256, name)
        if known is None:
            return CheckedVersion("not_kept")
        held, now = known
        if await self._blobs.fetch(sha256) is None:
            return CheckedVersion("gone")
        if not await self._blobs.is_intact(sha256):
            return CheckedVersion("damaged")
        try:
            document = await self._document(held, sha256, text_sha256)
        except DocumentError:
            document = None
        return (
            CheckedVersion(_state(sha256, now), document) if document else CheckedVersion("reads_differently")
        )

    async def draw(self, sha256: str, crop: Crop) -> bytes:
        """See `proof_api.VersionFinder`."""
        return await self._sources.draw(sha256, crop)

    async def _document(self, held: StoredSource, sha256: str, text_sha256: str | None) -> Document | None:
        """Return the document with these bytes, if its text is the one on record."""
        given = held.at_path(self._blobs.path(sha256))
        reading = self._sources.reading_of(held)
        document = await self._engine.load_cached(reading) if reading else None
        document = document or await self._engine.load(given)
        if not _is(document, sha256, text_sha256) and sha256 not in self._read_again:
            # Either the cache is damaged, or a newer reader extracts a different text from the same bytes.
            self._read_again.add(sha256)
            try:
                document = await self._engine.load(given, anew=True)
            except (asyncio.CancelledError, TooManyReads):
                # The caller left, or has too many sources waiting: the next request reads it again.
                self._read_again.discard(sha256)
                raise
        return document if _is(document, sha256, text_sha256) else None


def _is(document: Document, sha256: str, text_sha256: str | None) -> bool:
    """Return whether a document is the one on record. Older verdicts have no hash of the text."""
    if document.sha256 != sha256:
        return False
    text = document.text.encode("utf-8", "surrogatepass")
    return text_sha256 is None or hashlib.sha256(text).hexdigest() == text_sha256


def _state(sha256: str, now: StoredSource | None) -> VersionState:
    if now is None:
        return "removed"
    if now.sha256 is None:
        return "unavailable"
    return "unchanged" if now.sha256 == sha256 else "changed"
