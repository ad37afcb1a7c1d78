"""@ngaf/ag-ui: `state.citations`, lists of entries keyed by message id.

The text is in the thread's messages, with `[^id]` markers (`[n]`, by index, is read too). A payload is a
thread `{messages, state}`, a state, a message with its citations, or a list of AG-UI events. Entries have
many spellings; each entry keeps its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import count
from typing import Any, NamedTuple

from msgspec.structs import replace

from citewire.adapt import Adaptation
from citewire.dialects.base import (
    DialectOptions,
    Json,
    ProblemList,
    SourceRegistry,
    get_at,
    interleave,
    is_list,
    is_object,
    native_for,
    optional,
    overlay,
    path_text,
    put_at,
    require,
)
from citewire.dialects.common.extension_fields import (
    EXTENSIBLE_FIELDS,
    EXTENSION_KEY,
    ExtensionFields,
    drop_reserved_key,
    pack,
    unpack,
)
from citewire.dialects.common.marker_records import (
    MarkedRecord,
    MarkerLabels,
    UniqueIds,
    assign_records,
    find_record_markers,
    find_unowned_markers,
    order_by_record,
    rename_records,
    write_markers,
)
from citewire.errors import InputError, ShapeError
from citewire.model import (
    Answer,
    Citation,
    Native,
    Part,
    Source,
    SourceKind,
    SourceRef,
    Span,
    Written,
)
from citewire.patch import apply_patch

NAME = "ngaf"
UPSTREAM = "@ngaf/ag-ui 0.0.47, citations guide at c9326e5"
SUPPORTED_FIELDS = EXTENSIBLE_FIELDS | {"marker", "ordinal"}

_TITLE = ("title", "name")
_URL = ("url", "href", "source")
_SNIPPET = ("snippet", "content", "excerpt")
_ID = ("id", "refId")
_LABEL = re.compile(r"[^\[\]\s]{1,200}")

_Path = tuple[str | int, ...]


class _Slot(NamedTuple):
    """A message with citations: its id, and the paths of its text and entries."""

    id: str | None
    text: _Path | None
    entries: _Path | None


def detect(payload: Any) -> bool:
    if is_list(payload):
        return _is_event_list(payload)
    if not is_object(payload):
        return False
    if is_list(payload.get("messages")):
        return is_object(payload.get("state"))
    if is_list(payload.get("citations")):
        return isinstance(payload.get("content"), str) and "role" in payload
    lists = payload.get("citations")
    return is_object(lists) and bool(lists) and all(map(is_list, lists.values()))


def _is_event_list(payload: list[Any]) -> bool:
    kinds = [event.get("type") for event in payload if is_object(event)]
    named = all(isinstance(kind, str) and kind.isupper() for kind in kinds)
    return bool(kinds) and len(kinds) == len(payload) and named


def read_all(payload: Any, options: DialectOptions) -> tuple[Answer, ...]:
    if is_list(payload):
        if not _is_event_list(payload):
            raise ShapeError("a list, but not of AG-UI events")
        folded, raw = _fold(payload), payload
    elif is_object(payload):
        folded = raw = payload
    else:
        raise ShapeError("neither a thread, a state, a message nor a list of events")
    slots = list(_slots(folded))
    cited = [slot for slot in slots if slot.entries] or slots
    return tuple(_read(raw, folded, slot, options) for slot in cited)


def _fold(events: list[Any]) -> Json:
    """Apply a list of events and return the thread: its messages' text and its state."""
    texts: dict[str, list[str]] = {}
    others: list[Json] = []
    state: Any = {}
    changes: list[Any] = []
    for number, event in enumerate(events):
        where = f"$[{number}]"
        match event["type"]:
            case "TEXT_MESSAGE_START":
                texts.setdefault(require(event, "messageId", str, where), [])
            case "TEXT_MESSAGE_CONTENT" | "TEXT_MESSAGE_CHUNK":
                name = optional(event, "messageId", str, where) or next(reversed(texts), "unknown")
                texts.setdefault(name, []).append(optional(event, "delta", str, where) or "")
            case "MESSAGES_SNAPSHOT":
                others = [
                    message for message in require(event, "messages", list, where) if is_object(message)
                ]
                texts = {}
            case "STATE_SNAPSHOT":
                state, changes = event.get("snapshot"), []
            case "STATE_DELTA":
                changes += require(event, "delta", list, where)
            case _:
                pass
    state = apply_patch(state, changes)
    streamed = [{"id": name, "role": "assistant", "content": "".join(text)} for name, text in texts.items()]
    return {"messages": [*others, *streamed], "state": state if is_object(state) else {}}


