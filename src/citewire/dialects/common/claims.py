"""Shared code for formats whose citations are claims, given as offsets into the text."""

from __future__ import annotations

from collections.abc import Callable, Collection

from citewire.adapt import Adaptation
from citewire.dialects.base import native_for
from citewire.errors import ShapeError
from citewire.model import Answer, Citation, Native, Span, SpanOrigin
from citewire.text import Offsets, Unit

__all__ = ["ClaimTextBudget", "find_unchanged_native", "fit_to_claims", "origin_of", "read_claim"]

# The most units that one character can take, in any unit.
_WIDEST = 4


def read_claim(
    offsets: Offsets, start: int, end: int, unit: Unit, covered: str | None = None, part: int = 0
) -> tuple[Span, SpanOrigin]:
    """Return the claim at these offsets, checked against its words in `covered` if the payload has them.

    Raises `ShapeError` if the offsets are outside the text, or if the text does not contain the words.
    """
    if not covered:
        found = offsets.span(start, end, unit)
        if found is None:
            raise ShapeError(f"span {start} to {end} is reversed or outside the text", "")
    else:
        # Do not compare a span that is far too long: many of them would take unbounded time.
        end = end if end - start <= _WIDEST * len(covered) else start
        found = offsets.find_covered(start, end, unit, covered)
        if found is None:
            raise ShapeError("the cited words are not in the text, or too short to tell where", "")
    return Span(part, found.start, found.end), "repaired" if found.repaired else "exact"


def fit_to_claims(answer: Answer, dialect: str) -> Adaptation:
    """Adapt an answer to a format without markers; citations with a marker or a point get a claim instead."""
    fitting = Adaptation(answer, dialect)
    has_places = any(one.claim or one.marker or one.insert_at for one in answer.citations)
    if has_places or native_for(answer.native, dialect) is None:
        fitting.require_text()
    fitting.require_refs()
    fitting.remove_markers()
    fitting.derive_claims(lambda citation: True)
    return fitting


def find_unchanged_native(citation: Citation, dialect: str, same: Collection[int]) -> Native | None:
    """Return the original of a citation if its claim is unchanged and lies in a part listed in `same`.

    `Native.was` holds the claim and its origin.
    """
    native = native_for(citation.native, dialect)
    if native is None or native.was is None or native.was[0] != citation.claim:
        return None
    return native if citation.claim is None or citation.claim.part in same else None


def origin_of(dialect: str, same: Collection[int]) -> Callable[[Citation], SpanOrigin]:
    """Return a function for the new span origin: an unchanged claim keeps the one it was read with."""

    def origin(citation: Citation) -> SpanOrigin:
        if (native := find_unchanged_native(citation, dialect, same)) is not None:
            return native.was[1]
        return "exact" if citation.claim else "unknown"

    return origin


# Limit for the words of claims: this many times the length of the answer, plus a fixed allowance.
_TIMES_OVER = 16
_ALWAYS = 1_000_000


class ClaimTextBudget:
    """Returns the words of claims up to a size limit, because nested claims could repeat them without bound.
    Beyond the limit the words are omitted; the offsets are enough."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self._left = _TIMES_OVER * sum(len(part.text) for part in answer.parts) + _ALWAYS

    def text_of(self, claim: Span) -> str | None:
        self._left -= claim.end - claim.start
        return self._answer.covered(claim) if self._left >= 0 else None
