"""The sources of a server, and references to their bytes: a fold of the channel `sources`.

| kind | data |
|---|---|
| `added` | a `StoredSource`: a new source, or its new version, and who added it |
| `removed` | `{id, at, by}` |
| `cited` | `{sha256, thread}`: a verdict of this thread refers to these bytes |
| `uncited` | `{thread}`: this thread no longer refers to any bytes |
"""

from __future__ import annotations

import hashlib
import re
import sys
import unicodedata
from pathlib import Path, PurePath
from typing import Literal, TypeAlias

from msgspec import Struct, json
from msgspec.structs import replace

from citewire.channels.actor import Actor
from citewire.channels.store import Row
from citewire.errors import InputError
from citewire.server.sources.folder_scan import FileStamp
from citewire.verification.sources import SourceContent

__all__ = [
    "CHANNEL", "CitedBytes", "ForgottenThread", "LONGEST_NAME", "Origin", "RemovedSource", "SourceVersion",
    "StoredSource", "StoredSources", "clean_name", "safe_name", "source_id_of",
]  # fmt: skip

CHANNEL = "sources"
LONGEST_NAME = 200
_PARTS = re.compile(r"[/\\]")

Origin: TypeAlias = Literal["upload", "url", "folder"]


class StoredSource(Struct, frozen=True, omit_defaults=True):
    """A source. Without a `sha256`, its bytes are unavailable for a `reason`.

    Without `by`, the server itself added it. A source `given` by the settings is removed when they no longer
    name it. For a file, `root` is the path in the settings, and `stamp` tells whether the file has changed.
    """

    id: str
    name: str
    origin: Origin
    added_at: str
    sha256: str | None = None
    size: int = 0
    content_type: str = ""
    url: str | None = None
    also: tuple[str, ...] = ()
    given: bool = False
    root: str | None = None
    stamp: FileStamp | None = None
    reason: str | None = None
    by: Actor | None = None

    def is_same_source(self, other: StoredSource) -> bool:
        """Return whether both are the same source with the same bytes, ignoring who added it and when."""
        return replace(self, added_at=other.added_at, by=other.by) == other

    def at_path(self, path: Path) -> SourceContent:
        """Return the engine's input for this source, with its bytes in this file."""
        return SourceContent(path, self.name, self.url, None, (self.id, *self.also), self.content_type)


class RemovedSource(Struct, frozen=True, omit_defaults=True):
    """The removal of a source: when, and by whom."""

    id: str
    at: str = ""
    by: Actor | None = None


class SourceVersion(Struct, frozen=True, rename="camel"):
    """A version of a source: since when, and by whom. A `removed` one has no bytes."""

    number: int
    at: str
    by: Actor | None
    sha256: str | None
    size: int
    content_type: str
    removed: bool = False


class CitedBytes(Struct, frozen=True):
    """A reference from a thread's verdict to bytes."""

    sha256: str
    thread: str


class ForgottenThread(Struct, frozen=True):
    """The id of a deleted thread."""

    thread: str


# Sets of sources shared between threads; beyond that many, equal sets may be stored several times.
_MOST_SETS = 1000