def _slots(thread: Json) -> Iterator[_Slot]:
    if is_list(thread.get("citations")):
        text: _Path | None = ("content",) if isinstance(thread.get("content"), str) else None
        yield _Slot(optional(thread, "id", str, "$"), text, ("citations",))
        return
    at: _Path = ("state",) if is_object(thread.get("state")) else ()
    lists: Any = get_at(thread, at).get("citations") or {}
    if not is_object(lists):
        raise ShapeError("citations are not keyed by message id", path_text((*at, "citations")))
    seen: set[str] = set()
    for slot in _message_slots(thread, (*at, "citations"), lists):
        seen.add(slot.id or "")
        yield slot
    yield from (_Slot(name, None, (*at, "citations", name)) for name in lists if name not in seen)


def _message_slots(thread: Json, at: _Path, lists: Json) -> Iterator[_Slot]:
    messages = thread.get("messages")
    listed: set[str] = set()
    for number, message in enumerate(messages if is_list(messages) else ()):
        if not is_object(message) or message.get("role") != "assistant":
            continue
        name, content = message.get("id"), message.get("content")
        if not isinstance(name, str) or not isinstance(content, str):
            continue
        here: _Path = ("messages", number)
        # Only the first message with an id gets the list: one copy per message would have no bound.
        is_listed = name in lists and name not in listed
        listed.add(name)
        entries = (*at, name) if is_listed else (*here, "citations") if "citations" in message else None
        yield _Slot(name, (*here, "content"), entries)


def _read(raw: Any, thread: Json, slot: _Slot, options: DialectOptions) -> Answer:
    text = get_at(thread, slot.text) if slot.text else options.text
    entries: Any = get_at(thread, slot.entries) if slot.entries else []
    where = path_text(slot.entries or ())
    if not is_list(entries):
        raise ShapeError("a message's citations are not a list", where)
    reader = _Reader(text, entries, where)
    return Answer(
        parts=() if text is None else (Part(text),),
        citations=tuple(reader.citations),
        sources=tuple(reader.sources),
        id=slot.id,
        problems=tuple(reader.problems),
        native=Native(NAME, (raw, thread), slot, tuple(reader.kept)),
    )


class _Entry(NamedTuple):
    id: str
    ordinal: int
    ref: SourceRef
    beyond: ExtensionFields
    native: Native


