"""Write an answer for a terminal: colours, and links where the terminal supports them (OSC 8)."""

from __future__ import annotations

from urllib.parse import quote

from citewire.model import Status
from citewire.rendering.layout import Layout, join_runs
from citewire.rendering.numbered_sources import CitationMark, NumberedSource

__all__ = ["write"]

_BOLD, _DIM, _CYAN = "1", "2", "36"
# White on red, bold: hard to overlook.
_ALARM = "1;97;41"
_COLOURS: dict[Status | None, str] = {
    None: _CYAN,
    "verified": "32",
    "partial": "33",
    "altered": _ALARM,
    "missed": _ALARM,
    "pending": _DIM,
    "skipped": _DIM,
}


def write(layout: Layout, *, colour: bool = True) -> str:
    """Write the answer for a terminal; without `colour` there is no escape sequence at all."""
    text = join_runs(layout, _coloured if colour else str)
    lines = [_line(source, colour=colour) for source in layout.sources]
    title = _paint("Sources", _BOLD) if colour else "Sources"
    return "\n\n".join(section for section in (text, "\n".join([title, *lines]) if lines else "") if section)


def _line(source: NumberedSource, *, colour: bool) -> str:
    mark = _coloured(source.mark) if colour else str(source.mark)
    label = _linked(source.label, source.href) if colour and not source.shown_url else source.label
    pages = f", {source.pages}" if source.pages else ""
    url = source.shown_url
    if url and colour:
        url = _linked(_paint(url, _DIM), source.href)
    return f"{mark} {label}{pages}{f' — {url}' if url else ''}"


def _coloured(mark: CitationMark) -> str:
    return _paint(str(mark), _COLOURS[mark.status])


def _paint(text: str, style: str) -> str:
    return f"\x1b[{style}m{text}\x1b[0m"


def _linked(text: str, href: str | None) -> str:
    """Return `text` as a link. OSC 8 takes printable ASCII only."""
    if href is None:
        return text
    target = quote(href, safe="!#$%&'()*+,/:;=?@[]~")
    return f"\x1b]8;;{target}\x1b\\{text}\x1b]8;;\x1b\\"
