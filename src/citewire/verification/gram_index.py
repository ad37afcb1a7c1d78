"""An index that finds where a text may contain a passage: its sorted six-grams, and its bytes for alignment.

It takes nine bytes per character and no dictionary: a gram is looked up by binary search, and each posting
votes for the offset where the whole passage would start. A hash collision costs one look and nothing else,
since every candidate is aligned before it counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, NamedTuple, cast

import edlib  # pyright: ignore[reportMissingTypeStubs]  # met here only
import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

__all__ = ["AlignedRange", "GRAM_LENGTH", "GramIndex", "SortedGrams", "hash_grams"]

GRAM_LENGTH = 6
# Arbitrary odd multipliers.
_SPREAD, _MIX = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xC2B2AE3D27D4EB4F)
# Votes that suffice, counted from the rarest grams; and grams that always vote, however common.
_VOTES, _FEWEST_GRAMS = 1_000, 8
_PLACES = 8
_LOW = np.uint64(0xFFFFFFFF)
# Above this number of occurrences, scanning the text is as fast as checking all of them.
_COMMON = 2_000
# Most characters compared if a passage occurs everywhere, as in a text of one letter.
_MOST_COMPARED = 50_000_000
# A longer passage gets one alignment per range.
_LONG = 1_000
# Grams looked up to find a passage verbatim, and to find a similar one (less than twice as many).
_TRIED, _SEEDS = 8, 64
# Characters with a byte of their own. The bytes for other characters of the text and the passage never match.
_OWN_BYTES, _FOREIGN, _RARE = 253, 254, 255


_align: Callable[..., dict[str, Any]] = cast("Any", edlib).align


class AlignedRange(Struct, frozen=True, gc=False):
    """A range of the text that is similar to a passage, and their edit distance."""

    start: int
    end: int
    distance: int


class EncodedPassage(Struct, frozen=True, eq=False):
    """A passage as bytes, and the byte table for its characters if it is not that of the text."""

    data: bytes
    table: NDArray[np.uint8] | None = None


class SortedGrams(NamedTuple):
    """The grams of a text sorted by hash, and their positions."""

    hashes: NDArray[np.uint32]
    positions: NDArray[np.int32]

    @classmethod
    def from_codes(cls, codes: NDArray[np.uint32]) -> SortedGrams:
        """Sort the grams of a text. Hash and position are sorted as one number, several times faster."""
        both = _hashes(codes)
        both &= ~_LOW
        both |= np.arange(len(both), dtype=np.uint64)
        both.sort()
        return cls(_high(both), (both & _LOW).astype(np.int32))


class GramIndex:
    """Index of the grams of one text. `grams`, the slowest part, may be passed in if already computed."""

    def __init__(self, text: str, grams: SortedGrams | None = None) -> None:
        codes = _codes(text)
        self.length = len(text)
        self.grams = grams or SortedGrams.from_codes(codes)
        self._text = text
        self._hashes, self._positions = self.grams
        table = _byte_table(codes)
        self._own = np.flatnonzero(table != _RARE).astype(np.uint32)
        self._own_bytes = table[self._own]
        self._bytes = table[codes].tobytes()

    @property
    def size(self) -> int:
        """Bytes used, not counting the text."""
        return self._hashes.nbytes + self._positions.nbytes + len(self._bytes) + 5 * len(self._own)

    def encode(self, passage: str) -> EncodedPassage:
        """Encode `passage` in the bytes of this text, or with its own table if it has other characters."""
        codes = _codes(passage)
        at = np.searchsorted(self._own, codes)
        at[at == len(self._own)] = 0
        if len(self._own) and (self._own[at] == codes).all():
            return EncodedPassage(self._own_bytes[at].tobytes())
        table = _byte_table(codes)
        own = table[codes]
        return EncodedPassage(np.where(own == _RARE, _FOREIGN, own).astype(np.uint8).tobytes(), table)

    def find_occurrences(self, passage: str) -> Iterator[int]:
        """Return where `passage` occurs verbatim, in order, found by its rarest gram; the first of many."""
        grams = _hashes(_codes(passage))
        # A few grams suffice: if one is missing, the passage is missing too.
        tried = (
            np.unique(np.linspace(0, len(grams) - 1, _TRIED).astype(np.intp)) if len(grams) else np.arange(0)
        )
        first, counts = self._look_up(grams[tried])
        if not len(counts) or counts.min() > _COMMON:
            return islice(_every(self._text, passage), _MOST_COMPARED // len(passage))
        rarest = int(counts.argmin())
        there = np.sort(self._positions[first[rarest] : first[rarest] + counts[rarest]]) - tried[rarest]
        return (at for at in there.tolist() if at >= 0 and self._text.startswith(passage, at))

    def find_candidates(self, passage: str) -> Iterator[tuple[int, int, float]]:
        """Yield ranges that may contain `passage`, likeliest first, with scores relative to the best."""
        length = len(passage)
        width = max(16, length // 4)
        slack = length * 35 // 100 + width
        for start, share in self._starts(passage, width):
            yield max(0, start - slack), min(self.length, start + 2 * width + length + slack), share

    def gram_shares(self, passage: str, edges: NDArray[Any]) -> NDArray[np.float64]:
        """Return the share of the passage's grams that each section contains; sections start at `edges`."""
        grams = np.unique(_hashes(_codes(passage)))
        first, counts = self._look_up(grams)
        kept = _rarest(counts, _VOTES * _FEWEST_GRAMS)
        counts = np.minimum(counts[kept], _COMMON)
        sections = np.searchsorted(edges, self._positions[_spread(first[kept], counts)], "right") - 1
        pairs = np.unique(sections * len(grams) + np.repeat(kept, counts))
        return np.bincount(pairs // max(1, len(grams)), minlength=len(edges)) / max(1, len(kept))

    def _starts(self, passage: str, width: int) -> list[tuple[int, float]]:
        grams = _hashes(_codes(passage))
        tried = np.arange(0, len(grams), len(grams) // _SEEDS or 1)
        first, counts = self._look_up(grams[tried])
        kept = _rarest(counts)
        counts = np.minimum(counts[kept], _COMMON)
        return self._voted(tried[kept], first[kept], counts, len(passage), width)

    def _look_up(self, grams: NDArray[np.uint64]) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return the index of each gram's first posting, and the number of its postings."""
        wanted = _high(grams)
        first = np.searchsorted(self._hashes, wanted, "left")
        counts = np.zeros(len(grams), np.int64)
        if len(self._hashes):
            there = np.flatnonzero(self._hashes[np.minimum(first, len(self._hashes) - 1)] == wanted)
            counts[there] = np.searchsorted(self._hashes, wanted[there], "right") - first[there]
        return first, counts

    def _voted(
        self, grams: NDArray[Any], first: NDArray[Any], counts: NDArray[Any], length: int, width: int
    ) -> list[tuple[int, float]]:
        """Return likely start offsets of the passage; the more common a gram, the less its vote weighs."""
        found = self._positions[_spread(first, counts)].astype(np.int64)
        bins = (found - np.repeat(grams, counts) + length) // width
        order = np.argsort(bins)
        edges = np.flatnonzero(np.diff(bins[order], prepend=-1))
        if not len(edges):
            return []
        names = bins[order[edges]]
        scores = np.add.reduceat(np.repeat(1 / np.sqrt(counts), counts)[order], edges)
        # The votes for a passage on the edge of a bin, or with drift, are split over two bins.
        following = np.append(names[1:] == names[:-1] + 1, False)
        scores[following] += np.append(scores[1:], 0)[following]
        best = np.argsort(-scores, kind="stable")[:_PLACES]
        starts, shares = names[best] * width - length, scores[best] / scores[best[0]]
        return list(zip(starts.tolist(), shares.tolist(), strict=True))

    def align(self, passage: EncodedPassage, start: int, end: int, most: int) -> list[AlignedRange]:
        """Return all ranges from `start` to `end` with the least edit distance to `passage`, up to `most`."""
        if passage.table is None:
            there = self._bytes[start:end]
        else:
            there = passage.table[_codes(self._text[start:end])].tobytes()
        if len(passage.data) > _LONG:
            return _aligned_once(passage.data, there, start, most)
        found = _align(passage.data, there, mode="HW", task="locations", k=most)
        if found["editDistance"] < 0:
            return []
        return [
            AlignedRange(start + first, start + last + 1, found["editDistance"])
            for first, last in found["locations"]
            if first is not None
        ]


def _aligned_once(passage: bytes, there: bytes, start: int, most: int) -> list[AlignedRange]:
    """Return one range for a long passage: a repetitive text has one per letter, each aligned separately."""
    found = _align(passage, there, mode="HW", task="distance", k=most)
    distance = found["editDistance"]
    if distance < 0:
        return []
    ends = [last + 1 for _, last in found["locations"]]
    end = max(last for last in ends if last < ends[0] + len(passage))
    back = _align(passage[::-1], there[:end][::-1], mode="SHW", task="distance", k=distance)
    return [AlignedRange(start + end - back["locations"][-1][1] - 1, start + end, distance)]


def hash_grams(text: str) -> NDArray[np.uint64]:
    """Return the hashes of the grams of `text`, in order."""
    return _hashes(_codes(text))


def _high(hashes: NDArray[np.uint64]) -> NDArray[np.uint32]:
    return (hashes >> np.uint64(32)).astype(np.uint32)


def _rarest(counts: NDArray[Any], votes: int = _VOTES) -> NDArray[Any]:
    """Return the indexes of the grams that occur, rarest first, until they have enough votes."""
    order = np.argsort(counts, kind="stable")
    there = order[np.searchsorted(counts[order], 1) :]
    return there[: max(_FEWEST_GRAMS, int(np.searchsorted(np.cumsum(counts[there]), votes)))]


def _spread(first: NDArray[Any], counts: NDArray[Any]) -> NDArray[Any]:
    """Concatenate ranges of integers: each starts at an item of `first` and has the length in `counts`."""
    return np.arange(int(counts.sum())) + np.repeat(first - np.cumsum(counts) + counts, counts)


def _every(text: str, passage: str) -> Iterator[int]:
    at = text.find(passage)
    while at >= 0:
        yield at
        at = text.find(passage, at + 1)


def _codes(text: str) -> NDArray[np.uint32]:
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)


def _hashes(codes: NDArray[np.uint32]) -> NDArray[np.uint64]:
    count = max(0, len(codes) - GRAM_LENGTH + 1)
    wide = codes.astype(np.uint64)
    hashes = np.zeros(count, np.uint64)
    for at in range(GRAM_LENGTH):
        hashes *= _SPREAD
        hashes += wide[at : at + count] * _MIX
    hashes ^= hashes >> np.uint64(29)
    return hashes


def _byte_table(codes: NDArray[np.uint32]) -> NDArray[np.uint8]:
    """Map every character to a byte; the most common ones get their own."""
    table = np.full(0x110000, _RARE, np.uint8)
    counts = np.bincount(codes, minlength=1)
    present = np.flatnonzero(counts)
    common = present[np.argsort(-counts[present], kind="stable")[:_OWN_BYTES]]
    table[common] = np.arange(1, len(common) + 1, dtype=np.uint8)
    return table
