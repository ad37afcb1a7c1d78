"""Reads every form of a payload into answers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from operator import is_
from typing import Any, NamedTuple

from msgspec.structs import replace

from citewire.dialects.base import (
    DialectOptions,
    Json,
    ProblemList,
    SourceRegistry,
    get_at,
    is_object,
    optional,
    path_text,
)
from citewire.dialects.common.marker_records import UniqueIds
from citewire.dialects.deepcitation.block import (
    HiddenBlock,
    UnreadEntries,
    is_safe_key,
    read_block,
    split_text,
)
from citewire.dialects.deepcitation.entry import BLOCK_START, NAME, EntryFields, metadata_of, read_fields
from citewire.dialects.deepcitation.verdict import read_verdict
from citewire.errors import ShapeError
from citewire.keys import CitationKeys
from citewire.markers import find_markers
from citewire.model import Answer, Citation, Native, Part, SourceRef, Span, Verification

_Path = tuple[str, ...]
PrintedNumbers = dict[tuple[int, int], tuple[int, ...]]
_MARKERS = ("number", "cite")
# The most entries that one number can mean: a claim has few sources, and the work stays linear.
MAX_SHARED_ENTRIES = 16


class UnreadRecords(NamedTuple):
    """What could not be read: keys of citations and verdicts, and block entries by attachment."""

    citations: frozenset[Any]
    verdicts: frozenset[Any]
    entries: UnreadEntries


class ReadSnapshot(NamedTuple):
    """The state of an answer when it was read. `in_block` counts the entries if they are in data blocks."""

    id: str | None
    text: str | None
    hidden: tuple[HiddenBlock, ...]
    in_block: int | None
    values: tuple[Any, ...]

    def is_still(self, answer: Answer) -> bool:
        """Whether the answer is unmodified: its values are the same objects that were read."""
        values = (answer.parts, answer.citations, answer.sources)
        return answer.id == self.id and all(map(is_, values, self.values))


def detect(payload: Any) -> bool:
    if not is_object(payload):
        return False
    if is_object(data := payload.get("data")):
        payload = data
    text, cited = payload.get("text"), payload.get("citations")
    if is_object(payload.get("verifications")):
        return True
    if is_object(cited):
        return is_object(next(iter(cited.values()))) if cited else isinstance(text, str)
    return isinstance(text, str) and BLOCK_START in text


def read_all(payload: Any, options: DialectOptions) -> tuple[Answer, ...]:
    if not is_object(payload):
        raise ShapeError("not an object")
    if is_object(messages := payload.get("messages")) and messages:
        return _read_messages(payload, messages, options)
    path = ("data",) if is_object(payload.get("data")) else ()
    record: Json = get_at(payload, path)
    if not {"citations", "verifications", "text"} & record.keys():
        raise ShapeError("neither citations nor verifications nor text", path_text(path))
    return (_read(payload, path, options, ProblemList()),)


def _read_messages(payload: Json, messages: Json, options: DialectOptions) -> tuple[Answer, ...]:
    problems = ProblemList()
    answers: list[Answer] = []
    for name, record in messages.items():
        if is_object(record) and is_safe_key(name):
            answers.append(_read(payload, ("messages", name), options, problems))
            problems = ProblemList()
        else:
            problems.add(f"$.messages.{name}", ShapeError("is not an object, or under an unsafe key", ""))
    if not answers:
        raise ShapeError("no message is an object", "$.messages")
    answers[-1] = replace(answers[-1], problems=(*answers[-1].problems, *problems))
    return tuple(answers)


def _read(payload: Json, path: _Path, options: DialectOptions, problems: ProblemList) -> Answer:
    record: Json = get_at(payload, path)
    where = path_text(path)
    text = optional(record, "text", str, where)
    text = options.text if text is None else text
    visible, hidden = (None, ()) if text is None else split_text(text)
    reader = _Reader(where, optional(record, "attachmentId", str, where), problems)
    reader.verdicts = optional(record, "verifications", dict, where) or {}
    cited = optional(record, "citations", dict, where)
    in_block = None
    if cited is not None:
        reader.read_record(cited)
    elif hidden:
        in_block = reader.read_blocks(hidden)
    reader.read_orphans(cited or {})
    name = optional(record, "messageId", str, where)
    if name is None and path[:1] == ("messages",):
        name = path[-1]
    parts = () if visible is None else (Part(visible),)
    citations, sources = tuple(_citations(reader.entries, visible)), tuple(reader.sources)
    kept = UnreadRecords(frozenset(reader.kept), frozenset(reader.kept_verdicts), tuple(reader.kept_entries))
    was = ReadSnapshot(name, visible, hidden, in_block, (parts, citations, sources))
    return Answer(parts, citations, sources, name, tuple(problems), Native(NAME, payload, path, kept, was))


class _Entry(NamedTuple):
    key: str
    number: int | None
    refs: tuple[SourceRef, ...]
    native: Native
    verdict: Verification | None


class _Reader:
    def __init__(self, where: str, attachment: str | None, problems: ProblemList) -> None:
        self.where = where
        self.attachment = attachment
        self.problems = problems
        self.verdicts: Json = {}
        self.sources = SourceRegistry()
        self.entries: list[_Entry] = []
        self.kept: set[Any] = set()
        self.kept_verdicts: set[Any] = set()
        self.kept_entries: list[tuple[str | None, Any]] = []
        self._source_ids: dict[Any, str] = {}

    def read_record(self, cited: Json) -> None:
        for key, raw in cited.items():
            fields = self._guard(("citations", key), key, read_fields, raw, self.attachment)
            if fields is None:
                self.kept.add(key)
                self.kept_verdicts.add(key)
            else:
                self._add(key, fields, Native(NAME, raw, key, was=fields), self._verdict(key))

    def read_blocks(self, hidden: tuple[HiddenBlock, ...]) -> int | None:
        """Read the data blocks and return their number of entries, None if they are unreadable."""
        groups: list[tuple[str | None, list[Any]]] = []
        for block in hidden:
            found = self.problems.try_read(lambda: f"{self.where}.text", read_block, block.body)
            if found is None:
                return None
            groups += found
        keys, names = CitationKeys(), UniqueIds()
        for group, raws in groups:
            path = ("text",) if group is None else ("text", group)
            for number, raw in enumerate(raws):
                attachment = group or self.attachment
                fields = self._guard((*path, number), group or "", read_fields, raw, attachment)
                if fields is None:
                    self.kept_entries.append((group, raw))
                    continue
                key = names.assign(fields.key(keys, in_block=True))
                self._add(key, fields, Native(NAME, raw, len(self.entries), was=fields), self._verdict(key))
        return len(self.entries)

    def read_orphans(self, cited: Json) -> None:
        """Read verdicts without an entry in the record: the verdict contains it, or it is unknown."""
        known = {entry.key for entry in self.entries} | cited.keys()
        for key, raw in self.verdicts.items():
            if key in known or (verdict := self._verdict(key)) is None:
                continue
            inner, fields = raw.get("citation"), None
            if inner is not None:
                path = ("verifications", key, "citation")
                fields = self._guard(path, key, read_fields, inner, self.attachment)
            if fields is None and inner is not None:
                self.kept_verdicts.add(key)
            else:
                self._add(key, fields, Native(NAME, inner, key, was=fields), verdict)

    def _guard(self, path: tuple[Any, ...], key: Any, read: Any, *args: Any) -> Any:
        def where() -> str:
            return self.where + path_text(path)[1:]

        if is_safe_key(key):
            return self.problems.try_read(where, read, *args)
        self.problems.add(where(), ShapeError("the key is unsafe", ""))
        return None

    def _verdict(self, key: Any) -> Verification | None:
        if key not in self.verdicts:
            return None
        verdict = self._guard(("verifications", key), key, read_verdict, self.verdicts[key])
        if verdict is None:
            self.kept_verdicts.add(key)
        return verdict

    def _add(
        self, key: str, fields: EntryFields | None, native: Native, verdict: Verification | None
    ) -> None:
        if fields is None:
            self.entries.append(_Entry(key, None, (), native, verdict))
            return
        source_id = self._source_ids.get(fields[4:])
        if source_id is None:
            source_id = self._source_ids[fields[4:]] = self.sources.add(
                fields.kind,
                fields.url,
                fields.title,
                file_id=fields.file_id,
                domain=fields.domain,
                metadata=metadata_of(fields.type, fields.extras),
            )
        self.entries.append(_Entry(key, fields.number, (fields.ref(source_id),), native, verdict))


def _citations(entries: list[_Entry], text: str | None) -> Iterator[Citation]:
    """Yield a citation for each marker of an entry; an entry without markers gives one without a position."""
    uses = {} if text is None else _uses(text, [entry.number for entry in entries])
    names = UniqueIds()
    for entry in entries:
        names.assign(entry.key)
    for place, (key, number, refs, native, verdict) in enumerate(entries):
        if place not in uses:
            yield Citation(key, refs, number, verification=verdict, native=native)
            continue
        for use, marker in enumerate(uses[place]):
            name = names.assign(key) if use else key
            yield Citation(name, refs, number, None, marker, None, "exact", verdict, native)


def _uses(text: str, numbers: list[int | None]) -> dict[int, list[Span]]:
    """Return the markers of each entry that has some, by its index in `numbers`."""
    places: dict[int, list[int]] = defaultdict(list)
    for place, number in enumerate(numbers):
        if number is not None and len(places[number]) < MAX_SHARED_ENTRIES:
            places[number].append(place)
    uses: dict[int, list[Span]] = defaultdict(list)
    for (start, end), labels in find_printed_numbers(text, places.keys()).items():
        span = Span(0, start, end)
        for label in labels:
            for place in places.get(label, ()):
                uses[place].append(span)
    return uses


def find_printed_numbers(text: str, known: Iterable[int]) -> PrintedNumbers:
    """Return the markers in the text and the numbers in each."""
    names = set(map(str, known))
    return {
        (marker.start, marker.end): tuple(dict.fromkeys(map(int, marker.labels)))
        for marker in find_markers(text, names)
        if marker.kind in _MARKERS
    }
