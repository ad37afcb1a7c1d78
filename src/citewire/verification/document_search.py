"""Documents of a cache, searched: those used last are open, and of all of them there is a sketch.

A document has a number by which others know it, and of equals the first is taken.
"""

from __future__ import annotations

from bisect import bisect, bisect_left
from collections import OrderedDict
from pathlib import Path

from msgspec import Struct

from citewire.documents.cache import NO_LIMIT, Cache
from citewire.documents.errors import DocumentError
from citewire.verification.document_set import NOTHING_QUOTED, CheckResult, SearchedDocument
from citewire.verification.expected_place import ANYWHERE, ExpectedPlace
from citewire.verification.search_cache import CachedSearchIndex
from citewire.verification.sketches import Sketches

__all__ = ["DocumentNotCached", "DocumentRef", "DocumentSearcher", "SearchAnswer", "SearchRequest"]

# Documents and characters that are open at most: a document may map a dozen files, a process about 1,000.
_MOST_OPEN, _MOST_CHARACTERS = 50, 16_000_000


class DocumentNotCached(DocumentError):
    """A document that the cache has no more: it has to be read again."""


class DocumentRef(Struct, frozen=True, order=True, gc=False):
    """A document: its number, its key, and the folder of its cache where that is not the one of all."""

    number: int
    key: str
    folder: str = ""


class SearchRequest(Struct, frozen=True, tag=True):
    """A quote to look for: in each of these documents, or, if there are none, where it may be.

    With `closest` it is a sentence that quotes nothing, and the passage closest to it is wanted.
    """

    quote: str
    seconds: float
    near: ExpectedPlace = ANYWHERE
    documents: tuple[DocumentRef, ...] = ()
    thorough: bool = True
    closest: bool = False


class SearchAnswer(Struct, frozen=True):
    """What became of a quote, in which document, and how good that is, smaller is better; or what failed.

    `is_missing`: a document is not in the cache any more.
    """

    checked: CheckResult | None = None
    number: int = -1
    rank: tuple[int, float] = (9, 0.0)
    is_perfect: bool = False
    error: str | None = None
    is_missing: bool = False
    detail: str = ""
    """What only the log is told of the error."""


class DocumentSearcher:
    """Documents in `cache`."""

    def __init__(self, cache: Cache) -> None:
        self._cache = cache
        self._documents: list[DocumentRef] = []
        self._sketches = Sketches()
        self._open: OrderedDict[tuple[str, str], SearchedDocument] = OrderedDict()

    def add(self, document: DocumentRef) -> None:
        """Search this one too when no document is named. Raises `DocumentError`."""
        text = self._get_open(document).document.text
        sketch = CachedSearchIndex.load_or_build(text, self._cache_of(document), document.key).sketch
        # In order, whichever was read first.
        at = bisect(self._documents, document)
        self._sketches.insert(at, sketch)
        self._documents.insert(at, document)

    def remove(self, number: int) -> None:
        """Search the document of this number no longer, if it was added."""
        at = bisect_left(self._documents, number, key=lambda document: document.number)
        if at < len(self._documents) and self._documents[at].number == number:
            self._sketches.remove(at)
            gone = self._documents.pop(at)
            self._open.pop((gone.folder, gone.key), None)

    def close(self, folder: str) -> None:
        """Have no document of this folder open any more."""
        for each in [each for each in self._open if each[0] == folder]:
            del self._open[each]

    def search(self, asked: SearchRequest) -> SearchAnswer:
        """What becomes of a quote in the document where it is best. Raises `DocumentError`."""
        best = SearchAnswer()
        likely = [] if asked.documents else self._sketches.find_likely(asked.quote, thorough=asked.thorough)
        for document in asked.documents or [self._documents[at] for at in likely]:
            held = self._get_open(document)
            if asked.closest:
                share, passage = held.find_closest(asked.quote) or (0.0, None)
                if best.checked is None or -share < best.rank[1]:
                    checked = CheckResult(None, "skipped", NOTHING_QUOTED, context=passage)
                    best = SearchAnswer(checked, document.number, (4, -share))
                continue
            finding = held.judge_quote(asked.quote, asked.near, thorough=asked.thorough)
            if best.checked is None or finding.rank < best.rank:
                checked = held.to_result(finding, asked.near)
                best = SearchAnswer(checked, document.number, finding.rank, finding.is_perfect)
            # Or there is nothing to look for.
            if finding.is_perfect or finding.status == "skipped":
                break
        return best

    def _get_open(self, document: DocumentRef) -> SearchedDocument:
        name = document.folder, document.key
        held = self._open.pop(name, None) or self._open_document(document)
        self._open[name] = held
        return held

    def _open_document(self, named: DocumentRef) -> SearchedDocument:
        cache = self._cache_of(named)
        document = cache.get(named.key)
        if document is None:
            raise DocumentNotCached("it is not in the cache any more", detail=cache.folder)
        characters = len(document.text) + sum(len(held.document.text) for held in self._open.values())
        while self._open and (characters > _MOST_CHARACTERS or len(self._open) >= _MOST_OPEN):
            characters -= len(self._open.popitem(last=False)[1].document.text)
        return SearchedDocument(
            document,
            lambda text, part: CachedSearchIndex.load_or_build(text, cache, named.key, part).searchable,
        )

    def _cache_of(self, document: DocumentRef) -> Cache:
        return Cache(Path(document.folder), limit=NO_LIMIT, make=False) if document.folder else self._cache
