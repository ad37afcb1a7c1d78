"""Select the documents that may contain a quote, without opening them: each has its grams as a bit set.

A sketch never decides that a quote is absent. It says where to search first, and only there is the search
exhaustive: a quote that is nowhere does not cost a full search of every document.
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

# Bits per letter; a letter has at most one gram, so at most one bit in four is set.
_BITS = 4
# Grams of a quote that are looked up: enough to tell a document from all others.
_WANTED = 256
# Documents searched exhaustively, and the share of its grams that a verbatim quote has in a document.
_THOROUGH, _ALMOST_ALL = 3, 0.9


def make_sketch(letters: str) -> Sketch:
    """Return the sketch of a text's letters and digits; spaces and hyphens vary too much."""
    bits = np.zeros(1 << max(10, (len(letters) * _BITS).bit_length()), np.uint8)
    bits[hash_grams(letters) & np.uint64(len(bits) - 1)] = 1
    return np.packbits(bits, bitorder="little")


class _JoinedSketches(NamedTuple):
    """All sketches in one array, the start of each in bits, and the mask for a hash in each."""

    bits: Sketch
    starts: NDArray[np.uint64]
    masks: NDArray[np.uint64]


class Sketches:
    """The sketches of documents, in the documents' order."""

    def __init__(self) -> None:
        self._each: list[Sketch] = []
        self._joined: _JoinedSketches | None = None

    def insert(self, at: int, sketch: Sketch) -> None:
        """Insert a sketch at `at`; among equally likely documents the first is returned first."""
        self._each.insert(at, sketch)
        self._joined = None

    def remove(self, at: int) -> None:
        """Remove a sketch; the later ones move up."""
        del self._each[at]
        self._joined = None

    def find_likely(self, quote: str, *, thorough: bool) -> list[int]:
        """Return documents that may have the quote verbatim, or to search `thorough`ly; likeliest first.

        A gram that few documents have counts more than a common one.
        """
        wanted = _grams(quote)
        if len(self._each) <= _THOROUGH:
            return list(range(len(self._each)))
        if not len(wanted):
            # Too short for any search except a verbatim one.
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
