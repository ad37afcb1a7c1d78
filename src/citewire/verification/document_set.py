"""The documents that quotes are checked against, and the result of a check.

A quote that names its source is searched there, any other in all documents. Text interrupted by running
headers, page numbers or deleted text is joined, so a quote may continue across a page break.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from itertools import islice

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from citewire.documents.document import Box, Document
from citewire.model import Status
from citewire.text import one_line
from citewire.verification.expected_place import ANYWHERE, ExpectedPlace
from citewire.verification.match import SearchableText
from citewire.verification.ocr_tolerance import allow_for_misreading
from citewire.verification.policy import Difference, Finding, choose_best, find_and_judge
from citewire.verification.reading_order import ReadingOrderSearch
from citewire.verification.sketches import Sketches, make_sketch
from citewire.verification.sources import SourceOrigin, source_names
from citewire.verification.text_views import canonical_view

__all__ = ["CheckResult", "DocumentSet", "NO_SOURCE", "SearchedDocument"]

# Asides that interrupt the running text.
_APART = frozenset({"header", "footer", "deleted", "comment"})
NO_TEXT_LAYER = "no text layer"
NO_SOURCE = "there is no source"
NOTHING_QUOTED = "nothing quoted"
# Characters of the passage closest to a sentence, and the share of the sentence's grams it must contain.
_PASSAGE, _CLOSE = 400, 0.3
# Named pages that are searched separately.
_MOST_NAMED = 3


class ClosestPassage(Struct, frozen=True, gc=False):
    """A passage of a source that shares many words with a claim. It does not support or refute the claim."""

    source: str
    page: int
    start: int
    end: int
    text: str


class CheckResult(Struct, frozen=True, gc=False, rename={"found": "quote_found"}):
    """The verdict on one quote: its place, the differences, and warnings.

    `start` and `end` are code point offsets in the source's text, `ranges` the parts between them without
    what the quote leaves out; `boxes` has one rectangle per line. `sha256` is the hash of the source's bytes,
    `text_sha256` that of the text read from them, in UTF-8. `origin` is set if a client supplied the source.
    """

    id: str | None
    status: Status
    reason: str | None = None
    source: str | None = None
    page: int | None = None
    start: int | None = None
    end: int | None = None
    found: str | None = None
    diff: tuple[Difference, ...] = ()
    boxes: tuple[Box, ...] = ()
    warnings: tuple[str, ...] = ()
    edits: tuple[str, ...] = ()
    quote: str = ""
    sha256: str | None = None
    ranges: tuple[tuple[int, int], ...] = ()
    context: ClosestPassage | None = None
    text_sha256: str | None = None
    origin: SourceOrigin | None = None


def _make_searchable(text: str, _: str) -> SearchableText:
    return SearchableText(text)


class SearchedDocument:
    """A document to search. `search` receives a text and the part it is, and makes it searchable."""

    def __init__(
        self, document: Document, search: Callable[[str, str], SearchableText] = _make_searchable
    ) -> None:
        self.document = document
        self._search = search

    @property
    def name(self) -> str:
        """The document's name in a report."""
        return self.document.name or self.document.url or self.document.sha256[:12]

    @cached_property
    def _text_sha256(self) -> str:
        return hashlib.sha256(self.document.text.encode("utf-8", "surrogatepass")).hexdigest()

    @cached_property
    def full_text(self) -> SearchableText:
        """The whole text, including headers, footers, deleted text and comments."""
        return self._search(self.document.text, "")

    @cached_property
    def _body(self) -> tuple[SearchableText, list[int], list[int]] | None:
        """The text without interrupting asides, and the offsets of its pieces in it and in the document."""
        text, at = self.document.text, 0
        pieces: list[str] = []
        ours: list[int] = []
        theirs: list[int] = []
        length = 0
        for aside in (*self.document.asides, None):
            if aside is not None and aside.kind not in _APART:
                continue
            stop = len(text) if aside is None else aside.start
            if stop > at:
                pieces.append(text[at:stop])
                ours.append(length)
                theirs.append(at)
                length += stop - at
            at = max(at, len(text) if aside is None else aside.end)
        if len(pieces) < 2 and length == len(text):
            return None
        return self._search("".join(pieces), "-body"), ours, theirs

    @cached_property
    def _reader(self) -> ReadingOrderSearch:
        return ReadingOrderSearch(self.document, self.full_text)

    def judge_quote(self, quote: str, near: ExpectedPlace = ANYWHERE, *, thorough: bool = True) -> Finding:
        """Judge `quote` in this document; of equally good places take the nearest. See `find_and_judge`."""
        finding = self._best(find_and_judge(quote, self.full_text, thorough=thorough), near)
        if finding.status != "verified" and self._body is not None:
            in_body = map(self._from_body, find_and_judge(quote, self._body[0], thorough=thorough))
            finding = min(finding, self._best(in_body, near), key=lambda one: one.rank)
        if finding.status != "verified" and thorough and (found := self._reader.find_quote(quote)):
            finding = min(finding, self._best(found, near), key=lambda one: one.rank)
        if finding.places > 1 and near.is_on_other_page(self.document, finding.start, finding.end):
            # If there are very many places, only the first ones were judged.
            other = self._best(self._on_pages(quote, near), near)
            finding = replace(other, places=finding.places) if other.rank == finding.rank else finding
        return finding

    def _on_pages(self, quote: str, near: ExpectedPlace) -> Iterator[Finding]:
        """Judge `quote` on the first few pages that `near` names."""
        named = (page for page in self.document.pages if page.number in near.pages)
        for page in islice(named, _MOST_NAMED):
            for found in find_and_judge(
                quote, SearchableText(self.document.text[page.start : page.end]), thorough=False
            ):
                ranges = tuple((page.start + start, page.start + end) for start, end in found.ranges)
                yield replace(
                    found, start=page.start + found.start, end=page.start + found.end, ranges=ranges
                )

    def _best(self, found: Iterable[Finding], near: ExpectedPlace) -> Finding:
        return choose_best(
            [allow_for_misreading(finding, self.document) for finding in found],
            lambda finding: near.distance(self.document, finding.start, finding.end),
        )

    def find_closest(self, sentence: str) -> tuple[float, ClosestPassage] | None:
        """Return the passage that shares most with `sentence`, and the share of its grams found there."""
        edges = np.arange(0, max(1, self.full_text.index.length), _PASSAGE)
        shares = self.full_text.index.gram_shares(canonical_view(sentence).text, edges)
        best = int(np.argmax(shares))
        if shares[best] < _CLOSE:
            return None
        last = min(int(edges[best]) + _PASSAGE, self.full_text.index.length)
        start, end = self.full_text.view.to_source(int(edges[best]), last)
        text = self.document.text
        # Whole words only.
        start = text.rfind(" ", max(0, start - 40), start) + 1 or start
        end = max(end, text.find(" ", end, end + 40))
        shown = " ".join(text[start:end].split())
        return float(shares[best]), ClosestPassage(
            self.name, self.document.page_at(start).number, start, end, shown
        )

    def _from_body(self, finding: Finding) -> Finding:
        """Translate a finding in the body to offsets in the document."""
        if self._body is None or not finding.ranges:
            return finding
        _, ours, theirs = self._body
        ranges: list[tuple[int, int]] = []
        for start, end in finding.ranges:
            # The text between two pieces is not part of the range.
            first, last = bisect_right(ours, start) - 1, bisect_right(ours, max(start, end - 1)) - 1
            for piece in range(first, last + 1):
                stop = ours[piece + 1] if piece < last else end
                shift = theirs[piece] - ours[piece]
                ranges.append((max(start, ours[piece]) + shift, stop + shift))
        return replace(finding, start=ranges[0][0], end=ranges[-1][1], ranges=tuple(ranges))

    def list_warnings(self, finding: Finding, near: ExpectedPlace) -> Iterator[str]:
        """Yield warnings about the place where a quote was found."""
        yield from near.describe_mismatch(self.document, finding.start, finding.end)
        first = self.document.page_at(finding.start).number
        last = self.document.page_at(max(finding.start, finding.end - 1)).number
        if first != last:
            yield f"crosses pages {first} to {last}"
        if finding.places > 1:
            yield f"in {finding.places} places"
        if self.document.page_at(finding.start).ocr:
            yield "the source is a picture, read by a machine"
        for aside in self.document.asides:
            if (
                aside.kind in ("hidden", "deleted")
                and aside.start < finding.end
                and finding.start < aside.end
            ):
                yield f"the text is {aside.kind}"

    def to_result(self, finding: Finding, near: ExpectedPlace = ANYWHERE) -> CheckResult:
        """Convert a finding to a result, with page, boxes and warnings."""
        if finding.status in ("missed", "skipped"):
            pictures = sum(problem.code == "no_text_layer" for problem in self.document.problems)
            unread = f"{pictures} of its pages are pictures that were not read"
            return CheckResult(None, finding.status, finding.reason, warnings=(unread,) if pictures else ())
        places = [place for start, end in finding.ranges for place in self.document.places(start, end)]
        return CheckResult(
            None,
            finding.status,
            finding.reason,
            self.name,
            places[0].page,
            finding.start,
            finding.end,
            finding.found,
            finding.diff,
            tuple(box for place in places for box in place.boxes),
            (*self.list_warnings(finding, near), *finding.warnings),
            finding.edits,
            sha256=self.document.sha256,
            ranges=finding.ranges,
            text_sha256=self._text_sha256,
        )


