"""Decide which posted messages and state are accepted when a client starts a run.

The thread's log is authoritative for what the server itself said. The texts of its answers, its record under
the state key and its citation lists are taken from the log; a client's versions are ignored. All other
messages and state belong to the client, and its messages are marked as posted.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Set
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from citewire.agui import events as ev
from citewire.agui.citations.citation_entries import key_of, remove_notes
from citewire.agui.citations.posted_messages import id_of, mark_posted, without_mark
from citewire.agui.citations.records import count_statuses
from citewire.agui.citations.shared_state import CITATIONS, INITIAL_DEEPCITATION_STATE, summary_of
from citewire.agui.events import AnyEvent, Json, RunInput
from citewire.agui.shapes import filter_sendable
from citewire.dialects.base import is_list, is_object
from citewire.threadlog.rows import IgnoredPart

__all__ = [
    "AcceptedInput", "OwnRecord", "accept_input", "input_for_agent", "keep_own_lists",
    "withdraw_citations",
]  # fmt: skip

_REVIEWS = "reviews"
# Links to proofs are signed again each time they are sent.
_LINK = re.compile(r"(/proofs/[^?\s]*)\?.*", re.DOTALL)


class OwnRecord(Struct, frozen=True):
    """What a thread's log says about the server's own answers.

    `messages` holds the server's messages by id, including those that a later run omitted. `posted` holds the
    ids of messages that only clients posted, and `fingerprints` their fingerprints, over all runs. `record`
    is the value under the state key, and `lists` the value under `citations`; each may be None.
    """

    messages: Mapping[str, Json] = {}
    posted: Set[str] = frozenset()
    record: Json | None = None
    lists: Any = None
    fingerprints: Set[bytes] = frozenset()


class AcceptedInput(Struct, frozen=True):
    """The accepted input of a run.

    `ignored` lists the parts where the client contradicted the log about the server's own answers. `news` are
    the events that bring the client's copy up to date.
    """

    input: RunInput
    ignored: tuple[IgnoredPart, ...]
    news: tuple[AnyEvent, ...]


def accept_input(posted: RunInput, own: OwnRecord, state_key: str) -> AcceptedInput:
    """Take the server's own messages and state from the log, and the rest as posted. Idempotent."""
    messages = _accept_messages(posted.messages, own.messages)
    state = _accept_state(posted, own, state_key)
    ignored: list[IgnoredPart] = []
    news: list[AnyEvent] = []
    if not _say_the_same(posted.messages, messages, own.messages):
        ignored.append("messages")
        news.append(ev.MessagesSnapshot(filter_sendable(messages)))
    held = _without_reviews(posted.state, state_key)
    if not is_same_json(held, state):
        news.append(ev.StateSnapshot(state))
        if _claims(held, state, state_key):
            ignored.append("state")
    return AcceptedInput(replace(posted, messages=messages, state=state), tuple(ignored), tuple(news))


def input_for_agent(run_input: RunInput) -> RunInput:
    """Remove the "posted" marks, which the agent must not see."""
    return replace(run_input, messages=[without_mark(each) for each in run_input.messages])


# --- messages -----------------------------------------------------------------------------------------------


def _accept_messages(posted: list[Any], own: Mapping[str, Json]) -> list[Any]:
    """Return the posted list with the server's messages from the log, each once, and all others marked."""
    accepted: list[Any] = []
    seen: set[str] = set()
    for message in posted:
        name = id_of(message)
        if name not in own:
            accepted.append(mark_posted(message))
        elif name not in seen:
            seen.add(name)
            accepted.append(own[name])
    return accepted


def _say_the_same(posted: list[Any], accepted: list[Any], own: Mapping[str, Json]) -> bool:
    """Check that the client posted the server's messages with their roles and texts; ignores other fields."""
    return len(posted) == len(accepted) and all(
        (theirs.get("role"), theirs.get("content") or "") == (ours.get("role"), ours.get("content") or "")
        for theirs, ours in zip(posted, accepted, strict=True)
        if id_of(ours) in own
    )


# --- state --------------------------------------------------------------------------------------------------


