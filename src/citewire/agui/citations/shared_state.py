"""Writes citewire's part of the shared state, and tracks the client's copy of that state.

The key `deepcitation` holds what DeepCitation's integration design publishes, `citations` what @ngaf/ag-ui
reads. The agent writes state too and does not know our part, so the client's state is tracked here: parents
are created before their members, our part is restored when the agent removes it, and the agent's data is
never changed. To the agent's own citations we only add `extra` members.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Literal, TypeAlias, cast

from citewire.agui.citations.citation_entries import (
    CITEWIRE_KEY,
    entry_id,
    is_own_list,
    read_note,
    read_note_without_owner,
    remove_notes,
)
from citewire.agui.events import Json
from citewire.dialects.deepcitation.block import is_safe_key
from citewire.model import Status
from citewire.patch import PatchError, PatchTarget, escape_token, parse_pointer

__all__ = [
    "CITATIONS", "INITIAL_DEEPCITATION_STATE", "MessageStatus", "SharedState", "citation_patches",
    "is_safe_key", "is_state_key", "record_of", "remove_own_state", "safe_path", "status_patches",
    "summary_of", "summary_patches", "verification_patches",
]  # fmt: skip

MessageStatus = Literal["streaming", "extracting", "verifying", "complete", "error"]
PatchOperation: TypeAlias = dict[str, Any]

INITIAL_DEEPCITATION_STATE: Json = {"citations": {}, "verifications": {}, "messages": {}}
"""The state before the first message."""

CITATIONS = "citations"
"""The key of the state that holds the citation lists, by message."""
# No client needs a longer one.
_LONGEST_KEY = 128
_MISSING: Any = object()
_Path: TypeAlias = tuple[str, ...]


def is_state_key(key: object) -> bool:
    """Whether our state can use this key of the client's state: a safe name, other than `citations`."""
    if not isinstance(key, str) or not is_safe_key(key) or key == CITATIONS:
        return False
    return 0 < len(key) <= _LONGEST_KEY and key.isprintable()


def safe_path(*keys: str) -> str:
    """Return the JSON pointer to these keys. Raises `PatchError` for an unsafe key."""
    for key in keys:
        if not is_safe_key(key):
            raise PatchError(f"{key} is not a safe key", "")
    return "".join(f"/{escape_token(key)}" for key in keys)


def message_patches(message_id: str, state_key: str = "deepcitation") -> list[PatchOperation]:
    """Build the patch that adds a new message."""
    value = {
        "messageId": message_id,
        "citations": {},
        "verifications": {},
        "summary": summary_of({}),
        "status": "streaming",
    }
    return [_add(value, state_key, "messages", message_id)]


def citation_patches(
    message_id: str, citations: Mapping[str, Json], state_key: str = "deepcitation", *, together: bool = True
) -> list[PatchOperation]:
    """Build the patch that adds a message's citations, also to those of all; `together` replaces its own."""
    mine = (state_key, "messages", message_id, "citations")
    if together:
        first = [_replace(dict(citations), *mine)]
    else:
        first = [_add(record, *mine, key) for key, record in citations.items()]
    return [*first, *(_add(record, state_key, "citations", key) for key, record in citations.items())]


def shared_citation_patches(
    key: str, citation: Json, state_key: str = "deepcitation"
) -> list[PatchOperation]:
    """Build the patch that adds a citation to those of all messages."""
    return [_add(citation, state_key, "citations", key)]


def verification_patches(
    message_id: str, key: str, verification: Json, state_key: str = "deepcitation"
) -> list[PatchOperation]:
    """Build the patch that adds the verdict on one citation."""
    mine = _add(verification, state_key, "messages", message_id, "verifications", key)
    return [mine, _add(verification, state_key, "verifications", key)]


def evidence_patches(
    message_id: str, key: str, evidence: Json, state_key: str = "deepcitation"
) -> list[PatchOperation]:
    """Build the patch that adds a picture to a message's verdict only, because pictures are large."""
    return [_add(evidence, state_key, "messages", message_id, "verifications", key, "evidence")]


