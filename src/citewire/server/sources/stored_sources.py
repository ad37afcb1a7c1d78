"""Which sources there are and which of their bytes somebody refers to: a fold of the channel `sources`.

| kind | data |
|---|---|
| `added` | a `Holding`: a source, or what it is from now on, and by whom |
| `removed` | `{id, at, by}` |
| `cited` | `{sha256, thread}`: a verdict of this thread refers to these bytes |
| `uncited` | `{thread}`: none of this thread does any more |
"""

from __future__ import annotations

import hashlib
import re
import sys
import unicodedata
from datetime import UTC, datetime
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
    "StoredSource", "StoredSources", "clean_name", "now_iso", "safe_name", "source_id_of",
]  # fmt: skip

CHANNEL = "sources"
LONGEST_NAME = 200
_PARTS = re.compile(r"[/\\]")

Origin: TypeAlias = Literal["upload", "url", "folder"]


class StoredSource(Struct, frozen=True, omit_defaults=True):
    """A source. Without a `sha256` its bytes could not be had, for a `reason`.

    Without `by` the server has added it itself.
    One `given` by the settings goes when they do not name it any more. Of a file, `root` is what they name,
    and `stamp` says whether it is still the same.
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
        """Whether it is the same source with the same bytes, whoever added it and when."""
        return replace(self, added_at=other.added_at, by=other.by) == other

    def at_path(self, path: Path) -> SourceContent:
        """For the engine, with its bytes in this file."""
        return SourceContent(path, self.name, self.url, None, (self.id, *self.also), self.content_type)


class RemovedSource(Struct, frozen=True, omit_defaults=True):
    """A source that was taken out at a time, by somebody."""

    id: str
    at: str = ""
    by: Actor | None = None


class SourceVersion(Struct, frozen=True, rename="camel"):
    """What a source was from a time on, and who made it so. One that was `removed` has no bytes."""

    number: int
    at: str
    by: Actor | None
    sha256: str | None
    size: int
    content_type: str
    removed: bool = False


class CitedBytes(Struct, frozen=True):
    """Bytes that a verdict refers to."""

    sha256: str
    thread: str


class ForgottenThread(Struct, frozen=True):
    """A thread that is forgotten."""

    thread: str


# Sets of sources that are shared between threads; more are each kept as often as they occur.
_MOST_SETS = 1000


class StoredSources:
    """The sources by their ids; and `known`, by the sha256 of bytes, which sources had them, as they were."""

    def __init__(self) -> None:
        self.sources: dict[str, StoredSource] = {}
        self.known: dict[str, dict[str, StoredSource]] = {}
        self.versions: dict[str, list[SourceVersion]] = {}
        """All that each source ever was, by its id."""
        self._names: dict[str, str] = {}
        self._held: dict[str, set[str]] = {}
        self._cites: dict[str, set[str]] = {}
        # Most threads cite one of few sets of sources, so each set is there once.
        self._threads: dict[str, frozenset[str]] = {}
        self._sets: dict[frozenset[str], frozenset[str]] = {}

    def apply(self, row: Row) -> str | None:
        """Take in what the log says; the id of the source that it is about, if it is about one."""
        match row.kind:
            case "added":
                return self._add(json.decode(row.data, type=StoredSource))
            case "removed":
                gone = json.decode(row.data, type=RemovedSource)
                self._note(gone.id, gone.at, gone.by, None, removed=True)
                return self._remove(gone.id)
            case "cited":
                cited = json.decode(row.data, type=CitedBytes)
                # One string for each: what is decoded makes new ones.
                sha256, thread = sys.intern(cited.sha256), cited.thread
                self._cites.setdefault(sha256, set()).add(thread)
                self._threads[thread] = self._shared(self.bytes_cited_by(thread) | {sha256})
            case "uncited":
                thread = json.decode(row.data, type=ForgottenThread).thread
                for sha256 in self._threads.pop(thread, ()):
                    _discard(self._cites, sha256, thread)
            case _:
                pass  # Later versions may say more, and one of them may share the store.
        return None

    def _shared(self, sha256s: frozenset[str]) -> frozenset[str]:
        if len(self._sets) > _MOST_SETS:
            self._sets.clear()
        return self._sets.setdefault(sha256s, sha256s)

    @property
    def threads(self) -> list[str]:
        """Those that refer to any bytes."""
        return list(self._threads)

    def bytes_cited_by(self, thread: str) -> frozenset[str]:
        """The bytes that a thread refers to."""
        return self._threads.get(thread, frozenset())

    def threads_citing(self, source_id: str) -> dict[str, frozenset[str]]:
        """The threads that refer to a source, by the sha256 of what it was when they did."""
        own = (sha256 for sha256, had in self.known.items() if source_id in had)
        return {sha256: frozenset(self._cites[sha256]) for sha256 in own if sha256 in self._cites}

    def version_of(self, sha256: str, name: str | None) -> tuple[StoredSource, StoredSource | None] | None:
        """A source when it had these bytes, and what it is now, None if it was removed.

        Of several that had them it is one called `name`, and one that still has them, if there is any.
        """
        had = [*self.known.get(sha256, {}).values()]
        versions = [(held, self.sources.get(held.id)) for held in had if held.name == name]
        versions = versions or [(held, self.sources.get(held.id)) for held in had]
        still = (each for each in versions if each[1] and each[1].sha256 == sha256)
        return next(still, versions[-1] if versions else None)

    def has_bytes(self, sha256: str) -> bool:
        """Whether a source has these bytes."""
        return sha256 in self._held

    def needs(self, sha256: str) -> bool:
        """Whether a source has these bytes, or a thread refers to them."""
        return sha256 in self._held or sha256 in self._cites

    def free_name(self, source_id: str, wanted: str) -> str:
        """What a source can be called that no other is called."""
        name, number = wanted, 1
        while self._names.get(name.casefold(), source_id) != source_id:
            number += 1
            path = PurePath(wanted)
            name = str(path.with_name(f"{path.stem} ({number}){path.suffix}"))
        return name

    def _add(self, holding: StoredSource) -> str:
        self._remove(holding.id)
        self._note(holding.id, holding.added_at, holding.by, holding)
        # Two servers may have given a name at the same time. The log says who was first.
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
    """The id of a source: whoever adds the same again finds it there."""
    raw = key.encode("utf-8", "surrogateescape") if isinstance(key, str) else key
    return hashlib.sha256(b"%b:%b" % (origin.encode(), raw)).hexdigest()[:24]


def now_iso() -> str:
    """The time, as records have it."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def clean_name(text: str) -> str:
    """A name without anything that does not show, such as a control character or half a character."""
    shown = "".join(char if unicodedata.category(char)[0] != "C" else " " for char in text)
    return " ".join(unicodedata.normalize("NFC", shown).split())


def safe_name(given: str) -> str:
    """The name of a file that somebody sent, without folders it claims to be in. Raises `InputError`."""
    name = clean_name(_PARTS.split(given)[-1])
    if not name.strip(". "):
        raise InputError("a source needs a name", "name")
    suffix = PurePath(name).suffix[:16]
    return name if len(name) <= LONGEST_NAME else name[: LONGEST_NAME - len(suffix)] + suffix