def _accept_state(posted: RunInput, own: OwnRecord, state_key: str) -> Any:
    """Return the posted state with the record and the citation lists from the log."""
    if not is_object(posted.state):
        ours = _own_state(own, own.lists, state_key)
        return ours or posted.state
    rest = {name: value for name, value in posted.state.items() if name not in (state_key, CITATIONS)}
    others = {id_of(each) for each in posted.messages} - own.messages.keys() - {""}
    return {**rest, **_own_state(own, _accept_lists(posted.state, own, others), state_key)}


def _own_state(own: OwnRecord, lists: Any, state_key: str) -> Json:
    record = {} if own.record is None else {state_key: own.record}
    return record if lists is None else {**record, CITATIONS: lists}


def _accept_lists(state: Json, own: OwnRecord, others: set[str]) -> Any:
    """Return the log's citation lists plus those the client posted for its own messages, without verdicts."""
    theirs = state.get(CITATIONS)
    if not is_object(theirs):
        return own.lists
    if not (own.lists is None or is_object(own.lists)):
        return own.lists
    known: Json = own.lists or {}
    more = {
        name: remove_notes(entries)
        for name, entries in theirs.items()
        if name in others and name not in known and is_list(entries)
    }
    return {**known, **more} if more or own.lists is not None or not theirs else None


def keep_own_lists(lists: Any, record: Json | None) -> Any:
    """Return the citation lists of messages in the record. These must survive any change of state."""
    messages = (record or INITIAL_DEEPCITATION_STATE).get("messages")
    if not (is_object(lists) and is_object(messages)):
        return None
    return {name: entries for name, entries in lists.items() if name in messages} or None


def withdraw_citations(record: Json | None, lists: Any, keys: Set[str]) -> tuple[Json | None, Any]:
    """Remove the citations with these keys, which their authors withdrew, from the record and the lists."""
    if record is None or keys.isdisjoint(record.get(CITATIONS, ())):
        return record, lists
    kept = {name: _drop(record[name], keys) for name in (CITATIONS, "verifications")}
    messages = {name: _withdraw_from(message, keys) for name, message in record["messages"].items()}
    left = {
        name: [each for each in entries if key_of(each) not in keys] if is_list(entries) else entries
        for name, entries in (lists.items() if is_object(lists) else ())
    }
    return {**record, **kept, "messages": messages}, left if is_object(lists) else lists


def _withdraw_from(message: Json, keys: Set[str]) -> Json:
    if keys.isdisjoint(message[CITATIONS]):
        return message
    citations, verdicts = _drop(message[CITATIONS], keys), _drop(message["verifications"], keys)
    counted = count_statuses(verdicts.values())
    counted["pending"] = len(citations.keys() - verdicts.keys())
    return {**message, CITATIONS: citations, "verifications": verdicts, "summary": summary_of(counted)}


def _drop(members: Json, keys: Set[str]) -> Json:
    return {key: value for key, value in members.items() if key not in keys}


def _without_reviews(state: Any, state_key: str) -> Any:
    """Remove the reviews, which a client posts only once."""
    record = state.get(state_key) if is_object(state) else None
    if not is_object(record) or _REVIEWS not in record:
        return state
    rest = {name: value for name, value in record.items() if name != _REVIEWS}
    return {**state, state_key: rest}


def _claims(posted: Any, accepted: Any, state_key: str) -> bool:
    """Check whether the client posted a different, non-empty value under one of the server's keys."""
    if not is_object(posted):
        return False
    ours: Json = accepted if is_object(accepted) else {}
    return any(
        name in posted and not is_same_json(posted[name], ours.get(name)) for name in (state_key, CITATIONS)
    )


def is_same_json(one: Any, other: Any) -> bool:
    """Compare two JSON values, ignoring the signatures in links to proofs."""
    if one is other:
        return True
    if is_object(one) and is_object(other):
        return one.keys() == other.keys() and all(
            is_same_json(value, other[name]) for name, value in one.items()
        )
    if is_list(one) and is_list(other):
        return len(one) == len(other) and all(map(is_same_json, one, other))
    if isinstance(one, str) and isinstance(other, str):
        return one == other or ("/proofs/" in one and _LINK.sub(r"\1", one) == _LINK.sub(r"\1", other))
    return one == other
