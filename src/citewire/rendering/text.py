"""Write an answer as plain text."""

from __future__ import annotations

from citewire.rendering.layout import Layout, join_runs
from citewire.rendering.numbered_sources import NumberedSource

__all__ = ["write"]


def write(layout: Layout) -> str:
    """Write the answer as plain text."""
    lines = [_line(source) for source in layout.sources]
    sections = [join_runs(layout), "\n".join(["Sources:", *lines]) if lines else ""]
    return "\n\n".join(section for section in sections if section)


def _line(source: NumberedSource) -> str:
    pages = f", {source.pages}" if source.pages else ""
    url = f" — {source.shown_url}" if source.shown_url else ""
    return f"{source.mark} {source.label}{pages}{url}"
