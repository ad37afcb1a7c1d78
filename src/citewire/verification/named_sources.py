"""Find the sources that a citation names. A client's source never takes the name of another source."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from citewire.verification.source_reading import SourceReading
from citewire.verification.sources import qualified_name, source_names

__all__ = ["ORIGIN_WARNINGS", "display_name", "find_named", "lookup_order"]

ORIGIN_WARNINGS: Mapping[str, str] = {
    "posted": "the source was posted with the question",
    "client_tool": "the source is what a tool of the client returned",
}
"""What a verdict says of a source that a client brought, by its `Origin`."""
# Most digits of a label that is only a position in a list, such as the 12 of "[12]".
_PLACE_DIGITS = 3


def find_named(readings: Iterable[SourceReading], wanted: Iterable[str]) -> list[SourceReading]:
    """Return the sources with the first of the `wanted` names that any source has."""
    known = list(readings)
    found = ([reading for reading in known if name in reading.names] for name in wanted)
    return next(filter(None, found), list[SourceReading]())


def lookup_order(
    readings: Sequence[SourceReading], wanted: Sequence[str]
) -> Iterator[tuple[list[SourceReading], list[str]]]:
    """Yield pairs of sources and names to look up in them; sources that no client supplied come first.

    A number such as the 12 of `[12]` is looked up last, since it may only be a position in a list.
    """
    theirs = [reading for reading in readings if reading.origin is not None]
    if not theirs:
        yield list(readings), list(wanted)
        return
    ours = [reading for reading in readings if reading.origin is None]
    places = [name for name in wanted if name.isdecimal() and len(name) <= _PLACE_DIGITS]
    for called in ([name for name in wanted if name not in places], places):
        yield ours, called
        yield theirs, called


def display_name(reading: SourceReading, others: Iterable[SourceReading]) -> str:
    """Return the name of a source in a verdict; a client's source never gets the name of another source."""
    if reading.origin is None:
        return reading.name
    called = source_names(reading.name)
    is_taken = any(called & each.names for each in others if each.origin is None)
    return qualified_name(reading.name, reading.origin) if is_taken else reading.name
