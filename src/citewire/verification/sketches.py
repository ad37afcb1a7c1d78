"""Which of many documents a quote may be in, without opening them: the grams of each, as a set of bits.

A sketch never decides that a quote is absent. It says where to look first, and only there a quote is looked
for exhaustively: a quote that is nowhere does not pay for every document in full.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from citewire.verification.gram_index import hash_grams
from citewire.verification.quotes import parse_quote
from citewire.verification.text_views import canonical_view

__all__ = ["Sketch", "Sketches", "make_sketch"]

Sketch = NDArray[np.uint8]

# Bits for each letter, of which it has one gram at most: one in four is set, or fewer.
_BITS = 4
# Grams of a quote that are looked up: that many know a document from all others.
_WANTED = 256
# Documents that are searched exhaustively, and the share of its grams that a quote has where it is as it is.
_THOROUGH, _ALMOST_ALL = 3, 0.9


def make_sketch(letters: str) -> Sketch:
    """The grams of a text of letters and digits only: spaces and hyphens come and go."""
    bits = np.zeros(1 << max(10, (len(letters) * _BITS).bit_length()), np.uint8)
    bits[hash_grams(letters) & np.uint64(len(bits) - 1)] = 1
    return np.packbits(bits, bitorder="little")


class _JoinedSketches(NamedTuple):
    """All sketches in one, where each starts, in bits, and the bits of a hash that count in it."""

    bits: Sketch
    starts: NDArray[np.uint64]
    masks: NDArray[np.uint64]


class Sketches:
    """The sketches of documents, in their order."""

    def __init__(self) -> None:
        self._each: list[Sketch] = []
        self._joined: _JoinedSketches | None = None

    def insert(self, at: int, sketch: Sketch) -> None:
        """Of equally likely ones, the first comes first."""
        self._each.insert(at, sketch)
        self._joined = None

    def remove(self, at: int) -> None:
        """The ones behind it move up."""
        del self._each[at]
        self._joined = None

    def find_likely(self, quote: str, *, thorough: bool) -> list[int]:
        """Where it may be as it is, or, if it is not, where to look for it `thorough`ly; the likeliest first.

        A gram that few documents have says more than one that many do.
        """
        wanted = _grams(quote)
        if len(self._each) <= _THOROUGH:
            return list(range(len(self._each)))
        if not len(wanted):
            # Too short to be looked for in any other way than as it is.
            return [] if thorough else list(range(len(self._each)))
        self._joined = self._joined or self._join()
        bits, starts, masks = self._joined
        at = starts[:, None] + (wanted & masks[:, None])
        there = bits[at >> np.uint64(3)] >> (at & np.uint64(7)).astype(np.uint8) & 1
        scores = there @ (1 / np.maximum(there.sum(axis=0), 1))
        best = np.argsort(-scores, kind="stable")
        if thorough:
            return best[:_THOROUGH].tolist()
        return best[there.mean(axis=1)[best] >= _ALMOST_ALL].tolist()

    def _join(self) -> _JoinedSketches:
        sizes = np.array([len(one) for one in self._each], np.uint64) * np.uint64(8)
        return _JoinedSketches(np.concatenate(self._each), np.cumsum(sizes) - sizes, sizes - np.uint64(1))


def _grams(quote: str) -> NDArray[np.uint64]:
    pieces = [
        hash_grams(canonical_view(piece.text).letters_only().text) for piece in parse_quote(quote).pieces
    ]
    grams = np.unique(np.concatenate([np.zeros(0, np.uint64), *pieces]))
    return grams[:: len(grams) // _WANTED + 1]
