"""Writes records into their original payload, in its original form."""

from __future__ import annotations

import re
from collections import Counter
from functools import partial
from typing import Any

from msgspec.structs import replace

from citewire.adapt import Adaptation
from citewire.dialects.base import DialectOptions, Json, get_at, is_object, native_for, overlay, put_at
from citewire.dialects.common.marker_records import UniqueIds
from citewire.dialects.deepcitation.adaptation import (
    fit_citation,
    fit_sources,
    kind_of,
    origin_of,
    remove_blocks,
)
from citewire.dialects.deepcitation.block import compose_text, is_safe_key, write_block
from citewire.dialects.deepcitation.entry import BLOCK_END, NAME, SUPPORTED_FIELDS, update_entry, write_entry
from citewire.dialects.deepcitation.numbering import MarkerNumbering, NumberedRecord
from citewire.dialects.deepcitation.reader import ReadSnapshot, UnreadRecords
from citewire.dialects.deepcitation.verdict import STATUS_WORDS, verdict_fields, write_verdict
from citewire.keys import CitationKeys
from citewire.model import Answer, Citation, Native, Written


def write(answer: Answer, options: DialectOptions) -> Written:
    native = native_for(answer.native, NAME)
    if native and native.was.is_still(answer):
        return Written(native.raw)
    fitting, layout = Adaptation(answer, NAME), _Layout(native)
    layout.need_id(fitting)
    fitting.join_parts()
    fitting.split_refs()
    fitting.map_citations(partial(fit_citation, fitting))
    fit_sources(fitting, layout.raw.get("attachmentId"))
    if fitting.answer.parts and fitting.answer.parts[0].text != layout.was.text:
        remove_blocks(fitting, bool(layout.was.hidden))
    records = layout.arrange(MarkerNumbering(fitting, bool(layout.was.hidden)).records(), fitting)
    fitting.finish(
        SUPPORTED_FIELDS,
        kind=kind_of,
        origin=origin_of,
        keep_ids=True,
        group=lambda fit: [[fit.citations[place] for place in record.places] for record in records],
        why="citations come in the order of their entries",
    )
    named = layout.named(records, fitting)
    return Written(layout.payload(fitting.answer, named), tuple(fitting.losses))


_RecordPlace = tuple[int, int]
_NamedRecord = tuple[str, NumberedRecord, Citation]
_KEY = re.compile(r"[0-9a-f]{16}(?:\.\d+)*")
# The key of an entry without content.
_KEYLESS = "98c4b7d37a4c63c3"
_LAST = 2**63