class _Reader:
    def __init__(self, text: str | None, entries: list[Any], where: str) -> None:
        self.sources = SourceRegistry()
        self.problems = ProblemList()
        self.kept: list[tuple[int, Any]] = []
        self.citations: list[Citation] = []
        self._names = UniqueIds()
        read: list[_Entry] = []
        length = None if text is None else len(text)
        for at, raw in enumerate(entries):
            try:
                read.append(self._entry(raw, at, length))
            except InputError as exc:
                self.problems.add(f"{where}[{at}]", exc)
                self.kept.append((at, raw))
        markers = (
            find_record_markers(text, _labels([(entry.id, entry.ordinal) for entry in read])) if text else {}
        )
        for number, entry in enumerate(read):
            self._cite(entry, markers.get(number) or [None], text is not None)

    def _entry(self, kept: Any, at: int, length: int | None) -> _Entry:
        raw = {"url": kept} if isinstance(kept, str) else kept
        if not is_object(raw):
            raise ShapeError("a citation is neither an object nor a URL", "")
        name = _first(raw, _ID)
        beyond = unpack(_extra(raw).get(EXTENSION_KEY), f".extra.{EXTENSION_KEY}")
        beyond.span(length)
        ordinal = _ordinal(raw, at + 1)
        ref = SourceRef(
            self._source(raw, beyond),
            beyond.locator,
            _first(raw, _SNIPPET),
            beyond.anchor,
            beyond.score,
        )
        name = f"c{at + 1}" if name is None else name
        return _Entry(name, ordinal, ref, beyond, Native(NAME, kept, at))

    def _source(self, raw: Json, beyond: ExtensionFields) -> str:
        url = _first(raw, _URL)
        return self.sources.add(
            beyond.kind or _kind(url),
            url,
            _first(raw, _TITLE),
            filename=beyond.filename,
            file_id=beyond.file_id,
            record_id=beyond.record_id,
            index=beyond.index,
            domain=beyond.domain,
            snippet=beyond.snippet,
            metadata={key: value for key, value in _extra(raw).items() if key != EXTENSION_KEY},
        )

    def _cite(self, entry: _Entry, markers: list[Span] | list[None], text_known: bool) -> None:
        claim = entry.beyond.span(None)
        name = self._names.assign(entry.id)
        native = replace(entry.native, was=name)
        for number, marker in enumerate(markers):
            self.citations.append(
                Citation(
                    self._names.assign(name) if number else name,
                    (entry.ref,),
                    entry.ordinal,
                    claim,
                    marker,
                    span_origin="exact" if text_known and (claim or marker) else "unknown",
                    verification=entry.beyond.verification,
                    native=native,
                )
            )


def _labels(records: list[tuple[str, int]]) -> MarkerLabels:
    """Map labels to records; the first record with an id or number counts."""
    footnotes: dict[str, int] = {}
    numbers: dict[str, int] = {}
    for number, (name, ordinal) in enumerate(records):
        footnotes.setdefault(name, number)
        numbers.setdefault(str(ordinal), number)
    return MarkerLabels(footnotes, numbers)


def _first(raw: Json, keys: tuple[str, ...]) -> str | None:
    """Return the first of these fields that is a string, even if it is empty."""
    for key in keys:
        if key in raw and isinstance(value := raw[key], str):
            return value
    return None


def _extra(raw: Json) -> Json:
    extra = raw.get("extra")
    return extra if is_object(extra) else {}


def _kind(url: str | None) -> SourceKind:
    return "document" if url is None else "web"


def write(answer: Answer, options: DialectOptions) -> Written:
    fitting = Adaptation(answer, NAME)
    if len(answer.parts) > 1:
        fitting.join_parts()
    fitting.require_refs()
    fitting.split_refs()
    drop_reserved_key(fitting)
    loose = _loose_labels(fitting.answer)
    records = _assign_ids(assign_records(fitting.answer.citations, _content), fitting, loose)
    records = _assign_numbers(records, fitting, loose)
    order_by_record(records, fitting)
    if fitting.answer.parts:
        labels = _labels([(record.id, record.ordinal or 0) for record in records])
        write_markers(fitting, records, labels, lambda number: f"[^{records[number].id}]")
    name = _answer_id(fitting)
    known = bool(fitting.answer.parts)
    fit = fitting.finish(
        SUPPORTED_FIELDS,
        kind=lambda source: source.kind,
        origin=lambda citation: "exact" if known and (citation.claim or citation.marker) else "unknown",
        keep_ids=True,
    )
    sources = {source.id: source for source in fit.sources}
    written: list[tuple[int | None, Any]] = []
    at = 0
    for record in records:
        citation = fit.citations[at]
        entry = _entry(citation, sources[citation.refs[0].source_id])
        is_new = _is_new(record.id, citation)
        named = _NamedEntry(entry, record.id, citation.ordinal, len(record.citations), is_new)
        written.append((_place(citation), named))
        at += len(record.citations)
    native = native_for(fit.native, NAME)
    entries = _write_ids(interleave(native.kept if native else None, written))
    return Written(_envelope(native, fit, name, entries, fitting), tuple(fitting.losses))


def _content(citation: Citation) -> Any:
    """Return the key by which citations share an entry."""
    ref, verdict, native = citation.refs[0], citation.verification, native_for(citation.native, NAME)
    return (
        (ref.source_id, ref.locator, ref.quote, ref.anchor, ref.score),
        verdict and (verdict.status, verdict.reason, verdict.quote, verdict.page),
        citation.claim,
        native and native.at,
    )


