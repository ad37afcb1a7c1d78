"""Teams' streamed messages. Every activity contains the whole text so far, and the claims known so far."""

from __future__ import annotations

from typing import Any

from citewire.dialects.base import DialectOptions, Json, is_list, is_object
from citewire.dialects.teams.activity import NAME, read_activity
from citewire.errors import ShapeError
from citewire.model import Answer, Citation

__all__ = ["NAME", "STREAM", "TeamsStream", "detect"]


def detect(payload: Any) -> bool:
    return is_list(payload) and bool(payload) and all(_stream_type(each) is not None for each in payload)


def _stream_type(activity: Any) -> Any:
    """Return the stream type of an activity, from either of two fields."""
    if not is_object(activity) or activity.get("type") not in ("typing", "message"):
        return None
    entities = activity.get("entities")
    places = [activity.get("channelData"), *(entities if is_list(entities) else ())]
    return next((place["streamType"] for place in places if is_object(place) and "streamType" in place), None)


class TeamsStream:
    """Reads the activities of one message; each replaces the previous one."""

    def __init__(self, options: DialectOptions) -> None:
        self._activity: Json | None = None
        self._known: dict[str, Citation] = {}

    def feed(self, event: Any) -> tuple[Citation, ...]:
        if not is_object(event):
            raise ShapeError("an activity is not an object")
        if _stream_type(event) == "informative" or event.get("text") is None:
            # Progress such as "Searching…", which is not part of the answer.
            return ()
        answer = read_activity(event)
        self._activity = event
        found = {citation.id: citation for citation in answer.bare().citations}
        new = tuple(
            citation for citation in answer.citations if self._known.get(citation.id) != found[citation.id]
        )
        self._known = found
        return new

    def answer(self) -> Answer:
        return Answer() if self._activity is None else read_activity(self._activity)


STREAM = TeamsStream