class DocumentSet:
    """Documents to check quotes against, looked up by name, id and URL."""

    def __init__(self, documents: Iterable[Document] = ()) -> None:
        self.held = [SearchedDocument(document) for document in documents]

    def find_named(self, name: str) -> list[SearchedDocument]:
        """Return the documents a name may refer to: a file name with or without folders, an id, or a URL."""
        wanted = name.casefold()
        return [
            held
            for held in self.held
            if wanted
            in source_names(held.document.name, held.document.url, held.document.title, held.document.sha256)
        ]

    def check(
        self, quote: str, source: str | None = None, near: ExpectedPlace = ANYWHERE, name: str | None = None
    ) -> CheckResult:
        """Check `quote` in the named source, or in all documents if `source` is None."""
        return replace(self._check(quote, source, near), id=name, quote=quote)

    def _check(self, quote: str, source: str | None, near: ExpectedPlace) -> CheckResult:
        held = self.held if source is None else self.find_named(source)
        if not held:
            missing = NO_SOURCE if source is None else f"no source is called {one_line(source, 80)}"
            return CheckResult(None, "skipped", missing)
        readable = [one for one in held if one.document.text.strip()]
        if not readable:
            return CheckResult(None, "skipped", NO_TEXT_LAYER, held[0].name)
        if source is None:
            home, finding = self._search(quote, near)
        else:
            found = ((one, one.judge_quote(quote, near)) for one in readable)
            home, finding = min(found, key=lambda pair: pair[1].rank)
        return home.to_result(finding, near)

    def _search(self, quote: str, near: ExpectedPlace) -> tuple[SearchedDocument, Finding]:
        """Search the likely documents; search exhaustively only if the quote is nowhere verbatim."""
        readable, sketches = self._sketched
        found: list[tuple[SearchedDocument, Finding]] = []
        for thorough in (False, True):
            for number in sketches.find_likely(quote, thorough=thorough):
                finding = readable[number].judge_quote(quote, near, thorough=thorough)
                found.append((readable[number], finding))
                if finding.is_perfect:
                    return found[-1]
        return min(found, key=lambda pair: pair[1].rank)

    @cached_property
    def _sketched(self) -> tuple[list[SearchedDocument], Sketches]:
        readable, sketches = [one for one in self.held if one.document.text.strip()], Sketches()
        for at, one in enumerate(readable):
            sketches.insert(at, make_sketch(one.full_text.letters.text))
        return readable, sketches
