"""Collect what was found as citations: entries of a block, tags, definitions and bare markers."""

from __future__ import annotations

import re
import sys
from typing import Any, cast

from msgspec.structs import replace

from citewire.dialects.base import Json, SourceRegistry
from citewire.dialects.common.marker_records import UniqueIds
from citewire.dialects.deepcitation import NAME
from citewire.dialects.deepcitation.entry import SPELLINGS, EntryFields, metadata_of, read_fields
from citewire.errors import ShapeError
from citewire.extraction.lenient_json import BlockEntry
from citewire.extraction.plain_json import PlainEntry, is_blank
from citewire.keys import CitationKeys
from citewire.model import (
    Citation,
    Lines,
    Native,
    Point,
    Problem,
    Source,
    SourceRef,
    SpanOrigin,
    Times,
)
from citewire.text import one_line

__all__ = ["CitationCollector"]

# Most lines in a list of lines: more no longer describe a place.
_MOST_LINES = 1000
_RANGE = re.compile(r"(\d{1,9})(?:\s*[-–]\s*\D{0,9}(\d{1,9}))?")
_TIME = re.compile(r"(?:\d{1,3}:)?\d{1,2}:\d{2}(?:[.,]\d{1,6})?|\d{1,7}(?:\.\d{1,6})?")
_TIMES = re.compile(rf"\s*({_TIME.pattern})\s*(?:[-–,]|to)\s*({_TIME.pattern})\s*")
_DIGITS = re.compile(r"\d{1,15}")
_TEXTS = frozenset({"fullPhrase", "anchorText", "attachmentId", "title", "domain", "value", "url"})


class CitationCollector:
    """The citations of one text in the order in which they end, their sources, and problems.

    Anything that starts after `limit` is ignored.
    """

    def __init__(self, keys: CitationKeys | None = None, limit: int = sys.maxsize) -> None:
        self.limit = limit
        self.citations: list[Citation] = []
        self.sources = SourceRegistry()
        self.problems: list[Problem] = []
        self.names = UniqueIds()
        self._keys = keys or CitationKeys()
        self._sources: dict[Any, Source] = {}

    def report(self, code: str, at: int, message: str) -> None:
        if at < self.limit:
            self.problems.append(Problem(code, f"$[{at}]", message))

    def add_entry(self, entry: BlockEntry, insert_at: Point | None = None) -> bool:
        """Add an entry; return whether it could be read."""
        fields = self._fields(entry) if entry.start < self.limit else None
        if fields is None:
            return False
        if not entry.whole:
            kept = bool(fields.quote or fields.url)
            message = "cut off; what is whole of it was kept" if kept else "cut off before its quote"
            self.report("cut", entry.start, message)
            if not kept:
                return False
        if entry.repairs:
            self.report("repaired", entry.start, f"not quite JSON: {', '.join(entry.repairs)}")
        self._add(entry.raw, fields, insert_at)
        return True

    def add_all(self, entries: list[PlainEntry], end: int) -> bool:
        """Add valid entries, unless they go past the limit."""
        if end > self.limit:
            return False
        for raw, fields in entries:
            self._add(raw, fields, None)
        return True

    def add(self, ref: SourceRef, source: Source, ordinal: int | None) -> None:
        """Add the target of a definition or a bare marker."""
        key = self._keys.assign(ref, source)
        source_id = self.sources.add(source.kind, source.url, source.title, record_id=source.record_id)
        self.citations.append(Citation(self.names.assign(key), (replace(ref, source_id=source_id),), ordinal))

    def _add(self, raw: Json, fields: EntryFields, insert_at: Point | None) -> None:
        source, lines = self._source(fields), fields.locator
        keyed = ref = SourceRef(source.id, lines, fields.quote, fields.anchor)
        if isinstance(lines, Lines) and (ids := sorted(lines.ids)) != [*lines.ids]:
            # The published key has the lines in order.
            keyed = replace(ref, locator=Lines(tuple(ids), lines.page))
        name = self.names.assign(self._keys.assign(keyed, source))
        native = Native(NAME, raw, len(self.citations), None, fields)
        origin: SpanOrigin = "exact" if insert_at else "unknown"
        self.citations.append(
            Citation(name, (ref,), fields.number, None, None, insert_at, origin, None, native)
        )

    def _source(self, fields: EntryFields) -> Source:
        identity = fields[4:]
        known = self._sources.get(identity)
        if known is None:
            kind, file_id, url, title, domain, extras = identity
            extras = metadata_of(kind, extras)
            name = self.sources.add(fields.kind, url, title, file_id=file_id, domain=domain, metadata=extras)
            known = Source(name, fields.kind, url, title, file_id=file_id, domain=domain)
            self._sources[identity] = known
        return known

    def _fields(self, entry: BlockEntry) -> EntryFields | None:
        try:
            fields = read_fields(entry.raw, entry.group)
        except ShapeError:
            fields = self._mended(entry)
        if fields is not None and isinstance(fields.locator, Times):
            fields = self._timed(fields, entry.start)
        if fields is not None and is_blank(fields.quote):
            fields = fields._replace(quote=None)
        return fields

    def _mended(self, entry: BlockEntry) -> EntryFields | None:
        """Repair an entry with values of the wrong type; values that can be interpreted stay."""
        raw = {key: _mend(SPELLINGS.get(key, key), value) for key, value in entry.raw.items()}
        while True:
            try:
                return read_fields(raw, entry.group)
            except ShapeError as exc:
                field = exc.path.removeprefix(".")
                field = field if field in raw else "type"
                code = exc.code if field in raw else "no_citation"
                self.report(
                    code, entry.start, f"{one_line(field, 40)} left out: {one_line(exc.message, 200)}"
                )
                if raw.pop(field, None) is None:
                    return None

    def _timed(self, fields: EntryFields, at: int) -> EntryFields:
        times = fields.locator
        if isinstance(times, Times) and not all(
            end is None or _TIME.fullmatch(end) for end in (times.start, times.end)
        ):
            self.report("bad_shape", at, "timestamps left out: not HH:MM:SS.mmm")
            return fields._replace(locator=None)
        return fields


