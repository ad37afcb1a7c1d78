"""Write an answer as an HTML fragment.

Tags and attributes are only those written here; the text is shown as plain text. Everything is readable
without a style sheet: verdicts are words, numbers link to the list.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from html import escape

from citewire.rendering.layout import Layout, LayoutRun, MarkRun, TextRun
from citewire.rendering.numbered_sources import NO_SOURCE, CitationMark, NumberedSource

__all__ = ["write"]

_LINES = re.compile(r"(\n)")


def write(layout: Layout, prefix: str = "cite") -> str:
    """Write the answer as an HTML fragment; ids start with `prefix`."""
    name = escape(prefix)
    parts = (piece for part in layout.parts for piece in _Paragraphs(name).of(part))
    return f'<div class="cite-answer">{"".join(parts)}{_sources(layout, name)}</div>'


class _Paragraphs:
    """Writes the paragraphs of one part. A blank line ends a paragraph, a single newline a line."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._open = False
        self._newlines = 0
        # Blanks after a newline: part of a blank line, or the indentation of the next text.
        self._blanks: list[str] = []

    def of(self, part: tuple[LayoutRun, ...]) -> Iterator[str]:
        for run in part:
            match run:
                case TextRun():
                    yield from self._words(run)
                case MarkRun(marks):
                    yield from self._break()
                    yield from (_marker(mark, self._prefix) for mark in marks)
        if self._open:
            yield "</p>"

    def _words(self, words: TextRun) -> Iterator[str]:
        wrap = _claim(words)
        for piece in _LINES.split(words.text):
            if piece == "\n":
                self._newlines += 1
                self._blanks.clear()
            elif self._newlines and not piece.strip():
                self._blanks.append(piece)
            elif piece:
                yield from self._break()
                yield wrap(escape(piece, quote=False))

    def _break(self) -> Iterator[str]:
        """Yield the separator between the text so far and the next text."""
        if not self._open:
            yield "<p>"
        elif self._newlines > 1:
            yield "</p><p>"
        elif self._newlines:
            yield "<br>"
        yield from self._blanks
        self._open = True
        self._newlines = 0
        self._blanks.clear()


def _claim(words: TextRun) -> Callable[[str], str]:
    if not words.cites:
        return str
    cites = " ".join(map(str, words.cites))
    start = f'<mark class="cite-claim" data-cite="{cites}" data-origin="{words.origin}">'
    return lambda piece: f"{start}{piece}</mark>" if piece.strip() else piece


def _marker(mark: CitationMark, prefix: str) -> str:
    status = f' data-status="{mark.status}"' if mark.status else ""
    reason = f' title="{escape(mark.reason)}"' if mark.reason else ""
    inner = _bracketed(mark)
    if mark.number != NO_SOURCE:
        inner = f'<a href="#{prefix}-src-{mark.number}">{inner}</a>'
    return f'<sup class="cite-marker"{status}{reason}>{inner}</sup>'


def _bracketed(mark: CitationMark) -> str:
    """Return the marker; serious verdicts are strong even without a style sheet."""
    if mark.status in {"altered", "missed"}:
        return str(mark).replace(mark.words, f"<strong>{mark.words}</strong>")
    return str(mark)


def _sources(layout: Layout, prefix: str) -> str:
    if not layout.sources:
        return ""
    items = "".join(_item(source, prefix) for source in layout.sources)
    return f'<div class="cite-sources"><p>Sources</p><ol>{items}</ol></div>'


def _item(source: NumberedSource, prefix: str) -> str:
    pieces = [_title(source)]
    if source.pages:
        pieces.append(f', <span class="cite-pages">{source.pages}</span>')
    if source.shown_url:
        pieces.append(f' <span class="cite-url">{escape(source.shown_url, quote=False)}</span>')
    if source.mark.words:
        pieces.append(f' <strong class="cite-status">{source.mark.words}</strong>')
    pieces += [f' <q class="cite-quote">{escape(quote, quote=False)}</q>' for quote in source.quotes]
    number = source.mark.number
    return f'<li id="{prefix}-src-{number}" value="{number}">{"".join(pieces)}</li>'


def _title(source: NumberedSource) -> str:
    # A title in the opposite writing direction must not reorder the line around it.
    label = f'<bdi class="cite-title">{escape(source.label, quote=False)}</bdi>'
    if source.href is None:
        return label
    return f'<a href="{escape(source.href)}" rel="nofollow noopener noreferrer">{label}</a>'
