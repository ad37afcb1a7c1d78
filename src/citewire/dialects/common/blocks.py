"""Shared code for formats whose citations support whole blocks of text.

Adjacent text blocks form one part, and a claim covers one block; the writer cuts a part at its claims.
`Native.raw` of a part holds its original blocks, `at` the index of the first one, and `kept` their unreadable
citations by block number.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable
from heapq import heappop, heappush
from itertools import pairwise
from typing import Any, NamedTuple

from msgspec.structs import replace

from citewire.adapt import Adaptation
from citewire.dialects.base import Json, ProblemList, SourceRegistry, native_for, optional
from citewire.errors import InputError
from citewire.model import Citation, Native, Part, SourceRef, Span
from citewire.text import common_prefix_length

__all__ = [
    "Block",
    "BlockReader",
    "claim_end",
    "claim_start",
    "cover_whole_text",
    "cut_at_claims",
    "find_unchanged_blocks",
    "flatten_claims",
    "join_adjacent_parts",
]


class BlockReader:
    """Reads blocks in order and joins adjacent text blocks into one part. `read_ref` reads one citation of a
    block."""

    def __init__(self, dialect: str, read_ref: Callable[[Any, int, SourceRegistry], SourceRef]) -> None:
        self.parts: list[Part] = []
        self.citations: list[Citation] = []
        self.sources = SourceRegistry()
        self.problems = ProblemList()
        self._dialect, self._read_ref = dialect, read_ref
        self._blocks: list[Json] = []
        self._texts: list[str] = []
        self._kept: dict[int, tuple[tuple[int, Any], ...]] = {}
        self._first = 0
        self._length = 0

    def _add(self, number: int, block: Json, text: str) -> Span:
        """Append a block to the current part and return the span it covers."""
        if not self._blocks:
            self._first = number
        start = self._length
        self._length += len(text)
        self._blocks.append(block)
        self._texts.append(text)
        return Span(len(self.parts), start, self._length)

    def _refs(self, cited: Json, where: str) -> tuple[SourceRef, ...]:
        """Read the citations of the last block. Unreadable ones are preserved."""
        refs: list[SourceRef] = []
        kept: list[tuple[int, Any]] = []
        for at, entry in enumerate(
            self.problems.try_read(lambda: where, optional, cited, "citations", list) or ()
        ):
            try:
                refs.append(self._read_ref(entry, at, self.sources))
            except InputError as exc:
                self.problems.add(f"{where}.citations[{at}]", exc)
                kept.append((at, entry))
        if kept:
            self._kept[len(self._blocks) - 1] = tuple(kept)
        return tuple(refs)

    def close_part(self) -> None:
        """End the current part: the next block is not adjacent to the previous ones."""
        if self._blocks:
            native = Native(self._dialect, self._blocks, self._first, self._kept or None)
            self.parts.append(Part("".join(self._texts), native))
            self._blocks, self._texts, self._kept, self._length = [], [], {}, 0


def join_adjacent_parts(fitting: Adaptation) -> None:
    """Join the parts unless other blocks separate all of them: adjacent text blocks are read as one part."""
    parts = fitting.answer.parts
    kept = [native_for(part.native, fitting.dialect) for part in parts]
    apart = all(left and right and left.at + len(left.raw) < right.at for left, right in pairwise(kept))
    if not apart or native_for(fitting.answer.native, fitting.dialect) is None:
        fitting.join_parts()


class _Piece(NamedTuple):
    start: int
    end: int
    citations: tuple[Citation, ...]


def flatten_claims(fitting: Adaptation) -> None:
    """Make claims disjoint: where claims overlap, each piece is cited by all claims that cover it."""
    claimed = tuple(citation for citation in fitting.answer.citations if citation.claim)
    if _are_disjoint(claimed):
        return
    by_part: dict[int, list[Citation]] = {}
    for citation in claimed:
        if citation.claim:
            by_part.setdefault(citation.claim.part, []).append(citation)
    flat = tuple(_piece_citation(piece, part) for part in sorted(by_part) for piece in _pieces(by_part[part]))
    _report_moved_claims(fitting, claimed, flat)
    others = (citation for citation in fitting.answer.citations if not citation.claim)
    fitting.answer = replace(fitting.answer, citations=(*flat, *others))


def _are_disjoint(citations: tuple[Citation, ...]) -> bool:
    """Whether every claim starts at or after the end of the previous one."""
    last = (-1, 0)
    for citation in citations:
        claim = citation.claim
        if claim is None or (claim.part, claim.start) < last:
            return False
        last = (claim.part, claim.end)
    return True


# At most this many claims over the same words are cited, the innermost ones, to keep the size of the output
# in proportion to the answer.
_DEEPEST = 16


def _pieces(citations: list[Citation]) -> list[_Piece]:
    """Cut the text at the edges of all claims; each piece has the innermost claims that cover it."""
    claims: dict[tuple[int, int], list[Citation]] = {}
    for citation in citations:
        claims.setdefault((claim_start(citation), claim_end(citation)), []).append(citation)
    places = {citation.id: place for place, citation in enumerate(citations)}
    edges = sorted({edge for span in claims for edge in span})
    waiting = sorted(claims, reverse=True)
    active: list[tuple[int, int]] = []
    pieces: list[_Piece] = []
    for start, end in pairwise(edges):
        while waiting and waiting[-1][0] <= start:
            opened = waiting.pop()
            heappush(active, (-opened[0], opened[1]))
        spans = _innermost(active, start)
        if spans:
            cited = [citation for span in spans for citation in claims[span]]
            pieces.append(_Piece(start, end, tuple(sorted(cited, key=lambda one: places[one.id]))))
    return pieces


def _innermost(active: list[tuple[int, int]], start: int) -> list[tuple[int, int]]:
    """Return the open claims that started last, and drop those that have ended."""
    found: list[tuple[int, int]] = []
    while active and len(found) < _DEEPEST:
        begun, end = heappop(active)
        if end > start:
            found.append((-begun, end))
    for span in found:
        heappush(active, (-span[0], span[1]))
    return found


def claim_start(citation: Citation) -> int:
    return citation.claim.start if citation.claim else 0


def claim_end(citation: Citation) -> int:
    return citation.claim.end if citation.claim else 0


def _piece_citation(piece: _Piece, part: int) -> Citation:
    first = piece.citations[0]
    span = Span(part, piece.start, piece.end)
    if len(piece.citations) == 1:
        return first if first.claim == span else replace(first, claim=span)
    refs = tuple(ref for citation in piece.citations for ref in citation.refs)
    return replace(first, claim=span, refs=refs)


def _report_moved_claims(
    fitting: Adaptation, claimed: tuple[Citation, ...], flat: tuple[Citation, ...]
) -> None:
    """Report the citations that lost their own claim or their position in the list."""
    before = {citation.id: citation for citation in claimed}
    whole = {citation.id for citation in flat if before[citation.id] is citation}
    for citation in claimed:
        if citation.id not in whole:
            reason = "shares its text with other claims: cut into blocks that they cite together"
            fitting.record_loss("overlap", reason, citation=citation.id)
    kept = [citation.id for citation in claimed if citation.id in whole]
    if [citation.id for citation in flat if citation.id in whole] != kept:
        fitting.record_loss("order", "citations follow the text")


class Block(NamedTuple):
    """A block of a part, with its original JSON, its unreadable citations and its number in the part."""

    start: int
    end: int
    raw: Json
    kept: Any = None
    number: int | None = None


def find_unchanged_blocks(part: Part, native: Native | None, text_of: Callable[[Json], str]) -> list[Block]:
    """Return a part's original blocks: all if its text is unchanged, else those around the change."""
    if native is None:
        return []
    texts = [text_of(block) for block in native.raw]
    old = "".join(texts)
    same = common_prefix_length(old, part.text)
    tail = common_prefix_length(old[same:][::-1], part.text[same:][::-1])
    moved = len(part.text) - len(old)
    blocks: list[Block] = []
    at = 0
    for number, (raw, text) in enumerate(zip(native.raw, texts, strict=True)):
        start, at = at, at + len(text)
        kept = native.kept and native.kept.get(number)
        if at <= same:
            blocks.append(Block(start, at, raw, kept, number))
        elif start >= len(old) - tail:
            blocks.append(Block(start + moved, at + moved, raw, kept, number))
    return blocks


def cover_whole_text(blocks: list[Block], length: int) -> bool:
    """Whether the blocks cover the text from start to end without a gap."""
    edges = [0, *(block.end for block in blocks)]
    starts = [*(block.start for block in blocks), length]
    return bool(blocks) and edges == starts


def cut_at_claims(length: int, claims: Iterable[tuple[int, int]], old: list[Block]) -> list[Block]:
    """Cut the text at its claims, and at those edges of the old blocks that are not inside a claim."""
    edges = {0, length}
    inside: list[tuple[int, int]] = sorted(claims)
    for claim in inside:
        edges.update(claim)
    starts = [start for start, _ in inside]
    for edge in {edge for block in old for edge in (block.start, block.end)}:
        claim = bisect_left(starts, edge) - 1
        if claim < 0 or inside[claim][1] <= edge:
            edges.add(edge)
    kept = {(block.start, block.end): block for block in old}
    cuts = sorted(edges)
    pieces = [kept.get(span) or Block(*span, {}) for span in pairwise(cuts)]
    return pieces or [Block(0, 0, {})]