class StoredSources:
    """The sources by id. `known` maps each sha256 to the sources that had these bytes, as they were then."""

    def __init__(self) -> None:
        self.sources: dict[str, StoredSource] = {}
        self.known: dict[str, dict[str, StoredSource]] = {}
        self.versions: dict[str, list[SourceVersion]] = {}
        """All versions of each source, by its id."""
        self._names: dict[str, str] = {}
        self._held: dict[str, set[str]] = {}
        self._cites: dict[str, set[str]] = {}
        # Most threads cite one of few sets of sources, so equal sets are shared.
        self._threads: dict[str, frozenset[str]] = {}
        self._sets: dict[frozenset[str], frozenset[str]] = {}

    def apply(self, row: Row) -> str | None:
        """Apply a row of the log. Returns the id of the source it concerns, if any."""
        match row.kind:
            case "added":
                return self._add(json.decode(row.data, type=StoredSource))
            case "removed":
                gone = json.decode(row.data, type=RemovedSource)
                self._note(gone.id, gone.at, gone.by, None, removed=True)
                return self._remove(gone.id)
            case "cited":
                cited = json.decode(row.data, type=CitedBytes)
                # Share one string per hash: decoding makes new ones.
                sha256, thread = sys.intern(cited.sha256), cited.thread
                self._cites.setdefault(sha256, set()).add(thread)
                self._threads[thread] = self._shared(self.bytes_cited_by(thread) | {sha256})
            case "uncited":
                thread = json.decode(row.data, type=ForgottenThread).thread
                for sha256 in self._threads.pop(thread, ()):
                    _discard(self._cites, sha256, thread)
            case _:
                pass  # Later versions, which may share the store, may write other kinds.
        return None

    def _shared(self, sha256s: frozenset[str]) -> frozenset[str]:
        if len(self._sets) > _MOST_SETS:
            self._sets.clear()
        return self._sets.setdefault(sha256s, sha256s)

    @property
    def threads(self) -> list[str]:
        """The threads that refer to any bytes."""
        return list(self._threads)

    def bytes_cited_by(self, thread: str) -> frozenset[str]:
        """Return the hashes of the bytes that a thread refers to."""
        return self._threads.get(thread, frozenset())

    def threads_citing(self, source_id: str) -> dict[str, frozenset[str]]:
        """Return the threads that refer to a source, by the sha256 of the version they cite."""
        own = (sha256 for sha256, had in self.known.items() if source_id in had)
        return {sha256: frozenset(self._cites[sha256]) for sha256 in own if sha256 in self._cites}

    def version_of(self, sha256: str, name: str | None) -> tuple[StoredSource, StoredSource | None] | None:
        """Return a source as it was with these bytes, and as it is now, or None if it was removed.

        Among several such sources, prefers one called `name`, then one that still has these bytes.
        """
        had = [*self.known.get(sha256, {}).values()]
        versions = [(held, self.sources.get(held.id)) for held in had if held.name == name]
        versions = versions or [(held, self.sources.get(held.id)) for held in had]
        still = (each for each in versions if each[1] and each[1].sha256 == sha256)
        return next(still, versions[-1] if versions else None)

    def has_bytes(self, sha256: str) -> bool:
        """Return whether a source has these bytes."""
        return sha256 in self._held

    def needs(self, sha256: str) -> bool:
        """Return whether a source has these bytes, or a thread refers to them."""
        return sha256 in self._held or sha256 in self._cites

    def free_name(self, source_id: str, wanted: str) -> str:
        """Return a name for a source that no other source has."""
        name, number = wanted, 1
        while self._names.get(name.casefold(), source_id) != source_id:
            number += 1
            path = PurePath(wanted)
            name = str(path.with_name(f"{path.stem} ({number}){path.suffix}"))
        return name

    def _add(self, holding: StoredSource) -> str:
        self._remove(holding.id)
        self._note(holding.id, holding.added_at, holding.by, holding)
        # Two servers may have assigned the same name at once. The order in the log decides.
        holding = replace(holding, name=self.free_name(holding.id, holding.name))
        self.sources[holding.id] = holding
        self._names[holding.name.casefold()] = holding.id
        if holding.sha256:
            self.known.setdefault(holding.sha256, {})[holding.id] = holding
            self._held.setdefault(holding.sha256, set()).add(holding.id)
        return holding.id

    def _note(
        self, source_id: str, at: str, by: Actor | None, held: StoredSource | None, *, removed: bool = False
    ) -> None:
        versions = self.versions.setdefault(source_id, [])
        sha256, size, kind = (held.sha256, held.size, held.content_type) if held else (None, 0, "")
        versions.append(SourceVersion(len(versions) + 1, at, by, sha256, size, kind, removed))

    def _remove(self, source_id: str) -> str:
        if before := self.sources.pop(source_id, None):
            self._names.pop(before.name.casefold(), None)
            _discard(self._held, before.sha256 or "", source_id)
        return source_id


def _discard(sets: dict[str, set[str]], key: str, value: str) -> None:
    left = sets.get(key, set())
    left.discard(value)
    if not left:
        sets.pop(key, None)


def source_id_of(origin: Origin, key: str | bytes) -> str:
    """Derive the id of a source, so that adding the same source again gives the same id."""
    raw = key.encode("utf-8", "surrogateescape") if isinstance(key, str) else key
    return hashlib.sha256(b"%b:%b" % (origin.encode(), raw)).hexdigest()[:24]


def clean_name(text: str) -> str:
    """Remove invisible characters from a name, such as control characters and lone surrogates."""
    shown = "".join(char if unicodedata.category(char)[0] != "C" else " " for char in text)
    return " ".join(unicodedata.normalize("NFC", shown).split())


def safe_name(given: str) -> str:
    """Return an uploaded file's name without folders. Raises `InputError`."""
    name = clean_name(_PARTS.split(given)[-1])
    if not name.strip(". "):
        raise InputError("a source needs a name", "name")
    suffix = PurePath(name).suffix[:16]
    return name if len(name) <= LONGEST_NAME else name[: LONGEST_NAME - len(suffix)] + suffix
