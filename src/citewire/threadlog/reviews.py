"""Reviews of citations in the state that a client posts: who looked at a citation, and for how long."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from itertools import islice
from typing import Annotated, Any, Literal, NamedTuple, TypeAlias
from uuid import uuid4

import msgspec
from msgspec import Meta, Struct

from citewire.agui.citations.shared_state import is_safe_key
from citewire.agui.events import Json
from citewire.channels.actor import Actor
from citewire.channels.store import Entry
from citewire.dialects.base import is_list, is_object
from citewire.threadlog.rows import PostedReviewRow, encode_row

__all__ = [
    "PostedReview",
    "ReviewEvent",
    "ReviewsByCitation",
    "add_reviews",
    "find_new_reviews",
    "make_review_entry",
]

ReviewsByCitation: TypeAlias = Mapping[tuple[str, str], list[Json]]
"""The reviews that are on record, by message and citation."""

# Most reviews read from one run, and most bytes in a message id or citation key.
_MOST, _LONGEST = 1000, 512


class ReviewEvent(Struct, frozen=True, rename="camel"):
    """One action of a user. On record, `at` is the server's time and `claimed_at` the client's."""

    event: Literal["popover_opened", "popover_closed", "citation_reviewed"]
    at: datetime | None = None
    claimed_at: datetime | None = None
    dwell_ms: Annotated[int, Meta(ge=0, le=10**12)] | None = None


class PostedReview(NamedTuple):
    """An action of a user on a citation."""

    message_id: str
    key: str
    look: ReviewEvent


def find_new_reviews(state: Any, state_key: str, known: ReviewsByCitation) -> list[PostedReview]:
    """Return the reviews in a posted state that are not on record, each once. Skips invalid ones."""
    found: dict[PostedReview, None] = {}
    for review in islice(_posted(state, state_key), _MOST):
        looks = map(_read, known.get((review.message_id, review.key), ()))
        if not any(look and _is_same(review.look, look) for look in looks):
            found[review] = None
    return [*found]


def make_review_entry(review: PostedReview, by: Actor, at: str) -> Entry:
    """Make the row of a review. Each call gives a new id, so an action that happened twice is recorded twice.

    `at` is the server's time; the client's time is stored as `claimedAt`.
    """
    look = {
        "event": review.look.event,
        "at": at,
        "claimedAt": review.look.at and review.look.at.isoformat(),
        "dwellMs": review.look.dwell_ms,
    }
    given = {name: value for name, value in look.items() if value is not None}
    row = PostedReviewRow(review.message_id, review.key, given, by.client_id, by.key, by.person)
    return encode_row(row, uuid4().hex)


def add_reviews(state: Any, state_key: str, looks: ReviewsByCitation) -> Any:
    """Add the recorded reviews to the state, in the place where a client posts them."""
    if not looks or not (state is None or is_object(state)):
        return state
    noted: dict[str, Json] = {}
    for (message_id, key), reviews in looks.items():
        noted.setdefault(message_id, {})[key] = list(reviews)
    held: Json = state or {}
    record = held.get(state_key)
    return {**held, state_key: {**(record if is_object(record) else {}), "reviews": noted}}


def _posted(state: Any, state_key: str) -> Iterator[PostedReview]:
    for message_id, by_key in _members(_member(_member(state, state_key), "reviews")):
        for key, given in _members(by_key):
            for look in map(_read, given if is_list(given) else ()):
                if look is not None:
                    yield PostedReview(message_id, key, look)


def _member(value: Any, name: str) -> Any:
    return value.get(name) if is_object(value) else None


def _members(value: Any) -> Iterator[tuple[str, Any]]:
    for name, member in value.items() if is_object(value) else ():
        if name and is_safe_key(name) and len(name.encode("utf-8", "replace")) <= _LONGEST:
            yield name, member


def _read(review: Any) -> ReviewEvent | None:
    try:
        return msgspec.convert(review, ReviewEvent)
    except msgspec.ValidationError:
        return None


def _is_same(posted: ReviewEvent, known: ReviewEvent) -> bool:
    """Return whether two reviews are the same action. A posted one without a time matches any similar one."""
    is_then = posted.at is None or _time(posted.at) in (_time(known.at), _time(known.claimed_at))
    return is_then and (posted.event, posted.dwell_ms) == (known.event, known.dwell_ms)


def _time(at: datetime | None) -> datetime | None:
    return at.replace(tzinfo=UTC) if at and at.tzinfo is None else at