def _loose_labels(answer: Answer) -> MarkerLabels:
    """Find the labels in the text that belong to no citation; none if all ids and numbers are unchanged."""
    footnotes: dict[str, int] = {}
    numbers: dict[str, int] = {}
    if all(map(_is_as_it_came, answer.citations)):
        return MarkerLabels(footnotes, numbers)
    for marker in find_unowned_markers(answer):
        table = footnotes if marker.kind == "footnote" else numbers
        table |= dict.fromkeys(marker.labels, marker.start)
    return MarkerLabels(footnotes, numbers)


def _is_as_it_came(citation: Citation) -> bool:
    native = native_for(citation.native, NAME)
    if native is None or native.was != citation.id:
        return False
    raw: Json = native.raw if is_object(native.raw) else {}
    return _ordinal(raw, native.at + 1) == citation.ordinal


def _assign_ids(records: list[MarkedRecord], fitting: Adaptation, loose: MarkerLabels) -> list[MarkedRecord]:
    """Give records unique ids that a marker can contain, and citations the ids a reader derives."""
    names = UniqueIds()
    for label in loose.footnotes:
        names.assign(label)
    given: dict[str, str] = {}
    for record in records:
        fit = record.id if _LABEL.fullmatch(record.id) else re.sub(r"[\[\]\s]+", "-", record.id)[:200] or "c"
        first = names.assign(fit if _has_place(record) else record.id)
        for number, citation in enumerate(record.citations):
            given[citation.id] = names.assign(first) if number else first
    return rename_records(records, given, fitting)


def _has_place(record: MarkedRecord) -> bool:
    return any(citation.marker or citation.insert_at or citation.claim for citation in record.citations)


def _assign_numbers(
    records: list[MarkedRecord], fitting: Adaptation, loose: MarkerLabels
) -> list[MarkedRecord]:
    """Give every entry an index, by default its position in the list; labels that the text itself seems to
    use are avoided."""
    used = {record.ordinal for record in records}
    free = (one for one in count(len(records) + 1) if one not in used and str(one) not in loose.numbers)
    numbered: list[MarkedRecord] = []
    for place, record in enumerate(records, 1):
        wanted = place if record.ordinal is None else record.ordinal
        number = next(free) if str(wanted) in loose.numbers else wanted
        numbered.append(record if number == record.ordinal else _with_number(record, number, fitting))
    return numbered


def _with_number(record: MarkedRecord, number: int, fitting: Adaptation) -> MarkedRecord:
    for citation in record.citations:
        fitting.record_loss("ordinal", f"will read as {number}", citation=citation.id)
    return MarkedRecord(
        record.id, number, [replace(citation, ordinal=number) for citation in record.citations]
    )


_UNSAFE = frozenset({"__proto__", "constructor", "prototype"})


def _answer_id(fitting: Adaptation) -> str:
    """Return the key of the list; a message with a missing or unsafe id gets the id `message`."""
    name = fitting.answer.id
    if name is not None and name not in _UNSAFE:
        return name
    native = native_for(fitting.answer.native, NAME)
    if name is not None or native is None or native.at.entries != ("citations",):
        fitting.record_loss("answer.id", "required: written as message")
        fitting.answer = replace(fitting.answer, id="message")
    return "message"


class _NamedEntry(NamedTuple):
    """An entry to write, with the id and number it must be read with, and its number of citations."""

    raw: Any
    name: str
    ordinal: int | None
    citations: int
    is_new: bool


def _write_ids(entries: list[Any]) -> list[Any]:
    """Write out id and index of entries for which a reader would infer others from the position."""
    names = UniqueIds()
    return [
        _at_place(entry, place, names) if isinstance(entry, _NamedEntry) else entry
        for place, entry in enumerate(entries, 1)
    ]