def summary_patches(
    message_id: str, counts: Mapping[Status, int], state_key: str = "deepcitation"
) -> list[PatchOperation]:
    """Build the patch that sets the counts of a message's verdicts."""
    return [_replace(summary_of(counts), state_key, "messages", message_id, "summary")]


def status_patches(
    message_id: str, status: MessageStatus, error: str | None = None, state_key: str = "deepcitation"
) -> list[PatchOperation]:
    """Build the patch that sets the status of a message, and its error."""
    patches = [_replace(status, state_key, "messages", message_id, "status")]
    if error is not None:
        patches.append(_add(error, state_key, "messages", message_id, "error"))
    return patches


def summary_of(counts: Mapping[Status, int]) -> Json:
    """Return the published counts and two of ours: `altered` is part of `missed`, `skipped` is separate."""
    missed = counts.get("missed", 0) + counts.get("altered", 0)
    others = {name: counts.get(name, 0) for name in ("verified", "partial", "pending", "skipped")}
    total = sum(others.values()) + missed
    return {"total": total, **others, "missed": missed, "altered": counts.get("altered", 0)}


def remove_own_state(state: Any, state_key: str = "deepcitation") -> Any:
    """Return the state without our part, to send it back to the agent."""
    if not isinstance(state, dict):
        return state
    kept = {key: value for key, value in cast("Json", state).items() if key != state_key}
    lists = kept.get(CITATIONS)
    if isinstance(lists, dict):
        theirs = {
            name: remove_notes(cast("list[Any]", entries)) if isinstance(entries, list) else entries
            for name, entries in cast("Json", lists).items()
            if not is_own_list(entries)
        }
        if theirs or not lists:
            kept[CITATIONS] = theirs
        else:
            del kept[CITATIONS]
    return kept


def _add(value: Any, *keys: str) -> PatchOperation:
    return {"op": "add", "path": safe_path(*keys), "value": value}


def _replace(value: Any, *keys: str) -> PatchOperation:
    return {"op": "replace", "path": safe_path(*keys), "value": value}


