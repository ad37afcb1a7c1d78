"""Cache of search indexes: each is in the cache entry of its document, and goes with it.

Its arrays are mapped, not read. Ten times as fast as making the index anew.
"""

from __future__ import annotations

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

    @classmethod
    def of(cls, text: str, cache: Cache, document: str, part: str = "") -> Kept:
        """From the cache, or made and put there, beside the document with this key.

        `part` names a text that is not the whole one of the document.
        """
        key = f"{document}/search{VERSION}{part}"
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
