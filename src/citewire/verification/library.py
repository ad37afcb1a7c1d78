"""The documents that quotes are checked against, and what a check says.

A quote that names its source is looked for there; any other in all of them. What running headers, page
numbers and deleted text come between is read as one, so a quote may go on over a page.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import PurePath

from msgspec import Struct
from msgspec.structs import replace

from citewire.documents.document import Box, Document
from citewire.model import Status
from citewire.text import for_log
from citewire.verification.match import Searchable
from citewire.verification.policy import Difference, Finding, judge

__all__ = ["Checked", "Held", "Library"]

# What the text goes on around.
_APART = frozenset({"header", "footer", "deleted", "comment"})
_NO_TEXT = "no text layer"


class Checked(Struct, frozen=True, gc=False, rename={"found": "quote_found"}):
    """What became of one quote: where it stands, what differs, and what to be careful about.

    `start` and `end` are offsets in the text of the source, in code points; `boxes` one rectangle a line.
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


class Held:
    """A document that is searched."""

    def __init__(self, document: Document) -> None:
        self.document = document

    @property
    def name(self) -> str:
        """What it is called in a report."""
        return self.document.name or self.document.url or self.document.sha256[:12]

    @cached_property
    def _whole(self) -> Searchable:
        return Searchable(self.document.text)

    @cached_property
    def _body(self) -> tuple[Searchable, list[int], list[int]] | None:
        """The text without what stands apart, and where its pieces start, in it and in the document."""
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
        return (
            None if len(pieces) < 2 and length == len(text) else (Searchable("".join(pieces)), ours, theirs)
        )

    def judge(self, quote: str, pages: Sequence[int] = ()) -> Finding:
        """What `quote` is here; of equally good places, one on these pages."""
        near = [(page.start, page.end) for page in self.document.pages if page.number in pages]
        finding = judge(quote, self._whole, near)
        if finding.status == "verified" or self._body is None:
            return finding
        body, ours, theirs = self._body
        other = judge(quote, body)
        if other.rank >= finding.rank:
            return finding

        def back(offset: int) -> int:
            piece = bisect_right(ours, offset) - 1
            return theirs[piece] + offset - ours[piece]

        start, end = back(other.start), back(max(other.end - 1, 0)) + 1
        return replace(other, start=start, end=end)

    def warnings(self, finding: Finding, pages: Sequence[int]) -> Iterator[str]:
        """What is to be said of where a quote stands."""
        first = self.document.page_at(finding.start).number
        last = self.document.page_at(max(finding.start, finding.end - 1)).number
        if pages and not set(pages) & set(range(first, last + 1)):
            yield f"on page {first}, not {', '.join(map(str, pages))}"
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


class Library:
    """Documents, by name, id and address."""

    def __init__(self, documents: Iterable[Document] = ()) -> None:
        self.held = [Held(document) for document in documents]

    def named(self, name: str) -> list[Held]:
        """The documents that a name may mean: a file name with or without folders, an id, an address."""
        wanted = name.casefold()
        return [held for held in self.held if wanted in _names(held.document)]

    def check(
        self, quote: str, source: str | None = None, pages: Sequence[int] = (), name: str | None = None
    ) -> Checked:
        """What becomes of `quote`, in the source that it names or in all of them."""
        return replace(self._check(quote, source, pages, name), quote=quote)

    def _check(self, quote: str, source: str | None, pages: Sequence[int], name: str | None) -> Checked:
        held = self.held if source is None else self.named(source)
        if not held:
            missing = "there is no source" if source is None else f"no source is called {for_log(source, 80)}"
            return Checked(name, "skipped", missing)
        readable = [one for one in held if one.document.text.strip()]
        if not readable:
            return Checked(name, "skipped", _NO_TEXT, held[0].name)
        findings = [(one, one.judge(quote, pages)) for one in readable]
        best, finding = min(findings, key=lambda pair: pair[1].rank)
        return _checked(name, best, finding, pages)


def _names(document: Document) -> set[str]:
    names = {document.sha256, document.url or "", document.name or "", document.title or ""}
    if document.name:
        path = PurePath(document.name)
        names |= {path.name, path.stem}
    return {name.casefold() for name in names if name}


def _checked(name: str | None, held: Held, finding: Finding, pages: Sequence[int]) -> Checked:
    if finding.status in ("missed", "skipped"):
        return Checked(name, finding.status, finding.reason)
    places = held.document.places(finding.start, finding.end)
    return Checked(
        name,
        finding.status,
        finding.reason,
        held.name,
        places[0].page,
        finding.start,
        finding.end,
        finding.found,
        finding.diff,
        tuple(box for place in places for box in place.boxes),
        (*held.warnings(finding, pages), *finding.warnings),
        finding.edits,
    )
