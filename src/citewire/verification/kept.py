"""What takes long to make of a text, kept in the cache, so that it is made once: also across runs.

Kept by the sha256 of the text, in arrays that are mapped, not read. Ten times as fast as making it.
"""

from __future__ import annotations

import hashlib

import numpy as np
from msgspec import Struct, msgpack

from citewire.documents.cache import Cache, Packed
from citewire.verification.index import Sorted
from citewire.verification.match import Searchable
from citewire.verification.sketches import Sketch, sketch
from citewire.verification.views import View

__all__ = ["VERSION", "Kept"]

# Goes up when views, grams or sketches of the same text become others: what was kept is no longer found.
VERSION = 2


class Kept(Struct, frozen=True):
    """A text that can be searched, and its sketch."""

    searchable: Searchable
    sketch: Sketch

    @staticmethod
    def key(text: str) -> str:
        """Under which the cache has it."""
        return f"{hashlib.sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()}-search{VERSION}"

    @classmethod
    def of(cls, text: str, cache: Cache) -> Kept:
        """From the cache, or made and put there."""
        key = cls.key(text)
        packed = cache.read(key)
        if packed is None:
            searchable = Searchable(text)
            kept = cls(searchable, sketch(searchable.letters.text))
            cache.write(key, kept._packed())
            return kept
        # Plain arrays: one that knows its file is slow to look into.
        starts, ends, joints, hashes, positions, bits = map(np.asarray, packed.arrays)
        view = View(msgpack.decode(packed.meta, type=str), starts, ends, frozenset(joints.tolist()))
        return cls(Searchable(text, view, Sorted(hashes, positions)), bits)

    def _packed(self) -> Packed:
        view, grams = self.searchable.view, self.searchable.index.grams
        joints = np.array(sorted(view.joints), np.int32)
        return Packed(msgpack.encode(view.text), (view.starts, view.ends, joints, *grams, self.sketch))