class SharedState:
    """Tracks the client's state and the target value of our part.

    Changes are recorded as paths; `flush` returns the operations that bring the client's current state to the
    target, including missing parents. While the client's state is not an object, and cannot hold our part,
    changes wait. `trusted` is the state that replaces the client's. `on_entry` is called with the message id
    and the entry for every entry of a citation list that we write or annotate.
    """

    def __init__(
        self,
        client: Any,
        state_key: str,
        *,
        deepcitation: bool = True,
        ngaf: bool = True,
        trusted: Any = None,
        on_entry: Callable[[str, Json], None] | None = None,
    ) -> None:
        self._on_entry = on_entry or _nobody
        self._key, self._deepcitation, self._ngaf = state_key, deepcitation, ngaf
        self._client = PatchTarget({} if client is None else client, as_client=True)
        trusted = client if trusted is None else trusted
        posted = record_of(trusted, state_key)
        mine = {} if posted is None else {state_key: posted}
        lists = _own_lists(trusted)
        self._corrections = _corrections(client, trusted, state_key)
        self._ours = PatchTarget({**mine, CITATIONS: lists})
        # The index of each entry in our list of a message, by its id and by its key.
        self._places = {name: _places(entries) for name, entries in lists.items()}
        # Our notes on the agent's citations, by message and entry.
        self._notes: dict[str, dict[str, Json]] = {}
        self._dirty: dict[_Path, None] = {}
        self._unsaid: set[str] = set()

    @property
    def own_record(self) -> Json:
        """The target value of our record, read-only, valid until the next change."""
        return self._ours.peek().get(self._key, INITIAL_DEEPCITATION_STATE)

    @property
    def known_messages(self) -> list[str]:
        """The ids of the messages in our part of the state, oldest first."""
        return [*dict.fromkeys([*self.own_record["messages"], *self._ours.peek()[CITATIONS]])]

    def own_citations(self, message_id: str) -> list[Json]:
        """Return the citations that we list for a message, read-only."""
        return self._ours.peek()[CITATIONS].get(message_id, [])

    def agent_entries(self) -> Iterator[tuple[str, list[Any]]]:
        """Yield the citations that the agent put into the state, by message."""
        own = self._ours.peek()[CITATIONS]
        for message_id, entries in (self._lists() or {}).items():
            if isinstance(entries, list) and message_id not in own and not is_own_list(entries):
                yield message_id, cast("list[Any]", entries)

    def patch(self, operations: Iterable[PatchOperation]) -> None:
        """Apply operations to our record."""
        if not self._deepcitation:
            return
        if self._key not in self._ours.peek():
            self._put((self._key,), INITIAL_DEEPCITATION_STATE)
        for operation in operations:
            self._ours.apply([operation])
            self._dirty[tuple(parse_pointer(operation["path"]))] = None

    def list_citation(self, message_id: str, entry: Json) -> None:
        """Append a citation to our list for a message, unless the agent lists its own."""
        listed = self.own_citations(message_id)
        if not self._ngaf or not is_safe_key(message_id) or self._is_listed_by_agent(message_id):
            return
        if not listed:
            self._places[message_id] = {}
        places = self._places[message_id]
        if entry["id"] in places:
            entry = {**entry, "id": entry["extra"][CITEWIRE_KEY]["key"]}
        places |= _places([entry], len(listed))
        if listed:
            self._put((CITATIONS, message_id, str(len(listed))), entry)
        else:
            self._put((CITATIONS, message_id), [entry])
        self._on_entry(message_id, entry)

    def set_label(self, message_id: str, key: str, label: str) -> None:
        """Set the id of a citation that we list to the label of its marker, unless the label is taken."""
        places = self._places.get(message_id, {}) if self.own_citations(message_id) else {}
        if key in places and label not in places:
            places[label] = places[key]
            self._put((CITATIONS, message_id, str(places[key]), "id"), label)
            self._on_entry(message_id, self.own_citations(message_id)[places[key]])

    def annotate(self, message_id: str, key: str, entry_id: str | None, note: Json) -> None:
        """Add a note to the `extra` of a citation: in our entry, or in the agent's entry with this id."""
        if not self._ngaf or not is_safe_key(message_id):
            return
        if self.own_citations(message_id):
            at = self._places[message_id].get(key)
            if at is not None:
                self._put(
                    (CITATIONS, message_id, str(at), "extra"),
                    {CITEWIRE_KEY: {"own": True, "key": key, **note}},
                )
                self._on_entry(message_id, self.own_citations(message_id)[at])
        elif entry_id is not None:
            self._notes.setdefault(message_id, {})[entry_id] = note
            self._unsaid.add(message_id)

    def rename_message(self, old: str, new: str) -> None:
        """Move our part of a message to another id."""
        if not is_safe_key(new):
            return
        if (message := self.own_record["messages"].get(old)) is not None:
            self._drop((self._key, "messages", old))
            self._put((self._key, "messages", new), {**message, "messageId": new})
        if listed := self.own_citations(old):
            self._drop((CITATIONS, old))
            if not self._is_listed_by_agent(new):
                self._put((CITATIONS, new), listed)
                self._places[new] = self._places.pop(old)
                for entry in listed:
                    self._on_entry(new, entry)
        if old in self._notes:
            self._notes[new] = self._notes.pop(old)
            self._unsaid.add(new)

    def evict(self, message_ids: Iterable[str]) -> None:
        """Remove messages, and the members of the aggregates that no other message uses."""
        for name in message_ids:
            self._notes.pop(name, None)
            self._drop((self._key, "messages", name))
            self._drop((self._key, "reviews", name))
            self._drop((CITATIONS, name))
        kept = self.own_record["messages"].values()
        for aggregate in ("citations", "verifications"):
            used = {key for message in kept for key in message[aggregate]}
            for key in [key for key in self.own_record[aggregate] if key not in used]:
                self._drop((self._key, aggregate, key))

    def resend_lists(self, message_ids: Iterable[str]) -> list[PatchOperation]:
        """Return operations that set our lists again: bridges must merge them into replaced messages."""
        lists = self._lists() or {}
        return [
            _replace(lists[name], CITATIONS, name)
            for name in message_ids
            if is_safe_key(name) and lists.get(name)
        ]

    @property
    def is_dirty(self) -> bool:
        """Whether there are changes to send to the client."""
        return bool(self._dirty or self._unsaid or self._corrections)

    def flush(self) -> list[PatchOperation]:
        """Return the operations to send, which apply to the client's current state."""
        if not self.is_dirty or not isinstance(self._client.peek(), dict):
            return []
        told, self._corrections = self._corrections, []
        self._client.apply(told)
        wanted = self._ours.value  # a value that does not change after it is sent
        for path in self._dirty:
            operation = self._operation(wanted, path)
            if operation is not None:
                self._client.apply([operation])
                told.append(operation)
        for name in self._unsaid:
            noted = self._note_operations(name)
            self._client.apply(noted)
            told += noted
        self._dirty.clear()
        self._unsaid.clear()
        return told

    def apply_snapshot(self, snapshot: Any) -> None:
        """Apply the agent's snapshot of the whole state."""
        self._client.replace(snapshot)
        self._restore_own()

    def apply_delta(self, delta: list[Any]) -> bool:
        """Apply the agent's patch, and return whether it touches keys that we write.

        A patch that the client cannot apply changes nothing.
        """
        try:
            self._client.apply(delta)
        except PatchError:
            return False
        if touched := _touches(delta, {self._key, CITATIONS}):
            self._restore_own()
        return touched

    def _put(self, path: _Path, value: Any) -> None:
        self._ours.apply([_add(value, *path)])
        self._dirty[path] = None

    def _drop(self, path: _Path) -> None:
        if _at(self._ours.peek(), path) is not _MISSING:
            self._ours.apply([{"op": "remove", "path": safe_path(*path)}])
            self._dirty[path] = None

    def _lists(self) -> Json | None:
        """Return the citation lists in the client's state; None if something else is there."""
        state = self._client.peek()
        lists = cast("Json", state).get(CITATIONS, {}) if isinstance(state, dict) else None
        return cast("Json", lists) if isinstance(lists, dict) else None

    def _is_listed_by_agent(self, message_id: str) -> bool:
        entries = (self._lists() or {}).get(message_id)
        return bool(entries) and not self.own_citations(message_id) and not is_own_list(entries)

    def _restore_own(self) -> None:
        """Restore our part after the agent wrote to it. Lists that the agent wrote now belong to it."""
        lists = self._lists() or {}
        for name, entries in list(self._ours.peek()[CITATIONS].items()):
            theirs = lists.get(name)
            if theirs and not is_own_list(theirs):
                self._ours.apply([{"op": "remove", "path": safe_path(CITATIONS, name)}])
                self._dirty = {path: None for path in self._dirty if path[:2] != (CITATIONS, name)}
                self._notes[name] = {entry["id"]: read_note_without_owner(entry) for entry in entries}
            elif theirs != entries:
                self._dirty[CITATIONS, name] = None
        if self._key in self._ours.peek():
            self._dirty = {(self._key,): None, **self._dirty}
        self._unsaid |= self._notes.keys()

    def _operation(self, wanted: Any, path: _Path) -> PatchOperation | None:
        """Return the operation that sets the client's state to `wanted` at `path`, or at a missing parent."""
        if path[0] == CITATIONS and self._lists() is None:
            return None  # the agent uses this key for something else
        ours, theirs = wanted, self._client.peek()
        for depth, key in enumerate(path, 1):
            ours, theirs = _child(ours, key), _child(theirs, key)
            pointer = safe_path(*path[:depth])
            if ours is _MISSING:
                return None if theirs is _MISSING else {"op": "remove", "path": pointer}
            if theirs is _MISSING:
                return {"op": "add", "path": pointer, "value": ours}
            if depth == len(path) or not isinstance(theirs, dict | list):
                return None if ours is theirs else {"op": "replace", "path": pointer, "value": ours}
        return None

    def _note_operations(self, message_id: str) -> list[PatchOperation]:
        """Return the operations that add our missing notes to the agent's entries."""
        notes, operations = self._notes.get(message_id, {}), list[PatchOperation]()
        entries = (self._lists() or {}).get(message_id)
        for at, entry in enumerate(cast("list[Any]", entries) if isinstance(entries, list) else ()):
            note = notes.get(entry_id(entry, at))
            if note is None or not isinstance(entry, dict):
                continue
            self._on_entry(message_id, {**cast("Json", entry), "extra": {CITEWIRE_KEY: note}})
            if read_note(entry) == note:
                continue
            extra = cast("Json", entry).get("extra")
            if isinstance(extra, dict):
                operations.append(_add(note, CITATIONS, message_id, str(at), "extra", CITEWIRE_KEY))
            elif extra is None:
                operations.append(_add({CITEWIRE_KEY: note}, CITATIONS, message_id, str(at), "extra"))
        return operations


