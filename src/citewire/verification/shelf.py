"""Documents of a cache, searched: those used last are open, and of all of them there is a sketch.

A document has a number by which others know it, and of equals the first is taken.
"""

from __future__ import annotations

from bisect import bisect, bisect_left
from collections import OrderedDict

from msgspec import Struct

from citewire.documents.cache import Cache
from citewire.documents.errors import DocumentError
from citewire.verification.kept import Kept
from citewire.verification.library import NOTHING_QUOTED, Checked, Held
from citewire.verification.near import ANYWHERE, Near
from citewire.verification.sketches import Sketches

__all__ = ["Answer", "Numbered", "Search", "Shelf"]

# Documents and characters that are open at most: a document may map a dozen files, a process about 1,000.
_MOST_OPEN, _MOST_CHARACTERS = 50, 16_000_000


class Numbered(Struct, frozen=True, order=True, gc=False):
    """A document: its number, and its key in the cache."""

    number: int
    key: str


class Search(Struct, frozen=True, tag=True):
    """A quote to look for: in each of these documents, or, if there are none, where it may be.

    With `closest` it is a sentence that quotes nothing, and the passage closest to it is wanted.
    """

    quote: str
    seconds: float
    near: Near = ANYWHERE
    documents: tuple[Numbered, ...] = ()
    thorough: bool = True
    closest: bool = False


class Answer(Struct, frozen=True):
    """What became of a quote, in which document, and how good that is, smaller is better; or what failed."""

    checked: Checked | None = None
    number: int = -1
    rank: tuple[int, float] = (9, 0.0)
    is_perfect: bool = False
    error: str | None = None


class Shelf:
    """Documents in `cache`."""

    def __init__(self, cache: Cache) -> None:
        self._cache = cache
        self._documents: list[Numbered] = []
        self._sketches = Sketches()
        self._open: OrderedDict[str, Held] = OrderedDict()

    def add(self, document: Numbered) -> None:
        """Search this one too when no document is named. Raises `DocumentError`."""
        sketch = Kept.of(self._held(document.key).document.text, self._cache).sketch
        # In order, whichever was read first.
        at = bisect(self._documents, document)
        self._sketches.insert(at, sketch)
        self._documents.insert(at, document)

    def remove(self, number: int) -> None:
        """Search the document of this number no longer, if it was added."""
        at = bisect_left(self._documents, number, key=lambda document: document.number)
        if at < len(self._documents) and self._documents[at].number == number:
            self._sketches.remove(at)
            self._open.pop(self._documents.pop(at).key, None)

    def search(self, asked: Search) -> Answer:
        """What becomes of a quote in the document where it is best. Raises `DocumentError`."""
        best = Answer()
        likely = [] if asked.documents else self._sketches.likely(asked.quote, thorough=asked.thorough)
        for document in asked.documents or [self._documents[at] for at in likely]:
            held = self._held(document.key)
            if asked.closest:
                share, passage = held.closest(asked.quote) or (0.0, None)
                if best.checked is None or -share < best.rank[1]:
                    checked = Checked(None, "skipped", NOTHING_QUOTED, context=passage)
                    best = Answer(checked, document.number, (4, -share))
                continue
            finding = held.judge(asked.quote, asked.near, thorough=asked.thorough)
            if best.checked is None or finding.rank < best.rank:
                checked = held.checked(finding, asked.near)
                best = Answer(checked, document.number, finding.rank, finding.is_perfect)
            # Or there is nothing to look for.
            if finding.is_perfect or finding.status == "skipped":
                break
        return best

    def _held(self, key: str) -> Held:
        held = self._open.pop(key, None) or self._opened(key)
        self._open[key] = held
        return held

    def _opened(self, key: str) -> Held:
        document = self._cache.get(key)
        if document is None:
            raise DocumentError(f"it is not in the cache any more, in {self._cache.folder}")
        characters = len(document.text) + sum(len(held.document.text) for held in self._open.values())
        while self._open and (characters > _MOST_CHARACTERS or len(self._open) >= _MOST_OPEN):
            characters -= len(self._open.popitem(last=False)[1].document.text)
        return Held(document, lambda text: Kept.of(text, self._cache).searchable)