def _mend(name: str, value: Any) -> Any:
    """Convert a value of the wrong type to what it means."""
    match name, value:
        case "citationNumber", float() if value.is_integer():
            return int(value)
        case "citationNumber", str() if digits := _DIGITS.search(value):
            return int(digits[0])
        case "lineIds", str() | list():
            return _lines(value)
        case "startPageId" | "pageNumber", float() if value.is_integer():
            return int(value)
        case "timestamps", str() if times := _TIMES.fullmatch(value):
            return {"startTime": times[1], "endTime": times[2]}
        case "timestamps", [start, end]:
            return {"startTime": _time(start), "endTime": _time(end)}
        case "timestamps", dict():
            return {key: _time(at) for key, at in cast("Json", value).items()}
        case _, int() | float() if name in _TEXTS and not isinstance(value, bool):
            return str(value)
        case _:
            return value


def _lines(value: Any) -> list[int]:
    """Parse `5, 43-47` and similar; a backward range gives its start."""
    lines: list[int] = []
    said = value if isinstance(value, str) else ",".join(map(str, value[:_MOST_LINES]))
    for found in _RANGE.finditer(said):
        first = int(found[1])
        last = int(found[2]) if found[2] else first
        lines += range(first, min(max(first, last), first + _MOST_LINES) + 1)
    return lines[:_MOST_LINES]


def _time(value: Any) -> Any:
    """Format seconds as `HH:MM:SS.mmm`."""
    if type(value) not in (int, float) or not 0 <= value < 1e7:
        return value
    minutes, seconds = divmod(round(value * 1000), 60_000)
    return f"{minutes // 60:02}:{minutes % 60:02}:{seconds // 1000:02}.{seconds % 1000:03}"