def _at_place(entry: _NamedEntry, place: int, names: UniqueIds) -> Any:
    raw: Json = {"url": entry.raw} if isinstance(entry.raw, str) else entry.raw
    label = _first(raw, _ID)
    label = f"c{place}" if label is None else label
    # Markers use the id of a new entry; an old one can share its id with another, as it was read.
    if names.preview(label) != entry.name or (entry.is_new and label != entry.name):
        raw = dict(raw)
        _spell(raw, _ID, label := entry.name)
    names.assign(label)
    for _ in range(entry.citations - 1):
        names.assign(entry.name)
    if _ordinal(raw, place) != entry.ordinal:
        raw = {**raw, "index": entry.ordinal}
    return entry.raw if raw == {"url": entry.raw} else raw


def _ordinal(raw: Json, place: int) -> int:
    index = raw.get("index")
    if type(index) is float and index.is_integer():
        index = int(index)
    return index if type(index) is int else place


def _place(citation: Citation) -> int | None:
    native = native_for(citation.native, NAME)
    return native.at if native else None


def _is_new(name: str, citation: Citation) -> bool:
    """Whether an entry has another id than when it was read."""
    native = native_for(citation.native, NAME)
    return native is None or native.was != name


def _entry(citation: Citation, source: Source) -> Any:
    native = native_for(citation.native, NAME)
    kept: Any = native.raw if native else {}
    raw: Json = {"url": kept} if isinstance(kept, str) else dict(kept)
    _spell(raw, _TITLE, source.title)
    _spell(raw, _URL, source.url)
    _spell(raw, _SNIPPET, citation.refs[0].quote)
    extra = dict(source.metadata)
    packed = pack(citation, source, _kind(source.url), _extra(raw).get(EXTENSION_KEY))
    if packed is not None or EXTENSION_KEY in _extra(raw):
        extra[EXTENSION_KEY] = packed
    if extra != _extra(raw):
        raw = overlay(raw, {"extra": extra or None})
    plain = isinstance(kept, str) and raw.keys() == {"url"}
    return raw["url"] if plain else raw


def _spell(raw: Json, keys: tuple[str, ...], value: str | None) -> None:
    """Write `value` in the spelling that the entry uses, else in our own."""
    for key in keys:
        if key in raw and isinstance(raw[key], str):
            if value is not None:
                raw[key] = value
                return
            del raw[key]
    if value is not None:
        raw[keys[0]] = value


def _envelope(
    native: Native | None, answer: Answer, name: str, entries: list[Any], fitting: Adaptation
) -> Any:
    if native is None:
        messages = [{"id": name, "role": "assistant", "content": answer.text}] if answer.parts else []
        return {"messages": messages, "state": {"citations": {name: entries}}}
    raw, thread = native.raw
    slot: _Slot = native.at
    if answer.id != slot.id:
        thread, slot = _under_new_id(thread, slot, name)
    changed = thread
    if slot.text and answer.parts:
        changed = put_at(changed, slot.text, answer.text)
    elif answer.parts:
        fitting.record_loss("parts", "a state alone has no place for the text")
    if slot.entries:
        changed = put_at(changed, slot.entries, entries)
    elif entries:
        changed = _with_list(changed, name, entries)
    if changed == native.raw[1]:
        return raw
    if is_list(raw):
        fitting.record_loss("events", "the events become the thread they add up to")
    return changed


def _under_new_id(thread: Json, slot: _Slot, name: str) -> tuple[Json, _Slot]:
    """Change the id of a message and the key of its list of citations."""
    if slot.text:
        thread = put_at(thread, (*slot.text[:-1], "id"), name)
    if slot.entries and slot.entries[-1] == slot.id:
        lists: Json = get_at(thread, slot.entries[:-1])
        renamed = {name if key == slot.id else key: value for key, value in lists.items()}
        thread = put_at(thread, slot.entries[:-1], renamed)
        slot = slot._replace(entries=(*slot.entries[:-1], name))
    return thread, slot


def _with_list(thread: Json, name: str, entries: list[Any]) -> Json:
    """Add the first citations of a message to a thread."""
    state = thread.get("state")
    state = state if is_object(state) else {}
    lists = state.get("citations")
    lists = lists if is_object(lists) else {}
    return {**thread, "state": {**state, "citations": {**lists, name: entries}}}
