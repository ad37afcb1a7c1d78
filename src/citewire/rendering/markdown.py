"""Write an answer in CommonMark: `[1]` in the text, the links in the list."""

from __future__ import annotations

from citewire.rendering.commonmark import defuse, write_body, write_source_item
from citewire.rendering.layout import Layout

__all__ = ["write"]


def write(layout: Layout) -> str:
    """Write the answer in Markdown."""
    items = [line for source in layout.sources for line in write_source_item(source)]
    sections = [write_body(layout, defuse), "**Sources**" if items else "", "\n".join(items)]
    return "\n\n".join(section for section in sections if section)
