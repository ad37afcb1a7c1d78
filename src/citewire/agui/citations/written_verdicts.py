"""Recognises the verdicts in a posted state that this process wrote. All others have to be checked again.

Without a log nothing else can tell: a client posts its own copy of the state, and may have changed it.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Iterable
from hashlib import blake2b
from typing import Any, cast

from citewire.agui.citations import records
from citewire.agui.citations.citation_entries import (
    CITEWIRE_KEY,
    is_own_list,
    key_of,
    read_note,
    read_note_without_owner,
    remove_notes,
)
from citewire.agui.citations.records import count_statuses, read_record
from citewire.agui.citations.shared_state import CITATIONS, record_of, summary_of
from citewire.agui.citations.unfinished_messages import unfinished_message_patches
from citewire.agui.events import Json
from citewire.patch import apply_patch

__all__ = ["WrittenVerdicts"]

# Digests that are remembered, about 10 MB.
_MOST = 50_000


class WrittenVerdicts:
    """Remembers the most recently written verdicts, as digests."""

    def __init__(self) -> None:
        self._digests: OrderedDict[bytes, None] = OrderedDict()

    def add(self, thread_id: str, message_id: str, key: str, *values: Any) -> None:
        """Remember the values that were written for a citation."""
        digest = _digest(thread_id, message_id, key, *values)
        self._digests[digest] = None
        self._digests.move_to_end(digest)
        if len(self._digests) > _MOST:
            self._digests.popitem(last=False)

    def has(self, thread_id: str, message_id: str, key: str, *values: Any) -> bool:
        """Whether exactly these values were written for a citation."""
        return _digest(thread_id, message_id, key, *values) in self._digests

    def add_entry(self, thread_id: str, message_id: str, entry: Json) -> None:
        """Remember an entry of a citation list that was written, or our note in it."""
        self.add(thread_id, message_id, key_of(entry) or "", _shown(entry), read_note_without_owner(entry))

    def has_entry(self, thread_id: str, message_id: str, entry: Json) -> bool:
        """Whether exactly this entry was written, with this note."""
        return self.has(
            thread_id, message_id, key_of(entry) or "", _shown(entry), read_note_without_owner(entry)
        )

    def drop_foreign_verdicts(self, state: Any, state_key: str, thread_id: str) -> Any:
        """Return the state without verdicts that were written elsewhere: their citations become pending."""
        if not isinstance(state, dict):
            return state
        fields = dict(cast("Json", state))
        record = record_of(fields, state_key)
        fields.pop(state_key, None)
        messages: Json = {}
        if record is not None:
            fields[state_key] = self._drop_foreign_in_record(record, thread_id)
            messages = fields[state_key]["messages"]
        if isinstance(lists := fields.get(CITATIONS), dict):
            fields[CITATIONS] = {
                name: self._entries(cast("list[Any]", entries), name, thread_id, messages.get(name))
                for name, entries in cast("Json", lists).items()
                if isinstance(entries, list)
            }
        return apply_patch(fields, unfinished_message_patches(fields, state_key))

    def _drop_foreign_in_record(self, record: Json, thread_id: str) -> Json:
        messages = {
            name: self._message(message, name, thread_id) for name, message in record["messages"].items()
        }
        reviews = {"reviews": record["reviews"]} if isinstance(record.get("reviews"), dict) else {}
        return {**_aggregates(messages.values()), "messages": messages, **reviews}

    def _message(self, message: Json, name: str, thread_id: str) -> Json:
        citations, posted = message["citations"], message["verifications"]
        verdicts = {
            key: each
            for key, each in posted.items()
            if key in citations and self.has(thread_id, name, key, citations[key], each)
        }
        counted = count_statuses(verdicts.values())
        counted["pending"] = len(citations) - len(verdicts)
        status = _status(message["status"], bool(counted["pending"]), len(verdicts) < len(posted))
        error = message.get("error") if status != "complete" else None
        return {
            "messageId": name,
            "citations": citations,
            "verifications": verdicts,
            "summary": summary_of(counted),
            "status": status,
            **({"error": error} if isinstance(error, str) else {}),
        }

    def _entries(self, entries: list[Any], name: str, thread_id: str, message: Json | None) -> list[Any]:
        """Return the entries of a message's list, each of our own citations once."""
        kept: list[Any] = []
        own: set[str | None] = set()
        for at, each in enumerate(entries, 1):
            entry = self._entry(each, at, name, thread_id, message)
            if is_own_list([entry]):
                if key_of(entry) in own:
                    continue
                own.add(key_of(entry))
            kept.append(entry)
        return kept

    def _entry(self, entry: Any, at: int, name: str, thread_id: str, message: Json | None) -> Any:
        """Return an entry as we wrote it. A changed one is rebuilt from its citation in the record."""
        ours = read_note(entry)
        if ours is not None and self.has_entry(thread_id, name, entry):
            return entry
        if ours is None or ours.get("own") is not True:
            return remove_notes([entry])[0]
        key = key_of(entry) or ""
        made = None if message is None else _made_anew(message, key, at)
        if made is None:
            pending = {"own": True, "key": key, "status": "pending"}
            return {**entry, "extra": {**entry["extra"], CITEWIRE_KEY: pending}}
        self.add_entry(thread_id, name, made)
        return made


def _aggregates(messages: Iterable[Json]) -> Json:
    """Return the citations and verdicts of all messages. Each verdict has its own citation under its key."""
    citations: Json = {}
    verdicts: Json = {}
    for message in messages:
        for key, citation in message["citations"].items():
            if key in message["verifications"]:
                citations[key] = citation
                verdicts[key] = _without_picture(message["verifications"][key])
            else:
                citations.setdefault(key, citation)
    return {"citations": citations, "verifications": verdicts}


def _without_picture(verdict: Json) -> Json:
    """Return the verdict without a picture in a data URI, which only the message's own verdict has."""
    evidence: Json = verdict.get("evidence") or {}
    src = evidence.get("src")
    if not isinstance(src, str) or not src.startswith("data:"):
        return verdict
    return {name: value for name, value in verdict.items() if name != "evidence"}


def _status(posted: Any, is_pending: bool, was_changed: bool) -> Any:
    """Derive a message's status from its verdicts. An open or unchanged failed message keeps its status."""
    if posted in ("streaming", "extracting") or (posted == "error" and not was_changed):
        return posted
    return "verifying" if is_pending else "complete"


def _made_anew(message: Json, key: str, at: int) -> Json | None:
    """Rebuild the entry of a citation from its message's record; None if the record lacks the citation."""
    cited = read_record(message["citations"][key]) if key in message["citations"] else None
    if cited is None:
        return None
    verdict = message["verifications"].get(key)
    said = {"status": "pending"} if verdict is None else verdict["citewire"]
    note = {name: value for name, value in said.items() if name != "proof"}
    return {**records.make_entry(cited, key, at), "extra": {CITEWIRE_KEY: {"own": True, "key": key, **note}}}


def _shown(entry: Json) -> Json:
    """Return an entry without `extra`: the part that readers see."""
    return {name: value for name, value in entry.items() if name != "extra"}


def _digest(*values: Any) -> bytes:
    text = json.dumps([_plain(each) for each in values], sort_keys=True)
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def _plain(value: Any) -> Any:
    """Return the value as a client sends it back that does not distinguish 1.0 from 1."""
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in cast("Json", value).items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in cast("list[Any]", value)]
    return int(value) if isinstance(value, float) and value.is_integer() else value
