"""What counts of the messages and the state that a client posts to start a run.

The log of a thread is the authority on what the server itself said. The texts of its answers, its record
under the state key and its lists of citations come from the log; what a client posts for them is ignored. All
other messages and all other state are the client's, and the messages are marked as posted.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Set
from typing import Any, Literal, TypeAlias

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

__all__ = [
    "AcceptedInput", "IgnoredPart", "OwnRecord", "accept_input", "input_for_agent", "keep_own_lists",
    "withdraw_citations",
]  # fmt: skip

_REVIEWS = "reviews"
# A link to a proof gets a new signature whenever it is sent.
_LINK = re.compile(r"(/proofs/[^?\s]*)\?.*", re.DOTALL)

IgnoredPart: TypeAlias = Literal["messages", "state"]
"""Where a client posted something else than the log has."""


class OwnRecord(Struct, frozen=True):
    """What the log of a thread says of the server's own answers.

    `messages` are those that the server said, by id, also where a later run left them out. `posted` are the
    ids of those that only clients posted, and `fingerprints` theirs, in all runs. `record` is the value of
    the state key, and `lists` that of `citations`; either is None where there is none.
    """

    messages: Mapping[str, Json] = {}
    posted: Set[str] = frozenset()
    record: Json | None = None
    lists: Any = None
    fingerprints: Set[bytes] = frozenset()


class AcceptedInput(Struct, frozen=True):
    """The input of a run as it counts.

    `ignored` says where the client posted something else about the server's own answers, and `news` are the
    events that bring the client's copy up to date.
    """

    input: RunInput
    ignored: tuple[IgnoredPart, ...]
    news: tuple[AnyEvent, ...]


def accept_input(posted: RunInput, own: OwnRecord, state_key: str) -> AcceptedInput:
    """Take the server's own from the log, and the rest as posted. Doing so again changes nothing."""
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
    """The input without the marks, which are none of the agent's business."""
    return replace(run_input, messages=[without_mark(each) for each in run_input.messages])


# --- messages -----------------------------------------------------------------------------------------------


def _accept_messages(posted: list[Any], own: Mapping[str, Json]) -> list[Any]:
    """The posted list: each of the server's messages once and as the log has it, all others marked."""
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
    """Whether the client posted the server's messages with their roles and texts. Other fields may differ."""
    return len(posted) == len(accepted) and all(
        (theirs.get("role"), theirs.get("content") or "") == (ours.get("role"), ours.get("content") or "")
        for theirs, ours in zip(posted, accepted, strict=True)
        if id_of(ours) in own
    )


# --- state --------------------------------------------------------------------------------------------------


def _accept_state(posted: RunInput, own: OwnRecord, state_key: str) -> Any:
    """The posted state with the record and the lists of the log in place of its own."""
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
    """The lists of the log, and those that a client posted for its own messages, without verdicts."""
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
    """The lists for messages that the record knows: those that must outlive any other state."""
    messages = (record or INITIAL_DEEPCITATION_STATE).get("messages")
    if not (is_object(lists) and is_object(messages)):
        return None
    return {name: entries for name, entries in lists.items() if name in messages} or None


def withdraw_citations(record: Json | None, lists: Any, keys: Set[str]) -> tuple[Json | None, Any]:
    """The record and the lists without the citations of these keys, which their authors took back."""
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
    """The state without reviews, which a client posts only once."""
    record = state.get(state_key) if is_object(state) else None
    if not is_object(record) or _REVIEWS not in record:
        return state
    rest = {name: value for name, value in record.items() if name != _REVIEWS}
    return {**state, state_key: rest}


def _claims(posted: Any, accepted: Any, state_key: str) -> bool:
    """Whether the client posted something of its own under the server's keys, and not just nothing."""
    if not is_object(posted):
        return False
    ours: Json = accepted if is_object(accepted) else {}
    return any(
        name in posted and not is_same_json(posted[name], ours.get(name)) for name in (state_key, CITATIONS)
    )


def is_same_json(one: Any, other: Any) -> bool:
    """Whether two values are the same JSON, but for the signatures of links to proofs."""
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