def _nobody(_message_id: str, _entry: Json) -> None:
    """Ignore an entry."""


def _corrections(client: Any, trusted: Any, state_key: str) -> list[PatchOperation]:
    """Return the operations that set our part of the client's state to the trusted one."""
    if client is trusted or not isinstance(client, dict):
        return []
    theirs, ours = cast("Json", client), cast("Json", trusted)
    told = [
        _replace(ours[name], name)
        for name in (state_key, CITATIONS)
        if name in ours and ours[name] != theirs[name]
    ]
    if state_key in theirs and state_key not in ours:
        told.append({"op": "remove", "path": safe_path(state_key)})
    return told


def _touches(delta: list[Any], roots: set[str]) -> bool:
    for operation in cast("list[Json]", delta):
        for name in ("path", "from"):
            pointer = operation.get(name)
            if isinstance(pointer, str) and (not pointer or pointer.split("/", 2)[1] in roots):
                return True
    return False


def _child(parent: Any, key: str) -> Any:
    if isinstance(parent, dict):
        return cast("Json", parent).get(key, _MISSING)
    if isinstance(parent, list) and key.isdecimal():
        items = cast("list[Any]", parent)
        return items[int(key)] if int(key) < len(items) else _MISSING
    return _MISSING


def _at(value: Any, path: _Path) -> Any:
    for key in path:
        value = _child(value, key)
    return value


