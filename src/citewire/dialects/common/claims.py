"""What the shapes share whose citations are claims, told by offsets into the text."""

from __future__ import annotations

from collections.abc import Callable, Collection

from citewire.adapt import Adaptation
from citewire.dialects.base import native_for
from citewire.errors import ShapeError
from citewire.model import Answer, Citation, Native, Span, SpanOrigin
from citewire.text import Offsets, Unit

__all__ = ["ClaimTextBudget", "find_unchanged_native", "fit_to_claims", "origin_of", "read_claim"]

# No character takes more units than this, in any unit.
_WIDEST = 4


def read_claim(
    offsets: Offsets, start: int, end: int, unit: Unit, covered: str | None = None, part: int = 0
) -> tuple[Span, SpanOrigin]:
    """The claim that offsets tell, checked against the words it `covered` where the payload has them.

    Raises `ShapeError` where the offsets leave the text, and where the words are nowhere to be found.
    """
    if not covered:
        found = offsets.span(start, end, unit)
        if found is None:
            raise ShapeError(f"span {start} to {end} is reversed or outside the text", "")
    else:
        # A span far too long is not worth comparing: many of those would take time without end.
        end = end if end - start <= _WIDEST * len(covered) else start
        found = offsets.find_covered(start, end, unit, covered)
        if found is None:
            raise ShapeError("the cited words are not in the text, or too short to tell where", "")
    return Span(part, found.start, found.end), "repaired" if found.repaired else "exact"


def fit_to_claims(answer: Answer, dialect: str) -> Adaptation:
    """An answer without markers; what was cited by a marker or at a point has a claim instead."""
    fitting = Adaptation(answer, dialect)
    has_places = any(one.claim or one.marker or one.insert_at for one in answer.citations)
    if has_places or native_for(answer.native, dialect) is None:
        fitting.require_text()
    fitting.require_refs()
    fitting.remove_markers()
    fitting.derive_claims(lambda citation: True)
    return fitting


def find_unchanged_native(citation: Citation, dialect: str, same: Collection[int]) -> Native | None:
    """What was kept of a citation whose claim is the one that was read, in a part that is the `same`.

    `Native.was` is that claim and its origin.
    """
    native = native_for(citation.native, dialect)
    if native is None or native.was is None or native.was[0] != citation.claim:
        return None
    return native if citation.claim is None or citation.claim.part in same else None


def origin_of(dialect: str, same: Collection[int]) -> Callable[[Citation], SpanOrigin]:
    """What a reader will make of a claim: as before where it is written as it came."""

    def origin(citation: Citation) -> SpanOrigin:
        if (native := find_unchanged_native(citation, dialect, same)) is not None:
            return native.was[1]
        return "exact" if citation.claim else "unknown"

    return origin


# How many times over the words of an answer are written out beside the offsets, and how many always may be.
_TIMES_OVER = 16
_ALWAYS = 1_000_000


class ClaimTextBudget:
    """The words of claims, which the offsets tell as well: claims within claims would have no end, so
    past a limit they are left out."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self._left = _TIMES_OVER * sum(len(part.text) for part in answer.parts) + _ALWAYS

    def text_of(self, claim: Span) -> str | None:
        self._left -= claim.end - claim.start
        return self._answer.covered(claim) if self._left >= 0 else None
