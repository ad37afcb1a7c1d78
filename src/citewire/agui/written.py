"""Which verdicts in a posted state this process wrote itself. All others have to be reached again.

Without a log nobody else can tell: a client posts its own copy of the state, and may have changed it.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from hashlib import blake2b
from typing import Any, cast

from citewire.agui.events import Json
from citewire.agui.listed import OURS, key_of, note_in, note_of, unannotated
from citewire.agui.records import counts
from citewire.agui.settling import settling_patches
from citewire.agui.state import CITATIONS, record_of, summary_of
from citewire.patch import apply

__all__ = ["WrittenVerdicts"]

# Verdicts that are remembered: some 10 MB.
_MOST = 50_000


class WrittenVerdicts:
    """Remembers the verdicts that were written, the last ones only, as digests."""

    def __init__(self) -> None:
        self._digests: OrderedDict[bytes, None] = OrderedDict()

    def add(self, thread_id: str, message_id: str, key: str, *values: Any) -> None:
        """These were written about a citation."""
        digest = _digest(thread_id, message_id, key, *values)
        self._digests[digest] = None
        self._digests.move_to_end(digest)
        if len(self._digests) > _MOST:
            self._digests.popitem(last=False)

    def has(self, thread_id: str, message_id: str, key: str, *values: Any) -> bool:
        """Whether exactly these were written about it."""
        return _digest(thread_id, message_id, key, *values) in self._digests

    def only_ours(self, state: Any, state_key: str, thread_id: str) -> Any:
        """The state without verdicts that were not written here: what they are about is pending."""
        if not isinstance(state, dict):
            return state
        fields = dict(cast("Json", state))
        record = record_of(fields, state_key)
        fields.pop(state_key, None)
        if record is not None:
            fields[state_key] = self._only_ours_in(record, thread_id)
        if isinstance(lists := fields.get(CITATIONS), dict):
            fields[CITATIONS] = {
                name: [self._entry(each, name, thread_id) for each in cast("list[Any]", entries)]
                if isinstance(entries, list)
                else entries
                for name, entries in cast("Json", lists).items()
            }
        return apply(fields, settling_patches(fields, state_key))

    def _only_ours_in(self, record: Json, thread_id: str) -> Json:
        messages = {
            name: self._message(message, name, thread_id) for name, message in record["messages"].items()
        }
        verdicts = {
            key: each for message in messages.values() for key, each in message["verifications"].items()
        }
        return {**record, "messages": messages, "verifications": verdicts}

    def _message(self, message: Json, name: str, thread_id: str) -> Json:
        citations = message["citations"]
        verdicts = {
            key: each
            for key, each in message["verifications"].items()
            if key in citations and self.has(thread_id, name, key, citations[key], each)
        }
        if verdicts == message["verifications"]:
            return message
        counted = counts(verdicts.values())
        counted["pending"] = len(citations) - len(verdicts)
        status = "verifying" if counted["pending"] else message["status"]
        return {**message, "verifications": verdicts, "summary": summary_of(counted), "status": status}

    def _entry(self, entry: Any, name: str, thread_id: str) -> Any:
        """An entry of a list without our note, where we did not write that."""
        ours = note_in(entry)
        if ours is None:
            return entry
        key, note = key_of(entry) or "", note_of(entry)
        if ours.get("status") == "pending" or self.has(thread_id, name, key, note):
            return entry
        if ours.get("own") is not True:
            return unannotated([entry])[0]
        return {**entry, "extra": {**entry["extra"], OURS: {"own": True, "key": key, "status": "pending"}}}


def _digest(*values: Any) -> bytes:
    text = json.dumps([_plain(each) for each in values], sort_keys=True)
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def _plain(value: Any) -> Any:
    """The value as it comes back from a client to which 1.0 is 1."""
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in cast("Json", value).items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in cast("list[Any]", value)]
    return int(value) if isinstance(value, float) and value.is_integer() else value
