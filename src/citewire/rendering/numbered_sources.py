"""Number the sources: merge identical ones, and prepare each line of the list."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from msgspec import Struct

from citewire.model import Lines, Locator, Pages, Source, SourceRef, Status, Verification
from citewire.rendering.safety import clean_line, safe_link

__all__ = [
    "CitationMark",
    "NO_SOURCE",
    "NumberedSource",
    "NumberedSources",
    "STATUS_WORDS",
    "make_mark",
    "worst_mark",
]

# A verified citation is inconspicuous; a serious verdict is in capitals in every format.
STATUS_WORDS: dict[Status, str] = {
    "verified": "✓",
    "partial": "partial",
    "altered": "⚠ ALTERED",
    "missed": "⚠ NOT FOUND",
    "pending": "pending",
    "skipped": "unchecked",
}

# Which verdict is shown if several share one number: the last one wins. A missing verdict outranks
# `verified`: a tick must hold for everything it covers.
_RANK: dict[Status | None, int] = {
    status: rank
    for rank, status in enumerate(("verified", None, "pending", "skipped", "partial", "missed", "altered"))
}

# The number of a citation that names no source, printed as `[?]`.
NO_SOURCE = 0

# Quotes help to recognise a source; the list must stay short.
_QUOTES = 3
_QUOTE_LENGTH = 160


class CitationMark(Struct, frozen=True, gc=False):
    """A number as printed, with the verdict on its citations."""

    number: int
    status: Status | None = None
    reason: str | None = None

    @property
    def words(self) -> str:
        """The verdict in words or a sign; empty if there is none."""
        return "" if self.status is None else STATUS_WORDS[self.status]

    def __str__(self) -> str:
        return f"[{self.number or '?'} {self.words}]" if self.status else f"[{self.number or '?'}]"


class NumberedSource(Struct, frozen=True, gc=False):
    """A line of the sources list. All its text is clean and on one line.

    `href` is `url` made safe to link, None if it may only be shown. `mark` has a verdict only for citations
    without a place in the text, since nothing else would show it.
    """

    mark: CitationMark
    label: str
    url: str | None = None
    href: str | None = None
    pages: str = ""
    quotes: tuple[str, ...] = ()

    @property
    def shown_url(self) -> str | None:
        """The URL, unless the label already is the URL."""
        return None if self.url == self.label else self.url


def worst_mark(marks: Iterable[CitationMark]) -> CitationMark:
    """Return the mark whose verdict is shown for all of `marks`, which share a number."""
    return max(marks, key=lambda mark: _RANK[mark.status])


def make_mark(number: int, verdict: Verification | None) -> CitationMark:
    """Return `number` with `verdict`."""
    if verdict is None:
        return CitationMark(number)
    return CitationMark(number, verdict.status, clean_line(verdict.reason) if verdict.reason else None)


@dataclass(slots=True)
class _SourceEntry:
    source: Source
    pages: set[tuple[int, int]] = field(default_factory=set[tuple[int, int]])
    quotes: dict[str, None] = field(default_factory=dict[str, None])
    unplaced: list[CitationMark] = field(default_factory=list[CitationMark])


class NumberedSources:
    """Assigns numbers to sources on first use.

    Sources with the same id or the same URL are one. A source missing from the answer is listed by its id.
    """

    def __init__(self, sources: Iterable[Source]) -> None:
        self._key: dict[str, str] = {}
        self._face: dict[str, Source] = {}
        self._number: dict[str, int] = {}
        self._entries: list[_SourceEntry] = []
        by_url: dict[str, str] = {}
        for source in sources:
            if source.id in self._key:
                continue
            key = by_url.setdefault(source.url, source.id) if source.url else source.id
            self._key[source.id] = key
            face = self._face.setdefault(key, source)
            if source.title and not face.title:
                self._face[key] = source

    def assign_number(self, ref: SourceRef) -> int:
        """Return the number of the source that `ref` names, and add its page and quote to the list."""
        key = self._key.get(ref.source_id, ref.source_id)
        number = self._number.setdefault(key, len(self._number) + 1)
        if number > len(self._entries):
            self._entries.append(_SourceEntry(self._face.get(key) or Source(id=key)))
        entry = self._entries[number - 1]
        if pages := _pages(ref.locator):
            entry.pages.add(pages)
        if ref.quote and len(entry.quotes) < _QUOTES:
            entry.quotes.setdefault(_shorten(ref.quote))
        return number

    def add_unplaced_mark(self, mark: CitationMark) -> None:
        """Show `mark` in the list, since its citation has no place in the text."""
        self._entries[mark.number - 1].unplaced.append(mark)

    def list_sources(self) -> tuple[NumberedSource, ...]:
        """Return every numbered source, in order."""
        return tuple(_listed(number, entry) for number, entry in enumerate(self._entries, 1))


def _listed(number: int, entry: _SourceEntry) -> NumberedSource:
    source = entry.source
    url = clean_line(source.url or "") or None
    return NumberedSource(
        mark=worst_mark(entry.unplaced or [CitationMark(number)]),
        label=clean_line(source.label) or url or f"Source {number}",
        url=url,
        href=safe_link(source.url or ""),
        pages=_page_words(entry.pages),
        quotes=tuple(quote for quote in entry.quotes if quote),
    )


def _pages(locator: Locator | None) -> tuple[int, int] | None:
    match locator:
        case Pages(first, last):
            return min(first, last), max(first, last)
        case Lines(page=int(page)):
            return page, page
        case _:
            return None


def _page_words(pages: set[tuple[int, int]]) -> str:
    """Format pages as `p. 3` or `pp. 3–5, 8`; adjacent ranges are merged."""
    merged: list[tuple[int, int]] = []
    for first, last in sorted(pages):
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = merged[-1][0], max(last, merged[-1][1])
        else:
            merged.append((first, last))
    if not merged:
        return ""
    several = len(merged) > 1 or merged[0][0] != merged[0][1]
    return ("pp. " if several else "p. ") + ", ".join(
        f"{first}" if first == last else f"{first}–{last}" for first, last in merged
    )


def _shorten(quote: str) -> str:
    """Return the beginning of `quote`, cut between words."""
    # Only the beginning is cleaned: quotes may be whole documents.
    line = clean_line(quote[: 4 * _QUOTE_LENGTH])
    if len(line) <= _QUOTE_LENGTH:
        return line
    return (line[:_QUOTE_LENGTH].rpartition(" ")[0] or line[:_QUOTE_LENGTH]) + " …"
