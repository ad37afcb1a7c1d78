"""Reviews that a client notes in the state which it posts: who looked at a citation, and for how long."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from itertools import islice
from typing import Annotated, Any, Literal, NamedTuple, TypeAlias
from uuid import uuid4

import msgspec
from msgspec import Meta, Struct

from citewire import codec
from citewire.agui.citations.shared_state import is_safe_key
from citewire.agui.events import Json
from citewire.channels.actor import Actor
from citewire.channels.store import Entry
from citewire.dialects.base import is_list, is_object

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

# Reviews that one run takes, and bytes of the names of a message and a citation.
_MOST, _LONGEST = 1000, 512


class ReviewEvent(Struct, frozen=True, rename="camel"):
    """What somebody did. On record, `at` is the time of the server and `claimed_at` what the client said."""

    event: Literal["popover_opened", "popover_closed", "citation_reviewed"]
    at: datetime | None = None
    claimed_at: datetime | None = None
    dwell_ms: Annotated[int, Meta(ge=0, le=10**12)] | None = None


class PostedReview(NamedTuple):
    """What somebody did who looked at a citation."""

    message_id: str
    key: str
    look: ReviewEvent


def find_new_reviews(state: Any, state_key: str, known: ReviewsByCitation) -> list[PostedReview]:
    """The reviews in a posted state that are not on record yet, each once. What is no review is left out."""
    found: dict[PostedReview, None] = {}
    for review in islice(_posted(state, state_key), _MOST):
        looks = map(_read, known.get((review.message_id, review.key), ()))
        if not any(look and _is_same(review.look, look) for look in looks):
            found[review] = None
    return [*found]


def make_review_entry(review: PostedReview, by: Actor) -> Entry:
    """The row of a review, under an id of its own: a look that happened twice is there twice.

    Its time is the server's; what the client says of the time stands beside it.
    """
    look = {
        "event": review.look.event,
        "at": datetime.now(UTC).isoformat(timespec="milliseconds"),
        "claimedAt": review.look.at and review.look.at.isoformat(),
        "dwellMs": review.look.dwell_ms,
    }
    row = {
        "messageId": review.message_id,
        "key": review.key,
        "review": {name: value for name, value in look.items() if value is not None},
        "clientId": by.client_id,
        "account": by.key,
        "person": by.person,
    }
    return Entry(uuid4().hex, "review", codec.encode(row))


def add_reviews(state: Any, state_key: str, looks: ReviewsByCitation) -> Any:
    """The state with the reviews where a client notes them."""
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
    """Whether they tell of the same look. One without a time is the same as any like it."""
    is_then = posted.at is None or _time(posted.at) in (_time(known.at), _time(known.claimed_at))
    return is_then and (posted.event, posted.dwell_ms) == (known.event, known.dwell_ms)


def _time(at: datetime | None) -> datetime | None:
    return at.replace(tzinfo=UTC) if at and at.tzinfo is None else at
