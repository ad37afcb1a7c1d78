"""The numbered sources: which sources are one and the same, what the list says of each."""

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

# A verified citation is quiet; what a reader must not overlook is in capitals on every surface.
STATUS_WORDS: dict[Status, str] = {
    "verified": "✓",
    "partial": "partial",
    "altered": "⚠ ALTERED",
    "missed": "⚠ NOT FOUND",
    "pending": "pending",
    "skipped": "unchecked",
}

# Which verdict stands where several share one number, the last one first. No verdict outranks `verified`:
# a tick must hold for everything it stands for.
_RANK: dict[Status | None, int] = {
    status: rank
    for rank, status in enumerate(("verified", None, "pending", "skipped", "partial", "missed", "altered"))
}

# The number of a citation that names no source, printed as `[?]`.
NO_SOURCE = 0

# Quotes help to recognise a source; the list must stay a list.
_QUOTES = 3
_QUOTE_LENGTH = 160


class CitationMark(Struct, frozen=True, gc=False):
    """A number as it is printed, with the verdict on what it stands for."""

    number: int
    status: Status | None = None
    reason: str | None = None

    @property
    def words(self) -> str:
        """The verdict in words or a sign; empty when there is none."""
        return "" if self.status is None else STATUS_WORDS[self.status]

    def __str__(self) -> str:
        return f"[{self.number or '?'} {self.words}]" if self.status else f"[{self.number or '?'}]"


class NumberedSource(Struct, frozen=True, gc=False):
    """A line of the sources list. All text in it is clean and on one line.

    `href` is `url` made safe to link, None when it may only be shown. `mark` has a verdict only for
    citations that have no place in the text, since nothing else would show it.
    """

    mark: CitationMark
    label: str
    url: str | None = None
    href: str | None = None
    pages: str = ""
    quotes: tuple[str, ...] = ()

    @property
    def shown_url(self) -> str | None:
        """The URL, unless the label already is."""
        return None if self.url == self.label else self.url


def worst_mark(marks: Iterable[CitationMark]) -> CitationMark:
    """The mark whose verdict stands for all of `marks`, which share a number."""
    return max(marks, key=lambda mark: _RANK[mark.status])


def make_mark(number: int, verdict: Verification | None) -> CitationMark:
    """`number` with `verdict`."""
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
    """Sources that get their number when they are first asked for.

    Sources of the same id or the same URL are one. A source that the answer does not have goes by its id.
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
        """The number of the source that `ref` names; its page and quote go on the list."""
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
        """Show `mark` in the list: its citation has no place in the text."""
        self._entries[mark.number - 1].unplaced.append(mark)

    def list_sources(self) -> tuple[NumberedSource, ...]:
        """Every source that got a number, in order."""
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
    """`p. 3` or `pp. 3–5, 8`; stretches that touch become one."""
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
    """The beginning of `quote`, cut between words."""
    # Only the beginning is looked at: quotes may be whole documents.
    line = clean_line(quote[: 4 * _QUOTE_LENGTH])
    if len(line) <= _QUOTE_LENGTH:
        return line
    return (line[:_QUOTE_LENGTH].rpartition(" ")[0] or line[:_QUOTE_LENGTH]) + " …"
