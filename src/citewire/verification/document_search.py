"""Search the documents of a cache: the most recently used are held open, and every document has a sketch.

Each document has a number that identifies it; among equally good results the lowest number wins.
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

# Limits on open documents and their characters: a document may map a dozen files, a process about 1,000.
_MOST_OPEN, _MOST_CHARACTERS = 50, 16_000_000


class DocumentNotCached(DocumentError):
    """A document is no longer in the cache and has to be read again."""


class DocumentRef(Struct, frozen=True, order=True, gc=False):
    """A document: its number, its cache key, and its cache folder if that is not the shared one."""

    number: int
    key: str
    folder: str = ""


class SearchRequest(Struct, frozen=True, tag=True):
    """A quote to search for in `documents`, or, if that is empty, in the documents whose sketch matches.

    With `closest`, `quote` is a sentence of the answer, and the passage closest to it is returned.
    """

    quote: str
    seconds: float
    near: ExpectedPlace = ANYWHERE
    documents: tuple[DocumentRef, ...] = ()
    thorough: bool = True
    closest: bool = False


class SearchAnswer(Struct, frozen=True):
    """The result for a quote, its document, and its rank (smaller is better); or an error.

    `is_missing`: a document is no longer in the cache.
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
    """Searches quotes in the documents of `cache`."""

    def __init__(self, cache: Cache) -> None:
        self._cache = cache
        self._documents: list[DocumentRef] = []
        self._sketches = Sketches()
        self._open: OrderedDict[tuple[str, str], SearchedDocument] = OrderedDict()

    def add(self, document: DocumentRef) -> None:
        """Include a document in searches that name no document. Raises `DocumentError`."""
        text = self._get_open(document).document.text
        sketch = CachedSearchIndex.load_or_build(text, self._cache_of(document), document.key).sketch
        # Sorted by number, in whatever order the documents were read.
        at = bisect(self._documents, document)
        self._sketches.insert(at, sketch)
        self._documents.insert(at, document)

    def remove(self, number: int) -> None:
        """Exclude the document with this number from searches, if it was added."""
        at = bisect_left(self._documents, number, key=lambda document: document.number)
        if at < len(self._documents) and self._documents[at].number == number:
            self._sketches.remove(at)
            gone = self._documents.pop(at)
            self._open.pop((gone.folder, gone.key), None)

    def close(self, folder: str) -> None:
        """Close all open documents of a folder."""
        for each in [each for each in self._open if each[0] == folder]:
            del self._open[each]

    def search(self, asked: SearchRequest) -> SearchAnswer:
        """Return the best result for a quote over the documents. Raises `DocumentError`."""
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
            # Skipped: the quote has nothing to search for.
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
