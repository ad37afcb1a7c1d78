"""Where a text may hold a passage: its six-grams, sorted, and the text in bytes for alignment.

Twelve bytes for each character, and no dictionary: a gram is looked up by binary search, and what was found
votes for the place where the whole passage would start. Collisions cost a look and nothing else, since every
place is aligned before it counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, cast

import edlib  # pyright: ignore[reportMissingTypeStubs]  # met here only
import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

__all__ = ["GRAM", "Aligned", "Index"]

GRAM = 6
# Odd multipliers, as random as any.
_SPREAD, _MIX = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xC2B2AE3D27D4EB4F)
# A gram that occurs more often than this says little; and this many votes are enough.
_COMMON, _VOTES = 200, 20_000
_PLACES = 8
# Grams that are looked up to find a passage as it is.
_TRIED = 8
# Characters that have a byte of their own; of the rest, those of the text and of the passage never agree.
_OWN_BYTES, _FOREIGN, _RARE = 253, 254, 255


_align: Callable[..., dict[str, Any]] = cast("Any", edlib).align


class Aligned(Struct, frozen=True, gc=False):
    """A range of the text that is like a passage, and in how many characters they differ."""

    start: int
    end: int
    distance: int


class Encoded(Struct, frozen=True, eq=False):
    """A passage in bytes, and the bytes of its characters where they are not those of the text."""

    data: bytes
    table: NDArray[np.uint8] | None = None


class Index:
    """The grams of one text."""

    def __init__(self, text: str) -> None:
        codes = _codes(text)
        hashes = _hashes(codes)
        order = np.argsort(hashes, kind="stable")
        self.length = len(text)
        self._text = text
        self._hashes: NDArray[np.uint64] = hashes[order]
        self._positions = order.astype(np.int32)
        self._table = _byte_table(codes)
        self._bytes = self._table[codes].tobytes()

    @property
    def size(self) -> int:
        """Bytes that it takes."""
        return self._hashes.nbytes + self._positions.nbytes + len(self._bytes)

    def encode(self, passage: str) -> Encoded:
        """`passage` in the bytes of this text, or in bytes of its own where it has characters without one."""
        codes = _codes(passage)
        encoded = self._table[codes]
        if not (encoded == _RARE).any():
            return Encoded(encoded.tobytes())
        table = _byte_table(codes)
        own = table[codes]
        return Encoded(np.where(own == _RARE, _FOREIGN, own).astype(np.uint8).tobytes(), table)

    def occurrences(self, passage: str) -> list[int]:
        """Where `passage` stands as it is, by the rarest of its grams, in order."""
        grams = _hashes(_codes(passage))
        if not len(grams):
            return list(_every(self._text, passage))
        # A few of them will do: if one is missing, so is the passage.
        tried = np.unique(np.linspace(0, len(grams) - 1, _TRIED).astype(np.intp))
        first, counts = self._look_up(grams[tried])
        rarest = int(counts.argmin())
        if counts[rarest] > _VOTES // 10:
            return list(_every(self._text, passage))
        there = self._positions[first[rarest] : first[rarest] + counts[rarest]] - tried[rarest]
        return sorted(at for at in there.tolist() if at >= 0 and self._text.startswith(passage, at))

    def candidates(self, passage: str) -> Iterator[tuple[int, int, float]]:
        """Ranges of the text that may hold `passage`, the likeliest first, and how likely beside that one."""
        length = len(passage)
        width = max(16, length // 4)
        slack = length * 35 // 100 + width
        for start, share in self._starts(passage, width):
            yield max(0, start - slack), min(self.length, start + 2 * width + length + slack), share

    def _starts(self, passage: str, width: int) -> list[tuple[int, float]]:
        grams = _hashes(_codes(passage))
        if not len(grams):
            return []
        first, counts = self._look_up(grams)
        kept = np.flatnonzero((counts >= 1) & (counts <= _COMMON))
        if not len(kept):
            kept = np.flatnonzero(counts >= 1)
        if counts[kept].sum() > _VOTES:
            kept = kept[np.argsort(counts[kept], kind="stable")[: max(4, len(grams) // 4)]]
        if not len(kept):
            return []
        return self._voted(kept, first[kept], np.minimum(counts[kept], _VOTES), len(passage), width)

    def _look_up(self, grams: NDArray[np.uint64]) -> tuple[NDArray[Any], NDArray[Any]]:
        """Where the postings of each gram start, and how many they are."""
        first = np.searchsorted(self._hashes, grams, "left")
        counts = np.zeros(len(grams), np.int64)
        if len(self._hashes):
            there = np.flatnonzero(self._hashes[np.minimum(first, len(self._hashes) - 1)] == grams)
            counts[there] = np.searchsorted(self._hashes, grams[there], "right") - first[there]
        return first, counts

    def _voted(
        self, grams: NDArray[Any], first: NDArray[Any], counts: NDArray[Any], length: int, width: int
    ) -> list[tuple[int, float]]:
        """Where the passage would start, by what its grams say, each with less weight the commoner it is."""
        total = int(counts.sum())
        within = np.arange(total) - np.repeat(np.cumsum(counts) - counts, counts)
        found = self._positions[np.repeat(first, counts) + within].astype(np.int64)
        bins = (found - np.repeat(grams, counts) + length) // width
        weights = np.repeat(1 / np.sqrt(counts), counts)
        names, inverse = np.unique(bins, return_inverse=True)
        scores = np.bincount(inverse, weights)
        # One that lies on an edge, or drifts, is split over two.
        following = np.append(names[1:] == names[:-1] + 1, False)
        scores[following] += np.append(scores[1:], 0)[following]
        best = np.argsort(-scores, kind="stable")[:_PLACES]
        starts, shares = names[best] * width - length, scores[best] / scores[best[0]]
        return list(zip(starts.tolist(), shares.tolist(), strict=True))

    def align(self, passage: Encoded, start: int, end: int, most: int) -> list[Aligned]:
        """Where in that range `passage` differs least, in at most so many characters; equal ones all."""
        if passage.table is None:
            there = self._bytes[start:end]
        else:
            there = passage.table[_codes(self._text[start:end])].tobytes()
        found = _align(passage.data, there, mode="HW", task="locations", k=most)
        if found["editDistance"] < 0:
            return []
        return [
            Aligned(start + first, start + last + 1, found["editDistance"])
            for first, last in found["locations"]
            if first is not None
        ]


def _every(text: str, passage: str) -> Iterator[int]:
    at = text.find(passage)
    while at >= 0:
        yield at
        at = text.find(passage, at + 1)


def _codes(text: str) -> NDArray[np.uint32]:
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)


def _hashes(codes: NDArray[np.uint32]) -> NDArray[np.uint64]:
    count = max(0, len(codes) - GRAM + 1)
    wide = codes.astype(np.uint64)
    hashes = np.zeros(count, np.uint64)
    for at in range(GRAM):
        hashes *= _SPREAD
        hashes += wide[at : at + count] * _MIX
    hashes ^= hashes >> np.uint64(29)
    return hashes


def _byte_table(codes: NDArray[np.uint32]) -> NDArray[np.uint8]:
    """The byte of every character: the commonest have their own."""
    table = np.full(0x110000, _RARE, np.uint8)
    counts = np.bincount(codes, minlength=1)
    present = np.flatnonzero(counts)
    common = present[np.argsort(-counts[present], kind="stable")[:_OWN_BYTES]]
    table[common] = np.arange(1, len(common) + 1, dtype=np.uint8)
    return table