class _Layout:
    """Where each record is written: back to its original location, or into a new record."""

    def __init__(self, native: Native | None) -> None:
        self.native = native
        self.was: ReadSnapshot = native.was if native else ReadSnapshot(None, None, (), None, ())
        self.raw: Json = get_at(native.raw, native.at) if native else {}
        self.kept: UnreadRecords = native.kept if native else UnreadRecords(frozenset(), frozenset(), ())
        self.in_block = self.was.in_block is not None
        self.block_stays = False

    def need_id(self, fitting: Adaptation) -> None:
        """Set a missing answer id: a message in shared state without an id is identified by its key."""
        if self.native and self.native.at[:1] == ("messages",) and fitting.answer.id is None:
            name = self.native.at[-1]
            fitting.record_loss("answer.id", f"will read as {name}")
            fitting.answer = replace(fitting.answer, id=name)

    def arrange(self, records: list[NumberedRecord], fitting: Adaptation) -> list[NumberedRecord]:
        """Order the records as a reader will find them."""
        _share_verdicts(records, fitting)
        homes = self._homes(records, fitting.answer.citations)
        if self.in_block:
            self.block_stays = self._is_as_it_was(records, homes)
            homes = homes if self.block_stays else _by_attachment(records, homes)
        return [
            records[n]._replace(within=bool(homes[n][0] and records[n].fields))
            for n in sorted(range(len(records)), key=homes.__getitem__)
        ]

    def _homes(self, records: list[NumberedRecord], citations: tuple[Citation, ...]) -> list[_RecordPlace]:
        """Order entries first, then verdicts that are alone or contain their entry; new records come last."""
        known: dict[Any, _RecordPlace] = {}
        for rank, name in ((1, "verifications"), (0, "citations")):
            known |= {key: (rank, place) for place, key in enumerate(self.raw.get(name) or ())}
        known |= {place: (0, place) for place in range(self.was.in_block or 0)}
        homes: list[_RecordPlace] = []
        for record in records:
            rank, place = known.pop(record.at, (0, _LAST))
            if record.fields is None:
                rank, place = 1, place if rank else _LAST
            elif rank and citations[record.places[0]].verification is None:
                rank, place = 0, _LAST
            homes.append((rank, place))
        return homes

    def _is_as_it_was(self, records: list[NumberedRecord], homes: list[_RecordPlace]) -> bool:
        entries = sorted((place, n) for n, (rank, place) in enumerate(homes) if not rank)
        if [place for place, _ in entries] != list(range(self.was.in_block or 0)):
            return False
        natives = [(records[n].native, records[n].fields) for _, n in entries]
        return all(native and native.was == fields for native, fields in natives)

    def named(self, records: list[NumberedRecord], fitting: Adaptation) -> list[_NamedRecord]:
        """Return each record with its key and first citation; citation ids are derived from the keys."""
        groups = fitting.groups()
        keys = self._keys(records, [group[0].id for group in groups])
        names = UniqueIds()
        for key in keys:
            names.assign(key)
        pairs = list(zip(keys, groups, strict=True))
        fitting.rename_citations(
            [names.assign(key) if use else key for key, group in pairs for use in range(len(group))]
        )
        return [(key, record, group[0]) for record, (key, group) in zip(records, pairs, strict=True)]

    def _keys(self, records: list[NumberedRecord], ids: list[str]) -> list[str]:
        """Return the old keys, and new ones derived from the content; an id that is a key stays."""
        keys, names = CitationKeys(), UniqueIds()
        for key in self.kept.citations:
            names.assign(key)
        own = [not self.in_block and isinstance(record.at, str) for record in records]
        kept = [names.assign(record.at) if stays else "" for record, stays in zip(records, own, strict=True)]
        for key in () if self.in_block else self.kept.verdicts:
            names.assign(key)
        return [
            key if stays else names.assign(self._key(record, name, keys))
            for key, stays, record, name in zip(kept, own, records, ids, strict=True)
        ]

    def _key(self, record: NumberedRecord, name: str, keys: CitationKeys) -> str:
        if record.fields is None or record.within:
            key = record.at if isinstance(record.at, str) else name
            return key if is_safe_key(key) else _KEYLESS
        if not self.in_block and _KEY.fullmatch(name):
            return name
        return record.fields.key(keys, in_block=self.in_block)

    def payload(self, answer: Answer, named: list[_NamedRecord]) -> Json:
        out = dict(self.raw)
        cited: Json = {}
        verdicts: Json = {}
        for key, record, first in named:
            entry = write_entry(record.fields, record.native) if record.fields else {}
            if first.verification:
                verdicts[key] = _with_entry(write_verdict(first.verification), record, entry)
            if record.fields and not record.within:
                cited[key] = entry
        self._put_text(out, answer, [record for _, record, _ in named])
        if not self.in_block:
            _put_record(out, "citations", self.kept.citations, cited, always=self.native is None)
        _put_record(out, "verifications", self.kept.verdicts, verdicts)
        if answer.id != self.was.id:
            out = overlay(out, {"messageId": answer.id})
        return self._envelope(out, named)

    def _put_text(self, out: Json, answer: Answer, records: list[NumberedRecord]) -> None:
        if not answer.parts:
            if out.get("text") is not None:
                del out["text"]
            return
        text, hidden = answer.parts[0].text, self.was.hidden
        if self.in_block and not self.block_stays:
            entries = [(r.fields, r.native) for r in records if r.fields and not r.within]
            body = f"\n{write_block(entries, self.kept.entries)}\n"
            hidden = (hidden[0]._replace(body=body, behind=hidden[0].behind or BLOCK_END),)
        text = compose_text(text, hidden, at_end=text != self.was.text)
        if self.was.text is None or text != compose_text(self.was.text, self.was.hidden):
            out["text"] = text

    def _envelope(self, record: Json, named: list[_NamedRecord]) -> Json:
        if self.native is None:
            return record
        payload: Json = self.native.raw
        if self.native.at[:1] == ("messages",):
            # Shared state also has all entries and verdicts at the top level, and counts them.
            changes = {name: _changes(self.raw, record, name) for name in ("citations", "verifications")}
            if any(changes.values()) and is_object(summary := record.get("summary")):
                record["summary"] = _summary(summary, named)
            for name, changed in changes.items():
                if changed and is_object(every := payload.get(name)):
                    payload = {**payload, name: {**every, **changed}}
        return put_at(payload, self.native.at, record)


def _share_verdicts(records: list[NumberedRecord], fitting: Adaptation) -> None:
    """Give all citations of an entry the same verdict, whichever marker it was reached on."""
    citations = list(fitting.answer.citations)
    for record in records:
        verdict = next((v for place in record.places if (v := citations[place].verification)), None)
        for place in record.places:
            citation = citations[place]
            if citation.verification is not verdict and verdict_fields(
                citation.verification
            ) != verdict_fields(verdict):
                fitting.record_loss("verification", "the entry has another one already", citation=citation.id)
                citations[place] = replace(citation, verification=verdict)
    fitting.answer = replace(fitting.answer, citations=tuple(citations))


def _by_attachment(records: list[NumberedRecord], homes: list[_RecordPlace]) -> list[_RecordPlace]:
    groups: dict[str | None, int] = {}
    return [
        home if home[0] or fields is None else (0, groups.setdefault(fields.file_id, len(groups)))
        for (_, fields, _, _), home in zip(records, homes, strict=True)
    ]


def _put_record(out: Json, name: str, kept: frozenset[Any], written: Json, *, always: bool = False) -> None:
    """Write a record; unreadable values stay in place, and keys that the model no longer has are removed."""
    raw: Json | None = out.get(name)
    if written or raw or always:
        old = {key: value for key, value in (raw or {}).items() if key in written or key in kept}
        out[name] = {**old, **written}


def _with_entry(out: Json, record: NumberedRecord, entry: Json) -> Json:
    """Return a verdict with its nested entry, if it has one."""
    inner, native = out.get("citation"), record.native
    if record.within:
        new = entry
    elif record.fields is None:
        new = None
    elif is_object(inner) and native and native.was is not None:
        new = update_entry(inner, native.was, record.fields)
    else:
        return out
    return out if new is inner else overlay(out, {"citation": new})


def _changes(before: Json, after: Json, name: str) -> Json:
    old: Json = before.get(name) or {}
    new: Json = after.get(name) or {}
    return {key: value for key, value in new.items() if old.get(key) is not value}


def _summary(kept: Json, named: list[_NamedRecord]) -> Json:
    verdicts = [first.verification for _, _, first in named]
    counts = Counter(verdict.status if verdict else "pending" for verdict in verdicts)
    counts.update(total=len(named), missed=counts["altered"])
    return overlay(kept, {name: counts[name] for name in kept if name == "total" or name in STATUS_WORDS})