def record_of(state: Any, key: str) -> Json | None:
    """Return our record in a posted state, without invalid messages and keys; None if it is not valid."""
    record = cast("Json", state).get(key) if isinstance(state, dict) else None
    if not isinstance(record, dict):
        return None
    fields = cast("Json", record)
    if not all(isinstance(fields.get(name), dict) for name in INITIAL_DEEPCITATION_STATE):
        return None
    aggregates = {
        name: {key: value for key, value in fields[name].items() if is_safe_key(key)}
        for name in ("citations", "verifications")
    }
    whole = {
        name: message
        for name, message in fields["messages"].items()
        if is_safe_key(name) and _is_message(message)
    }
    return {**fields, **aggregates, "messages": whole}


def _is_message(message: Any) -> bool:
    fields = cast("Json", message) if isinstance(message, dict) else {}
    inner = (fields.get(name) for name in ("citations", "verifications"))
    return fields.keys() >= {"summary", "status"} and all(
        isinstance(each, dict)
        and all(is_safe_key(key) and isinstance(value, dict) for key, value in cast("Json", each).items())
        for each in inner
    )


def _own_lists(state: Any) -> dict[str, list[Json]]:
    lists = cast("Json", state).get(CITATIONS) if isinstance(state, dict) else None
    if not isinstance(lists, dict):
        return {}
    return {
        name: list(entries)
        for name, entries in cast("Json", lists).items()
        if is_safe_key(name) and is_own_list(entries)
    }


def _places(entries: list[Json], first: int = 0) -> dict[str, int]:
    return {
        name: at
        for at, entry in enumerate(entries, first)
        for name in (entry["id"], entry["extra"][CITEWIRE_KEY]["key"])
    }
